/* mpi.h - declarations shared by the files of the MPI module */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_MPI_H
#define OFS_CLUSTER_MPI_H

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "optimfs/error.h"

#include "cluster/module.h"
#include "cluster/silence.h"

/* One thread at a time makes MPI calls, the one that holds mpi: a thread of this
 * module, or, so that a short message needs no other thread, one that waits for
 * answers or has computed one. Others put work into lists under the lock; a few
 * threads compute answers. See docs/architecture.md.
 *
 * A request is sent to TAG_REQUEST after a struct mpi_head; its answer to
 * TAG_ANSWER + slot, before a status. So each is one message, and an answer is
 * received directly in the buffer of its request. */
enum { TAG_REQUEST = 1, TAG_ANSWER = 16 };
enum {
	NSLOTS = 1024,     /* requests in progress */
	SLOTS_A_RANK = 64, /* limit of overdue requests to one rank */
	NTHREADS = 4,      /* threads that compute answers */
};
/* Limits of the bytes of outstanding answers: in total, and per rank, so that
 * requests to a silent rank leave room for others. */
#define WINDOW        ((uint64_t)128 << 20)
#define WINDOW_A_RANK OFS_GROUP_ANSWER_MAX
/* The window of a rank grows from here with each answer that comes within
 * QUICK_MS, and shrinks when one has needed a good part of the timeout: answers
 * share the link, and on a slow one all of a large window would be late. */
#define WINDOW_FIRST (2 * OFS_GROUP_ANSWER_MAX)
#define QUICK_MS     250

struct mpi_head {
	uint64_t want;
	uint32_t slot;
	uint32_t unused;
};
/* The status after an answer: code 0 after want bytes, otherwise an errno value
 * after a text; and the other members of the error. */
struct mpi_tail {
	uint32_t code, number;
	uint16_t how, lost, nlost;
};
#define MPI_TEXT sizeof(((struct optimfs_error *)0)->text)
#define ANSWER_SIZE(want) \
 (((want) > MPI_TEXT ? (size_t)(want) : MPI_TEXT) + sizeof(struct mpi_tail))

/* Buffers for messages, reused by pool.c. */
struct mpi_block {
	size_t size;
	LIST_ENTRY(mpi_block) next;
	_Alignas(64) uint8_t bytes[];
};
struct mpi_pool {
	pthread_mutex_t lock;
	LIST_HEAD(, mpi_block) spare; /* spare blocks of the large size */
	unsigned nspare;
};
struct mpi_block *mpi_pool_get(struct mpi_pool *pool, size_t size);
void mpi_pool_fini(struct mpi_pool *pool);

/* Requests that one caller waits for. */
struct mpi_batch {
	pthread_cond_t done;
	size_t left;
};

/* A request, from ask to release. Once sent it may outlive both: MPI owns its
 * buffers even if no thread waits any longer. */
struct mpi_question {
	TAILQ_ENTRY(mpi_question) next; /* in queue, then in open */
	struct ofs_ask *ask;            /* NULL: abandoned */
	struct mpi_batch *batch;
	struct mpi_block *request, *answer;
	size_t nrequest;
	uint64_t want;
	int64_t deadline; /* ms; INT64_MAX: none */
	int64_t sent;     /* ms */
	int to, slot;
	unsigned ops; /* MPI operations in progress */
	bool open;
};

/* A request of another rank, and its answer. */
struct mpi_job {
	TAILQ_ENTRY(mpi_job) next;
	int from;
	uint32_t slot;
	uint64_t want;
	size_t nrequest;
	struct mpi_block *request, *answer;
	size_t nanswer;
};

enum mpi_op_kind { OP_REQUEST, OP_ANSWER, OP_TAKE, OP_GIVE };
struct mpi_op {
	enum mpi_op_kind kind;
	void *what; /* a question or a job */
};

struct mpi_peer {
	char host[64];
	int node, pidfd; /* pidfd: of a process on this machine, or -1 */
	atomic_bool dead;
	int64_t moved;     /* when it last answered the oldest request, ms */
	unsigned noverdue; /* overdue slots */
	/* Of requests to it in progress: slots, and bytes of answers. */
	unsigned nslots;
	uint64_t under_way;
	uint64_t window; /* limit of under_way; also has_room() */
	unsigned full;   /* round (ofs_group.round) in which it has no room */
};

struct ofs_group {
	struct ofs_group_config config;
	int rank, size;
	struct mpi_peer *peer;
	struct ofs_silence *silence; /* by rank */
	MPI_Comm asks, all; /* for requests; for collective operations */
	struct mpi_pool pool;
	int wake; /* eventfd */
	pthread_t thread, answerer[NTHREADS];
	unsigned nanswerers;

	/* Held while MPI calls are made; the lock may be taken meanwhile. */
	pthread_mutex_t mpi;

	pthread_mutex_t lock; /* protects the members below */
	pthread_cond_t changed;
	pthread_cond_t more; /* signals answering threads: asked or stopping */
	TAILQ_HEAD(mpi_questions, mpi_question) queue; /* not sent yet */
	TAILQ_HEAD(mpi_jobs, mpi_job)
	asked, ready;  /* to be answered; to be sent */
	bool stopping; /* answering threads end */
	bool asleep;   /* the thread sleeps */
	bool helped;   /* another thread polls instead */
	bool takes;    /* with helped: and takes the first request */
	bool joined, leaving, ended;
	bool all_leave; /* with leaving: every rank does */
	struct optimfs_error join_err;

	/* Number of requests that threads wait for; abandoned ones do not
	 * justify polling. */
	_Atomic unsigned nawaited;

	_Atomic int64_t last; /* time of the last event, us */

	/* Protected by mpi. */
	bool closed; /* no more MPI calls */
	struct mpi_questions open;
	MPI_Request *req; /* nops active requests, described by op */
	struct mpi_op *op;
	int *done;
	MPI_Status *status;
	unsigned nops, capops;
	unsigned round;           /* round of sending */
	int slot[NSLOTS], nslots; /* free slots */
	uint64_t under_way;       /* bytes of outstanding answers */
	int64_t checked; /* time of the last check of peers and deadlines, ms */
};

int64_t mpi_now_us(void);
/* progress.c. Advances everything, unless another thread does so now; true if
 * something advanced. */
bool mpi_turn(struct ofs_group *w);
/* As above; mpi is held. */
bool mpi_progress(struct ofs_group *w);
/* Takes the place of the MPI thread, if nobody has, until all of batch is
 * answered (NULL: until there is a request), or nothing has happened for a while.
 * The lock is held, but not all the time. */
void mpi_help(struct ofs_group *w, const struct mpi_batch *batch);
/* For the MPI thread: waits for an event; longer if there was none for long. */
void mpi_rest(struct ofs_group *w);
/* Wakes the MPI thread, unless another one polls; the lock is held. */
void mpi_wake(struct ofs_group *w);
/* Abandons a request; the lock is held. priv of its ask becomes NULL if MPI
 * still needs the question. */
void mpi_abandon(struct ofs_group *w, struct mpi_question *q);
/* Are there no requests in progress and no answers to send? */
bool mpi_quiet(struct ofs_group *w);

/* answer.c */
int mpi_answer_start(struct ofs_group *w, struct optimfs_error *err);
void mpi_answer_stop(struct ofs_group *w);
void mpi_job_free(struct ofs_group *w, struct mpi_job *job);
void mpi_question_free(struct ofs_group *w, struct mpi_question *q);

#endif
