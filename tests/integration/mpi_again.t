#!/bin/sh
# mpi_again.t - several ranks' mounts go on after what one of them has committed
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
	for all_i in $(seq 200); do
		is_mounted "$(m 1)" && is_mounted "$(m 2)" && return 0
		sleep 0.1
	done
	return 1
}
each() { # OPTIONS CHECKPOINT [MPIRUN OPTION...]
	each_o=$1 each_ck=$2
	shift 2
	start $n "$each_o,mount_ranks=all" "$each_ck" "$scratch/m%r" "$@" &&
	    all_mounted
}
end() {
	timeout 30 "$OPTIMFS" umount "$(m 0)" && timeout 30 "$OPTIMFS" umount \
	    "$(m 1)" && stop "$(m 2)"
}
# All that a mount shows, but for what it says of itself.
shown() { # RANK
	(cd "$(m "$1")" && find . -type f | sort | xargs sha256sum
	cat .optimfs/layout/model/* 2>/dev/null | sha256sum)
}
alike() {
	for alike_r in 0 1 2; do
		shown $alike_r >"$scratch/shown$alike_r"
	done
	cmp "$scratch/shown0" "$scratch/shown1" &&
	    cmp "$scratch/shown0" "$scratch/shown2"
}
says() { # WHAT: the same on all?
	for says_r in 0 1 2; do
		[ "$(cat "$(m $says_r)/optim/param_groups/0/lr")" = "$1" ] ||
		    return 1
	done
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
	"$OPTIMFS" mount "$1" "$other"
	(cd "$other" && find . -type f | sort | xargs sha256sum) >"$scratch/is"
	"$OPTIMFS" umount "$other"
	sed \$d "$scratch/shown0" | cmp - "$scratch/is"
}

rounds() { # NAME: two edits, two commits, one mount
	for value in 0.5 0.25; do
		was=$(cat "$(m 1)/optim/param_groups/0/lr")
		edit $value
		is "$1: it is seen at once where it is written" \
		    "$(cat "$(m 0)/optim/param_groups/0/lr")" $value
		is "$1: nowhere else before the commit" \
		    "$(cat "$(m 1)/optim/param_groups/0/lr")" "$was"
		status "$1: commit $value" 0 commit
		ok "$1: then all have it" says $value
		ok "$1: and all else alike" alike
		is "$1: nobody has failed at anything" \
		    "$(cat "$(m 0)/.optimfs/errors" "$(m 1)/.optimfs/errors" \
			"$(m 2)/.optimfs/errors")" ""
	done
}

for case in dcp_fsdp2_w3/ckpt \
    fsdp1_sharded_orig_hybridshard_w4/ckpt_rankfiles; do
	name=$(dirname "$case")
	spread "$data/$case" $n
	ok "$name: every rank has a mount" each rw "$nodes/%r/ck"
	exec 5<"$(m 1)/optim/param_groups/0/lr"
	rounds "$name"
	not_ok "$name: rank 1 cannot write" \
	    sh -c "echo 1 >'$(m 1)/optim/param_groups/0/lr'"
	like "$name: and says who can" "$(cat "$(m 1)/.optimfs/control")" \
	    '*read-only*rank 0*'
	not_ok "$name: what was open before says that it is stale" \
	    sh -c 'cat <&5'
	exec 5<&-
	ok "$name: the job ends well" end
	is "$name: and leaves nothing" "$(left)" ""
	together
	ok "$name: the files say what was written" as_stored "$scratch/all"
done

# One directory that all see, which rank 0 writes as if it were alone.
cp -r "$data/dcp_fsdp2_w3/ckpt" "$scratch/one"
ok "one directory: every rank has a mount" each rw "$scratch/one"
f=$(cd "$(m 2)" && find model -type f -size +1 | sort | head -n 1)
exec 5<"$(m 2)/$f"
rounds "one directory"
ok "one directory: what nobody wrote can be read on" \
    sh -c "cat <&5 | cmp - '$(m 0)/$f'"
exec 5<&-
rm "$(m 0)/$f"
commit
not_ok "one directory: a file that was removed is gone everywhere" \
    ls "$(m 0)/$f" "$(m 1)/$f" "$(m 2)/$f"
edit 0.75
ok "one directory: unmounted on rank 0" "$OPTIMFS" umount "$(m 0)"
is "one directory: which commits for the others" \
    "$(cat "$(m 1)/optim/param_groups/0/lr")" 0.75
"$OPTIMFS" umount "$(m 1)"
ok "one directory: the job ends well" stop "$(m 2)"
ok "one directory: nothing is left" [ ! -e "$scratch/.one.optimfs" ]

# Ranks that cannot agree: nobody goes on, and why is said; until they can.
spread "$data/dcp_fsdp2_w3/ckpt" $n
each rw "$nodes/%r/ck"
edit 0.5
echo 1 >"$nodes/1/ck/odd"
echo 2 >"$nodes/2/ck/odd"
status "ranks cannot agree: it is committed all the same" 0 commit
is "is still shown to others as it was" \
    "$(cat "$(m 1)/optim/param_groups/0/lr")" 0.001
like "who are told" "$(cat "$(m 1)/.optimfs/control")" '*outdated*OFS835*OFS914*'
not_ok "nothing more can be written" \
    sh -c "echo 2 >'$(m 0)/optim/param_groups/0/lr'"
like "and why is said" "$(cat "$(m 0)/.optimfs/errors")" '*OFS914*odd*'
status "nor committed" 3 commit
like "which says it, too" "$(cat "$scratch/err")" '*OFS835*OFS914*odd*'
rm "$nodes"/?/ck/odd
status "when they can, one more commit shows it" 0 commit
ok "to all" says 0.5
edit 0.25
commit
ok "and all goes on" says 0.25
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
	is "is seen where there is a mount" \
	    "$(cat "$(m 1)/optim/param_groups/0/lr")" 0.25
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
reader() { # RANK: what one read says is all of one kind; or ESTALE
	while [ ! -e "$scratch/enough" ]; do
		reader_s=$(cat "$(m "$1")/$f" 2>"$scratch/why$1" | tr -s a-z |
		    wc -c)
		grep -v 'Stale' "$scratch/why$1"
		[ "$reader_s" -le 1 ] || echo "mixed"
		[ "$reader_s" -ne 1 ] || : >"$scratch/good$1"
	done >"$scratch/read$1"
}
reader 1 & one=$!
reader 2 & two=$!
for c in b c d e f; do
	fill $c >"$(m 0)/$f"
	commit || break
done
touch "$scratch/enough"
wait $one $two
is "five commits: what others read meanwhile is one or the other" \
    "$(sort -u "$scratch/read1" "$scratch/read2")" ""
ok "and there was some" ls "$scratch/good1" "$scratch/good2"
ok "and is the last then" sh -c "[ \$(cat '$(m 2)/$f' | tr -s a-z) = f ]"
end

is "no process is left" "$(pgrep -f "$OPTIMFS.*mount.*$scratch" |
    grep -vx $$)" ""
done_testing
