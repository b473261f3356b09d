#!/bin/sh
# gpu.t - all that GPUs do, by the fake libraries, and by real ones if there are
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"

OPTIMFS_MODULES=${OPTIMFS_MODULES:-$TOP_BUILDDIR/.libs}
bench=$TOP_BUILDDIR/tests/bench/gpubench
gather=$TOP_BUILDDIR/tests/unit/gpu_gather.t
fakes=$TOP_BUILDDIR/tests/support/fakegpu
[ -e "$OPTIMFS_MODULES/optimfs-nccl.so" ] || skip_all "built without NCCL"
[ -x "$bench" ] && [ -x "$gather" ] && [ -e "$fakes/stamp" ] ||
    skip_all "its programs are not built: make check builds them"
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
TMPDIR=$scratch
unset FAKEGPU
export OPTIMFS_MODULES OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM \
    TMPDIR

# COMMAND..., with the libraries that are tested. faults: of the fake ones.
faults=
with() {
	if [ "$libraries" = fake ]; then
		FAKEGPU=$faults LD_LIBRARY_PATH=$fakes timeout -k 5 $limit "$@"
	else
		timeout -k 5 $limit "$@"
	fi
}
ranks() { # N COMMAND...: as so many ranks
	ranks_n=$1
	shift
	with mpirun --oversubscribe -n "$ranks_n" "$@"
}
why_no_mpi() {
	if [ ! -e "$OPTIMFS_MODULES/optimfs-mpi.so" ]; then
		echo "built without MPI"
	elif ! command -v mpirun >/dev/null; then
		echo "no mpirun"
	elif ! timeout "$limit" mpirun --oversubscribe -n 2 true \
	    >"$scratch/err" 2>&1; then
		echo "mpirun does not run here: $(head -n 1 "$scratch/err")"
	fi
}
no_mpi=$(why_no_mpi)
no_mount=$(tap_can_mount)

# Files of a checkpoint, to the directories 0 to N - 1 of nodes.
nodes=$scratch/nodes
spread() { # CHECKPOINT N
	rm -rf "$nodes"
	spread_i=0
	for spread_f in $(ls -A "$1"); do
		mkdir -p "$nodes/$((spread_i % $2))"
		cp -rp "$1/$spread_f" "$nodes/$((spread_i % $2))"
		spread_i=$((spread_i + 1))
	done
	for spread_i in $(seq 0 $(($2 - 1))); do
		mkdir -p "$nodes/$spread_i"
	done
}

# All of CHECKPOINT, through GPUs of N ranks, is what it is without them.
same() { # NAME N OPTIONS CHECKPOINT
	spread "$4" "$2"
	rm -rf "$scratch/want" "$scratch/got"
	"$OPTIMFS" cp -r "$4" / "$scratch/want"
	status "$1: copied" 0 ranks "$2" "$OPTIMFS" cp -r -o "gather=nccl$3" \
	    "$nodes/%r" / "$scratch/got"
	is "$1: nothing is said" "$(grep OFS "$scratch/err")" ""
	ok "$1: the same bytes" diff -r "$scratch/want" "$scratch/got"
	rm -rf "$scratch/want" "$scratch/got"
}

data=$TOP_SRCDIR/tests/data
fixtures() { # N
	for f in dcp_fsdp2_w3/ckpt fsdp1_sharded_orig_hybridshard_w4/ckpt_rankfiles; do
		same "$libraries, $1 ranks, $f" "$1" ,gpu_cache=64m \
		    "$data/pytorch/$f"
	done
}

# Some MiB of rows, which are strided when columns of them are wanted.
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
		status "$libraries, $1 ranks, reshard$o" 0 ranks "$1" \
		    "$OPTIMFS" reshard -o "gather=nccl$o" --to dcp@3 \
		    "$nodes/%r" "$scratch/got"
		is "$libraries, $1 ranks, reshard$o: nothing is said" \
		    "$(grep OFS "$scratch/err")" ""
		ok "$libraries, $1 ranks, reshard$o: the same files" \
		    diff -r "$scratch/resharded" "$scratch/got"
	done
}

# A mount, whose second read needs no disk.
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
	daemons="$daemons $job"
	if ! wait_for_mount; then
		ok "$libraries: mounted" false
		diag "$(head -n 5 "$scratch/log")"
		return
	fi
	ok "$libraries: what is mounted is right" \
	    diff -r "$scratch/large-tree/t" "$mnt"
	received=$(stat_of gpu.received) hits=$(stat_of gpu.cache_hits)
	ok "$libraries: it came through the GPU" [ "${received:-0}" -gt 0 ]
	ok "$libraries: and is right again" \
	    diff -r "$scratch/large-tree/t" "$mnt"
	is "$libraries: of which nothing came again" "$(stat_of gpu.received)" \
	    "$received"
	ok "$libraries: it was there" \
	    [ "$(stat_of gpu.cache_hits)" -gt "${hits:-0}" ]
	is "$libraries: the GPU is used to the end" "$(stat_of gpu.used)" 1
	status "$libraries: unmounted" 0 "$OPTIMFS" umount "$mnt"
	wait "$job"
	is "$libraries: the job ends well" $? 0
	is "$libraries: and said nothing" "$(grep OFS "$scratch/log")" ""
}

# What cannot be.
refusals() { # more ranks than GPUs
	spread "$data/pytorch/dcp_fsdp2_w3/ckpt" "$1"
	faults=devices=$(($1 - 1))
	status "$libraries: more ranks than GPUs" 3 ranks "$1" "$OPTIMFS" ls \
	    -o gather=nccl "$nodes/%r"
	like "$libraries: which is said" "$(cat "$scratch/err")" '*OFS903*share*'
	faults=max=100
	status "$libraries: a cache larger than the GPU" 0 ranks 1 "$OPTIMFS" \
	    ls -o gather=nccl,gpu_cache=100t "$nodes/0"
	like "$libraries: is done without" "$(cat "$scratch/err")" \
	    '*OFS902*without gpu_cache=*'
	faults=
}

test_all() { # GPUS, of the libraries
	ok "$libraries: the kernel writes what the host build does" \
	    with "$bench" $measure
	ok "$libraries: GPUs of ranks that are threads" with "$gather" "$1"
	if [ -n "$no_mpi" ]; then
		skip 1 "$no_mpi"
		return
	fi
	for n in 1 2 4; do
		[ "$n" -le "$1" ] || continue
		fixtures "$n"
		large "$n"
	done
	[ "$1" -ge 16 ] || refusals $(($1 + 1))
	if [ -z "$no_mount" ]; then
		read_twice
	else
		skip 1 "${no_mount#*SKIP }"
	fi
	rm -rf "$scratch/large"* "$scratch/resharded" "$nodes" "$scratch/got"
}

libraries=fake rows=2048 measure=check
test_all 2

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
