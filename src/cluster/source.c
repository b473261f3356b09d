/* source.c - a checkpoint by its path, on one rank or several */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cluster/source.h"

#include <errno.h>
#include <stdlib.h>

#include "base/memory.h"
#include "cluster/manifest.h"

/* A save takes less: files of one rank that are so much older than all of another
 * are perhaps those of an earlier save. */
#define HOURS(ns) ((ns) / INT64_C(3600000000000))
enum { MANY_HOURS = 2 };

static const struct optimfs_options *or_none(const struct optimfs_options *opt)
{
	static const struct optimfs_options none;

	return opt == NULL ? &none : opt;
}

/* The times of the files of a rank that the index names. */
struct times {
	int64_t oldest, newest;
	bool any;
};

static void add_time(struct times *t, int64_t time)
{
	if (!t->any || time < t->oldest)
		t->oldest = time;
	if (!t->any || time > t->newest)
		t->newest = time;
	t->any = true;
}

static void find_times(const struct ofs_manifest *s,
    const struct ofs_catalog *cat, const bool *used, struct times *times)
{
	uint32_t file;

	for (uint32_t i = 0; i < cat->nobjects; i++) {
		const struct ofs_manifest_file *f;

		if (!used[i] ||
		    !ofs_dir_shared(&cat->dir, cat->objects[i].path, &file))
			continue;
		f = &s->file[file];
		for (uint32_t k = f->owner; k < f->owner + f->nowners; k++)
			add_time(&times[s->owner[k].rank], f->o.mtime_ns);
	}
}

/* Only a rank of which all files are older, and only if it is no majority: others
 * have been edited. */
static int note_old_rank(const struct ofs_manifest *s, struct ofs_catalog *cat,
    const struct times *times, struct optimfs_error *err)
{
	const struct optimfs_group *w = s->group;
	int old = -1, new = -1, n = 0, nold = 0;

	for (int r = 0; r < w->size; r++) {
		if (!times[r].any)
			continue;
		n++;
		if (old == -1 || times[r].newest < times[old].newest)
			old = r;
		if (new == -1 || times[r].oldest > times[new].oldest)
			new = r;
	}
	for (int r = 0; r < w->size && n > 0; r++)
		nold += times[r].any &&
		    HOURS(times[new].oldest - times[r].newest) >= MANY_HOURS;
	if (nold == 0 || nold > n - nold)
		return 0;
	return ofs_catalog_note(cat, OFS_NOTE_WARNING, 0, err,
	    "OFS917 the files of rank %d (%s) were written %lld hours before "
	    "those of rank %d (%s): are they of one save?",
	    old, w->ops->host(w->w, old),
	    (long long)HOURS(times[new].oldest - times[old].newest), new,
	    w->ops->host(w->w, new));
}

static int note_times(const void *ctx, struct ofs_catalog *cat,
    struct optimfs_error *err)
{
	const struct ofs_manifest *s = ctx;
	struct times *times = calloc((size_t)s->group->size, sizeof(*times));
	bool *used = calloc((size_t)cat->nobjects + 1, sizeof(*used));
	int ret = -1;

	if (times == NULL || used == NULL) {
		ofs_no_memory(err);
	} else {
		for (uint32_t i = 0; i < cat->nshards; i++)
			if (cat->shards[i].at.object < cat->nobjects)
				used[cat->shards[i].at.object] = true;
		find_times(s, cat, used, times);
		ret = note_old_rank(s, cat, times, err);
	}
	free(times);
	free(used);
	return ret;
}

static int open_input(struct ofs_checkpoint *in, const char *path,
    const struct optimfs_options *opt, struct optimfs_error *err)
{
	const struct ofs_manifest *s;

	if (opt->group == NULL)
		return ofs_checkpoint_open(in, path, opt, err);
	if (opt->join != NULL)
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS690 join=%.200s: not with several ranks", opt->join);
	s = ofs_group_manifest(opt->group, path, err);
	*in = (struct ofs_checkpoint){ .look = note_times, .ctx = s };
	return s == NULL ? -1 : ofs_manifest_dir(s, &in->dir, &in->rel, err);
}

struct ofs_catalog *ofs_read_over(const char *path, int upper,
    const char *const *gone, size_t n, const struct optimfs_options *opt,
    struct optimfs_error *err)
{
	struct ofs_catalog *cat;
	struct ofs_checkpoint in;

	opt = or_none(opt);
	if (open_input(&in, path, opt, err) == -1)
		return NULL;
	cat = ofs_checkpoint_read(&in, upper, gone, n, opt, err);
	ofs_checkpoint_close(&in);
	return cat;
}

struct ofs_catalog *ofs_read_checkpoint(const char *path,
    const struct optimfs_options *opt, struct optimfs_error *err)
{
	return ofs_read_over(path, -1, NULL, 0, opt, err);
}

int ofs_find_parts(const char *path, const struct optimfs_options *opt,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	struct ofs_checkpoint in;
	int ret;

	if (open_input(&in, path, or_none(opt), err) == -1)
		return -1;
	ret = ofs_checkpoint_parts(&in, or_none(opt), parts, err);
	ofs_checkpoint_close(&in);
	return ret;
}
