#!/bin/sh
# edit_torch.t - PyTorch loads the files that a read-write mount has changed
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
. "$TOP_SRCDIR/tests/tap/python.sh"
requires mount unzip

script=$TOP_SRCDIR/tests/interop/edit.py
data=$TOP_SRCDIR/tests/data/pytorch
find_python -c 'import torch' || skip_all "no PyTorch"

for case in $("$python" "$script" list); do
	mkdir "$scratch/$case"
	ok "PyTorch loads the edits of the case $case" \
	    "$python" "$script" "$OPTIMFS" "$scratch/$case" "$case" \
	    "$data"
done
done_testing
