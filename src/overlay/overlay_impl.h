/* overlay_impl.h - what the parts of the overlay share */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_OVERLAY_OVERLAY_IMPL_H
#define OFS_OVERLAY_OVERLAY_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "overlay/overlay.h"

/* Lock order: names, the lock of a file, locks inside the stage. */

/* The maximal size of a file that is not a tensor. */
#define OFS_TEXT_MAX (16u << 20)

/* The changed contents of a file. Created by the first write; lives as long as
 * the overlay. */
struct ofs_overlay_file {
	struct ofs_overlay_file *next; /* list of all, newest first */
	uint32_t index;                /* of its node */
	uint32_t entry;              /* entry of the checkpoint, or OFS_NONE */
	bool text;                   /* staged as a whole after a check */
	struct ofs_overlay *overlay; /* NULL: an element */
	struct ofs_overlay_file *tied; /* of another name of the tensor */
	bool dead;                     /* removed and not open */
	_Atomic unsigned opens;        /* changed under names */
	unsigned writers;              /* under names */

	pthread_rwlock_t lock; /* protects the members below */
	uint64_t id;           /* data/<id>; 0: none yet */
	int fd;                /* -1: not open */
	bool unsynced;         /* it may have bytes that are not on the disk */
	uint64_t version;      /* ofs_overlay_file_version */
	/* Every byte below size is in written, or is a byte of the checkpoint
	 * below base. */
	uint64_t size, base;
	uint64_t full; /* size in the checkpoint */
	struct ofs_ranges written;
	/* Ranges whose write failed, and the error. They cannot be read until
	 * they are written again. */
	struct ofs_ranges lost;
	struct optimfs_error why;

	/* text: the accepted text (NULL: that of the checkpoint), and the draft,
	 * which is being written. */
	struct ofs_blob *accepted;
	uint32_t by;         /* the node by which it was written */
	uint8_t element[16]; /* of a 0-dim tensor */
	struct ofs_buf draft;
	bool has_draft; /* it may differ from the accepted text */
	bool touched;   /* written since it was truncated to 0 */
	bool unwritten; /* accepted was not written by a user */

	/* Attributes that were set; dtype OFS_DTYPE_NONE and shape NULL: not
	 * set. */
	uint8_t dtype, ndim;
	uint64_t *shape;
	int64_t mtime_ns;
};

/* A file or directory that was added, or one of the checkpoint that was
 * changed. Its name is a property of the node alone: the children of a renamed
 * directory do not change. */
struct ofs_overlay_node {
	struct ofs_overlay_node *next; /* in its hash bucket */
	uint32_t index;
	bool dir;
	bool gone; /* of the checkpoint: its old name does not lead to it */
	bool dead; /* removed by an abort */
	/* Its location, if it differs from that in the checkpoint. parent is
	 * OFS_NONE if it was removed. */
	uint32_t parent, slot;
	char *name;
	/* Of a directory: the nodes that were added or moved here; OFS_NONE
	 * where one was removed again. */
	uint32_t *child, nchild, cap;
	struct ofs_overlay_file *file;
	uint64_t ino;
	int64_t mtime_ns;
	/* The text written by this name. If others are tied to it, the text of
	 * the file may be a later one. */
	struct ofs_blob *accepted;
};

struct ofs_overlay {
	const struct ofs_catalog *cat;
	const struct ofs_tree *tree;
	const struct ofs_overlay_reader *reader;
	void *reader_ctx;
	/* Of a new checkpoint with the names of this one, which are hidden until
	 * they are created: is there a name for each tensor? NULL: of this
	 * checkpoint. */
	bool *hidden;
	/* With hidden: the first tensor in the same stored elements. */
	uint32_t *same;
	const char *only; /* only names below this one are needed; NULL: all */
	/* During its commit: what has the bytes of each tensor, or NULL. */
	struct ofs_overlay_file **supply;
	struct ofs_stage *stage;
	bool scratch;
	/* All changes are published; why: the error of creating the next
	 * overlay. Readers look at why only while a commit runs. */
	atomic_bool published;
	struct optimfs_error why;
	bool passed_on; /* the next overlay has the stage */
	bool keep;      /* never remove the stage */
	/* The error of every further change: the last commit may not be
	 * durable, or its journal could not be emptied, so that the next mount
	 * takes everything in the journal for published. */
	struct optimfs_error stuck;
	bool unsafe;    /* stuck is about durability */
	uint32_t first; /* index of the first added node */

	pthread_rwlock_t names;         /* protects the members below */
	struct ofs_overlay_node **base; /* by index; NULL: unchanged */
	struct ofs_overlay_node **made; /* by index - first */
	uint32_t nmade, cap;
	struct ofs_overlay_node **bucket; /* hash table of names */
	uint32_t nbuckets, nplaced;
	struct ofs_overlay_file **tensor; /* by tensor; NULL: unchanged */
	struct ofs_overlay_file *_Atomic files;
	uint64_t last_id;
	bool replaying;
	_Atomic size_t nopen; /* files of data/ that are open */
	_Atomic uint64_t last_version;

	/* Counters of changes to names and kinds of files: views are rendered
	 * again. */
	_Atomic uint64_t names_changed, changed;
	_Atomic unsigned percent; /* of a commit, plus one; 0: no commit */
	_Atomic uint64_t done, total;
	pthread_mutex_t doing_lock; /* protects doing */
	char doing[OFS_OVERLAY_DOING];
	struct ofs_replay found;
};

/* Records of the journal. Paths are those that the mount showed at that
 * time. */
enum ofs_overlay_record {
	OFS_REC_MKDIR = 1, /* a */
	OFS_REC_CREATE,    /* a */
	OFS_REC_REMOVE,    /* a */
	OFS_REC_RENAME,    /* a -> b, as ofs_overlay_rename */
	OFS_REC_DATA,      /* bytes of a are in data/<0> */
	OFS_REC_WRITE,     /* data/<0>: 2 bytes at 1, XXH3 3 */
	OFS_REC_SIZE,      /* data/<0>: is 1 bytes long, extended with zeros */
	OFS_REC_SYNC,      /* data/<0>: writes so far are on disk */
	OFS_REC_TEXT,      /* the text of a is b */
	OFS_REC_ATTR,      /* a: attribute and value, NUL between them, in b */
	OFS_REC_TIME,      /* a: mtime 0 */
};

/* overlay.c */
/* Counts a change; names: a name or the kind of a file has changed. */
void ofs_overlay_changed(struct ofs_overlay *o, bool names);
int ofs_overlay_record(struct ofs_overlay *o, const struct ofs_record *r,
    struct optimfs_error *err);

/* attr.c: the lock of names is held for writing. */
int ofs_overlay_set_attr(struct ofs_overlay *o, uint32_t index,
    const char *name, const char *value, size_t n, struct optimfs_error *err);
int ofs_overlay_set_mtime(struct ofs_overlay *o, uint32_t index,
    int64_t mtime_ns, struct optimfs_error *err);
/* As ofs_overlay_form; the lock of names is held. */
void ofs_overlay_form_of(const struct ofs_overlay *o, uint32_t index,
    struct ofs_overlay_form *form);
void ofs_overlay_form_of_tensor(const struct ofs_catalog *cat,
    const struct ofs_tensor *t, struct ofs_overlay_form *form);
/* Is base, a node of the checkpoint, a tensor whose dtype and shape no commit can
 * change, because it can only overwrite its bytes? */
bool ofs_overlay_keeps_form(const struct ofs_overlay *o, uint32_t base);
/* EINVAL (OFS816): attributes were set for from, but the tensor at index, whose
 * form cannot change, has others. */
int ofs_overlay_fits(const struct ofs_overlay *o,
    const struct ofs_overlay_file *from, uint32_t index,
    struct optimfs_error *err);
bool ofs_overlay_same_shape(const struct ofs_overlay_form *a,
    const struct ofs_overlay_form *b);
/* The size in bytes of a tensor of this form; 0: not a tensor, or too large. */
uint64_t ofs_overlay_form_bytes(const struct ofs_overlay_form *form);
/* The key that a name stands for; false: unknown. That of a shortened and hashed
 * name is known only if dir, a directory of the checkpoint or OFS_NONE, has it. */
bool ofs_overlay_key_of(const struct ofs_overlay *o, uint32_t dir,
    const char *name, struct ofs_buf *out);
/* The key that the node's name stands for; false: unknown. A hashed name may be
 * that of a parameter, or of the file in the same place. */
bool ofs_overlay_key(const struct ofs_overlay *o, uint32_t index,
    struct ofs_buf *out);
/* The size limit of the file; UINT64_MAX: none. */
uint64_t ofs_overlay_limit(const struct ofs_overlay *o, uint32_t index);

/* hidden.c: the lock of names is held for writing. */
/* Makes the hidden node called name visible. 1: done; 0: no such node; -1:
 * failed. */
int ofs_overlay_reveal(struct ofs_overlay *o, uint32_t dir, const char *name,
    bool is_dir, uint32_t *index, struct optimfs_error *err);
/* Renames an added file to a name of the base, whose file gets its bytes. 1:
 * done; 0: not such a case; -1: failed, and nothing has changed. */
int ofs_overlay_rename_over(struct ofs_overlay *o, uint32_t index, uint32_t dir,
    const char *name, struct optimfs_error *err);

/* names.c: the lock of names is held. */
struct ofs_overlay_node *ofs_overlay_node(const struct ofs_overlay *o,
    uint32_t index);
struct ofs_overlay_node *ofs_overlay_touch(struct ofs_overlay *o,
    uint32_t index, struct optimfs_error *err);
static inline bool ofs_overlay_is_made(const struct ofs_overlay *o,
    uint32_t index)
{
	return index >= o->first;
}
bool ofs_overlay_is_dir(const struct ofs_overlay *o, uint32_t index);
/* The child of dir called name, or OFS_NONE. */
uint32_t ofs_overlay_find(const struct ofs_overlay *o, uint32_t dir,
    const char *name);
/* Calls each for the children of dir from position start on, until it returns
 * non-zero. */
typedef int ofs_overlay_child_fn(void *ctx, uint32_t child, const char *name,
    uint64_t position);
int ofs_overlay_children(const struct ofs_overlay *o, uint32_t dir,
    uint64_t start, ofs_overlay_child_fn *each, void *ctx);

int ofs_overlay_record_path(struct ofs_overlay *o, enum ofs_overlay_record type,
    uint32_t dir, const char *name, struct optimfs_error *err);
int ofs_overlay_make(struct ofs_overlay *o, uint32_t dir, const char *name,
    bool is_dir, uint32_t *index, struct optimfs_error *err);
int ofs_overlay_remove(struct ofs_overlay *o, uint32_t dir, const char *name,
    bool is_dir, struct optimfs_error *err);
int ofs_overlay_record_rename(struct ofs_overlay *o, uint32_t dir,
    const char *name, uint32_t to, const char *newname,
    struct optimfs_error *err);
/* Removes a node whose removal is in the journal. */
void ofs_overlay_drop(struct ofs_overlay *o, uint32_t index);
int ofs_overlay_rename(struct ofs_overlay *o, uint32_t dir, const char *name,
    uint32_t to, const char *newname, bool replace, struct optimfs_error *err);

/* paths.c: the lock of names is held. */
/* Its name, and its directory; OFS_NONE if it was removed. */
const char *ofs_overlay_name(const struct ofs_overlay *o, uint32_t index);
uint32_t ofs_overlay_parent(const struct ofs_overlay *o, uint32_t index);
/* Is its path that of the checkpoint? */
bool ofs_overlay_in_place(const struct ofs_overlay *o, uint32_t index);
/* The path, malloc'ed; NULL: ENOMEM, or it was removed */
char *ofs_overlay_path(const struct ofs_overlay *o, uint32_t index,
    const char *name, struct optimfs_error *err);
/* The node of a path, or OFS_NONE. */
uint32_t ofs_overlay_resolve(const struct ofs_overlay *o, const char *path);
/* The file of the checkpoint that originally had the current path of index, if
 * it is another node; OFS_NONE. */
uint32_t ofs_overlay_stands_for(const struct ofs_overlay *o, uint32_t index);
/* What the checkpoint has at a path, or OFS_NONE. */
uint32_t ofs_overlay_base_at(const struct ofs_overlay *o, const char *path);
/* The file or directory of the checkpoint that originally had the current path
 * of index. */
uint32_t ofs_overlay_base_place(const struct ofs_overlay *o, uint32_t index);

/* params.c */
/* The node is about to be renamed within its directory. If it is a parameter,
 * the groups that list it by its name get the new one. The lock of names is held
 * for writing. */
int ofs_overlay_rename_params(struct ofs_overlay *o, uint32_t index,
    const char *name, const char *newname, struct optimfs_error *err);

/* file.c */
/* The file of a node; created if necessary. The lock of names is held for
 * writing. */
struct ofs_overlay_file *ofs_overlay_file_touch(struct ofs_overlay *o,
    uint32_t index, struct optimfs_error *err);
/* The file of a node, or NULL. The lock of names is held. */
struct ofs_overlay_file *ofs_overlay_file(const struct ofs_overlay *o,
    uint32_t index);
/* Marks [off, end) as lost: every close and fsync reports err until the range
 * is written again. -1. f->lock is held for writing. */
int ofs_overlay_file_lose(struct ofs_overlay_file *f, uint64_t off,
    uint64_t end, const struct optimfs_error *err);
/* Does it differ from the checkpoint? Its lock is held. */
bool ofs_overlay_file_differs(const struct ofs_overlay_file *f);
/* Assigns data/<id> to it, as in the journal. */
int ofs_overlay_file_adopt(struct ofs_overlay *o, struct ofs_overlay_file *f,
    uint64_t id, struct optimfs_error *err);
/* Its file descriptor; opens the file if necessary. f->lock is held for
 * writing. */
int ofs_overlay_file_fd(struct ofs_overlay *o, struct ofs_overlay_file *f,
    struct optimfs_error *err);
/* Copies the staged bytes in [off, end) to buf, which starts at off. The file
 * may end up to slack bytes before end. */
int ofs_overlay_file_apply(struct ofs_overlay *o, struct ofs_overlay_file *f,
    void *buf, uint64_t off, uint64_t end, uint64_t slack,
    struct optimfs_error *err);
/* Reads staged bytes; as in struct ofs_staged, for a file of an overlay. */
int ofs_overlay_file_read(void *file, void *buf, uint64_t n, uint64_t off,
    struct optimfs_error *err);
/* Writes n bytes at off of a file that is not a text. The lock of names is not
 * held. */
int ofs_overlay_file_write(struct ofs_overlay *o, struct ofs_overlay_file *f,
    const void *buf, uint64_t n, uint64_t off, struct optimfs_error *err);
/* Changes its size. named: the lock of names is held for writing; otherwise it is
 * not held. */
int ofs_overlay_file_resize(struct ofs_overlay *o, struct ofs_overlay_file *f,
    bool named, uint64_t size, struct optimfs_error *err);
int ofs_overlay_file_sync(struct ofs_overlay *o, struct ofs_overlay_file *f,
    struct optimfs_error *err);
/* Closes the data of a file that is no longer open. */
void ofs_overlay_file_idle(struct ofs_overlay *o, struct ofs_overlay_file *f);
/* Drops the changes of a file of the checkpoint. */
void ofs_overlay_file_revert(struct ofs_overlay *o, struct ofs_overlay_file *f);

/* text.c: f->lock is held for writing. */
/* The current text. */
struct ofs_blob *ofs_overlay_text_now(struct ofs_overlay *o,
    struct ofs_overlay_file *f, struct optimfs_error *err);
int ofs_overlay_text_write(struct ofs_overlay *o, struct ofs_overlay_file *f,
    const void *buf, uint64_t n, uint64_t off, struct optimfs_error *err);
int ofs_overlay_text_resize(struct ofs_overlay *o, struct ofs_overlay_file *f,
    uint64_t size, struct optimfs_error *err);
/* Checks the draft and accepts it; index is the node it was written
 * through. */
int ofs_overlay_text_accept(struct ofs_overlay *o, struct ofs_overlay_file *f,
    uint32_t index, struct optimfs_error *err);
/* Another text in place of the current one, whole or not at all. */
int ofs_overlay_text_set(struct ofs_overlay *o, struct ofs_overlay_file *f,
    uint32_t index, const void *text, uint64_t n, struct optimfs_error *err);
/* The text of another file, whole or not at all. No lock of either is held, but
 * names are, for writing. */
int ofs_overlay_text_take(struct ofs_overlay *o, struct ofs_overlay_file *from,
    struct ofs_overlay_file *to, uint32_t index, struct optimfs_error *err);
/* As ofs_overlay_reader.fits. */
static inline int ofs_overlay_text_check(struct ofs_overlay *o, uint32_t node,
    const char *text, size_t n, struct ofs_buf *canonical, uint8_t element[16],
    struct optimfs_error *err)
{
	return o->reader->fits(o->reader_ctx, node, text, n, canonical, element,
	    err);
}

#endif
