/* disk.h - a cache of blocks on a disk, which outlives the process */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_HTTP_DISK_H
#define OFS_STORE_HTTP_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "store/http/answer.h"

/* A block is a file in a directory of the user's, whose name is a hash of its
 * key: the address, the entity tag and the size of the file that it is from, its
 * number, and the runs of which it is. It has the key and a checksum, so a file
 * that is damaged, or was being written when a process was killed, counts as none.
 * Processes share the directory without locks. The cache is never needed: all
 * failures are those of an empty one. Thread-safe, also in threads that may not
 * rename files or make directories. */
struct ofs_http_disk;

/* What cache_disk= is if it is not given, and the least it can be. */
#define OFS_HTTP_DISK_MOST  (UINT64_C(10) << 30)
#define OFS_HTTP_DISK_LEAST (UINT64_C(16) << 20)

/* The cache of this process in the directory path, which is made if its parent
 * exists, for most bytes of files. The first call decides; path NULL: what it
 * decided, or NULL. Never freed. NULL with err->code 0: there is none, or its
 * disk is full. Others (OFS928): the directory cannot be used. */
struct ofs_http_disk *ofs_http_disk(const char *path, uint64_t most,
    struct optimfs_error *err);

/* A block of one state of a file. A file without a tag, and one whose address
 * could hold a secret, has none. */
struct ofs_http_disk_key {
	const char *url;
	const struct ofs_http_version *is;
	bool
	    pinned; /* the address says which state it is: a tag is not needed */
	/* Of the bytes of these runs of the file, as a list has them
	 * (OFS_HTTP_LIST); NULL: of all its bytes. */
	const char *runs;
	uint64_t number;
};
/* Copies a block of n bytes to out. false: it is not there. */
bool ofs_http_disk_get(struct ofs_http_disk *d,
    const struct ofs_http_disk_key *key, void *out, size_t n);
void ofs_http_disk_put(struct ofs_http_disk *d,
    const struct ofs_http_disk_key *key, const void *p, size_t n);

/* Of a file whose tag only an answer tells, there may be blocks: then it is worth
 * a request to ask for the tag. */
bool ofs_http_disk_knows(struct ofs_http_disk *d, const char *url);
void ofs_http_disk_note(struct ofs_http_disk *d, const char *url);

#endif
