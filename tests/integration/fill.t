#!/bin/sh
# fill.t - lost moments are zeros where fill=zero asks for that, and only there
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
requires mount

data=$TOP_SRCDIR/tests/data
cd "$scratch" || exit 99

zeros() { # FILE FROM BYTES
	[ "$(tail -c "+$(($2 + 1))" "$1" | head -c "$3" | tr -d '\0' | wc -c)" = 0 ]
}

# A rank of two is lost, and with it the second half of every parameter.
ck=$data/deepspeed/z3_ws2_bf16/ckpt
cp -r "$ck" lost && chmod -R u+w lost
rm lost/global_step3/bf16_zero_pp_rank_1_*
w=optim/state/emb.weight
for f in exp_avg exp_avg_sq fp32 step; do
	"$OPTIMFS" cat "$ck" $w/$f >$f
done
status "what is lost is an error" 3 "$OPTIMFS" cat lost $w/exp_avg
like "and told" "$(cat "$scratch/err")" "*OFS607*"
for f in exp_avg exp_avg_sq; do
	status "$f with fill=zero" 0 "$OPTIMFS" cat -o fill=zero lost $w/$f
	cp "$scratch/out" got
	is "is as long as it was" "$(stat -c %s got)" "$(stat -c %s $f)"
	ok "has what is there" cmp -n 260 $f got
	ok "and zeros" zeros got 260 260
done
status "weights are not made up" 3 "$OPTIMFS" cat -o fill=zero lost $w/fp32
like "but missed" "$(cat "$scratch/err")" "*OFS607*"
"$OPTIMFS" cat -o fill=zero lost .optimfs/missing >missing
like "what is filled is listed all the same" "$(cat missing)" \
    "*OFS607*emb.weight*exp_avg*"
status "other fillings are none" 2 "$OPTIMFS" cat -o fill=one lost $w/step
like "by name" "$(cat "$scratch/err")" "*fill=one*"
mnt=$(point m)
ok "a mount to write to" "$OPTIMFS" mount -o rw,fill=zero lost "$mnt"
ok "shows it" cmp "$mnt/$w/exp_avg_sq" got
cp exp_avg "$mnt/$w/exp_avg"
ok "and takes it" cmp "$mnt/$w/exp_avg" exp_avg
not_ok "but has no place for it" sh -c "echo commit >'$mnt/.optimfs/control'"
like "by name" "$(cat "$mnt/.optimfs/control")" "*OFS607*"
echo abort >"$mnt/.optimfs/control"
ok "unmounted" "$OPTIMFS" umount "$mnt"

# A checkpoint to be.
ck=$data/pytorch/dcp_fsdp2_w3/ckpt
"$OPTIMFS" cp -r "$ck" . tree
f=optim/state/layers.0.norm.weight
"$OPTIMFS" mkfs --like "$ck" --layout dcp@2 new
"$OPTIMFS" mount -o rw,fill=zero new "$mnt"
cp -r tree/. "$mnt"
rm "$mnt/$f/exp_avg"
is "moments that nobody wrote are not missing" \
    "$(cat "$mnt/.optimfs/missing")" ""
rm "$mnt/$f/step"
like "their step is" "$(cat "$mnt/.optimfs/missing")" "*$f/step: not written yet*"
cp tree/$f/step "$mnt/$f/step"
head -c 12 tree/$f/exp_avg_sq >"$mnt/$f/exp_avg_sq"
not_ok "what was begun is no zeros" \
    sh -c "echo commit >'$mnt/.optimfs/control'"
cp tree/$f/exp_avg_sq "$mnt/$f/exp_avg_sq"
ok "whole, it is committed" "$OPTIMFS" umount "$mnt"
"$OPTIMFS" cp -r new . got.tree
ok "with zeros" zeros got.tree/$f/exp_avg 0 48
is "as long as it should be" "$(stat -c %s got.tree/$f/exp_avg)" 48
rm got.tree/$f/exp_avg tree/$f/exp_avg
ok "and all else" diff -r tree got.tree
ok "of which checksums are right" "$OPTIMFS" fsck --data new

# A layout that fills what a flat parameter's parts lack.
ck=$data/pytorch/fsdp1_local_orig_fullshard_w2/ckpt
rm -r new tree
l=fsdp@2,flat,fill=zero
o="-o units=${ck%/ckpt}/units.json"
"$OPTIMFS" cp $o -r "$ck" . tree
status "$l: mkfs" 0 "$OPTIMFS" mkfs $o --like "$ck" --layout $l new
"$OPTIMFS" mount -o rw new "$mnt"
cp -r tree/. "$mnt"
is "lacks no state" "$(grep state/ "$mnt/.optimfs/missing")" ""
ok "is committed" "$OPTIMFS" umount "$mnt"
ok "is what reshard writes" sh -c "
    '$OPTIMFS' reshard $o --to $l '$ck' want && diff -r want new"
done_testing
