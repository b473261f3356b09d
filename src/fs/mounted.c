/* mounted.c - what a program that mounts a checkpoint asks about its changes */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "base/sys.h"
#include "fs/enter.h"
#include "fs/fs.h"

int optimfs_set_mounted(struct optimfs *fs, dev_t dev,
    struct optimfs_error *err)
{
	struct ofs_snapshot *snap = ofs_enter(fs);
	int ret = 0;

	if (snap->overlay != NULL && !fs->options.scratch)
		ret = ofs_stage_mounted(ofs_overlay_stage(snap->overlay), dev,
		    err);
	ofs_leave(snap);
	return ret;
}

void optimfs_status(struct optimfs *fs, struct optimfs_status *status)
{
	struct ofs_overlay_status s;
	struct ofs_snapshot *snap;

	*status = (struct optimfs_status){ .percent = -1 };
	if (!fs->changes)
		return;
	snap = ofs_enter(fs);
	ofs_overlay_status(snap->overlay, &s);
	ofs_leave(snap);
	*status = (struct optimfs_status){
		.explicit_commit = atomic_load(&fs->explicit_commit),
		.scratch = fs->options.scratch,
		.files = s.files,
		.bytes = s.bytes,
		.percent = s.percent,
		.done = s.done,
		.total = s.total,
	};
	memcpy(status->doing, s.doing, sizeof(s.doing));
}

int optimfs_sync(struct optimfs *fs, struct optimfs_error *err)
{
	struct ofs_snapshot *snap;
	int ret;

	if (!fs->changes)
		return 0;
	snap = ofs_enter(fs);
	ret = ofs_overlay_sync(snap->overlay, err);
	ofs_leave(snap);
	return ret;
}

uint64_t optimfs_moves(void)
{
	return ofs_sys_moves();
}

char *optimfs_recovered(struct optimfs *fs)
{
	struct ofs_buf b = { 0 };
	struct ofs_snapshot *snap;

	if (!fs->changes)
		return NULL;
	snap = ofs_enter(fs);
	ofs_overlay_recovered(snap->overlay, &b);
	ofs_leave(snap);
	if (b.len > 0)
		ofs_buf_putc(&b, '\0');
	if (!b.bad)
		return (char *)b.data;
	ofs_buf_fini(&b);
	return NULL;
}

uint64_t optimfs_changes(struct optimfs *fs)
{
	struct ofs_snapshot *snap;
	uint64_t n;

	if (!fs->changes)
		return 0;
	snap = ofs_enter(fs);
	n = ofs_overlay_generation(snap->overlay);
	ofs_leave(snap);
	return n;
}
