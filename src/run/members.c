/* members.c - the checkpoints in the directory of a run */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "run/members.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/search.h"
#include "detect/candidates.h"
#include "store/http/open.h"

/* A directory that was changed so shortly before it was listed may have been
 * changed again since, without another time. */
#define SETTLED_NS INT64_C(1000000000)
/* What is not finished changes where its stamp does not show it: in files, and
 * further below. */
#define PATIENCE_NS INT64_C(1000000000)
/* A writer that has been silent for so long has stopped. */
#define WRITING_NS (600 * INT64_C(1000000000))

static struct ofs_run_stamp stamp_of(const struct stat *st)
{
	return (struct ofs_run_stamp){
		.dev = st->st_dev,
		.ino = st->st_ino,
		.size = (uint64_t)st->st_size,
		.mtime_ns = ofs_time_ns(&st->st_mtim),
		.ctime_ns = ofs_time_ns(&st->st_ctim),
	};
}

/* Beside a directory called deltas, these have members, too, whose names begin
 * with theirs and a slash, and "base" is version 0 (docs/formats/delta.md). */
static const char *const shelves[OFS_RUN_NSHELVES] = { "anchors", "deltas" };

static bool has_shelves(const struct ofs_run_members *m)
{
	return m->stamp[OFS_RUN_NSHELVES].ino != 0;
}

static bool is_shelf(const char *name)
{
	for (unsigned i = 0; i < OFS_RUN_NSHELVES; i++)
		if (strcmp(name, shelves[i]) == 0)
			return true;
	return false;
}

static bool is_same(const struct ofs_run_stamp *a,
    const struct ofs_run_stamp *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
	    a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns;
}

int ofs_run_members_dir(const char *path, struct ofs_dir *dir,
    struct optimfs_error *err)
{
	return ofs_http_is_address(path)
	    ? ofs_http_open_dir(path, ofs_http_timeout(0), dir, err)
	    : ofs_dir_open(path, dir, err);
}

char *ofs_run_members_path(const char *path, const char *name)
{
	return ofs_http_is_address(path) ? ofs_http_below(path, name)
					 : ofs_path_join(path, name);
}

/* A link itself. A directory on a server has no number, and does not change. */
static bool stat_name(const struct ofs_run_members *m, const char *name,
    struct stat *st)
{
	if (m->dir.names == NULL)
		return fstatat(m->dir.fd, name, st, AT_SYMLINK_NOFOLLOW) == 0;
	if (!ofs_dir_stat(&m->dir, name, st))
		return false;
	if (S_ISDIR(st->st_mode))
		st->st_ino = 1;
	return true;
}

static int stat_dir(const struct ofs_run_members *m, struct stat *st)
{
	*st = (struct stat){ .st_mode = S_IFDIR | 0500, .st_ino = 1 };
	return m->dir.names == NULL ? fstat(m->dir.fd, st) : 0;
}

int ofs_run_members_open(struct ofs_run_members *m, const char *path,
    bool follow, struct optimfs_error *err)
{
	*m = (struct ofs_run_members){ .listed = false };
	if (ofs_run_members_dir(path, &m->dir, err) == -1)
		return -1;
	m->dir.follow = follow;
	pthread_mutex_init(&m->refreshing, NULL);
	pthread_mutex_init(&m->lock, NULL);
	if (ofs_run_refresh(m, err) == 0)
		return 0;
	ofs_run_members_close(m);
	return -1;
}

void ofs_run_members_close(struct ofs_run_members *m)
{
	ofs_dir_close(&m->dir);
	ofs_keys_fini(&m->names);
	free(m->v);
	free(m->order);
	pthread_mutex_destroy(&m->lock);
	pthread_mutex_destroy(&m->refreshing);
}

/* The table is written by the thread with refreshing, which holds lock, too,
 * while it does. */

static int add_name(struct ofs_run_members *m, const char *name,
    struct optimfs_error *err)
{
	uint32_t n = m->names.n, i;
	struct ofs_run_member *v;

	if (ofs_grow(m->v, n, m->cap, err) == -1)
		return -1;
	i = ofs_keys_copy(&m->names, name, strlen(name), err);
	if (i == OFS_NONE)
		return -1;
	v = &m->v[i];
	if (i == n)
		*v = (struct ofs_run_member){ .name = m->names.v[i].p,
			.late = m->listed };
	v->count = ofs_run_step(ofs_path_last(v->name), &v->step);
	if (has_shelves(m) && strcmp(v->name, "base") == 0) {
		v->count = OFS_RUN_VERSIONS;
		v->step = 0;
	}
	v->gone = false;
	return 0;
}

static int take_names(struct ofs_run_members *m, const struct ofs_names *names,
    struct optimfs_error *err)
{
	for (uint32_t i = 0; i < m->names.n; i++)
		m->v[i].gone = true;
	for (size_t i = 0; i < names->n; i++) {
		const char *name = names->name[i];

		/* hidden: stages of ours, caches of others */
		if (ofs_path_last(name)[0] == '.' ||
		    (has_shelves(m) && is_shelf(name)))
			continue;
		if (add_name(m, name, err) == -1)
			return -1;
	}
	return 0;
}

/* Adds the names in a shelf. What cannot be listed has none. */
static int list_shelf(const struct ofs_run_members *m, const char *shelf,
    struct ofs_names *names, struct optimfs_error *err)
{
	struct ofs_names in = { 0 };
	struct ofs_dir dir;
	int ret = 0;

	if (ofs_dir_open_sub(&m->dir, shelf, &dir, NULL) == -1)
		return 0;
	if (ofs_dir_list(&dir, &in, NULL) == -1)
		in.n = 0;
	for (size_t i = 0; i < in.n && ret == 0; i++) {
		char *name = ofs_path_join(shelf, in.name[i]);

		ret = name == NULL
		    ? ofs_no_memory(err)
		    : ofs_names_add(names, name, strlen(name), err);
		free(name);
	}
	ofs_names_free(&in);
	ofs_dir_close(&dir);
	return ret;
}

/* Are the names those that were listed? *stamp gets those of the directories. */
static int is_listed(const struct ofs_run_members *m,
    struct ofs_run_stamp stamp[1 + OFS_RUN_NSHELVES], struct optimfs_error *err)
{
	bool listed = m->listed;
	struct stat st;

	if (stat_dir(m, &st) == -1)
		return optimfs_fail(err, errno, "%s: %m", m->dir.path);
	for (unsigned i = 0; i <= OFS_RUN_NSHELVES; i++) {
		stamp[i] = (struct ofs_run_stamp){ 0 };
		if (i == 0 ||
		    (stat_name(m, shelves[i - 1], &st) && S_ISDIR(st.st_mode)))
			stamp[i] = stamp_of(&st);
		listed = listed && is_same(&stamp[i], &m->stamp[i]) &&
		    m->listed_ns - stamp[i].mtime_ns > SETTLED_NS;
	}
	return listed;
}

static int list_again(struct ofs_run_members *m, struct optimfs_error *err)
{
	struct ofs_run_stamp stamp[1 + OFS_RUN_NSHELVES];
	int64_t now = ofs_now_ns();
	struct ofs_names names;
	int ret = is_listed(m, stamp, err);

	if (ret != 0)
		return ret == 1 ? 0 : -1;
	if (ofs_dir_list(&m->dir, &names, err) == -1)
		return -1;
	for (unsigned i = 0; i < OFS_RUN_NSHELVES && ret == 0; i++)
		if (stamp[OFS_RUN_NSHELVES].ino != 0 && stamp[i + 1].ino != 0)
			ret = list_shelf(m, shelves[i], &names, err);
	pthread_mutex_lock(&m->lock);
	memcpy(m->stamp, stamp, sizeof(m->stamp));
	if (ret == 0)
		ret = take_names(m, &names, err);
	m->listed_ns = now;
	pthread_mutex_unlock(&m->lock);
	ofs_names_free(&names);
	return ret;
}

static bool is_due(const struct ofs_run_member *v,
    const struct ofs_run_stamp *stamp)
{
	if (!v->known || !is_same(stamp, &v->stamp))
		return true;
	return v->found.kind == OFS_RUN_UNFINISHED &&
	    ofs_clock_ns() - v->looked_ns > PATIENCE_NS;
}

/* An index that is written from its start to its end, and files whose index is
 * at their start, look complete before they are. So what may be in the making is
 * read before it is shown. */
static int check_whole(const struct ofs_run_members *m,
    struct ofs_run_member *v, struct optimfs_error *err)
{
	int whole;

	if (m->whole == NULL || v->found.kind != OFS_RUN_COMPLETE)
		return 0;
	whole =
	    m->whole(m->ctx, v->name, v->found.why, sizeof(v->found.why), err);
	if (whole == 0)
		v->found.kind = OFS_RUN_UNFINISHED;
	return whole == -1 ? -1 : 0;
}

static void store(struct ofs_run_members *m, uint32_t i,
    const struct ofs_run_member *v)
{
	pthread_mutex_lock(&m->lock);
	m->v[i] = *v;
	pthread_mutex_unlock(&m->lock);
}

static int examine(struct ofs_run_members *m, uint32_t i,
    struct optimfs_error *err)
{
	struct ofs_run_member v = m->v[i];
	struct ofs_run_stamp stamp;
	struct stat st;

	v.gone = !stat_name(m, v.name, &st);
	if (!v.gone) {
		stamp = stamp_of(&st);
		if (!is_due(&v, &stamp))
			return 0;
		v.known = true;
		v.stamp = stamp;
		v.looked_ns = ofs_clock_ns();
		v.mode = st.st_mode;
		v.uid = st.st_uid;
		v.gid = st.st_gid;
		/* a date may be that of a log */
		if (ofs_run_examine(&m->dir, v.name, &st,
			v.count < OFS_RUN_DATES, &v.found, err) == -1 ||
		    (v.late && check_whole(m, &v, err) == -1))
			return -1;
	}
	store(m, i, &v);
	return 0;
}

static int by_step(const void *a, const void *b, void *ctx)
{
	const struct ofs_run_member *v = ctx;
	const struct ofs_run_member *x = &v[*(const uint32_t *)a],
				    *y = &v[*(const uint32_t *)b];

	return x->step != y->step
	    ? OFS_ORDER(x->step, y->step)
	    : OFS_ORDER(*(const uint32_t *)a, *(const uint32_t *)b);
}

/* Of what has the best count, the steps that only one has. */
static int sort_steps(struct ofs_run_members *m, struct optimfs_error *err)
{
	enum ofs_run_count best = OFS_RUN_NOTHING;
	uint32_t n = 0, kept = 0;

	for (uint32_t i = 0; i < m->names.n; i++)
		if (ofs_run_is_shown(&m->v[i]) && m->v[i].count < best)
			best = m->v[i].count;
	if (ofs_reserve(m->order, m->names.n, m->order_cap, err) == -1)
		return -1;
	for (uint32_t i = 0; i < m->names.n; i++) {
		struct ofs_run_member *v = &m->v[i];

		v->twice = false;
		v->told = ofs_run_is_shown(v) && v->count == best &&
		    best != OFS_RUN_NOTHING;
		if (v->told)
			m->order[n++] = i;
	}
	if (n > 0)
		qsort_r(m->order, n, sizeof(*m->order), by_step, m->v);
	for (uint32_t i = 0; i < n; i++) {
		struct ofs_run_member *v = &m->v[m->order[i]];

		v->twice = (i > 0 && m->v[m->order[i - 1]].step == v->step) ||
		    (i + 1 < n && m->v[m->order[i + 1]].step == v->step);
	}
	for (uint32_t i = 0; i < n; i++)
		if (!m->v[m->order[i]].twice)
			m->order[kept++] = m->order[i];
	m->norder = kept;
	return 0;
}

static int refresh(struct ofs_run_members *m, struct optimfs_error *err)
{
	int ret = list_again(m, err);

	for (uint32_t i = 0; i < m->names.n && ret == 0; i++)
		if (!m->v[i].gone)
			ret = examine(m, i, err);
	if (ret == -1)
		return -1;
	pthread_mutex_lock(&m->lock);
	ret = sort_steps(m, err);
	m->listed |= ret == 0;
	pthread_mutex_unlock(&m->lock);
	return ret;
}

/* Is nothing new about member i? */
static int is_current(const struct ofs_run_members *m, uint32_t i,
    struct optimfs_error *err)
{
	struct ofs_run_stamp now[1 + OFS_RUN_NSHELVES], stamp;
	struct stat st;
	int ret = is_listed(m, now, err);

	if (ret != 1 || i >= m->names.n || m->v[i].gone ||
	    !stat_name(m, m->v[i].name, &st))
		return ret == -1 ? -1 : 0;
	stamp = stamp_of(&st);
	return !is_due(&m->v[i], &stamp);
}

int ofs_run_refresh_one(struct ofs_run_members *m, uint32_t i,
    struct optimfs_error *err)
{
	int ret;

	if (pthread_mutex_trylock(&m->refreshing) != 0)
		return 0;
	ret = is_current(m, i, err);
	if (ret == 0)
		ret = refresh(m, err);
	pthread_mutex_unlock(&m->refreshing);
	return ret == -1 ? -1 : 0;
}

int ofs_run_refresh(struct ofs_run_members *m, struct optimfs_error *err)
{
	int ret;

	if (pthread_mutex_trylock(&m->refreshing) != 0)
		return 0;
	ret = refresh(m, err);
	pthread_mutex_unlock(&m->refreshing);
	return ret;
}

int ofs_run_check_newest(struct ofs_run_members *m, struct optimfs_error *err)
{
	struct ofs_run_member newest = { .name = NULL };
	uint32_t at = 0;

	for (uint32_t i = 0; i < m->names.n; i++)
		if (ofs_run_is_shown(&m->v[i]) &&
		    (newest.name == NULL ||
			m->v[i].found.mtime_ns > newest.found.mtime_ns))
			newest = m->v[at = i];
	if (newest.name == NULL ||
	    ofs_now_ns() - newest.found.mtime_ns > WRITING_NS)
		return 0;
	newest.late = true;
	if (check_whole(m, &newest, err) == -1)
		return -1;
	store(m, at, &newest);
	return sort_steps(m, err);
}

bool ofs_run_member(struct ofs_run_members *m, uint32_t i,
    struct ofs_run_member *out)
{
	bool is;

	pthread_mutex_lock(&m->lock);
	is = i < m->names.n;
	if (is)
		*out = m->v[i];
	pthread_mutex_unlock(&m->lock);
	return is;
}

static uint32_t find_in_shelf(const struct ofs_run_members *m,
    const char *shelf, const char *name)
{
	char path[300];
	int n = snprintf(path, sizeof(path), "%s/%s", shelf, name);

	return n < (int)sizeof(path) ? ofs_keys_find(&m->names, path, (size_t)n)
				     : OFS_NONE;
}

uint32_t ofs_run_member_find(struct ofs_run_members *m, const char *name)
{
	uint32_t i;

	pthread_mutex_lock(&m->lock);
	i = ofs_keys_find(&m->names, name, strlen(name));
	for (unsigned k = 0; i == OFS_NONE && k < OFS_RUN_NSHELVES; k++)
		i = find_in_shelf(m, shelves[k], name);
	pthread_mutex_unlock(&m->lock);
	return i;
}

int ofs_run_shown(struct ofs_run_members *m, const char *name,
    struct ofs_run_member *out, struct optimfs_error *err)
{
	if (ofs_run_member(m, ofs_run_member_find(m, name), out) &&
	    ofs_run_is_shown(out))
		return 0;
	return optimfs_fail(err, ESTALE, "the checkpoint %s was removed", name);
}

/* The place in order of the first one with this step or a later one. */
static uint32_t place_from(const struct ofs_run_members *m, uint64_t step)
{
	uint32_t lo = 0, hi = m->norder;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (m->v[m->order[mid]].step < step)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

uint32_t ofs_run_member_from(struct ofs_run_members *m, uint64_t step)
{
	uint32_t at, found;

	pthread_mutex_lock(&m->lock);
	at = place_from(m, step);
	found = at < m->norder ? m->order[at] : OFS_NONE;
	pthread_mutex_unlock(&m->lock);
	return found;
}

uint32_t ofs_run_member_before(struct ofs_run_members *m, uint64_t step)
{
	uint32_t at, found;

	pthread_mutex_lock(&m->lock);
	at = place_from(m, step);
	found = at > 0 ? m->order[at - 1] : OFS_NONE;
	pthread_mutex_unlock(&m->lock);
	return found;
}

static bool has_roles(const struct ofs_run_members *m)
{
	struct ofs_names names;
	bool roles;

	if (ofs_dir_list(&m->dir, &names, NULL) == -1)
		return false;
	roles = ofs_detect_is_roles(&m->dir, &names);
	ofs_names_free(&names);
	return roles;
}

static bool has_steps(struct ofs_run_members *m)
{
	struct ofs_run_member v;
	uint64_t step = 0;
	bool one = false;

	for (uint32_t i = 0; ofs_run_member(m, i, &v); i++) {
		if (!v.told)
			continue;
		if (one && v.step != step)
			return true;
		step = v.step;
		one = true;
	}
	return false;
}

bool ofs_run_is_evident(struct ofs_run_members *m)
{
	return has_steps(m) || has_roles(m);
}

uint32_t ofs_run_member_last(struct ofs_run_members *m)
{
	uint32_t found;

	pthread_mutex_lock(&m->lock);
	found = m->norder > 0 ? m->order[m->norder - 1] : OFS_NONE;
	pthread_mutex_unlock(&m->lock);
	return found;
}
