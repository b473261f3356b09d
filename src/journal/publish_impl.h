/* publish_impl.h - declarations shared by the parts of publishing */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_JOURNAL_PUBLISH_IMPL_H
#define OFS_JOURNAL_PUBLISH_IMPL_H

#include <sys/stat.h>

#include "base/buf.h"
#include "base/cursor.h"
#include "journal/publish.h"

#define OFS_PUBLISH_NEW    "new"
#define OFS_PUBLISH_GEN    "gen"
#define OFS_PUBLISH_OLD    "old" /* what is removed after an exchange */
#define OFS_PUBLISH_FINISHED "finished"
#define OFS_PUBLISH_RECORD "publish"

/* A version of a file; it survives renames but for ctime. ino 0: no file. */
struct ofs_publish_stamp {
	uint64_t ino, size;
	int64_t mtime_ns, ctime_ns;
};

struct ofs_publish_name {
	char *rel;
	char *like; /* existing file to inherit from; NULL: not kept */
	enum ofs_publish_kind {
		OFS_PUBLISH_CREATE,
		OFS_PUBLISH_REPLACE,
		OFS_PUBLISH_REMOVE,
		/* in a complete directory: what is in both */
		OFS_PUBLISH_KEEP,
		OFS_PUBLISH_KEEP_DIR,
		OFS_PUBLISH_DONE, /* in memory only: already in place */
	} kind;
	int fd;
	/* What this name was when the commit began, and what it becomes. */
	struct ofs_publish_stamp was, put;
};

/* The changes of names in the checkpoint. */
struct ofs_publish_plan {
	struct ofs_publish_name *name;
	size_t n, cap;
	/* inodes of gen/ and of the checkpoint, if they are exchanged */
	uint64_t gen, old;
	bool swap;               /* the directories are exchanged */
	bool at_once;            /* they have to be */
	char id[OFS_PUBLISH_ID]; /* of a decision made elsewhere, or "" */
};

/* A way of publishing. */
struct ofs_publisher_ops {
	const char *dir; /* directory of new files in the stage */
	/* Finds whether rel replaces a file: kind and was of n. Opens the file
	 * whose mode, owner and attributes the new one gets: rel or like; -1:
	 * none. */
	int (*find)(const struct ofs_publish *p, const char *rel,
	    const char *like, struct ofs_publish_name *n);
	bool keeps_like; /* the plan keeps like */
	/* ofs_publish_commit, if there is something to publish. */
	int (*commit)(struct ofs_publish *p, struct optimfs_error *err);
	/* Removes the preparations. */
	void (*clear)(struct ofs_publish *p);
};

struct ofs_publish {
	const struct ofs_publisher_ops *ops;
	void *ctx; /* argument of ops */
	const char *source;
	int dir, stage, new, parent;
	char *base; /* name of dir in parent, or NULL */
	struct ofs_publish_plan plan;
	bool moved;     /* new files may lie in the checkpoint */
	bool published; /* the rename was done */
	bool stuck;     /* files of others may be in the stage: nothing of it
			 * is removed before ofs_publish_recover */
};

/* publish.c */
/* ofs_publish_begin for any publisher; ctx is borrowed. */
struct ofs_publish *ofs_publish_with(const struct ofs_publisher_ops *ops,
    void *ctx, int stage, struct optimfs_error *err);
int ofs_publish_add(struct ofs_publish_plan *plan, const char *rel,
    enum ofs_publish_kind kind, int fd, const struct ofs_publish_stamp *was,
    struct optimfs_error *err);
/* Is it a file that the plan puts in place? */
bool ofs_publish_is_new(const struct ofs_publish_name *n);
/* Does the next name after i that counts lie in the same directory as name i?
 * Then one sync of the directory is enough for both. */
bool ofs_publish_goes_on(const struct ofs_publish_plan *plan, size_t i,
    bool (*counts)(const struct ofs_publish_name *n));
void ofs_publish_plan_fini(struct ofs_publish_plan *plan);

/* publish_dirs.c */
/* Opens a directory of the stage; creates it if necessary. -1: failed. */
int ofs_publish_dir(int at, const char *name, struct optimfs_error *err);
/* Makes the parent directories of rel. like: they are permanent, get the mode
 * of this directory, and are durable on return. -1: failed. */
int ofs_publish_parents(int at, const char *rel, int like,
    struct optimfs_error *err);
/* Syncs the parent directory of rel; -1 with errno. */
int ofs_publish_sync_dir(int at, const char *rel);
/* The parent of dir and the name of dir in it; -1: it has none. */
int ofs_publish_parent(const char *source, int dir, int *parent, char **base,
    struct optimfs_error *err);

/* publish_look.c: what has a name, before it is touched */
struct ofs_publish_stamp ofs_publish_stamp_of(const struct stat *st);
/* -1 with errno; a missing file is ino 0. */
int ofs_publish_look(int at, const char *rel, struct ofs_publish_stamp *found);
/* The same file with the same bytes? untouched: and attributes, if it was not
 * renamed either. */
bool ofs_publish_same(const struct ofs_publish_stamp *a,
    const struct ofs_publish_stamp *b);
bool ofs_publish_untouched(const struct ofs_publish_stamp *a,
    const struct ofs_publish_stamp *b);
/* Does a process have it open for writing? false if that cannot be known. */
bool ofs_publish_written(int at, const char *rel);
/* Renames, but never replaces: EEXIST. -1 with errno. */
int ofs_publish_move(int from_dir, const char *from, int to_dir,
    const char *to);
/* Moves it to to_dir as well, under a free name that begins with to. */
int ofs_publish_move_beside(int from_dir, const char *from, int to_dir,
    const char *to);
/* Removes name i of the plan from directory at if that is file own; otherwise
 * it stays. linked: its bytes may have changed, for it has another name. -1
 * with errno. */
int ofs_publish_drop(const struct ofs_publish *p, size_t i, int at,
    const struct ofs_publish_stamp *own, bool linked);
/* Returns what a killed ofs_publish_drop has left in the stage. */
int ofs_publish_undrop(const struct ofs_publish *p, struct optimfs_error *err);
/* Do the names in directory at that the plan changes still have the files of
 * its beginning? ESTALE (OFS805). */
int ofs_publish_unchanged(const struct ofs_publish_plan *plan, int at,
    struct optimfs_error *err);

/* publish_place.c: puts the files of new/ in place, one after the other */
/* Removes the files of an unpublished commit from the checkpoint. */
void ofs_publish_take_back(const struct ofs_publish *p);
int ofs_publish_place(struct ofs_publish *p, struct optimfs_error *err);
/* Gives a file that came out of an exchange, and was not the expected one, its
 * place again. */
int ofs_publish_give_back(struct ofs_publish *p, struct ofs_publish_name *n,
    struct optimfs_error *err);

/* publish_merge.c: directory in has taken the place of the one that is gen/ or
 * old/ of the stage now. Moves everything that others made or changed there
 * into it, and removes the rest. back: in is the old one. */
int ofs_publish_merge(const struct ofs_publish *p, int in, bool back,
    struct optimfs_error *err);

/* publish_record.c */
/* A record in the stage: begin, append the contents to b, write. The file is
 * synced, its name is not. */
void ofs_record_begin(struct ofs_buf *b, uint32_t magic, const char *id);
int ofs_record_write(int stage, const char *name, struct ofs_buf *b,
    struct optimfs_error *err);
/* 1: c is on the contents, in *bytes, which the caller frees; 0: there is none,
 * or it is torn. */
int ofs_record_read(int stage, const char *name, uint32_t magic,
    char id[OFS_PUBLISH_ID], uint8_t **bytes, struct ofs_cursor *c,
    struct optimfs_error *err);
/* -1: it may stay (err, OFS809). */
int ofs_record_remove(int stage, const char *name, struct optimfs_error *err);
/* Writes and syncs the record of a plan; reads it: 1, or 0 if there is none or
 * it is torn, which means that nothing was done. */
int ofs_publish_write_record(int stage, const struct ofs_publish_plan *plan,
    struct optimfs_error *err);
int ofs_publish_read_record(int stage, struct ofs_publish_plan *plan,
    struct optimfs_error *err);

/* publish_swap.c: builds a complete directory in gen/, and exchanges the
 * directories. */
int ofs_publish_build(struct ofs_publish *p, struct optimfs_error *err);
int ofs_publish_exchange(struct ofs_publish *p, struct optimfs_error *err);
/* Can directories be exchanged here? Tried with two of our own in the stage. */
int ofs_publish_try_exchange(const struct ofs_publish *p,
    struct optimfs_error *err);
/* The same, and would the exchange fail because the checkpoint is in a lower layer
 * of overlayfs? 0: it would not, or is not known to. */
int ofs_publish_exchangeable(struct ofs_publish *p, struct optimfs_error *err);
/* The second half of an exchange, whose new directory is in: 0: published; -1:
 * it was not, and the directories were exchanged back; 1: published, but not
 * finished (err, OFS803). */
int ofs_publish_exchanged(struct ofs_publish *p, int in,
    struct optimfs_error *err);

#endif
