#!/bin/sh
# trainers.t - directories as trainers lay them out, and files that were left in
# them
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

ck=$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w3/ckpt
ranks=$TOP_SRCDIR/tests/data/extra/torch_save/adam.pt
cd "$scratch" || exit 99

# make TO DIR: a part of the checkpoint, as PyTorch would save it by itself.
make() {
	"$OPTIMFS" reshard --to "$1" "$ck" "$2" >/dev/null 2>&1 ||
	    { echo "Bail out! reshard --to $1"; exit 99; }
}
make dcp@2,only=model model
make dcp@2,only=optim optim
make safetensors,only=model st
make torch,only=model pt
st=st/model.safetensors
pt=$(ls pt/*)

# has NAME REGEXP: does a line of the last output match?
has() {
	grep -qE -- "$2" out
	tap_result $? "$1" || tap_said
}
# equal NAME DIR: are model and optimizer those of the checkpoint?
equal() {
	"$OPTIMFS" info "$2" >out 2>&1
	"$OPTIMFS" cp -r "$ck" model want.m && "$OPTIMFS" cp -r "$2" model got.m &&
	    "$OPTIMFS" cp -r "$ck" optim want.o && "$OPTIMFS" cp -r "$2" optim got.o &&
	    diff -r want.m got.m && diff -r want.o got.o
	tap_result $? "$1" || tap_said
	rm -rf want.m got.m want.o got.o
}

# NeMo RL: the data loader's file beside policy/ does not hide it.
mkdir -p rl/step_10/policy/weights rl/step_10/policy/optimizer rl/tmp_step_20/policy
cp -r model rl/step_10/policy/weights/model
cp -r optim rl/step_10/policy/optimizer/optim
cp -r model rl/tmp_step_20/policy/weights
cp "$TOP_SRCDIR/tests/data/extra/torch_save/dt_int16.pt" rl/step_10/train_dataloader.pt
echo '{"step": 10}' >rl/step_10/training_info.json
equal "NeMo RL: weights and optimizer below policy/" rl/step_10
has "the trainer is named" '^trainer +NeMo RL$'
equal "its directory above, too" rl
has "a save that has not finished is named" '^  tmp_step_20/.*: unfinished: '
rm rl/step_10/training_info.json
"$OPTIMFS" info rl/step_10 >out 2>&1
has "without its file, the checkpoints two levels below are asked for" \
    'OFS681 .* holds checkpoints beside files, give one of: policy/'

# NeMo Automodel.
mkdir auto auto/model auto/rng auto/dataloader
cp "$st" auto/model/shard-00001-model-00001-of-00001.safetensors
mkdir auto/model/consolidated
cp "$st" auto/model/consolidated/model-00001-of-00001.safetensors
cp -r optim auto/optim
cp "$ranks" auto/rng/rng_dp_rank_0.pt
cp "$ranks" auto/dataloader/dataloader_dp_rank_0.pt
ok "NeMo Automodel: rng/ is a part of the checkpoint" "$OPTIMFS" ls -R auto
"$OPTIMFS" cat auto model/norm.weight >got
"$OPTIMFS" cat "$ck" model/norm.weight >want
ok "its weights are right" cmp got want

# VeOmni.
mkdir ve ve/extra_state ve/hf_ckpt
cp -r model ve/model
cp -r optim ve/optimizer
cp "$st" ve/hf_ckpt
for r in 0 1; do
	cp "$pt" ve/extra_state/extra_state_rank_$r.pt
done
equal "VeOmni: exported weights are no question" ve
has "they are left out as a copy" '^  hf_ckpt/: copy: the weights as they were exported$'
mkdir alone && cp -r st alone/hf_ckpt && cp "$ranks" alone/state.pt
"$OPTIMFS" info alone >out 2>&1
has "unless there is no other model" 'OFS681 .*hf_ckpt'

# ColossalAI: the names of files do not tell how many there are.
mkdir coloss coloss/modeling coloss/optimizer
cp "$pt" coloss/modeling/pytorch_model-00001.bin
"$OPTIMFS" ls "$ck" model | awk '
	BEGIN { printf "{\"weight_map\": {" }
	{ printf "%s\"%s\": \"pytorch_model-00001.bin\"", NR == 1 ? "" : ", ", $0 }
	END { print "}}" }' >coloss/modeling/pytorch_model.bin.index.json
cp "$ranks" coloss/optimizer/pytorch_optim-00001.bin
cp "$ranks" coloss/optimizer/pytorch_optim_group.bin
ok "ColossalAI: modeling/ and optimizer/ are one checkpoint" "$OPTIMFS" info coloss
"$OPTIMFS" cat coloss model/norm.weight >got
ok "its weights are right" cmp got want
ok "nothing is missing" "$OPTIMFS" fsck coloss

# SkyRL: policy/ beside the states of the trainer.
mkdir -p sky/policy
cp "$pt" sky/policy/model_world_size_1_rank_0.pt
cp "$ranks" sky/data.pt
cp "$ranks" sky/trainer_state.pt
"$OPTIMFS" ls -R sky >out 2>&1
has "SkyRL: policy/ is the checkpoint" '^model/norm\.weight$'
"$OPTIMFS" info sky >out 2>&1
has "the trainer's state is a part of it" '^files +3,'
cp -r sky/policy sky/critic
"$OPTIMFS" info sky >out 2>&1
has "two roles are a run of two checkpoints" '^a run of 2 checkpoints$'
rm -r sky/critic

# A directory called policy may be anything.
cp -r ve policies
rm -r policies/hf_ckpt
mkdir policies/policy
echo x >policies/policy/rules
equal "beside model/ and optimizer/ policy/ is no role" policies
has "it is left out" '^  policy/: not read: no checkpoint$'

# Checkpoints two directories below: the file is the model, or may be anything.
mkdir -p deep/logs/run-1/files
cp "$st" deep/model.safetensors
cp "$pt" deep/logs/run-1/files/best.pt
"$OPTIMFS" info deep >out 2>&1
has "far below a model, others are no question" '^  logs/: checkpoint: it holds checkpoints$'
mv deep/model.safetensors deep/state.safetensors
"$OPTIMFS" info deep >out 2>&1
has "they are where the file may be anything" 'OFS681 .* give one of: logs/run-1/files; '
mv deep/logs deep/wandb
"$OPTIMFS" info deep >out 2>&1
has "what another program keeps is none" '^  wandb/: foreign: of Weights & Biases$'

# The arguments of Transformers' Trainer lie beside its checkpoints.
mkdir hf-run
cp -r "$ck" hf-run/checkpoint-100
cp -r "$ck" hf-run/checkpoint-200
cp "$ranks" hf-run/training_args.bin
"$OPTIMFS" info hf-run >out 2>&1
has "training_args.bin is no checkpoint of the run" '^a run of 2 checkpoints,'

# A date counts if nothing else does: it may be that of a log.
mkdir dates hf-run/20260131_235959
cp -r "$ck" dates/20260131_235959
cp -r "$ck" dates/20260201_120000
"$OPTIMFS" info dates >out 2>&1
has "dates are steps" '^a run of 2 checkpoints, steps 20260131 to 20260201$'
echo log >hf-run/20260131_235959/out.txt
"$OPTIMFS" info hf-run >out 2>&1
is "the directory of a log is no step that has not finished" "$(grep -c unfinished out)" 0

# Files that were left by a save or a copy.
mkdir left
cp "$pt" left/ckpt.pt
cp "$pt" left/tmp_ckpt.pt
cp "$pt" left/.ckpt.pt.k3jd2A
ok "a temporary file is not a second model" "$OPTIMFS" info left
has "it is left out with a warning" '^  OFS688 tmp_ckpt\.pt is left out: its name is that of a temporary file$'
has "and so is a copy by rsync" '^  OFS688 \.ckpt\.pt\.k3jd2A is left out: a copy by rsync$'
has "one file is read" '^files +1,'
cp left/ckpt.pt left/recipe_state.pt
rm left/ckpt.pt left/.ckpt.pt.k3jd2A
"$OPTIMFS" info left >out 2>&1
has "beside a trainer's own file, too" '^  OFS688 tmp_ckpt\.pt is left out: '
rm left/recipe_state.pt
ok "alone it is the checkpoint" "$OPTIMFS" cat left model/norm.weight
mkdir half
cp "$ck"/.metadata "$ck"/__[01]_0.distcp half
cp "$ck"/__2_0.distcp half/.__2_0.distcp.k3jd2A
"$OPTIMFS" info half >out 2>&1
has "of a copy that is under way, the missing file is named" 'OFS140 __2_0\.distcp is missing'
has "and what there is of it" '^  \.__2_0\.distcp\.k3jd2A: unfinished: a copy by rsync$'

# NeMo marks a save that has not finished with a file beside it.
mkdir nemo
cp -r "$ck" nemo/m--step=10
cp -r "$ck" nemo/m--step=20
: >nemo/m--step=20-unfinished
ok "of two saves of NeMo, the one that is marked is left out" "$OPTIMFS" info nemo
has "it says why" '^  OFS688 m--step=20/ is left out: a file beside it, with -unfinished in its name, says so$'
cp -r "$ck" nemo/m--step=30
ok "in a run, too" "$OPTIMFS" info nemo
has "the step is not finished" '^ +20 .* unfinished  m--step=20: a file beside it'

# Mistral's own file beside that of transformers.
mkdir mistral
cp "$st" mistral/model-00001-of-00001.safetensors
cp "$pt" mistral/consolidated.pt
cp "$st" mistral/consolidated.safetensors
ok "consolidated.safetensors is the model once more" "$OPTIMFS" info mistral
has "it is left out" '^  OFS685 consolidated\.safetensors is left out: model-00001-of-00001\.safetensors has the model, too'
rm mistral/model-*
ok "alone it is the model" "$OPTIMFS" cat mistral model/norm.weight

# The pieces of ranks, in formats that are not read.
for names in 'checkpoint_1-shard0.pt checkpoint_1-shard1.pt' \
    'checkpoint_1-model_part-0.pt checkpoint_1-model_part-1.pt' \
    'consolidated.00.pth consolidated.01.pth' \
    'model_0_0_0.pt model_0_1_0.pt smp_config.pt' \
    'optimizer_pp-0-of-1_tp-0-of-2_exp-0-of-1.pt optimizer_pp-0-of-1_tp-1-of-2_exp-0-of-1.pt'; do
	rm -rf pieces && mkdir pieces
	for f in $names; do
		cp "$pt" "pieces/$f"
	done
	status "${names%% *}: pieces are not shown as models" 4 "$OPTIMFS" info pieces
	like "the message names one" "$(head -n 1 err)" "*OFS641 *such as ${names%% *}, or -o type=torch for all as they are"
	ok "one can be read" "$OPTIMFS" cat "pieces/${names%% *}" model/norm.weight
	ok "type= reads all" "$OPTIMFS" ls -o type=torch pieces
done

# The layers of a pipeline without the file that says what they are of.
mkdir pipe
cp "$pt" pipe/layer_00-model_00-model_states.pt
"$OPTIMFS" info pipe >out 2>&1
has "of DeepSpeed's layers alone, what is missing is named" 'OFS140 mp_rank_\*_model_states\.pt are missing'
cp "$TOP_SRCDIR"/tests/data/deepspeed/z2_ws2_nozip/ckpt/global_step3/mp_rank_00_model_states.pt \
    pipe/mp_rank_01_model_states.pt
"$OPTIMFS" info pipe >out 2>&1
has "of two stages, the first one's file" 'OFS140 mp_rank_00_model_states\.pt is missing'

# Epochs of torchtune are no ranks.
mkdir tune
for e in 0 1; do
	cp "$pt" tune/hf_model_0001_$e.pt
	cp "$pt" tune/hf_model_0002_$e.pt
done
status "files of two epochs are several checkpoints" 3 "$OPTIMFS" info tune
like "all are named" "$(head -n 1 err)" '*OFS681 *hf_model_0001_0.pt, hf_model_0001_1.pt, hf_model_0002_0.pt*'
rm tune/hf_model_*
cp "$pt" tune/meta_model_0.pt
cp "$pt" tune/meta_model_1.pt
status "and so are whole models" 3 "$OPTIMFS" info tune

done_testing
