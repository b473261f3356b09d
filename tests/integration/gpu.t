#!/bin/sh
# gpu.t - gathering through GPUs, with fake libraries and with real ones where
# there are GPUs
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
. "${TOP_SRCDIR:-.}/tests/tap/mpi.sh"

bench=$TOP_BUILDDIR/tests/bench/gpubench
gather=$TOP_BUILDDIR/tests/unit/gpu_gather.t
fakes=$TOP_BUILDDIR/tests/support/fakegpu
[ -e "$OPTIMFS_MODULES/optimfs-nccl.so" ] || skip_all "built without NCCL"
: "${GPU_LIBRARIES:=fake real}"
[ -x "$bench" ] && [ -x "$gather" ] ||
    skip_all "its programs are not built: make check builds them"
[ -e "$fakes/stamp" ] || [ "$GPU_LIBRARIES" = real ] ||
    skip_all "its libraries are not built: make check builds them"
unset FAKEGPU

# with COMMAND...: run it with the libraries under test; $faults are those of
# the fake ones
faults=
with() {
	if [ "$libraries" = fake ]; then
		FAKEGPU=$faults LD_LIBRARY_PATH=$fakes timeout -k 5 $limit "$@"
	else
		timeout -k 5 $limit "$@"
	fi
}
# With $apart, NCCL takes each rank for one of another machine, so that they may
# share a GPU.
apart=
printf '#!/bin/sh\nNCCL_HOSTID=$OMPI_COMM_WORLD_RANK exec "$@"\n' >"$scratch/apart"
chmod +x "$scratch/apart"
ranks() { # N COMMAND...: run it as N ranks
	ranks_n=$1
	shift
	with mpirun --oversubscribe -n "$ranks_n" ${apart:+"$scratch/apart"} "$@"
}
no_mpi=$(can_run_ranks)
no_mount=$(tap_can_mount)

# Is a copy of CHECKPOINT through the GPUs of N ranks equal to one without GPUs?
same() { # NAME N OPTIONS CHECKPOINT
	spread "$4" "$2"
	rm -rf "$scratch/want" "$scratch/got"
	"$OPTIMFS" cp -r "$4" / "$scratch/want"
	status "$1: cp -r through GPUs exits with 0" 0 \
	    ranks "$2" "$OPTIMFS" cp -r -o work_ranks=all -o "gather=nccl$3" \
	    "$nodes/%r" / "$scratch/got"
	is "$1: cp -r through GPUs prints no error code" "$(grep OFS "$scratch/err")" ""
	ok "$1: cp -r through GPUs copies the same bytes" diff -r "$scratch/want" "$scratch/got"
	rm -rf "$scratch/want" "$scratch/got"
}

data=$TOP_SRCDIR/tests/data
fixtures() { # N
	for f in dcp_fsdp2_w3/ckpt fsdp1_sharded_orig_hybridshard_w4/ckpt_rankfiles; do
		same "$libraries, $1 ranks${apart:+ of one GPU}, $f" "$1" ,gpu_cache=64m \
		    "$data/pytorch/$f"
	done
}

# Several MiB. Resharding to dcp@3 also gathers strided columns.
large() { # N
	if [ ! -e "$scratch/large" ]; then
		"$TOP_BUILDDIR/tests/bench/mkdcp" -n 2 -s "$rows,1024" -r 8 \
		    "$scratch/large" || return
		"$OPTIMFS" reshard --to dcp@3 "$scratch/large" \
		    "$scratch/resharded"
	fi
	for o in "" ,gpu_cache=16m; do
		spread "$scratch/large" "$1"
		rm -rf "$scratch/got"
		status "$libraries, $1 ranks${apart:+ of one GPU}, reshard$o exits with 0" 0 ranks "$1" \
		    "$OPTIMFS" reshard -o work_ranks=all -o "gather=nccl$o" --to dcp@3 \
		    "$nodes/%r" "$scratch/got"
		is "$libraries, $1 ranks${apart:+ of one GPU}, reshard$o prints no error code" \
		    "$(grep OFS "$scratch/err")" ""
		ok "$libraries, $1 ranks${apart:+ of one GPU}, reshard$o writes the same files" \
		    diff -r "$scratch/resharded" "$scratch/got"
	done
}

# A mount with a GPU cache: the second read needs no disk.
stat_of() { # NAME
	awk -v n="$1" '$1 == n { print $2 }' "$mnt/.optimfs/stats"
}
mnt=$scratch/mnt
wait_for_mount() {
	eventually is_mounted_or_ended
	[ -n "$(tap_mounts)" ]
}
is_mounted_or_ended() {
	[ -n "$(tap_mounts)" ] || ! kill -0 "$job" 2>/dev/null
}
read_twice() {
	mkdir -p "$mnt" "$scratch/large-tree"
	[ -n "$(ls "$scratch/large-tree")" ] ||
	    "$OPTIMFS" cp -r "$scratch/large" / "$scratch/large-tree/t"
	with mpirun --oversubscribe -n 1 "$OPTIMFS" mount \
	    -o gather=nccl,gpu_cache=512m,direct "$scratch/large" "$mnt" \
	    >"$scratch/log" 2>&1 </dev/null &
	job=$!
	if ! wait_for_mount; then
		ok "$libraries: a checkpoint mounts with gather=nccl" false
		diag "$(head -n 5 "$scratch/log")"
		return
	fi
	ok "$libraries: the first read through the mount is right" \
	    diff -r "$scratch/large-tree/t" "$mnt"
	received=$(stat_of gpu.received) hits=$(stat_of gpu.cache_hits)
	ok "$libraries: the first read was received by the GPU" [ "${received:-0}" -gt 0 ]
	ok "$libraries: the second read through the mount is right" \
	    diff -r "$scratch/large-tree/t" "$mnt"
	is "$libraries: the second read receives nothing" "$(stat_of gpu.received)" \
	    "$received"
	ok "$libraries: the second read hits the GPU cache" \
	    [ "$(stat_of gpu.cache_hits)" -gt "${hits:-0}" ]
	is "$libraries: the GPU is still in use after both reads" "$(stat_of gpu.used)" 1
	status "$libraries: umount exits with 0" 0 "$OPTIMFS" umount "$mnt"
	wait "$job"
	is "$libraries: the job exits with 0" $? 0
	is "$libraries: the daemon prints no error code" "$(grep OFS "$scratch/log")" ""
}

# What must fail, and what must work without the GPU.
refusals() { # N: one rank more than GPUs
	spread "$data/pytorch/dcp_fsdp2_w3/ckpt" "$1"
	faults=devices=$(($1 - 1))
	status "$libraries: more ranks than GPUs exits with 3" 3 ranks "$1" "$OPTIMFS" ls \
	    -o gather=nccl "$nodes/%r"
	like "$libraries: OFS903 says that ranks share a GPU" \
	    "$(cat "$scratch/err")" '*OFS903*share*'
	faults=max=100
	status "$libraries: a cache larger than the GPU exits with 0" 0 ranks 1 "$OPTIMFS" \
	    ls -o gather=nccl,gpu_cache=100t "$nodes/0"
	like "$libraries: OFS902 says that gpu_cache= is not used" "$(cat "$scratch/err")" \
	    '*OFS902*without gpu_cache=*'
	faults=
}

# Several ranks on one GPU.
shared() {
	apart=yes faults=devices=1
	CUDA_VISIBLE_DEVICES=0
	export CUDA_VISIBLE_DEVICES
	for n in 2 4; do
		[ "$libraries" = real ] || [ "$n" = 2 ] || continue
		fixtures "$n"
		large "$n"
	done
	unset CUDA_VISIBLE_DEVICES
	apart='' faults=''
}

test_all() { # N: the number of GPUs
	ok "$libraries: the GPU kernel gives the result of the host build" \
	    with "$bench" $measure
	ok "$libraries: the gather test passes with one thread per rank" with "$gather" "$1"
	if [ -n "$no_mpi" ]; then
		skip 1 "${no_mpi#*SKIP }"
		return
	fi
	for n in 1 2 4; do
		[ "$n" -le "$1" ] || continue
		fixtures "$n"
		large "$n"
	done
	[ "$1" -ge 16 ] || refusals $(($1 + 1))
	shared
	if [ -z "$no_mount" ]; then
		read_twice
	else
		skip 1 "${no_mount#*SKIP }"
	fi
	rm -rf "$scratch/large"* "$scratch/resharded" "$nodes" "$scratch/got"
}

if [ "$GPU_LIBRARIES" != real ]; then
	libraries=fake rows=2048 measure=check
	test_all 2
fi

libraries=real rows=32768 measure=1
gpus=$(with "$bench" count 2>"$scratch/err")
lacks=$(ldd "$OPTIMFS_MODULES/optimfs-nccl.so" 2>&1 | grep 'not found')
if [ -z "$gpus" ]; then
	skip 1 "$(head -n 1 "$scratch/err")"
elif [ -n "$lacks" ]; then
	skip 1 "not all libraries are here: $(echo "$lacks" | head -n 1)"
else
	diag "$gpus GPUs: $(nvidia-smi -L 2>/dev/null | head -n 1)"
	test_all "$gpus"
fi
done_testing
