#!/bin/sh
# mount_source.t - files of the checkpoint change while it is mounted
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

requires mount python3
mkdcp=$TOP_BUILDDIR/tests/bench/mkdcp
ck=$scratch/ck
mnt=$(point mnt)
tensor=model/layers.0.attention.wq.weight
state=optim/state/layers.0.attention.wq.weight
file=__1_0.distcp

# honest.py MNT TENSOR WANT [COMMAND...]: each range of a tensor and of its .npy
# gives the right bytes or an error. With COMMAND, the files are opened and
# partly read before it runs.
cat >"$scratch/honest.py" <<'END'
import errno, os, subprocess, sys
mnt, tensor, want = sys.argv[1:4]
want = open(want, "rb").read()
honest = (errno.EIO, errno.ESTALE, errno.EPERM, errno.EUCLEAN)
good = bad = 0
def read(fd, off):
    global good, bad
    size = os.fstat(fd).st_size
    head = size - len(want)
    assert 0 <= head <= 128, size
    try:
        got = os.pread(fd, 65536, off)
    except OSError as e:
        assert e.errno in honest, e
        bad += 1
        return
    # after a short read, the next byte is unreadable
    good += 1
    bad += len(got) < min(65536, size - off)
    lo = max(off, head)
    assert got, off
    assert got[lo - off:] == want[lo - head:off + len(got) - head], off
paths = tensor, f".optimfs/npy/{tensor}.npy"
fds = [os.open(os.path.join(mnt, p), os.O_RDONLY) for p in paths]
if sys.argv[4:]:
    for fd in fds:
        read(fd, 0)
        read(fd, len(want) - 65536)
    subprocess.run(sys.argv[4:], check=True)
for fd in fds:
    for off in range(0, len(want), 65536):
        read(fd, off)
    for off in range(len(want) - 10, 0, -300007):
        read(fd, off)
print(good > 0, bad > 0)
END

# event.sh NAME: changes the checkpoint
cat >"$scratch/event.sh" <<'END'
set -e
cd "$ck"
case $1 in
truncated) truncate -s 1000000 "$file" ;;
emptied) : >"$file" ;;
longer) echo x >>"$file" ;;
overwritten)
	dd if=/dev/zero of="$file" bs=64k count=4 conv=notrunc status=none ;;
replaced) cp "$file" new && mv new "$file" ;;
removed) rm "$file" ;;
forbidden) chmod 000 "$file" ;;
linked) ln "$file" snapshot ;;
'a link') mv "$file" f && ln -s f "$file" ;;
'a fifo') rm "$file" && mkfifo "$file" ;;
'saved again') cp .metadata m && mv m .metadata ;;
'without index') rm .metadata ;;
esac
END
export ck file

# For each event: the code and the message of cat when the file was not read
# before. A file that is already open reads as before unless its bytes changed.
table='truncated:OFS751:*Stale file handle*
emptied:OFS751:*Stale file handle*
longer:OFS751:*Stale file handle*
overwritten:OFS751:*Stale file handle*
replaced:OFS751:*Stale file handle*
removed:OFS754:*Input/output error*
a link:OFS621:*Operation not permitted*
a fifo:OFS602:*Structure needs cleaning*
saved again:OFS753:*Stale file handle*
forbidden::
linked::
without index::'

error_of='import os, sys
print(os.getxattr(sys.argv[1], "user.optimfs.error").decode())'

# fails TEST PATH CODE WORDS
fails() {
	not_ok "$1: cat of $2 fails" cat "$mnt/$2"
	like "$1: cat of $2 gives the right errno" "$(cat "$scratch/err")" "$4"
	like "$1: user.optimfs.error of $2 has $3" \
	    "$(python3 -c "$error_of" "$mnt/$2")" \
	    "$3 $2*"
	like "$1: .optimfs/errors has $3 for $2" "$(cat "$mnt/.optimfs/errors")" \
	    "*$3	E*	$2	*"
	is "$1: .optimfs/errors has no second record of $2 without its path" \
	    "$(cut -f 3 "$mnt/.optimfs/errors" | grep -cx -e -)" 0
}

# make OPTIONS: write a new checkpoint and mount it
make() {
	rm -rf "$ck"
	# shellcheck disable=SC2086
	"$mkdcp" -o -n 1 -r 2 -s 768,1024 $zstd "$ck" 2>"$scratch/why" ||
		return 1
	"$OPTIMFS" cat "$ck" $tensor >"$scratch/want"
	"$OPTIMFS" mount -o "$1" "$ck" "$mnt"
}

for how in "assemble=off" "assemble=auto" "direct" "assemble=off -z 1"; do
	opts=${how%% *} zstd=${how#"$opts"}
	make "$opts" || { skip 1 "$how: $(cat "$scratch/why")"; continue; }
	"$OPTIMFS" umount "$mnt"
	echo "$table" >"$scratch/table"
	while IFS=: read -r what code words; do
		name="$how, $what"
		make "$opts"
		sh "$scratch/event.sh" "$what"
		if [ -z "$code" ]; then
			ok "$name: the tensor can be read" cmp "$mnt/$tensor" "$scratch/want"
			is "$name: .optimfs/errors is empty" "$(cat "$mnt/.optimfs/errors")" ""
		else
			fails "$name" $tensor "$code" "$words"
			fails "$name" $state/step "$code" "$words"
		fi
		if [ "$what" != "saved again" ]; then
			ok "$name: each range gives the right bytes or an error" \
			    python3 "$scratch/honest.py" "$mnt" $tensor \
			    "$scratch/want"
			is "$name: only ranges of a changed file give errors" \
			    "$(cat "$scratch/out")" \
			    "True $([ -z "$code" ] && echo False || echo True)"
			is "$name: a value in another file can be read" \
			    "$(cat "$mnt/optim/param_groups/0/lr")" 0.001
		fi
		ok "$name: ls -lR of the mount succeeds" ls -lR "$mnt"
		ok "$name: umount succeeds" "$OPTIMFS" umount "$mnt"
		make "$opts"
		ok "$name: ranges of open files give the right bytes or an error" \
		    python3 "$scratch/honest.py" "$mnt" \
		    $tensor "$scratch/want" sh "$scratch/event.sh" "$what"
		ok "$name: umount after open files succeeds" "$OPTIMFS" umount "$mnt"
	done <"$scratch/table"
done
is "no mount is left" "$(tap_mounts)" ""
done_testing
