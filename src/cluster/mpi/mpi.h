/* mpi.h - what the files of the MPI module share */
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

/* One thread does all that is MPI. Others leave work in lists under the lock
 * and wake it; a few more threads make answers. docs/architecture.md tells the
 * whole.
 *
 * A request goes to TAG_REQUEST with a struct mpi_head in front; its answer
 * comes to TAG_ANSWER + slot, with a status behind it: so that each is one
 * message, and an answer is received where the request said it would be. */
enum { TAG_REQUEST = 1, TAG_ANSWER = 16 };
enum {
	NSLOTS = 1024,     /* requests under way */
	SLOTS_A_RANK = 64, /* of which so many may be overdue at one rank */
	NTHREADS = 4,      /* that make answers */
};
/* Of requests under way, the answers: of all, and of those to one rank at least,
 * so that what is asked of a rank that is silent leaves room for others. */
#define WINDOW        ((uint64_t)128 << 20)
#define WINDOW_A_RANK OFS_GROUP_ANSWER_MAX

struct mpi_head {
	uint64_t want;
	uint32_t slot;
	uint32_t unused;
};
/* What stands behind an answer: code 0 after want bytes, otherwise an errno
 * value after a text. */
struct mpi_tail {
	uint32_t code;
};
#define MPI_TEXT sizeof(((struct optimfs_error *)0)->text)
#define ANSWER_SIZE(want) \
 (((want) > MPI_TEXT ? (size_t)(want) : MPI_TEXT) + sizeof(struct mpi_tail))

/* Memory of messages: pool.c's way to not ask the kernel for each. */
struct mpi_block {
	size_t size;
	LIST_ENTRY(mpi_block) next;
	_Alignas(64) uint8_t bytes[];
};
struct mpi_pool {
	pthread_mutex_t lock;
	LIST_HEAD(, mpi_block) spare; /* of the large size */
	unsigned nspare;
};
struct mpi_block *mpi_pool_get(struct mpi_pool *pool, size_t size);
void mpi_pool_put(struct mpi_pool *pool, struct mpi_block *block);
void mpi_pool_fini(struct mpi_pool *pool);

/* Questions that one caller waits for. */
struct mpi_batch {
	pthread_cond_t done;
	size_t left;
};

/* A question, from ask to release. Once it is under way it may outlive both:
 * MPI still owns its buffers when nobody waits any more. */
struct mpi_question {
	TAILQ_ENTRY(mpi_question) next; /* of the queue, then of the open */
	struct ofs_ask *ask;            /* NULL: given up */
	struct mpi_batch *batch;
	struct mpi_block *request, *answer;
	size_t nrequest;
	uint64_t want;
	int64_t deadline; /* ms; INT64_MAX: none */
	int to, slot;
	unsigned ops; /* of MPI that are not complete */
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
	void *what; /* a question, or a job */
};

struct mpi_peer {
	char host[64];
	int node, pidfd; /* pidfd: of a process of this machine, or -1 */
	atomic_bool dead;
	atomic_bool
	    late; /* it has let a deadline pass, and said nothing since */
	unsigned noverdue; /* slots that it has not given back */
	/* Of requests to it that are under way: slots, bytes of answers. */
	unsigned nslots;
	uint64_t under_way;
	unsigned full; /* the round (ofs_group.round) in which it has no room */
};

struct ofs_group {
	struct ofs_group_config config;
	int rank, size;
	struct mpi_peer *peer;
	MPI_Comm asks, all; /* for requests, for what all ranks do */
	struct mpi_pool pool;
	int wake; /* an eventfd */
	pthread_t thread, answerer[NTHREADS];
	unsigned nanswerers;

	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	pthread_cond_t more; /* asked, or stopping: for those who answer */
	TAILQ_HEAD(mpi_questions, mpi_question) queue; /* not sent yet */
	TAILQ_HEAD(mpi_jobs, mpi_job) asked, ready;    /* to answer, to send */
	bool stopping;                                 /* answerers leave */
	bool asleep; /* the thread wants to be woken */
	bool joined, leaving;
	struct optimfs_error join_err;

	/* Of those under way, how many somebody waits for; what was given up
	 * is no reason to look often. */
	_Atomic unsigned nawaited;

	/* The communicating thread's own. */
	struct mpi_questions open;
	MPI_Request *req; /* nops of them are active; op tells what they are */
	struct mpi_op *op;
	int *done;
	MPI_Status *status;
	unsigned nops, capops;
	unsigned round;           /* of sending */
	int slot[NSLOTS], nslots; /* free ones */
	uint64_t under_way;       /* bytes of answers that were asked for */
	int64_t last;             /* us, when something happened */
	int64_t checked;          /* ms, when peers and deadlines were */
};

int64_t mpi_now_us(void);
/* progress.c: for the communicating thread. Move everything that can be
 * moved; true when something was. */
bool mpi_progress(struct ofs_group *w);
/* Wait for something to happen; long if nothing has for long. */
void mpi_rest(struct ofs_group *w);
/* Make it look; with the lock held. */
void mpi_wake(struct ofs_group *w);
/* Nobody waits for the answer any more, with the lock held: its ask has priv
 * NULL where MPI still needs the question. */
void mpi_abandon(struct ofs_group *w, struct mpi_question *q);
/* No question is under way and no answer owed. */
bool mpi_quiet(struct ofs_group *w);

/* answer.c */
int mpi_answer_start(struct ofs_group *w, struct optimfs_error *err);
void mpi_answer_stop(struct ofs_group *w);
void mpi_job_free(struct ofs_group *w, struct mpi_job *job);
void mpi_question_free(struct ofs_group *w, struct mpi_question *q);

#endif
