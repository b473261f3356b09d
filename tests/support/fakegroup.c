/* fakegroup.c - ranks that are threads of one process */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "support/fakegroup.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "tap.h"

struct ofs_group {
	struct fakegroup *f;
	int rank;
	struct ofs_group_config config;
};

struct fakegroup {
	int size, machines;
	struct ofs_group *group;
	atomic_bool *dead, *mute;
	pthread_barrier_t barrier;
	struct fakegroup_counts counts;
	/* By rank: bytes; the length of the longest chain that has reached it. */
	_Atomic uint64_t *sent, *chain;
};

static _Thread_local struct fakegroup *mine;
static _Thread_local int my_rank;

static void *must(void *p)
{
	if (p == NULL)
		bail_out("out of memory");
	return p;
}

struct fakegroup *fakegroup_new(int size)
{
	struct fakegroup *f = must(calloc(1, sizeof(*f)));
	size_t n = (size_t)size;

	f->size = size;
	f->machines = 2;
	f->group = must(calloc(n, sizeof(*f->group)));
	f->dead = must(calloc(n, sizeof(*f->dead)));
	f->mute = must(calloc(n, sizeof(*f->mute)));
	f->sent = must(calloc(n, sizeof(*f->sent)));
	f->chain = must(calloc(n, sizeof(*f->chain)));
	pthread_barrier_init(&f->barrier, NULL, (unsigned)size);
	return f;
}

void fakegroup_machines(struct fakegroup *f, int n)
{
	f->machines = n;
}

void fakegroup_free(struct fakegroup *f)
{
	pthread_barrier_destroy(&f->barrier);
	free(f->group);
	free(f->dead);
	free(f->mute);
	free(f->sent);
	free(f->chain);
	free(f);
}

void fakegroup_be(struct fakegroup *f, int rank)
{
	mine = f;
	my_rank = rank;
}

struct member {
	struct fakegroup *f;
	int rank;
	void (*work)(struct fakegroup *f, int rank, void *ctx);
	void *ctx;
	pthread_t thread;
};

static void *be_member(void *arg)
{
	struct member *m = arg;

	fakegroup_be(m->f, m->rank);
	m->work(m->f, m->rank, m->ctx);
	return NULL;
}

void fakegroup_run(struct fakegroup *f,
    void (*work)(struct fakegroup *f, int rank, void *ctx), void *ctx)
{
	struct member *m = must(calloc((size_t)f->size, sizeof(*m)));

	for (int r = 0; r < f->size; r++) {
		m[r] = (struct member){
			.f = f, .rank = r, .work = work, .ctx = ctx
		};
		if (pthread_create(&m[r].thread, NULL, be_member, &m[r]) != 0)
			bail_out("no thread");
	}
	for (int r = 0; r < f->size; r++)
		pthread_join(m[r].thread, NULL);
	free(m);
}

void fakegroup_meet(struct fakegroup *f)
{
	pthread_barrier_wait(&f->barrier);
}

void fakegroup_kill(struct fakegroup *f, int rank, int on)
{
	atomic_store(&f->dead[rank], on != 0);
}

void fakegroup_mute(struct fakegroup *f, int rank, int on)
{
	atomic_store(&f->mute[rank], on != 0);
}

struct fakegroup_counts *fakegroup_counts(struct fakegroup *f)
{
	return &f->counts;
}

uint64_t fakegroup_sent(struct fakegroup *f, int rank)
{
	return atomic_load(&f->sent[rank]);
}

void fakegroup_sent_anew(struct fakegroup *f)
{
	for (int r = 0; r < f->size; r++)
		atomic_store(&f->sent[r], 0);
}

uint64_t fakegroup_chain(struct fakegroup *f)
{
	uint64_t most = 0;

	for (int r = 0; r < f->size; r++)
		if (atomic_load(&f->chain[r]) > most)
			most = atomic_load(&f->chain[r]);
	return most;
}

int fakegroup_ask(struct fakegroup *f, int rank, const void *request, size_t n,
    void *out, uint64_t want, struct optimfs_error *err)
{
	const struct ofs_group_config *c = &f->group[rank].config;

	return c->answer(c->ctx, 0, request, n, out, want, err);
}

static struct ofs_group *join(const struct ofs_group_config *config,
    struct optimfs_error *err)
{
	struct ofs_group *w = &mine->group[my_rank];

	(void)err;
	*w = (struct ofs_group){ mine, my_rank, *config };
	fakegroup_meet(mine); /* all ranks can answer now */
	return w;
}

static int rank(const struct ofs_group *w)
{
	return w->rank;
}

static int size(const struct ofs_group *w)
{
	return w->f->size;
}

static const char *host(const struct ofs_group *w, int r)
{
	(void)w;
	return r % 2 == 0 ? "even" : "odd";
}

static int node(const struct ofs_group *w, int r)
{
	return r % w->f->machines;
}

static void count(struct fakegroup *f, int from, const struct ofs_ask *a)
{
	if (from % f->machines != a->to % f->machines) {
		atomic_fetch_add(&f->sent[from], a->nrequest);
		atomic_fetch_add(&f->sent[a->to], a->want);
	}
	atomic_fetch_add(&f->counts.asks, 1);
	/* when ranks ask for signs of life depends on the clock */
	if (*(const uint8_t *)a->request != OFS_WIRE_PING)
		atomic_fetch_add(&f->counts.bytes, a->want);
	if (a->to < 16)
		atomic_fetch_add(&f->counts.answered[a->to], 1);
	if (a->want > atomic_load(&f->counts.largest))
		atomic_store(&f->counts.largest, a->want);
}

static void reach(_Atomic uint64_t *chain, uint64_t n)
{
	uint64_t was = atomic_load(chain);

	while (was < n && !atomic_compare_exchange_weak(chain, &was, n))
		continue;
}

/* Questions that are asked at once, and their answers: two messages each. */
static void note_chains(struct fakegroup *f, int from, const struct ofs_ask *a,
    size_t n)
{
	uint64_t was = atomic_load(&f->chain[from]);

	if (n == 0 || *(const uint8_t *)a[0].request == OFS_WIRE_PING)
		return;
	for (size_t i = 0; i < n; i++)
		reach(&f->chain[a[i].to], was + 1);
	reach(&f->chain[from], was + 2);
}

static void ask_one(struct fakegroup *f, int from, struct ofs_ask *a)
{
	const struct ofs_group_config *c = &f->group[a->to].config;

	a->err.code = 0;
	a->answer = a->priv = NULL;
	if (a->nrequest > OFS_GROUP_REQUEST_MAX ||
	    a->want > OFS_GROUP_ANSWER_MAX)
		bail_out("a request or an answer is too large");
	if (atomic_load(&f->dead[from]) || atomic_load(&f->dead[a->to]) ||
	    atomic_load(&f->mute[a->to])) {
		optimfs_fail(&a->err,
		    atomic_load(&f->mute[a->to]) ? ETIMEDOUT : EHOSTDOWN,
		    "OFS911 it does not answer");
		return;
	}
	count(f, from, a);
	a->priv = must(malloc(a->want + 1));
	if (c->answer(c->ctx, from, a->request, a->nrequest, a->priv, a->want,
		&a->err) == 0)
		a->answer = a->priv;
}

static void ask(struct ofs_group *w, struct ofs_ask *a, size_t n)
{
	const uint8_t *kind = n == 0 ? NULL : a[0].request;

	atomic_fetch_add(&w->f->counts.rounds, 1);
	if (kind != NULL && *kind < OFS_WIRE_KINDS)
		atomic_fetch_add(&w->f->counts.rounds_of[*kind], 1);
	if (kind != NULL && *kind < OFS_WIRE_KINDS)
		atomic_fetch_add(&w->f->counts.asks_of[*kind], n);
	note_chains(w->f, w->rank, a, n);
	/* the last first: nothing may depend on the order of answers */
	for (size_t i = n; i > 0; i--)
		ask_one(w->f, w->rank, &a[i - 1]);
}

/* ask has already stored the answers. */
static void wait(struct ofs_group *w, struct ofs_ask *a, size_t n)
{
	(void)w;
	(void)a;
	(void)n;
}

static void release(struct ofs_group *w, struct ofs_ask *a, size_t n)
{
	(void)w;
	for (size_t i = 0; i < n; i++)
		free(a[i].priv);
}

static bool dead(const struct ofs_group *w, int r)
{
	return atomic_load(&w->f->dead[r]);
}

static void leave(struct ofs_group *w, bool all)
{
	(void)all;
	fakegroup_meet(w->f);
}

const struct ofs_group_ops fakegroup_ops = {
	.version = OFS_GROUP_VERSION,
	.name = "fake",
	.join = join,
	.rank = rank,
	.size = size,
	.host = host,
	.node = node,
	.ask = ask,
	.release = release,
	.dead = dead,
	.leave = leave,
	.start = ask,
	.wait = wait,
};
