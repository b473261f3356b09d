#!/bin/sh
# others.t - what other programs, users and disks do while a checkpoint is
# mounted for writing
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

requires mount
o=$OPTIMFS
data=$TOP_SRCDIR/tests/data
faultlib=$TOP_BUILDDIR/.libs/faultlib.so
lr=optim/param_groups/0/lr
w=model/norm.weight
ERROR=4 # FAULT_ERROR
cd "$scratch" || exit 99
mnt=$(point mnt)

dcp() {
	rm -rf ck .ck.optimfs
	cp -r "$data/pytorch/dcp_fsdp2_w2/ckpt" ck
	chmod -R u+w ck
}
ranks() {
	rm -rf ck .ck.optimfs
	cp -r "$data/pytorch/fsdp1_sharded_orig_fullshard_w2/ckpt_rankfiles" ck
	chmod -R u+w ck
}
serve() { # PROGRAM...: mounts ck in the foreground
	"$@" "$o" mount -q -f -o rw ck "$mnt" 2>daemon.err &
	daemon=$!
	eventually test -e "$mnt/optim"
}
edit() {
	echo 0.25 >"$mnt/$lr" && printf ABCDEFGH |
	    dd of="$mnt/$w" conv=notrunc 2>/dev/null
}
ended() { # exited: the exit status of the daemon
	wait "$daemon"
	exited=$?
}
said() {
	cat "$scratch/err"
}

# --- what is kept is on the disk ---

if sanitized; then # does not want to be preloaded after faultlib.so
	skip 12 "a sanitizer"
else
	dcp
	serve env LD_PRELOAD="$faultlib" FAULT_TRACE=trace
	edit
	n=$(wc -l <trace)
	ok "umount --keep of a mount with changes succeeds" "$o" umount --keep "$mnt"
	ended
	is "its daemon ends without an error" $exited 0
	for f in journal data/; do
		like "umount --keep syncs $f" \
		    "$(tail -n +"$n" trace | grep 'sync.*optimfs/' | grep "$f")" "?*"
	done

	dcp
	serve env LD_PRELOAD="$faultlib" FAULT_TRACE=trace
	edit
	n=$(wc -l <trace)
	kill $daemon
	ended
	is "a daemon that keeps changes at a signal ends without an error" $exited 0
	for f in journal data/; do
		like "a signal syncs $f" \
		    "$(tail -n +"$n" trace | grep 'sync.*optimfs/' | grep "$f")" "?*"
	done

	broken() { # mounts, edits; the next record cannot be written
		rm -f broken
		dcp
		serve env LD_PRELOAD="$faultlib" FAULT_PATH=.ck.optimfs/ \
		    FAULT_AFTER="$scratch/broken" FAULT_NTH=1 \
		    FAULT_HOW=$ERROR FAULT_CODE=5
		edit
		touch broken
	}
	broken
	status "umount --keep fails if the disk does" 3 "$o" umount --keep "$mnt"
	like "with the error" "$(said)" "*OFS8??*nput/output error*"
	ok "and it stays mounted" test -e "$mnt/optim"
	kill $daemon
	ended
	broken
	kill $daemon
	ended
	is "a signal ends a daemon that cannot keep its changes with 3" $exited 3
	like "which says so" "$(cat daemon.err)" "*not all of them are on the disk*"
fi

# --- every end has a deadline, or a word ---

WAIT=8 # FAULT_WAIT
if sanitized; then
	skip 12 "a sanitizer"
else
	hangs() { # PATH: mounts; once begun, the next change of PATH takes forever
		rm -f begun gate
		dcp
		serve env LD_PRELOAD="$faultlib" FAULT_TRACE=trace \
		    ${ticks:+FAULT_TICKS=$ticks} FAULT_PATH="$1" FAULT_AFTER="$scratch/begun" FAULT_NTH=1 \
		    FAULT_HOW=$WAIT FAULT_GATE="$scratch/gate"
		echo 0.25 >"$mnt/$lr"
		touch begun
	}
	hangs "$mnt"
	kill $daemon
	ended
	is "a daemon whose mount cannot be removed ends with 3" $exited 3
	like "and says what it has not waited for" "$(cat daemon.err)" \
	    "*ends without waiting for the unmount: changes*may be lost*"
	umount -l "$mnt"

	hangs .ck.optimfs/
	n=$(wc -l <trace)
	stuck() {
		tail -n +$((n + 1)) trace | grep -q '	[cw]	.*ck\.optimfs'
	}
	sh -c 'echo 0.5 >"$1"' - "$mnt/$lr" 2>/dev/null &
	writer=$!
	eventually stuck
	kill $daemon
	ended
	is "a daemon with a request that does not end ends with 3" $exited 3
	like "and says that it aborts the request" "$(cat daemon.err)" \
	    "*requests are still in flight: aborting them*"
	like "and what it has not waited for" "$(cat daemon.err)" \
	    "*ends without waiting for requests in flight: changes*may be lost*"
	wait $writer

	ticks=1500 # of 50 ms: 75 s
	hangs .ck.optimfs/new # of a commit only
	umount -i "$mnt"
	ok "a daemon that is slow to commit says so" \
	    eventually grep -q 'is unmounted, and still busy with its changes' daemon.err
	touch gate
	ended
	is "and ends when it has committed" $exited 0
	is "what it has committed is there" "$("$o" cat ck $lr)" 0.25

	ticks=
	hangs .ck.optimfs/new
	umount -i "$mnt"
	ended
	is "a daemon whose commit does not move for ten minutes ends with 3" $exited 3
	like "and says that it gives up, and what becomes of the changes" \
	    "$(cat daemon.err)" "*without waiting for its changes:*stay for the next mount*"
	"$o" mount -o rw,recover=yes ck "$mnt"
	is "the next mount has them" "$(cat "$mnt/$lr")" 0.25
	"$o" umount "$mnt"
	is "and commits them" "$("$o" cat ck $lr)" 0.25
fi

# --- the next mount says what it found ---

dcp
serve
edit
"$o" umount --keep "$mnt"
wait $daemon
"$o" mount -o rw,recover=yes ck "$mnt" 2>said
like "the next mount says what it continues with" "$(cat said)" \
    "*changes of an earlier mount: 2 changed files*"
is "and has it" "$(cat "$mnt/$lr")" 0.25
"$o" umount --keep "$mnt"
printf 'torn' >>.ck.optimfs/journal
"$o" mount -o rw,recover=yes ck "$mnt" 2>said
like "and what it could not recover" "$(cat said)" "*OFS810*4 bytes*"
"$o" umount "$mnt"

# --- by force ---

dcp
serve
echo 0.5 >"$mnt/$lr"
"$o" umount --force "$mnt"
ended
is "a daemon whose mount was removed by force ends" $exited 0
is "and has not committed" "$("$o" cat ck $lr)" 0.001
status "but kept the changes, which the next mount finds" 3 \
    "$o" mount -o rw ck "$mnt"
like "and names" "$(said)" "*OFS811*"

# --- an exchange ---

ranks
serve
echo 0.3 >"$mnt/$lr" # in both rank files
mkdir ck/step4 && echo mine >ck/step4/rank0
echo mine >ck/notes
ok "a commit of several files succeeds beside files of others" "$o" commit "$mnt"
is "and keeps them" "$(cat ck/notes ck/step4/rank0)" "mine
mine"
echo 0.4 >"$mnt/$lr"
f=$(ls ck/*.pt | head -1)
exec 5<>"$f"
status "a commit is refused while another program has a file open for writing" 3 \
    "$o" commit "$mnt"
like "with its name" "$(said)" "*OFS805 $(basename "$f") is open for writing*"
exec 5>&-
ok "and succeeds when it is closed" "$o" commit "$mnt"
echo 0.5 >"$mnt/$lr"
cp "$f" other && mv other "$f"
status "a commit is refused when another program has saved a file" 3 \
    "$o" commit "$mnt"
like "with its name" "$(said)" "*$(basename "$f")*replaced since*"
"$o" umount --keep "$mnt"
wait $daemon
written() { # by the daemon of a checkpoint so far
	sed -n 's/^wchar: //p' "/proc/$(sed -n 's/^pid //p' "$1/.ck.optimfs/lock")/io"
}
if sanitized; then
	skip 3 "a sanitizer"
else
	ranks
	rm -f begun
	serve env LD_PRELOAD="$faultlib" FAULT_PATH=.ck.optimfs/gen/ FAULT_NTH=3 \
	    FAULT_AFTER="$scratch/begun" FAULT_HOW=$ERROR FAULT_CODE=22
	echo 0.3 >"$mnt/$lr"
	before=$(written .)
	touch begun
	status "a file system that cannot exchange directories is not written to" 4 \
	    "$o" commit "$mnt"
	like "and the message says what to do" "$(said)" "*OFS824*copy the checkpoint elsewhere*"
	ok "before the new files are written" \
	    [ $(($(written .) - before)) -lt "$(stat -c %s ck/* | sort -n | tail -n 1)" ]
	"$o" umount --keep "$mnt"
	ended
fi
if [ "$(id -u)" = 0 ] && mkdir ov merged && mount -t tmpfs none ov 2>/dev/null; then
	mkdir ov/lo ov/up ov/wk
	ranks && mv ck ov/lo/
	mount -t overlay overlay -o lowerdir=ov/lo,upperdir=ov/up,workdir=ov/wk merged
	"$o" mount -q -o rw merged/ck "$mnt"
	echo 0.3 >"$mnt/$lr"
	before=$(written merged)
	status "a directory of a lower layer of overlayfs cannot be exchanged" 4 \
	    "$o" commit "$mnt"
	like "and the message says what to do" "$(said)" "*OFS824*copy the checkpoint elsewhere*"
	ok "before the new files are written" \
	    [ $(($(written merged) - before)) -lt "$(stat -c %s merged/ck/* | sort -n | tail -n 1)" ]
	"$o" umount --keep "$mnt"
	umount merged ov
else
	skip 3 "no overlayfs"
fi

# --- a planted link ---

dcp
mkdir victim target
ln -s "$scratch/victim" target/model
not_ok "cp -r does not follow a link to a directory in its destination" \
    "$o" cp -r ck / target
like "but names it" "$(said)" "*OFS020 target/model*"
is "nothing is copied through the link" "$(ls victim)" ""
rm -r target && mkdir -p target/optim/param_groups/0
echo secret >victim/file
ln -s "$scratch/victim/file" target/$lr
not_ok "nor a link to a file" "$o" cp -r ck / target
is "nothing is written through that" "$(cat victim/file)" secret
rm target/$lr
ok "cp -r into directories that exist succeeds" "$o" cp -r ck / target
ok "cp -r over its own files, too" "$o" cp -r ck / target

done_testing
