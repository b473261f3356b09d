#!/bin/sh
# mpi_again.t - mounts of several ranks before, during and after commits by rank
# 0
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
. "${TOP_SRCDIR:-.}/tests/tap/ranks.sh"

# Every rank mounts; only the mount of rank 0 is writable.
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
shown() { # MOUNT POINT: checksums of the whole tree
	(cd "$1" && find . -type f | sort | xargs sha256sum)
}
edit() { # VALUE: a scalar, a part of a tensor, a whole tensor
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
# Does rank 0 show what a mount without ranks reads from the files?
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

rounds() { # NAME COLLECT: two edits and commits in one mount; COLLECT makes all/
	shown "$(m 0)" >"$scratch/before"
	for value in 0.5 0.25; do
		edit $value
		is "$1: rank 0 shows the edit before the commit" \
		    "$(cat "$(m 0)/optim/param_groups/0/lr")" $value
		status "$1: commit of $value exits with 0" 0 commit
		is "$1: rank 0 shows the edit after the commit" \
		    "$(cat "$(m 0)/optim/param_groups/0/lr")" $value
		is "$1: rank 0 has no errors after the commit" \
		    "$(cat "$(m 0)/.optimfs/errors")" ""
		ok "$1: rank 1 shows the old bytes or ESTALE" same 1 \
		    "$scratch/before"
		ok "$1: rank 2 shows the old bytes or ESTALE" same 2 "$scratch/before"
		"$2"
		ok "$1: rank 0 shows what is stored" as_stored \
		    "$scratch/all"
	done
}

for case in dcp_fsdp2_w3/ckpt \
    fsdp1_sharded_orig_hybridshard_w4/ckpt_rankfiles; do
	name=$(dirname "$case")
	spread "$data/$case" $n
	ok "$name: every rank mounts" each rw "$nodes/%r/ck"
	rounds "$name" together
	not_ok "$name: writing in the mount of rank 1 fails" \
	    sh -c "echo 1 >'$(m 1)/optim/param_groups/0/lr'"
	like "$name: control of rank 1 says that rank 0 is writable" \
	    "$(cat "$(m 1)/.optimfs/control")" \
	    '*read-only*rank 0*mount again*'
	ok "$name: the job exits with 0 after the commits" end
	is "$name: no staging directory is left" "$(left)" ""
	ok "$name: every rank mounts the committed checkpoint" each rw "$nodes/%r/ck"
	is "$name: every rank shows the committed value in a new mount" \
	    "$(cat "$(m 0)/optim/param_groups/0/lr" \
		"$(m 1)/optim/param_groups/0/lr" \
		"$(m 2)/optim/param_groups/0/lr" | uniq)" 0.25
	end
done

# One directory that all ranks see; rank 0 alone writes it.
cp -r "$data/dcp_fsdp2_w3/ckpt" "$scratch/one"
link() {
	rm -rf "$scratch/all"
	ln -s one "$scratch/all"
}
ok "one directory: every rank mounts" each rw "$scratch/one"
rounds "one directory" link
ok "one directory: rank 1 reads a changed tensor with ESTALE" stale 1 "$edit_f"
like "one directory: OFS753 says to mount again" \
    "$(cat "$(m 1)/.optimfs/errors")" '*OFS753*mount*again*'
f=$(cd "$(m 0)" && find model -type f -size +1 | sort | head -n 1)
rm "$(m 0)/$f"
commit
not_ok "one directory: a removed tensor is gone after the commit" ls "$(m 0)/$f"
edit 0.75
ok "one directory: umount of rank 0 succeeds" "$OPTIMFS" umount "$(m 0)"
"$OPTIMFS" umount "$(m 1)"
ok "one directory: the job exits with 0 after the last umount" stop "$(m 2)"
ok "one directory: no staging directory is left" [ ! -e "$scratch/.one.optimfs" ]
"$OPTIMFS" mount "$scratch/one" "$other"
is "one directory: umount of rank 0 has committed the last edit" \
    "$(cat "$other/optim/param_groups/0/lr")" 0.75
"$OPTIMFS" umount "$other"

# After a commit the ranks read their directories again. If two have different
# files of one name, the commit itself is safe, and rank 0 shows it once the
# files are gone.
spread "$data/dcp_fsdp2_w3/ckpt" $n
each rw "$nodes/%r/ck"
edit 0.5
echo 1 >"$nodes/1/ck/odd"
echo 22 >"$nodes/2/ck/odd"
status "commit exits with 0 although ranks have different files of one name" 0 commit
not_ok "the mount rejects writes while the ranks have different files" \
    sh -c "echo 2 >'$(m 0)/optim/param_groups/0/lr'"
like "OFS914 in .optimfs/errors names the differing file" \
    "$(cat "$(m 0)/.optimfs/errors")" '*OFS914*odd*'
status "a further commit exits with 3 while the ranks have different files" 3 commit
like "OFS835 names the differing file of OFS914" "$(cat "$scratch/err")" '*OFS835*OFS914*odd*'
rm "$nodes"/?/ck/odd
status "commit exits with 0 after the differing files are removed" 0 commit
is "rank 0 shows the committed value after the files are removed" \
    "$(cat "$(m 0)/optim/param_groups/0/lr")" 0.5
edit 0.25
commit
is "rank 0 shows an edit committed after the conflict" \
    "$(cat "$(m 0)/optim/param_groups/0/lr")" 0.25
end
is "no staging directory is left after the conflict" "$(left)" ""

# A rank dies between two commits. If the others have all its files it is not
# missed. If it alone had a file, no commit is possible.
spread "$data/dcp_fsdp2_w3/ckpt" 2
ln -s 1 "$nodes/2"
if each rw,timeout=6 "$nodes/%r/ck" --enable-recovery; then
	edit 0.5
	commit
	kill -KILL "$(pid_of 2)"
	edit 0.25
	status "commit exits with 0 after a rank without own files died" 0 commit
	is "rank 0 shows the value committed without that rank" \
	    "$(cat "$(m 0)/optim/param_groups/0/lr")" 0.25
	edit 0.125
	kill -KILL "$(pid_of 1)"
	status "commit exits with 3 after a rank with own files died" 3 commit
	like "the failed commit names rank 1" "$(cat "$scratch/err")" '*rank 1*'
	is "the failed commit keeps the staged value" \
	    "$(cat "$(m 0)/optim/param_groups/0/lr")" 0.125
	"$OPTIMFS" abort "$(m 0)"
	"$OPTIMFS" umount "$(m 0)"
	gone "$job"
else
	skip 5 "mpirun has no --enable-recovery"
fi

# A rank that has unmounted still writes its files for rank 0.
spread "$data/dcp_fsdp2_w3/ckpt" $n
each rw "$nodes/%r/ck"
"$OPTIMFS" umount "$(m 1)"
edit 0.5
status "commit exits with 0 after another rank has unmounted" 0 commit
"$OPTIMFS" umount "$(m 0)"
ok "the job ends after the last unmount" stop "$(m 2)"
is "no staging directory is left after the last unmount" "$(left)" ""

# A read during a commit never mixes old and new bytes.
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
reader() { # RANK: each read has one kind of byte, or fails with ESTALE
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
is "no read during five commits has bytes of two commits" \
    "$(sort -u "$scratch/read0" "$scratch/read1")" ""
ok "rank 0 shows the bytes of the last commit" \
    sh -c "[ \$(cat '$(m 0)/$f' | tr -s a-z) = f ]"
end

ok "no process is left" eventually nothing_left
done_testing
