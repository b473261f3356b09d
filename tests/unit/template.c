/* template.c - what mkfs leaves, and what it refuses */
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
#include "support/scratch.h"
#include "support/truth.h"
#include "tap.h"

static void refused(void)
{
	struct optimfs_error err;
	struct optimfs *from =
	    optimfs_open(data_path("pytorch/dcp_fsdp2_w3/ckpt"), NULL, &err);

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
	ok(ofs_template_find(in_scratch("empty"), NULL),
	    "a failed mkfs keeps the earlier template");
	ok(!ofs_template_find(in_scratch("full"), NULL),
	    "a directory without a template has none");
	optimfs_close(from);
}

/* What is kept of a source that was opened with options. */
static void kept(void)
{
	struct optimfs_options o = { .type = "dcp",
		.ids = "model",
		.follow = true },
			       got = { 0 };
	struct optimfs_error err = { 0 };
	struct optimfs *from;
	struct ofs_template t = { 0 };
	char *like, *reads;

	like = realpath(data_path("pytorch/dcp_fsdp2_w3/ckpt"), NULL);
	from = optimfs_open(like, &o, &err);
	if (from == NULL ||
	    optimfs_mkfs(from, "dcp@2,only=optim", in_scratch("kept"), &err) ==
		-1)
		bail_out("%s", err.text);
	ok(ofs_template_find(in_scratch("kept"), &t),
	    "a template is found beside its directory");
	is_int(ofs_template_options(&t, &got, &err), 0,
	    "its options are added to those of a mount");
	is_str(t.layout, "dcp@2,only=optim", "it has the layout");
	is_str(t.like, like, "it has the path of the source");
	is_str(got.type, "dcp", "it has the option type");
	is_str(got.ids, "model", "it has a word that is no file");
	ok(got.follow, "it has the option follow");
	ok(got.units == NULL && got.join == NULL,
	    "it has no option that was not given");
	is_int(ofs_template_options(&t, &got, &err), 0,
	    "a mount may have the same options");
	got.ids = like;
	is_int(ofs_template_options(&t, &got, &err), -1, "but no others");
	is_error(err, EINVAL, "OFS836", "other options of a mount: error text");
	got.ids = NULL;
	got.units = like;
	is_int(ofs_template_options(&t, &got, &err), -1, "nor more of them");
	got.units = NULL;
	got.fill = "zero";
	is_int(ofs_template_options(&t, &got, &err), 0,
	    "except fill, which may be given to the mount");
	is_int(ofs_template_same(&t, from->now->cat, &err), 0,
	    "a source whose files are the same is the same");
	from->now->cat->objects[0].mtime_ns++;
	is_int(ofs_template_same(&t, from->now->cat, &err), -1,
	    "it is another after a file was written");
	is_error(err, ESTALE, "OFS837",
	    "a source that has changed: error text");
	reads = optimfs_mkfs_reads(in_scratch("kept"));
	is_str(reads, like, "its mount reads the source");
	free(reads);
	ok(optimfs_mkfs_reads(in_scratch("full")) == NULL,
	    "the mount of another directory reads nothing else");
	ofs_template_fini(&t);
	optimfs_close(from);
	free(like);
}

/* Template descriptions that mkfs does not write. */
static void hostile(void)
{
	static const char *const lines[] = {
		"",
		"optimfs-template 2\nlayout dcp@1\nlike a\nend\n",
		"optimfs-template 3\nend\n",
		"optimfs-template 3\nlayout dcp@1\nend\n",
		"optimfs-template 3\nlayout dcp@1\nlike a\n",
		"optimfs-template 3\nlayout dcp@1\nlike a\nfile 8 a\nend\n",
		"optimfs-template 3\nlayout dcp@1\nlike a\ntype\nend\n",
		"optimfs-template 3\nlayout dcp@1\nlike a\nids b\nids c\n",
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
	refused();
	kept();
	hostile();
	scratch_remove();
	return done_testing();
}
