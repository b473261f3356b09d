#!/bin/sh
# messages.t - what a person reads: the "to do" line of common mistakes, narrow
# terminals, and no colour
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

cd "$scratch" || exit 99
data=$TOP_SRCDIR/tests/data/pytorch
cp -r "$data/dcp_fsdp2_w4/ckpt" step-1000
chmod -R u+w step-1000
for d in lost short noindex cut; do
	cp -r step-1000 $d
done
rm lost/__1_0.distcp noindex/.metadata
truncate -s 100000 short/__2_0.distcp
truncate -s 5000 cut/.metadata
head -c 1000 /dev/zero >zeros.pt
: >empty.pt
echo note >step-1000/note.txt
mkdir lfs lfs/both
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 5000000000\n' 7 |
    tee lfs/model.safetensors lfs/both/pytorch_model.bin >lfs/both/model.safetensors
tar -cf lfs/step.tar step-1000
gzip <lfs/step.tar >lfs/step.tar.gz
mkdir foreign foreign/orbax foreign/tf foreign/gz foreign/h5 named
for f in .metadata __1_0.distcp; do
	cp -r step-1000 "lfs/of$f"
	cp lfs/model.safetensors "lfs/of$f/$f"
done
cp -r step-1000 named/step-9
printf step-9 >named/latest
printf step-10 >foreign/latest
printf 'GGUF\003\0\0\0' >foreign/m.gguf
printf '\211HDF\r\n\032\n' | tee foreign/m.h5 >foreign/h5/model.h5
printf 'PK\003\004' | tee foreign/m.keras >foreign/files.zip
printf 'PK\003\004%022d\040\0\0\0serialized_exported_program.json' 0 >foreign/old.pt2
echo | tee foreign/m.onnx >foreign/flax.msgpack
printf '(dp0\nVa\np1\nI1\ns.' >foreign/zero.pkl
printf '}q\0X\001\0\0\0aq\001K\001s.' >foreign/one.pkl
printf 'ccollections\nOrderedDict\nq\0)Rq\001.' >foreign/ordered.pt
: >foreign/orbax/manifest.ocdbt
: >foreign/tf/ckpt-1.index
mkdir -p foreign/manager/10 foreign/levanter/model/emb/weight foreign/snapshot/0 foreign/nanotron/10 \
    foreign/paddle pieces/fairscale pieces/llama
: >foreign/manager/10/_CHECKPOINT_METADATA
: >foreign/levanter/model/emb/weight/.zarray
: >foreign/snapshot/.snapshot_metadata
: >foreign/nanotron/10/model_config.json
: >foreign/nanotron/10/checkpoint_metadata.json
echo | tee foreign/paddle/model_state.pdparams >foreign/paddle/optimizer.pdopt
printf '|TZR|\r\n' >foreign/m.tensors
printf 'lmgg\0\0\0\0' >foreign/ggml.bin
for i in 0 1; do
	: >pieces/fairscale/checkpoint_last-shard$i.pt
	: >pieces/llama/consolidated.0$i.pth
done
: >foreign/tf/ckpt-1.data-00000-of-00001
gzip -c step-1000/__0_0.distcp >foreign/gz/model.pt.gz
mkdir empty
tensor=model/output.weight
old='check that it is the right file, and copied completely; a pickle of protocol 0 or 1 must be written again with protocol 2; -o type=raw shows bytes'
"$OPTIMFS" mkfs --like step-1000 --layout dcp@2 empty-one

# arguments | exit status | code | what follows "to do:" ("-": no such line, for
# the message says it) | the message
while IFS='|' read -r arguments want code advice words; do
	# shellcheck disable=SC2086
	status "$arguments: exit status" "$want" "$OPTIMFS" $arguments
	like "$arguments: the message" "$(head -n 1 "$scratch/err")" "optimfs: $code $words"
	got=$(sed -n 's/^  to do: //p' "$scratch/err")
	is "$arguments: what to do" "${got:--}" "$advice"
done <<END
info nowhere|3|OFS019|-|nowhere: No such file or directory: this directory has no nowhere
info no/such/dir|3|OFS019|-|no/such/dir: *: this directory has no no
info gs://bucket/step-1000|3|OFS019|-|gs://bucket/step-1000: *s3://*gcsfuse*
info abfss://c@a.dfs.core.windows.net/x|3|OFS019|-|abfss://c@a*rclone serve http*
info S3://bucket/step|3|OFS019|-|S3://bucket/step*small letters*
info host:/step-1000|3|OFS019|-|host:/step-1000: *on host host, mount it here (sshfs)*
info file:///step-1000|3|OFS019|-|file:///step-1000: *without file://
info ~/step-1000|3|OFS019|-|~/step-1000: *replaces ~ only*
info step-100|3|OFS018|-|step-100: No such file or directory; did you mean 'step-1000'[?]
diff step-1000 step-100|3|OFS018|-|step-100: No such file or directory; did you mean 'step-1000'[?]
check step-1000/model|3|OFS018|-|step-1000/model: *: step-1000 model
ls step-1000/no/thing|3|OFS019|-|step-1000/no/thing: No such file or directory: step-1000 has no no
info $tensor step-1000|3|OFS018|-|$tensor: *the checkpoint comes first: step-1000 $tensor
cat step-1000 model/output.wieght|3|OFS018|-|step-1000: *did you mean 'output.weight'[?]
stat step-1000 output.weight|3|OFS018|-|step-1000: output.weight: no such name; did you mean 'model/output.weight'[?]
info step-1000 param_groups/0/lr|3|OFS018|-|step-1000: *did you mean 'optim/param_groups/0/lr'[?]
cat step-1000 model|3|OFS009|-|model: is a directory: optimfs ls lists it, optimfs cp -r copies it
cp step-1000 $tensor no/such/dir/|3|OFS018|-|no/such/dir/: *mkdir -p no/such/dir)
report step-1000 -o no/x.html|3|OFS018|-|no/x.html: *mkdir -p no)
reshard --to dcp@2 step-1000 no/such|3|OFS809|-|no/such: *mkdir -p no)
reshard --to dcp@2 step-1000 lost|3|OFS008|remove it, or give another name|lost already exists
reshard --to dpc@2 step-1000 new|2|OFS771|-|*did you mean 'dcp'[?]*
info step-1000/note.txt|2|OFS677|-|note.txt is not a checkpoint by itself; *step-1000
info step-1000/__0_0.distcp|2|OFS677|-|__0_0.distcp is one file of a checkpoint: give its directory*
info empty|3|OFS680|-|*empty is empty: give the directory of the checkpoint
info empty.pt|4|OFS678|check that it is the right file, and copied completely; a pickle of protocol 0 or 1 must be written again with protocol 2; -o type=raw shows bytes|*/empty.pt is empty
info lfs/model.safetensors|3|OFS666|fetch it with git lfs pull, or download it again|*model.safetensors: a pointer of Git LFS, not the file itself
info lfs/both/pytorch_model.bin|3|OFS666|fetch it with git lfs pull, or download it again|pytorch_model.bin: a pointer of Git LFS, not the file itself
info lfs/step.tar|4|OFS667|unpack it, and give what was in it|*/lfs/step.tar: a tar archive
info lfs/step.tar.gz|4|OFS667|unpack it, and give what was in it|*/lfs/step.tar.gz is compressed with gzip
info lfs/of.metadata|3|OFS666|fetch it with git lfs pull, or download it again|*.metadata: a pointer of Git LFS, not the file itself
cat lfs/of__1_0.distcp $tensor|3|OFS666|fetch it with git lfs pull, or download it again|$tensor*: __1_0.distcp: a pointer of Git LFS, not the file itself
info named/latest|2|OFS677|-|latest only names the latest checkpoint: give $scratch/named/step-9
info foreign/latest|3|OFS676|give another checkpoint, or correct the file that names the latest one|$scratch/foreign/latest names step-10, which does not exist
info foreign/m.gguf|4|OFS668|-|*m.gguf: a GGUF file for llama.cpp: use *
info foreign/m.h5|4|OFS668|-|*m.h5: an HDF5 file*: load it there, *
info foreign/m.keras|4|OFS668|-|*m.keras: a model of Keras: load it there, *
info foreign/m.onnx|4|OFS668|-|*m.onnx: an ONNX model: use *
info foreign/flax.msgpack|4|OFS668|-|*flax.msgpack: *Flax*: load it there, *
info foreign/old.pt2|4|OFS668|-|*old.pt2: a program of torch.export: save its weights, *
info foreign/orbax|4|OFS668|-|*orbax: a checkpoint of JAX (Orbax): load it there, *
info foreign/tf|4|OFS668|-|*tf: a checkpoint of TensorFlow: load it there, *
info foreign/manager|4|OFS668|-|*manager/10: a checkpoint of JAX (Orbax): *
info foreign/levanter|4|OFS668|-|*weight: a checkpoint of Zarr (*Levanter*): load it there, *
info foreign/snapshot|4|OFS668|-|*snapshot: a checkpoint of torchsnapshot: restore it there, *
info foreign/nanotron|4|OFS668|-|*nanotron/10: a checkpoint of nanotron: convert its weights *
info foreign/paddle|4|OFS668|-|*model_state.pdparams: weights of PaddlePaddle: load them there, *
info foreign/m.tensors|4|OFS668|-|*m.tensors: a file of tensorizer: *
info foreign/ggml.bin|4|OFS668|-|*ggml.bin: an old file of ggml: *
info pieces/fairscale|4|OFS641|-|*files of FairScale's FSDP *: join them *give its path, such as checkpoint_last-shard0.pt, or -o type=torch for all *
info pieces/llama|4|OFS641|-|*files of Llama's model parallelism *such as consolidated.00.pth, or -o type=torch for all *
info foreign/h5|4|OFS668|-|*h5/model.h5: an HDF5 file*
info foreign/files.zip|4|OFS667|unpack it, and give what was in it|*files.zip: a zip archive
info foreign/gz|4|OFS667|unpack it, and give what was in it|*gz/model.pt.gz is compressed with gzip
info foreign/zero.pkl|4|OFS678|$old|*zero.pkl: a pickle of protocol 0 or 1
info foreign/one.pkl|4|OFS678|$old|*one.pkl: a pickle of protocol 0 or 1
info foreign/ordered.pt|4|OFS678|$old|*ordered.pt: a pickle of protocol 0 or 1
plan $TOP_SRCDIR/tests/data/extra/trainers/pl_full.ckpt zero1@2|4|OFS682|-|*parameter 0 of the optimizer *-o ids=model, or a file, gives the names)
plan $data/fsdp1_local_orig_fullshard_w2/ckpt zero1@2|4|OFS166|give -o units=FILE; the slices of rank files are below .optimfs/rank|*units unknown: -o units=FILE says*
info noindex|3|OFS601|copy .metadata too, which cp * leaves out; if there is none, the save did not complete: use an earlier one|*4 .distcp files but no .metadata
info cut|3|OFS419|the file was truncated: copy it again|cut: .metadata: *
cat lost $tensor|3|OFS140|restore the file; if the checkpoint opens without it, all other tensors can be read|*__1_0.distcp is missing
tar lost model|3|OFS140|restore the file; if the checkpoint opens without it, all other tensors can be read|model/adapter.bias bytes *__1_0.distcp is missing
cat short $tensor|3|OFS603|copy the file again; it was not completely written|*__2_0.distcp *
report step-1000 nowhere -o x.html|3|OFS019|-|nowhere: *
info empty-one|3|OFS834|-|empty-one is an empty template*
umount empty|3|OFS758|-|empty: nothing is mounted there*
END
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
	mkdir closed locked
	chmod 000 closed
	copy_for_others "$OPTIMFS"
	# nobody NAME PATTERN ARGUMENT...: the first line that another user gets
	nobody() {
		name=$1 pattern=$2
		shift 2
		status "$name: exit status" 3 env LD_LIBRARY_PATH="$scratch" \
		    setpriv --reuid 65534 --clear-groups "$scratch/optimfs" "$@"
		like "$name: the message" "$(head -n 1 "$scratch/err")" "$pattern"
	}
	nobody "info of a directory without permission" \
	    'optimfs: OFS756 */closed: not allowed to read it' info closed
	nobody "reshard into a directory without permission" \
	    'optimfs: OFS809 cannot create */.new.optimfs, where new files are written first: Permission denied' \
	    reshard --to dcp@2 step-1000 new
	case $("$OPTIMFS" --version) in
	*"no FUSE"*) skip 2 "no FUSE" ;;
	*)
		nobody "mount on a directory without permission" \
		    'optimfs: OFS758 mount point */locked: Permission denied: without root, it must be writable' \
		    mount step-1000 locked
		;;
	esac
	fusermount=$(command -v fusermount3)
	# the device of the machine may be for root only
	mknod -m 666 fuse c 10 229
	usable='opens() { setpriv --reuid 65534 --clear-groups sh -c ": <>/dev/fuse"; }
	    opens || { mount --bind fuse /dev/fuse && opens; }'
	if [ -n "$fusermount" ] && unshare -m sh -c "$usable" 2>/dev/null; then
		mkdir open
		chmod 777 open
		LD_LIBRARY_PATH="$scratch" unshare -m sh -c "$usable"' &&
		    mount --bind /dev/null "$1" &&
		    exec setpriv --reuid 65534 --clear-groups "$2/optimfs" mount step-1000 open' \
		    sh "$(realpath "$fusermount")" "$scratch" >out 2>&1
		like "a plain user without fusermount3 learns what to install" \
		    "$(grep ^optimfs: out)" \
		    'optimfs: OFS758 cannot mount on */open: without root, * install the package fuse3*'
	else
		skip 1 "no fusermount3, /dev/fuse or unshare"
	fi
else
	skip 7 "not root, or no setpriv"
fi

name=$(printf 'a\033[31m\nb')
mv empty "$name"
"$OPTIMFS" fsck step-1000 >/dev/null
cp -r step-1000 "$name/ck"
"$OPTIMFS" fsck "$name/ck" >out 2>err
is "fsck prints one line, without control bytes of the checkpoint's name" \
    "$(wc -l <out) $(LC_ALL=C tr -d '\n' <out | tr -dc '\000-\037' | wc -c)" "1 0"

# screen WIDTH COMMAND...: the output of optimfs on a terminal
cat >screen.py <<'END'
import fcntl, os, pty, struct, sys, termios
pid, fd = pty.fork()
if pid == 0:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("4H", 24, int(sys.argv[1]), 0, 0))
    os.execv(os.environ["OPTIMFS"], ["optimfs"] + sys.argv[2:])
out = b""
while True:
    try:
        got = os.read(fd, 65536)
    except OSError:
        break
    if not got:
        break
    out += got
sys.stdout.buffer.write(out)
END
if command -v python3 >/dev/null; then
	export OPTIMFS
	python3 screen.py 80 stat --only 'nan>0' step-1000 >out
	is "stat --only says on a terminal that no tensor has it" "$(tr -d '\r' <out)" \
	    'no tensor has nan>0'
	for v in 'map step-1000 model' 'info nowhere' 'fsck --data --progress step-1000' \
	    'info step-1000 model' 'fsck step-1000'; do
		# shellcheck disable=SC2086
		python3 screen.py 40 $v >out
		is "$v: the widest line on a terminal of 40 columns has at most 40" \
		    "$(python3 -c 'import re
print([l for l in re.split(r"[\r\n]+", open("out", encoding="utf-8").read()) if len(l) > 40])')" '[]'
		for env in NO_COLOR=1 TERM=xterm-256color; do
			# shellcheck disable=SC2086
			env $env python3 screen.py 80 $v >out
			# shellcheck disable=SC2086
			env $env "$OPTIMFS" $v >>out 2>&1
			is "$v: no escape sequence with $env, on a terminal or in a pipe" \
			    "$(tr -dc '\033' <out | wc -c)" 0
		done
	done
else
	skip 16 "no python3"
fi
done_testing
