#!/bin/sh
# mpi.t - a checkpoint whose files are spread over the directories of several
# ranks
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
. "${TOP_SRCDIR:-.}/tests/tap/mpi.sh"

requires pgrep python3
can_run_ranks
data=$TOP_SRCDIR/tests/data/pytorch

# Without a mount: rank 0 runs the command, the other ranks serve their files.
ck=$data/dcp_fsdp2_w3/ckpt
spread "$ck" 4
ranks 4 "$OPTIMFS" ls -lR "$nodes/%r" >"$scratch/there" 2>"$scratch/err"
is "ls -lR on four ranks exits with 0" "$?" 0
"$OPTIMFS" ls -lR "$ck" >"$scratch/here"
ok "ls -lR on four ranks prints what it prints for one directory" \
    cmp "$scratch/here" "$scratch/there"
not_ok "ranks read no address together" ranks 2 "$OPTIMFS" info http://127.0.0.1:1/ck
like "the error says why" "$(cat "$scratch/err")" "*OFS932*on a server*"
# A rank of another version: the module has its version as a text.
mkdir "$scratch/other"
cp "$OPTIMFS_MODULES/optimfs-mpi.so" "$scratch/other"
sed -i 's/optimfs \([0-9]\)\.\([0-9.]*\)/optimfs X.\2/' "$scratch/other/optimfs-mpi.so"
not_ok "ranks of two versions do not work together" \
    timeout -k 5 "$limit" mpirun --oversubscribe -n 1 "$OPTIMFS" ls "$nodes/%r" : \
    -n 1 env OPTIMFS_MODULES="$scratch/other" "$OPTIMFS" ls "$nodes/%r"
like "the message has both versions" "$(cat "$scratch/err")" \
    '*OFS913*rank 0*is optimfs [0-9]*rank 1*is optimfs X.*'
# Slurm's PMIx does not set the variables of mpirun.
ranks 4 env -u OMPI_COMM_WORLD_SIZE "$OPTIMFS" ls -lR "$nodes/%r" \
    >"$scratch/there" 2>"$scratch/err"
is "ls -lR exits with 0 when only PMIX_RANK is set" "$?" 0
ok "ls -lR prints the same when only PMIX_RANK is set" cmp "$scratch/here" "$scratch/there"
status "fsck --data on four ranks exits with 0" 0 ranks 4 "$OPTIMFS" fsck -o work_ranks=all --data "$nodes/%r"
status "diff on four ranks finds no difference from one directory" 0 \
    ranks 4 "$OPTIMFS" diff "$ck" "$nodes/%r"
status "reshard on four ranks exits with 0" 0 ranks 4 "$OPTIMFS" reshard -o work_ranks=all --to dcp@2 "$nodes/%r" \
    "$scratch/resharded"
status "the checkpoint resharded on four ranks has the same values" 0 \
    "$OPTIMFS" diff "$ck" "$scratch/resharded"
status "transport=local reads only the directory of its rank" 3 "$OPTIMFS" fsck -o work_ranks=all \
    -o transport=local "$nodes/1"

# mpirun must exit with the status of the rank that failed, whichever it is.
cp -r "$nodes" "$scratch/cut"
cut=$(ls "$scratch/cut/2" | head -n 1)
truncate -s 50 "$scratch/cut/2/$cut"
status "fsck on four ranks exits with 1 for damage on rank 2" 1 ranks 4 "$OPTIMFS" fsck -o work_ranks=all \
    "$scratch/cut/%r"
status "reshard on four ranks exits with 3 for damage on rank 2" 3 ranks 4 "$OPTIMFS" reshard -o work_ranks=all \
    --to dcp@2 "$scratch/cut/%r" "$scratch/none"
status "an unknown option on four ranks exits with 2" 2 ranks 4 "$OPTIMFS" ls --bogus \
    "$nodes/%r"
status "transport=mpi without the MPI module exits with 4" 4 env OPTIMFS_MODULES=/nonexistent \
    "$OPTIMFS" ls -o transport=mpi "$ck"
like "OFS915 suggests transport=local" "$(cat "$scratch/err")" '*OFS915*transport=local*'

cp -r "$nodes" "$scratch/differ"
head -c 1000 /dev/zero >>"$scratch/differ/2/__0_0.distcp"
status "ls exits with 3 when two ranks have different files of one name" 3 \
    ranks 4 "$OPTIMFS" ls "$scratch/differ/%r"
like "OFS914 names the file and both ranks" "$(cat "$scratch/err")" \
    '*OFS914 __0_0.distcp:*on rank 1*on rank 2*'
is "OFS914 is printed once for all ranks" "$(grep -c OFS914 "$scratch/err")" 1
status "ls of a checkpoint that no rank has exits with 3" 3 ranks 2 "$OPTIMFS" ls /nonexistent/%r

# Ranks open a checkpoint of a run by its directory.
mkdir "$scratch/run"
cp -r "$ck" "$scratch/run/step-100"
cp -r "$ck" "$scratch/run/step-200"
for name in "" :latest /steps/200 :avg/100,200; do
	status "two ranks do not open ${name:-a run}" 3 ranks 2 "$OPTIMFS" ls "$scratch/run$name"
	case $name in
	"") want="the directory of one of its checkpoints, $scratch/run/NAME" ;;
	:avg*) want="one process reads: run the command without mpirun" ;;
	*) want="$scratch/run/step-200" ;;
	esac
	like "and say what they do open" "$(cat "$scratch/err")" "*OFS854*$want*"
done
ok "which they open" ranks 2 "$OPTIMFS" ls "$scratch/run/step-200"

# Who may read the files of another rank counts, ACLs and directories included.
spread "$ck" 2
chmod -R a+rX "$nodes"
access() {
	ranks 2 sh -c '"$1" tar "$0/%r" optim/param_groups/0/lr >"$0/tar.$OMPI_COMM_WORLD_RANK"' \
	    "$nodes" "$OPTIMFS" && tar -tvf "$nodes/tar.0" | cut -c1-10
}
is "files that all may read on both ranks can be read by all" "$(access)" -r--r--r--
chmod 750 "$nodes/1"
is "a directory of rank 1 that others may not enter counts on rank 0" "$(access)" -r--r-----
chmod 755 "$nodes/1"
file=$(find "$nodes/1" -type f | head -n 1)
chmod 640 "$file"
is "a file of rank 1 that others may not read counts on rank 0" "$(access)" -r--r-----
# user::rw-, user:1003:r--, group::---, mask::r--, other::---
if python3 -c 'import os, struct, sys
entries = (1, 6, 0xffffffff), (2, 4, 1003), (4, 0, 0xffffffff), (16, 4, 0xffffffff), \
    (32, 0, 0xffffffff)
os.setxattr(sys.argv[1], "system.posix_acl_access", struct.pack("<I", 2) +
    b"".join(struct.pack("<HHI", *e) for e in entries))' "$file" 2>"$scratch/err"; then
	is "an ACL of a file of rank 1 narrows rank 0 to the owner" "$(access)" -r--------
else
	skip 1 "no ACLs here: $(tail -n 1 "$scratch/err")"
fi

# A file of more than 2 GiB; its end is read below.
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
wait_for() { # N: until there are N mounts
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
}
stop() {
	for stop_m in $(tap_mounts | grep "^$mnt/"); do
		timeout "$limit" "$OPTIMFS" umount "$stop_m" >/dev/null 2>&1
	done
	gone "$job" && wait "$job" && return
	stop_status=$?
	sed 's/^/# /' "$scratch/log"
	return $stop_status
}
ended() { # PID: did it exit with 0?
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
nothing_left() { # the guard of a rank that was killed ends after its job
	[ -z "$(left_over)" ]
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
			eval "ok \"rank $r of $n shows the whole tree\" ended \$diff$r"
		done
		"$OPTIMFS" umount "$one"
		ok "the job of $n ranks ends after the last umount" stop
	done
done
ck=$data/dcp_fsdp2_w3/ckpt
spread "$ck" 4

# By default the first rank of each machine mounts.
start 4 ro "$nodes/%r" --bind-to none taskset -c 0
ok "four ranks on one machine make one mount" wait_for 1
if [ "$(nproc)" -gt 1 ]; then
	like "a rank that is bound to one CPU says so" "$(cat "$scratch/log")" \
	    '*one of * CPUs*--bind-to none*'
else
	skip 1 "one CPU"
fi
is "the one mount is that of rank 0" "$(tap_mounts | grep "^$mnt/")" "$mnt/0"
ok "the job with one mount ends after umount" stop
start 4 mount_ranks=1:3 "$nodes/%r"
ok "mount_ranks=1:3 makes two mounts" wait_for 2
is "mount_ranks=1:3 mounts on ranks 1 and 3" "$(tap_mounts | grep "^$mnt/" | sort | tr '\n' ' ')" \
    "$mnt/1 $mnt/3 "
ok "the job with two mounts ends after umount" stop
status "a missing mount point of rank 1 exits with 3" 3 ranks 4 "$OPTIMFS" mount \
    -o mount_ranks=1 "$nodes/%r" "$scratch/none"
# A rank that cannot mount, or not even open what it mounts.
touch "$mnt/2/full"
start 4 mount_ranks=all "$nodes/%r"
ok "the job ends when rank 2 cannot mount" gone "$job"
wait "$job"
is "the job exits with 2, as rank 2 alone would" "$?" 2
is "nothing is mounted then" "$(mounted)" 0
is "the reason is printed once, with the rank" \
    "$(grep -c 'OFS758 rank 2 (.*mount point .*/2: not empty' "$scratch/log") \
$(grep -c OFS758 "$scratch/log")" "1 1"
start 4 mount_ranks=all,keep_going "$nodes/%r"
ok "with keep_going the others mount" wait_for 3
like "and it says which one did not" "$(cat "$scratch/log")" '*OFS758 rank 2*mount point*'
ok "the other mounts have the files of all ranks" test -s "$mnt/3/optim/param_groups/0/lr"
for r in 0 1 3; do "$OPTIMFS" umount "$mnt/$r"; done
ok "a job without one mount ends after the last umount" gone "$job"
rm "$mnt/2/full"

# Ranks with different units files would show different trees.
flat=$data/fsdp1_local_flat_fullshard_w3
spread "$flat/ckpt" 2
sed 's/norm.bias/norm.other/' "$flat/units.json" >"$scratch/units"
export OPTIMFS nodes mnt
two_units() { # UNITS UNITS: rank 0 mounts with one, rank 1 with the other
	# One program on both ranks: Open MPI 5 sometimes crashed with two.
	ranks 2 sh -c '[ "$OMPI_COMM_WORLD_RANK" = 0 ] || shift
	    exec "$OPTIMFS" mount -o "mount_ranks=all,units=$1" "$nodes/%r" \
	        "$mnt/%r"' - "$1" "$2"
}
status "mount exits with 3 when two ranks have different trees" 3 \
    two_units "$flat/units.json" "$scratch/units"
like "OFS916 names the differing parameter and both ranks" "$(cat "$scratch/err")" \
    "*OFS916 '*norm*' differs between ranks 0 * and 1 *"
is "OFS916 is printed once for all ranks" "$(grep -c OFS916 "$scratch/err")" 1
is "ranks with different trees mount nothing" "$(mounted)" 0
spread "$ck" 4

# Many concurrent small reads.
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
status "1000 threads read the right bytes through four mounts" 0 \
    python3 "$scratch/many.py" "$one" "$mnt"
ok "the job with 1000 readers ends after umount" stop
"$OPTIMFS" umount "$one"

# Offsets beyond 2 GiB.
start 2 mount_ranks=0,type=raw "$scratch/big/%r/sparse"
if wait_for 1; then
	is "bytes beyond 2 GiB are read from another rank" \
	    "$(find "$mnt/0" -name 'sparse*' -type f \
	    -exec tail -c 3 {} \;)" end
else
	ok "a file of 3 GiB mounts on two ranks" false
	diag "$(head -n 3 "$scratch/log")"
fi
ok "the job with the large file ends after umount" stop

# A rank that dies before MPI has connected all ranks: MPI does not notice.
cat >"$scratch/dies" <<END
#!/bin/sh
[ "\$OMPI_COMM_WORLD_RANK" != 1 ] || kill -KILL \$\$
exec "$OPTIMFS" "\$@"
END
chmod +x "$scratch/dies"
ranks 3 --enable-recovery "$scratch/dies" ls -o timeout=1 "$nodes/%r" 2>"$scratch/err"
like "a job ends when a rank has died before MPI connects the ranks" \
    "$(cat "$scratch/err")" '*OFS912 MPI has not connected the ranks in 10 seconds*'

# A rank that does not answer in time.
start 4 mount_ranks=0,timeout=3,direct "$nodes/%r"
wait_for 1
rank=$(pid_of 2)
kill -STOP "$rank"
find "$mnt/0" -path '*optim/state*' -name exp_avg -exec cat {} \; \
    >/dev/null 2>"$scratch/err"
like "reading from a stopped rank fails with ETIMEDOUT" "$(cat "$scratch/err")" \
    '*timed out*'
like ".optimfs/errors has OFS912 with the number of the stopped rank" \
    "$(cat "$mnt/0/.optimfs/errors")" '*rank 2*OFS912*' ||
    like ".optimfs/errors has OFS912 for the stopped rank" \
        "$(cat "$mnt/0/.optimfs/errors")" '*OFS912*'
# After the timeout nobody waits for an answer, so the threads must poll at the
# idle rate of 100 times a second instead of 5000.
sleep 2
ok "threads return to idle polling after a request was given up" python3 -c '
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
ok "everything can be read after the rank continues" eventually sh -c \
    "find '$mnt/0' -type f -exec cat {} + >/dev/null"
ok "the job with the stopped rank ends after umount" stop

# A rank that never answers again, as after the loss of its machine.
start 4 mount_ranks=all,timeout=3 "$nodes/%r" --enable-recovery
wait_for 4
rank=$(pid_of 2)
others="$(pid_of 0) $(pid_of 1) $(pid_of 3)"
kill -STOP "$rank"
for r in 0 1 3; do "$OPTIMFS" umount "$mnt/$r"; done
for pid in $others; do
	ok "another rank's process ends without an answer from the stopped rank" gone "$pid"
done
kill -CONT "$rank"
ok "the job ends after the stopped rank continues" stop

# A rank dies during reads, and mpirun --enable-recovery keeps the others alive.
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
ok "the mount of the killed rank disappears" wait_for 3
rm "$scratch/reading"
wait "$readers"
find "$mnt/0" -type f -exec cat {} \; >/dev/null 2>"$scratch/err"
like "reading from the killed rank fails with EHOSTDOWN" "$(cat "$scratch/err")" '*Host is down*'
is "reads fail with EHOSTDOWN only" "$(grep -vc 'Host is down' "$scratch/err")" 0
ok "a file of another rank can be read after the death" cat "$mnt/0/optim/param_groups/0/lr"
like ".optimfs/errors has OFS911 with the number of the killed rank" \
    "$(cat "$mnt/0/.optimfs/errors")" '*OFS911*rank 2*'
stop
is "the other mounts end with the job" "$(mounted)" 0

# Without --enable-recovery mpirun ends all ranks when one dies.
start 4 mount_ranks=all "$nodes/%r"
wait_for 4
touch "$scratch/reading"
reader 0 & readers=$!
sleep 0.3
kill -KILL "$(pid_of 1)"
ok "all mounts disappear when mpirun ends the job" wait_for 0
ok "the job ends when a rank is killed" gone "$job"
rm "$scratch/reading"
wait "$readers"
ok "no process is left after a rank was killed" eventually nothing_left

# A rank does not need its guard, which is killed here before it is told what to
# detach: rank 1 comes late, and nothing is mounted without it.
cat >"$scratch/late" <<END
#!/bin/sh
until [ "\$OMPI_COMM_WORLD_RANK" = 0 ] || [ -e "$scratch/come" ]; do
	sleep 0.05
done
exec "$OPTIMFS" "\$@"
END
chmod +x "$scratch/late"
guard=
has_guard() { # of rank 0; not a child of a script that runs the program
	guard=
	for guard_p in $(pgrep -P "$(pid_of 0)" 2>/dev/null); do
		case $(readlink "/proc/$guard_p/exe") in
		*optimfs) guard=$guard_p ;;
		esac
	done
	[ -n "$guard" ]
}
is_dead() {
	grep -q '^State:.*Z' "/proc/$1/status"
}
has_come() {
	has_mounts 1 || has_ended "$job"
}
program=$OPTIMFS
OPTIMFS=$scratch/late
start 2 ro "$nodes/%r"
OPTIMFS=$program
eventually has_guard
kill -KILL "$guard"
eventually is_dead "$guard"
touch "$scratch/come"
eventually has_come
is "a rank mounts without its guard" "$(mounted)" 1
ok "the job of a rank without guard exits with 0" stop

done_testing
