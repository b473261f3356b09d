/* rewrite/commit.c - commits of edits to real checkpoints */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fs/commit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/edited.h"
#include "support/listing.h"
#include "support/truth.h"
#include "tap.h"

#define W "layers.0.w1.weight"

static const uint64_t row[] = { 5, 3 };

/* Edits bytes of two tensors and a learning rate. */
static void test_values(const char *name, const char *tensor, const char *other)
{
	struct edited e;

	edited_init(&e, name, NULL);
	edited_bytes(&e, tensor, 0, 0);
	edited_bytes(&e, other, 5, 11);
	edited_text(&e, "optim/param_groups/0/lr", "0.25\n", NULL);
	edited_commits(&e, name);
	edited_fini(&e);
}

/* Removes, renames and adds states and options. */
static void test_names(const char *name, const char *state, bool tensor)
{
	char from[200], to[200];
	struct edited e;

	edited_init(&e, name, NULL);
	snprintf(from, sizeof(from), "optim/state/%s/exp_avg_sq", state);
	edited_remove(&e, from);
	snprintf(from, sizeof(from), "optim/state/%s/exp_avg", state);
	snprintf(to, sizeof(to), "optim/state/%s/momentum", state);
	edited_rename(&e, from, to);
	snprintf(to, sizeof(to), "optim/state/%s/fresh", state);
	if (tensor)
		edited_add(&e, to, OFS_FLOAT32, row, 2);
	edited_add_text(&e, "optim/param_groups/0/fresh", "0.5\n", NULL);
	edited_text(&e, "optim/param_groups/0/betas", "[0.5, 1]\n",
	    "[0.5, 1.0]\n");
	edited_commits(&e, name);
	edited_fini(&e);
}

/* Moves tensors within the pickled state of an optimizer, out of it and into
 * it. */
static void test_nested(void)
{
	struct edited e;

	edited_init(&e, "pytorch/dcp_torch113/ckpt", NULL);
	edited_rename(&e, "optim/state/0/exp_avg", "optim/state/0/momentum");
	edited_rename(&e, "optim/state/1/exp_avg", "optim/state/2/momentum");
	edited_rename(&e, "optim/state/1/exp_avg_sq", "model/moved");
	edited_rename(&e, "model/model.1.bias", "optim/state/0/moved");
	edited_commits(&e, "tensors in and out of a pickled value");
	edited_fini(&e);
}

/* Writes the byte to all of a tensor like W, or looks for it there. */
static void fill(struct optimfs *fs, const char *path, int byte)
{
	struct optimfs_error err = { 0 };
	struct optimfs_file *f;
	uint8_t bytes[912];

	memset(bytes, byte, sizeof(bytes));
	if (optimfs_file_open_write(fs, listing_node(fs, path), false, &f,
		&err) == -1 ||
	    optimfs_file_write(f, bytes, sizeof(bytes), 0, &err) == -1)
		bail_out("%s: %s", path, err.text);
	optimfs_file_close(f);
}

static bool is_filled(struct optimfs *fs, const char *path, int byte)
{
	struct optimfs_error err = { 0 };
	uint8_t bytes[912];
	struct optimfs_file *f;
	bool same;

	if (optimfs_file_open(fs, listing_node(fs, path), &f, &err) == -1 ||
	    optimfs_file_read(f, bytes, sizeof(bytes), 0, &err) !=
		sizeof(bytes))
		bail_out("%s: %s", path, err.text);
	optimfs_file_close(f);
	same = true;
	for (size_t i = 0; i < sizeof(bytes); i++)
		same = same && bytes[i] == byte;
	return same;
}

/* Bytes that were written follow a renamed tensor, and a new tensor in its
 * place has its own. */
static void test_written_and_renamed(const char *name)
{
	static const char dir[] = "optim/state/" W;
	struct optimfs_options rw = { .rw = true, .explicit_commit = true };
	struct optimfs_error err = { 0 };
	struct optimfs_attr attr;
	struct optimfs *fs;
	struct edited e;
	uint64_t node;

	edited_init(&e, name, NULL);
	fs = optimfs_open(e.path, &rw, &err);
	if (fs == NULL)
		bail_out("%s", err.text);
	node = listing_node(fs, dir);
	fill(fs, "optim/state/" W "/exp_avg", 1);
	is_int(optimfs_rename(fs, node, "exp_avg", node, "first", false, &err),
	    0, "%s: rename a written tensor", name);
	fill(fs, "optim/state/" W "/exp_avg_sq", 2);
	is_int(optimfs_commit(fs, NULL, NULL, &err), 0, "%s: commit: %s", name,
	    err.text);
	ok(is_filled(fs, "optim/state/" W "/first", 1),
	    "%s: a renamed tensor has what was written before", name);
	node = listing_node(fs, dir);
	is_int(optimfs_rename(fs, node, "first", node, "second", false, &err),
	    0, "%s: rename a tensor", name);
	is_int(optimfs_create(fs, node, "first", false, &attr, &err), 0,
	    "%s: create a tensor in its place", name);
	fill(fs, "optim/state/" W "/first", 3);
	is_int(optimfs_commit(fs, NULL, NULL, &err), 0, "%s: commit: %s", name,
	    err.text);
	ok(is_filled(fs, "optim/state/" W "/second", 1),
	    "%s: a renamed tensor keeps its bytes", name);
	ok(is_filled(fs, "optim/state/" W "/first", 3),
	    "%s: a new tensor in the place of a renamed one has its own bytes",
	    name);
	optimfs_close(fs);
	edited_fini(&e);
}

/* Make the item of one tensor that of another, too. */
static void share_item(const char *index)
{
	static const char from[] = { 'J', (char)0xf4, 0x24, 1, 0 },
			  to[] = { 'J', (char)0xcb, 0x1e, 1, 0 };
	char bytes[65536], *at = NULL;
	int fd = open(index, O_RDWR | O_CLOEXEC);
	ssize_t n = fd == -1 ? -1 : pread(fd, bytes, sizeof(bytes), 0);

	if (n > 0)
		at = memmem(bytes, (size_t)n, from, sizeof(from));
	if (at == NULL || pwrite(fd, to, sizeof(to), at - bytes) != sizeof(to))
		bail_out("%s: %s", index, strerror(errno));
	close(fd);
}

/* Two keys of a DCP index that name one item do not change each other. */
static void test_shared_item(const char *name)
{
	static const char *const paths[] = { "optim/state/conv.bias/exp_avg",
		"optim/state/conv.bias/exp_avg_sq" };
	struct optimfs_options rw = { .rw = true, .explicit_commit = true };
	struct optimfs_error err = { 0 };
	struct optimfs_file *f;
	struct optimfs *fs;
	struct edited e;
	char index[300];

	edited_init(&e, name, NULL);
	snprintf(index, sizeof(index), "%s/.metadata", e.path);
	share_item(index);
	fs = optimfs_open(e.path, &rw, &err);
	if (fs == NULL)
		bail_out("%s", err.text);
	for (int i = 0; i < 2; i++) {
		if (optimfs_file_open_write(fs, listing_node(fs, paths[i]),
			false, &f, &err) == -1 ||
		    optimfs_file_write(f, "ABCD", 4, 12, &err) == -1)
			bail_out("%s: %s", paths[i], err.text);
		optimfs_file_close(f);
		err = (struct optimfs_error){ 0 };
		is_int(optimfs_commit(fs, NULL, NULL, &err), i - 1,
		    "commit of %d of two tensors in one item: %s", i + 1,
		    err.text);
		if (i == 0)
			is_error(err, EINVAL, "OFS828",
			    "commit of one of two tensors in one item: error");
	}
	optimfs_close(fs);
	edited_fini(&e);
}

/* Elements of one tensor that are stored once cannot become different. */
static void test_overlap(const char *path, uint64_t end)
{
	static const char name[] = "extra/torch_save/overlap.pt";
	struct optimfs_error err;
	struct edited e;

	edited_init(&e, name, NULL);
	edited_bytes(&e, path, 0, end);
	is_int(edited_commit(&e, &err), -1,
	    "%s: a commit of one of the elements that are stored once fails",
	    path);
	is_error(err, EINVAL, "OFS828 elements of model/",
	    "%s: a commit of one element that is stored for others: error",
	    path);
	is_u64(edited_differs(&e, true), 0,
	    "%s: after the commit that failed all is as before", path);
	edited_fini(&e);
	edited_init(&e, name, NULL);
	edited_bytes(&e, path, 0, 0);
	edited_commits(&e, path);
	edited_fini(&e);
}

/* A changed scalar tensor keeps its type under a name that nothing else has. */
static void test_renamed_scalar(void)
{
	const struct ofs_catalog *cat;
	struct optimfs_error err = { 0 };
	struct optimfs_attr attr;
	struct optimfs *fs;
	struct edited e;

	edited_init(&e, "pytorch/dcp_fsdp2_w2/ckpt", NULL);
	edited_rename(&e, "optim/state/" W "/step", "optim/state/" W "/count");
	e.changes.v[e.changes.n - 1].text = "7.0\n";
	e.changes.v[e.changes.n - 1].ntext = 4;
	is_int(edited_commit(&e, &err), 0, "commit a renamed scalar: %s",
	    err.text);
	fs = optimfs_open(e.path, NULL, &err);
	if (fs == NULL ||
	    optimfs_resolve(fs, "optim/state/" W "/count", &attr, &err) == -1)
		bail_out("%s", err.text);
	cat = fs->now->cat;
	is_int(cat->entries[fs->now->tree.node[attr.node - 1].entry].kind,
	    OFS_ENTRY_TENSOR, "a changed and renamed scalar is a tensor");
	optimfs_close(fs);
	edited_fini(&e);
}

/* A tensor that the format cannot store fails the commit by name. */
static void test_refused(const char *name, const char *state, int code,
    const char *text)
{
	struct optimfs_error err = { 0 };
	char to[200];
	struct edited e;

	edited_init(&e, name, NULL);
	edited_text(&e, "optim/param_groups/0/lr", "0.25\n", NULL);
	snprintf(to, sizeof(to), "optim/state/%s/fresh", state);
	edited_add(&e, to, OFS_FLOAT32, row, 2);
	is_int(edited_commit(&e, &err), -1,
	    "%s: a commit with a new tensor fails", name);
	is_error(err, code, text,
	    "%s: a commit with a new tensor fails with the expected error",
	    name);
	is_int(edited_differs(&e, true), 0,
	    "%s: the failed commit changes nothing", name);
	edited_fini(&e);
}

/* Edits one tensor and perhaps one value, in any kind of checkpoint. */
static void test_one(const char *name, const struct optimfs_options *options,
    const char *tensor, const char *value, const char *text)
{
	struct edited e;

	edited_init(&e, name, options);
	edited_bytes(&e, tensor, 3, 9);
	if (value != NULL)
		edited_text(&e, value, text, NULL);
	edited_commits(&e, name);
	edited_fini(&e);
}

/* All parameters of a flat parameter share one step. */
static void test_step(const char *name, const struct optimfs_options *options,
    const char *const *steps, size_t n)
{
	struct optimfs_error err = { 0 };
	struct edited e;

	edited_init(&e, name, options);
	edited_text(&e, steps[0], "7.0\n", NULL);
	is_int(edited_commit(&e, &err), -1,
	    "%s: changing the step of one parameter of a unit fails", name);
	is_error(err, EINVAL, "OFS828 ",
	    "%s: different steps in a unit fail with OFS828", name);
	is_int(edited_differs(&e, true), 0,
	    "%s: the failed commit changes nothing", name);
	edited_fini(&e);
	edited_init(&e, name, options);
	for (size_t i = 0; i < n; i++)
		edited_text(&e, steps[i], "7.0\n", NULL);
	edited_commits(&e, name);
	edited_fini(&e);
}

static void test_units(void)
{
	static const char *const steps[] = {
		"optim/state/layers.0.norm.weight/step",
		"optim/state/layers.0.norm.bias/step",
		"optim/state/layers.0.wq.weight/step",
		"optim/state/layers.0.wq.bias/step",
		"optim/state/layers.0.w1.weight/step",
		"optim/state/layers.0.w2.weight/step",
		"optim/state/layers.0.w2.bias/step",
	};
	static const char *const two[] = { "model/0.weight",
		"model/2.up.bias" };
	struct optimfs_options o = { 0 };
	struct edited e;
	char units[300];

	snprintf(units, sizeof(units), "%s",
	    data_path("pytorch/fsdp1_local_flat_fullshard_w3/units.json"));
	o.units = units;
	test_one("pytorch/fsdp1_local_flat_fullshard_w3/ckpt", &o, "model/" W,
	    "optim/param_groups/0/lr", "0.5\n");
	test_one("pytorch/fsdp1_local_flat_fullshard_w3/ckpt_local_sd", &o,
	    "optim/state/" W "/exp_avg", "optim/param_groups/0/lr", "0.5\n");
	test_step("pytorch/fsdp1_local_flat_fullshard_w3/ckpt_local_sd", &o,
	    steps, sizeof(steps) / sizeof(*steps));
	snprintf(units, sizeof(units), "%s",
	    data_path("pytorch/dcp_fsdp1_local_orig_w3/units.json"));
	test_one("pytorch/dcp_fsdp1_local_orig_w3/ckpt", &o,
	    "model/2.mid.weight", NULL, NULL);
	snprintf(units, sizeof(units), "%s",
	    data_path("pytorch/dcp_fsdp1_local_flat_w3/units.json"));
	/* of two flat parameters; not all ranks hold a part of both */
	edited_init(&e, "pytorch/dcp_fsdp1_local_flat_w3/ckpt", &o);
	for (size_t i = 0; i < 2; i++)
		edited_bytes(&e, two[i], 0, 0);
	edited_commits(&e, "two parameters");
	edited_fini(&e);
	snprintf(units, sizeof(units), "%s",
	    data_path("pytorch/fsdp1_local_orig_fullshard_w2/units.json"));
	test_one("pytorch/fsdp1_local_orig_fullshard_w2/ckpt", &o, "model/" W,
	    "optim/param_groups/0/lr", "0.5\n");
	test_one("pytorch/fsdp1_local_orig_fullshard_w2/ckpt_local_sd", &o,
	    "optim/state/" W "/exp_avg", "optim/state/" W "/step", "9.0\n");
}

/* After a failure at any call of a commit, the checkpoint is the old one or the
 * new one; if the commit returned -1, the old one. */
static void change_two(struct edited *e)
{
	edited_bytes(e, "model/" W, 0, 0);
	edited_text(e, "optim/param_groups/0/lr", "0.25\n", NULL);
}

/* The full checkpoint has its optimizer twice. After this edit the two differ,
 * and a reader would give the state other paths. */
static void test_elsewhere(void)
{
	struct optimfs_error err = { 0 };
	struct edited e;

	edited_init(&e, "pytorch/fsdp1_sharded_flat_fullshard_w3/ckpt_full",
	    NULL);
	edited_rename(&e, "optim/state/" W "/exp_avg",
	    "optim/state/" W "/momentum");
	is_int(edited_commit(&e, &err), -1,
	    "an edit that changes how names are read fails");
	is_error(err, EINVAL, "OFS827",
	    "an edit that changes how names are read fails with OFS827");
	is_int(edited_differs(&e, true), 0,
	    "the failed commit changes nothing");
	edited_fini(&e);
}

/* Changes the type of a tensor in an index behind the back of a mount, and
 * restores size and times. */
static void retype(const char *index)
{
	int fd = open(index, O_RDWR | O_CLOEXEC);
	uint8_t *at, *bytes;
	struct stat st;
	struct timespec times[2];

	if (fd == -1 || fstat(fd, &st) == -1 ||
	    (bytes = malloc((size_t)st.st_size)) == NULL ||
	    pread(fd, bytes, (size_t)st.st_size, 0) != st.st_size ||
	    (at = memmem(bytes, (size_t)st.st_size, "float32", 7)) == NULL ||
	    pwrite(fd, "float16", 7, at - bytes) != 7)
		bail_out("%s: %s", index, strerror(errno));
	times[0] = st.st_atim;
	times[1] = st.st_mtim;
	futimens(fd, times);
	free(bytes);
	close(fd);
}

/* The new files are verified with our reader before they are published. */
static void test_unsound(void)
{
	struct optimfs_error err = { 0 };
	struct edited e;
	char index[300];

	edited_init(&e, "pytorch/dcp_fsdp2_w2/ckpt", NULL);
	edited_text(&e, "optim/param_groups/0/lr", "0.25\n", NULL);
	snprintf(index, sizeof(index), "%s/.metadata", e.path);
	retype(index);
	is_int(edited_commit(&e, &err), -1,
	    "a commit whose new files have another element type fails");
	is_error(err, EUCLEAN, "OFS829",
	    "a commit whose new files have another type fails with OFS829");
	edited_fini(&e);
}

/* Checkpoints that have the model of most fixtures. */
static const struct {
	const char *name;
	bool names, tensor; /* states can be renamed; tensors can be added */
} usual[] = { { "pytorch/dcp_3d_w8/ckpt", true, true },
	{ "pytorch/dcp_async_w2/ckpt", true, true },
	{ "pytorch/dcp_ddp_w2/ckpt", true, true },
	{ "pytorch/dcp_fsdp2_multifile_w2/ckpt", true, true },
	{ "pytorch/dcp_fsdp2_safetensors_w2/ckpt", false, false },
	{ "pytorch/dcp_fsdp2_w1/ckpt", true, true },
	{ "pytorch/dcp_fsdp2_w3/ckpt", true, true },
	{ "pytorch/dcp_fsdp2_w4/ckpt", true, true },
#ifdef HAVE_ZSTD
	{ "pytorch/dcp_fsdp2_zstd_w2/ckpt", true, true },
#endif
	{ "pytorch/dcp_hsdp_w4/ckpt", true, true },
	{ "pytorch/dcp_opt_amsgrad_w2/ckpt", true, true },
	{ "pytorch/dcp_tp_fsdp_w4/ckpt", true, true },
	{ "pytorch/fsdp1_sharded_flat_fullshard_w3/ckpt", true, true },
	{ "pytorch/fsdp1_sharded_orig_hybridshard_w4/ckpt", true, true },
	/* torch.save, whole and with a file for each rank. The first has its
	 * optimizer twice, so renaming a state would change its paths. */
	{ "pytorch/fsdp1_sharded_flat_fullshard_w3/ckpt_full", false, false },
	{ "pytorch/fsdp1_sharded_flat_fullshard_w3/ckpt_rankfiles", true,
	    false },
	{ "pytorch/fsdp1_sharded_orig_fullshard_w2/ckpt_rankfiles", true,
	    false },
	{ "pytorch/fsdp1_sharded_orig_hybridshard_w4/ckpt_rankfiles", true,
	    false } };

int main(void)
{
	for (size_t i = 0; i < sizeof(usual) / sizeof(*usual); i++) {
		test_values(usual[i].name, "model/" W,
		    "optim/state/" W "/exp_avg");
		if (usual[i].names)
			test_names(usual[i].name, W, usual[i].tensor);
	}
	test_one("pytorch/dcp_torch113/ckpt", NULL, "model/model.0.weight",
	    "optim/param_groups/0/lr", "0.5\n");
	test_one("pytorch/dcp_by_id_w2/ckpt", NULL, "optim/state/0/exp_avg",
	    "optim/param_groups/0/lr", "0.5\n");
	test_one("pytorch/torchsave_full/ckpt/state.pt", NULL, "model/" W,
	    "optim/param_groups/1/lr", "0.5\n");
	test_one("pytorch/torchsave_full/ckpt/state_legacy.pt", NULL,
	    "model/" W, "optim/param_groups/1/lr", "0.5\n");
	test_one("pytorch/torchsave_full/ckpt", NULL,
	    "extra/state_legacy/model/" W,
	    "optim/state-optim/param_groups/0/lr", "0.5\n");
	test_one("pytorch/hf_storage_w2/ckpt", NULL, "model/adapter.weight",
	    NULL, NULL);
	test_one("pytorch/safetensors_plain/ckpt", NULL, "model/adapter.weight",
	    NULL, NULL);
	test_units();
	test_nested();
	test_renamed_scalar();
	test_overlap("model/expanded", 4);
	test_overlap("model/windows", 8);
	test_written_and_renamed("pytorch/dcp_fsdp2_w2/ckpt");
	test_shared_item("pytorch/dcp_fsdp2_w2/ckpt");
#ifdef HAVE_ZSTD
	test_written_and_renamed("pytorch/dcp_fsdp2_zstd_w2/ckpt");
#endif
	test_elsewhere();
	test_unsound();
	edited_faults("pytorch/dcp_fsdp2_w4/ckpt", 3, change_two);
	edited_faults("pytorch/fsdp1_sharded_flat_fullshard_w3/ckpt_rankfiles",
	    3, change_two);
	test_refused("pytorch/dcp_fsdp2_safetensors_w2/ckpt", W, EINVAL,
	    "OFS826 ");
	test_refused("pytorch/fsdp1_sharded_orig_fullshard_w2/ckpt_rankfiles",
	    W, EINVAL, "OFS826 ");
	return done_testing();
}
