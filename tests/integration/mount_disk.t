#!/bin/sh
# mount_disk.t - a mount over a disk that fails, hangs and goes, and signals
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

requires mount python3
data=$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w2/ckpt
disk=$scratch/disk # what is on it
src=$(point src)   # the disk
mnt=$(point mnt)
bad=model/norm.weight good=model/output.weight
cp -r "$data" "$disk"
chmod -R u+w "$disk"

# Where rank 0's part of the bad tensor lies.
"$OPTIMFS" cat "$data" ".optimfs/layout/$bad" >"$scratch/layout"
eval "$(sed -n 's/.*__0_0.*"offset": \([0-9]*\), "length": \([0-9]*\),.*/off=\1 len=\2/p' "$scratch/layout")"
"$OPTIMFS" cat "$data" "$good" >"$scratch/good"

# A disk on which the file's bytes are so.
disk() {
	echo "__0_0.distcp $1" >"$disk/.fake"
	"$OPTIMFS_FAKE" mount -o assemble=off,timeout=0 "$disk" "$src"
}
gone() {
	! grep -q '^State:[^Z]*$' "/proc/$1/status" 2>/dev/null
}

# F07 A range that cannot be read.
ok "a disk with a bad sector" disk "fail=$off-$((off + len)):5"
ok "has a checkpoint" "$OPTIMFS" mount "$src" "$mnt"
not_ok "what lies there cannot be read" cat "$mnt/$bad"
like "is EIO" "$(cat "$scratch/err")" '*Input/output error*'
like "and told by file and offset" "$(cat "$mnt/.optimfs/errors")" \
    '*OFS755*__0_0.distcp*offset*'
ok "all else can" cmp "$mnt/$good" "$scratch/good"
status "fsck finds it" 1 "$OPTIMFS" fsck --data "$src"
like "there" "$(cat "$scratch/out")" "*OFS755*__0_0.distcp*"
"$OPTIMFS" umount "$mnt"
# the daemon closes its files after its mount is gone
ok "the disk is left" eventually "$OPTIMFS_FAKE" umount "$src"

# F06 A disk that does not answer, and one that is gone.
ok "a disk that hangs" disk slow=3600000
ok "has a checkpoint" "$OPTIMFS" mount -o timeout=1 "$src" "$mnt"
cat "$mnt/$good" >/dev/null 2>"$scratch/late" &
reader=$!
ok "who reads is told so" eventually gone $reader
like "in time" "$(cat "$scratch/late")" '*timed out*'
ok "what has been read already is there" test -s "$mnt/.optimfs/info.json"
cat "$mnt/$bad" >/dev/null 2>&1 &
reader=$!
sleep 0.2
kill -KILL $reader
ok "a reader can be killed" eventually gone $reader
"$OPTIMFS_FAKE" umount --force "$src"
not_ok "the disk is gone" cat "$mnt/$good"
like "is an error, not a hang" "$(cat "$scratch/err")" '*cat: *'
ok "and the mount can be taken away" "$OPTIMFS" umount --force "$mnt"

# F14 A daemon that is told to end keeps what was written, and says where.
ck=$scratch/ck
lr=optim/param_groups/0/lr
for sig in TERM INT HUP; do
	rm -rf "$ck" "$scratch/.ck.optimfs"
	cp -r "$data" "$ck"
	chmod -R u+w "$ck"
	# a shell starts its background jobs with SIGINT ignored
	python3 -c '
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$OPTIMFS" mount -f -o rw "$ck" "$mnt" \
	    2>"$scratch/log" &
	daemon=$!
	daemons=$daemon
	eventually test -e "$mnt/$lr"
	echo 0.25 >"$mnt/$lr"
	kill -$sig $daemon
	wait $daemon
	is "SIG$sig: exit status" $? 0
	like "SIG$sig: what is kept is said" "$(cat "$scratch/log")" \
	    "*$ck: 1 changed files are kept*not committed*"
	ok "SIG$sig: it is not committed" diff -r "$data" "$ck"
	ok "SIG$sig: it can be had" "$OPTIMFS" mount -o rw,recover=yes "$ck" \
	    "$mnt"
	is "SIG$sig: all of it" "$(cat "$mnt/$lr")" 0.25
	"$OPTIMFS" umount "$mnt"
done
daemons=

done_testing
