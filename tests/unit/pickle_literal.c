/* pickle_literal.c - pickles of values given as Python literals */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "pickle/write.h"
#include "tap.h"

static struct ofs_buf out;
static struct ofs_pkw w;

static void begin(void)
{
	ofs_buf_fini(&out);
	w = (struct ofs_pkw){ .out = &out };
	ofs_pkw_begin(&w);
}

static void check(const char *want, size_t n, const char *name)
{
	struct optimfs_error err;

	if (!ok(ofs_pkw_end(&w, &err) == 0 && out.len == n,
		"%s: length of the pickle", name))
		diag("%zu bytes, not %zu", out.len, n);
	else
		is_mem(out.data, want, n, "%s: bytes of the pickle", name);
}

#define check_bytes(want, name) check(want, sizeof(want) - 1, name)

/* Expects the bytes that pickle.dumps(value, 2) gives for the value. */
#define is_pickle(want, ...)                   \
 do {                                          \
  begin();                                     \
  ofs_pkw_lit(&w, __VA_ARGS__);                \
  check(want, sizeof(want) - 1, #__VA_ARGS__); \
 } while (0)

static void as_python(void)
{
	is_pickle("\200\2N.", "None");
	is_pickle("\200\2\210.", "True");
	is_pickle("\200\2\211.", "False");
	is_pickle("\200\2K\0.", "0");
	is_pickle("\200\2K\377.", "255");
	is_pickle("\200\2M\0\1.", "256");
	is_pickle("\200\2Jp\21\1\0.", "70000");
	is_pickle("\200\2\212\5\0\0\0\0\2.", "8589934592");
	is_pickle("\200\2X\4\0\0\0textq\0.", "'text'");
	is_pickle("\200\2X\0\0\0\0q\0.", "''");
	is_pickle("\200\2]q\0.", "[]");
	is_pickle("\200\2]q\0K\1a.", "[1]");
	is_pickle("\200\2]q\0(K\1K\2e.", "[1, 2]");
	is_pickle("\200\2]q\0(K\1K\2e.", "[1, 2,]");
	is_pickle("\200\2}q\0.", "{}");
	is_pickle("\200\2}q\0X\1\0\0\0aq\1K\1s.", "{'a': 1}");
	is_pickle("\200\2}q\0(X\1\0\0\0aq\1NX\1\0\0\0bq\2\210u.",
	    "{'a': None, 'b': True}");
	is_pickle("\200\2).", "()");
	is_pickle("\200\2K\1\205q\0.", "(1)");
	is_pickle("\200\2K\1K\2\206q\0.", "(1, 2)");
	is_pickle("\200\2K\1K\2K\3\207q\0.", "(1, 2, 3)");
	is_pickle("\200\2(K\1K\2K\3K\4tq\0.", "(1, 2, 3, 4)");
	is_pickle("\200\2)K\1\205q\0\206q\1.", "((), (1))");
	is_pickle(
	    "\200\2}q\0(X\1\0\0\0kq\1]q\2}q\3h\1]q\4h\1asaX\1\0\0\0lq\5\211\205q\6u.",
	    "{'k': [{'k': ['k']}], 'l': (False)}");
	is_pickle("\200\2ca.b\nCls\nq\0.", "a.b.Cls");
	is_pickle("\200\2]q\0(ca.b\nCls\nq\1ca.b\nBare\nq\2h\1e.",
	    "[a.b.Cls, a.b.Bare, a.b.Cls]");
	is_pickle("\200\2ca.b\nCalled\nq\0)Rq\1.", "a.b.Called()");
	is_pickle("\200\2ca.b\nCalled\nq\0K\1X\1\0\0\0xq\1\206q\2Rq\3.",
	    "a.b.Called(1, 'x')");
	is_pickle("\200\2]q\0(ca.b\nCalled\nq\1K\7\205q\2Rq\3h\3e.",
	    "[$a.b.Called(7), $a.b.Called(7)]");
	is_pickle(
	    "\200\2]q\0(ca.b\nCalled\nq\1K\7\205q\2Rq\3h\1K\7\205q\4Rq\5e.",
	    "[a.b.Called(7), a.b.Called(7)]");
	is_pickle(
	    "\200\2ca.b\nCls\nq\0)\201q\1}q\2(X\1\0\0\0kq\3K\1X\1\0\0\0lq\4K\2\205q\5ub.",
	    "a.b.Cls<{'k': 1, 'l': (2)}>");
	is_pickle("\200\2ca.b\nBare\nq\0)\201q\1.", "a.b.Bare<>");
	is_pickle("\200\2ca.b\nTup\nq\0)\201q\1K\1X\1\0\0\0xq\2\206q\3b.",
	    "a.b.Tup<(1, 'x')>");
	is_pickle("\200\2ccollections\nOrderedDict\nq\0)Rq\1.",
	    "collections.OrderedDict(){}");
	is_pickle("\200\2ccollections\nOrderedDict\nq\0)Rq\1X\1\0\0\0aq\2K\1s.",
	    "collections.OrderedDict(){'a': 1}");
	is_pickle(
	    "\200\2ccollections\nOrderedDict\nq\0)Rq\1(X\1\0\0\0aq\2K\1X\1\0\0\0bq\3K\2u.",
	    "collections.OrderedDict(){'a': 1, 'b': 2}");
}

static void arguments(void)
{
	struct ofs_str s = { "abc", 2 };

	is_pickle("\200\2(J\377\377\377\377K\2M\0\1M\0\2tq\0.",
	    "(%d, %u, %" PRIu64 ", %" PRId64 ")", -1, 2u, UINT64_C(256),
	    INT64_C(512));
	is_pickle("\200\2G?\370\0\0\0\0\0\0.", "%f", 1.5);
	is_pickle("\200\2X\1\0\0\0xq\0X\1\0\0\0xq\1\206q\2.", "(%s, %s)", "x",
	    "x");
	is_pickle("\200\2X\1\0\0\0xq\0h\0\206q\1.", "('%s', 'x')", "x");
	is_pickle("\200\2X\2\0\0\0abq\0.", "%.*s", OFS_PKW_STR(s));
	is_pickle("\200\2ctorch\nfloat32\nq\0.", "torch.%s", "float32");
}

/* An object can be referred to by its number in the memo. */
static void numbers(void)
{
	int list = -1, call = -1;

	begin();
	ofs_pkw_lit(&w, "(a.b.C(1)%n, [%n ", &call, &list);
	ofs_pkw_lit(&w, "@%d], @%d)", call, list);
	is_int(call, 2, "a call has the number of its memo entry");
	is_int(list, 3, "an open list has the number of its memo entry");
	check_bytes("\200\2ca.b\nC\nq\0K\1\205q\1Rq\2]q\3h\2ah\3\207q\4.",
	    "references by number are read from the memo");
}

/* A container left open by one call is filled by later calls. */
static void in_pieces(void)
{
	static const uint64_t dims[] = { 2, 3 };

	begin();
	ofs_pkw_lit(&w, "{'size': torch.Size(");
	ofs_pkw_dims(&w, dims, 2);
	ofs_pkw_lit(&w, "), 'list': [");
	for (unsigned i = 0; i < 2; i++)
		ofs_pkw_lit(&w, "%u,", i);
	ofs_pkw_lit(&w, "]}");
	check_bytes(
	    "\200\2}q\0(X\4\0\0\0sizeq\1ctorch\nSize\nq\2K\2K\3\206q\3\205q"
	    "\4Rq\5X\4\0\0\0listq\6]q\7(K\0K\1eu.",
	    "a dict written in several calls");
}

/* A dict of n items gets the same batches as one whose items are added one by
 * one. */
static void batches(uint32_t n)
{
	struct ofs_buf want = { 0 };
	struct ofs_pkw one = { .out = &want };
	char name[64];

	ofs_pkw_begin(&one);
	ofs_pkw_op_put(&one, OFS_PKW_DICT);
	for (uint32_t i = 0; i <= n; i++) {
		ofs_pkw_item(&one, i, n, OFS_PKW_SETITEM, OFS_PKW_SETITEMS);
		if (i == n)
			break;
		ofs_pkw_int(&one, i);
		ofs_pkw_op_put(&one, OFS_PKW_LIST);
	}
	ofs_pkw_op(&one, OFS_PKW_STOP);
	begin();
	ofs_pkw_lit(&w, "{");
	for (uint32_t i = 0; i < n; i++)
		ofs_pkw_lit(&w, "%u: [],", i);
	ofs_pkw_lit(&w, "}");
	snprintf(name, sizeof(name), "a dict of %u items in batches", n);
	check((char *)want.data, want.len, name);
	ofs_buf_fini(&want);
}

static void whole(void)
{
	is_pickle("\200\2]q\0(K\1e.", "[*1]");
	is_pickle("\200\2}q\0(K\1K\2u.", "{*1: 2}");
	is_pickle("\200\2}q\0(u.", "{*}");
}

/* Without a memo, equal strings and objects are written each time. */
static void plain(void)
{
	begin();
	w.plain = true;
	ofs_pkw_lit(&w, "['a', 'a', $a.b.C(1), $a.b.C(1)]");
	check_bytes("\200\2](X\1\0\0\0aX\1\0\0\0aca.b\nC\nK\1\205Rca.b\nC\nK\1"
		    "\205Re.",
	    "strings and calls without a memo");
}

static void no_memory(void)
{
	struct optimfs_error err;
	bool all = true;

	for (size_t limit = 1; limit < 60; limit++) {
		begin();
		out.limit = limit;
		ofs_pkw_lit(&w,
		    "{'a': [(1), (2, 3)], 'b': a.b.C<{'a': 1}>, 'c': (1)}");
		all = all && ofs_pkw_end(&w, &err) == -1 && err.code == ENOMEM;
		out.limit = 0;
	}
	ok(all, "a full buffer fails with ENOMEM at the end");
}

int main(void)
{
	static const uint32_t n[] = { 0, 1, 2, 999, 1000, 1001, 2000, 2001 };

	as_python();
	arguments();
	numbers();
	in_pieces();
	for (size_t i = 0; i < sizeof(n) / sizeof(*n); i++)
		batches(n[i]);
	whole();
	plain();
	no_memory();
	ofs_buf_fini(&out);
	return done_testing();
}
