#!/bin/sh
# http_cache.t - what was read of a server is kept on a disk
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
. "$TOP_SRCDIR/tests/tap/server.sh"

mkdir "$scratch/root" "$scratch/root/bucket"
cp -r "$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w4/ckpt" "$scratch/root/bucket/ck"
python3 - "$scratch/root/bucket/large.safetensors" <<'E'
import json, sys
n = 24 << 20
head = json.dumps({'w': {'dtype': 'I32', 'shape': [n // 4], 'data_offsets': [0, n]}}).encode()
with open(sys.argv[1], 'wb') as f:
    f.write(len(head).to_bytes(8, 'little') + head)
    for i in range(0, n // 4, 4096):
        f.write(b''.join(k.to_bytes(4, 'little') for k in range(i, i + 4096)))
E
serve "$scratch/root"
AWS_ENDPOINT_URL=$server/s3 AWS_REGION=eu-test-1
AWS_ACCESS_KEY_ID=AKTEST AWS_SECRET_ACCESS_KEY=secret+of/tests
HOME=$scratch
export AWS_ENDPOINT_URL AWS_REGION AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY HOME
cd "$scratch" || exit 99

sum() {
	"$OPTIMFS" sum --run=no "$@" 2>"$scratch/err" | sed 's/ .*//'
}
# Requests for more than the byte that tells the tag, or a listing.
data() {
	grep -cv -e ' -$' -e ' bytes=0-0$' "$requests"
	: >"$requests"
}

kept='--cache_dir=cache'
want=$(sum $kept root/bucket/ck)
not_ok "files of this machine make no cache" test -e cache
for url in s3://bucket/ck "$server/json/bucket/ck" "$server/html/bucket/ck"; do
	data >/dev/null
	is "a checkpoint is read" "$(sum $kept "$url")" "$want"
	is "by the index and each shard" "$(data)" 5
	is "and again" "$(sum $kept "$url")" "$want"
	n=$(wc -l <"$requests")
	is "without a request that brings data" "$(data)" 0
	[ "$n" -le 6 ]
	tap_result $? "by a listing, and at most a request for each file" || diag "$n requests"
done
asked >/dev/null
ok "the index in a bucket" "$OPTIMFS" info $kept s3://bucket/ck
is "takes the listing alone" "$(asked)" 1
is "only its user may look into the cache" "$(stat -c %a cache)" 700
is "and read its files" "$(find cache -type f ! -perm 600)" ""
find cache -type f -exec cat {} + >all
not_ok "no key is in it" grep -q -e secret -e AKTEST all

if grep -q fuse /proc/filesystems && [ -w /dev/fuse ]; then
	mnt=$(point cached)
	ok "a mount uses it" "$OPTIMFS" mount -q -o cache_dir=cache s3://bucket/ck "$mnt"
	data >/dev/null
	is "for all" "$(cksum <"$mnt/optim/state/norm.bias/exp_avg")" \
	    "$("$OPTIMFS" cat root/bucket/ck optim/state/norm.bias/exp_avg | cksum)"
	is "without data from the server" "$(data)" 0
	second=$(point second)
	asked >/dev/null
	ok "so does a second mount" "$OPTIMFS" mount -q -o cache_dir=cache s3://bucket/ck "$second"
	is "which asks for nothing but the listing" "$(asked)" 1
	ok "both have the same files at the same time" diff -r -x .optimfs "$mnt" "$second"
	umount "$mnt" "$second"
else
	skip 6 "no FUSE"
fi

# What is in it is not believed.
damage() {
	find cache -type f -size +16 -exec "$@" {} \;
}
damage sh -c 'printf x | dd of="$0" bs=1 seek=5000 conv=notrunc 2>/dev/null'
is "blocks that are damaged are not used" "$(sum $kept s3://bucket/ck)" "$want"
is "but fetched again" "$(data)" 5
damage truncate -s 6000
is "nor those that are cut off" "$(sum $kept s3://bucket/ck)" "$want"
is "as a process that is killed leaves them" "$(data)" 5
sum $kept s3://bucket/ck >/dev/null # which finds the second blocks
data >/dev/null
is "and then they are there again" "$(sum $kept s3://bucket/ck) $(data)" "$want 0"
for f in root/bucket/ck/__*; do
	cp "$f" new
	mv new "$f"
done
is "files that were replaced are fetched again" "$(sum $kept s3://bucket/ck)" "$want"
is "all of them" "$(data)" 4

# Much data.
large=$("$OPTIMFS" cat root/bucket/large.safetensors model/w | cksum)
cat_large() {
	"$OPTIMFS" cat "$@" s3://bucket/large.safetensors model/w
}
is "a large tensor is kept" "$(cat_large --cache_dir=big | cksum)" "$large"
data >/dev/null
is "as it is" "$(cat_large --cache_dir=big | cksum)" "$large"
is "whole" "$(data)" 0
is "a cache has a bound" "$(cat_large --cache_dir=small --cache_disk=16M | cksum)" "$large"
is "and is used as far as it goes" "$(cat_large --cache_dir=small --cache_disk=16M | cksum)" "$large"
bytes=$(find small -type f -printf '%s\n' | awk '{ n += $1 } END { print n + 0 }')
[ "$bytes" -le 16777216 ] && [ "$bytes" -gt 8000000 ]
tap_result $? "within which it stays" || diag "$bytes bytes"

# Two processes with one cache, and one that is killed.
cat_large --cache_dir=two >two.1 &
first=$!
cat_large --cache_dir=two >two.2
wait "$first"
is "two processes share a cache" "$(cksum <two.1) $(cksum <two.2)" "$large $large"
"$OPTIMFS" cat --cache_dir=killed s3://bucket/large.safetensors model/w >/dev/null 2>&1 &
first=$!
eventually sh -c '[ -n "$(find killed -type f 2>/dev/null)" ]'
kill -9 "$first" 2>/dev/null
wait "$first" 2>/dev/null
is "what a process that was killed has left does no harm" \
    "$(cat_large --cache_dir=killed | cksum)" "$large"

# Directories that cannot be one.
mkdir open full
chmod 777 open
not_ok "a directory that others may write to is refused" "$OPTIMFS" info --cache_dir=open s3://bucket/ck
like "and the error says so" "$(cat "$scratch/err")" "*OFS928*open*others*"
not_ok "so is one in a directory that does not exist" "$OPTIMFS" info --cache_dir=none/cache s3://bucket/ck
like "and the error says so" "$(cat "$scratch/err")" "*OFS928*none/cache*"
not_ok "a cache of nothing is refused" "$OPTIMFS" info --cache_dir=nil --cache_disk=1k s3://bucket/ck
like "and the error says what is enough" "$(cat "$scratch/err")" "*OFS928*16 MiB*"
if mount -t tmpfs -o size=200k,mode=700 none full 2>/dev/null; then
	is "a disk that is full is no cache" "$(sum --cache_dir=full s3://bucket/ck)" "$want"
	is "and no error" "$(cat "$scratch/err")" ""
	is "nor is part of a block" "$(sum --cache_dir=full s3://bucket/ck)" "$want"
	umount full
else
	skip 3 "no tmpfs"
fi
done_testing
