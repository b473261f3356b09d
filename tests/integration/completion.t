#!/bin/bash
# completion.t - completion of verbs, options, formats, mount points and paths
# in bash, zsh and fish
set -u
: "${OPTIMFS:=optimfs}" "${TOP_SRCDIR:=$(cd "$(dirname "$0")/../.." && pwd)}"
ck=$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w3/ckpt
optimfs() { "$OPTIMFS" "$@"; }
. "$TOP_SRCDIR/completions/optimfs"

n=0
bad=0
offers() { # offers "WANTED WORDS" WORD...: complete the last word
	want=$1
	shift
	COMP_WORDS=(optimfs "$@")
	COMP_CWORD=$#
	_optimfs
	n=$((n + 1))
	if [ "${COMPREPLY[*]}" = "$want" ]; then
		echo "ok $n - bash completes: optimfs $*"
	else
		bad=$((bad + 1))
		echo "not ok $n - bash completes: optimfs $*"
		echo "# has ${COMPREPLY[*]}"
		echo "# not $want"
	fi
}

offers "reshard report" re
offers "umount" umo
offers "commit" com
offers "abort average" a
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
offers "safetensors,hf,names=qwen2_moe safetensors,hf,names=qwen2_moe_te" \
    reshard --to safetensors,hf,names=qwen2_
offers "dcp@8,names=llama" reshard --to dcp@8,names=l
offers "--verify" reshard --v
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
offers "optim/state/" map "$ck" optim/s
run=$(mktemp -d)
trap 'rm -rf "$mounts" "$run"' EXIT
cp -r "$ck" "$run/step-1"
cp -r "$ck" "$run/step-2"
offers "optim/param_groups/ optim/state/" log --stat rms "$run" optim/
offers "dcp@ dcp-st@" plan "$ck" d
offers "" cat "$ck" no/such
offers "$ck" ls "${ck%kpt}"

# zsh and fish, where they are installed.
parses() { # parses SHELL FILE
	command -v "$1" >/dev/null || return
	n=$((n + 1))
	if "$1" -n "$TOP_SRCDIR/completions/$2"; then
		echo "ok $n - $1 parses $2"
	else
		bad=$((bad + 1))
		echo "not ok $n - $1 parses $2"
	fi
}
parses zsh _optimfs
parses fish optimfs.fish

# The completions call the optimfs on PATH.
bin=$(mktemp -d)
trap 'rm -rf "$mounts" "$run" "$bin"' EXIT
printf '#!/bin/sh\nexec "%s" "$@"\n' "$OPTIMFS" >"$bin/optimfs"
chmod +x "$bin/optimfs"
PATH=$bin:$PATH

# Prints the arguments of compadd that complete the last word.
zsh_offers() {
	zsh -f -c '
		compdef() { }
		compadd() {
			local skip=1
			for word; do
				[[ $skip == 0 && $word == $PREFIX* ]] && print -r -- $word
				[[ $word == -- ]] && skip=0
			done
		}
		_describe() { print -rl -- ${(P)2%%:*} | grep "^$PREFIX"; }
		_files() { }
		words=(optimfs "$@") CURRENT=$(($# + 1)) PREFIX=${@[-1]}
		. '"'$TOP_SRCDIR'"'/completions/_optimfs
	' zsh "$@" | sort -u | tr '\n' ' '
}
fish_offers() {
	fish -N -c 'source '"'$TOP_SRCDIR'"'/completions/optimfs.fish
		complete -C "$argv[1]"' "optimfs $*" |
		sed 's/\t.*//' | sort -u | tr '\n' ' '
}
same() { # same SHELL "WANTED " WORD...
	sh=$1 want=$2
	shift 2
	command -v "$sh" >/dev/null || return
	n=$((n + 1))
	has=$("${sh}_offers" "$@")
	if [ "$has" = "$want" ]; then
		echo "ok $n - $sh completes: optimfs $*"
	else
		bad=$((bad + 1))
		echo "not ok $n - $sh completes: optimfs $*"
		echo "# has $has"
		echo "# not $want"
	fi
}
for sh in zsh fish; do
	same $sh "report reshard " re
	same $sh "dcp-st@ dcp@ " reshard --to d
	same $sh "dcp@8,names=mixtral dcp@8,names=mixtral_te " reshard --to dcp@8,names=mix
	same $sh "zero1@ zero2@ zero3@ " mkfs --layout z
	same $sh "type=safetensors " ls -o type=s
	same $sh "/mnt/ck " umount /mnt/
	same $sh "--data " fsck --d
	same $sh "model/ " ls "$ck" m
	same $sh "model/ " map "$ck" m
	same $sh "model/ " stat --sort rms --json "$ck" m
	same $sh "dcp-st@ dcp@ " plan "$ck" d
done

echo "1..$n"
[ $bad = 0 ]
