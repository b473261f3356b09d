/* lines.c - generated text files, and the list of failures */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fs/lines.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/failures.h"
#include "tap.h"

#define STEPS 1000

/* Lines of 0 to 49 letters and a number. Every seventh step has no line. */
static void put(struct ofs_snapshot *snap, uint32_t at, struct ofs_buf *out)
{
	(void)snap;
	if (at % 7 == 3)
		return;
	for (uint32_t i = 0; i < at % 50; i++)
		ofs_buf_putc(out, 'a' + (int)(at % 26));
	ofs_buf_printf(out, "%" PRIu32 "\n", at);
}

static uint32_t next(const struct ofs_snapshot *snap, uint32_t at)
{
	(void)snap;
	return at + 1 < STEPS ? at + 1 : UINT32_MAX;
}

static uint32_t steps(const struct ofs_snapshot *snap)
{
	(void)snap;
	return STEPS;
}

static const struct ofs_lines_ops ops = { put, next, steps };

static void lines(void)
{
	struct ofs_buf all = { 0 };
	struct ofs_lines l;
	char got[4096];
	bool same = true;

	for (uint32_t i = 0; i < STEPS; i++)
		put(NULL, i, &all);
	ofs_lines_init(&l, &ops);
	is_int(ofs_lines_index(&l, NULL, NULL), 0,
	    "indexing the lines succeeds");
	is_u64(l.size, all.len, "the indexed size is the length of all lines");
	srand(1);
	for (int i = 0; i < 3000; i++) {
		uint64_t off = (uint64_t)rand() % (all.len + 10);
		size_t len = (size_t)rand() % (i % 2 ? sizeof(got) : 40);
		size_t want = off >= all.len ? 0 : all.len - off;
		ssize_t n = ofs_lines_read(&l, NULL, got, len, off, NULL);

		if (want > len)
			want = len;
		same &= n == (ssize_t)want &&
		    memcmp(got, all.data + (want ? off : 0), want) == 0;
	}
	ok(same, "3000 random reads give the same bytes as the whole text");
	ofs_lines_fini(&l);
	ofs_buf_fini(&all);
}

static struct optimfs_error failure(int code, int number, const char *text)
{
	struct optimfs_error err = { .code = code, .number = number };

	snprintf(err.text, sizeof(err.text), "%s", text);
	return err;
}

static void failures(void)
{
	struct optimfs_error short_file = failure(EIO, 603,
	    "OFS603 model/w bytes 0-7: s.distcp has\t4 bytes");
	struct optimfs_error plain = failure(EINVAL, 0, "OFSX no code");
	struct ofs_failures f;
	struct ofs_buf out = { 0 };

	ofs_failures_init(&f);
	ofs_failures_text(&f, &out);
	is_u64(out.len, 0, "a new list of failures is empty");
	ofs_failures_add(&f, 7, "model/w", 0, 8, &short_file);
	ofs_failures_add(&f, 8, "model/v", 0, 0, &plain);
	ofs_failures_add(&f, 7, "model/w", 0, 8, &short_file);
	ofs_failures_text(&f, &out);
	ofs_buf_putc(&out, '\0');
	is_str((char *)out.data,
	    "-\tEINVAL\tmodel/v\t-\tOFSX no code\t1\n"
	    "OFS603\tEIO\tmodel/w\tbytes 0-7\ts.distcp "
	    "has\\x094 bytes\t2\n",
	    "repeated failures are one line with a count, the latest last");
	out.len = 0;
	ok(ofs_failures_last(&f, 7, &out),
	    "a node that failed has a last failure");
	ok(!ofs_failures_last(&f, 9, &out),
	    "a node that never failed has no last failure");
	for (uint64_t i = 0; i < 2 * OFS_NFAILURES; i++)
		ofs_failures_add(&f, i + 1, "x", i, 1, &plain);
	out.len = 0;
	ok(!ofs_failures_last(&f, 7 + OFS_NFAILURES - 8, &out) &&
		ofs_failures_last(&f, 2 * OFS_NFAILURES - 1, &out),
	    "a full list drops its oldest failures");
	is_u64(ofs_failures_count(&f), 3 + 2 * OFS_NFAILURES,
	    "dropped failures are still counted");
	ofs_buf_fini(&out);
	ofs_failures_fini(&f);
}

int main(void)
{
	lines();
	failures();
	return done_testing();
}
