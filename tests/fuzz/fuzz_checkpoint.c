/* fuzz_checkpoint.c - mutated checkpoints: all that a user does with one */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "optimfs/analyze.h"

#include "fs/walk.h"
#include "mutate.h"

/* Nothing takes long here because a file claims to be large. */
#define READ_MAX  ((size_t)64 << 10) /* of each file */
#define FILES_MAX 300                /* of each walk */
#define STOP_MAX  2000               /* calls of stop */

static void check(bool good)
{
	if (!good)
		abort();
}

/* Every failure has an errno value and words with a code. */
static void failed(const struct optimfs_error *err)
{
	check(err->code > 0 && err->number > 0 &&
	    strncmp(err->text, "OFS", 3) == 0);
}

static int remove_one(const char *path, const struct stat *st, int type,
    struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

static bool enough(void *ctx)
{
	return ++*(unsigned *)ctx > STOP_MAX;
}

/* What was seen of a tree. */
struct seen {
	struct optimfs *fs;
	unsigned files;
	char text[1024], tensor[1024]; /* paths of the first ones, or "" */
};

static void read_all(struct optimfs *fs, const struct optimfs_attr *attr)
{
	static char buf[READ_MAX];
	struct optimfs_file *file;
	struct optimfs_error err;
	uint64_t size;
	ssize_t n;

	if (optimfs_file_open(fs, attr->node, &file, &err) == -1) {
		failed(&err);
		return;
	}
	size = optimfs_file_size(file);
	n = optimfs_file_read(file, buf, sizeof(buf), 0, &err);
	if (n == -1)
		failed(&err);
	else
		check((uint64_t)n == (size < sizeof(buf) ? size : sizeof(buf)));
	check(optimfs_file_read(file, buf, 1, size, &err) <= 0);
	if (size > sizeof(buf) &&
	    optimfs_file_read(file, buf, sizeof(buf), size - 7, &err) == -1)
		failed(&err);
	optimfs_file_close(file);
}

static void read_attributes(struct optimfs *fs, uint64_t node)
{
	struct optimfs_error err;
	char *names, *value;
	size_t n, len;

	if (optimfs_listxattr(fs, node, &names, &n, &err) == -1)
		return;
	for (char *p = names; p < names + n; p += strlen(p) + 1) {
		if (optimfs_getxattr(fs, node, p, &value, &len, &err) == 0)
			free(value);
		else
			failed(&err);
	}
	free(names);
	if (optimfs_getxattr(fs, node, "user.optimfs.shards", &value, &len,
		&err) == 0)
		free(value);
}

static int see(void *ctx, const struct ofs_walk_entry *e,
    struct optimfs_error *err)
{
	struct seen *s = ctx;
	char *kind;

	(void)err;
	if (S_ISDIR(e->attr.mode))
		return 0;
	if (++s->files > FILES_MAX)
		return -1;
	read_attributes(s->fs, e->attr.node);
	read_all(s->fs, &e->attr);
	kind = ofs_attribute(s->fs, e->attr.node, "kind", NULL);
	if (kind != NULL && strcmp(kind, "scalar") == 0 && s->text[0] == '\0')
		snprintf(s->text, sizeof(s->text), "%s", e->path);
	if (kind != NULL && strcmp(kind, "tensor") == 0 && s->tensor[0] == '\0')
		snprintf(s->tensor, sizeof(s->tensor), "%s", e->path);
	free(kind);
	return 0;
}

static void see_below(struct seen *s, const char *path)
{
	struct optimfs_attr attr;
	struct optimfs_error err;

	s->files = 0;
	if (optimfs_resolve(s->fs, path, &attr, &err) == -1)
		failed(&err);
	else
		(void)ofs_walk(s->fs, attr.node, 0, see, s, &err);
}

static void report(void *ctx, const struct optimfs_finding *f)
{
	(void)ctx;
	check(f->text != NULL && f->path != NULL);
}

static void examine(struct optimfs *fs)
{
	unsigned calls = 0;
	struct optimfs_scan how = { .jobs = 1, .stop = enough, .ctx = &calls };
	const struct optimfs_watch watch = { .stop = enough, .ctx = &calls };
	struct optimfs_checkup out = { 0 };
	struct optimfs_error err;
	uint64_t n;

	optimfs_watch(fs, &watch);
	if (optimfs_fsck(fs, true, report, NULL, &n, &err) == -1)
		failed(&err);
	calls = 0;
	if (optimfs_check(fs, &how, &out, &n, &err) == -1)
		failed(&err);
	free(optimfs_summary(fs, "", OPTIMFS_SUMMARY_BOTH, &err));
	free(optimfs_summary(fs, "", OPTIMFS_SUMMARY_LINE, &err));
}

/* Opens it and reads everything; 0 if it could be opened. */
static int look(const char *dir, const struct optimfs_options *opt,
    const char *view, struct seen *s)
{
	struct optimfs_error err;
	char path[128];

	*s = (struct seen){ .fs = optimfs_open(dir, opt, &err) };
	if (s->fs == NULL) {
		failed(&err);
		return -1;
	}
	see_below(s, "");
	see_below(s, ".optimfs/npy");
	see_below(s, ".optimfs/layout");
	see_below(s, ".optimfs/rank");
	see_below(s, ".optimfs/tensors.tsv");
	snprintf(path, sizeof(path), ".optimfs/view/%s", view);
	see_below(s, path);
	examine(s->fs);
	optimfs_close(s->fs);
	return 0;
}

static int put(struct optimfs *fs, const char *path, const void *bytes,
    size_t n, bool truncate)
{
	struct optimfs_attr attr;
	struct optimfs_file *file;
	int ret;

	if (path[0] == '\0' || optimfs_resolve(fs, path, &attr, NULL) == -1 ||
	    optimfs_file_open_write(fs, attr.node, truncate, &file, NULL) == -1)
		return -1;
	ret = optimfs_file_write(file, bytes, n, 0, NULL);
	if (ret == 0)
		ret = optimfs_file_flush(file, NULL);
	optimfs_file_close(file);
	return ret;
}

static void expect(const char *dir, const struct optimfs_options *opt,
    const char *path, const char *text)
{
	struct optimfs *fs = optimfs_open(dir, opt, NULL);
	struct optimfs_attr attr;
	struct optimfs_file *file;
	char buf[64];
	ssize_t n;

	check(fs != NULL && optimfs_resolve(fs, path, &attr, NULL) == 0);
	check(optimfs_file_open(fs, attr.node, &file, NULL) == 0);
	n = optimfs_file_read(file, buf, sizeof(buf), 0, NULL);
	check(n == (ssize_t)strlen(text) &&
	    memcmp(buf, text, strlen(text)) == 0);
	optimfs_file_close(file);
	optimfs_close(fs);
}

/* Edits a value and a tensor. A commit that succeeds leaves a checkpoint that
 * has the edit. */
static void edit(const char *dir, const struct optimfs_options *opt,
    const struct seen *s)
{
	static const char text[] = "0.25\n";
	struct optimfs_options rw = *opt;
	struct optimfs_error err;
	struct optimfs *fs;
	bool edited;
	int ret;

	rw.rw = true;
	rw.strict = false;
	rw.recover = OPTIMFS_RECOVER_DISCARD;
	fs = optimfs_open(dir, &rw, &err);
	if (fs == NULL) {
		failed(&err);
		return;
	}
	edited = put(fs, s->text, text, strlen(text), true) == 0;
	(void)put(fs, s->tensor, "x", 1, false);
	ret = optimfs_commit(fs, NULL, NULL, &err);
	if (ret == -1)
		failed(&err);
	optimfs_close(fs);
	rw.rw = false;
	if (ret == 0 && edited)
		expect(dir, &rw, s->text, text);
}

static void use(const char *dir, uint8_t how)
{
	static const char *const views[] = { "dcp@3", "torch", "fsdp@2",
		"zero2@2", "safetensors", "universal", "dcp-st@2,zstd",
		"safetensors,hf" };
	const struct optimfs_options opt = {
		.cache = 1 << 20,
		.max_metadata = 64 << 20,
		.parse_mem = 256 << 20,
		.run = OPTIMFS_RUN_AUTO,
		.strict = (how & 8) != 0,
		.follow = (how & 16) != 0,
		.ids = (how & 32) != 0 ? "model" : NULL,
		.fill = (how & 64) != 0 ? "zero" : NULL,
	};
	struct seen s;

	if (look(dir, &opt, views[how % 8], &s) == 0)
		edit(dir, &opt, &s);
}

/* In memory, where syncs cost nothing. */
static void make_top(char *top, size_t n)
{
	static const char memory[] = "/dev/shm";
	const char *dir = getenv("TMPDIR");

	if (dir == NULL)
		dir = access(memory, W_OK) == 0 ? memory : "/tmp";
	snprintf(top, n, "%s/optimfs-fuzz.XXXXXX", dir);
	if (mkdtemp(top) == NULL) {
		perror(top);
		exit(1);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	char top[256], dir[264];
	struct mutate m;

	if (n < 2)
		return 0;
	make_top(top, sizeof(top));
	snprintf(dir, sizeof(dir), "%s/ck", top);
	mutate_make(&m, bytes + 1, n - 1);
	mutate_write(&m, dir);
	mutate_free(&m);
	use(dir, bytes[0]);
	(void)nftw(top, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	return 0;
}
