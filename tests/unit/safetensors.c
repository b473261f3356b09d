/* format/safetensors/read.c - files that lie, and indexes that name what is not there */
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
#include "tap.h"

/* Rows T01 to T16 are those of docs/formats/safetensors.md; what a header alone
 * may say is in base/json.c, shards in format/safetensors/hf_shards.c, T16 in detect/detect.c. */

/* A file with this header, padded, and n bytes of data: 0, 1, 2 ... */
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

/* n bytes of the file at off; -1. */
static ssize_t read_at(struct optimfs *fs, const char *path, void *buf,
    size_t n, uint64_t off, struct optimfs_error *err)
{
	struct optimfs_file *file;
	struct optimfs_attr attr;
	ssize_t got;

	*err = (struct optimfs_error){ 0 };
	if (optimfs_resolve(fs, path, &attr, err) == -1 ||
	    optimfs_file_open(fs, attr.node, &file, err) == -1)
		return -1;
	got = optimfs_file_read(file, buf, n, off, err);
	optimfs_file_close(file);
	return got;
}

static bool has_text(struct optimfs *fs, const char *file, const char *part)
{
	struct optimfs_error err;
	char text[4096];
	ssize_t n = read_at(fs, file, text, sizeof(text) - 1, 0, &err);

	text[n < 0 ? 0 : n] = '\0';
	return strstr(text, part) != NULL;
}

static bool warns(struct optimfs *fs, const char *part)
{
	return has_text(fs, ".optimfs/warnings", part);
}

static bool has_path(struct optimfs *fs, const char *path)
{
	struct optimfs_attr attr;

	return optimfs_resolve(fs, path, &attr, NULL) == 0;
}

#define T(dtype, shape, off) \
 "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" off "}"

/* Headers, as files. */
static void files(void)
{
	static const struct {
		const char *name, *header;
		size_t data;
		const char *code; /* NULL: it opens */
	} cases[] = {
		{ "T03: no JSON", "{\"w\":nul}", 0, "OFS653" },
		{ "T03: NaN", "{\"w\":NaN}", 0, "OFS653" },
		{ "T03: a comment", "{/**/}", 0, "OFS653" },
		{ "T05: a key twice",
		    "{\"w\":" T("U8", "[2]", "[0,2]") ",\"w\":" T("U8", "[2]",
			"[2,4]") "}",
		    4, "OFS654" },
		{ "T07: a hole", "{\"w\":" T("U8", "[2]", "[2,4]") "}", 4,
		    "OFS656" },
		{ "T07: an overlap",
		    "{\"w\":" T("U8", "[2]", "[0,2]") ",\"v\":" T("U8", "[2]",
			"[1,3]") "}",
		    3, "OFS656" },
		{ "T08: empty tensors at one offset",
		    "{\"a\":" T("F32", "[0]", "[0,0]") ",\"b\":" T("F32",
			"[2,0]", "[0,0]") ",\"w\":" T("U8", "[2]", "[0,2]") "}",
		    2, NULL },
		{ "T09: bytes behind", "{\"w\":" T("U8", "[2]", "[0,2]") "}", 3,
		    "OFS658" },
		{ "T10: a size that overflows",
		    "{\"w\":" T("F64", "[4294967296,4294967296]", "[0,16]") "}",
		    16, "OFS659" },
		{ "T10: size and offsets",
		    "{\"w\":" T("F32", "[2]", "[0,4]") "}", 4, "OFS659" },
		{ "a note without a path",
		    "{\"__metadata__\":{\"optimfs\":\"{\\\"paths\\\":"
		    "{\\\"w\\\":7}}\"},\"w\":" T("U8", "[2]", "[0,2]") "}",
		    2, "OFS663" },
		{ "a note with a path of objects",
		    "{\"__metadata__\":{\"optimfs\":\"{\\\"paths\\\":"
		    "{\\\"w\\\":[{}]}}\"},\"w\":" T("U8", "[2]", "[0,2]") "}",
		    2, "OFS663" },
		{ "a note with two paths of one key",
		    "{\"__metadata__\":{\"optimfs\":\"{\\\"paths\\\":"
		    "{\\\"w\\\":[\\\"a\\\"]},\\\"paths\\\":"
		    "{\\\"w\\\":[\\\"b\\\"]}}\"},\"w\":" T("U8", "[2]",
			"[0,2]") "}",
		    2, "OFS663" },
		{ "T13: NUL and a lone surrogate",
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
		ok((fs == NULL) == (cases[i].code != NULL), "%s",
		    cases[i].name);
		if (cases[i].code != NULL)
			is_error(err, EUCLEAN, cases[i].code, "says why");
		optimfs_close(fs);
		mk_remove(dir);
	}
}

/* What is called so is one, however it begins. */
static void beginnings(void)
{
	static const struct {
		const char *name, *bytes;
		size_t n;
		const char *code;
	} cases[] = {
		{ "T01: an empty file", "", 0, "OFS651" },
		{ "T01: 7 bytes", "\2\0\0\0\0\0\0", 7, "OFS651" },
		{ "T01: a header of 0", "\0\0\0\0\0\0\0\0{}", 10, "OFS651" },
		{ "T01: a header of 1", "\1\0\0\0\0\0\0\0{}", 10, "OFS651" },
		{ "T02: longer than the file", "\3\0\0\0\0\0\0\0{}", 10,
		    "OFS652" },
		{ "T02: 100000001", "\1\xe1\xf5\5\0\0\0\0{}", 10, "OFS652" },
		{ "T02: 2^63", "\0\0\0\0\0\0\0\x80{}", 10, "OFS652" },
		{ "T02: a length that wraps",
		    "\xfa\xff\xff\xff\xff\xff\xff\xff{}", 10, "OFS652" },
		{ "T03: a list", "\2\0\0\0\0\0\0\0[]", 10, "OFS653" },
		{ "T03: a byte order mark", "\5\0\0\0\0\0\0\0\xef\xbb\xbf{}",
		    13, "OFS653" },
		{ "T03: no UTF-8", "\7\0\0\0\0\0\0\0{\"\xff\":3}", 15,
		    "OFS653" },
		{ "T03: something behind", "\4\0\0\0\0\0\0\0{} x", 12,
		    "OFS653" },
	};
	struct optimfs_error err;
	struct optimfs *fs;
	char dir[64];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		mk_dir(dir);
		mk_file(dir, "x.safetensors", cases[i].bytes, cases[i].n);
		ok(open_dir(dir, "x.safetensors", &err) == NULL, "%s",
		    cases[i].name);
		is_error(err, EUCLEAN, cases[i].code, "says why");
		put(dir, "y.safetensors", "{\"w\":" T("U8", "[2]", "[0,2]") "}",
		    2);
		fs = open_dir(dir, "", &err);
		ok(fs != NULL && has_path(fs, "extra/y/w") &&
			warns(fs, cases[i].code),
		    "beside others it is a warning");
		optimfs_close(fs);
		mk_remove(dir);
	}
}

/* T04 where JSON may nest, and T12 as long as a header may be. */
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
	ok(open_dir(dir, "x.safetensors", &err) == NULL, "T04: deep metadata");
	is_error(err, EUCLEAN, "OFS653", "says why");
	at = stpcpy(header, head);
	memset(at, 'v', n);
	at[0] = at[n - 1] = '"';
	strcpy(at + n, tail);
	put(dir, "x.safetensors", header, 2);
	fs = open_dir(dir, "x.safetensors", &err);
	ok(fs != NULL && read_at(fs, "model/w", buf, 2, 0, &err) == 2,
	    "T12: a value of 90 MB");
	optimfs_close(fs);
	mk_remove(dir);
	free(header);
}

/* Two elements a byte: PyTorch counts bytes. */
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
		ok(fs != NULL && read_at(fs, "model/w", buf, 2, 0, &err) == 2,
		    "T11: F4 %s", cases[i].shape);
		is_int(read_at(fs, "model/a", buf, 4, 0, &err),
		    cases[i].good ? 2 : -1, "it reads, or does not");
		if (!cases[i].good)
			is_error(err, EOPNOTSUPP, "OFS616", "says why");
		optimfs_close(fs);
		mk_remove(dir);
	}
	mk_dir(dir);
	put(dir, "x.safetensors", "{\"a\":" T("F4", "[8]", "[0,2]") "}", 2);
	ok(open_dir(dir, "x.safetensors", &err) == NULL,
	    "T10: F4 of another size");
	is_error(err, EUCLEAN, "OFS659", "says why");
	mk_remove(dir);
}

/* What spoils one tensor leaves the others. */
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
	if (!ok(fs != NULL, "T09, T11, T12: one file, three faults"))
		bail_out("%s", err.text);
	is_int(read_at(fs, "model/w", buf, 4, 0, &err), 4, "the good one");
	is_mem(buf, "\10\11\12\13", 4, "reads");
	is_int(read_at(fs, "model/q", buf, 4, 0, &err), -1,
	    "T11: an unknown dtype");
	is_error(err, EOPNOTSUPP, "OFS616", "says why");
	is_int(read_at(fs, "model/z", buf, 4, 0, &err), 4,
	    "T09: what there is of a cut file");
	is_int(read_at(fs, "model/z", buf, 4, 4, &err), -1,
	    "and what there is not");
	is_error(err, EIO, "OFS603", "says why");
	ok(warns(fs, "OFS660 x.safetensors: 1 member"), "T12: a warning");
	optimfs_close(fs);
	mk_remove(dir);
}

/* Indexes. Two files: model-1 has a and b, model-2 has c. */

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
		if (!ok(fs != NULL, "an index, at '%s'", at[i])) {
			diag("%s", err.text);
			continue;
		}
		ok(read_at(fs, "model/b", buf, 2, 0, &err) == 2 &&
			memcmp(buf, "\2\3", 2) == 0 &&
			has_path(fs, "model/a") && has_path(fs, "model/c"),
		    "all there");
		ok(!warns(fs, "OFS") && !has_path(fs, "extra"),
		    "nothing to say");
		optimfs_close(fs);
	}
	mk_remove(dir);

	/* names that do not say what they are of */
	mk_dir(dir);
	put(dir, "unet-1.safetensors", "{\"a\":" T("U8", "[2]", "[0,2]") "}",
	    2);
	put(dir, "unet-2.safetensors", "{\"c\":" T("U8", "[2]", "[0,2]") "}",
	    2);
	put_text(dir, "unet.safetensors.index.json",
	    MAP("\"a\":\"unet-1.safetensors\",\"c\":\"unet-2.safetensors\""));
	fs = open_dir(dir, "", &err);
	ok(fs != NULL && has_path(fs, "model/a") && has_path(fs, "model/c") &&
		!has_path(fs, "extra"),
	    "files of any name are the model's");
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
		ok(fs == NULL, "T14: '%s'", rows[i]);
		is_error(err, EPERM, "OFS620", "is refused");
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
	ok(fs != NULL && has_path(fs, "model/a"), "T14: a link out of it");
	is_int(read_at(fs, "model/z", index, 2, 0, &err), -1, "is not opened");
	is_error(err, EIO, "OFS661", "says so");
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
	if (!ok(fs != NULL, "T14: an index that lies"))
		bail_out("%s", err.text);
	ok(read_at(fs, "model/a", buf, 2, 0, &err) == 2, "a good one reads");
	ok(read_at(fs, "model/b", buf, 2, 0, &err) == 2 &&
		warns(fs,
		    "OFS661 " INDEX ": 'b' is not in the file that it "
		    "names, but in " FILE1),
	    "so does one that is elsewhere, with a warning");
	is_int(read_at(fs, "model/d", buf, 2, 0, &err), -1,
	    "a tensor that no file has");
	is_error(err, EIO, "OFS661", "says so");
	is_int(read_at(fs, "model/e", buf, 2, 0, &err), -1,
	    "a file that is not there");
	is_error(err, EIO, "OFS661", "says so");
	ok(has_text(fs, ".optimfs/missing",
	       "OFS661 'e', which should be in gone.safetensors"),
	    "and is missing");
	ok(warns(fs, "'a' stands twice in it"), "a row twice");
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
	if (!ok(fs != NULL, "T14: a tensor in two files"))
		bail_out("%s", err.text);
	ok(read_at(fs, "model/a", buf, 2, 0, &err) == 2 &&
		memcmp(buf, "\2\3", 2) == 0,
	    "the one that the index names");
	ok(read_at(fs, "extra/" FILE1 "/a", buf, 2, 0, &err) == 2 &&
		memcmp(buf, "\0\1", 2) == 0,
	    "and the other one");
	ok(warns(fs, "OFS661 " INDEX ": 'a' is in another file, too: " FILE1),
	    "a warning");
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
		ok(fs != NULL && has_path(fs, "model/a") &&
			has_path(fs, "model/c") && warns(fs, "OFS653"),
		    "'%s' is not used", texts[i]);
		optimfs_close(fs);
		mk_remove(dir);
	}
	/* nothing but the index */
	mk_dir(dir);
	put_text(dir, INDEX, MAP("\"a\":\"" FILE1 "\""));
	fs = open_dir(dir, "", &err);
	ok(fs != NULL && has_path(fs, "extra/model/a"),
	    "an index alone names what is lost");
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
