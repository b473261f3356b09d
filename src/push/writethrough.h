/* writethrough.h - a template that a mount is filling in */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_PUSH_WRITETHROUGH_H
#define OFS_PUSH_WRITETHROUGH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/buf.h"
#include "catalog/catalog.h"
#include "fs/view.h"
#include "overlay/overlay.h"

/* A mount of a template (push/template.h) has an overlay that writes through.
 * All names of the catalog are absent at first; creating one reveals it.
 * Elements that are written go to their places in the template's files at once,
 * and the overlay remembers which were; reading any other is an error. Texts
 * are staged, as in any overlay.
 *
 * Several names may share the place of their elements (aliases). The first of
 * them, the primary, is written there; what is written by the others is staged,
 * and must agree. One of them is enough. Weights in float32 that equal those of
 * the model need not be written either.
 *
 * Names that the template does not have are files of the overlay. They cannot
 * be committed, but may be renamed to a name that it has. */
struct ofs_writethrough;
struct ofs_overlay_file;

/* writethrough.c */
/* What a mount of a template does instead of staging. */
extern const struct ofs_write_ops ofs_write_through;
/* Who shows it; and the directory that waits for what is written. */
struct ofs_snapshot *ofs_writethrough_snapshot(const struct ofs_overlay *e);
const char *ofs_writethrough_destination(const struct ofs_overlay *e);
/* Bytes [off, off + n) of a tensor, which need not be whole elements; the
 * file's lock is held for writing. */
int ofs_writethrough_write(struct ofs_overlay *e, struct ofs_overlay_file *f,
    const void *buf, uint64_t n, uint64_t off, struct optimfs_error *err);
int ofs_writethrough_zero(struct ofs_overlay *e, struct ofs_overlay_file *f,
    uint64_t off, uint64_t end, struct optimfs_error *err);
/* What lies there, whether it was written or not. */
int ofs_writethrough_read(struct ofs_overlay *e, struct ofs_overlay_file *f,
    void *buf, uint64_t n, uint64_t off, struct optimfs_error *err);
/* The CRC-32 of n bytes of an object, if it was seen when they were written. */
bool ofs_writethrough_sum(const struct ofs_overlay *e, uint32_t object,
    uint64_t from, uint64_t n, uint32_t *crc);
/* The element of a tensor without dimensions, as its text says it. */
int ofs_writethrough_element(struct ofs_overlay *e, struct ofs_overlay_file *f,
    struct optimfs_error *err);
/* The next name whose elements lie in the same place, and after the last one
 * the first again: node itself where it is alone. */
uint32_t ofs_writethrough_next(const struct ofs_overlay *e, uint32_t node);
/* The first of them: the only one that is written to that place. */
uint32_t ofs_writethrough_primary(const struct ofs_overlay *e, uint32_t node);
/* Is it made of the elements of another name, if it is not written? That
 * name's node; OFS_NONE. */
uint32_t ofs_writethrough_model(const struct ofs_overlay *e, uint32_t node);
/* Does the layout itself fill in this text, which the source has not? */
bool ofs_writethrough_provided(const struct ofs_overlay *e, uint32_t index);

/* writethrough_same.c: the next names by node, malloc'ed, as above. */
int ofs_writethrough_aliases(const struct ofs_snapshot *snap, uint32_t **alias,
    struct optimfs_error *err);

/* writethrough_derive.c: with names held. */
/* Is it there, and all of it written? It is a tensor. */
bool ofs_writethrough_whole(const struct ofs_overlay *e, uint32_t node);
/* A name for whose place that is so; OFS_NONE. */
uint32_t ofs_writethrough_written(const struct ofs_overlay *e, uint32_t node);
/* While e is held, and nothing lacks: the places that no first name was
 * written to, and what is made of others, are filled in, until forgotten. */
int ofs_writethrough_derive(struct ofs_overlay *e, struct optimfs_error *err);
void ofs_writethrough_forget(struct ofs_overlay *e);

/* names.c: with names held for writing. */
/* Hide everything. */
int ofs_writethrough_hide(struct ofs_overlay *e, struct optimfs_error *err);
/* The node that is absent and called name; 1, 0: there is none, -1. */
int ofs_writethrough_reveal(struct ofs_overlay *e, uint32_t dir,
    const char *name, bool is_dir, uint32_t *index, struct optimfs_error *err);
/* A file of the overlay is renamed to one that is absent, or there: that one
 * gets its bytes. 1, 0: it is no such case, -1. */
int ofs_writethrough_rename(struct ofs_overlay *e, uint32_t index, uint32_t dir,
    const char *name, struct optimfs_error *err);

/* writethrough_values.c: while held. */
/* The catalog with the values that were written. */
struct ofs_overrides {
	struct ofs_edition base;
	struct ofs_snapshot *snap;
	bool differs;            /* any is not what the template says */
	struct ofs_catalog cat;  /* its own values; all else is snap->cat's */
	struct ofs_pickle **doc; /* of values; NULL: snap->cat's */
	struct ofs_override_item {
		struct ofs_blob *text; /* NULL: it says what it said */
		uint32_t entry;
	} * item; /* by item */
};
/* One reference. */
struct ofs_overrides *ofs_writethrough_overrides(struct ofs_overlay *e,
    struct optimfs_error *err);
/* Texts that were written, in the order of the tree, until each fails. */
int ofs_writethrough_texts(struct ofs_overlay *e,
    int (*each)(void *ctx, uint32_t index, struct ofs_overlay_file *f,
	struct optimfs_error *err),
    void *ctx, struct optimfs_error *err);

/* check.c */
/* Is there a file by the name that the layout has for it? With names held. */
bool ofs_writethrough_present(const struct ofs_overlay *e, uint32_t node);
/* Is it a tensor that is zeros unless it is written: fill=zero, of the mount or
 * of the layout? */
bool ofs_writethrough_zeros(const struct ofs_overlay *e, uint32_t node);
/* Files that are not as the layout needs them, a line each: OFS301, how many
 * bytes of how many. */
void ofs_writethrough_missing(struct ofs_snapshot *snap, struct ofs_buf *out);
/* Fails with the first of them, and how many there are (EINVAL); while held. */
int ofs_writethrough_check(struct ofs_overlay *e, struct optimfs_error *err);

/* The path that the layout has for a file, whatever it is called now. */
void ofs_writethrough_path(const struct ofs_overlay *e, uint32_t index,
    char *path, size_t size);

/* writethrough_coupled.c */
/* Do entries that are one value in the layout say the same? EINVAL (OFS828)
 * with two of them, and how many say what; while held. */
int ofs_writethrough_coupled(struct ofs_overlay *e, struct optimfs_error *err);

/* writethrough_rounded.c */
/* Does the layout store other elements, which this tensor's are made of? */
bool ofs_writethrough_is_rounded(const struct ofs_overlay *e, uint32_t entry);
/* Is what was written to those what is made of the others, and to several names
 * of one place the same? EINVAL (OFS822, OFS828) with both values; while held.
 */
int ofs_writethrough_rounded(struct ofs_overlay *e, struct optimfs_error *err);

/* commit.c */
/* With writers held: the template, complete, becomes the checkpoint. 0; 1: but
 * that may not survive a crash of the machine (OFS803); -1: nothing has
 * changed. */
int ofs_writethrough_commit(struct optimfs *fs, bool (*stop)(void *ctx),
    void *ctx, struct optimfs_error *err);
/* What a commit that was cut short has left, with the stage of source open: it
 * is finished, when it was published, or there is still a template. */
void ofs_writethrough_settle(struct ofs_stage *st, bool published);

#endif
