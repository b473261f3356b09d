#!/bin/sh
# codes.t - every error code is documented, used and provoked by a test
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

cd "$TOP_SRCDIR" || exit 99

# What no test can bring about here, and why.
cat >"$scratch/untested" <<'END'
OFS633 a tree of 4294967294 files takes hundreds of gigabytes of memory
OFS711 only a build without zstd has it
END

# codes FILE...: the codes in files, each once.
codes() {
	grep -hoE 'OFS[0-9]{3}' "$@" | sort -u
}
sources() {
	find src fuse tools include -name '*.[ch]'
}
# Not this one, nor what is only data.
tests() {
	find tests \( -path tests/data -o -path tests/fuzz/corpus \) -prune -o \
	    -type f ! -name codes.t \( -name '*.[ch]' -o -name '*.t' -o \
	    -name '*.py' -o -name '*.sh' \) -print
}
# What is in the first list, and not in the second.
lacks() {
	comm -23 "$1" "$2" | tr '\n' ' '
}

sed -n 's/^| \(OFS[0-9]*\) |.*/\1/p' docs/errors.md >"$scratch/table"
sort "$scratch/table" >"$scratch/sorted"
codes $(sources) >"$scratch/used"
codes $(tests) >"$scratch/tested"
cut -d ' ' -f 1 "$scratch/untested" >"$scratch/known"
lacks "$scratch/sorted" "$scratch/tested" | tr ' ' '\n' >"$scratch/rest"

ok "there is a table" test -s "$scratch/table"
is "it is sorted, each code once" \
    "$(sort -u "$scratch/table" | cmp - "$scratch/table" 2>&1)" ''
"${OPTIMFS:=optimfs}" explain | cut -d ' ' -f 1 >"$scratch/explained"
is "optimfs explain lists it" \
    "$(cmp "$scratch/table" "$scratch/explained" 2>&1)" ''
sed -n 's/^\.It \(OFS[0-9]*\) .*/\1/p' \
    "${TOP_BUILDDIR:-.}/docs/man/optimfs-errors.7" >"$scratch/page"
is "optimfs-errors(7) has it" "$(cmp "$scratch/table" "$scratch/page" 2>&1)" ''
is "every code that is used is in it" \
    "$(lacks "$scratch/used" "$scratch/sorted")" ''
is "every code in it is used" "$(lacks "$scratch/sorted" "$scratch/used")" ''
is "every code is in a test" "$(lacks "$scratch/rest" "$scratch/known")" ''
is "but for those that cannot be" \
    "$(lacks "$scratch/known" "$scratch/rest")" ''
done_testing
