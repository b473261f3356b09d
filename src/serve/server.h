/* server.h - the tree of a checkpoint over HTTP */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_SERVE_SERVER_H
#define OFS_SERVE_SERVER_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "optimfs/optimfs.h"

#include "base/buf.h"
#include "serve/listener.h"

struct ofs_server;

/* Answers the clients of at, in threads of its own, until it is stopped: with the
 * tree of fs, and the files of a directory at OFS_HTTP_FILES; without fs, with
 * these only. Either may be NULL. They and at must live as long. */
struct ofs_server_files;
struct ofs_server *ofs_server_start(struct optimfs *fs,
    const struct ofs_server_files *files, const struct ofs_listener *at,
    struct optimfs_error *err);
void ofs_server_stop(struct ofs_server *h);

/* server_text.c: parts of requests and answers. */

/* Appends the bytes that a path in a URL stands for, and a NUL. False: it is not
 * well formed, or has a NUL. */
bool ofs_server_decode(struct ofs_buf *b, const char *url);
/* Appends a name as a part of a path in a URL; as text of HTML. */
void ofs_server_encode(struct ofs_buf *b, const char *name);
void ofs_server_escape(struct ofs_buf *b, const char *text);
/* "Wed, 21 Oct 2015 07:28:00 GMT" */
#define OFS_SERVER_DATE 40
void ofs_server_date(int64_t mtime_ns, char date[OFS_SERVER_DATE]);
/* The bytes [*first, *end) of size that a Range header asks for. 1; 0: all of
 * them, because it asks for several ranges, or in a way that is not known; -1:
 * there are none. */
int ofs_server_range(const char *header, uint64_t size, uint64_t *first,
    uint64_t *end);
/* Is tag in a list as in If-None-Match? "*" is any. */
bool ofs_server_matches(const char *list, const char *tag);
/* Does a Host header name this machine by a word that no other name server can
 * give to it: localhost, or an address of the loopback interface? */
bool ofs_server_is_local(const char *host);

/* server_dir.c: the listing of a directory, part by part. Its forms are those of
 * the autoindex module of nginx, which other programs read. */
/* Begins a page of HTML. */
void ofs_server_dir_begin(struct ofs_buf *b, const char *path);
struct ofs_server_dir;
struct ofs_server_dir *ofs_server_dir_new(struct optimfs *fs, uint64_t node,
    const char *path, bool json, struct optimfs_error *err);
void ofs_server_dir_free(void *dir);
/* Copies at most max bytes that follow; 0: the end; -1: failed. */
ssize_t ofs_server_dir_read(struct ofs_server_dir *d, char *buf, size_t max);

#endif
