/* template.h - a checkpoint to be: a layout, and another one's names and shapes */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_PUSH_TEMPLATE_H
#define OFS_PUSH_TEMPLATE_H

#include <stdbool.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "fs/fs.h"

/* The stage (journal/stage.h) beside an empty directory PARENT/NAME contains:
 *
 *     template.info    the layout, and the checkpoint that NAME will be like
 *     filled/          while a commit writes it: the new checkpoint
 *
 * NAME is mounted with the tree of that checkpoint, hidden until files are
 * created (overlay/hidden.c). */
#define OFS_TEMPLATE_INFO "template.info"
/* template.info is renamed to this before filled/ gets its name: push.c. */
#define OFS_TEMPLATE_DONE "template.done"

struct ofs_template {
	char layout[OFS_VIEW_NAME]; /* as requested */
	char *like;                 /* absolute, or an address */
	/* The options that say how to read it, in the order of
	 * template_info.c; NULL: not given. */
	char *option[9];
	bool follow;    /* as in struct optimfs_options */
	char *identity; /* of its files; NULL: not known */
};

void ofs_template_fini(struct ofs_template *t);
/* template_info.c */
/* What a new checkpoint like an opened one is. EOPNOTSUPP (OFS833): that cannot be
 * opened again by its path alone. */
int ofs_template_of(const struct optimfs *like, const char *layout,
    struct ofs_template *t, struct optimfs_error *err);
/* Writes template.info, atomically and synced. */
int ofs_template_save(const struct ofs_template *t, int stage,
    struct optimfs_error *err);
/* EUCLEAN (OFS831): invalid contents. */
int ofs_template_load(int stage, struct ofs_template *t,
    struct optimfs_error *err);
/* Adds how to read like to the options of a mount. They borrow from t. EINVAL
 * (OFS836): they have other values already. */
int ofs_template_options(const struct ofs_template *t,
    struct optimfs_options *options, struct optimfs_error *err);
/* ESTALE (OFS837): the files of like, which was read again, are others than those
 * for which the template was made. */
int ofs_template_same(const struct ofs_template *t,
    const struct ofs_catalog *like, struct optimfs_error *err);
/* Does the empty directory dir wait for its first commit? t (may be NULL) gets what
 * it will be, if that can be read. */
bool ofs_template_find(const char *dir, struct ofs_template *t);
/* Was a new checkpoint about to be renamed to dir when the process was
 * interrupted? */
bool ofs_template_done(const char *dir);
/* template.c */
/* The work of optimfs_mkfs on one rank. */
int ofs_template_make(struct optimfs *like, const char *layout, const char *dir,
    struct optimfs_error *err);
/* EEXIST (OFS830) unless dir is empty or absent. */
int ofs_template_room(const char *dir, struct optimfs_error *err);
/* Makes dir, unless it exists, and syncs its name. *made: it is new. */
int ofs_template_dir(const char *dir, bool *made, struct optimfs_error *err);

#endif
