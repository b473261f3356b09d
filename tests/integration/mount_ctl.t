#!/bin/sh
# mount_ctl.t - mounting and unmounting: words, mistakes, signals, leftovers
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

requires mount
o=$OPTIMFS_FAKE
ck=$scratch/ck
mnt=$(point mnt)
mkdir "$ck" "$ck/sub"
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
# A process that ended, also where nobody has waited for it.
gone() {
	! grep -q '^State:[^Z]*$' "/proc/$1/status" 2>/dev/null
}

# --- words -------------------------------------------------------------

status "no arguments" 2 "$o" mount
is "two lines" "$(lines)" 2
status "three arguments" 2 "$o" mount a b c
is "two lines again" "$(lines)" 2
status "one argument" 2 "$o" mount "$ck"
status "unknown option" 2 "$o" mount -o cahce=2g "$ck" "$mnt"
like "the nearest one" "$(said)" "*unknown option 'cahce'; did you mean 'cache'*"
status "unknown long option" 2 "$o" mount --asemble=off "$ck" "$mnt"
like "the nearest one again" "$(said)" "*did you mean '--assemble'*"
status "unknown letter" 2 "$o" mount -x "$ck" "$mnt"
status "a size that is none" 2 "$o" mount -o cache=2x "$ck" "$mnt"
status "a choice that is none" 2 "$o" mount -o assemble=maybe "$ck" "$mnt"
like "the choices" "$(said)" "*off, auto, always*"
status "a flag with a value" 2 "$o" mount -o direct=1 "$ck" "$mnt"
status "a contradiction" 2 "$o" mount -o direct,assemble=always "$ck" "$mnt"
status "rw holds no files in memory" 2 "$o" mount -o rw,assemble=always "$ck" "$mnt"
like "and says so" "$(said)" "*exclude each other*"
status "help" 0 "$o" mount --help
like "on standard output" "$(cat "$scratch/out")" "usage: optimfs mount*"
is "nothing was mounted" "$(tap_mounts)" ""

try() {
	status "$1" 0 "$o" mount "$2" "$3" "$ck" "$mnt" &&
	    is "... works" "$(cat "$mnt/lr")" 1.5
	"$o" umount "$mnt"
}
try "mount(8)'s words" -o \
    ro,nosuid,nodev,noexec,noauto,user,nofail,_netdev,x-systemd.automount,comment=a
try "sizes and times" -o cache=64m,assemble_max=1GiB,timeout=5m,readahead=256k
try "long options" --cache=64m --assemble=off
try "long options without =" --no-strict --threads=2
try "threads" -s --no-direct
status "defaults" 0 "$o" mount --cache 32m -- "$ck" "$mnt"
"$o" umount "$mnt"

# --- places ------------------------------------------------------------

status "no such mount point" 3 "$o" mount "$ck" "$scratch/nowhere"
like "OFS758" "$(said)" "*OFS758*No such file*"
status "a file as mount point" 2 "$o" mount "$ck" "$ck/lr"
like "OFS758 again" "$(said)" "*OFS758*not a directory*"
mkdir "$scratch/full"
touch "$scratch/full/x"
status "a mount point that is not empty" 2 "$o" mount "$ck" "$scratch/full"
status "nonempty" 0 "$o" mount -o nonempty "$ck" "$scratch/full"
"$o" umount "$scratch/full"
status "source in the mount point" 2 "$o" mount -o nonempty "$ck" "$scratch"
like "OFS757" "$(said)" "*OFS757*"
status "source is the mount point" 2 "$o" mount -o nonempty "$ck" "$ck"
status "no such checkpoint" 3 "$o" mount "$scratch/nowhere" "$mnt"
like "in words" "$(said)" "optimfs: *nowhere: No such file*"
is "in one line" "$(lines)" 1
status "not a checkpoint" 3 "$o" mount "$ck/lr" "$mnt"
status "a format there is not" 4 "$o" mount -o type=hdf5 "$ck" "$mnt"
is "nothing is mounted" "$(tap_mounts)" ""
odd="$scratch/a,b [x\\y
z"
cp -a "$ck" "$odd"
ok "a name with everything in it" "$o" mount "$odd" "$mnt"
is "... works" "$(cat "$mnt/lr")" 1.5
ok "... umount" "$o" umount "$mnt"
mkdir "$scratch/m n"
ok "a mount point with a space" "$o" mount "$ck" "$scratch/m n"
ok "... umount" "$o" umount "$scratch/m n"

ok "mount" "$o" mount "$ck" "$mnt"
status "mount twice" 3 "$o" mount "$ck" "$mnt"
like "says why" "$(said)" "*is mounted there*"
status "... on a path with links" 3 "$o" mount "$ck" "$mnt/../mnt"

# --- unmounting --------------------------------------------------------

(
	cd "$mnt/sub" || exit
	exec sleep 3600
) &
holder=$!
daemons="$daemons $holder"
is_in() { # PROCESS DIRECTORY
	[ "$(readlink "/proc/$1/cwd")" = "$2" ]
}
eventually is_in $holder "$mnt/sub"
status "umount of a mount in use" 3 "$o" umount "$mnt"
like "names the holder" "$(said)" "*in use by sleep ($holder)*"
ok "umount --force" "$o" umount --force "$mnt"
is "is unmounted" "$(tap_mounts)" ""
kill $holder
wait $holder 2>/dev/null
status "umount of nothing" 3 "$o" umount "$mnt"
status "umount of another file system" 2 "$o" umount /proc
like "is not for us" "$(said)" "*not a checkpoint*"
status "umount without arguments" 2 "$o" umount
if command -v fusermount3 >/dev/null; then
	"$o" mount "$ck" "$mnt"
	ok "fusermount3 -u" fusermount3 -u "$mnt"
else
	skip 1 "no fusermount3"
fi
if [ "$(id -u)" = 0 ]; then
	"$o" mount "$ck" "$mnt"
	ok "umount(8)" umount "$mnt"
else
	skip 1 "not root"
fi

# A reader that waits an hour, while the mount is taken away.
"$o" mount "$ck" "$mnt"
cat "$mnt/slow" >/dev/null 2>&1 &
reader=$!
sleep 0.3
ok "umount --force under a read" "$o" umount --force "$mnt"
ok "the reader has an error" eventually gone $reader
is "nothing is mounted" "$(tap_mounts)" ""

# --- signals -----------------------------------------------------------

foreground() {
	"$o" mount -f "$@" "$ck" "$mnt" 2>"$scratch/daemon" &
	daemon=$!
	daemons="$daemons $daemon"
	eventually mountpoint -q "$mnt"
}
for sig in INT TERM HUP; do
	# a shell starts its background jobs with SIGINT ignored
	foreground
	kill -$sig $daemon
	wait $daemon
	is "SIG$sig: exit status" $? 0
	is "SIG$sig: nothing is mounted" "$(tap_mounts)" ""
	is "SIG$sig: nothing is said" "$(cat "$scratch/daemon")" ""
done
foreground -s
kill $daemon
wait $daemon
is "SIGTERM with a single thread" $? 0

foreground
exec 9<"$mnt/lr"
kill $daemon
wait $daemon
is "SIGTERM with an open file" $? 0
is "nothing is mounted" "$(tap_mounts)" ""
exec 9<&-

foreground
cat "$mnt/slow" >/dev/null 2>&1 &
reader=$!
sleep 0.3
kill $daemon
sleep 0.2
kill $daemon
wait $daemon
is "a second SIGTERM: at once" $? 143
ok "the reader has an error" eventually gone $reader
is "nothing is mounted" "$(tap_mounts)" ""

foreground
cat "$mnt/slow" >/dev/null 2>&1 &
reader=$!
sleep 0.3
kill $daemon
ok "SIGTERM under a read: the reader has an error" eventually gone $reader
wait $daemon
is "the daemon ends in time" $? 0
is "nothing is mounted" "$(tap_mounts)" ""

# --- leftovers ---------------------------------------------------------

foreground
kill -KILL $daemon
wait $daemon 2>/dev/null
not_ok "a dead mount" ls "$mnt"
ok "is detached by the next" "$o" mount "$ck" "$mnt"
like "which says so" "$(said)" "*detached a dead mount*"
is "... works" "$(cat "$mnt/lr")" 1.5
ok "umount" "$o" umount "$mnt"
foreground
kill -KILL $daemon
wait $daemon 2>/dev/null
ok "umount of a dead mount" "$o" umount "$mnt"
is "nothing is mounted" "$(tap_mounts)" ""

# --- descriptors -------------------------------------------------------

closed() {
	"$o" mount "$ck" "$mnt" <&- >&- 2>&-
}
ok "standard descriptors closed" closed
is "... works" "$(cat "$mnt/lr")" 1.5
"$o" umount "$mnt"
ok "the daemon keeps no pipe open" timeout "$limit" sh -c \
    "'$o' mount '$ck' '$mnt' | cat"
daemon=$(pgrep -n -f "[m]ount $ck $mnt")
is "it is in no directory" "$(readlink "/proc/$daemon/cwd")" /
is "its session is its own" "$(ps -o sid= -p "$daemon" | tr -d ' ')" "$daemon"
"$o" umount "$mnt"
ok "and it ends" eventually gone "$daemon"

(cd "$scratch" && "$o" mount -o log=log "$ck" "$mnt")
cat "$mnt/slow" >/dev/null 2>&1 &
sleep 0.3
kill "$(pgrep -n -f "[m]ount -o log=log $ck $mnt")"
ok "a log file" eventually grep -q "requests are still in flight" "$scratch/log"
ok "... unmounted" eventually not_mounted

# A device that somebody else has opened and mounted, as for a container.
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
sys.exit(p.wait(10))
END
	ok "/dev/fd/N" python3 "$scratch/fd.py" "$o" "$ck" "$mnt"
	is "... works" "$(cat "$scratch/out")" 1.5
else
	skip 2 "not root"
fi

# --- rights ------------------------------------------------------------

if [ "$(id -u)" = 0 ] && [ "$(stat -c %a /dev/fuse)" = 600 ] &&
    command -v setpriv >/dev/null; then
	cp -L "$o" "$scratch/optimfs"
	[ -x "$(dirname "$o")/.libs/$(basename "$o")" ] &&
	    cp -L "$(dirname "$o")/.libs/$(basename "$o")" "$scratch/optimfs"
	chmod 755 "$scratch" "$scratch/optimfs"
	chmod 777 "$mnt"
	LD_LIBRARY_PATH=$TOP_BUILDDIR/.libs \
	    status "no right to use /dev/fuse" 3 setpriv --reuid=65534 \
	    --clear-groups "$scratch/optimfs" mount "$ck" "$mnt"
	like "says what works without" "$(said)" "*OFS761*optimfs ls, cat, cp*"
else
	skip 2 "/dev/fuse is for everybody, or we are nobody"
fi

# --- mount(8) ----------------------------------------------------------

helper=$scratch/mount.optimfs
ln -s "$o" "$helper"
# libtool's wrapper goes by its own name
if [ -x "$(dirname "$o")/.libs/$(basename "$o")" ]; then
	ln -sf "$(dirname "$o")/.libs/$(basename "$o")" "$helper"
fi
status "helper: fake" 0 "$helper" "$ck" "$mnt" -f -v -o ro
like "helper: says" "$(said)" "*can be mounted*"
is "helper: fake does not mount" "$(tap_mounts)" ""
status "helper: mount" 0 "$helper" "$ck" "$mnt" -n -o ro,noauto,dev,suid
is "helper: in the background" "$(cat "$mnt/lr")" 1.5
"$o" umount "$mnt"
status "helper: usage" 1 "$helper" "$ck"
status "helper: unknown option" 1 "$helper" "$ck" "$mnt" -o bogus
status "helper: sloppy" 0 "$helper" "$ck" "$mnt" -s -o bogus
"$o" umount "$mnt"
status "helper: failed" 32 "$helper" "$scratch/nowhere" "$mnt" -o ro
status "helper: rw" 0 "$helper" "$ck" "$mnt" -o rw
like "helper: which mount(8) says unasked" "$(grep " $mnt " /proc/self/mounts)" "* ro,*"
"$o" umount "$mnt"
status "helper: rw that is meant" 0 "$helper" "$ck" "$mnt" -o rw,commit=auto
like "helper: is" "$(grep " $mnt " /proc/self/mounts)" "* rw,*"
"$o" umount "$mnt"
status "fuse.optimfs" 0 "$o" "$ck" "$mnt" -o ro,_netdev,dev,suid
is "fuse.optimfs: works" "$(cat "$mnt/lr")" 1.5
"$o" umount "$mnt"

# mount(8) itself, which looks for helpers in /sbin: ours is laid over it where
# nobody else sees that.
mkdir "$scratch/sbin"
cp -L "$helper" "$scratch/sbin/mount.optimfs"
if command -v unshare >/dev/null && unshare -m sh -c \
    "mount -t overlay o -o lowerdir='$scratch/sbin':/sbin /sbin" 2>/dev/null; then
	LD_LIBRARY_PATH=$TOP_BUILDDIR/.libs
	export LD_LIBRARY_PATH
	ok "mount -t optimfs" unshare -m sh -ec "
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
	is "... works" "$(tr '\n' ' ' <"$scratch/out")" "1.5 1.5 "
else
	skip 2 "cannot lay a file system over /sbin"
fi

done_testing
