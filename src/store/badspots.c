/* badspots.c - places where a disk failed recently */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "store/badspots.h"

#include "base/clock.h"

void ofs_badspots_init(struct ofs_badspots *b)
{
	pthread_mutex_init(&b->lock, NULL);
	atomic_init(&b->n, 0);
}

void ofs_badspots_fini(struct ofs_badspots *b)
{
	pthread_mutex_destroy(&b->lock);
}

void ofs_badspots_add(struct ofs_badspots *b, uint32_t object, uint64_t off)
{
	unsigned n;

	pthread_mutex_lock(&b->lock);
	n = atomic_load_explicit(&b->n, memory_order_relaxed);
	b->spot[n % OFS_BADSPOTS].object = object;
	b->spot[n % OFS_BADSPOTS].page = off - off % OFS_BADSPOT_PAGE;
	b->spot[n % OFS_BADSPOTS].until = ofs_clock_ns() + OFS_BADSPOT_NS;
	/* Wraps to 64, because smaller numbers mean that there are fewer
	 * spots. */
	n = n == 2 * OFS_BADSPOTS - 1 ? OFS_BADSPOTS : n + 1;
	atomic_store_explicit(&b->n, n, memory_order_release);
	pthread_mutex_unlock(&b->lock);
}

bool ofs_badspots_hit(struct ofs_badspots *b, uint32_t object, uint64_t off,
    uint64_t len, uint64_t *at)
{
	bool hit = false;
	int64_t now;
	unsigned n;

	if (atomic_load_explicit(&b->n, memory_order_acquire) == 0)
		return false;
	now = ofs_clock_ns();
	pthread_mutex_lock(&b->lock);
	n = atomic_load_explicit(&b->n, memory_order_relaxed);
	if (n > OFS_BADSPOTS)
		n = OFS_BADSPOTS;
	for (unsigned i = 0; i < n && !hit; i++) {
		hit = b->spot[i].object == object && b->spot[i].until > now &&
		    b->spot[i].page < off + len &&
		    off < b->spot[i].page + OFS_BADSPOT_PAGE;
		if (hit)
			*at = b->spot[i].page;
	}
	pthread_mutex_unlock(&b->lock);
	return hit;
}
