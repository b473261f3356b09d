#!/bin/sh
# memory.t - cache= and parse_mem= follow the memory limit of the control group
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"

[ "$(id -u)" = 0 ] || skip_all "only root makes control groups"
requires mount
ck=$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w2/ckpt
mnt=$(point m)
# the hierarchy of version 1 or 2 that has the controller
cg=$(awk '/ - cgroup [^ ]* [^ ]*memory/ { print $5; exit }' /proc/self/mountinfo)
file=memory.limit_in_bytes
if [ -z "$cg" ]; then
	cg=$(awk '/ - cgroup2 / { print $5; exit }' /proc/self/mountinfo)
	file=memory.max
	echo +memory >"$cg/cgroup.subtree_control"
fi 2>/dev/null
group=$cg/optimfs-test-$$
mkdir "$group" "$group/below" 2>/dev/null || skip_all "no control groups can be made"
leave() {
	"$OPTIMFS" umount "$mnt" 2>/dev/null
	eventually rmdir "$group/below" "$group"
	tap_cleanup
}
trap leave EXIT
echo 67108864 >"$group/$file" || skip_all "no memory limit can be set"

# run GROUP COMMAND...: in the group below, which has no limit itself
cat >"$scratch/run" <<'END'
#!/bin/sh
echo $$ >"$1/cgroup.procs" && shift && exec "$@"
END
chmod +x "$scratch/run"
cache() {
	sed -n 's/.*"cache": *\([0-9]*\).*/\1/p' "$mnt/.optimfs/info.json" | head -n 1
}

ok "a mount in a group of 64 MiB succeeds" \
    "$scratch/run" "$group/below" "$OPTIMFS" mount -o assemble=off "$ck" "$mnt"
is "cache= is an eighth of what the group allows" "$(cache)" 8388608
ok "umount" "$OPTIMFS" umount "$mnt"
done_testing
