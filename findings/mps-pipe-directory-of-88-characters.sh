#!/usr/bin/env bash
# NVIDIA MPS control daemon 535.261.03 (Debian 12, non-free: nvidia-cuda-mps 535.261.03-1).
#
# Behaviour: with a pipe directory whose path has 88 characters `nvidia-cuda-mps-control -d` ends with status 1. It prints
# nothing, and writes no log; with 87 characters it starts. The longest socket below the directory is
# DIRECTORY/control_privileged, 19 characters more, so that 107 characters are refused, which sun_path of unix(7) has room
# for: 108 bytes with the zero at the end.
#
# Why it matters: who computes the limit from sun_path is off by one, and finds no word about it anywhere.
#
# It needs Debian 12 on amd64 with the component non-free in its package lists, and no GPU. It installs nothing.
set -euo pipefail
version=535.261.03-1
at=$(mktemp -d /tmp/mps.XXXXXX)
trap 'rm -rf "$at"' EXIT
cd "$at"
apt-get -qq download "nvidia-cuda-mps=$version" 2>/dev/null
dpkg -x ./*.deb root
control=$(find "$at/root" -name nvidia-cuda-mps-control -type f)

# starts LENGTH tells whether the daemon starts with a pipe directory of that length. What it says is in $said.
starts() {
  local directory=$at/ log=$at/log-$1 status=0
  directory+=$(printf 'p%.0s' $(seq $(($1 - ${#directory}))))
  mkdir -p "$directory" "$log"
  export CUDA_MPS_PIPE_DIRECTORY=$directory CUDA_MPS_LOG_DIRECTORY=$log
  said=$(timeout 20 "$control" -d 2>&1) || status=$?
  if ((status == 0)); then
    "$control" <<<quit >/dev/null
  else
    said+=$(cat "$log"/* 2>/dev/null || true)
  fi
  return "$status"
}

starts 87 || { printf 'it does not start with 87 characters: %s\n' "$said"; exit 1; }
if starts 88; then
  echo 'it starts with 88 characters now'
  exit 1
fi
[[ -z $said ]] || { printf 'it says why now: %s\n' "$said"; exit 1; }
echo 'nvidia-cuda-mps-control -d: a pipe directory of 87 characters starts; with 88 it ends with status 1, without a word'
