#!/bin/sh
# zerocp.t - cp between mounts of ZeRO-3, DCP and FSDP checkpoints
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
requires mount

data=$TOP_SRCDIR/tests/data
cd "$scratch" || exit 99

show() { # CHECKPOINT NAME [OPTIONS]: mount at ./NAME
	mkdir "$2"
	status "$2: mount exits with 0" 0 "$OPTIMFS" mount $3 "$1" "$scratch/$2"
}
# made NAME LIKE LAYOUT TREE: make a template with mkfs and fill it from TREE
# with cp
made() {
	status "$1: mkfs exits with 0" 0 "$OPTIMFS" mkfs --like "$2" --layout "$3" "$1"
	show "$1" "$1.m" "-o rw"
	ok "$1: cp -r into the template succeeds" cp -r "$4/." "$1.m"
	status "$1: umount exits with 0" 0 "$OPTIMFS" umount "$scratch/$1.m"
	rmdir "$1.m"
}
# differ A B: print the files that differ, and those that one tree alone has
differ() {
	diff -r "$1" "$2" | sed -n -e 's|: |/|' \
	    -e "s|^diff -r $1/\([^ ]*\) .*|\1|p" \
	    -e "s|^Only in $1/|< |p" -e "s|^Only in $2/|> |p" \
	    -e "s|^Binary files $1/\([^ ]*\) .*|\1|p"
}

# ZeRO-3 to DCP and back. Only what describes the layout changes.
ck=$data/deepspeed/z3_ws2_subgroups/ckpt
show "$ck" zero
ok "cp -r of the view dcp@3 of ZeRO-3 succeeds" cp -r zero/.optimfs/view/dcp@3 dcp
show dcp dcp.m
is "dcp@3 made by the view has the whole ZeRO-3 tree" "$(differ zero dcp.m)" ""
made made "$ck" dcp@2 zero
show made made.m
is "dcp@2 made by mkfs and cp has the whole ZeRO-3 tree" "$(differ zero made.m)" ""
ok "cp -r of the view zero3@4 of DCP succeeds" cp -r made.m/.optimfs/view/zero3@4 back
show back back.m
is "zero3@4 of that DCP checkpoint has the same optim/" "$(differ zero/optim back.m/optim)" ""
is "zero3@4 of that DCP checkpoint differs in the world size only" \
    "$(differ zero back.m)" "extra/dp_world_size"

made filled made zero3@2 made.m
show filled filled.m
is "zero3@2 made by mkfs and cp has the whole tree" "$(differ zero filled.m)" ""

# From FSDP: the differences are those listed in optimfs(5). DeepSpeed lists no
# frozen parameters in its groups.
show "$data/pytorch/dcp_fsdp2_w3/ckpt" fsdp
ok "cp -r of the view zero3@2 of FSDP succeeds" cp -r fsdp/.optimfs/view/zero3@2 zero3
show zero3 zero3.m
is "zero3@2 of FSDP adds fp32 weights and extra, and changes params" \
    "$(differ fsdp zero3.m | sed 's|state/.*/fp32|state/*/fp32|' | sort -u)" \
    "$(printf '%s\n' '> extra' '> optim/state/*/fp32' \
	optim/param_groups/0/params optim/param_groups/1/params)"
is "params of zero3@2 lacks the frozen parameters only" \
    "$(diff -r fsdp/optim/param_groups zero3.m/optim/param_groups |
	grep '^[<>]')" "$(printf '< %s\n' adapter.weight adapter.bias)"
cp -r zero3.m/.optimfs/view/dcp@3 dcp3
show dcp3 dcp3.m
is "dcp@3 of zero3@2 has the same tree" "$(differ zero3.m dcp3.m)" ""
for m in "$scratch"/*.m "$scratch/zero" "$scratch/fsdp"; do
	[ ! -d "$m" ] || "$OPTIMFS" umount "$m"
done
done_testing
