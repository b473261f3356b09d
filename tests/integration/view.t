#!/bin/sh
# view.t - the views dcp, dcp-st, torch and safetensors of checkpoints in many
# formats
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
. "$TOP_SRCDIR/tests/tap/python.sh"

data=$TOP_SRCDIR/tests/data

# tree CHECKPOINT DIR: copy the tree of CHECKPOINT to DIR
tree() {
	rm -rf "$2"
	"$OPTIMFS" cp -r "$1" . "$2" 2>"$scratch/err"
}
# becomes CHECKPOINT VIEW: does a copy of the view have the tree in want?
becomes() {
	rm -rf "$scratch/view"
	"$OPTIMFS" cp -r "$1" ".optimfs/view/$2" "$scratch/view" &&
	    tree "$scratch/view" "$scratch/got" &&
	    diff -r "$scratch/want" "$scratch/got"
}

for name in dcp_dtensor_shapes_w4 dcp_dtypes dcp_fsdp2_flatosd_w4 \
    dcp_fsdp2_multifile_w2 dcp_fsdp2_safetensors_w2 dcp_fsdp2_w3 dcp_hsdp_w4 \
    dcp_names dcp_by_id_w2 dcp_opt_sgd_w2 dcp_tp_fsdp_w4 \
    fsdp1_sharded_flat_fullshard_w3 named_optimizer_w2 safetensors_plain \
    torchsave_full/ckpt/state.pt torchsave_full/ckpt/state_legacy.pt \
    torchtitan_like_w2; do
	ck=$data/pytorch/$name
	[ -d "$ck/ckpt" ] && ck=$ck/ckpt
	[ -d "$ck/step-3" ] && ck=$ck/step-3
	tree "$ck" "$scratch/want" || echo "# $(cat "$scratch/err")"
	for view in dcp@1 dcp@3 dcp@16 dcp@2x2 dcp-st@1 dcp-st@4 torch torch,crc safetensors \
	    safetensors,hf; do
		case $name,$view in
		# not storable there: complex128 in safetensors, pickled bytes
		# in JSON
		dcp_dtypes,*st@* | dcp_dtypes,safetensors* | torchtitan*,safetensors*) continue ;;
		# one param group per parameter: see below
		dcp_fsdp2_flatosd*,torch* | torchtitan*,torch*) continue ;;
		esac
		ok "$name as $view has the same tree" becomes "$ck" $view
	done
done

# A flattened optimizer state has options per parameter. The torch view makes
# param groups of the parameters whose options are equal.
regrouped() {
	rm -rf "$scratch/view"
	"$OPTIMFS" cp -r "$1" .optimfs/view/torch "$scratch/view" &&
	    tree "$scratch/view" "$scratch/got" || return 1
	diff -r "$scratch/want/model" "$scratch/got/model" &&
	    diff -r "$scratch/want/optim/state" "$scratch/got/optim/state" ||
	    return 1
	for group in "$scratch"/got/optim/param_groups/*; do
		while read -r fqn; do
			diff -r -x params "$group" \
			    "$scratch/want/optim/param_groups/$fqn" || return 1
			echo "$fqn"
		done <"$group/params"
	done | sort >"$scratch/listed"
	ls "$scratch/want/optim/param_groups" | sort | cmp - "$scratch/listed"
}
for ck in "$data/pytorch/dcp_fsdp2_flatosd_w4/ckpt" \
    "$data/pytorch/torchtitan_like_w2/ckpt/step-3"; do
	tree "$ck" "$scratch/want"
	ok "$ck as torch has the state, and each parameter in a group with its options" \
	    regrouped "$ck"
	ok "$ck as torch has no two param groups with equal options" sh -c '
		for a in "$1"/*; do for b in "$1"/*; do
			[ "$a" = "$b" ] || ! diff -r -x params "$a" "$b" || exit 1
		done; done >/dev/null' sh "$scratch/got/optim/param_groups"
done

ck=$data/pytorch/dcp_fsdp2_w3/ckpt
tree "$ck" "$scratch/want"

# View names.
status "ls of .optimfs/view succeeds" 0 "$OPTIMFS" ls "$ck" .optimfs/view
like ".optimfs/view lists dcp@16" "$(cat "$scratch/out")" '*dcp@16*'
status "ls of the view dcp@7 succeeds" 0 "$OPTIMFS" ls "$ck" .optimfs/view/dcp@7
is "dcp@7 has seven rank files and .metadata" "$(wc -l <"$scratch/out")" 8
for name in dcp dcp@ dcp@0 dcp@07 dcp@2x dcp@x2 dcp@1x0 dcp@99999 dcp@3,what \
    dcp@3,hf dcp@3, dcp-st dcp-st@3,crc dcp-st@3,zstd; do
	status "$name is rejected as a view name" 2 "$OPTIMFS" ls "$ck" ".optimfs/view/$name"
	like "OFS771 quotes the view name $name" "$(cat "$scratch/err")" "*OFS771*'$name'*"
done 2>/dev/null

status "an unknown format in a view name exits with 3" 3 "$OPTIMFS" ls "$ck" .optimfs/view/nothing@3
like "OFS771 quotes the unknown format" "$(cat "$scratch/err")" '*OFS771*nothing*'

# A view is a function of the checkpoint: copies made at different times are
# equal.
"$OPTIMFS" cp -r "$ck" .optimfs/view/dcp@3 "$scratch/one"
"$OPTIMFS" cp -r "$ck" .optimfs/view/dcp@3 "$scratch/two"
ok "two copies of dcp@3 are identical" diff -r "$scratch/one" "$scratch/two"
"$OPTIMFS" cp -r "$scratch/one" .optimfs/view/dcp@3 "$scratch/three"
ok "dcp@3 of a copy of dcp@3 is identical to it" diff -r "$scratch/one" "$scratch/three"

# Checksums are in a view on request.
"$OPTIMFS" cp -r "$ck" .optimfs/view/dcp@3,crc "$scratch/crc"
status "fsck --data accepts a copy of dcp@3,crc" 0 "$OPTIMFS" fsck --data \
    "$scratch/crc"
like "fsck of dcp@3,crc reports no error and no warning" "$(cat "$scratch/out" "$scratch/err")" \
    '*0 errors, 0 warnings*'
status "fsck --data accepts a copy of dcp@3 without checksums" 0 \
    "$OPTIMFS" fsck --data "$scratch/one"
like "fsck reports OFS530 for archives without checksums" \
    "$(cat "$scratch/out" "$scratch/err")" '*OFS530*'

# A rank without tensors gets the file that PyTorch writes for it. The headers
# of the other ranks follow the rules of safetensors.
variant=$TOP_SRCDIR/tests/data/extra/dcp_variants/dcp_safetensors
"$OPTIMFS" cp -r "$variant" .optimfs/view/dcp-st@4 "$scratch/blobs"
ok "dcp-st@4 writes the empty rank file as PyTorch does" cmp "$variant/__3_0.distcp" \
    "$scratch/blobs/__3_0.distcp"
ok "dcp-st@4 has valid headers, offsets and sharding info in every rank file" python3 -c '
import json, sys
seen = 0
for rank in range(4):
    data = open("%s/__%d_0.distcp" % (sys.argv[1], rank), "rb").read()
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + n])
    meta = header.pop("__metadata__")
    places = json.loads(meta["DCP_SHARDING_INFO"])
    assert n % 8 == 0 and set(places) == set(header), rank
    at = 0
    for key, t in header.items():
        assert t["data_offsets"][0] == at, key
        assert places[key]["saved_offsets"] == [rank] + [0] * (
            len(t["shape"]) - 1), key
        at = t["data_offsets"][1]
        seen += 1
    assert at + 8 + n == len(data), rank
assert seen == 5, seen' "$scratch/blobs"

# The option only=.
rm -rf "$scratch/view"
"$OPTIMFS" cp -r "$ck" .optimfs/view/dcp@2,only=optim "$scratch/view"
tree "$scratch/view" "$scratch/got"
ok "dcp@2,only=optim has the whole optimizer" diff -r "$scratch/want/optim" \
    "$scratch/got/optim"
not_ok "dcp@2,only=optim has no model" test -e "$scratch/got/model"

# A parameter that is called as the groups are.
python3 - "$scratch/groups.pkl" <<'END'
import pickle, sys
pickle.dump({"optim": {"state": {"w": {"step": 7}, "param_groups": {"step": 8}},
                       "param_groups": [{"lr": 0.5, "params": ["w", "param_groups"]}]}},
            open(sys.argv[1], "wb"), 2)
END
"$OPTIMFS" reshard --to torch "$scratch/groups.pkl" "$scratch/groups"
is "the view torch has the state of a parameter called param_groups" \
    "$("$OPTIMFS" cat "$scratch/groups" optim/state/param_groups/step)" 8

# only= of a part that the checkpoint does not have.
for layout in dcp@2 torch safetensors,hf; do
	status "reshard --to $layout,only=model fails if there is no model" 3 "$OPTIMFS" \
	    reshard --to $layout,only=model "$TOP_SRCDIR/tests/data/extra/torch_save/adam.pt" \
	    "$scratch/weights"
	like "$layout,only=model: the message names the option that helps" \
	    "$(cat "$scratch/err")" '*OFS777 only=model: *model_key=*'
	not_ok "$layout,only=model makes no directory if there is no model" \
	    test -e "$scratch/weights"
done

# PyTorch loads the torch view.
"$OPTIMFS" cp -r "$ck" .optimfs/view/torch "$scratch/torch"
"$OPTIMFS" cp -r "$ck" .optimfs/view/torch,crc "$scratch/torchcrc"
ok "zipfile finds no wrong checksum in torch,crc" python3 -c '
import sys, zipfile
for name in "model.pt", "optim.pt":
    assert zipfile.ZipFile(sys.argv[1] + "/" + name).testzip() is None' \
    "$scratch/torchcrc"
find_python -c 'import torch, numpy'
cat >"$scratch/load.py" <<'EOF'
import os, sys, torch
view, tree = sys.argv[1:]
def check(path, t):
    data = open(os.path.join(tree, path), "rb").read()
    if t.dim() == 0:
        assert float(data) == t.item(), path
    else:
        assert t.contiguous().numpy().tobytes() == data, path
model = torch.load(view + "/model.pt")
optim = torch.load(view + "/optim.pt")
for name, t in model.items():
    check("model/" + name, t)
for name, state in optim["state"].items():
    for key, t in state.items():
        check("optim/state/%s/%s" % (name, key), t)
assert sorted(model) == sorted(os.listdir(tree + "/model"))
assert sorted(optim["state"]) == sorted(os.listdir(tree + "/optim/state"))
assert isinstance(optim["param_groups"], list)
group = optim["param_groups"][0]
names = open(tree + "/optim/param_groups/0/params").read().split()
assert group["params"] == names
assert isinstance(group["betas"], tuple) and isinstance(group["lr"], float)
EOF
# With keys=id an optimizer of PyTorch can load the state.
"$OPTIMFS" cp -r "$ck" .optimfs/view/torch,keys=id "$scratch/torchid"
cat >"$scratch/loadid.py" <<'EOF'
import os, sys, torch
view, tree = sys.argv[1:]
model = torch.load(view + "/model.pt")
optim = torch.load(view + "/optim.pt")
names = []
for i in range(len(optim["param_groups"])):
    names += open("%s/optim/param_groups/%d/params" % (tree, i)).read().split()
ids = [n for g in optim["param_groups"] for n in g["params"]]
assert ids == list(range(len(names)))
params = [torch.nn.Parameter(model[n]) for n in names]
groups = [{"params": [params[i] for i in g["params"]]}
          for g in optim["param_groups"]]
adam = torch.optim.Adam(groups)
adam.load_state_dict(optim)
for name, p in zip(names, params):
    for key, t in adam.state[p].items():
        path = "%s/optim/state/%s/%s" % (tree, name, key)
        data = open(path, "rb").read()
        if t.dim() == 0:
            assert float(data) == t.item(), path
        else:
            assert t.numpy().tobytes() == data, path
assert sum(len(s) for s in adam.state.values()) > 0
EOF
if [ -n "$python" ]; then
	for dir in torch torchcrc; do
		ok "torch.load of the view $dir finds what the tree has" \
		    "$python" "$scratch/load.py" \
		    "$scratch/$dir" "$scratch/want"
	done
	ok "Adam.load_state_dict takes the view torch,keys=id" "$python" "$scratch/loadid.py" \
	    "$scratch/torchid" "$scratch/want"
	for name in dcp_tp_fsdp_w4 dcp_opt_sgd_w2 named_optimizer_w2 \
	    fsdp1_sharded_flat_fullshard_w3 hf_storage_w2; do
		rm -rf "$scratch/view"
		tree "$data/pytorch/$name/ckpt" "$scratch/got"
		"$OPTIMFS" cp -r "$data/pytorch/$name/ckpt" \
		    .optimfs/view/torch "$scratch/view"
		ok "torch.load of the torch view of $name finds what the tree has" "$python" \
		    "$TOP_SRCDIR/tests/interop/torch2.py" torch \
		    "$scratch/view" "$scratch/got"
	done
else
	skip 8 "no PyTorch here"
fi

# Two optimizers, each with its own param groups and parameter IDs.
cat >"$scratch/two.py" <<'EOF'
import sys, torch
models = {"g": torch.nn.Linear(3, 4), "d": torch.nn.Linear(4, 2)}
out = {"model": {}}
for name, m in models.items():
    adam = torch.optim.Adam(m.parameters())
    m(torch.ones(5, m.in_features)).sum().backward()
    adam.step()
    keys = ["%s.%s" % (name, k) for k, _ in m.named_parameters()]
    sd = adam.state_dict()
    sd["state"] = {keys[i]: s for i, s in sd["state"].items()}
    for group in sd["param_groups"]:
        group["params"] = [keys[i] for i in group["params"]]
    out["optimizer_" + name] = sd
    out["model"].update({"%s.%s" % (name, k): v
                         for k, v in m.state_dict().items()})
torch.save(out, sys.argv[1])
EOF
cat >"$scratch/twoid.py" <<'EOF'
import sys, torch
optim = torch.load(sys.argv[1])
assert sorted(optim) == ["optimizer_d", "optimizer_g"]
for name, m in ("g", torch.nn.Linear(3, 4)), ("d", torch.nn.Linear(4, 2)):
    adam = torch.optim.Adam(m.parameters())
    adam.load_state_dict(optim["optimizer_" + name])
    for p in m.parameters():
        assert adam.state[p]["exp_avg"].shape == p.shape
EOF
if [ -n "$python" ]; then
	"$python" "$scratch/two.py" "$scratch/two.pt"
	tree "$scratch/two.pt" "$scratch/want"
	for view in torch safetensors dcp@2 dcp-st@2; do
		ok "two optimizers as $view have the same tree" becomes "$scratch/two.pt" $view
	done
	"$OPTIMFS" cp -r "$scratch/two.pt" .optimfs/view/torch,keys=id \
	    "$scratch/twoid"
	ok "torch,keys=id numbers the parameters of each optimizer from 0" \
	    "$python" "$scratch/twoid.py" \
	    "$scratch/twoid/optim.pt"
	# the names of ids= are those of one optimizer
	printf 'g.weight\ng.bias\n' >"$scratch/ids"
	twoid() {
		"$OPTIMFS" "$1" -o "ids=$scratch/ids,optim_key=optimizer_g" \
		    "$scratch/byid.pt" "$2" $3
	}
	"$python" -c "import sys, torch
sd = torch.load(sys.argv[1])
sd.update(torch.load(sys.argv[2]))
torch.save(sd, sys.argv[3])" "$scratch/two.pt" "$scratch/twoid/optim.pt" \
	    "$scratch/byid.pt"
	is "ids= names the parameters of the optimizer of optim_key=" \
	    "$(twoid cat optim/param_groups/0/params)" "$(cat "$scratch/ids")"
	is "ids= does not name those of another optimizer" \
	    "$(twoid cat extra/optimizer_d/param_groups/0/params)" "$(seq 0 1)"
	twoid cp .optimfs/view/torch/extra.pt "$scratch/extra.pt"
	is "nor in a view" "$("$python" -c "import sys, torch
sd = torch.load(sys.argv[1])
print(sd['optimizer_d']['param_groups'][0]['params'])" "$scratch/extra.pt")" "[0, 1]"
	tree "$ck" "$scratch/want"
else
	skip 8 "no PyTorch here"
fi

# The rules of the safetensors reader; the package itself may be missing.
cat >"$scratch/rules.py" <<'EOF'
import json, math, os, sys
size = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4,
        "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
view, tree = sys.argv[1:]
seen = set()
for name in os.listdir(view):
    data = open(os.path.join(view, name), "rb").read()
    if name.endswith(".json"):
        index = json.loads(data)
        continue
    n = int.from_bytes(data[:8], "little")
    assert n % 8 == 0 and data[8:9] == b"{", name
    header = json.loads(data[8:8 + n])
    meta = header.pop("__metadata__")
    assert all(isinstance(v, str) for v in meta.values()), name
    at = 0
    for key, t in header.items():
        begin, end = t["data_offsets"]
        assert begin == at and begin % size[t["dtype"]] == 0, key
        assert end - begin == math.prod(t["shape"]) * size[t["dtype"]], key
        at = end
        if name.startswith("model"):
            seen.add(key)
            got = data[8 + n + begin:8 + n + end]
            assert got == open(tree + "/model/" + key, "rb").read(), key
    assert at + 8 + n == len(data), name
assert seen == set(os.listdir(tree + "/model"))
if "index" in globals():
    assert set(index["weight_map"]) == seen
    assert set(index["weight_map"].values()) <= set(os.listdir(view))
EOF
for view in safetensors safetensors,hf; do
	"$OPTIMFS" cp -r "$ck" ".optimfs/view/$view" "$scratch/$view"
	ok "$view follows the rules of safetensors" python3 "$scratch/rules.py" \
	    "$scratch/$view" "$scratch/want"
done
status "the safetensors view of complex tensors exits with 4" 4 \
    "$OPTIMFS" ls "$data/pytorch/dcp_dtypes/ckpt" \
    .optimfs/view/safetensors
like "OFS448 names the tensor, its dtype and the views that have it" "$(cat "$scratch/err")" \
    '*OFS448 *: model/t.complex*: safetensors has no type complex*to do: views torch and dcp *'

# Views in a mount.
mnt=$(point mnt)
if "$OPTIMFS" mount "$ck" "$mnt" 2>"$scratch/err"; then
	ok "cp -r of dcp@3 in a mount succeeds" cp -r "$mnt/.optimfs/view/dcp@3" \
	    "$scratch/mounted"
	ok "dcp@3 in a mount equals the copy made without a mount" \
	    diff -r "$scratch/one" "$scratch/mounted"
	not_ok "ls of an invalid view name in a mount fails" ls "$mnt/.optimfs/view/dcp@0"
	ok ".optimfs/errors has OFS771 for the invalid view name" \
	    grep -q OFS771 "$mnt/.optimfs/errors"
	ok "a view file reads the same in blocks of 1000 bytes from the end" sh -c '
		n=$(stat -c %s "$1"); i=$(((n - 1) / 1000))
		while [ $i -ge 0 ]; do
			dd if="$1" of="$2" bs=1000 count=1 skip=$i seek=$i \
			    conv=notrunc status=none || exit 1
			i=$((i - 1))
		done
		cmp "$2" "$3"' sh "$mnt/.optimfs/view/dcp@3/__1_0.distcp" \
	    "$scratch/pieces" "$scratch/one/__1_0.distcp"
	"$OPTIMFS" umount "$mnt"

	opaque=$TOP_SRCDIR/tests/support/opaque.py
	if command -v python3 >/dev/null; then
		python3 "$opaque" --sequences "$scratch/seq.pt"
		"$OPTIMFS" mount -o rw,commit=explicit "$scratch/seq.pt" "$mnt"
		mv "$mnt/extra/held/2/1/a" "$mnt/extra/held/2/1/b"
		is "lists and tuples keep their kind in a view of what is staged" \
		    "$(python3 "$opaque" --kinds "$mnt/.optimfs/view/torch/extra.pt")" \
		    "(T, 1, [(T,), {'b': (T, T, T, 'x')}], deque([T, 2], maxlen=5))"
		"$OPTIMFS" abort "$mnt"
		"$OPTIMFS" umount "$mnt"
	else
		skip 1 "no python3"
	fi
else
	skip 6 "no mounts here: $(head -1 "$scratch/err")"
fi

done_testing
