/* fs.h - an opened checkpoint: snapshots, nodes and open files */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FS_FS_H
#define OFS_FS_FS_H

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
#include "family/rules.h"
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

/* A node number is space << 32 | (index + 1). Space 0 is the tree; its indexes
 * from tree.n on are the static nodes of .optimfs. The other spaces below
 * OFS_SPACE_VIEW are mirrors: the same indexes, with other contents. A mirror
 * takes no memory until it is used. */

struct ofs_at {
	uint32_t space, index;
};

/* The static nodes, .optimfs and its children, in the order of listing. Some
 * are the roots of mirrors. */
enum ofs_static {
	OFS_STATIC_TOP,
	OFS_STATIC_README,
	OFS_STATIC_CONTROL,
	OFS_STATIC_ERRORS,
	OFS_STATIC_F32,
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

/* A generated file has either text or lines; a directory has neither. */
struct ofs_static_node {
	const char *name;
	uint32_t space; /* root of this mirror; 0: of none */
	bool live;      /* contents change between reads */
	void (*text)(struct ofs_snapshot *snap, struct ofs_buf *out);
	const struct ofs_lines_ops *lines;
};
extern const struct ofs_static_node ofs_static_nodes[OFS_NSTATIC];
/* The node of this number, as the snapshot shows it. */
const struct ofs_static_node *ofs_static_node(const struct ofs_snapshot *snap,
    uint32_t i);

#define OFS_SPACE_TREE   0u
#define OFS_SPACE_LAYOUT 1u
#define OFS_SPACE_NPY    2u
#define OFS_SPACE_STAT   3u
#define OFS_SPACE_NPY32  4u
#define OFS_SPACE_F32    5u
#define OFS_SPACE_RANK   6u /* from here on, one for each rank */
/* From here on, one space for each view (view.h). Views have their own nodes. */
#define OFS_SPACE_VIEW 0x80000000u
#define OFS_VIEW_NAME  128

struct ofs_coordinator;
struct ofs_run_dir;
struct ofs_stage;

/* How a new checkpoint is made. */
struct ofs_filling_ops {
	/* Its first commit, as optimfs_commit; the caller holds the writers. */
	int (*commit)(struct optimfs *fs, bool (*stop)(void *ctx), void *ctx,
	    struct optimfs_error *err);
	/* All elements of a tensor were written. */
	void (*whole)(struct optimfs *fs, uint32_t tensor);
	/* Frees fs->filling. */
	void (*end)(struct optimfs *fs);
};

/* How a checkpoint that is opened for writing is committed. */
struct ofs_writing_to {
	struct ofs_stage *stage; /* taken before the catalog was read */
	/* A new checkpoint that is made like the one in the catalog. NULL: the
	 * changes of a checkpoint (commit.c). */
	const struct ofs_filling_ops *fill;
	const char *only; /* with fill, as in ofs_overlay_hide */
};

struct ofs_space {
	const struct ofs_space_ops *ops;
	uint64_t ino; /* inode number of its root */
	int rank;
	/* Built on first use: a bit for each tree node that exists here, and
	 * the children of each directory sorted by name. */
	_Atomic(void *) present; /* uint64_t[] */
	_Atomic(void *) order;   /* uint32_t[] */
};

struct ofs_space_ops {
	const char *suffix; /* appended to file names */
	/* Another name for the file of a node; NULL: it keeps its name. The
	 * function NULL: all do. */
	const char *(*rename)(const struct ofs_snapshot *snap, uint32_t index);
	/* Does the mirror have a file for this entry? NULL: for every entry. */
	bool (*holds)(const struct ofs_snapshot *snap,
	    const struct ofs_space *s, const struct ofs_entry *e);
	/* The size of a file, and whether it is exact. */
	int (*size)(struct ofs_snapshot *snap, const struct ofs_space *s,
	    uint32_t index, struct optimfs_attr *attr,
	    struct optimfs_error *err);
	/* Sets the contents of an opened file. */
	int (*open)(struct ofs_snapshot *snap, const struct ofs_space *s,
	    uint32_t index, struct optimfs_file *file,
	    struct optimfs_error *err);
	bool
	    attributes; /* has the dtype and shape attributes of the tree's file */
};
extern const struct ofs_space_ops ofs_space_tree, ofs_space_layout,
    ofs_space_npy, ofs_space_npy32, ofs_space_rank, ofs_space_stat,
    ofs_space_f32;

/* Cache of texts that take a read or a parse. The slot is chosen by the hash of
 * the entry; a new text replaces the old one in its slot. */
struct ofs_texts {
	pthread_mutex_t lock;
	struct ofs_text_slot {
		struct ofs_blob *blob;
		uint32_t entry;
	} * slot;
	size_t nslots; /* a power of 2 */
	uint64_t bytes, budget;
	_Atomic uint64_t hits, misses;
	/* For each entry the size of its text plus one; 0: unknown. */
	_Atomic uint64_t *sizes;
	/* The last 0-dim tensor read, NULL: none, and its element. */
	const struct ofs_tensor *last;
	uint8_t element[16];
};

#define OFS_MAX_INDEXES 4

/* One state of the checkpoint, from one commit to the next: the catalog that
 * was read, the tree built from it, and the changes since then. */
struct ofs_snapshot {
	struct optimfs *fs;
	_Atomic unsigned refs;
	uint64_t serial; /* number of commits before it */
	struct ofs_catalog *cat;
	struct ofs_tree tree;
	struct ofs_reader reader;    /* of cat */
	struct ofs_overlay *overlay; /* overlay/overlay.h; NULL: read-only */
	uint32_t generation;         /* part of every node number */

	/* Index files: they contain no entries. */
	uint32_t index[OFS_MAX_INDEXES], nindexes;
	struct ofs_seen_access {
		pthread_mutex_t lock;
		struct ofs_access now;
		bool changed; /* at some time since it was read */
	} access;
	int64_t mtime_ns; /* modification time of the newest object */

	struct ofs_space *space;
	uint32_t nspaces;
	struct ofs_views *views;
	uint64_t static_ino[OFS_NSTATIC];
	struct ofs_texts texts;
	struct ofs_lines lines[OFS_NSTATIC];
};

/* How the files and directories of what is opened are found: of a checkpoint
 * (this component), or of a run, which shows those of its checkpoints under
 * numbers of its own (run/run.h). As the public functions; what is opened is
 * closed by close, and described by summary, where these are not NULL. */
struct ofs_node_ops {
	int (*getattr)(struct optimfs *fs, uint64_t node,
	    struct optimfs_attr *attr, struct optimfs_error *err);
	int (*lookup)(struct optimfs *fs, uint64_t dir, const char *name,
	    struct optimfs_attr *attr, struct optimfs_error *err);
	int (*resolve)(struct optimfs *fs, const char *path,
	    struct optimfs_attr *attr, struct optimfs_error *err);
	int (*readdir)(struct optimfs *fs, uint64_t dir, uint64_t start,
	    bool want_attr, optimfs_dirent_fn *each, void *ctx,
	    struct optimfs_error *err);
	int (*readlink)(struct optimfs *fs, uint64_t node, char **target,
	    struct optimfs_error *err);
	int (*open)(struct optimfs *fs, uint64_t node,
	    struct optimfs_file **file, struct optimfs_error *err);
	bool (*access_changed)(struct optimfs *fs, uint64_t node);
	int (*getxattr)(struct optimfs *fs, uint64_t node, const char *name,
	    char **value, size_t *len, struct optimfs_error *err);
	int (*listxattr)(struct optimfs *fs, uint64_t node, char **names,
	    size_t *len, struct optimfs_error *err);
	char *(*summary)(struct optimfs *fs, const char *path,
	    enum optimfs_summary_form form, struct optimfs_error *err);
	void (*close)(struct optimfs *fs);
};

/* An opened checkpoint. */
struct optimfs {
	/* Of the caller of optimfs_open; of each open file and each call of a
	 * run that shows it. */
	_Atomic unsigned refs;
	const struct ofs_node_ops *nodes;
	struct ofs_run_dir *run; /* NULL: a checkpoint */
	struct ofs_snapshot *now;
	bool changes;                        /* it may be written */
	struct ofs_coordinator *coordinator; /* NULL: a single directory */
	const struct ofs_filling_ops *fill;  /* of struct ofs_writing_to */
	void *filling;                       /* fill's own; under lock */
	atomic_bool explicit_commit;
	/* Result of the last commit or abort. */
	struct optimfs_error control;
	bool unsynced; /* published, but the final fsync failed */
	struct ofs_entrance entrance;

	char *source; /* as it was given */
	char *real;   /* absolute path; NULL: not on this machine */
	struct optimfs_options options;
	char *names[11];              /* copies of the strings in options */
	struct ofs_families families; /* of names, for views */
	/* protects control, unsynced, mount_info, stats, known, and making the
	 * tables of mirrors */
	pthread_mutex_t lock;

	struct ofs_failures failures;
	_Atomic uint64_t opens, reads, read_bytes;

	/* What a mount says of itself, malloc'ed; fn NULL: nothing. */
	struct ofs_teller {
		char *(*fn)(void *ctx);
		void *ctx;
	} mount_info, stats;
	struct optimfs_watch watch;
	/* What analyze/ keeps for it, until it is closed; p NULL: nothing. */
	struct ofs_known {
		void *p;
		void (*drop)(void *p);
	} known;
};

/* read_ahead.c: the access pattern of an open file. */
struct ofs_read_ahead {
	pthread_mutex_t lock;
	uint64_t next, len; /* the end of the last read, and its length */
	uint64_t asked;     /* end of the range read ahead; 0: none */
	unsigned streak;    /* consecutive sequential reads */
	struct ofs_plan plan;
};

/* An open file: bytes in memory, generated lines, a composition of stored
 * ranges, or a file of a view. */
struct optimfs_file {
	struct optimfs *fs;
	bool holds; /* it has a reference to fs */
	/* If fs can be written: protects the members below, except spare. After
	 * a commit the file still refers to the old snapshot; its next read
	 * moves it to the current one. */
	pthread_rwlock_t lock;
	struct ofs_snapshot *snap; /* a reference */
	struct ofs_at at;
	uint64_t size;
	struct ofs_blob *blob;
	struct ofs_lines *lines;
	struct ofs_composition comp;
	struct ofs_view_file *view; /* used instead of the three above */
	/* For a file that is new or open for writing. */
	struct ofs_overlay_file *staged;
	_Atomic(struct ofs_file_npy *) npy;
	bool writes, control;
	bool lost;                   /* a commit removed it */
	uint64_t limit;              /* of its size */
	struct optimfs_error failed; /* of a write, for close */
	/* Unused plans. A read takes one, so that in steady state nothing is
	 * allocated and readers do not wait for each other. */
	_Atomic(struct ofs_plan *) spare[4];
	struct ofs_read_ahead ahead;
};

/* Each is the public function of its name, for a checkpoint: attr.c, node.c,
 * dir.c, file.c, xattr.c. */
int ofs_node_getattr(struct optimfs *fs, uint64_t node,
    struct optimfs_attr *attr, struct optimfs_error *err);
int ofs_node_lookup(struct optimfs *fs, uint64_t dir, const char *name,
    struct optimfs_attr *attr, struct optimfs_error *err);
int ofs_node_resolve(struct optimfs *fs, const char *path,
    struct optimfs_attr *attr, struct optimfs_error *err);
int ofs_node_readdir(struct optimfs *fs, uint64_t dir, uint64_t start,
    bool want_attr, optimfs_dirent_fn *each, void *ctx,
    struct optimfs_error *err);
int ofs_node_open(struct optimfs *fs, uint64_t node, struct optimfs_file **file,
    struct optimfs_error *err);
bool ofs_node_access_changed(struct optimfs *fs, uint64_t node);
int ofs_node_getxattr(struct optimfs *fs, uint64_t node, const char *name,
    char **value, size_t *len, struct optimfs_error *err);
int ofs_node_listxattr(struct optimfs *fs, uint64_t node, char **names,
    size_t *len, struct optimfs_error *err);

/* nodes.c */
extern const struct ofs_node_ops ofs_nodes_of_checkpoint;
/* EINVAL (OFS681) for a run, by a function that needs one checkpoint. */
int ofs_fs_single(const struct optimfs *fs, struct optimfs_error *err);
/* How many threads of this rank should walk the tree and read files at a time: one
 * for a run, whose steps are opened when they are walked, and for files of servers,
 * of which the transport fetches many ranges at once and keeps some of them. */
unsigned ofs_fs_threads(struct optimfs *fs);

/* fs.c */
/* Another reference to fs, for optimfs_close. */
struct optimfs *ofs_fs_ref(struct optimfs *fs);
/* What the mount says, malloc'ed, or NULL. */
char *ofs_mount_says(struct optimfs *fs, const struct ofs_teller *teller);
/* A read-only file system that shows cat. Takes over cat, on failure too. */
struct optimfs *ofs_fs_new(struct ofs_catalog *cat, const char *source,
    const struct optimfs_options *options, struct optimfs_error *err);

/* As above, writable. Takes over cat and the stage, on failure too. */
struct optimfs *ofs_fs_new_staged(struct ofs_catalog *cat, const char *source,
    const struct optimfs_options *options, const struct ofs_writing_to *to,
    struct optimfs_error *err);

/* For people: the absolute path of the checkpoint, if it is on this machine. */
static inline const char *ofs_fs_place(const struct optimfs *fs)
{
	return fs->real != NULL ? fs->real : fs->source;
}
/* Fails if place, an absolute path without links, is in the directory of the
 * checkpoint (OFS778); dest is what the user calls it. */
int ofs_fs_outside(const struct optimfs *fs, const char *place,
    const char *dest, struct optimfs_error *err);

/* Opens path read-only, on one rank. */
struct optimfs *ofs_fs_open(const char *path,
    const struct optimfs_options *options, struct optimfs_error *err);

/* reopen.c: after a commit, while the writers are held: read the checkpoint
 * again and show its new state. On failure nothing changes. */
int ofs_fs_reopen(struct optimfs *fs, struct optimfs_error *err);
/* snapshot.c */
/* A snapshot of cat. Takes over cat, on failure too. */
struct ofs_snapshot *ofs_snapshot_new(struct optimfs *fs,
    struct ofs_catalog *cat, struct optimfs_error *err);
struct ofs_snapshot *ofs_snapshot_ref(struct ofs_snapshot *snap);
/* NULL is allowed. */
void ofs_snapshot_unref(struct ofs_snapshot *snap);
/* The tree below its overlay. */
struct ofs_overlay_base ofs_snapshot_base(struct ofs_snapshot *snap);

/* Is the data that the note concerns lost, rather than absent by design
 * (ENODATA)? */
bool ofs_note_is_loss(const struct ofs_note *n);

/* node.c */
/* As optimfs_lookup and optimfs_resolve, on a snapshot. */
int ofs_lookup(struct ofs_snapshot *snap, uint64_t dir, const char *name,
    struct ofs_at *child, struct optimfs_error *err);
int ofs_resolve(struct ofs_snapshot *snap, const char *path, struct ofs_at *at,
    struct optimfs_error *err);
/* Splits a node number. ENOENT: no such node. */
int ofs_node_at(const struct ofs_snapshot *snap, uint64_t node,
    struct ofs_at *at, struct optimfs_error *err);
/* The generation is kept in bits of the node number that no space uses, so that
 * a number from before a commit that renamed files is recognised as stale. */
#define OFS_GENERATIONS 2048u
#define OFS_GENERATION  52
/* A view has fewer files than a tree may have entries, and there may be many
 * views: the number of the view takes 28 bits, the index 24. */
#define OFS_VIEW_INDEX 24
static inline uint64_t ofs_node_of(uint32_t space, uint32_t index)
{
	if (space < OFS_SPACE_VIEW)
		return (uint64_t)space << 32 | (index + 1);
	return (uint64_t)OFS_SPACE_VIEW << 32 |
	    (uint64_t)(space - OFS_SPACE_VIEW) << OFS_VIEW_INDEX | (index + 1);
}
static inline struct ofs_at ofs_at_of(uint64_t node)
{
	const uint64_t views = (uint64_t)OFS_SPACE_VIEW << 32;

	if (node < views)
		return (struct ofs_at){ (uint32_t)(node >> 32),
			(uint32_t)node - 1 };
	return (struct ofs_at){ OFS_SPACE_VIEW +
		    (uint32_t)((node - views) >> OFS_VIEW_INDEX),
		(uint32_t)(node & ((1u << OFS_VIEW_INDEX) - 1)) - 1 };
}
static inline bool ofs_at_static(const struct ofs_snapshot *snap,
    struct ofs_at at)
{
	return at.space == OFS_SPACE_TREE &&
	    at.index - snap->tree.n < OFS_NSTATIC;
}
/* A file or directory that a writer added (overlay/overlay.h), in the tree or a
 * mirror. Its index is above those of the static nodes. */
static inline bool ofs_at_made(const struct ofs_snapshot *snap,
    struct ofs_at at)
{
	return at.space < OFS_SPACE_VIEW &&
	    at.index >= snap->tree.n + OFS_NSTATIC;
}
/* Can writers change files of this space? They show the same bytes. */
static inline bool ofs_space_edited(uint32_t space)
{
	return space == OFS_SPACE_TREE || space == OFS_SPACE_NPY;
}
/* The entry of a node of the tree or a mirror; NULL for directories, static nodes
 * and what a writer added. */
const struct ofs_entry *ofs_at_entry(const struct ofs_snapshot *snap,
    struct ofs_at at);
/* Writes the path below the mount point, with .optimfs and the mirror, to
 * path. */
void ofs_at_path(const struct ofs_snapshot *snap, struct ofs_at at, char *path,
    size_t size);
bool ofs_at_is_dir(const struct ofs_snapshot *snap, struct ofs_at at);
/* The location of a static node; of the root of a mirror if it is one. */
struct ofs_at ofs_at_of_static(const struct ofs_snapshot *snap, uint32_t i);
/* The next node of top and what is below it, in depth-first order; OFS_NONE at
 * the end. The first is top. */
uint32_t ofs_tree_after(const struct ofs_tree *tree, uint32_t top,
    uint32_t index);

/* attr.c */
uint64_t ofs_at_ino(const struct ofs_snapshot *snap, struct ofs_at at);
int ofs_at_attr(struct ofs_snapshot *snap, struct ofs_at at,
    struct optimfs_attr *attr, struct optimfs_error *err);

/* mirror.c: the tensor that a node is in .optimfs/f32: of few bits, the derived
 * one. *dtype: the type that it is shown in. */
const struct ofs_tensor *ofs_f32_tensor(const struct ofs_snapshot *snap,
    uint32_t index, enum ofs_dtype *dtype);

/* space.c */
/* The name of a mirror in .optimfs; not for the mirrors of ranks. */
const char *ofs_mirror_root(uint32_t space);
/* Builds the table of mirrors. */
int ofs_spaces_init(struct ofs_snapshot *snap, struct optimfs_error *err);
void ofs_spaces_fini(struct ofs_snapshot *snap);
/* A table of a mirror, which make makes on first use; NULL: ENOMEM. */
const void *ofs_space_table(struct ofs_snapshot *snap,
    const struct ofs_space *s, _Atomic(void *) *table,
    void *(*make)(const struct ofs_snapshot *snap, const struct ofs_space *s),
    struct optimfs_error *err);
/* Does the mirror have this node? 1, 0, or -1 (ENOMEM). */
int ofs_space_has(struct ofs_snapshot *snap, struct ofs_space *s,
    uint32_t index, struct optimfs_error *err);

/* mirror_name.c */
/* The name of a node in a mirror. name is a buffer for it. */
const char *ofs_mirror_name(const struct ofs_snapshot *snap,
    const struct ofs_space *s, uint32_t index, char name[OFS_NAME_MAX + 1]);
/* The tree node called name in directory dir of the mirror; OFS_NONE: none. A
 * directory wins over a file of the same name. */
uint32_t ofs_mirror_find(struct ofs_snapshot *snap, struct ofs_space *s,
    uint32_t dir, const char *name);
/* The child at position index of the listing. */
int ofs_mirror_child(struct ofs_snapshot *snap, struct ofs_space *s,
    uint32_t index, uint32_t *child, struct optimfs_error *err);

/* value.c */
/* The contents of a text file: a value, an item, or a tensor without
 * dimensions. Returns a reference. */
struct ofs_blob *ofs_entry_text(struct ofs_snapshot *snap, uint32_t index,
    struct optimfs_error *err);
/* As above, without staged changes. */
struct ofs_blob *ofs_entry_text_base(struct ofs_snapshot *snap, uint32_t index,
    struct optimfs_error *err);
/* Formats a new value, which holds no tensors, as the text of this node. */
int ofs_value_text(struct ofs_snapshot *snap, uint32_t index,
    const struct ofs_pickle *doc, uint32_t node, struct ofs_buf *out,
    struct optimfs_error *err);
/* The text in .optimfs/rank/<rank>: the rank's own copy of a scalar, or v, its
 * value where ranks differ (may be NULL). */
struct ofs_blob *ofs_rank_text(struct ofs_snapshot *snap, uint32_t index,
    int rank, const struct ofs_variant *v, struct optimfs_error *err);
/* The size of such a file, without reading data. */
int ofs_entry_text_size(struct ofs_snapshot *snap, uint32_t index,
    uint64_t *size, bool *exact, struct optimfs_error *err);
int ofs_texts_init(struct ofs_snapshot *snap, struct optimfs_error *err);
void ofs_texts_fini(struct ofs_snapshot *snap);
/* file_read.c */
/* As optimfs_file_read, on an entered file. */
ssize_t ofs_file_read(struct optimfs_file *file, void *buf, size_t len,
    uint64_t off, struct optimfs_error *err);
/* The same for bytes that the file has: all are read, or it fails. */
int ofs_file_read_all(struct optimfs_file *file, void *buf, size_t len,
    uint64_t off, struct optimfs_error *err);
/* Reads ranges of one file (struct optimfs_part) to memory, in one plan if it is
 * stored and has nothing that is staged. All bytes are read, or it fails. */
int ofs_file_read_parts(struct optimfs_file *file,
    const struct optimfs_part *part, size_t n, struct optimfs_error *err);
/* How many elements of a tensor's file from first on are all the same one, by
 * what is known without reading: at least least of at most max, or 0
 * (read/alike.h). Staged elements are not known. */
uint64_t ofs_file_alike(struct optimfs_file *file, uint64_t first,
    uint64_t least, uint64_t max);
/* As above, on an entered file. */
uint64_t ofs_file_alike_in(struct optimfs_file *file, uint64_t first,
    uint64_t least, uint64_t max);
/* Frees the unused plans; there must be no reader. */
void ofs_file_drop_plans(struct optimfs_file *file);
/* read_ahead.c: announces a read, and starts to read ahead if it is
 * sequential. */
void ofs_file_ahead(struct optimfs_file *file, uint64_t off, uint64_t len);
/* Of a file on a server, looks for the places of bytes that will be read soon, so
 * that those who read parts of them together do not all ask. true: it has them
 * all in memory now. */
bool ofs_file_prepare(struct optimfs_file *file, uint64_t off, uint64_t len);
/* Gives sink bytes from off on where they lie in memory, at most *n, up to the
 * first one that does not, and sets *n to their number. -1: sink does. */
int ofs_file_pass(struct optimfs_file *file, uint64_t off, uint64_t *n,
    optimfs_sink_fn *sink, void *ctx, struct optimfs_error *err);
/* For one who reads all of it once, from its beginning: returns while it is on its
 * way from a server. NULL: that is not possible. */
void *ofs_file_stream(struct optimfs_file *file);
void ofs_file_streamed(struct optimfs_file *file, void *stream);
/* How many bytes are worth reading at once (store/transport.h). */
uint64_t ofs_file_at_once(struct optimfs_file *file);
void ofs_file_ahead_init(struct optimfs_file *file);
void ofs_file_ahead_fini(struct optimfs_file *file);

/* file.c */
/* An open file without contents, for optimfs_file_close. */
struct optimfs_file *ofs_file_new(struct ofs_snapshot *snap, struct ofs_at at,
    struct optimfs_error *err);
/* As optimfs_file_open and optimfs_file_size, on a snapshot. */
int ofs_file_open(struct ofs_snapshot *snap, struct ofs_at at,
    struct optimfs_file **file, struct optimfs_error *err);
uint64_t ofs_file_size(const struct optimfs_file *file);
/* Around each use of an open file through the public interface; as ofs_enter
 * and ofs_leave_again. */
struct ofs_snapshot *ofs_file_enter(struct optimfs_file *file);
bool ofs_file_leave(struct optimfs_file *file, struct ofs_snapshot *now,
    bool failed);
/* Puts the path and range before the message in err, records the failure, and
 * returns -1. len 0: the whole file. */
int ofs_file_failed(struct ofs_snapshot *snap, struct ofs_at at, uint64_t off,
    uint64_t len, struct optimfs_error *err);

/* write_commit.c */
/* The error of the last commit or abort, as a line; empty if it succeeded. */
void ofs_control_result(struct optimfs *fs, struct ofs_buf *out);

/* stale.c */
/* Finds the index files: the first few objects without entries. */
int ofs_indexes_init(struct ofs_snapshot *snap, struct optimfs_error *err);
/* ESTALE if an index file has changed since it was read. */
int ofs_indexes_same(const struct ofs_snapshot *snap,
    struct optimfs_error *err);

/* Sets the owner and the mode of a file or directory. */
void ofs_snapshot_access(struct ofs_snapshot *snap, bool dir,
    struct optimfs_attr *attr);
/* The mode of a file or directory that is made from the checkpoint. */
mode_t ofs_snapshot_made_mode(const struct ofs_snapshot *snap, mode_t mode);
/* Looks again. True: others may read the source than when the checkpoint was
 * read, or this was so at an earlier look. */
bool ofs_snapshot_access_changed(struct ofs_snapshot *snap);

/* layout.c */
/* The JSON of .optimfs/layout for an entry. */
void ofs_layout_json(struct ofs_snapshot *snap, uint32_t index,
    struct ofs_buf *out);

/* info.c: a summary of the checkpoint and of the options it was opened with. */
void ofs_info_json(struct ofs_snapshot *snap, struct ofs_buf *out);
/* Its first members: what the checkpoint is. */
struct ofs_json_writer;
void ofs_info_source(const struct ofs_snapshot *snap,
    struct ofs_json_writer *w);
/* The options that say what keys mean. */
void ofs_info_meaning(const struct optimfs_options *o,
    struct ofs_json_writer *w);

/* notes.c: tensors.tsv has a line of column names and one line for each tensor, depth
 * first; the others one line for each record. They say what was read from the
 * checkpoint; what a writer has staged is not in them. */
extern const struct ofs_lines_ops ofs_tensors_lines, ofs_missing_lines,
    ofs_warnings_lines, ofs_globals_lines;

#endif
