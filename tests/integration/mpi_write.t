#!/bin/sh
# mpi_write.t - one writable mount of a checkpoint in the directories of several
# ranks
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
. "${TOP_SRCDIR:-.}/tests/tap/ranks.sh"

# Edits a scalar and the first 64 bytes of each moment.
edit() { # VALUE
	echo "$1" >"$mnt/optim/param_groups/0/lr"
	edit_n=0
	for edit_f in $(find "$mnt/optim/state" -name exp_avg | sort); do
		[ "$(stat -c %s "$edit_f")" -ge 64 ] || continue
		printf '%064d' "$1" | dd of="$edit_f" conv=notrunc \
		    status=none
		edit_n=$((edit_n + 1))
	done
}
sums() { # of all stored files
	(cd "$nodes" && find . -type f -path '*/ck/*' | sort | xargs sha256sum)
}

for case in dcp_fsdp2_w3/ckpt \
    fsdp1_sharded_orig_hybridshard_w4/ckpt_rankfiles; do
	name=$(dirname "$case")
	spread "$data/$case" 4
	ok "$name: four ranks mount read-write" start 4 rw "$nodes/%r/ck" "$mnt"
	ok "$name: the directory of every rank is locked" sh -c \
	    "[ \$(ls -d '$nodes'/*/.ck.optimfs/lock | wc -l) = 4 ]"
	status "$name: the directory of one rank cannot be mounted read-write by itself" 3 \
	    "$OPTIMFS" mount -o rw,type=raw "$nodes/1/ck" "$other"
	edit 1
	ok "$name: the edit changes several tensors" [ "$edit_n" -gt 1 ]
	rm -rf "$scratch/want"
	cp -r "$mnt" "$scratch/want"
	ok "$name: the job exits with 0 and commits" stop "$mnt"
	is "$name: no staging directory is left" "$(left)" ""
	together
	"$OPTIMFS" mount "$scratch/all" "$other"
	ok "$name: the stored files have the edited tree" \
	    diff -r "$scratch/want" "$other"
	"$OPTIMFS" umount "$other"
	start 4 ro "$nodes/%r/ck" "$mnt"
	ok "$name: a new mount of four ranks shows the edited tree" diff -r "$scratch/want" "$mnt"
	stop "$mnt"
done

# A full disk on one rank: the vote fails, and no file changes.
ck=$data/fsdp1_sharded_orig_hybridshard_w4/ckpt_rankfiles
spread "$ck" 4
cp -r "$nodes/2" "$scratch/small"
room=$(($(du -sk "$nodes/2" | cut -f 1) + 64))k
if mount -t tmpfs -o size=$room none "$nodes/2" 2>/dev/null; then
	cp -rp "$scratch/small/ck" "$nodes/2"
	sums >"$scratch/before"
	start 4 rw "$nodes/%r/ck" "$mnt"
	edit 2
	"$OPTIMFS" commit "$mnt" >"$scratch/out" 2>"$scratch/err"
	is "commit exits with 3 when the disk of one rank is full" "$?" 3
	like "OFS801 names the rank with the full disk" "$(cat "$scratch/err")" '*OFS801 rank 2*'
	sums >"$scratch/after"
	ok "the failed commit changes no file of any rank" cmp "$scratch/before" "$scratch/after"
	is "the failed commit keeps the staged value" \
	    "$(cat "$mnt/optim/param_groups/0/lr")" 2.0
	mount -o remount,size=64m "$nodes/2"
	status "commit exits with 0 after the disk got more room" 0 "$OPTIMFS" commit "$mnt"
	sums >"$scratch/after"
	ok "the commit after ENOSPC has changed the files" \
	    [ "$(cmp "$scratch/before" "$scratch/after" |
	    wc -l)" = 1 ]
	stop "$mnt"
	umount "$nodes/2"
else
	skip 6 "no tmpfs can be mounted"
fi

# A rank is killed at an arbitrary time in a commit: the result is the old or
# the new checkpoint.
spread "$ck" 4
start 4 ro "$nodes/%r/ck" "$mnt"
rm -rf "$scratch/old"
cp -r "$mnt" "$scratch/old"
stop "$mnt"
outcome() { # which tree does the mount show?
	diff -r "$scratch/old" "$mnt" >/dev/null && echo old && return
	diff -r "$scratch/new" "$mnt" >/dev/null && echo new && return
	echo mixed
}
victim=1
for delay in 0.02 0.05 0.1; do
	start 4 rw,recover=discard "$nodes/%r/ck" "$mnt"
	edit 3
	rm -rf "$scratch/new"
	cp -r "$mnt" "$scratch/new"
	pid=$(pid_of $victim)
	"$OPTIMFS" commit "$mnt" >/dev/null 2>&1 & committing=$!
	sleep $delay
	kill -KILL "$pid"
	ok "the job ends when rank $victim is killed ${delay} s into a commit" gone "$job"
	wait $committing
	start 4 rw,recover=yes "$nodes/%r/ck" "$mnt"
	# What was not committed is still staged.
	like "recover=yes after the kill shows the old or the new tree" "$(outcome)" '[on][le][dw]'
	"$OPTIMFS" abort "$mnt"
	was=$(outcome)
	like "abort after the kill shows the old or the new tree" "$was" '[on][le][dw]'
	stop "$mnt"
	is "no staging directory is left after the recovery" "$(left)" ""
	[ "$was" = old ] || {
		rm -rf "$scratch/old"
		cp -r "$scratch/new" "$scratch/old"
	}
	victim=$(((victim + 1) % 4))
done

# A rank is killed between writes: staged data survives.
start 4 rw "$nodes/%r/ck" "$mnt"
edit 4
sync "$mnt/optim/param_groups/0/lr"
kill -KILL "$(pid_of 3)"
gone "$job"
ok "the mount disappears when a rank is killed" eventually is_unmounted "$mnt"
start 4 rw,recover=yes "$nodes/%r/ck" "$mnt"
is "recover=yes restores the value written before the kill" \
    "$(cat "$mnt/optim/param_groups/0/lr")" 4.0
"$OPTIMFS" abort "$mnt"
stop "$mnt"

ok "no process is left" eventually nothing_left
done_testing
