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

# Checkpoints beside files.
mkdir "$scratch/run"
cp -r "$ck" "$scratch/run/step-10"
cp -r "$ck" "$scratch/run/step-20"
cp "$pt" "$scratch/run/train_state.pt"
refused "steps beside a file are named" \
    'OFS681 .* give one of: step-20, step-10; or a file: train_state\.pt' "$scratch/run"
rm "$scratch/run/train_state.pt"
tar -cf "$scratch/run/logs.tar" -C "$scratch" st
refused "a tar archive does not hide the steps beside it" \
    'OFS681 .* give one of: step-20, step-10' "$scratch/run"
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

done_testing
