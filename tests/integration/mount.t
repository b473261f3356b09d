#!/bin/sh
# mount.t - standard programs (cp, tar, rsync, mmap, ...) on a read-only mount
# SPDX-License-Identifier: Apache-2.0
#
# Uses the fake library, so a failure here is a fault of the FUSE daemon.
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

requires mount
o=$OPTIMFS_FAKE
ck=$scratch/ck
mnt=$(point mnt)

# One file for each way of reading: tiny, assembled in memory, on demand.
mkdir -p "$ck/optim/state/w" "$ck/model" "$ck/empty" "$ck/.optimfs"
touch "$ck/.optimfs/stats" "$ck/.optimfs/errors" "$ck/.optimfs/info.json"
echo 0.001 >"$ck/optim/lr"
: >"$ck/model/none"
head -c 4096 /dev/urandom >"$ck/model/page"
head -c 16384 /dev/urandom >"$ck/model/smallest"
head -c 1000001 /dev/urandom >"$ck/optim/state/w/exp_avg"
head -c 5000003 /dev/urandom >"$ck/model/five"
head -c 20000007 /dev/urandom >"$ck/model/twenty"
seq 1 30000 >"$ck/model/inexact"
seq 1 3000 >"$ck/model/inexact_small"
touch "$ck/model/with space" "$ck/model/zz"
printf '%s\n' 'model/inexact inexact' 'model/inexact_small inexact' >"$ck/.fake"
find "$ck" -exec touch -d '2024-02-03 04:05:06.789' {} +

# Expected tree: the checkpoint without the files that only the fake reads.
cp -a "$ck" "$scratch/want"
rm -r "$scratch/want/.fake" "$scratch/want/.optimfs"
want=$scratch/want

mount_it() {
	"$o" mount "$@" "$ck" "$mnt"
}
umount_it() {
	"$o" umount "$mnt"
}
stat_of() {
	sed -n "s/^$1 //p" "$mnt/.optimfs/stats"
}

same_tree() {
	diff -r "$1" "$2"
}
all_sums() {
	(cd "$1" && find . -type f ! -path './.optimfs*' -exec sha256sum {} + |
	    sort -k 2)
}

ok "mount exits with 0" mount_it
is "mount prints nothing when standard error is no terminal" \
    "$(cat "$scratch/out" "$scratch/err")" ""
like "mountinfo names type fuse.optimfs and the source" \
    "$(awk -v m="$mnt" '$5 == m { print $(NF - 2), $(NF - 1) }' \
	/proc/self/mountinfo)" "fuse.optimfs $ck"
is "ls -U lists a directory in sorted order" "$(ls -U "$mnt/model" | tr '\n' ' ')" \
    "$(ls "$want/model" | tr '\n' ' ')"
is "ls -A of the root does not list .optimfs" "$(ls -A "$mnt" | tr '\n' ' ')" \
    "empty model optim "
is "cat of a scalar prints its text" "$(cat "$mnt/optim/lr")" 0.001
ok "ls -lR of the mount succeeds" ls -lR "$mnt"
is "ls -lR reads no data: only the 6 bytes of lr were read" "$(stat_of fuse_read_bytes)" 6
ok "diff -r finds no difference between the source and the mount" same_tree "$want" "$mnt"
is "sha256sum of every file agrees" "$(all_sums "$mnt")" "$(all_sums "$want")"
is "find reports the right size for every file" \
    "$(cd "$mnt" && find . -type f -printf '%s %p\n' | sort)" \
    "$(cd "$want" && find . -type f -printf '%s %p\n' | sort)"
is "stat shows the time of the source file" \
    "$(stat -c %y "$mnt/model/five")" "$(stat -c %y "$want/model/five")"
is "ls -i and stat report the same inode numbers" "$(ls -i "$mnt/model" | awk '{ print $1 }')" \
    "$(cd "$mnt/model" && stat -c %i * | cat)"

cp -a "$mnt/." "$scratch/cp"
ok "cp -a copies the whole tree" same_tree "$want" "$scratch/cp"
(cd "$mnt" && tar cf - .) | (mkdir "$scratch/tar" && tar xf - -C "$scratch/tar")
ok "tar archives the whole tree" same_tree "$want" "$scratch/tar"
if command -v rsync >/dev/null; then
	rsync -a "$mnt/" "$scratch/rsync"
	ok "rsync -a copies the whole tree" same_tree "$want" "$scratch/rsync"
else
	skip 1 "no rsync"
fi
is "wc -c counts the right size for every file" "$(cd "$mnt/model" && wc -c * | cat)" \
    "$(cd "$want/model" && wc -c * | cat)"
ok "dd with 3 MB blocks succeeds" dd if="$mnt/model/twenty" of="$scratch/dd" bs=3M
ok "dd with 3 MB blocks reads the whole file" cmp "$scratch/dd" "$want/model/twenty"
dd if="$mnt/model/twenty" of="$scratch/part" bs=1 skip=12345678 count=1000 \
    2>/dev/null
dd if="$want/model/twenty" of="$scratch/part2" bs=1 skip=12345678 count=1000 \
    2>/dev/null
ok "dd reads a range in the middle of a file" cmp "$scratch/part" "$scratch/part2"
ok "du of the mount succeeds" du -s "$mnt"
ok "df of the mount succeeds" df "$mnt"

# A file is read on demand when first opened, and assembled when opened again.
for i in 1 2 3; do
	ok "open $i of a large file reads the right bytes" \
	    cmp "$mnt/model/twenty" "$want/model/twenty"
done

if command -v python3 >/dev/null; then
	cat >"$scratch/py" <<'END'
import mmap, os, sys
mnt, want = sys.argv[1:]
for name in ("smallest", "five", "twenty", "inexact", "page"):
    a, b = f"{mnt}/model/{name}", f"{want}/model/{name}"
    data = open(b, "rb").read()
    with open(a, "rb") as f:
        assert f.read() == data, name
        assert f.seek(0, 2) == len(data), name
    fd = os.open(a, os.O_RDONLY)
    size = os.fstat(fd).st_size
    assert size == len(data), (name, size)
    for flags in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
        with mmap.mmap(fd, size, flags, mmap.PROT_READ) as m:
            assert m[:] == data, (name, flags)
    assert os.lseek(fd, 0, os.SEEK_DATA) == 0
    assert os.lseek(fd, 0, os.SEEK_HOLE) == size, name
    assert os.lseek(fd, size // 2, os.SEEK_DATA) == size // 2
    try:
        os.lseek(fd, size, os.SEEK_DATA)
        raise AssertionError("data behind the end")
    except OSError as e:
        assert e.errno == 6, e
    assert os.pread(fd, 100, size) == b""
    assert os.pread(fd, 100, size - 10) == data[-10:]
    os.close(fd)
END
	# Not with ls(1): after one ENOTSUP it does not ask again.
	is "getxattr of unknown names fails: ENODATA for user., else ENOTSUP" \
	    "$(python3 -c 'import errno, os, sys
for name in sys.argv[2:]:
    try:
        os.getxattr(sys.argv[1], name)
    except OSError as e:
        print(errno.errorcode[e.errno])' "$mnt" user.other security.selinux \
	    system.posix_acl_access | xargs)" "ENODATA ENOTSUP ENOTSUP"
	ok "Python read, mmap, SEEK_HOLE and pread agree with the source" \
	    python3 "$scratch/py" "$mnt" "$want"
	umount_it
	mount_it -o direct
	ok "Python reads agree with the source with -o direct" python3 "$scratch/py" "$mnt" "$want"
	umount_it
	mount_it -o assemble=off
	ok "Python reads agree with the source with -o assemble=off" \
	    python3 "$scratch/py" "$mnt" "$want"
	umount_it
	mount_it
else
	skip 3 "no python3"
fi

if command -v getfattr >/dev/null; then
	is "user.optimfs.fqn of a scalar is its qualified name" \
	    "$(getfattr --absolute-names --only-values -n user.optimfs.fqn \
		"$mnt/optim/lr")" optim/lr
	like "getfattr lists user.optimfs.fqn" \
	    "$(getfattr "$mnt/optim/lr" 2>&1)" "*user.optimfs.fqn*"
	status "getfattr of an unknown user attribute fails" 1 \
	    getfattr -n user.other "$mnt/optim/lr"
else
	skip 3 "no getfattr"
fi

# Until the file is opened, its size is only an upper bound. Each program below
# is the first to open the file in a fresh mount.
umount_it
fresh() {
	name=$1
	shift
	rm -rf "$scratch/first"
	mkdir "$scratch/first"
	mount_it
	(cd "$mnt/model" && "$@")
	umount_it
	ok "$name as the first reader copies all bytes of a large inexact file" \
	    cmp "$scratch/first/inexact" \
	    "$want/model/inexact"
	ok "$name as the first reader copies all bytes of a small inexact file" \
	    cmp "$scratch/first/inexact_small" \
	    "$want/model/inexact_small"
}
both="inexact inexact_small"
fresh cp cp $both "$scratch/first"
fresh "cp -a" cp -a . "$scratch/first"
fresh tar sh -c "tar cf - $both | tar xf - -C '$scratch/first'"
fresh cat sh -c "for f in $both; do cat \$f >'$scratch/first/'\$f; done"
fresh dd sh -c "for f in $both; do dd if=\$f of='$scratch/first/'\$f bs=512 \
    2>/dev/null; done"
command -v rsync >/dev/null && fresh rsync rsync -a ./ "$scratch/first"
command -v python3 >/dev/null && fresh python python3 -c "import shutil
for f in '$both'.split(): shutil.copyfile(f, '$scratch/first/' + f)"
mount_it
for f in $both; do
	is "wc -c counts the real size of $f" "$(wc -c <"$mnt/model/$f")" \
	    "$(wc -c <"$want/model/$f")"
done
umount_it
mount_it
is "stat of an unopened inexact file shows the upper bound" \
    "$(stat -c %s "$mnt/model/inexact_small")" \
    "$(($(stat -c %s "$want/model/inexact_small") * 2))"

refused() {
	"$@" 2>"$scratch/why" && return 1
	grep -q 'Read-only file system' "$scratch/why"
}
ok "write to a read-only mount fails with EROFS" refused sh -c "echo 1 >'$mnt/optim/lr'"
ok "creating a file on a read-only mount fails with EROFS" refused touch "$mnt/new"
ok "mkdir on a read-only mount fails with EROFS" refused mkdir "$mnt/new"
ok "rm on a read-only mount fails with EROFS" refused rm -f "$mnt/optim/lr"
ok "rmdir on a read-only mount fails with EROFS" refused rmdir "$mnt/empty"
ok "mv on a read-only mount fails with EROFS" refused mv "$mnt/optim/lr" "$mnt/lr"
ok "ln on a read-only mount fails with EROFS" refused ln "$mnt/optim/lr" "$mnt/lr"
ok "ln -s on a read-only mount fails with EROFS" refused ln -s lr "$mnt/lr"
ok "chmod on a read-only mount fails with EROFS" refused chmod 600 "$mnt/optim/lr"
ok "truncate on a read-only mount fails with EROFS" refused truncate -s 0 "$mnt/optim/lr"
ok "touch on a read-only mount fails with EROFS" refused touch "$mnt/optim/lr"
status "opening a missing file fails" 1 cat "$mnt/model/nothing"
status "opening a missing file fails again from the negative cache" 1 cat "$mnt/model/nothing"

# The files below .optimfs change while mounted, so the kernel must not cache
# them.
before=$(stat_of fuse_open)
cat "$mnt/optim/lr" >/dev/null
after=$(stat_of fuse_open)
is ".optimfs/stats is current at each open" "$([ "$after" -gt "$before" ] && echo yes)" yes
if command -v python3 >/dev/null; then
	ok ".optimfs/info.json is valid JSON" python3 -m json.tool "$mnt/.optimfs/info.json"
else
	skip 1 "no python3"
fi

# With passthrough, the daemon counts which files it assembles in memory.
assembled() {
	[ "$(stat_of assembled_files)" = "$1" ]
}
umount_it
for i in 1 2 3 4 5 6; do
	head -c 9000000 /dev/urandom >"$ck/model/nine$i"
done
mount_it
if grep -q '"passthrough": *true' "$mnt/.optimfs/info.json"; then
	head -c 10 "$mnt/model/five" >/dev/null
	is "assemble=auto assembles a small file at its first open" "$(stat_of assembled_files)" 1
	cat "$mnt/model/nine1" >/dev/null
	is "assemble=auto does not assemble a large file at its first open" \
	    "$(stat_of assembled_files)" 1
	cat "$mnt/model/nine1" >/dev/null
	is "assemble=auto assembles a large file at its second open" "$(stat_of assembled_files)" 2
	umount_it
	mount_it
	cat "$mnt/model/nine1" "$mnt/model/nine2" >/dev/null
	ok "assemble=auto assembles large files for a reader of whole files, and the next one" \
	    eventually assembled 2
	ok "the file that was assembled before its open has its bytes" \
	    cmp "$mnt/model/nine3" "$ck/model/nine3"
	is "its open finds it in memory" \
	    "$(stat_of assembled_files) $(stat_of assembled_hits)" "2 1"
	umount_it
	mount_it
	cat "$mnt/model/nine2" >/dev/null
	cat "$mnt/model/nine2" >/dev/null
	cat "$mnt/model/nine1" "$mnt/model/nine3" "$mnt/model/nine4" \
	    "$mnt/model/nine5" "$mnt/model/nine6" >/dev/null
	ok "what a process has read once makes room for the next file" \
	    test "$(stat_of assembled_evicted)" -ge 1
	ok "so of five files in memory there are at most four" \
	    test "$(stat_of assembled_memory)" -le 41943040
	hits=$(stat_of assembled_hits)
	cat "$mnt/model/nine2" >/dev/null
	is "a file that was opened again stays" \
	    "$(stat_of assembled_hits)" "$((hits + 1))"
	umount_it
	mount_it
	head -c 9 "$mnt/model/nine1" "$mnt/model/nine2" "$mnt/model/nine3" \
	    >/dev/null
	is "assemble=auto assembles nothing for a reader of file headers" \
	    "$(stat_of assembled_files)" 0
	umount_it
	mount_it -o assemble=always
	head -c 9 "$mnt/model/nine1" "$mnt/model/nine2" "$mnt/optim/lr" >/dev/null
	is "assemble=always assembles every large file at its first open" \
	    "$(stat_of assembled_files)" 2
	umount_it
	mount_it -o assemble=always,assemble_max=1m
	cat "$mnt/model/nine1" "$mnt/model/smallest" >/dev/null
	is "assemble_max=1m assembles only files of at most 1 MB" "$(stat_of assembled_files)" 1
	umount_it
	mount_it -o assemble=always,cache=16m
	cat "$mnt/model/nine1" "$mnt/model/nine2" >/dev/null
	is "cache=16m evicts one of two 9 MB files" \
	    "$(stat_of assembled_files) $(stat_of assembled_evicted)" \
	    "2 1"
	is "assembled files stay below the cache limit" \
	    "$([ "$(stat_of assembled_memory)" -le 12582912 ] && echo yes)" yes
	umount_it
	mount_it -o assemble=off
	cat "$mnt/model/nine1" "$mnt/model/five" >/dev/null
	is "assemble=off assembles nothing" "$(stat_of assembled_files)" 0
else
	skip 15 "no FUSE passthrough here"
fi

ok "umount exits with 0" umount_it

# libfuse 3.18.3 and later are built without custom I/O.
if sanitized; then
	skip 3 "a sanitizer does not want to be preloaded after faultlib.so"
else
	ok "a mount succeeds with a libfuse that has no custom I/O" \
	    env LD_PRELOAD="$TOP_BUILDDIR/.libs/faultlib.so" FAULT_FUSE=1 "$o" mount "$ck" "$mnt"
	ok "a file read twice through a libfuse without custom I/O has its bytes" \
	    sh -c "cmp '$mnt/model/nine1' '$ck/model/nine1' && cmp '$mnt/model/nine1' '$ck/model/nine1'"
	ok "a mount by a libfuse without custom I/O is unmounted" umount_it
fi

# The reply to open carries the data of a small file, so that reading it sends
# no request. Concurrent opens of one file must not wait for each other, not
# even with a single daemon thread (-s).
mkdir "$ck/many"
for i in $(seq 40); do
	head -c $((i * 300)) /dev/urandom >"$ck/many/$i"
done
at_once() {
	pids=
	for i in 1 2 3 4 5 6; do
		timeout "$limit" sh -c "cat '$mnt'/many/* | cmp - '$scratch/all'" &
		pids="$pids $!"
	done
	for p in $pids; do
		wait "$p" || return 1
	done
}
cat "$ck"/many/* >"$scratch/all"
for with in "" -s; do
	mount_it $with
	cat "$mnt/many/7" "$mnt/many/13" >/dev/null
	is "reading a small file sends no read request${with:+ with $with}" \
	    "$(stat_of fuse_read)" 0
	ok "six concurrent readers of small files get the right bytes${with:+ with $with}" at_once
	ok "small files agree with the source after that${with:+ with $with}" \
	    same_tree "$ck/many" "$mnt/many"
	umount_it
done

# The daemon answers the first FLUSH with ENOSYS, and the kernel sends no more.
"$o" mount -d "$ck" "$mnt" 2>"$scratch/requests" &
# The daemon looks at its own mount first, which sends requests too.
eventually grep -q 'opcode: STATFS' "$scratch/requests"
cat "$mnt/model/page" "$mnt/model/zz" "$mnt/optim/lr" >/dev/null
umount_it
is "the kernel sends FLUSH for the first close only" \
    "$(grep -c 'opcode: FLUSH' "$scratch/requests")" 1
is "no mount is left" "$(tap_mounts)" ""
status "umount of a directory that is no mount exits with 3" 3 "$o" umount "$mnt"

done_testing
