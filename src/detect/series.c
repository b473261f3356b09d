/* series.c - the files of all ranks of a job, as one part */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/str.h"
#include "detect/detect.h"
#include "detect/registry.h"
#include "detect/series_name.h"
#include "format/jobs.h"
#include "format/probe.h"

static int by_rank(const void *va, const void *vb)
{
	const struct ofs_job_file *a = va, *b = vb;

	if (a->rank != b->rank)
		return a->rank < b->rank ? -1 : 1;
	return strcmp(a->rel, b->rel);
}

/* A number without "rank" counts as one if there is a file for each rank. */
static bool is_complete(const struct ofs_job_file *file, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (file[i].rank != (int)i)
			return false;
	return true;
}

/* Is there a file whose presence shows that the files next to it are one per
 * rank? */
static bool says_ranks(const struct ofs_dir *dir)
{
	const struct ofs_format *f;

	for (size_t i = 0; (f = ofs_format_at(i)) != NULL; i++)
		if (f->ranks_file != NULL &&
		    ofs_probe_is_file(dir, f->ranks_file))
			return true;
	return false;
}

/* Do the sharded tensors of all readable files agree that each file was written
 * by the rank in its name? Files of several jobs may. world gets what they say. 1;
 * 0; -1. */
static int ranks_agree(const struct ofs_dir *dir,
    const struct ofs_format *format, struct ofs_job_file *file, size_t n,
    struct optimfs_error *err)
{
	bool said = false;
	int rank, world;

	if (format->writer == NULL)
		return 0;
	for (size_t i = 0; i < n; i++) {
		int ret = format->writer(dir, file[i].rel, &rank, &world, err);

		if (ret == 2)
			continue;
		if (ret != 1)
			return ret;
		if (rank != file[i].rank || rank >= world)
			return 0;
		file[i].world = world;
		said = true;
	}
	return said;
}

/* *told is the number of ranks in verl's fsdp_config.json, {"FSDP_version": 2,
 * "world_size": 4}; 0: no such file. */
static int read_told(const struct ofs_dir *dir, int *told,
    struct optimfs_error *err)
{
	enum ofs_json_token value;
	int64_t world = 0;
	struct ofs_json j;
	uint8_t *bytes;
	uint64_t n;
	bool mine;
	int ret =
	    ofs_probe_text(dir, "fsdp_config.json", 65536, &bytes, &n, err);

	*told = 0;
	if (ret != 1)
		return ret;
	ofs_json_init(&j, bytes, (uint32_t)n);
	value = ofs_json_next(&j, NULL);
	while (value == OFS_JSON_OBJECT &&
	    ofs_json_next(&j, NULL) == OFS_JSON_KEY) {
		mine = ofs_str_is(j.str, "world_size");
		value = ofs_json_next(&j, NULL);
		if (mine && value == OFS_JSON_NUMBER && j.is_int)
			world = j.integer;
		if (ofs_json_skip(&j, value, NULL) == 0)
			value = OFS_JSON_OBJECT;
	}
	ofs_json_fini(&j);
	free(bytes);
	if (world > 0 && world <= OFS_SERIES_MAX_RANK)
		*told = (int)world;
	return 0;
}

/* May the number of the file at index i be its rank? Asks the file alone, because
 * a directory may have thousands of snapshots, each of which would be compared
 * with all others. 1: yes, or it cannot be read; 0; -1. */
static int may_be_rank(const struct ofs_dir *dir, const struct ofs_names *names,
    size_t i, const struct ofs_format *format, const struct ofs_series_name *me,
    struct optimfs_error *err)
{
	int rank, world, ret;

	if (!me->asked)
		return 1;
	if (format->writer == NULL || ofs_series_alone(names, i, me))
		return 0;
	ret = format->writer(dir, names->name[i], &rank, &world, err);
	return ret == 1 ? rank == me->number : ret == 2 ? 1 : ret;
}

/* Are the numbers of these files those of ranks? 1; 0; -1. */
static int is_set(const struct ofs_dir *dir, const struct ofs_format *format,
    const struct ofs_series_name *me, struct ofs_job_file *file, size_t n,
    struct optimfs_error *err)
{
	/* a job with one rank writes a set of one file */
	if (n < 2)
		return me->rank && says_ranks(dir);
	if (me->asked)
		return ranks_agree(dir, format, file, n, err);
	return me->rank || is_complete(file, n);
}

/* Collects the files of the series, sorted by rank; returns their number. */
static size_t collect(const struct ofs_dir *dir, const struct ofs_names *names,
    size_t i, const struct ofs_series_name *me, struct ofs_job_file *file)
{
	struct ofs_series_name other;
	size_t n = 0;

	for (size_t k = 0; k < names->n; k++)
		if (ofs_series_same(names->name[i], me, names->name[k],
			&other) &&
		    ofs_probe_is_file(dir, names->name[k]))
			file[n++] =
			    (struct ofs_job_file){ .rel = names->name[k],
				    .rank = other.number,
				    .world = other.world,
				    .mtime_ns =
					ofs_jobs_mtime(dir, names->name[k]) };
	qsort(file, n, sizeof(*file), by_rank);
	return n;
}

/* The files of the job that is read, for the part. */
static int put_files(const struct ofs_job_file *file, size_t n,
    struct ofs_part_spec *spec, struct optimfs_error *err)
{
	struct ofs_part_file *v = calloc(n + 1, sizeof(*v));

	if (v == NULL)
		return ofs_no_memory(err);
	spec->file = v;
	spec->nfiles = 0;
	for (size_t i = 0; i < n; i++)
		if (!file[i].left)
			v[spec->nfiles++] = (struct ofs_part_file){
				(char *)(uintptr_t)file[i].rel, file[i].rank
			};
	spec->rel = v[0].rel;
	spec->rank = v[0].rank;
	return 1;
}

/* Names the files of other jobs. */
static int leave_files(const struct ofs_job_file *file, size_t n, int world,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	const struct ofs_job_file *first = NULL;
	size_t left = 0;
	bool later = false;
	char why[80];

	for (size_t i = 0; i < n; i++) {
		if (!file[i].left)
			continue;
		first = first == NULL ? &file[i] : first;
		later = later || file[i].later;
		left++;
		if (file[i].world == 0 || file[i].world == world)
			snprintf(why, sizeof(why), "a rank beyond the %d",
			    world);
		else
			snprintf(why, sizeof(why),
			    "of a job of %d ranks, not of %d", file[i].world,
			    world);
		if (ofs_parts_leave(parts, file[i].rel,
			file[i].later ? OFS_LEFT_UNFINISHED : OFS_LEFT_OLDER,
			why, err) == -1)
			return -1;
	}
	return left == 0
	    ? 0
	    : ofs_parts_note(parts, err,
		  "OFS181 %.200s%s left out: %s of another job than the one "
		  "of %d ranks that is read%s",
		  first->rel, left == 1 ? " is" : " and others like it are",
		  left == 1 ? "it is" : "they are", world,
		  later ? OFS_JOB_LATER : "");
}

int ofs_detect_series(const struct ofs_dir *dir, const struct ofs_names *names,
    size_t i, struct ofs_part_spec *spec, char *stem, size_t size,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	struct ofs_job_file *file;
	struct ofs_series_name me;
	int ret, told, world;
	size_t n;

	if (!ofs_series_parse(names->name[i], &me))
		return 0;
	ret = may_be_rank(dir, names, i, spec->format, &me, err);
	if (ret != 1)
		return ret;
	file = calloc(names->n, sizeof(*file));
	if (file == NULL)
		return ofs_no_memory(err);
	n = collect(dir, names, i, &me, file);
	ret = is_set(dir, spec->format, &me, file, n, err);
	if (ret == 1 &&
	    (read_told(dir, &told, err) == -1 ||
		ofs_jobs_judge(file, n, told, &world, err) == -1 ||
		leave_files(file, n, world, parts, err) == -1 ||
		put_files(file, n, spec, err) == -1))
		ret = -1;
	if (ret == 1) {
		spec->world = world;
		ofs_series_stem(names->name[i], &me, stem, size);
	}
	free(file);
	return ret;
}

/* Directories of ranks. */

/* Collects the directories in names, sorted by rank, if all of them are those of
 * ranks 0 to n - 1: returns n, or 0. */
static size_t collect_dirs(const struct ofs_dir *dir,
    const struct ofs_names *names, struct ofs_job_file *sub)
{
	struct ofs_series_name x;
	size_t n = 0;

	for (size_t i = 0; i < names->n; i++) {
		if (!ofs_probe_is_dir(dir, names->name[i]))
			continue;
		if (!ofs_series_directory(names->name[i], &x))
			return 0;
		sub[n++] = (struct ofs_job_file){ .rel = names->name[i],
			.rank = x.number };
	}
	qsort(sub, n, sizeof(*sub), by_rank);
	return is_complete(sub, n) ? n : 0;
}

static bool same_names(const struct ofs_names *a, const struct ofs_names *b)
{
	bool same = a->n == b->n;

	for (size_t i = 0; same && i < a->n; i++)
		same = strcmp(a->name[i], b->name[i]) == 0;
	return same;
}

/* Appends the paths of the files in directory rel: 1; 0: something in it is no
 * file. */
static int add_paths(const struct ofs_dir *dir, const char *rel,
    const struct ofs_names *names, struct ofs_names *paths,
    struct optimfs_error *err)
{
	for (size_t i = 0; i < names->n; i++) {
		char *path = ofs_path_join(rel, names->name[i]);

		if (path == NULL)
			return ofs_no_memory(err);
		paths->name[paths->n++] = path;
		if (!ofs_probe_is_file(dir, path))
			return 0;
	}
	return 1;
}

/* Lists the files in n directories, if each has files of the same names and
 * nothing else: 1; 0; -1. */
static int list_all(const struct ofs_dir *dir, const struct ofs_job_file *sub,
    size_t n, struct ofs_names *paths, struct optimfs_error *err)
{
	struct ofs_names first = { 0 }, other = { 0 };
	int ret = ofs_probe_names(dir, sub[0].rel, &first, err);

	if (ret == 1 && first.n > 0)
		paths->name = calloc(first.n * n, sizeof(*paths->name));
	if (ret == 1 && paths->name == NULL)
		ret = first.n == 0 ? 0 : ofs_no_memory(err);
	for (size_t i = 0; i < n && ret == 1; i++) {
		ret = ofs_probe_names(dir, sub[i].rel, &other, err);
		if (ret == 1 && !same_names(&first, &other))
			ret = 0;
		if (ret == 1)
			ret = add_paths(dir, sub[i].rel, &other, paths, err);
		ofs_names_free(&other);
	}
	ofs_names_free(&first);
	return ret;
}

int ofs_detect_rank_dirs(const struct ofs_dir *dir,
    const struct ofs_names *names, struct ofs_parts *parts,
    struct optimfs_error *err)
{
	struct ofs_job_file *sub = calloc(names->n + 1, sizeof(*sub));
	struct ofs_names paths = { 0 };
	size_t n;
	int ret = 0;

	if (sub == NULL)
		return ofs_no_memory(err);
	n = collect_dirs(dir, names, sub);
	if (n > 1)
		ret = list_all(dir, sub, n, &paths, err);
	if (ret == 1)
		ret = ofs_detect_files(dir, &paths, NULL, parts, err);
	for (size_t i = 0; i < parts->n && ret == 0; i++)
		if (parts->part[i].nfiles != n) {
			ofs_parts_free(parts);
			break;
		}
	ofs_names_free(&paths);
	free(sub);
	return ret;
}
