/* selection.c - which steps of a run a name means */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "run/selection.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "run/places.h"

/* Each step stays open for as long as what is computed from it. */
#define STEPS_MAX 4096

struct selecting {
	struct ofs_run_dir *run;
	struct ofs_selection *out;
	struct optimfs_error *err;
};

/* Adds the step of member i at its place in the order. */
static int add_member(struct selecting *x, uint32_t i)
{
	struct ofs_selection *s = x->out;
	struct ofs_run_member m;
	uint32_t at = s->n;

	if (i == OFS_NONE || !ofs_run_member(&x->run->members, i, &m))
		return -1;
	if (s->n == STEPS_MAX)
		return optimfs_fail(x->err, E2BIG,
		    "OFS863 more than %d steps are selected (limit)",
		    STEPS_MAX);
	if (ofs_grow(s->step, s->n, s->step_cap, x->err) == -1 ||
	    ofs_grow(s->member, s->n, s->member_cap, x->err) == -1)
		return -1;
	for (; at > 0 && s->step[at - 1] >= m.step; at--)
		if (s->step[at - 1] == m.step)
			return optimfs_fail(x->err, ENOENT,
			    "OFS863 step %" PRIu64 " is selected twice",
			    m.step);
	memmove(s->step + at + 1, s->step + at, (s->n - at) * sizeof(*s->step));
	memmove(s->member + at + 1, s->member + at,
	    (s->n - at) * sizeof(*s->member));
	s->step[at] = m.step;
	s->member[at] = i;
	s->n++;
	return 0;
}

/* Fails for a step from first to last that several checkpoints have. */
static int check_twice(struct selecting *x, uint64_t first, uint64_t last)
{
	struct ofs_run_member m;

	for (uint32_t i = 0; ofs_run_member(&x->run->members, i, &m); i++)
		if (m.told && m.twice && m.step >= first && m.step <= last)
			return ofs_run_at_step(x->run, m.step, x->err) ==
				OFS_NONE
			    ? -1
			    : 0;
	return 0;
}

/* Those from first to last in steps/. */
static int add_range(struct selecting *x, uint64_t first, uint64_t last)
{
	struct ofs_run_members *all = &x->run->members;
	struct ofs_run_member m;
	uint32_t n = x->out->n, i;

	if (ofs_run_refresh(all, x->err) == -1 ||
	    check_twice(x, first, last) == -1)
		return -1;
	for (;; first = m.step + 1) {
		i = ofs_run_member_from(all, first);
		if (!ofs_run_member(all, i, &m) || m.step > last)
			break;
		if (add_member(x, i) == -1)
			return -1;
	}
	return x->out->n > n
	    ? 0
	    : optimfs_fail(x->err, ENOENT,
		  "OFS851 %s: no step from %" PRIu64 " to %" PRIu64,
		  x->run->fs->source, first, last);
}

/* The last n steps, all of which there must be. */
static int add_last(struct selecting *x, uint64_t n)
{
	struct ofs_run_members *all = &x->run->members;
	struct ofs_run_member m;
	uint64_t steps = 0, first = 0;

	if (ofs_run_end(x->run, true, x->err) == OFS_NONE)
		return -1;
	for (; ofs_run_member(all, ofs_run_member_from(all, first), &m);
	     first = m.step + 1)
		steps++;
	if (n == 0 || n > steps)
		return optimfs_fail(x->err, ENOENT,
		    "OFS851 %s: last%" PRIu64 ": steps/ has %" PRIu64 " steps",
		    x->run->fs->source, n, steps);
	for (first = 0; steps > n; steps--) {
		(void)ofs_run_member(all, ofs_run_member_from(all, first), &m);
		first = m.step + 1;
	}
	return add_range(x, first, UINT64_MAX);
}

static int add_word(struct selecting *x, char *word)
{
	char *dash = strchr(word, '-');
	uint64_t a, b;

	if (strcmp(word, "latest") == 0 || strcmp(word, "first") == 0)
		return add_member(x,
		    ofs_run_end(x->run, word[0] == 'l', x->err));
	if (ofs_run_parse_step(word, &a))
		return add_member(x, ofs_run_at_step(x->run, a, x->err));
	if (strncmp(word, "last", 4) == 0 && ofs_run_parse_step(word + 4, &a))
		return add_last(x, a);
	if (dash != NULL)
		*dash = '\0';
	if (dash != NULL && ofs_run_parse_step(word, &a) &&
	    ofs_run_parse_step(dash + 1, &b) && a <= b)
		return add_range(x, a, b);
	if (dash != NULL)
		*dash = '-';
	return optimfs_fail(x->err, ENOENT,
	    "OFS863 '%s' selects no steps: give 1000, latest, first, last5 or "
	    "1000-5000, several with commas",
	    word);
}

int ofs_selection_parse(struct ofs_run_dir *run, const char *words, size_t n,
    struct ofs_selection *out, struct optimfs_error *err)
{
	struct ofs_selection found = { 0 };
	struct selecting x = { run, &found, err };
	char *copy = strndup(words, n), *p = copy, *word;
	int ret = copy == NULL ? ofs_no_memory(err) : 0;

	while (ret == 0 && (word = strsep(&p, ",")) != NULL)
		ret = add_word(&x, word);
	free(copy);
	if (ret == 0)
		*out = found;
	else
		ofs_selection_fini(&found);
	return ret;
}

void ofs_selection_fini(struct ofs_selection *s)
{
	free(s->step);
	free(s->member);
	*s = (struct ofs_selection){ 0 };
}
