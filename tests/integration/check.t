#!/bin/sh
# check.t - optimfs check finds optimizer states that no training leaves
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

requires python3
export OPTIMFS
data=$TOP_SRCDIR/tests/data
four=$data/pytorch/dcp_fsdp2_w4/ckpt
ck=$scratch/ck

copy() {
	rm -rf "$ck"
	cp -r "$1" "$ck"
	chmod -R u+w "$ck"
}
# damage PATH RANK ACTION...: change a copy of the four-rank checkpoint; sets
# file and offset
damage() {
	copy "$four"
	damaged=$(python3 "$TOP_SRCDIR/tests/support/payload.py" "$ck" "$@")
	file=${damaged% *}
	offset=${damaged#* }
}
# finds CODE PATH: is the first finding CODE at PATH?
finds() {
	status "check exits with 1 for $1 at $2" 1 "$OPTIMFS" check "$ck"
	like "the first finding is $1 at $2" "$(head -n 1 "$scratch/out")" "$2: $1 *"
}
swap() {
	mv "$ck/$1" "$ck/swap"
	mv "$ck/$2" "$ck/$1"
	mv "$ck/swap" "$ck/$2"
}

# Fixtures from real training are sound, except two with made-up numbers.
for dir in "$data"/pytorch/*/ckpt "$data"/deepspeed/*/ckpt \
    "$data"/megatron/*/*/iter_*; do
	case $dir in
	*/dcp_dtypes/* | */dcp_names/*) continue ;;
	*/dcp_fsdp1_local_orig_w3/*) continue ;; # slices without units
	*/fsdp1_local_flat_fullshard_w3/* | */fsdp1_local_orig_fullshard_w2/*) continue ;;
	*/dp_reshardable/*) continue ;;
	esac
	ok "check exits with 0 for ${dir#"$data"/}" "$OPTIMFS" check "$dir"
	is "check prints nothing for ${dir#"$data"/}" "$(cat "$scratch/out" "$scratch/err")" ''
done

# Tensors that could not be read are reported, not taken for sound.
flat=$data/pytorch/fsdp1_local_flat_fullshard_w3/ckpt
status "check exits with 1 for flat rank files without units" 1 "$OPTIMFS" check "$flat"
like "OFS216 says how many tensors were not checked, and why" "$(cat "$scratch/out")" \
    'optim/state/0/exp_avg: OFS216 this and 7 more were not checked: OFS166 units unknown: -o units=FILE*'
status "check --json exits with 1 for flat rank files without units" 1 \
    "$OPTIMFS" check --json "$flat"
like "check --json reports OFS216 for flat rank files without units" \
    "$(cat "$scratch/out")" '*"code": "OFS216", "path": "optim/state/0/exp_avg"*'
ok "check judges the state in buckets that have names" \
    "$OPTIMFS" check "$data/megatron/llama_dp2/dp_reshardable"
if command -v script >/dev/null; then
	ok "check on a terminal succeeds" script -qec "'$OPTIMFS' check '$four'" "$scratch/tty"
	like "check on a terminal says how many tensors it has checked" "$(cat "$scratch/tty")" \
	    '*: sound: 82 tensors checked, with the optimizer state of 26 parameters*'
fi

state=optim/state/layers.0.w1.weight
damage $state/exp_avg_sq 2 nan 5
finds OFS202 $state/exp_avg_sq
like "the finding names count, file, offset and rank" "$(head -n 1 "$scratch/out")" \
    "*1 of 228 elements is not finite; *, in $file at byte $offset (rank 2)"
like "the finding says what it means for training" \
    "$(sed -n 2p "$scratch/out")" '    further training *'
if command -v script >/dev/null; then
	script -qec "'$OPTIMFS' check --progress '$ck'" "$scratch/tty" >/dev/null
	is "check ends the line of its progress before a finding" \
	    "$(tr '\r' '\n' <"$scratch/tty" | grep -c "^$state/exp_avg_sq: OFS202")" 1
fi

cp -r "$four" "$scratch/lost" && chmod -R u+w "$scratch/lost" && rm "$scratch/lost/__1_0.distcp"
status "check of a checkpoint with a missing file exits with 1" 1 "$OPTIMFS" check "$scratch/lost"
is "check names a missing file once, with the number of tensors" "$(cat "$scratch/out")" \
    "OFS140 __1_0.distcp is missing: $("$OPTIMFS" check --json "$scratch/lost" |
	grep -c OFS201) tensors and values cannot be read (optimfs check --json lists them)"
mkdir "$scratch/unlisted"
cp "$TOP_SRCDIR"/tests/data/delta/slime_xxh3/ckpt/deltas/weight_v000004/model.safetensors "$scratch/unlisted/model-00001-of-00002.safetensors"
status "of files without an index a missing one is no sound checkpoint" 1 "$OPTIMFS" check "$scratch/unlisted"
like "it is named" "$(cat "$scratch/out")" \
    '*OFS661 model-00002-of-00002.safetensors is missing*'
mkdir "$scratch/unlisted-pt"
python3 "$TOP_SRCDIR/tests/support/opaque.py" --names "$scratch/unlisted-pt/model-00001-of-00002.pt"
status "the same of files of torch.save" 1 "$OPTIMFS" check "$scratch/unlisted-pt"
like "its name" "$(cat "$scratch/out")" '*OFS661 model-00002-of-00002.pt is missing*'
cp -r "$four" "$scratch/two" && chmod -R u+w "$scratch/two"
for moment in exp_avg exp_avg_sq; do
	python3 "$TOP_SRCDIR/tests/support/payload.py" "$scratch/two" $state/$moment 2 nan 5 >/dev/null
done
status "check of two tensors with a NaN exits with 1" 1 "$OPTIMFS" check "$scratch/two"
is "what several findings mean is printed once" \
    "$(grep -c OFS202 "$scratch/out") $(grep -c '^    further training' "$scratch/out")" "2 1"

damage $state/exp_avg_sq 2 shift 1
finds OFS204 $state/exp_avg
damage $state/exp_avg 1 from optim/state/layers.1.w1.weight/exp_avg
finds OFS204 $state/exp_avg
damage $state/exp_avg_sq 0 from $state/exp_avg
finds OFS203 $state/exp_avg_sq
damage $state/exp_avg_sq 3 zero 0
finds OFS205 $state/exp_avg
status "check --json exits with 1 for a zeroed second moment" 1 "$OPTIMFS" check --json "$ck"
like "check --json prints one object a line" "$(cat "$scratch/out")" \
    '{"schema": "optimfs.check", "v": 1, "kind": "finding", "code": "OFS205", "path": "'$state'/exp_avg", *}'

copy "$four"
swap __1_0.distcp __2_0.distcp
status "check exits with 1 when two rank files are swapped" 1 "$OPTIMFS" check "$ck"
is "check says once of each swapped file that it does not match the index" \
    "$(sed 's/: [0-9]* tensors.*//' "$scratch/out")" \
    "OFS615 __1_0.distcp does not match the index
OFS615 __2_0.distcp does not match the index"
"$OPTIMFS" check --json "$ck" >"$scratch/out"
ok "check --json reports each tensor of a swapped file as OFS201" \
    test "$(grep -c OFS201 "$scratch/out")" -gt 50

# The archives in ZeRO's files have the names under which they were saved.
rank=bf16_zero_pp_rank_
end=_mp_rank_00_optim_states.pt
for case in z1_ws2_bf16 z3_ws2_bf16; do
	copy "$data/deepspeed/$case/ckpt"
	swap global_step3/${rank}0$end global_step3/${rank}1$end
	ok "two files of $case that are swapped are read as what they are" \
	    "$OPTIMFS" diff "$ck" "$data/deepspeed/$case/ckpt"
	"$OPTIMFS" fsck "$ck" >"$scratch/out"
	like "OFS181 names the swapped files of $case" "$(cat "$scratch/out")" \
	    "*OFS181 global_step3/${rank}0$end was written by rank 1, and is read as *"
done

rm -rf "$ck"
"$OPTIMFS" reshard --to dcp@2 "$data/deepspeed/z3_ws2_bf16/ckpt" "$ck"
python3 "$TOP_SRCDIR/tests/support/payload.py" "$ck" optim/state/blocks.0.fc_in.weight/fp32 0 nan 5 >/dev/null
status "check exits with 1 when an fp32 weight is NaN" 1 "$OPTIMFS" check "$ck"
is "what is wrong in fp32 weights is found once" \
    "$(grep -c '/fp32: OFS202' "$scratch/out") $(sort "$scratch/out" | uniq -d)" "1 "

copy "$data/pytorch/dcp_names/ckpt"
status "check exits with 1 for a state without second moment" 1 "$OPTIMFS" check "$ck"
like "OFS210 names the missing exp_avg_sq" "$(cat "$scratch/out")" \
    '*optim/state/%2E%2E: OFS210 has no exp_avg_sq*'

# A universal checkpoint has a file for each state of a parameter.
copy "$data/deepspeed/z2_ws2_bf16/ckpt_universal"
small=global_step3_universal/zero/small
swap $small/fp32.pt $small/step.pt
status "check exits with 1 when two states are swapped" 1 "$OPTIMFS" check "$ck"
like "OFS208 says that a state is one number" "$(cat "$scratch/out")" \
    '*optim/state/small/fp32: OFS208 shape () (one number), and the parameter has 3*'
like "OFS208 says that a step is not one number" "$(cat "$scratch/out")" \
    '*optim/state/small/step: OFS208 shape 3, and a step is one number*'
rm "$ck/$small/step.pt"
status "check exits with 1 for a state without step" 1 "$OPTIMFS" check "$ck"
like "OFS210 names the missing step" "$(cat "$scratch/out")" \
    '*optim/state/small: OFS210 has no step, unlike others of its group*'

# Damage to values: edit PYTHON [OPTIMIZER] runs PYTHON on the state dict d of a
# trained model, whose optimizer is d["optim"].
edit() {
	rm -rf "$ck"
	"$python" - "$ck" <<END
import sys, torch
m = torch.nn.Linear(3, 4)
o = torch.optim.${2:-AdamW(m.parameters())}
for i in range(3):
    m(torch.arange(3.) + i).square().sum().backward()
    o.step()
d = {"model": m.state_dict(), "optim": o.state_dict()}
names = ["weight", "bias"]
d["optim"]["state"] = {names[k]: v for k, v in d["optim"]["state"].items()}
g = d["optim"]["param_groups"][0]
g["params"] = list(names)
w = d["optim"]["state"]["weight"]
b = d["optim"]["state"]["bias"]
$1
torch.save(d, sys.argv[1])
END
}
python=
for p in python3 /usr/bin/python3; do
	"$p" -c 'import torch' 2>/dev/null && python=$p && break
done
if [ -n "$python" ]; then
	edit ''
	ok "check exits with 0 for AdamW" "$OPTIMFS" check "$ck"
	is "check prints nothing for AdamW" "$(cat "$scratch/out")" ''
	ok "check -v of AdamW succeeds" "$OPTIMFS" check -v "$ck"
	like "check -v prints the ratio of update to weight for each parameter" \
	    "$(cat "$scratch/out")" '*ratio  parameter*optim/state/weight*'
	edit 'w["exp_avg"] = w["exp_avg"].t().clone()'
	status "check exits with 1 for a moment of another shape" 1 "$OPTIMFS" check "$ck"
	like "OFS208 names the moment and its shape" "$(cat "$scratch/out")" \
	    '*optim/state/weight/exp_avg: OFS208 shape 3,4, and *'
	edit 'w["exp_avg"] = w["exp_avg"].t().clone(); del d["model"]'
	status "check exits with 1 for two moments of different shape without a model" 1 \
	    "$OPTIMFS" check "$ck"
	like "OFS208 names both moments" "$(cat "$scratch/out")" \
	    '*optim/state/weight/exp_avg_sq: OFS208 shape 4,3, and exp_avg has 3,4*'
	edit 'b["step"] = torch.tensor(1000.)'
	finds OFS209 'optim/state/*'
	edit 'g["params"] = ["weight"]'
	finds OFS212 optim/state/bias
	edit 'g["betas"] = (0.9, 1.5)'
	status "check exits with 1 for a beta above 1" 1 "$OPTIMFS" check "$ck"
	like "OFS213 names the beta and its value" "$(cat "$scratch/out")" \
	    '*optim/param_groups/0: OFS213 betas?1? is 1.5*'
	edit 'w["exp_avg_sq"] *= 1e-6'
	finds OFS204 optim/state/weight/exp_avg
	edit 'for k, v in d["optim"]["state"].items():
    v["fp32_param"] = d["model"][k].clone()
    d["model"][k] = d["model"][k].bfloat16()'
	ok "check accepts bf16 weights that are the rounded fp32 weights" "$OPTIMFS" check "$ck"
	edit 'w["fp32_param"] = d["model"]["weight"].flip(0).clone()'
	finds OFS207 optim/state/weight/fp32_param
	edit 'w["exp_avg"][2] = 0; w["exp_avg_sq"][2] = 0'
	"$OPTIMFS" check -v "$ck" >"$scratch/out"
	is "check -v counts a row without gradient" \
	    "$(awk '$7 == "optim/state/weight" { print $3 }' "$scratch/out")" 1

	# Other optimizers.
	for o in 'Adamax(m.parameters())' 'SGD(m.parameters(), 0.1, 0.9)' \
	    'RMSprop(m.parameters(), centered=True, momentum=0.9)' \
	    'Adagrad(m.parameters())' 'Adadelta(m.parameters())' \
	    'NAdam(m.parameters())' 'RAdam(m.parameters())'; do
		edit '' "$o"
		ok "check exits with 0 for ${o%%(*}" "$OPTIMFS" check "$ck"
		is "check prints nothing for ${o%%(*}" "$(cat "$scratch/out")" ''
	done
	edit 'w["exp_inf"] *= 0.1' 'Adamax(m.parameters())'
	finds OFS204 optim/state/weight/exp_avg
	edit 'w["grad_avg"] += 2 * w["square_avg"].sqrt()' \
	    'RMSprop(m.parameters(), centered=True)'
	finds OFS204 optim/state/weight/grad_avg
	edit 'w["step_size"][1] *= -1' 'Rprop(m.parameters())'
	finds OFS203 optim/state/weight/step_size
	factored='
q = torch.rand(4, 3)
for v, x in (w, q), (b, None):
    v.clear()
    v.update({"step": 3})
w["exp_avg_sq_row"], w["exp_avg_sq_col"] = q.mean(-1), q.mean(-2)
b["exp_avg_sq"] = torch.rand(4)'
	edit "$factored"
	ok "check exits with 0 for Adafactor" "$OPTIMFS" check "$ck"
	is "check prints nothing for Adafactor" "$(cat "$scratch/out")" ''
	edit "$factored
w['exp_avg_sq_col'] *= 1.1"
	finds OFS214 'optim/state/weight/exp_avg_sq_*'
	edit "$factored
b['exp_avg_sq'][2] = -1"
	finds OFS203 optim/state/bias/exp_avg_sq
	soap='
g = torch.rand(4, 3)
b.clear()
w.update({"GG": [g @ g.t(), g.t() @ g], "Q": [torch.eye(4).flip(0),
    torch.linalg.qr(torch.rand(3, 3))[0]]})
w["exp_avg_sq"] *= 1e-6'
	edit "$soap"
	ok "check exits with 0 for SOAP" "$OPTIMFS" check "$ck"
	is "check prints nothing for SOAP" "$(cat "$scratch/out")" ''
	edit "$soap
w['GG'][1] = w['GG'][1].roll(1, 0)"
	status "check exits with 1 for a SOAP preconditioner with shifted rows" 1 \
	    "$OPTIMFS" check "$ck"
	like "OFS214 names the preconditioner and its trace" "$(cat "$scratch/out")" \
	    'optim/state/weight/GG/1: OFS214 the trace is *'
	edit "$soap
w['GG'][0][2][2] = -1e-3"
	finds OFS203 optim/state/weight/GG/0
	edit "$soap
w['Q'][1][1] = w['Q'][1][1] * 2"
	finds OFS215 optim/state/weight/Q/1
	edit 'w["precond_0"] = -torch.eye(4)' 'SGD(m.parameters(), 0.1, 0.9)'
	finds OFS203 optim/state/weight/precond_0
else
	skip 56 "no torch"
fi

# Numbers that are no tensors, and 0-dim tensors, have to be numbers.
python3 - "$scratch" <<'END'
import json, pickle, struct, sys, zipfile
inf, nan = float("inf"), float("nan")
with zipfile.ZipFile(sys.argv[1] + "/numbers.pt", "w") as z:
    z.writestr("archive/data.pkl", pickle.dumps(
        {"model": {}, "optimizer": {
            "state": {0: {"bound": inf, "loss": nan, "note": "NaN of text"}},
            "param_groups": [{"lr": 0.1, "limit": inf, "params": [0]}]}}, 2))
    z.writestr("archive/version", "3\n")
header = json.dumps({"scale": {"dtype": "F32", "shape": [],
                               "data_offsets": [0, 4]}}).encode()
with open(sys.argv[1] + "/scale.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(header)) + header + struct.pack("<f", nan))
END
status "check exits with 1 for values that are not finite" 1 \
    "$OPTIMFS" check "$scratch/numbers.pt"
is "OFS202 names such values of the state, and no infinite option" \
    "$(grep OFS "$scratch/out")" 'optim/state/0/bound: OFS202 is infinite
optim/state/0/loss: OFS202 is NaN'
status "check exits with 1 for a parameter without dimensions that is NaN" 1 \
    "$OPTIMFS" check "$scratch/scale.safetensors"
like "OFS202 names the parameter without dimensions" "$(cat "$scratch/out")" \
    'model/scale: OFS202 is NaN*'

# Replicas of a shard have to be equal.
copy "$data/pytorch/fsdp1_sharded_orig_hybridshard_w4/ckpt_rankfiles"
ok "check exits with 0 for equal replicas" "$OPTIMFS" check "$ck"
printf 'xxxxxxxx' |
    dd of="$ck/state_rank2.pt" bs=1 seek=44000 conv=notrunc 2>/dev/null
status "check exits with 1 for a damaged replica" 1 "$OPTIMFS" check "$ck"
like "OFS206 names the files of both replicas" "$(cat "$scratch/out")" \
    '*: OFS206 state_rank?.pt and state_rank2.pt have different copies *'

# A frozen parameter has no optimizer state.
flat=$data/pytorch/fsdp1_local_orig_fullshard_w2
ok "check exits with 0 with the units of the job" \
    "$OPTIMFS" check -o "units=$flat/units.json" "$flat/ckpt"
python3 - "$flat/units.json" "$scratch/units.json" <<'END'
import json, sys
units = json.load(open(sys.argv[1]))
units[0]["requires_grad"] = [n != "norm.bias" for n in units[0]["fqns"]]
json.dump(units, open(sys.argv[2], "w"))
END
status "check exits with 1 for the state of a frozen parameter" 1 \
    "$OPTIMFS" check -o "units=$scratch/units.json" "$flat/ckpt"
like "OFS211 names the frozen parameter" "$(cat "$scratch/out")" 'optim/state/norm.bias: OFS211 *'
done_testing
