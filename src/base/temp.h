/* temp.h - files without a name, deleted when they are closed */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_TEMP_H
#define OFS_BASE_TEMP_H

/* A file without a name in directory path, which is relative to descriptor at
 * (both as in openat(2)), open for reading and writing; -1 with errno. Where
 * the file system has no such files (NFS), it has a name for a moment. */
int ofs_temp_open(int at, const char *path);

#endif
