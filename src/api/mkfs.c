/* mkfs.c - make the directories of a new checkpoint, on one rank or several */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/memory.h"
#include "cluster/task.h"
#include "fs/fs.h"
#include "push/template.h"
#include "store/http/open.h"

/* Rank 0 makes the template when all ranks have their directories, which get
 * their part of the checkpoint at the commit: everything, or nothing. Several
 * ranks may see one. */
static int make_all(struct optimfs *like, const char *layout, const char *dir,
    struct optimfs_error *err)
{
	struct optimfs_group *w = like->options.group;
	bool first = optimfs_group_rank(w) == 0, made = false;
	char *here = optimfs_group_expand(w, dir, err);
	int ret = 0;

	if (here == NULL)
		ret = ofs_no_memory(err);
	else if (!first &&
	    (ofs_template_room(here, err) == -1 ||
		ofs_template_dir(here, &made, err) == -1))
		ret = -1;
	ret = ofs_task_agree(w, ret, err);
	if (ret == 0) {
		if (first)
			ret = ofs_template_make(like, layout, here, err);
		ret = ofs_task_agree(w, ret, err);
	}
	if (ret == -1 && made)
		rmdir(here);
	free(here);
	return ret;
}

static void put_path(struct ofs_buf *out, const char *path)
{
	if (path != NULL)
		ofs_buf_put(out, path, strlen(path) + 1);
}

char *optimfs_mkfs_reads(const char *dir)
{
	struct optimfs_options o = { 0 };
	struct ofs_template t = { 0 };
	struct ofs_buf out = { 0 };
	char *text = NULL;

	if (ofs_template_find(dir, &t) && t.like != NULL &&
	    ofs_template_options(&t, &o, NULL) == 0) {
		put_path(&out, t.like);
		put_path(&out, o.ids);
		put_path(&out, o.units);
		put_path(&out, o.join);
		put_path(&out, o.base);
		text = ofs_buf_text(&out, NULL);
	}
	ofs_template_fini(&t);
	return text;
}

int optimfs_mkfs(struct optimfs *like, const char *layout, const char *dir,
    struct optimfs_error *err)
{
	err = OFS_SOME_ERROR(err);
	if (ofs_fs_single(like, err) == -1 || ofs_http_refuse(dir, err) == -1)
		return -1;
	return like->options.group == NULL
	    ? ofs_template_make(like, layout, dir, err)
	    : make_all(like, layout, dir, err);
}
