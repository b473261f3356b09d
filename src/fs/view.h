/* view.h - .optimfs/view: the checkpoint in other formats and layouts */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FS_VIEW_H
#define OFS_FS_VIEW_H

#include "fs/fs.h"
#include "layout/checksum.h"
#include "layout/render.h"
#include "plan/sums.h"

/* A view is a space from OFS_SPACE_VIEW on. Index 0 is its directory; the other
 * nodes are sorted by name within each directory, and the children of a
 * directory follow it. A view is made when its name is first looked up, or
 * another name of the same layout; it makes room for others when it is unused for
 * long (view_table.h), and functions that use its nodes then fail with ESTALE
 * (OFS776). The description of its files is computed when the
 * first one is used, takes most of the memory, and is dropped when other views
 * were used since. */

static inline bool ofs_at_is_view(struct ofs_at at)
{
	return at.space >= OFS_SPACE_VIEW;
}

int ofs_views_init(struct ofs_snapshot *snap, struct optimfs_error *err);
void ofs_views_fini(struct ofs_snapshot *snap);
/* Numbers the views of snap, the successor of now, differently from those of
 * now. False: there are no numbers left. */
bool ofs_views_follow(struct ofs_snapshot *snap,
    const struct ofs_snapshot *now);
/* Did a view have this number before a commit, or before it made room? */
bool ofs_view_is_past(const struct ofs_snapshot *snap, uint32_t space);

/* From now on views show these staged changes (rewrite/merge.h); NULL: those of
 * the time when a view is made. */
struct ofs_merged;
void ofs_views_override(struct ofs_snapshot *snap, struct ofs_merged *merged);
/* The view called name; makes it if necessary. EINVAL (OFS771): not the name of
 * a view. ENFILE (OFS772): too many views. EOPNOTSUPP (OFS773): a format that
 * can only be written. */
int ofs_view_make(struct ofs_snapshot *snap, const char *name,
    struct ofs_at *at, struct optimfs_error *err);
/* As above, with checksums if the format has them. For views that are copied to
 * disk: every byte is read anyway. */
int ofs_view_make_summed(struct ofs_snapshot *snap, const char *name,
    struct ofs_at *at, struct optimfs_error *err);
int ofs_view_find(struct ofs_snapshot *snap, const char *name,
    struct ofs_at *at, struct optimfs_error *err);
/* Is there such a node? */
bool ofs_view_has(const struct ofs_snapshot *snap, struct ofs_at at);
bool ofs_view_is_dir(const struct ofs_snapshot *snap, struct ofs_at at);
/* Looks up name in dir: 1, 0 (no such name) or -1 (failed). */
int ofs_view_child(struct ofs_snapshot *snap, struct ofs_at dir,
    const char *name, struct ofs_at *at, struct optimfs_error *err);
/* The number of nodes of the view that dir belongs to, with its directory; -1:
 * unknown. */
int ofs_view_count(struct ofs_snapshot *snap, struct ofs_at dir, uint32_t *n,
    struct optimfs_error *err);
/* The children of dir: n nodes from *at on. */
int ofs_view_children(struct ofs_snapshot *snap, struct ofs_at dir,
    struct ofs_at *at, uint32_t *n, struct optimfs_error *err);
/* The name of a view, or of a node below it; "": it is gone. */
void ofs_view_name(const struct ofs_snapshot *snap, struct ofs_at at,
    char name[OFS_FILE_NAME]);
/* The path of a node below its view. */
void ofs_view_path(const struct ofs_snapshot *snap, struct ofs_at at,
    char path[OFS_FILE_NAME]);
/* The layout of a view, whose files are held; the description of its files,
 * which stays valid until ofs_view_files_done; and which of these files a node is
 * (OFS_NONE: a directory). */
const struct ofs_layout *ofs_view_layout(const struct ofs_snapshot *snap,
    struct ofs_at at);
struct ofs_files *ofs_view_files(struct ofs_snapshot *snap, struct ofs_at at,
    struct optimfs_error *err);
void ofs_view_files_done(struct ofs_snapshot *snap, struct ofs_at at);
/* A hash of the rules by which names= makes its tensors; 0: none. */
uint64_t ofs_view_rules(const struct ofs_snapshot *snap, struct ofs_at at);
/* The number of views whose description of files is in memory. */
uint64_t ofs_views_laid_out(struct ofs_snapshot *snap);
uint32_t ofs_view_file_of(const struct ofs_snapshot *snap, struct ofs_at at);
uint64_t ofs_view_ino(const struct ofs_snapshot *snap, struct ofs_at at);
int ofs_view_size(struct ofs_snapshot *snap, struct ofs_at at, uint64_t *size,
    struct optimfs_error *err);

/* view_read.c: an open file of a view. */
struct ofs_view_file;
int ofs_view_open(struct ofs_snapshot *snap, struct ofs_at at,
    struct ofs_view_file **file, uint64_t *size, struct optimfs_error *err);
void ofs_view_close(struct ofs_view_file *file);
/* The catalog to which the pieces of the file refer, and what reads it; and the
 * staged bytes of a tensor that only this catalog has. */
const struct ofs_catalog *ofs_view_cat(const struct ofs_view_file *file);
struct ofs_reader *ofs_view_reader(const struct ofs_view_file *file);
struct ofs_overlay_file *ofs_view_staged(const struct ofs_view_file *file,
    uint32_t tensor);
/* The checksums of the file, and the spans that make it up. */
struct ofs_sums *ofs_view_sums(struct ofs_view_file *file);
const struct ofs_spans *ofs_view_spans(const struct ofs_view_file *file);
/* Reads bytes of a file that has no compositions: 1; -1: failed; 0: it has
 * some. */
int ofs_view_read(const struct ofs_view_file *file, void *buf, uint64_t len,
    uint64_t off, struct optimfs_error *err);
/* The composition of the whole spans that cover [off, off + len), in a file that
 * has compositions; *base is its offset in the file. The caller calls _fini. */
int ofs_view_window(const struct ofs_view_file *file, uint64_t off,
    uint64_t len, struct ofs_composition *c, uint64_t *base,
    struct optimfs_error *err);
/* To be called after [off, off + len) was read into buf through c: keeps
 * checksums of these bytes, and fills in checksums that lie in the range. read
 * gives other bytes of the file. */
int ofs_view_checksums(struct ofs_view_file *file,
    const struct ofs_composition *c, uint64_t base, uint8_t *buf, uint64_t off,
    uint64_t len, ofs_checksum_read_fn *read, void *ctx, struct optimfs_error *err);

#endif
