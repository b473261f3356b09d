/* world.c - the ranks of a job, and what they share */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cluster/group.h"

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "cluster/gpu/bulk.h"
#include "cluster/manifest.h"
#include "cluster/renew.h"
#include "cluster/task.h"
#include "cluster/wire.h"

/* How often who waits for others looks whether one of them has died. */
#define LOOK_NS (100 * 1000 * 1000)

/* What launchers tell their processes: the number of ranks. */
static const char *const size_variables[] = { "OMPI_COMM_WORLD_SIZE",
	"PMI_SIZE" };

bool optimfs_group_launched(void)
{
	for (size_t i = 0; i < sizeof(size_variables) / sizeof(*size_variables);
	     i++) {
		const char *n = getenv(size_variables[i]);

		if (n != NULL && atoi(n) > 1)
			return true;
	}
	return false;
}

/* What others ask. */

static void set_done(struct optimfs_group *w, int rank)
{
	pthread_mutex_lock(&w->lock);
	w->done[rank] = true;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
}

/* Let it go with let_share. */
static struct ofs_manifest *hold_share(struct optimfs_group *w, uint32_t number)
{
	uint32_t place = OFS_MANIFEST_PLACE(number);
	struct ofs_manifest *s = NULL;

	pthread_mutex_lock(&w->lock);
	if (place < w->nshares)
		s = w->share[place];
	while (s != NULL && s->number != number)
		s = s->older;
	if (s != NULL)
		s->answers++;
	pthread_mutex_unlock(&w->lock);
	return s;
}

static void let_share(struct optimfs_group *w, struct ofs_manifest *s)
{
	bool last;

	pthread_mutex_lock(&w->lock);
	last = --s->answers == 0 && s->dropped;
	pthread_mutex_unlock(&w->lock);
	if (last)
		ofs_manifest_free(s);
}

void ofs_group_put(struct optimfs_group *w, struct ofs_manifest *s)
{
	uint32_t place = OFS_MANIFEST_PLACE(s->number);

	pthread_mutex_lock(&w->lock);
	s->older = w->share[place];
	w->share[place] = s;
	pthread_mutex_unlock(&w->lock);
}

void ofs_group_drop(struct optimfs_group *w, struct ofs_manifest *s)
{
	struct ofs_manifest **at;
	bool idle;

	if (s == NULL)
		return;
	pthread_mutex_lock(&w->lock);
	at = &w->share[OFS_MANIFEST_PLACE(s->number)];
	while (*at != s)
		at = &(*at)->older;
	*at = s->older;
	s->dropped = true;
	idle = s->answers == 0;
	pthread_mutex_unlock(&w->lock);
	if (idle)
		ofs_manifest_free(s);
}

static int answer_renewal(struct optimfs_group *w, struct ofs_cursor *c,
    void *out, uint64_t want, struct optimfs_error *err)
{
	uint32_t number = ofs_cursor_le32(c);
	uint32_t place = OFS_MANIFEST_PLACE(number);
	struct ofs_renewal *r = NULL;

	pthread_mutex_lock(&w->lock);
	if (place < w->nshares)
		r = w->renewal[place];
	pthread_mutex_unlock(&w->lock);
	if (r != NULL)
		return ofs_renewal_answer(r, number, c, out, want, err);
	return optimfs_fail(err, EPROTO,
	    "OFS913 a request for what is not written");
}

/* Who has not followed a commit, or we have not. */
static int of_no_share(struct optimfs_group *w, uint32_t number,
    struct optimfs_error *err)
{
	uint32_t place = OFS_MANIFEST_PLACE(number);
	bool offered;

	pthread_mutex_lock(&w->lock);
	offered = place < w->nshares;
	pthread_mutex_unlock(&w->lock);
	if (offered)
		return optimfs_fail(err, ESTALE,
		    "OFS844 the checkpoint was committed, and this is about "
		    "another generation of it than is here: read it again");
	return optimfs_fail(err, EPROTO,
	    "OFS913 a request for what was not offered");
}

static int answer_of(struct ofs_manifest *s, int from, uint8_t kind,
    struct ofs_cursor *c, void *out, uint64_t want, struct optimfs_error *err)
{
	if (kind == OFS_WIRE_STAGE)
		return ofs_bulk_stage(s, from, c, out, want, err);
	return ofs_manifest_answer(s, kind, c, out, want, err);
}

static int answer(void *ctx, int from, const void *request, size_t n, void *out,
    uint64_t want, struct optimfs_error *err)
{
	struct optimfs_group *w = ctx;
	struct ofs_cursor c = ofs_cursor_of(request, n);
	uint8_t kind = ofs_cursor_u8(&c);
	struct ofs_manifest *s;
	uint32_t number;
	int ret;

	switch (kind) {
	case OFS_WIRE_DONE:
		set_done(w, from);
		return 0;
	case OFS_WIRE_CREW:
		return ofs_task_answer(w->crew, from, &c, err);
	case OFS_WIRE_TURN:
		return ofs_bulk_turn(w, from, &c, out, want, err);
	case OFS_WIRE_GIVE:
		return ofs_bulk_give(w, from, &c, err);
	case OFS_WIRE_RENEW:
		return answer_renewal(w, &c, out, want, err);
	}
	number = ofs_cursor_le32(&c);
	s = hold_share(w, number);
	if (s == NULL)
		return of_no_share(w, number, err);
	ret = answer_of(s, from, kind, &c, out, want, err);
	let_share(w, s);
	return ret;
}

/* Joining. */

struct optimfs_group *ofs_group_new(const struct ofs_group_ops *ops,
    unsigned timeout, struct optimfs_error *err)
{
	struct optimfs_group *w = calloc(1, sizeof(*w));
	struct ofs_group_config config = { timeout, answer, w };

	if (w == NULL) {
		optimfs_fail(err, ENOMEM, "out of memory");
		return NULL;
	}
	w->ops = ops;
	w->timeout = timeout;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->changed, NULL);
	w->w = ops->join(&config, err);
	if (w->w == NULL) {
		free(w);
		return NULL;
	}
	w->rank = ops->rank(w->w);
	w->size = ops->size(w->w);
	w->done = calloc((size_t)w->size, sizeof(*w->done));
	w->crew = ofs_task_new(w->size);
	if (w->done != NULL && w->crew != NULL)
		return w;
	optimfs_fail(err, ENOMEM, "out of memory");
	ops->leave(w->w);
	ofs_task_free(w->crew);
	free(w->done);
	free(w);
	return NULL;
}

void *ofs_group_load(const char *name, const char *symbol, int flags,
    char why[256])
{
	const char *dir = getenv("OPTIMFS_MODULES");
	void *module, *found;
	char path[4096];

	snprintf(path, sizeof(path), "%s/optimfs-%s.so",
	    dir != NULL ? dir : MODULE_DIR, name);
	module = dlopen(path, RTLD_NOW | flags);
	found = module == NULL ? NULL : dlsym(module, symbol);
	if (found == NULL)
		snprintf(why, 256, "%s", dlerror());
	return found;
}

/* The module's libraries look up each other's names: hence global. */
struct optimfs_group *optimfs_group_join(const char *transport,
    unsigned timeout, struct optimfs_error *err)
{
	const struct ofs_group_ops *ops;
	char why[256];

	ops = ofs_group_load(transport, OFS_GROUP_SYMBOL, RTLD_GLOBAL, why);
	if (ops == NULL)
		optimfs_fail(err, ENOSYS,
		    "OFS915 ranks (mpirun, transport=mpi, gather=nccl) need a "
		    "module, and %s; install it, or say -o transport=local",
		    why);
	else if (ops->version == OFS_GROUP_VERSION)
		return ofs_group_new(ops, timeout, err);
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

int ofs_group_blame(const struct optimfs_group *w, int rank,
    struct optimfs_error *err)
{
	return optimfs_fail_in(err, "rank %d (%s)", rank,
	    w->ops->host(w->w, rank));
}

int ofs_group_ask(const struct optimfs_group *w, int rank,
    const struct ofs_buf *request, void *out, uint64_t want,
    struct optimfs_error *err)
{
	struct ofs_ask ask = { .to = rank,
		.request = request->data,
		.nrequest = request->len,
		.want = want };
	int ret = 0;

	if (request->bad)
		return optimfs_fail(err, ENOMEM, "out of memory for a request");
	w->ops->ask(w->w, &ask, 1);
	if (ask.err.code != 0) {
		ofs_group_blame(w, rank, &ask.err);
		ret = optimfs_fail_as(err, ask.err.code, "%s", ask.err.text);
	} else if (want > 0) {
		memcpy(out, ask.answer, want);
	}
	w->ops->release(w->w, &ask, 1);
	return ret;
}

int ofs_group_vote(struct optimfs_group *w, const struct optimfs_error *own,
    bool blame, struct optimfs_error *err)
{
	struct ofs_said *said = calloc((size_t)w->size, sizeof(*said));
	struct ofs_buf b = { 0 };
	int ret = 0;

	ofs_wire_u32(&b, (uint32_t)own->code);
	ofs_wire_str(&b, own->code == 0 ? "" : own->text);
	if (said == NULL || b.bad)
		ret = optimfs_fail(err, ENOMEM, "out of memory");
	else
		ret = w->ops->exchange(w->w, b.data, b.len, said, err);
	for (int r = 0; r < w->size && ret == 0; r++) {
		struct ofs_cursor c = ofs_cursor_of(said[r].p, said[r].n);
		uint32_t code = ofs_cursor_le32(&c);
		const char *text = ofs_wire_take_str(&c);

		if (code == 0 && !c.bad)
			continue;
		ret = c.bad ? optimfs_fail(err, EPROTO,
				  "OFS913 what it said makes no sense")
			    : optimfs_fail_as(err, (int)code, "%s", text);
		if (blame || c.bad)
			ofs_group_blame(w, r, err);
	}
	for (int r = 0; said != NULL && r < w->size; r++)
		free(said[r].p);
	free(said);
	ofs_buf_fini(&b);
	return ret;
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
	ofs_buf_putc(&b, '\0');
	if (!b.bad)
		return (char *)b.data;
	ofs_buf_fini(&b);
	optimfs_fail(err, ENOMEM, "%s: out of memory", path);
	return NULL;
}

/* Sharing. */

struct ofs_manifest *ofs_group_share(struct optimfs_group *w, const char *path,
    struct optimfs_error *err)
{
	struct ofs_manifest *s = NULL;

	pthread_mutex_lock(&w->lock);
	for (uint32_t i = 0; i < w->nshares && s == NULL; i++)
		if (strcmp(w->share[i]->path, path) == 0)
			s = w->renewal[i] == NULL
			    ? w->share[i]
			    : ofs_renewal_share(w->renewal[i]);
	pthread_mutex_unlock(&w->lock);
	if (s == NULL)
		optimfs_fail(err, ENOENT, "%s: not offered to the other ranks",
		    path);
	return s;
}

struct ofs_renewal *ofs_group_renewal(struct optimfs_group *w, const char *path)
{
	struct ofs_renewal *r = NULL;

	pthread_mutex_lock(&w->lock);
	for (uint32_t i = 0; i < w->nshares && r == NULL; i++)
		if (strcmp(w->share[i]->path, path) == 0)
			r = w->renewal[i];
	pthread_mutex_unlock(&w->lock);
	return r;
}

/* Others may ask for it before we hear that all have it: so it is put in place
 * before the first word is said. */
static struct ofs_manifest *put_share(struct optimfs_group *w, const char *path,
    bool first, const struct optimfs_options *options,
    struct optimfs_error *err)
{
	struct ofs_manifest *s = ofs_manifest_new(w, path, first, options, err);
	struct ofs_renewal *r = NULL;

	if (s != NULL && options->rw && !options->scratch &&
	    (r = ofs_renewal_new(w, s, err)) == NULL) {
		ofs_manifest_free(s);
		s = NULL;
	}
	pthread_mutex_lock(&w->lock);
	if (s != NULL) {
		w->renewal[w->nshares] = r;
		s->number = w->nshares;
		w->share[w->nshares++] = s;
	}
	pthread_mutex_unlock(&w->lock);
	return s;
}

int ofs_group_offer(struct optimfs_group *w, const char *path, bool first,
    const struct optimfs_options *options, ofs_stage_open_fn *open,
    struct optimfs_error *err)
{
	static const struct optimfs_options none;
	struct optimfs_error own = { 0 };
	struct ofs_manifest *s;

	if (options == NULL)
		options = &none;
	if (w->nshares == OFS_MAX_SHARES)
		return optimfs_fail(err, ENFILE, "%s: too many checkpoints",
		    path);
	s = put_share(w, path, first, options, &own);
	if (options->rw && !options->scratch &&
	    ofs_manifest_begin(s, w, path, options, open, &own, err) == -1)
		return -1;
	if (s != NULL && ofs_manifest_look(s, &own) == -1)
		s = NULL;
	return ofs_manifest_agree(s, w, path, &own, NULL, err);
}

/* Leaving. */

static void tell_all(struct optimfs_group *w)
{
	static const uint8_t done = OFS_WIRE_DONE;
	struct ofs_ask *ask = calloc((size_t)w->size, sizeof(*ask));
	size_t n = 0;

	set_done(w, w->rank);
	if (ask == NULL)
		return;
	for (int r = 0; r < w->size; r++)
		if (r != w->rank && !w->ops->dead(w->w, r))
			ask[n++] = (struct ofs_ask){
				.to = r, .request = &done, .nrequest = 1
			};
	w->ops->ask(w->w, ask, n);
	w->ops->release(w->w, ask, n);
	free(ask);
}

static bool all_done(struct optimfs_group *w, const bool *worker)
{
	for (int r = 0; r < w->size; r++)
		if (worker[r] && !w->done[r] && !w->ops->dead(w->w, r))
			return false;
	return true;
}

static void wait_for_all(struct optimfs_group *w, const bool *worker)
{
	struct timespec until;

	pthread_mutex_lock(&w->lock);
	while (!all_done(w, worker)) {
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += LOOK_NS;
		if (until.tv_nsec >= 1000000000) {
			until.tv_nsec -= 1000000000;
			until.tv_sec++;
		}
		pthread_cond_timedwait(&w->changed, &w->lock, &until);
	}
	pthread_mutex_unlock(&w->lock);
}

void optimfs_group_leave(struct optimfs_group *w, const bool *worker)
{
	if (w == NULL)
		return;
	if (worker[w->rank])
		tell_all(w);
	wait_for_all(w, worker);
	for (uint32_t i = 0; i < w->nshares; i++)
		ofs_renewal_stop(w->renewal[i]);
	w->ops->leave(w->w);
	ofs_bulk_free(w->bulk); /* nobody is answered any more */
	ofs_task_free(w->crew);
	for (uint32_t i = 0; i < w->nshares; i++) {
		ofs_renewal_free(w->renewal[i]);
		while (w->share[i] != NULL)
			ofs_group_drop(w, w->share[i]);
	}
	pthread_cond_destroy(&w->changed);
	pthread_mutex_destroy(&w->lock);
	free(w->done);
	free(w);
}
