#!/bin/sh
# plan.t - what a layout would be like; which rank holds what
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

four=$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w4/ckpt

ok "a layout is planned" "$OPTIMFS" plan "$four" dcp@7
said=$(cat "$scratch/out")
"$OPTIMFS" reshard --to dcp@7 "$four" "$scratch/made" 2>/dev/null
sizes=$(cd "$scratch/made" && wc -c __*.distcp | sed '$d' | sort -n |
    awk '{ s[NR] = $1 } END { printf "min %d, median %d, max %d", s[1], s[4], s[7] }')
like "as it is when it is made: bytes per rank" "$said" "*bytes per rank: $sizes
*"
like "files" "$said" "*files $(find "$scratch/made" -type f | wc -l), * bytes in all*"
like "the largest" "$said" "*largest file $(cd "$scratch/made" &&
    find . -type f -printf '%s %f\n' | sort -n | tail -n 1 | cut -d ' ' -f 2), * bytes"
like "no rank is empty" "$said" '*ranks without files 0
*'
ok "a layout without ranks" "$OPTIMFS" plan "$four" safetensors
is "says nothing about ranks" "$(grep -c rank "$scratch/out")" 0
ok "a layout of a part" "$OPTIMFS" plan "$four" dcp@2,only=model
is "is not compared with the elements of the whole" \
    "$(grep -c ^headers "$scratch/out")" 0
ok "several" "$OPTIMFS" plan --sweep 8..64 "$four" dcp
is "are a line each" "$(awk 'NR > 1 { print $1 }' "$scratch/out" |
    tr '\n' ' ')" '8 16 32 64 '
like "of which the large ones have ranks without anything" \
    "$(awk 'END { print ($6 > 0) }' "$scratch/out")" 1
ok "with a step" "$OPTIMFS" plan --sweep 2..6+2 --json "$four" dcp
is "as JSON" "$(grep -c '"schema": "optimfs.plan", "v": 1' "$scratch/out")" 3
status "a step that is none" 2 "$OPTIMFS" plan --sweep 8..16+-1 "$four" dcp
status "a view without a name" 2 "$OPTIMFS" plan "$four" ''
status "a range that is none" 2 "$OPTIMFS" plan --sweep 8-64 "$four" dcp
status "a view that is none" 2 "$OPTIMFS" plan "$four" nothing@4
status "of many" 2 "$OPTIMFS" plan --sweep 2..4 "$four" safetensors
like "says why" "$(cat "$scratch/err")" \
    "*'safetensors' has no ranks: plan it without --sweep*"
is "prints nothing but the message" "$(cat "$scratch/out")" ""
ok "a sweep whose end is not reached" "$OPTIMFS" plan --sweep 3..11 "$four" dcp
is "stops before it" "$(awk 'NR > 1 { print $1 }' "$scratch/out" |
    tr '\n' ' ')" '3 6 '

ok "the map as JSON" "$OPTIMFS" map --json "$four"
like "is an object a tensor" "$(head -n 1 "$scratch/out")" \
    '{"schema": "optimfs.map", "v": 1, "path": "model/adapter.bias", "bytes": 28, "ranks": ?0, 1, 2, 3?, "parts": ??0, 3, 8, 0?, ?3, 1, 4, 0??}'
ok "the shards are drawn" "$OPTIMFS" map "$four"
said=$(cat "$scratch/out")
like "for all ranks" "$said" 'ranks 0 to 3, one column per rank; *'
is "a line a tensor" "$(echo "$said" | grep -c ' model/')" \
    "$("$OPTIMFS" stat "$four" --json model | wc -l)"
full=$(printf '\342\226\210')
none=$(printf '\302\267')
like "what all ranks hold alike" "$said" \
    "*$full$full$full$full *1776 model/tok_embeddings.weight*" ||
    diag "$said"
like "what some have nothing of" "$said" "*$none*"
status "the map of a file that no rank wrote" 3 "$OPTIMFS" map \
    "$TOP_SRCDIR/tests/data/numpy/state.npz"
like "says why there is none" "$(cat "$scratch/err")" \
    '*OFS013 *state.npz: nothing says which rank wrote which file, so there is no map'
ok "the map of one rank" "$OPTIMFS" map "${four%_w4/ckpt}_w1/ckpt"
like "says so" "$(head -n 1 "$scratch/out")" 'rank 0, one column per rank; *'
done_testing
