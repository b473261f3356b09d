/* overlay.h - what a writer has changed and not committed */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_OVERLAY_H
#define OFS_OVERLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "optimfs/error.h"

#include "base/arena.h"
#include "base/blob.h"
#include "base/ranges.h"
#include "catalog/catalog.h"
#include "journal/stage.h"
#include "tree/tree.h"

/* Catalog and tree are const. A mount that may be written has a struct
 * ofs_overlay beside them (fs->overlay; NULL when read-only): names that were added,
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
struct ofs_overlay;

/* What the overlay asks of whoever shows it. */
struct ofs_overlay_reader {
	/* What a text of the checkpoint says; one reference. */
	struct ofs_blob *(*text)(void *ctx, uint32_t node,
	    struct optimfs_error *err);
	/* Does text[0..n) fit in the place of node, which is a text? canonical,
	 * which may be NULL, gets it as it will be shown; element, which may be
	 * NULL, that of a tensor. */
	int (*fits)(void *ctx, uint32_t node, const char *text, size_t n,
	    struct ofs_buf *canonical, uint8_t element[16],
	    struct optimfs_error *err);
	/* As ofs_overlay_shut. */
	void (*shut)(void *ctx);
	void (*log)(void *ctx, const struct optimfs_error *why);
};

/* The checkpoint that it lies over. */
struct ofs_overlay_base {
	const struct ofs_catalog *cat;
	const struct ofs_tree *tree;
	uint32_t first; /* nodes that are made have numbers from here on */
	const struct ofs_overlay_reader *reader;
	void *ctx; /* of reader */
};

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
	 * entry or from. */
	uint64_t size;
	struct ofs_ranges written;
	int fd;
	/* VALUE; ADD of a text, or of a tensor without dimensions: what the file
	 * says. NULL: a tensor, or what from says, or too long (16 MiB) to be a
	 * value. */
	const char *text;
	size_t ntext;
	uint32_t node; /* of the tree; REMOVE: as it was */
	/* Why it cannot be committed as it is; code 0: nothing is wrong. */
	struct optimfs_error problem;
};

/* A snapshot, sorted by path bytewise. */
struct ofs_changes {
	struct ofs_overlay *overlay;
	struct ofs_change *v;
	size_t n;
	struct ofs_arena arena;
};

/* Take a snapshot; no writer may be active, and all that v points to is good
 * while it is. Problems do not fail it. */
int ofs_overlay_changes(struct ofs_overlay *overlay, struct ofs_changes *out,
    struct optimfs_error *err);
void ofs_changes_free(struct ofs_changes *c);
/* Files of the checkpoint are about to be replaced: who reads it and fails has to
 * wait until whoever commits shows what it made, or has failed. */
void ofs_overlay_shut(struct ofs_overlay *overlay);
/* All that was staged is published, and unsafe is NULL, or what the last sync
 * failed with: nothing is to be committed any more. Who is reading reads on. 0:
 * the journal is empty. -1: it has to stay, or could not be emptied; the record
 * of the commit must stay too, the next mount needs both, and until then every
 * change fails. */
int ofs_overlay_published(struct ofs_overlay *overlay,
    const struct optimfs_error *unsafe);
/* Fails with the first problem, and how many there are. */
int ofs_changes_check(const struct ofs_changes *c, struct optimfs_error *err);
/* For messages of progress, and for new/. */
struct ofs_stage *ofs_overlay_stage(const struct ofs_overlay *overlay);

/* Begin; stage is the overlay's then, on failure too. */
struct ofs_overlay *ofs_overlay_new(const struct ofs_overlay_base *base,
    struct ofs_stage *stage, bool scratch, struct optimfs_error *err);
/* What an earlier writer had staged. */
int ofs_overlay_replay(struct ofs_overlay *overlay, struct optimfs_error *err);
/* The next one, over what was published: nothing of it is changed. It takes the
 * stage, but overlay can be read on. same: nodes have the numbers that they had. */
struct ofs_overlay *ofs_overlay_next(struct ofs_overlay *overlay,
    const struct ofs_overlay_base *base, bool same, struct optimfs_error *err);
/* Whatever happens, the stage stays. */
void ofs_overlay_keep(struct ofs_overlay *overlay);
/* What is not committed stays in the stage. */
void ofs_overlay_free(struct ofs_overlay *overlay);
/* Drop everything; no writer may be active. */
int ofs_overlay_abort(struct ofs_overlay *overlay, struct optimfs_error *err);

#define OFS_OVERLAY_DOING 80
struct ofs_overlay_status {
	uint64_t files, bytes; /* that differ; that are staged */
	int percent;           /* of a commit under way; -1: there is none */
	uint64_t done, total;  /* bytes that it writes */
	char doing[OFS_OVERLAY_DOING];
};
void ofs_overlay_status(struct ofs_overlay *overlay,
    struct ofs_overlay_status *status);
/* Does it lie over a template (push/writethrough.h), of which only what was
 * written can be read? */
bool ofs_overlay_is_template(const struct ofs_overlay *overlay);
bool ofs_overlay_dirty(struct ofs_overlay *overlay);
/* How far a commit is, for ofs_overlay_status: percent of all there is to do,
 * and how many of the bytes that it writes. */
void ofs_overlay_progress(struct ofs_overlay *overlay, unsigned percent,
    uint64_t done, uint64_t total);
/* What it is doing: the name of a file, or words; "": something else. */
void ofs_overlay_doing(struct ofs_overlay *overlay, const char *what);
/* How often anything was changed; names, and what files are. */
uint64_t ofs_overlay_generation(const struct ofs_overlay *overlay);
uint64_t ofs_overlay_names_generation(const struct ofs_overlay *overlay);

/* What a text of the checkpoint says now, one reference; NULL: what it did. */
struct ofs_blob *ofs_overlay_accepted(struct ofs_overlay *overlay,
    uint32_t node);
/* What a file is as a tensor. */
struct ofs_overlay_form {
	uint8_t dtype, ndim; /* dtype OFS_DTYPE_NONE: it is none */
	uint64_t shape[OFS_MAX_DIMS];
};
void ofs_overlay_form(struct ofs_overlay *overlay, uint32_t node,
    struct ofs_overlay_form *form);

/* The parameter's name, or the key, of a made node; 0: it has none. */
int ofs_overlay_fqn(struct ofs_overlay *overlay, uint32_t node,
    struct ofs_buf *out);

/* The staged bytes of a tensor of the base, whatever it is called, or of a node;
 * NULL: nothing is staged. */
struct ofs_overlay_file;
struct ofs_overlay_file *ofs_overlay_of_tensor(struct ofs_overlay *overlay,
    uint32_t tensor);
struct ofs_overlay_file *ofs_overlay_of_node(struct ofs_overlay *overlay,
    uint32_t node);
/* Elements [first, first + count) of a box of t (NULL: all of it) in C order.
 * Calls each for runs of those that are not wholly staged, which must be read;
 * a failure of each ends it. */
typedef int ofs_overlay_gap_fn(void *ctx, uint64_t first, uint64_t count,
    struct optimfs_error *err);
int ofs_overlay_gaps(struct ofs_overlay_file *f, const struct ofs_catalog *cat,
    const struct ofs_tensor *t, const uint64_t *box, uint64_t first,
    uint64_t count, ofs_overlay_gap_fn *each, void *ctx,
    struct optimfs_error *err);
/* Put what is staged over buf. EIO (OFS301): the file was cut and not written
 * again. cut: its end may be inside the last element, of which there is then
 * what there is. */
int ofs_overlay_apply(struct ofs_overlay *overlay, struct ofs_overlay_file *f,
    const struct ofs_catalog *cat, const struct ofs_tensor *t,
    const uint64_t *box, uint64_t first, uint64_t count, bool cut, void *buf,
    struct optimfs_error *err);

#endif
