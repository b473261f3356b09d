#!/bin/sh
# reshard_resume.t - optimfs reshard: threads, interruption, full disk, zstd
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"

faultlib=$TOP_BUILDDIR/.libs/faultlib.so
[ -e "$faultlib" ] || bail_out "no $faultlib"
sanitized && skip_all "a sanitizer does not want to be preloaded after faultlib.so"

mkdcp=$TOP_BUILDDIR/tests/bench/mkdcp
small=$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w3/ckpt
mkdir "$scratch/work" && cd "$scratch/work" || exit 99
"$mkdcp" -n 2 -s 40960,1024 -r 3 ck >/dev/null || exit 99 # 320 MiB
"$OPTIMFS" cp -r ck .optimfs/view/torch,crc want-torch
"$OPTIMFS" cp -r ck .optimfs/view/dcp@2,crc want-dcp

# Several threads write parts of one file: the bytes and checksums must not
# depend on their number.
for j in 1 3 16; do
	rm -rf out
	status "reshard --to torch -j $j exits with 0" 0 "$OPTIMFS" reshard --to torch -j $j ck out
	ok "reshard --to torch -j $j equals the view torch,crc" diff -r want-torch out
done
status "reshard -j 0 exits with 2" 2 "$OPTIMFS" reshard --to torch -j 0 ck none
status "reshard -j with a word exits with 2" 2 "$OPTIMFS" reshard --to torch -j x ck none
is "no staging directory is left" "$(ls -A | tr '\n' ' ')" \
    "ck out want-dcp want-torch "
rm -rf out
status "reshard --progress without a terminal exits with 0" 0 \
    "$OPTIMFS" reshard --to dcp@2 --progress \
    ck out
like "reshard --progress prints the percentage and a summary" \
    "$(cat "$scratch/err")" 'reshard: 0 %, * left*reshard: 336 MB in *'
rm -rf out
status "reshard without --progress exits with 0" 0 "$OPTIMFS" reshard --to dcp@2 ck out
is "reshard without --progress and without a terminal prints nothing" \
    "$(cat "$scratch/out" "$scratch/err")" ""

# started LAYOUT N: start a reshard as $pid, which waits before the Nth change of its
# journal (FAULT_HOW=8) until $gate exists
gate=$scratch/gate
started() {
	rm -rf out .out.optimfs "$gate"
	: >"$scratch/trace"
	env LD_PRELOAD="$faultlib" FAULT_PATH=.out.optimfs/journal FAULT_AFTER="$PWD/ck" \
	    FAULT_NTH="$2" FAULT_HOW=8 FAULT_GATE="$gate" FAULT_TRACE="$scratch/trace" \
	    "$OPTIMFS" reshard --to "$1" -j 1 ck out 2>"$scratch/first" &
	pid=$!
	eventually waits "$2"
}
waits() {
	[ "$(grep -c '	[cw]	.*optimfs/journal$' "$scratch/trace")" -ge "$1" ]
}
killed() {
	started "$@" || return 1
	kill -KILL $pid
	wait $pid 2>/dev/null
	[ ! -e out ] && [ -d .out.optimfs ]
}

for layout in torch dcp@2; do
	for nth in 30 60 90; do
		ok "$layout: reshard is killed at change $nth of its journal" killed $layout $nth
		status "$layout: reshard resumes and exits with 0" 0 \
		    "$OPTIMFS" reshard --to $layout -j 4 ck out
		like "$layout: reshard says that it continues from the staging directory" \
		    "$(cat "$scratch/err")" \
		    '*continuing from *.out.optimfs, which has *'
		ok "$layout: the resumed reshard equals the view" diff -r "want-${layout%@*}" out
	done
done
is "resumed reshards leave no staging directory" "$(ls -A | grep -c '^\.')" 0

# A journal that is cut at any place, and a data file that is cut.
ok "torch: reshard is killed at change 60 of its journal" killed torch 60
cp -r .out.optimfs kept
for cut in 1 7 60 300; do
	rm -rf out .out.optimfs
	cp -r kept .out.optimfs
	n=$(stat -c %s kept/journal)
	truncate -s $((n - cut)) .out.optimfs/journal
	status "reshard resumes with a journal that lacks $cut bytes" 0 \
	    "$OPTIMFS" reshard --to torch ck out
	ok "the result is right with a journal that lacks $cut bytes" diff -r want-torch out
done
rm -rf out .out.optimfs
cp -r kept .out.optimfs
truncate -s 1000 .out.optimfs/new/model.pt
status "reshard resumes when a staged file was truncated" 0 "$OPTIMFS" reshard --to torch ck out
ok "the truncated staged file is written again" diff -r want-torch out

# A staging directory for another layout or source is not reused.
rm -rf out
cp -r kept .out.optimfs
status "reshard to another layout than the staged one exits with 0" 0 \
    "$OPTIMFS" reshard --to dcp@2 ck out
like "reshard says that the staging directory was for another layout" "$(cat "$scratch/err")" \
    '*was to another layout: starting again*'
ok "the result for the other layout is right" diff -r want-dcp out
rm -rf out
cp -r kept .out.optimfs
touch ck/__1_0.distcp
status "reshard of a source saved again exits with 0" 0 "$OPTIMFS" reshard --to torch \
    ck out
like "reshard says that the staging directory was of another source" "$(cat "$scratch/err")" \
    '*was of another checkpoint*: starting again*'
ok "the result for the changed source is right" diff -r want-torch out

# Nor if size and time are those of before.
for how in "written again" replaced; do
	rm -rf out .out.optimfs
	ok "torch: reshard is killed before its source is $how" killed torch 60
	cp -p ck/__1_0.distcp before
	tail -c 1000 before | tr '\\0-\\377' '\\1-\\377\\0' >end
	if [ "$how" = replaced ]; then
		cp before new
		dd if=end of=new bs=1 seek=$(($(stat -c %s before) - 1000)) conv=notrunc 2>dd
		touch -r before new
		mv new ck/__1_0.distcp
	else
		dd if=end of=ck/__1_0.distcp bs=1 seek=$(($(stat -c %s before) - 1000)) \
		    conv=notrunc 2>dd
		touch -r before ck/__1_0.distcp
	fi
	"$OPTIMFS" reshard --to torch ck out 2>again
	like "reshard starts again if a file with its size and time is $how" "$(cat again)" \
	    '*was of another checkpoint*: starting again*'
	cp -p before ck/__1_0.distcp
done

# Nor is one that was made with other options, or with another file of names.
rm -rf out
cp -r kept .out.optimfs
status "reshard with fill=zero exits with 0" 0 "$OPTIMFS" reshard --to torch -o fill=zero ck out
like "reshard says that the staging directory was made without fill=zero" \
    "$(cat "$scratch/err")" '*with other options: starting again*'
by_id=$TOP_SRCDIR/tests/data/pytorch/dcp_by_id_w2/ckpt
names() { # FIRST SECOND: in the order of the IDs
	for names_group in 0 1; do
		"$OPTIMFS" cat "$small" optim/param_groups/$names_group/params
		echo
	done | sed "s/^layers.0.wq.weight\$/$1/; t; s/^layers.1.wq.weight\$/$2/"
}
rm -rf out
names layers.0.wq.weight layers.1.wq.weight >ids
# FAULT_HOW=1: it is killed before the rename to its name
env LD_PRELOAD="$faultlib" FAULT_PATH="$PWD/out" FAULT_HOW=1 \
    "$OPTIMFS" reshard --to dcp@2 -o ids=ids "$by_id" "$PWD/out" 2>"$scratch/err"
ok "a reshard with ids= is killed when it is complete" \
    test -e .out.optimfs/new/.metadata
names layers.1.wq.weight layers.0.wq.weight >ids
status "a reshard exits with 0 after two names of the ids= file were exchanged" 0 \
    "$OPTIMFS" reshard --to dcp@2 -o ids=ids "$by_id" out
"$OPTIMFS" reshard --to dcp@2 -o ids=ids "$by_id" exchanged
ok "the result has the exchanged names" diff -r exchanged out

# Two reshards to one directory, and a directory that is not a staging
# directory.
ok "a first reshard waits while it runs" started torch 40
status "a second reshard to the same directory exits with 3" 3 "$OPTIMFS" reshard --to torch ck out
like "OFS259 names the process of the first reshard" "$(cat "$scratch/err")" "*OFS259*$pid*"
touch "$gate"
ended() {
	wait $pid
}
ok "the first reshard exits with 0" ended
ok "the result of the first reshard is right" diff -r want-torch out
rm -rf out
# FAULT_HOW=8: it waits at the first change of its staging directory
env LD_PRELOAD="$faultlib" FAULT_PATH=.out.optimfs FAULT_HOW=8 \
    FAULT_GATE="$PWD/out" FAULT_TRACE="$scratch/trace" \
    "$OPTIMFS" reshard --to torch "$small" out >"$scratch/second" 2>&1 &
pid=$!
ok "a reshard waits before it makes its staging directory" \
    eventually grep -q 'mkdir.*\.out\.optimfs' "$scratch/trace"
status "a reshard to the same directory exits with 0 meanwhile" 0 \
    "$OPTIMFS" reshard --to dcp@2 "$small" out
wait $pid
is "the reshard that waited exits with 3" $? 3
is "the reshard that waited leaves no staging directory" "$(ls -A | grep '^\.')" ""

# What a reshard that was killed at its very end may leave.
rm -rf out
mkdir out
for rest in data 'data journal' ''; do
	mkdir .out.optimfs
	for part in $rest; do
		case $part in
		data) mkdir .out.optimfs/data ;;
		journal) : >.out.optimfs/journal ;;
		esac
	done
	status "reshard to a directory that exists exits with 3" 3 \
	    "$OPTIMFS" reshard --to torch "$small" out
	is "reshard removes a staging directory with nothing staged (${rest:-empty})" \
	    "$(ls -A | grep '^\.')" ""
done
rm -rf out
mkdir -p .out.optimfs/new/dir
echo mine >.out.optimfs/new/model.pt
status "reshard exits with 3 when .out.optimfs is a foreign directory" 3 \
    "$OPTIMFS" reshard --to torch ck out
like "OFS774 names the foreign directory" "$(cat "$scratch/err")" '*OFS774*.out.optimfs*'
is "reshard leaves the foreign directory as it was" "$(cat .out.optimfs/new/model.pt)" mine
rm -rf .out.optimfs

# A full disk: the finished part is kept and reused.
mkdir disk
if mount -t tmpfs -o size=250m none disk 2>"$scratch/err"; then
	status "reshard on a full disk exits with 3" 3 \
	    "$OPTIMFS" reshard --to dcp@8 -j 1 ck disk/out
	like "OFS801 says that no space is left" "$(cat "$scratch/err")" '*OFS801*No space left*'
	like "OFS801 names the directory with the finished part" "$(cat "$scratch/err")" \
	    '*OFS801*the finished parts are in *disk/.out.optimfs*'
	not_ok "reshard on a full disk publishes nothing" test -e disk/out
	mount -o remount,size=800m disk
	status "reshard exits with 0 after the disk got more room" 0 \
	    "$OPTIMFS" reshard --to dcp@8 ck disk/out
	like "reshard reuses the finished part after the disk was full" \
	    "$(cat "$scratch/err")" '*continuing from*'
	status "diff finds no difference after the disk was full" 0 "$OPTIMFS" diff ck disk/out
	status "fsck --data accepts the result after the disk was full" 0 \
	    "$OPTIMFS" fsck --data disk/out
	umount disk
	mount -t tmpfs -o size=64k none disk
	status "reshard exits with 3 when no file fits" 3 \
	    "$OPTIMFS" reshard --to dcp@8 ck disk/out
	kept=0
	[ -e disk/.out.optimfs ] && kept=1
	is "and says that something is kept only where it is" \
	    "$(grep -c -e 'is kept' -e 'the finished parts are in' "$scratch/err")" $kept
	umount disk
else
	skip 10 "no tmpfs here: $(head -1 "$scratch/err")"
fi

# The disk is full, and one of the changes of new/ fails, too, such as the
# removal of a file: the next run must know what is left there.
if mount -t tmpfs -o size=16k none disk 2>"$scratch/err"; then
	"$OPTIMFS" cp -r "$small" .optimfs/view/torch,crc want-small
	refused=
	for nth in 1 2 3 4 5 6 7 8; do
		mount -o remount,size=16k disk
		# FAULT_HOW=4: it fails with FAULT_CODE, EIO
		env LD_PRELOAD="$faultlib" FAULT_PATH=/new FAULT_HOW=4 FAULT_CODE=5 \
		    FAULT_AFTER="$PWD/disk/.out.optimfs/journal" FAULT_NTH=$nth \
		    "$OPTIMFS" reshard --to torch -j 1 "$small" disk/out 2>"$scratch/err"
		mount -o remount,size=8m disk
		"$OPTIMFS" reshard --to torch "$small" disk/out 2>"$scratch/err" &&
		    diff -r want-small disk/out || refused="$refused $nth"
		rm -rf disk/out disk/.out.optimfs
	done
	is "a reshard is completed after any change of new/ failed on a full disk" "$refused" ""
	umount disk
else
	skip 1 "no tmpfs here: $(head -1 "$scratch/err")"
fi

# zstd: each item is one compressed frame.
if "$OPTIMFS" --version | grep -q 'zstd [0-9]'; then
	cat >"$scratch/items.py" <<'EOF'
import pickle, sys
class Any:
    def __init__(self, *args):
        pass
    def __setstate__(self, state):
        if isinstance(state, dict):
            self.__dict__.update(state)
classes = {}
class Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        return classes.setdefault(name, type(name, (Any,), {}))
top = sys.argv[1] + "/"
index = Unpickler(open(top + ".metadata", "rb")).load()
files = {}
for place in index.storage_data.values():
    assert place.transform_descriptors == ["stream.zstd/1"]
    files.setdefault(place.relative_path, []).append((place.offset, place.length))
for name, items in files.items():
    data, at = open(top + name, "rb").read(), 0
    for off, n in sorted(items):
        assert off == at and data[off:off + 5] == b"\x28\xb5\x2f\xfd\0", name
        at += n
    assert at == len(data), name
EOF
	for layout in dcp@1,zstd dcp@5,zstd=1 dcp@2x2,zstd=19 \
	    dcp@3,zstd,dtype=f16; do
		rm -rf out
		status "reshard --to $layout exits with 0" 0 \
		    "$OPTIMFS" reshard --to $layout "$small" out
		ok "$layout: each item is one zstd frame where the index says" python3 \
		    "$scratch/items.py" out
		status "$layout: fsck --data decodes every item" 0 \
		    "$OPTIMFS" fsck --data out
		case $layout in
		*dtype*) want=1 ;;
		*) want=0 ;;
		esac
		status "$layout: diff with the source exits with $want" \
		    $want "$OPTIMFS" diff "$small" out
	done
	rm -rf out want
	"$OPTIMFS" reshard --to dcp@2,zstd=1 -j 1 ck want
	ok "dcp@2,zstd=1: reshard is killed between items" killed dcp@2,zstd=1 50
	status "dcp@2,zstd=1: reshard resumes and exits with 0" 0 \
	    "$OPTIMFS" reshard --to dcp@2,zstd=1 ck out
	ok "dcp@2,zstd=1: the resumed reshard equals an uninterrupted one" diff -r want out
	for name in dcp@2,zstd=0 dcp@2,zstd=20 dcp@2,zstd=03 dcp@2,zstdx \
	    torch,zstd; do
		status "$name is rejected as a layout" 2 "$OPTIMFS" reshard --to "$name" ck none
	done
	status "a view with zstd exits with 4" 4 "$OPTIMFS" ls "$small" \
	    .optimfs/view/dcp@2,zstd
	like "OFS773 suggests reshard in place of a view with zstd" "$(cat "$scratch/err")" \
	    '*OFS773*optimfs reshard --to dcp@2,zstd*'

	# A tensor larger than the available memory.
	python3 - sparse.safetensors <<'EOF'
import json, sys
n = 3 << 30
head = json.dumps({"t": {"dtype": "F32", "shape": [n // 4096, 1024],
                         "data_offsets": [0, n]}}).encode()
head += b" " * (-len(head) % 8)
with open(sys.argv[1], "wb") as f:
    f.write(len(head).to_bytes(8, "little") + head)
    f.truncate(8 + len(head) + n)
EOF
	rm -rf out
	if sanitized; then
		skip 2 "sanitizers need more"
	else
		status "reshard of a 3 GiB tensor succeeds in 600 MiB of address space" 0 \
		    sh -c 'ulimit -v 614400; exec "$@"' sh "$OPTIMFS" reshard \
		    --to dcp@1,zstd -j 1 -o cache=16m sparse.safetensors out
		ok "the compressed 3 GiB of zeros takes less than 10 MB" \
		    test "$(du -sm out | cut -f1)" -lt 10
	fi
else
	skip 40 "this build has no zstd"
fi

done_testing
