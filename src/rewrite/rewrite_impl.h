/* rewrite_impl.h - what the parts of a commit share */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_REWRITE_REWRITE_IMPL_H
#define OFS_REWRITE_REWRITE_IMPL_H

#include "base/ranges.h"
#include "journal/publish.h"
#include "pickle/pickle.h"
#include "rewrite/commit.h"

/* A component of a path as the source has it. */
struct ofs_key {
	struct ofs_str s;
	bool index; /* of a list */
};

/* A change of what the source calls a leaf: an item of a dict or list, a key
 * of an index. Bytes of tensors that stay where they are are none. */
struct ofs_commit_task {
	enum { OFS_TASK_SET, OFS_TASK_ADD, OFS_TASK_DROP } op;
	const struct ofs_change *change;
	const struct ofs_entry *entry; /* SET, DROP */
	const struct ofs_entry *from;  /* ADD: where its bytes are now */
	const struct ofs_entry *like;  /* ADD: one of its kind, or NULL */
	struct ofs_key *path;
	uint32_t npath;
	struct ofs_pickle *doc; /* of a value; NULL: a tensor */
	uint8_t dtype, ndim;
	const uint64_t *shape;
	uint8_t element[16]; /* of a tensor without dimensions */
	bool text;           /* that comes from text */
	bool done;           /* it has been given a place */
};

/* Stored bytes that will be somewhere else. With a codec off and len name the
 * extent, and offsets into what it decodes to begin at to. */
struct ofs_moved {
	uint32_t object;
	uint8_t codec, encoding;
	uint64_t off, len;
	int fd; /* -1: not yet given a place */
	uint64_t to;
};

/* An archive in which bytes may have changed. */
struct ofs_archive_fix {
	int fd;
	uint64_t off, len;
	bool sums; /* its storages get checksums whatever they had */
};

struct ofs_touched {
	int fd;
	struct ofs_ranges ranges;
};

struct ofs_commit {
	const struct ofs_commit_job *job; /* NULL: nothing is to be written */
	struct ofs_reader *reader;
	const struct ofs_catalog *cat; /* the reader's */
	const struct ofs_changes *changes;
	struct ofs_publish *publish;
	struct ofs_arena arena;
	bool lenient; /* leave out what has no place */

	struct ofs_commit_task *task;
	size_t ntasks;
	uint32_t *drop; /* of each entry: the task that drops it; OFS_NONE */
	struct ofs_moved *moved; /* by object and offset */
	size_t nmoved, moved_cap;
	struct ofs_archive_fix *fix;
	size_t nfixes, fix_cap;
	struct ofs_touched *touched;
	size_t ntouched, touched_cap;
	uint64_t done, total; /* bytes that are copied, or written by a user */
};

/* resolve_key.c: make the tasks: what each change is called in the source. */
int ofs_commit_place(struct ofs_commit *c, struct optimfs_error *err);
void ofs_commit_place_fini(struct ofs_commit *c);
/* "PATH: OFS826 why"; -1. */
int ofs_commit_no_place(const struct ofs_commit_task *t, const char *why,
    struct optimfs_error *err);

/* data.c */

/* The tensor whose stored bytes a change writes; NULL: none. */
const struct ofs_tensor *ofs_commit_tensor(const struct ofs_commit *c,
    const struct ofs_change *ch);
/* Are the elements of t those of another tensor, rounded? They are not stored,
 * and follow it. */
bool ofs_commit_rounded(const struct ofs_catalog *cat,
    const struct ofs_tensor *t);
/* Find the extents that hold changed bytes: entries of moved without a place,
 * sorted. */
int ofs_commit_extents(struct ofs_commit *c, struct optimfs_error *err);
/* The first of moved of this object. */
size_t ofs_commit_moved(const struct ofs_commit *c, uint32_t object);
/* Write what was changed to where it is now. */
int ofs_commit_scatter(struct ofs_commit *c, struct optimfs_error *err);
/* Where a segment of what is stored is in the new files; false: it is not. */
bool ofs_commit_where(struct ofs_commit *c, const struct ofs_segment *seg,
    int *fd, int64_t *delta);
/* Elements of t as they are to be; ch NULL: as they are. */
int ofs_commit_read(struct ofs_commit *c, const struct ofs_change *ch,
    const struct ofs_tensor *t, uint64_t first, uint64_t count, void *buf,
    struct optimfs_error *err);
int ofs_commit_fix_sums(struct ofs_commit *c, int fd, uint64_t off,
    uint64_t len, bool sums, struct optimfs_error *err);
int ofs_commit_touch(struct ofs_commit *c, int fd, uint64_t off, uint64_t end,
    struct optimfs_error *err);
/* Give archives their checksums. */
int ofs_commit_sums(struct ofs_commit *c, struct optimfs_error *err);
/* Elements of a tensor that was added, all of them in C order, to fd. */
int ofs_commit_elements(struct ofs_commit *c, const struct ofs_commit_task *t,
    int fd, uint64_t off, struct optimfs_error *err);
uint64_t ofs_commit_bytes(const struct ofs_commit_task *t);
/* Open a file of the checkpoint, which must be the one that was mounted
 * (ESTALE, OFS805); a copy of one that another rank has. */
int ofs_commit_open(const struct ofs_commit *c, uint32_t object, int *fd,
    struct optimfs_error *err);
/* Its copy under the name rel (NULL: its own), and all of it moved there. */
int ofs_commit_clone(struct ofs_commit *c, uint32_t object, const char *rel,
    struct optimfs_error *err);

/* shared.c: several names of one value say the same, and tensors that
 * have stored bytes in common agree about them, once all is written; EINVAL
 * (OFS828) names two. */
int ofs_commit_names(struct ofs_commit *c, struct optimfs_error *err);
int ofs_commit_shared(struct ofs_commit *c, struct optimfs_error *err);

/* verify.c: what is about to be published is what it should be: EINVAL
 * (OFS827, OFS828), EUCLEAN (OFS829). */
int ofs_commit_verify(const struct ofs_commit *c, struct optimfs_error *err);

#endif
