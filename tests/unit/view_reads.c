/* view_reads.c - what laying out views reads: each element once */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "optimfs/optimfs.h"

#include "fs/walk.h"
#include "tap.h"

static struct optimfs *fs;

/* The number of requests for elements until now. */
static uint64_t requests(void)
{
	static const char name[] = "local.requests ";
	struct optimfs_error err;
	struct optimfs_attr attr;
	struct optimfs_file *file;
	char text[4096] = "";
	const char *at;

	if (optimfs_resolve(fs, ".optimfs/stats", &attr, &err) == -1 ||
	    optimfs_file_open(fs, attr.node, &file, &err) == -1)
		bail_out("%s", err.text);
	if (optimfs_file_read(file, text, sizeof(text) - 1, 0, &err) == -1)
		bail_out("%s", err.text);
	optimfs_file_close(file);
	at = strstr(text, name);
	return at == NULL ? UINT64_MAX : strtoull(at + strlen(name), NULL, 10);
}

/* What a view in which all steps are equal reads. */
struct needed {
	uint64_t scalars; /* 0-dim tensors */
	uint64_t values;  /* other values, such as those of a group */
};

static int count(void *ctx, const struct ofs_walk_entry *e,
    struct optimfs_error *err)
{
	struct needed *n = ctx;
	char *dtype, *shape;

	(void)err;
	if (S_ISDIR(e->attr.mode))
		return 0;
	dtype = ofs_attribute(fs, e->attr.node, "dtype", NULL);
	shape = ofs_attribute(fs, e->attr.node, "shape", NULL);
	n->scalars += dtype != NULL && shape != NULL && *shape == '\0';
	n->values += dtype == NULL;
	free(dtype);
	free(shape);
	return 0;
}

static int pass(void *ctx, const struct optimfs_dirent *e)
{
	(void)ctx;
	(void)e;
	return 0;
}

/* Lists the files of a view; returns how many requests that took. */
static uint64_t lay_out(const char *view)
{
	uint64_t before = requests();
	struct optimfs_error err;
	struct optimfs_attr attr;
	char path[64];

	snprintf(path, sizeof(path), ".optimfs/view/%s", view);
	if (optimfs_resolve(fs, path, &attr, &err) == -1 ||
	    optimfs_readdir(fs, attr.node, 0, false, pass, NULL, &err) == -1)
		bail_out("%s: %s", view, err.text);
	return requests() - before;
}

int main(void)
{
	const char *top = getenv("TOP_SRCDIR");
	struct optimfs_options options = { 0 };
	struct optimfs_error err;
	struct needed needed = { 0 };
	uint64_t n;
	char path[4096];

	snprintf(path, sizeof(path), "%s/tests/data/pytorch/dcp_fsdp2_w4/ckpt",
	    top == NULL ? "." : top);
	fs = optimfs_open(path, &options, &err);
	if (fs == NULL)
		bail_out("%s", err.text);
	if (ofs_walk(fs, OPTIMFS_ROOT, 0, count, &needed, &err) == -1)
		bail_out("%s", err.text);
	n = lay_out("zero1@2");
	ok(needed.scalars > 20 && n > 0 &&
		n <= 2 * needed.scalars + needed.values,
	    "laying out zero1@2 finds and reads each 0-dim tensor once: "
	    "%" PRIu64 " requests for %" PRIu64 " of them and %" PRIu64
	    " values",
	    n, needed.scalars, needed.values);
	n = lay_out("zero2@2");
	ok(n <= needed.values, "zero2@2 reads none of them again: %" PRIu64, n);
	n = lay_out("zero3@3");
	ok(n <= needed.values, "nor does zero3@3: %" PRIu64, n);
	optimfs_close(fs);
	return done_testing();
}
