/* manifest.c - the files of a checkpoint that is spread over ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cluster/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/search.h"
#include "cluster/relay.h"
#include "cluster/transport.h"
#include "store/local.h"

/* Memory for data decoded for other ranks. */
#define DECODED ((uint64_t)256 << 20)
/* Limit of the depth of directories. */
#define MAX_DEPTH 16

/* Listing local files. */

struct scan {
	struct ofs_manifest *s;
	struct ofs_names dirs; /* directories, "" first */
	struct optimfs_error *err;
};

static unsigned depth(const char *rel)
{
	unsigned n = 0;

	for (; *rel != '\0'; rel++)
		n += *rel == '/';
	return n;
}

/* Skips directories that start with a dot, such as staging areas and those of
 * version control. */
static int add(struct scan *scan, const char *rel, const char *name)
{
	struct ofs_manifest *s = scan->s;
	struct stat st;

	if (!ofs_dir_stat(&s->dir, rel, &st))
		return 0; /* removed meanwhile */
	if (!S_ISDIR(st.st_mode))
		return ofs_catalog_object(s->files, rel, -1, scan->err) ==
			OFS_NONE
		    ? -1
		    : 0;
	if (name[0] == '.' || s->rel[0] != '\0' || depth(rel) >= MAX_DEPTH)
		return 0;
	return ofs_names_add(&scan->dirs, rel, strlen(rel), scan->err);
}

static int scan_directory(struct scan *scan, const char *rel)
{
	struct ofs_names names;
	char path[4096 + 256];
	int ret = 0;

	if (ofs_dir_list_sub(&scan->s->dir, rel, &names, scan->err) == -1)
		return -1;
	for (size_t i = 0; i < names.n && ret == 0; i++) {
		int n = snprintf(path, sizeof(path), "%s%s%s", rel,
		    rel[0] == '\0' ? "" : "/", names.name[i]);

		if ((size_t)n < sizeof(path))
			ret = add(scan, path, names.name[i]);
	}
	ofs_names_free(&names);
	return ret;
}

static int scan_all(struct ofs_manifest *s, struct optimfs_error *err)
{
	struct scan scan = { .s = s, .err = err };
	int ret = ofs_names_add(&scan.dirs, "", 0, err);

	for (size_t i = 0; ret == 0 && i < scan.dirs.n; i++)
		ret = scan_directory(&scan, scan.dirs.name[i]);
	ofs_names_free(&scan.dirs);
	return ret;
}

/* Opens the directory at path, or the parent of a file. If nothing exists
 * there, dir has no descriptor, which is not an error. */
static int open_here(struct ofs_manifest *s, const char *path,
    struct optimfs_error *err)
{
	char *real = realpath(path, NULL), *slash;
	struct stat st;
	int ret = 0;

	s->rel = "";
	s->dir.path = strdup(real == NULL ? path : real);
	if (s->dir.path == NULL)
		ret = ofs_no_memory(err);
	else if (real == NULL && errno != ENOENT && errno != ENOTDIR)
		ret = optimfs_fail(err, errno, "%s: %m", path);
	if (real == NULL || ret == -1)
		goto out;
	if (stat(real, &st) == -1) {
		ret = optimfs_fail(err, errno, "%s: %m", path);
		goto out;
	}
	if (!S_ISDIR(st.st_mode)) {
		slash = strrchr(real, '/');
		s->rel =
		    ofs_arena_strndup(&s->arena, slash + 1, strlen(slash + 1));
		slash[slash == real] = '\0';
	}
	free(s->dir.path);
	s->dir = (struct ofs_dir){ .fd = -1 };
	ret = s->rel == NULL ? ofs_no_memory(err)
			     : ofs_dir_open(real, &s->dir, err);
out:
	free(real);
	return ret;
}

/* Opens it again, because it may have been changed meanwhile. */
static int open_dir(struct ofs_manifest *s, const char *path,
    struct optimfs_error *err)
{
	bool follow = s->dir.follow;
	int ret;

	ofs_dir_close(&s->dir);
	if (!s->first || s->group->rank == 0) {
		ret = open_here(s, path, err);
	} else {
		s->rel = "";
		s->dir.path = strdup(path);
		ret = s->dir.path == NULL ? ofs_no_memory(err) : 0;
	}
	s->dir.follow = follow;
	return ret;
}

static int open_offered(struct ofs_manifest *s, struct optimfs_error *err)
{
	char *path = optimfs_group_expand(s->group, s->path, err);
	int ret = path == NULL ? -1 : open_dir(s, path, err);

	free(path);
	return ret;
}

static int scan_here(struct ofs_manifest *s, struct optimfs_error *err)
{
	struct ofs_dir copy;

	if (ofs_dir_copy(&s->dir, &copy, err) == -1)
		return -1;
	s->files = ofs_catalog_new(&copy, err);
	ofs_dir_close(&copy);
	if (s->files == NULL || (s->dir.fd != -1 && scan_all(s, err) == -1) ||
	    ofs_catalog_finish(s->files, err) == -1)
		return -1;
	s->transport = ofs_transport_local(s->files, s->cache, err);
	return s->transport == NULL ? -1 : 0;
}

int ofs_manifest_scan(struct ofs_manifest *s, struct optimfs_error *err)
{
	return open_offered(s, err) == -1 ? -1 : scan_here(s, err);
}

/* For readers of indexes. */

static int compare_path(const void *key, const void *item)
{
	const struct ofs_manifest_file *f = item;

	return strcmp(key, f->path);
}

/* The first file at or after path in the order of paths. */
static uint32_t lower_bound(const struct ofs_manifest *s, const char *path)
{
	return (uint32_t)ofs_lower_bound(path, s->file, s->nfiles,
	    sizeof(*s->file), compare_path);
}

uint32_t ofs_manifest_find(const struct ofs_manifest *s, const char *path)
{
	uint32_t i = lower_bound(s, path);

	return i < s->nfiles && strcmp(s->file[i].path, path) == 0 ? i
								   : OFS_NONE;
}

bool ofs_manifest_avoids(const struct ofs_manifest *s,
    const struct ofs_avoid *avoid, int rank)
{
	for (size_t i = 0; avoid != NULL && i < avoid->n; i++)
		if (avoid->rank[i] == rank)
			return true;
	return s->group->ops->dead(s->group->w, rank);
}

const struct ofs_owner *ofs_manifest_choose(const struct ofs_manifest *s,
    uint32_t file, uint64_t stripe, const struct ofs_avoid *avoid)
{
	const struct ofs_manifest_file *f = &s->file[file];
	const struct ofs_owner *o = s->owner + f->owner;
	uint64_t start = stripe + file + (uint64_t)s->group->rank;

	for (uint32_t i = 0; i < f->nowners; i++) {
		const struct ofs_owner *c = &o[(start + i) % f->nowners];

		if (!ofs_manifest_avoids(s, avoid, c->rank))
			return c;
	}
	return o;
}

static void describe(const struct ofs_object *o, struct stat *st)
{
	*st = (struct stat){
		.st_mode = o->refused ? 0 : o->stamp.mode,
		.st_size = (off_t)o->size,
		.st_ino = o->ino,
		.st_nlink = o->stamp.nlink,
		.st_uid = o->stamp.uid,
		.st_gid = o->stamp.gid,
		.st_blocks = (blkcnt_t)(o->blocks / 512),
		.st_mtim = { .tv_sec = o->mtime_ns / 1000000000,
		    .tv_nsec = o->mtime_ns % 1000000000 },
		.st_ctim = { .tv_sec = o->stamp.ctime_ns / 1000000000,
		    .tv_nsec = o->stamp.ctime_ns % 1000000000 },
	};
}

/* The first file below a directory; nfiles: none. */
static uint32_t first_below(const struct ofs_manifest *s, const char *path)
{
	char dir[2 * 4096 + 4];
	size_t n = (size_t)snprintf(dir, sizeof(dir), "%s%s", path,
	    path[0] == '\0' ? "" : "/");
	uint32_t i;

	if (n >= sizeof(dir))
		return s->nfiles;
	i = lower_bound(s, dir);
	return i < s->nfiles && strncmp(s->file[i].path, dir, n) == 0
	    ? i
	    : s->nfiles;
}

static enum ofs_where find(const struct ofs_namespace *e, const char *path,
    uint32_t *file, struct stat *st, struct optimfs_error *err)
{
	const struct ofs_manifest *s = ofs_manifest_of(e);
	uint32_t i = ofs_manifest_find(s, path);

	(void)err;
	if (i != OFS_NONE) {
		*file = i;
		if (s->file[i].here)
			return OFS_HERE;
		if (st != NULL)
			describe(&s->file[i].o, st);
		return OFS_THERE;
	}
	return first_below(s, path) < s->nfiles ? OFS_DIRECTORY : OFS_NOWHERE;
}

static int list(const struct ofs_namespace *e, const char *path,
    int (*each)(void *ctx, const char *name, size_t n), void *ctx,
    struct optimfs_error *err)
{
	const struct ofs_manifest *s = ofs_manifest_of(e);
	size_t skip = path[0] == '\0' ? 0 : strlen(path) + 1;

	for (uint32_t i = first_below(s, path); i < s->nfiles; i++) {
		const char *name = s->file[i].path + skip;

		if (skip != 0 && strncmp(s->file[i].path, path, skip - 1) != 0)
			break;
		if (skip != 0 && s->file[i].path[skip - 1] != '/')
			break;
		if (each(ctx, name, strcspn(name, "/")) == -1)
			return ofs_no_memory(err);
	}
	return 0;
}

static int read_there(const struct ofs_namespace *e, uint32_t file, void *buf,
    uint64_t n, uint64_t off, struct optimfs_error *err)
{
	const struct ofs_manifest *s = ofs_manifest_of(e);
	const struct ofs_object *o = &s->file[file].o;

	if (off > o->size || n > o->size - off)
		return ofs_fail_lost(err, EIO, OPTIMFS_LOST_SHORT, "OFS603",
		    s->file[file].path,
		    " is short: %" PRIu64 " bytes, %" PRIu64 " at %" PRIu64
		    " are needed",
		    o->size, n, off);
	return ofs_relay_read(ofs_manifest_of(e), file, buf, n, off, err);
}

static struct ofs_transport *open_transport(const struct ofs_namespace *e,
    const struct ofs_catalog *cat, uint64_t cache, struct optimfs_error *err)
{
	return ofs_transport_group(cat, ofs_manifest_of(e), cache, err);
}

static const struct ofs_namespace_ops namespace_ops = {
	.find = find,
	.list = list,
	.read = read_there,
	.transport = open_transport,
};

int ofs_manifest_dir(const struct ofs_manifest *s, struct ofs_dir *dir,
    char **rel, struct optimfs_error *err)
{
	*rel = strdup(s->rel);
	if (*rel == NULL)
		return ofs_no_memory(err);
	if (ofs_dir_copy(&s->dir, dir, err) == 0) {
		dir->names = &s->names;
		return 0;
	}
	free(*rel);
	*rel = NULL;
	return -1;
}

char *ofs_manifest_here(const struct ofs_manifest *s, struct optimfs_error *err)
{
	char *path = NULL;

	if (s->rel[0] == '\0')
		path = strdup(s->dir.path);
	else if (asprintf(&path, "%s/%s", s->dir.path, s->rel) == -1)
		path = NULL;
	if (path == NULL)
		ofs_no_memory(err);
	return path;
}

static void manifest_free(struct ofs_manifest *s)
{
	ofs_relay_free(s->relay);
	ofs_transport_close(s->transport);
	ofs_catalog_free(s->files);
	ofs_dir_close(&s->dir);
	ofs_arena_fini(&s->arena);
	free(s->file);
	free(s->owner);
	free(s->path);
	free(s);
}

struct ofs_manifest *ofs_manifest_hold(struct ofs_manifest *s)
{
	pthread_mutex_lock(&s->group->lock);
	s->refs++;
	pthread_mutex_unlock(&s->group->lock);
	return s;
}

void ofs_manifest_let(struct ofs_manifest *s)
{
	bool last;

	if (s == NULL)
		return;
	pthread_mutex_lock(&s->group->lock);
	last = --s->refs == 0;
	pthread_mutex_unlock(&s->group->lock);
	if (last)
		manifest_free(s);
}

static struct ofs_manifest *manifest_new(struct optimfs_group *w,
    const char *path, struct optimfs_error *err)
{
	struct ofs_manifest *s = ofs_alloc(1, sizeof(*s), err);

	if (s == NULL)
		return NULL;
	s->names.ops = &namespace_ops;
	s->group = w;
	s->offered = s;
	s->refs = 1;
	s->dir.fd = -1;
	s->rel = "";
	s->path = strdup(path);
	if (s->path != NULL)
		return s;
	ofs_no_memory(err);
	ofs_manifest_let(s);
	return NULL;
}

struct ofs_manifest *ofs_manifest_new(struct optimfs_group *w, const char *path,
    bool first, const struct optimfs_options *options,
    struct optimfs_error *err)
{
	struct ofs_manifest *s = manifest_new(w, path, err);

	if (s == NULL)
		return NULL;
	s->first = first;
	s->written = options->rw && !options->scratch;
	s->dir.follow = options->follow;
	s->cache = options->cache != 0 ? options->cache / 4 : DECODED;
	s->relay = ofs_relay_new(err);
	if (s->relay != NULL && open_offered(s, err) == 0)
		return s;
	ofs_manifest_let(s);
	return NULL;
}

/* Uses the path that was resolved first: symbolic links may have changed. */
struct ofs_manifest *ofs_manifest_again(const struct ofs_manifest *old,
    struct optimfs_error *err)
{
	struct ofs_manifest *s = manifest_new(old->group, old->path, err);
	char *here = s == NULL ? NULL : ofs_manifest_here(old, err);
	int ret = -1;

	if (here != NULL) {
		s->offered = old->offered;
		s->first = old->first;
		s->written = old->written;
		s->dir.follow = old->dir.follow;
		s->cache = old->cache;
		ret = open_dir(s, here, err) == -1 ? -1 : scan_here(s, err);
	}
	free(here);
	if (ret == 0)
		return s;
	ofs_manifest_let(s);
	return NULL;
}
