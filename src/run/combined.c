/* combined.c - avg/, delta/, ema/ and lerp/ of a run */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "base/error.h"
#include "base/memory.h"
#include "run/combine.h"
#include "run/places.h"
#include "run/selection.h"

/* What a name in these places means: steps with weights. It is worked out again
 * whenever it is asked for, since "last5" depends on what is in the run. */
struct recipe {
	struct ofs_selection steps;
	double *weight; /* of each step */
	double divisor;
	uint32_t shown; /* gives what is not combined */
	bool delta;
	char what[200];
};

static void recipe_fini(struct recipe *r)
{
	ofs_selection_fini(&r->steps);
	free(r->weight);
}

static int bad_name(const char *place, const char *name, const char *form,
    struct optimfs_error *err)
{
	return optimfs_fail(err, ENOENT, "OFS863 %s/%.80s: give %s/%s", place,
	    name, place, form);
}

/* "steps 1, 2 and 3"; of many steps their number and the ends. */
static void put_steps(struct recipe *r, const char *what)
{
	const uint64_t *step = r->steps.step;
	uint32_t n = r->steps.n;
	struct ofs_buf out = { 0 };

	ofs_buf_printf(&out, "%s ", what);
	if (n > 8)
		ofs_buf_printf(&out, "%u steps from %" PRIu64 " to %" PRIu64, n,
		    step[0], step[n - 1]);
	for (uint32_t i = 0; n <= 8 && i < n; i++)
		ofs_buf_printf(&out, "%s%" PRIu64,
		    i == 0          ? n == 1 ? "step " : "steps "
			: i + 1 < n ? ", "
				    : " and ",
		    step[i]);
	ofs_buf_putc(&out, '\0');
	snprintf(r->what, sizeof(r->what), "%s",
	    out.bad ? what : (const char *)out.data);
	ofs_buf_fini(&out);
}

static int weigh(struct recipe *r, struct optimfs_error *err)
{
	r->weight = ofs_alloc(r->steps.n, sizeof(*r->weight), err);
	r->divisor = 1;
	r->shown = r->steps.n - 1;
	return r->weight == NULL ? -1 : 0;
}

/* A number in words[0..n), all of it. */
static bool parse_number(const char *words, size_t n, double *v)
{
	char copy[40], *end;

	if (n == 0 || n >= sizeof(copy) || strspn(words, "0123456789.-+eE") < n)
		return false;
	memcpy(copy, words, n);
	copy[n] = '\0';
	*v = strtod(copy, &end);
	return *end == '\0' && isfinite(*v);
}

/* avg/1000,2000: the mean. */
static int read_avg(struct ofs_run_dir *run, const char *name, struct recipe *r,
    struct optimfs_error *err)
{
	if (ofs_selection_parse(run, name, strlen(name), &r->steps, err) ==
		-1 ||
	    weigh(r, err) == -1)
		return -1;
	for (uint32_t i = 0; i < r->steps.n; i++)
		r->weight[i] = 1;
	r->divisor = r->steps.n;
	put_steps(r, "average of");
	return 0;
}

/* ema/0.9@last5: e = 0.9 e + 0.1 x from the first step on. */
static int read_ema(struct ofs_run_dir *run, const char *name, struct recipe *r,
    struct optimfs_error *err)
{
	const char *at = strchr(name, '@');
	double decay, weight;
	char what[80];

	if (at == NULL || !parse_number(name, (size_t)(at - name), &decay) ||
	    decay < 0 || decay > 1)
		return bad_name("ema", name,
		    "DECAY@STEPS, as ema/0.9@last5: a decay from 0 to 1", err);
	if (ofs_selection_parse(run, at + 1, strlen(at + 1), &r->steps, err) ==
		-1 ||
	    weigh(r, err) == -1)
		return -1;
	weight = 1;
	for (uint32_t i = r->steps.n; i-- > 0; weight *= decay)
		r->weight[i] = i == 0 ? weight : (1 - decay) * weight;
	snprintf(what, sizeof(what), "exponential moving average (%g) of",
	    decay);
	put_steps(r, what);
	return 0;
}

/* Two steps in the order of the name, whichever is later. */
static int read_two(struct ofs_run_dir *run, const char *a, size_t na,
    const char *b, size_t nb, struct recipe *r, struct optimfs_error *err)
{
	struct ofs_selection second = { 0 };
	int ret = -1;

	if (ofs_selection_parse(run, a, na, &r->steps, err) == -1)
		return -1;
	if (ofs_selection_parse(run, b, nb, &second, err) == -1)
		return -1;
	if (r->steps.n != 1 || second.n != 1)
		optimfs_fail(err, ENOENT,
		    "OFS863 %.*s and %.*s: each must be one step", (int)na, a,
		    (int)nb, b);
	else if (ofs_grow(r->steps.step, 1, r->steps.step_cap, err) == 0 &&
	    ofs_grow(r->steps.member, 1, r->steps.member_cap, err) == 0) {
		r->steps.step[1] = second.step[0];
		r->steps.member[1] = second.member[0];
		r->steps.n = 2;
		ret = weigh(r, err);
	}
	ofs_selection_fini(&second);
	return ret;
}

/* lerp/1000,2000@0.3: 0.7 times the first, 0.3 times the second. */
static int read_lerp(struct ofs_run_dir *run, const char *name,
    struct recipe *r, struct optimfs_error *err)
{
	const char *comma = strchr(name, ','), *at = strchr(name, '@');
	double t;

	if (comma == NULL || at == NULL || comma > at ||
	    !parse_number(at + 1, strlen(at + 1), &t))
		return bad_name("lerp", name,
		    "STEP,STEP@NUMBER, as lerp/1000,2000@0.5", err);
	if (read_two(run, name, (size_t)(comma - name), comma + 1,
		(size_t)(at - comma - 1), r, err) == -1)
		return -1;
	r->weight[0] = 1 - t;
	r->weight[1] = t;
	r->shown = r->steps.step[1] >= r->steps.step[0];
	snprintf(r->what, sizeof(r->what),
	    "%g times step %" PRIu64 " and %g times step %" PRIu64, 1 - t,
	    r->steps.step[0], t, r->steps.step[1]);
	return 0;
}

/* delta/1000..2000: the second less the first. */
static int read_delta(struct ofs_run_dir *run, const char *name,
    struct recipe *r, struct optimfs_error *err)
{
	const char *dots = strstr(name, "..");

	if (dots == NULL)
		return bad_name("delta", name,
		    "STEP..STEP, as delta/1000..2000", err);
	if (read_two(run, name, (size_t)(dots - name), dots + 2,
		strlen(dots + 2), r, err) == -1)
		return -1;
	r->weight[0] = -1;
	r->weight[1] = 1;
	r->delta = true;
	snprintf(r->what, sizeof(r->what),
	    "step %" PRIu64 " less step %" PRIu64, r->steps.step[1],
	    r->steps.step[0]);
	return 0;
}

/* The recipe of a tree, whose name is PLACE/NAME. */
static int read_recipe(struct ofs_run_dir *run, const char *tree,
    struct recipe *r, struct optimfs_error *err)
{
	static const struct {
		const char *place;
		int (*read)(struct ofs_run_dir *run, const char *name,
		    struct recipe *r, struct optimfs_error *err);
	} kinds[] = {
		{ "avg/", read_avg },
		{ "delta/", read_delta },
		{ "ema/", read_ema },
		{ "lerp/", read_lerp },
	};
	size_t i = 0, n;

	while (strncmp(tree, kinds[i].place, strlen(kinds[i].place)) != 0)
		i++;
	n = strlen(kinds[i].place);
	*r = (struct recipe){ 0 };
	if (kinds[i].read(run, tree + n, r, err) == 0)
		return 0;
	recipe_fini(r);
	return -1;
}

/* A number that changes with the steps, and with their files. */
static uint64_t combined_version(struct ofs_run_dir *run, const char *tree)
{
	struct ofs_run_member m;
	struct recipe r;
	uint64_t hash;

	if (read_recipe(run, tree, &r, NULL) == -1)
		return 0;
	hash = XXH64(r.what, strlen(r.what), 0);
	for (uint32_t i = 0; i < r.steps.n; i++)
		if (ofs_run_member(&run->members, r.steps.member[i], &m))
			hash = XXH64(&m.stamp, sizeof(m.stamp), hash);
	recipe_fini(&r);
	return hash;
}

/* Who may read all of the steps may read it. */
static int combined_attr(struct ofs_run_dir *run, const char *tree,
    struct optimfs_attr *attr, struct optimfs_error *err)
{
	struct ofs_run_member m;
	uint32_t mode = 0444;
	struct recipe r;

	if (read_recipe(run, tree, &r, err) == -1)
		return -1;
	for (uint32_t i = 0; i < r.steps.n; i++) {
		if (!ofs_run_member(&run->members, r.steps.member[i], &m))
			continue;
		mode &= m.found.mode;
		attr->uid = m.uid;
		attr->gid = m.gid;
		if (i == 0 || m.found.mtime_ns > attr->mtime_ns)
			attr->mtime_ns = m.found.mtime_ns;
	}
	attr->mode = S_IFDIR | mode | mode >> 2;
	recipe_fini(&r);
	return 0;
}

/* Opens the steps of a recipe. */
static int open_steps(struct ofs_run_dir *run, const struct recipe *r,
    struct ofs_combined *v, struct optimfs_error *err)
{
	for (uint32_t i = 0; i < r->steps.n; i++) {
		uint32_t tree =
		    ofs_run_member_tree(run, r->steps.member[i], err);

		v[i].step = r->steps.step[i];
		v[i].weight = r->weight[i];
		v[i].fs = tree == OFS_NONE
		    ? NULL
		    : ofs_run_tree_open(&run->trees, tree, err);
		if (v[i].fs == NULL)
			return optimfs_fail_in(err, "step %" PRIu64, v[i].step);
	}
	return 0;
}

static struct optimfs *combine_steps(struct ofs_run_dir *run, const char *tree,
    const struct recipe *r, struct optimfs_error *err)
{
	struct ofs_combined *v = ofs_alloc(r->steps.n, sizeof(*v), err);
	const struct ofs_combine how = {
		.delta = r->delta,
		.divisor = r->divisor,
		.n = r->steps.n,
		.shown = r->shown,
		.v = v,
		.what = r->what,
	};
	struct optimfs *fs = NULL;
	char *source = NULL;

	if (v == NULL)
		return NULL;
	if (asprintf(&source, "%s:%s", run->fs->source, tree) == -1) {
		source = NULL;
		ofs_no_memory(err);
	} else if (open_steps(run, r, v, err) == 0) {
		fs = ofs_combine(&how, source, &run->options, err);
	}
	for (uint32_t i = 0; i < r->steps.n; i++)
		optimfs_close(v[i].fs);
	free(source);
	free(v);
	return fs;
}

static struct optimfs *open_combined(struct ofs_run_dir *run, const char *tree,
    struct optimfs_error *err)
{
	struct optimfs *fs;
	struct recipe r;

	if (read_recipe(run, tree, &r, err) == -1)
		return NULL;
	fs = combine_steps(run, tree, &r, err);
	recipe_fini(&r);
	return fs;
}

static const struct ofs_run_source combined = {
	.open = open_combined,
	.version = combined_version,
	.attr = combined_attr,
};

static int find_combined(struct ofs_run_dir *run, const char *place,
    const char *name, struct ofs_run_found *found, struct optimfs_error *err)
{
	char tree[OFS_NAME_MAX + 1];
	struct recipe r;

	if ((size_t)snprintf(tree, sizeof(tree), "%s/%s", place, name) >=
	    sizeof(tree))
		return optimfs_fail(err, ENAMETOOLONG, "%.80s...: too long",
		    name);
	if (read_recipe(run, tree, &r, err) == -1)
		return err->code == ENOENT ? 0 : -1;
	recipe_fini(&r);
	found->link = OFS_NONE;
	found->tree = ofs_run_tree(&run->trees, &combined, tree, err);
	return found->tree == OFS_NONE ? -1 : 1;
}

#define PLACE(word)                                                \
 static int find_##word(struct ofs_run_dir *run, const char *name, \
     struct ofs_run_found *found, struct optimfs_error *err)       \
 {                                                                 \
  return find_combined(run, #word, name, found, err);              \
 }                                                                 \
 const struct ofs_run_place ofs_run_##word = { .name = #word,      \
	 .find = find_##word };
PLACE(avg)
PLACE(delta)
PLACE(ema)
PLACE(lerp)
