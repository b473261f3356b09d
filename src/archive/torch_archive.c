/* torch_archive.c - the records that describe a torch.save archive */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "archive/torch.h"
#include "archive/torch_storage.h"
#include "archive/zip_write.h"
#include "base/memory.h"

/* torch.load accepts 1 to 10. */
#define MAX_VERSION 10
/* The largest data.pkl. */
#define MAX_PICKLE ((uint64_t)1 << 30)

/* An archive that is being opened. */
struct opening {
	struct ofs_zip *zip;
	struct ofs_window window;
	const struct ofs_pickle_limits *limits; /* may be NULL */
};

static const struct ofs_zip_record *find_record(const struct opening *o,
    const char *name)
{
	return ofs_zip_find(o->zip, name, strlen(name));
}

/* Read a small record as a string; EUCLEAN above 31 bytes. */
static int read_text(struct opening *o, const struct ofs_zip_record *r,
    char text[32], struct optimfs_error *err)
{
	uint64_t off;

	if (r->size > 31)
		return optimfs_fail(err, EUCLEAN,
		    "OFS524 record '%s' has %" PRIu64 " bytes", r->name.p,
		    r->size);
	if (ofs_zip_data(o->zip, r, ofs_window_read, &o->window, &off, err) ==
		-1 ||
	    ofs_window_read(&o->window, off, r->size, text, err) == -1)
		return -1;
	text[r->size] = '\0';
	return 0;
}

static int check_version(struct opening *o, struct optimfs_error *err)
{
	const struct ofs_zip_record *r = find_record(o, "version");
	char text[32];
	int v = 0;
	size_t i;

	if (r == NULL)
		r = find_record(o, ".data/version");
	if (r == NULL)
		return optimfs_fail(err, EUCLEAN,
		    "OFS524 record 'version' is missing");
	if (read_text(o, r, text, err) == -1)
		return -1;
	for (i = 0; i < 3 && text[i] >= '0' && text[i] <= '9'; i++)
		v = 10 * v + text[i] - '0';
	if (text[i] == '\n')
		i++;
	if (i != r->size || v < 1 || v > MAX_VERSION)
		return optimfs_fail(err, EUCLEAN,
		    "OFS524 record '%s' says '%s', not 1 to %d", r->name.p,
		    text, MAX_VERSION);
	return 0;
}

static int check_byteorder(struct opening *o, struct optimfs_error *err)
{
	const struct ofs_zip_record *r = find_record(o, "byteorder");
	char text[32];

	if (r == NULL)
		return 0;
	if (read_text(o, r, text, err) == -1)
		return -1;
	o->zip->big_endian = strcmp(text, "big") == 0;
	if (o->zip->big_endian || strcmp(text, "little") == 0)
		return 0;
	return optimfs_fail(err, EUCLEAN, "OFS525 byteorder is '%s'", text);
}

/* The record is behind the version, so that this rarely reads anything. What is
 * not readable says nothing. */
static void look_for_order(struct opening *o)
{
	const struct ofs_zip_record *r =
	    find_record(o, ".data/serialization_id");
	char id[OFS_ZIP_ID_LEN];
	uint64_t off;

	if (r != NULL && r->size == sizeof(id) &&
	    ofs_zip_data(o->zip, r, ofs_window_read, &o->window, &off, NULL) ==
		0 &&
	    ofs_window_read(&o->window, off, sizeof(id), id, NULL) == 0)
		o->zip->unordered = ofs_zip_unordered(id);
}

/* Fails for an archive that torch.save did not write. */
static void refuse_other(const struct opening *o, struct optimfs_error *err)
{
	if (find_record(o, "archive_format") != NULL)
		optimfs_fail(err, EOPNOTSUPP,
		    "OFS524 it is a program of torch.export: save its weights, "
		    "torch.save(torch.export.load(FILE).state_dict, NEW)");
	else if (find_record(o, ".data/extern_modules") != NULL)
		optimfs_fail(err, EOPNOTSUPP,
		    "OFS524 it is a package of torch.package: load its "
		    "pickles with PackageImporter, torch.save them");
	else
		optimfs_fail(err, EUCLEAN,
		    "OFS524 record 'data.pkl' is missing");
}

static struct ofs_pickle *read_pickle(struct opening *o,
    struct optimfs_error *err)
{
	const struct ofs_zip_record *r = find_record(o, "data.pkl");
	struct ofs_pickle *doc;
	uint64_t off, max = MAX_PICKLE;
	uint8_t *buf;

	if (r == NULL) {
		refuse_other(o, err);
		return NULL;
	}
	if (o->limits != NULL && o->limits->bytes != 0)
		max = o->limits->bytes;
	if (r->size > max) {
		optimfs_fail(err, E2BIG,
		    "OFS440 data.pkl has %" PRIu64 " bytes, the limit is "
		    "%" PRIu64 " (-o max_metadata)",
		    r->size, max);
		return NULL;
	}
	if (ofs_zip_data(o->zip, r, ofs_window_read, &o->window, &off, err) ==
	    -1)
		return NULL;
	buf = malloc(r->size + 1);
	if (buf == NULL) {
		ofs_no_memory(err);
		return NULL;
	}
	if (ofs_window_read(&o->window, off, r->size, buf, err) == -1) {
		free(buf);
		return NULL;
	}
	doc = ofs_pickle_parse(buf, r->size, true, o->limits, NULL, err);
	if (doc == NULL)
		optimfs_fail_in(err, "data.pkl");
	return doc;
}

struct ofs_pickle *ofs_torch_open(uint64_t size,
    const struct ofs_pickle_limits *limits, ofs_zip_read_fn *read, void *ctx,
    struct ofs_zip *zip, struct optimfs_error *err)
{
	struct ofs_zip z;
	struct opening o = { .zip = &z, .limits = limits };
	struct ofs_pickle *doc = NULL;

	ofs_window_init(&o.window, size, read, ctx);
	if (ofs_zip_open(&z, size, ofs_window_read, &o.window, err) == -1)
		return NULL;
	/* the pickle first: its read often includes the byte order */
	doc = read_pickle(&o, err);
	if (doc != NULL &&
	    (check_version(&o, err) == -1 || check_byteorder(&o, err) == -1)) {
		ofs_pickle_free(doc);
		doc = NULL;
	}
	if (doc != NULL)
		look_for_order(&o);
	if (doc == NULL || zip == NULL)
		ofs_zip_fini(&z);
	else
		*zip = z;
	return doc;
}

int ofs_torch_open_zip(uint64_t size, ofs_zip_read_fn *read, void *ctx,
    struct ofs_zip *zip, struct optimfs_error *err)
{
	struct opening o = { .zip = zip };

	ofs_window_init(&o.window, size, read, ctx);
	if (ofs_zip_open(zip, size, ofs_window_read, &o.window, err) == -1)
		return -1;
	if (check_version(&o, err) == 0 && check_byteorder(&o, err) == 0)
		return 0;
	ofs_zip_fini(zip);
	return -1;
}

const struct ofs_zip_record *ofs_torch_record(const struct ofs_zip *zip,
    struct ofs_str key)
{
	char name[5 + 256] = "data/";

	if (key.len > sizeof(name) - 5)
		return NULL;
	memcpy(name + 5, key.p, key.len);
	return ofs_zip_find(zip, name, 5 + key.len);
}

const struct ofs_zip_record *ofs_torch_record_of(const struct ofs_zip *zip,
    const struct ofs_torch_source *s, struct optimfs_error *err)
{
	const struct ofs_zip_record *r = ofs_torch_record(zip, s->key);

	if (r != NULL && r->size == s->bytes)
		return r;
	optimfs_fail(err, EIO,
	    "OFS434 storage '%.*s' is missing from the archive, or has another "
	    "size",
	    OFS_STR_ARGS(s->key, 100));
	return NULL;
}

/* Read the element of t, a tensor without dimensions. */
static bool read_element(const struct ofs_torch_tensor *t,
    const struct ofs_zip *zip, ofs_zip_read_fn *read, void *ctx,
    uint8_t element[OFS_PK_ELEMENT])
{
	uint64_t size = ofs_dtype_size(t->dtype), off;
	const struct ofs_zip_record *r;

	if (t->fix != 0 || t->quantized || size > OFS_PK_ELEMENT ||
	    (zip->big_endian && ofs_dtype_swap(t->dtype) > 1))
		return false;
	r = ofs_torch_record(zip, t->key);
	return r != NULL && ofs_torch_check(t, r->size, NULL) == 0 &&
	    ofs_zip_data(zip, r, read, ctx, &off, NULL) == 0 &&
	    read(ctx, off + t->offset * size, size, element, NULL) == 0;
}

int ofs_torch_note_elements(struct ofs_pickle *doc, const struct ofs_zip *zip,
    ofs_zip_read_fn *read, void *ctx, struct optimfs_error *err)
{
	uint32_t nodes = ofs_pickle_nodes(doc), n = 0;

	for (uint32_t i = 0; i < nodes && n < OFS_TORCH_ELEMENTS; i++) {
		uint8_t element[OFS_PK_ELEMENT] = { 0 };
		struct ofs_torch_tensor t;

		if (ofs_pk_kind(doc, i) != OFS_PK_OBJECT ||
		    ofs_torch_tensor(doc, i, &t, NULL) != 1 || t.ndim > 0)
			continue;
		n++;
		if (read_element(&t, zip, read, ctx, element) &&
		    ofs_pickle_note_element(doc, i, element, err) == -1)
			return -1;
	}
	return 0;
}

/* A pickle of protocol 4 or later may have a FRAME before its first opcode. */
static bool is_legacy(const uint8_t *p, size_t n)
{
	static const uint8_t magic[] = { 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46,
		0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, '.' };
	size_t i = 2;

	if (n > i && p[i] == 0x95)
		i += 9;
	return n >= i + sizeof(magic) &&
	    memcmp(p + i, magic, sizeof(magic)) == 0;
}

/* torch 0.1 began its containers with one of these members. */
static bool is_tar_of_torch(const uint8_t *head)
{
	static const char *const first[] = { "sys_info", "pickle", "tensors",
		"storages" };

	for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++)
		if (memcmp(head, first[i], strlen(first[i]) + 1) == 0)
			return true;
	return false;
}

enum ofs_torch_magic ofs_torch_magic(const uint8_t *p, size_t n)
{
	static const char text[] = "L119547037146038801333356L\n";

	if (ofs_is_lfs_pointer(p, n))
		return OFS_TORCH_GIT_LFS;
	if (n >= sizeof(text) && memcmp(p, text, sizeof(text) - 1) == 0)
		return OFS_TORCH_OLD_STREAM;
	if (n >= 4 && memcmp(p, "PK", 2) == 0 &&
	    (memcmp(p + 2, "\3\4", 2) == 0 || memcmp(p + 2, "\5\6", 2) == 0 ||
		memcmp(p + 2, "\7\b", 2) == 0))
		return OFS_TORCH_ZIP;
	if (n >= 262 && memcmp(p + 257, "ustar", 5) == 0)
		return is_tar_of_torch(p) ? OFS_TORCH_TAR : OFS_TORCH_OTHER_TAR;
	if (n < 2 || p[0] != 0x80 || p[1] < 2 || p[1] > 5)
		return OFS_TORCH_NONE;
	return is_legacy(p, n) ? OFS_TORCH_STREAM : OFS_TORCH_PICKLE;
}
