#!/bin/sh
# interrupt.t - Ctrl-C ends long work in order, and says what is left
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

# The signal comes at a system call, not at a time: tests/support/faultlib.h
# has the numbers.
faultlib=$TOP_BUILDDIR/.libs/faultlib.so
[ -e "$faultlib" ] || bail_out "no $faultlib"
INTERRUPT=7 WAIT=8
sanitized && {
	echo "1..0 # SKIP a sanitizer does not want to be preloaded after faultlib.so"
	exit 0
}

ck=$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w3/ckpt
cd "$scratch" || exit 1
# at PATH COMMAND...: interrupted where it first changes what has PATH in its name
at() {
	where=$1
	shift
	# a shell job in the background has SIGINT ignored
	env --default-signal=INT LD_PRELOAD="$faultlib" FAULT_PATH="$where" \
	    FAULT_HOW=$INTERRUPT "$@"
}
# left: names that are neither what was asked for nor the test's own
left() {
	find . -name '*optimfs*' | LC_ALL=C sort | tr '\n' ' '
}

status "reshard is interrupted in its third file" 130 at new/__1_0.distcp \
    "$OPTIMFS" reshard -j 1 --to dcp@5 "$ck" five
is "and says where it is, and how to go on" "$(cat err)" \
    "optimfs: OFS014 interrupted
optimfs: what is done is in $scratch/.five.optimfs: the same command goes on from there; remove it to give up"
[ ! -e five ] && [ -d .five.optimfs ]
tap_result $? "what is done is there"
ok "the same command" "$OPTIMFS" reshard -j 1 --to dcp@5 "$ck" five
like "goes on from there" "$(cat err)" 'optimfs: goes on from */.five.optimfs: * kB of 751 kB are there already'
is "and leaves nothing" "$(left)" ''
ok "what it made is equal" "$OPTIMFS" diff "$ck" five

status "mkfs is interrupted" 130 at .new.optimfs/template/__1_0.distcp \
    "$OPTIMFS" mkfs --like "$ck" --layout dcp@3 new
is "and says that there is nothing" "$(cat err)" \
    'optimfs: OFS014 interrupted: nothing was made in new'
[ ! -e new ] && [ -z "$(left)" ]
tap_result $? "which is true" || diag "$(left)"
ok "the same command" "$OPTIMFS" mkfs --like "$ck" --layout dcp@3 new

status "cp -r is interrupted" 130 at exp_avg_sq \
    "$OPTIMFS" cp -r "$ck" / all
is "and says what is there" "$(sed 's/.*: interrupted/interrupted/' err)" \
    "optimfs: files that are there are complete; the same command copies all of them again
interrupted"
is "no file that is not complete" "$(find all -name '*optimfs*')" ''
ok "the same command" "$OPTIMFS" cp -r "$ck" / all
"$OPTIMFS" ls -R "$ck" | grep -v '/$' | LC_ALL=C sort >want
(cd all && find . -type f) | sed 's/^..//' | LC_ALL=C sort | cmp - want
tap_result $? "copies all"

# The commit of a mount, stopped at a call until it has been looked at.
(requires mount) >/dev/null || {
	skip 6 "no mount"
	done_testing
}
mnt=$(point m)
cp -r "$ck" edited && chmod -R u+w edited
ok "a mount that stops in its commit" env LD_PRELOAD="$faultlib" \
    FAULT_PATH=.distcp FAULT_HOW=$WAIT FAULT_GATE="$scratch/gate" \
    "$OPTIMFS" mount -o rw edited "$mnt"
dd if=/dev/zero of="$mnt/optim/state/norm.weight/exp_avg" bs=4 count=1 \
    conv=notrunc 2>/dev/null
"$OPTIMFS" umount --progress "$mnt" 2>said &
umount=$!
# until it has said something, or ended
said_or_ended() {
	[ -s said ] || ! kill -0 $umount 2>/dev/null
}
eventually said_or_ended
ok "who reads does not wait for the commit" timeout "$limit" \
    cat "$mnt/optim/state/norm.weight/step"
touch gate
wait $umount
is "it ends well" $? 0
sed 's/[0-9][0-9.]* [a-zA-Z]*B/N/g; s/[0-9][0-9]* s\b/T/g' said >plain
like "in percent, bytes, rate, time and file" "$(head -1 plain)" \
    'commit: * %, N of N, N/s, * left, *'
like "and what it came to" "$(tail -1 plain)" 'commit: N in T, N/s'
ok "a byte was committed" "$OPTIMFS" fsck edited
done_testing
