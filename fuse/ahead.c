/* ahead.c - pass small files to the kernel on open */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fuse/ahead.h"

#include <pthread.h>
#include <stdlib.h>

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

enum {
	BUCKETS = 1024,
	STORED = 16384, /* files remembered as stored */
};

/* An open file. */
struct entry {
	struct entry *next; /* in its hash bucket */
	uint64_t node;
	unsigned opens;
	bool storing;
};

struct ofs_ahead {
	struct fuse_session *se; /* NULL: no session yet, nothing is stored */
	atomic_uint_least64_t *bytes;
	pthread_mutex_t lock; /* protects the members below */
	pthread_cond_t stored;
	bool off; /* out of memory: disabled for good */
	struct entry *bucket[BUCKETS];
	/* Recently stored nodes, hashed; newer ones replace older ones. The
	 * kernel most likely still caches them; otherwise they are read as
	 * usual. */
	uint64_t seen[STORED];
};

struct ofs_ahead *ofs_ahead_new(atomic_uint_least64_t *bytes)
{
	struct ofs_ahead *a = calloc(1, sizeof(*a));

	if (a == NULL)
		return NULL;
	a->bytes = bytes;
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->stored, NULL);
	return a;
}

void ofs_ahead_free(struct ofs_ahead *a)
{
	struct entry *e;

	if (a == NULL)
		return;
	for (size_t i = 0; i < BUCKETS; i++)
		while ((e = a->bucket[i]) != NULL) {
			a->bucket[i] = e->next;
			free(e);
		}
	pthread_cond_destroy(&a->stored);
	pthread_mutex_destroy(&a->lock);
	free(a);
}

void ofs_ahead_session(struct ofs_ahead *a, struct fuse_session *se)
{
	if (a != NULL)
		a->se = se;
}

static uint64_t mix(uint64_t x)
{
	return (x * UINT64_C(0x9e3779b97f4a7c15)) >> 32;
}

static struct entry **slot(struct ofs_ahead *a, uint64_t node)
{
	struct entry **e = &a->bucket[mix(node) % BUCKETS];

	while (*e != NULL && (*e)->node != node)
		e = &(*e)->next;
	return e;
}

static void store(struct ofs_ahead *a, uint64_t node, uint64_t size,
    struct optimfs_file *file, void *buf)
{
	struct fuse_bufvec v = FUSE_BUFVEC_INIT((size_t)size);
	struct optimfs_error err;

	v.buf[0].mem = buf;
	if (optimfs_file_read(file, buf, (size_t)size, 0, &err) !=
	    (ssize_t)size)
		return;
	/* if the kernel refuses it, reads will ask for it */
	if (fuse_lowlevel_notify_store(a->se, node, 0, &v, 0) == 0)
		atomic_fetch_add_explicit(a->bytes, size, memory_order_relaxed);
}

/* The lock is held, except during the store. */
static void first_open(struct ofs_ahead *a, struct entry *e, uint64_t size,
    struct optimfs_file *file, void *buf)
{
	uint64_t node = e->node, *seen = &a->seen[mix(node) % STORED];

	if (a->off || *seen == node)
		return;
	*seen = node;
	e->storing = true;
	pthread_mutex_unlock(&a->lock);
	store(a, node, size, file, buf);
	pthread_mutex_lock(&a->lock);
	e->storing = false;
	pthread_cond_broadcast(&a->stored);
}

bool ofs_ahead_open(struct ofs_ahead *a, uint64_t node, uint64_t size,
    struct optimfs_file *file, void *buf)
{
	struct entry **at, *e;

	if (a == NULL || a->se == NULL || size == 0 || size > OFS_AHEAD_MAX)
		return false;
	pthread_mutex_lock(&a->lock);
	at = slot(a, node);
	e = *at;
	if (e == NULL)
		e = *at = calloc(1, sizeof(*e));
	if (e == NULL) { /* further opens cannot be counted */
		a->off = true;
		pthread_mutex_unlock(&a->lock);
		return false;
	}
	e->node = node;
	if (e->opens++ == 0)
		first_open(a, e, size, file, buf);
	while (e->storing)
		pthread_cond_wait(&a->stored, &a->lock);
	pthread_mutex_unlock(&a->lock);
	return true;
}

void ofs_ahead_release(struct ofs_ahead *a, uint64_t node)
{
	struct entry **at, *e;

	pthread_mutex_lock(&a->lock);
	at = slot(a, node);
	e = *at;
	if (--e->opens == 0) {
		*at = e->next;
		free(e);
	}
	pthread_mutex_unlock(&a->lock);
}
