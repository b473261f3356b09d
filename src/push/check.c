/* check.c - does a new checkpoint have what was written? */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/step.h"
#include "fs/view.h"
#include "push/push.h"

/* Most of it needs no look: a tensor that is in a file of the layout was copied
 * there. But a layout that stores tied weights once has the bytes of one name;
 * ZeRO stores the weights of the optimizer, and those of the model are these,
 * rounded; the parameters of a flat parameter have one step. Such files of the
 * new checkpoint are read and compared. */

#define PIECE ((uint64_t)1 << 20)
/* The part of a file whose pieces are looked at together. */
#define WINDOW ((uint64_t)1 << 20)

struct checking {
	struct ofs_snapshot *snap, *made;
	bool *used; /* by tensor: a file of the layout has elements of it */
	uint8_t *written, *stored;
	char path[8192];
	uint32_t node;                     /* of made, at this path */
	const struct optimfs_watch *watch; /* stop counts */
	struct optimfs_error *err;
};

static int use_file(struct checking *c, struct ofs_at at)
{
	struct ofs_composition comp;
	struct optimfs_file *f;
	uint64_t size, base, n;
	int ret = ofs_view_size(c->snap, at, &size, c->err);

	if (ret == -1 || ofs_file_open(c->snap, at, &f, c->err) == -1)
		return -1;
	for (uint64_t off = 0; off < size && ret == 0; off = base + n) {
		ret = ofs_go_on(c->watch->stop, c->watch->ctx, c->err);
		if (ret == 0)
			ret = ofs_view_window(f->view, off,
			    size - off < WINDOW ? size - off : WINDOW, &comp,
			    &base, c->err);
		n = ret == 0 ? comp.size : 1;
		for (size_t i = 0; ret == 0 && i < comp.n; i++)
			if (comp.piece[i].kind == OFS_PIECE_BOX &&
			    comp.piece[i].tensor < c->snap->cat->ntensors)
				c->used[comp.piece[i].tensor] = true;
		if (ret == 0)
			ofs_composition_fini(&comp);
	}
	optimfs_file_close(f);
	return ret;
}

static int use_files(struct checking *c, struct ofs_at view)
{
	struct ofs_at at = { view.space, 1 };
	uint32_t n;

	c->used =
	    ofs_alloc(c->snap->cat->ntensors + 1ull, sizeof(*c->used), c->err);
	if (c->used == NULL || ofs_view_count(c->snap, view, &n, c->err) == -1)
		return -1;
	for (; at.index < n; at.index++)
		if (!ofs_view_is_dir(c->snap, at) && use_file(c, at) == -1)
			return -1;
	return 0;
}

/* where: ", element 5", or "". */
static int differ(const struct checking *c, const char *where,
    const char *written, const char *stored)
{
	const struct ofs_tensor *t =
	    ofs_tree_tensor(&c->made->tree, c->made->cat, c->node);

	if (t != NULL && ofs_tensor_rounded(c->made->cat, t))
		return optimfs_fail(c->err, EINVAL,
		    "OFS822 %.120s%s is %.*s: the layout stores the "
		    "optimizer's copy, which rounds to %.*s",
		    c->path, where, (int)strcspn(written, "\n"), written,
		    (int)strcspn(stored, "\n"), stored);
	return optimfs_fail(c->err, EINVAL,
	    "OFS828 %.120s%s is %.*s, but the layout stores it together with "
	    "another file, which says %.*s: write the same to both",
	    c->path, where, (int)strcspn(written, "\n"), written,
	    (int)strcspn(stored, "\n"), stored);
}

static int differ_at(const struct checking *c, enum ofs_dtype dtype,
    uint64_t off)
{
	char written[80], stored[80], where[40];
	uint64_t item = ofs_dtype_size(dtype), at = 0;

	while (memcmp(c->written + at, c->stored + at, item) == 0)
		at += item;
	written[ofs_dtype_print(dtype, c->written + at, written)] = '\0';
	stored[ofs_dtype_print(dtype, c->stored + at, stored)] = '\0';
	snprintf(where, sizeof(where), ", element %" PRIu64, (off + at) / item);
	return differ(c, where, written, stored);
}

/* A file of the mount, and that of the new checkpoint. */
struct pair {
	struct optimfs_file *a, *b;
};

/* Elements that the layout converts have another type. */
static int compare_elements(const struct checking *c, const struct pair *p,
    enum ofs_dtype dtype)
{
	const struct ofs_tensor *made =
	    ofs_tree_tensor(&c->made->tree, c->made->cat, c->node);
	uint64_t size = ofs_file_size(p->a), n;

	if (made == NULL || made->dtype != dtype || ofs_file_size(p->b) != size)
		return 0;
	for (uint64_t off = 0; off < size; off += n) {
		n = size - off < PIECE ? size - off : PIECE;
		if (ofs_go_on(c->watch->stop, c->watch->ctx, c->err) == -1 ||
		    ofs_file_read_all(p->a, c->written, n, off, c->err) == -1 ||
		    ofs_file_read_all(p->b, c->stored, n, off, c->err) == -1)
			return -1;
		if (memcmp(c->written, c->stored, n) != 0)
			return differ_at(c, dtype, off);
	}
	return 0;
}

static int compare_texts(const struct checking *c, const struct pair *p)
{
	if (p->a->blob == NULL || p->b->blob == NULL ||
	    ofs_blob_equal(p->a->blob, p->b->blob))
		return 0;
	return differ(c, "", (const char *)p->a->blob->bytes,
	    (const char *)p->b->blob->bytes);
}

static int compare_files(const struct checking *c, uint32_t node,
    const struct ofs_tensor *t)
{
	struct pair p = { NULL, NULL };
	int ret = -1;

	if (ofs_file_open(c->snap, (struct ofs_at){ OFS_SPACE_TREE, node },
		&p.a, c->err) == 0 &&
	    ofs_file_open(c->made, (struct ofs_at){ OFS_SPACE_TREE, c->node },
		&p.b, c->err) == 0)
		ret = t == NULL || t->ndim == 0
		    ? compare_texts(c, &p)
		    : compare_elements(c, &p, (enum ofs_dtype)t->dtype);
	optimfs_file_close(p.a);
	optimfs_file_close(p.b);
	return ret;
}

static bool is_below(const struct ofs_tree *tree, uint32_t node,
    const char *name)
{
	while (node != 0 && strcmp(tree->node[node].name, name) != 0)
		node = tree->node[node].parent;
	return node != 0;
}

/* Values besides the state of parameters may be the layout's, such as its number
 * of ranks, unless somebody has written another one. 1; 0; -1. */
static int is_said(const struct checking *c, uint32_t node)
{
	struct ofs_blob *was, *is;
	int same;

	is = ofs_overlay_accepted(c->snap->overlay, node);
	if (is == NULL)
		return 0;
	was = ofs_entry_text_base(c->snap, node, c->err);
	same = was == NULL ? -1 : ofs_blob_equal(was, is);
	ofs_blob_unref(was);
	ofs_blob_unref(is);
	if (same != 1)
		return same == -1 ? -1 : 1;
	return is_below(&c->snap->tree, node, "state") ||
	    is_below(&c->snap->tree, node, "model");
}

/* May what was written for a node differ from what is stored? 1; 0; -1. */
static int is_doubtful(const struct checking *c, uint32_t node)
{
	const struct ofs_snapshot *snap = c->snap;
	uint32_t entry = snap->tree.node[node].entry;

	if (entry == OFS_NONE || !ofs_overlay_is_written(snap->overlay, node))
		return 0;
	if (ofs_entry_is_text(snap->cat, entry))
		return is_said(c, node);
	return snap->cat->entries[entry].kind == OFS_ENTRY_TENSOR &&
	    !c->used[snap->cat->entries[entry].ref];
}

static int check_node(struct checking *c, uint32_t node)
{
	const struct ofs_snapshot *snap = c->snap;
	const struct ofs_tensor *t;
	struct ofs_at at;
	int ret = is_doubtful(c, node);

	if (ret != 1)
		return ret;
	if (!ofs_tree_path(&snap->tree, node, c->path, sizeof(c->path)))
		return optimfs_fail(c->err, EUCLEAN,
		    "OFS829 %.200s cannot be compared with what the layout "
		    "stores: its path is too long",
		    c->path);
	ofs_overlay_doing(snap->overlay, c->path);
	if (ofs_resolve(c->made, c->path, &at, NULL) == -1 ||
	    at.space != OFS_SPACE_TREE || ofs_at_entry(c->made, at) == NULL)
		return 0; /* the layout has no such file */
	c->node = at.index;
	t = ofs_tree_tensor(&snap->tree, snap->cat, node);
	return compare_files(c, node, t);
}

static int check_all(struct checking *c, struct ofs_at view)
{
	c->written = ofs_alloc(2, PIECE, c->err);
	if (c->written == NULL || use_files(c, view) == -1)
		return -1;
	c->stored = c->written + PIECE;
	for (uint32_t i = 1; i < c->snap->tree.n; i++)
		if (check_node(c, i) == -1)
			return -1;
	return 0;
}

int ofs_push_check(struct ofs_snapshot *snap, struct ofs_at view,
    const char *path, const struct optimfs_watch *watch,
    struct optimfs_error *err)
{
	const struct optimfs_watch reading = { .stop = watch->stop,
		.ctx = watch->ctx };
	const struct optimfs_options *given = &snap->fs->options;
	const struct optimfs_options options = {
		.cache = given->cache,
		.max_metadata = given->max_metadata,
		.parse_mem = given->parse_mem,
		.watch = &reading,
	};
	struct optimfs *made = ofs_fs_open(path, &options, err);
	struct checking c = { .snap = snap, .watch = watch, .err = err };
	int ret;

	if (made == NULL)
		return optimfs_fail_in(err, "the new files");
	c.made = made->now;
	ret = check_all(&c, view);
	optimfs_close(made);
	free(c.written);
	free(c.used);
	return ret;
}
