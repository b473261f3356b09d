#!/bin/sh
# powerloss.t - what a power failure leaves on the disk under a file system
# SPDX-License-Identifier: Apache-2.0
#
# Part of "make check-faults". Each scene runs on an ext4 whose disk remembers
# writes and flushes (tests/support/disklog.c). Then the disk is made as it is
# after a power failure between any two flushes, when none, all, every other or
# all but one of the writes in between are on it. At most STATES of these
# (100) are tried for each scene, the same in every run.
# In each of them the checkpoint is undamaged, and the old one or the new one; it
# is the new one if the command had returned; and the next program continues, and
# leaves nothing behind.
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

requires mount mkfs.ext4 losetup unshare
[ "$(id -u)" = 0 ] || skip_all "only root has loop devices"
# In mounts of its own, as it sets the boot_id.
if [ -z "${IN_NAMESPACE:-}" ]; then
	unshare -m true || skip_all "no mounts of its own"
	unshare -m env IN_NAMESPACE=1 "$0"
	exit
fi
disklog=$TOP_BUILDDIR/tests/support/disklog
[ -x "$disklog" ] || skip_all "built without FUSE"
o=$OPTIMFS
data=$TOP_SRCDIR/tests/data/pytorch
lr=optim/param_groups/0/lr
w=model/norm.weight
cd "$scratch" || exit 99
mkdir fs disk mnt
echo 00000000-0000-4000-8000-000000000000 >boot

# Without the guesses of ext4 about programs that do not sync.
on_disk() { # IMAGE: mounts it on fs
	mount -o loop,noauto_da_alloc "$1" fs
}
truncate -s 32M empty
mkfs.ext4 -q -F -b 4096 -J size=4 \
    -E lazy_itable_init=0,lazy_journal_init=0,nodiscard empty
on_disk empty 2>err || skip_all "no loop device, or no ext4: $(head -n 1 err)"
umount fs

# --- scenes ---

# NAME_before: what was there long before; NAME: what runs when the power fails;
# it calls returned after what has to last; NAME_after: looks at fs after $done of
# these calls, and prints what is wrong.

edit() {
	echo 0.25 >mnt/$lr && printf ABCDEFGH | dd of=mnt/$w conv=notrunc status=none
}
copy() { # CHECKPOINT TO
	cp -r "$1" "$2" && chmod -R u+w "$2"
}
make_old_and_new() { # CHECKPOINT: old and new, before and after edit
	rm -rf old new
	copy "$1" old && copy "$1" new
	"$o" mount -o rw new mnt && edit && "$o" umount mnt
}
returned() {
	stat -c %s log >>marks
}
equal() {
	"$o" diff "$1" "$2" >diff.out 2>&1
}
undamaged() { # CHECKPOINT
	"$o" fsck --data "$1" >fsck.out 2>&1 || {
		echo "$1 is damaged: $(head -n 2 fsck.out)"
		return 1
	}
}
# Each edited file is old or new, everything else is old.
is_between() { # CHECKPOINT
	for f in $lr $w; do
		"$o" cat "$1" $f >got && for side in old new; do
			"$o" cat $side $f | cmp -s - got && continue 2
		done
		echo "$f is neither old nor new"
	done
	"$o" diff --json old "$1" 2>&1 | grep -o '"path": *"[^"]*"' | grep -v "\"$lr\"\|\"$w\""
}
left() { # STAGE: nothing remains
	[ ! -e "$1" ] || echo "$1 remains"
}
# The next one who mounts it for writing writes again what is said to be lost.
continues() { # CHECKPOINT
	"$o" mount -o rw,recover=yes "$1" mnt >said 2>&1 && repair &&
	    "$o" umount mnt >>said 2>&1 && return
	echo "mount and umount fail: $(head -n 3 said)"
	return 1
}
repair() {
	for f in $(sed -n "s/.* \([^ ]*\): OFS817.*/\1/p" said); do
		"$o" cat new "$f" >mnt/"$f" || return 1
	done
}
old_or_new() { # new if something has returned
	undamaged fs/ck
	equal new fs/ck || { [ "$done" = 0 ] && equal old fs/ck; } ||
	    echo "neither old nor new, or too old: $(head -n 2 diff.out)"
}
# What was not synced may be lost, but only with a word.
after_recovery() { # DONE: all if not 0
	continues fs/ck || return
	undamaged fs/ck
	if ! equal new fs/ck; then
		[ "$1" = 0 ] || echo "not new after recovery: $(cat said)"
		equal old fs/ck || grep -q 'earlier mount: 1 changed file\|OFS817' said ||
		    echo "a part, without a word: $(cat said)"
		is_between fs/ck
	fi
	left fs/.ck.optimfs
}

dcp_before() {
	make_old_and_new "$data/dcp_fsdp2_w2/ckpt"
	cp -r old fs/ck
}
dcp() {
	"$o" mount -o rw fs/ck mnt && edit && "$o" commit mnt && returned &&
	    "$o" umount mnt
}
dcp_after() {
	old_or_new
	after_recovery "$done"
}

ranks_before() {
	make_old_and_new "$data/fsdp1_sharded_orig_fullshard_w2/ckpt_rankfiles"
	cp -r old fs/ck
}
ranks() {
	dcp
}
ranks_after() {
	dcp_after
}

keep_before() {
	dcp_before
}
keep() {
	"$o" mount -o rw fs/ck mnt && edit && "$o" umount --keep mnt && returned
}
keep_after() {
	undamaged fs/ck
	equal old fs/ck || echo "changed: $(head -n 2 diff.out)"
	after_recovery "$done"
}

recovery_before() {
	ranks_before
	keep
}
recovery() {
	continues fs/ck && returned
}
recovery_after() {
	old_or_new
	after_recovery 1 # kept long ago
}

reshard_before() {
	dcp_before
}
reshard() {
	"$o" reshard -q --to dcp@3 fs/ck fs/to && returned
}
reshard_after() {
	equal old fs/ck || echo "the source has changed"
	[ "$done" = 0 ] || [ -e fs/to ] || echo "no checkpoint"
	[ -e fs/to ] || reshard >said 2>&1 || echo "cannot be repeated: $(head -n 3 said)"
	undamaged fs/to
	equal old fs/to || echo "not the source: $(head -n 2 diff.out)"
	continues fs/to
	left fs/.to.optimfs
}

push_before() {
	dcp_before
	rm -rf tree
	"$o" cp -r old . tree
}
template() {
	"$o" mkfs --like old --layout dcp@3 fs/to
}
push() {
	template && returned && filled && returned
}
filled() {
	"$o" mount -o rw,recover=yes fs/to mnt && cp -r tree/. mnt && "$o" umount mnt
}
push_after() {
	if ! "$o" fsck --data fs/to >fsck.out 2>&1; then
		[ "$done" -lt 2 ] || echo "damaged: $(head -n 2 fsck.out)"
		[ "$done" != 0 ] || filled >said 2>&1 || template >said 2>&1 ||
		    echo "cannot be repeated: $(head -n 3 said)"
		filled >said 2>&1 || echo "cannot be filled: $(head -n 3 said)"
		undamaged fs/to
	fi
	equal old fs/to || echo "not what was pushed: $(head -n 2 diff.out)"
	continues fs/to
	left fs/.to.optimfs
}

# --- all of them ---

record() { # SCENE: base, log
	cp empty base
	on_disk base && "$1_before" && eventually umount fs || return 1
	cp base image
	: >marks
	"$disklog" serve image log disk &
	eventually test -e disk/disk
	on_disk disk/disk && "$1" && eventually umount fs && eventually umount disk &&
	    wait $!
}
look() { # SCENE FLUSHES WHICH
	cp base state && "$disklog" replay log state "$2" "$3" || return 1
	done=0
	for mark in $marks; do
		[ "$2" -lt "$mark" ] || done=$((done + 1))
	done
	on_disk state || {
		echo "the file system cannot be mounted"
		return
	}
	mount --bind boot /proc/sys/kernel/random/boot_id
	"$1_after"
	umount /proc/sys/kernel/random/boot_id
	! mountpoint -q mnt || "$o" umount --force mnt
	eventually umount fs
}
look_at_all() { # SCENE
	marks=$(while read -r bytes; do "$disklog" flushes log "$bytes"; done <marks)
	"$disklog" states log >states
	every=$(($(wc -l <states) / ${STATES:-100} + 1))
	awk -v n=$every 'NR % n == 0' states >some
	while read -r k which; do
		look "$1" "$k" "$which" >wrong 2>&1 </dev/null
		[ ! -s wrong ] || sed "s/^/$k $which, $done done: /" wrong
	done <some >all_wrong
	[ -s some ] || echo "nothing is in the log" >all_wrong
}

for scene in ${SCENES:-dcp ranks keep recovery reshard push}; do
	ok "$scene runs on the disk with a log" record $scene || continue
	look_at_all $scene
	is "$scene: $(wc -l <some) of $(wc -l <states) states after a power failure" \
	    "$(cat all_wrong)" ""
done
done_testing
