#!/bin/sh
# layers.t - each component includes and calls only lower layers
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
requires python3

layers() {
	python3 "$TOP_SRCDIR/tests/support/layers.py" "$1" 2>&1
}

is "the sources keep to the layers of docs/architecture.md" \
    "$(layers "$TOP_SRCDIR")" ''

# A small source tree with one violation at a time.
h=$scratch/source
mkdir -p "$h/docs" "$h/src/low" "$h/src/high" "$h/fuse" "$h/tools"
printf '```layers\nfuse tools  # the program\nhigh\nlow\n```\n' \
    >"$h/docs/architecture.md"
echo 'int ofs_low(int x);' >"$h/src/low/low.h"
printf '#include "low/low.h"\n\nint ofs_low(int x)\n{\n\treturn x;\n}\n' \
    >"$h/src/low/low.c"
echo 'int ofs_high(void);' >"$h/src/high/high.h"
printf '%s\n' '#include "high/high.h"' '#include "low/low.h"' '' \
    'int ofs_high(void)' '{' '	return ofs_low(1);' '}' >"$h/src/high/high.c"
echo 'int main;' >"$h/fuse/main.c"
echo 'int main;' >"$h/tools/main.c"
is "a call to a lower layer is accepted" "$(layers "$h")" ''

cp "$h/src/low/low.c" "$scratch/low.c"
sed -i '1i #include "high/high.h"' "$h/src/low/low.c"
is "an include of a higher layer is reported" "$(layers "$h")" \
    "src/low/low.c includes src/high/high.h, which is above it"
cp "$scratch/low.c" "$h/src/low/low.c"

sed -i 's/return x/return ofs_high()/' "$h/src/low/low.c"
is "a call of a higher layer is reported" "$(layers "$h")" \
    "src/low/low.c uses ofs_high of src/high/high.c, which is above it"
cp "$scratch/low.c" "$h/src/low/low.c"

echo '#include "fuse/ops.h"' >>"$h/tools/main.c"
echo 'int ops;' >"$h/fuse/ops.h"
is "an include between components of one layer is reported" "$(layers "$h")" \
    "tools/main.c includes fuse/ops.h, which is above it"
rm "$h/fuse/ops.h"

echo 'int ofs_low(int x);' >>"$h/src/high/high.h"
is "a header that declares another component's function is reported" \
    "$(layers "$h")" \
    "src/high/high.h declares ofs_low, which src/low/low.c defines"
sed -i '$d' "$h/src/high/high.h"

cp "$scratch/low.c" "$h/src/low/low_more.c"
sed -i 's/ofs_low/ofs_more/; /include/d' "$h/src/low/low_more.c"
echo 'int ofs_more(int x);' >>"$h/src/low/low.h"
is "a header may declare what files with its name as prefix define" "$(layers "$h")" ''
mv "$h/src/low/low_more.c" "$h/src/low/more.c"
is "the header named after its component may declare what has no header" "$(layers "$h")" ''
echo >"$h/src/low/more.h"
is "the header named after its component may not declare what has a header" "$(layers "$h")" \
    "src/low/low.h declares ofs_more, which src/low/more.c defines"
rm "$h/src/low/more.c" "$h/src/low/more.h"
sed -i '$d' "$h/src/low/low.h"

echo 'struct ofs_two {' >>"$h/src/low/low.h"
echo 'struct ofs_two {' >>"$h/src/high/high.h"
is "a struct of the name of another is reported" "$(layers "$h")" \
    "src/low/low.h defines ofs_two, as src/high/high.h does"
sed -i '$d' "$h/src/low/low.h" "$h/src/high/high.h"

mkdir "$h/src/attic"
echo 'int x;' >"$h/src/attic/x.c"
is "a component without a layer is reported" "$(layers "$h")" "attic is in no layer"
rm -r "$h/src/attic"

i=0
while [ $i -lt 40 ]; do
	echo >"$h/src/low/$i.c"
	i=$((i + 1))
done
is "a component with more than 40 .c files is reported" "$(layers "$h")" \
    "low has 41 .c files, more than 40"
done_testing
