/* pickle_hostile.c - malformed pickles, and pickles made to exhaust a reader */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/buf.h"
#include "pickle/pickle.h"
#include "tap.h"

#define P(s) s, sizeof(s) - 1

/* Pickles and the error of each; P numbers are rows of
 * docs/formats/pickle.md. */
static const struct {
	const char *what;
	const char *bytes;
	size_t n;
	int code;
	const char *text;
} refused[] = {
	{ "P01 an empty pickle", P(""), EUCLEAN, "OFS401 empty pickle" },
	{ "P02 a pickle without STOP", P("\x80\x02N"), EUCLEAN,
	    "OFS402 pickle ends at offset 3 without STOP" },
	{ "P03 an empty stack at STOP", P("\x80\x02."), EUCLEAN,
	    "OFS403 pickle at offset 2: stack depth 0" },
	{ "P03 two items at STOP", P("\x80\x02NN."), EUCLEAN,
	    "OFS403 pickle at offset 4: stack depth 2" },
	{ "P03 a mark at STOP", P("N(."), EUCLEAN, "OFS403 " },
	{ "P04 a truncated BININT", P("J\1\2"), EUCLEAN,
	    "OFS404 pickle at offset 0: truncated operand of BININT" },
	{ "P04 a truncated BINFLOAT", P("G\1\2\3"), EUCLEAN, "OFS404 " },
	{ "P04 a truncated short string",
	    P("\x8c\x05"
	      "abc."),
	    EUCLEAN,
	    "OFS404 pickle at offset 0: truncated operand of"
	    " SHORT_BINUNICODE" },
	{ "P04 a truncated global name", P("cos\nsystem"), EUCLEAN, "OFS404 " },
	{ "P04 a truncated memo index", P("]r\0\0"), EUCLEAN, "OFS404 " },
	{ "P04 a missing protocol number", P("\x80"), EUCLEAN, "OFS404 " },
	{ "P04 a truncated length", P("X\1\0\0"), EUCLEAN, "OFS404 " },
	{ "P04 a truncated integer", P("\x8a\x04\1\2."), EUCLEAN, "OFS404 " },
	{ "P06 bytes after STOP", P("N.xyz"), EUCLEAN,
	    "OFS405 pickle: 3 bytes after STOP" },
	{ "P07 protocol 6", P("\x80\x06N."), EOPNOTSUPP,
	    "OFS406 pickle at offset 0: pickle protocol 6" },
	{ "P07 protocol 255", P("\x80\xffN."), EOPNOTSUPP, "OFS406 " },
	{ "P08 PROTO in the middle", P("\x80\x04N\x80\x04."), EUCLEAN,
	    "OFS407 pickle at offset 3" },
	{ "P13 memo index 2^31-1", P("]r\xff\xff\xff\x7f."), EUCLEAN,
	    "OFS411 pickle at offset 1: memo index 2147483647 after 0 puts" },
	{ "P13 memo index 2^32-1", P("]q\0r\xff\xff\xff\xff."), EUCLEAN,
	    "OFS411 pickle at offset 3: memo index 4294967295 after 1 puts" },
	{ "P13 a large memo index as text", P("]p99999999999\n."), EUCLEAN,
	    "OFS412 " },
	{ "P14 BINGET of an unset index", P("h\5."), EUCLEAN,
	    "OFS412 pickle at offset 0: memo index 5 not set" },
	{ "P14 LONG_BINGET of an unset index", P("j\0\0\0\xff."), EUCLEAN,
	    "OFS412 " },
	{ "P14 GET of an unset index", P("g7\n."), EUCLEAN, "OFS412 " },
	{ "P14 BINGET of a gap in the memo", P("]q\5h\4."), EUCLEAN,
	    "OFS412 " },
	{ "P15 BINPUT with an empty stack", P("q\0."), EUCLEAN, "OFS413 " },
	{ "P15 MEMOIZE with an empty stack", P("\x94."), EUCLEAN, "OFS413 " },
	{ "P15 BINPUT of a mark", P("N(q\0."), EUCLEAN, "OFS413 " },
	{ "P17 a string of 2^62 bytes",
	    P("\x8d\0\0\0\0\0\0\0\x40"
	      "abc"),
	    EUCLEAN,
	    "OFS414 pickle at offset 0: length 4611686018427387904 exceeds"
	    " the 3 bytes left" },
	{ "P17 a bytes object of 2^63 bytes", P("\x8e\0\0\0\0\0\0\0\x80"),
	    EUCLEAN, "OFS414 " },
	{ "P17 a bytearray of 2^64-1 bytes",
	    P("\x96\xff\xff\xff\xff\xff\xff\xff\xff"
	      "abc"),
	    EUCLEAN, "OFS414 " },
	{ "P18 a string of 2^32-1 bytes",
	    P("X\xff\xff\xff\xff"
	      "0123456789"),
	    EUCLEAN, "OFS414 " },
	{ "P18 a bytes object of 2^32-1 bytes",
	    P("B\xff\xff\xff\xff"
	      "0123456789"),
	    EUCLEAN, "OFS414 " },
	{ "P19 LONG4 of -1 bytes", P("\x8b\xff\xff\xff\xff."), EUCLEAN,
	    "OFS415 pickle at offset 0: negative length" },
	{ "P19 LONG4 of 2^31-1 bytes", P("\x8b\xff\xff\xff\x7f."), EUCLEAN,
	    "OFS414 " },
	{ "P23 a frame past the end", P("\x80\x04\x95\x05\0\0\0\0\0\0\0N."),
	    EUCLEAN, "OFS419 pickle at offset 2: frame of 5 bytes, 2" },
	{ "P23 a frame of 2^40 bytes", P("\x95\0\0\0\0\0\1\0\0N."), EUCLEAN,
	    "OFS419 " },
	{ "P29 a space in a global name", P("cos\nsy stem\n."), EUCLEAN,
	    "OFS422 pickle at offset 0: bad global name 'os sy stem'" },
	{ "P29 a dot in a global name before protocol 4",
	    P("\x80\x02"
	      "cos\npath.join\n."),
	    EUCLEAN, "OFS422 " },
	{ "P29 a carriage return in a global name", P("cos\nsystem\r\n."),
	    EUCLEAN,
	    "OFS422 pickle at offset 0: bad global name 'os system\\x0d'" },
	{ "P29 a global without a module", P("c\nsystem\n."), EUCLEAN,
	    "OFS422 " },
	{ "P29 a global without a name", P("cos\n\n."), EUCLEAN, "OFS422 " },
	{ "P29 invalid UTF-8 in a global name", P("cos\nsy\xffstem\n."),
	    EUCLEAN, "OFS422 " },
	{ "P29 a global name that is not ASCII", P("cos\nsyst\xc3\xa9m\n."),
	    EUCLEAN, "OFS422 " },
	{ "P29 two dots in a global name",
	    P("\x80\x04\x8c\x02os\x8c\x04"
	      "a..b\x93."),
	    EUCLEAN, "OFS422 " },
	{ "P29 a global name that begins with a digit", P("cos\n1a\n."),
	    EUCLEAN, "OFS422 " },
	{ "P29 STACK_GLOBAL of two ints", P("K\1K\2\x93."), EUCLEAN,
	    "OFS422 pickle at offset 4: STACK_GLOBAL of int and int" },
	{ "P30 REDUCE of a list", P("])R."), EUCLEAN,
	    "OFS423 pickle at offset 2: REDUCE of list" },
	{ "P30 REDUCE of an int", P("K\1)R."), EUCLEAN, "OFS423 " },
	{ "P30 REDUCE of a str", P("\x8c\1a)R."), EUCLEAN, "OFS423 " },
	{ "P30 REDUCE with a list as arguments", P("cm\nf\n]R."), EUCLEAN,
	    "OFS423 pickle at offset 6: arguments of REDUCE are list" },
	{ "P30 NEWOBJ of None", P("N)\x81."), EUCLEAN, "OFS423 " },
	{ "P30 NEWOBJ_EX with a list as keywords", P("cm\nC\n)]\x92."), EUCLEAN,
	    "OFS423 " },
	{ "P31 BUILD of an int", P("K\1}b."), EUCLEAN,
	    "OFS424 pickle at offset 3: BUILD of int" },
	{ "P31 BUILD of a tuple", P(")}b."), EUCLEAN, "OFS424 " },
	{ "P31 BUILD of None", P("N}b."), EUCLEAN, "OFS424 " },
	{ "P31 BUILD of a plain dict", P("}}b."), EUCLEAN, "OFS424 " },
	{ "P31 BUILD of a class", P("cm\nC\n}b."), EUCLEAN, "OFS424 " },
	{ "P31 BUILD with an int as state",
	    P("ccollections\nOrderedDict\n)RK\1b."), EUCLEAN, "OFS424 " },
	{ "P31 a second BUILD of one object", P("cm\nC\n)\x81}b}b."), EUCLEAN,
	    "OFS424 " },
	{ "P32 SETITEM of a list", P("]K\1K\2s."), EUCLEAN,
	    "OFS425 pickle at offset 5: SETITEM of list" },
	{ "P32 SETITEMS of a tuple", P(")(K\1K\2u."), EUCLEAN, "OFS425 " },
	{ "P32 SETITEMS of an int", P("K\1(K\1K\2u."), EUCLEAN, "OFS425 " },
	{ "P32 APPEND of a dict", P("}K\1a."), EUCLEAN, "OFS425 " },
	{ "P32 APPENDS of a str", P("\x8c\1x(K\1e."), EUCLEAN, "OFS425 " },
	{ "P32 APPEND of a class", P("cm\nC\nK\1a."), EUCLEAN, "OFS425 " },
	{ "P32 ADDITEMS of a list", P("](K\1\x90."), EUCLEAN, "OFS425 " },
	{ "P32 ADDITEMS of a frozenset", P("(\x91(K\1\x90."), EUCLEAN,
	    "OFS425 " },
	{ "P33 SETITEMS of a key without a value", P("}(K\1K\2K\3u."), EUCLEAN,
	    "OFS426 " },
	{ "P33 DICT of a key without a value", P("(K\1d."), EUCLEAN,
	    "OFS426 " },
	{ "P34 a list as a key", P("}]K\1s."), EUCLEAN,
	    "OFS427 pickle at offset 4: list as a key" },
	{ "P34 a dict as a key", P("}(}K\1u."), EUCLEAN, "OFS427 " },
	{ "P34 a set as a key", P("}\x8fNs."), EUCLEAN, "OFS427 " },
	{ "P34 a tuple with a list as a key", P("}]\x85Ns."), EUCLEAN,
	    "OFS427 " },
	{ "P34 a bytearray as a key", P("}\x96\0\0\0\0\0\0\0\0Ns."), EUCLEAN,
	    "OFS427 " },
	{ "P34 a list in a set", P("\x8f(]\x90."), EUCLEAN, "OFS427 " },
	{ "P34 a list in a frozenset", P("(]\x91."), EUCLEAN, "OFS427 " },
	{ "P34 a list in set(...)", P("cbuiltins\nset\n]]a\x85R."), EUCLEAN,
	    "OFS427 " },
	{ "P37 EXT1", P("\x82\1."), EPERM, "OFS430 " },
	{ "P37 EXT2", P("\x83\1\0."), EPERM, "OFS430 " },
	{ "P37 EXT4", P("\x84\1\0\0\0."), EPERM, "OFS430 " },
	{ "P38 INST", P("(ios\nsystem\n."), EOPNOTSUPP,
	    "OFS431 pickle at offset 1: opcode 'i' of pickle protocol 0: " },
	{ "P38 OBJ", P("(cos\nsystem\no."), EOPNOTSUPP, "OFS431 " },
	{ "P38 PERSID", P("P0\n."), EOPNOTSUPP, "OFS431 " },
	{ "P38 INT, empty", P("I\n."), EUCLEAN, "OFS438 " },
	{ "P38 INT, no number", P("I1x\n."), EUCLEAN, "OFS438 " },
	{ "P38 INT, a sign", P("I-\n."), EUCLEAN, "OFS438 " },
	{ "P38 INT, a NUL", P("I1\0002\n."), EUCLEAN, "OFS438 " },
	{ "P38 INT, truncated", P("I1"), EUCLEAN, "OFS404 " },
	{ "P38 LONG, 65 bits", P("L18446744073709551616L\n."), EUCLEAN,
	    "OFS438 " },
	{ "P38 LONG, long", P("L100000000000000000000000L\n."), E2BIG,
	    "OFS438 " },
	{ "P38 FLOAT", P("F1.0\n."), EOPNOTSUPP, "OFS431 " },
	{ "P38 STRING", P("S'a'\n."), EOPNOTSUPP, "OFS431 " },
	{ "P38 UNICODE", P("Va\n."), EOPNOTSUPP, "OFS431 " },
	{ "P39 NEXT_BUFFER", P("\x97."), EOPNOTSUPP, "OFS432 " },
	{ "P39 READONLY_BUFFER", P("N\x98."), EOPNOTSUPP, "OFS432 " },
	{ "P40 a str as persistent ID", P("\x8c\1aQ."), EUCLEAN,
	    "OFS433 pickle at offset 3: persistent id" },
	{ "P40 an int as persistent ID", P("K\1Q."), EUCLEAN, "OFS433 " },
	{ "P40 a persistent ID of three items", P("\x8c\7storageNN\x87Q."),
	    EUCLEAN, "OFS433 " },
	{ "P40 a persistent ID with a wrong tag",
	    P("(\x8c\1xcm\nC\n\x8c\1"
	      "0\x8c\1"
	      "cK\1tQ."),
	    EUCLEAN, "OFS433 " },
	{ "P40 a persistent ID with an int as key",
	    P("(\x8c\7storagecm\nC\nK\0\x8c\1"
	      "cK\1tQ."),
	    EUCLEAN, "OFS433 " },
	{ "P40 a persistent ID with an int as class",
	    P("(\x8c\7storageK\0\x8c\1"
	      "0\x8c\1"
	      "cK\1tQ."),
	    EUCLEAN, "OFS433 " },
	{ "P40 a persistent ID without a size",
	    P("(\x8c\7storagecm\nC\n\x8c\1"
	      "0\x8c\1"
	      "cNtQ."),
	    EUCLEAN, "OFS433 " },
	{ "P43 POP of an empty stack", P("0."), EUCLEAN, "OFS436 " },
	{ "P43 POP of a mark", P("(0."), EUCLEAN, "OFS436 " },
	{ "P43 POP_MARK without a mark", P("N1."), EUCLEAN, "OFS436 " },
	{ "P43 DUP of an empty stack", P("2."), EUCLEAN, "OFS436 " },
	{ "P43 DUP past a mark", P("N(2."), EUCLEAN, "OFS436 " },
	{ "P43 TUPLE2 of one item", P("N\x86."), EUCLEAN,
	    "OFS436 pickle at offset 1: TUPLE2 needs 2 items of the stack,"
	    " there are 1" },
	{ "P43 TUPLE without a mark", P("Nt."), EUCLEAN, "OFS436 " },
	{ "P43 APPENDS without a list", P("(K\1e."), EUCLEAN, "OFS436 " },
	{ "P43 SETITEM past a mark", P("}(NNs."), EUCLEAN, "OFS436 " },
	{ "P43 REDUCE of an empty stack", P("R."), EUCLEAN, "OFS436 " },
	{ "P43 BUILD of one item", P("}b."), EUCLEAN, "OFS436 " },
	{ "P43 BINPERSID of an empty stack", P("Q."), EUCLEAN, "OFS436 " },
	{ "P43 STACK_GLOBAL of one item", P("\x8c\1a\x93."), EUCLEAN,
	    "OFS436 " },
	{ "P44 opcode 0", P("\0."), EUCLEAN,
	    "OFS437 pickle at offset 0: unknown opcode 0x00" },
	{ "P44 opcode 255", P("N\xff."), EUCLEAN,
	    "OFS437 pickle at offset 1: unknown opcode 0xff" },
};

static struct ofs_pickle *parse(const void *bytes, size_t n,
    struct optimfs_error *err)
{
	*err = (struct optimfs_error){ 0 };
	return ofs_pickle_parse(bytes, n, false, NULL, NULL, err);
}

static void table(void)
{
	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
		struct optimfs_error err;

		/* An allocation of the exact size lets the sanitizers see reads
		 * past it. */
		uint8_t *copy = malloc(refused[i].n + 1);

		memcpy(copy, refused[i].bytes, refused[i].n);
		copy = realloc(copy, refused[i].n == 0 ? 1 : refused[i].n);
		ok(parse(copy, refused[i].n, &err) == NULL, "%s: is refused",
		    refused[i].what);
		is_error(err, refused[i].code, refused[i].text,
		    "%s: error text", refused[i].what);
		free(copy);
	}
}

static struct ofs_pickle *parse_buf(struct ofs_buf *b,
    struct optimfs_error *err)
{
	if (b->bad)
		bail_out("out of memory");
	return parse(b->data, b->len, err);
}

static void repeat(struct ofs_buf *b, const char *s, size_t n, int times)
{
	for (int i = 0; i < times; i++)
		ofs_buf_put(b, s, n);
}

/* P09, P10: excessive nesting, of opcodes and by way of the memo. */
static void deep(void)
{
	struct ofs_buf b = { 0 };
	struct optimfs_error err;
	struct ofs_pickle *doc;

	repeat(&b, P("("), 1000000);
	repeat(&b, P("t"), 1000000);
	ofs_buf_puts(&b, ".");
	ok(parse_buf(&b, &err) == NULL,
	    "P09 a million nested tuples are refused");
	is_error(err, E2BIG, "nesting deeper than 64",
	    "P09 a million nested tuples: error text");
	b.len = 0;
	repeat(&b, P("]"), 1000000);
	repeat(&b, P("a"), 999999);
	ofs_buf_puts(&b, ".");
	ok(parse_buf(&b, &err) == NULL,
	    "P10 a million nested lists are refused");
	is_error(err, E2BIG, "OFS410 ",
	    "P10 a million nested lists: error text");
	b.len = 0;
	/* Each list is appended to an older one that is nested already, so the
	 * depth is known only at the end. */
	ofs_buf_puts(&b, "]\x94");
	repeat(&b, P("]\x94"), 100);
	for (int i = 0; i < 100; i++) {
		const char append[] = { 'h', (char)(99 - i), 'h',
			(char)(100 - i), 'a', '0' };
		ofs_buf_put(&b, append, sizeof(append));
	}
	repeat(&b, P("0"), 100);
	ofs_buf_puts(&b, ".");
	ok(parse_buf(&b, &err) == NULL,
	    "P10 lists nested from the inside by memo are refused");
	is_error(err, E2BIG, "OFS410 ",
	    "P10 lists nested from the inside by memo: error text");
	b.len = 0;
	ofs_buf_puts(&b, "]\x94");
	for (int i = 0; i < 100; i++) {
		const char nest[] = { 'h', (char)i, ']', (char)0x94, 'a', '0' };

		ofs_buf_put(&b, nest, sizeof(nest));
	}
	ofs_buf_puts(&b, ".");
	ok(parse_buf(&b, &err) == NULL,
	    "P10 lists nested from the outside by memo are refused");
	is_error(err, E2BIG, "OFS410 ",
	    "P10 lists nested from the outside by memo: error text");
	b.len = 0;
	repeat(&b, P("]"), 64);
	repeat(&b, P("a"), 63);
	ofs_buf_puts(&b, ".");
	doc = parse_buf(&b, &err);
	ok(doc != NULL, "P10 64 nested lists are accepted");
	ofs_pickle_free(doc);
	ofs_buf_fini(&b);
}

/* P11, P12: shared nodes keep expanding references small. */
static void bombs(void)
{
	struct ofs_buf b = { 0 };
	struct optimfs_error err;
	struct ofs_pickle *doc;

	ofs_buf_puts(&b, "K\x01");
	repeat(&b, P("2\x86"), 60);
	ofs_buf_puts(&b, ".");
	doc = parse_buf(&b, &err);
	ok(doc != NULL, "P11 sixty doublings are accepted");
	if (doc != NULL)
		ok(ofs_pickle_memory(doc) < 8192,
		    "P11 sixty doublings need less than 8 KiB");
	ofs_pickle_free(doc);
	b.len = 0;
	ofs_buf_puts(&b, "K\x01");
	repeat(&b, P("2\x86"), 100);
	ofs_buf_puts(&b, ".");
	ok(parse_buf(&b, &err) == NULL, "P11 a hundred doublings are refused");
	is_error(err, E2BIG, "OFS410 ", "P11 a hundred doublings: error text");
	b.len = 0;
	ofs_buf_puts(&b, "]]\x94(");
	repeat(&b, P("K\x01"), 1000000);
	ofs_buf_puts(&b, "e0(");
	repeat(&b, P("h\0"), 1000000);
	ofs_buf_puts(&b, "e.");
	doc = parse_buf(&b, &err);
	ok(doc != NULL,
	    "P12 a list of a million references to a list is accepted");
	if (doc != NULL)
		ok(ofs_pickle_memory(doc) < 12 << 20,
		    "P12 a million references cost one list");
	ofs_pickle_free(doc);
	ofs_buf_fini(&b);
}

static void budget(void)
{
	struct ofs_pickle_limits limits = { .memory = 100000 };
	struct ofs_buf b = { 0 };
	struct optimfs_error err = { 0 };
	struct ofs_pickle *doc;

	ofs_buf_puts(&b, "](");
	repeat(&b, P("]"), 100000);
	ofs_buf_puts(&b, "e.");
	doc = ofs_pickle_parse(b.data, b.len, false, &limits, NULL, &err);
	ok(doc == NULL, "P48 nodes beyond the memory budget are refused");
	is_error(err, ENOMEM, "needs more than 100000 bytes",
	    "P48 nodes beyond the memory budget: error text");
	is_error(err, ENOMEM, "(-o parse_mem)",
	    "P48 the error names the option for the budget");
	b.len = 0;
	/* Each copy of a mapping counts. */
	ofs_buf_puts(&b, "ccollections\nCounter\n\x94}\x94(");
	for (int i = 0; i < 255; i++) {
		const char pair[] = { 'K', (char)i, 'N' };

		ofs_buf_put(&b, pair, sizeof(pair));
	}
	ofs_buf_puts(&b, "u0]");
	repeat(&b, P("h\0h\1\x85Ra"), 1000);
	ofs_buf_puts(&b, ".");
	doc = ofs_pickle_parse(b.data, b.len, false, &limits, NULL, &err);
	ok(doc == NULL, "P48 copies of a dict beyond the budget are refused");
	is_error(err, ENOMEM, "OFS441 ",
	    "P48 copies of a dict beyond the budget: error text");
	ofs_buf_fini(&b);
}

static void long_names(void)
{
	struct ofs_buf b = { 0 };
	struct optimfs_error err;

	ofs_buf_puts(&b, "cos\n");
	repeat(&b, P("a"), 1 << 20);
	ofs_buf_puts(&b, "\n.");
	ok(parse_buf(&b, &err) == NULL,
	    "P29 a global name of 1 MiB is refused");
	is_error(err, EUCLEAN, "OFS422 ",
	    "P29 a global name of 1 MiB: error text");
	ok(strlen(err.text) < 300,
	    "P29 a long global name is shortened in the message");
	b.len = 0;
	ofs_buf_puts(&b, "]");
	for (int i = 0; i < 70000; i++)
		ofs_buf_printf(&b, "cm\nC%d\n0", i);
	ofs_buf_puts(&b, ".");
	ok(parse_buf(&b, &err) == NULL, "70000 different globals are refused");
	is_error(err, E2BIG, "OFS439 ", "70000 different globals: error text");
	b.len = 0;
	ofs_buf_put(&b, "\x8b\x01\x10\0\0", 5);
	repeat(&b, P("\x01"), 4097);
	ofs_buf_puts(&b, ".");
	ok(parse_buf(&b, &err) == NULL,
	    "P20 an integer of 4097 bytes is refused");
	is_error(err, E2BIG, "OFS438 ",
	    "P20 an integer of 4097 bytes: error text");
	ofs_buf_fini(&b);
}

/* A string that has no int for its length, which printf("%.*s") needs. */
static void long_string(void)
{
	const size_t n = ((size_t)1 << 31) + 16;
	struct optimfs_error err = { 0 };
	uint8_t *p = mmap(NULL, n, PROT_READ | PROT_WRITE,
	    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		bail_out("mmap: %m");
	memcpy(p, "X\0\0\0\x80", 5);
	ok(ofs_pickle_parse(p, n, false, NULL, NULL, &err) == NULL,
	    "a string of 2 GiB is refused");
	is_error(err, E2BIG, "OFS438 ", "a string of 2 GiB: error text");
	munmap(p, n);
}

/* P36: a node that contains itself is replaced by a cycle node. */
static void cycles(void)
{
	static const struct {
		const char *what, *bytes;
		size_t n;
	} cases[] = {
		{ "a list that contains itself", P("]\x94h\0a.") },
		{ "a dict that contains itself", P("}\x94K\1h\0s.") },
		{ "two lists that contain each other", P("]\x94]\x94h\0aa.") },
		{ "a list that contains a tuple of itself",
		    P("]\x94h\0\x85\x94"
		      "a.") },
		{ "an object whose state contains it",
		    P("cm\nC\n)\x81\x94}K\1h\0sb.") },
		{ "an OrderedDict whose state contains it",
		    P("ccollections\nOrderedDict\n)R\x94}K\1h\0sb.") },
		{ "an object whose state is the list that contains it",
		    P("]\x94"
		      "cm\nC\n)\x81h\0ba.") },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct optimfs_error err;
		struct ofs_pickle *doc =
		    parse(cases[i].bytes, cases[i].n, &err);
		uint32_t node;
		int steps = 0;

		ok(doc != NULL, "P36 %s is parsed", cases[i].what);
		if (doc == NULL) {
			diag("%s", err.text);
			continue;
		}
		node = ofs_pickle_root(doc);
		for (; !ofs_pk_is_cycle(doc, node) && steps < 20; steps++) {
			uint32_t next = ofs_pk_state(doc, node);

			if (next == OFS_NONE)
				next = ofs_pk_item(doc, node, 0);
			if (next == OFS_NONE)
				next = ofs_pk_val(doc, node, 0);
			node = next;
		}
		ok(steps < 20, "P36 %s: descending ends at a cycle node",
		    cases[i].what);
		is_str(ofs_pk_kind_name(doc, node), "cycle",
		    "P36 %s: name of the cycle node", cases[i].what);
		is_int(ofs_pk_kind(doc, node), OFS_PK_OBJECT,
		    "P36 %s: the cycle node is an object", cases[i].what);
		ok(ofs_pk_callable(doc, node) == OFS_NONE,
		    "P36 %s: the cycle node has no class", cases[i].what);
		ofs_pickle_free(doc);
	}
}

static void real_path(char *path, size_t size)
{
	const char *top = getenv("TOP_SRCDIR");

	snprintf(path, size,
	    "%s/tests/data/extra/dcp_variants/dcp_plain_multifile/.metadata",
	    top == NULL ? "." : top);
}

static uint8_t *read_real(size_t *n)
{
	char path[4096];
	uint8_t *bytes = malloc(1 << 20);
	FILE *f;

	real_path(path, sizeof(path));
	f = fopen(path, "rb");
	if (f == NULL || bytes == NULL)
		bail_out("%s: %m", path);
	*n = fread(bytes, 1, 1 << 20, f);
	fclose(f);
	return bytes;
}

/* P04: a real file cut at each length. */
static void cut(void)
{
	struct optimfs_error err;
	struct ofs_pickle *doc;
	size_t n, right = 0;
	uint8_t *bytes = read_real(&n);

	for (size_t i = 0; i < n; i++) {
		uint8_t *copy = malloc(i == 0 ? 1 : i);

		memcpy(copy, bytes, i);
		doc = parse(copy, i, &err);
		/* A frame or a string reports first that it does not fit. */
		if (doc == NULL && err.code == EUCLEAN &&
		    (strncmp(err.text, "OFS401", 6) == 0 ||
			strncmp(err.text, "OFS402", 6) == 0 ||
			strncmp(err.text, "OFS404", 6) == 0 ||
			strncmp(err.text, "OFS414", 6) == 0 ||
			strncmp(err.text, "OFS419", 6) == 0))
			right++;
		else
			diag("%zu bytes: %s", i, err.text);
		ofs_pickle_free(doc);
		free(copy);
	}
	ok(n > 1000, "the real .metadata is long enough: %zu bytes", n);
	is_u64(right, n, "P04 each truncation of a real .metadata is detected");
	free(bytes);
}

/* P05: a parser survives each flipped bit; most flips are detected. */
static void flip(void)
{
	struct optimfs_error err;
	struct ofs_pickle *doc;
	size_t n, silent = 0, odd = 0;
	uint8_t *bytes = read_real(&n);

	for (size_t i = 0; i < n * 8; i++) {
		bytes[i / 8] ^= (uint8_t)(1 << i % 8);
		doc = parse(bytes, n, &err);
		if (doc == NULL &&
		    (strncmp(err.text, "OFS4", 4) != 0 || err.code == 0))
			odd++;
		silent += doc != NULL;
		ofs_pickle_free(doc);
		bytes[i / 8] ^= (uint8_t)(1 << i % 8);
	}
	is_u64(odd, 0, "P05 each refused bit flip has an error code");
	diag("%zu of %zu bit flips give another valid pickle", silent, n * 8);
	doc = parse(bytes, n, &err);
	ok(doc != NULL, "P05 the original .metadata is valid");
	ofs_pickle_free(doc);
	free(bytes);
}

/* P48: with any budget, parsing gives a document or OFS441. */
static void every_budget(void)
{
	struct optimfs_error err = { 0 };
	size_t n, wrong = 0;
	uint8_t *bytes = read_real(&n);
	bool done = false;

	for (uint64_t m = 1; !done && m < 1 << 20; m += 37) {
		struct ofs_pickle_limits limits = { .memory = m };
		struct ofs_pickle *doc =
		    ofs_pickle_parse(bytes, n, false, &limits, NULL, &err);

		done = doc != NULL;
		if (done)
			wrong += ofs_pickle_memory(doc) > m;
		else
			wrong += err.code != ENOMEM ||
			    strncmp(err.text, "OFS441", 6) != 0;
		ofs_pickle_free(doc);
	}
	ok(done, "P48 a sufficient budget gives a document");
	is_u64(wrong, 0, "P48 any smaller budget gives OFS441");
	free(bytes);
}

int main(void)
{
	table();
	deep();
	bombs();
	budget();
	long_names();
	long_string();
	cycles();
	cut();
	flip();
	every_budget();
	return done_testing();
}
