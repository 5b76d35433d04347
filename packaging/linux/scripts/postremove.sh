#!/bin/sh
# Runs after the package was removed. /var/lib/gpu-agent stays: it says what Terraform
# manages here and what is still to be undone.
set -e
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload || true
