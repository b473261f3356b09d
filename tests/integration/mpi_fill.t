#!/bin/sh
# mpi_fill.t - templates made by mkfs are filled through mounts of several ranks
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
. "${TOP_SRCDIR:-.}/tests/tap/ranks.sh"

# One directory that all ranks see: rank 0 writes. Resharding by cp from one job
# to another.
spread "$data/dcp_fsdp2_w3/ckpt" 2
"$OPTIMFS" mkfs --like "$data/dcp_fsdp2_w3/ckpt" --layout dcp@5 "$scratch/new5"
start 2 ro "$nodes/%r/ck" "$other"
first=$job
ok "two ranks mount a template read-write" start 2 rw "$scratch/new5" "$mnt"
status "cp -r from the mount of one job to that of another succeeds" 0 cp -r "$other/." "$mnt/"
ok "the job of the template exits with 0" stop "$mnt"
ok "the job of the source exits with 0" stop "$other" "$first"
status "the filled template has the values of the source" 0 \
    "$OPTIMFS" diff "$data/dcp_fsdp2_w3/ckpt" \
    "$scratch/new5"

# One directory per rank. Later the same mounts are used after the commit.
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
not_ok "mkfs fails when the directory of one rank is not empty" \
    ranks mkfs --like "$ck" --layout dcp@4 "$nodes/%r/ck"
like "OFS830 names the rank whose directory is not empty" "$(cat "$scratch/err")" '*OFS830 rank 2*'
is "the failed mkfs makes nothing" "$(ls -d "$nodes"/?/ck; left)" "$nodes/2/ck"
rm -r "$nodes/2"
not_ok "mkfs fails when the directory of one rank cannot be made" \
    ranks mkfs --like "$ck" --layout dcp@4 "$nodes/%r/ck"
is "the failed mkfs removes the directories of the other ranks" \
    "$(ls -d "$nodes"/?/ck 2>/dev/null; left)" ""
fresh
ok "three ranks mount templates in their own directories" \
    start 3 rw "$nodes/%r/ck" "$mnt"
status "cp -r fills the template of three ranks" 0 cp -r "$other/." "$mnt/"
ok "the job exits with 0 and commits the template" stop "$mnt"
is "each of three ranks has some of the .distcp files" \
    "$(ls "$nodes"/*/ck/*.distcp | cut -c 1-$((${#nodes} + 2)) |
    sort -u | wc -l)" 3
is "no staging directory of the template is left" "$(left)" ""
together
status "the three directories together have the values of the source" 0 \
    "$OPTIMFS" diff "$ck" "$scratch/all"
fresh
mkdir "$scratch/m0" "$scratch/m1" "$scratch/m2"
ok "every rank mounts the template" start 3 rw,mount_ranks=all "$nodes/%r/ck" \
    "$scratch/m%r"
is "one message says that the others are read-only" \
    "$(grep -c 'rank 0 writes, the mounts of 2 other ranks' "$scratch/log") \
$(grep -c read-only "$scratch/log")" "1 1"
eventually is_mounted "$scratch/m1" && eventually is_mounted "$scratch/m2"
is "the mount of rank 1 is empty at first" "$(ls "$scratch/m1")" ""
cp -r "$other/." "$scratch/m0/"
is "the mount of rank 1 is empty before the commit" "$(ls "$scratch/m1")" ""
status "commit of the template exits with 0" 0 "$OPTIMFS" commit "$scratch/m0"
ok "rank 0 shows the tree after the commit" diff -r "$other" "$scratch/m0"
is "the mount of rank 1 stays empty after the commit" "$(ls "$scratch/m1")" ""
echo 0.25 >"$scratch/m0/optim/param_groups/0/lr"
status "commit of an edit in the same mount exits with 0" 0 "$OPTIMFS" commit "$scratch/m0"
is "rank 0 shows the edited value" "$(cat "$scratch/m0/optim/param_groups/0/lr")" 0.25
for r in 0 1 2; do "$OPTIMFS" umount "$scratch/m$r"; done
ok "the job ends after the last umount" gone "$job"
is "no staging directory is left after two commits" "$(left)" ""
fresh
start 3 rw "$nodes/%r/ck" "$mnt"
cp -r "$other/." "$mnt/"
pid=$(pid_of 2)
"$OPTIMFS" commit "$mnt" >/dev/null 2>&1 & committing=$!
sleep 0.05
kill -KILL "$pid"
gone "$job"
wait $committing
ok "mount with recover=yes succeeds after a rank died in the commit" \
    start 3 rw,recover=yes "$nodes/%r/ck" "$mnt"
ok "the recovered template commits at umount" stop "$mnt"
is "no staging directory is left after the recovery" "$(left)" ""
together
status "the recovered template has the values of the source" 0 "$OPTIMFS" diff "$ck" "$scratch/all"
"$OPTIMFS" umount "$other"

# Each rank has a symbolic link to the newest of several checkpoints.
spread "$ck" 3
for r in 0 1 2; do ln -s ck "$nodes/$r/latest"; done
ok "three ranks mount through a symbolic link" start 3 rw "$nodes/%r/latest" "$mnt"
echo 0.125 >"$mnt/optim/param_groups/0/lr"
stop "$mnt"
together
is "the edit goes to the target of the link" \
    "$("$OPTIMFS" cat "$scratch/all" optim/param_groups/0/lr)" 0.125
is "the links are still there after the commit" "$(readlink "$nodes"/?/latest | uniq)" ck

ok "no process is left" eventually nothing_left
done_testing
