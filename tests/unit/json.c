/* base/json.c - the JSON reader, and the safetensors header that uses it */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/json.h"

#include <errno.h>
#include <string.h>

#include "archive/safetensors.h"
#include "base/dtype.h"
#include "tap.h"

/* The tokens of a text, one letter each; "!" is an error. */
static const char *tokens(const char *text, size_t n, struct optimfs_error *err)
{
	static const char letter[] = "!.{}[]ks#tfn";
	static char out[256];
	enum ofs_json_token token;
	struct ofs_json j;
	size_t len = 0;

	ofs_json_init(&j, text, (uint32_t)n);
	do {
		token = ofs_json_next(&j, err);
		out[len++] = letter[token];
	} while (token > OFS_JSON_END && len < sizeof(out) - 1);
	out[len] = '\0';
	ofs_json_fini(&j);
	return out;
}

static void shapes(void)
{
	static const struct {
		const char *text, *want;
	} cases[] = {
		{ "{}", "{}." },
		{ " [ ] ", "[]." },
		{ "[1,-2.5e+3,true,false,null,\"x\"]", "[##tfns]." },
		{ "{\"a\":{\"b\":[{}]},\"c\":0}", "{k{k[{}]}k#}." },
		{ "\"alone\"", "s." },
		{ "{\"a\":1,}", "{k#!" },
		{ "[1,]", "[#!" },
		{ "[1 2]", "[#!" },
		{ "[1}", "[#!" },
		{ "{\"a\" 1}", "{!" },
		{ "{1:2}", "{!" },
		{ "01", "#!" },
		{ "1.", "!" },
		{ "1e", "!" },
		{ "+1", "!" },
		{ "-", "!" },
		{ "NaN", "!" },
		{ "tru", "!" },
		{ "// c\n1", "!" },
		{ "\xef\xbb\xbf{}", "!" },
		{ "{} x", "{}!" },
		{ "\"\\x\"", "!" },
		{ "\"\\u12g4\"", "!" },
		{ "\"a\nb\"", "!" },
		{ "\"\xff\"", "!" },
		{ "\"abc", "!" },
		{ "\"\\", "!" },
		{ "", "!" },
		{ "[", "[!" },
	};
	struct optimfs_error err;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		is_str(tokens(cases[i].text, strlen(cases[i].text), &err),
		    cases[i].want, "tokens of %s", cases[i].text);
	is_str(tokens("{\"a\":1 x", 8, &err), "{k#!",
	    "text after a value in an object is an error");
	is_error(err, EUCLEAN, "OFS653 JSON at byte 7: expected ','",
	    "a syntax error names the byte and what was expected");
}

static void depth(void)
{
	char text[200];
	struct optimfs_error err;

	memset(text, '[', 64);
	memset(text + 64, ']', 64);
	is_u64(strlen(tokens(text, 128, &err)), 129,
	    "64 nested arrays are accepted");
	memset(text, '[', 65);
	tokens(text, 65, &err);
	is_error(err, EUCLEAN, "OFS653 JSON at byte 64: depth",
	    "65 nested arrays are refused");
}

static void strings(void)
{
	static const char text[] =
	    "[\"plain\", \"\\\"\\\\\\/\\b\\f\\n\\r\\t\", "
	    "\"\\u00e9\\u20ac\\ud83d\\ude00\", \"\\ud83dx\", \"a\\u0000b\", "
	    "\"\\udc00\\ud83d\\u0041\"]";
	static const struct {
		const char *want;
		size_t n;
	} want[] = {
		{ "plain", 5 },
		{ "\"\\/\b\f\n\r\t", 8 },
		{ "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9 },
		{ "\xed\xa0\xbdx", 4 },
		{ "a\0b", 3 },
		{ "\xed\xb0\x80\xed\xa0\xbd\x41", 7 },
	};
	struct optimfs_error err;
	struct ofs_json j;

	ofs_json_init(&j, text, sizeof(text) - 1);
	ofs_json_next(&j, &err);
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		is_int(ofs_json_next(&j, &err), OFS_JSON_STRING,
		    "string %zu is read", i);
		is_u64(j.str.len, want[i].n, "length of string %zu", i);
		is_mem(j.str.p, want[i].want, want[i].n, "bytes of string %zu",
		    i);
	}
	is_int(ofs_json_next(&j, &err), OFS_JSON_ARRAY_END,
	    "the array ends after its last string");
	ofs_json_fini(&j);
}

static void numbers(void)
{
	static const struct {
		const char *text;
		bool is_int;
		int64_t want;
	} cases[] = {
		{ "0", true, 0 },
		{ "-0", true, 0 },
		{ "9007199254740993", true, INT64_C(9007199254740993) },
		{ "9223372036854775807", true, INT64_MAX },
		{ "-9223372036854775808", true, INT64_MIN },
		{ "9223372036854775808", false, 0 },
		{ "-9223372036854775809", false, 0 },
		{ "18446744073709551616", false, 0 },
		{ "1.0", false, 0 },
		{ "1e3", false, 0 },
	};
	struct optimfs_error err;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ofs_json j;

		ofs_json_init(&j, cases[i].text,
		    (uint32_t)strlen(cases[i].text));
		is_int(ofs_json_next(&j, &err), OFS_JSON_NUMBER,
		    "%s is read as a number", cases[i].text);
		is_int(j.is_int, cases[i].is_int, "%s fits an int64_t or not",
		    cases[i].text);
		if (cases[i].is_int)
			is_int(j.integer, cases[i].want, "integer value of %s",
			    cases[i].text);
		is_u64(j.str.len, strlen(cases[i].text),
		    "the text of the number %s is kept", cases[i].text);
	}
}

static void skipping(void)
{
	static const char text[] = "{\"a\":[{\"x\":[1,2]},3],\"b\":7}";
	struct optimfs_error err;
	struct ofs_json j;

	ofs_json_init(&j, text, sizeof(text) - 1);
	ofs_json_next(&j, &err);
	ofs_json_next(&j, &err);
	is_int(ofs_json_skip(&j, ofs_json_next(&j, &err), &err), 0,
	    "an array is skipped");
	is_int(ofs_json_next(&j, &err), OFS_JSON_KEY,
	    "a key follows the skipped array");
	is_mem(j.str.p, "b", 1, "the key after the skipped array is b");
	is_int(ofs_json_skip(&j, ofs_json_next(&j, &err), &err), 0,
	    "a number is skipped");
	is_int(ofs_json_next(&j, &err), OFS_JSON_OBJECT_END,
	    "the object ends after the skipped number");
	ofs_json_fini(&j);
}

/* Headers of safetensors files. */

struct blob {
	uint8_t bytes[4096];
	uint64_t size;
};

static int blob_read(void *ctx, uint64_t off, uint64_t len, void *buf,
    struct optimfs_error *err)
{
	const struct blob *b = ctx;

	if (off > b->size || len > b->size - off)
		return optimfs_fail(err, EIO, "read past the blob");
	memcpy(buf, b->bytes + off, len);
	return 0;
}

static void make_blob(struct blob *b, const char *header, uint64_t data)
{
	uint64_t n = strlen(header);

	for (int i = 0; i < 8; i++)
		b->bytes[i] = (uint8_t)(n >> (8 * i));
	memcpy(b->bytes + 8, header, n);
	b->size = 8 + n + data;
}

static void header_good(void)
{
	static const char header[] =
	    "{\"__metadata__\":{\"format\":\"pt\",\"odd\":[1]},"
	    "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,1],"
	    "\"data_offsets\":[8,12]},"
	    "\"a\\u0000\":{\"shape\":[],\"data_offsets\":[0,8],"
	    "\"dtype\":\"F64\"},"
	    "\"e\":{\"dtype\":\"F32\",\"shape\":[0,4],"
	    "\"data_offsets\":[8,8]}}  ";
	const struct ofs_safetensors_tensor *t;
	struct ofs_safetensors st;
	struct optimfs_error err;
	struct blob b = { 0 };

	make_blob(&b, header, 12);
	if (!ok(ofs_safetensors_open(&st, b.size, 0, true, blob_read, &b,
		    &err) == 0,
		"a valid header is read"))
		return;
	is_u64(st.n, 3, "the header has three tensors");
	t = ofs_safetensors_find(&st, "b", 1);
	ok(t != NULL && t->dtype == OFS_BFLOAT16 && t->ndim == 2 &&
		t->shape[0] == 2,
	    "tensor b is bfloat16 with shape [2, 1]");
	is_u64(t->off, b.size - 4, "offset of tensor b");
	is_u64(t->len, 4, "length of tensor b");
	t = ofs_safetensors_find(&st, "a\0", 2);
	ok(t != NULL && t->ndim == 0, "a tensor is found by a name with a NUL");
	ok(ofs_safetensors_find(&st, "x", 1) == NULL,
	    "an absent name is not found");
	ok(ofs_safetensors_find(&st, "__metadata__", 12) == NULL,
	    "__metadata__ is not a tensor");
	is_str(ofs_safetensors_metadata(&st, "format").p, "pt",
	    "the metadata has its string");
	ok(ofs_safetensors_metadata(&st, "odd").p == NULL,
	    "metadata that is not a string is ignored");
	ofs_safetensors_fini(&st);
	b.size++;
	is_int(ofs_safetensors_open(&st, b.size, 0, false, blob_read, &b, &err),
	    0, "an item may be followed by other bytes");
	ofs_safetensors_fini(&st);
	is_int(ofs_safetensors_open(&st, b.size, 0, true, blob_read, &b, &err),
	    -1, "a file may not be followed by other bytes");
	is_error(err, EUCLEAN, "OFS658",
	    "a trailing byte in a file fails with OFS658");
}

#define T(dtype, shape, off) \
 "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" off "}"

static void header_bad(void)
{
	static const struct {
		const char *header, *code;
	} cases[] = {
		{ "[]", "OFS653" },
		{ "{}x", "OFS653" },
		{ "{\"a\":" T("F32", "[1]", "[0,4]") ",\"a\":" T("F32", "[1]",
		      "[0,4]") "}",
		    "OFS654" },
		{ "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F64\"}}", "OFS654" },
		{ "{\"a\":{\"shape\":[],\"shape\":[]}}", "OFS654" },
		{ "{\"__metadata__\":{},\"__metadata__\":{}}", "OFS654" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", "OFS655" },
		{ "{\"a\":{\"x\":1}}", "OFS655" },
		{ "{\"a\":3}", "OFS655" },
		{ "{\"a\":" T("F32", "[1]", "[0,4.0]") "}", "OFS655" },
		{ "{\"a\":" T("F32", "[1]", "[0,4e0]") "}", "OFS655" },
		{ "{\"a\":" T("F32", "[-1]", "[0,4]") "}", "OFS655" },
		{ "{\"a\":" T("F32", "[1]", "[0,\"4\"]") "}", "OFS655" },
		{ "{\"a\":" T("F32", "[1]", "[0,18446744073709551616]") "}",
		    "OFS655" },
		{ "{\"a\":" T("F32", "[1]", "[0,4,4]") "}", "OFS655" },
		{ "{\"a\":" T("F32", "[1]", "[0]") "}", "OFS655" },
		{ "{\"a\":" T("F32", "[0]", "[4,0]") "}", "OFS656" },
		{ "{\"a\":" T("F32", "[1]", "[4,8]") "}", "OFS656" },
		{ "{\"a\":" T("F32", "[2]", "[0,8]") ",\"b\":" T("F32", "[1]",
		      "[4,8]") "}",
		    "OFS656" },
		{ "{\"a\":" T("F32", "[4194305,4194305,211106198978564]",
		      "[0,16]") "}",
		    "OFS659" },
		{ "{\"a\":" T("F32", "[2]", "[0,4]") "}", "OFS659" },
	};
	struct ofs_safetensors st;
	struct optimfs_error err;
	struct blob b = { 0 };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		make_blob(&b, cases[i].header, 8);
		is_int(ofs_safetensors_open(&st, b.size, 0, true, blob_read, &b,
			   &err),
		    -1, "header %s is refused", cases[i].header);
		is_error(err, EUCLEAN, cases[i].code, "header %s fails with %s",
		    cases[i].header, cases[i].code);
	}
	make_blob(&b, "{\"a\":" T("Q9", "[3]", "[0,8]") "}", 8);
	is_int(ofs_safetensors_open(&st, b.size, 0, true, blob_read, &b, &err),
	    0, "a header with an unknown dtype is read");
	is_int(st.tensor[0].dtype, OFS_DTYPE_NONE,
	    "a tensor with an unknown dtype has OFS_DTYPE_NONE");
	ofs_safetensors_fini(&st);
}

static void lengths(void)
{
	static const struct {
		uint64_t n, size;
		const char *code;
	} cases[] = {
		{ 0, 7, "OFS651" },
		{ 0, 100, "OFS651" },
		{ 1, 100, "OFS651" },
		{ 93, 100, "OFS652" },
		{ 100000001, 200000000, "OFS652" },
		{ UINT64_C(1) << 63, 100, "OFS652" },
		{ UINT64_MAX, 100, "OFS652" },
		{ UINT64_MAX - 7, 100, "OFS652" },
	};
	struct ofs_safetensors st;
	struct optimfs_error err;
	struct blob b = { 0 };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (int k = 0; k < 8; k++)
			b.bytes[k] = (uint8_t)(cases[i].n >> (8 * k));
		b.size = cases[i].size;
		is_int(ofs_safetensors_open(&st, b.size, 0, true, blob_read, &b,
			   &err),
		    -1, "a header of length %llu is refused",
		    (unsigned long long)cases[i].n);
		is_error(err, EUCLEAN, cases[i].code,
		    "a header of length %llu fails with %s",
		    (unsigned long long)cases[i].n, cases[i].code);
	}
}

int main(void)
{
	shapes();
	depth();
	strings();
	numbers();
	skipping();
	header_good();
	header_bad();
	lengths();
	return done_testing();
}
