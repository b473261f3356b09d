/* render.h - a checkpoint's files in another format and layout */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_LAYOUT_RENDER_H
#define OFS_LAYOUT_RENDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "optimfs/error.h"

#include "base/buf.h"
#include "catalog/catalog.h"
#include "family/family.h"
#include "plan/composition.h"

/* A parsed view name: FORMAT[@LAYOUT][,option]... */
struct ofs_layout {
	const struct ofs_format *format;
	/* the number of ranks is shards * replicas */
	uint32_t shards, replicas;
	bool ranked; /* @LAYOUT was given */
	enum {
		OFS_KEYS_DEFAULT,
		OFS_KEYS_FQN,
		OFS_KEYS_ID,
		OFS_KEYS_SOURCE
	} keys;
	enum { OFS_ONLY_ALL, OFS_ONLY_OPTIM, OFS_ONLY_MODEL } only;
	/* of floating tensors; OFS_DTYPE_NONE: unchanged */
	enum ofs_dtype dtype;
	bool crc; /* compute checksums; else they are 0 */
	bool hf;
	int variant;   /* struct ofs_view_kind */
	unsigned zstd; /* compression level of items; 0: not compressed */
	/* use_orig_params of flat parameters: as in the source, true, false */
	enum { OFS_FLAT_DEFAULT, OFS_FLAT_ORIG, OFS_FLAT_PACK } flat;
	/* zeros for state that only some parts of a flat parameter have */
	bool fill_zero;
	bool drop;       /* leave out values that cannot be converted */
	bool dequantize; /* tensors in few bits as float32 */
	struct ofs_family_choice names;
};
/* Bytes between the members are zero in a layout that was parsed, and copied, so
 * that all members of two layouts are compared, also those that come later. */
static inline void ofs_layout_assign(struct ofs_layout *to,
    const struct ofs_layout *from)
{
	memcpy(to, from, sizeof(*to));
}
static inline bool ofs_layout_same(const struct ofs_layout *a,
    const struct ofs_layout *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

/* Values that are reported to the user. After _end the lists do not change. */
struct ofs_value_list {
	struct ofs_buf paths; /* in the tree, each NUL-terminated */
	uint32_t n;
};
struct ofs_render_report {
	/* values copied with their opcodes, because they could not be
	 * converted; values left out by drop=opaque */
	struct ofs_value_list copied, dropped;
	/* names= has no rule for these names, which are kept; and how many rows
	 * of the vocabulary may be padding (0: none) */
	struct ofs_value_list unnamed;
	uint64_t padded;
	uint8_t *seen; /* by entry; NULL when the lists are complete */
};
struct ofs_render_report *ofs_render_report_new(const struct ofs_catalog *cat,
    struct optimfs_error *err);
void ofs_render_report_end(struct ofs_render_report *report);
void ofs_render_report_free(struct ofs_render_report *report);
/* Report each value in the lists to a watcher, which may be NULL. */
struct optimfs_watch;
void ofs_render_report_say(const struct ofs_render_report *report,
    const struct optimfs_watch *to);

struct ofs_changes;
struct ofs_commit_job;

/* The source of a rendering. item reads a value that is not in memory; the
 * document is the caller's. */
struct ofs_render {
	const struct ofs_catalog *cat;
	struct ofs_pickle *(*item)(void *ctx, const struct ofs_item *item,
	    struct optimfs_error *err);
	/* Append the stored bytes of an item that is an archive, at most max
	 * (E2BIG). */
	int (*bytes)(void *ctx, const struct ofs_item *item, uint64_t max,
	    struct ofs_buf *out, struct optimfs_error *err);
	/* Read the first count elements of a tensor. */
	int (*elements)(void *ctx, uint32_t tensor, uint64_t count, void *out,
	    struct optimfs_error *err);
	/* Call lay with what a commit would work on. It may take over the
	 * changes, and leaves an empty list then (rewrite/commit.h). */
	int (*commit)(void *ctx,
	    int (*lay)(void *arg, const struct ofs_commit_job *job,
		struct ofs_changes *changes, struct optimfs_error *err),
	    void *arg, struct optimfs_error *err);
	/* The scale of a quantized tensor: 1; 0: not known. */
	int (*scale)(void *ctx, uint32_t tensor, struct ofs_scale *scale,
	    struct optimfs_error *err);
	void *ctx;
	/* where files are that describe the model; NULL: nowhere */
	const struct ofs_model_files *beside;
	struct ofs_render_report *report; /* while files are laid out */
};

/* A range of a file that is generated as a whole; ref and base are private to
 * the renderer. end is a running sum, so that a span begins at the end of the
 * one before: this decides the place of an item in its file. */
struct ofs_span {
	uint64_t end; /* offset in the file */
	uint64_t ref, base;
};
struct ofs_spans {
	struct ofs_span *v;
	size_t n, cap;
};
/* Add a span of len bytes; empty ones are dropped. */
int ofs_spans_add(struct ofs_spans *s, uint64_t len, uint64_t ref,
    uint64_t base, struct optimfs_error *err);
/* Add len bytes that exist already, as spans of 64 KiB: ref increases from span
 * to span, base is 0. */
int ofs_spans_add_bytes(struct ofs_spans *s, uint64_t len, uint64_t ref,
    struct optimfs_error *err);
/* The first span that ends after offset off. */
size_t ofs_spans_find(const struct ofs_spans *s, uint64_t off);
void ofs_spans_fini(struct ofs_spans *s);

/* The files of one layout. Const after creation, so thread-safe. The struct of
 * each renderer begins with this one. */
struct ofs_files {
	const struct ofs_files_ops *ops;
	uint32_t n;
	struct ofs_render_report *report; /* owned; of a view */
};

/* The name of a file: components of at most 255 bytes, separated by '/'. No
 * name is a file and a directory. */
#define OFS_FILE_NAME 1024

struct ofs_files_ops {
	size_t size; /* of the renderer's struct */
	/* Lays a checkpoint out as to says: f is zero except for ops, and is
	 * freed if this fails. Reads values that are not in memory, but no
	 * tensors. */
	int (*lay)(struct ofs_files *f, const struct ofs_render *from,
	    const struct ofs_layout *to, struct optimfs_error *err);
	void (*name)(const struct ofs_files *f, uint32_t file,
	    char name[OFS_FILE_NAME]);
	/* Append all spans of a file. Reads no tensor, and generates no
	 * bytes. */
	int (*spans)(const struct ofs_files *f, uint32_t file,
	    struct ofs_spans *out, struct optimfs_error *err);
	/* Append one span, which starts at offset at of the file, to c. */
	int (*make)(const struct ofs_files *f, uint32_t file,
	    const struct ofs_span *span, uint64_t at, struct ofs_composition *c,
	    struct optimfs_error *err);
	/* Read bytes of a file, in any thread. NULL: its compositions are
	 * read. */
	int (*read)(const struct ofs_files *f, uint32_t file, void *buf,
	    uint64_t len, uint64_t off, struct optimfs_error *err);
	/* The files depend on all that is staged, not only on names. */
	bool staged;
	/* For layouts with compressed items: span has a length of len bytes.
	 * File 0, which is not compressed, contains the places of the items and
	 * is made after all lengths are known. NULL for other layouts. */
	void (*stored)(struct ofs_files *f, const struct ofs_span *span,
	    uint64_t len);
	void (*free)(struct ofs_files *f);
};

/* The files of a checkpoint; NULL on failure. */
struct ofs_files *ofs_files_new(const struct ofs_files_ops *ops,
    const struct ofs_render *from, const struct ofs_layout *to,
    struct optimfs_error *err);

static inline void ofs_files_free(struct ofs_files *f)
{
	if (f == NULL)
		return;
	ofs_render_report_free(f->report);
	f->ops->free(f);
}

/* render.c: functions for all renderers. */

/* The same for the writer of pickles; of a tensor of another type nothing is
 * asked. */
struct ofs_pkw_scale;
int ofs_render_scale(const struct ofs_render *from, uint32_t tensor,
    struct ofs_pkw_scale *scale, struct optimfs_error *err);
/* Add an entry to the copied or dropped values, once. */
int ofs_render_report_copied(const struct ofs_render *from,
    const struct ofs_entry *e, struct optimfs_error *err);
int ofs_render_report_dropped(const struct ofs_render *from,
    const struct ofs_entry *e, struct optimfs_error *err);
/* Report what names= could not do. */
int ofs_render_report_renamed(struct ofs_render_report *report,
    const struct ofs_renamed *renamed, struct optimfs_error *err);
/* Does the catalog have something of the part that the layout is limited to?
 * ENOENT (OFS777). */
int ofs_render_only(const struct ofs_catalog *cat, const struct ofs_layout *to,
    struct optimfs_error *err);
/* The entries of a layout, in the order of the catalog, whose tree path begins
 * with section ("optim", ...; NULL for all). *entries is malloc'ed and the
 * caller's. */
int ofs_render_entries(const struct ofs_render *from,
    const struct ofs_layout *to, const char *section, uint32_t **entries,
    uint32_t *n, struct optimfs_error *err);
/* The element type of a tensor in the view. Renderers must use it;
 * ofs_composition_box converts to that type. */
enum ofs_dtype ofs_render_dtype(const struct ofs_layout *to,
    const struct ofs_tensor *t);
/* Fail when entry e is a tensor that is damaged or cannot be written. */
int ofs_render_sound(const struct ofs_catalog *cat, const struct ofs_entry *e,
    struct optimfs_error *err);
/* As above, and when it is quantized: its parts, or a copy in another format,
 * would have no scale (EOPNOTSUPP, OFS448). */
int ofs_render_unscaled(const struct ofs_catalog *cat,
    const struct ofs_entry *e, struct optimfs_error *err);
/* Is it written as a value where the format has pickles: no tensor, or one that
 * can only be copied? */
bool ofs_render_is_value(const struct ofs_catalog *cat,
    const struct ofs_entry *e);
/* The value of such an entry, as a node of *doc; free with _release. */
int ofs_render_value(const struct ofs_render *from, const struct ofs_entry *e,
    const struct ofs_pickle **doc, uint32_t *node, struct optimfs_error *err);
void ofs_render_release(const struct ofs_catalog *cat,
    const struct ofs_entry *e, const struct ofs_pickle *doc);
/* The path of an entry in the tree. Without extra, which the tree puts before
 * all that is neither optimizer nor model. */
const uint32_t *ofs_render_path(const struct ofs_catalog *cat,
    const struct ofs_entry *e, uint32_t *n);
/* Is it the parameter list of a group? */
bool ofs_render_is_params(const struct ofs_catalog *cat,
    const struct ofs_entry *e);
/* Pickle a value as the tree shows it: lists of IDs as names. */
struct ofs_pkw;
int ofs_render_put(struct ofs_pkw *w, const struct ofs_catalog *cat,
    const struct ofs_entry *e, const struct ofs_pickle *doc, uint32_t node,
    struct optimfs_error *err);
/* Is the value of an entry stored as a separate archive? _copy appends the
 * bytes of that archive. */
bool ofs_render_has_archive(const struct ofs_render *from,
    const struct ofs_entry *e);
int ofs_render_copy(const struct ofs_render *from, const struct ofs_entry *e,
    struct ofs_buf *out, struct optimfs_error *err);
/* Change "OFSnnn text" to "KEY: OFSnnn text"; -1. */
int ofs_render_fail_in(const struct ofs_catalog *cat, const struct ofs_entry *e,
    struct optimfs_error *err);

#endif
