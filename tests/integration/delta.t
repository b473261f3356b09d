#!/bin/sh
# delta.t - versions that are stored as changes: slime, TRL
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

requires python3
data=$TOP_SRCDIR/tests/data/delta
forms="trl trl_old"
"$OPTIMFS" --version | grep -q zstd && forms="$forms slime_xxh3 slime_adler32"

same() {
	rm -rf "$scratch/copy"
	"$OPTIMFS" cp -r "$1" . "$scratch/copy" &&
	    python3 "$TOP_SRCDIR/tests/support/manifest.py" \
		"$data/$2/manifest.json" "$scratch/copy"
}

take() {
	rm -rf "${scratch:?}/ck"
	cp -r "$data/$1/ckpt" "$scratch/ck"
	chmod -R u+w "$scratch/ck"
	ck=$scratch/ck
}

for form in $forms; do
	for dir in "$data/$form"/expected_*; do
		step=${dir##*_}
		ok "$form: version $step is what the trainer had" \
		    same "$data/$form/ckpt/steps/$step" "$form/expected_$step"
	done
	take "$form"
	ok "$form: a version becomes a checkpoint" "$OPTIMFS" reshard -q \
	    --to dcp@2 "$ck:latest" "$scratch/$form.full"
	ok "$form: with the same weights" same "$scratch/$form.full" \
	    "$form/expected_5"
	is "$form: by-name has the names of the files" "$("$OPTIMFS" ls \
	    "$ck" by-name | sed 's,[/@]$,,' | sort)" "$(cd "$ck" &&
	    ls -d base anchors/* deltas/* 2>/dev/null | sed 's,.*/,,' | sort)"
	status "$form: a run of changes is not thinned" 0 "$OPTIMFS" thin \
	    --keep-last 1 "$ck"
	like "$form: and thin says why" "$(cat "$scratch/out")" '*OFS889*'
done

# Changes TRL's patch of version 2 in $ck: t has type, shape and bytes by name, m
# is the metadata.
patch() {
	python3 - "$ck/deltas/step_000002.safetensors" "$1" <<'END'
import json, struct, sys
path = sys.argv[1]
b = open(path, "rb").read()
n = struct.unpack("<Q", b[:8])[0]
h = json.loads(b[8:8 + n])
m = h.pop("__metadata__")
t = {k: [v["dtype"], v["shape"], b[8 + n:][slice(*v["data_offsets"])]]
     for k, v in h.items()}
exec(sys.argv[2])
h, at = {"__metadata__": m}, 0
for k, (dtype, shape, data) in t.items():
    h[k] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
    at += len(data)
text = json.dumps(h, separators=(",", ":")).encode()
open(path, "wb").write(struct.pack("<Q", len(text)) + text +
                       b"".join(data for _, _, data in t.values()))
END
}

# Only the newest one might be in the making: another one is newer.
settle() {
	touch -d '1 hour' "$ck"/*/*5/*.json "$ck"/*/*5.safetensors 2>/dev/null || true
}

# Version 2 cannot be read, for this reason; what is not concerned can.
refused() {
	settle
	status "$1" "${4:-3}" "$OPTIMFS" cat "$ck/steps/2" model/head.weight
	like "$1: the error says why" "$(cat "$scratch/err")" "*$2*"
	if [ "${3:-}" = others ]; then
		ok "$1: other tensors can" "$OPTIMFS" cat "$ck/steps/2" \
		    model/embed.weight
		ok "$1: other versions can" "$OPTIMFS" cat "$ck/steps/4" \
		    model/head.weight
	fi
}

take trl
patch 't["head.weight.idx"][2] = b"\xff\xff\xff\x7f" + t["head.weight.idx"][2][4:]'
refused "a position beyond the tensor" 'OFS883*does not have*' others
take trl_old
patch 'i = t["head.weight.indices"]; i[2] = i[2][4:8] + i[2][:4] + i[2][8:]'
refused "positions that are not ascending" 'OFS883*not ascending*' others
take trl_old
patch 'i = t["head.weight.indices"]; i[2] = b"\xff\xff\xff\xff" + i[2][4:]'
refused "a negative position" 'OFS883*does not have*' others
take trl
patch 't["head.weight.val"] = ["BF16", [2], b"abcd"]'
refused "fewer values than positions" 'OFS883*do not fit*' others
take trl
patch 'v = t["head.weight.val"]; v[0] = "F16"'
refused "values of another type" 'OFS883*another type*' others
take trl
patch 't["ghost.idx"] = ["U16", [1], b"ab"]; t["ghost.val"] = ["BF16", [1], b"ab"]'
like "a change of no tensor is named" "$("$OPTIMFS" info "$ck/steps/2")" \
    '*OFS888 model/ghost*version 2*version 1*'
take trl
patch 'del t["head.weight.val"]'
refused "positions without values" 'OFS881*no values*'
take trl
patch 'i = t["head.weight.idx"]; i[0] = "U8"; i[1] = [len(i[2])]'
refused "positions that nvCOMP compressed" 'OFS882*nvCOMP*' '' 4
take trl
patch 't["x"] = ["U8", [0], b""]'
refused "what is no change" 'OFS881*neither*'
take trl
patch 'm["model_version"] = "7"'
refused "a version with the name of another one" 'OFS881*version 7*'
take trl
patch 'm["prev_model_version"] = "2"'
refused "a version that changes itself" 'OFS881*cannot be made from version 2*'
take trl
patch 'm["model_version"] = "99999999999999999999"'
refused "a version that is no number" 'OFS881*no number*'

take trl
rm "$ck/deltas/step_000002.safetensors"
status "a version that later ones need is missed" 3 "$OPTIMFS" cat \
    "$ck/steps/3" model/head.weight
like "and named" "$(cat "$scratch/err")" '*OFS887*version 3*version 2*'
ok "versions after the next full one are there" "$OPTIMFS" cat "$ck/steps/5" \
    model/head.weight
rm "$ck/anchors/step_000004.safetensors"
cp "$ck/deltas/step_000003.safetensors" "$ck/deltas/step_000004.safetensors"
status "a copy of a version under another name is none" 3 "$OPTIMFS" cat \
    "$ck/steps/5" model/head.weight
like "and what it is is said" "$(cat "$scratch/err")" '*OFS881*version 3*'

take trl
like "a version alone is no state, and says so" "$("$OPTIMFS" info \
    "$ck/deltas/step_000002.safetensors")" '*OFS885*steps/2*'
is "it has no model" "$("$OPTIMFS" ls \
    "$ck/deltas/step_000002.safetensors")" extra/
is "several are a run" "$("$OPTIMFS" ls "$ck/deltas" steps | tr '\n' ' ')" \
    '2/ 3/ 5/ '
like "which says where the state is" "$("$OPTIMFS" info "$ck/deltas")" \
    '*OFS887*directory above*'
status "with the type given, it says the same" 3 "$OPTIMFS" info -o type=delta \
    -o run=no "$ck/deltas"
like "in words" "$(cat "$scratch/err")" '*OFS886*'

case $forms in *slime*) ;; *) done_testing ;; esac

take slime_xxh3
status "the base of slime may be elsewhere: then it is missed" 3 "$OPTIMFS" cat \
    "$ck/deltas/steps/1" model/head.weight
like "and asked for" "$(cat "$scratch/err")" '*OFS887*base=PATH*'
mv "$ck/base" "$scratch/elsewhere"
ok "and base= gives it" "$OPTIMFS" cp -r -o base="$scratch/elsewhere" \
    "$ck/deltas/steps/3" . "$scratch/given"
ok "with the same weights" python3 "$TOP_SRCDIR/tests/support/manifest.py" \
    "$data/slime_xxh3/expected_3/manifest.json" "$scratch/given"
is "Python, too" "$(PYTHONPATH=$TOP_SRCDIR/python PYTHONDONTWRITEBYTECODE=1 \
    OPTIMFS_LIBRARY=${OPTIMFS_LIBRARY:-$TOP_BUILDDIR/.libs/liboptimfs.so.0} python3 -c 'import optimfs, sys
with optimfs.open(sys.argv[1] + "/deltas/steps/3", base=sys.argv[2]) as ck:
    print(*sorted(ck["model"]))' "$ck" "$scratch/elsewhere" 2>&1)" "$(ls "$scratch/given/model" | tr '\n' ' ' | sed 's/ $//')"
rm -rf "$ck/base"
cp -r "$data/slime_xxh3/ckpt/deltas/weight_v000004" "$ck/base"
status "another base does not have the checksums" 3 "$OPTIMFS" cat \
    "$ck/steps/3" model/head.weight
like "which is said" "$(cat "$scratch/err")" '*OFS884*version 3*'
take slime_adler32
rm -rf "$ck/base"
cp -r "$data/slime_xxh3/ckpt/deltas/weight_v000004" "$ck/base"
status "nor those of the other kind" 3 "$OPTIMFS" cat "$ck/steps/3" \
    model/head.weight
like "which is said, too" "$(cat "$scratch/err")" '*OFS884*version 3*'
take slime_xxh3
python3 - "$ck/base/model.safetensors" <<'END'
import json, struct, sys
b = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", b[:8])[0]
h = json.loads(b[8:8 + n])
at, end = h["head.weight"]["data_offsets"]
h["head.weight"].update(shape=[2000], data_offsets=[at, end - 200])
h["pad"] = {"dtype": "BF16", "shape": [100], "data_offsets": [end - 200, end]}
text = json.dumps(h).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + b[8 + n:])
END
settle
status "a base of another size" 3 "$OPTIMFS" cat "$ck/steps/3" model/head.weight
like "is told" "$(cat "$scratch/err")" '*OFS883*not as many bytes*'

# Changes version 1 of slime in $ck: i is its index; put(name, bytes) stores a
# frame for a tensor, frame(b) is b as one.
version() {
	python3 - "$ck/deltas/weight_v000001" "$1" <<'END'
import json, os, struct, sys
top = sys.argv[1]
index = os.path.join(top, "model.safetensors.index.json")
i = json.load(open(index))
def frame(b, size=None):
    return (struct.pack("<IBI", 0xfd2fb528, 0xa0,
                        len(b) if size is None else size) +
            struct.pack("<I", 1 | len(b) << 3)[:3] + b)
def put(name, data, checksum=None):
    path = os.path.join(top, "model-99999-of-00002.safetensors")
    meta = {} if checksum is None else {name: checksum}
    text = json.dumps({"__metadata__": meta, name: {"dtype": "U8", "shape":
        [len(data)], "data_offsets": [0, len(data)]}}).encode()
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + data)
    old = os.path.join(top, i["weight_map"][name])
    b = open(old, "rb").read()
    n = struct.unpack("<Q", b[:8])[0]
    h = json.loads(b[8:8 + n])
    lo, hi = h.pop(name)["data_offsets"]
    for k in h:
        if k != "__metadata__" and h[k]["data_offsets"][0] >= hi:
            h[k]["data_offsets"] = [x - hi + lo for x in h[k]["data_offsets"]]
    head = json.dumps(h).encode()
    open(old, "wb").write(struct.pack("<Q", len(head)) + head +
                          b[8 + n:8 + n + lo] + b[8 + n + hi:])
    i["weight_map"][name] = os.path.basename(path)
m = i["metadata"]
exec(sys.argv[2])
json.dump(i, open(index, "w"))
END
}

broken() {
	settle
	status "$1" "${3:-3}" "$OPTIMFS" cat "$ck/steps/1" model/head.weight
	like "$1: the error says why" "$(cat "$scratch/err")" "*$2*"
}

take slime_xxh3
version 'm["delta_encoding"] = "overwrite"; m["checksum_format"] = "none"
put("head.weight", frame(struct.pack("<IIIBB", 2, 1, 3, 7, 8)))'
ok "a version of another writer is read" "$OPTIMFS" cat "$ck/steps/1" \
    model/head.weight
like "what is not compared is named" "$("$OPTIMFS" info \
    "$ck/deltas/weight_v000001")" '*OFS882*none*'
for case in 'II|0xffffffff, 0|does not fit' 'IIB|1, 4200, 7|does not have' \
    'I|1|does not fit' 'BB|0, 0|too short'; do
	take slime_xxh3
	version 'm["delta_encoding"] = "overwrite"; m["checksum_format"] = "none"
put("head.weight", frame(struct.pack("<'"${case%%|*}"'", '"$(
	    echo "$case" | cut -d'|' -f2)"')))'
	broken "a list of ${case%|*}" "OFS883*${case##*|}"
done
take slime_xxh3
version 'put("head.weight", frame(b"abc"), "0" * 32)'
broken "as many bytes as the tensor has not" 'OFS883*not as many bytes'
take slime_xxh3
version 'put("head.weight", frame(b"\0" * 4200), "0" * 32)'
broken "a checksum that is not that of the bytes" 'OFS884'
take slime_xxh3
version 'put("head.weight", frame(b"\0" * 4200))'
broken "a change without its checksum" 'OFS881*no checksum'
take slime_xxh3
version 'put("head.weight", b"no frame at all, but text", "0" * 32)'
broken "what is no frame" 'OFS881*not compressed'
take slime_xxh3
version 'put("head.weight", frame(b"abc", 4200), "0" * 32)'
broken "a frame of another length than it says" 'OFS7'
take slime_xxh3
version 'put("head.weight", frame(b"abc", 0xffffffff), "0" * 32)'
broken "a frame that says it is huge" 'OFS883*not as many bytes'
take slime_xxh3
version 'i["weight_map"]["ghost"] = i["weight_map"]["head.weight"]'
broken "a change that is not in its file" 'OFS881*ghost'
take slime_xxh3
version 'del i["weight_map"]["head.weight"]'
broken "a change of which the index does not know" 'OFS881*head.weight'
take slime_xxh3
version 'for k in i["weight_map"]: i["weight_map"][k] = "../../base/x"'
broken "a file outside of the version" 'OFS620' 5
take slime_xxh3
version 'm["base_version"] = "000005"'
broken "a base after the version" 'OFS881*cannot be made from version 5'
take slime_xxh3
version 'm["delta_encoding"] = "rans"'
broken "an unknown encoding" 'OFS882*rans' 4
take slime_xxh3
version 'm["compression_format"] = "lz4"'
broken "an unknown compression" 'OFS882*lz4' 4
take slime_xxh3
version 'm["version"] = "1e3"'
broken "a version that is no number, either" 'OFS881*no number'
rm "$ck/deltas/weight_v000001/model-00000-of-00002.safetensors"
version 'm["version"] = "000001"'
broken "a lost file" 'model-00000-of-00002.safetensors'
printf '{"metadata": {"delta_encoding": "xor", "version": "1"' \
    >"$ck/deltas/weight_v000001/model.safetensors.index.json"
broken "half an index" 'OFS653'

# What is written: versions 4 and 5 of another run, over a base in another layout.
full=$data/slime_xxh3/ckpt
"$OPTIMFS" reshard -q --to dcp@2 "$full/steps/3" "$scratch/step-3"
mkdir "$scratch/run"
"$OPTIMFS" reshard -q --to safetensors "$full/steps/3" "$scratch/run/step-3"
for encoding in xor overwrite; do
	run=$scratch/run
	rm -rf "$run/step-4" "$run/step-5"
	ok "$encoding: the changes of a version are written" "$OPTIMFS" reshard \
	    -q --to "delta,base=$scratch/step-3,$encoding" "$full/steps/4" \
	    "$run/step-4"
	ok "$encoding: over changes, too" "$OPTIMFS" reshard -q --to \
	    "delta,base=$run/steps/4,$encoding,zstd=19" "$full/steps/5" \
	    "$run/step-5"
	for n in 4 5; do
		ok "$encoding: they give version $n again" same \
		    "$run/steps/$n" "slime_xxh3/expected_$n"
	done
	if command -v zstd >/dev/null; then
		ok "$encoding: a reader that is not ours applies them" \
		    python3 "$TOP_SRCDIR/tests/support/apply_delta.py" \
		    "$run/step-3/model.safetensors" "$run/step-4" \
		    "$run/step-5" "$scratch/applied.safetensors"
		ok "$encoding: and has the same weights" same \
		    "$scratch/applied.safetensors" slime_xxh3/expected_5
	fi
done
status "what has not changed is not written" 0 "$OPTIMFS" reshard --to \
    "delta,base=$full/steps/5" "$scratch/run/steps/5" "$scratch/run/step-6"
ok "nor a file for it" grep -q '"weight_map":{}' \
    "$scratch/run/step-6/model.safetensors.index.json"
ok "such a version is the state before" same "$scratch/run/steps/6" \
    slime_xxh3/expected_5
is "nothing else is left" "$(ls -A "$scratch/run" | tr '\n' ' ')" \
    'step-3 step-4 step-5 step-6 '

# One that must not be written leaves nothing.
unwritten() {
	status "$1" "$2" "$OPTIMFS" reshard --to "$4" "$5" "$scratch/run/$6"
	like "$1: the error says why" "$(cat "$scratch/err")" "*$3*"
	is "$1: nothing is left" "$(ls -A "$scratch/run" | tr '\n' ' ')" \
	    'step-3 step-4 step-5 step-6 '
}
unwritten "a version without a number" 2 OFS872 "delta,base=$full/steps/4" \
    "$full/steps/5" final
unwritten "a version before its base" 2 OFS872 "delta,base=$full/steps/4" \
    "$full/steps/5" step-2
dcp=$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w2/ckpt
unwritten "a base with other tensors" 2 OFS873 "delta,base=$dcp,only=model" \
    "$full/steps/5" step-7
unwritten "an optimizer" 4 OFS874 "delta,base=$dcp" "$dcp" step-7
unwritten "a layout without a base" 2 OFS011 delta "$full/steps/5" step-7
unwritten "a layout with another option" 2 OFS011 \
    "delta,base=$full/steps/4,zstd=99" "$full/steps/5" step-7
python3 - "$scratch/large.safetensors" <<'END'
import struct, sys
n = (4 << 30) + 1
text = b'{"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (n, n)
with open(sys.argv[1], "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text)
    f.truncate(8 + len(text) + n)
END
unwritten "a tensor with positions of more than 32 bits" 3 OFS875 \
    "delta,base=$scratch/large.safetensors,overwrite" \
    "$scratch/large.safetensors" step-7
ok "the model of a checkpoint with an optimizer" "$OPTIMFS" reshard -q --to \
    "delta,base=$dcp,only=model" "$dcp" "$scratch/run/step-7"

if [ -w /dev/fuse ] && mnt=$(point mnt); then
	take slime_xxh3
	ok "a run of versions is mounted" "$OPTIMFS" mount "$ck" "$mnt"
	ok "its files are those of the commands" sh -c "'$OPTIMFS' cat \
	    '$ck/steps/3' model/head.weight | cmp - \
	    '$mnt/steps/3/model/head.weight'"
	like "what is new appears" "$(cp -r \
	    "$data/slime_xxh3/ckpt/deltas/weight_v000005" \
	    "$ck/deltas/weight_v000006"; ls "$mnt/steps" | tr '\n' ' ')" '*6*'
	ok "it is unmounted" "$OPTIMFS" umount "$mnt"
fi
done_testing
