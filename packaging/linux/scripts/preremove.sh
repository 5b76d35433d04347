#!/bin/sh
# Runs before the package is removed or upgraded; only a removal (deb: remove, rpm: 0)
# stops the service. It waits for a change that runs to be undone.
set -e
case "${1:-}" in
remove | 0) ;;
*) exit 0 ;;
esac
command -v systemctl >/dev/null || exit 0
systemctl disable --now gpu-agent.service gpu-agent-reconcile.service || true
