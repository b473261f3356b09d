/* fsck.c - checking a checkpoint: what its index says against itself */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fsck.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

void ofs_check_found(struct ofs_check *c, bool error, const char *path,
    int code, const char *text)
{
	struct optimfs_finding f = { error, code, path, text };

	c->problems += error;
	if (c->report != NULL)
		c->report(c->ctx, &f);
}

/* What the reader noted about the checkpoint as a whole. An error belongs to
 * an entry and is told there. */
static void check_notes(struct ofs_check *c)
{
	const struct ofs_catalog *cat = c->fs->cat;

	for (uint32_t i = 0; i < cat->nnotes; i++) {
		const struct ofs_note *n = &cat->notes[i];

		if (n->kind == OFS_NOTE_WARNING || n->kind == OFS_NOTE_MISSING)
			ofs_check_found(c, ofs_note_is_loss(n), "", n->code,
			    n->text);
	}
}

bool ofs_check_lost(const struct optimfs *fs, const struct ofs_extent *at,
    struct optimfs_error *why)
{
	const struct ofs_object *o = &fs->cat->objects[at->object];
	struct ofs_input in;

	if (o->missing) {
		optimfs_fail(why, EIO, "OFS140 %.300s is missing", o->path);
		return true;
	}
	if (o->refused) {
		if (ofs_dir_open_input(&fs->cat->dir, o->path, &in, NULL,
			why) == -1)
			return true;
		ofs_input_close(&in);
		return false;
	}
	if (at->off <= o->size && at->len <= o->size - at->off)
		return false;
	optimfs_fail(why, EIO,
	    "OFS603 %.300s has %" PRIu64 " bytes, needs %" PRIu64
	    " at %" PRIu64,
	    o->path, o->size, at->len, at->off);
	return true;
}

/* The first extent of an entry that is not there, or not all of it. */
static void report_lost(struct ofs_check *c, const struct ofs_entry *e)
{
	const struct ofs_catalog *cat = c->fs->cat;
	const struct ofs_tensor *t = ofs_entry_tensor(c->fs, e);
	struct optimfs_error why;
	bool lost = false;

	if (e->kind == OFS_ENTRY_ITEM)
		lost = ofs_check_lost(c->fs, &cat->items[e->ref].at, &why);
	for (uint32_t i = 0; t != NULL && !lost && i < t->nshards; i++)
		lost =
		    ofs_check_lost(c->fs, &cat->shards[t->shard + i].at, &why);
	if (lost)
		ofs_check_found(c, true, c->path, why.code, why.text);
}

static int check_entry(struct ofs_check *c, uint32_t index, bool data,
    struct optimfs_error *err)
{
	struct ofs_at at = { OFS_SPACE_TREE, index };
	const struct ofs_entry *e = ofs_at_entry(c->fs, at);
	struct optimfs_error why;

	if (e == NULL)
		return 0;
	ofs_at_path(c->fs, at, c->path, sizeof(c->path));
	if (ofs_entry_sound(c->fs, e, &why) == -1) {
		ofs_check_found(c, true, c->path, why.code, why.text);
		return 0;
	}
	report_lost(c, e);
	return data ? ofs_check_data(c, index, err) : 0;
}

int optimfs_fsck(struct optimfs *fs, bool data, optimfs_report_fn *report,
    void *ctx, uint64_t *problems, struct optimfs_error *err)
{
	struct ofs_check c = { .fs = fs, .report = report, .ctx = ctx };
	int ret = 0;

	c.verified = calloc((size_t)fs->cat->nobjects + 1, sizeof(*c.verified));
	c.buf = malloc(OFS_CHECK_CHUNK);
	if (c.verified == NULL || c.buf == NULL)
		ret = optimfs_fail(err, ENOMEM, "fsck");
	if (ret == 0)
		check_notes(&c);
	for (uint32_t i = 0; i != OFS_NONE && ret == 0;
	     i = ofs_tree_after(&fs->tree, i))
		ret = check_entry(&c, i, data, err);
	free(c.verified);
	free(c.buf);
	if (ret == 0)
		*problems = c.problems;
	return ret;
}
