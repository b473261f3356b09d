#!/bin/sh
# thin.t - optimfs thin: what is kept, what is removed, what interrupts it
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
requires python3

w2=$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w2/ckpt
run=$scratch/run
mkdir "$run"
for step in 100 200 300 400 500 600; do
	cp -r "$w2" "$run/step-$step"
done
mkdir "$run/step-700" && touch "$run/step-700/__0_0.distcp"
ln -s step-600 "$run/best"

# The names that remain.
left() {
	ls "$run" | tr '\n' ' ' | sed 's/ $//'
}

# actions ARGUMENT...: what thin says of each step
actions() {
	"$OPTIMFS" thin --json "$@" "$run" | python3 -c 'import json, sys
for c in json.load(sys.stdin)["checkpoints"]:
    print(c["name"] + ":" + c["action"], end=" ")'
}

before=$(left)
status "which are kept must be said" 2 "$OPTIMFS" thin "$run"
status "a number is a number" 2 "$OPTIMFS" thin --keep-last none "$run"
status "of a checkpoint nothing is removed" 3 "$OPTIMFS" thin --keep-last 1 \
    --yes "$run/step-100"
is "the last ones and every second hundred are kept, and the unfinished one" \
    "$(actions --keep-last 2 --keep-every 200)" \
    "step-100:remove step-200:keep step-300:remove step-400:keep step-500:keep step-600:keep step-700:keep "
is "without --yes nothing is removed" "$(left)" "$before"
like "the bytes are those on the disk" \
    "$("$OPTIMFS" thin --json --keep-last 5 "$run")" \
    "*\"removed\": 1, \"bytes\": $(($(find "$w2" -type f -exec \
    stat -c %b {} + | awk '{ n += $1 } END { print n }') * 512)),*"

# What the next start of the job needs. The directory alone would open as the
# checkpoint that latest names.
echo step-200 >"$run/latest"
is "what latest names is kept" "$(actions --keep-last 1)" \
    "step-100:remove step-200:keep step-300:remove step-400:remove step-500:remove step-600:keep step-700:keep "
mv "$run/step-400" "$run/iter_0000400"
echo 400 >"$run/latest_checkpointed_iteration.txt"
is "and what Megatron's tracker names, if that is another one" \
    "$(actions --keep-last 1)" \
    "step-100:remove step-200:keep step-300:remove iter_0000400:keep step-500:remove step-600:keep step-700:keep "
mv "$run/iter_0000400" "$run/step-400"
rm "$run/latest" "$run/latest_checkpointed_iteration.txt"
mv "$run/step-600/__1_0.distcp" "$scratch/lost"
is "a damaged one is kept, and does not count" "$(actions --keep-last 1)" \
    "step-100:remove step-200:remove step-300:remove step-400:remove step-500:keep step-600:keep step-700:keep "
mv "$scratch/lost" "$run/step-600/__1_0.distcp"

# What is in use.
exec 7<"$run/step-100/.metadata"
like "what a program has open is kept" \
    "$("$OPTIMFS" thin --keep-last 5 "$run")" \
    "* keep  *step-100: OFS871 *step-100/.metadata is open in a program*"
exec 7<&-
no_mount=$(tap_can_mount)
if [ -z "$no_mount" ]; then
	"$OPTIMFS" mount "$run/step-100" "$(point mnt)"
	like "what is mounted is kept" "$("$OPTIMFS" thin --keep-last 5 "$run")" \
	    "* keep  *step-100: mounted at $scratch/mnt*"
	"$OPTIMFS" umount "$scratch/mnt"
else
	skip 1 "cannot mount"
fi
mkdir -p "$run/.step-200.optimfs/removed/deep"
cp "$w2/.metadata" "$run/.step-200.optimfs/removed/deep/file"
like "what a killed thin left is said" "$("$OPTIMFS" thin --keep-last 9 "$run")" \
    "*0 of 7 checkpoints would be removed*1 that an interrupted thin had removed *"
status "it is deleted" 0 "$OPTIMFS" thin --keep-last 9 --yes "$run"
not_ok "with its directory" ls -d "$run/.step-200.optimfs"

status "the others are removed" 0 "$OPTIMFS" thin --keep-last 2 --keep-every 200 \
    --yes "$run"
is "and only they" "$(left)" "best step-200 step-400 step-500 step-600 step-700"
is "nothing else is left behind" "$(ls -A "$run" | grep '^\.')" ''
status "what is kept is whole" 0 "$OPTIMFS" fsck --data "$run/step-200"
done_testing
