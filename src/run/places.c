/* places.c - the directories in the root of a run */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "run/places.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "base/error.h"
#include "base/memory.h"
#include "run/chain.h"

/* The trees of members: what mounting each alone shows. */

static struct optimfs *open_member(struct ofs_run_dir *run, const char *name,
    struct optimfs_error *err)
{
	struct ofs_run_member m;
	struct optimfs *fs;
	char *path;

	if (ofs_run_shown(&run->members, name, &m, err) == -1)
		return NULL;
	path = ofs_run_member_path(run, name, err);
	if (path == NULL)
		return NULL;
	fs = run->open(path, &run->options, err);
	free(path);
	return fs;
}

static uint64_t member_version(struct ofs_run_dir *run, const char *name)
{
	struct ofs_run_member m;

	return ofs_run_shown(&run->members, name, &m, NULL) == -1
	    ? 0
	    : XXH64(&m.stamp, sizeof(m.stamp), 0);
}

static int member_attr(struct ofs_run_dir *run, const char *name,
    struct optimfs_attr *attr, struct optimfs_error *err)
{
	struct ofs_run_member m;

	if (ofs_run_shown(&run->members, name, &m, err) == -1)
		return -1;
	attr->mode = S_IFDIR | m.found.mode | m.found.mode >> 2;
	attr->uid = m.uid;
	attr->gid = m.gid;
	attr->mtime_ns = m.found.mtime_ns;
	return 0;
}

static const struct ofs_run_source stored = {
	.open = open_member,
	.path = ofs_run_member_path,
	.version = member_version,
	.attr = member_attr,
};

uint32_t ofs_run_member_tree(struct ofs_run_dir *run, uint32_t i,
    struct optimfs_error *err)
{
	struct ofs_run_member m = { .name = "" };

	(void)ofs_run_member(&run->members, i, &m);
	return ofs_run_tree(&run->trees,
	    m.found.changes ? &ofs_run_chained : &stored, m.name, err);
}

static const char *what_lacks(const struct ofs_run_examined *found)
{
	return found->roles ? "is not one checkpoint" : "is not finished";
}

/* Why there is no step. */
static int no_step(struct ofs_run_dir *run, uint64_t step,
    struct optimfs_error *err)
{
	char first[100] = "";
	struct ofs_run_member m;

	for (uint32_t i = 0; ofs_run_member(&run->members, i, &m); i++) {
		if (m.gone || m.count == OFS_RUN_NOTHING || m.step != step)
			continue;
		if (m.told && m.twice && first[0] != '\0')
			return optimfs_fail(err, ENOENT,
			    "OFS853 step %" PRIu64 " is both %s and %.100s: "
			    "give by-name/%s, or the other",
			    step, first, ofs_path_last(m.name), first);
		if (m.told && m.twice)
			snprintf(first, sizeof(first), "%s",
			    ofs_path_last(m.name));
		else if (m.known && m.found.kind == OFS_RUN_UNFINISHED)
			return optimfs_fail(err, ENOENT,
			    "OFS851 step %" PRIu64 ", %.80s, %s: %s", step,
			    m.name, what_lacks(&m.found), m.found.why);
	}
	if (!ofs_run_member(&run->members, ofs_run_member_last(&run->members),
		&m))
		return optimfs_fail(err, ENOENT,
		    "OFS851 %s: no step %" PRIu64 "; none is in steps/",
		    run->fs->source, step);
	return optimfs_fail(err, ENOENT,
	    "OFS851 %s: no step %" PRIu64 "; the last one is %" PRIu64,
	    run->fs->source, step, m.step);
}

uint32_t ofs_run_at_step(struct ofs_run_dir *run, uint64_t step,
    struct optimfs_error *err)
{
	struct ofs_run_member m;
	uint32_t i = ofs_run_member_from(&run->members, step);

	if (ofs_run_refresh_one(&run->members, i, err) == -1)
		return OFS_NONE;
	i = ofs_run_member_from(&run->members, step);
	if (ofs_run_member(&run->members, i, &m) && m.step == step)
		return i;
	no_step(run, step, err);
	return OFS_NONE;
}

/* Is a step with several checkpoints before the first one in steps/, or after
 * the last? */
static bool is_beyond(struct ofs_run_dir *run, uint32_t end, bool latest,
    uint64_t *step)
{
	struct ofs_run_member e = { .step = 0 }, m;
	bool some = ofs_run_member(&run->members, end, &e);

	for (uint32_t i = 0; ofs_run_member(&run->members, i, &m); i++) {
		*step = m.step;
		if (m.told && m.twice &&
		    (!some || (latest ? m.step > e.step : m.step < e.step)))
			return true;
	}
	return false;
}

uint32_t ofs_run_end(struct ofs_run_dir *run, bool latest,
    struct optimfs_error *err)
{
	uint64_t step;
	uint32_t i;

	if (ofs_run_refresh(&run->members, err) == -1)
		return OFS_NONE;
	i = latest ? ofs_run_member_last(&run->members)
		   : ofs_run_member_from(&run->members, 0);
	if (is_beyond(run, i, latest, &step)) {
		no_step(run, step, err);
		return OFS_NONE;
	}
	if (i == OFS_NONE)
		optimfs_fail(err, ENOENT,
		    "OFS851 %s: no name of a checkpoint tells its step; see "
		    "by-name/",
		    run->fs->source);
	return i;
}

/* steps/ */

static int find_step(struct ofs_run_dir *run, const char *name,
    struct ofs_run_found *found, struct optimfs_error *err)
{
	uint64_t step;
	uint32_t i;

	if (!ofs_run_parse_step(name, &step)) {
		optimfs_fail(err, ENOENT,
		    "OFS851 %.80s: not a step: a decimal number without "
		    "leading zeros",
		    name);
		return 0;
	}
	i = ofs_run_at_step(run, step, err);
	if (i == OFS_NONE)
		return err->code == ENOENT ? 0 : -1;
	found->link = OFS_NONE;
	found->tree = ofs_run_member_tree(run, i, err);
	return found->tree == OFS_NONE ? -1 : 1;
}

/* The position of a step is the step, so that a listing goes on correctly after
 * others have appeared or disappeared. */
static int list_steps(struct ofs_run_dir *run, uint64_t start,
    ofs_run_each_fn *each, void *ctx, struct optimfs_error *err)
{
	struct ofs_run_found found = { .link = OFS_NONE };
	struct ofs_run_member m;
	char name[24];
	uint32_t i;
	int ret;

	if (ofs_run_refresh(&run->members, err) == -1)
		return -1;
	for (;; start = m.step + 1) {
		i = ofs_run_member_from(&run->members, start);
		if (!ofs_run_member(&run->members, i, &m))
			return 0;
		found.tree = ofs_run_member_tree(run, i, err);
		if (found.tree == OFS_NONE)
			return -1;
		snprintf(name, sizeof(name), "%" PRIu64, m.step);
		ret = each(ctx, name, &found, m.step);
		if (ret != 0)
			return ret;
	}
}

/* by-name/: a link for what is in steps/, else the tree itself. */

static int named(struct ofs_run_dir *run, uint32_t i,
    const struct ofs_run_member *m, struct ofs_run_found *found,
    struct optimfs_error *err)
{
	*found = (struct ofs_run_found){ OFS_NONE, OFS_NONE };
	if (m->told && !m->twice) {
		found->link = i;
		return 1;
	}
	found->tree = ofs_run_member_tree(run, i, err);
	return found->tree == OFS_NONE ? -1 : 1;
}

static int find_named(struct ofs_run_dir *run, const char *name,
    struct ofs_run_found *found, struct optimfs_error *err)
{
	struct ofs_run_member m;
	uint32_t i = ofs_run_member_find(&run->members, name);

	if (ofs_run_refresh_one(&run->members, i, err) == -1)
		return -1;
	i = ofs_run_member_find(&run->members, name);
	if (ofs_run_member(&run->members, i, &m) && ofs_run_is_shown(&m))
		return named(run, i, &m, found, err);
	if (ofs_run_member(&run->members, i, &m) && !m.gone && m.known &&
	    m.found.kind == OFS_RUN_UNFINISHED)
		optimfs_fail(err, ENOENT, "OFS851 %.80s %s: %s", name,
		    what_lacks(&m.found), m.found.why);
	else
		optimfs_fail(err, ENOENT,
		    "OFS851 %s: no checkpoint called %.80s", run->fs->source,
		    name);
	return 0;
}

static int list_named(struct ofs_run_dir *run, uint64_t start,
    ofs_run_each_fn *each, void *ctx, struct optimfs_error *err)
{
	struct ofs_run_found found;
	struct ofs_run_member m;
	int ret = 0;

	if (ofs_run_refresh(&run->members, err) == -1)
		return -1;
	for (uint32_t i = start > OFS_NONE ? OFS_NONE : (uint32_t)start;
	     ret == 0 && ofs_run_member(&run->members, i, &m); i++) {
		if (!ofs_run_is_shown(&m))
			continue;
		ret = named(run, i, &m, &found, err);
		if (ret == 1)
			ret = each(ctx, ofs_path_last(m.name), &found, i);
	}
	return ret;
}

static const struct ofs_run_place by_name = {
	.name = "by-name",
	.find = find_named,
	.list = list_named,
};

static const struct ofs_run_place steps = {
	.name = "steps",
	.find = find_step,
	.list = list_steps,
};

const struct ofs_run_place *const ofs_run_places[] = {
	&ofs_run_avg,
	&by_name,
	&ofs_run_delta,
	&ofs_run_ema,
	&ofs_run_lerp,
	&steps,
};
const uint32_t ofs_run_nplaces =
    sizeof(ofs_run_places) / sizeof(ofs_run_places[0]);

const struct ofs_run_place *ofs_run_place(const char *name)
{
	for (uint32_t i = 0; i < ofs_run_nplaces; i++)
		if (strcmp(ofs_run_places[i]->name, name) == 0)
			return ofs_run_places[i];
	return NULL;
}

char *ofs_run_link(struct ofs_run_dir *run, uint32_t i,
    struct optimfs_error *err)
{
	struct ofs_run_member m;
	char *target = NULL;

	if (!ofs_run_member(&run->members, i, &m) || m.gone || !m.told ||
	    m.twice)
		optimfs_fail(err, ESTALE,
		    "the checkpoint of this link was removed");
	else if (asprintf(&target, "steps/%" PRIu64, m.step) == -1) {
		ofs_no_memory(err);
		return NULL;
	}
	return target;
}

/* Names of checkpoints in commands: RUN:NAME. */

/* Copies the first word of a path; *rest gets what follows. NULL: it is too
 * long. */
static const char *take_word(const char *words, char *word, size_t size,
    const char **rest)
{
	size_t n = strcspn(words, "/");

	if (n >= size)
		return NULL;
	memcpy(word, words, n);
	word[n] = '\0';
	*rest = words + n + strspn(words + n, "/");
	return word;
}

static int resolve_member(struct ofs_run_dir *run, uint32_t i,
    struct ofs_run_found *found, struct optimfs_error *err)
{
	if (i == OFS_NONE)
		return -1;
	found->link = OFS_NONE;
	found->tree = ofs_run_member_tree(run, i, err);
	return found->tree == OFS_NONE ? -1 : 1;
}

static int resolve_in(struct ofs_run_dir *run,
    const struct ofs_run_place *place, const char *words, const char **rest,
    struct ofs_run_found *found, struct optimfs_error *err)
{
	char name[256];
	int ret;

	if (take_word(words, name, sizeof(name), rest) == NULL)
		return optimfs_fail(err, ENAMETOOLONG, "%.80s...: too long",
		    words);
	ret = place->find(run, name, found, err);
	if (ret == 1 && found->link != OFS_NONE)
		return resolve_member(run, found->link, found, err);
	return ret == 1 ? 1 : -1;
}

int ofs_run_resolve_name(struct ofs_run_dir *run, const char *words,
    const char **rest, struct ofs_run_found *found, struct optimfs_error *err)
{
	const struct ofs_run_place *place;
	char word[256];
	uint64_t step;

	if (take_word(words, word, sizeof(word), rest) == NULL)
		return 0;
	if (strcmp(word, "latest") == 0 || strcmp(word, "first") == 0)
		return resolve_member(run,
		    ofs_run_end(run, word[0] == 'l', err), found, err);
	if (ofs_run_parse_step(word, &step))
		return resolve_member(run, ofs_run_at_step(run, step, err),
		    found, err);
	place = ofs_run_place(word);
	if (place == NULL || **rest == '\0')
		return 0;
	return resolve_in(run, place, *rest, rest, found, err);
}

int ofs_run_no_name(const struct ofs_run_dir *run, const char *name,
    struct optimfs_error *err)
{
	return optimfs_fail(err, ENOENT,
	    "OFS851 %s: %.100s names no checkpoint: give latest, first, a step, "
	    "steps/STEP or by-name/NAME",
	    run->fs->source, name);
}
