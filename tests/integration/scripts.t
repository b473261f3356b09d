#!/bin/sh
# scripts.t - what scripts/ say of results, and of places that they cannot use
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

trs() { # FILE RESULT...: as tap-driver.sh writes it
	file=$1
	shift
	printf ':global-test-result: %s\n:recheck: yes\n' "$1" >"$file"
	printf ':test-result: %s\n' "$@" >>"$file"
}
totals() {
	is "$1" "$("$TOP_SRCDIR/scripts/totals" "$scratch/a b")" "$2"
}

mkdir "$scratch/a b"
totals "nothing" "0 passed, 0 failed, 0 skipped"
not_ok "is not enough" "$TOP_SRCDIR/scripts/totals" "$scratch/a b"
trs "$scratch/a b/good.trs" PASS SKIP PASS
totals "passed" "2 passed, 0 failed, 1 skipped"
ok "is good" "$TOP_SRCDIR/scripts/totals" "$scratch/a b"
trs "$scratch/a b/bad.trs" PASS FAIL ERROR
totals "a failure, and the exit status that tells it, are one" \
    "3 passed, 1 failed, 1 skipped"
trs "$scratch/a b/died.trs" PASS ERROR
totals "a test that died is one" "4 passed, 2 failed, 1 skipped"
not_ok "is a failure" "$TOP_SRCDIR/scripts/totals" "$scratch/a b"
printf 'ok 1 - fine\nnot ok 2 - bad\n' >"$scratch/a b/bad.log"
echo 'ok 1 - fine' >"$scratch/a b/good.log"
is "of a test that failed, what did not pass is shown" \
    "$("$TOP_SRCDIR/scripts/failures" "$scratch/a b" 2>&1 | grep -A1 bad.log)" \
    "== $scratch/a b/bad.log
not ok 2 - bad"
is "of the others nothing" \
    "$("$TOP_SRCDIR/scripts/failures" "$scratch/a b" 2>&1 | grep -c good)" 0

mkdir "$scratch/a b/scripts"
cp "$TOP_SRCDIR/scripts/build" "$scratch/a b/scripts"
not_ok "sources in a directory with a space" "$scratch/a b/scripts/build" \
    "$scratch/build"
like "are refused in words" "$(cat "$scratch/err")" '*no path with spaces*'
not_ok "nothing was made" test -e "$scratch/build"
not_ok "a build directory with a space" "$TOP_SRCDIR/scripts/build" \
    "$scratch/a b/build"
like "is, too" "$(cat "$scratch/err")" '*no path with spaces*'
not_ok "nor here" test -e "$scratch/a b/build"

mkdir "$scratch/bin"
for program in dirname id mkdir sh; do
	ln -s "$(command -v $program)" "$scratch/bin"
done
not_ok "PyTorch without debootstrap" env PATH="$scratch/bin" \
    "$TOP_SRCDIR/scripts/torch" "$scratch/torch"
like "is refused in words" "$(cat "$scratch/err")" '*scripts/torch: n[eo]*'
done_testing
