/* view_impl.h - the parts of a view */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FS_VIEW_IMPL_H
#define OFS_FS_VIEW_IMPL_H

#include <sys/queue.h>

#include "base/arena.h"
#include "fs/view.h"
#include "fs/view_table.h"
#include "layout/render.h"

/* The files and directories of a view; node 0 is the view itself. The children
 * of a directory are adjacent and sorted by name. */
struct ofs_view_names {
	struct ofs_view_node {
		const char *name; /* the last component */
		uint32_t parent, child, nchild;
		uint32_t file; /* index of the file; OFS_NONE: a directory */
		_Atomic uint64_t size; /* plus one; 0: unknown */
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
/* The path of a node below its view. */
void ofs_view_names_path(const struct ofs_view_names *names, uint32_t index,
    char path[OFS_FILE_NAME]);

struct ofs_views;
struct ofs_view_dir {
	struct ofs_snapshot *snap;
	struct ofs_views
	    *views; /* the table it belongs to; a commit changes snap->views */
	char name[OFS_VIEW_NAME];
	struct ofs_layout layout;
	uint64_t ino;
	uint32_t number; /* the members up to retired: view_table.h */
	unsigned pins;
	uint64_t used;
	bool retired; /* replaced by a newer view of this layout */
	/* The changes that were staged when the view was looked up, for names
	 * and kinds of files. A view of the same name that is looked up later
	 * shows later changes. */
	uint64_t generation;
	struct ofs_merged *merged;    /* NULL: no changes */
	struct ofs_catalog *unpacked; /* for the option dequantize; or NULL */
	struct ofs_reader unpacked_reader; /* of it, where it is renamed */
	struct ofs_renamed *renamed;       /* for the option names=; or NULL */
	struct ofs_view_names *_Atomic names; /* NULL until laid out */
	/* The description of its files: NULL until laid out, and after it was
	 * dropped because it was unused for long. */
	struct ofs_files *files;
	unsigned users;
	TAILQ_ENTRY(ofs_view_dir)
	unused; /* linked while files is set and users is 0 */
};

struct ofs_views {
	/* Elements that were read while views were laid out. Those of an
	 * optimizer's 0-dim tensors (step) are compared with each other, in each
	 * layout that wants them equal. A slot is chosen by the number of the
	 * tensor. */
	struct ofs_view_elements {
		pthread_mutex_t lock;
		struct {
			uint32_t tensor; /* plus one; 0: none */
			uint8_t bytes[16];
		} * slot;        /* NULL: none was read */
		uint32_t nslots; /* a power of 2 */
	} elements;
	/* protects making views and their files, and the members below */
	pthread_mutex_t lock;
	struct ofs_merged *merged;         /* of a running commit, or NULL */
	TAILQ_HEAD(, ofs_view_dir) unused; /* oldest first */
	unsigned nunused, nlaid_out;
	uint32_t nnames;
	struct ofs_view_table table; /* has a lock of its own */
};

/* A view shows names and values as they were when it was looked up. 0 while
 * nothing is staged that changes its files. */
uint64_t ofs_view_generation(const struct ofs_snapshot *snap,
    const struct ofs_layout *layout);

/* view_render.c */
/* Lays the files of a view out; its lock is held. */
struct ofs_files *ofs_view_render(struct ofs_view_dir *v,
    struct optimfs_error *err);
/* The catalog that the view shows, and what reads it; the view is laid out. */
const struct ofs_catalog *ofs_view_catalog(const struct ofs_view_dir *v);
struct ofs_reader *ofs_view_reader_of(const struct ofs_view_dir *v);
/* Fails if something is staged, and the view has other names (OFS898). */
int ofs_view_check_unstaged(const struct ofs_view_dir *v,
    struct optimfs_error *err);

/* view.c */
/* ofs_view_hold returns the description of the files of a view, which stays
 * valid until ofs_view_let. NULL: failed. */
struct ofs_files *ofs_view_hold(struct ofs_view_dir *v,
    struct optimfs_error *err);
void ofs_view_let(struct ofs_view_dir *v);

/* The view that a node belongs to, pinned until ofs_view_put. NULL: it made room
 * for others (ESTALE, OFS776). */
struct ofs_view_dir *ofs_view_get(const struct ofs_snapshot *snap,
    struct ofs_at at, struct optimfs_error *err);
void ofs_view_put(struct ofs_view_dir *v);

#endif
