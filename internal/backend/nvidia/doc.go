// Package nvidia is the backend for Linux hosts with NVIDIA GPUs, over NVML.
//
// NVML is a C library of the driver, which is loaded when it is first needed and
// initialised once per agent: the package needs cgo, and exists on Linux only. A host
// without a driver gets a clear error. A function that a driver lacks would end the
// process, so what is newer than the oldest driver that is supported is looked up first.
//
// GPUs are named by their UUID, MIG instances by profile and start: the ids of instances
// are reused, and the UUIDs of MIG devices are new each time. vGPUs are read and changed in
// sysfs, by the package vgpu; NVML tells which types there are.
//
// Processes and containers share GPUs through the packages mps (control daemons),
// timeslice (nvidia-smi) and cdi (what containers are given). This package tells them the
// UUIDs and device numbers of now, and sets compute modes. How busy GPUs are NVML tells:
// of Hopper and later, and of MIG instances, by its performance monitoring.
package nvidia
