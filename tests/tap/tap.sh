# tap.sh - tests in sh(1) that speak the Test Anything Protocol
# SPDX-License-Identifier: Apache-2.0
#
# Sourced first:  . "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
#
#   requires mount           "1..0 # SKIP why" unless checkpoints can be mounted
#   requires PROGRAM...      the same unless the programs are on PATH
#   ok "name" COMMAND...     one test: does COMMAND succeed?
#   not_ok "name" COMMAND... does it fail?
#   is "name" GOT WANT       are they equal?
#   like "name" GOT PATTERN  does GOT match the case(1) pattern?
#   status "name" N COMMAND...    does it exit with N? $scratch/out and err
#                            have its output; also after ok and not_ok
#   sanitized                is the program built with a sanitizer?
#   eventually COMMAND...    runs it until it succeeds; fails after $patience seconds
#   skip N "why"             counts N tests that cannot be run
#   bail_out "why"           no test makes sense any more; exits
#   mnt=$(point NAME)        a new empty directory to mount on
#   done_testing             the plan; exits
#
# A name is complete by itself, as a log shows only that line of a failed test:
# the subject and what it must do, "commit fails when a tensor was truncated".
#
# $scratch is a new directory. When the test ends, for any reason, all mounts
# below it are unmounted, the processes that the test has started are killed, and
# it is removed.
# A command that runs longer than $limit seconds is ended: it hangs, because even
# a busy machine finishes every command earlier.

: "${TOP_SRCDIR:=$(cd "$(dirname "$0")/../.." && pwd)}"
: "${TOP_BUILDDIR:=$TOP_SRCDIR}"
: "${OPTIMFS:=$TOP_BUILDDIR/optimfs}"
: "${OPTIMFS_FAKE:=$TOP_BUILDDIR/tests/support/optimfs-fake}"
: "${OPTIMFS_MODULES:=$TOP_BUILDDIR/.libs}"
: "${limit:=600}"
# What has not come after this time does not come.
: "${patience:=120}"
LC_ALL=C
# Colours of a terminal would count as columns.
NO_COLOR=1
# Checkpoints of trainers hold classes, which torch.load refuses by default from
# PyTorch 2.6 on.
TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1
# Nor may tests read or leave anything in the user's cache. Compilers need theirs
# if they have one, and root could make any directory that is missing.
XDG_CACHE_HOME=/dev/null/cache
CCACHE_DISABLE=1
export OPTIMFS_MODULES CCACHE_DISABLE XDG_CACHE_HOME LC_ALL NO_COLOR \
    TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD

tap_n=0
tap_failed=0

# Tests put $scratch into other scripts, patterns and lists.
case ${TMPDIR:-} in
*[!A-Za-z0-9/._+,@=-]*) TMPDIR=/tmp; export TMPDIR ;;
esac
scratch=$(mktemp -d "${TMPDIR:-/tmp}/optimfs-test.XXXXXX") || exit 99
scratch=$(cd "$scratch" && pwd -P)
TORCH_EXTENSIONS_DIR=$scratch/torch-extensions
export TORCH_EXTENSIONS_DIR

tap_mounts() {
	awk -v dir="$scratch/" 'index($5, dir) == 1 { print $5 }' \
	    /proc/self/mountinfo | sort -r
}

tap_cleanup() {
	cd /
	for tap_m in $(tap_mounts); do
		umount -f -l "$tap_m" 2>/dev/null ||
		    fusermount3 -u -z "$tap_m" 2>/dev/null
	done
	# All of them have inherited ASAN_OPTIONS, see below. Numbers of processes
	# that were noted when they started may be those of others by now.
	for tap_p in $(grep -lsF "log_path=$scratch/" /proc/[0-9]*/environ); do
		tap_p=${tap_p#/proc/} tap_p=${tap_p%/environ}
		[ "$tap_p" = $$ ] || kill -KILL "$tap_p" 2>/dev/null
	done
	rm -rf --one-file-system "$scratch"
}
trap tap_cleanup EXIT

# A daemon has no output for a sanitizer's report; done_testing prints it.
ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}log_path=$scratch/sanitizer
# A process that exits at once leaves threads unjoined.
TSAN_OPTIONS=${TSAN_OPTIONS:+$TSAN_OPTIONS:}report_thread_leaks=0
TSAN_OPTIONS=$TSAN_OPTIONS:log_path=$scratch/sanitizer
UBSAN_OPTIONS=${UBSAN_OPTIONS:+$UBSAN_OPTIONS:}log_path=$scratch/sanitizer
export ASAN_OPTIONS TSAN_OPTIONS UBSAN_OPTIONS
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

diag() {
	printf '%s\n' "$*" | sed 's/^/# /'
}

bail_out() {
	echo "Bail out! $*"
	exit 99
}

skip_all() {
	echo "1..0 # SKIP $*"
	exit 0
}

# The name of a test must not contain "#".
tap_result() {
	tap_n=$((tap_n + 1))
	if [ "$1" = 0 ]; then
		echo "ok $tap_n - $2"
		return 0
	fi
	tap_failed=$((tap_failed + 1))
	echo "not ok $tap_n - $2"
	return 1
}

# A function runs in this shell without the limit, a program with it.
tap_run() {
	case $(type "$1" 2>/dev/null) in
	*function*) "$@" ;;
	*) timeout -k 5 "$limit" "$@" ;;
	esac >"$scratch/out" 2>"$scratch/err" </dev/null
}

tap_said() {
	for tap_f in out err; do
		[ -s "$scratch/$tap_f" ] &&
		    head -n 5 "$scratch/$tap_f" | sed "s/^/# std$tap_f: /"
	done
	return 0
}

status() {
	tap_name=$1 tap_want=$2
	shift 2
	tap_run "$@"
	tap_got=$?
	[ "$tap_got" = "$tap_want" ]
	tap_result $? "$tap_name" && return 0
	diag "$*"
	diag "exit status $tap_got, wanted $tap_want"
	tap_said
	return 1
}

ok() {
	tap_name=$1
	shift
	status "$tap_name" 0 "$@"
}

not_ok() {
	tap_name=$1
	shift
	tap_run "$@"
	tap_got=$?
	[ "$tap_got" -ne 0 ] && [ "$tap_got" -lt 124 ]
	tap_result $? "$tap_name" && return 0
	diag "$*"
	diag "exit status $tap_got, wanted a failure"
	tap_said
	return 1
}

is() {
	[ "$2" = "$3" ]
	tap_result $? "$1" && return 0
	diag "got:    $2"
	diag "wanted: $3"
	return 1
}

like() {
	case $2 in
	$3) tap_result 0 "$1" ;;
	*)
		tap_result 1 "$1"
		diag "got:         $2"
		diag "does not match $3"
		return 1
		;;
	esac
}

skip() {
	tap_i=0
	while [ "$tap_i" -lt "$1" ]; do
		tap_i=$((tap_i + 1))
		tap_n=$((tap_n + 1))
		echo "ok $tap_n # SKIP $2"
	done
}

eventually() {
	tap_end=$(($(date +%s) + patience))
	until "$@"; do
		if [ "$(date +%s)" -ge $tap_end ]; then
			diag "still not so after $patience s: $*"
			return 1
		fi
		sleep 0.05
	done
}

done_testing() {
	for tap_f in "$scratch"/sanitizer.*; do
		[ -e "$tap_f" ] || continue
		tap_result 1 "the sanitizers find nothing"
		head -n 30 "$tap_f" | sed 's/^/# /'
	done
	echo "1..$tap_n"
	[ "$tap_failed" = 0 ]
	exit
}

tap_can_mount() {
	[ -c /dev/fuse ] || skip_all "no /dev/fuse"
	[ -r /dev/fuse ] && [ -w /dev/fuse ] ||
	    skip_all "no permission to use /dev/fuse"
	[ -r /proc/self/mountinfo ] || skip_all "no /proc"
	mkdir "$scratch/can" "$scratch/can/ck" "$scratch/can/mnt"
	timeout "$limit" "$OPTIMFS_FAKE" mount "$scratch/can/ck" "$scratch/can/mnt" \
	    2>"$scratch/err" ||
	    skip_all "cannot mount: $(head -n 1 "$scratch/err")"
	timeout "$limit" "$OPTIMFS_FAKE" umount "$scratch/can/mnt"
	rm -r "$scratch/can"
}

requires() {
	for tap_what; do
		if [ "$tap_what" = mount ]; then
			tap_can_mount
		elif ! command -v "$tap_what" >/dev/null; then
			skip_all "no $tap_what"
		fi
	done
}

sanitized() {
	ASAN_OPTIONS=help=1 TSAN_OPTIONS=help=1 "$OPTIMFS" --version 2>&1 |
	    grep -q Sanitizer
}

point() {
	mkdir -p "$scratch/$1"
	echo "$scratch/$1"
}

# Copies program $1, and the library it needs, to $scratch, where another user
# may run it with LD_LIBRARY_PATH=$scratch: the build may be in a private home.
copy_for_others() {
	copy_from=$(dirname "$1")/.libs/$(basename "$1")
	[ -x "$copy_from" ] || copy_from=$1
	cp -L "$copy_from" "$scratch/optimfs"
	for copy_from in "$TOP_BUILDDIR"/.libs/liboptimfs.so.?; do
		[ ! -e "$copy_from" ] || cp -L "$copy_from" "$scratch"
	done
	chmod 755 "$scratch" "$scratch"/optimfs
}
