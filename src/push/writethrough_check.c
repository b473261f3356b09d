/* writethrough_check.c - what is missing in a template */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "overlay/overlay_impl.h"
#include "push/writethrough.h"

/* The size of a buffer for the reason. */
#define WORDS 400

/* Reports why a file cannot be committed. */
typedef void say_fn(void *ctx, const char *path, const char *words);

bool ofs_writethrough_present(const struct ofs_overlay *o, uint32_t index)
{
	const struct ofs_tree_node *b = &o->tree->node[index];
	const struct ofs_overlay_node *v;

	for (; index != 0; index = b->parent) {
		v = ofs_overlay_node(o, index);
		b = &o->tree->node[index];
		/* moved away and back */
		if (v->gone &&
		    (v->parent != b->parent || v->name == NULL ||
			strcmp(v->name, b->name) != 0))
			return false;
	}
	return true;
}

static bool tensor_lacks(const struct ofs_overlay *o,
    const struct ofs_overlay_file *f, char words[WORDS])
{
	uint64_t total = ofs_tensor_bytes(o->cat,
	    ofs_entry_tensor(o->cat, &o->cat->entries[f->entry]));
	uint64_t have = ofs_ranges_total(&f->written);

	if (f->lost.n > 0) {
		snprintf(words, WORDS, "%s", optimfs_error_words(&f->why));
		return true;
	}
	if (f->size == total && ofs_ranges_cover(&f->written, 0, total))
		return false;
	snprintf(words, WORDS, "%" PRIu64 " of %" PRIu64 " bytes", have, total);
	return true;
}

bool ofs_writethrough_zeros(const struct ofs_overlay *o, uint32_t node)
{
	const struct ofs_tensor *t = ofs_tree_tensor(o->tree, o->cat, node);

	return t != NULL &&
	    (ofs_writethrough_provided(o, node) ||
		(t->flags & OFS_TENSOR_ZERO) != 0);
}

/* May the file be missing? The layout provides it, or it is derived from
 * others, which are checked themselves. */
static bool is_left_out(const struct ofs_overlay *o, uint32_t index)
{
	return ofs_writethrough_provided(o, index) ||
	    ofs_writethrough_zeros(o, index) ||
	    ofs_writethrough_model(o, index) != OFS_NONE ||
	    (ofs_writethrough_next(o, index) != index &&
		ofs_writethrough_written(o, index) != OFS_NONE);
}

static bool lacks(const struct ofs_overlay *o, uint32_t index,
    char words[WORDS])
{
	struct ofs_overlay_file *f = ofs_overlay_file(o, index);
	bool bad;

	if (f == NULL || !ofs_writethrough_present(o, index)) {
		if (is_left_out(o, index))
			return false;
		strcpy(words, "not written yet");
		return true;
	}
	pthread_rwlock_rdlock(&f->lock);
	if (f->text) {
		bad = f->unwritten;
		strcpy(words, "nothing was written");
	} else {
		bad = tensor_lacks(o, f, words);
	}
	pthread_rwlock_unlock(&f->lock);
	return bad;
}

/* Reports each file that prevents a commit. The lock of names is held. */
static void each_problem(const struct ofs_overlay *o, say_fn *say, void *ctx)
{
	char path[8192], words[WORDS], *own;

	for (uint32_t i = 1; i < o->tree->n; i++) {
		if (o->tree->node[i].entry == OFS_NONE || !lacks(o, i, words))
			continue;
		ofs_tree_path(o->tree, i, path, sizeof(path));
		say(ctx, path, words);
	}
	for (uint32_t i = 0; i < o->nmade; i++) {
		const struct ofs_overlay_node *v = o->made[i];

		if (v->dead || v->dir || v->parent == OFS_NONE)
			continue;
		own = ofs_overlay_path(o, v->index, NULL, NULL);
		if (own != NULL)
			say(ctx, own, "the layout has no place for it");
		free(own);
	}
}

static void put_line(void *ctx, const char *path, const char *words)
{
	ofs_buf_puts(ctx, "OFS301 ");
	ofs_buf_plain(ctx, path, strlen(path));
	ofs_buf_printf(ctx, ": %s\n", words);
}

void ofs_writethrough_missing(struct ofs_snapshot *snap, struct ofs_buf *out)
{
	pthread_rwlock_rdlock(&snap->overlay->names);
	each_problem(snap->overlay, put_line, out);
	pthread_rwlock_unlock(&snap->overlay->names);
}

struct tally {
	uint64_t n;
	char first[480];
};

static void count(void *ctx, const char *path, const char *words)
{
	struct tally *t = ctx;

	if (t->n++ == 0)
		snprintf(t->first, sizeof(t->first), "%.80s: %.390s", path,
		    words);
}

int ofs_writethrough_check(struct ofs_overlay *o, struct optimfs_error *err)
{
	struct tally t = { 0 };

	pthread_rwlock_rdlock(&o->names);
	each_problem(o, count, &t);
	pthread_rwlock_unlock(&o->names);
	if (t.n == 0)
		return 0;
	if (t.n == 1)
		return optimfs_fail(err, EINVAL, "OFS301 %s", t.first);
	return optimfs_fail(err, EINVAL,
	    "OFS301 %s; %" PRIu64 " more: .optimfs/missing lists them", t.first,
	    t.n - 1);
}

int ofs_writethrough_texts(struct ofs_overlay *o,
    int (*each)(void *ctx, uint32_t index, struct ofs_overlay_file *f,
	struct optimfs_error *err),
    void *ctx, struct optimfs_error *err)
{
	int ret = 0;

	for (uint32_t i = 1; i < o->tree->n && ret == 0; i++) {
		struct ofs_overlay_file *f = o->tree->node[i].entry == OFS_NONE
		    ? NULL
		    : ofs_overlay_file(o, i);

		if (f != NULL && f->text && f->accepted != NULL)
			ret = each(ctx, i, f, err);
	}
	return ret;
}
