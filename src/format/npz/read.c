/* read.c - arrays of NumPy as tensors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "archive/inflate.h"
#include "base/npy.h"
#include "base/str.h"
#include "format/npz/npz.h"
#include "format/part.h"

#define COMPONENTS 64

struct reader {
	struct ofs_catalog *cat;
	const struct ofs_part *part;
	uint32_t object;
	uint32_t path[COMPONENTS];
	size_t nprefix;
	struct ofs_window window; /* of the file */
	struct optimfs_error *err;
};

static int read_input(void *ctx, uint64_t off, uint64_t len, void *buf,
    struct optimfs_error *err)
{
	return ofs_input_read(ctx, buf, len, off, err);
}

/* Where an array is. */
struct array {
	uint64_t off;    /* of its bytes, compressed or not */
	uint64_t size;   /* of the array with its header */
	uint64_t stored; /* bytes from off on */
	struct ofs_extent at; /* with a codec: of the deflated record */
};

/* The first n bytes of an array. */
static int read_start(struct reader *r, const struct array *a, uint32_t n,
    uint8_t *buf, struct optimfs_error *err)
{
	uint8_t in[1024];
	struct ofs_inflate s = {
		.read = ofs_window_read,
		.ctx = &r->window,
		.off = a->off,
		.end = a->off + a->stored,
		.in = in,
		.room = sizeof(in),
	};
	uint32_t got;
	int ret;

	if (a->at.codec == OFS_PLAIN)
		return ofs_window_read(&r->window, a->off, n, buf, err);
	if (ofs_inflate_init(&s, err) == -1)
		return -1;
	ret = ofs_inflate_next(&s, buf, n, &got, err);
	ofs_inflate_fini(&s);
	if (ret == 0 && got < n)
		ret = optimfs_fail(err, EBADMSG,
		    "OFS703 it declares %" PRIu64 " bytes and has %u", a->size,
		    got);
	return ret;
}

/* Reads the header of an array; *length gets the header's length. */
static int read_header(struct reader *r, const struct array *a,
    struct ofs_npy *npy, uint32_t *length, struct optimfs_error *err)
{
	uint8_t buf[OFS_NPY_HEADER_MAX];
	uint32_t n = a->size < 12 ? (uint32_t)a->size : 12;

	if (read_start(r, a, n, buf, err) == -1 ||
	    ofs_npy_length(buf, n, length, err) == -1)
		return -1;
	if (*length > a->size)
		return optimfs_fail(err, EUCLEAN,
		    "OFS664 a header of %u bytes in an array of %" PRIu64,
		    *length, a->size);
	if (read_start(r, a, *length, buf, err) == -1 ||
	    ofs_npy_parse(npy, buf, *length, OFS_DTYPE_NONE, err) == -1)
		return -1;
	if (npy->bytes == a->size - *length)
		return 0;
	return optimfs_fail(err, EUCLEAN,
	    "OFS664 %" PRIu64 " bytes of elements, the shape needs %" PRIu64,
	    a->size - *length, npy->bytes);
}

/* The view of an array in Fortran order or foreign byte order. */
static uint32_t add_view(struct reader *r, const struct ofs_npy *npy)
{
	struct ofs_view v = { .numel = 1 };
	uint64_t stride[OFS_MAX_DIMS];

	for (unsigned i = 0; i < npy->ndim; i++) {
		unsigned dim = npy->fortran ? i : npy->ndim - 1u - i;

		stride[dim] = v.numel;
		v.numel *= npy->shape[dim];
	}
	v.stride = ofs_catalog_dims(r->cat, stride, npy->ndim, r->err);
	v.fix = npy->swap ? OFS_FIX_SWAP : OFS_FIX_NONE;
	return ofs_catalog_view(r->cat, &v, r->err);
}

static uint32_t add_tensor(struct reader *r, const struct ofs_npy *npy,
    const struct ofs_extent *at)
{
	struct ofs_shard s = {
		.at = *at,
		.box = OFS_NONE,
		.view = OFS_NONE,
	};
	struct ofs_tensor t = {
		.ndim = npy->ndim,
		.grid_ndim = npy->ndim,
		.dtype = (uint8_t)npy->dtype,
		.nshards = 1,
		.error = OFS_NONE,
	};

	t.shape = t.grid =
	    ofs_catalog_dims(r->cat, npy->shape, npy->ndim, r->err);
	if (npy->bytes > 0 && (npy->swap || (npy->fortran && npy->ndim > 1)))
		s.view = add_view(r, npy);
	t.shard = ofs_catalog_shard(r->cat, &s, r->err);
	return ofs_catalog_tensor(r->cat, &t, r->err);
}

/* One damaged array does not make the others unreadable. */
static uint32_t add_damaged(struct reader *r, struct ofs_str name,
    struct optimfs_error *why)
{
	struct ofs_item item = { .at = { .object = r->object } };

	if (why->code == ENOMEM) {
		*r->err = *why;
		return OFS_NONE;
	}
	optimfs_fail_in(why, "%s: %.*s", r->part->rel, OFS_STR_ARGS(name, 100));
	item.error = ofs_catalog_error(r->cat, why, r->err);
	return ofs_catalog_item(r->cat, &item, r->err);
}

/* "model/layers.0.weight": "/" nests; naming splits at dots. */
static uint32_t path_of(struct reader *r, struct ofs_str name)
{
	size_t n = r->nprefix;
	const char *p = name.p, *end = name.p + name.len;

	for (;;) {
		const char *slash = memchr(p, '/', (size_t)(end - p));
		size_t len = (size_t)((slash == NULL ? end : slash) - p);

		if (n == COMPONENTS) {
			optimfs_fail(r->err, E2BIG,
			    "OFS664 an array %.*s: too deep",
			    OFS_STR_ARGS(name, 200));
			return OFS_NONE;
		}
		r->path[n++] = ofs_catalog_str(r->cat, p, len, r->err);
		if (slash == NULL)
			return ofs_catalog_path(r->cat, r->path, n, r->err);
		p = slash + 1;
	}
}

static int add_array(struct reader *r, struct ofs_str name,
    const struct array *a)
{
	uint32_t path = path_of(r, name), length;
	struct optimfs_error why = { 0 };
	struct ofs_extent at = a->at;
	struct ofs_npy npy;

	if (path == OFS_NONE)
		return -1;
	if (read_header(r, a, &npy, &length, &why) == -1)
		return ofs_catalog_add(r->cat, path, OFS_ENTRY_ITEM,
		    add_damaged(r, name, &why), OFS_KEY_FREE, r->err);
	if (at.codec == OFS_PLAIN)
		at = (struct ofs_extent){ .off = a->off + length,
			.len = npy.bytes };
	at.object = r->object;
	return ofs_catalog_add(r->cat, path, OFS_ENTRY_TENSOR,
	    add_tensor(r, &npy, &at), OFS_KEY_FREE, r->err);
}

/* name without the suffix ".npy", if it has one. */
static struct ofs_str stem(const char *name, size_t n)
{
	if (n > 4 && memcmp(name + n - 4, ".npy", 4) == 0)
		n -= 4;
	return (struct ofs_str){ name, (uint32_t)n };
}

static int add_records(struct reader *r, const struct ofs_zip *zip)
{
	for (size_t i = 0; i < zip->n; i++) {
		const struct ofs_zip_record *record = &zip->record[i];
		struct array a = {
			.size = record->size,
			.stored = record->stored,
		};

		if (ofs_zip_data(zip, record, ofs_window_read, &r->window,
			&a.off, r->err) == -1)
			return -1;
		if (ofs_zip_deflated_extent(record, a.off, &a.at))
			a.at.encoding = OFS_NPY;
		if (add_array(r, stem(record->name.p, record->name.len), &a) ==
		    -1)
			return -1;
	}
	return 0;
}

static int read_archive(struct reader *r)
{
	struct ofs_zip zip;
	int ret;

	if (ofs_zip_open_flat(&zip, r->window.size, ofs_window_read, &r->window,
		r->err) == -1)
		return -1;
	r->cat->objects[r->object].flat_zip = true;
	ret = add_records(r, &zip);
	ofs_zip_fini(&zip);
	return ret;
}

static int read_file(struct reader *r)
{
	const char *name = ofs_path_last(r->part->rel);
	uint8_t magic[OFS_NPY_MAGIC_LEN];

	if (r->window.size >= sizeof(magic)) {
		if (ofs_window_read(&r->window, 0, sizeof(magic), magic,
			r->err) == -1)
			return -1;
		if (memcmp(magic, OFS_NPY_MAGIC, sizeof(magic)) == 0)
			return add_array(r, stem(name, strlen(name)),
			    &(struct array){ .size = r->window.size });
	}
	return read_archive(r);
}

int ofs_npz_read(struct ofs_catalog *cat, const struct ofs_part *part,
    const struct optimfs_options *opt, struct optimfs_error *err)
{
	struct reader r = { .cat = cat, .part = part, .err = err };
	struct ofs_input in;
	struct stat st;
	int ret;

	(void)opt;
	if (ofs_part_prefix(cat, part, r.path, &r.nprefix, err) == -1)
		return -1;
	r.object = ofs_catalog_object(cat, part->rel, part->rank, err);
	if (r.object == OFS_NONE ||
	    ofs_dir_open_input(&cat->dir, part->rel, &in, &st, err) == -1)
		return -1;
	ofs_window_init(&r.window, (uint64_t)st.st_size, read_input, &in);
	ret = read_file(&r);
	ofs_input_close(&in);
	return ret == -1 ? optimfs_fail_in(err, "%s", part->rel) : 0;
}
