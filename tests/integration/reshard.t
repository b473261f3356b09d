#!/bin/sh
# reshard.t - optimfs reshard and optimfs diff
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"

data=$TOP_SRCDIR/tests/data/pytorch
ck=$data/dcp_fsdp2_w3/ckpt
mkdir "$scratch/work" && cd "$scratch/work" || exit 99

for layout in dcp@1 dcp@5 dcp@2x3 torch torch,only=optim; do
	rm -rf out
	status "reshard --to $layout exits with 0" 0 "$OPTIMFS" reshard --to $layout "$ck" out
	status "fsck --data accepts the $layout checkpoint" 0 "$OPTIMFS" fsck \
	    --data out
	is "every item of the $layout checkpoint has a checksum" \
	    "$(grep -c OFS530 "$scratch/out")" 0
	[ $layout = torch,only=optim ] && continue
	status "diff exits with 0 for the $layout checkpoint" 0 "$OPTIMFS" diff "$ck" out
	is "diff prints nothing for the $layout checkpoint" \
	    "$(cat "$scratch/out" "$scratch/err")" ""
done
is "torch,only=optim has the file optim.pt only" "$(ls out)" optim.pt
status "diff exits with 1 for a checkpoint without model" 1 "$OPTIMFS" diff "$ck" out
like "diff names a path that only the first checkpoint has" \
    "$(cat "$scratch/out")" '*model/norm.bias: only in*'
status "diff exits with 1 for a first checkpoint without model" 1 "$OPTIMFS" diff out "$ck"
like "diff names a path that only the second checkpoint has" \
    "$(cat "$scratch/out")" '*model/norm.bias: only in*dcp_fsdp2_w3*'

# Round trip over another number of ranks.
rm -rf out back
"$OPTIMFS" reshard --to dcp@7 "$ck" out && "$OPTIMFS" reshard --to dcp@3 out back
"$OPTIMFS" reshard --to dcp@3 "$ck" straight
ok "dcp@3 by way of dcp@7 is identical to dcp@3" diff -r straight back

# What is a list as a whole is a dict for PyTorch: a path begins with a string.
# Parameter groups are a list, although the tree has names for them.
if command -v python3 >/dev/null; then
	while IFS='|' read -r value paths; do
		python3 -c "import pickle; pickle.dump($value, open('list.pkl', 'wb'))"
		rm -rf list
		ok "reshard of $value succeeds" "$OPTIMFS" reshard --to dcp@1 list.pkl list
		is "the paths of $value" "$(python3 - <<-'END'
			import pickle
			class Dummies(pickle.Unpickler):
			    def find_class(self, module, name):
			        return type(name, (), {"__init__": lambda self, *_: None})
			index = Dummies(open("list/.metadata", "rb")).load()
			print(sorted(index.planner_data.values()))
		END
		)" "$paths"
	done <<-'END'
		[[{'a': 1}], 2]|[('0', 0, 'a'), ('1',)]
		{'optim': {'param_groups': [{'lr': 1}]}}|[('optim', 'param_groups', 0, 'lr')]
		{i: {'optim': {'param_groups': [{'lr': 1}]}} for i in 'ab'}|[('optim', 'a', 'param_groups', 0, 'lr'), ('optim', 'b', 'param_groups', 0, 'lr')]
		{'optim': {'param_groups': [{'lr': 1}], 'state': {'param_groups': {'step': 1}}}}|[('optim', 'param_groups', 0, 'lr'), ('optim', 'state', 'param_groups', 'step')]
		{'optim': {'param_groups': {'0': {'lr': 1}, 'w': {'lr': 1}}}}|[('optim', 'param_groups', '0', 'lr'), ('optim', 'param_groups', 'w', 'lr')]
	END

	# What JSON would show as something else.
	for value in "b''" "b'x'" "[b'x']" "[1j]" "[slice(1)]" \
	    "range(3)"; do
		python3 -c "import pickle; pickle.dump({'a': $value}, open('a.pkl', 'wb'), 4)"
		status "reshard of $value to safetensors exits with 4" 4 \
		    "$OPTIMFS" reshard --to safetensors a.pkl none
	done
fi

# Failures leave nothing behind.
mkdir there
status "reshard into an existing directory exits with 3" 3 "$OPTIMFS" reshard \
    --to dcp@2 "$ck" there
is "reshard leaves the existing directory empty" "$(ls -A there)" ""
status "reshard to 0 ranks exits with 2" 2 "$OPTIMFS" reshard --to dcp@0 "$ck" none
status "reshard without --to exits with 2" 2 "$OPTIMFS" reshard "$ck" none
not_ok "failed calls of reshard create no directory" test -e none
cp -r "$ck" own
chmod u+w own
mkdir own/below
for dir in own/new own/below/new own/below/../new; do
	status "reshard to $dir, inside its own source, exits with 2" 2 \
	    "$OPTIMFS" reshard --to dcp@2 own $dir
	like "reshard to $dir says that it is inside the checkpoint" "$(cat "$scratch/err")" \
	    "optimfs: OFS778 $dir is inside the checkpoint that is read, own*"
done
is "the refused reshards leave nothing in their source" \
    "$(find own -name '*new*')" ""
ok "reshard beside its source, to a longer name, succeeds" \
    "$OPTIMFS" reshard --to dcp@2 own own-new
rm -r own own-new
mkdir damaged
cp "$ck"/.metadata "$ck"/__0_0.distcp "$ck"/__1_0.distcp damaged
status "reshard of a checkpoint with a missing file exits with 3" 3 \
    "$OPTIMFS" reshard --to dcp@2 damaged none
not_ok "a failed reshard publishes nothing" test -e none
rm -rf .none.optimfs # the staged part

# An index without planner_data (flatten_state_dict=False) has flat keys, and
# the program that loads it looks for exactly these.
"$OPTIMFS" reshard -q --to dcp@2 "$ck" bare
LC_ALL=C sed -i 's/planner_data/planner_none/; s/model\./trunk./g' \
    bare/.metadata
status "info of an index without planner_data succeeds" 0 "$OPTIMFS" info bare
like "OFS640 says that the index has no map of keys" \
    "$(cat "$scratch/out")" '*OFS640 no map of keys*'
rm -rf out back
"$OPTIMFS" reshard -q --to dcp@3 bare out
"$OPTIMFS" reshard -q --to dcp@3,keys=source bare back
ok "keys=source is the default without planner_data" diff -r out back
ok "the resharded index has the keys of the source" grep -aq trunk.layers.0 out/.metadata
not_ok "the resharded index has no keys made from tree paths" grep -aq model.trunk out/.metadata

# A torch.save file always has the nested keys that programs look for.
LC_ALL=C sed -i 's/trunk\./model./g' bare/.metadata
rm -rf out back
"$OPTIMFS" reshard -q --to torch "$ck" out
"$OPTIMFS" reshard -q --to torch bare back
ok "reshard --to torch is identical with and without planner_data" \
    diff -r out back

# A quantized tensor keeps its scale and zero point.
quant=$TOP_SRCDIR/tests/data/extra/torch_save/quant.pt
rm -rf out back
"$OPTIMFS" reshard -q --to torch "$quant" back
for layout in dcp@1 dcp@2; do
	rm -rf out again
	status "reshard of a quantized tensor to $layout exits with 0" 0 "$OPTIMFS" reshard -q \
	    --to $layout "$quant" out
	"$OPTIMFS" reshard -q --to torch out again
	# all but .data/serialization_id, which says that DCP keeps no order
	ok "a quantized tensor keeps scale and zero point through $layout" \
	    cmp -n 1000 back/model.pt again/model.pt
done
ok "the torch.save file rebuilds a quantized tensor" grep -q _rebuild_qtensor back/model.pt

# Unsupported tensors give the same exit status in every command.
for name in sparse_coo sparse_csr meta; do
	file=$TOP_SRCDIR/tests/data/extra/torch_save/$name.pt
	status "cat of a $name tensor exits with 4" 4 "$OPTIMFS" cat "$file" model/tensor
	status "cp of a $name tensor exits with 4" 4 "$OPTIMFS" cp "$file" model/tensor none
	status "stat of a $name tensor exits with 4" 4 "$OPTIMFS" stat "$file" model/tensor
	status "reshard of a $name tensor to safetensors exits with 4" 4 "$OPTIMFS" reshard --to safetensors "$file" none
	rm -rf out
	status "reshard of a $name tensor to torch copies it" 0 "$OPTIMFS" reshard -q --to torch "$file" out
	ok "fsck of a $name tensor finds no damage" sh -c "
		'$OPTIMFS' fsck out | grep -q ': no damage found, but not all'"
done

# Two optimizers; the name of one contains a dot.
two=$TOP_SRCDIR/tests/data/pytorch/torchsave_full/ckpt
rm -rf out
"$OPTIMFS" reshard -q --to dcp@2 "$two" out
ok "resharded optimizers equal the source" "$OPTIMFS" diff "$two" out
status "ls of the resharded optimizers succeeds" 0 "$OPTIMFS" ls out optim
is "the resharded optimizers keep their names" "$(cat "$scratch/out")" "state-optim/
state_legacy.optim/"

# Values of unknown classes are copied between DCP items as pickled bytes.
if command -v python3 >/dev/null; then
	"$OPTIMFS" reshard -q --to dcp@1 "$ck" own # one file, values first
	python3 "$TOP_SRCDIR/tests/support/opaque.py" --items own/__0_0.distcp items
	status "info of a checkpoint with opaque values succeeds" 0 "$OPTIMFS" info own
	like "info says which values are copied as pickled" "$(cat "$scratch/out")" \
	    '*dcp@N copies as pickled: optim/* and 1 more*not *OFS445*'
	is "a tensor without dimensions inside a value is a number" \
	    "$("$OPTIMFS" cat own optim/param_groups/0/lr)" "[0.9, 0.5]"
	holds() { # holds DIRECTORY: are both pickled items in it, unchanged?
		python3 -c '
import glob, sys
files = [open(f, "rb").read() for f in glob.glob(sys.argv[1] + "/*.distcp")]
for i in "01":
	item = open("items/" + i, "rb").read()
	assert sum(f.count(item) for f in files) == 1' "$1"
	}
	for layout in dcp@1 dcp@2x3 dcp-st@2 dcp@2,zstd dcp@3,keys=fqn; do
		rm -rf out
		status "reshard of two opaque values to $layout exits with 0" 0 \
		    "$OPTIMFS" reshard --to $layout own out
		is "reshard to $layout reports both opaque values" \
		    "$(grep -c ': copied in pickled form: ' "$scratch/err")" 2
		status "fsck --data accepts the $layout checkpoint with opaque values" 0 \
		    "$OPTIMFS" fsck --data out
		status "diff finds no difference in $layout with opaque values" 0 \
		    "$OPTIMFS" diff own out
		rm -rf back
		ok "$layout with opaque values reshards back to dcp@1" \
		    "$OPTIMFS" reshard -q --to dcp@1 out back
		ok "opaque values are unchanged by way of $layout" holds back
	done
	rm -rf out
	status "reshard of opaque values to torch exits with 0" 0 "$OPTIMFS" reshard --to torch \
	    own out
	is "reshard to torch reports both opaque values" \
	    "$(grep -c ': copied in pickled form: ' "$scratch/err")" 2
	ok "the torch.save file has the tensor inside the tuple" python3 \
	    "$TOP_SRCDIR/tests/support/opaque.py" --inner out/optim.pt

	# Keys that are integers: IDs beside names like "0", epochs of a scheduler.
	python3 "$TOP_SRCDIR/tests/support/opaque.py" --integers integers.pt
	rm -rf out
	is "an integer is an ID also where a parameter is called like it" \
	    "$("$OPTIMFS" show integers.pt optim/state/1/exp_avg | tail -n 1)" '[3. 4.]'
	status "reshard of dicts with integers to torch exits with 0" 0 "$OPTIMFS" reshard -q \
	    --to torch integers.pt out
	is "keys that are no strings stay what they are, and empty dicts stay" \
	    "$(python3 "$TOP_SRCDIR/tests/support/opaque.py" --print out/extra.pt)" \
	    "{'sched': {'milestones': {30: 1, -60: 2}, '7': {7: {'8': 8}}}, 'plain': {2.5: 1, None: 2, \
False: 3, (1, 'a, b'): {}, (-1e+300,): 5, (): 6, '(2,)': 7}}"
	is "names of parameters that are numbers are text" \
	    "$(python3 "$TOP_SRCDIR/tests/support/opaque.py" --print out/optim.pt)" \
	    "{'state': {'1': {'exp_avg': T, 'Q': {0: T}}, '0': {'exp_avg': T, 'Q': {0: T}}}, \
'param_groups': [{'lr': 1, 'params': ['1', '0'], 'param_names': ['1', '0']}]}"

	# Several optimizers in a list, and parameters that are called like parts of
	# one.
	python3 "$TOP_SRCDIR/tests/support/opaque.py" --names names.pt groups
	rm -rf out
	"$OPTIMFS" reshard -q --to torch names.pt out
	is "a list of optimizers is a list" \
	    "$(python3 "$TOP_SRCDIR/tests/support/opaque.py" --print out/optim.pt |
		sed 's/.state.*//')" '[{'
	python3 "$TOP_SRCDIR/tests/support/opaque.py" --names numbers.pt dict
	rm -rf out
	"$OPTIMFS" reshard -q --to torch numbers.pt out
	is "and a dict of them is a dict" \
	    "$(python3 "$TOP_SRCDIR/tests/support/opaque.py" --print out/optim.pt |
		sed 's/.state.*//')" '{0: {'
	is "a name with a newline is in its group's list" \
	    "$("$OPTIMFS" check names.pt 2>&1 | grep -c OFS212)" 0
	python3 "$TOP_SRCDIR/tests/support/opaque.py" --names names.pt
	is "a parameter called param_groups is no optimizer" \
	    "$("$OPTIMFS" info names.pt | grep -A 1 '^optimizer')" \
	    "optimizer   of unknown kind; 2 parameters have exp_avg (float32)
dtypes      float32 100.0 %"

	# A dict that only some ranks have items of.
	mkdir some
	python3 "$TOP_SRCDIR/tests/support/opaque.py" --some some
	rm -rf out
	status "a dict that is empty on one rank is no other one" 0 "$OPTIMFS" reshard -q \
	    --to torch some out
	is "it has the items of all ranks" \
	    "$(python3 "$TOP_SRCDIR/tests/support/opaque.py" --print out/extra.pt)" \
	    "{'none': {}, 'some': {'a': 1}}"

	# Values of unknown classes between pickle files of any format.
	python3 "$TOP_SRCDIR/tests/support/opaque.py" one.pt
	for layout in torch dcp@1 dcp-st@2 zero1@2 zero3@2 universal; do
		rm -rf out back
		status "reshard of an opaque value to $layout exits with 0" 0 \
		    "$OPTIMFS" reshard --to $layout one.pt out
		is "reshard to $layout reports the opaque value" "$(cat "$scratch/err")" \
		    "optimfs: extra/run: copied in pickled form: it has values that cannot be converted"
		ok "the $layout checkpoint reshards back to torch" \
		    "$OPTIMFS" reshard -q --to torch out back
		ok "the opaque value is unchanged by way of $layout" python3 \
		    "$TOP_SRCDIR/tests/support/opaque.py" --run back/extra.pt
	done

	# Sequences with tensors.
	python3 "$TOP_SRCDIR/tests/support/opaque.py" --sequences sequences.pt
	is "a tensor without dimensions in a deque of a file is a number" \
	    "$("$OPTIMFS" cat sequences.pt extra/held/3)" "[0.5, 2]"
	for layout in torch zero2@1; do
		rm -rf out
		status "reshard of sequences with tensors to $layout exits with 0" 0 \
		    "$OPTIMFS" reshard -q --to $layout sequences.pt out
		is "tuples and deques keep their kind in $layout" "$(python3 \
		    "$TOP_SRCDIR/tests/support/opaque.py" --kinds \
		    "$(find out -name extra.pt -o -name mp_rank_00_model_states.pt)")" \
		    "(T, 1, [(T,), {'a': (T, T, T, 'x')}], deque([T, 2], maxlen=5))"
	done

	# What no key says: an optimizer without state, integer keys among names,
	# and empty dicts.
	python3 "$TOP_SRCDIR/tests/support/opaque.py" --optimizers optimizers.pt
	rm -rf out
	ok "optimizers with no state and with state of their own reshard to torch" \
	    "$OPTIMFS" reshard -q --to torch optimizers.pt out
	is "an optimizer without state has an empty one, and IDs among names are integers" \
	    "$(python3 "$TOP_SRCDIR/tests/support/opaque.py" --print out/optim.pt)" \
	    "{'a': {'param_groups': [{'lr': 1, 'params': [0]}], 'state': {}}, 'b': {'state': {0: {'step': T}, 'own': {'seen': T}, 'n': 5}, 'param_groups': [{'lr': 2, 'params': [0]}]}}"
	is "empty dicts in lists keep their places" \
	    "$(python3 "$TOP_SRCDIR/tests/support/opaque.py" --print out/extra.pt)" \
	    "{'held': [{}, T, ({}, T, {})]}"
	for layout in dcp@2,crc dcp@1,zstd dcp-st@2; do
		rm -rf out back
		ok "a tuple with tensors reshards to $layout" \
		    "$OPTIMFS" reshard -q --to $layout sequences.pt out
		ok "fsck --data accepts the tuple in $layout" "$OPTIMFS" fsck --data out
		is "the tuple is one value in $layout" "$("$OPTIMFS" ls out extra)" held
		ok "$layout with a tuple reshards back to torch" \
		    "$OPTIMFS" reshard -q --to torch out back
		is "the tuple keeps its kind and tensors by way of $layout" \
		    "$(python3 "$TOP_SRCDIR/tests/support/opaque.py" --kinds back/extra.pt)" \
		    "(T, 1, [(T,), {'a': (T, T, T, 'x')}], deque([T, 2], maxlen=5))"
		ok "diff finds no difference by way of $layout" "$OPTIMFS" diff sequences.pt back
	done
	# as flatten_state_dict of PyTorch 2.14
	python3 "$TOP_SRCDIR/tests/support/opaque.py" --lists lists.pt
	rm -rf out back
	ok "lists with tuples of tensors reshard to dcp" \
	    "$OPTIMFS" reshard -q --to dcp@2 lists.pt out
	is "a list is taken apart if it has a tensor or a dict, not if it has a tuple" \
	    "$("$OPTIMFS" ls -R out extra | grep '^held.*[^/]$' | tr '\n' ' ')" \
	    "held/parts/0 held/parts/1 held/parts/2 held/parts/3/0 held/parts/3/1/a held/whole "
	ok "lists with tuples of tensors reshard back to torch" \
	    "$OPTIMFS" reshard -q --to torch out back
	is "the lists keep their form by way of dcp" \
	    "$(python3 "$TOP_SRCDIR/tests/support/opaque.py" --kinds back/extra.pt)" \
	    "{'whole': [0, (T, 2), [[(T,)], 'x']], 'parts': [(T, 3), T, [4, (T, 5)], [6, {'a': 7}]]}"
	for layout in torch dcp@2; do
		rm -rf new .new.optimfs
		status "mkfs --layout $layout like a file with an opaque value exits with 0" 0 \
		    "$OPTIMFS" \
		    mkfs -q --like one.pt --layout $layout new
		like "mkfs --layout $layout reports the opaque value" "$(cat "$scratch/err")" \
		    '*extra/run: copied in pickled form: *'
		rm -rf new .new.optimfs
		status "mkfs --layout $layout,drop=opaque exits with 0" 0 \
		    "$OPTIMFS" mkfs -q --like one.pt \
		    --layout $layout,drop=opaque new
		like "mkfs --layout $layout,drop=opaque reports the dropped value" \
		    "$(cat "$scratch/err")" '*extra/run: left out: *'
	done
	rm -rf new .new.optimfs
	status "reshard of an opaque value to safetensors exits with 5" 5 \
	    "$OPTIMFS" reshard --to safetensors \
	    one.pt none
	like "OFS445 names the opaque value and drop=opaque" "$(cat "$scratch/err")" \
	    '*OFS445 extra/run*drop=opaque*'
	for layout in safetensors torch dcp@2 universal; do
		rm -rf out
		status "reshard to $layout,drop=opaque exits with 0" 0 "$OPTIMFS" \
		    reshard --to $layout,drop=opaque one.pt out
		is "reshard to $layout,drop=opaque reports the dropped value" \
		    "$(cat "$scratch/err")" \
		    "optimfs: extra/run: left out: it has values that cannot be converted"
		"$OPTIMFS" diff one.pt out >"$scratch/diff"
		is "$layout,drop=opaque drops nothing else" \
		    "$(grep -v "only in out" "$scratch/diff")" \
		    "extra/run: only in one.pt"
	done

	for layout in safetensors torch; do
		status "reshard to $layout,drop=opaque of opaque values only exits with 4" 4 \
		    "$OPTIMFS" reshard --to $layout,drop=opaque -o subtree=extra/run one.pt none
		like "reshard to $layout,drop=opaque says that nothing is left" \
		    "$(cat "$scratch/err")" '*OFS777 *drop=opaque leaves nothing: *'
	done

	# Objects that hold tensors, for which the tree has no file.
	for way in held legacy; do
		python3 "$TOP_SRCDIR/tests/support/opaque.py" --$way $way.pt
		status "cat of an object with a tensor from a $way file exits with 5" \
		    5 "$OPTIMFS" cat $way.pt extra/held
		for layout in torch dcp@2 dcp-st@1; do
			rm -rf out back
			status "reshard of a $way object with a tensor to $layout exits with 0" \
			    0 "$OPTIMFS" reshard --to $layout $way.pt out
			is "reshard to $layout reports the $way object with a tensor" \
			    "$(cat "$scratch/err")" \
			    "optimfs: extra/held: copied in pickled form: it has values that cannot be converted"
			status "fsck --data accepts the $way object with a tensor in $layout" \
			    0 "$OPTIMFS" fsck --data out
			ok "the $layout checkpoint with a $way object reshards back to torch" \
			    "$OPTIMFS" reshard -q --to torch out back
			ok "the tensor is in the $way object by way of $layout" python3 \
			    "$TOP_SRCDIR/tests/support/opaque.py" --inner back/extra.pt
		done
		rm -rf out
		status "reshard of a $way object with a tensor to safetensors exits with 5" \
		    5 "$OPTIMFS" reshard --to safetensors $way.pt out
		status "drop=opaque leaves out the $way object with a tensor" 0 \
		    "$OPTIMFS" reshard --to safetensors,drop=opaque $way.pt out
	done

	# A quantized buffer has its scale in files of DeepSpeed. A quantized
	# parameter cannot be cut.
	for name in buffer frozen w; do
		python3 "$TOP_SRCDIR/tests/support/opaque.py" --quantized $name $name.pt
	done
	for layout in zero1@2 zero2@2 zero3@2 universal; do
		rm -rf out
		status "reshard of a quantized buffer to $layout exits with 0" 0 \
		    "$OPTIMFS" reshard -q --to $layout buffer.pt out
		rm -rf back
		"$OPTIMFS" reshard -q --to torch out back
		ok "the quantized buffer has its scale by way of $layout" \
		    grep -q _rebuild_qtensor back/model.pt
		rm -rf out
		status "reshard of a quantized parameter to $layout exits with 4" 4 \
		    "$OPTIMFS" reshard -q --to $layout w.pt out
		like "the refusal of $layout names views with a scale" "$(cat "$scratch/err")" \
		    '*OFS448 model/w: *qint8*views torch and dcp*'
	done
	# Stage 3 cuts frozen parameters, the others do not.
	rm -rf out
	status "reshard of a quantized frozen parameter to zero2@2 exits with 0" 0 \
	    "$OPTIMFS" reshard -q --to zero2@2 frozen.pt out
	rm -rf out
	status "reshard of a quantized frozen parameter to zero3@2 exits with 4" 4 \
	    "$OPTIMFS" reshard -q --to zero3@2 frozen.pt out
	like "the refusal of zero3@2 names the frozen parameter and views with a scale" \
	    "$(cat "$scratch/err")" '*OFS448 model/frozen: *qint8*views torch and dcp*'
	echo '[{"prefix": "", "fqns": ["w"], "shapes": [[2]], "numels": [2],
	    "numels_with_padding": [2], "world_size": 2}]' >units.json
	status "reshard of a quantized parameter to fsdp@2 exits with 4" 4 \
	    "$OPTIMFS" reshard -q -o units=units.json --to fsdp@2 w.pt out
	like "the refusal of fsdp@2 names views with a scale" "$(cat "$scratch/err")" \
	    '*OFS448 model/w: *qint8*views torch and dcp*'

	# Tensors that are not read, with the storages of all their parts.
	python3 "$TOP_SRCDIR/tests/support/opaque.py" --channels channels.pt
	for file in channels.pt $TOP_SRCDIR/tests/data/extra/torch_save/sparse_*.pt; do
		kind=${file##*/}
		for layout in torch dcp@2; do
			rm -rf out back
			status "reshard of $kind to $layout exits with 0" 0 \
			    "$OPTIMFS" reshard --to $layout "$file" out
			like "reshard of $kind to $layout reports the tensor" \
			    "$(cat "$scratch/err")" '*: copied in pickled form: *'
			ok "$kind by way of $layout reshards to torch" \
			    "$OPTIMFS" reshard -q --to torch out back
			ok "the tensor of $kind has its storages by way of $layout" \
			    python3 "$TOP_SRCDIR/tests/support/opaque.py" \
			    --storages "$file" back/*.pt
		done
		status "reshard of $kind to safetensors exits with 4" 4 \
		    "$OPTIMFS" reshard --to safetensors "$file" none
		like "OFS533 of $kind names drop=opaque" "$(cat "$scratch/err")" \
		    '*OFS533 *drop=opaque*'
	done
else
	skip 171 "no python3"
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
status "diff exits with 1 for one changed bit" 1 "$OPTIMFS" diff -v straight changed
is "diff prints one line for one changed bit" "$(wc -l <"$scratch/out")" 1
like "diff says how many elements differ and where" "$(cat "$scratch/out")" \
    '*1 of * elements differ, from element *'
status "diff --rtol 1e-3 exits with 0 for one changed bit" 0 "$OPTIMFS" diff --rtol 1e-3 \
    straight changed
status "diff exits with 1 for other types and shapes" 1 "$OPTIMFS" diff "$data/dcp_fsdp2_w3/ckpt" \
    "$data/dcp_dtypes/ckpt"
status "diff --rtol with a word exits with 2" 2 "$OPTIMFS" diff --rtol x straight changed
status "diff with a missing checkpoint exits with 3" 3 "$OPTIMFS" diff straight /nonexistent

# A second copy of the optimizer, by parameter ID, stays one, although a view of
# DeepSpeed's files has weights in the states of the first.
for layout in zero1@2 zero3@2 universal; do
	"$OPTIMFS" reshard -q --to $layout "$data/fsdp1_sharded_flat_fullshard_w3/ckpt_full" by-id
	is "a second copy of the optimizer in $layout is below extra/" \
	    "$("$OPTIMFS" ls by-id optim; "$OPTIMFS" ls by-id extra/optimizer_by_id)" \
	    "param_groups/
state/
param_groups/
state/"
	rm -rf by-id
done

done_testing
