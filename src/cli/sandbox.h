/* sandbox.h - restrict threads that parse checkpoints */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLI_SANDBOX_H
#define OFS_CLI_SANDBOX_H

#include <stdbool.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

/* A thread in the sandbox
 *  - can only open the files of the checkpoints, of the directories for staged
 *    and decoded data, and of /proc (Landlock);
 *  - cannot run programs, make processes or sockets, mount, trace or signal
 *    other processes, and without write cannot change attributes of files
 *    (seccomp, see syscalls.h);
 *  - cannot gain privileges, and keeps of those of root only what reading, or
 *    writing, needs.
 * With accept it can accept connections to a socket that it has.
 * Threads that it starts inherit this. For sources that are addresses, another
 * thread, which is started first, talks to servers. It cannot mount or unmount: threads that
 * parse nothing do that. */
struct ofs_sandbox;

enum ofs_sandbox_policy {
	OFS_SANDBOX_OFF,
	OFS_SANDBOX_AUTO,    /* as far as the kernel can */
	OFS_SANDBOX_REQUIRE, /* or fail */
};
/* "off", "auto", "require": the choices of an option. */
extern const char *const ofs_sandbox_policies[];

struct ofs_sandbox_config {
	const char *source[2]; /* a directory or a file; NULL: none */
	const char *join[2];   /* another of each source; NULL: none */
	const char *base[2];   /* what others change; NULL: none */
	bool write;            /* source[0] is, with a stage beside it */
	bool temporary;     /* with write: temporary changes, stage anywhere */
	const char *upper;  /* a writable directory; NULL: none */
	const char *output; /* to be made or written into; NULL: none */
	/* For addresses, see optimfs_connect. */
	const struct optimfs_options *open;
	/* Files named in options, read-only. May be NULL. */
	const char *file[3];
	int memory;       /* a directory for unnamed files; -1: none */
	bool passthrough; /* backing files are registered, which needs root */
	bool accept;      /* a socket accepts connections */
};

/* Missing paths are left out: opening them fails anyway. 1: files are not
 * restricted, because the kernel cannot (err says why); everything else is.
 * -1: failed. */
int ofs_sandbox_new(const struct ofs_sandbox_config *config,
    struct ofs_sandbox **sandbox, struct optimfs_error *err);
void ofs_sandbox_free(struct ofs_sandbox *sandbox);
/* A thread that unmounts, and starts threads which enter, is not restricted, but
 * keeps of root's privileges only what both need, permanently. */
int ofs_sandbox_serve(const struct ofs_sandbox *sandbox,
    struct optimfs_error *err);
/* Restricts the calling thread permanently. */
int ofs_sandbox_enter(const struct ofs_sandbox *sandbox,
    struct optimfs_error *err);

#endif
