/* operand.h - a tensor of the command line, or a slice of it */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_TOOLS_OPERAND_H
#define OFS_TOOLS_OPERAND_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/optimfs.h"

#include "base/dtype.h"
#include "cli/slice.h"
#include "tools/command.h"

/* An operand PATH or PATH[SLICE], and what of a tensor it selects. */
struct ofs_operand {
	struct ofs_command *c;
	char *path;        /* malloc'ed; without the slice */
	const char *slice; /* in the operand; NULL: there is none */
	struct optimfs_attr attr;
	char *dtype, *shape; /* NULL: there is none; malloc'ed */
	enum ofs_dtype t;
	struct ofs_slice of;
	uint64_t start; /* element of the tensor where it begins */
	uint64_t n;     /* elements that are shown */
	struct optimfs_file *file;
};

/* Finds the file. A name may have brackets itself: the whole operand is looked
 * up first. */
int ofs_operand_find(struct ofs_operand *p, struct ofs_command *c,
    const char *operand, struct optimfs_error *err);
void ofs_operand_fini(struct ofs_operand *p);
/* A tensor without dimensions is a file of text. */
bool ofs_operand_is_array(const struct ofs_operand *p);
/* Opens an array and selects the slice. operand: for messages. */
int ofs_operand_open(struct ofs_operand *p, const char *operand,
    struct optimfs_error *err);

/* Reads the selected elements [first, first + n), and no others. ECANCELED after
 * an interrupt. */
int ofs_operand_read(struct ofs_operand *p, uint64_t first, size_t n, void *out,
    struct optimfs_error *err);
/* Passes all to each, in pieces of n elements from the first on; *done: how many
 * were passed. */
typedef int ofs_operand_fn(void *ctx, const uint8_t *data, uint64_t first,
    size_t n, struct optimfs_error *err);
int ofs_operand_each(struct ofs_operand *p, ofs_operand_fn *each, void *ctx,
    uint64_t *done, struct optimfs_error *err);

/* For cat and cp: passes a slice to sink as a .npy file. */
int ofs_operand_npy(struct ofs_operand *p, const char *operand,
    ofs_sink_fn *sink, void *ctx, struct optimfs_error *err);

#endif
