#!/bin/sh
# zerocp.t - state is moved between ZeRO-3 and DCP with cp, and compared
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
requires mount

data=$TOP_SRCDIR/tests/data
cd "$scratch" || exit 99

show() { # CHECKPOINT NAME [OPTIONS]: mounted at ./NAME
	mkdir "$2"
	status "$2 is mounted" 0 "$OPTIMFS" mount $3 "$1" "$scratch/$2"
}
# made NAME LAYOUT: of the mount ./zero, as a directory made before anything is
# copied into it.
made() {
	status "$1: mkfs" 0 "$OPTIMFS" mkfs --like "$2" --layout "$3" "$1"
	show "$1" "$1.m" "-o rw"
	ok "$1: cp -r into it" cp -r "$4/." "$1.m"
	status "$1: umount" 0 "$OPTIMFS" umount "$scratch/$1.m"
	rmdir "$1.m"
}
# differ A B: the files in which they differ, and those that one has alone.
differ() {
	diff -r "$1" "$2" | sed -n -e 's|: |/|' \
	    -e "s|^diff -r $1/\([^ ]*\) .*|\1|p" \
	    -e "s|^Only in $1/|< |p" -e "s|^Only in $2/|> |p" \
	    -e "s|^Binary files $1/\([^ ]*\) .*|\1|p"
}

# ZeRO-3 to DCP and back: nothing is lost, and the way back has what a view
# says of itself.
ck=$data/deepspeed/z3_ws2_subgroups/ckpt
show "$ck" zero
ok "cp -r of the view dcp@3" cp -r zero/.optimfs/view/dcp@3 dcp
show dcp dcp.m
is "DCP by the view has all of ZeRO-3" "$(differ zero dcp.m)" ""
made made "$ck" dcp@2 zero
show made made.m
is "so has DCP by mkfs and cp" "$(differ zero made.m)" ""
ok "cp -r of the view zero3@4" cp -r made.m/.optimfs/view/zero3@4 back
show back back.m
is "ZeRO-3 of that has the same optim/" "$(differ zero/optim back.m/optim)" ""
is "and the same else, but how many ranks there are" \
    "$(differ zero back.m)" "extra/dp_world_size"

made filled made zero3@2 made.m
show filled filled.m
is "ZeRO-3 by mkfs and cp, too" "$(differ zero filled.m)" ""

# From what FSDP wrote: what optimfs(5) lists, and no more. A frozen parameter
# is in no group of DeepSpeed's.
show "$data/pytorch/dcp_fsdp2_w3/ckpt" fsdp
ok "cp -r of the view zero3@2" cp -r fsdp/.optimfs/view/zero3@2 zero3
show zero3 zero3.m
is "only DeepSpeed has fp32 weights, and what its loaders ask for" \
    "$(differ fsdp zero3.m | sed 's|state/.*/fp32|state/*/fp32|' | sort -u)" \
    "$(printf '%s\n' '> extra' '> optim/state/*/fp32' \
	optim/param_groups/0/params optim/param_groups/1/params)"
is "only DCP lists parameters that are frozen" \
    "$(diff -r fsdp/optim/param_groups zero3.m/optim/param_groups |
	grep '^[<>]')" "$(printf '< %s\n' adapter.weight adapter.bias)"
cp -r zero3.m/.optimfs/view/dcp@3 dcp3
show dcp3 dcp3.m
is "and DCP of it has them, too" "$(differ zero3.m dcp3.m)" ""
for m in "$scratch"/*.m "$scratch/zero" "$scratch/fsdp"; do
	[ ! -d "$m" ] || "$OPTIMFS" umount "$m"
done
done_testing
