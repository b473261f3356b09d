/* open.c - opening what an address names */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "store/http/open.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/str.h"
#include "store/http/client.h"
#include "store/http/nodes.h"
#include "store/http/site.h"
#include "store/http/url.h"

static const struct ofs_http_kind *const kinds[] = {
	&ofs_http_web_tls,
	&ofs_http_web,
	&ofs_http_s3,
	&ofs_http_hub,
};
#define NKINDS (sizeof(kinds) / sizeof(*kinds))

bool ofs_http_is_address(const char *path)
{
	const struct ofs_str s = ofs_str_of(path + strspn(path, "{"));

	for (size_t i = 0; i < NKINDS; i++) {
		struct ofs_str rest = s;

		if (ofs_str_take(&rest, kinds[i]->scheme) &&
		    ofs_str_begins(rest, "://"))
			return true;
	}
	return false;
}

int ofs_http_refuse(const char *path, struct optimfs_error *err)
{
	return !ofs_http_is_address(path)
	    ? 0
	    : optimfs_fail(err, EROFS,
		  "OFS926 %s is on a server, and nothing is written there: give "
		  "a directory of this machine, and copy that",
		  path);
}

static const struct ofs_http_kind *kind_of(const struct ofs_url *url)
{
	for (size_t i = 0; i < NKINDS; i++)
		if (ofs_str_is(url->scheme, kinds[i]->scheme))
			return kinds[i];
	return NULL;
}

/* A brace that is not closed is no address. */
static int parse(const char *address, struct ofs_url *url,
    struct optimfs_error *err)
{
	if (ofs_url_parse(address, url, err) == -1)
		return -1;
	return kind_of(url) != NULL
	    ? 0
	    : optimfs_fail(err, EINVAL, "OFS920 %s: not an address", address);
}

int ofs_http_prepare(const char *address, const struct optimfs_options *options,
    struct optimfs_error *err)
{
	const struct ofs_http_kind *kind;
	bool nodes = ofs_nodes_are(address);
	struct ofs_names names;
	struct ofs_http_limits limits;
	const struct ofs_http *http;
	struct ofs_url url;

	err = OFS_SOME_ERROR(err);
	err->code = 0;
	if (nodes) {
		if (ofs_nodes_expand(address, &names, err) == -1)
			return -1;
		ofs_names_free(&names);
	} else if (parse(address, &url, err) == -1) {
		return -1;
	}
	limits = (struct ofs_http_limits){
		.timeout = ofs_http_timeout(options->timeout),
		.requests = options->requests,
		.range = options->request_size,
	};
	http = ofs_http_client(&limits, err);
	if (http == NULL)
		return -1;
	if (ofs_http_disk(options->cache_dir, options->cache_disk, err) ==
		NULL &&
	    err->code != 0)
		return -1;
	kind = nodes ? NULL : kind_of(&url);
	return kind == NULL || kind->prepare == NULL ? 0
						     : kind->prepare(http, err);
}

static void hold(const struct ofs_http_site *s)
{
	s->names.ops->hold(&s->names);
}

static void let(const struct ofs_http_site *s)
{
	s->names.ops->let(&s->names);
}

/* The bytes of address without slashes at its end. */
static size_t trimmed(const char *address)
{
	size_t n = strlen(address);

	while (n > 0 && address[n - 1] == '/')
		n--;
	return n;
}

/* A site of all servers that a pattern stands for. */
static struct ofs_http_site *nodes_new(const char *address,
    const struct ofs_names *names, unsigned timeout, struct optimfs_error *err)
{
	struct ofs_http_site *s = NULL;
	struct ofs_url url;

	for (size_t i = 0; i < names->n; i++) {
		/* they were parsed before */
		(void)ofs_url_parse(names->name[i], &url, err);
		if (i == 0)
			s = ofs_http_site_new(kind_of(&url), address,
			    trimmed(address), &url, timeout, err);
		if (s == NULL)
			return NULL;
		if (i > 0 && ofs_http_site_add(s, &url, err) == -1) {
			let(s);
			return NULL;
		}
	}
	return s;
}

static int open_nodes(const char *address, unsigned timeout,
    struct ofs_dir *dir, struct optimfs_error *err)
{
	struct ofs_http_site *s;
	struct ofs_names names;

	if (ofs_nodes_expand(address, &names, err) == -1)
		return -1;
	s = nodes_new(address, &names, timeout, err);
	ofs_names_free(&names);
	return s == NULL ? -1
			 : ofs_dir_open_names(&s->names, s->shown, dir, err);
}

/* A site for the directory of url, shown as the first n bytes of address. */
static int open_site(const char *address, size_t n, const struct ofs_url *url,
    unsigned timeout, struct ofs_dir *dir, struct optimfs_error *err)
{
	struct ofs_http_site *s =
	    ofs_http_site_new(kind_of(url), address, n, url, timeout, err);
	char *shown = strndup(address, n);
	int ret = -1;

	if (s != NULL && shown != NULL)
		ret = ofs_dir_open_names(&s->names, shown, dir, err);
	else if (s != NULL) {
		ret = ofs_no_memory(err);
		let(s);
	}
	free(shown);
	return ret;
}

/* The file of url in the directory above it. */
static int open_file(const char *address, const struct ofs_url *url,
    unsigned timeout, struct ofs_dir *dir, char **rel,
    struct optimfs_error *err)
{
	size_t n = trimmed(address), last = n;
	struct ofs_url above = *url;
	char *name;
	int ret = -1;

	while (address[last - 1] != '/')
		last--;
	above.path.len -= (uint32_t)(n - last);
	while (above.path.len > 0 && above.path.p[above.path.len - 1] == '/')
		above.path.len--;
	name = malloc(n - last + 1);
	if (name == NULL)
		return ofs_no_memory(err);
	if (!ofs_url_decode(address + last, n - last, name))
		optimfs_fail(err, EINVAL, "OFS920 %s: not the name of a file",
		    address);
	else
		ret = open_site(address, last - 1, &above, timeout, dir, err);
	if (ret == 0 &&
	    ofs_http_has_file(ofs_http_site_of(dir->names), name, err) == -1) {
		ofs_dir_close(dir);
		ret = -1;
	}
	if (ret == 0)
		*rel = name;
	else
		free(name);
	return ret;
}

static bool may_be_file(const struct ofs_url *url,
    const struct optimfs_error *why)
{
	return !url->is_dir && url->path.len > 0 &&
	    (why->code == ENOENT || why->code == EOPNOTSUPP ||
		why->code == EACCES);
}

/* A run is opened, then its checkpoints, or a directory and then the run that it
 * is: the last site is kept for a moment, so that it is not listed again. */
#define KEPT_MS 60000
#define IDLE_MS 5000

static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ofs_http_site *kept;
static int64_t kept_ms, used_ms;

static void keep_site(const struct ofs_namespace *names)
{
	struct ofs_http_site *old;

	pthread_mutex_lock(&kept_lock);
	old = kept;
	kept = ofs_http_site_of(names);
	hold(kept);
	kept_ms = used_ms = ofs_clock_ms();
	pthread_mutex_unlock(&kept_lock);
	if (old != NULL)
		let(old);
}

/* Names in its path are escaped. */
static bool is_web(const char *address)
{
	return strncmp(address + strspn(address, "{"), "http", 4) == 0;
}

/* The path of an address in a site, malloc'ed; NULL: it is not in it. */
static char *path_in(const struct ofs_http_site *s, const char *address)
{
	size_t n = strlen(s->shown), len = trimmed(address);
	char *path;

	if (len < n || strncmp(address, s->shown, n) != 0 ||
	    (len > n && address[n] != '/'))
		return NULL;
	n += strspn(address + n, "/");
	path = malloc(strlen(address) + 1);
	if (path == NULL || len <= n) {
		if (path != NULL)
			path[0] = '\0';
	} else if (!is_web(address)) {
		memcpy(path, address + n, len - n);
		path[len - n] = '\0';
	} else if (!ofs_url_decode(address + n, len - n, path)) {
		free(path);
		path = NULL;
	}
	return path;
}

/* The site that was kept, with a reference, if address is in it. */
static struct ofs_http_site *kept_site(const char *address, char **path)
{
	int64_t now = ofs_clock_ms();
	struct ofs_http_site *s;

	pthread_mutex_lock(&kept_lock);
	s = kept;
	if (s != NULL &&
	    (s->http != ofs_http_client(&s->http->limits, NULL) ||
		now - kept_ms > KEPT_MS || now - used_ms > IDLE_MS))
		s = NULL;
	*path = s == NULL ? NULL : path_in(s, address);
	if (*path == NULL)
		s = NULL;
	if (s != NULL) {
		hold(s);
		used_ms = now;
	}
	pthread_mutex_unlock(&kept_lock);
	return s;
}

/* Opens a directory of the site that was kept; false: it has none there. */
static bool open_kept(const char *address, struct ofs_dir *dir)
{
	struct ofs_dir root;
	char *path, *shown = strndup(address, trimmed(address));
	struct ofs_http_site *s = kept_site(address, &path);
	bool is = false;

	if (s != NULL && shown != NULL &&
	    ofs_dir_open_names(&s->names, s->shown, &root, NULL) == 0) {
		is = path[0] == '\0'
		    ? ofs_dir_copy(&root, dir, NULL) == 0
		    : ofs_dir_open_sub(&root, path, dir, NULL) == 0;
		ofs_dir_close(&root);
	} else if (s != NULL && shown == NULL) {
		let(s);
	}
	if (is) { /* as it was given */
		free(dir->path);
		dir->path = shown;
		shown = NULL;
	}
	free(shown);
	free(path);
	return is;
}

/* Lists it, which shows whether it is a directory. */
static int list_root(struct ofs_dir *dir, struct optimfs_error *err)
{
	struct ofs_names names;

	if (ofs_dir_list(dir, &names, err) == -1) {
		ofs_dir_close(dir);
		return -1;
	}
	ofs_names_free(&names);
	return 0;
}

int ofs_http_open_dir(const char *address, unsigned timeout,
    struct ofs_dir *dir, struct optimfs_error *err)
{
	struct ofs_url url;

	int ret;

	if (open_kept(address, dir))
		return 0;
	if (ofs_nodes_are(address))
		ret = open_nodes(address, timeout, dir, err);
	else
		ret = parse(address, &url, err) == -1
		    ? -1
		    : open_site(address, trimmed(address), &url, timeout, dir,
			  err);
	if (ret == -1 || list_root(dir, err) == -1)
		return -1;
	keep_site(dir->names);
	return 0;
}

int ofs_http_open(const char *address, unsigned timeout, struct ofs_dir *dir,
    char **rel, struct optimfs_error *err)
{
	struct optimfs_error why = { 0 }, none = { 0 };
	bool nodes = ofs_nodes_are(address);
	struct ofs_url url;

	if (!nodes && parse(address, &url, err) == -1)
		return -1;
	if (ofs_http_open_dir(address, timeout, dir, &why) == 0) {
		*rel = strdup("");
		if (*rel != NULL)
			return 0;
		ofs_dir_close(dir);
		return ofs_no_memory(err);
	}
	if (nodes || !may_be_file(&url, &why))
		return optimfs_fail_with(err, &why);
	if (open_file(address, &url, timeout, dir, rel, &none) == 0)
		return 0;
	/* that it is no file says less than why it is no directory, unless there
	 * is none, and the file is closed */
	return optimfs_fail_with(err,
	    none.code == ENOENT || (none.code == EACCES && why.code != ENOENT)
		? &why
		: &none);
}

char *ofs_http_below(const char *address, const char *name)
{
	struct ofs_buf b = { 0 };

	ofs_buf_put(&b, address, trimmed(address));
	ofs_buf_putc(&b, '/');
	if (is_web(address))
		ofs_url_escape(&b, name, strlen(name));
	else
		ofs_buf_puts(&b, name);
	return ofs_buf_text(&b, NULL);
}
