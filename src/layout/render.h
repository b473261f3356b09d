/* render.h - a checkpoint's files in another format and layout */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_LAYOUT_RENDER_H
#define OFS_LAYOUT_RENDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/buf.h"
#include "catalog/catalog.h"
#include "plan/composition.h"

/* What a view's name says: FORMAT[@LAYOUT][,option]... */
struct ofs_layout {
	const struct ofs_format *format;
	uint32_t shards, replicas; /* ranks are shards * replicas */
	bool ranked;               /* there was a @LAYOUT */
	enum {
		OFS_KEYS_DEFAULT,
		OFS_KEYS_FQN,
		OFS_KEYS_ID,
		OFS_KEYS_SOURCE
	} keys;
	enum { OFS_ONLY_ALL, OFS_ONLY_OPTIM, OFS_ONLY_MODEL } only;
	enum ofs_dtype dtype; /* of floating tensors; OFS_DTYPE_NONE: own */
	bool crc;             /* checksums are right rather than 0 */
	bool hf;
	bool blobs;    /* dcp-st: tensors are in safetensors blobs */
	unsigned zstd; /* level that items are compressed at; 0: not */
	/* use_orig_params of flat parameters: as the source has it, or not */
	enum { OFS_FLAT_DEFAULT, OFS_FLAT_ORIG, OFS_FLAT_PACK } flat;
	bool fill_zero; /* state that only parts of a flat parameter lack */
};

/* What is rendered. item reads a value that is not in memory; the document is
 * the caller's. */
struct ofs_render {
	const struct ofs_catalog *cat;
	struct ofs_pickle *(*item)(void *ctx, const struct ofs_item *item,
	    struct optimfs_error *err);
	/* Append the bytes of an item that is an archive, as they are stored,
	 * at most max (E2BIG). EOPNOTSUPP: its value was edited. */
	int (*bytes)(void *ctx, const struct ofs_item *item, uint64_t max,
	    struct ofs_buf *out, struct optimfs_error *err);
	/* The one element of a tensor without dimensions, as it is stored. */
	int (*element)(void *ctx, uint32_t tensor, void *out,
	    struct optimfs_error *err);
	void *ctx;
};

/* A stretch of a file that is made at once: ref and base are the renderer's.
 * end is a running sum, so a span begins where the one before it ends: this is
 * where the place of an item in its file is decided. */
struct ofs_span {
	uint64_t end; /* bytes from the start of the file */
	uint64_t ref, base;
};
struct ofs_spans {
	struct ofs_span *v;
	size_t n, cap;
};
/* Add a span of len bytes; what is empty is not kept. */
int ofs_spans_add(struct ofs_spans *s, uint64_t len, uint64_t ref,
    uint64_t base, struct optimfs_error *err);
/* Add len bytes that are ready as spans of 64 KiB: ref counts on over them, base
 * is 0. */
int ofs_spans_add_bytes(struct ofs_spans *s, uint64_t len, uint64_t ref,
    struct optimfs_error *err);
void ofs_spans_fini(struct ofs_spans *s);

/* The files of one layout. Const once made: any thread may call. A renderer's
 * own struct begins with this. */
struct ofs_files {
	const struct ofs_files_ops *ops;
	uint32_t n;
	/* Values that are copied byte for byte, because nothing that can be
	 * told is what they hold: their paths in the tree, a NUL behind each. */
	struct ofs_buf copied;
	uint32_t ncopied;
};

/* What a file is called: components with '/' between them, each a name of at
 * most 255 bytes, and not both a file's and a directory's. */
#define OFS_FILE_NAME 1024

struct ofs_files_ops {
	void (*name)(const struct ofs_files *f, uint32_t file,
	    char name[OFS_FILE_NAME]);
	/* All spans of a file. No tensor is read, and nothing is made. */
	int (*spans)(const struct ofs_files *f, uint32_t file,
	    struct ofs_spans *out, struct optimfs_error *err);
	/* Append the bytes of one span, which starts at byte at of the file. */
	int (*make)(const struct ofs_files *f, uint32_t file,
	    const struct ofs_span *span, uint64_t at, struct ofs_composition *c,
	    struct optimfs_error *err);
	/* Of layouts whose items are compressed: span of a file is len bytes
	 * there. File 0, which is not compressed, says where they are: nobody
	 * asks for it before all are known. NULL where there are no such. */
	void (*stored)(struct ofs_files *f, const struct ofs_span *span,
	    uint64_t len);
	void (*free)(struct ofs_files *f);
};

static inline void ofs_files_free(struct ofs_files *f)
{
	if (f == NULL)
		return;
	ofs_buf_fini(&f->copied);
	f->ops->free(f);
}

/* render.c: what the renderers share. */

/* The entries a layout takes, in the catalog's order, whose tree path begins
 * with section ("optim", ...; NULL for all): malloc'ed. */
int ofs_render_entries(const struct ofs_render *from,
    const struct ofs_layout *to, const char *section, uint32_t **entries,
    uint32_t *n, struct optimfs_error *err);
/* The type of a tensor's elements in the view, and how many bytes they are: a
 * renderer asks for nothing else; what it appends (ofs_composition_box) is in
 * that type. */
enum ofs_dtype ofs_render_dtype(const struct ofs_layout *to,
    const struct ofs_tensor *t);
uint64_t ofs_render_bytes(const struct ofs_catalog *cat,
    const struct ofs_layout *to, const struct ofs_tensor *t);
/* Fails when entry e is a tensor that is damaged, or cannot be written. */
int ofs_render_sound(const struct ofs_catalog *cat, const struct ofs_entry *e,
    struct optimfs_error *err);
/* The value of an entry that is no tensor, as a node of *doc, which is freed
 * with _release. */
int ofs_render_value(const struct ofs_render *from, const struct ofs_entry *e,
    const struct ofs_pickle **doc, uint32_t *node, struct optimfs_error *err);
void ofs_render_release(const struct ofs_entry *e,
    const struct ofs_pickle *doc);
/* The entry's path in the tree, without the component extra that the tree puts
 * before what is neither optimizer nor model. */
const uint32_t *ofs_render_path(const struct ofs_catalog *cat,
    const struct ofs_entry *e, uint32_t *n);
/* Is it the list of a group's parameters? */
bool ofs_render_is_params(const struct ofs_catalog *cat,
    const struct ofs_entry *e);
/* Pickle the value as the tree shows it: lists of IDs by the names they have
 * there. */
struct ofs_pkw;
int ofs_render_put(struct ofs_pkw *w, const struct ofs_catalog *cat,
    const struct ofs_entry *e, const struct ofs_pickle *doc, uint32_t node,
    struct optimfs_error *err);
/* Append the bytes of the archive that an entry's value is stored as, and note
 * it in files->copied. why, which says why it cannot be written anew, is how it
 * fails where there is no such archive. */
int ofs_render_copy(const struct ofs_render *from, const struct ofs_entry *e,
    const struct optimfs_error *why, struct ofs_files *files,
    struct ofs_buf *out, struct optimfs_error *err);
/* "OFSnnn text" becomes "KEY: OFSnnn text"; -1. */
int ofs_render_blame(const struct ofs_catalog *cat, const struct ofs_entry *e,
    struct optimfs_error *err);

#endif
