// Package fakemps is NVIDIA's MPS for tests on a Linux machine without a GPU: a control
// daemon, its servers, CUDA clients and a systemctl. They are real processes. The test
// binary runs as one of them when it is started under its name: TestMain calls [Main].
//
// The daemon behaves as nvidia-cuda-mps-control 535, 550 and 555 were seen to behave,
// its silence about errors included; what it does with a GPU is after NVIDIA's
// documentation. The same tests run against the real program where it is
// installed.
package fakemps
