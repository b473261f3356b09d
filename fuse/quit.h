/* quit.h - signals that end a mount */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FUSE_QUIT_H
#define OFS_FUSE_QUIT_H

#include <stdbool.h>

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include "optimfs/error.h"

#include "fuse/loop.h"

/* SIGINT, SIGTERM and SIGHUP, taken by a thread of their own. The first ends
 * the session's loop; whoever still waits for an answer after a second gets
 * an error; after five, or at the second signal, the mount is detached and
 * the process ends. */
struct ofs_quit;

/* Keep these signals from every thread that is started from now on; before
 * ofs_quit_new. */
void ofs_quit_block(void);
/* Both borrowed. point may be NULL: not ours to unmount. */
struct ofs_quit *ofs_quit_new(struct fuse_session *se, struct ofs_loop *loop,
    const char *point, struct optimfs_error *err);
/* True: a signal has come. */
bool ofs_quit_free(struct ofs_quit *q);

#endif
