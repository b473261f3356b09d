/* web.c - directories that web servers list */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "store/http/links.h"
#include "store/http/site.h"

#define LISTING_MOST ((size_t)64 << 20)
/* Servers do not list what begins with a dot. This is how the index of PyTorch's
 * distributed checkpoints is called. */
#define HIDDEN ".metadata"

/* What the user wrote is escaped already, or has to be. */
static int web_open(struct ofs_http_site *s, const struct ofs_url *url,
    struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };

	ofs_buf_printf(&b, "%.*s://%.*s/", OFS_STR_ARGS(url->scheme, 8),
	    OFS_STR_ARGS(url->host, 255));
	for (uint32_t i = 0; i < url->path.len; i++)
		if (url->path.p[i] == '%')
			ofs_buf_putc(&b, '%');
		else
			ofs_url_escape(&b, url->path.p + i, 1);
	if (url->path.len > 0)
		ofs_buf_putc(&b, '/');
	ofs_buf_putc(&b, '\0');
	if (b.bad) {
		ofs_buf_fini(&b);
		return ofs_no_memory(err);
	}
	s->root = (char *)b.data;
	s->login = (struct ofs_http_login){ .netrc = true, .redirects = true };
	return 0;
}

/* The links in a directory become names in it. */
struct adding {
	struct ofs_http_site *s;
	uint32_t dir;
	const char *here; /* the path in the address of dir, not escaped */
	size_t n;         /* names that were found */
};

static int add_link(void *ctx, const struct ofs_http_link *link,
    struct optimfs_error *err)
{
	struct adding *a = ctx;
	const char *name = link->name;
	size_t n = strlen(a->here), len;
	char *copy;
	int ret;

	if (name[0] == '/' && strncmp(name, a->here, n) == 0)
		name += n;
	if (strncmp(name, "./", 2) == 0)
		name += 2;
	len = strlen(name);
	copy = strndup(name, len - (len > 0 && name[len - 1] == '/'));
	if (copy == NULL)
		return ofs_no_memory(err);
	ret = ofs_http_add(a->s, a->dir, copy,
	    link->is_dir || (len > 0 && name[len - 1] == '/'), &link->is, err);
	a->n++;
	free(copy);
	return ret;
}

/* The path in an address, not escaped, malloc'ed. */
static char *path_of(const char *address, struct optimfs_error *err)
{
	const char *path = strchr(strstr(address, "://") + 3, '/');
	size_t n = strlen(path);
	char *out = malloc(n + 1);

	if (out == NULL)
		ofs_no_memory(err);
	else if (!ofs_url_decode(path, n, out))
		memcpy(out, path, n + 1);
	return out;
}

static int no_listing(const struct ofs_http_get *g, struct optimfs_error *err)
{
	return optimfs_fail(err, EOPNOTSUPP,
	    "OFS925 %s: the server does not list this directory, or it is "
	    "empty: give the address of a file in it, or make the server list "
	    "(nginx: autoindex on)",
	    g->name);
}

static int take_listing(struct ofs_http_site *s, uint32_t dir,
    const struct ofs_http_get *g, struct optimfs_error *err)
{
	bool html = strcmp(g->answer.type, "text/html") == 0 ||
	    strcmp(g->answer.type, "application/xhtml+xml") == 0;
	struct adding a = { .s = s, .dir = dir };
	char *here;
	int ret;

	if (!html && strcmp(g->answer.type, "application/json") != 0)
		return no_listing(g, err);
	here = path_of(g->url, err);
	if (here == NULL)
		return -1;
	a.here = here;
	ret = html
	    ? ofs_http_links_html(g->body.data, g->body.len, add_link, &a, err)
	    : ofs_http_links_json(g->body.data, g->body.len, add_link, &a, err);
	free(here);
	if (ret == -1 && err->code == EUCLEAN)
		return no_listing(g, err);
	/* a page for people is no listing */
	return ret == 0 && html && a.n == 0 ? no_listing(g, err) : ret;
}

static int take_answers(struct ofs_http_site *s, uint32_t dir,
    const struct ofs_http_get g[2], struct optimfs_error *err)
{
	if (g[1].err.code == 0 &&
	    ofs_http_add(s, dir, HIDDEN, false, &g[1].answer.is, err) == -1)
		return -1;
	if (g[0].err.code == 0)
		return take_listing(s, dir, &g[0], err);
	if (g[0].err.number == 923)
		return optimfs_fail(err, EACCES,
		    "OFS923 %s: the server allows no listing of this "
		    "directory (or wants to know who asks): give the address of "
		    "a file in it",
		    g[0].name);
	return optimfs_fail_with(err, &g[0].err);
}

static int ask_both(struct ofs_http_site *s, uint32_t dir, const char *url,
    const char *hidden, const char *name, struct optimfs_error *err)
{
	uint8_t byte;
	struct ofs_http_get g[] = {
		{ .url = url,
		    .name = name,
		    .login = &s->login,
		    .accept = "application/json, text/html;q=0.9",
		    .body = { .limit = LISTING_MOST } },
		{ .url = hidden,
		    .name = HIDDEN,
		    .login = &s->login,
		    .n = 1,
		    .into = &byte },
	};
	int ret;

	(void)ofs_http_get(s->http, &s->count, g, 2);
	ret = take_answers(s, dir, g, err);
	ofs_buf_fini(&g[0].body);
	return ret;
}

static int web_list(struct ofs_http_site *s, uint32_t dir,
    struct optimfs_error *err)
{
	const char *path = ofs_http_path(s, dir);
	char *url = ofs_http_address(s, path, "/", err);
	char *hidden = NULL, *name = NULL;
	int ret;

	if (url == NULL)
		return -1;
	if (asprintf(&hidden, "%s" HIDDEN, url) == -1)
		hidden = NULL;
	if (asprintf(&name, "%s%s%s", s->shown, path[0] == '\0' ? "" : "/",
		path) == -1)
		name = NULL;
	ret = hidden == NULL || name == NULL
	    ? ofs_no_memory(err)
	    : ask_both(s, dir, url, hidden, name, err);
	free(hidden);
	free(url);
	free(name);
	return ret;
}

const struct ofs_http_kind ofs_http_web = {
	.scheme = "http",
	.open = web_open,
	.list = web_list,
};
const struct ofs_http_kind ofs_http_web_tls = {
	.scheme = "https",
	.open = web_open,
	.list = web_list,
};
