#!/bin/sh
# mkfs.t - a reshard by cp into a mount that has its own layout
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
requires mount

data=$TOP_SRCDIR/tests/data/pytorch
a=$(point a)
b=$(point b)
cd "$scratch" || exit 99

# begin CHECKPOINT LAYOUT: the one mounted at a, the other to be at b
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

# What was committed is what reshard writes, byte for byte.
as_reshard() {
	"$OPTIMFS" umount "$b" && "$OPTIMFS" umount "$a" &&
	    "$OPTIMFS" reshard $o --to "$layout" "$ck" want &&
	    diff -r want new && [ ! -e .new.optimfs ]
}

push() { # CHECKPOINT LAYOUT
	begin "$1" "$2" && cp -r "$a/." "$b/" && commit && as_reshard
}

# Every checkpoint, each layout at least of some.
for ck in "$data"/*/ckpt "$data"/torchsave_full/ckpt/state.pt; do
	name=${ck#"$data"/}
	case $name in
	torchsave_full/ckpt) continue ;; # two programs' files
	dtypes_new/*) continue ;; # quantized tensors: matrix.t
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
		ok "$name as $l" push "$ck" "$l"
	done
done

# Whatever copies files.
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
truncated() { # all sizes first, then the bytes in pieces that fit no element
	cp -r "$a/." "$b/"
	(cd "$a" && find optim model -size +0 -type f) | while read -r f; do
		[ "$(getsize "$a/$f")" -gt 300 ] || continue
		dd if="$a/$f" of="$b/$f" bs=301 status=none || return 1
	done
}
getsize() {
	stat -c %s "$1"
}
ok "cp -a" copied cp -a "$a/." "$b/"
ok "tar x" copied tar_x
ok "cp of many at once" copied parallel
ok "pieces of 301 bytes" copied truncated
if command -v rsync >/dev/null; then
	ok "rsync -a" copied rsync -a "$a/" "$b/"
	ok "rsync --inplace" copied rsync -a --inplace "$a/" "$b/"
else
	skip 2 "no rsync"
fi

# What is not there is not zeros.
f=optim/state/layers.0.norm.weight/exp_avg
ok "a mount of a template" begin "$main" dcp@4
is "is empty" "$(ls -A "$b")" ""
is "and lists all that is absent" "$(grep -c OFS301 "$b/.optimfs/missing")" \
    "$(cd "$a" && find . -type f | wc -l)"
mkdir -p "$b/${f%/*}"
head -c 12 "$a/$f" >"$b/$f"
is "a file is as long as what was written" "$(getsize "$b/$f")" 12
ok "which can be read" cmp -n 12 "$a/$f" "$b/$f"
not_ok "a view of it cannot" cat "$b/.optimfs/view/dcp@1/__0_0.distcp"
like "missing says how far it is" "$(cat "$b/.optimfs/missing")" \
    "*OFS301 $f: 12 of 48 bytes*"
not_ok "no commit of that" commit
like "by name" "$(cat "$b/.optimfs/errors")" "*OFS301*more:*"
is "nothing is published" "$(ls -A new)" ""
not_ok "more than the tensor has does not fit" sh -c "cat '$a'/model/* >'$b/$f'"
cp -r "$a/." "$b/"
mkdir -p "$b/extra"
echo x >"$b/extra/other"
not_ok "nor what has no place" commit
like "by name" "$(cat "$b/.optimfs/control")" "*extra/other: the layout*"
rm "$b/extra/other" "$b/$f"
not_ok "nor without what was removed" commit
cp "$a/$f" "$b/$f"
ok "complete, it is committed" commit
ok "the mount shows it still" cmp "$a/$f" "$b/$f"
ok "it is what reshard writes" as_reshard

# What was committed is a checkpoint like any other, in the same mount.
ok "a mount that was committed" copied_still cp -r "$a/." "$b/"
echo 0.125 >"$b/optim/param_groups/0/lr"
ok "takes more" commit
is "and shows it" "$(cat "$b/optim/param_groups/0/lr")" 0.125
"$OPTIMFS" umount "$b"
is "as the checkpoint does" \
    "$("$OPTIMFS" cat new optim/param_groups/0/lr)" 0.125

# A renamed file gets its place.
ok "temporary names" begin "$main" dcp@4
cp -r "$a/." "$b/"
cp "$a/$f" "$b/${f%/*}/.tmp.1234" && mv "$b/${f%/*}/.tmp.1234" "$b/$f"
echo 0.25 >"$b/optim/param_groups/0/.lr"
mv "$b/optim/param_groups/0/.lr" "$b/optim/param_groups/0/lr"
cp -r "$b/.optimfs/view/dcp@4,crc" early
ok "are committed by their last" commit
ok "and were in a view already" diff -r early new
"$OPTIMFS" umount "$b"
is "a value that differs" \
    "$("$OPTIMFS" cat new optim/param_groups/0/lr)" 0.25
ok "in a sound checkpoint" "$OPTIMFS" fsck --data new
status "of which all else is the same" 1 "$OPTIMFS" diff "$main" new
is "by value" "$(grep -vc param_groups/0/lr "$scratch/out")" 0

# A step counts for all of a flat parameter.
flat=$data/fsdp1_local_flat_fullshard_w3/ckpt
ok "a flat layout" begin "$flat" fsdp@2
cp -r "$a/." "$b/"
step=$(cd "$b" && find optim -name step | sort | head -n 1)
echo 7 >"$b/$step"
not_ok "one step of a unit that differs" commit
like "is refused with both" "$(cat "$b/.optimfs/control")" \
    "*OFS828*step is 3.0, so are *step is 7.0*"
for s in $(cd "$b" && find optim -name step); do
	echo 7 >"$b/$s"
done
ok "all of them are one" commit
"$OPTIMFS" umount "$b"
is "which is there" "$("$OPTIMFS" cat new "$step")" 7.0
ok "with checksums that are right" "$OPTIMFS" fsck --data new

# Other engines' directories. What is their own is not the source's to say.
zero=$TOP_SRCDIR/tests/data/deepspeed
for l in zero1@3 zero2@1 zero3@3 universal dcp@2; do
	ok "z1_ws2_bf16 as $l" push "$zero/z1_ws2_bf16/ckpt" $l
done
ok "z0_ws2_bf16 as zero1@2" push "$zero/z0_ws2_bf16/ckpt" zero1@2
ok "z3_ws4_poison as zero3@3" push "$zero/z3_ws4_poison/ckpt" zero3@3
# A number that is trained, in half precision: what is stored is its fp32.
script=$TOP_SRCDIR/tests/integration/zeroview.py
for python in python3 /usr/bin/python3 ''; do
	[ -n "$python" ] && "$python" -c 'import torch, numpy' 2>/dev/null &&
	    break
done
if [ -n "$python" ] &&
    "$python" "$script" scalar "$scratch/half.pt" half; then
	"$OPTIMFS" reshard --to zero3@3 "$scratch/half.pt" "$scratch/half"
	for l in zero3@2 zero1@2 universal; do
		ok "a number in half precision as $l" push "$scratch/half" $l
	done
	ok "which is rounded" begin "$scratch/half" zero3@2
	cp -r "$a/." "$b/"
	echo -1 >"$b/model/temperature"
	not_ok "another one is no commit" commit
	like "and named" "$(cat "$b/.optimfs/control")" \
	    "*OFS822 model/temperature is -1*"
	cp "$a/model/temperature" "$b/model/temperature"
	ok "the right one is" commit
	drop
else
	skip 1 "no PyTorch here"
fi
ok "where parameters are rounded" begin "$zero/z1_ws2_bf16/ckpt" zero3@2
cp -r "$a/." "$b/"
printf '\200\277' | dd of="$b/model/gain" conv=notrunc status=none
not_ok "others are no commit" commit
like "and named" "$(cat "$b/.optimfs/control")" "*OFS822 model/gain, *-1*"
cp "$a/model/gain" "$b/model/gain"
ok "these are" commit
ok "and the same" as_reshard
drop
not_ok "flat names as torch" "$OPTIMFS" mkfs \
    --like "$data/torchtitan_like_w2/ckpt/step-3" --layout torch new
like "says what would not fit" "$(cat "$scratch/err")" "*OFS833 optim/*"
is "and makes nothing" "$(ls -A | grep new)" ""

# Of a source that has its float32 weights in the model alone.
rm -rf half
"$OPTIMFS" reshard --to dcp@2,dtype=bf16 "$main" half
f=optim/state/layers.0.norm.weight/fp32
for l in zero1@3 zero3@2 universal; do
	ok "without fp32 as $l" push "$main" $l
	ok "in half precision, too" push half $l
	[ $l != universal ] || continue
	ok "with fp32 that is its own" begin half $l
	cp -r "$a/." "$b/"
	head -c 48 /dev/zero >"$b/$f"
	m=model/layers.0.norm.weight
	if [ $l = zero3@2 ]; then
		not_ok "a commit compares what is rounded" commit
		like "by name" "$(cat "$b/.optimfs/control")" "*OFS822 $m*"
		head -c 24 /dev/zero >"$b/$m"
	fi
	ok "it is committed" commit
	"$OPTIMFS" umount "$b"
	ok "and kept" sh -c "head -c 48 /dev/zero |
	    '$OPTIMFS' cat new $f | cmp -n 48 - /dev/zero"
done
ok "what it is made of must be there" begin half zero1@2
cp -r "$a/optim" "$a/extra" "$b/" 2>/dev/null
not_ok "without the model there is no commit" commit
is "which is all that lacks" \
    "$(grep -v ' model/' "$b/.optimfs/missing")" ""
: >"$b/$f"
cp -r "$a/model" "$b/"
not_ok "nor with an fp32 that was begun" commit
like "by name" "$(cat "$b/.optimfs/control")" "*$f: 0 of 48 bytes*"
rm "$b/$f"
ok "without it there is" commit
ok "of the same bytes" as_reshard
ok "fp32 that the source has" begin "$zero/z1_ws2_bf16/ckpt" zero2@3
cp -r "$a/." "$b/"
rm "$b/optim/state/gain/fp32"
not_ok "must be written" commit
like "by name" "$(cat "$b/.optimfs/control")" "*gain/fp32: not written yet*"
drop

# Of names that are stored once any is enough.
tied() { # CHECKPOINT LAYOUT NAME
	begin "$zero/$1/ckpt" "$2" && cp -r "$a/." "$b/" && rm "$b/$3" &&
	    [ ! -s "$b/.optimfs/missing" ] && commit && as_reshard
}
for l in zero1@2 zero3@3; do
	ok "z1_ws2_bf16 as $l by the first name" \
	    tied z1_ws2_bf16 $l model/head.weight
	ok "and by the second" tied z1_ws2_bf16 $l model/emb.weight
done
ok "z3_ws2_fp32, whose weights are fp32" \
    tied z3_ws2_fp32 zero3@1 optim/state/gain/fp32
ok "by either name" tied z3_ws2_fp32 universal model/gain
ok "several names" begin "$zero/z3_ws2_fp32/ckpt" zero3@2
cp -r "$a/." "$b/"
printf '\200\277' | dd of="$b/model/head.weight" conv=notrunc status=none
not_ok "that differ are no commit" commit
like "and both are named" "$(cat "$b/.optimfs/control")" \
    "*OFS828 model/emb.weight and model/head.weight *"
not_ok "each says what was written to it" \
    cmp "$b/model/head.weight" "$b/model/emb.weight"
cp "$a/model/head.weight" "$b/model/head.weight"
ok "alike they are" commit
ok "of the same bytes" as_reshard

# However large a tensor is, memory is that of a few writes.
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
spare() { # MB that the writer had at most
	awk '/^VmHWM/ { exit !($2 < '"$1"' * 1000) }' \
	    "/proc/$(pgrep -f "optimfs mount -o rw new $b")/status"
}
at() { # MiB: bytes there
	printf '%s' "here it is $1" |
	    dd of="$b/model/w" bs=1M seek="$1" conv=notrunc status=none &&
	    dd if="$b/model/w" bs=1M skip="$1" count=1 status=none |
	    grep -q "here it is $1"
}
if command -v python3 >/dev/null && ! sanitized; then
	large 131072
	ok "128 GiB" begin large/model.safetensors dcp@3
	mkdir "$b/model"
	ok "have a first byte" at 0
	ok "one in the middle" at 65535
	ok "and a last one" at 131071
	like "but not all" "$(cat "$b/.optimfs/missing")" \
	    "*model/w: 1374379049* of 137438953472 bytes*"
	ok "for little memory" spare 64
	large 192
	ok "192 MiB" begin large/model.safetensors torch
	ok "are copied" cp -r "$a/model" "$b/"
	ok "committed" commit
	ok "for little memory" spare 64
	ok "with the right checksum" as_reshard
	rm -r large
else
	skip 11 "no Python, or memory that is not ours"
fi

# An index that is too large is refused before anything is written.
drop
not_ok "max_metadata" "$OPTIMFS" mkfs -o max_metadata=64k --like "$main" \
    --layout dcp@40 new
like "is said to be too small" "$(cat "$scratch/err")" \
    "*OFS440*in this layout*max_metadata*"
not_ok "and nothing is left" ls -d new .new.optimfs

# More files than may be open.
few() { # COMMAND...: with them
	sh -c 'ulimit -n 64; exec "$@"' sh "$@"
}
ok "fewer descriptors than files" \
    few "$OPTIMFS" mkfs --like "$main" --layout dcp@64 few
drop
"$OPTIMFS" mount "$main" "$a"
ok "can be mounted" few "$OPTIMFS" mount -o rw few "$b"
ok "filled" cp -r "$a/." "$b/"
ok "and committed" commit
drop
"$OPTIMFS" reshard --to dcp@64 "$main" want
ok "to the same" diff -r want few
rm -rf few want

# Killed.
begin "$main" dcp@4
cp -r "$a/optim" "$b/"
half=$(find "$b/" -type f | wc -l)
pid=$(pgrep -f "optimfs mount -o rw new $b")
kill -KILL $pid
umount -l "$b"
not_ok "what a killed mount left is offered" "$OPTIMFS" mount -o rw new "$b"
like "by name" "$(cat "$scratch/err")" "*OFS811*recover=*"
ok "recover=yes" "$OPTIMFS" mount -o rw,recover=yes new "$b"
is "goes on with it" "$(find "$b/" -type f | wc -l)" "$half"
cp -r "$a/model" "$b/"
[ -e "$a/extra" ] && cp -r "$a/extra" "$b/"
ok "to the end" commit
ok "which is the same" as_reshard
for left in info done; do
	# Killed between the two names: the directory has it, or not yet.
	begin "$main" dcp@4 && cp -r "$a/." "$b/"
	kill -KILL $(pgrep -f "optimfs mount -o rw new $b")
	umount -l "$b"
	mv .new.optimfs/template.info .new.optimfs/template.done
	if [ $left = info ]; then
		ok "a commit cut short before its rename" \
		    "$OPTIMFS" mount -o rw,recover=yes new "$b"
		ok "is made again" commit
		ok "and the same" as_reshard
	else
		rmdir new && "$OPTIMFS" reshard --to dcp@4 "$main" full && mv full new
		ok "behind its rename" "$OPTIMFS" mount -o rw new "$b"
		is "nothing is left of it" \
		    "$(ls -A .new.optimfs | grep skel)" ""
	fi
done

drop
done_testing
