/* nccl.c - the thread that drives a GPU and its connection */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cluster/gpu/nccl.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

/* Sleep of the thread while something is in progress. */
#define REST_NS (20 * 1000)

int64_t nccl_deadline(const struct ofs_gpu *g)
{
	return g->config.timeout == 0
	    ? INT64_MAX
	    : ofs_clock_ms() + (int64_t)g->config.timeout * 1000;
}

static bool travels(const struct ofs_gpu_work *work)
{
	return !work->arrived && (work->nreceives > 0 || work->nsends > 0);
}

static void finish(struct ofs_gpu_work *work, const struct optimfs_error *err)
{
	if (err != NULL)
		work->err = *err;
	else
		work->err.code = 0;
	work->done(work);
}

/* Giving up. */

/* Fails all transfers and aborts the communicator. */
static void hang_up(struct ofs_gpu *g, const struct optimfs_error *err)
{
	unsigned n = g->nflights;

	pthread_mutex_lock(&g->lock);
	if (g->connected || !g->failed)
		g->why = *err;
	g->connected = false;
	pthread_mutex_unlock(&g->lock);
	nccl_comm_abort(g);
	g->nflights = 0;
	for (unsigned i = 0; i < n; i++)
		finish(nccl_flight(g, i)->work, err);
}

/* The layout in progress is over. */
static void end_layout(struct ofs_gpu *g, const struct optimfs_error *err)
{
	struct ofs_gpu_work *work = g->layout.work;

	g->layout.work = NULL;
	if (work != NULL)
		finish(work, err);
}

/* CUDA has failed: the GPU is not used any more. */
static void give_up(struct ofs_gpu *g, const struct optimfs_error *err)
{
	hang_up(g, err);
	pthread_mutex_lock(&g->lock);
	g->failed = true;
	pthread_mutex_unlock(&g->lock);
	end_layout(g, err);
}

static void lose(struct ofs_gpu *g, const struct optimfs_error *err)
{
	if (err->code == ENOTCONN)
		hang_up(g, err);
	else
		give_up(g, err);
}

/* Queues work; in any thread. */
static void submit(struct ofs_gpu *g, struct ofs_gpu_work *work)
{
	struct ofs_gpu_work **end;

	work->next = NULL;
	pthread_mutex_lock(&g->lock);
	for (end = &g->queue; *end != NULL; end = &(*end)->next)
		;
	*end = work;
	g->news = true;
	pthread_cond_broadcast(&g->wake);
	pthread_mutex_unlock(&g->lock);
}

/* Steps of the state machine; each returns whether it did anything. */

static bool step_layout(struct ofs_gpu *g)
{
	struct optimfs_error err;
	int ret = g->layout.work == NULL ? 0 : nccl_layout_poll(g, &err);

	if (ret == 1)
		end_layout(g, NULL);
	else if (ret == -1)
		give_up(g, &err);
	return ret != 0;
}

static bool step_transfer(struct ofs_gpu *g)
{
	struct optimfs_error err;
	int ret;

	if (g->nflights == 0)
		return false;
	ret = nccl_comm_poll(g, &err);
	if (ret == 1) {
		struct ofs_gpu_work *work = nccl_flight(g, 0)->work;

		g->flight++;
		g->nflights--;
		work->arrived = true;
		if (work->nruns > 0)
			submit(g, work);
		else
			finish(work, NULL);
	} else if (ret == -1) {
		lose(g, &err);
	}
	return ret != 0;
}

/* Can work not be done any more? The lock is held. */
static bool hopeless(const struct ofs_gpu *g, const struct ofs_gpu_work *work)
{
	return g->failed ||
	    (travels(work) && (!g->connected || work->sequence < g->sequence));
}

/* Takes from the queue: work that cannot be done, work that can be laid out, and
 * work with the next sequence number. NULL: none. The lock is held. */
static struct ofs_gpu_work *take(struct ofs_gpu *g)
{
	struct ofs_gpu_work **at = &g->queue, *work;

	for (; (work = *at) != NULL; at = &work->next)
		if (hopeless(g, work) ||
		    (travels(work) ? work->sequence == g->sequence &&
					nccl_comm_ready(g)
				   : g->layout.work == NULL))
			break;
	if (work != NULL)
		*at = work->next;
	return work;
}

static void begin(struct ofs_gpu *g, struct ofs_gpu_work *work)
{
	struct optimfs_error err;

	if (!travels(work)) {
		g->layout.work = work;
		if (nccl_layout_start(g, work, &err) == -1)
			give_up(g, &err);
		return;
	}
	g->sequence++;
	g->waiting_since = 0;
	if (nccl_comm_start(g, work, &err) == -1)
		lose(g, &err);
}

/* Watches for a missing sequence number: its participant has gone. */
static void watch_sequence(struct ofs_gpu *g)
{
	const struct ofs_gpu_work *work;
	struct optimfs_error err;
	bool waiting;

	pthread_mutex_lock(&g->lock);
	work = g->queue;
	while (work != NULL && !travels(work))
		work = work->next;
	waiting = work != NULL && g->connected && g->nflights == 0;
	pthread_mutex_unlock(&g->lock);
	if (!waiting)
		g->waiting_since = 0;
	else if (g->waiting_since == 0)
		g->waiting_since = ofs_clock_ms();
	else if (g->config.timeout != 0 &&
	    ofs_clock_ms() - g->waiting_since >
		(int64_t)g->config.timeout * 1000) {
		optimfs_fail(&err, ENOTCONN,
		    "OFS901 NCCL: a rank did not join a transfer");
		hang_up(g, &err);
	}
}

/* Is there a connection that is over? The lock is held. */
static bool must_end(const struct ofs_gpu *g)
{
	return g->connected && g->first < g->below;
}

static bool step_queue(struct ofs_gpu *g)
{
	struct ofs_gpu_work *work = NULL;
	struct optimfs_error why;
	bool well, disconnect;

	pthread_mutex_lock(&g->lock);
	g->news = false;
	disconnect = must_end(g);
	if (!disconnect)
		work = take(g);
	well = work != NULL && !hopeless(g, work);
	why = g->why;
	pthread_mutex_unlock(&g->lock);
	if (disconnect)
		hang_up(g, &why);
	else if (work == NULL)
		watch_sequence(g);
	else if (well)
		begin(g, work);
	else
		finish(work, &why);
	return work != NULL || disconnect;
}

/* Operations. */

bool nccl_is_over(struct ofs_gpu *g, struct optimfs_error *err)
{
	static const struct timespec pause = { .tv_nsec = 1000 * 1000 };
	bool over;

	atomic_store(&g->alive, ofs_clock_ms());
	pthread_mutex_lock(&g->lock);
	over = g->first < g->below;
	if (over)
		optimfs_fail_with(err, &g->why);
	pthread_mutex_unlock(&g->lock);
	if (!over)
		nanosleep(&pause, NULL);
	return over;
}

static int connect_it(struct ofs_gpu *g)
{
	struct optimfs_error end, *err = &g->connection->err;
	bool failed;

	if (g->comm != NULL) {
		optimfs_fail(&end, ENOTCONN, "OFS901 NCCL connects again");
		hang_up(g, &end);
	}
	nccl_comm_aborted(g);
	pthread_mutex_lock(&g->lock);
	failed = g->failed;
	if (failed)
		optimfs_fail_with(err, &g->why);
	pthread_mutex_unlock(&g->lock);
	if (!failed && g->stuck)
		optimfs_fail(err, EIO,
		    "OFS902 the GPU: the end of a connection did not return");
	return failed || g->stuck ? -1
				  : nccl_comm_connect(g, g->connection, err);
}

/* False: close. */
static bool obey(struct ofs_gpu *g)
{
	enum nccl_order order;
	int ret;

	pthread_mutex_lock(&g->lock);
	order = g->order;
	pthread_mutex_unlock(&g->lock);
	if (order == ORDER_NONE)
		return true;
	if (order == ORDER_CLOSE)
		return false;
	ret = connect_it(g);
	pthread_mutex_lock(&g->lock);
	g->connected = ret == 0;
	g->order_ret = ret;
	g->order = ORDER_NONE;
	pthread_cond_broadcast(&g->ordered);
	pthread_mutex_unlock(&g->lock);
	return true;
}

/* Waits until there is something to do or to poll. */
static void rest(struct ofs_gpu *g)
{
	static const struct timespec pause = { .tv_nsec = REST_NS };
	bool busy = g->nflights > 0 || g->layout.work != NULL;

	if (busy) {
		nanosleep(&pause, NULL);
		return;
	}
	pthread_mutex_lock(&g->lock);
	if (g->order == ORDER_NONE && !g->news && !must_end(g))
		ofs_clock_wait(&g->wake, &g->lock, 1000000000);
	pthread_mutex_unlock(&g->lock);
}

static void end(struct ofs_gpu *g)
{
	struct optimfs_error err;
	struct ofs_gpu_work *work;

	optimfs_fail(&err, ENOTCONN, "OFS901 the GPU was released");
	hang_up(g, &err);
	end_layout(g, &err);
	while ((work = g->queue) != NULL) {
		g->queue = work->next;
		finish(work, &err);
	}
	nccl_comm_aborted(g);
	if (!g->stuck)
		nccl_device_close(g);
}

static void *work_thread(void *arg)
{
	struct ofs_gpu *g = arg;

	pthread_mutex_lock(&g->lock);
	g->order_ret = nccl_device_open(g, g->name, g->order_err);
	atomic_store(&g->alive, ofs_clock_ms());
	g->order = ORDER_NONE;
	pthread_cond_broadcast(&g->ordered);
	pthread_mutex_unlock(&g->lock);
	while (obey(g)) {
		bool did;

		atomic_store(&g->alive, ofs_clock_ms());
		did = step_transfer(g);
		did |= step_layout(g);
		did |= step_queue(g);
		if (!did)
			rest(g);
	}
	end(g);
	return NULL;
}

/* Calls from other threads. */

static void free_gpu(struct ofs_gpu *g)
{
	pthread_cond_destroy(&g->ordered);
	pthread_cond_destroy(&g->wake);
	pthread_mutex_destroy(&g->lock);
	free(g->rank);
	free(g);
}

static void close_gpu(struct ofs_gpu *g)
{
	pthread_mutex_lock(&g->lock);
	g->order = ORDER_CLOSE;
	pthread_cond_broadcast(&g->wake);
	pthread_mutex_unlock(&g->lock);
	pthread_join(g->thread, NULL);
	free_gpu(g);
}

/* Blocks signals, which belong to the main program, also in the threads that
 * CUDA and NCCL start from this one. */
static void block_signals(sigset_t *old)
{
	sigset_t all;

	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, old);
}

static int start_thread(struct ofs_gpu *g)
{
	sigset_t old;
	int code;

	block_signals(&old);
	code = pthread_create(&g->thread, NULL, work_thread, g);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return code;
}

static struct ofs_gpu *open_gpu(const struct ofs_gpu_config *config,
    char device[64], struct optimfs_error *err)
{
	struct ofs_gpu *g = calloc(1, sizeof(*g));
	int code;

	if (g == NULL) {
		optimfs_fail(err, ENOMEM, "out of memory");
		return NULL;
	}
	g->config = *config;
	g->name = device;
	g->order = ORDER_OPEN; /* until it is */
	g->order_err = err;
	optimfs_fail(&g->why, ENOTCONN, "OFS901 NCCL is not connected");
	pthread_mutex_init(&g->lock, NULL);
	pthread_cond_init(&g->wake, NULL);
	pthread_cond_init(&g->ordered, NULL);
	code = start_thread(g);
	if (code != 0) {
		optimfs_fail(err, code, "cannot start a thread: %s",
		    strerror(code));
		free_gpu(g);
		return NULL;
	}
	pthread_mutex_lock(&g->lock);
	while (g->order != ORDER_NONE)
		pthread_cond_wait(&g->ordered, &g->lock);
	code = g->order_ret;
	pthread_mutex_unlock(&g->lock);
	if (code == 0)
		return g;
	close_gpu(g);
	return NULL;
}

/* Needs no GPU, and not its thread, which may be stuck. */
static int get_name(struct ofs_gpu *g, uint8_t id[OFS_GPU_ID],
    struct optimfs_error *err)
{
	ncclUniqueId unique;
	sigset_t old;
	ncclResult_t r;

	(void)g;
	block_signals(&old);
	r = ncclGetUniqueId(&unique);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r != ncclSuccess)
		return optimfs_fail(err, ENOTCONN, "OFS901 NCCL: %s",
		    ncclGetErrorString(r));
	memcpy(id, &unique, OFS_GPU_ID);
	return 0;
}

static int64_t get_silent(struct ofs_gpu *g)
{
	return ofs_clock_ms() - atomic_load(&g->alive);
}

static int connect_gpu(struct ofs_gpu *g, struct ofs_gpu_connection *c,
    struct optimfs_error *err)
{
	int64_t limit = (int64_t)g->config.timeout * 2000;
	bool done;
	int ret;

	pthread_mutex_lock(&g->lock);
	g->connection = c;
	g->order = ORDER_CONNECT;
	pthread_cond_broadcast(&g->wake);
	while (g->order != ORDER_NONE && (limit == 0 || get_silent(g) <= limit))
		ofs_clock_wait(&g->ordered, &g->lock, 1000000000);
	done = g->order == ORDER_NONE;
	ret = done ? g->order_ret : -1;
	pthread_mutex_unlock(&g->lock);
	if (!done)
		return optimfs_fail(err, EIO, "OFS902 the GPU is stuck");
	return ret == 0 ? 0 : optimfs_fail_with(err, &c->err);
}

static void *get_stage(struct ofs_gpu *g, uint32_t i)
{
	return g->stage[i];
}

static const void *get_window(struct ofs_gpu *g, uint32_t i)
{
	return g->window[i];
}

static void disconnect(struct ofs_gpu *g, uint64_t below, const char *why)
{
	pthread_mutex_lock(&g->lock);
	if (g->below < below) {
		g->below = below;
		if (!g->failed)
			optimfs_fail_as(&g->why, ENOTCONN, "%s", why);
		pthread_cond_broadcast(&g->wake);
	}
	pthread_mutex_unlock(&g->lock);
}

__attribute__((visibility("default")))
const struct ofs_gpu_ops optimfs_gpu_module = {
	.version = OFS_GPU_VERSION,
	.open = open_gpu,
	.name_it = get_name,
	.connect = connect_gpu,
	.stage = get_stage,
	.window = get_window,
	.submit = submit,
	.silent = get_silent,
	.disconnect = disconnect,
	.close = close_gpu,
};
