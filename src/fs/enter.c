/* enter.c - how calls enter and leave the current snapshot */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fs/enter.h"

#include <errno.h>

#include "fs/fs.h"

void ofs_entrance_init(struct ofs_entrance *e)
{
	*e = (struct ofs_entrance){ 0 };
	pthread_mutex_init(&e->lock, NULL);
	pthread_cond_init(&e->changed, NULL);
}

void ofs_entrance_fini(struct ofs_entrance *e)
{
	pthread_cond_destroy(&e->changed);
	pthread_mutex_destroy(&e->lock);
}

struct ofs_snapshot *ofs_enter(struct optimfs *fs)
{
	struct ofs_snapshot *snap;

	if (!fs->changes)
		return fs->now;
	pthread_mutex_lock(&fs->entrance.lock);
	snap = ofs_snapshot_ref(fs->now);
	pthread_mutex_unlock(&fs->entrance.lock);
	return snap;
}

void ofs_leave(struct ofs_snapshot *snap)
{
	if (snap->fs->changes)
		ofs_snapshot_unref(snap);
}

bool ofs_leave_again(struct ofs_snapshot *snap, bool failed)
{
	struct optimfs *fs = snap->fs;
	struct ofs_entrance *e = &fs->entrance;
	bool again = false;

	if (failed && fs->changes) {
		pthread_mutex_lock(&e->lock);
		while (e->replacing && fs->now == snap)
			pthread_cond_wait(&e->changed, &e->lock);
		again = fs->now != snap;
		pthread_mutex_unlock(&e->lock);
	}
	ofs_leave(snap);
	return again;
}

struct ofs_snapshot *ofs_enter_write(struct optimfs *fs)
{
	struct ofs_entrance *e = &fs->entrance;
	struct ofs_snapshot *snap;

	if (!fs->changes)
		return fs->now;
	pthread_mutex_lock(&e->lock);
	while (e->held)
		pthread_cond_wait(&e->changed, &e->lock);
	e->writers++;
	snap = ofs_snapshot_ref(fs->now);
	pthread_mutex_unlock(&e->lock);
	return snap;
}

void ofs_leave_write(struct ofs_snapshot *snap)
{
	struct ofs_entrance *e = &snap->fs->entrance;

	if (snap->fs->changes) {
		pthread_mutex_lock(&e->lock);
		if (--e->writers == 0 && e->held)
			pthread_cond_broadcast(&e->changed);
		pthread_mutex_unlock(&e->lock);
	}
	ofs_leave(snap);
}

int ofs_hold_writers(struct optimfs *fs, bool commits,
    struct optimfs_error *err)
{
	struct ofs_entrance *e = &fs->entrance;
	bool busy;

	pthread_mutex_lock(&e->lock);
	while (e->held && !e->commits)
		pthread_cond_wait(&e->changed, &e->lock);
	busy = e->held;
	if (!busy) {
		e->held = true;
		e->commits = commits;
		while (e->writers > 0)
			pthread_cond_wait(&e->changed, &e->lock);
	}
	pthread_mutex_unlock(&e->lock);
	return busy
	    ? optimfs_fail(err, EBUSY, "OFS815 a commit is already in progress")
	    : 0;
}

void ofs_let_writers(struct optimfs *fs)
{
	struct ofs_entrance *e = &fs->entrance;

	pthread_mutex_lock(&e->lock);
	e->held = e->commits = false;
	pthread_cond_broadcast(&e->changed);
	pthread_mutex_unlock(&e->lock);
}

void ofs_set_replacing(struct optimfs *fs, bool replacing)
{
	struct ofs_entrance *e = &fs->entrance;

	pthread_mutex_lock(&e->lock);
	e->replacing = replacing;
	pthread_cond_broadcast(&e->changed);
	pthread_mutex_unlock(&e->lock);
}

void ofs_install(struct optimfs *fs, struct ofs_snapshot *snap)
{
	struct ofs_entrance *e = &fs->entrance;
	struct ofs_snapshot *old;

	pthread_mutex_lock(&e->lock);
	old = fs->now;
	fs->now = snap;
	e->replacing = false;
	pthread_cond_broadcast(&e->changed);
	pthread_mutex_unlock(&e->lock);
	ofs_snapshot_unref(old);
}

bool ofs_is_passing(const struct ofs_snapshot *snap)
{
	struct ofs_entrance *e = &snap->fs->entrance;
	bool passing;

	if (!snap->fs->changes)
		return false;
	pthread_mutex_lock(&e->lock);
	passing = e->replacing || snap->fs->now != snap;
	pthread_mutex_unlock(&e->lock);
	return passing;
}
