#!/bin/sh
# ids.t - names for integer parameter IDs: from what they may follow
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

data=$TOP_SRCDIR/tests/data/evidence

# number CKPT PARAM [OPTION...]: the elements of its exp_avg, which are equal
number() {
	ck=$1
	param=$2
	shift 2
	"$OPTIMFS" cat "$@" "$ck" "optim/state/$param/exp_avg" 2>/dev/null |
	    od -An -v -tf4 | tr -s ' ' '\n' | sed '/^$/d' | sort -u | paste -sd,
}
# are WHAT CKPT [OPTION...]: are query, key and value the parameters 0, 1 and 2?
are() {
	what=$1
	ck=$2
	shift 2
	is "$what" "$(number "$ck" query "$@") $(number "$ck" key "$@") $(number "$ck" value "$@")" \
	    "1 2 3"
}

# --- ids=model ---------------------------------------------------------------

are "a pickle keeps the order of the model" "$data/pickle_equal.pt" -o ids=model
are "shapes tell where a file is sorted" "$data/sorted_shapes" -o ids=model
# Of two tensors of one shape, the other group needs one. PyTorch saved the same
# state by names, too.
raw=$TOP_SRCDIR/tests/data/pytorch/rank_dtensor_fsdp2_tp_w4
is "a tensor that another group needs is no candidate" \
    "$("$OPTIMFS" sum -o ids=model "$raw/ckpt_raw" optim/state | cut -d" " -f1)" \
    "$("$OPTIMFS" sum "$raw/ckpt" optim/state | cut -d" " -f1)"
like "names that only the order tells are a warning" \
    "$("$OPTIMFS" info -o ids=model "$data/pickle_equal.pt")" '*OFS631 *named by the order of the model alone*'
like "reshard says so" \
    "$("$OPTIMFS" reshard -q --to dcp@1 -o ids=model "$data/pickle_equal.pt" "$scratch/by_order" 2>&1)" \
    '*OFS631 *named by the order of the model alone*'
for command in cat stat; do
	like "$command says so" \
	    "$("$OPTIMFS" $command -o ids=model "$data/pickle_equal.pt" optim/state/key/exp_avg 2>&1 >/dev/null)" \
	    '*OFS631 *named by the order of the model alone*'
done
"$OPTIMFS" info -o ids=model "$data/sorted_shapes" >"$scratch/info"
not_ok "those that shapes tell are none" grep -q OFS631 "$scratch/info"
status "equal shapes in a sorted file are refused" 2 \
    "$OPTIMFS" ls -o ids=model "$data/sorted_equal"
like "the message has IDs and names" "$("$OPTIMFS" ls -o ids=model "$data/sorted_equal" 2>&1)" \
    '*OFS636 *IDs 0, 1, 2 may be any of key, query, value: shapes do not tell*'
is "without ids= they stay numbers" "$("$OPTIMFS" ls "$data/sorted_equal" optim/state | paste -s -)" \
    "0/	1/	2/"
printf 'query\nkey\nvalue\n' >"$scratch/names"
are "a file gives them names" "$data/sorted_equal" -o "ids=$scratch/names"

# An archive that was made from sorted keys knows that their order says nothing.
"$OPTIMFS" reshard -q --to torch "$data/pickle_equal.pt" "$scratch/kept"
are "torch.save files keep the order of a pickle" "$scratch/kept" -o ids=model
"$OPTIMFS" reshard -q --to torch "$scratch/kept" "$scratch/twice"
are "also the second time" "$scratch/twice" -o ids=model
"$OPTIMFS" reshard -q --to dcp@1 "$data/pickle_equal.pt" "$scratch/dcp"
for ck in sorted_equal "$scratch/dcp"; do
	rm -rf "$scratch/of_sorted"
	(cd "$data" && "$OPTIMFS" reshard -q --to torch "$ck" "$scratch/of_sorted")
	like "a torch.save file of ${ck##*/} is no evidence for an order" \
	    "$("$OPTIMFS" ls -o ids=model "$scratch/of_sorted" 2>&1)" \
	    '*OFS636 *IDs 0, 1, 2 may be any of *'
done
"$OPTIMFS" reshard -q --to torch "$data/sorted_shapes" "$scratch/shapes"
are "but its shapes are" "$scratch/shapes" -o ids=model

# --- param_names -------------------------------------------------------------

are "param_names need no option" "$data/param_names.pt"
are "nor in several groups" "$data/param_names_groups"
are "nor in a directory of DCP, whose index has no lists" "$data/param_names_dcp"
"$OPTIMFS" diff "$data/param_names_dcp" "$data/param_names_groups" >/dev/null 2>&1
is "both are the same state" $? 0
is "params has them" \
    "$("$OPTIMFS" cat "$data/param_names_groups" optim/param_groups/0/params | paste -s -)" \
    "query	value"
ok "a view by names can be made of them" \
    "$OPTIMFS" reshard --to dcp@2 "$data/param_names_groups" "$scratch/named"
are "and has them" "$scratch/named"
"$OPTIMFS" reshard --to torch "$data/param_names_groups" "$scratch/again"
are "they survive a conversion to torch.save" "$scratch/again"

# --- moments that are smaller than their parameter -----------------------------

for ck in galore apollo.pt adafactor.pt; do
	status "check finds nothing wrong in $ck" 0 "$OPTIMFS" check "$data/$ck"
done
is "ids=model names the state of APOLLO" \
    "$("$OPTIMFS" ls -o ids=model "$data/apollo.pt" optim/state)" "w/"
is "ids=model names the state of Adafactor" \
    "$("$OPTIMFS" ls -o ids=model "$data/adafactor.pt" optim/state | paste -s -)" "bias/	weight/"
echo w >"$scratch/names"
is "ids=FILE names the state of APOLLO" \
    "$("$OPTIMFS" ls -o "ids=$scratch/names" "$data/apollo.pt" optim/state)" "w/"

done_testing
