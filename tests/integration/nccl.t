#!/bin/sh
# nccl.t - gathering through GPUs when a GPU fails, or there is none
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
. "${TOP_SRCDIR:-.}/tests/tap/mpi.sh"

can_run_ranks
[ -e "$OPTIMFS_MODULES/optimfs-nccl.so" ] || skip_all "built without NCCL"
ck=$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w3/ckpt

fake() { # FAULTS COMMAND...: with the fake libraries
	fake_faults=$1
	shift
	FAKEGPU=$fake_faults \
	    LD_LIBRARY_PATH=$TOP_BUILDDIR/tests/support/fakegpu "$@"
}

spread "$ck" 3
mkdir -p "$scratch/one" && "$OPTIMFS" cp -r "$ck" / "$scratch/one/tree"

# Does COMMAND copy the checkpoint to got, as the local transport reads it?
same() { # NAME COMMAND...
	same_name=$1
	shift
	rm -rf "$scratch/got"
	status "$same_name: cp -r exits with 0" 0 "$@"
	cp "$scratch/err" "$scratch/said"
	ok "$same_name: cp -r copies the same bytes" diff -r "$scratch/one/tree" \
	    "$scratch/got"
}
[ -e "$TOP_BUILDDIR/tests/support/fakegpu/stamp" ] || {
	skip 1 "no fake libraries"
	done_testing
}
for o in gather=nccl gather=nccl,gpu_cache=64m gather=auto; do
	same "3 ranks, $o" fake "" ranks 3 "$OPTIMFS" cp -r -o "$o" \
	    "$nodes/%r" / "$scratch/got"
	is "3 ranks, $o: cp -r prints nothing" "$(cat "$scratch/said")" ""
done
same "1 rank" fake "" ranks 1 "$OPTIMFS" cp -r \
    -o gather=nccl,gpu_cache=64m "$ck" / "$scratch/got"
same "NCCL error on 3 ranks" fake async=0:1 ranks 3 "$OPTIMFS" cp -r \
    -o gather=nccl,gpu_cache=64m,timeout=8 "$nodes/%r" / "$scratch/got"
like "OFS901 says that 3 ranks go on over MPI" "$(cat "$scratch/said")" '*OFS901*MPI until ranks are connected again*'
same "NCCL error on 1 rank" fake async=0:0 ranks 1 "$OPTIMFS" cp -r \
    -o gather=nccl,gpu_cache=64m,timeout=8 "$ck" / "$scratch/got"
like "OFS901 says that 1 rank goes on over MPI" "$(cat "$scratch/said")" '*OFS901*MPI until ranks are connected again*'
same "gather=auto without a GPU" fake devices=0 ranks 3 "$OPTIMFS" cp -r \
    -o gather=auto "$nodes/%r" / "$scratch/got"
is "OFS903 is printed once for gather=auto without a GPU" \
    "$(grep -c 'OFS903.*gathering over MPI' "$scratch/said")" 1
status "gather=nccl without a GPU exits with 3" 3 fake devices=0 ranks 3 "$OPTIMFS" ls \
    -o gather=nccl "$nodes/%r"
is "OFS903 is printed once for gather=nccl without a GPU" "$(grep -c OFS903 "$scratch/err")" 1
same "without the NCCL module" env OPTIMFS_MODULES="$scratch/mpi" sh -c "
    mkdir -p '$scratch/mpi' &&
    cp '$TOP_BUILDDIR/.libs/optimfs-mpi.so' '$scratch/mpi' &&
    timeout $limit mpirun --oversubscribe -n 3 '$OPTIMFS' cp -r -o gather=auto \
	'$nodes/%r' / '$scratch/got'"
like "OFS903 names the missing optimfs-nccl.so" "$(cat "$scratch/said")" '*OFS903*optimfs-nccl.so*'

# A mount of three ranks, of which one has an error of NCCL once. What is received
# is kept: before they are connected again, no more than one tensor is read.
stat_of() { # NAME
	awk -v n="$1" '$1 == n { print $2 }' "$mnt/.optimfs/stats" 2>/dev/null
}
is_connected_again() {
	[ "$(stat_of gpu.connections)" = 2 ] && [ "$(stat_of gpu.used)" = 1 ]
}
if [ -z "$(tap_can_mount)" ]; then
	mnt=$(point again) tensor=model/layers.0.wq.weight
	fake async=0:1,times=1 ranks 3 "$OPTIMFS" mount -o mount_ranks=0 \
	    -o gather=nccl,gpu_cache=64m,direct "$nodes/%r" "$mnt" \
	    >"$scratch/log" 2>&1 </dev/null &
	job=$!
	eventually mountpoint -q "$mnt"
	ok "with an error of NCCL a tensor is read" cmp "$scratch/one/tree/$tensor" \
	    "$mnt/$tensor"
	eventually is_connected_again
	received=$(stat_of gpu.received)
	ok "the whole tree is read when ranks are connected again" \
	    diff -r "$scratch/one/tree" "$mnt"
	ok "it is received through GPUs again" \
	    [ "$(stat_of gpu.received)" -gt "${received:-0}" ]
	status "umount exits with 0" 0 "$OPTIMFS" umount "$mnt"
	wait "$job"
	is "the job exits with 0" $? 0
	like "the job says that ranks are connected again" "$(cat "$scratch/log")" \
	    '*NCCL is connected again; 3 of 3 ranks use it*'
fi

# The libraries that were linked, on a machine without GPUs. gpu.t tests them
# with GPUs.
if "$TOP_BUILDDIR/tests/bench/gpubench" count >"$scratch/out" 2>&1; then
	skip 1 "there are GPUs"
	done_testing
fi
status "real libraries: gather=nccl without a GPU exits with 3" 3 \
    ranks 2 "$OPTIMFS" ls -o gather=nccl \
    "$nodes/%r"
like "real libraries: OFS903 says that there is no usable GPU" \
    "$(cat "$scratch/err")" '*OFS903*no usable GPU*'
is "real libraries: OFS903 is printed once" "$(grep -c OFS903 "$scratch/err")" 1
same "real libraries, gather=auto without a GPU" ranks 3 "$OPTIMFS" cp -r -o gather=auto \
    "$nodes/%r" / "$scratch/got"
like "real libraries: gather=auto says that it gathers over MPI" "$(cat "$scratch/said")" \
    '*OFS903*no usable GPU*gathering over MPI*'
status "real libraries: gather=nccl without mpirun exits with 3" 3 \
    "$OPTIMFS" ls -o gather=nccl "$ck"
like "real libraries: OFS903 gives the same reason without mpirun" \
    "$(cat "$scratch/err")" '*OFS903*no usable GPU*'

why=$(tap_can_mount)
[ -z "$why" ] || {
	skip 1 "${why#*SKIP }"
	done_testing
}
mnt=$(point mnt)
status "mount with gather=nccl without a GPU exits with 3" 3 ranks 3 "$OPTIMFS" mount \
    -o gather=nccl "$nodes/%r" "$mnt"
like "mount with gather=nccl says that there is no usable GPU" \
    "$(cat "$scratch/err")" '*OFS903*no usable GPU*'
is "the failed mount with gather=nccl leaves no mount" "$(tap_mounts)" ""
ranks 3 "$OPTIMFS" mount -o gather=auto,gpu_cache=1g "$nodes/%r" "$mnt" \
    >"$scratch/log" 2>&1 </dev/null &
job=$!
eventually mountpoint -q "$mnt"
ok "mount with gather=auto without a GPU shows the whole tree" diff -r "$scratch/one/tree" "$mnt"
is "mount with gather=auto prints OFS903 once" \
    "$(grep -c 'OFS903.*gathering over MPI' "$scratch/log")" 1
not_ok ".optimfs/stats has no GPU counters without a GPU" grep gpu "$mnt/.optimfs/stats"
status "umount of the gather=auto mount exits with 0" 0 "$OPTIMFS" umount "$mnt"
wait "$job"
is "the gather=auto job exits with 0" $? 0
done_testing
