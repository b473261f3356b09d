#!/bin/sh
# stat.t - optimfs stat gives the same values for every layout, and finds NaNs
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

requires python3
data=$TOP_SRCDIR/tests/data/pytorch
four=$data/dcp_fsdp2_w4/ckpt

stats() {
	timeout "$limit" "$OPTIMFS" stat --json "$@" 2>&1
}

all=$(stats "$four")
like "stat --json prints a schema and a version" "$(echo "$all" | head -n 1)" \
    '{"schema": "optimfs.stat", "v": 1*'
want=$(echo "$all" | md5sum)
for jobs in 1 2 7; do
	is "stat -j $jobs prints the same values" \
	    "$(stats -j $jobs "$four" | md5sum)" "$want"
done
for ranks in 1 2 3; do
	is "stat of the checkpoint of $ranks ranks prints the same values" \
	    "$(stats "$data/dcp_fsdp2_w$ranks/ckpt" | md5sum)" "$want"
done
# as FORMAT CHECKPOINT [OPTION...]: are the statistics of the optimizer state
# the same after reshard to FORMAT?
as() {
	to=$1
	ck=$2
	shift 2
	"$OPTIMFS" reshard "$@" --to "$to" "$ck" "$scratch/$to" >/dev/null 2>&1
	is "stat of optimizer state is the same as $to" \
	    "$(stats "$scratch/$to" optim/state | md5sum)" \
	    "$(stats "$@" "$ck" optim/state | md5sum)"
	ok "stat lists all optimizer states as $to" \
	    test "$(stats "$@" "$ck" optim/state | wc -l)" -gt 9
}
as torch "$four"
as dcp@5 "$four"
flat=$data/fsdp1_local_orig_fullshard_w2
as fsdp@3 "$flat/ckpt" -o "units=$flat/units.json"

path=model/layers.0.w1.weight
ok "stat of one tensor succeeds" "$OPTIMFS" stat "$four" $path
text=$(cat "$scratch/out")
like "stat of one tensor prints one name and value a line" "$text" \
    'elements 228
finite 228
nan 0
*
xxh3 *
exponent.*'
is ".optimfs/stat of a tensor has the same text" \
    "$("$OPTIMFS" cat "$four" .optimfs/stat/$path)" "$text"
ok "stat of a directory succeeds" "$OPTIMFS" stat "$four" model
like "stat of a directory prints the sums of its tensors" "$(cat "$scratch/out")" 'tensors *
elements *'
ok "stat of a directory without tensors succeeds" "$OPTIMFS" stat "$four" optim/param_groups
is "stat of a directory without tensors prints zeros and no mean" "$(cut -d' ' -f1,2 "$scratch/out")" \
    'tensors 0
elements 0
finite 0
nan 0
inf 0
zeros 0
denormals 0
l1 0.0
l2 0.0'
status "stat of a scalar exits with 2" 2 \
    "$OPTIMFS" stat "$four" optim/param_groups/0/lr
not_ok ".optimfs/stat has no file for a scalar" \
    "$OPTIMFS" cat "$four" .optimfs/stat/optim/param_groups/0/lr

# A NaN in one shard.
cp -r "$four" "$scratch/bad"
chmod -R u+w "$scratch/bad"
set -- $("$OPTIMFS" stat --by rank --json "$four" $path | sed -n \
    's/.*"rank": \([0-9]*\).*/\1/p')
is "stat --by rank prints one line for each of four ranks" "$*" "0 1 2 3"
at=$("$OPTIMFS" cat "$four" .optimfs/layout/$path |
    sed -n 's/.*"rank": 2, "file": "\([^"]*\)", "offset": \([0-9]*\), "length": \([0-9]*\).*/\1 \2 \3/p')
set -- $at
file=$1
python3 - "$scratch/bad/$file" "$2" "$3" <<'END' >"$scratch/where"
import struct, sys, zipfile, io
path, off, n = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
data = bytearray(open(path, 'rb').read())
item = zipfile.ZipFile(io.BytesIO(bytes(data[off:off + n])))
info = [i for i in item.infolist() if i.filename.endswith('/data/0')][0]
at = off + info.header_offset
name, extra = struct.unpack('<HH', data[at + 26:at + 30])
at += 30 + name + extra + 4 * 5
data[at:at + 4] = struct.pack('<f', float('nan'))
open(path, 'wb').write(data)
print(at)
END
offset=$(cat "$scratch/where")
ok "stat --only nan>0 --by rank succeeds" "$OPTIMFS" stat --only 'nan>0' --by rank "$scratch/bad"
like "stat names tensor, rank, file and offset of the NaN" "$(cat "$scratch/out")" \
    "*
   2 * 1     0 *  $path
*the first NaN is element *, in $file at byte $offset (rank 2)"
is "stat --only nan>0 prints only the tensor with the NaN" "$(grep -c model/ "$scratch/out")" 1
is "stat prints the same values for all other tensors" \
    "$(stats --only 'nan=0' "$scratch/bad" | grep -v "$path\|summary" | md5sum)" \
    "$(echo "$all" | grep -v "$path\|summary" | md5sum)"
is "stat --only nan>0 prints nothing for a sound checkpoint" \
    "$("$OPTIMFS" stat --only 'nan>0' "$four")" ''
ok "stat --sort rms succeeds" "$OPTIMFS" stat --sort rms "$four" model
is "stat --sort rms prints the greatest value first" "$(awk 'NR > 1 { print $8 }' "$scratch/out" |
    sort -grc 2>&1)" ''
status "stat --only with an unknown value exits with 2" 2 "$OPTIMFS" stat --only 'big>0' "$four"
like "the message quotes the rejected --only" "$(cat "$scratch/err")" '*--only big>0*'
status "stat --sort with an unknown value exits with 2" 2 "$OPTIMFS" stat --sort name "$four"
rm "$scratch/bad/$file"
status "stat exits with 3 for a missing file" 3 "$OPTIMFS" stat "$scratch/bad"
like "stat prints OFS140 for the tensors of the missing file" "$(cat "$scratch/out")" '*OFS140*'
# What cannot be read may have a NaN.
status "stat exits with 4 for flat parameters without units" 4 "$OPTIMFS" stat --only 'nan>0' "$flat/ckpt"
is "stat --only counts the tensors whose units are unknown, in one line" \
    "$(sed '1d; s/[0-9][0-9]* tensors/N tensors/' "$scratch/out")" \
    'OFS166 units unknown without -o units=FILE: N tensors and values cannot be read (optimfs stat --json lists them)'
status "stat exits with 4 for a tensor of unknown type" 4 \
    "$OPTIMFS" stat "$TOP_SRCDIR/tests/data/extra/torch_save/nested.pt"
# A tensor larger than the memory limit, as a sparse file.
for k in 1 2; do
	python3 - "$scratch/large$k.safetensors" <<'END'
import json, struct, sys
n = 3 << 28
head = json.dumps({"w": {"dtype": "F32", "shape": [n // 4],
                         "data_offsets": [0, n]}}).encode()
with open(sys.argv[1], "wb") as f:
    f.write(struct.pack("<Q", len(head)) + head)
    f.truncate(8 + len(head) + n)
END
done
printf '\1' | dd of="$scratch/large2.safetensors" bs=1 seek=536870912 \
    conv=notrunc 2>/dev/null
small() { (ulimit -v 393216 && "$OPTIMFS" "$@"); }
if sanitized; then
	skip 4 "a sanitizer needs more memory"
else
	ok "stat of a tensor larger than memory succeeds" small stat -j 2 \
	    "$scratch/large1.safetensors" model/w
	is "stat counts the zeros of a tensor larger than memory" \
	    "$(sed -n 's/^zeros //p' "$scratch/out")" 201326592
	ok "check of a tensor larger than memory succeeds" \
	    small check -j 2 "$scratch/large1.safetensors"
	status "diff of tensors larger than memory exits with 1" 1 \
	    small diff "$scratch/large1.safetensors" \
	    "$scratch/large2.safetensors"
fi

# No statistics of part of a tensor.
cp -r "$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w4/ckpt" "$scratch/hurt"
chmod -R u+w "$scratch/hurt"
rm "$scratch/hurt/__1_0.distcp"
status "stat exits with 3 for a tensor with a missing shard" 3 \
    "$OPTIMFS" stat "$scratch/hurt" model/layers.0.w1.weight
is "stat prints no values for a tensor with a missing shard" "$(cat "$scratch/out")" ''
is "stat names the missing elements and file once" "$(cat "$scratch/err")" \
    'optimfs: model/layers.0.w1.weight: OFS140 elements [5:10, 0:12]: __1_0.distcp is missing'
"$OPTIMFS" stat --sort rms "$TOP_SRCDIR/tests/data/numpy/state.npz" >"$scratch/out" 2>/dev/null
like "stat --sort prints a tensor without elements last" "$(tail -n 1 "$scratch/out")" \
    '* extra/extra/empty'
done_testing
