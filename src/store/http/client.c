/* client.c - requests that are repeated until they succeed, or never will */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "store/http/client.h"

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/module.h"
#include "store/http/blocks.h"
#include "store/http/texts.h"

/* Before a server is asked again, in milliseconds. */
#define WAIT_FIRST 200
#define WAIT_MOST  8000
/* A server that always sends a little and then fails makes no progress. */
#define PROGRESS (UINT64_C(64) << 10)
/* For a server that was never reached, in milliseconds. */
#define BRIEF 3000
/* With no timeout. */
#define TRIES_MOST 20u
/* Of an error in place of a range. S3 repeats a token that has expired. */
#define ERROR_MOST ((size_t)16 << 10)

/* By default. */
#define REQUESTS 16
#define RANGE    (UINT64_C(8) << 20)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ofs_http *the_client;
static pid_t the_process;

static int load(struct ofs_http *h, struct optimfs_error *err)
{
	const struct ofs_http_config config = {
		.timeout = h->limits.timeout,
		.connections = h->limits.requests,
		.agent = "optimfs/" PACKAGE_VERSION,
	};
	char why[256];

	h->ops = ofs_module_load("http", OFS_HTTP_SYMBOL, RTLD_LOCAL, why);
	if (h->ops == NULL)
		return optimfs_fail(err, ENOSYS,
		    "OFS921 an address needs a module, and %s; install it "
		    "(Debian: optimfs-http), or download the files",
		    why);
	if (h->ops->version != OFS_HTTP_VERSION)
		return optimfs_fail(err, ENOSYS,
		    "OFS921 the module for addresses is of another version");
	h->m = h->ops->open(&config, err);
	return h->m == NULL ? -1 : 0;
}

static struct ofs_http_limits with_defaults(struct ofs_http_limits l)
{
	if (l.requests == 0)
		l.requests = REQUESTS;
	if (l.requests > OFS_HTTP_REQUESTS_MOST)
		l.requests = OFS_HTTP_REQUESTS_MOST;
	if (l.range == 0)
		l.range = RANGE;
	/* what is kept on a disk is in one range */
	l.range = l.range < OFS_HTTP_BLOCK ? OFS_HTTP_BLOCK
					   : l.range - l.range % OFS_HTTP_BLOCK;
	return l;
}

/* The threads of the module do not survive a fork. What it had stays. */
const struct ofs_http *ofs_http_client(const struct ofs_http_limits *limits,
    struct optimfs_error *err)
{
	struct ofs_http *h = NULL;

	pthread_mutex_lock(&lock);
	if (the_client != NULL && the_process == getpid()) {
		h = the_client;
	} else {
		h = ofs_alloc(1, sizeof(*h), err);
		if (h != NULL)
			h->limits = with_defaults(*limits);
		if (h != NULL && load(h, err) == -1) {
			free(h);
			h = NULL;
		}
		if (h != NULL) {
			h->before = the_client;
			the_client = h;
			the_process = getpid();
		}
	}
	pthread_mutex_unlock(&lock);
	return h;
}

/* Where files are that are always redirected to the same place: the addresses of
 * the Hub, each of which would otherwise be asked for every range, and which counts
 * what it is asked. A place that does not have the file any more, because the
 * signature in it has expired, is forgotten. */
#define PLACES 256

static struct {
	char *url, *where;
} places[PLACES];
static pthread_mutex_t places_lock = PTHREAD_MUTEX_INITIALIZER;

static size_t slot_of(const char *url)
{
	uint64_t h = 5381;

	while (*url != '\0')
		h = h * 33 + (unsigned char)*url++;
	return (size_t)(h % PLACES);
}

/* malloc'ed; NULL: it is not known. */
static char *place_of(const char *url)
{
	size_t i = slot_of(url);
	char *where = NULL;

	pthread_mutex_lock(&places_lock);
	if (places[i].url != NULL && strcmp(places[i].url, url) == 0)
		where = strdup(places[i].where);
	pthread_mutex_unlock(&places_lock);
	return where;
}

/* where is not the caller's any more; NULL: it is forgotten. */
static void set_place(const char *url, char *where)
{
	size_t i = slot_of(url);
	char *copy = where == NULL ? NULL : strdup(url);

	pthread_mutex_lock(&places_lock);
	if (copy != NULL ||
	    (places[i].url != NULL && strcmp(places[i].url, url) == 0)) {
		free(places[i].url);
		free(places[i].where);
		places[i].url = copy;
		places[i].where = copy == NULL ? NULL : where;
	}
	if (copy == NULL)
		free(where);
	pthread_mutex_unlock(&places_lock);
}

/* Is it at another server? One that is asked with the token again does not give
 * its files without. */
static bool is_elsewhere(const char *url, const char *where)
{
	const char *host = strstr(url, "://");
	size_t n = host == NULL ? 0 : (size_t)(host - url) + 3;

	n += strcspn(url + n, "/");
	return strncasecmp(url, where, n) != 0 ||
	    strchr("/?#", where[n]) == NULL;
}

/* A request on its way, perhaps not for the first time. */
struct attempt {
	const struct ofs_http *h;
	struct ofs_http_get *g;
	struct ofs_http_request q;
	const char *header[4];
	char match[200], accept[200];
	uint64_t have; /* bytes of g that have come */
	bool again, renewed;
	/* Of an answer whose bytes are taken as they come: what it says, and
	 * that nobody wants more. */
	struct ofs_http_version is;
	bool begun, enough;
	char *place; /* that is asked in place of the URL; NULL: the URL is */
};

/* Of listings each page has its own. */
static bool has_place(const struct ofs_http_get *g)
{
	return g->n > 0 && g->login != NULL && g->login->stable;
}

/* Is it an answer to what was asked? Its end is not known yet. */
static bool begins_well(struct attempt *a, const struct ofs_http_request *q)
{
	struct ofs_http_get *g = a->g;
	struct ofs_http_answer w;

	ofs_http_headers(q->headers.data, q->headers.len,
	    ofs_now_ns() / 1000000000, &w);
	if (q->status == 200)
		w.is.size = w.length;
	a->is = w.is;
	if (g->is != NULL && !ofs_http_same(g->is, &w.is))
		return false;
	if (q->status == 200)
		return q->first == 0 && w.length <= q->n;
	return w.first == q->first && w.last >= w.first &&
	    w.last < q->first + q->n;
}

/* What comes again after a failure was taken before. */
static enum ofs_http_take pass_on(void *ctx, const struct ofs_http_request *q,
    const void *p, size_t n)
{
	struct attempt *a = ctx;
	struct ofs_http_get *g = a->g;
	uint64_t at = q->first - g->first + q->got;
	size_t had = g->taken - at < n ? (size_t)(g->taken - at) : n;
	enum ofs_http_take done;

	if (at > g->taken || (!a->begun && !begins_well(a, q)))
		return OFS_HTTP_NEVER;
	a->begun = true;
	if (n > 0 && had == n)
		return OFS_HTTP_TAKEN;
	done = g->take(g->ctx, &a->is, n == 0 ? NULL : (const uint8_t *)p + had,
	    n - had);
	if (done == OFS_HTTP_TAKEN)
		g->taken += n - had;
	a->enough = done == OFS_HTTP_NEVER;
	return done;
}

static void ask(struct attempt *a)
{
	/* no token for a place that the server has named */
	static const struct ofs_http_login nobody = { .redirects = true };
	struct ofs_http_get *g = a->g;
	size_t n = 0;

	a->begun = false;
	free(a->place);
	a->place = has_place(g) ? place_of(g->url) : NULL;
	a->q = (struct ofs_http_request){
		.url = a->place != NULL ? a->place : g->url,
		.header = a->header,
		.login = a->place != NULL ? &nobody : g->login,
		.signer = g->login == NULL || g->login->signer == NULL
		    ? NULL
		    : g->login->signer(),
		.first = g->first + a->have,
		.n = g->n - a->have,
		.into = g->n == 0 || g->take != NULL ? NULL : g->into + a->have,
		.take = g->take == NULL ? NULL : pass_on,
		.take_ctx = a,
		.body = { .limit = g->n == 0 ? g->body.limit : ERROR_MOST },
	};
	if (g->accept != NULL) {
		snprintf(a->accept, sizeof(a->accept), "Accept: %s", g->accept);
		a->header[n++] = a->accept;
	}
	if (g->is != NULL && g->is->etag[0] != '\0') {
		snprintf(a->match, sizeof(a->match), "If-Match: %s",
		    g->is->etag);
		a->header[n++] = a->match;
	}
	/* what is decoded on the way has other offsets */
	a->header[n++] = "Accept-Encoding: identity";
	a->header[n] = NULL;
}

/* Judging an answer: 0: it is good; 1: ask again, for the reason in err; -1. */

static int changed(const struct ofs_http_get *g, struct optimfs_error *err)
{
	return optimfs_fail(err, ESTALE,
	    "OFS751 %s: it was replaced on the server since; open or mount the "
	    "checkpoint again",
	    g->name);
}

static int no_answer(const struct attempt *a, int code, const char *why,
    struct optimfs_error *err)
{
	optimfs_fail(err, code, "OFS922 %s: %s", a->g->name, why);
	return 1;
}

/* Keys that have expired are replaced once. */
static int judge_keys(struct attempt *a, struct optimfs_error *err)
{
	char code[OFS_HTTP_CODE];

	if (a->q.signer == NULL || a->renewed ||
	    !ofs_http_said(a->h, &a->q.body, code) || !ofs_http_expired(code))
		return 0;
	a->renewed = true;
	if (a->g->login->renew(a->q.signer, err) == -1)
		return -1;
	/* stays if there is no time to ask again */
	optimfs_fail(err, EACCES, "OFS923 %s: the keys have expired",
	    a->g->name);
	return 1;
}

struct ofs_http_unsigned ofs_http_unsigned(const struct ofs_http_request *q)
{
	struct ofs_http_unsigned u = { "" };

	if (q->signer == NULL && q->login != NULL && q->login->missing != NULL)
		snprintf(u.text, sizeof(u.text), " (%.190s)",
		    q->login->missing());
	return u;
}

bool ofs_http_other_region(const struct ofs_http_login *login,
    const struct ofs_http_answer *answer, const char *name,
    struct optimfs_error *err)
{
	if (login == NULL || login->region == NULL ||
	    answer->region[0] == '\0' ||
	    strcmp(answer->region, login->region) == 0)
		return false;
	optimfs_fail(err, EINVAL,
	    "OFS923 %s: the bucket is in another region: set AWS_REGION=%s",
	    name, answer->region);
	return true;
}

/* Will there be an answer only when nobody waits for it any more? */
static bool is_too_late(const struct attempt *a)
{
	uint64_t timeout = a->h->limits.timeout, s = a->g->answer.retry_after;

	return timeout != 0 && s != OFS_HTTP_UNTOLD && s >= timeout;
}

static int wrong(const struct ofs_http_get *g, const char *what,
    struct optimfs_error *err)
{
	return optimfs_fail(err, EIO, "OFS924 %s: %s", g->name, what);
}

static int no_lists(const struct ofs_http_get *g, struct optimfs_error *err)
{
	return wrong(g, "the server sends no lists of segments", err);
}

static int judge_status(struct attempt *a, struct optimfs_error *err)
{
	const struct ofs_http_get *g = a->g;
	char why[160], code[OFS_HTTP_CODE];
	int ret = a->q.status / 100 == 4 ? judge_keys(a, err) : 0;
	bool said;

	if (ret != 0)
		return ret;
	switch (a->q.status) {
	case 401:
	case 403:
		return optimfs_fail(err, EACCES,
		    "OFS923 %s: not allowed (HTTP %d): the server wants to "
		    "know who asks, or you may not read this%s",
		    g->name, a->q.status, ofs_http_unsigned(&a->q).text);
	case 404:
	case 410:
		return g->is == NULL
		    ? optimfs_fail(err, ENOENT,
			  "OFS019 %s: the server has no such file or "
			  "directory",
			  g->name)
		    : optimfs_fail(err, EIO,
			  "OFS754 %s was there when opened and has been "
			  "removed",
			  g->name);
	case 412:
		return changed(g, err);
	case 416:
		return g->is == NULL ? optimfs_fail(err, EIO,
					   "OFS924 %s: no such range", g->name)
				     : changed(g, err);
	}
	if ((a->q.status == 400 || a->q.status / 100 == 3) &&
	    ofs_http_other_region(g->login, &g->answer, g->name, err))
		return -1;
	said = a->q.signer != NULL && ofs_http_said(a->h, &a->q.body, code);
	snprintf(why, sizeof(why), "the server answers HTTP %d%s%.60s",
	    a->q.status, said ? " " : "", said ? code : "");
	if (is_too_late(a))
		snprintf(why, sizeof(why),
		    "the server answers HTTP %d: not before %" PRIu64
		    " s from now, which is more than timeout=",
		    a->q.status, g->answer.retry_after);
	if (a->q.status == 408 || a->q.status == 425 || a->q.status == 429 ||
	    (a->q.status >= 500 && a->q.status != 501 && a->q.status != 505))
		return no_answer(a, EIO, why, err);
	if (g->list)
		return no_lists(g, err);
	no_answer(a, EIO, why, err);
	return -1;
}

/* Bytes [first, last] of the file came, but those asked for begin at first and
 * end at end. */
static int judge_range(struct attempt *a, struct optimfs_error *err)
{
	const struct ofs_http_get *g = a->g;
	const struct ofs_http_answer *w = &g->answer;
	uint64_t first = a->q.first, end = first + a->q.n;

	if (w->first != first || w->last < first || w->last >= end)
		return wrong(g, "the server sends another range", err);
	if (a->q.end == OFS_HTTP_TOO_LONG || a->q.got > w->last - first + 1)
		return wrong(g, "the server sends more than it says", err);
	if (a->q.end != OFS_HTTP_WHOLE)
		return no_answer(a, a->q.end == OFS_HTTP_LATE ? ETIMEDOUT : EIO,
		    a->q.why, err);
	if (a->q.got < w->last - first + 1)
		return no_answer(a, EIO, "the answer is cut off", err);
	if (w->last + 1 < end && g->is == NULL)
		return 0;
	return w->last + 1 < end
	    ? no_answer(a, EIO, "the server sends less than asked for", err)
	    : 0;
}

/* The whole file in place of a range of it. */
static int judge_all(struct attempt *a, struct optimfs_error *err)
{
	const struct ofs_http_get *g = a->g;
	const struct ofs_http_answer *w = &g->answer;

	if (a->q.first != 0 || w->length > a->q.n ||
	    a->q.end == OFS_HTTP_TOO_LONG)
		return wrong(g,
		    "the server does not send ranges of a file, which reading "
		    "needs: download the files",
		    err);
	if (a->q.end != OFS_HTTP_WHOLE)
		return no_answer(a, EIO, a->q.why, err);
	return a->q.got == a->q.n || g->is == NULL
	    ? 0
	    : no_answer(a, EIO, "the answer is cut off", err);
}

static int judge_content(struct attempt *a, struct optimfs_error *err)
{
	struct ofs_http_get *g = a->g;

	if (g->n > 0 && g->answer.is_dir)
		return optimfs_fail(err, ENOENT, "OFS019 %s: a directory",
		    g->name);
	if (g->list && (a->q.status != 206 || !g->answer.has_lists))
		return no_lists(g, err);
	/* it is no part, whatever it says */
	if (a->q.status == 200) {
		g->answer.first = g->answer.last = OFS_HTTP_UNTOLD;
		g->answer.is.size = g->answer.length;
	}
	if (g->is != NULL && !ofs_http_same(g->is, &g->answer.is))
		return changed(g, err);
	if (g->n > 0)
		return a->q.status == 206 ? judge_range(a, err)
					  : judge_all(a, err);
	if (a->q.end == OFS_HTTP_TOO_LONG)
		return wrong(g, "the answer is too long", err);
	return a->q.end == OFS_HTTP_WHOLE ? 0
					  : no_answer(a, EIO, a->q.why, err);
}

static int judge(struct attempt *a, struct optimfs_error *err)
{
	struct ofs_http_get *g = a->g;
	const struct ofs_http_request *q = &a->q;

	ofs_http_headers(q->headers.data, q->headers.len,
	    ofs_now_ns() / 1000000000, &g->answer);
	g->answer.is_dir = q->is_dir;
	if (q->end == OFS_HTTP_REFUSED) {
		no_answer(a, EIO, q->why, err);
		return -1;
	}
	if (q->status == 200 || q->status == 206)
		return judge_content(a, err);
	/* an empty file has no range */
	if (q->status == 416 && g->is == NULL && g->answer.is.size == 0)
		return 0;
	if (q->end != OFS_HTTP_WHOLE || q->status == 0)
		return no_answer(a, q->end == OFS_HTTP_LATE ? ETIMEDOUT : EIO,
		    q->why, err);
	return judge_status(a, err);
}

/* Keeps the place of a file, after the answer was judged. true: it was asked for at
 * a place that was kept, and is not there: the URL says where it is now. */
static bool settle_place(struct attempt *a, int judged)
{
	bool good = judged == 0 ||
	    (judged == 1 && (a->q.status == 200 || a->q.status == 206));

	if (good && a->q.location != NULL && has_place(a->g) &&
	    is_elsewhere(a->g->url, a->q.location)) {
		set_place(a->g->url, a->q.location);
		a->q.location = NULL;
	}
	free(a->q.location);
	a->q.location = NULL;
	if (good || a->place == NULL)
		return false;
	set_place(a->g->url, NULL);
	return true;
}

/* Takes what came; returns the number of bytes. */
static uint64_t settle(struct attempt *a, struct ofs_http_counters *count)
{
	struct ofs_http_get *g = a->g;
	uint64_t got = a->q.got + a->q.body.len;
	int ret = judge(a, &g->err);

	a->again = (settle_place(a, ret) || ret == 1) && !g->once && !a->enough;
	if (ret == 0)
		g->err.code = 0;
	/* the next attempt goes on where this one ended, if that was right */
	if (ret == 1 && a->q.status == 206 && g->answer.first == a->q.first)
		a->have += a->q.got;
	if (ret == 0 && g->n == 0)
		g->body = a->q.body;
	else
		ofs_buf_fini(&a->q.body);
	ofs_buf_fini(&a->q.headers);
	atomic_fetch_add(&count->requests, 1);
	atomic_fetch_add(&count->bytes, got);
	atomic_fetch_add(&count->answers, a->q.status != 0);
	return got;
}

static uint64_t round_of(const struct ofs_http *h, struct attempt **todo,
    size_t n, struct ofs_http_counters *count)
{
	struct ofs_http_request *q = calloc(n, sizeof(*q));
	uint64_t came = 0;

	for (size_t i = 0; i < n; i++) {
		ask(todo[i]);
		if (q == NULL) {
			ofs_no_memory(&todo[i]->g->err);
			todo[i]->again = false;
		}
	}
	if (q == NULL)
		return 0;
	for (size_t i = 0; i < n; i++)
		q[i] = todo[i]->q;
	h->ops->perform(h->m, q, n);
	for (size_t i = 0; i < n; i++) {
		todo[i]->q = q[i];
		came += settle(todo[i], count);
	}
	free(q);
	return came;
}

/* Exponential, with a part that differs between processes, in milliseconds. */
static int64_t patience(unsigned tries)
{
	int64_t ms = tries < 6 ? WAIT_FIRST << tries : WAIT_MOST;

	if (ms > WAIT_MOST)
		ms = WAIT_MOST;
	return ms / 2 + (int64_t)(ofs_clock_ns() / 1000 % (ms / 2));
}

static void sleep_ms(int64_t ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000 };

	while (nanosleep(&t, &t) == -1 && errno == EINTR)
		;
}

struct ofs_http_pace ofs_http_pace(const struct ofs_http *h)
{
	return (struct ofs_http_pace){ h, .since = ofs_clock_ms() };
}

void ofs_http_told(struct ofs_http_pace *p,
    const struct ofs_http_answer *answer)
{
	uint64_t s = answer->retry_after;

	if (s < INT32_MAX && (int64_t)s * 1000 > p->told)
		p->told = (int64_t)s * 1000;
}

bool ofs_http_wait(struct ofs_http_pace *p, bool moved)
{
	int64_t ms, most;

	if (moved) {
		p->since = ofs_clock_ms();
		p->tries = 0;
	}
	ms = patience(p->tries++);
	if (ms < p->told)
		ms = p->told;
	p->told = 0;
	most = (int64_t)p->h->limits.timeout * 1000;
	if (p->brief && (most == 0 || most > BRIEF))
		most = BRIEF;
	if (most == 0 ? p->tries > TRIES_MOST
		      : ofs_clock_ms() + ms - p->since > most)
		return false;
	sleep_ms(ms);
	return true;
}

static size_t keep_again(struct attempt **todo, size_t n)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++)
		if (todo[i]->again)
			todo[kept++] = todo[i];
	return kept;
}

static void repeat(const struct ofs_http *h, struct attempt **todo, size_t n,
    struct ofs_http_counters *count)
{
	struct ofs_http_pace pace = ofs_http_pace(h);

	for (;;) {
		uint64_t came = round_of(h, todo, n, count);
		size_t left = keep_again(todo, n);

		if (left == 0)
			return;
		pace.brief = atomic_load(&count->answers) == 0;
		for (size_t i = 0; i < left; i++) {
			ofs_http_told(&pace, &todo[i]->g->answer);
			pace.brief &= todo[i]->q.end == OFS_HTTP_UNREACHED;
		}
		if (!ofs_http_wait(&pace, left < n || came >= PROGRESS))
			return;
		n = left;
		atomic_fetch_add(&count->retries, n);
	}
}

int ofs_http_get(const struct ofs_http *h, struct ofs_http_counters *count,
    struct ofs_http_get *g, size_t n)
{
	struct attempt *a = calloc(n + 1, sizeof(*a));
	struct attempt **todo = calloc(n + 1, sizeof(*todo));
	int ret = 0;

	for (size_t i = 0; i < n; i++) {
		if (a == NULL || todo == NULL) {
			ofs_no_memory(&g[i].err);
			continue;
		}
		a[i].h = h;
		a[i].g = &g[i];
		todo[i] = &a[i];
	}
	if (a != NULL && todo != NULL && n > 0)
		repeat(h, todo, n, count);
	for (size_t i = 0; a != NULL && i < n; i++)
		free(a[i].place);
	free(a);
	free(todo);
	for (size_t i = 0; i < n; i++)
		if (g[i].err.code != 0)
			ret = -1;
	return ret;
}
