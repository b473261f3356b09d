#!/bin/sh
# floors.t - each room of the sources includes and calls only the floors below
# it
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
requires python3

floors() {
	python3 "$TOP_SRCDIR/tests/house/floors.py" "$1" 2>&1
}

is "the sources keep to the floors of docs/architecture.md" \
    "$(floors "$TOP_SRCDIR")" ''

# A small source tree with one violation at a time.
h=$scratch/house
mkdir -p "$h/docs" "$h/src/low" "$h/src/high" "$h/fuse" "$h/tools"
printf '```floors\nfuse tools  # the program\nhigh\nlow\n```\n' \
    >"$h/docs/architecture.md"
echo 'int ofs_low(int x);' >"$h/src/low/low.h"
printf '#include "low/low.h"\n\nint ofs_low(int x)\n{\n\treturn x;\n}\n' \
    >"$h/src/low/low.c"
echo 'int ofs_high(void);' >"$h/src/high/high.h"
printf '%s\n' '#include "high/high.h"' '#include "low/low.h"' '' \
    'int ofs_high(void)' '{' '	return ofs_low(1);' '}' >"$h/src/high/high.c"
echo 'int main;' >"$h/fuse/main.c"
echo 'int main;' >"$h/tools/main.c"
is "a call to a lower floor is accepted" "$(floors "$h")" ''

cp "$h/src/low/low.c" "$scratch/low.c"
sed -i '1i #include "high/high.h"' "$h/src/low/low.c"
is "an include of a higher floor is reported" "$(floors "$h")" \
    "src/low/low.c includes src/high/high.h, which is above it"
cp "$scratch/low.c" "$h/src/low/low.c"

sed -i 's/return x/return ofs_high()/' "$h/src/low/low.c"
is "a call of a higher floor is reported" "$(floors "$h")" \
    "src/low/low.c uses ofs_high of src/high/high.c, which is above it"
cp "$scratch/low.c" "$h/src/low/low.c"

echo '#include "fuse/ops.h"' >>"$h/tools/main.c"
echo 'int ops;' >"$h/fuse/ops.h"
is "an include between rooms of one floor is reported" "$(floors "$h")" \
    "tools/main.c includes fuse/ops.h, which is above it"
rm "$h/fuse/ops.h"

echo 'int ofs_low(int x);' >>"$h/src/high/high.h"
is "a header that declares another room's function is reported" \
    "$(floors "$h")" \
    "src/high/high.h declares ofs_low, which src/low/low.c defines"
sed -i '$d' "$h/src/high/high.h"

cp "$scratch/low.c" "$h/src/low/low_more.c"
sed -i 's/ofs_low/ofs_more/; /include/d' "$h/src/low/low_more.c"
echo 'int ofs_more(int x);' >>"$h/src/low/low.h"
is "a header may declare what files with its name as prefix define" "$(floors "$h")" ''
mv "$h/src/low/low_more.c" "$h/src/low/more.c"
is "the header named as its room may declare what has no header" "$(floors "$h")" ''
echo >"$h/src/low/more.h"
is "the header named as its room may not declare what has a header" "$(floors "$h")" \
    "src/low/low.h declares ofs_more, which src/low/more.c defines"
rm "$h/src/low/more.c" "$h/src/low/more.h"
sed -i '$d' "$h/src/low/low.h"

echo 'struct ofs_two {' >>"$h/src/low/low.h"
echo 'struct ofs_two {' >>"$h/src/high/high.h"
is "a struct of the name of another is reported" "$(floors "$h")" \
    "src/low/low.h defines ofs_two, as src/high/high.h does"
sed -i '$d' "$h/src/low/low.h" "$h/src/high/high.h"

mkdir "$h/src/attic"
echo 'int x;' >"$h/src/attic/x.c"
is "a room without a floor is reported" "$(floors "$h")" "attic is on no floor"
rm -r "$h/src/attic"

i=0
while [ $i -lt 40 ]; do
	echo >"$h/src/low/$i.c"
	i=$((i + 1))
done
is "a room with more than 40 .c files is reported" "$(floors "$h")" \
    "low has 41 .c files, more than 40"
done_testing
