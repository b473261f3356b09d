#!/bin/sh
# mount_faults.t - read errors and stalls of the source, and many concurrent
# readers
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

requires mount python3
o=$OPTIMFS_FAKE
ck=$scratch/ck
mnt=$(point mnt)
mkdir -p "$ck/.optimfs" "$ck/many"
touch "$ck/.optimfs/stats" "$ck/.optimfs/errors" "$ck/.optimfs/waiting"
head -c 3000000 /dev/urandom >"$ck/bad"
head -c 30000000 /dev/urandom >"$ck/badbig"
head -c 3000 /dev/urandom >"$ck/badtiny"
head -c 100000 /dev/urandom >"$ck/slow"
head -c 100000 /dev/urandom >"$ck/stuck"
head -c 20000000 /dev/urandom >"$ck/large"
echo 1 >"$ck/shut"
echo 1 >"$ck/good"
echo 1 >"$ck/cannot"
# 5 is EIO, 74 EBADMSG, 117 EUCLEAN
ln "$ck/stuck" "$ck/dying"
cat >"$ck/.fake" <<'END'
dying slow=3600000 fail=0-100000:5
bad fail=1000000-1000100:5
badbig fail=20000000-20000001:74
badtiny fail=0-10:117
slow slow=700
stuck slow=3600000
cannot openfail=116
shut openslow=3600000
END
for i in 1 2 3 4 5 6; do
	head -c 100000 /dev/urandom >"$ck/stuck$i"
	cp "$ck/stuck$i" "$ck/late$i"
	echo "stuck$i slow=3600000" >>"$ck/.fake"
	echo "late$i slow=700" >>"$ck/.fake"
done
for i in $(seq 40); do
	head -c $((i * i * 3000)) /dev/urandom >"$ck/many/$i"
done

cat >"$scratch/bad.py" <<'END'
import errno, os, sys
mnt, ck, name, first, last, code = sys.argv[1:]
first, last = int(first), int(last)
good = open(f"{ck}/{name}", "rb").read()
fd = os.open(f"{mnt}/{name}", os.O_RDONLY)
page = 4096
lo, hi = first // page * page, -(-last // page) * page
def all_of(off, end):
    out = b""
    while off < end:
        part = os.pread(fd, min(end - off, 1 << 20), off)
        assert part, off
        out += part
        off += len(part)
    return out
for off, end in ((0, lo), (hi, len(good))):
    if off < end:
        assert all_of(off, end) == good[off:end], (off, end)
for off in (first, last - 1):
    try:
        os.pread(fd, 1, off)
        raise AssertionError("no error")
    except OSError as e:
        assert e.errno == int(code), e
END
for opts in assemble=auto assemble=always assemble=off direct; do
	"$o" mount -o $opts "$ck" "$mnt"
	ok "$opts: bytes around an unreadable range can be read" \
	    python3 "$scratch/bad.py" "$mnt" "$ck" bad 1000000 1000100 5
	ok "$opts: bytes around an unreadable range of a large file can be read" \
	    python3 "$scratch/bad.py" "$mnt" "$ck" badbig 20000000 20000001 74
	ok "$opts: they can be read again after the error" \
	    python3 "$scratch/bad.py" "$mnt" "$ck" badbig 20000000 20000001 74
	not_ok "$opts: reading a damaged tiny file fails" cat "$mnt/badtiny"
	like "$opts: a damaged tiny file gives EUCLEAN" "$(cat "$scratch/err")" \
	    "*Structure needs cleaning*"
	not_ok "$opts: cp of an unreadable file fails" cp "$mnt/bad" "$scratch/copy"
	not_ok "$opts: open fails for a file that the source cannot open" cat "$mnt/cannot"
	like "$opts: a failed open gives ESTALE" "$(cat "$scratch/err")" "*Stale file handle*"
	is "$opts: other files can be read after the errors" "$(cat "$mnt/good")" 1
	like "$opts: .optimfs/errors names the file and the unreadable bytes" \
	    "$(cat "$mnt/.optimfs/errors")" \
	    "*OFS901 bad: bytes 1000000 to 1000100*"
	"$o" umount "$mnt"
done

# --- stalls ------------------------------------------------------------

# Reads of stuck files take an hour, longer than a test may run.
for opts in assemble=always assemble=off direct; do
	"$o" mount -o $opts,timeout=3 "$ck" "$mnt"
	not_ok "$opts: a read from a stalled source fails" cat "$mnt/stuck"
	like "$opts: a stalled read gives ETIMEDOUT" "$(cat "$scratch/err")" \
	    "*Connection timed out*"
	is "$opts: other files can be read after the timeout" "$(cat "$mnt/good")" 1
	like "$opts: OFS760 in .optimfs/errors names timeout=" \
	    "$(cat "$mnt/.optimfs/errors")" "*OFS760*timeout=*"
	"$o" umount --force "$mnt"
done

# The open goes on after it was answered, and ends when the file is removed.
"$o" mount -f -o timeout=1 "$ck" "$mnt" &
daemon=$!
eventually [ -e "$mnt/shut" ]
not_ok "an open that takes longer than timeout= fails" cat "$mnt/shut"
like "an open that takes longer than timeout= gives ETIMEDOUT" "$(cat "$scratch/err")" \
    "*Connection timed out*"
rm "$ck/shut"
ok "a mount is unmounted after an open that was answered early" "$o" umount "$mnt"
wait $daemon
is "a daemon that answered an open early exits with 0" $? 0

for opts in assemble=always assemble=off direct; do
	"$o" mount -o $opts "$ck" "$mnt"
	ok "$opts: a file of a slow source is read completely" cmp "$mnt/slow" "$ck/slow"
	status "$opts: a reader of a stalled source can be interrupted" 124 \
	    timeout -s INT 0.3 cat "$mnt/stuck"
	# Killing one reader of a file must not disturb another reader of it.
	timeout -s KILL 0.3 cat "$mnt/slow" >/dev/null 2>&1 &
	sleep 0.1
	ok "$opts: a second reader of the file gets all bytes" cmp "$mnt/slow" "$ck/slow"
	"$o" umount --force "$mnt"
done

# The first read fails when the file loses a name, and another one would wait.
"$o" mount -f -o direct "$ck" "$mnt" &
daemon=$!
eventually [ -e "$mnt/dying" ]
status "direct: a reader of a source that will fail can be interrupted" 124 \
    timeout -s INT 0.3 cat "$mnt/dying"
rm "$ck/stuck"
ok "direct: nothing is read again for a reader that has gone" "$o" umount "$mnt"
wait $daemon
is "direct: the daemon ends" $? 0
ln "$ck/dying" "$ck/stuck"

waiting() { # N: do N reads wait in the source?
	[ "$(timeout "$limit" cat "$mnt/.optimfs/waiting")" = "$1" ]
}
# Six readers wait in the source, three times as many as threads=2.
for opts in assemble=always assemble=off; do
	"$o" mount -o $opts,threads=2 "$ck" "$mnt"
	readers=
	for i in 1 2 3 4 5 6; do
		cmp "$mnt/stuck$i" "$ck/stuck$i" 2>/dev/null &
		readers="$readers $!"
	done
	eventually waiting 6
	ok "$opts: other files can be read while six readers are stalled" cmp "$mnt/good" "$ck/good"
	"$o" umount --force "$mnt"
	wait $readers
	"$o" mount -o $opts,threads=2 "$ck" "$mnt"
	readers=
	for i in 1 2 3 4 5 6; do
		cmp "$mnt/late$i" "$ck/late$i" &
		readers="$readers $!"
	done
	failed=0
	for p in $readers; do
		wait "$p" || failed=$((failed + 1))
	done
	is "$opts: six slow readers get the right bytes with two threads" $failed 0
	ok "$opts: umount after six slow readers succeeds" "$o" umount "$mnt"
done

# --- many readers ------------------------------------------------------

# Opens of one file overlap in every way, and memory is always short. For a file
# that is open already, the kernel must not get another way to read it.
cat >"$scratch/many.py" <<'END'
import os, random, sys, threading, mmap
mnt, ck, seed = sys.argv[1:]
names = [f"many/{i}" for i in range(1, 41)] + ["large", "good"]
want = {n: open(f"{ck}/{n}", "rb").read() for n in names}
bad = []
def work(seed):
    r = random.Random(seed)
    held = []
    try:
        for _ in range(120):
            n = r.choice(names)
            fd = os.open(f"{mnt}/{n}", os.O_RDONLY)
            off = r.randrange(len(want[n]) + 1)
            size = r.choice((1, 4096, 100000, 3000000, 20000000))
            got = os.pread(fd, size, off)
            if got != want[n][off:off + size]:
                bad.append((n, off, size, len(got)))
            if r.random() < 0.2:
                with mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ) as m:
                    at = r.randrange(len(want[n]))
                    if m[at] != want[n][at]:
                        bad.append((n, "mmap", at))
            held.append(fd)
            if len(held) > 6:
                os.close(held.pop(r.randrange(len(held))))
    except OSError as e:
        bad.append(repr(e))
threads = [threading.Thread(target=work, args=(f"{seed}/{i}",)) for i in range(6)]
for t in threads: t.start()
for t in threads: t.join()
print(bad[:5])
sys.exit(1 if bad else 0)
END
for opts in assemble=auto,cache=8m assemble=always,cache=32m assemble=always \
    assemble=off direct assemble=auto,threads=1; do
	"$o" mount -o $opts "$ck" "$mnt"
	ok "$opts: six threads read 42 files correctly" \
	    python3 "$scratch/many.py" "$mnt" "$ck" "$opts"
	"$o" umount "$mnt"
done
"$o" mount -s "$ck" "$mnt"
ok "-s: six threads read 42 files correctly" \
    python3 "$scratch/many.py" "$mnt" "$ck" single
"$o" umount "$mnt"

is "no mount is left" "$(tap_mounts)" ""
done_testing
