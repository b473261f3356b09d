#!/bin/sh
# nodes.t - a checkpoint whose files lie on several nodes, each with optimfs serve
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
. "$TOP_SRCDIR/tests/tap/nodes.sh"
data=$TOP_SRCDIR/tests/data

sum() {
	"$OPTIMFS" sum "$@" 2>"$scratch/err" | sed 's/ .*//'
}

ck=$data/pytorch/dcp_fsdp2_w4/ckpt
for fixture in pytorch/dcp_fsdp2_w4/ckpt pytorch/hf_storage_w2/ckpt \
    deepspeed/v0.18.5_z3_ws2_bf16/ckpt megatron/llama_dp2/fully_reshardable/iter_0000003; do
	split "$data/$fixture" 2
	is "on two nodes $fixture is what it is on one" "$(sum --from "$from")" \
	    "$(sum "$data/$fixture")"
	stop "$pid_n0" "$pid_n1"
done

# Links with a delay, one of which breaks now and then, and one that is slow.
split "$ck" 3
want=$(sum "$ck")
far 0 20
links=$pid_far from=$far
far 1 1 0 3
links="$links $pid_far" from=$from,$far
far 2 1 400000
links="$links $pid_far" from=$from,$far
is "over links that are slow, or break, it is the same" "$(sum --from "$from")" "$want"
ok "so is a copy" "$OPTIMFS" reshard -q --to dcp@3 --from "$from" "$scratch/over"
is "with all tensors" "$(sum "$scratch/over")" "$want"
rm -r "$scratch/over"
kill $links
stop "$pid_n0" "$pid_n1" "$pid_n2"

split "$ck" 4
is "on four nodes" "$(sum --from "$from")" "$(sum "$ck")"
echo "# nodes" >"$scratch/list"
echo "$from" | sed 's/,/ /; s/,/\t# two of four\r\n/' >>"$scratch/list"
ok "a file has their addresses" "$OPTIMFS" cp -r --from "$scratch/list" . "$scratch/tree"
"$OPTIMFS" cp -r "$ck" . "$scratch/want"
ok "and all is there" diff -r "$scratch/want" "$scratch/tree"
is "a pattern stands for them" \
    "$(sum "http://127.0.0.1:{$port_n0,$port_n1,$port_n2,$port_n3}")" "$(sum "$ck")"
ok "files that are served are a checkpoint themselves" "$OPTIMFS" reshard -q \
    --to dcp@2 --from "$from" "$scratch/two"
ok "it is the same" "$OPTIMFS" diff -q "$scratch/two" "$ck"
not_ok "who has only a part says what is lost" "$OPTIMFS" sum "http://127.0.0.1:$port_n0"
like "it names the file" "$(cat "$scratch/err")" "*OFS140*distcp is missing*"

# A node that is gone, and comes back.
if grep -q fuse /proc/filesystems && [ -w /dev/fuse ]; then
	mnt=$(point nodes)
	whole=model/layers.0.wq.weight
	ok "a mount" "$OPTIMFS" mount -q -o timeout=5,cache=0 --from "$from" "$mnt"
	is "its source is said" "$("$OPTIMFS" info "$mnt" 2>&1 | head -1)" "{$from}"
	lost=$(ls "$scratch/n2" | head -1)
	stop "$pid_n2"
	not_ok "of a node that is gone nothing is read" cat "$mnt/$whole"
	like "the error names it" "$(cat "$mnt/.optimfs/errors")" \
	    "*OFS922*http://127.0.0.1:$port_n2/$lost*"
	ok "what others have is" "$OPTIMFS" cat "$ck" optim/param_groups/0/lr
	is "as before" "$(cat "$mnt/optim/param_groups/0/lr")" "$(cat "$scratch/out")"
	node n2 "$port_n2"
	ok "when it is back, all is read" cat "$mnt/$whole"
	ok "as it is" cmp "$mnt/$whole" "$scratch/want/$whole"
	umount "$mnt"
else
	skip 7 "no FUSE"
fi
stop "$pid_n3"
not_ok "who does not answer is no part of a new one" \
    "$OPTIMFS" info --timeout=5 --from "$from"
like "the error names it" "$(cat "$scratch/err")" "*OFS922*127.0.0.1:$port_n3*"
stop "$pid_n0" "$pid_n1" "$pid_n2"

# The same file on two nodes.
split "$ck" 2
cp "$scratch/n0/.metadata" "$scratch/n1/.metadata"
touch -d '2001-02-03 04:05:06' "$scratch/n1/.metadata"
cp -p "$scratch/n1/__2_0.distcp" "$scratch/n0/"
is "a copy is the same file" "$(sum --from "$from")" "$(sum "$ck")"
printf 'x' | dd of="$scratch/n1/.metadata" bs=1 seek=1000 conv=notrunc 2>/dev/null
not_ok "other bytes are another file" "$OPTIMFS" info --from "$from"
like "the error names both" "$(cat "$scratch/err")" \
    "*OFS927 .metadata*other bytes*:$port_n?*:$port_n?*"
echo more >>"$scratch/n1/.metadata"
not_ok "so is another size" "$OPTIMFS" info --from "$from"
like "and it says so" "$(cat "$scratch/err")" "*OFS927 .metadata*of another size*"
stop "$pid_n0" "$pid_n1"

# A file system that both share; one of them is enough.
rm -rf "$scratch"/n[01]
cp -r "$ck" "$scratch/n0"
ln -s n0 "$scratch/n1"
node n0
node n1
from=http://127.0.0.1:$port_n0,http://127.0.0.1:$port_n1
is "what both have is read from either" "$(sum --from "$from")" "$(sum "$ck")"
if grep -q fuse /proc/filesystems && [ -w /dev/fuse ]; then
	ok "a mount" "$OPTIMFS" mount -q -o timeout=5 --from "$from" "$mnt"
	stop "$pid_n0"
	ok "when one is gone, nothing is lost" cp -r "$mnt/." "$scratch/one"
	ok "all is read from the other" diff -r "$scratch/one" "$scratch/want"
	umount "$mnt"
else
	stop "$pid_n0"
	skip 3 "no FUSE"
fi
stop "$pid_n1"

# A run, of which each node has a part.
rm -rf "$scratch"/n[01]
for step in 10 20; do
	for n in 0 1; do
		mkdir -p "$scratch/n$n/step-$step"
	done
	cp "$ck/.metadata" "$ck"/__[01]* "$scratch/n0/step-$step"
	cp "$ck"/__[23]* "$scratch/n1/step-$step"
done
node n0
node n1
from=http://127.0.0.1:$port_n0,http://127.0.0.1:$port_n1
ok "a run is on nodes, too" "$OPTIMFS" log --from "$from"
is "with all of its steps" "$(sum "{$from}:20")" "$(sum "$ck")"
is "by their directories" "$(sum "http://127.0.0.1:{$port_n0,$port_n1}/step-10")" "$(sum "$ck")"
stop "$pid_n0" "$pid_n1"

# Usage.
status "OFS929: no address" 2 "$OPTIMFS" info --from ''
like "it says what one is" "$(cat "$scratch/err")" "*OFS929*"
echo '# none' >"$scratch/list"
not_ok "nor in a file" "$OPTIMFS" info --from "$scratch/list"
like "it says so" "$(cat "$scratch/err")" "*OFS929*no address in it*"
not_ok "nor is there a file" "$OPTIMFS" info --from "$scratch/none"
like "it says that" "$(cat "$scratch/err")" "*OFS929*none*"
not_ok "nodes have no buckets" "$OPTIMFS" info --from s3://a,s3://b
like "it says what they have" "$(cat "$scratch/err")" "*OFS920*web server*"
not_ok "not too many" "$OPTIMFS" info 'http://n{1..9}{0..999}'
like "it says how many" "$(cat "$scratch/err")" "*OFS920*8192*"
done_testing
