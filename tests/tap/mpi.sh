# mpi.sh - jobs of several ranks, for tests; sourced after tap.sh
# SPDX-License-Identifier: Apache-2.0

OPTIMFS_MODULES=${OPTIMFS_MODULES:-$TOP_BUILDDIR/.libs}
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Tests that run in parallel must not share Open MPI's session directory.
TMPDIR=$scratch
# Open MPI leaks memory of libraries that it has unloaded, and takes some of its
# locks in both orders.
ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0
printf 'deadlock:openmpi\ndeadlock:libopen-pal\n' >"$scratch/mpi.supp"
TSAN_OPTIONS=$TSAN_OPTIONS:suppressions=$scratch/mpi.supp
export OPTIMFS_MODULES OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM \
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
