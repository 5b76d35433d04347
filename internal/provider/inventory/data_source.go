// Package inventory is the data source gpu_inventory: what the hosts have, and who
// holds what.
package inventory

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/document"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/layout"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/lifecycle"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/scope"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/tfschema"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// DataSourceType is the data source's name in configurations.
const DataSourceType = "gpu_inventory"

var _ datasource.DataSourceWithConfigure = (*DataSource)(nil)

// DataSource is gpu_inventory.
type DataSource struct{ lifecycle.DataSource }

// New makes the data source.
func New() datasource.DataSource { return &DataSource{lifecycle.DataSource{Type: DataSourceType}} }

type model struct {
	Hosts       types.Set            `tfsdk:"hosts"`
	IncludeJSON types.Bool           `tfsdk:"include_json"`
	Inventory   map[string]hostModel `tfsdk:"inventory"`
	Holders     []holderModel        `tfsdk:"holders"`
	Orphans     []orphanModel        `tfsdk:"orphaned_claims"`
	Silent      []string             `tfsdk:"unreachable_hosts"`
	JSON        *string              `tfsdk:"json"`
}

type hostModel struct {
	Platform  string              `tfsdk:"platform"`
	OS        string              `tfsdk:"os"`
	OSBuild   *int64              `tfsdk:"os_build"`
	Cluster   *string             `tfsdk:"cluster"`
	NodeState *string             `tfsdk:"node_state"`
	BootedAt  *string             `tfsdk:"booted_at"`
	GPUs      map[string]gpuModel `tfsdk:"gpus"`
	VMs       map[string]vmModel  `tfsdk:"vms"`
	Pools     map[string][]string `tfsdk:"pools"`

	MPSProgram       *string               `tfsdk:"mps_program"`
	Daemons          []daemonModel         `tfsdk:"mps_daemons"`
	Shares           map[string]shareModel `tfsdk:"shares"`
	ContainerToolkit *string               `tfsdk:"container_toolkit"`
	Stale            []string              `tfsdk:"stale"`
	Unknown          []unknownModel        `tfsdk:"unknown"`
}

// unknownModel is a part of a host that could not be read.
type unknownModel struct {
	Part string  `tfsdk:"part"`
	GPU  *string `tfsdk:"gpu_id"`
	VM   *string `tfsdk:"vm_id"`
	Why  string  `tfsdk:"why"`
}

type gpuModel struct {
	Model            string  `tfsdk:"model"`
	Vendor           string  `tfsdk:"vendor"`
	VRAMMiB          *int64  `tfsdk:"vram_mib"`
	Status           string  `tfsdk:"status"`
	InstancePath     string  `tfsdk:"instance_path"`
	DriverVersion    string  `tfsdk:"driver_version"`
	Dismounted       bool    `tfsdk:"dismounted"`
	Pool             *string `tfsdk:"pool"`
	PartitionCount   *int64  `tfsdk:"partition_count"`
	ValidCounts      []int64 `tfsdk:"valid_partition_counts"`
	PartitionVRAMMiB *int64  `tfsdk:"partition_vram_mib"`
	FreePartitions   *int64  `tfsdk:"free_partitions"`

	Problem      *string          `tfsdk:"problem"`
	Address      *string          `tfsdk:"address"`
	Minor        *int64           `tfsdk:"device_minor"`
	Path         *string          `tfsdk:"device_path"`
	Cores        *string          `tfsdk:"cpu_cores"`
	NUMANode     *int64           `tfsdk:"numa_node"`
	NVLinks      map[string]int64 `tfsdk:"nvlinks"`
	MIGEnabled   *bool            `tfsdk:"mig_enabled"`
	MIGInstances []instanceModel  `tfsdk:"mig_instances"`
	Processes    []processModel   `tfsdk:"processes"`

	ComputeMode       *string `tfsdk:"compute_mode"`
	TimeSlice         *string `tfsdk:"time_slice"`
	ComputeCapability *string `tfsdk:"compute_capability"`

	Functions     *int64      `tfsdk:"virtual_functions"`
	FunctionsOn   *bool       `tfsdk:"virtual_functions_enabled"`
	Heterogeneous *bool       `tfsdk:"vgpu_heterogeneous"`
	VGPUs         []vgpuModel `tfsdk:"vgpus"`
}

type vgpuModel struct {
	Type     string  `tfsdk:"type"`
	Function *int64  `tfsdk:"function"`
	Address  *string `tfsdk:"address"`
	UUID     *string `tfsdk:"uuid"`
	Holder   *string `tfsdk:"holder"`
}

type instanceModel struct {
	Profile      string   `tfsdk:"profile"`
	Start        int64    `tfsdk:"start"`
	MemoryMiB    *int64   `tfsdk:"memory_mib"`
	UUIDs        []string `tfsdk:"uuids"`
	Capabilities []int64  `tfsdk:"capabilities"`
}

type processModel struct {
	PID       int64   `tfsdk:"pid"`
	Name      *string `tfsdk:"name"`
	Holder    *string `tfsdk:"holder"`
	MemoryMiB int64   `tfsdk:"memory_mib"`
	Instance  *string `tfsdk:"mig_instance"`
	Share     *string `tfsdk:"share"`
}

type vmModel struct {
	Name       string `tfsdk:"name"`
	State      string `tfsdk:"state"`
	Generation int64  `tfsdk:"generation"`
	Clustered  bool   `tfsdk:"clustered"`

	Guest *string `tfsdk:"guest"`
}

type holderModel struct {
	Host        string  `tfsdk:"host"`
	VM          string  `tfsdk:"vm"`
	VMID        string  `tfsdk:"vm_id"`
	Kind        string  `tfsdk:"kind"`
	GPUID       *string `tfsdk:"gpu_id"`
	PartitionID *int64  `tfsdk:"partition_id"`
	Pool        *string `tfsdk:"pool"`
	Owner       *string `tfsdk:"owner"`
}

// orphanModel is a claim of a VM that no host has any more.
type orphanModel struct {
	Host    string  `tfsdk:"host"`
	Cluster *string `tfsdk:"cluster"`
	Kind    string  `tfsdk:"kind"`
	ID      string  `tfsdk:"id"`
	VM      *string `tfsdk:"vm"`
	Owner   *string `tfsdk:"owner"`
	Reason  string  `tfsdk:"reason"`
}

// Schema implements datasource.DataSource.
func (d *DataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "What the hosts have: GPUs with the assigned status that Windows Admin Center shows, virtual machines, pools, " +
			"MPS daemons, shares, and who holds what.",
		Attributes: map[string]schema.Attribute{
			"hosts": tfschema.OptionalSetOf(types.StringType, "Hosts to look at, as the provider names them. Default: all. `[]` is refused.",
				scope.SomeNames(tfschema.Nonempty{Fix: "Leave `hosts` out, or null, for all hosts."})...),
			"include_json": tfschema.OptionalFlag("Whether to fill in `json`. It is large and changes whenever a VM starts or stops."),
			"inventory": tfschema.ComputedMap("The hosts, by name.", tfschema.Attributes{
				"platform": tfschema.ComputedText("`hyperv` or `linux`."),
				"os":       tfschema.ComputedText("The operating system."),
				"os_build": tfschema.ComputedNumber("The operating system's build; null when not known."),
				"cluster":  tfschema.ComputedText("The failover cluster; null for a standalone host."),
				"node_state": tfschema.ComputedText("The node's state in its cluster: `up`, `down`, `paused`, `draining` or `joining`; " +
					"null for a standalone host."),
				"booted_at": tfschema.ComputedText("When the host last started, in RFC 3339; null when not known."),
				"gpus":      gpusAttribute(),
				"vms": tfschema.ComputedMap("The virtual machines that the host owns now, by id.", tfschema.Attributes{
					"name":       tfschema.ComputedText("The VM's name."),
					"state":      tfschema.ComputedText("`running`, `off`, `saved`, `paused`, `starting`, `stopping` or `other`."),
					"generation": tfschema.ComputedNumber("1 or 2. A GPU partition needs 2."),
					"clustered":  tfschema.ComputedFlag("Whether the VM is a cluster role."),
					"guest": tfschema.ComputedText("The guest's operating system, as it says itself while it runs: `Windows 11 Enterprise`. " +
						"Null when not known. Rule `supported-guest` compares it."),
				}),
				"pools":             tfschema.ComputedMapOf(types.ListType{ElemType: types.StringType}, "GPU ids by pool name."),
				"mps_program":       tfschema.ComputedText("Where `nvidia-cuda-mps-control` is; null on a host without it."),
				"mps_daemons":       daemonsAttribute(),
				"shares":            sharesAttribute(),
				"container_toolkit": tfschema.ComputedText("The version of NVIDIA's container toolkit; null on a host without it."),
				"stale": tfschema.ComputedListOf(types.StringType, "Files and services that follow from the layout and are behind it, each with why: "+
					"device nodes and CDI specifications of MIG instances. "+
					"The next change of the host or `gpu-agent reconcile` tries again."),
				"unknown": tfschema.ComputedList("What could not be read of the host. It may be there or not; changes that it concerns are "+
					"refused, and all others work.", tfschema.Attributes{
					"part": tfschema.ComputedText("What it is of the host: `gpus`, `vms`, `partitions`, `devices`, `vgpus`, `pools`, `policies`, " +
						"`cluster`, `mps_daemons`, `shares` or `host`."),
					"gpu_id": tfschema.ComputedText("The GPU that it is about; null for all of them. A GPU that does not tell its id is listed as " +
						"`unknown-` with a number."),
					"vm_id": tfschema.ComputedText("The VM that it is about; null for all of them."),
					"why":   tfschema.ComputedText("The call or the query that failed, and what it answered."),
				}),
			}),
			"holders": tfschema.ComputedList("Who holds what: one entry for each GPU partition adapter and "+
				"each whole GPU of a VM.", tfschema.Attributes{
				"host":         tfschema.ComputedText("The VM's owner host."),
				"vm":           tfschema.ComputedText("The VM's name."),
				"vm_id":        tfschema.ComputedText("The VM's id."),
				"kind":         tfschema.ComputedText("`partition`, `pool` or `device`."),
				"gpu_id":       tfschema.ComputedText("The GPU; null for a partition or pool of a VM that is off and not bound to a GPU."),
				"partition_id": tfschema.ComputedNumber("The partition's number on the GPU, while the VM runs."),
				"pool":         tfschema.ComputedText("The pool, for kind `pool`."),
				"owner":        tfschema.ComputedText("The owner in the VM's claim; null when no Terraform resource claims the VM."),
			}),
			"orphaned_claims": tfschema.ComputedList("The claims of virtual machines that no host has any more, of any owner. "+
				"The next change of their owner drops them. "+
				"Null where that cannot be told: a host does not answer or cannot read this, or `hosts` leaves one out.", tfschema.Attributes{
				"host":    tfschema.ComputedText("The host that has the claim, or the first of the nodes whose cluster keeps it."),
				"cluster": tfschema.ComputedText("The cluster that keeps the claim; null where the host itself does."),
				"kind":    tfschema.ComputedText("The claim's kind, as `gpu-agent claims` shows it: `vm_assignment`."),
				"id":      tfschema.ComputedText("The claim's id, which is the virtual machine's: `gpu-agent claims forget KIND ID` drops it."),
				"vm":      tfschema.ComputedText("The virtual machine's name when the claim was written; null when not known."),
				"owner":   tfschema.ComputedText("The owner in the claim; null for none."),
				"reason":  tfschema.ComputedText("Why nothing needs the claim any more."),
			}),
			"unreachable_hosts": tfschema.ComputedListOf(types.StringType, "Hosts that did not answer; always empty unless the provider's "+
				"`on_unreachable` is `keep`."),
			"json": tfschema.ComputedText("The hosts in the snapshot format, as a string; null unless `include_json` is set. " +
				"Written to a file it serves as `simulated_fleet` or `inventory_snapshot`."),
		},
	}
}

func gpusAttribute() schema.Attribute {
	return tfschema.ComputedMap("The GPUs, by id: the PCI location path on Hyper-V, the UUID on Linux.", tfschema.Attributes{
		"model":    tfschema.ComputedText("The model."),
		"vendor":   tfschema.ComputedText("The vendor."),
		"vram_mib": tfschema.ComputedNumber("Memory in MiB; null where the host does not tell it, as of a GPU that shares the system's."),
		"status": tfschema.ComputedText("`partitioned`, `ready_for_dda`, `paravirtualization` or `not_assignable` as in Windows Admin Center, " +
			"or `assigned` for a GPU that a VM has whole."),
		"problem":                tfschema.ComputedText("Why the GPU does not work, in the host's own words; null when it does."),
		"instance_path":          tfschema.ComputedText("The device instance path; it begins with `PCIP` while the GPU is dismounted."),
		"driver_version":         tfschema.ComputedText("The host driver's version."),
		"dismounted":             tfschema.ComputedFlag("Whether the host has given the GPU up for passthrough."),
		"pool":                   tfschema.ComputedText("The pool that the GPU is in; null for none."),
		"partition_count":        tfschema.ComputedNumber("Partitions; null for a GPU that cannot be partitioned."),
		"valid_partition_counts": tfschema.ComputedListOf(types.Int64Type, "The counts that the driver offers."),
		"partition_vram_mib":     tfschema.ComputedNumber("Memory of one partition in MiB; null where the host does not tell it."),
		"free_partitions":        tfschema.ComputedNumber("Partitions that no running VM holds."),
		"address":                tfschema.ComputedText("The PCI address on Linux; null on Hyper-V."),
		"device_minor":           tfschema.ComputedNumber("The number of the device node on Linux, `3` for `/dev/nvidia3`; null when not known."),
		"device_path":            tfschema.ComputedText("The device node on Linux, such as `/dev/nvidia3`; null when not known."),
		"cpu_cores": tfschema.ComputedText("The CPU cores beside the GPU, such as `0-15`, as Slurm and `lstopo -l` count them, package after " +
			"package; the kernel and `nvidia-smi topo -m` count hardware threads. Null when not known."),
		"numa_node": tfschema.ComputedNumber("The NUMA node that the GPU is on; null when it is on none, or not known."),
		"nvlinks": tfschema.ComputedMapOf(types.Int64Type, "How many NVLinks lead to each other GPU of the host, by its id, and to "+
			"NVSwitches as `switch`; null when there are none, or not known."),
		"mig_enabled": tfschema.ComputedFlag("Whether the GPU is in MIG mode; null for a GPU without MIG."),
		"mig_instances": tfschema.ComputedList("The MIG instances.", tfschema.Attributes{
			"profile":    tfschema.ComputedText("The instance's profile."),
			"start":      tfschema.ComputedNumber("Its first memory slice."),
			"memory_mib": tfschema.ComputedNumber("Its memory in MiB; null where the driver does not tell it."),
			"uuids":      tfschema.ComputedListOf(types.StringType, "The UUIDs of its compute instances, which are the MIG devices."),
			"capabilities": tfschema.ComputedListOf(types.Int64Type, "The numbers of its devices in `/dev/nvidia-caps`: its own, and those of "+
				"its compute instances in the order of `uuids`. They may be others when it is created again. Null when not known."),
		}),
		"virtual_functions": tfschema.ComputedNumber("How many SR-IOV virtual functions the GPU has for vGPUs, `0` when these lie on " +
			"the GPU itself; null for a GPU without vGPUs."),
		"virtual_functions_enabled": tfschema.ComputedFlag("Whether the virtual functions are on; null for a GPU without vGPUs."),
		"vgpu_heterogeneous": tfschema.ComputedFlag("Whether the GPU is in the mode in which vGPUs of different frame buffer sizes " +
			"share it; null for a GPU without vGPUs."),
		"vgpus": tfschema.ComputedList("The vGPUs.", tfschema.Attributes{
			"type":     tfschema.ComputedText("The vGPU's type."),
			"function": tfschema.ComputedNumber("The index of its virtual function; null for a vGPU on the GPU itself."),
			"address":  tfschema.ComputedText("The PCI address that a VM is given."),
			"uuid":     tfschema.ComputedText("The UUID of the mediated device; null for a vGPU that is none."),
			"holder": tfschema.ComputedText("Who holds it, such as `VM web-01`, or needs it at the next start, `VM web-01 (off)`; null for " +
				"nobody."),
		}),
		"compute_mode": tfschema.ComputedText("How many processes may use the GPU: `default`, `exclusive_process` or " +
			"`prohibited`; null when not known."),
		"time_slice": tfschema.ComputedText("The length of a process's time slice: `default`, `short`, `medium` or " +
			"`long`; null when not known."),
		"compute_capability": tfschema.ComputedText("CUDA's compute capability, such as `9.0`; null when not known."),
		"processes": tfschema.ComputedList("The processes that use the GPU, as far as its driver tells. "+
			"Always empty on Hyper-V.", tfschema.Attributes{
			"pid":  tfschema.ComputedNumber("The process id."),
			"name": tfschema.ComputedText("The process's name; null when not known."),
			"holder": tfschema.ComputedText("Who the process is, such as `unit train.service`, `container 3f2a` or `VM " +
				"web-01`; null when not known."),
			"memory_mib":   tfschema.ComputedNumber("The memory that it uses, in MiB."),
			"mig_instance": tfschema.ComputedText("The MIG instance that it runs in, such as `3g.40gb@4`; null for none."),
			"share":        tfschema.ComputedText("The `gpu_share` that it was started in; null for none."),
		}),
	})
}

// Read implements datasource.DataSource.
func (d *DataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m model
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if !report.NotYet(&resp.Diagnostics, d.Fleet, DataSourceType, fleet.View{}) {
		return
	}
	names := scope.Named(ctx, d.Fleet, m.Hosts, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	v := d.Fleet.Snapshot(ctx, names)
	if !report.NotYet(&resp.Diagnostics, d.Fleet, DataSourceType, v) || !report.Unreachable(&resp.Diagnostics, d.Fleet, DataSourceType, v) {
		return
	}
	m.Inventory, m.Holders, m.Silent = map[string]hostModel{}, []holderModel{}, append([]string{}, v.Silent()...)
	if orphans, known := d.Fleet.OrphanedClaims(ctx, v); known {
		m.Orphans = append([]orphanModel{}, words.Each(orphans, describeOrphan)...)
	}
	snapshot := gpu.Snapshot{Format: gpu.SnapshotFormat}
	for _, name := range slices.Sorted(maps.Keys(v.Hosts)) {
		h := v.Hosts[name]
		m.Inventory[name] = describe(h)
		m.Holders = append(m.Holders, holders(name, h, v)...)
		recorded := *h
		recorded.HeldBy = nil // it passes
		snapshot.Hosts = append(snapshot.Hosts, recorded)
	}
	if m.IncludeJSON.ValueBool() {
		var text bytes.Buffer
		_ = json.Indent(&text, document.Encode(snapshot), "", "  ")
		m.JSON = new(text.String())
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

func describeOrphan(o gpu.OrphanedClaim) orphanModel {
	out := orphanModel{
		Host: o.Host, Cluster: object.NilIfEmpty(o.Claim.Cluster), Kind: string(o.Claim.Kind), ID: o.Claim.ID,
		Owner:  object.NilIfEmpty(o.Claim.Owner),
		Reason: "no host has the VM any more",
	}
	if a := o.Claim.Want.Assignment; a != nil {
		out.VM = object.NilIfEmpty(a.VMName)
	}
	return out
}

func describe(h *gpu.Host) hostModel {
	out := hostModel{
		Platform: string(h.Platform), OS: h.OS.Name, GPUs: map[string]gpuModel{}, VMs: map[string]vmModel{},
		Pools: map[string][]string{},
	}
	if h.OS.Build != 0 {
		out.OSBuild = new(int64(h.OS.Build))
	}
	if h.Cluster != nil {
		out.Cluster, out.NodeState = new(h.Cluster.Name), new(string(h.NodeState()))
	}
	if h.Boot != nil {
		out.BootedAt = new(h.Boot.At.UTC().Format(time.RFC3339))
	}
	out.describeSharing(h)
	out.Unknown, out.Stale = []unknownModel{}, append([]string{}, h.Stale...)
	for _, u := range h.Unknown {
		out.Unknown = append(out.Unknown, unknownModel{
			Part: string(u.Part), GPU: object.NilIfEmpty(u.GPU), VM: object.NilIfEmpty(u.VM),
			Why: u.Why,
		})
	}
	for i := range h.GPUs {
		g := &h.GPUs[i]
		x := gpuModel{
			Model: g.Model, Vendor: g.Vendor, VRAMMiB: object.MiBIfKnown(g.VRAM),
			Status: string(g.Status), InstancePath: g.InstancePath,
			DriverVersion: g.Driver.Version, Dismounted: g.Dismounted, ValidCounts: []int64{}, Problem: object.NilIfEmpty(g.Problem),
			Address: object.NilIfEmpty(g.Address), Minor: object.Int64FromInt(g.Minor).ValueInt64Pointer(), Path: object.NilIfEmpty(g.DevicePath()),
			Cores: object.NilIfEmpty(g.Cores), NUMANode: object.Int64FromInt(g.NUMANode).ValueInt64Pointer(),
			MIGInstances: []instanceModel{}, Processes: []processModel{}, VGPUs: []vgpuModel{},
			ComputeMode: object.NilIfEmpty(g.ComputeMode), TimeSlice: object.NilIfEmpty(g.TimeSlice),
			ComputeCapability: object.NilIfEmpty(g.ComputeCapability),
		}
		for _, l := range g.NVLinks {
			if x.NVLinks == nil {
				x.NVLinks = map[string]int64{}
			}
			x.NVLinks[cmp.Or(l.GPU, "switch")] += int64(l.Count)
		}
		if g.MIG != nil {
			x.describeMIG(g.MIG)
		}
		if g.VGPU != nil {
			x.describeVGPUs(g.VGPU)
		}
		for _, p := range g.Processes {
			x.Processes = append(x.Processes, describeProcess(g, p))
		}
		if p := g.Partitionable; p != nil {
			x.PartitionCount, x.PartitionVRAMMiB, x.FreePartitions = new(int64(p.Count)), object.MiBIfKnown(p.PartitionVRAM()), new(int64(p.Free()))
			for _, c := range p.ValidCounts {
				x.ValidCounts = append(x.ValidCounts, int64(c))
			}
			slices.Sort(x.ValidCounts)
		}
		for j := range h.Pools {
			if h.Pools[j].Has(g.ID) {
				x.Pool = new(h.Pools[j].Name)
			}
		}
		out.GPUs[g.ID] = x
	}
	for i := range h.VMs {
		vm := &h.VMs[i]
		out.VMs[vm.ID] = vmModel{
			Name: vm.Name, State: string(vm.State), Generation: int64(vm.Generation), Clustered: vm.Clustered,
			Guest: object.NilIfEmpty(vm.Guest),
		}
	}
	for _, p := range h.Pools {
		out.Pools[p.Name] = append([]string{}, p.GPUs...)
	}
	return out
}

func holders(host string, h *gpu.Host, v fleet.View) []holderModel {
	var out []holderModel
	for i := range h.VMs {
		vm := &h.VMs[i]
		base := holderModel{Host: host, VM: vm.Name, VMID: vm.ID}
		if c, ok := fleet.RecordOf(v, fleet.FoundVM{Host: host, VM: vm}); ok {
			base.Owner = new(c.Owner)
		}
		held := heldPartitions(h, vm.ID)
		for j, ad := range vm.PartitionAdapters {
			x := base
			x.Kind, x.GPUID = "partition", object.NilIfEmpty(ad.PinnedGPU)
			if j < len(held) {
				x.GPUID, x.PartitionID = held[j].GPUID, held[j].PartitionID
			}
			out = append(out, x)
		}
		for _, dev := range vm.Devices {
			x := base
			x.Kind, x.Pool, x.GPUID = "device", object.NilIfEmpty(dev.Pool), object.NilIfEmpty(dev.GPU)
			if dev.Pool != "" {
				x.Kind = "pool"
			}
			out = append(out, x)
		}
	}
	return out
}

func heldPartitions(h *gpu.Host, vmID string) []holderModel {
	var out []holderModel
	for i := range h.GPUs {
		g := &h.GPUs[i]
		if g.Partitionable == nil {
			continue
		}
		for _, p := range g.Partitionable.Partitions {
			if gpu.SameID(p.VMID, vmID) {
				out = append(out, holderModel{GPUID: new(g.ID), PartitionID: new(int64(p.ID))})
			}
		}
	}
	return out
}

func (x *gpuModel) describeMIG(m *gpu.MIG) {
	x.MIGEnabled = new(m.Enabled)
	for i := range m.Instances {
		in := &m.Instances[i]
		out := instanceModel{
			Profile: in.Profile, Start: int64(in.Start), MemoryMiB: object.MiBIfKnown(in.Memory), UUIDs: []string{},
		}
		for _, c := range in.Compute {
			out.UUIDs = append(out.UUIDs, c.UUID)
		}
		for _, minor := range in.Capabilities() {
			out.Capabilities = append(out.Capabilities, int64(minor))
		}
		x.MIGInstances = append(x.MIGInstances, out)
	}
	slices.SortFunc(x.MIGInstances, func(a, b instanceModel) int { return cmp.Compare(a.Start, b.Start) })
}

func (x *gpuModel) describeVGPUs(v *gpu.VGPU) {
	x.Functions, x.FunctionsOn, x.Heterogeneous = new(int64(v.Functions)), new(v.FunctionsOn), new(v.Heterogeneous)
	now := slices.SortedFunc(slices.Values(v.Instances), func(a, b gpu.VGPUInstance) int {
		return cmp.Or(cmp.Compare(a.Function, b.Function), cmp.Compare(a.UUID, b.UUID))
	})
	for i := range now {
		in := &now[i]
		x.VGPUs = append(x.VGPUs, vgpuModel{
			Type: in.Type, Function: layout.Function(in.VGPUPlace), Address: object.NilIfEmpty(in.Address), UUID: object.NilIfEmpty(in.UUID),
			Holder: object.NilIfEmpty(in.HeldBy()),
		})
	}
}

func describeProcess(g *gpu.GPU, p gpu.Process) processModel {
	out := processModel{
		PID: int64(p.PID), Name: object.NilIfEmpty(p.Name), Holder: object.NilIfEmpty(p.Holder), MemoryMiB: p.Memory.MiB(),
		Share: object.NilIfEmpty(p.Share),
	}
	if g.MIG == nil || p.GPUInstance == nil {
		return out
	}
	for i := range g.MIG.Instances {
		if in := &g.MIG.Instances[i]; in.ID == *p.GPUInstance {
			out.Instance = new(fmt.Sprintf("%s@%d", in.Profile, in.Start))
		}
	}
	return out
}
