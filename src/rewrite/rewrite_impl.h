/* rewrite_impl.h - declarations shared by the parts of a commit */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_REWRITE_REWRITE_IMPL_H
#define OFS_REWRITE_REWRITE_IMPL_H

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

/* An extent with changed bytes. */
struct ofs_changed {
	struct ofs_extent at;
	bool placed; /* a new file has it */
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
	struct ofs_changed *changed; /* sorted by object and offset */
	size_t nchanged, changed_cap;
	/* what is staged over stored bytes of tensors */
	struct ofs_patches patches;
	struct ofs_commit_file **file; /* new files that are not written yet */
	size_t nfiles, file_cap;
	const char **gone; /* names of files to remove */
	size_t ngone, gone_cap;
	bool at_once; /* all changes have to appear together */
	/* Tensors of tasks, for compositions; NULL: none. */
	struct ofs_catalog *added;
	const struct ofs_commit_task **added_task; /* by tensor */
	size_t nadded, added_cap;
	uint32_t *added_of; /* by task: its tensor plus one; 0: none */
	uint64_t done, total; /* bytes of new files */
};

/* resolve_key.c: makes the tasks: finds the name of each change in the
 * source. */
int ofs_commit_place(struct ofs_commit *c, struct optimfs_error *err);
void ofs_commit_place_fini(struct ofs_commit *c);
/* Does the path of t begin with these n components, and have more? */
bool ofs_commit_below(const struct ofs_commit_task *t,
    const struct ofs_key *prefix, uint32_t n);
/* Is all of optim/ removed, but for what matches stays (as in struct ofs_format), and
 * was there any? Then a format may remove what only that needs, though names of the
 * tree are no keys of its files. */
bool ofs_commit_drops_optim(const struct ofs_commit *c,
    const char *const *stays);
/* "PATH: OFS826 why"; -1. */
int ofs_commit_no_place(const struct ofs_commit_task *t, const char *why,
    struct optimfs_error *err);

/* data.c */

/* The tensor whose stored bytes a change replaces; NULL: none. */
const struct ofs_tensor *ofs_commit_tensor(const struct ofs_commit *c,
    const struct ofs_change *ch);
/* Finds the extents with changed bytes, and what is staged over them. */
int ofs_commit_extents(struct ofs_commit *c, struct optimfs_error *err);
/* The index of the first extent of this object in changed. */
size_t ofs_commit_changed(const struct ofs_commit *c, uint32_t object);
/* A new file has all of this extent: marks those in it as placed. */
void ofs_commit_placed(struct ofs_commit *c, const struct ofs_extent *at);
/* Reads the new elements of t; ch NULL: the old ones. */
int ofs_commit_read(struct ofs_commit *c, const struct ofs_change *ch,
    const struct ofs_tensor *t, uint64_t first, uint64_t count, void *buf,
    struct optimfs_error *err);
/* EINVAL (OFS301): elements of an added tensor were not written. */
int ofs_commit_complete(const struct ofs_commit *c,
    const struct ofs_commit_task *t, struct optimfs_error *err);
/* Reads elements of an added tensor, in C order. */
int ofs_commit_elements(const struct ofs_commit *c,
    const struct ofs_commit_task *t, uint64_t first, uint64_t count, void *buf,
    struct optimfs_error *err);
uint64_t ofs_commit_bytes(const struct ofs_commit_task *t);

/* shared.c: do all names of a value agree, and tensors
 * that share stored bytes? EINVAL (OFS828) names two that do not. */
int ofs_commit_names(struct ofs_commit *c, struct optimfs_error *err);
int ofs_commit_shared(struct ofs_commit *c, struct optimfs_error *err);

/* key.c: what new files are made of. */
/* A hash of everything that a commit with an overlay reads. */
int ofs_commit_inputs(const struct ofs_commit *c, uint64_t inputs[2],
    struct optimfs_error *err);
/* What a sealed file without compressed items is made of (journal/publish.h). */
int ofs_commit_key(const struct ofs_commit_file *f, const uint64_t inputs[2],
    char key[OFS_PUBLISH_KEY], struct optimfs_error *err);

/* verify.c: checks the new files before they are published. EINVAL (OFS827,
 * OFS828), EUCLEAN (OFS829). */
int ofs_commit_verify(const struct ofs_commit *c, struct optimfs_error *err);

#endif
