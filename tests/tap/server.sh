# server.sh - a server on the loopback, for tests
# SPDX-License-Identifier: Apache-2.0
#
# Sourced after tap.sh:
#
#   serve DIRECTORY          starts tests/support/$program (server.py); sets $server, its
#                            address, and $requests, a file with a line for each
#                            request
#   asked                    the number of requests since the last call of asked

requires python3
[ -e "$TOP_BUILDDIR/optimfs-http.la" ] ||
    skip_all "built without libcurl: no checkpoints on servers"
OPTIMFS_MODULES=$TOP_BUILDDIR/.libs
export OPTIMFS_MODULES
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
no_proxy=127.0.0.1,localhost
export no_proxy

serve() {
	requests=$scratch/requests
	: >"$requests"
	python3 "$TOP_SRCDIR/tests/support/${program:-server.py}" "$1" "$scratch/port" \
	    "$requests" >"$scratch/server.log" 2>&1 &
	eventually test -s "$scratch/port" || {
		diag "$(cat "$scratch/server.log")"
		exit 99
	}
	server=http://127.0.0.1:$(cat "$scratch/port")
}

asked() {
	wc -l <"$requests"
	: >"$requests"
}
