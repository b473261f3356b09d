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
#include "base/ranges.h"
#include "catalog/catalog.h"
#include "journal/stage.h"

/* Catalog and tree are const. A mount that may be written has a struct
 * ofs_overlay beside them (fs->edit; NULL when read-only): names that were added,
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
	struct ofs_overlay *edit;
	struct ofs_change *v;
	size_t n;
	struct ofs_arena arena;
};

/* Take a snapshot; the gate must be held, and all that v points to is good
 * while it is. Problems do not fail it. */
int ofs_overlay_changes(struct ofs_overlay *edit, struct ofs_changes *out,
    struct optimfs_error *err);
void ofs_changes_free(struct ofs_changes *c);
/* All that was staged is published, and unsafe is NULL, or what the last sync
 * failed with: nothing is staged any more, and fs shows a checkpoint that is
 * gone. The gate is still held, and closed now. 0: the journal is empty. -1: it has to stay, or
 * could not be emptied; the record of the commit must stay too, the next mount
 * needs both, and until then every change fails. */
int ofs_overlay_published(struct ofs_overlay *edit,
    const struct optimfs_error *unsafe);
/* Fails with the first problem, and how many there are. */
int ofs_changes_check(const struct ofs_changes *c, struct optimfs_error *err);
/* len bytes at off, inside the file, as a reader of the mount sees them:
 * elements of a tensor in C order. */
int ofs_change_read(struct optimfs *fs, const struct ofs_change *c, void *buf,
    uint64_t len, uint64_t off, struct optimfs_error *err);
/* For messages of progress, and for new/. */
struct ofs_stage *ofs_overlay_stage(const struct ofs_overlay *edit);

/* What the rest of the library asks. index is a node's in the tree; those
 * that were made come behind the static ones. */

/* Take the lock, and bring a commit to its end that was interrupted, before
 * the checkpoint is read. path is absolute. skeleton gets the path of what is to
 * be read instead, malloc'ed, where path waits for a checkpoint; or NULL.
 * share: of several ranks; NULL. sites, which is not looked at without, gets
 * their directories (cluster/commit/coordinator.h), or NULL where the one at path is all there is. */
struct optimfs_options;
struct ofs_manifest;
struct ofs_coordinator;
struct ofs_stage *ofs_overlay_stage_open(const char *path,
    const struct optimfs_options *options, struct ofs_manifest *share,
    char **skeleton, struct ofs_coordinator **sites, struct optimfs_error *err);
/* What a commit publishes goes to these, which are the edit's then. */
void ofs_overlay_set_sites(struct ofs_overlay *edit,
    struct ofs_coordinator *sites);
struct ofs_coordinator *ofs_overlay_sites(const struct ofs_overlay *edit);
/* Begin, with what was there. stage is fs's then, on failure too. */
int ofs_overlay_open(struct optimfs *fs, struct ofs_stage *stage,
    struct optimfs_error *err);
/* fs shows another checkpoint (fs/reopen.c): nothing is changed in it. names: its
 * nodes have the numbers they had. */
int ofs_overlay_rebase(struct ofs_overlay *edit, bool same,
    struct optimfs_error *err);
/* What is not committed stays in the stage. */
void ofs_overlay_free(struct ofs_overlay *edit);
/* Drop everything. EBUSY (OFS815) during a commit. */
int ofs_overlay_abort(struct ofs_overlay *edit, struct optimfs_error *err);

struct ofs_overlay_status {
	uint64_t files, bytes; /* that differ; that are staged */
	int percent;           /* of a commit under way; -1: there is none */
};
void ofs_overlay_status(struct ofs_overlay *edit,
    struct ofs_overlay_status *status);
/* Why the last commit or abort failed, as a line; nothing where it did not. */
void ofs_control_said(struct optimfs *fs, struct ofs_buf *out);
/* Is it of a skeleton (push/writethrough.h), where what was not written is an error? */
bool ofs_overlay_is_direct(const struct ofs_overlay *edit);
bool ofs_overlay_dirty(struct ofs_overlay *edit);
/* How far a commit is, for ofs_overlay_status. */
void ofs_overlay_progress(struct ofs_overlay *edit, unsigned percent);
/* How often anything was changed; names, and what files are. */
uint64_t ofs_overlay_generation(const struct ofs_overlay *edit);
uint64_t ofs_overlay_names_generation(const struct ofs_overlay *edit);

struct ofs_at;
struct ofs_blob;
struct ofs_buf;
struct optimfs_attr;
struct optimfs_file;

/* Is there such a node? ESTALE: an abort took it away. */
int ofs_overlay_has(const struct optimfs *fs, struct ofs_at at,
    struct optimfs_error *err);
/* Would an abort take its name away? */
bool ofs_overlay_moves(const struct optimfs *fs, uint32_t index);
bool ofs_overlay_at_is_dir(const struct optimfs *fs, struct ofs_at at);
/* 1: there it is; 0: nothing is called so. */
int ofs_overlay_lookup(struct optimfs *fs, struct ofs_at dir, const char *name,
    struct ofs_at *at, struct optimfs_error *err);
/* Children of a directory that may have been edited, in the order of position:
 * those of the checkpoint by name, then the others as they came. */
typedef int ofs_overlay_list_fn(void *ctx, struct ofs_at at, const char *name,
    uint64_t position);
int ofs_overlay_list(struct optimfs *fs, struct ofs_at dir, uint64_t start,
    ofs_overlay_list_fn *each, void *ctx, struct optimfs_error *err);
/* Its path below the mount point, mirrors included; false: it has none. */
bool ofs_overlay_at_path(const struct optimfs *fs, struct ofs_at at, char *path,
    size_t size);
uint64_t ofs_overlay_ino(const struct optimfs *fs, struct ofs_at at);
/* All of what a made node has; what differs of another. */
int ofs_overlay_attr(struct optimfs *fs, struct ofs_at at,
    struct optimfs_attr *attr, struct optimfs_error *err);

/* What a text of the checkpoint says now, one reference; NULL: what it did. */
struct ofs_blob *ofs_overlay_said(const struct optimfs *fs, uint32_t index);
/* What a file is as a tensor. */
struct ofs_overlay_form {
	uint8_t dtype, ndim; /* dtype OFS_DTYPE_NONE: it is none */
	uint64_t shape[OFS_MAX_DIMS];
};
void ofs_overlay_form(const struct optimfs *fs, uint32_t index,
    struct ofs_overlay_form *form);

/* The parameter's name, or the key, of a made node; 0: it has none. */
int ofs_overlay_fqn(const struct optimfs *fs, uint32_t index,
    struct ofs_buf *out);

/* The staged bytes that elements of base's tensors are read with. file is who
 * reads: its own node's; NULL where nothing is staged. */
struct ofs_overlay_file;
struct ofs_overlay_file *ofs_overlay_staged(const struct optimfs_file *file,
    uint32_t tensor);
/* The same of a node of a snapshot; NULL: it has none. */
struct ofs_overlay_file *ofs_overlay_of_node(struct ofs_overlay *edit,
    uint32_t node);
/* Elements [first, first + count) of a box of t (NULL: all of it) in C order.
 * Calls each for runs of those that are not wholly staged, which must be read;
 * a failure of each ends it. */
typedef int ofs_overlay_hole_fn(void *ctx, uint64_t first, uint64_t count,
    struct optimfs_error *err);
int ofs_overlay_holes(struct ofs_overlay_file *f, const struct ofs_catalog *cat,
    const struct ofs_tensor *t, const uint64_t *box, uint64_t first,
    uint64_t count, ofs_overlay_hole_fn *each, void *ctx,
    struct optimfs_error *err);
/* Put what is staged over buf. EIO (OFS301): the file was cut and not written
 * again. cut: its end may be inside the last element, of which there is then
 * what there is. */
int ofs_overlay_lay(struct ofs_overlay *edit, struct ofs_overlay_file *f,
    const struct ofs_catalog *cat, const struct ofs_tensor *t,
    const uint64_t *box, uint64_t first, uint64_t count, bool cut, void *buf,
    struct optimfs_error *err);

/* Of a tensor that became longer than the checkpoint has it: bytes from off of
 * the file on, all of them behind its own. */
int ofs_overlay_read_behind(const struct optimfs_file *file, void *buf,
    uint64_t len, uint64_t off, struct optimfs_error *err);
/* Open files. Made ones; any for writing; reading those; how long one is now. */
int ofs_overlay_open_made(struct optimfs_file *file, struct optimfs_error *err);
int ofs_overlay_open_write(struct optimfs_file *file, bool truncate,
    struct optimfs_error *err);
ssize_t ofs_overlay_read(struct optimfs_file *file, void *buf, size_t len,
    uint64_t off, struct optimfs_error *err);
bool ofs_overlay_size(const struct optimfs_file *file, uint64_t *size);
void ofs_overlay_close(struct optimfs_file *file);

#endif
