#!/bin/bash
# cli.t - the commands on the tree without FUSE
set -u
: "${OPTIMFS:=optimfs}" "${TOP_SRCDIR:=$(cd "$(dirname "$0")/../.." && pwd)}"
ck=$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w3/ckpt
dir=$(mktemp -d)
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
cd "$dir" || exit 1
state=optim/state/layers.0.wq.weight

n=0
bad=0
ok() { # ok STATUS NAME
	n=$((n + 1))
	if [ "$1" = 0 ]; then
		echo "ok $n - $2"
	else
		bad=$((bad + 1))
		echo "not ok $n - $2"
		sed 's/^/# /' out err 2>/dev/null
	fi
}
# does STATUS NAME ARGUMENT...: run optimfs, check its exit status
does() {
	want=$1 name=$2
	shift 2
	"$OPTIMFS" "$@" >out 2>err </dev/null
	[ $? = "$want" ]
	ok $? "$name"
}
says() { # says FILE PATTERN NAME
	grep -qE -- "$2" "$1"
	ok $? "$3"
}

does 0 "ls" ls "$ck"
printf 'extra/\nmodel/\noptim/\n' | sed '/extra/d' | cmp -s - out
ok $? "ls lists what the root has, without .optimfs"
does 0 "ls of a directory" ls "$ck" $state
printf 'exp_avg\nexp_avg_sq\nstep\n' | cmp -s - out
ok $? "one name a line, sorted"
does 0 "ls -l" ls -l "$ck" $state
says out '^float32 +12,12 +576 .* exp_avg$' "type, shape, size"
does 0 "ls -R" ls -R "$ck" optim
says out '^state/layers.0.wq.weight/exp_avg$' "paths below where it began"
"$OPTIMFS" ls -R "$ck" optim | LC_ALL=C sort -c 2>/dev/null
does 0 "ls of a file" ls "$ck" $state/step
says out "^$state/step$" "names the file"
does 0 "ls --json" ls -R --json "$ck"
python3 - out <<'EOF'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
one = [r for r in rows if r["path"].endswith("layers.0.wq.weight/exp_avg")]
assert one[0]["dtype"] == "float32" and one[0]["shape"] == [12, 12], one
assert all(r["v"] == 1 for r in rows)
EOF
ok $? "valid JSON, an object a line"
does 3 "ls of what is not there" ls "$ck" optim/none
says err 'ckpt: optim/none: no such name' "the message names it, once"

does 0 "cat" cat "$ck" $state/exp_avg
[ "$(stat -c %s out)" = 576 ]
ok $? "all of a tensor"
does 0 "cat of several" cat "$ck" $state/step optim/param_groups/0/lr
printf '3.0\n0.001\n' | cmp -s - out
ok $? "in the order given"
does 3 "cat of a directory" cat "$ck" optim
does 0 "cat of .optimfs" cat "$ck" .optimfs/info.json
python3 -m json.tool out >/dev/null 2>err
ok $? "info.json is JSON"
"$OPTIMFS" ls -R "$ck" 2>err | head -1 >/dev/null
[ ! -s err ]
ok $? "a pipe that closes early is no error"

does 0 "cp" cp "$ck" $state/exp_avg one
"$OPTIMFS" cat "$ck" $state/exp_avg | cmp -s - one
ok $? "the same bytes"
does 3 "cp of a directory without -r" cp "$ck" optim two
does 0 "cp -r" cp -r "$ck" / all
(cd all && find . -type f | LC_ALL=C sort) >copied
"$OPTIMFS" ls -R "$ck" | sed '/\/$/d; s/^/.\//' | LC_ALL=C sort | cmp -s - copied
ok $? "every file"
mkdir into
does 0 "cp into a directory" cp -r "$ck" optim/param_groups into
[ -f into/param_groups/0/lr ]
ok $? "keeps its name"
does 3 "cp to where there is nothing" cp "$ck" $state/step no/such/place
[ -z "$(find . -maxdepth 1 -name 'no*' -o -maxdepth 1 -name 'one.*')" ]
ok $? "no temporary file stays"

does 0 "tar" tar "$ck" optim
mkdir x && tar -C x -xf out 2>err
ok $? "tar(1) takes it"
diff -r x/optim all/optim >out 2>&1
ok $? "what it unpacks is what cp copies"
does 0 "tar of everything" tar "$ck" /
tar -tf out >names 2>err && [ "$(grep -c . names)" -gt 100 ]
ok $? "is an archive"

does 0 "info" info "$ck"
says out dcp "says the format"
does 0 "info of a file" info "$ck" $state/exp_avg
says out '^dtype: float32$' "says the type"
says out '^owners: ' "says who has it"
does 0 "info --json" info --json "$ck" $state/exp_avg
python3 -m json.tool out >/dev/null 2>err
ok $? "is JSON"

does 0 "fsck" fsck "$ck"
says out ': clean' "says so"
does 0 "fsck --data" fsck --data "$ck"
cp -r "$ck" hurt && chmod -R u+w hurt
size=$(stat -c %s hurt/__1_0.distcp)
truncate -s $((size / 2)) hurt/__1_0.distcp
does 1 "fsck of a shard cut short" fsck hurt
says out '__1_0.distcp' "names the file"
says out '^error: OFS603 .*__1_0.distcp has .* \([1-9][0-9]* tensors and values\)$' \
    "counts what lies past its end"
says out 'damaged, 1 error, 0 warnings' "which is one finding"
does 0 "what is wrong" cat hurt .optimfs/warnings
says out '^OFS603 .*__1_0.distcp has ' "has it, too"
does 1 "fsck --json of it" fsck --json hurt
[ "$(grep -c OFS603 out)" -gt 10 ]
ok $? "names each tensor"
cp "$ck/__1_0.distcp" hurt/
printf '\377' | dd of=hurt/__1_0.distcp bs=1 seek=$((size - 3000)) conv=notrunc 2>/dev/null
does 1 "fsck --data of a flipped byte" fsck --data hurt
rm hurt/__1_0.distcp
does 1 "fsck without a shard" fsck hurt
[ "$(grep -c OFS140 out)" = 1 ]
ok $? "has one line for it"
says out '^error: OFS140 .* \([1-9][0-9]* tensors and values\)$' "with a count"
does 0 "rank files without units" fsck \
    "$TOP_SRCDIR/tests/data/pytorch/fsdp1_local_flat_fullshard_w3/ckpt"
says out '^warning: OFS166 units unknown: -o units=.* \(8 tensors and values\)$' \
    "says what to give"
says out 'no damage found, .* 0 errors, 1 warning$' "are not damaged"
does 0 "what the others hold still lists" ls hurt model
does 3 "cp -r of a checkpoint without a shard" cp -r hurt / rest
[ "$(grep -c OFS140 err)" -gt 1 ] && [ -s rest/optim/param_groups/0/lr ]
ok $? "names each file that cannot be read, and copies the others"
diff -r all rest | grep -v '^Only in all' >differ
[ ! -s differ ]
ok $? "as they are"
does 3 "no checkpoint there" ls "$dir/none"

# Times that do not fit into 64 bits of nanoseconds.
for year in 2300 1600; do
	cp -r "$ck" "then-$year" && chmod -R u+w "then-$year"
	find "then-$year" -type f -exec touch -d "$year-01-01" {} +
	does 0 "files of $year" cat "then-$year" $state/exp_avg
	[ "$(stat -c %s out)" = 576 ]
	ok $? "are read"
done

does 0 "explain" explain OFS603
says out 'means: a file ends before' "says what the code means"
says out 'to do: copy the file again' "and what to do"
does 0 "explain takes the number" explain 603
does 0 "explain --json" explain --json ofs603
python3 - out <<'EOF2'
import json, sys
row = json.load(open(sys.argv[1]))
assert row["v"] == 1 and row["code"] == "OFS603" and row["errno"] == "EIO", row
assert row["meaning"] and row["advice"], row
EOF2
ok $? "is JSON"
does 0 "explain without a code" explain
[ "$(grep -c '^OFS' out)" -gt 200 ]
ok $? "lists all"
does 3 "explain of a code that there is not" explain OFS600
says err 'there is no code OFS600; optimfs explain lists all' "is no guess"
does 2 "explain of a word" explain what

# Nearly right.
does 2 "a verb with swapped letters" moutn "$ck" x
says err "unknown verb 'moutn'; did you mean 'mount'" "is suggested"
does 2 "an option of the program" --verison
says err "did you mean '--version'" "is suggested"
does 2 "an option of a verb" ls --jsno "$ck"
says err "did you mean '--json'" "is suggested"
does 3 "a path" cat "$ck" model/nrom.bias
says err "model/nrom.bias: no such name; did you mean 'norm.bias'" "is suggested"
does 3 "a directory on the way" ls "$ck" optm/state/norm.bias
says err "did you mean 'optim'" "is suggested"
does 2 "a format" reshard --to dpc@4 "$ck" none
says err "no format is called 'dpc'; did you mean 'dcp'.* There are dcp@N, " \
    "is suggested, and all are named"
does 2 "no format" reshard "$ck" none
says err 'which layout[?] --to dcp@N, .*zero3@N$' "names them"
does 2 "a number of ranks" reshard --to dcp@0 "$ck" none
says err "'0' is not a number of ranks: 1 to 65536" "is asked for"
does 2 "a format without ranks" mkfs --like "$ck" --layout torch@2 none
says err "'torch' has no ranks" "says so"
does 2 "cp without a destination" cp "$ck" model
says err '^optimfs: copy it to where[?]' "asks for it"
does 2 "diff of one" diff "$ck"
says err '^optimfs: which other checkpoint[?]' "asks for the other"
does 2 "cat without a path" cat "$ck"
says err '^optimfs: which path of the checkpoint[?]' "asks for it"
does 0 "help of a verb" help reshard
says out '^usage: optimfs reshard ' "is its --help"
does 2 "help of a verb that there is not" help reshrad
says err "did you mean 'reshard'" "is suggested"
does 0 "--version" --version
says out 'libfuse|no FUSE' "says which libfuse"
says out 'Open MPI|no MPI' "and which MPI"
does 0 "ls -l of scalars" ls -l "$ck" optim/param_groups/0
says out ' lr = 0\.001$' "says what they are"
says out ' betas = \[0\.9, 0\.999\]$' "and of lists"
says out ' params = .*[.]weight [.][.][.]$' "and that there are more lines"
does 0 "info of a value" info "$ck" optim/param_groups/0/lr
says out '^value: 0\.001$' "says it"
does 0 "info --json of a value" info --json "$ck" optim/param_groups/0/lr
says out '"value": ?"0\.001"' "says it"
does 0 "info of a tensor" info "$ck" $state/exp_avg
[ "$(grep -c '^value' out)" = 0 ]
ok $? "does not print its elements"
does 0 "ls -l of a step" ls -l "$ck" $state
says out ' step = 3\.0$' "says it"
says out ' exp_avg$' "but not what a tensor holds"

# What programs read.
json() { # json EXPRESSION NAME: of the first line, r; all of them, rows
	python3 - out "$1" <<'EOF2'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
r = rows[0]
sys.exit(0 if eval("(" + sys.argv[2] + ")") else 1)
EOF2
	ok $? "$2"
}
does 0 "reshard --json" reshard --json --to dcp@2 "$ck" two-ranks
json 'r["v"] == 1 and r["directory"] == "two-ranks" and
    r["layout"] == "dcp@2" and r["synced"]' "says what was made"
does 0 "mkfs --json" mkfs --json --like "$ck" --layout torch to-be
json 'r["directory"] == "to-be" and r["layout"] == "torch"' "says it, too"
does 1 "fsck --json" fsck --json hurt
json 'all(r["v"] == 1 and r["code"].startswith("OFS") for r in rows) and
    rows[0]["level"] == "error"' "has the codes"
cp -r "$ck" other && chmod -R u+w other
does 0 "ls -l --json" ls -l --json "$ck" optim/param_groups/0
json '[r["value"] for r in rows if r["path"] == "lr"] == ["0.001"]' \
    "has values"

# Long work: made-up clocks are in tests/unit/progress.t.
does 0 "cp --progress" cp -r --progress "$ck" model shown
says err '^cp: 0 %, 0 B of 12[.]2 kB, ' "says how far it is"
says err '^cp: 12[.]2 kB in ' "and what it came to"
does 0 "cp -q" cp -rq --progress "$ck" model quiet
[ ! -s err ]
ok $? "says nothing"
does 0 "fsck --progress" fsck --data --progress "$ck"
says err '^fsck: [0-9.]+ kB in ' "says it, too"
does 0 "diff --progress" diff --progress "$ck" other
says err '^diff: [0-9.]+ kB in ' "says it, too"
does 0 "tar --progress" tar --progress "$ck" model
says err '^tar: 12[.]2 kB in ' "says it, too"
does 0 "reshard --progress" reshard --progress --to torch "$ck" as-torch
says err '^reshard: .* in ' "says it, too"

does 2 "no verb"
does 2 "an unknown verb" frobnicate
[ "$(grep -c . err)" -le 2 ]
ok $? "two lines"
does 2 "an unknown option" ls -o cahce=1g "$ck"
says err cache "suggests the nearest"
if command -v script >/dev/null; then
	script -qec "'$OPTIMFS' reshard -q --to dcp@2 '$ck' made" tty >/dev/null
	says tty 'wrote made: dcp@2, [0-9.]+ kB' "a terminal is told what was written"
	script -qec "'$OPTIMFS' mkfs --like '$ck' --layout dcp@2 empty-one" tty >/dev/null
	says tty "empty-one is an empty template, dcp@2: .*'optimfs mount -o rw empty-one MOUNTPOINT'.*[.]empty-one[.]optimfs" \
	    "and what a template is"
	rm -rf made empty-one .empty-one.optimfs
fi
does 2 "an option where report wants a file" report -o type=dcp "$ck"
says err 'the option is given as --type=dcp' "says how it is given"
[ ! -e type=dcp ]
ok $? "makes no such file"
does 2 "no view" plan "$ck"
says err 'which view[?] ' "asks for one"
does 2 "nothing to be like" mkfs "$ck"
says err 'like which checkpoint[?] --like' "asks for that"
for option in dtype=fp16 only=modle; do
	does 2 "$option" reshard --to "dcp@2,$option" "$ck" made
	says err "'dcp@2,$option': '$option': ${option%=*}= takes " "has its values named"
done
does 2 "a sweep that is none" plan --sweep 2-8 "$ck" dcp
says err 'wants FIRST..LAST' "says how it is written"
does 2 "a sort by no value" stat --sort foo "$ck"
says err '--sort foo: no such value; values are .*elements, .*rms, .*first_nan' \
    "names all"
does 2 "a condition on no value" stat --only 'foo>1' "$ck"
says err '--only foo>1: .*as in nan>0; values are ' "names all"
does 2 "a shard as the checkpoint" info "$ck/__0_0.distcp"
says err 'OFS677 __0_0.distcp is one file of a checkpoint: .*, /.*/dcp_fsdp2_w3/ckpt$' \
    "has its directory named"
cp -r "$ck" noted && chmod -R u+w noted && echo note >noted/x.txt
does 4 "another file of it" info noted/x.txt
says err "OFS678 x.txt .* its directory is one: $dir/noted\$" "does, too"
does 3 "a new checkpoint below nothing" reshard --to dcp@2 "$ck" no/such/one
says err 'OFS809 no/such/one: .*make it first .mkdir -p no/such' "says what to do"
does 3 "and a template" mkfs --like "$ck" --layout dcp@2 no/such/one
says err 'OFS809 no/such/one: .*make it first .mkdir -p no/such' "too"
cp -r "$ck" lost && chmod -R u+w lost && rm lost/__1_0.distcp
does 3 "a tensor without a shard" cat lost model/layers.0.wq.weight
says err 'bytes 0-575: elements \[[0-9]+:[0-9]+, 0:12\]: __1_0.distcp is missing' \
    "says which elements"
mkdir -p many && for i in 9 10 200; do cp -r "$ck" "many/run-$i-a"; done
does 3 "a directory of checkpoints" info many
says err 'point at one of: run-200-a run-10-a run-9-a' "lists the newest first"
mkdir -p half/tmp/w/0 && touch half/tmp/w/0/fp32.00
does 3 "half a universal checkpoint" info half
says err 'OFS680 .*ds_to_universal.py did not finish' "says so"
mkdir -p empty
does 3 "an empty directory" info empty
says err 'OFS680 .*empty is empty' "is called so"
does 2 "too many words" ls "$ck" a b
says err "'b' is one word too many" "names the first"
does 0 "--help" --help
[ -s out ] && [ ! -s err ]
ok $? "on standard output"
does 0 "--version" --version
says out '^optimfs [0-9]+\.[0-9]+\.[0-9]+$' "name and version on a line"

echo "1..$n"
[ $bad = 0 ]
