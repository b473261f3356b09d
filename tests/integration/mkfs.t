#!/bin/sh
# mkfs.t - a template made by mkfs is mounted, filled with cp, and committed
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
. "$TOP_SRCDIR/tests/tap/python.sh"
requires mount

data=$TOP_SRCDIR/tests/data/pytorch
a=$(point a)
b=$(point b)
cd "$scratch" || exit 99

# begin CHECKPOINT LAYOUT: mount CHECKPOINT at a, and a template for LAYOUT at b
begin() {
	drop
	ck=$1 layout=$2
	case $ck in
	*fsdp1_local*) o="-o units=${ck%/ckpt*}/units.json" ;;
	*) o= ;;
	esac
	"$OPTIMFS" mount $o "$ck" "$a" &&
	    "$OPTIMFS" mkfs $o --like "$ck" --layout "$layout" new &&
	    "$OPTIMFS" mount -o rw new "$b"
}

drop() {
	for m in "$a" "$b"; do
		if mountpoint -q "$m"; then
			"$OPTIMFS" umount "$m" 2>/dev/null && continue
			"$OPTIMFS" abort "$m" && "$OPTIMFS" umount "$m" ||
			    return 1
		fi
	done
	eventually [ ! -e .new.optimfs/lock ]
	rm -rf new .new.optimfs want
}

commit() {
	echo commit >"$b/.optimfs/control"
}

# as_reshard: unmount both; is the committed template equal to what reshard
# writes?
as_reshard() {
	"$OPTIMFS" umount "$b" && "$OPTIMFS" umount "$a" &&
	    "$OPTIMFS" reshard $o --to "$layout" "$ck" want &&
	    diff -r want new && [ ! -e .new.optimfs ]
}

push() { # CHECKPOINT LAYOUT
	begin "$1" "$2" && cp -r "$a/." "$b/" && commit && as_reshard
}

# Every fixture to at least one layout.
for ck in "$data"/*/ckpt "$data"/torchsave_full/ckpt/state.pt; do
	name=${ck#"$data"/}
	case $name in
	torchsave_full/ckpt) continue ;; # two checkpoints in one directory
	dtypes_new/*) continue ;; # quantized tensors: matrix.t
	dcp_fsdp1_local_orig_w3/*) continue ;; # slices without units
	dcp_dtypes/*) layouts='dcp@3 torch' ;;
	dcp_fsdp2_w3/*)
		layouts='dcp@1 dcp@3 dcp@4 dcp@7 dcp@16 dcp@2x3 dcp-st@4 torch
		    dcp@2,zstd safetensors'
		;;
	fsdp1_local_flat*) layouts='dcp@4 fsdp@1 fsdp@2 fsdp@5 torch' ;;
	fsdp1*) layouts='dcp@4' ;;
	torchtitan_like*) layouts='dcp@4' && ck=$ck/step-3 ;;
	*) layouts='dcp@7' ;;
	esac
	for l in $layouts; do
		ok "$name copied to a template for $l equals reshard" push "$ck" "$l"
	done
done

# Different programs and orders of writing.
main=$data/dcp_fsdp2_w3/ckpt
copied_still() {
	begin "$main" dcp@4 && "$@" && commit
}
copied() {
	copied_still "$@" && as_reshard
}
tar_x() {
	tar -C "$a" -cf - . | tar -C "$b" -xf -
}
parallel() {
	(cd "$a" && find . -type d) | (cd "$b" && xargs mkdir -p)
	(cd "$a" && find . -type f) | xargs -P 4 -I {} cp "$a/{}" "$b/{}"
}
truncated() { # cp, then rewrite in blocks that split elements
	cp -r "$a/." "$b/"
	(cd "$a" && find optim model -size +0 -type f) | while read -r f; do
		[ "$(getsize "$a/$f")" -gt 300 ] || continue
		dd if="$a/$f" of="$b/$f" bs=301 status=none || return 1
	done
}
getsize() {
	stat -c %s "$1"
}
ok "cp -a to a template equals reshard" copied cp -a "$a/." "$b/"
ok "tar x to a template equals reshard" copied tar_x
ok "four parallel cp to a template equal reshard" copied parallel
ok "rewriting a template in blocks of 301 bytes equals reshard" copied truncated
if command -v rsync >/dev/null; then
	ok "rsync -a to a template equals reshard" copied rsync -a "$a/" "$b/"
	ok "rsync --inplace to a template equals reshard" copied rsync -a --inplace "$a/" "$b/"
else
	skip 2 "no rsync"
fi

# Unwritten bytes of a template are missing; they do not read as zeros.
f=optim/state/layers.0.norm.weight/exp_avg
ok "a template for dcp@4 mounts read-write" begin "$main" dcp@4
is "a new template is empty" "$(ls -A "$b")" ""
is ".optimfs/missing lists every file of the source" "$(grep -c OFS301 "$b/.optimfs/missing")" \
    "$(cd "$a" && find . -type f | wc -l)"
mkdir -p "$b/${f%/*}"
head -c 12 "$a/$f" >"$b/$f"
is "a partly written file has the size that was written" "$(getsize "$b/$f")" 12
ok "the written part of a file can be read" cmp -n 12 "$a/$f" "$b/$f"
not_ok "reading a view with missing bytes fails" cat "$b/.optimfs/view/dcp@1/__0_0.distcp"
like ".optimfs/missing says how many bytes of the file are written" "$(cat "$b/.optimfs/missing")" \
    "*OFS301 $f: 12 of 48 bytes*"
not_ok "commit of an incomplete template fails" commit
like ".optimfs/errors summarizes the missing files as OFS301" \
    "$(cat "$b/.optimfs/errors")" "*OFS301*more:*"
is "the failed commit publishes nothing" "$(ls -A new)" ""
not_ok "writing more bytes than the tensor has fails" sh -c "cat '$a'/model/* >'$b/$f'"
like ".optimfs/errors names dtype and shape of a tensor that was given too many bytes" \
    "$(cat "$b/.optimfs/errors")" "*OFS813*float32 \[12\]*48 bytes*"

# cp -a says which type the bytes have, but ignores that the source has another one.
w=model/layers.0.norm.weight
cp -a "$a/$f" like
mkdir -p "$b/model"
if setfattr -n user.optimfs.dtype -v bfloat16 like 2>/dev/null; then
	not_ok "cp -a of a tensor of another dtype fails" cp -a like "$b/$f"
	like ".optimfs/errors names both dtypes" "$(cat "$b/.optimfs/errors")" \
	    "*OFS816*float32 \[12\]*bfloat16 \[12\]*"
	like ".optimfs/missing says that the dtypes differ" "$(cat "$b/.optimfs/missing")" \
	    "*$f: the source has float32 \[12\] here, not bfloat16*"
	not_ok "mv of a tensor of another dtype fails" sh -c \
	    "cp -a like '$b/model/tmp' && mv '$b/model/tmp' '$b/$w'"
	rm -f "$b/model/tmp"
	ok "cp of the right bytes replaces those of another dtype" cp "$a/$f" "$b/$f"
	is "a tensor that was replaced is not missing" \
	    "$(grep -c "$f:" "$b/.optimfs/missing")" 0
else
	skip 6 "the file system has no user attributes"
fi
cp -r "$a/." "$b/"
mkdir -p "$b/extra"
echo x >"$b/extra/other"
not_ok "commit of a template with a foreign file fails" commit
like "the failed commit names the foreign file" \
    "$(cat "$b/.optimfs/control")" "*extra/other: the checkpoint that*"
rm "$b/extra/other" "$b/$f"
not_ok "commit fails after a required file was removed" commit
cp "$a/$f" "$b/$f"
ok "commit of a complete template succeeds" commit
ok "the mount shows the template's tensors after the commit" cmp "$a/$f" "$b/$f"
ok "the committed template equals reshard" as_reshard

# After its commit a template is an ordinary read-write mount.
ok "a filled template commits" copied_still cp -r "$a/." "$b/"
echo 0.125 >"$b/optim/param_groups/0/lr"
ok "the mount of a committed template takes another edit" commit
is "the mount of a committed template shows the edit" "$(cat "$b/optim/param_groups/0/lr")" 0.125
"$OPTIMFS" umount "$b"
is "the checkpoint has the edit made after the first commit" \
    "$("$OPTIMFS" cat new optim/param_groups/0/lr)" 0.125

# Files written under a temporary name and renamed.
ok "a template for temporary names mounts read-write" begin "$main" dcp@4
cp -r "$a/." "$b/"
cp "$a/$f" "$b/${f%/*}/.tmp.1234" && mv "$b/${f%/*}/.tmp.1234" "$b/$f"
echo 0.25 >"$b/optim/param_groups/0/.lr"
mv "$b/optim/param_groups/0/.lr" "$b/optim/param_groups/0/lr"
cp -r "$b/.optimfs/view/dcp@4,crc" early
ok "commit of a template with renamed files succeeds" commit
ok "the view before the commit equals the committed files" diff -r early new
"$OPTIMFS" umount "$b"
is "the committed value comes from the renamed file" \
    "$("$OPTIMFS" cat new optim/param_groups/0/lr)" 0.25
ok "fsck --data accepts the committed template" "$OPTIMFS" fsck --data new
status "diff with the source exits with 1 for the changed value" 1 "$OPTIMFS" diff "$main" new
is "diff with the source names the changed value only" \
    "$(grep -vc param_groups/0/lr "$scratch/out")" 0

# Values may differ from those of the source, also in length.
other() { # PATH VALUE
	ok "a template for another ${1##*/} mounts read-write" begin "$full" dcp@4
	cp -r "$a/." "$b/"
	echo "$2" >"$b/$1"
	ok "commit with another ${1##*/} succeeds" commit
	"$OPTIMFS" umount "$b"
	ok "fsck --data accepts another ${1##*/}" "$OPTIMFS" fsck --data new
	is "diff with the source names ${1##*/} only" \
	    "$("$OPTIMFS" diff -v "$full" new | grep -v "$1")" ""
	is "the checkpoint has another ${1##*/}" "$("$OPTIMFS" cat new "$1")" "$2"
}
full=$data/torchsave_full/ckpt/state.pt
other extra/args/lr 0.5
other extra/args/name "$(printf '%0300d' 1)"

# All parameters of a flat parameter have the same step.
flat=$data/fsdp1_local_flat_fullshard_w3/ckpt
ok "a template for fsdp@2 mounts read-write" begin "$flat" fsdp@2
cp -r "$a/." "$b/"
step=$(cd "$b" && find optim -name step | sort | head -n 1)
echo 7 >"$b/$step"
not_ok "commit fails when one step of a flat parameter differs" commit
like "OFS828 names a step and both values" "$(cat "$b/.optimfs/control")" \
    "*OFS828 optim/state/*/step is 7.0, *3.0*"
for s in $(cd "$b" && find optim -name step); do
	echo 7 >"$b/$s"
done
ok "commit succeeds when all steps are equal" commit
"$OPTIMFS" umount "$b"
is "the committed checkpoint has the new step" "$("$OPTIMFS" cat new "$step")" 7.0
ok "fsck --data accepts the committed fsdp@2 checkpoint" "$OPTIMFS" fsck --data new

# DeepSpeed layouts. Their keys that describe the layout come from the template,
# not from the copied files.
zero=$TOP_SRCDIR/tests/data/deepspeed
for l in zero1@3 zero2@1 zero3@3 universal dcp@2; do
	ok "z1_ws2_bf16 copied to a template for $l equals reshard" push "$zero/z1_ws2_bf16/ckpt" $l
done
ok "z0_ws2_bf16 copied to a template for zero1@2 equals reshard" \
    push "$zero/z0_ws2_bf16/ckpt" zero1@2
ok "z3_ws4_poison copied to a template for zero3@3 equals reshard" \
    push "$zero/z3_ws4_poison/ckpt" zero3@3
# A trained scalar of a bf16 model: only its fp32 value is stored, and the file
# in model/ is that value rounded.
script=$TOP_SRCDIR/tests/integration/zeroview.py
find_python -c 'import torch, numpy'
if [ -n "$python" ] &&
    "$python" "$script" scalar "$scratch/half.pt" half; then
	"$OPTIMFS" reshard --to zero3@3 "$scratch/half.pt" "$scratch/half"
	for l in zero3@2 zero1@2 universal; do
		ok "a trained bf16 scalar copied to a template for $l equals reshard" \
		    push "$scratch/half" $l
	done
	ok "a template with a trained bf16 scalar mounts read-write" begin "$scratch/half" zero3@2
	cp -r "$a/." "$b/"
	echo -1 >"$b/model/temperature"
	not_ok "commit fails when a bf16 scalar is not its rounded fp32 value" commit
	like "OFS822 names the bf16 scalar and its value" "$(cat "$b/.optimfs/control")" \
	    "*OFS822 model/temperature is -1*"
	cp "$a/model/temperature" "$b/model/temperature"
	ok "commit succeeds with the rounded fp32 value" commit
	drop
else
	skip 1 "no PyTorch here"
fi
ok "a template with bf16 weights mounts read-write" begin "$zero/z1_ws2_bf16/ckpt" zero3@2
cp -r "$a/." "$b/"
printf '\200\277' | dd of="$b/model/gain" conv=notrunc status=none
not_ok "commit fails when a bf16 weight is not its rounded fp32 value" commit
like "OFS822 names the bf16 weight and its value" \
    "$(cat "$b/.optimfs/control")" "*OFS822 model/gain, *-1*"
cp "$a/model/gain" "$b/model/gain"
ok "commit succeeds with the rounded fp32 weights" commit
ok "the committed bf16 template equals reshard" as_reshard
drop
ok "a flattened optimizer state copied to a template for torch equals reshard" \
    push "$data/torchtitan_like_w2/ckpt/step-3" torch
drop
not_ok "mkfs fails for a layout with other tensors than the source" "$OPTIMFS" mkfs \
    --like "$main" --layout dcp@2,dequantize new
like "OFS833 suggests reshard" "$(cat "$scratch/err")" "*OFS833*reshard*"
is "the failed mkfs leaves nothing" "$(ls -A | grep new)" ""

# The source is read until the commit.
cp -r "$main" gone && "$OPTIMFS" mkfs --like gone --layout dcp@2 new
mv gone elsewhere
not_ok "a template whose source was moved does not mount" "$OPTIMFS" mount -o rw new "$b"
like "the error names the source" "$(cat "$scratch/err")" "*/gone, which the new one is made like*"
mv elsewhere gone
not_ok "an option that mkfs was not given is refused" "$OPTIMFS" mount -o rw,optim_key=x new "$b"
like "OFS836 names the option" "$(cat "$scratch/err")" "*OFS836*optim_key=x*"
ok "it mounts when the source is there again" "$OPTIMFS" mount -o rw new "$b"
drop
"$OPTIMFS" mkfs --like gone --layout dcp@2 new
touch gone/__0_0.distcp
not_ok "a template whose source was written meanwhile does not mount" \
    "$OPTIMFS" mount -o rw new "$b"
like "OFS837 names the source" "$(cat "$scratch/err")" "*OFS837*/gone*"
drop
rm -r gone

# Sources without fp32 weights in the optimizer: they are made from the model.
rm -rf half
"$OPTIMFS" reshard --to dcp@2,dtype=bf16 "$main" half
f=optim/state/layers.0.norm.weight/fp32
for l in zero1@3 zero3@2 universal; do
	ok "a float32 source without fp32 copied to a template for $l equals reshard" \
	    push "$main" $l
	ok "a bf16 source without fp32 copied to a template for $l equals reshard" push half $l
done
ok "a template for zero1@2 of a bf16 source mounts read-write" begin half zero1@2
cp -r "$a/optim" "$a/extra" "$b/" 2>/dev/null
not_ok "commit fails without the model, of which fp32 is made" commit
is ".optimfs/missing lists files of the model only" \
    "$(grep -v ' model/' "$b/.optimfs/missing")" ""
: >"$b/$f"
cp -r "$a/model" "$b/"
not_ok "commit fails with an fp32 file" commit
like "the failed commit names the fp32 file, which the source does not have" \
    "$(cat "$b/.optimfs/control")" "*$f: the checkpoint that this one is made like has no such file*"
rm "$b/$f"
ok "commit succeeds after the fp32 file is removed" commit
ok "the template without an fp32 file equals reshard" as_reshard
ok "a template for zero2@3 of a source with fp32 mounts read-write" \
    begin "$zero/z1_ws2_bf16/ckpt" zero2@3
cp -r "$a/." "$b/"
rm "$b/optim/state/gain/fp32"
not_ok "commit fails when an fp32 file of the source was removed" commit
like "the failed commit names the removed fp32 file" \
    "$(cat "$b/.optimfs/control")" "*gain/fp32: not written yet*"
drop

# Tied weights and equal fp32 copies are stored once: writing one of the names
# is enough.
tied() { # CHECKPOINT LAYOUT NAME
	begin "$zero/$1/ckpt" "$2" && cp -r "$a/." "$b/" && rm "$b/$3" &&
	    [ ! -s "$b/.optimfs/missing" ] && commit && as_reshard
}
for l in zero1@2 zero3@3; do
	ok "z1_ws2_bf16 as $l commits without the tied model/head.weight" \
	    tied z1_ws2_bf16 $l model/head.weight
	ok "z1_ws2_bf16 as $l commits without the tied model/emb.weight" \
	    tied z1_ws2_bf16 $l model/emb.weight
done
ok "z3_ws2_fp32 as zero3@1 commits without the fp32 name of a weight" \
    tied z3_ws2_fp32 zero3@1 optim/state/gain/fp32
ok "z3_ws2_fp32 as universal commits without the model name of a weight" tied z3_ws2_fp32 universal model/gain
ok "a template with tied weights mounts read-write" begin "$zero/z3_ws2_fp32/ckpt" zero3@2
cp -r "$a/." "$b/"
printf '\200\277' | dd of="$b/model/head.weight" conv=notrunc status=none
not_ok "commit fails when tied weights have different bytes" commit
like "OFS828 names both tied weights" "$(cat "$b/.optimfs/control")" \
    "*OFS828 model/emb.weight and model/head.weight *"
not_ok "each tied name reads as it was written before the commit" \
    cmp "$b/model/head.weight" "$b/model/emb.weight"
cp "$a/model/head.weight" "$b/model/head.weight"
ok "commit succeeds when tied weights are equal" commit
ok "the committed template with tied weights equals reshard" as_reshard

# The memory of the daemon does not grow with the size of a tensor.
large() { # ROWS of a MiB
	mkdir -p large
	python3 - "$1" >large/model.safetensors <<-'EOF'
		import json, struct, sys
		n = int(sys.argv[1])
		h = json.dumps({"w": {"dtype": "U8", "shape": [n, 1 << 20],
		                      "data_offsets": [0, n << 20]}}).encode()
		sys.stdout.buffer.write(struct.pack("<Q", len(h)) + h)
	EOF
	truncate -s "+$(($1))M" large/model.safetensors
}
spare() { # MB: did the daemon never use more?
	awk '/^VmHWM/ { exit !($2 < '"$1"' * 1000) }' \
	    "/proc/$(pgrep -f "optimfs mount -o rw new $b")/status"
}
at() { # MiB: write there and read it back
	printf '%s' "here it is $1" |
	    dd of="$b/model/w" bs=1M seek="$1" conv=notrunc status=none &&
	    dd if="$b/model/w" bs=1M skip="$1" count=1 status=none |
	    grep -q "here it is $1"
}
if command -v python3 >/dev/null && ! sanitized; then
	large 131072
	ok "a template with a 128 GiB tensor mounts read-write" begin large/model.safetensors dcp@3
	mkdir "$b/model"
	ok "the first bytes of a 128 GiB tensor can be written and read" at 0
	ok "bytes in the middle of a 128 GiB tensor can be written and read" at 65535
	ok "the last bytes of a 128 GiB tensor can be written and read" at 131071
	like ".optimfs/missing counts the unwritten bytes of a 128 GiB tensor" \
	    "$(cat "$b/.optimfs/missing")" \
	    "*model/w: 1374379049* of 137438953472 bytes*"
	ok "the daemon uses less than 64 MB with a 128 GiB tensor" spare 64
	large 192
	ok "a template with a 192 MiB tensor mounts read-write" begin large/model.safetensors torch
	ok "cp fills a 192 MiB tensor" cp -r "$a/model" "$b/"
	ok "commit of a 192 MiB tensor succeeds" commit
	ok "the daemon uses less than 64 MB for a 192 MiB tensor" spare 64
	ok "the committed 192 MiB tensor equals reshard" as_reshard
	rm -r large
else
	skip 11 "no Python, or memory that is not ours"
fi

# max_metadata limits the index before anything is written.
drop
not_ok "mkfs fails when the index would exceed max_metadata" \
    "$OPTIMFS" mkfs -o max_metadata=64k --like "$main" \
    --layout dcp@40 new
like "OFS440 names max_metadata" "$(cat "$scratch/err")" \
    "*OFS440*in this layout*max_metadata*"
not_ok "the mkfs over max_metadata leaves nothing" ls -d new .new.optimfs

# An object with a tensor cannot be copied with cp: its class is unknown.
if command -v python3 >/dev/null; then
	python3 "$TOP_SRCDIR/tests/support/opaque.py" --held held.pt
	for layout in torch dcp@2; do
		begin held.pt $layout
		cp -r "$a/model" "$b/"
		ok "a $layout template is complete without the object that has no text" \
		    commit
		ok "the $layout template with an object equals reshard" as_reshard
	done
	"$OPTIMFS" mount -o rw held.pt "$a"
	printf '\0\0\0\100' |
	    dd of="$a/model/w" bs=4 conv=notrunc 2>"$scratch/err"
	ok "a tensor that is also in an object can be changed" \
	    "$OPTIMFS" umount "$a"
	is "the tensor that is also in an object has changed" \
	    "$("$OPTIMFS" cat held.pt model/w | od -An -tf4 | tr -s ' ')" " 2 2"
else
	skip 6 "no python3"
fi

# More rank files than open file descriptors.
few() { # COMMAND...: run it with 64 descriptors
	sh -c 'ulimit -n 64; exec "$@"' sh "$@"
}
ok "mkfs makes 64 rank files with 64 descriptors" \
    few "$OPTIMFS" mkfs --like "$main" --layout dcp@64 few
drop
"$OPTIMFS" mount "$main" "$a"
ok "a template of 64 rank files mounts with 64 descriptors" few "$OPTIMFS" mount -o rw few "$b"
ok "cp fills the template with 64 descriptors" cp -r "$a/." "$b/"
kill -KILL $(pgrep -f "optimfs mount -o rw few $b")
umount -l "$b"
ok "recover=yes restores more files than 64 descriptors" \
    few "$OPTIMFS" mount -o rw,recover=yes few "$b"
ok "commit succeeds with 64 descriptors" commit
drop
"$OPTIMFS" reshard --to dcp@64 "$main" want
ok "the template of 64 rank files equals reshard" diff -r want few
rm -rf few want

# A renamed file gives its bytes away at once, or the rename changes nothing.
data_of() { # how many files with staged bytes there are, by number
	ls -i .new.optimfs/data | awk '{ print $1 }' | sort
}
ok "a template for renamed files mounts read-write" begin "$main" dcp@4
f=optim/state/layers.0.norm.weight/exp_avg
w=model/layers.0.norm.weight
step=optim/state/layers.0.norm.weight/step
cp -r "$a/optim" "$a/model" "$b/"
head -c 100 /dev/zero >"$b/model/long"
not_ok "a file that is too long is not renamed to a tensor" mv "$b/model/long" "$b/$w"
ok "which has the bytes that it had" cmp "$b/$w" "$a/$w"
echo many >"$b/model/word"
not_ok "a word is not renamed to a number" mv "$b/model/word" "$b/$step"
ok "which is what it was" cmp "$b/$step" "$a/$step"
rm "$b/$step" "$b/$w"
not_ok "nor does it become a number that was removed" mv "$b/model/word" "$b/$step"
not_ok "a file that is too long does not become a tensor that was removed" \
    mv "$b/model/long" "$b/$w"
is "both are missing as before" "$(ls "$b/$step" "$b/$w" 2>&1 | grep -c 'No such file')" 2
rm "$b/model/word" "$b/model/long"
cp "$a/$step" "$b/$step"
cp "$a/$w" "$b/model/tmp"
cp "$a/$f" "$b/model/tmp2"
data_of >before
mv "$b/model/tmp" "$b/$w" && mv "$b/model/tmp2" "$b/$f"
data_of >after
is "a rename writes no bytes again" "$(comm -13 before after)" ""
is "and drops those of the files that had the names" "$(comm -23 before after | wc -l)" 2
head -c 4 /dev/zero | dd of="$b/$w" conv=notrunc 2>"$scratch/err"
dd if="$a/$w" of="$b/$w" bs=2 count=1 conv=notrunc 2>"$scratch/err"
cp "$b/$w" written
kill -KILL $(pgrep -f "optimfs mount -o rw new $b")
umount -l "$b"
ok "renamed files are mounted again after a kill" \
    "$OPTIMFS" mount -o rw,recover=yes new "$b"
ok "one has what was written to it later" cmp written "$b/$w"
ok "the other has its bytes" cmp "$a/$f" "$b/$f"
is "the old names are gone" "$(ls "$b/model" | grep tmp)" ""
cp "$a/$w" "$b/$w"
[ -e "$a/extra" ] && cp -r "$a/extra" "$b/"
ok "a template with renamed files commits" commit
ok "and equals reshard" as_reshard

drop
# The files that a commit has made are read with the limits of the mount.
ok "a template for a large index mounts with a low limit" sh -c "
    '$OPTIMFS' mount '$main' '$a' &&
    '$OPTIMFS' mkfs --like '$main' --layout dcp@40 new &&
    '$OPTIMFS' mount -o rw,max_metadata=64k new '$b'"
cp -r "$a/." "$b/"
not_ok "a commit that this mount could not read fails" commit
like "OFS440 says that the new index is too large" "$(cat "$b/.optimfs/control")" \
    "*OFS440 the new files: .metadata: * limit 65536*"
drop

# The daemon of a template is killed.
begin "$main" dcp@4
cp -r "$a/optim" "$b/"
half=$(find "$b/" -type f | wc -l)
pid=$(pgrep -f "optimfs mount -o rw new $b")
kill -KILL $pid
umount -l "$b"
not_ok "mount of a template after a killed daemon fails without recover=" \
    "$OPTIMFS" mount -o rw new "$b"
like "OFS811 names recover= for the killed template" "$(cat "$scratch/err")" "*OFS811*recover=*"
ok "mount with recover=yes succeeds for a template" "$OPTIMFS" mount -o rw,recover=yes new "$b"
is "recover=yes keeps every file written before" "$(find "$b/" -type f | wc -l)" "$half"
cp -r "$a/model" "$b/"
[ -e "$a/extra" ] && cp -r "$a/extra" "$b/"
ok "commit succeeds after the rest is copied" commit
ok "the recovered template equals reshard" as_reshard
for left in info done; do
	# Killed during the commit: before or after the rename that publishes
	# it.
	begin "$main" dcp@4 && cp -r "$a/." "$b/"
	kill -KILL $(pgrep -f "optimfs mount -o rw new $b")
	umount -l "$b"
	mv .new.optimfs/template.info .new.optimfs/template.done
	if [ $left = info ]; then
		ok "mount with recover=yes after a commit killed before its rename succeeds" \
		    "$OPTIMFS" mount -o rw,recover=yes new "$b"
		ok "the interrupted commit can be repeated" commit
		ok "the repeated commit equals reshard" as_reshard
	else
		rmdir new && "$OPTIMFS" reshard --to dcp@4 "$main" full && mv full new
		ok "mount after a commit killed behind its rename succeeds" \
		    "$OPTIMFS" mount -o rw new "$b"
		is "no template is left after a commit killed behind its rename" \
		    "$(ls -A .new.optimfs | grep template)" ""
	fi
done

cp -r "$main" private && chmod 700 private && mkdir into && chmod 755 into
"$OPTIMFS" mkfs --like private --layout dcp@2 into
is "an empty directory is for nobody who may not read the source" "$(stat -c %a into)" 700

drop
done_testing
