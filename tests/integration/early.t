#!/bin/sh
# early.t - tensors of a new checkpoint are written to their place before the commit
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
requires mount

mkdcp=$TOP_BUILDDIR/tests/bench/mkdcp
cd "$scratch" || exit 99
head -c 65536 /dev/zero >block
dd if=block of=probe bs=65536 oflag=direct status=none 2>/dev/null ||
    skip_all "this file system has no O_DIRECT"

"$mkdcp" -o -n 3 -s 512,512 -r 2 src
"$OPTIMFS" cp -r src . tree
"$OPTIMFS" reshard --to torch src torch
"$OPTIMFS" reshard --to dcp@1 src dcp
mnt=$(point m)
w=model/layers.0.attention
state=optim/state/layers.0.attention

begin() { # LAYOUT: mounts a new template
	rm -rf new .new.optimfs
	"$OPTIMFS" mkfs --like src --layout "$1" new &&
	    "$OPTIMFS" mount -o rw,commit=explicit new "$mnt" || return 1
	pid=$(grep -ao 'pid [0-9]*' .new.optimfs/lock)
	pid=${pid#pid }
}

# holds FILE: has a file without a name its size, and three quarters of its
# bytes? fd: its descriptor
holds() {
	for fd in /proc/"$pid"/fd/*; do
		case $(readlink "$fd") in
		*.new.optimfs/*'(deleted)') ;;
		*) continue ;;
		esac
		[ "$(stat -L -c %s "$fd")" = "$(stat -c %s "$1")" ] || continue
		[ "$(cmp -l "$fd" "$1" | wc -l)" -lt \
		    $(($(stat -c %s "$1") / 4)) ]
		return
	done
	return 1
}

# Bytes that the daemon has read from files.
bytes_read() {
	awk '$1 == "rchar:" { print $2 }' "/proc/$pid/io"
}

commit() {
	"$OPTIMFS" commit "$mnt" && "$OPTIMFS" umount "$mnt"
}

for layout in torch dcp@1; do
	want=torch/optim.pt
	[ $layout = torch ] || want=dcp/__0_0.distcp
	ok "mount of a template of $layout succeeds" begin $layout
	cp -r tree/. "$mnt"
	ok "tensors of $layout are written before the commit" \
	    eventually holds $want
	ino=$(stat -L -c %i "$fd")
	before=$(bytes_read)
	ok "commit of $layout succeeds" "$OPTIMFS" commit "$mnt"
	ok "the commit of $layout does not read what is in its place" \
	    [ $(($(bytes_read) - before)) -lt \
	    $(($(stat -c %s $want) / 10 * 9)) ]
	ok "umount of $layout succeeds" "$OPTIMFS" umount "$mnt"
	is "the commit gives the file of $layout its name" \
	    "$(stat -c %i "new/${want#*/}")" "$ino"
	ok "the new checkpoint of $layout equals reshard" \
	    diff -r ${want%/*} new
done

# By rename, as optimfs cp writes.
begin torch
ok "optimfs cp into the template succeeds" \
    "$OPTIMFS" cp -r src . "$mnt"
ok "tensors that optimfs cp has renamed are written before the commit" \
    eventually holds torch/optim.pt
ok "commit after optimfs cp succeeds" commit
ok "the new checkpoint equals reshard after optimfs cp" diff -r torch new

# While values contradict each other, as when a list of parameters is there under
# two names, no file can be laid out.
begin torch
mkdir -p "$mnt/optim/param_groups/0"
cp tree/optim/param_groups/0/params "$mnt/optim/param_groups/0/.params"
cp -r tree/. "$mnt"
not_ok "values that contradict each other have no layout" \
    ls "$mnt/.optimfs/view/torch"
rm "$mnt/optim/param_groups/0/.params"
ok "tensors are written when the contradiction has gone" \
    eventually holds torch/optim.pt
ok "commit after a contradiction succeeds" commit
ok "the new checkpoint equals reshard after a contradiction" diff -r torch new

# What changes after it was written.
cp -r tree changed
dd if=block of="changed/$w.wk.weight" bs=4096 count=3 seek=100 conv=notrunc \
    status=none
mv "changed/$w.wq.weight" t
mv "changed/$w.wv.weight" "changed/$w.wq.weight"
mv t "changed/$w.wv.weight"
head -c 1048576 /dev/zero | tr '\0' '@' >"changed/$state.wq.weight/exp_avg"
resize() { # TREE
	truncate -s 524288 "$1/$state.wv.weight/exp_avg" &&
	    truncate -s 1048576 "$1/$state.wv.weight/exp_avg"
}
resize changed
echo 0.0123456789012345 >changed/optim/param_groups/0/lr
begin torch
cp -r tree/. "$mnt"
ok "tensors that will change are written before the commit" \
    eventually holds torch/optim.pt
dd if=block of="$mnt/$w.wk.weight" bs=4096 count=3 seek=100 conv=notrunc \
    status=none
rm "$mnt/$w.wq.weight" "$mnt/$w.wv.weight"
cp "changed/$w.wq.weight" "changed/$w.wv.weight" "$mnt/model"
cp "changed/$state.wq.weight/exp_avg" "$mnt/$state.wq.weight/exp_avg"
resize "$mnt"
cp changed/optim/param_groups/0/lr "$mnt/optim/param_groups/0/lr"
ok "commit of the changes succeeds" commit
ok "fsck --data finds no fault after the changes" "$OPTIMFS" fsck --data new
"$OPTIMFS" cp -r new . got
ok "the new checkpoint has the changes" diff -r changed got

# A writer that dies: what is staged is enough.
begin torch
cp -r tree/. "$mnt"
eventually holds torch/optim.pt
kill -KILL "$pid"
umount -l "$mnt" 2>/dev/null || fusermount3 -uz "$mnt"
ok "mount -o recover after the writer died succeeds" \
    "$OPTIMFS" mount -o rw,recover=yes,commit=explicit new "$mnt"
ok "commit after the writer died succeeds" commit
ok "the new checkpoint equals reshard after the writer died" diff -r torch new

# An abort gives the space back.
begin torch
cp -r tree/. "$mnt"
ok "tensors are written before an abort" eventually holds torch/optim.pt
ok "abort succeeds" "$OPTIMFS" abort "$mnt"
is "an abort closes the files without names" \
    "$(readlink /proc/"$pid"/fd/* | grep 'new.optimfs/#')" ""
is "an abort hides all names" "$(find "$mnt" -mindepth 1)" ""
ok "they can be copied again" cp -r tree/. "$mnt"
ok "mkdir -p finds them" mkdir -p "$mnt/model"
ok "commit after an abort succeeds" commit
ok "the new checkpoint equals reshard after an abort" diff -r torch new
done_testing
