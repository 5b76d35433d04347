// Package vgpu reads and changes NVIDIA vGPUs on a Linux KVM host. There are three
// shapes of host, and the package hides which one it is on:
//
//   - mdev: GPUs without SR-IOV. A vGPU is a mediated device on the GPU itself.
//   - mdev on virtual functions: SR-IOV GPUs with older kernels.
//   - vendor-specific VFIO: SR-IOV GPUs with kernel 6.8 and later. A vGPU is a number
//     in the virtual function's nvidia/current_vgpu_type.
//
// A [Host] reads a [GPU] and runs steps on it. [Check], [Plan] and [Restore] are pure:
// they see a GPU as it was read and what is wanted of it, and answer with what stands
// in the way or with [Step]s in the one order that works, each with its inverse.
//
// Virtual functions, heterogeneous mode, GPU instances and vGPUs all end with a reboot
// or a reload of the driver. [Save] records them and [Restore] puts them back on the
// functions and under the UUIDs by which virtual machines know them.
//
// What sysfs does not tell comes from the caller's [NVML]; the package itself is pure Go.
//
// Sources: NVIDIA Virtual GPU Software User Guide, "Installing and Configuring the
// NVIDIA Virtual GPU Manager", and the kernel's vfio-mediated-device documentation.
package vgpu
