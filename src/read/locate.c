/* locate.c - positions of elements in stored extents, found once and kept */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "read/locate.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "archive/item_view.h"
#include "archive/torch.h"
#include "archive/zip.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/search.h"
#include "catalog/budget.h"
#include "catalog/owners.h"
#include "catalog/tile.h"
#include "plan/fix.h"
#include "read/agree.h"
#include "read/derived.h"

/* Reads an extent as an archive. */
struct source {
	struct ofs_transport *transport;
	struct ofs_extent at;
	bool failed; /* a read failed; its message names the file */
};

static int read_source(void *ctx, uint64_t off, uint64_t len, void *buf,
    struct optimfs_error *err)
{
	struct source *s = ctx;
	int ret = ofs_transport_read(s->transport, &s->at, off, len, buf, err);

	s->failed |= ret == -1;
	return ret;
}

/* The length of all of it, decoded. */
static int source_length(struct source *s, uint64_t *len,
    struct optimfs_error *err)
{
	int ret = ofs_transport_length(s->transport, &s->at, len, err);

	s->failed |= ret == -1;
	return ret;
}

/* A shard that is being located. */
struct lookup {
	struct ofs_reader *r;
	const struct ofs_tensor *t;
	const struct ofs_shard *s;
	uint64_t size[OFS_MAX_DIMS]; /* of its box */
	uint64_t item;
	struct ofs_place *place;
	struct source source;
	struct optimfs_error *err;
};

/* Place a box in C order at the start of len bytes. */
static int place_plain(struct lookup *k, uint64_t len)
{
	unsigned int d = k->t->grid_ndim;
	uint64_t bytes = k->item;

	for (unsigned int i = d; i-- > 0;) {
		k->place->stride[i] = (int64_t)bytes;
		/* no overflow: a part of a tensor that fits */
		bytes *= k->size[i];
	}
	if (bytes == len)
		return 0;
	return optimfs_fail(k->err, EUCLEAN,
	    "OFS527 %" PRIu64 " bytes are stored for %" PRIu64, len, bytes);
}

/* Place a view: its strides, checked against the len bytes of its storage. */
static int place_view(struct lookup *k, const struct ofs_view *v, uint64_t len)
{
	const int64_t *stride = (const int64_t *)(k->r->cat->dims + v->stride);
	uint64_t last = v->offset, bytes, step, item = k->item;

	if ((v->fix & OFS_FIX_ROUND) != 0)
		item = OFS_ROUND_FROM;
	if (!ofs_mul_u64(v->numel, item, &bytes) || bytes != len)
		return optimfs_fail(k->err, EUCLEAN,
		    "OFS527 %" PRIu64 " bytes are stored for %" PRIu64
		    " elements",
		    len, v->numel);
	for (unsigned int i = 0; i < k->t->grid_ndim; i++) {
		if (k->size[i] == 1)
			continue;
		if (stride[i] < 0 ||
		    !ofs_mul_u64((uint64_t)stride[i], k->size[i] - 1, &step) ||
		    !ofs_add_u64(last, step, &last))
			return optimfs_fail(k->err, EUCLEAN,
			    "OFS529 stride %" PRId64 " of dim %u", stride[i],
			    i);
		/* cannot overflow if the last element is inside */
		k->place->stride[i] = (int64_t)((uint64_t)stride[i] * item);
	}
	if (last >= v->numel)
		return optimfs_fail(k->err, EUCLEAN,
		    "OFS528 element %" PRIu64 " of a storage of %" PRIu64, last,
		    v->numel);
	k->place->base += v->offset * item;
	k->place->fix = v->fix;
	return 0;
}

static int place_storage(struct lookup *k, uint64_t len)
{
	if (k->s->view == OFS_NONE)
		return place_plain(k, len);
	return place_view(k, &k->r->cat->views[k->s->view], len);
}

static int locate_raw(struct lookup *k)
{
	uint64_t len;

	if (source_length(&k->source, &len, k->err) == -1)
		return -1;
	return place_storage(k, len);
}

/* The elements follow the header of the array, which was checked at mount. */
static int locate_npy(struct lookup *k)
{
	uint64_t size, len = k->item;

	if (source_length(&k->source, &size, k->err) == -1)
		return -1;
	/* no overflow: the bytes of a tensor that fits */
	for (unsigned int i = 0; i < k->t->grid_ndim; i++)
		len *= k->size[i];
	if (len > size)
		return optimfs_fail(k->err, EUCLEAN,
		    "OFS527 %" PRIu64 " bytes are stored for %" PRIu64, size,
		    len);
	k->place->base += size - len;
	return place_storage(k, len);
}

/* The local header gives the start of the record's bytes. */
static int locate_record(struct lookup *k)
{
	const struct ofs_object *o = &k->r->cat->objects[k->s->at.object];

	if (k->s->at.codec != OFS_PLAIN)
		return optimfs_fail(k->err, EOPNOTSUPP,
		    "OFS619 a tensor inside a compressed archive");
	k->source.at =
	    (struct ofs_extent){ .object = k->s->at.object, .len = o->size };
	if (ofs_zip_data_at(&k->s->at, read_source, &k->source, o->size,
		&k->place->base, k->err) == -1)
		return -1;
	return place_storage(k, k->s->at.len);
}

/* The shard is a part of its item (src/archive/item_view.h). */
static int match_part(struct lookup *k, const struct ofs_torch_tensor *tt)
{
	const struct ofs_view *v = &k->r->cat->views[k->s->view];
	const int64_t *stride = (const int64_t *)(k->r->cat->dims + v->stride);
	uint64_t first;

	if (ofs_item_view(tt, v, stride, k->size, k->t->grid_ndim, &first,
		k->place->stride, k->err) == -1)
		return -1;
	k->place->base += first * k->item;
	for (unsigned int i = 0; i < k->t->grid_ndim; i++)
		k->place->stride[i] *= (int64_t)k->item;
	return 0;
}

/* Is the tensor in the archive the one in the catalog? Megatron-Core drops
 * leading dimensions of one; all others must be equal. */
static int match(struct lookup *k, const struct ofs_torch_tensor *tt)
{
	unsigned int i = 0, j = 0;

	if (tt->dtype != k->t->dtype)
		return optimfs_fail(k->err, EUCLEAN,
		    "OFS615 the item holds %s, its index says %s",
		    ofs_dtype_name(tt->dtype), ofs_dtype_name(k->t->dtype));
	if (k->s->view != OFS_NONE)
		return match_part(k, tt);
	for (;;) {
		while (i < k->t->grid_ndim && k->size[i] == 1)
			k->place->stride[i++] = 0;
		while (j < tt->ndim && tt->shape[j] == 1)
			j++;
		if (i == k->t->grid_ndim || j == tt->ndim)
			break;
		if (k->size[i] != tt->shape[j])
			return optimfs_fail(k->err, EUCLEAN,
			    "OFS615 dim %u of the item is %" PRIu64
			    ", its index says %" PRIu64,
			    j, tt->shape[j], k->size[i]);
		k->place->stride[i++] = tt->stride[j++] * (int64_t)k->item;
	}
	if (i < k->t->grid_ndim || j < tt->ndim)
		return optimfs_fail(k->err, EUCLEAN,
		    "OFS615 the item has %u dims, its index says %u", tt->ndim,
		    k->t->grid_ndim);
	return 0;
}

static int place_tensor(struct lookup *k, const struct ofs_pickle *doc,
    const struct ofs_zip *zip, struct ofs_window *w)
{
	const struct ofs_zip_record *r;
	struct ofs_torch_tensor tt;
	uint64_t data;
	int is = ofs_torch_tensor(doc, ofs_pickle_root(doc), &tt, k->err);

	if (is == -1)
		return -1;
	if (is == 0)
		return optimfs_fail(k->err, EUCLEAN,
		    "OFS615 the item is a %s, its index says a tensor",
		    ofs_pk_kind_name(doc, ofs_pickle_root(doc)));
	r = ofs_torch_record(zip, tt.key);
	if (r == NULL)
		return optimfs_fail(k->err, EIO,
		    "OFS434 storage '%.*s' missing from the archive",
		    OFS_STR_ARGS(tt.key, 100));
	if (ofs_torch_check(&tt, r->size, k->err) == -1 ||
	    match(k, &tt) == -1 ||
	    ofs_zip_data(zip, r, ofs_window_read, w, &data, k->err) == -1)
		return -1;
	k->place->base += data + tt.offset * k->item;
	k->place->fix = tt.fix;
	if (zip->big_endian)
		k->place->fix |= OFS_FIX_SWAP;
	return 0;
}

/* A torch.save archive of one tensor, which may be a view. */
static int locate_item(struct lookup *k)
{
	struct ofs_pickle_limits limits = ofs_pickle_budget(k->r->cat);
	struct ofs_pickle *doc;
	struct ofs_window w;
	struct ofs_zip zip;
	uint64_t size;
	int ret;

	if (source_length(&k->source, &size, k->err) == -1)
		return -1;
	ofs_window_init(&w, size, read_source, &k->source);
	doc = ofs_torch_open(size, &limits, ofs_window_read, &w, &zip, k->err);
	if (doc == NULL)
		return -1;
	ret = place_tensor(k, doc, &zip, &w);
	ofs_pickle_free(doc);
	ofs_zip_fini(&zip);
	return ret;
}

static int look(struct lookup *k)
{
	switch ((enum ofs_encoding)k->s->at.encoding) {
	case OFS_RAW:
		return locate_raw(k);
	case OFS_TORCH_ITEM:
		return locate_item(k);
	case OFS_TORCH_RECORD:
		return locate_record(k);
	case OFS_NPY:
		return locate_npy(k);
	case OFS_DERIVED:
		return ofs_derived_place(k->r, k->t, k->s, k->place, k->err);
	}
	return optimfs_fail(k->err, EOPNOTSUPP, "OFS619 unknown encoding");
}

void ofs_locate_fail_in(const struct ofs_catalog *cat,
    const struct ofs_extent *at, struct optimfs_error *err)
{
	const char *file = cat->objects[at->object].path;

	if (err == NULL)
		return;
	optimfs_fail_in(err, "%.200s at %" PRIu64, file, at->off);
	if (err->code == EUCLEAN && at->encoding == OFS_TORCH_ITEM)
		ofs_mark_lost_file(err, OPTIMFS_LOST_GARBLED,
		    strnlen(file, 200));
}

/* Add file and offset; the messages of the transport have them already. */
static void add_context(const struct ofs_catalog *cat, const struct source *s,
    const struct ofs_extent *at, struct optimfs_error *err)
{
	if (!s->failed)
		ofs_locate_fail_in(cat, at, err);
}

/* Which elements of the tensor are lost, where they are not all. */
static void add_box(const struct lookup *k)
{
	char box[200];

	if (k->t->nshards == 1 || k->t->grid != k->t->shape)
		return;
	ofs_tile_print(k->r->cat, k->t, k->s, box, sizeof(box));
	optimfs_fail_in(k->err, "elements %s", box);
}

/* A place whose base is the start of the extent. */
static struct ofs_place *new_place(const struct ofs_tensor *t,
    const struct ofs_extent *at, struct optimfs_error *err)
{
	struct ofs_place *p =
	    ofs_alloc(1, sizeof(*p) + t->grid_ndim * sizeof(p->stride[0]), err);

	if (p == NULL)
		return NULL;
	p->object = at->object;
	p->codec = at->codec;
	if (at->codec == OFS_PLAIN) {
		p->base = at->off;
	} else {
		p->ext_off = at->off;
		p->ext_len = at->len;
	}
	return p;
}

static struct ofs_place *locate(struct ofs_reader *r,
    const struct ofs_tensor *t, const struct ofs_shard *s,
    struct optimfs_error *err)
{
	struct lookup k = {
		.r = r,
		.t = t,
		.s = s,
		.item = ofs_dtype_size(t->dtype),
		.source = { r->transport, s->at, false },
		.err = err,
	};
	uint64_t lo[OFS_MAX_DIMS];

	k.place = new_place(t, &s->at, err);
	if (k.place == NULL)
		return NULL;
	ofs_shard_box(r->cat, t, s, lo, k.size);
	if (look(&k) == 0)
		return k.place;
	add_context(r->cat, &k.source, &s->at, err);
	add_box(&k);
	free(k.place);
	return NULL;
}

/* Threads that find no place locate the shard themselves. The first to finish
 * stores its result, the others free theirs. */
const struct ofs_place *ofs_locate_shard(void *ctx, const struct ofs_tensor *t,
    uint32_t shard, struct optimfs_error *err)
{
	struct ofs_reader *r = ctx;
	struct ofs_place *known = atomic_load(&r->place[shard]), *place;

	if (known != NULL)
		return known;
	place = locate(r, t, &r->cat->shards[shard], err);
	if (place == NULL)
		return NULL;
	if (atomic_compare_exchange_strong(&r->place[shard], &known, place))
		return place;
	free(place);
	return known;
}

const struct ofs_place *ofs_locate(void *ctx, const struct ofs_tensor *t,
    uint32_t shard, struct optimfs_error *err)
{
	const struct ofs_place *place = ofs_locate_shard(ctx, t, shard, err);

	/* copies of a scalar are shown where they differ (fs/value.c) */
	if (place == NULL || (t->flags & OFS_TENSOR_DOUBT) == 0 || t->ndim == 0)
		return place;
	return ofs_copies_agree(ctx, t, shard, place, err) == 0 ? place : NULL;
}

struct ofs_place *ofs_locate_replica(struct ofs_reader *r,
    const struct ofs_tensor *t, const struct ofs_replica *copy,
    struct optimfs_error *err)
{
	struct ofs_shard s = r->cat->shards[copy->shard];

	s.at = copy->at;
	s.view = copy->view;
	return locate(r, t, &s, err);
}

const struct ofs_place *ofs_locate_rank(void *ctx, const struct ofs_tensor *t,
    uint32_t shard, struct optimfs_error *err)
{
	struct ofs_rank_place *p = ctx;
	const struct ofs_replica *copy =
	    p->rank < 0 ? NULL : ofs_replica_of(p->reader->cat, shard, p->rank);

	if (copy == NULL)
		return ofs_locate_shard(p->reader, t, shard, err);
	if (p->place == NULL || p->shard != shard) {
		free(p->place);
		p->place = ofs_locate_replica(p->reader, t, copy, err);
		p->shard = shard;
	}
	return p->place;
}

/* Read a pickle that is not in an archive. */
static struct ofs_pickle *read_pickle(struct source *s,
    const struct ofs_pickle_limits *limits, struct optimfs_error *err)
{
	uint8_t *bytes;
	uint64_t len;

	if (ofs_transport_read_all(s->transport, &s->at, limits->bytes, &bytes,
		&len, err) == -1) {
		s->failed = true;
		return NULL;
	}
	return ofs_pickle_parse(bytes, len, true, limits, NULL, err);
}

static struct ofs_pickle *read_archive(struct source *s,
    const struct ofs_pickle_limits *limits, struct optimfs_error *err)
{
	struct ofs_pickle *doc;
	struct ofs_zip zip;
	uint64_t size;

	if (source_length(s, &size, err) == -1)
		return NULL;
	doc = ofs_torch_open(size, limits, read_source, s, &zip, err);
	if (doc == NULL)
		return NULL;
	if (ofs_torch_note_elements(doc, &zip, read_source, s, err) == -1) {
		ofs_pickle_free(doc);
		doc = NULL;
	}
	ofs_zip_fini(&zip);
	return doc;
}

struct ofs_pickle *ofs_locate_item(struct ofs_reader *r,
    const struct ofs_item *item, struct optimfs_error *err)
{
	struct ofs_pickle_limits limits = ofs_pickle_budget(r->cat);
	struct source s = { r->transport, item->at, false };
	struct ofs_pickle *doc;

	if (item->error != OFS_NONE) {
		ofs_catalog_fail(r->cat, item->error, err);
		return NULL;
	}
	if (item->at.encoding == OFS_RAW)
		doc = read_pickle(&s, &limits, err);
	else
		doc = read_archive(&s, &limits, err);
	if (doc == NULL)
		add_context(r->cat, &s, &item->at, err);
	return doc;
}

int ofs_locate_item_bytes(struct ofs_reader *r, const struct ofs_item *item,
    uint64_t max, struct ofs_buf *out, struct optimfs_error *err)
{
	uint8_t *bytes;
	uint64_t len;

	if (item->error != OFS_NONE)
		return ofs_catalog_fail(r->cat, item->error, err);
	if (ofs_transport_read_all(r->transport, &item->at, max, &bytes, &len,
		err) == -1)
		return -1;
	ofs_buf_put(out, bytes, len);
	free(bytes);
	return out->bad ? ofs_no_memory(err) : 0;
}

OFS_COMPARE_KEY(compare_scale, uint32_t, struct ofs_scale, tensor)

int ofs_locate_scale(struct ofs_reader *r, uint32_t tensor,
    struct ofs_scale *scale, struct optimfs_error *err)
{
	const struct ofs_scale *known;
	const struct ofs_tensor *t = &r->cat->tensors[tensor];
	struct ofs_item item = { .error = t->error };
	struct ofs_torch_tensor described;
	struct ofs_pickle *doc;
	int ret;

	known = ofs_search(&tensor, r->cat->scales, r->cat->nscales,
	    sizeof(*known), compare_scale);
	if (known != NULL) {
		*scale = *known;
		return 1;
	}
	if (!ofs_dtype_is_quantized(t->dtype) || t->nshards == 0)
		return 0;
	item.at = r->cat->shards[t->shard].at;
	if (item.at.encoding != OFS_TORCH_ITEM)
		return 0;
	doc = ofs_locate_item(r, &item, err);
	if (doc == NULL)
		return -1;
	ret = ofs_torch_tensor(doc, ofs_pickle_root(doc), &described, err);
	ofs_pickle_free(doc);
	if (ret == 1 && !described.quantized)
		ret = 0;
	if (ret == 1)
		*scale = (struct ofs_scale){ tensor, described.scale,
			described.zero_point };
	return ret;
}
