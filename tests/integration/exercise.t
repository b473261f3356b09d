#!/bin/sh
# exercise.t - random writes, reads and renames on a mount, compared with a
# model
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
requires mount

# SEED=N makes other calls; COUNT=N makes more.
exercise=$TOP_BUILDDIR/tests/integration/exercise
seed=${SEED:-1}
count=${COUNT:-400}
data=$TOP_SRCDIR/tests/data/pytorch
m=$(point m)
cd "$scratch" || exit 99

run() { # NAME ARGUMENT...
	name=$1
	shift
	ok "$name" "$exercise" "$@" || cat "$scratch/out"
	seed=$((seed + 1))
}

for ck in dcp_fsdp2_w3/ckpt dcp_tp_fsdp_w4/ckpt \
    fsdp1_sharded_orig_fullshard_w2/ckpt_rankfiles \
    safetensors_plain/ckpt; do
	rm -rf ck
	cp -r "$data/$ck" ck && chmod -R u+w ck
	for o in rw rw,direct; do
		ok "$ck, $o: mount succeeds" "$OPTIMFS" mount -o $o ck "$m"
		run "$ck, $o: random reads and writes agree with the model" bytes "$seed" "$count" "$m" \
		    model/layers.0.w1.weight
		ok "$ck, $o: umount succeeds" "$OPTIMFS" umount "$m"
	done
	ok "$ck: fsck --data accepts the committed checkpoint" "$OPTIMFS" fsck --data ck
done
ended() {
	wait "$1"
}

# Three concurrent writers of different tensors, with commits, and a reader.
rm -rf ck
cp -r "$data/dcp_fsdp2_w3/ckpt" ck && chmod -R u+w ck
ok "mount for concurrent writers succeeds" "$OPTIMFS" mount -o rw ck "$m"
pids=
for t in w1 w2 wq; do
	"$exercise" shared "$seed" "$count" "$m" "model/layers.1.$t.weight" \
	    >"$t.out" 2>&1 &
	pids="$pids $!"
	seed=$((seed + 1))
done
touch go
(while [ -e go ]; do
	cp -r "$m" "$m/.optimfs/view/dcp@2" seen 2>/dev/null
	rm -rf seen
done) &
reader=$!
for p in $pids; do
	ok "a concurrent writer agrees with its model" ended "$p"
done
rm go
wait "$reader"
cat ./*.out
cp -r "$m" want
ok "umount after concurrent writers succeeds" "$OPTIMFS" umount "$m"
"$OPTIMFS" cp -r ck / now
ok "the committed tree equals the mount after concurrent writers" diff -r want now
ok "fsck --data accepts the checkpoint after concurrent writers" "$OPTIMFS" fsck --data ck

ok "scratch mount for random names succeeds" \
    "$OPTIMFS" mount -o scratch "$data/dcp_fsdp2_w3/ckpt" "$m"
mkdir model
mkdir -p "$m/extra/names"
run "random creates, renames and removes agree with an ordinary file system" names "$seed" "$count" "$m/extra/names" model
ok "umount after random names succeeds" "$OPTIMFS" umount "$m"
done_testing
