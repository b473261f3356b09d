/* bucket.c - writing files below an address of S3 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "store/http/bucket.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/str.h"
#include "store/http/s3.h"
#include "store/http/send.h"
#include "store/http/site.h"
#include "store/http/texts.h"

/* Requests that are sent at once. */
#define AT_ONCE   16
#define NOTE_MOST ((size_t)16 << 20)
#define PAGE_MOST ((size_t)4 << 20)

struct ofs_bucket {
	struct ofs_http_site *s; /* for addresses, and who asks */
	char *address;           /* without a slash at its end */
	struct ofs_url url;      /* of address */
	char *note;              /* the key of the note */
	char *note_name;         /* its address, for messages */
};

bool ofs_bucket_is(const char *address)
{
	return ofs_str_begins(ofs_str_of(address), "s3://");
}

static struct ofs_http_site *site_of(const char *address,
    const struct ofs_url *url, unsigned timeout, struct optimfs_error *err)
{
	return ofs_http_site_new(&ofs_http_s3, address, strlen(address), url,
	    timeout, err);
}

/* The note is where a directory would have its stage. */
static int name_note(struct ofs_bucket *b)
{
	const char *path = strndup(b->url.path.p, b->url.path.len);
	const char *name = path == NULL ? NULL : strrchr(path, '/');
	int above = name == NULL ? 0 : (int)(name - path) + 1;

	if (path == NULL)
		return -1;
	name = path + above;
	if (asprintf(&b->note, "%.*s.%s.optimfs/reshard", above, path, name) ==
	    -1)
		b->note = NULL;
	if (asprintf(&b->note_name, "s3://%.*s/%s",
		OFS_STR_ARGS(b->url.host, 255),
		b->note == NULL ? "" : b->note) == -1)
		b->note_name = NULL;
	free((char *)path);
	return b->note == NULL || b->note_name == NULL ? -1 : 0;
}

static int open_address(struct ofs_bucket *b, const char *address,
    unsigned timeout, struct optimfs_error *err)
{
	size_t n = strlen(address);

	while (n > 0 && address[n - 1] == '/')
		n--;
	b->address = strndup(address, n);
	if (b->address == NULL)
		return ofs_no_memory(err);
	if (ofs_url_parse(b->address, &b->url, err) == -1)
		return -1;
	if (b->url.path.len == 0)
		return optimfs_fail(err, EINVAL,
		    "OFS920 %s: a whole bucket: give a name in it, "
		    "s3://BUCKET/NAME",
		    address);
	if (name_note(b) == -1)
		return ofs_no_memory(err);
	b->s = site_of(b->address, &b->url, timeout, err);
	return b->s == NULL ? -1 : 0;
}

struct ofs_bucket *ofs_bucket_open(const char *address, unsigned timeout,
    struct optimfs_error *err)
{
	struct ofs_bucket *b = ofs_alloc(1, sizeof(*b), err);

	if (b != NULL && open_address(b, address, timeout, err) == 0)
		return b;
	ofs_bucket_close(b);
	return NULL;
}

void ofs_bucket_close(struct ofs_bucket *b)
{
	if (b == NULL)
		return;
	if (b->s != NULL)
		b->s->names.ops->let(&b->s->names);
	free(b->address);
	free(b->note);
	free(b->note_name);
	free(b);
}

/* Listing. A site is as it was found, so it is one of its own. */

static int ignore(void *ctx, const char *name, size_t n)
{
	(void)ctx;
	(void)name;
	(void)n;
	return 0;
}

static int pass_files(const struct ofs_http_site *s, ofs_bucket_fn *each,
    void *ctx, struct optimfs_error *err)
{
	if (s->deep)
		return optimfs_fail(err, E2BIG, "%s has too many files",
		    s->shown);
	for (uint32_t i = 0; i < s->paths.n; i++)
		if (s->node[i].what == OFS_HTTP_FILE &&
		    each(ctx, ofs_http_path(s, i), &s->node[i].is, err) == -1)
			return -1;
	return 0;
}

int ofs_bucket_list(const struct ofs_bucket *b, ofs_bucket_fn *each, void *ctx,
    struct optimfs_error *err)
{
	struct ofs_http_site *s =
	    site_of(b->address, &b->url, b->s->http->limits.timeout, err);
	struct optimfs_error why;
	int ret;

	if (s == NULL)
		return -1;
	ret = s->names.ops->list(&s->names, "", ignore, NULL, &why);
	if (ret == -1 && why.code == ENOENT)
		ret = 0;
	else if (ret == -1)
		optimfs_fail_with(err, &why);
	else
		ret = pass_files(s, each, ctx, err);
	s->names.ops->let(&s->names);
	return ret;
}

/* Addresses. Parameters are in the order in which they are signed. */

static char *url_of(const struct ofs_bucket *b, const char *key,
    const char *query, const char *id, struct optimfs_error *err)
{
	struct ofs_buf url = { 0 };

	ofs_buf_puts(&url, b->s->base);
	ofs_url_escape(&url, key, strlen(key));
	ofs_buf_puts(&url, query);
	for (const char *p = id; p != NULL && *p != '\0'; p++)
		if (*p == '/')
			ofs_buf_puts(&url, "%2F");
		else
			ofs_url_escape(&url, p, 1);
	return ofs_buf_text(&url, err);
}

static char *file_url(const struct ofs_bucket *b, const char *name,
    const char *query, const char *id, struct optimfs_error *err)
{
	char *key, *url;

	/* the prefix ends in a slash */
	if (asprintf(&key, "%s%s", b->s->prefix, name) == -1) {
		ofs_no_memory(err);
		return NULL;
	}
	url = url_of(b, key, query, id, err);
	free(key);
	return url;
}

/* Requests for several files at once. */

typedef int fill_fn(struct ofs_bucket *b, struct ofs_bucket_upload *u,
    struct ofs_http_send *s, struct optimfs_error *err);
typedef int take_fn(struct ofs_bucket *b, struct ofs_bucket_upload *u,
    struct ofs_http_send *s, struct optimfs_error *err);
struct step {
	fill_fn *fill; /* 1: nothing is to be done for this one */
	take_fn *take;
};

/* The address of a file, for messages, malloc'ed. */
static char *shown(const struct ofs_bucket *b, const char *name,
    struct optimfs_error *err)
{
	char *text;

	if (asprintf(&text, "%s/%s", b->address, name) != -1)
		return text;
	ofs_no_memory(err);
	return NULL;
}

static void end_sends(struct ofs_http_send *s, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free((char *)s[i].name);
		free((char *)s[i].url);
		free((void *)(uintptr_t)s[i].bytes);
		ofs_buf_fini(&s[i].body);
	}
}

static int take_all(struct ofs_bucket *b, const struct step *step,
    struct ofs_bucket_upload **of, struct ofs_http_send *s, size_t n,
    struct optimfs_error *err)
{
	int ret = 0;

	/* all are taken, also after one that failed */
	for (size_t i = 0; i < n; i++) {
		struct optimfs_error why = { 0 };

		if (step->take(b, of[i], &s[i], &why) == -1 && ret == 0)
			ret = optimfs_fail_with(err, &why);
	}
	return ret;
}

static int do_step(struct ofs_bucket *b, const struct step *step,
    struct ofs_bucket_upload *u, size_t n, struct optimfs_error *err)
{
	struct ofs_bucket_upload *of[AT_ONCE];
	struct ofs_http_send s[AT_ONCE];
	size_t i = 0, k;
	int ret = 0;

	while (ret == 0 && i < n) {
		for (k = 0; ret == 0 && i < n && k < AT_ONCE; i++) {
			s[k] = (struct ofs_http_send){
				.name = shown(b, u[i].name, err),
				.login = &b->s->login,
			};
			ret = s[k].name == NULL
			    ? -1
			    : step->fill(b, &u[i], &s[k], err);
			of[k] = &u[i];
			if (ret == 0)
				k++;
			else
				free((char *)s[k].name);
			ret = ret == -1 ? -1 : 0;
		}
		if (ret == 0) {
			(void)ofs_http_send(b->s->http, &b->s->count, s, k);
			ret = take_all(b, step, of, s, k, err);
		}
		end_sends(s, k);
	}
	return ret;
}

/* Beginning. */

/* The text of an element of the answer, malloc'ed. */
static char *text_of(const struct ofs_bucket *b, const struct ofs_http_send *s,
    const char *root, const char *name, struct optimfs_error *err)
{
	char found[OFS_HTTP_TEXT_MOST + 1] = "", is[OFS_HTTP_ROOT];
	struct ofs_http_text text = { name, found, sizeof(found) };
	char *copy;

	if (ofs_http_texts(b->s->http, &s->body, &text, 1, is) == -1 ||
	    strcmp(is, root) != 0 || found[0] == '\0') {
		optimfs_fail(err, EIO,
		    "OFS924 %s: the server answers with something that is no %s",
		    s->name, root);
		return NULL;
	}
	copy = strdup(found);
	if (copy == NULL)
		ofs_no_memory(err);
	return copy;
}

static int fill_begin(struct ofs_bucket *b, struct ofs_bucket_upload *u,
    struct ofs_http_send *s, struct optimfs_error *err)
{
	if (u->id != NULL || u->done)
		return 1;
	s->method = "POST";
	s->url = file_url(b, u->name, "?uploads=", NULL, err);
	return s->url == NULL ? -1 : 0;
}

static int take_begin(struct ofs_bucket *b, struct ofs_bucket_upload *u,
    struct ofs_http_send *s, struct optimfs_error *err)
{
	if (s->err.code != 0)
		return optimfs_fail_with(err, &s->err);
	u->id = text_of(b, s, "InitiateMultipartUploadResult", "UploadId", err);
	return u->id == NULL ? -1 : 0;
}

int ofs_bucket_begin(struct ofs_bucket *b, struct ofs_bucket_upload *u,
    size_t n, struct optimfs_error *err)
{
	static const struct step step = { fill_begin, take_begin };

	return do_step(b, &step, u, n, err);
}

/* Parts. */

int ofs_bucket_put_part(struct ofs_bucket *b, struct ofs_bucket_upload *u,
    uint32_t number, const void *bytes, uint64_t n, struct optimfs_error *err)
{
	struct ofs_http_send s = { .method = "PUT",
		.name = shown(b, u->name, err),
		.login = &b->s->login,
		.bytes = bytes,
		.n = n };
	char query[60];

	snprintf(query, sizeof(query),
	    "?partNumber=%" PRIu32 "&uploadId=", number + 1);
	s.url = file_url(b, u->name, query, u->id, err);
	if (s.url != NULL && s.name != NULL)
		(void)ofs_http_send(b->s->http, &b->s->count, &s, 1);
	else
		ofs_no_memory(&s.err);
	free((char *)s.url);
	free((char *)s.name);
	ofs_buf_fini(&s.body);
	if (s.err.code != 0)
		return optimfs_fail_with(err, &s.err);
	if (s.answer.is.etag[0] == '\0' ||
	    strlen(s.answer.is.etag) >= OFS_BUCKET_TAG)
		return optimfs_fail(err, EIO,
		    "OFS924 %s: the server gives a part no tag", u->name);
	strcpy(u->part[number], s.answer.is.etag);
	return 0;
}

/* A page of parts. */
struct parts {
	struct ofs_bucket_upload *u;
	uint64_t part_size, size;
	uint64_t number, is_size; /* of the part that is read */
	char tag[OFS_BUCKET_TAG];
	char next[24]; /* the number after which the next page begins */
	bool more;
};

static void take_part(struct parts *p)
{
	uint64_t at = p->number - 1, want;

	if (p->number != 0 && p->number <= p->u->nparts) {
		want = p->size - at * p->part_size;
		if (p->is_size == (want < p->part_size ? want : p->part_size))
			strcpy(p->u->part[at], p->tag);
	}
	p->number = p->is_size = 0;
	p->tag[0] = '\0';
}

static int take_parts(void *ctx, unsigned depth, const char *name,
    const char *text, struct optimfs_error *err)
{
	struct parts *p = ctx;

	(void)err;
	if (depth == 2 && strcmp(name, "PartNumber") == 0)
		p->number = strtoull(text, NULL, 10);
	else if (depth == 2 && strcmp(name, "Size") == 0)
		p->is_size = strtoull(text, NULL, 10);
	else if (depth == 2 && strcmp(name, "ETag") == 0 &&
	    strlen(text) < sizeof(p->tag))
		strcpy(p->tag, text);
	else if (depth == 1 && strcmp(name, "Part") == 0)
		take_part(p);
	else if (depth == 1 && strcmp(name, "IsTruncated") == 0)
		p->more = strcmp(text, "true") == 0;
	else if (depth == 1 && strcmp(name, "NextPartNumberMarker") == 0)
		snprintf(p->next, sizeof(p->next), "%.20s", text);
	return 0;
}

static int list_parts(struct ofs_bucket *b, struct parts *p,
    struct optimfs_error *err)
{
	const struct ofs_http_elements elements = { take_parts, p };
	struct ofs_http_get g = { .name = p->u->name,
		.login = &b->s->login,
		.body = { .limit = PAGE_MOST } };
	char query[80];
	int ret;

	snprintf(query, sizeof(query),
	    "?part-number-marker=%s&uploadId=", p->next);
	g.url = file_url(b, p->u->name, query, p->u->id, err);
	if (g.url == NULL)
		return -1;
	p->more = false;
	(void)ofs_http_get(b->s->http, &b->s->count, &g, 1);
	ret = g.err.code != 0
	    ? optimfs_fail_with(err, &g.err)
	    : b->s->http->ops->parse(g.body.data, g.body.len, &elements, err);
	ofs_buf_fini(&g.body);
	free((char *)g.url);
	return ret;
}

int ofs_bucket_find_parts(struct ofs_bucket *b, struct ofs_bucket_upload *u,
    uint64_t part_size, uint64_t size, struct optimfs_error *err)
{
	struct parts p = {
		.u = u, .part_size = part_size, .size = size, .next = "0"
	};
	char last[sizeof(p.next)];

	do {
		strcpy(last, p.next);
		if (list_parts(b, &p, err) == -1)
			return -1;
	} while (p.more && strcmp(last, p.next) != 0);
	return 0;
}

/* Ending. */

static int put_parts(const struct ofs_bucket_upload *u, struct ofs_buf *to,
    struct optimfs_error *err)
{
	ofs_buf_puts(to, "<CompleteMultipartUpload>");
	for (uint32_t i = 0; i < u->nparts; i++) {
		if (u->part[i][0] == '\0')
			return optimfs_fail(err, EIO,
			    "OFS931 %s: part %" PRIu32 " is missing", u->name,
			    i + 1);
		ofs_buf_printf(to,
		    "<Part><PartNumber>%" PRIu32 "</PartNumber><ETag>", i + 1);
		for (const char *p = u->part[i]; *p != '\0'; p++)
			if (*p == '"')
				ofs_buf_puts(to, "&quot;");
			else if (strchr("<>&", *p) == NULL)
				ofs_buf_putc(to, *p);
		ofs_buf_puts(to, "</ETag></Part>");
	}
	ofs_buf_puts(to, "</CompleteMultipartUpload>");
	return to->bad ? ofs_no_memory(err) : 0;
}

static int fill_complete(struct ofs_bucket *b, struct ofs_bucket_upload *u,
    struct ofs_http_send *s, struct optimfs_error *err)
{
	struct ofs_buf text = { 0 };

	if (u->done)
		return 1;
	if (put_parts(u, &text, err) == -1) {
		ofs_buf_fini(&text);
		return -1;
	}
	s->method = "POST";
	s->bytes = text.data;
	s->n = text.len;
	s->url = file_url(b, u->name, "?uploadId=", u->id, err);
	if (s->url != NULL)
		return 0;
	ofs_buf_fini(&text);
	return -1;
}

/* An answer that was lost: who asks again is told that there is no such upload.
 * What is there then, the caller looks at. */
static int take_complete(struct ofs_bucket *b, struct ofs_bucket_upload *u,
    struct ofs_http_send *s, struct optimfs_error *err)
{
	char *tag;

	if (s->err.code == ENOENT) {
		u->done = true;
		return 0;
	}
	if (s->err.code != 0)
		return optimfs_fail_with(err, &s->err);
	tag = text_of(b, s, "CompleteMultipartUploadResult", "ETag", err);
	if (tag == NULL)
		return -1;
	snprintf(u->tag, sizeof(u->tag), "%s", tag);
	free(tag);
	u->done = true;
	return 0;
}

int ofs_bucket_complete(struct ofs_bucket *b, struct ofs_bucket_upload *u,
    size_t n, struct optimfs_error *err)
{
	static const struct step step = { fill_complete, take_complete };

	return do_step(b, &step, u, n, err);
}

static int fill_abort(struct ofs_bucket *b, struct ofs_bucket_upload *u,
    struct ofs_http_send *s, struct optimfs_error *err)
{
	if (u->id == NULL || u->done)
		return 1;
	s->method = "DELETE";
	s->url = file_url(b, u->name, "?uploadId=", u->id, err);
	return s->url == NULL ? -1 : 0;
}

static int take_removed(struct ofs_bucket *b, struct ofs_bucket_upload *u,
    struct ofs_http_send *s, struct optimfs_error *err)
{
	(void)b;
	(void)u;
	return s->err.code == 0 || s->err.code == ENOENT
	    ? 0
	    : optimfs_fail_with(err, &s->err);
}

int ofs_bucket_abort(struct ofs_bucket *b, struct ofs_bucket_upload *u,
    size_t n, struct optimfs_error *err)
{
	static const struct step step = { fill_abort, take_removed };

	return do_step(b, &step, u, n, err);
}

/* Single objects. */

/* Takes over url. */
static int send_one(struct ofs_bucket *b, const char *method, char *url,
    const char *name, const struct ofs_buf *text, struct optimfs_error *err)
{
	struct ofs_http_send s = { .method = method,
		.url = url,
		.name = name,
		.login = &b->s->login };

	if (url == NULL)
		return -1;
	if (text != NULL) {
		s.bytes = text->data;
		s.n = text->len;
	}
	(void)ofs_http_send(b->s->http, &b->s->count, &s, 1);
	ofs_buf_fini(&s.body);
	free(url);
	return s.err.code == 0 ? 0 : optimfs_fail_with(err, &s.err);
}

int ofs_bucket_remove(struct ofs_bucket *b, const char *name,
    struct optimfs_error *err)
{
	struct optimfs_error why = { 0 };

	if (send_one(b, "DELETE", file_url(b, name, "", NULL, &why), name, NULL,
		&why) == 0 ||
	    why.code == ENOENT)
		return 0;
	return optimfs_fail_with(err, &why);
}

const char *ofs_bucket_note_name(const struct ofs_bucket *b)
{
	return b->note_name;
}

int ofs_bucket_note_put(struct ofs_bucket *b, const struct ofs_buf *text,
    struct optimfs_error *err)
{
	return send_one(b, "PUT", url_of(b, b->note, "", NULL, err),
	    b->note_name, text, err);
}

int ofs_bucket_note_get(struct ofs_bucket *b, struct ofs_buf *text,
    struct optimfs_error *err)
{
	struct ofs_http_get g;

	do { /* the first request tells where the bucket is */
		g = (struct ofs_http_get){
			.url = url_of(b, b->note, "", NULL, err),
			.name = b->note_name,
			.login = &b->s->login,
			.body = { .limit = NOTE_MOST },
		};
		if (g.url == NULL)
			return -1;
		(void)ofs_http_get(b->s->http, &b->s->count, &g, 1);
		free((char *)g.url);
	} while (ofs_http_s3_moves(b->s, &g));
	if (g.err.code == 0) {
		*text = g.body;
		return 1;
	}
	ofs_buf_fini(&g.body);
	return g.err.code == ENOENT ? 0 : optimfs_fail_with(err, &g.err);
}

int ofs_bucket_note_remove(struct ofs_bucket *b, struct optimfs_error *err)
{
	struct optimfs_error why = { 0 };

	if (send_one(b, "DELETE", url_of(b, b->note, "", NULL, &why),
		b->note_name, NULL, &why) == 0 ||
	    why.code == ENOENT)
		return 0;
	return optimfs_fail_with(err, &why);
}
