/* template.h - a checkpoint to be: its files in a layout, without tensors */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_PUSH_TEMPLATE_H
#define OFS_PUSH_TEMPLATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "optimfs/error.h"

#include "fs/fs.h"
#include "layout/render.h"

/* Beside an empty directory PARENT/NAME lies, in its stage (journal/stage.h):
 *
 *     template/        the files of a layout, as long as they will be: all of
 *                      them but the elements of tensors, which are holes
 *     template.info    which layout that is, and where checksums go: written
 *                      last, so that what has it is complete
 *
 * Once all elements are there, and the checksums, template/ is the checkpoint
 * and gets its name. The template of a layout whose items are compressed is
 * that of the same layout without. */
#define OFS_TEMPLATE      "template"
#define OFS_TEMPLATE_INFO "template.info"
/* The same, once the template is about to get its name: push/commit.c. */
#define OFS_TEMPLATE_DONE "template.done"

/* Four bytes at at are the CRC-32 of n bytes at from, of one file. */
struct ofs_template_sum {
	uint32_t file;
	uint64_t at, from, n;
};

struct ofs_template {
	char layout[OFS_VIEW_NAME]; /* that was asked for */
	struct ofs_template_file {
		char name[OFS_FILE_NAME];
		uint64_t size;
	} * file;
	uint32_t n, file_cap;
	struct ofs_template_sum *sum; /* in the order of file, from */
	size_t nsums, cap;
	/* Texts that are the layout's own affair, by their place in the tree:
	 * the source has none such (provided), and they need not be written; or
	 * another text, with this hash, that may be written and says nothing.
	 * Or float32 weights of the optimizer that the source has only in its
	 * model (derived): nor need they be written. */
	struct ofs_template_own {
		char *path;
		bool provided, derived;
		uint64_t hash;
	} * own;
	uint32_t nown, own_cap;
	uint64_t done, total; /* bytes of its files, while it is written */
};

void ofs_template_fini(struct ofs_template *s);

/* template.c */
/* Write the files of a view to dir, which is empty, and sync them; what s says
 * of them is filled in. */
int ofs_template_write(struct ofs_snapshot *snap, struct ofs_at view, int dir,
    struct ofs_template *s, struct optimfs_error *err);

/* template_match.c */
/* Find the layout's own texts of the template at path, which was made of like.
 * EOPNOTSUPP (OFS833): what is copied from like would not be all that the
 * layout has, or have no place in it. */
int ofs_template_match(struct ofs_snapshot *like, const char *path,
    struct ofs_template *s, struct optimfs_error *err);
/* Are the elements of optim/state/NAME/fp32, which is node, those of
 * model/NAME, or such that they widen to them without loss? Then that one's
 * node; OFS_NONE. */
uint32_t ofs_template_model(const struct ofs_snapshot *made, uint32_t node);
uint64_t ofs_template_hash(const void *text, size_t n);

/* template_sums.c */
/* Any of it may be NULL. */
struct ofs_template_summing {
	_Atomic uint64_t *done;  /* counts bytes */
	bool (*stop)(void *ctx); /* asked now and then: ECANCELED */
	/* The CRC-32 of n bytes at from of a file, if somebody has it. */
	bool (*known)(void *ctx, uint32_t file, uint64_t from, uint64_t n,
	    uint32_t *crc);
	void *ctx;
};
/* Write all checksums of the files in dir, whose other bytes are there. */
int ofs_template_sums(const struct ofs_template *s, int dir,
    const struct ofs_template_summing *how, struct optimfs_error *err);

/* template_info.c */
/* Complete and synced, or not there. */
int ofs_template_save(const struct ofs_template *s, int stage,
    struct optimfs_error *err);
/* EUCLEAN (OFS831): it says nothing that can be. */
int ofs_template_load(int stage, struct ofs_template *s,
    struct optimfs_error *err);
/* What optimfs_mkfs does on one rank. */
int ofs_template_make(struct optimfs *like, const char *layout, const char *dir,
    struct optimfs_error *err);
/* Is dir empty, or not there? EEXIST (OFS830). */
int ofs_template_room(const char *dir, struct optimfs_error *err);
/* Is there one for dir, which is an empty directory? *path gets where its files
 * are, malloc'ed. 1; 0: no; -1: out of memory. */
int ofs_template_find(const char *dir, char **path, struct optimfs_error *err);
/* Was one about to get dir as its name when that was cut short? */
bool ofs_template_done(const char *dir);

#endif
