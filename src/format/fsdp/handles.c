/* handles.c - OLMo's flat parameters, which include their units */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/checked.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/step.h"
#include "base/str.h"
#include "format/fsdp/fsdp.h"
#include "format/probe.h"
#include "format/torch_file/file.h"

#define KEY(name) "flat_param." name
/* Most components before the mapping: the part's prefix. */
#define MAX_PARENT OFS_PART_PREFIX

/* Writes a file's handles as a units file, so that a single reader checks
 * them. */

struct writer {
	const struct ofs_pickle *doc;
	struct ofs_buf b;
	uint32_t world; /* of the job */
	int rank;
};

static uint32_t modules_of(const struct ofs_pickle *doc)
{
	uint32_t m = ofs_pk_get(doc, ofs_pickle_root(doc), "modules");

	return ofs_pk_is_sequence(doc, m) ? m : OFS_NONE;
}

static bool has_handles(const struct ofs_pickle *doc)
{
	uint32_t modules = modules_of(doc);

	for (uint32_t i = 0; i < ofs_pk_len(doc, modules); i++) {
		uint32_t h =
		    ofs_pk_get(doc, ofs_pk_item(doc, modules, i), "handles");

		if (ofs_pk_len(doc, h) > 0 &&
		    ofs_pk_get(doc, ofs_pk_item(doc, h, 0), KEY("data")) !=
			OFS_NONE)
			return true;
	}
	return false;
}

static void put_item(struct writer *w, uint32_t node)
{
	struct ofs_str s = ofs_pk_str(w->doc, node);
	int64_t v;

	if (ofs_pk_kind(w->doc, node) == OFS_PK_STR) {
		ofs_buf_putc(&w->b, '"');
		ofs_buf_json(&w->b, s.p, s.len);
		ofs_buf_putc(&w->b, '"');
	} else if (ofs_pk_kind(w->doc, node) == OFS_PK_BOOL)
		ofs_buf_puts(&w->b, ofs_pk_bool(w->doc, node) ? "1" : "0");
	else if (ofs_pk_int(w->doc, node, &v))
		ofs_buf_printf(&w->b, "%" PRId64, v);
	else
		ofs_buf_puts(&w->b, "null");
}

/* Writes a list of numbers, or of lists or named tuples. */
static void put_list(struct writer *w, uint32_t node, unsigned depth)
{
	if (depth > 0 && ofs_pk_kind(w->doc, node) == OFS_PK_OBJECT)
		node = ofs_pk_args(w->doc, node);
	if (!ofs_pk_is_sequence(w->doc, node)) {
		put_item(w, node);
		return;
	}
	ofs_buf_putc(&w->b, '[');
	for (uint32_t i = 0;
	     i < ofs_pk_len(w->doc, node) && w->b.len <= OFS_UNITS_MAX; i++) {
		uint32_t item = ofs_pk_item(w->doc, node, i);

		if (i > 0)
			ofs_buf_putc(&w->b, ',');
		if (depth < 2)
			put_list(w, item, depth + 1);
		else
			put_item(w, item);
	}
	ofs_buf_putc(&w->b, ']');
}

static void put_member(struct writer *w, const char *key, uint32_t node)
{
	if (node == OFS_NONE)
		return;
	ofs_buf_printf(&w->b, ",\"%s\":", key);
	put_list(w, node, 0);
}

/* PyTorch 2.0 stores the first and last element of each parameter in the shard,
 * beginning with parameter _shard_indices[0]. There is no padding between
 * parameters. */
static void put_old_infos(struct writer *w, uint32_t handle, uint32_t nparams)
{
	uint32_t range = ofs_pk_get(w->doc, handle, KEY("_shard_indices"));
	uint32_t ends = ofs_pk_get(w->doc, handle, KEY("_shard_param_offsets"));
	int64_t first, at = 0;

	if (!ofs_pk_int(w->doc, ofs_pk_item(w->doc, range, 0), &first))
		return;
	ofs_buf_puts(&w->b, ",\"shard_param_infos\":[");
	for (uint32_t i = 0; i < nparams; i++) {
		int64_t k = (int64_t)i - first, from = 0, to = 0;
		uint32_t pair = k < 0 || k >= ofs_pk_len(w->doc, ends)
		    ? OFS_NONE
		    : ofs_pk_item(w->doc, ends, (uint32_t)k);

		ofs_buf_puts(&w->b, i > 0 ? "," : "");
		if (!ofs_pk_int(w->doc, ofs_pk_item(w->doc, pair, 0), &from) ||
		    !ofs_pk_int(w->doc, ofs_pk_item(w->doc, pair, 1), &to) ||
		    from < 0 || to < from || to - from >= INT64_MAX - at) {
			ofs_buf_puts(&w->b, "[0,null,null,null,null]");
			continue;
		}
		ofs_buf_printf(&w->b,
		    "[1,%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "]", at,
		    to - from + 1, from, to);
		at += to - from + 1;
	}
	ofs_buf_putc(&w->b, ']');
}

/* The sum of a list of lengths; false: it is not such a list. */
static bool sum_of(const struct writer *w, uint32_t list, uint64_t *sum)
{
	*sum = 0;
	for (uint32_t i = 0; i < ofs_pk_len(w->doc, list); i++) {
		int64_t v;

		if (!ofs_pk_int(w->doc, ofs_pk_item(w->doc, list, i), &v) ||
		    v < 0 || !ofs_add_u64(*sum, (uint64_t)v, sum))
			return false;
	}
	return ofs_pk_len(w->doc, list) > 0;
}

/* Writes the number of ranks that share a flat parameter of n elements, if this
 * rank's shard has shard elements: all ranks, or as many as these sizes
 * give. */
static void put_world(struct writer *w, uint64_t n, uint64_t shard)
{
	uint32_t world = w->world;
	bool whole = world > 1 && shard == n;
	uint64_t of;

	if (!whole && shard > 0 && n % shard == 0) {
		of = n / shard;
		if (of < world && world % of == 0 &&
		    n / world + (n % world > 0) != shard)
			world = (uint32_t)of;
	}
	ofs_buf_printf(&w->b,
	    "\"strategy\":\"%s\",\"world_size\":%" PRIu32 ",\"rank\":%" PRIu32
	    ",\"sharded_size\":%" PRIu64,
	    whole ? "NO_SHARD" : "", world, (uint32_t)w->rank % world, shard);
}

static int put_handle(struct writer *w, uint32_t handle, uint32_t name,
    struct optimfs_error *err)
{
	const struct ofs_pickle *doc = w->doc;
	uint32_t numels = ofs_pk_get(doc, handle, KEY("_numels"));
	uint32_t padded = ofs_pk_get(doc, handle, KEY("_numels_with_padding"));
	uint32_t infos = ofs_pk_get(doc, handle, KEY("_shard_param_infos"));
	uint32_t fqns = ofs_pk_get(doc, handle, KEY("_fqns"));
	struct ofs_torch_tensor t;
	uint64_t n;

	/* before PyTorch 2.1 there is no padding */
	if (!ofs_pk_is_sequence(doc, padded))
		padded = numels;
	if (ofs_torch_tensor(doc, ofs_pk_get(doc, handle, KEY("data")), &t,
		err) != 1 ||
	    t.ndim != 1 || !sum_of(w, padded, &n))
		return optimfs_fail(err, EUCLEAN,
		    "OFS162 a handle lacks flat_param.data or _numels, or they "
		    "are invalid");
	ofs_buf_puts(&w->b, "{");
	put_world(w, n, t.shape[0]);
	put_member(w, "prefix", name);
	put_member(w, "fqns", fqns);
	put_member(w, "shapes", ofs_pk_get(doc, handle, KEY("_shapes")));
	put_member(w, "numels", numels);
	put_member(w, "numels_with_padding", padded);
	put_member(w, "shard_numel_padded",
	    ofs_pk_get(doc, handle, KEY("_shard_numel_padded")));
	put_member(w, "shard_param_infos", infos);
	if (infos == OFS_NONE)
		put_old_infos(w, handle, ofs_pk_len(doc, fqns));
	ofs_buf_putc(&w->b, '}');
	return 0;
}

static int put_units(struct writer *w, struct optimfs_error *err)
{
	uint32_t modules = modules_of(w->doc);
	const char *sep = "";

	for (uint32_t i = 0; i < ofs_pk_len(w->doc, modules); i++) {
		uint32_t m = ofs_pk_item(w->doc, modules, i);
		uint32_t handles = ofs_pk_get(w->doc, m, "handles");
		uint32_t name = ofs_pk_get(w->doc, m, "name");

		for (uint32_t k = 0; k < ofs_pk_len(w->doc, handles); k++) {
			ofs_buf_puts(&w->b, sep);
			if (put_handle(w, ofs_pk_item(w->doc, handles, k), name,
				err) == -1)
				return -1;
			sep = ",";
		}
	}
	return 0;
}

/* The optimizer's names for its IDs, which OLMo keeps in its groups. */
static void put_names(struct writer *w, const struct ofs_pickle *optim)
{
	uint32_t groups =
	    ofs_pk_get(optim, ofs_pickle_root(optim), "param_groups");

	w->doc = optim;
	ofs_buf_puts(&w->b, ",\"param_groups\":[");
	for (uint32_t i = 0; i < ofs_pk_len(optim, groups); i++) {
		uint32_t names = ofs_pk_get(optim,
		    ofs_pk_item(optim, groups, i), "param_names");

		ofs_buf_puts(&w->b, i > 0 ? "," : "");
		if (names == OFS_NONE)
			ofs_buf_puts(&w->b, "[]");
		else
			put_list(w, names, 1);
	}
	ofs_buf_putc(&w->b, ']');
}

static int read_units(struct ofs_units *u, struct ofs_catalog *cat,
    const char *rel, const struct ofs_pickle *doc,
    const struct ofs_pickle *optim, int rank, uint32_t world,
    struct optimfs_error *err)
{
	struct writer w = { .doc = doc,
		.world = world == 0 ? 1 : world,
		.rank = rank < 0 ? 0 : rank };
	int ret;

	ofs_buf_puts(&w.b, "{\"units\":[");
	ret = put_units(&w, err);
	ofs_buf_putc(&w.b, ']');
	if (ret == 0 && optim != NULL)
		put_names(&w, optim);
	ofs_buf_putc(&w.b, '}');
	if (ret == 0 && w.b.bad)
		ret = ofs_no_memory(err);
	/* lists that are in others many times */
	if (ret == 0 && w.b.len > OFS_UNITS_MAX)
		ret = optimfs_fail(err, EUCLEAN,
		    "OFS162 handles with more than %u MiB of names and numbers",
		    OFS_UNITS_MAX >> 20);
	if (ret == 0)
		ret = ofs_units_parse(u, "the handles", w.b.data,
		    (uint32_t)w.b.len, err);
	/* units with the optimizer's names are not replaced by units without */
	if (ret == 0 && cat != NULL && (optim != NULL || cat->units == NULL))
		ret = ofs_units_remember(cat, rel, w.b.data, (uint32_t)w.b.len,
		    err);
	ofs_buf_fini(&w.b);
	/* the cause is a file, not an option */
	if (ret == -1 && err != NULL && err->code == EINVAL)
		err->code = EUCLEAN;
	if (ret == -1)
		optimfs_fail_in(err, "%s", rel);
	return ret;
}

/* Finding the files. */

/* The last two components of a rank file's path: "dir/file". */
static const char *tail_of(const char *rel)
{
	const char *file = strrchr(rel, '/'), *dir = file;

	while (dir != NULL && dir > rel && dir[-1] != '/')
		dir--;
	return dir;
}

/* The number after "world_size:" at the beginning of a line; 0: none. */
static uint32_t find_world(const char *text)
{
	static const char key[] = "world_size:";
	const char *at = strstr(text, key);
	unsigned long world = 0;

	while (at != NULL && at != text && at[-1] != '\n')
		at = strstr(at + 1, key);
	if (at != NULL)
		world = strtoul(at + strlen(key), NULL, 10);
	return world > INT32_MAX ? 0 : (uint32_t)world;
}

/* The world size from metadata.yaml: "world_size: 8". 0: the file has none. */
static int read_world(struct ofs_ranks *set, uint32_t *world,
    struct optimfs_error *err)
{
	const char *rel = set->file[0].rel, *tail = tail_of(rel);
	char name[4096], *text;
	uint8_t *p;
	uint64_t n;
	int ret;

	*world = 0;
	if (tail == NULL ||
	    snprintf(name, sizeof(name), "%.*smetadata.yaml", (int)(tail - rel),
		rel) >= (int)sizeof(name))
		return 0;
	ret = ofs_probe_text(&set->cat->dir, name, 1 << 16, &p, &n, err);
	if (ret != 1)
		return ret;
	text = strndup((char *)p, n);
	free(p);
	if (text == NULL)
		return ofs_no_memory(err);
	*world = find_world(text);
	free(text);
	return 0;
}

/* The world size of the job. */
static int world_of(struct ofs_ranks *set, uint32_t *world,
    struct optimfs_error *err)
{
	if (read_world(set, world, err) == -1)
		return -1;
	if (*world == 0)
		*world = set->world > 0 ? (uint32_t)set->world : 1;
	if ((int)*world > set->cat->world_size)
		set->cat->world_size = (int)*world;
	return 0;
}

static bool same_units(const struct ofs_units *a, const struct ofs_units *b)
{
	bool same = a->n == b->n;

	for (uint32_t i = 0; i < a->n && same; i++) {
		const struct ofs_flat *f = &a->unit[i].flat;
		const struct ofs_flat *g = &b->unit[i].flat;

		same = f->nparams == g->nparams && f->shard == g->shard &&
		    f->world == g->world;
		for (uint32_t k = 0; k < f->nparams && same; k++) {
			same = f->start[k] == g->start[k] &&
			    f->numel[k] == g->numel[k] &&
			    ofs_str_equal(a->unit[i].param[k].fqn,
				b->unit[i].param[k].fqn);
		}
	}
	return same;
}

/* Reads the model's files: each describes its own shard. */
static int read_own(struct ofs_units *u, struct ofs_ranks *set,
    struct optimfs_error *err)
{
	const struct ofs_ranks_file *f = set->file;
	uint32_t world;

	if (world_of(set, &world, err) == -1 ||
	    read_units(u, set->cat, f->rel, f->doc, NULL, f->rank, world,
		err) == -1)
		return -1;
	for (uint32_t i = 1; i < set->nfiles; i++) {
		struct ofs_units other;
		bool same;

		if (read_units(&other, NULL, f[i].rel, f[i].doc, NULL,
			f[i].rank, world, err) == -1) {
			ofs_units_fini(u);
			return -1;
		}
		same = same_units(u, &other);
		ofs_units_fini(&other);
		if (same)
			continue;
		ofs_units_fini(u);
		return optimfs_fail(err, EUCLEAN,
		    "OFS165 rank %d and rank %d have different flat parameters",
		    f->rank, f[i].rank);
	}
	return 0;
}

/* The model's file beside the optimizer's file f. 1: it has no handles, or cannot
 * be read, which its own part reports. */
static int read_beside(struct ofs_units *u, struct ofs_ranks *set,
    const struct ofs_ranks_file *f, struct optimfs_error *err)
{
	const char *tail = tail_of(f->rel);
	struct optimfs_error why = { 0 };
	struct ofs_torch_file source;
	uint32_t world;
	char *rel;
	int ret = 1;

	if (tail == NULL || strncmp(tail, "optim/", 6) != 0)
		return 1;
	if (asprintf(&rel, "%.*smodel/%s", (int)(tail - f->rel), f->rel,
		tail + 6) == -1)
		return ofs_no_memory(err);
	if (!ofs_dir_stat(&set->cat->dir, rel, &(struct stat){ 0 }) ||
	    ofs_torch_file_open(&source, set->cat, rel, f->rank, false, &why) ==
		-1) {
		free(rel);
		return ofs_ranks_must_fail(&why) ? optimfs_fail_with(err, &why)
						 : 1;
	}
	if (has_handles(source.doc)) {
		ret = world_of(set, &world, err);
		if (ret == 0)
			ret = read_units(u, set->cat, rel, source.doc, f->doc,
			    f->rank, world, err);
		if (ret == 0)
			u->named = u->nids > 0;
	}
	ofs_torch_file_fini(&source);
	free(rel);
	return ret;
}

int ofs_handles_units(struct ofs_units *u, struct ofs_ranks *set,
    struct optimfs_error *err)
{
	int ret = 1;

	if (has_handles(set->file[0].doc))
		return read_own(u, set, err);
	for (uint32_t i = 0; i < set->nfiles && ret == 1; i++)
		ret = read_beside(u, set, &set->file[i], err);
	return ret;
}

/* The model. */

static int add_param(struct ofs_fsdp *f, const struct ofs_ranks_group *g,
    struct ofs_unit_place at, const uint32_t *parent, uint32_t nparent,
    struct optimfs_error *err)
{
	struct ofs_catalog *cat = f->set->cat;
	struct ofs_str fqn = ofs_fsdp_param(f, at)->fqn;
	struct ofs_pieces x;
	uint32_t ref;
	int ret = 0;

	if (ofs_fsdp_begin(&x, f, at, err) == -1)
		return -1;
	for (uint32_t i = g->first; i < g->first + g->n && ret == 0; i++) {
		const struct ofs_ranks_leaf *leaf = &f->set->leaf[i];
		struct ofs_flat_slice s =
		    ofs_fsdp_slice(f, &f->set->file[leaf->file], at);

		ret = ofs_pieces_add(&x, leaf, leaf->node,
		    f->units->unit[at.unit].flat.shard, &s, err);
	}
	if (ret == -1)
		return -1;
	return ofs_pieces_end(&x,
	    ofs_catalog_below(cat, parent, nparent, fqn, err), &ref, err);
}

/* The groups [parent..., "modules", i, "handles", k, "flat_param.data"] are the
 * units, in order, since groups are in the order of the state dict. */
int ofs_handles_model(struct ofs_fsdp *f, struct optimfs_error *err)
{
	struct ofs_ranks *set = f->set;
	struct ofs_catalog *cat = set->cat;
	uint32_t unit = 0;

	if (!has_handles(set->file[0].doc))
		return 0;
	for (uint32_t i = 0; i < set->ngroups; i++) {
		struct ofs_ranks_group *g = &set->group[i];
		uint32_t parent[MAX_PARENT], n, np = 0;
		const uint32_t *part = ofs_catalog_components(cat, g->path, &n);

		while (np < n && np < MAX_PARENT &&
		    !ofs_catalog_string_is(cat, part[np], "modules")) {
			parent[np] = part[np];
			np++;
		}
		if (np == n || !ofs_catalog_string_is(cat, part[np], "modules"))
			continue;
		g->taken = true;
		if (n != np + 5 ||
		    !ofs_catalog_string_is(cat, part[n - 1], KEY("data")) ||
		    unit == f->units->n)
			continue;
		for (uint32_t k = 0; k < f->units->unit[unit].flat.nparams; k++)
			if (add_param(f, g, (struct ofs_unit_place){ unit, k },
				parent, np, err) == -1)
				return -1;
		unit++;
	}
	return 0;
}
