#!/bin/sh
# packages.t - recipes for packages agree with the sources
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

cd "$TOP_SRCDIR"
version=$(sed -n 's/^AC_INIT(\[optimfs\], \[\([^]]*\)\].*/\1/p' configure.ac)
like "the sources have a version" "$version" '[0-9]*.[0-9]*.[0-9]*'
is "Debian's changelog has it" \
    "$(sed -n '1s/.*(\(.*\)).*/\1/p' debian/changelog)" "$version"
is "the spec file has it" \
    "$(sed -n 's/^Version: *//p' contrib/optimfs.spec)" "$version"
is "Spack's recipe has it" \
    "$(sed -n 's/^    version("\(.*\)").*/\1/p' contrib/spack/package.py)" \
    "$version"

# Each manual page and each documented file is in a package.
for page in docs/man/*.[1-8]; do
	name=${page##*/}
	ok "$name is in Debian's package" grep -q "/$name\$" \
	    debian/optimfs.install
	ok "$name is in the spec file" grep -q "/$name\*\$" \
	    contrib/optimfs.spec
done
for file in bash-completion/completions/optimfs zsh/site-functions/_optimfs \
    fish/vendor_completions.d/optimfs.fish; do
	ok "$file is in Debian's package" grep -q "^usr/share/$file" \
	    debian/optimfs.install
	ok "$file is in the spec file" grep -qx "%{_datadir}/$file" \
	    contrib/optimfs.spec
done
while read -r doc; do
	ok "$doc is there to be packed" test -f "$doc"
done <debian/optimfs.docs

if command -v rpmspec >/dev/null; then
	ok "rpm reads the spec file" rpmspec -q contrib/optimfs.spec
else
	skip 1 "no rpmspec"
fi
if command -v python3 >/dev/null; then
	ok "Python reads Spack's recipe" python3 -c \
	    'import ast, sys; ast.parse(open(sys.argv[1]).read())' \
	    contrib/spack/package.py
else
	skip 1 "no python3"
fi
done_testing
