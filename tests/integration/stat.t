#!/bin/sh
# stat.t - statistics do not depend on the layout, and find what is wrong
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

requires python3
data=$TOP_SRCDIR/tests/data/pytorch
four=$data/dcp_fsdp2_w4/ckpt

stats() {
	timeout "$limit" "$OPTIMFS" stat --json "$@" 2>&1
}

all=$(stats "$four")
like "every tensor has a line" "$(echo "$all" | head -n 1)" \
    '{"schema": "optimfs.stat", "v": 1*'
want=$(echo "$all" | md5sum)
for jobs in 1 2 7; do
	is "$jobs threads say the same" \
	    "$(stats -j $jobs "$four" | md5sum)" "$want"
done
for ranks in 1 2 3; do
	is "$ranks ranks saved the same" \
	    "$(stats "$data/dcp_fsdp2_w$ranks/ckpt" | md5sum)" "$want"
done
# as FORMAT CHECKPOINT [OPTION...]: made so, its states have the same
# statistics.
as() {
	to=$1
	ck=$2
	shift 2
	"$OPTIMFS" reshard "$@" --to "$to" "$ck" "$scratch/$to" >/dev/null 2>&1
	is "as $to it says the same" \
	    "$(stats "$scratch/$to" optim/state | md5sum)" \
	    "$(stats "$@" "$ck" optim/state | md5sum)"
	ok "of all states" test "$(stats "$@" "$ck" optim/state | wc -l)" -gt 9
}
as torch "$four"
as dcp@5 "$four"
flat=$data/fsdp1_local_orig_fullshard_w2
as fsdp@3 "$flat/ckpt" -o "units=$flat/units.json"

path=model/layers.0.w1.weight
ok "one tensor is a text" "$OPTIMFS" stat "$four" $path
text=$(cat "$scratch/out")
like "with a name and a value a line" "$text" \
    'elements 228
finite 228
nan 0
*
xxh3 *
exponent.*'
is "which is a file of the tree too" \
    "$("$OPTIMFS" cat "$four" .optimfs/stat/$path)" "$text"
ok "of a directory there are sums" "$OPTIMFS" stat "$four" model
like "of its tensors" "$(cat "$scratch/out")" 'tensors *
elements *'
ok "without any tensor" "$OPTIMFS" stat "$four" optim/param_groups
is "there are counts, and no numbers" "$(cut -d' ' -f1,2 "$scratch/out")" \
    'tensors 0
elements 0
finite 0
nan 0
inf 0
zeros 0
denormals 0
l1 0.0
l2 0.0'
status "of a text there are none" 2 \
    "$OPTIMFS" stat "$four" optim/param_groups/0/lr
not_ok "text has no statistics file" \
    "$OPTIMFS" cat "$four" .optimfs/stat/optim/param_groups/0/lr

# A NaN in one shard.
cp -r "$four" "$scratch/bad"
chmod -R u+w "$scratch/bad"
set -- $("$OPTIMFS" stat --by rank --json "$four" $path | sed -n \
    's/.*"rank": \([0-9]*\).*/\1/p')
is "by rank there are the parts of four" "$*" "0 1 2 3"
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
ok "a NaN is found" "$OPTIMFS" stat --only 'nan>0' --by rank "$scratch/bad"
like "by name, rank, file and offset" "$(cat "$scratch/out")" \
    "*
    2 * 1        0 *  $path
*the first NaN is element *, in $file at byte $offset (rank 2)"
is "in the one tensor that has it" "$(grep -c model/ "$scratch/out")" 1
is "the other values are as they were" \
    "$(stats --only 'nan=0' "$scratch/bad" | grep -v "$path" | md5sum)" \
    "$(echo "$all" | grep -v "$path" | md5sum)"
is "those that have none are left out" \
    "$("$OPTIMFS" stat --only 'nan>0' "$four")" ''
ok "they are sorted" "$OPTIMFS" stat --sort rms "$four" model
is "the greatest first" "$(awk 'NR > 1 { print $8 }' "$scratch/out" |
    sort -grc 2>&1)" ''
status "a condition that is none" 2 "$OPTIMFS" stat --only 'big>0' "$four"
like "is told" "$(cat "$scratch/err")" '*--only big>0*'
status "nor can be sorted by all" 2 "$OPTIMFS" stat --sort name "$four"
rm "$scratch/bad/$file"
status "what cannot be read is an error" 3 "$OPTIMFS" stat "$scratch/bad"
like "of those tensors" "$(cat "$scratch/out")" '*OFS140*'
# A tensor that is larger than the memory there may be; it is a hole.
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
	ok "statistics of a tensor that does not fit" small stat -j 2 \
	    "$scratch/large1.safetensors" model/w
	is "count its zeros" "$(sed -n 's/^zeros //p' "$scratch/out")" 201326592
	ok "it is checked" small check -j 2 "$scratch/large1.safetensors"
	status "and compared" 1 small diff "$scratch/large1.safetensors" \
	    "$scratch/large2.safetensors"
fi

# What cannot be read has no numbers.
cp -r "$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w4/ckpt" "$scratch/hurt"
chmod -R u+w "$scratch/hurt"
rm "$scratch/hurt/__1_0.distcp"
status "a tensor of which a part is lost" 3 \
    "$OPTIMFS" stat "$scratch/hurt" model/layers.0.w1.weight
is "has no statistics" "$(cat "$scratch/out")" ''
is "and is named once" "$(cat "$scratch/err")" \
    'optimfs: model/layers.0.w1.weight: OFS140 elements [5:10, 0:12]: __1_0.distcp is missing'
done_testing
