#!/usr/bin/env bash
# Slurm 22.05.8 (Debian 12: slurmctld, slurmd, slurm-client 22.05.8-4+deb12u3; munge 0.5.15-2+deb12u1).
#
# Behaviour: Slurm's page on sharding says that a GPU is given out whole or in shards, never both at a time. That holds
# while one job has shards. Once another job on the same GPU has given its shards back, the GPU counts as free, and a job
# gets it whole beside the first one. With gres/mps in place of gres/shard it is the same. 24.11.5 (Debian 13) lets the job wait.
#
# Why it matters: who asks for a whole GPU computes beside others, and none of the commands shows it.
#
# It needs root on Debian 12 with these packages, and no GPU: device nodes are made in a temporary folder. Nothing is
# installed, and what it starts ends with it.
set -euo pipefail
((EUID == 0)) || { echo 'run it as root'; exit 2; }
if [[ ${1-} != apart ]]; then exec unshare --mount --pid --fork --kill-child "$0" apart; fi
mount -t proc proc /proc
for program in munged slurmctld slurmd srun; do
  command -v $program >/dev/null || { echo "there is no $program"; exit 2; }
done
at=$(mktemp -d /tmp/slurm.XXXXXX)
mount -t tmpfs -o mode=755 tmpfs "$at" # which goes with the namespace
trap 'umount -l "$at"; rmdir "$at"' EXIT
cd "$at"
head -c 1024 /dev/urandom >key
chmod 400 key
for i in 0 1; do
  mknod nvidia$i c 195 $i
  echo "NodeName=n1 Name=gpu Type=t4 File=$at/nvidia$i" >>gres.conf
done
echo "NodeName=n1 Name=shard Count=4 File=$at/nvidia0" >>gres.conf
port=$((20000 + RANDOM % 10000))
cat >slurm.conf <<CONF
ClusterName=test
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
AuthInfo=socket=$at/munge
StateSaveLocation=$at/state
SlurmdSpoolDir=$at/spool
SlurmctldPidFile=$at/slurmctld.pid
SlurmdPidFile=$at/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
SlurmdParameters=config_overrides
GresTypes=gpu,shard
NodeName=n1 NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=8 Gres=gpu:t4:2,shard:4
PartitionName=p Nodes=ALL Default=YES State=UP
CONF
export SLURM_CONF=$at/slurm.conf
munged --force --foreground --key-file="$at/key" --socket="$at/munge" --pid-file="$at/munged.pid" --log-file="$at/munged.log" \
  --seed-file="$at/seed" >/dev/null 2>&1 &
until [[ -e munge ]]; do sleep 0.1; done
slurmctld -D -f "$SLURM_CONF" >slurmctld.log 2>&1 &
slurmd -D -N n1 -f "$SLURM_CONF" >slurmd.log 2>&1 &
for _ in $(seq 300); do
  [[ $(sinfo -h -o %t 2>/dev/null) == idle ]] && break
  sleep 0.1
done

srun -Q --gres=shard:1 sh -c "touch $at/runs; sleep 60" &
until [[ -e runs ]]; do sleep 0.1; done
whole() { srun -Q --immediate=3 --gres=gpu:t4:2 printenv SLURM_STEP_GPUS 2>/dev/null; }
if got=$(whole); then
  echo "both GPUs ($got) are given out beside a job with a shard of one"
  exit 1
fi
srun -Q --gres=shard:1 true
if ! got=$(whole); then
  echo 'the job waits now, also after another one has given its shard back'
  exit 1
fi
echo "$(slurmctld -V): GPUs $got are given out whole while a job has a shard of GPU 0"
