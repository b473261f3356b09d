/* layout_meta.c - the records of one rank's ZeRO optimizer */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/search.h"
#include "base/str.h"
#include "format/zero/layout.h"

/* More ranks than any job has. */
#define WORLD_MAX (1 << 20)

bool ofs_zero_world(const struct ofs_pickle *doc, uint32_t node, int64_t *world)
{
	return ofs_pk_int(doc, node, world) && *world >= 1 &&
	    *world <= WORLD_MAX;
}

static int get_world(const struct ofs_pickle *doc, uint32_t node,
    int64_t *world, struct optimfs_error *err)
{
	if (ofs_zero_world(doc, node, world))
		return 0;
	return ofs_pk_unexpected(doc, node, err, "OFS695", "a number of ranks",
	    "partition_count");
}

/* Reads the world size: one number, or one number per group, which is less in
 * groups of experts. */
static int read_world(struct ofs_zero_optim *o, struct optimfs_error *err)
{
	uint32_t node = ofs_pk_get(o->doc, o->state, "partition_count");
	int64_t world = 1, other;

	if (ofs_pk_kind(o->doc, node) != OFS_PK_LIST) {
		if (get_world(o->doc, node, &world, err) == -1)
			return -1;
		o->world = (uint32_t)world;
		return 0;
	}
	for (uint32_t i = 0; i < ofs_pk_len(o->doc, node); i++) {
		if (get_world(o->doc, ofs_pk_item(o->doc, node, i), &other,
			err) == -1)
			return -1;
		if (other > world)
			world = other;
	}
	o->counts = node;
	o->world = (uint32_t)world;
	return 0;
}

/* Reads {state: {group: {...}}, param_groups}, or a list of one dict per
 * group. */
static int read_base(struct ofs_zero_optim *o, struct optimfs_error *err)
{
	enum ofs_pk_kind kind = ofs_pk_kind(o->doc, o->base);

	if (o->base == OFS_NONE || kind == OFS_PK_DICT || kind == OFS_PK_LIST)
		return 0;
	return ofs_pk_unexpected(o->doc, o->base, err, "OFS695",
	    "a dict or a list", "the state of the wrapped optimizer");
}

static int no_optim(struct optimfs_error *err)
{
	return optimfs_fail(err, EUCLEAN,
	    "OFS695 not the state of a ZeRO optimizer: it has no flat groups");
}

int ofs_zero_optim_read(struct ofs_zero_optim *o, const struct ofs_pickle *doc,
    struct optimfs_error *err)
{
	uint32_t root = ofs_pickle_root(doc);

	*o = (struct ofs_zero_optim){ .doc = doc, .counts = OFS_NONE };
	o->state = ofs_pk_get(doc, root, "optimizer_state_dict");
	if (ofs_pk_kind(doc, o->state) != OFS_PK_DICT)
		return no_optim(err);
	o->fp32 = ofs_pk_get(doc, o->state, "fp32_flat_groups");
	o->stage = 3;
	o->base = ofs_pk_get(doc, o->state, "optimizer_state_dict");
	if (o->fp32 == OFS_NONE) {
		o->fp32 = ofs_pk_get(doc, o->state,
		    "single_partition_of_fp32_groups");
		o->stage = 2;
		o->base = ofs_pk_get(doc, o->state, "base_optimizer_state");
	}
	if (o->fp32 == OFS_NONE)
		return no_optim(err);
	if (ofs_pk_kind(doc, o->fp32) != OFS_PK_LIST)
		return ofs_pk_unexpected(doc, o->fp32, err, "OFS695", "a list",
		    "the flat groups");
	o->ngroups = ofs_pk_len(doc, o->fp32);
	if (ofs_pk_get(doc, o->state, "ds_zero_partition_groups") != OFS_NONE)
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS696 groups of experts of AutoEP are not read: convert "
		    "it with ds_to_universal.py, or save the weights in the "
		    "job (model.save_pretrained)");
	if (read_world(o, err) == -1)
		return -1;
	return read_base(o, err);
}

int ofs_zero_stage_of(const struct ofs_pickle *doc, uint32_t node)
{
	static const char *const words[] = { "disabled", "optimizer_states",
		"gradients", "weights" };
	struct ofs_str module, name;
	int64_t v;

	if (ofs_pk_attribute(doc, node, &module, &name)) {
		for (int i = 1; i <= 3; i++) {
			size_t n = strlen(words[i]);

			if (name.len > n && name.p[name.len - n - 1] == '.' &&
			    ofs_str_ends(name, words[i]))
				return i;
		}
		return 0;
	}
	if (ofs_pk_kind(doc, node) == OFS_PK_OBJECT)
		node = ofs_pk_item(doc, ofs_pk_args(doc, node), 0);
	return ofs_pk_int(doc, node, &v) && v >= 1 && v <= 3 ? (int)v : 0;
}

uint32_t ofs_zero_state(const struct ofs_zero_optim *o, uint32_t group)
{
	const struct ofs_pickle *doc = o->doc;
	uint32_t node = o->base;
	int64_t number;

	if (ofs_pk_kind(doc, node) == OFS_PK_LIST)
		return ofs_pk_item(doc, node, group);
	node = ofs_pk_get(doc, node, "state");
	if (ofs_pk_kind(doc, node) != OFS_PK_DICT)
		return OFS_NONE;
	/* usually they are in order */
	if (ofs_pk_int(doc, ofs_pk_key(doc, node, group), &number) &&
	    number == group)
		return ofs_pk_val(doc, node, group);
	for (uint32_t i = 0; i < ofs_pk_len(doc, node); i++)
		if (ofs_pk_int(doc, ofs_pk_key(doc, node, i), &number) &&
		    number == group)
			return ofs_pk_val(doc, node, i);
	return OFS_NONE;
}

/* Since 0.16.4 each rank records its own padding. Before, the last rank
 * recorded the total padding, even if part of it was on other ranks. */
static int check_padding(const struct ofs_zero_optim *o,
    const struct ofs_zero_layout *l, uint32_t group, uint32_t rank,
    struct optimfs_error *err)
{
	uint32_t list = ofs_pk_get(o->doc, o->state, "group_paddings");
	uint64_t lean, part = ofs_zero_part(l, group, rank, &lean), last = 0;
	uint32_t node =
	    ofs_pk_item(o->doc, list, ofs_zero_number(l->shapes, group));
	uint32_t ranks = l->flat[group].world;
	int64_t v;

	if (list == OFS_NONE)
		return 0;
	if (!ofs_pk_int(o->doc, node, &v))
		return ofs_pk_unexpected(o->doc, node, err, "OFS695", "int",
		    "group_paddings[%" PRIu32 "]", group);
	if (ofs_zero_place(l, group, rank) + 1 == ranks)
		last = part * ranks - l->flat[group].size;
	if (v >= 0 && ((uint64_t)v == part - lean || (uint64_t)v == last))
		return 0;
	return optimfs_fail(err, EUCLEAN,
	    "OFS161 rank %" PRIu32 " says that group %" PRIu32 " has %" PRId64
	    " elements of padding, by its shapes it is %" PRIu64,
	    rank, group, v, part - lean);
}

struct fragment {
	uint64_t start, numel;
};

OFS_COMPARE_BY2(by_start, struct fragment, start, numel)

static int get_fragment(const struct ofs_zero_optim *o, uint32_t node,
    uint64_t part, struct fragment *f, struct optimfs_error *err)
{
	uint32_t at = ofs_pk_attr(o->doc, node, "start");
	uint32_t len = ofs_pk_attr(o->doc, node, "numel");
	int64_t start, numel;

	if (!ofs_pk_int(o->doc, at, &start) || !ofs_pk_int(o->doc, len, &numel))
		return ofs_pk_unexpected(o->doc, node, err, "OFS695",
		    "fragment_address", "a fragment of param_slice_mappings");
	*f = (struct fragment){ (uint64_t)start, (uint64_t)numel };
	if (start >= 0 && numel >= 0 && f->start <= part &&
	    f->numel <= part - f->start)
		return 0;
	return optimfs_fail(err, EUCLEAN,
	    "OFS675 param_slice_mappings: a fragment of %" PRId64
	    " elements at %" PRId64 " of a group's %" PRIu64,
	    numel, start, part);
}

/* With round-robin gradients the fragments are recorded in a wrong order. So
 * the only check is that they do not overlap. */
static int check_fragments(const struct ofs_zero_optim *o,
    const struct ofs_zero_layout *l, uint32_t group, uint32_t rank,
    struct optimfs_error *err)
{
	uint32_t list = ofs_pk_get(o->doc, o->state, "param_slice_mappings");
	uint32_t dict =
	    ofs_pk_item(o->doc, list, ofs_zero_number(l->shapes, group));
	uint32_t n = ofs_pk_len(o->doc, dict);
	uint64_t lean, part = ofs_zero_part(l, group, rank, &lean);
	struct fragment *f;
	int ret = 0;

	if (list == OFS_NONE)
		return 0;
	if (ofs_pk_kind(o->doc, dict) != OFS_PK_DICT)
		return ofs_pk_unexpected(o->doc, dict, err, "OFS695", "a dict",
		    "param_slice_mappings[%" PRIu32 "]", group);
	f = calloc(n + 1ull, sizeof(*f));
	if (f == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < n && ret == 0; i++)
		ret = get_fragment(o, ofs_pk_val(o->doc, dict, i), part, &f[i],
		    err);
	if (ret == 0)
		qsort(f, n, sizeof(*f), by_start);
	for (uint32_t i = 1; i < n && ret == 0; i++)
		if (f[i].start < f[i - 1].start + f[i - 1].numel)
			ret = optimfs_fail(err, EUCLEAN,
			    "OFS675 param_slice_mappings: fragments overlap at "
			    "%" PRIu64 " of group %" PRIu32,
			    f[i].start, group);
	free(f);
	return ret;
}

int ofs_zero_check(const struct ofs_zero_optim *o,
    const struct ofs_zero_layout *l, uint32_t group, uint32_t rank,
    struct optimfs_error *err)
{
	if (l->stage == 3 || group >= l->shapes->ngroups ||
	    ofs_zero_place(l, group, rank) == OFS_NONE)
		return 0;
	if (check_padding(o, l, group, rank, err) == -1 ||
	    check_fragments(o, l, group, rank, err) == -1)
		return optimfs_fail_in(err, "rank %" PRIu32, rank);
	return 0;
}
