/* engine.c - write files part by part, with several threads */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "engine/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/copy.h"
#include "base/fds.h"
#include "base/memory.h"
#include "base/sys.h"
#include "base/team.h"
#include "engine/engine_impl.h"
#include "journal/stage.h"

/* A file is a composition. The engine neither knows what it is composed of nor
 * where it goes: it cuts it into parts, and reads and writes them. This serves a
 * reshard, which writes what a view shows, and a commit, which writes what the
 * staged changes make of a stored file.
 *
 * Threads take parts in the order of files, so that few files are open at a
 * time. A part waits only for checksums of earlier parts, and the first one in
 * progress waits for none.
 *
 * With a journal, a part is synced before it is recorded, so that the next run
 * can rely on the record. Without, all is left to the caller, who syncs what he
 * publishes. */

/* Alignment that O_DIRECT accepts everywhere. */
#define ALIGN 4096u
/* Without O_DIRECT, write-back is this far behind. */
#define BEHIND (UINT64_C(4) << 20)

struct part {
	struct ofs_engine_file *file;
	uint32_t n;
};

static void fail(struct ofs_engine *e, const struct optimfs_error *err)
{
	pthread_mutex_lock(&e->lock);
	if (!atomic_exchange(&e->failed, true))
		e->err = *err;
	pthread_mutex_unlock(&e->lock);
}

static void skip_done(struct ofs_engine_file *f)
{
	while (f->next < f->nparts && ofs_engine_has(f, f->next))
		f->next++;
}

/* Takes the next part; 0: none is left. */
static int take(struct ofs_engine *e, struct part *p, struct optimfs_error *err)
{
	struct ofs_engine_file *f = NULL;
	int ret = 0;

	pthread_mutex_lock(&e->lock);
	for (; e->at < e->n; e->at++) {
		f = &e->file[e->at];
		skip_done(f);
		if (f->ours && f->next < f->nparts)
			break;
	}
	if (e->at < e->n && f->open == NULL) {
		f->open = calloc(1, sizeof(*f->open));
		if (f->open == NULL) {
			ret = ofs_no_memory(err);
		} else {
			pthread_mutex_init(&f->open->lock, NULL);
			f->open->fd = -1;
		}
	}
	if (e->at < e->n && ret == 0) {
		*p = (struct part){ f, f->next++ };
		f->open->users++;
		ret = 1;
	}
	pthread_mutex_unlock(&e->lock);
	return ret;
}

static int close_file(struct ofs_engine *e, struct ofs_engine_open *o,
    struct optimfs_error *err)
{
	int ret = 0;

	if (o->from != NULL)
		e->ops->close(o->from);
	if (o->fd != -1 && close(o->fd) == -1)
		ret = optimfs_fail(err, errno, "OFS801 %m");
	pthread_mutex_destroy(&o->lock);
	free(o);
	return ret;
}

static int give_back(struct ofs_engine *e, struct ofs_engine_file *f,
    struct optimfs_error *err)
{
	struct ofs_engine_open *o = NULL;
	bool failed = atomic_load(&e->failed);

	pthread_mutex_lock(&e->lock);
	skip_done(f);
	if (--f->open->users == 0 && (f->next == f->nparts || failed)) {
		o = f->open;
		f->open = NULL;
	}
	pthread_mutex_unlock(&e->lock);
	if (o == NULL)
		return 0;
	if (e->ops->did_file != NULL && !failed)
		e->ops->did_file(e->ctx, f);
	return close_file(e, o, err);
}

/* Allocates the whole file, if the file system can and no blocks will be
 * shared. */
static int make_room(const struct ofs_engine *e, int fd, uint64_t size,
    struct optimfs_error *err)
{
	struct stat st;

	if (fstat(fd, &st) == 0 && (uint64_t)st.st_size == size)
		return 0;
	if (e->ops->run == NULL && ftruncate(fd, 0) == 0 && size > 0 &&
	    fallocate(fd, 0, 0, (off_t)size) == -1 &&
	    (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
		return optimfs_fail(err, errno, "OFS801 %" PRIu64 " bytes: %m",
		    size);
	if (ofs_sys_truncate(fd, size) == -1)
		return optimfs_fail(err, errno, "OFS801 %" PRIu64 " bytes: %m",
		    size);
	return 0;
}

static int open_both(struct ofs_engine *e, struct ofs_engine_file *f,
    const char *name, struct optimfs_error *err)
{
	struct ofs_engine_open *o = f->open;

	if (e->target == NULL && e->early != NULL && !f->whole)
		o->early = e->early->give(e->early->ctx, name, f->size, e->dir);
	if (e->target == NULL)
		o->fd = ofs_fds_openat(e->dir, name,
		    O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC,
		    e->mode == 0 ? 0666 : e->mode);
	if (e->target == NULL && o->fd == -1)
		return optimfs_fail(err, errno, "OFS801 %m");
	if (o->fd != -1 && !f->whole && make_room(e, o->fd, f->size, err) == -1)
		return -1;
	o->from = e->ops->open(e->ctx, f->index, err);
	return o->from == NULL ? -1 : 0;
}

static int open_file(struct ofs_engine *e, struct ofs_engine_file *f,
    const char *name, struct optimfs_error *err)
{
	struct ofs_engine_open *o = f->open;
	int ret = 0;

	pthread_mutex_lock(&o->lock);
	if (!o->tried)
		ret = open_both(e, f, name, err);
	else if (o->from == NULL)
		ret = optimfs_fail(err, ECANCELED, "given up");
	o->tried = true;
	pthread_mutex_unlock(&o->lock);
	return ret;
}

int ofs_engine_read(struct ofs_engine *e, void *from, uint8_t *buf,
    uint64_t len, uint64_t off, struct optimfs_error *err)
{
	if (atomic_load(&e->failed))
		return optimfs_fail(err, ECANCELED, "given up");
	if (e->ops->read(from, buf, len, off, err) == -1)
		return -1;
	atomic_fetch_add(&e->done, len);
	return 0;
}

/* Data that is synced anyway bypasses the page cache, which would cost a copy,
 * memory, and a flush at the end. Some file systems do not support it, nor does
 * the unaligned end of a file. */
struct output {
	int fd;
	bool direct;
	uint64_t begun; /* write-back was started up to here */
};

static void by_cache(struct output *out, uint64_t off)
{
	if (out->direct)
		(void)fcntl(out->fd, F_SETFL, O_WRONLY);
	out->direct = false;
	out->begun = off;
}

/* Starts write-back up to off, if there is enough of it. */
static void write_behind(struct output *out, uint64_t off)
{
	if (off - out->begun < BEHIND)
		return;
	(void)sync_file_range(out->fd, (off_t)out->begun,
	    (off_t)(off - out->begun), SYNC_FILE_RANGE_WRITE);
	out->begun = off;
}

static int put(struct output *out, const uint8_t *buf, uint64_t n, uint64_t off,
    struct optimfs_error *err)
{
	if (out->direct && (n | off) % ALIGN == 0) {
		if (ofs_stage_write(out->fd, buf, n, off, err) == 0)
			return 0;
		if (err->code != EINVAL)
			return -1;
	}
	if (out->direct)
		by_cache(out, off);
	if (ofs_stage_write(out->fd, buf, n, off, err) == -1)
		return -1;
	write_behind(out, off + n);
	return 0;
}

/* Was it written early? Reduces *n to what one answer holds for. */
static bool is_there(struct ofs_engine *e, const struct ofs_engine_open *o,
    uint64_t off, uint64_t *n)
{
	if (o->early == NULL || !e->early->has(o->early, o->from, off, n))
		return false;
	atomic_fetch_add(&e->done, *n);
	return true;
}

/* Copies bytes that no change concerns. Where the file system does not share their
 * blocks, they are written like others. */
static int copy_run(struct ofs_engine *e, struct output *out, int fd,
    uint64_t at, uint64_t n, uint64_t off, struct optimfs_error *err)
{
	if (atomic_load(&e->failed))
		return optimfs_fail(err, ECANCELED, "given up");
	if (out->direct)
		by_cache(out, off);
	if (ofs_copy_sparse(fd, at, out->fd, off, n, err) == -1)
		return -1;
	write_behind(out, off + n);
	atomic_fetch_add(&e->done, n);
	return 0;
}

static int copy(struct ofs_engine *e, struct ofs_engine_file *f,
    struct output *out, uint64_t off, uint64_t end, uint8_t *buf,
    struct optimfs_error *err)
{
	void *from = f->open->from;
	uint64_t at, n;
	int fd, ret = 0;

	for (; off < end && ret == 0; off += n) {
		fd = -1;
		n = end - off;
		if (is_there(e, f->open, off, &n))
			continue;
		if (e->ops->run != NULL &&
		    e->ops->run(from, off, off + n, &n, &fd, &at, err) == -1)
			return -1;
		if (fd != -1) {
			ret = copy_run(e, out, fd, at, n, off, err);
			continue;
		}
		n = n < OFS_ENGINE_PIECE ? n : OFS_ENGINE_PIECE;
		ret = ofs_engine_read(e, from, buf, n, off, err);
		if (ret == 0)
			ret = put(out, buf, n, off, err);
	}
	if (ret == 0 && e->ops->did_part != NULL && fsync(out->fd) == -1)
		ret = optimfs_fail(err, errno, "OFS801 fsync: %m");
	return ret;
}

/* The kernel reports a write error once per descriptor. Each part has its own,
 * so that none is taken for durable because another fsync got the error. */
static int copy_part(struct ofs_engine *e, struct ofs_engine_file *f,
    const char *name, uint64_t off, uint64_t end, uint8_t *buf,
    struct optimfs_error *err)
{
	const int flags = O_WRONLY | O_NOFOLLOW | O_CLOEXEC;
	struct output out = { .begun = off };
	int ret;

	out.fd = e->ops->did_part == NULL
	    ? -1
	    : ofs_fds_openat(e->dir, name, flags | O_DIRECT, 0);
	out.direct = out.fd != -1;
	if (out.fd == -1)
		out.fd = ofs_fds_openat(e->dir, name, flags, 0);
	if (out.fd == -1)
		return optimfs_fail(err, errno, "OFS801 %m");
	ret = copy(e, f, &out, off, end, buf, err);
	if (close(out.fd) == -1 && ret == 0)
		ret = optimfs_fail(err, errno, "OFS801 %m");
	return ret;
}

/* A target gets a part as a whole. */
static int put_part(struct ofs_engine *e, const struct part *p, uint64_t off,
    uint64_t end, struct optimfs_error *err)
{
	void *from = p->file->open->from;
	uint8_t *bytes = ofs_alloc((size_t)(end - off) + 1, 1, err);
	uint64_t n;
	int ret = bytes == NULL ? -1 : 0;

	for (uint64_t at = off; ret == 0 && at < end; at += n) {
		n = end - at < OFS_ENGINE_PIECE ? end - at : OFS_ENGINE_PIECE;
		ret = ofs_engine_read(e, from, bytes + (at - off), n, at, err);
	}
	if (ret == 0)
		ret = e->target->put(e->target->ctx, p->file, p->n, bytes,
		    end - off, err);
	free(bytes);
	return ret;
}

static struct ofs_sums *sums_of(const struct ofs_engine *e,
    const struct ofs_engine_file *f)
{
	return e->ops->sums == NULL || f->open->from == NULL
	    ? NULL
	    : e->ops->sums(f->open->from);
}

static int write_part(struct ofs_engine *e, const struct part *p,
    const char *name, uint8_t *buf, struct optimfs_error *err)
{
	struct ofs_engine_file *f = p->file;
	uint64_t off = p->n * OFS_ENGINE_PART, end = f->size;
	struct ofs_sums *sums = sums_of(e, f);
	int ret;

	if (f->whole)
		return ofs_engine_items(e, f, buf, err);
	if (end - off > OFS_ENGINE_PART)
		end = off + OFS_ENGINE_PART;
	if (sums != NULL && ofs_sums_promise(sums, off, end, err) == -1)
		return -1;
	ret = e->target != NULL ? put_part(e, p, off, end, err)
				: copy_part(e, f, name, off, end, buf, err);
	if (ret == 0 && sums != NULL)
		ofs_sums_release(sums, off);
	return ret;
}

static int one_part(struct ofs_engine *e, const struct part *p, uint8_t *buf,
    struct optimfs_error *err)
{
	char buf_name[OFS_FILE_NAME];
	const char *name = e->ops->name(e->ctx, p->file->index, buf_name);
	int ret;

	ret = open_file(e, p->file, name, err);
	if (ret == 0)
		ret = write_part(e, p, name, buf, err);
	if (ret == 0 && e->ops->did_part != NULL)
		ret = e->ops->did_part(e->ctx, p->file, p->n, err);
	if (ret == -1) {
		struct ofs_sums *sums = sums_of(e, p->file);

		optimfs_fail_in(err, "%.150s", name);
		fail(e, err); /* before waiting threads give up */
		if (sums != NULL)
			ofs_sums_cancel(sums);
	}
	if (give_back(e, p->file, err) == -1 && ret == 0)
		ret = optimfs_fail_in(err, "%.150s", name);
	return ret;
}

static void work(void *ctx, unsigned i)
{
	struct ofs_engine *e = ctx;
	struct optimfs_error err = { 0 };
	uint8_t *buf = aligned_alloc(ALIGN, OFS_ENGINE_PIECE);
	struct part p = { 0 };
	int ret = buf == NULL ? ofs_no_memory(&err) : 1;

	(void)i;
	while (ret == 1 && !atomic_load(&e->failed)) {
		ret = take(e, &p, &err);
		if (ret == 1 && one_part(e, &p, buf, &err) == -1)
			ret = -1;
	}
	if (ret == -1)
		fail(e, &err);
	free(buf);
}

void ofs_engine_tick(struct ofs_engine *e)
{
	char buf[OFS_FILE_NAME];
	const char *name = "";
	struct optimfs_error err;
	uint32_t index = 0;
	bool any;

	pthread_mutex_lock(&e->lock);
	any = e->at < e->n;
	if (any)
		index = e->file[e->at].index;
	pthread_mutex_unlock(&e->lock);
	if (any)
		name = e->ops->name(e->ctx, index, buf);
	if (e->ops->tick(e->ctx, name, &err) == -1)
		fail(e, &err);
}

/* Threads mostly wait for the disk. */
static unsigned threads(const struct ofs_engine *e)
{
	unsigned n = e->jobs == 0 ? 8 : e->jobs;
	uint64_t parts = 0;

	for (uint32_t i = 0; i < e->n; i++)
		parts += e->file[i].nparts;
	n = n < OFS_TEAM_MAX ? n : OFS_TEAM_MAX;
	return parts < n ? (unsigned)parts : n;
}

static void tick(void *ctx)
{
	ofs_engine_tick(ctx);
}

int ofs_engine_run(struct ofs_engine *e, struct optimfs_error *err)
{
	e->at = 0;
	ofs_team_run(threads(e), work, tick, e);
	return atomic_load(&e->failed) ? optimfs_fail_with(err, &e->err) : 0;
}

int ofs_engine_cut(struct ofs_engine *e, struct optimfs_error *err)
{
	for (uint32_t i = 0; i < e->n; i++) {
		struct ofs_engine_file *f = &e->file[i];
		uint64_t parts = f->size == 0 || f->whole
		    ? 1
		    : (f->size - 1) / OFS_ENGINE_PART + 1;

		if (parts > UINT32_MAX)
			return optimfs_fail(err, EFBIG,
			    "OFS606 size overflow: a file of %" PRIu64 " bytes",
			    f->size);
		f->nparts = (uint32_t)parts;
	}
	return 0;
}

void ofs_engine_init(struct ofs_engine *e)
{
	*e = (struct ofs_engine){ .dir = -1 };
	pthread_mutex_init(&e->lock, NULL);
}

void ofs_engine_fini(struct ofs_engine *e)
{
	for (uint32_t i = 0; i < e->n; i++) {
		free(e->file[i].done);
		free(e->file[i].item);
	}
	free(e->file);
	pthread_mutex_destroy(&e->lock);
}
