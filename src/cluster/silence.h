/* silence.h - how long a module waits for a rank that did not answer before */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_SILENCE_H
#define OFS_CLUSTER_SILENCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A rank that has not answered in time is late: until something comes from it, it
 * has little time for an answer. The other ranks of its machine are late, too, if
 * nothing has come from any of them in the second half of that time, for then the
 * machine may be gone: so this costs one timeout, and not one for each of its ranks.
 * If they are there, they are late only until their next answer. */
#define OFS_LATE_MS 1000

/* Of each rank. */
struct ofs_silence {
	_Atomic int64_t heard; /* when something came from it, ms */
	int node;              /* the lowest rank on its machine */
	atomic_bool late;
};

static inline void ofs_silence_end(struct ofs_silence *s, int64_t now)
{
	atomic_store(&s->heard, now);
	atomic_store(&s->late, false);
}

/* Rank r, one of n, has not answered for ms (0: there is no limit). What happens on
 * the machine of rank me is known there. */
static inline void ofs_silence_note(struct ofs_silence *s, int n, int me, int r,
    int64_t now, int64_t ms)
{
	int node = s[r].node;
	bool alone = ms == 0 || node == s[me].node;

	for (int i = 0; i < n; i++)
		alone |= s[i].node == node &&
		    atomic_load(&s[i].heard) > now - ms / 2;
	for (int i = 0; i < n; i++)
		if (i == r || (!alone && s[i].node == node))
			atomic_store(&s[i].late, true);
}

/* The time for an answer, of ms (0: no limit). */
static inline int64_t ofs_silence_limit(const struct ofs_silence *s, int64_t ms)
{
	return atomic_load(&s->late) && (ms == 0 || ms > OFS_LATE_MS)
	    ? OFS_LATE_MS
	    : ms;
}

#endif
