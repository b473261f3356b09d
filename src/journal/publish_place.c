/* publish_place.c - put new files in place, one after the other */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "base/sys.h"
#include "journal/publish_impl.h"

/* Files with new names come first, and take no name that exists. Then one file,
 * the index, takes the place of the old one by RENAME_EXCHANGE: the old one
 * comes out in new/, where it is compared with what was there when the commit
 * began. If another program has saved its own meanwhile, that gets its place
 * back, and the commit is refused. On file systems that cannot exchange, the
 * comparison is made right before a rename: what is saved in the instant between
 * the two is lost. */

static int fail(const struct ofs_publish_name *n, struct optimfs_error *err)
{
	return optimfs_fail(err, errno,
	    "OFS802 %.200s cannot be put in place: %m", n->rel);
}

static int changed(const struct ofs_publish_name *n, const char *how,
    struct optimfs_error *err)
{
	return optimfs_fail(err, ESTALE,
	    "OFS805 %.200s was %s by another program during the commit: "
	    "nothing was changed; mount it again",
	    n->rel, how);
}

void ofs_publish_take_back(const struct ofs_publish *p)
{
	for (size_t i = 0; i < p->plan.n; i++)
		if (p->plan.name[i].kind == OFS_PUBLISH_CREATE)
			(void)ofs_publish_drop(p, i, p->dir,
			    &p->plan.name[i].put, false);
}

static bool is_created(const struct ofs_publish_name *n)
{
	return n->kind == OFS_PUBLISH_CREATE;
}

/* Nothing refers to the new names yet. */
static int move_created(struct ofs_publish *p, struct optimfs_error *err)
{
	p->moved = true;
	for (size_t i = 0; i < p->plan.n; i++) {
		const struct ofs_publish_name *n = &p->plan.name[i];

		if (!is_created(n))
			continue;
		if (ofs_publish_parents(p->dir, n->rel, p->dir, err) == -1)
			return -1;
		if (ofs_publish_move(p->new, n->rel, p->dir, n->rel) == -1)
			return errno == EEXIST ? changed(n, "made", err)
					       : fail(n, err);
		if (!ofs_publish_goes_on(&p->plan, i, is_created) &&
		    ofs_publish_sync_dir(p->dir, n->rel) == -1)
			return fail(n, err);
	}
	return 0;
}

static bool is_ours(const struct ofs_publish *p,
    const struct ofs_publish_name *n)
{
	struct ofs_publish_stamp out;

	return ofs_publish_look(p->new, n->rel, &out) == 0 &&
	    ofs_publish_same(&out, &n->put) &&
	    !ofs_publish_written(p->new, n->rel);
}

static int exchange(const struct ofs_publish *p,
    const struct ofs_publish_name *n)
{
	return ofs_sys_rename(p->new, n->rel, p->dir, n->rel, RENAME_EXCHANGE);
}

/* What comes out is ours, unless the other program has saved once more: then
 * that is newer than what went in, and goes in itself. */
int ofs_publish_give_back(struct ofs_publish *p, struct ofs_publish_name *n,
    struct optimfs_error *err)
{
	struct ofs_publish_stamp in, out;

	for (int tries = 0; tries < 100; tries++) {
		if (exchange(p, n) == -1)
			return fail(n, err);
		if (is_ours(p, n))
			return 0;
		if (ofs_publish_look(p->dir, n->rel, &in) == -1 ||
		    exchange(p, n) == -1 ||
		    ofs_publish_look(p->new, n->rel, &out) == -1)
			return fail(n, err);
		if (ofs_publish_same(&in, &out) &&
		    !ofs_publish_written(p->new, n->rel))
			return 0;
	}
	errno = EBUSY;
	return fail(n, err);
}

/* A commit to several directories is decided by now: there, the file of the
 * other program counts as saved after it. */
static int refuse(struct ofs_publish *p, struct ofs_publish_name *n,
    struct optimfs_error *err)
{
	p->stuck = ofs_publish_give_back(p, n, err) == -1 ||
	    ofs_publish_sync_dir(p->dir, n->rel) == -1;
	if (!p->stuck)
		return p->plan.id[0] != '\0' ? 0 : changed(n, "changed", err);
	optimfs_fail(err, EIO,
	    "OFS803 %.200s was changed by another program during the commit, "
	    "and what it saved is in the stage: mount the checkpoint again for "
	    "writing",
	    n->rel);
	return 1;
}

/* Without an exchange there is nothing to look at afterwards. */
static int rename_over(struct ofs_publish *p, struct ofs_publish_name *n,
    struct optimfs_error *err)
{
	struct ofs_publish_stamp now;

	if (ofs_publish_look(p->dir, n->rel, &now) == -1)
		return fail(n, err);
	if (!ofs_publish_untouched(&now, &n->was))
		return changed(n, "changed", err);
	return ofs_sys_rename(p->new, n->rel, p->dir, n->rel, 0) == -1
	    ? fail(n, err)
	    : 0;
}

/* The rename that publishes. */
static int replace(struct ofs_publish *p, struct ofs_publish_name *n,
    struct optimfs_error *err)
{
	struct ofs_publish_stamp out;

	if (n->was.ino == 0)
		return ofs_publish_move(p->new, n->rel, p->dir, n->rel) == 0
		    ? 0
		    : fail(n, err);
	if (exchange(p, n) == -1) {
		if (errno == ENOENT)
			return changed(n, "removed", err);
		return errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP
		    ? rename_over(p, n, err)
		    : fail(n, err);
	}
	if (ofs_publish_look(p->new, n->rel, &out) == 0 &&
	    ofs_publish_same(&out, &n->was) &&
	    !ofs_publish_written(p->new, n->rel))
		return 0;
	return refuse(p, n, err);
}

static int move_replaced(struct ofs_publish *p, struct optimfs_error *err)
{
	for (size_t i = 0; i < p->plan.n; i++) {
		struct ofs_publish_name *n = &p->plan.name[i];
		int ret;

		if (n->kind != OFS_PUBLISH_REPLACE)
			continue;
		ret = replace(p, n, err);
		p->published = ret != -1;
		if (ret != 0)
			return ret;
		if (ofs_publish_sync_dir(p->dir, n->rel) == -1) {
			optimfs_fail(err, EIO,
			    "OFS803 published, but not known to survive a power "
			    "failure: %.200s: %m",
			    n->rel);
			return 1;
		}
	}
	p->published = true;
	return 0;
}

/* Everything is durable: removes the old files. Errors are ignored: the commit
 * has succeeded. */
static void remove_old(struct ofs_publish *p)
{
	bool any = false;

	for (size_t i = 0; i < p->plan.n; i++)
		if (p->plan.name[i].kind == OFS_PUBLISH_REMOVE) {
			(void)ofs_publish_drop(p, i, p->dir,
			    &p->plan.name[i].was, false);
			any = true;
		}
	if (any)
		ofs_sys_fsync(p->dir);
}

int ofs_publish_place(struct ofs_publish *p, struct optimfs_error *err)
{
	int ret;

	if (move_created(p, err) == -1)
		return -1;
	ret = move_replaced(p, err);
	if (ret == 0)
		remove_old(p);
	return ret;
}
