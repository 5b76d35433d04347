// Package vgpu reads and changes NVIDIA vGPUs on a Linux KVM host. There are three
// shapes of host, and the package hides which one it is on:
//
//   - mdev: GPUs without SR-IOV. A vGPU is a mediated device on the GPU itself.
//   - mdev on virtual functions: SR-IOV GPUs with older kernels.
//   - vendor-specific VFIO: SR-IOV GPUs with kernel 6.8 and later. A vGPU is a number
//     in the virtual function's nvidia/current_vgpu_type.
//
// A [Host] reads a [GPU] and changes it: virtual functions, heterogeneous mode, vGPUs. All
// of that ends with a reboot or a reload of the driver. What is made in which order is not
// decided here.
//
// What sysfs does not tell comes from the caller's [NVML]; the package itself is pure Go.
//
// Sources: NVIDIA Virtual GPU Software User Guide, "Installing and Configuring the
// NVIDIA Virtual GPU Manager", and the kernel's vfio-mediated-device documentation.
package vgpu
