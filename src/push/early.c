/* early.c - what is written to its place before the commit */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "push/early.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crc.h"
#include "base/dtype.h"
#include "base/memory.h"
#include "base/search.h"
#include "fs/view.h"
#include "fs/write_open.h"
#include "journal/stage.h"
#include "overlay/overlay.h"
#include "push/template.h"
#include "reshard/reshard.h"

/* While a program copies files into the mount, the disk is idle; when the commit
 * then writes the files of the layout, everything waits for the disk. So a thread
 * writes each tensor to its places as soon as all of it is staged, into files
 * without names. The commit gives them their names and writes as ever, except
 * that it leaves out what they have already.
 *
 * A place has what the commit would write there if that is, in the files of the
 * commit as in those that were laid out first, the same elements of the same tensor,
 * and if the staged bytes of the tensor are of the version that was written. Then
 * the commit does not read them, and gets their checksum from here. If a tensor is
 * written again, removed or renamed, or if a value has another length and moves what
 * is behind it, the commit writes these places again, no more.
 *
 * Nothing is recorded. If the process dies, these files are gone, and what was
 * copied into the mount is in the stage. If a layout fails, it is tried again
 * later. Whatever else fails ends the thread, as do file systems without O_TMPFILE
 * or O_DIRECT: then the commit writes all, and reports what it cannot. */

#define RUN   (UINT64_C(4) << 20) /* the most of a place; divides a part */
#define ALIGN 4096u               /* for O_DIRECT */
/* What is shorter is left to the commit. */
#define SHORT (UINT64_C(64) << 10)
/* More are not worth the descriptors and the memory. */
#define MOST_FILES  512u
#define MOST_PLACES (1u << 20)
#define WINDOW      (UINT64_C(64) << 20)
#define FIRST_PAUSE INT64_C(50000000) /* 50 ms */

/* A file of the layout. */
struct early_file {
	char name[OFS_FILE_NAME];
	uint64_t size;
	struct optimfs_file *from; /* of the view */
	int fd;                    /* -1: not begun */
	struct early *early;
};

/* Blocks of a file that consist of elements of a tensor. */
struct place {
	uint32_t tensor, file;
	uint64_t off, end;
	uint64_t version; /* of the staged bytes that are there; 0: none are */
	uint32_t crc;     /* of them */
};

struct early {
	struct ofs_snapshot *snap;
	struct ofs_engine_early given;
	pthread_t thread;
	bool started;
	atomic_bool stop;
	pthread_mutex_t lock; /* protects the queue, of tensors */
	pthread_cond_t more;
	uint32_t *queue;
	size_t n, cap, taken;

	/* of the thread, then of the commit */
	struct early_file *file;
	uint32_t nfiles;
	struct place *place; /* sorted by tensor, then by file */
	size_t nplaces, places_cap;
	uint8_t *buf;
	int stage;
	mode_t mode;
};

/* --- what goes where -------------------------------------------------------- */

OFS_COMPARE_BY3(by_tensor, struct place, tensor, file, off)
OFS_COMPARE_KEY(is_of_tensor, uint32_t, struct place, tensor)
OFS_COMPARE_BY2(by_file, struct place, file, off)

static int add_place(struct early *e, uint32_t tensor, uint64_t off,
    uint64_t end, struct optimfs_error *err)
{
	if (e->nplaces == MOST_PLACES)
		return 0;
	if (ofs_grow(e->place, e->nplaces, e->places_cap, err) == -1)
		return -1;
	e->place[e->nplaces++] = (struct place){
		.tensor = tensor, .file = e->nfiles - 1, .off = off, .end = end
	};
	return 0;
}

/* No place goes over a multiple of RUN, so that a part has whole places. */
static int add_places(struct early *e, uint64_t base, const struct ofs_piece *p,
    struct optimfs_error *err)
{
	uint64_t off = (base + p->off + ALIGN - 1) / ALIGN * ALIGN;
	uint64_t end = (base + p->off + p->len) / ALIGN * ALIGN, next;
	int ret = 0;

	if (p->kind != OFS_PIECE_BOX || p->tensor >= e->snap->cat->ntensors)
		return 0;
	for (; off < end && ret == 0; off = next) {
		next = (off / RUN + 1) * RUN;
		next = next < end ? next : end;
		if (next - off >= SHORT)
			ret = add_place(e, p->tensor, off, next, err);
	}
	return ret;
}

static int add_file(struct early *e, struct ofs_at at,
    struct optimfs_error *err)
{
	struct early_file *f = &e->file[e->nfiles];
	struct ofs_composition comp;
	uint64_t base, n;
	int ret = 0;

	*f = (struct early_file){ .fd = -1, .early = e };
	if (ofs_view_size(e->snap, at, &f->size, err) == -1 ||
	    ofs_file_open(e->snap, at, &f->from, err) == -1)
		return -1;
	e->nfiles++;
	ofs_view_path(e->snap, at, f->name);
	for (uint64_t off = 0; off < f->size && ret == 0; off = base + n) {
		if (atomic_load(&e->stop))
			return optimfs_fail(err, ECANCELED, "stopped");
		if (ofs_view_window(f->from->view, off,
			f->size - off < WINDOW ? f->size - off : WINDOW, &comp,
			&base, err) == -1)
			return -1;
		n = comp.size;
		for (size_t i = 0; ret == 0 && i < comp.n; i++)
			ret = add_places(e, base, &comp.piece[i], err);
		ofs_composition_fini(&comp);
	}
	return ret;
}

/* The stage and all files may still have to fit beside them. */
static bool has_room(const struct early *e)
{
	struct statvfs st;
	uint64_t all = 0;

	for (uint32_t i = 0; i < e->nfiles; i++)
		all += e->file[i].size;
	return fstatvfs(e->stage, &st) == 0 &&
	    st.f_bavail * st.f_frsize / 2 >= all;
}

static int add_files(struct early *e, struct ofs_at view,
    struct optimfs_error *err)
{
	struct ofs_at at = { view.space, 1 };
	const struct ofs_layout *l = ofs_view_layout(e->snap, view);
	uint32_t n;

	if (ofs_view_count(e->snap, view, &n, err) == -1)
		return -1;
	if (l->zstd != 0 || n > MOST_FILES)
		return 0;
	e->file = ofs_alloc(n, sizeof(*e->file), err);
	if (e->file == NULL)
		return -1;
	for (; at.index < n; at.index++)
		if (!ofs_view_is_dir(e->snap, at) && add_file(e, at, err) == -1)
			return -1;
	if (!has_room(e))
		e->nplaces = 0;
	if (e->nplaces > 0)
		qsort(e->place, e->nplaces, sizeof(*e->place), by_tensor);
	return 0;
}

static void drop_files(struct early *e)
{
	for (uint32_t i = 0; i < e->nfiles; i++) {
		if (e->file[i].fd != -1)
			close(e->file[i].fd);
		optimfs_file_close(e->file[i].from);
	}
	free(e->file);
	e->file = NULL;
	e->nfiles = 0;
	e->nplaces = 0;
}

static int try_lay_out(struct early *e)
{
	struct optimfs_error err;
	struct ofs_template t;
	struct ofs_at view;
	int ret;

	if (ofs_template_load(e->stage, &t, &err) == -1)
		return -1;
	ret = ofs_view_make(e->snap, t.layout, &view, &err);
	if (ret == 0 && ofs_view_files(e->snap, view, &err) != NULL) {
		ret = add_files(e, view, &err);
		ofs_view_files_done(e->snap, view);
	} else {
		ret = -1;
	}
	ofs_template_fini(&t);
	return ret;
}

/* False: stop. */
static bool pause_for(struct early *e, int64_t ns)
{
	int64_t end = ofs_clock_ns() + ns, now;
	bool ret;

	pthread_mutex_lock(&e->lock);
	while (!atomic_load(&e->stop) && (now = ofs_clock_ns()) < end)
		(void)ofs_clock_wait(&e->more, &e->lock, end - now);
	ret = !atomic_load(&e->stop);
	pthread_mutex_unlock(&e->lock);
	return ret;
}

/* While values are copied, they may contradict each other: a parameter is in two
 * groups until the list of the second is there, too. So this is tried again. */
static bool lay_out(struct early *e)
{
	for (int64_t ns = FIRST_PAUSE; try_lay_out(e) == -1; ns *= 2) {
		drop_files(e);
		if (!pause_for(e, ns))
			return false;
	}
	return true;
}

/* --- writing ---------------------------------------------------------------- */

static int begin_file(struct early *e, struct early_file *f)
{
	if (f->fd != -1)
		return 0;
	f->fd = openat(e->stage, ".",
	    O_TMPFILE | O_WRONLY | O_DIRECT | O_CLOEXEC, e->mode);
	return f->fd == -1 ? -1 : fallocate(f->fd, 0, 0, (off_t)f->size);
}

static uint64_t version_of(const struct optimfs_file *f, uint32_t tensor)
{
	struct ofs_overlay_file *staged = ofs_file_staged(f, tensor);

	return staged == NULL ? 0 : ofs_overlay_file_version(staged);
}

static int write_place(struct early *e, struct place *p)
{
	struct early_file *f = &e->file[p->file];
	uint64_t version = version_of(f->from, p->tensor), n = p->end - p->off;
	struct optimfs_error err;

	if (p->version == version)
		return 0;
	if (atomic_load(&e->stop) || begin_file(e, f) == -1)
		return -1;
	if (ofs_file_read_all(f->from, e->buf, n, p->off, &err) == -1 ||
	    version_of(f->from, p->tensor) != version)
		return 0; /* changed meanwhile */
	p->version = 0;
	if (ofs_stage_write(f->fd, e->buf, n, p->off, &err) == -1)
		return -1;
	p->crc = ofs_crc32(0, e->buf, n);
	p->version = version;
	return 0;
}

static int write_tensor(struct early *e, uint32_t tensor)
{
	size_t i = ofs_lower_bound(&tensor, e->place, e->nplaces,
	    sizeof(*e->place), is_of_tensor);

	for (; i < e->nplaces && e->place[i].tensor == tensor; i++)
		if (write_place(e, &e->place[i]) == -1)
			return -1;
	return 0;
}

/* False: stop. */
static bool next(struct early *e, uint32_t *tensor)
{
	bool ret;

	pthread_mutex_lock(&e->lock);
	while (e->taken == e->n && !atomic_load(&e->stop))
		pthread_cond_wait(&e->more, &e->lock);
	ret = !atomic_load(&e->stop);
	if (ret)
		*tensor = e->queue[e->taken++];
	if (e->taken == e->n)
		e->taken = e->n = 0;
	pthread_mutex_unlock(&e->lock);
	return ret;
}

static void *work(void *ctx)
{
	struct early *e = ctx;
	uint32_t tensor;

	(void)prctl(PR_SET_NAME, "optimfs-early");
	e->buf = aligned_alloc(ALIGN, RUN);
	if (e->buf == NULL || !lay_out(e))
		return NULL;
	while (next(e, &tensor) && write_tensor(e, tensor) == 0)
		continue;
	return NULL;
}

/* --- for the commit --------------------------------------------------------- */

static void *give(void *ctx, const char *name, uint64_t size, int dir)
{
	struct early *e = ctx;
	struct early_file *f = NULL;
	char path[40];

	for (uint32_t i = 0; i < e->nfiles && f == NULL; i++)
		if (strcmp(e->file[i].name, name) == 0)
			f = &e->file[i];
	if (f == NULL || f->fd == -1 || f->size != size)
		return NULL;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", f->fd);
	return linkat(AT_FDCWD, path, dir, name, AT_SYMLINK_FOLLOW) == 0 ? f
									 : NULL;
}

/* Elements of a tensor that are in a file. */
struct elements {
	uint32_t tensor;
	uint8_t dtype;
	bool whole;                     /* the tensor, not a box of it */
	uint64_t box[2 * OFS_MAX_DIMS]; /* zeros behind it */
	uint64_t first;                 /* byte of the box, in this dtype */
	/* Where the bytes begin whose checksum the file has; NONE: none. */
	uint64_t summed;
};
#define NONE UINT64_MAX

static void look_at_box(const struct ofs_catalog *cat,
    const struct ofs_piece *p, uint64_t off, struct elements *x)
{
	x->tensor = p->tensor;
	x->dtype = p->dtype;
	x->whole = p->box == NULL;
	if (p->box != NULL)
		memcpy(x->box, p->box,
		    2 * cat->tensors[p->tensor].grid_ndim * sizeof(*p->box));
	x->first = p->first * ofs_dtype_size(p->dtype) + (off - p->off);
}

/* What is in [off, end)? False: not elements of one tensor. */
static bool look(const struct ofs_view_file *f, uint64_t off, uint64_t end,
    struct elements *x)
{
	struct ofs_composition c;
	uint64_t base;
	bool found = false;

	*x = (struct elements){ .summed = NONE };
	if (ofs_view_window(f, off, end - off, &c, &base, NULL) == -1)
		return false;
	for (size_t i = 0; i < c.n; i++) {
		const struct ofs_piece *p = &c.piece[i];

		if (p->kind == OFS_PIECE_BOX && base + p->off <= off &&
		    base + p->off + p->len >= end) {
			look_at_box(ofs_view_cat(f), p, off - base, x);
			found = true;
		} else if (p->kind == OFS_PIECE_CRC && x->summed == NONE &&
		    p->crc.from <= off && p->crc.from + p->crc.n >= end) {
			x->summed = p->crc.from;
		}
	}
	ofs_composition_fini(&c);
	return found;
}

static bool is_same(const struct elements *a, const struct elements *b)
{
	return a->tensor == b->tensor && a->dtype == b->dtype &&
	    a->whole == b->whole && a->first == b->first &&
	    memcmp(a->box, b->box, sizeof(a->box)) == 0;
}

static bool holds(const struct early_file *f, const struct place *p,
    const struct optimfs_file *from)
{
	struct ofs_sums *sums = ofs_view_sums(from->view);
	struct elements was, is;

	if (p->version == 0 || p->version != version_of(from, p->tensor) ||
	    !look(f->from->view, p->off, p->end, &was) ||
	    !look(from->view, p->off, p->end, &is) || !is_same(&was, &is))
		return false;
	if (is.summed != NONE)
		ofs_sums_add(sums,
		    &(struct ofs_sum){
			is.summed, p->off, p->end - p->off, p->crc });
	return true;
}

static bool has(void *given, void *from, uint64_t off, uint64_t *n)
{
	const struct early_file *f = given;
	const struct place key = { .file = (uint32_t)(f - f->early->file),
		.off = off };
	const struct early *e = f->early;
	size_t i =
	    ofs_lower_bound(&key, e->place, e->nplaces, sizeof(key), by_file);
	const struct place *p = i < e->nplaces ? &e->place[i] : NULL;
	uint64_t end;

	if (p == NULL || p->file != key.file)
		return false;
	end = p->off == off ? p->end : p->off;
	if (*n > end - off)
		*n = end - off;
	return p->off == off && off + *n == p->end &&
	    holds(f, p, ((const struct ofs_reshard_open *)from)->from);
}

static struct early *begin(struct optimfs *fs)
{
	struct early *e = calloc(1, sizeof(*e));

	if (e == NULL)
		return NULL;
	e->snap = ofs_enter(fs);
	e->stage = ofs_stage_beside(ofs_overlay_stage(e->snap->overlay));
	e->mode = ofs_snapshot_made_mode(e->snap, 0666);
	e->given = (struct ofs_engine_early){ give, has, e };
	pthread_mutex_init(&e->lock, NULL);
	pthread_cond_init(&e->more, NULL);
	e->started = pthread_create(&e->thread, NULL, work, e) == 0;
	return e;
}

void ofs_push_whole(struct optimfs *fs, uint32_t tensor)
{
	struct early *e;

	pthread_mutex_lock(&fs->lock);
	if (fs->filling == NULL)
		fs->filling = begin(fs);
	e = fs->filling;
	if (e != NULL) {
		pthread_mutex_lock(&e->lock);
		if (ofs_grow(e->queue, e->n, e->cap, NULL) == 0)
			e->queue[e->n++] = tensor;
		pthread_cond_signal(&e->more);
		pthread_mutex_unlock(&e->lock);
	}
	pthread_mutex_unlock(&fs->lock);
}

const struct ofs_engine_early *ofs_push_early(struct optimfs *fs)
{
	struct early *e;

	pthread_mutex_lock(&fs->lock);
	e = fs->filling;
	pthread_mutex_unlock(&fs->lock);
	if (e == NULL)
		return NULL;
	pthread_mutex_lock(&e->lock);
	atomic_store(&e->stop, true);
	pthread_cond_signal(&e->more);
	pthread_mutex_unlock(&e->lock);
	if (e->started)
		pthread_join(e->thread, NULL);
	e->started = false;
	if (e->nplaces > 0)
		qsort(e->place, e->nplaces, sizeof(*e->place), by_file);
	return &e->given;
}

void ofs_push_early_end(struct optimfs *fs)
{
	struct early *e;

	(void)ofs_push_early(fs);
	pthread_mutex_lock(&fs->lock);
	e = fs->filling;
	fs->filling = NULL;
	pthread_mutex_unlock(&fs->lock);
	if (e == NULL)
		return;
	drop_files(e);
	free(e->place);
	free(e->buf);
	free(e->queue);
	ofs_leave(e->snap);
	pthread_cond_destroy(&e->more);
	pthread_mutex_destroy(&e->lock);
	free(e);
}
