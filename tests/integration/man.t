#!/bin/sh
# man.t - the manual pages are valid mdoc and complete
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
	# References to manuals that are not installed do not count.
	said=$(mandoc -Tlint -W style "$page" 2>/dev/null |
	    grep -v 'referenced manual not found')
	if [ -z "$said" ]; then
		echo "ok $n - mandoc accepts ${page##*/}"
	else
		bad=$((bad + 1))
		echo "not ok $n - mandoc accepts ${page##*/}"
		echo "$said" | sed 's/^/# /'
	fi
done

# The manuals name every registered format.
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

# The usage of each verb and the synopsis have the same options.
options() { # the options in a text, one a line
	tr -d '[]' | tr ' ' '\n' | grep '^-' | grep -v '^--' |
	    sed 's/^-//' | fold -w 1
	grep -o -e '--[a-z-]*' "$tmp"
}
tmp=$(mktemp)
trap 'rm -f "$tmp"' EXIT
synopsis=$(mandoc -T ascii -O width=300 "$top/optimfs.1" 2>/dev/null |
    sed 's/.\x08//g; s/^ *//' | sed -n '/^SYNOPSIS/,/^DESCRIPTION/p')
for verb in $("$OPTIMFS" --help | sed -n 's/^  \([a-z]*\) .*/\1/p' |
    grep -vx optimfs); do
	n=$((n + 1))
	"$OPTIMFS" help "$verb" | awk 'NR > 1 && !/^ / { exit } { print }' >"$tmp"
	usage=$(options <"$tmp" | sort -u)
	echo "$synopsis" | grep "^optimfs $verb " >"$tmp"
	if [ -s "$tmp" ] && [ "$usage" = "$(options <"$tmp" | sort -u)" ]; then
		echo "ok $n - the synopsis has the options of $verb"
	else
		bad=$((bad + 1))
		echo "not ok $n - the synopsis has the options of $verb"
		echo "$usage" | sed 's/^/# usage: /'
		sed 's/^/# /' "$tmp"
	fi
done

# diff -q trusts the sizes of text files, which are upper bounds at first
n=$((n + 1))
if grep -qE 'diff -[a-z]*q[a-z]* /' "$top"/*.[158]; then
	bad=$((bad + 1))
	printf 'not '
fi
echo "ok $n - no example runs diff -q on mounts"

echo "1..$n"
[ $bad = 0 ]
