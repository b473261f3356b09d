#!/bin/sh
# segments.t - runs of several files by one request: optimfs serve, and who asks it
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
. "$TOP_SRCDIR/tests/tap/nodes.sh"
. "$TOP_SRCDIR/tests/tap/python.sh"

# 512 rows of 32 KiB, in one file; and the same in two
python3 - "$scratch" <<'E2'
import json, os, sys
def write(name, first, rows, shape):
    n = rows << 15
    head = json.dumps({"w": {"dtype": "I32", "shape": shape, "data_offsets": [0, n]}}).encode()
    head += b" " * (-len(head) % 8)
    os.makedirs(os.path.dirname(name), exist_ok=True)
    with open(name, "wb") as f:
        f.write(len(head).to_bytes(8, "little") + head)
        for row in range(first, first + rows):
            f.write(b"".join(k.to_bytes(4, "little") for k in range(row << 13, (row + 1) << 13)))
write(sys.argv[1] + "/one/model.safetensors", 0, 512, [512, 8192])
E2
"$OPTIMFS" reshard -q --to dcp@4 "$scratch/one" "$scratch/four"

http() {
	python3 "$TOP_SRCDIR/tests/support/http_client.py" "$@"
}
# list LIST [HEADER:VALUE]...
list() {
	list=$1
	shift
	http "http://127.0.0.1:$port_four/.optimfs/files/?segments=$list" get "$@"
}
body() {
	sed '1,/^$/d'
}
part() {
	dd if="$scratch/four/$1" bs=1 skip="$2" count="$3" 2>/dev/null
}

node four
a=__0_0.distcp b=__1_0.distcp
tag() {
	http "http://127.0.0.1:$port_four/.optimfs/files/$1" get method:HEAD |
	    sed -n 's/^ETag: "\(.*\)"$/%22\1%22/p'
}
like "listings say that lists are answered" \
    "$(http "http://127.0.0.1:$port_four/.optimfs/files/" get)" "200*X-Optimfs-Segments: 1*"
ta=$(tag $a) tb=$(tag $b)
part $a 7 20 >"$scratch/want"
for at in 100 1100 2100; do
	part $b $at 10 >>"$scratch/want"
done
part $a 0 5 >>"$scratch/want"
all="$a,$ta,7:20;$b,$tb,100:10:3:1000;$a,$ta,0:5"
list "$all" >"$scratch/answer"
like "an answer says what it is" "$(sed '/^$/q' "$scratch/answer")" \
    "200*X-Optimfs-Segments: 1*Content-Length: 55*"
body <"$scratch/answer" >"$scratch/got"
ok "it has the runs one after the other" cmp "$scratch/got" "$scratch/want"
list "$all" Range:bytes=25-44 >"$scratch/answer"
like "a part of it is a range" "$(sed '/^$/q' "$scratch/answer")" "206*bytes 25-44/55*"
body <"$scratch/answer" >"$scratch/got"
tail -c +26 "$scratch/want" | head -c 20 >"$scratch/part"
ok "which is that part" cmp "$scratch/got" "$scratch/part"
# Windows of many lengths: runs of 1, 3000 and 70000 bytes, some across blocks of 1 MiB.
for runs in 0:1:100000:9 5:3000:1000:3000 11:70000:40:90000; do
	list "$a,$ta,$runs" | body | cksum >"$scratch/got"
	python3 - "$scratch/four/$a" $runs <<-'E2' | cksum >"$scratch/want"
		import sys
		off, n, count, pitch = map(int, sys.argv[2].split(":"))
		data = open(sys.argv[1], "rb").read()
		for i in range(count):
		    sys.stdout.buffer.write(data[off + i * pitch:][:n])
	E2
	ok "runs of $runs" cmp "$scratch/got" "$scratch/want"
done

# What is no list, or asks for what it may not have.
size=$(stat -c %s "$scratch/four/$a")
while read -r status why bad; do
	like "refused: $why" "$(list "$bad")" "$status*"
done <<E2
400 nothing $a
400 no_tag $a,,0:1
412 another_tag $a,x,0:1
400 no_runs $a,$ta
400 a_run_without_length $a,$ta,5
400 an_empty_run $a,$ta,5:0
400 no_run_at_all $a,$ta,0:1:0:1
400 three_numbers $a,$ta,0:1:2
400 five_numbers $a,$ta,0:1:2:3:4
400 runs_that_overlap $a,$ta,0:10:2:5
400 what_is_behind_the_end $a,$ta,$size:1
400 runs_behind_the_end $a,$ta,0:1:3:$((size - 1))
400 a_large_number $a,$ta,18446744073709551615:18446744073709551615
400 a_larger_number $a,$ta,99999999999999999999:1
400 a_product_that_overflows $a,$ta,0:4294967296:4294967296:4294967296
400 a_pitch_that_is_negative $a,$ta,0:1:2:9223372036854775808
400 a_sign $a,$ta,-1:1
400 too_many_runs $a,$ta,0:1:1048577:1
400 too_many_bytes $(for i in $(seq 60); do printf '%s,%s,0:1200000;' $a "$ta"; done)$a,$ta,0:1
400 an_empty_part $a,$ta,0:1;;
404 no_file none,$ta,0:1
404 a_way_out ..%2f..%2fetc%2fpasswd,x,0:1
404 a_hidden_file .optimfs,x,0:1
400 half_an_escape $a%2,$ta,0:1
400 a_name_with_zero $a%00,$ta,0:1
E2
like "the refusal says what is expected" "$(list "$a,$ta,5")" "400*OFFSET:LENGTH:COUNT:PITCH*"
like "of a file that has changed, which one" "$(list "$a,$ta,0:1;$b,x,0:1")" "412*$b*changed*"
chmod o= "$scratch/four/$b"
like "what is private is for nobody without a token" "$(list "$b,$tb,0:1")" "403*OFS022*"
chmod o=r "$scratch/four/$b"
like "after all that it goes on" "$(list "$a,$ta,0:1")" "200*"

# Who reads columns asks for lists.
import_optimfs
if ! [ -e "$OPTIMFS_LIBRARY" ] || sanitized; then
	stop "$pid_four"
	done_testing
	exit
fi
cat >"$scratch/columns.py" <<'E2'
import os, random, sys
import optimfs
address, local = sys.argv[1:3]

def counts(ck):
    stats = dict(l.split() for l in ck.open(".optimfs/stats").read().decode().splitlines()
                 if l.count(" ") == 1)
    return int(stats["http.reads"]), int(stats["http.read_bytes"])

def same(a, b, *key):
    n = counts(a)
    got = a["model/w"][key]
    assert got.tobytes() == b["model/w"][key].tobytes(), key
    m = counts(a)
    print(m[0] - n[0], (m[1] - n[1]) * 100 // got.nbytes)

def pieces(ck, where):
    to = bytearray(sum(n for _, n in where))
    at = optimfs._tensor.address(memoryview(to))
    parts, end = [], optimfs._tensor.c.addressof(at)
    for off, n in where:
        parts.append((ck["model/w"]._node, off, n, end))
        end += n
    ck._tree.load(parts)
    return to

rest = sys.argv[3:]
how = {"cache_dir": rest.pop()} if rest and "/" in rest[-1] else {}
with optimfs.open(address, **how) as a, optimfs.open(local) as b:
    a["model/w"][::64, 0:1].tobytes()  # where the elements are is known then
    if rest == ["pieces"]:
        random.seed(1)
        where, off = [], 0
        while off < (15 << 20):
            n = random.randrange(1, 500) * 4
            where.append((off, n))
            off += n + random.randrange(100, 20000) * 4
        n = counts(a)
        assert pieces(a, where) == pieces(b, where)
        m = counts(a)
        print(m[0] - n[0], (m[1] - n[1]) * 100 // sum(n for _, n in where))
    elif rest == ["replaced"]:
        same(a, b, slice(None), slice(100, 356))
        for name in os.listdir(local):
            old = os.path.join(local, name)
            if name[0] != ".":
                with open(old, "rb") as f, open(old + ".new", "wb") as g:
                    g.write(f.read())
                os.rename(old + ".new", old)
        try:
            a["model/w"][:, 400:500].tobytes()
        except OSError as e:
            sys.exit(str(e))
    elif rest == ["whole"]:
        same(a, b)
        same(a, b, slice(None), slice(100, 356))
    elif rest == ["each"]:
        n = counts(a)
        for i in range(0, 8192, 32):
            assert a["model/w"][:, i].tobytes() == b["model/w"][:, i].tobytes()
        m = counts(a)
        print(m[0] - n[0], (m[1] - n[1]) * 100 // a["model/w"].nbytes)
    else:
        same(a, b, slice(None), slice(100, 356))
        same(a, b, slice(3, 500, 5), slice(8000, 8192))
        same(a, b, slice(None), slice(0, 1))
E2
columns() {
	python3 "$scratch/columns.py" "$@" 2>"$scratch/err"
}
# of NAME MOST: did each read take at most so many requests, and its bytes and 5 %?
few() {
	awk -v most="$2" '$1 > most || $2 > 105 { exit 1 } END { if (NR == 0) exit 1 }' "$scratch/counts"
	tap_result $? "$1" || diag "$(cat "$scratch/counts" "$scratch/err")"
}
node one
from=http://127.0.0.1:$port_one
columns "$from" "$scratch/one" >"$scratch/counts"
few "a column is read by one request, and its bytes" 1
columns "$from" "$scratch/one" pieces >"$scratch/counts"
few "so are pieces, by a few" 24
columns "http://127.0.0.1:$port_four" "$scratch/four" >"$scratch/counts"
few "columns of four files, too" 1

# What came is kept, if there is a directory for it.
columns "$from" "$scratch/one" "$scratch/cache" >"$scratch/counts"
few "with cache_dir= it is a list, too" 1
columns "$from" "$scratch/one" "$scratch/cache" >"$scratch/counts"
few "which is there for the next process" 0
columns "http://127.0.0.1:$port_four" "$scratch/four" "$scratch/cache" >"$scratch/counts"
few "of four files" 1
columns "http://127.0.0.1:$port_four" "$scratch/four" "$scratch/cache" >"$scratch/counts"
few "the same" 0
find "$scratch/cache" -type f -size +16 -exec \
    sh -c 'printf x | dd of="$0" bs=1 seek=5000 conv=notrunc 2>/dev/null' {} \;
columns "$from" "$scratch/one" "$scratch/cache" >"$scratch/counts"
few "what is damaged is asked for again" 1
touch "$scratch/one/model.safetensors"
columns "$from" "$scratch/one" "$scratch/cache" >"$scratch/counts"
few "so are files that have changed" 1
columns "$from" "$scratch/one" whole "$scratch/cache.whole" >/dev/null
columns "$from" "$scratch/one" "$scratch/cache.whole" >"$scratch/counts"
few "columns of what is there are not asked for" 0
columns "$from" "$scratch/one" each "$scratch/cache.each" >"$scratch/counts"
awk '$1 > 140 || $2 > 110 { exit 1 } END { if (NR == 0) exit 1 }' "$scratch/counts"
tap_result $? "who asks for column after column gets whole blocks" ||
    diag "$(cat "$scratch/counts" "$scratch/err")"
columns "$from" "$scratch/one" each "$scratch/cache.each" >"$scratch/counts"
few "and then asks for no more" 0
cp -r "$scratch/four" "$scratch/copy"
not_ok "a file that was replaced is stale" python3 "$scratch/columns.py" \
    "http://127.0.0.1:$port_four" "$scratch/four" replaced
like "the error names it" "$(cat "$scratch/err")" "*OFS751*distcp*replaced*"
stop "$pid_four" "$pid_one"

# On two nodes, over links with a delay, of which one breaks now and then.
split "$scratch/copy" 2
columns "{$from}" "$scratch/copy" >"$scratch/counts"
few "each of two nodes gets a list" 2
columns "{$from}" "$scratch/copy" "$scratch/cache.nodes" >"$scratch/counts"
few "also with cache_dir=" 2
columns "{$from}" "$scratch/copy" "$scratch/cache.nodes" >"$scratch/counts"
few "which keeps both" 0
far 0 20 0 3
links=$pid_far from=$far,${from#*,}
columns "{$from}" "$scratch/copy" >"$scratch/counts"
[ "$(wc -l <"$scratch/counts")" = 3 ]
tap_result $? "over a connection that breaks it is the same" || diag "$(cat "$scratch/err")"
kill "$links"
stop "$pid_n0" "$pid_n1"

# A server with faults.
. "$TOP_SRCDIR/tests/tap/server.sh"
rm -f "$scratch/port"
serve "$scratch"
columns "$server/lists/copy" "$scratch/copy" >"$scratch/counts"
few "lists of another server" 1
columns "$server/tags/copy" "$scratch/copy" >"$scratch/counts"
[ "$(wc -l <"$scratch/counts")" = 3 ]
tap_result $? "a server without lists is read by ranges" || diag "$(cat "$scratch/err")"
columns "$server/unlisted/lists/copy" "$scratch/copy" "$scratch/cache.ranges" >"$scratch/counts"
columns "$server/unlisted/lists/copy" "$scratch/copy" "$scratch/cache.ranges" >"$scratch/counts"
few "what came by ranges is kept in blocks, from which columns come" 0
asked >/dev/null
for fault in unlisted ignored wrong norange endless closed lost; do
	: >"$requests"
	columns "$server/$fault/lists/copy" "$scratch/copy" >"$scratch/counts"
	[ "$(wc -l <"$scratch/counts")" = 3 ]
	tap_result $? "so is one whose lists are no answers: $fault" || diag "$(cat "$scratch/err")"
	is "it is not asked again" "$(grep -c "^GET /$fault/lists/copy/ bytes=" "$requests")" 1
done
for fault in busy later cut short; do
	: >"$requests"
	columns "$server/$fault/lists/copy" "$scratch/copy" >"$scratch/counts"
	[ "$(wc -l <"$scratch/counts")" = 3 ]
	tap_result $? "one that is $fault at times is asked again" || diag "$(cat "$scratch/err")"
done
like "and goes on where it was" "$(grep 'copy/ bytes=' "$requests")" "*copy/ bytes=[1-9]*-*"
done_testing
