/* gather_connect.c - connect ranks by NCCL, and again when that was lost */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "cluster/call.h"
#include "cluster/gpu/gather_impl.h"
#include "cluster/wire.h"

/* A communicator of NCCL that has failed cannot be used again. Rank 0 then makes
 * another one, of all ranks that are alive and whose GPU works. Until that is
 * done, everything goes over the other transport.
 *
 * Connections have numbers: a rank that hears of the end of one compares its
 * number, so that late news of an old one does not end a new one; and the
 * sequence numbers of transfers begin with it, so that a transfer that was agreed
 * upon before does not take part in a later connection. Only rank 0 gives sequence
 * numbers, and only to ranks of its own connection.
 *
 * Rank 0 waits one second before the first attempt, and twice as long before each
 * further one, so that ranks that cannot stay connected seldom wait for a transfer
 * in vain. If rank 0 dies, nobody connects again. */
enum { MAX_CONNECTIONS = 10 };

/* The sequence number of a rank whose GPU cannot be connected. */
#define NO_GPU UINT64_MAX

void ofs_gpu_gather_say(const struct ofs_gpu_gather *b, const char *what,
    const char *next)
{
	char text[1024];

	if (b->how.say == NULL)
		return;
	snprintf(text, sizeof(text), "%s: %s; %s", b->name, what, next);
	b->how.say(b->how.ctx, text);
}

/* The end of a connection. */

/* False: that was known. */
static bool end_here(struct ofs_gpu_gather *b, unsigned connection,
    const char *why)
{
	bool news;

	pthread_mutex_lock(&b->lock);
	news = connection > atomic_load(&b->over);
	if (news) {
		atomic_store(&b->over, connection);
		if (b->gpu != NULL)
			b->ops->disconnect(b->gpu, OFS_FIRST_OF(connection + 1),
			    why);
		pthread_cond_broadcast(&b->changed);
	}
	pthread_mutex_unlock(&b->lock);
	return news;
}

static void tell_all(struct ofs_gpu_gather *b, unsigned connection)
{
	const uint8_t text[] = { OFS_WIRE_HANG_UP, (uint8_t)connection };

	ofs_group_post(b->group, text, sizeof(text));
}

void ofs_gpu_gather_lost(struct ofs_gpu_gather *b, unsigned connection,
    const struct optimfs_error *err)
{
	unsigned last = atomic_load(&b->connection);
	bool never = err->code != ENOTCONN;

	if (!end_here(b, never ? OFS_NEVER : connection, err->text))
		return;
	ofs_gpu_gather_say(b, err->text,
	    never ? "gathering over MPI from now on"
		  : "gathering over MPI until ranks are connected again");
	tell_all(b, never ? last : connection);
}

void ofs_gpu_gather_hang_up(struct ofs_gpu_gather *b, unsigned connection,
    const struct optimfs_error *err)
{
	struct optimfs_error why = *err;

	if (err->code != ENOTCONN)
		optimfs_fail(&why, ENOTCONN, "OFS901 NCCL: %s", err->text);
	ofs_gpu_gather_lost(b, connection, &why);
}

bool ofs_gpu_gather_is_stuck(struct ofs_gpu_gather *b)
{
	unsigned limit = b->group->timeout;
	struct optimfs_error why;

	if (limit != 0 && b->ops->silent(b->gpu) > (int64_t)limit * 1000 &&
	    !atomic_exchange(&b->stuck, true)) {
		optimfs_fail(&why, EIO,
		    "OFS902 the GPU: a call did not return in %u s", limit);
		ofs_gpu_gather_lost(b, 0, &why);
	}
	return atomic_load(&b->stuck);
}

int ofs_gpu_gather_answer_hang_up(struct ofs_request *q,
    struct optimfs_error *err)
{
	struct ofs_gpu_gather *b = q->group->gpu_gather;
	unsigned connection = ofs_cursor_u8(&q->c);
	char why[64];

	if (q->c.bad || ofs_cursor_left(&q->c) != 0 || q->want != 0 ||
	    connection > MAX_CONNECTIONS)
		return ofs_wire_malformed(err);
	/* the other rank has reported it */
	snprintf(why, sizeof(why), "OFS901 NCCL: rank %d gave it up", q->from);
	if (b != NULL)
		(void)end_here(b, connection, why);
	return 0;
}

/* A new connection, on each rank. */

static int connect_here(struct ofs_gpu_gather *b, unsigned connection,
    struct ofs_gpu_connection *c, struct optimfs_error *err)
{
	(void)end_here(b, connection - 1, "OFS901 NCCL: rank 0 connects again");
	if (atomic_load(&b->over) == OFS_NEVER) {
		/* the others do not wait for this one */
		tell_all(b, connection);
		return optimfs_fail(err, EIO,
		    "OFS902 the GPU is not used any more");
	}
	if (b->ops->connect(b->gpu, c, err) == -1)
		return -1;
	pthread_mutex_lock(&b->lock);
	atomic_store(&b->connection, connection);
	pthread_mutex_unlock(&b->lock);
	return 0;
}

struct connecting {
	struct ofs_gpu_connection c;
	uint8_t id[OFS_GPU_ID];
	int rank[];
};

/* Reads the name and the ranks, of which this one must be one. */
static struct connecting *take_connection(struct ofs_request *q,
    unsigned connection, struct optimfs_error *err)
{
	const uint8_t *id = ofs_cursor_take(&q->c, OFS_GPU_ID);
	uint64_t n = ofs_cursor_left(&q->c) / 4;
	struct connecting *k = NULL;

	if (!q->c.bad && n <= (uint64_t)q->group->size)
		k = calloc(1, sizeof(*k) + n * sizeof(*k->rank));
	if (k == NULL) {
		ofs_wire_malformed(err);
		return NULL;
	}
	memcpy(k->id, id, sizeof(k->id));
	k->c = (struct ofs_gpu_connection){ .id = k->id,
		.rank = k->rank,
		.n = (int)n,
		.own = -1,
		.first = OFS_FIRST_OF(connection) };
	for (int i = 0; i < k->c.n; i++) {
		k->rank[i] = (int)ofs_cursor_le32(&q->c);
		q->c.bad |= k->rank[i] < 0 || k->rank[i] >= q->group->size;
		if (k->rank[i] == q->group->rank)
			k->c.own = i;
	}
	if (!q->c.bad && k->c.own != -1)
		return k;
	ofs_wire_malformed(err);
	free(k);
	return NULL;
}

int ofs_gpu_gather_answer_connect(struct ofs_request *q,
    struct optimfs_error *err)
{
	struct ofs_gpu_gather *b = q->group->gpu_gather;
	unsigned connection = ofs_cursor_u8(&q->c);
	struct connecting *k;
	int ret;

	if (q->from != 0 || q->result == NULL || b == NULL || b->gpu == NULL ||
	    connection == 0 || connection > MAX_CONNECTIONS)
		return ofs_wire_malformed(err);
	k = take_connection(q, connection, err);
	if (k == NULL)
		return -1;
	pthread_mutex_lock(&b->connecting);
	ret = connect_here(b, connection, &k->c, err);
	pthread_mutex_unlock(&b->connecting);
	if (ret == 0 || !ofs_gpu_gather_is_stuck(b))
		free(k); /* otherwise the module may still use it */
	return ret;
}

/* A new connection, on rank 0 for all. */

/* Calls to the ranks to connect: how many. Numbers of their transfers begin anew. */
static int choose_ranks(struct ofs_gpu_gather *b, unsigned connection,
    struct ofs_call *call)
{
	struct optimfs_group *w = b->group;
	int n = 0;

	for (int r = 0; r < w->size; r++) {
		bool lost = r != w->rank && ofs_group_is_lost(w, r, NULL);

		pthread_mutex_lock(&b->lock);
		if (!lost && b->sequence[r] != NO_GPU) {
			b->sequence[r] = OFS_FIRST_OF(connection);
			call[n++].to = r;
		}
		pthread_mutex_unlock(&b->lock);
	}
	return n;
}

/* The results of all calls; the first failure is the error. */
static int take_results(struct ofs_gpu_gather *b, struct ofs_call *call, int n,
    struct optimfs_error *err)
{
	int ret = 0;

	for (int i = 0; i < n; i++) {
		int code = call[i].err.code;

		ofs_buf_fini(&call[i].result);
		if (code == 0)
			continue;
		if (ret == 0)
			ret = optimfs_fail_with(err, &call[i].err);
		pthread_mutex_lock(&b->lock);
		if (code != ENOTCONN)
			b->sequence[call[i].to] = NO_GPU;
		pthread_mutex_unlock(&b->lock);
	}
	return ret;
}

int ofs_gpu_gather_connect(struct ofs_gpu_gather *b, int *n,
    struct optimfs_error *err)
{
	struct ofs_call *call =
	    ofs_alloc((size_t)b->group->size, sizeof(*call), err);
	unsigned connection = atomic_load(&b->over) + 1;
	struct ofs_buf q = { 0 };
	uint8_t id[OFS_GPU_ID];
	int ret = -1;

	if (call == NULL)
		return -1;
	*n = choose_ranks(b, connection, call);
	if (*n == 1 && b->group->size > 1) {
		optimfs_fail(err, ENOTCONN,
		    "OFS901 NCCL: no other rank is left");
	} else if (b->ops->name_it(b->gpu, id, err) == 0) {
		ofs_wire_u8(&q, OFS_WIRE_CONNECT);
		ofs_wire_u8(&q, (uint8_t)connection);
		ofs_buf_put(&q, id, sizeof(id));
		for (int i = 0; i < *n; i++) {
			ofs_wire_u32(&q, (uint32_t)call[i].to);
			call[i].request = &q;
		}
		ofs_group_call(b->group, call, (size_t)*n);
		ret = take_results(b, call, *n, err);
	}
	free(call);
	ofs_buf_fini(&q);
	return ret;
}

/* Replacing what was lost. */

static void replace(struct ofs_gpu_gather *b)
{
	unsigned connection = atomic_load(&b->over) + 1;
	struct optimfs_error err;
	char text[64];
	int n;

	if (ofs_gpu_gather_connect(b, &n, &err) == 0) {
		snprintf(text, sizeof(text), "%d of %d ranks use it", n,
		    b->group->size);
		ofs_gpu_gather_say(b, "NCCL is connected again", text);
		return;
	}
	if (end_here(b, connection, err.text))
		tell_all(b, connection);
	if (connection == MAX_CONNECTIONS)
		ofs_gpu_gather_say(b, err.text,
		    "it is not tried again: gathering over MPI from now on");
}

/* The lock is held. */
static void wait_before(struct ofs_gpu_gather *b)
{
	int64_t until = ofs_clock_ns() +
	    (INT64_C(1000000000) << (atomic_load(&b->over) - 1));

	while (!b->stopped && ofs_clock_ns() < until)
		ofs_clock_wait(&b->changed, &b->lock, until - ofs_clock_ns());
}

static void *keep(void *arg)
{
	struct ofs_gpu_gather *b = arg;

	pthread_mutex_lock(&b->lock);
	while (!b->stopped && atomic_load(&b->over) < MAX_CONNECTIONS) {
		if (ofs_gpu_gather_is_on(b)) {
			pthread_cond_wait(&b->changed, &b->lock);
			continue;
		}
		wait_before(b);
		if (b->stopped || atomic_load(&b->over) == OFS_NEVER)
			continue;
		pthread_mutex_unlock(&b->lock);
		replace(b);
		pthread_mutex_lock(&b->lock);
	}
	pthread_mutex_unlock(&b->lock);
	return NULL;
}

int ofs_gpu_gather_keep(struct ofs_gpu_gather *b, struct optimfs_error *err)
{
	int code = pthread_create(&b->keeper, NULL, keep, b);

	if (code != 0)
		return optimfs_fail(err, code, "cannot start a thread: %s",
		    strerror(code));
	b->keeps = true;
	return 0;
}

void ofs_gpu_gather_stop(struct ofs_gpu_gather *b)
{
	pthread_mutex_lock(&b->lock);
	b->stopped = true;
	pthread_cond_broadcast(&b->changed);
	pthread_mutex_unlock(&b->lock);
	(void)end_here(b, OFS_NEVER, "OFS901 NCCL: this rank leaves");
	if (b->keeps)
		pthread_join(b->keeper, NULL);
	b->keeps = false;
}
