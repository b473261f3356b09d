/* skeleton_sums.c - checksums of a skeleton whose tensors have been filled in */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

#include "copy.h"
#include "io.h"
#include "skeleton.h"

#define STEP ((uint64_t)1 << 20)

struct summing {
	const struct ofs_skeleton *s;
	_Atomic uint64_t *done;
	bool (*stop)(void *ctx);
	void *ctx;
	uint8_t *buf; /* STEP bytes */
};

static int sum_of(const struct summing *w, int fd, uint64_t from, uint64_t n,
    uint8_t le[4], struct optimfs_error *err)
{
	uint32_t crc = 0;

	for (uint64_t at = 0, k; at < n; at += k) {
		k = n - at < STEP ? n - at : STEP;
		if (w->stop != NULL && w->stop(w->ctx))
			return optimfs_fail(err, ECANCELED, "given up");
		if (ofs_pread_all(fd, w->buf, k, from + at, err) == -1)
			return -1;
		crc = (uint32_t)crc32_z(crc, w->buf, k);
		if (w->done != NULL)
			atomic_fetch_add(w->done, k);
	}
	for (unsigned i = 0; i < 4; i++)
		le[i] = (uint8_t)(crc >> 8 * i);
	return 0;
}

/* Sums [at, end) are of one file; those of the same bytes follow each other. */
static int sum_file(const struct summing *w, int fd, size_t at, size_t end,
    struct optimfs_error *err)
{
	const struct ofs_skeleton_sum *v = w->s->sum, *last = NULL;
	uint8_t le[4];

	for (size_t i = at; i < end; i++) {
		if (last == NULL || v[i].from != last->from ||
		    v[i].n != last->n)
			if (sum_of(w, fd, v[i].from, v[i].n, le, err) == -1)
				return -1;
		last = &v[i];
		if (ofs_write_all(fd, le, sizeof(le), v[i].at, err) == -1)
			return -1;
	}
	return 0;
}

static int sum_named(const struct summing *w, int dir, size_t at, size_t end,
    struct optimfs_error *err)
{
	const char *name = w->s->file[w->s->sum[at].file].name;
	int fd = openat(dir, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC), ret;

	if (fd == -1)
		return optimfs_fail(err, errno, "OFS801 %s: %m", name);
	ret = sum_file(w, fd, at, end, err);
	close(fd);
	return ret == -1 ? optimfs_fail_in(err, "%s", name) : 0;
}

int ofs_skeleton_sums(const struct ofs_skeleton *s, int dir,
    _Atomic uint64_t *done, bool (*stop)(void *ctx), void *ctx,
    struct optimfs_error *err)
{
	struct summing w = { s, done, stop, ctx, malloc(STEP) };
	int ret = 0;

	if (w.buf == NULL)
		return optimfs_fail(err, ENOMEM, "checksums");
	for (size_t i = 0, end; i < s->nsums && ret == 0; i = end) {
		for (end = i;
		     end < s->nsums && s->sum[end].file == s->sum[i].file;)
			end++;
		ret = sum_named(&w, dir, i, end, err);
	}
	free(w.buf);
	return ret;
}
