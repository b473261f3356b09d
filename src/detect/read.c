/* read.c - read a checkpoint into a catalog */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "detect/read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/absent.h"
#include "base/cache.h"
#include "base/memory.h"
#include "base/step.h"
#include "derive/low_bit.h"
#include "derive/remainder.h"
#include "detect/detect.h"
#include "detect/registry.h"
#include "format/fill.h"
#include "naming/naming.h"
#include "store/http/open.h"

/* The real path of what the user named, malloc'ed. A link in a snapshot of the
 * cache of Hugging Face keeps its name there, which says what it is: the file is
 * called by its hash. NULL with errno. */
static char *real_path(const char *path)
{
	char *copy = strdup(path), *dir, *real = NULL;
	const char *name = ofs_path_last(path);

	if (copy == NULL)
		return NULL;
	copy[strlen(path) - strlen(name)] = '\0';
	dir = realpath(copy[0] == '\0' ? "." : copy, NULL);
	if (dir != NULL && name[strlen(name) - 1] != '/' &&
	    strcmp(name, "..") != 0 && strcmp(name, ".") != 0 &&
	    ofs_cache_root(dir) > 0)
		real = ofs_path_join(dir, name);
	free(dir);
	free(copy);
	return real != NULL ? real : realpath(path, NULL);
}

/* Links of a cache of Hugging Face may lead to its other files. */
static int open_dir(const char *real, struct ofs_dir *dir,
    struct optimfs_error *err)
{
	size_t root = ofs_cache_root(real);

	if (ofs_dir_open(real, dir, err) == -1)
		return -1;
	if (root == 0 || ofs_dir_set_root(dir, root, err) == 0)
		return 0;
	ofs_dir_close(dir);
	return -1;
}

/* join=: model and optimizer anywhere. Both are read beneath the directory that
 * has both, which is not listed. */

static int check_join(const struct optimfs_options *opt,
    struct optimfs_error *err)
{
	if (opt->rw && !opt->scratch)
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS690 join=%.200s: two directories cannot be written as "
		    "one: optimfs reshard makes one of them",
		    opt->join);
	return 0;
}

/* The length of the longest directory above both paths. */
static size_t common_dir(const char *a, const char *b)
{
	size_t n = 0, i = 0;

	for (; a[i] != '\0' && a[i] == b[i]; i++)
		if (a[i] == '/')
			n = i;
	if ((a[i] == '\0' && b[i] == '/') || (b[i] == '\0' && a[i] == '/'))
		n = i;
	return n;
}

static int open_both(struct ofs_checkpoint *in, const char *real,
    const char *path, const struct optimfs_options *opt,
    struct optimfs_error *err)
{
	char *other = real_path(opt->join), *top = NULL;
	int ret = -1;
	size_t n;

	if (other == NULL) {
		if (errno == ENOENT)
			ofs_fail_absent(opt->join, err);
		else
			optimfs_fail(err, errno, "%s: %m", opt->join);
		return optimfs_fail_in(err, "join=");
	}
	if (check_join(opt, err) == -1)
		goto out;
	if (strcmp(real, other) == 0) {
		optimfs_fail(err, EINVAL, "OFS690 join=%.200s is %.200s itself",
		    opt->join, path);
		goto out;
	}
	n = common_dir(real, other);
	top = n == 0 ? strdup("/") : strndup(real, n);
	in->rel = strdup(real + n + (real[n] == '/'));
	in->other = strdup(other + n + (other[n] == '/'));
	if (top == NULL || in->rel == NULL || in->other == NULL)
		ofs_no_memory(err);
	else
		ret = ofs_dir_open_top(top, &in->dir, err);
	if (ret == 0) {
		in->dir.follow = opt->follow;
		in->dir.watch = opt->watch;
	}
out:
	if (ret == -1) {
		free(in->other);
		in->other = NULL;
	}
	free(top);
	free(other);
	return ret;
}

static int open_address(struct ofs_checkpoint *in, const char *path,
    const struct optimfs_options *opt, struct optimfs_error *err)
{
	if (opt->join != NULL)
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS690 join=%.200s: not with an address, %.200s",
		    opt->join, path);
	if (ofs_http_open(path, ofs_http_timeout(opt->timeout), &in->dir,
		&in->rel, err) == -1)
		return -1;
	in->dir.watch = opt->watch;
	return 0;
}

/* A symbolic link given by the user is followed; only links in the index may
 * not lead elsewhere. */
int ofs_checkpoint_open(struct ofs_checkpoint *in, const char *path,
    const struct optimfs_options *opt, struct optimfs_error *err)
{
	char *real, *slash;
	struct stat st;
	int ret = -1;

	in->rel = in->other = NULL;
	in->look = NULL;
	if (ofs_http_is_address(path))
		return open_address(in, path, opt, err);
	real = real_path(path);
	if (real != NULL && opt->join != NULL) {
		ret = open_both(in, real, path, opt, err);
		goto out;
	}
	if (real == NULL || stat(real, &st) == -1) {
		if (errno == ENOENT)
			ofs_fail_absent(path, err);
		else
			optimfs_fail(err, errno, "%s: %m", path);
		goto out;
	}
	if (S_ISDIR(st.st_mode)) {
		in->rel = strdup("");
		ret = open_dir(real, &in->dir, err);
	} else if (!S_ISREG(st.st_mode)) {
		optimfs_fail(err, EUCLEAN, "OFS602 %s: not a regular file",
		    path);
	} else {
		slash = strrchr(real, '/');
		in->rel = strdup(slash + 1);
		slash[slash == real] = '\0';
		ret = open_dir(real, &in->dir, err);
	}
	if (ret == 0 && in->rel == NULL) {
		ofs_dir_close(&in->dir);
		ret = ofs_no_memory(err);
	}
	if (ret == 0) {
		in->dir.follow = opt->follow;
		in->dir.watch = opt->watch;
	}
out:
	if (ret == -1) {
		free(in->rel);
		in->rel = NULL;
	}
	free(real);
	return ret;
}

void ofs_checkpoint_close(struct ofs_checkpoint *in)
{
	free(in->rel);
	free(in->other);
	ofs_dir_close(&in->dir);
}

/* The index file of a checkpoint stands for its directory. */
static void drop_index_name(char *rel)
{
	if (ofs_format_is_index(rel))
		rel[0] = '\0';
}

static struct ofs_catalog *new_catalog(const struct ofs_dir *dir,
    struct optimfs_error *err)
{
	struct ofs_catalog *cat;
	struct ofs_dir copy;

	if (ofs_dir_copy(dir, &copy, err) == -1)
		return NULL;
	cat = ofs_catalog_new(&copy, err);
	ofs_dir_close(&copy);
	return cat;
}

/* Reading the parts. A part that is not essential may fail and is then left
 * out. But a failure leaves the catalog unusable, so the first one starts a
 * second pass, which tries each remaining part in a separate catalog before it
 * joins the others. */
struct reading {
	const struct ofs_dir *dir;
	const struct optimfs_options *opt;
	const struct ofs_parts *parts;
	bool *skip;                /* by part: left out */
	struct optimfs_error *why; /* the reason */
	size_t known;              /* parts before this one are readable */
};

/* A wrong option or an interrupt is not a defect of the part. */
static bool may_skip(const struct ofs_part *part,
    const struct optimfs_error *why)
{
	return part->optional && !ofs_must_stop(why) && why->code != EINVAL;
}

static int try_alone(struct reading *r, size_t i, struct optimfs_error *err)
{
	const struct ofs_part *part = &r->parts->part[i];
	struct ofs_catalog *cat = new_catalog(r->dir, err);
	int ret;

	if (cat == NULL)
		return -1;
	ret = part->format->read(cat, part, r->opt, &r->why[i]);
	ofs_catalog_free(cat);
	if (ret == 0)
		return 0;
	if (!may_skip(part, &r->why[i]))
		return optimfs_fail_with(err, &r->why[i]);
	r->skip[i] = true;
	return 0;
}

static int note_skipped(struct ofs_catalog *cat, const struct ofs_part *part,
    const struct optimfs_error *why, struct optimfs_error *err)
{
	struct optimfs_error e = *why;
	bool damaged = e.code == EIO || e.code == EUCLEAN;
	uint32_t object;

	if (strstr(e.text, part->rel) == NULL)
		optimfs_fail_in(&e, "%s", part->rel);
	if (!damaged)
		return ofs_catalog_note_as(cat, OFS_NOTE_WARNING, &e, err);
	ofs_catalog_note_as(cat, OFS_NOTE_MISSING, &e, err);
	object = ofs_catalog_object(cat, part->rel, part->rank, err);
	if (object == OFS_NONE)
		return -1;
	cat->objects[object].damaged = true;
	return 0;
}

/* Notes how the names of what a part added can change. */
static void note_keys(struct ofs_catalog *cat, uint32_t first,
    const struct ofs_part *part)
{
	uint8_t n = 0;

	while (n < OFS_PART_PREFIX && part->prefix[n] != NULL)
		n++;
	for (uint32_t i = first; i < cat->nentries; i++) {
		cat->entries[i].nfile = n;
		if (part->format->update == NULL || part->format->fixed_names)
			cat->entries[i].key = OFS_KEY_FIXED;
	}
}

/* One pass: 0, -1, or 1 if a part must be left out. */
static int read_parts(struct reading *r, struct ofs_catalog *cat,
    struct optimfs_error *err)
{
	bool careful = r->known > 0;

	for (size_t i = 0; i < r->parts->n; i++) {
		const struct ofs_part *part = &r->parts->part[i];
		uint32_t first = cat->nentries;

		if (careful && i >= r->known && part->optional &&
		    try_alone(r, i, err) == -1)
			return -1;
		if (r->skip[i]) {
			if (note_skipped(cat, part, &r->why[i], err) == -1)
				return -1;
			continue;
		}
		/* files shown as their bytes only lie beside a checkpoint */
		if (cat->format == NULL || strcmp(cat->format, "raw") == 0)
			cat->format = part->format->name;
		if (part->format->read(cat, part, r->opt, &r->why[i]) == 0) {
			note_keys(cat, first, part);
			continue;
		}
		if (careful || !may_skip(part, &r->why[i]))
			return optimfs_fail_with(err, &r->why[i]);
		r->skip[i] = true;
		r->known = i + 1;
		return 1;
	}
	return 0;
}

static bool all_skipped(const struct reading *r)
{
	for (size_t i = 0; i < r->parts->n; i++)
		if (!r->skip[i])
			return false;
	return true;
}

static struct ofs_catalog *read_all(struct reading *r,
    struct optimfs_error *err)
{
	struct ofs_catalog *cat;
	int ret;

	do {
		cat = new_catalog(r->dir, err);
		if (cat == NULL)
			return NULL;
		cat->max_metadata = r->opt->max_metadata;
		cat->parse_mem = r->opt->parse_mem;
		ret = read_parts(r, cat, err);
		if (ret == 0 && all_skipped(r))
			ret = optimfs_fail_with(err, &r->why[0]);
		if (ret != 0) {
			ofs_catalog_free(cat);
			cat = NULL;
		}
	} while (ret == 1);
	return cat;
}

static struct ofs_catalog *read_detected(const struct ofs_dir *dir,
    const struct ofs_parts *parts, const struct optimfs_options *opt,
    struct optimfs_error *err)
{
	struct reading r = {
		.dir = dir,
		.opt = opt,
		.parts = parts,
		.skip = calloc(parts->n, sizeof(*r.skip)),
		.why = calloc(parts->n, sizeof(*r.why)),
	};
	struct ofs_catalog *cat = NULL;

	if (r.skip == NULL || r.why == NULL)
		ofs_no_memory(err);
	else
		cat = read_all(&r, err);
	free(r.skip);
	free(r.why);
	return cat;
}

/* The last steps, for all leaves. */

/* Is there a top-level key called key, or one that starts with key and a
 * dot? */
static bool has_key(const struct ofs_catalog *cat, const char *key)
{
	for (uint32_t i = 0; i < cat->nentries; i++) {
		uint32_t n;
		const uint32_t *c =
		    ofs_catalog_components(cat, cat->entries[i].path, &n);
		struct ofs_str s = { NULL, 0 };

		if (n > 0)
			s = ofs_catalog_string(cat, OFS_PATH_STR(c[0]));
		if (ofs_str_begins(s, key) &&
		    (s.len == strlen(key) || s.p[strlen(key)] == '.'))
			return true;
	}
	return false;
}

/* Anybody can use a directory name: a trainer recognised by it must also have
 * one of its own keys. */
static bool is_written_by(const struct ofs_catalog *cat, const char *trainer)
{
	static const struct {
		const char *trainer, *key;
	} own[] = {
		{ "torchtitan", "train_state" },
		{ "torchtitan", "lr_scheduler" },
		{ "torchtitan", "dataloader" },
		{ "Composer", "state" },
		{ "Composer", "rng" },
	};
	bool listed = false;

	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
		if (strcmp(own[i].trainer, trainer) != 0)
			continue;
		if (has_key(cat, own[i].key))
			return true;
		listed = true;
	}
	return !listed;
}

/* "DeepSpeed 0.14.5 (ZeRO stage 3), PyTorch 2.1 or later" */
static int name_writer(struct ofs_catalog *cat, const char *trainer,
    struct optimfs_error *err)
{
	char text[200];

	if (trainer == NULL) /* a reader may know it by its keys */
		trainer = cat->trainer;
	if (trainer == NULL || !is_written_by(cat, trainer))
		return 0;
	cat->trainer = ofs_arena_strndup(&cat->arena, trainer, strlen(trainer));
	snprintf(text, sizeof(text), "%s%s%s%s%s", trainer,
	    cat->version == NULL ? "" : " ",
	    cat->version == NULL ? "" : cat->version,
	    cat->writer == NULL ? "" : ", ",
	    cat->writer == NULL ? "" : cat->writer);
	cat->writer = ofs_arena_strndup(&cat->arena, text, strlen(text));
	return cat->writer == NULL || cat->trainer == NULL ? ofs_no_memory(err)
							   : 0;
}

/* For strict, any note with an errno value counts, except state of a frozen
 * parameter that is absent by design. */
static bool is_wrong(const struct ofs_note *note)
{
	return note->code != 0 &&
	    (note->kind != OFS_NOTE_MISSING || note->code != ENODATA);
}

static int check_strict(const struct ofs_catalog *cat,
    const struct optimfs_options *opt, struct optimfs_error *err)
{
	for (uint32_t i = 0; opt->strict && i < cat->nnotes; i++)
		if (is_wrong(&cat->notes[i]))
			return optimfs_fail_as(err, cat->notes[i].code,
			    "%s (refused: -o strict)", cat->notes[i].text);
	return 0;
}

/* A format that joins parts does so once for all of them. */
static int join(struct ofs_catalog *cat, const struct ofs_parts *parts,
    struct optimfs_error *err)
{
	for (size_t i = 0; i < parts->n; i++)
		if (parts->part[i].format->join != NULL)
			return parts->part[i].format->join(cat, err);
	return 0;
}

static int keep_options(struct ofs_catalog *cat,
    const struct optimfs_options *opt, struct optimfs_error *err)
{
	const struct ofs_format *f;

	for (size_t i = 0; (f = ofs_format_at(i)) != NULL; i++)
		if (f->keep_options != NULL &&
		    f->keep_options(cat, opt, err) == -1)
			return -1;
	return 0;
}

/* Keeps what detection left out, and says so where it matters. */
static int keep_left(struct ofs_catalog *cat, const struct ofs_parts *parts,
    struct optimfs_error *err)
{
	for (size_t i = 0; i < parts->nleft; i++) {
		const struct ofs_part_left *l = &parts->left[i];

		ofs_catalog_leave(cat, l->path, l->kind, l->why, err);
	}
	for (size_t i = 0; i < parts->missing.n; i++)
		ofs_catalog_note(cat, OFS_NOTE_MISSING, EIO, err,
		    "OFS661 %s is missing: without an index nothing says which "
		    "tensors it has",
		    parts->missing.name[i]);
	for (size_t i = 0; i < parts->notes.n; i++)
		ofs_catalog_note(cat, OFS_NOTE_WARNING, 0, err, "%s",
		    parts->notes.name[i]);
	return ofs_catalog_failed(cat, err) ? -1 : 0;
}

static int complete(struct ofs_catalog *cat, const struct ofs_parts *parts,
    const struct optimfs_options *opt, struct optimfs_error *err)
{
	cat->ids_of_model = parts->ids_of_model;
	if (name_writer(cat, parts->trainer, err) == -1 ||
	    keep_left(cat, parts, err) == -1 || join(cat, parts, err) == -1 ||
	    keep_options(cat, opt, err) == -1 ||
	    ofs_name_entries(cat, opt, err) == -1 ||
	    ofs_fill(cat, opt, err) == -1 || ofs_low_bit_find(cat, err) == -1 ||
	    ofs_remainder_find(cat, err) == -1 ||
	    ofs_catalog_finish(cat, err) == -1)
		return -1;
	return check_strict(cat, opt, err);
}

/* Files named in options must exist, even if no part uses them: otherwise a
 * missing file would just drop the part that does. */
static int check_files(const struct optimfs_options *opt,
    struct optimfs_error *err)
{
	const struct ofs_format *f;

	for (size_t i = 0; (f = ofs_format_at(i)) != NULL; i++)
		if (f->check_options != NULL &&
		    f->check_options(opt, err) == -1)
			return -1;
	if (opt->ids != NULL && strcmp(opt->ids, "model") != 0 &&
	    access(opt->ids, R_OK) == -1)
		return optimfs_fail(err, errno == ENOENT ? ENOENT : EINVAL,
		    "OFS635 ids=%s: %m", opt->ids);
	return 0;
}

int ofs_checkpoint_parts(struct ofs_checkpoint *in,
    const struct optimfs_options *opt, struct ofs_parts *parts,
    struct optimfs_error *err)
{
	if (in->other != NULL)
		return ofs_detect_both(&in->dir, in->rel, in->other, opt, parts,
		    err);
	drop_index_name(in->rel);
	return ofs_detect(&in->dir, in->rel, opt, parts, err);
}

/* Records where the inventory looks. */
static int keep_place(struct ofs_catalog *cat, const struct ofs_checkpoint *in,
    struct optimfs_error *err)
{
	cat->lone = in->other == NULL && in->rel[0] != '\0';
	if (in->other == NULL)
		return 0;
	cat->joined[0] =
	    ofs_arena_strndup(&cat->arena, in->rel, strlen(in->rel));
	cat->joined[1] =
	    ofs_arena_strndup(&cat->arena, in->other, strlen(in->other));
	return cat->joined[0] == NULL || cat->joined[1] == NULL
	    ? ofs_no_memory(err)
	    : 0;
}

struct ofs_catalog *ofs_checkpoint_read(struct ofs_checkpoint *in, int upper,
    const char *const *gone, size_t n, const struct optimfs_options *opt,
    struct optimfs_error *err)
{
	struct ofs_gone without = { gone, n, 0 };
	struct ofs_catalog *cat = NULL;
	struct ofs_parts parts;

	if (upper != -1) {
		in->dir.upper = fcntl(upper, F_DUPFD_CLOEXEC, 3);
		if (in->dir.upper == -1) {
			optimfs_fail(err, errno, "%s: new files: %m",
			    in->dir.path);
			return NULL;
		}
		in->dir.over = true;
		without.root = strlen(in->dir.path);
		in->dir.gone = n > 0 ? &without : NULL;
	}
	if (check_files(opt, err) == 0 &&
	    ofs_checkpoint_parts(in, opt, &parts, err) == 0) {
		cat = read_detected(&in->dir, &parts, opt, err);
		if (cat != NULL &&
		    (keep_place(cat, in, err) == -1 ||
			(in->look != NULL &&
			    in->look(in->ctx, cat, err) == -1) ||
			complete(cat, &parts, opt, err) == -1)) {
			ofs_catalog_free(cat);
			cat = NULL;
		}
		ofs_parts_free(&parts);
	}
	in->dir.gone = NULL;
	if (cat != NULL)
		cat->dir.gone = NULL;
	return cat;
}
