/* pickle.c - nodes of parsed pickles, and the functions that read them */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "pickle/pickle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "optimfs/optimfs.h"

#include "base/buf.h"
#include "tap.h"

#define P(s) s, sizeof(s) - 1

static struct ofs_pickle *parse(const void *bytes, size_t n)
{
	struct optimfs_error err = { 0 };
	struct ofs_pickle *doc =
	    ofs_pickle_parse(bytes, n, false, NULL, NULL, &err);

	if (doc == NULL)
		bail_out("%s", err.text);
	return doc;
}

/* Pickles of one value: its kind, its type's name, and its number or length. */
static const struct {
	const char *what, *bytes;
	size_t n;
	enum ofs_pk_kind kind;
	const char *name;
	int64_t number;
} values[] = {
	{ "None", P("N."), OFS_PK_NONE, "None", 0 },
	{ "True", P("\x88."), OFS_PK_BOOL, "bool", 1 },
	{ "False", P("\x89."), OFS_PK_BOOL, "bool", 0 },
	{ "BININT1", P("K\xff."), OFS_PK_INT, "int", 255 },
	{ "BININT2", P("M\xff\xff."), OFS_PK_INT, "int", 65535 },
	{ "BININT", P("J\0\0\0\x80."), OFS_PK_INT, "int", INT32_MIN },
	{ "INT, True", P("I01\n."), OFS_PK_BOOL, "bool", 1 },
	{ "INT, False", P("I00\n."), OFS_PK_BOOL, "bool", 0 },
	{ "INT", P("I-7\n."), OFS_PK_INT, "int", -7 },
	{ "LONG", P("L4294967296L\n."), OFS_PK_INT, "int", 4294967296 },
	{ "LONG, short", P("L1L\n."), OFS_PK_INT, "int", 1 },
	{ "LONG1 of no bytes", P("\x8a\0."), OFS_PK_INT, "int", 0 },
	{ "LONG1 of one byte", P("\x8a\1\xff."), OFS_PK_INT, "int", -1 },
	{ "LONG1 of eight bytes", P("\x8a\x08\0\0\0\0\0\0\0\x80."), OFS_PK_INT,
	    "int", INT64_MIN },
	{ "LONG1 of nine bytes, within 64 bits",
	    P("\x8a\x09\1\0\0\0\0\0\0\0\0."), OFS_PK_INT, "int", 1 },
	{ "LONG1 of nine bytes, beyond 64 bits",
	    P("\x8a\x09\0\0\0\0\0\0\0\x80\0."), OFS_PK_BIGINT, "int", 9 },
	{ "LONG4", P("\x8b\2\0\0\0\0\1."), OFS_PK_INT, "int", 256 },
	{ "LONG1 of 255 bytes",
	    P("\x8a\xff"
	      "123456789a123456789b123456789c123456789d123456789e"
	      "123456789a123456789b123456789c123456789d123456789e"
	      "123456789a123456789b123456789c123456789d123456789e"
	      "123456789a123456789b123456789c123456789d123456789e"
	      "123456789a123456789b123456789c123456789d123456789e"
	      "12345."),
	    OFS_PK_BIGINT, "int", 255 },
	{ "SHORT_BINUNICODE",
	    P("\x8c\x03"
	      "abc."),
	    OFS_PK_STR, "str", 3 },
	{ "BINUNICODE",
	    P("X\x03\0\0\0"
	      "abc."),
	    OFS_PK_STR, "str", 3 },
	{ "BINUNICODE8",
	    P("\x8d\x03\0\0\0\0\0\0\0"
	      "abc."),
	    OFS_PK_STR, "str", 3 },
	{ "P45 surrogates, NUL, overlong", P("\x8c\x06\xed\xa0\x80\0\xc0\x80."),
	    OFS_PK_STR, "str", 6 },
	{ "Python 2's str",
	    P("U\x03"
	      "abc."),
	    OFS_PK_STR, "str", 3 },
	{ "SHORT_BINBYTES", P("C\x02\xff\0."), OFS_PK_BYTES, "bytes", 2 },
	{ "BINBYTES", P("B\2\0\0\0\xff\0."), OFS_PK_BYTES, "bytes", 2 },
	{ "BINBYTES8", P("\x8e\2\0\0\0\0\0\0\0\xff\0."), OFS_PK_BYTES, "bytes",
	    2 },
	{ "BYTEARRAY8", P("\x96\2\0\0\0\0\0\0\0\xff\0."), OFS_PK_BYTES,
	    "bytearray", 2 },
	{ "_codecs.encode",
	    P("c_codecs\nencode\nX\3\0\0\0a\xc3\xa9X\6\0\0\0latin1\x86"
	      "R."),
	    OFS_PK_BYTES, "bytes", 2 },
	{ "_codecs.encode of ASCII",
	    P("c_codecs\nencode\nX\2\0\0\0abX\6\0\0\0latin1"
	      "\x86R."),
	    OFS_PK_BYTES, "bytes", 2 },
	{ "_codecs.encode of a character outside Latin-1",
	    P("c_codecs\nencode\nX\3\0\0\0\xe2\x82\xacX\6\0\0\0latin1\x86R."),
	    OFS_PK_OBJECT, "_codecs.encode", 0 },
	{ "bytes()", P("c__builtin__\nbytes\n)R."), OFS_PK_BYTES, "bytes", 0 },
	{ "bytearray(bytes)", P("cbuiltins\nbytearray\nC\1x\x85R."),
	    OFS_PK_BYTES, "bytearray", 1 },
	{ "bytearray(text, codec)",
	    P("c__builtin__\nbytearray\nX\2\0\0\0\xc3\xbfX\7\0\0\0latin-1\x86"
	      "R."),
	    OFS_PK_BYTES, "bytearray", 1 },
	{ "a list", P("](K\1K\2e."), OFS_PK_LIST, "list", 2 },
	{ "LIST", P("(K\1K\2l."), OFS_PK_LIST, "list", 2 },
	{ "an empty tuple", P(")."), OFS_PK_TUPLE, "tuple", 0 },
	{ "an empty TUPLE", P("(t."), OFS_PK_TUPLE, "tuple", 0 },
	{ "TUPLE1", P("N\x85."), OFS_PK_TUPLE, "tuple", 1 },
	{ "TUPLE of five items", P("(NNNNNt."), OFS_PK_TUPLE, "tuple", 5 },
	{ "a dict", P("}(K\1K\2K\3K\4u."), OFS_PK_DICT, "dict", 2 },
	{ "DICT", P("(K\1K\2d."), OFS_PK_DICT, "dict", 1 },
	{ "a set", P("\x8f(K\1K\2\x90."), OFS_PK_SET, "set", 2 },
	{ "set(list)",
	    P("c__builtin__\nset\n](K\1K\2"
	      "e\x85R."),
	    OFS_PK_SET, "set", 2 },
	{ "FROZENSET", P("(K\1\x91."), OFS_PK_SET, "frozenset", 1 },
	{ "frozenset(list)", P("cbuiltins\nfrozenset\n]K\1a\x85R."), OFS_PK_SET,
	    "frozenset", 1 },
	{ "torch.Size", P("ctorch\nSize\nK\2K\3\x86\x85R."), OFS_PK_TUPLE,
	    "torch.Size", 2 },
	{ "torch.Size with memo", P("ctorch\nSize\nK\2K\3\x86q\1\x85q\2Rq\3."),
	    OFS_PK_TUPLE, "torch.Size", 2 },
	{ "torch.Size()", P("ctorch\nSize\n)\x85\x94R."), OFS_PK_TUPLE,
	    "torch.Size", 0 },
	{ "torch.Size of four numbers",
	    P("ctorch\nSize\n(K\1K\2K\3K\4t\x85\x94R."), OFS_PK_TUPLE,
	    "torch.Size", 4 },
	{ "torch.Size of a list", P("ctorch\nSize\n]\x85R."), OFS_PK_OBJECT,
	    "torch.Size", 0 },
	{ "OrderedDict", P("ccollections\nOrderedDict\n)R(K\1K\2u."),
	    OFS_PK_DICT, "collections.OrderedDict", 1 },
	{ "defaultdict",
	    P("ccollections\ndefaultdict\nc__builtin__\nlist\n\x85R(K\1K\2u."),
	    OFS_PK_DICT, "collections.defaultdict", 1 },
	{ "Counter", P("ccollections\nCounter\n}K\1K\2s\x85R."), OFS_PK_DICT,
	    "collections.Counter", 1 },
	{ "an instance of an unknown mapping class",
	    P("cm\nAttrDict\n)\x81(K\1K\2u}b."), OFS_PK_DICT, "m.AttrDict", 1 },
	{ "a deque", P("ccollections\ndeque\n)R(K\1K\2e."), OFS_PK_LIST,
	    "collections.deque", 2 },
	{ "a global", P("ctorch\nfloat32\n."), OFS_PK_GLOBAL, "torch.float32",
	    0 },
	{ "a dotted global", P("\x80\4\x8c\1m\x8c\3A.B\x93."), OFS_PK_GLOBAL,
	    "m.A.B", 0 },
	{ "a call", P("cm\nf\nK\1\x85R."), OFS_PK_OBJECT, "m.f", 0 },
	{ "an instance", P("cm\nC\n)\x81."), OFS_PK_OBJECT, "m.C", 0 },
	{ "an instance made with keywords", P("cm\nC\n)}\x92."), OFS_PK_OBJECT,
	    "m.C", 0 },
	{ "a call of a call's result", P("cm\nf\n)R)R."), OFS_PK_OBJECT,
	    "object", 0 },
	{ "a persistent ID",
	    P("(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0000X\3\0\0\0"
	      "cpuK\6tQ."),
	    OFS_PK_PERSID, "persistent id", 1 },
	{ "POP, POP_MARK, DUP",
	    P("K\1N0(NN1"
	      "2\x86."),
	    OFS_PK_TUPLE, "tuple", 2 },
	{ "PUT and GET", P("K\7p0\n0g0\n."), OFS_PK_INT, "int", 7 },
	{ "P16 a memo entry set twice",
	    P("K\1q\0K\2q\0"
	      "00h\0."),
	    OFS_PK_INT, "int", 2 },
	{ "P16 MEMOIZE uses the number of entries as index",
	    P("K\1q\0K\2q\0K\3\x94"
	      "000h\1."),
	    OFS_PK_INT, "int", 3 },
	{ "P16 LONG_BINPUT out of order",
	    P("K\5r\x20\0\0\0"
	      "0j\x20\0\0\0."),
	    OFS_PK_INT, "int", 5 },
	{ "P23 an empty frame", P("\x80\4\x95\0\0\0\0\0\0\0\0K\1."), OFS_PK_INT,
	    "int", 1 },
	{ "P23 a frame inside a frame",
	    P("\x80\4\x95\x0c\0\0\0\0\0\0\0\x95\1\0\0\0\0\0\0\0K\1."),
	    OFS_PK_INT, "int", 1 },
	{ "P23 an opcode across a frame's end",
	    P("\x80\4\x95\1\0\0\0\0\0\0\0M\1\1."), OFS_PK_INT, "int", 257 },
};

static int64_t number(const struct ofs_pickle *doc, uint32_t node)
{
	int64_t v;

	switch (ofs_pk_kind(doc, node)) {
	case OFS_PK_BOOL:
		return ofs_pk_bool(doc, node);
	case OFS_PK_INT:
		return ofs_pk_int(doc, node, &v) ? v : -77;
	case OFS_PK_STR:
	case OFS_PK_BYTES:
	case OFS_PK_BIGINT:
		return ofs_pk_str(doc, node).len;
	default:
		return ofs_pk_len(doc, node);
	}
}

static void table(void)
{
	for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
		struct ofs_pickle *doc = parse(values[i].bytes, values[i].n);
		uint32_t root = ofs_pickle_root(doc);

		is_int(ofs_pk_kind(doc, root), values[i].kind, "%s: kind",
		    values[i].what);
		is_str(ofs_pk_kind_name(doc, root), values[i].name,
		    "%s: type name", values[i].what);
		is_int(number(doc, root), values[i].number,
		    "%s: number or length", values[i].what);
		ofs_pickle_free(doc);
	}
}

static void floats(void)
{
	struct ofs_pickle *doc =
	    parse(P("G\x3e\x45\x79\x8e\xe2\x30\x8c\x3aG\x7f\xf0\0\0\0\0\0\0"
		    "\x86."));
	uint32_t root = ofs_pickle_root(doc);

	ok(ofs_pk_float(doc, ofs_pk_item(doc, root, 0)) == 1e-8,
	    "BINFLOAT is big-endian");
	ok(isinf(ofs_pk_float(doc, ofs_pk_item(doc, root, 1))),
	    "BINFLOAT of infinity");
	ok(ofs_pk_float(doc, root) == 0, "a tuple read as a float is 0");
	ofs_pickle_free(doc);
}

/* A question that does not fit a node's kind, or about no node, has an empty
 * answer. */
static void neutral(void)
{
	struct ofs_pickle *doc = parse(P("](K\1\x8c\1ae."));
	uint32_t root = ofs_pickle_root(doc), none = OFS_NONE;
	struct ofs_str m, n;
	int64_t v = 5;

	is_int(ofs_pk_kind(doc, none), OFS_PK_NONE,
	    "an invalid node has kind None");
	ok(!ofs_pk_int(doc, none, &v) && v == 5,
	    "an invalid node is not an int");
	is_u64(ofs_pk_str(doc, root).len, 0, "a list has no bytes");
	is_u64(ofs_pk_len(doc, none), 0, "an invalid node has length 0");
	ok(ofs_pk_item(doc, root, 2) == none,
	    "a list of two has no third item");
	ok(ofs_pk_key(doc, root, 0) == none, "a list has no keys");
	ok(ofs_pk_val(doc, root, 0) == none, "a list has no values");
	ok(ofs_pk_get(doc, root, "a") == none, "a list has no string keys");
	ok(ofs_pk_attr(doc, none, "a") == none,
	    "an invalid node has no attributes");
	ok(ofs_pk_callable(doc, root) == none, "a list has no callable");
	ok(ofs_pk_args(doc, none) == none, "an invalid node has no arguments");
	ok(ofs_pk_state(doc, root) == none, "a list has no state");
	ofs_pk_class(doc, root, &m, &n);
	ok(m.len == 0 && n.len == 0, "a list has no class");
	ok(!ofs_pk_is(doc, root, NULL, ""),
	    "a list is not an instance of the empty class");
	ok(!ofs_pk_attribute(doc, root, &m, &n),
	    "a list is not made by getattr");
	ok(ofs_pk_str_is(doc, ofs_pk_item(doc, root, 1), "a"),
	    "a string equals the same text");
	ok(!ofs_pk_str_is(doc, ofs_pk_item(doc, root, 1), "ab"),
	    "a string differs from a longer text");
	ok(!ofs_pk_str_is(doc, ofs_pk_item(doc, root, 0), ""),
	    "an int does not equal an empty string");
	ofs_pickle_free(doc);
}

/* builtins.getattr gives class.NAME: some Pythons write members of enums like
 * that. */
static void attributes(void)
{
	struct ofs_pickle *doc =
	    parse(P("\x80\2c__builtin__\ngetattr\nq\0ctorch"
		    ".distributed._shard.sharded_tensor."
		    "api\nShardedTensor\nX\x11\0\0\0Process"
		    "GroupState\x86R)\x81}X\4\0\0\0rank"
		    "K\3sb."));
	uint32_t root = ofs_pickle_root(doc);
	const struct ofs_pk_global *g;
	struct ofs_str m, n;
	int64_t v = 0;
	size_t count;

	ok(ofs_pk_is(doc, root, "torch.distributed._shard.sharded_tensor.api",
	       "ShardedTensor.ProcessGroupState"),
	    "an instance of a nested class has the class's name");
	ok(ofs_pk_int(doc, ofs_pk_attr(doc, root, "rank"), &v) && v == 3,
	    "an instance of a nested class has its state");
	ok(ofs_pk_attribute(doc, ofs_pk_callable(doc, root), &m, &n),
	    "the callable of the instance is made by getattr");
	ok(ofs_pk_is(doc, ofs_pk_callable(doc, root), "__builtin__", "getattr"),
	    "the callable is also a call of __builtin__.getattr");
	ok(ofs_pk_state(doc, ofs_pk_callable(doc, root)) == OFS_NONE,
	    "a call of getattr has no state");
	g = ofs_pk_globals(doc, &count);
	is_u64(count, 3, "a getattr chain adds one global");
	ok(g[0].called && !g[1].called && g[2].called,
	    "getattr and the nested class are marked as called");
	ok(ofs_pk_global_allowed(&g[0]) && ofs_pk_global_allowed(&g[1]) &&
		ofs_pk_global_allowed(&g[2]),
	    "getattr of a known class is allowed");
	ofs_pickle_free(doc);

	/* P25: a chain of getattr that does not start at a class */
	doc =
	    parse(P("\x80\2c__builtin__\ngetattr\nq\0h\0ctorch\nserialization\n"
		    "X\2\0\0\0os\x86RX\6\0\0\0system\x86RX\2\0\0\0id\x85"
		    "R."));
	g = ofs_pk_globals(doc, &count);
	is_u64(count, 4, "P25 a getattr chain of a module adds two globals");
	ok(count == 4 && g[3].called && !ofs_pk_global_allowed(&g[3]) &&
		g[3].name.len == 23 &&
		memcmp(g[3].name.p, "serialization.os.system", 23) == 0,
	    "P25 the end of the chain is called and not allowed");
	ofs_pickle_free(doc);
	doc = parse(P("c__builtin__\ngetattr\n]X\1\0\0\0a\x86R."));
	g = ofs_pk_globals(doc, &count);
	ok(count == 2 && !ofs_pk_global_allowed(&g[1]),
	    "getattr of something that is no class is not allowed");
	ofs_pickle_free(doc);
}

static void globals(void)
{
	struct ofs_pickle *doc = parse(P("\x80\4"
					 "cos\nsystem\n0\x8c\2os\x8c\6system"
					 "\x93X\2\0\0\0id\x85Rctorch\nfloat32"
					 "\ncmy.pkg\nConfig\n)\x81\x87."));
	const struct ofs_pk_global *g;
	size_t n;

	g = ofs_pk_globals(doc, &n);
	is_u64(n, 3, "P28 each global is listed once");
	if (n == 3) {
		is_u64(g[0].offset, 2,
		    "P24 a global has the offset of its first use");
		ok(g[0].called && !ofs_pk_global_allowed(&g[0]),
		    "P24 os.system is called and not allowed");
		ok(!g[1].called && ofs_pk_global_allowed(&g[1]),
		    "torch.float32 is not called, and allowed");
		ok(g[2].called && !ofs_pk_global_allowed(&g[2]),
		    "P26 an unknown class is called and not allowed");
		ok(g[2].module.len == 6 && g[2].name.len == 6,
		    "a global has its module and name");
	}
	ofs_pickle_free(doc);
}

static void allowed(void)
{
	static const struct {
		const char *module, *name;
		bool yes;
	} cases[] = {
		{ "torch", "FloatStorage", true },
		{ "torch", "load", false },
		{ "torch.storage", "_load_from_bytes", false },
		{ "torch", "Storage", false },
		{ "builtins", "eval", false },
		{ "builtins", "set", true },
		{ "collections", "OrderedDict", true },
		{ "collections", "OrderedDict.__init__", false },
		{ "torch.distributed.checkpoint.metadata", "Metadata", true },
		{ "torch.distributed.checkpoint.metadata",
		    "_MEM_FORMAT_ENCODING.TORCH_CONTIGUOUS_FORMAT", true },
		{ "torch.distributed.checkpoint.metadata", "os", false },
		{ "torch.distributed.checkpoint.metadata", "Metadata.__class__",
		    false },
		{ "torch.distributed.checkpoint.metadata.x", "Metadata",
		    false },
		{ "torch.distributed._tensor.api", "DTensor", true },
		{ "torch.distributed._shard.metadata", "ShardMetadata", true },
		{ "torch.distributed._shard.metadata", "run", false },
		{ "torch.distributed.rpc", "PyRRef", false },
		{ "pathlib._local", "PosixPath", true },
		{ "pathlib", "PosixPath.unlink", false },
		{ "numpy._core.multiarray", "scalar", true },
		{ "numpy", "load", false },
		{ "numpy.dtypes", "Float64DType", true },
		{ "os", "system", false },
		{ "posix", "system", false },
		{ "pip", "main", false },
		{ "subprocess", "Popen", false },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct ofs_pk_global g = {
			.module = { cases[i].module,
			    (uint32_t)strlen(cases[i].module) },
			.name = { cases[i].name,
			    (uint32_t)strlen(cases[i].name) },
		};

		ok(ofs_pk_global_allowed(&g) == cases[i].yes, "%s.%s is%s",
		    cases[i].module, cases[i].name,
		    cases[i].yes ? " allowed" : " not allowed");
	}
}

/* The state of an object is a dict, or a pair of a dict and a dict of slots. */
static void states(void)
{
	struct ofs_pickle *doc = parse(
	    P("cm\nC\n)\x81(}\x8c\1aK\1s}(\x8c\1aK\2\x8c\1"
	      "bK\3utbcm\nC\n)\x81N}\x8c\1cK\4s\x86"
	      "bccollections\nOrderedDict\n)R\x8c\1k\x8c\1vs}\x8c\x09_metadataN"
	      "sb\x87."));
	uint32_t root = ofs_pickle_root(doc), x = ofs_pk_item(doc, root, 0);
	int64_t v = 0;

	ofs_pk_int(doc, ofs_pk_attr(doc, x, "a"), &v);
	is_int(v, 2, "slots are set after the dict");
	ok(ofs_pk_attr(doc, x, "c") == OFS_NONE,
	    "an instance has no attribute outside its state");
	x = ofs_pk_item(doc, root, 1);
	ok(ofs_pk_int(doc, ofs_pk_attr(doc, x, "c"), &v) && v == 4,
	    "a state may have slots only");
	x = ofs_pk_item(doc, root, 2);
	ok(ofs_pk_str_is(doc, ofs_pk_get(doc, x, "k"), "v"),
	    "an OrderedDict with a state has its items");
	is_int(ofs_pk_kind(doc, ofs_pk_attr(doc, x, "_metadata")), OFS_PK_NONE,
	    "an OrderedDict with a state has its attributes");
	is_u64(ofs_pk_len(doc, ofs_pk_state(doc, x)), 1,
	    "the state of an OrderedDict is a dict of one pair");
	ofs_pickle_free(doc);
}

/* Objects with the keys of the one before, in another order, twice, or
 * without. */
static void fields(void)
{
	struct ofs_pickle *doc =
	    parse(P("\x8c\1aq\0000\x8c\1bq\0010](" /* memo 0: a, 1: b */
		    "cm\nC\n)\x81}(h\0K\1h\1K\2ub"
		    "cm\nC\n)\x81}(h\0K\3h\1K\4ub"
		    "cm\nC\n)\x81}(h\1K\5h\0K\6ub"
		    "cm\nC\n)\x81}(h\0K\7h\0K\10ub"
		    "cm\nC\n)\x81}(h\1K\11ub"
		    "cm\nC\n)\x81}b"
		    "cm\nC\n)\x81"
		    "Ne."));
	uint32_t root = ofs_pickle_root(doc);
	struct ofs_pk_fields f = { .name = { "a", "b", "c" } };

	is_u64(ofs_pk_len(doc, root), 8, "a list of objects and None");
	for (uint32_t i = 0; i < ofs_pk_len(doc, root); i++) {
		uint32_t x = ofs_pk_item(doc, root, i), v[OFS_PK_FIELDS];

		ofs_pk_read_fields(doc, x, &f, v);
		ok(v[0] == ofs_pk_attr(doc, x, "a") &&
			v[1] == ofs_pk_attr(doc, x, "b") &&
			v[2] == ofs_pk_attr(doc, x, "c"),
		    "the fields of object %u are its attributes", i);
	}
	ofs_pickle_free(doc);
}

/* Items come in batches, alternately for a list and a dict. */
static void batches(void)
{
	struct ofs_buf b = { 0 };
	struct ofs_pickle *doc;
	uint32_t root, list, dict;
	bool right = true;
	int64_t v;

	ofs_buf_puts(&b, "]\x94}\x94");
	for (int batch = 0; batch < 30; batch++) {
		ofs_buf_put(&b, "h\0(", 3);
		for (int i = batch * 100; i < batch * 100 + 100; i++) {
			const char two[] = { 'M', (char)i, (char)(i >> 8) };

			ofs_buf_put(&b, two, 3);
		}
		ofs_buf_put(&b, "e0h\1(", 5);
		for (int i = batch * 50; i < batch * 50 + 50; i++) {
			const char pair[] = { 'M', (char)i, (char)(i >> 8), 'M',
				(char)(i + 1), (char)((i + 1) >> 8) };

			ofs_buf_put(&b, pair, 6);
		}
		ofs_buf_puts(&b, "u0");
	}
	ofs_buf_puts(&b, "\x86.");
	doc = parse(b.data, b.len);
	root = ofs_pickle_root(doc);
	list = ofs_pk_item(doc, root, 0);
	dict = ofs_pk_item(doc, root, 1);
	is_u64(ofs_pk_len(doc, list), 3000,
	    "a list from 30 batches has 3000 items");
	is_u64(ofs_pk_len(doc, dict), 1500,
	    "a dict from 30 batches has 1500 pairs");
	for (uint32_t i = 0; i < 3000; i++)
		right = right &&
		    ofs_pk_int(doc, ofs_pk_item(doc, list, i), &v) && v == i;
	for (uint32_t i = 0; i < 1500; i++)
		right = right &&
		    ofs_pk_int(doc, ofs_pk_key(doc, dict, i), &v) && v == i &&
		    ofs_pk_int(doc, ofs_pk_val(doc, dict, i), &v) && v == i + 1;
	ok(right, "items of batches keep their order");
	ofs_pickle_free(doc);
	ofs_buf_fini(&b);
}

/* A set shares its items with the list it was made from, until one of them
 * grows. */
static void shares(void)
{
	struct ofs_pickle *doc =
	    parse(P("]\x94(K\1K\2e0cbuiltins\nset\nh\0\x85R\x94(K\3\x90"
		    "0h\0(K\4K\5e0h\1(K\6\x90"
		    "0h\0h\1\x86."));
	uint32_t root = ofs_pickle_root(doc), list, set;
	int64_t v = 0;

	list = ofs_pk_item(doc, root, 0);
	set = ofs_pk_item(doc, root, 1);
	is_u64(ofs_pk_len(doc, list), 4,
	    "a list that grew after set(list) has four items");
	is_u64(ofs_pk_len(doc, set), 4, "the set that grew has four items");
	ok(ofs_pk_int(doc, ofs_pk_item(doc, list, 2), &v) && v == 4,
	    "the list has its own third item");
	ok(ofs_pk_int(doc, ofs_pk_item(doc, set, 2), &v) && v == 3,
	    "the set has its own third item");
	ofs_pickle_free(doc);
}

/* The node of the tuple that torch.Size was called with is made only when asked
 * for. */
static void wrapped(void)
{
	struct ofs_pickle *doc =
	    parse(P("ctorch\nSize\nK\2K\3\x86\x94\x85\x94R\x94h\1h\1\x87."));
	uint32_t root = ofs_pickle_root(doc), w = ofs_pk_item(doc, root, 1);

	is_int(ofs_pk_kind(doc, w), OFS_PK_TUPLE,
	    "the argument of torch.Size is a tuple");
	is_u64(ofs_pk_len(doc, w), 1,
	    "the argument of torch.Size has one item");
	ok(ofs_pk_item(doc, w, 0) == ofs_pk_item(doc, root, 0),
	    "the item is the size itself");
	ok(ofs_pk_item(doc, root, 2) == w, "the argument's node is made once");
	ofs_pickle_free(doc);
}

/* Equal torch.Size objects share a node. Tuples, and empty sizes, do not become
 * sizes. */
static void equal_sizes(void)
{
	struct ofs_pickle *doc =
	    parse(P("(ctorch\nSize\nK\2K\3\x86\x94\x85\x94R"
		    "ctorch\nSize\nK\2K\3\x86\x94\x85\x94R"
		    "ctorch\nSize\nK\3K\2\x86\x94\x85\x94R"
		    "ctorch\nSize\n(t\x94\x85\x94R"
		    "K\2K\3\x86\x94)t."));
	uint32_t root = ofs_pickle_root(doc), v[6];

	for (uint32_t i = 0; i < 6; i++)
		v[i] = ofs_pk_item(doc, root, i);
	ok(v[0] == v[1], "equal sizes share a node");
	ok(v[0] != v[2], "different sizes do not share a node");
	is_u64(ofs_pk_len(doc, v[3]), 0, "torch.Size of () has length 0");
	is_str(ofs_pk_kind_name(doc, v[0]), "torch.Size",
	    "torch.Size has its name");
	is_str(ofs_pk_kind_name(doc, v[3]), "torch.Size",
	    "torch.Size of () has its name");
	is_str(ofs_pk_kind_name(doc, v[4]), "tuple",
	    "a tuple equal to a size stays a tuple");
	is_str(ofs_pk_kind_name(doc, v[5]), "tuple",
	    "an empty tuple stays a tuple");
	ofs_pickle_free(doc);
}

/* P35: all pairs are kept, and the last one counts. */
static void duplicates(void)
{
	struct ofs_pickle *doc = parse(P("}(\x8c\1aK\1\x8c\1aK\2u."));
	int64_t v = 0;

	is_u64(ofs_pk_len(doc, ofs_pickle_root(doc)), 2,
	    "P35 a dict keeps both pairs of one key");
	ofs_pk_int(doc, ofs_pk_get(doc, ofs_pickle_root(doc), "a"), &v);
	is_int(v, 2, "P35 a lookup gives the last value of a key");
	ofs_pickle_free(doc);
}

/* Several pickles in a row, as old torch.save wrote them. */
static void streams(void)
{
	static const char bytes[] = "\x80\2K\1.\x80\2K\2.rest";
	struct optimfs_error err = { 0 };
	struct ofs_pickle *doc;
	uint64_t used = 0;
	int64_t v = 0;

	doc = ofs_pickle_parse((const uint8_t *)bytes, sizeof(bytes) - 1, false,
	    NULL, &used, &err);
	ok(doc != NULL, "the first of two pickles is read");
	is_u64(used, 5, "the first of two pickles has five bytes");
	ofs_pickle_free(doc);
	doc = ofs_pickle_parse((const uint8_t *)bytes + used,
	    sizeof(bytes) - 1 - used, false, NULL, &used, &err);
	ok(doc != NULL && ofs_pk_int(doc, ofs_pickle_root(doc), &v) && v == 2,
	    "the second pickle is read after the first");
	ofs_pickle_free(doc);
	ofs_pickle_free(NULL);
}

static void owned(void)
{
	struct optimfs_error err = { 0 };
	uint8_t *bytes = malloc(3);
	struct ofs_pickle *doc;

	memcpy(bytes, "K\x01.", 3);
	doc = ofs_pickle_parse(bytes, 3, true, NULL, NULL, &err);
	ok(doc != NULL, "a pickle that owns its bytes is read");
	ok(ofs_pickle_memory(doc) > 0,
	    "a pickle that owns its bytes uses memory");
	ofs_pickle_free(doc);
	bytes = malloc(3);
	memcpy(bytes, "K\x01!", 3);
	ok(ofs_pickle_parse(bytes, 3, true, NULL, NULL, NULL) == NULL,
	    "bytes handed over are freed when they are no pickle");
}

/* A large pickle's pages are released while it is read. */
static void large(void)
{
	static const char head[] = "\x80\x02(ccollections\nOrderedDict\n"
				   "\x8a\x09"
				   "ABCDEFGHI";
	size_t n = (size_t)8 << 20, at = sizeof(head) - 1, k = 0;
	uint8_t *bytes = malloc(n + 1);
	struct optimfs_error err = { 0 };
	struct ofs_pickle *doc;
	uint32_t root, wrong = 0;
	size_t nglobals = 0;
	char want[24];

	memcpy(bytes, head, at);
	for (; at + 16 < n; at += 13, k++) {
		snprintf((char *)bytes + at, 14, "X\x08%c%c%c%08zu", 1, 1, 1,
		    k);
		memcpy(bytes + at + 2, "\0\0\0", 3);
	}
	memcpy(bytes + at, "t.", 2);
	doc = ofs_pickle_parse(bytes, at + 2, true, NULL, NULL, &err);
	ok(doc != NULL, "a pickle of 8 MiB that owns its bytes is read: %s",
	    err.text);
	if (doc == NULL)
		return;
	root = ofs_pickle_root(doc);
	ok(ofs_pk_len(doc, root) == k + 2, "a pickle of 8 MiB has %zu items",
	    k);
	for (size_t i = 0; i < k; i++) {
		snprintf(want, sizeof(want), "%08zu", i);
		if (!ofs_pk_str_is(doc, ofs_pk_item(doc, root, (uint32_t)i + 2),
			want))
			wrong++;
	}
	ok(wrong == 0, "a pickle of 8 MiB has all its strings");
	ok(memcmp(ofs_pk_str(doc, ofs_pk_item(doc, root, 1)).p, "ABCDEFGHI",
	       9) == 0,
	    "a pickle of 8 MiB has its large number");
	ofs_pk_globals(doc, &nglobals);
	ok(nglobals == 1 &&
		memcmp(ofs_pk_globals(doc, &nglobals)->name.p, "OrderedDict",
		    11) == 0,
	    "a pickle of 8 MiB has its global");
	ofs_pickle_free(doc);
}

static void real(void)
{
	const char *top = getenv("TOP_SRCDIR");
	uint8_t *bytes = malloc(1 << 20);
	struct ofs_pickle *doc;
	char path[4096];
	uint32_t root, tensors;
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path),
	    "%s/tests/data/pytorch/dcp_fsdp2_w2/ckpt/.metadata",
	    top == NULL ? "." : top);
	f = fopen(path, "rb");
	if (f == NULL)
		bail_out("%s: %m", path);
	n = fread(bytes, 1, 1 << 20, f);
	fclose(f);
	doc = parse(bytes, n);
	root = ofs_pickle_root(doc);
	ok(ofs_pk_is(doc, root, "torch.distributed.checkpoint.metadata",
	       "Metadata"),
	    "the root of a real .metadata is a Metadata");
	tensors = ofs_pk_attr(doc, root, "state_dict_metadata");
	is_int(ofs_pk_kind(doc, tensors), OFS_PK_DICT,
	    "state_dict_metadata is a dict");
	ok(ofs_pk_len(doc, tensors) > 10,
	    "state_dict_metadata has more than ten items");
	ok(ofs_pickle_memory(doc) < 4 * n + 4096,
	    "a real .metadata needs less than four times its size");
	ofs_pickle_free(doc);
	free(bytes);
}

static void note_progress(void *ctx, uint64_t done, uint64_t total,
    const char *step)
{
	bool *good = ctx;

	*good =
	    done > 0 && done < total && strcmp(step, "parsing the index") == 0;
}

/* A list of more than 4 MiB. */
static void progress(void)
{
	bool good = false;
	const struct optimfs_watch watch = { .progress = note_progress,
		.ctx = &good };
	const struct ofs_pickle_limits limits = { .watch = &watch };
	struct ofs_buf b = { 0 };
	struct ofs_pickle *doc;

	ofs_buf_put(&b, "\x80\x02](", 4);
	for (int i = 0; i < 3 << 20; i++)
		ofs_buf_put(&b, "K\x01", 2);
	ofs_buf_put(&b, "e.", 2);
	doc = ofs_pickle_parse(b.data, b.len, true, &limits, NULL, NULL);
	ok(doc != NULL && good, "the progress of a large pickle is reported");
	ofs_pickle_free(doc);
}

int main(void)
{
	progress();
	table();
	floats();
	neutral();
	attributes();
	globals();
	allowed();
	states();
	fields();
	batches();
	shares();
	wrapped();
	equal_sizes();
	duplicates();
	streams();
	owned();
	large();
	real();
	return done_testing();
}
