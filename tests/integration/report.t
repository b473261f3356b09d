#!/bin/sh
# report.t - a page of what is in a checkpoint
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

requires python3
export OPTIMFS
data=$TOP_SRCDIR/tests/data/pytorch
four=$data/dcp_fsdp2_w4/ckpt
page=$scratch/page.html

# The data of a page; the last line is Python that tests them as d.
holds() {
	python3 - "$page" "$1" <<'END'
import json, re, sys
page = open(sys.argv[1], encoding="utf-8").read()
block, = re.findall(r'<script type="application/json" id="data">(.*?)</script>',
                    page, re.S)
assert len(re.findall("</script", page)) == 2, "a script that is not ours"
assert page.rstrip().endswith("</html>") and "http://" not in \
    page.replace("http://www.w3.org/2000/svg", "") and "https://" not in page
d = json.loads(block)
assert d["schema"] == "optimfs.report" and d["v"] == 1
sys.exit(not eval(sys.argv[2]))
END
}

for name in dcp_fsdp2_w4 hf_storage_w2 torchsave_full; do
	ck=$(find "$data/$name" -mindepth 1 -maxdepth 1 -name 'ckpt*' | head -n 1)
	ok "$name has a page" "$OPTIMFS" report "$ck" -o "$page"
	ok "with the statistics of each tensor" holds \
	    'len(d["tensors"]) > 9 and all("rms" in t["stat"] for t in d["tensors"])'
done
ok "it goes to standard output too" "$OPTIMFS" report "$four"
cp "$scratch/out" "$page"
ok "ranks have the parts of each tensor" holds \
    'd["ranks"] == [0, 1, 2, 3] and all(sum(p[1] for p in t["parts"]) >= t["bytes"] for t in d["tensors"])'
ok "parameters have the size of their next update" holds \
    'd["parameters"] and all(p["update_to_weight"] > 0 for p in d["parameters"])'

# Bytes of tensors that are damaged are not seen when none is read.
cp -r "$four" "$scratch/new"
chmod -R u+w "$scratch/new"
python3 "$TOP_SRCDIR/tests/support/payload.py" "$scratch/new" \
    model/layers.0.w1.weight 2 nan 0 >"$scratch/where"
ok "a page with a NaN" "$OPTIMFS" report "$scratch/new" -o "$page"
ok "finds it" holds 'any(t["stat"]["nan"] for t in d["tensors"]) and d["findings"]'
ok "a page from the index" "$OPTIMFS" report --no-data "$scratch/new" -o "$page"
ok "reads no tensor and finds nothing" holds 'not d["findings"]'
ok "without statistics" holds \
    'not d["data"] and d["tensors"] and not any("stat" in t for t in d["tensors"]) and not d["parameters"]'
status "two checkpoints are not compared by the index" 2 \
    "$OPTIMFS" report --no-data "$four" "$four"

ok "two checkpoints" "$OPTIMFS" report -o "$page" \
    "$data/dcp_opt_sgd_w2/ckpt" "$data/dcp_opt_amsgrad_w2/ckpt"
ok "have their differences in it" holds \
    'any(e["kind"] == "elements" and e["rms"] > 0 for e in d["drift"])'

cp -r "$four" "$scratch/lost"
chmod -R u+w "$scratch/lost"
rm "$scratch/lost/__2_0.distcp"
ok "a checkpoint with a missing shard" "$OPTIMFS" report --no-data \
    "$scratch/lost" -o "$page"
ok "says which file" holds \
    'any("__2_0.distcp is missing" in f["text"] for f in d["findings"])'
ok "and marks what that rank had" holds \
    '{p[0] for t in d["tensors"] for p in t["parts"] if len(p) > 2} == {2}'

python3 - "$scratch/hostile.safetensors" <<'END'
import json, struct, sys
names = ["</script><script>alert(1)</script>", "<!--<script>", "a\"b\\\u2028"]
head = json.dumps({n: {"dtype": "F32", "shape": [2], "data_offsets":
                       [8 * i, 8 * i + 8]} for i, n in enumerate(names)})
head = head.encode()
open(sys.argv[1], "wb").write(
    struct.pack("<Q", len(head)) + head + bytes(8 * len(names)))
END
ok "names that look like markup" "$OPTIMFS" report \
    "$scratch/hostile.safetensors" -o "$page"
ok "stay names" holds 'any("script>" in t["path"] for t in d["tensors"])'
status "a file that cannot be made" 3 "$OPTIMFS" report "$four" \
    -o "$scratch/no/page.html"

if command -v chromium >/dev/null; then
	"$OPTIMFS" report "$four" -o "$page"
	cat >>"$page" <<'END'
<script>
search.value = "exp_avg_sq";
search.oninput();
document.querySelectorAll("#all th button")[4].click();
const cell = document.querySelector("#all tbody tr[tabindex] td");
document.body.dataset.test = shown.textContent + "; " + cell.textContent;
</script>
END
	HOME=$scratch timeout "$limit" chromium --headless --no-sandbox \
	    --disable-gpu --dump-dom "file://$page" \
	    >"$scratch/dom" 2>"$scratch/said"
	ok "a browser draws it" grep -q 'data-ready="1"' "$scratch/dom"
	most=$(python3 - "$page" <<'END'
import json, re, sys
d = json.loads(re.findall('id="data">(.*?)</script>',
                          open(sys.argv[1]).read(), re.S)[0])
t = [t for t in d["tensors"] if "exp_avg_sq" in t["path"]]
print(f'{len(t)} of {len(d["tensors"])} tensors; '
      + max(t, key=lambda t: t["bytes"])["path"])
END
)
	ok "search and sort work in it" grep -qF "data-test=\"$most\"" "$scratch/dom"
else
	skip 2 "no chromium"
fi
done_testing
