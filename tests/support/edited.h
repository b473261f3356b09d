/* edited.h - changes made by hand, and whether a checkpoint has them and no
 * others */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EDITED_H
#define EDITED_H

#include <stdbool.h>
#include <stdint.h>

#include "fs/fs.h"
#include "overlay/overlay.h"

/* A copy of a checkpoint of tests/data, open, and changes to it. */
struct edited {
	char dir[128];  /* of its own; the checkpoint and its stage are in it */
	char path[256]; /* of the checkpoint */
	struct optimfs_options options;
	struct optimfs *fs;
	struct optimfs *was; /* that of tests/data */
	struct ofs_changes changes;
	size_t cap;
	/* What each path has to say afterwards: NULL: nothing is there. */
	struct edited_want {
		char *path;
		uint8_t *bytes;
		size_t len;
	} * want;
	size_t nwant, want_cap;
};

/* name is relative to tests/data. */
void edited_init(struct edited *e, const char *name,
    const struct optimfs_options *options);
void edited_fini(struct edited *e);

/* A text says something else; after is what the file says then (NULL: text). */
void edited_text(struct edited *e, const char *path, const char *text,
    const char *after);
/* Every byte of a tensor from off to end (0: its end) is another one. */
void edited_bytes(struct edited *e, const char *path, uint64_t off,
    uint64_t end);
/* Nothing is written to path, which is what from is to be, rounded. */
void edited_follows(struct edited *e, const char *path, const char *from);
void edited_remove(struct edited *e, const char *path);
void edited_rename(struct edited *e, const char *from, const char *to);
/* A new text, and a new tensor of bytes that count up. */
void edited_add_text(struct edited *e, const char *path, const char *text,
    const char *after);
void edited_add(struct edited *e, const char *path, enum ofs_dtype dtype,
    const uint64_t *shape, unsigned ndim);

/* Commit; 0, 1 or -1. */
int edited_commit(struct edited *e, struct optimfs_error *err);
/* Open the checkpoint anew: does it say what is wanted, and of all else what it
 * did? Says what differs with diag, and returns how much. old: nothing was
 * changed. */
unsigned edited_differs(struct edited *e, bool old);
/* What fsck --data finds there, less what it found before. */
int edited_fsck(struct edited *e);

#endif
