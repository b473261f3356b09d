/* server_files.h - the files of a directory as they are, over HTTP */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_SERVE_SERVER_FILES_H
#define OFS_SERVE_SERVER_FILES_H

#include <stdbool.h>
#include <sys/stat.h>

#include "optimfs/error.h"

#include "base/buf.h"

/* A directory of which links are not followed, and names that begin with a dot
 * not shown, but for .metadata. Thread-safe. */
struct ofs_server_files;
struct ofs_server_files *ofs_server_files_open(const char *path,
    struct optimfs_error *err);
void ofs_server_files_close(struct ofs_server_files *f);
/* May everybody on this machine search it? */
bool ofs_server_files_public(const struct ofs_server_files *f);

struct ofs_server_file {
	bool is_dir;
	bool is_public; /* everybody on this machine may read it */
	int fd;         /* of a file: the caller's; else -1 */
	struct stat st;
};
/* rel: "" is the directory itself. ENOENT (OFS019), and what ofs_dir_open_file
 * says. */
int ofs_server_files_find(const struct ofs_server_files *f, const char *rel,
    struct ofs_server_file *file, struct optimfs_error *err);
/* The tag of one state of a file; the same on all machines that share its file
 * system. */
#define OFS_SERVER_TAG 80
void ofs_server_files_tag(const struct stat *st, char tag[OFS_SERVER_TAG]);
/* Appends a listing. */
int ofs_server_files_list(const struct ofs_server_files *f, const char *rel,
    bool json, struct ofs_buf *b, struct optimfs_error *err);

#endif
