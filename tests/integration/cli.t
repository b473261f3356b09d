#!/bin/bash
# cli.t - the commands on a checkpoint that is not mounted: output and exit
# status
set -u
: "${OPTIMFS:=optimfs}" "${TOP_SRCDIR:=$(cd "$(dirname "$0")/../.." && pwd)}"
ck=$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w3/ckpt
dir=$(mktemp -d)
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
cd "$dir" || exit 1
state=optim/state/layers.0.wq.weight
export NO_COLOR=1 # colours would count as columns

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
# does STATUS NAME ARGUMENT...: run optimfs and check its exit status
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

does 0 "ls of the root succeeds" ls "$ck"
printf 'extra/\nmodel/\noptim/\n' | sed '/extra/d' | cmp -s - out
ok $? "ls lists the root without .optimfs"
does 0 "ls of a directory succeeds" ls "$ck" $state
printf 'exp_avg\nexp_avg_sq\nstep\n' | cmp -s - out
ok $? "ls prints one name a line, sorted"
does 0 "ls -l of a directory succeeds" ls -l "$ck" $state
says out '^float32 +12,12 +576 .* exp_avg$' "ls -l prints dtype, shape and size"
does 0 "ls -R of a directory succeeds" ls -R "$ck" optim
says out '^state/layers.0.wq.weight/exp_avg$' "ls -R prints paths relative to the directory"
"$OPTIMFS" ls -R "$ck" optim | LC_ALL=C sort -c 2>/dev/null
does 0 "ls of a file succeeds" ls "$ck" $state/step
says out "^$state/step$" "ls of a file prints its path"
does 0 "ls -R --json succeeds" ls -R --json "$ck"
python3 - out <<'EOF'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
end = rows.pop()
assert end == {"schema": "optimfs.ls.summary", "v": 1, "entries": len(rows)}, end
one = [r for r in rows if r["path"].endswith("layers.0.wq.weight/exp_avg")]
assert one[0]["dtype"] == "float32" and one[0]["shape"] == [12, 12], one
assert all(r["v"] == 1 for r in rows)
EOF
ok $? "ls --json prints one JSON object a line with dtype and shape"
does 3 "ls of a missing path exits with 3" ls "$ck" optim/none
says err 'ckpt: optim/none: no such name' "the message names checkpoint and missing path once"
says err '^  to do: check the spelling' "a second line says what to do"

does 0 "cat of a tensor succeeds" cat "$ck" $state/exp_avg
[ "$(stat -c %s out)" = 576 ]
ok $? "cat prints all bytes of a tensor"
does 0 "cat of several paths succeeds" cat "$ck" $state/step optim/param_groups/0/lr
printf '3.0\n0.001\n' | cmp -s - out
ok $? "cat prints files in the order given"
does 3 "cat of a directory exits with 3" cat "$ck" optim
says err 'OFS009 optim: is a directory: optimfs ls ' "cat of a directory names ls and cp"
does 0 "cat of .optimfs/info.json succeeds" cat "$ck" .optimfs/info.json
python3 -m json.tool out >/dev/null 2>err
ok $? ".optimfs/info.json is valid JSON"
"$OPTIMFS" ls -R "$ck" 2>err | head -1 >/dev/null
[ ! -s err ]
ok $? "ls reports no error when its pipe is closed early"

does 0 "cp of a tensor succeeds" cp "$ck" $state/exp_avg one
"$OPTIMFS" cat "$ck" $state/exp_avg | cmp -s - one
ok $? "cp writes the bytes that cat prints"
does 3 "cp of a directory without -r exits with 3" cp "$ck" optim two
does 0 "cp -r of the root succeeds" cp -r "$ck" / all
(cd all && find . -type f | LC_ALL=C sort) >copied
"$OPTIMFS" ls -R "$ck" | sed '/\/$/d; s/^/.\//' | LC_ALL=C sort | cmp -s - copied
ok $? "cp -r copies every file that ls -R lists"
mkdir into
does 0 "cp -r of a directory into an existing directory succeeds" \
    cp -r "$ck" optim/param_groups into
[ -f into/param_groups/0/lr ]
ok $? "cp -r into a directory keeps the name of the source"
cp -r "$ck" grows
chmod -R u+w grows
for to in grows grows/more "./grows/../grows/more"; do
	does 2 "cp -r into $to, the checkpoint that it reads, is a usage error" \
	    cp -r grows optim "$to"
	says err 'OFS778 .*/[a-z]* is inside the checkpoint that is read, grows' \
	    "and is named"
done
diff -r "$ck" grows
ok $? "and nothing is added to it"
rm -rf grows
mkfifo pipe
timeout 600 cat pipe >from_pipe &
does 0 "cp writes into a pipe" cp "$ck" $state/exp_avg pipe
wait $!
[ -p pipe ] && cmp -s one from_pipe
ok $? "and the pipe stays one"
rm -f pipe from_pipe
does 3 "cp into a missing directory exits with 3" cp "$ck" $state/step no/such/place
[ -z "$(find . -maxdepth 1 -name 'no*' -o -maxdepth 1 -name 'one.*')" ]
ok $? "a failed cp leaves no temporary file"

does 0 "tar of a directory succeeds" tar "$ck" optim
mkdir x && tar -C x -xf out 2>err
ok $? "tar(1) unpacks the archive"
diff -r x/optim all/optim >out 2>&1
ok $? "the unpacked archive equals the copy of cp -r"
does 0 "tar of the root succeeds" tar "$ck" /
tar -tf out >names 2>err && [ "$(grep -c . names)" -gt 100 ]
ok $? "the archive of the root lists more than 100 names"

does 0 "info of a checkpoint succeeds" info "$ck"
says out dcp "info names the format"
does 0 "info of a tensor succeeds" info "$ck" $state/exp_avg
says out '^dtype: float32$' "info of a tensor prints its dtype"
says out '^owners: ' "info of a tensor prints which ranks own it"
says out '^size: [0-9]+ bytes$' "info of a tensor prints its size in bytes"
does 0 "info --json of a tensor succeeds" info --json "$ck" $state/exp_avg
python3 -m json.tool out >/dev/null 2>err
ok $? "info --json of a tensor is valid JSON"

does 0 "fsck of a sound checkpoint exits with 0" fsck "$ck"
says out ': clean' "fsck calls a sound checkpoint clean"
does 0 "fsck --data of a sound checkpoint exits with 0" fsck --data "$ck"
[ "$(cat out)" = "$ck: clean, 0 errors, 0 warnings" ]
ok $? "fsck --data of a sound checkpoint makes no reservation"
cp -r "$ck" hurt && chmod -R u+w hurt
size=$(stat -c %s hurt/__1_0.distcp)
truncate -s $((size / 2)) hurt/__1_0.distcp
does 1 "fsck exits with 1 for a truncated .distcp file" fsck hurt
says out '__1_0.distcp' "fsck names the truncated file"
says out '^error: OFS603 .*__1_0.distcp has .* \([1-9][0-9]* tensors and values\)$' \
    "fsck counts the tensors and values beyond the end of the file"
says out 'damaged, 1 error, 0 warnings' "fsck counts the truncated file as one error"
does 0 "cat of .optimfs/warnings of a damaged checkpoint succeeds" cat hurt .optimfs/warnings
says out '^OFS603 .*__1_0.distcp has ' ".optimfs/warnings lists the truncated file as OFS603"
does 1 "fsck --json exits with 1 for a truncated file" fsck --json hurt
[ "$(grep -c OFS603 out)" -gt 10 ]
ok $? "fsck --json has a finding for each damaged tensor"
cp "$ck/__1_0.distcp" hurt/
printf '\377' | dd of=hurt/__1_0.distcp bs=1 seek=$((size - 3000)) conv=notrunc 2>/dev/null
does 1 "fsck --data exits with 1 for a flipped byte" fsck --data hurt
rm hurt/__1_0.distcp
does 1 "fsck exits with 1 for a missing .distcp file" fsck hurt
[ "$(grep -c OFS140 out)" = 1 ]
ok $? "fsck reports the missing file in one line"
says out '^error: OFS140 .* \([1-9][0-9]* tensors and values\)$' \
    "fsck counts the tensors and values of the missing file"
cp -r "$ck" colon && chmod -R u+w colon
sed -i 's/__1_0.distcp/a: xx.distcp/g; s/__2_0.distcp/b: xx.distcp/g' colon/.metadata
does 1 "fsck exits with 1 where two files with colons in their names are missing" fsck colon
[ "$(grep -c '^error: OFS140 [ab]: xx.distcp is missing.* ([1-9][0-9]* tensors and values)$' out)" = 2 ]
ok $? "fsck counts the tensors of each of these files"
rm -rf colon
does 0 "fsck exits with 0 for flat rank files without units" fsck \
    "$TOP_SRCDIR/tests/data/pytorch/fsdp1_local_flat_fullshard_w3/ckpt"
says out '^warning: OFS166 units unknown: -o units=.* \(8 tensors and values\)$' \
    "fsck suggests -o units= for flat rank files"
says out 'no damage found, .* 0 errors, 1 warning$' \
    "fsck reports flat rank files without units as undamaged"
does 0 "fsck exits with 0 for flat rank files with original parameters" fsck \
    "$TOP_SRCDIR/tests/data/pytorch/fsdp1_local_orig_fullshard_w2/ckpt"
[ "$(grep -c OFS166 out)" = 1 ]
ok $? "fsck has one line for model and optimizer without units"
does 0 "ls lists the model of a checkpoint with a missing file" ls hurt model
does 3 "cp -r of a checkpoint with a missing file exits with 3" cp -r hurt / rest
unread=$("$OPTIMFS" fsck --json hurt | grep -c '"code": "OFS140", "path": "[^"]')
printf 'optimfs: %s\n' >want \
    "OFS140 __1_0.distcp is missing: $unread tensors and values cannot be read (optimfs fsck --json lists them)" \
    "rest: $unread files could not be read; all others are there"
cmp -s err want && [ "$unread" -gt 50 ]
ok $? "cp -r names the missing file once, and counts the files that it left out"
[ -s rest/optim/param_groups/0/lr ]
ok $? "cp -r copies the files that can be read"
does 3 "stat of a directory with unreadable tensors exits with 3" stat hurt model
says err '^optimfs: model: 29 of 30 tensors could not be read, and are not counted' \
    "stat says that the sums are not of all tensors"
says out '^xxh3 [0-9a-f]*[1-9a-f]' "stat describes the only tensor that could be read"
diff -r all rest | grep -v '^Only in all' >differ
[ ! -s differ ]
ok $? "the files that cp -r could copy are complete"
does 3 "ls of a missing checkpoint exits with 3" ls "$dir/none"

# These times in nanoseconds overflow 64 bits.
for year in 2300 1600; do
	cp -r "$ck" "then-$year" && chmod -R u+w "then-$year"
	find "then-$year" -type f -exec touch -d "$year-01-01" {} +
	does 0 "cat reads a checkpoint with files of the year $year" cat "then-$year" $state/exp_avg
	[ "$(stat -c %s out)" = 576 ]
	ok $? "cat prints all bytes of a tensor from the year $year"
done

does 0 "explain OFS603 succeeds" explain OFS603
says out 'means: a file ends before' "explain prints the meaning of the code"
says out 'to do: copy the file again' "explain prints what to do"
does 0 "explain takes the number without OFS" explain 603
does 0 "explain --json takes a code in lower case" explain --json ofs603
python3 - out <<'EOF2'
import json, sys
row = json.load(open(sys.argv[1]))
assert row["v"] == 1 and row["code"] == "OFS603" and row["errno"] == "EIO", row
assert row["meaning"] and row["advice"], row
EOF2
ok $? "explain --json has code, errno, meaning and advice"
does 0 "explain without a code succeeds" explain
[ "$(grep -c '^OFS' out)" -gt 200 ]
ok $? "explain without a code lists all codes"
does 3 "explain of an unknown code exits with 3" explain OFS600
says err 'there is no code OFS600; optimfs explain lists all' \
    "explain says that the code does not exist"
does 2 "explain of a word exits with 2" explain what

# Suggestions for misspelled and missing arguments.
does 2 "a misspelled verb exits with 2" moutn "$ck" x
says err "unknown command 'moutn'; did you mean 'mount'" "the nearest verb is suggested"
does 2 "a misspelled global option exits with 2" --verison
says err "did you mean '--version'" "the nearest global option is suggested"
does 2 "mount -o foo exits with 2" mount -o foo "$ck" x
says err "unknown option 'foo'$" "a word of three letters is not two edits from another"
does 2 "a misspelled option of a verb exits with 2" ls --jsno "$ck"
says err "did you mean '--json'" "the nearest option of the verb is suggested"
does 3 "a misspelled path exits with 3" cat "$ck" model/nrom.bias
says err "model/nrom.bias: no such name; did you mean 'norm.bias'" "the nearest path is suggested"
does 3 "a misspelled path of stat exits with 3" stat "$ck" model/nrom.bias
says err "ckpt: model/nrom.bias: no such name; did you mean 'norm.bias'" \
    "stat names the checkpoint and the nearest path"
cp -r "$ck" step-1000
does 3 "a misspelled checkpoint exits with 3" info step-100
says err "step-100: No such file or directory; did you mean 'step-1000'" \
    "the nearest checkpoint is suggested"
does 3 "a path appended to the checkpoint exits with 3" ls step-1000/model/norm
says err 'step-1000: model/norm: no such name' \
    "the message separates the checkpoint from the path"
does 3 "a misspelled directory in a path exits with 3" ls "$ck" optm/state/norm.bias
says err "did you mean 'optim'" "the nearest directory is suggested"
does 2 "a misspelled format exits with 2" reshard --to dpc@4 "$ck" none
says err "no format is called 'dpc'; did you mean 'dcp'.* There are dcp@N, " \
    "the nearest format is suggested and all formats are listed"
does 2 "reshard to fsdp2 exits with 2" reshard --to fsdp2@4 "$ck" none
says err "did you mean 'dcp'" "dcp is suggested for fsdp2, and not fsdp"
does 2 "reshard to hf exits with 2" reshard --to hf "$ck" none
says err "did you mean 'safetensors,hf'" "safetensors,hf is suggested for hf"
does 2 "reshard without --to exits with 2" reshard "$ck" none
says err 'which layout[?] --to dcp@N, .*zero3@N$' "reshard without --to lists the formats"
does 2 "reshard to 0 ranks exits with 2" reshard --to dcp@0 "$ck" none
says err "'0' is not a number of ranks: 1 to 65536" "reshard says which numbers of ranks are valid"
does 2 "a number of ranks for a format without ranks exits with 2" \
    mkfs --like "$ck" --layout torch@2 none
says err "'torch' has no ranks" "mkfs says that the format has no ranks"
does 2 "cp without a destination exits with 2" cp "$ck" model
says err '^optimfs: OFS011 copy to which destination[?]' "cp asks for the destination"
does 2 "diff of one checkpoint exits with 2" diff "$ck"
says err '^optimfs: OFS011 which other checkpoint[?]' "diff asks for the other checkpoint"
does 2 "cat without a path exits with 2" cat "$ck"
says err '^optimfs: OFS011 which path of the checkpoint[?]' "cat asks for the path"
does 0 "help reshard succeeds" help reshard
says out '^usage: optimfs reshard ' "help reshard prints the usage of reshard"
does 2 "help of a misspelled verb exits with 2" help reshrad
says err "did you mean 'reshard'" "help suggests the nearest verb"
does 0 "--version succeeds" --version
says out 'libfuse|no FUSE' "--version names the version of libfuse"
says out 'Open MPI|no MPI' "--version names the MPI library"
does 0 "ls -l of a param group succeeds" ls -l "$ck" optim/param_groups/0
says out ' lr = 0\.001$' "ls -l prints the value of a scalar"
says out ' betas = \[0\.9, 0\.999\]$' "ls -l prints the value of a list"
says out ' params = .*[.]weight [.][.][.]$' "ls -l shortens a value of several lines"
does 0 "info of a scalar succeeds" info "$ck" optim/param_groups/0/lr
says out '^value: 0\.001$' "info of a scalar prints its value"
does 0 "info --json of a scalar succeeds" info --json "$ck" optim/param_groups/0/lr
says out '"value": ?"0\.001"' "info --json of a scalar has its value"
does 0 "info of a tensor with elements succeeds" info "$ck" $state/exp_avg
[ "$(grep -c '^value' out)" = 0 ]
ok $? "info of a tensor prints no elements"
does 0 "ls -l of optimizer state succeeds" ls -l "$ck" $state
says out ' step = 3\.0$' "ls -l prints the value of step"
says out ' exp_avg$' "ls -l prints no elements of a tensor"

# JSON output.
json() { # json EXPRESSION NAME: r is the first line, rows are all but a summary
	python3 - out "$1" <<'EOF2'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
rows = [r for r in rows if not r["schema"].endswith(".summary")]
r = rows[0]
sys.exit(0 if eval("(" + sys.argv[2] + ")") else 1)
EOF2
	ok $? "$2"
}
does 0 "reshard --json succeeds" reshard --json --to dcp@2 "$ck" two-ranks
json 'r["v"] == 1 and r["directory"] == "two-ranks" and
    r["layout"] == "dcp@2" and r["synced"]' \
        "reshard --json reports the directory, the layout and the sync"
does 0 "mkfs --json succeeds" mkfs --json --like "$ck" --layout torch to-be
json 'r["directory"] == "to-be" and r["layout"] == "torch"' \
    "mkfs --json reports the directory and the layout"
does 1 "fsck --json of a damaged checkpoint exits with 1" fsck --json hurt
json 'all(r["v"] == 1 and r["code"].startswith("OFS") for r in rows) and
    rows[0]["level"] == "error"' "fsck --json has a code and a level in every finding"
cp -r "$ck" other && chmod -R u+w other
does 0 "ls -l --json succeeds" ls -l --json "$ck" optim/param_groups/0
json '[r["value"] for r in rows if r["path"] == "lr"] == ["0.001"]' \
    "ls -l --json has the values of scalars"

# Progress of long work; tests/unit/progress.t tests it with an artificial
# clock.
does 0 "cp --progress succeeds" cp -r --progress "$ck" model shown
says err '^cp: 0 %, 0 B of 12[.]2 kB, ' "cp --progress prints the percentage and the bytes"
says err '^cp: 12[.]2 kB in ' "cp --progress prints a summary"
for verb in $("$OPTIMFS" --help | sed -n 's/^  \([a-z]*\) .*/\1/p' | grep -vx optimfs); do
	case $verb:$("$OPTIMFS" --version) in
	*mount:*"no FUSE"* | commit:*"no FUSE"* | abort:*"no FUSE"*) continue ;;
	esac
	does 0 "$verb takes -q and --progress" "$verb" -q --progress --help
	ok "$(grep -c '^  --*[pq][a-z]*  *show ' out | grep -cvx 2)" "help of $verb has both once"
done
does 0 "cp -q --progress succeeds" cp -rq --progress "$ck" model quiet
[ ! -s err ]
ok $? "cp -q prints nothing"
does 0 "fsck --progress succeeds" fsck --data --progress "$ck"
says err '^fsck: [0-9.]+ kB in ' "fsck --progress prints a summary"
does 0 "diff --progress succeeds" diff --progress "$ck" other
says err '^diff: [0-9.]+ kB in ' "diff --progress prints a summary"
does 0 "tar --progress succeeds" tar --progress "$ck" model
says err '^tar: 12[.]2 kB in ' "tar --progress prints a summary"
does 0 "reshard --progress succeeds" reshard --progress --to torch "$ck" as-torch
says err '^reshard: .* in ' "reshard --progress prints a summary"

"$OPTIMFS" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p' >verbs
while read -r verb; do
	"$OPTIMFS" help "$verb"
done <verbs >help
# a terminal breaks the lines that completions read
[ "$(grep -vE '^(Formats|Names|Types): ' help | grep -c '.\{81\}')" = 0 ]
ok $? "the help of no verb has lines of more than 80 columns"

does 2 "optimfs without a verb exits with 2"
does 2 "an unknown command exits with 2" frobnicate
[ "$(grep -c . err)" -le 2 ]
ok $? "the message about an unknown command has at most two lines"
does 2 "an unknown mount option exits with 2" ls -o cahce=1g "$ck"
says err cache "the nearest mount option is suggested"
if command -v script >/dev/null; then
	script -qec "'$OPTIMFS' reshard -q --to dcp@2 '$ck' made" tty >/dev/null
	says tty 'wrote made: dcp@2, [0-9.]+ kB' "reshard on a terminal prints what it wrote"
	script -qec "'$OPTIMFS' mkfs --like '$ck' --layout dcp@2 empty-one" tty >/dev/null
	says tty "empty-one is an empty template, dcp@2: .*'optimfs mount -o rw empty-one MOUNTPOINT'.*[.]empty-one[.]optimfs" \
	    "mkfs on a terminal says how to fill the template"
	rm -rf made empty-one .empty-one.optimfs
	script -qec "'$OPTIMFS' report '$ck'" tty >/dev/null
	says tty 'not for a terminal: give -o FILE' "report does not print its page on a terminal"
	script -qec "'$OPTIMFS' report '$ck' -o page.html" tty >/dev/null
	says tty "^wrote page.html" "report says on a terminal which file it wrote"
	script -qec "'$OPTIMFS' tar '$ck' model" tty >/dev/null
	says tty 'refusing to write an archive to a terminal: redirect it' "tar does not print its archive on a terminal"
	# names that leave room for the tables, wherever the sources are
	ln -s "$ck" four
	ln -s "$ck/../../dcp_fsdp2_w3/ckpt" three
	for table in "stat four" "stat --by rank --sort rms four" "check -v four" "map four" \
	    "diff four three"; do
		verb=${table%% *}
		for width in 80 40; do
			script -qec "stty cols $width; '$OPTIMFS' $table" tty >/dev/null </dev/null
			[ "$(sed 's/[^ -~]\{3\}/./g; /^Script /d' tty |
			    grep -c ".\{$((width + 2))\}")" = 0 ]
			ok $? "$verb prints no line that is wider than a terminal of $width columns"
		done
	done
	script -qec "stty cols 110; '$OPTIMFS' stat '$ck' optim/state model" tty >/dev/null </dev/null
	says tty '  optim/state/nor[.][.][.]ight/exp_avg_sq' \
	    "stat cuts the middle of a path that is too long for the terminal"
fi
long=optim/state/layers.0.w1.weight/exp_avg_sq
does 0 "stat that does not print to a terminal succeeds" stat --sort rms "$ck"
says out "  $long\$" "stat cuts no path where it does not print to a terminal"
does 2 "report with an option in place of the file exits with 2" report -o type=dcp "$ck"
says err 'the option is given as --type=dcp' "report says how the option is written"
[ ! -e type=dcp ]
ok $? "report does not create a file with the name of the option"
does 2 "plan without a view exits with 2" plan "$ck"
says err 'which view[?] ' "plan asks for the view"
does 2 "mkfs without --like exits with 2" mkfs "$ck"
says err 'which checkpoint[?] --like' "mkfs asks for --like"
for option in dtype=fp16 only=modle; do
	does 2 "reshard with the option $option exits with 2" \
	    reshard --to "dcp@2,$option" "$ck" made
	says err "'dcp@2,$option': '$option': ${option%=*}= takes " \
	    "reshard lists the values of ${option%=*}="
done
does 2 "plan with a malformed --sweep exits with 2" plan --sweep 2-8 "$ck" dcp
says err 'expected FIRST..LAST' "plan says how --sweep is written"
does 2 "stat --sort with an unknown value exits with 2" stat --sort foo "$ck"
says err '--sort foo: no such value[.] Values are .*elements, .*rms, .*first_nan' \
    "stat --sort lists the values it knows"
does 2 "stat --only with an unknown value exits with 2" stat --only 'foo>1' "$ck"
says err '--only foo>1: .*as in nan>0[.] Values are ' \
    "stat --only shows an example and lists the values"
does 2 "stat --only with a misspelled value exits with 2" stat --only 'nna>0' "$ck"
says err "did you mean 'nan'[?] Values are " "stat --only suggests the nearest value"
does 2 "stat --only without a number exits with 2" stat --only 'nan>' "$ck"
says err 'as in nan>0[.] Values' "stat --only suggests no value when that is right"
does 2 "plan --sweep of a view with a number of ranks exits with 2" \
    plan --sweep 2..8 "$ck" dcp@3
says err "'dcp@3' has a number of ranks: leave it out with --sweep, as in dcp$" \
    "plan --sweep says how the view is written"
does 2 "reshard with too many jobs exits with 2" reshard -j 65 --to dcp@2 "$ck" made
says err '[-]j 65: not a number from 1 to 64' "reshard says how many jobs there may be"
does 2 "ls with a misspelled type exits with 2" ls -o type=dpc "$ck"
says err "OFS679 .*type=dpc: no such type; did you mean 'dcp'[?] There are dcp, megatron, " \
    "OFS679 suggests the nearest type and lists all"
does 3 "ls with another type than the checkpoint's exits with 3" ls -o type=torch "$ck"
says err 'OFS680 .* for type=torch; without type=, optimfs finds the format' \
    "OFS680 says that type= can be left out"
does 3 "cp to a directory that does not exist exits with 3" cp -r "$ck" model no/such/
says err 'OFS018 no/such/: No such directory: make it first .mkdir -p no/such.$' \
    "cp says which directory has to be made"
does 3 "report to a directory that does not exist exits with 3" report "$ck" -o no/page.html
says err 'OFS018 no/page.html: No such directory: make it first .mkdir -p no.$' \
    "report says which directory has to be made"
(
	trap '' XFSZ
	ulimit -f 0
	"$OPTIMFS" mkfs --like "$ck" --layout dcp@2 full 2>&1 | cat >err
	"$OPTIMFS" reshard --to dcp@2 "$ck" full 2>&1 | cat >>err
)
[ -z "$(ls -A | grep full)" ]
ok $? "mkfs and reshard that can write nothing leave nothing"
types=$TOP_SRCDIR/tests/data/pytorch/dcp_dtypes/ckpt
does 0 "ls -l of tensors of all types succeeds" ls -l "$types" model
[ "$(sed 's/^[^ ]* */&|/; s/|.*//' out | awk '{ print length($0) }' | sort -u)" = 16 ]
ok $? "ls -l aligns the column after the longest name of a type"
does 0 "stat of an empty tensor in a table succeeds" stat --sort rms "$types" model/empty
says out '^ +0 +0 +0 +0 +- +- +- +-  model/empty$' "stat prints no numbers of an empty tensor"
cp -r "$ck" part
chmod u+w part
rm part/__1_0.distcp
lost='OFS140 (part: )?__1_0[.]distcp is missing: [0-9]+ tensors and values cannot be read'
for verb in "check part" "stat part" "diff part $ck" "diff $ck part" "cp -r part / saved"; do
	"$OPTIMFS" $verb >out 2>&1 </dev/null
	[ "$(grep -cE "$lost \(optimfs [a-z]+ --json lists them\)\$" out)" = 1 ]
	ok $? "${verb%% *} says once that a file is missing, and of how many tensors"
	[ "$(grep -c __1_0.distcp out)" = 1 ]
	ok $? "${verb%% *} names the missing file on no other line"
done
for verb in "check --json part" "stat --json part" "diff --json part $ck"; do
	"$OPTIMFS" $verb >out 2>err </dev/null
	[ "$(grep -c __1_0.distcp out)" -gt 50 ]
	ok $? "${verb%% *} --json lists each tensor that a missing file holds"
done
does 3 "stat of one tensor with a missing part exits with 3" stat part model/norm.bias
says err 'model/norm[.]bias: OFS140 elements \[4:8\]: __1_0[.]distcp is missing$' \
    "stat of one tensor says which elements are missing"
truncate -s 30000 part/__2_0.distcp
"$OPTIMFS" check part >out 2>err
says out '^OFS60[34] __2_0[.]distcp is too short: [0-9]+ tensors' "check says once that a file is too short"
rm -rf part saved
cp -r "$ck" swapped
chmod -R u+w swapped
mv swapped/__1_0.distcp one && mv swapped/__2_0.distcp swapped/__1_0.distcp && mv one swapped/__2_0.distcp
does 1 "fsck --data of swapped files exits with 1" fsck --data swapped
[ "$(grep -cE '^error: OFS615 __[12]_0[.]distcp does not match the index [(][0-9]+ tensors' out)" = 2 ] &&
	[ "$(wc -l <out)" -le 4 ]
ok $? "fsck --data says once of each file that it is not the one that the index describes"
"$OPTIMFS" diff "$ck" swapped >out 2>&1
[ "$(grep -c 'OFS615 swapped: __[12]_0.distcp does not match the index: [0-9]* tensors' out)" = 2 ]
ok $? "diff says once of each file that it is not the one that the index describes"
rm -rf swapped
cp -r "$ck" flipped
chmod -R u+w flipped
python3 - <<'EOF2'
import json, os, subprocess
line = subprocess.run([os.environ.get("OPTIMFS", "optimfs"), "cat", "flipped",
                       ".optimfs/layout/model/norm.bias"], stdout=subprocess.PIPE, check=True).stdout
shard = json.loads(line)["shards"][0]
with open("flipped/" + shard["file"], "r+b") as f:
    f.seek(shard["offset"] + 30)
    name = f.read(4)
    f.seek(shard["offset"] + 30)
    f.write(bytes(b ^ 0xff for b in name))
open("where", "w").write("%s at %d: " % (shard["file"], shard["offset"]))
EOF2
does 1 "fsck --data of a flipped byte exits with 1" fsck --data flipped
says out "^error: model/norm[.]bias: OFS5[0-9]* (elements .*: )?$(cat where)" \
    "fsck --data names the file and the offset of a damaged item"
rm -rf flipped
does 0 "help help succeeds" help help
"$OPTIMFS" --help | cmp -s - out
ok $? "help help is the help"
does 2 "a misspelled help exits with 2" hlep
says err "did you mean 'help'" "help is suggested"
(cd "$(dirname "$ck")" && "$OPTIMFS" cat ckpt .optimfs/README) >out
says out "^    $(realpath "$ck")\$" ".optimfs/README has the absolute path of the checkpoint"
for verb in info umount commit abort; do
	does 2 "$verb of an empty name exits with 2" $verb ""
	says err 'the name of the .* is empty' "$verb says that the name is empty"
done
does 2 "mount of an empty name exits with 2" mount "" "$dir"
says err 'the name of the checkpoint is empty' "mount says that the checkpoint's name is empty"
does 2 "mount at an empty name exits with 2" mount "$ck" ""
says err 'the name of the mount point is empty' "mount says that the mount point's name is empty"
does 2 "info of a view exits with 2" info "$ck" .optimfs/view/dcp@2
says err 'optimfs plan describes a view' "info says which verb describes a view"
does 2 "reshard with an option of another format exits with 2" reshard --to dcp@2,hf "$ck" made
says err "'dcp@2,hf': this format has no option 'hf': optimfs.5. lists" \
    "reshard says where the options of a format are listed"
does 2 "info of a single .distcp file exits with 2" info "$ck/__0_0.distcp"
says err 'OFS677 __0_0.distcp is one file of a checkpoint: .*, /.*/dcp_fsdp2_w3/ckpt$' \
    "OFS677 names the directory of the checkpoint"
cp -r "$ck" noted && chmod -R u+w noted && echo note >noted/x.txt
does 2 "info of a foreign file in a checkpoint exits with 2" info noted/x.txt
says err "OFS677 x.txt .* its directory is one: $dir/noted\$" \
    "OFS677 names the directory of the checkpoint"
: >empty.pt
does 4 "info of an empty file exits with 4" info empty.pt
says err 'OFS678 .*/empty.pt is empty$' "OFS678 says that the file is empty"
python3 - <<'EOF2'
import pickle, zipfile
for name, more in ("m.pt2", "archive_format"), ("pkg.pt", ".data/extern_modules"):
    with zipfile.ZipFile(name, "w") as z:
        for record, text in (more, ""), (".data/version", "6\n"), ("byteorder", "little"):
            z.writestr("m/" + record, text)
pickle.dump({"a": 1}, open("old.pkl", "wb"), protocol=0)
EOF2
does 4 "info of a program of torch.export exits with 4" info m.pt2
says err 'OFS524 m.pt2: it is a program of torch.export: .*torch.save' "OFS524 says what it is"
does 4 "info of a package of torch.package exits with 4" info pkg.pt
says err 'OFS524 pkg.pt: it is a package of torch.package: .*torch.save' "OFS524 says what it is"
does 4 "info of a pickle in protocol 0 exits with 4" info old.pkl
says err "OFS678 .*a pickle of protocol 0 or 1" "OFS678 says what an old pickle is"
does 3 "reshard into a missing parent directory exits with 3" reshard --to dcp@2 "$ck" no/such/one
says err 'OFS809 no/such/one: .*make it first .mkdir -p no/such' \
    "reshard says which directory to make first"
does 3 "mkfs into a missing parent directory exits with 3" \
    mkfs --like "$ck" --layout dcp@2 no/such/one
says err 'OFS809 no/such/one: .*make it first .mkdir -p no/such' \
    "mkfs says which directory to make first"
cp -r "$ck" lost && chmod -R u+w lost && rm lost/__1_0.distcp
does 3 "cat of a tensor with a missing shard exits with 3" cat lost model/layers.0.wq.weight
says err 'bytes 0-575: elements \[[0-9]+:[0-9]+, 0:12\]: __1_0.distcp is missing' \
    "the message names the missing elements and their file"
mkdir -p many && for i in 9 10 200; do cp -r "$ck" "many/run-$i-a"; done
does 3 "fsck of a directory of checkpoints exits with 3" fsck many
says err 'give one of: run-200-a, run-10-a, run-9-a' \
    "fsck lists the checkpoints below, newest first"
does 3 "info of a directory of checkpoints whose names tell no step exits with 3" info many
does 0 "info with run=yes describes them as a run" info -o run=yes many
says out 'a run of 3 checkpoints' "info says how many there are"
mkdir -p deep/a/b/c && mv many deep/a/b/c/
does 3 "info of a directory far above several checkpoints exits with 3" info deep
says err 'OFS681 .*deep holds .*: a/b/c/many/run-200-a,' \
    "info names checkpoints five levels below"
[ "$(grep -c . err)" = 1 ]
ok $? "info says once that one of them has to be given"
mkdir -p above/run && mv deep/a/b/c/many/run-9-a above/run/step-9
does 0 "info of a directory above one checkpoint succeeds" info above
says out '^above/run/step-9$' "info says which directory it describes"
mkdir -p half/tmp/w/0 && touch half/tmp/w/0/fp32.00
does 3 "info of an unfinished universal checkpoint exits with 3" info half
says err 'OFS680 .*ds_to_universal.py did not finish' \
    "OFS680 says that ds_to_universal.py did not finish"
mkdir -p empty
does 3 "info of an empty directory exits with 3" info empty
says err 'OFS680 .*empty is empty' "OFS680 says that the directory is empty"

# The second line fits the message, and does not repeat it.
for case in 'umount empty' 'info empty' 'info half' 'cat above model'; do
	"$OPTIMFS" $case >out 2>err
	[ "$(grep -c . err)" = 1 ]
	ok $? "$case says on one line what to do"
done
does 3 "umount of what is not mounted exits with 3" umount empty
says err 'OFS758 empty: nothing is mounted there .findmnt ' \
    "umount says how to list what is mounted"
does 3 "reshard to what is there exits with 3" reshard --to torch above empty
says err 'OFS008 empty already exists$' "reshard says that the directory is there"
says err '^  to do: remove it, or give another name$' "a second line says what to do"
does 3 "cat below a file exits with 3" cat above model/norm.bias/x
says err 'OFS009 .*norm.bias is a file, not a directory' "cat says what is not a directory"
does 3 "report to a full device exits with 3" report -o /dev/full "$ck"
says err '/dev/full: No space left on device' "report says why it cannot write"
mkdir -p hub && ln -s ../../blob hub/model.safetensors
does 3 "info of a directory of symbolic links exits with 3" info hub
says err 'OFS680 .*hub: model.safetensors is a symbolic link.*cp -rlL' \
    "OFS680 says how to get files instead of symbolic links"
does 3 "cat with the checkpoint after the path exits with 3" cat model "$ck"
says err "OFS018 model: .*the checkpoint comes first: $ck model" \
    "cat says that the checkpoint comes first"
does 2 "reshard to a format in capitals exits with 2" reshard --to DCP@2 "$ck" capitals
says err "in lower case: 'dcp@2'" "a format in capitals is recognised"
does 3 "mount on a directory that does not exist exits with 3" mount "$ck" no-such-point
says err 'OFS758 .*no-such-point: .*make it first' "mount says to make the mount point"
does 2 "sum with a surplus argument exits with 2" sum "$ck" a b
says err "one argument too many: 'b'" "sum names the first surplus argument"
does 0 "--help succeeds" --help
[ -s out ] && [ ! -s err ]
ok $? "--help prints to standard output only"
does 0 "--version succeeds without a checkpoint" --version
says out '^optimfs [0-9]+\.[0-9]+\.[0-9]+$' "--version prints name and version on a line of its own"

echo "1..$n"
[ $bad = 0 ]
