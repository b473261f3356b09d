/* world.c - the rank files that belong together */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "base/memory.h"
#include "format/jobs.h"
#include "format/ranks/ranks.h"

/* The rank in a file overrides that in its name. */
static int set_ranks(struct ofs_ranks *set, struct optimfs_error *err)
{
	for (uint32_t i = 0; i < set->nfiles; i++) {
		struct ofs_ranks_file *f = &set->file[i];

		if (f->said_rank == -1 || f->said_rank == f->rank)
			continue;
		if (f->rank != -1 &&
		    ofs_catalog_note(set->cat, OFS_NOTE_WARNING, 0, err,
			"OFS181 %.200s was written by rank %d, and is read as "
			"that rank's file",
			f->rel, f->said_rank) == -1)
			return -1;
		f->rank = f->said_rank;
		set->cat->objects[f->at.at.object].rank = f->rank;
	}
	return 0;
}

/* Do pipeline stages have their own meshes? Then no file has the number of
 * ranks, but the highest rank of all meshes gives it. */
static bool has_parts(struct ofs_ranks *set)
{
	bool parts = false;
	int world = 0;

	for (uint32_t i = 0; i < set->nfiles; i++) {
		const struct ofs_ranks_file *f = &set->file[i];

		parts = parts || f->said_part;
		world = f->said_world > world ? f->said_world : world;
		world = f->rank >= world ? f->rank + 1 : world;
	}
	if (parts)
		set->world = world;
	return parts;
}

static int highest_rank(const struct ofs_ranks *set)
{
	int highest = -1;

	for (uint32_t i = 0; i < set->ndamaged; i++)
		if (set->damaged[i] > highest)
			highest = set->damaged[i];
	for (uint32_t i = 0; i < set->nfiles; i++)
		if (set->file[i].rank > highest)
			highest = set->file[i].rank;
	return highest;
}

static int note_surplus(struct ofs_ranks *set, const struct ofs_ranks_file *f,
    struct optimfs_error *err)
{
	if (f->said_world != 0 && f->said_world != set->world)
		return ofs_catalog_note(set->cat, OFS_NOTE_WARNING, EUCLEAN,
		    err,
		    "OFS181 %.200s is left out: it was written by rank %d of "
		    "%d, and the others are of %d ranks",
		    f->rel, f->rank, f->said_world, set->world);
	return ofs_catalog_note(set->cat, OFS_NOTE_WARNING, EUCLEAN, err,
	    "OFS181 %.200s is left out: its rank is %d, and the others are of "
	    "%d ranks",
	    f->rel, f->rank, set->world);
}

/* Of files that say different numbers of ranks, those of one job are used. */
static int mark_surplus(struct ofs_ranks *set, const struct ofs_job_file *job,
    struct optimfs_error *err)
{
	for (uint32_t i = 0; i < set->nfiles; i++) {
		struct ofs_ranks_file *f = &set->file[i];

		f->surplus = job[i].left;
		if (f->surplus &&
		    (note_surplus(set, f, err) == -1 ||
			ofs_catalog_leave(set->cat, f->rel, OFS_LEFT_OLDER,
			    "of another job", err) == -1))
			return -1;
	}
	return 0;
}

/* Set the number of ranks to what the files say; else to the highest rank plus
 * one. */
static int find_job(struct ofs_ranks *set, struct optimfs_error *err)
{
	struct ofs_job_file *job = calloc(set->nfiles + 1ull, sizeof(*job));
	int ret;

	if (job == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < set->nfiles; i++) {
		const struct ofs_ranks_file *f = &set->file[i];

		job[i] = (struct ofs_job_file){ .rel = f->rel,
			.rank = f->rank,
			.world = f->said_world,
			.mtime_ns =
			    set->cat->objects[f->at.at.object].mtime_ns };
	}
	ret = ofs_jobs_judge(job, set->nfiles, 0, &set->world, err);
	if (ret == 0 && set->world == 0)
		set->world =
		    set->nfiles + set->ndamaged > 1 ? highest_rank(set) + 1 : 0;
	if (ret == 0)
		ret = mark_surplus(set, job, err);
	free(job);
	return ret;
}

static void drop_surplus(struct ofs_ranks *set)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < set->nleaves; i++)
		if (!set->file[set->leaf[i].file].surplus)
			set->leaf[n++] = set->leaf[i];
	set->nleaves = n;
}

static int by_rank(const void *va, const void *vb)
{
	const struct ofs_ranks_file *a = *(struct ofs_ranks_file *const *)va;
	const struct ofs_ranks_file *b = *(struct ofs_ranks_file *const *)vb;

	return a->rank < b->rank ? -1 : a->rank > b->rank;
}

struct ofs_ranks_file **ofs_ranks_sorted(const struct ofs_ranks *set,
    uint32_t *n)
{
	struct ofs_ranks_file **v = calloc((size_t)set->nfiles + 1, sizeof(*v));

	*n = 0;
	for (uint32_t i = 0; v != NULL && i < set->nfiles; i++)
		if (!set->file[i].surplus)
			v[(*n)++] = &set->file[i];
	if (v != NULL)
		qsort(v, *n, sizeof(struct ofs_ranks_file *), by_rank);
	return v;
}

int ofs_ranks_check(struct ofs_ranks *set, struct optimfs_error *err)
{
	struct ofs_ranks_file **v;
	uint32_t n;
	int ret = 0;

	if (set_ranks(set, err) == -1 ||
	    (!has_parts(set) && find_job(set, err) == -1))
		return -1;
	drop_surplus(set);
	v = ofs_ranks_sorted(set, &n);
	if (v == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 1; i < n && ret == 0; i++)
		if (v[i]->rank == v[i - 1]->rank)
			ret = optimfs_fail(err, EUCLEAN,
			    "OFS181 %s and %s are both of rank %d",
			    v[i - 1]->rel, v[i]->rel, v[i]->rank);
	free(v);
	if (set->world > set->cat->world_size)
		set->cat->world_size = set->world;
	return ret;
}
