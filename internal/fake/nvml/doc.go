// Package fakenvml is an NVIDIA host without a GPU, for tests: a libnvidia-ml.so that
// go-nvml loads as it would the driver's, and an nvidia-smi, over one machine in a file
// that several processes share.
//
// The library does what the hardware and its driver do, as far as that is known: MIG
// needs its mode, instances need their place, what is in use is not destroyed, Ampere
// changes its mode with a reset and later GPUs forget it at a reboot. A [Machine] is
// the operator's side of it: processes come and go, others create and destroy
// instances, the host reboots, a card is replaced, calls fail, take their time or kill
// their caller, and each is counted. What a GPU offers is data, see [GPU].
//
// The sources of the library are in lib; they are compiled with the C compiler that
// cgo needs too, against the nvml.h of the go-nvml that this module depends on. A
// [ProcTree] is a /proc and a cgroup tree, for who a process is.
//
// A program that links go-nvml must bind lazily: where the C compiler asks the linker
// for -z now by itself, as on Ubuntu, build with -ldflags=-extldflags=-Wl,-z,lazy.
//
// NVML is global to a process, and so is the machine that it talks to: tests that use
// one in their own process cannot run in parallel.
package fakenvml
