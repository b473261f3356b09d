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

/* What was read from the checkpoint, and what was made of it. The rest of a
 * struct optimfs is about whoever opened it. */
#define PARTS(part)                                                           \
 part(cat) part(tree) part(reader) part(index) part(nindexes) part(mode_file) \
     part(mode_dir) part(mtime_ns) part(space) part(nspaces) part(views)      \
	 part(static_ino) part(texts) part(lines)

static void swap(struct optimfs *a, struct optimfs *b)
{
#define SWAP(member)                            \
 {                                              \
  uint8_t keep[sizeof(a->member)];              \
                                                \
  memcpy(keep, &a->member, sizeof(keep));       \
  memcpy(&a->member, &b->member, sizeof(keep)); \
  memcpy(&b->member, keep, sizeof(keep));       \
 }
	PARTS(SWAP)
#undef SWAP
}

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
		ofs_at_path(fs, f->at, path, sizeof(path));
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
	    ofs_node_at(fs, attr.node, &at, &err) == -1 ||
	    ofs_file_return(file, at, &err) == -1)
		file->lost = true;
}

static struct optimfs *read_again(struct optimfs *fs, struct optimfs_error *err)
{
	struct optimfs_options o = fs->options;
	const char *source = fs->source;
	struct ofs_catalog *cat;

	o.rw = o.scratch = false;
	if (fs->sites != NULL)
		source = ofs_coordinator_source(fs->sites, &o.world);
	cat = ofs_read_checkpoint(source, &o, err);
	return cat == NULL ? NULL : ofs_fs_new(cat, source, &o, err);
}

static int rebase(struct optimfs *fs, bool same, struct optimfs_error *err)
{
	const struct ofs_overlay_base base = ofs_fs_base(fs);

	if (ofs_overlay_rebase(fs->edit, &base, same, err) == -1)
		return -1;
	fs->write = &ofs_write_staged;
	return 0;
}

/* Nobody else is inside. Open files are found again whatever comes of it. */
static int exchange(struct optimfs *fs, struct optimfs *now,
    const struct opened *o, struct optimfs_error *err)
{
	bool same = same_tree(&fs->tree, &now->tree);
	struct optimfs_file *f;
	size_t i = 0;
	int ret;

	for (f = fs->files; f != NULL; f = f->next)
		ofs_file_leave(f);
	swap(fs, now);
	ret = rebase(fs, same, err);
	if (ret == -1)
		swap(fs, now);
	else if (!same) /* other nodes have the numbers */
		fs->generation = (fs->generation + 1) % OFS_GENERATIONS;
	for (f = fs->files; f != NULL; f = f->next, i++)
		find_again(fs, f, o->path[i]);
	return ret;
}

static int become(struct optimfs *fs, struct optimfs *now,
    struct optimfs_error *err)
{
	struct opened opened = { 0 };
	bool closed = ofs_gate_close(fs);
	int ret = list_opened(fs, &opened, err);

	if (ret == 0)
		ret = exchange(fs, now, &opened, err);
	if (closed)
		ofs_gate_open(fs);
	free_opened(&opened);
	return ret;
}

int ofs_fs_reopen(struct optimfs *fs, struct optimfs_error *err)
{
	struct optimfs *now = read_again(fs, err);
	int ret = now == NULL ? -1 : become(fs, now, err);

	optimfs_close(now);
	return ret;
}
