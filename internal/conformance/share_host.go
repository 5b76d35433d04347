package conformance

import "github.com/gpufleet/terraform-provider-gpu/internal/gpu"

// The daemons and the shares of the scenarios. Two shares, and two daemons, never differ in
// case alone.
const (
	daemonA = "training"
	daemonB = "serving-2"

	shareA = "team-a"
	shareB = "team-b.batch"
)

const gib = 1024 * gpu.MiB

// toolkit is the version of NVIDIA's container toolkit on the standard host.
const toolkit = "1.20.1"

// standardSharingHost is what every scenario of shares starts from: that of MIG, with the
// GPU h100B in MIG mode.
func standardSharingHost() gpu.Host {
	h := standardMIGHost()
	h.MPS = &gpu.MPSHost{Program: "/usr/bin/nvidia-cuda-mps-control"}
	h.ContainerToolkit = toolkit
	for i := range h.GPUs {
		h.GPUs[i].TimeSlice = gpu.TimeSliceDefault
		h.GPUs[i].ComputeCapability = map[string]string{a100: "8.0", h100A: "9.0", h100B: "9.0", l40s: "8.9"}[h.GPUs[i].ID]
	}
	inMIG(h100B)(&h)
	onGPU(h100B, func(g *gpu.GPU) { g.TimeSlice = "" })(&h) // full GPUs only have one
	return h
}

func withoutMPS(h *gpu.Host) { h.MPS = &gpu.MPSHost{} }

func withoutToolkit(h *gpu.Host) { h.ContainerToolkit = "" }

// whole are GPUs as devices, and part is a GPU instance.
func whole(gpuIDs ...string) []gpu.SharedDevice {
	var devices []gpu.SharedDevice
	for _, id := range gpuIDs {
		devices = append(devices, gpu.SharedDevice{GPU: id})
	}
	return devices
}

func part(gpuID, profile string, start int) []gpu.SharedDevice {
	return []gpu.SharedDevice{{GPU: gpuID, Instance: &gpu.MIGPlacement{Profile: profile, Start: start}}}
}

// daemon is a daemon for the processes of one user.
func daemon(name string, devices []gpu.SharedDevice, change ...func(*gpu.MPSDaemonSpec)) gpu.MPSDaemonSpec {
	user := 0
	d := gpu.MPSDaemonSpec{Name: name, Devices: devices, User: &user}
	for _, c := range change {
		c(&d)
	}
	return d
}

func forUser(uid int) func(*gpu.MPSDaemonSpec) {
	return func(d *gpu.MPSDaemonSpec) { d.User = &uid }
}

func withPartitions(d *gpu.MPSDaemonSpec) { d.StaticPartitions = true }

// newDriver is the first one with static partitions.
func newDriver(h *gpu.Host) {
	for i := range h.GPUs {
		h.GPUs[i].Driver.Version = "590.44.01"
	}
}

func forAllUsers(d *gpu.MPSDaemonSpec) { d.User, d.MultiUser = nil, true }

func withLimits(threads float64, memory gpu.Bytes) func(*gpu.MPSDaemonSpec) {
	return func(d *gpu.MPSDaemonSpec) { d.ActiveThreadPercentage, d.PinnedMemoryLimit = threads, memory }
}
