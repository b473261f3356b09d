/* fsck.h - a check under way */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FSCK_H
#define OFS_FSCK_H

#include "fs.h"

struct ofs_check {
	struct optimfs *fs;
	optimfs_report_fn *report;
	void *ctx;
	uint64_t problems;
	bool *verified; /* objects whose archive has been gone through */
	uint8_t *buf;   /* OFS_CHECK_CHUNK bytes */
	char path[4096];
};
#define OFS_CHECK_CHUNK (1u << 20)

void ofs_check_found(struct ofs_check *c, bool error, const char *path,
    int code, const char *text);

/* Can an extent not be read for want of its file, or of the file's end? Then
 * why, which may be NULL, says so. */
bool ofs_check_lost(const struct optimfs *fs, const struct ofs_extent *at,
    struct optimfs_error *why);

/* fsck_data.c: every stored byte of the entry at node index, reported under
 * c->path. -1 only when there is no memory. */
int ofs_check_data(struct ofs_check *c, uint32_t index,
    struct optimfs_error *err);

#endif
