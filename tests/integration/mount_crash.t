#!/bin/sh
# mount_crash.t - daemons that die while they are written to, and full disks
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

requires mount python3
data=$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w3
ck=$scratch/dir/ck
stage=$scratch/dir/.ck.optimfs
mnt=$(point mnt)
lr=optim/param_groups/0/lr
w=model/layers.0.w1.weight
exp=optim/state/layers.0.w1.weight/exp_avg

fresh() {
	rm -rf "$scratch/dir" && mkdir "$scratch/dir" &&
	    cp -r "$data/ckpt" "$ck" && chmod -R u+w "$scratch/dir"
}

# rw [OPTION,...]: mounted, its daemon's number in $daemon
rw() {
	"$OPTIMFS" mount -o "rw${1:+,$1}" "$ck" "$mnt" </dev/null &&
	    daemon=$(sed -n 's/^pid //p' "$stage/lock")
}

# What a daemon that was killed leaves is a dead mount.
reap() {
	eventually gone "$daemon"
	umount -l "$mnt" 2>/dev/null || fusermount3 -u -z "$mnt" 2>/dev/null
	return 0
}
gone() {
	! kill -0 "$1" 2>/dev/null
}
end() {
	"$OPTIMFS" umount "$@" "$mnt"
}
commit() {
	"$OPTIMFS" commit "$mnt"
}
sound() {
	"$OPTIMFS" fsck --data "$ck"
}
says() {
	"$OPTIMFS" cat "$ck" "$1"
}
# edit: two changes, synced
edit() {
	echo 0.25 >"$mnt/$lr" &&
	    printf 'some other bytes' |
	    dd of="$mnt/$w" bs=16 seek=1 conv=notrunc,fsync status=none &&
	    sync "$mnt/$lr"
}
has_edit() {
	is "$1: the value" "$(says $lr)" 0.25
	is "$1: the bytes" "$(says $w | dd bs=16 skip=1 count=1 status=none)" \
	    'some other bytes'
}
old_lr=$("$OPTIMFS" cat "$data/ckpt" $lr)

# --- killed with something staged --------------------------------------

fresh
rw && edit
kill -KILL "$daemon" && reap
is 'killed: the checkpoint is old' "$(says $lr)" "$old_lr"
ok 'killed: and sound' sound
not_ok 'killed: what it left is not passed over' "$OPTIMFS" mount -o rw \
    "$ck" "$mnt"
like 'killed: by name' "$(cat "$scratch/err")" '*OFS811*recover=yes*'
ok 'killed: readers do not care' "$OPTIMFS" mount "$ck" "$mnt"
end
ok 'killed: recover=yes' rw recover=yes
is 'killed: it is there again' "$(cat "$mnt/$lr")" 0.25
ok 'killed: and is committed' end
has_edit 'killed'
ok 'killed: sound' sound
is 'killed: nothing is left' "$(ls -A "$scratch/dir")" ck

fresh
rw && edit
kill -KILL "$daemon" && reap
ok 'killed: recover=discard' rw recover=discard
is 'killed: it is dropped' "$(cat "$mnt/$lr")" "$old_lr"
ok 'killed: nothing to commit' end
is 'killed: nothing of it is left' "$(ls -A "$scratch/dir")" ck

# --- killed and ended while it is written to ---------------------------

cat >"$scratch/writer.py" <<'END'
import os, sys
# Until it fails: what number was synced last?
fd = os.open(sys.argv[1], os.O_RDWR)
n = 0
try:
    while True:
        os.pwrite(fd, (n + 1).to_bytes(8, "little") * 8, 0)
        os.fsync(fd)
        n += 1
        if n == 3:
            open(sys.argv[2], "w").close()
except OSError as e:
    print(n, e.errno != 0)
END
for sig in KILL TERM INT; do
	fresh
	rw
	rm -f "$scratch/begun"
	python3 "$scratch/writer.py" "$mnt/$exp" "$scratch/begun" \
	    >"$scratch/n" &
	writer=$!
	eventually test -e "$scratch/begun"
	sleep 0.05
	kill -$sig "$daemon"
	reap
	wait $writer
	read -r n told <"$scratch/n"
	is "$sig: the writer is told" "$told" True
	is "$sig: not committed" "$(says $lr)" "$old_lr"
	ok "$sig: sound" sound
	is "$sig: no lock is held" \
	    "$([ $sig = KILL ] || [ ! -e "$stage/lock" ] && echo yes)" yes
	ok "$sig: recover=yes" rw recover=yes
	got=$(python3 -c 'import sys
b = sys.stdin.buffer.read(64)
v = int.from_bytes(b[:8], "little")
assert b == b[:8] * 8, b
n = int(sys.argv[1])
print(n <= v <= n + 1 or (n, v))' "$n" <"$mnt/$exp")
	is "$sig: what was synced is there" "$got" True
	ok "$sig: committed" end
	ok "$sig: sound again" sound
done

# --- ended while it commits --------------------------------------------

for ms in 0 5 20 60 150; do
	fresh
	rw commit=explicit && edit
	for f in "$mnt"/model/*; do
		# all of it changes: more to commit
		[ "$f" = "$mnt/$w" ] || [ ! -s "$f" ] ||
		    dd if=/dev/zero of="$f" bs=8 count=1 conv=notrunc \
			status=none 2>/dev/null
	done
	commit 2>/dev/null &
	committer=$!
	sleep "$(printf '0.%03d' $ms)"
	kill -TERM "$daemon"
	wait $committer
	committed=$?
	reap
	ok "TERM after $ms ms: sound" sound
	case $(says $lr) in
	0.25) now=0 ;;
	"$old_lr") now=3 ;;
	*) now=99 ;;
	esac
	like "TERM after $ms ms: old or new" $now '[03]'
	[ $committed != 0 ] ||
	    is "TERM after $ms ms: as it was told" $now 0
	ok "TERM after $ms ms: recover=yes" rw recover=yes
	is "TERM after $ms ms: nothing is lost" "$(cat "$mnt/$lr")" 0.25
	ok "TERM after $ms ms: committed" end
	has_edit "TERM after $ms ms"
done

# --- killed at a call of its commit ------------------------------------

# tests/integration/faults.t tries all calls, without a mount.
faultlib=$TOP_BUILDDIR/.libs/faultlib.so
preloaded() { # VARIABLE=VALUE...
	fresh && env LD_PRELOAD="$faultlib" "$@" "$OPTIMFS" mount -o rw \
	    "$ck" "$mnt" </dev/null && daemon=$(sed -n 's/^pid //p' "$stage/lock")
}
if [ ! -e "$faultlib" ] || sanitized; then
	skip 41 "faultlib.so cannot be preloaded"
else
	ok 'a daemon whose calls are counted' preloaded \
	    FAULT_TRACE="$scratch/trace"
	edit
	staged=$(grep -c '^[0-9]' "$scratch/trace")
	end
	calls=$(grep -c '^[0-9]' "$scratch/trace")
	is 'it has made some while it committed' $((calls > staged + 20)) 1
	has_edit 'counted'
	i=0
	killed=0
	while [ $i -lt 9 ]; do
		i=$((i + 1))
		at=$((staged + (calls - staged) * i / 10))
		preloaded FAULT_AT=$at FAULT_HOW=1
		edit 2>/dev/null
		end 2>/dev/null
		[ ! -e "$stage/lock" ] || killed=$((killed + 1))
		reap
		ok "killed at call $i/10: sound" sound
		ok "killed at call $i/10: recover=yes" rw recover=yes
		is "killed at call $i/10: nothing is lost" "$(cat "$mnt/$lr")" 0.25
		ok "killed at call $i/10: committed" end
	done
	is 'that many were killed' $((killed > 6)) 1
fi

# --- unmounted by others -----------------------------------------------

no_stage() {
	[ ! -e "$stage" ]
}
fresh
rw && edit
exec 9<"$mnt/$lr"
if umount -l "$mnt" 2>/dev/null || fusermount3 -u -z "$mnt"; then
	is 'umount -l: who has a file open reads on' "$(cat <&9)" 0.25
	exec 9<&-
	ok 'umount -l: it is committed' eventually no_stage
	has_edit 'umount -l'
	ok 'umount -l: sound' sound
else
	exec 9<&-
	skip 5 "cannot unmount lazily"
fi

fresh
not_ok 'no mount point' "$OPTIMFS" mount -o rw "$ck" "$scratch/none"
is 'no mount point: nothing is left' "$(ls -A "$scratch/dir")" ck
not_ok 'no checkpoint' "$OPTIMFS" mount -o rw "$scratch/dir/none" "$mnt"
is 'no checkpoint: nothing is left' "$(ls -A "$scratch/dir")" ck

# --- two writers -------------------------------------------------------

fresh
mnt2=$(point mnt2)
rw && edit
not_ok 'a second writer' "$OPTIMFS" mount -o rw "$ck" "$mnt2"
like 'a second writer is told of the first' "$(cat "$scratch/err")" \
    "*OFS259*pid $daemon*"
not_ok 'nor may it discard' "$OPTIMFS" mount -o rw,recover=discard "$ck" \
    "$mnt2"
ok 'a reader' "$OPTIMFS" mount "$ck" "$mnt2"
is 'a reader sees the checkpoint' "$(cat "$mnt2/$lr")" "$old_lr"
"$OPTIMFS" umount "$mnt2"
end
has_edit 'two writers'

# --- the source changes below ------------------------------------------

for how in index data gone; do
	fresh
	rw commit=explicit && edit
	case $how in
	index) touch -d '2001-01-01' "$ck/.metadata" ;;
	data) printf x | dd of="$ck/__0_0.distcp" bs=1 seek=100 conv=notrunc \
	    status=none ;;
	gone) mv "$ck" "$scratch/away" && cp -r "$data/ckpt" "$ck" ;;
	esac
	not_ok "changed below ($how): not committed" commit
	like "changed below ($how): and why" "$(cat "$scratch/err")" \
	    '*OFS805*'
	end --keep
	ok "changed below ($how): and can be had" rw recover=yes
	is "changed below ($how): it is all there" "$(cat "$mnt/$lr")" 0.25
	"$OPTIMFS" abort "$mnt"
	end
	rm -rf "$scratch/away"
done

# --- locks that lie ----------------------------------------------------

boot=$(cat /proc/sys/kernel/random/boot_id)
host=$(hostname 2>/dev/null || uname -n)
lock() { # HOST BOOT PID
	fresh
	mkdir -m 700 "$stage"
	printf 'host %s\nboot %s\npid %s\nid 0123456789abcdef\nsince 1\n' \
	    "$@" >"$stage/lock"
}
free() {
	rw && end &&
	    [ "$(ls -A "$scratch/dir")" = ck ]
}
lock "$host" "$boot" 999999999
ok 'a lock of nobody' free
lock "$host" "$boot" 1
ok 'a lock of a number that is somebody else now' free
lock "$host" 11111111-2222-3333-4444-555555555555 1
ok 'a lock from before a reboot' free
lock elsewhere 11111111-2222-3333-4444-555555555555 77
not_ok 'a lock of another machine' rw
like 'which is named' "$(cat "$scratch/err")" '*OFS259*pid 77 on elsewhere*'
fresh && mkdir -m 700 "$stage" && : >"$stage/lock"
ok 'a lock that says nothing' free
fresh && mkdir -m 700 "$stage" && head -c 5000 /dev/urandom >"$stage/lock"
ok 'a lock of noise' free
fresh && mkdir -m 700 "$stage" && ln -s "$ck/.metadata" "$stage/lock"
not_ok 'a lock that is a link' rw
ok 'what it leads to is whole' cmp "$ck/.metadata" "$data/ckpt/.metadata"
fresh && mkdir -m 700 "$stage" && mkfifo "$stage/lock"
not_ok 'a lock that is a pipe' timeout "$limit" "$OPTIMFS" mount -o rw "$ck" "$mnt"
for name in journal publish; do
	fresh && mkdir -m 700 "$stage" && mkfifo "$stage/$name"
	status "a $name that is a pipe" 3 timeout "$limit" \
	    "$OPTIMFS" mount -o rw "$ck" "$mnt"
	like '... is said' "$(cat "$scratch/err")" '*not a regular file*'
done
fresh && ln -s "$ck" "$stage"
not_ok 'a stage that is a link' rw
is 'nothing is made there' "$(ls -A "$ck")" "$(ls -A "$data/ckpt")"

# --- the kernel's umount does not wait for the commit -------------------

# Nothing is asked of a daemon that is stopped.
detach() {
	if [ "$(id -u)" = 0 ]; then
		umount -i -c "$mnt"
	else
		fusermount3 -u "$mnt"
	fi
}
fresh && rw
echo 0.25 >"$mnt/$lr"
kill -STOP "$daemon"
ok 'umount returns' detach
"$OPTIMFS" cat "$ck" $lr >"$scratch/read" 2>"$scratch/waits" &
reader=$!
"$OPTIMFS" mount -o rw "$ck" "$mnt" 2>"$scratch/mounts" &
mounter=$!
daemons="$daemons $daemon $reader $mounter"
ok 'who reads then waits, and says so' eventually \
    grep -q 'waiting for the commit of a mount' "$scratch/waits"
ok 'who mounts, too' eventually \
    grep -q 'waiting for the commit of a mount' "$scratch/mounts"
is 'nothing was read before' "$(cat "$scratch/read")" ''
kill -CONT "$daemon"
wait $reader
is 'what is read is what was committed' "$(cat "$scratch/read")" 0.25
wait $mounter
is 'and mounted' "$? $(cat "$mnt/$lr")" '0 0.25'
ok 'a mount that is there is not waited for' "$OPTIMFS" cat "$ck" $lr
ok 'umount' end

# --- disks that are full, or read-only ---------------------------------

mkdir "$scratch/small"
if ! mount -t tmpfs -o size=1500k tmpfs "$scratch/small" 2>/dev/null; then
	skip 17 "cannot mount a tmpfs"
	done_testing
fi
small() {
	ck=$scratch/small/ck
	stage=$scratch/small/.ck.optimfs
	rm -rf "$ck" "$scratch/small/ballast"
	cp -r "$data/ckpt" "$ck" && chmod -R u+w "$ck"
}
fill() { # all but KIB
	rm -f "$scratch/small/ballast"
	head -c $(($(df -k --output=avail "$scratch/small" | tail -n 1) * 1024 - \
	    $1 * 1024)) /dev/zero >"$scratch/small/ballast"
}
small
rw commit=explicit
edit
fill 0
cat >"$scratch/full.py" <<'END'
import errno, os, sys
# Both write and close say so, and again.
fd = os.open(sys.argv[1], os.O_RDWR)
n = os.fstat(fd).st_size
told = []
for off in range(0, n, 4096):
    try:
        os.pwrite(fd, os.urandom(min(4096, n - off)), off)
    except OSError as e:
        told.append(e.errno)
try:
    os.close(fd)
except OSError as e:
    told.append(("close", e.errno))
print(n > 0, set(told) == {errno.ENOSPC, ("close", errno.ENOSPC)} or told)
END
big=model/tok_embeddings.weight
is 'full: who writes is told' "$(python3 "$scratch/full.py" "$mnt/$big")" \
    'True True'
not_ok 'full: what was lost is not committed' commit
is 'full: what was staged before is there' "$(cat "$mnt/$lr")" 0.25
ok 'full: the checkpoint is sound' sound
rm "$scratch/small/ballast"
ok 'room again: the file is written whole' sh -c \
    "'$OPTIMFS' cat '$data/ckpt' $big >'$scratch/big' && cp '$scratch/big' '$mnt/$big'"
fill 4
not_ok 'full: a commit does not fit' commit
like 'full: and says so' "$(cat "$scratch/err")" '*OFS801*'
ok 'full: the checkpoint is still sound' sound
is 'full: and old' "$(says $lr)" "$old_lr"
rm "$scratch/small/ballast"
ok 'room again: it is committed' commit
ok 'room again: unmounted' end
has_edit 'room again'
is 'room again: nothing is left' "$(ls -A "$scratch/small")" ck

small
mount -o remount,ro "$scratch/small"
not_ok 'read-only: no writer' rw
like 'read-only: and why' "$(cat "$scratch/err")" '*Read-only file system*'
ok 'read-only: readers' "$OPTIMFS" mount "$ck" "$mnt"
end
mount -o remount,rw "$scratch/small"

done_testing
