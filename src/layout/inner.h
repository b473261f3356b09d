/* inner.h - tensors inside values, for which the tree has no files */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_LAYOUT_INNER_H
#define OFS_LAYOUT_INNER_H

#include "archive/zip.h"
#include "layout/archive.h"
#include "layout/render.h"
#include "pickle/write.h"

/* The storages of a value, in a separate archive or in a file with other
 * tensors, while they are copied to another archive. Set from, e and a, zero
 * the rest; pass ofs_inner_put as storage of a struct ofs_pkw, and this as its
 * ctx. */
struct ofs_inner {
	const struct ofs_render *from;
	const struct ofs_entry *e;
	struct ofs_torch_new *a; /* NULL: only to compare */
	bool open;
	struct ofs_buf bytes; /* of the archive */
	struct ofs_zip zip;
	/* Storages that are in a: their keys, borrowed from the document, and
	 * sizes. */
	struct ofs_inner_new {
		struct ofs_str key;
		uint64_t bytes;
		uint32_t number;
	} * v;
	size_t n, cap;
};

/* Add the storage of a persistent id to a, and write its id there. EOPNOTSUPP
 * (OFS448): there is no such storage. */
int ofs_inner_put(void *ctx, struct ofs_pkw *w, const struct ofs_pickle *doc,
    uint32_t node, struct optimfs_error *err);
/* An archive with this pickle and the storages of a, which are literal, as
 * bytes. */
int ofs_inner_archive(struct ofs_torch_new *a, const struct ofs_buf *pickle,
    struct ofs_buf *out, struct optimfs_error *err);
void ofs_inner_fini(struct ofs_inner *inner);

#endif
