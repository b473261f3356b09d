#!/bin/sh
# torch2.t - PyTorch 2.3 or later loads what optimfs writes
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
. "$TOP_SRCDIR/tests/tap/python.sh"

script=$TOP_SRCDIR/tests/interop/torch2.py
find_python "$script" version || skip_all "no PyTorch 2.3 or later"

data=$TOP_SRCDIR/tests/data/pytorch
for ck in dcp_fsdp2_w3/ckpt dcp_tp_fsdp_w4/ckpt named_optimizer_w2/ckpt; do
	rm -rf "$scratch/want" "$scratch/copy"
	"$OPTIMFS" cp -r "$data/$ck" . "$scratch/want"
	for view in dcp@1 dcp@3 dcp@2x2; do
		for ranks in 1 3; do
			rm -rf "$scratch/copy"
			"$OPTIMFS" reshard --to $view,keys=fqn "$data/$ck" \
			    "$scratch/copy"
			ok "$ranks ranks load $ck as $view" "$python" "$script" dcp \
			    "$scratch/copy" "$scratch/want" $ranks
		done
	done
	for view in torch safetensors; do
		rm -rf "$scratch/copy"
		"$OPTIMFS" reshard --to $view "$data/$ck" "$scratch/copy"
		if [ $view = safetensors ] &&
		    ! "$python" -c 'import safetensors' 2>/dev/null; then
			skip 1 "no safetensors package"
			continue
		fi
		ok "PyTorch loads $ck as $view" "$python" "$script" $view "$scratch/copy" \
		    "$scratch/want"
	done
done

ck=$data/dcp_fsdp2_w3/ckpt
rm -rf "$scratch/want" "$scratch/copy"
"$OPTIMFS" cp -r "$ck" . "$scratch/want"
if "$python" -c 'from torch.distributed.checkpoint._extension import ZStandard
assert ZStandard.is_available()' 2>/dev/null; then
	"$OPTIMFS" reshard --to dcp@2,zstd,keys=fqn "$ck" "$scratch/copy"
	ok "PyTorch loads dcp@2,zstd" "$python" "$script" dcp "$scratch/copy" \
	    "$scratch/want"
else
	skip 1 "PyTorch reads compressed items from 2.7 on, with zstandard"
fi
mnt=$(point mnt)
if "$OPTIMFS" mount "$ck" "$mnt" 2>"$scratch/err"; then
	for ranks in 1 2; do
		ok "$ranks ranks load dcp@4 from a mount" "$python" "$script" dcp \
		    "$mnt/.optimfs/view/dcp@4,keys=fqn" "$scratch/want" $ranks
	done
	ok "torch.load reads the torch view from a mount" "$python" "$script" torch \
	    "$mnt/.optimfs/view/torch" "$scratch/want"
	"$OPTIMFS" umount "$mnt"
else
	skip 3 "no mounts here: $(head -1 "$scratch/err")"
fi

# The average of five checkpoints, which PyTorch has saved and averaged itself.
ok "PyTorch saves five steps" "$python" "$script" five "$scratch/five" "$scratch/mean"
"$OPTIMFS" cp -r "$scratch/five/step-500" . "$scratch/want5"
cp -r "$scratch/mean/." "$scratch/want5"
"$OPTIMFS" reshard --to dcp@2,keys=fqn "$scratch/five:avg/last5" "$scratch/average"
ok "PyTorch loads their average" "$python" "$script" dcp "$scratch/average" "$scratch/want5"
if "$OPTIMFS" mount "$scratch/five" "$mnt" 2>"$scratch/err"; then
	for ranks in 1 2; do
		ok "$ranks ranks load it from the view in a mount of the run" "$python" "$script" \
		    dcp "$mnt/avg/last5/.optimfs/view/dcp@2,keys=fqn" "$scratch/want5" $ranks
	done
	cp -r "$mnt/avg/last5/.optimfs/view/dcp@8,keys=fqn" "$scratch/averaged"
	ok "and what cp has made of it" "$python" "$script" dcp "$scratch/averaged" "$scratch/want5"
	"$OPTIMFS" umount "$mnt"
else
	skip 3 "no mounts here: $(head -1 "$scratch/err")"
fi
cp -r "$scratch/five" "$scratch/thin"
"$OPTIMFS" thin --keep-last 1 --drop optim --yes "$scratch/thin" >/dev/null
"$OPTIMFS" cp -r "$scratch/five/step-100" . "$scratch/first"
ok "PyTorch loads the weights of a step that has lost its optimizer" "$python" "$script" dcp \
    "$scratch/thin/step-100" "$scratch/first"

done_testing
