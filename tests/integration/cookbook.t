#!/bin/sh
# cookbook.t - every command of docs/cookbook.md works, and the sessions of
# README.md and docs/idea.md print what they show
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
requires tar python3

data=$TOP_SRCDIR/tests/data
can_mount=yes
[ -c /dev/fuse ] && [ -r /dev/fuse ] && command -v fusermount3 >/dev/null ||
    can_mount=

mkdir "$scratch/bin" "$scratch/blocks" "$scratch/mnt"
ln -s "$OPTIMFS" "$scratch/bin/optimfs"
PATH=$scratch/bin:/usr/bin:$PATH
export PATH

# Each section starts with fresh copies of the fixtures.
section=
begin() {
	[ "$1" != "$section" ] || return 0
	section=$1
	cd "$scratch" || exit 99
	rm -rf work
	mkdir work
	cp -r "$data/pytorch/dcp_fsdp2_w4/ckpt" work/step-1000
	cp -r "$data/pytorch/dcp_fsdp2_w3/ckpt" work/step-1000-w3
	cp -r "$data/deepspeed/z3_ws2_bf16/ckpt" work/zero3
	cp -r "$data/deepspeed/z3_ws2_two_tags/ckpt" work/run
	cp -r "$data/megatron/gpt_tp2_dp2/fully_reshardable" work/megatron
	chmod -R u+w work
	cd work || exit 99
}

# Splits the cookbook: each fenced block becomes NN.sh or NN.mount, with the
# title of its section in NN.title.
awk -v dir="$scratch/blocks" '
/^## / { title = substr($0, 4) }
/^```sh/ {
	file = sprintf("%s/%02d.%s", dir, ++n, $2 == "mount" ? "mount" : "sh")
	print title >sprintf("%s/%02d.title", dir, n)
	next
}
/^```/ { file = ""; next }
file != "" { print >file }
' "$TOP_SRCDIR/docs/cookbook.md"

for title in "$scratch"/blocks/*.title; do
	block=${title%.title}
	begin "$(cat "$title")"
	name="$(cat "$title") ($(basename "$block"))"
	if [ -f "$block.mount" ] && [ -z "$can_mount" ]; then
		skip 1 "$name: no FUSE here"
		continue
	fi
	mkdir -p "$scratch/mnt/ck"
	for f in "$block.sh" "$block.mount"; do
		[ ! -f "$f" ] || sed "s#/mnt/ck#$scratch/mnt/ck#g" "$f" >"$block.run"
	done
	ok "cookbook: $name: every command succeeds" sh -eu "$block.run"
	case $section in
	*"learning rate"*)
		is "cat prints the new learning rate" "$(cat "$scratch/out")" 1e-05
		;;
	esac
done

# The session of a document must print what the document shows, except owners
# and times.
plain() {
	sed -e '/^#/d' -e '/^$/d' -e '/^total /d' -e 's/\(-r--r--r-- 1\) .* \([0-9]*\) [A-Z][a-z][a-z] .* /\1 \2 /' "$1" |
	    tr -s ' \n' ' '
}

# session FILE: runs the lines that begin with "    $ ".
session() {
	begin "$1"
	rm -f "$scratch"/blocks/session*
	awk -v dir="$scratch/blocks" '
	/^    \$ / { file = sprintf("%s/session%02d", dir, ++n)
		print substr($0, 7) >(file ".cmd"); next }
	/^    / && file { print substr($0, 5) >(file ".want"); next }
	{ file = "" }
	' "$TOP_SRCDIR/$1"
	if [ -z "$can_mount" ]; then
		skip 1 "the session of $1: no FUSE here"
		return
	fi
	for d in ck new rw same-state-from-3-ranks; do
		mkdir -p "$scratch/mnt/$d"
	done
	"$OPTIMFS" mount step-1000-w3 "$scratch/mnt/same-state-from-3-ranks"
	for c in "$scratch"/blocks/session*.cmd; do
		name="$1: $(head -c 50 "$c")"
		case $(cat "$c") in
		*numpy*) need='python3 -c "import numpy"' ;;
		*getfattr*) need='command -v getfattr' ;;
		*) need=true ;;
		esac
		if ! sh -c "$need" >/dev/null 2>&1; then
			skip 1 "$name: not here: $need"
			continue
		fi
		sed "s#/mnt/#$scratch/mnt/#g" "$c" >"$c.run"
		ok "$name: the command succeeds" sh -eu "$c.run"
		[ ! -f "${c%.cmd}.want" ] ||
		    is "$name: the output is the one shown" \
		        "$(plain "$scratch/out")" "$(plain "${c%.cmd}.want")"
	done
	for d in ck same-state-from-3-ranks; do
		"$OPTIMFS" umount "$scratch/mnt/$d"
	done
}
session README.md
session docs/idea.md
done_testing
