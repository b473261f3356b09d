/* writethrough.h - a mount that fills in a template */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_PUSH_WRITETHROUGH_H
#define OFS_PUSH_WRITETHROUGH_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/buf.h"
#include "catalog/catalog.h"
#include "fs/fs.h"
#include "overlay/overlay.h"

/* The overlay of a mounted template (push/template.h) writes through. All names
 * of the catalog are hidden at first; creating a file makes its name visible.
 * Written elements go to their places in the files of the template at once, and
 * the overlay records which were written; reading others is an error. Texts are
 * staged, as in any overlay.
 *
 * Several names may share the place of their elements (aliases). The first of
 * them, the primary, is written in place; bytes written to the others are
 * staged and must agree. One of them is enough. float32 weights that equal
 * those of the model need not be written either.
 *
 * Names that the template does not have are files of the overlay. They cannot
 * be committed, but can be renamed to a name of the template. */
struct ofs_overlay_file;

/* writethrough.c */
/* The write operations of a mounted template. */
extern const struct ofs_write_ops ofs_write_through;
/* The snapshot that shows the overlay; and the directory that will be replaced
 * by the template. */
struct ofs_snapshot *ofs_writethrough_snapshot(const struct ofs_overlay *o);
const char *ofs_writethrough_destination(const struct ofs_overlay *o);
/* Writes bytes [off, off + n) of a tensor, not necessarily whole elements. The
 * file's lock is held for writing. */
int ofs_writethrough_write(struct ofs_overlay *o, struct ofs_overlay_file *f,
    const void *buf, uint64_t n, uint64_t off, struct optimfs_error *err);
int ofs_writethrough_zero(struct ofs_overlay *o, struct ofs_overlay_file *f,
    uint64_t off, uint64_t end, struct optimfs_error *err);
/* Reads the bytes in the template, written or not. */
int ofs_writethrough_read(struct ofs_overlay *o, struct ofs_overlay_file *f,
    void *buf, uint64_t n, uint64_t off, struct optimfs_error *err);
/* The CRC-32 of n bytes of an object, if it was computed while they were
 * written. */
bool ofs_writethrough_sum(const struct ofs_overlay *o, uint32_t object,
    uint64_t from, uint64_t n, uint32_t *crc);
/* Writes the element of a 0-dim tensor from its text. */
int ofs_writethrough_element(struct ofs_overlay *o, struct ofs_overlay_file *f,
    struct optimfs_error *err);
/* The next alias, in a ring: node itself if it has none. */
uint32_t ofs_writethrough_next(const struct ofs_overlay *o, uint32_t node);
/* The primary: the alias that is written in place. */
uint32_t ofs_writethrough_primary(const struct ofs_overlay *o, uint32_t node);
/* If node may be derived from another name when it is not written: the node of
 * that name; else OFS_NONE. */
uint32_t ofs_writethrough_model(const struct ofs_overlay *o, uint32_t node);
/* Is this a text of the layout that the source does not have? */
bool ofs_writethrough_provided(const struct ofs_overlay *o, uint32_t index);

/* writethrough_same.c: the next alias of each node, malloc'ed. */
int ofs_writethrough_aliases(const struct ofs_snapshot *snap, uint32_t **alias,
    struct optimfs_error *err);

/* writethrough_derive.c: the lock of names is held. */
/* An alias of node that is completely written; OFS_NONE: none. */
uint32_t ofs_writethrough_written(const struct ofs_overlay *o, uint32_t node);
/* Once nothing is missing and writers are held: fills in places whose primary
 * was not written, and derived tensors. The data is valid until _forget. */
int ofs_writethrough_derive(struct ofs_overlay *o, struct optimfs_error *err);
void ofs_writethrough_forget(struct ofs_overlay *o);

/* writethrough_names.c: the lock of names is held for writing. */
/* Hides all names. */
int ofs_writethrough_hide(struct ofs_overlay *o, struct optimfs_error *err);
/* Makes the hidden node called name visible. 1: done; 0: no such node; -1:
 * failed. */
int ofs_writethrough_reveal(struct ofs_overlay *o, uint32_t dir,
    const char *name, bool is_dir, uint32_t *index, struct optimfs_error *err);
/* Renames a file of the overlay to a name of the template, whose file gets its
 * bytes. 1: done; 0: not such a case; -1: failed. */
int ofs_writethrough_rename(struct ofs_overlay *o, uint32_t index, uint32_t dir,
    const char *name, struct optimfs_error *err);

/* writethrough_check.c */
/* Does the file exist under the name that the layout has for it? The lock of
 * names is held. */
bool ofs_writethrough_present(const struct ofs_overlay *o, uint32_t node);
/* Is it a tensor that is zero unless written: with fill=zero of the mount or
 * the layout? */
bool ofs_writethrough_zeros(const struct ofs_overlay *o, uint32_t node);
/* Lists incomplete files, one per line: OFS301, bytes written, bytes
 * expected. */
void ofs_writethrough_missing(struct ofs_snapshot *snap, struct ofs_buf *out);
/* Fails with the first incomplete file and their number (EINVAL). Writers are
 * held. */
int ofs_writethrough_check(struct ofs_overlay *o, struct optimfs_error *err);

/* Calls each for the written texts in the order of the tree, until it fails.
 * Writers are held. */
int ofs_writethrough_texts(struct ofs_overlay *o,
    int (*each)(void *ctx, uint32_t index, struct ofs_overlay_file *f,
	struct optimfs_error *err),
    void *ctx, struct optimfs_error *err);

/* writethrough_coupled.c */
/* Do entries that the layout stores as one value agree? EINVAL (OFS828) with
 * two of them and the number of entries for each value. Writers are held. */
int ofs_writethrough_coupled(struct ofs_overlay *o, struct optimfs_error *err);

/* writethrough_rounded.c */
/* Is this tensor computed from other stored elements? */
bool ofs_writethrough_is_rounded(const struct ofs_overlay *o, uint32_t entry);
/* Do the bytes written to computed tensors, and to aliases, agree with those
 * they come from? EINVAL (OFS822, OFS828) with both values. Writers are
 * held. */
int ofs_writethrough_rounded(struct ofs_overlay *o, struct optimfs_error *err);

/* writethrough_commit.c */
/* Publishes the complete template as the checkpoint; writers are held. 0: done;
 * 1: done, but may not survive a power failure (OFS803); -1: nothing has
 * changed. */
int ofs_writethrough_commit(struct optimfs *fs, bool (*stop)(void *ctx),
    void *ctx, struct optimfs_error *err);
/* Cleans up after an interrupted commit; the stage of source is open. Finishes
 * a published one; otherwise the template remains. */
void ofs_writethrough_settle(struct ofs_stage *st, bool published);

#endif
