#!/bin/sh
# umount.t - umount(8) waits for the commit and reports it
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

requires mount
o=$OPTIMFS
mnt=$(point mnt)
lr=optim/param_groups/0/lr
cp -r "$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w2/ckpt" "$scratch/ck"
chmod -R u+w "$scratch/ck"

# Programs under the names that mount(8) and umount(8) look for. A libtool
# wrapper script depends on its own name: take the real program.
real=$o
[ ! -x "$(dirname "$o")/.libs/$(basename "$o")" ] ||
    real=$(dirname "$o")/.libs/$(basename "$o")
mkdir "$scratch/sbin" "$scratch/real"
for name in mount.optimfs umount.fuse.optimfs; do
	cp -L "$real" "$scratch/real/$name"
	cat >"$scratch/sbin/$name" <<E2
#!/bin/sh
LD_LIBRARY_PATH='$TOP_BUILDDIR/.libs' exec '$scratch/real/$name' "\$@"
E2
	chmod +x "$scratch/sbin/$name"
done
helper=$scratch/sbin/umount.fuse.optimfs

said() {
	cat "$scratch/out" "$scratch/err"
}
value() {
	"$o" cat "$scratch/ck" $lr
}

status "umount.fuse.optimfs without a mount point exits with 1" 1 "$helper"
status "umount.fuse.optimfs of a directory that is not mounted exits with 32" 32 "$helper" "$mnt"

"$o" mount -o rw "$scratch/ck" "$mnt"
echo 0.25 >"$mnt/$lr"
echo 1 >"$mnt/model/new"
status "umount.fuse.optimfs exits with 32 when the commit fails" 32 "$helper" "$mnt"
like "its message names --keep and --force" "$(cat "$scratch/err")" '*stays mounted*optimfs umount --keep*--force*'
like "umount.fuse.optimfs says why the commit fails" "$(said)" "*OFS303*model/new*"
is "after a failed commit the mount is still there" "$(cat "$mnt/$lr")" 0.25
rm "$mnt/model/new"
status "umount.fuse.optimfs exits with 0 when the commit succeeds" 0 "$helper" "$mnt" -v
is "umount.fuse.optimfs unmounts" "$(tap_mounts)" ""
is "umount.fuse.optimfs commits" "$(value)" 0.25

"$o" mount -o rw,commit=explicit "$scratch/ck" "$mnt"
echo 0.5 >"$mnt/$lr"
status "umount.fuse.optimfs of a mount with commit=explicit exits with 0" 0 "$helper" "$mnt"
is "umount.fuse.optimfs does not commit a mount with commit=explicit" "$(value)" 0.25
"$o" mount -o rw,recover=discard "$scratch/ck" "$mnt"
"$o" umount "$mnt"

"$o" mount -o rw "$scratch/ck" "$mnt"
echo 0.75 >"$mnt/$lr"
exec 3<"$mnt/model/norm.bias"
status "umount.fuse.optimfs -l of a mount in use exits with 0" 0 "$helper" "$mnt" -l
is "umount.fuse.optimfs -l commits" "$(value)" 0.75
is "umount.fuse.optimfs -l detaches the mount" "$(tap_mounts)" ""
exec 3<&-

# umount(8) itself looks for helpers in /sbin, and in /run/mount/utab for the
# type of a mount. Both are private here.
cat >"$scratch/private" <<E2
set -e
mount -t overlay o -o lowerdir='$scratch/sbin':/sbin /sbin
mkdir -p /run/mount
mount -t tmpfs tmpfs /run/mount
E2
if [ "$(id -u)" = 0 ] && command -v unshare >/dev/null &&
    unshare -m sh "$scratch/private" 2>/dev/null; then
	cat >"$scratch/session" <<E2
. '$scratch/private'
mount -t optimfs -o rw,commit=auto '$scratch/ck' '$mnt'
echo 0.5 >'$mnt/$lr'
echo 1 >'$mnt/model/new'
umount '$mnt' && echo unmounted || echo "kept \$?"
rm '$mnt/model/new'
umount '$mnt'
'$o' cat '$scratch/ck' $lr
cat /run/mount/utab
'$o' mount -o rw '$scratch/ck' '$mnt'
echo 0.625 >'$mnt/$lr'
umount '$mnt'
'$o' cat '$scratch/ck' $lr
mount -t optimfs -o rw,commit=auto '$scratch/ck' '$mnt'
'$o' umount '$mnt'
cat /run/mount/utab
mount -t optimfs -o ro '$scratch/ck' '$mnt'
cat /run/mount/utab
umount '$mnt'
for i in 1 2; do
	'$o' mount -o rw '$scratch/ck' '$mnt'
	fusermount3 -u '$mnt'
done
grep -c TARGET /run/mount/utab
'$o' mount -o rw '$scratch/ck' '$mnt'
umount '$mnt'
cat /run/mount/utab
E2
	ok "mount(8) and umount(8) succeed in a private mount namespace" \
	    unshare -m sh "$scratch/session"
	is "umount(8) keeps a mount whose commit fails, and returns after those that succeed" \
	    "$(cat "$scratch/out")" "kept 32
0.5
0.625
1"
	like "umount(8) says why a commit fails" "$(cat "$scratch/err")" "*OFS303*model/new*"
	is "no mount is left by umount(8)" "$(tap_mounts)" ""
else
	skip 4 "cannot lay a file system over /sbin"
fi

# The other namespace reads the file when the pipe is closed.
mkfifo "$scratch/go"
if [ "$(id -u)" = 0 ] && command -v unshare >/dev/null && unshare -m true; then
	copied() { # UMOUNT OPTION: the file in the other namespace after umount
		"$o" mount "$scratch/ck" "$mnt"
		unshare -m sh -c 'read -r go <"$1"; cat "$2"' sh "$scratch/go" \
		    "$mnt/$lr" >"$scratch/copy" &
		exec 3>"$scratch/go"
		"$o" umount $1 "$mnt" 2>/dev/null
		exec 3>&-
		wait $!
	}
	ok "a mount that another mount namespace has, too, is served there after umount" copied
	is "the other mount namespace reads the file" "$(cat "$scratch/copy")" 0.625
	not_ok "umount --force ends the mount in another mount namespace, too" copied --force
else
	skip 3 "no mount namespaces"
fi

# fusermount3 reads /etc/mtab, which a new root file system may lack.
if unshare -m true 2>/dev/null && command -v setpriv >/dev/null &&
    [ "$(stat -c %a /dev/fuse)" = 666 ]; then
	copy_for_others "$o"
	theirs=$(point theirs)
	chown 65534 "$theirs"
	mkdir "$scratch/etc"
	cp /etc/passwd /etc/group /etc/ld.so.cache "$scratch/etc"
	LD_LIBRARY_PATH=$scratch status "umount by a user without /etc/mtab exits with 3" 3 \
	    unshare -m sh -c 'mount --bind "$1/etc" /etc
		user() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
		user "$1/optimfs" mount -q "$2" "$3" || exit 99
		user "$1/optimfs" umount "$3"
		said=$?
		umount "$3"
		exit $said' sh "$scratch" "$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w2/ckpt" "$theirs"
	like "and says what to do, no more" "$(said)" "*OFS758*fusermount3 needs /etc/mtab*ln -s * /etc/mtab"
else
	skip 2 "no mount namespaces, or no FUSE for users"
fi

done_testing
