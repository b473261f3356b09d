/* publish_merge.c - bring over what others saved during an exchange */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/keys.h"
#include "base/memory.h"
#include "base/sys.h"
#include "journal/publish_impl.h"

/* A directory takes some time to build, and until it is exchanged other programs
 * see the old one, and save into it. Some have it open, and go on after the
 * exchange. So there are two directories, "out" in the stage, and "in", which is
 * the checkpoint now; and the plan says for each name which file out and in had
 * when nobody had touched them (base). For each name in out:
 *
 *   in has the same file, or out has its base   nothing to do; it can go
 *   in has a base, or nothing                   what is in out is newer: it
 *                                               moves
 *   otherwise                                   both are new: out's moves, too,
 *                                               under a name beside the other
 *
 * and a name that out has lost is taken from in, if that has its base. It is the
 * same in both directions: after an exchange that is taken back, in is the old
 * directory.
 *
 * First all that is done and synced; then out is called "old", so that a later
 * recovery knows that what is missing there is not missed. Only then is what can
 * go removed, file by file, and with a look at each (publish_look.c). Whatever
 * appears in between moves over, too, until the empty directory is removed. */

#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)
#define PASSES    1000

struct merge {
	const struct ofs_publish *p;
	int out, in;
	bool back, drop;
	struct ofs_keys keys; /* names of the plan */
	uint32_t *at;         /* their last index in the plan */
	struct ofs_names dirs;
	struct optimfs_error *err;
};

static int fail(const struct merge *m, const char *rel)
{
	return optimfs_fail(m->err, errno,
	    "OFS809 %.200s, which another program saved during the commit, "
	    "cannot be moved: %m",
	    rel);
}

static const struct ofs_publish_name *known(const struct merge *m,
    const char *rel, size_t *i)
{
	uint32_t k = ofs_keys_find(&m->keys, rel, strlen(rel));

	if (k == OFS_NONE)
		return NULL;
	*i = m->at[k];
	return &m->p->plan.name[*i];
}

static const struct ofs_publish_stamp *base(const struct ofs_publish_name *n,
    bool old)
{
	return old ? &n->was : &n->put;
}

/* Do both directories have the same file? Then it does not matter who writes to
 * it. */
static bool is_linked(const struct ofs_publish_name *n)
{
	return n != NULL && n->was.ino == n->put.ino;
}

/* Is it one of the two files that we know, as nobody has touched it? */
static bool is_untouched(const struct ofs_publish_name *n,
    const struct ofs_publish_stamp *s)
{
	return n != NULL &&
	    (ofs_publish_same(s, &n->was) || ofs_publish_same(s, &n->put));
}

/* Or what is in the other directory, too? Both may go. */
static bool is_base(const struct ofs_publish_name *n,
    const struct ofs_publish_stamp *s)
{
	return is_linked(n) ? s->ino == n->was.ino : is_untouched(n, s);
}

/* The original of a copy comes back: others may have it open. */
static bool is_copied(const struct merge *m, const struct ofs_publish_name *n,
    const struct ofs_publish_stamp *s)
{
	return n != NULL && n->kind == OFS_PUBLISH_KEEP && !m->back &&
	    n->was.ino != n->put.ino && s->ino == n->was.ino;
}

static int synced(struct merge *m, const char *rel, int ret)
{
	if (ret == -1 && errno == ENOENT)
		return 0; /* its owner was quicker */
	return ret == -1 || ofs_publish_sync_dir(m->in, rel) == -1
	    ? fail(m, rel)
	    : 0;
}

static int both(struct merge *m, const char *rel)
{
	return synced(m, rel, ofs_publish_move_beside(m->out, rel, m->in, rel));
}

/* Moves a file to in, which has its base or nothing there. */
static int bring(struct merge *m, const char *rel,
    const struct ofs_publish_name *n, const struct ofs_publish_stamp *there)
{
	struct ofs_publish_stamp came;

	if (there->ino == 0) {
		if (ofs_publish_parents(m->in, rel, m->in, m->err) == -1)
			return -1;
		if (ofs_publish_move(m->out, rel, m->in, rel) == 0)
			return synced(m, rel, 0);
		return errno == EEXIST ? both(m, rel) : synced(m, rel, -1);
	}
	if (!is_untouched(n, there))
		return both(m, rel);
	if (ofs_sys_rename(m->out, rel, m->in, rel, RENAME_EXCHANGE) == -1)
		return synced(m, rel, -1);
	if (ofs_publish_look(m->out, rel, &came) == -1)
		return fail(m, rel);
	if (ofs_publish_same(&came, there))
		return synced(m, rel, 0);
	if (ofs_sys_rename(m->out, rel, m->in, rel, RENAME_EXCHANGE) == -1 ||
	    ofs_publish_look(m->out, rel, &came) == -1)
		return fail(m, rel);
	return is_untouched(n, &came) ? 0 : both(m, rel);
}

static int drop(struct merge *m, const char *rel,
    const struct ofs_publish_name *n, size_t i,
    const struct ofs_publish_stamp *is, bool linked)
{
	int ret;

	if (!m->drop)
		return 0;
	/* not of the plan: the other name of the same file stays */
	ret = n == NULL ? ofs_sys_unlink(m->out, rel)
			: ofs_publish_drop(m->p, i, m->out, is, linked);
	return ret == -1 ? fail(m, rel) : 0;
}

static int visit_file(struct merge *m, const char *rel, const struct stat *st)
{
	struct ofs_publish_stamp is = ofs_publish_stamp_of(st), there;
	size_t i = 0;
	const struct ofs_publish_name *n = known(m, rel, &i);

	if (ofs_publish_look(m->in, rel, &there) == -1)
		return fail(m, rel);
	if (there.ino == is.ino)
		return drop(m, rel, n, i, &is, true);
	if (is_base(n, &is) &&
	    !(is_copied(m, n, &is) && ofs_publish_same(&there, &n->put)))
		return drop(m, rel, n, i, &is, is_linked(n));
	return bring(m, rel, n, &there);
}

/* Is it a directory of the plan, or one that was made for its files? */
static bool is_own_dir(const struct merge *m, const char *rel)
{
	const struct ofs_publish_plan *plan = &m->p->plan;
	size_t n = strlen(rel), i;

	if (known(m, rel, &i) != NULL)
		return true;
	for (i = 0; i < plan->n; i++)
		if (strncmp(plan->name[i].rel, rel, n) == 0 &&
		    plan->name[i].rel[n] == '/')
			return true;
	return false;
}

/* Directories that both have are merged. */
static int visit_dir(struct merge *m, const char *rel)
{
	struct stat st;

	if (fstatat(m->in, rel, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		if (!S_ISDIR(st.st_mode))
			return both(m, rel);
	} else if (errno != ENOENT && errno != ENOTDIR) {
		return fail(m, rel);
	} else if (!is_own_dir(m, rel)) {
		if (ofs_publish_move(m->out, rel, m->in, rel) == 0)
			return synced(m, rel, 0);
		if (errno != EEXIST)
			return synced(m, rel, -1);
	}
	return ofs_names_add(&m->dirs, rel, strlen(rel), m->err);
}

static int visit(struct merge *m, const char *rel)
{
	struct stat st;

	if (fstatat(m->out, rel, &st, AT_SYMLINK_NOFOLLOW) == -1)
		return errno == ENOENT ? 0 : fail(m, rel);
	return S_ISDIR(st.st_mode) ? visit_dir(m, rel)
				   : visit_file(m, rel, &st);
}

static int visit_all(struct merge *m, const char *rel)
{
	struct ofs_dir dir = { .path = (char *)rel };
	struct ofs_names names = { 0 };
	int ret = 0;

	dir.fd = openat(m->out, *rel == '\0' ? "." : rel, DIR_FLAGS);
	if (dir.fd == -1)
		return errno == ENOENT ? 0 : fail(m, rel);
	ret = ofs_dir_list(&dir, &names, m->err);
	close(dir.fd);
	for (size_t i = 0; i < names.n && ret == 0; i++) {
		char *path = ofs_path_join(rel, names.name[i]);

		ret = path == NULL ? ofs_no_memory(m->err) : visit(m, path);
		free(path);
	}
	ofs_names_free(&names);
	return ret;
}

static int walk(struct merge *m)
{
	if (ofs_names_add(&m->dirs, "", 0, m->err) == -1)
		return -1;
	for (size_t i = 0; i < m->dirs.n; i++)
		if (visit_all(m, m->dirs.name[i]) == -1)
			return -1;
	return 0;
}

/* Removes from in what another program has removed from out. Directories come
 * after what was in them. */
static int lose(struct merge *m)
{
	const struct ofs_publish_plan *plan = &m->p->plan;
	struct ofs_publish_stamp is;
	int ret = 0;

	for (size_t i = plan->n; i-- > 0 && ret == 0;) {
		const struct ofs_publish_name *n = &plan->name[i];
		const struct ofs_publish_stamp *in = base(n, m->back);

		if (base(n, !m->back)->ino == 0 || in->ino == 0 ||
		    (!m->back && n->kind < OFS_PUBLISH_KEEP))
			continue;
		if (ofs_publish_look(m->out, n->rel, &is) == -1)
			return fail(m, n->rel);
		if (is.ino != 0)
			continue;
		if (n->kind == OFS_PUBLISH_KEEP_DIR)
			(void)ofs_sys_rmdir(m->in, n->rel);
		else
			ret =
			    ofs_publish_drop(m->p, i, m->in, in, is_linked(n));
		if (ret == 0 && ofs_publish_sync_dir(m->in, n->rel) == -1 &&
		    errno != ENOENT)
			ret = -1;
		if (ret == -1)
			return fail(m, n->rel);
	}
	return 0;
}

static int begin_merge(struct merge *m)
{
	const struct ofs_publish_plan *plan = &m->p->plan;

	m->at = calloc(plan->n + 1, sizeof(*m->at));
	if (m->at == NULL)
		return ofs_no_memory(m->err);
	for (size_t i = 0; i < plan->n; i++) {
		struct ofs_str rel = { plan->name[i].rel,
			strlen(plan->name[i].rel) };
		uint32_t k = ofs_keys_add(&m->keys, rel, m->err);

		if (k == OFS_NONE)
			return -1;
		m->at[k] = (uint32_t)i;
	}
	return 0;
}

static void end(struct merge *m)
{
	if (m->out != -1)
		close(m->out);
	ofs_keys_fini(&m->keys);
	ofs_names_free(&m->dirs);
	free(m->at);
}

static int bring_over(struct merge *m)
{
	int ret = walk(m) == 0 ? lose(m) : -1;

	ofs_names_free(&m->dirs);
	if (ret == 0 &&
	    ((m->p->parent != -1 && ofs_sys_fsync(m->p->parent) == -1) ||
		ofs_sys_fsync(m->p->stage) == -1 ||
		ofs_sys_rename(m->p->stage, OFS_PUBLISH_GEN, m->p->stage,
		    OFS_PUBLISH_OLD, 0) == -1 ||
		ofs_sys_fsync(m->p->stage) == -1))
		ret = optimfs_fail(m->err, errno, "OFS809 %s/: %m",
		    OFS_PUBLISH_OLD);
	return ret;
}

/* 1: it is gone. 0: another file has appeared in it. */
static int remove_out(struct merge *m)
{
	int ret;

	m->drop = true;
	if (walk(m) == -1)
		return -1;
	for (size_t i = m->dirs.n; i-- > 1;)
		(void)ofs_sys_rmdir(m->out, m->dirs.name[i]);
	ofs_names_free(&m->dirs);
	ret = ofs_sys_rmdir(m->p->stage, OFS_PUBLISH_OLD);
	if (ret == 0)
		return 1;
	return errno == ENOTEMPTY || errno == EEXIST
	    ? 0
	    : optimfs_fail(m->err, errno, "OFS809 %s/: %m", OFS_PUBLISH_OLD);
}

int ofs_publish_merge(const struct ofs_publish *p, int in, bool back,
    struct optimfs_error *err)
{
	struct merge m = { .p = p, .in = in, .back = back, .err = err };
	bool looked = false;
	int ret = begin_merge(&m);

	m.out = openat(p->stage, OFS_PUBLISH_GEN, DIR_FLAGS);
	if (m.out == -1) {
		looked = true;
		m.out = openat(p->stage, OFS_PUBLISH_OLD, DIR_FLAGS);
	}
	if (ret == 0 && m.out != -1) {
		ret = looked ? 0 : bring_over(&m);
		for (int i = 0; i < PASSES && ret == 0; i++)
			ret = remove_out(&m);
		if (ret == 0)
			ret = optimfs_fail(err, EBUSY,
			    "OFS809 %s/: another program saves there",
			    OFS_PUBLISH_OLD);
	}
	end(&m);
	return ret == -1 ? -1 : 0;
}
