#!/bin/sh
# mount_disk.t - a mount of a disk that fails, hangs or disappears; signals
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

requires mount python3
data=$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w2/ckpt
disk=$scratch/disk # the contents of the fake disk
src=$(point src)   # its mount point
mnt=$(point mnt)
bad=model/norm.weight good=model/output.weight
cp -r "$data" "$disk"
chmod -R u+w "$disk"

# The byte range of rank 0's shard of the bad tensor.
"$OPTIMFS" cat "$data" ".optimfs/layout/$bad" >"$scratch/layout"
eval "$(sed -n 's/.*__0_0.*"offset": \([0-9]*\), "length": \([0-9]*\),.*/off=\1 len=\2/p' "$scratch/layout")"
"$OPTIMFS" cat "$data" "$good" >"$scratch/good"

# disk FAULT: a fake disk with this fault in rank 0's file
disk() {
	echo "__0_0.distcp $1" >"$disk/.fake"
	"$OPTIMFS_FAKE" mount -o assemble=off,timeout=0 "$disk" "$src"
}
gone() {
	! grep -q '^State:[^Z]*$' "/proc/$1/status" 2>/dev/null
}

# A range that cannot be read.
ok "a disk with a bad sector is set up" disk "fail=$off-$((off + len)):5"
ok "a checkpoint on a disk with a bad sector mounts" "$OPTIMFS" mount "$src" "$mnt"
not_ok "reading the tensor on the bad sector fails" cat "$mnt/$bad"
like "the bad sector gives EIO" "$(cat "$scratch/err")" '*Input/output error*'
like "OFS755 in .optimfs/errors names file and offset" "$(cat "$mnt/.optimfs/errors")" \
    '*OFS755*__0_0.distcp*offset*'
ok "other tensors on the disk can be read" cmp "$mnt/$good" "$scratch/good"
status "fsck --data exits with 1 for the bad sector" 1 "$OPTIMFS" fsck --data "$src"
like "fsck reports the bad sector as OFS755" "$(cat "$scratch/out")" "*OFS755*__0_0.distcp*"
"$OPTIMFS" umount "$mnt"
# The daemon closes its files after its mount is gone.
ok "the disk with the bad sector can be unmounted" eventually "$OPTIMFS_FAKE" umount "$src"

# A disk that does not answer, and then disappears.
ok "a disk that hangs is set up" disk slow=3600000
ok "a checkpoint on a disk that hangs mounts" "$OPTIMFS" mount -o timeout=1 "$src" "$mnt"
cat "$mnt/$good" >/dev/null 2>"$scratch/late" &
reader=$!
ok "a read from the hanging disk ends after timeout=" eventually gone $reader
like "a read from the hanging disk gives ETIMEDOUT" "$(cat "$scratch/late")" '*timed out*'
ok "metadata can be read while the disk hangs" test -s "$mnt/.optimfs/info.json"
cat "$mnt/$bad" >/dev/null 2>&1 &
reader=$!
sleep 0.2
kill -KILL $reader
ok "a reader of the hanging disk can be killed" eventually gone $reader
"$OPTIMFS_FAKE" umount --force "$src"
not_ok "a read from a removed disk fails" cat "$mnt/$good"
like "cat of a file on a removed disk prints an error" "$(cat "$scratch/err")" '*cat: *'
ok "umount --force succeeds after the disk was removed" "$OPTIMFS" umount --force "$mnt"

# A daemon that gets a signal keeps the staged changes and says where.
ck=$scratch/ck
lr=optim/param_groups/0/lr
for sig in TERM INT HUP; do
	rm -rf "$ck" "$scratch/.ck.optimfs"
	cp -r "$data" "$ck"
	chmod -R u+w "$ck"
	# A shell starts background jobs with SIGINT ignored.
	python3 -c '
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$OPTIMFS" mount -f -o rw "$ck" "$mnt" \
	    2>"$scratch/log" &
	daemon=$!
	eventually test -e "$mnt/$lr"
	echo 0.25 >"$mnt/$lr"
	kill -$sig $daemon
	wait $daemon
	is "SIG$sig: the daemon exits with 0" $? 0
	like "SIG$sig: the daemon says that one changed file is kept" "$(cat "$scratch/log")" \
	    "*$ck: 1 changed files are kept*not committed*"
	ok "SIG$sig: the checkpoint is unchanged" diff -r "$data" "$ck"
	ok "SIG$sig: mount with recover=yes succeeds" "$OPTIMFS" mount -o rw,recover=yes "$ck" \
	    "$mnt"
	is "SIG$sig: recover=yes restores the staged value" "$(cat "$mnt/$lr")" 0.25
	"$OPTIMFS" umount "$mnt"
done

done_testing
