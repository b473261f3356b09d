#!/bin/sh
# shown.t - no control, mark of direction or invisible character of a checkpoint
# reaches a terminal, a table, JSON or a page as it is
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
. "$TOP_SRCDIR/tests/tap/python.sh"

command -v python3 >/dev/null || skip_all "no python3"
cd "$scratch" || exit 99

# shown.py make: checkpoints whose names, keys and values have one of each kind.
# shown.py look FILE...: prints what of them is in the files, with code points;
# in HTML and JSON also behind escapes if it would be shown.
cat >shown.py <<'END'
import json, os, re, struct, sys, unicodedata, zlib

BAD = ["\x1b[31m", "\x7f", "\x9b31m", "\x9d0;t\x9c", "\u202e", "\u2066",
       "\u200b", "\ufeff", "\u2028", "\u2029", "\U000e0041"]
RAW = b"\x9b31m"

def archive(path, records):
    out = cd = b""
    for name, data in records:
        at = len(out)
        head = struct.pack("<HHHHIIIHH", 0, 0, 0, 0, zlib.crc32(data),
                           len(data), len(data), len(name), 0)
        out += b"PK\3\4" + struct.pack("<H", 20) + head + name + data
        cd += (b"PK\1\2" + struct.pack("<H", 0) + struct.pack("<H", 20) + head
               + struct.pack("<HHHII", 0, 0, 0, 0, at) + name)
    with open(path, "wb") as f:
        f.write(out + cd + b"PK\5\6" + struct.pack(
            "<HHHHIIH", 0, 0, len(records), len(records), len(cd), len(out), 0))

def text(s):
    b = s if isinstance(s, bytes) else s.encode()
    return b"X" + struct.pack("<I", len(b)) + b

def pickled(pairs):
    return (b"\x80\x02}(" + b"".join(text(k) + v for k, v in pairs) + b"u.")

def opaque(name):
    return b"c" + name + b"\nClass\n)R"

def make():
    records = [(b"a/version", b"3\n")]
    pairs = [("plain", b"K\1")]
    for i, bad in enumerate(BAD):
        pairs += [("key%d%s" % (i, bad), text("value" + bad)),
                  ("list%d" % i, b"](" + text("item" + bad) + b"e")]
    os.mkdir("ck\u202e\u200b")
    archive("ck\u202e\u200b/file\u202e.pt", [
        (b"a/data.pkl", pickled(pairs))] + records)
    os.mkdir("hf")
    tensors = {"w" + bad: {"dtype": "F32", "shape": [2, 1],
                           "data_offsets": [8 * i, 8 * i + 8]}
               for i, bad in enumerate(BAD)}
    head = json.dumps(dict(tensors, __metadata__={"note" + b: b for b in BAD}))
    with open("hf/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head.encode()
                + struct.pack("<ff", 1, float("nan")) * len(BAD))
    os.mkdir("other")
    os.link("hf/model.safetensors", "other/model.safetensors")
    for i, bad in enumerate(BAD + [RAW]):
        name = bad if isinstance(bad, bytes) else bad.encode()
        archive("damaged%02d.pt" % i, [(b"a/data.pkl", pickled(pairs[:1])),
                                        (name, b"1")])
        archive("global%02d.pt" % i, [
            (b"a/data.pkl", pickled([("key", opaque(b"module" + name))]))])
    os.mkdir(b"raw" + RAW)

def hidden(s):
    return {"U+%04X" % ord(c) for c in s if c not in "\n\t" and
            unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")}

def strings(v):
    if isinstance(v, str):
        yield v
    elif isinstance(v, dict):
        for k, w in v.items():
            yield k
            yield from strings(w)
    elif isinstance(v, list):
        for w in v:
            yield from strings(w)

def look(path):
    s = open(path, "rb").read().decode("utf-8", "surrogateescape")
    found = hidden(s)
    if path.endswith(".html"):  # what the page's script shows
        for m in re.finditer(r'<script type="application/json"[^>]*>(.*?)</script>',
                             s, re.S):
            for t in strings(json.loads(m.group(1))):
                found |= hidden(t)
    for f in sorted(found):
        print(path, f)

if sys.argv[1] == "make":
    make()
else:
    for p in sys.argv[2:]:
        look(p)
END
python3 shown.py make
ck=$(echo ck*)

# Every verb that reads, as text and as JSON; messages go to the same file.
for what in "$ck" hf damaged??.pt global??.pt raw*; do
	out="$scratch/out.$what"
	mkdir "$out"
	for verb in ls "ls -l" "ls -lR" "ls --json" info "info --json" check \
	    "check --json" stat "stat --json" map fsck "fsck --json --data" \
	    "report"; do
		"$OPTIMFS" $verb "$what" >"$out/$(echo "$verb" | tr -d ' ')" 2>&1
	done
	mv "$out/report" "$out/report.html"
	"$OPTIMFS" diff "$what" other >"$out/diff" 2>&1
	"$OPTIMFS" diff --json "$what" other >"$out/diff.json" 2>&1
	"$OPTIMFS" plan "$what" dcp@2 >"$out/plan" 2>&1
	"$OPTIMFS" report "$what" other >"$out/other.html" 2>&1
	"$OPTIMFS" cat "$what" .optimfs/tensors.tsv >"$out/tsv" 2>&1
	for file in info.json warnings missing globals errors README; do
		"$OPTIMFS" cat "$what" ".optimfs/$file" >"$out/$file" 2>&1
	done
	"$OPTIMFS" reshard --to torch "$what" "new.$(echo "$what" | head -c 5)" \
	    >"$out/reshard" 2>&1
	(
		cd "$out" && PYTHONIOENCODING=utf-8 python3 "$scratch/shown.py" look * 2>&1 |
		    sort -u
	) >found
	is "$(basename "$what" | tr -dc 'a-z0-9.'): no output has one as it is" "$(cat found)" ''
done

import_optimfs
if sanitized; then
	skip 1 "a sanitizer's library is not loaded into Python"
else
	PYTHONIOENCODING=utf-8 python3 - "$ck" hf >python.out 2>&1 <<'END'
import sys
import optimfs
for path in sys.argv[1:]:
    ck = optimfs.open(path)
    for shown in [ck, ck.view("dcp@2")] + list(ck.tensors())[:20]:
        print(repr(shown))
        if hasattr(shown, "_repr_html_"):
            print(shown._repr_html_())
    for path in ["absent\u202e\x9b", "extra\u202e"]:
        try:
            ck[path]
        except Exception as e:
            print(e)
END
	is "repr, HTML and errors of Python have none" "$(python3 shown.py look python.out)" ''
	like "and describe the checkpoint" "$(cat python.out)" '*<optimfs.Checkpoint ck\\u202e\\u200b:*'
fi

# To a terminal, cat writes text, escaped, and no bytes.
if command -v script >/dev/null; then
	script -qec "'$OPTIMFS' cat hf 'model/w%E2%80%AE'" tty >/dev/null
	like "cat writes no tensor to a terminal" "$(cat tty)" \
	    '*refusing to write bytes to a terminal: redirect them*optimfs show prints*'
	script -qec "'$OPTIMFS' cat '$ck' 'extra/key2%C2%9B31m' 'extra/key4%E2%80%AE'" tty >/dev/null
	like "cat escapes controls in a text for a terminal" "$(cat tty)" \
	    '*value\\xc2\\x9b31m*value\\xe2\\x80\\xae*'
	is "cat writes the text as it is to a pipe" \
	    "$("$OPTIMFS" cat "$ck" 'extra/key4%E2%80%AE' | od -An -tx1 | tr -d ' ')" 76616c7565e280ae0a
	script -qec "'$OPTIMFS' cat hf .optimfs/npy/model/w%E2%80%AE.npy" tty >/dev/null
	like "cat writes no .npy to a terminal" "$(cat tty)" '*refusing to write bytes*'
	script -qec "'$OPTIMFS' cat '$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w4/ckpt' \
	    .optimfs/rank/0/model/layers.0.wq.weight" tty >/dev/null
	like "nor what a rank has of it, in which no byte is zero" "$(cat tty)" \
	    '*refusing to write bytes*'
else
	skip 5 "no script(1)"
fi

done_testing
