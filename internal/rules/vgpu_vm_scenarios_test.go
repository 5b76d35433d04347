package rules_test

import (
	"fmt"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// reserve is an assignment that reserves a vGPU of config "vdi" on kvm01.
func reserve(vmName string, of gpu.PartitionWant) gpu.Want {
	of.Attach = gpu.AttachNone
	return gpu.Want{Assignment: &gpu.Assignment{Kind: gpu.AssignPartition, VM: vmName, VMID: vmName, Host: "kvm01", Partition: &of}}
}

// desks is kvm01 with a GPU that config "vdi" has made vGPUs on, at addresses.
func desks(types ...string) rules.World {
	g := l40s(migGPU0, types...)
	for i := range g.VGPU.Instances {
		g.VGPU.Instances[i].Address = fmt.Sprintf("0000:41:00.%d", 4+i)
	}
	w := kvm(g)
	h := w.Hosts["kvm01"]
	h.Claims = append(h.Claims, gpu.Claim{
		Kind: gpu.ClaimConfig, ID: "vdi", Token: "claim-vdi", Owner: "vdi", GPUs: []string{migGPU0},
		Want: vgpuConfig("vdi", vgpuTypes(q12, len(types)), "kvm01"),
	})
	return w
}

// reserved has a vGPU of kvm01 on record for a VM of another state.
func reserved(w rules.World, vmName string, function int) rules.World {
	h := w.Hosts["kvm01"]
	place := h.GPUs[0].VGPU.Instances[function].VGPUPlace
	h.Claims = append(h.Claims, gpu.Claim{
		Kind: gpu.ClaimAssignment, ID: vmName, Token: "claim-" + vmName, Owner: "other", Want: reserve(vmName, gpu.PartitionWant{Config: "vdi"}),
		Device: &gpu.DeviceAssignment{GPU: migGPU0, VGPU: &place},
	})
	return w
}

// named has the definition of a VM name a vGPU of kvm01.
func named(w rules.World, vmName string, function int) rules.World {
	h := w.Hosts["kvm01"]
	h.HostDevices = append(h.HostDevices, gpu.HostDevice{
		VM: vmName, VMID: "ID-" + vmName, State: gpu.VMOff, Address: h.GPUs[0].VGPU.Instances[function].Address,
	})
	return w
}

// attach is an assignment that gives VM "web-01" of kvm01 a vGPU of config "vdi".
func attach() gpu.Want {
	w := reserve("web-01", gpu.PartitionWant{Config: "vdi"})
	w.Assignment.VMID, w.Assignment.Partition.Attach = "ID-web-01", ""
	w.Assignment.Power.AllowShutdown = true
	return w
}

// withVM is kvm01 with libvirt and VM "web-01" in a state.
func withVM(w rules.World, state gpu.VMState) rules.World {
	h := w.Hosts["kvm01"]
	h.VMManager = &gpu.VMManager{Name: gpu.Libvirt, Version: "11.3.0"}
	h.VMs = []gpu.VM{{ID: "ID-web-01", Name: "web-01", State: state}}
	h.AttachVGPUs()
	h.NameVGPUs()
	return w
}

// attached has "web-01" have a vGPU of kvm01 from its assignment.
func attached(w rules.World, function int) rules.World {
	h := w.Hosts["kvm01"]
	place := h.GPUs[0].VGPU.Instances[function].VGPUPlace
	h.Claims = append(h.Claims, gpu.Claim{
		Kind: gpu.ClaimAssignment, ID: "ID-web-01", Token: "t", Owner: "vdi", Want: attach(),
		Device: &gpu.DeviceAssignment{ID: "ua-gpu-t", GPU: migGPU0, VGPU: &place},
	})
	h.HostDevices = append(h.HostDevices, gpu.HostDevice{
		VM: "web-01", VMID: "ID-web-01", Address: h.GPUs[0].VGPU.Instances[function].Address, Alias: "ua-gpu-t",
	})
	return withVM(w, gpu.VMOff)
}

func libvirtScenarios() []scenario {
	given := func(w rules.World) (rules.World, change.Change) { return w, create("t", attach()) }
	return []scenario{
		{
			rule: "vm-manager", name: "none", level: rules.Error, path: "vm", change: true,
			says: []string{"nothing that is known to manage VMs", `partition.attach = "none"`},
			build: func() (rules.World, change.Change) {
				w := withVM(desks(q12), gpu.VMOff)
				w.Hosts["kvm01"].VMManager = nil
				return given(w)
			},
			satisfy: func(w *rules.World, _ *change.Change) { withVM(*w, gpu.VMOff) },
		},
		{
			rule: "vm-manager", name: "KubeVirt", level: rules.Error, path: "vm", change: true, says: []string{"kubevirt manages its VMs"},
			build: func() (rules.World, change.Change) {
				w := withVM(desks(q12), gpu.VMOff)
				w.Hosts["kvm01"].VMManager = &gpu.VMManager{Name: "kubevirt"}
				return given(w)
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want = reserve("web-01", gpu.PartitionWant{Config: "vdi"}) },
		},
		{
			rule: "libvirt-version", name: "of Debian 12", level: rules.Error, path: "vm", change: true,
			says: []string{"libvirt 9.0.0", "9.7.0 or later"},
			build: func() (rules.World, change.Change) {
				w := withVM(desks(q12), gpu.VMOff)
				w.Hosts["kvm01"].VMManager.Version = "9.0.0"
				return given(w)
			},
			satisfy: func(w *rules.World, _ *change.Change) {
				w.Hosts["kvm01"].GPUs[0].VGPU.Instances[0].UUID = "a-mediated-device"
			},
		},
		{
			rule: "vm-saved", name: "a managed save", level: rules.Error, path: "vm", change: true, says: []string{"would be restored"},
			build:   func() (rules.World, change.Change) { return given(withVM(desks(q12), gpu.VMSaved)) },
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["kvm01"].VMs[0].State = gpu.VMOff },
		},
		{
			rule: "vm-transient", name: "no definition", level: rules.Error, path: "vm", change: true,
			says: []string{"it is transient", "virsh define"},
			build: func() (rules.World, change.Change) {
				w := withVM(desks(q12), gpu.VMRunning)
				w.Hosts["kvm01"].VMs[0].Transient = true
				return given(w)
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["kvm01"].VMs[0].Transient = false },
		},
		{
			rule: "hostdev-managed", name: "its own", level: rules.Error, path: "vm", change: true, says: []string{"managed='yes'", "managed='no'"},
			build: func() (rules.World, change.Change) {
				w := named(desks(q12), "web-01", 0)
				w.Hosts["kvm01"].HostDevices[0].Managed = true
				return given(withVM(w, gpu.VMOff))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["kvm01"].HostDevices[0].Managed = false },
		},
		{
			rule: "hostdev-managed", name: "of others", level: rules.Warning, path: "selector",
			says: []string{`"web-02"`, "0000:41:00.4", "managed='no'"},
			build: func() (rules.World, change.Change) {
				w := named(desks(q12), "web-02", 0)
				w.Hosts["kvm01"].HostDevices[0].Managed = true
				p := vgpuConfig("vdi", vgpuTypes(q12, 1), "kvm01")
				p.Config.GPUs["kvm01"] = []string{migGPU0}
				return w, change.Change{Token: "claim-vdi", Want: p}
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["kvm01"].HostDevices = nil },
		},
		{
			rule: "vgpu-referenced", name: "by another VM", level: rules.Warning, path: "vm", says: []string{`"web-02"`, "one runs at a time"},
			build: func() (rules.World, change.Change) {
				return attached(named(desks(q12, q12), "web-02", 0), 0), create("t", attach())
			},
			satisfy: func(w *rules.World, _ *change.Change) {
				w.Hosts["kvm01"].HostDevices = w.Hosts["kvm01"].HostDevices[1:]
			},
		},
		{
			rule: "single-partition-per-vm", name: "a vGPU of others", level: rules.Error, path: "vm",
			says: []string{"names 1 vGPU that this resource did not give it: 0000:41:00.4", "terraform import"},
			build: func() (rules.World, change.Change) {
				return given(withVM(named(desks(q12, q12), "web-01", 0), gpu.VMOff))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["kvm01"].VMs[0].Devices = nil },
		},
		{
			rule: "vm-must-be-off", name: "on Linux", level: rules.Error, path: "power", change: true,
			says: []string{"does not allow to shut it down"},
			build: func() (rules.World, change.Change) {
				w, p := given(withVM(desks(q12), gpu.VMRunning))
				p.Want.Assignment.Power.AllowShutdown = false
				return w, p
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["kvm01"].VMs[0].State = gpu.VMOff },
		},
	}
}

func vgpuVMScenarios() []scenario {
	ofVDI := gpu.PartitionWant{Config: "vdi"}
	return []scenario{
		{
			rule: "capacity", name: "all vGPUs are taken", level: rules.Error, path: "partition",
			says: []string{"2 vGPUs of partition config vdi there are taken", "the assignment of VM web-02", "VM web-03"},
			build: func() (rules.World, change.Change) {
				return named(reserved(desks(q12, q12), "web-02", 0), "web-03", 1), create("t", reserve("web-01", ofVDI))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["kvm01"].HostDevices = nil },
		},
		{
			rule: "capacity", name: "others of the run take all vGPUs", level: rules.Error, path: "partition",
			says: []string{"1 vGPU of partition config vdi there is taken, by the assignment of VM web-02"},
			build: func() (rules.World, change.Change) {
				w := desks(q12)
				w.Others.Put("other", create("other", reserve("web-02", ofVDI)))
				return w, create("t", reserve("web-01", ofVDI))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Others.Delete("other") },
		},
		{
			rule: "capacity", name: "no vGPU of that type", level: rules.Error, path: "partition",
			says: []string{"no vGPU of type " + q24 + " of partition config vdi; it has " + q12},
			build: func() (rules.World, change.Change) {
				return desks(q12), create("t", reserve("web-01", gpu.PartitionWant{Config: "vdi", Type: q24}))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Assignment.Partition.Type = "NVIDIA " + q12 },
		},
		{
			rule: "capacity", name: "several types", level: rules.Error, path: "partition.type",
			says: []string{"vGPUs of several types: " + q12 + " and " + q24, "partition.type"},
			build: func() (rules.World, change.Change) {
				return desks(q12, q24), create("t", reserve("web-01", ofVDI))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Assignment.Partition.Type = q24 },
		},
		{
			rule: "capacity", name: "no vGPU of that size", level: rules.Error, path: "partition",
			says: []string{"no vGPU of partition config vdi of 24576 MiB"},
			build: func() (rules.World, change.Change) {
				return desks(q12), create("t", reserve("web-01", gpu.PartitionWant{Config: "vdi", VRAM: ptr(24 * 1024 * gpu.MiB)}))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Assignment.Partition.VRAM = ptr(12 * 1024 * gpu.MiB) },
		},
		{
			rule: "readable", name: "who names vGPUs", level: rules.Error, path: "vm", change: true,
			says: []string{"Which VMs name vGPUs", "libvirt is away"},
			build: func() (rules.World, change.Change) {
				w := desks(q12)
				w.Hosts["kvm01"].Unknown = []gpu.Unknown{{Part: gpu.PartVGPUs, Why: "libvirt is away"}}
				return w, create("t", reserve("web-01", ofVDI))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["kvm01"].Unknown = nil },
		},
		{
			rule: "vgpu-in-use", name: "reserved", level: rules.Error, path: "vgpu", change: true,
			says: []string{"held by the assignment of VM web-02"},
			build: func() (rules.World, change.Change) {
				return reserved(desks(q12), "web-02", 0), create("claim-vdi", gpu.Want{Config: &gpu.PartitionConfig{
					ID: "vdi", Kind: gpu.KindVGPU, VGPU: new(vgpuTypes(q24, 1)), GPUs: map[string][]string{"kvm01": {migGPU0}},
				}})
			},
			satisfy: func(w *rules.World, _ *change.Change) {
				h := w.Hosts["kvm01"]
				h.Claims = h.Claims[:1]
			},
		},
		{
			rule: "kind-on-platform", name: "reserved on Hyper-V", level: rules.Error, path: "vm",
			says: []string{"partition.attach are for vGPUs of Linux hosts"},
			build: func() (rules.World, change.Change) {
				w := reserve("a", gpu.PartitionWant{})
				w.Assignment.Host = "hv01"
				return world(host("hv01", vm("a", gpu.VMOff))), create("t", w)
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Assignment.Partition.Attach = "" },
		},
		{
			rule: "kind-on-platform", name: "whole GPUs on Linux", level: rules.Error, path: "vm",
			says: []string{"whole GPUs are not passed through"},
			build: func() (rules.World, change.Change) {
				w := desks(q12)
				w.Hosts["kvm01"].VMs = []gpu.VM{vm("a", gpu.VMOff)}
				return w, create("t", device("a", "kvm01", "kvm01", migGPU0))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want = reserve("a", ofVDI) },
		},
		{
			rule: "kind-on-platform", name: "settings of Hyper-V on Linux", level: rules.Error, path: "vm",
			says: []string{"have no quotas of the partition and offline_action"},
			build: func() (rules.World, change.Change) {
				w := reserve("a", gpu.PartitionWant{Config: "vdi", Quotas: gpu.Quotas{Encode: gpu.Quota{Min: ptr(uint64(1))}}})
				w.Assignment.Settings.OfflineAction = ptr(gpu.OfflineSave)
				return desks(q12), create("t", w)
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want = reserve("a", ofVDI) },
		},
	}
}
