/* sandbox.h - restrict threads that parse checkpoints */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FUSE_SANDBOX_H
#define OFS_FUSE_SANDBOX_H

#include <stdbool.h>

#include "optimfs/error.h"

/* A thread in the sandbox can only open the files of one checkpoint, of the
 * directories for staged and decoded data, and of /proc. It cannot open TCP
 * connections, run programs or gain privileges, and it has dropped the
 * privileges of root that reading and committing do not need. Threads that it
 * starts inherit this. It cannot mount or unmount: threads that parse nothing
 * do that. */
struct ofs_sandbox;

struct ofs_sandbox_config {
	const char *source; /* a directory or a file */
	bool write;         /* writable, with a stage beside it */
	bool temporary;     /* with write: temporary changes, stage anywhere */
	const char *upper;  /* a writable directory; NULL: none */
	/* Files named in options, read-only. May be NULL. */
	const char *file[2];
	int memory;       /* a directory for unnamed files; -1: none */
	bool passthrough; /* backing files are registered, which needs root */
};

/* Missing paths are left out: opening them fails anyway. -1: the kernel lacks
 * support, or refuses. */
int ofs_sandbox_new(const struct ofs_sandbox_config *config,
    struct ofs_sandbox **sandbox, struct optimfs_error *err);
void ofs_sandbox_free(struct ofs_sandbox *sandbox);
/* Restricts the calling thread permanently. */
int ofs_sandbox_enter(const struct ofs_sandbox *sandbox,
    struct optimfs_error *err);

#endif
