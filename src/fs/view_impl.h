/* view_impl.h - what a view is */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FS_VIEW_IMPL_H
#define OFS_FS_VIEW_IMPL_H

#include <sys/queue.h>

#include "base/arena.h"
#include "fs/view.h"
#include "layout/render.h"

/* The files of a view and the directories they lie in: 0 is the view itself.
 * Children are a run of nodes, in the order of their names. */
struct ofs_view_names {
	struct ofs_view_node {
		const char *name; /* a component */
		uint32_t parent, child, nchild;
		uint32_t file;         /* of files; OFS_NONE: a directory */
		_Atomic uint64_t size; /* plus one; 0 while not known */
	} * v;
	uint32_t n;
	struct ofs_arena arena;
};

/* view_names.c */
struct ofs_view_names *ofs_view_names_new(const struct ofs_files *files,
    struct optimfs_error *err);
void ofs_view_names_free(struct ofs_view_names *names);
/* OFS_NONE: nothing in dir is called so. */
uint32_t ofs_view_names_find(const struct ofs_view_names *names, uint32_t dir,
    const char *name);
/* Below the view. */
void ofs_view_names_path(const struct ofs_view_names *names, uint32_t index,
    char path[OFS_FILE_NAME]);

struct ofs_views;
struct ofs_view_dir {
	struct ofs_snapshot *snap;
	struct ofs_views
	    *views; /* that it is one of: a commit changes snap's */
	char name[OFS_VIEW_NAME];
	struct ofs_layout layout;
	uint64_t ino;
	atomic_bool retired; /* by this name there is another from now on */
	/* Of an edited mount: what was staged when it was looked up, as names
	 * and kinds of files go; there is another view of this name for what
	 * is staged later. */
	uint64_t generation;
	struct ofs_edition *edition;          /* NULL: nothing was */
	struct ofs_view_names *_Atomic names; /* NULL until laid out */
	/* How its files are made: NULL until laid out, and again when nobody
	 * has used it for long. */
	struct ofs_files *files;
	unsigned users;
	TAILQ_ENTRY(ofs_view_dir) unused; /* linked with files and no users */
};

/* The files of a view, until they are let go of. NULL: err says why. */
struct ofs_files *ofs_view_hold(struct ofs_view_dir *v,
    struct optimfs_error *err);
void ofs_view_let(struct ofs_view_dir *v);

struct ofs_view_dir *ofs_view_at(const struct ofs_snapshot *snap,
    struct ofs_at at);

#endif
