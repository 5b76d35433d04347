// Package mps runs NVIDIA's Multi-Process Service on a Linux host: one control daemon for
// each declared set of GPUs, or for a MIG device, under a name.
//
// A [Host] brings a daemon to what a [mpsconf.Spec] says ([Host.Ensure]), takes it away
// ([Host.Remove]), and tells what runs, other people's daemons included ([Host.Read]).
// [Host.Plan] tells beforehand what Ensure would do and which clients it would end. Where
// systemd runs, a daemon is the unit gpu-mps@NAME; elsewhere it is a process that a later
// agent finds again. Nothing of it survives a reboot: GPUs, their modes and the UUIDs of
// MIG devices come back first, and then whoever declared the daemon ensures it again.
//
// A [Control] speaks to one daemon. nvidia-cuda-mps-control says next to
// nothing about failures: it exits with 0, answers with the old value or not at all, and
// leaves the reason in control.log. So every command is one invocation, every change is
// read back, and the log's reason becomes the error. The protocol 3 that drivers have from
// R615 on is not used: the old one is their default still, and takes limits as it runs.
//
// The compute mode of the GPUs is set through NVML, and not here: by whoever declares the
// daemon, before it starts and after it has ended.
//
// Limits hold for each client process, not for all processes of a workload together, and
// MPS is no security boundary.
//
// Source: NVIDIA Multi-Process Service, https://docs.nvidia.com/deploy/mps/, and the
// manual pages nvidia-cuda-mps-control(1) and nvidia-cuda-mps-server(8).
package mps
