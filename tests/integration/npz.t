#!/bin/sh
# npz.t - archives of np.savez_compressed
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

requires python3
data=$TOP_SRCDIR/tests/data/numpy
large=$(seq 0 999 | awk '{ for (i = 0; i < 1500; i++) print $1 }' | cksum)

numbers() {
	od -An -v -td4 -w4 | tr -d ' ' | cksum
}

has() {
	grep -qE -- "$2" "$scratch/out"
	tap_result $? "$1" || tap_said
}

ok "ls of a compressed archive" "$OPTIMFS" ls -l "$data/compressed.npz" model
has "ls of a compressed archive: a large array" '^int32 +1500000 +6000000 .* large$'
for path in model/layers.0.weight model/layers.0.bias model/fortran model/both \
    optim/state/layers.0.weight/step; do
	is "$path: same bytes as in an archive of np.savez" \
	    "$("$OPTIMFS" cat "$data/compressed.npz" $path | cksum)" \
	    "$("$OPTIMFS" cat "$data/state.npz" $path | cksum)"
done
is "bytes of an array of several blocks" \
    "$("$OPTIMFS" cat "$data/compressed.npz" model/large | numbers)" "$large"
is "bytes of an array that is larger than the cache" \
    "$("$OPTIMFS" cat -o cache=1M "$data/compressed.npz" model/large |
	numbers)" "$large"
is "bytes of an array written to a pipe" \
    "$("$OPTIMFS" cat "$data/piped.npz" model/w | cksum)" \
    "$("$OPTIMFS" cat "$data/state.npz" model/layers.0.weight | cksum)"
is "bytes of arrays whose names differ in case only" \
    "$("$OPTIMFS" cat "$data/piped.npz" model/W | cksum)" \
    "$("$OPTIMFS" cat "$data/state.npz" model/fortran | cksum)"
ok "layout of a deflated array" \
    "$OPTIMFS" cat "$data/compressed.npz" .optimfs/layout/model/large
has "layout of a deflated array: encoding and codec" '"encoding": "npy", "codec": "deflate"'
ok "reshard of a compressed archive to safetensors" "$OPTIMFS" reshard --to safetensors,only=model \
    "$data/compressed.npz" "$scratch/new"
is "reshard of a compressed archive: same elements" \
    "$("$OPTIMFS" cat "$scratch/new" model/large | numbers)" "$large"
status "reshard of an archive with arrays of text and objects is refused" 4 \
    "$OPTIMFS" reshard --to torch "$data/state.npz" "$scratch/all"
ok "reshard with drop=opaque leaves such arrays out" \
    "$OPTIMFS" reshard --to torch,drop=opaque "$data/state.npz" "$scratch/numbers"
grep -q 'extra/names: left out' "$scratch/err"
tap_result $? "reshard with drop=opaque names an array of text" || tap_said

ok "info of a compressed archive" "$OPTIMFS" info "$data/compressed.npz"
has "info: shares of dtypes are neither none nor all" \
    '^dtypes +float64 < 0\.1 %, .*, int32 > 99\.9 %, '
ok "fsck --data of a compressed archive" "$OPTIMFS" fsck --data "$data/compressed.npz"
has "fsck --data of a compressed archive: no damage" 'no damage found'
# in the middle of the deflated bytes of model/large
cp "$data/compressed.npz" "$scratch/hurt.npz" && chmod u+w "$scratch/hurt.npz"
printf '\377\377\377\377' | dd of="$scratch/hurt.npz" bs=1 seek=6000 \
    conv=notrunc 2>"$scratch/err"
ok "ls of an archive with a damaged array" "$OPTIMFS" ls "$scratch/hurt.npz" model
status "cat of a damaged array fails" 3 "$OPTIMFS" cat "$scratch/hurt.npz" model/large
grep -qE 'OFS(530|70[234]) .*hurt\.npz: deflated record' "$scratch/err"
tap_result $? "cat of a damaged array: error text" || tap_said
is "cat of another array of a damaged archive" \
    "$("$OPTIMFS" cat "$scratch/hurt.npz" model/both | cksum)" \
    "$("$OPTIMFS" cat "$data/state.npz" model/both | cksum)"
status "fsck --data finds a damaged array" 1 "$OPTIMFS" fsck --data "$scratch/hurt.npz"
ok "fsck --data of an archive of np.savez" "$OPTIMFS" fsck --data "$data/state.npz"
has "fsck --data of an archive of np.savez: no damage" 'no damage found'
# One bit of an element, which is read in place.
cp "$data/state.npz" "$scratch/bit.npz" && chmod u+w "$scratch/bit.npz"
python3 - "$scratch/bit.npz" <<'END'
import sys, zipfile
path = sys.argv[1]
with zipfile.ZipFile(path) as z:
    r = z.getinfo("model/layers.0.weight.npy")
b = bytearray(open(path, "rb").read())
b[r.header_offset + 30 + len(r.filename) + r.file_size] ^= 1
open(path, "wb").write(b)
END
status "fsck --data finds a changed bit of a stored array" 1 \
    "$OPTIMFS" fsck --data "$scratch/bit.npz"
is "fsck --data names the stored array once" \
    "$(grep -c "OFS530 CRC mismatch in 'model/layers.0.weight.npy'" "$scratch/out")" 1
done_testing
