/* stage_path.h - paths and files of staging directories */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_JOURNAL_STAGE_PATH_H
#define OFS_JOURNAL_STAGE_PATH_H

#include <sys/types.h>

#include "optimfs/error.h"

/* The parent of source with symbolic links resolved, malloc'ed; *name, in the
 * same memory, is its last component. OFS809. */
char *ofs_stage_split(const char *source, char **name,
    struct optimfs_error *err);
/* Opens a file of ours in directory at. Anything but a regular file (such as a
 * FIFO, which would block) is EUCLEAN; one with several names (of a backup made
 * of hard links) is EMLINK, except for O_RDONLY. mode is for a new file. -1 and
 * errno. */
int ofs_stage_open_file(int at, const char *name, int flags, mode_t mode);
/* A message for an errno of ofs_stage_open_file. */
const char *ofs_stage_why(int code);
/* Opens the directory at path. OFS809. */
int ofs_stage_open_at(const char *path, struct optimfs_error *err);
/* Opens the stage at place to look into it. Anybody who may write in the directory
 * above can make a directory of this name: one that belongs to neither this user
 * nor root, or that others may write in, says nothing about the checkpoint. EPERM
 * (OFS846): not ours; ENOENT: there is none. */
int ofs_stage_look(const char *place, struct optimfs_error *err);
/* Makes a directory, and checks that it belongs to this user only; place is its
 * path, for messages. OFS809, OFS846. */
int ofs_stage_make_dir(int at, const char *name, const char *place,
    struct optimfs_error *err);
/* Makes .NAME.optimfs in parent; returns its descriptor and its path
 * (malloc'ed). OFS809. */
int ofs_stage_make_in(const char *parent, const char *name, char **path,
    struct optimfs_error *err);
/* Removes an empty directory. Others stay: they contain new/, or files that are
 * not ours. */
void ofs_stage_rmdir(const char *path);

#endif
