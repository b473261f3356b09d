/* template_sums.c - the checksums of a filled template */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/copy.h"
#include "base/crc.h"
#include "base/cursor.h"
#include "base/io.h"
#include "base/memory.h"
#include "push/template.h"

#define STEP ((uint64_t)1 << 20)
/* Short ranges are summed in a window of the file, into which their checksums
 * are put: small tensors lie side by side. */
#define WINDOW ((uint64_t)64 << 10)
#define FEW    4096

struct summing {
	const struct ofs_template *s;
	const struct ofs_template_summing *how;
	uint8_t *buf; /* size STEP */
	struct window {
		uint64_t at, n;
		bool changed;
		uint8_t *buf; /* size WINDOW */
	} win;
};

static int win_flush(struct summing *w, int fd, struct optimfs_error *err)
{
	uint64_t n = w->win.changed ? w->win.n : 0;

	w->win.n = 0;
	w->win.changed = false;
	return ofs_write_all(fd, w->win.buf, n, w->win.at, err);
}

static bool win_has(const struct summing *w, uint64_t at, uint64_t n)
{
	return at >= w->win.at && at - w->win.at <= w->win.n &&
	    n <= w->win.n - (at - w->win.at);
}

/* Reports progress: n more bytes. */
static int step(const struct summing *w, uint64_t n, struct optimfs_error *err)
{
	if (w->how->stop != NULL && w->how->stop(w->how->ctx))
		return optimfs_fail(err, ECANCELED, "given up");
	if (w->how->done != NULL)
		atomic_fetch_add(w->how->done, n);
	return 0;
}

/* Loads the bytes of a checksum, starting at the checksum if it is just before
 * them. */
static int win_load(struct summing *w, int fd, const struct ofs_template_sum *v,
    struct optimfs_error *err)
{
	uint64_t size = w->s->file[v->file].size, at = v->from, end, n;

	if (win_has(w, v->from, v->n))
		return 0;
	if (win_flush(w, fd, err) == -1)
		return -1;
	end = v->from + v->n;
	if (v->at < v->from && v->from - v->at <= FEW)
		at = v->at;
	n = end < size && size - at > WINDOW ? WINDOW : size - at;
	if (end > size)
		n = end - at; /* the read will fail */
	if (ofs_pread_all(fd, w->win.buf, n, at, err) == -1)
		return -1;
	w->win.at = at;
	w->win.n = n;
	return 0;
}

static int sum_few(struct summing *w, int fd, const struct ofs_template_sum *v,
    uint32_t *crc, struct optimfs_error *err)
{
	if (win_load(w, fd, v, err) == -1 || step(w, v->n, err) == -1)
		return -1;
	*crc = ofs_crc32(0, w->win.buf + (v->from - w->win.at), v->n);
	return 0;
}

static int sum_many(struct summing *w, int fd, const struct ofs_template_sum *v,
    uint32_t *crc, struct optimfs_error *err)
{
	if (w->how->known != NULL &&
	    w->how->known(w->how->ctx, v->file, v->from, v->n, crc))
		return step(w, v->n, err);
	if (win_flush(w, fd, err) == -1)
		return -1;
	*crc = 0;
	for (uint64_t at = 0, k; at < v->n; at += k) {
		k = v->n - at < STEP ? v->n - at : STEP;
		if (ofs_pread_all(fd, w->buf, k, v->from + at, err) == -1)
			return -1;
		*crc = ofs_crc32(*crc, w->buf, k);
		if (step(w, k, err) == -1)
			return -1;
	}
	return 0;
}

static int sum_of(struct summing *w, int fd, const struct ofs_template_sum *v,
    uint8_t le[4], struct optimfs_error *err)
{
	uint32_t crc;
	int ret;

	ret = v->n > FEW ? sum_many(w, fd, v, &crc, err)
			 : sum_few(w, fd, v, &crc, err);
	if (ret == 0)
		ofs_put_le(le, crc, 4);
	return ret;
}

static int put_sum(struct summing *w, int fd, uint64_t at, const uint8_t le[4],
    struct optimfs_error *err)
{
	if (!win_has(w, at, 4))
		return ofs_write_all(fd, le, 4, at, err);
	memcpy(w->win.buf + (at - w->win.at), le, 4);
	w->win.changed = true;
	return 0;
}

/* Computes the sums [at, end), all of one file. Sums of the same bytes are
 * adjacent. */
static int sum_file(struct summing *w, int fd, size_t at, size_t end,
    struct optimfs_error *err)
{
	const struct ofs_template_sum *v = w->s->sum, *last = NULL;
	uint8_t le[4];

	for (size_t i = at; i < end; i++) {
		if (last == NULL || v[i].from != last->from ||
		    v[i].n != last->n)
			if (sum_of(w, fd, &v[i], le, err) == -1)
				return -1;
		last = &v[i];
		if (put_sum(w, fd, v[i].at, le, err) == -1)
			return -1;
	}
	return win_flush(w, fd, err);
}

static int sum_named(struct summing *w, int dir, size_t at, size_t end,
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

int ofs_template_sums(const struct ofs_template *s, int dir,
    const struct ofs_template_summing *how, struct optimfs_error *err)
{
	struct summing w = { s, how, malloc(STEP), { .buf = malloc(WINDOW) } };
	int ret = 0;

	if (w.buf == NULL || w.win.buf == NULL)
		ret = ofs_no_memory(err);
	for (size_t i = 0, end; i < s->nsums && ret == 0; i = end) {
		for (end = i;
		     end < s->nsums && s->sum[end].file == s->sum[i].file;)
			end++;
		ret = sum_named(&w, dir, i, end, err);
	}
	free(w.win.buf);
	free(w.buf);
	return ret;
}
