#!/bin/sh
# exits.t - every verb with unusable arguments: exit status, message, no output
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

ck=$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w4/ckpt
cd "$scratch" || exit 1
mkdir empty words mnt cut
echo hello >words/x.txt
cp -r "$ck" hurt && chmod -R u+w hurt && rm hurt/__1_0.distcp
head -c 500 "$ck/.metadata" >cut/.metadata
verbs=$("$OPTIMFS" --help | sed -n 's/^  \([a-z]*\) .*/\1/p' | grep -vx optimfs)

# arguments VERB CHECKPOINT: prints a valid command line of the verb
arguments() { # VERB CHECKPOINT
	case $1 in
	mount) echo "$2 mnt" ;;
	cat | show) echo "$2 model/layers.0.wq.weight" ;;
	cp) echo "-r $2 / copy" ;;
	tar) echo "$2 /" ;;
	reshard) echo "--to dcp@2 $2 copy" ;;
	average) echo "--to dcp@2 $2 last2 copy" ;;
	mkfs) echo "--layout dcp@2 --like $2 copy" ;;
	diff) echo "$2 $ck" ;;
	plan) echo "$2 dcp@2" ;;
	*) echo "$2" ;;
	esac
}

# Does the message have a code, and does explain say what to do?
advised() { # NAME
	code=$(sed -n 's/^optimfs: \(OFS[0-9]*\) .*/\1/p' "$scratch/err" | head -n 1)
	like "$1: the message has a code" "$code" 'OFS[0-9][0-9][0-9]'
	like "$1: explain of the code says what to do" "$("$OPTIMFS" explain "$code" 2>/dev/null)" \
	    '*to do: ?*'
}

silent() { # NAME
	is "$1: nothing on standard output" "$(head -c 100 "$scratch/out")" ""
}

# refuses VERB STATUS CHECKPOINT [NAME]: does the message name the checkpoint,
# or NAME?
refuses() {
	name="$1 $3"
	rm -rf copy .copy.optimfs
	# shellcheck disable=SC2046
	status "$name: exits with $2" "$2" "$OPTIMFS" "$1" $(arguments "$1" "$3")
	like "$name: the message has a code and names the cause" \
	    "$(head -n 1 "$scratch/err")" "optimfs: OFS*${4:-$3}*"
	advised "$name"
}

is "the program has 25 verbs" "$(echo "$verbs" | wc -w)" 25
case $("$OPTIMFS" --version) in
*"no FUSE"*) verbs=$(echo "$verbs" | grep -vxE 'mount|umount|commit|abort') ;;
esac
for v in $verbs; do
	if [ "$v" != explain ]; then
		status "$v without arguments exits with 2" 2 "$OPTIMFS" "$v"
		silent "$v"
		like "$v without arguments asks for one and prints the usage" \
		    "$(tr '\n' ' ' <"$scratch/err")" \
		    "optimfs: OFS011 *\?* usage: optimfs $v *"
	fi
	status "$v --no-such exits with 2" 2 "$OPTIMFS" "$v" --no-such
	silent "$v --no-such"
	like "$v --no-such names the option and prints the usage" "$(tr '\n' ' ' <"$scratch/err")" \
	    "optimfs: OFS011 unknown option '--no-such'* usage: optimfs $v *"
done

# With --json a failure is an object, that of the arguments, too.
is_error() { # WHAT CODE STATUS
	is "$1: the error is an object" "$(python3 -c '
import json, sys
lines = [json.loads(l) for l in sys.stdin]
e = lines[-1]
print(e["schema"], e["v"], e["code"], e["status"], e["text"].startswith(e["code"]), bool(e["advice"]))
' <"$scratch/out")" "optimfs.error 1 $2 $3 True True"
}
if command -v python3 >/dev/null; then
	status "info --json of nothing exits with 3" 3 "$OPTIMFS" info --json "$scratch/nowhere"
	is_error "info --json of nothing" OFS019 3
	status "ls --json with an unknown option exits with 2" 2 "$OPTIMFS" ls --json --no-such
	is_error "ls --json with an unknown option" OFS011 2
	status "an unknown command exits with 2" 2 "$OPTIMFS" no-such --json
	is_error "an unknown command with --json" OFS011 2
	status "without --json nothing is printed" 3 "$OPTIMFS" info "$scratch/nowhere"
	silent "info of nothing"
fi

# Without the device, mount fails before it looks at the checkpoint.
[ -r /dev/fuse ] && [ -w /dev/fuse ] || verbs=$(echo "$verbs" | grep -vx mount)
for v in $verbs; do
	case $v in
	explain) continue ;;
	commit | abort | umount)
		for it in none empty; do
			refuses "$v" 3 $it
			silent "$v $it"
		done
		continue
		;;
	esac
	for it in none empty cut; do
		[ "$v $it" = "serve cut" ] && continue # the files are served
		refuses "$v" 3 $it
		silent "$v $it"
	done
	refuses "$v" 4 words/x.txt
	silent "$v words/x.txt"
	is "$v: failed calls create no files" "$(ls -A)" "cut
empty
err
hurt
mnt
out
words"
done

# As containers mount single files.
if command -v unshare >/dev/null && echo old >"$scratch/bound" && unshare -m sh -c \
    "mount --bind '$scratch/bound' '$scratch/bound'" 2>/dev/null; then
	status "cp onto a file that is a bind mount exits with 3" 3 unshare -m sh -c "
		mount --bind '$scratch/bound' '$scratch/bound'
		'$OPTIMFS' cp '$ck' optim/param_groups/0/lr '$scratch/bound'"
	like "cp says that the file is a bind mount" "$(cat "$scratch/err")" \
	    "*OFS012 $scratch/bound: a file is mounted there (a bind mount), *"
	is "cp leaves a bind mount as it was" "$(cat "$scratch/bound")" old
else
	skip 3 "no mount namespaces"
fi

# A checkpoint with a missing .distcp file: verbs that need the file fail, the
# others succeed.
for v in ls info map report; do
	# shellcheck disable=SC2046
	ok "$v of a checkpoint with a missing file exits with 0" \
	    "$OPTIMFS" "$v" $(arguments "$v" hurt)
done
for v in fsck check; do
	status "$v of a checkpoint with a missing file exits with 1" 1 "$OPTIMFS" "$v" hurt
	like "$v prints OFS140 for the missing file" "$(cat "$scratch/out")" '*OFS140*'
done
for v in cat show cp tar diff reshard mkfs plan; do
	refuses "$v" 3 hurt __1_0.distcp
done
status "stat of a checkpoint with a missing file exits with 3" 3 "$OPTIMFS" stat hurt
like "stat prints OFS140 in the row of the tensor" "$(cat "$scratch/out")" '*OFS140*'
# A file that this user may not read is neither missing nor damaged.
cp -r "$ck" closed && chmod -R u+w closed && chmod 0 closed/__1_0.distcp
if [ "$(id -u)" != 0 ]; then
	as_other() { "$@"; }
elif command -v setpriv >/dev/null; then
	copy_for_others "$OPTIMFS"
	OPTIMFS=$scratch/optimfs
	as_other() {
		LD_LIBRARY_PATH=$scratch setpriv --reuid=65534 \
		    --regid=65534 --clear-groups "$@"
	}
fi
if type as_other >/dev/null 2>&1; then
	status "fsck without permission for a file exits with 1" 1 \
	    as_other "$OPTIMFS" fsck closed
	is "fsck prints one line for the file" "$(grep -c OFS756 "$scratch/out")" 1
	like "fsck without permission for a file does not say damaged" \
	    "$(tail -n 1 "$scratch/out")" \
	    'closed: no damage found, but no permission to read all of it, 1 error, *'
	ok "info without permission for a file succeeds" \
	    as_other "$OPTIMFS" info closed
	like "info without permission for a file names it" "$(cat "$scratch/out")" \
	    '*
missing     1 file that may not be opened; a part or all of * tensors and values *(fsck --json names them)
  OFS756 __1_0.distcp: not allowed to read it
*'
else
	skip 5 "no setpriv(1)"
fi
done_testing
