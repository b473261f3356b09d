#!/bin/sh
# fsdpview.t - the view fsdp@N: FSDP1 rank files with flat parameters
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
. "$TOP_SRCDIR/tests/tap/python.sh"

data=$TOP_SRCDIR/tests/data/pytorch

tree() {
	rm -rf "$2"
	"$OPTIMFS" cp -r "$1" . "$2"
}
# view NAME DIR: copy that view of $ck to DIR
view() {
	rm -rf "$2"
	"$OPTIMFS" cp -r "$ck" ".optimfs/view/$1" "$2"
}
# becomes VIEW: does a copy of the view have the tree of $ck?
becomes() {
	view "$1" "$scratch/view" && "$OPTIMFS" diff "$ck" "$scratch/view" &&
	    tree "$scratch/view" "$scratch/got" &&
	    diff -r "$scratch/want" "$scratch/got"
}
# flat FIXTURE: copy the rank files and their units.json to $ck
flat() {
	ck=$scratch/ck-$1
	rm -rf "$ck"
	cp -r "$data/$1/ckpt" "$ck" && chmod u+w "$ck" &&
	    cp "$data/$1/units.json" "$ck"
	tree "$ck" "$scratch/want"
}

# Rank files that PyTorch wrote, with flat and with original parameters,
# resharded to their own and to other world sizes.
for name in flat_fullshard_w3 orig_fullshard_w2; do
	flat fsdp1_local_$name
	for n in 1 2 3 5 16 100 2x2 3x1; do
		ok "$name as fsdp@$n has the same state" becomes fsdp@$n
	done
	ok "$name: the view fsdp@2,crc,only=optim can be copied" \
	    view fsdp@2,crc,only=optim "$scratch/crc"
	status "$name: fsck --data accepts fsdp@2,crc,only=optim" 0 \
	    "$OPTIMFS" fsck --data "$scratch/crc"
	not_ok "$name: fsdp@2,crc,only=optim has no model files" ls "$scratch"/crc/model*
	ok "$name: the view fsdp@2,only=model can be copied" view fsdp@2,only=model "$scratch/view"
	ok "$name: fsdp@2,only=model is a readable checkpoint" tree "$scratch/view" "$scratch/got"
	ok "$name: fsdp@2,only=model has the same model" diff -r "$scratch/want/model" \
	    "$scratch/got/model"
	status "$name: the view fsdp@2,dtype=bf16 can be listed" 0 \
	    "$OPTIMFS" ls -l "$ck" .optimfs/view/fsdp@2,dtype=bf16
done

# Views of views: to the other form and back.
flat fsdp1_local_flat_fullshard_w3
view fsdp@3 "$scratch/first"
first=$ck
view fsdp@5,orig "$scratch/between"
ok "fsdp@5,orig has use_orig_params in units.json" grep -q '"use_orig_params": true' \
    "$scratch/between/units.json"
ck=$scratch/between
ok "fsdp@3,flat of fsdp@5,orig can be copied" view fsdp@3,flat "$scratch/back"
ok "fsdp@3,flat of fsdp@5,orig equals the direct view fsdp@3" \
    diff -r "$scratch/first" "$scratch/back"
ok "fsdp@3 of a copy of fsdp@3 is identical to it" sh -c '
	"$1" cp -r "$2" .optimfs/view/fsdp@3 "$3" && diff -r "$2" "$3"' sh \
    "$OPTIMFS" "$scratch/first" "$scratch/again"
ok "fsdp@2x1,orig of sharded parameters can be copied" view fsdp@2x1,orig \
    "$scratch/view"
ok "fsdp@2x1,orig has the same state" "$OPTIMFS" diff "$first" "$scratch/view"

# At the world size of the source the storages equal those that PyTorch wrote.
# So does the pickle of an optimizer with one param group.
cat >"$scratch/same.py" <<'EOF2'
import struct, sys, zipfile
theirs, ours, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
for rank in range(size):
    for kind in "model", "optim":
        name = "%s_rank%d" % (kind, rank)
        a, b = (zipfile.ZipFile("%s/%s.pt" % (d, name)) for d in (theirs, ours))
        a, b = ({i.filename: z.read(i) for i in z.infolist()} for z in (a, b))
        def storages(x):
            return [x[k] for k in sorted(x) if "/data/" in k]
        def end(x): # the last element of the last rank is padding
            return sorted(s[:-4] for s in storages(x))
        if kind == "optim":
            assert list(a) == list(b), name
        if kind == "optim" and sys.argv[4] == "pickle":
            assert a[name + "/data.pkl"] == b[name + "/data.pkl"], name
        if rank < size - 1 or sys.argv[4] != "pickle":
            assert sorted(storages(a)) == sorted(storages(b)), name
        else:
            assert end(a) == end(b), name
EOF2
flat fsdp1_local_flat_fullshard_w3
view fsdp@3,crc "$scratch/view"
ok "flat, 3 ranks: pickles and storages equal those of PyTorch" python3 \
    "$scratch/same.py" "$ck" "$scratch/view" 3 pickle
flat fsdp1_local_orig_fullshard_w2
view fsdp@2,crc "$scratch/view"
ok "use_orig_params, 2 ranks: storages equal those of PyTorch" python3 \
    "$scratch/same.py" "$ck" "$scratch/view" 2 storages

# torch.load of the views. A pickled ShardedTensor asks for a process group,
# which not every build of PyTorch has. The stub here only keeps its arguments.
find_python -c 'import torch, numpy'
cat >"$scratch/load.py" <<'EOF2'
import glob, pickle, sys, torch, types
class Kept:
    def __init__(self, *args): self.args = args
    def __setstate__(self, state):
        for part in state if isinstance(state, tuple) else (state,):
            if isinstance(part, dict): self.__dict__.update(part)
class ShardedTensor(torch.Tensor):
    ProcessGroupState = type("ProcessGroupState", (Kept,), {})
    def __setstate__(self, state): self.kept = state
    __torch_dispatch__ = classmethod(lambda *args: NotImplemented)
class Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        if not module.startswith("torch.distributed"):
            return super().find_class(module, name)
        return ShardedTensor if name == "ShardedTensor" else \
            type(name, (Kept,), {})
stubs = types.ModuleType("pickle")
stubs.__dict__.update(pickle.__dict__)
stubs.Unpickler = Unpickler
torch.serialization.pickle = stubs # torch 1.13 ignores pickle_module=
for path in glob.glob(sys.argv[1] + "/*.pt"):
    if "model" not in path:
        d = torch.load(path)
        for state in d["state"].values():
            assert all(torch.is_tensor(t) for t in state.values()), path
        ids = [i for g in d["param_groups"] for i in g["params"]]
        assert ids == list(range(len(ids))), path
        continue
    for key, t in torch.load(path).items():
        if not key.endswith("_flat_param"):
            assert type(t) is torch.Tensor, (path, key)
            continue
        shards, meta, group, spec, rpc = t.kept
        sizes = [s.shard_sizes[0] for s in meta.shards_metadata]
        assert t.size(0) == meta.size[0], (path, key)
        if group.local_world_size > 64: # lists only its own shard
            assert sizes == [s.tensor.numel() for s in shards], (path, key)
            continue
        assert sum(sizes) == t.size(0), (path, key)
        assert len(shards) <= 1 and group.local_rank < group.local_world_size
        for s in shards:
            assert s.tensor.numel() == s.metadata.shard_sizes[0]
            assert sizes[group.local_rank] == s.tensor.numel()
EOF2
for name in flat_fullshard_w3 orig_fullshard_w2; do
	flat fsdp1_local_$name
	for n in 1 2 5 65 2x2; do
		if [ -z "$python" ]; then
			skip 1 "no PyTorch here"
			continue
		fi
		view fsdp@$n "$scratch/view"
		ok "torch.load of $name as fsdp@$n finds consistent shards and IDs" "$python" \
		    "$scratch/load.py" "$scratch/view"
	done
done

# From other formats, with the flat parameters described in a units file.
units=$data/fsdp1_local_orig_fullshard_w2/units.json
ck=$data/fsdp1_sharded_orig_fullshard_w2/ckpt
tree "$ck" "$scratch/want"
status "fsdp@2 without units exits with 2" 2 "$OPTIMFS" ls "$ck" .optimfs/view/fsdp@2
like "OFS170 suggests units=FILE, and the installed script that writes one" \
    "$(cat "$scratch/err")" '*OFS170*units=FILE, which the script of \`optimfs units-script\` writes*'
"$OPTIMFS" cp -o "units=$units" -r "$ck" .optimfs/view/fsdp@4 "$scratch/dcp4"
ok "fsdp@4 of a DCP checkpoint with units has the same state" "$OPTIMFS" diff "$ck" \
    "$scratch/dcp4"
is "fsdp@4 has 8 rank files and units.json" "$(ls "$scratch/dcp4" | wc -l)" 9
echo '{"not": "units"}' >"$scratch/none.json"
status "a file that is no units file exits with 2" 2 "$OPTIMFS" ls -o \
    "units=$scratch/none.json" "$ck" .
like "OFS162 rejects the units file even where units are not needed" \
    "$(cat "$scratch/err")" '*OFS162*'

# A flat parameter is either trained or frozen as a whole.
flat fsdp1_local_orig_fullshard_w2
status "fsdp@2,flat of a frozen beside a trained parameter exits with 4" 4 "$OPTIMFS" ls "$ck" \
    .optimfs/view/fsdp@2,flat
like "OFS174 names the frozen and the trained parameter" \
    "$(cat "$scratch/err")" '*OFS174*adapter*tok_embeddings*'
ok "fill=zero makes fsdp@2,flat possible" view fsdp@2,flat,fill=zero "$scratch/view"
tree "$scratch/view" "$scratch/got"
for state in exp_avg exp_avg_sq; do
	ok "fill=zero gives the frozen parameter zeros as $state" cmp -n \
	    "$(stat -c %s "$scratch/got/model/adapter.weight")" /dev/zero \
	    "$scratch/got/optim/state/adapter.weight/$state"
done
is "fill=zero gives the frozen parameter the step of the others" \
    "$(cat "$scratch/got/optim/state/adapter.weight/step")" \
    "$(cat "$scratch/got/optim/state/tok_embeddings.weight/step")"
rm -r "$scratch"/got/optim/state/adapter.*
ok "fill=zero leaves the state of trained parameters unchanged" \
    diff -r "$scratch/want/optim/state" \
    "$scratch/got/optim/state"

# units.json beside the rank files: used, ignored on request, and malformed.
status "units=none ignores units.json" 4 "$OPTIMFS" cat -o units=none "$ck" \
    optim/state/0/exp_avg
like "OFS166: with units=none the units are unknown" "$(cat "$scratch/err")" '*OFS166*'
echo '{"not": "units"}' >"$ck/units.json"
status "a malformed units.json does not prevent reading" 0 "$OPTIMFS" cat "$ck" .optimfs/warnings
like "OFS162 warns about the malformed units.json" \
    "$(cat "$scratch/out")" '*OFS162*units.json*not used*'

# Invalid view names.
for name in fsdp fsdp@0 fsdp@2,hf fsdp@2,keys=id fsdp@2,fill=one \
    dcp@2,flat dcp@2,fill=zero torch,orig; do
	status "$name is rejected as a view name" 2 "$OPTIMFS" ls "$ck" ".optimfs/view/$name"
done
done_testing
