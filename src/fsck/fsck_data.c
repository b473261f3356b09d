/* fsck_data.c - check a checkpoint: every stored byte and checksum */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "archive/zip.h"
#include "base/dtype.h"
#include "fsck/fsck.h"
#include "read/locate.h"

/* An extent as the input of archive/zip.h. A small archive is read at once,
 * because it has many records with a header each. */
struct archive {
	struct ofs_transport *t;
	struct ofs_extent at;
	uint64_t size;
	bool flat;            /* as in struct ofs_object */
	const uint8_t *bytes; /* the whole archive, or NULL */
	bool failed;          /* a read failed; its message names the file */
};

static int read_archive(void *ctx, uint64_t off, uint64_t len, void *buf,
    struct optimfs_error *err)
{
	struct archive *a = ctx;

	if (a->bytes != NULL && off <= a->size && len <= a->size - off) {
		memcpy(buf, a->bytes + off, len);
		return 0;
	}
	if (ofs_transport_read(a->t, &a->at, off, len, buf, err) == 0)
		return 0;
	a->failed = true;
	return -1;
}

static int open_archive(struct ofs_fsck *c, struct archive *a,
    struct ofs_zip *zip, struct optimfs_error *err)
{
	if (ofs_transport_length(a->t, &a->at, &a->size, err) == -1) {
		a->failed = true;
		return -1;
	}
	if (a->size <= OFS_FSCK_CHUNK) {
		if (read_archive(a, 0, a->size, c->buf, err) == -1)
			return -1;
		a->bytes = c->buf;
	}
	return a->flat ? ofs_zip_open_flat(zip, a->size, read_archive, a, err)
		       : ofs_zip_open(zip, a->size, read_archive, a, err);
}

static void found(struct ofs_fsck *c, const char *path,
    const struct optimfs_error *err)
{
	ofs_fsck_found(c, true, path, err);
}

static void without_sums(struct ofs_fsck *c, bool bare, const char *path)
{
	struct optimfs_error what;

	if (!bare)
		return;
	optimfs_fail(&what, 0, "OFS530 archive without checksums");
	ofs_fsck_found(c, false, path, &what);
}

/* Of an archive that is an item, one of many in its file. */
static void found_in(struct ofs_fsck *c, struct archive *a, const char *path,
    struct optimfs_error *err)
{
	if (!a->failed && a->at.encoding == OFS_TORCH_ITEM)
		ofs_locate_fail_in(c->snap->cat, &a->at, err);
	found(c, path, err);
}

/* Checks every record of an open archive against its checksum. */
static void verify_records(struct ofs_fsck *c, struct archive *a,
    struct ofs_zip *zip, const char *path)
{
	struct optimfs_error why;
	bool bare = false;

	for (size_t i = 0; i < zip->n; i++) {
		int ret =
		    ofs_zip_verify(zip, &zip->record[i], read_archive, a, &why);

		bare |= ret == 1;
		if (ret == -1)
			found_in(c, a, path, &why);
	}
	without_sums(c, bare, path);
	ofs_zip_fini(zip);
}

/* Checks an item; false: it is no archive at all. */
static bool verify_item(struct ofs_fsck *c, const struct ofs_extent *at)
{
	struct archive a = { .t = c->snap->reader.transport, .at = *at };
	struct optimfs_error why;
	struct ofs_zip zip;

	if (open_archive(c, &a, &zip, &why) == -1) {
		found_in(c, &a, c->path, &why);
		return false;
	}
	verify_records(c, &a, &zip, c->path);
	return true;
}

/* Checks a record of an archive that is a part of its file. */
static void verify_record(struct ofs_fsck *c, const struct ofs_extent *at)
{
	const struct ofs_object *o = &c->snap->cat->objects[at->object];
	struct archive a = { .t = c->snap->reader.transport,
		.at = { .len = o->size, .object = at->object } };
	struct optimfs_error why;
	int ret = ofs_zip_verify_at(at, read_archive, &a, o->size, &why);

	if (ret == -1)
		found(c, c->path, &why);
	without_sums(c, ret == 1, c->path);
}

/* Checks a file that is one archive, once. A file of many archives, whose
 * values were opened at mount, does not begin and end as an archive. */
static void verify_object(struct ofs_fsck *c, const struct ofs_extent *at)
{
	const struct ofs_object *o = &c->snap->cat->objects[at->object];
	struct archive a = { .t = c->snap->reader.transport,
		.at = { .len = o->size, .object = at->object },
		.flat = o->flat_zip };
	struct optimfs_error why;
	struct ofs_zip zip;

	if (c->object[at->object] & OFS_FSCK_VERIFIED)
		return;
	if (open_archive(c, &a, &zip, &why) == -1) {
		if (a.flat)
			found(c, o->path, &why);
		else
			verify_record(c, at);
		return;
	}
	c->object[at->object] |= OFS_FSCK_VERIFIED;
	verify_records(c, &a, &zip, o->path);
}

/* Reads bytes without a checksum. */
static void read_through(struct ofs_fsck *c, const struct ofs_extent *at)
{
	struct optimfs_error why;
	uint64_t size, n;
	int ret;

	ret = ofs_transport_length(c->snap->reader.transport, at, &size, &why);
	for (uint64_t off = 0; ret == 0 && off < size; off += n) {
		n = size - off < OFS_FSCK_CHUNK ? size - off : OFS_FSCK_CHUNK;
		ret = ofs_transport_read(c->snap->reader.transport, at, off, n,
		    c->buf, &why);
	}
	if (ret == -1)
		found(c, c->path, &why);
}

/* false: nothing else can be read from it. */
static bool verify_extent(struct ofs_fsck *c, const struct ofs_extent *at)
{
	bool stored = at->codec == OFS_PLAIN &&
	    c->snap->cat->objects[at->object].flat_zip;

	if (at->encoding == OFS_TORCH_RECORD || stored)
		verify_object(c, at);
	else if (at->encoding == OFS_TORCH_ITEM)
		return verify_item(c, at);
	else
		read_through(c, at);
	return true;
}

/* The place of a shard, if its elements are located as the catalog says; NULL.
 * Missing ones were reported before and do not count. */
static const struct ofs_place *place_of(struct ofs_fsck *c,
    const struct ofs_tensor *t, uint32_t shard, struct optimfs_error *why)
{
	*why = (struct optimfs_error){ 0 };
	return ofs_extent_lost(c->snap->cat, &c->snap->cat->shards[shard].at,
		   NULL)
	    ? NULL
	    : ofs_locate_shard(&c->snap->reader, t, shard, why);
}

/* Hashes all elements of a shard, or of its copy in place, one hash for each
 * part read. */
static int hash_parts(struct ofs_fsck *c, const struct ofs_tensor *t,
    uint32_t shard, const struct ofs_place *at, const char *place,
    struct optimfs_error *err)
{
	uint64_t item = ofs_dtype_size(t->dtype);
	uint64_t most = OFS_FSCK_CHUNK / 2 / item;
	struct ofs_fetch_part p;
	XXH128_hash_t h;

	ofs_fsck_hashes(c, shard, place, NULL, 0, most);
	if (ofs_fetch_part_init(&p, c->snap->cat, t, shard, at, err) == -1)
		return -1;
	for (; p.first < p.total; p.first += p.count) {
		p.count = p.total - p.first < most ? p.total - p.first : most;
		if (ofs_fetch_part(&c->snap->reader, &p, c->buf, err) == -1)
			return -1;
		h = XXH3_128bits(c->buf, p.count * item);
		ofs_fsck_hashes(c, shard, place, &h, 1, most);
	}
	return 0;
}

static void hash(struct ofs_fsck *c, const struct ofs_tensor *t, uint32_t shard,
    const struct ofs_place *at, const char *place)
{
	struct optimfs_error why;

	if (hash_parts(c, t, shard, at, place, &why) == -1)
		ofs_fsck_unread(c, shard, place != NULL, &why);
}

static void check_copy(struct ofs_fsck *c, const struct ofs_tensor *t,
    const struct ofs_replica *copy)
{
	struct ofs_place *its;
	struct optimfs_error why;
	char place[sizeof(why.text)];

	if (ofs_extent_lost(c->snap->cat, &copy->at, &why)) {
		found(c, c->path, &why);
		return;
	}
	its = ofs_locate_replica(&c->snap->reader, t, copy, &why);
	if (its == NULL) {
		found(c, c->path, &why);
		return;
	}
	(void)verify_extent(c, &copy->at);
	snprintf(place, sizeof(place), "%.200s at %" PRIu64,
	    c->snap->cat->objects[copy->at.object].path, copy->at.off);
	hash(c, t, copy->shard, its, place);
	free(its);
}

static void check_shard(struct ofs_fsck *c, const struct ofs_tensor *t,
    uint32_t shard)
{
	const struct ofs_extent *at = &c->snap->cat->shards[shard].at;
	const struct ofs_replica *copy;
	const struct ofs_place *place;
	struct optimfs_error why;
	uint32_t n;

	copy = ofs_replicas(c->snap->cat, shard, &n);
	if (ofs_fsck_begin_step(c, at->object)) {
		place = place_of(c, t, shard, &why);
		if (place != NULL) {
			(void)verify_extent(c, at);
			if (n > 0)
				hash(c, t, shard, place, NULL);
		} else if (why.code != 0) {
			found(c, c->path, &why);
		}
	}
	for (uint32_t k = 0; k < n; k++)
		if (ofs_fsck_begin_step(c, copy[k].at.object))
			check_copy(c, t, &copy[k]);
}

static void check_tensor(struct ofs_fsck *c, const struct ofs_tensor *t)
{
	for (uint32_t i = t->shard; i < t->shard + t->nshards; i++)
		check_shard(c, t, i);
}

/* Files that are one archive have been looked at to open the checkpoint. */
static void check_head(struct ofs_fsck *c, const struct ofs_tensor *t,
    uint32_t shard)
{
	const struct ofs_extent *at = &c->snap->cat->shards[shard].at;
	struct optimfs_error why;

	if (!ofs_fsck_begin_step(c, at->object) ||
	    at->encoding != OFS_TORCH_ITEM ||
	    (c->object[at->object] & OFS_FSCK_SAMPLED) ||
	    !ofs_fsck_opens(c, at->object, &why))
		return;
	c->object[at->object] |= OFS_FSCK_SAMPLED;
	if (place_of(c, t, shard, &why) == NULL && why.code != 0)
		found(c, c->path, &why);
}

void ofs_fsck_heads(struct ofs_fsck *c, const struct ofs_entry *e)
{
	const struct ofs_tensor *t;

	if (e->kind != OFS_ENTRY_TENSOR)
		return;
	t = &c->snap->cat->tensors[e->ref];
	for (uint32_t i = t->shard; i < t->shard + t->nshards; i++)
		check_head(c, t, i);
}

static int check_value(struct ofs_fsck *c, uint32_t index,
    struct optimfs_error *err)
{
	struct optimfs_error why;
	struct ofs_blob *blob = ofs_entry_text(c->snap, index, &why);

	if (blob == NULL && why.code == ENOMEM)
		return optimfs_fail_with(err, &why);
	if (blob == NULL)
		found(c, c->path, &why);
	ofs_blob_unref(blob);
	return 0;
}

int ofs_fsck_data(struct ofs_fsck *c, uint32_t index, struct optimfs_error *err)
{
	const struct ofs_entry *e =
	    ofs_tree_entry(&c->snap->tree, c->snap->cat, index);
	const struct ofs_item *item;

	if (e->kind == OFS_ENTRY_TENSOR) {
		check_tensor(c, &c->snap->cat->tensors[e->ref]);
		return 0;
	}
	if (e->kind != OFS_ENTRY_ITEM)
		return ofs_fsck_begin_step(c, OFS_NONE)
		    ? check_value(c, index, err)
		    : 0;
	item = &c->snap->cat->items[e->ref];
	if (!ofs_fsck_begin_step(c, item->at.object) ||
	    ofs_extent_lost(c->snap->cat, &item->at, NULL))
		return 0;
	return verify_extent(c, &item->at) ? check_value(c, index, err) : 0;
}
