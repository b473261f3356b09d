/* template.h - a checkpoint to be: its files in a layout, without tensors */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_PUSH_TEMPLATE_H
#define OFS_PUSH_TEMPLATE_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "fs/fs.h"

/* The stage (journal/stage.h) beside an empty directory PARENT/NAME contains:
 *
 *     template/        the files of a layout in their final size, complete
 *                      except for the elements of tensors, which are holes
 *     template.info    the layout, and what need not be written; written last, so
 *                      that its presence means that the template is complete
 *
 * Once all elements and checksums are written, template/ is the checkpoint and
 * is renamed to NAME. The template of a layout with compressed items is that of
 * the same layout without compression. */
#define OFS_TEMPLATE      "template"
#define OFS_TEMPLATE_INFO "template.info"
/* template.info is renamed to this before the template gets its name:
 * writethrough_commit.c. */
#define OFS_TEMPLATE_DONE "template.done"

struct ofs_template {
	char layout[OFS_VIEW_NAME]; /* as requested */
	/* Texts that belong to the layout, by their path in the tree. provided:
	 * the source has no such text, and it need not be written. Otherwise
	 * the source has another text, with this hash, which may be written and
	 * is ignored. derived: float32 weights of the optimizer that the source
	 * has only in its model; they need not be written either. */
	struct ofs_template_own {
		char *path;
		bool provided, derived;
		uint64_t hash;
	} * own;
	uint32_t nown, own_cap;
};

void ofs_template_fini(struct ofs_template *s);

/* template_match.c */
/* Finds the texts of the template at path that belong to the layout; the
 * template was made for the checkpoint like. EOPNOTSUPP (OFS833): the contents
 * of like would not fill the layout, or not fit into it. */
int ofs_template_match(struct ofs_snapshot *like, const char *path,
    struct ofs_template *s, struct optimfs_error *err);
/* Are the elements of node optim/state/NAME/fp32 those of model/NAME, possibly
 * after a lossless cast? Then the node of model/NAME; else OFS_NONE. */
uint32_t ofs_template_model(const struct ofs_snapshot *made, uint32_t node);
uint64_t ofs_template_hash(const void *text, size_t n);

/* template_info.c */
/* Writes template.info, atomically and synced. */
int ofs_template_save(const struct ofs_template *s, int stage,
    struct optimfs_error *err);
/* EUCLEAN (OFS831): invalid contents. */
int ofs_template_load(int stage, struct ofs_template *s,
    struct optimfs_error *err);
/* template.c */
/* The view of this layout, without compression, whose files a template is: the
 * sizes of compressed items are only known after writing them. */
int ofs_template_view(struct ofs_snapshot *snap, const char *layout,
    struct ofs_at *view, bool *compressed, struct optimfs_error *err);
/* The work of optimfs_mkfs on one rank. */
int ofs_template_make(struct optimfs *like, const char *layout, const char *dir,
    struct optimfs_error *err);
/* EEXIST (OFS830) unless dir is empty or absent. */
int ofs_template_room(const char *dir, struct optimfs_error *err);
/* Makes dir, unless it exists, and syncs its name. *made: it is new. */
int ofs_template_dir(const char *dir, bool *made, struct optimfs_error *err);
/* Is there a template for the empty directory dir? *path gets the directory of
 * its files, malloc'ed. 1: yes; 0: no; -1: out of memory. */
int ofs_template_find(const char *dir, char **path, struct optimfs_error *err);
/* Was a template about to be renamed to dir when the process was
 * interrupted? */
bool ofs_template_done(const char *dir);

#endif
