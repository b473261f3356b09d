/* sharded_impl.h - what the readers of sharded tensors share */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_TORCH_FILE_SHARDED_IMPL_H
#define OFS_FORMAT_TORCH_FILE_SHARDED_IMPL_H

#include <errno.h>

#include "format/torch_file/sharded.h"

/* The most ranks of a job; the numbers are untrusted. */
#define OFS_SHARDED_WORLD (1 << 24)

/* A tensor made by _rebuild_from_type_v2(function, type, arguments, state), or
 * an instance whose state BUILD set. */
struct ofs_sharded_node {
	uint32_t args;  /* (class, dtype, size, ...), or OFS_NONE */
	uint32_t state; /* state of the instance */
};

static inline int ofs_sharded_damaged(const char *what,
    struct optimfs_error *err)
{
	return optimfs_fail(err, EUCLEAN, "OFS691 %s", what);
}

static inline int ofs_sharded_unsupported(const char *what,
    struct optimfs_error *err)
{
	return optimfs_fail(err, EOPNOTSUPP, "OFS692 %s", what);
}

/* Is it an object of a class of PyTorch with this name? */
bool ofs_sharded_is_class(const struct ofs_pickle *doc, uint32_t node,
    const char *want);
/* An attribute in a state for BUILD: a dict, or (dict, slots). */
uint32_t ofs_sharded_attr(const struct ofs_pickle *doc, uint32_t state,
    const char *name);
/* Read a list of at most max non-negative numbers; what is its name. */
int ofs_sharded_numbers(const struct ofs_pickle *doc, uint32_t node,
    const char *what, uint64_t *v, uint32_t max, uint32_t *n,
    struct optimfs_error *err);
/* Read the size of the whole tensor. */
int ofs_sharded_shape(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_torch_sharded *s, struct optimfs_error *err);
/* A number from 0 to OFS_SHARDED_WORLD, or unknown. */
int ofs_sharded_rank(const struct ofs_pickle *doc, uint32_t node, int unknown);
/* A new piece of s, zeroed. NULL: too many (E2BIG, OFS694), or no memory. */
struct ofs_torch_piece *ofs_sharded_add(struct ofs_torch_sharded *s,
    struct optimfs_error *err);

/* sharded_dtensor.c */
int ofs_sharded_dtensor(const struct ofs_pickle *doc,
    const struct ofs_sharded_node *w, struct ofs_torch_sharded *s,
    struct optimfs_error *err);

#endif
