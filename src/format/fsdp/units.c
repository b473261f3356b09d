/* units.c - the units= file */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/fsdp/units.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/keys.h"
#include "base/memory.h"
#include "base/step.h"
#include "format/fsdp/units_impl.h"

/* No parameter is in two units. */
static int add_name(struct ofs_units *u, const struct ofs_unit *unit,
    struct ofs_str fqn, struct optimfs_error *err)
{
	uint32_t known = u->names.n, number = ofs_keys_add(&u->names, fqn, err);
	const struct ofs_unit *other = u->unit;

	if (number == OFS_NONE)
		return -1;
	if (number == known)
		return 0;
	while (number >= other->first + other->flat.nparams)
		other++;
	return optimfs_fail(err, EUCLEAN,
	    "OFS163 %.100s is in two units, \"%.50s\" and \"%.50s\"", fqn.p,
	    other->prefix.p, unit->prefix.p);
}

static int number_params(struct ofs_units *u, struct optimfs_error *err)
{
	for (uint32_t i = 0; i < u->n; i++) {
		struct ofs_unit *unit = &u->unit[i];

		unit->first = u->names.n;
		for (uint32_t k = 0; k < unit->flat.nparams; k++)
			if (add_name(u, unit, unit->param[k].fqn, err) == -1)
				return -1;
	}
	return 0;
}

int ofs_units_parse(struct ofs_units *u, const char *file, const void *text,
    uint32_t n, struct optimfs_error *err)
{
	struct ofs_units_reader r = { .u = u, .err = err };
	int ret;

	*u = (struct ofs_units){ .file = file };
	/* such as a pickle or an archive of the checkpoint */
	if (n > 0 && strchr("[{ \t\r\n", *(const char *)text) == NULL)
		return optimfs_fail(err, EINVAL,
		    "OFS162 not a units file: it is not JSON");
	ofs_json_init(&r.j, text, n);
	ret = ofs_units_document(&r);
	if (ret == 0)
		ret = ofs_units_keep(&r, &r.order, &u->order, &u->norder);
	if (ret == 0)
		ret = ofs_units_keep(&r, &r.ids, &u->ids, &u->nids);
	if (ret == 0)
		ret = number_params(u, err);
	ofs_json_fini(&r.j);
	free(r.order.v);
	free(r.ids.v);
	if (ret == -1)
		ofs_units_fini(u);
	return ret;
}

void ofs_units_fini(struct ofs_units *u)
{
	for (uint32_t i = 0; i < u->n; i++)
		ofs_flat_fini(&u->unit[i].flat);
	free(u->unit);
	free(u->tie);
	ofs_keys_fini(&u->names);
	ofs_arena_fini(&u->arena);
	*u = (struct ofs_units){ 0 };
}

int ofs_units_remember(struct ofs_catalog *cat, const char *file,
    const void *text, uint32_t n, struct optimfs_error *err)
{
	char *name = ofs_arena_strndup(&cat->arena, file, strlen(file));
	char *copy = ofs_arena_strndup(&cat->arena, text, n);

	if (name == NULL || copy == NULL)
		return ofs_no_memory(err);
	cat->units = copy;
	cat->units_file = name;
	cat->nunits = n;
	return 0;
}

int ofs_units_recall(struct ofs_units *u, const struct ofs_catalog *cat,
    struct optimfs_error *err)
{
	if (cat->units == NULL)
		return 1;
	if (ofs_units_parse(u, cat->units_file, cat->units, cat->nunits, err) ==
	    0)
		return 0;
	return optimfs_fail_in(err, "units=%.100s", cat->units_file);
}

static bool is_none(const struct optimfs_options *opt)
{
	return opt != NULL && opt->units != NULL &&
	    strcmp(opt->units, OFS_UNITS_NONE) == 0;
}

static int keep_option(struct ofs_catalog *cat,
    const struct optimfs_options *opt, struct optimfs_error *err)
{
	struct ofs_buf b = { .limit = OFS_UNITS_MAX };
	int ret;

	if (opt == NULL || opt->units == NULL || is_none(opt) ||
	    cat->units != NULL)
		return 0;
	ret = ofs_read_named("OFS162 units", opt->units, &b, err);
	if (ret == 0)
		ret = ofs_units_remember(cat, opt->units, b.data,
		    (uint32_t)b.len, err);
	ofs_buf_fini(&b);
	return ret;
}

int ofs_units_option(struct ofs_catalog *cat, const struct optimfs_options *opt,
    struct optimfs_error *err)
{
	struct ofs_units u = { 0 };
	int ret;

	if (cat->units != NULL)
		return 0;
	if (keep_option(cat, opt, err) == -1)
		return -1;
	ret = ofs_units_recall(&u, cat, err);
	ofs_units_fini(&u);
	return ret == -1 ? -1 : 0;
}

/* Reads the units file in the directory of rel. */
static int read_beside(struct ofs_units *u, struct ofs_catalog *cat,
    const char *rel, struct optimfs_error *err)
{
	const char *slash = strrchr(rel, '/');
	int dir = slash == NULL ? 0 : (int)(slash + 1 - rel);
	struct optimfs_error why = { 0 }, note;
	struct stat st;
	char *name;
	uint8_t *p = NULL;
	uint64_t n;
	int ret = 1;

	if (asprintf(&name, "%.*s" OFS_UNITS_FILE, dir, rel) == -1)
		return ofs_no_memory(err);
	if (!ofs_dir_stat(&cat->dir, name, &st))
		goto out;
	if (ofs_dir_read_file(&cat->dir, name, OFS_UNITS_MAX, &p, &n, &why) ==
		0 &&
	    ofs_units_parse(u, name, p, (uint32_t)n, &why) == 0) {
		ret = ofs_units_remember(cat, name, p, (uint32_t)n, err);
		u->file = cat->units_file;
		if (ret == -1)
			ofs_units_fini(u);
	} else if (ofs_must_stop(&why)) {
		ret = optimfs_fail_with(err, &why);
	} else {
		optimfs_fail_as(&note, why.code, "%s (%s is not used)",
		    why.text, name);
		if (ofs_catalog_note_as(cat, OFS_NOTE_WARNING, &note, err) ==
		    -1)
			ret = -1;
	}
out:
	free(p);
	free(name);
	return ret;
}

int ofs_units_of(struct ofs_units *u, struct ofs_catalog *cat, const char *rel,
    const struct optimfs_options *opt, struct optimfs_error *err)
{
	if (is_none(opt))
		return 1;
	if (opt == NULL || opt->units == NULL)
		return read_beside(u, cat, rel, err);
	if (keep_option(cat, opt, err) == -1)
		return -1;
	return ofs_units_recall(u, cat, err);
}
