/* reshard.c - write a view to a directory, completely or not at all */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "reshard/reshard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/cursor.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/step.h"
#include "cluster/task.h"
#include "journal/publish.h"
#include "journal/stage_path.h"
#include "reshard/bucket.h"
#include "reshard/leftover.h"
#include "store/http/bucket.h"
#include "store/http/open.h"
#include "tree/digest.h"

/* The files go to the directory new of a stage (journal/stage.h), which is
 * renamed to the target once all of them are on disk. */

static void hash_text(XXH64_state_t *h, const char *s)
{
	if (s != NULL)
		XXH64_update(h, s, strlen(s) + 1);
	XXH64_update(h, "", 1);
}

static void hash_number(XXH64_state_t *h, uint64_t v)
{
	uint8_t le[8];

	ofs_put_le(le, v, sizeof(le));
	XXH64_update(h, le, sizeof(le));
}

/* Hashes the contents of an index. */
static int hash_file(const struct ofs_snapshot *snap, uint32_t index,
    XXH64_state_t *h, struct optimfs_error *err)
{
	const struct ofs_object *o = &snap->cat->objects[index];
	struct ofs_input in;
	char buf[1 << 16];
	uint64_t n;
	int ret = 0;

	if (ofs_dir_open_input(&snap->cat->dir, o->path, &in, NULL, err) == -1)
		return -1;
	for (uint64_t off = 0; off < o->size && ret == 0; off += n) {
		n = o->size - off < sizeof(buf) ? o->size - off : sizeof(buf);
		ret = ofs_input_read(&in, buf, n, off, err);
		if (ret == 0)
			XXH64_update(h, buf, n);
	}
	ofs_input_close(&in);
	return ret;
}

/* Hashes the source files as they were opened, what they mean, and the options
 * for reading. A program that sets size and time of a new file to those of the
 * old one does not set its inode or its change time. */
static int hash_source(const struct ofs_snapshot *snap, XXH64_state_t *h,
    struct optimfs_error *err)
{
	const struct ofs_catalog *cat = snap->cat;
	uint64_t *node = ofs_tree_digests(&snap->tree, cat, err);

	if (node == NULL)
		return -1;

	hash_text(h, cat->format);
	hash_text(h, snap->fs->options.type);
	hash_text(h, snap->fs->options.optim_key);
	hash_text(h, snap->fs->options.model_key);
	hash_text(h, snap->fs->options.ids);
	hash_text(h, snap->fs->options.units);
	hash_text(h, snap->fs->options.subtree);
	hash_text(h, snap->fs->options.fill);
	hash_text(h, snap->fs->options.join);
	for (uint32_t i = 0; i < cat->nobjects; i++) {
		hash_text(h, cat->objects[i].path);
		hash_number(h, cat->objects[i].size);
		hash_number(h, (uint64_t)cat->objects[i].mtime_ns);
		hash_number(h, cat->objects[i].ino);
		hash_number(h, (uint64_t)cat->objects[i].stamp.ctime_ns);
	}
	for (uint32_t i = 0; i < snap->tree.n; i++)
		hash_number(h, node[i]);
	free(node);
	for (uint32_t i = 0; i < snap->nindexes; i++)
		if (hash_file(snap, snap->index[i], h, err) == -1)
			return -1;
	return 0;
}

/* Hashes the files that this version would write. */
static int hash_files(struct ofs_reshard *r, XXH64_state_t *h,
    struct optimfs_error *err)
{
	char name[OFS_FILE_NAME];

	hash_text(h, optimfs_version());
	hash_number(h, ofs_view_rules(r->snap, r->view));
	for (uint32_t i = 0; i < r->engine.n; i++) {
		struct ofs_engine_file *f = &r->engine.file[i];
		struct ofs_at at = { r->view.space, f->index };

		if (ofs_view_size(r->snap, at, &f->size, err) == -1)
			return -1;
		ofs_view_path(r->snap, at, name);
		hash_text(h, name);
		hash_number(h, f->size);
		r->engine.total += f->size;
	}
	return 0;
}

static int identify(struct ofs_reshard *r, struct optimfs_error *err)
{
	XXH64_state_t *h = XXH64_createState();
	int ret;

	if (h == NULL)
		return ofs_no_memory(err);
	XXH64_reset(h, 0);
	ret = hash_source(r->snap, h, err);
	r->source = XXH64_digest(h);
	XXH64_reset(h, 0);
	if (ret == 0)
		ret = hash_files(r, h, err);
	r->files = XXH64_digest(h);
	XXH64_freeState(h);
	return ret;
}

/* The source of the engine: files of the view. */

static const char *name_of(void *ctx, uint32_t index, char buf[OFS_FILE_NAME])
{
	const struct ofs_reshard *r = ctx;

	ofs_view_path(r->snap, (struct ofs_at){ r->view.space, index }, buf);
	return buf;
}

static void close_one(void *from)
{
	struct ofs_reshard_open *open = from;

	optimfs_file_close(open->from);
	free(open);
}

static void *open_one(void *ctx, uint32_t index, struct optimfs_error *err)
{
	struct ofs_reshard *r = ctx;
	struct ofs_reshard_open *open = ofs_alloc(1, sizeof(*open), err);

	if (open == NULL)
		return NULL;
	open->r = r;
	open->index = index;
	if (ofs_file_open(r->snap, (struct ofs_at){ r->view.space, index },
		&open->from, err) == -1) {
		free(open);
		return NULL;
	}
	ofs_reshard_log_sums(open);
	return open;
}

static int read_one(void *from, void *buf, uint64_t len, uint64_t off,
    struct optimfs_error *err)
{
	struct ofs_reshard_open *open = from;

	return ofs_file_read_all(open->from, buf, len, off, err);
}

static struct ofs_sums *sums_of(void *from)
{
	return ofs_view_sums(((struct ofs_reshard_open *)from)->from->view);
}

static const struct ofs_spans *spans_of(void *from)
{
	return ofs_view_spans(((struct ofs_reshard_open *)from)->from->view);
}

static void stored(void *ctx, uint32_t index, const struct ofs_span *span,
    uint64_t len)
{
	struct ofs_reshard *r = ctx;

	(void)index;
	r->made->ops->stored(r->made, span, len);
}

static int did_part(void *ctx, const struct ofs_engine_file *f, uint32_t part,
    struct optimfs_error *err)
{
	return ofs_reshard_log_part(ctx, f, part, err);
}

static int did_item(void *ctx, const struct ofs_engine_file *f, uint64_t item,
    uint64_t len, struct optimfs_error *err)
{
	return ofs_reshard_log_item(ctx, f, item, len, err);
}

static void did_file(void *ctx, const struct ofs_engine_file *f)
{
	struct ofs_reshard *r = ctx;

	if (r->group != NULL)
		ofs_task_did(r->group, f->size);
}

static int tick(void *ctx, const char *name, struct optimfs_error *err)
{
	struct ofs_reshard *r = ctx;
	const struct optimfs_watch *w = &r->how->watch;

	if (r->is_rank0 && w->progress != NULL)
		w->progress(w->ctx, atomic_load(&r->engine.done),
		    r->engine.total, name);
	if (r->is_rank0 && ofs_go_on(w->stop, w->ctx, err) == -1)
		return -1;
	return r->group == NULL ? 0 : ofs_task_check(r->group, err);
}

static const struct ofs_engine_ops view_ops = {
	.name = name_of,
	.open = open_one,
	.close = close_one,
	.read = read_one,
	.sums = sums_of,
	.spans = spans_of,
	.stored = stored,
	.did_part = did_part,
	.did_item = did_item,
	.did_file = did_file,
	.tick = tick,
};

static bool is_compressed(const struct ofs_reshard *r)
{
	return ofs_view_layout(r->snap, r->view)->zstd != 0;
}

static void add_file(struct ofs_reshard *r, uint32_t index)
{
	struct ofs_at at = { r->view.space, index };
	uint32_t file = ofs_view_file_of(r->snap, at);

	if (file == OFS_NONE || (is_compressed(r) && file == 0))
		return; /* the index comes when all lengths are known */
	r->engine.file[r->engine.n++] = (struct ofs_engine_file){
		.index = index, .ours = true, .whole = is_compressed(r)
	};
}

static int find_files(struct ofs_reshard *r, struct optimfs_error *err)
{
	uint32_t n;

	if (ofs_view_count(r->snap, r->view, &n, err) == -1)
		return -1;
	r->engine.file = calloc((size_t)n + 1, sizeof(*r->engine.file));
	if (r->engine.file == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 1; i < n; i++)
		add_file(r, i);
	return identify(r, err) == -1 ? -1 : ofs_engine_cut(&r->engine, err);
}

/* The bytes written by an earlier run. */
static uint64_t written(const struct ofs_reshard *r)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < r->engine.n; i++)
		n += ofs_engine_written(&r->engine.file[i]);
	return n;
}

/* Writes the index of compressed items, when all lengths are known, as the only
 * file. */
static int write_index(struct ofs_reshard *r, struct optimfs_error *err)
{
	struct ofs_at at = { r->view.space, 1 };

	while (ofs_view_file_of(r->snap, at) != 0 && at.index < r->made->n)
		at.index++;
	for (uint32_t i = 0; i < r->engine.n; i++) {
		free(r->engine.file[i].done);
		free(r->engine.file[i].item);
	}
	r->engine.file[0] =
	    (struct ofs_engine_file){ .index = at.index, .ours = true };
	r->engine.n = 1;
	if (ofs_view_size(r->snap, at, &r->engine.file[0].size, err) == -1)
		return -1;
	r->engine.total += r->engine.file[0].size;
	return ofs_engine_cut(&r->engine, err) == -1
	    ? -1
	    : ofs_engine_run(&r->engine, err);
}

/* Restores the lengths of items in files that an earlier run completed. */
static int recall(struct ofs_reshard *r, struct optimfs_error *err)
{
	struct ofs_files *files = r->made;

	for (uint32_t i = 0; i < r->engine.n; i++) {
		struct ofs_engine_file *f = &r->engine.file[i];
		struct ofs_at at = { r->view.space, f->index };
		struct ofs_spans s = { 0 };

		if (!ofs_engine_has(f, 0))
			continue;
		if (files->ops->spans(files, ofs_view_file_of(r->snap, at), &s,
			err) == -1) {
			ofs_spans_fini(&s);
			return -1;
		}
		if (s.n == f->nitems) {
			for (size_t k = 0; k < s.n; k++)
				files->ops->stored(files, &s.v[k], f->item[k]);
		} else {
			free(f->done); /* read again from the journal */
			f->done = NULL;
		}
		ofs_spans_fini(&s);
	}
	return 0;
}

static int make_dir(int dir, const char *path, mode_t mode,
    struct optimfs_error *err)
{
	if (mkdirat(dir, path, mode) == 0 || errno == EEXIST)
		return 0;
	return optimfs_fail(err, errno, "OFS801 %.150s: %m", path);
}

static int sync_dir(int dir, const char *path, mode_t mode,
    struct optimfs_error *err)
{
	int fd =
	    openat(dir, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int ret = 0;

	(void)mode;
	if (fd == -1 || fsync(fd) == -1)
		ret =
		    optimfs_fail(err, errno, "OFS801 %.150s: fsync: %m", path);
	if (fd != -1)
		close(fd);
	return ret;
}

/* Calls call for the directories of the view, each before those in it. */
static int each_dir(const struct ofs_reshard *r,
    int (*call)(int dir, const char *path, mode_t mode,
	struct optimfs_error *err),
    struct optimfs_error *err)
{
	mode_t mode = ofs_snapshot_made_mode(r->snap, 0777);
	struct ofs_at at = { r->view.space, 1 };
	char path[OFS_FILE_NAME];
	uint32_t n;

	if (ofs_view_count(r->snap, r->view, &n, err) == -1)
		return -1;
	for (; at.index < n; at.index++) {
		if (!ofs_view_is_dir(r->snap, at))
			continue;
		ofs_view_path(r->snap, at, path);
		if (call(r->engine.dir, path, mode, err) == -1)
			return -1;
	}
	return 0;
}

static int sync_dirs(const struct ofs_reshard *r, struct optimfs_error *err)
{
	if (each_dir(r, sync_dir, err) == -1)
		return -1;
	return sync_dir(r->engine.dir, ".", 0, err);
}

static int write_files(struct ofs_reshard *r, struct optimfs_error *err)
{
	if (is_compressed(r) && recall(r, err) == -1)
		return -1;
	/* other ranks may already report progress */
	pthread_mutex_lock(&r->engine.lock);
	atomic_store(&r->engine.done, written(r));
	pthread_mutex_unlock(&r->engine.lock);
	if (r->is_rank0)
		ofs_reshard_say_resumed(r, ofs_stage_path(r->stage));
	if (ofs_engine_run(&r->engine, err) == -1)
		return -1;
	/* names that we made; the publisher syncs them again */
	return r->is_rank0 || r->engine.dir == -1 ? 0 : sync_dirs(r, err);
}

/* Not every file system can rename without replacing: there, the name is taken
 * by an empty directory first, so that only our own is replaced. */
static int take_name(int stage, const char *dir)
{
	if (renameat2(stage, "new", AT_FDCWD, dir, RENAME_NOREPLACE) == 0)
		return 0;
	if ((errno != EINVAL && errno != ENOSYS) || mkdir(dir, 0700) == -1)
		return -1;
	return renameat(stage, "new", AT_FDCWD, dir);
}

static int publish(struct ofs_reshard *r, const char *dir,
    struct optimfs_error *err)
{
	int stage, ret;

	if (!r->is_rank0)
		return 0;
	/* other ranks have recorded their compressed items */
	if (is_compressed(r) &&
	    (recall(r, err) == -1 || write_index(r, err) == -1))
		return -1;
	stage = ofs_stage_dir(r->stage);
	if (sync_dirs(r, err) == -1)
		return -1;
	if (ofs_stage_held(r->stage, err) == -1)
		return -1;
	ret = take_name(stage, dir);
	return ret == -1 ? optimfs_fail(err, errno, "%s: %m", dir) : 0;
}

/* Keeps the stage if a later run can continue from it, or if something is left
 * in new/: only the journal says that it is ours. */
static void leave(struct ofs_reshard *r)
{
	int stage = ofs_stage_dir(r->stage);
	bool keep = !r->ours || atomic_load(&r->noted);

	if (r->ours && keep && r->how->kept != NULL)
		r->how->kept(r->how->ctx, ofs_stage_path(r->stage));
	if (!keep) {
		ofs_publish_clear(stage, "new");
		keep = faccessat(stage, "new", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
	}
	ofs_stage_close(r->stage, keep);
	r->stage = NULL;
}

/* Until the rename is durable, a later run can still continue. */
static int finish(struct ofs_reshard *r, const char *dir,
    struct optimfs_error *err)
{
	bool safe = ofs_sync_parent(dir) == 0;

	if (!safe)
		optimfs_fail(err, errno,
		    "OFS803 %s is there, but may not survive a crash of the "
		    "machine: its directory could not be synced: %m",
		    dir);
	ofs_stage_close(r->stage, !safe);
	r->stage = NULL;
	return safe ? 0 : 1;
}

static int check_absent(const char *dir, struct optimfs_error *err)
{
	struct stat st;

	if (lstat(dir, &st) == -1)
		return 0;
	return optimfs_fail(err, EEXIST, "%s already exists", dir);
}

/* A checkpoint with another one in it is no longer what was read. */
static int check_outside(const struct ofs_reshard *r, const char *dir,
    struct optimfs_error *err)
{
	char *name, *above = ofs_stage_split(dir, &name, err);
	int ret = -1;

	if (above != NULL)
		ret = ofs_fs_outside(r->snap->fs, above, dir, err);
	free(above);
	return ret;
}

static int lay_out(struct ofs_reshard *r, struct optimfs_error *err)
{
	if (ofs_view_make_summed(r->snap, r->how->to, &r->view, err) == -1)
		return -1;
	ofs_view_name(r->snap, r->view, r->name);
	r->made = ofs_view_files(r->snap, r->view, err);
	if (r->made != NULL)
		r->engine.level = (int)ofs_view_layout(r->snap, r->view)->zstd;
	r->engine.jobs = r->how->jobs;
	return r->made == NULL ? -1 : find_files(r, err);
}

static int prepare(struct ofs_reshard *r, const char *dir,
    struct ofs_buf *earlier, struct optimfs_error *err)
{
	if (r->is_rank0 && check_absent(dir, err) == -1) {
		ofs_reshard_tidy(dir);
		return -1;
	}
	if (r->is_rank0 && check_outside(r, dir, err) == -1)
		return -1;
	if (lay_out(r, err) == -1)
		return -1;
	if (!r->is_rank0)
		return 0;
	ofs_render_report_say(r->made->report, &r->how->watch);
	/* another run may have finished before this one got the lock */
	if (ofs_reshard_log_open(r, dir, earlier, err) == -1 ||
	    check_absent(dir, err) == -1)
		return -1;
	return each_dir(r, make_dir, err);
}

/* With several ranks, each writes its files to the stage of rank 0, which
 * publishes when all are done. */
static int reshard(struct ofs_reshard *r, const char *dir,
    struct optimfs_error *err)
{
	struct ofs_buf earlier = { 0 };
	int ret = prepare(r, dir, &earlier, err), published;

	ret = ofs_reshard_join(r, ret, dir, &earlier, err);
	ofs_buf_fini(&earlier);
	if (ret == 0)
		ret = ofs_reshard_barrier(r, write_files(r, err), err);
	if (ret == 0) {
		published = publish(r, dir, err);
		ret = ofs_reshard_barrier(r, published, err);
		if (r->is_rank0 && published == 0)
			ret = 0; /* even if a rank has died since */
	}
	if (r->group != NULL)
		ofs_task_end(r->group);
	if (r->group != NULL && ret == 0)
		ofs_task_tell(r->group, &r->how->watch);
	if (ret == 0)
		return r->is_rank0 ? finish(r, dir, err) : 0;
	if (r->stage != NULL)
		leave(r);
	return -1;
}

/* In a bucket nothing is renamed, and a stage is no directory. */
static int reshard_to_bucket(struct ofs_reshard *r, const char *address,
    struct optimfs_error *err)
{
	if (lay_out(r, err) == -1 || ofs_reshard_bucket_check(r, err) == -1)
		return -1;
	ofs_render_report_say(r->made->report, &r->how->watch);
	return ofs_reshard_bucket(r, address, err);
}

/* The target without trailing slashes; NULL: ENOMEM. */
static char *target(const struct ofs_reshard *r, const char *dir,
    struct optimfs_error *err)
{
	char *path;
	size_t n;

	if ((!ofs_bucket_is(dir) || r->group != NULL) &&
	    ofs_http_refuse(dir, err) == -1)
		return NULL;
	path = r->group != NULL ? optimfs_group_expand(r->group, dir, err)
				: strdup(dir);
	n = path == NULL ? 0 : strlen(path);
	if (path == NULL)
		ofs_no_memory(err);
	while (n > 1 && path[n - 1] == '/')
		path[--n] = '\0';
	return path;
}

int optimfs_reshard(struct optimfs *fs, const char *dir,
    const struct optimfs_reshard *how, struct optimfs_error *err)
{
	return ofs_reshard_after(fs, dir, how, NULL, err);
}

int ofs_reshard_after(struct optimfs *fs, const char *dir,
    const struct optimfs_reshard *how, const struct ofs_engine_early *early,
    struct optimfs_error *err)
{
	struct optimfs_group *w = fs->options.group;
	struct ofs_reshard r = { .snap = ofs_enter(fs),
		.how = how,
		.group = w,
		.is_rank0 = w == NULL || w->rank == 0 };
	char *path;
	int ret;

	err = OFS_SOME_ERROR(err);
	path = ofs_fs_single(fs, err) == -1 ? NULL : target(&r, dir, err);
	ofs_engine_init(&r.engine);
	r.engine.mode = ofs_snapshot_made_mode(r.snap, 0666);
	r.engine.ops = &view_ops;
	r.engine.early = early;
	r.engine.ctx = &r;
	if (path == NULL)
		ret = ofs_reshard_join(&r, -1, "", NULL, err);
	else if (ofs_bucket_is(path) && r.group == NULL)
		ret = reshard_to_bucket(&r, path, err);
	else
		ret = reshard(&r, path, err);
	if (r.made != NULL)
		ofs_view_files_done(r.snap, r.view);
	free(r.of);
	free(r.sum);
	if (r.engine.dir != -1)
		close(r.engine.dir);
	ofs_engine_fini(&r.engine);
	free(path);
	ofs_leave(r.snap);
	return ret;
}
