/* gate.c - who is inside a file system that may become another one */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fs/gate.h"

#include <errno.h>

#include "fs/fs.h"

/* Where this thread is inside, and how often it has entered. */
static _Thread_local struct {
	struct optimfs *fs;
	unsigned depth;
	bool writes;
} me;

void ofs_gate_init(struct ofs_gate *g)
{
	*g = (struct ofs_gate){ 0 };
	pthread_mutex_init(&g->lock, NULL);
	pthread_cond_init(&g->changed, NULL);
}

void ofs_gate_fini(struct ofs_gate *g)
{
	pthread_cond_destroy(&g->changed);
	pthread_mutex_destroy(&g->lock);
}

static void enter(struct optimfs *fs, bool writes)
{
	struct ofs_gate *g = &fs->gate;

	if (!ofs_fs_changes(fs))
		return;
	if (me.fs == fs) {
		me.depth++;
		return;
	}
	pthread_mutex_lock(&g->lock);
	while (g->closed || (writes && g->held))
		pthread_cond_wait(&g->changed, &g->lock);
	g->readers++;
	g->writers += writes;
	pthread_mutex_unlock(&g->lock);
	me.fs = fs;
	me.depth = 1;
	me.writes = writes;
}

struct ofs_snapshot *ofs_enter(struct optimfs *fs)
{
	enter(fs, false);
	return fs->now;
}

struct ofs_snapshot *ofs_enter_write(struct optimfs *fs)
{
	enter(fs, true);
	return fs->now;
}

void ofs_leave(struct ofs_snapshot *snap)
{
	struct optimfs *fs = snap->fs;
	struct ofs_gate *g = &fs->gate;

	if (!ofs_fs_changes(fs) || --me.depth > 0)
		return;
	me.fs = NULL;
	pthread_mutex_lock(&g->lock);
	g->readers--;
	g->writers -= me.writes;
	if (g->held || g->closed)
		pthread_cond_broadcast(&g->changed);
	pthread_mutex_unlock(&g->lock);
}

int ofs_gate_hold(struct optimfs *fs, bool commits, struct optimfs_error *err)
{
	struct ofs_gate *g = &fs->gate;
	int ret = 0;

	pthread_mutex_lock(&g->lock);
	while (g->held && !g->commits)
		pthread_cond_wait(&g->changed, &g->lock);
	if (g->held) {
		ret = optimfs_fail(err, EBUSY,
		    "OFS815 a commit is under way already");
	} else {
		g->held = true;
		g->commits = commits;
	}
	while (ret == 0 && g->writers > 0)
		pthread_cond_wait(&g->changed, &g->lock);
	pthread_mutex_unlock(&g->lock);
	return ret;
}

void ofs_gate_let(struct optimfs *fs)
{
	struct ofs_gate *g = &fs->gate;

	pthread_mutex_lock(&g->lock);
	g->held = g->commits = false;
	pthread_cond_broadcast(&g->changed);
	pthread_mutex_unlock(&g->lock);
}

bool ofs_gate_close(struct optimfs *fs)
{
	struct ofs_gate *g = &fs->gate;

	if (me.fs == fs)
		return false;
	pthread_mutex_lock(&g->lock);
	g->closed = true;
	while (g->readers > 0)
		pthread_cond_wait(&g->changed, &g->lock);
	pthread_mutex_unlock(&g->lock);
	me.fs = fs; /* who closes it is inside, alone */
	me.depth = 1;
	return true;
}

void ofs_gate_open(struct optimfs *fs)
{
	struct ofs_gate *g = &fs->gate;

	me.fs = NULL;
	pthread_mutex_lock(&g->lock);
	g->closed = false;
	pthread_cond_broadcast(&g->changed);
	pthread_mutex_unlock(&g->lock);
}
