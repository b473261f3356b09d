#!/bin/sh
# far.t - all checkpoints of tests/data on a web server, with TLS, in a bucket, and on
# two nodes with optimfs serve
# SPDX-License-Identifier: Apache-2.0
#
# usage: make check-far (six minutes): no part of make check, which reads one of every
# kind (http.t, s3.t)
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
. "$TOP_SRCDIR/tests/tap/server.sh"
. "$TOP_SRCDIR/tests/tap/nodes.sh"

data=$TOP_SRCDIR/tests/data
serve "$data"
# nginx, or a server without TLS
web=$server/html
if start_nginx "$data"; then
	web=$tls
	export SSL_CERT_FILE="$scratch/cert.pem"
else
	diag "without TLS: $why"
fi
HOME=$scratch
AWS_ENDPOINT_URL=$server/s3 AWS_REGION=eu-test-1
AWS_ACCESS_KEY_ID=AKTEST AWS_SECRET_ACCESS_KEY=secret+of/tests
export HOME AWS_ENDPOINT_URL AWS_REGION AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY

sum() {
	"$OPTIMFS" sum --run=no "$@" 2>/dev/null | sed 's/ .*//'
}
# Every directory that is opened as a checkpoint, but none in one.
find_all() {
	for d in "$1"/*/; do
		[ -d "$d" ] || continue
		d=${d%/}
		if [ -n "$(sum "$d")" ]; then
			echo "${d#"$data/"}"
		else
			find_all "$d"
		fi
	done
}
find_all "$data" >"$scratch/all"
n=$(grep -c . "$scratch/all")
[ "$n" -gt 50 ]
tap_result $? "there are checkpoints" || diag "$n"
while read -r ck; do
	want=$(sum "$data/$ck")
	is "$ck on a web server" "$(sum "$web/$ck")" "$want"
	case $ck in
	*/*) is "and in a bucket" "$(sum "s3://$ck")" "$want" ;;
	esac
	split "$data/$ck" 2
	is "and on two nodes" "$(sum --from "$from")" "$want"
	stop "$pid_n0" "$pid_n1"
done <"$scratch/all"
[ "$web" != "$tls" ] || stop_nginx
done_testing
