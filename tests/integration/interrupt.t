#!/bin/sh
# interrupt.t - SIGINT ends long work in order, and says what is left
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

# The signal comes at a given system call instead of a given time;
# tests/support/faultlib.h has the values of FAULT_HOW.
faultlib=$TOP_BUILDDIR/.libs/faultlib.so
[ -e "$faultlib" ] || bail_out "no $faultlib"
INTERRUPT=7 WAIT=8
sanitized && {
	echo "1..0 # SKIP a sanitizer does not want to be preloaded after faultlib.so"
	exit 0
}

ck=$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w3/ckpt
cd "$scratch" || exit 1
# at PATH COMMAND...: send SIGINT at the first change of a file with PATH in its
# name
at() {
	where=$1
	shift
	# A shell starts background jobs with SIGINT ignored.
	env --default-signal=INT LD_PRELOAD="$faultlib" FAULT_PATH="$where" \
	    FAULT_HOW=$INTERRUPT "$@"
}
# left: staging directories that are still there
left() {
	find . -name '*optimfs*' | LC_ALL=C sort | tr '\n' ' '
}

status "reshard interrupted in its third file exits with 130" 130 at new/__1_0.distcp \
    "$OPTIMFS" reshard -j 1 --to dcp@5 "$ck" five
is "reshard names the staged part, and how to resume or give up" "$(cat err)" \
    "optimfs: OFS014 interrupted
optimfs: the finished parts are in $scratch/.five.optimfs: the same command continues from there; remove it to give up"
[ ! -e five ] && [ -d .five.optimfs ]
tap_result $? "interrupted reshard keeps the staged part and publishes nothing"
ok "the same reshard succeeds after the interrupt" "$OPTIMFS" reshard -j 1 --to dcp@5 "$ck" five
like "the same reshard resumes with what was done" \
    "$(cat err)" 'optimfs: continuing from */.five.optimfs, which has * kB of 752 kB'
is "the resumed reshard leaves no staging directory" "$(left)" ''
ok "diff finds no difference after the resumed reshard" "$OPTIMFS" diff "$ck" five

if command -v script >/dev/null; then
	script -qec "env --default-signal=INT LD_PRELOAD='$faultlib' FAULT_PATH=new/__1_0.distcp \
FAULT_HOW=$INTERRUPT '$OPTIMFS' reshard -j 1 --to dcp@5 '$ck' six" /dev/null >tty
	is "on a terminal the message begins on a line of its own, after ^C" \
	    "$(tr -d '\r' <tty | head -n 2)" "
optimfs: OFS014 interrupted"
	rm -rf .six.optimfs
else
	skip 1 "no script(1)"
fi

status "interrupted mkfs exits with 130" 130 at .new.optimfs/lock \
    "$OPTIMFS" mkfs --like "$ck" --layout dcp@3 new
is "interrupted mkfs says that nothing was made" "$(cat err)" \
    'optimfs: OFS014 interrupted: nothing was made in new'
[ ! -e new ] && [ -z "$(left)" ]
tap_result $? "interrupted mkfs leaves nothing" || diag "$(left)"
ok "the same mkfs succeeds after the interrupt" "$OPTIMFS" mkfs --like "$ck" --layout dcp@3 new

status "interrupted cp -r exits with 130" 130 at exp_avg_sq \
    "$OPTIMFS" cp -r "$ck" / all
like "interrupted cp -r says how much it did, and that the copied files are complete" \
    "$(cat err)" \
    "optimfs: OFS014 interrupted after * of 131 kB: files that are there are complete; \
the same command starts from the beginning"
is "interrupted cp -r leaves no partial file" "$(find all -name '*optimfs*')" ''
ok "the same cp -r succeeds after the interrupt" "$OPTIMFS" cp -r "$ck" / all
"$OPTIMFS" ls -R "$ck" | grep -v '/$' | LC_ALL=C sort >want
(cd all && find . -type f) | sed 's/^..//' | LC_ALL=C sort | cmp - want
tap_result $? "the same cp -r copies every file"

# reading COMMAND...: send SIGINT at the first read of a tensor
reading() {
	rm -f trace
	LD_PRELOAD="$faultlib" FAULT_TRACE=trace "$@" >trace.out
	env --default-signal=INT LD_PRELOAD="$faultlib" FAULT_HOW=$INTERRUPT \
	    FAULT_AT="$(grep -m 1 '	pread	.*distcp' trace | cut -f 1)" "$@"
}
again='the same command starts from the beginning'
# stops VERB WORDS COMMAND...: an interrupt ends VERB with these words
stops() {
	verb=$1 words=$2
	shift 2
	status "interrupted $verb exits with 130" 130 reading "$OPTIMFS" "$verb" "$@"
	like "interrupted $verb says how much it did, and what there is of its result" \
	    "$(cat err)" "optimfs: OFS014 interrupted$words; $again"
}
stops stat ' after * of 32.3 kB: nothing was changed or printed' -j 1 "$ck"
stops check ' after * of 32.3 kB: nothing was changed or printed' -j 1 "$ck"
stops report ' after * of 32.3 kB: nothing was changed, and no page was written' \
    -j 1 -o page.html "$ck"
is "interrupted report leaves the page as it was" "$(grep -c '</html>' page.html)" 1
stops diff ' after * of 131 kB: the rest was not compared, and nothing was changed' "$ck" five
stops fsck ' after * of 32.4 kB: the rest was not checked, and nothing was changed' \
    --data "$ck"
stops tar ' after * of 131 kB: the archive is incomplete' "$ck" /
stops cat ': the output is incomplete' "$ck" optim/state/norm.weight/exp_avg
stops cp ' after * of 48 B: nothing was written' "$ck" optim/state/norm.weight/exp_avg one

# opening COMMAND...: send SIGINT at the first read of the index
opening() {
	rm -f trace
	LD_PRELOAD="$faultlib" FAULT_TRACE=trace "$@" >trace.out
	env --default-signal=INT LD_PRELOAD="$faultlib" FAULT_HOW=$INTERRUPT \
	    FAULT_AT="$(grep -m 1 '	pread	.*\.metadata' trace | cut -f 1)" "$@"
}
for verb in info ls stat check map; do
	status "$verb interrupted while it opens exits with 130" 130 opening "$OPTIMFS" $verb "$ck"
	is "$verb interrupted while it opens says so" "$(cat err)" "optimfs: OFS014 interrupted: \
nothing was changed, and the output is incomplete; $again"
done

# A reader that reads nothing more after the first bytes: the pipe fills.
mkfifo pipe
sleep "$limit" <>pipe &
env --default-signal=TERM "$OPTIMFS" tar "$ck" / >pipe 2>said &
tar=$!
head -c 512 pipe >/dev/null
kill -TERM "$tar"
wait "$tar"
is "tar that waits for its reader ends with 130 when it is terminated" $? 130
like "tar that waits for its reader says that the archive is incomplete" "$(cat said)" \
    "optimfs: OFS014 interrupted after * of 131 kB: the archive is incomplete; $again"

# A daemon whose commit is held at a system call until the test lets it go on.
why=$(requires mount)
[ -z "$why" ] || {
	skip 20 "${why#*SKIP }"
	done_testing
}
mnt=$(point m)
cp -r "$ck" edited && chmod -R u+w edited
rm -f trace
LD_PRELOAD="$faultlib" FAULT_TRACE=trace "$OPTIMFS" mount -o rw edited "$mnt"
"$OPTIMFS" umount "$mnt"
# In the background the daemon alone gets the signal, in this test.
for front in "" -f; do
	status "mount $front -o rw interrupted while it opens exits with 130" 130 \
	    env --default-signal=INT LD_PRELOAD="$faultlib" FAULT_HOW=$INTERRUPT \
	    FAULT_AT="$(grep -m 1 '	pread	.*\.metadata' trace | cut -f 1)" \
	    "$OPTIMFS" mount $front -o rw edited "$mnt"
	is "mount $front says so" "$(cat err)" "optimfs: OFS014 interrupted: nothing was mounted"
	like "mount $front leaves nothing beside the checkpoint" "$(ls -d .edited.* 2>&1)" \
	    "*No such file*"
done
# A signal to the command alone, while its daemon is held at a read.
catches() { # PID: does it catch SIGTERM?
	catches_set=$(sed -n 's/^SigCgt:.//p' "/proc/$1/status" | tail -c 9)
	[ $((0x$catches_set & 0x4000)) != 0 ]
}
has_daemon() {
	catches "$1" && daemon=$(pgrep -P "$1")
}
gone() {
	! kill -0 "$1" 2>/dev/null
}
for o in ro rw; do
	rm -f gate trace
	LD_PRELOAD="$faultlib" FAULT_TRACE=trace "$OPTIMFS" mount -o $o edited "$mnt"
	"$OPTIMFS" umount "$mnt"
	env --default-signal=TERM LD_PRELOAD="$faultlib" FAULT_HOW=$WAIT \
	    FAULT_GATE="$scratch/gate" \
	    FAULT_AT="$(grep -m 1 '	pread	.*\.metadata' trace | cut -f 1)" \
	    "$OPTIMFS" mount -o $o edited "$mnt" 2>said &
	mounter=$!
	eventually has_daemon $mounter
	kill -TERM $mounter
	if [ $o = rw ]; then # waits for its daemon
		touch gate
		wait $mounter
		status=$?
	else
		wait $mounter
		status=$?
		touch gate
	fi
	is "mount -o $o that alone gets SIGTERM exits with 130" $status 130
	is "mount -o $o that alone gets SIGTERM says so" "$(cat said)" \
	    "optimfs: OFS014 interrupted: nothing was mounted"
	ok "mount -o $o that alone gets SIGTERM: its daemon ends" eventually gone "$daemon"
	is "mount -o $o that alone gets SIGTERM leaves no mount" "$(tap_mounts)" ""
done
rm -f gate
ok "mount with a held commit succeeds" env LD_PRELOAD="$faultlib" \
    FAULT_PATH=.distcp FAULT_HOW=$WAIT FAULT_GATE="$scratch/gate" \
    "$OPTIMFS" mount -o rw edited "$mnt"
dd if=/dev/zero of="$mnt/optim/state/norm.weight/exp_avg" bs=4 count=1 \
    conv=notrunc 2>/dev/null
"$OPTIMFS" umount --progress "$mnt" 2>said &
umount=$!
# Until umount has printed a line about a file or has ended. On a busy machine
# the first line may come before the first file.
said_or_ended() {
	grep -q ' left, ' said || ! kill -0 $umount 2>/dev/null
}
eventually said_or_ended
ok "a read does not wait for a commit in progress" timeout "$limit" \
    cat "$mnt/optim/state/norm.weight/step"
touch gate
wait $umount
is "umount --progress exits with 0" $? 0
sed 's/[0-9][0-9.]* [a-zA-Z]*B/N/g; s/[0-9][0-9]* s\b/T/g' said >plain
like "umount --progress prints percent, bytes, rate, time left and file" "$(grep -m 1 ' left, ' plain)" \
    'commit: * %, N of N, N/s, * left, *'
like "umount --progress prints a summary" "$(tail -1 plain)" 'commit: N in T, N/s'
ok "fsck accepts the committed checkpoint" "$OPTIMFS" fsck edited
done_testing
