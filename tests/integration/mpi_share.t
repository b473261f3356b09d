#!/bin/sh
# mpi_share.t - fsck, reshard and cp -r share their work among several ranks
# SPDX-License-Identifier: Apache-2.0
mounts=no limit=60
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
. "${TOP_SRCDIR:-.}/tests/tap/ranks.sh"

# shares: from the output of -v, how many ranks had files, and how many files in
# all
shares() {
	sed -n 's/^optimfs: rank [0-9]* (.*): \([0-9]*\) files.*/\1/p' \
	    "$scratch/said" | awk '{ n += $1; busy += $1 > 0 }
	    END { print busy + 0, n + 0 }'
}
# Overwrite 8 bytes of a file at OFFSET. A later time would give a warning.
damage() { # FILE OFFSET
	touch -r "$1" "$scratch/time"
	printf damaged! | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
	touch -r "$scratch/time" "$1"
}

# fsck of N ranks must print the findings that one process prints for all files
# in one directory, in the same order. The last line names the checkpoint.
fsck_like_one() { # NAME N STATUS PATH OPTION...
	like_name=$1 like_n=$2 like_status=$3 like_path=$4
	shift 4
	"$OPTIMFS" fsck "$@" "$scratch/all" >"$scratch/alone" 2>/dev/null
	is "$like_name: fsck of one process exits with $like_status" $? "$like_status"
	# One output file per rank: mpirun of Open MPI 5.0 loses characters of a
	# rank that prints much.
	ranks "$like_n" sh -c 'exec "$@" >"$0.$OMPI_COMM_WORLD_RANK"' \
	    "$scratch/shared" "$OPTIMFS" fsck -o work_ranks=all -v "$@" "$like_path" \
	    2>"$scratch/said"
	is "$like_name: fsck of $like_n ranks exits with $like_status" $? "$like_status"
	cat "$scratch/shared".* >"$scratch/shared"
	rm "$scratch/shared".*
	sed "s|^$scratch/all:|$like_path:|" "$scratch/alone" >"$scratch/want"
	ok "$like_name: fsck of $like_n ranks prints the same findings" \
	    cmp "$scratch/want" "$scratch/shared" ||
	    diag "$(diff "$scratch/want" "$scratch/shared" | head -n 5)"
}

spread "$data/dcp_fsdp2_w4/ckpt" 4
together
fsck_like_one "sound checkpoint" 4 0 "$nodes/%r/ck" --data
is "fsck: each of four ranks checks one file" "$(shares)" "4 4"
like "fsck -v prints files and bytes of rank 2" "$(cat "$scratch/said")" \
    '*rank 2 (*): 1 files, 157605 bytes*'
fsck_like_one "one rank of the machine" 4 0 "$nodes/%r/ck" --data -o work_ranks=nodes
is "fsck: one rank of the machine checks what all have" "$(shares)" "1 4"
fsck_like_one "shared directory" 3 0 "$scratch/all" --data
is "fsck: three ranks share four files of one directory" "$(shares)" "3 4"

# Damage in a file that one rank has; and a file that no rank has.
damage "$nodes/2/ck/__1_0.distcp" 100000
damage "$nodes/2/ck/__1_0.distcp" 30000
damage "$nodes/0/ck/__3_0.distcp" 100000
together
fsck_like_one "damaged files" 4 1 "$nodes/%r/ck" --data
like "fsck of four ranks finds the damaged item" "$(cat "$scratch/shared")" '*error: *CRC mismatch*'
fsck_like_one "damaged files, JSON" 4 1 "$nodes/%r/ck" --data --json
rm "$nodes/3/ck/__2_0.distcp"
together
fsck_like_one "missing file" 4 1 "$nodes/%r/ck" --data
fsck_like_one "missing file, without --data" 4 1 "$nodes/%r/ck"

# Replicas of one shard on two ranks: the ranks exchange checksums, not data.
spread "$data/fsdp1_sharded_orig_hybridshard_w4/ckpt_rankfiles" 4
damage "$nodes/2/ck/state_rank2.pt" 44000
together
fsck_like_one "replicas" 4 1 "$nodes/%r/ck" --data
like "fsck of four ranks reports differing replicas as OFS612" "$(cat "$scratch/shared")" '*OFS612*'
is "fsck: each of four ranks checks one file with replicas" "$(shares)" "4 4"

# A failure common to all ranks is printed once.
head -c 1000 "$data/dcp_fsdp2_w4/ckpt/.metadata" >"$scratch/all/.metadata"
status "fsck of three ranks exits with 3 for an unreadable index" 3 ranks 3 "$OPTIMFS" fsck -o work_ranks=all \
    -o type=dcp "$scratch/all"
is "three ranks print the failure once" "$(grep -c '^optimfs: ' "$scratch/err")" 1

# reshard: each rank writes some of the files, and reads what all ranks have.
ck=$data/dcp_fsdp2_w4/ckpt
mkdir "$scratch/here"
cd "$scratch/here" || exit 99
spread "$ck" 4
for layout in dcp@6 dcp@4,zstd safetensors; do
	rm -rf want out
	status "reshard of one process to $layout exits with 0" 0 \
	    "$OPTIMFS" reshard --to $layout "$ck" want
	status "reshard of four ranks to $layout exits with 0" 0 ranks 4 "$OPTIMFS" reshard -o work_ranks=all -v \
	    --to $layout "$nodes/%r/ck" out
	cp "$scratch/err" "$scratch/said"
	ok "four ranks write the same $layout as one process" diff -r want out
	files=$(find want -type f | wc -l)
	busy=$((files < 4 ? files : 4))
	is "reshard to $layout: each rank writes some of the files" "$(shares)" "$busy $files"
done
rm -r out
status "reshard by one rank of the machine exits with 0" 0 ranks 4 "$OPTIMFS" reshard -v \
    --to safetensors "$nodes/%r/ck" out
ok "it writes the same, from what all ranks have" diff -r want out
is "reshard of four ranks leaves no staging directory" "$(ls -A | tr '\n' ' ')" "out want "
status "reshard of two ranks to an existing directory exits with 3" 3 \
    ranks 2 "$OPTIMFS" reshard -o work_ranks=all --to dcp@6 "$ck" \
    out
is "two ranks print once that the directory exists" "$(grep -c 'already exists' "$scratch/err")" 1
status "reshard of two ranks to an unknown layout exits with 2" 2 \
    ranks 2 "$OPTIMFS" reshard -o work_ranks=all --to dcp@x "$ck" none
status "reshard to a different directory on each rank exits with 2" 2 \
    ranks 2 "$OPTIMFS" reshard -o work_ranks=all --to dcp@6 "$ck" \
    "none%r"
like "OFS775 names both directories and suggests mkfs" "$(cat "$scratch/err")" \
    '*OFS775*rank 1*none1*none0*mkfs*'
is "rejected calls of reshard leave nothing" "$(ls -A | tr '\n' ' ')" "out want "

# A target directory that not every rank sees: the ranks that see it write.
"$OPTIMFS" reshard --to dcp@4 "$ck" four
mkdir -p 0 1 2
in_own='cd $((OMPI_COMM_WORLD_RANK / 2)) && exec "$@"'
status "reshard of three ranks exits with 0 when two see the target" 0 ranks 3 sh -c "$in_own" sh \
    "$OPTIMFS" reshard -o work_ranks=all -v --to dcp@4 "$ck" out
cp "$scratch/err" "$scratch/said"
ok "reshard by two of three ranks writes the same files" diff -r four 0/out
is "reshard: the two ranks that see the target write all files" "$(shares)" "2 5"
like "reshard says how many ranks see the target" \
    "$(cat "$scratch/said")" '*2 of 3 ranks see *out*write*'
is "reshard leaves the directory of the third rank empty" "$(ls -A 1)" ""

# cp -r: each rank copies some of the files. Rank 0 copies a single file.
"$OPTIMFS" cp -r "$ck" . tree
status "cp -r of four ranks exits with 0" 0 ranks 4 "$OPTIMFS" cp -r -o work_ranks=all -v "$nodes/%r/ck" . shared
cp "$scratch/err" "$scratch/said"
ok "cp -r of four ranks copies the whole tree" diff -r tree shared
is "cp -r: all four ranks copy files" "$(shares)" "4 $(find tree -type f | wc -l)"
rm -r shared
status "cp -r by one rank of the machine exits with 0" 0 ranks 4 "$OPTIMFS" cp -r -v \
    "$nodes/%r/ck" . shared
cp "$scratch/err" "$scratch/said"
ok "it copies the whole tree, from what all ranks have" diff -r tree shared
is "cp -r: one rank of the machine copies all" "$(shares)" "1 $(find tree -type f | wc -l)"
if [ "$(nproc --all)" -gt 1 ] && command -v taskset >/dev/null; then
	rm -r shared
	status "cp -r by a rank on one processor exits with 0" 0 ranks 4 \
	    taskset -c 0 "$OPTIMFS" cp -r "$nodes/%r/ck" . shared
	like "and says what helps" "$(cat "$scratch/err")" \
	    '*may use one of*work_ranks=all*'
else
	skip 2 "one processor, or no taskset"
fi
mkdir into
status "cp -r of three ranks into an existing directory exits with 0" 0 \
    ranks 3 sh -c "$in_own" sh "$OPTIMFS" cp -r -o work_ranks=all \
    -v "$ck" optim/state ../into
ok "cp -r of three ranks keeps the name of the source" diff -r tree/optim/state into/state
rm -rf into
mkdir 0/into
status "cp -r of three ranks exits with 0 when two see the target" 0 ranks 3 sh -c "$in_own" sh \
    "$OPTIMFS" cp -r -o work_ranks=all -v "$ck" model into
cp "$scratch/err" "$scratch/said"
ok "cp -r by two of three ranks copies the whole directory" diff -r tree/model 0/into/model
like "cp -r: only the two ranks that see the target copy" "$(shares)" "2 *"
is "cp -r leaves nothing elsewhere" "$(ls -A 0/into 1)" "$(printf '0/into:\nmodel\n\n1:')"
rm "$nodes/2/ck/__1_0.distcp"
status "cp -r of four ranks exits with 3 when a file is missing" 3 ranks 4 "$OPTIMFS" cp -r -o work_ranks=all \
    "$nodes/%r/ck" . part
like "cp -r names the missing file and counts its tensors" "$(cat "$scratch/err")" \
    '*OFS140 __1_0.distcp is missing: [0-9]* tensors*'
ok "cp -r copies the readable files all the same" cmp part/optim/param_groups/0/betas \
    tree/optim/param_groups/0/betas
not_ok "cp -r leaves no file for the unreadable tensor" test -e part/model/norm.weight
spread "$ck" 4
status "cp of one file on four ranks exits with 0" 0 ranks 4 "$OPTIMFS" cp -o work_ranks=all "$nodes/%r/ck" \
    optim/param_groups/0/lr lr
ok "cp on four ranks copies the one file" cmp lr tree/optim/param_groups/0/lr
status "cp of a missing path on two ranks exits with 3" 3 ranks 2 "$OPTIMFS" cp -o work_ranks=all "$ck" nothing lr
is "two ranks print the missing path once" "$(grep -c nothing "$scratch/err")" 1
# Rank 0 writes to a terminal that mpirun made; what counts is mpirun's own.
ranks 4 "$OPTIMFS" report --no-data "$nodes/%r/ck" >page 2>said
like "a page that is redirected is not for a terminal" "$(tr -d '\r' <page)" \
    "<!DOCTYPE html>*</html>*"
like "it has no damage: files of other ranks are read" "$(cat page)" \
    '*<title>*No damage*</title>*'
ranks 4 "$OPTIMFS" cat "$nodes/%r/ck" optim/param_groups/0/lr >got 2>/dev/null
ok "cat on four ranks prints the file once" cmp got lr

# A rank with a file size limit. Open MPI's shared memory is a large file too,
# so the ranks talk over the loopback interface. Rank 1 has two files of dcp@4:
# with one job, it records .metadata (101 kB) before it fails with the other
# (155 kB). So there is always something to continue from.
OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=lo
export OMPI_MCA_pml OMPI_MCA_btl OMPI_MCA_btl_tcp_if_include
limited='[ "$OMPI_COMM_WORLD_RANK" != 1 ] || ulimit -f 240; exec "$@"'
rm -rf out
status "reshard exits with 3 when one rank cannot write" 3 \
    ranks 3 sh -c "trap '' XFSZ; $limited" sh \
    "$OPTIMFS" reshard -o work_ranks=all --to dcp@4 -j 1 "$ck" out
like "OFS801 names the rank and its error" "$(cat "$scratch/err")" \
    '*OFS801*rank 1*File too large*'
not_ok "reshard with a failed rank publishes nothing" test -e out
status "the same reshard resumes with two ranks" 0 ranks 2 "$OPTIMFS" reshard -o work_ranks=all -v --to dcp@4 \
    "$ck" out
like "reshard says that it continues from the staging directory" \
    "$(cat "$scratch/err")" '*continuing from *.out.optimfs*'
ok "the resumed reshard has the same bytes" diff -r four out
rm -rf out
status "cp -r exits with 3 when one rank cannot write" 3 ranks 3 sh -c "trap '' XFSZ; $limited" sh \
    "$OPTIMFS" cp -r -o work_ranks=all "$ck" .optimfs/view/dcp@4 out
like "cp -r names the rank and its error" "$(cat "$scratch/err")" '*rank 1*File too large*'
rm -rf out
unset OMPI_MCA_pml OMPI_MCA_btl OMPI_MCA_btl_tcp_if_include

# A rank is killed while all ranks write.
"$TOP_BUILDDIR/tests/bench/mkdcp" -n 2 -s 16384,1024 -r 3 big >/dev/null ||
    exit 99
kill_one() { # MPIRUN OPTION...: 2 if the reshard ended before the kill
	rm -rf out .out.optimfs
	mpirun --oversubscribe -n 3 "$@" "$OPTIMFS" reshard -o work_ranks=all --to dcp@6 -j 1 \
	    "$scratch/here/big" out >"$scratch/log" 2>&1 </dev/null &
	job=$!
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
killed() { # MPIRUN OPTION...: no target and no process left?
	for killed_try in $(seq 10); do
		kill_one "$@"
		killed_status=$?
		[ $killed_status = 2 ] || break
	done
	return $killed_status
}
ok "reshard ends without a target when a rank is killed" killed --enable-recovery
like "OFS911 names the killed rank" "$(cat "$scratch/log")" '*OFS911*rank 1*'
status "two ranks resume the work of the killed reshard" 0 ranks 2 "$OPTIMFS" reshard -o work_ranks=all \
    --to dcp@6 big out
status "the reshard resumed after the kill has the same values" 0 "$OPTIMFS" diff big out
ok "all ranks end without a target when mpirun ends the job" killed
ok "the staged work of the killed job is kept" test -d .out.optimfs/new

done_testing
