/* view.h - .optimfs/view: the checkpoint in other formats and layouts */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FS_VIEW_H
#define OFS_FS_VIEW_H

#include "fs/fs.h"
#include "layout/render.h"
#include "plan/sums.h"

/* A view is a space of its own from OFS_SPACE_VIEW on; index 0 is its
 * directory, the others are what lies below it, in the order of their names
 * within a directory, of which a file's comes before what is in it. A view is
 * made when its name is first looked up, and its names live as long as fs. How
 * its files are made is worked out when the first of them is asked for, takes
 * most of the memory, and is forgotten when others were used since. */

static inline bool ofs_at_is_view(struct ofs_at at)
{
	return at.space >= OFS_SPACE_VIEW;
}

/* The checkpoint with what is staged, as views of an edited mount show it. */
struct ofs_edition {
	const struct ofs_edition_ops *ops;
	_Atomic unsigned refs;
	const struct ofs_catalog *cat;
};
struct ofs_edition_ops {
	/* The value of an item of snap->cat, the caller's; NULL: as it is stored. */
	struct ofs_pickle *(*item)(const struct ofs_edition *e,
	    const struct ofs_item *item, struct optimfs_error *err);
	/* Has another value been written to an item of snap->cat? NULL: none. */
	bool (*edited)(const struct ofs_edition *e,
	    const struct ofs_item *item);
	/* Where the bytes of a tensor that was added are; NULL for any other. */
	struct ofs_overlay_file *(*staged)(const struct ofs_edition *e,
	    uint32_t tensor);
	void (*free)(struct ofs_edition *e);
};
struct ofs_edition *ofs_edition_ref(struct ofs_edition *e);
/* NULL is allowed. */
void ofs_edition_unref(struct ofs_edition *e);

int ofs_views_init(struct ofs_snapshot *snap, struct optimfs_error *err);
void ofs_views_fini(struct ofs_snapshot *snap);
/* Give views of snap, which follows now, numbers that none of now's have. False:
 * there are no such numbers. */
bool ofs_views_follow(struct ofs_snapshot *snap,
    const struct ofs_snapshot *now);
/* Was there a view with this number before a commit? */
bool ofs_view_is_past(const struct ofs_snapshot *snap, uint32_t space);

/* From now on views are made anew, of edition; NULL: as what is edited is
 * then. */
void ofs_views_override(struct ofs_snapshot *snap, struct ofs_edition *edition);
/* The view called name, made if it has to be: EINVAL (OFS771) when name is
 * none of a view, ENFILE (OFS772) when there are too many, EOPNOTSUPP (OFS773)
 * for one that can only be written. ofs_view_make gives those too. */
int ofs_view_make(struct ofs_snapshot *snap, const char *name,
    struct ofs_at *at, struct optimfs_error *err);
/* The same, with checksums where the format has them: what is written to a disk
 * should have them, and each byte is looked at anyway on its way there. */
int ofs_view_make_summed(struct ofs_snapshot *snap, const char *name,
    struct ofs_at *at, struct optimfs_error *err);
int ofs_view_find(struct ofs_snapshot *snap, const char *name,
    struct ofs_at *at, struct optimfs_error *err);
/* Is there such a node? */
bool ofs_view_has(const struct ofs_snapshot *snap, struct ofs_at at);
bool ofs_view_is_dir(const struct ofs_snapshot *snap, struct ofs_at at);
/* What is called name in dir: 1; 0 when nothing is; -1: failed. */
int ofs_view_child(struct ofs_snapshot *snap, struct ofs_at dir,
    const char *name, struct ofs_at *at, struct optimfs_error *err);
/* How many nodes the view of dir has, itself among them; -1 when that cannot be
 * told. */
int ofs_view_count(struct ofs_snapshot *snap, struct ofs_at dir, uint32_t *n,
    struct optimfs_error *err);
/* What is in dir: n nodes from *at on. */
int ofs_view_children(struct ofs_snapshot *snap, struct ofs_at dir,
    struct ofs_at *at, uint32_t *n, struct optimfs_error *err);
/* Of a view: its name; of what is below it: its own. */
const char *ofs_view_name(const struct ofs_snapshot *snap, struct ofs_at at);
/* Where it is below its view. */
void ofs_view_path(const struct ofs_snapshot *snap, struct ofs_at at,
    char path[OFS_FILE_NAME]);
/* What a view is, how its files are made once they were counted, and which of
 * them a file is (OFS_NONE: a directory). _files stay until _done. */
const struct ofs_layout *ofs_view_layout(const struct ofs_snapshot *snap,
    struct ofs_at at);
struct ofs_files *ofs_view_files(struct ofs_snapshot *snap, struct ofs_at at,
    struct optimfs_error *err);
void ofs_view_files_done(struct ofs_snapshot *snap, struct ofs_at at);
/* How many views have all in memory that is needed to read them. */
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
/* The catalog that its pieces count in; and the staged bytes of a tensor that
 * only that one has. */
const struct ofs_catalog *ofs_view_cat(const struct ofs_view_file *file);
struct ofs_overlay_file *ofs_view_staged(const struct ofs_view_file *file,
    uint32_t tensor);
/* Its checksums, and what it is made of. */
struct ofs_sums *ofs_view_sums(struct ofs_view_file *file);
const struct ofs_spans *ofs_view_spans(const struct ofs_view_file *file);
/* The composition of whole spans that [off, off + len) lies in; *base is where
 * it begins. The caller's to _fini. */
int ofs_view_window(const struct ofs_view_file *file, uint64_t off,
    uint64_t len, struct ofs_composition *c, uint64_t *base,
    struct optimfs_error *err);
/* After [off, off + len) was read into buf by way of c: remember checksums of
 * what went by, and put in those that are due. read gives other bytes of the
 * file. */
typedef int ofs_view_read_fn(void *ctx, void *buf, uint64_t len, uint64_t off,
    struct optimfs_error *err);
int ofs_view_checksums(struct ofs_view_file *file,
    const struct ofs_composition *c, uint64_t base, uint8_t *buf, uint64_t off,
    uint64_t len, ofs_view_read_fn *read, void *ctx, struct optimfs_error *err);

#endif
