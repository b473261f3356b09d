/* render_index.c - .metadata of a DCP checkpoint, block by block */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "format/dcp/dcp.h"
#include "format/dcp/render.h"
#include "pickle/write.h"

/* The form of torch 2.11 (torch/distributed/checkpoint/metadata.py), which 2.3
 * and later read: unknown attributes of a class do no harm. The pickle consists
 * of blocks that can be generated in any order, so that a read generates only
 * the entries it needs. Classes and names that blocks share are put into the
 * memo first and popped. Each block starts its own memo entries at the same
 * number, and no other block uses them. */

#define M      "torch.distributed.checkpoint.metadata"
#define F      "torch.distributed.checkpoint.filesystem"
#define LAYOUT "$torch.serialization._get_layout('torch.strided')"
#define FORMAT "$" M "._MEM_FORMAT_ENCODING(0)"

/* The ref of a span: part of the index, rank, first leaf. */
enum part {
	PART_HEAD,    /* up to the dict state_dict_metadata */
	PART_META,    /* its entries */
	PART_PLANNER, /* up to the dict planner_data */
	PART_PATHS,
	PART_STORAGE, /* up to the dict storage_data */
	PART_VALUES,  /* items of values, then of tensors */
	PART_TENSORS,
	PART_TAIL,
};

#define REF(part, rank, leaf) \
 ((uint64_t)(part) << 56 | (uint64_t)(rank) << 32 | (leaf))
#define REF_PART(ref) ((enum part)((ref) >> 56))
#define REF_RANK(ref) ((uint32_t)((ref) >> 32) & 0xffffffu)
#define REF_LEAF(ref) ((uint32_t)(ref))

/* Entries of a block, and their chunks; one entry may have more. */
#define BLOCK 512u

struct writer {
	const struct ofs_dcp_files *f;
	struct ofs_pkw w;
	struct ofs_buf key;
	enum part part; /* of the next block */
	uint32_t next;  /* its leaf */
};

static void pop(struct ofs_pkw *w)
{
	ofs_pkw_op(w, OFS_PKW_POP);
}

/* Put the texts into the memo that all blocks use. */
static void put_shared(struct writer *x)
{
	static const char *const classes[] = { "Metadata",
		"TensorStorageMetadata", "BytesStorageMetadata",
		"TensorProperties", "ChunkStorageMetadata", "MetadataIndex",
		"StorageMeta", "_MEM_FORMAT_ENCODING" };
	static const char *const names[] = { "properties", "size", "chunks",
		"offsets", "sizes", "fqn", "index", "offset", "relative_path",
		"length" };
	struct ofs_pkw *w = &x->w;

	ofs_pkw_begin(w);
	for (size_t i = 0; i < sizeof(classes) / sizeof(*classes); i++) {
		ofs_pkw_global(w, M, classes[i]);
		pop(w);
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		ofs_pkw_known(w, names[i]);
		pop(w);
	}
	if (x->f->to.zstd != 0) {
		ofs_pkw_known(w, "transform_descriptors");
		pop(w);
	}
	ofs_pkw_lit(w, F "._StorageInfo");
	pop(w);
	ofs_pkw_lit(w, "torch.Size");
	pop(w);
	ofs_pkw_lit(w, LAYOUT);
	pop(w);
	ofs_pkw_lit(w, FORMAT);
	pop(w);
}

static void put_key(struct writer *x, uint32_t leaf)
{
	x->key.len = 0;
	ofs_dcp_leaf_key(x->f, leaf, &x->key);
	x->w.out->bad = x->w.out->bad || x->key.bad;
	ofs_pkw_str(&x->w, (const char *)x->key.data, x->key.len);
}

static void put_chunk(struct writer *x, uint32_t leaf, uint32_t chunk,
    unsigned ndim)
{
	uint64_t offsets[OFS_MAX_DIMS], sizes[OFS_MAX_DIMS];
	struct ofs_pkw *w = &x->w;

	ofs_dcp_chunk_box(x->f, leaf, chunk, offsets, sizes);
	ofs_pkw_lit(w, M ".ChunkStorageMetadata<{'offsets': ");
	ofs_dcp_put_size(w, offsets, ndim);
	ofs_pkw_lit(w, ", 'sizes': ");
	ofs_dcp_put_size(w, sizes, ndim);
	ofs_pkw_lit(w, "}>,");
}

static void put_meta(struct writer *x, uint32_t leaf)
{
	uint32_t n = x->f->leaf[leaf].nchunks;
	const struct ofs_tensor *t;
	struct ofs_pkw *w = &x->w;

	put_key(x, leaf);
	if (n == 0) {
		ofs_pkw_lit(w, M ".BytesStorageMetadata<>");
		return;
	}
	t = ofs_dcp_leaf_tensor(x->f, leaf);
	/* dtype, layout, requires_grad, memory_format, pin_memory */
	ofs_pkw_lit(w,
	    M ".TensorStorageMetadata<{'properties': " M ".TensorProperties<"
	      "(torch.%s, " LAYOUT ", False, " FORMAT ", False)>, 'size': ",
	    ofs_dtype_name(ofs_render_dtype(&x->f->to, t)));
	ofs_dcp_put_size(w, ofs_tensor_shape(x->f->cat, t), t->ndim);
	ofs_pkw_lit(w, ", 'chunks': [*");
	for (uint32_t i = 0; i < n; i++)
		put_chunk(x, leaf, i, t->ndim);
	ofs_pkw_lit(w, "]}>");
}

/* The place of a parameter group in the path of a leaf in the tree; 0: none. */
static uint32_t group_at(const struct ofs_dcp_files *f, uint32_t leaf)
{
	uint32_t n;
	const uint32_t *c = ofs_dcp_leaf_path(f, leaf, &n);

	if (!ofs_catalog_string_is(f->cat, c[0], "optim"))
		return 0;
	/* an optimizer with a name is not called state */
	for (uint32_t i = 2; i <= 3 && i < n; i++) {
		if (ofs_catalog_string_is(f->cat, c[i - 1], "param_groups"))
			return i;
		if (ofs_catalog_string_is(f->cat, c[i - 1], "state"))
			break;
	}
	return 0;
}

bool ofs_dcp_lists_groups(const struct ofs_dcp_files *f)
{
	uint32_t n, v;

	for (uint32_t leaf = 0; leaf < f->nleaves && !f->source; leaf++) {
		const uint32_t *c = ofs_dcp_leaf_path(f, leaf, &n);
		uint32_t i = group_at(f, leaf);

		if (i > 0 &&
		    !ofs_str_number(ofs_catalog_string(f->cat, c[i]), &v))
			return false;
	}
	return !f->source;
}

static void put_path(struct writer *x, uint32_t leaf)
{
	const struct ofs_catalog *cat = x->f->cat;
	struct ofs_pkw *w = &x->w;
	uint32_t n, group = x->f->groups ? group_at(x->f, leaf) : 0;
	const uint32_t *c = ofs_dcp_leaf_path(x->f, leaf, &n);

	put_key(x, leaf);
	ofs_pkw_tuple_open(w, n);
	/* PyTorch loads into a dict, never into a list */
	for (uint32_t i = 0; i < n; i++)
		ofs_dcp_put_component(w, ofs_catalog_string(cat, c[i]),
		    i > 0 && (i == group || (c[i] & OFS_PATH_INDEX) != 0));
	ofs_pkw_tuple_close(w, n);
}

static void put_place(struct writer *x, uint32_t leaf, uint32_t chunk,
    uint32_t rank, uint64_t off)
{
	const struct ofs_dcp_leaf *l = &x->f->leaf[leaf];
	struct ofs_pkw *w = &x->w;
	uint64_t offsets[OFS_MAX_DIMS], sizes[OFS_MAX_DIMS];
	char name[OFS_FILE_NAME];

	ofs_pkw_lit(w, M ".MetadataIndex<{'fqn': ");
	put_key(x, leaf);
	if (l->nchunks == 0) {
		ofs_pkw_lit(w, ", 'index': None}>");
	} else {
		ofs_dcp_chunk_box(x->f, leaf, chunk, offsets, sizes);
		ofs_pkw_lit(w, ", 'index': %u, 'offset': ", chunk);
		ofs_dcp_put_size(w, offsets,
		    ofs_dcp_leaf_tensor(x->f, leaf)->ndim);
		ofs_pkw_lit(w, "}>");
	}
	x->f->files.ops->name(&x->f->files, rank + 1, name);
	ofs_pkw_lit(w,
	    F "._StorageInfo<{'relative_path': %s, 'offset': %" PRIu64
	      ", 'length': %" PRIu64,
	    name, off, ofs_dcp_stored_size(x->f, leaf, chunk));
	if (x->f->to.zstd != 0)
		ofs_pkw_lit(w, ", 'transform_descriptors': [%s]",
		    "stream.zstd/1");
	ofs_pkw_lit(w, "}>");
}

/* Append a block of storage_data, whose items begin at *off, which advances over
 * them. */
static void put_places(struct writer *x, enum part part, uint32_t rank,
    uint32_t leaf, uint64_t *off)
{
	struct ofs_dcp_walk w;
	uint32_t n = 0;

	ofs_dcp_walk_begin(&w, x->f, rank,
	    part == PART_VALUES ? OFS_DCP_VALUES : OFS_DCP_TENSORS, leaf, *off);
	x->next = x->f->nleaves;
	while (ofs_dcp_walk_next(&w)) {
		if (w.kind == OFS_DCP_HEADER)
			continue;
		if (n++ == BLOCK) {
			x->next = w.leaf;
			break;
		}
		if (n == 1)
			ofs_pkw_op(&x->w, OFS_PKW_MARK);
		put_place(x, w.leaf, w.of_leaf, rank, w.off);
		*off = w.end;
	}
	x->part = w.kind == OFS_DCP_VALUES ? PART_VALUES : PART_TENSORS;
	if (n > 0)
		ofs_pkw_op(&x->w, OFS_PKW_SETITEMS);
}

/* Append a block of entries; next is the leaf after them. */
static void put_entries(struct writer *x, uint32_t leaf,
    void (*one)(struct writer *x, uint32_t leaf))
{
	const struct ofs_dcp_files *f = x->f;
	uint64_t chunks = 0;

	ofs_pkw_op(&x->w, OFS_PKW_MARK);
	for (x->next = leaf; x->next < f->nleaves && chunks < BLOCK;
	     x->next++) {
		one(x, x->next);
		chunks += f->leaf[x->next].nchunks + 1;
	}
	ofs_pkw_op(&x->w, OFS_PKW_SETITEMS);
}

static void put_dict(struct ofs_pkw *w, const char *name)
{
	ofs_pkw_str(w, name, strlen(name));
	ofs_pkw_op_put(w, OFS_PKW_DICT);
}

/* Append storage_meta and version. */
static void put_tail(struct ofs_pkw *w)
{
	ofs_pkw_lit(w,
	    "'storage_meta': " M
	    ".StorageMeta<{'checkpoint_id': None, 'save_id': None, "
	    "'load_id': None, 'modules': []}>, 'version': '1.0.0'");
	ofs_pkw_object_end(w);
	ofs_pkw_op(w, OFS_PKW_STOP);
}

/* Append the bytes of one span; *off is the offset of its items in
 * storage_data. */
static void put_span(struct writer *x, uint64_t ref, uint64_t *off,
    struct ofs_buf *out)
{
	struct ofs_buf shared = { 0 };
	struct ofs_pkw *w = &x->w;

	*w = (struct ofs_pkw){ .out = &shared };
	put_shared(x);
	w->out = out;
	switch (REF_PART(ref)) {
	case PART_HEAD:
		ofs_buf_put(out, shared.data, shared.len);
		ofs_pkw_object(w, M, "Metadata");
		put_dict(w, "state_dict_metadata");
		break;
	case PART_META:
		put_entries(x, REF_LEAF(ref), put_meta);
		break;
	case PART_PLANNER:
		put_dict(w, "planner_data");
		break;
	case PART_PATHS:
		put_entries(x, REF_LEAF(ref), put_path);
		break;
	case PART_STORAGE:
		put_dict(w, "storage_data");
		break;
	case PART_VALUES:
	case PART_TENSORS:
		put_places(x, REF_PART(ref), REF_RANK(ref), REF_LEAF(ref), off);
		break;
	case PART_TAIL:
		put_tail(w);
	}
	out->bad = out->bad || shared.bad;
	ofs_buf_fini(&shared);
}

struct measure {
	struct writer x;
	struct ofs_buf bytes;
	struct ofs_spans *out;
};

/* Add a span; its length is that of its generated bytes. */
static int measure_span(struct measure *m, uint64_t ref, uint64_t *off,
    struct optimfs_error *err)
{
	uint64_t base = *off;

	m->bytes.len = 0;
	put_span(&m->x, ref, off, &m->bytes);
	if (m->bytes.bad)
		return ofs_no_memory(err);
	return ofs_spans_add(m->out, m->bytes.len, ref, base, err);
}

/* Add the blocks from the first of a part on. */
static int add_blocks(struct measure *m, enum part part, uint32_t rank,
    uint64_t *off, struct optimfs_error *err)
{
	struct writer *x = &m->x;

	x->part = part;
	for (x->next = 0; x->next < x->f->nleaves;)
		if (measure_span(m, REF(x->part, rank, x->next), off, err) ==
		    -1)
			return -1;
	return 0;
}

static int measure(struct measure *m, struct optimfs_error *err)
{
	const struct ofs_dcp_files *f = m->x.f;
	uint64_t off = 0;

	if (measure_span(m, REF(PART_HEAD, 0, 0), &off, err) == -1 ||
	    add_blocks(m, PART_META, 0, &off, err) == -1 ||
	    measure_span(m, REF(PART_PLANNER, 0, 0), &off, err) == -1 ||
	    add_blocks(m, PART_PATHS, 0, &off, err) == -1 ||
	    measure_span(m, REF(PART_STORAGE, 0, 0), &off, err) == -1)
		return -1;
	for (uint32_t r = 0; r < f->nranks; r++) {
		off = 0;
		if (add_blocks(m, PART_VALUES, r, &off, err) == -1)
			return -1;
	}
	off = 0;
	return measure_span(m, REF(PART_TAIL, 0, 0), &off, err);
}

int ofs_dcp_index_spans(const struct ofs_dcp_files *f, struct ofs_spans *out,
    struct optimfs_error *err)
{
	struct measure m = { .x.f = f, .out = out };
	int ret = measure(&m, err);

	ofs_buf_fini(&m.bytes);
	ofs_buf_fini(&m.x.key);
	return ret;
}

int ofs_dcp_index_make(const struct ofs_dcp_files *f,
    const struct ofs_span *span, struct ofs_composition *c,
    struct optimfs_error *err)
{
	struct writer x = { .f = f };
	struct ofs_buf bytes = { 0 };
	uint64_t off = span->base;
	int ret;

	put_span(&x, span->ref, &off, &bytes);
	ret = ofs_composition_buf(c, &bytes, err);
	ofs_buf_fini(&bytes);
	ofs_buf_fini(&x.key);
	return ret;
}
