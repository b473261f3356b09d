/* template.c - templates of new checkpoints, filled in and compared with
 * reshard */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "push/template.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/fs.h"
#include "read/scatter.h"
#include "support/scratch.h"
#include "support/truth.h"
#include "tap.h"

static int write_to(void *ctx, const struct ofs_segment *seg, int *fd,
    int64_t *delta, struct optimfs_error *err)
{
	(void)err;
	*fd = ((int *)ctx)[seg->object];
	*delta = 0;
	return 0;
}

/* The elements of the tensor at path. */
static uint8_t *elements(struct optimfs *fs, const char *path, uint64_t *numel)
{
	struct optimfs_error err = { 0 };
	const struct ofs_tensor *t = NULL;
	struct optimfs_attr attr;
	struct ofs_at at;
	uint8_t *buf = NULL;

	if (optimfs_resolve(fs, path, &attr, &err) == 0 &&
	    ofs_node_at(fs->now, attr.node, &at, &err) == 0)
		t = ofs_entry_tensor(fs->now->cat, ofs_at_entry(fs->now, at));
	if (t == NULL) {
		diag("%s: %s", path, err.text);
		return NULL;
	}
	*numel = ofs_tensor_numel(fs->now->cat, t);
	buf = calloc(1, ofs_tensor_bytes(fs->now->cat, t) + 1);
	if (ofs_fetch_elements(&fs->now->reader, t, 0, *numel, buf, &err) ==
	    -1) {
		diag("%s: %s", path, err.text);
		free(buf);
		buf = NULL;
	}
	return buf;
}

/* Writes the elements of from into each tensor of to. */
static bool fill(struct optimfs *from, struct optimfs *to)
{
	struct ofs_catalog *cat = to->now->cat;
	int *fd = calloc(cat->nobjects + 1, sizeof(*fd));
	struct ofs_target target = { .at = write_to, .ctx = fd };
	struct optimfs_error err;
	bool good = true;

	cat->filling = true;
	for (uint32_t i = 0; i < cat->nobjects; i++)
		fd[i] = openat(cat->dir.fd, cat->objects[i].path, O_RDWR);
	for (uint32_t i = 0; i < to->now->tree.n && good; i++) {
		struct ofs_at at = { OFS_SPACE_TREE, i };
		uint32_t e = to->now->tree.node[i].entry;
		const struct ofs_tensor *t = NULL;
		char path[4096];
		uint8_t *buf;
		uint64_t n = 0;

		if (e != OFS_NONE)
			t = ofs_entry_tensor(to->now->cat, &cat->entries[e]);
		if (t == NULL)
			continue;
		ofs_at_path(to->now, at, path, sizeof(path));
		buf = elements(from, path, &n);
		good = buf != NULL &&
		    ofs_scatter(&to->now->reader, t, 0, n, buf, &target,
			&err) == 0;
		if (buf != NULL && !good)
			diag("%s: %s", path, err.text);
		free(buf);
	}
	for (uint32_t i = 0; i < cat->nobjects; i++)
		close(fd[i]);
	free(fd);
	return good;
}

static void compare(const char *name, const char *units, const char *layout)
{
	struct optimfs_reshard how = { .to = layout };
	char path[512];
	struct optimfs_options o = { .units = NULL };
	struct optimfs_error err = { 0 };
	struct optimfs *from, *to;
	char *files = NULL;

	if (units != NULL) {
		snprintf(path, sizeof(path), "%s", data_path(units));
		o.units = path;
	}
	from = optimfs_open(data_path(name), &o, &err);
	if (from == NULL)
		bail_out("%s: %s", name, err.text);
	scratch_shell("rm -rf * .??*");
	if (!ok(optimfs_mkfs(from, layout, in_scratch("ck"), &err) == 0 &&
		    ofs_template_find(in_scratch("ck"), &files, &err) == 1,
		"%s: mkfs %s succeeds", name, layout)) {
		diag("%s", err.text);
		optimfs_close(from);
		return;
	}
	to = optimfs_open(files, NULL, &err);
	if (ok(to != NULL, "%s to %s: the template opens as a checkpoint", name,
		layout)) {
		ok(fill(from, to),
		    "%s to %s: all tensors are written into the template", name,
		    layout);
		ok(optimfs_reshard(from, in_scratch("want"), &how, &err) == 0 &&
			scratch_shell(
			    "cd want && find . -type f -size +0 | "
			    "sort | xargs stat -c '%n %s' >../sizes && "
			    "cd ../.ck.optimfs/template && "
			    "find . -type f -size +0 | sort | "
			    "xargs stat -c '%n %s' | cmp ../../sizes"),
		    "%s to %s: the template has the files of reshard", name,
		    layout);
		ok(optimfs_reshard(to, in_scratch("again"), &how, &err) == 0 &&
			scratch_shell("diff -r want again"),
		    "%s to %s: it has the tensors and values of the source",
		    name, layout);
		optimfs_close(to);
	} else {
		diag("%s", err.text);
	}
	free(files);
	optimfs_close(from);
}

static void compare_all(void)
{
	static const char *const layouts[] = { "dcp@1", "dcp@4", "dcp@2x3",
		"torch", "dcp@3,only=optim", "dcp@2,dtype=f32" };

	for (size_t i = 0; i < sizeof(layouts) / sizeof(*layouts); i++)
		compare("pytorch/dcp_fsdp2_w3/ckpt", NULL, layouts[i]);
	compare("pytorch/dcp_dtypes/ckpt", NULL, "dcp@7");
	compare("pytorch/dcp_dtypes/ckpt", NULL, "torch");
	compare("pytorch/torchsave_full/ckpt/state.pt", NULL, "dcp@5");
	compare("pytorch/fsdp1_local_flat_fullshard_w3/ckpt",
	    "pytorch/fsdp1_local_flat_fullshard_w3/units.json", "fsdp@2");
	compare("pytorch/fsdp1_local_flat_fullshard_w3/ckpt",
	    "pytorch/fsdp1_local_flat_fullshard_w3/units.json", "fsdp@2x2");
	compare("pytorch/fsdp1_local_flat_fullshard_w3/ckpt",
	    "pytorch/fsdp1_local_flat_fullshard_w3/units.json", "dcp@16");
}

static void refused(void)
{
	struct optimfs_error err;
	struct optimfs *from =
	    optimfs_open(data_path("pytorch/dcp_fsdp2_w3/ckpt"), NULL, &err);
	char *files;

	if (from == NULL)
		bail_out("%s", err.text);
	scratch_shell("rm -rf * .??*; mkdir full empty && touch full/x file");
	ok(optimfs_mkfs(from, "dcp@2", in_scratch("full"), &err) == -1,
	    "mkfs into a directory with files fails");
	is_error(err, EEXIST, "OFS830",
	    "mkfs into a directory with files: error text");
	ok(optimfs_mkfs(from, "dcp@2", in_scratch("file"), &err) == -1,
	    "mkfs onto a file fails");
	is_error(err, EEXIST, "OFS830", "mkfs onto a file: error text");
	ok(optimfs_mkfs(from, "dcp@0", in_scratch("empty"), &err) == -1 &&
		scratch_shell("test ! -e .empty.optimfs"),
	    "mkfs with an unknown layout fails and leaves nothing");
	ok(optimfs_mkfs(from, "dcp@2", in_scratch("empty"), &err) == 0,
	    "mkfs into an empty directory succeeds");
	ok(optimfs_mkfs(from, "dcp@3", in_scratch("empty"), &err) == -1,
	    "a second mkfs for the same directory fails");
	is_error(err, EEXIST, "OFS830",
	    "a second mkfs for the same directory: error text");
	ok(ofs_template_find(in_scratch("empty"), &files, &err) == 1,
	    "a failed mkfs keeps the earlier template");
	free(files);
	ok(ofs_template_find(in_scratch("full"), &files, &err) == 0,
	    "a directory without a template has none");
	scratch_shell("mkdir .new.optimfs .new.optimfs/template && "
		      "touch .new.optimfs/template/left");
	ok(optimfs_mkfs(from, "dcp@2", in_scratch("new"), &err) == 0 &&
		scratch_shell("test ! -e .new.optimfs/template/left"),
	    "mkfs removes what a killed mkfs left");
	optimfs_close(from);
}

/* Template descriptions that mkfs does not write. */
static void hostile(void)
{
	static const char *const lines[] = {
		"",
		"optimfs-template 1\nlayout dcp@1\nend\n",
		"optimfs-template 2\nend\n",
		"optimfs-template 2\nlayout dcp@1\n",
		"optimfs-template 2\nlayout dcp@1\nfile 8 a\nend\n",
		"optimfs-template 2\nlayout dcp@1\nown x a\nend\n",
	};
	struct optimfs_error err;
	struct ofs_template s;
	int dir = open(scratch, O_RDONLY | O_DIRECTORY);

	for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
		FILE *f = fopen(in_scratch(OFS_TEMPLATE_INFO), "w");

		fputs(lines[i], f);
		fclose(f);
		ok(ofs_template_load(dir, &s, &err) == -1,
		    "malformed description %zu is refused", i);
		is_error(err, EUCLEAN, "OFS831",
		    "malformed description %zu: error text", i);
	}
	close(dir);
}

int main(void)
{
	scratch_make(false);
	compare_all();
	refused();
	hostile();
	scratch_remove();
	return done_testing();
}
