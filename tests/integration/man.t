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
	# which other manuals there are is the machine's business
	said=$(mandoc -Tlint -W style "$page" 2>/dev/null |
	    grep -v 'referenced manual not found')
	if [ -z "$said" ]; then
		echo "ok $n - ${page##*/}"
	else
		bad=$((bad + 1))
		echo "not ok $n - ${page##*/}"
		echo "$said" | sed 's/^/# /'
	fi
done

# Formats are registered in one place; the pages name them all.
names() { # names PAGE WORD...
	page=$1
	shift
	for word; do
		n=$((n + 1))
		if grep -qw -e "$word" "$top/$page"; then
			echo "ok $n - $page names $word"
		else
			bad=$((bad + 1))
			echo "not ok $n - $page names $word"
		fi
	done
}
: "${OPTIMFS:=optimfs}"
listed() { # listed VERB LABEL
	"$OPTIMFS" help "$1" | sed -n "s/ or /, /; s/@N//g; s/,//g; s/^$2: //p"
}
types=$(listed mount Types)
formats=$(listed reshard Formats)
[ -n "$types" ] && [ -n "$formats" ] || {
	bad=$((bad + 1))
	echo "# help lists no formats"
}
names optimfs.1 $types
names optimfs.5 $formats

echo "1..$n"
[ $bad = 0 ]
