/* detect/detect.c - detection of formats and trainers */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "detect/detect.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/dcp_writer.h"
#include "support/truth.h"
#include "tap.h"

/* What was detected, in a static buffer, as "trainer: format rel [prefix/...]
 * *rank ?; ..."; the text of the error if it failed. */
static const char *detect(const char *path, const char *rel, const char *type,
    struct optimfs_error *err)
{
	static struct ofs_buf b;
	struct optimfs_options opt = { .type = type };
	struct ofs_parts parts;
	struct ofs_dir dir;

	b.len = 0;
	if (ofs_dir_open(path, &dir, err) == -1)
		bail_out("%s", err->text);
	if (ofs_detect(&dir, rel, &opt, &parts, err) == -1) {
		ofs_dir_close(&dir);
		return err->text;
	}
	if (parts.trainer != NULL)
		ofs_buf_printf(&b, "%s: ", parts.trainer);
	for (size_t i = 0; i < parts.n; i++) {
		const struct ofs_part *p = &parts.part[i];

		ofs_buf_printf(&b, "%s%s", i == 0 ? "" : "; ", p->format->name);
		if (p->rel[0] != '\0')
			ofs_buf_printf(&b, " %s", p->rel);
		for (size_t k = 1; k < p->nfiles; k++)
			ofs_buf_printf(&b, " %s/%d", p->file[k].rel,
			    p->file[k].rank);
		for (int k = 0; k < 4 && p->prefix[k] != NULL; k++)
			ofs_buf_printf(&b, "%s%s", k == 0 ? " as " : "/",
			    p->prefix[k]);
		if (p->rank != -1)
			ofs_buf_printf(&b, " of %d", p->rank);
		if (p->optional)
			ofs_buf_puts(&b, "?");
	}
	for (size_t i = 0; i < parts.nleft; i++)
		ofs_buf_printf(&b, "; not %s", parts.left[i].path);
	ofs_buf_putc(&b, '\0');
	ofs_parts_free(&parts);
	ofs_dir_close(&dir);
	return (char *)b.data;
}

static void fixtures(void)
{
	static const char *const cases[][2] = {
		{ "pytorch/dcp_names/ckpt", "dcp" },
		{ "pytorch/torchtitan_like_w2/ckpt", "torchtitan: dcp step-3" },
		{ "pytorch/torchtitan_like_w2/ckpt/step-3", "torchtitan: dcp" },
		{ "pytorch/torchsave_full/ckpt",
		    "torch state.pt as state?; torch state_legacy.pt as "
		    "state_legacy?; torch views.pt as views?" },
		{ "pytorch/safetensors_plain/ckpt",
		    "safetensors model.safetensors as model" },
		{ "pytorch/hf_storage_w2/ckpt", "safetensors as model" },
		{ "extra/dcp_variants/hf_writer",
		    "safetensors model-00001-of-00001.safetensors as model; "
		    "safetensors model.safetensors.index.json as model; not "
		    "sharded" },
		{ "extra/dcp_variants/dcp_nocoll", "dcp" },
		{ "extra/dcp_variants/fsdp2_appstate_full", "dcp" },
		{ "extra/trainers/acc_v1_FULL_STATE_DICT",
		    "Accelerate: torch pytorch_model_fsdp.bin as model" },
		{ "extra/trainers/acc_v1_SHARDED_STATE_DICT",
		    "Accelerate: dcp pytorch_model_fsdp_0" },
		{ "extra/trainers/acc_v2_FULL_STATE_DICT",
		    "Accelerate: torch random_states_0.pkl as "
		    "random_states_0 of 0?; torch optimizer.bin as "
		    "optimizer?; torch pytorch_model_fsdp.bin as model?" },
		{ "extra/trainers/acc_v2_SHARDED_STATE_DICT",
		    "Accelerate: dcp pytorch_model_fsdp_0; dcp optimizer_0; "
		    "torch random_states_0.pkl as random_states_0 of 0?" },
		{ "extra/trainers/pl_sharded.ckpt",
		    "Lightning: dcp; torch meta.pt?" },
		{ "extra/trainers/fabric_sharded",
		    "Lightning: dcp; torch meta.pt?" },
		{ "extra/trainers/cudadcp", "dcp" },
	};
	struct optimfs_error err = { 0 };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		is_str(detect(data_path(cases[i][0]), "", NULL, &err),
		    cases[i][1], "parts of %s", cases[i][0]);
	is_str(detect(data_path("extra/trainers"), "pl_full.ckpt", NULL, &err),
	    "torch pl_full.ckpt", "a torch.save file is detected by itself");
	is_str(detect(data_path("extra/torch_save"), "legacy.pt", NULL, &err),
	    "torch legacy.pt",
	    "a legacy torch.save file is detected by itself");
}

/* Directories that the test makes. */

static void put_dcp(const char *dir, const char *rel)
{
	struct mk_index index = { .generation = MK_TORCH_2_11 };
	struct ofs_buf pk = { 0 };
	char name[128];

	mk_write_index(&pk, &index);
	snprintf(name, sizeof(name), "%s%s.metadata", rel,
	    rel[0] == '\0' ? "" : "/");
	mk_file(dir, name, pk.data, pk.len);
	ofs_buf_fini(&pk);
}

static void put_torch(const char *dir, const char *name)
{
	struct ofs_buf b = { 0 };

	mk_write_object(&b, "\x80\x04}.", 4);
	mk_file(dir, name, b.data, b.len);
	ofs_buf_fini(&b);
}

static void put_text(const char *dir, const char *name, const char *text)
{
	mk_file(dir, name, text, strlen(text));
}

static void put_safetensors(const char *dir, const char *name)
{
	mk_file(dir, name, "\2\0\0\0\0\0\0\0{}", 10);
}

static void fill_olmo(const char *dir)
{
	put_dcp(dir, "model_and_optim");
	put_torch(dir, "train/rank1.pt");
	put_torch(dir, "train/rank0.pt");
	put_text(dir, "train/notes", "");
	put_text(dir, ".metadata.json", "{}");
	put_text(dir, "config.json", "{}");
}

static void fill_hf(const char *dir)
{
	put_dcp(dir, "pytorch_model_fsdp_0");
	put_dcp(dir, "pytorch_model_fsdp_1");
	put_dcp(dir, "optimizer_0");
	put_torch(dir, "scheduler.pt");
	put_torch(dir, "rng_state_3.pth");
	put_text(dir, "trainer_state.json", "{}");
	put_text(dir, "tokenizer.bin", "no such thing");
}

static void fill_torchtune(const char *dir)
{
	put_torch(dir, "recipe_state.pt");
	put_safetensors(dir, "model-00001-of-00002.safetensors");
	put_safetensors(dir, "model-00002-of-00002.safetensors");
}

static void fill_megatron(const char *dir)
{
	put_dcp(dir, "");
	put_torch(dir, "common.pt");
	put_text(dir, "metadata.json", "{}");
}

static void fill_torch_dist(const char *dir)
{
	put_dcp(dir, "");
	put_text(dir, "metadata.json",
	    "{\"other\": [{}], \"sharded_backend\": \"torch_dist\", "
	    "\"sharded_backend_version\": 1}");
}

static void fill_nemo(const char *dir)
{
	put_dcp(dir, "weights");
	put_torch(dir, "weights/common.pt");
	put_text(dir, "context/model.yaml", "a: 1");
}

static void fill_unsharded(const char *dir)
{
	put_torch(dir, "model.pt");
	put_torch(dir, "optim.pt");
	put_torch(dir, "train.pt");
}

static void fill_ranks(const char *dir)
{
	put_torch(dir, "optim_rank0.pt");
	put_torch(dir, "optim_rank12.pt");
	put_torch(dir, "same.pt");
	put_torch(dir, "same.bin");
	mk_file(dir, "plain.pkl", "\x80\x04K\1.", 5);
	put_text(dir, "empty.pt", "");
}

static void fill_peft(const char *dir)
{
	put_safetensors(dir, "adapter_model.safetensors");
	put_text(dir, "adapter_config.json", "{}");
	put_torch(dir, "optimizer.pt");
	put_text(dir, "trainer_state.json", "{}");
}

static void fill_colossal(const char *dir)
{
	put_torch(dir, "pytorch_optim-00001.bin");
	put_torch(dir, "pytorch_optim-00002.bin");
	put_torch(dir, "pytorch_optim_group.bin");
	put_text(dir, "pytorch_optim.bin.index.json",
	    "{\"weight_map\": {\"0\": \"pytorch_optim-00001.bin\"}}");
}

static void fill_slices(const char *dir)
{
	put_safetensors(dir, "model-rank-0-part-0.safetensors");
	put_safetensors(dir, "model-rank-1-part-0.safetensors");
}

static void fill_verl(const char *dir)
{
	static const char *const names[] = { "extra_state", "model", "optim" };
	char name[64];

	for (int i = 0; i < 6; i++) {
		snprintf(name, sizeof(name), "%s_world_size_2_rank_%d.pt",
		    names[i / 2], i % 2);
		put_torch(dir, name);
	}
	put_text(dir, "fsdp_config.json", "{}");
}

static void fill_verl_of_one(const char *dir)
{
	put_torch(dir, "model_world_size_1_rank_0.pt");
	put_torch(dir, "optim_world_size_1_rank_0.pt");
}

/* Names that do not form a set of rank files. */
static void fill_others_of_one(const char *dir)
{
	put_torch(dir, "model.pt");
	put_torch(dir, "model_rank0.pt");
	put_torch(dir, "optim_rank3.pt");
	put_torch(dir, "world_size_8.pt");
}

static void fill_without_extension(const char *dir)
{
	put_torch(dir, "checkpoint.pth.tar");
	put_torch(dir, "do_00100000");
	put_torch(dir, "g_00100000");
	put_text(dir, "LICENSE", "none");
	put_torch(dir, "logs/events");
}

/* Model and optimizer in directories of their own. */

static void fill_members(const char *dir)
{
	put_dcp(dir, "model");
	put_dcp(dir, "optim");
}

static void fill_members_beside_file(const char *dir)
{
	fill_members(dir);
	put_torch(dir, "train_state.pt");
}

static void fill_weights_and_optimizer(const char *dir)
{
	put_dcp(dir, "weights");
	put_torch(dir, "optimizer/optimizer.pt");
	put_torch(dir, "optimizer/other.pt");
}

static void fill_file_and_optimizer(const char *dir)
{
	put_safetensors(dir, "model.safetensors");
	put_text(dir, "config.json", "{}");
	put_dcp(dir, "optimizer");
}

/* Weights for other programs in the directory of a model. */
static void fill_hub(const char *dir)
{
	put_safetensors(dir, "model.safetensors");
	put_torch(dir, "original/consolidated.00.pth");
	put_safetensors(dir, "2_Dense/model.safetensors");
}

/* One model in several forms. */

static void fill_both_formats(const char *dir)
{
	put_safetensors(dir, "model.safetensors");
	put_torch(dir, "pytorch_model.bin");
}

static void fill_both_sharded(const char *dir)
{
	put_safetensors(dir, "model-00001-of-00002.safetensors");
	put_safetensors(dir, "model-00002-of-00002.safetensors");
	put_text(dir, "model.safetensors.index.json", "{}");
	put_torch(dir, "pytorch_model-00001-of-00001.bin");
	put_text(dir, "pytorch_model.bin.index.json", "{}");
}

static void fill_both_accelerate(const char *dir)
{
	put_dcp(dir, "pytorch_model_fsdp_0");
	put_dcp(dir, "optimizer_0");
	put_torch(dir, "pytorch_model_fsdp.bin");
	put_torch(dir, "optimizer.bin");
}

static void fill_merged_accelerate(const char *dir)
{
	put_dcp(dir, "pytorch_model_fsdp_0");
	put_torch(dir, "pytorch_model_fsdp.bin");
	put_torch(dir, "optimizer.bin");
}

static void fill_adapter(const char *dir)
{
	put_safetensors(dir, "model.safetensors");
	put_safetensors(dir, "adapter_model.safetensors");
	put_torch(dir, "adapter_model.bin");
	put_text(dir, "adapter_config.json", "{}");
}

static void put_adapter(const char *dir, const char *name)
{
	char path[200];

	snprintf(path, sizeof(path), "%s/adapter_model.safetensors", name);
	put_safetensors(dir, path);
	snprintf(path, sizeof(path), "%s/adapter_config.json", name);
	put_text(dir, path, "{}");
}

/* The adapter default, one to compare with, and a checkpoint. */
static void fill_two_adapters(const char *dir)
{
	fill_peft(dir);
	put_adapter(dir, "ref");
}

static void fill_named_adapter(const char *dir)
{
	put_text(dir, "trainer_state.json", "{}");
	put_torch(dir, "optimizer.pt");
	put_adapter(dir, "policy");
}

static void fill_named_adapters(const char *dir)
{
	fill_named_adapter(dir);
	put_adapter(dir, "reference");
}

/* An archive of other files. */
static void fill_tar(const char *dir)
{
	char tar[1024] = "code/train.py";

	memcpy(tar + 257, "ustar", 5);
	mk_file(dir, "backup.tar", tar, sizeof(tar));
	mk_file(dir, "code.tar.gz", "\x1f\x8b", 2);
	put_dcp(dir, "step-3");
}

static void fill_alone(const char *dir)
{
	put_torch(dir, "ckpt.pt");
	put_text(dir, "README.md", "hello");
}

static void made_directories(void)
{
	static const struct {
		const char *name;
		void (*fill)(const char *dir);
		const char *want;
	} cases[] = {
		{ "OLMo-core", fill_olmo,
		    "OLMo-core: dcp model_and_optim; torch train/rank0.pt as "
		    "train/rank0 of 0?; torch train/rank1.pt as train/rank1 "
		    "of 1?; raw .metadata.json as .metadata.json?; raw "
		    "config.json as config.json?" },
		{ "Hugging Face Trainer", fill_hf,
		    "Hugging Face Trainer: dcp pytorch_model_fsdp_0; dcp "
		    "pytorch_model_fsdp_1 as pytorch_model_fsdp_1; dcp "
		    "optimizer_0; torch rng_state_3.pth as rng_state_3 of 3?; "
		    "raw trainer_state.json as trainer_state.json?; torch "
		    "scheduler.pt as scheduler?" },
		{ "torchtune", fill_torchtune,
		    "torchtune: torch recipe_state.pt?; safetensors "
		    "model-00001-of-00002.safetensors as model?; safetensors "
		    "model-00002-of-00002.safetensors as model?" },
		{ "Megatron-Core", fill_megatron,
		    "Megatron-Core: megatron; torch common.pt as "
		    "common_state?" },
		{ "Megatron-Core without common.pt", fill_torch_dist,
		    "Megatron-Core: megatron" },
		{ "NeMo", fill_nemo,
		    "NeMo: megatron weights; torch weights/common.pt as "
		    "common_state?; raw "
		    "context/model.yaml as model.yaml?" },
		{ "whole files of one rank", fill_unsharded,
		    "torch model.pt as model?; torch optim.pt as optim?; "
		    "torch train.pt as train?" },
		{ "files of ranks 0 and 12", fill_ranks,
		    "torch optim_rank0.pt optim_rank12.pt/12 as optim of 0?; "
		    "pickle "
		    "plain.pkl as plain?; torch same.bin as same.bin?; torch "
		    "same.pt as same.pt?; "
		    "torch empty.pt?" },
		{ "PEFT", fill_peft,
		    "Hugging Face Trainer: raw trainer_state.json as "
		    "trainer_state.json?; raw adapter_config.json as "
		    "adapter_config.json?; safetensors "
		    "adapter_model.safetensors as model?; torch optimizer.pt "
		    "as optimizer?" },
		{ "PEFT with a second adapter", fill_two_adapters,
		    "Hugging Face Trainer: raw trainer_state.json as "
		    "trainer_state.json?; raw adapter_config.json as "
		    "adapter_config.json?; safetensors "
		    "adapter_model.safetensors as model?; torch optimizer.pt "
		    "as optimizer?; safetensors ref/adapter_model.safetensors "
		    "as ref?" },
		{ "PEFT with an adapter that has a name", fill_named_adapter,
		    "Hugging Face Trainer: raw trainer_state.json as "
		    "trainer_state.json?; torch optimizer.pt as optimizer?; "
		    "safetensors policy/adapter_model.safetensors as model?" },
		{ "PEFT with several of them", fill_named_adapters,
		    "Hugging Face Trainer: raw trainer_state.json as "
		    "trainer_state.json?; torch optimizer.pt as optimizer?; "
		    "safetensors policy/adapter_model.safetensors as policy?; "
		    "safetensors reference/adapter_model.safetensors as "
		    "reference?" },
		{ "ColossalAI", fill_colossal,
		    "torch pytorch_optim-00001.bin as optimizer/state?; torch "
		    "pytorch_optim-00002.bin as optimizer/state?; torch "
		    "pytorch_optim_group.bin as optimizer/param_groups?" },
		{ "safetensors files of ranks", fill_slices,
		    "safetensors model-rank-0-part-0.safetensors as "
		    "model-rank-0-part-0?; safetensors "
		    "model-rank-1-part-0.safetensors as "
		    "model-rank-1-part-0?" },
		{ "verl", fill_verl,
		    "verl: torch extra_state_world_size_2_rank_0.pt "
		    "extra_state_world_size_2_rank_1.pt/1 as extra_state of "
		    "0?; torch model_world_size_2_rank_0.pt "
		    "model_world_size_2_rank_1.pt/1 as model of 0?; torch "
		    "optim_world_size_2_rank_0.pt "
		    "optim_world_size_2_rank_1.pt/1 as optim of 0?" },
		{ "verl with one rank", fill_verl_of_one,
		    "verl: torch model_world_size_1_rank_0.pt as model of 0?; torch "
		    "optim_world_size_1_rank_0.pt as optim of 0?" },
		{ "names without an extension", fill_without_extension,
		    "torch checkpoint.pth.tar as checkpoint.pth?; torch "
		    "do_00100000 as do_00100000?; torch g_00100000 as "
		    "g_00100000?" },
		{ "names that do not form a set of rank files",
		    fill_others_of_one,
		    "torch model.pt as model?; torch model_rank0.pt as "
		    "model_rank0 of 0?; torch optim_rank3.pt as optim_rank3 "
		    "of 3?; torch world_size_8.pt as world_size_8?" },
		{ "directories of model and optimizer", fill_members,
		    "dcp model as model; dcp optim as optim" },
		{ "directories beside a file", fill_members_beside_file,
		    "dcp model as model; dcp optim as optim; torch train_state.pt as train_state?" },
		{ "directories of two formats", fill_weights_and_optimizer,
		    "dcp weights as model; torch optimizer/optimizer.pt as "
		    "optimizer?; torch optimizer/other.pt as "
		    "optimizer/other?" },
		{ "a file and a directory", fill_file_and_optimizer,
		    "safetensors model.safetensors as model; dcp optimizer as optimizer" },
		{ "a model of the Hub", fill_hub,
		    "safetensors model.safetensors as model; not 2_Dense; not original" },
		{ "weights in two formats", fill_both_formats,
		    "safetensors model.safetensors as model?; not pytorch_model.bin" },
		{ "weights in two formats, in shards", fill_both_sharded,
		    "safetensors model-00001-of-00002.safetensors as model?; safetensors model-00002-of-00002.safetensors as model?; safetensors model.safetensors.index.json as model; not pytorch_model-00001-of-00001.bin; not pytorch_model.bin.index.json" },
		{ "Accelerate, saved in two ways", fill_both_accelerate,
		    "Accelerate: dcp pytorch_model_fsdp_0; dcp optimizer_0; not pytorch_model_fsdp.bin; not optimizer.bin" },
		{ "Accelerate, saved as files after shards",
		    fill_merged_accelerate,
		    "Accelerate: torch optimizer.bin as optimizer?; torch pytorch_model_fsdp.bin as model?; not pytorch_model_fsdp_0" },
		{ "an adapter beside its model", fill_adapter,
		    "safetensors adapter_model.safetensors as adapter_model?; safetensors model.safetensors as model?; not adapter_model.bin" },
		{ "a tar archive beside a checkpoint", fill_tar,
		    "torchtitan: dcp step-3; not backup.tar" },
		{ "single file", fill_alone, "torch ckpt.pt" },
	};
	struct optimfs_error err = { 0 };
	char dir[64];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		mk_dir(dir);
		cases[i].fill(dir);
		is_str(detect(dir, "", NULL, &err), cases[i].want,
		    "parts of a made directory: %s", cases[i].name);
		mk_remove(dir);
	}
}

/* Directories that contain checkpoints. */

static void refuse(const char *name, const char *dir, int code,
    const char *text)
{
	struct optimfs_error err = { 0 };

	detect(dir, "", NULL, &err);
	is_error(err, code, text, "%s", name);
}

static void parents(void)
{
	struct optimfs_error err = { 0 };
	char dir[64], path[128];

	mk_dir(dir);
	refuse("an empty directory fails with OFS680", dir, ENOENT, "OFS680");
	put_text(dir, "README", "");
	refuse("the error of an unknown directory lists its names", dir, ENOENT,
	    "1 name: README");
	put_dcp(dir, "step-90");
	is_str(detect(dir, "", NULL, &err), "torchtitan: dcp step-90",
	    "the only checkpoint in a directory is opened");
	put_dcp(dir, "step-1000");
	put_dcp(dir, "step-200");
	refuse("a directory of several checkpoints fails with OFS681", dir,
	    ENOENT, "OFS681");
	refuse("the checkpoints are listed with the newest first", dir, ENOENT,
	    "give one of: step-1000, step-200, step-90");
	snprintf(path, sizeof(path), "%s/latest", dir);
	if (symlink("step-200", path) == -1)
		bail_out("symlink: %m");
	refuse("a symbolic link latest marks a checkpoint in the list", dir,
	    ENOENT, "step-1000, step-200 (latest), step-90");
	unlink(path);
	if (symlink("../there/step-200//", path) == -1)
		bail_out("symlink: %m");
	refuse("a symbolic link latest may end with slashes", dir, ENOENT,
	    "step-1000, step-200 (latest), step-90");
	unlink(path);
	put_text(dir, "latest", "step-1000\n");
	refuse("a file latest marks a checkpoint in the list", dir, ENOENT,
	    "step-1000 (latest), step-200");
	put_text(dir, "latest", "step-500");
	refuse("R10: a file latest that names a missing checkpoint fails", dir,
	    EIO,
	    "latest names step-500, which does not exist; others: step-1000");
	mk_remove(dir);

	mk_dir(dir);
	put_torch(dir, "run/global_step3/a.pt");
	put_torch(dir, "run/global_step3/b.pt");
	put_text(dir, "run/expected/0.bin", "no checkpoint at all");
	is_str(detect(dir, "", NULL, &err),
	    "torch run/global_step3/a.pt as a?; torch "
	    "run/global_step3/b.pt as b?",
	    "the only checkpoint in a directory is two levels down");
	mk_remove(dir);

	mk_dir(dir);
	put_dcp(dir, "checkpoint/step-1");
	put_dcp(dir, "checkpoint/step-2");
	refuse("checkpoints one level down are listed", dir, ENOENT,
	    "checkpoint/step-2, checkpoint/step-1");
	mk_remove(dir);

	mk_dir(dir);
	put_dcp(dir, "iter_0000010");
	put_dcp(dir, "iter_0000020");
	put_text(dir, "latest_checkpointed_iteration.txt", "20");
	is_str(detect(dir, "", NULL, &err), "dcp iter_0000020",
	    "Megatron's tracker file selects the iteration");
	is_str(detect(dir, "", "megatron", &err),
	    "Megatron-Core: megatron iter_0000020",
	    "Megatron's tracker file selects the iteration with type=megatron");
	is_str(detect(dir, "", "dcp", &err), "dcp iter_0000020",
	    "Megatron's tracker file selects the iteration with type=dcp");
	put_text(dir, "latest_checkpointed_iteration.txt", "30");
	refuse("a tracker file that names a missing iteration fails", dir, EIO,
	    "latest names iter_0000030, which does not exist; others: iter_0000020");
	put_torch(dir, "iter_0000030/mp_rank_00/model_optim_rng.pt");
	is_str(detect(dir, "", NULL, &err),
	    "torch iter_0000030/mp_rank_00/model_optim_rng.pt",
	    "a legacy Megatron checkpoint of one rank is opened");
	put_torch(dir, "iter_0000030/mp_rank_01/model_optim_rng.pt");
	refuse("a legacy Megatron checkpoint of several ranks is refused", dir,
	    EOPNOTSUPP, "OFS641 ");
	refuse("the refused Megatron checkpoint is listed with its rank files",
	    dir, EOPNOTSUPP, "iter_0000030/mp_rank_01");
	mk_remove(dir);

	mk_dir(dir);
	put_torch(dir, "train_state.pt");
	put_dcp(dir, "step-9");
	refuse("a file beside a checkpoint does not hide it", dir, ENOENT,
	    "OFS681 ");
	put_dcp(dir, "step-10");
	refuse("checkpoints beside a file are named, and the file", dir, ENOENT,
	    "give one of: step-10, step-9; or a file: train_state.pt");
	is_str(detect(dir, "", "torch", &err), "torch train_state.pt",
	    "type= reads the files beside checkpoints");
	mk_remove(dir);

	mk_dir(dir);
	put_safetensors(dir, "model.safetensors");
	put_torch(dir, "runs/step-3/a.pt");
	refuse("a model does not hide a checkpoint two levels down", dir,
	    ENOENT, "give one of: runs/step-3; or a file: model.safetensors");
	mk_remove(dir);

	mk_dir(dir);
	put_torch(dir, "step.pt");
	put_safetensors(dir, "weights/part-0.safetensors");
	put_safetensors(dir, "weights/part-1.safetensors");
	refuse("a directory of unknown pieces is not the model", dir, ENOENT,
	    "give one of: weights; or a file: step.pt");
	mk_remove(dir);

	mk_dir(dir);
	put_dcp(dir, "model");
	put_dcp(dir, "weights");
	refuse("two directories of a model are not one checkpoint", dir, ENOENT,
	    "give one of: model, weights");
	mk_remove(dir);

	mk_dir(dir);
	put_dcp(dir, "step-10/model");
	put_dcp(dir, "step-10/optim");
	put_dcp(dir, "step-20/model");
	put_dcp(dir, "step-20/optim");
	refuse("directories of models and optimizers are listed as checkpoints",
	    dir, ENOENT, "give one of: step-20, step-10");
	mk_remove(dir);

	mk_dir(dir);
	put_dcp(dir, "checkpoint-10");
	put_dcp(dir, "tmp-checkpoint-20");
	is_str(detect(dir, "", NULL, &err),
	    "dcp checkpoint-10; not tmp-checkpoint-20",
	    "the only finished checkpoint is opened");
	put_text(dir, "checkpoint-15/__0_0.distcp", "PK\3\4");
	put_dcp(dir, "checkpoint-5");
	refuse("checkpoints that are not finished are marked", dir, ENOENT,
	    "checkpoint-15 (not finished), checkpoint-10, checkpoint-5, "
	    "tmp-checkpoint-20 (not finished)");
	mk_remove(dir);

	mk_dir(dir);
	put_dcp(dir, "");
	put_dcp(dir, "step-3");
	is_str(detect(dir, "", NULL, &err), "dcp; not step-3",
	    "a checkpoint in the directory of another is left out");
	mk_remove(dir);

	mk_dir(dir);
	put_torch(dir, "global_step_5/actor/model_world_size_1_rank_0.pt");
	put_torch(dir, "global_step_10/actor/model_world_size_1_rank_0.pt");
	put_torch(dir, "global_step_10/data.pt");
	put_text(dir, "latest_checkpointed_iteration.txt", "10");
	is_str(detect(dir, "", NULL, &err),
	    "verl: torch global_step_10/actor/model_world_size_1_rank_0.pt as "
	    "model of 0; torch global_step_10/data.pt as data?",
	    "verl's tracker file selects the global step");
	put_torch(dir, "global_step_10/critic/model_world_size_1_rank_0.pt");
	refuse("a global step with several models fails with OFS681", dir,
	    ENOENT, "OFS681");
	refuse("the models of a global step are listed", dir, ENOENT,
	    "global_step_10/actor, global_step_10/critic");
	mk_remove(dir);

	mk_dir(dir);
	put_torch(dir, "mp_rank_00_000/model_optim_rng.pt");
	put_torch(dir, "mp_rank_00_001/model_optim_rng.pt");
	refuse("Megatron's pipeline stages without an iteration are refused",
	    dir, EOPNOTSUPP, "OFS641 ");
	mk_remove(dir);

	mk_dir(dir);
	put_torch(dir, "rank_0/ck.pt");
	put_torch(dir, "rank_1/ck.pt");
	is_str(detect(dir, "", NULL, &err),
	    "torch rank_0/ck.pt rank_1/ck.pt/1 of 0",
	    "files of one name in directories of ranks are a set");
	put_torch(dir, "rank_0/optim.pt");
	refuse("directories of ranks with other files are no set", dir, ENOENT,
	    "OFS681 ");
	put_torch(dir, "rank_1/optim.pt");
	is_str(detect(dir, "", NULL, &err),
	    "torch rank_0/ck.pt rank_1/ck.pt/1 as ck of 0?; "
	    "torch rank_0/optim.pt rank_1/optim.pt/1 as optim of 0?",
	    "each name in directories of ranks is a set");
	put_torch(dir, "rank_3/ck.pt");
	put_torch(dir, "rank_3/optim.pt");
	refuse("directories of ranks with a gap are no set", dir, ENOENT,
	    "OFS681 ");
	mk_remove(dir);

	mk_dir(dir);
	put_torch(dir, "rank_0/ck.pt");
	put_torch(dir, "rank_1/ck.pt");
	put_torch(dir, "ema/ck.pt");
	refuse("directories of ranks beside another are no set", dir, ENOENT,
	    "OFS681 ");
	mk_remove(dir);

	mk_dir(dir);
	put_text(dir, "tmp/w/0/fp32.00", "not looked at");
	refuse("an unfinished conversion to universal fails with OFS680", dir,
	    ENOENT, "OFS680 ");
	refuse("the error of an unfinished conversion says what to run", dir,
	    ENOENT, "ds_to_universal.py again");
	mk_remove(dir);
	mk_dir(dir);
	put_text(dir, "tmp/w/0/other.00", "");
	refuse("another directory tmp is only listed", dir, ENOENT,
	    "1 name: tmp");
	mk_remove(dir);

	mk_dir(dir);
	put_text(dir, "metadata.json", "{\"sharded_backend\": \"zarr\"}");
	refuse("Megatron's zarr backend is refused", dir, EOPNOTSUPP, "OFS650");
	put_text(dir, "metadata.json", "{\"sharded_backend\": [\"torch_dist\"");
	refuse("a malformed metadata.json is not Megatron's", dir, ENOENT,
	    "OFS680");
	mk_remove(dir);
}

/* R09: contents of latest that are refused. */
static void hostile_latest(void)
{
	static const struct {
		const char *name, *text;
		size_t n;
	} cases[] = {
		{ "R09: latest with .. is refused", "../../x", 7 },
		{ "R09: latest with an absolute path is refused", "/etc", 4 },
		{ "R09: latest with two lines is refused", "a\nb", 3 },
		{ "R09: latest with a NUL is refused", "a\0b", 3 },
		{ "R09: latest with two components is refused", "a/b", 3 },
		{ "R09: an empty latest is refused", "", 0 },
		{ "R09: latest of .. is refused", "..", 2 },
	};
	char dir[64], *big = malloc(1 << 20);

	if (big == NULL)
		bail_out("out of memory");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		mk_dir(dir);
		put_dcp(dir, "step-1");
		mk_file(dir, "latest", cases[i].text, cases[i].n);
		refuse(cases[i].name, dir, EPERM, "OFS620");
		mk_remove(dir);
	}
	mk_dir(dir);
	memset(big, 'a', 1 << 20);
	mk_file(dir, "latest", big, 1 << 20);
	refuse("R09: latest of 1 MiB is refused", dir, EPERM, "OFS620");
	mk_remove(dir);
	free(big);
}

/* The option type=, files of no known format, and files of two formats. */
static void types(void)
{
	uint8_t polyglot[64] = "PK\3\4\0\0\0\0{";
	struct optimfs_error err = { 0 };
	struct ofs_buf b = { 0 };
	char dir[64];

	mk_dir(dir);
	put_torch(dir, "a.pt");
	put_dcp(dir, "");
	is_str(detect(dir, "", NULL, &err), "dcp",
	    ".metadata wins over other files in its directory");
	is_str(detect(dir, "", "torch", &err), "torch a.pt",
	    "type=torch selects the torch.save files of a directory");
	is_str(detect(dir, "a.pt", "raw", &err), "raw a.pt",
	    "type=raw reads a file as bytes");
	detect(dir, "", "hdf9", &err);
	is_error(err, EINVAL,
	    "OFS679 type=hdf9: no such type. There are dcp, megatron",
	    "an unknown type fails with the list of types");
	detect(dir, "a.pt", "dcp", &err);
	is_error(err, EINVAL, "OFS679 type=dcp: a.pt is a file",
	    "type=dcp of a file is refused");
	put_safetensors(dir, "shard-00001-model-00001-of-00001.safetensors");
	is_str(detect(dir, "", "safetensors", &err), "safetensors as model",
	    "type=safetensors reads sharded safetensors as one part");
	put_text(dir, "x.txt", "hello, world, this is some text");
	detect(dir, "x.txt", NULL, &err);
	is_error(err, EINVAL, "OFS677 x.txt is not a checkpoint by itself",
	    "a foreign file in a checkpoint is refused");
	detect(dir, "gone", NULL, &err);
	is_error(err, ENOENT, "OFS140",
	    "a file that does not exist fails with ENOENT");

	put_safetensors(dir, "ok.safetensors");
	is_str(detect(dir, "ok.safetensors", NULL, &err),
	    "safetensors ok.safetensors",
	    "a safetensors file is detected by its name and header");
	ofs_buf_put(&b, "\2\0\0\0\0\0\0\0{}", 10);
	mk_write_object(&b, "\x80\x04}.", 4);
	mk_file(dir, "two.bin", b.data, b.len);
	detect(dir, "two.bin", NULL, &err);
	is_error(err, EUCLEAN, "OFS662 two.bin",
	    "T16: a zip archive behind a safetensors header is refused");
	ofs_buf_fini(&b);
	mk_file(dir, "head.bin", polyglot, sizeof(polyglot));
	is_str(detect(dir, "head.bin", NULL, &err), "torch head.bin",
	    "a zip file with an oversized safetensors length is torch.save");
	mk_remove(dir);
}

int main(void)
{
	fixtures();
	made_directories();
	parents();
	hostile_latest();
	types();
	return done_testing();
}
