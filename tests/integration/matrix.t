#!/bin/sh
# matrix.t - every fixture in every format that optimfs writes
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"

# A copy of each view must have the same tree as the checkpoint, byte for byte.
# tree.t and extra.t compare that tree with the values that the framework
# reported.

data=$TOP_SRCDIR/tests/data

views='
dcp@1
dcp@3
dcp@16
dcp-st@4
torch
safetensors
'

# Also for checkpoints with units for their flat parameters.
unit_views='
fsdp@1
fsdp@2
fsdp@5
'

# Views that are not possible, with a pattern for the message. A checkpoint that
# cannot be read at all (extra.t) has no views.
refused='
dcp_dtypes/* safetensors OFS448*complex128
dcp_dtypes/* dcp-st@4 OFS448*complex128
dtypes_new/* safetensors OFS448
dtypes_new/* dcp-st@4 OFS448
torchtitan_like_w2/* safetensors OFS448*extra/dataloader
torch_save/dt_bits8.pt safetensors OFS448*bits8
torch_save/dt_bits8.pt dcp-st@4 OFS448*bits8
torch_save/dt_complex[13]2*.pt safetensors OFS448*complex
torch_save/dt_complex[13]2*.pt dcp-st@4 OFS448*complex
torch_save/dt_float4_e2m1fn_x2.pt safetensors OFS448*float4
torch_save/dt_float4_e2m1fn_x2.pt dcp-st@4 OFS448*float4
torch_save/dt_*int4.pt * OFS524
torch_save/meta.pt * OFS538
torch_save/nested.pt * OFS533
torch_save/njt.pt * OFS110*NestedTensor
torch_save/quant.pt safetensors OFS448*quint8
torch_save/quant.pt dcp-st@4 OFS448*quint8
torch_save/size.pt * OFS524
torch_save/sparse_*.pt * OFS533
dcp_variants/fsdp1_uop* * OFS681
dcp_fsdp1_local_orig_w3/* * OFS166
deepspeed/*z[123]_* safetensors OFS448*extra/
megatron/* safetensors OFS448*extra/args
'

# Prints the paths of all checkpoints below tests/data.
checkpoints() {
	cd "$data" || exit 99
	for name in pytorch/* deepspeed/* megatron/*; do
		found=
		for dir in "$name"/ckpt* "$name"/*reshardable; do
			[ -d "$dir" ] || continue
			found=y
			case $dir in
			# two checkpoints in one directory
			pytorch/torchsave_full/ckpt) ls -d "$dir"/*.pt ;;
			*) echo "$dir" ;;
			esac
		done
		[ -n "$found" ] || echo "$name"
	done
	ls -d extra/dcp_variants/* extra/trainers/* extra/torch_save/*
	ls -d extra/olmo_local/[!m]*
}

# In these views a flattened optimizer state gets param groups; view.t tests
# that.
regrouped='
dcp_fsdp2_flatosd_w4/* torch
dcp_variants/*_getsd_flat torch
torchtitan_like_w2/* torch
'
is_regrouped() {
	echo "$regrouped" | while read -r path view; do
		case $1,$2 in
		*/$path,$view) echo yes ;;
		esac
	done
}

# why_not CHECKPOINT VIEW: prints the expected message, or nothing if the view
# is possible
why_not() {
	echo "$refused" | while read -r path view words; do
		case $1,$2 in
		*/$path,$view) echo "$words" && break ;;
		esac
	done
}

becomes() { # CHECKPOINT VIEW
	rm -rf "$scratch/view" "$scratch/got"
	"$OPTIMFS" cp $options -r "$1" ".optimfs/view/$2" "$scratch/view" &&
	    "$OPTIMFS" cp -r "$scratch/view" . "$scratch/got" &&
	    diff -r "$scratch/want" "$scratch/got"
}

for name in $(checkpoints); do
	options=
	all=$views
	case $name in
	pytorch/fsdp1_local*)
		options="-o units=$data/${name%/ckpt*}/units.json"
		all="$views $unit_views"
		;;
	extra/olmo_local/*) all="$views $unit_views" ;;
	esac
	rm -rf "$scratch/want"
	"$OPTIMFS" cp $options -r "$data/$name" . "$scratch/want" \
	    2>"$scratch/unread"
	readable=$?
	for view in $all; do
		[ -z "$(is_regrouped "x/$name" "$view")" ] || continue
		why=$(why_not "x/$name" "$view")
		if [ -z "$why" ]; then
			ok "$name as $view has the same tree" becomes "$data/$name" "$view"
		elif [ $readable = 0 ]; then
			not_ok "$name cannot be written as $view" \
			    becomes "$data/$name" "$view"
			like "$name as $view: the message says why" "$(cat "$scratch/err")" "*$why*"
		else
			like "$name cannot be read: the message says why" \
			    "$(cat "$scratch/unread")" \
			    "*$why*"
			break
		fi
	done
done

done_testing
