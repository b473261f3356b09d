/* zip_entry.c - the entries of a central directory */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "archive/zip_impl.h"
#include "base/cursor.h"
#include "base/memory.h"
#include "base/str.h"

/* An entry of the directory. */
struct entry {
	struct ofs_str name;
	const uint8_t *extra;
	uint64_t header, csize, size;
	uint32_t crc, attributes, central;
	uint16_t flags, method, extra_len, disk;
};

int ofs_zip_extra64(const uint8_t *p, uint64_t len, const uint8_t **block,
    uint16_t *n, struct optimfs_error *err)
{
	struct ofs_cursor c = ofs_cursor_of(p, len);

	*block = NULL;
	*n = 0;
	while (ofs_cursor_left(&c) > 0) {
		uint16_t id = ofs_cursor_le16(&c);
		uint16_t size = ofs_cursor_le16(&c);
		const uint8_t *at = ofs_cursor_take(&c, size);

		if (c.bad)
			return optimfs_fail(err, EUCLEAN,
			    "OFS509 an extra field runs past its entry");
		if (id == 1 && *block != NULL)
			return optimfs_fail(err, EUCLEAN,
			    "OFS509 two zip64 fields in one entry");
		if (id == 1) {
			*block = at;
			*n = size;
		}
	}
	return 0;
}

/* Replace fields that are all ones by those of zip64, in the order of the
 * format. */
static int widen(struct entry *e, struct optimfs_error *err)
{
	const uint8_t *block;
	struct ofs_cursor c;
	uint16_t n;

	if (ofs_zip_extra64(e->extra, e->extra_len, &block, &n, err) == -1)
		return -1;
	c = ofs_cursor_of(block, n);
	if (e->size == UINT32_MAX && block != NULL)
		e->size = ofs_cursor_le64(&c);
	if (e->csize == UINT32_MAX && block != NULL)
		e->csize = ofs_cursor_le64(&c);
	if (e->header == UINT32_MAX && block != NULL)
		e->header = ofs_cursor_le64(&c);
	if (e->disk == UINT16_MAX && block != NULL)
		e->disk = ofs_cursor_le32(&c) == 0 ? 0 : UINT16_MAX;
	if (c.bad)
		return optimfs_fail(err, EUCLEAN,
		    "OFS509 zip64 field of %u bytes is too short", n);
	return 0;
}

static int parse(struct ofs_cursor *c, struct entry *e,
    struct optimfs_error *err)
{
	uint32_t sig = ofs_cursor_le32(c);
	uint16_t name_len, comment_len;

	ofs_cursor_le32(c); /* versions */
	e->flags = ofs_cursor_le16(c);
	e->method = ofs_cursor_le16(c);
	ofs_cursor_le32(c); /* time */
	e->crc = ofs_cursor_le32(c);
	e->csize = ofs_cursor_le32(c);
	e->size = ofs_cursor_le32(c);
	name_len = ofs_cursor_le16(c);
	e->extra_len = ofs_cursor_le16(c);
	comment_len = ofs_cursor_le16(c);
	e->disk = ofs_cursor_le16(c);
	ofs_cursor_le16(c); /* internal attributes */
	e->attributes = ofs_cursor_le32(c);
	e->header = ofs_cursor_le32(c);
	e->name = (struct ofs_str){ (const char *)ofs_cursor_take(c, name_len),
		name_len };
	e->extra = ofs_cursor_take(c, e->extra_len);
	ofs_cursor_take(c, comment_len);
	if (c->bad)
		return optimfs_fail(err, EUCLEAN,
		    "OFS510 an entry runs past the directory");
	if (sig != OFS_ZIP_CENTRAL)
		return optimfs_fail(err, EUCLEAN,
		    "OFS510 no entry where one must be: 0x%08" PRIx32, sig);
	return widen(e, err);
}

/* Could readers resolve the name to different paths? Then it is refused. */
static bool name_is_plain(const struct ofs_str *s)
{
	uint32_t start = 0;

	if (s->len == 0 || s->len > OFS_ZIP_MAX_NAME ||
	    memchr(s->p, '\0', s->len) != NULL ||
	    memchr(s->p, '\\', s->len) != NULL)
		return false;
	for (uint32_t i = 0; i <= s->len; i++) {
		uint32_t n = i - start;

		if (i < s->len && s->p[i] != '/')
			continue;
		/* a name may end with a slash: a directory */
		if ((n == 0 && i < s->len) || (n == 1 && s->p[start] == '.') ||
		    (n == 2 && memcmp(s->p + start, "..", 2) == 0))
			return false;
		start = i + 1;
	}
	return true;
}

/* TorchScript compresses its code: NAME/code/__torch__.py. */
static bool is_code(const struct ofs_str *name)
{
	return memmem(name->p, name->len, "/code/", 6) != NULL;
}

static int check(const struct ofs_zip *zip, const struct entry *e,
    struct optimfs_error *err)
{
	if (!name_is_plain(&e->name))
		return optimfs_fail(err, EUCLEAN,
		    "OFS521 record name '%.*s' of %" PRIu32 " bytes",
		    OFS_STR_ARGS(e->name, 120), e->name.len);
	if (e->disk != 0)
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS506 record '%.*s' is on another disk",
		    OFS_STR_ARGS(e->name, 120));
	if ((e->flags & ~OFS_ZIP_FLAGS) != 0)
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS516 %s record '%.*s', flags 0x%04x",
		    e->flags & OFS_ZIP_CRYPT ? "encrypted" : "unknown kind of",
		    OFS_STR_ARGS(e->name, 120), e->flags);
	if (e->method != OFS_ZIP_STORED &&
	    !(zip->flat && e->method == OFS_ZIP_DEFLATED))
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS517 compressed record '%.*s', method %u%s",
		    OFS_STR_ARGS(e->name, 120), e->method,
		    is_code(&e->name)
			? ": it is TorchScript; save its weights, "
			  "torch.save(torch.jit.load(FILE).state_dict(), NEW)"
			: "");
	if (e->method == OFS_ZIP_STORED && e->csize != e->size)
		return optimfs_fail(err, EUCLEAN,
		    "OFS518 stored record '%.*s' of %" PRIu64
		    " bytes takes %" PRIu64,
		    OFS_STR_ARGS(e->name, 120), e->size, e->csize);
	if (e->header >= zip->directory)
		return optimfs_fail(err, EUCLEAN,
		    "OFS511 record '%.*s' at %" PRIu64
		    ", after the directory at %" PRIu64,
		    OFS_STR_ARGS(e->name, 120), e->header, zip->directory);
	return 0;
}

/* Every name must start with the directory of the first one, as torch.save
 * writes them. */
static int check_prefix(struct ofs_zip *zip, const struct entry *e,
    struct optimfs_error *err)
{
	const char *slash = memchr(e->name.p, '/', e->name.len);

	if (zip->prefix.p == NULL && slash != NULL) {
		zip->prefix.len = (uint32_t)(slash - e->name.p) + 1;
		zip->prefix.p =
		    ofs_arena_strndup(&zip->arena, e->name.p, zip->prefix.len);
		if (zip->prefix.p == NULL)
			return ofs_no_memory(err);
	}
	if (zip->prefix.p == NULL)
		return optimfs_fail(err, EUCLEAN,
		    "OFS523 record '%.*s' is in no directory",
		    OFS_STR_ARGS(e->name, 120));
	if (e->name.len < zip->prefix.len ||
	    memcmp(e->name.p, zip->prefix.p, zip->prefix.len) != 0)
		return optimfs_fail(err, EUCLEAN,
		    "OFS523 record '%.*s' is not beneath '%.*s'",
		    OFS_STR_ARGS(e->name, 120), OFS_STR_ARGS(zip->prefix, 120));
	return 0;
}

static int note_odd(struct ofs_zip *zip, const struct entry *e,
    struct optimfs_error *err)
{
	if (zip->nodd++ > 0)
		return 0;
	zip->odd.len = e->name.len;
	zip->odd.p = ofs_arena_strndup(&zip->arena, e->name.p, e->name.len);
	if (zip->odd.p == NULL)
		return ofs_no_memory(err);
	return 0;
}

static int add_zip_record(struct ofs_zip *zip, const struct entry *e,
    struct optimfs_error *err)
{
	struct ofs_zip_record *r = &zip->record[zip->n];
	bool is_dir = e->name.p[e->name.len - 1] == '/';

	if ((is_dir || S_ISLNK(e->attributes >> 16)) &&
	    note_odd(zip, e, err) == -1)
		return -1;
	if (is_dir && e->size != 0)
		return optimfs_fail(err, EUCLEAN,
		    "OFS521 directory '%.*s' has %" PRIu64 " bytes",
		    OFS_STR_ARGS(e->name, 120), e->size);
	if (is_dir)
		return 0;
	*r = (struct ofs_zip_record){ .header = e->header,
		.size = e->size,
		.stored = e->csize,
		.crc = e->crc,
		.central = e->central,
		.flags = e->flags,
		.method = e->method };
	r->name.len = e->name.len - zip->prefix.len;
	r->name.p = ofs_arena_strndup(&zip->arena, e->name.p + zip->prefix.len,
	    r->name.len);
	if (r->name.p == NULL)
		return ofs_no_memory(err);
	zip->n++;
	return 0;
}

int ofs_zip_walk(struct ofs_zip *zip, const uint8_t *p, uint64_t len,
    uint64_t n, struct optimfs_error *err)
{
	struct ofs_cursor c = ofs_cursor_of(p, len);
	uint64_t walked;

	if (!ofs_cursor_fits(&c, n, OFS_ZIP_CENTRAL_LEN))
		return optimfs_fail(err, EUCLEAN,
		    "OFS505 %" PRIu64 " records in a directory of %" PRIu64
		    " bytes",
		    n, len);
	zip->record = ofs_arena_alloc(&zip->arena, n * sizeof(*zip->record));
	if (zip->record == NULL)
		return ofs_no_memory(err);
	for (walked = 0; ofs_cursor_left(&c) > 0 && walked < n; walked++) {
		struct entry e = { .central = (uint32_t)(c.p - p) };

		if (parse(&c, &e, err) == -1 || check(zip, &e, err) == -1 ||
		    check_prefix(zip, &e, err) == -1 ||
		    add_zip_record(zip, &e, err) == -1)
			return -1;
	}
	if (walked != n || ofs_cursor_left(&c) > 0)
		return optimfs_fail(err, EUCLEAN,
		    "OFS505 end record counts %" PRIu64
		    " records, the directory has %s",
		    n, walked != n ? "fewer" : "more");
	return 0;
}
