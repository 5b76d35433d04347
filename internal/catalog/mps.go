package catalog

import (
	"strconv"
	"strings"
)

// Numbers of clients that NVIDIA's Multi-Process Service takes on one device, by its
// limitations in https://docs.nvidia.com/deploy/mps/index.html.
const (
	mpsClients         = 48
	mpsClientsPreVolta = 16
	// From CUDA 13.1 on, which is driver branch 590.
	mpsClientsCUDA131 = 60
	branchCUDA131     = 590
)

// volta is the first compute capability whose MPS clients have address spaces of their own.
const volta = 7

// IsolatesMPSClients tells whether MPS clients have address spaces of their own on a GPU
// of a CUDA compute capability, "9.0". One that is not known counts as Volta's or later.
func IsolatesMPSClients(computeCapability string) bool {
	major, _, _ := strings.Cut(computeCapability, ".")
	n, err := strconv.Atoi(major)
	return err != nil || n >= volta
}

// MPSClients is how many MPS clients a GPU of a CUDA compute capability takes with a driver of a branch, "590".
// With one that is not known it takes what every driver gives.
func MPSClients(computeCapability, driverBranch string) int {
	branch, _ := strconv.Atoi(driverBranch)
	switch {
	case !IsolatesMPSClients(computeCapability):
		return mpsClientsPreVolta
	case branch >= branchCUDA131:
		return mpsClientsCUDA131
	}
	return mpsClients
}
