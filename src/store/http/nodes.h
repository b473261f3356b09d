/* nodes.h - several servers that have a checkpoint together */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_HTTP_NODES_H
#define OFS_STORE_HTTP_NODES_H

#include <stdbool.h>

#include "base/io.h"
#include "store/http/site.h"

/* Each node of a cluster has the files of its ranks, and serves them. All together
 * are one directory: a site of several servers. An address of several is a pattern
 * with braces, as shells expand it: "http://n{1..4}:7700/ck",
 * "{http://a:80,http://b:80}/ck".
 *
 * A name that two servers list is one file if they say the same of it, or if its
 * bytes are the same as far as they are compared; then any of them is asked. If
 * not, these are not parts of one checkpoint. */
#define OFS_NODES_MOST 8192

/* Is it a pattern for addresses of web servers? */
bool ofs_nodes_are(const char *address);
/* The addresses that it stands for, for ofs_names_free. EINVAL (OFS920): more than
 * OFS_NODES_MOST, or one of them is none of a web server. */
int ofs_nodes_expand(const char *address, struct ofs_names *names,
    struct optimfs_error *err);

/* For site.c; the lock is held. */
/* What a server that lists the file says of it; NULL: it does not list it. */
struct ofs_http_version *ofs_nodes_state(const struct ofs_http_site *s,
    uint32_t file, uint32_t host);
/* Another server lists a file, which is known already. */
int ofs_nodes_add_copy(struct ofs_http_site *s, uint32_t file,
    const struct ofs_http_version *is, struct optimfs_error *err);
/* Compares the copies of files in a directory, which was listed. EINVAL (OFS927):
 * two are not the same. */
int ofs_nodes_compare(struct ofs_http_site *s, uint32_t dir,
    struct optimfs_error *err);
/* What is asked for a file, after so many tries at other servers: the address,
 * malloc'ed, the number of its server, and its state there. *once: is there somebody
 * else to ask, or has the server just failed? */
char *ofs_nodes_address(struct ofs_http_site *s, uint32_t file, uint32_t tries,
    uint32_t *host, struct ofs_http_version *is, bool *once,
    struct optimfs_error *err);
/* How that went, after so many tries before it; true: ask again, somebody else. */
bool ofs_nodes_asked(struct ofs_http_site *s, uint32_t file, uint32_t host,
    const struct optimfs_error *err, uint32_t tries);

#endif
