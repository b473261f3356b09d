#!/bin/sh
# view_room.t - whoever looks up thousands of views takes none away from others
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"

requires mount
mnt=$(point m)
"$OPTIMFS" mount "$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w2/ckpt" "$mnt"
view=$mnt/.optimfs/view
sum=$(cat "$view/torch/model.pt" | md5sum)

# More than there is room for.
flood() {
	i=1
	while [ $i -le 1500 ]; do
		echo "$view/$1@$i$2"
		i=$((i + 1))
	done | xargs stat -c %i
}

exec 3<"$view/torch/optim.pt"
ok "1500 views can be looked up" flood dcp ''
is "each of them has its own inode number" "$(sort -u "$scratch/out" | wc -l)" 1500
ok "another 1500 views can be looked up" flood dcp-st ',only=model'
ok "a view is there after others were looked up" ls "$view/torch"
is "its file has the same bytes" "$(cat "$view/torch/model.pt" | md5sum)" "$sum"
ok "the first of the other views is there, too" cat "$view/dcp@1/.metadata"
ok "a file that was open all the time is read" cat <&3
exec 3<&-

for i in 1 2 3; do
	ls "$view"/dcp@[1-9]* >/dev/null 2>&1
	flood zero3 '' >/dev/null
done
is "a view that was laid out has the same bytes later" \
    "$(cat "$view/torch/model.pt" | md5sum)" "$sum"

# Another name of the same layout is the same view.
same() {
	is "$1 is the view $2" "$(stat -c %i "$view/$1")" "$(stat -c %i "$view/$2")"
}
same dcp@1x4 dcp@4
same safetensors,only=model,hf safetensors,hf,only=model
same torch,drop=opaque,only=model torch,only=model,drop=opaque

i=0
while [ $i -lt 1500 ]; do
	i=$((i + 1))
	echo "$view/dcp@2,zstd=$((i % 19 + 1))" "$view/nothing$i"
done | xargs stat >/dev/null 2>&1
ok "names that are no views take no room" ls "$view/torch"
ok "umount" "$OPTIMFS" umount "$mnt"
done_testing
