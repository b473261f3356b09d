/* info.c - .optimfs/info.json */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/json_write.h"
#include "catalog/shards.h"
#include "fs/fs.h"

#define LINE "\n  "

struct counts {
	uint64_t tensors, parameters, optimizer_states, values, objects, shards;
	uint64_t logical, stored, largest;
	uint64_t whole, sharded, empty, damaged;
	uint32_t most_shards;
	uint64_t dtype[OFS_NDTYPES];
};

/* The name of the node's ancestor right below the root. */
static const char *top_of(const struct ofs_tree *tree, uint32_t index)
{
	while (tree->node[index].parent != 0)
		index = tree->node[index].parent;
	return tree->node[index].name;
}

static bool below_state(const struct ofs_tree *tree, uint32_t index)
{
	for (; index != 0; index = tree->node[index].parent)
		if (strcmp(tree->node[index].name, "state") == 0)
			return true;
	return false;
}

static void count_tensor(const struct ofs_snapshot *snap, uint32_t index,
    const struct ofs_tensor *t, struct counts *c)
{
	uint64_t bytes = ofs_tensor_bytes(snap->cat, t);
	const char *top = top_of(&snap->tree, index);

	c->tensors++;
	c->parameters += strcmp(top, "model") == 0;
	c->optimizer_states +=
	    strcmp(top, "optim") == 0 && below_state(&snap->tree, index);
	c->shards += t->nshards;
	c->empty += t->nshards == 0;
	c->whole += t->nshards == 1;
	c->sharded += t->nshards > 1;
	c->dtype[t->dtype]++;
	ofs_sum_u64(&c->logical, bytes);
	if (bytes > c->largest)
		c->largest = bytes;
	if (t->nshards > c->most_shards)
		c->most_shards = t->nshards;
}

static void count(const struct ofs_snapshot *snap, struct counts *c)
{
	for (uint32_t i = 0; i < snap->tree.n; i++) {
		const struct ofs_entry *e =
		    ofs_tree_entry(&snap->tree, snap->cat, i);
		const struct ofs_extent *at;
		const struct ofs_tensor *t;

		if (e == NULL)
			continue;
		t = ofs_entry_tensor(snap->cat, e);
		if (t != NULL)
			count_tensor(snap, i, t, c);
		for (uint32_t k = 0;
		     (at = ofs_entry_extent(snap->cat, e, k)) != NULL; k++)
			ofs_sum_u64(&c->stored, at->len);
		c->damaged += ofs_entry_error(snap->cat, e) != OFS_NONE ||
		    ofs_entry_lost(snap->cat, e, NULL) ||
		    (t != NULL && ofs_tensor_has_holes(t));
		c->values += e->kind == OFS_ENTRY_VALUE;
		c->objects += e->kind == OFS_ENTRY_ITEM;
	}
}

void ofs_info_source(const struct ofs_snapshot *snap, struct ofs_json_writer *w)
{
	const struct ofs_catalog *cat = snap->cat;

	ofs_json_put_string(w, "source", ofs_fs_place(snap->fs));
	ofs_json_put_string(w, "format", cat->format);
	ofs_json_put_string(w, "writer", cat->writer);
	ofs_json_put_string(w, "trainer", cat->trainer);
	ofs_json_put_string(w, "computed", cat->computed);
	ofs_json_put_rank(w, "world_size",
	    cat->world_size > 0 ? cat->world_size : -1);
}

/* Opens an object on a new line; its members stay on this line. */
static void open_line(struct ofs_json_writer *w, const char *key)
{
	ofs_json_open(w, key, '{');
	w->gap = " ";
}

static void close_line(struct ofs_json_writer *w)
{
	ofs_json_close(w, '}');
	w->gap = LINE;
}

static void put_counts(const struct ofs_snapshot *snap, const struct counts *c,
    struct ofs_json_writer *w)
{
	uint64_t missing = 0, warnings = 0;

	for (uint32_t i = 0; i < snap->cat->nobjects; i++)
		missing += snap->cat->objects[i].missing;
	for (uint32_t i = 0; i < snap->cat->nnotes; i++)
		warnings += snap->cat->notes[i].kind == OFS_NOTE_WARNING;
	open_line(w, "counts");
	ofs_json_put_u64(w, "tensors", c->tensors);
	ofs_json_put_u64(w, "parameters", c->parameters);
	ofs_json_put_u64(w, "optimizer_states", c->optimizer_states);
	ofs_json_put_u64(w, "values", c->values);
	ofs_json_put_u64(w, "objects", c->objects);
	ofs_json_put_u64(w, "shards", c->shards);
	ofs_json_put_u64(w, "files", snap->cat->nobjects);
	ofs_json_put_u64(w, "missing_files", missing);
	ofs_json_put_u64(w, "damaged", c->damaged);
	ofs_json_put_u64(w, "warnings", warnings);
	close_line(w);
	open_line(w, "bytes");
	ofs_json_put_u64(w, "logical", c->logical);
	ofs_json_put_u64(w, "stored", c->stored);
	ofs_json_put_u64(w, "largest_tensor", c->largest);
	close_line(w);
}

static void put_layouts(const struct ofs_snapshot *snap, const struct counts *c,
    struct ofs_json_writer *w)
{
	open_line(w, "layout");
	ofs_json_put_u64(w, "ranks", snap->nspaces - OFS_SPACE_RANK);
	ofs_json_put_u64(w, "sharded", c->sharded);
	ofs_json_put_u64(w, "whole", c->whole);
	ofs_json_put_u64(w, "absent", c->empty);
	ofs_json_put_u64(w, "most_shards", c->most_shards);
	close_line(w);
	open_line(w, "dtypes");
	for (int t = 0; t < OFS_NDTYPES; t++)
		if (c->dtype[t] > 0)
			ofs_json_put_u64(w, ofs_dtype_name((enum ofs_dtype)t),
			    c->dtype[t]);
	close_line(w);
}

void ofs_info_meaning(const struct optimfs_options *o,
    struct ofs_json_writer *w)
{
	ofs_json_put_string(w, "type", o->type);
	ofs_json_put_string(w, "optim_key", o->optim_key);
	ofs_json_put_string(w, "model_key", o->model_key);
	ofs_json_put_string(w, "ids", o->ids);
	ofs_json_put_string(w, "subtree", o->subtree);
	ofs_json_put_string(w, "fill", o->fill);
}

static void put_options(struct ofs_snapshot *snap, struct ofs_json_writer *w)
{
	const struct optimfs_options *o = &snap->fs->options;

	open_line(w, "options");
	ofs_info_meaning(o, w);
	ofs_json_put_string(w, "join", o->join);
	ofs_json_put_string(w, "names", o->names);
	ofs_json_put_string(w, "base", o->base);
	ofs_json_put_u64(w, "cache", o->cache);
	if (o->max_metadata > 0)
		ofs_json_put_u64(w, "max_metadata", o->max_metadata);
	if (o->parse_mem > 0)
		ofs_json_put_u64(w, "parse_mem", o->parse_mem);
	ofs_json_put_bool(w, "strict", o->strict);
	ofs_json_put_bool(w, "follow", o->follow);
	close_line(w);
}

/* Adds what the mount says of itself, if there is one. */
static void put_mount(struct ofs_snapshot *snap, struct ofs_json_writer *w)
{
	char *json = ofs_mount_says(snap->fs, &snap->fs->mount_info);

	if (json != NULL)
		ofs_json_put_raw(w, "mount", json);
	free(json);
}

void ofs_info_json(struct ofs_snapshot *snap, struct ofs_buf *out)
{
	struct ofs_json_writer w = { out, LINE, false };
	struct counts c = { 0 };

	count(snap, &c);
	ofs_buf_putc(out, '{');
	ofs_json_put_string(&w, "optimfs", optimfs_version());
	ofs_json_put_string(&w, "features", optimfs_features());
	ofs_info_source(snap, &w);
	put_counts(snap, &c, &w);
	put_layouts(snap, &c, &w);
	put_options(snap, &w);
	put_mount(snap, &w);
	ofs_buf_puts(out, "\n}\n");
}
