/* writethrough_names.c - names of a template, hidden until they are created */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "base/memory.h"
#include "overlay/overlay_impl.h"
#include "push/writethrough.h"

#define PIECE ((uint64_t)1 << 20)

int ofs_writethrough_hide(struct ofs_overlay *o, struct optimfs_error *err)
{
	for (uint32_t i = 1; i < o->tree->n; i++) {
		struct ofs_overlay_node *v = ofs_overlay_touch(o, i, err);

		if (v == NULL)
			return -1;
		v->gone = true;
	}
	return 0;
}

/* The hidden node of the template with this name; OFS_NONE: none. */
static uint32_t absent(const struct ofs_overlay *o, uint32_t dir,
    const char *name, bool is_dir)
{
	const struct ofs_overlay_node *v;
	uint32_t index;

	if (dir >= o->tree->n)
		return OFS_NONE;
	index = ofs_tree_lookup(o->tree, dir, name);
	v = index == OFS_NONE ? NULL : ofs_overlay_node(o, index);
	if (v == NULL || !v->gone || v->parent != OFS_NONE || v->dir != is_dir)
		return OFS_NONE;
	return index;
}

static bool is_shared(const struct ofs_overlay *o,
    const struct ofs_overlay_file *f)
{
	const struct ofs_tensor *t =
	    ofs_entry_tensor(o->cat, &o->cat->entries[f->entry]);

	return f->text && t != NULL && (t->flags & OFS_TENSOR_TIED) != 0;
}

/* A file that just became visible is empty, even if bytes were written earlier
 * to a file of this name that was removed. */
static int begin_empty(struct ofs_overlay *o, uint32_t index,
    struct optimfs_error *err)
{
	struct ofs_overlay_file *f = ofs_overlay_file_touch(o, index, err);
	struct ofs_buf none = { 0 };
	struct ofs_blob *empty;

	if (f == NULL)
		return -1;
	if (!is_shared(o, f))
		ofs_overlay_file_revert(o, f);
	if (!f->text || f->accepted != NULL)
		return 0;
	empty = ofs_blob_of(&none, err);
	if (empty == NULL)
		return -1;
	pthread_rwlock_wrlock(&f->lock);
	f->accepted = empty;
	f->unwritten = true;
	pthread_rwlock_unlock(&f->lock);
	return 0;
}

int ofs_writethrough_reveal(struct ofs_overlay *o, uint32_t dir,
    const char *name, bool is_dir, uint32_t *index, struct optimfs_error *err)
{
	uint32_t found = absent(o, dir, name, is_dir);

	if (found == OFS_NONE)
		return 0;
	if (!is_dir && begin_empty(o, found, err) == -1)
		return -1;
	if (ofs_overlay_record_path(o, is_dir ? OFS_REC_MKDIR : OFS_REC_CREATE,
		dir, name, err) == -1)
		return -1;
	ofs_overlay_node(o, found)->gone = false;
	*index = found;
	ofs_overlay_changed(o, true);
	return 1;
}

static int pour_bytes(struct ofs_overlay *o, struct ofs_overlay_file *from,
    struct ofs_overlay_file *to, struct optimfs_error *err)
{
	uint64_t size = from->size, limit = ofs_overlay_limit(o, to->index), k;
	uint8_t *buf;
	int ret;

	if (size > limit)
		return optimfs_fail(err, EFBIG,
		    "OFS813 past the tensor's end (it has %llu bytes)",
		    (unsigned long long)limit);
	if (ofs_overlay_fits(o, from, to->index, err) == -1)
		return -1;
	buf = malloc(PIECE);
	if (buf == NULL)
		return ofs_no_memory(err);
	ret = ofs_overlay_file_resize(o, to, true, 0, err);
	for (uint64_t off = 0; off < size && ret == 0; off += k) {
		k = size - off < PIECE ? size - off : PIECE;
		ret =
		    ofs_overlay_file_apply(o, from, buf, off, off + k, 0, err);
		if (ret == 0)
			ret = ofs_overlay_file_write(o, to, true, buf, k, off,
			    err);
	}
	free(buf);
	return ret;
}

int ofs_writethrough_rename(struct ofs_overlay *o, uint32_t index, uint32_t dir,
    const char *name, struct optimfs_error *err)
{
	struct ofs_overlay_file *from, *to;
	uint32_t known = OFS_NONE;
	int ret;

	if (!ofs_overlay_is_made(o, index) || ofs_overlay_is_dir(o, index) ||
	    o->replaying)
		return 0;
	ret = ofs_writethrough_reveal(o, dir, name, false, &known, err);
	if (ret == 0)
		known = ofs_overlay_find(o, dir, name);
	if (ret == -1 || known == OFS_NONE || ofs_overlay_is_made(o, known) ||
	    ofs_overlay_is_dir(o, known))
		return ret;
	from = ofs_overlay_file_touch(o, index, err);
	to = ofs_overlay_file_touch(o, known, err);
	if (from == NULL || to == NULL)
		return -1;
	ret = to->text ? ofs_overlay_text_take(o, from, to, known, err)
		       : pour_bytes(o, from, to, err);
	if (ret == 0)
		ret = ofs_overlay_remove(o, ofs_overlay_parent(o, index),
		    ofs_overlay_name(o, index), false, err);
	return ret == 0 ? 1 : -1;
}
