/* group.c - the ranks of a job and their shared state */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/memory.h"
#include "base/module.h"
#include "cluster/call.h"
#include "cluster/group_impl.h"
#include "cluster/mail.h"
#include "cluster/manifest.h"
#include "cluster/relay.h"
#include "cluster/task.h"
#include "cluster/wire.h"

/* The number of ranks in the environment, set by mpirun of Open MPI, mpirun of
 * MPICH and srun --mpi=pmi2. */
static const char *const size_variables[] = { "OMPI_COMM_WORLD_SIZE",
	"PMI_SIZE" };

bool optimfs_group_launched(void)
{
	const char *n;

	for (size_t i = 0; i < sizeof(size_variables) / sizeof(*size_variables);
	     i++) {
		n = getenv(size_variables[i]);
		if (n != NULL)
			return atoi(n) > 1;
	}
	/* srun --mpi=pmix sets the rank, but only Slurm's own number, which
	 * processes that are not ranks have too */
	if (getenv("PMIX_RANK") == NULL)
		return false;
	n = getenv("SLURM_STEP_NUM_TASKS");
	return n == NULL || atoi(n) > 1;
}

/* Requests of others. */

void ofs_group_set_done(struct optimfs_group *w, int rank)
{
	pthread_mutex_lock(&w->lock);
	w->done[rank] = true;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
}

static int answer_done(struct ofs_request *q, struct optimfs_error *err)
{
	(void)err;
	ofs_group_set_done(q->group, q->from);
	return 0;
}

static int answer_ping(struct ofs_request *q, struct optimfs_error *err)
{
	(void)err;
	pthread_mutex_lock(&q->group->lock);
	if (q->want == 1)
		q->out[0] = q->group->done[q->group->rank];
	pthread_mutex_unlock(&q->group->lock);
	return 0;
}

static const struct ofs_handler own_handlers[] = {
	{ OFS_WIRE_DONE, answer_done, false },
	{ OFS_WIRE_TASK, ofs_task_answer, false },
	{ OFS_WIRE_CALL, ofs_calls_begin, false },
	{ OFS_WIRE_LETTER, ofs_mail_letter, false },
	{ OFS_WIRE_PING, answer_ping, false },
	{ OFS_WIRE_OVER, ofs_group_answer_over, false },
	{ OFS_WIRE_LOST, ofs_group_answer_lost, false },
	{ OFS_WIRE_FETCH, ofs_manifest_fetch, true },
	{ OFS_WIRE_LENGTH, ofs_manifest_length, true },
	{ OFS_WIRE_RESCAN, ofs_manifest_rescan, true },
	{ OFS_WIRE_RELAY, ofs_relay_answer, true },
};

/* A reference, to be dropped with ofs_manifest_let. */
static struct ofs_manifest *hold_manifest(struct optimfs_group *w,
    uint32_t number)
{
	uint32_t place = OFS_MANIFEST_PLACE(number);
	struct ofs_manifest *s = NULL;

	pthread_mutex_lock(&w->lock);
	if (place < w->nmanifests)
		s = w->manifest[place];
	while (s != NULL && s->number != number)
		s = s->older;
	if (s != NULL)
		s->refs++;
	pthread_mutex_unlock(&w->lock);
	return s;
}

void ofs_group_put(struct optimfs_group *w, struct ofs_manifest *s)
{
	struct ofs_manifest **at = &w->manifest[OFS_MANIFEST_PLACE(s->number)];
	struct ofs_manifest *was;

	pthread_mutex_lock(&w->lock);
	was = *at;
	s->older = was->older == NULL ? was : was->older;
	*at = s;
	pthread_mutex_unlock(&w->lock);
	if (s->older != was)
		ofs_manifest_let(was);
}

/* Reports a manifest of another generation, or one never offered. */
static int no_such_manifest(struct optimfs_group *w, uint32_t number,
    struct optimfs_error *err)
{
	uint32_t place = OFS_MANIFEST_PLACE(number);
	bool offered;

	pthread_mutex_lock(&w->lock);
	offered = place < w->nmanifests;
	pthread_mutex_unlock(&w->lock);
	if (offered)
		return optimfs_fail(err, ESTALE,
		    "OFS844 the checkpoint was committed again since this was "
		    "opened: mount it again to see the new generation");
	return optimfs_fail(err, EPROTO,
	    "OFS913 a request for a checkpoint that was not offered");
}

int ofs_group_handle(struct optimfs_group *w, struct ofs_request *q,
    struct optimfs_error *err)
{
	uint8_t kind = ofs_cursor_u8(&q->c);
	const struct ofs_handler *h =
	    &w->handler[kind < OFS_WIRE_KINDS ? kind : 0];
	uint32_t number;
	int ret;

	q->group = w;
	if (h->fn == NULL)
		return optimfs_fail(err, EPROTO,
		    "OFS913 an unknown request: do all ranks run the same "
		    "version?");
	if (!h->of_manifest)
		return h->fn(q, err);
	number = ofs_cursor_le32(&q->c);
	q->manifest = hold_manifest(w, number);
	if (q->manifest == NULL)
		return no_such_manifest(w, number, err);
	ret = h->fn(q, err);
	ofs_manifest_let(q->manifest);
	return ret;
}

/* Others may send requests before this rank has finished joining. */
static void wait_until_ready(struct optimfs_group *w)
{
	pthread_mutex_lock(&w->lock);
	while (!w->ready)
		pthread_cond_wait(&w->changed, &w->lock);
	pthread_mutex_unlock(&w->lock);
}

static int answer(void *ctx, int from, const void *request, size_t n, void *out,
    uint64_t want, struct optimfs_error *err)
{
	struct ofs_request q = { .from = from,
		.c = ofs_cursor_of(request, n),
		.out = out,
		.want = want };

	wait_until_ready(ctx);
	return ofs_group_handle(ctx, &q, err);
}

/* Joining. */

static void add_handlers(struct optimfs_group *w, const struct ofs_handler *h,
    size_t n)
{
	for (size_t i = 0; i < n; i++)
		w->handler[h[i].kind] = h[i];
}

void ofs_group_free(struct optimfs_group *w)
{
	ofs_calls_free(w->calls);
	ofs_mail_free(w->mail);
	ofs_task_free(w->task);
	pthread_cond_destroy(&w->changed);
	pthread_mutex_destroy(&w->lock);
	pthread_mutex_destroy(&w->post_lock);
	free(w->done);
	free(w->gone);
	free(w->reader);
	free(w->machine);
	free(w);
}

static struct optimfs_group *group_new(const struct ofs_group_ops *ops,
    unsigned timeout, const struct ofs_group_service *const *services,
    struct optimfs_error *err)
{
	struct optimfs_group *w = ofs_alloc(1, sizeof(*w), err);

	if (w == NULL)
		return NULL;
	pthread_mutex_init(&w->lock, NULL);
	pthread_mutex_init(&w->post_lock, NULL);
	pthread_cond_init(&w->changed, NULL);
	w->calls = ofs_calls_new();
	w->mail = ofs_mail_new();
	if (w->calls == NULL || w->mail == NULL) {
		ofs_group_free(w);
		ofs_no_memory(err);
		return NULL;
	}
	w->ops = ops;
	w->timeout = timeout;
	w->services = services;
	add_handlers(w, own_handlers,
	    sizeof(own_handlers) / sizeof(*own_handlers));
	for (; *services != NULL; services++)
		add_handlers(w, (*services)->handler, (*services)->nhandlers);
	return w;
}

struct optimfs_group *ofs_group_new(const struct ofs_group_ops *ops,
    unsigned timeout, const struct ofs_group_service *const *services,
    struct optimfs_error *err)
{
	struct optimfs_group *w = group_new(ops, timeout, services, err);
	struct ofs_group_config config = { timeout, answer, w };

	if (w == NULL)
		return NULL;
	w->w = ops->join(&config, err);
	if (w->w == NULL) {
		ofs_group_free(w);
		return NULL;
	}
	w->rank = ops->rank(w->w);
	w->size = ops->size(w->w);
	w->done = calloc((size_t)w->size, sizeof(*w->done));
	w->gone = calloc((size_t)w->size, sizeof(*w->gone));
	w->task = ofs_task_new(w->size);
	if (w->done != NULL && w->gone != NULL && w->task != NULL) {
		pthread_mutex_lock(&w->lock);
		w->ready = true;
		pthread_cond_broadcast(&w->changed);
		pthread_mutex_unlock(&w->lock);
		return w;
	}
	ofs_no_memory(err);
	ops->leave(w->w, true);
	ofs_group_free(w);
	return NULL;
}

/* Libraries of the module look up symbols in each other: hence RTLD_GLOBAL. */
struct optimfs_group *ofs_group_join(const char *transport, unsigned timeout,
    const struct ofs_group_service *const *services, struct optimfs_error *err)
{
	const struct ofs_group_ops *ops;
	char why[256];

	ops = ofs_module_load(transport, OFS_GROUP_SYMBOL, RTLD_GLOBAL, why);
	if (ops == NULL)
		optimfs_fail(err, ENOSYS,
		    "OFS915 ranks (mpirun, transport=mpi, gather=nccl) need a "
		    "module, and %s; install it, or give -o transport=local",
		    why);
	else if (ops->version == OFS_GROUP_VERSION)
		return ofs_group_new(ops, timeout, services, err);
	else
		optimfs_fail(err, ENOSYS,
		    "OFS915 the module for %s is of another version",
		    transport);
	return NULL;
}

int optimfs_group_rank(const struct optimfs_group *w)
{
	return w->rank;
}

int optimfs_group_size(const struct optimfs_group *w)
{
	return w->size;
}

int optimfs_group_node(const struct optimfs_group *w, int rank)
{
	return w->ops->node(w->w, rank);
}

const char *optimfs_group_host(const struct optimfs_group *w, int rank)
{
	return w->ops->host(w->w, rank);
}

int ofs_group_error_in(const struct optimfs_group *w, int rank,
    struct optimfs_error *err)
{
	return optimfs_fail_in(err, "rank %d (%s)", rank,
	    w->ops->host(w->w, rank));
}

int ofs_group_ask_all(const struct optimfs_group *w, struct ofs_ask *ask,
    size_t n, struct optimfs_error *err)
{
	int ret = 0;

	w->ops->ask(w->w, ask, n);
	for (size_t i = 0; i < n; i++) {
		if (ask[i].err.code == 0)
			continue;
		ofs_group_error_in(w, ask[i].to, &ask[i].err);
		if (ret == 0)
			ret = optimfs_fail_with(err, &ask[i].err);
	}
	return ret;
}

int ofs_group_ask(const struct optimfs_group *w, int rank,
    const struct ofs_buf *request, void *out, uint64_t want,
    struct optimfs_error *err)
{
	struct ofs_ask ask = { .to = rank,
		.request = request->data,
		.nrequest = request->len,
		.want = want };
	int ret;

	if (request->bad)
		return ofs_no_memory(err);
	ret = ofs_group_ask_all(w, &ask, 1, err);
	if (ret == 0 && want > 0)
		memcpy(out, ask.answer, want);
	w->ops->release(w->w, &ask, 1);
	return ret;
}

/* A message for whose answers nobody waits. */
struct ofs_post {
	SLIST_ENTRY(ofs_post) next;
	size_t n;
	uint8_t text[2];
	struct ofs_ask ask[];
};

/* to: a rank; -1: all. The text has at most two bytes. */
void ofs_group_post_to(struct optimfs_group *w, int to, const uint8_t *text,
    size_t len)
{
	size_t n = to == -1 ? (size_t)w->size : 1;
	struct ofs_post *p = calloc(1, sizeof(*p) + n * sizeof(*p->ask));

	if (p == NULL)
		return;
	memcpy(p->text, text, len);
	p->n = 1;
	p->ask[0] =
	    (struct ofs_ask){ .to = to, .request = p->text, .nrequest = len };
	if (to == -1)
		p->n = ofs_group_address(w, p->ask, p->text, len);
	pthread_mutex_lock(&w->post_lock);
	if (w->posts_ended) {
		free(p);
	} else {
		w->ops->start(w->w, p->ask, p->n);
		SLIST_INSERT_HEAD(&w->posts, p, next);
	}
	pthread_mutex_unlock(&w->post_lock);
}

void ofs_group_post(struct optimfs_group *w, const uint8_t *text, size_t len)
{
	ofs_group_post_to(w, -1, text, len);
}

void ofs_group_end_posts(struct optimfs_group *w, bool lost)
{
	struct ofs_post *p;

	pthread_mutex_lock(&w->post_lock);
	w->posts_ended = true;
	pthread_mutex_unlock(&w->post_lock);
	while ((p = SLIST_FIRST(&w->posts)) != NULL) {
		SLIST_REMOVE_HEAD(&w->posts, next);
		w->ops->wait(w->w, p->ask, p->n);
		w->ops->release(w->w, p->ask, p->n);
		free(p);
		for (int r = 0; lost && r < w->size; r++)
			if (r != w->rank)
				w->ops->forget(w->w, r);
	}
}

char *optimfs_group_expand(const struct optimfs_group *w, const char *path,
    struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };

	for (const char *p = path; *p != '\0'; p++) {
		if (p[0] != '%' || p[1] == '\0') {
			ofs_buf_putc(&b, *p);
			continue;
		}
		p++;
		if (*p == 'r')
			ofs_buf_printf(&b, "%d", w->rank);
		else if (*p == 'h')
			ofs_buf_puts(&b, w->ops->host(w->w, w->rank));
		else if (*p == '%')
			ofs_buf_putc(&b, '%');
		else
			ofs_buf_printf(&b, "%%%c", *p);
	}
	return ofs_buf_text(&b, err);
}

/* Manifests. */

struct ofs_manifest *ofs_group_manifest(struct optimfs_group *w,
    const char *path, struct optimfs_error *err)
{
	struct ofs_manifest *s = NULL;

	pthread_mutex_lock(&w->lock);
	for (uint32_t i = 0; i < w->nmanifests && s == NULL; i++)
		if (strcmp(w->manifest[i]->path, path) == 0)
			s = w->manifest[i];
	if (s != NULL && w->rank != 0 && s->older != NULL)
		s = s->older;
	pthread_mutex_unlock(&w->lock);
	if (s == NULL)
		optimfs_fail(err, ENOENT, "%s: not offered to the other ranks",
		    path);
	return s;
}

int ofs_group_add(struct optimfs_group *w, struct ofs_manifest *s,
    struct optimfs_error *err)
{
	int ret = 0;

	pthread_mutex_lock(&w->lock);
	if (w->nmanifests == OFS_MAX_MANIFESTS) {
		ret = optimfs_fail(err, ENFILE, "%s: too many checkpoints",
		    s->path);
	} else {
		s->number = w->nmanifests;
		w->manifest[w->nmanifests++] = s;
	}
	pthread_mutex_unlock(&w->lock);
	return ret;
}

int optimfs_group_readers(struct optimfs_group *w, const bool *reader,
    struct optimfs_error *err)
{
	size_t n = (size_t)w->size;
	int *rank = ofs_alloc(n, sizeof(*rank), err);
	int *end = ofs_alloc(n + 1, sizeof(*end), err), m = 0;

	if (rank == NULL || end == NULL) {
		free(rank);
		free(end);
		return -1;
	}
	/* by the lowest rank of the machine: where its readers end, and begin */
	for (int r = 0; r < w->size; r++)
		end[w->ops->node(w->w, r)] += reader[r];
	for (int r = 1; r <= w->size; r++)
		end[r] += end[r - 1];
	for (int r = w->size - 1; r >= 0; r--)
		if (reader[r])
			rank[--end[w->ops->node(w->w, r)]] = r;
	for (int r = 0; r < w->size; r++)
		if (end[r] < end[r + 1])
			end[m++] = end[r];
	end[m] = end[w->size];
	free(w->reader);
	free(w->machine);
	w->reader = rank;
	w->machine = end;
	w->nmachines = m;
	return 0;
}
