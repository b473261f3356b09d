/* flat_check.c - state that parameters which lie in one tensor share */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/fsdp/flat_check.h"

#include <errno.h>
#include <string.h>

#include "base/dtype.h"

/* The bytes of a state that is not cut: elements, or a pickle. */
static int put_value(const struct ofs_render *from, const struct ofs_state *s,
    uint32_t entry, struct ofs_buf *out, struct optimfs_error *err)
{
	const struct ofs_entry *e = &from->cat->entries[entry];
	struct ofs_state_pickler p = { .s = s,
		.from = from,
		.w = { .out = out },
		.optim = OFS_NONE,
		.err = err };
	uint8_t bits[16];
	size_t size;

	if (e->kind != OFS_ENTRY_TENSOR)
		return ofs_state_put_entry(&p, e);
	if (ofs_render_sound(from->cat, e, err) == -1)
		return ofs_render_blame(from->cat, e, err);
	size = ofs_dtype_size(from->cat->tensors[e->ref].dtype);
	if (size > sizeof(bits) ||
	    from->element(from->ctx, e->ref, bits, err) == -1)
		return ofs_render_blame(from->cat, e, err);
	ofs_buf_put(out, bits, size);
	return 0;
}

static int same_value(const struct ofs_render *from, const struct ofs_state *s,
    uint32_t a, uint32_t b, bool *same, struct optimfs_error *err)
{
	const struct ofs_entry *x = &from->cat->entries[a];
	const struct ofs_entry *y = &from->cat->entries[b];
	struct ofs_buf p = { 0 }, q = { 0 };
	int ret = 0;

	*same = x->kind == y->kind && x->ref == y->ref;
	if (!*same)
		ret = put_value(from, s, a, &p, err);
	if (!*same && ret == 0)
		ret = put_value(from, s, b, &q, err);
	if (ret == 0 && (p.bad || q.bad))
		ret = optimfs_fail(err, ENOMEM, "a value of a view");
	if (!*same && ret == 0)
		*same = p.len == q.len && memcmp(p.data, q.data, p.len) == 0;
	ofs_buf_fini(&p);
	ofs_buf_fini(&q);
	return ret;
}

int ofs_flat_alike(const struct ofs_render *from, const struct ofs_state *s,
    uint32_t a, uint32_t b, struct optimfs_error *err)
{
	const struct ofs_entry *x = &from->cat->entries[a];
	const struct ofs_entry *y = &from->cat->entries[b];
	bool same;

	if ((x->kind == OFS_ENTRY_TENSOR) != (y->kind == OFS_ENTRY_TENSOR))
		return 0;
	if (x->kind == OFS_ENTRY_TENSOR) {
		const struct ofs_tensor *t = &from->cat->tensors[x->ref];
		const struct ofs_tensor *u = &from->cat->tensors[y->ref];

		if (t->dtype != u->dtype || (t->ndim > 0) != (u->ndim > 0))
			return 0;
		if (t->ndim > 0)
			return 1;
	}
	if (same_value(from, s, a, b, &same, err) == -1)
		return -1;
	return same;
}
