/* sums.c - checksums of a file's boxes, whose parts several threads read */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "plan/sums.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/memory.h"
#include "base/search.h"

/* Computing the sum of so few bytes again takes one short read. */
#define SHORT 4096

void ofs_sums_init(struct ofs_sums *s)
{
	*s = (struct ofs_sums){ 0 };
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->more, NULL);
}

void ofs_sums_fini(struct ofs_sums *s)
{
	pthread_cond_destroy(&s->more);
	pthread_mutex_destroy(&s->lock);
	free(s->promise);
	free(s->v);
}

static int compare_end(const void *key, const void *item)
{
	const struct ofs_sum *s = item;

	return s->from + s->len <= *(const uint64_t *)key ? 1 : -1;
}

/* The first sum that ends after off. */
static size_t sum_behind(const struct ofs_sums *s, uint64_t off)
{
	return ofs_lower_bound(&off, s->v, s->n, sizeof(*s->v), compare_end);
}

static bool promised(const struct ofs_sums *s, uint64_t from, uint64_t end)
{
	for (size_t i = 0; i < s->npromises; i++)
		if (s->promise[i].from < end && s->promise[i].end > from)
			return true;
	return false;
}

/* Does b follow a, in the same box? */
static bool joins(const struct ofs_sum *a, const struct ofs_sum *b)
{
	return a->box == b->box && a->from + a->len == b->from;
}

static void join(struct ofs_sum *a, const struct ofs_sum *b)
{
	a->crc = ofs_crc32_combine(a->crc, b->crc, b->len);
	a->len += b->len;
}

static bool insert(struct ofs_sums *s, size_t i, const struct ofs_sum *sum)
{
	if (ofs_grow(s->v, s->n, s->cap, NULL) == -1) {
		s->lost = true;
		return false;
	}
	memmove(&s->v[i + 1], &s->v[i], (s->n - i) * sizeof(*s->v));
	s->v[i] = *sum;
	s->n++;
	return true;
}

static void drop(struct ofs_sums *s, size_t from, size_t to)
{
	memmove(&s->v[from], &s->v[to], (s->n - to) * sizeof(*s->v));
	s->n -= to - from;
}

/* Is a sum that joins no other worth keeping? */
static bool is_of_use(const struct ofs_sums *s, const struct ofs_sum *sum)
{
	if (s->most > 0)
		return sum->len >= SHORT && s->n < s->most;
	return sum->from == sum->box ||
	    promised(s, sum->from, sum->from + sum->len);
}

/* Add sum; false when it is dropped. */
static bool add_sum(struct ofs_sums *s, const struct ofs_sum *sum)
{
	size_t i = sum_behind(s, sum->from);
	struct ofs_sum *next = i < s->n ? &s->v[i] : NULL, both = *sum;

	if (next != NULL && next->from < sum->from + sum->len)
		return false;
	if (next != NULL && joins(sum, next)) {
		join(&both, next);
		*next = both;
	} else if (i > 0 && joins(&s->v[i - 1], sum)) {
		join(&s->v[i - 1], sum);
		return true;
	} else if (!is_of_use(s, sum) || !insert(s, i, sum)) {
		return false;
	}
	if (i > 0 && joins(&s->v[i - 1], &s->v[i])) {
		join(&s->v[i - 1], &s->v[i]);
		drop(s, i, i + 1);
	}
	return true;
}

void ofs_sums_add(struct ofs_sums *s, const struct ofs_sum *sum)
{
	pthread_mutex_lock(&s->lock);
	if (sum->len > 0 && add_sum(s, sum) && s->added != NULL)
		s->added(s->ctx, sum);
	if (s->npromises > 0)
		pthread_cond_broadcast(&s->more);
	pthread_mutex_unlock(&s->lock);
}

/* Is any byte of [from, end) unknown but promised? */
static bool will_come(const struct ofs_sums *s, uint64_t from, uint64_t end)
{
	if (s->lost)
		return false;
	for (size_t i = sum_behind(s, from); from < end; i++) {
		uint64_t to =
		    i < s->n && s->v[i].from < end ? s->v[i].from : end;

		if (from < to && promised(s, from, to))
			return true;
		if (to == end)
			return false;
		from = s->v[i].from + s->v[i].len;
	}
	return false;
}

int ofs_sums_get(struct ofs_sums *s, uint64_t from, uint64_t n, uint32_t *crc,
    struct optimfs_error *err)
{
	const struct ofs_sum *v;
	int found;
	size_t i;

	pthread_mutex_lock(&s->lock);
	for (;;) {
		i = sum_behind(s, from);
		v = i < s->n ? &s->v[i] : NULL;
		found = v != NULL && v->from == from && v->len == n;
		if (!found && s->cancelled)
			found = optimfs_fail(err, ECANCELED, "given up");
		if (found != 0 || !will_come(s, from, from + n))
			break;
		pthread_cond_wait(&s->more, &s->lock);
	}
	if (found == 1)
		*crc = v->crc;
	pthread_mutex_unlock(&s->lock);
	return found;
}

int ofs_sums_promise(struct ofs_sums *s, uint64_t from, uint64_t end,
    struct optimfs_error *err)
{
	int ret;

	pthread_mutex_lock(&s->lock);
	ret = ofs_grow(s->promise, s->npromises, s->promise_cap, err);
	if (ret == 0)
		s->promise[s->npromises++] = (struct ofs_promise){ from, end };
	pthread_mutex_unlock(&s->lock);
	return ret;
}

void ofs_sums_release(struct ofs_sums *s, uint64_t from)
{
	pthread_mutex_lock(&s->lock);
	for (size_t i = 0; i < s->npromises; i++)
		if (s->promise[i].from == from) {
			s->promise[i] = s->promise[--s->npromises];
			break;
		}
	pthread_cond_broadcast(&s->more);
	pthread_mutex_unlock(&s->lock);
}

void ofs_sums_cancel(struct ofs_sums *s)
{
	pthread_mutex_lock(&s->lock);
	s->cancelled = true;
	pthread_cond_broadcast(&s->more);
	pthread_mutex_unlock(&s->lock);
}
