#!/bin/sh
# nccl.t - ranks that gather through GPUs, real ones and such as are none
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"

requires mpirun
OPTIMFS_MODULES=${OPTIMFS_MODULES:-$TOP_BUILDDIR/.libs}
[ -e "$OPTIMFS_MODULES/optimfs-mpi.so" ] || skip_all "built without MPI"
[ -e "$OPTIMFS_MODULES/optimfs-nccl.so" ] || skip_all "built without NCCL"
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
TMPDIR=$scratch
export OPTIMFS_MODULES OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM \
    TMPDIR
timeout 30 mpirun --oversubscribe -n 2 true >"$scratch/err" 2>&1 ||
    skip_all "mpirun does not run here: $(head -n 1 "$scratch/err")"
ck=$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w3/ckpt

ranks() { # N COMMAND...: as so many ranks
	ranks_n=$1
	shift
	timeout -k 5 120 mpirun --oversubscribe -n "$ranks_n" "$@"
}
fake() { # FAULTS COMMAND...: with the fake libraries
	fake_faults=$1
	shift
	FAKEGPU=$fake_faults \
	    LD_LIBRARY_PATH=$TOP_BUILDDIR/tests/support/fakegpu "$@"
}

nodes=$scratch/nodes
i=0
for f in $(ls -A "$ck"); do
	mkdir -p "$nodes/$((i % 3))"
	cp -p "$ck/$f" "$nodes/$((i % 3))"
	i=$((i + 1))
done
mkdir -p "$scratch/one" && "$OPTIMFS" cp -r "$ck" / "$scratch/one/tree"

# All of a checkpoint, by COMMAND..., is what the local transport reads.
same() { # NAME COMMAND...
	same_name=$1
	shift
	rm -rf "$scratch/got"
	status "$same_name" 0 "$@"
	cp "$scratch/err" "$scratch/said"
	ok "$same_name: the same bytes" diff -r "$scratch/one/tree" \
	    "$scratch/got"
}
[ -e "$TOP_BUILDDIR/tests/support/fakegpu/stamp" ] || {
	skip 1 "no fake libraries"
	done_testing
}
for o in gather=nccl gather=nccl,gpu_cache=64m gather=auto; do
	same "3 ranks, $o" fake "" ranks 3 "$OPTIMFS" cp -r -o "$o" \
	    "$nodes/%r" / "$scratch/got"
	is "3 ranks, $o: nothing is said" "$(cat "$scratch/said")" ""
done
same "1 rank sends to itself" fake "" ranks 1 "$OPTIMFS" cp -r \
    -o gather=nccl,gpu_cache=64m "$ck" / "$scratch/got"
same "an error on the way" fake async=0:1 ranks 3 "$OPTIMFS" cp -r \
    -o gather=nccl,gpu_cache=64m,timeout=8 "$nodes/%r" / "$scratch/got"
like "is said" "$(cat "$scratch/said")" '*OFS901*MPI from now on*'
same "an error when alone" fake async=0:0 ranks 1 "$OPTIMFS" cp -r \
    -o gather=nccl,gpu_cache=64m,timeout=8 "$ck" / "$scratch/got"
like "is said, too" "$(cat "$scratch/said")" '*OFS901*MPI from now on*'
same "auto without a GPU" fake devices=0 ranks 3 "$OPTIMFS" cp -r \
    -o gather=auto "$nodes/%r" / "$scratch/got"
is "is said once" "$(grep -c 'OFS903.*gathering over MPI' "$scratch/said")" 1
status "nccl without a GPU" 3 fake devices=0 ranks 3 "$OPTIMFS" ls \
    -o gather=nccl "$nodes/%r"
is "is an error, once" "$(grep -c OFS903 "$scratch/err")" 1
same "without CUDA's libraries" env OPTIMFS_MODULES="$scratch/mpi" sh -c "
    mkdir -p '$scratch/mpi' &&
    cp '$TOP_BUILDDIR/.libs/optimfs-mpi.so' '$scratch/mpi' &&
    timeout 60 mpirun --oversubscribe -n 3 '$OPTIMFS' cp -r -o gather=auto \
	'$nodes/%r' / '$scratch/got'"
like "it is said why" "$(cat "$scratch/said")" '*OFS903*optimfs-nccl.so*'

# Real ones.
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
if [ "$gpus" -gt 0 ]; then
	same "a real GPU" ranks 1 "$OPTIMFS" cp -r \
	    -o gather=nccl,gpu_cache=64m "$ck" / "$scratch/got"
	is "a real GPU: nothing is said" "$(grep OFS "$scratch/said")" ""
else
	skip 1 "no GPU"
fi
done_testing
