#!/bin/sh
# sum.t - optimfs sum: one hash of a training state
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
requires sha256sum

pytorch=$TOP_SRCDIR/tests/data/pytorch
ck=$pytorch/dcp_fsdp2_w4/ckpt

sum() {
	"$OPTIMFS" sum "$@" | sed 's/ .*//'
}

ok "sum prints one line" "$OPTIMFS" sum "$ck"
is "with the hash and the checkpoint" \
    "$(sed 's/^[0-9a-f]\{32\}  /HASH /' "$scratch/out")" "HASH $ck"
want=$(sum "$ck")
for w in 1 2 3; do
	is "the state saved by $w ranks has the same hash" \
	    "$(sum "$pytorch/dcp_fsdp2_w$w/ckpt")" "$want"
done
for to in dcp@3 dcp-st@2 torch; do
	"$OPTIMFS" reshard -q --to "$to" "$ck" "$scratch/$to"
	is "so has the state as $to" "$(sum "$scratch/$to")" "$want"
done
[ "$(sum "$pytorch/dcp_ddp_w2/ckpt")" != "$want" ]
tap_result $? "another state has another hash"
is "--sha256 of a state is the same for every layout" \
    "$(sum --sha256 "$ck")" "$(sum --sha256 "$scratch/torch")"
is "and is the hash of the lines of --all" \
    "$("$OPTIMFS" sum --all --sha256 "$ck" | sha256sum | cut -c 1-64)" \
    "$(sum --sha256 "$ck")"
state=optim/state/layers.0.wq.weight
is "a line has the hash of the bytes, type, shape and path" \
    "$("$OPTIMFS" sum --all --sha256 "$ck" "$state/exp_avg")" \
    "$("$OPTIMFS" cat "$ck" $state/exp_avg | sha256sum | cut -c 1-64)  float32  12,12  $state/exp_avg"
is "a text has neither" \
    "$("$OPTIMFS" sum --all --sha256 "$ck" optim/param_groups/0/lr)" \
    "$("$OPTIMFS" cat "$ck" optim/param_groups/0/lr | sha256sum | cut -c 1-64)  -  -  optim/param_groups/0/lr"
# pieces of every length around those of the hash
dd if=/dev/urandom of="$scratch/bytes" bs=1000 count=3 2>/dev/null
python3 - "$scratch" <<'EOF' 2>/dev/null && have=yes || have=
import struct, json, sys, os
h, off, data = {}, 0, open(sys.argv[1] + "/bytes", "rb").read()
sizes = [1, 55, 56, 63, 64, 65, 119, 120, 127, 128, 1000]
for n in sizes:
    h["t%d" % n] = {"dtype": "U8", "shape": [n], "data_offsets": [off, off + n]}
    off += n
j = json.dumps(h).encode()
with open(sys.argv[1] + "/x.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(j)) + j + data[:off])
EOF
if [ "$have" ]; then
	is "SHA-256 of files of every length is what sha256sum prints" \
	    "$("$OPTIMFS" sum --all --sha256 "$scratch/x.safetensors" |
		while read -r hash type shape path; do
			[ "$("$OPTIMFS" cat "$scratch/x.safetensors" "$path" |
			    sha256sum | cut -c 1-64)" = "$hash" ] || echo "$path"
		done)" ''
else
	skip 1 "no python3"
fi
is "a path restricts it" "$(sum "$ck" model)" "$(sum "$scratch/torch" model)"
[ "$(sum "$ck" model)" != "$want" ]
tap_result $? "to what is below"
mkdir "$scratch/run"
cp -r "$ck" "$scratch/run/step-7"
cp -r "$ck" "$scratch/run/step-8"
cp -r "$ck" "$scratch/lost"
is "a name in a run is taken" "$(sum "$scratch/run:latest")" "$want"
like "--json prints an object with the algorithm" \
    "$("$OPTIMFS" sum --json "$ck")" "*\"algorithm\": \"xxh3-128\", \"hash\": \"$want\"*"
like "--json --all prints one for each file" \
    "$("$OPTIMFS" sum --json --all "$ck" | head -n 1)" \
    '*"path": "model/adapter.bias", "hash": "*", "dtype": "float32", "shape": "7"*'
rm "$scratch/lost/__1_0.distcp"
status "sum of a checkpoint with a lost shard fails" 3 "$OPTIMFS" sum "$scratch/lost"
like "names the tensor" "$(cat "$scratch/err")" 'optimfs: OFS140 model/*__1_0.distcp is missing*'
is "and prints no hash" "$(cat "$scratch/out")" ''
status "sum of a path that is not there fails" 3 "$OPTIMFS" sum "$ck" none
done_testing
