#!/bin/sh
# s3.t - checkpoints in buckets of S3, and on the Hub
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
. "$TOP_SRCDIR/tests/tap/server.sh"
. "$TOP_SRCDIR/tests/tap/python.sh"

data=$TOP_SRCDIR/tests/data
PAGE=5 serve "$data"
HOME=$scratch
AWS_ENDPOINT_URL=$server/s3 AWS_REGION=eu-test-1
AWS_ACCESS_KEY_ID=AKTEST AWS_SECRET_ACCESS_KEY=secret+of/tests
export HOME AWS_ENDPOINT_URL AWS_REGION AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
AWS_EC2_METADATA_DISABLED=true
export AWS_EC2_METADATA_DISABLED
for v in AWS_PROFILE AWS_DEFAULT_PROFILE AWS_SESSION_TOKEN AWS_ENDPOINT_URL_S3 \
    AWS_SHARED_CREDENTIALS_FILE AWS_CONFIG_FILE AWS_DEFAULT_REGION HF_TOKEN \
    HF_HOME HF_TOKEN_PATH; do
	unset $v
done

sum() {
	"$OPTIMFS" sum --run=no "$@" 2>"$scratch/err" | sed 's/ .*//'
}
for ck in pytorch/dcp_fsdp2_w4/ckpt pytorch/dcp_names/ckpt \
    pytorch/dcp_fsdp2_zstd_w2/ckpt pytorch/hf_storage_w2/ckpt \
    pytorch/torchsave_full/ckpt/state.pt deepspeed/v0.18.5_z3_ws2_bf16/ckpt \
    megatron/llama_dp2/fully_reshardable/iter_0000003 numpy/array.npy; do
	is "in a bucket, $ck is what it is in files" "$(sum "s3://$ck")" \
	    "$(sum "$data/$ck")"
done

AWS_ENDPOINT_URL=$server/untold/s3 not_ok "a listing that ends in the middle is an error" \
    "$OPTIMFS" info s3://megatron/llama_dp2
like "and the error says so" "$(cat "$scratch/err")" "*OFS924*how its listing goes on*"

ck=pytorch/dcp_fsdp2_w4/ckpt
asked >/dev/null
ok "a tensor in a bucket is read" "$OPTIMFS" cat "s3://$ck" optim/state/norm.bias/exp_avg
n=$(asked)
[ "$n" -le 6 ]
tap_result $? "by a listing, the index and a request for each shard" || diag "$n requests"

# From Python, by the same address.
import_optimfs
cat >"$scratch/read.py" <<'E'
import sys
import optimfs
url, name, cache = sys.argv[1:]
with optimfs.open(url, cache_dir=cache) as ck:
    data = ck.open(name).read()
try:
    import fsspec
    from optimfs.fsspec import OptimfsFileSystem
except ImportError:
    pass
else:
    fsspec.register_implementation("optimfs", OptimfsFileSystem, clobber=True)
    with fsspec.open("optimfs://" + name, path=url) as f:
        assert f.read() == data
    with fsspec.open("simplecache::optimfs://" + name, optimfs={"path": url}) as f:
        assert f.read() == data
sys.stdout.buffer.write(data)
E
if [ -e "$OPTIMFS_LIBRARY" ] && ! sanitized; then
	is "Python and fsspec read a tensor in a bucket" \
	    "$(python3 "$scratch/read.py" "s3://$ck" optim/state/norm.bias/exp_avg "$scratch/cache" | cksum)" \
	    "$("$OPTIMFS" cat "$data/$ck" optim/state/norm.bias/exp_avg | cksum)"
	ok "and keep it on a disk" test -d "$scratch/cache/0"
else
	skip 2 "no library for Python"
fi
mkdir "$scratch/point"
not_ok "a bucket cannot be mounted for writing" "$OPTIMFS" mount -o rw "s3://$ck" "$scratch/point"
like "and the error says so" "$(cat "$scratch/err")" "*OFS926*"
not_ok "a prefix without keys is an error" "$OPTIMFS" info "s3://pytorch/none"
like "and the error says so" "$(cat "$scratch/err")" "*OFS019*no such file or directory*"
not_ok "a name that is none of a bucket is refused" "$OPTIMFS" info "s3://buck~et/x"
like "and the error says so" "$(cat "$scratch/err")" "*OFS920*bucket*"

# Runs: the site is listed once for all of its checkpoints.
mkdir "$scratch/runs" "$scratch/runs/bucket" "$scratch/runs/bucket/run"
for step in 1 2 3; do
	cp -r "$data/$ck" "$scratch/runs/bucket/run/step-$step"
done
run=$scratch/runs/bucket/run
asked >/dev/null
rm "$scratch/port"
served=$server
PAGE=1000 serve "$scratch/runs"
AWS_ENDPOINT_URL=$server/s3
ok "a run in a bucket is described" "$OPTIMFS" info s3://bucket/run
sed 's,^s3://bucket,x,' "$scratch/out" >"$scratch/got"
"$OPTIMFS" info "$run" | sed "s,^$scratch/runs/bucket,x," >"$scratch/want"
ok "as it is in files" diff "$scratch/want" "$scratch/got"
n=$(asked)
[ "$n" -le 4 ]
tap_result $? "by a listing, and the index of each step" || diag "$n requests"
for name in :latest :2 /steps/3 :avg/last2; do
	is "run$name in a bucket is what it is in files" \
	    "$(sum "s3://bucket/run$name")" "$(sum "$run$name")"
done
ok "a step of a run is compared with another" "$OPTIMFS" diff s3://bucket/run:1 s3://bucket/run:3
not_ok "a step that is not there is an error" "$OPTIMFS" info s3://bucket/run:7
like "and the error says which there are" "$(cat "$scratch/err")" "*OFS85*7*"
"$OPTIMFS" thin --keep-last 1 --yes s3://bucket/run >"$scratch/out" 2>&1
like "nothing is removed there" "$(cat "$scratch/out")" "*OFS926*"
is "and all of it is still there" "$(ls "$run")" "step-1
step-2
step-3"
if grep -q fuse /proc/filesystems && [ -w /dev/fuse ]; then
	mnt=$(point run)
	ok "a run in a bucket is mounted" "$OPTIMFS" mount -q s3://bucket/run "$mnt"
	is "with its steps" "$(ls "$mnt/steps")" "1
2
3"
	is "and their files" "$(cksum <"$mnt/latest/optim/state/norm.bias/exp_avg")" \
	    "$("$OPTIMFS" cat "$run:3" optim/state/norm.bias/exp_avg | cksum)"
	umount "$mnt"
else
	skip 3 "no FUSE"
fi
server=$served
AWS_ENDPOINT_URL=$server/s3

# Many keys: twenty pages of all that is below it, then each directory once.
want=$(sum "$data/$ck")
for many in ckpt/logs/%06d ckpt/log-%06d; do
	rm "$scratch/port"
	MANY=$many serve "$data/pytorch"
	export AWS_ENDPOINT_URL=$server/s3
	is "a checkpoint with 100,000 keys beside it is read" "$(sum s3://dcp_fsdp2_w4/ckpt)" "$want"
	n=$(asked)
	[ "$n" -le 130 ]
	tap_result $? "by 1000 at a time, and few other requests" || diag "$n requests"
done
server=$served
AWS_ENDPOINT_URL=$server/s3

# Who asks.
want=$(sum "$data/$ck")
(
	AWS_SECRET_ACCESS_KEY=wrong
	"$OPTIMFS" info "s3://$ck" 2>&1
) >"$scratch/out"
like "a signature with another secret is refused by the server" \
    "$(cat "$scratch/out")" "*OFS923*not allowed*"
not_ok "and the error does not have the key" grep -q AKTEST "$scratch/out"
is "a session has its token" "$(AWS_SESSION_TOKEN=session sum "s3://$ck")" "$want"
unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
not_ok "who does not say who he is may not read" "$OPTIMFS" info "s3://$ck"
mkdir "$scratch/.aws"
printf '%s\n' '[default]' 'aws_access_key_id = AKOTHER' \
    'aws_secret_access_key = other' '[work]' 'aws_access_key_id=AKTEST' \
    'aws_secret_access_key=secret+of/tests' >"$scratch/.aws/credentials"
is "a profile has keys" "$(AWS_PROFILE=work sum "s3://$ck")" "$want"
unset AWS_REGION AWS_ENDPOINT_URL
printf '%s\n' '[profile work]' 'region = eu-test-1' 's3 =' \
    '  max_concurrent_requests = 1' "endpoint_url = $server/s3" >"$scratch/.aws/config"
is "and region and address, in the other file" "$(AWS_PROFILE=work sum "s3://$ck")" "$want"
AWS_PROFILE=none not_ok "a profile that does not exist is an error" "$OPTIMFS" info "s3://$ck"
like "and the error names it" "$(cat "$scratch/err")" "*OFS923*none*AWS_PROFILE*"

# The Hub.
HF_ENDPOINT=$server/hub HF_TOKEN=hf_secret
export HF_ENDPOINT HF_TOKEN
is "a model on the Hub is what it is in files" \
    "$(sum hf://pytorch/dcp_fsdp2_w4@v1/ckpt)" "$want"
is "so is a file" "$(sum hf://pytorch/torchsave_full@v1/ckpt/state.pt)" \
    "$(sum "$data/pytorch/torchsave_full/ckpt/state.pt")"
asked >/dev/null
is "one in several parts is read" "$(sum hf://pytorch/torchsave_full@v1/ckpt/state.pt)" "$(sum "$data/pytorch/torchsave_full/ckpt/state.pt")"
n=$(grep -c "^GET /hub/.*/resolve/" "$requests") k=$(grep -c "^GET /elsewhere/" "$requests")
[ "$n" -lt "$k" ]
tap_result $? "where a file is, is asked once" || diag "$n and $k requests"
is "and again when the answer has expired" \
    "$(HF_ENDPOINT=$server/expires/hub sum hf://pytorch/torchsave_full@v1/ckpt/state.pt)" \
    "$(sum "$data/pytorch/torchsave_full/ckpt/state.pt")"
is "which takes a request more" "$(grep -c "^GET /expires/hub/.*/resolve/" "$requests")" $((n + 1))
is "also when something else is there" \
    "$(HF_ENDPOINT=$server/portal/hub sum hf://pytorch/torchsave_full@v1/ckpt/state.pt)" \
    "$(sum "$data/pytorch/torchsave_full/ckpt/state.pt")"
is "a Hub that has the files itself is asked with the token" \
    "$(HF_ENDPOINT=$server/near/hub sum hf://pytorch/torchsave_full@v1/ckpt/state.pt)" \
    "$(sum "$data/pytorch/torchsave_full/ckpt/state.pt")"
is "for each range" "$(grep -c "^GET /near/elsewhere/" "$requests")" \
    "$(grep -c "^GET /near/hub/.*/resolve/" "$requests")"
not_ok "a revision that does not exist is an error" "$OPTIMFS" info \
    hf://pytorch/dcp_fsdp2_w4@v2/ckpt
like "and the error says so" "$(cat "$scratch/err")" "*OFS923*no such repository*HF_TOKEN*"
not_ok "half an address is an error" "$OPTIMFS" info hf://pytorch
like "and the error says what to give" "$(cat "$scratch/err")" "*OFS920*hf://ORGANISATION/MODEL*"
HF_TOKEN=hf_wrong not_ok "another token is refused by the server" "$OPTIMFS" info \
    hf://pytorch/dcp_fsdp2_w4@v1/ckpt
not_ok "and the error does not have it" grep -q hf_wrong "$scratch/err"
# What the Hub's own program finds there: our Hub is one.
cat >"$scratch/hub.py" <<'E'
import os
import pathlib
import sys
import huggingface_hub as hub
name, where = sys.argv[1:]
api = hub.HfApi(endpoint=os.environ['HF_ENDPOINT'], token=os.environ['HF_TOKEN'])
sha = api.model_info(name, revision='v1').sha
found = {f.path: f.size for f in api.list_repo_tree(name, recursive=True, revision=sha)
         if isinstance(f, hub.hf_api.RepoFile)}
where = pathlib.Path(where)
assert found == {str(f.relative_to(where)): f.stat().st_size
                 for f in where.rglob('*') if f.is_file()}, found
E
if find_python -c 'import huggingface_hub'; then
	ok "huggingface_hub lists the same files" "$python" "$scratch/hub.py" \
	    pytorch/dcp_fsdp2_w4 "$data/pytorch/dcp_fsdp2_w4"
else
	skip 1 "no huggingface_hub: $why"
fi
unset HF_TOKEN
mkdir -p "$scratch/.cache/huggingface"
echo hf_secret >"$scratch/.cache/huggingface/token"
is "the token of the Hub's own programs is used" \
    "$(sum hf://pytorch/dcp_fsdp2_w4@v1/ckpt)" "$want"
done_testing
