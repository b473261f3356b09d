/* safetensors.c - safetensors files and indexes, valid and malformed */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "optimfs/optimfs.h"

#include "base/buf.h"
#include "support/dcp_writer.h"
#include "support/listing.h"
#include "tap.h"

/* T numbers are rows of docs/formats/safetensors.md. JSON syntax alone is
 * tested in base/json.c, shards in hf_shards.c, T16 in detect.c. */

/* Writes a file with this header and n bytes of data: 0, 1, 2, ... */
static void put(const char *dir, const char *name, const char *header, size_t n)
{
	struct ofs_buf b = { 0 };
	size_t len = strlen(header);

	for (int i = 0; i < 8; i++)
		ofs_buf_putc(&b, (int)(len >> (8 * i) & 0xff));
	ofs_buf_put(&b, header, len);
	for (size_t i = 0; i < n; i++)
		ofs_buf_putc(&b, (int)(i & 0xff));
	if (b.bad)
		bail_out("no memory");
	mk_file(dir, name, b.data, b.len);
	ofs_buf_fini(&b);
}

static void put_text(const char *dir, const char *name, const char *text)
{
	mk_file(dir, name, text, strlen(text));
}

static struct optimfs *open_dir(const char *dir, const char *file,
    struct optimfs_error *err)
{
	char path[256];

	*err = (struct optimfs_error){ 0 };
	snprintf(path, sizeof(path), "%s/%s", dir, file);
	return optimfs_open(path, NULL, err);
}

static bool has_text(struct optimfs *fs, const char *file, const char *part)
{
	struct optimfs_error err;
	char text[4096];
	ssize_t n = listing_read_at(fs, file, text, sizeof(text) - 1, 0, &err);

	text[n < 0 ? 0 : n] = '\0';
	return strstr(text, part) != NULL;
}

static bool warns(struct optimfs *fs, const char *part)
{
	return has_text(fs, ".optimfs/warnings", part);
}

#define T(dtype, shape, off) \
 "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" off "}"

/* Files with a header of the right length. */
static void files(void)
{
	static const struct {
		const char *name, *header;
		size_t data;
		const char *code; /* NULL: the file opens */
	} cases[] = {
		{ "T03: invalid JSON", "{\"w\":nul}", 0, "OFS653" },
		{ "T03: NaN in JSON", "{\"w\":NaN}", 0, "OFS653" },
		{ "T03: a comment in JSON", "{/**/}", 0, "OFS653" },
		{ "T05: a duplicate key",
		    "{\"w\":" T("U8", "[2]", "[0,2]") ",\"w\":" T("U8", "[2]",
			"[2,4]") "}",
		    4, "OFS654" },
		{ "T07: a gap between tensors",
		    "{\"w\":" T("U8", "[2]", "[2,4]") "}", 4, "OFS656" },
		{ "T07: overlapping tensors",
		    "{\"w\":" T("U8", "[2]", "[0,2]") ",\"v\":" T("U8", "[2]",
			"[1,3]") "}",
		    3, "OFS656" },
		{ "T08: empty tensors at one offset",
		    "{\"a\":" T("F32", "[0]", "[0,0]") ",\"b\":" T("F32",
			"[2,0]", "[0,0]") ",\"w\":" T("U8", "[2]", "[0,2]") "}",
		    2, NULL },
		{ "T09: data after the last tensor",
		    "{\"w\":" T("U8", "[2]", "[0,2]") "}", 3, "OFS658" },
		{ "T10: a shape whose size overflows",
		    "{\"w\":" T("F64", "[4294967296,4294967296]", "[0,16]") "}",
		    16, "OFS659" },
		{ "T10: a size that differs from the offsets",
		    "{\"w\":" T("F32", "[2]", "[0,4]") "}", 4, "OFS659" },
		{ "a metadata path that is a number",
		    "{\"__metadata__\":{\"optimfs\":\"{\\\"paths\\\":"
		    "{\\\"w\\\":7}}\"},\"w\":" T("U8", "[2]", "[0,2]") "}",
		    2, "OFS663" },
		{ "a metadata path of objects",
		    "{\"__metadata__\":{\"optimfs\":\"{\\\"paths\\\":"
		    "{\\\"w\\\":[{}]}}\"},\"w\":" T("U8", "[2]", "[0,2]") "}",
		    2, "OFS663" },
		{ "a metadata entry of another program",
		    "{\"__metadata__\":{\"optimfs\":\"x\"},\"w\":" T("U8",
			"[2]", "[0,2]") "}",
		    2, "OFS663" },
		{ "two metadata paths for one key",
		    "{\"__metadata__\":{\"optimfs\":\"{\\\"paths\\\":"
		    "{\\\"w\\\":[\\\"a\\\"]},\\\"paths\\\":"
		    "{\\\"w\\\":[\\\"b\\\"]}}\"},\"w\":" T("U8", "[2]",
			"[0,2]") "}",
		    2, "OFS663" },
		{ "T13: keys with NUL and a lone surrogate",
		    "{\"a\\u0000b\":" T("U8", "[1]",
			"[0,1]") ",\"\\ud800\":" T("U8", "[1]", "[1,2]") "}",
		    2, NULL },
	};
	struct optimfs_error err;
	struct optimfs *fs;
	char dir[64];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		mk_dir(dir);
		put(dir, "x.safetensors", cases[i].header, cases[i].data);
		fs = open_dir(dir, "x.safetensors", &err);
		ok((fs == NULL) == (cases[i].code != NULL),
		    cases[i].code != NULL ? "%s: is refused" : "%s: opens",
		    cases[i].name);
		if (cases[i].code != NULL)
			is_error(err, EUCLEAN, cases[i].code, "%s: error text",
			    cases[i].name);
		optimfs_close(fs);
		mk_remove(dir);
	}
}

/* A file with this suffix is read as safetensors, even if its beginning is
 * malformed. */
static void beginnings(void)
{
	static const struct {
		const char *name, *bytes;
		size_t n;
		const char *code;
	} cases[] = {
		{ "T01: an empty file", "", 0, "OFS651" },
		{ "T01: a file of 7 bytes", "\2\0\0\0\0\0\0", 7, "OFS651" },
		{ "T01: a header of 0 bytes", "\0\0\0\0\0\0\0\0{}", 10,
		    "OFS651" },
		{ "T01: a header of 1 byte", "\1\0\0\0\0\0\0\0{}", 10,
		    "OFS651" },
		{ "T02: a header longer than the file", "\3\0\0\0\0\0\0\0{}",
		    10, "OFS652" },
		{ "T02: a header of 100000001 bytes", "\1\xe1\xf5\5\0\0\0\0{}",
		    10, "OFS652" },
		{ "T02: a header of 2^63 bytes", "\0\0\0\0\0\0\0\x80{}", 10,
		    "OFS652" },
		{ "T02: a header length that wraps",
		    "\xfa\xff\xff\xff\xff\xff\xff\xff{}", 10, "OFS652" },
		{ "T03: a list as header", "\2\0\0\0\0\0\0\0[]", 10, "OFS653" },
		{ "T03: a byte order mark", "\5\0\0\0\0\0\0\0\xef\xbb\xbf{}",
		    13, "OFS653" },
		{ "T03: invalid UTF-8", "\7\0\0\0\0\0\0\0{\"\xff\":3}", 15,
		    "OFS653" },
		{ "T03: text after the header", "\4\0\0\0\0\0\0\0{} x", 12,
		    "OFS653" },
	};
	struct optimfs_error err;
	struct optimfs *fs;
	char dir[64];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		mk_dir(dir);
		mk_file(dir, "x.safetensors", cases[i].bytes, cases[i].n);
		ok(open_dir(dir, "x.safetensors", &err) == NULL,
		    "%s: is refused", cases[i].name);
		is_error(err, EUCLEAN, cases[i].code, "%s: error text",
		    cases[i].name);
		put(dir, "y.safetensors", "{\"w\":" T("U8", "[2]", "[0,2]") "}",
		    2);
		fs = open_dir(dir, "", &err);
		ok(fs != NULL && listing_has(fs, "extra/y/w") &&
			warns(fs, cases[i].code),
		    "%s: is only a warning beside a valid file", cases[i].name);
		optimfs_close(fs);
		mk_remove(dir);
	}
}

/* T04: deeply nested metadata. T12: a very long value. */
static void large(void)
{
	static const char head[] = "{\"__metadata__\":{\"k\":";
	static const char tail[] = "},\"w\":" T("U8", "[2]", "[0,2]") "}";
	size_t n = 90000000;
	char *header = malloc(n + 256), *at, dir[64], buf[2];
	struct optimfs_error err;
	struct optimfs *fs;

	if (header == NULL)
		bail_out("out of memory");
	at = stpcpy(header, head);
	memset(at, '[', 10000);
	memset(at + 10000, ']', 10000);
	strcpy(at + 20000, tail);
	mk_dir(dir);
	put(dir, "x.safetensors", header, 2);
	ok(open_dir(dir, "x.safetensors", &err) == NULL,
	    "T04: metadata nested 10000 deep are refused");
	is_error(err, EUCLEAN, "OFS653",
	    "T04: metadata nested 10000 deep: error text");
	at = stpcpy(header, head);
	memset(at, 'v', n);
	at[0] = at[n - 1] = '"';
	strcpy(at + n, tail);
	put(dir, "x.safetensors", header, 2);
	fs = open_dir(dir, "x.safetensors", &err);
	ok(fs != NULL && listing_read_at(fs, "model/w", buf, 2, 0, &err) == 2,
	    "T12: a metadata value of 90 MB is skipped");
	optimfs_close(fs);
	mk_remove(dir);
	free(header);
}

/* A dtype with two elements per byte: PyTorch's shapes count bytes. */
static void halves(void)
{
	static const struct {
		const char *shape;
		bool good;
	} cases[] = { { "[4]", true }, { "[2,2]", true }, { "[3]", false },
		{ "[4,1]", false }, { "[]", false } };
	struct optimfs_error err;
	struct optimfs *fs;
	char dir[64], header[200], buf[4];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		mk_dir(dir);
		snprintf(header, sizeof(header),
		    "{\"a\":" T("F4", "%s", "[0,2]") ",\"w\":" T("U8", "[2]",
			"[2,4]") "}",
		    cases[i].shape);
		put(dir, "x.safetensors", header, 4);
		fs = open_dir(dir, "x.safetensors", &err);
		ok(fs != NULL &&
			listing_read_at(fs, "model/w", buf, 2, 0, &err) == 2,
		    "T11: a tensor beside F4 %s can be read", cases[i].shape);
		is_int(listing_read_at(fs, "model/a", buf, 4, 0, &err),
		    cases[i].good ? 2 : -1, "T11: F4 %s is %s", cases[i].shape,
		    cases[i].good ? "read" : "refused");
		if (!cases[i].good)
			is_error(err, EOPNOTSUPP, "OFS616",
			    "T11: F4 %s: error text", cases[i].shape);
		optimfs_close(fs);
		mk_remove(dir);
	}
	mk_dir(dir);
	put(dir, "x.safetensors", "{\"a\":" T("F4", "[8]", "[0,2]") "}", 2);
	ok(open_dir(dir, "x.safetensors", &err) == NULL,
	    "T10: F4 with too few bytes is refused");
	is_error(err, EUCLEAN, "OFS659",
	    "T10: F4 with too few bytes: error text");
	mk_remove(dir);
}

/* A fault in one tensor leaves the others readable. */
static void parts(void)
{
	struct optimfs_error err;
	struct optimfs *fs;
	char dir[64], buf[16];

	mk_dir(dir);
	put(dir, "x.safetensors",
	    "{\"__metadata__\":{\"a\":3,\"b\":\"c\"},\"q\":" T("Q9", "[3]",
		"[0,8]") ",\"w\":" T("U8", "[4]", "[8,12]") ",\"z\":" T("U8",
		"[8]", "[12,20]") "}",
	    16);
	fs = open_dir(dir, "x.safetensors", &err);
	if (!ok(fs != NULL, "T09, T11, T12: a file with three faults opens"))
		bail_out("%s", err.text);
	is_int(listing_read_at(fs, "model/w", buf, 4, 0, &err), 4,
	    "a tensor without a fault is read");
	is_mem(buf, "\10\11\12\13", 4,
	    "a tensor without a fault has its elements");
	is_int(listing_read_at(fs, "model/q", buf, 4, 0, &err), -1,
	    "T11: a tensor of unknown dtype cannot be read");
	is_error(err, EOPNOTSUPP, "OFS616",
	    "T11: a tensor of unknown dtype: error text");
	is_int(listing_read_at(fs, "model/z", buf, 4, 0, &err), 4,
	    "T09: the part before a truncation is read");
	is_int(listing_read_at(fs, "model/z", buf, 4, 4, &err), -1,
	    "T09: the part after a truncation cannot be read");
	is_error(err, EIO, "OFS603",
	    "T09: the part after a truncation: error text");
	ok(warns(fs, "OFS660 x.safetensors: 1 member"),
	    "T12: a metadata value that is a number is a warning");
	optimfs_close(fs);
	mk_remove(dir);
}

/* Indexes of two files: model-1 has a and b, model-2 has c. */

#define FILE1 "model-00001-of-00002.safetensors"
#define FILE2 "model-00002-of-00002.safetensors"
#define INDEX "model.safetensors.index.json"

static void put_model(char dir[64], const char *index)
{
	mk_dir(dir);
	put(dir, FILE1,
	    "{\"a\":" T("U8", "[2]", "[0,2]") ",\"b\":" T("U8", "[2]",
		"[2,4]") "}",
	    4);
	put(dir, FILE2, "{\"c\":" T("U8", "[2]", "[0,2]") "}", 2);
	put_text(dir, INDEX, index);
}

#define MAP(rows) "{\"metadata\":{\"total_size\":6},\"weight_map\":{" rows "}}"

static void index_good(void)
{
	static const char *const at[] = { "", INDEX };
	struct optimfs_error err;
	struct optimfs *fs;
	char dir[64], buf[4];

	put_model(dir,
	    MAP("\"a\":\"" FILE1 "\",\"b\":\"" FILE1 "\",\"c\":\"" FILE2 "\""));
	for (int i = 0; i < 2; i++) {
		fs = open_dir(dir, at[i], &err);
		if (!ok(fs != NULL, "an index opens at '%s'", at[i])) {
			diag("%s", err.text);
			continue;
		}
		ok(listing_read_at(fs, "model/b", buf, 2, 0, &err) == 2 &&
			memcmp(buf, "\2\3", 2) == 0 &&
			listing_has(fs, "model/a") &&
			listing_has(fs, "model/c"),
		    "an index at '%s' gives all tensors", at[i]);
		ok(!warns(fs, "OFS") && !listing_has(fs, "extra"),
		    "an index at '%s' gives no warnings", at[i]);
		optimfs_close(fs);
	}
	mk_remove(dir);

	/* File names that do not contain "model". */
	mk_dir(dir);
	put(dir, "unet-1.safetensors", "{\"a\":" T("U8", "[2]", "[0,2]") "}",
	    2);
	put(dir, "unet-2.safetensors", "{\"c\":" T("U8", "[2]", "[0,2]") "}",
	    2);
	put_text(dir, "unet.safetensors.index.json",
	    MAP("\"a\":\"unet-1.safetensors\",\"c\":\"unet-2.safetensors\""));
	fs = open_dir(dir, "", &err);
	ok(fs != NULL && listing_has(fs, "model/a") &&
		listing_has(fs, "model/c") && !listing_has(fs, "extra"),
	    "an index finds files with any name");
	optimfs_close(fs);
	mk_remove(dir);
}

static void index_outside(void)
{
	static const char *const rows[] = { "../x", "/etc/passwd", "",
		"a/../../x", ".", "a\\u0000b" };
	struct optimfs_error err;
	struct optimfs *fs;
	char dir[64], other[64], index[256], path[160];

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		snprintf(index, sizeof(index), MAP("\"a\":\"%s\""), rows[i]);
		put_model(dir, index);
		fs = open_dir(dir, "", &err);
		ok(fs == NULL, "T14: an index with file name '%s' is refused",
		    rows[i]);
		is_error(err, EPERM, "OFS620",
		    "T14: file name '%s': error text", rows[i]);
		optimfs_close(fs);
		mk_remove(dir);
	}
	mk_dir(other);
	put(other, "x.safetensors", "{\"z\":" T("U8", "[2]", "[0,2]") "}", 2);
	put_model(dir, MAP("\"z\":\"link\""));
	snprintf(path, sizeof(path), "%s/link", dir);
	snprintf(index, sizeof(index), "%s/x.safetensors", other);
	if (symlink(index, path) == -1)
		bail_out("symlink: %m");
	fs = open_dir(dir, "", &err);
	ok(fs != NULL && listing_has(fs, "model/a"),
	    "T14: an index with a link out of the directory opens");
	is_int(listing_read_at(fs, "model/z", index, 2, 0, &err), -1,
	    "T14: a tensor behind a link out of the directory cannot be read");
	is_error(err, EIO, "OFS661", "T14: a tensor behind a link: error text");
	optimfs_close(fs);
	mk_remove(dir);
	mk_remove(other);
}

static void index_lies(void)
{
	struct optimfs_error err;
	struct optimfs *fs;
	char dir[64], buf[4];

	put_model(dir,
	    MAP("\"a\":\"" FILE1 "\",\"b\":\"" FILE2 "\",\"c\":\"" FILE2
		"\",\"d\":\"" FILE1
		"\",\"e\":\"gone.safetensors\",\"a\":\"" FILE2 "\""));
	fs = open_dir(dir, "", &err);
	if (!ok(fs != NULL, "T14: an index with wrong rows opens"))
		bail_out("%s", err.text);
	ok(listing_read_at(fs, "model/a", buf, 2, 0, &err) == 2,
	    "a tensor with a correct row is read");
	ok(listing_read_at(fs, "model/b", buf, 2, 0, &err) == 2 &&
		warns(fs,
		    "OFS661 " INDEX ": 'b' is not in the file that it "
		    "names, but in " FILE1),
	    "a tensor in another file than indexed is read, with a warning");
	is_int(listing_read_at(fs, "model/d", buf, 2, 0, &err), -1,
	    "a tensor that is in no file cannot be read");
	is_error(err, EIO,
	    "OFS661 model/d: " FILE1
	    " lacks tensors: the index places this tensor in it",
	    "a tensor that is in no file: error text");
	is_int(listing_read_at(fs, "model/e", buf, 2, 0, &err), -1,
	    "a tensor of a missing file cannot be read");
	is_error(err, EIO, "OFS661", "a tensor of a missing file: error text");
	ok(has_text(fs, ".optimfs/missing",
	       "OFS661 gone.safetensors is missing: reading its tensors fails "
	       "(EIO)"),
	    "a missing file of an index is listed as missing");
	ok(warns(fs, "'a' stands twice in it"),
	    "a key that is twice in the index is a warning");
	optimfs_close(fs);
	mk_remove(dir);
}

static void index_twice(void)
{
	struct optimfs_error err;
	struct optimfs *fs;
	char dir[64], buf[4];

	put_model(dir,
	    MAP("\"a\":\"" FILE2 "\",\"b\":\"" FILE1 "\",\"c\":\"" FILE2 "\""));
	put(dir, FILE2,
	    "{\"c\":" T("U8", "[2]", "[0,2]") ",\"a\":" T("U8", "[2]",
		"[2,4]") "}",
	    4);
	fs = open_dir(dir, "", &err);
	if (!ok(fs != NULL, "T14: a tensor in two files opens"))
		bail_out("%s", err.text);
	ok(listing_read_at(fs, "model/a", buf, 2, 0, &err) == 2 &&
		memcmp(buf, "\2\3", 2) == 0,
	    "a tensor in two files is read from the one in the index");
	ok(listing_read_at(fs, "extra/" FILE1 "/a", buf, 2, 0, &err) == 2 &&
		memcmp(buf, "\0\1", 2) == 0,
	    "the copy in the other file is read below extra/");
	ok(warns(fs, "OFS661 " INDEX ": 'a' is in another file, too: " FILE1),
	    "a tensor in two files is a warning");
	optimfs_close(fs);
	mk_remove(dir);
}

static void index_broken(void)
{
	static const char *const texts[] = { "", "[]", "{", "{}", "{\"a\":1}",
		"{\"weight_map\":3}", "{\"weight_map\":{\"a\":3}}",
		"{\"weight_map\":{\"a\":\"" FILE1 "\"}} x",
		"{\"weight_map\":{\"a\":\"" FILE1 "\"", "\377" };
	struct optimfs_error err;
	struct optimfs *fs;
	char dir[64];

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		put_model(dir, texts[i]);
		fs = open_dir(dir, "", &err);
		ok(fs != NULL && listing_has(fs, "model/a") &&
			listing_has(fs, "model/c") && warns(fs, "OFS653"),
		    "malformed index '%s' is ignored with a warning", texts[i]);
		optimfs_close(fs);
		mk_remove(dir);
	}
	/* A directory with only the index. */
	mk_dir(dir);
	put_text(dir, INDEX, MAP("\"a\":\"" FILE1 "\""));
	fs = open_dir(dir, "", &err);
	ok(fs != NULL && listing_has(fs, "extra/model/a"),
	    "an index without files lists their tensors");
	optimfs_close(fs);
	mk_remove(dir);
}

int main(void)
{
	files();
	beginnings();
	large();
	halves();
	parts();
	index_good();
	index_outside();
	index_lies();
	index_twice();
	index_broken();
	return done_testing();
}
