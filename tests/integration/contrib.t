#!/bin/sh
# contrib.t - the examples in contrib/ are valid
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
requires systemd-analyze python3

cd "$TOP_SRCDIR/contrib" || exit 99

# The name of a unit has to be its mount point, escaped.
for unit in systemd/*.mount systemd/*.automount; do
	ok "systemd-analyze accepts $unit" systemd-analyze verify --man=no "$PWD/$unit"
	where=$(sed -n 's/^Where=//p' "$unit")
	is "$unit is named after its mount point" "${unit#systemd/}" \
	    "$(systemd-escape -p --suffix="${unit##*.}" "$where")"
done

for script in slurm/*.sbatch; do
	ok "bash parses $script" bash -n "$script"
done

for manifest in kubernetes/*.yaml; do
	ok "$manifest is a Kubernetes Job or Pod" /usr/bin/python3 -c '
import sys, yaml
doc = yaml.safe_load(open(sys.argv[1]))
assert doc["kind"] in ("Job", "Pod") and doc["apiVersion"] and doc["metadata"]["name"]
' "$manifest"
done

# Every verb in an example exists.
for verb in $(grep -rhoE '(optimfs |args: \[)(mount|umount|reshard|diff|[a-z]+)' \
    slurm kubernetes | grep -oE '[a-z]+$' | sort -u); do
	ok "optimfs has the verb $verb" "$OPTIMFS" "$verb" --help
done
done_testing
