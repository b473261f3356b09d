#!/bin/sh
# reshard_resume.t - optimfs reshard: killed, out of room, in parts, compressed
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"

mkdcp=$TOP_BUILDDIR/tests/bench/mkdcp
small=$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w3/ckpt
mkdir "$scratch/work" && cd "$scratch/work" || exit 99
"$mkdcp" -n 2 -s 40960,1024 -r 3 ck >/dev/null || exit 99 # 320 MiB
"$OPTIMFS" cp -r ck .optimfs/view/torch,crc want-torch
"$OPTIMFS" cp -r ck .optimfs/view/dcp@2,crc want-dcp

# Parts of one file on several threads make the same bytes and checksums.
for j in 1 3 16; do
	rm -rf out
	status "torch with -j $j" 0 "$OPTIMFS" reshard --to torch -j $j ck out
	ok "is what the view holds" diff -r want-torch out
done
status "-j 0" 2 "$OPTIMFS" reshard --to torch -j 0 ck none
status "-j x" 2 "$OPTIMFS" reshard --to torch -j x ck none
is "nothing is left beside it" "$(ls -A | tr '\n' ' ')" \
    "ck out want-dcp want-torch "
rm -rf out
status "progress, no terminal" 0 "$OPTIMFS" reshard --to dcp@2 --progress \
    ck out
like "says how far it is" "$(cat "$scratch/err")" 'reshard: 0 %, * left*reshard: 336 MB in *'
rm -rf out
status "unless it is asked for" 0 "$OPTIMFS" reshard --to dcp@2 ck out
is "nothing is said" "$(cat "$scratch/out" "$scratch/err")" ""

# started LAYOUT BYTES: a reshard in $pid, stopped once its journal is longer.
started() {
	rm -rf out .out.optimfs
	"$OPTIMFS" reshard --to "$1" -j 1 ck out 2>"$scratch/first" &
	pid=$!
	daemons="$daemons $pid"
	while kill -0 $pid 2>/dev/null; do
		n=$(stat -c %s .out.optimfs/journal 2>/dev/null || echo 0)
		[ "$n" -gt "$2" ] && kill -STOP $pid 2>/dev/null && return 0
		sleep 0.01
	done
	return 1
}
killed() {
	started "$@" || return 1
	kill -KILL $pid
	wait $pid 2>/dev/null
	[ ! -e out ] && [ -d .out.optimfs ]
}

for layout in torch dcp@2; do
	for bytes in 1200 2000 3000; do
		ok "$layout, killed" killed $layout $bytes
		status "goes on" 0 "$OPTIMFS" reshard --to $layout -j 4 ck out
		like "and says so" "$(cat "$scratch/err")" \
		    '*goes on from *.out.optimfs: *'
		ok "to the same bytes" diff -r "want-${layout%@*}" out
	done
done
is "nothing is left" "$(ls -A | grep -c '^\.')" 0

# A journal that is torn anywhere, and a file that lost its end.
ok "killed once more" killed torch 2000
cp -r .out.optimfs kept
for cut in 1 7 60 300; do
	rm -rf out .out.optimfs
	cp -r kept .out.optimfs
	n=$(stat -c %s kept/journal)
	truncate -s $((n - cut)) .out.optimfs/journal
	status "a journal that is torn $cut bytes before its end" 0 \
	    "$OPTIMFS" reshard --to torch ck out
	ok "is no harm" diff -r want-torch out
done
rm -rf out .out.optimfs
cp -r kept .out.optimfs
truncate -s 1000 .out.optimfs/new/model.pt
status "a file that was cut meanwhile" 0 "$OPTIMFS" reshard --to torch ck out
ok "is written again" diff -r want-torch out

# Another layout or source begins afresh, and says so.
rm -rf out
cp -r kept .out.optimfs
status "another layout" 0 "$OPTIMFS" reshard --to dcp@2 ck out
like "begins afresh" "$(cat "$scratch/err")" \
    '*was to another layout: begun afresh*'
ok "and leaves nothing of the other" diff -r want-dcp out
rm -rf out
cp -r kept .out.optimfs
touch ck/__1_0.distcp
status "a checkpoint that was saved again" 0 "$OPTIMFS" reshard --to torch \
    ck out
like "begins afresh" "$(cat "$scratch/err")" \
    '*was of another checkpoint*: begun afresh*'
ok "too" diff -r want-torch out

# Two at once; and what is not ours.
ok "one that is stopped" started torch 1200
status "keeps another out" 3 "$OPTIMFS" reshard --to torch ck out
like "which says who" "$(cat "$scratch/err")" "*OFS259*$pid*"
kill -CONT $pid
ended() {
	wait $pid
}
ok "and ends well" ended
ok "with the right bytes" diff -r want-torch out
rm -rf out
mkdir -p .out.optimfs/new/dir
echo mine >.out.optimfs/new/model.pt
status "a directory of another's" 3 "$OPTIMFS" reshard --to torch ck out
like "is named" "$(cat "$scratch/err")" '*OFS774*.out.optimfs*'
is "and left alone" "$(cat .out.optimfs/new/model.pt)" mine
rm -rf .out.optimfs

# No room: what was done is kept, and gone on from once there is some.
mkdir disk
if mount -t tmpfs -o size=250m none disk 2>"$scratch/err"; then
	status "a full disk" 3 "$OPTIMFS" reshard --to dcp@8 -j 1 ck disk/out
	like "says so" "$(cat "$scratch/err")" '*OFS801*No space left*'
	like "and where what is done lies" "$(cat "$scratch/err")" \
	    '*OFS801*what is done is in *disk/.out.optimfs*'
	not_ok "nothing is published" test -e disk/out
	mount -o remount,size=800m disk
	status "with more room" 0 "$OPTIMFS" reshard --to dcp@8 ck disk/out
	like "it goes on" "$(cat "$scratch/err")" '*goes on from*'
	status "to the end" 0 "$OPTIMFS" diff ck disk/out
	status "with every checksum" 0 "$OPTIMFS" fsck --data disk/out
	umount disk
else
	skip 8 "no tmpfs here: $(head -1 "$scratch/err")"
fi

# Compressed items.
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
		status "$layout" 0 "$OPTIMFS" reshard --to $layout "$small" out
		ok "one frame an item, as the index says" python3 \
		    "$scratch/items.py" out
		status "every item decodes, checksums are right" 0 \
		    "$OPTIMFS" fsck --data out
		case $layout in
		*dtype*) want=1 ;;
		*) want=0 ;;
		esac
		status "to the same values" $want "$OPTIMFS" diff "$small" out
	done
	rm -rf out want
	"$OPTIMFS" reshard --to dcp@2,zstd=1 -j 1 ck want
	ok "killed between items" killed dcp@2,zstd=1 1500
	status "goes on" 0 "$OPTIMFS" reshard --to dcp@2,zstd=1 ck out
	ok "to the same bytes" diff -r want out
	for name in dcp@2,zstd=0 dcp@2,zstd=20 dcp@2,zstd=03 dcp@2,zstdx \
	    torch,zstd; do
		status "$name is none" 2 "$OPTIMFS" reshard --to "$name" ck none
	done
	status "a view of them is refused" 4 "$OPTIMFS" ls "$small" \
	    .optimfs/view/dcp@2,zstd
	like "and says what to do" "$(cat "$scratch/err")" \
	    '*OFS773*optimfs reshard --to dcp@2,zstd*'

	# A tensor that is larger than the memory there is.
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
		status "3 GiB of one tensor in 600 MiB of address space" 0 \
		    sh -c 'ulimit -v 614400; exec "$@"' sh "$OPTIMFS" reshard \
		    --to dcp@1,zstd -j 1 -o cache=16m sparse.safetensors out
		ok "is small" test "$(du -sm out | cut -f1)" -lt 10
	fi
else
	skip 40 "this build has no zstd"
fi

done_testing
