/* sandbox.h - what a thread that reads a checkpoint can still do */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FUSE_SANDBOX_H
#define OFS_FUSE_SANDBOX_H

#include <stdbool.h>

#include "optimfs/error.h"

/* A thread that enters can open the files of one checkpoint, of the places
 * where what is staged or decoded lies, and of /proc, and no others; it opens
 * no TCP connection, runs no program, gains no rights and has lost those of
 * root that reading and committing do not take. So do the threads it starts.
 * It can neither mount nor unmount: that is left to threads that parse
 * nothing. */
struct ofs_sandbox;

struct ofs_sandbox_config {
	const char *source; /* a directory or a file */
	bool write;         /* it is committed to, and staged for, beside it */
	bool temporary; /* with write: never committed, staged where it can */
	const char *upper; /* a directory to write in; NULL: none */
	/* Files of options, which are read only. Any may be NULL. */
	const char *file[2];
	int memory;       /* a directory for files without names; -1: none */
	bool passthrough; /* files are given to the kernel, as root may */
};

/* What is not there yet, or any more, is left out: opening it fails for its
 * own reason. -1: the kernel cannot do it, or refuses to. */
int ofs_sandbox_new(const struct ofs_sandbox_config *config,
    struct ofs_sandbox **sandbox, struct optimfs_error *err);
void ofs_sandbox_free(struct ofs_sandbox *sandbox);
/* The calling thread, for good. */
int ofs_sandbox_enter(const struct ofs_sandbox *sandbox,
    struct optimfs_error *err);

#endif
