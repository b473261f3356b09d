/* mpi.c - connect the ranks of a job by MPI */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cluster/mpi/mpi.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

/* MPI may take so many times the timeout to connect the ranks. */
enum { JOIN_TIMEOUTS = 10 };
/* The fewest seconds to wait for others when leaving. */
enum { LEAVE_PATIENCE = 5 };
/* If a rank is lost, this time (us) without a message ends the job: the others
 * have their answers. */
enum { DRAIN_US = 100 * 1000 };

/* The identity of a process: a pid is only meaningful if machine and name space
 * are equal. The first members, and the size, are those of all versions. */
struct identity {
	char version[32];
	char host[64], boot[40];
	uint64_t pids; /* the pid name space */
	int32_t pid;
};

/* Start and end of the MPI thread. */

static void read_line(const char *path, char *line, size_t size)
{
	FILE *f = fopen(path, "re");

	if (f == NULL || fgets(line, (int)size, f) == NULL)
		line[0] = '\0';
	if (f != NULL)
		fclose(f);
}

static void identify(struct identity *me)
{
	struct stat st;

	*me = (struct identity){ .version = "optimfs " PACKAGE_VERSION,
		.pid = getpid() };
	(void)gethostname(me->host, sizeof(me->host) - 1);
	read_line("/proc/sys/kernel/random/boot_id", me->boot,
	    sizeof(me->boot));
	if (stat("/proc/self/ns/pid", &st) == 0)
		me->pids = st.st_ino;
}

static bool same_machine(const struct identity *a, const struct identity *b)
{
	return strcmp(a->host, b->host) == 0 && strcmp(a->boot, b->boot) == 0;
}

static void add_peer(struct ofs_group *w, const struct identity *id, int rank)
{
	struct mpi_peer *p = &w->peer[rank];
	const struct identity *me = &id[w->rank];

	snprintf(p->host, sizeof(p->host), "%s", id[rank].host);
	p->pidfd = -1;
	p->window = WINDOW_FIRST;
	p->node = 0;
	while (!same_machine(&id[p->node], &id[rank]))
		p->node++;
	w->silence[rank].node = p->node;
	if (rank != w->rank && same_machine(me, &id[rank]) &&
	    me->pids == id[rank].pids && me->pids != 0)
		p->pidfd = (int)syscall(SYS_pidfd_open, id[rank].pid, 0);
}

/* All ranks find the same, and so none waits for another one. */
static int check_versions(const struct ofs_group *w, const struct identity *id,
    struct optimfs_error *err)
{
	for (int r = 1; r < w->size; r++)
		if (strncmp(id[0].version, id[r].version,
			sizeof(id[0].version)) != 0)
			return optimfs_fail(err, EPROTO,
			    "OFS913 rank 0 (%.63s) is %.31s, and rank %d "
			    "(%.63s) is %.31s: install the same version on all "
			    "machines",
			    id[0].host, id[0].version, r, id[r].host,
			    id[r].version);
	return 0;
}

static int identify_all(struct ofs_group *w, struct optimfs_error *err)
{
	struct identity *id = calloc((size_t)w->size, sizeof(*id)), me;
	int ret;

	w->peer = calloc((size_t)w->size, sizeof(*w->peer));
	w->silence = calloc((size_t)w->size, sizeof(*w->silence));
	if (id == NULL || w->peer == NULL || w->silence == NULL) {
		free(id);
		return optimfs_fail(err, ENOMEM, "out of memory");
	}
	identify(&me);
	ret = MPI_Allgather(&me, sizeof(me), MPI_BYTE, id, sizeof(me), MPI_BYTE,
	    w->all);
	for (int r = 0; r < w->size && ret == MPI_SUCCESS; r++)
		add_peer(w, id, r);
	if (ret != MPI_SUCCESS)
		ret = optimfs_fail(err, EIO,
		    "OFS913 MPI cannot connect the ranks");
	else
		ret = check_versions(w, id, err);
	free(id);
	return ret;
}

static int start(struct ofs_group *w, struct optimfs_error *err)
{
	int provided;

	if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided) !=
		MPI_SUCCESS ||
	    provided < MPI_THREAD_SERIALIZED)
		return optimfs_fail(err, EIO,
		    "OFS913 MPI cannot be used from several threads");
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	if (MPI_Comm_dup(MPI_COMM_WORLD, &w->asks) != MPI_SUCCESS ||
	    MPI_Comm_dup(MPI_COMM_WORLD, &w->all) != MPI_SUCCESS)
		return optimfs_fail(err, EIO,
		    "OFS913 MPI cannot connect the ranks");
	MPI_Comm_set_errhandler(w->asks, MPI_ERRORS_RETURN);
	MPI_Comm_set_errhandler(w->all, MPI_ERRORS_RETURN);
	MPI_Comm_rank(w->all, &w->rank);
	MPI_Comm_size(w->all, &w->size);
	return identify_all(w, err);
}

/* How long to wait for others when leaving, in seconds: a rank that is silent
 * for timeout= is lost. */
static int64_t leave_patience(const struct ofs_group *w)
{
	return w->config.timeout > LEAVE_PATIENCE ? w->config.timeout
						  : LEAVE_PATIENCE;
}

/* Do all ranks arrive here? mpi is held. */
static bool all_arrive(struct ofs_group *w)
{
	int64_t end = mpi_now_us() + leave_patience(w) * 1000000;
	MPI_Request req;
	int done = 0;

	if (!w->all_leave)
		return false;
	MPI_Ibarrier(w->all, &req);
	while (!done) {
		if (MPI_Test(&req, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS ||
		    mpi_now_us() > end)
			return false;
		for (int r = 0; r < w->size; r++)
			if (w->peer[r].dead)
				return false;
		if (!done && !mpi_progress(w))
			mpi_rest(w);
	}
	return true;
}

/* MPI_Finalize waits for all ranks. If one is lost, it is not called, and the
 * process exits without it. */
static void finish(struct ofs_group *w)
{
	bool all;

	pthread_mutex_lock(&w->mpi);
	all = all_arrive(w);
	while (all ? !mpi_quiet(w) : mpi_now_us() - w->last < DRAIN_US)
		if (!mpi_progress(w))
			mpi_rest(w);
	w->closed = true;
	if (all)
		MPI_Finalize();
	pthread_mutex_unlock(&w->mpi);
}

static bool is_leaving(struct ofs_group *w)
{
	bool leaving;

	pthread_mutex_lock(&w->lock);
	leaving = w->leaving;
	pthread_mutex_unlock(&w->lock);
	return leaving;
}

static void *communicate(void *arg)
{
	struct ofs_group *w = arg;
	struct optimfs_error err = { 0 };
	int ret = start(w, &err);

	/* sleeps are shorter than the kernel's default timer slack */
	(void)prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);

	pthread_mutex_lock(&w->lock);
	w->joined = true;
	w->join_err = err;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
	if (ret == -1)
		return NULL;
	while (!is_leaving(w))
		if (!mpi_turn(w))
			mpi_rest(w);
	finish(w);
	pthread_mutex_lock(&w->lock);
	w->ended = true;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

/* The operations of the module. */

static void free_group(struct ofs_group *w)
{
	for (int r = 0; w->peer != NULL && r < w->size; r++)
		if (w->peer[r].pidfd != -1)
			close(w->peer[r].pidfd);
	if (w->wake != -1)
		close(w->wake);
	mpi_pool_fini(&w->pool);
	pthread_cond_destroy(&w->changed);
	pthread_cond_destroy(&w->more);
	pthread_mutex_destroy(&w->lock);
	pthread_mutex_destroy(&w->mpi);
	free(w->peer);
	free(w->silence);
	free(w->req);
	free(w->op);
	free(w->done);
	free(w->status);
	free(w);
}

static struct ofs_group *new_group(const struct ofs_group_config *config)
{
	struct ofs_group *w = calloc(1, sizeof(*w));

	if (w == NULL)
		return NULL;
	w->config = *config;
	pthread_mutex_init(&w->lock, NULL);
	pthread_mutex_init(&w->mpi, NULL);
	pthread_mutex_init(&w->pool.lock, NULL);
	pthread_cond_init(&w->changed, NULL);
	pthread_cond_init(&w->more, NULL);
	TAILQ_INIT(&w->queue);
	TAILQ_INIT(&w->open);
	TAILQ_INIT(&w->asked);
	TAILQ_INIT(&w->ready);
	while (w->nslots < NSLOTS) {
		w->slot[w->nslots] = NSLOTS - 1 - w->nslots;
		w->nslots++;
	}
	w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->wake != -1)
		return w;
	free_group(w);
	return NULL;
}

/* Blocks signals, which belong to the main program, also in the threads that
 * MPI starts from this one. */
static void block_signals(sigset_t *old)
{
	sigset_t all;

	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, old);
}

/* Waits until MPI has connected the ranks. Under mpirun --enable-recovery it
 * waits for ever if one of them dies before that. */
static int wait_joined(struct ofs_group *w, struct optimfs_error *err)
{
	int64_t s = (int64_t)w->config.timeout * JOIN_TIMEOUTS;
	int code = 0;

	pthread_mutex_lock(&w->lock);
	while (!w->joined && code == 0)
		if (s == 0)
			pthread_cond_wait(&w->changed, &w->lock);
		else
			code = ofs_clock_wait(&w->changed, &w->lock,
			    s * 1000000000);
	pthread_mutex_unlock(&w->lock);
	if (code != 0)
		return optimfs_fail(err, ETIMEDOUT,
		    "OFS912 MPI has not connected the ranks in %lld seconds: "
		    "one may have died; -o timeout= sets the limit",
		    (long long)s);
	return w->join_err.code != 0 ? optimfs_fail_with(err, &w->join_err) : 0;
}

static int start_threads(struct ofs_group *w, struct optimfs_error *err)
{
	int code = pthread_create(&w->thread, NULL, communicate, w);

	if (code != 0)
		return optimfs_fail(err, code, "cannot start a thread: %s",
		    strerror(code));
	if (wait_joined(w, err) == -1)
		return -1;
	return mpi_answer_start(w, err);
}

static struct ofs_group *join(const struct ofs_group_config *config,
    struct optimfs_error *err)
{
	struct ofs_group *w = new_group(config);
	sigset_t old;
	int ret;

	if (w == NULL) {
		optimfs_fail(err, ENOMEM, "out of memory");
		return NULL;
	}
	block_signals(&old);
	ret = start_threads(w, err);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	/* after a failure a thread may still use it, so it is not freed */
	return ret == 0 ? w : NULL;
}

static int get_rank(const struct ofs_group *w)
{
	return w->rank;
}

static int get_size(const struct ofs_group *w)
{
	return w->size;
}

static const char *get_host(const struct ofs_group *w, int rank)
{
	return w->peer[rank].host;
}

static int get_node(const struct ofs_group *w, int rank)
{
	return w->peer[rank].node;
}

static bool is_dead(const struct ofs_group *w, int rank)
{
	return w->peer[rank].dead;
}

static int64_t deadline(const struct ofs_group *w, int to)
{
	int64_t ms = ofs_silence_limit(&w->silence[to],
	    (int64_t)w->config.timeout * 1000);

	return ms == 0 ? INT64_MAX : mpi_now_us() / 1000 + ms;
}

static void free_batch(struct mpi_batch *batch)
{
	if (batch != NULL)
		pthread_cond_destroy(&batch->done);
	free(batch);
}

static struct mpi_question *new_question(struct ofs_group *w,
    struct ofs_ask *ask, struct mpi_batch *batch)
{
	struct mpi_question *q = calloc(1, sizeof(*q));

	if (q == NULL)
		return NULL;
	q->request =
	    mpi_pool_get(&w->pool, sizeof(struct mpi_head) + ask->nrequest);
	q->answer = mpi_pool_get(&w->pool, ANSWER_SIZE(ask->want));
	if (q->request == NULL || q->answer == NULL) {
		mpi_question_free(w, q);
		return NULL;
	}
	memcpy(q->request->bytes + sizeof(struct mpi_head), ask->request,
	    ask->nrequest);
	q->nrequest = sizeof(struct mpi_head) + ask->nrequest;
	q->ask = ask;
	q->batch = batch;
	q->want = ask->want;
	q->to = ask->to;
	q->deadline = deadline(w, ask->to);
	return q;
}

static void queue_all(struct ofs_group *w, struct ofs_ask *ask, size_t n)
{
	struct mpi_batch *batch = calloc(1, sizeof(*batch));

	if (batch != NULL)
		pthread_cond_init(&batch->done, NULL);
	for (size_t i = 0; i < n; i++) {
		ask[i].err.code = 0;
		ask[i].answer = NULL;
		ask[i].batch = batch;
		ask[i].priv =
		    batch == NULL ? NULL : new_question(w, &ask[i], batch);
		if (ask[i].priv == NULL)
			optimfs_fail(&ask[i].err, ENOMEM,
			    "out of memory for a request");
	}
	pthread_mutex_lock(&w->lock);
	for (size_t i = 0; i < n; i++) {
		struct mpi_question *q = ask[i].priv;

		if (q == NULL)
			continue;
		TAILQ_INSERT_TAIL(&w->queue, q, next);
		batch->left++;
	}
	pthread_mutex_unlock(&w->lock);
	if (n == 0)
		free_batch(batch);
}

static void start_all(struct ofs_group *w, struct ofs_ask *ask, size_t n)
{
	queue_all(w, ask, n);
	pthread_mutex_lock(&w->lock);
	mpi_wake(w);
	pthread_mutex_unlock(&w->lock);
}

static void wait_all(struct ofs_group *w, struct ofs_ask *ask, size_t n)
{
	struct mpi_batch *batch = n == 0 ? NULL : ask[0].batch;

	if (batch == NULL)
		return;
	pthread_mutex_lock(&w->lock);
	if (batch->left > 0)
		mpi_help(w, batch);
	while (batch->left > 0)
		pthread_cond_wait(&batch->done, &w->lock);
	pthread_mutex_unlock(&w->lock);
}

static void ask_all(struct ofs_group *w, struct ofs_ask *ask, size_t n)
{
	queue_all(w, ask, n);
	wait_all(w, ask, n);
}

static void release(struct ofs_group *w, struct ofs_ask *ask, size_t n)
{
	pthread_mutex_lock(&w->lock);
	for (size_t i = 0; i < n; i++)
		if (ask[i].priv != NULL)
			mpi_abandon(w, ask[i].priv);
	pthread_mutex_unlock(&w->lock);
	for (size_t i = 0; i < n; i++) {
		if (ask[i].priv != NULL)
			mpi_question_free(w, ask[i].priv);
		ask[i].priv = NULL;
		ask[i].answer = NULL;
	}
	if (n > 0)
		free_batch(ask[0].batch);
}

/* Requests to it are overdue now, and later ones soon are. */
static void forget_rank(struct ofs_group *w, int rank)
{
	struct mpi_question *q;

	pthread_mutex_lock(&w->lock);
	atomic_store(&w->silence[rank].late, true);
	w->peer[rank].moved = -(int64_t)w->config.timeout * 1000;
	TAILQ_FOREACH(q, &w->open, next)
	if (q->to == rank)
		q->deadline = 0;
	TAILQ_FOREACH(q, &w->queue, next)
	if (q->to == rank)
		q->deadline = 0;
	pthread_mutex_unlock(&w->lock);
}

/* If MPI still owns buffers, they are not freed: the process ends soon. */
static void leave(struct ofs_group *w, bool all)
{
	int code = 0;
	bool clean;

	pthread_mutex_lock(&w->lock);
	w->leaving = true;
	w->all_leave = all;
	mpi_wake(w);
	while (!w->ended && code == 0)
		code = ofs_clock_wait(&w->changed, &w->lock,
		    2 * leave_patience(w) * 1000000000);
	pthread_mutex_unlock(&w->lock);
	if (code != 0)
		return;
	pthread_join(w->thread, NULL);
	mpi_answer_stop(w);
	clean =
	    w->nops == 0 && TAILQ_EMPTY(&w->asked) && TAILQ_EMPTY(&w->ready);
	if (clean)
		free_group(w);
}

__attribute__((visibility("default")))
const struct ofs_group_ops optimfs_group_module = {
	.version = OFS_GROUP_VERSION,
	.join = join,
	.rank = get_rank,
	.size = get_size,
	.host = get_host,
	.node = get_node,
	.ask = ask_all,
	.release = release,
	.dead = is_dead,
	.leave = leave,
	.start = start_all,
	.wait = wait_all,
	.forget = forget_rank,
};
