// Package mpsconf is what a control daemon of NVIDIA's Multi-Process Service can be told:
// how a daemon is declared, what of that no daemon takes, and how percentages and limits
// are written in its commands and shown in its answers. It starts nothing and reads no host.
//
// Source: NVIDIA Multi-Process Service, https://docs.nvidia.com/deploy/mps/, and the
// manual page nvidia-cuda-mps-control(1).
package mpsconf
