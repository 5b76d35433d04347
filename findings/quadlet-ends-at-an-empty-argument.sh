#!/usr/bin/env bash
# Podman's Quadlet 5.4.2, built from its module.
#
# Behaviour: systemd reads "" in a command line as an argument that is empty, and a service's ExecStart gives it to the program. Of
# Exec in a .container file, which is written in the same way, Quadlet's generator takes such an argument for the end: it and all
# that is behind it are missing in the service, without a word.
#
# Why it matters: a program that is called with a flag whose value is empty lacks the value and all further flags.
#
# Seen: ExecStart=/usr/bin/podman run --name systemd-%N ... docker.io/library/debian echo --prefix
#
# It needs Go 1.24 or later and a module proxy, and installs nothing.
set -euo pipefail
at=$(mktemp -d)
trap 'rm -rf "$at"' EXIT
mkdir "$at/module"
(
  cd "$at/module"
  go mod init quadlet
  export GOFLAGS=-mod=mod CGO_ENABLED=0
  go get github.com/containers/podman/v5/cmd/quadlet@v5.4.2
  go build -o "$at/quadlet" github.com/containers/podman/v5/cmd/quadlet
) >"$at/log" 2>&1 || { cat "$at/log"; exit 1; }
mkdir "$at/units"
printf '[Container]\nImage=docker.io/library/debian\nExec=echo --prefix "" --verbose\n' >"$at/units/a.container"
said=$(QUADLET_UNIT_DIRS=$at/units "$at/quadlet" -dryrun 2>/dev/null | grep '^ExecStart=')
printf '%s\n' "$said"
case $said in
*'echo --prefix "" --verbose') echo 'it keeps the empty argument now'; exit 1 ;;
*'debian echo --prefix') ;;
*) echo 'it writes something else'; exit 1 ;;
esac
