/* server_segments.h - runs of several files as one body */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_SERVE_SERVER_SEGMENTS_H
#define OFS_SERVE_SERVER_SEGMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "optimfs/error.h"

#include "serve/server_files.h"

/* A list says which: "FILE,TAG,RUNS,RUNS,...;FILE,...". FILE and TAG are escaped
 * as in a URL, FILE is a path below the directory of the request. RUNS is
 * OFFSET:LENGTH, or OFFSET:LENGTH:COUNT:PITCH for COUNT runs, each PITCH bytes
 * behind the one before. The body has the bytes of all runs in this order. One
 * file is open at a time. */
struct ofs_server_segments;

/* Files below rel; all: also those that not everybody may read. EINVAL: it is no
 * list; E2BIG: more than OFS_HTTP_LIST_BYTES or OFS_HTTP_LIST_RUNS; ESTALE: a file
 * does not have its tag; EACCES (OFS022): one is not for everybody; ENOENT
 * (OFS019). */
struct ofs_server_segments *ofs_server_segments_new(const struct
    ofs_server_files *files,
    const char *rel, const char *list, bool all, struct optimfs_error *err);
void ofs_server_segments_free(struct ofs_server_segments *l);
/* Bytes of the body. */
uint64_t ofs_server_segments_size(const struct ofs_server_segments *l);
/* Reads n bytes of the body, which are in it, from off on. */
int ofs_server_segments_read(struct ofs_server_segments *l, void *buf, size_t n,
    uint64_t off, struct optimfs_error *err);

#endif
