#!/bin/sh
# bucket.t - reshard writes checkpoints into buckets of S3
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
. "$TOP_SRCDIR/tests/tap/server.sh"

data=$TOP_SRCDIR/tests/data
ck=$data/pytorch/dcp_fsdp2_w4/ckpt
FAULTS=$scratch/faults
export FAULTS
b=$scratch/buckets
mkdir "$b" "$b/bucket" "$b/closed"
touch "$b/closed/.closed"
program=bucket.py serve "$b"
HOME=$scratch
AWS_ENDPOINT_URL=$server/s3 AWS_REGION=eu-test-1
AWS_ACCESS_KEY_ID=AKTEST AWS_SECRET_ACCESS_KEY=secret+of/tests
export HOME AWS_ENDPOINT_URL AWS_REGION AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
for v in AWS_PROFILE AWS_DEFAULT_PROFILE AWS_SESSION_TOKEN AWS_ENDPOINT_URL_S3 \
    AWS_SHARED_CREDENTIALS_FILE AWS_CONFIG_FILE AWS_DEFAULT_REGION; do
	unset $v
done

reshard() {
	"$OPTIMFS" reshard "$@"
}
# The files in the bucket, and the uploads that are not completed.
files() {
	(cd "$b" && find . -type f ! -name .closed | sort)
}
uploads() {
	python3 -c 'import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1]).read().decode(), end="")' "$server/s3/uploads"
}
# Nothing is left in the bucket, nor to be paid for.
clean() {
	rm -rf "$b"/bucket/* "$b"/bucket/.[!.]* "$FAULTS"
	: >"$requests"
}
# How many parts were uploaded.
puts() {
	grep -c "^PUT .*partNumber" "$requests"
}

for to in dcp@3 dcp-st@2 safetensors,hf zero2@2 torch,only=model; do
	reshard -q --to "$to" "$ck" "$scratch/local" || bail_out "no $to"
	ok "a bucket gets $to" reshard --to "$to" "$ck" s3://bucket/run/step-1
	ok "byte for byte what a directory gets" diff -r "$scratch/local" "$b/bucket/run/step-1"
	is "and nothing is left beside it" "$(ls -A "$b/bucket/run") $(uploads)" "step-1 "
	rm -r "$scratch/local"
	[ "$to" = dcp@3 ] || clean
	[ "$to" != dcp@3 ] || {
		is "the index came last" "$(sed -n '/^POST.*uploadId/ s/ uploadId.*//p' \
		    "$requests" | tail -1)" "POST /s3/bucket/run/step-1/.metadata"
		ok "it can be read there" "$OPTIMFS" diff -q s3://bucket/run/step-1 "$ck"
		ok "and written somewhere else" reshard -q --to dcp@2 \
		    s3://bucket/run/step-1 s3://bucket/other/
		ok "as the same" "$OPTIMFS" diff -q s3://bucket/other "$ck"
		not_ok "what is there is not replaced" reshard --to dcp@2 "$ck" \
		    s3://bucket/run/step-1
		like "it says so" "$(cat "$scratch/err")" "*s3://bucket/run/step-1 already exists*"
		clean
		mkdir "$b/bucket/step"
		echo of somebody >"$b/bucket/step/note"
		not_ok "nor is a file of somebody" reshard --to dcp@2 "$ck" s3://bucket/step
		is "which stays" "$(files) $(uploads)" "./bucket/step/note "
		clean
	}
done

AWS_REGION=us-east-1 ok "a bucket of another region is written to" \
    reshard -q --to dcp@3 "$ck" s3://bucket/run/step-1
reshard -q --to dcp@3 "$ck" "$scratch/local"
ok "all the same" diff -r "$scratch/local" "$b/bucket/run/step-1"
rm -r "$scratch/local"
clean

# What cannot appear at once.
for to in torch safetensors dcp@2,zstd; do
	not_ok "a bucket does not get $to" reshard --to "$to" "$ck" s3://bucket/x
	like "it says why" "$(cat "$scratch/err")" "*OFS930*"
done
is "nothing was sent" "$(files) $(uploads)" " "
status "a whole bucket is no name" 2 reshard --to dcp@2 "$ck" s3://bucket/
like "it says what one is" "$(cat "$scratch/err")" "*OFS920*s3://BUCKET/NAME*"
not_ok "a web server is not written to" reshard --to dcp@2 "$ck" "$server/x"
like "it says so" "$(cat "$scratch/err")" "*OFS926*"
not_ok "a bucket that is not there" reshard --to dcp@2 "$ck" s3://none/x
like "is named" "$(cat "$scratch/err")" "*none*no such bucket*"
not_ok "nor one that may not be written" reshard --to dcp@2 "$ck" s3://closed/x
like "is named" "$(cat "$scratch/err")" "*OFS923*not allowed*AccessDenied*"
AWS_SECRET_ACCESS_KEY=wrong not_ok "nor for who is somebody else" \
    reshard --to dcp@2 "$ck" s3://bucket/x
like "it says so" "$(cat "$scratch/err")" "*OFS923*"
is "nothing is left" "$(files) $(uploads)" " "

# Faults that pass.
reshard -q --to dcp@3 "$ck" "$scratch/local"
for fault in 'busy 3' 'cut 2' 'lost 2' 'digest 1'; do
	clean
	echo "$fault" >"$FAULTS"
	ok "after $fault it goes on" reshard -q --to dcp@3 "$ck" s3://bucket/a/b
	ok "and is complete" diff -r "$scratch/local" "$b/bucket/a/b"
	is "without a rest" "$(ls -A "$b/bucket/a") $(uploads)" "b "
done
# Of four parts and four files, what completes comes after four.
for fault in late lost busy; do
	clean
	printf 'skip 4\n%s 2\n' "$fault" >"$FAULTS"
	ok "nor does it matter to completing: $fault" reshard -q --to dcp@3 "$ck" s3://bucket/a/b
	ok "which is complete" diff -r "$scratch/local" "$b/bucket/a/b"
	is "without a rest" "$(ls -A "$b/bucket/a") $(uploads)" "b "
done

# Faults that end it: nothing is visible, and the next run continues.
clean
printf 'skip 2\nrefused 99\n' >"$FAULTS"
not_ok "what is refused in the middle" reshard -j1 --to dcp@3 "$ck" s3://bucket/a/b
like "is said, and where the rest is" "$(cat "$scratch/err")" \
    "*OFS923*s3://bucket/a/.b.optimfs/reshard*continues*"
is "nothing can be seen" "$(files)" "./bucket/a/.b.optimfs/reshard"
rm "$FAULTS"
: >"$requests"
ok "the same command continues" reshard --to dcp@3 "$ck" s3://bucket/a/b
like "it says so" "$(cat "$scratch/err")" "*continuing from s3://bucket/a/.b.optimfs/reshard*"
is "with what was missing" "$(puts)" 2
ok "and is complete" diff -r "$scratch/local" "$b/bucket/a/b"
is "without a rest" "$(ls -A "$b/bucket/a") $(uploads)" "b "

# A server that damages what it has.
clean
printf 'skip 4\ndamaged 1\n' >"$FAULTS"
not_ok "what is not what was written" reshard --to dcp@3 "$ck" s3://bucket/a/b
like "is named" "$(cat "$scratch/err")" "*OFS931 s3://bucket/a/b/__*distcp*"
is "before there is an index" "$(ls -A "$b/bucket/a/b")" "__0_0.distcp
__1_0.distcp
__2_0.distcp"
ok "another layout takes its place" reshard -q --to dcp@2 "$ck" s3://bucket/a/b
is "without a rest of it" "$(ls -A "$b/bucket/a/b") $(uploads)" ".metadata
__0_0.distcp
__1_0.distcp "

# Another one in its place.
clean
printf 'skip 2\nrefused 99\n' >"$FAULTS"
not_ok "refused in the middle" reshard -j1 --to dcp@2 "$ck" s3://bucket/a/b
rm "$FAULTS"
ok "another layout starts again" reshard --to dcp@3 "$ck" s3://bucket/a/b
like "it says so" "$(cat "$scratch/err")" "*was to another layout: starting again*"
ok "and is complete" diff -r "$scratch/local" "$b/bucket/a/b"
is "without a rest of the other" "$(ls -A "$b/bucket/a") $(uploads)" "b "

# Killed while it completes: all but the index may be there.
clean
printf 'skip 5\nstall 99\n' >"$FAULTS"
"$OPTIMFS" reshard -q -j1 --to dcp@3 "$ck" s3://bucket/a/b &
# They are completed at the same time: the server answers one of them.
completing() {
	[ "$(grep -c '^POST.*distcp uploadId' "$requests")" = 3 ] &&
	    ls "$b"/bucket/a/b/__?_0.distcp >/dev/null 2>&1
}
eventually completing || diag "$(files)"
kill -KILL $!
wait $!
not_ok "who reads then finds no checkpoint" "$OPTIMFS" info s3://bucket/a/b
rm "$FAULTS"
: >"$requests"
ok "the same command completes it" reshard -q --to dcp@3 "$ck" s3://bucket/a/b
is "without uploading anything" "$(puts)" 0
ok "and it is complete" diff -r "$scratch/local" "$b/bucket/a/b"
is "without a rest" "$(ls -A "$b/bucket/a") $(uploads)" "b "

# Several parts, killed while the last one is sent.
python3 - "$scratch/large" <<'END'
import json, os, struct, sys
n = 34 << 20
head = json.dumps({"a": {"dtype": "F32", "shape": [n], "data_offsets": [0, 4 * n]}}).encode()
os.mkdir(sys.argv[1])
with open(sys.argv[1] + "/model.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(head)) + head)
    f.truncate(8 + len(head) + 4 * n)
END
clean
printf 'skip 3\nstall 99\n' >"$FAULTS"
"$OPTIMFS" reshard -q -j1 --to dcp@1 "$scratch/large" s3://bucket/large &
eventually grep -q '^PUT.*partNumber=3' "$requests"
kill -KILL $!
wait $!
is "nothing can be seen of a run that was killed" "$(files)" "./bucket/.large.optimfs/reshard"
rm "$FAULTS"
: >"$requests"
ok "the same command continues" reshard -q --to dcp@1 "$scratch/large" s3://bucket/large
is "with the last part" "$(sed -n 's/.*\(partNumber=.\).*/\1/p' "$requests")" partNumber=3
reshard -q --to dcp@1 "$scratch/large" "$scratch/local1"
ok "it is complete" diff -r "$scratch/local1" "$b/bucket/large"
is "without a rest" "$(ls -A "$b/bucket") $(uploads)" "large "

# Two at once: the first one that notices gives up.
clean
printf 'skip 4\nstall 99\n' >"$FAULTS"
"$OPTIMFS" reshard -q -j1 --timeout=2 --to dcp@3 "$ck" s3://bucket/a/b 2>"$scratch/first" &
first=$!
eventually grep -q '^POST.*uploadId' "$requests"
rm "$FAULTS"
ok "one that comes later takes over" reshard -q --to dcp@2 "$ck" s3://bucket/a/b
wait $first
like "the other one completes nothing" "$?" "[1-9]"
ok "what is there is one of them" "$OPTIMFS" diff -q s3://bucket/a/b "$ck"
is "alone" "$(ls -A "$b/bucket/a/b") $(uploads)" ".metadata
__0_0.distcp
__1_0.distcp "
# held N NAME: a run whose part N, of the file NAME, waits until $FAULTS is removed.
held() {
	clean
	[ "$1" = 1 ] || echo "skip $(($1 - 1))" >"$FAULTS"
	echo 'held 99' >>"$FAULTS"
	"$OPTIMFS" reshard -q -j1 --to dcp@3 "$ck" s3://bucket/a/b 2>"$scratch/first" &
	first=$!
	eventually grep -q "^PUT.*$2.*partNumber" "$requests"
}
note=$b/bucket/a/.b.optimfs/reshard
held 4 __2_0
rm "$note" "$FAULTS"
wait $first
like "who finds his note gone completes nothing" "$(cat "$scratch/first") $(files)" "*OFS931* "
is "and leaves nothing" "$(uploads)" ""
held 4 __2_0
echo '{"run": "0", "uploads": [["__0_0.distcp", "none"]]}' >"$note"
rm "$FAULTS"
wait $first
like "so does who finds another note" "$(cat "$scratch/first")" "*OFS931*"
is "which stays, alone" "$(files) $(uploads)" "./bucket/a/.b.optimfs/reshard "
# The later one is killed, and then the first one fails, without a part.
held 1 .
"$OPTIMFS" reshard -q -j1 --to dcp@2 "$ck" s3://bucket/a/b &
eventually grep -q 'dcp@2' "$note"
kill -KILL $!
wait $!
rm "$FAULTS"
wait $first
like "who is taken over fails" "$?" "[1-9]"
is "and removes no note of the other one" "$(files)" "./bucket/a/.b.optimfs/reshard"
ok "which is continued" reshard -q --to dcp@2 "$ck" s3://bucket/a/b
is "without a rest" "$(ls -A "$b/bucket/a") $(uploads)" "b "

# Objects of somebody else, of the same names and sizes.
other() {
	mkdir -p "$b/bucket/a/b"
	tr '\0' 'x' <"$scratch/local/__1_0.distcp" >"$b/bucket/a/b/__1_0.distcp"
	cp "$b/bucket/a/b/__1_0.distcp" "$scratch/other"
}
held 4 __2_0
other
rm "$FAULTS"
wait $first
like "what appears meanwhile is not replaced" "$(cat "$scratch/first")" "*b already exists*__1_0*"
for to in dcp@3 dcp@2; do
	not_ok "nor is it believed to be that of the first run ($to)" reshard -q --to $to "$ck" s3://bucket/a/b
	like "it is named" "$(cat "$scratch/err")" "*already exists*__1_0*"
	ok "and stays" cmp "$scratch/other" "$b/bucket/a/b/__1_0.distcp"
done
is "alone" "$(ls -A "$b/bucket/a/b")" __1_0.distcp
rm -r "$b/bucket/a/b"
: >"$requests"
ok "when it is gone, the run is completed" reshard -q --to dcp@3 "$ck" s3://bucket/a/b
is "with what is there" "$(puts)" 0
ok "as a directory has it" diff -r "$scratch/local" "$b/bucket/a/b"
done_testing
