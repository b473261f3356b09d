#!/bin/sh
# patterns.t - paths on the command line: patterns, slices, CHECKPOINT/PATH, and
# what is said of names that are not there
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
requires python3 tar

cd "$scratch" || exit 99
cp -r "$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w4/ckpt" ck
w=optim/state/layers.0.wq.weight/exp_avg

# A checkpoint with names that are patterns themselves, and twelve layers.
python3 - <<'END'
import json, struct
names = [f"layers.{i}.w" for i in range(12)] + ["w[0]", "w*", "0"]
h = json.dumps({n: {"dtype": "F32", "shape": [2, 3], "data_offsets": [24 * i, 24 * i + 24]}
                for i, n in enumerate(names)}).encode()
with open("x.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(h)) + h)
    f.write(struct.pack(f"<{6 * len(names)}f", *range(6 * len(names))))
END
x=x.safetensors

o() {
	"$OPTIMFS" "$@" 2>&1
}

is "a pattern of ls is what matches, in natural order" \
    "$(o ls $x 'model/layers.[1-9]*.w' | tr '\n' ' ')" \
    'model/layers.1.w model/layers.2.w model/layers.3.w model/layers.4.w model/layers.5.w model/layers.6.w model/layers.7.w model/layers.8.w model/layers.9.w model/layers.10.w model/layers.11.w '
is "so is a listing" "$(o ls $x model | tail -n 4 | head -n 2)" 'layers.10.w
layers.11.w'
is "--json has the order of the bytes" "$(o ls --json $x model | sed -n '4s/.*"path": *"\([^"]*\).*/\1/p')" layers.10.w
is "directories that match have headings" \
    "$(o ls ck 'optim/state/layers.[01].wq.weight' optim/param_groups/0/lr)" \
    'optim/param_groups/0/lr

optim/state/layers.0.wq.weight:
exp_avg
exp_avg_sq
step

optim/state/layers.1.wq.weight:
exp_avg
exp_avg_sq
step'
is "in JSON their paths begin at the root" \
    "$(o ls --json ck 'optim/state/layers.[01].wq.weight' | grep -c '"path": *"optim/state/layers')" 6
is "a pattern in the middle" "$(o show ck 'optim/state/layers.*.wq.weight/step')" \
    'optim/state/layers.0.wq.weight/step:
3.0

optim/state/layers.1.wq.weight/step:
3.0

optim/state/layers.2.wq.weight/step:
3.0'
is "a name that is a pattern is taken as it is written" "$(o ls $x 'model/w*')" 'model/w*'
is "so is one with brackets" "$(o show $x 'model/w[0]')" "$(printf '[[72. 73. 74.]\n [75. 76. 77.]]')"
is "a pattern may have a slice" "$(o show $x 'model/layers.1?.w[0, :2]')" \
    'model/layers.10.w[0, :2]: float32 2,3
[60. 61.]

model/layers.11.w[0, :2]: float32 2,3
[66. 67.]'
is "brackets that match are no slice" "$(o ls $x 'model/layers.[0].w')" model/layers.0.w
is "an index that matches a name is no slice where nothing is before it" \
    "$(o show $x 'model/[0]' | head -n 1)" '[[84. 85. 86.]'
is "* is not .optimfs" "$(o ls $x '*' | head -n 1)" "$(o ls $x model | head -n 1)"
is "but it can be named" "$(o ls ck '.optimfs/npy/model/norm.*')" \
    '.optimfs/npy/model/norm.bias.npy
.optimfs/npy/model/norm.weight.npy'
status "a pattern without a match is an error" 3 "$OPTIMFS" cat ck 'model/zz*'
like "that says so" "$(cat err)" '*OFS018 ck: model/zz*: no name matches this pattern*'
is "stat takes patterns" "$(o stat ck 'model/layers.*.wq.weight' | wc -l)" 4
is "map, too" "$(o map ck 'model/layers.*.wq.weight' | wc -l)" 4
is "and info" "$(o info ck 'model/layers.*.wq.weight' | grep -c '^fqn: ')" 3
is "and tar" "$(o tar ck 'model/layers.*.wq.weight' | tar t | wc -l)" 3
status "sum takes one path" 2 "$OPTIMFS" sum $x 'model/layers.*.w'
like "and says so" "$(cat err)" "*the pattern matches 'model/layers.0.w', 'model/layers.1.w' and others: sum takes one path*"
mkdir run
cp -r ck run/step-1
cp -r ck run/step-2
is "log takes what matches in the last step" \
    "$(o log --csv --stat nan run 'optim/state/layers.*.wq.weight/exp_avg' | wc -l)" 7
is "so does a checkpoint of a run" "$(o ls run:latest 'model/layers.*.wq.weight' | wc -l)" 3
is "and the run" "$(o ls run 'steps/*/model/norm.bias')" 'steps/1/model/norm.bias
steps/2/model/norm.bias'

for verb in cat "show --csv" stat; do
	"$OPTIMFS" $verb ck $w >want 2>&1
	"$OPTIMFS" $verb ck/$w >got 2>&1
	ok "$verb takes CHECKPOINT/PATH" cmp want got
done
is "with a pattern" "$(o ls "ck/model/layers.*.wq.weight" | wc -l)" 3
is "and a slice, of a file as well" "$(o show "$x/model/layers.2.w[1]")" '[15. 16. 17.]'
like "what is no path of a tree is looked for beside the checkpoint" "$(o ls ck/nothing/x)" \
    '*ck/nothing/x: No such file or directory: ck has no nothing*'

"$OPTIMFS" cat ck "${w}[2:4, ::3]" >cat.npy
"$OPTIMFS" cp ck "${w}[2:4, ::3]" cp.npy
ok "cp writes a slice that cat writes" cmp cat.npy cp.npy
is "as a .npy file, which has the numbers of show" "$(python3 - cat.npy <<'END'
import ast, struct, sys
data = open(sys.argv[1], "rb").read()
n = struct.unpack("<H", data[8:10])[0]
h = ast.literal_eval(data[10:10 + n].decode())
print(h["descr"], h["shape"], (10 + n) % 64)
for row in struct.iter_unpack("<4f", data[10 + n:]):
    print(*row, sep=",")
END
)" "<f4 (2, 4) 0
$(o show --csv ck "${w}[2:4, ::3]")"
mkdir into
"$OPTIMFS" cp ck "${w}[0]" into
ok "in a directory it gets the name of the tensor" test -s into/exp_avg.npy
status "a slice of a text is refused" 2 "$OPTIMFS" cat ck optim/state/layers.0.wq.weight/step'[0]'
ok "and writes nothing" test ! -s out
status "a slice out of bounds is refused" 2 "$OPTIMFS" cp ck "${w}[99]" none.npy
ok "and makes no file" test ! -e none.npy
"$OPTIMFS" cp ck 'optim/state/layers.*.wq.weight/exp_avg' many
is "cp of a pattern keeps what the pattern leaves open" "$(find many -type f | sort)" \
    'many/layers.0.wq.weight/exp_avg
many/layers.1.wq.weight/exp_avg
many/layers.2.wq.weight/exp_avg'
"$OPTIMFS" cat ck $w >want
ok "and the bytes" cmp want many/layers.0.wq.weight/exp_avg
"$OPTIMFS" cp -r ck 'optim/state/layers.[01].wq.weight' dirs
is "with -r directories" "$(ls dirs)" 'layers.0.wq.weight
layers.1.wq.weight'
"$OPTIMFS" cp ck 'optim/state/layers.*.wq.weight/exp_avg[0]' rows
is "and slices" "$(find rows -name '*.npy' | wc -l)" 3

like "ls -lh prints sizes for people" "$(o ls -lh ck $w)" '* 576 B *'
is "ls -a names .optimfs" "$(o ls -a ck | head -n 1)" .optimfs/
is "ls -1 is as without it" "$(o ls -1 ck model)" "$(o ls ck model)"
is "reshard -n says what plan says" "$(o reshard -n --to dcp@2 ck)" "$(o plan ck dcp@2)"
is "also in JSON" "$(o reshard -n --json --to dcp@2 ck new)" "$(o plan --json ck dcp@2)"
ok "and makes nothing" test ! -e new

hint() { # hint PATTERN ARGUMENT...
	pattern=$1
	shift
	like "optimfs $*: $pattern" "$(o "$@")" "*$pattern*"
}
hint "did you mean 'model/layers.0.wq.weight'\\? 6 names end so" ls ck wq.weight
hint "did you mean 'optim/state/layers.0.wq.weight/exp_avg'" ls ck layers.0.wq.weight/exp_avg
hint "names of formats are in lower case: 'dcp@4'" plan ck DCP@4
hint "no option 'bf16'; did you mean 'dtype=bf16'" plan ck safetensors,bf16
hint "no option 'HF'; did you mean 'hf'" plan ck safetensors,HF
hint "did you mean 'reshard'\\? optimfs reshard --to FORMAT CHECKPOINT NEW" convert ck
hint "did you mean 'ls'" list ck
hint "optimfs ls -R CHECKPOINT" tree ck
hint "optimfs mount -o rw CHECKPOINT DIRECTORY, then rm in it" rm ck
hint "optimfs info CHECKPOINT" du ck
done_testing
