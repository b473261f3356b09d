#!/bin/sh
# mpi_kill.t - a rank is killed at each step after a commit was decided
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
. "${TOP_SRCDIR:-.}/tests/tap/ranks.sh"
faultlib=$TOP_BUILDDIR/.libs/faultlib.so
[ -e "$faultlib" ] || bail_out "no $faultlib"
sanitized && skip_all "a sanitizer does not want to be preloaded after faultlib.so"

# The steps are what the rank does to files of its directory, and beside it,
# once rank 0 has written down that the commit is decided: until it has left.
ranks=2
optimfs=$OPTIMFS
cat >"$scratch/victim" <<END
#!/bin/sh
[ "\$OMPI_COMM_WORLD_RANK" != "\$VICTIM" ] || exec env \\
    LD_PRELOAD="$faultlib" FAULT_PATH="$nodes/" FAULT_HOW=1 \\
    FAULT_AFTER="$nodes/0/.ck.optimfs/decision" "$optimfs" "\$@"
exec "$optimfs" "\$@"
END
chmod +x "$scratch/victim"
edit() { # VALUE: a value, and some of each tensor of the state
	echo "$1" >"$mnt/optim/param_groups/0/lr"
	for edit_f in $(find "$mnt/optim/state" -name exp_avg -size +63c); do
		printf '%064d' "$1" | dd of="$edit_f" conv=notrunc status=none
	done
	rm -rf "$scratch/new"
	cp -r "$mnt" "$scratch/new"
}
lives() { # [MPIRUN OPTION]: a commit, of which the victim sees the end
	OPTIMFS=$scratch/victim
	start $ranks rw "$nodes/%r/ck" "$mnt" "$@"
	OPTIMFS=$optimfs
	value=$((value + 1))
	edit $value
	timeout "$limit" "$OPTIMFS" commit "$mnt" >"$scratch/err" 2>&1
	stop "$mnt"
}
unmounted() {
	for unmounted_i in $(seq 1200); do
		is_mounted "$mnt" || return 0
		sleep 0.1
	done
	return 1
}
all_new() { # what the next mount finds
	ok "rank $VICTIM is killed at step $FAULT_NTH" unmounted
	start $ranks rw "$nodes/%r/ck" "$mnt"
	is "all is new" "$(diff -r "$scratch/new" "$mnt" 2>&1 | head -n 3)" ''
	stop "$mnt"
	is "and nothing is left" "$(left)" ''
}
export VICTIM FAULT_NTH
spread "$data/dcp_fsdp2_w2/ckpt" $ranks
value=0
for VICTIM in 0 1; do
	FAULT_NTH=1
	until lives; do
		all_new
		FAULT_NTH=$((FAULT_NTH + 1))
	done
	ok "rank $VICTIM has taken all steps" [ "$FAULT_NTH" -gt 1 ]
done
# Rank 0 lives, and knows that it is decided.
for FAULT_NTH in $(seq $((FAULT_NTH - 1))); do
	lives --enable-recovery
	all_new
done
done_testing
