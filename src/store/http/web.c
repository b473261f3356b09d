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
#include "store/http/nodes.h"
#include "store/http/site.h"

/* Servers do not list what begins with a dot. This is how the index of PyTorch's
 * distributed checkpoints is called. */
#define HIDDEN ".metadata"
/* In the directory of an address it will be read, if it is there: so much of it
 * comes at once. */
#define INDEX ((uint64_t)1 << 20)

/* What the user wrote is escaped already, or has to be. */
static int web_open(struct ofs_http_site *s, const struct ofs_url *url,
    char **root, struct optimfs_error *err)
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
	*root = (char *)b.data;
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
	s->host[s->listing].has_lists = g->answer.has_lists;
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

/* A server that sends no range may send a page for people in place of what it does
 * not have. */
static bool has_index(const struct ofs_http_get *g)
{
	return g->err.code == 0 &&
	    (g->answer.first == 0 || strcmp(g->answer.type, "text/html") != 0);
}

/* Keeps what came of the index, if it is of the state that was listed. */
static void keep_index(struct ofs_http_site *s, struct ofs_http_get *g)
{
	uint32_t file = ofs_keys_find(&s->paths, HIDDEN, strlen(HIDDEN));
	const struct ofs_http_answer *w = &g->answer;
	uint64_t size = w->is.size, end;
	struct ofs_http_version *is;

	if (!has_index(g) || file == OFS_NONE || size == OFS_HTTP_UNTOLD)
		return;
	is = &s->node[file].is;
	if (!ofs_http_same(is, &w->is))
		return;
	/* the rest has to be of it, too */
	if (is->etag[0] == '\0')
		memcpy(is->etag, w->is.etag, sizeof(is->etag));
	end = w->first == 0 && w->last < size ? w->last + 1 : size;
	if (end < size)
		end -= end % OFS_HTTP_BLOCK;
	if (end == 0)
		return;
	ofs_http_blocks_give(s->blocks, file, 0, g->into, (size_t)end);
	g->into = NULL;
}

static int take_answers(struct ofs_http_site *s, uint32_t dir,
    const struct ofs_http_get g[2], struct optimfs_error *err)
{
	if (has_index(&g[1])) {
		if (ofs_http_add(s, dir, HIDDEN, false, &g[1].answer.is, err) ==
		    -1)
			return -1;
	} else if (g[0].err.code == 0 && g[1].err.code != 0 &&
	    g[1].err.number == 922) {
		/* it did not say whether there is one */
		return optimfs_fail_with(err, &g[1].err);
	}
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

/* A directory, and the index in it, of each server. */
struct asking {
	struct ofs_http_site *s;
	uint32_t dir;
	struct ofs_http_get *g; /* two for each server */
	uint8_t *index;         /* INDEX bytes; NULL: it may come later */
	uint8_t byte;           /* of an index, which is not needed */
};

static int ask_host(struct asking *a, uint32_t host, struct optimfs_error *err)
{
	struct ofs_http_site *s = a->s;
	const char *path = ofs_http_path(s, a->dir);
	struct ofs_http_get *g = &a->g[2 * (size_t)host];
	char *url = ofs_http_address(s, host, path, "/", err), *name = NULL,
	     *hidden = NULL;

	g[0] = (struct ofs_http_get){ .url = url,
		.login = &s->login,
		.accept = "application/json, text/html;q=0.9",
		.body = { .limit = OFS_HTTP_LISTING_MOST } };
	if (url == NULL || asprintf(&hidden, "%s" HIDDEN, url) == -1)
		return ofs_no_memory(err);
	g[1] = (struct ofs_http_get){ .url = hidden,
		.name = s->nhosts > 1 ? hidden : HIDDEN,
		.login = &s->login,
		.n = a->index != NULL ? INDEX : 1,
		.into = a->index != NULL ? a->index : &a->byte };
	if (s->nhosts > 1)
		name = strdup(url);
	else if (asprintf(&name, "%s%s%s", s->shown, path[0] == '\0' ? "" : "/",
		     path) == -1)
		name = NULL;
	g[0].name = name;
	return name == NULL ? ofs_no_memory(err) : 0;
}

static void end_host(struct asking *a, uint32_t host)
{
	struct ofs_http_get *g = &a->g[2 * (size_t)host];

	free((char *)g[0].url);
	free((char *)g[0].name);
	free((char *)g[1].url);
	ofs_buf_fini(&g[0].body);
	g[0] = g[1] = (struct ofs_http_get){ .url = NULL };
}

/* The tree of optimfs serve says where its files are. */
static int go_to_files(struct asking *a, uint32_t host, bool *moved,
    struct optimfs_error *err)
{
	struct ofs_http_host *h = &a->s->host[host];
	char *root;

	*moved = a->dir == 0 && a->g[2 * (size_t)host].err.code == 0 &&
	    a->g[2 * (size_t)host].answer.has_files;
	if (!*moved)
		return 0;
	if (asprintf(&root, "%s" OFS_HTTP_FILES, h->root) == -1)
		return ofs_no_memory(err);
	free(h->root);
	h->root = root;
	end_host(a, host);
	return ask_host(a, host, err);
}

/* Asks those again that have their files elsewhere. */
static int ask_moved(struct asking *a, struct optimfs_error *err)
{
	struct ofs_http_site *s = a->s;
	struct ofs_http_get *g =
	    ofs_alloc(2 * (size_t)s->nhosts, sizeof(*g), err);
	uint32_t *of = ofs_alloc(s->nhosts, sizeof(*of), err), n = 0;
	int ret = g == NULL || of == NULL ? -1 : 0;
	bool moved;

	for (uint32_t i = 0; ret == 0 && i < s->nhosts; i++) {
		ret = go_to_files(a, i, &moved, err);
		if (ret == 0 && moved) {
			memcpy(&g[2 * (size_t)n], &a->g[2 * (size_t)i],
			    2 * sizeof(*g));
			of[n++] = i;
		}
	}
	if (ret == 0 && n > 0)
		(void)ofs_http_get(s->http, &s->count, g, 2 * (size_t)n);
	for (uint32_t i = 0; ret == 0 && i < n; i++)
		memcpy(&a->g[2 * (size_t)of[i]], &g[2 * (size_t)i],
		    2 * sizeof(*g));
	free(g);
	free(of);
	return ret;
}

/* The root has to be on all servers, as the user gave their addresses; a directory
 * below it on at least one. */
static int take_all(struct asking *a, struct optimfs_error *err)
{
	struct ofs_http_site *s = a->s;
	struct optimfs_error why;
	uint32_t found = 0;
	int ret = 0;

	for (s->listing = 0; ret == 0 && s->listing < s->nhosts; s->listing++) {
		ret = take_answers(s, a->dir, &a->g[2 * (size_t)s->listing],
		    &why);
		found += ret == 0;
		if (ret == -1 && why.code == ENOENT && s->nhosts > 1 &&
		    a->dir != 0)
			ret = 0;
	}
	s->listing = 0;
	if (ret == -1)
		return optimfs_fail_with(err, &why);
	return found > 0 ? ofs_nodes_compare(s, a->dir, err)
			 : optimfs_fail(err, ENOENT,
			       "OFS019 %s: no server has this directory",
			       ofs_http_path(s, a->dir));
}

static int web_list(struct ofs_http_site *s, uint32_t dir,
    struct optimfs_error *err)
{
	struct asking a = { .s = s, .dir = dir };
	int ret = 0;

	a.g = ofs_alloc(2 * (size_t)s->nhosts, sizeof(*a.g), err);
	if (a.g == NULL)
		return -1;
	/* else it may be on the disk, or on another server */
	if (dir == 0 && s->nhosts == 1 && s->disk == NULL)
		a.index = malloc(INDEX);
	for (uint32_t i = 0; ret == 0 && i < s->nhosts; i++)
		ret = ask_host(&a, i, err);
	if (ret == 0) {
		(void)ofs_http_get(s->http, &s->count, a.g,
		    2 * (size_t)s->nhosts);
		ret = ask_moved(&a, err);
	}
	if (ret == 0) {
		ret = take_all(&a, err);
		if (a.index != NULL) {
			keep_index(s, &a.g[1]);
			a.index = a.g[1].into;
		}
	}
	for (uint32_t i = 0; i < s->nhosts; i++)
		end_host(&a, i);
	free(a.g);
	free(a.index);
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
