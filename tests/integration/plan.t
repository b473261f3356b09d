#!/bin/sh
# plan.t - optimfs plan predicts a layout; optimfs map shows which rank has what
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

four=$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w4/ckpt

ok "plan of dcp@7 succeeds" "$OPTIMFS" plan "$four" dcp@7
like "plan prints sizes in the units of the other verbs" "$(cat "$scratch/out")" 'view     dcp@7
ranks    7, 0 without files
per rank * kB to * kB, median * kB
files    8, * MB; * kB of it headers, indexes and values
largest  __*_0.distcp, * kB'
said=$("$OPTIMFS" plan --json "$four" dcp@7)
"$OPTIMFS" reshard --to dcp@7 "$four" "$scratch/made" 2>/dev/null
sizes=$(cd "$scratch/made" && wc -c __*.distcp | sed '$d' | sort -n |
    awk '{ s[NR] = $1 } END { printf "\"min\": %d, \"median\": %d, \"max\": %d", s[1], s[4], s[7] }')
like "plan predicts the bytes per rank that reshard writes" "$said" "*$sizes, \"empty\": 0,*"
like "plan predicts the number of files" \
    "$said" "*\"files\": $(find "$scratch/made" -type f | wc -l),*"
like "plan names the largest file" "$said" "*\"largest_file\": \"$(cd "$scratch/made" &&
    find . -type f -printf '%s %f\n' | sort -n | tail -n 1 | cut -d ' ' -f 2)\"*"
zero=$TOP_SRCDIR/tests/data/deepspeed/z3_ws2_bf16/ckpt
"$OPTIMFS" reshard --to zero3@3 "$zero" "$scratch/zero" 2>/dev/null
sizes=$(find "$scratch/zero" -name '*zero_pp_rank_*' -printf '%f %s\n' |
    sed 's/.*zero_pp_rank_\([0-9]*\)[^ ]*/\1/' | awk '{ n[$1] += $2 } END { for (r in n) print n[r] }' |
    sort -n | awk '{ s[NR] = $1 } END { printf "\"min\": %d, \"median\": %d, \"max\": %d", s[1], s[2], s[3] }')
like "plan counts the files bf16_zero_pp_rank_R_* for rank R" \
    "$("$OPTIMFS" plan --json "$zero" zero3@3)" "*$sizes, \"empty\": 0,*"
ok "plan of a view without ranks succeeds" "$OPTIMFS" plan "$four" safetensors
is "plan of a view without ranks prints nothing about ranks" "$(grep -c rank "$scratch/out")" 0
ok "plan of dcp@2,only=model succeeds" "$OPTIMFS" plan "$four" dcp@2,only=model
is "plan of dcp@2,only=model prints no share of headers" \
    "$(grep -c headers "$scratch/out")" 0
ok "plan --sweep 8..64 succeeds" "$OPTIMFS" plan --sweep 8..64 "$four" dcp
is "plan --sweep 8..64 prints one line for each doubling" \
    "$(awk 'NR > 1 { print $1 }' "$scratch/out" |
    tr '\n' ' ')" '8 16 32 64 '
like "plan --sweep counts ranks without files for 64 ranks" \
    "$(awk 'END { print ($9 > 0) }' "$scratch/out")" 1
ok "plan --sweep with a step and --json succeeds" "$OPTIMFS" plan --sweep 2..6+2 --json "$four" dcp
is "plan --sweep --json prints one object for each step" \
    "$(grep -c '"schema": "optimfs.plan", "v": 1' "$scratch/out")" 3
status "plan --sweep with a negative step exits with 2" 2 "$OPTIMFS" plan --sweep 8..16+-1 "$four" dcp
status "plan with an empty view exits with 2" 2 "$OPTIMFS" plan "$four" ''
status "plan with a malformed --sweep exits with 2" 2 "$OPTIMFS" plan --sweep 8-64 "$four" dcp
status "plan of an unknown view exits with 2" 2 "$OPTIMFS" plan "$four" nothing@4
status "plan --sweep of a view without ranks exits with 2" 2 "$OPTIMFS" plan --sweep 2..4 "$four" safetensors
like "plan --sweep says that the view has no ranks" "$(cat "$scratch/err")" \
    "*'safetensors' has no ranks: plan it without --sweep*"
is "a rejected plan prints nothing to standard output" "$(cat "$scratch/out")" ""
ok "plan --sweep whose end is not reached succeeds" "$OPTIMFS" plan --sweep 3..11 "$four" dcp
is "plan --sweep stops before an end that is not reached" \
    "$(awk 'NR > 1 { print $1 }' "$scratch/out" |
    tr '\n' ' ')" '3 6 '

ok "map --json succeeds" "$OPTIMFS" map --json "$four"
like "map --json prints one object for each tensor" "$(head -n 1 "$scratch/out")" \
    '{"schema": "optimfs.map", "v": 1, "path": "model/adapter.bias", "bytes": 28, "ranks": ?0, 1, 2, 3?, "parts": ??0, 3, 8, 0?, ?3, 1, 4, 0??}'
ok "map succeeds" env LC_ALL=C.UTF-8 "$OPTIMFS" map "$four"
said=$(cat "$scratch/out")
like "map prints a header with the ranks" "$said" 'ranks 0 to 3, one column per rank; *'
is "map prints one line for each tensor of the model" "$(echo "$said" | grep -c ' model/')" \
    "$("$OPTIMFS" stat "$four" --json model | grep -c '"optimfs.stat"')"
full=$(printf '\342\226\210')
none=$(printf '\302\267')
is "map draws a tensor that all ranks share equally" \
    "$(echo "$said" | sed -n 's/ *48 B  model\/norm.weight$//p')" "$full$full$full$full"
like "map marks ranks that have nothing of a tensor" "$said" "*$none*"
ok "map in the C locale succeeds" "$OPTIMFS" map "$four"
is "map in the C locale prints the same map in ASCII" "$(cat "$scratch/out")" \
    "$(echo "$said" | sed "1s/part;/part, 8;/; s/$none/./g" |
    tr -d '\342\226' | tr '\201-\210' 1-8)"
ok "map of a directory succeeds" "$OPTIMFS" map "$four" /optim/state/norm.bias/
is "map of a directory prints the tensors in it, with their paths" \
    "$(awk 'NR > 1 { print $4 }' "$scratch/out" | tr '\n' ' ')" \
    'optim/state/norm.bias/exp_avg optim/state/norm.bias/exp_avg_sq '
ok "map --json of a tensor succeeds" "$OPTIMFS" map --json "$four" model/rope
like "map --json of a tensor prints its object" "$(head -n 1 "$scratch/out")" \
    '{"schema": "optimfs.map", "v": 1, "path": "model/rope", *, "parts": ??0, 1, 48, 0???'
is "map of a tensor prints only a summary besides" "$(sed 1d "$scratch/out")" \
    '{"schema": "optimfs.map.summary", "v": 1, "tensors": 1}'
status "map of text exits with 2" 2 "$OPTIMFS" map "$four" optim/state/norm.bias/step
like "OFS011 says that text has no parts" "$(cat "$scratch/err")" \
    '*OFS011 optim/state/norm.bias/step: is not a tensor, so it has no parts'
status "map of a path that does not exist exits with 3" 3 "$OPTIMFS" map "$four" modle
like "map suggests the nearest path" "$(cat "$scratch/err")" "*did you mean 'model'?*"
status "map of a file without ranks exits with 3" 3 "$OPTIMFS" map \
    "$TOP_SRCDIR/tests/data/numpy/state.npz"
like "OFS013 says why there is no map" "$(cat "$scratch/err")" \
    '*OFS013 *state.npz: nothing says which rank wrote which file, so there is no map'
ok "map of a checkpoint of one rank succeeds" "$OPTIMFS" map "${four%_w4/ckpt}_w1/ckpt"
like "map of a checkpoint of one rank has one column" "$(head -n 1 "$scratch/out")" 'rank 0, one column per rank; *'
mkdir "$scratch/less" && ln "$four"/.metadata "$four"/__[013]_0.distcp "$scratch/less" 2>/dev/null ||
    cp "$four"/.metadata "$four"/__[013]_0.distcp "$scratch/less"
# 64 equal ranks do not fit into 40 columns one by one
"$TOP_BUILDDIR/tests/bench/mkdcp" -n 1 -s 64,4 -r 64 -S rows "$scratch/many"
ok "map of 64 ranks succeeds" "$OPTIMFS" map "$scratch/many"
is "equal ranks are equally high" "$(grep -o '^[.1-8x]* ' "$scratch/out" | tr -d '8 ' | sort -u)" ''
like "the heading says that columns are means" "$(cat "$scratch/out")" \
    'ranks 0 to 63, each column the mean of 2*'
rm "$scratch/many/__3_0.distcp"
"$OPTIMFS" map "$scratch/many" >"$scratch/out"
like "a column with a missing file is marked" "$(tail -n 1 "$scratch/out")" '8x8888*'
ok "map of a checkpoint without the file of a rank succeeds" env LC_ALL=C.UTF-8 "$OPTIMFS" map "$scratch/less" model/norm.weight
is "map marks what is missing" "$(sed -n '2s/ .*//p' "$scratch/out")" "$full${full}x$full"
done_testing
