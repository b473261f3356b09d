/* known.h - what an earlier call found out about the elements of a checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ANALYZE_KNOWN_H
#define OFS_ANALYZE_KNOWN_H

#include "analyze/tensors.h"
#include "base/buf.h"
#include "base/cursor.h"

/* Statistics of tensors, and the result of a check, cost a read of all data.
 * They are kept in a file of the user's cache (base/user_cache.h), whose name is
 * the identity of the checkpoint (struct ofs_identity), so that the next call
 * reads none. In the file each result has a key, which is a hash of what was
 * read: path, type, shape and places in files. A checkpoint is asked once, when
 * something is first looked up, and the file is written when it is closed.
 *
 * Nothing is kept of what can be written, has several ranks, or is on a server,
 * whose files have no reliable identity; and of files that changed just now,
 * because a second change within the resolution of their times would not be
 * seen. */

/* 1: there is a result, *c is on it, and *key is its key; 0: there is none, and it
 * may be given to ofs_known_put with *key; *key 0: it may not. -1: ENOMEM.
 * Any thread may call. The bytes stay valid while fs is open. */
int ofs_known_find(struct optimfs *fs, const struct ofs_file_info *f,
    uint64_t *key, struct ofs_cursor *c, struct optimfs_error *err);
/* The same for what is found out about the whole tree by one who is called
 * name. */
int ofs_known_find_all(struct optimfs *fs, const char *name, uint64_t *key,
    struct ofs_cursor *c, struct optimfs_error *err);
/* Are both tensors the same bytes of the same files, as of hard links or of one
 * checkpoint, so that they are equal without being read? */
bool ofs_known_same(struct optimfs *a, uint64_t x, struct optimfs *b,
    uint64_t y);
/* Keeps a result, if memory allows. */
void ofs_known_put(struct optimfs *fs, uint64_t key, const struct ofs_buf *b);

#endif
