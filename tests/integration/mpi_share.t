#!/bin/sh
# mpi_share.t - commands that several ranks share
# SPDX-License-Identifier: Apache-2.0
mounts=no limit=60
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
. "${TOP_SRCDIR:-.}/tests/tap/ranks.sh"

# What -v says: how many ranks did anything, and how many files all did.
shares() {
	sed -n 's/^optimfs: rank [0-9]* (.*): \([0-9]*\) files.*/\1/p' \
	    "$scratch/said" | awk '{ n += $1; busy += $1 > 0 }
	    END { print busy + 0, n + 0 }'
}
# Overwrite 8 bytes of a file at OFFSET.
damage() { # FILE OFFSET
	printf damaged! | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}

# The same findings as one process has of all files in one directory, in the
# same order; the last line names the checkpoint.
fsck_like_one() { # NAME N STATUS PATH OPTION...
	like_name=$1 like_n=$2 like_status=$3 like_path=$4
	shift 4
	"$OPTIMFS" fsck "$@" "$scratch/all" >"$scratch/alone" 2>/dev/null
	is "$like_name: alone" $? "$like_status"
	# To a file of each rank: mpirun of Open MPI 5.0 loses characters of a
	# rank that says much.
	ranks "$like_n" sh -c 'exec "$@" >"$0.$OMPI_COMM_WORLD_RANK"' \
	    "$scratch/shared" "$OPTIMFS" fsck -v "$@" "$like_path" \
	    2>"$scratch/said"
	is "$like_name: status" $? "$like_status"
	cat "$scratch/shared".* >"$scratch/shared"
	rm "$scratch/shared".*
	sed "s|^$scratch/all:|$like_path:|" "$scratch/alone" >"$scratch/want"
	ok "$like_name: words" cmp "$scratch/want" "$scratch/shared" ||
	    diag "$(diff "$scratch/want" "$scratch/shared" | head -n 5)"
}

spread "$data/dcp_fsdp2_w4/ckpt" 4
together
fsck_like_one "clean" 4 0 "$nodes/%r/ck" --data
is "each rank checked what it has" "$(shares)" "4 4"
like "of which nobody else has anything" "$(cat "$scratch/said")" \
    '*rank 2 (*): 1 files, 157605 bytes*'
fsck_like_one "all see all" 3 0 "$scratch/all" --data
is "files are shared out" "$(shares)" "3 4"

# Damage that only its rank can see; and a file that nobody has.
damage "$nodes/2/ck/__1_0.distcp" 100000
damage "$nodes/2/ck/__1_0.distcp" 30000
damage "$nodes/0/ck/__3_0.distcp" 100000
together
fsck_like_one "damaged" 4 1 "$nodes/%r/ck" --data
like "it is found" "$(cat "$scratch/shared")" '*error: *CRC mismatch*'
fsck_like_one "in JSON" 4 1 "$nodes/%r/ck" --data --json
rm "$nodes/3/ck/__2_0.distcp"
together
fsck_like_one "a lost file" 4 1 "$nodes/%r/ck" --data
fsck_like_one "without --data" 4 1 "$nodes/%r/ck"

# Copies of one shard on two ranks: what they say is compared, and need not be
# sent.
spread "$data/fsdp1_sharded_orig_hybridshard_w4/ckpt_rankfiles" 4
damage "$nodes/2/ck/state_rank2.pt" 44000
together
fsck_like_one "copies" 4 1 "$nodes/%r/ck" --data
like "copies disagree" "$(cat "$scratch/shared")" '*OFS612*'
is "all ranks took part" "$(shares)" "4 4"

# What cannot be opened is said once.
head -c 1000 "$data/dcp_fsdp2_w4/ckpt/.metadata" >"$scratch/all/.metadata"
status "a checkpoint that none can read" 3 ranks 3 "$OPTIMFS" fsck \
    -o type=dcp "$scratch/all"
is "once" "$(grep -c '^optimfs: ' "$scratch/err")" 1

# reshard: each rank writes some of the files, from what all have.
ck=$data/dcp_fsdp2_w4/ckpt
mkdir "$scratch/here"
cd "$scratch/here" || exit 99
spread "$ck" 4
for layout in dcp@6 dcp@4,zstd safetensors; do
	rm -rf want out
	status "$layout, alone" 0 "$OPTIMFS" reshard --to $layout "$ck" want
	status "$layout, four ranks" 0 ranks 4 "$OPTIMFS" reshard -v \
	    --to $layout "$nodes/%r/ck" out
	cp "$scratch/err" "$scratch/said"
	ok "write the same bytes" diff -r want out
	files=$(find want -type f | wc -l)
	busy=$((files < 4 ? files : 4))
	is "each some of the files" "$(shares)" "$busy $files"
done
is "nothing is left beside it" "$(ls -A | tr '\n' ' ')" "out want "
status "a target that is there" 3 ranks 2 "$OPTIMFS" reshard --to dcp@6 "$ck" \
    out
is "is told once" "$(grep -c 'is there already' "$scratch/err")" 1
status "no such layout" 2 ranks 2 "$OPTIMFS" reshard --to dcp@x "$ck" none
status "a target of each rank" 2 ranks 2 "$OPTIMFS" reshard --to dcp@6 "$ck" \
    "none%r"
like "is refused, and what to do is said" "$(cat "$scratch/err")" \
    '*OFS775*rank 1*none1*none0*mkfs*'
is "with nothing left" "$(ls -A | tr '\n' ' ')" "out want "

# A directory that not all see: those who do write.
"$OPTIMFS" reshard --to dcp@6 "$ck" six
mkdir -p 0 1 2
in_own='cd $((OMPI_COMM_WORLD_RANK / 2)) && exec "$@"'
status "a target that two of three ranks see" 0 ranks 3 sh -c "$in_own" sh \
    "$OPTIMFS" reshard -v --to dcp@6 "$ck" out
cp "$scratch/err" "$scratch/said"
ok "has the same files" diff -r six 0/out
is "by those two" "$(shares)" "2 7"
like "which is said" "$(cat "$scratch/said")" '*2 of 3 ranks see *out*write*'
is "the third has nothing" "$(ls -A 1)" ""

# cp -r: each rank copies some of the files; one file is rank 0's.
"$OPTIMFS" cp -r "$ck" . tree
status "cp -r" 0 ranks 4 "$OPTIMFS" cp -r -v "$nodes/%r/ck" . shared
cp "$scratch/err" "$scratch/said"
ok "copies all" diff -r tree shared
is "each rank some" "$(shares)" "4 $(find tree -type f | wc -l)"
mkdir into
status "cp -r into a directory" 0 ranks 3 sh -c "$in_own" sh "$OPTIMFS" cp -r \
    -v "$ck" optim/state ../into
ok "has its name" diff -r tree/optim/state into/state
rm -rf into
mkdir 0/into
status "a directory that two of three see" 0 ranks 3 sh -c "$in_own" sh \
    "$OPTIMFS" cp -r -v "$ck" model into
cp "$scratch/err" "$scratch/said"
ok "has all" diff -r tree/model 0/into/model
like "from those two" "$(shares)" "2 *"
is "and nothing else" "$(ls -A 0/into 1)" "$(printf '0/into:\nmodel\n\n1:')"
rm "$nodes/2/ck/__1_0.distcp"
status "with files that cannot be read" 3 ranks 4 "$OPTIMFS" cp -r \
    "$nodes/%r/ck" . part
like "they are named" "$(cat "$scratch/err")" \
    '*part/model/norm.weight: *OFS140*__1_0.distcp*'
ok "others are there" cmp part/optim/param_groups/0/betas \
    tree/optim/param_groups/0/betas
not_ok "and those are not" test -e part/model/norm.weight
spread "$ck" 4
status "one file" 0 ranks 4 "$OPTIMFS" cp "$nodes/%r/ck" \
    optim/param_groups/0/lr lr
ok "is copied" cmp lr tree/optim/param_groups/0/lr
status "what is not there" 3 ranks 2 "$OPTIMFS" cp "$ck" nothing lr
is "is told once" "$(grep -c nothing "$scratch/err")" 1
ranks 4 "$OPTIMFS" cat "$nodes/%r/ck" optim/param_groups/0/lr >got 2>/dev/null
ok "cat is rank 0's" cmp got lr

# A rank that may not write large files. Open MPI's shared memory is one, so it
# talks over the loopback interface.
OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=lo
export OMPI_MCA_pml OMPI_MCA_btl OMPI_MCA_btl_tcp_if_include
limited='[ "$OMPI_COMM_WORLD_RANK" != 1 ] || ulimit -f 10; exec "$@"'
rm -rf out
status "a rank that cannot write" 3 ranks 3 sh -c "trap '' XFSZ; $limited" sh \
    "$OPTIMFS" reshard --to dcp@6 "$ck" out
like "is named, and what it could not do" "$(cat "$scratch/err")" \
    '*OFS801*rank 1*File too large*'
not_ok "nothing is published" test -e out
status "the same command goes on" 0 ranks 2 "$OPTIMFS" reshard -v --to dcp@6 \
    "$ck" out
like "from what there is" "$(cat "$scratch/err")" '*goes on from *.out.optimfs*'
ok "to the same bytes" diff -r six out
rm -rf out
status "a rank that cannot copy" 3 ranks 3 sh -c "trap '' XFSZ; $limited" sh \
    "$OPTIMFS" cp -r "$ck" .optimfs/view/dcp@6 out
like "is named, too" "$(cat "$scratch/err")" '*rank 1*File too large*'
rm -rf out
unset OMPI_MCA_pml OMPI_MCA_btl OMPI_MCA_btl_tcp_if_include

# One that is killed while all write.
"$TOP_BUILDDIR/tests/bench/mkdcp" -n 2 -s 16384,1024 -r 3 big >/dev/null ||
    exit 99
kill_one() { # MPIRUN OPTION...: the writing ended before the rank: 2
	rm -rf out .out.optimfs
	mpirun --oversubscribe -n 3 "$@" "$OPTIMFS" reshard --to dcp@6 -j 1 \
	    "$scratch/here/big" out >"$scratch/log" 2>&1 </dev/null &
	job=$!
	daemons="$daemons $job"
	while [ -z "$(ls .out.optimfs/new 2>/dev/null)" ]; do
		kill -0 $job || return 2
		sleep 0.01
	done
	kill -KILL "$(pid_of 1)" || return 2
	gone $job || return 1
	wait $job # Open MPI's status is 0 with --enable-recovery
	[ ! -e out ] || return 2
	[ -z "$(pgrep -f "reshard.*$scratch/here")" ]
}
killed() { # MPIRUN OPTION...: is the target not there, and everybody gone?
	for killed_try in $(seq 10); do
		kill_one "$@"
		killed_status=$?
		[ $killed_status = 2 ] || break
	done
	return $killed_status
}
ok "a rank is killed" killed --enable-recovery
like "which is said" "$(cat "$scratch/log")" '*OFS911*rank 1*'
status "the others' work is gone on from" 0 ranks 2 "$OPTIMFS" reshard \
    --to dcp@6 big out
status "with the same values" 0 "$OPTIMFS" diff big out
ok "a rank is killed, and all with it" killed
ok "with its work kept" test -d .out.optimfs/new

done_testing
