#!/bin/sh
# slurm.t - ranks that srun has started, by a Slurm of this test's own
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
. "$TOP_SRCDIR/tests/tap/mpi.sh"
PATH=$PATH:/usr/sbin:/sbin
requires mount munged slurmctld slurmd srun
can_run_ranks
[ "$(id -u)" = 0 ] || skip_all "not root: slurmd starts no job"

# One node, this machine, which runs as many tasks as are asked for.
cd "$scratch" || exit 99
host=$(hostname -s)
port=$((20000 + $$ % 20000))
mkdir spool state
chmod 755 .
cat >slurm.conf <<END
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$scratch/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmctldPidFile=$scratch/slurmctld.pid
SlurmctldLogFile=$scratch/slurmctld.log
SlurmdPidFile=$scratch/slurmd.pid
SlurmdLogFile=$scratch/slurmd.log
SlurmdParameters=config_overrides
SlurmdSpoolDir=$scratch/spool
StateSaveLocation=$scratch/state
NodeName=$host NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=test Nodes=ALL Default=YES OverSubscribe=FORCE:4
END
SLURM_CONF=$scratch/slurm.conf
export SLURM_CONF
head -c 1024 /dev/urandom >key
chmod 400 key
munged --force --foreground --key-file="$scratch/key" --socket="$scratch/munge" \
    --log-file="$scratch/munged.log" --pid-file="$scratch/munged.pid" \
    --seed-file="$scratch/seed" >munged.out 2>&1 &
eventually test -S munge
slurmctld -D >/dev/null 2>&1 &
slurmd -D >/dev/null 2>&1 &
eventually sh -c 'sinfo -h -o %T 2>/dev/null | grep -q idle'
timeout "$limit" srun -n 2 --mpi=pmix true >started 2>&1 ||
    skip_all "srun does not run here: $(head -n 1 started)"

data=$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w4/ckpt
spread "$data" 2
mkdir mnt
"$OPTIMFS" cp -r "$data" . want
timeout "$limit" srun -n 2 --overlap --mpi=pmix "$OPTIMFS" mount "$nodes/%r" \
    "$scratch/mnt" >log 2>&1 &
job=$!
eventually mountpoint -q mnt
ok "srun --mpi=pmix: the mount of two ranks has the files of both" diff -r want mnt
ok "srun --mpi=pmix: umount succeeds" "$OPTIMFS" umount mnt
wait $job
is "srun --mpi=pmix: srun exits with 0 after umount" $? 0
status "srun --mpi=pmix: a reshard by two ranks exits with 0" 0 \
    srun -n 2 --overlap --mpi=pmix "$OPTIMFS" reshard --to dcp@3 "$nodes/%r" new
ok "srun --mpi=pmix: the resharded checkpoint equals the original" \
    "$OPTIMFS" diff "$data" new
rm "$nodes"/1/__*
status "srun --mpi=pmix: a reshard without the files of a rank exits with 3" 3 \
    srun -n 2 --overlap --mpi=pmix "$OPTIMFS" reshard --to dcp@3 "$nodes/%r" other

done_testing
