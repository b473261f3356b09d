#!/bin/sh
# megatron_buckets.t - names for the state in Megatron-Core's flat buckets
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

requires python3 gzip
export OPTIMFS
data=$TOP_SRCDIR/tests/data/megatron
tool=$TOP_SRCDIR/tests/support/buckets.py

# The cache of solutions must not be that of the user.
XDG_CACHE_HOME=$scratch/cache
export XDG_CACHE_HOME

unpack() {
	rm -rf "${scratch:?}/$1"
	gzip -dc "${data}_buckets/$1.tar.gz" | tar -C "$scratch" -xf -
}

# Are all states of a checkpoint those of the manifest?
same() {
	rm -rf "$scratch/out.d"
	"$OPTIMFS" cp -r "$1" optim "$scratch/out.d" &&
	    python3 "$tool" compare "$2" "$scratch/out.d"
}

found() {
	"$OPTIMFS" info --json "$1" |
	    python3 -c 'import json, sys
b = json.load(sys.stdin)["buckets"]
print(b["proved"], b["ordered"], b["open"])'
}

# Parameters: proved by their weights, known by their order; parts without a
# name.
while read -r case want what; do
	unpack "$case"
	ok "$what: all states have names, and are what the ranks had" \
	    same "$scratch/$case/ckpt" "$scratch/$case/manifest.json"
	is "$what: info counts them" "$(found "$scratch/$case/ckpt")" \
	    "$(echo "$want" | tr , ' ')"
done <<'END'
tp2pp1dp2 19,0,0 tensor parallel with gated MLP
tp1pp2dp2_tied 28,0,0 an embedding on two stages
tp1pp2dp2vpp2 27,0,0 virtual pipeline
tp1pp1dp4ep2_moe 27,0,0 experts in a second optimizer
tp1pp1dp2_frozen 8,0,0 frozen parameters
tp1pp1dp2_norms_one 14,7,0 equal norms
tp1pp1dp2_fp8 21,0,0 weights of 8 bits
END

# The lower halves of master weights cannot be compared: only the order decides.
unpack tp2pp1dp2_remainder
is "16-bit remainders: all states have names, and are what the ranks had, joined with the weights" \
    "$(python3 "$tool" named "$scratch/tp2pp1dp2_remainder/ckpt" \
    "$scratch/tp2pp1dp2_remainder/manifest.json")" "63 right, 0 wrong"
is "16-bit remainders: info says that their order was used" \
    "$(found "$scratch/tp2pp1dp2_remainder/ckpt")" "0 21 0"
ok "16-bit remainders are no master weights" "$OPTIMFS" ls \
    "$scratch/tp2pp1dp2_remainder/ckpt" \
    optim/state/decoder.final_layernorm.weight/fp32_remainder
"$OPTIMFS" reshard -q --to torch "$scratch/tp2pp1dp2_remainder/ckpt" "$scratch/whole"
is "16-bit remainders: what was converted has each master weight once" \
    "$("$OPTIMFS" ls "$scratch/whole" optim/state/decoder.final_layernorm.weight |
    tr '\n' ' ')" "exp_avg exp_avg_sq fp32 fp32_remainder step "

# verl saves model, optimizer and the rest as checkpoints of their own.
unpack verl_tp2pp2dp2
ck=$scratch/verl_tp2pp2dp2/ckpt
ok "verl: the states of a role are named by the model of its other directory" \
    same "$ck/actor" "$scratch/verl_tp2pp2dp2/manifest.json"
is "verl: info counts them" "$(found "$ck/actor")" '15 0 0'
like "verl: the only role is opened, with the state of the data loader" "$("$OPTIMFS" info "$ck")" "$ck
*written by verl*
extra  *content_metadata, data, *"
is "verl: settings are kept" \
    "$("$OPTIMFS" cat "$ck/actor" extra/huggingface/config.json)" \
    "$(cat "$ck/actor/model/huggingface/config.json")"
ok "verl: the union can be converted" \
    "$OPTIMFS" reshard -q --to dcp@2 "$ck/actor" "$scratch/verl"
ok "verl: nothing is lost" "$OPTIMFS" diff "$ck/actor" "$scratch/verl"
rm -r "$ck/actor/extra/dist_ckpt"
like "OFS689: a directory of the contents that is missing is named" \
    "$("$OPTIMFS" info "$ck/actor")" '*OFS689 extra/dist_ckpt, which*'
printf '{"contents": {"model": {"path": "../..", "format": "huggingface"}, "x": ' \
    >"$ck/actor/ckpt_contents.json"
like "OFS689: damaged contents name checkpoints, which can be opened" \
    "$("$OPTIMFS" ls "$ck/actor" 2>&1)" '*OFS681*model/dist_ckpt*'
ck=$scratch/tp2pp1dp2/ckpt

# One state, saved in both ways.
"$OPTIMFS" diff "$data/llama_dp2/dp_reshardable" \
    "$data/llama_dp2/fully_reshardable" >"$scratch/diff"
is "diff with the same state by name finds no difference but in how it was saved" \
    "$(grep -v '^extra/\(content_metadata\|distributed\)/' "$scratch/diff")" ''

ok "reshard writes the named states" \
    "$OPTIMFS" reshard -q --to dcp@8 "$ck" "$scratch/dcp"
ok "the states of the new checkpoint are what the ranks had" \
    same "$scratch/dcp" "$scratch/tp2pp1dp2/manifest.json"
ok "check judges the named states" "$OPTIMFS" check "$ck"
ok "fsck finds no fault, and equal copies" "$OPTIMFS" fsck --data "$ck"

is "a norm of two tensor-parallel ranks is stored twice" \
    "$(python3 "$tool" copies "$ck" \
    optim/state/decoder.final_layernorm.weight/exp_avg)" 2

# Many samples are kept in the user's cache.
cache=$scratch/cache/optimfs
mkdir -p "$scratch/cache"
python3 "$TOP_SRCDIR/tests/support/make_buckets.py" "$scratch/large" 2
is "many parameters are found" "$(found "$scratch/large")" '192 0 0'
is "a small checkpoint leaves nothing in the cache, a large one a file" \
    "$(ls "$cache" | sed 's/-.*//')" buckets
file=$cache/$(ls "$cache")
is "the file is the user's only" "$(stat -c %a "$file")" 600
cp "$file" "$scratch/kept"
is "with the cache, the same are found" "$(found "$scratch/large")" '192 0 0'
ok "a cache that was used is not written again" cmp -s "$file" "$scratch/kept"
printf x | dd of="$file" bs=1 seek=5000 conv=notrunc 2>"$scratch/dd"
is "a damaged cache is not used" "$(found "$scratch/large")" '192 0 0'
ok "a damaged cache is replaced" cmp -s "$file" "$scratch/kept"
truncate -s 100 "$file"
is "a cache that is cut off is not used" "$(found "$scratch/large")" '192 0 0'
ok "a cache that is cut off is replaced" cmp -s "$file" "$scratch/kept"
chmod 666 "$file"
is "a cache that others can write to is not used" "$(found "$scratch/large")" '192 0 0'
is "it is replaced" "$(stat -c %a "$file")" 600
rm "$file"
chmod 777 "$cache"
is "names are found without a cache" "$(found "$scratch/large")" '192 0 0'
is "nothing is kept where others can write" "$(ls "$cache")" ''
chmod 700 "$cache"
touch "$scratch/large/__3_0.distcp"
found "$scratch/large" >"$scratch/out"
is "a checkpoint that has changed has a cache of its own" \
    "$(ls "$cache" | grep -c -v "$(basename "$file")")" 1
rm -r "$scratch/large"

# A weight that cannot be read is like no slice, whatever was read before it.
while read -r case weight want right; do
	unpack "$case"
	python3 "$tool" damage "$scratch/$case/ckpt" "model/$weight"
	is "$case with a damaged weight: what is certain is found" \
	    "$(found "$scratch/$case/ckpt")" "$(echo "$want" | tr , ' ')"
	is "... and nothing gets the wrong name" "$(python3 "$tool" named \
	    "$scratch/$case/ckpt" "$scratch/$case/manifest.json")" \
	    "$right right, 0 wrong"
done <<'END'
tp1pp1dp2_norms_one decoder.final_layernorm.weight 14,0,7 42
tp1pp1dp2_norms_one decoder.layers.0.mlp.linear_fc2.weight 13,7,1 60
tp2pp1dp2 decoder.layers.1.mlp.linear_fc1.weight 18,0,2 54
END

# Weights that are not those of the state: nothing gets the wrong name.
a=decoder.layers.0.mlp.linear_fc2.weight
b=decoder.layers.1.mlp.linear_fc2.weight
unpack tp1pp2dp2_tied
ck=$scratch/tp1pp2dp2_tied/ckpt
python3 "$tool" swap "$ck" model/$a model/$b
like "two layers with exchanged weights have no name" "$(found "$ck")" '26 0 2'
not_ok "the first of them has no state" "$OPTIMFS" ls "$ck" optim/state/$a
not_ok "nor has the other" "$OPTIMFS" ls "$ck" optim/state/$b
ok "their bucket is shown as it is stored" sh -c \
    "'$OPTIMFS' ls -R '$ck' optim/distributed | grep -q exp_avg_sq"
like "a warning says so" "$("$OPTIMFS" info "$ck")" \
    "*OFS648 the state of decoder.layers.mlp.linear_fc2.weight *"
status "check exits with 1 for state in a bucket" 1 "$OPTIMFS" check "$ck"
like "OFS216 says that the bucket was not checked" "$(cat "$scratch/out")" \
    'optim/distributed/*: OFS216 this and * more were not checked: its elements are not stored by parameter*'
is "all other states are what the ranks had" \
    "$(python3 "$tool" named "$ck" "$scratch/tp1pp2dp2_tied/manifest.json")" \
    "78 right, 0 wrong"

unpack tp1pp2dp2_tied
python3 "$tool" change "$ck" model/$a
is "a changed weight leaves one parameter without a name" "$(found "$ck")" '27 0 1'

done_testing
