/* fs.h - what the parts of an opened checkpoint share */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FS_H
#define OFS_FS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "base/blob.h"
#include "base/buf.h"
#include "catalog/catalog.h"
#include "catalog/owners.h"
#include "fs/enter.h"
#include "fs/failures.h"
#include "fs/lines.h"
#include "naming/file_name.h"
#include "overlay/overlay.h"
#include "plan/composition.h"
#include "plan/plan.h"
#include "read/fetch.h"
#include "read/locate.h"
#include "read/reader.h"
#include "tree/tree.h"

struct ofs_snapshot;

/* A node number is space << 32 | (index + 1). Space 0 is the tree itself,
 * where indexes from tree.n on are the static nodes of .optimfs. Every other
 * space below OFS_SPACE_VIEW is a mirror: the same indexes once more, shown as
 * something else, so that a mirror costs no memory until it is looked at. */

struct ofs_at {
	uint32_t space, index;
};

/* The static nodes: .optimfs and what is in it, in the order they are listed.
 * Those that are roots of mirrors only give them a name. */
enum ofs_static {
	OFS_STATIC_TOP,
	OFS_STATIC_README,
	OFS_STATIC_CONTROL,
	OFS_STATIC_ERRORS,
	OFS_STATIC_GLOBALS,
	OFS_STATIC_INFO,
	OFS_STATIC_LAYOUT,
	OFS_STATIC_MISSING,
	OFS_STATIC_NPY,
	OFS_STATIC_NPY32,
	OFS_STATIC_RANK,
	OFS_STATIC_STAT,
	OFS_STATIC_STATS,
	OFS_STATIC_TENSORS,
	OFS_STATIC_VIEW,
	OFS_STATIC_WARNINGS,
	OFS_NSTATIC
};

/* A generated file. One of text and lines is set; neither: a directory. */
struct ofs_static_node {
	const char *name;
	uint32_t space; /* it is the root of this mirror; 0: it is not */
	bool live;      /* says something else each time */
	void (*text)(struct ofs_snapshot *snap, struct ofs_buf *out);
	const struct ofs_lines_ops *lines;
};
extern const struct ofs_static_node ofs_static_nodes[OFS_NSTATIC];

#define OFS_SPACE_TREE   0u
#define OFS_SPACE_LAYOUT 1u
#define OFS_SPACE_NPY    2u
#define OFS_SPACE_STAT   3u
#define OFS_SPACE_NPY32  4u
#define OFS_SPACE_RANK   5u /* and on: one a rank */
/* And on: one a view (view.h), which has nodes of its own. */
#define OFS_SPACE_VIEW 0x80000000u
#define OFS_VIEW_NAME  128

struct ofs_coordinator;
struct ofs_edition;
struct ofs_stage;

/* What a writer does in one of two ways: what is written is staged over a
 * checkpoint (write_commit.c), or goes to its places in a template
 * (push/writethrough.c). */
struct ofs_write_ops {
	/* snap->overlay was made, and nothing is replayed yet. */
	int (*begin)(struct ofs_snapshot *snap, struct optimfs_error *err);
	/* As optimfs_commit, with writers held. */
	int (*commit)(struct optimfs *fs, bool (*stop)(void *ctx), void *ctx,
	    struct optimfs_error *err);
	/* What views are made of: one reference (view.h). EBUSY during a
	 * commit. */
	struct ofs_edition *(*edition)(struct ofs_snapshot *snap,
	    struct optimfs_error *err);
	/* What .optimfs/missing says, where only what was written can be
	 * read. */
	void (*missing)(struct ofs_snapshot *snap, struct ofs_buf *out);
};
extern const struct ofs_write_ops ofs_write_staged;

struct ofs_space {
	const struct ofs_space_ops *ops;
	uint64_t ino; /* of its root */
	int rank;
	/* Made when first asked for: bits of the tree nodes that exist here,
	 * and the children of each directory in the order of their names. */
	_Atomic(uint64_t *) present;
	_Atomic(uint32_t *) order;
};

struct ofs_space_ops {
	const char *suffix; /* of the names of files */
	/* Is there a file here for this entry? NULL: for each. */
	bool (*holds)(const struct ofs_snapshot *snap,
	    const struct ofs_space *s, const struct ofs_entry *e);
	/* Size of a file, and whether it is exact. */
	int (*size)(struct ofs_snapshot *snap, const struct ofs_space *s,
	    uint32_t index, struct optimfs_attr *attr,
	    struct optimfs_error *err);
	/* Give the opened file its contents. */
	int (*open)(struct ofs_snapshot *snap, const struct ofs_space *s,
	    uint32_t index, struct optimfs_file *file,
	    struct optimfs_error *err);
	bool attributes; /* dtype and shape are those of the tree's file */
};
extern const struct ofs_space_ops ofs_space_tree, ofs_space_layout,
    ofs_space_npy, ofs_space_npy32, ofs_space_rank, ofs_space_stat;

/* Texts that cost a read or a parse, kept while the budget allows. One slot
 * an entry's hash: what comes later replaces what was there. */
struct ofs_texts {
	pthread_mutex_t lock;
	struct ofs_text_slot {
		struct ofs_blob *blob;
		uint32_t entry;
	} * slot;
	size_t nslots; /* a power of 2 */
	uint64_t bytes, budget;
	_Atomic uint64_t hits, misses;
	/* Size of each entry's text plus one, 0 while it is not known. */
	_Atomic uint64_t *sizes;
};

#define OFS_MAX_INDEXES 4

/* What a checkpoint shows from one commit to the next: what was read from it,
 * what was made of that, and what was changed since. */
struct ofs_snapshot {
	struct optimfs *fs; /* that it is of */
	_Atomic unsigned refs;
	uint64_t serial; /* how many commits were before it */
	struct ofs_catalog *cat;
	struct ofs_tree tree;
	struct ofs_reader reader;    /* of cat */
	struct ofs_overlay *overlay; /* overlay/overlay.h; NULL: read-only */
	const struct ofs_write_ops *write;
	uint32_t generation; /* of node numbers */

	/* Files that only say what the others hold. */
	uint32_t index[OFS_MAX_INDEXES], nindexes;
	uint32_t mode_file, mode_dir;
	int64_t mtime_ns; /* of the newest object */

	struct ofs_space *space;
	uint32_t nspaces;
	struct ofs_views *views;
	uint64_t static_ino[OFS_NSTATIC];
	struct ofs_texts texts;
	struct ofs_lines lines[OFS_NSTATIC];
};

/* A checkpoint as somebody has opened it. */
struct optimfs {
	struct ofs_snapshot *now;
	bool changes;                        /* it may be written */
	struct ofs_coordinator *coordinator; /* NULL: all is in one directory */
	atomic_bool explicit_commit;
	/* By the last commit or abort, under lock. */
	struct optimfs_error said;
	bool unsynced; /* it was published all the same */
	struct ofs_entrance entrance;

	char *source; /* as it was given */
	char *real;   /* the same from the root; NULL: it is not here */
	struct optimfs_options options;
	char *names[8];       /* the strings of options */
	pthread_mutex_t lock; /* making present, mount_info, stats */

	struct ofs_failures failures;
	_Atomic uint64_t opens, reads, read_bytes;

	char *mount_info;
	char *(*stats)(void *ctx);
	void *stats_ctx;
	struct optimfs_watch watch;
};

/* An open file: bytes in memory, generated lines, or a composition. */
/* read_ahead.c: how a file is read. */
struct ofs_read_ahead {
	pthread_mutex_t lock;
	uint64_t next, len; /* the end of the last read, and its length */
	uint64_t asked;  /* where what was asked for ahead ends; 0: nothing */
	unsigned streak; /* reads that went on where one ended */
	struct ofs_plan plan;
};

struct optimfs_file {
	struct optimfs *fs;
	/* Where fs changes: of what follows, but for spare. A commit leaves the
	 * file behind; who reads it next moves it to what is current then. */
	pthread_rwlock_t lock;
	struct ofs_snapshot *snap; /* one reference */
	struct ofs_at at;
	uint64_t size;
	struct ofs_blob *blob;
	struct ofs_lines *lines;
	struct ofs_composition comp;
	struct ofs_view_file *view; /* instead */
	/* Of one that a writer made, or that is open for writing: what was
	 * staged, how long it may become, what failed. */
	struct ofs_overlay_file *staged;
	struct ofs_overlay_npy *npy;
	bool writes, control;
	bool lost; /* a commit has taken it away */
	uint64_t limit;
	struct optimfs_error failed;
	/* Plans that are not in use: a read takes one, so that in steady state
	 * nothing is allocated and no reader waits for another. */
	_Atomic(struct ofs_plan *) spare[4];
	struct ofs_read_ahead ahead;
};

/* fs.c */
/* A file system, to be read, that shows a catalog, which is its own then, on
 * failure too. */
struct optimfs *ofs_fs_new(struct ofs_catalog *cat, const char *source,
    const struct optimfs_options *options, struct optimfs_error *err);

/* The same, to be written: stage was taken before it was read, and is fs's then,
 * on failure too. */
struct optimfs *ofs_fs_new_staged(struct ofs_catalog *cat, const char *source,
    const struct optimfs_options *options, struct ofs_stage *stage,
    const struct ofs_write_ops *write, struct optimfs_error *err);

/* What is at path, to be read, on one rank. */
struct optimfs *ofs_fs_open(const char *path,
    const struct optimfs_options *options, struct optimfs_error *err);

/* reopen.c: after a commit, with writers held: fs shows what is on the disk
 * now. On failure all is as it was. */
int ofs_fs_reopen(struct optimfs *fs, struct optimfs_error *err);
/* snapshot.c */
/* What cat holds, which is the snapshot's then, on failure too. */
struct ofs_snapshot *ofs_snapshot_new(struct optimfs *fs,
    struct ofs_catalog *cat, struct optimfs_error *err);
struct ofs_snapshot *ofs_snapshot_ref(struct ofs_snapshot *snap);
/* NULL is allowed. */
void ofs_snapshot_unref(struct ofs_snapshot *snap);
/* What its overlay lies over. */
struct ofs_overlay_base ofs_snapshot_base(struct ofs_snapshot *snap);

/* Is what the note misses lost, rather than absent by intent (ENODATA)? */
bool ofs_note_is_loss(const struct ofs_note *n);

/* node.c */
/* As optimfs_lookup and optimfs_resolve, from inside. */
int ofs_lookup(struct ofs_snapshot *snap, uint64_t dir, const char *name,
    struct ofs_at *child, struct optimfs_error *err);
int ofs_resolve(struct ofs_snapshot *snap, const char *path, struct ofs_at *at,
    struct optimfs_error *err);
/* Where a node number points; ENOENT (ESTALE to the kernel's mind) when it is
 * none of fs. */
int ofs_node_at(const struct ofs_snapshot *snap, uint64_t node,
    struct ofs_at *at, struct optimfs_error *err);
/* Bits that no space uses say which generation a node number is of, so that
 * one from before a commit that moved names is not taken for another. */
#define OFS_GENERATIONS 2048u
#define OFS_GENERATION  52
static inline uint64_t ofs_node_of(uint32_t space, uint32_t index)
{
	return (uint64_t)space << 32 | (index + 1);
}
static inline bool ofs_at_static(const struct ofs_snapshot *snap,
    struct ofs_at at)
{
	return at.space == OFS_SPACE_TREE &&
	    at.index - snap->tree.n < OFS_NSTATIC;
}
/* A file or directory that a writer made (overlay/overlay.h): in the tree or a mirror, its
 * index comes after those of the static nodes. */
static inline bool ofs_at_made(const struct ofs_snapshot *snap,
    struct ofs_at at)
{
	return at.space < OFS_SPACE_VIEW &&
	    at.index >= snap->tree.n + OFS_NSTATIC;
}
/* The entry of a node of the tree or a mirror; NULL for directories and static
 * nodes. */
const struct ofs_entry *ofs_at_entry(const struct ofs_snapshot *snap,
    struct ofs_at at);
/* Path below the mount point, mirrors and .optimfs included, into path. */
void ofs_at_path(const struct ofs_snapshot *snap, struct ofs_at at, char *path,
    size_t size);
bool ofs_at_is_dir(const struct ofs_snapshot *snap, struct ofs_at at);
/* A static node's place: the root of a mirror where it is one. */
struct ofs_at ofs_at_of_static(const struct ofs_snapshot *snap, uint32_t i);
/* The node after index in depth-first order, OFS_NONE at the end; 0 is first. */
uint32_t ofs_tree_after(const struct ofs_tree *tree, uint32_t index);

/* attr.c */
uint64_t ofs_at_ino(const struct ofs_snapshot *snap, struct ofs_at at);
int ofs_at_attr(struct ofs_snapshot *snap, struct ofs_at at,
    struct optimfs_attr *attr, struct optimfs_error *err);

/* space.c */
/* The name in .optimfs of a mirror that is no rank's. */
const char *ofs_mirror_root(uint32_t space);
/* Make the table of mirrors. */
int ofs_spaces_init(struct ofs_snapshot *snap, struct optimfs_error *err);
void ofs_spaces_fini(struct ofs_snapshot *snap);
/* Does the mirror have this node? -1: ENOMEM. */
int ofs_space_has(struct ofs_snapshot *snap, struct ofs_space *s,
    uint32_t index, struct optimfs_error *err);

/* mirror_name.c */
/* What a node is called in a mirror; name is room for it. */
const char *ofs_mirror_name(const struct ofs_snapshot *snap,
    const struct ofs_space *s, uint32_t index, char name[OFS_NAME_MAX + 1]);
/* The node of the tree that name stands for in dir; OFS_NONE. A directory comes
 * first where it could be a file too. */
uint32_t ofs_mirror_find(const struct ofs_snapshot *snap,
    const struct ofs_space *s, uint32_t dir, const char *name);
/* The child that is listed in index's place. */
int ofs_mirror_child(struct ofs_snapshot *snap, struct ofs_space *s,
    uint32_t index, uint32_t *child, struct optimfs_error *err);

/* value.c */
/* The bytes of a file that is text: a value, an item, a tensor without
 * dimensions. The caller gets a reference. */
struct ofs_blob *ofs_entry_text(struct ofs_snapshot *snap, uint32_t index,
    struct optimfs_error *err);
/* What the checkpoint says, whatever was edited. */
struct ofs_blob *ofs_entry_text_base(struct ofs_snapshot *snap, uint32_t index,
    struct optimfs_error *err);
/* The bytes that a value makes in the place of a node. */
int ofs_value_text(struct ofs_snapshot *snap, uint32_t index,
    const struct ofs_pickle *doc, uint32_t node, struct ofs_buf *out,
    struct optimfs_error *err);
/* What .optimfs/rank/<rank> has instead: that rank's own copy of a scalar, or
 * what it has where the ranks differ (v, or NULL). */
struct ofs_blob *ofs_rank_text(struct ofs_snapshot *snap, uint32_t index,
    int rank, const struct ofs_variant *v, struct optimfs_error *err);
/* Size of such a file without reading data. */
int ofs_entry_text_size(struct ofs_snapshot *snap, uint32_t index,
    uint64_t *size, bool *exact, struct optimfs_error *err);
int ofs_texts_init(struct ofs_snapshot *snap, struct optimfs_error *err);
void ofs_texts_fini(struct ofs_snapshot *snap);
/* value_new.c */
/* Does text[0..n) fit in the place of a node that is a text? canon, which may be
 * NULL, gets it as it will be shown; element, which may be NULL, that of a
 * tensor. */
int ofs_text_fits(struct ofs_snapshot *snap, uint32_t node, const char *text,
    size_t n, struct ofs_buf *canon, uint8_t element[16],
    struct optimfs_error *err);

/* file_read.c */
/* As optimfs_file_read, from inside. */
ssize_t ofs_file_read(struct optimfs_file *file, void *buf, size_t len,
    uint64_t off, struct optimfs_error *err);
/* Nobody reads the file any more. */
void ofs_file_drop_plans(struct optimfs_file *file);
/* read_ahead.c: it is about to be read there. */
void ofs_file_ahead(struct optimfs_file *file, uint64_t off, uint64_t len);
void ofs_file_ahead_init(struct optimfs_file *file);
void ofs_file_ahead_fini(struct optimfs_file *file);

/* file.c */
/* As optimfs_file_open and optimfs_file_size, from inside. */
int ofs_file_open(struct ofs_snapshot *snap, struct ofs_at at,
    struct optimfs_file **file, struct optimfs_error *err);
uint64_t ofs_file_size(const struct optimfs_file *file);
/* Before and after something is asked of an open file by way of the public
 * interface: as ofs_enter and ofs_leave_again. */
struct ofs_snapshot *ofs_file_enter(struct optimfs_file *file);
bool ofs_file_leave(struct optimfs_file *file, struct ofs_snapshot *now,
    bool failed);
/* Put where it happened before the words, and the failure on record; -1. len
 * 0: all of the file. */
int ofs_file_failed(struct ofs_snapshot *snap, struct ofs_at at, uint64_t off,
    uint64_t len, struct optimfs_error *err);
/* Fails when the entry is known to be damaged. */
int ofs_entry_sound(const struct ofs_snapshot *snap, const struct ofs_entry *e,
    struct optimfs_error *err);

/* write_commit.c */
/* Why the last commit or abort failed, as a line; nothing where it did not. */
void ofs_control_said(struct optimfs *fs, struct ofs_buf *out);

/* stale.c */
/* Find the files that no entry lies in: the first few of them. */
int ofs_indexes_init(struct ofs_snapshot *snap, struct optimfs_error *err);
/* ESTALE when one of them is not what was read any more. */
int ofs_indexes_same(const struct ofs_snapshot *snap,
    struct optimfs_error *err);

/* layout.c */
/* The JSON of .optimfs/layout for one entry. */
void ofs_layout_json(struct ofs_snapshot *snap, uint32_t index,
    struct ofs_buf *out);

#endif
