#!/bin/sh
# fsdpview.t - checkpoints flattened anew: the view fsdp@N
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

data=$TOP_SRCDIR/tests/data/pytorch

tree() {
	rm -rf "$2"
	"$OPTIMFS" cp -r "$1" . "$2"
}
# view NAME DIR: a copy of that view of $ck.
view() {
	rm -rf "$2"
	"$OPTIMFS" cp -r "$ck" ".optimfs/view/$1" "$2"
}
# becomes VIEW: copied and looked at again, it is the same state.
becomes() {
	view "$1" "$scratch/view" && "$OPTIMFS" diff "$ck" "$scratch/view" &&
	    tree "$scratch/view" "$scratch/got" &&
	    diff -r "$scratch/want" "$scratch/got"
}
# flat FIXTURE: its rank files with the units beside them, in $ck.
flat() {
	ck=$scratch/ck-$1
	rm -rf "$ck"
	cp -r "$data/$1/ckpt" "$ck" && chmod u+w "$ck" &&
	    cp "$data/$1/units.json" "$ck"
	tree "$ck" "$scratch/want"
}

# What PyTorch wrote: rank files of both forms, at their own world and others.
for name in flat_fullshard_w3 orig_fullshard_w2; do
	flat fsdp1_local_$name
	for n in 1 2 3 5 16 100 2x2 3x1; do
		ok "$name as fsdp@$n" becomes fsdp@$n
	done
	ok "with checksums, and of the optimizer alone" \
	    view fsdp@2,crc,only=optim "$scratch/crc"
	status "which are right" 0 "$OPTIMFS" fsck --data "$scratch/crc"
	not_ok "and no model" ls "$scratch"/crc/model*
	ok "the model alone" view fsdp@2,only=model "$scratch/view"
	ok "is a checkpoint" tree "$scratch/view" "$scratch/got"
	ok "with the same model" diff -r "$scratch/want/model" \
	    "$scratch/got/model"
	status "rounded" 0 "$OPTIMFS" ls -l "$ck" .optimfs/view/fsdp@2,dtype=bf16
done

# A view of a view, in the other form and back, is the first.
flat fsdp1_local_flat_fullshard_w3
view fsdp@3 "$scratch/first"
first=$ck
view fsdp@5,orig "$scratch/between"
ok "the other form" grep -q '"use_orig_params": true' \
    "$scratch/between/units.json"
ck=$scratch/between
ok "and back" view fsdp@3,flat "$scratch/back"
ok "is the same, byte by byte" diff -r "$scratch/first" "$scratch/back"
ok "and a view of itself is" sh -c '
	"$1" cp -r "$2" .optimfs/view/fsdp@3 "$3" && diff -r "$2" "$3"' sh \
    "$OPTIMFS" "$scratch/first" "$scratch/again"
ok "a whole model for each of two, from cut ones" view fsdp@2x1,orig \
    "$scratch/view"
ok "is the same state" "$OPTIMFS" diff "$first" "$scratch/view"

# At their own world, storages are those that PyTorch wrote, and so is the
# pickle of an optimizer with one group.
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
        def end(x): # behind the last flat parameter's end nobody looks
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
ok "flat, 3 ranks: PyTorch's pickles and storages" python3 \
    "$scratch/same.py" "$ck" "$scratch/view" 3 pickle
flat fsdp1_local_orig_fullshard_w2
view fsdp@2,crc "$scratch/view"
ok "use_orig_params, 2 ranks: PyTorch's storages" python3 \
    "$scratch/same.py" "$ck" "$scratch/view" 2 storages

# PyTorch loads them. A ShardedTensor wants a process group when it is made of a
# pickle, and not every build has one: here it only keeps what it is given.
for python in python3 /usr/bin/python3 ''; do
	[ -n "$python" ] && "$python" -c 'import torch, numpy' 2>/dev/null &&
	    break
done
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
        if group.local_world_size > 64: # only its own
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
		ok "torch.load of $name as fsdp@$n" "$python" \
		    "$scratch/load.py" "$scratch/view"
	done
done

# From other formats, with the units in a file.
units=$data/fsdp1_local_orig_fullshard_w2/units.json
ck=$data/fsdp1_sharded_orig_fullshard_w2/ckpt
tree "$ck" "$scratch/want"
status "no units" 2 "$OPTIMFS" ls "$ck" .optimfs/view/fsdp@2
like "says what to give" "$(cat "$scratch/err")" '*OFS170*units=FILE*'
"$OPTIMFS" cp -o "units=$units" -r "$ck" .optimfs/view/fsdp@4 "$scratch/dcp4"
ok "a DCP checkpoint becomes rank files" "$OPTIMFS" diff "$ck" \
    "$scratch/dcp4"
is "files" "$(ls "$scratch/dcp4" | wc -l)" 9
echo '{"not": "units"}' >"$scratch/none.json"
status "what is no units file" 2 "$OPTIMFS" ls -o \
    "units=$scratch/none.json" "$ck" .
like "is refused where nothing else needs it" "$(cat "$scratch/err")" '*OFS162*'

# What parameters of one flat parameter must share.
flat fsdp1_local_orig_fullshard_w2
status "frozen beside trained, in one flat parameter" 4 "$OPTIMFS" ls "$ck" \
    .optimfs/view/fsdp@2,flat
like "are named" "$(cat "$scratch/err")" '*OFS174*adapter*tok_embeddings*'
ok "zeros may make up for it" view fsdp@2,flat,fill=zero "$scratch/view"
tree "$scratch/view" "$scratch/got"
for state in exp_avg exp_avg_sq; do
	ok "$state of what was frozen" cmp -n \
	    "$(stat -c %s "$scratch/got/model/adapter.weight")" /dev/zero \
	    "$scratch/got/optim/state/adapter.weight/$state"
done
is "its step is that of the others" \
    "$(cat "$scratch/got/optim/state/adapter.weight/step")" \
    "$(cat "$scratch/got/optim/state/tok_embeddings.weight/step")"
rm -r "$scratch"/got/optim/state/adapter.*
ok "and nothing else is other" diff -r "$scratch/want/optim/state" \
    "$scratch/got/optim/state"

# units.json: by itself, left alone, and what is none.
not_ok "units=none does not take it" sh -c '
	"$1" cat -o units=none "$2" optim/state/0/exp_avg >/dev/null' sh \
    "$OPTIMFS" "$ck"
echo '{"not": "units"}' >"$ck/units.json"
status "another file of that name" 0 "$OPTIMFS" cat "$ck" .optimfs/warnings
like "is a warning" "$(cat "$scratch/out")" '*OFS162*units.json*not used*'

# Names.
for name in fsdp fsdp@0 fsdp@2,hf fsdp@2,keys=id fsdp@2,fill=one \
    dcp@2,flat dcp@2,fill=zero torch,orig; do
	status "$name is none" 2 "$OPTIMFS" ls "$ck" ".optimfs/view/$name"
done
done_testing
