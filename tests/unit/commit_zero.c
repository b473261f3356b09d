/* format/zero/update.c - commits of edits to DeepSpeed checkpoints */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fs/commit.h"
#include "support/edited.h"
#include "support/listing.h"
#include "tap.h"

#define W "blocks.0.fc_out.weight"
/* Trained in fp32, so weights and master weights are the same bytes. */
#define SAME "deepspeed/z3_ws2_fp32/ckpt"

/* The commit fails with this code and text, and changes nothing. */
static void refuses(struct edited *e, const char *name, int code,
    const char *text)
{
	struct optimfs_error err = { 0 };

	is_int(edited_commit(e, &err), -1, "%s: the commit fails", name);
	is_error(err, code, text,
	    "%s: the commit fails with the expected error", name);
	is_int(edited_differs(e, true), 0,
	    "%s: the failed commit changes nothing", name);
	edited_fini(e);
}

/* Sets the step of every parameter. */
static void set_steps(struct edited *e, const char *text)
{
	char path[5000];

	for (uint32_t i = 0; i < e->fs->now->tree.n; i++) {
		if (e->fs->now->tree.node[i].entry == OFS_NONE)
			continue;
		ofs_tree_path(&e->fs->now->tree, i, path, sizeof(path));
		if (strncmp(path, "optim/state/", 12) == 0 &&
		    strcmp(strrchr(path, '/'), "/step") == 0)
			edited_text(e, path, text, NULL);
	}
}

/* Edits tensors of flat groups, weights, steps, options and extra values. */
static void test_all(const char *name, const char *step, bool rounded)
{
	struct edited e;

	edited_init(&e, name, NULL);
	edited_bytes(&e, "optim/state/" W "/fp32", 0, 0);
	if (rounded)
		edited_follows(&e, "model/" W, "optim/state/" W "/fp32");
	edited_bytes(&e, "optim/state/" W "/exp_avg", 5, 11);
	edited_bytes(&e, "optim/state/blocks.1.ln.bias/exp_avg_sq", 0, 0);
	if (strcmp(name, SAME) == 0)
		edited_bytes(&e, "model/" W, 0, 0);
	else if (!rounded)
		edited_bytes(&e, "model/blocks.1.ln.bias", 0, 3);
	edited_bytes(&e, "model/counter", 8, 16);
	set_steps(&e, step);
	if (listing_has(e.fs, "optim/param_groups/0/lr")) {
		edited_text(&e, "optim/param_groups/0/lr", "0.25\n", NULL);
		edited_text(&e, "optim/param_groups/0/betas", "[0.5, 0.75]\n",
		    NULL);
		edited_add_text(&e, "optim/param_groups/0/fresh", "0.5\n",
		    NULL);
	}
	edited_text(&e, "extra/global_steps", "17\n", NULL);
	edited_add_text(&e, "extra/fresh", "18\n", NULL);
	edited_remove(&e, "extra/note");
	edited_commits(&e, name);
	edited_fini(&e);
}

static void test_refused(void)
{
	static const uint64_t shape[] = { 10, 21 };
	static const char z1[] = "deepspeed/z1_ws2_bf16/ckpt";
	static const char z3[] = "deepspeed/z3_ws2_subgroups/ckpt";
	struct edited e;

	edited_init(&e, z1, NULL);
	edited_text(&e, "optim/state/" W "/step", "7.0\n", NULL);
	refuses(&e, "changing the step of one parameter of a group", EINVAL,
	    "OFS828 ");
	edited_init(&e, z1, NULL);
	edited_add(&e, "optim/state/" W "/fresh", OFS_FLOAT32, shape, 2);
	refuses(&e, "adding a state to a ZeRO 1 checkpoint", EINVAL,
	    "OFS826 optim/state/" W "/fresh");
	edited_init(&e, z1, NULL);
	edited_remove(&e, "optim/state/" W "/exp_avg");
	refuses(&e, "removing a state of one parameter", EINVAL,
	    "OFS826 optim/state/" W "/exp_avg");
	edited_init(&e, z3, NULL);
	edited_rename(&e, "optim/state/" W "/exp_avg",
	    "optim/state/" W "/momentum");
	refuses(&e, "renaming a state of one parameter", EINVAL, "OFS826 ");
	edited_init(&e, z1, NULL);
	edited_remove(&e, "model/" W);
	refuses(&e, "removing a weight", EINVAL, "OFS826 model/" W);
	edited_init(&e, z1, NULL);
	edited_text(&e, "optim/param_groups/0/params", "pos\n", NULL);
	refuses(&e, "changing the parameters of a group", EINVAL,
	    "OFS826 optim/param_groups/0/params");
	edited_init(&e, z1, NULL);
	edited_bytes(&e, "model/emb.weight", 0, 0);
	refuses(&e, "changing one of two tensors with a common storage", EINVAL,
	    "OFS828 ");
	edited_init(&e, z3, NULL);
	edited_bytes(&e, "model/" W, 0, 4);
	refuses(&e, "changing rounded weights without their fp32 master",
	    EINVAL, "OFS822 model/" W);
	edited_init(&e, z3, NULL);
	edited_bytes(&e, "model/" W, 0, 4);
	edited_bytes(&e, "optim/state/" W "/fp32", 0, 4);
	refuses(&e, "changing rounded weights and fp32 master differently",
	    EINVAL, "OFS822 model/" W);
	edited_init(&e, SAME, NULL);
	edited_bytes(&e, "optim/state/" W "/fp32", 0, 4);
	refuses(&e, "changing an fp32 master without its identical weight",
	    EINVAL, "OFS828 ");
}

/* The nth parameter that has this state, and its tensor; NULL if there are
 * fewer. */
static const char *param(struct edited *e, const char *name, unsigned n,
    const struct ofs_tensor **t)
{
	static char path[5000];

	for (uint32_t i = 0; i < e->fs->now->tree.n; i++) {
		uint32_t entry = e->fs->now->tree.node[i].entry;

		if (entry == OFS_NONE ||
		    strcmp(e->fs->now->tree.node[i].name, name) != 0)
			continue;
		ofs_tree_path(&e->fs->now->tree, i, path, sizeof(path));
		if (strncmp(path, "optim/state/", 12) != 0 || n-- > 0)
			continue;
		*strrchr(path, '/') = '\0';
		*t = ofs_entry_tensor(e->fs->now->cat,
		    &e->fs->now->cat->entries[entry]);
		return path;
	}
	return NULL;
}

enum do_state { REMOVE, RENAME, ADD };

/* Changes a state of all parameters but the first skip. */
static void change_state(struct edited *e, enum do_state what, const char *name,
    const char *to, unsigned skip)
{
	const struct ofs_tensor *t;
	char from[5100], other[5100];
	const char *path;

	for (unsigned n = skip; (path = param(e, name, n, &t)) != NULL; n++) {
		snprintf(from, sizeof(from), "%s/%s", path, name);
		snprintf(other, sizeof(other), "%s/%s", path,
		    to == NULL ? "" : to);
		if (what == REMOVE)
			edited_remove(e, from);
		else if (what == RENAME)
			edited_rename(e, from, other);
		else
			edited_add(e, other, t->dtype,
			    ofs_tensor_shape(e->fs->now->cat, t), t->ndim);
	}
}

/* Edits that add, remove and rename files of a universal checkpoint. */
static void test_universal(const char *name)
{
	static const uint64_t shape[] = { 10, 21 };
	struct edited e;

	edited_init(&e, name, NULL);
	change_state(&e, REMOVE, "exp_avg_sq", NULL, 0);
	edited_commits(&e, "removing a state of all parameters");
	edited_fini(&e);
	edited_init(&e, name, NULL);
	change_state(&e, RENAME, "exp_avg", "momentum_buffer", 0);
	change_state(&e, REMOVE, "exp_avg_sq", NULL, 0);
	change_state(&e, ADD, "fp32", "fresh", 0);
	edited_bytes(&e, "optim/state/" W "/fp32", 5, 11);
	edited_text(&e, "extra/global_steps", "17\n", NULL);
	if (strstr(name, "z3") != NULL)
		edited_follows(&e, "model/" W, "optim/state/" W "/fp32");
	edited_commits(&e,
	    "renaming, removing and adding states of all parameters");
	edited_fini(&e);
	edited_init(&e, name, NULL);
	change_state(&e, REMOVE, "exp_avg_sq", NULL, 1);
	refuses(&e, "removing a state of all parameters but one", EINVAL,
	    "OFS826 optim/state/");
	edited_init(&e, name, NULL);
	edited_add(&e, "optim/state/" W "/fresh", OFS_FLOAT32, shape, 2);
	refuses(&e, "adding a state to one parameter", EINVAL,
	    "OFS826 optim/state/" W "/fresh");
	edited_init(&e, name, NULL);
	change_state(&e, REMOVE, "fp32", NULL, 0);
	refuses(&e, "removing fp32 of all parameters", EINVAL,
	    "OFS826 optim/state/");
	edited_init(&e, name, NULL);
	edited_add(&e, "optim/state/other/exp_avg", OFS_FLOAT32, shape, 2);
	refuses(&e, "adding a parameter", EINVAL, "OFS826 optim/state/other");
}

/* After a failure at any call of a commit, the checkpoint is the old one or the
 * new one. */
static void change_values(struct edited *e)
{
	edited_bytes(e, "optim/state/" W "/fp32", 0, 0);
	edited_text(e, "extra/global_steps", "17\n", NULL);
	set_steps(e, "7.0\n");
}

static void change_names(struct edited *e)
{
	edited_bytes(e, "optim/state/" W "/fp32", 0, 0);
	edited_text(e, "extra/global_steps", "17\n", NULL);
	change_state(e, RENAME, "exp_avg", "momentum", 0);
}

int main(void)
{
	test_all("deepspeed/z1_ws2_bf16/ckpt", "7.0\n", false);
	test_all("deepspeed/z2_ws4_round_robin/ckpt", "7.0\n", false);
	test_all("deepspeed/z2_ws2_nozip/ckpt", "7.0\n", false);
	test_all("deepspeed/v0.19.6_z2_ws4_elastic/ckpt", "7.0\n", false);
	test_all("deepspeed/bf16opt_ws2/ckpt", "7.0\n", false);
	test_all("deepspeed/z2_ws2_offload_cpu/ckpt", "7.0\n", false);
	test_all("deepspeed/z3_ws2_subgroups/ckpt", "7.0\n", true);
	test_all("deepspeed/z3_ws3_poison_subgroups/ckpt", "7.0\n", true);
	test_all("deepspeed/z3_ws2_nozip/ckpt", "7.0\n", true);
	test_all(SAME, "7.0\n", false);
	test_all("deepspeed/v0.19.6_z1_ws2_bf16/ckpt_universal", "7.0\n",
	    false);
	test_all("deepspeed/v0.18.5_z3_ws4_subgroups/ckpt_universal", "7.0\n",
	    true);
	test_refused();
	test_universal("deepspeed/v0.19.6_z1_ws2_bf16/ckpt_universal");
	test_universal("deepspeed/v0.18.5_z3_ws4_subgroups/ckpt_universal");
	edited_faults("deepspeed/z2_ws2_nozip/ckpt", 7, change_values);
	edited_faults("deepspeed/v0.19.6_z1_ws2_bf16/ckpt_universal", 43,
	    change_values);
	edited_faults("deepspeed/v0.19.6_z1_ws2_bf16/ckpt_universal", 37,
	    change_names);
	return done_testing();
}
