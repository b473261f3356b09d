/* format.h - what an on-disk format says about itself */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_H
#define OFS_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "base/io.h"
#include "catalog/catalog.h"

struct ofs_file_head;
struct ofs_files;
struct ofs_layout;
struct ofs_part;
struct ofs_parts;
struct ofs_render;
struct ofs_update_ops;

/* How sure a format is that something is its own: 0 no .. 100 certain. Up to
 * OFS_BID_ASKED it takes a directory only when type= names the format. */
#define OFS_BID_ASKED 10

/* A name of views in a format: FORMAT[@LAYOUT]. */
struct ofs_view_kind {
	const char *name;
	bool ranked;               /* it takes @LAYOUT */
	bool blobs;                /* tensors are in safetensors blobs */
	const char *const *listed; /* with layouts, to be listed; NULL: none */
};

/* One const instance per format, all listed in detect/registry.c, which alone
 * knows them. What a member says holds in no other place: nobody asks which
 * format it is. */
struct ofs_format {
	const char *name;
	const char *title; /* as people call it; NULL: by its name */

	/* Files in this format. */

	/* Extensions of names, with the dot, of files in a directory that are
	 * looked at; up to NULL. NULL: none. */
	const char *const *extensions;
	/* Other programs write such files, too: one of them does not make its
	 * directory a checkpoint. */
	bool generic;
	/* Files whose names differ in a rank's number are one part. */
	bool ranked;
	/* Which rank of how many wrote the file rel, as tensors in it say: 1; 0:
	 * they do not; -1: ENOMEM. NULL: no file does. */
	int (*writer)(const struct ofs_dir *dir, const char *rel, int *rank,
	    int *world, struct optimfs_error *err);
	/* How sure is it that a file with these first bytes is its own? -1: it
	 * is a file that nobody may read (err). NULL: it has no files. */
	int (*bid_file)(const struct ofs_file_head *head,
	    struct optimfs_error *err);

	/* Directories in this format. */

	/* The same for a directory with these names; -1: ENOMEM, or it is of a
	 * kind that cannot be read (err). NULL: it has no directories. */
	int (*bid)(const struct ofs_dir *dir, const struct ofs_names *names,
	    struct optimfs_error *err);
	const char *trainer; /* that writes such directories; NULL: several */
	const char *prefix;  /* before what is in one; NULL: nothing */
	/* A file of torch.save in the directory that is part of it, and its
	 * prefix; NULL: there is none. */
	const char *beside, *beside_prefix;
	/* Weights in whole files beside it are a copy of its own. */
	bool has_weights;
	/* Does a file of dir name the last checkpoint, and is that in this
	 * format? 1: *name, malloc'ed; 0; -1. NULL: no such files. */
	int (*latest)(const struct ofs_dir *dir, const struct ofs_names *names,
	    char **name, struct optimfs_error *err);

	/* Files that say something about others. */

	/* Is a file called so the index of its directory, which is what who
	 * names the file means? NULL: there are no such files. */
	bool (*is_index)(const char *name);
	/* Is a file called so of no use without the index of its directory?
	 * NULL: there are no such files. */
	bool (*is_shard)(const char *name);
	/* Add the part of dir that is to be read after all files are. NULL:
	 * there is none. */
	int (*add_index)(const struct ofs_dir *dir,
	    const struct ofs_names *names, struct ofs_parts *parts,
	    struct optimfs_error *err);
	/* The file that says that those beside it are of ranks; NULL. */
	const char *ranks_file;

	/* Reading. */

	/* Can the options be what the user meant (EINVAL, ENOENT)? NULL: it has
	 * none. */
	int (*check_options)(const struct optimfs_options *opt,
	    struct optimfs_error *err);
	/* Add every tensor, value and object of part to cat. On failure cat is
	 * only good for freeing. NULL: another format reads what this writes.
	 */
	int (*read)(struct ofs_catalog *cat, const struct ofs_part *part,
	    const struct optimfs_options *opt, struct optimfs_error *err);
	/* Only a pickle is a file of it. */
	bool bare;
	/* Once all parts are in cat, and before its entries are named: bring
	 * what they hold together. NULL: it is so already. */
	int (*join)(struct ofs_catalog *cat, struct optimfs_error *err);
	/* Behind that, for every checkpoint: keep what the options say for
	 * whoever will ask. NULL: nothing. */
	int (*keep_options)(struct ofs_catalog *cat,
	    const struct optimfs_options *opt, struct optimfs_error *err);

	/* Writing views. */

	const struct ofs_view_kind
	    *views; /* up to one without a name; NULL: none */
	/* Take the n bytes at s for an option of a view; false: it has none
	 * such, or not with that value. src/layout/option.h */
	bool (*option)(const char *s, size_t n, struct ofs_layout *l);
	/* Lay a checkpoint out as to says: src/layout/render.h. Values that
	 * are not in memory are read, tensors are not. */
	int (*render)(const struct ofs_render *from,
	    const struct ofs_layout *to, struct ofs_files **out,
	    struct optimfs_error *err);

	/* Committing changes: src/rewrite/update.h. NULL: only bytes of
	 * tensors can change. */
	const struct ofs_update_ops *update;
};

#endif
