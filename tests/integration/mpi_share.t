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
	ranks "$like_n" "$OPTIMFS" fsck -v "$@" "$like_path" \
	    >"$scratch/shared" 2>"$scratch/said"
	is "$like_name: status" $? "$like_status"
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

done_testing
