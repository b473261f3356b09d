#!/bin/sh
# mpi_again.t - what several ranks' mounts show after rank 0 has committed
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
. "${TOP_SRCDIR:-.}/tests/tap/ranks.sh"

# Every rank has a mount, and rank 0's is written.
n=3
m() { # RANK
	echo "$scratch/m$1"
}
mkdir "$(m 0)" "$(m 1)" "$(m 2)"
all_mounted() {
	eventually is_mounted "$(m 1)" && eventually is_mounted "$(m 2)"
}
each() { # OPTIONS CHECKPOINT [MPIRUN OPTION...]
	each_o=$1 each_ck=$2
	shift 2
	start $n "$each_o,mount_ranks=all" "$each_ck" "$scratch/m%r" "$@" &&
	    all_mounted
}
end() {
	timeout "$limit" "$OPTIMFS" umount "$(m 0)" && timeout "$limit" "$OPTIMFS" umount \
	    "$(m 1)" && stop "$(m 2)"
}
shown() { # MOUNT POINT: all that it shows, but for what it says of itself
	(cd "$1" && find . -type f | sort | xargs sha256sum)
}
edit() { # VALUE: some of each, a value, a tensor, a tensor in part
	echo "$1" >"$(m 0)/optim/param_groups/0/lr"
	edit_f=$(cd "$(m 0)" && find optim/state -name exp_avg -size +31c |
	    sort | head -n 1)
	printf '%032d' "${1#0.}" | dd of="$(m 0)/$edit_f" conv=notrunc \
	    status=none
	cp "$(m 0)/$edit_f" "$(m 0)/$edit_f"_sq
}
commit() {
	"$OPTIMFS" commit "$(m 0)"
}
# As the files say it, to who knows no ranks.
as_stored() { # DIRECTORY
	shown "$(m 0)" >"$scratch/shown"
	"$OPTIMFS" mount "$1" "$other" && shown "$other" >"$scratch/is"
	"$OPTIMFS" umount "$other"
	cmp "$scratch/shown" "$scratch/is"
}
stale() { # RANK PATH: a read of it fails with ESTALE
	! cat "$(m "$1")/$2" >/dev/null 2>"$scratch/why" &&
	    grep -q 'Stale file handle' "$scratch/why"
}
same() { # RANK BEFORE: each file has the bytes it had, or is ESTALE
	(cd "$(m "$1")" && while read -r same_sum same_f; do
		same_is=$(sha256sum "$same_f" 2>"$scratch/why") || {
			grep -q 'Stale file handle' "$scratch/why" || return 1
			continue
		}
		[ "${same_is%% *}" = "$same_sum" ] || return 1
	done <"$2")
}

rounds() { # NAME FILES: two edits, two commits, one mount
	shown "$(m 0)" >"$scratch/before"
	for value in 0.5 0.25; do
		edit $value
		is "$1: it is seen at once where it is written" \
		    "$(cat "$(m 0)/optim/param_groups/0/lr")" $value
		status "$1: commit $value" 0 commit
		is "$1: rank 0 goes on with it" \
		    "$(cat "$(m 0)/optim/param_groups/0/lr")" $value
		is "$1: where nothing has failed" \
		    "$(cat "$(m 0)/.optimfs/errors")" ""
		ok "$1: rank 1 shows what was there, or ESTALE" same 1 \
		    "$scratch/before"
		ok "$1: and so does rank 2" same 2 "$scratch/before"
		"$2"
		ok "$1: the files say what rank 0 shows" as_stored \
		    "$scratch/all"
	done
}

for case in dcp_fsdp2_w3/ckpt \
    fsdp1_sharded_orig_hybridshard_w4/ckpt_rankfiles; do
	name=$(dirname "$case")
	spread "$data/$case" $n
	ok "$name: every rank has a mount" each rw "$nodes/%r/ck"
	rounds "$name" together
	not_ok "$name: rank 1 cannot write" \
	    sh -c "echo 1 >'$(m 1)/optim/param_groups/0/lr'"
	like "$name: and says who can" "$(cat "$(m 1)/.optimfs/control")" \
	    '*read-only*rank 0*mount again*'
	ok "$name: the job ends well" end
	is "$name: and leaves nothing" "$(left)" ""
	ok "$name: mounted again" each rw "$nodes/%r/ck"
	is "$name: all ranks show the new generation" \
	    "$(cat "$(m 0)/optim/param_groups/0/lr" \
		"$(m 1)/optim/param_groups/0/lr" \
		"$(m 2)/optim/param_groups/0/lr" | uniq)" 0.25
	end
done

# One directory that all see, which rank 0 writes as if it were alone.
cp -r "$data/dcp_fsdp2_w3/ckpt" "$scratch/one"
link() {
	rm -rf "$scratch/all"
	ln -s one "$scratch/all"
}
ok "one directory: every rank has a mount" each rw "$scratch/one"
rounds "one directory" link
ok "one directory: a tensor that changed is ESTALE" stale 1 "$edit_f"
like "one directory: the error says what to do" \
    "$(cat "$(m 1)/.optimfs/errors")" '*OFS753*mount*again*'
f=$(cd "$(m 0)" && find model -type f -size +1 | sort | head -n 1)
rm "$(m 0)/$f"
commit
not_ok "one directory: a file that was removed is gone" ls "$(m 0)/$f"
edit 0.75
ok "one directory: unmounted on rank 0" "$OPTIMFS" umount "$(m 0)"
"$OPTIMFS" umount "$(m 1)"
ok "one directory: the job ends well" stop "$(m 2)"
ok "one directory: nothing is left" [ ! -e "$scratch/.one.optimfs" ]
"$OPTIMFS" mount "$scratch/one" "$other"
is "one directory: unmounting has committed" \
    "$(cat "$other/optim/param_groups/0/lr")" 0.75
"$OPTIMFS" umount "$other"

# Ranks that have different files of one name: what was committed is safe, and
# rank 0 can show it as soon as that is over.
spread "$data/dcp_fsdp2_w3/ckpt" $n
each rw "$nodes/%r/ck"
edit 0.5
echo 1 >"$nodes/1/ck/odd"
echo 22 >"$nodes/2/ck/odd"
status "ranks cannot agree: it is committed all the same" 0 commit
not_ok "nothing more can be written" \
    sh -c "echo 2 >'$(m 0)/optim/param_groups/0/lr'"
like "and why is said" "$(cat "$(m 0)/.optimfs/errors")" '*OFS914*odd*'
status "nor committed" 3 commit
like "which says it, too" "$(cat "$scratch/err")" '*OFS835*OFS914*odd*'
rm "$nodes"/?/ck/odd
status "when they can, one more commit shows it" 0 commit
is "on rank 0" "$(cat "$(m 0)/optim/param_groups/0/lr")" 0.5
edit 0.25
commit
is "and all goes on" "$(cat "$(m 0)/optim/param_groups/0/lr")" 0.25
end
is "nothing is left" "$(left)" ""

# A rank dies between two commits. Who has what the others have is not missed;
# what only it had is, and then nothing can be committed.
spread "$data/dcp_fsdp2_w3/ckpt" 2
ln -s 1 "$nodes/2"
if each rw,timeout=6 "$nodes/%r/ck" --enable-recovery; then
	edit 0.5
	commit
	kill -KILL "$(pid_of 2)"
	edit 0.25
	status "a rank died that has nothing alone: commit" 0 commit
	is "rank 0 shows it" "$(cat "$(m 0)/optim/param_groups/0/lr")" 0.25
	edit 0.125
	kill -KILL "$(pid_of 1)"
	status "one died that has: the commit fails" 3 commit
	like "and says why" "$(cat "$scratch/err")" '*rank 1*'
	is "what is staged is kept" \
	    "$(cat "$(m 0)/optim/param_groups/0/lr")" 0.125
	"$OPTIMFS" abort "$(m 0)"
	"$OPTIMFS" umount "$(m 0)"
	gone "$job"
else
	skip 5 "mpirun has no --enable-recovery"
fi

# Reading goes on while there are commits: never some of each.
spread "$data/dcp_fsdp2_w3/ckpt" $n
each rw "$nodes/%r/ck"
f=$(cd "$(m 0)" && find model -type f -size +1 | sort | head -n 1)
size=$(stat -c %s "$(m 0)/$f")
fill() { # CHARACTER
	head -c "$size" /dev/zero | tr '\0' "$1"
}
fill a >"$(m 0)/$f"
commit
end
each rw "$nodes/%r/ck"
reader() { # RANK: what one read says is all of one kind; or ESTALE
	while [ ! -e "$scratch/enough" ]; do
		reader_s=$(cat "$(m "$1")/$f" 2>"$scratch/why$1" | tr -s a-z |
		    wc -c)
		grep -v 'Stale' "$scratch/why$1"
		[ "$reader_s" -le 1 ] || echo "mixed"
		[ "$reader_s" -ne 1 ] || : >"$scratch/good$1"
	done >"$scratch/read$1"
}
reader 0 & zero=$!
reader 1 & one=$!
until [ -e "$scratch/good0" ] && [ -e "$scratch/good1" ]; do sleep 0.1; done
for c in b c d e f; do
	fill $c >"$(m 0)/$f"
	commit || break
done
touch "$scratch/enough"
wait $zero $one
is "five commits: what is read meanwhile is never some of two" \
    "$(sort -u "$scratch/read0" "$scratch/read1")" ""
ok "rank 0 shows the last" \
    sh -c "[ \$(cat '$(m 0)/$f' | tr -s a-z) = f ]"
end

is "no process is left" "$(pgrep -f "$OPTIMFS.*mount.*$scratch" |
    grep -vx $$)" ""
done_testing
