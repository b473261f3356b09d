/* reopen.c - a file system that shows what a commit has made */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "edit.h"
#include "format/format.h"
#include "fs.h"
#include "view.h"

/* What was read from the checkpoint, and what was made of it. The rest of a
 * struct optimfs is about whoever opened it. */
#define PARTS(part)                                                            \
 part(cat) part(tree) part(transport) part(locator) part(index) part(nindexes) \
     part(mode_file) part(mode_dir) part(mtime_ns) part(space) part(nspaces)   \
	 part(views) part(static_ino) part(texts) part(lines)

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
struct paths {
	char **v;
	size_t n;
};

static void free_paths(struct paths *p)
{
	for (size_t i = 0; i < p->n; i++)
		free(p->v[i]);
	free(p->v);
}

static int list_paths(const struct optimfs *fs, struct paths *p,
    struct optimfs_error *err)
{
	char path[65536];
	size_t n = 0;

	for (struct optimfs_file *f = fs->files; f != NULL; f = f->next)
		n++;
	p->v = calloc(n + 1, sizeof(*p->v));
	if (p->v == NULL)
		return optimfs_fail(err, ENOMEM, "open files");
	for (struct optimfs_file *f = fs->files; f != NULL; f = f->next) {
		ofs_at_path(fs, f->at, path, sizeof(path));
		p->v[p->n] = strdup(path);
		if (p->v[p->n++] == NULL)
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
	struct ofs_catalog *cat;

	o.rw = o.scratch = false;
	cat = ofs_read_checkpoint(fs->source, &o, err);
	return cat == NULL ? NULL : ofs_fs_new(cat, fs->source, &o, err);
}

/* Nobody else is inside. Open files are found again whatever comes of it. */
static int exchange(struct optimfs *fs, struct optimfs *now,
    const struct paths *paths, struct optimfs_error *err)
{
	bool same = same_tree(&fs->tree, &now->tree);
	struct optimfs_file *f;
	size_t i = 0;
	int ret;

	for (f = fs->files; f != NULL; f = f->next)
		ofs_file_leave(f);
	swap(fs, now);
	ret = ofs_edit_rebase(fs->edit, same, err);
	if (ret == -1)
		swap(fs, now);
	else if (!same)
		fs->generation = (fs->generation + 1) % OFS_GENERATIONS;
	for (f = fs->files; f != NULL; f = f->next)
		find_again(fs, f, paths->v[i++]);
	return ret;
}

int ofs_fs_reopen(struct optimfs *fs, struct optimfs_error *err)
{
	struct optimfs *now = read_again(fs, err);
	struct paths paths = { 0 };
	int ret;

	if (now == NULL)
		return -1;
	ofs_gate_close(fs);
	ret = list_paths(fs, &paths, err);
	if (ret == 0)
		ret = exchange(fs, now, &paths, err);
	ofs_gate_open(fs);
	free_paths(&paths);
	optimfs_close(now);
	return ret;
}
