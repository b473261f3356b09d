#!/bin/sh
# reshard.t - optimfs reshard and optimfs diff
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"

data=$TOP_SRCDIR/tests/data/pytorch
ck=$data/dcp_fsdp2_w3/ckpt
mkdir "$scratch/work" && cd "$scratch/work" || exit 99

for layout in dcp@1 dcp@5 dcp@2x3 torch torch,only=optim; do
	rm -rf out
	status "reshard --to $layout" 0 "$OPTIMFS" reshard --to $layout "$ck" out
	status "every byte and checksum of it is right" 0 "$OPTIMFS" fsck \
	    --data out
	is "none is left out" "$(grep -c OFS530 "$scratch/out")" 0
	[ $layout = torch,only=optim ] && continue
	status "it is the same by value" 0 "$OPTIMFS" diff "$ck" out
	is "and diff says nothing" "$(cat "$scratch/out" "$scratch/err")" ""
done
is "only=optim is one file" "$(ls out)" optim.pt
status "and diff names what it lacks" 1 "$OPTIMFS" diff "$ck" out
like "by path" "$(cat "$scratch/out")" '*model/norm.bias: only in*'
status "whichever comes first" 1 "$OPTIMFS" diff out "$ck"
like "by path" "$(cat "$scratch/out")" '*model/norm.bias: only in*dcp_fsdp2_w3*'

# There and back.
rm -rf out back
"$OPTIMFS" reshard --to dcp@7 "$ck" out && "$OPTIMFS" reshard --to dcp@3 out back
"$OPTIMFS" reshard --to dcp@3 "$ck" straight
ok "by way of 7 ranks the bytes are the same" diff -r straight back

# What must not happen.
mkdir there
status "a directory that is there is left alone" 3 "$OPTIMFS" reshard \
    --to dcp@2 "$ck" there
is "and empty" "$(ls -A there)" ""
status "a layout there is not" 2 "$OPTIMFS" reshard --to dcp@0 "$ck" none
status "no layout" 2 "$OPTIMFS" reshard "$ck" none
not_ok "leave nothing" test -e none
mkdir damaged
cp "$ck"/.metadata "$ck"/__0_0.distcp "$ck"/__1_0.distcp damaged
status "a lost shard is an error" 3 "$OPTIMFS" reshard --to dcp@2 damaged none
not_ok "and nothing is published" test -e none
rm -rf .none.optimfs # what could be written

# An index without planner_data (flatten_state_dict=False) has each key as one
# string, and the program looks for just these.
"$OPTIMFS" reshard -q --to dcp@2 "$ck" bare
LC_ALL=C sed -i 's/planner_data/planner_none/; s/model\./trunk./g' \
    bare/.metadata
status "info of an index without a map of keys" 0 "$OPTIMFS" info bare
like "says so" "$(cat "$scratch/out")" '*OFS640 no map of keys*'
rm -rf out back
"$OPTIMFS" reshard -q --to dcp@3 bare out
"$OPTIMFS" reshard -q --to dcp@3,keys=source bare back
ok "the source's keys are the default without it" diff -r out back
ok "such as this" grep -aq trunk.layers.0 out/.metadata
not_ok "and none of the tree's" grep -aq model.trunk out/.metadata

# A file of torch.save has what its program looks for, whatever the index has.
LC_ALL=C sed -i 's/trunk\./model./g' bare/.metadata
rm -rf out back
"$OPTIMFS" reshard -q --to torch "$ck" out
"$OPTIMFS" reshard -q --to torch bare back
ok "files of torch.save are the same with and without a map of keys" \
    diff -r out back

# A quantized tensor keeps what its integers stand for.
quant=$TOP_SRCDIR/tests/data/extra/torch_save/quant.pt
rm -rf out back
"$OPTIMFS" reshard -q --to torch "$quant" back
for layout in dcp@1 dcp@2; do
	rm -rf out again
	status "a quantized tensor: $layout" 0 "$OPTIMFS" reshard -q \
	    --to $layout "$quant" out
	"$OPTIMFS" reshard -q --to torch out again
	ok "and back, with scale and zero point" cmp back/model.pt again/model.pt
done
ok "which it has" grep -q _rebuild_qtensor back/model.pt

# What is not read fails alike, whoever reads it.
for name in sparse_coo sparse_csr; do
	file=$TOP_SRCDIR/tests/data/extra/torch_save/$name.pt
	status "$name: cat" 4 "$OPTIMFS" cat "$file" model/tensor
	status "$name: cp" 4 "$OPTIMFS" cp "$file" model/tensor none
	status "$name: stat" 4 "$OPTIMFS" stat "$file" model/tensor
	status "$name: reshard" 4 "$OPTIMFS" reshard --to torch "$file" none
done

# Two optimizers, one of which has the name of a part of one.
two=$TOP_SRCDIR/tests/data/pytorch/torchsave_full/ckpt
rm -rf out
"$OPTIMFS" reshard -q --to dcp@2 "$two" out
ok "all is the same by value" "$OPTIMFS" diff "$two" out
status "two optimizers stay two" 0 "$OPTIMFS" ls out optim
is "with their names" "$(cat "$scratch/out")" "state-optim/
state_legacy.optim/"

# Values that cannot be told are copied from items to items as they are.
if command -v python3 >/dev/null; then
	"$OPTIMFS" reshard -q --to dcp@1 "$ck" own # values come first
	python3 "$TOP_SRCDIR/tests/support/opaque.py" --items own/__0_0.distcp items
	status "info of it" 0 "$OPTIMFS" info own
	like "says what is copied" "$(cat "$scratch/out")" \
	    '*dcp@N copies as pickled: optim/* and 1 more*not *OFS445*'
	holds() { # holds DIRECTORY: both as they were
		python3 -c '
import glob, sys
files = [open(f, "rb").read() for f in glob.glob(sys.argv[1] + "/*.distcp")]
for i in "01":
	item = open("items/" + i, "rb").read()
	assert sum(f.count(item) for f in files) == 1' "$1"
	}
	for layout in dcp@1 dcp@2x3 dcp-st@2 dcp@2,zstd dcp@3,keys=fqn; do
		rm -rf out
		status "an object of a class that nobody knows, and a tuple with \
a tensor: $layout" 0 "$OPTIMFS" reshard --to $layout own out
		is "which says so of each" \
		    "$(grep -c ': copied as it is pickled: ' "$scratch/err")" 2
		status "every byte of it is right" 0 "$OPTIMFS" fsck --data out
		status "all else is the same by value" 0 "$OPTIMFS" diff own out
		rm -rf back
		ok "there and back" "$OPTIMFS" reshard -q --to dcp@1 out back
		ok "each is as it was" holds back
	done
	rm -rf out
	status "files of torch.save take both" 0 "$OPTIMFS" reshard --to torch \
	    own out
	is "which says so of each" \
	    "$(grep -c ': copied as it is pickled: ' "$scratch/err")" 2
	ok "the tensor is in the tuple" python3 \
	    "$TOP_SRCDIR/tests/support/opaque.py" --inner out/optim.pt

	# From pickles to pickles, whatever the format.
	python3 "$TOP_SRCDIR/tests/support/opaque.py" one.pt
	for layout in torch dcp@1 dcp-st@2 zero1@2 zero3@2 universal; do
		rm -rf out back
		status "the object of a file of torch.save: $layout" 0 \
		    "$OPTIMFS" reshard --to $layout one.pt out
		is "which says so of it" "$(cat "$scratch/err")" \
		    "optimfs: extra/run: copied as it is pickled: it holds what cannot be written anew"
		ok "and back" "$OPTIMFS" reshard -q --to torch out back
		ok "it is as it was" python3 \
		    "$TOP_SRCDIR/tests/support/opaque.py" --run back/extra.pt
	done
	for layout in torch dcp@2; do
		rm -rf new .new.optimfs
		status "a template for it: mkfs --layout $layout" 0 "$OPTIMFS" \
		    mkfs -q --like one.pt --layout $layout new
		like "says so, too" "$(cat "$scratch/err")" \
		    '*extra/run: copied as it is pickled: *'
		rm -rf new .new.optimfs
		status "and one without it" 0 "$OPTIMFS" mkfs -q --like one.pt \
		    --layout $layout,drop=opaque new
		like "says so" "$(cat "$scratch/err")" '*extra/run: left out: *'
	done
	rm -rf new .new.optimfs
	status "JSON does not take it" 5 "$OPTIMFS" reshard --to safetensors \
	    one.pt none
	like "with its name" "$(cat "$scratch/err")" \
	    '*OFS445 extra/run*drop=opaque*'
	for layout in safetensors torch dcp@2 universal; do
		rm -rf out
		status "drop=opaque leaves it out: $layout" 0 "$OPTIMFS" \
		    reshard --to $layout,drop=opaque one.pt out
		is "and says so" "$(cat "$scratch/err")" \
		    "optimfs: extra/run: left out: it holds what cannot be written anew"
		"$OPTIMFS" diff one.pt out >"$scratch/diff"
		is "and nothing else" "$(grep -v "only in out" "$scratch/diff")" \
		    "extra/run: only in one.pt"
	done
else
	skip 79 "no python3"
fi

# diff.
cp -r straight changed
chmod -R u+w changed
python3 - changed/__1_0.distcp <<'EOF'
import sys
# one byte of the elements of the last tensor of the file
data = bytearray(open(sys.argv[1], "rb").read())
name = data.rindex(b"archive/data/0", 0, data.rindex(b"PK\x01\x02") - 2000)
extra = name + len(b"archive/data/0")
at = extra + 4 + int.from_bytes(data[extra + 2:extra + 4], "little")
data[at] ^= 1
open(sys.argv[1], "wb").write(data)
EOF
status "one bit" 1 "$OPTIMFS" diff straight changed
is "is one line" "$(wc -l <"$scratch/out")" 1
like "that says where" "$(cat "$scratch/out")" \
    '*1 of * elements differ, from element *'
status "within a tolerance it does not count" 0 "$OPTIMFS" diff --rtol 1e-3 \
    straight changed
status "types and shapes" 1 "$OPTIMFS" diff "$data/dcp_fsdp2_w3/ckpt" \
    "$data/dcp_dtypes/ckpt"
status "a tolerance that is none" 2 "$OPTIMFS" diff --rtol x straight changed
status "a checkpoint that is none" 3 "$OPTIMFS" diff straight /nonexistent

done_testing
