package conformance

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// SharingFixture is a Linux host with NVIDIA GPUs on which processes and containers share
// them. Its methods are what others do on the host; they end the test when they fail.
type SharingFixture interface {
	MIGFixture

	// Sharing is the backend, asked for anew as MIG is.
	Sharing() backend.Sharing

	// StartClient has a process compute through a daemon of ours, on all of its devices, and
	// StartInShare one with the environment of a share that was handed over, on the share's
	// devices and, if it has a daemon, through that. Both return the process id; StopProcess
	// ends such processes too.
	StartClient(t *testing.T, daemon, name string) int
	StartInShare(t *testing.T, share, name string) int

	// KillDaemon ends a daemon of ours as the kernel does when memory runs out, and its
	// servers and clients with it. Its sockets stay.
	KillDaemon(t *testing.T, daemon string)
	// KillControl ends the control daemon alone: its servers go on, and their clients.
	KillControl(t *testing.T, daemon string)
	// LeaveSockets leaves of a daemon that there never was what one leaves that was killed:
	// its directory, with sockets at which nobody listens.
	LeaveSockets(t *testing.T, daemon string)
	// FailStarts has every daemon fail to start from now on, or no longer.
	FailStarts(t *testing.T, fail bool)
	// StartDaemonOutside is somebody else who starts a daemon for GPUs, and returns its
	// process id.
	StartDaemonOutside(t *testing.T, gpuIDs ...string) int

	// SetComputeModeOutside is somebody else with nvidia-smi.
	SetComputeModeOutside(t *testing.T, gpuID string, mode gpu.ComputeMode)

	// WriteForeignSpec is somebody else who writes a CDI specification in the place in which
	// that of a share would be. HasForeignSpec tells whether it is there as it was written.
	WriteForeignSpec(t *testing.T, share string)
	HasForeignSpec(t *testing.T, share string) bool
}

// Metered is a fixture whose backend is a Meter, and that can say how busy its GPUs are.
// Scenarios that need it are skipped on others.
type Metered interface {
	// Meter is the backend, asked for anew as MIG is.
	Meter() backend.Meter
	// SetLoad has kernels run on a GPU for a percentage of the time, or on a percentage of
	// the multiprocessors of the GPU instance at a place, and memory be used there.
	SetLoad(t *testing.T, gpuID string, at *gpu.MIGPlacement, percent float64, memory gpu.Bytes)
}

// SharingFactory makes a fixture of a host. Every scenario has its own. The host has no
// instances, no processes, no daemons and no shares yet; a GPU may be in MIG mode. It has
// nvidia-cuda-mps-control if and only if initial.MPS has a program, and NVIDIA's container
// toolkit, with a CDI specification of its GPUs, if and only if initial.ContainerToolkit is
// not empty.
type SharingFactory func(t *testing.T, initial gpu.Host) SharingFixture

// RunSharing runs all scenarios of shared GPUs on the fixtures of a backend. Their bench is
// that of MIG, whose actions and checks they have in common.
func RunSharing(t *testing.T, factory SharingFactory) {
	t.Helper()
	runSubjects(t, sharingSubjects(), standardSharingHost, func(t *testing.T, h gpu.Host) *migBench {
		t.Helper()
		f := factory(t, h)
		return &migBench{MIGFixture: f, sharing: f, record: newRecord(t)}
	})
}

func sharingSubjects() []migSubject {
	return []migSubject{
		{"inventory", shareInventoryScenarios()},
		{"compute mode", computeModeScenarios()},
		{"time slices", timeSliceScenarios()},
		{"daemon", daemonScenarios()},
		{"restart", daemonRestartScenarios()},
		{"failure", daemonFailureScenarios()},
		{"orphans", daemonOrphanScenarios()},
		{"removal", daemonRemovalScenarios()},
		{"handover", handoverScenarios()},
		{"foreign", shareForeignScenarios()},
		{"reboot", shareRebootScenarios()},
		{"errors", shareErrorScenarios()},
		{"concurrency", shareConcurrencyScenarios()},
		{"meter", meterScenarios()},
	}
}
