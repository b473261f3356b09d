/* quit.h - signals that end a mount */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FUSE_QUIT_H
#define OFS_FUSE_QUIT_H

#include <stdbool.h>

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include "optimfs/error.h"

#include "fuse/loop.h"

/* A thread takes SIGINT, SIGTERM and SIGHUP, and sees to it that the process
 * ends. The first signal ends the loop of the session; requests that still wait
 * after a second get an error; after five seconds, or at the second signal, the
 * mount is detached and the process exits. If the mount was removed, there is no
 * hurry, but each step has a time as well, in which something must move: a commit
 * may write for hours, but not hang for minutes. Whoever gives up says so; what
 * is staged stays for the next mount. */
struct ofs_quit;

/* Blocks these signals in all threads started from now on; call before
 * ofs_quit_new. */
void ofs_quit_block(void);
/* se, loop, point and source are borrowed. point may be NULL: someone else
 * unmounts. rw: an early exit may lose changes, and is a failure. */
struct ofs_quit_config {
	struct fuse_session *se;
	struct ofs_loop *loop;
	const char *point, *source;
	bool rw;
};
struct ofs_quit *ofs_quit_new(const struct ofs_quit_config *config,
    struct optimfs_error *err);
/* The session has ended, by a signal or without one. */
void ofs_quit_ended(struct ofs_quit *q);
/* The loop has returned, and what follows is step: it may take this many seconds
 * from the last sign of life (optimfs_moves). True: a signal was received
 * before. */
bool ofs_quit_step(struct ofs_quit *q, const char *step, unsigned seconds);
void ofs_quit_free(struct ofs_quit *q);

#endif
