/* nodes.c - the calls on files and directories, of a checkpoint or a run */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>

#include "cluster/task.h"
#include "fs/fs.h"

/* A checkpoint has no links. */
static int no_link(struct optimfs *fs, uint64_t node, char **target,
    struct optimfs_error *err)
{
	(void)fs, (void)node, (void)target;
	return optimfs_fail(err, EINVAL, "not a symbolic link");
}

const struct ofs_node_ops ofs_nodes_of_checkpoint = {
	.getattr = ofs_node_getattr,
	.lookup = ofs_node_lookup,
	.resolve = ofs_node_resolve,
	.readdir = ofs_node_readdir,
	.readlink = no_link,
	.open = ofs_node_open,
	.access_changed = ofs_node_access_changed,
	.getxattr = ofs_node_getxattr,
	.listxattr = ofs_node_listxattr,
};

int ofs_fs_single(const struct optimfs *fs, struct optimfs_error *err)
{
	if (fs->run == NULL)
		return 0;
	return optimfs_fail(err, EINVAL,
	    "OFS681 %s holds checkpoints, give one of them: %s:latest, or "
	    "%s:STEP",
	    fs->source, fs->source, fs->source);
}

unsigned ofs_fs_threads(struct optimfs *fs)
{
	struct ofs_snapshot *snap;
	bool far;

	if (fs->run != NULL)
		return 1;
	snap = ofs_enter(fs);
	far = snap->reader.transport->ops->at_once > 0;
	ofs_leave(snap);
	return far ? 1 : ofs_task_threads(fs->options.group);
}

int optimfs_getattr(struct optimfs *fs, uint64_t node,
    struct optimfs_attr *attr, struct optimfs_error *err)
{
	return fs->nodes->getattr(fs, node, attr, err);
}

int optimfs_lookup(struct optimfs *fs, uint64_t dir, const char *name,
    struct optimfs_attr *attr, struct optimfs_error *err)
{
	return fs->nodes->lookup(fs, dir, name, attr, err);
}

int optimfs_resolve(struct optimfs *fs, const char *path,
    struct optimfs_attr *attr, struct optimfs_error *err)
{
	return fs->nodes->resolve(fs, path, attr, err);
}

int optimfs_readdir(struct optimfs *fs, uint64_t dir, uint64_t start,
    bool want_attr, optimfs_dirent_fn *each, void *ctx,
    struct optimfs_error *err)
{
	return fs->nodes->readdir(fs, dir, start, want_attr, each, ctx, err);
}

int optimfs_readlink(struct optimfs *fs, uint64_t node, char **target,
    struct optimfs_error *err)
{
	return fs->nodes->readlink(fs, node, target, err);
}

int optimfs_file_open(struct optimfs *fs, uint64_t node,
    struct optimfs_file **file, struct optimfs_error *err)
{
	return fs->nodes->open(fs, node, file, err);
}

bool optimfs_access_changed(struct optimfs *fs, uint64_t node)
{
	return fs->nodes->access_changed(fs, node);
}

int optimfs_getxattr(struct optimfs *fs, uint64_t node, const char *name,
    char **value, size_t *len, struct optimfs_error *err)
{
	return fs->nodes->getxattr(fs, node, name, value, len, err);
}

int optimfs_listxattr(struct optimfs *fs, uint64_t node, char **names,
    size_t *len, struct optimfs_error *err)
{
	return fs->nodes->listxattr(fs, node, names, len, err);
}
