#!/bin/sh
# mpi_silent.t - reads from ranks that answer do not wait for ranks that are
# stopped, and the end needs neither them nor one that has died
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
. "${TOP_SRCDIR:-.}/tests/tap/ranks.sh"
requires python3

# Each of four ranks has one file of a sharded model, with 40 tensors.
python3 - "$nodes" <<'END'
import json, os, struct, sys
size, names = 1 << 18, {}
for r in range(4):
    where = f"{sys.argv[1]}/{r}/ck"
    file = f"model-{r + 1:05}-of-00004.safetensors"
    os.makedirs(where)
    head = {}
    for i in range(40):
        head[f"r{r}.t{i}"] = {"dtype": "U8", "shape": [size],
                              "data_offsets": [i * size, (i + 1) * size]}
        names[f"r{r}.t{i}"] = file
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(f"{where}/{file}", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for i in range(40):
            f.write(bytes([r * 40 + i]) * size)
with open(f"{sys.argv[1]}/0/ck/model.safetensors.index.json", "w") as f:
    json.dump({"metadata": {}, "weight_map": names}, f)
END
together
mkdir "$scratch/m0" "$scratch/m1" "$scratch/m2" "$scratch/m3"
"$OPTIMFS" mount "$scratch/all" "$other"

reads() { # read requests so far, including those for the counters
	timeout "$limit" sed -n 's/^fuse_read //p' "$mnt/.optimfs/stats"
}
are_reading() { # N: have N reads more begun?
	asked=$((asked + 1))
	are_n=$(reads)
	[ -n "$are_n" ] && [ $((are_n - before - asked * each)) -ge "$1" ]
}
same() { # PATTERN: are these files equal in both mounts?
	for same_f in "$other"/model/$1; do
		timeout "$limit" cmp "$same_f" "$mnt/model/${same_f##*/}" || return 1
	done
}
waiting() { # number of readers that still run
	waiting_n=0
	for waiting_p in $readers; do
		kill -0 "$waiting_p" 2>/dev/null && waiting_n=$((waiting_n + 1))
	done
	echo $waiting_n
}
for how in direct cached; do
	options=timeout=0,threads=2
	case $how in
	direct) options=$options,direct ;;
	cached) options=$options,assemble=off ;;
	esac
	start 4 "$options" "$nodes/%r/ck" "$mnt"
	before=$(reads)
	each=$(($(reads) - before))
	before=$((before + each)) asked=0
	two="$(pid_of 1) $(pid_of 2)"
	kill -STOP $two
	readers=
	mkdir "$scratch/$how"
	for f in "$other"/model/r1.* "$other"/model/r2.*; do
		cat "$mnt/model/${f##*/}" >"$scratch/$how/${f##*/}" &
		readers="$readers $!"
	done
	ok "$how: 80 reads from two stopped ranks have begun" \
	    eventually are_reading 80
	ok "$how: files of rank 0 can be read meanwhile" same 'r0.*'
	ok "$how: files of rank 3 can be read meanwhile" same 'r3.*'
	is "$how: all 80 reads still wait for the stopped ranks" "$(waiting)" 80
	kill -CONT $two
	wait $readers
	is "$how: the 80 reads get the right bytes after SIGCONT" "$(cd "$scratch/$how" &&
	    for f in *; do cmp "$f" "$other/model/$f"; done 2>&1)" ''
	ok "$how: the job exits with 0" stop "$mnt"
done

# Rank 2 ends while it may not send anything to rank 0, which owes it more answers
# than it has places for. Rank 0 waits until it learns that rank 2 has ended.
start 4 mount_ranks=all,timeout=3,direct,threads=2 "$nodes/%r/ck" "$scratch/m%r"
for r in 1 2 3; do eventually is_mounted "$scratch/m$r"; done
first=$(pid_of 0)
kill -STOP "$first"
readers=
for i in 1 2; do
	for f in "$other"/model/r0.*; do
		dd bs=4096 count=1 "if=$scratch/m2/model/${f##*/}" \
		    of=/dev/null 2>/dev/null &
		readers="$readers $!"
	done
done
wait $readers
"$OPTIMFS" umount "$scratch/m2"
sleep 0.5
kill -CONT "$first"
for r in 1 3; do "$OPTIMFS" umount "$scratch/m$r"; done
stop "$scratch/m0"
ok "a rank that could not say that it ends is not waited for" gone "$job"
"$OPTIMFS" umount "$other"

# Ranks 0 and 1 are on another machine than 2 and 3, as far as their names say.
cat >"$scratch/elsewhere" <<END
#!/bin/sh
exec unshare -u sh -c 'hostname m\$((OMPI_COMM_WORLD_RANK / 2)) && exec "\$@"' \
    sh "$OPTIMFS" "\$@"
END
chmod +x "$scratch/elsewhere"
optimfs=$OPTIMFS
if unshare -u hostname m0 2>/dev/null; then
	OPTIMFS=$scratch/elsewhere
	start 4 timeout=0 "$nodes/%r/ck" "$scratch/m%r" --enable-recovery
	OPTIMFS=$optimfs
	eventually is_mounted "$scratch/m2"
	kill -KILL "$(pid_of 3)"
	notices() { ! cat "$scratch/m2/model/r3.t0" >/dev/null 2>&1; }
	eventually notices
	"$OPTIMFS" umount "$scratch/m2"
	ok "without a limit a rank that died elsewhere does not delay the end" \
	    stop "$scratch/m0"
else
	skip 1 "no UTS name space"
fi
done_testing
