/* disk.c - a cache of blocks on a disk, which outlives the process */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "store/http/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/copy.h"
#include "base/cursor.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/user_cache.h"

/* A file is
 *
 *     "OFSBLK1\n"  length of the key  length of the block  sum  key  block
 *                  4 bytes            4 bytes              16
 *
 * where the sum is the XXH3-128 of the key and the block. It is written in
 * place: a confined thread may not rename files, and until all of it is there
 * the sum is wrong.
 *
 * Names are spread over directories by their first digit. Each directory may
 * have an equal part of all bytes, so that making room in one looks at few
 * files. What was not used for longest goes first; a use is noted as the time of
 * the last change, by a write of what is there already. */
#define MAGIC      "OFSBLK1\n"
#define HEAD       32
#define KEY_MOST   8192
#define BLOCK_MOST (1u << 20)
#define DIRS       16
#define NAME_SIZE  34 /* "f/" and 31 digits */
/* A use is noted once in this time, in seconds. */
#define USED 60
/* After a write that failed. */
#define PATIENCE_MS 60000

struct part {
	int fd;
	pthread_mutex_t lock; /* protects what follows */
	bool counted;
	uint64_t bytes; /* when counted last, and written since */
	uint64_t written;
};

struct ofs_http_disk {
	uint64_t share; /* bytes of a directory */
	_Atomic int64_t full_ms;
	struct part part[DIRS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ofs_http_disk *the_disk;

/* Opening. */

static int refuse(const char *path, int code, const char *why,
    struct optimfs_error *err)
{
	return optimfs_fail(err, code, "OFS928 cache_dir=%s: %s", path, why);
}

/* A directory of this user, who alone may write to it; path: of the cache. */
static int open_own(int at, const char *name, const char *path,
    struct optimfs_error *err)
{
	int fd;

	if (mkdirat(at, name, 0700) == -1 && errno != EEXIST && errno != EPERM)
		return refuse(path, errno, strerror(errno), err);
	fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd == -1)
		return refuse(path, errno, strerror(errno), err);
	if (ofs_user_cache_own(fd, S_IFDIR))
		return fd;
	close(fd);
	return refuse(path, EACCES,
	    "others may write to it, or own it: give a directory of your own "
	    "(chmod 700)",
	    err);
}

static int open_parts(struct ofs_http_disk *d, int top, const char *path,
    struct optimfs_error *err)
{
	for (unsigned i = 0; i < DIRS; i++) {
		char name[2] = { "0123456789abcdef"[i], '\0' };

		d->part[i].fd = open_own(top, name, path, err);
		if (d->part[i].fd == -1) {
			while (i-- > 0)
				close(d->part[i].fd);
			return -1;
		}
		pthread_mutex_init(&d->part[i].lock, NULL);
	}
	return 0;
}

/* A thread that does not survive a fork may hold a lock. */
static void before_fork(void)
{
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; the_disk != NULL && i < DIRS; i++)
		pthread_mutex_lock(&the_disk->part[i].lock);
}

static void after_fork(void)
{
	for (unsigned i = 0; the_disk != NULL && i < DIRS; i++)
		pthread_mutex_unlock(&the_disk->part[i].lock);
	pthread_mutex_unlock(&lock);
}

static struct ofs_http_disk *open_disk(const char *path, uint64_t most,
    struct optimfs_error *err)
{
	struct ofs_http_disk *d;
	int top = open_own(AT_FDCWD, path, path, err), ret = -1;

	if (top == -1)
		return NULL;
	d = ofs_alloc(1, sizeof(*d), err);
	if (d != NULL) {
		d->share = most / DIRS;
		ret = open_parts(d, top, path, err);
	}
	close(top);
	if (ret == 0)
		return d;
	free(d);
	return NULL;
}

struct ofs_http_disk *ofs_http_disk(const char *path, uint64_t most,
    struct optimfs_error *err)
{
	struct ofs_http_disk *d;

	if (most == 0)
		most = OFS_HTTP_DISK_MOST;
	pthread_mutex_lock(&lock);
	if (the_disk == NULL && path != NULL) {
		if (most < OFS_HTTP_DISK_LEAST)
			optimfs_fail(err, EINVAL,
			    "OFS928 cache_disk=%" PRIu64
			    ": less than 16 MiB, which keep nothing",
			    most);
		else
			the_disk = open_disk(path, most, err);
		if (the_disk != NULL)
			(void)pthread_atfork(before_fork, after_fork,
			    after_fork);
	}
	/* as later, when it is full */
	if (the_disk == NULL && path != NULL &&
	    (err->code == ENOSPC || err->code == EDQUOT))
		err->code = 0;
	d = the_disk;
	pthread_mutex_unlock(&lock);
	return d;
}

/* Keys. */

struct place {
	struct part *part;
	char name[NAME_SIZE];
	char key[KEY_MOST];
	size_t n; /* of the key */
};

/* Nothing that may be a password or a signature gets into a file. */
static bool is_plain(const char *url)
{
	const char *host = strstr(url, "://");

	return host != NULL && strpbrk(url, "?#") == NULL &&
	    memchr(host, '@', strcspn(host + 3, "/") + 3) == NULL;
}

static bool find_place(struct ofs_http_disk *d, const char *url,
    const char *rest, struct place *at)
{
	XXH128_canonical_t hash;
	char text[2 * sizeof(hash.digest) + 1];
	int n = snprintf(at->key, sizeof(at->key), "%s\n%s", url, rest);

	if (!is_plain(url) || n < 0 || (size_t)n >= sizeof(at->key))
		return false;
	at->n = (size_t)n;
	XXH128_canonicalFromHash(&hash, XXH3_128bits(at->key, at->n));
	for (size_t i = 0; i < sizeof(hash.digest); i++)
		snprintf(text + 2 * i, 3, "%02x", hash.digest[i]);
	at->part = &d->part[hash.digest[0] >> 4];
	snprintf(at->name, sizeof(at->name), "%s", text + 1);
	return true;
}

static bool place_of(struct ofs_http_disk *d,
    const struct ofs_http_disk_key *key, struct place *at)
{
	char rest[KEY_MOST];

	snprintf(rest, sizeof(rest), "%s\n%" PRIu64 "\n%" PRIu64 "%s%s",
	    key->is->etag, key->is->size, key->number,
	    key->runs == NULL ? "" : "\n", key->runs == NULL ? "" : key->runs);
	return (key->pinned || key->is->etag[0] != '\0') &&
	    find_place(d, key->url, rest, at);
}

static void put_sum(uint8_t out[16], const struct place *at, const void *p,
    size_t n)
{
	XXH128_canonical_t hash;
	XXH64_hash_t seed = XXH3_64bits(at->key, at->n);

	XXH128_canonicalFromHash(&hash, XXH3_128bits_withSeed(p, n, seed));
	memcpy(out, hash.digest, 16);
}

/* Reading. */

static bool read_block(int fd, const struct place *at, void *out, size_t n)
{
	size_t before = HEAD + at->n;
	uint8_t *head = malloc(before), sum[16];
	struct stat st;
	bool good;

	good = head != NULL && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
	    (uint64_t)st.st_size == before + n &&
	    ofs_pread_all(fd, head, before, 0, NULL) == 0 &&
	    memcmp(head, MAGIC, 8) == 0 && ofs_le32(head + 8) == at->n &&
	    ofs_le32(head + 12) == n &&
	    memcmp(head + HEAD, at->key, at->n) == 0 &&
	    ofs_pread_all(fd, out, n, before, NULL) == 0;
	if (good) {
		put_sum(sum, at, out, n);
		good = memcmp(head + 16, sum, 16) == 0;
	}
	free(head);
	if (good && ofs_now_ns() / 1000000000 - st.st_mtim.tv_sec > USED &&
	    pwrite(fd, MAGIC, 1, 0) == -1)
		return true; /* it goes a little early */
	return good;
}

static bool get(const struct place *at, void *out, size_t n)
{
	int fd = openat(at->part->fd, at->name,
	    O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	bool good;

	if (fd == -1)
		return false;
	good = read_block(fd, at, out, n);
	close(fd);
	/* damaged, or another process writes it, which costs one request */
	if (!good)
		(void)unlinkat(at->part->fd, at->name, 0);
	return good;
}

bool ofs_http_disk_get(struct ofs_http_disk *d,
    const struct ofs_http_disk_key *key, void *out, size_t n)
{
	struct place at;

	return place_of(d, key, &at) && get(&at, out, n);
}

/* Making room. The lock is held. */

struct old {
	char name[NAME_SIZE];
	int64_t used_ns;
	uint64_t bytes;
};

static int by_use(const void *a, const void *b)
{
	const struct old *x = a, *y = b;

	return x->used_ns < y->used_ns ? -1 : x->used_ns > y->used_ns;
}

static bool is_name(const char *name)
{
	return strlen(name) == 31 && strspn(name, "0123456789abcdef") == 31;
}

static bool list_old(struct part *p, struct old **old, size_t *n)
{
	int fd = openat(p->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd == -1 ? NULL : fdopendir(fd);
	struct dirent *e;
	size_t cap = 0;
	struct stat st;
	bool whole = dir != NULL;

	if (dir == NULL && fd != -1)
		close(fd);
	p->bytes = 0;
	while (whole && (e = readdir(dir)) != NULL) {
		if (!is_name(e->d_name) ||
		    fstatat(p->fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == -1)
			continue;
		whole = ofs_grow(*old, *n, cap, NULL) == 0;
		if (!whole)
			break;
		memcpy((*old)[*n].name, e->d_name, 32);
		(*old)[*n].used_ns = ofs_time_ns(&st.st_mtim);
		(*old)[*n].bytes = (uint64_t)st.st_size;
		p->bytes += (uint64_t)st.st_size;
		++*n;
	}
	if (dir != NULL)
		closedir(dir);
	return whole;
}

/* Counts the files, and removes some if there are too many for need bytes
 * more. */
static bool make_room(struct ofs_http_disk *d, struct part *p, uint64_t need)
{
	struct old *old = NULL;
	size_t n = 0;
	bool whole = list_old(p, &old, &n);

	if (whole && p->bytes + need > d->share) {
		qsort(old, n, sizeof(*old), by_use);
		for (size_t i = 0;
		     i < n && p->bytes + need > d->share - d->share / 16; i++)
			if (unlinkat(p->fd, old[i].name, 0) == 0)
				p->bytes -= old[i].bytes;
	}
	free(old);
	p->counted = whole;
	p->written = 0;
	return whole && p->bytes + need <= d->share;
}

/* Other processes write as well: so all is counted again now and then. */
static bool has_room(struct ofs_http_disk *d, struct part *p, uint64_t need)
{
	bool has;

	pthread_mutex_lock(&p->lock);
	has = p->counted && p->written < d->share / 16 &&
	    p->bytes + need <= d->share;
	if (!has)
		has = make_room(d, p, need);
	if (has) {
		p->bytes += need;
		p->written += need;
	}
	pthread_mutex_unlock(&p->lock);
	return has;
}

/* Writing. */

static bool write_block(int fd, const struct place *at, const void *p, size_t n)
{
	size_t before = HEAD + at->n;
	uint8_t *head = malloc(before);
	bool good = head != NULL;

	if (good) {
		memcpy(head, MAGIC, 8);
		ofs_put_le(head + 8, at->n, 4);
		ofs_put_le(head + 12, n, 4);
		put_sum(head + 16, at, p, n);
		memcpy(head + HEAD, at->key, at->n);
		good = ofs_write_all(fd, head, before, 0, NULL) == 0 &&
		    ofs_write_all(fd, p, n, before, NULL) == 0;
	}
	free(head);
	return good;
}

/* A disk that is full is left alone for a while. */
static bool is_full(struct ofs_http_disk *d)
{
	int64_t since = atomic_load(&d->full_ms);

	return since != 0 && ofs_clock_ms() - since < PATIENCE_MS;
}

static void put(struct ofs_http_disk *d, const struct place *at, const void *p,
    size_t n)
{
	int fd;

	if (n > BLOCK_MOST || is_full(d) ||
	    !has_room(d, at->part, HEAD + at->n + n))
		return;
	fd = openat(at->part->fd, at->name,
	    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd == -1 && errno == EEXIST)
		return;
	if (fd == -1 || !write_block(fd, at, p, n)) {
		atomic_store(&d->full_ms, ofs_clock_ms() | 1);
		if (fd != -1)
			(void)unlinkat(at->part->fd, at->name, 0);
	}
	if (fd != -1)
		close(fd);
}

void ofs_http_disk_put(struct ofs_http_disk *d,
    const struct ofs_http_disk_key *key, const void *p, size_t n)
{
	struct place at;

	if (place_of(d, key, &at))
		put(d, &at, p, n);
}

bool ofs_http_disk_knows(struct ofs_http_disk *d, const char *url)
{
	struct place at;

	return find_place(d, url, "", &at) && get(&at, NULL, 0);
}

void ofs_http_disk_note(struct ofs_http_disk *d, const char *url)
{
	struct place at;

	if (find_place(d, url, "", &at))
		put(d, &at, NULL, 0);
}
