/* template.c - mkfs: write the files of a layout, except for tensor data */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "push/template.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/copy.h"
#include "base/memory.h"
#include "base/search.h"
#include "base/step.h"
#include "catalog/budget.h"
#include "fs/view.h"
#include "journal/publish.h"
#include "journal/stage.h"
#include "reshard/dirs.h"

/* The part of a file that is generated at once: at most this much plus a
 * span. */
#define WINDOW ((uint64_t)16 << 20)
/* Size of a write, and of the holes that are written as zeros: shorter than a
 * disk block, so that no block is filled with zeros only. */
#define BUFFER ((uint64_t)256 << 10)
#define HOLE   4096

void ofs_template_fini(struct ofs_template *s)
{
	for (uint32_t i = 0; i < s->nown; i++)
		free(s->own[i].path);
	free(s->own);
	free(s->file);
	free(s->sum);
	*s = (struct ofs_template){ 0 };
}

static int add_sum(struct ofs_template *s, uint32_t file, uint64_t at,
    const struct ofs_piece *p, struct optimfs_error *err)
{
	if (ofs_grow(s->sum, s->nsums, s->cap, err) == -1)
		return -1;
	s->sum[s->nsums++] =
	    (struct ofs_template_sum){ file, at, p->crc.from, p->crc.n };
	return 0;
}

/* A buffered writer of literal bytes, from the start of a file to its end:
 * small tensors have several short ranges of them. */
struct pen {
	int fd;
	uint64_t at, n; /* position and length of buf */
	uint8_t *buf;   /* size BUFFER */
};

static int pen_flush(struct pen *p, struct optimfs_error *err)
{
	uint64_t n = p->n;

	p->n = 0;
	return ofs_write_all(p->fd, p->buf, n, p->at, err);
}

static int pen_put(struct pen *p, const void *bytes, uint64_t n, uint64_t at,
    struct optimfs_error *err)
{
	uint64_t hole = at - (p->at + p->n);

	if (p->n == 0 || hole >= HOLE || hole + n > BUFFER - p->n) {
		if (pen_flush(p, err) == -1)
			return -1;
		if (n > BUFFER)
			return ofs_write_all(p->fd, bytes, n, at, err);
		p->at = at;
		hole = 0;
	}
	memset(p->buf + p->n, 0, hole);
	memcpy(p->buf + p->n + hole, bytes, n);
	p->n += hole + n;
	return 0;
}

/* Reports progress: n more bytes. */
static int tell(const struct optimfs *fs, struct ofs_template *s, uint64_t n,
    const char *name, struct optimfs_error *err)
{
	s->done += n;
	return ofs_step(&fs->watch, name, s->done, s->total, err);
}

/* Writes the pieces that are not tensors; the first one is at base. */
static int write_pieces(struct ofs_template *s, uint32_t file, struct pen *pen,
    const struct ofs_composition *c, uint64_t base, struct optimfs_error *err)
{
	int ret = 0;

	for (size_t i = 0; i < c->n && ret == 0; i++) {
		const struct ofs_piece *p = &c->piece[i];

		if (p->kind == OFS_PIECE_BYTES)
			ret =
			    pen_put(pen, p->bytes, p->len, base + p->off, err);
		else if (p->kind == OFS_PIECE_CRC)
			ret = add_sum(s, file, base + p->off, p, err);
	}
	return ret;
}

static int write_spans(const struct optimfs *fs, struct ofs_template *s,
    uint32_t file, int fd, struct ofs_view_file *from,
    struct optimfs_error *err)
{
	uint64_t size = s->file[file].size, at = 0, base, len;
	struct pen pen = { .fd = fd, .buf = malloc(BUFFER) };
	struct ofs_composition c;
	int ret = 0;

	if (pen.buf == NULL)
		return ofs_no_memory(err);
	while (at < size && ret == 0) {
		len = size - at < WINDOW ? size - at : WINDOW;
		ret = ofs_view_window(from, at, len, &c, &base, err);
		if (ret == -1)
			break;
		ret = write_pieces(s, file, &pen, &c, base, err);
		if (ret == 0)
			ret = tell(fs, s, base + c.size - at,
			    s->file[file].name, err);
		at = base + c.size;
		ofs_composition_fini(&c);
	}
	if (ret == 0)
		ret = pen_flush(&pen, err);
	free(pen.buf);
	return ret;
}

/* Fails early if the index would be too large for our own reader. */
static int check_index(const struct ofs_snapshot *snap,
    const struct ofs_template_file *f, struct optimfs_error *err)
{
	uint64_t max = ofs_metadata_max(snap->cat);

	if (strcmp(f->name, ".metadata") != 0 || f->size <= max)
		return 0;
	return optimfs_fail(err, E2BIG,
	    "OFS440 .metadata: %" PRIu64 " bytes in this layout, limit %" PRIu64
	    " (-o max_metadata)",
	    f->size, max);
}

static int write_file(struct ofs_snapshot *snap, struct ofs_at at, int dir,
    struct ofs_template *s, uint32_t file, struct optimfs_error *err)
{
	struct ofs_template_file *f = &s->file[file];
	struct ofs_view_file *from;
	int fd, ret;

	if (ofs_view_open(snap, at, &from, &f->size, err) == -1)
		return -1;
	if (check_index(snap, f, err) == -1) {
		ofs_view_close(from);
		return -1;
	}
	fd = openat(dir, f->name,
	    O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
	    ofs_snapshot_made_mode(snap, 0666));
	if (fd == -1 || ftruncate(fd, (off_t)f->size) == -1)
		ret = optimfs_fail(err, errno, "OFS801 %s: %m", f->name);
	else
		ret = write_spans(snap->fs, s, file, fd, from, err);
	if (ret == 0 && fsync(fd) == -1)
		ret = optimfs_fail(err, errno, "OFS801 %s: fsync: %m", f->name);
	if (fd != -1)
		close(fd);
	ofs_view_close(from);
	return ret == -1 ? optimfs_fail_in(err, "%s", f->name) : 0;
}

/* Computes the total size, if there is a watcher. */
static int measure(struct ofs_snapshot *snap, struct ofs_at view, uint32_t n,
    struct ofs_template *s, struct optimfs_error *err)
{
	struct ofs_at at = { view.space, 1 };
	uint64_t size;

	if (snap->fs->watch.progress == NULL)
		return 0;
	for (; at.index < n; at.index++) {
		if (ofs_view_is_dir(snap, at))
			continue;
		if (ofs_view_size(snap, at, &size, err) == -1)
			return -1;
		s->total += size;
	}
	return tell(snap->fs, s, 0, NULL, err);
}

/* Writes the files of a view to dir, which is empty, syncs them, and describes
 * them in s. */
static int write_files(struct ofs_snapshot *snap, struct ofs_at view, int dir,
    struct ofs_template *s, struct optimfs_error *err)
{
	struct ofs_at at = { view.space, 1 };
	uint32_t n;

	if (ofs_view_count(snap, view, &n, err) == -1)
		return -1;
	s->file = calloc((size_t)n + 1, sizeof(*s->file));
	if (s->file == NULL)
		return ofs_no_memory(err);
	if (measure(snap, view, n, s, err) == -1 ||
	    ofs_view_dirs_make(snap, view, dir, err) == -1)
		return -1;
	for (; at.index < n; at.index++) {
		if (ofs_view_is_dir(snap, at))
			continue;
		ofs_view_path(snap, at, s->file[s->n].name);
		if (write_file(snap, at, dir, s, s->n, err) == -1)
			return -1;
		s->n++;
	}
	return ofs_view_dirs_sync(snap, view, dir, err);
}

/* Removes compression from a layout name: the sizes of compressed items are
 * only known after writing them. */
static void without_zstd(const char *name, char *out)
{
	size_t n = 0;

	while (*name != '\0') {
		size_t k = strcspn(name + 1, ",") + 1;

		if (strncmp(name, ",zstd", 5) != 0) {
			memcpy(out + n, name, k);
			n += k;
		}
		name += k;
	}
	out[n] = '\0';
}

/* Fails unless the directory is absent or empty. */
int ofs_template_room(const char *dir, struct optimfs_error *err)
{
	int empty = ofs_dir_empty(dir);

	if (empty == 1 || (empty == -1 && errno == ENOENT))
		return 0;
	if (empty == -1)
		return optimfs_fail(err, errno == ENOTDIR ? EEXIST : errno,
		    "OFS830 %s: %m", dir);
	return optimfs_fail(err, EEXIST,
	    "OFS830 %s is not empty: a new checkpoint needs a directory of its "
	    "own",
	    dir);
}

static bool has_info(int stage)
{
	return faccessat(stage, OFS_TEMPLATE_INFO, F_OK, AT_SYMLINK_NOFOLLOW) ==
	    0;
}

/* Makes the directory; the remains of a killed mkfs are removed first. */
static int make_dir(const struct ofs_snapshot *snap, struct ofs_stage *st,
    struct optimfs_error *err)
{
	int stage = ofs_stage_beside(st), fd;

	if (has_info(stage))
		return optimfs_fail(err, EEXIST,
		    "OFS830 %s: there is a template already: mount it, or "
		    "remove that directory",
		    ofs_stage_path(st));
	ofs_publish_clear(stage, OFS_TEMPLATE);
	if (mkdirat(stage, OFS_TEMPLATE, ofs_snapshot_made_mode(snap, 0777)) ==
	    -1)
		return optimfs_fail(err, errno, "OFS801 %s/%s: %m",
		    ofs_stage_path(st), OFS_TEMPLATE);
	fd = openat(stage, OFS_TEMPLATE,
	    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd == -1 ? optimfs_fail(err, errno, "OFS801 %m") : fd;
}

OFS_COMPARE_BY3(by_place, struct ofs_template_sum, file, from, n)

static char *template_path(const struct ofs_stage *st,
    struct optimfs_error *err)
{
	char *path;

	if (asprintf(&path, "%s/%s", ofs_stage_path(st), OFS_TEMPLATE) != -1)
		return path;
	ofs_no_memory(err);
	return NULL;
}

static int say_values(struct ofs_snapshot *snap, struct ofs_at view,
    struct optimfs_error *err)
{
	struct ofs_files *files = ofs_view_files(snap, view, err);

	if (files == NULL)
		return -1;
	ofs_render_report_say(files->report, &snap->fs->watch);
	ofs_view_files_done(snap, view);
	return 0;
}

static int make(struct ofs_snapshot *snap, const char *layout,
    struct ofs_stage *st, struct optimfs_error *err)
{
	struct ofs_template s = { 0 };
	char plain[OFS_VIEW_NAME];
	struct ofs_at view;
	int dir, ret;
	char *path;

	if (strlen(layout) >= sizeof(plain))
		return optimfs_fail(err, EINVAL,
		    "OFS771 view %.80s: the name is too long", layout);
	strcpy(s.layout, layout);
	without_zstd(layout, plain);
	if (ofs_view_make_summed(snap, layout, &view, err) == -1 ||
	    ofs_view_make_summed(snap, plain, &view, err) == -1)
		return -1;
	dir = make_dir(snap, st, err);
	if (dir == -1)
		return -1;
	ret = write_files(snap, view, dir, &s, err);
	close(dir);
	if (ret == 0)
		ret = say_values(snap, view, err);
	path = ret == 0 ? template_path(st, err) : NULL;
	if (path == NULL || ofs_template_match(snap, path, &s, err) == -1)
		ret = -1;
	free(path);
	if (s.nsums > 0)
		qsort(s.sum, s.nsums, sizeof(*s.sum), by_place);
	if (ret == 0)
		ret = ofs_template_save(&s, ofs_stage_beside(st), err);
	if (ret == -1) {
		unlinkat(ofs_stage_beside(st), OFS_TEMPLATE_INFO, 0);
		ofs_publish_clear(ofs_stage_beside(st), OFS_TEMPLATE);
	}
	ofs_template_fini(&s);
	return ret;
}

static int make_of(struct optimfs *like, const char *layout,
    struct ofs_stage *st, struct optimfs_error *err)
{
	struct ofs_snapshot *snap = ofs_enter(like);
	int ret = make(snap, layout, st, err);

	ofs_leave(snap);
	return ret;
}

int ofs_template_dir(const char *dir, bool *made, struct optimfs_error *err)
{
	*made = mkdir(dir, 0777) == 0;
	if (!*made && errno != EEXIST)
		return optimfs_fail(err, errno, "OFS801 %s: %m", dir);
	return ofs_sync_parent(dir) == 0
	    ? 0
	    : optimfs_fail(err, errno, "OFS801 %s: fsync: %m", dir);
}

/* A destination that existed is for nobody who may not read the source. */
static int narrow(struct optimfs *like, const char *dir,
    struct optimfs_error *err)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct ofs_snapshot *snap = ofs_enter(like);
	struct stat st;
	mode_t mode;
	int ret = fd == -1 ? -1 : fstat(fd, &st);

	mode = ret == -1 ? 0 : ofs_snapshot_made_mode(snap, st.st_mode & 0777);
	if (ret == 0 && mode != (st.st_mode & 0777))
		ret = fchmod(fd, (st.st_mode & 07000) | mode);
	if (ret == -1)
		optimfs_fail(err, errno, "OFS801 %s: its mode: %m", dir);
	ofs_leave(snap);
	if (fd != -1)
		close(fd);
	return ret;
}

int ofs_template_make(struct optimfs *like, const char *layout, const char *dir,
    struct optimfs_error *err)
{
	struct ofs_stage_config config = { .source = dir };
	struct ofs_stage *st;
	bool made;
	int ret = -1;

	if (ofs_template_room(dir, err) == -1)
		return -1;
	st = ofs_stage_open(&config, err);
	if (st == NULL)
		return -1;
	/* before the template, which is useless without its destination */
	if (ofs_template_dir(dir, &made, err) == 0 &&
	    narrow(like, dir, err) == 0)
		ret = make_of(like, layout, st, err);
	if (ret == -1 && made)
		rmdir(dir);
	ofs_stage_close(st, has_info(ofs_stage_beside(st)));
	return ret;
}
