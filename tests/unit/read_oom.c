/* read_oom.c - reading checkpoints with each allocation failing */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cluster/source.h"
#include "oom.h"
#include "support/truth.h"
#include "tap.h"

/* Makes allocation 1, 2, 3 ... fail until none fails. Each reading must end in
 * ENOMEM or be complete; the sanitizers detect leaks. */
static void sweep_path(const char *path, const struct optimfs_options *opt)
{
	struct optimfs_error err;
	struct ofs_catalog *cat;
	uint32_t entries;
	size_t wrong = 0, missed = 0;
	long n = 0;

	cat = ofs_read_checkpoint(path, opt, &err);
	if (!ok(cat != NULL, "%s can be read", path)) {
		diag("%s", err.text);
		return;
	}
	entries = cat->nentries;
	ofs_catalog_free(cat);
	do {
		err = (struct optimfs_error){ 0 };
		left = ++n;
		cat = ofs_read_checkpoint(path, opt, &err);
		if (left > 0) {
			ofs_catalog_free(cat);
			break;
		}
		if (cat == NULL && err.code != ENOMEM) {
			diag("call %ld: %s", n, err.text);
			wrong++;
		}
		if (cat != NULL && cat->nentries != entries)
			missed++;
		ofs_catalog_free(cat);
	} while (n < 1000000);
	left = -1;
	is_u64(wrong, 0,
	    "%s: each of %ld failed allocations gives ENOMEM or is harmless",
	    path, n - 1);
	is_u64(missed, 0,
	    "%s: a catalog read in spite of a failed allocation is complete",
	    path);
}

static void sweep_with(const char *name, const struct optimfs_options *opt)
{
	char path[512];

	snprintf(path, sizeof(path), "%s", data_path(name));
	sweep_path(path, opt);
}

static void sweep(const char *name)
{
	sweep_with(name, &(struct optimfs_options){ 0 });
}

/* Rank files of FSDP1, with units= and with ids=. */
static void sweep_units(const char *name)
{
	char ck[200], units[512], ids[] = "/tmp/optimfs-ids-XXXXXX";
	int fd = mkstemp(ids);
	struct optimfs_options o = { .units = units };
	FILE *f = fd == -1 ? NULL : fdopen(fd, "w");

	if (f == NULL)
		bail_out("no temporary file");
	fputs("tok_embeddings.weight\n", f);
	for (int i = 0; i < 3; i++)
		fprintf(f,
		    "layers.%1$d.norm.weight\nlayers.%1$d.norm.bias\n"
		    "layers.%1$d.wq.weight\nlayers.%1$d.wq.bias\n"
		    "layers.%1$d.w1.weight\nlayers.%1$d.w2.weight\n"
		    "layers.%1$d.w2.bias\n",
		    i);
	fputs("norm.weight\nnorm.bias\nconv.weight\nconv.bias\n"
	      "adapter.weight\nadapter.bias\n",
	    f);
	fclose(f);
	snprintf(units, sizeof(units), "%s/units.json", data_path(name));
	snprintf(ck, sizeof(ck), "%s/ckpt", name);
	sweep_with(ck, &o);
	o.ids = ids;
	sweep_with(ck, &o);
	unlink(ids);
}

/* The same, with the units file beside the rank files. */
static void sweep_beside(const char *name)
{
	char dir[] = "/tmp/optimfs-beside-XXXXXX", command[1024];

	if (mkdtemp(dir) == NULL)
		bail_out("no temporary directory");
	snprintf(command, sizeof(command),
	    "cp %1$s/ckpt/* %1$s/units.json %2$s", data_path(name), dir);
	if (system(command) != 0)
		bail_out("%s", command);
	sweep_path(dir, &(struct optimfs_options){ 0 });
	snprintf(command, sizeof(command), "rm -r %s", dir);
	if (system(command) != 0)
		diag("%s", command);
}

int main(void)
{
	sweep("megatron/llama_dp2/dp_reshardable");
	sweep("megatron/llama_dp2/fully_reshardable/iter_0000003");
	sweep("pytorch/dcp_torch113/ckpt");
	sweep("pytorch/dcp_dtensor_shapes_w4/ckpt");
	sweep("extra/dcp_variants/dcp_nocoll");
	sweep("extra/dcp_variants/dcp_safetensors");
	sweep("extra/trainers/acc_v2_SHARDED_STATE_DICT");
	sweep("extra/dcp_variants/hf_writer");
	sweep("pytorch/safetensors_plain/ckpt");
	sweep("extra/olmo_local/new");
	sweep("deepspeed/z1_ws2_bf16/ckpt");
	sweep("deepspeed/v0.19.6_z2_ws4_elastic/ckpt");
	sweep("deepspeed/z3_ws2_subgroups/ckpt");
	sweep("deepspeed/z3_ws2_nozip/ckpt");
	sweep("deepspeed/v0.18.5_z3_ws4_subgroups/ckpt_universal");
	sweep("deepspeed/v0.19.6_z1_ws2_bf16/ckpt_universal");
	sweep("numpy/compressed.npz");
	sweep("fsdp_dtensor/moe_swiglu_w4/ckpt");
	sweep("torch_checkpointing/fsdp2_tp_w4_safetensors/ckpt/step_3");
	sweep("extra/torch_save/quant.pt");
	sweep("evidence/adafactor.pt");
	sweep("pytorch/checkpointable_w2/ckpt_rankfiles");
	sweep("pytorch/rank_dtensor_fsdp2_tp_w4/ckpt_raw");
	sweep("pytorch/fsdp1_sharded_orig_hybridshard_w4/ckpt_rankfiles");
	sweep("pytorch/experimental_checkpointer_w3/ckpt");
	sweep("jobs/numbers");
	sweep_units("pytorch/fsdp1_local_orig_fullshard_w2");
	sweep_beside("pytorch/fsdp1_local_flat_fullshard_w3");
	return done_testing();
}
