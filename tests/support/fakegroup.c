/* fakegroup.c - ranks that are threads of one process */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "support/fakegroup.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/clock.h"
#include "cluster/silence.h"
#include "tap.h"

struct ofs_group {
	struct fakegroup *f;
	int rank;
	bool ended; /* the module would have freed it */
	struct ofs_group_config config;
};

struct fakegroup {
	int size, machines;
	struct ofs_group *group;
	atomic_bool *dead, *mute, *away;
	/* of fakegroup_meet: how many are there, how often have all been */
	pthread_mutex_t lock;
	pthread_cond_t met;
	int there;
	unsigned meetings;
	struct fakegroup_counts counts;
	/* By rank: bytes; the length of the longest chain that has reached it. */
	_Atomic uint64_t *sent, *chain;

	/* With a network; protected by lock. */
	const struct fakegroup_network *net; /* NULL: none */
	int64_t *out, *in; /* by machine: until when its links are in use */
	int64_t *left;     /* by rank */
	int victim;        /* that will die, at its step th event; -1: none */
	uint64_t step, events;
	bool whole;   /* with its machine */
	int64_t died; /* when; 0: not yet */
	/* [from * size + to]: what it has heard; when it was told to forget, the
	 * last time */
	struct ofs_silence *silence;
	int64_t *forgot;
	pthread_cond_t told; /* that */
};

/* In ns. */
#define MS INT64_C(1000000)

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
	f->away = must(calloc(n, sizeof(*f->away)));
	f->sent = must(calloc(n, sizeof(*f->sent)));
	f->chain = must(calloc(n, sizeof(*f->chain)));
	f->left = must(calloc(n, sizeof(*f->left)));
	f->victim = -1;
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->met, NULL);
	pthread_cond_init(&f->told, NULL);
	return f;
}

void fakegroup_machines(struct fakegroup *f, int n)
{
	f->machines = n;
}

void fakegroup_free(struct fakegroup *f)
{
	pthread_cond_destroy(&f->met);
	pthread_cond_destroy(&f->told);
	pthread_mutex_destroy(&f->lock);
	free(f->group);
	free(f->dead);
	free(f->mute);
	free(f->away);
	free(f->sent);
	free(f->chain);
	free(f->left);
	free(f->out);
	free(f->in);
	free(f->silence);
	free(f->forgot);
	free(f);
}

void fakegroup_be(struct fakegroup *f, int rank)
{
	mine = f;
	my_rank = rank;
}

static int machine_of(const struct fakegroup *f, int r)
{
	return r % f->machines;
}

static bool is_dead(struct fakegroup *f, int r)
{
	return atomic_load(&f->dead[r]);
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
	unsigned before;

	pthread_mutex_lock(&f->lock);
	before = f->meetings;
	if (++f->there == f->size) {
		f->there = 0;
		f->meetings++;
		pthread_cond_broadcast(&f->met);
	}
	while (f->meetings == before)
		pthread_cond_wait(&f->met, &f->lock);
	pthread_mutex_unlock(&f->lock);
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
	*w = (struct ofs_group){ mine, my_rank, false, *config };
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
	return machine_of(w->f, r);
}

static void count(struct fakegroup *f, int from, const struct ofs_ask *a)
{
	if (machine_of(f, from) != machine_of(f, a->to)) {
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

/* Has it died, or left without the others? */
static bool is_away(struct fakegroup *f, int r)
{
	return is_dead(f, r) || atomic_load(&f->away[r]);
}

static void ask_one(struct fakegroup *f, int from, struct ofs_ask *a)
{
	const struct ofs_group_config *c = &f->group[a->to].config;

	a->err.code = 0;
	a->answer = a->priv = NULL;
	if (a->nrequest > OFS_GROUP_REQUEST_MAX ||
	    a->want > OFS_GROUP_ANSWER_MAX)
		bail_out("a request or an answer is too large");
	if (atomic_load(&f->dead[from]) || is_away(f, a->to) ||
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

/* The network. */

void fakegroup_network(struct fakegroup *f, const struct fakegroup_network *net)
{
	f->net = net;
	f->out = must(calloc((size_t)f->machines, sizeof(*f->out)));
	f->in = must(calloc((size_t)f->machines, sizeof(*f->in)));
}

void fakegroup_die(struct fakegroup *f, int r, uint64_t step, int machine)
{
	size_t n = (size_t)f->size;

	f->victim = r;
	f->step = step;
	f->whole = machine != 0;
	f->silence = must(calloc(n * n, sizeof(*f->silence)));
	for (size_t i = 0; i < n * n; i++)
		f->silence[i].node = machine_of(f, (int)(i % n));
	f->forgot = must(calloc(n * n, sizeof(*f->forgot)));
}

int fakegroup_is_dead(struct fakegroup *f, int r)
{
	return atomic_load(&f->dead[r]);
}

int64_t fakegroup_died(struct fakegroup *f)
{
	return f->died;
}

int64_t fakegroup_left(struct fakegroup *f, int r)
{
	return f->left[r];
}

/* An event of a rank, at which it may die. */
static void happen(struct fakegroup *f, int r)
{
	pthread_mutex_lock(&f->lock);
	if (r == f->victim && f->events++ == f->step) {
		f->died = f->net->now();
		for (int i = 0; i < f->size; i++)
			if (i == r ||
			    (f->whole && machine_of(f, i) == machine_of(f, r)))
				atomic_store(&f->dead[i], true);
	}
	pthread_mutex_unlock(&f->lock);
}

/* When a message that is sent now arrives. */
static int64_t arrival(struct fakegroup *f, int from, int to, uint64_t bytes)
{
	const struct fakegroup_network *net = f->net;
	int64_t *out = &f->out[machine_of(f, from)];
	int64_t *in = &f->in[machine_of(f, to)], t = net->now();
	int64_t lasts =
	    net->rate == 0 ? 0 : (int64_t)(bytes * 1000000000 / net->rate);

	if (machine_of(f, from) == machine_of(f, to))
		return t + net->near;
	pthread_mutex_lock(&f->lock);
	*out = (*out > t ? *out : t) + lasts;
	t = *out + net->latency;
	/* it is received while it is sent, if the link is free */
	*in = *in + lasts > t ? *in + lasts : t;
	t = *in;
	pthread_mutex_unlock(&f->lock);
	return t;
}

struct message {
	struct ofs_ask *ask;
	int64_t at; /* when it arrives */
	bool lost;  /* there is no answer; at: until when it is awaited */
};

static int by_time(const void *va, const void *vb)
{
	const struct message *a = va, *b = vb;

	return a->at < b->at ? -1 : a->at > b->at;
}

/* What a rank has heard of all; NULL: nobody dies. */
static struct ofs_silence *silence_of(struct fakegroup *f, int from)
{
	return f->silence == NULL ? NULL
				  : f->silence + (size_t)from * (size_t)f->size;
}

static int64_t limit_ms(struct fakegroup *f, int from)
{
	return (int64_t)f->group[from].config.timeout * 1000;
}

/* Until when a rank waits for one that does not answer. */
static int64_t patience(struct fakegroup *f, int from, int to, int64_t sent)
{
	return sent +
	    ofs_silence_limit(&silence_of(f, from)[to], limit_ms(f, from)) * MS;
}

static void hear(struct fakegroup *f, int rank, int of, int64_t t)
{
	if (f->silence != NULL)
		ofs_silence_end(&silence_of(f, rank)[of], t / MS);
}

/* Hands over a message; returns when the answer comes, or 0. */
static int64_t deliver(struct fakegroup *f, int from, struct message *m,
    int64_t sent)
{
	struct ofs_ask *a = m->ask;
	const struct ofs_group_config *c = &f->group[a->to].config;
	int64_t t;
	bool was;

	happen(f, a->to);
	was = !is_away(f, a->to);
	if (was) {
		hear(f, a->to, from, m->at);
		a->priv = must(malloc(a->want + 1));
		if (c->answer(c->ctx, from, a->request, a->nrequest, a->priv,
			a->want, &a->err) == 0)
			a->answer = a->priv;
		happen(f, a->to);
	}
	/* who leaves does so after its answers */
	if (!is_dead(f, a->to) && was) {
		t = arrival(f, a->to, from, a->want);
		hear(f, from, a->to, t);
		return t;
	}
	a->answer = NULL;
	if (machine_of(f, a->to) == machine_of(f, from)) {
		optimfs_fail(&a->err, EHOSTDOWN, "OFS911 it has died");
		return 0;
	}
	optimfs_fail(&a->err, ETIMEDOUT, "OFS912 it does not answer");
	m->lost = true;
	m->at = patience(f, from, a->to, sent);
	return 0;
}

/* Waits until it is clear that answers do not come. */
static void wait_lost(struct fakegroup *f, int from, int64_t sent,
    const struct message *m, size_t n)
{
	const int64_t *forgot = f->forgot + (size_t)from * (size_t)f->size;
	int64_t rest;

	pthread_mutex_lock(&f->lock);
	for (size_t i = 0; i < n; i++)
		while (m[i].lost && (rest = m[i].at - f->net->now()) > 0 &&
		    forgot[m[i].ask->to] <= sent)
			ofs_clock_wait(&f->told, &f->lock, rest);
	for (size_t i = 0; i < n; i++)
		if (m[i].lost && forgot[m[i].ask->to] <= sent)
			ofs_silence_note(silence_of(f, from), f->size, from,
			    m[i].ask->to, f->net->now() / MS,
			    limit_ms(f, from));
	pthread_mutex_unlock(&f->lock);
}

static void ask_over(struct fakegroup *f, int from, struct ofs_ask *a, size_t n)
{
	struct message *m = must(calloc(n + 1, sizeof(*m)));
	int64_t sent = f->net->now(), end = sent, t;

	for (size_t i = 0; i < n; i++) {
		a[i].err.code = 0;
		a[i].answer = a[i].priv = NULL;
		happen(f, from);
		count(f, from, &a[i]);
		m[i] = (struct message){ &a[i],
			arrival(f, from, a[i].to, a[i].nrequest), false };
	}
	qsort(m, n, sizeof(*m), by_time);
	for (size_t i = 0; i < n && !is_dead(f, from); i++) {
		f->net->sleep_until(m[i].at);
		t = deliver(f, from, &m[i], sent);
		end = t > end ? t : end;
	}
	if (!is_dead(f, from))
		f->net->sleep_until(end);
	if (!is_dead(f, from))
		wait_lost(f, from, sent, m, n);
	for (size_t i = 0; i < n && is_dead(f, from); i++) {
		a[i].answer = NULL;
		optimfs_fail(&a[i].err, EHOSTDOWN, "OFS911 it is dead itself");
	}
	free(m);
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
	if (w->f->net != NULL) {
		ask_over(w->f, w->rank, a, n);
		return;
	}
	/* the last first: nothing may depend on the order of answers */
	for (size_t i = n; i > 0; i--)
		ask_one(w->f, w->rank, &a[i - 1]);
}

/* Asking in a thread of its own, since that takes time in a network. */
struct asking {
	struct ofs_group *w;
	struct ofs_ask *a;
	size_t n;
	pthread_t thread;
};

static void *be_asking(void *arg)
{
	struct asking *asking = arg;

	ask(asking->w, asking->a, asking->n);
	return NULL;
}

static void start(struct ofs_group *w, struct ofs_ask *a, size_t n)
{
	struct asking *asking;

	if (w->f->net == NULL || n == 0) {
		ask(w, a, n);
		return;
	}
	a[0].batch = asking = must(malloc(sizeof(*asking)));
	*asking = (struct asking){ .w = w, .a = a, .n = n };
	if (pthread_create(&asking->thread, NULL, be_asking, asking) != 0)
		bail_out("no thread");
}

static void wait(struct ofs_group *w, struct ofs_ask *a, size_t n)
{
	struct asking *asking = n == 0 ? NULL : a[0].batch;

	(void)w;
	if (asking == NULL)
		return;
	pthread_join(asking->thread, NULL);
	free(asking);
	a[0].batch = NULL;
}

static void release(struct ofs_group *w, struct ofs_ask *a, size_t n)
{
	if (w->ended)
		bail_out("a request is released after its rank has left");
	wait(w, a, n);
	for (size_t i = 0; i < n; i++)
		free(a[i].priv);
}

static bool dead(const struct ofs_group *w, int r)
{
	struct fakegroup *f = w->f;
	bool near = machine_of(f, r) == machine_of(f, w->rank);

	if (near && is_away(f, r))
		return true;
	return f->net != NULL ? is_dead(f, w->rank) : is_dead(f, r);
}

static void forget(struct ofs_group *w, int r)
{
	struct fakegroup *f = w->f;
	size_t at = (size_t)w->rank * (size_t)f->size + (size_t)r;

	if (f->forgot == NULL)
		return;
	pthread_mutex_lock(&f->lock);
	atomic_store(&f->silence[at].late, true);
	f->forgot[at] = f->net->now();
	pthread_cond_broadcast(&f->told);
	pthread_mutex_unlock(&f->lock);
}

static void leave(struct ofs_group *w, bool all)
{
	if (w->f->net != NULL)
		w->f->left[w->rank] = w->f->net->now();
	atomic_store(&w->f->away[w->rank], !all);
	fakegroup_meet(w->f);
	w->ended = true;
}

const struct ofs_group_ops fakegroup_ops = {
	.version = OFS_GROUP_VERSION,
	.join = join,
	.rank = rank,
	.size = size,
	.host = host,
	.node = node,
	.ask = ask,
	.release = release,
	.dead = dead,
	.leave = leave,
	.start = start,
	.wait = wait,
	.forget = forget,
};
