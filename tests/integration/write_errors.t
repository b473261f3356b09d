#!/bin/sh
# write_errors.t - what a writer must be told, and what survives whom
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
requires mount python3

data=$TOP_SRCDIR/tests/data/pytorch
m=$(point m)
n=$(point n)
small=$(point small)
cd "$scratch" || exit 99
T=model/layers.0.w1.weight # 912 bytes
L=optim/param_groups/0/lr

calls() { # FILE CALL...: what write.py says
	python3 "$TOP_SRCDIR/tests/integration/write.py" "$@"
}
said() {
	cat "$scratch/err"
}
begin() { # CHECKPOINT [OPTIONS]
	drop
	cp -r "$1" ck && chmod -R u+w ck &&
	    "$OPTIMFS" mount -o "rw${2:+,$2}" ck "$m"
}
drop() {
	mountpoint -q "$m" && { "$OPTIMFS" abort "$m"; "$OPTIMFS" umount "$m"; }
	rm -rf ck .ck.optimfs
}
lr() {
	"$OPTIMFS" cat ck "$L"
}
dcp=$data/dcp_fsdp2_w2/ckpt

# W17 A tensor keeps its size.
ok "a mount" begin "$dcp"
is "past the end" "$(calls "$m/$T" open pwrite:912:1 pwrite:900:13)" \
    "ok EFBIG EFBIG"
is "closing tells it again" "$(calls "$m/$T" open pwrite:912:1 closedup closedup \
    fsync fsync close)" "ok EFBIG EFBIG EFBIG EFBIG EFBIG EFBIG"
is "who comes later is not told" "$(calls "$m/$T" open pwrite:0:1 close)" \
    "ok ok ok"
is "O_APPEND" "$(calls "$m/$T" open:a pwrite:0:1)" "ok EFBIG"
is "longer" "$(calls "$m/$T" open cut:913)" "ok EFBIG"
is "space behind" "$(calls "$m/$T" open allocate:912:1)" "ok EFBIG"
is "what fits is not lost" "$(calls "$m/$T" open pwrite:0:912 close)" "ok ok ok"

# W16, W18 Cut and not written again.
is "cut to nothing" "$(calls "$m/$T" open cut:0 pwrite:0:100)" "ok ok ok"
status "is no commit" 3 "$OPTIMFS" commit "$m"
like "with bytes" "$(said)" "*OFS301*100 of 912*"
like "which control has, too" "$(cat "$m/.optimfs/control")" "dirty*failed*OFS301*"
is "nothing has changed" "$(ls -A ck)" "$(ls -A "$dcp")"
"$OPTIMFS" abort "$m"
is "until all is dropped" "$(cat "$m/.optimfs/control")" clean
is "no more than cut" "$(calls "$m/$T" open cut:100)" "ok ok"
status "is none, either" 3 "$OPTIMFS" commit "$m"
is "extended, it has zeros" "$(calls "$m/$T" open cut:912 pread:100:812 close)" \
    "ok ok ok ok"
ok "and is whole" "$OPTIMFS" commit "$m"

# New files of the model that do not say what they are.
ok "a mount" begin "$dcp"
untyped() { # NAME
	status "$1 is no tensor" 3 "$OPTIMFS" commit "$m"
	like "and says what to do" "$(said)" \
	    "*OFS303 model/new: *neither dtype nor shape*cp -a*.optimfs/npy/model/new.npy*"
	is "in characters" "$(tr -d '[:print:]\n' <"$scratch/err")" ''
	"$OPTIMFS" abort "$m"
}
echo hello >"$m/model/new"
untyped "a word"
head -c 7 /dev/zero >"$m/model/new"
untyped "a few zeros"
cat "$m/$T" >"$m/model/new"
untyped "a copy without attributes"
cat "$m/$T" >"$m/optim/state/norm.bias/new"
status "nor is a state" 3 "$OPTIMFS" commit "$m"
like "it says so too" "$(said)" "*OFS303 *norm.bias/new: *"
"$OPTIMFS" abort "$m"
echo 3 >"$m/optim/state/norm.bias/times"
cp -a "$m/$T" "$m/model/new"
ok "a number and a tensor are committed" "$OPTIMFS" commit "$m"
is "the tensor is one" "$("$OPTIMFS" cat ck model/new | cmp - "$m/$T" && echo same)" same
is "no bytes of a tensor are shown" \
    "$(calls "$m/$L" open:t 'text:\x19\x3e\xff\xfe\n')" "ok EINVAL"
like "but counted" "$(cat "$m/.optimfs/errors")" "*OFS806	EINVAL	$L	bytes 0-6	6 bytes, not all of them characters*"

# W21 Texts.
is "no number" "$(calls "$m/$L" open:t text:abc\\n)" "ok EINVAL"
is "at close" "$(calls "$m/$L" open:t text:abc fsync closedup closedup)" \
    "ok ok EINVAL EINVAL EINVAL"
is "two lines" "$(calls "$m/$L" open:t text:1\\n2\\n close)" \
    "ok ok EINVAL"
is "out of range" "$(calls "$m/optim/state/norm.bias/step" open:t text:1e99\\n)" \
    "ok ERANGE"
is "no list" "$(calls "$m/optim/param_groups/0/betas" open:t "text:[0.5\\n" \
    close)" "ok ok EINVAL"
is "the old one stays" "$(cat "$m/$L")" 0.001
is "and nothing is dirty" "$(head -n 1 "$m/.optimfs/control")" clean
is "a truncation alone changes nothing" "$(calls "$m/$L" open:t close)" "ok ok"
is "as it was" "$(cat "$m/$L")" 0.001
like "words are kept" "$(cat "$m/.optimfs/errors")" "*OFS806*"
ok "in pieces" sh -c "printf 0. >'$m/$L'; printf 25 >>'$m/$L'"

# W15 Nobody may be writing.
calls "$m/$T" open pwrite:0:1 >/dev/null
exec 9<>"$m/$T"
status "a commit while a file is open" 3 "$OPTIMFS" commit "$m"
like "names it" "$(said)" "*OFS815*$T*"
status "as does umount" 3 "$OPTIMFS" umount "$m"
exec 9<&-
ok "later" "$OPTIMFS" commit "$m"
is "is one" "$(lr)" 0.25

# Names. The contract of rename(2), unlink(2) and so on.
d=$m/optim/state
is "rmdir of what is not empty" "$(calls "$d/norm.bias" rmdir)" ENOTEMPTY
is "of a file" "$(calls "$m/$T" rmdir)" ENOTDIR
is "unlink of a directory" "$(calls "$d/norm.bias" unlink)" EISDIR
is "of nothing" "$(calls "$d/nobody" unlink)" ENOENT
is "mkdir of what is there" "$(calls "$d/norm.bias" mkdir)" EEXIST
is "open of what is there" "$(calls "$m/$T" open:x)" EEXIST
is "a name of 256 bytes" \
    "$(calls "$d/$(printf %0256d 0)" mkdir)" ENAMETOOLONG
is "a file in the root" "$(calls "$m/file" open:c)" EPERM
is "a directory in the root" "$(calls "$m/dir" mkdir)" EPERM
is "nor in .optimfs" "$(calls "$m/.optimfs/file" open:c)" EPERM
is "generated files" "$(calls "$m/.optimfs/info.json" open:rw)" EPERM
is "views" "$(mkdir "$m/.optimfs/view/dcp@1/x" 2>/dev/null || echo no)" no
is "a link" "$(calls "$m/$T" link:"$m/model/x")" EPERM
is "a symbolic link" "$(calls "$m/model/x" symlink:y)" EPERM
is "a FIFO" "$(calls "$m/model/x" mkfifo)" EPERM
is "a directory into itself" \
    "$(calls "$d/norm.bias" rename:"$d/norm.bias/x")" EINVAL
is "a directory over one that is not empty" \
    "$(calls "$d/norm.bias" rename:"$d/norm.weight")" ENOTEMPTY
is "a file over a directory" "$(calls "$m/$T" rename:"$d/norm.weight")" EISDIR
is "a directory over a file" "$(calls "$d/norm.bias" rename:"$m/$T")" ENOTDIR
is "no replacing" "$(calls "$m/$T" noreplace:"$m/model/norm.bias")" EEXIST
is "no exchange" "$(calls "$m/$T" exchange:"$m/model/norm.bias")" EINVAL
is "modes are not kept, and no error" "$(calls "$m/$T" chmod:600)" ok
is "other attributes" "$(calls "$m/$T" setxattr:color:red)" ENOTSUP
is "a shape that is none" "$(calls "$m/$T" setxattr:shape:3,x)" EINVAL
is "nothing of this has changed anything" \
    "$(head -n 1 "$m/.optimfs/control")" clean
is "an order that is none" \
    "$(calls "$m/.optimfs/control" open:w text:destroy)" "ok EINVAL"

# What is removed while it is open can be read.
exec 9<"$m/$T"
rm "$m/$T"
is "a removed file" "$(wc -c <&9)" 912
exec 9<&-
not_ok "has no name" test -e "$m/$T"
ok "abort" "$OPTIMFS" abort "$m"
is "has it again" "$(stat -c %s "$m/$T")" 912

# W20 What editors do.
echo 0.5 >"$m/optim/param_groups/0/.lr.swp"
ok "write beside" mv "$m/optim/param_groups/0/.lr.swp" "$m/$L"
is "and rename" "$(cat "$m/$L")" 0.5
echo junk >"$m/optim/param_groups/0/.new"
not_ok "what makes no sense there" mv "$m/optim/param_groups/0/.new" "$m/$L"
rm -f "$m/optim/param_groups/0/.new"
is "does not get there" "$(cat "$m/$L")" 0.5
not_ok "nor does junk that is written to it" sh -c "echo junk >'$m/$L'"
is "which leaves what was there" "$(cat "$m/$L")" 0.5

# What has no place fails the commit by name, not the cp.
mkdir "$m/extra" 2>/dev/null
ok "anything" sh -c "head -c 99 /dev/urandom >'$m/model/what.is.it'"
status "has no shape" 3 "$OPTIMFS" commit "$m"
like "and says so" "$(said)" "*model/what.is.it*"
rm "$m/model/what.is.it"
ok "without it" "$OPTIMFS" commit "$m"
is "the rest is there" "$(lr)" 0.5

# W10, W11, W12, SEEDS 31 One writer.
status "a second one" 3 "$OPTIMFS" mount -o rw ck "$n"
like "is told who" "$(said)" "*OFS259*pid [0-9]* on $(hostname)*"
ok "a reader" "$OPTIMFS" mount ck "$n"
ok "is not in the way" "$OPTIMFS" umount "$n"
echo 0.75 >"$m/$L"
status "nor is one who tries things" 0 "$OPTIMFS" mount -o scratch ck "$n"
is "who sees what is committed" "$(cat "$n/$L")" 0.5
"$OPTIMFS" umount "$n"

# W13 Somebody saved another checkpoint there.
touch -d 2001-01-01 ck/.metadata
status "a checkpoint that changed" 3 "$OPTIMFS" commit "$m"
like "is not committed over" "$(said)" "*OFS805*written again*"
is "what is staged is kept" "$(head -n 1 "$m/.optimfs/control")" "dirty 1 file 5 B"

# W25, K9, W27, K15 Who kills the daemon loses nothing.
ok "another" begin "$dcp" commit=explicit
echo 0.125 >"$m/$L"
calls "$m/$T" open pwrite:100:50:7 fsync close >/dev/null
cp "$m/$T" was
status "umount of what is not committed" 1 "$OPTIMFS" umount "$m"
like "refuses" "$(said)" "*OFS808*"
kill -KILL "$(sed -n 's/.*pid[ =:]*\([0-9][0-9]*\).*/\1/p' .ck.optimfs/lock |
    head -n 1)"
umount -l "$m" 2>/dev/null || fusermount3 -u -z "$m"
status "is asked about what was left" 3 "$OPTIMFS" mount -o rw ck "$m"
like "by name" "$(said)" "*OFS811*recover*"
is "the checkpoint is as it was" "$(lr)" 0.001
printf 'torn record' >>.ck.optimfs/journal
ok "recover=yes" "$OPTIMFS" mount -o rw,recover=yes ck "$m"
is "has the text" "$(cat "$m/$L")" 0.125
ok "and the bytes" cmp was "$m/$T"
like "and says what was torn" "$(cat "$m/.optimfs/errors" \
    "$m/.optimfs/warnings")" "*11 bytes*"
ok "keep" "$OPTIMFS" umount --keep "$m"
ok "recover=discard" "$OPTIMFS" mount -o rw,recover=discard ck "$m"
is "has not" "$(cat "$m/$L")" 0.001
"$OPTIMFS" umount "$m"

# W26 The staging directory is taken away.
ok "a third" begin "$dcp"
echo 0.125 >"$m/$L"
mv .ck.optimfs elsewhere
status "without its stage" 3 "$OPTIMFS" commit "$m"
like "no commit" "$(said)" "*OFS807*"
mv elsewhere .ck.optimfs
ok "with it" "$OPTIMFS" commit "$m"

# What cannot be written beside is not mounted.
drop
cp -r "$dcp" ck
cp "$data/../README.md" .ck.optimfs
status "a file in its place" 3 "$OPTIMFS" mount -o rw ck "$m"
like "is named" "$(said)" "*OFS809*.ck.optimfs*"
rm .ck.optimfs
"$OPTIMFS" mount ck "$m"
is "a read-only mount" "$(calls "$m/$T" open) $(calls "$m/model/x" mkdir)" \
    "EROFS EROFS"
is "nor by orders" "$(calls "$m/.optimfs/control" open:w)" EROFS
"$OPTIMFS" umount "$m"

# SEEDS 24, 25, 26 The parameters of a flat one are coupled.
flat=$data/fsdp1_local_flat_fullshard_w3
ok "flat parameters" begin "$flat/ckpt" "units=$flat/units.json"
s=$(cd "$m" && find optim -name exp_avg | sort | head -n 1)
cksum ck/* >sums
rm "$m/$s"
status "one without its state" 3 "$OPTIMFS" commit "$m"
like "both are named" "$(said)" "*${s%/*}*exp_avg*"
"$OPTIMFS" abort "$m"
echo 9.0 >"$m/${s%/*}/step"
status "a step of its own" 3 "$OPTIMFS" commit "$m"
like "is refused" "$(said)" "*OFS828*"
"$OPTIMFS" abort "$m"
is "another shape" "$(calls "$m/$s" setxattr:shape:1 open cut:4)" "ok ok ok"
status "is refused, too" 3 "$OPTIMFS" commit "$m"
is "and nothing has changed" "$(cksum ck/*)" "$(cat sums)"
"$OPTIMFS" abort "$m"

# SEEDS 28 Every copy of a shard is written.
hybrid=$data/fsdp1_sharded_orig_hybridshard_w4/ckpt_rankfiles
ok "replicas" begin "$hybrid"
calls "$m/$T" open pwrite:0:912:1 close >/dev/null
ok "are committed" "$OPTIMFS" umount "$m"
"$OPTIMFS" mount ck "$m"
for r in 0 1; do
	ok "rank $r and its replica agree" cmp "$m/.optimfs/rank/$r/$T" \
	    "$m/.optimfs/rank/$((r + 2))/$T"
done
is "on what was written" "$(tr -d '\1' <"$m/.optimfs/rank/3/$T" | wc -c)" 0
"$OPTIMFS" umount "$m"
ok "in sound files" "$OPTIMFS" fsck --data ck

# W01, W03 No room.
if mount -t tmpfs -o size=600k none "$small" 2>/dev/null; then
	drop
	cp -r "$dcp" "$small/ck"
	ok "on a small disk" "$OPTIMFS" mount -o rw "$small/ck" "$m"
	free=$(($(stat -f -c '%f * %S / 1024' "$small")))
	head -c $(((free - 12) * 1024)) /dev/zero >"$small/fill" 2>/dev/null
	big=model/big
	cp -a "$m/model/output.weight" "$m/$big"
	is "a large tensor" "$(calls "$m/$big" setxattr:shape:1000,1000)" ok
	like "does not fit" "$(calls "$m/$big" open pwrite:0:100000 fsync \
	    closedup closedup close)" "ok ENOSPC ENOSPC ENOSPC ENOSPC ENOSPC"
	rm "$m/$big"
	cksum "$small"/ck/* >sums
	calls "$m/$T" open pwrite:0:900 close >/dev/null
	head -c 16384 /dev/zero >>"$small/fill" 2>/dev/null
	status "nor does what is committed" 3 "$OPTIMFS" commit "$m"
	is "nothing has changed" "$(cksum "$small"/ck/*)" "$(cat sums)"
	rm "$small/fill"
	ok "with room" "$OPTIMFS" umount "$m"
	ok "it is" "$OPTIMFS" fsck --data "$small/ck"
	umount "$small"
else
	skip 7 "no right to mount a tmpfs"
fi
if mount -t tmpfs none "$small" 2>/dev/null; then
	ck=$dcp
	cp -r "$dcp" "$small/ck"
	mount -o remount,ro "$small"
	status "a read-only disk" 3 "$OPTIMFS" mount -o rw "$small/ck" "$m"
	like "is named" "$(said)" "*OFS809*Read-only*"
	ok "to try things" "$OPTIMFS" mount -o scratch "$small/ck" "$m"
	ok "is possible" sh -c "echo 0.25 >'$m/$L'"
	"$OPTIMFS" umount "$m"
	umount "$small"
	status "memory is no place to keep things" 2 \
	    "$OPTIMFS" mount -o rw,upper=/dev/shm "$ck" "$m"
else
	skip 5 "no right to mount a tmpfs"
fi
# What another user has changed cannot be asked for: unmounting would commit it,
# and not say whether that worked.
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
	cat >other.py <<'END'
import ctypes, os, subprocess, sys
optimfs, ck, mnt, lr = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
fd = os.open("/dev/fuse", os.O_RDWR)
opts = f"fd={fd},rootmode=40000,user_id=65534,group_id=65534".encode()
if libc.mount(ck.encode(), mnt.encode(), b"fuse.optimfs", 2 | 4, opts) != 0:
    sys.exit("mount: " + os.strerror(ctypes.get_errno()))
daemon = subprocess.Popen([optimfs, "mount", "-f", "-o", "rw", ck,
                           f"/dev/fd/{fd}"], pass_fds=[fd])
os.close(fd)
subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                "sh", "-c", f"echo 0.125 >'{mnt}/{lr}'"], check=True)
was = subprocess.run([optimfs, "umount", mnt]).returncode
subprocess.run([optimfs, "umount", "--force", mnt], check=True)
daemon.wait()
sys.exit(was)
END
	cp -r "$dcp" theirs
	chmod 711 "$scratch"
	status "another user's mount" 3 \
	    python3 other.py "$OPTIMFS" "$scratch/theirs" "$m" "$L"
	like "is not unmounted" "$(said)" "*may have changes*--force*"
else
	skip 2 "not root"
fi

mkdir upper
cp -r "$dcp" there
ok "upper=" "$OPTIMFS" mount -o "rw,upper=$scratch/upper" there "$m"
echo 0.25 >"$m/$L"
like "has what is staged" "$(ls -A upper/.there.optimfs)" "*journal*"
is "the lock is beside" "$(ls -A .there.optimfs)" lock
ok "umount" "$OPTIMFS" umount "$m"
is "takes both away" "$(ls -dA upper/.[!.]* .there.optimfs 2>/dev/null)" ""
is "and commits" "$("$OPTIMFS" cat there "$L")" 0.25
done_testing
