/* fakegroup.h - ranks that are threads of one process */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FAKEGROUP_H
#define FAKEGROUP_H

#include <stdatomic.h>
#include <stdint.h>

#include "cluster/module.h"
#include "cluster/wire.h"

/* A module without a network: the thread that asks also answers. If memory
 * runs out, the test ends. */
struct fakegroup;

struct fakegroup *fakegroup_new(int size);
/* The ranks are dealt to n machines; else to two. */
void fakegroup_machines(struct fakegroup *f, int n);
void fakegroup_free(struct fakegroup *f);
/* The calling thread joins as this rank next. */
void fakegroup_be(struct fakegroup *f, int rank);
/* Makes a thread for each rank, which may join as it, and waits for all. */
void fakegroup_run(struct fakegroup *f,
    void (*work)(struct fakegroup *f, int rank, void *ctx), void *ctx);
/* Waits until all ranks have called it. */
void fakegroup_meet(struct fakegroup *f);
/* Questions to rank fail with EHOSTDOWN while it is dead, and with ETIMEDOUT
 * while it is mute. All ranks recover before they leave. */
void fakegroup_kill(struct fakegroup *f, int rank, int on);
void fakegroup_mute(struct fakegroup *f, int rank, int on);
/* Hands raw bytes to rank as a request; as ofs_answer_fn. */
int fakegroup_ask(struct fakegroup *f, int rank, const void *request, size_t n,
    void *out, uint64_t want, struct optimfs_error *err);

/* Counts of the questions so far. */
struct fakegroup_counts {
	_Atomic uint64_t asks, rounds, bytes, largest;
	_Atomic uint64_t answered[16]; /* by rank, the first ones */
	/* By kind of request. */
	_Atomic uint64_t rounds_of[OFS_WIRE_KINDS], asks_of[OFS_WIRE_KINDS];
};
struct fakegroup_counts *fakegroup_counts(struct fakegroup *f);

/* Bytes that a rank has sent to other machines, in questions and answers, since
 * the last _anew. */
uint64_t fakegroup_sent(struct fakegroup *f, int rank);
void fakegroup_sent_anew(struct fakegroup *f);
/* The longest chain of messages in which each had to wait for the one before, if
 * ranks do nothing else: times the latency of the network, it is the least time
 * that all took. Signs of life do not count: they depend on the clock. */
uint64_t fakegroup_chain(struct fakegroup *f);

/* A network, with times in ns of a clock that stands still while the program runs
 * (simtime.h). A message to another machine arrives latency after its last byte
 * has left; a machine sends one after the other, and receives so, at rate bytes a
 * second (0: at once). One to a rank of the same machine takes near. */
struct fakegroup_network {
	int64_t latency, near;
	uint64_t rate;
	int64_t (*now)(void);
	void (*sleep_until)(int64_t ns);
};
/* In all that follows. net is borrowed. */
void fakegroup_network(struct fakegroup *f,
    const struct fakegroup_network *net);
/* In a network: a rank, or its whole machine, dies at its step th event. Events
 * are questions that it asks, those that come, and those that it has answered.
 * Ranks of the same machine know, others get no answers. */
void fakegroup_die(struct fakegroup *f, int rank, uint64_t step, int machine);
/* Has the rank died? When did the first one; has it died at all (else 0)? */
int fakegroup_is_dead(struct fakegroup *f, int rank);
int64_t fakegroup_died(struct fakegroup *f);
/* When a rank has left, and does not wait for others any more. */
int64_t fakegroup_left(struct fakegroup *f, int rank);

extern const struct ofs_group_ops fakegroup_ops;

#endif
