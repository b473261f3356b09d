/* render_blob.c - the tensors of a rank as one safetensors blob */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>

#include "archive/safetensors.h"
#include "base/dtype.h"
#include "base/memory.h"
#include "format/dcp/render.h"

/* What FileSystemWriter makes with SerializationFormat.SAFETENSORS (PyTorch
 * 2.8 and later, torch/distributed/checkpoint/filesystem.py): behind the values
 * of a file, one blob with all of its tensors; the header's __metadata__ has
 * where in its tensor each chunk begins. A block of the header is a function of
 * its first leaf and of where that one's elements are. */

#define BLOCK 512u

enum part {
	PART_HEAD = 1, /* the header's length, up to the chunks' places */
	PART_PLACES,   /* in base: none went before */
	PART_MIDDLE,   /* up to the tensors */
	PART_TENSORS,  /* in base: the elements before */
	PART_TAIL,     /* in base: bytes of padding */
};

#define REF(part, leaf) ((uint64_t)(part) << 56 | (leaf))
#define REF_PART(ref)   ((enum part)((ref) >> 56))
#define REF_LEAF(ref)   ((uint32_t)(ref))

struct blob {
	const struct ofs_dcp_files *f;
	uint32_t rank;
	struct ofs_buf key;
	uint32_t next; /* leaf, behind a block */
};

bool ofs_dcp_blob_is(const struct ofs_span *span)
{
	return span->ref >> 56 != 0;
}

static void get_key(struct blob *b, uint32_t leaf)
{
	b->key.len = 0;
	ofs_dcp_leaf_key(b->f, leaf, &b->key);
}

static void put_numbers(struct ofs_buf *out, const uint64_t *v, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		ofs_buf_printf(out, "%s%" PRIu64, i > 0 ? "," : "", v[i]);
}

static const struct ofs_tensor *tensor_of(const struct blob *b, uint32_t leaf)
{
	const struct ofs_catalog *cat = b->f->cat;

	return &cat->tensors[cat->entries[b->f->leaf[leaf].entry].ref];
}

/* "key": {"saved_offsets": [0, 0]}, as JSON within a string of JSON. */
static void put_place(struct blob *b, uint32_t leaf, uint32_t chunk, bool first,
    struct ofs_buf *out)
{
	uint64_t offsets[OFS_MAX_DIMS], sizes[OFS_MAX_DIMS];
	struct ofs_buf key = { 0 };

	get_key(b, leaf);
	ofs_buf_json(&key, b->key.data, b->key.len);
	ofs_dcp_chunk_box(b->f, leaf, chunk, offsets, sizes);
	ofs_buf_puts(out, first ? "\\\"" : ", \\\"");
	ofs_buf_json(out, key.data, key.len);
	ofs_buf_puts(out, "\\\": {\\\"saved_offsets\\\": [");
	put_numbers(out, offsets, tensor_of(b, leaf)->ndim);
	ofs_buf_puts(out, "]}");
	out->bad = out->bad || b->key.bad || key.bad;
	ofs_buf_fini(&key);
}

static void put_tensor(struct blob *b, uint32_t leaf, uint32_t chunk,
    uint64_t off, struct ofs_buf *out)
{
	const struct ofs_tensor *t = tensor_of(b, leaf);
	uint64_t offsets[OFS_MAX_DIMS], sizes[OFS_MAX_DIMS];

	get_key(b, leaf);
	ofs_dcp_chunk_box(b->f, leaf, chunk, offsets, sizes);
	ofs_buf_puts(out, ",\"");
	ofs_buf_json(out, b->key.data, b->key.len);
	ofs_buf_printf(out, "\":{\"dtype\":\"%s\",\"shape\":[",
	    ofs_dtype_safetensors(ofs_render_dtype(&b->f->to, t)));
	put_numbers(out, sizes, t->ndim);
	ofs_buf_printf(out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
	    off, off + ofs_dcp_item_size(&b->f->leaf[leaf], chunk));
	out->bad = out->bad || b->key.bad;
}

/* Leaves of a block; *base moves on, next is the leaf behind them. */
static void put_block(struct blob *b, enum part part, uint32_t leaf,
    uint64_t *base, struct ofs_buf *out)
{
	struct ofs_dcp_walk w;

	ofs_dcp_walk_begin(&w, b->f, b->rank, leaf);
	b->next = b->f->nleaves;
	for (uint32_t n = 0; ofs_dcp_walk_next(&w, OFS_DCP_TENSORS); n++) {
		if (n == BLOCK) {
			b->next = w.leaf;
			break;
		}
		if (part == PART_PLACES) {
			put_place(b, w.leaf, w.of_leaf, *base == 0, out);
			*base = 1;
			continue;
		}
		put_tensor(b, w.leaf, w.of_leaf, *base, out);
		*base += ofs_dcp_item_size(&b->f->leaf[w.leaf], w.of_leaf);
	}
}

static void put_part(struct blob *b, uint64_t ref, uint64_t *base,
    struct ofs_buf *out)
{
	switch (REF_PART(ref)) {
	case PART_HEAD:
		for (int i = 0; i < 8; i++)
			ofs_buf_putc(out, (int)(*base >> 8 * i & 0xff));
		ofs_buf_puts(out,
		    "{\"__metadata__\":{\"format\":\"pt\","
		    "\"DCP_SHARDING_INFO\":\"{");
		break;
	case PART_MIDDLE:
		ofs_buf_puts(out, "}\",\"DCP_VERSION\":\"1.0\"}");
		break;
	case PART_TAIL:
		ofs_buf_putc(out, '}');
		for (uint64_t i = 0; i < *base; i++)
			ofs_buf_putc(out, ' ');
		break;
	case PART_PLACES:
	case PART_TENSORS:
		put_block(b, REF_PART(ref), REF_LEAF(ref), base, out);
	}
}

/* Add the span of a part, whose length is found by making it. */
static int add(struct blob *b, uint64_t ref, uint64_t *base,
    struct ofs_spans *out, struct optimfs_error *err)
{
	struct ofs_buf bytes = { 0 };
	uint64_t first = *base;
	int ret;

	put_part(b, ref, base, &bytes);
	if (bytes.bad)
		ret = ofs_no_memory(err);
	else
		ret = ofs_spans_add(out, bytes.len, ref, first, err);
	ofs_buf_fini(&bytes);
	return ret;
}

static int add_blocks(struct blob *b, enum part part, struct ofs_spans *out,
    struct optimfs_error *err)
{
	uint64_t base = 0;
	uint32_t leaf = 0;

	while (leaf < b->f->nleaves) {
		if (add(b, REF(part, leaf), &base, out, err) == -1)
			return -1;
		leaf = b->next;
	}
	return 0;
}

static int add_header(struct blob *b, struct ofs_spans *out,
    struct optimfs_error *err)
{
	uint64_t begin = out->n == 0 ? 0 : out->v[out->n - 1].end, n, none = 0;
	size_t head = out->n;

	if (add(b, REF(PART_HEAD, 0), &none, out, err) == -1 ||
	    add_blocks(b, PART_PLACES, out, err) == -1 ||
	    add(b, REF(PART_MIDDLE, 0), &none, out, err) == -1 ||
	    add_blocks(b, PART_TENSORS, out, err) == -1)
		return -1;
	/* the brace, and spaces up to a multiple of eight */
	n = out->v[out->n - 1].end - begin - 8 + 1;
	none = (8 - n % 8) % 8;
	out->v[head].base = n + none;
	if (n + none > OFS_SAFETENSORS_HEADER_MAX)
		return optimfs_fail(err, E2BIG,
		    "OFS652 __%u_0.distcp: a header of %" PRIu64
		    " bytes, more than readers take",
		    b->rank, n);
	return add(b, REF(PART_TAIL, 0), &none, out, err);
}

int ofs_dcp_blob_spans(const struct ofs_dcp_files *f, uint32_t rank,
    struct ofs_spans *out, struct optimfs_error *err)
{
	struct blob b = { .f = f, .rank = rank };
	int ret = add_header(&b, out, err);
	struct ofs_dcp_walk w;

	ofs_dcp_walk_begin(&w, f, rank, 0);
	while (ret == 0 && ofs_dcp_walk_next(&w, OFS_DCP_TENSORS))
		ret = ofs_spans_add(out,
		    ofs_dcp_item_size(&f->leaf[w.leaf], w.of_leaf), w.leaf,
		    w.of_leaf, err);
	ofs_buf_fini(&b.key);
	return ret;
}

int ofs_dcp_blob_make(const struct ofs_dcp_files *f, uint32_t rank,
    const struct ofs_span *span, struct ofs_composition *c,
    struct optimfs_error *err)
{
	struct blob b = { .f = f, .rank = rank };
	struct ofs_buf bytes = { 0 };
	uint64_t base = span->base;
	int ret;

	put_part(&b, span->ref, &base, &bytes);
	if (bytes.bad)
		ret = ofs_no_memory(err);
	else
		ret = ofs_composition_bytes(c, bytes.data, bytes.len, err);
	ofs_buf_fini(&bytes);
	ofs_buf_fini(&b.key);
	return ret;
}

int ofs_dcp_blob_takes(enum ofs_dtype dtype, struct optimfs_error *err)
{
	if (ofs_safetensors_has(dtype))
		return 0;
	return optimfs_fail(err, EOPNOTSUPP,
	    "OFS448 safetensors has no type %s", ofs_dtype_name(dtype));
}
