package simulated

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// Spec says what a new fleet is: hosts with GPUs of models of the catalog, and with VMs. In each list "8x NAME" is eight: of
// one model, or of hosts and VMs that are numbered.
type Spec struct {
	Platform gpu.Platform
	Hosts    []string
	// Cluster is the failover cluster that the hosts are nodes of, "" for none.
	Cluster string
	// Models are the GPUs of each host, by names such as "A2", but for those that HostModels names.
	Models     []string
	HostModels map[string][]string
	// VMs are dealt out to the hosts in turn, and HostVMs are each host's own. One whose name ends in ":off" does not run.
	VMs     []string
	HostVMs map[string][]string
}

// manyOf is how often something is wanted: "8x A2".
var manyOf = regexp.MustCompile(`^(\d+) ?x ?(.+)$`)

// mostTimes is more than a fleet for a trial has of anything.
const mostTimes = 10_000

// repeated writes out a list in which "8x A2" is eight.
func repeated(list []string, one func(name string, n, of int) string) ([]string, error) {
	var out []string
	for _, item := range list {
		m := manyOf.FindStringSubmatch(item)
		if m == nil {
			out = append(out, item)
			continue
		}
		n, err := strconv.Atoi(m[1])
		if err != nil || n < 1 || n > mostTimes {
			return nil, fmt.Errorf("%q is none of 1 to %d", item, mostTimes)
		}
		for i := range n {
			out = append(out, one(m[2], i+1, n))
		}
	}
	return out, nil
}

// alike is one of several that need no names of their own.
func alike(name string, _, _ int) string { return name }

// numbered gives one of several a number after its name, of two digits at least: avd-01, avd-02:off.
func numbered(name string, n, of int) string {
	name, off := strings.CutSuffix(name, ":off")
	name += fmt.Sprintf("%0*d", max(2, len(strconv.Itoa(of))), n)
	if off {
		name += ":off"
	}
	return name
}

// writtenOut is the spec without "8x".
func (s Spec) writtenOut() (Spec, error) {
	var errs []error
	write := func(list []string, one func(string, int, int) string) []string {
		out, err := repeated(list, one)
		errs = append(errs, err)
		return out
	}
	out := Spec{Platform: s.Platform, Cluster: s.Cluster}
	out.Hosts, out.Models, out.VMs = write(s.Hosts, numbered), write(s.Models, alike), write(s.VMs, numbered)
	own := func(lists map[string][]string, one func(string, int, int) string) map[string][]string {
		all := map[string][]string{}
		for host, list := range lists {
			if !slices.Contains(out.Hosts, host) {
				errs = append(errs, fmt.Errorf("the fleet has no host %q. %s", host, words.Instead(host, out.Hosts, "")))
			}
			all[host] = write(list, one)
		}
		return all
	}
	out.HostModels, out.HostVMs = own(s.HostModels, alike), own(s.HostVMs, numbered)
	return out, errors.Join(errs...)
}

// capability is the compute capability of an architecture's data centre GPUs.
var capability = map[string]string{"Turing": "7.5", "Ampere": "8.6", "Ada Lovelace": "8.9", "Hopper": "9.0", "Blackwell": "10.0"}

// capabilityOf is that of a model, by NVIDIA's list of compute capabilities (developer.nvidia.com/cuda/gpus).
func capabilityOf(m catalog.Model) string {
	for _, x := range []struct{ part, capability string }{
		{"A100", "8.0"},
		{"A800", "8.0"},
		{"PG506", "8.0"},
		{"A30", "8.0"},
		{"B300", "10.3"},
		{"RTX PRO", "12.0"},
		{"RTX 6000D", "12.0"},
		{"GB10", "12.1"},
		{"Thor", "11.0"},
	} {
		if strings.Contains(m.Name, x.part) {
			return x.capability
		}
	}
	return capability[m.Family]
}

// Snapshot makes the fleet. What no page of a vendor tells (encode, decode and compute units,
// driver versions, addresses) is plausible, and measured nowhere.
func (s Spec) Snapshot() (gpu.Snapshot, error) {
	out := gpu.Snapshot{Format: gpu.SnapshotFormat}
	s, err := s.writtenOut()
	switch {
	case err != nil:
		return out, err
	case len(s.Hosts) == 0 || len(s.Models)+len(s.HostModels) == 0:
		return out, fmt.Errorf("a fleet needs at least one host with one GPU")
	case s.Platform == gpu.Linux && len(s.VMs)+len(s.HostVMs) > 0:
		return out, fmt.Errorf("VMs are for Hyper-V hosts; on a Linux host they belong to its own tools")
	case s.Platform == gpu.Linux && s.Cluster != "":
		return out, fmt.Errorf("a failover cluster is of Hyper-V hosts")
	}
	for at, name := range s.Hosts {
		h := gpu.Host{Name: name, Platform: s.Platform, GPUs: []gpu.GPU{}, VMs: []gpu.VM{}, Pools: []gpu.Pool{}}
		h.OS = gpu.OS{Name: "Windows Server 2025 Datacenter", Build: 26100}
		if s.Platform == gpu.Linux {
			h.OS = gpu.OS{Name: "Ubuntu 24.04.3 LTS", Version: "24.04"}
			h.MPS, h.ContainerToolkit = &gpu.MPSHost{Program: "/usr/bin/nvidia-cuda-mps-control"}, "1.18.0"
		}
		models, own := s.HostModels[name]
		if !own {
			models = s.Models
		}
		for n, model := range models {
			m, ok := catalog.ByName(model)
			if !ok {
				return out, fmt.Errorf("the catalog has no GPU model %q. %s", model,
					words.Instead(model, modelNames(s.Platform), "in the guide on GPU models"))
			}
			g, err := newGPU(m, s.Platform, at, n)
			if err != nil {
				return out, err
			}
			h.GPUs = append(h.GPUs, g)
		}
		if s.Cluster != "" {
			h.Cluster = &gpu.Cluster{Name: s.Cluster}
			for _, node := range s.Hosts {
				h.Cluster.Nodes = append(h.Cluster.Nodes, gpu.Node{Name: node, State: gpu.NodeUp})
			}
		}
		out.Hosts = append(out.Hosts, h)
	}
	made := 0
	give := func(h *gpu.Host, name string) {
		h.VMs = append(h.VMs, newVM(name, made, s.Cluster != ""))
		made++
	}
	for n, name := range s.VMs {
		give(&out.Hosts[n%len(out.Hosts)], name)
	}
	for i := range out.Hosts {
		for _, name := range s.HostVMs[out.Hosts[i].Name] {
			give(&out.Hosts[i], name)
		}
	}
	return out, out.Validate()
}

// coresOfPackage are the cores of each of the two packages that Linux hosts of new fleets have.
const coresOfPackage = 32

func newGPU(m catalog.Model, platform gpu.Platform, host, n int) (gpu.GPU, error) {
	g := gpu.GPU{Model: m.Name, Vendor: m.Vendor, VRAM: m.VRAM, PCI: gpu.PCIID{Vendor: "10DE"}}
	if m.Unified {
		g.VRAM = 0 // its driver tells none
	}
	if len(m.Devices) > 0 {
		g.PCI.Device = m.Devices[0]
	}
	if len(m.Subsystems) > 0 {
		g.PCI.Subsystem = m.Subsystems[0]
	}
	if m.Vendor == "AMD" {
		g.PCI.Vendor = "1002"
	}
	if platform == gpu.Linux {
		if m.Vendor != "NVIDIA" {
			return g, fmt.Errorf("on Linux hosts only NVIDIA GPUs are shared, and %s is of %s", m.Name, m.Vendor)
		}
		g.ID = fmt.Sprintf("GPU-00000000-0000-4000-8000-%06d%06d", host+1, n+1)
		g.Address, g.Driver.Version = fmt.Sprintf("0000:%02x:00.0", 0x1b+n), "580.95.05"
		g.Minor, g.NUMANode = new(n), new(n%2)
		g.Cores = fmt.Sprintf("%d-%d", n%2*coresOfPackage, (n%2+1)*coresOfPackage-1)
		g.ComputeMode, g.TimeSlice, g.ComputeCapability = gpu.ComputeDefault, gpu.TimeSliceDefault, capabilityOf(m)
		if m.MIG != nil {
			g.MIG = &gpu.MIG{NeedsReset: m.MIG.ModeNeedsReset, Profiles: m.MIG.Profiles}
		}
		return g, nil
	}
	if !m.HyperV() {
		return g, fmt.Errorf("no page that we know says that Hyper-V shares a %s; %s are documented, all in the guide on GPU models",
			m.Name, words.Some(m.Name, modelNames(platform)))
	}
	g.ID, g.Driver.Version = fmt.Sprintf("PCIROOT(%X)#PCI(0000)#PCI(0000)", 0x16+n), "573.39"
	g.InstancePath = fmt.Sprintf(`PCI\VEN_%s&DEV_%s&SUBSYS_%s&REV_A1\4&%d&0&0000`, g.PCI.Vendor, g.PCI.Device, g.PCI.Subsystem, n+1)
	g.Status, g.MMIO = gpu.ReadyForDDA, gpu.MMIO{Low: 16 * gpu.MiB, High: m.VRAM + 32*gpu.MiB}
	if most := len(m.PartitionCounts); m.GPUP && most > 0 {
		count := m.PartitionCounts[most-1]
		capacity := func(total uint64) gpu.Capacity {
			part := total / uint64(count)
			return gpu.Capacity{Total: total, Available: total, Min: part, Max: part, Optimal: part}
		}
		g.Status = gpu.Partitioned
		g.Partitionable = &gpu.Partitionable{
			Name:        fmt.Sprintf(`\\?\PCI#VEN_%s&DEV_%s#4&%d&0&0000#{064092b3-625e-43bf-9eb5-dc845897dd59}`, g.PCI.Vendor, g.PCI.Device, n+1),
			ValidCounts: slices.Clone(m.PartitionCounts), Count: count,
			VRAM: capacity(uint64(m.PartitionedVRAM())), Encode: capacity(1600), Decode: capacity(1600), Compute: capacity(16000),
		}
	}
	return g, nil
}

// newVM is a VM as Windows makes it: production checkpoints, and saved when its host stops and when its cluster takes it offline
// (learn.microsoft.com, New-VM, Set-VM and "Virtual Machines: OfflineAction"). A plan says what of that does not go with a GPU.
func newVM(name string, n int, clustered bool) gpu.VM {
	low, high, cache, stop, offline := 128*gpu.MiB, 512*gpu.MiB, false, gpu.StopSave, gpu.OfflineSave
	vm := gpu.VM{
		ID: fmt.Sprintf("0F1E2D3C-0000-4000-8000-%012X", n+1), Name: strings.TrimSuffix(name, ":off"), State: gpu.VMRunning, Generation: 2,
		Checkpoints: gpu.CheckpointsProduction, Clustered: clustered,
		Settings: gpu.VMSettings{
			LowMemoryMappedIOSpace: &low, HighMemoryMappedIOSpace: &high, GuestControlledCache: &cache, AutomaticStopAction: &stop,
		},
	}
	if vm.Name != name {
		vm.State = gpu.VMOff
	}
	if clustered {
		vm.Settings.OfflineAction = &offline
	}
	return vm
}

// modelNames are the models that a platform shares.
func modelNames(p gpu.Platform) []string {
	var out []string
	for _, m := range catalog.All() {
		if p == gpu.Linux && m.Vendor == "NVIDIA" || p == gpu.HyperV && m.HyperV() {
			out = append(out, m.Name)
		}
	}
	return out
}
