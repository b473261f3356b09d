#!/bin/sh
# http.t - checkpoints on a web server
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
. "$TOP_SRCDIR/tests/tap/server.sh"
. "$TOP_SRCDIR/tests/tap/python.sh"

data=$TOP_SRCDIR/tests/data
mkdir "$scratch/root"
ln -s "$data"/* "$scratch/root"
# 24 MB in one tensor, and a small one behind it
python3 - "$scratch/root/large.safetensors" <<'E'
import json, sys
n = 24 << 20
head = json.dumps({'w': {'dtype': 'I32', 'shape': [n // 4], 'data_offsets': [0, n]},
                   'b': {'dtype': 'I32', 'shape': [2], 'data_offsets': [n, n + 8]}}).encode()
with open(sys.argv[1], 'wb') as f:
    f.write(len(head).to_bytes(8, 'little') + head)
    for i in range(0, n // 4 + 2, 4096):
        f.write(b''.join(k.to_bytes(4, 'little') for k in range(i, min(i + 4096, n // 4 + 2))))
E
mkdir "$scratch/root/empty" "$scratch/root/large"
ln "$scratch/root/large.safetensors" "$scratch/root/large/model.safetensors"
serve "$scratch/root"

# Of every kind one: the state that a server has is that of the files.
for ck in pytorch/dcp_fsdp2_w4/ckpt pytorch/dcp_fsdp2_zstd_w2/ckpt \
    pytorch/dcp_fsdp2_safetensors_w2/ckpt pytorch/rank_dtensor_fsdp2_tp_w4/ckpt \
    pytorch/hf_storage_w2/ckpt pytorch/torchsave_full/ckpt \
    deepspeed/v0.18.5_z3_ws2_bf16/ckpt deepspeed/z2_ws2_nozip/ckpt \
    deepspeed/bf16opt_ws2/ckpt_universal \
    megatron/llama_dp2/fully_reshardable/iter_0000003 torch_checkpointing/fsdp2_w3 \
    fsdp_dtensor/swiglu_w3 numpy/array.npy; do
	[ -e "$data/$ck" ] || ck=${ck%/ckpt}
	want=$("$OPTIMFS" sum --run=no "$data/$ck" 2>/dev/null | sed 's/ .*//')
	like "the state of $ck has a sum" "$want" "????????????????????????????????"
	for how in json ${html-html}; do
		is "and the same with listings as $how" \
		    "$("$OPTIMFS" sum --run=no "$server/$how/$ck" | sed 's/ .*//')" \
		    "$want"
	done
	html=
done

ck=pytorch/dcp_fsdp2_w4/ckpt
want=$("$OPTIMFS" sum "$data/$ck" | sed 's/ .*//')
sum() {
	"$OPTIMFS" sum "$@" 2>"$scratch/err" | sed 's/ .*//'
}
is "a server that lists nothing has a checkpoint whose index is known" \
    "$(sum "$server/bare/$ck")" "$want"
is "so has the address of the index" "$(sum "$server/json/$ck/.metadata")" "$want"
is "a slash at the end changes nothing" "$(sum "$server/json/$ck/")" "$want"
is "a file has an address" "$(sum "$server/bare/numpy/array.npy")" \
    "$(sum "$data/numpy/array.npy")"

# Requests.
asked >/dev/null
ok "a file is read" "$OPTIMFS" cat "$server/json/$ck" optim/state/norm.bias/exp_avg
n=$(asked)
[ "$n" -le 7 ]
tap_result $? "by a listing, the index and a request for each shard" ||
    diag "$n requests"
ok "all is read" "$OPTIMFS" sum "$server/json/$ck"
n=$(asked)
[ "$n" -le 14 ]
tap_result $? "four small files cost few requests more" || diag "$n requests"
is "a large tensor is what the file has" \
    "$("$OPTIMFS" cat "$server/json/large.safetensors" model/w | cksum)" \
    "$("$OPTIMFS" cat "$scratch/root/large.safetensors" model/w | cksum)"
n=$(asked)
[ "$n" -le 14 ]
tap_result $? "and is read by few requests" || diag "$n requests"

mkdir "$scratch/root/run"
for step in $(seq 50); do
	ln -s "$data/$ck" "$scratch/root/run/step-$step"
done
asked >/dev/null
ok "a run of 50 steps is listed" "$OPTIMFS" ls "$server/json/run"
n=$(asked)
[ "$n" -ge 100 ] && [ "$n" -le 106 ] # one that a closed connection has lost is sent again
tap_result $? "by two requests for each directory" || diag "$n requests"

# Several servers, each of which has to say what it has.
for how in bare json; do
	[ $how = bare ] && lost=$server/bare/$ck || lost=$server/json/none
	for two in "$server/json/$ck,$lost" "$lost,$server/json/$ck"; do
		not_ok "one of two that lists nothing ($how) is no part" "$OPTIMFS" info "{$two}"
		like "the error names it" "$(cat "$scratch/err")" "*OFS*$lost*"
	done
done

# One of two that have the same file answers no request for a range of it. A large
# read is several ranges, all of which are asked of one server at first.
for two in "$server/large/tags/large,$server/tags/large" \
    "$server/tags/large,$server/large/tags/large"; do
	is "what one does not send the other one does" \
	    "$("$OPTIMFS" cat "{$two}" model/w 2>&1 | cksum)" \
	    "$("$OPTIMFS" cat "$scratch/root/large.safetensors" model/w | cksum)"
	grep -q "GET /large/.*=131072-" "$requests" && large=1
	: >"$requests"
done
is "and one of these was asked first" "${large:-0}" 1
is "if both are busy, they are asked again" \
    "$(sum --timeout=20 "{$server/busy/tags/$ck,$server/busy/json/$ck}")" "$want"

is "of a whole file nothing is believed of a range" "$(sum "$server/claims/json/$ck")" "$want"
is "an index that was replaced since it was listed is asked for again" \
    "$(sum "$server/older/tags/$ck")" "$want"

# Commands.
ok "info names the address" "$OPTIMFS" info "$server/json/$ck"
is "in its first line" "$(sed -n 1p "$scratch/out")" "$server/json/$ck"
ok "diff compares it with files" "$OPTIMFS" diff "$server/json/$ck" "$data/$ck"
ok "check reads it" "$OPTIMFS" check "$server/json/$ck"
ok "fsck --data reads it" "$OPTIMFS" fsck --data "$server/html/$ck"
ok "reshard copies it" "$OPTIMFS" reshard -q --to dcp@2 "$server/json/$ck" "$scratch/new"
is "with the same state" "$(sum "$scratch/new")" "$want"
refused() {
	not_ok "$1" "$OPTIMFS" "$2" $3
	like "and the error says what to do" "$(cat "$scratch/err")" "*OFS926*"
}
refused "nothing is written there by mkfs" mkfs "--like $data/$ck --layout dcp@2 $server/json/new"
refused "nor by reshard" reshard "-q --to dcp@2 $data/$ck $server/json/new"
refused "nor by cp" cp "$data/$ck optim/param_groups/0/lr $server/json/lr"
if grep -q fuse /proc/filesystems && [ -w /dev/fuse ]; then
	mnt=$(point web) files=$(point files)
	not_ok "it cannot be mounted for writing" "$OPTIMFS" mount -o rw "$server/json/$ck" "$mnt"
	like "and the error says what to do" "$(cat "$scratch/err")" "*OFS926*optimfs reshard*"
	asked >/dev/null
	ok "it can be mounted" "$OPTIMFS" mount -q "$server/json/$ck" "$mnt"
	"$OPTIMFS" mount -q "$data/$ck" "$files"
	ok "the mount has the files of a local one" diff -r "$mnt" "$files"
	is "only its user may read it" "$(stat -c %a "$mnt/optim/param_groups/0/lr")" 400
	is "findmnt shows the address" \
	    "$(awk -v m="$mnt" '$5 == m { print $(NF - 1) }' /proc/self/mountinfo)" \
	    "$server/json/$ck"
	n=$(sed -n 's/^http.reads //p' "$mnt/.optimfs/stats")
	is "the statistics count requests" "$n" "$(grep -c . "$requests")"
	ok "a path in the mount is found on the server" "$OPTIMFS" info "$mnt/optim"
	umount "$mnt" "$files"
else
	skip 8 "no FUSE"
fi

tensor=optim/state/norm.bias/exp_avg
# From Python.
import_optimfs
cat >"$scratch/read.py" <<'E'
import sys
import optimfs
with optimfs.open(sys.argv[1]) as ck:
    sys.stdout.buffer.write(ck.open(sys.argv[2]).read())
E
if [ -e "$OPTIMFS_LIBRARY" ] && ! sanitized; then
	is "Python opens an address" "$(python3 "$scratch/read.py" "$server/json/$ck" $tensor | cksum)" \
	    "$("$OPTIMFS" cat "$data/$ck" $tensor | cksum)"
else
	skip 1 "no library for Python"
fi

# Faults. Nothing of a wrong answer is taken, and nothing hangs.
for fault in busy later cut short; do
	is "a server that is $fault at times is asked again" \
	    "$("$OPTIMFS" cat --timeout=20 "$server/$fault/json/$ck" $tensor | cksum)" \
	    "$("$OPTIMFS" cat "$data/$ck" $tensor | cksum)"
done
want_large=$("$OPTIMFS" cat "$scratch/root/large.safetensors" model/w | cksum)
for fault in busy later cut short; do
	is "and goes on with a large tensor where it was ($fault)" \
	    "$("$OPTIMFS" cat --timeout=20 "$server/$fault/json/large.safetensors" model/w | cksum)" \
	    "$want_large"
done
# What was written until then is right.
begins_well() {
	cmp -n "$(stat -c %s "$1")" "$1" "$scratch/large"
}
"$OPTIMFS" cat "$scratch/root/large.safetensors" model/w >"$scratch/large"
for fault in wrong changed lost endless; do
	timeout 60 "$OPTIMFS" cat --timeout=1 "$server/$fault/json/large.safetensors" \
	    model/w >"$scratch/out" 2>/dev/null
	[ $? = 3 ] && begins_well "$scratch/out"
	tap_result $? "no wrong byte of a large tensor is written ($fault)"
done
is "who wants only its beginning gets that" \
    "$("$OPTIMFS" cat "$server/json/large.safetensors" model/w 2>/dev/null | head -c 3000000 | cksum)" \
    "$(head -c 3000000 "$scratch/large" | cksum)"
rm "$scratch/large" "$scratch/out"
fails() {
	status "$1" 3 timeout 60 "$OPTIMFS" cat --timeout=1 "$server/$2/json/$ck" \
	    $tensor
	like "and says so" "$(cat "$scratch/err")" "*$3*"
}
is "one that fails at most requests is read at last" \
    "$(sum "$server/storm/html/$ck")" "$want"
fails "a server that is down is an error" down "OFS922*HTTP 503*"
not_ok "one that was never there is one" timeout 60 "$OPTIMFS" info -o timeout=0 http://127.0.0.1:1/x
like "and says so" "$(cat "$scratch/err")" "*OFS922*http://127.0.0.1:1/x*"
not_ok "so is one without TLS, asked with it" "$OPTIMFS" info "https:${server#http:}/json"
like "and the error says what it may be" "$(cat "$scratch/err")" "*OFS922*http://*"
fails "one that wants to be asked later than that is one" limited "OFS922*HTTP 429*not before 60 s*timeout=*"
fails "one that is silent is one" silent "OFS922*"
fails "one that sends a few bytes a second is one" trickle "OFS922*"
not_ok "one without ranges is one" "$OPTIMFS" cat "$server/norange/json/large.safetensors" model/b
like "and the error says so" "$(cat "$scratch/err")" "*OFS924*ranges*"
fails "one that sends other ranges is one" wrong "OFS924*another range*"
fails "one that sends without end is one" endless "OFS92[24]*"
fails "a redirection to a file of this machine is not followed" file "OFS922*rotocol*"
fails "a redirection without end is not followed" loop "OFS922*redirect*"
not_ok "a file that was replaced is stale" "$OPTIMFS" cat \
    "$server/changed/json/large.safetensors" model/w
like "and the error says so" "$(cat "$scratch/err")" "*OFS751*replaced*"
not_ok "a file that was removed is an error" "$OPTIMFS" cat \
    "$server/lost/json/$ck" optim/state/norm.bias/exp_avg
like "and the error says that it was removed" "$(cat "$scratch/err")" "*OFS754*removed*"
not_ok "a file that is closed is an error" "$OPTIMFS" cat \
    "$server/closed/json/$ck" optim/state/norm.bias/exp_avg
like "and the error says who may not" "$(cat "$scratch/err")" "*OFS923*not allowed*"
not_ok "an address that does not exist is an error" "$OPTIMFS" info "$server/json/none"
like "and the error says so" "$(cat "$scratch/err")" "*OFS019*no such file or directory*"
not_ok "a directory that is not listed is an error" "$OPTIMFS" info "$server/bare/pytorch"
like "and the error says what to give" "$(cat "$scratch/err")" "*OFS923*address of a file*"
not_ok "a page that is no listing is an error" "$OPTIMFS" info "$server/html/empty"
like "and the error says so" "$(cat "$scratch/err")" "*OFS925*does not list*"
not_ok "an address with a password is refused" "$OPTIMFS" info "http://user:secret@host/x"
like "and not shown" "$(cat "$scratch/err")" "*OFS920*netrc*"
not_ok "and the error does not have it" grep -q secret "$scratch/err"
not_ok "an address with a query is refused" "$OPTIMFS" info "$server/json/x?sig=secret"
like "and the error says so" "$(cat "$scratch/err")" "*OFS920*query*"
not_ok "and the error does not have it" grep -q secret "$scratch/err"
OPTIMFS_MODULES=/nonexistent not_ok "without the module an address is an error" \
    "$OPTIMFS" info "$server/json/$ck"
like "and the error names the module" "$(cat "$scratch/err")" "*OFS921*optimfs-http*"
done_testing
