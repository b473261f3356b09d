#!/bin/sh
# known.t - statistics are kept: the second call reads no data
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
requires python3
[ -r /proc/self/io ] || {
	echo "1..0 # SKIP the kernel does not count what a process reads"
	exit 0
}
XDG_CACHE_HOME=$scratch/cache
export XDG_CACHE_HOME OPTIMFS
mkdir "$XDG_CACHE_HOME"
cache=$XDG_CACHE_HOME/optimfs

# Two steps with 8 MB of data each.
run=$(point run)
python3 - "$run" <<'END'
import json, os, struct, sys
n = 1 << 20
names = ["layers.0.w", "layers.1.w"]
for step in 1, 2:
    os.mkdir(f"{sys.argv[1]}/step-{step}")
    head = json.dumps({name: {"dtype": "F32", "shape": [n], "data_offsets": [4 * n * i, 4 * n * (i + 1)]}
                       for i, name in enumerate(names)}).encode()
    with open(f"{sys.argv[1]}/step-{step}/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head)
        for i in 1, 2:
            f.write(struct.pack("<1024f", *(float(step * i * k % 97) for k in range(1024))) * (n // 1024))
END
one=$run/step-1

# reads ARGUMENT...: "data" or "none", what the command has read; its output is in $scratch/said
reads() {
	python3 - "$scratch/said" "$@" <<'END' || echo failed
import os, subprocess, sys
def count():
    return int(next(l for l in open("/proc/self/io") if l.startswith("rchar")).split()[1])
before = count()
with open(sys.argv[1], "wb") as out:
    status = subprocess.run([os.environ["OPTIMFS"]] + sys.argv[2:], stdout=out, stderr=subprocess.STDOUT, check=False).returncode
assert status in (0, 1), status
print("data" if count() - before > 3000000 else "none")
END
}
# What is new is not kept.
kept() { [ "$(reads "$@")" = none ]; }
plain() { XDG_CACHE_HOME=/dev/null/cache "$OPTIMFS" "$@" 2>&1; }

while read -r args; do
	set -- $args
	rm -rf "$cache"
	is "$args: without a cache the data is read" "$(reads "$@")" data
	ok "$args: later it is not" eventually kept "$@"
	is "$args: and the answer is the same" "$(cat "$scratch/said")" "$(plain "$@")"
done <<END
stat $one
stat --json $one
stat $one model/layers.1.w
stat --json $run:delta/1..2
stat --json $run:avg/1,2
log $run model
log --stat max,l2 --json $run model/layers.0.w model
check $one
check --json $run:2
END
is "the directory is its user's" "$(stat -c %a "$cache")" 700
is "and so are the files" "$(stat -c %a "$cache"/* | sort -u)" 600

# What is found for one path is there for others.
rm -r "$cache"
ok "the statistics of all" eventually kept stat "$one"
is "are those of one" "$(reads stat "$one" model/layers.0.w)" none
is "but not of another step" "$(reads stat "$run:2")" data
cp -r "$one" "$scratch/copy"
is "a copy is another checkpoint" "$(reads stat "$scratch/copy")" data
mv "$one" "$scratch/moved"
is "one that was moved is the same" "$(reads stat "$scratch/moved")" none
mv "$scratch/moved" "$one"

# A change is seen, whatever its times say.
f=$one/model.safetensors
skew=$((($(stat -c %s "$f") - 8388608) % 4))
touch -r "$f" "$scratch/stamp"
printf '\000\000\300\177' | dd of="$f" bs=1 seek=$((4000000 + skew)) conv=notrunc 2>/dev/null
touch -r "$scratch/stamp" "$f"
is "a file that was changed is read again" "$(reads stat "$one")" data
is "and what is new is found" "$(cat "$scratch/said")" "$(plain stat "$one")"
like "it is" "$(cat "$scratch/said")" '*the first NaN is element*'
ok "it is kept, too" eventually kept check "$one"
is "with its status" "$("$OPTIMFS" check "$one" >/dev/null; echo $?)" 1

# What is no cache.
rm -r "$cache"
ok "there is a file" eventually kept stat --json "$one"
plain stat --json "$one" >"$scratch/want"
file=$(echo "$cache"/stats-*)
cp "$file" "$scratch/file"
bad() { # NAME: the cache is not used, the answer is right, and then it is again a cache
	is "$1: it is not used" "$(reads stat --json "$one")" data
	ok "$1: the answer is right" cmp "$scratch/said" "$scratch/want"
}
for at in 0 20 200 400; do
	cp "$scratch/file" "$file"
	printf '\377' | dd of="$file" bs=1 seek=$at conv=notrunc 2>/dev/null
	bad "a byte at $at is damaged"
done
ok "the next call makes a new one" kept stat --json "$one"
for n in 0 7 100; do
	cp "$scratch/file" "$file"
	truncate -s $n "$file"
	bad "it has $n bytes"
done
chmod g+w "$file"
bad "others can write to it"
rm "$file"
ln -s "$scratch/file" "$file"
bad "it is a link"
cp "$scratch/file" "$cache/file"
rm -f "$file"
mv "$cache/file" "$file"
if [ "$(id -u)" = 0 ]; then
	chown 65534 "$file"
	bad "it is another user's"
else
	skip 2 "not root"
fi
ok "a cache that was not used is replaced" kept stat --json "$one"
chmod o+w "$cache"
bad "others can write to the directory"
chmod o-w "$cache"
rm "$file"
(ulimit -f 0
trap '' XFSZ
"$OPTIMFS" stat --json "$one" | cat >"$scratch/pipe" 2>/dev/null
"$OPTIMFS" stat --json "$one" | cmp - "$scratch/want" >/dev/null && echo right) >"$scratch/full" 2>&1
is "a full disk only means no cache" "$(cat "$scratch/full" 2>/dev/null; ls "$cache")" ""
# A new user has no ~/.cache.
mkdir "$scratch/home"
kept_at_home() {
	(
		unset XDG_CACHE_HOME
		HOME=$scratch/home "$OPTIMFS" stat "$one" >/dev/null
	)
	[ -n "$(find "$scratch/home/.cache/optimfs" -type f)" ]
}
ok "a home without .cache gets one" eventually kept_at_home

done_testing
