#!/bin/sh
# Runs after the package was installed or upgraded. It neither enables nor starts
# anything, and does not restart a service: that could undo a change that runs.
set -e
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload || true
if systemctl is-active --quiet gpu-agent.service; then
	echo 'gpu-agent.service still runs the former version. When no Terraform run is at work: systemctl restart gpu-agent.service'
fi
