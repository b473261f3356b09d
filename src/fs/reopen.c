/* reopen.c - a file system that shows what a commit has made */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/commit/coordinator.h"
#include "cluster/source.h"
#include "fs/fs.h"
#include "fs/view.h"
#include "overlay/overlay.h"

/* Do the nodes of both trees have the same numbers? */
static bool same_tree(const struct ofs_tree *a, const struct ofs_tree *b)
{
	if (a->n != b->n)
		return false;
	for (uint32_t i = 0; i < a->n; i++)
		if (a->node[i].parent != b->node[i].parent ||
		    (a->node[i].entry == OFS_NONE) !=
			(b->node[i].entry == OFS_NONE) ||
		    strcmp(a->node[i].name, b->node[i].name) != 0)
			return false;
	return true;
}

/* The paths of the open files, in the order of their list. */
struct opened {
	char **path;
	size_t n;
};

static void free_opened(struct opened *o)
{
	for (size_t i = 0; i < o->n; i++)
		free(o->path[i]);
	free(o->path);
}

static int list_opened(const struct optimfs *fs, struct opened *o,
    struct optimfs_error *err)
{
	char path[65536];
	size_t n = 0;

	for (struct optimfs_file *f = fs->files; f != NULL; f = f->next)
		n++;
	o->path = calloc(n + 1, sizeof(*o->path));
	if (o->path == NULL)
		return optimfs_fail(err, ENOMEM, "open files");
	for (struct optimfs_file *f = fs->files; f != NULL; f = f->next) {
		ofs_at_path(fs->now, f->at, path, sizeof(path));
		o->path[o->n] = strdup(path);
		if (o->path[o->n++] == NULL)
			return optimfs_fail(err, ENOMEM, "open files");
	}
	return 0;
}

static void find_again(struct optimfs *fs, struct optimfs_file *file,
    const char *path)
{
	struct optimfs_attr attr;
	struct optimfs_error err;
	struct ofs_at at;

	if (optimfs_resolve(fs, path, &attr, &err) == -1 ||
	    ofs_node_at(fs->now, attr.node, &at, &err) == -1 ||
	    ofs_file_return(file, fs->now, at, &err) == -1)
		file->lost = true;
}

static struct ofs_snapshot *read_again(struct optimfs *fs,
    struct optimfs_error *err)
{
	struct optimfs_options o = fs->options;
	const char *source = fs->source;
	struct ofs_catalog *cat;

	o.rw = o.scratch = false;
	if (fs->sites != NULL)
		source = ofs_coordinator_source(fs->sites, &o.world);
	cat = ofs_read_checkpoint(source, &o, err);
	return cat == NULL ? NULL : ofs_snapshot_new(fs, cat, err);
}

/* Nobody else is inside. Open files are found again whatever comes of it. */
static int exchange(struct optimfs *fs, struct ofs_snapshot *now,
    const struct opened *o, struct optimfs_error *err)
{
	struct ofs_snapshot *old = fs->now;
	const struct ofs_overlay_base base = ofs_snapshot_base(now);
	bool same = same_tree(&old->tree, &now->tree);
	struct optimfs_file *f;
	size_t i = 0;
	int ret;

	for (f = fs->files; f != NULL; f = f->next)
		ofs_file_leave(f);
	ret = ofs_overlay_rebase(old->edit, &base, same, err);
	if (ret == 0) {
		now->edit = old->edit;
		old->edit = NULL;
		now->write = &ofs_write_staged;
		/* other nodes have the numbers */
		now->generation = (old->generation + !same) % OFS_GENERATIONS;
		fs->now = now;
		now = old;
	}
	for (f = fs->files; f != NULL; f = f->next, i++)
		find_again(fs, f, o->path[i]);
	ofs_snapshot_free(now);
	return ret;
}

int ofs_fs_reopen(struct optimfs *fs, struct optimfs_error *err)
{
	struct ofs_snapshot *now = read_again(fs, err);
	struct opened opened = { 0 };
	bool closed;
	int ret;

	if (now == NULL)
		return -1;
	closed = ofs_gate_close(fs);
	ret = list_opened(fs, &opened, err);
	if (ret == 0)
		ret = exchange(fs, now, &opened, err);
	else
		ofs_snapshot_free(now);
	if (closed)
		ofs_gate_open(fs);
	free_opened(&opened);
	return ret;
}
