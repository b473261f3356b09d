# ranks.sh - mounts of several ranks, for tests; sourced after tap.sh
# SPDX-License-Identifier: Apache-2.0
#
# With mounts=no set before, nothing is mounted.

. "${TOP_SRCDIR:-.}/tests/tap/mpi.sh"

requires pgrep
[ "${mounts:=yes}" = no ] || [ -c /dev/fuse ] || skip_all "no /dev/fuse"
can_run_ranks
[ "$mounts" = no ] || tap_can_mount
data=$TOP_SRCDIR/tests/data/pytorch
spread_to=/ck mnt=$scratch/mnt other=$scratch/other
mkdir -p "$mnt" "$other"

together() { # copies all of them to one directory, for readers without ranks
	rm -rf "$scratch/all"
	mkdir "$scratch/all"
	cp -rp "$nodes"/*/ck/. "$scratch/all"
}
is_mounted() {
	tap_mounts | grep -qx "$1"
}
is_unmounted() {
	! is_mounted "$1"
}
# The guard of a rank that was killed detaches its mount, and ends, after the job.
nothing_left() {
	[ -z "$(pgrep -f "$OPTIMFS.*mount.*$scratch" | grep -vx $$)" ]
}
gone() { # PID: has it ended?
	eventually has_ended "$1"
}
has_ended() {
	! kill -0 "$1" 2>/dev/null
}
job=
start() { # N OPTIONS CHECKPOINT MOUNTPOINT [MPIRUN OPTION...]: waits for rank 0
	start_n=$1 start_o=$2 start_ck=$3 start_m=$4
	shift 4
	eventually is_unmounted "$(echo "$start_m" | sed s/%r/0/)"
	mpirun --oversubscribe -n "$start_n" "$@" "$OPTIMFS" mount \
	    -o "$start_o" "$start_ck" "$start_m" >"$scratch/log" 2>&1 \
	    </dev/null &
	job=$!
	start_m=$(echo "$start_m" | sed s/%r/0/)
	eventually is_mounted_or_ended "$start_m"
	is_mounted "$start_m" && return 0
	diag "$(head -n 3 "$scratch/log")"
	return 1
}
is_mounted_or_ended() {
	is_mounted "$1" || has_ended "$job"
}
stop() { # MOUNTPOINT [JOB]
	timeout "$limit" "$OPTIMFS" umount "$1" >"$scratch/err" 2>&1
	gone "${2:-$job}" || return 1
	wait "${2:-$job}"
}
pid_of() { # RANK
	for pid_p in $(pgrep -P "$job"); do
		tr '\0' '\n' <"/proc/$pid_p/environ" 2>/dev/null |
		    grep -qx "OMPI_COMM_WORLD_RANK=$1" && echo "$pid_p"
	done
}
left() { # stages next to the checkpoints
	find "$nodes" -name '.ck.optimfs'
}
