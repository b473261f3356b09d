#!/bin/sh
# write_errors.t - edits that must fail, locks, and recovery after a crash
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
requires mount python3

data=$TOP_SRCDIR/tests/data/pytorch
m=$(point m)
n=$(point n)
small=$(point small)
cd "$scratch" || exit 99
T=model/layers.0.w1.weight # 912 bytes
L=optim/param_groups/0/lr

calls() { # FILE CALL...: the results from write.py
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

# A tensor keeps its size.
ok "DCP checkpoint mounts read-write" begin "$dcp"
is "pwrite past the end of a tensor fails with EFBIG" \
    "$(calls "$m/$T" open pwrite:912:1 pwrite:900:13)" \
    "ok EFBIG EFBIG"
is "close and fsync repeat the EFBIG of the failed pwrite" \
    "$(calls "$m/$T" open pwrite:912:1 closedup closedup \
    fsync fsync close)" "ok EFBIG EFBIG EFBIG EFBIG EFBIG EFBIG"
is "the next open of the tensor does not see the old error" \
    "$(calls "$m/$T" open pwrite:0:1 close)" \
    "ok ok ok"
is "pwrite with O_APPEND fails with EFBIG" "$(calls "$m/$T" open:a pwrite:0:1)" "ok EFBIG"
is "ftruncate beyond the size of a tensor fails with EFBIG" \
    "$(calls "$m/$T" open cut:913)" "ok EFBIG"
is "posix_fallocate beyond the size of a tensor fails with EFBIG" \
    "$(calls "$m/$T" open allocate:912:1)" "ok EFBIG"
is "a write of all 912 bytes succeeds after those failures" \
    "$(calls "$m/$T" open pwrite:0:912 close)" "ok ok ok"

# A tensor that was truncated has to be rewritten before the commit.
is "a tensor can be truncated and partly rewritten" \
    "$(calls "$m/$T" open cut:0 pwrite:0:100)" "ok ok ok"
status "commit fails when a tensor was truncated and partly rewritten" 3 "$OPTIMFS" commit "$m"
like "OFS301 says how many bytes were written" "$(said)" "*OFS301*100 of 912*"
like ".optimfs/control shows the failed commit with OFS301" \
    "$(cat "$m/.optimfs/control")" "dirty*failed*OFS301*"
is "the failed commit leaves no new file in the checkpoint" "$(ls -A ck)" "$(ls -A "$dcp")"
"$OPTIMFS" abort "$m"
is "abort leaves the mount clean after a failed commit" "$(cat "$m/.optimfs/control")" clean
is "a tensor can be truncated to 100 bytes" "$(calls "$m/$T" open cut:100)" "ok ok"
status "commit fails when a tensor was truncated and not rewritten" 3 "$OPTIMFS" commit "$m"
is "ftruncate back to the full size makes the tail readable" \
    "$(calls "$m/$T" open cut:912 pread:100:812 close)" \
    "ok ok ok ok"
ok "commit succeeds when the tensor has its full size again" "$OPTIMFS" commit "$m"

# A plain copy of a tensor of another type.
head -c 456 ck/.metadata >"$m/$T"
status "commit fails when a tensor got half of its bytes" 3 "$OPTIMFS" commit "$m"
like "OFS301 names dtype and shape of the tensor, and the size of elements that fits" \
    "$(said)" "*OFS301*456 of 912*float32 \[19,12\]*elements of 2 bytes*cp -a*"
"$OPTIMFS" abort "$m"

# A new tensor needs a dtype and a shape: from cp -a, setxattr or a .npy.
ok "fresh checkpoint mounts read-write" begin "$dcp"
untyped() { # NAME
	status "commit fails for a new tensor file with $1" 3 "$OPTIMFS" commit "$m"
	like "OFS303 for $1 names cp -a and the .npy path as remedies" "$(said)" \
	    "*OFS303 model/new: *neither dtype nor shape*cp -a*.optimfs/npy/model/new.npy*"
	is "the message for $1 has printable characters only" \
	    "$(tr -d '[:print:]\n' <"$scratch/err")" ''
	"$OPTIMFS" abort "$m"
}
echo hello >"$m/model/new"
untyped "text"
head -c 7 /dev/zero >"$m/model/new"
untyped "7 bytes of zeros"
echo hello >"$m/model/new"
ok "the .npy path takes a tensor beside a file without dtype" \
    cp "$m/.optimfs/npy/$T.npy" "$m/.optimfs/npy/model/new.npy"
ok "the tensor is what was written to the .npy path" cmp "$m/model/new" "$m/$T"
status "the .npy path refuses to create a tensor that exists" 1 \
    dd if=/dev/null conv=excl of="$m/.optimfs/npy/model/new.npy"
ok "commit takes the tensor of the .npy path" "$OPTIMFS" commit "$m"
is "the tensor of the .npy path has its bytes after the commit" \
    "$("$OPTIMFS" cat ck model/new | cmp - "$m/$T" && echo same)" same
rm "$m/model/new" && "$OPTIMFS" commit "$m"
cat "$m/$T" >"$m/model/new"
untyped "bytes copied by cat"
cat "$m/$T" >"$m/optim/state/norm.bias/new"
status "commit fails for an untyped optimizer state tensor" 3 "$OPTIMFS" commit "$m"
like "OFS303 names the untyped optimizer state tensor" "$(said)" "*OFS303 *norm.bias/new: *"
"$OPTIMFS" abort "$m"
echo 3 >"$m/optim/state/norm.bias/times"
cp -a "$m/$T" "$m/model/new"
ok "commit takes a new scalar state and a tensor from cp -a" "$OPTIMFS" commit "$m"
is "the tensor from cp -a has the same bytes after the commit" \
    "$("$OPTIMFS" cat ck model/new | cmp - "$m/$T" && echo same)" same
is "binary data written to a scalar fails with EINVAL" \
    "$(calls "$m/$L" open:t 'text:\x19\x3e\xff\xfe\n')" "ok EINVAL"
like "OFS806 gives the size of binary data instead of printing it" \
    "$(cat "$m/.optimfs/errors")" "*OFS806	EINVAL	$L	bytes 0-6	6 bytes, not all of them characters*"

# Text written to a scalar or a list is parsed at the end of a line or at close.
is "a word written to lr fails with EINVAL" "$(calls "$m/$L" open:t text:abc\\n)" "ok EINVAL"
is "a word without newline fails with EINVAL at each close" \
    "$(calls "$m/$L" open:t text:abc fsync closedup closedup)" \
    "ok ok EINVAL EINVAL EINVAL"
is "two lines written to lr fail with EINVAL at close" \
    "$(calls "$m/$L" open:t text:1\\n2\\n close)" \
    "ok ok EINVAL"
is "a number out of range written to step fails with ERANGE" \
    "$(calls "$m/optim/state/norm.bias/step" open:t text:1e99\\n)" \
    "ok ERANGE"
is "an unclosed list written to betas fails with EINVAL at close" \
    "$(calls "$m/optim/param_groups/0/betas" open:t "text:[0.5\\n" \
    close)" "ok ok EINVAL"
is "lr keeps its value after rejected writes" "$(cat "$m/$L")" 0.001
is "rejected writes leave the mount clean" "$(head -n 1 "$m/.optimfs/control")" clean
is "open with O_TRUNC and close without a write succeeds" "$(calls "$m/$L" open:t close)" "ok ok"
is "O_TRUNC without a write leaves lr as it was" "$(cat "$m/$L")" 0.001
like ".optimfs/errors lists rejected text as OFS806" "$(cat "$m/.optimfs/errors")" "*OFS806*"
ok "a number can be written in two pieces" sh -c "printf 0. >'$m/$L'; printf 25 >>'$m/$L'"

# A commit needs every file to be closed by its writer.
calls "$m/$T" open pwrite:0:1 >/dev/null
exec 9<>"$m/$T"
status "commit fails while a file is open for writing" 3 "$OPTIMFS" commit "$m"
like "OFS815 names the file that is open for writing" "$(said)" "*OFS815*$T*"
status "umount fails while a file is open for writing" 3 "$OPTIMFS" umount "$m"
exec 9<&-
ok "commit succeeds after the file is closed" "$OPTIMFS" commit "$m"
is "the commit has the number that was written in two pieces" "$(lr)" 0.25

# Errors of rename(2), unlink(2), mkdir(2), ... as their manuals have them.
d=$m/optim/state
is "rmdir of a non-empty directory fails with ENOTEMPTY" "$(calls "$d/norm.bias" rmdir)" ENOTEMPTY
is "rmdir of a file fails with ENOTDIR" "$(calls "$m/$T" rmdir)" ENOTDIR
is "unlink of a directory fails with EISDIR" "$(calls "$d/norm.bias" unlink)" EISDIR
is "unlink of a missing name fails with ENOENT" "$(calls "$d/nobody" unlink)" ENOENT
is "mkdir of an existing name fails with EEXIST" "$(calls "$d/norm.bias" mkdir)" EEXIST
is "open with O_EXCL of an existing file fails with EEXIST" "$(calls "$m/$T" open:x)" EEXIST
is "mkdir with a name of 256 bytes fails with ENAMETOOLONG" \
    "$(calls "$d/$(printf %0256d 0)" mkdir)" ENAMETOOLONG
is "a new file in the root fails with EPERM" "$(calls "$m/file" open:c)" EPERM
is "a new directory in the root fails with EPERM" "$(calls "$m/dir" mkdir)" EPERM
is "a new file in .optimfs fails with EPERM" "$(calls "$m/.optimfs/file" open:c)" EPERM
is "opening a generated file for writing fails with EPERM" \
    "$(calls "$m/.optimfs/info.json" open:rw)" EPERM
is "mkdir in a view fails" "$(mkdir "$m/.optimfs/view/dcp@1/x" 2>/dev/null || echo no)" no
is "a hard link fails with EPERM" "$(calls "$m/$T" link:"$m/model/x")" EPERM
is "a symbolic link fails with EPERM" "$(calls "$m/model/x" symlink:y)" EPERM
is "mkfifo fails with EPERM" "$(calls "$m/model/x" mkfifo)" EPERM
is "rename of a directory into itself fails" \
    "$(calls "$d/norm.bias" rename:"$d/norm.bias/x")" EINVAL
is "rename of a directory over a non-empty one fails" \
    "$(calls "$d/norm.bias" rename:"$d/norm.weight")" ENOTEMPTY
is "rename of a file over a directory fails with EISDIR" \
    "$(calls "$m/$T" rename:"$d/norm.weight")" EISDIR
is "rename of a directory over a file fails with ENOTDIR" \
    "$(calls "$d/norm.bias" rename:"$m/$T")" ENOTDIR
is "RENAME_NOREPLACE over an existing file fails with EEXIST" \
    "$(calls "$m/$T" noreplace:"$m/model/norm.bias")" EEXIST
is "RENAME_EXCHANGE fails with EINVAL" "$(calls "$m/$T" exchange:"$m/model/norm.bias")" EINVAL
is "chmod succeeds without effect" "$(calls "$m/$T" chmod:600)" ok
is "setxattr of a foreign attribute fails with ENOTSUP" \
    "$(calls "$m/$T" setxattr:color:red)" ENOTSUP
is "setxattr with a malformed shape fails with EINVAL" "$(calls "$m/$T" setxattr:shape:3,x)" EINVAL
is "none of the failed calls leaves a change to commit" \
    "$(head -n 1 "$m/.optimfs/control")" clean
is "an unknown command written to control fails with EINVAL" \
    "$(calls "$m/.optimfs/control" open:w text:destroy)" "ok EINVAL"

# An open file stays readable after unlink.
exec 9<"$m/$T"
rm "$m/$T"
is "a removed tensor can be read through an open descriptor" "$(wc -c <&9)" 912
exec 9<&-
not_ok "a removed tensor has no directory entry" test -e "$m/$T"
ok "abort exits with 0" "$OPTIMFS" abort "$m"
is "abort brings the removed tensor back" "$(stat -c %s "$m/$T")" 912

# Editors write a new file beside the old one and rename it.
echo 0.5 >"$m/optim/param_groups/0/.lr.swp"
ok "mv of a swap file over lr succeeds" mv "$m/optim/param_groups/0/.lr.swp" "$m/$L"
is "lr has the value of the renamed swap file" "$(cat "$m/$L")" 0.5
echo junk >"$m/optim/param_groups/0/.new"
not_ok "mv of a file with junk over lr fails" mv "$m/optim/param_groups/0/.new" "$m/$L"
rm -f "$m/optim/param_groups/0/.new"
is "lr keeps its value after the failed mv" "$(cat "$m/$L")" 0.5
not_ok "writing junk to lr fails" sh -c "echo junk >'$m/$L'"
is "lr keeps its value after the failed write" "$(cat "$m/$L")" 0.5

# A file of unknown type can be written; the commit then fails and names it.
mkdir "$m/extra" 2>/dev/null
ok "random bytes can be written to a new file" \
    sh -c "head -c 99 /dev/urandom >'$m/model/what.is.it'"
status "commit fails for a new file without dtype and shape" 3 "$OPTIMFS" commit "$m"
like "the failed commit names the new file" "$(said)" "*model/what.is.it*"
rm "$m/model/what.is.it"
ok "commit succeeds after the new file is removed" "$OPTIMFS" commit "$m"
is "the commit has the other edits" "$(lr)" 0.5

# One read-write mount at a time.
status "a second read-write mount exits with 3" 3 "$OPTIMFS" mount -o rw ck "$n"
like "OFS259 names process and host of the first mount" \
    "$(said)" "*OFS259*pid [0-9]* on $(hostname)*"
ok "a read-only mount beside a read-write mount succeeds" "$OPTIMFS" mount ck "$n"
ok "the read-only mount unmounts" "$OPTIMFS" umount "$n"
echo 0.75 >"$m/$L"
status "a scratch mount beside a read-write mount succeeds" 0 "$OPTIMFS" mount -o scratch ck "$n"
is "the scratch mount shows the committed value, not the staged one" "$(cat "$n/$L")" 0.5
"$OPTIMFS" umount "$n"

# A trainer saved another checkpoint to the same directory.
touch -d 2001-01-01 ck/.metadata
status "commit fails when the checkpoint was changed outside the mount" 3 "$OPTIMFS" commit "$m"
like "OFS805 says that the checkpoint was written again" "$(said)" "*OFS805*written again*"
is "the failed commit keeps the staged changes" \
    "$(head -n 1 "$m/.optimfs/control")" "dirty 1 file, 5 B"

# A killed daemon loses no staged data.
ok "mount with commit=explicit succeeds" begin "$dcp" commit=explicit
echo 0.125 >"$m/$L"
calls "$m/$T" open pwrite:100:50:7 fsync close >/dev/null
cp "$m/$T" was
status "umount with uncommitted changes exits with 1" 1 "$OPTIMFS" umount "$m"
like "umount with uncommitted changes reports OFS808" "$(said)" "*OFS808*"
kill -KILL "$(sed -n 's/.*pid[ =:]*\([0-9][0-9]*\).*/\1/p' .ck.optimfs/lock |
    head -n 1)"
umount -l "$m" 2>/dev/null || fusermount3 -u -z "$m"
status "mount after a killed daemon fails without recover=" 3 "$OPTIMFS" mount -o rw ck "$m"
like "OFS811 names the recover option" "$(said)" "*OFS811*recover*"
is "the checkpoint is unchanged after the daemon was killed" "$(lr)" 0.001
printf 'torn record' >>.ck.optimfs/journal
ok "mount with recover=yes succeeds with a torn journal record" \
    "$OPTIMFS" mount -o rw,recover=yes ck "$m"
is "recover=yes restores the staged scalar" "$(cat "$m/$L")" 0.125
ok "recover=yes restores the staged bytes of a tensor" cmp was "$m/$T"
like "recover=yes reports the torn 11 bytes of the journal" "$(cat "$m/.optimfs/errors" \
    "$m/.optimfs/warnings")" "*11 bytes*"
ok "umount --keep exits with 0" "$OPTIMFS" umount --keep "$m"
ok "mount with recover=discard succeeds" "$OPTIMFS" mount -o rw,recover=discard ck "$m"
is "recover=discard drops the staged changes" "$(cat "$m/$L")" 0.001
"$OPTIMFS" umount "$m"

# The staging directory disappears while mounted.
ok "fresh checkpoint mounts read-write again" begin "$dcp"
echo 0.125 >"$m/$L"
mv .ck.optimfs elsewhere
status "commit fails while the staging directory is missing" 3 "$OPTIMFS" commit "$m"
like "commit without staging directory reports OFS807" "$(said)" "*OFS807*"
mv elsewhere .ck.optimfs
ok "commit succeeds when the staging directory is back" "$OPTIMFS" commit "$m"

# No read-write mount where the staging directory cannot be made.
drop
cp -r "$dcp" ck
cp "$data/../README.md" .ck.optimfs
status "mount fails when a file has the name of the staging directory" 3 \
    "$OPTIMFS" mount -o rw ck "$m"
like "OFS809 names the file in place of the staging directory" "$(said)" "*OFS809*.ck.optimfs*"
rm .ck.optimfs
"$OPTIMFS" mount ck "$m"
is "open for writing and mkdir in a read-only mount fail with EROFS" \
    "$(calls "$m/$T" open) $(calls "$m/model/x" mkdir)" \
    "EROFS EROFS"
is "opening control for writing in a read-only mount fails with EROFS" \
    "$(calls "$m/.optimfs/control" open:w)" EROFS
"$OPTIMFS" umount "$m"

# All parameters of a flat FSDP1 parameter share their optimizer state.
flat=$data/fsdp1_local_flat_fullshard_w3
ok "flat FSDP1 checkpoint mounts read-write" begin "$flat/ckpt" "units=$flat/units.json"
s=$(cd "$m" && find optim -name exp_avg | sort | head -n 1)
cksum ck/* >sums
rm "$m/$s"
status "commit fails when one parameter of a flat one loses a state tensor" 3 "$OPTIMFS" commit "$m"
like "the message names the parameter and the state tensor" "$(said)" "*${s%/*}*exp_avg*"
"$OPTIMFS" abort "$m"
echo 9.0 >"$m/${s%/*}/step"
status "commit fails when one parameter of a flat one gets its own step" 3 "$OPTIMFS" commit "$m"
like "a step of its own is reported as OFS828" "$(said)" "*OFS828*"
"$OPTIMFS" abort "$m"
is "the shape of a flat parameter's state cannot be changed" \
    "$(calls "$m/$s" setxattr:shape:1)" EINVAL
is "failed commits leave the flat checkpoint unchanged" "$(cksum ck/*)" "$(cat sums)"
"$OPTIMFS" abort "$m"

# An edit goes to every replica of a shard.
hybrid=$data/fsdp1_sharded_orig_hybridshard_w4/ckpt_rankfiles
ok "hybrid-sharded checkpoint mounts read-write" begin "$hybrid"
calls "$m/$T" open pwrite:0:912:1 close >/dev/null
ok "umount commits an edit of a replicated tensor" "$OPTIMFS" umount "$m"
"$OPTIMFS" mount ck "$m"
for r in 0 1; do
	ok "rank $r and its replica agree after the commit" cmp "$m/.optimfs/rank/$r/$T" \
	    "$m/.optimfs/rank/$((r + 2))/$T"
done
is "a replica has the bytes that were written" "$(tr -d '\1' <"$m/.optimfs/rank/3/$T" | wc -c)" 0
"$OPTIMFS" umount "$m"
ok "fsck accepts the checkpoint with replicas" "$OPTIMFS" fsck --data ck

# A full disk.
unmounted() { # busy until the daemon has closed its files
	umount "$small" 2>/dev/null
	! mountpoint -q "$small"
}
if mount -t tmpfs -o size=600k none "$small" 2>/dev/null; then
	drop
	cp -r "$dcp" "$small/ck"
	ok "checkpoint on a small tmpfs mounts read-write" "$OPTIMFS" mount -o rw "$small/ck" "$m"
	free=$(($(stat -f -c '%f * %S / 1024' "$small")))
	head -c $(((free - 12) * 1024)) /dev/zero >"$small/fill" 2>/dev/null
	big=model/big
	cp -a "$m/model/output.weight" "$m/$big"
	is "a large tensor can be declared on a small disk" \
	    "$(calls "$m/$big" setxattr:shape:1000,1000)" ok
	like "write, fsync and close of a large tensor fail with ENOSPC" \
	    "$(calls "$m/$big" open pwrite:0:100000 fsync \
	    closedup closedup close)" "ok ENOSPC ENOSPC ENOSPC ENOSPC ENOSPC"
	rm "$m/$big"
	cksum "$small"/ck/* >sums
	calls "$m/$T" open pwrite:0:900 close >/dev/null
	head -c 16384 /dev/zero >>"$small/fill" 2>/dev/null
	status "commit fails on a full disk" 3 "$OPTIMFS" commit "$m"
	is "the failed commit leaves the checkpoint unchanged" \
	    "$(cksum "$small"/ck/*)" "$(cat sums)"
	rm "$small/fill"
	ok "umount commits when the disk has room again" "$OPTIMFS" umount "$m"
	ok "fsck accepts the checkpoint committed after ENOSPC" "$OPTIMFS" fsck --data "$small/ck"
	eventually unmounted
else
	skip 7 "no right to mount a tmpfs"
fi
if mount -t tmpfs none "$small" 2>/dev/null; then
	ck=$dcp
	cp -r "$dcp" "$small/ck"
	mount -o remount,ro "$small"
	status "read-write mount of a read-only disk exits with 3" 3 \
	    "$OPTIMFS" mount -o rw "$small/ck" "$m"
	like "OFS809 says that the disk is read-only" "$(said)" "*OFS809*cannot create*Read-only*"
	ok "scratch mount of a read-only disk succeeds" "$OPTIMFS" mount -o scratch "$small/ck" "$m"
	ok "a scratch mount of a read-only disk can be edited" sh -c "echo 0.25 >'$m/$L'"
	"$OPTIMFS" umount "$m"
	eventually unmounted
	status "mount with upper= on a tmpfs exits with 2" 2 \
	    "$OPTIMFS" mount -o rw,upper=/dev/shm "$ck" "$m"
else
	skip 5 "no right to mount a tmpfs"
fi
# umount must not commit changes that another user made: only that user could be
# told about a failure.
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
	status "umount of another user's changed mount exits with 3" 3 \
	    python3 other.py "$OPTIMFS" "$scratch/theirs" "$m" "$L"
	like "the refused umount names --force" "$(said)" "*may have changes*--force*"
else
	skip 2 "not root"
fi

# Names of flat parameters are where no commit can change them.
refuse_rename() {
	rm -rf flat && cp -r "$TOP_SRCDIR/tests/data/$2" flat && chmod -R u+w flat
	ok "$1: mount -o rw succeeds" "$OPTIMFS" mount -o "rw$3" flat "$m"
	p=$(ls "$m/optim/state" | head -n 1)
	for what in "optim/state/$p" "model/$p"; do
		not_ok "$1: mv of $what fails" mv "$m/$what" "$m/${what%/*}/other"
		like "$1: mv of $what fails with EOPNOTSUPP" "$(said)" \
		    '*not supported*'
		ok "$1: .optimfs/errors says why mv of $what fails" \
		    grep -q "OFS826.*$p" "$m/.optimfs/errors"
	done
	is "$1: a refused mv leaves nothing to commit" \
	    "$(cat "$m/.optimfs/control")" clean
	ok "$1: umount after a refused mv exits with 0" "$OPTIMFS" umount "$m"
}
f=pytorch/fsdp1_local_flat_fullshard_w3
refuse_rename "raw FSDP1" $f/ckpt ",units=$TOP_SRCDIR/tests/data/$f/units.json"
refuse_rename "ZeRO 3" deepspeed/z3_ws3_poison_subgroups/ckpt ""

# Files whose tensors a commit can only overwrite: cp -a of another type, a
# rename over one (rsync -X) and a new file in its place (tar) fail at once.
refuse_type() { # NAME CHECKPOINT TENSOR
	rm -rf flat && cp -r "$TOP_SRCDIR/tests/data/$2" flat && chmod -R u+w flat
	ok "$1: mount -o rw for another type succeeds" "$OPTIMFS" mount -o rw flat "$m"
	is "$1: a tensor gets no other type" "$(calls "$m/$3" setxattr:dtype:int64)" EINVAL
	like "$1: .optimfs/errors says why a tensor gets no other type" \
	    "$(cat "$m/.optimfs/errors")" '*OFS816*files of this checkpoint keep * not int64 *'
	is "$1: a copy with another type fails when it is closed" "$(calls "$m/$3" open:t \
	    pwrite:0:8 setxattr:dtype:int64 close)" "ok ok EINVAL EINVAL"
	"$OPTIMFS" abort "$m"
	is "$1: a file of another type cannot take its place" "$(calls "$m/$3.new" open:c \
	    pwrite:0:8 setxattr:shape:1 setxattr:dtype:int64 close "rename:$m/$3")" \
	    "ok ok ok ok ok EINVAL"
	"$OPTIMFS" abort "$m"
	is "$1: a file in the place of a removed tensor gets no other type" "$(calls "$m/$3" \
	    unlink open:c pwrite:0:8 setxattr:dtype:int64)" "ok ok ok EINVAL"
	"$OPTIMFS" abort "$m"
	head -c "$(($(stat -c %s "$m/$3") / 2))" /dev/zero >half
	cat half >"$m/$3"
	status "$1: a plain copy of elements of half the size is not committed" 3 \
	    "$OPTIMFS" commit "$m"
	like "$1: the message does not advise cp -a" "$(said)" \
	    "*OFS301*elements of * bytes, copy them from a view with dtype=*"
	"$OPTIMFS" abort "$m"
	ok "$1: umount after a refused type exits with 0" "$OPTIMFS" umount "$m"
}
refuse_type safetensors pytorch/safetensors_plain/ckpt model/layers.0.w1.weight
refuse_type "ZeRO 3" deepspeed/z3_ws3_poison_subgroups/ckpt \
    optim/state/blocks.0.fc_in.bias/exp_avg
refuse_type universal deepspeed/z2_ws2_bf16/ckpt_universal \
    optim/state/blocks.0.fc_in.bias/exp_avg
refuse_type "rank files" pytorch/fsdp1_sharded_orig_fullshard_w2/ckpt_rankfiles \
    optim/state/conv.bias/exp_avg

mkdir upper
cp -r "$dcp" there
ok "mount with upper= succeeds" "$OPTIMFS" mount -o "rw,upper=$scratch/upper" there "$m"
echo 0.25 >"$m/$L"
like "upper= holds the staging directory with the journal" \
    "$(ls -A upper/.there.optimfs)" "*journal*"
is "the lock is beside the checkpoint, not in upper=" "$(echo $(ls -A .there.optimfs))" \
    "lock mounted upper"
ok "umount of a mount with upper= exits with 0" "$OPTIMFS" umount "$m"
is "umount removes the staging directory and the lock" \
    "$(ls -dA upper/.[!.]* other/.[!.]* .there.optimfs 2>/dev/null)" ""
is "umount commits what was staged in upper=" "$("$OPTIMFS" cat there "$L")" 0.25

# A killed daemon, and mounts that do not know where its changes are.
"$OPTIMFS" mount -o rw,upper=upper there "$m"
echo 0.5 >"$m/$L"
daemon=$(sed -n 's/^pid //p' .there.optimfs/lock)
kill -KILL "$daemon"
ended() {
	! kill -0 "$daemon" 2>/dev/null
}
ok "the daemon ends" eventually ended
status "umount of a killed mount with upper= exits with 3" 3 "$OPTIMFS" umount "$m"
like "umount says where the changes are" "$(cat "$scratch/err")" \
    "*OFS811 $scratch/upper/.there.optimfs holds changes*recover=yes,upper=$scratch/upper *"
mkdir other
for opts in rw rw,recover=yes rw,upper=other,recover=yes; do
	status "mount -o $opts does not ignore the changes in upper=" 3 \
	    "$OPTIMFS" mount -o $opts there "$m"
done
ok "mount with recover=yes,upper= succeeds" "$OPTIMFS" mount -o rw,recover=yes,upper=upper there "$m"
"$OPTIMFS" umount "$m"
is "recover=yes continues with what is in upper=" "$("$OPTIMFS" cat there "$L")" 0.5
is "nothing is left after the commit" "$(ls -dA upper/.[!.]* other/.[!.]* .there.optimfs 2>/dev/null)" ""

# With allow_other the mount shows nobody more than the source does.
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
	other() {
		setpriv --reuid=65534 --regid=65534 --clear-groups cat "$m/$L"
	}
	chmod 755 "$scratch"
	chmod -R a+rX there
	"$OPTIMFS" mount -o allow_other there "$m"
	ok "another user reads what is open to all" other
	"$OPTIMFS" umount "$m"
	chmod 700 there
	"$OPTIMFS" mount -o allow_other there "$m"
	not_ok "another user reads nothing of a directory with mode 0700" other
	like "the message is Permission denied" "$(cat "$scratch/err")" '*Permission denied*'
	"$OPTIMFS" umount "$m"
else
	skip 3 "no other user"
fi
# A value of all ranks is not committed while the file of one is damaged.
ck=$scratch/ranks
mnt=$(point ranks_mnt)
lr=optim/param_groups/0/lr
cp -rL "$TOP_SRCDIR/tests/data/pytorch/rank_dtensor_fsdp2_tp_w4/ckpt" "$ck"
chmod -R u+w "$ck"
truncate -s -200 "$ck/state_rank1.pt"
"$OPTIMFS" mount -o rw "$ck" "$mnt" 2>"$scratch/err"
echo 0.25 >"$mnt/$lr"
status "a commit fails if one of the files that it changes is truncated" 3 "$OPTIMFS" commit "$mnt"
like "the error says what to do with the truncated file" "$(cat "$scratch/err")" \
    '*OFS501 state_rank1.pt: *restore it, or move it away to commit without it: *'
"$OPTIMFS" umount --keep "$mnt" 2>"$scratch/err"
is "the failed commit leaves the value of all ranks" "$("$OPTIMFS" cat "$ck" $lr)" 0.001
rm "$ck/state_rank1.pt"
"$OPTIMFS" mount -o rw,recover=yes "$ck" "$mnt" 2>"$scratch/err"
ok "the kept value is committed after the truncated file was removed" "$OPTIMFS" umount "$mnt"
is "the other ranks have the committed value" "$("$OPTIMFS" cat "$ck" $lr)" 0.25

# A write past the limit of the size of files (SIGXFSZ) ends neither the mount nor
# what was written before.
limited=$(point limited)
cp -r "$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w2/ckpt" "$scratch/large"
chmod -R u+w "$scratch/large"
lr=optim/param_groups/0/lr
(ulimit -f 8; exec "$OPTIMFS" mount -o rw "$scratch/large" "$limited")
last=
for i in $(seq 100); do
	echo 0.$i | dd of="$limited/$lr" 2>"$scratch/err" || break
	last=0.$i
done
like "writes past the limit of files fail" "$(cat "$scratch/err")" '*File too large*'
like ".optimfs/errors has the failure" "$(cat "$limited/.optimfs/errors")" '*OFS801*EFBIG*'
is "the mount goes on, with the last value that was written" "$(cat "$limited/$lr")" "$last"
status "commit past the limit of files exits with 3" 3 "$OPTIMFS" commit "$limited"
ok "umount --keep after it succeeds" "$OPTIMFS" umount --keep "$limited"
ok "a mount without the limit has the change" "$OPTIMFS" mount -o rw,recover=yes "$scratch/large" "$limited"
is "no written value is lost" "$(cat "$limited/$lr")" "$last"
ok "umount commits it" "$OPTIMFS" umount "$limited"
is "the checkpoint has it" "$("$OPTIMFS" cat "$scratch/large" $lr)" "$last"

done_testing
