/* publish_impl.h - what the parts of publishing share */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_JOURNAL_PUBLISH_IMPL_H
#define OFS_JOURNAL_PUBLISH_IMPL_H

#include "journal/publish.h"

#define OFS_PUBLISH_NEW    "new"
#define OFS_PUBLISH_GEN    "gen"
#define OFS_PUBLISH_RECORD "publish"

struct ofs_publish_name {
	char *rel;
	char *like; /* one that lies where this one should; NULL: not kept */
	enum ofs_publish_kind {
		OFS_PUBLISH_CREATE,
		OFS_PUBLISH_REPLACE,
		OFS_PUBLISH_REMOVE,
		OFS_PUBLISH_DONE, /* in memory only: it is in place */
	} kind;
	int fd;
	uint64_t ino; /* of the new file; it keeps it when it is renamed */
};

/* What a commit does to the names of the checkpoint. */
struct ofs_publish_plan {
	struct ofs_publish_name *name;
	size_t n, cap;
	uint64_t gen; /* inode of gen/, where it takes the old one's place */
	bool swap;    /* it does */
	bool at_once; /* it must */
	char id[OFS_PUBLISH_ID]; /* of a decision to be made elsewhere, or "" */
};

/* Where new files go, and how they get there. */
struct ofs_publisher_ops {
	const char *dir; /* of the stage: what is new, until it is published */
	/* Is there a file called rel to be replaced? Open the one whose mode,
	 * owner and attributes a new one gets: it, or like; -1: none. */
	int (*find)(const struct ofs_publish *p, const char *rel,
	    const char *like, enum ofs_publish_kind *kind);
	bool keeps_like; /* the plan has what each file is like */
	/* ofs_publish_commit when there is something to publish. */
	int (*commit)(struct ofs_publish *p, struct optimfs_error *err);
	/* Remove what is left of preparations. */
	void (*clear)(struct ofs_publish *p);
};

struct ofs_publish {
	const struct ofs_publisher_ops *ops;
	void *ctx; /* of ops */
	const char *source;
	int dir, stage, new, parent;
	char *base; /* dir's name in parent; NULL where it has none */
	struct ofs_publish_plan plan;
	bool moved;     /* new files may stand in the checkpoint */
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
/* Open a directory of the stage, made if it is not there; -1. */
int ofs_publish_dir(int at, const char *name, struct optimfs_error *err);
/* Make the directories that rel lies in. like: they are there to stay, are as
 * open as this directory, and their names are safe when this returns; -1. */
int ofs_publish_parents(int at, const char *rel, int like,
    struct optimfs_error *err);
/* fsync the directory that rel lies in; -1 with errno. */
int ofs_publish_sync_dir(int at, const char *rel);
/* The parent of dir and dir's name in it: -1 with err when it has none. */
int ofs_publish_parent(const char *source, int dir, int *parent, char **base,
    struct optimfs_error *err);

/* publish_recover.c: remove what a commit that was not published left among the
 * files of the checkpoint. */
void ofs_publish_take_back(int dir, const struct ofs_publish_plan *plan);

/* publish_record.c: write it and make it safe; read it: 1, or 0 when there is
 * none or it is torn, which means that nothing was done. */
int ofs_publish_write_record(int stage, const struct ofs_publish_plan *plan,
    struct optimfs_error *err);
int ofs_publish_read_record(int stage, struct ofs_publish_plan *plan,
    struct optimfs_error *err);

/* publish_swap.c: a complete directory in gen/, and the exchange. */
int ofs_publish_build(struct ofs_publish *p, struct optimfs_error *err);
int ofs_publish_exchange(struct ofs_publish *p, struct optimfs_error *err);

#endif
