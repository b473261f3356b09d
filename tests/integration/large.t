#!/bin/sh
# large.t - views larger than 4 GiB, with many ranks, and of many tensors
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
. "$TOP_SRCDIR/tests/tap/python.sh"

cd "$scratch" || exit 99

# With work that grows with the square of their number, it would take longer
# than $limit.
mkdir lost
python3 - lost/model.safetensors.index.json <<'EOF'
import json, sys
n = 400000
names = {f"w{i}": f"model-{i + 1:06}-of-{n}.safetensors" for i in range(n)}
json.dump({"metadata": {}, "weight_map": names}, open(sys.argv[1], "w"))
EOF
status "fsck of an index of 400000 missing files exits with 1" 1 "$OPTIMFS" fsck lost
rm -r lost

# A sparse source: a tensor of 5 GiB between two small ones.
python3 - big.safetensors <<'EOF'
import json, struct, sys
n, at, head = 5 << 30, 0, {}
for name, size in ("a", 4096), ("big", n), ("z", 4096):
    head[name] = {"dtype": "F32", "shape": [size // 4096, 1024],
                  "data_offsets": [at, at + size]}
    at += size
head = json.dumps(head).encode()
head += b" " * (-len(head) % 8)
with open(sys.argv[1], "wb") as f:
    f.write(len(head).to_bytes(8, "little") + head)
    start = f.tell()
    f.write(struct.pack("<1024f", *range(1024)))
    f.seek(start + 4096 + n - 4)
    f.write(struct.pack("<f", 5.0))
    f.write(struct.pack("<1024f", *range(1000, 2024)))
EOF
status "ls -l of the torch view of a 5 GiB tensor succeeds" 0 "$OPTIMFS" ls -l big.safetensors \
    .optimfs/view/torch

find_python -c 'import torch'
cat >zip64.py <<'EOF'
import struct, sys, zipfile
path = sys.argv[1]
small = [struct.pack("<1024f", *range(a, a + 1024)) for a in (0, 1000)]
z = zipfile.ZipFile(path)
seen = {}
for i in z.infolist():
    if "/data/" in i.filename:
        seen[i.file_size] = seen.get(i.file_size, 0) + 1
    assert i.compress_size == i.file_size and i.compress_type == 0
    if i.file_size < 1 << 20:
        i.CRC = 0
        with z.open(i) as f:
            f._expected_crc = None  # 0 in a view without crc
            data = f.read()
        assert len(data) == i.file_size
        if "/data/" in i.filename:
            assert data in small, i.filename
    with open(path, "rb") as f:
        f.seek(i.header_offset)
        assert f.read(4) == b"PK\x03\x04", i.filename
assert seen == {4096: 2, 5 << 30: 1}, seen
assert max(i.header_offset for i in z.infolist()) > 5 << 30
EOF
cat >torch113.py <<'EOF'
import struct, sys, torch, zipfile
r = torch._C.PyTorchFileReader(sys.argv[1])
got = []
for i in zipfile.ZipFile(sys.argv[1]).infolist():
    name = i.filename.split("/", 1)[1]
    assert r.has_record(name), name
    if i.file_size < 1 << 20:
        data = r.get_record(name)
        assert len(data) == i.file_size, name
        if name.startswith("data/"):
            got.append(data[:8])
assert sorted(got) == [struct.pack("<2f", *p) for p in ((0, 1), (1000, 1001))]
EOF
mnt=$(point mnt)
if "$OPTIMFS" mount big.safetensors "$mnt" 2>"$scratch/err"; then
	for view in torch dcp@1; do
		dir=$mnt/.optimfs/view/$view
		ok "the view $view is larger than 5 GiB" test \
		    "$(du -b --apparent-size "$dir" | cut -f1)" -gt 5368709120
	done
	dir=$mnt/.optimfs/view/torch
	ok "zipfile finds every record of a 5 GiB archive" python3 zip64.py \
	    "$dir/model.pt"
	if [ -n "$python" ]; then
		ok "PyTorch finds every record of a 5 GiB archive" \
		    "$python" torch113.py "$dir/model.pt"
	else
		skip 1 "no PyTorch here"
	fi
	for at in torch/model.pt dcp@1 dcp@3 safetensors/model.safetensors; do
		status "cat of a tensor behind 5 GiB in the mounted view $at succeeds" 0 \
		    "$OPTIMFS" cat \
		    "$mnt/.optimfs/view/$at" model/z
		cp "$scratch/out" got
		ok "the tensor behind 5 GiB in $at has the right bytes" sh -c \
		    'tail -c 4096 big.safetensors | cmp - got'
	done
	"$OPTIMFS" umount "$mnt"

	# Attributes come with names, many in a request, although du reads all
	# names first, and ls no attributes.
	python3 - many.safetensors <<-'EOF'
	import json, sys
	head = json.dumps({"t%d" % i: {"dtype": "F32", "shape": [0],
	                               "data_offsets": [0, 0]}
	                   for i in range(20000)}).encode()
	with open(sys.argv[1], "wb") as f:
	    f.write(len(head).to_bytes(8, "little") + head)
	EOF
	"$OPTIMFS" mount many.safetensors "$mnt"
	is "ls lists 20000 names" "$(ls "$mnt/model" | wc -l)" 20000
	is "ls -l after ls lists 20000 files" \
	    "$(ls -l "$mnt/model" | grep -c '^-')" 20000
	ok "ls -l after ls makes the kernel look up few names one by one" test "$(sed -n \
	    's/^fuse_lookup //p' "$mnt/.optimfs/stats")" -lt 2000
	"$OPTIMFS" umount "$mnt"
	"$OPTIMFS" mount many.safetensors "$mnt"
	du -s "$mnt/model" >/dev/null
	ok "du makes the kernel look up few names one by one" test "$(sed -n \
	    's/^fuse_lookup //p' "$mnt/.optimfs/stats")" -lt 2000
	"$OPTIMFS" umount "$mnt"
else
	skip 16 "no mounts here: $(head -1 "$scratch/err")"
fi
# Memory that a view needs in addition to its checkpoint: a listing or a reader
# must not hold the whole view.
cat >memory.py <<'EOF'
import resource, subprocess, sys
optimfs, ck, most = sys.argv[1], sys.argv[2], int(sys.argv[3]) << 10
# one process per child: RUSAGE_CHILDREN has the maximum of all
CODE = """import resource, subprocess, sys
r = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
print(r, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"""
def peak(*args):
    out = subprocess.run([sys.executable, "-c", CODE, optimfs, *args],
                         stdout=subprocess.PIPE, check=True).stdout.split()
    assert out[0] == b"0", args
    return int(out[1])
base = peak("ls", "-R", ck)
for arg in sys.argv[4:]:
    verb, path = arg.split(":")
    used = peak(*verb.split(), ck, ".optimfs/view/" + path) - base
    print(verb, path, used >> 10, "MiB more")
    assert used < most, (verb, path, used)
EOF
small=$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w3/ckpt
sanitized || "$TOP_BUILDDIR/tests/bench/mkdcp" -n 100000 -s 16 -r 8 many >/dev/null
if sanitized; then
	skip 4 "sanitizers take memory too"
else
	status "ls of dcp@4096 succeeds" 0 "$OPTIMFS" ls "$small" .optimfs/view/dcp@4096
	is "dcp@4096 has 4096 rank files and .metadata" "$(wc -l <"$scratch/out")" 4097
	ok "listing and reading dcp@4096 takes less than 8 MiB" \
	    python3 memory.py "$OPTIMFS" "$small" 8 \
	    "ls -l:dcp@4096" cat:dcp@4096/__4095_0.distcp cat:dcp@4096/.metadata
	ok "listing and reading views of 100000 tensors takes less than 32 MiB" \
	    python3 memory.py "$OPTIMFS" many 32 \
	    "ls -l:dcp@64" cat:dcp@8/.metadata cat:dcp@8/__7_0.distcp
fi

done_testing
