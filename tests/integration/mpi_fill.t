#!/bin/sh
# mpi_fill.t - a checkpoint that several ranks are filled with
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
. "${TOP_SRCDIR:-.}/tests/tap/ranks.sh"

# A directory that all see: rank 0 alone does it. Resharding between two jobs.
spread "$data/dcp_fsdp2_w3/ckpt" 2
"$OPTIMFS" mkfs --like "$data/dcp_fsdp2_w3/ckpt" --layout dcp@5 "$scratch/new5"
start 2 ro "$nodes/%r/ck" "$other"
first=$job
ok "a job mounts what is to be filled" start 2 rw "$scratch/new5" "$mnt"
status "cp -r from one to the other" 0 cp -r "$other/." "$mnt/"
ok "the one ends" stop "$mnt"
ok "and the other" stop "$other" "$first"
status "with the same values" 0 "$OPTIMFS" diff "$data/dcp_fsdp2_w3/ckpt" \
    "$scratch/new5"

# Directories of each rank that are to be filled. The mounts go on.
ck=$data/dcp_fsdp2_w3/ckpt
"$OPTIMFS" mount "$ck" "$other"
fresh() {
	rm -rf "$nodes"
	for fresh_r in 0 1 2; do mkdir -p "$nodes/$fresh_r"; done
	ranks mkfs --like "$ck" --layout dcp@4 "$nodes/%r/ck"
}
ranks() {
	mpirun --oversubscribe -n 3 "$OPTIMFS" "$@"
}
mkdir -p "$nodes/0" "$nodes/2/ck"
rmdir "$nodes/1/ck" 2>/dev/null
rm -rf "$nodes/0/ck" "$nodes/1/ck"
: >"$nodes/2/ck/something"
not_ok "mkfs: the directory of one rank is not empty" \
    ranks mkfs --like "$ck" --layout dcp@4 "$nodes/%r/ck"
like "and is named, with the rank" "$(cat "$scratch/err")" '*OFS830 rank 2*'
is "and nothing is made" "$(ls -d "$nodes"/?/ck; left)" "$nodes/2/ck"
rm -r "$nodes/2"
not_ok "that of one rank cannot be made" \
    ranks mkfs --like "$ck" --layout dcp@4 "$nodes/%r/ck"
is "and no other is left" "$(ls -d "$nodes"/?/ck 2>/dev/null; left)" ""
fresh
ok "directories of three ranks are to be filled" \
    start 3 rw "$nodes/%r/ck" "$mnt"
status "cp -r" 0 cp -r "$other/." "$mnt/"
ok "the job ends" stop "$mnt"
is "each has some of it" "$(ls "$nodes"/*/ck/*.distcp | cut -c 1-$((${#nodes} + 2)) |
    sort -u | wc -l)" 3
is "and nothing is left" "$(left)" ""
together
status "all have the same values" 0 "$OPTIMFS" diff "$ck" "$scratch/all"
fresh
mkdir "$scratch/m0" "$scratch/m1" "$scratch/m2"
ok "every rank has a mount" start 3 rw,mount_ranks=all "$nodes/%r/ck" \
    "$scratch/m%r"
eventually is_mounted "$scratch/m1" && eventually is_mounted "$scratch/m2"
is "there is nothing yet" "$(ls "$scratch/m1")" ""
cp -r "$other/." "$scratch/m0/"
is "nor before the commit" "$(ls "$scratch/m1")" ""
status "commit" 0 "$OPTIMFS" commit "$scratch/m0"
ok "then it is there" diff -r "$other" "$scratch/m0"
is "but not where nothing was mounted" "$(ls "$scratch/m1")" ""
echo 0.25 >"$scratch/m0/optim/param_groups/0/lr"
status "it is edited, and committed again" 0 "$OPTIMFS" commit "$scratch/m0"
is "which is seen, too" "$(cat "$scratch/m0/optim/param_groups/0/lr")" 0.25
for r in 0 1 2; do "$OPTIMFS" umount "$scratch/m$r"; done
ok "the job ends well" gone "$job"
is "and nothing is left" "$(left)" ""
fresh
start 3 rw "$nodes/%r/ck" "$mnt"
cp -r "$other/." "$mnt/"
pid=$(pid_of 2)
"$OPTIMFS" commit "$mnt" >/dev/null 2>&1 & committing=$!
sleep 0.05
kill -KILL "$pid"
gone "$job"
wait $committing
ok "a rank died in the commit: mounted again" \
    start 3 rw,recover=yes "$nodes/%r/ck" "$mnt"
ok "and committed" stop "$mnt"
is "nothing is left" "$(left)" ""
together
status "all is there" 0 "$OPTIMFS" diff "$ck" "$scratch/all"
"$OPTIMFS" umount "$other"

# A link on each rank to the last of several checkpoints.
spread "$ck" 3
for r in 0 1 2; do ln -s ck "$nodes/$r/latest"; done
ok "by a link" start 3 rw "$nodes/%r/latest" "$mnt"
echo 0.125 >"$mnt/optim/param_groups/0/lr"
stop "$mnt"
together
is "what it leads to is written" \
    "$("$OPTIMFS" cat "$scratch/all" optim/param_groups/0/lr)" 0.125
is "and the links are still there" "$(readlink "$nodes"/?/latest | uniq)" ck

is "no process is left" "$(pgrep -f "$OPTIMFS.*mount.*$scratch" |
    grep -vx $$)" ""
done_testing
