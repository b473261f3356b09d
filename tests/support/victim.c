/* victim.c - writers whose system calls are made to fail */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "victim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/map.h"
#include "fs/fs.h"
#include "support/faultlib.h"
#include "tap.h"

#define W     "layers.0.w1.weight"
#define STATE "optim/state/" W
#define LR    "optim/param_groups/0/lr"
/* of DeepSpeed, which has no weights that can be written */
#define MOMENT "optim/state/blocks.0.fc_in.weight/exp_avg"
/* of Megatron-Core: a weight alone would not be the one of its fp32 */
#define BUCKETS "optim/state/decoder.final_layernorm.weight/exp_avg"

static void mark(const char *text)
{
	ssize_t n = write(FAULT_MARK_FD, text, strlen(text));

	(void)n;
}

static int complain(const struct optimfs_error *err, int status)
{
	fprintf(stderr, "%s\n", err->text);
	return status;
}

static uint64_t node_of(struct optimfs *fs, const char *path)
{
	struct optimfs_attr attr;

	return optimfs_resolve(fs, path, &attr, NULL) == -1 ? 0 : attr.node;
}

static int put(struct optimfs *fs, uint64_t node, const void *bytes, size_t n,
    uint64_t off, bool truncate, struct optimfs_error *err)
{
	struct optimfs_file *f;
	int ret;

	if (optimfs_file_open_write(fs, node, truncate, &f, err) == -1)
		return -1;
	ret = optimfs_file_write(f, bytes, n, off, err);
	if (ret == 0)
		ret = optimfs_file_sync(f, err);
	optimfs_file_close(f);
	return ret;
}

static int add(struct optimfs *fs, const char *dir, const char *name,
    const char *text, struct optimfs_error *err)
{
	struct optimfs_attr attr;
	uint64_t up = node_of(fs, dir);

	if (optimfs_create(fs, up, name, false, &attr, err) == -1)
		return -1;
	return put(fs, attr.node, text, strlen(text), 0, true, err);
}

/* Any tensor with at least one dimension. */
static uint64_t any_tensor(const struct optimfs *fs)
{
	for (uint32_t i = 0; i < fs->now->tree.n; i++) {
		const struct ofs_entry *e =
		    &fs->now->cat->entries[fs->now->tree.node[i].entry];

		if (fs->now->tree.node[i].entry != OFS_NONE &&
		    !ofs_entry_is_text(fs->now->cat,
			fs->now->tree.node[i].entry) &&
		    ofs_tensor_bytes(fs->now->cat,
			ofs_entry_tensor(fs->now->cat, e)) >= 24)
			return ofs_node_of(OFS_SPACE_TREE, i);
	}
	return 0;
}

/* Changes a tensor's bytes and a value, removes a state, renames one and adds
 * one. */
static int change(struct optimfs *fs, struct optimfs_error *err)
{
	uint64_t w = node_of(fs, "model/" W), lr = node_of(fs, LR);
	uint64_t dir = node_of(fs, STATE);

	w = w == 0 ? node_of(fs, MOMENT) : w;
	w = w == 0 ? node_of(fs, BUCKETS) : w;
	w = w == 0 ? any_tensor(fs) : w;
	if (put(fs, w, "some other bytes", 16, 8, false, err) == -1)
		return -1;
	if (lr != 0 && put(fs, lr, "0.25\n", 5, 0, true, err) == -1)
		return -1;
	if (dir == 0 || node_of(fs, STATE "/exp_avg_sq") == 0)
		return 0;
	if (optimfs_remove(fs, dir, "exp_avg_sq", false, err) == -1 ||
	    optimfs_rename(fs, dir, "exp_avg", dir, "momentum", true, err) ==
		-1)
		return -1;
	return add(fs, "optim/param_groups/0", "fresh", "0.5\n", err);
}

static struct optimfs *open_rw(const char *ck, enum optimfs_recover recover,
    struct optimfs_error *err)
{
	struct optimfs_options o = { .rw = true, .recover = recover };
	struct optimfs *fs = optimfs_open(ck, &o, err);

	if (fs != NULL)
		mark(FAULT_OPEN);
	return fs;
}

/* Called while the lock is held: sets the mark, prints the error and returns
 * the exit status. */
static int report(int ret, const struct optimfs_error *err)
{
	mark(ret == -1 ? "failed" : FAULT_DONE);
	return ret == 0 ? VICTIM_DONE
	    : ret == 1  ? complain(err, VICTIM_UNSYNCED)
			: complain(err, VICTIM_FAILED);
}

static int finish(struct optimfs *fs, struct optimfs_error *err)
{
	int status = report(optimfs_commit(fs, NULL, NULL, err), err);

	optimfs_close(fs);
	return status;
}

static int victim_edit(const char *ck)
{
	struct optimfs_error err = { 0 };
	struct optimfs *fs = open_rw(ck, OPTIMFS_RECOVER_NO, &err);

	if (fs == NULL)
		return complain(&err, VICTIM_EARLY);
	if (change(fs, &err) == -1 || optimfs_sync(fs, &err) == -1) {
		optimfs_close(fs);
		return complain(&err, VICTIM_EARLY);
	}
	mark("staged");
	return finish(fs, &err);
}

static int victim_stage(const char *ck)
{
	struct optimfs_error err = { 0 };
	struct optimfs *fs = open_rw(ck, OPTIMFS_RECOVER_NO, &err);

	if (fs == NULL || change(fs, &err) == -1 ||
	    optimfs_sync(fs, &err) == -1)
		return complain(&err, VICTIM_EARLY);
	_exit(VICTIM_DONE);
}

static int victim_recover(const char *ck)
{
	struct optimfs_error err = { 0 };
	struct optimfs *fs = open_rw(ck, OPTIMFS_RECOVER_YES, &err);

	return fs == NULL ? complain(&err, VICTIM_EARLY) : finish(fs, &err);
}

static int victim_reshard(struct optimfs *fs, const char *out, const char *to)
{
	struct optimfs_error err = { 0 };
	struct optimfs_reshard how = { .to = to, .jobs = 1 };
	int ret = optimfs_reshard(fs, out, &how, &err);

	return report(ret, &err);
}

static int victim_mkfs(struct optimfs *fs, const char *out, const char *to)
{
	struct optimfs_error err = { 0 };
	int ret = optimfs_mkfs(fs, to, out, &err);

	return report(ret, &err);
}

/* The content of a file, malloc'ed. */
static uint8_t *whole(struct optimfs *fs, uint64_t node, size_t *n,
    struct optimfs_error *err)
{
	struct optimfs_file *f;
	uint8_t *buf;
	ssize_t got;

	if (optimfs_file_open(fs, node, &f, err) == -1)
		return NULL;
	*n = optimfs_file_size(f);
	buf = malloc(*n + 1);
	got = buf == NULL ? -1 : optimfs_file_read(f, buf, *n, 0, err);
	optimfs_file_close(f);
	if (got == (ssize_t)*n)
		return buf;
	free(buf);
	return NULL;
}

/* The parent directory of path, created if it does not exist. */
static int make_dirs(struct optimfs *fs, char *path, uint64_t *dir,
    struct optimfs_error *err)
{
	struct optimfs_attr attr;
	char *at = path;

	*dir = OPTIMFS_ROOT;
	for (char *slash; (slash = strchr(at, '/')) != NULL; at = slash + 1) {
		*slash = '\0';
		if (optimfs_lookup(fs, *dir, at, &attr, NULL) == -1 &&
		    optimfs_create(fs, *dir, at, true, &attr, err) == -1)
			return -1;
		*dir = attr.node;
		*slash = '/';
	}
	return 0;
}

static int copy_file(struct optimfs *from, uint32_t i, struct optimfs *to,
    bool other, struct optimfs_error *err)
{
	struct optimfs_attr attr;
	char path[5000];
	uint64_t dir;
	uint8_t *buf;
	size_t n;
	int ret;

	ofs_tree_path(&from->now->tree, i, path, sizeof(path));
	buf = whole(from, ofs_node_of(OFS_SPACE_TREE, i), &n, err);
	if (buf == NULL)
		return -1;
	if (other && strcmp(path, LR) == 0)
		n = (size_t)sprintf((char *)buf, "2\n");
	ret = make_dirs(to, path, &dir, err);
	if (ret == 0 &&
	    optimfs_lookup(to, dir, strrchr(path, '/') + 1, &attr, NULL) == -1)
		ret = optimfs_create(to, dir, strrchr(path, '/') + 1, false,
		    &attr, err);
	if (ret == 0)
		ret = put(to, attr.node, buf, n, 0, true, err);
	free(buf);
	return ret;
}

static int victim_fill(struct optimfs *from, const char *out, bool other)
{
	struct optimfs_error err = { 0 };
	struct optimfs *to = open_rw(out, OPTIMFS_RECOVER_YES, &err);
	int ret = 0;

	if (to == NULL)
		return complain(&err, VICTIM_EARLY);
	for (uint32_t i = 0; i < from->now->tree.n && ret == 0; i++)
		if (from->now->tree.node[i].entry != OFS_NONE)
			ret = copy_file(from, i, to, other, &err);
	if (ret == -1 || optimfs_sync(to, &err) == -1) {
		optimfs_close(to);
		return complain(&err, VICTIM_EARLY);
	}
	mark("staged");
	return finish(to, &err);
}

static int make_new(const char *verb, const char *ck, const char *to)
{
	struct optimfs_error err = { 0 };
	struct optimfs *fs = optimfs_open(ck, NULL, &err);
	char out[5000];
	int status;

	if (fs == NULL)
		return complain(&err, VICTIM_EARLY);
	snprintf(out, sizeof(out), VICTIM_OUT, ck);
	status = strcmp(verb, "reshard") == 0 ? victim_reshard(fs, out, to)
	    : strcmp(verb, "mkfs") == 0
	    ? victim_mkfs(fs, out, to)
	    : victim_fill(fs, out, strcmp(verb, "change") == 0);
	optimfs_close(fs);
	return status;
}

int victim_main(int argc, char **argv)
{
	const char *verb = argv[1];

	if (argc < 3)
		return 99;
	if (strcmp(verb, "edit") == 0)
		return victim_edit(argv[2]);
	if (strcmp(verb, "stage") == 0)
		return victim_stage(argv[2]);
	if (strcmp(verb, "recover") == 0)
		return victim_recover(argv[2]);
	return argc < 4 ? 99 : make_new(verb, argv[2], argv[3]);
}

static uint64_t digest_file(struct optimfs *fs, uint32_t i)
{
	struct optimfs_error err = { 0 };
	uint64_t sum;
	char path[5000];
	uint8_t *buf;
	size_t n;

	ofs_tree_path(&fs->now->tree, i, path, sizeof(path));
	sum = ofs_hash64(path, strlen(path));
	buf = whole(fs, ofs_node_of(OFS_SPACE_TREE, i), &n, &err);
	sum = buf == NULL ? sum * 37 + (uint64_t)err.code
			  : sum * 41 + ofs_hash64(buf, n);
	free(buf);
	return sum;
}

uint64_t victim_digest(const char *ck, uint64_t *problems)
{
	struct optimfs_error err = { 0 };
	struct optimfs *fs = optimfs_open(ck, NULL, &err);
	uint64_t sum = 1;

	*problems = 0;
	if (fs == NULL) {
		diag("%s: %s", ck, err.text);
		return 0;
	}
	for (uint32_t i = 0; i < fs->now->tree.n; i++)
		if (fs->now->tree.node[i].entry != OFS_NONE)
			sum += digest_file(fs, i);
	if (optimfs_fsck(fs, true, NULL, NULL, problems, &err) == -1)
		diag("%s: %s", ck, err.text);
	optimfs_close(fs);
	return sum;
}
