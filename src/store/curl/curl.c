/* curl.c - requests to servers, by libcurl */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "store/curl/curl.h"

#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/queue.h>
#include <unistd.h>

/* Connections in all. */
#define CONNECTIONS 64
/* One processor receives about 2 GB/s, and less with TLS. */
#define THREADS 4
/* Bytes that are worth a connection. The first of an index are not. */
#define LONG ((UINT64_C(1) << 20) + 1)
/* Less than this many bytes a second is silence. */
#define SLOWEST   1000L
#define REDIRECTS 5L
/* The SHA-256 of nothing, which S3 wants to be signed. */
#define NO_BODY \
 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* The requests of one call of perform. */
struct batch {
	size_t left;
	pthread_cond_t done;
};

/* One request, while libcurl has it. */
struct transfer {
	TAILQ_ENTRY(transfer) next;
	struct ofs_http_request *q;
	struct batch *batch;
	struct worker *worker;
	TAILQ_ENTRY(transfer) other; /* that waits for room */
	CURL *easy;
	struct curl_slist *headers;
	bool too_long, enough, is_paused;
	char why[CURL_ERROR_SIZE];
};

/* A thread, and its connections. */
struct worker {
	struct ofs_http_module *m;
	CURLM *multi;
	TAILQ_HEAD(, transfer) waiting;
	/* Used by the thread alone. */
	TAILQ_HEAD(transfers, transfer) paused;
	size_t load; /* requests that it has, with those that wait */
	bool has_room;
};

struct ofs_http_module {
	unsigned timeout, connections;
	char agent[64];
	/* Protects waiting, load and has_room of workers, and left of each
	 * batch. */
	pthread_mutex_t lock;
	struct worker worker[THREADS];
	size_t nworkers;
};

static bool is_content(const struct ofs_http_request *q)
{
	return q->status == 200 || q->status == 206;
}

/* Called for each line; that of a status begins another answer. */
static size_t take_header(char *p, size_t one, size_t n, void *ctx)
{
	struct transfer *t = ctx;
	struct ofs_buf *to = &t->q->headers;

	(void)one;
	if (n > 5 && memcmp(p, "HTTP/", 5) == 0)
		to->len = 0;
	ofs_buf_put(to, p, n);
	return to->bad ? 0 : n;
}

static size_t take_into(struct transfer *t, const char *p, size_t n)
{
	struct ofs_http_request *q = t->q;
	uint64_t room = q->n - q->got;

	t->too_long = n > room;
	if (n > room)
		n = (size_t)room;
	if (q->take != NULL)
		switch (q->take(q->take_ctx, q, p, n)) {
		case OFS_HTTP_TAKEN:
			break;
		case OFS_HTTP_LATER:
			t->is_paused = true;
			TAILQ_INSERT_TAIL(&t->worker->paused, t, other);
			return CURL_WRITEFUNC_PAUSE;
		case OFS_HTTP_NEVER:
			return 0;
		}
	else
		memcpy(q->into + q->got, p, n);
	q->got += n;
	return t->too_long ? 0 : n;
}

static size_t take_body(char *p, size_t one, size_t n, void *ctx)
{
	struct transfer *t = ctx;
	struct ofs_http_request *q = t->q;
	long status = 0;

	(void)one;
	curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
	q->status = (int)status;
	if (q->n > 0 && is_content(q))
		return take_into(t, p, n);
	ofs_buf_put(&q->body, p, n);
	/* of an error the beginning is enough */
	t->enough = q->body.bad && !is_content(q);
	t->too_long = q->body.bad && !t->enough;
	return q->body.bad ? 0 : n;
}

static void say_login(const struct transfer *t)
{
	const struct ofs_http_login *l = t->q->login;
	const struct ofs_http_signer *signer = t->q->signer;
	char text[100];

	if (l == NULL)
		return;
	if (l->bearer != NULL) {
		curl_easy_setopt(t->easy, CURLOPT_HTTPAUTH,
		    (long)CURLAUTH_BEARER);
		curl_easy_setopt(t->easy, CURLOPT_XOAUTH2_BEARER, l->bearer);
	}
	if (signer != NULL) {
		snprintf(text, sizeof(text), "aws:amz:%.60s:s3", l->region);
		curl_easy_setopt(t->easy, CURLOPT_AWS_SIGV4, text);
		curl_easy_setopt(t->easy, CURLOPT_USERNAME, signer->key);
		curl_easy_setopt(t->easy, CURLOPT_PASSWORD, signer->secret);
	}
	if (l->netrc)
		curl_easy_setopt(t->easy, CURLOPT_NETRC,
		    (long)CURL_NETRC_OPTIONAL);
	curl_easy_setopt(t->easy, CURLOPT_FOLLOWLOCATION,
	    l->redirects ? 1L : 0L);
}

static bool add_header(struct transfer *t, const char *line)
{
	struct curl_slist *more = curl_slist_append(t->headers, line);

	if (more != NULL)
		t->headers = more;
	return more != NULL;
}

static bool add_headers(struct transfer *t)
{
	const struct ofs_http_request *q = t->q;
	char token[8192];

	for (size_t i = 0; q->header != NULL && q->header[i] != NULL; i++)
		if (!add_header(t, q->header[i]))
			return false;
	snprintf(token, sizeof(token), "x-amz-content-sha256: %s",
	    q->digest != NULL ? q->digest : NO_BODY);
	if (q->signer != NULL && !add_header(t, token))
		return false;
	if (q->signer != NULL && q->login->requester_pays &&
	    !add_header(t, "x-amz-request-payer: requester"))
		return false;
	if (q->digest != NULL &&
	    !add_header(t, "Content-Type: application/octet-stream"))
		return false;
	if (q->signer != NULL && q->signer->session != NULL) {
		snprintf(token, sizeof(token), "x-amz-security-token: %s",
		    q->signer->session);
		if (!add_header(t, token))
			return false;
	}
	curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->headers);
	return true;
}

static void say_method(const struct transfer *t)
{
	const struct ofs_http_request *q = t->q;

	if (q->method == NULL)
		return;
	if (q->send != NULL) {
		curl_easy_setopt(t->easy, CURLOPT_POSTFIELDSIZE_LARGE,
		    (curl_off_t)q->nsend);
		curl_easy_setopt(t->easy, CURLOPT_POSTFIELDS, q->send);
	}
	curl_easy_setopt(t->easy, CURLOPT_CUSTOMREQUEST, q->method);
	/* A server that may refuse gets the bytes at once all the same. The header
	 * "Expect:", which is how to say that, libcurl 7.88 signs but does not
	 * send. */
	curl_easy_setopt(t->easy, CURLOPT_EXPECT_100_TIMEOUT_MS, 1L);
}

/* A server that uses TLS may not lead to one that does not. */
static void limit_protocols(const struct transfer *t)
{
	bool tls = strncasecmp(t->q->url, "http:", 5) != 0;

	/* libcurl would send keys without TLS to one that says neither */
	curl_easy_setopt(t->easy, CURLOPT_DEFAULT_PROTOCOL, "https");
	curl_easy_setopt(t->easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(t->easy, CURLOPT_REDIR_PROTOCOLS_STR,
	    tls ? "https" : "http,https");
	curl_easy_setopt(t->easy, CURLOPT_MAXREDIRS, REDIRECTS);
}

static void limit_time(const struct transfer *t, unsigned timeout)
{
	if (t->q->timeout != 0)
		curl_easy_setopt(t->easy, CURLOPT_TIMEOUT, (long)t->q->timeout);
	if (timeout == 0)
		return;
	curl_easy_setopt(t->easy, CURLOPT_CONNECTTIMEOUT, (long)timeout);
	curl_easy_setopt(t->easy, CURLOPT_LOW_SPEED_LIMIT, SLOWEST);
	curl_easy_setopt(t->easy, CURLOPT_LOW_SPEED_TIME, (long)timeout);
}

/* Small requests share a connection of HTTP/2. What is long gets one of its own:
 * a single one is slower than a network, by its window and the losses that all on
 * it wait for. */
static long version_of(const struct ofs_http_request *q)
{
	return q->n >= LONG || q->nsend >= LONG ? CURL_HTTP_VERSION_1_1
						: CURL_HTTP_VERSION_2TLS;
}

static bool prepare(const struct ofs_http_module *m, struct transfer *t)
{
	const struct ofs_http_request *q = t->q;
	const char *ca = q->login != NULL && q->login->ca != NULL
	    ? q->login->ca
	    : getenv("SSL_CERT_FILE");
	char range[64];

	t->easy = curl_easy_init();
	if (t->easy == NULL)
		return false;
	curl_easy_setopt(t->easy, CURLOPT_URL, q->url);
	curl_easy_setopt(t->easy, CURLOPT_PRIVATE, t);
	curl_easy_setopt(t->easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(t->easy, CURLOPT_USERAGENT, m->agent);
	curl_easy_setopt(t->easy, CURLOPT_ERRORBUFFER, t->why);
	curl_easy_setopt(t->easy, CURLOPT_HEADERFUNCTION, take_header);
	curl_easy_setopt(t->easy, CURLOPT_HEADERDATA, t);
	curl_easy_setopt(t->easy, CURLOPT_WRITEFUNCTION, take_body);
	curl_easy_setopt(t->easy, CURLOPT_WRITEDATA, t);
	curl_easy_setopt(t->easy, CURLOPT_PATH_AS_IS, 1L);
	curl_easy_setopt(t->easy, CURLOPT_HTTP_VERSION, version_of(q));
	curl_easy_setopt(t->easy, CURLOPT_BUFFERSIZE, 256L << 10);
	if (ca != NULL)
		curl_easy_setopt(t->easy, CURLOPT_CAINFO, ca);
	limit_protocols(t);
	limit_time(t, m->timeout);
	say_login(t);
	say_method(t);
	if (q->direct)
		curl_easy_setopt(t->easy, CURLOPT_NOPROXY, "*");
	if (q->n > 0) {
		snprintf(range, sizeof(range), "%llu-%llu",
		    (unsigned long long)q->first,
		    (unsigned long long)(q->first + q->n - 1));
		curl_easy_setopt(t->easy, CURLOPT_RANGE, range);
	}
	return add_headers(t);
}

static enum ofs_http_end end_of(const struct transfer *t, CURLcode code)
{
	switch (code) {
	case CURLE_OK:
		return OFS_HTTP_WHOLE;
	case CURLE_OPERATION_TIMEDOUT:
		return OFS_HTTP_LATE;
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_RESOLVE_PROXY:
	case CURLE_COULDNT_CONNECT:
	case CURLE_SSL_CONNECT_ERROR:
		return OFS_HTTP_UNREACHED;
	case CURLE_UNSUPPORTED_PROTOCOL:
	case CURLE_URL_MALFORMAT:
	case CURLE_TOO_MANY_REDIRECTS:
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_CIPHER:
	case CURLE_OUT_OF_MEMORY:
		return OFS_HTTP_REFUSED;
	default:
		return t->enough  ? OFS_HTTP_WHOLE
		    : t->too_long ? OFS_HTTP_TOO_LONG
				  : OFS_HTTP_FAILED;
	}
}

static void keep_result(struct transfer *t, CURLcode code)
{
	struct ofs_http_request *q = t->q;
	const char *url = NULL;
	long status = 0, redirects = 0;
	size_t n;

	if (t->easy != NULL) {
		curl_easy_getinfo(t->easy, CURLINFO_REDIRECT_COUNT, &redirects);
		curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
		curl_easy_getinfo(t->easy, CURLINFO_EFFECTIVE_URL, &url);
	}
	q->status = (int)status;
	q->end = end_of(t, code);
	n = url == NULL ? 0 : strlen(url);
	q->is_dir = n > 0 && url[n - 1] == '/';
	q->location = redirects > 0 && n > 0 ? strdup(url) : NULL;
	snprintf(q->why, sizeof(q->why), "%.200s%.54s",
	    t->why[0] != '\0' ? t->why : curl_easy_strerror(code),
	    strstr(t->why, "wrong version number") != NULL
		? " (does the server have no TLS? http:// is without)"
		: "");
}

static void end_pause(struct worker *w, struct transfer *t)
{
	if (t->is_paused)
		TAILQ_REMOVE(&w->paused, t, other);
	t->is_paused = false;
}

static void finish(struct worker *w, struct transfer *t, CURLcode code)
{
	struct ofs_http_module *m = w->m;
	struct batch *b = t->batch;

	end_pause(w, t);
	keep_result(t, code);
	curl_easy_cleanup(t->easy);
	t->easy = NULL;
	curl_slist_free_all(t->headers);
	pthread_mutex_lock(&m->lock);
	w->load--;
	if (--b->left == 0)
		pthread_cond_signal(&b->done);
	pthread_mutex_unlock(&m->lock);
}

/* The threads of the module. */

static void begin_waiting(struct worker *w)
{
	struct ofs_http_module *m = w->m;
	struct transfer *t;

	for (;;) {
		pthread_mutex_lock(&m->lock);
		t = TAILQ_FIRST(&w->waiting);
		if (t != NULL)
			TAILQ_REMOVE(&w->waiting, t, next);
		pthread_mutex_unlock(&m->lock);
		if (t == NULL)
			return;
		if (!prepare(m, t) ||
		    curl_multi_add_handle(w->multi, t->easy) != CURLM_OK)
			finish(w, t, CURLE_OUT_OF_MEMORY);
	}
}

/* Those that are refused again go to the end of the list. What libcurl has of an
 * answer that pauses, it copies, each time. */
static void resume(struct worker *w)
{
	struct transfer *t, *last = TAILQ_LAST(&w->paused, transfers);
	bool has_room;

	pthread_mutex_lock(&w->m->lock);
	has_room = w->has_room;
	w->has_room = false;
	pthread_mutex_unlock(&w->m->lock);
	if (!has_room || last == NULL)
		return;
	do {
		t = TAILQ_FIRST(&w->paused);
		TAILQ_REMOVE(&w->paused, t, other);
		TAILQ_INSERT_TAIL(&w->paused, t, other);
		if (t->q->take(t->q->take_ctx, t->q, NULL, 0) !=
		    OFS_HTTP_LATER) {
			end_pause(w, t);
			curl_easy_pause(t->easy, CURLPAUSE_CONT);
		}
	} while (t != last);
}

static void go_on(struct ofs_http_module *m)
{
	pthread_mutex_lock(&m->lock);
	for (size_t i = 0; i < m->nworkers; i++)
		m->worker[i].has_room = true;
	pthread_mutex_unlock(&m->lock);
	for (size_t i = 0; i < m->nworkers; i++)
		curl_multi_wakeup(m->worker[i].multi);
}

static void end_complete(struct worker *w)
{
	struct transfer *t;
	CURLMsg *msg;
	CURLcode code;
	int left;

	while ((msg = curl_multi_info_read(w->multi, &left)) != NULL) {
		if (msg->msg != CURLMSG_DONE)
			continue;
		code = msg->data.result;
		curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, &t);
		curl_multi_remove_handle(w->multi, t->easy);
		finish(w, t, code);
	}
}

static void *serve(void *ctx)
{
	struct worker *w = ctx;
	int running;

	for (;;) {
		begin_waiting(w);
		resume(w);
		curl_multi_perform(w->multi, &running);
		end_complete(w);
		curl_multi_poll(w->multi, NULL, 0, 60000, NULL);
	}
	return NULL;
}

/* The one with the least to do. Of several the first, which is the most likely to
 * have a connection that can be used again. The lock is held. */
static struct worker *idlest(struct ofs_http_module *m)
{
	struct worker *w = m->worker;

	for (size_t i = 1; i < m->nworkers; i++)
		if (m->worker[i].load < w->load)
			w = &m->worker[i];
	return w;
}

/* The lock is held. */
static void enqueue(struct ofs_http_module *m, struct transfer *t)
{
	struct worker *w = idlest(m);

	t->q->status = 0;
	t->q->got = 0;
	t->q->location = NULL;
	t->q->headers.limit = OFS_HTTP_HEADERS_MAX;
	t->worker = w;
	w->load++;
	TAILQ_INSERT_TAIL(&w->waiting, t, next);
}

static void perform(struct ofs_http_module *m, struct ofs_http_request *q,
    size_t n)
{
	struct transfer *t = calloc(n, sizeof(*t));
	struct batch b = { .left = n };

	for (size_t i = 0; i < n && t == NULL; i++) {
		q[i].end = OFS_HTTP_REFUSED;
		snprintf(q[i].why, sizeof(q[i].why), "out of memory");
	}
	if (t == NULL || n == 0) {
		free(t);
		return;
	}
	pthread_cond_init(&b.done, NULL);
	pthread_mutex_lock(&m->lock);
	for (size_t i = 0; i < n; i++) {
		t[i].q = &q[i];
		t[i].batch = &b;
		enqueue(m, &t[i]);
	}
	for (size_t i = 0; i < m->nworkers; i++)
		if (!TAILQ_EMPTY(&m->worker[i].waiting))
			curl_multi_wakeup(m->worker[i].multi);
	while (b.left > 0)
		pthread_cond_wait(&b.done, &m->lock);
	pthread_mutex_unlock(&m->lock);
	pthread_cond_destroy(&b.done);
	free(t);
}

/* 0 or an errno value. n: how many there will be. */
static int hire(struct ofs_http_module *m, size_t n)
{
	struct worker *w = &m->worker[m->nworkers];
	pthread_t thread;
	int code;

	w->m = m;
	TAILQ_INIT(&w->waiting);
	TAILQ_INIT(&w->paused);
	w->multi = curl_multi_init();
	if (w->multi == NULL)
		return ENOMEM;
	curl_multi_setopt(w->multi, CURLMOPT_MAX_HOST_CONNECTIONS,
	    (long)((m->connections + n - 1) / n));
	curl_multi_setopt(w->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS,
	    (long)(CONNECTIONS / n));
	code = pthread_create(&thread, NULL, serve, w);
	if (code == 0)
		pthread_detach(thread);
	else
		curl_multi_cleanup(w->multi);
	m->nworkers += code == 0;
	return code;
}

static size_t threads(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n < 1 ? 1 : n > THREADS ? THREADS : (size_t)n;
}

static struct ofs_http_module *start(const struct ofs_http_config *config,
    struct optimfs_error *err)
{
	struct ofs_http_module *m = calloc(1, sizeof(*m));
	size_t n = threads();
	int code = 0;

	if (m == NULL) {
		optimfs_fail(err, ENOMEM, "OFS443 out of memory");
		return NULL;
	}
	m->timeout = config->timeout;
	m->connections = config->connections;
	snprintf(m->agent, sizeof(m->agent), "%s", config->agent);
	pthread_mutex_init(&m->lock, NULL);
	while (m->nworkers < n && code == 0)
		code = hire(m, n);
	if (m->nworkers > 0)
		return m;
	if (code == ENOMEM)
		optimfs_fail(err, ENOMEM, "OFS443 out of memory");
	else
		optimfs_fail(err, EAGAIN, "cannot start a thread");
	pthread_mutex_destroy(&m->lock);
	free(m);
	return NULL;
}

static struct ofs_http_module *open_module(const struct ofs_http_config *config,
    struct optimfs_error *err)
{
	if (curl_global_init(CURL_GLOBAL_DEFAULT) == 0)
		return start(config, err);
	optimfs_fail(err, ENOSYS, "OFS921 libcurl cannot be used");
	return NULL;
}

__attribute__((visibility("default")))
const struct ofs_http_ops optimfs_http_module = {
	.version = OFS_HTTP_VERSION,
	.name = "libcurl",
	.open = open_module,
	.perform = perform,
	.parse = ofs_curl_parse,
	.go_on = go_on,
};
