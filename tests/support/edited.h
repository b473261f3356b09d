/* edited.h - edits of a checkpoint, and a check that it has exactly them */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EDITED_H
#define EDITED_H

#include <stdbool.h>
#include <stdint.h>

#include "fs/fs.h"
#include "overlay/overlay.h"

/* An open copy of a checkpoint of tests/data, and changes to it. */
struct edited {
	char dir[128];  /* contains the checkpoint and its stage */
	char path[256]; /* of the checkpoint */
	struct optimfs_options options;
	struct optimfs *fs;
	struct optimfs *was; /* that of tests/data */
	struct ofs_changes changes;
	size_t cap;
	/* The expected contents of each changed path. NULL: no file. */
	struct edited_want {
		char *path;
		uint8_t *bytes;
		size_t len;
	} * want;
	size_t nwant, want_cap;
};

/* Opens a copy of the checkpoint name, which is relative to tests/data. Strings
 * of options and of the calls below are borrowed until edited_fini. Here and
 * below, a failure of the test's own files ends the test. */
void edited_init(struct edited *e, const char *name,
    const struct optimfs_options *options);
void edited_fini(struct edited *e);

/* Writes text to a file; after is what the file then contains (NULL: text). */
void edited_text(struct edited *e, const char *path, const char *text,
    const char *after);
/* Changes every byte of a tensor from off to end (0: to its end). */
void edited_bytes(struct edited *e, const char *path, uint64_t off,
    uint64_t end);
/* Expects path, which is not written, to have the new values of the float32
 * tensor from, rounded to its dtype. */
void edited_follows(struct edited *e, const char *path, const char *from);
void edited_remove(struct edited *e, const char *path);
void edited_rename(struct edited *e, const char *from, const char *to);
/* Makes a new text, or a new tensor whose bytes count up. */
void edited_add_text(struct edited *e, const char *path, const char *text,
    const char *after);
void edited_add(struct edited *e, const char *path, enum ofs_dtype dtype,
    const uint64_t *shape, unsigned ndim);

/* Commits the changes; as ofs_fs_commit_changes. */
int edited_commit(struct edited *e, struct optimfs_error *err);
/* Opens the checkpoint again and checks that the changed paths are as expected
 * and all others are as before (old: all of them). Prints differences with diag
 * and returns their number. */
unsigned edited_differs(struct edited *e, bool old);
/* The number of problems that fsck --data finds, minus those it found before. */
int edited_fsck(struct edited *e);
/* Tests that the commit succeeds, and that the three above are as they should. */
void edited_commits(struct edited *e, const char *name);
/* Tests that a commit of these changes leaves the old or the new checkpoint when
 * one of its calls of base/sys.h fails: the first, and each step-th after it. */
void edited_faults(const char *name, int step,
    void (*change)(struct edited *e));

#endif
