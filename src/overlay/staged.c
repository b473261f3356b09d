/* staged.c - an overlay over a checkpoint: everything written is staged */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <unistd.h>

#include "base/io.h"
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
	if (f->fd == -1 || o->scratch || fdatasync(f->fd) == 0)
		return 0;
	return optimfs_fail(err, errno, "OFS809 staged file: %m");
}

const struct ofs_overlay_bytes ofs_overlay_staged_bytes = {
	.write = staged_write,
	.read = staged_read,
	.resize = staged_resize,
	.sync = staged_sync,
};

static bool staged_apart(const struct ofs_overlay *o, uint32_t node)
{
	(void)o, (void)node;
	return false;
}

static const struct ofs_overlay_bytes *staged_bytes(const struct ofs_overlay *o,
    uint32_t node)
{
	(void)o, (void)node;
	return &ofs_overlay_staged_bytes;
}

static bool staged_own_text(const struct ofs_overlay *o, uint32_t node,
    const void *text, size_t n)
{
	(void)o, (void)node, (void)text, (void)n;
	return false;
}

static int staged_reveal(struct ofs_overlay *o, uint32_t dir, const char *name,
    bool is_dir, uint32_t *index, struct optimfs_error *err)
{
	(void)o, (void)dir, (void)name, (void)is_dir, (void)index, (void)err;
	return 0;
}

static int staged_rename(struct ofs_overlay *o, uint32_t index, uint32_t dir,
    const char *name, struct optimfs_error *err)
{
	(void)o, (void)index, (void)dir, (void)name, (void)err;
	return 0;
}

static void staged_free(void *ctx)
{
	(void)ctx;
}

const struct ofs_overlay_ops ofs_overlay_staged_ops = {
	.apart = staged_apart,
	.bytes = staged_bytes,
	.own_text = staged_own_text,
	.reveal = staged_reveal,
	.rename = staged_rename,
	.free = staged_free,
};
