/* hub.c - repositories of the Hugging Face Hub */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "store/http/links.h"
#include "store/http/site.h"

#define PAGE_MOST  ((size_t)16 << 20)
#define PAGES_MOST 1000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char token[400], endpoint[400];
static bool is_read;

/* The first line of a file. */
static void read_token(const char *path)
{
	FILE *f = fopen(path, "re");

	if (f == NULL)
		return;
	if (fgets(token, sizeof(token), f) == NULL)
		token[0] = '\0';
	token[strcspn(token, " \r\n")] = '\0';
	fclose(f);
}

static void find_token(void)
{
	const char *v = getenv("HF_TOKEN"), *home = getenv("HF_HOME");
	char path[4096];

	if (v != NULL) {
		snprintf(token, sizeof(token), "%s", v);
		return;
	}
	v = getenv("HF_TOKEN_PATH");
	if (v != NULL)
		snprintf(path, sizeof(path), "%s", v);
	else if (home != NULL)
		snprintf(path, sizeof(path), "%s/token", home);
	else if ((home = getenv("HOME")) != NULL)
		snprintf(path, sizeof(path), "%s/.cache/huggingface/token",
		    home);
	else
		return;
	read_token(path);
}

static int hub_prepare(const struct ofs_http *http, struct optimfs_error *err)
{
	const char *v = getenv("HF_ENDPOINT");
	size_t n;

	(void)http;
	(void)err;
	pthread_mutex_lock(&lock);
	if (!is_read) {
		find_token();
		snprintf(endpoint, sizeof(endpoint), "%s",
		    v != NULL && v[0] != '\0' ? v : "https://huggingface.co");
		for (n = strlen(endpoint); n > 0 && endpoint[n - 1] == '/'; n--)
			endpoint[n - 1] = '\0';
		is_read = true;
	}
	pthread_mutex_unlock(&lock);
	return 0;
}

/* hf://ORG/MODEL[@REVISION][/PATH], or datasets/ORG/NAME. */
struct repository {
	const char *kind; /* "models" or "datasets" */
	const char *in;   /* before the name in an address of a file */
	char name[300], revision[200];
	struct ofs_str path;
};

static bool take_part(struct ofs_str *s, char *to, size_t size)
{
	const char *slash = memchr(s->p, '/', s->len);
	uint32_t n = slash == NULL ? s->len : (uint32_t)(slash - s->p);

	if (n == 0 || n >= size)
		return false;
	memcpy(to, s->p, n);
	to[n] = '\0';
	*s = ofs_str_after(*s, n);
	while (s->len > 0 && s->p[0] == '/')
		*s = ofs_str_after(*s, 1);
	return true;
}

static int parse_repository(const struct ofs_url *url, struct repository *r)
{
	/* host and path are parts of one text */
	struct ofs_str s = { url->host.p,
		(uint32_t)(url->path.p + url->path.len - url->host.p) };
	char org[150], name[150], *at;

	*r = (struct repository){
		.kind = "models", .in = "", .revision = "main"
	};
	if (ofs_str_is(url->host, "datasets")) {
		r->kind = "datasets";
		r->in = "datasets/";
		s = url->path;
	}
	if (!take_part(&s, org, sizeof(org)) ||
	    !take_part(&s, name, sizeof(name)) || strchr(org, '@') != NULL)
		return -1;
	at = strchr(name, '@');
	if (at != NULL) {
		*at = '\0';
		snprintf(r->revision, sizeof(r->revision), "%s", at + 1);
	}
	snprintf(r->name, sizeof(r->name), "%s/%s", org, name);
	r->path = s;
	return r->revision[0] == '\0' || name[0] == '\0' ? -1 : 0;
}

/* Gets a document of the Hub's interface. */
static int get_page(struct ofs_http_site *s, const char *url,
    struct ofs_http_get *g, struct optimfs_error *err)
{
	*g = (struct ofs_http_get){
		.url = url,
		.name = s->shown,
		.login = &s->login,
		.accept = "application/json",
		.body = { .limit = PAGE_MOST },
	};
	if (ofs_http_get(s->http, &s->count, g, 1) == 0)
		return 0;
	/* that is how it says that somebody may not know of a repository */
	if (g->err.number == 923 || g->err.code == ENOENT)
		return optimfs_fail(err, g->err.code,
		    "OFS923 %s: there is no such repository, revision or path, "
		    "or you may not read it (HF_TOKEN)",
		    s->shown);
	return optimfs_fail_with(err, &g->err);
}

/* The member "sha" of an object. */
static int find_sha(const struct ofs_http_get *g, char *sha, size_t size,
    struct optimfs_error *err)
{
	struct ofs_json j;
	enum ofs_json_token t;
	bool is;

	sha[0] = '\0';
	ofs_json_init(&j, g->body.data, (uint32_t)g->body.len);
	t = ofs_json_next(&j, err);
	while (t != OFS_JSON_ERROR &&
	    (t = ofs_json_next(&j, err)) == OFS_JSON_KEY) {
		is = ofs_str_is(j.str, "sha");
		t = ofs_json_next(&j, err);
		if (is && t == OFS_JSON_STRING && j.str.len < size) {
			memcpy(sha, j.str.p, j.str.len);
			sha[j.str.len] = '\0';
			break;
		}
		if (ofs_json_skip(&j, t, err) == -1)
			break;
	}
	ofs_json_fini(&j);
	return sha[0] != '\0' && strspn(sha, "0123456789abcdef") == strlen(sha)
	    ? 0
	    : optimfs_fail(err, EIO,
		  "OFS924 %s: the server does not say which commit this is",
		  g->name);
}

/* The commit that the revision is now: it stays that one. */
static int pin(struct ofs_http_site *s, const struct repository *r, char *sha,
    size_t size, struct optimfs_error *err)
{
	struct ofs_http_get g;
	char *url;
	int ret;

	if (asprintf(&url, "%s/api/%s/%s/revision/%s", endpoint, r->kind,
		r->name, r->revision) == -1)
		return ofs_no_memory(err);
	ret = get_page(s, url, &g, err);
	if (ret == 0)
		ret = find_sha(&g, sha, size, err);
	ofs_buf_fini(&g.body);
	free(url);
	return ret;
}

static int set_addresses(struct ofs_http_site *s, const struct repository *r,
    const char *sha, char **to, struct optimfs_error *err)
{
	struct ofs_buf base = { 0 }, root = { 0 }, prefix = { 0 };

	ofs_buf_printf(&base, "%s/api/%s/%s/tree/%s", endpoint, r->kind,
	    r->name, sha);
	ofs_buf_printf(&root, "%s/%s%s/resolve/%s/", endpoint, r->in, r->name,
	    sha);
	if (r->path.len > 0) {
		ofs_buf_putc(&base, '/');
		ofs_url_escape(&base, r->path.p, r->path.len);
		ofs_url_escape(&root, r->path.p, r->path.len);
		ofs_buf_putc(&root, '/');
		ofs_buf_put(&prefix, r->path.p, r->path.len);
		ofs_buf_putc(&prefix, '/');
	}
	ofs_buf_puts(&base, "?recursive=true");
	s->base = ofs_buf_text(&base, err);
	*to = ofs_buf_text(&root, err);
	s->prefix = ofs_buf_text(&prefix, err);
	return s->base == NULL || *to == NULL || s->prefix == NULL ? -1 : 0;
}

static int hub_open(struct ofs_http_site *s, const struct ofs_url *url,
    char **root, struct optimfs_error *err)
{
	struct repository r;
	char sha[80];

	if (parse_repository(url, &r) == -1)
		return optimfs_fail(err, EINVAL,
		    "OFS920 %s: give hf://ORGANISATION/MODEL[@REVISION][/PATH]",
		    s->shown);
	s->login = (struct ofs_http_login){ .redirects = true, .stable = true };
	if (token[0] != '\0')
		s->login.bearer = token;
	s->pinned = true;
	return pin(s, &r, sha, sizeof(sha), err) == -1
	    ? -1
	    : set_addresses(s, &r, sha, root, err);
}

static int take_file(void *ctx, const struct ofs_http_link *link,
    struct optimfs_error *err)
{
	struct ofs_http_site *s = ctx;
	size_t n = strlen(s->prefix);

	if (strncmp(link->name, s->prefix, n) != 0)
		return 0;
	return ofs_http_add_path(s, 0, link->name + n, link->is_dir, &link->is,
	    err);
}

/* The tree is listed as a whole. */
static int hub_list(struct ofs_http_site *s, uint32_t dir,
    struct optimfs_error *err)
{
	struct ofs_http_get g = { .answer.next = "" };
	char url[2048];
	int ret = 0;

	(void)dir;
	if (strlen(s->base) >= sizeof(url))
		return optimfs_fail(err, ENOENT, "OFS019 %s: too long",
		    s->shown);
	strcpy(url, s->base);
	for (unsigned page = 0; ret == 0 && url[0] != '\0'; page++) {
		ret = get_page(s, url, &g, err);
		if (ret == 0)
			ret = ofs_http_links_json(g.body.data, g.body.len,
			    take_file, s, err);
		ofs_buf_fini(&g.body);
		strcpy(url, ret == 0 ? g.answer.next : "");
		/* the token is for this server only */
		if (ret == 0 && url[0] != '\0' &&
		    (page == PAGES_MOST ||
			strncmp(url, endpoint, strlen(endpoint)) != 0 ||
			url[strlen(endpoint)] != '/'))
			ret = optimfs_fail(err, EIO,
			    "OFS924 %s: a listing that does not end, or goes "
			    "on elsewhere",
			    s->shown);
	}
	/* a directory of git is not empty */
	if (ret == 0 && s->paths.n == 1)
		ret = optimfs_fail(err, ENOENT, "OFS019 %s: no such directory",
		    s->shown);
	if (ret == 0)
		ofs_http_all_listed(s);
	return ret;
}

const struct ofs_http_kind ofs_http_hub = {
	.scheme = "hf",
	.prepare = hub_prepare,
	.open = hub_open,
	.list = hub_list,
};
