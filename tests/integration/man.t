#!/bin/sh
# man.t - the manual pages are clean mdoc
top=${TOP_SRCDIR:-.}/docs/man
pages="$top/optimfs.1 $top/optimfs.5 $top/mount.optimfs.8
    ${TOP_BUILDDIR:-.}/docs/man/optimfs-errors.7"
command -v mandoc >/dev/null || {
	echo "1..0 # SKIP mandoc is not installed"
	exit 0
}
n=0
bad=0
for page in $pages; do
	n=$((n + 1))
	if said=$(mandoc -Tlint -W warning "$page" 2>/dev/null); then
		echo "ok $n - ${page##*/}"
	else
		bad=$((bad + 1))
		echo "not ok $n - ${page##*/}"
		echo "$said" | sed 's/^/# /'
	fi
done
echo "1..$n"
[ $bad = 0 ]
