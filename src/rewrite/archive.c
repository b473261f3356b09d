/* archive.c - rewrite a pickle and its container */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "rewrite/archive.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "archive/torch.h"
#include "archive/torch_storage.h"
#include "base/checked.h"
#include "base/crc.h"
#include "base/dtype.h"
#include "base/memory.h"
#include "base/search.h"
#include "base/str.h"
#include "catalog/budget.h"
#include "layout/archive.h"
#include "pickle/write.h"

static int read_archive(void *ctx, uint64_t off, uint64_t len, void *buf,
    struct optimfs_error *err)
{
	struct ofs_commit_archive *a = ctx;

	return ofs_transport_read(a->c->reader->transport, &a->at, off, len,
	    buf, err);
}

/* The pickle in n bytes from off on, which *bytes gets; NULL: *bytes is to be
 * freed, too. used: as of ofs_pickle_parse. */
static struct ofs_pickle *read_pickle(struct ofs_commit_archive *a,
    uint64_t off, uint64_t n, uint8_t **bytes, uint64_t *used,
    struct optimfs_error *err)
{
	const struct ofs_pickle_limits limits = {
		.memory = a->c->job->options->parse_mem
	};

	*bytes = NULL;
	if (n > ofs_metadata_max(a->c->cat)) {
		optimfs_fail(err, E2BIG, "OFS440 a pickle of %" PRIu64 " bytes",
		    n);
		return NULL;
	}
	*bytes = malloc(n + 1);
	if (*bytes == NULL) {
		ofs_no_memory(err);
		return NULL;
	}
	return read_archive(a, off, n, *bytes, err) == -1
	    ? NULL
	    : ofs_pickle_parse(*bytes, n, false, &limits, used, err);
}

static int take_pickle(struct ofs_commit_archive *a, uint64_t off, uint64_t n,
    uint64_t *used, struct optimfs_error *err)
{
	a->doc = read_pickle(a, off, n, &a->pickle, used, err);
	if (a->doc == NULL)
		return -1;
	a->npickle = used == NULL ? n : *used;
	a->modern = n > 1 && a->pickle[0] == 0x80 && a->pickle[1] > 2;
	return 0;
}

static int open_zip(struct ofs_commit_archive *a, uint64_t size,
    struct optimfs_error *err)
{
	uint64_t off;

	if (ofs_zip_open(&a->dir, size, read_archive, a, err) == -1)
		return -1;
	a->zip = true;
	a->record = ofs_zip_find(&a->dir, "data.pkl", 8);
	if (a->record == NULL)
		return optimfs_fail(err, EUCLEAN, "OFS434 no data.pkl");
	if (ofs_zip_data(&a->dir, a->record, read_archive, a, &off, err) == -1)
		return -1;
	return take_pickle(a, off, a->record->size, NULL, err);
}

/* The bytes of a legacy stream from off on in which a pickle is looked for. */
static uint64_t pickle_room(const struct ofs_commit_archive *a, uint64_t off)
{
	uint64_t most = ofs_metadata_max(a->c->cat);

	return a->after - off < most ? a->after - off : most;
}

/* A legacy stream: three pickles, then that of the object. */
static int open_legacy(struct ofs_commit_archive *a, uint64_t size,
    struct optimfs_error *err)
{
	uint64_t used;

	a->after = size;
	for (int i = 0; i < 4; i++) {
		ofs_pickle_free(a->doc);
		free(a->pickle);
		a->doc = NULL;
		a->pickle = NULL;
		if (take_pickle(a, a->before, pickle_room(a, a->before), &used,
			err) == -1)
			return -1;
		a->before += i < 3 ? used : 0;
	}
	return 0;
}

int ofs_commit_archive_open(struct ofs_commit *c,
    const struct ofs_commit_source *s, struct ofs_commit_archive *a,
    struct optimfs_error *err)
{
	uint8_t head[512];
	uint64_t size, n;
	enum ofs_torch_magic magic;
	int ret;

	*a = (struct ofs_commit_archive){
		.c = c,
		.at = { .object = s->object,
		    .off = s->off,
		    .len = s->len,
		    .codec = s->codec },
	};
	if (ofs_transport_length(c->reader->transport, &a->at, &size, err) ==
	    -1)
		return -1;
	n = size < sizeof(head) ? size : sizeof(head);
	if (read_archive(a, 0, n, head, err) == -1)
		return -1;
	magic = ofs_torch_magic(head, n);
	if (magic == OFS_TORCH_ZIP)
		ret = open_zip(a, size, err);
	else if (magic == OFS_TORCH_STREAM)
		ret = open_legacy(a, size, err);
	else
		ret = take_pickle(a, 0, size, NULL, err);
	if (ret == 0)
		return 0;
	ofs_commit_archive_close(a);
	/* as if it was missing, but only if the user says so */
	if (err != NULL && (err->code == EUCLEAN || err->code == EIO))
		optimfs_fail_in(err,
		    "the commit has to change this file too; restore it, or "
		    "move it away to commit without it");
	return -1;
}

void ofs_commit_archive_close(struct ofs_commit_archive *a)
{
	ofs_pickle_free(a->doc);
	free(a->pickle);
	if (a->zip)
		ofs_zip_fini(&a->dir);
	*a = (struct ofs_commit_archive){ 0 };
}

/* Is it a storage? *key gets its key. */
static bool is_storage(const struct ofs_zip_record *r, struct ofs_str *key)
{
	*key = r->name;
	return ofs_str_take(key, "data/");
}

uint64_t ofs_commit_archive_key(const struct ofs_commit_archive *a)
{
	uint64_t next = 0, number;
	struct ofs_str key;

	for (size_t i = 0; a->zip && i < a->dir.n; i++)
		if (is_storage(&a->dir.record[i], &key) &&
		    ofs_str_take_number(&key, &number) && key.len == 0 &&
		    number >= next)
			next = number + 1;
	return next;
}

/* Laying out. */

struct layout {
	struct ofs_commit *c;
	struct ofs_commit_archive *a;
	const struct ofs_pickle *doc; /* the new pickle */
	struct ofs_str *key;          /* storages that it refers to */
	size_t nkeys, key_cap;
	struct ofs_torch_new new;
	struct ofs_composition *to;
	struct optimfs_error *err;
};

/* Finds the storages that the new pickle refers to: the storage of a removed
 * tensor goes too, unless others are views of it. */
static int find_named(struct layout *l)
{
	uint32_t n = ofs_pickle_nodes(l->doc);

	for (uint32_t i = 0; i < n; i++) {
		struct ofs_str s;

		if (ofs_pk_kind(l->doc, i) != OFS_PK_PERSID)
			continue;
		s = ofs_pk_str(l->doc,
		    ofs_pk_item(l->doc, ofs_pk_item(l->doc, i, 0), 2));
		if (s.len == 0)
			continue;
		if (ofs_grow(l->key, l->nkeys, l->key_cap, l->err) == -1)
			return -1;
		l->key[l->nkeys++] = s;
	}
	if (l->nkeys > 0)
		qsort(l->key, l->nkeys, sizeof(*l->key), ofs_compare_str);
	return 0;
}

static bool is_named(const struct layout *l, struct ofs_str key)
{
	return ofs_search(&key, l->key, l->nkeys, sizeof(key),
		   ofs_compare_str) != NULL;
}

/* Adds a record that is one part; crc 0: it is computed, if the archive has
 * checksums. */
static int put(struct layout *l, struct ofs_str name, uint32_t crc,
    const struct ofs_torch_part *part)
{
	struct ofs_str dir = l->a->dir.prefix;
	struct ofs_torch_storage_new *s;

	if (ofs_torch_new_storage(&l->new, l->err) == -1)
		return -1;
	s = &l->new.storage[l->new.nstorages - 1];
	s->crc = crc;
	if (asprintf(&s->name, "%.*s%.*s", OFS_STR_ARGS(dir, INT_MAX),
		OFS_STR_ARGS(name, INT_MAX)) == -1) {
		s->name = NULL;
		return ofs_no_memory(l->err);
	}
	return ofs_torch_new_part(&l->new, l->c->added, part, l->err);
}

static int put_old(struct layout *l, const struct ofs_zip_record *r)
{
	struct ofs_torch_part part = { .tensor = OFS_NONE,
		.item = OFS_TORCH_OLD,
		.count = r->size };
	struct ofs_str key;

	if (is_storage(r, &key) && !is_named(l, key))
		return 0;
	if (ofs_zip_data(&l->a->dir, r, read_archive, l->a, &part.first,
		l->err) == -1)
		return -1;
	return put(l, r->name,
	    ofs_patches_meet(&l->c->patches, &l->a->at, part.first, r->size)
		? 0
		: r->crc,
	    &part);
}

static int put_pickle(struct layout *l, const struct ofs_buf *pickle)
{
	ofs_buf_put(&l->new.literal, pickle->data, pickle->len);
	if (l->new.literal.bad)
		return ofs_no_memory(l->err);
	return put(l, l->a->record->name,
	    ofs_crc32(0, pickle->data, pickle->len),
	    &(struct ofs_torch_part){ .tensor = OFS_NONE,
		.count = pickle->len });
}

static int put_storage(struct layout *l, const struct ofs_commit_storage *s)
{
	struct ofs_torch_part part = {
		.tensor = ofs_commit_added(l->c, s->task, l->err),
		.count =
		    ofs_commit_bytes(s->task) / ofs_dtype_size(s->task->dtype)
	};
	char name[32];

	snprintf(name, sizeof(name), "data/%" PRIu64, s->key);
	return part.tensor == OFS_NONE ? -1
				       : put(l, ofs_str_of(name), 0, &part);
}

static int compare_headers(const void *a, const void *b)
{
	const struct ofs_zip_record
	    *x = *(const struct ofs_zip_record *const *)a,
	    *y = *(const struct ofs_zip_record *const *)b;

	return x->header < y->header ? -1 : x->header > y->header;
}

/* New records come after the existing storages. */
static int put_records(struct layout *l, const struct ofs_buf *pickle,
    const struct ofs_commit_storage *storage, size_t n)
{
	const struct ofs_zip *zip = &l->a->dir;
	const struct ofs_zip_record **r = calloc(zip->n + 1, sizeof(*r));
	size_t last = zip->n - 1;
	struct ofs_str key;
	int ret = 0;

	if (r == NULL)
		return ofs_no_memory(l->err);
	for (size_t i = 0; i < zip->n; i++)
		r[i] = &zip->record[i];
	qsort(r, zip->n, sizeof(*r), compare_headers);
	for (size_t i = 0; i < zip->n; i++)
		if (is_storage(r[i], &key))
			last = i;
	for (size_t i = 0; i < zip->n && ret == 0; i++) {
		ret = r[i] == l->a->record ? put_pickle(l, pickle)
					   : put_old(l, r[i]);
		for (size_t k = 0; i == last && k < n && ret == 0; k++)
			ret = put_storage(l, &storage[k]);
	}
	free(r);
	return ret;
}

static int lay_zip(struct layout *l, const struct ofs_buf *pickle,
    const struct ofs_commit_storage *storage, size_t n)
{
	l->new.base = l->to->size;
	l->new.old = &l->a->at;
	l->new.crc = n > 0 || !ofs_zip_sums_without(&l->a->dir);
	if (find_named(l) == -1 || put_records(l, pickle, storage, n) == -1 ||
	    ofs_torch_new_place(&l->new, NULL, l->err) == -1)
		return -1;
	return ofs_torch_new_put(&l->new, l->c->added, l->to, l->err);
}

/* The storages of a legacy stream follow a pickle with the list of their keys.
 * Each is its number of elements, and these. */

/* What the old pickle says of one. */
struct behind {
	struct ofs_str key;
	uint64_t bytes;
};

struct stream {
	struct layout *l;
	struct behind *storage; /* sorted by their keys */
	size_t n, cap;
	uint8_t *bytes;
	struct ofs_pickle *keys; /* parsed from bytes */
};

static int find_behind(struct stream *s)
{
	const struct ofs_pickle *doc = s->l->a->doc;
	uint32_t n = ofs_pickle_nodes(doc);
	struct ofs_torch_source source;

	for (uint32_t i = 0; i < n; i++) {
		if (ofs_pk_kind(doc, i) != OFS_PK_PERSID ||
		    ofs_torch_storage_of(doc, i, &source, NULL) == -1)
			continue;
		if (ofs_grow(s->storage, s->n, s->cap, s->l->err) == -1)
			return -1;
		s->storage[s->n++] =
		    (struct behind){ source.key, source.bytes };
	}
	if (s->n > 0)
		qsort(s->storage, s->n, sizeof(*s->storage), ofs_compare_str);
	return 0;
}

static bool all_named(const struct stream *s)
{
	bool all = true;

	for (size_t i = 0; i < s->n && all; i++)
		all = is_named(s->l, s->storage[i].key);
	return all;
}

static struct ofs_str key_of(const struct stream *s, uint32_t i)
{
	return ofs_pk_str(s->keys,
	    ofs_pk_item(s->keys, ofs_pickle_root(s->keys), i));
}

/* The list of the keys that are still named. */
static int lay_keys(struct stream *s)
{
	uint32_t n = ofs_pk_len(s->keys, ofs_pickle_root(s->keys));
	struct ofs_buf list = { 0 };
	struct ofs_pkw w = { .out = &list };
	int ret;

	ofs_pkw_begin(&w);
	ofs_pkw_lit(&w, "[");
	for (uint32_t i = 0; i < n; i++)
		if (is_named(s->l, key_of(s, i)))
			ofs_pkw_lit(&w, "%.*s,", OFS_PKW_STR(key_of(s, i)));
	ofs_pkw_lit(&w, "]");
	ret = ofs_pkw_end(&w, s->l->err);
	if (ret == 0)
		ret = ofs_composition_buf(s->l->to, &list, s->l->err);
	ofs_buf_fini(&list);
	return ret;
}

/* Those that are still named; at: where the first one is. */
static int lay_behind(struct stream *s, uint64_t at)
{
	uint32_t n = ofs_pk_len(s->keys, ofs_pickle_root(s->keys));
	const struct ofs_commit_archive *a = s->l->a;
	uint64_t len;

	for (uint32_t i = 0; i < n; i++, at += len) {
		struct ofs_str key = key_of(s, i);
		const struct behind *b = ofs_search(&key, s->storage, s->n,
		    sizeof(*b), ofs_compare_str);

		if (b == NULL || !ofs_add_u64(b->bytes, 8, &len) ||
		    len > a->after - at)
			return optimfs_fail(s->l->err, EIO,
			    "OFS672 the legacy stream ends before storage %.*s",
			    OFS_STR_ARGS(key, 100));
		if (is_named(s->l, key) &&
		    ofs_composition_stored(s->l->to, &a->at, at, len,
			s->l->err) == -1)
			return -1;
	}
	return ofs_composition_stored(s->l->to, &a->at, at, a->after - at,
	    s->l->err);
}

/* PyTorch loads no stream with a storage that its pickle does not name. */
static int leave_out(struct stream *s, uint64_t at)
{
	struct ofs_commit_archive *a = s->l->a;
	uint64_t used;

	s->keys =
	    read_pickle(a, at, pickle_room(a, at), &s->bytes, &used, s->l->err);
	return s->keys == NULL || lay_keys(s) == -1 ? -1
						    : lay_behind(s, at + used);
}

/* Bytes before and after the pickle stay. */
static int lay_stream(struct layout *l, const struct ofs_buf *pickle)
{
	const struct ofs_commit_archive *a = l->a;
	uint64_t behind = a->before + a->npickle;
	struct stream s = { .l = l };
	int ret = -1;

	if (find_named(l) == 0 && find_behind(&s) == 0 &&
	    ofs_composition_stored(l->to, &a->at, 0, a->before, l->err) == 0 &&
	    ofs_composition_buf(l->to, pickle, l->err) == 0)
		ret = all_named(&s)
		    ? ofs_composition_stored(l->to, &a->at, behind,
			  a->after > behind ? a->after - behind : 0, l->err)
		    : leave_out(&s, behind);
	free(s.storage);
	ofs_pickle_free(s.keys);
	free(s.bytes);
	return ret;
}

int ofs_commit_archive_lay(struct ofs_commit *c, struct ofs_commit_archive *a,
    const struct ofs_buf *pickle, const struct ofs_commit_storage *storage,
    size_t nstorages, struct ofs_composition *to, struct optimfs_error *err)
{
	struct layout l = { .c = c, .a = a, .to = to, .err = err };
	struct ofs_pickle *doc =
	    ofs_pickle_parse(pickle->data, pickle->len, false, NULL, NULL, err);
	int ret = -1;

	l.doc = doc;
	if (doc != NULL)
		ret = a->zip ? lay_zip(&l, pickle, storage, nstorages)
			     : lay_stream(&l, pickle);
	if (ret == 0)
		ofs_commit_placed(c, &a->at);
	ofs_pickle_free(doc);
	ofs_torch_new_fini(&l.new);
	free(l.key);
	return ret;
}
