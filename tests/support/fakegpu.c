/* fakegpu.c - the CUDA and NCCL calls of optimfs-nccl.so, in plain memory */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <cuda_runtime.h>
#include <fcntl.h>
#include <limits.h>
#include <nccl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>
#include <unistd.h>

#include "cluster/gpu/place.h"

/* A shared object that replaces libcudart and libnccl, for optimfs-nccl.so and
 * tests/bench/gpubench. A stream is a list of operations, which are executed in
 * order when an event is queried. Ranks are threads or processes and communicate
 * through a directory below $TMPDIR. A message is a file there. A send ends when
 * the message was received, so sends and receives in different orders deadlock,
 * as they do on GPUs.
 *
 * $FAKEGPU, a list of words separated by commas, plants faults:
 *   devices=N    the number of GPUs (8)
 *   max=MIB      larger allocations fail
 *   own=fail     NCCL allocates none itself
 *   init=fail    ranks cannot be connected; init=hang: and it takes for ever
 *   again=fail, again=hang: as init=, but only of the second connection
 *   left=MIB     so much memory is left for a connection, which takes 300
 *   times=N      async= and hang= only in the first N communicators
 *   async=R:K    rank R's communicator has an error after K groups
 *   hang=R:K     rank R's group K never ends
 *   abort=hang   giving a connection up takes for ever
 *   reset=K      launch K and all later ones fail
 *   only=D       reset= only on device D
 *   stuck=K      launch K never returns */
struct faults {
	int devices, async_rank, async_after, hang_rank, hang_at, reset, stuck;
	int only;
	long max, left;
	char init, again, abort, own;
	unsigned times;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct faults none = { 8, -1, 0, -1, 0, -1, -1, -1, 1 << 20,
	1 << 20, 0, 0, 0, 0, UINT_MAX };
static struct faults current;
static int launches;
static unsigned made[64]; /* communicators, by rank */

static void read_faults(void)
{
	const char *p = getenv("FAKEGPU");
	struct faults f = none;

	while (p != NULL && *p != '\0') {
		sscanf(p, "devices=%d", &f.devices);
		sscanf(p, "max=%ld", &f.max);
		sscanf(p, "left=%ld", &f.left);
		sscanf(p, "init=%c", &f.init);
		sscanf(p, "again=%c", &f.again);
		sscanf(p, "own=%c", &f.own);
		sscanf(p, "times=%u", &f.times);
		sscanf(p, "abort=%c", &f.abort);
		sscanf(p, "async=%d:%d", &f.async_rank, &f.async_after);
		sscanf(p, "hang=%d:%d", &f.hang_rank, &f.hang_at);
		sscanf(p, "reset=%d", &f.reset);
		sscanf(p, "only=%d", &f.only);
		sscanf(p, "stuck=%d", &f.stuck);
		p += strcspn(p, ",");
		p += *p == ',';
	}
	pthread_mutex_lock(&lock);
	current = f;
	launches = 0;
	memset(made, 0, sizeof(made));
	pthread_mutex_unlock(&lock);
}

static struct faults get_faults(void)
{
	struct faults f;

	pthread_mutex_lock(&lock);
	f = current;
	pthread_mutex_unlock(&lock);
	return f;
}

/* GPU addresses are invalid on the processor, and the reverse. */

#define ON_GPU ((uintptr_t)1 << 62)

static void *there(const void *p)
{
	if (((uintptr_t)p & ON_GPU) == 0)
		abort();
	return (void *)((uintptr_t)p & ~ON_GPU);
}

static void *here(const void *p)
{
	if (((uintptr_t)p & ON_GPU) != 0)
		abort();
	return (void *)(uintptr_t)p;
}

static void *target(enum cudaMemcpyKind kind, void *p)
{
	return kind == cudaMemcpyDeviceToHost ? here(p) : there(p);
}

static void *origin(enum cudaMemcpyKind kind, const void *p)
{
	return kind == cudaMemcpyHostToDevice ? here(p) : there(p);
}

struct message {
	ncclComm_t comm;
	void *p;
	size_t n;
	int peer;
	unsigned number;
	bool send, sent;
	TAILQ_ENTRY(message) next;
};

struct ncclComm {
	char dir[NCCL_UNIQUE_ID_BYTES];
	int rank, size, groups;
	unsigned nth; /* of the rank, from 0 */
	bool aborted, looked_at;
	ncclResult_t state;
	struct fake_op *begun; /* not on a stream yet */
	cudaStream_t stream;
	unsigned nsent[64], nreceived[64];
	/* Memory that was registered. */
	struct {
		const uint8_t *p;
		size_t n;
	} known[4];
	unsigned nknown;
	struct ncclComm *next; /* of all that were made */
};

static void path_of(const struct message *m, const char *suffix, char path[300])
{
	int from = m->send ? m->comm->rank : m->peer;
	int to = m->send ? m->peer : m->comm->rank;

	snprintf(path, 300, "%s/%d.%d.%u%s", m->comm->dir, from, to, m->number,
	    suffix);
}

static bool put_file(const char *tmp, const char *path, const void *p, size_t n)
{
	FILE *f = fopen(tmp, "we");
	bool good;

	if (f == NULL)
		return false;
	good = fwrite(p, 1, n, f) == n;
	good &= fclose(f) == 0;
	return good && rename(tmp, path) == 0;
}

/* Continues the message; true: it is complete. */
static bool step_message(struct message *m)
{
	char path[300], tmp[300];
	FILE *f;

	if (m->comm->aborted)
		return true;
	path_of(m, "", path);
	if (m->send) {
		path_of(m, ".tmp", tmp);
		if (!m->sent)
			m->sent = put_file(tmp, path, m->p, m->n);
		return m->sent && access(path, F_OK) == -1;
	}
	f = fopen(path, "re");
	if (f == NULL)
		return false;
	/* the sender's length must be the same */
	if (fread(m->p, 1, m->n, f) != m->n || fgetc(f) != EOF)
		m->comm->state = ncclInvalidUsage;
	fclose(f);
	unlink(path);
	return true;
}

struct fake_op {
	enum { OP_COPY, OP_PLACE, OP_GROUP, OP_MARK, OP_WAIT } kind;
	void *dst;
	void *src; /* our copy of host memory */
	size_t n;
	const struct ofs_gpu_run *run;
	uint64_t nruns, total, threads;
	TAILQ_HEAD(, message) messages;
	ncclComm_t comm;
	bool hangs;
	struct CUevent_st *mark; /* to reach, or to wait for */
	unsigned asked;          /* that it waits for */
	TAILQ_ENTRY(fake_op) next;
};
struct CUstream_st {
	TAILQ_HEAD(, fake_op) ops;
};
struct CUevent_st {
	struct CUstream_st *stream;
	unsigned asked, reached;
	struct timespec when;
};

static struct fake_op *new_op(int kind)
{
	struct fake_op *op = calloc(1, sizeof(*op));

	if (op == NULL)
		abort();
	op->kind = kind;
	TAILQ_INIT(&op->messages);
	return op;
}

static struct fake_op *add_op(cudaStream_t s, int kind)
{
	struct fake_op *op = new_op(kind);

	TAILQ_INSERT_TAIL(&s->ops, op, next);
	return op;
}

static void free_op(struct fake_op *op)
{
	struct message *m;

	while ((m = TAILQ_FIRST(&op->messages)) != NULL) {
		TAILQ_REMOVE(&op->messages, m, next);
		free(m);
	}
	free(op);
}

static void end_op(cudaStream_t s, struct fake_op *op)
{
	TAILQ_REMOVE(&s->ops, op, next);
	free_op(op);
}

static bool step_group(struct fake_op *op)
{
	struct message *m, *after;

	if (op->comm->aborted)
		return true;
	if (op->hangs)
		return false;
	for (m = TAILQ_FIRST(&op->messages); m != NULL; m = after) {
		after = TAILQ_NEXT(m, next);
		if (!step_message(m))
			continue;
		TAILQ_REMOVE(&op->messages, m, next);
		free(m);
	}
	return TAILQ_EMPTY(&op->messages);
}

static void place(const struct fake_op *op)
{
	for (uint64_t t = 0; t < op->threads; t++)
		ofs_place_thread(op->run, op->nruns, op->total, t, op->threads,
		    op->src, op->dst);
}

static void reach(struct CUevent_st *e)
{
	e->reached++;
	clock_gettime(CLOCK_MONOTONIC, &e->when);
}

static void run(cudaStream_t s)
{
	struct fake_op *op;

	while ((op = TAILQ_FIRST(&s->ops)) != NULL) {
		if (op->kind == OP_COPY)
			memcpy(op->dst, op->src, op->n);
		else if (op->kind == OP_PLACE)
			place(op);
		else if (op->kind == OP_MARK)
			reach(op->mark);
		else if (op->kind == OP_WAIT)
			run(op->mark->stream);
		else if (!step_group(op))
			return;
		if (op->kind == OP_WAIT && op->mark->reached < op->asked)
			return;
		end_op(s, op);
	}
}

static _Thread_local cudaError_t last;

static cudaError_t said(cudaError_t e)
{
	if (e != cudaSuccess)
		last = e;
	return e;
}

static _Thread_local int current_device; /* of this thread */

static bool is_reset(void)
{
	bool r;

	pthread_mutex_lock(&lock);
	r = current.reset >= 0 && launches > current.reset &&
	    (current.only == -1 || current.only == current_device);
	pthread_mutex_unlock(&lock);
	return r;
}

cudaError_t cudaGetDeviceCount(int *n)
{
	read_faults();
	*n = get_faults().devices;
	return said(*n > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int d)
{
	current_device = d;
	return said(d < get_faults().devices ? cudaSuccess
					     : cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int len, int d)
{
	snprintf(id, (size_t)len, "0000:%02x:00.0", d);
	return cudaSuccess;
}

/* Allocations that are never freed, such as those of a hung connection, stay
 * reachable from this list, so that leak checkers ignore them. */
struct memory {
	LIST_ENTRY(memory) next;
	void *p;
	bool nccl; /* allocated by NCCL */
};
static LIST_HEAD(, memory) memories = LIST_HEAD_INITIALIZER(memories);

static void *get_memory_of(size_t n, bool nccl)
{
	struct memory *m = malloc(sizeof(*m));

	if (m == NULL || posix_memalign(&m->p, 256, n) != 0) {
		free(m);
		return NULL;
	}
	m->nccl = nccl;
	pthread_mutex_lock(&lock);
	LIST_INSERT_HEAD(&memories, m, next);
	pthread_mutex_unlock(&lock);
	return m->p;
}

static void *get_memory(size_t n)
{
	return get_memory_of(n, false);
}

static void put_memory_of(void *p, bool nccl)
{
	struct memory *m;

	pthread_mutex_lock(&lock);
	LIST_FOREACH(m, &memories, next)
	if (m->p == p)
		break;
	if (m != NULL)
		LIST_REMOVE(m, next);
	pthread_mutex_unlock(&lock);
	if (p != NULL && (m == NULL || m->nccl != nccl))
		abort();
	free(m);
	free(p);
}

static void put_memory(void *p)
{
	put_memory_of(p, false);
}

static struct ncclComm *comms; /* all, also aborted ones */

static void check_unknown(const void *p)
{
	pthread_mutex_lock(&lock);
	for (struct ncclComm *c = comms; c != NULL; c = c->next)
		for (unsigned i = 0; i < c->nknown; i++)
			if (c->known[i].p == p)
				abort();
	pthread_mutex_unlock(&lock);
}

cudaError_t cudaMalloc(void **p, size_t n)
{
	*p = NULL;
	if (is_reset())
		return said(cudaErrorLaunchFailure);
	if (n <= (size_t)get_faults().max << 20)
		*p = get_memory(n);
	if (*p == NULL)
		return said(cudaErrorMemoryAllocation);
	*p = (void *)((uintptr_t)*p | ON_GPU);
	return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *left, size_t *all)
{
	*left = (size_t)get_faults().left << 20;
	*all = (size_t)1 << 40;
	return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
	if (p == NULL)
		return cudaSuccess;
	check_unknown(p);
	put_memory(there(p));
	return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **p, size_t n, unsigned flags)
{
	(void)flags;
	*p = get_memory(n);
	return *p != NULL ? cudaSuccess : said(cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void *p)
{
	put_memory(here(p));
	return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
	(void)flags;
	*s = get_memory(sizeof(**s));
	if (*s == NULL)
		return said(cudaErrorMemoryAllocation);
	memset(*s, 0, sizeof(**s));
	TAILQ_INIT(&(*s)->ops);
	return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
	while (!TAILQ_EMPTY(&s->ops))
		end_op(s, TAILQ_FIRST(&s->ops));
	put_memory(s);
	return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
	run(s);
	return TAILQ_EMPTY(&s->ops) ? cudaSuccess
				    : said(cudaErrorLaunchFailure);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
	(void)flags;
	*e = get_memory(sizeof(**e));
	if (*e == NULL)
		return said(cudaErrorMemoryAllocation);
	memset(*e, 0, sizeof(**e));
	return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
	put_memory(e);
	return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
	e->stream = s;
	e->asked++;
	add_op(s, OP_MARK)->mark = e;
	return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
	struct fake_op *op = add_op(s, OP_WAIT);

	(void)flags;
	op->mark = e;
	op->asked = e->asked;
	return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
	if (is_reset())
		return said(cudaErrorLaunchFailure);
	if (e->stream != NULL)
		run(e->stream);
	return said(e->reached == e->asked ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
	return said(cudaEventQuery(e) == cudaSuccess ? cudaSuccess
						     : cudaErrorLaunchFailure);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b)
{
	*ms = (float)(b->when.tv_sec - a->when.tv_sec) * 1e3f +
	    (float)(b->when.tv_nsec - a->when.tv_nsec) / 1e6f;
	return cudaSuccess;
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t n,
    enum cudaMemcpyKind kind)
{
	memcpy(target(kind, dst), origin(kind, src), n);
	return cudaSuccess;
}

cudaError_t cudaMemset(void *dst, int value, size_t n)
{
	memset(there(dst), value, n);
	return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t n,
    enum cudaMemcpyKind kind, cudaStream_t s)
{
	struct fake_op *op;

	if (is_reset())
		return said(cudaErrorLaunchFailure);
	op = add_op(s, OP_COPY);
	op->dst = target(kind, dst);
	op->src = origin(kind, src);
	op->n = n;
	return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
	cudaError_t e = last;

	last = cudaSuccess;
	return e;
}

const char *cudaGetErrorString(cudaError_t e)
{
	switch (e) {
	case cudaErrorMemoryAllocation:
		return "out of memory";
	case cudaErrorNoDevice:
		return "no CUDA-capable device is detected";
	default:
		return "unspecified launch failure";
	}
}

/* The calls that nvcc generates for a launch. There is only one kernel, so its
 * arguments are known. */

void **__cudaRegisterFatBinary(void *bin);
void __cudaRegisterFatBinaryEnd(void **h);
void __cudaUnregisterFatBinary(void **h);
void __cudaRegisterFunction(void **h, const char *host, char *device,
    const char *name, int limit, void *tid, void *bid, void *bdim, void *gdim,
    int *wsize);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared,
    void *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared,
    void *stream);
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block,
    void **args, size_t shared, cudaStream_t s);

static struct {
	dim3 grid, block;
	cudaStream_t stream;
} pushed;

void **__cudaRegisterFatBinary(void *bin)
{
	static void *handle;

	(void)bin;
	return &handle;
}

void __cudaRegisterFatBinaryEnd(void **h)
{
	(void)h;
}

void __cudaUnregisterFatBinary(void **h)
{
	(void)h;
}

void __cudaRegisterFunction(void **h, const char *host, char *device,
    const char *name, int limit, void *tid, void *bid, void *bdim, void *gdim,
    int *wsize)
{
	(void)h, (void)host, (void)device, (void)limit, (void)tid, (void)bid;
	(void)bdim, (void)gdim, (void)wsize;
	if (strcmp(name, "ofs_place_kernel") != 0)
		abort();
}

static pthread_mutex_t launching = PTHREAD_MUTEX_INITIALIZER;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared,
    void *stream)
{
	(void)shared;
	pthread_mutex_lock(&launching);
	pushed.grid = grid;
	pushed.block = block;
	pushed.stream = stream;
	return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared,
    void *stream)
{
	*grid = pushed.grid;
	*block = pushed.block;
	*shared = 0;
	memcpy(stream, &pushed.stream, sizeof(pushed.stream));
	pthread_mutex_unlock(&launching);
	return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host)
{
	*kernel = (cudaKernel_t)(uintptr_t)host;
	return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block,
    void **args, size_t shared, cudaStream_t s)
{
	struct fake_op *op;
	bool stuck;

	(void)kernel, (void)shared;
	pthread_mutex_lock(&lock);
	stuck = launches++ == current.stuck;
	pthread_mutex_unlock(&lock);
	while (stuck)
		pause();
	if (is_reset())
		return said(cudaErrorLaunchFailure);
	op = add_op(s, OP_PLACE);
	memcpy(&op->run, args[0], sizeof(op->run));
	memcpy(&op->nruns, args[1], sizeof(op->nruns));
	memcpy(&op->total, args[2], sizeof(op->total));
	memcpy(&op->src, args[3], sizeof(op->src));
	memcpy(&op->dst, args[4], sizeof(op->dst));
	op->run = there(op->run);
	op->src = there(op->src);
	op->dst = there(op->dst);
	op->threads = (uint64_t)grid.x * block.x;
	return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void *host, dim3 grid, dim3 block,
    void **args, size_t shared, cudaStream_t s)
{
	return __cudaLaunchKernel((cudaKernel_t)(uintptr_t)host, grid, block,
	    args, shared, s);
}

/* the header's declarations are not prototypes */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

static _Thread_local struct {
	TAILQ_HEAD(, message) messages;
	cudaStream_t stream;
	ncclComm_t comm;
	bool open;
} group;

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	const char *top = getenv("TMPDIR");

	memset(id, 0, sizeof(*id));
	snprintf(id->internal, sizeof(id->internal), "%s/fakegpu.XXXXXX",
	    top == NULL ? "/tmp" : top);
	return mkdtemp(id->internal) == NULL ? ncclSystemError : ncclSuccess;
}

static void name_rank(const struct ncclComm *c, int rank, char path[300])
{
	snprintf(path, 300, "%s/rank.%d", c->dir, rank);
}

/* Memory that NCCL allocates; what a connection knows may not be freed, and only
 * that is sent. */

ncclResult_t ncclMemAlloc(void **p, size_t n)
{
	struct faults f = get_faults();
	void *at = NULL;

	if (f.own != 'f' && n <= (size_t)f.max << 20)
		at = get_memory_of(n, true);
	if (at == NULL)
		return ncclUnhandledCudaError;
	*p = (void *)((uintptr_t)at | ON_GPU);
	return ncclSuccess;
}

ncclResult_t ncclMemFree(void *p)
{
	check_unknown(p);
	put_memory_of(there(p), true);
	return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t c, void *p, size_t n,
    void **handle)
{
	if (c->aborted || c->state != ncclSuccess || c->nknown == 4)
		abort();
	pthread_mutex_lock(&lock);
	c->known[c->nknown].p = p;
	c->known[c->nknown++].n = n;
	pthread_mutex_unlock(&lock);
	*handle = p;
	return ncclSuccess;
}

static bool is_known(const struct ncclComm *c, const void *p, size_t n)
{
	for (unsigned i = 0; i < c->nknown; i++)
		if ((const uint8_t *)p >= c->known[i].p &&
		    (const uint8_t *)p + n <= c->known[i].p + c->known[i].n)
			return true;
	return false;
}

static char how_init(const struct ncclComm *c)
{
	struct faults f = get_faults();

	return c->nth == 1 && f.again != 0 ? f.again : f.init;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id,
    int rank, ncclConfig_t *config)
{
	struct ncclComm *c = calloc(1, sizeof(*c));
	char path[300];

	if (c == NULL || config->blocking != 0 || size > 64)
		abort();
	snprintf(c->dir, sizeof(c->dir), "%s", id.internal);
	c->rank = rank;
	c->size = size;
	c->state = ncclInProgress;
	*comm = c;
	name_rank(c, rank, path);
	pthread_mutex_lock(&lock);
	c->nth = made[rank]++;
	c->next = comms;
	comms = c;
	pthread_mutex_unlock(&lock);
	if (how_init(c) != 'h')
		close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	return ncclInProgress;
}

static bool all_here(const struct ncclComm *c)
{
	char path[300];

	for (int r = 0; r < c->size; r++) {
		name_rank(c, r, path);
		if (access(path, F_OK) == -1)
			return false;
	}
	return true;
}

/* A begun operation is put on its stream at the second query. */
static void put_on_stream(ncclComm_t c)
{
	if (!c->looked_at) {
		c->looked_at = true;
		return;
	}
	TAILQ_INSERT_TAIL(&c->stream->ops, c->begun, next);
	c->begun = NULL;
	c->state = ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *state)
{
	struct faults f = get_faults();

	if (c->state == ncclInProgress && how_init(c) == 'f')
		c->state = ncclSystemError;
	if (c->state == ncclInProgress && f.left < 300)
		c->state = ncclUnhandledCudaError;
	if (c->state == ncclInProgress && c->begun != NULL)
		put_on_stream(c);
	else if (c->state == ncclInProgress && all_here(c))
		c->state = ncclSuccess;
	if (c->rank == f.async_rank && c->groups > f.async_after &&
	    c->nth < f.times)
		c->state = ncclRemoteError;
	*state = c->state;
	return ncclSuccess;
}

/* Operations on streams still point to c. */
ncclResult_t ncclCommAbort(ncclComm_t c)
{
	if (c->begun != NULL)
		free_op(c->begun);
	c->begun = NULL;
	pthread_mutex_lock(&lock);
	c->aborted = true;
	c->nknown = 0;
	pthread_mutex_unlock(&lock);
	while (get_faults().abort == 'h')
		usleep(10000);
	return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
	if (group.open)
		abort();
	TAILQ_INIT(&group.messages);
	group.open = true;
	group.comm = NULL;
	return ncclSuccess;
}

static ncclResult_t add_message(ncclComm_t c, bool send, const void *p,
    size_t n, int peer, cudaStream_t s)
{
	struct message *m = calloc(1, sizeof(*m));

	if (m == NULL || !group.open || c->state != ncclSuccess || peer < 0 ||
	    peer >= c->size || !is_known(c, p, n))
		abort();
	*m = (struct message){
		.comm = c, .p = there(p), .n = n, .peer = peer, .send = send
	};
	m->number = send ? c->nsent[peer]++ : c->nreceived[peer]++;
	TAILQ_INSERT_TAIL(&group.messages, m, next);
	group.comm = c;
	group.stream = s;
	return ncclSuccess;
}

ncclResult_t ncclSend(const void *p, size_t n, ncclDataType_t type, int peer,
    ncclComm_t c, cudaStream_t s)
{
	return type == ncclUint8 ? add_message(c, true, p, n, peer, s)
				 : ncclInvalidArgument;
}

ncclResult_t ncclRecv(void *p, size_t n, ncclDataType_t type, int peer,
    ncclComm_t c, cudaStream_t s)
{
	return type == ncclUint8 ? add_message(c, false, p, n, peer, s)
				 : ncclInvalidArgument;
}

ncclResult_t ncclGroupEnd(void)
{
	struct faults f = get_faults();
	struct fake_op *op;

	group.open = false;
	if (group.comm == NULL)
		return ncclSuccess;
	op = new_op(OP_GROUP);
	op->comm = group.comm;
	op->hangs = group.comm->rank == f.hang_rank &&
	    group.comm->groups == f.hang_at && group.comm->nth < f.times;
	TAILQ_CONCAT(&op->messages, &group.messages, next);
	group.comm->groups++;
	group.comm->begun = op;
	group.comm->stream = group.stream;
	group.comm->looked_at = false;
	return group.comm->state = ncclInProgress;
}

const char *ncclGetErrorString(ncclResult_t r)
{
	switch (r) {
	case ncclSystemError:
		return "unhandled system error (run with NCCL_DEBUG=INFO for "
		       "details)";
	case ncclRemoteError:
		return "remote process exited or there was a network error";
	default:
		return "an NCCL error";
	}
}
