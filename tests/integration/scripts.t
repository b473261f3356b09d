#!/bin/sh
# scripts.t - scripts/totals, scripts/failures, and the checks of scripts/build
# and torch
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

trs() { # FILE RESULT...: write a .trs file as tap-driver.sh does
	file=$1
	shift
	printf ':global-test-result: %s\n:recheck: yes\n' "$1" >"$file"
	printf ':test-result: %s\n' "$@" >>"$file"
}
totals() {
	is "scripts/totals counts $1" "$("$TOP_SRCDIR/scripts/totals" "$scratch/a b")" "$2"
}

mkdir "$scratch/a b"
totals "no results" "0 passed, 0 failed, 0 skipped"
not_ok "scripts/totals fails without results" "$TOP_SRCDIR/scripts/totals" "$scratch/a b"
trs "$scratch/a b/good.trs" PASS SKIP PASS
totals "passed and skipped tests" "2 passed, 0 failed, 1 skipped"
ok "scripts/totals succeeds when nothing has failed" "$TOP_SRCDIR/scripts/totals" "$scratch/a b"
trs "$scratch/a b/bad.trs" PASS FAIL ERROR
totals "a failure with its exit status as one failure" \
    "3 passed, 1 failed, 1 skipped"
trs "$scratch/a b/died.trs" PASS ERROR
totals "a test that died as one failure" "4 passed, 2 failed, 1 skipped"
not_ok "scripts/totals fails when a test has failed" "$TOP_SRCDIR/scripts/totals" "$scratch/a b"
printf 'ok 1 - fine\nnot ok 2 - bad\n' >"$scratch/a b/bad.log"
echo 'ok 1 - fine' >"$scratch/a b/good.log"
is "scripts/failures prints the failed lines of a failed test" \
    "$("$TOP_SRCDIR/scripts/failures" "$scratch/a b" 2>&1 | grep -A1 bad.log)" \
    "== $scratch/a b/bad.log
not ok 2 - bad"
is "scripts/failures prints nothing of a passed test" \
    "$("$TOP_SRCDIR/scripts/failures" "$scratch/a b" 2>&1 | grep -c good)" 0

mkdir "$scratch/a b/scripts"
cp "$TOP_SRCDIR/scripts/build" "$scratch/a b/scripts"
not_ok "scripts/build fails for a source directory with a space" "$scratch/a b/scripts/build" \
    "$scratch/build"
like "scripts/build says that a source path must have no spaces" \
    "$(cat "$scratch/err")" '*no path with spaces*'
not_ok "the rejected build makes no directory" test -e "$scratch/build"
not_ok "scripts/build fails for a build directory with a space" "$TOP_SRCDIR/scripts/build" \
    "$scratch/a b/build"
like "scripts/build says that a build path must have no spaces" \
    "$(cat "$scratch/err")" '*no path with spaces*'
not_ok "the rejected build directory is not made" test -e "$scratch/a b/build"

is "tests leave a TMPDIR with a space or a quote alone" "$(for dir in "$scratch/a b" "$scratch/a'b"; do
	TMPDIR=$dir TOP_SRCDIR=$TOP_SRCDIR sh -c '. "$TOP_SRCDIR/tests/tap/tap.sh"; echo "${scratch%.*} $TMPDIR"'
done)" "/tmp/optimfs-test /tmp
/tmp/optimfs-test /tmp"

mkdir "$scratch/bin"
for program in dirname id mkdir sh; do
	ln -s "$(command -v $program)" "$scratch/bin"
done
not_ok "scripts/torch fails without debootstrap" env PATH="$scratch/bin" \
    "$TOP_SRCDIR/scripts/torch" "$scratch/torch"
like "scripts/torch names what is missing" "$(cat "$scratch/err")" '*scripts/torch: n[eo]*'
done_testing
