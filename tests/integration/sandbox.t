#!/bin/sh
# sandbox.t - what the threads of a mount cannot do
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

requires mount
o=$OPTIMFS_FAKE
ck=$scratch/ck
mnt=$(point mnt)
mkdir -p "$ck" "$scratch/elsewhere"
echo here >"$ck/plain"
touch "$ck/passwd" "$ck/other"
echo secret >"$scratch/elsewhere/file"
cat >"$ck/.fake" <<END
passwd really=/etc/passwd
other really=$scratch/elsewhere/file
END

# A core that does what its input says is stopped by the kernel.
"$o" mount -o sandbox=require "$ck" "$mnt" 2>"$scratch/err" ||
    skip_all "no sandbox: $(head -n 1 "$scratch/err")"
is "a mount reads its checkpoint" "$(cat "$mnt/plain")" here
not_ok "not /etc/passwd" cat "$mnt/passwd"
like "its reader hears why" "$(cat "$scratch/err")" '*Permission denied*'
not_ok "nor another directory" cat "$mnt/other"
ok "it is unmounted" "$o" umount "$mnt"

ok "sandbox=off" "$o" mount -o sandbox=off "$ck" "$mnt"
ok "opens what it likes" cat "$mnt/passwd"
ok "it is unmounted" "$o" umount "$mnt"

"$o" mount -f "$ck" "$mnt" 2>"$scratch/log" &
daemon=$!
daemons=$daemon
eventually [ -e "$mnt/plain" ]
not_ok "by default there is one" cat "$mnt/passwd"
n=$(grep -l '^NoNewPrivs:.1' /proc/$daemon/task/*/status | wc -l)
ok "its threads gain no rights" test "$n" -ge 1
if sanitized; then
	skip 1 "a sanitizer has threads of its own"
elif [ "$(id -u)" != 0 ]; then
	skip 1 "not root: no thread has capabilities"
else
	rights=$(grep '^CapEff' /proc/self/status)
	privileged() { # N: so many threads have all capabilities
		[ "$(grep -l "^$rights" /proc/$daemon/task/*/status 2>/dev/null |
		    wc -l)" = "$1" ]
	}
	# one more says that the mount is there, and ends
	ok "but for the three that docs/security.md names" eventually privileged 3
fi
kill -TERM $daemon
wait $daemon
is "a daemon that is told to end does" $? 0
not_ok "and unmounts, which its threads could not" test -e "$mnt/plain"
is "nothing is said of what the kernel allows" "$(cat "$scratch/log")" ''
daemons=

# One file: that another has its name now is said as it is without a sandbox.
real=$TOP_SRCDIR/tests/data/extra/dcp_variants/hf_writer
real=$real/model-00001-of-00001.safetensors
mkdir "$scratch/one"
cp "$real" "$scratch/one/model.safetensors"
cp "$real" "$scratch/one/new"
ok "a mount of one file" "$OPTIMFS" mount -o sandbox=require \
    "$scratch/one/model.safetensors" "$mnt"
like "which says so" "$(cat "$mnt/.optimfs/info.json")" '*"sandbox":*true*'
file=$(find "$mnt/model" -type f | head -n 1)
mv "$scratch/one/new" "$scratch/one/model.safetensors"
not_ok "which is replaced" cat "$file"
like "is stale" "$(cat "$scratch/err")" '*Stale file handle*'
like "in words, too" "$(cat "$mnt/.optimfs/errors")" '*OFS75[13]*'
ok "it is unmounted" "$OPTIMFS" umount "$mnt"

# A user's daemon unmounts by fusermount3, which gains rights.
cat >"$scratch/user.sh" <<'END'
set -e
as_user() {
	setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
}
mknod "$scratch/fuse" c 10 229
chmod 666 "$scratch/fuse"
mount --bind "$scratch/fuse" /dev/fuse
as_user "$o" --version >/dev/null
as_user touch "$mnt/.may" && rm "$mnt/.may"
echo usable
setpriv --reuid=65534 --regid=65534 --clear-groups \
    "$o" mount -f -o sandbox=require "$ck" "$mnt" &
daemon=$!
for i in $(seq 200); do
	as_user test -e "$mnt/plain" && break
	sleep 0.05
done
as_user cat "$mnt/passwd" 2>&1 | grep -o 'Permission denied'
kill -TERM $daemon
wait $daemon
echo "exit $?"
grep -c " $mnt " /proc/self/mountinfo || :
END
chmod 755 "$scratch"
chmod 777 "$mnt"
export scratch o mnt ck
unshare -m sh "$scratch/user.sh" >"$scratch/out" 2>"$scratch/err"
if grep -q usable "$scratch/out"; then
	is "a user's mount is confined, ends and is unmounted" \
	    "$(tr '\n' ' ' <"$scratch/out")" 'usable Permission denied exit 0 0 '
	diag "$(cat "$scratch/err")"
else
	skip 1 "no mount by another user here"
fi

done_testing
