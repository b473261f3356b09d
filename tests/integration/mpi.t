#!/bin/sh
# mpi.t - one checkpoint in the directories of several ranks
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"

requires mpirun pgrep python3
OPTIMFS_MODULES=${OPTIMFS_MODULES:-$TOP_BUILDDIR/.libs}
[ -e "$OPTIMFS_MODULES/optimfs-mpi.so" ] || skip_all "built without MPI"
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# a directory of its own: tests may run beside each other
TMPDIR=$scratch
# Open MPI takes some of its own locks in one order and in the other.
printf 'deadlock:openmpi\ndeadlock:libopen-pal\n' >"$scratch/mpi.supp"
TSAN_OPTIONS=${TSAN_OPTIONS:+$TSAN_OPTIONS:}suppressions=$scratch/mpi.supp
export OPTIMFS_MODULES OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM \
    TMPDIR TSAN_OPTIONS
timeout "$limit" mpirun --oversubscribe -n 2 true >"$scratch/err" 2>&1 ||
    skip_all "mpirun does not run here: $(head -n 1 "$scratch/err")"
data=$TOP_SRCDIR/tests/data/pytorch

ranks() { # N COMMAND...: as so many ranks
	ranks_n=$1
	shift
	timeout -k 5 $limit mpirun --oversubscribe -n "$ranks_n" "$@"
}

# Every file of a checkpoint to one of the directories 0, 1, ... of nodes.
nodes=$scratch/nodes
spread() { # CHECKPOINT N
	rm -rf "$nodes"
	spread_i=0
	for spread_f in $(ls -A "$1"); do
		mkdir -p "$nodes/$((spread_i % $2))"
		cp -p "$1/$spread_f" "$nodes/$((spread_i % $2))"
		spread_i=$((spread_i + 1))
	done
	for spread_i in $(seq 0 $(($2 - 1))); do
		mkdir -p "$nodes/$spread_i"
	done
}

# Without a mount: the first rank works, the others serve it.
ck=$data/dcp_fsdp2_w3/ckpt
spread "$ck" 4
ranks 4 "$OPTIMFS" ls -lR "$nodes/%r" >"$scratch/there" 2>"$scratch/err"
is "ls" "$?" 0
"$OPTIMFS" ls -lR "$ck" >"$scratch/here"
ok "shows what one directory would" cmp "$scratch/here" "$scratch/there"
# Slurm's PMIx does not set the variables of mpirun.
ranks 4 env -u OMPI_COMM_WORLD_SIZE "$OPTIMFS" ls -lR "$nodes/%r" \
    >"$scratch/there" 2>"$scratch/err"
is "ls, where only PMIX_RANK says that there are ranks" "$?" 0
ok "shows the same" cmp "$scratch/here" "$scratch/there"
status "fsck --data" 0 ranks 4 "$OPTIMFS" fsck --data "$nodes/%r"
status "diff, of two checkpoints" 0 ranks 4 "$OPTIMFS" diff "$ck" "$nodes/%r"
status "reshard" 0 ranks 4 "$OPTIMFS" reshard --to dcp@2 "$nodes/%r" \
    "$scratch/resharded"
status "writes the same values" 0 "$OPTIMFS" diff "$ck" "$scratch/resharded"
status "transport=local sees one directory" 3 "$OPTIMFS" fsck \
    -o transport=local "$nodes/1"

# The exit status of mpirun is that of the rank that failed, whichever it is.
cp -r "$nodes" "$scratch/cut"
cut=$(ls "$scratch/cut/2" | head -n 1)
truncate -s 50 "$scratch/cut/2/$cut"
status "fsck that finds damage on rank 2" 1 ranks 4 "$OPTIMFS" fsck \
    "$scratch/cut/%r"
status "reshard of what is damaged there" 3 ranks 4 "$OPTIMFS" reshard \
    --to dcp@2 "$scratch/cut/%r" "$scratch/none"
status "an option that there is not" 2 ranks 4 "$OPTIMFS" ls --bogus \
    "$nodes/%r"
status "several ranks without the module" 4 env OPTIMFS_MODULES=/nonexistent \
    "$OPTIMFS" ls -o transport=mpi "$ck"
like "say what to do" "$(cat "$scratch/err")" '*OFS915*transport=local*'

cp -r "$nodes" "$scratch/differ"
head -c 1000 /dev/zero >>"$scratch/differ/2/__0_0.distcp"
status "two files of one name" 3 ranks 4 "$OPTIMFS" ls "$scratch/differ/%r"
like "are named with both ranks" "$(cat "$scratch/err")" \
    '*OFS914 __0_0.distcp:*on rank 1*on rank 2*'
is "once" "$(grep -c OFS914 "$scratch/err")" 1
status "a checkpoint that no rank has" 3 ranks 2 "$OPTIMFS" ls /nonexistent/%r

# A file of more than 2 GiB, of which the end will be read.
mkdir -p "$scratch/big/0" "$scratch/big/1"
truncate -s 3G "$scratch/big/1/sparse"
printf end >>"$scratch/big/1/sparse"
touch "$scratch/big/0/none"

[ -c /dev/fuse ] || {
	skip 1 "no /dev/fuse"
	done_testing
}

# With a mount.
mnt=$scratch/mnt
for r in 0 1 2 3 4 5 6 7; do mkdir -p "$mnt/$r"; done
job=
mounted() {
	tap_mounts | grep -c "^$mnt/"
}
wait_for() { # N: so many mounts
	eventually has_mounts "$1"
}
has_mounts() {
	[ "$(mounted)" = "$1" ]
}
gone() { # PID: has it ended?
	eventually has_ended "$1"
}
has_ended() {
	! kill -0 "$1" 2>/dev/null
}
start() { # N OPTIONS CHECKPOINT [MPIRUN OPTION...]
	start_n=$1 start_o=$2 start_ck=$3
	shift 3
	mpirun --oversubscribe -n "$start_n" "$@" "$OPTIMFS" mount \
	    -o "$start_o" "$start_ck" "$mnt/%r" >"$scratch/log" 2>&1 \
	    </dev/null &
	job=$!
	daemons="$daemons $job"
}
stop() {
	for stop_m in $(tap_mounts | grep "^$mnt/"); do
		timeout "$limit" "$OPTIMFS" umount "$stop_m" >/dev/null 2>&1
	done
	gone "$job" || return 1
	wait "$job"
}
ended() { # PID: well?
	wait "$1"
}
pid_of() { # RANK
	for pid_p in $(pgrep -P "$job"); do
		tr '\0' '\n' <"/proc/$pid_p/environ" 2>/dev/null |
		    grep -qx "OMPI_COMM_WORLD_RANK=$1" && echo "$pid_p"
	done
}
left_over() { # processes with our scratch directory on their command line
	pgrep -f "$OPTIMFS.*mount.*$nodes" | grep -vx $$
}

tap_can_mount
one=$(point one)
for n in 2 4 8; do
	for ck in "$data/dcp_fsdp2_w3/ckpt" \
	    "$data/fsdp1_sharded_orig_hybridshard_w4/ckpt_rankfiles"; do
		spread "$ck" $n
		"$OPTIMFS" mount "$ck" "$one"
		start $n mount_ranks=all "$nodes/%r"
		ok "$n ranks mount $(basename "$(dirname "$ck")")" wait_for $n
		for r in $(seq 0 $((n - 1))); do
			diff -r "$one" "$mnt/$r" >"$scratch/diff$r" 2>&1 &
			eval "diff$r=\$!"
		done
		for r in $(seq 0 $((n - 1))); do
			eval "ok \"rank $r shows all of it\" ended \$diff$r"
		done
		"$OPTIMFS" umount "$one"
		ok "the job ends with its last mount" stop
	done
done
ck=$data/dcp_fsdp2_w3/ckpt
spread "$ck" 4

# One mount a machine, unless it is said otherwise.
start 4 ro "$nodes/%r"
ok "one mount a machine" wait_for 1
is "by its first rank" "$(tap_mounts | grep "^$mnt/")" "$mnt/0"
ok "and it ends" stop
start 4 mount_ranks=1:3 "$nodes/%r"
ok "those that are named" wait_for 2
is "mount" "$(tap_mounts | grep "^$mnt/" | sort | tr '\n' ' ')" \
    "$mnt/1 $mnt/3 "
ok "and they end" stop
status "a mount point that rank 1 does not have" 3 ranks 4 "$OPTIMFS" mount \
    -o mount_ranks=1 "$nodes/%r" "$scratch/none"

# Ranks with a file of their own that differs would show different trees.
flat=$data/fsdp1_local_flat_fullshard_w3
spread "$flat/ckpt" 2
sed 's/norm.bias/norm.other/' "$flat/units.json" >"$scratch/units"
two_units() { # UNITS UNITS: rank 0 mounts with one, rank 1 with the other
	timeout -k 5 $limit mpirun --oversubscribe -n 1 "$OPTIMFS" mount \
	    -o mount_ranks=all,units="$1" "$nodes/%r" "$mnt/%r" : -n 1 \
	    "$OPTIMFS" mount -o mount_ranks=all,units="$2" "$nodes/%r" "$mnt/%r"
}
status "different trees" 3 two_units "$flat/units.json" "$scratch/units"
like "are named with both ranks" "$(cat "$scratch/err")" \
    "*OFS916 '*norm*' differs between ranks 0 * and 1 *"
is "once" "$(grep -c OFS916 "$scratch/err")" 1
is "and nothing is mounted" "$(mounted)" 0
spread "$ck" 4

# Many small reads at once.
cat >"$scratch/many.py" <<'END'
import os, sys, threading
one, mnt = sys.argv[1:]
files = [os.path.relpath(os.path.join(d, f), one)
         for d, _, fs in os.walk(one) for f in fs]
want = {f: open(f"{one}/{f}", "rb").read() for f in files}
bad = []
def read(i):
    f = files[i % len(files)]
    got = open(f"{mnt}/{i % 4}/{f}", "rb").read()
    if got != want[f]:
        bad.append(f)
threads = [threading.Thread(target=read, args=(i,)) for i in range(1000)]
for t in threads:
    t.start()
for t in threads:
    t.join()
sys.exit(len(bad) != 0)
END
"$OPTIMFS" mount "$ck" "$one"
start 4 mount_ranks=all,direct "$nodes/%r"
wait_for 4
status "1000 readers at once" 0 python3 "$scratch/many.py" "$one" "$mnt"
ok "the job ends" stop
"$OPTIMFS" umount "$one"

# Far into a large file.
start 2 mount_ranks=0,type=raw "$scratch/big/%r/sparse"
if wait_for 1; then
	is "bytes behind 2 GiB" "$(find "$mnt/0" -name 'sparse*' -type f \
	    -exec tail -c 3 {} \;)" end
else
	ok "a large file is mounted" false
	diag "$(head -n 3 "$scratch/log")"
fi
ok "the job ends" stop

# A rank that does not answer.
start 4 mount_ranks=0,timeout=3,direct "$nodes/%r"
wait_for 1
rank=$(pid_of 2)
kill -STOP "$rank"
find "$mnt/0" -path '*optim/state*' -name exp_avg -exec cat {} \; \
    >/dev/null 2>"$scratch/err"
like "a rank that is stopped: ETIMEDOUT" "$(cat "$scratch/err")" \
    '*timed out*'
like "with its number" "$(cat "$mnt/0/.optimfs/errors")" '*rank 2*OFS912*' ||
    like "or at least the code" "$(cat "$mnt/0/.optimfs/errors")" '*OFS912*'
# Nobody waits for its answers any more: the others rest as if nothing were
# asked, which is 100 times a second. While something is asked it is 5000.
sleep 2
ok "what was given up keeps nobody awake" python3 -c '
import glob, sys, time
def woken():
    return sum(int(line.split()[1])
               for name in glob.glob("/proc/%s/task/*/status" % sys.argv[1])
               for line in open(name) if line.startswith("voluntary"))
n, began = woken(), time.monotonic()
time.sleep(3)
rate = (woken() - n) / (time.monotonic() - began)
print("# %d times a second" % rate)
sys.exit(rate > 800)' "$(pid_of 0)"
kill -CONT "$rank"
sleep 1
ok "it goes on: all can be read" sh -c \
    "find '$mnt/0' -type f -exec cat {} + >/dev/null"
ok "the job ends" stop

# A rank that is silent for ever, as one whose machine is gone.
start 4 mount_ranks=all,timeout=3 "$nodes/%r" --enable-recovery
wait_for 4
rank=$(pid_of 2)
others="$(pid_of 0) $(pid_of 1) $(pid_of 3)"
kill -STOP "$rank"
for r in 0 1 3; do "$OPTIMFS" umount "$mnt/$r"; done
for pid in $others; do
	ok "a process leaves without it" gone "$pid"
done
kill -CONT "$rank"
ok "the job ends" stop

# A rank that dies while others read, and a launcher that lets them live.
reader() {
	while [ -e "$scratch/reading" ]; do
		find "$mnt/$1" -type f -exec cat {} + >/dev/null 2>&1
	done
}
touch "$scratch/reading"
start 4 mount_ranks=all,direct,timeout=10 "$nodes/%r" --enable-recovery
wait_for 4
reader 0 & readers=$!
sleep 0.3
kill -KILL "$(pid_of 2)"
ok "its mount goes" wait_for 3
rm "$scratch/reading"
wait "$readers"
find "$mnt/0" -type f -exec cat {} \; >/dev/null 2>"$scratch/err"
like "what it had: EHOSTDOWN" "$(cat "$scratch/err")" '*Host is down*'
is "and nothing else" "$(grep -vc 'Host is down' "$scratch/err")" 0
ok "other files can be read" cat "$mnt/0/optim/param_groups/0/lr"
like "it is said which" "$(cat "$mnt/0/.optimfs/errors")" '*OFS911*rank 2*'
stop
is "the others end" "$(mounted)" 0

# The usual launcher ends all.
start 4 mount_ranks=all "$nodes/%r"
wait_for 4
touch "$scratch/reading"
reader 0 & readers=$!
sleep 0.3
kill -KILL "$(pid_of 1)"
ok "all mounts go with a rank that dies" wait_for 0
ok "the job, too" gone "$job"
rm "$scratch/reading"
wait "$readers"
sleep 0.5
is "and no process is left" "$(left_over)" ""

done_testing
