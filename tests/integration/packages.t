#!/bin/sh
# packages.t - the recipes for packages agree with the sources
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

cd "$TOP_SRCDIR" || exit 99
version=$(sed -n 's/^AC_INIT(\[optimfs\], \[\([^]]*\)\].*/\1/p' configure.ac)
like "configure.ac has a version" "$version" '[0-9]*.[0-9]*.[0-9]*'
is "debian/changelog has the version of configure.ac" \
    "$(sed -n '1s/.*(\(.*\)).*/\1/p' debian/changelog)" "$version"
is "contrib/optimfs.spec has the version of configure.ac" \
    "$(sed -n 's/^Version: *//p' contrib/optimfs.spec)" "$version"
is "contrib/spack/package.py has the version of configure.ac" \
    "$(sed -n 's/^    version("\(.*\)").*/\1/p' contrib/spack/package.py)" \
    "$version"

not_ok "no recipe names an address that mail could reach" grep -rEq \
    '@[a-z0-9-]+(\.[a-z0-9-]+)*\.(org|com|net|io|dev)\b' debian/control \
    debian/changelog contrib/optimfs.spec contrib/spack

# Each manual page and each completion is in a package.
for page in docs/man/*.[1-8]; do
	name=${page##*/}
	ok "debian/optimfs.install lists $name" grep -q "/$name\$" \
	    debian/optimfs.install
	ok "contrib/optimfs.spec lists $name" grep -q "/$name\*\$" \
	    contrib/optimfs.spec
done
for file in bash-completion/completions/optimfs zsh/site-functions/_optimfs \
    fish/vendor_completions.d/optimfs.fish optimfs/dump_units.py; do
	ok "debian/optimfs.install lists $file" grep -q "^usr/share/$file" \
	    debian/optimfs.install
	ok "contrib/optimfs.spec lists $file" grep -qx "%{_datadir}/$file" \
	    contrib/optimfs.spec
done
while read -r doc; do
	ok "$doc of debian/optimfs.docs exists" test -e "$doc"
done <debian/optimfs.docs
# What the manual and the first page refer to; python.md has a package of its own.
for doc in $(grep -oh 'docs/[a-z]*\.md' README.md docs/man/optimfs.1 | sort -u |
    grep -v -e architecture -e python); do
	ok "debian/optimfs.docs lists $doc" grep -qx "$doc" debian/optimfs.docs
	ok "contrib/optimfs.spec lists $doc" grep -q "^%doc.* $doc\>" \
	    contrib/optimfs.spec
done

"$OPTIMFS" units-script >"$scratch/units.py"
ok "units-script prints contrib/dump_units.py" cmp contrib/dump_units.py "$scratch/units.py"
modules=$(OPTIMFS_MODULES=$scratch "$OPTIMFS" --version)
is "--version says which module is not installed" \
    "$(echo "$modules" | grep -c 'its module is not installed\|no MPI')" 1

if command -v rpmspec >/dev/null; then
	ok "rpmspec parses contrib/optimfs.spec" rpmspec -q contrib/optimfs.spec
else
	skip 1 "no rpmspec"
fi
if command -v python3 >/dev/null; then
	ok "Python parses contrib/spack/package.py" python3 -c \
	    'import ast, sys; ast.parse(open(sys.argv[1]).read())' \
	    contrib/spack/package.py
else
	skip 1 "no python3"
fi
done_testing
