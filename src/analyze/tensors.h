/* tensors.h - the tensors below a directory of the tree */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ANALYZE_TENSORS_H
#define OFS_ANALYZE_TENSORS_H

#include "optimfs/analyze.h"

#include "base/arena.h"
#include "base/dtype.h"
#include "fs/walk.h"

/* A file of the tree. Texts and 0-dim tensors have no dtype. */
struct ofs_file_info {
	char *path;
	uint64_t node;
	enum ofs_dtype dtype;
	char *shape;  /* "12,12"; "" for a 0-dim tensor; NULL for text */
	bool unknown; /* a tensor of unknown dtype */
	uint64_t elements, bytes;
	int rank;
};

struct ofs_file_list {
	struct ofs_file_info *file;
	size_t n, cap;
	struct ofs_arena texts; /* paths and shapes */
};

/* Adds all files at and below a path, texts too, in the order of the tree. The
 * caller frees the list with _fini, on failure too. */
int ofs_files_below(struct optimfs *fs, const char *path,
    struct ofs_file_list *l, struct optimfs_error *err);
void ofs_file_list_fini(struct ofs_file_list *l);
/* Adds a copy of f; NULL: ENOMEM. */
struct ofs_file_info *ofs_file_list_add(struct ofs_file_list *l,
    const struct ofs_file_info *f, struct optimfs_error *err);

static inline bool ofs_is_tensor(const struct ofs_file_info *f)
{
	return f->dtype != OFS_DTYPE_NONE;
}

/* The text of a small file without its last newline, NUL-terminated and
 * malloc'ed; *len, which may be NULL, is its length. */
char *ofs_text_of(struct optimfs *fs, uint64_t node, size_t *len,
    struct optimfs_error *err);

#endif
