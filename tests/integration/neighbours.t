#!/bin/sh
# neighbours.t - what another user leaves beside a checkpoint in a shared directory
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"

[ "$(id -u)" = 0 ] && command -v setpriv >/dev/null || skip_all "no other users"
requires python3
copy_for_others "$OPTIMFS"
owner=1001 stranger=1002
shared=$scratch/shared
stage=$shared/.ck.optimfs
mkdir -m 1777 "$shared"
cp -r "$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w2/ckpt" "$shared/ck"
chown -R $owner:$owner "$shared/ck"

# as USER COMMAND...
as() {
	as_user=$1
	shift
	LD_LIBRARY_PATH=$scratch timeout -k 5 "$limit" \
	    setpriv --reuid="$as_user" --regid="$as_user" --clear-groups "$@"
}
# A mount that is gone, and commits: what its daemon leaves, with the lock.
cat >"$scratch/plant.py" <<'END'
import fcntl, os, struct, sys, time
user, path, mode = sys.argv[1:]
os.setgroups([])
os.setgid(int(user))
os.setuid(int(user))
os.umask(0)
os.mkdir(os.path.dirname(path), int(mode, 8))
fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
fcntl.fcntl(fd, 37, struct.pack("hhqqi", fcntl.F_WRLCK, 0, 0, 0, 0)) # F_OFD_SETLK
boot = open("/proc/sys/kernel/random/boot_id").read().strip()
os.write(fd, b"boot %s\npid %d\nmount 0:99999 %d\n" % (boot.encode(), os.getpid(),
    os.stat("/proc/self/ns/pid").st_ino))
print("planted", flush=True)
time.sleep(3600)
END
# plant USER MODE: as that user
plant() {
	: >"$scratch/planted"
	python3 "$scratch/plant.py" "$1" "$stage/mounted" "$2" >"$scratch/planted" &
	planter=$!
	eventually grep -q planted "$scratch/planted"
}
uproot() {
	kill $planter
	wait $planter 2>/dev/null
	rm -rf "$stage"
}
# reads NAME: everybody reads the checkpoint, and is told
reads() {
	for verb in info ls fsck; do
		ok "$1: the owner's $verb ends" as $owner "$scratch/optimfs" $verb "$shared/ck"
		like "$1: the owner's $verb says why nobody is waited for" \
		    "$(cat "$scratch/err")" "*OFS846*$stage*"
	done
	ok "$1: root's info ends" "$OPTIMFS" info "$shared/ck"
	like "$1: root's info says why nobody is waited for" "$(cat "$scratch/err")" '*OFS846*'
}

plant $stranger 755
reads "a lock of another user"
uproot
plant $owner 777
reads "a lock where everybody may write"
uproot

setpriv --reuid=$stranger --regid=$stranger --clear-groups \
    sh -c "mkdir $stage && mkfifo $stage/mounted $stage/lock $stage/journal"
reads "pipes of another user"
rm -rf "$stage"
ln -s "$shared/ck" "$stage"
reads "a link in place of the directory"
rm "$stage"

mkdir "$shared/empty"
chown $owner "$shared/empty"
setpriv --reuid=$stranger --regid=$stranger --clear-groups \
    sh -c "mkdir $shared/.empty.optimfs && echo >$shared/.empty.optimfs/template.info"
not_ok "an empty directory is no checkpoint, whatever is beside it" \
    as $owner "$scratch/optimfs" info "$shared/empty"
is "what another user made beside it does not make it a template" \
    "$(grep OFS834 "$scratch/err")" ''

setpriv --reuid=$stranger --regid=$stranger --clear-groups mkdir "$shared/.new.optimfs"
status "nothing is staged in a directory of another user" 5 \
    as $owner "$scratch/optimfs" reshard --to dcp@2 "$shared/ck" "$shared/new"
like "the refused reshard names the directory and its owner" "$(cat "$scratch/err")" \
    "*OFS846*$shared/.new.optimfs*$stranger*"

mkdir -m 755 "$stage"
ok "a directory of root beside the checkpoint is believed" \
    as $owner "$scratch/optimfs" info "$shared/ck"
is "nothing is said of a directory of root" "$(grep OFS846 "$scratch/err")" ''

# The mode of a file with an ACL has the mask in place of the group.
cat >"$scratch/acl.py" <<'END'
import os, struct, sys
user, *paths = sys.argv[1:]
for path in paths: # user::rw-, user:USER:rwx, group::---, mask::rwx, other::---
    entries = (1, 7, 0xffffffff), (2, 7, int(user)), (4, 0, 0xffffffff), \
        (16, 7, 0xffffffff), (32, 0, 0xffffffff)
    os.setxattr(path, "system.posix_acl_access", struct.pack("<I", 2) +
        b"".join(struct.pack("<HHI", *e) for e in entries))
END
# shown PATH...: may the group, which the ACL of these denies, read a mount?
shown() {
	rm -rf "$scratch/acl"
	cp -r "$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w2/ckpt" "$scratch/acl"
	chgrp -R 2000 "$scratch/acl"
	(cd "$scratch/acl" && python3 "$scratch/acl.py" 1003 "$@") 2>"$scratch/err" ||
	    return
	"$OPTIMFS" mount -o allow_other "$scratch/acl" "$mnt"
	setpriv --reuid=3000 --regid=2000 --clear-groups \
	    cat "$mnt/optim/param_groups/0/lr" 2>&1
	"$OPTIMFS" umount "$mnt"
}
mnt=$(point m)
for path in .metadata __1_0.distcp .; do
	case $(shown $path) in
	'') skip 1 "no ACLs or no mounts here" ;;
	*'Permission denied') ok "a mount shows nothing to a group that the ACL of $path denies" true ;;
	*) ok "a mount shows nothing to a group that the ACL of $path denies" false ;;
	esac
done

# What the source allows is asked again at each open by another user.
ck=$scratch/changed
cp -r "$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w2/ckpt" "$ck"
chown -R 1000:2000 "$ck"
lr=optim/param_groups/0/lr
by() { # GROUP COMMAND...: as a user of it, whose first group is another one
	group=$1
	shift
	setpriv --reuid=3000 --regid=3000 --groups="$group" "$@" 2>&1
}
refused() { # WHAT: the file was read before
	like "after $1 of the source a file cannot be opened" \
	    "$(by 4000 cat "$mnt/$lr")" '*Permission denied'
	like "after $1 of the source a directory cannot be listed" \
	    "$(by 4000 ls "$mnt/optim")" '*Permission denied'
	is "after $1 of the source root can open a file" "$(cat "$mnt/$lr")" "$value"
}
for options in allow_other allow_other,rw; do
	chmod -R a+rX "$ck"
	if ! "$OPTIMFS" mount -o $options "$ck" "$mnt" 2>"$scratch/err"; then
		skip 1 "no mounts for others here"
		continue
	fi
	value=$(cat "$mnt/$lr")
	is "$options: others can open a file" "$(by 4000 cat "$mnt/$lr")" "$value"
	ok "$options: and list a directory" by 4000 ls "$mnt/optim"
	chmod 640 "$ck/__1_0.distcp"
	refused "$options: a chmod of one file"
	is "$options: its group still can" "$(by 2000 cat "$mnt/$lr")" "$value"
	chmod 644 "$ck/__1_0.distcp"
	is "$options: others can again, after another chmod" \
	    "$(by 4000 cat "$mnt/$lr")" "$value"
	chmod 750 "$ck"
	refused "$options: a chmod of the directory"
	chgrp -R 4000 "$ck"
	is "$options: a new group can, after a chown" \
	    "$(by 4000 cat "$mnt/$lr")" "$value"
	like "$options: the old one cannot" "$(by 2000 cat "$mnt/$lr")" \
	    '*Permission denied'
	if python3 "$scratch/acl.py" 1003 "$ck/__0_0.distcp" 2>"$scratch/err"; then
		refused "$options: an ACL"
		python3 -c 'import os, sys
os.removexattr(sys.argv[1], "system.posix_acl_access")' "$ck/__0_0.distcp"
	fi
	chgrp -R 2000 "$ck"
	"$OPTIMFS" umount "$mnt"
done

# What is made of a private checkpoint is private, whatever the umask.
cp -r "$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w2/ckpt" "$scratch/private"
chmod 700 "$scratch/private"
umask 000
private() {
	is "$1 of a private checkpoint shows nothing to others" \
	    "$(find "$scratch/made" -perm /077 2>&1 | head -n 3)" ''
	rm -rf "$scratch/made"
}
"$OPTIMFS" reshard -q --to dcp@2 "$scratch/private" "$scratch/made"
private reshard
"$OPTIMFS" cp -r "$scratch/private" model "$scratch/made"
private cp
"$OPTIMFS" report -o "$scratch/made" "$scratch/private"
private report
mkdir -m 700 "$scratch/made"
"$OPTIMFS" mkfs --like "$scratch/private" --layout dcp@2 "$scratch/made/new"
private mkfs

done_testing
