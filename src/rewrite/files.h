/* files.h - the new files of a commit, as compositions */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_REWRITE_FILES_H
#define OFS_REWRITE_FILES_H

#include "optimfs/error.h"

#include "archive/zip_fix.h"
#include "plan/composition.h"

struct ofs_commit;

/* A new file. Its composition is filled before ofs_commit_write. */
struct ofs_commit_file;

/* Adds the new file rel, which inherits from like (journal/publish.h), and
 * returns its composition; NULL: failed. */
struct ofs_composition *ofs_commit_file(struct ofs_commit *c, const char *rel,
    const char *like, struct optimfs_error *err);
/* Adds a file with all bytes of an object and what is staged over them. rel NULL:
 * it replaces the object; checksums of archives in it are computed again. */
int ofs_commit_whole(struct ofs_commit *c, uint32_t object, const char *rel,
    struct optimfs_error *err);
/* Appends n bytes at off of an object, with new checksums at these places, which
 * are offsets in the object, and inside the bytes. They are sorted. */
int ofs_commit_stored(struct ofs_composition *comp, uint32_t object,
    uint64_t off, uint64_t n, struct ofs_zip_sums *sums,
    struct optimfs_error *err);
/* Writes all files that were added. */
int ofs_commit_write(struct ofs_commit *c, struct optimfs_error *err);
void ofs_commit_files_fini(struct ofs_commit *c);

#endif
