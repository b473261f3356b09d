/* team.h - threads that share a piece of work */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_TEAM_H
#define OFS_BASE_TEAM_H

/* The most threads of a team. */
#define OFS_TEAM_MAX 64

/* How many threads work at a time: jobs, or with 0 one for each processor that this
 * process may use, and at most 16. From 1 to OFS_TEAM_MAX. */
unsigned ofs_team_size(unsigned jobs);

/* Calls work(ctx, i) for i in [0, n), n at most OFS_TEAM_MAX, each in a thread of its
 * own. If fewer can be started, they take what is left one after the other; if none
 * can, this one does. Calls tick(ctx) (NULL: nothing) meanwhile in this thread: at
 * once, every 200 ms, and at the end. Returns when all calls have returned. */
void ofs_team_run(unsigned n, void (*work)(void *ctx, unsigned i),
    void (*tick)(void *ctx), void *ctx);

#endif
