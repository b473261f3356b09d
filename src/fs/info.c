/* info.c - .optimfs/info.json */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fs/info.h"

#include <inttypes.h>
#include <string.h>

#include "base/dtype.h"
#include "fs/fs.h"

/* Sums of bytes stop at the largest number. */
struct counts {
	uint64_t tensors, parameters, optimizer_states, scalars, values,
	    objects, shards;
	uint64_t logical, stored, largest;
	uint64_t whole, sharded, empty;
	uint32_t most_shards;
	uint64_t dtype[OFS_NDTYPES];
};

static void add(uint64_t *sum, uint64_t n)
{
	*sum = n > UINT64_MAX - *sum ? UINT64_MAX : *sum + n;
}

/* Name of the node's ancestor right below the root. */
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
	c->scalars += t->ndim == 0;
	c->parameters += strcmp(top, "model") == 0;
	c->optimizer_states +=
	    strcmp(top, "optim") == 0 && below_state(&snap->tree, index);
	c->shards += t->nshards;
	c->empty += t->nshards == 0;
	c->whole += t->nshards == 1;
	c->sharded += t->nshards > 1;
	c->dtype[t->dtype]++;
	add(&c->logical, bytes);
	if (bytes > c->largest)
		c->largest = bytes;
	if (t->nshards > c->most_shards)
		c->most_shards = t->nshards;
	for (uint32_t i = 0; i < t->nshards; i++)
		add(&c->stored, snap->cat->shards[t->shard + i].at.len);
}

static void count(const struct ofs_snapshot *snap, struct counts *c)
{
	for (uint32_t i = 0; i < snap->tree.n; i++) {
		struct ofs_at at = { OFS_SPACE_TREE, i };
		const struct ofs_entry *e = ofs_at_entry(snap, at);

		if (e == NULL)
			continue;
		if (e->kind == OFS_ENTRY_TENSOR)
			count_tensor(snap, i, &snap->cat->tensors[e->ref], c);
		else if (e->kind == OFS_ENTRY_ITEM)
			add(&c->stored, snap->cat->items[e->ref].at.len);
		c->values += e->kind == OFS_ENTRY_VALUE;
		c->objects += e->kind == OFS_ENTRY_ITEM;
	}
}

static void put_string(struct ofs_buf *out, const char *key, const char *s)
{
	ofs_buf_printf(out, "\"%s\": ", key);
	if (s == NULL) {
		ofs_buf_puts(out, "null");
		return;
	}
	ofs_buf_putc(out, '"');
	ofs_buf_json(out, s, strlen(s));
	ofs_buf_putc(out, '"');
}

static void put_source(const struct ofs_snapshot *snap, struct ofs_buf *out)
{
	const struct ofs_catalog *cat = snap->cat;

	ofs_buf_puts(out, "{\n  ");
	put_string(out, "optimfs", optimfs_version());
	ofs_buf_puts(out, ",\n  ");
	put_string(out, "features", optimfs_features());
	ofs_buf_puts(out, ",\n  ");
	put_string(out, "source", snap->fs->source);
	ofs_buf_puts(out, ",\n  ");
	put_string(out, "format", cat->format);
	ofs_buf_puts(out, ",\n  ");
	put_string(out, "writer", cat->writer);
	ofs_buf_puts(out, ",\n  ");
	put_string(out, "trainer", cat->trainer);
	if (cat->world_size > 0)
		ofs_buf_printf(out, ",\n  \"world_size\": %d", cat->world_size);
	else
		ofs_buf_puts(out, ",\n  \"world_size\": null");
}

static void put_counts(const struct ofs_snapshot *snap, const struct counts *c,
    struct ofs_buf *out)
{
	uint64_t missing = 0, problems = 0, warnings = 0;

	for (uint32_t i = 0; i < snap->cat->nobjects; i++)
		missing += snap->cat->objects[i].missing;
	for (uint32_t i = 0; i < snap->cat->nnotes; i++) {
		problems += snap->cat->notes[i].kind == OFS_NOTE_ERROR;
		warnings += snap->cat->notes[i].kind == OFS_NOTE_WARNING;
	}
	ofs_buf_printf(out,
	    ",\n  \"counts\": {\"tensors\": %" PRIu64
	    ", \"parameters\": %" PRIu64 ", \"optimizer_states\": %" PRIu64
	    ", \"values\": %" PRIu64 ", \"objects\": %" PRIu64
	    ", \"shards\": %" PRIu64 ", \"files\": %" PRIu32,
	    c->tensors, c->parameters, c->optimizer_states, c->values,
	    c->objects, c->shards, snap->cat->nobjects);
	ofs_buf_printf(out,
	    ", \"missing_files\": %" PRIu64 ", \"damaged\": %" PRIu64
	    ", \"warnings\": %" PRIu64 "}",
	    missing, problems, warnings);
	ofs_buf_printf(out,
	    ",\n  \"bytes\": {\"logical\": %" PRIu64 ", \"stored\": %" PRIu64
	    ", \"largest_tensor\": %" PRIu64 "}",
	    c->logical, c->stored, c->largest);
}

static void put_layouts(const struct ofs_snapshot *snap, const struct counts *c,
    struct ofs_buf *out)
{
	const char *between = "";

	ofs_buf_printf(out,
	    ",\n  \"layout\": {\"ranks\": %" PRIu32 ", \"sharded\": %" PRIu64
	    ", \"whole\": %" PRIu64 ", \"absent\": %" PRIu64
	    ", \"most_shards\": %" PRIu32 "}",
	    snap->nspaces - OFS_SPACE_RANK, c->sharded, c->whole, c->empty,
	    c->most_shards);
	ofs_buf_puts(out, ",\n  \"dtypes\": {");
	for (int t = 0; t < OFS_NDTYPES; t++)
		if (c->dtype[t] > 0) {
			ofs_buf_printf(out, "%s\"%s\": %" PRIu64, between,
			    ofs_dtype_name((enum ofs_dtype)t), c->dtype[t]);
			between = ", ";
		}
	ofs_buf_putc(out, '}');
}

static void put_options(struct ofs_snapshot *snap, struct ofs_buf *out)
{
	const struct optimfs_options *o = &snap->fs->options;

	ofs_buf_puts(out, ",\n  \"options\": {");
	put_string(out, "type", o->type);
	ofs_buf_puts(out, ", ");
	put_string(out, "optim_key", o->optim_key);
	ofs_buf_puts(out, ", ");
	put_string(out, "model_key", o->model_key);
	ofs_buf_puts(out, ", ");
	put_string(out, "ids", o->ids);
	ofs_buf_puts(out, ", ");
	put_string(out, "subtree", o->subtree);
	ofs_buf_puts(out, ", ");
	put_string(out, "fill", o->fill);
	ofs_buf_printf(out, ", \"cache\": %" PRIu64, o->cache);
	if (o->max_metadata > 0)
		ofs_buf_printf(out, ", \"max_metadata\": %" PRIu64,
		    o->max_metadata);
	if (o->parse_mem > 0)
		ofs_buf_printf(out, ", \"parse_mem\": %" PRIu64, o->parse_mem);
	ofs_buf_printf(out, ", \"strict\": %s, \"follow\": %s}",
	    o->strict ? "true" : "false", o->follow ? "true" : "false");
	pthread_mutex_lock(&snap->fs->lock);
	if (snap->fs->mount_info != NULL)
		ofs_buf_printf(out, ",\n  \"mount\": %s", snap->fs->mount_info);
	pthread_mutex_unlock(&snap->fs->lock);
}

void ofs_info_json(struct ofs_snapshot *snap, struct ofs_buf *out)
{
	struct counts c = { 0 };

	count(snap, &c);
	put_source(snap, out);
	put_counts(snap, &c, out);
	put_layouts(snap, &c, out);
	put_options(snap, out);
	ofs_buf_puts(out, "\n}\n");
}
