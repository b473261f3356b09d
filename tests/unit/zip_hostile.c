/* zip_hostile.c - damaged, ambiguous and malicious zip archives */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "archive/zip.h"
#include "mkzip.h"
#include "tap.h"

/* A valid archive of four records; the third is empty. */
static void make(struct mkzip *z)
{
	mkzip_add(z, "archive/data.pkl", "\x80\x02N.", 4);
	mkzip_add(z, "archive/data/0", "0123456789abcdef", 16);
	mkzip_add(z, "archive/data/1", "", 0);
	mkzip_add(z, "archive/version", "3\n", 2);
}

static int open_zip(struct mkzip *z, struct ofs_zip *zip,
    struct optimfs_error *err)
{
	struct mkzip_bytes m = { z->b.data, z->b.len, 0 };

	*err = (struct optimfs_error){ 0 };
	return ofs_zip_open(zip, m.n, mkzip_read, &m, err);
}

/* The archive must be refused with this error. Frees it. */
static void refused(struct mkzip *z, int code, const char *text,
    const char *what)
{
	struct optimfs_error err;
	struct ofs_zip zip;

	if (open_zip(z, &zip, &err) == 0) {
		ok(false, "%s is refused", what);
		ofs_zip_fini(&zip);
	} else
		is_error(err, code, text, "%s is refused", what);
	mkzip_fini(z);
}

/* Moves the sizes of a record's local header into a zip64 field, as Python's
 * zipfile does with force_zip64. The padding has room for it. */
static void local64(struct mkzip *z, const struct mkzip_record *r,
    uint64_t size)
{
	size_t at = r->header + 30 + r->name_len;
	size_t room = r->data - at;

	if (room < 24)
		bail_out("no room for a zip64 field");
	mkzip_put(z, r->header + 18, 4, UINT32_MAX);
	mkzip_put(z, r->header + 22, 4, UINT32_MAX);
	mkzip_put(z, at, 2, 1);
	mkzip_put(z, at + 2, 2, 16);
	mkzip_put(z, at + 4, 8, size);
	mkzip_put(z, at + 12, 8, size);
	mkzip_put(z, at + 20, 2, 0x4246);
	mkzip_put(z, at + 22, 2, room - 24);
}

/* The archive opens, but this record's data are refused. Frees it. */
static void data_refused(struct mkzip *z, const char *name, int code,
    const char *text, const char *what)
{
	struct mkzip_bytes m = { z->b.data, z->b.len, 0 };
	const struct ofs_zip_record *r;
	struct optimfs_error err;
	struct ofs_zip zip;
	uint64_t off;

	if (!ok(open_zip(z, &zip, &err) == 0, "%s: the archive opens", what)) {
		mkzip_fini(z);
		return;
	}
	r = ofs_zip_find(&zip, name, strlen(name));
	if (ok(r != NULL &&
		    ofs_zip_data(&zip, r, mkzip_read, &m, &off, &err) == -1,
		"%s: the record's data are refused", what))
		is_error(err, code, text, "%s: error text", what);
	r = ofs_zip_find(&zip, "version", 7);
	ok(ofs_zip_data(&zip, r, mkzip_read, &m, &off, &err) == 0,
	    "%s: the next record can be read", what);
	ofs_zip_fini(&zip);
	mkzip_fini(z);
}

/* The data of this record are found. Frees the archive. */
static void data_found(struct mkzip *z, const char *name, const char *what)
{
	struct mkzip_bytes m = { z->b.data, z->b.len, 0 };
	const struct ofs_zip_record *r;
	struct optimfs_error err;
	struct ofs_zip zip;
	uint64_t off = 0;

	if (ok(open_zip(z, &zip, &err) == 0, "%s: the archive opens", what)) {
		r = ofs_zip_find(&zip, name, strlen(name));
		ok(r != NULL &&
			ofs_zip_data(&zip, r, mkzip_read, &m, &off, &err) == 0,
		    "%s: the record's data are found", what);
		is_int((long long)off, (long long)z->rec[1].data,
		    "%s: offset of the data", what);
		ofs_zip_fini(&zip);
	}
	mkzip_fini(z);
}

static void good(void)
{
	struct mkzip z = { 0 };
	struct mkzip_bytes m;
	struct ofs_window w;
	struct ofs_zip zip;
	struct optimfs_error err = { 0 };
	const struct ofs_zip_record *r;
	struct ofs_extent at;
	uint64_t off = 0, again = 0;

	make(&z);
	mkzip_end(&z);
	m = (struct mkzip_bytes){ z.b.data, z.b.len, 0 };
	ofs_window_init(&w, m.n, mkzip_read, &m);
	is_int(ofs_zip_open(&zip, m.n, ofs_window_read, &w, &err), 0,
	    "a valid archive opens");
	is_u64(zip.n, 4, "a valid archive: number of records");
	is_str(zip.prefix.p, "archive/", "a valid archive: prefix");
	is_u64(zip.directory, z.directory,
	    "a valid archive: offset of the directory");
	r = ofs_zip_find(&zip, "data/0", 6);
	is_u64(r->size, 16, "a valid archive: size of a record");
	is_int(ofs_zip_data(&zip, r, ofs_window_read, &w, &off, &err), 0,
	    "a record's data are found by the directory");
	is_u64(off, z.rec[1].data,
	    "a record's data found by the directory: offset");
	at = (struct ofs_extent){
		.off = r->header, .len = r->size, .tag = ofs_zip_tag(&zip, r)
	};
	is_int(ofs_zip_data_at(&at, ofs_window_read, &w, m.n, &again, &err), 0,
	    "a record's data are found by the local header");
	is_u64(again, off, "a record's data found by the local header: offset");
	is_int(m.calls, 1, "opening and finding data takes one read");
	at.tag ^= 1;
	is_int(ofs_zip_data_at(&at, mkzip_read, &m, m.n, &again, &err), -1,
	    "the header of another record is refused");
	is_error(err, EUCLEAN, "OFS512",
	    "the header of another record: error text");
	at.tag = 0;
	at.len = 17;
	ofs_zip_data_at(&at, mkzip_read, &m, m.n, &again, &err);
	at.len = m.n;
	is_int(ofs_zip_data_at(&at, mkzip_read, &m, m.n, &again, &err), -1,
	    "a record that is too long is refused");
	is_error(err, EIO, "OFS502", "a record that is too long: error text");
	ok(ofs_zip_find(&zip, "data/00", 7) == NULL,
	    "a record that does not exist is not found");
	ok(ofs_zip_find(&zip, "DATA/0", 6) == NULL,
	    "names of records are case-sensitive");
	for (size_t i = 0; i < zip.n; i++)
		is_int(ofs_zip_verify(&zip, &zip.record[i], mkzip_read, &m,
			   &err),
		    0, "checksum of record %s", zip.record[i].name.p);
	ofs_zip_fini(&zip);
	mkzip_fini(&z);
}

static void plain32(void)
{
	struct mkzip z = { .no64 = true };
	struct optimfs_error err;
	struct ofs_zip zip;

	make(&z);
	mkzip_end(&z);
	is_int(open_zip(&z, &zip, &err), 0,
	    "an archive without zip64 records opens");
	ofs_zip_fini(&zip);
	mkzip_fini(&z);
}

/* Small sizes and offsets in zip64 fields. */
static void wide_fields(void)
{
	static const uint8_t extra[] = { 1, 0, 24, 0, 16, 0, 0, 0, 0, 0, 0, 0,
		16, 0, 0, 0, 0, 0, 0, 0, 92, 0, 0, 0, 0, 0, 0, 0 };
	struct mkzip z = { 0 };
	struct optimfs_error err;
	struct ofs_zip zip;

	make(&z);
	z.rec[1].extra = extra;
	z.rec[1].extra_len = sizeof(extra);
	z.rec[1].csize = z.rec[1].size = z.rec[1].header = UINT32_MAX;
	mkzip_end(&z);
	mkzip_put(&z, z.end + 8, 2, UINT16_MAX);
	mkzip_put(&z, z.end + 10, 2, UINT16_MAX);
	mkzip_put(&z, z.end + 12, 4, UINT32_MAX);
	mkzip_put(&z, z.end + 16, 4, UINT32_MAX);
	if (is_int(open_zip(&z, &zip, &err), 0,
		"an archive with zip64 fields opens")) {
		is_u64(zip.record[1].size, 16, "a zip64 field gives the size");
		is_u64(zip.record[1].header, 92,
		    "a zip64 field gives the offset");
		ofs_zip_fini(&zip);
	} else
		diag("%s", err.text);
	mkzip_fini(&z);
}

static void end_record(void)
{
	struct mkzip z = { 0 };
	uint8_t end[22];

	ofs_buf_put(&z.b, "PK\5\6", 4);
	refused(&z, EUCLEAN, "OFS501", "an archive of 4 bytes");
	ofs_buf_put(&z.b, "PK\3\4 and no more than that", 27);
	refused(&z, EUCLEAN, "OFS501", "an archive without end record");
	make(&z);
	mkzip_end(&z);
	ofs_buf_put(&z.b, "x", 1);
	refused(&z, EUCLEAN, "OFS504 ambiguous end record: 1 bytes follow",
	    "a trailing byte");
	make(&z);
	mkzip_end(&z);
	mkzip_put(&z, z.end + 20, 2, 3);
	ofs_buf_put(&z.b, "abc", 3);
	refused(&z, EUCLEAN, "OFS504", "a comment at the end");
	make(&z);
	mkzip_end(&z);
	for (int i = 0; i < 70000; i++)
		ofs_buf_putc(&z.b, 0);
	refused(&z, EUCLEAN, "OFS501", "an end record beyond the search range");
	make(&z);
	mkzip_end(&z);
	memcpy(end, z.b.data + z.end, sizeof(end));
	mkzip_put(&z, z.end + 20, 2, 22);
	ofs_buf_put(&z.b, end, sizeof(end));
	refused(&z, EUCLEAN, "OFS504 ambiguous end record: one at",
	    "two end records");
}

static void whole(void)
{
	struct mkzip z = { 0 };

	ofs_buf_put(&z.b, "#!/bin/sh\n", 10);
	z.base = 10;
	make(&z);
	mkzip_end(&z);
	refused(&z, EUCLEAN, "OFS503 10 bytes before",
	    "leading bytes with unchanged offsets");
	z.no64 = true;
	ofs_buf_put(&z.b, "#!/bin/sh\n", 10);
	z.base = 10;
	make(&z);
	mkzip_end(&z);
	refused(&z, EUCLEAN, "OFS503 10 bytes before",
	    "leading bytes with unchanged offsets, without zip64");
	ofs_buf_put(&z.b, "#!/bin/sh\n", 10);
	make(&z);
	mkzip_end(&z);
	refused(&z, EUCLEAN, "OFS503 10 bytes before the first record",
	    "leading bytes with adjusted offsets");
	ofs_buf_put(&z.b, "PK\7\b", 4);
	make(&z);
	mkzip_end(&z);
	refused(&z, EOPNOTSUPP, "OFS506", "the mark of a split archive");
	make(&z);
	mkzip_end(&z);
	mkzip_put(&z, z.end + 4, 2, 1);
	refused(&z, EOPNOTSUPP, "OFS506", "an archive on disk 1");
	make(&z);
	mkzip_end(&z);
	mkzip_put(&z, z.locator + 16, 4, 2);
	refused(&z, EOPNOTSUPP, "OFS506", "an archive of two disks");
	make(&z);
	z.rec[1].disk = 3;
	mkzip_end(&z);
	refused(&z, EOPNOTSUPP, "OFS506", "a record on disk 3");
	for (int d = -1; d <= 1; d += 2) {
		make(&z);
		mkzip_end(&z);
		mkzip_put(&z, z.end64 + 24, 8, (uint64_t)(4 + d));
		mkzip_put(&z, z.end64 + 32, 8, (uint64_t)(4 + d));
		mkzip_put(&z, z.end + 8, 4, 0x10001u * (unsigned)(4 + d));
		refused(&z, EUCLEAN, "OFS505", "a wrong number of records");
	}
	z.no64 = true;
	make(&z);
	mkzip_end(&z);
	mkzip_put(&z, z.end + 8, 4, 0);
	refused(&z, EUCLEAN, "OFS505", "a number of records of 0");
}

static void zip64(void)
{
	static const uint64_t bad[] = { 0, 16, 1 << 20, UINT64_MAX };
	struct mkzip z = { 0 };

	for (size_t i = 0; i <= 4; i++) {
		make(&z);
		mkzip_end(&z);
		mkzip_put(&z, z.locator + 8, 8, i < 4 ? bad[i] : z.locator);
		refused(&z, EUCLEAN, "OFS507",
		    "a zip64 locator with a wrong offset");
	}
	make(&z);
	mkzip_end(&z);
	mkzip_put(&z, z.end64, 4, 0x06064b51);
	refused(&z, EUCLEAN, "OFS507",
	    "a zip64 end record with a wrong signature");
	make(&z);
	mkzip_end(&z);
	mkzip_put(&z, z.end64 + 4, 8, 45);
	refused(&z, EUCLEAN, "OFS507",
	    "a zip64 end record with another length");
	for (int field = 0; field < 3; field++) {
		make(&z);
		mkzip_end(&z);
		if (field == 0)
			mkzip_put(&z, z.end64 + 24, 8, UINT64_MAX / 2 + 1);
		mkzip_put(&z, z.end64 + 32 + 8 * (size_t)field, 8,
		    UINT64_MAX / 2 + 1);
		mkzip_put(&z, z.end + 8, 8, UINT64_MAX);
		mkzip_put(&z, z.end + 16, 4, UINT32_MAX);
		refused(&z, EUCLEAN, "OFS507",
		    "a zip64 end record with a value of 2^63");
	}
	for (size_t field = 0; field < 3; field++) {
		make(&z);
		mkzip_end(&z);
		mkzip_put(&z, z.end + (field == 0 ? 8 : 8 + 4 * field), 2, 2);
		if (field == 0)
			mkzip_put(&z, z.end + 10, 2, 2);
		refused(&z, EUCLEAN, "OFS508",
		    "an end record that contradicts the zip64 end record");
	}
}

static void extra(void)
{
	static const struct {
		const char *bytes;
		uint16_t len;
		const char *what;
	} bad[] = {
		{ "\1\0\4\0abcd", 8, "a zip64 field that is too short" },
		{ "\1\0\0\0\1\0\0\0", 8, "two zip64 fields" },
		{ "\1\0\20\0abcd", 8, "an extra field longer than the entry" },
		{ "\1\0\0", 3, "a truncated extra field" },
	};
	struct mkzip z = { 0 };

	for (size_t i = 0; i < 4; i++) {
		make(&z);
		z.rec[1].extra = bad[i].bytes;
		z.rec[1].extra_len = bad[i].len;
		if (i == 0)
			z.rec[1].size = UINT32_MAX;
		mkzip_end(&z);
		refused(&z, EUCLEAN, "OFS509", bad[i].what);
	}
	for (size_t field = 28; field < 34; field += 2) {
		make(&z);
		mkzip_end(&z);
		mkzip_put(&z, z.rec[3].entry + field, 2, 9999);
		refused(&z, EUCLEAN, "OFS510",
		    "a central entry longer than the directory");
	}
	make(&z);
	mkzip_end(&z);
	mkzip_put(&z, z.rec[2].entry, 4, 0x05054b50);
	refused(&z, EUCLEAN, "OFS510",
	    "a central entry with a wrong signature");
}

static void local(void)
{
	struct mkzip z = { 0 };

	make(&z);
	mkzip_end(&z);
	mkzip_put(&z, z.rec[1].header, 4, 0x04034b51);
	data_refused(&z, "data/0", EUCLEAN, "OFS511",
	    "a local header with a wrong signature");
	make(&z);
	z.rec[1].header = 1 << 30;
	mkzip_end(&z);
	refused(&z, EUCLEAN, "OFS511", "a local header outside the archive");
	make(&z);
	z.rec[1].header = (uint32_t)z.b.len + 1;
	mkzip_end(&z);
	refused(&z, EUCLEAN, "OFS511", "a local header inside the directory");
	make(&z);
	mkzip_end(&z);
	z.b.data[z.rec[1].header + 30 + 13] = '9';
	data_refused(&z, "data/0", EUCLEAN,
	    "OFS512 record 'data/0': local 'archive/data/9', central "
	    "'archive/data/0'",
	    "a local header with another name");
	make(&z);
	mkzip_end(&z);
	mkzip_put(&z, z.rec[1].header + 26, 2, 13);
	data_refused(&z, "data/0", EUCLEAN, "OFS512",
	    "a local header with a shorter name");
	make(&z);
	mkzip_end(&z);
	mkzip_put(&z, z.rec[1].header + 8, 2, 8);
	data_refused(&z, "data/0", EUCLEAN, "OFS513",
	    "a local header with another method");
	make(&z);
	mkzip_end(&z);
	mkzip_put(&z, z.rec[1].header + 6, 2, 0x0809);
	data_refused(&z, "data/0", EUCLEAN, "OFS513",
	    "a local header with the flag for encryption");
	make(&z);
	mkzip_end(&z);
	mkzip_put(&z, z.rec[1].header + 6, 2, 0x0800);
	data_refused(&z, "data/0", EUCLEAN, "OFS513",
	    "a local header without the flag for a descriptor");
	for (size_t field = 18; field <= 22; field += 4) {
		make(&z);
		mkzip_end(&z);
		mkzip_put(&z, z.rec[1].header + field, 4, 15);
		data_refused(&z, "data/0", EUCLEAN, "OFS514",
		    "a local header with another size");
	}
	make(&z);
	mkzip_end(&z);
	for (size_t field = 18; field <= 22; field += 4)
		mkzip_put(&z, z.rec[1].header + field, 4, UINT32_MAX);
	data_refused(&z, "data/0", EUCLEAN, "OFS514",
	    "a local header that lacks its zip64 field");
	for (int wrong = 0; wrong < 2; wrong++) {
		make(&z);
		mkzip_end(&z);
		local64(&z, &z.rec[1], z.rec[1].size + (unsigned)wrong);
		if (wrong)
			data_refused(&z, "data/0", EUCLEAN, "OFS514",
			    "a local zip64 field with another size");
		else
			data_found(&z, "data/0",
			    "a local zip64 field with the right size");
	}
	make(&z);
	mkzip_end(&z);
	mkzip_put(&z, z.rec[1].header + 28, 2, 9999);
	data_refused(&z, "data/0", EUCLEAN, "OFS519",
	    "a local extra field that moves the data");
}

static void entries(void)
{
	static const uint16_t crypt[] = { 1, 1 << 5, 1 << 6, 1 << 13, 1 << 7 };
	static const uint16_t method[] = { 8, 99, 93, 7 };
	struct mkzip z = { 0 };

	for (size_t i = 0; i < 5; i++) {
		make(&z);
		z.rec[1].flags |= crypt[i];
		mkzip_end(&z);
		refused(&z, EOPNOTSUPP,
		    i < 4 ? "OFS516 encrypted" : "OFS516 unknown",
		    "an entry with unsupported flags");
	}
	for (size_t i = 0; i < 4; i++) {
		make(&z);
		z.rec[1].method = method[i];
		mkzip_end(&z);
		refused(&z, EOPNOTSUPP, "OFS517",
		    "an entry with an unsupported method");
	}
	make(&z);
	mkzip_add(&z, "archive/code/m.py", "", 0)->method = 8;
	mkzip_end(&z);
	refused(&z, EOPNOTSUPP,
	    "OFS517 compressed record 'archive/code/m.py', method 8: it is "
	    "TorchScript",
	    "compressed code of TorchScript");
	make(&z);
	z.rec[1].csize = 15;
	mkzip_end(&z);
	refused(&z, EUCLEAN, "OFS518",
	    "a stored entry with another compressed size");
}

static void overlap(void)
{
	struct mkzip z = { 0 };

	make(&z);
	z.rec[3].header = z.rec[1].header;
	mkzip_end(&z);
	refused(&z, EUCLEAN, "OFS519 records 'data/0' and 'version'",
	    "two entries with one header");
	make(&z);
	z.rec[1].size = z.rec[1].csize = 200;
	mkzip_end(&z);
	refused(&z, EUCLEAN, "OFS519 records 'data/0' and 'data/1' overlap",
	    "a record that overlaps the next");
	make(&z);
	z.rec[3].size = z.rec[3].csize = 100;
	mkzip_end(&z);
	refused(&z, EUCLEAN, "OFS519 record 'version' overlaps the directory",
	    "a record that overlaps the directory");
	make(&z);
	z.rec[3].size = z.rec[3].csize = 1 << 30;
	mkzip_end(&z);
	refused(&z, EIO, "OFS502 record 'version' of 1073741824 bytes",
	    "a record past the end");
	make(&z);
	strcpy(z.rec[2].name, "archive/data/0");
	mkzip_end(&z);
	refused(&z, EUCLEAN, "OFS520 duplicate record 'archive/data/0'",
	    "two records with one name");
	make(&z);
	memcpy(z.rec[2].name, "archive/DATA/0", 14);
	mkzip_end(&z);
	refused(&z, EUCLEAN, "OFS520", "two names that differ in case only");
}

static void names(void)
{
	static const struct {
		const char *name;
		size_t len;
	} bad[] = {
		{ "../../etc/passwd", 16 },
		{ "/abs", 4 },
		{ "archive/a\\..\\b", 14 },
		{ "./x", 3 },
		{ "archive/./x", 11 },
		{ "archive//y", 10 },
		{ "archive/..", 10 },
		{ "", 0 },
		{ "archive/a\0b", 11 },
	};
	struct mkzip z = { 0 };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		make(&z);
		memset(z.rec[1].name, 0, sizeof(z.rec[1].name));
		memcpy(z.rec[1].name, bad[i].name, bad[i].len);
		z.rec[1].name_len = bad[i].len;
		mkzip_end(&z);
		refused(&z, EUCLEAN, "OFS521", bad[i].name);
	}
	/* The comment and the extra fields become a part of the name. */
	make(&z);
	z.rec[1].comment_len = 5000;
	mkzip_end(&z);
	mkzip_put(&z, z.rec[1].entry + 28, 2, 5014);
	mkzip_put(&z, z.rec[1].entry + 32, 2, 0);
	refused(&z, EUCLEAN, "OFS521", "a name of 5014 bytes");
	make(&z);
	memcpy(z.rec[2].name, "brchive", 7);
	mkzip_end(&z);
	refused(&z, EUCLEAN, "OFS523", "a record with another prefix");
	make(&z);
	z.rec[2].name_len = 7;
	mkzip_end(&z);
	refused(&z, EUCLEAN, "OFS523", "a record without prefix");
	mkzip_add(&z, "data.pkl", "N.", 2);
	mkzip_end(&z);
	refused(&z, EUCLEAN, "OFS523", "an archive without prefix");
}

static void odd(void)
{
	struct mkzip z = { 0 };
	struct optimfs_error err;
	struct ofs_zip zip;

	make(&z);
	mkzip_add(&z, "archive/code/", "", 0);
	z.rec[1].attributes = 0120777u << 16;
	mkzip_end(&z);
	if (!is_int(open_zip(&z, &zip, &err), 0,
		"an archive with a directory and a link opens"))
		diag("%s", err.text);
	is_u64(zip.n, 4, "an entry for a directory is skipped");
	is_u64(zip.nodd, 2, "a directory and a link are counted as odd");
	is_str(zip.odd.p, "archive/data/0",
	    "the name of the first odd entry is kept");
	ofs_zip_fini(&zip);
	mkzip_fini(&z);
	make(&z);
	memcpy(z.rec[1].name, "archive/data/", 13);
	z.rec[1].name_len = 13;
	mkzip_end(&z);
	refused(&z, EUCLEAN, "OFS521", "a directory with data");
}

static int verify(struct mkzip *z, const char *name, struct optimfs_error *err)
{
	struct mkzip_bytes m = { z->b.data, z->b.len, 0 };
	struct ofs_zip zip;
	int ret;

	*err = (struct optimfs_error){ 0 };
	if (ofs_zip_open(&zip, m.n, mkzip_read, &m, err) == -1)
		return -2;
	ret = ofs_zip_verify(&zip, ofs_zip_find(&zip, name, strlen(name)),
	    mkzip_read, &m, err);
	ofs_zip_fini(&zip);
	mkzip_fini(z);
	return ret;
}

static void checksums(void)
{
	struct mkzip z = { 0 };
	struct optimfs_error err;

	make(&z);
	mkzip_end(&z);
	z.b.data[z.rec[1].data + 16 + 8] ^= 1;
	is_int(verify(&z, "data/0", &err), -1,
	    "a descriptor with another checksum is detected");
	is_error(err, EBADMSG, "OFS515",
	    "a descriptor with another checksum: error text");
	make(&z);
	mkzip_end(&z);
	z.b.data[z.rec[1].data] ^= 1;
	is_int(verify(&z, "data/0", &err), -1, "a flipped bit is detected");
	is_error(err, EBADMSG, "OFS530 CRC mismatch in 'data/0'",
	    "a flipped bit: error text");
	make(&z);
	z.rec[1].crc = 0;
	mkzip_end(&z);
	mkzip_put(&z, z.rec[1].data + 16 + 4, 4, 0);
	is_int(verify(&z, "data/0", &err), 1,
	    "a record without checksum cannot be verified");
}

/* An archive truncated at each byte. */
static void cut(void)
{
	static uint8_t data[5000];
	struct mkzip z = { 0 };
	struct optimfs_error err;
	size_t opened = 0, n;

	mkzip_add(&z, "archive/data.pkl", "\x80\x02N.", 4);
	mkzip_add(&z, "archive/data/0", data, sizeof(data));
	mkzip_add(&z, "archive/version", "3\n", 2);
	mkzip_end(&z);
	n = z.b.len;
	for (size_t i = 0; i < n; i++) {
		struct ofs_zip zip;

		z.b.len = i;
		if (open_zip(&z, &zip, &err) == 0) {
			opened++;
			ofs_zip_fini(&zip);
		}
	}
	is_u64(opened, 0,
	    "each truncation of an archive of %zu bytes is refused", n);
	mkzip_fini(&z);
}

/* End records after a directory of zeros. */
struct many {
	uint64_t directory; /* bytes */
	struct mkzip z;
};

static int read_many(void *ctx, uint64_t off, uint64_t len, void *buf,
    struct optimfs_error *err)
{
	const struct many *m = ctx;

	(void)err;
	memset(buf, 0, len);
	if (off + len == m->directory + m->z.b.len)
		memcpy((char *)buf + len - m->z.b.len, m->z.b.data, m->z.b.len);
	return 0;
}

static void many(void)
{
	struct optimfs_error err = { 0 };
	struct ofs_zip zip;

	for (uint64_t n = 1 << 20; n <= (1 << 20) + 1; n++) {
		struct many m = { .directory = n * 64 };

		mkzip_end(&m.z);
		mkzip_put(&m.z, 24, 8, n);
		mkzip_put(&m.z, 32, 8, n);
		mkzip_put(&m.z, 40, 8, m.directory);
		mkzip_put(&m.z, m.z.locator + 8, 8, m.directory);
		mkzip_put(&m.z, m.z.end + 8, 8, UINT64_MAX);
		is_int(ofs_zip_open(&zip, m.directory + m.z.b.len, read_many,
			   &m, &err),
		    -1, "an empty directory of %ju records is refused",
		    (uintmax_t)n);
		if (n == 1 << 20)
			is_error(err, EUCLEAN, "OFS510",
			    "2^20 records are accepted: the first is malformed");
		else
			is_error(err, E2BIG,
			    "OFS531 directory of 1048577 records",
			    "2^20 + 1 records exceed the limit");
		mkzip_fini(&m.z);
	}
}

/* An archive with a gap of 5 GiB: head, gap, tail. */
struct large {
	struct ofs_buf head, tail;
};
#define HOLE ((uint64_t)5 << 30)

static int read_large(void *ctx, uint64_t off, uint64_t len, void *buf,
    struct optimfs_error *err)
{
	const struct large *l = ctx;
	uint8_t *p = buf;

	(void)err;
	for (uint64_t i = off; i < off + len; i++) {
		uint64_t at = i - l->head.len - HOLE;

		if (i < l->head.len)
			*p++ = l->head.data[i];
		else if (i < l->head.len + HOLE)
			*p++ = 0;
		else
			*p++ = l->tail.data[at];
	}
	return 0;
}

static void put(struct ofs_buf *b, size_t bytes, uint64_t v)
{
	for (size_t i = 0; i < bytes; i++)
		ofs_buf_putc(b, i < 8 ? (int)(v >> 8 * i & 0xff) : 0);
}

/* The fields that local header and central entry share, from the flags on. */
static void put_fields(struct ofs_buf *b, uint32_t crc, uint64_t size,
    const char *name, unsigned extra)
{
	put(b, 2, 0x0808);
	put(b, 6, 0);
	put(b, 4, crc);
	put(b, 4, size);
	put(b, 4, size);
	put(b, 2, strlen(name));
	put(b, 2, extra);
}

/* The layout of PyTorch 2.11 for a storage of 5 GiB: the local header has sizes
 * of 0 and a zip64 field. The next record has its offset in one. */
static void make_large(struct large *l, uint64_t local_size)
{
	static const char data[] = "archive/data/0",
			  version[] = "archive/version";
	uint64_t record, next, dir, end;
	struct ofs_buf *h = &l->head, *t = &l->tail;

	put(h, 6, 0x04034b50);
	put_fields(h, 0, 0, data, 20);
	ofs_buf_puts(h, data);
	put(h, 4, 0x00100001);
	put(h, 8, local_size);
	put(h, 8, 0);
	record = h->len;
	put(t, 4, 0x08074b50);
	put(t, 4, 0x12345678);
	put(t, 8, HOLE);
	put(t, 8, HOLE);
	next = record + HOLE + t->len;
	put(t, 6, 0x04034b50);
	put_fields(t, 0, 0, version, 12);
	ofs_buf_puts(t, version);
	put(t, 4, 0x00080001);
	put(t, 8, next);
	ofs_buf_puts(t, "3\n");
	put(t, 4, 0x08074b50);
	put(t, 4, 0x55679ed1);
	put(t, 8, 2);
	put(t, 8, 2);
	dir = record + HOLE + t->len;
	put(t, 8, 0x02014b50);
	put_fields(t, 0x12345678, UINT32_MAX, data, 20);
	put(t, 10, 0);
	put(t, 4, 0);
	ofs_buf_puts(t, data);
	put(t, 4, 0x00100001);
	put(t, 8, HOLE);
	put(t, 8, HOLE);
	put(t, 8, 0x02014b50);
	put_fields(t, 0x55679ed1, 2, version, 12);
	put(t, 10, 0);
	put(t, 4, UINT32_MAX);
	ofs_buf_puts(t, version);
	put(t, 4, 0x00080001);
	put(t, 8, next);
	end = record + HOLE + t->len;
	put(t, 4, 0x06064b50);
	put(t, 8, 44);
	put(t, 12, 798 | 45 << 16);
	put(t, 8, 2);
	put(t, 8, 2);
	put(t, 8, end - dir);
	put(t, 8, dir);
	put(t, 8, 0x07064b50);
	put(t, 8, end);
	put(t, 4, 1);
	put(t, 8, 0x06054b50);
	put(t, 4, 0x20002);
	put(t, 4, end - dir);
	put(t, 4, UINT32_MAX);
	put(t, 2, 0);
}

static void large(void)
{
	const struct ofs_zip_record *r;
	struct optimfs_error err = { 0 };
	struct large l = { 0 };
	struct ofs_zip zip;
	uint64_t off = 0;

	make_large(&l, HOLE);
	if (!is_int(ofs_zip_open(&zip, l.head.len + HOLE + l.tail.len,
			read_large, &l, &err),
		0, "an archive of 5 GiB opens"))
		diag("%s", err.text);
	r = ofs_zip_find(&zip, "data/0", 6);
	is_u64(r->size, HOLE, "an archive of 5 GiB: size of the large record");
	is_int(ofs_zip_data(&zip, r, read_large, &l, &off, &err), 0,
	    "an archive of 5 GiB: the large record is found");
	is_u64(off, l.head.len,
	    "an archive of 5 GiB: offset of the large record");
	r = ofs_zip_find(&zip, "version", 7);
	is_int(ofs_zip_data(&zip, r, read_large, &l, &off, &err), 0,
	    "a record after 4 GiB is found");
	is_int(ofs_zip_verify(&zip, r, read_large, &l, &err), 0,
	    "a record after 4 GiB has a valid descriptor");
	ofs_zip_fini(&zip);
	ofs_buf_fini(&l.head);
	ofs_buf_fini(&l.tail);
	make_large(&l, HOLE + 1);
	ofs_zip_open(&zip, l.head.len + HOLE + l.tail.len, read_large, &l,
	    &err);
	r = ofs_zip_find(&zip, "data/0", 6);
	is_int(ofs_zip_data(&zip, r, read_large, &l, &off, &err), -1,
	    "a local zip64 field with another large size is refused");
	is_error(err, EUCLEAN, "OFS514",
	    "a local zip64 field with another large size: error text");
	ofs_zip_fini(&zip);
	ofs_buf_fini(&l.head);
	ofs_buf_fini(&l.tail);
}

/* The end record is outside the part of the file that is the archive. */
static void slice(void)
{
	struct mkzip z = { 0 };

	make(&z);
	mkzip_end(&z);
	z.b.len = z.directory + 10;
	refused(&z, EUCLEAN, "OFS501",
	    "an archive that ends before its end record");
}

int main(void)
{
	good();
	plain32();
	wide_fields();
	end_record();
	whole();
	zip64();
	extra();
	local();
	entries();
	overlap();
	names();
	odd();
	checksums();
	cut();
	many();
	large();
	slice();
	return done_testing();
}
