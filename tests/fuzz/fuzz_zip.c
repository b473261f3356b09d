/* fuzz_zip.c - arbitrary archives: no record may lie outside the input */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "archive/inflate.h"
#include "archive/zip.h"

struct bytes {
	const uint8_t *p;
	size_t n;
};

static int read_bytes(void *ctx, uint64_t off, uint64_t len, void *buf,
    struct optimfs_error *err)
{
	const struct bytes *b = ctx;

	if (off > b->n || len > b->n - off)
		return optimfs_fail(err, EIO, "OFS603 short file");
	memcpy(buf, b->p + off, len);
	return 0;
}

static void check(int good)
{
	if (!good)
		abort();
}

static void check_record(const struct ofs_zip *zip,
    const struct ofs_zip_record *r, struct bytes *b)
{
	struct ofs_extent at = {
		.off = r->header, .len = r->size, .tag = ofs_zip_tag(zip, r)
	};
	struct optimfs_error err;
	struct ofs_window w;
	uint64_t off, again;

	check(ofs_zip_find(zip, r->name.p, r->name.len) == r);
	ofs_window_init(&w, b->n, read_bytes, b);
	if (ofs_zip_data(zip, r, ofs_window_read, &w, &off, &err) == 0) {
		check(off <= b->n && r->size <= b->n - off);
		check(off + r->size <= r->end && r->end <= zip->directory);
		check(ofs_zip_data_at(&at, read_bytes, b, b->n, &again, &err) ==
			0 &&
		    again == off);
	} else
		check(err.code != 0 && strncmp(err.text, "OFS", 3) == 0);
	ofs_zip_verify(zip, r, read_bytes, b, &err);
}

/* An archive of NumPy's, whose records may be deflated. */
static void check_flat(struct bytes *b)
{
	struct optimfs_error err = { 0 };
	struct ofs_zip zip;

	if (ofs_zip_open_flat(&zip, b->n, read_bytes, b, &err) == -1) {
		check(err.code != 0 && strncmp(err.text, "OFS", 3) == 0);
		return;
	}
	for (size_t i = 0; i < zip.n; i++) {
		const struct ofs_zip_record *r = &zip.record[i];
		struct ofs_extent at;
		uint64_t off;

		if (ofs_zip_data(&zip, r, read_bytes, b, &off, &err) == -1)
			continue;
		check(off <= b->n && r->stored <= b->n - off);
		if (ofs_zip_deflated_extent(r, off, &at))
			check(at.off <= b->n && at.len <= b->n - at.off);
	}
	ofs_zip_fini(&zip);
}

/* Any bytes as a deflated record. */
static void check_deflated(struct bytes *b)
{
	uint8_t in[64], out[1000];
	struct ofs_inflate s = {
		.read = read_bytes, .ctx = b, .in = in, .room = sizeof(in)
	};
	struct optimfs_error err = { 0 };
	struct ofs_zip_deflated d;
	uint32_t got = sizeof(out);

	if (ofs_zip_deflated(b->n, read_bytes, b, &d, &err) == -1) {
		check(err.code != 0 && strncmp(err.text, "OFS", 3) == 0);
		return;
	}
	check(d.off <= b->n && d.stored <= b->n - d.off);
	s.off = d.off;
	s.end = d.off + d.stored;
	check(ofs_inflate_init(&s, &err) == 0);
	for (int i = 0; i < 1000 && got == sizeof(out); i++)
		if (ofs_inflate_next(&s, out, sizeof(out), &got, &err) == -1) {
			check(strncmp(err.text, "OFS", 3) == 0);
			break;
		}
	check(ofs_inflate_left(&s) <= d.stored);
	ofs_inflate_fini(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct bytes b = { p, n };
	struct optimfs_error err = { 0 };
	struct ofs_zip zip;

	check_flat(&b);
	check_deflated(&b);
	if (ofs_zip_open(&zip, n, read_bytes, &b, &err) == -1) {
		check(err.code != 0 && strncmp(err.text, "OFS", 3) == 0);
		return 0;
	}
	for (size_t i = 0; i < zip.n; i++)
		check_record(&zip, &zip.record[i], &b);
	ofs_zip_fini(&zip);
	return 0;
}
