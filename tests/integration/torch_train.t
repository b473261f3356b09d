#!/bin/sh
# torch_train.t - PyTorch trains, saves, and resumes from views and reshards
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
. "$TOP_SRCDIR/tests/tap/python.sh"

script=$TOP_SRCDIR/tests/interop/train.py
find_python "$script" has fsdp2 || skip_all "no PyTorch 2.6 or later"
import_optimfs
export PYTHONWARNINGS=ignore

# goes_on KIND MESH OTHER VIEW...: train on MESH, resume on OTHER from the views
goes_on() {
	kind=$1 mesh=$2 other=$3 dir=$scratch/$1
	shift 3
	if ! "$python" "$script" has "$kind" >/dev/null; then
		skip 3 "this PyTorch has no $kind"
		return
	fi
	mkdir "$dir" "$dir/new"
	ok "$kind: training on $mesh and saving succeeds" \
	    "$python" "$script" write "$kind" "$mesh" \
	    "$dir"
	"$OPTIMFS" cp -r "$dir/ckpt" . "$dir/tree"
	ok "$kind: the tree has the state of the job" "$python" "$script" tree "$dir" \
	    "$dir/tree"
	for view; do
		"$OPTIMFS" reshard --to "$view" "$dir/ckpt" "$dir/new/$view"
	done
	if [ -d "$dir/ranks" ]; then
		"$OPTIMFS" cp -r -o "units=$dir/units.json" "$dir/ranks" . \
		    "$dir/ranktree"
		ok "$kind: the tree of the rank files has the state of the job" \
		    "$python" "$script" tree \
		    "$dir" "$dir/ranktree"
		"$OPTIMFS" reshard -o "units=$dir/units.json" --to dcp@3 \
		    "$dir/ranks" "$dir/new/ranks"
	fi
	ok "$kind: resuming on $other equals resuming from PyTorch's own reshard" "$python" \
	    "$script" resume "$kind" "$other" "$dir" "$dir/new"/*
}

goes_on fsdp2 2 3 dcp@3 dcp@2x2,keys=fqn dcp@1
goes_on hsdp 2x2 1x3 dcp@3 dcp@2
goes_on tp 2x2 1x3 dcp@3
goes_on ddp 2 3 dcp@3
goes_on fsdp1 2 3 dcp@3
goes_on hf 2 3 safetensors dcp@3
gpus=$("$python" "$script" has cuda)
goes_on cuda "${gpus:-0}" 1 dcp@3 dcp@1

dir=$scratch/fsdp2
mnt=$(point mnt)
if "$OPTIMFS" mount "$dir/ckpt" "$mnt" 2>"$scratch/err"; then
	ok "fsdp2: resuming from a view in a mount equals PyTorch" \
	    "$python" "$script" resume fsdp2 3 "$dir" \
	    "$mnt/.optimfs/view/dcp@3"
	"$OPTIMFS" umount "$mnt"
else
	skip 1 "no mounts here: $(head -1 "$scratch/err")"
fi
done_testing
