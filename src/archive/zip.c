/* zip.c - the central directory of an archive, checked for ambiguity */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "archive/zip.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "archive/zip_impl.h"
#include "base/checked.h"
#include "base/cursor.h"
#include "base/memory.h"
#include "base/search.h"
#include "base/str.h"

#define MAX_RECORDS   (1u << 20)
#define MAX_DIRECTORY (256u << 20)
#define MAX_COMMENT   65535u

/* From the end records: n entries in size bytes at off. at is the offset of the
 * end records themselves. */
struct end {
	uint64_t n, off, size, at;
};

/* The last bytes of the archive. */
struct tail {
	uint8_t bytes[OFS_ZIP_TAIL];
	uint64_t off, len;
};

static bool is_end(const uint8_t *p)
{
	return ofs_le32(p) == OFS_ZIP_END;
}

/* The last 22 bytes are not an end record. Report whether there is one further
 * up, with bytes behind it. */
static int no_end(uint64_t size, ofs_zip_read_fn *read, void *ctx,
    struct optimfs_error *err)
{
	uint64_t n = size;
	uint8_t *buf;
	int ret;

	if (n > OFS_ZIP_END_LEN + MAX_COMMENT)
		n = OFS_ZIP_END_LEN + MAX_COMMENT;
	buf = malloc(n);
	if (buf == NULL)
		return ofs_no_memory(err);
	ret = read(ctx, size - n, n, buf, err);
	for (uint64_t i = n - OFS_ZIP_END_LEN + 1; ret == 0 && i-- > 0;)
		if (is_end(buf + i))
			ret = optimfs_fail(err, EUCLEAN,
			    "OFS504 ambiguous end record: %" PRIu64
			    " bytes follow the one at %" PRIu64,
			    n - i - OFS_ZIP_END_LEN, size - n + i);
	if (ret == 0)
		ret = optimfs_fail(err, EUCLEAN,
		    "OFS501 no end record in the archive's %" PRIu64 " bytes",
		    size);
	free(buf);
	return ret;
}

/* A reader that searches from the front could take another record for the end,
 * if the comment of that record reaches exactly to the end: refuse it. */
static int check_only_end(const struct tail *t, struct optimfs_error *err)
{
	const uint8_t *end = t->bytes + t->len - OFS_ZIP_END_LEN;

	for (const uint8_t *p = t->bytes;
	     (p = memchr(p, 'P', (size_t)(end - p))) != NULL; p++)
		if (is_end(p) && (p[20] | p[21] << 8) == end - p)
			return optimfs_fail(err, EUCLEAN,
			    "OFS504 ambiguous end record: one at %" PRIu64
			    " and one at %" PRIu64,
			    t->off + (uint64_t)(p - t->bytes),
			    t->off + t->len - OFS_ZIP_END_LEN);
	return 0;
}

/* A field of the end record must be all ones or agree with that of zip64. */
static int check_agrees(const char *what, uint64_t narrow, uint64_t ones,
    uint64_t wide, struct optimfs_error *err)
{
	if (narrow == ones || narrow == wide)
		return 0;
	return optimfs_fail(err, EUCLEAN,
	    "OFS508 end record has %s %" PRIu64 ", zip64's has %" PRIu64, what,
	    narrow, wide);
}

/* The locator does not point to the end record before it. Was the whole archive
 * moved, by bytes in front of it? */
static int check_moved(const struct end *e, uint64_t points,
    struct optimfs_error *err)
{
	uint64_t end;

	if (ofs_add_u64(e->off, e->size, &end) && end == points &&
	    points < e->at)
		return optimfs_fail(err, EUCLEAN,
		    "OFS503 %" PRIu64 " bytes before the archive",
		    e->at - points);
	return optimfs_fail(err, EUCLEAN,
	    "OFS507 zip64 locator points to %" PRIu64
	    ", its record is at %" PRIu64,
	    points, e->at);
}

static int parse_end64(const struct tail *t, uint64_t locator, struct end *e,
    struct optimfs_error *err)
{
	struct ofs_cursor c =
	    ofs_cursor_of(t->bytes + (locator - t->off) + 4, 16);
	uint32_t disk = ofs_cursor_le32(&c);
	uint64_t points = ofs_cursor_le64(&c), len, n_here;
	uint32_t disks = ofs_cursor_le32(&c), disk_here, disk_dir;

	if (disk != 0 || disks > 1)
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS506 archive split over %" PRIu32 " disks", disks);
	e->at = locator - OFS_ZIP_END64_LEN;
	c = (struct ofs_cursor){ .bad = true };
	if (locator - t->off >= OFS_ZIP_END64_LEN)
		c = ofs_cursor_of(t->bytes + (e->at - t->off),
		    OFS_ZIP_END64_LEN);
	if (ofs_cursor_le32(&c) != OFS_ZIP_END64)
		return optimfs_fail(err, EUCLEAN,
		    "OFS507 no zip64 end record before its locator");
	len = ofs_cursor_le64(&c);
	ofs_cursor_le32(&c); /* versions: torch writes 798 and 45 */
	disk_here = ofs_cursor_le32(&c);
	disk_dir = ofs_cursor_le32(&c);
	n_here = ofs_cursor_le64(&c);
	e->n = ofs_cursor_le64(&c);
	e->size = ofs_cursor_le64(&c);
	e->off = ofs_cursor_le64(&c);
	if (len != OFS_ZIP_END64_LEN - 12)
		return optimfs_fail(err, EUCLEAN,
		    "OFS507 zip64 end record of %" PRIu64 " bytes", len);
	if (disk_here != 0 || disk_dir != 0 || n_here != e->n)
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS506 archive split over disks");
	return points == e->at ? 0 : check_moved(e, points, err);
}

static int parse_end(const struct tail *t, struct end *e,
    struct optimfs_error *err)
{
	uint64_t at = t->off + t->len - OFS_ZIP_END_LEN;
	struct ofs_cursor c =
	    ofs_cursor_of(t->bytes + t->len - OFS_ZIP_END_LEN + 4, 18);
	uint16_t disk = ofs_cursor_le16(&c), disk_dir = ofs_cursor_le16(&c);
	uint16_t n_here = ofs_cursor_le16(&c), n = ofs_cursor_le16(&c);
	uint32_t size = ofs_cursor_le32(&c), off = ofs_cursor_le32(&c);
	uint64_t locator = at - OFS_ZIP_LOCATOR_LEN;

	if (disk != 0 || disk_dir != 0 || n_here != n)
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS506 archive split over disks: this is number %u", disk);
	if (t->len < OFS_ZIP_END_LEN + OFS_ZIP_LOCATOR_LEN ||
	    ofs_le32(t->bytes + (locator - t->off)) != OFS_ZIP_LOCATOR) {
		*e = (struct end){ n, off, size, at };
		return 0;
	}
	if (parse_end64(t, locator, e, err) == -1 ||
	    check_agrees("count", n, UINT16_MAX, e->n, err) == -1 ||
	    check_agrees("size", size, UINT32_MAX, e->size, err) == -1)
		return -1;
	return check_agrees("offset", off, UINT32_MAX, e->off, err);
}

/* Is the directory right before the end records? */
static int check_place(const struct end *e, struct optimfs_error *err)
{
	uint64_t end;

	if (!ofs_add_u64(e->off, e->size, &end) || end > e->at ||
	    e->n > e->at / OFS_ZIP_CENTRAL_LEN)
		return optimfs_fail(err, EUCLEAN,
		    "OFS507 directory of %" PRIu64 " records, %" PRIu64
		    " bytes at %" PRIu64
		    ", in an archive that ends at %" PRIu64,
		    e->n, e->size, e->off, e->at);
	if (end < e->at)
		return optimfs_fail(err, EUCLEAN,
		    "OFS503 %" PRIu64 " bytes before the archive, or between "
		    "its directory and its end",
		    e->at - end);
	if (e->n > MAX_RECORDS || e->size > MAX_DIRECTORY)
		return optimfs_fail(err, E2BIG,
		    "OFS531 directory of %" PRIu64 " records, %" PRIu64
		    " bytes; the limits are %u and %u",
		    e->n, e->size, MAX_RECORDS, MAX_DIRECTORY);
	return 0;
}

static int find_end(uint64_t size, ofs_zip_read_fn *read, void *ctx,
    struct tail *t, struct end *e, struct optimfs_error *err)
{
	if (size < OFS_ZIP_END_LEN)
		return optimfs_fail(err, EUCLEAN,
		    "OFS501 no end record: the archive has %" PRIu64 " bytes",
		    size);
	t->len = size < OFS_ZIP_TAIL ? size : OFS_ZIP_TAIL;
	t->off = size - t->len;
	if (read(ctx, t->off, t->len, t->bytes, err) == -1)
		return -1;
	if (!is_end(t->bytes + t->len - OFS_ZIP_END_LEN) ||
	    t->bytes[t->len - 2] != 0 || t->bytes[t->len - 1] != 0)
		return no_end(size, read, ctx, err);
	if (check_only_end(t, err) == -1 || parse_end(t, e, err) == -1)
		return -1;
	return check_place(e, err);
}

/* To torch's reader, names that differ only in case are equal; to NumPy's they
 * are not. */
static int compare_names(const struct ofs_zip *zip, const struct ofs_str *a,
    const struct ofs_str *b)
{
	uint32_t n = a->len < b->len ? a->len : b->len;

	for (uint32_t i = 0; i < n; i++) {
		uint8_t x = (uint8_t)a->p[i], y = (uint8_t)b->p[i];

		if (!zip->flat) {
			x = x >= 'A' && x <= 'Z' ? x + 32 : x;
			y = y >= 'A' && y <= 'Z' ? y + 32 : y;
		}
		if (x != y)
			return x < y ? -1 : 1;
	}
	return a->len < b->len ? -1 : a->len > b->len;
}

static int by_name(const void *a, const void *b, void *ctx)
{
	const struct ofs_zip *zip = ctx;
	const struct ofs_zip_record *r = zip->record;

	return compare_names(zip, &r[*(const uint32_t *)a].name,
	    &r[*(const uint32_t *)b].name);
}

static int by_header(const void *a, const void *b, void *zip)
{
	const struct ofs_zip_record *r = ((struct ofs_zip *)zip)->record;
	uint64_t x = r[*(const uint32_t *)a].header;
	uint64_t y = r[*(const uint32_t *)b].header;

	return x < y ? -1 : x > y;
}

static int check_names(struct ofs_zip *zip, struct optimfs_error *err)
{
	qsort_r(zip->by_name, zip->n, sizeof(*zip->by_name), by_name, zip);
	for (size_t i = 1; i < zip->n; i++) {
		const struct ofs_str *s = &zip->record[zip->by_name[i]].name;

		if (compare_names(zip, &zip->record[zip->by_name[i - 1]].name,
			s) == 0)
			return optimfs_fail(err, EUCLEAN,
			    "OFS520 duplicate record '%.*s%.*s'",
			    OFS_STR_ARGS(zip->prefix, 120),
			    OFS_STR_ARGS(*s, 120));
	}
	return 0;
}

/* Each record must end before the next part starts. Its local header may be
 * longer than the minimum that is known here (ofs_zip_data). */
static int check_overlap(struct ofs_zip *zip, const uint32_t *order,
    struct optimfs_error *err)
{
	for (size_t i = 0; i < zip->n; i++) {
		struct ofs_zip_record *r = &zip->record[order[i]];
		uint64_t end = r->header + OFS_ZIP_LOCAL_LEN + zip->prefix.len +
		    r->name.len;

		if (!ofs_add_u64(end, r->stored, &end) || end > zip->size)
			return optimfs_fail(err, EIO,
			    "OFS502 record '%.*s' of %" PRIu64 " bytes at "
			    "%" PRIu64 " extends past the archive's end at "
			    "%" PRIu64,
			    OFS_STR_ARGS(r->name, 120), r->stored, r->header,
			    zip->size);
		r->end = i + 1 < zip->n ? zip->record[order[i + 1]].header
					: zip->directory;
		if (end > r->end && i + 1 < zip->n)
			return optimfs_fail(err, EUCLEAN,
			    "OFS519 records '%.*s' and '%.*s' overlap at "
			    "%" PRIu64,
			    OFS_STR_ARGS(r->name, 120),
			    OFS_STR_ARGS(zip->record[order[i + 1]].name, 120),
			    r->end);
		if (end > r->end)
			return optimfs_fail(err, EUCLEAN,
			    "OFS519 record '%.*s' overlaps the directory at "
			    "%" PRIu64,
			    OFS_STR_ARGS(r->name, 120), r->end);
	}
	return 0;
}

static int check_records(struct ofs_zip *zip, struct optimfs_error *err)
{
	uint32_t *order;
	int ret;

	zip->by_name = ofs_arena_alloc(&zip->arena, zip->n * sizeof(*order));
	order = malloc(zip->n * sizeof(*order) + 1);
	if (zip->by_name == NULL || order == NULL) {
		free(order);
		return ofs_no_memory(err);
	}
	for (size_t i = 0; i < zip->n; i++)
		zip->by_name[i] = order[i] = (uint32_t)i;
	qsort_r(order, zip->n, sizeof(*order), by_header, zip);
	ret = check_names(zip, err);
	if (ret == 0)
		ret = check_overlap(zip, order, err);
	free(order);
	return ret;
}

/* torch's reader expects the first local header at 0. */
static int check_start(const struct ofs_zip *zip, ofs_zip_read_fn *read,
    void *ctx, struct optimfs_error *err)
{
	uint64_t first = zip->directory;
	uint8_t mark[4];

	for (size_t i = 0; i < zip->n; i++)
		if (zip->record[i].header < first)
			first = zip->record[i].header;
	if (first == 0)
		return 0;
	if (first >= sizeof(mark)) {
		if (read(ctx, 0, sizeof(mark), mark, err) == -1)
			return -1;
		if (ofs_le32(mark) == OFS_ZIP_DESCRIPTOR)
			return optimfs_fail(err, EOPNOTSUPP,
			    "OFS506 archive split over disks: it starts with "
			    "their mark");
	}
	return optimfs_fail(err, EUCLEAN,
	    "OFS503 %" PRIu64 " bytes before the first record", first);
}

static int read_directory(struct ofs_zip *zip, const struct tail *t,
    const struct end *e, ofs_zip_read_fn *read, void *ctx,
    struct optimfs_error *err)
{
	const uint8_t *bytes = NULL;
	uint8_t *buf = NULL;
	int ret = 0;

	if (e->off >= t->off)
		bytes = t->bytes + (e->off - t->off);
	else {
		bytes = buf = malloc(e->size + 1);
		if (buf == NULL)
			return ofs_no_memory(err);
		ret = read(ctx, e->off, e->size, buf, err);
	}
	if (ret == 0)
		ret = ofs_zip_walk(zip, bytes, e->size, e->n, err);
	free(buf);
	return ret;
}

static int open_zip(struct ofs_zip *zip, bool flat, uint64_t size,
    ofs_zip_read_fn *read, void *ctx, struct optimfs_error *err)
{
	struct ofs_zip z = { .size = size, .flat = flat };
	struct tail t;
	struct end e = { 0 };

	if (find_end(size, read, ctx, &t, &e, err) == -1)
		return -1;
	z.directory = e.off;
	if (flat)
		z.prefix = (struct ofs_str){ "", 0 };
	if (read_directory(&z, &t, &e, read, ctx, err) == -1 ||
	    check_records(&z, err) == -1 ||
	    check_start(&z, read, ctx, err) == -1) {
		ofs_zip_fini(&z);
		return -1;
	}
	*zip = z;
	return 0;
}

int ofs_zip_open(struct ofs_zip *zip, uint64_t size, ofs_zip_read_fn *read,
    void *ctx, struct optimfs_error *err)
{
	return open_zip(zip, false, size, read, ctx, err);
}

int ofs_zip_open_flat(struct ofs_zip *zip, uint64_t size, ofs_zip_read_fn *read,
    void *ctx, struct optimfs_error *err)
{
	return open_zip(zip, true, size, read, ctx, err);
}

void ofs_zip_fini(struct ofs_zip *zip)
{
	ofs_arena_fini(&zip->arena);
	*zip = (struct ofs_zip){ 0 };
}

struct wanted {
	const struct ofs_zip *zip;
	struct ofs_str name;
};

static int compare_wanted(const void *key, const void *item)
{
	const struct wanted *w = key;

	return compare_names(w->zip, &w->name,
	    &w->zip->record[*(const uint32_t *)item].name);
}

const struct ofs_zip_record *ofs_zip_find(const struct ofs_zip *zip,
    const char *name, size_t n)
{
	struct wanted w = { zip, { name, (uint32_t)n } };
	const uint32_t *found = n > UINT32_MAX
	    ? NULL
	    : ofs_search(&w, zip->by_name, zip->n, sizeof(*found),
		  compare_wanted);

	if (found == NULL || memcmp(zip->record[*found].name.p, name, n) != 0)
		return NULL;
	return &zip->record[*found];
}
