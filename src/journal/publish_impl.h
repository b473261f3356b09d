/* publish_impl.h - declarations shared by the parts of publishing */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_JOURNAL_PUBLISH_IMPL_H
#define OFS_JOURNAL_PUBLISH_IMPL_H

#include "base/buf.h"
#include "base/cursor.h"
#include "journal/publish.h"

#define OFS_PUBLISH_NEW    "new"
#define OFS_PUBLISH_GEN    "gen"
#define OFS_PUBLISH_RECORD "publish"

struct ofs_publish_name {
	char *rel;
	char *like; /* existing file to inherit from; NULL: not kept */
	enum ofs_publish_kind {
		OFS_PUBLISH_CREATE,
		OFS_PUBLISH_REPLACE,
		OFS_PUBLISH_REMOVE,
		OFS_PUBLISH_DONE, /* in memory only: already in place */
	} kind;
	int fd;
	uint64_t ino; /* of the new file; survives the rename */
};

/* The changes of names in the checkpoint. */
struct ofs_publish_plan {
	struct ofs_publish_name *name;
	size_t n, cap;
	uint64_t gen; /* inode of gen/, if the directories are exchanged */
	bool swap;    /* the directories are exchanged */
	bool at_once; /* they have to be */
	char id[OFS_PUBLISH_ID]; /* of a decision made elsewhere, or "" */
};

/* A way of publishing. */
struct ofs_publisher_ops {
	const char *dir; /* directory of new files in the stage */
	/* Finds whether rel replaces a file. Opens the file whose mode, owner
	 * and attributes the new one gets: rel or like; -1: none. */
	int (*find)(const struct ofs_publish *p, const char *rel,
	    const char *like, enum ofs_publish_kind *kind);
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
};

/* publish.c */
/* ofs_publish_begin for any publisher; ctx is borrowed. */
struct ofs_publish *ofs_publish_with(const struct ofs_publisher_ops *ops,
    void *ctx, int stage, struct optimfs_error *err);
int ofs_publish_add(struct ofs_publish_plan *plan, const char *rel,
    enum ofs_publish_kind kind, int fd, uint64_t ino,
    struct optimfs_error *err);
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

/* publish_recover.c: removes the files of an unpublished commit from the
 * checkpoint. */
void ofs_publish_take_back(int dir, const struct ofs_publish_plan *plan);

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

#endif
