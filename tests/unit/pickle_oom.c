/* pickle_oom.c - parsing and printing pickles with each allocation failing */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "oom.h"
#include "pickle/pickle.h"
#include "tap.h"
#include "text/text.h"

/* A pickle that uses all of the reader: memo, marks, classes, getattr, decoded
 * bytes, a cycle. */
static const char everything[] =
    "\x80\2]q\0(c__builtin__\ngetattr\ncm\nK\nX\1\0\0\0A\x86R"
    "c_codecs\nencode\nX\2\0\0\0\xc3\xa9X\6\0\0\0latin1\x86R"
    "ccollections\nOrderedDict\n)R(K\1K\2K\3K\4u}K\1K\2sb"
    "(((((K\1K\2K\3K\4K\5ttttt"
    "cm\nC\n)\x81(K\1K\2u"
    "c__builtin__\nset\n](M\1\1M\1\2M\1\3e\x85R"
    "h\0e.";

static struct ofs_pickle *parse(struct optimfs_error *err)
{
	uint8_t *bytes;

	bytes = __real_malloc(sizeof(everything));
	memcpy(bytes, everything, sizeof(everything));
	return ofs_pickle_parse(bytes, sizeof(everything) - 1, true, NULL, NULL,
	    err);
}

static void parsing(void)
{
	size_t wrong = 0;
	long n;

	for (n = 1; n < 10000; n++) {
		struct optimfs_error err = { 0 };
		struct ofs_pickle *doc;

		left = n;
		doc = parse(&err);
		if (doc != NULL && left > 0) {
			ofs_pickle_free(doc);
			break;
		}
		left = -1;
		/* A failed realloc that shrinks memory does no harm. */
		if (doc == NULL &&
		    (err.code != ENOMEM ||
			strncmp(err.text, "OFS443 ", 7) != 0)) {
			diag("call %ld: %s", n, err.text);
			wrong++;
		}
		ofs_pickle_free(doc);
	}
	left = -1;
	ok(n > 10 && n < 10000,
	    "P50 parsing makes %ld allocations that can fail", n);
	is_u64(wrong, 0, "P50 each failed allocation gives OFS443");
}

static void printing(void)
{
	struct optimfs_error err = { 0 };
	struct ofs_pickle *doc = parse(&err);
	size_t wrong = 0;
	long n;

	if (doc == NULL)
		bail_out("%s", err.text);
	for (n = 1; n < 10000; n++) {
		struct ofs_buf out = { 0 };
		int rc;

		err = (struct optimfs_error){ 0 };
		left = n;
		rc =
		    ofs_text_value(doc, ofs_pickle_root(doc), NULL, &out, &err);
		if (rc == 0 && left > 0) {
			ofs_buf_fini(&out);
			break;
		}
		left = -1;
		wrong += rc == 0 || err.code != ENOMEM || out.len != 0;
		ofs_buf_fini(&out);
	}
	left = -1;
	ok(n > 1 && n < 10000, "printing makes %ld allocations that can fail",
	    n);
	is_u64(wrong, 0,
	    "each failed allocation fails the text, which stays empty");
	ofs_pickle_free(doc);
}

int main(void)
{
	parsing();
	printing();
	return done_testing();
}
