/* reshard_log.c - what of a view was written, across runs */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reshard.h"
#include "reshard_rest.h"

/* Records: which view of what this is, first; parts of files that are on disk;
 * lengths of compressed items that are; sums of what was read, which is true
 * whatever was written. */
enum { HEAD = OFS_RESHARD_HEAD, PART = 'P', ITEM = 'I', SUM = 'S' };

#define NOTED (64u << 10)

/* What was found of an earlier run. */
struct found {
	struct ofs_reshard *r;
	bool head, foreign;
	const char *other; /* what differs; NULL: it is the same */
	uint32_t *of;      /* view's index -> file; OFS_NONE */
	uint32_t nof;
};

static int append(struct ofs_reshard *r, uint8_t type, uint64_t a, uint64_t b,
    uint64_t c, uint64_t d, struct optimfs_error *err)
{
	struct ofs_record record = { .type = type, .num = { a, b, c, d } };

	if (ofs_stage_append(r->stage, &record, err) == -1)
		return -1;
	if (type != SUM)
		atomic_store(&r->noted, true);
	return 0;
}

int ofs_reshard_log_part(struct ofs_reshard *r,
    const struct ofs_reshard_file *f, uint32_t part, struct optimfs_error *err)
{
	return append(r, PART, f->index, part, 0, 0, err);
}

int ofs_reshard_log_item(struct ofs_reshard *r,
    const struct ofs_reshard_file *f, uint64_t item, uint64_t len,
    struct optimfs_error *err)
{
	return append(r, ITEM, f->index, item, len, 0, err);
}

/* One that is not noted costs a read, if ever; a short one more than that. */
static void note_sum(void *ctx, const struct ofs_sum *s)
{
	struct ofs_reshard_open *open = ctx;

	if (s->len < NOTED)
		return;
	(void)append(open->r, SUM, (uint64_t)open->index << 32 | s->crc, s->box,
	    s->from, s->len, NULL);
}

void ofs_reshard_log_sums(struct ofs_reshard *r, struct ofs_reshard_file *f)
{
	struct ofs_sums *sums = ofs_view_sums(f->open->from->view);

	for (size_t i = 0; i < r->nsums; i++)
		if (r->sum[i].file == f->index) {
			/* in the order they came in, which need not be that
			 * of the file */
			ofs_sums_promise(sums, r->sum[i].sum.from,
			    r->sum[i].sum.from + 1, NULL);
			ofs_sums_add(sums, &r->sum[i].sum);
			ofs_sums_release(sums, r->sum[i].sum.from);
		}
	sums->ctx = f->open;
	sums->added = note_sum;
}

static const char *what_differs(const struct ofs_reshard *r,
    const struct ofs_record *h)
{
	if (h->num[0] != r->source)
		return "was of another checkpoint, or of this one before it "
		       "was saved again";
	if (strcmp(h->a, r->name) != 0)
		return "was to another layout";
	if (h->num[1] != r->files || h->num[2] != OFS_RESHARD_PART)
		return "was made by another version";
	return NULL;
}

static void found_part(struct ofs_reshard_file *f, uint64_t part)
{
	if (part >= f->nparts)
		return;
	if (f->done == NULL)
		f->done = calloc((size_t)f->nparts / 8 + 1, 1);
	if (f->done != NULL)
		f->done[part / 8] |= (uint8_t)(1u << part % 8);
}

static int found_item(struct ofs_reshard_file *f, uint64_t item, uint64_t len,
    struct optimfs_error *err)
{
	uint64_t *grown;

	if (item != f->nitems)
		return 0;
	if ((item & (item - 1)) == 0) { /* room for twice as many */
		grown = reallocarray(f->item, item == 0 ? 2 : 2 * item + 1,
		    sizeof(*grown));
		if (grown == NULL)
			return optimfs_fail(err, ENOMEM, "items of a file");
		f->item = grown;
	}
	f->item[f->nitems++] = len;
	return 0;
}

static int found_sum(struct ofs_reshard *r, const struct ofs_record *e,
    struct optimfs_error *err)
{
	if (r->nsums == r->sums_cap) {
		size_t cap = r->sums_cap == 0 ? 64 : 2 * r->sums_cap;
		struct ofs_reshard_sum *grown =
		    reallocarray(r->sum, cap, sizeof(*grown));

		if (grown == NULL)
			return optimfs_fail(err, ENOMEM, "sums of a file");
		r->sum = grown;
		r->sums_cap = cap;
	}
	r->sum[r->nsums++] = (struct ofs_reshard_sum){
		.file = (uint32_t)(e->num[0] >> 32),
		.sum = { e->num[1], e->num[2], e->num[3], (uint32_t)e->num[0] },
	};
	return 0;
}

static int replay(void *ctx, const struct ofs_record *e,
    struct optimfs_error *err)
{
	struct found *found = ctx;
	struct ofs_reshard *r = found->r;
	struct ofs_reshard_file *f = NULL;

	if (!found->head) {
		found->foreign = e->type != HEAD || e->a == NULL;
		found->head = true;
		if (!found->foreign)
			found->other = what_differs(r, e);
		return 0;
	}
	if (found->foreign || found->other != NULL)
		return 0;
	if (e->type == SUM)
		return found_sum(r, e, err);
	if (e->num[0] < found->nof && found->of[e->num[0]] != OFS_NONE)
		f = &r->file[found->of[e->num[0]]];
	if (f != NULL && e->type == PART)
		found_part(f, e->num[1]);
	else if (f != NULL && e->type == ITEM && f->whole)
		return found_item(f, e->num[1], e->num[2], err);
	return 0;
}

/* What the journal says is believed of a file that is as long as that takes. */
static void check(struct ofs_reshard *r, struct ofs_reshard_file *f)
{
	struct ofs_at at = { r->view.space, f->index };
	char name[OFS_FILE_NAME];
	uint64_t size = f->size;
	struct stat st;

	if (f->done == NULL && f->nitems == 0)
		return;
	ofs_view_path(r->fs, at, name);
	if (f->whole) {
		size = 0;
		for (uint64_t i = 0; i < f->nitems; i++)
			size += f->item[i];
	}
	if (fstatat(r->new, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    S_ISREG(st.st_mode) &&
	    (f->whole ? (uint64_t)st.st_size >= size
		      : (uint64_t)st.st_size == size))
		return;
	free(f->done);
	f->done = NULL;
	f->nitems = 0;
}

static int begin(struct ofs_reshard *r, const struct found *found,
    struct optimfs_error *err)
{
	struct ofs_record head = { .type = HEAD,
		.num = { r->source, r->files, OFS_RESHARD_PART, 0 },
		.a = r->name };
	const char *path = ofs_stage_path(r->stage);
	char text[512];

	if (found->foreign ||
	    !(found->head ? ofs_reshard_clear(r->new)
			  : ofs_reshard_is_empty(r->new)))
		return optimfs_fail(err, EEXIST,
		    "OFS774 %s holds something else than an unfinished "
		    "reshard: remove it if nothing needs it",
		    path);
	if (found->other != NULL && r->how->say != NULL) {
		snprintf(text, sizeof(text),
		    "%.300s: the run that left it %s: begun afresh", path,
		    found->other);
		r->how->say(r->how->ctx, text);
	}
	if (ofs_stage_reset(r->stage, err) == -1)
		return -1;
	if (ofs_stage_append(r->stage, &head, err) == -1)
		return -1;
	r->ours = true;
	return 0;
}

/* Of files that are complete. */
static void forget_sums(struct ofs_reshard *r, const struct found *found)
{
	size_t n = 0;

	for (size_t i = 0; i < r->nsums; i++) {
		uint32_t index = r->sum[i].file, k;
		struct ofs_reshard_file *f;

		if (index >= found->nof || found->of[index] == OFS_NONE)
			continue;
		f = &r->file[found->of[index]];
		for (k = 0; k < f->nparts && ofs_reshard_has(f, k);)
			k++;
		if (k < f->nparts)
			r->sum[n++] = r->sum[i];
	}
	r->nsums = n;
}

static int load(struct ofs_reshard *r, struct found *found,
    struct optimfs_error *err)
{
	struct ofs_replay info;

	for (uint32_t i = 0; i < r->n; i++)
		if (r->file[i].index >= found->nof)
			found->nof = r->file[i].index + 1;
	found->of = malloc(((size_t)found->nof + 1) * sizeof(*found->of));
	if (found->of == NULL)
		return optimfs_fail(err, ENOMEM, "%u files", r->n);
	for (uint32_t i = 0; i < found->nof; i++)
		found->of[i] = OFS_NONE;
	for (uint32_t i = 0; i < r->n; i++)
		found->of[r->file[i].index] = i;
	if (ofs_stage_replay(r->stage, replay, found, &info, err) == -1)
		return -1;
	if (!found->head || found->foreign || found->other != NULL)
		return begin(r, found, err);
	r->ours = true;
	for (uint32_t i = 0; i < r->n; i++) {
		check(r, &r->file[i]);
		if (r->file[i].done != NULL || r->file[i].nitems > 0)
			atomic_store(&r->noted, true);
	}
	forget_sums(r, found);
	return 0;
}

int ofs_reshard_log_open(struct ofs_reshard *r, const char *dir,
    struct optimfs_error *err)
{
	struct ofs_stage_config config = { .source = dir,
		.recover = OFS_RECOVER_YES };
	struct found found = { .r = r };
	int ret;

	r->stage = ofs_stage_open(&config, err);
	if (r->stage == NULL)
		return -1;
	if (ofs_stage_note(r->stage)[0] != '\0' && r->how->say != NULL)
		r->how->say(r->how->ctx, ofs_stage_note(r->stage));
	if (mkdirat(ofs_stage_dir(r->stage), "new", 0777) == -1 &&
	    errno != EEXIST)
		return optimfs_fail(err, errno, "OFS809 %s/new: %m",
		    ofs_stage_path(r->stage));
	r->new = openat(ofs_stage_dir(r->stage), "new",
	    O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (r->new == -1)
		return optimfs_fail(err, errno, "OFS809 %s/new: %m",
		    ofs_stage_path(r->stage));
	ret = load(r, &found, err);
	free(found.of);
	return ret;
}
