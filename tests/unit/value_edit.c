/* value_edit.c - values replaced by text, with their kinds */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "support/pickle_writer.h"
#include "tap.h"
#include "text/parse.h"
#include "text/text.h"

/* The body of a pickle of protocol 4, without PROTO and STOP, and its
 * length. */
#define P(s) s, sizeof(s) - 1

#define F09  "G\x3f\xec\xcc\xcc\xcc\xcc\xcc\xcd"
#define HALF "G\x3f\xe0\0\0\0\0\0\0"
#define F4               \
 "\x8c\x05numpy\x8c\x05" \
 "dtype\x93\x8c\x02"     \
 "f4\x89\x88\x87R"
#define SCALAR(bytes) \
 "\x8c\x15numpy.core.multiarray\x8c\x06scalar\x93" F4 "C\x04" bytes "\x86R"

/* The kinds of a value and of its items, as "tuple(float int)". */
static void kinds(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_buf *out)
{
	bool dict = ofs_pk_kind(doc, node) == OFS_PK_DICT;
	uint32_t n = ofs_pk_len(doc, node);

	ofs_buf_puts(out, ofs_pk_kind_name(doc, node));
	for (uint32_t i = 0; i < n; i++) {
		ofs_buf_putc(out, i == 0 ? '(' : ' ');
		if (dict) {
			kinds(doc, ofs_pk_key(doc, node, i), out);
			ofs_buf_putc(out, ':');
			kinds(doc, ofs_pk_val(doc, node, i), out);
		} else {
			kinds(doc, ofs_pk_item(doc, node, i), out);
		}
	}
	if (n > 0)
		ofs_buf_putc(out, ')');
}

static const struct {
	const char *pickle; /* NULL: a new value */
	size_t n;
	const char *text;
	const char *kinds; /* NULL: the text is refused */
	const char
	    *after; /* the text that the file then shows, if it differs */
	int code;
	bool option;
} edits[] = {
	{ P(HALF), "1e-05\n", "float", NULL, 0, false },
	{ P(HALF), "1e-5", "float", "1e-05\n", 0, false },
	{ P(HALF), " 1 \n", "float", "1.0\n", 0, false },
	{ P(HALF), "NaN\n", "float", NULL, 0, false },
	{ P(HALF), "-Infinity\n", "float", NULL, 0, false },
	{ P(HALF), "abc\n", NULL, NULL, EINVAL, false },
	{ P(HALF), "", NULL, NULL, EINVAL, false },
	{ P(HALF), "1\n2\n", NULL, NULL, EINVAL, false },
	{ P(HALF), "1e999\n", NULL, NULL, ERANGE, false },
	{ P(HALF), "null\n", NULL, NULL, EINVAL, true },
	{ P("K\x05"), "6\n", "int", NULL, 0, false },
	{ P("K\x05"), "-70000\n", "int", NULL, 0, false },
	{ P("K\x05"), "+007\n", "int", "7\n", 0, false },
	{ P("K\x05"), "-9223372036854775808\n", "int", NULL, 0, false },
	{ P("K\x05"), "9223372036854775808\n", "int", NULL, 0, false },
	{ P("K\x05"), "-9223372036854775809\n", "int", NULL, 0, false },
	{ P("K\x05"), "340282366920938463463374607431768211456\n", "int", NULL,
	    0, false },
	{ P("K\x05"), "-340282366920938463463374607431768211456\n", "int", NULL,
	    0, false },
	{ P("K\x05"), "0.5\n", NULL, NULL, EINVAL, false },
	{ P("K\x05"), "0.5\n", "float", NULL, 0, true },
	{ P("K\x05"), "-\n", NULL, NULL, EINVAL, true },
	{ P("\x88"), "false\n", "bool", NULL, 0, false },
	{ P("\x88"), "null\n", "None", NULL, 0, false },
	{ P("\x88"), "1\n", NULL, NULL, EINVAL, false },
	{ P("N"), "0.5\n", "float", NULL, 0, false },
	{ P("N"), "null\n", "None", NULL, 0, false },
	{ P("N"), "nul\n", NULL, NULL, EINVAL, false },
	{ P("\x8c\x01"
	    "a"),
	    "a\nb\xc3\xa9\n", "str", NULL, 0, false },
	{ P("\x8c\x01"
	    "a"),
	    "", "str", "\n", 0, false },
	{ P("\x8c\x01"
	    "a"),
	    "12\n", "str", NULL, 0, false },
	{ P("\x8c\x01"
	    "a"),
	    "\xff\n", NULL, NULL, EINVAL, false },
	{ P("C\x01"
	    "a"),
	    "\xff\nb", "bytes", NULL, 0, false },
	{ P("\x8c\x08"
	    "builtins\x8c\x09"
	    "bytearray\x93"
	    "C\x01"
	    "a\x85R"),
	    "xy", "bytearray", NULL, 0, false },
	{ P(F09 HALF "\x86"), "[0.8, 1]\n", "tuple(float float)",
	    "[0.8, 1.0]\n", 0, false },
	{ P(F09 HALF "\x86"), "[0.8, NaN, 3]\n", "tuple(float float float)",
	    "[0.8, NaN, 3.0]\n", 0, false },
	{ P(F09 HALF "\x86"), "[]\n", "tuple", NULL, 0, false },
	{ P(F09 HALF "\x86"), "[0.8, 1]\n", "tuple(float float)",
	    "[0.8, 1.0]\n", 0, true },
	{ P(F09 HALF "\x86"), "[0.8]\n", NULL, NULL, EINVAL, true },
	{ P(F09 HALF "\x86"), "[0.8, 1, 1]\n", NULL, NULL, EINVAL, true },
	{ P(F09 HALF "\x86"), "0.8\n", NULL, NULL, EINVAL, false },
	{ P(F09 HALF "\x86"), "0.8, 0.9\n", NULL, NULL, EINVAL, false },
	{ P(F09 HALF "\x86"), "[0.8, ]\n", NULL, NULL, EINVAL, false },
	{ P(F09 HALF "\x86"), "[0.8] 1\n", NULL, NULL, EINVAL, false },
	{ P("](K\x01" HALF "K\x02\x85"
	    "e"),
	    "[7, 8, [9], 10]\n", "list(int float tuple(int) int)",
	    "[7, 8.0, [9], 10]\n", 0, false },
	{ P("\x8c\x05torch\x8c\x04Size\x93(K\x02K\x03t\x85R"), "[4, 5]\n",
	    "torch.Size(int int)", NULL, 0, false },
	{ P("](K\x01"
	    "e"),
	    "[1, \"\\u00e9\", null, true]\n", "list(int str None bool)",
	    "[1, \"\xc3\xa9\", null, true]\n", 0, false },
	{ P("}(K\x01" HALF "\x8c\x01"
	    "a"
	    "K\x02\x85u"),
	    "{\"a\": [3], \"1\": 2, \"b\": {\"c\": []}}\n",
	    "dict(str:tuple(int) int:float str:dict(str:list))",
	    "{\"a\": [3], \"1\": 2.0, \"b\": {\"c\": []}}\n", 0, false },
	{ P("}(K\x01" HALF "K\x02" HALF "u"), "{\"7\": 2}\n", "dict(int:int)",
	    NULL, 0, false },
	{ P("\x8c\x0b"
	    "collections\x8c\x0bOrderedDict\x93)R(\x8c\x01"
	    "aK\x01u"),
	    "{\"a\": 2}\n", "collections.OrderedDict(str:int)", NULL, 0,
	    false },
	{ P("\x8c\x08"
	    "builtins\x8c\x03set\x93](K\x01"
	    "e\x85R"),
	    "[2]\n", "set(int)", NULL, 0, false },
	/* values made by calls */
	{ P(SCALAR("\0\0\0\x3f")), "0.25\n", "numpy.core.multiarray.scalar",
	    NULL, 0, false },
	{ P(SCALAR("\0\0\0\x3f")), "x\n", NULL, NULL, EINVAL, false },
	{ P("](" SCALAR("\0\0\0\x3f") "K\x01"
				      "e"),
	    "[0.25, 2]\n", "list(numpy.core.multiarray.scalar int)", NULL, 0,
	    false },
	{ P("\x8c\x05torch\x8c\x07"
	    "float32\x93"),
	    "torch.float32\n", "torch.float32", NULL, 0, false },
	{ P("\x8c\x05torch\x8c\x07"
	    "float32\x93"),
	    "torch.float16\n", NULL, NULL, EOPNOTSUPP, false },
	{ P("](\x8c\x05torch\x8c\x07"
	    "float32\x93K\x01"
	    "e"),
	    "[\"torch.float32\", 2]\n", "list(torch.float32 int)", NULL, 0,
	    false },
	{ P("\x8c\x02my\x8c\x05"
	    "Class\x93)\x81"),
	    "{\"__opaque__\": \"my.Class\"}\n", NULL, NULL, EOPNOTSUPP, false },
	/* new values */
	{ NULL, 0, "1\n", "int", NULL, 0, false },
	{ NULL, 0, "0.1\n", "float", NULL, 0, false },
	{ NULL, 0, "true\n", "bool", NULL, 0, false },
	{ NULL, 0, "[1, [2.5, null]]\n", "list(int list(float None))", NULL, 0,
	    false },
	{ NULL, 0, "{\"a\": {}}\n", "dict(str:dict)", NULL, 0, false },
	{ NULL, 0, "adamw\n", "str", NULL, 0, false },
	{ NULL, 0, "[1, \n", "str", NULL, 0, false },
	{ NULL, 0, "\xff", NULL, NULL, EINVAL, false },
};

static void test_edit(size_t i)
{
	struct optimfs_error err = { 0 };
	struct ofs_pickle *doc = NULL, *now;
	struct ofs_value_form form = { .option = edits[i].option };
	struct ofs_buf out = { 0 };
	const char *after =
	    edits[i].after == NULL ? edits[i].text : edits[i].after;

	if (edits[i].pickle != NULL) {
		doc = pw_parse(edits[i].pickle, edits[i].n);
		form.doc = doc;
		form.node = ofs_pickle_root(doc);
	}
	now = ofs_value_edit(&form, edits[i].text, strlen(edits[i].text), &err);
	if (edits[i].kinds == NULL) {
		ok(now == NULL, "edit %zu, \"%.40s\", is refused", i,
		    edits[i].text);
		is_error(err, edits[i].code,
		    edits[i].code == EOPNOTSUPP ? "OFS820 " : "OFS806 ",
		    "edit %zu, \"%.40s\": error text", i, edits[i].text);
	} else if (now == NULL) {
		ok(false, "edit %zu succeeds: %s", i, err.text);
	} else {
		kinds(now, ofs_pickle_root(now), &out);
		ofs_buf_putc(&out, '\0');
		is_str((char *)out.data, edits[i].kinds,
		    "edit %zu, \"%.40s\": kinds", i, edits[i].text);
		out.len = 0;
		ofs_text_value(now, ofs_pickle_root(now), NULL, &out, &err);
		ofs_buf_putc(&out, '\0');
		is_str((char *)out.data, after, "edit %zu, \"%.40s\": text", i,
		    edits[i].text);
	}
	ofs_buf_fini(&out);
	ofs_pickle_free(now);
	ofs_pickle_free(doc);
}

/* Lists that are shown with one item per line. */
static void test_lines(void)
{
	static const struct {
		const char *pickle;
		size_t n;
		const char *text, *kinds;
	} lists[] = {
		{ P("](\x8c\x01"
		    "a\x8c\x01"
		    "be"),
		    "c\nd\ne\n", "list(str str str)" },
		{ P("](\x8c\x01"
		    "a\x8c\x01"
		    "be"),
		    "", "list" },
		{ P("](K\0K\1e"), "0\n1\n2", "list(int int int)" },
		{ P("](K\0K\1e"), "a\n", NULL },
		{ P("]"), "a\n", "list(str)" },
		{ P("\x8c\x01"
		    "a\x85"),
		    "b\n", "tuple(str)" },
		/* a name with a newline: shown as JSON */
		{ P("](\x8c\x03"
		    "a\nb\x8c\x01"
		    "ce"),
		    "[\"a\\u000ab\", \"d\"]\n", "list(str str)" },
	};

	for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++) {
		struct ofs_pickle *doc = pw_parse(lists[i].pickle, lists[i].n);
		struct ofs_value_form form = {
			.doc = doc, .lines = true, .node = ofs_pickle_root(doc)
		};
		struct optimfs_error err = { 0 };
		struct ofs_pickle *now = ofs_value_edit(&form, lists[i].text,
		    strlen(lists[i].text), &err);
		struct ofs_buf out = { 0 };

		if (lists[i].kinds == NULL) {
			is_error(err, EINVAL, "OFS806 ",
			    "list edit %zu, \"%s\", is refused", i,
			    lists[i].text);
		} else if (now == NULL) {
			ok(false, "list edit %zu succeeds: %s", i, err.text);
		} else {
			kinds(now, ofs_pickle_root(now), &out);
			ofs_buf_putc(&out, '\0');
			is_str((char *)out.data, lists[i].kinds,
			    "list edit %zu, \"%s\": kinds", i, lists[i].text);
		}
		ofs_buf_fini(&out);
		ofs_pickle_free(now);
		ofs_pickle_free(doc);
	}
}

static void test_element(void)
{
	struct optimfs_error err = { 0 };
	uint8_t e[16];

	ok(ofs_value_element(OFS_FLOAT32, "1.5\n", 4, e, &err) == 0 &&
		memcmp(e, "\0\0\xc0\x3f", 4) == 0,
	    "text becomes a float32 element");
	ok(ofs_value_element(OFS_INT8, "200\n", 4, e, &err) == -1,
	    "text too large for int8 is refused");
	is_error(err, ERANGE, "OFS806 '200' is not a value of type int8",
	    "text too large for int8: error text");
	ok(ofs_value_element(OFS_FLOAT32, "abc\n", 4, e, &err) == -1,
	    "text that is not a number is refused");
	is_error(err, EINVAL, "OFS806 'abc' is not",
	    "text that is not a number: error text");
}

/* A NUL is neither white space nor a character. */
static void test_nul(void)
{
	static const uint8_t one[] = { 0x80, 2, 'K', 1, '.' };
	struct optimfs_error err = { 0 };
	struct ofs_pickle *doc =
	    ofs_pickle_parse(one, sizeof(one), false, NULL, NULL, &err);
	struct ofs_value_form form = { .doc = doc };

	if (doc == NULL)
		bail_out("%s", err.text);
	form.node = ofs_pickle_root(doc);
	ok(ofs_value_edit(&form, "2\0", 2, &err) == NULL,
	    "a number with a NUL behind it is refused");
	is_error(err, EINVAL,
	    "OFS806 2 bytes, not all of them characters, are not an integer",
	    "the message does not show the NUL");
	ofs_pickle_free(doc);
}

int main(void)
{
	for (size_t i = 0; i < sizeof(edits) / sizeof(*edits); i++)
		test_edit(i);
	test_lines();
	test_element();
	test_nul();
	return done_testing();
}
