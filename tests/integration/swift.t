#!/bin/sh
# swift.t - buckets of a real server, which checks signatures, and programs of others
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
. "$TOP_SRCDIR/tests/tap/server.sh"
. "$TOP_SRCDIR/tests/tap/python.sh"

requires curl
find_python -c 'import swift.proxy.server, swift.common.middleware.s3api.s3api' ||
    skip_all "no Swift (Debian: python3-swift): $why"
data=$TOP_SRCDIR/tests/data
ck=$data/pytorch/dcp_fsdp2_w4/ckpt
cd "$scratch" || exit 99
for v in $(env | sed -n 's/^\(AWS_[A-Z0-9_]*\)=.*/\1/p'); do
	unset "$v"
done
HOME=$scratch AWS_REGION=eu-test-1 AWS_ACCESS_KEY_ID=test:tester
AWS_SECRET_ACCESS_KEY=secret+of/tests AWS_EC2_METADATA_DISABLED=true
export HOME AWS_REGION AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_EC2_METADATA_DISABLED
mkdir store
"$python" "$TOP_SRCDIR/tests/support/swift_server.py" store port "$AWS_ACCESS_KEY_ID" \
    "$AWS_SECRET_ACCESS_KEY" "$AWS_REGION" >swift.log 2>&1 &
swift=$!
eventually sh -c "[ -s port ] || ! kill -0 $swift 2>/dev/null"
[ -s port ] || {
	! grep -q 'Operation not supported' swift.log ||
		skip_all "a file system without extended attributes"
	diag "$(cat swift.log)"
	exit 99
}
AWS_ENDPOINT_URL=http://127.0.0.1:$(cat port)
export AWS_ENDPOINT_URL
# What curl signs, without a line of ours. The key has a colon.
by_curl() {
	path=$1
	shift
	curl -sS --fail --aws-sigv4 "aws:amz:$AWS_REGION:s3" \
	    -H "x-amz-content-sha256: $(sha256sum </dev/null | cut -c1-64)" "$@" \
	    "http://test%3Atester:secret%2Bof%2Ftests@${AWS_ENDPOINT_URL#http://}/$path"
}
ok "curl makes a bucket" by_curl bucket -X PUT

# 70 MiB in one tensor: two parts.
python3 - large.safetensors <<'END'
import json, sys
n = 70 << 20
head = json.dumps({'w': {'dtype': 'I32', 'shape': [n // 4], 'data_offsets': [0, n]}}).encode()
with open(sys.argv[1], 'wb') as f:
    f.write(len(head).to_bytes(8, 'little') + head)
    for i in range(0, n, 1 << 20):
        f.write(i.to_bytes(4, 'little') * (1 << 18))
END
sum() {
	"$OPTIMFS" sum --run=no "$@" 2>err | sed 's/ .*//'
}
upload() {
	"$OPTIMFS" reshard -q --to "$1" "$2" local &&
		ok "a bucket gets $1" "$OPTIMFS" reshard -q --to "$1" "$2" "s3://bucket/$3"
}
upload dcp@3 "$ck" 'run a+b/step 1'
mv local small
upload dcp@2 large.safetensors large
mv local large
is "which is read as what it was" "$(sum 's3://bucket/run a+b/step 1')" "$(sum "$ck")"
is "also in several parts" "$(sum s3://bucket/large)" "$(sum large.safetensors)"
not_ok "it is not replaced" "$OPTIMFS" reshard -q --to dcp@2 "$ck" s3://bucket/large
like "and the error says so" "$(cat "$scratch/err")" "*already exists*"
is "a directory is listed as one" "$("$OPTIMFS" info s3://bucket/large | sed -n 's/^files  *\([0-9]*\).*/\1/p')" 3
AWS_SECRET_ACCESS_KEY=wrong not_ok "another secret is refused" "$OPTIMFS" info s3://bucket/large
like "and the error says so" "$(cat "$scratch/err")" "*OFS923*403*"
not_ok "also for who writes" env AWS_SECRET_ACCESS_KEY=wrong "$OPTIMFS" reshard -q --to dcp@2 "$ck" s3://bucket/x
like "and the error says so" "$(cat "$scratch/err")" "*OFS923*403*"
AWS_REGION=us-other-1 not_ok "so is another region" "$OPTIMFS" info s3://bucket/large
not_ok "a bucket that is not there" "$OPTIMFS" reshard -q --to dcp@2 "$ck" s3://buckets/x
like "is named" "$(cat "$scratch/err")" "*buckets*no such bucket*"
not_ok "nor is it read" "$OPTIMFS" info s3://buckets/x
like "and the error says where it is not" "$(cat "$scratch/err")" "*OFS019*s3://buckets*no such bucket at $AWS_ENDPOINT_URL*"

# What others find: every byte, and nothing else, not even an upload.
by_curl "bucket/run%20a%2Bb/step%201/.metadata" >metadata
ok "curl gets what was uploaded" cmp metadata small/.metadata
cat >clients.py <<'END'
import os
import pathlib
import sys
want = {'%s/%s' % (prefix, f.name): f.read_bytes()
        for prefix, where in (('run a+b/step 1', 'small'), ('large', 'large'))
        for f in pathlib.Path(where).iterdir()}


def boto3(module):
    c = module.client('s3', endpoint_url=os.environ['AWS_ENDPOINT_URL'],
                      region_name=os.environ['AWS_REGION'])
    found = {o['Key'] for o in c.list_objects_v2(Bucket='bucket')['Contents']}
    assert found == set(want), found
    for key, data in want.items():
        assert c.get_object(Bucket='bucket', Key=key)['Body'].read() == data, key
    assert not c.list_multipart_uploads(Bucket='bucket').get('Uploads')


def s3fs(module):
    fs = module.S3FileSystem(endpoint_url=os.environ['AWS_ENDPOINT_URL'],
                             client_kwargs={'region_name': os.environ['AWS_REGION']})
    assert {k.partition('/')[2] for k in fs.find('bucket')} == set(want), fs.find('bucket')
    for key, data in want.items():
        assert fs.cat('bucket/' + key) == data, key


globals()[sys.argv[1]](__import__(sys.argv[1]))
END
for client in boto3 s3fs; do
	if find_python -c "import $client"; then
		ok "$client finds what was uploaded" "$python" clients.py $client
	else
		skip 1 "no $client: $why"
	fi
done
kill $swift
done_testing
