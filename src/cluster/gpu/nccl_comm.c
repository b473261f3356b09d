/* nccl_comm.c - non-blocking transfers between GPUs */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "cluster/gpu/nccl.h"

/* Memory that a connection may need. */
#define CONNECTION_MEMORY ((size_t)512 << 20)

_Static_assert(sizeof(ncclUniqueId) == OFS_GPU_ID, "an id's size");

/* The communicator is non-blocking: its calls start operations with an
 * asynchronous result. Nothing here waits for a stream either, so that a lost
 * peer ends in an error and an abort, never in a wait. ncclCommDestroy is not
 * used, because it may wait for peers. */

static int fail(struct optimfs_error *err, ncclResult_t r, const char *what)
{
	return optimfs_fail(err, ENOTCONN, "OFS901 NCCL: %s: %s", what,
	    ncclGetErrorString(r));
}

static bool under_way(ncclResult_t r)
{
	return r == ncclSuccess || r == ncclInProgress;
}

static int late(struct optimfs_error *err, const char *what)
{
	return optimfs_fail(err, ENOTCONN,
	    "OFS901 NCCL: %s took longer than a transfer may", what);
}

/* The state of NCCL: 1: nothing left to do. */
static int look(struct ofs_gpu *g, int64_t deadline, const char *what,
    struct optimfs_error *err)
{
	ncclResult_t state = ncclSuccess,
		     r = ncclCommGetAsyncError(g->comm, &state);

	if (r != ncclSuccess)
		return fail(err, r, what);
	if (!under_way(state))
		return fail(err, state, what);
	if (ofs_clock_ms() > deadline)
		return late(err, what);
	return state == ncclSuccess;
}

/* A connection has buffers on the GPU, whose size NCCL chooses; if they do not
 * fit, it only reports "unhandled CUDA error". */
static int cannot_connect(struct optimfs_error *err)
{
	size_t left, all;

	if (cudaMemGetInfo(&left, &all) != cudaSuccess ||
	    left >= CONNECTION_MEMORY)
		return -1;
	return optimfs_fail(err, ENOMEM,
	    "OFS902 the GPU: NCCL cannot connect, and only %zu MiB of the "
	    "GPU's memory are free",
	    left >> 20);
}

/* NCCL connects two ranks at their first transfer, which takes longer than a
 * transfer may. So all pairs exchange a byte, up to a number of ranks whose
 * connections fit in memory. */
#define CONNECTED_MAX 64

static ncclResult_t exchange(struct ofs_gpu *g,
    const struct ofs_gpu_connection *c)
{
	/* not blocks, which may be kept from an earlier connection; nothing to
	 * send is there yet */
	uint8_t *got = g->sending + OFS_GPU_BLOCK;
	ncclResult_t r = ncclSuccess, end;

	ncclGroupStart();
	for (int i = 0; i < c->n && under_way(r); i++) {
		if (i == c->own)
			continue;
		r = ncclSend(g->sending, 1, ncclUint8, i, g->comm,
		    g->transfer->stream);
		if (under_way(r))
			r = ncclRecv(got + i, 1, ncclUint8, i, g->comm,
			    g->transfer->stream);
	}
	end = ncclGroupEnd();
	return under_way(r) ? end : r;
}

/* From now on a failure of the connection ends it, too. */
static struct nccl_engine *add_flight(struct ofs_gpu *g,
    struct ofs_gpu_work *work)
{
	struct nccl_engine *t = nccl_flight(g, g->nflights++);

	t->work = work;
	t->running = false;
	t->deadline = nccl_deadline(g);
	return t;
}

static int connect_pairs(struct ofs_gpu *g, const struct ofs_gpu_connection *c,
    struct optimfs_error *err)
{
	ncclResult_t r;
	int ret;

	if (c->n == 1 || c->n > CONNECTED_MAX)
		return 0;
	r = exchange(g, c);
	if (!under_way(r))
		return fail(err, r, "connecting");
	add_flight(g, NULL);
	while ((ret = nccl_comm_poll(g, err)) == 0 && !nccl_is_over(g, err))
		continue;
	g->nflights = 0;
	return ret == 1 ? 0 : -1;
}

/* Work names its peers by their ranks, of which the connection has some. */
static int note_ranks(struct ofs_gpu *g, const struct ofs_gpu_connection *c,
    struct optimfs_error *err)
{
	size_t size = (size_t)c->n * sizeof(*g->rank);

	free(g->rank);
	g->rank = malloc(size);
	g->nranks = g->rank == NULL ? 0 : c->n;
	if (g->rank == NULL)
		return optimfs_fail(err, ENOMEM, "out of memory");
	memcpy(g->rank, c->rank, size);
	return 0;
}

static int wait_ready(struct ofs_gpu *g, int64_t deadline,
    struct optimfs_error *err)
{
	int ret;

	while ((ret = look(g, deadline, "connecting", err)) == 0 &&
	    !nccl_is_over(g, err))
		continue;
	return ret == 1 ? 0 : -1;
}

/* From memory that it knows NCCL sends without a copy, where it can; if it refuses,
 * it copies. It forgets the memory only with the abort of the connection, when
 * nothing uses it any more: so that is never asked for, and the memory is freed
 * after the abort. */
static void add_memory(struct ofs_gpu *g)
{
	void *handle;

	if (g->extra.add == NULL)
		return;
	(void)g->extra.add(g->comm, g->blocks, nccl_blocks_size(g), &handle);
	(void)g->extra.add(g->comm, g->sending, NCCL_SENDING_SIZE, &handle);
	cudaGetLastError(); /* clears the error */
}

int nccl_comm_connect(struct ofs_gpu *g, const struct ofs_gpu_connection *c,
    struct optimfs_error *err)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	int64_t deadline = nccl_deadline(g);
	ncclUniqueId unique;
	ncclResult_t r;
	int ret;

	if (note_ranks(g, c, err) == -1)
		return -1;
	g->first = g->sequence = c->first;
	memcpy(&unique, c->id, sizeof(unique));
	config.blocking = 0;
	r = ncclCommInitRankConfig(&g->comm, c->n, unique, c->own, &config);
	if (!under_way(r)) {
		g->comm = NULL;
		fail(err, r, "connecting");
		return cannot_connect(err);
	}
	if (wait_ready(g, deadline, err) == 0) {
		add_memory(g);
		if (wait_ready(g, deadline, err) == 0 &&
		    connect_pairs(g, c, err) == 0)
			return 0;
	}
	ret = cannot_connect(err);
	nccl_comm_abort(g);
	return ret;
}

static void *abort_it(void *arg)
{
	struct nccl_abort *a = arg;

	cudaSetDevice(a->device);
	ncclCommAbort(a->comm);
	free(a);
	return NULL;
}

void nccl_comm_abort(struct ofs_gpu *g)
{
	struct nccl_abort *a;

	if (g->comm == NULL)
		return;
	nccl_comm_aborted(g); /* of an earlier failed connection */
	a = malloc(sizeof(*a));
	if (a != NULL) {
		*a =
		    (struct nccl_abort){ .comm = g->comm, .device = g->device };
		g->aborting =
		    pthread_create(&g->abort, NULL, abort_it, a) == 0;
	}
	if (!g->aborting) {
		free(a);
		g->stuck = true;
	}
	g->comm = NULL;
}

void nccl_comm_aborted(struct ofs_gpu *g)
{
	static const struct timespec pause = { .tv_nsec = 1000 * 1000 };
	int64_t deadline = nccl_deadline(g);

	while (g->aborting && pthread_tryjoin_np(g->abort, NULL) != 0) {
		if (ofs_clock_ms() >= deadline) {
			pthread_detach(g->abort);
			g->stuck = true;
			break;
		}
		nanosleep(&pause, NULL);
	}
	g->aborting = false;
}

/* Copies the bytes to send to their block on the GPU, while earlier transfers go
 * on. */
static cudaError_t upload(struct ofs_gpu *g, const struct nccl_engine *t)
{
	const struct ofs_gpu_work *work = t->work;
	cudaError_t e = cudaSuccess;

	for (uint32_t i = 0; i < work->nsends && e == cudaSuccess; i++) {
		const struct ofs_gpu_send *send = &work->send[i];

		e = cudaMemcpyAsync(g->sending + send->stage * OFS_GPU_BLOCK,
		    g->stage[send->stage], send->len, cudaMemcpyHostToDevice,
		    g->upload);
	}
	if (e == cudaSuccess)
		e = cudaEventRecord(t->uploaded, g->upload);
	return e == cudaSuccess ? cudaStreamWaitEvent(t->stream, t->uploaded, 0)
				: e;
}

/* NCCL refuses -1: no rank of this connection. */
static int place_of(const struct ofs_gpu *g, int rank)
{
	for (int i = 0; i < g->nranks; i++)
		if (g->rank[i] == rank)
			return i;
	return -1;
}

static ncclResult_t enqueue(struct ofs_gpu *g, const struct ofs_gpu_work *work)
{
	cudaStream_t stream = g->transfer->stream;
	ncclResult_t r = ncclSuccess, end;

	ncclGroupStart();
	for (uint32_t i = 0; i < work->nsends && under_way(r); i++)
		r = ncclSend(g->sending + work->send[i].stage * OFS_GPU_BLOCK,
		    work->send[i].len, ncclUint8, place_of(g, work->send[i].to),
		    g->comm, stream);
	for (uint32_t i = 0; i < work->nreceives && under_way(r); i++)
		r = ncclRecv(g->blocks +
			work->receive[i].block * OFS_GPU_BLOCK +
			work->receive[i].at,
		    work->receive[i].len, ncclUint8,
		    place_of(g, work->receive[i].from), g->comm, stream);
	end = ncclGroupEnd();
	return under_way(r) ? end : r;
}

int nccl_comm_start(struct ofs_gpu *g, struct ofs_gpu_work *work,
    struct optimfs_error *err)
{
	cudaError_t e = upload(g, add_flight(g, work));
	ncclResult_t r;

	if (e != cudaSuccess)
		return nccl_cuda_fail(err, e, "copying to it");
	r = enqueue(g, work);
	if (!under_way(r))
		return fail(err, r, "sending and receiving");
	return 0;
}

/* NCCL says of the communicator what is true of the last transfer. */
int nccl_comm_poll(struct ofs_gpu *g, struct optimfs_error *err)
{
	struct nccl_engine *first = nccl_flight(g, 0),
			   *last = nccl_flight(g, g->nflights - 1);
	int ret = look(g, first->deadline, "sending and receiving", err);
	cudaError_t e;

	if (ret == -1)
		return -1;
	if (ret == 1 && !last->running) {
		e = cudaEventRecord(last->event, last->stream);
		if (e != cudaSuccess)
			return nccl_cuda_fail(err, e, "an event");
		last->running = true;
	}
	return first->running ? nccl_reached(first->event, err, "a transfer")
			      : 0;
}
