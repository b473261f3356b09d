#!/bin/sh
# log.t - optimfs log: the steps of a run, and statistics over them
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
requires python3

data=$TOP_SRCDIR/tests/data/pytorch
run=$(point run)
weight=model/norm.weight
lr=optim/param_groups/0/lr

put() {
	cp -r "$data/$1/ckpt" "$run/$2"
	chmod -R u+w "$run/$2"
}
put dcp_fsdp2_w2 step-100
put dcp_fsdp2_w3 step-2000
put dcp_ddp_w2 step-2500
put dcp_fsdp2_w2 final
put dcp_fsdp2_w4 step-3000
rm "$run/step-3000/__1_0.distcp"
mkdir "$run/step-9000"
put dcp_fsdp2_w2 step-4000
printf '\200\002broken.' >"$run/step-4000/.metadata"
touch -d '2020-01-01 UTC' "$run"/step-4000/* "$run/step-4000/.metadata" \
    "$run/step-4000"

# The steps.
ok "log of a run with damaged and unfinished steps succeeds" "$OPTIMFS" log "$run"
table=$(cat "$scratch/out")
like "a line has step, time, size, lr and name" "$table" \
    '*step  time*size          lr
       100  20??-??-?? ??:??     405 kB       0.001  step-100
      2000  20??-??-?? ??:??     545 kB       0.001  step-2000
*'
like "a lost file is a problem of its step" "$table" \
    '*3000 *0.001  step-3000: the checkpoint is damaged: 1 missing file*'
like "so is an index that cannot be read" "$table" \
    '*4000  20*  -  *  -  step-4000: OFS436 *'
like "a name that tells no step is a line" "$table" \
    '* -  20*405 kB       0.001  final: its name tells no step*'
like "so is an unfinished one, with the reason" "$table" \
    '*9000  20* -  step-9000: unfinished: it is empty'
is "JSON has the same" "$("$OPTIMFS" log --json "$run" | python3 -c '
import json, sys
for line in sys.stdin:
    o = json.loads(line)
    assert o["schema"] == "optimfs.log" and o["v"] == 1
    print(o["step"], o["name"], o["bytes"], o["lr"], (o["problems"] or "-")[:12])
    if o["step"] == 4000:
        print(o["mtime_ns"])')" \
    "100 step-100 405390 [0.001] -
2000 step-2000 545373 [0.001] -
2500 step-2500 $(cat "$run"/step-2500/* "$run/step-2500/.metadata" | wc -c) [0.001] -
3000 step-3000 $(cat "$run"/step-3000/* "$run/step-3000/.metadata" | wc -c) [0.001] the checkpoi
4000 step-4000 None [] OFS436 $(echo "$run" | cut -c 1-5)
1577836800000000000
None final 405390 [0.001] its name tel
9000 step-9000 None [] unfinished: "
is "CSV has a header, and quotes what has commas" \
    "$("$OPTIMFS" log --csv "$run" | python3 -c '
import csv, sys
rows = list(csv.DictReader(sys.stdin))
print(list(rows[0]), len(rows))
r = rows[3]
print(r["step"], r["lr"], r["problems"].count(","), rows[4]["time"], rows[4]["bytes"])')" \
    "['step', 'name', 'time', 'bytes', 'lr', 'problems'] 7
3000 0.001 1 2020-01-01T00:00:00Z "

# Statistics over the steps.
ok "log of paths succeeds" "$OPTIMFS" log --stat rms,nan "$run" $weight $lr
like "with a table for each" "$(cat "$scratch/out")" "$weight
      step        rms        nan
       100     0.9999          0
      2000     0.9999          0
*      3000  OFS140 *__1_0.distcp is missing
      4000  step-4000: OFS436*
         -  final: its name tells no step
      9000  step-9000: unfinished: it is empty
$lr
      step      value
       100      0.001
*      3000      0.001
*"
"$OPTIMFS" log --json --stat rms,max,elements "$run" $weight model $lr >"$scratch/log"
for path in $weight model; do
	is "the values of $path are those of stat" "$(python3 - "$scratch/log" $path <<'EOP'
import json, sys
for line in open(sys.argv[1]):
    o = json.loads(line)
    if o.get("path") == sys.argv[2] and o["step"] == 2500:
        print(o["elements"], "%.9g %.9g" % (o["max"], o["rms"]))
EOP
)" "$("$OPTIMFS" stat "$run:2500" $path | python3 -c '
import sys
s = dict(line.split() for line in sys.stdin)
print(s["elements"], "%.9g %.9g" % (float(s["max"]), float(s["rms"])))')"
done
is "each line of JSON has statistics, a value or an error" "$(python3 -c '
import json, sys
found = {}
for line in open(sys.argv[1]):
    o = json.loads(line)
    if o["schema"] == "optimfs.log.summary":
        continue
    kind = [k for k in ("rms", "value", "error") if k in o]
    assert len(kind) == 1, o
    found[kind[0]] = found.get(kind[0], 0) + 1
print(sorted(found.items()))' "$scratch/log")" "[('error', 11), ('rms', 6), ('value', 4)]"
is "CSV has a line for each step and path" \
    "$("$OPTIMFS" log --csv --stat nan "$run" $weight $lr | sed -n '1,3p;$p')" \
    "step,name,path,value,nan,error
100,step-100,$weight,,0,
100,step-100,$lr,0.001,,
9000,step-9000,$lr,,,unfinished: it is empty"
put experimental_checkpointer_w3 step-5000
is "learning rates of groups that differ are a range" \
    "$("$OPTIMFS" log "$run" | awk '$1 == 5000 { print $6 }')" \
    0.000333333..0.007
is "and each one in CSV" \
    "$("$OPTIMFS" log --csv "$run" | awk -F , '$1 == 5000 { print $5 }')" \
    '0.001 0.0003333333333333333 0.007'
rm -r "$run/step-5000"

# A terminal.
if command -v script >/dev/null; then
	LC_ALL=C script -qec "stty cols 100; '$OPTIMFS' log --stat elements '$run' \
	    model optim/state/layers.0.wq.weight/exp_avg" "$scratch/tty" >/dev/null
	like "a terminal gets a line of bars, with a blank for what is not read" \
	    "$(tr -d '\r' <"$scratch/tty")" '*  elements  ???     * to *'
else
	skip 1 "no script(1)"
fi
is "a file gets none" "$("$OPTIMFS" log "$run" model | grep -c ' to ')" 0

# A name is one line, whatever it is.
cp -r "$run/step-100" "$run/step-
7"
cp -r "$run/step-100" "$run/$(printf 'step-6000\033[31m')"
for verb in info log "thin --keep-last 1" "thin --keep-last 1 --drop optim"; do
	is "$verb: names with a newline and an escape are escaped" \
	    "$("$OPTIMFS" $verb "$run" | grep -o 'step-.x0a7\|step-6000.x1b.31m' | sort | tr '\n' ' ')" \
	    'step-6000\x1b[31m step-\x0a7 '
done
rm -r "$run"/step-6000* "$run/step-
7"

# Refusals.
refused() {
	status "$1" "$2" "$OPTIMFS" $3
	like "and says why: $4" "$(cat "$scratch/err")" "*$4*"
}
refused "a path that no step has" 3 "log $run model/norm.weigth" \
    "OFS018 *did you mean 'norm.weight'?"
refused "a statistic that there is not" 2 "log --stat rms,mas $run model" \
    "--stat mas: no such value; did you mean 'max'? Values are *rms"
refused "statistics of nothing" 2 "log --stat rms $run" "--stat: of which path?"
refused "two forms" 2 "log --csv --json $run" "--csv or --json, not both"
refused "a checkpoint" 3 "log $run/step-100" \
    "OFS852 $run/step-100 is no directory of checkpoints"
refused "a directory that is not there" 3 "log $run/none" OFS019
mkdir "$scratch/one"
cp -r "$run/step-100" "$scratch/one"
is "a run may have one step" "$("$OPTIMFS" log --csv "$scratch/one" | wc -l)" 2
done_testing
