/* site.c - a directory on a server, and all below it */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "store/http/site.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "store/http/fetch.h"
#include "store/http/nodes.h"
#include "store/http/transport.h"

/* A server that does not answer is not asked again at once by each name. */
#define PATIENCE_MS 5000
/* Files whose sizes are asked for at once. */
#define ASK_MOST 256
/* The most names of a site. */
#define NAMES_MOST (1u << 22)

/* Names. The lock is held. */

static uint32_t add_path(struct ofs_http_site *s, const char *path,
    uint32_t parent, struct optimfs_error *err)
{
	uint32_t n = s->paths.n, i;

	if (n == NAMES_MOST) {
		optimfs_fail(err, E2BIG, "OFS440 %s: more than %u names",
		    s->shown, NAMES_MOST);
		return OFS_NONE;
	}
	if (ofs_grow(s->node, n, s->cap, err) == -1)
		return OFS_NONE;
	i = ofs_keys_copy(&s->paths, path, strlen(path), err);
	if (i != n)
		return i;
	s->node[i] = (struct ofs_http_node){
		.parent = parent,
		.child = OFS_NONE,
		.next = OFS_NONE,
		.host = s->listing,
		.copy = OFS_NONE,
		.is.size = OFS_HTTP_UNTOLD,
	};
	if (parent != OFS_NONE) {
		s->node[i].next = s->node[parent].child;
		s->node[parent].child = i;
	}
	return i;
}

/* Could a file here have this name? */
static bool is_name(const char *name)
{
	size_t n = strlen(name);

	if (n == 0 || n > 255 || strchr(name, '/') != NULL ||
	    !ofs_path_stays(name, n))
		return false;
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)name[i] < 32 || name[i] == 127)
			return false;
	return true;
}

int ofs_http_add(struct ofs_http_site *s, uint32_t dir, const char *name,
    bool is_dir, const struct ofs_http_version *is, struct optimfs_error *err)
{
	struct ofs_http_node *node;
	uint32_t i;
	char *path;

	if (!is_name(name) ||
	    strlen(name) + strlen(ofs_http_path(s, dir)) > 4000)
		return 0;
	path = ofs_path_join(ofs_http_path(s, dir), name);
	if (path == NULL)
		return ofs_no_memory(err);
	i = add_path(s, path, dir, err);
	free(path);
	if (i == OFS_NONE)
		return -1;
	node = &s->node[i];
	if (node->what == OFS_HTTP_DIR)
		return 0;
	if (node->what == OFS_HTTP_FILE && node->host != s->listing)
		return is_dir ? 0 : ofs_nodes_add_copy(s, i, is, err);
	node->host = s->listing;
	node->what = is_dir ? OFS_HTTP_DIR : OFS_HTTP_FILE;
	/* a listing may tell less than is known */
	if (is != NULL && is->size != OFS_HTTP_UNTOLD)
		node->is = *is;
	return 0;
}

int ofs_http_add_path(struct ofs_http_site *s, uint32_t dir, const char *path,
    bool is_dir, const struct ofs_http_version *is, struct optimfs_error *err)
{
	char name[256];
	const char *slash;

	while ((slash = strchr(path, '/')) != NULL) {
		size_t n = (size_t)(slash - path);
		char *below;

		if (n == 0 || n >= sizeof(name))
			return 0;
		memcpy(name, path, n);
		name[n] = '\0';
		if (ofs_http_add(s, dir, name, true, NULL, err) == -1)
			return -1;
		below = ofs_path_join(ofs_http_path(s, dir), name);
		if (below == NULL)
			return ofs_no_memory(err);
		dir = ofs_keys_find(&s->paths, below, strlen(below));
		free(below);
		if (dir == OFS_NONE) /* it was passed over */
			return 0;
		path = slash + 1;
	}
	return path[0] == '\0' ? 0
			       : ofs_http_add(s, dir, path, is_dir, is, err);
}

void ofs_http_all_listed(struct ofs_http_site *s)
{
	for (uint32_t i = 0; i < s->paths.n; i++)
		if (s->node[i].what == OFS_HTTP_DIR)
			s->node[i].listed = true;
}

char *ofs_http_address(const struct ofs_http_site *s, uint32_t host,
    const char *path, const char *end, struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };

	ofs_buf_puts(&b, s->host[host].root);
	ofs_url_escape(&b, path, strlen(path));
	if (path[0] != '\0')
		ofs_buf_puts(&b, end);
	return ofs_buf_text(&b, err);
}

/* Sizes. */

static void learn(struct ofs_http_site *s, uint32_t i,
    const struct ofs_http_get *g)
{
	struct ofs_http_node *node = &s->node[i];

	if (g->err.code == ENOENT)
		node->what = OFS_HTTP_ABSENT;
	else if (g->err.code == 0)
		node->is = g->answer.is;
}

/* Asks for a byte of each of n files, n at most ASK_MOST: also a server that
 * allows nothing but to read then tells the size, and whether it has ranges. */
static void ask_sizes(struct ofs_http_site *s, const uint32_t *file, size_t n,
    struct ofs_http_get *g)
{
	uint8_t byte[ASK_MOST];

	for (size_t i = 0; i < n; i++) {
		const char *path = ofs_http_path(s, file[i]);

		g[i] = (struct ofs_http_get){
			.url = ofs_http_address(s, s->node[file[i]].host, path,
			    "", &g[i].err),
			.name = path,
			.login = &s->login,
			.n = 1,
			.into = &byte[i],
		};
	}
	for (size_t i = 0; i < n; i++)
		if (g[i].url == NULL)
			ofs_no_memory(&g[0].err);
	if (g[0].err.code == 0)
		(void)ofs_http_get(s->http, &s->count, g, n);
	for (size_t i = 0; i < n; i++) {
		learn(s, file[i], &g[i]);
		free((char *)g[i].url);
	}
}

static bool is_untold(const struct ofs_http_node *node)
{
	return node->what == OFS_HTTP_FILE && node->is.size == OFS_HTTP_UNTOLD;
}

/* Whoever needs the size of one file will need those of the others beside it. */
static int find_size(struct ofs_http_site *s, uint32_t i,
    struct optimfs_error *err)
{
	struct ofs_http_get *g = calloc(ASK_MOST, sizeof(*g));
	uint32_t file[ASK_MOST] = { i };
	size_t n = 1;
	int ret = 0;

	if (g == NULL)
		return ofs_no_memory(err);
	for (uint32_t k = s->node[s->node[i].parent].child;
	     k != OFS_NONE && n < ASK_MOST; k = s->node[k].next)
		if (k != i && is_untold(&s->node[k]))
			file[n++] = k;
	ask_sizes(s, file, n, g);
	if (g[0].err.code != 0 && g[0].err.code != ENOENT)
		ret = optimfs_fail_with(err, &g[0].err);
	else if (is_untold(&s->node[i]))
		ret = optimfs_fail(err, EIO,
		    "OFS924 %s: the server does not say how long it is",
		    ofs_http_path(s, i));
	free(g);
	return ret;
}

/* Directories. */

static int keep_why(struct ofs_http_node *node, const struct optimfs_error *why)
{
	if (node->why == NULL)
		node->why = malloc(sizeof(*why));
	if (node->why != NULL)
		*node->why = *why;
	node->why_ms = ofs_clock_ms();
	return -1;
}

/* A directory that cannot be listed, but has a name that was asked for. */
static bool has_children(const struct ofs_http_site *s, uint32_t dir)
{
	uint32_t k = s->node[dir].child;

	while (k != OFS_NONE && s->node[k].what == OFS_HTTP_ABSENT)
		k = s->node[k].next;
	return k != OFS_NONE;
}

static int list_dir(struct ofs_http_site *s, uint32_t dir,
    struct optimfs_error *err)
{
	struct optimfs_error why = { 0 };
	struct ofs_http_node *node = &s->node[dir];
	int ret;

	if (node->listed)
		return 0;
	if (node->why != NULL && ofs_clock_ms() - node->why_ms < PATIENCE_MS)
		return optimfs_fail_with(err, node->why);
	ret = s->kind->list(s, dir, &why);
	node = &s->node[dir];
	/* of several servers each has to say what it has */
	if (ret == -1 && s->nhosts == 1 && has_children(s, dir) &&
	    (why.code == EOPNOTSUPP || why.code == EACCES ||
		why.code == ENOENT)) {
		node->partly = true;
		ret = 0;
	}
	node->listed = ret == 0;
	if (ret == -1) {
		keep_why(node, &why);
		return optimfs_fail_with(err, &why);
	}
	return 0;
}

/* Asks the server for a name that no listing has. */
static uint32_t ask_for(struct ofs_http_site *s, uint32_t dir, const char *path,
    struct optimfs_error *err)
{
	struct ofs_http_get g = { .err = { 0 } };
	uint32_t i = add_path(s, path, dir, err);

	if (i == OFS_NONE)
		return OFS_NONE;
	ask_sizes(s, &i, 1, &g);
	if (g.err.code == 0)
		s->node[i].what = OFS_HTTP_FILE;
	else if (g.err.code != ENOENT) {
		optimfs_fail_with(err, &g.err);
		return OFS_NONE;
	}
	return i;
}

/* The number of a path, which may be one of what is absent; OFS_NONE: none, or
 * with err->code it is not known. */
static uint32_t find_path(struct ofs_http_site *s, const char *path,
    struct optimfs_error *err)
{
	char part[4096];
	uint32_t dir = 0;

	err->code = 0;
	if (strlen(path) >= sizeof(part))
		return OFS_NONE;
	for (size_t n = 0;; n++) {
		uint32_t i;

		n += strcspn(path + n, "/");
		memcpy(part, path, n);
		part[n] = '\0';
		if (n == 0)
			return 0;
		i = ofs_keys_find(&s->paths, part, n);
		if (i == OFS_NONE && list_dir(s, dir, err) == -1) {
			/* then nothing in it exists either */
			if (err->code == ENOENT)
				err->code = 0;
			return OFS_NONE;
		}
		if (i == OFS_NONE)
			i = ofs_keys_find(&s->paths, part, n);
		if (i == OFS_NONE && s->node[dir].partly && path[n] == '\0')
			i = ask_for(s, dir, part, err);
		if (i == OFS_NONE || path[n] == '\0')
			return i;
		if (s->node[i].what != OFS_HTTP_DIR)
			return OFS_NONE;
		dir = i;
	}
}

/* A number for st_ino: the same as long as the file is the same. */
static uint64_t ino_of(const struct ofs_http_site *s, uint32_t i)
{
	const struct ofs_http_version *is = &s->node[i].is;
	const char *path = ofs_http_path(s, i);

	return XXH64(path, strlen(path),
	    XXH64(is->etag, strlen(is->etag), is->size));
}

/* Whoever mounts says who may read, and only he has asked the server. */
static void describe(struct ofs_http_site *s, uint32_t i, struct stat *st)
{
	struct ofs_http_node *node = &s->node[i];
	const struct ofs_http_version *is = &node->is;

	/* what is learned later is no change of the file */
	if (node->ino == 0) {
		node->ino = ino_of(s, i);
		node->mtime_ns = is->modified_ns;
	}
	*st = (struct stat){
		.st_mode = S_IFREG | 0400,
		.st_nlink = 1,
		.st_uid = geteuid(),
		.st_gid = getegid(),
		.st_ino = node->ino,
		.st_size = (off_t)is->size,
		.st_blocks = (blkcnt_t)((is->size + 511) / 512),
		.st_mtim = { .tv_sec = node->mtime_ns / 1000000000,
		    .tv_nsec = node->mtime_ns % 1000000000 },
	};
	st->st_ctim = st->st_mtim;
}

static enum ofs_where where_is(struct ofs_http_site *s, const char *path,
    uint32_t *file, struct stat *st, struct optimfs_error *err)
{
	uint32_t i = find_path(s, path, err);

	if (i == OFS_NONE)
		return err->code != 0 ? OFS_UNKNOWN : OFS_NOWHERE;
	if (is_untold(&s->node[i]) && find_size(s, i, err) == -1)
		return OFS_UNKNOWN;
	switch (s->node[i].what) {
	case OFS_HTTP_ABSENT:
		return OFS_NOWHERE;
	case OFS_HTTP_DIR:
		return OFS_DIRECTORY;
	case OFS_HTTP_FILE:
		break;
	}
	*file = i;
	if (st != NULL)
		describe(s, i, st);
	return OFS_THERE;
}

static enum ofs_where site_find(const struct ofs_namespace *names,
    const char *path, uint32_t *file, struct stat *st,
    struct optimfs_error *err)
{
	struct ofs_http_site *s = ofs_http_site_of(names);
	enum ofs_where where;

	pthread_mutex_lock(&s->lock);
	where = where_is(s, path, file, st, OFS_SOME_ERROR(err));
	pthread_mutex_unlock(&s->lock);
	return where;
}

static int list_path(struct ofs_http_site *s, const char *path,
    int (*add)(void *ctx, const char *name, size_t n), void *ctx,
    struct optimfs_error *err)
{
	uint32_t dir = find_path(s, path, err);

	if (dir == OFS_NONE)
		return err->code != 0
		    ? -1
		    : optimfs_fail(err, ENOENT,
			  "OFS019 %s/%s: no such directory", s->shown, path);
	if (list_dir(s, dir, err) == -1)
		return -1;
	for (uint32_t k = s->node[dir].child; k != OFS_NONE;
	     k = s->node[k].next) {
		const char *name = ofs_path_last(ofs_http_path(s, k));

		if (s->node[k].what != OFS_HTTP_ABSENT &&
		    add(ctx, name, strlen(name)) == -1)
			return ofs_no_memory(err);
	}
	return 0;
}

static int site_list(const struct ofs_namespace *names, const char *path,
    int (*add)(void *ctx, const char *name, size_t n), void *ctx,
    struct optimfs_error *err)
{
	struct ofs_http_site *s = ofs_http_site_of(names);
	int ret;

	pthread_mutex_lock(&s->lock);
	ret = list_path(s, path, add, ctx, OFS_SOME_ERROR(err));
	pthread_mutex_unlock(&s->lock);
	return ret;
}

static int site_read(const struct ofs_namespace *names, uint32_t file,
    void *buf, uint64_t n, uint64_t off, struct optimfs_error *err)
{
	struct ofs_http_site *s = ofs_http_site_of(names);
	const struct ofs_segment seg = {
		.object = file, .src = off, .len = n, .n = 1
	};
	struct ofs_http_version is;
	const char *path = ofs_http_version(s, file, &is);

	if (off > is.size || n > is.size - off)
		return ofs_fail_lost(err, EIO, OPTIMFS_LOST_SHORT, "OFS603",
		    path,
		    " is short: %" PRIu64 " bytes, %" PRIu64 " at %" PRIu64
		    " are needed",
		    is.size, n, off);
	return n == 0 ? 0 : ofs_http_read(s, &seg, 1, buf, err);
}

const char *ofs_http_version(struct ofs_http_site *s, uint32_t file,
    struct ofs_http_version *is)
{
	const char *path;

	pthread_mutex_lock(&s->lock);
	path = ofs_http_path(s, file);
	*is = s->node[file].is;
	pthread_mutex_unlock(&s->lock);
	return path;
}

bool ofs_http_asks_tag(struct ofs_http_site *s, uint32_t file)
{
	struct ofs_http_node *node;
	bool asks;

	pthread_mutex_lock(&s->lock);
	node = &s->node[file];
	asks = !node->asked && !s->pinned && node->is.etag[0] == '\0';
	node->asked = true;
	pthread_mutex_unlock(&s->lock);
	return asks;
}

int ofs_http_confirm(struct ofs_http_site *s, uint32_t file, uint32_t host,
    struct ofs_http_version *is, struct optimfs_error *err)
{
	struct ofs_http_version *was;
	const char *path;
	bool same;

	pthread_mutex_lock(&s->lock);
	was = ofs_nodes_state(s, file, host);
	path = ofs_http_path(s, file);
	same = was != NULL && ofs_http_same(was, is);
	if (same && !s->pinned && was->etag[0] == '\0')
		memcpy(was->etag, is->etag, sizeof(was->etag));
	if (same && !s->pinned && was->modified_ns == 0)
		was->modified_ns = is->modified_ns;
	if (same)
		*is = *was;
	pthread_mutex_unlock(&s->lock);
	return same ? 0
		    : optimfs_fail(err, ESTALE,
			  "OFS751 %s: it was replaced on the server since; "
			  "open or mount the checkpoint again",
			  path);
}

/* Opening and closing. */

static void site_hold(const struct ofs_namespace *names)
{
	atomic_fetch_add(&ofs_http_site_of(names)->refs, 1);
}

static void site_let(const struct ofs_namespace *names)
{
	struct ofs_http_site *s = ofs_http_site_of(names);

	if (atomic_fetch_sub(&s->refs, 1) > 1)
		return;
	for (uint32_t i = 0; i < s->nhosts; i++)
		free(s->host[i].root);
	free(s->host);
	free(s->copy);
	for (uint32_t i = 0; i < s->paths.n; i++)
		free(s->node[i].why);
	free(s->node);
	ofs_keys_fini(&s->paths);
	ofs_http_blocks_free(s->blocks);
	pthread_mutex_destroy(&s->lock);
	free(s->base);
	free(s->prefix);
	free(s->shown);
	free(s);
}

static const struct ofs_namespace_ops site_ops = {
	.find = site_find,
	.list = site_list,
	.read = site_read,
	.transport = ofs_http_transport,
	.hold = site_hold,
	.let = site_let,
};

int ofs_http_site_add(struct ofs_http_site *s, const struct ofs_url *url,
    struct optimfs_error *err)
{
	char *root = NULL;

	if (ofs_grow(s->host, s->nhosts, s->host_cap, err) == -1)
		return -1;
	if (s->kind->open(s, url, &root, err) == -1) {
		free(root);
		return -1;
	}
	s->host[s->nhosts++] = (struct ofs_http_host){ .root = root };
	return 0;
}

struct ofs_http_site *ofs_http_site_new(const struct ofs_http_kind *kind,
    const char *address, size_t n, const struct ofs_url *url, unsigned timeout,
    struct optimfs_error *err)
{
	const struct ofs_http_limits limits = { .timeout = timeout };
	const struct ofs_http *http = ofs_http_client(&limits, err);
	struct ofs_http_site *s;

	if (http == NULL)
		return NULL;
	s = ofs_alloc(1, sizeof(*s), err);
	if (s == NULL)
		return NULL;
	s->names.ops = &site_ops;
	s->kind = kind;
	s->http = http;
	s->refs = 1;
	pthread_mutex_init(&s->lock, NULL);
	s->shown = strndup(address, n);
	s->blocks = ofs_http_blocks_new(OFS_HTTP_BLOCKS_MOST, err);
	s->disk = ofs_http_disk(NULL, 0, err);
	if (s->shown != NULL && s->blocks != NULL &&
	    (s->kind->prepare == NULL || s->kind->prepare(http, err) == 0) &&
	    ofs_http_site_add(s, url, err) == 0 &&
	    add_path(s, "", OFS_NONE, err) == 0) {
		s->node[0].what = OFS_HTTP_DIR;
		return s;
	}
	if (s->shown == NULL)
		ofs_no_memory(err);
	site_let(&s->names);
	return NULL;
}

int ofs_http_has_file(struct ofs_http_site *s, const char *name,
    struct optimfs_error *err)
{
	uint32_t i;
	bool is;

	if (!is_name(name))
		return optimfs_fail(err, EINVAL,
		    "OFS920 %s/%s: not the name of a file", s->shown, name);
	pthread_mutex_lock(&s->lock);
	i = ask_for(s, 0, name, err);
	is = i != OFS_NONE && s->node[i].what == OFS_HTTP_FILE;
	pthread_mutex_unlock(&s->lock);
	if (i != OFS_NONE && !is)
		optimfs_fail(err, ENOENT,
		    "OFS019 %s/%s: the server has no such file or directory",
		    s->shown, name);
	return is ? 0 : -1;
}
