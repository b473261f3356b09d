/* overlay_impl.h - what the parts of the overlay share */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_OVERLAY_OVERLAY_IMPL_H
#define OFS_OVERLAY_OVERLAY_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "overlay/overlay.h"

/* Order of locks: names, a file's, what is inside the stage. */

/* The longest text that a file may hold which is no tensor. */
#define OFS_TEXT_MAX (16u << 20)

/* What is different about the bytes of a file. Made when it is first written
 * to, lives as long as the overlay. */
struct ofs_overlay_file {
	struct ofs_overlay_file *next; /* of all, newest first */
	uint32_t index;                /* of the node it was made for */
	uint32_t entry; /* of a file of the checkpoint; OFS_NONE */
	bool text;      /* staged whole, once it was checked */
	const struct ofs_overlay_bytes *bytes;
	bool dead;               /* removed, and nobody has it open */
	unsigned opens, writers; /* under names */

	pthread_rwlock_t lock; /* what follows */
	uint64_t id;           /* data/<id>; 0: there is none yet */
	int fd;                /* -1: not open */
	/* Every byte below size is in written, or below base and the
	 * checkpoint's. Behind size there is nothing. */
	uint64_t size, base;
	uint64_t full; /* what the checkpoint has */
	struct ofs_ranges written;
	/* Bytes whose writing failed, and how: they cannot be read, until they
	 * are written again. */
	struct ofs_ranges lost;
	struct optimfs_error why;

	/* text: what was accepted (NULL: what the checkpoint says), and what is
	 * being written. */
	struct ofs_blob *accepted;
	uint8_t element[16]; /* of a tensor without dimensions */
	struct ofs_buf pending;
	bool is_pending; /* it differs from what was accepted */
	bool touched;    /* since it was cut to nothing */
	bool
	    unwritten; /* nobody wrote what is accepted (push/writethrough.h) */
	/* Of a template: bytes from here on were never written. */
	uint64_t high;

	/* Attributes that were set; dtype OFS_DTYPE_NONE, shape NULL: not. */
	uint8_t dtype, ndim;
	uint64_t *shape;
	int64_t mtime_ns;
};

/* A file or directory that was made, or one of the checkpoint that was
 * touched. What it is called is its own affair: children of a moved directory
 * know nothing of it. */
struct ofs_overlay_node {
	struct ofs_overlay_node *next; /* in its bucket of names */
	uint32_t index;
	bool dir;
	bool gone; /* of the checkpoint: its name there does not lead to it */
	bool dead; /* an abort has taken it away */
	/* Where it is, where that is not the checkpoint's: parent is OFS_NONE
	 * when it was removed. */
	uint32_t parent, slot;
	char *name;
	/* Of a directory: those that were put here, OFS_NONE where one was
	 * taken out again. */
	uint32_t *child, nchild, cap;
	struct ofs_overlay_file *file;
	uint64_t ino;
	int64_t mtime_ns;
	/* Of a text that is one with others (push/writethrough.h): what was written by
	 * this name. */
	struct ofs_blob *accepted;
};

struct ofs_overlay {
	const struct ofs_catalog *cat;
	const struct ofs_tree *tree;
	const struct ofs_overlay_reader *reader;
	void *reader_ctx;
	const struct ofs_overlay_ops *ops;
	void *ops_ctx;
	struct ofs_stage *stage;
	bool scratch;
	/* All that it has is in the checkpoint; and why the next one, over
	 * that, could not be made. Readers look while a commit says so. */
	atomic_bool published;
	struct optimfs_error why;
	bool passed_on; /* the stage is the next one's */
	bool keep;      /* the stage, whatever is in it */
	/* What every further change fails with: the last commit is not known
	 * to be safe, or its journal could not be emptied, and the next mount
	 * takes all that the journal has for published. */
	struct optimfs_error stuck;
	bool unsafe;    /* it is the commit */
	uint32_t first; /* index of the first node that was made */

	pthread_rwlock_t names;         /* what follows */
	struct ofs_overlay_node **base; /* by index, those touched */
	struct ofs_overlay_node **made; /* by index - first */
	uint32_t nmade, cap;
	struct ofs_overlay_node **bucket; /* names of those that are placed */
	uint32_t nbuckets, nplaced;
	struct ofs_overlay_file **tensor; /* by tensor, those touched */
	struct ofs_overlay_file *files;
	uint64_t last_id;
	bool replaying;

	/* Of names and of what files are: views are rendered anew. */
	_Atomic uint64_t names_changed, changed;
	_Atomic unsigned percent; /* of a commit, plus one; 0: none */
	_Atomic uint64_t done, total;
	pthread_mutex_t told; /* for what follows */
	char doing[OFS_OVERLAY_DOING];
	struct ofs_replay found;
};

/* Where the bytes go that are written to a file which is no text; f->lock is
 * held for writing. */
struct ofs_overlay_bytes {
	bool in_place; /* to where a reader of the base finds them */
	int (*write)(struct ofs_overlay *e, struct ofs_overlay_file *f,
	    const void *buf, uint64_t n, uint64_t off,
	    struct optimfs_error *err);
	int (*read)(struct ofs_overlay *e, struct ofs_overlay_file *f,
	    void *buf, uint64_t n, uint64_t off, struct optimfs_error *err);
	/* Longer by zeros, or shorter. */
	int (*resize)(struct ofs_overlay *e, struct ofs_overlay_file *f,
	    uint64_t size, struct optimfs_error *err);
	int (*sync)(struct ofs_overlay *e, struct ofs_overlay_file *f,
	    struct optimfs_error *err);
};
/* To files of the stage. */
extern const struct ofs_overlay_bytes ofs_overlay_staged_bytes;

/* What an overlay over a checkpoint (staged.c) and one over a template
 * (push/writethrough.c) do differently. With names held, for writing where
 * something changes. */
struct ofs_overlay_ops {
	/* Names and bytes of the base are absent until they are written. */
	bool hidden;
	/* Has the node of a tensor with several names a file of its own? */
	bool (*apart)(const struct ofs_overlay *e, uint32_t node);
	/* Of a tensor's node. */
	const struct ofs_overlay_bytes *(*bytes)(const struct ofs_overlay *e,
	    uint32_t node);
	/* Does this text stand for what the base says there? */
	bool (*own_text)(const struct ofs_overlay *e, uint32_t node,
	    const void *text, size_t n);
	/* A text was accepted that was written by way of node. */
	void (*accepted)(struct ofs_overlay *e, struct ofs_overlay_file *f,
	    uint32_t node);
	/* A name of the base that is absent is created. 1; 0: it is no such
	 * name; -1. */
	int (*reveal)(struct ofs_overlay *e, uint32_t dir, const char *name,
	    bool is_dir, uint32_t *index, struct optimfs_error *err);
	/* What was made is renamed to a name of the base: 1; 0: as any file
	 * is; -1. */
	int (*rename)(struct ofs_overlay *e, uint32_t index, uint32_t dir,
	    const char *name, struct optimfs_error *err);
	void (*free)(void *ctx);
};
extern const struct ofs_overlay_ops ofs_overlay_staged_ops;

/* Records of the journal. Paths are as the mount shows them, at the time. */
enum ofs_overlay_record {
	OFS_REC_MKDIR = 1, /* a */
	OFS_REC_CREATE,    /* a */
	OFS_REC_REMOVE,    /* a */
	OFS_REC_RENAME,    /* a -> b */
	OFS_REC_DATA,      /* a has its bytes in data/<0> */
	OFS_REC_WRITE,     /* data/<0>: 2 bytes at 1, hash 3 */
	OFS_REC_SIZE,      /* data/<0>: is 1 bytes long, extended with zeros */
	OFS_REC_SYNC,      /* data/<0>: what was written is on disk */
	OFS_REC_TEXT,      /* a says b */
	OFS_REC_ATTR,      /* a: attribute and value, NUL between them, in b */
	OFS_REC_TIME,      /* a: mtime 0 */
};

/* overlay.c */
/* Something changed; names: something has another name or is something else. */
void ofs_overlay_changed(struct ofs_overlay *e, bool names);
int ofs_overlay_record(struct ofs_overlay *e, const struct ofs_record *r,
    struct optimfs_error *err);

/* attr.c: with names held for writing. */
int ofs_overlay_set_attr(struct ofs_overlay *e, uint32_t index,
    const char *name, const char *value, size_t n, struct optimfs_error *err);
int ofs_overlay_set_mtime(struct ofs_overlay *e, uint32_t index,
    int64_t mtime_ns, struct optimfs_error *err);
/* As ofs_overlay_form, with names held. */
void ofs_overlay_form_of(const struct ofs_overlay *e, uint32_t index,
    struct ofs_overlay_form *form);
/* What a tensor of this form would be long; 0: none, or too long. */
uint64_t ofs_overlay_form_bytes(const struct ofs_overlay_form *form);
/* The key that the node's name stands for; false: nobody knows. */
bool ofs_overlay_key(const struct ofs_overlay *e, uint32_t index,
    struct ofs_buf *out);
/* How long the file may become; UINT64_MAX: as long as it likes. */
uint64_t ofs_overlay_limit(const struct ofs_overlay *e, uint32_t index);

/* names.c: all with names held. */
struct ofs_overlay_node *ofs_overlay_node(const struct ofs_overlay *e,
    uint32_t index);
struct ofs_overlay_node *ofs_overlay_touch(struct ofs_overlay *e,
    uint32_t index, struct optimfs_error *err);
static inline bool ofs_overlay_is_made(const struct ofs_overlay *e,
    uint32_t index)
{
	return index >= e->first;
}
bool ofs_overlay_is_dir(const struct ofs_overlay *e, uint32_t index);
/* The child of dir; OFS_NONE. */
uint32_t ofs_overlay_find(const struct ofs_overlay *e, uint32_t dir,
    const char *name);
/* Its name, and the directory it is in: OFS_NONE when it is in none. */
const char *ofs_overlay_name(const struct ofs_overlay *e, uint32_t index);
uint32_t ofs_overlay_parent(const struct ofs_overlay *e, uint32_t index);
/* Is it reached through the names that the checkpoint has for it? */
bool ofs_overlay_in_place(const struct ofs_overlay *e, uint32_t index);
/* malloc'ed; NULL: ENOMEM, or it was removed (ENOENT). */
char *ofs_overlay_path(const struct ofs_overlay *e, uint32_t index,
    const char *name, struct optimfs_error *err);
/* The node of a path; OFS_NONE. */
uint32_t ofs_overlay_resolve(const struct ofs_overlay *e, const char *path);
/* The file of the checkpoint that has the path which index has now, where that
 * is another one; OFS_NONE. */
uint32_t ofs_overlay_stands_for(const struct ofs_overlay *e, uint32_t index);

/* The node of the checkpoint, of either kind, whose path index has now. */
uint32_t ofs_overlay_base_place(const struct ofs_overlay *e, uint32_t index);

/* Children of dir from position start on, until each returns non-zero. */
typedef int ofs_overlay_child_fn(void *ctx, uint32_t child, const char *name,
    uint64_t position);
int ofs_overlay_children(const struct ofs_overlay *e, uint32_t dir,
    uint64_t start, ofs_overlay_child_fn *each, void *ctx);

int ofs_overlay_record_path(struct ofs_overlay *e, enum ofs_overlay_record type,
    uint32_t dir, const char *name, struct optimfs_error *err);
int ofs_overlay_make(struct ofs_overlay *e, uint32_t dir, const char *name,
    bool is_dir, uint32_t *index, struct optimfs_error *err);
int ofs_overlay_remove(struct ofs_overlay *e, uint32_t dir, const char *name,
    bool is_dir, struct optimfs_error *err);
int ofs_overlay_rename(struct ofs_overlay *e, uint32_t dir, const char *name,
    uint32_t to, const char *newname, bool replace, struct optimfs_error *err);

/* file.c */
/* The file of a node, made if need be; names held for writing. */
struct ofs_overlay_file *ofs_overlay_file_touch(struct ofs_overlay *e,
    uint32_t index, struct optimfs_error *err);
/* The same as below, with names held for writing. */
int ofs_overlay_file_write_named(struct ofs_overlay *e,
    struct ofs_overlay_file *f, const void *buf, uint64_t n, uint64_t off,
    struct optimfs_error *err);
int ofs_overlay_file_resize_named(struct ofs_overlay *e,
    struct ofs_overlay_file *f, uint64_t size, struct optimfs_error *err);
/* If there is one; names held. */
struct ofs_overlay_file *ofs_overlay_file(const struct ofs_overlay *e,
    uint32_t index);
void ofs_overlay_file_free(struct ofs_overlay_file *f);
/* Is there anything about it that the checkpoint does not say? */
bool ofs_overlay_file_differs(const struct ofs_overlay_file *f);
/* Give it data/<id>, as a record says. */
int ofs_overlay_file_adopt(struct ofs_overlay *e, struct ofs_overlay_file *f,
    uint64_t id, struct optimfs_error *err);
/* The descriptor, opened if it is not; f->lock held for writing. */
int ofs_overlay_file_fd(struct ofs_overlay *e, struct ofs_overlay_file *f,
    struct optimfs_error *err);
/* What of the bytes [off, end) was staged into buf, which stands for off. The
 * file may end up to slack bytes before end. */
int ofs_overlay_file_apply(struct ofs_overlay *e, struct ofs_overlay_file *f,
    void *buf, uint64_t off, uint64_t end, uint64_t slack,
    struct optimfs_error *err);
/* n bytes at off, of a file that is no text. */
int ofs_overlay_file_write(struct ofs_overlay *e, struct ofs_overlay_file *f,
    const void *buf, uint64_t n, uint64_t off, struct optimfs_error *err);
int ofs_overlay_file_resize(struct ofs_overlay *e, struct ofs_overlay_file *f,
    uint64_t size, struct optimfs_error *err);
int ofs_overlay_file_sync(struct ofs_overlay *e, struct ofs_overlay_file *f,
    struct optimfs_error *err);
/* Nobody has it open any more: its data need not be, either. */
void ofs_overlay_file_idle(struct ofs_overlay *e, struct ofs_overlay_file *f);
/* Forget what was done to a file of the checkpoint. */
void ofs_overlay_file_revert(struct ofs_overlay *e, struct ofs_overlay_file *f);

/* text.c: f->lock held for writing. */
/* What the file says now. */
struct ofs_blob *ofs_overlay_text_now(struct ofs_overlay *e,
    struct ofs_overlay_file *f, struct optimfs_error *err);
int ofs_overlay_text_write(struct ofs_overlay *e, struct ofs_overlay_file *f,
    const void *buf, uint64_t n, uint64_t off, struct optimfs_error *err);
int ofs_overlay_text_resize(struct ofs_overlay *e, struct ofs_overlay_file *f,
    uint64_t size, struct optimfs_error *err);
/* Check the draft and make it what the file says; index is the node that it was
 * written by. */
int ofs_overlay_text_accept(struct ofs_overlay *e, struct ofs_overlay_file *f,
    uint32_t index, struct optimfs_error *err);
/* As ofs_overlay_reader.fits says. */
static inline int ofs_overlay_text_check(struct ofs_overlay *e, uint32_t node,
    const char *text, size_t n, struct ofs_buf *canonical, uint8_t element[16],
    struct optimfs_error *err)
{
	return e->reader->fits(e->reader_ctx, node, text, n, canonical, element,
	    err);
}

#endif
