/* fakefs.c - the public interface over any directory, with planted faults */
/* SPDX-License-Identifier: Apache-2.0 */

/* Replaces liboptimfs in tests of the mount or the commands: the functions of
 * optimfs.h show the opened directory as it is. A file .fake in it plants
 * faults, one per line:
 *
 *   PATH WORD...    fail=OFF-END:ERRNO  reads that touch [OFF, END) fail
 *                   slow=MS             each read takes that long, or until
 *                                       a name of the file is removed
 *                   inexact             the size is an upper bound (twice as
 *                                       much) until the file is opened
 *                   openfail=ERRNO
 *                   openslow=MS         as slow, when it is opened
 *                   really=PATH         its bytes are read from that file
 *
 * The tree is scanned once. .fake and a directory .optimfs are not listed;
 * .optimfs can be looked up. .optimfs/waiting has the number of reads and opens
 * that take their time now. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "optimfs/analyze.h"
#include "optimfs/optimfs.h"
#include "optimfs/run.h"

#include "base/clock.h"

struct fake_node {
	char *name, *path;         /* path below the root; "": the root */
	char *really;              /* NULL: path */
	uint64_t parent, first, n; /* a directory's children are consecutive */
	struct stat st;
	uint64_t fail_from, fail_to;
	int fail_code, open_code;
	unsigned slow_ms, open_slow_ms;
	bool inexact, hidden;
};

struct optimfs {
	char *root;
	struct fake_node *node; /* number 1 is the root; 0 unused */
	uint64_t n, cap;
	pthread_mutex_t lock; /* guards inexact, errors, stats and waiting */
	unsigned waiting;
	char errors[4096];
	char *(*info)(void *ctx);
	void *info_ctx;
	char *(*stats)(void *ctx);
	void *stats_ctx;
};

struct optimfs_file {
	struct optimfs *fs;
	struct fake_node *node;
	int fd;
	char *text; /* of .optimfs/stats, errors, info.json */
	uint64_t size;
};

static struct fake_node *add(struct optimfs *fs)
{
	if (fs->n + 1 >= fs->cap) {
		fs->cap = fs->cap * 2 + 16;
		fs->node = realloc(fs->node, fs->cap * sizeof(*fs->node));
		if (fs->node == NULL)
			abort();
	}
	fs->n++;
	memset(&fs->node[fs->n], 0, sizeof(*fs->node));
	return &fs->node[fs->n];
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int shown(const struct dirent *e)
{
	return strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
	    strcmp(e->d_name, ".fake") != 0;
}

static char *join(const char *a, const char *b)
{
	char *s;

	if (asprintf(&s, "%s%s%s", a, *a != '\0' ? "/" : "", b) == -1)
		abort();
	return s;
}

static void scan(struct optimfs *fs, uint64_t dir)
{
	struct dirent **list;
	char *path = join(fs->root, fs->node[dir].path);
	int n = scandir(path, &list, shown, by_name);

	fs->node[dir].first = fs->n + 1;
	for (int i = 0; i < n; i++) {
		struct fake_node *c = add(fs);
		char *full;

		c->name = strdup(list[i]->d_name);
		c->path = join(fs->node[dir].path, c->name);
		c->parent = dir;
		c->hidden = strcmp(c->path, ".optimfs") == 0;
		full = join(fs->root, c->path);
		if (lstat(full, &c->st) == -1)
			abort();
		free(full);
		free(list[i]);
	}
	if (n >= 0)
		free(list);
	fs->node[dir].n = n > 0 ? (uint64_t)n : 0;
	free(path);
}

static struct fake_node *by_path(struct optimfs *fs, const char *path)
{
	for (uint64_t i = 1; i <= fs->n; i++)
		if (strcmp(fs->node[i].path, path) == 0)
			return &fs->node[i];
	return NULL;
}

static void plant(struct optimfs *fs)
{
	char *path = join(fs->root, ".fake"), line[1024];
	FILE *f = fopen(path, "re");

	free(path);
	if (f == NULL)
		return;
	while (fgets(line, sizeof(line), f) != NULL) {
		char *save, *word = strtok_r(line, " \n", &save);
		struct fake_node *c = word != NULL ? by_path(fs, word) : NULL;

		while (c != NULL && (word = strtok_r(NULL, " \n", &save))) {
			c->inexact |= strcmp(word, "inexact") == 0;
			sscanf(word, "fail=%" SCNu64 "-%" SCNu64 ":%d",
			    &c->fail_from, &c->fail_to, &c->fail_code);
			sscanf(word, "slow=%u", &c->slow_ms);
			sscanf(word, "openfail=%d", &c->open_code);
			sscanf(word, "openslow=%u", &c->open_slow_ms);
			if (strncmp(word, "really=", 7) == 0) {
				free(c->really);
				c->really = strdup(word + 7);
			}
		}
	}
	fclose(f);
}

struct optimfs *optimfs_open(const char *path,
    const struct optimfs_options *options, struct optimfs_error *err)
{
	struct optimfs *fs;
	struct stat st;

	if (options != NULL && options->type != NULL &&
	    strcmp(options->type, "fake") != 0) {
		optimfs_fail(err, EOPNOTSUPP, "OFS600 %s: no format '%s'", path,
		    options->type);
		return NULL;
	}
	if (stat(path, &st) == -1) {
		optimfs_fail(err, errno, "%s: %m", path);
		return NULL;
	}
	if (!S_ISDIR(st.st_mode)) {
		optimfs_fail(err, EUCLEAN, "OFS601 %s: not a checkpoint", path);
		return NULL;
	}
	fs = calloc(1, sizeof(*fs));
	if (fs == NULL || (fs->root = realpath(path, NULL)) == NULL)
		abort();
	pthread_mutex_init(&fs->lock, NULL);
	add(fs);
	fs->node[1] = (struct fake_node){
		.name = strdup(""), .path = strdup(""), .parent = 1, .st = st
	};
	for (uint64_t i = 1; i <= fs->n; i++)
		if (S_ISDIR(fs->node[i].st.st_mode))
			scan(fs, i);
	plant(fs);
	return fs;
}

void optimfs_close(struct optimfs *fs)
{
	if (fs == NULL)
		return;
	for (uint64_t i = 1; i <= fs->n; i++) {
		free(fs->node[i].name);
		free(fs->node[i].path);
		free(fs->node[i].really);
	}
	free(fs->node);
	free(fs->root);
	pthread_mutex_destroy(&fs->lock);
	free(fs);
}

static void fill(struct optimfs *fs, uint64_t i, struct optimfs_attr *attr)
{
	const struct fake_node *c = &fs->node[i];

	pthread_mutex_lock(&fs->lock);
	*attr = (struct optimfs_attr){
		.node = i,
		.ino = i + 1000,
		.size = (uint64_t)c->st.st_size * (c->inexact ? 2 : 1),
		.stored = (uint64_t)c->st.st_size,
		.mtime_ns = (int64_t)c->st.st_mtim.tv_sec * 1000000000 +
		    c->st.st_mtim.tv_nsec,
		.mode = c->st.st_mode & ~0222u,
		.uid = c->st.st_uid,
		.gid = c->st.st_gid,
		.nlink = S_ISDIR(c->st.st_mode) ? 2 : 1,
		.exact = !c->inexact,
	};
	pthread_mutex_unlock(&fs->lock);
}

static int bad_node(struct optimfs *fs, uint64_t node,
    struct optimfs_error *err)
{
	if (node >= 1 && node <= fs->n)
		return 0;
	return optimfs_fail(err, ENOENT, "no node %" PRIu64, node);
}

int optimfs_getattr(struct optimfs *fs, uint64_t node,
    struct optimfs_attr *attr, struct optimfs_error *err)
{
	if (bad_node(fs, node, err) == -1)
		return -1;
	fill(fs, node, attr);
	return 0;
}

int optimfs_lookup(struct optimfs *fs, uint64_t dir, const char *name,
    struct optimfs_attr *attr, struct optimfs_error *err)
{
	const struct fake_node *d;
	uint64_t lo, hi;

	if (bad_node(fs, dir, err) == -1)
		return -1;
	d = &fs->node[dir];
	if (!S_ISDIR(d->st.st_mode))
		return optimfs_fail(err, ENOTDIR, "%s: not a directory",
		    d->path);
	lo = d->first;
	hi = d->first + d->n;
	while (lo < hi) {
		uint64_t mid = lo + (hi - lo) / 2;
		int c = strcmp(name, fs->node[mid].name);

		if (c == 0) {
			fill(fs, mid, attr);
			return 0;
		}
		if (c < 0)
			hi = mid;
		else
			lo = mid + 1;
	}
	return optimfs_fail(err, ENOENT, "%s: no such name", name);
}

int optimfs_resolve(struct optimfs *fs, const char *path,
    struct optimfs_attr *attr, struct optimfs_error *err)
{
	char *copy = strdup(path), *save;
	int ret;

	ret = optimfs_getattr(fs, OPTIMFS_ROOT, attr, err);
	for (char *w = strtok_r(copy, "/", &save); ret == 0 && w != NULL;
	     w = strtok_r(NULL, "/", &save))
		ret = optimfs_lookup(fs, attr->node, w, attr, err);
	free(copy);
	return ret;
}

int optimfs_readdir(struct optimfs *fs, uint64_t dir, uint64_t start,
    bool want_attr, optimfs_dirent_fn *each, void *ctx,
    struct optimfs_error *err)
{
	const struct fake_node *d;

	if (bad_node(fs, dir, err) == -1)
		return -1;
	d = &fs->node[dir];
	if (!S_ISDIR(d->st.st_mode))
		return optimfs_fail(err, ENOTDIR, "%s: not a directory",
		    d->path);
	for (uint64_t i = start; i < d->n; i++) {
		struct optimfs_attr attr;
		struct optimfs_dirent e = { .name = fs->node[d->first + i].name,
			.position = i };

		if (fs->node[d->first + i].hidden)
			continue;
		fill(fs, d->first + i, &attr);
		e.ino = attr.ino;
		e.mode = attr.mode & S_IFMT;
		e.attr = want_attr ? &attr : NULL;
		if (each(ctx, &e) != 0)
			break;
	}
	return 0;
}

static char *virtual_text(struct optimfs *fs, const char *path)
{
	char *text = NULL;

	pthread_mutex_lock(&fs->lock);
	if (strcmp(path, ".optimfs/errors") == 0)
		text = strdup(fs->errors);
	else if (strcmp(path, ".optimfs/info.json") == 0)
		text = fs->info != NULL ? fs->info(fs->info_ctx) : strdup("{}");
	else if (strcmp(path, ".optimfs/stats") == 0)
		text =
		    fs->stats != NULL ? fs->stats(fs->stats_ctx) : strdup("");
	else if (strcmp(path, ".optimfs/waiting") == 0 &&
	    asprintf(&text, "%u\n", fs->waiting) == -1)
		abort();
	pthread_mutex_unlock(&fs->lock);
	return text;
}

static void count_waiting(struct optimfs *fs, int n)
{
	pthread_mutex_lock(&fs->lock);
	fs->waiting += (unsigned)n;
	pthread_mutex_unlock(&fs->lock);
}

/* Like a dead file server: signals do not interrupt it. It ends when the file
 * is removed. */
static void take_time(struct optimfs *fs, int fd, unsigned ms)
{
	int64_t end = ofs_clock_ms() + ms;
	struct stat st;
	nlink_t names = fstat(fd, &st) == 0 ? st.st_nlink : 0;

	count_waiting(fs, ms > 0 ? 1 : 0);
	while (ofs_clock_ms() < end && fstat(fd, &st) == 0 && st.st_nlink > 0 &&
	    st.st_nlink >= names)
		usleep(10000);
	count_waiting(fs, ms > 0 ? -1 : 0);
}

int optimfs_file_open(struct optimfs *fs, uint64_t node,
    struct optimfs_file **file, struct optimfs_error *err)
{
	struct optimfs_file *f;
	struct fake_node *c;
	char *full;

	if (bad_node(fs, node, err) == -1)
		return -1;
	c = &fs->node[node];
	if (S_ISDIR(c->st.st_mode))
		return optimfs_fail(err, EISDIR, "%s: a directory", c->path);
	if (c->open_code != 0)
		return optimfs_fail(err, c->open_code, "OFS900 %s: planted",
		    c->path);
	f = calloc(1, sizeof(*f));
	if (f == NULL)
		abort();
	full = c->really != NULL ? strdup(c->really) : join(fs->root, c->path);
	f->fs = fs;
	f->node = c;
	f->fd = open(full, O_RDONLY | O_CLOEXEC);
	free(full);
	if (f->fd == -1) {
		free(f);
		return optimfs_fail(err, errno, "%s: %m", c->path);
	}
	take_time(fs, f->fd, c->open_slow_ms);
	f->text = virtual_text(fs, c->path);
	pthread_mutex_lock(&fs->lock);
	if (f->text != NULL)
		c->st.st_size = (off_t)strlen(f->text);
	f->size = (uint64_t)c->st.st_size;
	c->inexact = f->text != NULL;
	pthread_mutex_unlock(&fs->lock);
	*file = f;
	return 0;
}

void optimfs_file_close(struct optimfs_file *f)
{
	if (f == NULL)
		return;
	close(f->fd);
	free(f->text);
	free(f);
}

uint64_t optimfs_file_size(const struct optimfs_file *f)
{
	return f->size;
}

ssize_t optimfs_file_read(struct optimfs_file *f, void *buf, size_t len,
    uint64_t off, struct optimfs_error *err)
{
	const struct fake_node *c = f->node;
	size_t done = 0;

	if (off >= f->size)
		return 0;
	if (len > f->size - off)
		len = (size_t)(f->size - off);
	take_time(f->fs, f->fd, c->slow_ms);
	if (c->fail_code != 0 && off < c->fail_to && off + len > c->fail_from)
		return optimfs_fail(err, c->fail_code,
		    "OFS901 %s: bytes %" PRIu64 " to %" PRIu64 " are planted",
		    c->path, c->fail_from, c->fail_to);
	if (f->text != NULL) {
		memcpy(buf, f->text + off, len);
		return (ssize_t)len;
	}
	while (done < len) {
		ssize_t n = pread(f->fd, (char *)buf + done, len - done,
		    (off_t)(off + done));

		if (n <= 0)
			return optimfs_fail(err, EIO, "%s: short", c->path);
		done += (size_t)n;
	}
	return (ssize_t)done;
}

int optimfs_file_stream(struct optimfs_file *f, optimfs_sink_fn *sink,
    void *ctx, struct optimfs_error *err)
{
	static char buf[1 << 16];
	uint64_t off = 0;
	ssize_t n;

	while ((n = optimfs_file_read(f, buf, sizeof(buf), off, err)) > 0) {
		if (sink(ctx, buf, (size_t)n, err) == -1)
			return -1;
		off += (uint64_t)n;
	}
	return n == -1 ? -1 : 0;
}

int optimfs_getxattr(struct optimfs *fs, uint64_t node, const char *name,
    char **value, size_t *len, struct optimfs_error *err)
{
	if (bad_node(fs, node, err) == -1)
		return -1;
	if (strcmp(name, "user.optimfs.fqn") != 0)
		return optimfs_fail(err, ENODATA, "%s: not there", name);
	*value = strdup(fs->node[node].path);
	*len = strlen(*value);
	return 0;
}

int optimfs_listxattr(struct optimfs *fs, uint64_t node, char **names,
    size_t *len, struct optimfs_error *err)
{
	static const char all[] = "user.optimfs.fqn";

	if (bad_node(fs, node, err) == -1)
		return -1;
	*names = strdup(all);
	*len = sizeof(all);
	return 0;
}

/* Writing is refused. */

static int read_only(struct optimfs_error *err)
{
	return optimfs_fail(err, EROFS, "the stand-in is read-only");
}

int optimfs_readlink(struct optimfs *fs, uint64_t node, char **target,
    struct optimfs_error *err)
{
	(void)fs, (void)node, (void)target;
	return optimfs_fail(err, EINVAL, "not a symbolic link");
}

int optimfs_run_find(const char *path, char **real, const char **rest,
    struct optimfs_error *err)
{
	(void)path, (void)real, (void)rest, (void)err;
	return 0;
}

bool optimfs_is_address(const char *path)
{
	(void)path;
	return false;
}

int optimfs_connect(const char *path, const struct optimfs_options *options,
    struct optimfs_error *err)
{
	(void)path;
	(void)options;
	(void)err;
	return 0;
}

char *optimfs_run_of(const char *path)
{
	(void)path;
	return NULL;
}

bool optimfs_is_run(const struct optimfs *fs)
{
	(void)fs;
	return false;
}

int optimfs_run_list(struct optimfs *run, optimfs_run_entry_fn *each, void *ctx,
    struct optimfs_error *err)
{
	(void)run, (void)each, (void)ctx;
	return optimfs_fail(err, ENOSYS, "fake");
}

int optimfs_run_facts(struct optimfs *run, const char *name,
    struct optimfs_run_facts *facts, struct optimfs_error *err)
{
	(void)run, (void)facts;
	return optimfs_fail(err, ENOSYS, "fake: %s", name);
}

struct optimfs *optimfs_run_open(struct optimfs *run, const char *name,
    struct optimfs_error *err)
{
	(void)run;
	optimfs_fail(err, ENOSYS, "fake: %s", name);
	return NULL;
}

int optimfs_file_open_write(struct optimfs *fs, uint64_t node, bool truncate,
    struct optimfs_file **file, struct optimfs_error *err)
{
	(void)fs, (void)node, (void)truncate, (void)file;
	return read_only(err);
}

int optimfs_file_write(struct optimfs_file *file, const void *buf, size_t len,
    uint64_t off, struct optimfs_error *err)
{
	(void)file, (void)buf, (void)len, (void)off;
	return read_only(err);
}

int optimfs_file_truncate(struct optimfs_file *file, uint64_t size,
    struct optimfs_error *err)
{
	(void)file, (void)size;
	return read_only(err);
}

int optimfs_file_flush(struct optimfs_file *file, struct optimfs_error *err)
{
	(void)file, (void)err;
	return 0;
}

int optimfs_file_sync(struct optimfs_file *file, struct optimfs_error *err)
{
	(void)file, (void)err;
	return 0;
}

int optimfs_create(struct optimfs *fs, uint64_t dir, const char *name,
    bool is_dir, struct optimfs_attr *attr, struct optimfs_error *err)
{
	(void)fs, (void)dir, (void)name, (void)is_dir, (void)attr;
	return read_only(err);
}

int optimfs_remove(struct optimfs *fs, uint64_t dir, const char *name,
    bool is_dir, struct optimfs_error *err)
{
	(void)fs, (void)dir, (void)name, (void)is_dir;
	return read_only(err);
}

int optimfs_rename(struct optimfs *fs, uint64_t dir, const char *name,
    uint64_t newdir, const char *newname, bool replace,
    struct optimfs_error *err)
{
	(void)fs, (void)dir, (void)name, (void)newdir, (void)newname;
	(void)replace;
	return read_only(err);
}

int optimfs_truncate(struct optimfs *fs, uint64_t node, uint64_t size,
    struct optimfs_error *err)
{
	(void)fs, (void)node, (void)size;
	return read_only(err);
}

int optimfs_set_mtime(struct optimfs *fs, uint64_t node, int64_t mtime_ns,
    struct optimfs_error *err)
{
	(void)fs, (void)node, (void)mtime_ns;
	return read_only(err);
}

int optimfs_setxattr(struct optimfs *fs, uint64_t node, const char *name,
    const char *value, size_t len, struct optimfs_error *err)
{
	(void)fs, (void)node, (void)name, (void)value, (void)len;
	return read_only(err);
}

int optimfs_commit(struct optimfs *fs, bool (*stop)(void *ctx), void *ctx,
    struct optimfs_error *err)
{
	(void)fs, (void)stop, (void)ctx;
	return read_only(err);
}

int optimfs_abort(struct optimfs *fs, struct optimfs_error *err)
{
	(void)fs;
	return read_only(err);
}

int optimfs_sync(struct optimfs *fs, struct optimfs_error *err)
{
	(void)fs, (void)err;
	return 0;
}

uint64_t optimfs_moves(void)
{
	return 0;
}

char *optimfs_recovered(struct optimfs *fs)
{
	(void)fs;
	return NULL;
}

bool optimfs_access_changed(struct optimfs *fs, uint64_t node)
{
	(void)fs, (void)node;
	return false;
}

uint64_t optimfs_changes(struct optimfs *fs)
{
	(void)fs;
	return 0;
}

int optimfs_control(struct optimfs *fs, const char *text, size_t len,
    bool (*stop)(void *ctx), void *ctx, struct optimfs_error *err)
{
	(void)fs, (void)text, (void)len, (void)stop, (void)ctx;
	return read_only(err);
}

bool optimfs_file_is_control(const struct optimfs_file *file)
{
	(void)file;
	return false;
}

int optimfs_left(const char *path, struct optimfs_error *err)
{
	(void)path;
	(void)err;
	return 0;
}

int optimfs_lock_watch(const char *path)
{
	(void)path;
	return -1;
}

bool optimfs_lock_busy(int fd)
{
	(void)fd;
	return false;
}

int optimfs_await(const char *path, void (*say)(void *ctx, const char *text),
    void *ctx, struct optimfs_error *err)
{
	(void)path;
	(void)say;
	(void)ctx;
	(void)err;
	return 0;
}

int optimfs_set_mounted(struct optimfs *fs, dev_t dev,
    struct optimfs_error *err)
{
	(void)fs;
	(void)dev;
	(void)err;
	return 0;
}

void optimfs_status(struct optimfs *fs, struct optimfs_status *status)
{
	(void)fs;
	*status = (struct optimfs_status){ .percent = -1 };
}

int optimfs_statvfs(struct optimfs *fs, struct statvfs *st,
    struct optimfs_error *err)
{
	if (statvfs(fs->root, st) == -1)
		return optimfs_fail(err, errno, "%s: %m", fs->root);
	return 0;
}

void optimfs_watch(struct optimfs *fs, const struct optimfs_watch *how)
{
	(void)fs, (void)how;
}

char *optimfs_summary(struct optimfs *fs, const char *path,
    enum optimfs_summary_form form, struct optimfs_error *err)
{
	(void)fs, (void)path, (void)form, (void)err;
	return strdup("");
}

int optimfs_reshard(struct optimfs *fs, const char *dir,
    const struct optimfs_reshard *how, struct optimfs_error *err)
{
	(void)how;
	return optimfs_fail(err, EOPNOTSUPP, "%s as %s", fs->root, dir);
}

int optimfs_copy(struct optimfs *fs, const char *path, const char *dest,
    const struct optimfs_copy *how, struct optimfs_error *err)
{
	(void)fs, (void)path, (void)how;
	return optimfs_fail(err, ENOSYS, "fake: %s", dest);
}

char *optimfs_mkfs_reads(const char *dir)
{
	(void)dir;
	return NULL;
}

int optimfs_mkfs(struct optimfs *like, const char *layout, const char *dir,
    struct optimfs_error *err)
{
	return optimfs_fail(err, EOPNOTSUPP, "%s as %s in %s", like->root,
	    layout, dir);
}

int optimfs_fsck(struct optimfs *fs, bool data, optimfs_report_fn *report,
    void *ctx, uint64_t *problems, struct optimfs_error *err)
{
	(void)data;
	(void)err;
	*problems = 0;
	for (uint64_t i = 1; i <= fs->n; i++) {
		struct optimfs_finding f = { .error = true,
			.code = fs->node[i].fail_code,
			.path = fs->node[i].path,
			.text = "OFS901 planted" };

		if (f.code == 0)
			continue;
		(*problems)++;
		if (report != NULL)
			report(ctx, &f);
	}
	return 0;
}

void optimfs_set_mount_info(struct optimfs *fs, char *(*fn)(void *ctx),
    void *ctx)
{
	fs->info = fn;
	fs->info_ctx = ctx;
}

void optimfs_set_stats(struct optimfs *fs, char *(*fn)(void *ctx), void *ctx)
{
	fs->stats = fn;
	fs->stats_ctx = ctx;
}

void optimfs_log_error(struct optimfs *fs, const struct optimfs_error *err)
{
	size_t n;

	pthread_mutex_lock(&fs->lock);
	n = strlen(fs->errors);
	snprintf(fs->errors + n, sizeof(fs->errors) - n, "%s\n", err->text);
	pthread_mutex_unlock(&fs->lock);
}

const char *optimfs_version(void)
{
	return PACKAGE_VERSION;
}

const char *optimfs_features(void)
{
	return "fake";
}

/* There are no tensors. */

int optimfs_statistics(struct optimfs *fs, const char *path,
    const struct optimfs_scan *how, struct optimfs_statistics *s,
    struct optimfs_error *err)
{
	(void)fs, (void)how, (void)s;
	return optimfs_fail(err, ENOSYS, "fake: %s", path);
}

int optimfs_statistics_tree(struct optimfs *fs, const char *path, bool ranks,
    const struct optimfs_scan *work, optimfs_tensor_fn *each, void *ctx,
    struct optimfs_error *err)
{
	(void)fs, (void)path, (void)ranks, (void)work, (void)each, (void)ctx;
	return optimfs_fail(err, ENOSYS, "fake: no tensors");
}

int optimfs_locate(struct optimfs *fs, const char *path, int rank,
    uint64_t index, struct optimfs_location *where, struct optimfs_error *err)
{
	(void)fs, (void)path, (void)rank, (void)index, (void)where;
	return optimfs_fail(err, ENOSYS, "fake: no tensors");
}

int optimfs_holdings(struct optimfs *fs, const char *path,
    optimfs_holding_fn *each, void *ctx, struct optimfs_error *err)
{
	(void)fs, (void)path, (void)each, (void)ctx;
	return optimfs_fail(err, ENOSYS, "fake: no tensors");
}

int optimfs_compare(struct optimfs *a, uint64_t x, struct optimfs *b,
    uint64_t y, const struct optimfs_tolerance *within,
    const struct optimfs_scan *how, struct optimfs_comparison *out,
    struct optimfs_error *err)
{
	(void)a, (void)x, (void)b, (void)y, (void)within, (void)how, (void)out;
	return optimfs_fail(err, ENOSYS, "fake: no tensors");
}

int optimfs_check(struct optimfs *fs, const struct optimfs_scan *how,
    const struct optimfs_checkup *out, uint64_t *found,
    struct optimfs_error *err)
{
	(void)fs, (void)how, (void)out, (void)found;
	return optimfs_fail(err, ENOSYS, "fake: no tensors");
}

/* There are no other ranks. */

bool optimfs_group_launched(void)
{
	return false;
}

struct optimfs_group *optimfs_group_join(const char *transport,
    unsigned timeout, struct optimfs_error *err)
{
	(void)timeout;
	optimfs_fail(err, ENOSYS, "fake: %s", transport);
	return NULL;
}

int optimfs_group_rank(const struct optimfs_group *w)
{
	(void)w;
	return 0;
}

int optimfs_group_size(const struct optimfs_group *w)
{
	(void)w;
	return 1;
}

int optimfs_group_node(const struct optimfs_group *w, int rank)
{
	(void)w;
	return rank;
}

const char *optimfs_group_host(const struct optimfs_group *w, int rank)
{
	(void)w, (void)rank;
	return "fake";
}

char *optimfs_group_expand(const struct optimfs_group *w, const char *path,
    struct optimfs_error *err)
{
	(void)w, (void)err;
	return strdup(path);
}

int optimfs_group_readers(struct optimfs_group *w, const bool *reader,
    struct optimfs_error *err)
{
	(void)w, (void)reader, (void)err;
	return 0;
}

int optimfs_group_offer(struct optimfs_group *w, const char *path, bool first,
    const struct optimfs_options *options, struct optimfs_error *err)
{
	(void)w, (void)first, (void)options;
	return optimfs_fail(err, ENOSYS, "fake: %s", path);
}

int optimfs_group_compare(struct optimfs_group *w, struct optimfs *fs,
    struct optimfs_error *err)
{
	(void)w, (void)fs, (void)err;
	return 0;
}

int optimfs_group_agree(struct optimfs_group *w,
    const struct optimfs_error *own, struct optimfs_error *err)
{
	(void)w, (void)own, (void)err;
	return 0;
}

int optimfs_group_gather(struct optimfs_group *w,
    const struct optimfs_gather *how, struct optimfs_error *err)
{
	(void)w, (void)how;
	return optimfs_fail(err, ENOSYS, "fake");
}

void optimfs_group_leave(struct optimfs_group *w, const bool *worker)
{
	(void)w, (void)worker;
}

char *optimfs_run_path(struct optimfs *run, const char *name,
    struct optimfs_error *err)
{
	(void)run;
	optimfs_fail(err, ENOSYS, "fake: %s", name);
	return NULL;
}

int optimfs_run_weigh(struct optimfs *run, const char *name,
    struct optimfs_run_weight *weight, struct optimfs_error *err)
{
	(void)run, (void)weight;
	return optimfs_fail(err, ENOSYS, "fake: %s", name);
}

int optimfs_run_remove(struct optimfs *run, const char *name,
    const struct optimfs_run_weight *weight, struct optimfs_error *err)
{
	(void)run, (void)weight;
	return optimfs_fail(err, ENOSYS, "fake: %s", name);
}

int optimfs_run_drop(struct optimfs *run, const char *name,
    const struct optimfs_run_weight *weight, struct optimfs_error *err)
{
	(void)run, (void)weight;
	return optimfs_fail(err, ENOSYS, "fake: %s", name);
}

int optimfs_run_droppable(struct optimfs *fs, uint64_t *bytes,
    struct optimfs_error *err)
{
	(void)fs, (void)err;
	*bytes = 0;
	return 0;
}

int optimfs_delta(struct optimfs *fs, struct optimfs *base, const char *dir,
    struct optimfs_delta *how, struct optimfs_error *err)
{
	(void)fs, (void)base, (void)how;
	return optimfs_fail(err, ENOSYS, "fake: %s", dir);
}

int optimfs_run_sweep(struct optimfs *run, bool count, unsigned *n,
    struct optimfs_error *err)
{
	(void)run, (void)count, (void)n;
	return optimfs_fail(err, ENOSYS, "fake");
}

int optimfs_run_tracked(struct optimfs *run, const char *name,
    struct optimfs_error *err)
{
	(void)run;
	return optimfs_fail(err, ENOSYS, "fake: %s", name);
}
