/* publish_recover.c - recovery from an interrupted commit */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sys.h"
#include "journal/publish_impl.h"

/* Was the file moved from new/ to its name? */
static bool is_in_place(int dir, const struct ofs_publish_name *n)
{
	struct stat st;

	return fstatat(dir, n->rel, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    st.st_ino == n->ino;
}

void ofs_publish_take_back(int dir, const struct ofs_publish_plan *plan)
{
	for (size_t i = 0; i < plan->n; i++) {
		const struct ofs_publish_name *n = &plan->name[i];

		if (n->kind == OFS_PUBLISH_CREATE && is_in_place(dir, n))
			unlinkat(dir, n->rel, 0);
	}
}

int ofs_publish_forget(int stage, struct optimfs_error *err)
{
	return ofs_record_remove(stage, OFS_PUBLISH_RECORD, err);
}

/* Was the commit published? The inode number of the renamed file shows it. */
static bool was_published(int dir, const struct ofs_publish_plan *plan)
{
	struct stat st;

	if (plan->swap)
		return fstat(dir, &st) == 0 && st.st_ino == plan->gen;
	for (size_t i = 0; i < plan->n; i++)
		if (plan->name[i].kind == OFS_PUBLISH_REPLACE)
			return is_in_place(dir, &plan->name[i]);
	for (size_t i = 0; i < plan->n; i++)
		if (plan->name[i].kind == OFS_PUBLISH_CREATE &&
		    !is_in_place(dir, &plan->name[i]))
			return false;
	return true;
}

/* Repeats the last sync, which may not have happened. */
static int finish(const char *source, int dir,
    const struct ofs_publish_plan *plan, struct optimfs_error *err)
{
	char *base = NULL;
	int parent = -1, ret;

	ret = ofs_sys_fsync(dir);
	/* names in directories below it */
	for (size_t i = 0; i < plan->n && ret == 0 && !plan->swap; i++)
		if (plan->name[i].kind != OFS_PUBLISH_REMOVE &&
		    strchr(plan->name[i].rel, '/') != NULL)
			ret = ofs_publish_sync_dir(dir, plan->name[i].rel);
	if (ret == 0 && plan->swap) {
		if (ofs_publish_parent(source, dir, &parent, &base, err) == -1)
			return -1;
		ret = ofs_sys_fsync(parent);
		close(parent);
		free(base);
	}
	if (ret == -1)
		return optimfs_fail(err, errno,
		    "OFS803 a published commit cannot be synced: %m");
	for (size_t i = 0; i < plan->n; i++)
		if (plan->name[i].kind == OFS_PUBLISH_REMOVE && !plan->swap)
			unlinkat(dir, plan->name[i].rel, 0);
	return 1;
}

void ofs_publish_sweep(int stage)
{
	ofs_publish_clear(stage, OFS_PUBLISH_NEW);
	ofs_publish_clear(stage, OFS_PUBLISH_GEN);
}

int ofs_publish_recover(const char *source, int dir, int stage,
    struct optimfs_error *err)
{
	struct ofs_publish_plan plan = { 0 };
	int ret = ofs_publish_read_record(stage, &plan, err);

	if (ret == 1 && plan.id[0] != '\0') {
		ret = optimfs_fail(err, EBUSY,
		    "OFS840 %s: a commit by several ranks was interrupted "
		    "here; mount it for writing as before, with mpirun, to "
		    "finish or undo it",
		    source);
	} else if (ret == 1 && was_published(dir, &plan)) {
		ret = finish(source, dir, &plan, err);
	} else if (ret == 1) {
		ofs_publish_take_back(dir, &plan);
		ret = ofs_publish_forget(stage, err);
	}
	if (ret != -1)
		ofs_publish_sweep(stage);
	ofs_publish_plan_fini(&plan);
	return ret;
}

/* Makes the remaining renames. */
static int move_rest(struct ofs_publish *p, struct optimfs_error *err)
{
	struct stat st;

	for (size_t i = 0; i < p->plan.n; i++) {
		struct ofs_publish_name *n = &p->plan.name[i];

		if (n->kind != OFS_PUBLISH_REMOVE &&
		    fstatat(p->new, n->rel, &st, AT_SYMLINK_NOFOLLOW) == -1 &&
		    fstatat(p->dir, n->rel, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    st.st_ino == n->ino)
			n->kind = OFS_PUBLISH_DONE;
	}
	return ofs_publish_apply(p, err) == 0 ? 0 : -1;
}

static int swap_rest(struct ofs_publish *p, struct optimfs_error *err)
{
	struct stat st;

	if (ofs_publish_parent(p->source, p->dir, &p->parent, &p->base, err) ==
	    -1)
		return -1;
	if (fstat(p->dir, &st) == 0 && st.st_ino == p->plan.gen)
		return ofs_sys_fsync(p->parent) == 0
		    ? 0
		    : optimfs_fail(err, errno, "OFS803 %s: %m", p->source);
	return ofs_publish_exchange(p, err) == 0 ? 0 : -1;
}

int ofs_publish_settle(const char *source, int dir, int stage, const char *id,
    struct optimfs_error *err)
{
	struct ofs_publish p = {
		.source = source, .dir = dir, .stage = stage, .parent = -1
	};
	int ret = ofs_publish_read_record(stage, &p.plan, err);

	p.new = -1;
	if (ret == 1 && p.plan.id[0] == '\0') {
		/* its journal is not known here */
		ret = optimfs_fail(err, EBUSY,
		    "OFS843 %s: a commit to this directory alone was "
		    "interrupted; mount it alone for writing, once, to finish "
		    "it",
		    source);
	} else if (ret == 1 && strcmp(p.plan.id, id) == 0 && id[0] != '\0') {
		p.new = ofs_publish_dir(stage, OFS_PUBLISH_NEW, err);
		ret = p.new == -1 ? -1
		    : p.plan.swap ? swap_rest(&p, err)
				  : move_rest(&p, err);
		ret = ret == -1 ? -1 : 1;
	} else if (ret != -1) {
		/* a torn record means that nothing was done */
		ofs_publish_take_back(dir, &p.plan);
		ret = ofs_publish_forget(stage, err);
	}
	if (ret != -1)
		ofs_publish_sweep(stage);
	if (p.new != -1)
		close(p.new);
	if (p.parent != -1)
		close(p.parent);
	free(p.base);
	ofs_publish_plan_fini(&p.plan);
	return ret;
}

int ofs_publish_pending(int stage, char id[OFS_PUBLISH_ID],
    struct optimfs_error *err)
{
	struct ofs_publish_plan plan = { 0 };
	int ret = ofs_publish_read_record(stage, &plan, err);

	memcpy(id, ret == 1 ? plan.id : "", ret == 1 ? OFS_PUBLISH_ID : 1);
	ofs_publish_plan_fini(&plan);
	return ret == -1 ? -1 : 0;
}
