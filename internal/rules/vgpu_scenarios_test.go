package rules_test

import (
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

const (
	q12 = "L40S-12Q"
	q24 = "L40S-24Q"
)

// l40s is an NVIDIA L40S with vGPUs on its first virtual functions.
func l40s(id string, types ...string) gpu.GPU {
	g := gpu.GPU{
		ID: id, Model: "NVIDIA L40S", Vendor: "NVIDIA", PCI: gpu.PCIID{Vendor: "10DE", Device: "26B9"},
		VRAM: 48 * 1024 * gpu.MiB, Driver: gpu.Driver{Version: "580.82.07"},
		VGPU: &gpu.VGPU{
			Functions: 32, FunctionsOn: len(types) > 0, HeterogeneousSupported: true,
			Types: []gpu.VGPUType{
				{Name: q12, FrameBuffer: 12 * 1024 * gpu.MiB, Max: 4},
				{Name: q24, FrameBuffer: 24 * 1024 * gpu.MiB, Max: 2},
				{Name: "L40S-1-12C", FrameBuffer: 12 * 1024 * gpu.MiB, Max: 4, MIGProfile: "1g.12gb"},
			},
		},
	}
	for i, name := range types {
		g.VGPU.Instances = append(g.VGPU.Instances, gpu.VGPUInstance{VGPUPlace: gpu.VGPUPlace{Type: name, Function: i}})
	}
	return g
}

// MIG-backed types of an H100.
const (
	c10 = "H100-1-10C"
	c20 = "H100-2-20C"
	c40 = "H100-3-40C"
)

// backed gives a GPU vGPU types that live in GPU instances, and vGPUs of those that it has, one in
// each. shared is a type of which two live in one.
func backed(g gpu.GPU) gpu.GPU {
	const gib = 1024 * gpu.MiB
	g.VGPU = &gpu.VGPU{Functions: 16, FunctionsOn: len(g.MIG.Instances) > 0, Types: []gpu.VGPUType{
		{Name: c10, FrameBuffer: 10 * gib, Max: 7, MIGProfile: "1g.10gb"},
		{Name: c20, FrameBuffer: 20 * gib, Max: 3, MIGProfile: "2g.20gb"},
		{Name: c40, FrameBuffer: 40 * gib, Max: 2, MIGProfile: "3g.40gb"},
		{Name: shared, FrameBuffer: 20 * gib, Max: 4, MIGProfile: "3g.40gb"},
		{Name: "H100-20C", FrameBuffer: 20 * gib, Max: 4},
	}}
	for i, in := range g.MIG.Instances {
		name := map[string]string{"1g.10gb": c10, "2g.20gb": c20, "3g.40gb": c40}[in.Profile]
		g.VGPU.Instances = append(g.VGPU.Instances, gpu.VGPUInstance{VGPUPlace: gpu.VGPUPlace{Type: name, Function: i}, GPUInstance: &in.ID})
	}
	return g
}

const shared = "H100-3-20C"

func heldBy(g gpu.GPU, function int, holder string) gpu.GPU {
	g.VGPU.Instances[function].Holder = holder
	return g
}

// vgpuConfig covers both GPUs of hosts.
func vgpuConfig(id string, l gpu.VGPULayout, hosts ...string) gpu.Want {
	w := migConfig(id, gpu.MIGLayout{}, hosts...)
	w.Config.Kind, w.Config.MIG, w.Config.VGPU = gpu.KindVGPU, nil, &l
	return w
}

func vgpuTypes(name string, n int) gpu.VGPULayout {
	return gpu.VGPULayout{Types: map[string]int{name: n}}
}

func kvm(gpus ...gpu.GPU) rules.World { return world(gpuServer("kvm01", gpus...)) }

func vgpuScenarios() []scenario {
	// bad is a layout that no L40S takes, and good one that it does.
	bad := func(rule, name, path string, l, good gpu.VGPULayout, says ...string) scenario {
		return scenario{
			rule: rule, name: name, level: rules.Error, path: path, says: append(says, migGPU0, migGPU1, `"kvm01"`),
			build: func() (rules.World, change.Change) {
				return kvm(l40s(migGPU0), l40s(migGPU1)), create("t", vgpuConfig("vdi", l, "kvm01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.VGPU = &good },
		}
	}
	never := gpu.VGPULayout{Types: map[string]int{q12: 1, q24: 1}, Heterogeneous: ptr(false)}
	untold := gpu.VGPULayout{Type: q12, Heterogeneous: ptr(true)}
	return []scenario{
		{
			rule: "kind-on-platform", name: "vgpu on Hyper-V", level: rules.Error, path: "hosts",
			says: []string{`"hv01" is a Hyper-V host`, "with `vgpu`"},
			build: func() (rules.World, change.Change) {
				w := vgpuConfig("vdi", vgpuTypes(q12, 1), "hv01")
				w.Config.GPUs["hv01"] = nil
				return world(host("hv01")), create("t", w)
			},
			satisfy: func(w *rules.World, _ *change.Change) {
				w.Hosts["hv01"] = gpuServer("hv01", l40s(migGPU0), l40s(migGPU1))
			},
		},
		{
			rule: "nothing-selected", name: "no vGPUs", level: rules.Error, path: "hosts",
			says: []string{"its driver offers no vGPUs", "wants GPUs with vGPUs"},
			build: func() (rules.World, change.Change) {
				g := l40s(migGPU0)
				g.VGPU = nil
				w := vgpuConfig("vdi", vgpuTypes(q12, 1), "kvm01")
				w.Config.GPUs["kvm01"] = nil
				return kvm(g), create("t", w)
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.GPUs["kvm01"] = []string{migGPU0} },
		},
		{
			rule: "known-config", name: "of kind vgpu", level: rules.Error, path: "partition.config", says: []string{"is of kind `vgpu`"},
			build: func() (rules.World, change.Change) {
				p := partition("a", "hv01")
				p.Assignment.Partition.Config = "vdi"
				w := world(host("hv01", vm("a", gpu.VMOff)))
				put(&w, "c", vgpuConfig("vdi", vgpuTypes(q12, 1), "kvm01"))
				return w, create("t", p)
			},
			satisfy: func(w *rules.World, _ *change.Change) { put(w, "c", config("vdi", 4, "hv01")) },
		},
		{
			rule: "homogeneous-gpus", name: "vGPUs on unlike models", level: rules.Warning, path: "selector",
			says: []string{"named after the model"},
			build: func() (rules.World, change.Change) {
				other := l40s(migGPU1)
				other.Model, other.PCI.Device = "NVIDIA L40", "26B5"
				return kvm(l40s(migGPU0), other), create("t", vgpuConfig("vdi", vgpuTypes(q12, 1), "kvm01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["kvm01"].GPUs[1] = l40s(migGPU1) },
		},
		{
			rule: "vgpu-same-framebuffer", name: "no heterogeneous mode", level: rules.Error, path: "vgpu",
			says: []string{migGPU0, "Leave `heterogeneous` out"},
			build: func() (rules.World, change.Change) {
				g := l40s(migGPU0)
				g.VGPU.HeterogeneousSupported = false
				w := vgpuConfig("vdi", gpu.VGPULayout{Types: map[string]int{q12: 2}, Heterogeneous: ptr(true)}, "kvm01")
				w.Config.GPUs["kvm01"] = []string{migGPU0}
				return kvm(g), create("t", w)
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.VGPU.Heterogeneous = nil },
		},
		{
			rule: "vgpu-type-offered", name: "no vGPU driver", level: rules.Error, path: "selector", says: []string{migGPU1, "offers no vGPUs"},
			build: func() (rules.World, change.Change) {
				g := l40s(migGPU1)
				g.VGPU = nil
				return kvm(l40s(migGPU0), g), create("t", vgpuConfig("vdi", vgpuTypes(q12, 1), "kvm01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.GPUs["kvm01"] = []string{migGPU0} },
		},
		bad("vgpu-type-offered", "another model's type", "vgpu", vgpuTypes("A40-12Q", 1), vgpuTypes(q12, 1),
			"no vGPU type A40-12Q", q12, q24, "1 × A40-12Q"),
		bad("vgpu-type-offered", "a MIG-backed type without MIG", "vgpu", vgpuTypes("L40S-1-12C", 1), vgpuTypes(q12, 1), "MIG-backed", "1g.12gb"),
		bad("vgpu-type-offered", "a MIG-backed type beside another", "vgpu", gpu.VGPULayout{Types: map[string]int{"L40S-1-12C": 1, q12: 1}},
			vgpuTypes(q12, 1), "cannot be beside each other"),
		{
			rule: "vgpu-type-offered", name: "two sizes in instances that take several", level: rules.Error,
			path: "vgpu", says: []string{shared, c40, "several vGPUs of one frame buffer size"},
			build: func() (rules.World, change.Change) {
				return kvm(backed(migOff(h100(migGPU0))), backed(migOff(h100(migGPU1)))),
					create("t", vgpuConfig("vdi", gpu.VGPULayout{Types: map[string]int{shared: 2, c40: 1}}, "kvm01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.VGPU.Types = map[string]int{shared: 4} },
		},
		{
			rule: "vgpu-capacity", name: "no room for the instances", level: rules.Error, path: "vgpu",
			says: []string{migGPU1, "5 × " + c10, "no room for their GPU instances"},
			build: func() (rules.World, change.Change) {
				return kvm(backed(migOff(h100(migGPU0))), backed(migOff(h100(migGPU1)))),
					create("t", vgpuConfig("vdi", gpu.VGPULayout{Types: map[string]int{c10: 5, c40: 1}}, "kvm01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.VGPU.Types[c10] = 4 },
		},
		{
			rule: "vgpu-same-framebuffer", name: "MIG-backed", level: rules.Error, path: "vgpu",
			says: []string{c10, "live in GPU instances", "Leave `heterogeneous` out"},
			build: func() (rules.World, change.Change) {
				l := vgpuTypes(c10, 1)
				l.Heterogeneous = ptr(true)
				return kvm(backed(migOff(h100(migGPU0))), backed(migOff(h100(migGPU1)))), create("t", vgpuConfig("vdi", l, "kvm01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.VGPU.Heterogeneous = nil },
		},
		{
			rule: "vgpu-in-use", name: "MIG mode takes a reset", level: rules.Error, path: "max_disruption",
			change: true, says: []string{migGPU1, "requires a reset of this GPU", "`max_disruption = \"gpu_reset\"`"},
			build: func() (rules.World, change.Change) {
				return kvm(backed(migOff(h100(migGPU0))), backed(ampere(migOff(h100(migGPU1))))),
					create("t", vgpuConfig("vdi", vgpuTypes(c10, 1), "kvm01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.MaxDisruption = gpu.DisruptGPUReset },
		},
		{
			rule: "vgpu-in-use", name: "an instance in use", level: rules.Error, path: "vgpu", change: true,
			says: []string{migGPU1, "2g.20gb at 2 (process 4711"},
			build: func() (rules.World, change.Change) {
				g := h100(migGPU1, at("1g.10gb", 0), at("2g.20gb", 2))
				runsIn(&g, 2, 4711)
				g = backed(g)
				g.VGPU.Instances = g.VGPU.Instances[:1]
				return kvm(backed(h100(migGPU0, at("1g.10gb", 0))), g), create("t", vgpuConfig("vdi", vgpuTypes(c10, 2), "kvm01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["kvm01"].GPUs[1].Processes = nil },
		},
		{
			rule: "vgpu-type-offered", name: "in MIG mode", level: rules.Error, path: "selector", says: []string{migGPU1, "is in MIG mode"},
			change: true,
			build: func() (rules.World, change.Change) {
				g := l40s(migGPU1)
				g.MIG = &gpu.MIG{Enabled: true, Pending: true}
				return kvm(l40s(migGPU0), g), create("t", vgpuConfig("vdi", vgpuTypes(q12, 1), "kvm01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["kvm01"].GPUs[1].MIG = &gpu.MIG{} },
		},
		bad("vgpu-same-framebuffer", "switched off", "vgpu", never, gpu.VGPULayout{Types: never.Types},
			"differ in frame buffer size", "Leave `heterogeneous` out"),
		{
			rule: "vgpu-same-framebuffer", name: "not supported", level: rules.Error, path: "vgpu",
			says: []string{migGPU1, "has no heterogeneous mode"},
			build: func() (rules.World, change.Change) {
				g := l40s(migGPU1)
				g.VGPU.HeterogeneousSupported = false
				return kvm(l40s(migGPU0), g), create("t", vgpuConfig("vdi", gpu.VGPULayout{Types: never.Types}, "kvm01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.VGPU.Types = map[string]int{q12: 2} },
		},
		bad("vgpu-capacity", "too many of a type", "vgpu", vgpuTypes(q12, 5), vgpuTypes(q12, 4), "5 × L40S-12Q, but the GPU takes 4 at most"),
		bad("vgpu-capacity", "too much memory", "vgpu", gpu.VGPULayout{Types: map[string]int{q12: 3, q24: 1}},
			gpu.VGPULayout{Types: map[string]int{q12: 2, q24: 1}}, "60.0 GiB", "48.0 GiB"),
		bad("vgpu-capacity", "as many as fit of mixed sizes", "vgpu", untold, gpu.VGPULayout{Type: q12}, "Write `count`"),
		{
			rule: "vgpu-capacity", name: "too few virtual functions", level: rules.Error, path: "vgpu", says: []string{migGPU1, "the GPU has 1"},
			build: func() (rules.World, change.Change) {
				g := l40s(migGPU1)
				g.VGPU.Functions = 1
				return kvm(l40s(migGPU0), g), create("t", vgpuConfig("vdi", vgpuTypes(q12, 2), "kvm01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.VGPU.Types[q12] = 1 },
		},
		{
			rule: "vgpu-capacity", name: "a virtual function that a VM took", level: rules.Error, path: "vgpu",
			says: []string{migGPU1, "the GPU has 2, of which virtual function 1 is bound to vfio-pci", "by VM web-01 (off)", "managed='no'"},
			build: func() (rules.World, change.Change) {
				g := l40s(migGPU1, q12)
				g.VGPU.Functions = 2
				g.VGPU.Taken = []gpu.TakenFunction{{Function: 1, Driver: "vfio-pci", NamedBy: []string{"VM web-01 (off)"}}}
				return kvm(l40s(migGPU0), g), create("t", vgpuConfig("vdi", vgpuTypes(q12, 2), "kvm01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.VGPU.Types[q12] = 1 },
		},
		{
			rule: "vgpu-in-use", name: "held by a VM", level: rules.Error, path: "vgpu", change: true,
			says: []string{migGPU1, q12, "virtual function 1", "VM web-01"},
			build: func() (rules.World, change.Change) {
				return kvm(l40s(migGPU0), heldBy(l40s(migGPU1, q12, q12), 1, "VM web-01")), create("t", vgpuConfig("vdi", vgpuTypes(q24, 1), "kvm01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["kvm01"].GPUs[1].VGPU.Instances[1].Holder = "" },
		},
		{
			rule: "vgpu-in-use", name: "named by a VM that is off", level: rules.Error, path: "vgpu", change: true,
			says: []string{migGPU1, q12, "virtual function 1", "VM web-01 (off)", "from their definitions"},
			build: func() (rules.World, change.Change) {
				g := l40s(migGPU1, q12, q12)
				g.VGPU.Instances[1].NamedBy = []string{"VM web-01 (off)"}
				return kvm(l40s(migGPU0), g), create("t", vgpuConfig("vdi", vgpuTypes(q24, 1), "kvm01"))
			},
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["kvm01"].GPUs[1].VGPU.Instances[1].NamedBy = nil },
		},
		{
			rule: "vgpu-in-use", name: "held, and another mode", level: rules.Error, path: "vgpu", change: true,
			says: []string{"modes of the GPU change only without vGPUs", "VM web-01"},
			build: func() (rules.World, change.Change) {
				return kvm(l40s(migGPU0), heldBy(l40s(migGPU1, q12), 0, "VM web-01")),
					create("t", vgpuConfig("vdi", gpu.VGPULayout{Types: never.Types}, "kvm01"))
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.VGPU.Types = map[string]int{q12: 2} },
		},
		{
			rule: "vgpu-in-use", name: "processes", level: rules.Error, path: "vgpu", change: true,
			says: []string{migGPU1, "process 4711 (python, container 3f2a)", "`quiesce_units`"},
			build: func() (rules.World, change.Change) {
				g := l40s(migGPU1)
				runsIn(&g, 0, 4711)
				return kvm(l40s(migGPU0), g), create("t", vgpuConfig("vdi", vgpuTypes(q12, 2), "kvm01"))
			},
			satisfy: func(w *rules.World, p *change.Change) {
				w.Hosts["kvm01"].GPUs[1].Processes[0].Holder = "unit nvidia-dcgm.service"
				p.Want.Config.QuiesceUnits = []string{"nvidia-dcgm"}
			},
		},
		{
			rule: "vgpu-in-use", name: "former vGPUs", level: rules.Error, path: "on_destroy", change: true,
			says: []string{migGPU1, "VM web-01", "L40S-24Q before"},
			build: func() (rules.World, change.Change) {
				h := gpuServer("kvm01", l40s(migGPU0, q12), heldBy(l40s(migGPU1, q12), 0, "VM web-01"))
				h.Claims = []gpu.Claim{{
					Kind: gpu.ClaimConfig, ID: "vdi", Token: "t", Owner: "vdi", GPUs: []string{migGPU0, migGPU1},
					OriginalLayouts: gpu.Layouts{
						migGPU0: {VGPU: &gpu.VGPUState{}}, migGPU1: {VGPU: &gpu.VGPUState{FunctionsOn: true, Places: []gpu.VGPUPlace{{Type: q24}}}},
					},
				}}
				p := create("t", vgpuConfig("vdi", vgpuTypes(q12, 1), "kvm01"))
				p.Prior = vgpuConfig("vdi", vgpuTypes(q12, 1), "kvm01")
				p.Want.Config.GPUs, p.Want.Config.Restore = map[string][]string{"kvm01": {migGPU0}}, true
				return world(h), p
			},
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.Restore = false },
		},
	}
}
