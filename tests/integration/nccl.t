#!/bin/sh
# nccl.t - ranks that gather through GPUs that fail, or are not there
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
timeout "$limit" mpirun --oversubscribe -n 2 true >"$scratch/err" 2>&1 ||
    skip_all "mpirun does not run here: $(head -n 1 "$scratch/err")"
ck=$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w3/ckpt

ranks() { # N COMMAND...: as so many ranks
	ranks_n=$1
	shift
	timeout -k 5 "$limit" mpirun --oversubscribe -n "$ranks_n" "$@"
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
    timeout $limit mpirun --oversubscribe -n 3 '$OPTIMFS' cp -r -o gather=auto \
	'$nodes/%r' / '$scratch/got'"
like "it is said why" "$(cat "$scratch/said")" '*OFS903*optimfs-nccl.so*'

# The libraries that were linked, where there is no GPU for them (gpu.t has
# those that have one).
if "$TOP_BUILDDIR/tests/bench/gpubench" count >"$scratch/out" 2>&1; then
	skip 1 "there are GPUs"
	done_testing
fi
status "real libraries, no GPU, nccl" 3 ranks 2 "$OPTIMFS" ls -o gather=nccl \
    "$nodes/%r"
like "no GPU is the reason" "$(cat "$scratch/err")" '*OFS903*no usable GPU*'
is "once" "$(grep -c OFS903 "$scratch/err")" 1
same "real libraries, no GPU, auto" ranks 3 "$OPTIMFS" cp -r -o gather=auto \
    "$nodes/%r" / "$scratch/got"
like "no GPU is the reason" "$(cat "$scratch/said")" \
    '*OFS903*no usable GPU*gathering over MPI*'
status "not one of several ranks, nccl" 3 "$OPTIMFS" ls -o gather=nccl "$ck"
like "the same reason" "$(cat "$scratch/err")" '*OFS903*no usable GPU*'

why=$(tap_can_mount)
[ -z "$why" ] || {
	skip 1 "${why#*SKIP }"
	done_testing
}
mnt=$(point mnt)
status "a mount with nccl and no GPU" 3 ranks 3 "$OPTIMFS" mount \
    -o gather=nccl "$nodes/%r" "$mnt"
like "fails for it" "$(cat "$scratch/err")" '*OFS903*no usable GPU*'
is "and mounts nothing" "$(tap_mounts)" ""
ranks 3 "$OPTIMFS" mount -o gather=auto,gpu_cache=1g "$nodes/%r" "$mnt" \
    >"$scratch/log" 2>&1 </dev/null &
job=$!
daemons="$daemons $job"
eventually mountpoint -q "$mnt"
ok "auto mounts, and shows all" diff -r "$scratch/one/tree" "$mnt"
is "it says once why not through GPUs" \
    "$(grep -c 'OFS903.*gathering over MPI' "$scratch/log")" 1
not_ok "there is nothing to count of GPUs" grep gpu "$mnt/.optimfs/stats"
status "unmount" 0 "$OPTIMFS" umount "$mnt"
wait "$job"
is "the job ends well" $? 0
done_testing
