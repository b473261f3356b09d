/* text.c - text of plain values */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "text/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/pickle_writer.h"
#include "tap.h"
#include "text/leaf.h"
#include "text/parse.h"

/* The body of a pickle of protocol 4, without PROTO and STOP, and its
 * length. */
#define P(s) s, sizeof(s) - 1

#define TORCH(name) "\x8c\x05torch\x8c" name "\x93"

static const struct {
	const char *pickle;
	size_t n;
	const char *text;
	enum ofs_text_kind kind;
} values[] = {
	{ P("N"), "null\n", OFS_TEXT_SCALAR },
	{ P("\x88"), "true\n", OFS_TEXT_SCALAR },
	{ P("\x89"), "false\n", OFS_TEXT_SCALAR },
	{ P("K\x05"), "5\n", OFS_TEXT_SCALAR },
	{ P("J\xff\xff\xff\xff"), "-1\n", OFS_TEXT_SCALAR },
	{ P("\x8a\x08\0\0\0\0\0\0\0\x80"), "-9223372036854775808\n",
	    OFS_TEXT_SCALAR },
	{ P("\x8a\x09\0\0\0\0\0\0\0\x80\0"), "9223372036854775808\n",
	    OFS_TEXT_SCALAR },
	{ P("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\x7f\xff"),
	    "-9223372036854775809\n", OFS_TEXT_SCALAR },
	{ P("\x8a\x11\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1"),
	    "340282366920938463463374607431768211456\n", OFS_TEXT_SCALAR },
	{ P("\x8a\x0d\0\0\0\0\0\0\0\0\0\0\0\0\xff"),
	    "-79228162514264337593543950336\n", OFS_TEXT_SCALAR },
	{ P("G\x3e\x45\x79\x8e\xe2\x30\x8c\x3a"), "1e-08\n", OFS_TEXT_SCALAR },
	{ P("G\x40\x24\0\0\0\0\0\0"), "10.0\n", OFS_TEXT_SCALAR },
	{ P("G\x7f\xf8\0\0\0\0\0\0"), "NaN\n", OFS_TEXT_SCALAR },
	{ P("G\xff\xf0\0\0\0\0\0\0"), "-Infinity\n", OFS_TEXT_SCALAR },
	{ P("\x8c\x06"
	    "a\nb\"\xc3\xa9"),
	    "a\nb\"\xc3\xa9\n", OFS_TEXT_STRING },
	{ P("\x8c\0"), "\n", OFS_TEXT_STRING },
	{ P("C\x03\xff\x0a\x41"), "\xff\nA", OFS_TEXT_BYTES },
	{ P("]"), "[]\n", OFS_TEXT_JSON },
	{ P("}"), "{}\n", OFS_TEXT_JSON },
	{ P(")"), "[]\n", OFS_TEXT_JSON },
	{ P("G\x3f\xec\xcc\xcc\xcc\xcc\xcc\xcdG\x3f\xef\xf7\xce\xd9\x16\x87"
	    "\x2b\x86"),
	    "[0.9, 0.999]\n", OFS_TEXT_JSON },
	{ P("](K\x01\x8c\x02h\"C\x02\xe9\x01N\x89\x85](K\x02K\x03"
	    "ee"),
	    "[1, \"h\\\"\", \"\\u00e9\\u0001\", null, [false], [2, 3]]\n",
	    OFS_TEXT_JSON },
	/* keys of all kinds */
	{ P("}(\x8c\x01"
	    "aK\x01K\x02}K\x03K\x04sN\x88\x88)K\x01K\x02\x86]G\x3f\xe0\0\0\0"
	    "\0\0\0Nu"),
	    "{\"a\": 1, \"2\": {\"3\": 4}, \"null\": true, \"true\": [], "
	    "\"[1, 2]\": [], \"0.5\": null}\n",
	    OFS_TEXT_JSON },
	{ P("}C\x02\x01\xffK\x01s"), "{\"\\u0001\\u00ff\": 1}\n",
	    OFS_TEXT_JSON },
	{ P("}" TORCH("\x07"
		      "float16") "K\x01s"),
	    "{\"torch.float16\": 1}\n", OFS_TEXT_JSON },
	{ P("\x8f(K\x01K\x02\x90"), "[1, 2]\n", OFS_TEXT_JSON },
	{ P("(K\x01\x91"), "[1]\n", OFS_TEXT_JSON },
	/* in the order of values, whatever the order of the file */
	{ P("\x8f(K\x0aK\x02\x8c\x01"
	    "bJ\xff\xff\xff\xff\x8c\x01"
	    "aG\x40\x04\0\0\0\0\0\0\x90"),
	    "[\"a\", \"b\", -1, 2, 2.5, 10]\n", OFS_TEXT_JSON },
	{ P("](((K\x02K\x01\x91(K\x01K\x01\x86\x91\x91"
	    "e"),
	    "[[[1, 2], [[1, 1]]]]\n", OFS_TEXT_JSON },
	{ P("\x8c\x0b"
	    "collections\x8c\x0bOrderedDict\x93)RK\x01K\x02s"),
	    "{\"1\": 2}\n", OFS_TEXT_JSON },
	{ P(TORCH("\x04Size") "K\x02K\x03\x86\x85R"), "[2, 3]\n",
	    OFS_TEXT_JSON },
	{ P(TORCH("\x08"
		  "bfloat16")),
	    "torch.bfloat16\n", OFS_TEXT_STRING },
	{ P(TORCH("\x06"
		  "device") "\x8c\x04"
			    "cudaK\x01\x86R"),
	    "cuda:1\n", OFS_TEXT_STRING },
	{ P("]" TORCH("\x06"
		      "device") "\x8c\x03"
				"cpu\x85Ra"),
	    "[\"cpu\"]\n", OFS_TEXT_JSON },
	{ P("\x8c\x13torch.serialization\x8c\x0b_get_layout\x93\x8c\x0d"
	    "torch.strided\x85R"),
	    "torch.strided\n", OFS_TEXT_STRING },
	{ P("\x8c\x07pathlib\x8c\x09PosixPath\x93\x8c\x01/\x8c\x01"
	    "a\x8c\x01"
	    "b\x87R"),
	    "/a/b\n", OFS_TEXT_STRING },
	{ P("\x8c\x08"
	    "builtins\x8c\x07"
	    "complex\x93G\x3f\xf0\0\0\0\0\0\0G\xc0\0\0\0\0\0\0\0\x86R"),
	    "(1-2j)\n", OFS_TEXT_SCALAR },
	{ P("\x8c\x02os\x8c\x06system\x93\x8c\x02id\x85R"),
	    "{\"__opaque__\": \"os.system\", "
	    "\"xxh64\": \"54c4f54eec971223\"}\n",
	    OFS_TEXT_OPAQUE },
	{ P("]\x8c\x06my.pkg\x8c\x06"
	    "Config\x93)\x81}\x8c\x01xK\x01sba"),
	    "[{\"__opaque__\": \"my.pkg.Config\", "
	    "\"xxh64\": \"f1901876957af0a3\"}]\n",
	    OFS_TEXT_JSON },
	{ P("\x8c\x08"
	    "builtins\x8c\x07getattr\x93\x8c\x01m\x8c\x01K\x93\x8c\x01"
	    "A\x86R"),
	    "{\"__opaque__\": \"m.K.A\"}\n", OFS_TEXT_OPAQUE },
	/* a list that contains itself */
	{ P("]\x94h\0a"), "[{\"__opaque__\": \"cycle\"}]\n", OFS_TEXT_JSON },
};

static void table(void)
{
	for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
		struct ofs_pickle *doc =
		    pw_parse(values[i].pickle, values[i].n);
		uint32_t root = ofs_pickle_root(doc);
		struct ofs_buf out = { 0 };

		is_int(ofs_text_value(doc, root, NULL, &out, NULL), 0,
		    "value %zu is printed: %.40s", i, values[i].text);
		ofs_buf_putc(&out, 0);
		is_str((char *)out.data, values[i].text,
		    "value %zu: text is %.40s", i, values[i].text);
		is_int(ofs_text_kind(doc, root), values[i].kind,
		    "value %zu: kind of %.40s", i, values[i].text);
		ofs_buf_fini(&out);
		ofs_pickle_free(doc);
	}
}

#define SCALAR(dtype, order, bytes)                                      \
 "\x8c\x16numpy._core.multiarray\x8c\x06scalar\x93\x8c\x05numpy\x8c\x05" \
 "dtype\x93\x8c\x02" dtype "\x89\x88\x87R(K\x03\x8c\x01" order           \
 "NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb" bytes "\x86R"

#define ARRAY(shape, dtype, order, fortran, bytes)                     \
 "\x8c\x16numpy._core.multiarray\x8c\x0c_reconstruct\x93\x8c\x05numpy" \
 "\x8c\x07ndarray\x93K\0\x85"                                          \
 "C\x01"                                                               \
 "b\x87R(K\x01" shape "\x8c\x05numpy\x8c\x05"                          \
 "dtype\x93\x8c\x02" dtype "\x89\x88\x87R(K\x03\x8c\x01" order         \
 "NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb" fortran bytes "tb"

static void numpy(void)
{
	static const struct {
		const char *pickle;
		size_t n;
		const char *text;
	} cases[] = {
		{ P(SCALAR("f4", "<", "C\x04\xcd\xcc\xcc\x3d")),
		    "0.10000000149011612\n" },
		{ P(SCALAR("f4", ">", "C\x04\x3d\xcc\xcc\xcd")),
		    "0.10000000149011612\n" },
		{ P(SCALAR("f4", "<", "C\x04\x01\0\xc0\xff")), "NaN\n" },
		{ P(SCALAR("i8", "<", "C\x08\xfe\xff\xff\xff\xff\xff\xff\xff")),
		    "-2\n" },
		{ P(SCALAR("b1", "|", "C\x01\1")), "true\n" },
		{ P(SCALAR("c8", "<", "C\x08\0\0\x80\x3f\0\0\0\xc0")),
		    "(1-2j)\n" },
		/* too few bytes for an element */
		{ P(SCALAR("i8", "<", "C\x01\1")),
		    "{\"__opaque__\": \"numpy._core.multiarray.scalar\", "
		    "\"xxh64\": \"d275780ebaa26782\"}\n" },
		{ P(ARRAY("K\x02K\x02\x86", "u1", "|", "\x89",
		      "C\x04\1\2\3\4")),
		    "[[1, 2], [3, 4]]\n" },
		{ P(ARRAY("K\x02\x85", "i2", ">", "\x89", "C\x04\0\1\1\0")),
		    "[1, 256]\n" },
		{ P(ARRAY("K\0\x85", "f4", "<", "\x89", "C\0")), "[]\n" },
		{ P(ARRAY(")", "b1", "|", "\x89", "C\1\1")), "true\n" },
		/* in Fortran order */
		{ P(ARRAY("K\x03K\x02\x86", "u1", "|", "\x88",
		      "C\x06\1\3\5\2\4\6")),
		    "[[1, 2], [3, 4], [5, 6]]\n" },
		{ P(ARRAY("K\x02K\x01K\x03\x87", "i2", ">", "\x88",
		      "C\x0c\0\1\0\4\0\2\0\5\0\3\0\6")),
		    "[[[1, 2, 3]], [[4, 5, 6]]]\n" },
		/* larger than the limit, and with too few bytes */
		{ P(ARRAY("M\x01\x04\x85", "u1", "|", "\x89", "C\x04\1\2\3\4")),
		    "{\"__opaque__\": \"numpy._core.multiarray._reconstruct\", "
		    "\"xxh64\": \"2d4315945f46fae7\"}\n" },
		{ P(ARRAY("K\x05\x85", "u1", "|", "\x89", "C\x04\1\2\3\4")),
		    "{\"__opaque__\": \"numpy._core.multiarray._reconstruct\", "
		    "\"xxh64\": \"6d2aaadcc82e1138\"}\n" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct ofs_pickle *doc = pw_parse(cases[i].pickle, cases[i].n);
		struct ofs_buf out = { 0 };

		ofs_text_value(doc, ofs_pickle_root(doc), NULL, &out, NULL);
		ofs_buf_putc(&out, 0);
		is_str((char *)out.data, cases[i].text,
		    "NumPy value %zu: text is %.40s", i, cases[i].text);
		ofs_buf_fini(&out);
		ofs_pickle_free(doc);
	}
}

static void tensor(void)
{
	struct ofs_pickle *doc = pw_parse(
	    P("]\x8c\x0ctorch._utils\x8c\x12_rebuild_tensor_v2\x93((\x8c\x07"
	      "storage\x8c\x05torch\x8c\x0b"
	      "HalfStorage\x93\x8c\x01"
	      "0\x8c\x03"
	      "cpuK\x06tQK\0K\x02K\x03\x86K\x03K\x01\x86\x89\x8c\x0b"
	      "collections\x8c\x0bOrderedDict\x93)RtRa"));
	struct ofs_buf out = { 0 };

	ofs_text_value(doc, ofs_pickle_root(doc), NULL, &out, NULL);
	ofs_buf_putc(&out, 0);
	is_str((char *)out.data,
	    "[{\"__tensor__\": {\"dtype\": \"float16\", \"shape\": [2, 3]}}]\n",
	    "a tensor inside a list is shown with dtype and shape");
	ofs_buf_fini(&out);
	ofs_pickle_free(doc);
}

/* The file of a value has the element of a tensor without dimensions, if
 * somebody could read it. */
static void element(void)
{
	static const uint8_t half[OFS_PK_ELEMENT] = { 0x00, 0x38 };
	struct ofs_pickle *doc = pw_parse(
	    P("]G\x3f\xf0\0\0\0\0\0\0a"
	      "\x8c\x0ctorch._utils\x8c\x12_rebuild_tensor_v2\x93((\x8c\x07"
	      "storage\x8c\x05torch\x8c\x0b"
	      "HalfStorage\x93\x8c\x01"
	      "0\x8c\x03"
	      "cpuK\x01tQK\0))\x89\x8c\x0b"
	      "collections\x8c\x0bOrderedDict\x93)RtRa"));
	uint32_t root = ofs_pickle_root(doc);
	struct ofs_value_form form = { .doc = doc, .node = root };
	struct ofs_buf out = { 0 };
	struct optimfs_error err;

	if (ofs_pickle_note_element(doc, ofs_pk_item(doc, root, 1), half,
		&err) == -1)
		bail_out("%s", err.text);
	ofs_text_value(doc, root, NULL, &out, NULL);
	ofs_buf_putc(&out, 0);
	is_str((char *)out.data, "[1.0, 0.5]\n",
	    "a tensor without dimensions inside a list is a number");
	ok(ofs_value_edit(&form, "[2.0, 0.5]\n", 11, &err) == NULL,
	    "a list with a tensor cannot be changed");
	is_int(err.code, EOPNOTSUPP, "changing a list with a tensor: errno");
	ok(ofs_value_edit(&form, "[1.0, 0.25]\n", 12, &err) == NULL,
	    "a tensor inside a list cannot be changed");
	is_error(err, EOPNOTSUPP, "OFS820",
	    "changing a tensor inside a list: error text");
	ofs_buf_fini(&out);
	ofs_pickle_free(doc);
}

/* The text of a pickle, in one of two static buffers. */
static const char *text_of(const char *pickle, size_t n)
{
	static char texts[2][200];
	static int turn;
	struct ofs_pickle *doc = pw_parse(pickle, n);
	struct ofs_buf out = { 0 };

	turn = !turn;
	if (ofs_text_value(doc, ofs_pickle_root(doc), NULL, &out, NULL) == -1)
		bail_out("a value has no text");
	ofs_buf_putc(&out, 0);
	snprintf(texts[turn], sizeof(texts[turn]), "%s", (char *)out.data);
	ofs_buf_fini(&out);
	ofs_pickle_free(doc);
	return texts[turn];
}

#define CLASS "\x8c\x01m\x8c\x01K\x93"
#define SET(items) \
 CLASS "\x8c\x08"  \
       "builtins\x8c\x03set\x93](" items "e\x85R\x85R"

/* Objects of one class have the same text only if they are equal. */
static void objects(void)
{
	static const struct {
		const char *a;
		size_t na;
		const char *b;
		size_t nb;
		const char *what;
		bool same;
	} cases[] = {
		{ P(CLASS "K\1\x85R"), P(CLASS "K\2\x85R"),
		    "different arguments", false },
		{ P(CLASS ")R}\x8c\1xK\1sb"), P(CLASS ")R}\x8c\1xK\2sb"),
		    "different states", false },
		{ P(CLASS "K\1\x85R"),
		    P(CLASS "\x8c\1"
			    "1\x85R"),
		    "arguments of different types", false },
		{ P(CLASS "\x8c\1"
			  "a\x8c\2"
			  "bc\x86R"),
		    P(CLASS "\x8c\2"
			    "ab\x8c\1"
			    "c\x86R"),
		    "texts that end in different places", false },
		{ P(CLASS "](K\1\x89"
			  "e\x85R"),
		    P(CLASS "](K\1N"
			    "e\x85R"),
		    "lists with different items", false },
		{ P(CLASS "K\1K\1\x86\x94h\0\x86R"),
		    P(CLASS "K\1K\1\x86K\1K\1\x86\x86R"),
		    "arguments that are shared, and that are written twice",
		    true },
		{ P(SET("K\1K\2K\3")), P(SET("K\3K\1K\2")),
		    "a set in another order", true },
		{ P(SET("K\1K\2K\3")), P(SET("K\1K\2K\4")),
		    "sets with different items", false },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		ok((strcmp(text_of(cases[i].a, cases[i].na),
			text_of(cases[i].b, cases[i].nb)) == 0) ==
			cases[i].same,
		    "objects with %s have %s text", cases[i].what,
		    cases[i].same ? "the same" : "another");
}

static void lines(void)
{
	static const struct {
		const char *pickle;
		size_t n;
		const char *text;
	} cases[] = {
		{ P("](\x8c\x03l.w\x8c\x03l.be"), "l.w\nl.b\n" },
		{ P("](K\0K\x01K\x02"
		    "e"),
		    "0\n1\n2\n" },
		{ P("]"), "" },
		{ P("](\x8c\x03"
		    "a\nbK\x01"
		    "e"),
		    "[\"a\\u000ab\", 1]\n" },
		{ P("](N\x89"
		    "e"),
		    "[null, false]\n" },
		{ P("K\x05"), "5\n" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct ofs_pickle *doc = pw_parse(cases[i].pickle, cases[i].n);
		struct ofs_buf out = { 0 };

		is_int(ofs_text_value(doc, ofs_pickle_root(doc),
			   &(struct ofs_text_form){ .lines = true }, &out,
			   NULL),
		    0, "list %zu is printed as lines", i);
		ofs_buf_putc(&out, 0);
		is_str((char *)out.data, cases[i].text,
		    "list %zu: text is %.40s", i, cases[i].text);
		ofs_buf_fini(&out);
		ofs_pickle_free(doc);
	}
}

/* Sixty doublings would be 2^60 nodes when printed. */
static void bomb(void)
{
	struct ofs_buf body = { 0 }, out = { 0 };
	struct optimfs_error err = { 0 };
	struct ofs_pickle *doc;

	ofs_buf_puts(&body, "K\x01");
	for (int i = 0; i < 60; i++)
		ofs_buf_puts(&body, "2\x86");
	doc = pw_parse((char *)body.data, body.len);
	ofs_buf_puts(&out, "before");
	is_int(ofs_text_value(doc, ofs_pickle_root(doc), NULL, &out, &err), -1,
	    "a value of 2^60 nodes is refused");
	is_error(err, E2BIG, "OFS444 ", "a value of 2^60 nodes: error text");
	is_u64(out.len, 6, "a refused value leaves the output unchanged");
	ofs_pickle_free(doc);
	ofs_buf_fini(&out);
	ofs_buf_fini(&body);
}

/* Each reference to a long integer counts with its full length. */
static void heavy(void)
{
	struct ofs_buf body = { 0 }, out = { 0 };
	struct optimfs_error err = { 0 };
	struct ofs_pickle *doc;

	ofs_buf_put(&body, "\x8b\0\x10\0\0", 5);
	for (int i = 0; i < 4096; i++)
		ofs_buf_putc(&body, 0x7f);
	ofs_buf_puts(&body, "\x94(");
	for (int i = 0; i < 100; i++)
		ofs_buf_put(&body, "h\0", 2);
	ofs_buf_puts(&body, "lh");
	ofs_buf_putc(&body, 0);
	ofs_buf_puts(&body, "\x86\x86");
	doc = pw_parse((char *)body.data, body.len);
	is_int(ofs_text_value(doc, ofs_pickle_root(doc), NULL, &out, &err), -1,
	    "a hundred integers of ten thousand digits are refused");
	is_error(err, E2BIG, "OFS444 ",
	    "a hundred integers of ten thousand digits: error text");
	ofs_pickle_free(doc);
	ofs_buf_fini(&out);
	ofs_buf_fini(&body);
}

static void bigints(void)
{
	struct ofs_buf out = { 0 };
	uint8_t le[4096] = { 0 };

	ofs_leaf_bigint(le, 0, &out);
	ofs_buf_putc(&out, ' ');
	ofs_leaf_bigint(le, sizeof(le), &out);
	ofs_buf_putc(&out, ' ');
	le[4] = 1;
	ofs_leaf_bigint(le, 12, &out);
	ofs_buf_putc(&out, 0);
	is_str((char *)out.data, "0 0 4294967296",
	    "integers with leading zero bytes");
	out.len = 0;
	memset(le, 0, sizeof(le));
	le[4095] = 0x80;
	ofs_leaf_bigint(le, sizeof(le), &out);
	is_u64(out.len, 9865, "-2^32767 has 9864 digits and a sign");
	is_mem(out.data, "-70773051552247739450", 21,
	    "first digits of -2^32767");
	is_mem(out.data + out.len - 10, "6856188928", 10,
	    "last digits of -2^32767");
	ofs_buf_fini(&out);
}

static void kinds(void)
{
	is_str(ofs_text_kind_name(OFS_TEXT_SCALAR), "scalar",
	    "name of the kind scalar");
	is_str(ofs_text_kind_name(OFS_TEXT_OPAQUE), "object",
	    "name of the kind object");
}

int main(void)
{
	table();
	numpy();
	tensor();
	element();
	objects();
	lines();
	bomb();
	heavy();
	bigints();
	kinds();
	return done_testing();
}
