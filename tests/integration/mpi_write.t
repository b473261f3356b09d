#!/bin/sh
# mpi_write.t - a checkpoint in the directories of several ranks is written
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
. "${TOP_SRCDIR:-.}/tests/tap/ranks.sh"

# Some of each: a value, a tensor in part, one as a whole.
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
sums() { # of all files, as they lie
	(cd "$nodes" && find . -type f -path '*/ck/*' | sort | xargs sha256sum)
}

for case in dcp_fsdp2_w3/ckpt \
    fsdp1_sharded_orig_hybridshard_w4/ckpt_rankfiles; do
	name=$(dirname "$case")
	spread "$data/$case" 4
	ok "$name: mounted for writing" start 4 rw "$nodes/%r/ck" "$mnt"
	ok "$name: every directory is locked" sh -c \
	    "[ \$(ls -d '$nodes'/*/.ck.optimfs/lock | wc -l) = 4 ]"
	status "$name: one of them alone cannot be written" 3 \
	    "$OPTIMFS" mount -o rw,type=raw "$nodes/1/ck" "$other"
	edit 1
	ok "$name: several tensors" [ "$edit_n" -gt 1 ]
	rm -rf "$scratch/want"
	cp -r "$mnt" "$scratch/want"
	ok "$name: the job ends well" stop "$mnt"
	is "$name: and leaves nothing" "$(left)" ""
	together
	"$OPTIMFS" mount "$scratch/all" "$other"
	ok "$name: the files say what was written" \
	    diff -r "$scratch/want" "$other"
	"$OPTIMFS" umount "$other"
	start 4 ro "$nodes/%r/ck" "$mnt"
	ok "$name: the ranks, too" diff -r "$scratch/want" "$mnt"
	stop "$mnt"
done

# A disk that is full: the vote fails, and nothing has changed.
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
	is "one disk is full: the commit fails" "$?" 3
	like "it is said which" "$(cat "$scratch/err")" '*OFS801 rank 2*'
	sums >"$scratch/after"
	ok "all is as it was" cmp "$scratch/before" "$scratch/after"
	is "what was written is still there" \
	    "$(cat "$mnt/optim/param_groups/0/lr")" 2.0
	mount -o remount,size=64m "$nodes/2"
	status "with more room it works" 0 "$OPTIMFS" commit "$mnt"
	sums >"$scratch/after"
	ok "and is there" [ "$(cmp "$scratch/before" "$scratch/after" |
	    wc -l)" = 1 ]
	stop "$mnt"
	umount "$nodes/2"
else
	skip 6 "no tmpfs can be mounted"
fi

# Ranks die in the middle of a commit, at a time that nobody chose.
spread "$ck" 4
start 4 ro "$nodes/%r/ck" "$mnt"
rm -rf "$scratch/old"
cp -r "$mnt" "$scratch/old"
stop "$mnt"
outcome() { # is it the old one, or what edit made?
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
	ok "rank $victim dies ${delay} s into a commit: the job ends" gone "$job"
	wait $committing
	start 4 rw,recover=yes "$nodes/%r/ck" "$mnt"
	# what was not committed is staged still
	like "old or new" "$(outcome)" '[on][le][dw]'
	"$OPTIMFS" abort "$mnt"
	was=$(outcome)
	like "and so without what is staged" "$was" '[on][le][dw]'
	stop "$mnt"
	is "nothing is left" "$(left)" ""
	[ "$was" = old ] || {
		rm -rf "$scratch/old"
		cp -r "$scratch/new" "$scratch/old"
	}
	victim=$(((victim + 1) % 4))
done

# A rank dies while others write: what was written is kept.
start 4 rw "$nodes/%r/ck" "$mnt"
edit 4
sync "$mnt/optim/param_groups/0/lr"
kill -KILL "$(pid_of 3)"
gone "$job"
ok "the mount goes with a rank that dies" sh -c "! grep -q ' $mnt ' /proc/mounts"
start 4 rw,recover=yes "$nodes/%r/ck" "$mnt"
is "the next has what was written" "$(cat "$mnt/optim/param_groups/0/lr")" 4.0
"$OPTIMFS" abort "$mnt"
stop "$mnt"

is "no process is left" "$(pgrep -f "$OPTIMFS.*mount.*$scratch" |
    grep -vx $$)" ""
done_testing
