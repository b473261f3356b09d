/* series.c - files whose names differ only in the number of a rank */
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
#include "format/jobs.h"
#include "format/probe.h"

/* docs/formats/ranks.md, "Names" */

#define MAX_RANK (1 << 20)

/* A name in parts: "optim_rank3.pt" is "optim_rank", 3, ".pt". */
struct numbered {
	size_t head;      /* length of the part before the number */
	const char *tail; /* the part after the number */
	int number;
	int world;  /* the number of ranks, if the name says it; 0 */
	bool rank;  /* the name says "rank" */
	bool asked; /* a rank only if the tensors in the files say so */
};

/* Does the number count training time or versions, not ranks? */
static bool counts_time(const char *name, size_t head)
{
	static const char *const words[] = { "epoch", "step", "iter", "ckpt",
		"checkpoint", "ep", "ba", "batch", "version", "v", "tokens",
		"last", "best" };

	while (head > 0 && strchr("_-.=", name[head - 1]) != NULL)
		head--;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		size_t n = strlen(words[i]);

		if (head < n || memcmp(name + head - n, words[i], n) != 0)
			continue;
		if (n > 3 || head == n ||
		    strchr("_-.", name[head - n - 1]) != NULL)
			return true;
	}
	return false;
}

/* The number at *s, if it counts time, and what follows it. */
static bool take_number(const char *name, const char **s, const char **number,
    size_t *n)
{
	*number = *s;
	*n = strspn(*s, "0123456789");
	*s += *n;
	return counts_time(name, (size_t)(*number - name));
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* May a number that does not count time differ? One that is measured may, as in
 * "epoch=3-val_loss=0.25". */
static bool is_measured(const char *name, const char *number)
{
	while (number > name && (is_digit(number[-1]) || number[-1] == '.'))
		number--;
	return number > name && number[-1] == '=';
}

/* Do names of one save differ only in numbers that count time, at least in one of
 * them? */
static bool same_but_time(const char *a, const char *b)
{
	const char *x = a, *y = b, *m, *n;
	bool differ = false;
	size_t k, l;

	while (*x != '\0' && *y != '\0') {
		bool time;

		if (!is_digit(*x) || !is_digit(*y)) {
			if (*x++ != *y++)
				return false;
			continue;
		}
		time = take_number(a, &x, &m, &k);
		if (take_number(b, &y, &n, &l) != time)
			return false;
		if (k == l && memcmp(m, n, k) == 0)
			continue;
		if (!time && !(is_measured(a, m) && is_measured(b, n)))
			return false;
		differ = differ || time;
	}
	return differ && *x == *y;
}

/* Is it "last.ckpt", "best-v1.pt": all of the state, without a number? */
static bool is_last(const char *name)
{
	static const char *const words[] = { "last", "latest", "best" };

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		size_t n = strlen(words[i]);

		if (strncmp(name, words[i], n) != 0)
			continue;
		if (name[n] == '-' && name[n + 1] == 'v')
			n += 2 + strspn(name + n + 2, "0123456789");
		if (name[n] == '.' && strchr(name + n + 1, '.') == NULL)
			return true;
	}
	return false;
}

/* Does the name begin with what counts time: "epoch=3-step=900.ckpt"? */
static bool begins_with_time(const char *name)
{
	size_t head = strcspn(name, "0123456789");

	return name[head] != '\0' && counts_time(name, head) &&
	    strcspn(name, "_-.=") >= head - 1;
}

static bool same_extension(const char *a, const char *b)
{
	const char *x = strrchr(a, '.'), *y = strrchr(b, '.');

	return x != NULL && y != NULL && strcmp(x, y) == 0;
}

bool ofs_detect_other_step(const char *a, const char *b)
{
	if (same_but_time(a, b))
		return true;
	if (!same_extension(a, b) || strcmp(a, b) == 0)
		return false;
	return (is_last(a) && begins_with_time(b)) ||
	    (is_last(b) && begins_with_time(a));
}

static bool parse_number(const char *name, size_t head, struct numbered *out)
{
	unsigned long v;
	char *end;

	if (name[head] < '0' || name[head] > '9')
		return false;
	v = strtoul(name + head, &end, 10);
	if (v > MAX_RANK)
		return false;
	*out = (struct numbered){ .head = head, .tail = end, .number = (int)v };
	return true;
}

/* The last "rank3", "rank_3" or "rank-3" in the name. */
static bool find_rank(const char *name, struct numbered *out)
{
	bool found = false;

	for (const char *at = name; (at = strstr(at, "rank")) != NULL;) {
		at += strlen("rank");
		if (parse_number(name,
			(size_t)(at - name) + (*at == '_' || *at == '-'), out))
			found = true;
	}
	out->rank = found;
	return found;
}

/* Does s begin with "-of-", as between the number of a part and the number of
 * parts? */
static bool is_of(const char *s)
{
	return strncmp(s, "-of-", 4) == 0 || strncmp(s, "_of_", 4) == 0;
}

/* Is the number at head the number of parts, as 8 in "0-of-8"? */
static bool is_total(const char *name, size_t head)
{
	return head > 4 && is_of(name + head - 4);
}

/* "_3" before the extension. */
static bool find_last(const char *name, struct numbered *out)
{
	const char *dot = strrchr(name, '.');
	size_t head = dot == NULL ? 0 : (size_t)(dot - name);

	while (head > 0 && name[head - 1] >= '0' && name[head - 1] <= '9')
		head--;
	return head > 1 && name[head - 1] == '_' && !is_total(name, head) &&
	    parse_number(name, head, out) && out->tail == dot &&
	    !counts_time(name, head);
}

/* The last number of the name, wherever it is. */
static bool find_any(const char *name, struct numbered *out)
{
	bool found = false;

	for (size_t i = 0; name[i] != '\0';) {
		if (!is_total(name, i) && parse_number(name, i, out))
			found = true;
		i += strspn(name + i, "0123456789");
		i += strcspn(name + i, "0123456789");
	}
	out->asked = found;
	return found;
}

static size_t drop_separators(const char *name, size_t n)
{
	while (n > 0 && strchr("_-.", name[n - 1]) != NULL)
		n--;
	return n;
}

static size_t drop_word(const char *name, size_t n, const char *word)
{
	size_t len = strlen(word);

	return n >= len && memcmp(name + n - len, word, len) == 0 ? n - len : n;
}

/* "model_world_size_8", as verl writes it, becomes "model". *world gets 8; 0:
 * the name does not say it. */
static size_t drop_world(const char *name, size_t n, int *world)
{
	size_t digits = n, head;
	struct numbered x;

	*world = 0;

	while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9')
		digits--;
	head = drop_word(name, digits, "_world_size_");
	if (digits == n || head == digits || !parse_number(name, digits, &x))
		return n;
	*world = x.number;
	return head;
}

/* What follows "-of-8". */
static const char *skip_total(const char *tail)
{
	return is_of(tail) ? tail + 4 + strspn(tail + 4, "0123456789") : tail;
}

/* The length of the name before a rank, without the number of ranks. */
static size_t stem_len(const char *name, const struct numbered *x, int *world)
{
	size_t n = drop_separators(name, x->head);

	*world = 0;
	if (!x->rank)
		return n;
	n = drop_separators(name, drop_word(name, n, "rank"));
	return drop_world(name, n, world);
}

static void find_world(const char *name, struct numbered *x)
{
	struct numbered total;

	stem_len(name, x, &x->world);
	if (is_of(x->tail) &&
	    parse_number(name, (size_t)(x->tail - name) + 4, &total))
		x->world = total.number;
}

/* Files of DeepSpeed and Megatron have numbers, too, but their formats read
 * them. */
static bool take_apart(const char *name, struct numbered *out)
{
	if (strstr(name, "mp_rank_") != NULL ||
	    strstr(name, "zero_pp_") != NULL)
		return false;
	if (!find_rank(name, out) && !find_last(name, out) &&
	    !find_any(name, out))
		return false;
	find_world(name, out);
	return true;
}

/* Is b the name of another rank's file, of this job or of one with another
 * number of ranks? */
static bool same_series(const char *a, const struct numbered *x, const char *b,
    struct numbered *y)
{
	int world;
	size_t n;

	if (!take_apart(b, y) || x->rank != y->rank ||
	    strcmp(skip_total(x->tail), skip_total(y->tail)) != 0)
		return false;
	if (x->world == 0 || y->world == 0)
		return x->head == y->head && memcmp(a, b, x->head) == 0 &&
		    strcmp(x->tail, y->tail) == 0;
	n = stem_len(a, x, &world);
	return n == stem_len(b, y, &world) && memcmp(a, b, n) == 0;
}

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

/* The common name of a series: "optim" for "optim_rank3.pt". */
static void put_stem(const char *name, const struct numbered *x, char *stem,
    size_t size)
{
	const char *begin = skip_total(x->tail), *end = strrchr(begin, '.');
	int world;
	size_t n = stem_len(name, x, &world), tail;

	if (*begin == '/') {
		begin++;
		n = 0;
	}
	if (n >= size)
		n = size - 1;
	memcpy(stem, name, n);
	tail = end == NULL ? strlen(begin) : (size_t)(end - begin);
	if (tail >= size - n)
		tail = size - n - 1;
	memcpy(stem + n, begin, tail);
	stem[n + tail] = '\0';
	if (stem[0] == '\0')
		memcpy(stem, "rank", size < 5 ? size : 5);
}

/* Has no other file a name of the series of the file at index i? */
static bool is_alone(const struct ofs_names *names, size_t i,
    const struct numbered *me)
{
	struct numbered other;

	for (size_t k = 0; k < names->n; k++)
		if (k != i &&
		    same_series(names->name[i], me, names->name[k], &other))
			return false;
	return true;
}

bool ofs_detect_only_rank(const struct ofs_names *names, size_t i, char *stem,
    size_t size)
{
	struct numbered me;

	if (!take_apart(names->name[i], &me) || !me.rank || me.number != 0 ||
	    !is_alone(names, i, &me))
		return false;
	put_stem(names->name[i], &me, stem, size);
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

/* verl's fsdp_config.json: {"FSDP_version": 2, "world_size": 4}. */
int ofs_detect_told(const struct ofs_dir *dir, int *told,
    struct optimfs_error *err)
{
	enum ofs_json_token value;
	int64_t world = 0;
	struct ofs_json j;
	uint8_t *bytes;
	uint64_t n;
	bool mine;
	int ret = ofs_probe_text(dir, "fsdp_config.json", 65536, &bytes, &n,
	    err);

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
	if (world > 0 && world <= MAX_RANK)
		*told = (int)world;
	return 0;
}

/* May the number of the file at index i be its rank? Asks the file alone, because
 * a directory may have thousands of snapshots, each of which would be compared
 * with all others. 1: yes, or it cannot be read; 0; -1. */
static int may_be_rank(const struct ofs_dir *dir, const struct ofs_names *names,
    size_t i, const struct ofs_format *format, const struct numbered *me,
    struct optimfs_error *err)
{
	int rank, world, ret;

	if (!me->asked)
		return 1;
	if (format->writer == NULL || is_alone(names, i, me))
		return 0;
	ret = format->writer(dir, names->name[i], &rank, &world, err);
	return ret == 1 ? rank == me->number : ret == 2 ? 1 : ret;
}

/* Are the numbers of these files those of ranks? 1; 0; -1. */
static int is_set(const struct ofs_dir *dir, const struct ofs_format *format,
    const struct numbered *me, struct ofs_job_file *file, size_t n,
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
    size_t i, const struct numbered *me, struct ofs_job_file *file)
{
	struct numbered other;
	size_t n = 0;

	for (size_t k = 0; k < names->n; k++)
		if (same_series(names->name[i], me, names->name[k], &other) &&
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
	struct numbered me;
	int ret, told, world;
	size_t n;

	if (!take_apart(names->name[i], &me))
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
	    (ofs_detect_told(dir, &told, err) == -1 ||
		ofs_jobs_judge(file, n, told, &world, err) == -1 ||
		leave_files(file, n, world, parts, err) == -1 ||
		put_files(file, n, spec, err) == -1))
		ret = -1;
	if (ret == 1) {
		spec->world = world;
		put_stem(names->name[i], &me, stem, size);
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
	struct numbered x;
	size_t n = 0;

	for (size_t i = 0; i < names->n; i++) {
		if (!ofs_probe_is_dir(dir, names->name[i]))
			continue;
		if (!find_rank(names->name[i], &x) || x.tail[0] != '\0')
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
