/* assemble.h - gather whole files into memory when they are opened */
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

/* Files are gathered into memory and handed to the kernel, within a budget: the
 * least recently used are dropped first; open ones stay.
 *
 * The kernel refuses an open that would read a file in another way than its
 * other opens: the choice is kept until the last one is closed.
 *
 * "auto" gathers small files on the first open. It gathers a larger file if it
 * is opened again, or if the process has read another file completely, until it
 * leaves one unread. While a process reads large files one after the other, the
 * next one that would be gathered is gathered already (ofs_assemble_ahead), and
 * those that it has closed are dropped for it, unless they were opened again. */
struct ofs_assemble;

struct ofs_assemble_config {
	enum ofs_assemble_policy policy;
	uint64_t max;    /* larger files are not gathered */
	uint64_t budget; /* memory limit in bytes */
	unsigned threads;
};

/* NULL: the kernel or our privileges do not allow it, see err. pt is
 * borrowed. */
struct ofs_assemble *ofs_assemble_new(const struct ofs_assemble_config *config,
    struct ofs_passthrough *pt, struct optimfs_error *err);
void ofs_assemble_free(struct ofs_assemble *a);
/* The directory in memory for the files; -1: a is NULL. */
int ofs_assemble_dir(const struct ofs_assemble *a);

/* An open of a file. The caller sets the first members; the rest belongs to
 * assemble.c until release. */
struct ofs_assemble_open {
	uint64_t node, size;
	pid_t pid;
	int id;      /* out: backing file for reads; 0: reads come to us */
	bool onward; /* out: the process opens one large file after the other */
	bool counted;
};
/* Decides, gathers the file if necessary, and counts the open. file is read
 * only during the call. If reading fails, the file is read on demand, so that
 * its good parts can be read. pending: gathering stops when it is answered.
 * ENOMEM: there is nothing to release. */
int ofs_assemble_open(struct ofs_assemble *a, struct ofs_assemble_open *o,
    struct optimfs_file *file, void *scratch, struct ofs_pending *pending,
    struct optimfs_error *err);
/* served: bytes read through us. */
void ofs_assemble_release(struct ofs_assemble *a, struct ofs_assemble_open *o,
    uint64_t served);

/* Where the next files come from. */
struct ofs_assemble_next {
	/* Opens the file of a node if its bytes do not change and are more than
	 * min. NULL: it is no such file. */
	struct optimfs_file *(*open)(void *ctx, uint64_t node, uint64_t min);
	bool (*cancelled)(void *ctx); /* called regularly, from any thread */
	void *ctx;
};
/* To be called when an open that was found to be onward has been answered, with
 * what it was: while the process reads that file, gathers the next large one in
 * the order of node numbers, which is that of the tree. Opens of it wait. What
 * fails or does not fit is left to its open. */
void ofs_assemble_ahead(struct ofs_assemble *a,
    const struct ofs_assemble_open *o, const struct ofs_assemble_next *next,
    void *scratch);

struct ofs_assemble_stats {
	uint64_t gathered, gathered_bytes, hits, evicted, failed, refused;
	uint64_t memory;
};
void ofs_assemble_stats(struct ofs_assemble *a, struct ofs_assemble_stats *s);

#endif
