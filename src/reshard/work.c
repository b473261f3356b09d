/* work.c - write the files of a view, part by part */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/step.h"
#include "cluster/task.h"
#include "reshard/reshard.h"

/* Threads take parts in the order of files, so that few files are open at a
 * time. A part waits only for checksums of earlier parts, and the first one in
 * progress waits for none. */

/* Alignment that O_DIRECT accepts everywhere. */
#define ALIGN 4096u
/* Without O_DIRECT, write-back is this far behind. */
#define BEHIND (UINT64_C(4) << 20)

struct part {
	struct ofs_reshard_file *file;
	uint32_t n;
};

static int go_on(const struct ofs_reshard *r, struct optimfs_error *err)
{
	return ofs_go_on(r->how->watch.stop, r->how->watch.ctx, err);
}

static void fail(struct ofs_reshard *r, const struct optimfs_error *err)
{
	pthread_mutex_lock(&r->lock);
	if (!atomic_exchange(&r->failed, true))
		r->err = *err;
	pthread_mutex_unlock(&r->lock);
}

static void skip_done(struct ofs_reshard_file *f)
{
	while (f->next < f->nparts && ofs_reshard_has(f, f->next))
		f->next++;
}

/* Takes the next part; 0: none is left. */
static int take(struct ofs_reshard *r, struct part *p,
    struct optimfs_error *err)
{
	struct ofs_reshard_file *f = NULL;
	int ret = 0;

	pthread_mutex_lock(&r->lock);
	for (; r->at < r->n; r->at++) {
		f = &r->file[r->at];
		skip_done(f);
		if (f->ours && f->next < f->nparts)
			break;
	}
	if (r->at < r->n && f->open == NULL) {
		f->open = calloc(1, sizeof(*f->open));
		if (f->open == NULL) {
			ret = ofs_no_memory(err);
		} else {
			pthread_mutex_init(&f->open->lock, NULL);
			f->open->fd = -1;
			f->open->r = r;
			f->open->index = f->index;
		}
	}
	if (r->at < r->n && ret == 0) {
		*p = (struct part){ f, f->next++ };
		f->open->users++;
		ret = 1;
	}
	pthread_mutex_unlock(&r->lock);
	return ret;
}

static int close_file(struct ofs_reshard_open *o, struct optimfs_error *err)
{
	int ret = 0;

	optimfs_file_close(o->from);
	if (o->fd != -1 && close(o->fd) == -1)
		ret = optimfs_fail(err, errno, "OFS801 %m");
	pthread_mutex_destroy(&o->lock);
	free(o);
	return ret;
}

static int give_back(struct ofs_reshard *r, struct ofs_reshard_file *f,
    struct optimfs_error *err)
{
	struct ofs_reshard_open *o = NULL;
	bool failed = atomic_load(&r->failed);

	pthread_mutex_lock(&r->lock);
	skip_done(f);
	if (--f->open->users == 0 && (f->next == f->nparts || failed)) {
		o = f->open;
		f->open = NULL;
	}
	pthread_mutex_unlock(&r->lock);
	if (o == NULL)
		return 0;
	if (r->group != NULL && !failed)
		ofs_task_did(r->group, f->size);
	return close_file(o, err);
}

/* Allocates the whole file, if the file system can. */
static int make_room(int fd, uint64_t size, struct optimfs_error *err)
{
	struct stat st;

	if (fstat(fd, &st) == 0 && (uint64_t)st.st_size == size)
		return 0;
	if (ftruncate(fd, 0) == 0 && size > 0 &&
	    fallocate(fd, 0, 0, (off_t)size) == -1 &&
	    (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
		return optimfs_fail(err, errno, "OFS801 %" PRIu64 " bytes: %m",
		    size);
	if (ftruncate(fd, (off_t)size) == -1)
		return optimfs_fail(err, errno, "OFS801 %" PRIu64 " bytes: %m",
		    size);
	return 0;
}

static int open_both(struct ofs_reshard *r, struct ofs_reshard_file *f,
    const char *name, struct optimfs_error *err)
{
	struct ofs_reshard_open *o = f->open;

	o->fd = openat(r->new, name,
	    O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
	if (o->fd == -1)
		return optimfs_fail(err, errno, "OFS801 %m");
	if (!f->whole && make_room(o->fd, f->size, err) == -1)
		return -1;
	if (ofs_file_open(r->snap, (struct ofs_at){ r->view.space, f->index },
		&o->from, err) == -1)
		return -1;
	ofs_reshard_log_sums(r, f);
	return 0;
}

static int open_file(struct ofs_reshard *r, struct ofs_reshard_file *f,
    const char *name, struct optimfs_error *err)
{
	struct ofs_reshard_open *o = f->open;
	int ret = 0;

	pthread_mutex_lock(&o->lock);
	if (!o->tried)
		ret = open_both(r, f, name, err);
	else if (o->from == NULL)
		ret = optimfs_fail(err, ECANCELED, "given up");
	o->tried = true;
	pthread_mutex_unlock(&o->lock);
	return ret;
}

int ofs_reshard_read(struct ofs_reshard *r, struct optimfs_file *from,
    uint8_t *buf, uint64_t len, uint64_t off, struct optimfs_error *err)
{
	ssize_t n;

	if (atomic_load(&r->failed))
		return optimfs_fail(err, ECANCELED, "given up");
	n = ofs_file_read(from, buf, len, off, err);
	if (n == -1)
		return -1;
	if ((uint64_t)n != len)
		return optimfs_fail(err, EIO, "%zd bytes of %" PRIu64, n, len);
	atomic_fetch_add(&r->done, len);
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
	if (off + n - out->begun < BEHIND)
		return 0;
	(void)sync_file_range(out->fd, (off_t)out->begun,
	    (off_t)(off + n - out->begun), SYNC_FILE_RANGE_WRITE);
	out->begun = off + n;
	return 0;
}

static int copy(struct ofs_reshard *r, struct ofs_reshard_file *f,
    struct output *out, uint64_t off, uint64_t end, uint8_t *buf,
    struct optimfs_error *err)
{
	for (uint64_t n; off < end; off += n) {
		n = end - off < OFS_RESHARD_PIECE ? end - off
						  : OFS_RESHARD_PIECE;
		if (ofs_reshard_read(r, f->open->from, buf, n, off, err) ==
			-1 ||
		    put(out, buf, n, off, err) == -1)
			return -1;
	}
	return fsync(out->fd) == -1
	    ? optimfs_fail(err, errno, "OFS801 fsync: %m")
	    : 0;
}

/* The kernel reports a write error once per descriptor. Each part has its own,
 * so that none is taken for durable because another fsync got the error. */
static int copy_part(struct ofs_reshard *r, struct ofs_reshard_file *f,
    const char *name, uint64_t off, uint64_t end, uint8_t *buf,
    struct optimfs_error *err)
{
	const int flags = O_WRONLY | O_NOFOLLOW | O_CLOEXEC;
	struct output out = { .begun = off };
	int ret;

	out.fd = openat(r->new, name, flags | O_DIRECT);
	out.direct = out.fd != -1;
	if (out.fd == -1)
		out.fd = openat(r->new, name, flags);
	if (out.fd == -1)
		return optimfs_fail(err, errno, "OFS801 %m");
	ret = copy(r, f, &out, off, end, buf, err);
	if (close(out.fd) == -1 && ret == 0)
		ret = optimfs_fail(err, errno, "OFS801 %m");
	return ret;
}

static int write_part(struct ofs_reshard *r, const struct part *p,
    const char *name, uint8_t *buf, struct optimfs_error *err)
{
	struct ofs_reshard_file *f = p->file;
	uint64_t off = p->n * OFS_RESHARD_PART, end = f->size;
	struct ofs_sums *sums = ofs_view_sums(f->open->from->view);
	int ret;

	if (f->whole)
		return ofs_reshard_items(r, f, buf, err);
	if (end - off > OFS_RESHARD_PART)
		end = off + OFS_RESHARD_PART;
	if (ofs_sums_promise(sums, off, end, err) == -1)
		return -1;
	ret = copy_part(r, f, name, off, end, buf, err);
	if (ret == 0)
		ofs_sums_release(sums, off);
	return ret;
}

static int one_part(struct ofs_reshard *r, const struct part *p, uint8_t *buf,
    struct optimfs_error *err)
{
	struct ofs_at at = { r->view.space, p->file->index };
	char name[OFS_FILE_NAME];
	int ret;

	ofs_view_path(r->snap, at, name);
	ret = open_file(r, p->file, name, err);
	if (ret == 0)
		ret = write_part(r, p, name, buf, err);
	if (ret == 0)
		ret = ofs_reshard_log_part(r, p->file, p->n, err);
	if (ret == -1) {
		optimfs_fail_in(err, "%.150s", name);
		fail(r, err); /* before waiting threads give up */
		if (p->file->open->from != NULL)
			ofs_sums_cancel(ofs_view_sums(p->file->open->from
							  ->view));
	}
	if (give_back(r, p->file, err) == -1 && ret == 0)
		ret = optimfs_fail_in(err, "%.150s", name);
	return ret;
}

static void *work(void *ctx)
{
	struct ofs_reshard *r = ctx;
	struct optimfs_error err = { 0 };
	uint8_t *buf = aligned_alloc(ALIGN, OFS_RESHARD_PIECE);
	struct part p = { 0 };
	int ret = buf == NULL ? ofs_no_memory(&err) : 1;

	while (ret == 1 && !atomic_load(&r->failed)) {
		ret = go_on(r, &err) == 0 ? take(r, &p, &err) : -1;
		if (ret == 1 && one_part(r, &p, buf, &err) == -1)
			ret = -1;
	}
	if (ret == -1)
		fail(r, &err);
	free(buf);
	pthread_mutex_lock(&r->lock);
	r->running--;
	pthread_cond_signal(&r->more);
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

void ofs_reshard_tell(struct ofs_reshard *r)
{
	const struct optimfs_watch *w = &r->how->watch;
	char name[OFS_FILE_NAME] = "";
	struct optimfs_error err;

	if (!r->is_rank0)
		return;
	if (w->progress != NULL) {
		pthread_mutex_lock(&r->lock);
		if (r->at < r->n)
			ofs_view_path(r->snap,
			    (struct ofs_at){
				r->view.space, r->file[r->at].index },
			    name);
		pthread_mutex_unlock(&r->lock);
		w->progress(w->ctx, atomic_load(&r->done), r->total, name);
	}
	if (go_on(r, &err) == -1)
		fail(r, &err);
}

static void look_at_others(struct ofs_reshard *r)
{
	struct optimfs_error err;

	if (r->group != NULL && ofs_task_check(r->group, &err) == -1)
		fail(r, &err);
}

/* Waits for all threads and reports progress. */
static void watch(struct ofs_reshard *r)
{
	pthread_mutex_lock(&r->lock);
	while (r->running > 0) {
		ofs_clock_wait(&r->more, &r->lock, 200000000);
		pthread_mutex_unlock(&r->lock);
		ofs_reshard_tell(r);
		look_at_others(r);
		pthread_mutex_lock(&r->lock);
	}
	pthread_mutex_unlock(&r->lock);
}

/* Threads mostly wait for the disk. */
static unsigned jobs(const struct ofs_reshard *r)
{
	unsigned n = r->how->jobs == 0 ? 8 : r->how->jobs;

	return n < OFS_RESHARD_JOBS ? n : OFS_RESHARD_JOBS;
}

int ofs_reshard_work(struct ofs_reshard *r, struct optimfs_error *err)
{
	pthread_t thread[OFS_RESHARD_JOBS];
	unsigned n = jobs(r), started = 0;

	ofs_reshard_tell(r);
	r->at = 0;
	r->running = n;
	while (started < n &&
	    pthread_create(&thread[started], NULL, work, r) == 0)
		started++;
	pthread_mutex_lock(&r->lock);
	r->running -= n - started;
	if (started == 0)
		r->running = 1;
	pthread_mutex_unlock(&r->lock);
	if (started == 0)
		work(r);
	watch(r);
	for (unsigned i = 0; i < started; i++)
		pthread_join(thread[i], NULL);
	if (!atomic_load(&r->failed))
		return 0;
	*err = r->err;
	return -1;
}
