#!/bin/sh
# fill.t - fill=zero replaces missing moments by zeros, and nothing else
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
requires mount

data=$TOP_SRCDIR/tests/data
cd "$scratch" || exit 99

zeros() { # FILE FROM BYTES
	[ "$(tail -c "+$(($2 + 1))" "$1" | head -c "$3" | tr -d '\0' | wc -c)" = 0 ]
}

# The files of rank 1 of 2 are missing, and with them half of every parameter.
ck=$data/deepspeed/z3_ws2_bf16/ckpt
cp -r "$ck" lost && chmod -R u+w lost
rm lost/global_step3/bf16_zero_pp_rank_1_*
w=optim/state/emb.weight
for f in exp_avg exp_avg_sq fp32 step; do
	"$OPTIMFS" cat "$ck" $w/$f >$f
done
status "cat of a moment with a missing part exits with 3" 3 "$OPTIMFS" cat lost $w/exp_avg
like "cat of a moment with a missing part reports OFS607" "$(cat "$scratch/err")" "*OFS607*"
for f in exp_avg exp_avg_sq; do
	status "cat of $f with fill=zero exits with 0" 0 "$OPTIMFS" cat -o fill=zero lost $w/$f
	cp "$scratch/out" got
	is "$f has its full size with fill=zero" "$(stat -c %s got)" "$(stat -c %s $f)"
	ok "$f has the stored bytes of rank 0 with fill=zero" cmp -n 260 $f got
	ok "$f has zeros for rank 1 with fill=zero" zeros got 260 260
done
status "cat of fp32 weights with fill=zero exits with 3" 3 "$OPTIMFS" cat -o fill=zero lost $w/fp32
like "OFS607 is reported for fp32 weights with fill=zero" "$(cat "$scratch/err")" "*OFS607*"
"$OPTIMFS" cat -o fill=zero lost .optimfs/missing >missing
like ".optimfs/missing lists moments that fill=zero replaces" "$(cat missing)" \
    "*OFS607*emb.weight*exp_avg*"
status "fill=one exits with 2" 2 "$OPTIMFS" cat -o fill=one lost $w/step
like "the message quotes fill=one" "$(cat "$scratch/err")" "*fill=one*"
mnt=$(point m)
ok "mount -o rw,fill=zero succeeds" "$OPTIMFS" mount -o rw,fill=zero lost "$mnt"
ok "a mount with fill=zero shows the zeros" cmp "$mnt/$w/exp_avg_sq" got
cp exp_avg "$mnt/$w/exp_avg"
ok "a mount with fill=zero takes a write to the moment" cmp "$mnt/$w/exp_avg" exp_avg
not_ok "commit fails when the file of the moment is missing" \
    sh -c "echo commit >'$mnt/.optimfs/control'"
like "the failed commit reports OFS607" "$(cat "$mnt/.optimfs/control")" "*OFS607*"
echo abort >"$mnt/.optimfs/control"
ok "umount succeeds after abort" "$OPTIMFS" umount "$mnt"

# A template.
ck=$data/pytorch/dcp_fsdp2_w3/ckpt
"$OPTIMFS" cp -r "$ck" . tree
f=optim/state/layers.0.norm.weight
"$OPTIMFS" mkfs --like "$ck" --layout dcp@2 new
"$OPTIMFS" mount -o rw,fill=zero new "$mnt"
cp -r tree/. "$mnt"
rm "$mnt/$f/exp_avg"
is "moments that were not written are not missing with fill=zero" \
    "$(cat "$mnt/.optimfs/missing")" ""
rm "$mnt/$f/step"
like "a step that was not written is missing with fill=zero" \
    "$(cat "$mnt/.optimfs/missing")" "*$f/step: not written yet*"
cp tree/$f/step "$mnt/$f/step"
head -c 12 tree/$f/exp_avg_sq >"$mnt/$f/exp_avg_sq"
not_ok "commit fails with fill=zero when a moment is partly written" \
    sh -c "echo commit >'$mnt/.optimfs/control'"
cp tree/$f/exp_avg_sq "$mnt/$f/exp_avg_sq"
ok "umount commits after the moment is complete" "$OPTIMFS" umount "$mnt"
"$OPTIMFS" cp -r new . got.tree
ok "the committed moment has zeros" zeros got.tree/$f/exp_avg 0 48
is "the committed moment has its full size" "$(stat -c %s got.tree/$f/exp_avg)" 48
rm got.tree/$f/exp_avg tree/$f/exp_avg
ok "the committed template has everything else" diff -r tree got.tree
ok "fsck --data accepts the template with zeros" "$OPTIMFS" fsck --data new

# A layout with fill=zero: frozen parts of a flat parameter get zeros.
ck=$data/pytorch/fsdp1_local_orig_fullshard_w2/ckpt
rm -r new tree
l=fsdp@2,flat,fill=zero
o="-o units=${ck%/ckpt}/units.json"
"$OPTIMFS" cp $o -r "$ck" . tree
status "mkfs --layout $l exits with 0" 0 "$OPTIMFS" mkfs $o --like "$ck" --layout $l new
"$OPTIMFS" mount -o rw new "$mnt"
cp -r tree/. "$mnt"
is ".optimfs/missing of $l lists no state" "$(grep state/ "$mnt/.optimfs/missing")" ""
ok "umount commits the template of $l" "$OPTIMFS" umount "$mnt"
ok "the committed template of $l equals reshard" sh -c "
    '$OPTIMFS' reshard $o --to $l '$ck' want && diff -r want new"

# A lost file of a DCP checkpoint: its part of the moments is zero, and the rest
# of them is as it was.
rm -rf lost
cp -r "$data/pytorch/dcp_fsdp2_w4/ckpt" lost && chmod -R u+w lost
rm lost/__1_0.distcp
m=optim/state/layers.0.w1.weight/exp_avg
not_ok "without fill=zero a lost part of a moment is an error" "$OPTIMFS" cat lost $m
ok "with it the moment can be read" "$OPTIMFS" cat -o fill=zero lost $m
is "the lost rows are zeros, the others are not" "$(python3 - "$scratch/out" <<'END'
import struct, sys
b = open(sys.argv[1], "rb").read()
v = struct.unpack("<%df" % (len(b) // 4), b)
print([any(v[i * 12:i * 12 + 12]) for i in range(19)].index(False),
      sum(not any(v[i * 12:i * 12 + 12]) for i in range(19)))
END
)" "5 5"
not_ok "weights are never filled" "$OPTIMFS" cat -o fill=zero lost model/layers.0.w1.weight
done_testing
