#!/usr/bin/env bash
# Slurm 22.05.8 (Debian 12: slurmd, slurm-wlm-basic-plugins 22.05.8-4+deb12u3).
#
# Behaviour: gres.conf and slurm.conf let each GPU of a node have a type or none. A node of which some GPUs have a type and
# others do not is nonetheless one that slurmd does not start for: neither the type of the one nor the lack of it at the
# other is at fault, only that both stand on one node. With a type at both, or at neither, the same files are taken.
#
# Why it matters: who adds a MIG GPU, whose devices have types, beside a GPU that has none writes such a node.
#
# Seen: slurmd-n1: fatal: gres.conf for gpu, some records have "Type=" specification while others do not
#
# It needs Debian 12 on amd64 with its package lists, and installs nothing: packages are unpacked in a temporary folder.
set -euo pipefail
version=22.05.8-4+deb12u3
at=$(mktemp -d)
trap 'rm -rf "$at"' EXIT
cd "$at"
apt-get -qq download "slurmd=$version" "slurm-wlm-basic-plugins=$version" \
  libhwloc15 libmunge2 libyaml-0-2 libjson-c5 libdbus-1-3 libnuma1 liblua5.1-0 liblz4-1 libapparmor1 2>/dev/null
for package in *.deb; do dpkg -x "$package" root; done
libraries=$at/root/usr/lib/x86_64-linux-gnu
mkdir dev
touch dev/nvidia0 dev/nvidia1

# slurmd FIRST SECOND GRES prints what slurmd finds of a node with two GPUs, and returns its status.
slurmd() {
  printf 'NodeName=n1 Name=gpu %sFile=%s/dev/nvidia%d\n' "$1" "$at" 0 "$2" "$at" 1 >gres.conf
  cat >slurm.conf <<CONF
ClusterName=test
SlurmctldHost=localhost
SelectType=select/cons_tres
SlurmdSpoolDir=$at
ProctrackType=proctrack/pgid
TaskPlugin=task/none
GresTypes=gpu
PluginDir=$libraries/slurm-wlm
NodeName=n1 CPUs=4 Gres=$3
CONF
  LD_LIBRARY_PATH=$libraries:$libraries/slurm-wlm root/usr/sbin/slurmd-wlm -G -D -N n1 -f "$at/slurm.conf" 2>&1
}

for both in 'Type=a100 |gpu:a100:2' '|gpu:2'; do
  type=${both%%|*}
  if ! said=$(slurmd "$type" "$type" "${both#*|}"); then
    printf 'two GPUs with the same "%s": %s\n' "$type" "$said"
    exit 1
  fi
done
if said=$(slurmd 'Type=a100 ' '' gpu:a100:1,gpu:1); then
  printf 'a node whose GPUs are typed in part is taken now: %s\n' "$said"
  exit 1
fi
printf '%s\n' "$said"
grep -q 'fatal: .*some records have "Type=" specification while others do not' <<<"$said"
