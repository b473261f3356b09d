/* reopen.c - a file system that shows what a commit has made */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/renew.h"
#include "format/format.h"
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

/* The open files, in the order of their list, and what becomes of each. */
struct opened {
	struct one {
		char *path;
		bool same;
	} * v;
	size_t n;
};

static void free_opened(struct opened *o)
{
	for (size_t i = 0; i < o->n; i++)
		free(o->v[i].path);
	free(o->v);
}

/* Who has written what a commit made sees in it what was there before. To
 * others it is news: who reads a file that may say something else from now on
 * is told, rather than given some of each. */
static bool is_same(const struct optimfs_file *f, struct optimfs *now,
    const char *path)
{
	struct optimfs_attr attr;
	struct ofs_at at;

	if (f->fs->edit != NULL)
		return true;
	return f->view == NULL && f->at.index < f->fs->tree.n &&
	    optimfs_resolve(now, path, &attr, NULL) == 0 &&
	    ofs_node_at(now, attr.node, &at, NULL) == 0 &&
	    at.space == f->at.space && at.index < now->tree.n &&
	    ofs_node_same(f->fs, f->at.index, now, at.index);
}

static int list_opened(const struct optimfs *fs, struct optimfs *now,
    struct opened *o, struct optimfs_error *err)
{
	char path[65536];
	size_t n = 0;

	for (struct optimfs_file *f = fs->files; f != NULL; f = f->next)
		n++;
	o->v = calloc(n + 1, sizeof(*o->v));
	if (o->v == NULL)
		return optimfs_fail(err, ENOMEM, "open files");
	for (struct optimfs_file *f = fs->files; f != NULL; f = f->next) {
		struct one *one = &o->v[o->n++];

		ofs_at_path(fs, f->at, path, sizeof(path));
		one->path = strdup(path);
		if (one->path == NULL)
			return optimfs_fail(err, ENOMEM, "open files");
		one->same = is_same(f, now, one->path);
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

struct optimfs *ofs_fs_read_again(struct optimfs *fs, struct optimfs_error *err)
{
	struct optimfs_options o = fs->options;
	const char *source = fs->source;
	struct ofs_catalog *cat;

	o.rw = o.scratch = false;
	if (fs->sites != NULL) {
		o.world = ofs_renewal_world(fs->renewal);
		source = ofs_renewal_path(fs->renewal);
	}
	cat = fs->edit == NULL ? ofs_fs_read_followed(source, &o, err)
			       : ofs_read_checkpoint(source, &o, err);
	return cat == NULL ? NULL : ofs_fs_new(cat, source, &o, err);
}

/* Where the tree is the same, numbers of nodes stay for whoever wrote what is
 * new. Others' kernels must not mix what they keep of a file with what it is
 * now: only what is the same has the same number. */
static int number_anew(struct optimfs *fs, struct optimfs *now, bool same,
    struct optimfs_error *err)
{
	uint32_t next = (fs->generation + 1) % OFS_GENERATIONS;

	if (same && fs->edit != NULL)
		return 0;
	if (same && fs->since == NULL) {
		fs->since = calloc(fs->tree.n, sizeof(*fs->since));
		if (fs->since == NULL)
			return optimfs_fail(err, ENOMEM, "numbers of nodes");
		for (uint32_t i = 0; i < fs->tree.n; i++)
			fs->since[i] = (uint16_t)fs->tree_generation;
	}
	for (uint32_t i = 0; same && i < fs->tree.n; i++)
		if (!ofs_node_same(fs, i, now, i))
			fs->since[i] = (uint16_t)next;
	if (!same) {
		free(fs->since);
		fs->since = NULL;
		fs->tree_generation = next;
	}
	fs->generation = next;
	return 0;
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
	int ret = 0;

	if (number_anew(fs, now, same, err) == -1)
		return -1;
	for (f = fs->files; f != NULL; f = f->next)
		ofs_file_leave(f);
	swap(fs, now);
	if (fs->edit != NULL)
		ret = rebase(fs, same, err);
	if (ret == -1)
		swap(fs, now);
	for (f = fs->files; f != NULL; f = f->next, i++)
		if (ret == -1 || o->v[i].same)
			find_again(fs, f, o->v[i].path);
		else
			f->lost = true;
	return ret;
}

int ofs_fs_become(struct optimfs *fs, struct optimfs *now,
    struct optimfs_error *err)
{
	struct opened opened = { 0 };
	bool closed = ofs_gate_close(fs);
	int ret = list_opened(fs, now, &opened, err);

	if (ret == 0)
		ret = exchange(fs, now, &opened, err);
	if (closed)
		ofs_gate_open(fs);
	free_opened(&opened);
	return ret;
}

int ofs_fs_reopen(struct optimfs *fs, struct optimfs_error *err)
{
	struct optimfs *now = ofs_fs_read_again(fs, err);
	int ret = now == NULL ? -1 : ofs_fs_become(fs, now, err);

	optimfs_close(now);
	return ret;
}
