/* send.c - requests that change what a server has */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "store/http/send.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/sha256.h"
#include "store/http/texts.h"

#define BODY_MOST ((size_t)64 << 10)

/* What was damaged on its way, came too slowly, or was not for now. */
static bool may_work(int status, const char *code)
{
	static const char *const codes[] = { "RequestTimeout", "BadDigest",
		"XAmzContentSHA256Mismatch", "IncompleteBody", "SlowDown",
		"InternalError" };

	if (status == 408 || status == 425 || status == 429 || status >= 500)
		return status != 501 && status != 505;
	for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++)
		if (strcmp(code, codes[i]) == 0)
			return true;
	return false;
}

/* 1: to be sent again, for the reason in err. */
static int judge(const struct ofs_http *h, struct ofs_http_send *s,
    const struct ofs_http_request *q)
{
	char code[OFS_HTTP_CODE];
	bool failed;

	s->status = q->status;
	ofs_http_headers(q->headers.data, q->headers.len,
	    ofs_now_ns() / 1000000000, &s->answer);
	if (q->end != OFS_HTTP_WHOLE || q->status == 0) {
		optimfs_fail(&s->err, q->end == OFS_HTTP_LATE ? ETIMEDOUT : EIO,
		    "OFS922 %s: %s", s->name, q->why);
		return q->end == OFS_HTTP_FAILED || q->end == OFS_HTTP_LATE ||
		    q->end == OFS_HTTP_UNREACHED;
	}
	/* with status 200, too, when it took long */
	failed = ofs_http_said(h, &s->body, code);
	s->err.code = 0;
	if (q->status / 100 == 2 && !failed)
		return 0;
	if (q->status == 404)
		return optimfs_fail(&s->err, ENOENT,
		    "OFS019 %s: there is no such %s", s->name,
		    strcmp(code, "NoSuchBucket") == 0 ? "bucket" : "object");
	if (q->signer != NULL && !s->renewed && ofs_http_expired(code)) {
		s->renewed = true;
		if (s->login->renew(q->signer, &s->err) == -1)
			return -1;
		optimfs_fail(&s->err, EACCES,
		    "OFS923 %s: the keys have expired", s->name);
		return 1;
	}
	if (q->status == 401 || q->status == 403)
		return optimfs_fail(&s->err, EACCES,
		    "OFS923 %s: not allowed (HTTP %d %s): you may not write "
		    "there, or the server wants to know who asks%s",
		    s->name, q->status, code, ofs_http_unsigned(q).text);
	optimfs_fail(&s->err, EIO, "OFS922 %s: the server answers HTTP %d %s",
	    s->name, q->status, code);
	if (may_work(q->status, code))
		return 1;
	if (q->status / 100 != 5)
		(void)ofs_http_other_region(s->login, &s->answer, s->name,
		    &s->err);
	return -1;
}

static void ask(struct ofs_http_send *s, struct ofs_http_request *q)
{
	size_t limit = s->body.limit == 0 ? BODY_MOST : s->body.limit;

	ofs_buf_fini(&s->body);
	s->body = (struct ofs_buf){ .limit = limit };
	*q = (struct ofs_http_request){
		.url = s->url,
		.login = s->login,
		.signer = s->login == NULL || s->login->signer == NULL
		    ? NULL
		    : s->login->signer(),
		.method = s->method,
		.send = s->bytes != NULL               ? s->bytes
		    : strcmp(s->method, "DELETE") != 0 ? ""
						       : NULL,
		.nsend = s->n,
		.digest = s->digest,
		.body = { .limit = limit },
	};
}

/* Returns how many have to be sent again, which come first. */
static size_t send_round(const struct ofs_http *h, struct ofs_http_send **todo,
    size_t n, struct ofs_http_request *q, struct ofs_http_counters *count)
{
	size_t left = 0;

	for (size_t i = 0; i < n; i++)
		ask(todo[i], &q[i]);
	h->ops->perform(h->m, q, n);
	for (size_t i = 0; i < n; i++) {
		struct ofs_http_send *s = todo[i];

		s->body = q[i].body;
		if (judge(h, s, &q[i]) == 1)
			todo[left++] = s;
		ofs_buf_fini(&q[i].headers);
	}
	atomic_fetch_add(&count->requests, n);
	return left;
}

static void send_all(const struct ofs_http *h, struct ofs_http_counters *count,
    struct ofs_http_send **todo, size_t n, struct ofs_http_request *q)
{
	struct ofs_http_pace pace = ofs_http_pace(h);

	for (;;) {
		size_t left = send_round(h, todo, n, q, count);

		if (left == 0)
			return;
		for (size_t i = 0; i < left; i++)
			ofs_http_told(&pace, &todo[i]->answer);
		if (!ofs_http_wait(&pace, left < n))
			return;
		n = left;
		atomic_fetch_add(&count->retries, n);
	}
}

int ofs_http_send(const struct ofs_http *h, struct ofs_http_counters *count,
    struct ofs_http_send *s, size_t n)
{
	struct ofs_http_send **todo = calloc(n + 1, sizeof(*todo));
	struct ofs_http_request *q = calloc(n + 1, sizeof(*q));
	int ret = 0;

	for (size_t i = 0; i < n; i++) {
		ofs_sha256_of(s[i].bytes == NULL ? "" : s[i].bytes, s[i].n,
		    s[i].digest);
		if (todo != NULL && q != NULL)
			todo[i] = &s[i];
		else
			ofs_no_memory(&s[i].err);
	}
	if (todo != NULL && q != NULL && n > 0)
		send_all(h, count, todo, n, q);
	free(todo);
	free(q);
	for (size_t i = 0; i < n; i++)
		if (s[i].err.code != 0)
			ret = -1;
	return ret;
}
