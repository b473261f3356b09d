/* stage_path.h - where what is staged for a checkpoint lies */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_JOURNAL_STAGE_PATH_H
#define OFS_JOURNAL_STAGE_PATH_H

#include <sys/types.h>

#include "optimfs/error.h"

/* The parent of source, links resolved, malloc'ed; *name, in the same memory,
 * is its last component. OFS809. */
char *ofs_stage_split(const char *source, char **name,
    struct optimfs_error *err);
/* -1 and errno. */
int ofs_stage_open_dir(int at, const char *name);
/* A file of ours in the directory at: what else has its name (a FIFO, which
 * would make us wait) is EUCLEAN. mode is that of a new one. -1 and errno. */
int ofs_stage_open_file(int at, const char *name, int flags, mode_t mode);
/* In words: what ofs_stage_open_file said in errno. */
const char *ofs_stage_why(int code);
/* The directory at path. OFS809. */
int ofs_stage_open_at(const char *path, struct optimfs_error *err);
/* A directory that nobody else can have made for us; place is its path, for
 * messages. OFS809. */
int ofs_stage_make_dir(int at, const char *name, const char *place,
    struct optimfs_error *err);
/* .NAME.optimfs in parent: its descriptor, and path (malloc'ed). OFS809. */
int ofs_stage_make_in(const char *parent, const char *name, char **path,
    struct optimfs_error *err);
/* A directory that is not empty stays: it holds new/, or what is not ours. */
void ofs_stage_rmdir(const char *path);

#endif
