#!/bin/sh
# npz.t - archives of np.savez_compressed
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

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
done_testing
