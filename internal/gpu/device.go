package gpu

import "strconv"

// Bytes is an amount of memory.
type Bytes uint64

// MiB is one mebibyte.
const MiB Bytes = 1 << 20

// MiB rounds down to whole mebibytes.
func (b Bytes) MiB() int64 { return int64(b / MiB) }

// String prints whole MiB below 1 GiB and tenths of a GiB from there on.
func (b Bytes) String() string {
	if b < 1024*MiB {
		return strconv.FormatInt(b.MiB(), 10) + " MiB"
	}
	return strconv.FormatFloat(float64(b)/float64(1024*MiB), 'f', 1, 64) + " GiB"
}

// Known is the amount, nil for 0: a platform that does not tell an amount of memory leaves it out.
func (b Bytes) Known() *Bytes {
	if b == 0 {
		return nil
	}
	return &b
}

// FromMiB converts mebibytes to bytes.
func FromMiB(n int64) Bytes { return Bytes(n) * MiB }

// GPU is one physical GPU of a host.
type GPU struct {
	// ID survives a reboot and a dismount: the PCI location path on Hyper-V
	// ("PCIROOT(16)#PCI(0000)#PCI(0000)"), the GPU UUID on NVIDIA Linux hosts.
	// Unique only together with its host.
	ID string `json:"id"`
	// InstancePath is the device instance path on Windows. It begins with PCI\
	// and becomes PCIP\ while the device is dismounted from the host.
	InstancePath string `json:"instance_path,omitempty"`
	Model        string `json:"model"`  // catalog name where known ("NVIDIA A2"), else as the host reports it
	Vendor       string `json:"vendor"` // "NVIDIA", "AMD", "Intel"
	PCI          PCIID  `json:"pci"`
	// VRAM is the GPU's own memory; 0 where it is not known, as on a GPU that shares the system's.
	VRAM   Bytes  `json:"vram,omitempty"`
	Driver Driver `json:"driver"`
	Status Status `json:"status"`
	// MMIO is the memory-mapped IO space that a VM needs to hold the whole device.
	MMIO MMIO `json:"mmio"`
	// Address is the PCI address on Linux, "0000:1a:00.0".
	Address string `json:"address,omitempty"`
	// Minor is the number of the GPU's device node on Linux, 3 for /dev/nvidia3; nil where it is not known.
	Minor *int `json:"minor,omitempty"`
	// Cores are the CPU cores beside the GPU, "0-15,32-47". They are counted as Slurm counts them, package after
	// package, and not as the kernel counts hardware threads. "" where they are not known.
	Cores string `json:"cores,omitempty"`
	// NUMANode is the NUMA node that the GPU is on; nil where it is on none, or where it is not known.
	NUMANode *int `json:"numa_node,omitempty"`
	// NVLinks are the NVLinks that are up, by what is at their other end; nil where there are none, or where they are not known.
	NVLinks []NVLink `json:"nvlinks,omitempty"`
	// MIG is nil when the GPU has no Multi-Instance GPU.
	MIG *MIG `json:"mig,omitempty"`
	// VGPU is nil when the host has no vGPU driver for the GPU.
	VGPU *VGPU `json:"vgpu,omitempty"`
	// Processes use the GPU or its MIG instances now.
	Processes []Process `json:"processes,omitempty"`
	// ComputeMode says how many processes may use the GPU; "" where it is not known.
	ComputeMode ComputeMode `json:"compute_mode,omitempty"`
	// TimeSlice is the length of a process's time slice; "" where it is not known.
	TimeSlice TimeSlice `json:"time_slice,omitempty"`
	// ComputeCapability is CUDA's, "9.0"; "" where it is not known.
	ComputeCapability string `json:"compute_capability,omitempty"`
	// ECC and Persistence are modes of the driver; nil where they are not known.
	ECC         *bool `json:"ecc,omitempty"`
	Persistence *bool `json:"persistence,omitempty"`
	// Partitionable is nil when the GPU's driver offers no GPU-P.
	Partitionable *Partitionable `json:"partitionable,omitempty"`
	// Dismounted is true while the device is given up by the host for passthrough.
	Dismounted bool `json:"dismounted,omitempty"`
	// HostDisplay is true for the GPU that drives the host's own console.
	HostDisplay bool `json:"host_display,omitempty"`
	// Problem is the host's own word for a GPU that does not work ("" when it does).
	Problem string `json:"problem,omitempty"`
}

// DevicePath is the GPU's device node on Linux, "" where it is not known.
func (g *GPU) DevicePath() string {
	if g.Minor == nil {
		return ""
	}
	return "/dev/nvidia" + strconv.Itoa(*g.Minor)
}

// NVLink are the NVLinks that lead from a GPU to the same place.
type NVLink struct {
	// GPU is the id of the GPU at the other end; "" for NVSwitches, by which all GPUs of a host reach each other.
	GPU   string `json:"gpu,omitempty"`
	Count int    `json:"count"`
}

// ComputeMode is the driver's compute mode of a GPU.
type ComputeMode string

// Compute modes.
const (
	ComputeDefault          ComputeMode = "default"
	ComputeExclusiveProcess ComputeMode = "exclusive_process"
	ComputeProhibited       ComputeMode = "prohibited"
)

// PCIID is the hexadecimal identity of a PCI function, four digits each, as in
// PCI\VEN_10DE&DEV_25B6&SUBSYS_157E10DE.
type PCIID struct {
	Vendor    string `json:"vendor"`    // "10DE"
	Device    string `json:"device"`    // "25B6"
	Subsystem string `json:"subsystem"` // "157E10DE"; "" when not known
}

// Driver is the host's GPU driver.
type Driver struct {
	Version string `json:"version,omitempty"` // "573.39"
}

// Branch is the driver's branch: the part of the version before the first dot.
func (d Driver) Branch() string {
	for i := range len(d.Version) {
		if d.Version[i] == '.' {
			return d.Version[:i]
		}
	}
	return d.Version
}

// MMIO is an amount of memory-mapped IO space below and above 4 GiB.
type MMIO struct {
	Low  Bytes `json:"low,omitempty"`
	High Bytes `json:"high,omitempty"`
}

// Status is a GPU's assigned status in Windows Admin Center's words.
type Status string

// Statuses. Windows Admin Center has the first four; assigned is a GPU that a VM
// holds whole.
const (
	ReadyForDDA        Status = "ready_for_dda"
	Partitioned        Status = "partitioned"
	Paravirtualization Status = "paravirtualization"
	NotAssignable      Status = "not_assignable"
	Assigned           Status = "assigned"
)

// Partitionable is the GPU-P face of a GPU (Msvm_PartitionableGpu).
type Partitionable struct {
	// Name is the device interface path, Msvm_PartitionableGpu.Name.
	Name string `json:"name"`
	// ValidCounts are the only partition counts that the driver accepts.
	ValidCounts []int `json:"valid_partition_counts"`
	Count       int   `json:"partition_count"`
	// The four capacities are reported for the current count only. VRAM is bytes;
	// the others are the driver's own units, of which 2^64-1 means "no limit".
	VRAM    Capacity `json:"vram"`
	Encode  Capacity `json:"encode"`
	Decode  Capacity `json:"decode"`
	Compute Capacity `json:"compute"`
	// Paravirtual is GPU-PV (a name that ends in \GPUPARAV): not a real partition.
	Paravirtual bool `json:"paravirtual,omitempty"`
	// SupportsIncomingLiveMigration exists from build 26100 on; nil before.
	SupportsIncomingLiveMigration *bool `json:"supports_incoming_live_migration,omitempty"`
	// Partitions are those that running VMs hold (Msvm_GpuPartition). A free
	// partition has no object.
	Partitions []Partition `json:"partitions,omitempty"`
}

// Free is the number of partitions that no running VM holds.
func (p *Partitionable) Free() int { return p.Count - len(p.Partitions) }

// PartitionVRAM is the memory of one partition at the current count: what the
// host reports as the minimum, which for SR-IOV partitions is also the maximum; 0 where it is not known.
func (p *Partitionable) PartitionVRAM() Bytes { return Bytes(p.VRAM.Min) }

// EstimatedPartitionVRAM is what one partition is expected to have at another
// count. Hyper-V reports the current count only, so this is an estimate: the
// memory that all partitions have now, shared evenly; 0 where it is not known.
func (p *Partitionable) EstimatedPartitionVRAM(count int) Bytes {
	if count <= 0 {
		return 0
	}
	return Bytes(p.VRAM.Min * uint64(p.Count) / uint64(count))
}

// Capacity is one resource of a partitionable GPU.
type Capacity struct {
	Total     uint64 `json:"total"`
	Available uint64 `json:"available"`
	Min       uint64 `json:"min_partition"`
	Max       uint64 `json:"max_partition"`
	Optimal   uint64 `json:"optimal_partition"`
}

// Largest is the most that one partition has, and whether the host tells it.
func (c Capacity) Largest() (most uint64, known bool) {
	most = max(c.Min, c.Max)
	return most, most > 0 || c.Total > 0
}

// Partition is one partition in use.
type Partition struct {
	ID     int    `json:"id"` // PartitionId, unique within its GPU
	VMID   string `json:"vm_id"`
	VFLUID string `json:"vf_luid,omitempty"` // "10-973909323"
	VRAM   Bytes  `json:"vram,omitempty"`
	// SupportsOutgoingLiveMigration exists from build 26100 on; nil before.
	SupportsOutgoingLiveMigration *bool `json:"supports_outgoing_live_migration,omitempty"`
}

// Pool is a PciExpress resource pool: dismounted GPUs under one name.
type Pool struct {
	Name string   `json:"name"`
	GPUs []string `json:"gpus"` // ids on this host
}

// Has tells whether the pool holds a GPU.
func (p *Pool) Has(id string) bool {
	for _, g := range p.GPUs {
		if SameID(g, id) {
			return true
		}
	}
	return false
}
