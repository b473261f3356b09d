#!/bin/sh
# s3.t - checkpoints in buckets of S3, and on the Hub
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
. "$TOP_SRCDIR/tests/tap/server.sh"

data=$TOP_SRCDIR/tests/data
serve "$data"
HOME=$scratch
AWS_ENDPOINT_URL=$server/s3 AWS_REGION=eu-test-1
AWS_ACCESS_KEY_ID=AKTEST AWS_SECRET_ACCESS_KEY=secret+of/tests
export HOME AWS_ENDPOINT_URL AWS_REGION AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
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

ck=pytorch/dcp_fsdp2_w4/ckpt
asked >/dev/null
ok "a tensor in a bucket is read" "$OPTIMFS" cat "s3://$ck" optim/state/norm.bias/exp_avg
n=$(asked)
[ "$n" -le 6 ]
tap_result $? "by a listing, the index and a request for each shard" || diag "$n requests"
mkdir "$scratch/point"
not_ok "a bucket cannot be mounted for writing" "$OPTIMFS" mount -o rw "s3://$ck" "$scratch/point"
like "and the error says so" "$(cat "$scratch/err")" "*OFS926*"
not_ok "a prefix without keys is an error" "$OPTIMFS" info "s3://pytorch/none"
like "and the error says so" "$(cat "$scratch/err")" "*OFS019*no such file or directory*"
not_ok "a name that is none of a bucket is refused" "$OPTIMFS" info "s3://buck~et/x"
like "and the error says so" "$(cat "$scratch/err")" "*OFS920*bucket*"

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
not_ok "a revision that does not exist is an error" "$OPTIMFS" info \
    hf://pytorch/dcp_fsdp2_w4@v2/ckpt
like "and the error says so" "$(cat "$scratch/err")" "*OFS923*no such repository*HF_TOKEN*"
not_ok "half an address is an error" "$OPTIMFS" info hf://pytorch
like "and the error says what to give" "$(cat "$scratch/err")" "*OFS920*hf://ORGANISATION/MODEL*"
HF_TOKEN=hf_wrong not_ok "another token is refused by the server" "$OPTIMFS" info \
    hf://pytorch/dcp_fsdp2_w4@v1/ckpt
not_ok "and the error does not have it" grep -q hf_wrong "$scratch/err"
unset HF_TOKEN
mkdir -p "$scratch/.cache/huggingface"
echo hf_secret >"$scratch/.cache/huggingface/token"
is "the token of the Hub's own programs is used" \
    "$(sum hf://pytorch/dcp_fsdp2_w4@v1/ckpt)" "$want"
done_testing
