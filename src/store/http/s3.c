/* s3.c - buckets of S3, and of what speaks its language */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "store/http/s3.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "store/http/credentials.h"

#define PAGE_MOST ((size_t)16 << 20)
/* A prefix with more pages of keys, 1000 each, is listed by directory. */
#define PAGES_MOST 20

static int s3_prepare(const struct ofs_http *http, struct optimfs_error *err)
{
	return ofs_credentials_prepare(http, err);
}

static bool is_bucket(struct ofs_str s)
{
	for (uint32_t i = 0; i < s.len; i++)
		if (!isalnum((unsigned char)s.p[i]) &&
		    strchr("-_.", s.p[i]) == NULL)
			return false;
	return s.len > 0 && s.len < 256;
}

/* Buckets that are in another region than the one that is set, as a server has
 * said. They stay, since sites point to the names. */
struct moved {
	char bucket[256], region[60];
	struct moved *next;
};
static pthread_mutex_t moved_lock = PTHREAD_MUTEX_INITIALIZER;
static struct moved *moved;

/* The lock is held. */
static struct moved *find_moved(struct ofs_str bucket)
{
	struct moved *m = moved;

	while (m != NULL && !ofs_str_is(bucket, m->bucket))
		m = m->next;
	return m;
}

static const char *region_of(struct ofs_str bucket)
{
	const char *region = ofs_credentials_profile()->region;
	const struct moved *m;

	if (region[0] == '\0')
		region = "us-east-1";
	pthread_mutex_lock(&moved_lock);
	m = find_moved(bucket);
	if (m != NULL)
		region = m->region;
	pthread_mutex_unlock(&moved_lock);
	return region;
}

/* It becomes part of the name of a host. */
static bool is_region(const char *name)
{
	static const char in[] = "abcdefghijklmnopqrstuvwxyz0123456789-";

	return name[0] != '\0' && strspn(name, in) == strlen(name);
}

/* false: it cannot be kept, or the server has named another one before, and would
 * have us ask forever. */
static bool note_region(struct ofs_str bucket, const char *region)
{
	struct moved *m;
	bool same;

	pthread_mutex_lock(&moved_lock);
	m = find_moved(bucket);
	if (m == NULL && (m = calloc(1, sizeof(*m))) != NULL) {
		snprintf(m->bucket, sizeof(m->bucket), "%.*s",
		    OFS_STR_ARGS(bucket, 255));
		snprintf(m->region, sizeof(m->region), "%s", region);
		m->next = moved;
		moved = m;
	}
	same = m != NULL && strcmp(m->region, region) == 0;
	pthread_mutex_unlock(&moved_lock);
	return same;
}

/* The bucket is in the name of the host, or in the path: of one with a dot no
 * certificate has the name. */
static bool in_host(const struct ofs_profile *profile, struct ofs_str bucket)
{
	if (profile->endpoint[0] != '\0')
		return strcmp(profile->style, "virtual") == 0;
	return strcmp(profile->style, "path") != 0 &&
	    memchr(bucket.p, '.', bucket.len) == NULL;
}

/* Where the host begins in an address. */
static size_t host_at(const char *address)
{
	const char *name = strstr(address, "://");

	return name == NULL ? 0 : (size_t)(name - address) + 3;
}

/* The address of the bucket. */
static void put_base(struct ofs_buf *b, struct ofs_str bucket)
{
	const struct ofs_profile *profile = ofs_credentials_profile();
	const char *host = profile->endpoint;
	char aws[120];
	size_t n, k;

	if (host[0] == '\0') {
		ofs_aws_address(aws, sizeof(aws), "s3", region_of(bucket));
		host = aws;
	}
	n = strlen(host);
	while (n > 0 && host[n - 1] == '/')
		n--;
	if (in_host(profile, bucket)) {
		k = host_at(host);
		ofs_buf_put(b, host, k);
		ofs_buf_printf(b, "%.*s.%.*s/", OFS_STR_ARGS(bucket, 255),
		    (int)(n - k), host + k);
	} else {
		ofs_buf_printf(b, "%.*s/%.*s/", (int)n, host,
		    OFS_STR_ARGS(bucket, 255));
	}
}

static struct ofs_http_login login_of(struct ofs_str bucket)
{
	const struct ofs_profile *profile = ofs_credentials_profile();

	return (struct ofs_http_login){
		.signer = ofs_credentials,
		.renew = ofs_credentials_renew,
		.missing = ofs_credentials_missing,
		.region = region_of(bucket),
		.ca = profile->ca[0] == '\0' ? NULL : profile->ca,
		.requester_pays = strcmp(profile->payer, "requester") == 0,
	};
}

/* Sets where the directory of url is: *root, which is malloc'ed. */
static int place(struct ofs_http_site *s, const struct ofs_url *url,
    char **root, struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };
	char *base;

	put_base(&b, url->host);
	base = ofs_buf_text(&b, err);
	if (base == NULL)
		return -1;
	b = (struct ofs_buf){ 0 };
	ofs_buf_puts(&b, base);
	ofs_url_escape(&b, url->path.p, url->path.len);
	if (url->path.len > 0)
		ofs_buf_putc(&b, '/');
	*root = ofs_buf_text(&b, err);
	if (*root == NULL) {
		free(base);
		return -1;
	}
	free(s->base);
	s->base = base;
	s->login = login_of(url->host);
	return 0;
}

static int s3_open(struct ofs_http_site *s, const struct ofs_url *url,
    char **to, struct optimfs_error *err)
{
	struct ofs_buf prefix = { 0 };

	if (!is_bucket(url->host))
		return optimfs_fail(err, EINVAL,
		    "OFS920 %s: not the name of a bucket", s->shown);
	if (place(s, url, to, err) == -1)
		return -1;
	ofs_buf_put(&prefix, url->path.p, url->path.len);
	if (url->path.len > 0)
		ofs_buf_putc(&prefix, '/');
	s->prefix = ofs_buf_text(&prefix, err);
	return s->prefix == NULL ? -1 : 0;
}

bool ofs_http_s3_moves(struct ofs_http_site *s, const struct ofs_http_get *g)
{
	const char *region = g->answer.region;
	struct ofs_url url;
	char *root;

	if (g->err.code != EINVAL || !is_region(region) || s->nhosts > 1 ||
	    strcmp(region, s->login.region) == 0 ||
	    ofs_url_parse(s->shown, &url, NULL) == -1 ||
	    !note_region(url.host, region) || place(s, &url, &root, NULL) == -1)
		return false;
	free(s->host[0].root);
	s->host[0].root = root;
	return true;
}

/* Listing. */

struct listing {
	struct ofs_http_site *s;
	uint32_t dir;
	char *prefix; /* of keys in dir */
	uint64_t keys;
	/* Of the page that is read, and its key or prefix. */
	bool is_listing, more;
	char next[2048]; /* the token of the next page; "": there is none */
	char name[OFS_HTTP_TEXT_MOST], etag[160], modified[40];
	uint64_t size;
};

/* In a listing that is escaped a space is a plus. */
static bool unescape(const char *name, char *out, size_t size)
{
	char text[4096];
	size_t n = strlen(name);

	if (n >= sizeof(text) || n >= size)
		return false;
	memcpy(text, name, n + 1);
	for (char *p = text; *p != '\0'; p++)
		if (*p == '+')
			*p = ' ';
	return ofs_url_decode(text, n, out);
}

/* A key, or a common prefix, which ends in a slash. */
static int add_key(struct listing *l, struct optimfs_error *err)
{
	struct ofs_http_version is = { .size = l->size };
	size_t n = strlen(l->prefix), len;
	char name[OFS_HTTP_TEXT_MOST];

	if (!unescape(l->name, name, sizeof(name)) ||
	    strncmp(name, l->prefix, n) != 0)
		return 0;
	l->keys++;
	is.modified_ns = ofs_http_date_ns(l->modified);
	/* answers tell whole seconds */
	if (l->etag[0] == '"' && strlen(l->etag) < sizeof(is.etag))
		strcpy(is.etag, l->etag);
	len = strlen(name);
	return ofs_http_add_path(l->s, l->dir, name + n, name[len - 1] == '/',
	    &is, err);
}

static void keep(char *to, size_t size, const char *text)
{
	if (strlen(text) < size)
		strcpy(to, text);
}

static void take_member(struct listing *l, const char *name, const char *text)
{
	if (strcmp(name, "Key") == 0 || strcmp(name, "Prefix") == 0)
		keep(l->name, sizeof(l->name), text);
	else if (strcmp(name, "ETag") == 0)
		keep(l->etag, sizeof(l->etag), text);
	else if (strcmp(name, "LastModified") == 0)
		keep(l->modified, sizeof(l->modified), text);
	else if (strcmp(name, "Size") == 0 &&
	    strspn(text, "0123456789") == strlen(text) && strlen(text) < 20)
		l->size = strtoull(text, NULL, 10);
}

static int take_element(void *ctx, unsigned depth, const char *name,
    const char *text, struct optimfs_error *err)
{
	struct listing *l = ctx;
	int ret = 0;

	if (depth == 2)
		take_member(l, name, text);
	if (depth == 1) {
		if (strcmp(name, "NextContinuationToken") == 0)
			keep(l->next, sizeof(l->next), text);
		else if (strcmp(name, "IsTruncated") == 0)
			l->more = strcmp(text, "true") == 0;
		else if ((strcmp(name, "Contents") == 0 ||
			     strcmp(name, "CommonPrefixes") == 0) &&
		    l->name[0] != '\0')
			ret = add_key(l, err);
		l->name[0] = l->etag[0] = l->modified[0] = '\0';
		l->size = 0;
	}
	if (depth == 0)
		l->is_listing = strcmp(name, "ListBucketResult") == 0;
	return ret;
}

/* The parameters are in the order in which they are signed. */
static char *page_address(const struct listing *l, bool deep, const char *token,
    struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };
	const char *slash;

	ofs_buf_puts(&b, l->s->base);
	ofs_buf_putc(&b, '?');
	if (token[0] != '\0') {
		ofs_buf_puts(&b, "continuation-token=");
		for (; (slash = strchr(token, '/')) != NULL;
		     token = slash + 1) {
			ofs_url_escape(&b, token, (size_t)(slash - token));
			ofs_buf_puts(&b, "%2F");
		}
		ofs_url_escape(&b, token, strlen(token));
		ofs_buf_putc(&b, '&');
	}
	if (deep)
		ofs_buf_puts(&b, "delimiter=%2F&");
	ofs_buf_puts(&b, "encoding-type=url&list-type=2&prefix=");
	for (const char *p = l->prefix; *p != '\0'; p++)
		if (*p == '/')
			ofs_buf_puts(&b, "%2F");
		else
			ofs_url_escape(&b, p, 1);
	return ofs_buf_text(&b, err);
}

/* One page. *token becomes that of the next. */
static int list_page(struct listing *l, bool deep, char *token, size_t size,
    struct optimfs_error *err)
{
	struct ofs_http_site *s = l->s;
	const struct ofs_http_elements elements = { take_element, l };
	struct ofs_http_get g;
	size_t host;
	int ret = -1;

	l->is_listing = l->more = false;
	l->next[0] = '\0';
	do {
		g = (struct ofs_http_get){
			.url = page_address(l, deep, token, err),
			.name = s->shown,
			.login = &s->login,
			.body = { .limit = PAGE_MOST },
		};
		if (g.url == NULL)
			return -1;
		(void)ofs_http_get(s->http, &s->count, &g, 1);
		free((char *)g.url);
		/* no file is known before the first page, so nobody reads */
	} while (l->dir == 0 && token[0] == '\0' && ofs_http_s3_moves(s, &g));
	host = host_at(s->base);
	if (g.err.code == ENOENT) /* an empty one has an empty listing */
		optimfs_fail(err, ENOENT,
		    "OFS019 %s: there is no such bucket at %.*s", s->shown,
		    (int)(host + strcspn(s->base + host, "/")), s->base);
	else if (g.err.code != 0)
		optimfs_fail_with(err, &g.err);
	else
		ret = s->http->ops->parse(g.body.data, g.body.len, &elements,
		    err);
	if (ret == 0 && !l->is_listing)
		ret = optimfs_fail(err, EUCLEAN,
		    "OFS924 %s: the server answers with something that is no "
		    "listing of S3",
		    s->shown);
	if (ret == 0 && l->more && l->next[0] == '\0')
		ret = optimfs_fail(err, EIO,
		    "OFS924 %s: the server does not say how its listing goes "
		    "on",
		    s->shown);
	if (ret == 0 && strcmp(token, l->next) == 0 && token[0] != '\0')
		ret = optimfs_fail(err, EIO,
		    "OFS924 %s: the listing of the server does not end",
		    s->shown);
	if (ret == 0)
		snprintf(token, size, "%s", l->next);
	ofs_buf_fini(&g.body);
	return ret;
}

/* Lists all below l->dir, or with deep what is in it. 1: there is more. */
static int list_pages(struct listing *l, bool deep, struct optimfs_error *err)
{
	char token[2048] = "";
	unsigned pages = 0;

	do {
		if (list_page(l, deep, token, sizeof(token), err) == -1)
			return -1;
	} while (token[0] != '\0' && (deep || ++pages < PAGES_MOST));
	return token[0] != '\0';
}

/* The first listing is of everything, which is one request where a walk would
 * be many. */
static int list_keys(struct listing *l, struct optimfs_error *err)
{
	struct ofs_http_site *s = l->s;
	int ret = 1;

	if (!s->deep && l->dir == 0)
		ret = list_pages(l, false, err);
	if (ret == 0)
		ofs_http_all_listed(s);
	s->deep |= ret == 1;
	if (ret == 1)
		ret = list_pages(l, true, err);
	if (ret == 0 && l->keys == 0)
		return optimfs_fail(err, ENOENT,
		    "OFS019 %s%s%s: the bucket has no such file or directory",
		    s->shown, l->dir == 0 ? "" : "/", ofs_http_path(s, l->dir));
	return ret;
}

static int s3_list(struct ofs_http_site *s, uint32_t dir,
    struct optimfs_error *err)
{
	struct listing l = { .s = s, .dir = dir };
	int ret;

	if (asprintf(&l.prefix, "%s%s%s", s->prefix, ofs_http_path(s, dir),
		dir == 0 ? "" : "/") == -1)
		return ofs_no_memory(err);
	ret = list_keys(&l, err);
	free(l.prefix);
	return ret;
}

const struct ofs_http_kind ofs_http_s3 = {
	.scheme = "s3",
	.prepare = s3_prepare,
	.open = s3_open,
	.list = s3_list,
};
