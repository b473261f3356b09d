#!/bin/sh
# mpi_kill.t - a rank is killed at each of its steps after a commit is decided
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
. "${TOP_SRCDIR:-.}/tests/tap/ranks.sh"
faultlib=$TOP_BUILDDIR/.libs/faultlib.so
[ -e "$faultlib" ] || bail_out "no $faultlib"
sanitized && skip_all "a sanitizer does not want to be preloaded after faultlib.so"

# The steps are the system calls of the rank on files in and beside its
# directory, from the moment rank 0 has recorded the decision until the rank has
# left.
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
edit() { # VALUE: a scalar, and the first 64 bytes of each moment
	echo "$1" >"$mnt/optim/param_groups/0/lr"
	for edit_f in $(find "$mnt/optim/state" -name exp_avg -size +63c); do
		printf '%064d' "$1" | dd of="$edit_f" conv=notrunc status=none
	done
	rm -rf "$scratch/new"
	cp -r "$mnt" "$scratch/new"
}
lives() { # [MPIRUN OPTION]: does the victim survive a commit?
	OPTIMFS=$scratch/victim
	start $ranks rw "$nodes/%r/ck" "$mnt" "$@"
	OPTIMFS=$optimfs
	value=$((value + 1))
	edit $value
	timeout "$limit" "$OPTIMFS" commit "$mnt" >"$scratch/err" 2>&1
	stop "$mnt"
}
all_new() { # the next mount must find the new checkpoint
	ok "the mount disappears when rank $VICTIM is killed at step $FAULT_NTH" \
	    eventually is_unmounted "$mnt"
	start $ranks rw "$nodes/%r/ck" "$mnt"
	is "the next mount shows the new tree after a kill of rank $VICTIM at step $FAULT_NTH" \
	    "$(diff -r "$scratch/new" "$mnt" 2>&1 | head -n 3)" ''
	stop "$mnt"
	is "no staging directory is left after a kill of rank $VICTIM at step $FAULT_NTH" \
	    "$(left)" ''
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
	ok "rank $VICTIM was killed at every step at least once" [ "$FAULT_NTH" -gt 1 ]
done
# Now rank 0 survives the kill, and knows the decision.
for FAULT_NTH in $(seq $((FAULT_NTH - 1))); do
	lives --enable-recovery
	all_new
done
done_testing
