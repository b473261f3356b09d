#!/bin/sh
# mount.t - a mounted tree under the programs that people use on it
# SPDX-License-Identifier: Apache-2.0
#
# Over the fake library, so that what fails here is the mount.
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

requires mount
o=$OPTIMFS_FAKE
ck=$scratch/ck
mnt=$(point mnt)

# Files of all the ways that files are read: tiny, assembled, on demand.
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

# What a copy must equal: the tree without the fake's own files.
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

ok "mount" mount_it
is "mount says nothing" "$(cat "$scratch/out" "$scratch/err")" ""
like "the type and the source" \
    "$(awk -v m="$mnt" '$5 == m { print $(NF - 2), $(NF - 1) }' \
	/proc/self/mountinfo)" "fuse.optimfs $ck"
is "ls in order" "$(ls -U "$mnt/model" | tr '\n' ' ')" \
    "$(ls "$want/model" | tr '\n' ' ')"
is "the root does not list .optimfs" "$(ls -A "$mnt" | tr '\n' ' ')" \
    "empty model optim "
is "a number" "$(cat "$mnt/optim/lr")" 0.001
ok "metadata costs no data" ls -lR "$mnt"
is "no read came" "$(stat_of fuse_read_bytes)" 6
ok "diff -r" same_tree "$want" "$mnt"
is "sha256sum" "$(all_sums "$mnt")" "$(all_sums "$want")"
is "find -size" "$(cd "$mnt" && find . -type f -printf '%s %p\n' | sort)" \
    "$(cd "$want" && find . -type f -printf '%s %p\n' | sort)"
is "times" "$(stat -c %y "$mnt/model/five")" "$(stat -c %y "$want/model/five")"
is "inode numbers agree" "$(ls -i "$mnt/model" | awk '{ print $1 }')" \
    "$(cd "$mnt/model" && stat -c %i * | cat)"

cp -a "$mnt/." "$scratch/cp"
ok "cp -a" same_tree "$want" "$scratch/cp"
(cd "$mnt" && tar cf - .) | (mkdir "$scratch/tar" && tar xf - -C "$scratch/tar")
ok "tar" same_tree "$want" "$scratch/tar"
if command -v rsync >/dev/null; then
	rsync -a "$mnt/" "$scratch/rsync"
	ok "rsync -a" same_tree "$want" "$scratch/rsync"
else
	skip 1 "no rsync"
fi
is "wc -c" "$(cd "$mnt/model" && wc -c * | cat)" \
    "$(cd "$want/model" && wc -c * | cat)"
ok "dd in large blocks" dd if="$mnt/model/twenty" of="$scratch/dd" bs=3M
ok "... has it all" cmp "$scratch/dd" "$want/model/twenty"
dd if="$mnt/model/twenty" of="$scratch/part" bs=1 skip=12345678 count=1000 \
    2>/dev/null
dd if="$want/model/twenty" of="$scratch/part2" bs=1 skip=12345678 count=1000 \
    2>/dev/null
ok "a part in the middle" cmp "$scratch/part" "$scratch/part2"
ok "du" du -s "$mnt"
ok "df" df "$mnt"

# Each open in turn of a file: on demand, then assembled.
for i in 1 2 3; do
	ok "open $i of a large file" cmp "$mnt/model/twenty" "$want/model/twenty"
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
	# ls(1) asks about the next file too unless there are none at all
	is "no attributes but ours" "$(python3 -c 'import errno, os, sys
for name in sys.argv[2:]:
    try:
        os.getxattr(sys.argv[1], name)
    except OSError as e:
        print(errno.errorcode[e.errno])' "$mnt" user.other security.selinux \
	    system.posix_acl_access | xargs)" "ENODATA ENOTSUP ENOTSUP"
	ok "python: read, mmap, SEEK_HOLE" python3 "$scratch/py" "$mnt" "$want"
	umount_it
	mount_it -o direct
	ok "the same, direct" python3 "$scratch/py" "$mnt" "$want"
	umount_it
	mount_it -o assemble=off
	ok "the same, on demand" python3 "$scratch/py" "$mnt" "$want"
	umount_it
	mount_it
else
	skip 3 "no python3"
fi

if command -v getfattr >/dev/null; then
	is "getfattr" \
	    "$(getfattr --absolute-names --only-values -n user.optimfs.fqn \
		"$mnt/optim/lr")" optim/lr
	like "listed" "$(getfattr "$mnt/optim/lr" 2>&1)" "*user.optimfs.fqn*"
	status "none of that name" 1 getfattr -n user.other "$mnt/optim/lr"
else
	skip 3 "no getfattr"
fi

# A size that is an upper bound until the file is opened: each program comes
# to it first.
umount_it
fresh() {
	name=$1
	shift
	rm -rf "$scratch/first"
	mkdir "$scratch/first"
	mount_it
	(cd "$mnt/model" && "$@")
	umount_it
	ok "inexact sizes: $name" cmp "$scratch/first/inexact" \
	    "$want/model/inexact"
	ok "... a small file" cmp "$scratch/first/inexact_small" \
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
	is "inexact sizes: wc -c $f" "$(wc -c <"$mnt/model/$f")" \
	    "$(wc -c <"$want/model/$f")"
done
umount_it
mount_it
is "inexact sizes: ls is an upper bound" \
    "$(stat -c %s "$mnt/model/inexact_small")" \
    "$(($(stat -c %s "$want/model/inexact_small") * 2))"

refused() {
	"$@" 2>"$scratch/why" && return 1
	grep -q 'Read-only file system' "$scratch/why"
}
ok "EROFS: write" refused sh -c "echo 1 >'$mnt/optim/lr'"
ok "EROFS: create" refused touch "$mnt/new"
ok "EROFS: mkdir" refused mkdir "$mnt/new"
ok "EROFS: rm" refused rm -f "$mnt/optim/lr"
ok "EROFS: rmdir" refused rmdir "$mnt/empty"
ok "EROFS: mv" refused mv "$mnt/optim/lr" "$mnt/lr"
ok "EROFS: ln" refused ln "$mnt/optim/lr" "$mnt/lr"
ok "EROFS: ln -s" refused ln -s lr "$mnt/lr"
ok "EROFS: chmod" refused chmod 600 "$mnt/optim/lr"
ok "EROFS: truncate" refused truncate -s 0 "$mnt/optim/lr"
ok "EROFS: touch" refused touch "$mnt/optim/lr"
status "no such file" 1 cat "$mnt/model/nothing"
status "... again, remembered" 1 cat "$mnt/model/nothing"

# What it says about itself; these files change and may not be cached.
before=$(stat_of fuse_open)
cat "$mnt/optim/lr" >/dev/null
after=$(stat_of fuse_open)
is "stats are new at each open" "$([ "$after" -gt "$before" ] && echo yes)" yes
if command -v python3 >/dev/null; then
	ok "info.json is JSON" python3 -m json.tool "$mnt/.optimfs/info.json"
else
	skip 1 "no python3"
fi

# What is gathered, where the kernel reads by itself.
umount_it
for i in 1 2 3; do
	head -c 9000000 /dev/urandom >"$ck/model/nine$i"
done
mount_it
if grep -q '"passthrough": *true' "$mnt/.optimfs/info.json"; then
	head -c 10 "$mnt/model/five" >/dev/null
	is "auto: a small file, at once" "$(stat_of assembled_files)" 1
	cat "$mnt/model/nine1" >/dev/null
	is "auto: not a large one" "$(stat_of assembled_files)" 1
	cat "$mnt/model/nine1" >/dev/null
	is "auto: when it is opened again" "$(stat_of assembled_files)" 2
	umount_it
	mount_it
	cat "$mnt/model/nine1" "$mnt/model/nine2" "$mnt/model/nine3" >/dev/null
	is "auto: by who reads files whole" "$(stat_of assembled_files)" 2
	umount_it
	mount_it
	head -c 9 "$mnt/model/nine1" "$mnt/model/nine2" "$mnt/model/nine3" \
	    >/dev/null
	is "auto: not by who does not" "$(stat_of assembled_files)" 0
	umount_it
	mount_it -o assemble=always
	head -c 9 "$mnt/model/nine1" "$mnt/model/nine2" "$mnt/optim/lr" >/dev/null
	is "always" "$(stat_of assembled_files)" 2
	umount_it
	mount_it -o assemble=always,assemble_max=1m
	cat "$mnt/model/nine1" "$mnt/model/smallest" >/dev/null
	is "assemble_max" "$(stat_of assembled_files)" 1
	umount_it
	mount_it -o assemble=always,cache=16m
	cat "$mnt/model/nine1" "$mnt/model/nine2" >/dev/null
	is "cache" "$(stat_of assembled_files) $(stat_of assembled_evicted)" \
	    "2 1"
	is "is not exceeded" \
	    "$([ "$(stat_of assembled_memory)" -le 12582912 ] && echo yes)" yes
	umount_it
	mount_it -o assemble=off
	cat "$mnt/model/nine1" "$mnt/model/five" >/dev/null
	is "off" "$(stat_of assembled_files)" 0
else
	skip 10 "no FUSE passthrough here"
fi

ok "umount" umount_it

# A small file comes with the answer to the open: reading it is no request. That
# many open the same one at once must not have one wait for the other, with one
# thread either.
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
	is "small files are read with the open${with:+, $with}" \
	    "$(stat_of fuse_read)" 0
	ok "by many at once${with:+, $with}" at_once
	ok "each of them whole" same_tree "$ck/many" "$mnt/many"
	umount_it
done

# Reading a small file is four requests, unless closing it need not be told.
"$o" mount -d "$ck" "$mnt" 2>"$scratch/requests" &
# until its own look at the mount, which keeps it busy, is over
eventually grep -q 'opcode: STATFS' "$scratch/requests"
cat "$mnt/model/page" "$mnt/model/zz" "$mnt/optim/lr" >/dev/null
umount_it
is "the first close says that none need be told" \
    "$(grep -c 'opcode: FLUSH' "$scratch/requests")" 1
is "nothing is left mounted" "$(tap_mounts)" ""
status "umount again" 3 "$o" umount "$mnt"

done_testing
