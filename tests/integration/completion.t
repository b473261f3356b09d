#!/bin/bash
# completion.t - what bash offers after "optimfs ..."
set -u
: "${OPTIMFS:=optimfs}" "${TOP_SRCDIR:=$(cd "$(dirname "$0")/../.." && pwd)}"
ck=$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w3/ckpt
optimfs() { "$OPTIMFS" "$@"; }
. "$TOP_SRCDIR/completions/optimfs"

n=0
bad=0
offers() { # offers "WANTED WORDS" WORD...: the last word is being completed
	want=$1
	shift
	COMP_WORDS=(optimfs "$@")
	COMP_CWORD=$#
	_optimfs
	n=$((n + 1))
	if [ "${COMPREPLY[*]}" = "$want" ]; then
		echo "ok $n - optimfs $*"
	else
		bad=$((bad + 1))
		echo "not ok $n - optimfs $*"
		echo "# has ${COMPREPLY[*]}"
		echo "# not $want"
	fi
}

offers "reshard" re
offers "umount" umo
offers "commit" com
offers "abort" a
offers "--keep" umount --k
offers "recover=" mount -o rec
offers "--data" fsck --d
offers "--json" ls --j
offers "optim_key=" mount -o optim_
offers "model/ optim/" ls "$ck" ""
offers "optim/param_groups/ optim/state/" ls -l "$ck" optim/
offers "optim/state/layers.0.wq.weight/" cat "$ck" optim/state/layers.0.wq.w
offers "optim/state/layers.0.wq.weight/exp_avg optim/state/layers.0.wq.weight/exp_avg_sq" \
    cat "$ck" model "optim/state/layers.0.wq.weight/exp"
offers "optim/state/layers.0.wq.weight/" stat --sort rms "$ck" optim/state/layers.0.wq.w
offers "" cat "$ck" no/such
offers "$ck" ls "${ck%kpt}"

echo "1..$n"
[ $bad = 0 ]
