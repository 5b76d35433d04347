package rig

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// SharedCard is the id of a GPU of gpu01.
func SharedCard(n int) string { return fmt.Sprintf("GPU-50000000-0000-4000-8000-%012d", n) }

// GPUHost is the Linux host gpu01 with MPS and L40S GPUs without vGPUs, numbered from 0 on.
func GPUHost(n int) gpu.Snapshot {
	h := gpu.Host{
		Name: "gpu01", Platform: gpu.Linux, OS: gpu.OS{Name: "Ubuntu 24.04.3 LTS"}, VMs: []gpu.VM{}, Pools: []gpu.Pool{},
	}
	for i := range n {
		h.GPUs = append(h.GPUs, gpu.GPU{
			ID: SharedCard(i), Model: "NVIDIA L40S", Vendor: "NVIDIA", PCI: gpu.PCIID{Vendor: "10DE", Device: "26B9"}, VRAM: 48 * 1024 * gpu.MiB,
			Driver: gpu.Driver{Version: "580.95.05"}, Address: fmt.Sprintf("0000:%02x:00.0", 0x41+i),
		})
	}
	return WithMPS(Standalone(h))
}

// WithMPS gives hosts what it takes to share their GPUs.
func WithMPS(s gpu.Snapshot) gpu.Snapshot {
	for i := range s.Hosts {
		h := &s.Hosts[i]
		h.MPS, h.ContainerToolkit = &gpu.MPSHost{Program: "/usr/bin/nvidia-cuda-mps-control"}, "1.18.0"
		for j := range h.GPUs {
			g := &h.GPUs[j]
			g.ComputeMode, g.TimeSlice, g.ComputeCapability = gpu.ComputeDefault, gpu.TimeSliceDefault, "8.9"
		}
	}
	return s
}

// The address of the config "inference", and its layouts.
const (
	SharedGPUs  = "gpu_partition_config.inference"
	QuarterEach = "uid = 1000, active_thread_percentage = 25, pinned_memory_limit_mib = 10240"
	HalfEach    = "uid = 1000, active_thread_percentage = 50"
	FourTurns   = `interval = "long", replicas = 4`
)

// SharingOf is the config "inference" on gpu01 with one kind, and more arguments.
func SharingOf(kind, layout string, more ...string) string {
	return fmt.Sprintf(
		"resource \"gpu_partition_config\" \"inference\" {\n  name  = \"inference\"\n  hosts = [\"gpu01\"]\n  %s = { %s }\n  %s\n}\n",
		kind, layout, strings.Join(more, "\n  "))
}

// MPSOf is a config of MPS.
func MPSOf(layout string, more ...string) string { return SharingOf("mps", layout, more...) }

// TurnsOf is a config of time slices.
func TurnsOf(layout string, more ...string) string { return SharingOf("time_slicing", layout, more...) }

// OnCard selects one GPU of gpu01.
func OnCard(n int) string {
	return fmt.Sprintf("selector = { gpu_ids = { gpu01 = [%q] } }", SharedCard(n))
}

// WantModes asserts the compute mode and the time slice of GPUs of gpu01.
func (r *Rig) WantModes(compute gpu.ComputeMode, slice gpu.TimeSlice, n ...int) {
	r.T.Helper()
	for _, i := range n {
		g, ok := r.Host("gpu01").GPU(SharedCard(i))
		if !ok {
			r.T.Fatalf("gpu01 has no GPU %s", SharedCard(i))
		}
		if g.ComputeMode != compute || g.TimeSlice != slice {
			r.T.Errorf("%s has compute mode %s and time slice %s, want %s and %s", g.ID, g.ComputeMode, g.TimeSlice, compute, slice)
		}
	}
}

// Daemons writes the daemons of ours that run on a host, sorted: "user 1000, 25 %, 10.0 GiB
// on GPU-... GPU-...".
func (r *Rig) Daemons(host string) []string {
	r.T.Helper()
	out := []string{}
	h := r.Host(host)
	if h.MPS == nil {
		return out
	}
	for _, d := range h.MPS.Daemons {
		if d.Name == "" || d.PID == 0 {
			continue
		}
		text := "all users"
		if d.User != nil {
			text = fmt.Sprintf("user %d", *d.User)
		}
		if d.ActiveThreadPercentage > 0 {
			text += fmt.Sprintf(", %v %%", d.ActiveThreadPercentage)
		}
		if d.PinnedMemoryLimit > 0 {
			text += ", " + d.PinnedMemoryLimit.String()
		}
		text += " on"
		for _, at := range d.Devices {
			text += " " + at.GPU
			if at.Instance != nil {
				text += fmt.Sprintf(" %s@%d", at.Instance.Profile, at.Instance.Start)
			}
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

// WantDaemons asserts what daemons of ours run on a host.
func (r *Rig) WantDaemons(host string, want ...string) {
	r.T.Helper()
	if got := r.Daemons(host); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		r.T.Errorf("%s runs the MPS daemons %q, want %q", host, got, want)
	}
}

// EditCard changes a GPU of gpu01 as somebody else would.
func (r *Rig) EditCard(n int, change func(*gpu.GPU)) {
	r.T.Helper()
	r.EditHost("gpu01", func(h *gpu.Host) {
		if g, ok := h.GPU(SharedCard(n)); ok {
			change(g)
		}
	})
}

// BothCards are both GPUs of gpu01, as daemons writes them.
func BothCards() string { return " on " + SharedCard(0) + " " + SharedCard(1) }

// InstancesOf are daemons inside of instances of the first GPU of hgx01.
func InstancesOf(settings string, at ...string) []string {
	out := make([]string, len(at))
	for i, place := range at {
		out[i] = settings + " on " + MIGGPU(0) + " " + place
	}
	return slices.SortedFunc(slices.Values(out), cmp.Compare)
}

// Connects starts a client of an MPS daemon of ours.
func (r *Rig) Connects(host, daemon, name string) (pid int) {
	r.T.Helper()
	pid, err := r.Fleet.StartClient(r.T.Context(), host, daemon, gpu.Process{Name: name, Holder: "container 3f2a"})
	r.Must(err)
	return pid
}
