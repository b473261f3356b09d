/* failures.c - the recent failures of a mount */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fs/failures.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>


struct ofs_failure {
	uint64_t node, off, len;
	uint64_t seen; /* clock at its last occurrence; 0: the slot is free */
	uint64_t times;
	struct optimfs_error err;
	char path[512];
};

void ofs_failures_init(struct ofs_failures *f)
{
	*f = (struct ofs_failures){ .record = NULL };
	pthread_mutex_init(&f->lock, NULL);
}

void ofs_failures_fini(struct ofs_failures *f)
{
	free(f->record);
	f->record = NULL;
	pthread_mutex_destroy(&f->lock);
}

static bool same(const struct ofs_failure *r, uint64_t node, uint64_t off,
    uint64_t len, const struct optimfs_error *err)
{
	return r->seen != 0 && r->err.code == err->code &&
	    strcmp(r->err.text, err->text) == 0 &&
	    (node == 0 ||
		(r->node == node && r->off == off && r->len == len));
}

/* The record of this failure, or a slot for it. */
static struct ofs_failure *slot_for(struct ofs_failures *f, uint64_t node,
    uint64_t off, uint64_t len, const struct optimfs_error *err)
{
	struct ofs_failure *oldest = f->record;

	for (size_t i = 0; i < OFS_NFAILURES; i++) {
		struct ofs_failure *r = &f->record[i];

		if (same(r, node, off, len, err))
			return r;
		if (r->seen < oldest->seen)
			oldest = r;
	}
	*oldest = (struct ofs_failure){ .node = node, .off = off, .len = len };
	return oldest;
}

void ofs_failures_add(struct ofs_failures *f, uint64_t node, const char *path,
    uint64_t off, uint64_t len, const struct optimfs_error *err)
{
	struct ofs_failure *r;

	pthread_mutex_lock(&f->lock);
	if (f->record == NULL)
		f->record = calloc(OFS_NFAILURES, sizeof(*f->record));
	if (f->record != NULL) {
		r = slot_for(f, node, off, len, err);
		/* a request that failed for a reason that is recorded */
		if (node == 0 && r->node != 0)
			goto out;
		r->seen = ++f->clock;
		r->times++;
		r->err = *err;
		strncpy(r->path, path, sizeof(r->path) - 1);
	}
out:
	pthread_mutex_unlock(&f->lock);
}

static void put_errno(struct ofs_buf *out, int code)
{
	const char *name = strerrorname_np(code);

	if (name == NULL)
		ofs_buf_printf(out, "%d", code);
	else
		ofs_buf_puts(out, name);
}

static void put_line(struct ofs_buf *out, const struct ofs_failure *r)
{
	const char *words = optimfs_error_about(&r->err, r->path);

	if (r->err.number == 0)
		ofs_buf_puts(out, "-\t");
	else
		ofs_buf_printf(out, "OFS%03d\t", r->err.number);
	put_errno(out, r->err.code);
	ofs_buf_putc(out, '\t');
	ofs_buf_plain(out, r->path, strlen(r->path));
	if (r->len == 0)
		ofs_buf_puts(out, "\t-\t");
	else
		ofs_buf_printf(out, "\tbytes %" PRIu64 "-%" PRIu64 "\t", r->off,
		    r->off + r->len - 1);
	ofs_buf_plain(out, words, strlen(words));
	ofs_buf_printf(out, "\t%" PRIu64 "\n", r->times);
}

static int by_seen(const void *a, const void *b)
{
	const struct ofs_failure *x = *(const struct ofs_failure *const *)a;
	const struct ofs_failure *y = *(const struct ofs_failure *const *)b;

	return x->seen < y->seen ? -1 : x->seen > y->seen;
}

void ofs_failures_text(struct ofs_failures *f, struct ofs_buf *out)
{
	const struct ofs_failure *sorted[OFS_NFAILURES];
	size_t n = 0;

	pthread_mutex_lock(&f->lock);
	for (size_t i = 0; f->record != NULL && i < OFS_NFAILURES; i++)
		if (f->record[i].seen != 0)
			sorted[n++] = &f->record[i];
	qsort(sorted, n, sizeof(*sorted), by_seen);
	for (size_t i = 0; i < n; i++)
		put_line(out, sorted[i]);
	pthread_mutex_unlock(&f->lock);
}

bool ofs_failures_last(struct ofs_failures *f, uint64_t node,
    struct ofs_buf *out)
{
	const struct ofs_failure *last = NULL;

	pthread_mutex_lock(&f->lock);
	for (size_t i = 0; f->record != NULL && i < OFS_NFAILURES; i++)
		if (f->record[i].seen != 0 && f->record[i].node == node &&
		    (last == NULL || f->record[i].seen > last->seen))
			last = &f->record[i];
	if (last != NULL)
		ofs_buf_puts(out, last->err.text);
	pthread_mutex_unlock(&f->lock);
	return last != NULL;
}

uint64_t ofs_failures_count(struct ofs_failures *f)
{
	uint64_t n;

	pthread_mutex_lock(&f->lock);
	n = f->clock;
	pthread_mutex_unlock(&f->lock);
	return n;
}
