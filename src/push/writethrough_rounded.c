/* writethrough_rounded.c - tensors that a layout computes from others */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "overlay/overlay_impl.h"
#include "push/writethrough.h"

#define STEP ((uint64_t)1 << 20)

/* Such a tensor is not stored: bytes written to it are staged, and must equal
 * the stored elements, or those after rounding. */
struct compared {
	struct ofs_overlay *o;
	struct ofs_overlay_file *f;
	const struct ofs_tensor *t;
	uint8_t *written, *stored; /* size STEP each */
};

bool ofs_writethrough_is_rounded(const struct ofs_overlay *o, uint32_t entry)
{
	const struct ofs_tensor *t =
	    ofs_entry_tensor(o->cat, &o->cat->entries[entry]);

	return t != NULL && ofs_tensor_rounded(o->cat, t);
}

static int not_one(const struct compared *c, const char *path,
    const char *written, const char *stored, uint64_t off,
    struct optimfs_error *err)
{
	char other[4096];
	uint32_t by = ofs_writethrough_written(c->o,
	    ofs_writethrough_primary(c->o, c->f->index));

	ofs_tree_path(c->o->tree, by, other, sizeof(other));
	return optimfs_fail(err, EINVAL,
	    "OFS828 %.70s and %.70s are stored once in this layout, but "
	    "element %" PRIu64 " is %.20s and %.20s: write the same to both, "
	    "or one of them",
	    other, path, off / ofs_dtype_size(c->t->dtype), stored, written);
}

static int differ(const struct compared *c, uint64_t at, uint64_t off,
    struct optimfs_error *err)
{
	char path[4096], written[80], stored[80];

	written[ofs_dtype_print(c->t->dtype, c->written + at, written)] = '\0';
	stored[ofs_dtype_print(c->t->dtype, c->stored + at, stored)] = '\0';
	ofs_tree_path(c->o->tree, c->f->index, path, sizeof(path));
	if (!ofs_writethrough_is_rounded(c->o, c->f->entry))
		return not_one(c, path, written, stored, at + off, err);
	return optimfs_fail(err, EINVAL,
	    "OFS822 %.150s, element %" PRIu64 " is %.40s: the layout stores "
	    "the optimizer's copy, which rounds to %.40s",
	    path, (off + at) / ofs_dtype_size(c->t->dtype), written, stored);
}

static int compare_step(const struct compared *c, uint64_t off, uint64_t n,
    struct optimfs_error *err)
{
	uint64_t item = ofs_dtype_size(c->t->dtype), at = 0;

	if (ofs_writethrough_read(c->o, c->f, c->stored, n, off, err) == -1 ||
	    ofs_overlay_file_apply(c->o, c->f, c->written, off, off + n, 0,
		err) == -1)
		return -1;
	if (memcmp(c->stored, c->written, n) == 0)
		return 0;
	while (memcmp(c->stored + at, c->written + at, item) == 0)
		at += item;
	return differ(c, at, off, err);
}

static int compare(struct compared *c, struct optimfs_error *err)
{
	uint64_t size = c->f->size, n;
	int ret = 0;

	for (uint64_t off = 0; off < size && ret == 0; off += n) {
		n = size - off < STEP ? size - off : STEP;
		ret = compare_step(c, off, n, err);
	}
	return ret;
}

int ofs_writethrough_rounded(struct ofs_overlay *o, struct optimfs_error *err)
{
	struct compared c = { .o = o };
	int ret = 0;

	c.written = malloc(2 * STEP);
	if (c.written == NULL)
		return ofs_no_memory(err);
	c.stored = c.written + STEP;
	for (uint32_t i = 1; i < o->tree->n && ret == 0; i++) {
		if (o->tree->node[i].entry == OFS_NONE)
			continue;
		c.f = ofs_overlay_file(o, i);
		c.t = ofs_tree_tensor(o->tree, o->cat, i);
		if (c.f != NULL && !c.f->text && !c.f->bytes->in_place &&
		    c.f->written.n > 0 && ofs_writethrough_present(o, i))
			ret = compare(&c, err);
	}
	free(c.written);
	return ret;
}
