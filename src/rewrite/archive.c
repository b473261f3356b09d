/* archive.c - rewrite a pickle and its container */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "rewrite/archive.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "archive/torch.h"
#include "archive/zip_write.h"
#include "base/copy.h"
#include "base/crc.h"
#include "base/memory.h"
#include "base/search.h"
#include "base/str.h"
#include "catalog/budget.h"

static int read_archive(void *ctx, uint64_t off, uint64_t len, void *buf,
    struct optimfs_error *err)
{
	struct ofs_commit_archive *a = ctx;

	return ofs_transport_read(a->c->reader->transport, &a->at, off, len,
	    buf, err);
}

static int take_pickle(struct ofs_commit_archive *a, uint64_t off, uint64_t n,
    uint64_t *used, struct optimfs_error *err)
{
	const struct ofs_pickle_limits limits = {
		.memory = a->c->job->options->parse_mem
	};

	if (n > ofs_metadata_max(a->c->cat))
		return optimfs_fail(err, E2BIG,
		    "OFS440 a pickle of %" PRIu64 " bytes", n);
	a->pickle = malloc(n + 1);
	if (a->pickle == NULL)
		return ofs_no_memory(err);
	if (read_archive(a, off, n, a->pickle, err) == -1)
		return -1;
	a->doc = ofs_pickle_parse(a->pickle, n, false, &limits, used, err);
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

/* A legacy stream: three pickles, then that of the object. */
static int open_legacy(struct ofs_commit_archive *a, uint64_t size,
    struct optimfs_error *err)
{
	uint64_t used;

	a->after = size;
	for (int i = 0; i < 4; i++) {
		uint64_t n = size - a->before;
		uint64_t most = ofs_metadata_max(a->c->cat);

		ofs_pickle_free(a->doc);
		free(a->pickle);
		a->doc = NULL;
		a->pickle = NULL;
		if (take_pickle(a, a->before, n < most ? n : most, &used,
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

/* Writing. */

struct layout {
	struct ofs_commit *c;
	struct ofs_commit_archive *a;
	const struct ofs_commit_source *s;
	const struct ofs_pickle *doc; /* the new pickle */
	struct ofs_str *key;          /* storages that it refers to */
	size_t nkeys, key_cap;
	int in, fd;
	uint64_t off, at; /* offset in fd; of the next record in the archive */
	uint64_t n;       /* number of records */
	char *prefix;
	struct ofs_buf directory, part;
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

static bool named(const struct layout *l, const struct ofs_zip_record *r)
{
	struct ofs_str key;

	return !is_storage(r, &key) ||
	    ofs_search(&key, l->key, l->nkeys, sizeof(key), ofs_compare_str) !=
	    NULL;
}

static int flush(struct layout *l, uint64_t at)
{
	int ret;

	if (l->part.bad)
		return ofs_no_memory(l->err);
	ret = ofs_write_all(l->fd, l->part.data, l->part.len, l->off + at,
	    l->err);
	l->part.len = 0;
	return ret;
}

/* Writes the header of a record; its bytes go to *data. */
static int frame(struct layout *l, struct ofs_zip_new *r, uint64_t *data)
{
	r->prefix = l->prefix;
	r->header = l->at;
	*data = l->at + ofs_zip_local_len(r);
	ofs_zip_put_local(&l->part, r);
	if (flush(l, l->at) == -1)
		return -1;
	ofs_zip_put_descriptor(&l->part, r);
	ofs_zip_put_central(&l->directory, r);
	l->at = ofs_zip_next(r);
	l->n++;
	return flush(l, *data + r->size);
}

static int copy_bytes(struct layout *l, uint64_t from, uint64_t to, uint64_t n)
{
	if (l->s->codec != OFS_PLAIN)
		return ofs_commit_decode(l->c, &l->a->at, from, n, l->fd,
		    l->off + to, l->err);
	return ofs_copy_range(l->in, l->s->off + from, l->fd, l->off + to, n,
	    l->err);
}

/* Moves the extents that lie in this record. */
static void moved(struct layout *l, const struct ofs_zip_record *r,
    uint64_t from, uint64_t to)
{
	struct ofs_commit *c = l->c;

	for (size_t i = ofs_commit_moved(c, l->s->object);
	     i < c->nmoved && c->moved[i].object == l->s->object; i++) {
		struct ofs_moved *m = &c->moved[i];

		if (m->encoding != OFS_TORCH_RECORD ||
		    m->off != l->s->off + r->header)
			continue;
		m->fd = l->fd;
		m->to = l->off + to - (l->s->off + from) + m->off;
	}
}

static int put_old(struct layout *l, const struct ofs_zip_record *r)
{
	struct ofs_zip_new new = { .size = r->size, .crc = r->crc };
	uint64_t from, to;
	char *name;
	int ret;

	if (!named(l, r))
		return 0;
	name = strndup(r->name.p, r->name.len);
	if (name == NULL)
		return ofs_no_memory(l->err);
	new.name = name;
	ret = ofs_zip_data(&l->a->dir, r, read_archive, l->a, &from, l->err);
	if (ret == 0)
		ret = frame(l, &new, &to);
	free(name);
	if (ret == 0)
		ret = copy_bytes(l, from, to, r->size);
	if (ret == 0)
		moved(l, r, from, to);
	return ret;
}

static int put_pickle(struct layout *l, const struct ofs_buf *pickle)
{
	struct ofs_zip_new new = { .name = "data.pkl", .size = pickle->len };
	uint64_t to;

	new.crc = ofs_crc32(0, pickle->data, pickle->len);
	if (frame(l, &new, &to) == -1)
		return -1;
	return ofs_write_all(l->fd, pickle->data, pickle->len, l->off + to,
	    l->err);
}

static int put_storage(struct layout *l, const struct ofs_commit_storage *s)
{
	char name[32];
	struct ofs_zip_new new = { .name = name,
		.size = ofs_commit_bytes(s->task) };
	uint64_t to;

	snprintf(name, sizeof(name), "data/%" PRIu64, s->key);
	if (frame(l, &new, &to) == -1)
		return -1;
	return ofs_commit_elements(l->c, s->task, l->fd, l->off + to, l->err);
}

static int compare_headers(const void *a, const void *b)
{
	const struct ofs_zip_record
	    *x = *(const struct ofs_zip_record *const *)a,
	    *y = *(const struct ofs_zip_record *const *)b;

	return x->header < y->header ? -1 : x->header > y->header;
}

/* Writes the new records after the existing storages. */
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

static int write_zip(struct layout *l, const struct ofs_buf *pickle,
    const struct ofs_commit_storage *storage, size_t n, uint64_t *size)
{
	int ret;

	l->prefix = strndup(l->a->dir.prefix.p, l->a->dir.prefix.len);
	if (l->prefix == NULL)
		return ofs_no_memory(l->err);
	ret = find_named(l);
	if (ret == 0)
		ret = put_records(l, pickle, storage, n);
	if (ret == 0) {
		uint64_t len = l->directory.len;

		ofs_zip_put_end(&l->directory, l->n, l->at, len);
		if (l->directory.bad)
			ret = ofs_no_memory(l->err);
	}
	if (ret == 0)
		ret = ofs_write_all(l->fd, l->directory.data, l->directory.len,
		    l->off + l->at, l->err);
	*size = l->at + l->directory.len;
	if (ret == 0)
		ret = ofs_commit_fix_sums(l->c, l->fd, l->off, *size, n > 0,
		    l->err);
	return ret;
}

/* The number of storages that a pickle refers to. */
static size_t count_named(const struct layout *l)
{
	size_t n = 0;

	for (size_t i = 0; i < l->nkeys; i++)
		n += i == 0 || ofs_compare_str(&l->key[i - 1], &l->key[i]) != 0;
	return n;
}

/* Are all storages behind the pickle still in use? PyTorch does not load a
 * legacy stream with others. */
static int check_storages(struct layout *l)
{
	const struct ofs_pickle *new = l->doc;
	size_t n;
	int ret = find_named(l);

	n = count_named(l);
	l->nkeys = 0;
	l->doc = l->a->doc;
	if (ret == 0)
		ret = find_named(l);
	l->doc = new;
	if (ret == -1 || n == count_named(l))
		return ret;
	return optimfs_fail(l->err, EINVAL,
	    "OFS826 tensors cannot be removed from a legacy file: reshard it "
	    "to torch first");
}

/* Bytes before and after the pickle stay. */
static int write_stream(struct layout *l, const struct ofs_buf *pickle,
    uint64_t *size)
{
	struct ofs_commit *c = l->c;
	uint64_t behind = l->a->before + l->a->npickle, left;

	if (check_storages(l) == -1)
		return -1;
	left = l->a->after > behind ? l->a->after - behind : 0;
	*size = l->a->before + pickle->len + left;
	for (size_t i = ofs_commit_moved(c, l->s->object);
	     i < c->nmoved && c->moved[i].object == l->s->object; i++) {
		c->moved[i].fd = l->fd;
		c->moved[i].to = c->moved[i].off - l->a->npickle + pickle->len;
	}
	if (copy_bytes(l, 0, 0, l->a->before) == -1 ||
	    ofs_write_all(l->fd, pickle->data, pickle->len,
		l->off + l->a->before, l->err) == -1)
		return -1;
	return copy_bytes(l, behind, l->a->before + pickle->len, left);
}

int ofs_commit_archive_write(struct ofs_commit *c, struct ofs_commit_archive *a,
    const struct ofs_commit_source *s, const struct ofs_buf *pickle,
    const struct ofs_commit_storage *storage, size_t nstorages, int fd,
    uint64_t off, uint64_t *size, struct optimfs_error *err)
{
	struct layout l = { .c = c,
		.a = a,
		.s = s,
		.in = -1,
		.fd = fd,
		.off = off,
		.err = err };
	struct ofs_pickle *doc =
	    ofs_pickle_parse(pickle->data, pickle->len, false, NULL, NULL, err);
	int ret = doc == NULL ? -1 : ofs_commit_open(c, s->object, &l.in, err);

	l.doc = doc;
	if (ret == 0 && a->zip)
		ret = write_zip(&l, pickle, storage, nstorages, size);
	else if (ret == 0)
		ret = write_stream(&l, pickle, size);
	if (l.in != -1)
		close(l.in);
	ofs_pickle_free(doc);
	ofs_buf_fini(&l.directory);
	ofs_buf_fini(&l.part);
	free(l.key);
	free(l.prefix);
	return ret;
}
