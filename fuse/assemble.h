/* assemble.h - which files are gathered when they are opened, and kept */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FUSE_ASSEMBLE_H
#define OFS_FUSE_ASSEMBLE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "optimfs/optimfs.h"

#include "fuse/opts.h"
#include "fuse/passthrough.h"
#include "fuse/pending.h"

/* Files gathered into memory and handed to the kernel, within a budget: the
 * least recently used go first, those that are open stay.
 *
 * The kernel fails an open that would read a file in another way than those
 * that have it open: what was chosen stays until the last of them is closed.
 *
 * "auto" gathers at the first open what is small; of what is larger a file
 * that is opened again, and the files of a process that has read another one
 * whole, until it leaves one unread. */
struct ofs_assemble;

struct ofs_assemble_config {
	enum ofs_assemble_policy policy;
	uint64_t max;    /* larger files are not gathered */
	uint64_t budget; /* of memory */
	unsigned threads;
};

/* NULL, with err, where the kernel or our rights do not allow it. pt is
 * borrowed. */
struct ofs_assemble *ofs_assemble_new(const struct ofs_assemble_config *config,
    struct ofs_passthrough *pt, struct optimfs_error *err);
void ofs_assemble_free(struct ofs_assemble *a);
/* The directory of memory that files are made in; -1: a is NULL. */
int ofs_assemble_dir(const struct ofs_assemble *a);

/* One open of a file. Fill in the first block; the rest is assemble.c's until
 * release. */
struct ofs_assemble_open {
	uint64_t node, size;
	pid_t pid;
	int id; /* out: reads go to this backing file; 0: to us */
	bool counted;
};
/* Decide, gather if it comes to that, and count the open. file is read only
 * during the call; an error of it means that the file is read on demand, so
 * that its good parts can be had. pending: given up when it is answered.
 * ENOMEM; then there is nothing to release. */
int ofs_assemble_open(struct ofs_assemble *a, struct ofs_assemble_open *o,
    struct optimfs_file *file, void *scratch, struct ofs_pending *pending,
    struct optimfs_error *err);
/* served: bytes that were read through us. */
void ofs_assemble_release(struct ofs_assemble *a, struct ofs_assemble_open *o,
    uint64_t served);

struct ofs_assemble_stats {
	uint64_t gathered, gathered_bytes, hits, evicted, failed, refused;
	uint64_t memory;
};
void ofs_assemble_stats(struct ofs_assemble *a, struct ofs_assemble_stats *s);

#endif
