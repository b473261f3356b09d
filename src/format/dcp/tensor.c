/* tensor.c - a tensor of a DCP index, chunk by chunk */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/memory.h"
#include "base/str.h"
#include "derive/packed.h"
#include "format/dcp/dcp.h"

/* The tensor that is built for one key. */
struct building {
	struct ofs_str name;
	struct ofs_tensor t;
	struct ofs_dcp_dims shape;
	const struct ofs_dcp_index *at; /* the first index that has it */
};

/* Make tensor b unreadable; only the first reason is kept. */
static int spoil(struct ofs_dcp *d, struct building *b,
    struct optimfs_error *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

static int spoil(struct ofs_dcp *d, struct building *b,
    struct optimfs_error *err, int code, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	if (b->t.error != OFS_NONE)
		return 0;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	b->t.error = ofs_dcp_problem(d, b->name, code, text, err);
	return b->t.error == OFS_NONE ? -1 : 0;
}

/* Is it torch.strided: a global, or a call with its name? */
static bool is_strided(const struct ofs_pickle *doc, uint32_t node)
{
	uint32_t args;

	if (node == OFS_NONE || ofs_pk_kind(doc, node) == OFS_PK_NONE)
		return true;
	if (ofs_pk_kind(doc, node) == OFS_PK_GLOBAL)
		return ofs_pk_is(doc, node, NULL, "strided");
	if (ofs_pk_kind(doc, node) != OFS_PK_OBJECT)
		return false;
	args = ofs_pk_args(doc, node);
	return args != OFS_NONE && ofs_pk_len(doc, args) == 1 &&
	    ofs_pk_str_is(doc, ofs_pk_item(doc, args, 0), "torch.strided");
}

/* Is it a member of the enum: class(number), or getattr(class, name) from
 * Python 3.11.0 to 3.11.3? Its value is not used: the strides of the stored
 * item are. */
static bool is_memory_format(const struct ofs_pickle *doc, uint32_t node)
{
	uint32_t args, n;
	int64_t i;

	if (node == OFS_NONE || ofs_pk_kind(doc, node) == OFS_PK_NONE ||
	    ofs_pk_kind(doc, node) == OFS_PK_GLOBAL)
		return true;
	if (ofs_pk_kind(doc, node) != OFS_PK_OBJECT)
		return false;
	args = ofs_pk_args(doc, node);
	n = args == OFS_NONE ? 0 : ofs_pk_len(doc, args);
	if (n == 0)
		return false;
	args = ofs_pk_item(doc, args, n - 1);
	if (ofs_pk_int(doc, args, &i))
		return n == 1 && i >= 0 && i <= 2;
	return n == 2 && ofs_pk_kind(doc, args) == OFS_PK_STR;
}

/* Field i of TensorProperties, whose state is a tuple (dtype, layout,
 * requires_grad, memory_format, pin_memory, ...) or attributes. */
static uint32_t property(const struct ofs_pickle *doc, uint32_t node,
    uint32_t tuple, uint32_t i, const char *name)
{
	return tuple != OFS_NONE ? ofs_pk_item(doc, tuple, i)
				 : ofs_pk_attr(doc, node, name);
}

/* The state of TensorProperties, if it is a tuple; OFS_NONE. */
static uint32_t property_tuple(const struct ofs_pickle *doc, uint32_t node)
{
	uint32_t state = node;

	if (ofs_pk_kind(doc, node) == OFS_PK_OBJECT)
		state = ofs_pk_state(doc, node);
	return ofs_pk_kind(doc, state) == OFS_PK_TUPLE &&
		ofs_pk_len(doc, state) >= 5
	    ? state
	    : OFS_NONE;
}

static int note_quantized(struct ofs_dcp *d, struct optimfs_error *err)
{
	if (d->quantized)
		return 0;
	d->quantized = true;
	return ofs_catalog_note(d->cat, OFS_NOTE_WARNING, 0, err,
	    "OFS535 quantized tensors are shown as the integers that are "
	    "stored: see user.optimfs.scale and .zero_point");
}

static int read_properties(struct ofs_dcp *d, struct building *b,
    const struct ofs_pickle *doc, uint32_t properties,
    struct optimfs_error *err)
{
	uint32_t tuple = property_tuple(doc, properties);
	uint32_t dtype = property(doc, properties, tuple, 0, "dtype");
	uint32_t layout = property(doc, properties, tuple, 1, "layout");
	uint32_t format = property(doc, properties, tuple, 3, "memory_format");
	struct ofs_str module = { "", 0 }, name = { "", 0 };

	if (d->like.doc == doc && d->like.dtype == dtype &&
	    d->like.layout == layout && d->like.memory_format == format) {
		b->t.dtype = d->like.result;
		return 0;
	}
	if (dtype != OFS_NONE)
		ofs_pk_class(doc, dtype, &module, &name);
	b->t.dtype = (uint8_t)ofs_dtype_of_name(name.p, name.len);
	if (ofs_dtype_is_quantized(b->t.dtype) && note_quantized(d, err) == -1)
		return -1;
	if (b->t.dtype == OFS_DTYPE_NONE)
		return spoil(d, b, err, EOPNOTSUPP,
		    "OFS616 dtype '%.*s' is not supported",
		    OFS_STR_ARGS(name, 200));
	if (!is_strided(doc, layout))
		return spoil(d, b, err, EOPNOTSUPP,
		    "OFS617 only the strided layout is supported");
	if (!is_memory_format(doc, format))
		return spoil(d, b, err, EOPNOTSUPP,
		    "OFS617 unknown memory format");
	d->like.doc = doc;
	d->like.dtype = dtype;
	d->like.layout = layout;
	d->like.memory_format = format;
	d->like.result = b->t.dtype;
	return 0;
}

/* Print "[4, 1]" for a message. */
static const char *show(const uint64_t *v, unsigned n, char text[100])
{
	size_t len = 1;

	text[0] = '[';
	for (unsigned i = 0; i < n && len < 70; i++)
		len += (size_t)snprintf(text + len, 100 - len, "%s%" PRIu64,
		    i == 0 ? "" : ", ", v[i]);
	snprintf(text + len, 100 - len, "]");
	return text;
}

static int read_shape(struct ofs_dcp *d, struct building *b,
    const struct ofs_pickle *doc, uint32_t node, struct optimfs_error *err)
{
	if (ofs_dcp_sizes(doc, node, "size of TensorStorageMetadata", &b->shape,
		err) == -1)
		return -1;
	b->t.ndim = b->t.grid_ndim = b->shape.n;
	b->t.shape = ofs_catalog_dims(d->cat, b->shape.v, b->shape.n, err);
	b->t.grid = b->t.shape;
	return b->t.shape == OFS_NONE ? -1 : 0;
}

/* Has the extent as many bytes as the elements of sizes? A torch.save archive
 * is always longer. So it is a tensor in a safetensors blob, which starts at
 * this offset. */
static bool looks_like_blob(const struct building *b,
    const struct ofs_dcp_dims *sizes, const struct ofs_extent *at)
{
	uint64_t n;

	return at->codec == OFS_PLAIN && b->t.error == OFS_NONE &&
	    ofs_numel(sizes->v, sizes->n, &n) &&
	    ofs_mul_u64(n, ofs_dtype_size(b->t.dtype), &n) && n == at->len;
}

static int add_blob(struct ofs_dcp *d, const struct building *b,
    const struct ofs_extent *at, uint32_t shard, struct optimfs_error *err)
{
	uint32_t name = ofs_catalog_str(d->cat, b->name.p, b->name.len, err);

	if (name == OFS_NONE ||
	    ofs_grow(d->blob, d->nblobs, d->blob_cap, err) == -1)
		return -1;
	d->blob[d->nblobs++] = (struct ofs_dcp_blob){
		.off = at->off,
		.object = at->object,
		.shard = shard,
		.tensor = d->cat->ntensors,
		.name = name,
	};
	return 0;
}

static bool is_whole(const struct building *b,
    const struct ofs_dcp_dims *offsets, const struct ofs_dcp_dims *sizes)
{
	for (unsigned i = 0; i < offsets->n; i++)
		if (offsets->v[i] != 0 || sizes->v[i] != b->shape.v[i])
			return false;
	return true;
}

/* Tensors of torchao with fewer elements are not packed. */
#define PACKED_MIN 4096

/* Is the archive shorter than its elements? Then they can only be packed. */
static bool looks_packed(const struct building *b,
    const struct ofs_dcp_dims *sizes, const struct ofs_extent *at)
{
	uint64_t n, bytes;

	return at->codec == OFS_PLAIN && at->encoding == OFS_TORCH_ITEM &&
	    b->t.error == OFS_NONE && b->t.dtype == OFS_FLOAT32 &&
	    ofs_numel(sizes->v, sizes->n, &n) && n >= PACKED_MIN &&
	    ofs_mul_u64(n, ofs_dtype_size(b->t.dtype), &bytes) &&
	    at->len < bytes;
}

static int add_shard(struct ofs_dcp *d, struct building *b,
    const struct ofs_dcp_dims *offsets, const struct ofs_dcp_dims *sizes,
    const struct ofs_extent *at, struct optimfs_error *err)
{
	struct ofs_shard shard = {
		.at = *at, .box = OFS_NONE, .view = OFS_NONE
	};
	uint64_t box[2 * OFS_MAX_DIMS];
	uint32_t n = offsets->n, s;
	bool blob = looks_like_blob(b, sizes, at);

	if (blob && at->len == 0)
		shard.at.encoding = OFS_RAW;
	if (looks_packed(b, sizes, at) &&
	    ofs_packed_item(d->cat, &shard, err) == -1)
		return -1;
	if (!is_whole(b, offsets, sizes)) {
		memcpy(box, offsets->v, n * sizeof(box[0]));
		memcpy(box + n, sizes->v, n * sizeof(box[0]));
		shard.box = ofs_catalog_dims(d->cat, box, 2 * n, err);
	}
	s = ofs_catalog_shard(d->cat, &shard, err);
	if (s == OFS_NONE)
		return -1;
	b->t.nshards++;
	return blob && at->len != 0 ? add_blob(d, b, at, s, err) : 0;
}

static int hole(struct ofs_dcp *d, const struct building *b,
    const struct ofs_dcp_dims *offsets, const struct ofs_dcp_dims *sizes,
    struct optimfs_error *err)
{
	char at[100], size[100];

	return ofs_catalog_note(d->cat, OFS_NOTE_MISSING, EIO, err,
	    "OFS613 %.*s: the index does not say where the chunk at %s of "
	    "size %s is stored",
	    OFS_STR_ARGS(b->name, 200), show(offsets->v, offsets->n, at),
	    show(sizes->v, sizes->n, size));
}

static int add_chunk(struct ofs_dcp *d, struct building *b,
    struct ofs_dcp_index *index, uint32_t name, uint32_t node,
    struct optimfs_error *err)
{
	const struct ofs_pickle *doc = index->doc;
	uint32_t field[OFS_PK_FIELDS];
	struct ofs_dcp_dims offsets, sizes;
	struct ofs_dcp_place place;
	struct ofs_extent at;
	struct optimfs_error why;

	ofs_pk_read_fields(doc, node, &d->chunk, field);
	if (ofs_dcp_sizes(doc, field[OFS_DCP_OFFSETS],
		"offsets of ChunkStorageMetadata", &offsets, err) == -1 ||
	    ofs_dcp_sizes(doc, field[OFS_DCP_SIZES],
		"sizes of ChunkStorageMetadata", &sizes, err) == -1)
		return -1;
	if (b->t.error != OFS_NONE)
		return 0;
	if (offsets.n != b->shape.n || sizes.n != b->shape.n)
		return spoil(d, b, err, EUCLEAN,
		    "OFS608 a chunk has %u offsets and %u sizes, the "
		    "tensor %u dimensions",
		    offsets.n, sizes.n, b->shape.n);
	if (!ofs_dcp_index_find(index, name, field[OFS_DCP_OFFSETS], &place))
		return hole(d, b, &offsets, &sizes, err);
	if (ofs_dcp_extent(d, doc, &place, &at, &why, err) == -1)
		return -1;
	if (why.code != 0)
		return spoil(d, b, err, why.code, "%s", why.text);
	return add_shard(d, b, &offsets, &sizes, &at, err);
}

static int add_chunks(struct ofs_dcp *d, struct building *b,
    const struct ofs_dcp_key *key, uint32_t chunks, struct optimfs_error *err)
{
	struct ofs_dcp_index *index = &d->index[key->index];
	const struct ofs_pickle *doc = index->doc;
	uint32_t name = ofs_pk_key(doc, index->keys, key->pair), n;

	if (ofs_pk_kind(doc, chunks) != OFS_PK_LIST)
		return ofs_pk_unexpected(doc, chunks, err, "OFS418", NULL,
		    "chunks of '%.*s'", OFS_STR_ARGS(b->name, 200));
	n = ofs_pk_len(doc, chunks);
	/* each chunk is an object of its own, even if a writer shares the rest */
	index->nchunks += n;
	if (index->nchunks > ofs_pickle_nodes(doc))
		return optimfs_fail(err, E2BIG,
		    "OFS444 its tensors share chunks, so that they have more "
		    "than the %" PRIu32 " objects of the index",
		    ofs_pickle_nodes(doc));
	for (uint32_t i = 0; i < n; i++)
		if (add_chunk(d, b, index, name, ofs_pk_item(doc, chunks, i),
			err) == -1)
			return -1;
	return 0;
}

/* In a save without collectives each rank describes the whole tensor. */
static int check_same(struct ofs_dcp *d, struct building *b,
    const struct ofs_dcp_index *index, const uint32_t field[OFS_PK_FIELDS],
    struct optimfs_error *err)
{
	struct building other = { .name = b->name, .t.error = 0 };

	if (read_properties(d, &other, index->doc, field[OFS_DCP_PROPERTIES],
		err) == -1 ||
	    ofs_dcp_sizes(index->doc, field[OFS_DCP_SIZE],
		"size of TensorStorageMetadata", &other.shape, err) == -1)
		return -1;
	if (b->t.error != OFS_NONE ||
	    (other.t.dtype == b->t.dtype && other.shape.n == b->shape.n &&
		memcmp(other.shape.v, b->shape.v,
		    b->shape.n * sizeof(b->shape.v[0])) == 0))
		return 0;
	return spoil(d, b, err, EPROTO,
	    "OFS674 rank %d gives it another dtype or shape than rank "
	    "%d",
	    index->rank, b->at->rank);
}

int ofs_dcp_add_tensor(struct ofs_dcp *d, const struct ofs_dcp_key *key,
    struct ofs_str name, const uint32_t field[OFS_PK_FIELDS],
    struct optimfs_error *err)
{
	uint32_t path = key->path, nblobs = d->nblobs, other[OFS_PK_FIELDS];
	struct building b = {
		.name = name,
		.at = &d->index[key->index],
		.t.shard = d->cat->nshards,
		.t.error = OFS_NONE,
	};

	if (read_properties(d, &b, b.at->doc, field[OFS_DCP_PROPERTIES], err) ==
		-1 ||
	    read_shape(d, &b, b.at->doc, field[OFS_DCP_SIZE], err) == -1 ||
	    add_chunks(d, &b, key, field[OFS_DCP_CHUNKS], err) == -1)
		return -1;
	while (key->next != OFS_NONE) {
		const struct ofs_dcp_index *index;

		key = &d->key[key->next];
		index = &d->index[key->index];
		ofs_pk_read_fields(index->doc, ofs_dcp_node(d, key), &d->tensor,
		    other);
		if (check_same(d, &b, index, other, err) == -1 ||
		    add_chunks(d, &b, key, other[OFS_DCP_CHUNKS], err) == -1)
			return -1;
	}
	/* the header of a blob has its name */
	return ofs_catalog_add(d->cat, path, OFS_ENTRY_TENSOR,
	    ofs_catalog_tensor(d->cat, &b.t, err),
	    d->nblobs > nblobs ? OFS_KEY_FIXED : OFS_KEY_FREE, err);
}
