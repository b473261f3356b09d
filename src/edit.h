/* edit.h - what a writer has changed and not committed */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_EDIT_H
#define OFS_EDIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "catalog.h"
#include "ranges.h"
#include "stage.h"

/* Catalog and tree are const. A mount that may be written has a struct
 * ofs_edit beside them (fs->edit; NULL when read-only): names that were added,
 * moved or removed, and for each file that was touched its bytes.
 *
 * A tensor keeps its shards. Bytes written to it lie at their logical offsets
 * in a sparse file of the stage, with the set of ranges that were written; a
 * reader gets the stored elements, and these laid over them. That is done for
 * the boxes of tensors that compositions are made of, so that the tree, npy,
 * rank and every view show the same at once.
 *
 * A text (a value, a tensor without dimensions) is staged whole, once it has
 * been checked: until then, and if it is refused, the old one stays. */
struct ofs_edit;
struct optimfs;

/* One file that differs from the checkpoint. */
struct ofs_change {
	enum ofs_change_kind {
		OFS_CHANGE_DATA,   /* bytes of a tensor; shape and dtype as they
				   * were */
		OFS_CHANGE_VALUE,  /* a text says something else: text */
		OFS_CHANGE_ADD,    /* a file that the checkpoint has not, or not
				   * with this name, shape or dtype */
		OFS_CHANGE_REMOVE, /* one that is there no more, or not there:
				    * a renamed file is REMOVE and ADD */
	} kind;
	/* The entry of the base catalog. ADD: OFS_NONE. */
	uint32_t entry;
	/* ADD: the entry whose bytes (or value) show where nothing is written
	 * (it was renamed or reshaped); OFS_NONE. */
	uint32_t from;
	/* The path below the mount point, components unencoded: keys may hold
	 * "/", not NUL. */
	const char *const *key;
	uint32_t nkeys;
	const char *path; /* the same as the mount shows it */

	/* A tensor's. DATA: as in the catalog. ADD: what shape and dtype
	 * attributes, the sibling states or the model say; dtype OFS_DTYPE_NONE
	 * when nothing does: then it is a text, or unknown. */
	uint8_t dtype, ndim;
	const uint64_t *shape;
	/* DATA, ADD: the file's size; the ranges that were written, at their
	 * offsets in fd (-1 when nothing was). All other bytes are those of
	 * entry or from. VALUE of a tensor without dimensions: as DATA, with
	 * its element as bytes. */
	uint64_t size;
	struct ofs_ranges written;
	int fd;
	/* VALUE; ADD of a text: what was written, as it was written. NULL: a
	 * tensor, or too long (16 MiB) to be a value. */
	const char *text;
	size_t ntext;
	/* Why it cannot be committed as it is; code 0: nothing is wrong. */
	struct optimfs_error problem;
};

/* A snapshot, sorted by path bytewise. */
struct ofs_changes {
	struct ofs_edit *edit;
	struct ofs_change *v;
	size_t n;
	struct ofs_arena arena;
};

/* Take a snapshot and hold back whoever wants to change something until
 * ofs_changes_free: all that v points to stays as it is. Readers go on. EBUSY
 * (OFS815) while another holds one. Problems do not fail it. */
int ofs_edit_changes(struct ofs_edit *edit, struct ofs_changes *out,
    struct optimfs_error *err);
void ofs_changes_free(struct ofs_changes *c);
/* Fails with the first problem, and how many there are. */
int ofs_changes_check(const struct ofs_changes *c, struct optimfs_error *err);
/* len bytes at off, inside the file, as a reader of the mount sees them:
 * elements of a tensor in C order. */
int ofs_change_read(struct optimfs *fs, const struct ofs_change *c, void *buf,
    uint64_t len, uint64_t off, struct optimfs_error *err);
/* The changes of a snapshot that is still held were published: nothing is
 * staged any more, and fs shows a checkpoint that is gone. */
int ofs_edit_published(struct ofs_changes *c, struct optimfs_error *err);
/* For messages of progress, and for new/. */
struct ofs_stage *ofs_edit_stage(const struct ofs_edit *edit);

#endif
