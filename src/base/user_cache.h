/* user_cache.h - files that save work when a checkpoint is opened again */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_USER_CACHE_H
#define OFS_BASE_USER_CACHE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "optimfs/error.h"

/* The user's directory $XDG_CACHE_HOME/optimfs, or ~/.cache/optimfs. Its files
 * are never needed: all failures are those of a directory without files, except
 * ENOMEM. A file is used only if it is complete, and of this user, who alone
 * may write to it and to the directory. */

/* Makes the directory, in an existing one or ~/.cache, before a thread is confined.
 * malloc'ed; NULL: there is none. */
char *ofs_user_cache_make(void);
/* A descriptor of it; -1: there is none. */
int ofs_user_cache_open(void);
/* Is an open file of this kind (S_IFREG, S_IFDIR) the user's, who alone may
 * write to it? */
bool ofs_user_cache_own(int fd, mode_t kind);
/* 1: *data (malloc'ed) has the bytes that were saved under this name; 0: there
 * are none, or more than max; -1: ENOMEM. */
int ofs_user_cache_load(const char *name, uint64_t max, uint8_t **data,
    uint64_t *n, struct optimfs_error *err);
/* Saves bytes in place of what has the name. Of two processes that save at once
 * one is late, and what the other has saved is gone. */
void ofs_user_cache_save(const char *name, const void *data, uint64_t n);
/* Removes the oldest of the files whose names begin with prefix until the others
 * have at most max bytes. */
void ofs_user_cache_trim(const char *prefix, uint64_t max);

#endif
