#!/bin/sh
# s3_credentials.t - where keys of AWS come from
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
. "$TOP_SRCDIR/tests/tap/server.sh"

data=$TOP_SRCDIR/tests/data
ck=pytorch/dcp_fsdp2_w4/ckpt
serve "$data"
cd "$scratch" || exit 99
for v in $(env | sed -n 's/^\(AWS_[A-Z0-9_]*\)=.*/\1/p'); do
	unset "$v"
done
HOME=$scratch
AWS_ENDPOINT_URL_S3=$server/s3 AWS_REGION=eu-test-1
export HOME AWS_ENDPOINT_URL_S3 AWS_REGION
key=$requests.key

sum() {
	rm -f "$key"
	env "$@" "$OPTIMFS" sum --run=no "s3://$ck" 2>err | sed 's/ .*//'
}
want=$("$OPTIMFS" sum --run=no "$data/$ck" | sed 's/ .*//')

# Each place gives keys first that the server takes for expired.
instance=AWS_EC2_METADATA_SERVICE_ENDPOINT=$server/aws/instance
for end in '' /; do
	is "an instance has keys" "$(sum "$instance$end")" "$want"
	is "of its role" "$(cat "$key")" AKINSTANCE
done
echo the-secret >secret
full="AWS_CONTAINER_CREDENTIALS_FULL_URI=$server/aws/container"
is "a container has keys" "$(sum "$full" AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE="$scratch/secret" "$instance")" "$want"
is "which come before those of an instance" "$(cat "$key")" AKCONTAINER
is "its secret can be a variable" "$(sum "$full" AWS_CONTAINER_AUTHORIZATION_TOKEN=the-secret)" "$want"
echo web.id-token >token
web="AWS_WEB_IDENTITY_TOKEN_FILE=$scratch/token AWS_ROLE_ARN=arn:aws:iam::1:role/a+b
	AWS_ENDPOINT_URL_STS=$server/aws/sts/"
is "a token is exchanged for keys" "$(sum $web "$full")" "$want"
is "which come before those of a container" "$(cat "$key")" AKSTS
mkdir .aws
printf '%s\n' '[default]' 'aws_access_key_id=AKTEST' 'aws_secret_access_key=secret+of/tests' >.aws/credentials
is "and of files" "$(sum $web) $(cat "$key")" "$want AKSTS"
is "files come before a container" "$(sum "$full") $(cat "$key")" "$want AKTEST"
is "and variables before all" "$(sum $web AWS_ACCESS_KEY_ID=AKCONTAINER \
    AWS_SECRET_ACCESS_KEY=secret+of/tests) $(cat "$key")" "$want AKCONTAINER"
printf '%s\n' '[profile web]' "web_identity_token_file = $scratch/token" \
    'role_arn = arn:aws:iam::1:role/a+b' '[profile sso]' 'sso_session = x' \
    '[profile role]' 'role_arn = x' 'source_profile = default' '[profile bare]' 'region = eu-test-1' >.aws/config
is "a profile can name the token" "$(sum AWS_PROFILE=web AWS_ENDPOINT_URL_STS="$server/aws/sts/")" "$want"
is "one without keys leads to the metadata" "$(sum AWS_PROFILE=bare "$instance") $(cat "$key")" "$want AKINSTANCE"

# Where the bucket is.
printf '%s\n' '[default]' 'aws_access_key_id=AKTEST' 'aws_secret_access_key=secret+of/tests' >.aws/credentials
there="AWS_ENDPOINT_URL_S3= AWS_PROFILE=there"
cat >.aws/config <<-END
	[services mine]
	sts =
	  endpoint_url = http://127.0.0.1:1/
	s3 =
	  endpoint_url = $server/s3
	[services others]
	s3 =
	  endpoint_url = http://127.0.0.1:1/
	[profile "there"]
	aws_access_key_id=AKTEST
	aws_secret_access_key=secret+of/tests
	services = mine
	endpoint_url = http://127.0.0.1:1/
	[profile all]
	aws_access_key_id=AKTEST
	aws_secret_access_key=secret+of/tests
	s3 =
	  max_concurrent_requests = 1
	  endpoint_url = http://127.0.0.1:1/
	endpoint_url = $server/s3
	[profile host]
	aws_access_key_id=AKTEST
	aws_secret_access_key=secret+of/tests
	endpoint_url = http://localhost:${server##*:}/s3
	s3 =
	  addressing_style = virtual
END
is "the files have an address of S3" "$(sum $there)" "$want"
is "or one of all services" "$(sum $there AWS_PROFILE=all)" "$want"
is "a variable for all of them comes before" "$(sum $there AWS_ENDPOINT_URL=$server/s3)" "$want"
is "the bucket can be in the name of the host" "$(sum $there AWS_PROFILE=host)" "$want"
ok "and is not in its path then" grep -q '^GET /s3/dcp_fsdp2' "$requests"
is "who asks in another region is told which one it is" "$(sum AWS_REGION=us-east-1)" "$want"
is "also if none is set" "$(sum AWS_REGION=)" "$want"
: >"$requests"
is "by one request more" "$(sum AWS_REGION=)" "$want"
n=$(asked)
is "and by none otherwise" "$(sum AWS_REGION=eu-test-1)" "$want"
is "than that" "$n" "$(($(asked) + 1))"
not_ok "an address that does not say whether there is TLS is asked with it" env \
    "AWS_ENDPOINT_URL_S3=${server#http://}/s3" "$OPTIMFS" info "s3://$ck"
like "and the error says what it may be" "$(cat "$scratch/err")" "*OFS922*http://*"
not_ok "a server that names another one each time is asked twice" env \
    "AWS_ENDPOINT_URL_S3=$server/wanders/s3" timeout 60 "$OPTIMFS" info "s3://$ck"
like "and the error says what it named" "$(cat "$scratch/err")" "*OFS923*AWS_REGION=eu-other-2*"
not_ok "who names the one that was asked refuses" env \
    "AWS_ENDPOINT_URL_S3=$server/refuses/s3" "$OPTIMFS" info "s3://$ck"
like "for the reason that it says" "$(cat "$scratch/err")" "*OFS922*HTTP 400 InvalidToken*"
pays=AWS_ENDPOINT_URL_S3=$server/payer/s3
not_ok "of a bucket whose reader pays nothing is read" env "$pays" "$OPTIMFS" info "s3://$ck"
is "unless he says so" "$(sum "$pays" AWS_REQUEST_PAYER=requester)" "$want"
rm .aws/*

# What has no keys says so.
printf '%s\n' '[profile none]' 'services = none' '[profile sso]' 'sso_session = x' '[profile process]' 'credential_process = x' \
    '[profile role]' 'role_arn = x' 'source_profile = default' >.aws/config
fails() {
	what=$1 text=$2
	shift 2
	not_ok "$what" env "$@" "$OPTIMFS" info "s3://$ck"
	like "and the error says what to do" "$(cat "$scratch/err")" "$text"
}
fails "single sign-on is not known" "*OFS923*sso_session*export-credentials*" AWS_PROFILE=sso
fails "addresses of services that are not there are an error" "*OFS923*services none*" \
    AWS_PROFILE=none AWS_ENDPOINT_URL_S3=
fails "nor is a program that prints keys" "*OFS923*credential_process*export-credentials*" \
    AWS_PROFILE=process
fails "nor are roles to assume" "*OFS923*source_profile*export-credentials*" AWS_PROFILE=role
rm .aws/*
fails "a container that refuses is an error" "*OFS923*container*401*" "$full"
fails "so is the address of another machine" "*OFS923*another machine*" \
    AWS_CONTAINER_CREDENTIALS_FULL_URI=http://127.0.0.1.example.org/
fails "also behind the name of a user" "*OFS923*another machine*" \
    AWS_CONTAINER_CREDENTIALS_FULL_URI=http://127.0.0.1:80@127.0.0.1.example.org/
fails "so is a token that is refused" "*OFS923*security token service*403*" \
    $web AWS_ROLE_ARN=other
fails "and one that does not exist" "*OFS923*$scratch/none*" $web \
    AWS_WEB_IDENTITY_TOKEN_FILE="$scratch/none"
fails "and one without a role" "*OFS923*AWS_ROLE_ARN*" $web AWS_ROLE_ARN=
rm -f "$key"
not_ok "without keys nothing is signed" env "$instance" AWS_EC2_METADATA_DISABLED=true \
    "$OPTIMFS" info "s3://$ck"
not_ok "not even by a place that is turned off" test -e "$key"
fails "a session token that is too long is an error" "*OFS923*AWS_SESSION_TOKEN*too long*" \
    AWS_ACCESS_KEY_ID=AKTEST AWS_SECRET_ACCESS_KEY=x AWS_SESSION_TOKEN="$(printf %05000d 0)"
fails "who is not let in without keys is told why there are none" \
    "*OFS923*metadata of the instance*404*" AWS_EC2_METADATA_SERVICE_ENDPOINT="$server/aws/container"
fails "keys that have expired are an error" "*OFS923*expired*" AWS_ACCESS_KEY_ID=AKSTS0 \
    AWS_SECRET_ACCESS_KEY=x AWS_SESSION_TOKEN=x
not_ok "expired keys are an error if there is no time to ask again" env $web \
    AWS_ENDPOINT_URL_STS="$server/aws/later/" "$OPTIMFS" info "s3://$ck"
like "which says so" "$(cat "$scratch/err")" "*OFS923*the keys have expired*"

if grep -q fuse /proc/filesystems && [ -w /dev/fuse ]; then
	mnt=$(point s3)
	ok "a mount has keys from a token" env $web "$OPTIMFS" mount -q "s3://$ck" "$mnt"
	is "and reads" "$(cksum <"$mnt/optim/state/norm.bias/exp_avg")" \
	    "$("$OPTIMFS" cat "$data/$ck" optim/state/norm.bias/exp_avg | cksum)"
	umount "$mnt"
else
	skip 2 "no FUSE"
fi
done_testing
