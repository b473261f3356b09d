/* keys.h - keys, numbered in the order in which they were added */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_KEYS_H
#define OFS_BASE_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/arena.h"
#include "base/map.h"
#include "base/types.h"

/* Different keys, 0 to n - 1, and their index. A key is a string of bytes: a
 * name, or a struct without padding. What belongs to a key is in an array of
 * the owner, by its number. Zero-initialise. */
struct ofs_keys {
	struct ofs_str *v;
	uint32_t n, cap;
	struct ofs_map map;
	struct ofs_arena arena; /* of copies */
};

void ofs_keys_fini(struct ofs_keys *keys);

/* The number of a key; OFS_NONE: it was not added. */
uint32_t ofs_keys_find(const struct ofs_keys *keys, const void *p, size_t n);
static inline bool ofs_keys_has(const struct ofs_keys *keys, struct ofs_str s)
{
	return ofs_keys_find(keys, s.p, s.len) != OFS_NONE;
}

/* The number of a key, which is added if it is new: then it is the n from
 * before. OFS_NONE with ENOMEM. s is borrowed. */
uint32_t ofs_keys_add(struct ofs_keys *keys, struct ofs_str s,
    struct optimfs_error *err);
/* As above; of a new key a copy is made, with a NUL behind it. */
uint32_t ofs_keys_copy(struct ofs_keys *keys, const void *p, size_t n,
    struct optimfs_error *err);

#endif
