/* quit.h - signals that end a mount */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FUSE_QUIT_H
#define OFS_FUSE_QUIT_H

#include <stdbool.h>

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include "optimfs/error.h"

#include "fuse/loop.h"

/* A thread takes SIGINT, SIGTERM and SIGHUP. The first signal ends the loop of
 * the session; requests that still wait after a second get an error; after five
 * seconds, or at the second signal, the mount is detached and the process
 * exits. */
struct ofs_quit;

/* Blocks these signals in all threads started from now on; call before
 * ofs_quit_new. */
void ofs_quit_block(void);
/* se and loop are borrowed. point may be NULL: someone else unmounts. */
struct ofs_quit *ofs_quit_new(struct fuse_session *se, struct ofs_loop *loop,
    const char *point, struct optimfs_error *err);
/* True: a signal was received. */
bool ofs_quit_free(struct ofs_quit *q);

#endif
