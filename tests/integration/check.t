#!/bin/sh
# check.t - states that no training leaves are found, others are not
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
# damage PATH RANK ACTION...: in a copy of what four ranks saved; sets file and
# offset.
damage() {
	copy "$four"
	damaged=$(python3 "$TOP_SRCDIR/tests/support/payload.py" "$ck" "$@")
	file=${damaged% *}
	offset=${damaged#* }
}
# finds CODE PATH: check says so, first of all.
finds() {
	status "it is found" 1 "$OPTIMFS" check "$ck"
	like "$1 at $2" "$(head -n 1 "$scratch/out")" "$2: $1 *"
}
swap() {
	mv "$ck/$1" "$ck/swap"
	mv "$ck/$2" "$ck/$1"
	mv "$ck/swap" "$ck/$2"
}

# What PyTorch and DeepSpeed saved is sound, but for two that hold numbers of
# all kinds.
for dir in "$data"/pytorch/*/ckpt "$data"/deepspeed/*/ckpt \
    "$data"/megatron/*/*/iter_*; do
	case $dir in
	*/dcp_dtypes/* | */dcp_names/*) continue ;;
	*/fsdp1_local_flat_fullshard_w3/* | */fsdp1_local_orig_fullshard_w2/*) continue ;;
	esac
	ok "${dir#"$data"/} is sound" "$OPTIMFS" check "$dir"
	is "and nothing is said" "$(cat "$scratch/out" "$scratch/err")" ''
done

# What was not read is not sound.
flat=$data/pytorch/fsdp1_local_flat_fullshard_w3/ckpt
status "moments that nobody can read without units" 1 "$OPTIMFS" check "$flat"
like "are named" "$(cat "$scratch/out")" \
    'optim/state/0/exp_avg: OFS216 this and 7 more were not checked: OFS166 units unknown: -o units=FILE*'
status "as JSON" 1 "$OPTIMFS" check --json "$flat"
like "too" "$(cat "$scratch/out")" '*"code": "OFS216", "path": "optim/state/0/exp_avg"*'
if command -v script >/dev/null; then
	ok "a terminal" script -qec "'$OPTIMFS' check '$four'" "$scratch/tty"
	like "is told what was looked at" "$(cat "$scratch/tty")" \
	    '*: sound: 82 tensors and the state of 26 parameters were checked*'
fi

state=optim/state/layers.0.w1.weight
damage $state/exp_avg_sq 2 nan 5
finds OFS202 $state/exp_avg_sq
like "with file, offset and rank" "$(head -n 1 "$scratch/out")" \
    "*1 of 228 elements are no finite numbers; *, in $file at byte $offset (rank 2)"
like "and what it means" "$(sed -n 2p "$scratch/out")" '    training from *'

damage $state/exp_avg_sq 2 shift 1
finds OFS204 $state/exp_avg
damage $state/exp_avg 1 from optim/state/layers.1.w1.weight/exp_avg
finds OFS204 $state/exp_avg
damage $state/exp_avg_sq 0 from $state/exp_avg
finds OFS203 $state/exp_avg_sq
damage $state/exp_avg_sq 3 zero 0
finds OFS205 $state/exp_avg
status "as JSON" 1 "$OPTIMFS" check --json "$ck"
like "it is one object a line" "$(cat "$scratch/out")" \
    '{"schema": "optimfs.check", "v": 1, "kind": "finding", "code": "OFS205", "path": "'$state'/exp_avg", *}'

copy "$four"
swap __1_0.distcp __2_0.distcp
status "the files of two ranks are swapped" 1 "$OPTIMFS" check "$ck"
like "which cannot be read then" "$(head -n 1 "$scratch/out")" '*: OFS201 *'

copy "$data/deepspeed/z1_ws2_bf16/ckpt"
rank=bf16_zero_pp_rank_
end=_mp_rank_00_optim_states.pt
swap global_step3/${rank}0$end global_step3/${rank}1$end
status "those of ZeRO's optimizer are" 1 "$OPTIMFS" check "$ck"
like "which fits no parameter" "$(head -n 1 "$scratch/out")" '*: OFS201 *'

copy "$data/pytorch/dcp_names/ckpt"
status "a state without the other moment" 1 "$OPTIMFS" check "$ck"
like "is one that is missing" "$(cat "$scratch/out")" \
    '*optim/state/%2E%2E: OFS210 has no exp_avg_sq*'

# What an edit of the values makes wrong.
# edit PYTHON [OPTIMIZER]: changes the state dict d, whose optimizer is d["optim"]
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
	ok "what AdamW leaves is sound" "$OPTIMFS" check "$ck"
	is "and nothing is said" "$(cat "$scratch/out")" ''
	ok "each parameter is told of" "$OPTIMFS" check -v "$ck"
	like "with the next update beside the weights" \
	    "$(cat "$scratch/out")" '*ratio  parameter*optim/state/weight*'
	edit 'w["exp_avg"] = w["exp_avg"].t().clone()'
	status "a moment of another shape" 1 "$OPTIMFS" check "$ck"
	like "is found" "$(cat "$scratch/out")" \
	    '*optim/state/weight/exp_avg: OFS208 shape 3,4, and *'
	edit 'b["step"] = torch.tensor(1000.)'
	finds OFS209 'optim/state/*'
	edit 'g["params"] = ["weight"]'
	finds OFS212 optim/state/bias
	edit 'g["betas"] = (0.9, 1.5)'
	status "betas" 1 "$OPTIMFS" check "$ck"
	like "that cannot be" "$(cat "$scratch/out")" \
	    '*optim/param_groups/0: OFS213 betas?1? is 1.5*'
	edit 'w["exp_avg_sq"] *= 1e-6'
	finds OFS204 optim/state/weight/exp_avg
	edit 'for k, v in d["optim"]["state"].items():
    v["fp32_param"] = d["model"][k].clone()
    d["model"][k] = d["model"][k].bfloat16()'
	ok "rounded weights are those of the optimizer" "$OPTIMFS" check "$ck"
	edit 'w["fp32_param"] = d["model"]["weight"].flip(0).clone()'
	finds OFS207 optim/state/weight/fp32_param
	edit 'w["exp_avg"][2] = 0; w["exp_avg_sq"][2] = 0'
	"$OPTIMFS" check -v "$ck" >"$scratch/out"
	is "a row without a gradient is counted" \
	    "$(awk '$7 == "optim/state/weight" { print $3 }' "$scratch/out")" 1

	# Other optimizers.
	for o in 'Adamax(m.parameters())' 'SGD(m.parameters(), 0.1, 0.9)' \
	    'RMSprop(m.parameters(), centered=True, momentum=0.9)' \
	    'Adagrad(m.parameters())' 'Adadelta(m.parameters())' \
	    'NAdam(m.parameters())' 'RAdam(m.parameters())'; do
		edit '' "$o"
		ok "what ${o%%(*} leaves is sound" "$OPTIMFS" check "$ck"
		is "and nothing is said" "$(cat "$scratch/out")" ''
	done
	edit 'w["exp_inf"] *= 0.1' 'Adamax(m.parameters())'
	finds OFS204 optim/state/weight/exp_avg
	edit 'w["grad_avg"] += 2 * w["square_avg"].sqrt()' \
	    'RMSprop(m.parameters(), centered=True)'
	finds OFS204 optim/state/weight/grad_avg
	factored='
q = torch.rand(4, 3)
for v, x in (w, q), (b, None):
    v.clear()
    v.update({"step": 3})
w["exp_avg_sq_row"], w["exp_avg_sq_col"] = q.mean(-1), q.mean(-2)
b["exp_avg_sq"] = torch.rand(4)'
	edit "$factored"
	ok "what Adafactor leaves is sound" "$OPTIMFS" check "$ck"
	is "and nothing is said" "$(cat "$scratch/out")" ''
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
	ok "what SOAP leaves is sound" "$OPTIMFS" check "$ck"
	is "and nothing is said" "$(cat "$scratch/out")" ''
	edit "$soap
w['GG'][1] = w['GG'][1].roll(1, 0)"
	status "a preconditioner whose rows have moved" 1 \
	    "$OPTIMFS" check "$ck"
	like "is found" "$(cat "$scratch/out")" \
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
	skip 52 "no torch"
fi

# Two copies of each shard.
copy "$data/pytorch/fsdp1_sharded_orig_hybridshard_w4/ckpt_rankfiles"
ok "copies that agree are sound" "$OPTIMFS" check "$ck"
printf 'xxxxxxxx' |
    dd of="$ck/state_rank2.pt" bs=1 seek=44000 conv=notrunc 2>/dev/null
status "one that is damaged" 1 "$OPTIMFS" check "$ck"
like "is told from the other" "$(cat "$scratch/out")" \
    '*: OFS206 state_rank?.pt and state_rank2.pt have different copies *'

# A parameter that is frozen, and has state.
flat=$data/pytorch/fsdp1_local_orig_fullshard_w2
ok "with its units a checkpoint is sound" \
    "$OPTIMFS" check -o "units=$flat/units.json" "$flat/ckpt"
python3 - "$flat/units.json" "$scratch/units.json" <<'END'
import json, sys
units = json.load(open(sys.argv[1]))
units[0]["requires_grad"] = [n != "norm.bias" for n in units[0]["fqns"]]
json.dump(units, open(sys.argv[2], "w"))
END
status "state of a frozen parameter" 1 \
    "$OPTIMFS" check -o "units=$scratch/units.json" "$flat/ckpt"
like "is found" "$(cat "$scratch/out")" 'optim/state/norm.bias: OFS211 *'
done_testing
