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

offers "reshard report" re
offers "umount" umo
offers "commit" com
offers "abort" a
offers "--keep" umount --k
mounts=$(mktemp)
trap 'rm -f "$mounts"' EXIT
cat >"$mounts" <<'END'
36 35 0:34 / /mnt/other rw,nosuid - ext4 /dev/sda1 rw
37 35 0:35 / /mnt/ck ro,nosuid - fuse.optimfs /data/ck ro
END
export OPTIMFS_MOUNTINFO=$mounts
offers "/mnt/ck" umount ""
offers "/mnt/ck" commit /mnt/
offers "dcp@ dcp-st@" reshard --to d
offers "zero1@ zero2@ zero3@" mkfs --like "$ck" --layout z
offers "type=safetensors" ls -o type=s
offers "reshard report" help re
offers "recover=" mount -o rec
offers "--data" fsck --d
offers "--json" ls --j
offers "--no-data" report --no-
offers "rank" stat --by ""
offers "optim_key=" mount -o optim_
offers "model/ optim/" ls "$ck" ""
offers "optim/param_groups/ optim/state/" ls -l "$ck" optim/
offers "optim/state/layers.0.wq.weight/" cat "$ck" optim/state/layers.0.wq.w
offers "optim/state/layers.0.wq.weight/exp_avg optim/state/layers.0.wq.weight/exp_avg_sq" \
    cat "$ck" model "optim/state/layers.0.wq.weight/exp"
offers "optim/state/layers.0.wq.weight/" stat --sort rms "$ck" optim/state/layers.0.wq.w
offers "" cat "$ck" no/such
offers "$ck" ls "${ck%kpt}"

# Other shells, where there are any.
parses() { # parses SHELL FILE
	command -v "$1" >/dev/null || return
	n=$((n + 1))
	if "$1" -n "$TOP_SRCDIR/completions/$2"; then
		echo "ok $n - $1 takes $2"
	else
		bad=$((bad + 1))
		echo "not ok $n - $1 takes $2"
	fi
}
parses zsh _optimfs
parses fish optimfs.fish

echo "1..$n"
[ $bad = 0 ]
