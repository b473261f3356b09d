# mpi.sh - jobs of several ranks, for tests; sourced after tap.sh
# SPDX-License-Identifier: Apache-2.0

OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Tests that run in parallel must not share Open MPI's session directory.
TMPDIR=$scratch
# Open MPI leaks memory of libraries that it has unloaded, and takes some of its
# locks in both orders.
ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0
printf 'deadlock:openmpi\ndeadlock:libopen-pal\n' >"$scratch/mpi.supp"
TSAN_OPTIONS=$TSAN_OPTIONS:suppressions=$scratch/mpi.supp
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM \
    TMPDIR ASAN_OPTIONS TSAN_OPTIONS

can_run_ranks() { # skips all tests if not
	[ -e "$OPTIMFS_MODULES/optimfs-mpi.so" ] || skip_all "built without MPI"
	requires mpirun
	timeout "$limit" mpirun --oversubscribe -n 2 true >"$scratch/err" 2>&1 ||
	    skip_all "mpirun does not run here: $(head -n 1 "$scratch/err")"
}
ranks() { # N COMMAND...: runs it as N ranks
	ranks_n=$1
	shift
	timeout -k 5 "$limit" mpirun --oversubscribe -n "$ranks_n" "$@"
}
# Copies the files of a checkpoint in turn to the directories $nodes/0,
# $nodes/1, ..., or to the directory $spread_to in each.
nodes=$scratch/nodes spread_to=
spread() { # CHECKPOINT N
	rm -rf "$nodes"
	for spread_i in $(seq 0 $(($2 - 1))); do
		mkdir -p "$nodes/$spread_i$spread_to"
	done
	spread_i=0
	for spread_f in $(ls -A "$1"); do
		cp -rp "$1/$spread_f" "$nodes/$((spread_i % $2))$spread_to"
		spread_i=$((spread_i + 1))
	done
}
