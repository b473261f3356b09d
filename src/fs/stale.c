/* stale.c - was the checkpoint overwritten, or given other modes, while it is
 * open? */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/replace.h"
#include "fs/fs.h"

static void mark(bool *used, const struct ofs_extent *at)
{
	used[at->object] = true;
}

int ofs_indexes_init(struct ofs_snapshot *snap, struct optimfs_error *err)
{
	const struct ofs_catalog *cat = snap->cat;
	bool *used = calloc((size_t)cat->nobjects + 1, sizeof(*used));

	if (used == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < cat->nshards; i++)
		mark(used, &cat->shards[i].at);
	for (uint32_t i = 0; i < cat->nreplicas; i++)
		mark(used, &cat->replicas[i].at);
	for (uint32_t i = 0; i < cat->nitems; i++)
		mark(used, &cat->items[i].at);
	for (uint32_t i = 0;
	     i < cat->nobjects && snap->nindexes < OFS_MAX_INDEXES; i++)
		if (!used[i] && !cat->objects[i].missing &&
		    !cat->objects[i].refused)
			snap->index[snap->nindexes++] = i;
	free(used);
	return 0;
}

int ofs_indexes_same(const struct ofs_snapshot *snap, struct optimfs_error *err)
{
	const struct ofs_object *o;
	struct stat st;

	for (uint32_t i = 0; i < snap->nindexes; i++) {
		o = &snap->cat->objects[snap->index[i]];
		/* a missing index file is harmless: it has been read */
		if (!ofs_dir_stat(&snap->cat->dir, o->path, &st))
			continue;
		if ((uint64_t)st.st_size != o->size || st.st_ino != o->ino ||
		    ofs_time_ns(&st.st_mtim) != o->mtime_ns)
			return optimfs_fail(err, ESTALE,
			    "OFS753 %.300s was written again since the "
			    "checkpoint was opened: open or mount it again",
			    o->path);
	}
	return 0;
}

void ofs_snapshot_access(struct ofs_snapshot *snap, bool dir,
    struct optimfs_attr *attr)
{
	struct ofs_access a;

	pthread_mutex_lock(&snap->access.lock);
	a = snap->access.now;
	pthread_mutex_unlock(&snap->access.lock);
	attr->uid = (uint32_t)a.uid;
	attr->gid = (uint32_t)a.gid;
	attr->mode = dir ? S_IFDIR | a.mode | a.mode >> 2 : S_IFREG | a.mode;
}

mode_t ofs_snapshot_made_mode(const struct ofs_snapshot *snap, mode_t mode)
{
	const struct ofs_access *a = &snap->cat->access;

	return ofs_made_mode(mode, a->mode, a->gid);
}

bool ofs_snapshot_access_changed(struct ofs_snapshot *snap)
{
	struct ofs_seen_access *seen = &snap->access;
	const struct ofs_access *was = &snap->cat->access;
	struct ofs_access now = ofs_catalog_access(snap->cat);
	bool changed;

	pthread_mutex_lock(&seen->lock);
	seen->now = now;
	seen->changed |=
	    now.uid != was->uid || now.gid != was->gid || now.mode != was->mode;
	changed = seen->changed;
	pthread_mutex_unlock(&seen->lock);
	return changed;
}

bool ofs_node_access_changed(struct optimfs *fs, uint64_t node)
{
	struct ofs_snapshot *snap = ofs_enter(fs);
	bool changed = ofs_snapshot_access_changed(snap);

	(void)node;
	ofs_leave(snap);
	return changed;
}
