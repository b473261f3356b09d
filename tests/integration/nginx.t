#!/bin/sh
# nginx.t - checkpoints on a real server, with TLS and HTTP/2
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
. "$TOP_SRCDIR/tests/tap/server.sh"

data=$TOP_SRCDIR/tests/data
cd "$scratch" || exit 99
mkdir www other
cp -r "$data/pytorch/dcp_fsdp2_w4/ckpt" www/ckpt
cp -r "$data/pytorch/hf_storage_w2/ckpt" www/model
chmod -R a+rX . 
chmod a+x "$scratch"
start_nginx "$scratch/www" || skip_all "$why"

sum() {
	"$OPTIMFS" sum --run=no "$@" 2>"$scratch/err" | sed 's/ .*//'
}
for ck in ckpt model; do
	want=$(sum "www/$ck")
	is "$ck is read with listings as JSON" "$(sum "$plain/$ck")" "$want"
	is "and as HTML" "$(sum "$plain/html/$ck")" "$want"
	is "and over TLS" "$(SSL_CERT_FILE=$scratch/cert.pem sum "$tls/$ck")" "$want"
done
grep -q '"GET /ckpt/.metadata HTTP/2.0" 206' access.log
tap_result $? "TLS speaks HTTP/2, in ranges"
not_ok "a file that is closed is not read" "$OPTIMFS" info "$plain/closed"
like "and the error does not say that it is missing" "$(cat "$scratch/err")" "*OFS923*403*"
not_ok "a server with an unknown certificate is not believed" "$OPTIMFS" info "$tls/ckpt"
like "and the error says so" "$(cat "$scratch/err")" "*OFS922*certificate*"
bucket() {
	env HOME="$scratch" AWS_EC2_METADATA_DISABLED=true AWS_ENDPOINT_URL_S3="$tls" "$@" \
	    "$OPTIMFS" info s3://bucket/ckpt 2>&1
}
like "so it is in a bucket" "$(bucket)" "*OFS922*certificate*"
like "unless AWS_CA_BUNDLE has it" "$(bucket AWS_CA_BUNDLE="$scratch/cert.pem")" "*OFS019*"
# nginx notes a request after its answer.
noted() { # PATTERN N: has it noted as many?
	[ "$(grep -c "$1" access.log)" -ge "$2" ]
}
# One tensor of a checkpoint of 50 GB, of which only that tensor is stored.
mk=$TOP_BUILDDIR/tests/bench/mkdcp
if [ -x "$mk" ] && "$mk" -n 800 -s 4096,8192 -t bfloat16 -r 8 -S rows -e www/big 2>/dev/null; then
	name=model/layers.0.attention.wq.weight
	: >access.log
	is "a tensor of 64 MiB in 50 GB is what it is in files" \
	    "$("$OPTIMFS" cat "$plain/big" $name | cksum)" \
	    "$("$OPTIMFS" cat www/big $name | cksum)"
	index=$(stat -c %s www/big/.metadata)
	# a listing, the index, and each of 8 shards
	eventually noted /big/ 10
	is "and is read by a request for each shard, and 2" "$(grep -c /big/ access.log)" 10
	awk -v most=$(((67108864 + index) * 105 / 100)) '{ n += $10 } END { exit n > most }' access.log
	tap_result $? "of at most 5 % more bytes than it and the index have"
	: >access.log
	is "over TLS it is the same" \
	    "$(SSL_CERT_FILE=$scratch/cert.pem "$OPTIMFS" cat "$tls/big" $name | cksum)" \
	    "$("$OPTIMFS" cat www/big $name | cksum)"
	eventually noted 'distcp HTTP/1.1" 206' 8
	is "and each of its ranges has a connection" "$(awk '/distcp HTTP.1.1" 206/ { print $NF }' \
	    access.log | sort -u | grep -c .)" 8
	rm -r www/big
	# one that is longer than what is read at once
	"$mk" -n 1 -s 40960,1024 -r 2 www/long
	: >access.log
	is "a tensor of 160 MiB is what it is in files" \
	    "$("$OPTIMFS" cat "$plain/long" $name | cksum)" \
	    "$("$OPTIMFS" cat www/long $name | cksum)"
	# a listing, the index, both ends of each item, and 8 MiB a request
	n=$(grep -c . access.log)
	[ "$n" -le 28 ]
	tap_result $? "and is read by few requests" || diag "$n requests"
	: >access.log
	is "in ranges of 1 MiB it is the same" \
	    "$("$OPTIMFS" cat -o requests=64,request_size=1m "$plain/long" $name | cksum)" \
	    "$("$OPTIMFS" cat www/long $name | cksum)"
	n=$(grep -c . access.log)
	[ "$n" -ge 160 ]
	tap_result $? "of which there are 160" || diag "$n requests"
	not_ok "a range is not shorter than a block" "$OPTIMFS" cat -o request_size=64k "$plain/long" $name
	ok "cp reads the same" "$OPTIMFS" cp -q "$plain/long" $name copy
	is "from beginning to end" "$(cksum <copy)" "$("$OPTIMFS" cat www/long $name | cksum)"
	"$OPTIMFS" cat "$plain/long" $name >/dev/full 2>err
	is "what cannot be written ends it" "$?" 3
	like "and is said" "$(cat err)" "*standard output: No space left*"
	rm www/long/__1_0.distcp
	not_ok "a file that is missing fails the read" \
	    sh -c '"$OPTIMFS" cat "$@" >part' cat "$plain/long" $name
	like "and is named" "$(cat "$scratch/err")" "*OFS140*__1_0.distcp*"
	is "after what comes before it" "$(stat -c %s part)" $((64 << 20))
	rm -r www/long copy part
else
	skip 17 "mkdcp is not built, or the disk has no room"
fi

# an object that is replaced while it is read
if grep -q fuse /proc/filesystems && [ -w /dev/fuse ]; then
	mnt=$(point web)
	ok "a checkpoint is mounted" "$OPTIMFS" mount -q "$plain/ckpt" "$mnt"
	for f in www/ckpt/*.distcp; do
		cp "$f" other/
		mv "other/${f##*/}" www/ckpt/
		touch -d '2001-01-01' "$f"
	done
	not_ok "its files are stale once they were replaced" cat "$mnt/optim/state/norm.bias/exp_avg"
	like "which reads say" "$(cat "$mnt/.optimfs/errors")" "*OFS751*"
	umount "$mnt"
else
	skip 3 "no FUSE"
fi
stop_nginx
done_testing
