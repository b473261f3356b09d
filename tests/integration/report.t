#!/bin/sh
# report.t - optimfs report: the data in the HTML page, and the page in a
# browser
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

requires python3
export OPTIMFS
data=$TOP_SRCDIR/tests/data/pytorch
four=$data/dcp_fsdp2_w4/ckpt
page=$scratch/page.html

# holds EXPRESSION: is the Python expression true for the data d of the page?
holds() {
	python3 - "$page" "$1" <<'END'
import json, re, sys
page = open(sys.argv[1], encoding="utf-8").read()
block, = re.findall(r'<script type="application/json" id="data">(.*?)</script>',
                    page, re.S)
assert len(re.findall("</script", page)) == 2, "a script that is not ours"
assert page.rstrip().endswith("</html>") and not re.search("https?://", page)
d = json.loads(block)
assert d["schema"] == "optimfs.report" and d["v"] == 1
sys.exit(not eval(sys.argv[2]))
END
}

for name in dcp_fsdp2_w4 hf_storage_w2 torchsave_full; do
	ck=$(find "$data/$name" -mindepth 1 -maxdepth 1 -name 'ckpt*' | head -n 1)
	ok "report of $name succeeds" "$OPTIMFS" report "$ck" -o "$page"
	is "report -o of $name prints nothing" "$(cat "$scratch/out" "$scratch/err")" ''
	ok "report of $name has the statistics of each tensor" holds \
	    'len(d["tensors"]) > 9 and all("rms" in t["stat"] for t in d["tensors"])'
done
ok "report without -o prints the page" "$OPTIMFS" report "$four"
cp "$scratch/out" "$page"
ok "report lists the parts that each rank has" holds \
    'd["ranks"] == [0, 1, 2, 3] and all(sum(p[1] * p[2] for p in t["parts"]) >= t["bytes"] for t in d["tensors"])'
ok "report -o - prints the page" "$OPTIMFS" report -o - "$four"
cp "$scratch/out" "$scratch/printed"
ok "the page of report -o - is that of report without -o" cmp "$scratch/printed" "$page"
ok "report -o - makes no file of that name" test ! -e -
ok "report has the ratio of update to weight of each parameter" holds \
    'd["parameters"] and all(p["update_to_weight"] > 0 for p in d["parameters"])'

# answer: what the page says without JavaScript
answer() {
	sed -n '/<header>/,/<\/header>/p' "$page" | sed 's/<[^>]*>//g' | grep .
}
like "the verdict is in the first line of the page" "$(answer | sed -n 1p)" \
    'Sound. dcp, 4 ranks, 30 parameters, AdamW at step 3, 32.4 kB'
is "and in its title" "$(sed -n 's/<title>\(.*\)<\/title>/\1/p' "$page")" \
    "$four: $(answer | sed -n 1p)"
ok "and in the data" holds 'd["verdicts"] == ["Sound. dcp, 4 ranks, 30 parameters, AdamW at step 3, 32.4 kB"]'
"$OPTIMFS" info "$four" >"$scratch/info"
ok "report has the lines that info prints" holds \
    "d['info'] == open('$scratch/info').read()"

# With --no-data, damaged bytes of a tensor go unseen.
cp -r "$four" "$scratch/new"
chmod -R u+w "$scratch/new"
python3 "$TOP_SRCDIR/tests/support/payload.py" "$scratch/new" \
    model/layers.0.w1.weight 2 nan 0 >"$scratch/where"
ok "report of a checkpoint with a NaN succeeds" "$OPTIMFS" report "$scratch/new" -o "$page"
is "the verdict names the first finding and says what to do" "$(answer | sed 's/;.*//')" \
    "Not sound: 1 finding. model/layers.0.w1.weight: OFS202 1 of 228 elements is not finite
$scratch/new
To do: further training makes more of them: go back to an earlier checkpoint, and find the step that made the first"
ok "report counts the NaN and has a finding for it" \
    holds 'any(t["stat"]["nan"] for t in d["tensors"]) and d["findings"]'
cp "$four/__1_0.distcp" "$scratch/shard"
status "report does not replace a file that is not a page" 3 "$OPTIMFS" report "$four" -o "$scratch/shard"
like "the message names the file" "$(cat "$scratch/err")" \
    "optimfs: OFS008 $scratch/shard exists, and is not a report*"
ok "the file is as it was" cmp "$four/__1_0.distcp" "$scratch/shard"
: >"$scratch/made-by-mktemp"
ok "report replaces an empty file" "$OPTIMFS" report "$four" -o "$scratch/made-by-mktemp"
chmod 600 "$scratch/made-by-mktemp"
ok "report replaces a page" "$OPTIMFS" report "$four" -o "$scratch/made-by-mktemp"
is "the page has the permissions of the one before" "$(stat -c %a "$scratch/made-by-mktemp")" 600
ln -s /proc/self/fd/1 "$scratch/stdout"
"$OPTIMFS" report --no-data "$four" -o "$scratch/stdout" >"$scratch/redirected"
is "report to a link to its output exits with 0" "$?" 0
ok "the page is in the file behind the link" grep -q '^<!DOCTYPE html>' "$scratch/redirected"
ok "the link is still one" test -L "$scratch/stdout"
ok "report --no-data of the same checkpoint succeeds" \
    "$OPTIMFS" report --no-data "$scratch/new" -o "$page"
ok "report --no-data has no finding for the NaN" holds 'not d["findings"]'
ok "report --no-data has tensors without statistics and no parameters" holds \
    'not d["data"] and d["tensors"] and not any("stat" in t for t in d["tensors"]) and not d["parameters"]'
status "report --no-data of two checkpoints exits with 2" 2 \
    "$OPTIMFS" report --no-data "$four" "$four"

ok "report of two checkpoints succeeds" "$OPTIMFS" report -o "$page" \
    "$data/dcp_opt_sgd_w2/ckpt" "$data/dcp_opt_amsgrad_w2/ckpt"
ok "report of two checkpoints has the rms of their differences" holds \
    'any(e["kind"] == "elements" and e["rms"] > 0 for e in d["drift"])'

ok "report of a NaN in the second checkpoint succeeds" "$OPTIMFS" report -o "$page" "$four" \
    "$scratch/new"
ok "report counts the NaN of the second checkpoint" holds \
    '[(e["nan_a"], e["nan_b"]) for e in d["drift"]] == [(0, 1)]'
is "both have a verdict" "$(answer | cut -d: -f1)" "Sound. dcp, 4 ranks, 30 parameters, AdamW at step 3, 32.4 kB
$four
Not sound
$scratch/new
To do"
rm -f "$page"
status "report with a second checkpoint that does not exist exits with 3" 3 \
    "$OPTIMFS" report -o "$page" "$four" "$scratch/nowhere"
ok "and it writes no page" test ! -e "$page"

cp -r "$four" "$scratch/lost"
chmod -R u+w "$scratch/lost"
rm "$scratch/lost/__2_0.distcp"
ok "report --no-data of a checkpoint with a missing file succeeds" "$OPTIMFS" report --no-data \
    "$scratch/lost" -o "$page"
is "its verdict is damage, and what to do" "$(answer)" \
    "Damaged: 1 missing file, $(answer | sed -n 's/.*file, \([0-9]*\) .*/\1/p') unreadable tensors and values
$scratch/lost
To do: restore the file; if the checkpoint opens without it, all other tensors can be read"
ok "report names the missing file once, with the number of tensors and what to do" holds \
    '[(f["path"], f["means"]) for f in d["findings"] if "__2_0.distcp is missing" in f["text"] and "tensors and values)" in f["text"]] == [("", "restore the file; if the checkpoint opens without it, all other tensors can be read")] and not any(f["path"] for f in d["findings"])'
ok "report of two checkpoints, of which the second lacks a file, succeeds" "$OPTIMFS" report \
    -o "$page" "$four" "$scratch/lost"
ok "report has the findings of the second, with its name" holds \
    'd["findings"] and all(f["path"] == "'"$scratch"'/lost" for f in d["findings"]) and any("__2_0.distcp is missing" in f["text"] for f in d["findings"])'
"$OPTIMFS" report --no-data "$scratch/lost" -o "$page"
ok "report marks the parts of the rank with the missing file" holds \
    '{p[0] for t in d["tensors"] for p in t["parts"] if p[3]} == {2} and all(p[1] == 1 for t in d["tensors"] for p in t["parts"] if p[3])'

python3 - "$scratch/hostile.safetensors" <<'END'
import json, struct, sys
names = ["</script><script>alert(1)</script>", "<!--<script>", "a\"b\\\u2028"]
head = json.dumps({n: {"dtype": "F32", "shape": [2], "data_offsets":
                       [8 * i, 8 * i + 8]} for i, n in enumerate(names)})
head = head.encode()
open(sys.argv[1], "wb").write(
    struct.pack("<Q", len(head)) + head + bytes(8 * len(names)))
END
ok "report of tensor names with HTML markup succeeds" "$OPTIMFS" report \
    "$scratch/hostile.safetensors" -o "$page"
cp -r "$four" "$scratch/<b>&x"
"$OPTIMFS" report --no-data "$scratch/<b>&x" -o "$scratch/markup.html"
ok "so is a name in the head" grep -q '&#60;b&#62;&#38;x</p>' "$scratch/markup.html"
ok "tensor names with HTML markup are escaped" \
    holds 'any("script>" in t["path"] for t in d["tensors"])'
status "report to a missing directory exits with 3" 3 "$OPTIMFS" report "$four" \
    -o "$scratch/no/page.html"
status "report exits with 3 when the page cannot be written" 3 sh -c 'ulimit -f 4
trap "" XFSZ
exec "$OPTIMFS" report "$1" -o "$2"' sh "$four" "$page"
ok "a failed report keeps the previous page" \
    holds 'any("script>" in t["path"] for t in d["tensors"])'
is "a failed report leaves no temporary file" "$(echo "$scratch"/.optimfs.*)" \
    "$scratch/.optimfs.*"
ok "report to /dev/null succeeds" "$OPTIMFS" report "$four" -o /dev/null

# A run: two states of one model, and one with a NaN, a damaged one and what is no step.
run=$(point run)
cp -r "$data/dcp_fsdp2_w2/ckpt" "$run/step-100"
cp -r "$data/dcp_fsdp2_w3/ckpt" "$run/step-200"
cp -r "$data/dcp_opt_amsgrad_w2/ckpt" "$run/step-300"
chmod -R u+w "$run"
ok "report of a run succeeds" "$OPTIMFS" report "$run" -o "$page"
is "its verdict comes first" "$(answer)" "No damage, no NaN. 3 steps from 100 to 300.
$run"
holds_run() {
	python3 - "$page" "$1" <<'END'
import json, re, sys
block, = re.findall(r'id="data">(.*?)</script>', open(sys.argv[1], encoding="utf-8").read(), re.S)
d = json.loads(block)
assert d["schema"] == "optimfs.report.run" and d["v"] == 1
sys.exit(not eval(sys.argv[2]))
END
}
ok "it has the steps as log has them" holds_run \
    '[(s["step"], s["name"], s["lr"]) for s in d["steps"]][:2] == [(100, "step-100", [.001]), (200, "step-200", [.001])]'
for state in model exp_avg exp_avg_sq update; do
	ok "it has a series of $state for each layer" holds_run \
	    "{'layers.0', 'layers.1'} <= {s['layer'] for s in d['series'] if s['state'] == '$state'}"
done
want=$("$OPTIMFS" stat --json "$run:200" | python3 -c '
import json, sys
rows = [json.loads(l) for l in sys.stdin]
print(repr(sum(r["l2"] ** 2 for r in rows if r.get("path", "").startswith("model/layers.0.")) ** .5))')
ok "the norm of a layer is that of its tensors" holds_run \
    "[abs(s['norm'][1] / $want - 1) < 1e-12 for s in d['series'] if (s['state'], s['layer']) == ('model', 'layers.0')] == [True]"
ok "the update is the difference: equal states have none" holds_run \
    "{s['norm'][1] for s in d['series'] if s['state'] == 'update'} == {0} and all(s['norm'][0] is None for s in d['series'] if s['state'] == 'update')"
want=$("$OPTIMFS" stat --json "$run:delta/200..300" model | python3 -c '
import json, sys
rows = [json.loads(l) for l in sys.stdin]
print(repr(sum(r["l2"] ** 2 for r in rows if r.get("path", "").startswith("model/layers.1.")) ** .5))')
ok "and that of others is the norm of delta/" holds_run \
    "[abs(s['norm'][2] / $want - 1) < 1e-12 for s in d['series'] if (s['state'], s['layer']) == ('update', 'layers.1')] == [True]"
ok "report --no-data of a run succeeds" "$OPTIMFS" report --no-data "$run" -o "$page"
like "it says what was not read" "$(answer)" "No damage in the indexes; tensors were not read. 3 steps*"
status "two runs are not compared" 2 "$OPTIMFS" report "$run" "$run" -o "$page"

mkdir "$run/step-400"
python3 - "$run/step-400/model.safetensors" <<'END'
import json, struct, sys
head = json.dumps({"x</script>.0.w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(head)) + head + struct.pack("<2f", 1, float("nan")))
END
rm "$run/step-200/__1_0.distcp"
mkdir "$run/step-500"
ok "report of a run with damage succeeds" "$OPTIMFS" report "$run" -o "$page"
like "a NaN is the verdict" "$(answer)" "Not sound: NaN or infinite from step 400 on, first model/x*script*.0.w. 4 steps from 100 to 400, and 1 that is not shown.
$run
To do: *"
ok "the lost file is a problem of its step, whose other tensors count" holds_run \
    '"1 missing file" in d["steps"][1]["problems"] and d["steps"][1]["unread"] > 0 and d["steps"][1]["elements"] > 0 and "__1_0.distcp" in d["unread"]'
ok "what is not finished is listed" holds_run \
    '[(s["complete"], s["problems"]) for s in d["steps"] if s["name"] == "step-500"] == [(False, "unfinished: it is empty")]'
is "markup in names is escaped" "$(grep -c '</script' "$page")" 2

# draw FLAG...: append the script on standard input to the page, and load it in
# a browser
draw() {
	{
		echo '<script>'
		cat
		echo '</script>'
	} >>"$page"
	HOME=$scratch XDG_CACHE_HOME=$scratch/cache timeout "$limit" chromium --headless --no-sandbox \
	    --disable-gpu --disable-background-networking --disable-sync \
	    --enable-logging=stderr "$@" --dump-dom "file://$page" \
	    >"$scratch/dom" 2>"$scratch/said"
}
tested() { # what the script has stored in data-test
	sed -n 's/.*<body[^>]* data-test="\([^"]*\)".*/\1/p' "$scratch/dom"
}
silent() { # NAME
	ok "$1: the page is drawn" grep -q 'data-ready="1"' "$scratch/dom"
	is "$1: the browser console is empty" \
	    "$(grep CONSOLE "$scratch/said")" ''
}

if command -v chromium >/dev/null; then
	"$OPTIMFS" report "$four" -o "$page"
	draw <<'END'
search.value = "exp_avg_sq";
search.oninput();
document.querySelectorAll("#all th button")[4].click();
const cell = document.querySelector("#all tbody tr[tabindex] td");
document.body.dataset.test = shown.textContent + "; " + cell.textContent;
END
	silent "one checkpoint"
	ok "the page shows the format outside of the folded tables" \
	    grep -q '<dl id="info"><dt>format</dt>' "$scratch/dom"
	most=$(python3 - "$page" <<'END'
import json, re, sys
d = json.loads(re.findall('id="data">(.*?)</script>',
                          open(sys.argv[1]).read(), re.S)[0])
t = [t for t in d["tensors"] if "exp_avg_sq" in t["path"]]
print(f'{len(t)} of {len(d["tensors"])} tensors; '
      + max(t, key=lambda t: t["bytes"])["path"])
END
)
	is "search and sort work in the page" "$(tested)" "$most"

	"$OPTIMFS" report --no-data "$scratch/new" -o "$page"
	draw --window-size=500,900 <<'END'
const root = document.documentElement;
document.body.dataset.test = document.querySelector('section[aria-label="Findings"] p').textContent +
	(root.scrollWidth > root.clientWidth ? " too wide" : "");
END
	silent "without data, in a narrow window"
	is "a narrow page without data is not called sound and not scrolled sideways" \
	    "$(tested)" "No problems found in the index. The tensors were not checked."

	rm "$page"
	"$OPTIMFS" report -o "$scratch/run.html" "$run"
	echo '<body>' >"$page"
	for width in 390 800 1400; do
		echo "<iframe src=\"run.html\" width=\"$width\" height=\"800\"></iframe>" >>"$page"
	done
	draw --allow-file-access-from-files --virtual-time-budget=20000 <<'END'
onload = () => {
	document.body.dataset.test = [...document.querySelectorAll("iframe")].map(f => {
		const d = f.contentDocument, root = d.documentElement;
		d.querySelector("#steps tbody tr:nth-child(3)").click();
		const cut = [...d.querySelectorAll("figure, .tile, h1, h1 + p")].filter(e => e.scrollWidth > e.clientWidth + 1);
		return [root.scrollWidth > f.width ? "too wide" : "fits", cut.length, d.querySelector("#now h3").textContent,
			d.querySelectorAll("#steps tbody tr").length, d.querySelectorAll("figure line.now[visibility=visible]").length === d.querySelectorAll("figure").length,
			d.querySelectorAll("figure line.odd").length,
			[...d.querySelectorAll("path.dot")].some(p => p.getAttribute("d"))].join(" ");
	}).join("; ");
};
END
	is "a run: the browser console is empty" "$(grep CONSOLE "$scratch/said")" ''
	one="fits 0 Step 300 5 true 1 true"
	is "the page of a run is not scrolled sideways, a click marks a step in all pictures, and a NaN and a single value are marked" "$(tested)" \
	    "$one; $one; $one"

	rm "$page"
	# Two steps of a run: what changed, what is compared, at 390 pixels.
	tags=$TOP_SRCDIR/tests/data/deepspeed/z3_ws2_two_tags/ckpt
	"$OPTIMFS" report -o "$scratch/steps.html" "$tags/global_step2" "$tags/global_step3"
	echo '<body><iframe src="steps.html" width="390" height="800"></iframe>' >"$page"
	draw --allow-file-access-from-files --virtual-time-budget=20000 <<'END'
onload = () => {
	const d = document.querySelector("iframe").contentDocument, root = d.documentElement;
	const cut = [...d.querySelectorAll(".bars, .map, .tile, h1, h1 + p")].filter(e => e.scrollWidth > e.clientWidth + 1);
	document.body.dataset.test = [root.scrollWidth > 390 ? "too wide" : "fits", cut.length,
		d.querySelector("h1").textContent, d.querySelector("section h2").textContent,
		d.querySelector("section tbody tr:last-child").textContent].join("; ");
};
END
	is "a page of 390 pixels is not scrolled sideways, and begins with the verdict and what changed" "$(tested)" \
	    "fits; 0; Sound. deepspeed, 2 ranks, 20 parameters, Adam or AdamW at step 2, 15.7 kB; What changed; optim/state/*/step (15)2.0 -&gt; 3.0"

	rm "$page"
	"$OPTIMFS" report -o "$page" \
	    "$data/dcp_opt_sgd_w2/ckpt" "$data/dcp_opt_amsgrad_w2/ckpt"
	draw --blink-settings=preferredColorScheme=0 <<'END'
const by = s => document.querySelector(`[role=img][aria-label="${s}"]`);
document.body.dataset.test = [by("shard map"), by("drift by layer"),
	by("treemap of bytes by module and state")].every(g => g &&
	g.parentElement.querySelector("details table tbody tr"));
END
	silent "two checkpoints, dark mode"
	is "each chart of two checkpoints has its table" "$(tested)" true

	# Of 10,000 tensors only the visible rows are in the document.
	python3 - "$scratch/many.safetensors" <<'END'
import json, struct, sys
n = 10000
head = json.dumps({f"layers.{i // 10}.w{i % 10}": {"dtype": "F32",
    "shape": [1], "data_offsets": [4 * i, 4 * i + 4]} for i in range(n)})
head = head.encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(head)) + head +
    struct.pack(f"<{n}f", *((i * 7919) % n for i in range(n))))
END
	"$OPTIMFS" report "$scratch/many.safetensors" -o "$page"
	draw <<'END'
const rows = () => [...document.querySelectorAll("#all tbody tr[tabindex]")];
const box = document.getElementById("all"), said = [];
said.push(rows().length < 100);
const max = [...document.querySelectorAll("#all th button")].find(b => b.textContent === "max");
max.click();
said.push(rows()[0].lastElementChild.textContent === "9999");
max.click();
said.push(rows()[0].lastElementChild.textContent === "0");
search.value = "layers.77.w";
search.oninput();
said.push(rows().length === 10);
search.value = "";
search.oninput();
dispatchEvent(new Event("beforeprint"));
said.push(rows().length === 10000);
dispatchEvent(new Event("afterprint"));
said.push(rows().length < 100);
document.body.dataset.test = said.join(" ");
END
	silent "10,000 tensors"
	is "10,000 tensors can be sorted, searched and printed" "$(tested)" \
	    "true true true true true true"

	# 450 layers on 64 ranks: a box for each would be 25600.
	python3 - "$scratch/wide.safetensors" <<'END'
import json, struct, sys
n = 450
head = json.dumps({f"layers.{i}.w": {"dtype": "F32", "shape": [64],
    "data_offsets": [256 * i, 256 * i + 256]} for i in range(n)}).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(head)) + head + bytes(256 * n))
END
	"$OPTIMFS" reshard --to dcp@64 "$scratch/wide.safetensors" "$scratch/wide"
	"$OPTIMFS" report --no-data "$scratch/wide" -o "$page"
	draw <<'END'
document.body.dataset.test = document.querySelectorAll(".map .cells span").length + " " +
	document.querySelector("[aria-label='Which rank holds what'] p").textContent;
END
	silent "450 layers on 64 ranks"
	is "what is evenly divided is one box for each layer that is drawn, and for all" "$(tested)" \
	    "101 Evenly divided: each of 64 ranks holds 1.80 kB."
else
	skip 19 "no chromium"
fi
done_testing
