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
#include "read/patch.h"
#include "tree/tree.h"

/* Catalog and tree never change. A writable mount adds a struct ofs_overlay
 * (snap->overlay; NULL when read-only): the names that were added, moved or
 * removed, and the new bytes of changed files.
 *
 * A tensor keeps its shards. Bytes written to it go to their logical offsets in
 * a sparse file of the stage, together with the set of written ranges. A reader
 * gets the stored elements with these bytes over them. This is done per box of
 * a tensor, the unit of compositions, so that the tree, npy/, rank/ and all
 * views agree.
 *
 * A text (a value, or a 0-dim tensor) is staged as a whole, after it was
 * checked. Until then, and if it is refused, the old text stays. */
struct ofs_overlay;

/* Callbacks to the file system that shows the overlay. */
struct ofs_overlay_reader {
	/* The text of a node of the checkpoint; a reference. */
	struct ofs_blob *(*text)(void *ctx, uint32_t node,
	    struct optimfs_error *err);
	/* May text[0..n) replace the text of node? canonical (may be NULL) gets
	 * the normalised text; element (may be NULL) gets the bytes of a
	 * tensor's element. */
	int (*fits)(void *ctx, uint32_t node, const char *text, size_t n,
	    struct ofs_buf *canonical, uint8_t element[16],
	    struct optimfs_error *err);
	/* As ofs_overlay_shut. */
	void (*shut)(void *ctx);
	void (*log)(void *ctx, const struct optimfs_error *why);
};

/* The checkpoint below the overlay. */
struct ofs_overlay_base {
	const struct ofs_catalog *cat;
	const struct ofs_tree *tree;
	uint32_t first; /* numbers of added nodes start */
	const struct ofs_overlay_reader *reader;
	void *ctx; /* of reader */
};

/* One file that differs from the checkpoint. */
struct ofs_change {
	enum ofs_change_kind {
		OFS_CHANGE_DATA, /* bytes of a tensor; shape and dtype unchanged */
		OFS_CHANGE_VALUE, /* a new text */
		OFS_CHANGE_ADD, /* a file that the checkpoint lacks, or has with another name, shape or dtype */
		OFS_CHANGE_REMOVE, /* a file that was removed or moved; a rename is REMOVE and ADD */
	} kind;
	/* The entry of the base catalog. ADD: OFS_NONE. */
	uint32_t entry;
	/* ADD: the entry that supplies the bytes (or value) that were not
	 * written, after a rename or reshape; OFS_NONE: none. */
	uint32_t from;
	/* The components of the path below the mount point, unescaped: they may
	 * contain "/", but not NUL. */
	const char *const *key;
	uint32_t nkeys;
	const char *path; /* the path as the mount shows it */

	/* For tensors. DATA: as in the catalog. ADD: from the shape and dtype
	 * attributes, the sibling states, or the model; dtype OFS_DTYPE_NONE if
	 * none of these is known: then it is a text, or unknown. */
	uint8_t dtype, ndim;
	const uint64_t *shape;
	/* DATA, ADD: the size of the file; the written ranges, and their bytes.
	 * All other bytes come from entry or from. ESTALE (OFS776): they were
	 * discarded. */
	uint64_t size;
	struct ofs_ranges written;
	struct ofs_staged staged;
	/* VALUE, or ADD of a text or 0-dim tensor: the text. NULL: a tensor, or
	 * the text of from, or longer than a value may be (16 MiB). */
	const char *text;
	size_t ntext;
	uint32_t node; /* in the tree; REMOVE: before the removal */
	/* Why it cannot be committed; code 0: it can. */
	struct optimfs_error problem;
};

/* All changes, sorted bytewise by path. */
struct ofs_changes {
	struct ofs_overlay *overlay;
	struct ofs_change *v;
	size_t n;
	struct ofs_arena arena;
};

/* Collects the changes. No writer may be active; the pointers in v stay valid
 * as long as none is. Problems are recorded in the changes and do not make it
 * fail. */
int ofs_overlay_changes(struct ofs_overlay *overlay, struct ofs_changes *out,
    struct optimfs_error *err);
void ofs_changes_free(struct ofs_changes *c);
/* A commit is about to replace files of the checkpoint: readers that fail must
 * wait until it ends. */
void ofs_overlay_shut(struct ofs_overlay *overlay);
/* All staged changes are published. unsafe is NULL, or the error of the last
 * sync. Nothing may be committed through this overlay any more; open readers
 * continue. 0: the journal is empty. -1: it has to stay, or could not be
 * emptied. Then the record of the commit must stay too: the next mount needs
 * both, and until then every change fails. */
int ofs_overlay_published(struct ofs_overlay *overlay,
    const struct optimfs_error *unsafe);
/* The record of the commit could not be removed. The next mount would take
 * whatever is staged for published, so every change fails until then. */
void ofs_overlay_stop(struct ofs_overlay *overlay,
    const struct optimfs_error *why);
/* Fails with the first problem and the number of problems. */
int ofs_changes_check(const struct ofs_changes *c, struct optimfs_error *err);
/* The stage, for progress messages and for new/. */
struct ofs_stage *ofs_overlay_stage(const struct ofs_overlay *overlay);

/* Creates an overlay. Takes over stage, on failure too. */
struct ofs_overlay *ofs_overlay_new(const struct ofs_overlay_base *base,
    struct ofs_stage *stage, bool scratch, struct optimfs_error *err);
/* Syncs everything that is staged, also in files that nobody has open. -1: some
 * of it may be lost, or could not be written before (err names the file). */
int ofs_overlay_sync(struct ofs_overlay *overlay, struct optimfs_error *err);
/* Says what the replay of the journal has restored, and what it could not, one
 * sentence a line. */
void ofs_overlay_recovered(const struct ofs_overlay *overlay,
    struct ofs_buf *out);
/* Makes it the overlay of a new checkpoint, which will have the names, shapes and
 * types of the one below, and nothing else of it: all names are hidden until they
 * are created, and only written bytes can be read. only is NULL or "optim" or
 * "model": nothing else is needed. Nothing was replayed yet. */
int ofs_overlay_hide(struct ofs_overlay *overlay, const char *only,
    struct optimfs_error *err);
/* Is it one? Not any more after its commit. */
bool ofs_overlay_hides(const struct ofs_overlay *overlay);
/* Are these the elements of a hidden name? All of them must be staged. */
bool ofs_overlay_hides_tensor(const struct ofs_overlay *overlay,
    uint32_t tensor);
/* Lists what its commit still needs, one file per line: OFS301, bytes written,
 * bytes expected. */
void ofs_overlay_missing(struct ofs_overlay *overlay, struct ofs_buf *out);
/* Before its commit; no writer may be active. EINVAL: a file is incomplete
 * (OFS301), or two names of a tensor differ (OFS828). Then every tensor has its
 * bytes, from another of its names, or zeros where it begins with them. */
int ofs_overlay_complete(struct ofs_overlay *overlay,
    struct optimfs_error *err);
/* Of which tensor of a hidden name this node has all elements; OFS_NONE: none. */
uint32_t ofs_overlay_whole(struct ofs_overlay *overlay, uint32_t node);
/* Has it a file of its own under its name? */
bool ofs_overlay_is_written(struct ofs_overlay *overlay, uint32_t node);
/* The commit failed, also if ofs_overlay_complete did. */
void ofs_overlay_incomplete(struct ofs_overlay *overlay);
/* Restores the changes of an earlier writer from the journal. */
int ofs_overlay_replay(struct ofs_overlay *overlay, struct optimfs_error *err);
/* Creates the overlay for the snapshot after a commit, without changes. It
 * takes over the stage; the old overlay stays readable. same: the nodes kept
 * their numbers. */
struct ofs_overlay *ofs_overlay_next(struct ofs_overlay *overlay,
    const struct ofs_overlay_base *base, bool same, struct optimfs_error *err);
/* Never remove the stage. */
void ofs_overlay_keep(struct ofs_overlay *overlay);
/* Uncommitted changes stay in the stage. */
void ofs_overlay_free(struct ofs_overlay *overlay);
/* Drops all changes; no writer may be active. */
int ofs_overlay_abort(struct ofs_overlay *overlay, struct optimfs_error *err);

#define OFS_OVERLAY_DOING 80
struct ofs_overlay_status {
	uint64_t files, bytes; /* changed files; staged bytes */
	int percent;           /* of a running commit; -1: none */
	uint64_t done, total;  /* bytes written by it */
	char doing[OFS_OVERLAY_DOING];
};
void ofs_overlay_status(struct ofs_overlay *overlay,
    struct ofs_overlay_status *status);
bool ofs_overlay_dirty(struct ofs_overlay *overlay);
/* Sets the progress of a commit for ofs_overlay_status: percent of all work,
 * and the bytes written. */
void ofs_overlay_progress(struct ofs_overlay *overlay, unsigned percent,
    uint64_t done, uint64_t total);
/* Sets its activity: a file name or a phrase; "": unspecified. */
void ofs_overlay_doing(struct ofs_overlay *overlay, const char *what);
/* Counters of all changes, and of changes to names and kinds of files. */
uint64_t ofs_overlay_generation(const struct ofs_overlay *overlay);
uint64_t ofs_overlay_names_generation(const struct ofs_overlay *overlay);

/* The new text of a node of the checkpoint, a reference; NULL: unchanged. */
struct ofs_blob *ofs_overlay_accepted(struct ofs_overlay *overlay,
    uint32_t node);
/* The dtype and shape of a file. */
struct ofs_overlay_form {
	uint8_t dtype, ndim; /* dtype OFS_DTYPE_NONE: not a tensor */
	uint64_t shape[OFS_MAX_DIMS];
};
void ofs_overlay_form(struct ofs_overlay *overlay, uint32_t node,
    struct ofs_overlay_form *form);
/* "float32 [12,12]", shortened if it is long; text. */
#define OFS_FORM_TEXT 96
const char *ofs_overlay_form_text(const struct ofs_overlay_form *form,
    char text[OFS_FORM_TEXT]);

/* The parameter's name, or the key, of an added node; 0: it has none. */
int ofs_overlay_fqn(struct ofs_overlay *overlay, uint32_t node,
    struct ofs_buf *out);

struct ofs_overlay_file;
/* The staged bytes of a tensor, through the node of a name, or OFS_NONE: through a
 * view; NULL: none. */
struct ofs_overlay_file *ofs_overlay_of_tensor(struct ofs_overlay *overlay,
    uint32_t tensor, uint32_t node);
/* The staged bytes of a node; NULL: none. */
struct ofs_overlay_file *ofs_overlay_of_node(struct ofs_overlay *overlay,
    uint32_t node);
/* The staged bytes of an added tensor whose file is a text: this element. It
 * belongs to the caller; NULL: failed. */
struct ofs_overlay_file *ofs_overlay_element(const uint8_t element[16],
    struct optimfs_error *err);
void ofs_overlay_file_free(struct ofs_overlay_file *f);
/* Stands for the staged bytes: another number after each change, and no file of
 * the overlay has had it with other bytes. 0: nothing is staged. */
uint64_t ofs_overlay_file_version(struct ofs_overlay_file *f);
/* Elements [first, first + count), in C order, of a box of t (NULL: all of t).
 * Calls each for the runs that are not completely staged and must be read.
 * Stops when each fails. */
typedef int ofs_overlay_gap_fn(void *ctx, uint64_t first, uint64_t count,
    struct optimfs_error *err);
int ofs_overlay_gaps(struct ofs_overlay_file *f, const struct ofs_catalog *cat,
    const struct ofs_tensor *t, const uint64_t *box, uint64_t first,
    uint64_t count, ofs_overlay_gap_fn *each, void *ctx,
    struct optimfs_error *err);
/* Copies the staged bytes into buf. EIO (OFS301): the file was truncated and
 * not written again. cut: the file may end inside the last element. */
int ofs_overlay_apply(struct ofs_overlay *overlay, struct ofs_overlay_file *f,
    const struct ofs_catalog *cat, const struct ofs_tensor *t,
    const uint64_t *box, uint64_t first, uint64_t count, bool cut, void *buf,
    struct optimfs_error *err);

#endif
