#!/bin/sh
# inventory.t - which files of a directory are the checkpoint, and which are not
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

data=$TOP_SRCDIR/tests/data/pytorch
ck=$data/dcp_fsdp2_w3/ckpt
w=model/norm.weight

# has NAME REGEXP: does a line of the last output match?
has() {
	grep -qE -- "$2" "$scratch/out"
	tap_result $? "$1" || tap_said
}

# refused NAME REGEXP DIR: does it refuse to open DIR with such a message?
refused() {
	"$OPTIMFS" info "$3" >"$scratch/out" 2>&1
	[ $? -ne 0 ] && grep -qE -- "$2" "$scratch/out"
	tap_result $? "$1" || tap_said
}

# make TO DIR: a part of the checkpoint, as PyTorch would save it by itself.
make() {
	"$OPTIMFS" reshard --to "$1" "$ck" "$2" >/dev/null 2>&1 ||
	    { echo "Bail out! reshard --to $1"; exit 99; }
}
make dcp@2,only=model "$scratch/model"
make dcp@2,only=optim "$scratch/optim"
make safetensors,only=model "$scratch/st"
make torch,only=model "$scratch/pt"
st=$scratch/st/model.safetensors
pt=$(ls "$scratch"/pt/*)

# Model and optimizer in directories of their own.
mkdir "$scratch/two"
cp -r "$scratch/model" "$scratch/optim" "$scratch/two"
ok "directories of model and optimizer are one checkpoint" \
    "$OPTIMFS" diff "$ck" "$scratch/two"
cp "$TOP_SRCDIR/tests/data/extra/torch_save/adam.pt" "$scratch/two/train_state.pt"
ok "they open beside a file" "$OPTIMFS" ls -R "$scratch/two"
has "a file beside them is a part, too" '^optim/train_state/state/.*/exp_avg$'
ok "they can be written as one checkpoint" \
    "$OPTIMFS" reshard --to dcp@1 "$scratch/two" "$scratch/one"
mkdir "$scratch/mixed"
cp "$st" "$scratch/mixed/model.safetensors"
cp -r "$scratch/optim" "$scratch/mixed/optimizer"
ok "a model of safetensors and a directory of the optimizer are one checkpoint" \
    "$OPTIMFS" diff "$ck" "$scratch/mixed"

# Parts that lie anywhere.
mkdir "$scratch/here" "$scratch/there"
cp -r "$scratch/model" "$scratch/here/ck-5"
cp -r "$scratch/optim" "$scratch/there/optim"
cp "$st" "$scratch/here/weights.safetensors"
"$OPTIMFS" cat "$ck" optim/state/norm.weight/exp_avg >"$scratch/want_avg"
for m in ck-5 weights.safetensors; do
	"$OPTIMFS" cat -o join="$scratch/there/optim" "$scratch/here/$m" $w >"$scratch/got"
	"$OPTIMFS" cat "$ck" $w >"$scratch/want"
	ok "join= of $m has the weights" cmp "$scratch/got" "$scratch/want"
	"$OPTIMFS" cat -o join="$scratch/there/optim" "$scratch/here/$m" \
	    optim/state/norm.weight/exp_avg >"$scratch/got"
	ok "join= of $m has the optimizer" cmp "$scratch/got" "$scratch/want_avg"
done
ok "join= is written as one checkpoint" \
    "$OPTIMFS" reshard --to dcp@1 -o join="$scratch/there/optim" "$scratch/here/ck-5" "$scratch/joined"
ok "the written checkpoint is equal to the one that was divided" \
    "$OPTIMFS" diff "$ck" "$scratch/joined"
ok "info of join= succeeds" "$OPTIMFS" info -o join="$scratch/there/optim" "$scratch/here/ck-5"
has "info of join= has an optimizer" '^optimizer '
status "join= with the checkpoint itself exits with 2" 2 \
    "$OPTIMFS" info -o join="$scratch/here/ck-5" "$scratch/here/ck-5"
"$OPTIMFS" info -o join="$scratch/here/ck-5" "$scratch/here/ck-5" 2>"$scratch/out"
has "the message says so" 'OFS690 join=.* is .*ck-5 itself'

mkdir "$scratch/mnt"
no_mount=$(tap_can_mount)
if [ -z "$no_mount" ]; then
	ok "join= can be mounted" \
	    "$OPTIMFS" mount -o join="$scratch/there/optim" "$scratch/here/ck-5" "$scratch/mnt"
	ok "the mount is equal to the checkpoint that was divided" "$OPTIMFS" diff "$scratch/mnt" "$ck"
	ok "in the other order, too" "$OPTIMFS" diff "$ck" "$scratch/mnt"
	"$OPTIMFS" umount "$scratch/mnt"
	"$OPTIMFS" mount -o rw,join="$scratch/there/optim" "$scratch/here/ck-5" "$scratch/mnt" 2>"$scratch/out"
	has "join= cannot be mounted for writing" 'OFS690 .*optimfs reshard makes one of them'
	ok "but with scratch" "$OPTIMFS" mount \
	    -o scratch,join="$scratch/there/optim" "$scratch/here/ck-5" "$scratch/mnt"
	ok "then it can be changed" sh -c "echo 1e-7 >'$scratch/mnt/optim/param_groups/0/lr'"
	"$OPTIMFS" umount "$scratch/mnt"
else
	skip 6 "cannot mount"
fi
ok "two checkpoints are compared, of which join= is a part of the first" \
    "$OPTIMFS" diff -o join="$scratch/there/optim" "$scratch/here/ck-5" "$ck"

# Checkpoints beside files.
mkdir "$scratch/run"
cp -r "$ck" "$scratch/run/step-10"
cp -r "$ck" "$scratch/run/step-20"
cp "$pt" "$scratch/run/train_state.pt"
ok "a file does not hide the steps beside it" "$OPTIMFS" info "$scratch/run"
has "it is a checkpoint of the run, without a step" \
    '^a run of 3 checkpoints, steps 10 to 20; 1 only in by-name/$'
rm "$scratch/run/train_state.pt"
tar -cf "$scratch/run/logs.tar" -C "$scratch" st
ok "a tar archive does not hide the steps beside it" "$OPTIMFS" info "$scratch/run"
has "it is no checkpoint of the run" '^a run of 2 checkpoints, steps 10 to 20$'
rm -r "$scratch/run/step-20/.metadata"
ok "the only step that is complete is opened" "$OPTIMFS" info "$scratch/run"
has "the other one is left out with a warning" \
    '^  OFS688 step-20/ is left out: it has data files, but no index yet$'
has "the archive is left out as one" '^  logs\.tar: foreign: an archive, or compressed$'

cp -r "$ck" "$scratch/nested"
cp -r "$ck" "$scratch/nested/step-3"
ok "a checkpoint in the directory of another opens as the outer one" \
    "$OPTIMFS" info "$scratch/nested"
has "the inner one is left out with a warning" \
    '^  OFS686 step-3/ is a checkpoint of its own in the directory of this one, and left out$'

# Directories with a file that names the latest checkpoint.
mkdir "$scratch/tracked"
cp -r "$ck" "$scratch/tracked/iter_0000010"
cp -r "$ck" "$scratch/tracked/iter_0000020"
echo 10 >"$scratch/tracked/latest_checkpointed_iteration.txt"
ok "the checkpoint that Megatron's tracker names opens" "$OPTIMFS" info "$scratch/tracked"
has "the other one is named" \
    '^  OFS669 this is iter_0000010, the latest of 2 checkpoints; others: iter_0000020 \(give their paths, or -o run=yes\)$'
ok "that is no damage" "$OPTIMFS" fsck "$scratch/tracked"
"$OPTIMFS" reshard --to zero1@1 "$ck" "$scratch/tagged" >/dev/null 2>&1
tag=$(cat "$scratch/tagged/latest")
cp -r "$scratch/tagged/$tag" "$scratch/tagged/global_step60"
mkdir "$scratch/tagged/global_step70"
ok "the checkpoint that DeepSpeed's latest names opens" "$OPTIMFS" info "$scratch/tagged"
has "the others are named, if they are checkpoints" \
    "^  OFS669 this is $tag, the latest of 2 checkpoints; others: global_step60 \("
rm -r "$scratch/tagged/global_step60"
ok "it opens without the other one" "$OPTIMFS" info "$scratch/tagged"
not_ok "then there was no choice" grep -q OFS669 "$scratch/out"

# One model in two formats.
mkdir "$scratch/both"
cp "$st" "$scratch/both/model.safetensors"
"$OPTIMFS" reshard --to torch,only=model "$data/dcp_fsdp2_w2/ckpt" "$scratch/old" >/dev/null 2>&1
cp "$scratch"/old/* "$scratch/both/pytorch_model.bin"
ok "info of a model in two formats succeeds" "$OPTIMFS" info "$scratch/both"
has "the form that is not read is named" \
    '^  OFS685 pytorch_model\.bin is left out: model\.safetensors has the model, too, and is what from_pretrained loads$'
"$OPTIMFS" cat "$scratch/both" $w >"$scratch/got" && "$OPTIMFS" cat "$ck" $w >"$scratch/want"
ok "its weights are those of safetensors" cmp "$scratch/got" "$scratch/want"
"$OPTIMFS" ls -R "$scratch/both" >"$scratch/out"
not_ok "no name stands twice in it" grep -q '~2' "$scratch/out"
ok "it can be resharded" \
    "$OPTIMFS" reshard --to safetensors,hf,only=model "$scratch/both" "$scratch/hf"

# Files of two jobs.
jobs=$TOP_SRCDIR/tests/data/jobs
# elements CASE PATH: the elements of a tensor, each once
elements() {
	"$OPTIMFS" cat "$scratch/$1" "$2" 2>&1 | od -v -An -tf4 -w4 | sort -u | tr -d ' \n'
}
cp -r "$jobs"/* "$scratch" && chmod -R u+w "$scratch"
is "the job that fsdp_config.json tells is read" "$(elements world_sizes model/w)" 4
is "its optimizer is of the same job" "$(elements world_sizes optim/state/w/exp_avg)" 4
"$OPTIMFS" ls -R "$scratch/world_sizes" >"$scratch/out"
not_ok "the other job is not in its tree" grep -q '~2' "$scratch/out"
ok "info of files of two jobs succeeds" "$OPTIMFS" info "$scratch/world_sizes"
has "info prints the ranks of the job that is read" '^job +4 ranks$'
has "the other job is left out with a warning" \
    '^  OFS181 model_world_size_2_rank_0\.pt and others like it are left out: '
has "info names each of its files" \
    '^  model_world_size_2_rank_0\.pt, model_world_size_2_rank_1\.pt, .*: older job: of a job of 2 ranks, not of 4$'
rm "$scratch/world_sizes/fsdp_config.json"
touch -d @1000 "$scratch/world_sizes"/*
refused "two complete jobs of an unknown order are refused by name" \
    'OFS674 .*model_world_size_2_rank_0\.pt .* 2 ranks .*, model_world_size_4_rank_0\.pt of one by 4' \
    "$scratch/world_sizes"
touch -d @2000 "$scratch/world_sizes"/*_2_*
is "without fsdp_config.json the later job is read" "$(elements world_sizes model/w)" 2
rm "$scratch"/world_sizes/*_2_rank_1.pt
is "a later job that is not complete is not read" "$(elements world_sizes model/w)" 4
cp "$jobs"/world_sizes/model_world_size_2_rank_1.pt "$scratch/world_sizes"
touch -d @2000 "$scratch/world_sizes"/model_world_size_2_rank_*
refused "a model of one job and an optimizer of another are refused by name" \
    'OFS674 .* of 2 ranks model_world_size_2_rank_0\.pt is complete, and of 4 optim_world_size_4_rank_0\.pt' \
    "$scratch/world_sizes"

# Files that each hold a model and its optimizer.
mkdir "$scratch/models" "$scratch/steps" "$scratch/twice"
whole=$data/torchsave_full/ckpt/state.pt
cp "$whole" "$scratch/models/best.pt"
cp "$whole" "$scratch/models/last.pt"
ok "info of two models in one directory succeeds" "$OPTIMFS" info "$scratch/models"
has "it says which one is shown, and how to see the other" \
    '^  OFS630 .*model/ is best\.model, and last\.model is below extra/ \(model_key=last\.model '
ok "that works" "$OPTIMFS" info -o model_key=last.model "$scratch/models"
not_ok "and then nothing has to be said" grep -q OFS630 "$scratch/out"
ok "info of one of the files succeeds" "$OPTIMFS" info "$scratch/models/last.pt"
not_ok "and has nothing to say either" grep -q OFS630 "$scratch/out"
for step in 10 20; do cp "$whole" "$scratch/steps/model_step_$step.pt"; done
ok "files of two steps are no parts of one checkpoint" "$OPTIMFS" info "$scratch/steps"
has "but a run" '^a run of 2 checkpoints'
status "a command that takes one checkpoint refuses it" 3 "$OPTIMFS" fsck "$scratch/steps"
is "its steps open by their numbers" "$("$OPTIMFS" cat "$scratch/steps:20" $w | cksum)" \
    "$("$OPTIMFS" cat "$whole" $w | cksum)"
make safetensors,only=model "$scratch/whole_model"
for i in 1 2; do
	cp "$scratch"/whole_model/*.safetensors "$scratch/twice/model-0000$i-of-00002.safetensors"
done
refused "two files of a model that have the same tensor are refused by name" \
    'OFS674 .*: model-00001-of-00002\.safetensors and model-00002-of-00002\.safetensors both have ' \
    "$scratch/twice"

# A step of verl.
step=$scratch/verl/global_step_3
mkdir -p "$step/actor/huggingface"
cp "$jobs"/world_sizes/*_4_* "$step/actor"
echo '{"hidden_size": 3}' >"$step/actor/huggingface/config.json"
cp "$TOP_SRCDIR/tests/data/extra/torch_save/plain.pt" "$step/data.pt"
echo 3 >"$scratch/verl/latest_checkpointed_iteration.txt"
ok "a step of verl with one role opens" "$OPTIMFS" ls -R "$scratch/verl"
has "the state of the data loader beside it is in extra/" '^extra/data/.'
has "its settings are in extra/" '^extra/huggingface/config\.json$'
has "the states have the names of the model" '^optim/state/w/exp_avg$'
ok "info of the role succeeds" "$OPTIMFS" info "$step/actor"
has "info names the trainer" '^trainer +verl$'
not_ok "nothing of the role is left out" grep -q '^left out' "$scratch/out"
cp -r "$step/actor" "$step/critic"
is "two roles are a run" "$("$OPTIMFS" ls "$step" by-name | paste -s -)" \
    "actor/	critic/"
status "a command that takes one checkpoint names the roles" 3 "$OPTIMFS" fsck "$step"
refused "what lies above names the roles of the step" \
    'OFS681 .*give one of: global_step_3/actor, global_step_3/critic$' "$scratch/verl"
refused "a step of roles is not called unfinished, and names them" \
    'OFS851 step 3, global_step_3, is not one checkpoint: .*give global_step_3/actor or global_step_3/critic$' \
    "$scratch/verl:3"

is "numbered files are read as the complete job" "$(elements numbers model/w)" 2
ok "info of numbered files of two jobs succeeds" "$OPTIMFS" info "$scratch/numbers"
has "the files of the other job are left out with a warning" '^  OFS181 checkpoint_2\.pt and others like it are left out: '

touch -d @1000 "$scratch"/shards/*
refused "shards of two saves of an unknown order are refused by name" \
    'OFS674 .*shard-00001-model-00001-of-00001\.safetensors .*, shard-00001-model-00001-of-00002\.safetensors' \
    "$scratch/shards"
touch -d @2000 "$scratch"/shards/*-of-00002.safetensors
is "of shards of two saves the later ones are read" \
    "$(elements shards model/a) $(elements shards model/b)" '1 2'
ok "info of them succeeds" "$OPTIMFS" info "$scratch/shards"
has "the shards of the earlier save are left out with a warning" \
    '^  OFS181 shard-00001-model-00001-of-00001\.safetensors is left out: '

touch -d @1000 "$scratch"/fewer/*
is "of shards of 4 ranks and then of 2 those of 2 are read" "$(elements fewer model/w)" 2
ok "info of them succeeds" "$OPTIMFS" info "$scratch/fewer"
has "the job has 2 ranks" '^job +2 ranks$'
has "the shards of other ranks are left out with a warning" \
    '^  OFS181 shard-00003-model-00001-of-00001\.safetensors is left out: it is of a save by more ranks, '
touch -d @2000 "$scratch"/fewer/shard-0000[34]*
ok "info succeeds if these are newer" "$OPTIMFS" info "$scratch/fewer"
has "then it says that a later save has not finished" \
    '^  OFS181 shard-00003-.* by more ranks, and the others are not, and newer: a later save that has not finished$'
has "and so does the list of what is left out" '^  shard-00003-.*, shard-00004-.*: unfinished: of another save$'
rm "$scratch/fewer/shard-00001-model-00001-of-00001.safetensors"
not_ok "shards that do not fit, and of which no job is complete, are damaged" \
    "$OPTIMFS" fsck "$scratch/fewer"

# A save over another one, killed.
touch -d @1000 "$scratch/overwritten/.metadata" "$scratch/overwritten/__1_0.distcp"
touch -d @9000 "$scratch/overwritten/__0_0.distcp"
ok "info of a checkpoint that was half overwritten succeeds" "$OPTIMFS" info "$scratch/overwritten"
has "a data file that is newer than the index is a warning" \
    '^  OFS687 __0_0\.distcp is newer than the index \(1 such file\), '
ok "fsck of it succeeds" "$OPTIMFS" fsck "$scratch/overwritten"
has "fsck reports it" 'OFS687 __0_0\.distcp is newer than the index'
touch -d @9001 "$scratch/overwritten/__1_0.distcp"
ok "info succeeds where all data files are newer" "$OPTIMFS" info "$scratch/overwritten"
not_ok "a copy in which all data files are newer than the index is no warning" \
    grep -q OFS687 "$scratch/out"
touch -d @8999.5 "$scratch/overwritten/.metadata"
touch -d @8999 "$scratch/overwritten/__1_0.distcp"
ok "info succeeds where files were copied one after the other" "$OPTIMFS" info "$scratch/overwritten"
not_ok "a copy in another order is no warning" grep -q OFS687 "$scratch/out"

# A data file of another save, in which an item is not what the index says, though
# the file is long enough.
dcp=$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w2/ckpt
cp "$dcp/__0_0.distcp" "$scratch/overwritten"
touch -d @9000 "$scratch"/overwritten/* "$scratch/overwritten/.metadata"
not_ok "fsck without --data finds a data file of another save" "$OPTIMFS" fsck "$scratch/overwritten"
has "it names the file" 'model/w.* __0_0\.distcp at 0: '

# What ranks of an earlier job have left.
cp -r "$TOP_SRCDIR/tests/data/extra/trainers/acc_v2_SHARDED_STATE_DICT" "$scratch/acc"
chmod -R u+w "$scratch/acc"
for i in 1 2 3; do
	cp "$scratch/acc/random_states_0.pkl" "$scratch/acc/random_states_$i.pkl"
done
find "$scratch/acc" -type f -exec touch -d @2000 {} +
touch -d @1000 "$scratch/acc/random_states_2.pkl" "$scratch/acc/random_states_3.pkl"
is "random states of an earlier job are left out" \
    "$("$OPTIMFS" ls "$scratch/acc" extra | paste -s -)" "random_states_0/	random_states_1/"
ok "info of them succeeds" "$OPTIMFS" info "$scratch/acc"
has "with a warning" '^  OFS181 random_states_3\.pkl is left out: it is older than the model'
touch -d @2000 "$scratch/acc/random_states_3.pkl"
is "where the times of a copy say nothing they stay" \
    "$("$OPTIMFS" ls "$scratch/acc" extra | grep -c random_states)" 4

# Shards of a model in another number of files.
mkdir "$scratch/hub"
cp "$st" "$scratch/hub/model-00001-of-00001.safetensors"
for i in 1 2; do
	cp "$TOP_SRCDIR/tests/data/pytorch/safetensors_plain/ckpt/model.safetensors" \
	    "$scratch/hub/model-0000$i-of-00003.safetensors"
done
touch -d @1000 "$scratch"/hub/*
ok "shards of two saves open if one is complete" "$OPTIMFS" info "$scratch/hub"
has "the shards that are not complete are left out with a warning" \
    '^  OFS181 model-00001-of-00003\.safetensors is left out: it is of a save in 3 files, and the others are of one in 1$'
"$OPTIMFS" cat "$scratch/hub" $w >"$scratch/got"
ok "the weights are those of the complete save" cmp "$scratch/got" "$scratch/want"
touch -d @2000 "$scratch"/hub/*-of-00003.safetensors
ok "info succeeds if the others are newer" "$OPTIMFS" info "$scratch/hub"
has "then it says that a later save has not finished" \
    '^  OFS181 model-00001-of-00003.* of one in 1, and newer: a later save that has not finished$'
ok "reshard of the save before it succeeds" sh -c '"$0" reshard -q --to safetensors "$1" "$2" 2>"$3"' \
    "$OPTIMFS" "$scratch/hub" "$scratch/hub.new" "$scratch/said"
like "and says which files it left out" "$(cat "$scratch/said")" \
    "optimfs: OFS181 model-00001-of-00003*a later save that has not finished"

# DeepSpeed without the optimizer's files.
cp -r "$TOP_SRCDIR/tests/data/deepspeed/z2_ws2_bf16/ckpt" "$scratch/zero" && chmod -R u+w "$scratch/zero"
rm "$scratch"/zero/global_step3/*_optim_states.pt
ok "DeepSpeed's weights open without the optimizer's files" "$OPTIMFS" info "$scratch/zero"
has "info prints the number of ranks of the job" '^job +2 ranks$'
has "info says how many ranks are missing" \
    "^  OFS180 the optimizer's files of all 2 ranks are missing "
status "fsck of them exits with 1" 1 "$OPTIMFS" fsck "$scratch/zero"

# The cache of Hugging Face: names in a snapshot are links to blobs.
cache=$scratch/hub.cache/models--org--name
snap=$cache/snapshots/0123abcd
mkdir -p "$snap" "$cache/blobs" "$cache/refs"
cp "$st" "$cache/blobs/aa"
echo '{}' >"$cache/blobs/bb"
ln -s ../../blobs/aa "$snap/model.safetensors"
ln -s ../../blobs/bb "$snap/config.json"
"$OPTIMFS" cat "$snap" $w >"$scratch/got"
ok "a snapshot of the cache of Hugging Face has the weights of its blobs" \
    cmp "$scratch/got" "$scratch/want"
ok "info of it succeeds" "$OPTIMFS" info "$snap"
has "a link to settings is left out by its name" '^  config\.json: not read: settings$'
ok "it opens with -o follow" "$OPTIMFS" info -o follow "$snap"
ok "a file in it opens under its name" "$OPTIMFS" info "$snap/model.safetensors"
"$OPTIMFS" cat "$cache" $w >"$scratch/got"
ok "so has the directory of the model in the cache" cmp "$scratch/got" "$scratch/want"
ln -s "$st" "$snap/pytorch_model.bin"
ln -s ../../../../st/model.safetensors "$snap/optimizer.pt"
ok "a snapshot with links out of the cache opens" "$OPTIMFS" info "$snap"
has "links out of the cache are not followed" \
    '^  optimizer\.pt, pytorch_model\.bin: not read: a symbolic link$'

# Links elsewhere.
mkdir -p "$scratch/linked/real"
cp "$st" "$scratch/linked/real/m.data"
ln -s real/m.data "$scratch/linked/model.safetensors"
refused "a link is named, with the option that follows it" \
    'OFS680 .* model\.safetensors is a symbolic link, which is only followed with -o follow' "$scratch/linked"
"$OPTIMFS" cat -o follow "$scratch/linked" $w >"$scratch/got"
ok "-o follow follows it" cmp "$scratch/got" "$scratch/want"
mkdir "$scratch/out_of_it"
ln -s "$st" "$scratch/out_of_it/model.safetensors"
"$OPTIMFS" info -o follow "$scratch/out_of_it" >"$scratch/out" 2>&1
has "-o follow says of a link that leads elsewhere that it does" \
    'OFS680 .* model\.safetensors is a symbolic link that leads out of the directory, or to nothing'

# Every file of a directory is read, left out by name, or tells how to read others.
is "info accounts for every file of the fixtures" "$(cd "$TOP_SRCDIR/tests/data" && python3 - "$OPTIMFS" \
    jobs/fewer jobs/numbers evidence/sorted_equal evidence/galore extra/trainers/* extra/olmo_local/* \
    deepspeed/z1_ws2_bf16/ckpt deepspeed/z3_ws2_two_tags megatron/*/fully_reshardable pytorch/hf_storage_w2/ckpt <<'EOF'
import json, os, subprocess, sys

TELLS = {"metadata.json", "fsdp_config.json", "latest", "latest_universal", "latest_checkpointed_iteration.txt"}
for top in filter(os.path.isdir, sys.argv[2:]):
    info = json.loads(subprocess.check_output([sys.argv[1], "info", "--json", top]))
    left = tuple(os.path.join(top, i["path"]) for i in info["left_out"])
    files = [os.path.join(d, f) for d, _, names in os.walk(top) for f in names]
    rest = [f for f in files if not f.startswith(left) and os.path.basename(f) not in TELLS
            and not f.endswith(".index.json")]
    if len(rest) != info["files"]["count"]:
        print(top, info["files"]["count"], sorted(rest))
print("done")
EOF
)" done

# Files of a model whose index is lost, too: their names tell how many there were.
parts=$scratch/parts
mkdir "$parts"
for n in 1 2 4; do
	python3 - "$parts/model-0000$n-of-00005.safetensors" "$n" <<'END'
import json, struct, sys
h = json.dumps({"w" + sys.argv[2]: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(h)) + h + bytes(4))
END
done
"$OPTIMFS" info "$parts" >"$scratch/out" 2>&1
like "a file that is not there is missing" "$(cat "$scratch/out")" \
    '*missing *OFS661 model-00003-of-00005.safetensors is missing: *OFS661 model-00005-of-00005.*'
is "the others are read" "$("$OPTIMFS" ls "$parts" model | tr '\n' ' ')" 'w1 w2 w4 '
status "fsck says so" 1 "$OPTIMFS" fsck "$parts"
mv "$parts/model-00004-of-00005.safetensors" "$parts/model-00003-of-00003.safetensors"
mv "$parts/model-00001-of-00005.safetensors" "$parts/model-00001-of-00003.safetensors"
mv "$parts/model-00002-of-00005.safetensors" "$parts/model-00002-of-00003.safetensors"
like "of complete ones nothing is" "$("$OPTIMFS" info "$parts")" '*missing     nothing*'
done_testing
