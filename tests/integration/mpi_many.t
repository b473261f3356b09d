#!/bin/sh
# mpi_many.t - 32 ranks over TCP reshard, mount, commit and leave
# SPDX-License-Identifier: Apache-2.0
#
# usage: make check-far: no part of make check, since it takes half a minute on two
# idle cores
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
. "${TOP_SRCDIR:-.}/tests/tap/ranks.sh"
requires unshare ip

# In a network name space of its own: its ports are nobody else's.
cat >"$scratch/alone.sh" <<'END2'
ip link set lo up || exit 77
exec "$@"
END2
unshare -n sh "$scratch/alone.sh" true 2>"$scratch/err" ||
    skip_all "no network name space here: $(head -n 1 "$scratch/err")"
many() { # COMMAND...
	unshare -n sh "$scratch/alone.sh" mpirun --oversubscribe -n 32 \
	    --mca btl tcp,self --mca btl_tcp_if_include lo --mca oob_tcp_if_include lo "$@"
}
has_mounts() { # N
	[ "$(tap_mounts | grep -c "^$scratch/m/")" = "$1" ]
}

# Each sixth rank has a file.
ck=$data/dcp_fsdp2_w4/ckpt
for r in $(seq 0 31); do
	mkdir -p "$nodes/$r/ck" "$scratch/m/$r"
done
r=0
for f in $(ls -A "$ck"); do
	cp -p "$ck/$f" "$nodes/$r/ck"
	r=$((r + 6))
done

ok "32 ranks reshard" many "$OPTIMFS" reshard -o work_ranks=all -o timeout=60 --to dcp@16 "$nodes/%r/ck" \
    "$scratch/new"
ok "the new checkpoint is the same" "$OPTIMFS" diff -q "$ck" "$scratch/new"

"$OPTIMFS" mount "$ck" "$other"
many "$OPTIMFS" mount -o mount_ranks=all,timeout=60 "$nodes/%r/ck" "$scratch/m/%r" \
    >"$scratch/log" 2>&1 &
job=$!
ok "32 ranks mount" eventually has_mounts 32
differ=0
for r in $(seq 0 31); do
	diff -r "$other" "$scratch/m/$r" >/dev/null || differ=$((differ + 1))
done
is "all show the whole checkpoint" $differ 0
for r in $(seq 0 31); do
	"$OPTIMFS" umount "$scratch/m/$r"
done
wait "$job"
is "they leave after the last umount" $? 0
"$OPTIMFS" umount "$other"

many "$OPTIMFS" mount -o rw,timeout=60 "$nodes/%r/ck" "$scratch/m/0" >"$scratch/log" 2>&1 &
job=$!
ok "32 ranks mount one for writing" eventually has_mounts 1
echo 0.125 >"$scratch/m/0/optim/param_groups/0/lr"
cp -r "$scratch/m/0" "$scratch/want"
ok "the commit succeeds" "$OPTIMFS" umount "$scratch/m/0"
wait "$job"
is "they leave after it" $? 0
together
"$OPTIMFS" cp -r "$scratch/all" / "$scratch/got"
ok "the files of all ranks together have the edit" diff -r "$scratch/want" "$scratch/got"
is "no staging directory is left" "$(left)" ""
done_testing
