# nodes.sh - nodes that serve parts of a checkpoint, for tests; sourced after tap.sh
# SPDX-License-Identifier: Apache-2.0

requires python3
"$OPTIMFS" --help | grep -q 'serve.*Ctrl-C' ||
    skip_all "this optimfs was built without libmicrohttpd"
[ -e "$TOP_BUILDDIR/optimfs-http.la" ] || skip_all "built without libcurl"
no_proxy=127.0.0.1
export no_proxy
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
chmod go+x "$scratch" # what is below a private directory has a token
HOME=$scratch
export HOME

# node N [PORT]: node N serves $scratch/N; $port_N and $pid_N.
node() {
	rm -f "$scratch/url"
	"$OPTIMFS" serve --listen "127.0.0.1:${2:-0}" "$scratch/$1" \
	    >"$scratch/url" 2>"$scratch/said" &
	eval "pid_$1=$!"
	eventually grep -qs http "$scratch/url" || bail_out "no server: $(cat "$scratch/said")"
	eval "port_$1=$(sed 's,.*:\([0-9]*\)/,\1,' "$scratch/url")"
}
# split CKPT N: its files, one after the other, on so many nodes, or fewer files on
# fewer nodes; $from has the addresses of all.
split() {
	rm -rf "$scratch"/n[0-9]
	from=
	i=0
	for file in $(cd "$1" && find . -type f | sort); do
		mkdir -p "$scratch/n$i/$(dirname "$file")"
		cp -p "$1/$file" "$scratch/n$i/$file"
		i=$(((i + 1) % $2))
	done
	i=0
	while [ $i -lt "$2" ]; do
		eval "pid_n$i="
		[ ! -d "$scratch/n$i" ] || {
			node "n$i"
			eval "from=\$from,http://127.0.0.1:\$port_n$i/"
		}
		i=$((i + 1))
	done
	from=${from#,}
}
# far N DELAY_MS [RATE [BREAK_ONE_IN]]: puts a slow link before node nN, and its
# address in $far; $pid_far.
far() {
	rm -f "$scratch/port"
	eval "far=\$port_n$1"
	shift
	python3 "$TOP_SRCDIR/tests/support/slow_link.py" "$far" "$@" >"$scratch/port" &
	pid_far=$!
	eventually grep -qs . "$scratch/port" || bail_out "no link"
	far=http://127.0.0.1:$(cat "$scratch/port")/
}
stop() {
	for pid; do
		[ -n "$pid" ] || continue
		kill -TERM "$pid"
		wait "$pid"
	done
}
