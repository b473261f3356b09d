/* pickle_splice.c - items replaced, dropped and added in a pickle */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pickle/pickle.h"
#include "pickle/splice.h"
#include "tap.h"
#include "text/text.h"

#define P(s) s, sizeof(s) - 1

/* A path from the root, through items of lists and tuples and pairs of
 * dicts. */
struct edit {
	const char *path; /* indexes as digits; the last one is the item */
	enum ofs_pk_splice_op op;
	const char *bytes;
};

static const struct {
	const char *pickle;
	size_t n;
	struct edit edit[4];
	const char *text; /* NULL: the edit is refused */
} cases[] = {
	/* A replaced value stays in the memo if others refer to it. */
	{ P("\x80\x02](K\x01K\x02\x86q\x01h\x01h\x01"
	    "e."),
	    { { "0", OFS_PK_REPLACE, "K\x09" } }, "[9, [1, 2], [1, 2]]\n" },
	{ P("\x80\x02](K\x01K\x02\x86q\x01h\x01h\x01"
	    "e."),
	    { { "1", OFS_PK_REPLACE, "N" }, { "2", OFS_PK_DROP, NULL } },
	    "[[1, 2], null]\n" },
	{ P("\x80\x02](K\x01K\x02\x86q\x01h\x01h\x01"
	    "e."),
	    { { "01", OFS_PK_REPLACE, "K\x05" } },
	    "[[1, 5], [1, 5], [1, 5]]\n" },
	/* Dicts with items in batches and one by one. */
	{ P("\x80\x02}q\0(K\x0aK\x01K\x0bK\x02uK\x0cK\x03s."),
	    { { "0", OFS_PK_REPLACE, "K\x07" }, { "2", OFS_PK_REPLACE, "N" },
		{ "0", OFS_PK_ADD, "K\x0dK\x04" } },
	    "{\"10\": 7, \"11\": 2, \"12\": null, \"13\": 4}\n" },
	{ P("\x80\x02}q\0(K\x0aK\x01K\x0bK\x02uK\x0cK\x03s."),
	    { { "0", OFS_PK_DROP, NULL }, { "1", OFS_PK_DROP, NULL },
		{ "2", OFS_PK_DROP, NULL } },
	    "{}\n" },
	{ P("\x80\x02}q\0(K\x0aK\x01K\x0bK\x02u."),
	    { { "1", OFS_PK_DROP, NULL }, { "0", OFS_PK_ADD, "K\x0cK\x03" },
		{ "1", OFS_PK_ADD, "K\x0dK\x04" } },
	    "{\"10\": 1, \"12\": 3, \"13\": 4}\n" },
	/* Empty containers, with and without a memo entry. */
	{ P("\x80\x02}q\0."), { { "0", OFS_PK_ADD, "K\x01K\x02" } },
	    "{\"1\": 2}\n" },
	{ P("\x80\x04}."), { { "0", OFS_PK_ADD, "K\x01K\x02" } },
	    "{\"1\": 2}\n" },
	{ P("\x80\x04]\x94."), { { "0", OFS_PK_ADD, "K\x01" } }, "[1]\n" },
	{ P("\x80\x02](]q\x01}q\x02"
	    "e."),
	    { { "00", OFS_PK_ADD, "K\x01" },
		{ "10", OFS_PK_ADD, "K\x03K\x04" } },
	    "[[1], {\"3\": 4}]\n" },
	/* Frames, MEMOIZE, and nested tuples after a MARK. */
	{ P("\x80\x04\x95\x14\0\0\0\0\0\0\0]\x94(K\x01(K\x02K\x03K\x04K\x05t\x94h"
	    "\1K\x06"
	    "e."),
	    { { "0", OFS_PK_REPLACE, "K\x08" }, { "12", OFS_PK_REPLACE, "N" },
		{ "3", OFS_PK_REPLACE, "K\x09" } },
	    "[8, [2, 3, null, 5], [2, 3, null, 5], 9]\n" },
	/* Objects of unknown classes keep their arguments. */
	{ P("\x80\x02"
	    "cmy\nDict\nK\x05\x85Rq\x01(K\x01K\x02K\x03K\x04u."),
	    { { "1", OFS_PK_REPLACE, "K\x09" },
		{ "0", OFS_PK_ADD, "K\x07K\x08" } },
	    "{\"1\": 2, \"3\": 9, \"7\": 8}\n" },
	{ P("\x80\x02"
	    "ccollections\nOrderedDict\n)Rq\0."),
	    { { "0", OFS_PK_ADD, "K\x01K\x02" } }, "{\"1\": 2}\n" },
	{ P("\x80\x02"
	    "ccollections\nOrderedDict\n)Rq\0(K\x01K\x02u}K\x05K\x06sb."),
	    { { "0", OFS_PK_ADD, "K\x03K\x04" } }, "{\"1\": 2, \"3\": 4}\n" },
	/* Two paths to one item are edited once if both edits are the same. */
	{ P("\x80\x02](]q\x01K\x01"
	    "ah\x01"
	    "e."),
	    { { "00", OFS_PK_REPLACE, "K\x05" },
		{ "10", OFS_PK_REPLACE, "K\x05" } },
	    "[[5], [5]]\n" },
	{ P("\x80\x02](]q\x01K\x01"
	    "ah\x01"
	    "e."),
	    { { "00", OFS_PK_DROP, NULL }, { "10", OFS_PK_DROP, NULL } },
	    "[[], []]\n" },
	{ P("\x80\x02](]q\x01K\x01"
	    "ah\x01"
	    "e."),
	    { { "00", OFS_PK_REPLACE, "K\x05" },
		{ "10", OFS_PK_REPLACE, "K\x06" } },
	    NULL },
	{ P("\x80\x02](]q\x01K\x01"
	    "ah\x01"
	    "e."),
	    { { "00", OFS_PK_REPLACE, "K\x05" }, { "10", OFS_PK_DROP, NULL } },
	    NULL },
	/* An item that does not exist. */
	{ P("\x80\x02]K\x01"
	    "a."),
	    { { "3", OFS_PK_REPLACE, "N" } }, NULL },
};

static uint32_t follow(const struct ofs_pickle *doc, const char *path)
{
	uint32_t node = ofs_pickle_root(doc);

	for (; path[1] != '\0'; path++) {
		uint32_t i = (uint32_t)(*path - '0');

		if (ofs_pk_kind(doc, node) == OFS_PK_DICT)
			node = ofs_pk_val(doc, node, i);
		else
			node = ofs_pk_item(doc, node, i);
	}
	return node;
}

static void test_case(size_t i)
{
	struct ofs_pk_splice edits[4];
	struct optimfs_error err = { 0 };
	struct ofs_buf out = { 0 }, text = { 0 };
	const uint8_t *p = (const uint8_t *)cases[i].pickle;
	struct ofs_pickle *doc =
	    ofs_pickle_parse(p, cases[i].n, false, NULL, NULL, &err);
	size_t n = 0;
	int ret;

	if (doc == NULL)
		bail_out("case %zu: %s", i, err.text);
	for (; n < 4 && cases[i].edit[n].path != NULL; n++) {
		const struct edit *e = &cases[i].edit[n];

		edits[n] = (struct ofs_pk_splice){
			.node = follow(doc, e->path),
			.item = (uint32_t)(e->path[strlen(e->path) - 1] - '0'),
			.op = e->op,
		};
		if (e->bytes != NULL)
			ofs_buf_puts(&edits[n].bytes, e->bytes);
	}
	ofs_pickle_free(doc);
	ret = ofs_pickle_splice(p, cases[i].n,
	    &(struct ofs_pk_edits){ .v = edits, .n = n }, &out, &err);
	for (size_t k = 0; k < n; k++)
		ofs_buf_fini(&edits[k].bytes);
	doc = ret == -1
	    ? NULL
	    : ofs_pickle_parse(out.data, out.len, false, NULL, NULL, &err);
	if (cases[i].text == NULL) {
		ok(doc == NULL, "case %zu is refused", i);
	} else if (doc == NULL ||
	    ofs_text_value(doc, ofs_pickle_root(doc), NULL, &text, &err) ==
		-1) {
		ok(false, "case %zu succeeds: %s", i, err.text);
	} else {
		ofs_buf_putc(&text, '\0');
		is_str((char *)text.data, cases[i].text, "case %zu gives %s", i,
		    cases[i].text);
		/* A frame with the old length would make CPython continue in
		 * the middle of an opcode. */
		ok(memchr(out.data, 0x95, out.len) == NULL,
		    "case %zu has no frames", i);
	}
	ofs_pickle_free(doc);
	ofs_buf_fini(&out);
	ofs_buf_fini(&text);
}

/* A dropped pair leaves nothing behind unless others refer to it in the
 * memo. */
static void test_cut(void)
{
	static const uint8_t p[] = "\x80\x02}q\0(K\x01K\x02\x85q\x01K\x03"
				   "K\x04\x85q\x02u.";
	static const uint8_t want[] = "\x80\x02}q\0(K\x01K\x02\x85q\x01u.";
	struct optimfs_error err = { 0 };
	struct ofs_pickle *doc =
	    ofs_pickle_parse(p, sizeof(p) - 1, false, NULL, NULL, &err);
	struct ofs_pk_splice edit = {
		.node = ofs_pickle_root(doc), .item = 1, .op = OFS_PK_DROP
	};
	struct ofs_buf out = { 0 };

	ok(ofs_pickle_splice(p, sizeof(p) - 1,
	       &(struct ofs_pk_edits){ .v = &edit, .n = 1 }, &out, &err) == 0 &&
		out.len == sizeof(want) - 1,
	    "a pair is dropped");
	is_mem(out.data, want, sizeof(want) - 1,
	    "a dropped pair leaves no bytes behind");
	ofs_buf_fini(&out);
	ofs_pickle_free(doc);
}

/* Two dropped pairs leave nothing behind if only they refer to each other;
 * else both stay, one for the other. */
static void test_together(void)
{
	static const struct {
		const char *p;
		size_t n;
		const char *want;
		size_t nwant;
	} pair[] = {
		{ P("\x80\x02}q\0(K\x01K\x02\x85q\x01K\x03h\x01K\x05K\x06u."),
		    P("\x80\x02}q\0(K\x05K\x06u.") },
		{ P("\x80\x02}q\0(K\x01K\x02\x85q\x01K\x03h\x01\x85q\x02K\x05h"
		    "\x02u."),
		    P("\x80\x02}q\0(K\x01K\x02\x85q\x01"
		      "00K\x03h\x01\x85q\x02"
		      "00K\x05h\x02u.") },
		{ P("\x80\x02}q\0(K\x01K\x02\x85q\x01K\x03h\x01\x85q\x02K\x05h"
		    "\x01u."),
		    P("\x80\x02}q\0(K\x01K\x02\x85q\x01"
		      "00K\x05h\x01u.") },
		/* a string and a class go to where they are needed first */
		{ P("\x80\x02}q\0(K\x01X\2\0\0\0abq\x01K\x03"
		    "ca\nb\nq\x02K\x05h\x02K\x06h\x01K\x07h\x02"
		    "u."),
		    P("\x80\x02}q\0(K\x05"
		      "ca\nb\nq\x02K\x06X\2\0\0\0abq\x01K\x07h\x02"
		      "u.") },
	};

	for (size_t i = 0; i < sizeof(pair) / sizeof(*pair); i++) {
		const uint8_t *p = (const uint8_t *)pair[i].p;
		struct optimfs_error err = { 0 };
		struct ofs_pickle *doc =
		    ofs_pickle_parse(p, pair[i].n, false, NULL, NULL, &err);
		struct ofs_pk_splice edit[2] = {
			{ .item = 0, .op = OFS_PK_DROP },
			{ .item = 1, .op = OFS_PK_DROP },
		};
		struct ofs_buf out = { 0 };

		edit[0].node = edit[1].node = ofs_pickle_root(doc);
		ok(ofs_pickle_splice(p, pair[i].n,
		       &(struct ofs_pk_edits){ .v = edit, .n = 2 }, &out,
		       &err) == 0 &&
			out.len == pair[i].nwant,
		    "two pairs are dropped, %zu", i);
		is_mem(out.data, pair[i].want, pair[i].nwant,
		    "they leave what is needed, %zu", i);
		ofs_buf_fini(&out);
		ofs_pickle_free(doc);
	}
}

/* After many pairs are dropped, memo entries are renumbered: a reader with an
 * array for the memo would need memory for the gaps. */
static void test_gaps(void)
{
	enum { N = 5000 };
	struct ofs_pk_splice *edit = calloc(N, sizeof(*edit));
	struct ofs_buf in = { 0 }, out = { 0 }, text = { 0 };
	struct optimfs_error err = { 0 };
	struct ofs_pickle *doc;

	ofs_buf_put(&in, "\x80\x02}q\0(", 6);
	for (int i = 0; i <= N + 1; i++) {
		/* i: (i,) with a memo entry; the last one is referred to
		 * again. */
		ofs_buf_printf(&in, "M%c%cM%c%c\x85r%c%c%c%c", i & 0xff, i >> 8,
		    i & 0xff, i >> 8, (i + 1) & 0xff, (i + 1) >> 8, 0, 0);
		if (i < N)
			edit[i] = (struct ofs_pk_splice){ .op = OFS_PK_DROP,
				.item = (uint32_t)i };
	}
	/* a torch.Size with a memo entry for its tuple */
	ofs_buf_printf(&in, "M%c%cctorch\nSize\nK\x05\x85\x85r%c%c%c%cR", 0xfe,
	    0xff, (N + 3) & 0xff, (N + 3) >> 8, 0, 0);
	ofs_buf_printf(&in, "M%c%cj%c%c%c%cu.", 0xff, 0xff, (N + 1) & 0xff,
	    (N + 1) >> 8, 0, 0);
	doc = ofs_pickle_parse(in.data, in.len, false, NULL, NULL, &err);
	for (int i = 0; doc != NULL && i < N; i++)
		edit[i].node = ofs_pickle_root(doc);
	ofs_pickle_free(doc);
	ok(doc != NULL &&
		ofs_pickle_splice(in.data, in.len,
		    &(struct ofs_pk_edits){ .v = edit, .n = N }, &out,
		    &err) == 0,
	    "%d pairs are dropped at once", N);
	doc = ofs_pickle_parse(out.data, out.len, false, NULL, NULL, &err);
	if (ok(doc != NULL, "a pickle with dropped pairs can be read") &&
	    ofs_text_value(doc, ofs_pickle_root(doc), NULL, &text, &err) == 0) {
		ofs_buf_putc(&text, '\0');
		is_str((char *)text.data,
		    "{\"5000\": [5000], \"5001\": [5001], "
		    "\"65534\": [5], \"65535\": [5000]}\n",
		    "a pickle with dropped pairs has the remaining pairs");
	}
	ok(out.len < 96, "a pickle with dropped pairs has only %zu bytes",
	    out.len);
	ofs_pickle_free(doc);
	ofs_buf_fini(&in);
	ofs_buf_fini(&out);
	ofs_buf_fini(&text);
	free(edit);
}

/* Edits of items and nodes that the pickle does not have. */
static void test_nowhere(void)
{
	static const uint8_t p[] = "\x80\x02](K\x01K\x02e.";
	struct ofs_pk_splice edit = { .op = OFS_PK_DROP };
	struct optimfs_error err = { 0 };
	struct ofs_buf out = { 0 };

	edit.item = 7;
	is_int(ofs_pickle_splice(p, sizeof(p) - 1,
		   &(struct ofs_pk_edits){ .v = &edit, .n = 1 }, &out, &err),
	    -1, "an edit of a missing item fails");
	is_error(err, EUCLEAN, "OFS825",
	    "an edit of a missing item: error text");
	ofs_buf_fini(&out);
	out = (struct ofs_buf){ 0 };
	edit.node = 100;
	edit.item = 0;
	is_int(ofs_pickle_splice(p, sizeof(p) - 1,
		   &(struct ofs_pk_edits){ .v = &edit, .n = 1 }, &out, &err),
	    -1, "an edit of a missing node fails");
	is_error(err, EUCLEAN, "OFS825",
	    "an edit of a missing node: error text");
	ofs_buf_fini(&out);
}

static void test_nothing(void)
{
	static const uint8_t p[] = "\x80\x02](K\x01K\x02\x86q\x01h\x01"
				   "e.";
	struct optimfs_error err = { 0 };
	struct ofs_buf out = { 0 };

	ok(ofs_pickle_splice(p, sizeof(p) - 1,
	       &(struct ofs_pk_edits){ .v = NULL, .n = 0 }, &out, &err) == 0 &&
		out.len == sizeof(p) - 1,
	    "a splice without edits succeeds");
	is_mem(out.data, p, sizeof(p) - 1,
	    "a splice without edits gives the same bytes");
	ofs_buf_fini(&out);
}

int main(void)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		test_case(i);
	test_cut();
	test_together();
	test_gaps();
	test_nowhere();
	test_nothing();
	return done_testing();
}
