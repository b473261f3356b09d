#!/bin/sh
# commit.t - the same edits in several formats: mount, views, commit, fsck
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
requires mount python3

data=$TOP_SRCDIR/tests/data/pytorch
W=layers.0.w1.weight
cd "$scratch" || exit 99
cat > zips.py <<'END'
"""Prints the archives that fail zipfile's CRC check."""
import sys, zipfile
bad = [f for f in sys.argv[1:] if zipfile.is_zipfile(f)
       and zipfile.ZipFile(f).testzip() is not None]
print(*bad)
END
cat > load.py <<'END'
"""torch.load of the committed files has the edits."""
import sys, torch
mnt, files = sys.argv[1], sys.argv[2:]
full = [torch.load(f, map_location="cpu") for f in files]
for d in full:
    g = d.get("optimizer", d)["param_groups"][0]
    assert g["lr"] == 1e-05, g["lr"]
    assert isinstance(g["betas"], tuple) and g["betas"] == (0.5, 0.75), g
    s = d.get("optimizer", d)["state"]
    k = [k for k in s if "momentum" in s[k]]
    assert len(k) == 1 and "exp_avg" not in s[k[0]], k
print("ok")
END

same_tensor() { "$OPTIMFS" cat ck "model/$1" | cmp - "now/$1"; }

inodes() {
	(cd ck && find . -type f -exec stat -c '%n %i' {} +) | sort
}

# edit CHECKPOINT NAME: edit a copy, compare a view with the mount, commit,
# compare the checkpoint with the mount
edit() {
	rm -rf ck tree was view
	cp -r "$1" ck && chmod -R u+w ck
	inodes > inodes.was
	mnt=$(point m)
	status "$2: mount -o rw exits with 0" 0 "$OPTIMFS" mount -o rw ck "$mnt"
	cp -r "$mnt" was
	echo 1e-5 > "$mnt/optim/param_groups/0/lr"
	echo '[0.5, 0.75]' > "$mnt/optim/param_groups/0/betas"
	dd if=/dev/zero of="$mnt/model/$W" bs=1 count=13 seek=3 conv=notrunc \
	    2>/dev/null
	mv "$mnt/optim/state/$W/exp_avg" "$mnt/optim/state/$W/momentum"
	rm "$mnt/optim/state/layers.0.w2.weight/exp_avg"
	cp -r "$mnt" tree
	cp -r "$mnt/.optimfs/view/dcp@2" view
	status "$2: the staged dcp@2 view is a readable checkpoint" 0 \
	    "$OPTIMFS" cp -r view / view.tree
	ok "$2: the staged dcp@2 view has the same tree as the mount" \
	    diff -r tree view.tree
	rm -rf view.tree
	is "$2: no file of the checkpoint changes before the commit" "$(inodes)" \
	    "$(cat inodes.was)"
	echo commit > "$mnt/.optimfs/control"
	is "$2: commit leaves the mount clean" "$(cat "$mnt/.optimfs/control")" clean
	status "$2: umount exits with 0" 0 "$OPTIMFS" umount "$mnt"
	ok "$2: umount removes the staging directory" eventually [ ! -e .ck.optimfs ]
	status "$2: fsck --data accepts the committed checkpoint" 0 "$OPTIMFS" fsck --data ck
	status "$2: the committed checkpoint can be read without a mount" 0 \
	    "$OPTIMFS" cp -r ck / now
	ok "$2: the committed tree equals the edited mount" diff -r tree now
	rm -rf now
}

edit "$data/dcp_fsdp2_w4/ckpt" dcp
is "dcp: commit replaces .metadata, adds files and keeps the others" \
    "$(inodes | grep -c -x -F -f inodes.was)" \
    "$(grep -vc metadata inodes.was)"
edit "$data/fsdp1_sharded_orig_fullshard_w2/ckpt_rankfiles" "rank files"
is "rank files: every archive passes the CRC check" \
    "$(python3 zips.py ck/*)" ""
if "$OPTIMFS" --version | grep -q zstd; then
	edit "$data/dcp_fsdp2_zstd_w2/ckpt" zstd
fi

# Two indexes, both without a prefix: the model's and the optimizer's.
rm -rf ck tree
cp -r "$TOP_SRCDIR/tests/data/extra/trainers/acc_v2_SHARDED_STATE_DICT" ck
chmod -R u+w ck
"$OPTIMFS" mount -o rw ck "$mnt"
cp "$mnt/optim/state/bias/exp_avg" "$mnt/optim/state/bias/extra"
mv "$mnt/optim/state/bias/exp_avg_sq" "$mnt/model/moved"
mv "$mnt/model/weight" "$mnt/optim/state/weight/moved"
mv "$mnt/model/bias" "$mnt/model/renamed"
cp -r "$mnt" tree
status "two indexes: umount commits" 0 "$OPTIMFS" umount "$mnt"
status "two indexes: the committed checkpoint can be read without a mount" 0 \
    "$OPTIMFS" cp -r ck / now
ok "two indexes: the committed tree equals the edited mount" diff -r tree now
is "two indexes: a new state is in the optimizer's" "$(cd ck &&
    grep -la 'state.bias.extra' */.metadata)" optimizer_0/.metadata
is "two indexes: what moved to the model is in the model's" "$(cd ck &&
    grep -la 'moved' */.metadata | sort | xargs)" \
    "optimizer_0/.metadata pytorch_model_fsdp_0/.metadata"
status "two indexes: fsck --data accepts the committed checkpoint" 0 \
    "$OPTIMFS" fsck --data ck
rm -rf now

# Values of Megatron-Core, whose paths in the tree are not those of its item.
rm -rf ck tree
cp -r "$TOP_SRCDIR/tests/data/megatron/gpt_tp2_dp2/fully_reshardable" ck
chmod -R u+w ck
"$OPTIMFS" mount -o rw ck "$mnt"
echo 0.5 >"$mnt/optim/param_groups/0/lr"
echo 0.25 >"$mnt/optim/param_groups/1/weight_decay"
echo 77 >"$mnt/extra/iteration"
cp -r "$mnt" tree
status "Megatron: umount commits changed values" 0 "$OPTIMFS" umount "$mnt"
status "Megatron: the committed checkpoint can be read without a mount" 0 \
    "$OPTIMFS" cp -r ck / now
ok "Megatron: the committed tree equals the edited mount" diff -r tree now
is "Megatron: only the item with the values is rewritten" \
    "$(cd ck/iter_0000003 && echo *.distcp)" "__0_0.distcp __0_1.distcp __1_0.distcp"
status "Megatron: fsck --data accepts the committed checkpoint" 0 \
    "$OPTIMFS" fsck --data ck
rm -rf ck now

# States of Megatron-Core's buckets: a norm that two tensor-parallel ranks have
# is changed in both buckets, and a matrix that is cut between ranks.
gzip -dc "$TOP_SRCDIR/tests/data/megatron_buckets/tp2pp1dp2.tar.gz" | tar -xf -
ck=tp2pp1dp2/ckpt
norm=optim/state/decoder.final_layernorm.weight/exp_avg
matrix=optim/state/decoder.layers.1.mlp.linear_fc1.weight/exp_avg_sq
"$OPTIMFS" mount -o rw "$ck" "$mnt"
for state in $norm $matrix; do
	printf '\0\0\300\077\0\0\300\077' | dd of="$mnt/$state" conv=notrunc 2>"$scratch/dd"
done
rm -rf tree
cp -r "$mnt/optim" tree
status "buckets: umount commits changed states" 0 "$OPTIMFS" umount "$mnt"
status "buckets: the committed checkpoint can be read" 0 "$OPTIMFS" cp -r "$ck" optim now
ok "buckets: the committed states equal those of the edited mount" diff -r tree now
is "buckets: the norm has the new elements" \
    "$("$OPTIMFS" cat "$ck" $norm | od -A n -t f4 -N 8 | tr -d ' ')" 1.51.5
status "buckets: fsck --data finds both copies of the norm changed" 0 \
    "$OPTIMFS" fsck --data "$ck"
rm -rf tp2pp1dp2 now tree

# Files that are there already are never replaced by new ones.
rm -rf ck
cp -r "$data/dcp_fsdp2_w4/ckpt" ck
chmod -R u+w ck
echo mine | tee ck/__3_2147483645.distcp >ck/__3_2147483646.distcp
"$OPTIMFS" mount -o rw ck "$mnt"
echo 0.5 >"$mnt/optim/param_groups/0/lr"
status "numbers near 2^31: umount commits" 0 "$OPTIMFS" umount "$mnt"
is "numbers near 2^31: the new file has the next number, the others their bytes" \
    "$(cd ck && cat __3_214748364[56].distcp && echo __3_2147483647*)" \
    "mine
mine
__3_2147483647.distcp"
echo mine >ck/__3_9223372036854775807.distcp
"$OPTIMFS" mount -o rw ck "$mnt"
echo 0.25 >"$mnt/optim/param_groups/0/lr"
"$OPTIMFS" umount "$mnt" 2>why
ok "no number left: umount says why it cannot commit" \
    grep -q 'OFS826 __3_9223372036854775807.distcp: no number is left' why
ok "no number left: abort drops the change" "$OPTIMFS" abort "$mnt"
"$OPTIMFS" umount "$mnt"
rm -rf ck

# What is renamed stays in the file it is in, whatever files are beside it.
trainers=$TOP_SRCDIR/tests/data/extra/trainers
# rename NAME PATH: rename parameters in a copy, bias to PATH, and commit
rename() {
	status "$1: mount -o rw succeeds" 0 "$OPTIMFS" mount -o rw ck "$mnt"
	mv "$mnt/model/weight" "$mnt/model/renamed"
	mv "$mnt/optim/state/weight" "$mnt/optim/state/renamed"
	mv "$mnt/model/bias" "$mnt/$2"
	cp -r "$mnt" tree
	status "$1: umount commits renamed parameters" 0 "$OPTIMFS" umount "$mnt"
	status "$1: the committed checkpoint can be read without a mount" 0 \
	    "$OPTIMFS" cp -r ck / now
	ok "$1: the committed tree equals the edited mount" diff -r tree now
	rm -rf ck tree now
}
rm -rf ck tree
cp -r "$trainers/fabric_sharded" ck && chmod -R u+w ck
rename "meta.pt in the directory of an index" extra/aside
"$OPTIMFS" reshard --to torch "$trainers/fabric_sharded" ck 2>/dev/null
rename "extra.pt without a prefix" extra/aside
cp -r "$trainers/acc_v2_SHARDED_STATE_DICT" ck && chmod -R u+w ck
echo '{"global_step": 3}' >ck/trainer_state.json
rename "a file shown as its bytes" model/other

# A file whose optimizer has numbers for its parameters keeps them.
rm -rf ck tree now
cp "$trainers/pl_full.ckpt" one.ckpt && chmod u+w one.ckpt
"$OPTIMFS" mount -o rw one.ckpt "$mnt"
mv "$mnt/model/layer.bias" "$mnt/model/renamed"
status "integer IDs: umount commits a renamed parameter" 0 "$OPTIMFS" umount "$mnt"
is "integer IDs: params and state are as they were" \
    "$("$OPTIMFS" cat one.ckpt optim/param_groups/0/params; "$OPTIMFS" ls one.ckpt optim/state)" \
    "$("$OPTIMFS" cat "$trainers/pl_full.ckpt" optim/param_groups/0/params
    "$OPTIMFS" ls "$trainers/pl_full.ckpt" optim/state)"
is "integer IDs: ids=model gives the state the new name" \
    "$("$OPTIMFS" ls -o ids=model one.ckpt optim/state | grep -c -x renamed/)" 1
"$OPTIMFS" mount -o rw,ids=model one.ckpt "$mnt"
mv "$mnt/optim/state/renamed" "$mnt/optim/state/again"
not_ok "integer IDs: a renamed state is not committed" "$OPTIMFS" commit "$mnt"
like "which says what can be renamed" "$("$OPTIMFS" commit "$mnt" 2>&1)" \
    "*OFS826 optim/state/again/*rename it below model, too*"
"$OPTIMFS" abort "$mnt"
mv "$mnt/model/renamed" "$mnt/model/again"
like "nor a renamed parameter without its state" "$("$OPTIMFS" commit "$mnt" 2>&1)" \
    "*OFS827 *a parameter is renamed below model and below optim/state*"
mv "$mnt/optim/state/renamed" "$mnt/optim/state/again"
cp -r "$mnt" tree
status "integer IDs: both are committed" 0 "$OPTIMFS" commit "$mnt"
"$OPTIMFS" cp -r -o ids=model one.ckpt / now
ok "integer IDs: the committed tree equals the edited mount" diff -r -x params tree now
is "integer IDs: params has the new name" "$(cat now/optim/param_groups/0/params)" "layer.weight
again"
rm -r tree now
is "integer IDs: the numbers stay" "$("$OPTIMFS" ls one.ckpt optim/state)" \
    "$("$OPTIMFS" ls "$trainers/pl_full.ckpt" optim/state)"
"$OPTIMFS" umount "$mnt"
rm one.ckpt

# State in Megatron's buckets has the name of the weight that it rounds to.
rm -rf ck tree now
cp -r "$TOP_SRCDIR/tests/data/megatron/llama_dp2/dp_reshardable" ck && chmod -R u+w ck
n=decoder.final_layernorm.weight
"$OPTIMFS" mount -o rw ck "$mnt"
printf '\200\077\200\077' |
    dd of="$mnt/model/$n" conv=notrunc 2>/dev/null # bfloat16: 1, 1
like "buckets: a weight is not committed without its fp32" \
    "$("$OPTIMFS" commit "$mnt" 2>&1)" \
    "*OFS827 *optim/state/$n/* would not be there; *change a weight and its fp32 together*"
printf '\0\0\200\077\0\0\200\077' |
    dd of="$mnt/optim/state/$n/fp32" conv=notrunc 2>/dev/null
cp -r "$mnt" tree
status "buckets: both are committed" 0 "$OPTIMFS" commit "$mnt"
"$OPTIMFS" umount "$mnt"
"$OPTIMFS" cp -r ck / now
ok "buckets: the committed tree equals the edited mount" diff -r tree now
rm -r tree now

# DCP does not know, without reading values, which IDs the groups list. State of
# others, as ranks of a pipeline leave it, is copied only to DCP again.
rm -rf ck now
cp -r "$data/dcp_by_id_w2/ckpt" ck && chmod -R u+w ck
"$OPTIMFS" mount -o rw ck "$mnt"
params=$mnt/optim/param_groups/0/params
sed 1d "$params" >params && cp params "$params"
status "integer IDs in DCP: one is removed from params" 0 "$OPTIMFS" umount "$mnt"
for view in torch safetensors; do
	status "integer IDs in DCP: $view is refused" 3 \
	    "$OPTIMFS" reshard -q --to $view ck now
	like "$view: the message says what happened" "$(cat "$scratch/err")" \
	    "*OFS644 *state of parameter ID *which no group*pipeline*"
done
status "integer IDs in DCP: dcp is written" 0 "$OPTIMFS" reshard -q --to dcp@1 ck now
rm -rf now

# Files of many blocks. What is not touched is copied, also inside of a tensor and
# of a record with a checksum; holes stay holes.
cat > large.py <<'END'
"""Writes a safetensors file: three tensors of 3 MB and one, a hole, of 200 MB."""
import json, struct, sys
size, hole = 3 << 20, 200 << 20
head, end = {}, 0
for name, n in ("a", size), ("b", size), ("c", size), ("zeros", hole):
    head[name] = {"dtype": "F32", "shape": [n // 4096, 1024],
                  "data_offsets": [end, end + n]}
    end += n
text = json.dumps(head).encode()
text += b" " * (-len(text) % 8)
with open(sys.argv[1], "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text)
    for i in range(3 * size // 4):
        f.write(struct.pack("<f", i))
    f.truncate(8 + len(text) + end)
END
touch_up() {
	printf 'ABCDEFG' | dd of="$1/model/a" bs=1 seek=1234567 conv=notrunc 2>/dev/null
	tr '\0' x </dev/zero | head -c 3145728 | dd of="$1/model/b" bs=65536 \
	    conv=notrunc iflag=fullblock 2>/dev/null
	printf 'HIJ' | dd of="$1/model/zeros" bs=1 seek=100000001 conv=notrunc 2>/dev/null
}
rm -rf ck now && mkdir ck && python3 large.py ck/model.safetensors
"$OPTIMFS" mount -o rw ck "$mnt" && touch_up "$mnt"
mkdir now && (cd "$mnt/model" && cp a b c zeros "$scratch/now/")
status "a large file: it is committed" 0 "$OPTIMFS" umount "$mnt"
for t in a b c zeros; do
	ok "a large file: $t is as it was shown" same_tensor $t
done
ok "a large file: the hole stays" [ "$(du -k ck/model.safetensors | cut -f1)" -lt 20000 ]
rm -r now && "$OPTIMFS" reshard -q --to torch ck now && rm -rf ck && mv now ck
"$OPTIMFS" mount -o rw ck "$mnt" && touch_up "$mnt"
mkdir now && (cd "$mnt/model" && cp a b c zeros "$scratch/now/")
status "a large archive: it is committed" 0 "$OPTIMFS" umount "$mnt"
for t in a b c zeros; do
	ok "a large archive: $t is as it was shown" same_tensor $t
done
is "a large archive: it passes the CRC check" "$(python3 zips.py ck/*)" ""
rm -rf now

# An archive without checksums, as views have them, gets all of them together.
"$OPTIMFS" mount "$data/torchsave_full/ckpt" "$mnt"
rm -rf ck && mkdir ck && cp "$mnt/.optimfs/view/torch/model.pt" ck
"$OPTIMFS" umount "$mnt"
is "an archive of a view fails the CRC check" "$(python3 zips.py ck/*)" ck/model.pt
"$OPTIMFS" mount -o rw ck "$mnt" && cp -a "$mnt/model/$W" "$mnt/model/new.weight"
status "a tensor is added to it" 0 "$OPTIMFS" umount "$mnt"
is "it passes the CRC check then" "$(python3 zips.py ck/*)" ""

# Files that PyTorch itself can load.
mkdir one && cp "$data"/fsdp1_sharded_flat_fullshard_w3/ckpt_full/*_fsdp.bin \
    "$data"/fsdp1_sharded_flat_fullshard_w3/ckpt_full/optimizer.bin one
edit one "one file each"
is "one file each: every archive passes the CRC check" "$(python3 zips.py ck/*)" ""
py=
for p in python3 /usr/bin/python3; do
	"$p" -c 'import torch' 2>/dev/null && py=$p
done
if [ -n "$py" ]; then
	is "torch.load reads the committed optimizer.bin" "$("$py" load.py "$mnt" \
	    ck/optimizer.bin 2>&1 | tail -1)" ok
else
	skip 1 "no PyTorch here"
fi
done_testing
