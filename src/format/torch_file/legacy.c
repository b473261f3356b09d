/* legacy.c - the stream that torch.save wrote before version 1.6 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/torch_file/legacy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/cursor.h"
#include "base/memory.h"
#include "base/search.h"
#include "base/str.h"

/* The length of a pickle is not known before it is parsed: read this much, then
 * four times as much until it suffices. */
#define FIRST_READ  (64u << 10)
#define MAX_PICKLES ((uint64_t)1 << 30)

/* The bytes of the stream that were read. */
struct stream {
	ofs_zip_read_fn *read;
	void *ctx;
	uint64_t size;
	uint8_t *p;
	uint64_t n, off; /* bytes read; offset of the next pickle */
	const struct ofs_pickle_limits *limits; /* may be NULL */
	/* limit for the bytes of all pickles */
	uint64_t max;
	struct optimfs_error *err;
};

/* A storage that the object refers to. */
struct named {
	struct ofs_str key;
	uint64_t numel, item;
	uint32_t node; /* gives the order in which torch reads them */
};

static int malformed(struct stream *s, const char *what)
{
	return optimfs_fail(s->err, EUCLEAN, "OFS671 legacy stream: %s", what);
}

static int read_more(struct stream *s)
{
	uint64_t n = s->n == 0 ? FIRST_READ : 4 * s->n;
	uint8_t *p;

	if (n > s->size)
		n = s->size;
	if (n > s->max)
		n = s->max;
	p = realloc(s->p, n + 1);
	if (p == NULL)
		return ofs_no_memory(s->err);
	s->p = p;
	if (s->read(s->ctx, s->n, n - s->n, p + s->n, s->err) == -1)
		return -1;
	s->n = n;
	return 0;
}

/* Did the parse fail because the input is too short? */
static bool wants_more(const struct optimfs_error *e)
{
	switch (e->number) {
	case 401:
	case 402:
	case 404:
	case 414:
	case 419:
		return true;
	default:
		return false;
	}
}

/* Parse the next pickle of the stream. It borrows s->p until more is read. */
static struct ofs_pickle *next_pickle(struct stream *s, const char *what)
{
	struct optimfs_error e = { 0 };
	struct ofs_pickle *doc;
	uint64_t used;

	for (;;) {
		doc = ofs_pickle_parse(s->p + s->off, s->n - s->off, false,
		    s->limits, &used, &e);
		if (doc != NULL) {
			s->off += used;
			return doc;
		}
		if (wants_more(&e) && s->n == s->max && s->n < s->size)
			optimfs_fail(&e, E2BIG,
			    "OFS440 its pickles have more than %" PRIu64
			    " bytes (-o max_metadata)",
			    s->max);
		if (!wants_more(&e) || s->n == s->size) {
			if (s->err != NULL)
				*s->err = e;
			optimfs_fail_in(s->err, "legacy stream's %s", what);
			return NULL;
		}
		if (read_more(s) == -1)
			return NULL;
	}
}

static int check_magic(struct stream *s)
{
	static const uint8_t magic[] = { 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20,
		0x6a, 0xa8, 0x50, 0x19 };
	struct ofs_pickle *doc = next_pickle(s, "magic number");
	struct ofs_str v;
	bool good;

	if (doc == NULL)
		return -1;
	v = ofs_pk_str(doc, ofs_pickle_root(doc));
	good = ofs_pk_kind(doc, ofs_pickle_root(doc)) == OFS_PK_BIGINT &&
	    v.len == sizeof(magic) && memcmp(v.p, magic, v.len) == 0;
	ofs_pickle_free(doc);
	return good ? 0 : malformed(s, "another magic number");
}

static int check_protocol(struct stream *s)
{
	struct ofs_pickle *doc = next_pickle(s, "protocol");
	int64_t v = 0;

	if (doc == NULL)
		return -1;
	ofs_pk_int(doc, ofs_pickle_root(doc), &v);
	ofs_pickle_free(doc);
	return v == 1001 ? 0 : malformed(s, "its protocol is not 1001");
}

static int check_system(struct stream *s)
{
	struct ofs_pickle *doc = next_pickle(s, "system information");
	uint32_t little;
	bool good;

	if (doc == NULL)
		return -1;
	little = ofs_pk_get(doc, ofs_pickle_root(doc), "little_endian");
	good =
	    ofs_pk_kind(doc, little) == OFS_PK_BOOL && ofs_pk_bool(doc, little);
	ofs_pickle_free(doc);
	return good ? 0 : malformed(s, "its writer was not little-endian");
}

static int by_key(const void *va, const void *vb)
{
	const struct named *a = va, *b = vb;
	int c = ofs_str_compare(a->key, b->key);

	return c != 0 ? c : a->node < b->node ? -1 : a->node > b->node;
}

/* Find every storage that the object refers to, also where it is not shown,
 * because each has its bytes in the stream. */
static int find_named(struct stream *s, const struct ofs_pickle *doc,
    struct named **named, size_t *n)
{
	uint32_t nodes = ofs_pickle_nodes(doc);
	struct ofs_torch_tensor t;
	struct named *p;
	size_t count = 0;

	for (uint32_t i = 0; i < nodes; i++)
		count += ofs_pk_kind(doc, i) == OFS_PK_PERSID;
	p = calloc(count + 1, sizeof(*p));
	if (p == NULL)
		return ofs_no_memory(s->err);
	*n = 0;
	for (uint32_t i = 0; i < nodes; i++) {
		if (ofs_pk_kind(doc, i) != OFS_PK_PERSID ||
		    ofs_torch_tensor(doc, i, &t, NULL) != 1)
			continue;
		p[*n].item = t.typed ? ofs_dtype_size(t.dtype) : 1;
		p[*n].numel = t.storage_bytes / p[*n].item;
		p[*n].key = t.key;
		p[(*n)++].node = i;
	}
	qsort(p, *n, sizeof(*p), by_key);
	*named = p;
	return 0;
}

static int compare_key(const void *key, const void *item)
{
	const struct named *p = item;

	return ofs_str_compare(*(const struct ofs_str *)key, p->key);
}

/* The first with this key, whose type torch uses. */
static const struct named *find_key(const struct named *p, size_t n,
    struct ofs_str key)
{
	return ofs_search(&key, p, n, sizeof(*p), compare_key);
}

/* Read a storage: its number of elements, then its bytes. 1: it and all after
 * it are lost. */
static int measure(struct stream *s, const struct named *x,
    struct ofs_torch_storage *out, uint64_t *off)
{
	uint8_t count[8];
	uint64_t bytes;

	if (s->size - *off < sizeof(count))
		return 1;
	if (s->read(s->ctx, *off, sizeof(count), count, s->err) == -1)
		return -1;
	if (ofs_le64(count) != x->numel ||
	    !ofs_mul_u64(x->numel, x->item, &bytes) ||
	    bytes > s->size - *off - sizeof(count))
		return 1;
	*out = (struct ofs_torch_storage){
		.key = x->key, .off = *off + sizeof(count), .len = bytes
	};
	*off = out->off + bytes;
	return 0;
}

static int find_storages(struct stream *s, const struct ofs_pickle *keys,
    const struct named *named, size_t nnamed, struct ofs_legacy *l)
{
	uint32_t root = ofs_pickle_root(keys), n = ofs_pk_len(keys, root);
	struct ofs_str last = { "", 0 };
	uint64_t off = s->off;
	int lost = 0;

	if (ofs_pk_kind(keys, root) != OFS_PK_LIST)
		return malformed(s, "its storage keys are not a list");
	if (n > nnamed)
		return malformed(s, "more storage keys than storages");
	l->storage = calloc((size_t)n + 1, sizeof(*l->storage));
	if (l->storage == NULL)
		return ofs_no_memory(s->err);
	for (uint32_t i = 0; i < n; i++) {
		struct ofs_str key =
		    ofs_pk_str(keys, ofs_pk_item(keys, root, i));
		const struct named *x = find_key(named, nnamed, key);

		if (ofs_str_compare(last, key) >= 0)
			return malformed(s,
			    "its storage keys are out of order or repeated");
		if (x == NULL)
			return malformed(s, "a storage key that nothing uses");
		last = key;
		if (lost == 0)
			lost = measure(s, x, &l->storage[i], &off);
		if (lost == -1)
			return -1;
		if (lost == 0)
			l->n++;
	}
	l->lost = n - l->n;
	l->trailing = l->lost == 0 ? s->size - off : 0;
	return 0;
}

/* Copy the bytes of the object, because the buffer around them may be large. */
static struct ofs_pickle *keep(struct stream *s, uint64_t off, uint64_t n)
{
	uint8_t *copy = malloc(n + 1);

	if (copy == NULL) {
		ofs_no_memory(s->err);
		return NULL;
	}
	memcpy(copy, s->p + off, n);
	return ofs_pickle_parse(copy, n, true, s->limits, NULL, s->err);
}

static int read_object(struct stream *s, struct ofs_legacy *l)
{
	struct ofs_pickle *doc, *keys = NULL;
	struct named *named = NULL;
	uint64_t off = s->off, end;
	size_t n = 0;
	int ret = -1;

	doc = next_pickle(s, "object");
	if (doc == NULL)
		return -1;
	ofs_pickle_free(doc);
	end = s->off;
	keys = next_pickle(s, "storage keys");
	if (keys == NULL)
		return -1;
	l->doc = keep(s, off, end - off);
	if (l->doc != NULL && find_named(s, l->doc, &named, &n) == 0)
		ret = find_storages(s, keys, named, n, l);
	free(named);
	ofs_pickle_free(keys);
	return ret;
}

int ofs_legacy_open(struct ofs_legacy *l, uint64_t size,
    const struct ofs_pickle_limits *limits, ofs_zip_read_fn *read, void *ctx,
    struct optimfs_error *err)
{
	struct stream s = { .read = read,
		.ctx = ctx,
		.size = size,
		.limits = limits,
		.max = limits == NULL || limits->bytes == 0 ? MAX_PICKLES
							    : limits->bytes,
		.err = err };
	int ret = -1;

	*l = (struct ofs_legacy){ 0 };
	if (read_more(&s) == 0 && check_magic(&s) == 0 &&
	    check_protocol(&s) == 0 && check_system(&s) == 0)
		ret = read_object(&s, l);
	free(s.p);
	if (ret == -1)
		ofs_legacy_fini(l);
	return ret;
}

void ofs_legacy_fini(struct ofs_legacy *l)
{
	ofs_pickle_free(l->doc);
	free(l->storage);
	*l = (struct ofs_legacy){ 0 };
}
