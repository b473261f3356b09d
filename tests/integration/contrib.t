#!/bin/sh
# contrib.t - the examples of contrib/ are what their readers take
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
requires systemd-analyze python3

cd "$TOP_SRCDIR/contrib" || exit 99

# A unit's name is that of the mount point in it.
for unit in systemd/*.mount systemd/*.automount; do
	ok "$unit is a unit" systemd-analyze verify --man=no "$PWD/$unit"
	where=$(sed -n 's/^Where=//p' "$unit")
	is "and has the name of its mount point" "${unit#systemd/}" \
	    "$(systemd-escape -p --suffix="${unit##*.}" "$where")"
done

for script in slurm/*.sbatch; do
	ok "$script is a script" bash -n "$script"
done

for manifest in kubernetes/*.yaml; do
	ok "$manifest is YAML of a kind that Kubernetes has" /usr/bin/python3 -c '
import sys, yaml
doc = yaml.safe_load(open(sys.argv[1]))
assert doc["kind"] in ("Job", "Pod") and doc["apiVersion"] and doc["metadata"]["name"]
' "$manifest"
done

# Verbs that the examples use exist.
for verb in $(grep -rhoE '(optimfs |args: \[)(mount|umount|reshard|diff|[a-z]+)' \
    slurm kubernetes | grep -oE '[a-z]+$' | sort -u); do
	ok "optimfs $verb exists" "$OPTIMFS" "$verb" --help
done
done_testing
