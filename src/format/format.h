/* format.h - the interface of an on-disk format */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_FORMAT_H
#define OFS_FORMAT_FORMAT_H

#include <stdbool.h>
#include <stddef.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "base/io.h"
#include "catalog/catalog.h"

struct ofs_commit;
struct ofs_file_head;
struct ofs_files_ops;
struct ofs_layout;
struct ofs_part;
struct ofs_parts;

/* How sure a format is that a file or directory is its own: 0 no .. 100
 * certain. With a bid of at most OFS_BID_ASKED it gets a directory only if
 * type= names the format. */
#define OFS_BID_ASKED 10

/* A kind of view of a format: FORMAT[@LAYOUT]. */
struct ofs_view_kind {
	const char *name;
	bool ranked; /* takes @LAYOUT */
	int variant; /* which of the format's views it is, in its own numbers */
	bool own;    /* no other layout, but the files that there are */
	/* Names with a layout that listings show; NULL: none. */
	const char *const *listed;
};

/* One const instance per format. Only detect/registry.c lists them all; other
 * code uses the members and never asks which format it has. */
struct ofs_format {
	const char *name;
	const char *title; /* name for people; NULL: name */

	/* Files in this format. */

	/* The extensions, with the dot, of the files that detection opens;
	 * NULL-terminated. NULL: none. */
	const char *const *extensions;
	/* Other programs write such files, too: a directory is no checkpoint
	 * only because it has one. */
	bool generic;
	/* Files whose names differ only in the rank's number form one part. */
	bool ranked;
	/* The rank and world size that tensors in the file rel record: 1; 0:
	 * they record none; 2: the file cannot be read; -1: ENOMEM, ECANCELED.
	 * NULL: no file of the format does. */
	int (*writer)(const struct ofs_dir *dir, const char *rel, int *rank,
	    int *world, struct optimfs_error *err);
	/* The bid for a file with these first bytes; -1: a file that no format
	 * may read (err). NULL: the format has no files. */
	int (*bid_file)(const struct ofs_file_head *head,
	    struct optimfs_error *err);

	/* Directories in this format. */

	/* The bid for a directory with these names; -1: ENOMEM, or a kind of
	 * directory that cannot be read (err). NULL: the format has no
	 * directories. */
	int (*bid)(const struct ofs_dir *dir, const struct ofs_names *names,
	    struct optimfs_error *err);
	const char *trainer; /* writes such directories; NULL: several do */
	const char *prefix;  /* path prefix of the entries; NULL: none */
	/* A torch.save file in the directory that belongs to the checkpoint,
	 * and the path prefix of its entries; NULL: none. */
	const char *beside, *beside_prefix;
	/* Whole weight files that a trainer added to the directory are
	 * copies. */
	bool has_weights;
	/* Does a file in dir name the last checkpoint, and is that one in this
	 * format? 1: *name, malloc'ed; 0; -1. NULL: the format has no such
	 * file. */
	int (*latest)(const struct ofs_dir *dir, const struct ofs_names *names,
	    char **name, struct optimfs_error *err);

	/* Files that describe other files. */

	/* Is this the name of an index, which stands for its directory if a
	 * user names it? NULL: the format has no index. */
	bool (*is_index)(const char *name);
	/* Is this the name of a file that needs the index of its directory?
	 * NULL: the format has no such files. */
	bool (*is_shard)(const char *name);
	/* Adds the part of dir that is read after all files. NULL: the format
	 * has none. */
	int (*add_index)(const struct ofs_dir *dir,
	    const struct ofs_names *names, struct ofs_parts *parts,
	    struct optimfs_error *err);
	/* The file whose presence shows that the files next to it are one per
	 * rank; NULL: none. */
	const char *ranks_file;

	/* What it reads is not a state, but changes of one. */
	bool changes;

	/* Reading. */

	/* Are the options consistent (EINVAL, ENOENT)? NULL: the format has no
	 * options. */
	int (*check_options)(const struct optimfs_options *opt,
	    struct optimfs_error *err);
	/* Adds every tensor, value and object of part to cat. After a failure
	 * cat can only be freed. NULL: another format's reader reads these
	 * files. */
	int (*read)(struct ofs_catalog *cat, const struct ofs_part *part,
	    const struct optimfs_options *opt, struct optimfs_error *err);
	/* A file is a bare pickle, never an archive. */
	bool bare;
	/* Combines entries of all parts, before entries get their names. NULL:
	 * nothing to combine. */
	int (*join)(struct ofs_catalog *cat, struct optimfs_error *err);
	/* Called after join, for every checkpoint: keeps options in the catalog
	 * for later use. NULL: nothing to keep. */
	int (*keep_options)(struct ofs_catalog *cat,
	    const struct optimfs_options *opt, struct optimfs_error *err);

	/* Writing views. */

	const struct ofs_view_kind
	    *views; /* ends with one without a name; NULL: none */
	/* Parses the n bytes at s as an option of a view; false: no such
	 * option, or not with that value. src/layout/option.h */
	bool (*option)(const char *s, size_t n, struct ofs_layout *l);
	/* Lays a checkpoint out: src/layout/render.h. NULL: no views. */
	const struct ofs_files_ops *render;

	/* Lays out what a commit changes in a part: adds its new files, as
	 * compositions, and the names to remove (src/rewrite/files.h). NULL: a
	 * commit can change only the bytes of tensors, or, if read_only,
	 * nothing. */
	int (*update)(struct ofs_commit *c, const struct ofs_part *part,
	    struct optimfs_error *err);
	bool fixed_names; /* a commit cannot change names */
	/* Patterns of what belongs to the optimizer in the tree, beside optim;
	 * ends with NULL. NULL: nothing. */
	const char *const *optim;
	/* Patterns of what stays of it all, because the weights or their names
	 * are there; as optim. NULL: nothing stays. May return NULL. */
	const char *const *(*stays)(const struct ofs_catalog *cat);
	/* Only an index says where data is: bytes of other files that nothing is
	 * stored in mean nothing, and a commit leaves there what it removes. */
	bool holes;
	bool read_only;
};

/* A file of any kind as one leaf of bytes. */
extern const struct ofs_format ofs_format_raw;

#endif
