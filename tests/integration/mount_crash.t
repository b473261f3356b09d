#!/bin/sh
# mount_crash.t - killed daemons, interrupted commits, stale locks and full
# disks
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

# rw [OPTION,...]: mount read-write, and set $daemon to the process ID of the
# daemon
rw() {
	"$OPTIMFS" mount -o "rw${1:+,$1}" "$ck" "$mnt" </dev/null &&
	    daemon=$(sed -n 's/^pid //p' "$stage/lock")
}

# Waits for a killed daemon and detaches its dead mount.
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
	is "$1: lr has the edited value" "$(says $lr)" 0.25
	is "$1: the tensor has the edited bytes" \
	    "$(says $w | dd bs=16 skip=1 count=1 status=none)" \
	    'some other bytes'
}
old_lr=$("$OPTIMFS" cat "$data/ckpt" $lr)

# --- a killed mount command ----------------------------------------------

# The daemon has opened the FIFO, and waits for names, when its parent is killed.
# It is the last one that can write to the other FIFO.
mkfifo "$scratch/ids" "$scratch/stderr"
cat "$scratch/stderr" >"$scratch/said" &
reader=$!
"$OPTIMFS" mount -o "ids=$scratch/ids" \
    "$TOP_SRCDIR/tests/data/extra/trainers/pl_full.ckpt" "$mnt" 2>"$scratch/stderr" &
parent=$!
exec 3>"$scratch/ids"
kill -KILL $parent
wait $parent 2>/dev/null
echo none >&3
exec 3>&-
wait $reader
like "killed mount command: its daemon prints why it fails" \
    "$(cat "$scratch/said")" '*OFS635*'
is "killed mount command: nothing is mounted" "$(tap_mounts)" ""

# --- killed with staged data -------------------------------------------

fresh
rw && edit
kill -KILL "$daemon" && reap
is "killed: the checkpoint keeps the old value" "$(says $lr)" "$old_lr"
ok "killed: fsck accepts the old checkpoint" sound
not_ok "killed: mount -o rw fails without recover=" "$OPTIMFS" mount -o rw \
    "$ck" "$mnt"
like "killed: OFS811 names recover=yes" "$(cat "$scratch/err")" '*OFS811*recover=yes*'
ok "killed: a read-only mount succeeds" "$OPTIMFS" mount "$ck" "$mnt"
end
ok "killed: mount with recover=yes succeeds" rw recover=yes
is "killed: recover=yes restores the staged value" "$(cat "$mnt/$lr")" 0.25
ok "killed: umount commits what was recovered" end
has_edit 'killed'
ok "killed: fsck accepts the committed checkpoint" sound
is "killed: the commit leaves no staging directory" "$(ls -A "$scratch/dir")" ck

fresh
rw && edit
kill -KILL "$daemon" && reap
ok "killed: mount with recover=discard succeeds" rw recover=discard
is "killed: recover=discard drops the staged value" "$(cat "$mnt/$lr")" "$old_lr"
ok "killed: umount succeeds with nothing to commit" end
is "killed: recover=discard leaves no staging directory" "$(ls -A "$scratch/dir")" ck

fresh
rw && edit
kill -KILL "$daemon" && eventually gone "$daemon"
status "killed: umount exits with 3" 3 "$OPTIMFS" umount "$mnt"
like "killed: umount says that the changes are not committed" "$(cat "$scratch/err")" \
    '*OFS811*.ck.optimfs holds changes*recover=yes*'
ok "killed: mount with recover=yes succeeds after umount" rw recover=yes
ok "killed: umount commits what was recovered after umount" end
has_edit 'killed, unmounted'
rw && kill -KILL "$daemon" && eventually gone "$daemon"
ok "killed: umount succeeds where nothing was changed" end

faultlib=$TOP_BUILDDIR/.libs/faultlib.so
preloaded() { # VARIABLE=VALUE...
	fresh && env LD_PRELOAD="$faultlib" "$@" "$OPTIMFS" mount -o rw \
	    "$ck" "$mnt" </dev/null && daemon=$(sed -n 's/^pid //p' "$stage/lock")
}
if [ ! -e "$faultlib" ] || sanitized; then
	skip 5 "faultlib.so cannot be preloaded"
else
	# The guard of a rank also unmounts when the daemon has died. Where optimfs
	# is installed, umount(8) does it for us: make it forget the mount.
	fresh
	rw && edit
	umount -i --fake "$mnt" 2>/dev/null
	kill -KILL "$daemon" && eventually gone "$daemon"
	env LD_PRELOAD="$faultlib" FAULT_TRACE="$scratch/unmounting" FAULT_PATH="$mnt" \
	    FAULT_HOW=8 FAULT_GATE="$scratch/gate" "$OPTIMFS" umount "$mnt" \
	    2>"$scratch/said" & # FAULT_WAIT
	umounter=$!
	ok "killed: umount is about to unmount" eventually grep -q umount "$scratch/unmounting"
	reap
	: >"$scratch/gate"
	wait $umounter
	is "killed: umount exits with 3 if another program unmounts at the same time" $? 3
	like "killed: it says that changes are left" "$(cat "$scratch/said")" '*OFS811*recover=yes*'

	fresh
	preloaded FAULT_HOW=1 FAULT_PATH="$ck" FAULT_NTH=1
	edit
	status "killed: commit exits with 3 if the daemon dies" 3 commit
	like "killed: commit says that the daemon has ended" "$(cat "$scratch/err")" \
	    '*OFS845*daemon of the mount ended*the next mount for writing*'
	reap
fi

# --- killed or terminated during writes --------------------------------

cat >"$scratch/writer.py" <<'END'
import os, sys
# Writes until an error, and prints the number of the last synced write.
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
	is "SIG$sig: the next write or fsync fails" "$told" True
	is "SIG$sig: the checkpoint keeps the old value" "$(says $lr)" "$old_lr"
	ok "SIG$sig: fsck accepts the old checkpoint" sound
	is "SIG$sig: a terminated daemon removes its lock" \
	    "$([ $sig = KILL ] || [ ! -e "$stage/lock" ] && echo yes)" yes
	ok "SIG$sig: mount with recover=yes succeeds" rw recover=yes
	got=$(python3 -c 'import sys
b = sys.stdin.buffer.read(64)
v = int.from_bytes(b[:8], "little")
assert b == b[:8] * 8, b
n = int(sys.argv[1])
print(n <= v <= n + 1 or (n, v))' "$n" <"$mnt/$exp")
	is "SIG$sig: recover=yes restores the last synced write" "$got" True
	ok "SIG$sig: umount commits what was recovered" end
	ok "SIG$sig: fsck accepts the committed checkpoint" sound
done

# --- terminated during a commit ----------------------------------------

for ms in 0 5 20 60 150; do
	fresh
	rw commit=explicit && edit
	for f in "$mnt"/model/*; do
		# Change every tensor, to make the commit longer.
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
	ok "SIGTERM after $ms ms: fsck accepts the checkpoint" sound
	case $(says $lr) in
	0.25) now=0 ;;
	"$old_lr") now=3 ;;
	*) now=99 ;;
	esac
	like "SIGTERM after $ms ms: the checkpoint is the old or the new one" $now '[03]'
	[ $committed != 0 ] ||
	    is "SIGTERM after $ms ms: the checkpoint is new if commit exited with 0" $now 0
	ok "SIGTERM after $ms ms: mount with recover=yes succeeds" rw recover=yes
	is "SIGTERM after $ms ms: no staged value is lost" "$(cat "$mnt/$lr")" 0.25
	ok "SIGTERM after $ms ms: umount commits what was recovered" end
	has_edit "SIGTERM after $ms ms"
done

# --- killed at a system call of the commit -----------------------------

# Some calls only; tests/integration/faults.t tries every call, without a mount.
if [ ! -e "$faultlib" ] || sanitized; then
	skip 41 "faultlib.so cannot be preloaded"
else
	ok "a daemon with counted system calls mounts" preloaded \
	    FAULT_TRACE="$scratch/trace"
	edit
	staged=$(grep -c '^[0-9]' "$scratch/trace")
	end
	calls=$(grep -c '^[0-9]' "$scratch/trace")
	is "the commit makes more than 20 counted calls" $((calls > staged + 20)) 1
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
		ok "killed at call $i/10: fsck accepts the checkpoint" sound
		ok "killed at call $i/10: mount with recover=yes succeeds" rw recover=yes
		is "killed at call $i/10: no staged value is lost" "$(cat "$mnt/$lr")" 0.25
		ok "killed at call $i/10: umount commits what was recovered" end
	done
	is "the daemon was killed during more than six of nine commits" $((killed > 6)) 1
fi

# --- killed when large files are finished ------------------------------

# three shards, each with a tensor of 20 MiB
cat >"$scratch/shards.py" <<'EOF'
import json, os, sys
top, n = sys.argv[1], 20 << 20
os.makedirs(top)
names = ["model-%05d-of-00003.safetensors" % (i + 1) for i in range(3)]
for i, name in enumerate(names):
    head = json.dumps({"w%d" % i: {"dtype": "F32", "shape": [n // 4096, 1024],
                                   "data_offsets": [0, n]}}).encode()
    head += b" " * (-len(head) % 8)
    with open(os.path.join(top, name), "wb") as f:
        f.write(len(head).to_bytes(8, "little") + head)
        f.truncate(8 + len(head) + n)
json.dump({"metadata": {"total_size": 3 * n},
           "weight_map": {"w%d" % i: name for i, name in enumerate(names)}},
          open(os.path.join(top, "model.safetensors.index.json"), "w"))
EOF
large() { # BYTE: writes it to each shard
	for shard in 0 1 2; do
		printf "$1" | dd of="$mnt/model/w$shard" bs=1 seek=5000 \
		    conv=notrunc,fsync status=none || return 1
	done
}
large_says() {
	for shard in 0 1 2; do
		dd if="$mnt/model/w$shard" bs=1 skip=5000 count=1 status=none
	done
}
# FAULT_HOW=1: the daemon is killed when it keeps the second of the new files. It
# has one processor, and so one thread: of two threads, the second one could be
# killed before the first one has kept its file.
alone=$(taskset -cp $$ 2>/dev/null | sed 's/.*: \([0-9]*\).*/taskset -c \1/')
# shellcheck disable=SC2086 # two words and a number
finish_one() {
	rm -rf "$ck" "$stage" "$scratch/dir/ballast" &&
	    python3 "$scratch/shards.py" "$ck" &&
	    env LD_PRELOAD="$faultlib" FAULT_HOW=1 FAULT_PATH=finished/ FAULT_NTH=2 \
		FAULT_AFTER="$stage/finished" $alone "$OPTIMFS" mount \
		-o rw,commit=explicit "$ck" "$mnt" </dev/null &&
	    daemon=$(sed -n 's/^pid //p' "$stage/lock") && large x || return 1
	commit 2>/dev/null
	reap
	set -- "$stage"/finished/*
	[ $# = 1 ] && finished=$(stat -c %i "$1")
}
limited=
# Is the file that was finished one of the checkpoint?
reused() {
	find "$ck" -inum "$finished" | grep -q .
}
if [ ! -e "$faultlib" ] || sanitized; then
	skip 18 "faultlib.so cannot be preloaded"
else
	rm -rf "$scratch/dir" && mkdir "$scratch/dir"
	mount -t tmpfs -o size=100m none "$scratch/dir" 2>/dev/null && limited=yes
	ok "a commit is killed when it has finished one of three files" finish_one
	# room for two of the new files
	[ -z "$limited" ] || head -c $(($(df -B1 --output=avail "$scratch/dir" |
	    tail -n 1) - 46000000)) /dev/zero >"$scratch/dir/ballast"
	ok "finished: fsck accepts the checkpoint" sound
	not_ok "finished: the checkpoint is the old one" reused
	ok "finished: mount with recover=yes succeeds" rw recover=yes
	ok "finished: umount commits what was recovered" end
	ok "finished: the file that was finished is used" reused
	rm -f "$scratch/dir/ballast"
	is "finished: no staging directory is left" "$(ls -A "$scratch/dir")" ck
	rw
	is "finished: all files have the new bytes" "$(large_says)" xxx
	end

	ok "a commit is killed again when it has finished one of three files" finish_one
	ok "written again: mount with recover=yes succeeds" rw recover=yes,commit=explicit
	ok "written again: other bytes are written" large y
	ok "written again: commit succeeds" commit
	not_ok "written again: the file that was finished is not used" reused
	is "written again: all files have the last bytes" "$(large_says)" yyy
	end

	ok "a commit is killed once more when it has finished one of three files" finish_one
	ok "discarded: mount with recover=discard succeeds" rw recover=discard
	not_ok "discarded: the file that was finished is removed" test -e "$stage/finished"
	is "discarded: all files have the old bytes" "$(large_says | tr '\0' o)" ooo
	end
	[ -z "$limited" ] || eventually umount "$scratch/dir" 2>/dev/null
fi

# --- unmounted by others -----------------------------------------------

no_stage() {
	[ ! -e "$stage" ]
}
fresh
rw && edit
exec 9<"$mnt/$lr"
if umount -l "$mnt" 2>/dev/null || fusermount3 -u -z "$mnt"; then
	is "umount -l: an open file can still be read" "$(cat <&9)" 0.25
	exec 9<&-
	ok "umount -l: the daemon commits and removes its staging directory" eventually no_stage
	has_edit 'umount -l'
	ok "umount -l: fsck accepts the committed checkpoint" sound
else
	exec 9<&-
	skip 5 "cannot unmount lazily"
fi

fresh
not_ok "mount -o rw on a missing mount point fails" "$OPTIMFS" mount -o rw "$ck" "$scratch/none"
is "mount -o rw on a missing mount point leaves no staging directory" "$(ls -A "$scratch/dir")" ck
not_ok "mount -o rw of a missing checkpoint fails" "$OPTIMFS" mount -o rw "$scratch/dir/none" "$mnt"
is "mount -o rw of a missing checkpoint leaves no staging directory" "$(ls -A "$scratch/dir")" ck

# --- two writers -------------------------------------------------------

fresh
mnt2=$(point mnt2)
rw && edit
not_ok "two writers: a second mount -o rw fails" "$OPTIMFS" mount -o rw "$ck" "$mnt2"
like "two writers: OFS259 names the process of the first" "$(cat "$scratch/err")" \
    "*OFS259*pid $daemon*"
not_ok "two writers: recover=discard does not discard a live mount" \
    "$OPTIMFS" mount -o rw,recover=discard "$ck" \
    "$mnt2"
ok "two writers: a read-only mount succeeds" "$OPTIMFS" mount "$ck" "$mnt2"
is "two writers: a read-only mount shows the committed value" "$(cat "$mnt2/$lr")" "$old_lr"
"$OPTIMFS" umount "$mnt2"
end
has_edit 'two writers'

# --- the source changes while mounted ----------------------------------

for how in index data gone; do
	fresh
	rw commit=explicit && edit
	case $how in
	index) touch -d '2001-01-01' "$ck/.metadata" ;;
	data) printf x | dd of="$ck/__0_0.distcp" bs=1 seek=100 conv=notrunc \
	    status=none ;;
	gone) mv "$ck" "$scratch/away" && cp -r "$data/ckpt" "$ck" ;;
	esac
	not_ok "source changed ($how): commit fails" commit
	like "source changed ($how): the failed commit reports OFS805" "$(cat "$scratch/err")" \
	    '*OFS805*'
	end --keep
	ok "source changed ($how): mount with recover=yes succeeds" rw recover=yes
	is "source changed ($how): recover=yes restores the staged value" "$(cat "$mnt/$lr")" 0.25
	"$OPTIMFS" abort "$mnt"
	end
	rm -rf "$scratch/away"
done

# --- stale and malformed locks -----------------------------------------

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
ok "a lock of a process that does not exist is taken over" free
lock "$host" "$boot" 1
ok "a lock with the reused ID of another process is taken over" free
lock "$host" 11111111-2222-3333-4444-555555555555 1
ok "a lock from before a reboot is taken over" free
lock elsewhere 11111111-2222-3333-4444-555555555555 77
not_ok "a lock of another machine is respected" rw
like "OFS259 names process and host of the lock" \
    "$(cat "$scratch/err")" '*OFS259*pid 77 on elsewhere*'
fresh && mkdir -m 700 "$stage" && : >"$stage/lock"
ok "an empty lock is taken over" free
fresh && mkdir -m 700 "$stage" && head -c 5000 /dev/urandom >"$stage/lock"
ok "a lock with random bytes is taken over" free
fresh && mkdir -m 700 "$stage" && ln -s "$ck/.metadata" "$stage/lock"
not_ok "a lock that is a symbolic link makes mount fail" rw
ok "the target of the symbolic link is not written to" cmp "$ck/.metadata" "$data/ckpt/.metadata"
fresh && mkdir -m 700 "$stage" && mkfifo "$stage/lock"
not_ok "a lock that is a FIFO makes mount fail" timeout "$limit" "$OPTIMFS" mount -o rw "$ck" "$mnt"
for name in journal publish; do
	fresh && mkdir -m 700 "$stage" && mkfifo "$stage/$name"
	status "a $name that is a FIFO makes mount exit with 3" 3 timeout "$limit" \
	    "$OPTIMFS" mount -o rw "$ck" "$mnt"
	like "the message says that the $name is not a regular file" \
	    "$(cat "$scratch/err")" '*not a regular file*'
done
fresh && ln -s "$ck" "$stage"
not_ok "a staging directory that is a symbolic link makes mount fail" rw
is "nothing is created in the target of the symbolic link" "$(ls -A "$ck")" "$(ls -A "$data/ckpt")"

# --- umount(2) does not wait for the commit ----------------------------

# Only operations that do not ask the daemon, which is stopped here.
detach() {
	if [ "$(id -u)" = 0 ]; then
		umount -i -c "$mnt"
	else
		fusermount3 -u "$mnt"
	fi
}
# The kernel gives the lowest device number that is free: in the end, that of a
# mount that is gone.
take_number() { # NUMBER POINT: mounts tmpfs there until one has it
	for takes in $(seq 100); do
		mount -t tmpfs next "$2" 2>/dev/null || return 1
		[ "$(mountpoint -d "$2")" != "$1" ] || return 0
	done
	return 1
}
give_number() { # POINT
	while umount "$1" 2>/dev/null; do :; done
}
prints() { # PID FILE WHO [WHY-NOT]: no PID, no such reader
	if [ -z "$1" ]; then
		skip 1 "$4"
		return
	fi
	wait "$1"
	is "$3 prints the committed value" "$(cat "$2")" 0.25
}
fresh && rw
echo 0.25 >"$mnt/$lr"
number=$(mountpoint -d "$mnt")
kill -STOP "$daemon"
ok "umount(8) returns while the daemon is stopped" detach
take_number "$number" "$(point next)" # which other tests must not get
"$OPTIMFS" cat "$ck" $lr >"$scratch/read" 2>"$scratch/waits" &
reader=$!
"$OPTIMFS" mount -o rw "$ck" "$mnt" 2>"$scratch/mounts" &
mounter=$!
apart=
if [ "$(id -u)" = 0 ] && unshare -pf --mount-proc true 2>/dev/null; then
	unshare -pf --mount-proc "$OPTIMFS" cat "$ck" $lr >"$scratch/apart" \
	    2>"$scratch/apart_waits" &
	apart=$!
	ok "a reader in another process namespace waits, too" eventually \
	    grep -q 'waiting for the commit of a mount' "$scratch/apart_waits"
else
	skip 1 "no process namespaces"
fi
ok "a reader waits for the pending commit, and says so" eventually \
    grep -q 'waiting for the commit of a mount' "$scratch/waits"
ok "a second mount waits for the pending commit, and says so" eventually \
    grep -q 'waiting for the commit of a mount' "$scratch/mounts"
is "the reader prints nothing before the commit" "$(cat "$scratch/read")" ''
other=
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
	copy_for_others "$OPTIMFS"
	LD_LIBRARY_PATH=$scratch setpriv --reuid=65534 --regid=65534 --clear-groups \
	    "$scratch/optimfs" cat "$ck" $lr >"$scratch/other" 2>"$scratch/other_waits" &
	other=$!
	ok "a reader that is another user waits, too" eventually \
	    grep -q 'waiting for the commit of a mount' "$scratch/other_waits"
	is "another user can open none but one file of the staging directory" \
	    "$(cd "$stage" && for f in lock journal data new mounted; do
		! setpriv --reuid=65534 --regid=65534 --clear-groups cat $f || echo $f
	done 2>/dev/null | grep -v ' ')" mounted
else
	skip 2 "no other user"
fi
give_number "$scratch/next"
kill -CONT "$daemon"
prints "$reader" "$scratch/read" "the reader"
prints "$apart" "$scratch/apart" "the reader in another process namespace" \
    "no process namespaces"
prints "$other" "$scratch/other" "the reader that is another user" "no other user"
wait $mounter
is "the second mount succeeds and shows the committed value" "$? $(cat "$mnt/$lr")" '0 0.25'
ok "a reader does not wait for a live mount" "$OPTIMFS" cat "$ck" $lr
ok "umount after the pending commit succeeds" end

# Another mount at its place, with its device number, does not make it one that was
# removed by force.
fresh && rw
echo 0.25 >"$mnt/$lr"
number=$(mountpoint -d "$mnt")
kill -STOP "$daemon"
detach
if take_number "$number" "$mnt"; then
	kill -CONT "$daemon"
	ok "a daemon commits although another mount has its place and number" \
	    eventually gone "$daemon"
	is "the checkpoint has the value" "$(says $lr)" 0.25
else
	kill -CONT "$daemon"
	skip 2 "no other mount has its number"
fi
give_number "$mnt"

# Whoever may read the file that tells of a mount can lock it for reading.
fresh && rw
kill -KILL "$daemon" && eventually gone "$daemon"
"$OPTIMFS" umount "$mnt"
ok "a reader does not wait for who has locked the file of a dead mount" python3 - \
    "$stage/mounted" timeout "$limit" "$OPTIMFS" cat "$ck" $lr <<'END'
import fcntl, subprocess, sys
f = open(sys.argv[1])
fcntl.lockf(f, fcntl.LOCK_SH)
sys.exit(subprocess.call(sys.argv[2:]))
END

# Only root can look whether such a mount is in use where fusectl is not mounted.
if [ "$(id -u)" = 0 ]; then
	fresh && rw
	exec 7<"$mnt/$lr"
	umount -i -l "$mnt"
	ok "a reader does not wait for a detached mount that is in use" "$OPTIMFS" cat "$ck" $lr
	exec 7<&-
	ok "the daemon ends when the detached mount is not used any more" eventually gone "$daemon"
else
	skip 2 "not root"
fi

# --- disks that are full or read-only ----------------------------------

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
fill() { # KIB: fill the disk except for KIB
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
# Every write, and close, must fail with ENOSPC.
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
is "full disk: write and close fail with ENOSPC" "$(python3 "$scratch/full.py" "$mnt/$big")" \
    'True True'
not_ok "full disk: commit fails after a failed write" commit
is "full disk: the value staged before is kept" "$(cat "$mnt/$lr")" 0.25
ok "full disk: fsck accepts the checkpoint" sound
rm "$scratch/small/ballast"
ok "room again: the failed file can be rewritten" sh -c \
    "'$OPTIMFS' cat '$data/ckpt' $big >'$scratch/big' && cp '$scratch/big' '$mnt/$big'"
fill 4
not_ok "full disk: commit fails for lack of space" commit
like "full disk: the failed commit reports OFS801" "$(cat "$scratch/err")" '*OFS801*'
ok "full disk: fsck accepts the checkpoint after the failed commit" sound
is "full disk: the checkpoint keeps the old value" "$(says $lr)" "$old_lr"
rm "$scratch/small/ballast"
ok "room again: commit succeeds" commit
ok "room again: umount succeeds" end
has_edit 'room again'
is "room again: no staging directory is left" "$(ls -A "$scratch/small")" ck

small
# busy until the daemon of the last mount has closed its files
eventually mount -o remount,ro "$scratch/small" 2>/dev/null
not_ok "read-only disk: mount -o rw fails" rw
like "read-only disk: the message says Read-only file system" \
    "$(cat "$scratch/err")" '*Read-only file system*'
ok "read-only disk: a read-only mount succeeds" "$OPTIMFS" mount "$ck" "$mnt"
end
mount -o remount,rw "$scratch/small"

done_testing
