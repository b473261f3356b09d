/* tree.c - the tree of every fixture, compared with the values of its framework */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "optimfs/optimfs.h"

#include "base/buf.h"
#include "base/sha256.h"
#include "support/shown.h"
#include "support/truth.h"
#include "tap.h"

/* Where the checkpoint of a case lies. */
static const struct source {
	const char *name, *path;
	const char *dir;             /* of tests/data; NULL: pytorch */
	const char *units;           /* beside the checkpoint */
	const char *optim_key, *ids; /* options */
	bool more; /* files beside it show as well, below extra/ */
} sources[] = {
	{ .name = "checkpointable_w2", .path = "ckpt" },
	{ .name = "checkpointable_w2", .path = "ckpt_rankfiles" },
	{ .name = "dcp_3d_w8", .path = "ckpt" },
	{ .name = "dcp_async_w2", .path = "ckpt" },
	{ .name = "dcp_by_id_w2", .path = "ckpt" },
	{ .name = "dcp_ddp_w2", .path = "ckpt" },
	{ .name = "dcp_dtensor_shapes_w4", .path = "ckpt" },
	{ .name = "dcp_dtypes", .path = "ckpt" },
	{ .name = "dcp_fsdp2_flatosd_w4", .path = "ckpt" },
	{ .name = "dcp_fsdp2_multifile_w2", .path = "ckpt" },
	{ .name = "dcp_fsdp2_safetensors_w2", .path = "ckpt" },
	{ .name = "dcp_fsdp2_w1", .path = "ckpt" },
	{ .name = "dcp_fsdp2_w2", .path = "ckpt" },
	{ .name = "dcp_fsdp1_local_flat_w3",
	    .path = "ckpt",
	    .units = "units.json" },
	{ .name = "dcp_fsdp1_local_orig_w3",
	    .path = "ckpt",
	    .units = "units.json" },
	{ .name = "dcp_fsdp2_w3", .path = "ckpt" },
	{ .name = "dcp_fsdp2_w4", .path = "ckpt" },
	{ .name = "dcp_fsdp2_zstd_w2", .path = "ckpt" },
	{ .name = "dcp_hsdp_w4", .path = "ckpt" },
	{ .name = "dcp_names", .path = "ckpt" },
	{ .name = "dcp_opt_adagrad_w2", .path = "ckpt" },
	{ .name = "dcp_opt_amsgrad_w2", .path = "ckpt" },
	{ .name = "dcp_opt_sgd_w2", .path = "ckpt" },
	{ .name = "dcp_pp_w2", .path = "ckpt" },
	{ .name = "dcp_torch113", .path = "ckpt" },
	{ .name = "dcp_tp_fsdp_w4", .path = "ckpt" },
	{ .name = "dtypes_new", .path = "ckpt" },
	{ .name = "experimental_checkpointer_w3",
	    .path = "ckpt",
	    .more = true },
	{ .name = "experimental_checkpointer_w3",
	    .path = "ckpt/checkpoint_1.pt",
	    .more = true },
	{ .name = "fsdp1_local_flat_fullshard_w3",
	    .path = "ckpt",
	    .units = "units.json" },
	{ .name = "fsdp1_local_flat_fullshard_w3",
	    .path = "ckpt_local_sd",
	    .units = "units.json" },
	{ .name = "fsdp1_local_orig_fullshard_w2",
	    .path = "ckpt",
	    .units = "units.json" },
	{ .name = "fsdp1_local_orig_fullshard_w2",
	    .path = "ckpt_local_sd",
	    .units = "units.json" },
	{ .name = "fsdp1_sharded_flat_fullshard_w3", .path = "ckpt" },
	{ .name = "fsdp1_sharded_flat_fullshard_w3", .path = "ckpt_rankfiles" },
	{ .name = "fsdp1_sharded_flat_fullshard_w3",
	    .path = "ckpt_rankfiles/state_rank2.pt" },
	{ .name = "fsdp1_sharded_flat_fullshard_w3",
	    .path = "ckpt_full",
	    .more = true },
	{ .name = "fsdp1_sharded_flat_fullshard_w3",
	    .path = "ckpt_full",
	    .optim_key = "optimizer" },
	{ .name = "fsdp1_sharded_flat_fullshard_w3",
	    .path = "ckpt_full",
	    .optim_key = "optimizer_by_id",
	    .ids = "model" },
	{ .name = "fsdp1_sharded_orig_fullshard_w2", .path = "ckpt" },
	{ .name = "fsdp1_sharded_orig_fullshard_w2", .path = "ckpt_rankfiles" },
	{ .name = "fsdp1_sharded_orig_hybridshard_w4", .path = "ckpt" },
	{ .name = "fsdp1_sharded_orig_hybridshard_w4",
	    .path = "ckpt_rankfiles" },
	{ .name = "fsdp1_sharded_orig_noshard_w2", .path = "ckpt" },
	{ .name = "hf_storage_w2", .path = "ckpt" },
	{ .name = "gpt_tp2_dp2",
	    .path = "fully_reshardable",
	    .dir = "megatron",
	    .more = true },
	{ .name = "llama_dp2",
	    .path = "fully_reshardable",
	    .dir = "megatron",
	    .more = true },
	{ .name = "llama_dp2",
	    .path = "fully_reshardable/iter_0000003",
	    .dir = "megatron",
	    .more = true },
	{ .name = "llama_dp2",
	    .path = "dp_reshardable",
	    .dir = "megatron",
	    .more = true },
	{ .name = "named_optimizer_w2", .path = "ckpt" },
	{ .name = "rank_dtensor_fsdp2_tp_w4", .path = "ckpt" },
	{ .name = "safetensors_plain", .path = "ckpt" },
	{ .name = "torchsave_full", .path = "ckpt/state.pt" },
	{ .name = "torchsave_full", .path = "ckpt/state_legacy.pt" },
	{ .name = "torchtitan_like_w2", .path = "ckpt/step-3" },
	{ .dir = "deepspeed",
	    .name = "bf16opt_ws2",
	    .path = "ckpt",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "bf16opt_ws2",
	    .path = "ckpt_universal",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "v0.18.5_z3_ws2_bf16",
	    .path = "ckpt",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "v0.18.5_z3_ws2_bf16",
	    .path = "ckpt_universal",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "v0.18.5_z3_ws2_nozip",
	    .path = "ckpt",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "v0.18.5_z3_ws4_subgroups",
	    .path = "ckpt",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "v0.18.5_z3_ws4_subgroups",
	    .path = "ckpt_universal",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "v0.19.6_bf16opt_ws2",
	    .path = "ckpt",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "v0.19.6_z1_ws2_bf16",
	    .path = "ckpt",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "v0.19.6_z1_ws2_bf16",
	    .path = "ckpt_universal",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "v0.19.6_z1_ws2_elastic",
	    .path = "ckpt",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "v0.19.6_z2_ws3_muon",
	    .path = "ckpt",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "v0.19.6_z2_ws4_elastic",
	    .path = "ckpt",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "v0.19.6_z2_ws4_round_robin",
	    .path = "ckpt",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "z0_ws2_bf16",
	    .path = "ckpt",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "z1_ws1_bf16",
	    .path = "ckpt",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "z1_ws2_bf16",
	    .path = "ckpt",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "z1_ws2_fp32",
	    .path = "ckpt",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "z1_ws3_bf16",
	    .path = "ckpt",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "z1_ws4_bf16",
	    .path = "ckpt",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "z2_ws1_bf16",
	    .path = "ckpt",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "z2_ws2_bf16",
	    .path = "ckpt",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "z2_ws2_bf16",
	    .path = "ckpt_universal",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "z2_ws2_fp32",
	    .path = "ckpt",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "z2_ws2_nozip",
	    .path = "ckpt",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "z2_ws2_offload_cpu",
	    .path = "ckpt",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "z2_ws3_bf16",
	    .path = "ckpt",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "z2_ws4_poison",
	    .path = "ckpt",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "z2_ws4_round_robin",
	    .path = "ckpt",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "z3_ws1_bf16",
	    .path = "ckpt",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "z3_ws2_bf16",
	    .path = "ckpt",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "z3_ws2_fp32",
	    .path = "ckpt",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "z3_ws2_nozip",
	    .path = "ckpt",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "z3_ws2_offload_cpu",
	    .path = "ckpt",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "z3_ws2_subgroups",
	    .path = "ckpt",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "z3_ws2_two_tags",
	    .path = "ckpt",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "z3_ws2_two_tags/step2",
	    .path = "../ckpt/global_step2",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "z3_ws3_poison_subgroups",
	    .path = "ckpt",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "z3_ws4_bf16",
	    .path = "ckpt",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "z3_ws4_poison",
	    .path = "ckpt",
	    .more = true },
	{ .dir = "deepspeed",
	    .name = "z2_ws4_poison",
	    .path = "ckpt/global_step3",
	    .more = true },
};

/* A file that was read completely. */
struct content {
	struct optimfs_attr attr;
	uint8_t *bytes;
	size_t len;
};

static bool read_path(struct optimfs *fs, const char *path, struct content *c,
    struct optimfs_error *err)
{
	struct optimfs_file *file;
	ssize_t n;

	if (optimfs_resolve(fs, path, &c->attr, err) == -1 ||
	    optimfs_file_open(fs, c->attr.node, &file, err) == -1)
		return false;
	c->len = optimfs_file_size(file);
	c->bytes = malloc(c->len + 1);
	if (c->bytes == NULL)
		bail_out("no memory");
	n = optimfs_file_read(file, c->bytes, c->len + 1, 0, err);
	optimfs_file_close(file);
	if (n == (ssize_t)c->len &&
	    optimfs_getattr(fs, c->attr.node, &c->attr, err) == 0)
		return true;
	free(c->bytes);
	return false;
}

static bool attribute_is(struct optimfs *fs, uint64_t node, const char *name,
    const char *want)
{
	char *value;
	size_t len;
	bool same;

	if (optimfs_getxattr(fs, node, name, &value, &len, NULL) == -1)
		return false;
	same = strcmp(value, want) == 0;
	free(value);
	return same;
}

/* Removes the spaces outside of strings from a list. */
static void squeeze(struct ofs_buf *b)
{
	size_t n = 0;
	bool quoted = false;

	if (b->len == 0 || b->data[0] != '[')
		return;
	for (size_t i = 0; i < b->len; i++) {
		quoted ^= b->data[i] == '"';
		if (b->data[i] != ' ' || quoted)
			b->data[n++] = b->data[i];
	}
	b->len = n;
}

static bool same_text(const struct truth *l, const struct content *c)
{
	struct ofs_buf want = { 0 }, got = { 0 };
	bool same;

	shown_text(l, &want);
	ofs_buf_put(&got, c->bytes, c->len);
	if (l->shape == NULL && !l->literal)
		squeeze(&got);
	same = got.len == want.len &&
	    (got.len == 0 || memcmp(got.data, want.data, got.len) == 0);
	ofs_buf_fini(&want);
	ofs_buf_fini(&got);
	return same;
}

static const char *compare(struct optimfs *fs, const struct truth *l,
    const struct content *c)
{
	char sum[OFS_SHA256_HEX];

	if (!c->attr.exact || c->attr.size != c->len)
		return "st_size is not the size";
	if (l->shape != NULL &&
	    (!attribute_is(fs, c->attr.node, "user.optimfs.dtype", l->dtype) ||
		!attribute_is(fs, c->attr.node, "user.optimfs.shape",
		    l->shape)))
		return "dtype or shape";
	if (l->shape == NULL || l->shape[0] == '\0')
		return same_text(l, c) ? NULL : "text";
	if (c->len != l->bytes)
		return "size";
	ofs_sha256_of(c->bytes, c->len, sum);
	return strcmp(sum, l->sha256) == 0 ? NULL : "bytes";
}

/* The .npy of a tensor is a header, a multiple of 64 bytes, and its bytes. */
static const char *compare_npy(struct optimfs *fs, const char *path,
    const struct content *c)
{
	struct optimfs_error err;
	struct content npy;
	char name[8192];
	bool same;

	snprintf(name, sizeof(name), ".optimfs/npy/%s.npy", path);
	if (!read_path(fs, name, &npy, &err))
		return err.code == ENOENT ? NULL : "npy";
	same = npy.len >= c->len && (npy.len - c->len) % 64 == 0 &&
	    memcmp(npy.bytes, "\x93NUMPY\x01", 7) == 0 &&
	    memcmp(npy.bytes + npy.len - c->len, c->bytes, c->len) == 0 &&
	    npy.attr.size == npy.len;
	free(npy.bytes);
	return same ? NULL : "npy";
}

static bool check_leaf(struct optimfs *fs, const struct truth *l)
{
	struct optimfs_error err = { 0 };
	struct ofs_buf path = { 0 };
	struct content c = { 0 };
	const char *why = err.text;

	shown_path(l, &path);
	ofs_buf_putc(&path, '\0');
	if (read_path(fs, (char *)path.data, &c, &err)) {
		why = compare(fs, l, &c);
		if (why == NULL && l->shape != NULL && l->shape[0] != '\0')
			why = compare_npy(fs, (char *)path.data, &c);
		if (why != NULL && c.len < 100)
			diag("%.*s", (int)c.len, (char *)c.bytes);
		free(c.bytes);
	}
	if (why != NULL)
		diag("%s: %s", (char *)path.data, why);
	ofs_buf_fini(&path);
	return why == NULL;
}

/* A walk with attributes, like that of ls -lR. */
struct walk {
	struct optimfs *fs;
	uint64_t files, dirs, bad;
	bool sorted;
	char last[4096];
};

static int visit(void *ctx, const struct optimfs_dirent *e)
{
	struct walk *w = ctx, below = *w;
	struct optimfs_error err;

	w->sorted &= strcmp(w->last, e->name) < 0;
	snprintf(w->last, sizeof(w->last), "%s", e->name);
	if (e->mode == S_IFREG) {
		w->files++;
		return 0;
	}
	below.last[0] = '\0';
	below.dirs++;
	if (optimfs_readdir(w->fs, e->attr->node, 0, true, visit, &below,
		&err) == -1)
		below.bad++;
	w->files = below.files;
	w->dirs = below.dirs;
	w->bad = below.bad;
	w->sorted &= below.sorted;
	return 0;
}

static uint64_t read_bytes(struct optimfs *fs)
{
	static const char name[] = "\nlocal.read_bytes ";
	struct content c;
	struct optimfs_error err;
	uint64_t v = UINT64_MAX;
	char *at;

	if (!read_path(fs, ".optimfs/stats", &c, &err))
		return v;
	c.bytes[c.len] = '\0';
	at = strstr((char *)c.bytes, name);
	if (at != NULL)
		v = strtoull(at + strlen(name), NULL, 10);
	free(c.bytes);
	return v;
}

static void check_metadata(struct optimfs *fs, const struct source *s,
    size_t nleaves)
{
	struct walk w = { .fs = fs, .sorted = true };
	struct optimfs_error err;

	if (optimfs_readdir(fs, OPTIMFS_ROOT, 0, true, visit, &w, &err) == -1)
		w.bad++;
	is_u64(w.bad, 0, "%s/%s: every directory lists", s->name, s->path);
	ok(w.sorted, "%s/%s: every listing is sorted", s->name, s->path);
	if (s->more)
		ok(w.files > nleaves,
		    "%s/%s: the tree has more files than values", s->name,
		    s->path);
	else
		is_u64(w.files, nleaves,
		    "%s/%s: the tree has one file per value", s->name, s->path);
	is_u64(read_bytes(fs), 0, "%s/%s: listing reads no data", s->name,
	    s->path);
}

static void report(void *ctx, const struct optimfs_finding *f)
{
	(void)ctx;
	if (f->error)
		diag("%s: %s", f->path, f->text);
}

/* With ids=, params is in the order of IDs instead of that of the framework. */
static bool is_list_of_ids(const struct source *s, const struct truth *leaf)
{
	const char *last = strrchr(leaf->path, TRUTH_SEP[0]);

	return s->ids != NULL && last != NULL &&
	    strcmp(last + 1, "params") == 0;
}

static void check_source(const struct source *s)
{
	struct optimfs_options o = { .optim_key = s->optim_key, .ids = s->ids };
	struct optimfs_error err = { 0 };
	const char *dir = s->dir == NULL ? "pytorch" : s->dir;
	uint64_t problems = 1;
	struct truth *leaf;
	struct optimfs *fs;
	size_t n, good = 0;
	char path[256], units[512];

	snprintf(path, sizeof(path), "%s/%s", dir, s->name);
	leaf = truth_read(path, &n);
	if (s->units != NULL) {
		snprintf(path, sizeof(path), "%s/%s/%s", dir, s->name,
		    s->units);
		snprintf(units, sizeof(units), "%s", data_path(path));
		o.units = units;
	}
	snprintf(path, sizeof(path), "%s/%s/%s", dir, s->name, s->path);
	fs = optimfs_open(data_path(path), &o, &err);
	if (ok(fs != NULL, "%s/%s opens", s->name, s->path)) {
		if (s->optim_key == NULL)
			check_metadata(fs, s, n);
		for (size_t i = 0; i < n; i++)
			good += is_list_of_ids(s, &leaf[i]) ||
			    check_leaf(fs, &leaf[i]);
		is_u64(good, n, "%s/%s: every file has the framework's value",
		    s->name, s->path);
		ok(optimfs_fsck(fs, true, report, NULL, &problems, &err) == 0 &&
			problems == 0,
		    "%s/%s: fsck --data finds no error", s->name, s->path);
	} else {
		diag("%s", err.text);
	}
	optimfs_close(fs);
	truth_free(leaf, n);
}

static struct optimfs *open_with(const char *path,
    const struct optimfs_options *options)
{
	struct optimfs_error err;
	struct optimfs *fs = optimfs_open(data_path(path), options, &err);

	if (fs == NULL)
		diag("%s", err.text);
	return fs;
}

/* With ids=model each line of params is the name of a parameter with state: a
 * frozen parameter has no state by which it could be found. */
static void ids(void)
{
	struct optimfs_options o = { .ids = "model" };
	struct optimfs *fs =
	    open_with("pytorch/torchsave_full/ckpt/state.pt", &o);
	struct optimfs_error err;
	struct optimfs_attr attr;
	struct content c;
	size_t lines = 0, states = 0;
	char path[512];

	if (!ok(fs != NULL &&
		    read_path(fs, "optim/param_groups/0/params", &c, &err),
		"params can be read with ids=model"))
		return;
	c.bytes[c.len] = '\0';
	for (char *line = strtok((char *)c.bytes, "\n"); line != NULL;
	     line = strtok(NULL, "\n")) {
		snprintf(path, sizeof(path), "model/%s", line);
		lines += optimfs_resolve(fs, path, &attr, &err) == 0;
		snprintf(path, sizeof(path), "optim/state/%s/exp_avg", line);
		states += optimfs_resolve(fs, path, &attr, &err) == 0;
	}
	is_u64(lines, 11, "11 lines of params are names in model/");
	is_u64(states, 11, "11 lines of params are names in optim/state/");
	free(c.bytes);
	optimfs_close(fs);
}

static void subtree(void)
{
	struct optimfs_options o = { .subtree = "optim/state/norm.bias" };
	struct optimfs *fs = open_with("pytorch/dcp_fsdp2_w2/ckpt", &o);
	struct walk w = { .fs = fs, .sorted = true };
	struct optimfs_error err;

	if (!ok(fs != NULL, "a checkpoint opens with subtree="))
		return;
	optimfs_readdir(fs, OPTIMFS_ROOT, 0, true, visit, &w, &err);
	is_u64(w.files, 3, "subtree= shows only the files below it");
	is_u64(w.dirs, 3, "subtree= shows the directories that lead to it");
	optimfs_close(fs);
	o.subtree = "optim/stat";
	fs = optimfs_open(data_path("pytorch/dcp_fsdp2_w2/ckpt"), &o, &err);
	ok(fs == NULL, "opening with a missing subtree= fails");
	is_error(err, ENOENT, "OFS638",
	    "a missing subtree= is reported as OFS638");
}

int main(void)
{
	for (size_t i = 0; i < sizeof(sources) / sizeof(*sources); i++)
		check_source(&sources[i]);
	ids();
	subtree();
	return done_testing();
}
