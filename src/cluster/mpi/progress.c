/* progress.c - sending and receiving messages, deadlines, lost ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "cluster/mpi/mpi.h"

/* For this time (in us) after an event, poll without sleeping: another message
 * is likely. Then sleeps grow from one length to another; while answers are
 * awaited they stay short. An idle rank polls 100 times a second, which takes
 * less than 1 % of a CPU. */
enum {
	EAGER = 60,
	EAGER_ASKING = 300,
	REST_MIN = 20,
	REST_ASKING = 200,
	REST_RECENT = 1000,
	RECENT = 1000 * 1000,
	REST_IDLE = 10000,
};
/* Interval (ms) for checking deadlines and whether peers are alive. */
enum { CHECK_MS = 20 };
int64_t mpi_now_us(void)
{
	return ofs_clock_ns() / 1000;
}

void mpi_wake(struct ofs_group *w)
{
	static const uint64_t one = 1;

	if (!w->asleep || w->helped)
		return;
	w->asleep = false;
	(void)!write(w->wake, &one, sizeof(one));
}

/* MPI operations in progress, in one array for MPI_Testsome. */

static bool reserve_op(struct ofs_group *w)
{
	unsigned cap = w->capops == 0 ? 64 : 2 * w->capops;
	MPI_Request *req;
	MPI_Status *status;
	struct mpi_op *op;
	int *done;

	if (w->nops + 2 <= w->capops)
		return true;
	if ((req = reallocarray(w->req, cap, sizeof(*req))) != NULL)
		w->req = req;
	if ((op = reallocarray(w->op, cap, sizeof(*op))) != NULL)
		w->op = op;
	if ((done = reallocarray(w->done, cap, sizeof(*done))) != NULL)
		w->done = done;
	if ((status = reallocarray(w->status, cap, sizeof(*status))) != NULL)
		w->status = status;
	if (req == NULL || op == NULL || done == NULL || status == NULL)
		return false;
	w->capops = cap;
	return true;
}

/* Requires reserve_op. */
static MPI_Request *new_op(struct ofs_group *w, enum mpi_op_kind kind,
    void *what)
{
	w->op[w->nops] = (struct mpi_op){ kind, what };
	return &w->req[w->nops++];
}

/* Requests of this rank. */

static int fail_dead(int rank, struct optimfs_error *err)
{
	return optimfs_fail(err, EHOSTDOWN,
	    "OFS911 the process has died: files that only it has cannot be "
	    "read (process %d of the job)",
	    rank);
}

static int fail_late(const struct ofs_group *w, struct optimfs_error *err)
{
	if (w->config.timeout == 0)
		return optimfs_fail(err, ETIMEDOUT,
		    "OFS912 no answer, and another rank has found it lost");
	return optimfs_fail(err, ETIMEDOUT,
	    "OFS912 no answer in %u seconds; -o timeout= sets the limit",
	    w->config.timeout);
}

/* Completes the request for its caller; the question stays as long as MPI needs
 * it. The lock is held. */
static void settle(struct ofs_group *w, struct mpi_question *q)
{
	if (q->ask == NULL)
		return;
	w->nawaited -= q->open;
	if (q->ask->err.code == 0)
		q->ask->answer = q->answer->bytes;
	q->ask = NULL;
	if (--q->batch->left == 0)
		pthread_cond_signal(&q->batch->done);
}

/* Fails a sent request for its caller while MPI still owns its buffers. release
 * finds priv NULL and leaves the question to this thread. */
static void give_up(struct ofs_group *w, struct mpi_question *q)
{
	q->ask->priv = NULL;
	settle(w, q);
}

void mpi_abandon(struct ofs_group *w, struct mpi_question *q)
{
	if (q->ask == NULL)
		return; /* already answered */
	if (!q->open) {
		TAILQ_REMOVE(&w->queue, q, next);
		return;
	}
	w->peer[q->to].noverdue++;
	give_up(w, q);
}

/* Evaluates an answer. The lock is held. */
static void take_answer(struct mpi_question *q, const MPI_Status *status,
    bool good)
{
	struct optimfs_error *err = &q->ask->err;
	struct mpi_tail tail;
	int n = 0;

	if (!good || MPI_Get_count(status, MPI_BYTE, &n) != MPI_SUCCESS ||
	    n < (int)sizeof(tail)) {
		optimfs_fail(err, EIO,
		    "OFS913 MPI could not receive an answer");
		return;
	}
	n -= (int)sizeof(tail);
	memcpy(&tail, q->answer->bytes + n, sizeof(tail));
	q->answer->bytes[n] = '\0';
	if (tail.code != 0) {
		*err = (struct optimfs_error){ (int)tail.code, (int)tail.number,
			tail.how, tail.lost, tail.nlost, "" };
		strncpy(err->text, (const char *)q->answer->bytes,
		    sizeof(err->text) - 1);
		if (err->how > OPTIMFS_LOST_UNITS ||
		    (size_t)err->lost + err->nlost > strlen(err->text))
			err->how = OPTIMFS_NOT_LOST;
	} else if ((uint64_t)n != q->want)
		optimfs_fail(err, EPROTO,
		    "OFS913 an answer of another length: do all ranks run the "
		    "same version?");
}

/* Of the questions to this rank that somebody waits for, is it the one that was
 * sent first? */
static bool is_oldest(const struct ofs_group *w, const struct mpi_question *q)
{
	const struct mpi_question *first;

	TAILQ_FOREACH(first, &w->open, next)
	if (first == q || (first->to == q->to && first->ask != NULL))
		break;
	return first == q;
}

/* What the time of an answer says of its rank. */
static void learn(struct ofs_group *w, const struct mpi_question *q,
    int64_t now)
{
	struct mpi_peer *peer = &w->peer[q->to];
	int64_t took = now - q->sent;

	if (is_oldest(w, q))
		peer->moved = now;
	if (took <= QUICK_MS && peer->window < WINDOW)
		peer->window += q->want;
	else if (took > (int64_t)w->config.timeout * 1000 / 4 &&
	    w->config.timeout != 0)
		peer->window = peer->window / 2 < WINDOW_A_RANK
		    ? WINDOW_A_RANK
		    : peer->window / 2;
}

/* One of the two operations of a question is complete; after both it is
 * finished. */
static void question_op(struct ofs_group *w, struct mpi_question *q,
    const MPI_Status *status, bool answer, bool good)
{
	struct mpi_peer *peer = &w->peer[q->to];
	bool given_up;

	pthread_mutex_lock(&w->lock);
	if (answer && good) {
		int64_t now = mpi_now_us() / 1000;

		ofs_silence_end(&w->silence[q->to], now);
		learn(w, q, now);
	}
	if (!good && q->ask != NULL && !answer)
		optimfs_fail(&q->ask->err, EIO,
		    "OFS913 MPI could not send a request");
	if (answer && q->ask != NULL && q->ask->err.code == 0)
		take_answer(q, status, good);
	if (--q->ops > 0) {
		pthread_mutex_unlock(&w->lock);
		return;
	}
	given_up = q->ask == NULL;
	settle(w, q);
	peer->noverdue -= given_up;
	TAILQ_REMOVE(&w->open, q, next);
	w->slot[w->nslots++] = q->slot;
	w->under_way -= q->want;
	peer->nslots--;
	peer->under_way -= q->want;
	pthread_mutex_unlock(&w->lock);
	if (given_up)
		mpi_question_free(w, q);
}

/* Sends a question. */
static void send_question(struct ofs_group *w, struct mpi_question *q)
{
	struct mpi_head head = { .want = q->want };
	size_t n = ANSWER_SIZE(q->want);

	q->slot = w->slot[--w->nslots];
	q->sent = mpi_now_us() / 1000;
	q->open = true;
	q->ops = 2;
	w->under_way += q->want;
	w->peer[q->to].nslots++;
	w->peer[q->to].under_way += q->want;
	head.slot = (uint32_t)q->slot;
	memcpy(q->request->bytes, &head, sizeof(head));
	TAILQ_INSERT_TAIL(&w->open, q, next);
	w->nawaited++;
	MPI_Irecv(q->answer->bytes, (int)n, MPI_BYTE, q->to,
	    TAG_ANSWER + q->slot, w->asks, new_op(w, OP_ANSWER, q));
	MPI_Isend(q->request->bytes, (int)q->nrequest, MPI_BYTE, q->to,
	    TAG_REQUEST, w->asks, new_op(w, OP_REQUEST, q));
}

static bool fits(uint64_t under_way, uint64_t want, uint64_t window)
{
	return under_way == 0 || under_way + want <= window;
}

/* Is there room for another request to this rank, within its share? */
static bool has_room(const struct ofs_group *w, const struct mpi_peer *peer,
    uint64_t want)
{
	unsigned size = (unsigned)w->size;
	unsigned slots = NSLOTS / size;
	uint64_t window = WINDOW / size;

	if (slots < SLOTS_A_RANK)
		slots = SLOTS_A_RANK;
	if (window < WINDOW_A_RANK)
		window = WINDOW_A_RANK;
	if (window > peer->window)
		window = peer->window;
	return peer->nslots < slots && fits(peer->under_way, want, window);
}

/* 0: may be sent, 1: not yet, -1: failed. The lock is held. */
static int may_send(struct ofs_group *w, struct mpi_question *q)
{
	const struct mpi_peer *peer = &w->peer[q->to];

	if (peer->dead)
		return fail_dead(q->to, &q->ask->err);
	if (peer->noverdue >= SLOTS_A_RANK)
		return fail_late(w, &q->ask->err);
	if (!has_room(w, peer, q->want))
		return 1;
	if (reserve_op(w))
		return 0;
	return optimfs_fail(&q->ask->err, ENOMEM,
	    "out of memory for a request");
}

/* Sends queued requests, in order per rank; a full rank does not delay
 * others. */
static bool send_questions(struct ofs_group *w)
{
	struct mpi_question *q, *next;
	bool moved = false;
	int ret;

	pthread_mutex_lock(&w->lock);
	w->round++;
	for (q = TAILQ_FIRST(&w->queue); q != NULL; q = next) {
		struct mpi_peer *peer = &w->peer[q->to];

		next = TAILQ_NEXT(q, next);
		if (w->nslots == 0 || !fits(w->under_way, q->want, WINDOW))
			break;
		ret = peer->full == w->round ? 1 : may_send(w, q);
		if (ret == 1) {
			peer->full = w->round;
			continue;
		}
		TAILQ_REMOVE(&w->queue, q, next);
		if (ret == -1)
			settle(w, q);
		else
			send_question(w, q);
		moved = true;
	}
	pthread_mutex_unlock(&w->lock);
	return moved;
}

/* Requests of others. */

static void queue_job(struct ofs_group *w, struct mpi_job *job)
{
	struct mpi_head head;

	memcpy(&head, job->request->bytes, sizeof(head));
	job->slot = head.slot;
	job->want = head.want;
	if (head.slot >= NSLOTS || head.want > OFS_GROUP_ANSWER_MAX) {
		mpi_job_free(w, job); /* not a valid request */
		return;
	}
	pthread_mutex_lock(&w->lock);
	if (!w->takes || !TAILQ_EMPTY(&w->asked))
		pthread_cond_signal(&w->more);
	TAILQ_INSERT_TAIL(&w->asked, job, next);
	pthread_mutex_unlock(&w->lock);
}

static void take_request(struct ofs_group *w, MPI_Message *message,
    const MPI_Status *status)
{
	struct mpi_job *job = calloc(1, sizeof(*job));
	int n;

	MPI_Get_count(status, MPI_BYTE, &n);
	if (job != NULL)
		job->request = mpi_pool_get(&w->pool, (size_t)n);
	if (job == NULL || job->request == NULL || !reserve_op(w) ||
	    n < (int)sizeof(struct mpi_head)) {
		/* must be received anyway; truncation is reported as its
		 * error */
		MPI_Mrecv(NULL, 0, MPI_BYTE, message, MPI_STATUS_IGNORE);
		if (job != NULL)
			mpi_job_free(w, job);
		return;
	}
	job->from = status->MPI_SOURCE;
	job->nrequest = (size_t)n - sizeof(struct mpi_head);
	ofs_silence_end(&w->silence[job->from], mpi_now_us() / 1000);
	MPI_Imrecv(job->request->bytes, n, MPI_BYTE, message,
	    new_op(w, OP_TAKE, job));
}

static bool take_requests(struct ofs_group *w)
{
	MPI_Message message;
	MPI_Status status;
	bool moved = false;
	int there;

	for (;;) {
		if (MPI_Improbe(MPI_ANY_SOURCE, TAG_REQUEST, w->asks, &there,
			&message, &status) != MPI_SUCCESS ||
		    !there)
			return moved;
		take_request(w, &message, &status);
		moved = true;
	}
}

static bool send_answers(struct ofs_group *w)
{
	struct mpi_job *job;
	bool moved = false;

	for (;;) {
		pthread_mutex_lock(&w->lock);
		job = TAILQ_FIRST(&w->ready);
		if (job != NULL)
			TAILQ_REMOVE(&w->ready, job, next);
		pthread_mutex_unlock(&w->lock);
		if (job == NULL)
			return moved;
		moved = true;
		if (w->peer[job->from].dead || !reserve_op(w)) {
			mpi_job_free(w, job);
			continue;
		}
		MPI_Isend(job->answer->bytes, (int)job->nanswer, MPI_BYTE,
		    job->from, TAG_ANSWER + (int)job->slot, w->asks,
		    new_op(w, OP_GIVE, job));
	}
}

/* Completed operations. */

static void complete(struct ofs_group *w, struct mpi_op op,
    const MPI_Status *status, bool good)
{
	switch (op.kind) {
	case OP_REQUEST:
	case OP_ANSWER:
		question_op(w, op.what, status, op.kind == OP_ANSWER, good);
		break;
	case OP_TAKE:
		if (good)
			queue_job(w, op.what);
		else
			mpi_job_free(w, op.what);
		break;
	case OP_GIVE:
		mpi_job_free(w, op.what);
		break;
	}
}

/* Closes the gaps left by completed requests, which MPI has set to null. */
static void close_gaps(struct ofs_group *w)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < w->nops; i++) {
		if (w->req[i] == MPI_REQUEST_NULL)
			continue;
		w->req[kept] = w->req[i];
		w->op[kept++] = w->op[i];
	}
	w->nops = kept;
}

static bool test_ops(struct ofs_group *w)
{
	int n = 0, ret;

	if (w->nops == 0)
		return false;
	ret = MPI_Testsome((int)w->nops, w->req, &n, w->done, w->status);
	if (n == MPI_UNDEFINED || n <= 0)
		return false;
	for (int i = 0; i < n; i++)
		complete(w, w->op[w->done[i]], &w->status[i],
		    ret != MPI_ERR_IN_STATUS ||
			w->status[i].MPI_ERROR == MPI_SUCCESS);
	close_gaps(w);
	return true;
}

/* Liveness and deadlines. */

static void find_dead(struct ofs_group *w)
{
	for (int r = 0; r < w->size; r++) {
		struct pollfd p = { .fd = w->peer[r].pidfd, .events = POLLIN };

		if (p.fd != -1 && !w->peer[r].dead && poll(&p, 1, 0) == 1)
			w->peer[r].dead = true;
	}
}

/* The time for an answer begins anew when what was asked before is answered: a
 * link may need all of it for the bytes of a few answers. Only the oldest counts,
 * because a rank that answers everything but one question is late with that. */
static int64_t deadline_of(const struct ofs_group *w,
    const struct mpi_question *q)
{
	int64_t moved =
	    w->peer[q->to].moved + (int64_t)w->config.timeout * 1000;

	return q->deadline < moved ? moved : q->deadline;
}

/* The lock is held. */
static bool overdue(struct ofs_group *w, struct mpi_question *q, int64_t now)
{
	if (w->peer[q->to].dead) {
		fail_dead(q->to, &q->ask->err);
		return true;
	}
	if (now < deadline_of(w, q))
		return false;
	if (q->deadline != 0) /* else another rank has found that */
		ofs_silence_note(w->silence, w->size, w->rank, q->to, now,
		    (int64_t)w->config.timeout * 1000);
	fail_late(w, &q->ask->err);
	return true;
}

static void check_peers(struct ofs_group *w)
{
	int64_t now = mpi_now_us() / 1000;
	struct mpi_question *q, *next;

	if (now - w->checked < CHECK_MS)
		return;
	w->checked = now;
	find_dead(w);
	pthread_mutex_lock(&w->lock);
	for (q = TAILQ_FIRST(&w->open); q != NULL; q = next) {
		next = TAILQ_NEXT(q, next);
		if (q->ask == NULL || !overdue(w, q, now))
			continue;
		w->peer[q->to].noverdue++;
		give_up(w, q);
	}
	for (q = TAILQ_FIRST(&w->queue); q != NULL; q = next) {
		next = TAILQ_NEXT(q, next);
		if (!overdue(w, q, now))
			continue;
		TAILQ_REMOVE(&w->queue, q, next);
		settle(w, q);
	}
	pthread_mutex_unlock(&w->lock);
}

bool mpi_progress(struct ofs_group *w)
{
	bool moved = send_questions(w);

	moved |= take_requests(w);
	moved |= send_answers(w);
	moved |= test_ops(w);
	check_peers(w);
	if (moved)
		w->last = mpi_now_us();
	return moved;
}

bool mpi_turn(struct ofs_group *w)
{
	bool moved;

	if (pthread_mutex_trylock(&w->mpi) != 0)
		return false;
	moved = !w->closed && mpi_progress(w);
	pthread_mutex_unlock(&w->mpi);
	return moved;
}

/* The lock is held. batch may be NULL: has another rank sent a request? */
static bool has_come(const struct ofs_group *w, const struct mpi_batch *batch)
{
	return batch == NULL ? !TAILQ_EMPTY(&w->asked) : batch->left == 0;
}

/* The lock is held, but not while it polls. */
void mpi_help(struct ofs_group *w, const struct mpi_batch *batch)
{
	int64_t eager = batch == NULL ? EAGER : EAGER_ASKING;
	int64_t end = mpi_now_us() + eager;

	if (w->helped)
		return;
	w->helped = true;
	w->takes = batch == NULL;
	while (!has_come(w, batch) && mpi_now_us() < end) {
		pthread_mutex_unlock(&w->lock);
		if (mpi_turn(w))
			end = mpi_now_us() + eager;
		else
			sched_yield();
		pthread_mutex_lock(&w->lock);
	}
	w->helped = w->takes = false;
	if (w->nawaited > 0 || !TAILQ_EMPTY(&w->queue) ||
	    !TAILQ_EMPTY(&w->ready))
		mpi_wake(w);
}

bool mpi_quiet(struct ofs_group *w)
{
	bool quiet;

	pthread_mutex_lock(&w->lock);
	quiet = TAILQ_EMPTY(&w->queue) && TAILQ_EMPTY(&w->asked) &&
	    TAILQ_EMPTY(&w->ready) && w->nops == 0;
	pthread_mutex_unlock(&w->lock);
	return quiet;
}

static int64_t rest_length(const struct ofs_group *w, int64_t idle)
{
	int64_t rest = idle / 4;

	if (rest < REST_MIN)
		rest = REST_MIN;
	if (w->nawaited > 0)
		return rest < REST_ASKING ? rest : REST_ASKING;
	if (idle < RECENT)
		return rest < REST_RECENT ? rest : REST_RECENT;
	return REST_IDLE;
}

void mpi_rest(struct ofs_group *w)
{
	struct pollfd p = { .fd = w->wake, .events = POLLIN };
	int64_t idle = mpi_now_us() - w->last, rest;
	struct timespec t = { 0 };
	bool helped;
	uint64_t n;

	pthread_mutex_lock(&w->lock);
	helped = w->helped;
	if (!helped && idle < (w->nawaited == 0 ? EAGER : EAGER_ASKING)) {
		pthread_mutex_unlock(&w->lock);
		sched_yield();
		return;
	}
	w->asleep = helped ||
	    (TAILQ_EMPTY(&w->queue) && TAILQ_EMPTY(&w->ready) && !w->leaving);
	rest = helped ? REST_ASKING : rest_length(w, idle);
	/* messages that wait for room wait for others */
	if (!w->asleep && !TAILQ_EMPTY(&w->ready))
		rest = 0;
	else if (!w->asleep && rest > REST_ASKING)
		rest = REST_ASKING;
	pthread_mutex_unlock(&w->lock);
	t.tv_nsec = rest * 1000;
	if (ppoll(&p, 1, &t, NULL) == 1)
		(void)!read(w->wake, &n, sizeof(n));
	pthread_mutex_lock(&w->lock);
	w->asleep = false;
	pthread_mutex_unlock(&w->lock);
}
