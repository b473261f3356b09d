#!/bin/sh
# mpi_silent.t - who reads of ranks that answer does not wait for those that do not
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
"$OPTIMFS" mount "$scratch/all" "$other"

reads() { # that the mount has been asked for, these of its counters included
	timeout "$limit" sed -n 's/^fuse_read //p' "$mnt/.optimfs/stats"
}
all_reading() { # N
	for all_i in $(seq 300); do
		all_n=$(reads)
		[ -n "$all_n" ] || return 1
		[ $((all_n - before - all_i * each)) -ge "$1" ] && return 0
		sleep 0.1
	done
	return 1
}
same() { # PATTERN: files of both mounts
	for same_f in "$other"/model/$1; do
		timeout "$limit" cmp "$same_f" "$mnt/model/${same_f##*/}" || return 1
	done
}
waiting() { # how many readers have not ended
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
	before=$((before + each))
	two="$(pid_of 1) $(pid_of 2)"
	kill -STOP $two
	readers=
	mkdir "$scratch/$how"
	for f in "$other"/model/r1.* "$other"/model/r2.*; do
		cat "$mnt/model/${f##*/}" >"$scratch/$how/${f##*/}" &
		readers="$readers $!"
	done
	ok "$how: 80 reads of two ranks that are stopped are begun" \
	    all_reading 80
	ok "files of this rank can be read" same 'r0.*'
	ok "and of another one" same 'r3.*'
	is "while 80 wait" "$(waiting)" 80
	kill -CONT $two
	wait $readers
	is "who then have what they wanted" "$(cd "$scratch/$how" &&
	    for f in *; do cmp "$f" "$other/model/$f"; done 2>&1)" ''
	ok "the job ends" stop "$mnt"
done
"$OPTIMFS" umount "$other"
done_testing
