#!/bin/sh
# sandbox.t - the sandbox confines the daemon to the files of its checkpoint
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

requires mount
o=$OPTIMFS_FAKE
ck=$scratch/ck
mnt=$(point mnt)
mkdir -p "$ck" "$scratch/elsewhere" "$scratch/tmp"
TMPDIR=$scratch/tmp # which the daemon may use
export TMPDIR
echo here >"$ck/plain"
touch "$ck/passwd" "$ck/other"
echo secret >"$scratch/elsewhere/file"
cat >"$ck/.fake" <<END
passwd really=/etc/passwd
other really=$scratch/elsewhere/file
END

# The fake library opens whatever path its input names, as a compromised daemon
# could.
"$o" mount -o sandbox=require "$ck" "$mnt" 2>"$scratch/err" ||
    skip_all "no sandbox: $(head -n 1 "$scratch/err")"
is "sandbox=require: a file of the checkpoint can be read" "$(cat "$mnt/plain")" here
not_ok "sandbox=require: /etc/passwd cannot be read" cat "$mnt/passwd"
like "sandbox=require: the reader gets EACCES" "$(cat "$scratch/err")" '*Permission denied*'
not_ok "sandbox=require: a file in another directory cannot be read" cat "$mnt/other"
ok "sandbox=require: umount succeeds" "$o" umount "$mnt"

ok "mount with sandbox=off succeeds" "$o" mount -o sandbox=off "$ck" "$mnt"
ok "sandbox=off: /etc/passwd can be read" cat "$mnt/passwd"
ok "sandbox=off: umount succeeds" "$o" umount "$mnt"

"$o" mount -f "$ck" "$mnt" 2>"$scratch/log" &
daemon=$!
eventually [ -e "$mnt/plain" ]
not_ok "default sandbox: /etc/passwd cannot be read" cat "$mnt/passwd"
n=$(grep -l '^NoNewPrivs:.1' /proc/$daemon/task/*/status | wc -l)
ok "default sandbox: threads have no_new_privs" test "$n" -ge 1
if sanitized; then
	skip 1 "a sanitizer has threads of its own"
elif [ "$(id -u)" != 0 ]; then
	skip 1 "not root: no thread has capabilities"
else
	unfiltered() { # N: do N threads have no filter?
		[ "$(grep -L '^Seccomp:.2' /proc/$daemon/task/*/status 2>/dev/null |
		    wc -l)" = "$1" ]
	}
	# A further thread reports the mount and ends.
	ok "default sandbox: three threads are free, as docs/security.md says" \
	    eventually unfiltered 3
fi
kill -TERM $daemon
wait $daemon
is "default sandbox: the daemon exits with 0 on SIGTERM" $? 0
not_ok "default sandbox: the daemon unmounts on SIGTERM" test -e "$mnt/plain"
is "default sandbox: the daemon prints nothing" "$(cat "$scratch/log")" ''

# What the threads of a real mount have, and a command that is waiting for the
# reader of its output.
real=$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w3/ckpt
cp -r "$real" "$scratch/real"
rights() { # PID FILTER: no_new_privs and capabilities of its threads with this filter mode
	for task in /proc/"$1"/task/*/status; do
		awk '$1 == "CapEff:" { cap = $2 } $1 == "NoNewPrivs:" { no = $2 }
		    $1 == "Seccomp:" { filter = $2 }
		    END { if (filter == want) print no, cap }' want="$2" "$task"
	done | sort -u | paste -sd' '
}
confined() { # WHAT PID CAPABILITIES
	if [ "$(id -u)" = 0 ]; then
		is "$1: confined threads have a filter, no new privileges and these capabilities" \
		    "$(rights "$2" 2)" "1 $3"
	else
		is "$1: confined threads have a filter and no new privileges" \
		    "$(rights "$2" 2)" '1 0000000000000000'
	fi
}
free_threads() { # WHAT CAPABILITIES
	if [ "$(id -u)" = 0 ]; then
		is "$1: the other threads have these capabilities" \
		    "$(rights $daemon 0)" "1 $2"
	else
		skip 1 "not root: no thread has capabilities"
	fi
}
mounted() { # OPTIONS: leaves its process in daemon
	"$OPTIMFS" mount -f -q -o "sandbox=require,$1" "$scratch/real" "$mnt" &
	daemon=$!
	eventually [ -e "$mnt/model" ]
}
if sanitized; then
	skip 9 "a sanitizer has threads of its own"
else
	mounted assemble=off
	confined "a read-only mount" $daemon 0000000000000004
	free_threads "a read-only mount" 0000000000200004
	ok "a read-only mount: umount succeeds" "$OPTIMFS" umount "$mnt"
	wait $daemon
	mounted rw
	confined "a writable mount" $daemon 000000001000001f
	free_threads "a writable mount" 000000001020001f
	echo 0.5 >"$mnt/optim/param_groups/0/lr"
	ok "a writable mount: umount commits" "$OPTIMFS" umount "$mnt"
	wait $daemon
	is "a writable mount: the change was committed" \
	    "$("$OPTIMFS" cat "$scratch/real" optim/param_groups/0/lr)" 0.5
	# More than fits into a pipe, whose reader does not read.
	mkfifo "$scratch/pipe"
	"$OPTIMFS" tar -o sandbox=require "$scratch/real" / >"$scratch/pipe" &
	daemon=$!
	exec 3<"$scratch/pipe"
	eventually grep -q '^Seccomp:.2' /proc/$daemon/status
	confined "a command that reads" $daemon 0000000000000004
	exec 3<&-
	wait $daemon
	like "a command: sandbox=off confines nothing" \
	    "$("$OPTIMFS" cat -o sandbox=off "$scratch/real" optim/param_groups/0/lr)" 0.5
fi

# A mount of one file: replacing the file must be reported as without a sandbox.
real=$TOP_SRCDIR/tests/data/extra/dcp_variants/hf_writer
real=$real/model-00001-of-00001.safetensors
mkdir "$scratch/one"
cp "$real" "$scratch/one/model.safetensors"
cp "$real" "$scratch/one/new"
"$OPTIMFS" mount -f "$scratch/one/model.safetensors" "$mnt" &
daemon=$!
until first=$(cat "$mnt/.optimfs/info.json" 2>/dev/null) || ! kill -0 $daemon; do :; done
like "one file: the first info.json that can be read describes the mount" "$first" \
    '*"mount": {"point":*'
"$OPTIMFS" umount "$mnt"
wait $daemon
ok "one file: mount with sandbox=require succeeds" "$OPTIMFS" mount -o sandbox=require \
    "$scratch/one/model.safetensors" "$mnt"
like "one file: info.json says that the sandbox is on" \
    "$(cat "$mnt/.optimfs/info.json")" '*"sandbox":*true*'
file=$(find "$mnt/model" -type f | head -n 1)
mv "$scratch/one/new" "$scratch/one/model.safetensors"
not_ok "one file: reading fails after the file was replaced" cat "$file"
like "one file: the replaced file gives ESTALE" "$(cat "$scratch/err")" '*Stale file handle*'
like "one file: .optimfs/errors has OFS751 or OFS753" "$(cat "$mnt/.optimfs/errors")" '*OFS75[13]*'
ok "one file: umount succeeds" "$OPTIMFS" umount "$mnt"

# The daemon of an ordinary user unmounts through fusermount3, which is setuid.
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
for i in $(seq 2400); do
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
	is "an ordinary user's daemon is confined, exits with 0 and unmounts" \
	    "$(tr '\n' ' ' <"$scratch/out")" 'usable Permission denied exit 0 0 '
	diag "$(cat "$scratch/err")"
else
	skip 1 "no mount by another user here"
fi

done_testing
