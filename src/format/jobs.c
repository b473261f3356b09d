/* jobs.c - files of two jobs in one directory */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/jobs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/search.h"

/* The files of one number of ranks. */
struct job {
	const struct ofs_job_file *first;
	int world;
	size_t n;
	bool complete;
	int64_t oldest, newest;
};

OFS_COMPARE_BY2(by_world, struct ofs_job_file, world, rank)

/* The job whose files, sorted by rank, begin at f. */
static struct job job_at(const struct ofs_job_file *f,
    const struct ofs_job_file *end)
{
	struct job j = { .first = f,
		.world = f->world,
		.oldest = f->mtime_ns,
		.newest = f->mtime_ns };
	int ranks = 0;

	for (; f < end && f->world == j.world; f++, j.n++) {
		if (f->rank == ranks)
			ranks++;
		if (f->mtime_ns < j.oldest)
			j.oldest = f->mtime_ns;
		if (f->mtime_ns > j.newest)
			j.newest = f->mtime_ns;
	}
	j.complete = ranks == j.world;
	return j;
}

/* Jobs of the sorted files, except those that do not say theirs. */
static size_t find_jobs(const struct ofs_job_file *f, size_t n, struct job *job)
{
	const struct ofs_job_file *end = f + n;
	size_t jobs = 0;

	while (f < end) {
		struct job j = job_at(f, end);

		f += j.n;
		if (j.world > 0)
			job[jobs++] = j;
	}
	return jobs;
}

/* Is a certainly the later one? Equal times are those of a copy. */
static bool is_later(const struct job *a, const struct job *b)
{
	return a->oldest > b->newest;
}

/* The complete job that is told, or later than all others; NULL: none is. */
static const struct job *choose(const struct job *job, size_t n, int told)
{
	const struct job *best = NULL;
	size_t complete = 0;

	for (size_t i = 0; i < n; i++) {
		if (!job[i].complete)
			continue;
		complete++;
		if (job[i].world == told)
			return &job[i];
		if (best == NULL || is_later(&job[i], best))
			best = &job[i];
	}
	for (size_t i = 0; i < n && best != NULL; i++)
		if (complete > 1 && job[i].complete && &job[i] != best &&
		    !is_later(best, &job[i]))
			best = NULL;
	return n == 1 ? job : best;
}

static int refuse(const struct job *a, const struct job *b,
    struct optimfs_error *err)
{
	bool both = a->complete && b->complete;

	return optimfs_fail(err, EPROTO,
	    "OFS674 %.200s is of a save by %d ranks (or in so many files), "
	    "%.200s of one by %d, and neither save is %s: the files are not of "
	    "one save",
	    a->first->rel, a->world, b->first->rel, b->world,
	    both ? "certainly the later one" : "complete");
}

static void leave(struct ofs_job_file *file, size_t n, const struct job *best)
{
	for (size_t i = 0; i < n; i++) {
		file[i].left = file[i].rank >= best->world ||
		    (file[i].world != 0 && file[i].world != best->world);
		file[i].later = file[i].left && file[i].mtime_ns > best->newest;
	}
}

int ofs_jobs_judge(struct ofs_job_file *file, size_t n, int told, int *world,
    struct optimfs_error *err)
{
	struct ofs_job_file *sorted = malloc((n + 1) * sizeof(*sorted));
	struct job *job = calloc(n + 1, sizeof(*job));
	const struct job *best;
	size_t jobs;
	int ret = 0;

	*world = 0;
	if (sorted == NULL || job == NULL) {
		ret = ofs_no_memory(err);
		goto out;
	}
	if (n > 0)
		memcpy(sorted, file, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), by_world);
	jobs = find_jobs(sorted, n, job);
	best = choose(job, jobs, told);
	if (best != NULL) {
		*world = best->world;
		leave(file, n, best);
	} else if (jobs > 1) {
		ret = refuse(&job[0], &job[1], err);
	}
out:
	free(sorted);
	free(job);
	return ret;
}

int64_t ofs_jobs_mtime(const struct ofs_dir *dir, const char *rel)
{
	struct stat st;

	return ofs_dir_stat(dir, rel, &st) ? ofs_time_ns(&st.st_mtim) : 0;
}
