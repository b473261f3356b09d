/* canon_roots.h - finding optimizers; canon_roots.c, canon_place.c */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CANON_ROOTS_H
#define OFS_CANON_ROOTS_H

#include "canon_impl.h"

/* A path is cut off at CANON_DEPTH components. */
struct canon_parts {
	uint32_t c[CANON_DEPTH];
	uint32_t n;
};

/* Textual keys are cut at no more places than this. */
#define ROOT_TOKENS 4

/* The root path[0..n), an index; UINT32_MAX. */
uint32_t ofs_root_find(const struct canon *c, const uint32_t *path, uint32_t n);
/* The same, added when new; it moves when another is added. NULL: failed. */
struct canon_root *ofs_root_get(struct canon *c, const uint32_t *path,
    uint32_t n, struct optimfs_error *err);
/* The first components of an entry's path, without OFS_PATH_INDEX; how many it
 * has in all. */
uint32_t ofs_root_head(const struct canon *c, uint32_t entry,
    struct canon_parts *p);
/* The first of them. */
struct ofs_str ofs_root_text(const struct canon *c,
    const struct canon_parts *p);
/* Where the next "state." or "param_groups." begins a component of text, at
 * from or behind it; text.len when there is none. */
size_t ofs_root_token(struct ofs_str text, size_t from);
/* text[0..end) cut at its dots; *fits is false when that is too many. */
int ofs_root_cut(struct canon *c, struct ofs_str text, size_t end,
    struct canon_parts *p, bool *fits, struct optimfs_error *err);
/* Add every root there may be and accept those that are. */
int ofs_root_detect(struct canon *c, struct optimfs_error *err);

#endif
