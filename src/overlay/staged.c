/* staged.c - written bytes in files of the stage */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <unistd.h>

#include "base/io.h"
#include "base/sys.h"
#include "overlay/overlay_impl.h"

static int staged_write(struct ofs_overlay *o, struct ofs_overlay_file *f,
    const void *buf, uint64_t n, uint64_t off, struct optimfs_error *err)
{
	(void)o;
	return ofs_stage_write(f->fd, buf, n, off, err);
}

static int staged_read(struct ofs_overlay *o, struct ofs_overlay_file *f,
    void *buf, uint64_t n, uint64_t off, struct optimfs_error *err)
{
	(void)o;
	return ofs_pread_all(f->fd, buf, n, off, err);
}

static int staged_resize(struct ofs_overlay *o, struct ofs_overlay_file *f,
    uint64_t size, struct optimfs_error *err)
{
	(void)o;
	if (ftruncate(f->fd, (off_t)size) == 0)
		return 0;
	return optimfs_fail(err, errno, "OFS801 staged file: %m");
}

static int staged_sync(struct ofs_overlay *o, struct ofs_overlay_file *f,
    struct optimfs_error *err)
{
	if (f->fd == -1 || o->scratch || ofs_sys_fdatasync(f->fd) == 0)
		return 0;
	return optimfs_fail(err, errno, "OFS809 staged file: %m");
}

const struct ofs_overlay_bytes ofs_overlay_staged_bytes = {
	.write = staged_write,
	.read = staged_read,
	.resize = staged_resize,
	.sync = staged_sync,
};
