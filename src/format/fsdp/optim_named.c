/* optim_named.c - IDs whose names are in the units or the ids= file */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/search.h"
#include "base/str.h"
#include "format/fsdp/fsdp.h"
#include "format/fsdp/optim.h"
#include "naming/ids_file.h"

/* A name of an ID, and its origin, for messages. */
struct word {
	struct ofs_str fqn; /* without wrappers */
	char from[160];
};

static int wrong_name(const struct word *w, uint32_t id, const char *why,
    struct optimfs_error *err)
{
	return optimfs_fail_as(err, EINVAL, "%s: ID %" PRIu32 " is %.100s, %s",
	    w->from, id, w->fqn.p, why);
}

static int name_id(struct ofs_fsdp_optim *o, uint32_t id, const struct word *w,
    struct optimfs_error *err)
{
	struct ofs_unit_place at = ofs_fsdp_find(o->f, w->fqn);

	o->name[id] = at;
	if (at.unit != OFS_NONE)
		return ofs_fsdp_may_be(o, id, at)
		    ? 0
		    : wrong_name(w, id, "but its state is not that one's", err);
	/* it is a parameter that FSDP ignored, if the model has it */
	if (!ofs_fsdp_knows(o->f, w->fqn))
		return wrong_name(w, id,
		    "which is in no unit of the units file", err);
	o->ignored[id] = w->fqn;
	return 0;
}

static int wrong_count(const struct ofs_ids_file *ids, uint32_t n,
    struct optimfs_error *err)
{
	uint32_t line = n < ids->n ? ids->v[n].line : ids->end;

	return optimfs_fail(err, EINVAL,
	    "OFS635 %s: line %" PRIu32 ": %" PRIu32
	    " names, the optimizer has %" PRIu32 " parameters",
	    ids->file, line, ids->n, n);
}

/* Groups in the file must be the optimizer's. */
static int check_groups(const struct ofs_fsdp_optim *o,
    const struct ofs_ids_file *ids, struct optimfs_error *err)
{
	uint32_t at = 0;

	if (ids->n != o->nids)
		return wrong_count(ids, o->nids, err);
	if (ids->ngroups < 2)
		return 0;
	for (uint32_t i = 0; i < o->nlists; i++)
		for (uint32_t k = 0; k < o->size[i]; k++, at++)
			if (ids->v[at].group != i)
				return optimfs_fail(err, EINVAL,
				    "OFS635 %s: line %" PRIu32
				    " is of group %" PRIu32
				    ", the optimizer has ID %" PRIu32
				    " in group %" PRIu32,
				    ids->file, ids->v[at].line,
				    ids->v[at].group, at, i);
	return ids->ngroups <= o->nlists
	    ? 0
	    : optimfs_fail(err, EINVAL,
		  "OFS635 %s: %" PRIu32
		  " groups of names, the optimizer has %" PRIu32,
		  ids->file, ids->ngroups, o->nlists);
}

static int match_file(struct ofs_fsdp_optim *o, struct optimfs_error *err)
{
	const struct ofs_ids_file *ids = o->f->ids;
	const struct ofs_units *u = o->f->units;
	struct ofs_catalog *cat = o->f->set->cat;

	cat->ids_used = true;
	if (check_groups(o, ids, err) == -1)
		return -1;
	for (uint32_t id = 0; id < o->nids; id++) {
		uint32_t str = ofs_fsdp_clean(o->f, ids->v[id].name, err);
		struct word w;

		if (str == OFS_NONE)
			return -1;
		w.fqn = ofs_catalog_string(cat, str);
		snprintf(w.from, sizeof(w.from), "OFS635 %.100s: line %" PRIu32,
		    ids->file, ids->v[id].line);
		if (u->nids == o->nids && !ofs_str_equal(u->ids[id], w.fqn))
			return optimfs_fail_as(err, EINVAL,
			    "%s: ID %" PRIu32 " is %.60s, param_groups of "
			    "the units file has %.60s",
			    w.from, id, w.fqn.p, u->ids[id].p);
		if (name_id(o, id, &w, err) == -1)
			return -1;
	}
	return 0;
}

static int match_groups(struct ofs_fsdp_optim *o, struct optimfs_error *err)
{
	const struct ofs_units *u = o->f->units;
	struct word w;

	if (u->nids != o->nids)
		return optimfs_fail(err, EINVAL,
		    "OFS164 %.100s: param_groups has %" PRIu32
		    " names, the optimizer %" PRIu32 " parameters",
		    u->file, u->nids, o->nids);
	snprintf(w.from, sizeof(w.from), "OFS164 %.100s: param_groups",
	    u->file);
	for (uint32_t id = 0; id < o->nids; id++) {
		w.fqn = u->ids[id];
		if (name_id(o, id, &w, err) == -1)
			return -1;
	}
	return 0;
}

OFS_COMPARE_BY2(by_param, struct ofs_unit_place, unit, param)

int ofs_fsdp_repeated(const struct ofs_unit_place *name, uint32_t n,
    struct ofs_unit_place *twice, struct optimfs_error *err)
{
	struct ofs_unit_place *v = calloc(n + 1ull, sizeof(*v));

	twice->unit = OFS_NONE;
	if (v == NULL)
		return ofs_no_memory(err);
	memcpy(v, name, n * sizeof(*v));
	qsort(v, n, sizeof(*v), by_param);
	for (uint32_t i = 1; i < n && twice->unit == OFS_NONE; i++)
		if (by_param(&v[i - 1], &v[i]) == 0)
			*twice = v[i];
	free(v);
	return 0;
}

/* No parameter of a unit may have two IDs. */
static int check_doubles(const struct ofs_fsdp_optim *o,
    struct optimfs_error *err)
{
	struct ofs_unit_place twice;

	if (ofs_fsdp_repeated(o->name, o->nids, &twice, err) == -1)
		return -1;
	return twice.unit == OFS_NONE
	    ? 0
	    : optimfs_fail(err, EINVAL, "OFS164 two IDs are called %.150s",
		  ofs_fsdp_param(o->f, twice)->fqn.p);
}

int ofs_fsdp_match_names(struct ofs_fsdp_optim *o, struct optimfs_error *err)
{
	int ret = 1;

	if (o->f->ids != NULL)
		ret = match_file(o, err);
	else if (o->f->units->nids > 0)
		ret = match_groups(o, err);
	return ret == 0 ? check_doubles(o, err) : ret;
}
