#!/bin/sh
# mount_ctl.t - mount and umount: usage errors, mount points, signals, dead
# mounts, mount(8)
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

requires mount
o=$OPTIMFS_FAKE
ck=$scratch/ck
mnt=$(point mnt)
mkdir "$ck" "$ck/sub" "$ck/.optimfs"
touch "$ck/.optimfs/waiting"
echo 1.5 >"$ck/lr"
head -c 100000 /dev/zero >"$ck/slow"
head -c 2000000 /dev/zero >"$ck/large"
echo 'slow slow=3600000' >"$ck/.fake"

said() {
	cat "$scratch/out" "$scratch/err"
}
lines() {
	said | wc -l | tr -d ' '
}
mounted() {
	[ -n "$(tap_mounts)" ]
}
not_mounted() {
	! mounted
}
# Has the daemon begun a read that waits?
waits() {
	[ "$(timeout "$limit" cat "$mnt/.optimfs/waiting")" -gt 0 ]
}
# Also true for a zombie.
gone() {
	! grep -q '^State:[^Z]*$' "/proc/$1/status" 2>/dev/null
}

# --- usage ---

status "mount without arguments exits with 2" 2 "$o" mount
is "the message about missing arguments has two lines" "$(lines)" 2
status "mount with three arguments exits with 2" 2 "$o" mount a b c
is "the message about surplus arguments has two lines" "$(lines)" 2
status "mount without a mount point exits with 2" 2 "$o" mount "$ck"
status "mount with an unknown -o option exits with 2" 2 "$o" mount -o cahce=2g "$ck" "$mnt"
like "mount suggests the nearest -o option" \
    "$(said)" "*unknown option 'cahce'; did you mean 'cache'*"
status "mount with an unknown long option exits with 2" 2 "$o" mount --asemble=off "$ck" "$mnt"
like "mount suggests the nearest long option" "$(said)" "*did you mean '--assemble'*"
status "mount with an unknown short option exits with 2" 2 "$o" mount -x "$ck" "$mnt"
status "mount with a malformed size exits with 2" 2 "$o" mount -o cache=2x "$ck" "$mnt"
status "mount with an unknown value of assemble= exits with 2" 2 \
    "$o" mount -o assemble=maybe "$ck" "$mnt"
like "mount lists the values of assemble=" "$(said)" "*off, auto, always*"
status "mount with a value for a flag exits with 2" 2 "$o" mount -o direct=1 "$ck" "$mnt"
status "mount with direct and assemble=always exits with 2" 2 \
    "$o" mount -o direct,assemble=always "$ck" "$mnt"
status "mount with rw and assemble=always exits with 2" 2 \
    "$o" mount -o rw,assemble=always "$ck" "$mnt"
like "mount says that rw and assemble=always exclude each other" "$(said)" "*exclude each other*"
status "mount --help exits with 0" 0 "$o" mount --help
like "mount --help prints the usage to standard output" \
    "$(cat "$scratch/out")" "usage: optimfs mount*"
is "no rejected call has mounted anything" "$(tap_mounts)" ""

try() {
	status "mount takes $1" 0 "$o" mount "$2" "$3" "$ck" "$mnt" &&
	    is "a mount with $1 can be read" "$(cat "$mnt/lr")" 1.5
	"$o" umount "$mnt"
}
try "the generic options of mount(8)" -o \
    ro,nosuid,nodev,noexec,noauto,user,nofail,_netdev,x-systemd.automount,comment=a
try "options with sizes and times" -o cache=64m,assemble_max=1GiB,timeout=5m,readahead=256k
try "long options" --cache=64m --assemble=off
try "long options without =" --no-strict --threads=2
try "-s and a negated flag" -s --no-direct
status "mount takes an option with a separate value and --" 0 "$o" mount --cache 32m -- "$ck" "$mnt"
"$o" umount "$mnt"

# --- mount points and sources ---

status "mount on a missing mount point exits with 3" 3 "$o" mount "$ck" "$scratch/nowhere"
like "OFS758 says that the mount point does not exist" "$(said)" "*OFS758*No such file*"
status "mount on a file exits with 2" 2 "$o" mount "$ck" "$ck/lr"
like "OFS758 says that the mount point is not a directory" "$(said)" "*OFS758*not a directory*"
mkdir "$scratch/full"
touch "$scratch/full/x"
status "mount on a non-empty directory exits with 2" 2 "$o" mount "$ck" "$scratch/full"
like "OFS758 says which argument the mount point is" "$(said)" \
    "*OFS758*not empty; the mount point comes after the checkpoint*"
status "mount -o nonempty on a non-empty directory succeeds" 0 \
    "$o" mount -o nonempty "$ck" "$scratch/full"
"$o" umount "$scratch/full"
status "mount on a parent of the checkpoint exits with 2" 2 "$o" mount -o nonempty "$ck" "$scratch"
like "mount on a parent of the checkpoint reports OFS757" "$(said)" "*OFS757*"
status "mount of a checkpoint on itself exits with 2" 2 "$o" mount -o nonempty "$ck" "$ck"
status "mount of a missing checkpoint exits with 3" 3 "$o" mount "$scratch/nowhere" "$mnt"
like "the message names the missing checkpoint" "$(said)" "optimfs: *nowhere: No such file*"
is "the message about the missing checkpoint has a line, and one that says what to do" \
    "$(said | cut -c 1-9)" "optimfs: 
  to do: "
status "mount of a plain text file exits with 3" 3 "$o" mount "$ck/lr" "$mnt"
status "mount with an unknown type= exits with 4" 4 "$o" mount -o type=hdf5 "$ck" "$mnt"
is "no failed call has mounted anything" "$(tap_mounts)" ""
odd="$scratch/a,b [x\\y
z"
cp -a "$ck" "$odd"
ok "mount of a path with comma, bracket, backslash and newline succeeds" "$o" mount "$odd" "$mnt"
is "a mount of a path with special characters can be read" "$(cat "$mnt/lr")" 1.5
ok "umount of a mount of a path with special characters succeeds" "$o" umount "$mnt"
mkdir "$scratch/m n"
ok "mount on a mount point with a space succeeds" "$o" mount "$ck" "$scratch/m n"
ok "umount of a mount point with a space succeeds" "$o" umount "$scratch/m n"

ok "mount on an empty directory succeeds" "$o" mount "$ck" "$mnt"
status "a second mount on the same mount point exits with 3" 3 "$o" mount "$ck" "$mnt"
like "the message says that a checkpoint is mounted there" "$(said)" "*is mounted there*"
status "a second mount through another path to the mount point exits with 3" 3 \
    "$o" mount "$ck" "$mnt/../mnt"

# --- unmounting ---

(
	cd "$mnt/sub" || exit
	exec sleep 3600
) &
holder=$!
is_in() { # PROCESS DIRECTORY
	[ "$(readlink "/proc/$1/cwd")" = "$2" ]
}
eventually is_in $holder "$mnt/sub"
status "umount of a mount in use exits with 3" 3 "$o" umount "$mnt"
like "umount says how to find what uses the mount" "$(said)" "*in use: fuser -vm $mnt *"
ok "umount --force of a mount in use succeeds" "$o" umount --force "$mnt"
is "umount --force removes the mount" "$(tap_mounts)" ""
kill $holder
wait $holder 2>/dev/null
if ! sanitized; then # a sanitizer does not want to be preloaded after faultlib.so
	"$o" mount "$ck" "$mnt"
	ok "umount waits for a process that uses the mount for a moment" env \
	    LD_PRELOAD="$TOP_BUILDDIR/.libs/faultlib.so" FAULT_PATH="$mnt" \
	    FAULT_HOW=4 FAULT_CODE=16 "$o" umount "$mnt" # FAULT_ERROR, EBUSY
fi
status "umount of an unmounted directory exits with 3" 3 "$o" umount "$mnt"
status "umount of another file system exits with 2" 2 "$o" umount /proc
like "umount says that it is not a checkpoint" "$(said)" "*not a checkpoint*"
status "umount without arguments exits with 2" 2 "$o" umount
if command -v fusermount3 >/dev/null; then
	"$o" mount "$ck" "$mnt"
	ok "fusermount3 -u unmounts a checkpoint" fusermount3 -u "$mnt"
else
	skip 1 "no fusermount3"
fi
if [ "$(id -u)" = 0 ]; then
	"$o" mount "$ck" "$mnt"
	ok "umount(8) unmounts a checkpoint" umount "$mnt"
else
	skip 1 "not root"
fi

# A read that takes an hour, when the mount is removed by force.
"$o" mount "$ck" "$mnt"
cat "$mnt/slow" >/dev/null 2>&1 &
reader=$!
eventually waits
ok "umount --force succeeds while a read is waiting" "$o" umount --force "$mnt"
ok "the waiting reader ends after umount --force" eventually gone $reader
is "no mount is left after umount --force" "$(tap_mounts)" ""

# --- signals ---

foreground() {
	"$o" mount -f "$@" "$ck" "$mnt" 2>"$scratch/daemon" &
	daemon=$!
	eventually mountpoint -q "$mnt"
}
for sig in INT TERM HUP; do
	# A shell starts background jobs with SIGINT ignored; the daemon must
	# handle it all the same.
	foreground
	kill -$sig $daemon
	wait $daemon
	is "a mount in the foreground exits with 0 on SIG$sig" $? 0
	is "SIG$sig removes the mount" "$(tap_mounts)" ""
	is "a mount in the foreground prints nothing on SIG$sig" "$(cat "$scratch/daemon")" ""
done
foreground -s
kill $daemon
wait $daemon
is "a single-threaded mount exits with 0 on SIGTERM" $? 0

foreground
exec 9<"$mnt/lr"
kill $daemon
wait $daemon
is "a mount with an open file exits with 0 on SIGTERM" $? 0
is "SIGTERM removes a mount with an open file" "$(tap_mounts)" ""
exec 9<&-

# Two signals that are pending are one.
took_signal() {
	grep -q '^ShdPnd:.0*$' "/proc/$daemon/status"
}
foreground
cat "$mnt/slow" >/dev/null 2>&1 &
reader=$!
eventually waits
kill $daemon
eventually took_signal
kill $daemon
wait $daemon
is "a second SIGTERM ends a mount with waiting reads at once" $? 143
ok "the waiting reader ends after the second SIGTERM" eventually gone $reader
is "no mount is left after the second SIGTERM" "$(tap_mounts)" ""

foreground
cat "$mnt/slow" >/dev/null 2>&1 &
reader=$!
eventually waits
kill $daemon
ok "the waiting reader ends after one SIGTERM" eventually gone $reader
wait $daemon
is "a mount with a waiting reader exits with 0 on SIGTERM" $? 0
is "no mount is left after SIGTERM with a waiting reader" "$(tap_mounts)" ""

if ! sanitized; then # FAULT_HOW=8: it waits before it makes the file
	env LD_PRELOAD="$TOP_BUILDDIR/.libs/faultlib.so" FAULT_PATH="$scratch/late" \
	    FAULT_HOW=8 FAULT_GATE="$scratch/gate" FAULT_TRACE="$scratch/trace" \
	    "$o" mount -f -q --ready-file "$scratch/late" "$ck" "$mnt" &
	daemon=$!
	eventually grep -q "$scratch/late" "$scratch/trace"
	kill $daemon
	eventually not_mounted
	: >"$scratch/gate"
	wait $daemon
	is "a mount that ends before its ready file is there exits with 0" $? 0
	is "and leaves none" "$(ls "$scratch" | grep late)" ""
fi

# --- dead mounts ---

foreground
kill -KILL $daemon
wait $daemon 2>/dev/null
not_ok "ls of a mount whose daemon was killed fails" ls "$mnt"
ok "mount on a dead mount succeeds" "$o" mount "$ck" "$mnt"
like "mount says that it detached the dead mount" "$(said)" "*detached a dead mount*"
is "the mount in place of a dead one can be read" "$(cat "$mnt/lr")" 1.5
ok "umount after the dead mount succeeds" "$o" umount "$mnt"
foreground
kill -KILL $daemon
wait $daemon 2>/dev/null
ok "umount of a dead mount succeeds" "$o" umount "$mnt"
is "no mount is left after umount of a dead mount" "$(tap_mounts)" ""

# --- the daemon's environment ---

closed() {
	"$o" mount "$ck" "$mnt" <&- >&- 2>&-
}
ok "mount succeeds with standard descriptors closed" closed
is "a mount made with closed descriptors can be read" "$(cat "$mnt/lr")" 1.5
"$o" umount "$mnt"
ok "the daemon does not keep the standard output of mount open" timeout "$limit" sh -c \
    "'$o' mount '$ck' '$mnt' | cat"
daemon=$(pgrep -n -f "[m]ount $ck $mnt")
is "the working directory of the daemon is /" "$(readlink "/proc/$daemon/cwd")" /
is "the daemon has its own session" "$(ps -o sid= -p "$daemon" | tr -d ' ')" "$daemon"
"$o" umount "$mnt"
ok "the daemon ends after umount" eventually gone "$daemon"

(cd "$scratch" && "$o" mount -o log=log "$ck" "$mnt")
cat "$mnt/slow" >/dev/null 2>&1 &
eventually waits
kill "$(pgrep -n -f "[m]ount -o log=log $ck $mnt")"
ok "log= has the message about requests in flight" \
    eventually grep -q "requests are still in flight" "$scratch/log"
ok "SIGTERM removes the mount with log=" eventually not_mounted

# A /dev/fuse descriptor that another process has opened and mounted, as a
# container runtime does.
if [ "$(id -u)" = 0 ] && command -v python3 >/dev/null; then
	cat >"$scratch/fd.py" <<'END'
import ctypes, os, subprocess, sys, time
o, ck, mnt = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
fd = os.open("/dev/fuse", os.O_RDWR)
os.set_inheritable(fd, True)
opts = f"fd={fd},rootmode=40000,user_id=0,group_id=0".encode()
if libc.mount(b"ck", mnt.encode(), b"fuse.optimfs", 1 | 2 | 4, opts) != 0:
    sys.exit("mount: " + os.strerror(ctypes.get_errno()))
p = subprocess.Popen([o, "mount", "-f", ck, f"/dev/fd/{fd}"], pass_fds=[fd])
os.close(fd)
print(open(mnt + "/lr").read().strip())
libc.umount2(mnt.encode(), 0)
sys.exit(p.wait())
END
	ok "mount on /dev/fd/N serves an existing FUSE mount" \
	    python3 "$scratch/fd.py" "$o" "$ck" "$mnt"
	is "a mount on /dev/fd/N can be read" "$(cat "$scratch/out")" 1.5
	sed -e 's#, ck, f"/dev/fd/{fd}"\]#, "--ready-file", mnt + ".ready", "--fd", str(fd), ck]#' \
	    -e 's#^print#while p.poll() is None and not os.path.exists(mnt + ".ready"): time.sleep(.01)\nassert int(open(mnt + ".ready").read()) == p.pid\nprint#' \
	    -e 's#^libc.umount2.*#p.terminate()#' \
	    -e 's#^sys.exit(p#assert p.wait() == 0 and not os.path.exists(mnt + ".ready")\nlibc.umount2(mnt.encode(), 2)\nsys.exit(p#' \
	    "$scratch/fd.py" >"$scratch/ready.py"
	ok "mount --fd is ready when its file is there, and ends cleanly after SIGTERM" \
	    python3 "$scratch/ready.py" "$o" "$ck" "$mnt"
	is "it can be read" "$(cat "$scratch/out")" 1.5
	status "mount --fd of what is no device exits with 2" 2 "$o" mount --fd 0 "$ck" </etc/passwd
	like "and says so" "$(said)" "*--fd 0: not the number of a descriptor of /dev/fuse*"
	ok "mount --ready-file in the background" "$o" mount --ready-file "$scratch/ready" "$ck" "$mnt"
	ok "the file is there when it returns" test -s "$scratch/ready"
	"$o" umount "$mnt"
	ok "and is gone after the unmount" eventually test ! -e "$scratch/ready"
else
	skip 9 "not root"
fi

# --- permissions ---

if [ "$(id -u)" = 0 ] && [ "$(stat -c %a /dev/fuse)" = 600 ] &&
    command -v setpriv >/dev/null; then
	copy_for_others "$o"
	chmod 777 "$mnt"
	LD_LIBRARY_PATH=$scratch \
	    status "mount without permission for /dev/fuse exits with 3" 3 setpriv --reuid=65534 \
	    --clear-groups "$scratch/optimfs" mount "$ck" "$mnt"
	like "OFS761 names the commands that need no FUSE" "$(said)" "*OFS761*optimfs ls, cat, cp*"
else
	skip 2 "/dev/fuse is for everybody, or we are nobody"
fi

# --- mount(8) ---

helper=$scratch/mount.optimfs
ln -s "$o" "$helper"
# A libtool wrapper script depends on its own name: link the real program.
if [ -x "$(dirname "$o")/.libs/$(basename "$o")" ]; then
	ln -sf "$(dirname "$o")/.libs/$(basename "$o")" "$helper"
fi
status "mount.optimfs -f (dry run) exits with 0" 0 "$helper" "$ck" "$mnt" -f -v -o ro
like "mount.optimfs -f -v says that the checkpoint can be mounted" "$(said)" "*can be mounted*"
is "mount.optimfs -f mounts nothing" "$(tap_mounts)" ""
status "mount.optimfs with generic options exits with 0" 0 \
    "$helper" "$ck" "$mnt" -n -o ro,noauto,dev,suid
is "mount.optimfs mounts in the background" "$(cat "$mnt/lr")" 1.5
"$o" umount "$mnt"
status "mount.optimfs without a mount point exits with 1" 1 "$helper" "$ck"
status "mount.optimfs with an unknown option exits with 1" 1 "$helper" "$ck" "$mnt" -o bogus
status "mount.optimfs -s ignores an unknown option" 0 "$helper" "$ck" "$mnt" -s -o bogus
"$o" umount "$mnt"
status "mount.optimfs of a missing checkpoint exits with 32" 32 \
    "$helper" "$scratch/nowhere" "$mnt" -o ro
status "mount.optimfs -o rw exits with 0" 0 "$helper" "$ck" "$mnt" -o rw
like "mount.optimfs -o rw alone mounts read-only: mount(8) adds rw by itself" \
    "$(grep " $mnt " /proc/self/mounts)" "* ro,*"
"$o" umount "$mnt"
status "mount.optimfs -o rw,commit=auto exits with 0" 0 "$helper" "$ck" "$mnt" -o rw,commit=auto
like "mount.optimfs -o rw,commit=auto mounts read-write" \
    "$(grep " $mnt " /proc/self/mounts)" "* rw,*"
"$o" umount "$mnt"
status "optimfs without a verb mounts, as mount.fuse calls it" 0 \
    "$o" "$ck" "$mnt" -o ro,_netdev,dev,suid
is "a mount made without a verb can be read" "$(cat "$mnt/lr")" 1.5
"$o" umount "$mnt"

# mount(8) itself looks for helpers in /sbin. Ours is overlaid there in a
# private mount namespace.
mkdir "$scratch/sbin"
cp -L "$helper" "$scratch/sbin/mount.optimfs"
if command -v unshare >/dev/null && unshare -m sh -c \
    "mount -t overlay o -o lowerdir='$scratch/sbin':/sbin /sbin" 2>/dev/null; then
	LD_LIBRARY_PATH=$TOP_BUILDDIR/.libs
	export LD_LIBRARY_PATH
	ok "mount -t optimfs and an fstab entry mount, and reject an unknown option" \
	    unshare -m sh -ec "
		mount -t overlay o -o lowerdir='$scratch/sbin':/sbin /sbin
		mount -t optimfs -o ro,noauto,user '$ck' '$mnt'
		cat '$mnt/lr'
		echo '$ck $mnt optimfs ro,noauto,user,_netdev 0 0' >'$scratch/fstab'
		umount '$mnt'
		mount -f -T '$scratch/fstab' '$mnt'
		mount -T '$scratch/fstab' '$mnt'
		cat '$mnt/lr'
		umount '$mnt'
		! mount -t optimfs -o bogus '$ck' '$mnt'"
	is "mounts by mount(8) can be read" "$(tr '\n' ' ' <"$scratch/out")" "1.5 1.5 "
else
	skip 2 "cannot lay a file system over /sbin"
fi

done_testing
