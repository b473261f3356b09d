#!/bin/sh
# codes.t - every error code is documented, used, and provoked by a test
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

cd "$TOP_SRCDIR" || exit 99

# Codes that no test can provoke here, and why.
cat >"$scratch/untested" <<'END'
OFS633 a tree of 4294967294 files takes hundreds of gigabytes of memory
OFS711 only a build without zstd has it
END

# codes FILE...: the codes in the files, each once
codes() {
	grep -hoE 'OFS[0-9]{3}' "$@" | sort -u
}
sources() {
	find src fuse tools include -name '*.[ch]'
}
# Without this file and without data.
tests() {
	find tests \( -path tests/data -o -path tests/fuzz/corpus \) -prune -o \
	    -type f ! -name codes.t \( -name '*.[ch]' -o -name '*.t' -o \
	    -name '*.py' -o -name '*.sh' \) -print
}
# lacks A B: the lines of A that B has not
lacks() {
	comm -23 "$1" "$2" | tr '\n' ' '
}

sed -n 's/^| \(OFS[0-9]*\) |.*/\1/p' docs/errors.md >"$scratch/table"
sort "$scratch/table" >"$scratch/sorted"
codes $(sources) >"$scratch/used"
codes $(tests) >"$scratch/tested"
cut -d ' ' -f 1 "$scratch/untested" >"$scratch/known"
lacks "$scratch/sorted" "$scratch/tested" | tr ' ' '\n' >"$scratch/rest"

ok "docs/errors.md has a table of codes" test -s "$scratch/table"
is "the table of codes is sorted and has each code once" \
    "$(sort -u "$scratch/table" | cmp - "$scratch/table" 2>&1)" ''
is "each row of docs/errors.md says what to do, instead of what may have happened" \
    "$(awk -F ' [|] ' '/^[|] OFS/ && $4 ~ /^(the|it|its|one of|parts|files|readers) / &&
	$4 !~ /:|the message/ { print $1 }' docs/errors.md)" ''
"${OPTIMFS:=optimfs}" explain | cut -d ' ' -f 1 >"$scratch/explained"
is "optimfs explain lists the codes of the table" \
    "$(cmp "$scratch/table" "$scratch/explained" 2>&1)" ''
sed -n 's/^\.It \(OFS[0-9]*\) .*/\1/p' \
    "${TOP_BUILDDIR:-.}/docs/man/optimfs-errors.7" >"$scratch/page"
is "optimfs-errors(7) lists the codes of the table" \
    "$(cmp "$scratch/table" "$scratch/page" 2>&1)" ''
is "every code in the sources is in the table" \
    "$(lacks "$scratch/used" "$scratch/sorted")" ''
is "every code in the table is in the sources" "$(lacks "$scratch/sorted" "$scratch/used")" ''
is "every code is in a test or in the list of untestable codes" \
    "$(lacks "$scratch/rest" "$scratch/known")" ''
is "every untestable code is in the table and in no test" \
    "$(lacks "$scratch/known" "$scratch/rest")" ''
done_testing
