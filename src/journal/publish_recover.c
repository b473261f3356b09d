/* publish_recover.c - recovery from an interrupted commit */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sys.h"
#include "journal/publish_impl.h"

int ofs_publish_forget(int stage, struct optimfs_error *err)
{
	return ofs_record_remove(stage, OFS_PUBLISH_RECORD, err);
}

void ofs_publish_sweep(int stage)
{
	ofs_publish_clear(stage, OFS_PUBLISH_NEW);
	ofs_publish_clear(stage, OFS_PUBLISH_GEN);
}

void ofs_publish_drop_finished(int stage)
{
	ofs_publish_clear(stage, OFS_PUBLISH_FINISHED);
}

/* Where is the new file? In new/ until it is put in place; there, an exchange
 * leaves the old one, or what another program has saved. */
enum place { IN_NEW, PUBLISHED, FOREIGN };

static enum place place_of(const struct ofs_publish *p,
    const struct ofs_publish_name *n)
{
	struct ofs_publish_stamp out = { 0 };

	if (p->new == -1 || ofs_publish_look(p->new, n->rel, &out) == -1 ||
	    out.ino == 0 || ofs_publish_same(&out, &n->was))
		return PUBLISHED;
	return ofs_publish_same(&out, &n->put) ? IN_NEW : FOREIGN;
}

/* The program was killed after an exchange, before it had looked at what came
 * out. If the new file is not in place either, both are of others. */
static int settle_foreign(struct ofs_publish *p, struct ofs_publish_name *n,
    struct optimfs_error *err)
{
	struct ofs_publish_stamp in;

	if (ofs_publish_look(p->dir, n->rel, &in) == 0 &&
	    ofs_publish_same(&in, &n->put))
		return ofs_publish_give_back(p, n, err);
	return ofs_publish_move_beside(p->new, n->rel, p->dir, n->rel) == 0
	    ? 0
	    : optimfs_fail(err, errno, "OFS809 %.200s: %m", n->rel);
}

/* 1: the files of new/ were put in place; 0: they were not. */
static int was_placed(struct ofs_publish *p, struct optimfs_error *err)
{
	bool placed = true;

	for (size_t i = 0; i < p->plan.n; i++) {
		struct ofs_publish_name *n = &p->plan.name[i];
		enum place place;

		if (!ofs_publish_is_new(n))
			continue;
		place = place_of(p, n);
		if (place == FOREIGN && n->kind == OFS_PUBLISH_REPLACE &&
		    settle_foreign(p, n, err) == -1)
			return -1;
		placed = placed && place == PUBLISHED;
	}
	return placed;
}

/* Repeats the last sync, which may not have happened. */
static int finish_placed(struct ofs_publish *p, struct optimfs_error *err)
{
	const struct ofs_publish_plan *plan = &p->plan;
	int ret = ofs_sys_fsync(p->dir);

	/* names in directories below it */
	for (size_t i = 0; i < plan->n && ret == 0; i++)
		if (ofs_publish_is_new(&plan->name[i]) &&
		    strchr(plan->name[i].rel, '/') != NULL)
			ret = ofs_publish_sync_dir(p->dir, plan->name[i].rel);
	if (ret == -1 && errno != ENOENT)
		return optimfs_fail(err, errno,
		    "OFS803 a published commit cannot be synced: %m");
	for (size_t i = 0; i < plan->n; i++)
		if (plan->name[i].kind == OFS_PUBLISH_REMOVE)
			(void)ofs_publish_drop(p, i, p->dir, &plan->name[i].was,
			    false);
	return 1;
}

static int recover_placed(struct ofs_publish *p, struct optimfs_error *err)
{
	int ret = was_placed(p, err);

	if (ret == 1)
		return finish_placed(p, err);
	if (ret == 0)
		ofs_publish_take_back(p);
	return ret;
}

static bool is_there(int at, const char *name, uint64_t *ino)
{
	struct ofs_publish_stamp s;

	if (ofs_publish_look(at, name, &s) == -1)
		s.ino = 0;
	*ino = s.ino;
	return s.ino != 0;
}

/* The new directory is in place. 1: published; 0: exchanged back. */
static int finish_swap(struct ofs_publish *p, struct optimfs_error *err)
{
	uint64_t ino;
	int ret = 0;

	if (ofs_publish_parent(p->source, p->dir, &p->parent, &p->base, err) ==
	    -1)
		return -1;
	if (is_there(p->stage, OFS_PUBLISH_GEN, &ino)) {
		ret = ofs_publish_exchanged(p, p->dir, err);
		if (ret == -1 && !p->stuck)
			return 0;
	} else {
		ret = ofs_publish_merge(p, p->dir, false, err);
	}
	if (ret != 0)
		return -1;
	if (ofs_sys_fsync(p->dir) == -1 || ofs_sys_fsync(p->parent) == -1)
		return optimfs_fail(err, errno,
		    "OFS803 a published commit cannot be synced: %m");
	return 1;
}

/* A directory in the stage that is not the one we made is somebody's: the new one
 * was moved away from its place. */
static int undo_swap(struct ofs_publish *p, struct optimfs_error *err)
{
	uint64_t ino;

	if ((is_there(p->stage, OFS_PUBLISH_GEN, &ino) && ino != p->plan.gen) ||
	    (is_there(p->stage, OFS_PUBLISH_OLD, &ino) && ino != p->plan.gen))
		return optimfs_fail(err, ESTALE,
		    "OFS809 %s was replaced by another directory during a "
		    "commit: the former one is gen or old in its stage; move "
		    "it out",
		    p->source);
	return ofs_publish_merge(p, p->dir, true, err);
}

static bool is_swapped(const struct ofs_publish *p)
{
	struct stat st;

	return fstat(p->dir, &st) == 0 && st.st_ino == p->plan.gen;
}

static int recover_swap(struct ofs_publish *p, struct optimfs_error *err)
{
	return is_swapped(p) ? finish_swap(p, err) : undo_swap(p, err);
}

static int open_publish(struct ofs_publish *p, const char *source, int dir,
    int stage, struct optimfs_error *err)
{
	int ret;

	*p = (struct ofs_publish){
		.source = source, .dir = dir, .stage = stage, .parent = -1
	};
	p->new = openat(stage, OFS_PUBLISH_NEW,
	    O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	ret = ofs_publish_read_record(stage, &p->plan, err);
	if (ret == 1 && ofs_publish_undrop(p, err) == -1)
		return -1;
	return ret;
}

static void end(struct ofs_publish *p)
{
	if (p->new != -1)
		close(p->new);
	if (p->parent != -1)
		close(p->parent);
	free(p->base);
	ofs_publish_plan_fini(&p->plan);
}

/* 1: published; 0: undone. */
static int recover_any(struct ofs_publish *p, struct optimfs_error *err)
{
	int ret = p->plan.swap ? recover_swap(p, err) : recover_placed(p, err);

	return ret == 0 ? ofs_publish_forget(p->stage, err) : ret;
}

int ofs_publish_recover(const char *source, int dir, int stage,
    struct optimfs_error *err)
{
	struct ofs_publish p;
	int ret = open_publish(&p, source, dir, stage, err);

	if (ret == 1 && p.plan.id[0] != '\0')
		ret = optimfs_fail(err, EBUSY,
		    "OFS840 %s: a commit by several ranks was interrupted "
		    "here; mount it for writing as before, with mpirun, to "
		    "finish or undo it",
		    source);
	else if (ret == 1)
		ret = recover_any(&p, err);
	else if (ret == 0) /* a torn record means that nothing was done */
		ret = ofs_publish_forget(stage, err);
	if (ret != -1)
		ofs_publish_sweep(stage);
	if (ret == 1)
		ofs_publish_drop_finished(stage);
	end(&p);
	return ret;
}

/* Makes the remaining renames. */
static int place_rest(struct ofs_publish *p, struct optimfs_error *err)
{
	if (was_placed(p, err) == -1)
		return -1;
	for (size_t i = 0; i < p->plan.n; i++) {
		struct ofs_publish_name *n = &p->plan.name[i];

		if (ofs_publish_is_new(n) && place_of(p, n) != IN_NEW)
			n->kind = OFS_PUBLISH_DONE;
	}
	return ofs_publish_place(p, err) == 0 ? 0 : -1;
}

static int swap_rest(struct ofs_publish *p, struct optimfs_error *err)
{
	if (is_swapped(p))
		return finish_swap(p, err) == 1 ? 0 : -1;
	if (ofs_publish_parent(p->source, p->dir, &p->parent, &p->base, err) ==
	    -1)
		return -1;
	return ofs_publish_exchange(p, err) == 0 ? 0 : -1;
}

/* Of a commit to several directories. */
static int settle_any(struct ofs_publish *p, const char *id,
    struct optimfs_error *err)
{
	if (strcmp(p->plan.id, id) == 0 && id[0] != '\0')
		return (p->plan.swap ? swap_rest(p, err)
				     : place_rest(p, err)) == -1
		    ? -1
		    : 1;
	if (p->plan.swap && undo_swap(p, err) == -1)
		return -1;
	ofs_publish_take_back(p);
	return ofs_publish_forget(p->stage, err);
}

int ofs_publish_settle(const char *source, int dir, int stage, const char *id,
    struct optimfs_error *err)
{
	struct ofs_publish p;
	int ret = open_publish(&p, source, dir, stage, err);

	if (ret == 1 && p.plan.id[0] == '\0')
		/* its journal is not known here */
		ret = optimfs_fail(err, EBUSY,
		    "OFS843 %s: a commit to this directory alone was "
		    "interrupted; mount it alone for writing, once, to finish "
		    "it",
		    source);
	else if (ret == 1)
		ret = settle_any(&p, id, err);
	else if (ret == 0)
		ret = ofs_publish_forget(stage, err);
	if (ret != -1)
		ofs_publish_sweep(stage);
	end(&p);
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
