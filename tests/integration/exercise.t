#!/bin/sh
# exercise.t - random calls on a mount that is written to, against a model
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
requires mount

# SEED=N repeats what a run has said it did; COUNT=N makes it longer.
exercise=$TOP_BUILDDIR/tests/integration/exercise
seed=${SEED:-$(date +%s)}
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
		ok "$ck" "$OPTIMFS" mount -o $o ck "$m"
		run "$ck, $o: bytes" bytes "$seed" "$count" "$m" \
		    model/layers.0.w1.weight
		ok "umount" "$OPTIMFS" umount "$m"
	done
	ok "$ck: sound" "$OPTIMFS" fsck --data ck
done
ok "names" "$OPTIMFS" mount -o scratch "$data/dcp_fsdp2_w3/ckpt" "$m"
mkdir model
mkdir -p "$m/extra/names"
run "are as elsewhere" names "$seed" "$count" "$m/extra/names" model
ok "umount" "$OPTIMFS" umount "$m"
done_testing
