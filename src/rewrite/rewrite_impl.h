/* rewrite_impl.h - declarations shared by the parts of a commit */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_REWRITE_REWRITE_IMPL_H
#define OFS_REWRITE_REWRITE_IMPL_H

#include "base/ranges.h"
#include "pickle/pickle.h"
#include "read/patch.h"
#include "rewrite/commit.h"
#include "rewrite/files.h"

/* A component of a path in the source. */
struct ofs_key {
	struct ofs_str s;
	uint32_t index; /* OFS_PATH_FLAGS of an item of a list or tuple */
};

/* A change of a leaf of the source: an item of a dict or list, or a key of an
 * index. Bytes written to tensors in place need no task. */
struct ofs_commit_task {
	enum { OFS_TASK_SET, OFS_TASK_ADD, OFS_TASK_DROP } op;
	const struct ofs_change *change;
	const struct ofs_entry *entry; /* SET, DROP */
	const struct ofs_entry *from;  /* ADD: present source of its bytes */
	const struct ofs_entry
	    *like; /* ADD: an entry of the same kind, or NULL */
	/* ADD: the entry from whose path this one was derived, or from; NULL */
	const struct ofs_entry *named_after;
	struct ofs_key *path;
	uint32_t npath;
	struct ofs_pickle *doc; /* for a value; NULL: a tensor */
	uint8_t dtype, ndim;
	const uint64_t *shape;
	uint8_t element[16]; /* of a 0-dim tensor */
	bool text;           /* set from text */
	bool done;           /* it has a place in a new file */
};

/* Stored bytes that move. With a codec, off and len are the extent, and offsets
 * in the decoded bytes start at to. */
struct ofs_moved {
	uint32_t object;
	uint8_t codec, encoding;
	uint64_t off, len;
	int fd; /* -1: no place yet */
	uint64_t to;
	bool whole; /* its place is in a copy of the whole file */
};

/* An archive whose bytes may have changed. */
struct ofs_archive_fix {
	int fd;
	uint64_t off, len;
	bool sums; /* write checksums even where there were none */
};

struct ofs_touched {
	int fd;
	struct ofs_ranges ranges;
};

struct ofs_commit {
	const struct ofs_commit_job *job; /* NULL: nothing will be written */
	struct ofs_reader *reader;
	const struct ofs_catalog *cat; /* of the reader */
	const struct ofs_changes *changes;
	struct ofs_publish *publish;
	struct ofs_arena arena;
	bool lenient; /* skip changes that the format cannot hold */

	struct ofs_commit_task *task;
	size_t ntasks;
	uint32_t *drop; /* for each entry the task that drops it, or OFS_NONE */
	struct ofs_patches
	    patches; /* staged bytes of tensors that are stored */
	struct ofs_commit_file **file; /* new files that are not written yet */
	size_t nfiles, file_cap;
	struct ofs_moved *moved; /* sorted by object and offset */
	size_t nmoved, moved_cap;
	struct ofs_archive_fix *fix;
	size_t nfixes, fix_cap;
	struct ofs_touched *touched;
	size_t ntouched, touched_cap;
	uint64_t done,
	    total; /* progress in bytes: copied, or written by users */
};

/* resolve_key.c: makes the tasks: finds the name of each change in the
 * source. */
int ofs_commit_place(struct ofs_commit *c, struct optimfs_error *err);
void ofs_commit_place_fini(struct ofs_commit *c);
/* Does the path of t begin with these n components, and have more? */
bool ofs_commit_below(const struct ofs_commit_task *t,
    const struct ofs_key *prefix, uint32_t n);
/* "PATH: OFS826 why"; -1. */
int ofs_commit_no_place(const struct ofs_commit_task *t, const char *why,
    struct optimfs_error *err);

/* data.c */

/* The tensor whose stored bytes a change replaces; NULL: none. */
const struct ofs_tensor *ofs_commit_tensor(const struct ofs_commit *c,
    const struct ofs_change *ch);
/* Finds the extents with changed bytes and adds them to moved, sorted and
 * without a place. */
int ofs_commit_extents(struct ofs_commit *c, struct optimfs_error *err);
/* The index of the first extent of this object in moved. */
size_t ofs_commit_moved(const struct ofs_commit *c, uint32_t object);
/* Writes the changed bytes to their new places. */
int ofs_commit_scatter(struct ofs_commit *c, struct optimfs_error *err);
/* Reads the new elements of t; ch NULL: the old ones. */
int ofs_commit_read(struct ofs_commit *c, const struct ofs_change *ch,
    const struct ofs_tensor *t, uint64_t first, uint64_t count, void *buf,
    struct optimfs_error *err);
int ofs_commit_fix_sums(struct ofs_commit *c, int fd, uint64_t off,
    uint64_t len, bool sums, struct optimfs_error *err);
/* Writes the checksums of archives. */
int ofs_commit_sums(struct ofs_commit *c, struct optimfs_error *err);
/* Writes all elements of an added tensor to fd, in C order. */
int ofs_commit_elements(struct ofs_commit *c, const struct ofs_commit_task *t,
    int fd, uint64_t off, struct optimfs_error *err);
uint64_t ofs_commit_bytes(const struct ofs_commit_task *t);
/* Opens a file of the checkpoint, or a copy of one that another rank has.
 * ESTALE (OFS805) if it is not the one that was mounted. */
int ofs_commit_open(const struct ofs_commit *c, uint32_t object, int *fd,
    struct optimfs_error *err);
/* Copies n bytes of an extent from byte from on, decoded, to fd at to. */
int ofs_commit_decode(const struct ofs_commit *c, const struct ofs_extent *at,
    uint64_t from, uint64_t n, int fd, uint64_t to, struct optimfs_error *err);
/* Is it a file of another rank? */
bool ofs_commit_is_elsewhere(const struct ofs_commit *c, uint32_t object);

/* shared.c: do all names of a value agree, and tensors
 * that share stored bytes? EINVAL (OFS828) names two that do not. */
int ofs_commit_names(struct ofs_commit *c, struct optimfs_error *err);
int ofs_commit_shared(struct ofs_commit *c, struct optimfs_error *err);

/* verify.c: checks the new files before they are published. EINVAL (OFS827,
 * OFS828), EUCLEAN (OFS829). */
int ofs_commit_verify(const struct ofs_commit *c, struct optimfs_error *err);

#endif
