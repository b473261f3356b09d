/* log.c - the progress of a reshard, across runs */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/human.h"
#include "base/memory.h"
#include "cluster/task.h"
#include "cluster/wire.h"
#include "journal/publish.h"
#include "reshard/leftover.h"
#include "reshard/reshard.h"

/* Records: first, which view of which source; parts of files that are on disk;
 * lengths of compressed items that are; checksums of source bytes, which stay
 * valid in any case. */
enum { HEAD = OFS_RESHARD_HEAD, PART = 'P', ITEM = 'I', SUM = 'S' };

#define NOTED (64u << 10)

/* The records of an earlier run. */
struct found {
	struct ofs_reshard *r;
	bool head, foreign;
	const char *other;       /* what differs; NULL: nothing */
	struct ofs_buf *earlier; /* records, as put_record writes them */
};

/* Between ranks: type (1 byte) and numbers (8 bytes each). */
static void put_record(struct ofs_buf *b, const struct ofs_record *e)
{
	ofs_wire_u8(b, e->type);
	for (unsigned i = 0; i < 4; i++)
		ofs_wire_u64(b, e->num[i]);
}

static struct ofs_record take_record(struct ofs_cursor *c)
{
	struct ofs_record e = { .type = ofs_cursor_u8(c) };

	for (unsigned i = 0; i < 4; i++)
		e.num[i] = ofs_cursor_le64(c);
	return e;
}

static int note(struct ofs_reshard *r, const struct ofs_record *e,
    struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };
	int ret;

	put_record(&b, e);
	ret = ofs_task_report(r->group, &b, err);
	ofs_buf_fini(&b);
	return ret;
}

static int append(struct ofs_reshard *r, uint8_t type, uint64_t a, uint64_t b,
    uint64_t c, uint64_t d, struct optimfs_error *err)
{
	struct ofs_record record = { .type = type, .num = { a, b, c, d } };

	if (!r->is_rank0)
		return note(r, &record, err);
	if (r->stage == NULL) /* a bucket knows what it has (bucket.c) */
		return 0;
	if (ofs_stage_append(r->stage, &record, err) == -1)
		return -1;
	if (type != SUM)
		atomic_store(&r->noted, true);
	return 0;
}

int ofs_reshard_log_part(struct ofs_reshard *r, const struct ofs_engine_file *f,
    uint32_t part, struct optimfs_error *err)
{
	return append(r, PART, f->index, part, 0, 0, err);
}

int ofs_reshard_log_item(struct ofs_reshard *r, const struct ofs_engine_file *f,
    uint64_t item, uint64_t len, struct optimfs_error *err)
{
	return append(r, ITEM, f->index, item, len, 0, err);
}

/* A checksum that is not recorded costs a read at most, which is cheap if
 * short. */
static void note_sum(void *ctx, const struct ofs_sum *s)
{
	struct ofs_reshard_open *open = ctx;

	if (s->len < NOTED)
		return;
	(void)append(open->r, SUM, (uint64_t)open->index << 32 | s->crc, s->box,
	    s->from, s->len, NULL);
}

void ofs_reshard_log_sums(struct ofs_reshard_open *open)
{
	struct ofs_sums *sums = ofs_view_sums(open->from->view);
	const struct ofs_reshard *r = open->r;

	for (size_t i = 0; i < r->nsums; i++)
		if (r->sum[i].file == open->index) {
			/* recorded in the order of arrival, not of the file */
			ofs_sums_promise(sums, r->sum[i].sum.from,
			    r->sum[i].sum.from + 1, NULL);
			ofs_sums_add(sums, &r->sum[i].sum);
			ofs_sums_release(sums, r->sum[i].sum.from);
		}
	sums->ctx = open;
	sums->added = note_sum;
}

const char *ofs_reshard_differs(const struct ofs_reshard *r, uint64_t source,
    const char *layout, uint64_t files, uint64_t part)
{
	if (source != r->source)
		return "was of another checkpoint, of this one before it was "
		       "saved again, or with other options";
	if (strcmp(layout, r->name) != 0)
		return "was to another layout";
	if (files != r->files || part != OFS_ENGINE_PART)
		return "was made by another version";
	return NULL;
}

static void say(const struct ofs_reshard *r, const char *text)
{
	if (r->how->watch.say != NULL)
		r->how->watch.say(r->how->watch.ctx, text);
}

void ofs_reshard_say_dropped(const struct ofs_reshard *r, const char *path,
    const char *why)
{
	char text[512];

	snprintf(text, sizeof(text),
	    "%.300s: the run that left it %s: starting again", path, why);
	say(r, text);
}

void ofs_reshard_say_resumed(const struct ofs_reshard *r, const char *path)
{
	char text[512], done[OFS_HUMAN_SIZE], total[OFS_HUMAN_SIZE];

	if (!atomic_load(&r->noted))
		return;
	snprintf(text, sizeof(text),
	    "continuing from %.300s, which has %s of %s", path,
	    ofs_human_bytes(r->engine.done, done),
	    ofs_human_bytes(r->engine.total, total));
	say(r, text);
}

static void found_part(struct ofs_engine_file *f, uint64_t part)
{
	if (part >= f->nparts)
		return;
	if (f->done == NULL)
		f->done = calloc((size_t)f->nparts / 8 + 1, 1);
	if (f->done != NULL)
		f->done[part / 8] |= (uint8_t)(1u << part % 8);
}

static int found_item(struct ofs_engine_file *f, uint64_t item, uint64_t len,
    struct optimfs_error *err)
{
	if (item != f->nitems)
		return 0;
	if (ofs_grow(f->item, f->nitems, f->item_cap, err) == -1)
		return -1;
	f->item[f->nitems++] = len;
	return 0;
}

static int found_sum(struct ofs_reshard *r, const struct ofs_record *e,
    struct optimfs_error *err)
{
	if (ofs_grow(r->sum, r->nsums, r->sums_cap, err) == -1)
		return -1;
	r->sum[r->nsums++] = (struct ofs_reshard_sum){
		.file = (uint32_t)(e->num[0] >> 32),
		.sum = { e->num[1], e->num[2], e->num[3], (uint32_t)e->num[0] },
	};
	return 0;
}

static struct ofs_engine_file *file_of(struct ofs_reshard *r, uint64_t index)
{
	return index < r->nof && r->of[index] != OFS_NONE
	    ? &r->engine.file[r->of[index]]
	    : NULL;
}

static int apply(struct ofs_reshard *r, const struct ofs_record *e,
    struct optimfs_error *err)
{
	struct ofs_engine_file *f;

	if (e->type == SUM)
		return found_sum(r, e, err);
	f = file_of(r, e->num[0]);
	if (f != NULL && e->type == PART)
		found_part(f, e->num[1]);
	else if (f != NULL && e->type == ITEM && f->whole)
		return found_item(f, e->num[1], e->num[2], err);
	return 0;
}

static int replay(void *ctx, const struct ofs_record *e,
    struct optimfs_error *err)
{
	struct found *found = ctx;

	if (!found->head) {
		found->foreign = e->type != HEAD || e->a == NULL;
		found->head = true;
		if (!found->foreign)
			found->other = ofs_reshard_differs(found->r, e->num[0],
			    e->a, e->num[1], e->num[2]);
		return 0;
	}
	if (found->foreign || found->other != NULL)
		return 0;
	if (found->r->group != NULL)
		put_record(found->earlier, e);
	return apply(found->r, e, err);
}

/* Trusts the journal only for files that have the size it implies. */
static void check(struct ofs_reshard *r, struct ofs_engine_file *f)
{
	struct ofs_at at = { r->view.space, f->index };
	char name[OFS_FILE_NAME];
	uint64_t size = f->size;
	struct stat st;

	if (f->done == NULL && f->nitems == 0)
		return;
	ofs_view_path(r->snap, at, name);
	if (f->whole) {
		size = 0;
		for (uint64_t i = 0; i < f->nitems; i++)
			size += f->item[i];
	}
	if (fstatat(r->engine.dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    S_ISREG(st.st_mode) &&
	    (f->whole ? (uint64_t)st.st_size >= size
		      : (uint64_t)st.st_size == size))
		return;
	free(f->done);
	f->done = NULL;
	f->nitems = 0;
}

static int open_new(struct ofs_reshard *r, struct optimfs_error *err)
{
	int dir = ofs_stage_dir(r->stage);

	if (mkdirat(dir, "new", ofs_snapshot_made_mode(r->snap, 0777)) == -1 &&
	    errno != EEXIST)
		return optimfs_fail(err, errno, "OFS809 %s/new: %m",
		    ofs_stage_path(r->stage));
	r->engine.dir =
	    openat(dir, "new", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return r->engine.dir == -1
	    ? optimfs_fail(err, errno, "OFS809 %s/new: %m",
		  ofs_stage_path(r->stage))
	    : 0;
}

/* Removes the directory of new files, with its contents if they are ours; else
 * it must be empty. */
static bool remove_new(struct ofs_reshard *r, bool ours)
{
	int dir = ofs_stage_dir(r->stage);

	close(r->engine.dir);
	r->engine.dir = -1;
	if (ours)
		ofs_publish_clear(dir, "new");
	return unlinkat(dir, "new", AT_REMOVEDIR) == 0 || errno == ENOENT;
}

static int begin_log(struct ofs_reshard *r, const struct found *found,
    struct optimfs_error *err)
{
	struct ofs_record head = { .type = HEAD,
		.num = { r->source, r->files, OFS_ENGINE_PART, 0 },
		.a = r->name };
	const char *path = ofs_stage_path(r->stage);

	if (found->foreign || !remove_new(r, found->head))
		return optimfs_fail(err, EEXIST,
		    "OFS774 %s holds something other than an unfinished reshard: remove it if nothing needs it",
		    path);
	if (found->other != NULL)
		ofs_reshard_say_dropped(r, path, found->other);
	if (open_new(r, err) == -1 || ofs_stage_reset(r->stage, err) == -1)
		return -1;
	/* synced, or the files in new would not be known as ours after a power
	 * failure */
	if (ofs_stage_append(r->stage, &head, err) == -1 ||
	    ofs_stage_sync(r->stage, err) == -1)
		return -1;
	r->ours = true;
	return 0;
}

/* Drops the checksums of complete files. */
static void forget_sums(struct ofs_reshard *r)
{
	size_t n = 0;

	for (size_t i = 0; i < r->nsums; i++) {
		uint32_t index = r->sum[i].file, k;
		struct ofs_engine_file *f;

		f = file_of(r, index);
		if (f == NULL)
			continue;
		for (k = 0; k < f->nparts && ofs_engine_has(f, k);)
			k++;
		if (k < f->nparts)
			r->sum[n++] = r->sum[i];
	}
	r->nsums = n;
}

static int index_files(struct ofs_reshard *r, struct optimfs_error *err)
{
	for (uint32_t i = 0; i < r->engine.n; i++)
		if (r->engine.file[i].index >= r->nof)
			r->nof = r->engine.file[i].index + 1;
	r->of = malloc(((size_t)r->nof + 1) * sizeof(*r->of));
	if (r->of == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < r->nof; i++)
		r->of[i] = OFS_NONE;
	for (uint32_t i = 0; i < r->engine.n; i++)
		r->of[r->engine.file[i].index] = i;
	return 0;
}

static void believe(struct ofs_reshard *r)
{
	for (uint32_t i = 0; i < r->engine.n; i++) {
		check(r, &r->engine.file[i]);
		if (r->engine.file[i].done != NULL ||
		    r->engine.file[i].nitems > 0)
			atomic_store(&r->noted, true);
	}
	forget_sums(r);
}

static int load(struct ofs_reshard *r, struct found *found,
    struct optimfs_error *err)
{
	struct ofs_replay info;

	if (index_files(r, err) == -1 ||
	    ofs_stage_replay(r->stage, replay, found, &info, err) == -1)
		return -1;
	if (!found->head || found->foreign || found->other != NULL)
		return begin_log(r, found, err);
	r->ours = true;
	believe(r);
	return 0;
}

int ofs_reshard_log_earlier(struct ofs_reshard *r, struct ofs_cursor *c,
    struct optimfs_error *err)
{
	struct ofs_record e;

	if (index_files(r, err) == -1)
		return -1;
	while (ofs_cursor_left(c) > 0) {
		e = take_record(c);
		if (c->bad)
			return optimfs_fail(err, EPROTO,
			    "OFS913 the message of rank 0 is invalid");
		if (apply(r, &e, err) == -1)
			return -1;
	}
	believe(r);
	return 0;
}

/* The file belongs to another rank, so its progress is not read here until that
 * rank has finished. */
int ofs_reshard_log_take(void *ctx, int from, struct ofs_cursor *c,
    struct optimfs_error *err)
{
	struct ofs_record e = take_record(c);
	struct ofs_reshard *r = ctx;
	struct ofs_engine_file *f = file_of(r, e.num[0]);
	int ret = 0;

	if (c->bad || ofs_cursor_left(c) != 0 ||
	    (e.type != SUM && (f == NULL || f->ours)))
		return optimfs_fail(err, EPROTO,
		    "OFS913 the report of rank %d is invalid", from);
	if (append(r, e.type, e.num[0], e.num[1], e.num[2], e.num[3], err) ==
	    -1)
		return -1;
	if (e.type == SUM)
		return 0;
	pthread_mutex_lock(&r->engine.lock);
	ret = apply(r, &e, err);
	if (e.type == PART)
		atomic_fetch_add(&r->engine.done,
		    ofs_engine_part_size(f, e.num[1]));
	pthread_mutex_unlock(&r->engine.lock);
	return ret;
}

int ofs_reshard_log_open(struct ofs_reshard *r, const char *dir,
    struct ofs_buf *earlier, struct optimfs_error *err)
{
	struct ofs_stage_config config = { .source = dir,
		.recover = OFS_RECOVER_YES };
	struct found found = { .r = r, .earlier = earlier };

	r->stage = ofs_stage_open(&config, err);
	if (r->stage == NULL)
		return -1;
	if (ofs_stage_note(r->stage)[0] != '\0')
		say(r, ofs_stage_note(r->stage));
	return open_new(r, err) == -1 ? -1 : load(r, &found, err);
}
