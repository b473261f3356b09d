#!/bin/sh
# values.t - values that a pickle writes as objects: shown, edited, copied
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

source=$TOP_SRCDIR/tests/data/evidence/values.pt

shows() {
	is "$2 is shown" "$("$OPTIMFS" cat "$1" "extra/$2" 2>&1)" "$3"
}

shows "$source" args '{"lr": 0.1, "layers": 2, "betas": [0.9, 0.95], "inner": {"x": 1}}'
shows "$source" empty '{}'
shows "$source" simple '{"a": 1, "b": "x"}'
shows "$source" queue '[]'
shows "$source" when '2026-01-02 03:04:05+00:00'
shows "$source" took '1 day, 0:00:03'
shows "$source" range 'range(3, 9, 2)'
like "an object of another class is named" "$("$OPTIMFS" cat "$source" extra/config)" \
    '{"__opaque__": "__main__.Config", *'

no_mount=$(tap_can_mount)
if [ -z "$no_mount" ]; then
	mnt=$scratch/mnt
	mkdir "$mnt"
	cp "$source" "$scratch/ck.pt" && chmod u+w "$scratch/ck.pt"
	"$OPTIMFS" mount -o rw "$scratch/ck.pt" "$mnt"
	echo '{"lr": 1, "betas": [0, 1], "inner": {"x": 5}, "new": "s"}' >"$mnt/extra/args"
	echo '[1, 2]' >"$mnt/extra/numbers"
	for f in config configs ellipsis queue when range simple; do
		"$OPTIMFS" cat "$source" "extra/$f" >"$scratch/text"
		ok "$f takes the text that it shows" cp "$scratch/text" "$mnt/extra/$f"
	done
	status "and all can be committed" 0 "$OPTIMFS" umount "$mnt"
	shows "$scratch/ck.pt" args '{"lr": 1.0, "betas": [0.0, 1.0], "inner": {"x": 5}, "new": "s"}'
	shows "$scratch/ck.pt" numbers '[1, 2.0]'
	is "the rest is as it was" "$("$OPTIMFS" cat "$scratch/ck.pt" extra/config)" \
	    "$("$OPTIMFS" cat "$source" extra/config)"
	"$OPTIMFS" mkfs --like "$source" --layout dcp@2 "$scratch/new" 2>/dev/null
	"$OPTIMFS" mount -o rw "$scratch/new" "$mnt"
	"$OPTIMFS" cp -r "$source" / "$scratch/tree"
	status "a push takes what the source shows" 0 cp -r "$scratch/tree/." "$mnt/"
	status "and completes" 0 "$OPTIMFS" umount "$mnt"
	is "the pushed args are a namespace still" "$("$OPTIMFS" cat "$scratch/new" extra/args)" \
	    "$("$OPTIMFS" cat "$source" extra/args)"
	is "the pushed object is the source's" "$("$OPTIMFS" cat "$scratch/new" extra/config)" \
	    "$("$OPTIMFS" cat "$source" extra/config)"
	cp -r "$TOP_SRCDIR/tests/data/evidence/param_names_dcp" "$scratch/named" && chmod -R u+w "$scratch/named"
	"$OPTIMFS" mount -o rw "$scratch/named" "$mnt"
	echo '["value", "query"]' >"$mnt/optim/param_groups/0/param_names"
	status "a list that names IDs can be changed in DCP, though it is read with the index" 0 \
	    "$OPTIMFS" umount "$mnt"
	is "the states have the new names" \
	    "$("$OPTIMFS" cat "$scratch/named" optim/state/value/exp_avg | od -An -tf4 -N4 | tr -d ' ')" 1
	# What is removed leaves no empty dict, which would be a value.
	python3 "$TOP_SRCDIR/tests/support/opaque.py" --integers "$scratch/keys.pt"
	is "an empty dict is a value" "$("$OPTIMFS" ls "$scratch/keys.pt" extra/plain | grep -c "(1, 'a, b')")" 1
	"$OPTIMFS" mount -o rw "$scratch/keys.pt" "$mnt"
	rm -r "$mnt/extra/sched/7"
	status "a directory that was a dict can be removed" 0 "$OPTIMFS" umount "$mnt"
	is "it is gone" "$("$OPTIMFS" ls "$scratch/keys.pt" extra/sched)" milestones/
	python3 "$TOP_SRCDIR/tests/support/opaque.py" --shared "$scratch/shared.pt"
	"$OPTIMFS" mount -o rw "$scratch/shared.pt" "$mnt"
	rm -r "$mnt/extra/s/a" "$mnt/extra/s/b"
	status "so can both places of one dict" 0 "$OPTIMFS" umount "$mnt"
	is "they are gone" "$("$OPTIMFS" ls "$scratch/shared.pt" extra/s)" z
else
	skip 22 "cannot mount"
fi
done_testing
