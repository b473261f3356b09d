/* commit.c - edits of real checkpoints, committed and read again */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "commit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/edited.h"
#include "support/truth.h"
#include "sys.h"
#include "tap.h"

#define W "layers.0.w1.weight"

static const uint64_t row[] = { 5, 3 };

static void commits(struct edited *e, const char *name)
{
	struct optimfs_error err = { 0 };

	is_int(edited_commit(e, &err), 0, "%s: is committed (%s)", name,
	    err.text);
	is_int(edited_differs(e, false), 0, "%s: has the edits and no others",
	    name);
	is_int(edited_fsck(e), 0, "%s: fsck finds nothing", name);
}

/* Bytes of tensors and values: every DCP there is. */
static void test_values(const char *name, const char *tensor, const char *other)
{
	struct edited e;

	edited_init(&e, name, NULL);
	edited_bytes(&e, tensor, 0, 0);
	edited_bytes(&e, other, 5, 11);
	edited_text(&e, "optim/param_groups/0/lr", "0.25\n", NULL);
	commits(&e, name);
	edited_fini(&e);
}

/* Names: what is removed, moved and new. */
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
	commits(&e, name);
	edited_fini(&e);
}

/* What cannot be placed is named, and nothing has changed. */
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
	is_int(edited_commit(&e, &err), -1, "%s: takes no further tensor",
	    name);
	is_error(err, code, text, "%s: and says which", name);
	is_int(edited_differs(&e, true), 0, "%s: nothing has changed", name);
	edited_fini(&e);
}

/* Checkpoints that have the model of most fixtures. */
static const struct {
	const char *name;
	bool names, tensor; /* state can be moved, and added */
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
	/* torch.save: whole, and one file of each rank; the first has its
	 * optimizer twice, which it would not any more */
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
	test_refused("pytorch/dcp_fsdp2_safetensors_w2/ckpt", W, EINVAL,
	    "OFS826 ");
	test_refused("pytorch/fsdp1_sharded_orig_fullshard_w2/ckpt_rankfiles",
	    W, EINVAL, "OFS826 ");
	return done_testing();
}
