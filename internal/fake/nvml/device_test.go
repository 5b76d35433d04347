//go:build linux && cgo

package fakenvml_test

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestIdentity(t *testing.T) {
	m := machine(t, hopper(), fakenvml.GPU{
		Model: "NVIDIA A100-SXM4-80GB", UUID: "GPU-a100", BusID: "00000000:C1:00.0", Arch: fakenvml.Ampere,
		Serial: "1234", NUMA: -1, ECC: true, Memory: 1000 * mib, Reserved: 100 * mib,
	})
	m.StartProcess(1, fakenvml.Compute, gpu.Process{PID: 7, Name: "python3", Memory: 300 * mib})
	lib := session(t, m)
	count, r := lib.DeviceGetCount()
	ok(t, r)
	driver, r := lib.SystemGetDriverVersion()
	ok(t, r)
	if count != 2 || driver != "580.95.05" {
		t.Fatalf("%d GPUs, driver %s", count, driver)
	}
	d := device(t, lib, 1)
	for what, get := range map[string]func() (string, nvml.Return){
		"GPU-a100": d.GetUUID, "NVIDIA A100-SXM4-80GB": d.GetName, "1234": d.GetSerial,
	} {
		if got, r := get(); r != nvml.SUCCESS || got != what {
			t.Errorf("%q (%d), want %q", got, r, what)
		}
	}
	pci, r := d.GetPciInfo()
	ok(t, r)
	if pci.Bus != 0xc1 || pci.PciDeviceId != 0x233010de {
		t.Errorf("bus %x device %x", pci.Bus, pci.PciDeviceId)
	}
	memory, r := d.GetMemoryInfo()
	ok(t, r)
	v2, r := d.GetMemoryInfo_v2()
	ok(t, r)
	if memory.Used != uint64(400*mib) || v2.Used != uint64(300*mib) || v2.Reserved != uint64(100*mib) || v2.Free != memory.Free {
		t.Errorf("memory %+v, %+v", memory, v2)
	}
	_, r = d.GetNumaNodeId()
	is(t, r, nvml.ERROR_NOT_SUPPORTED)
	same, r := lib.DeviceGetHandleByPciBusId("0000:c1:00.0")
	ok(t, r)
	if same != d {
		t.Error("another handle by the PCI address")
	}
	_, r = lib.DeviceGetHandleByUUID("GPU-none")
	is(t, r, nvml.ERROR_NOT_FOUND)
	name, r := lib.SystemGetProcessName(7)
	ok(t, r)
	if name != "python3" {
		t.Errorf("process %q", name)
	}
}

func TestModes(t *testing.T) {
	m := machine(t, hopper())
	lib := session(t, m)
	d := device(t, lib, 0)
	ok(t, d.SetComputeMode(nvml.COMPUTEMODE_EXCLUSIVE_PROCESS))
	ok(t, d.SetPersistenceMode(nvml.FEATURE_ENABLED))
	if got := m.GPU(0); got.ComputeMode != 3 || !got.Persistence {
		t.Fatalf("%+v", got)
	}
	_, r := d.SetMigMode(nvml.DEVICE_MIG_ENABLE)
	ok(t, r)
	if got := m.GPU(0).ComputeMode; got != 0 {
		t.Errorf("compute mode %d in MIG mode", got)
	}
	is(t, d.SetComputeMode(nvml.COMPUTEMODE_EXCLUSIVE_PROCESS), nvml.ERROR_NOT_SUPPORTED)
	_, r = d.GetUtilizationRates()
	is(t, r, nvml.ERROR_NOT_SUPPORTED)
}

func TestMemoryLimits(t *testing.T) {
	m := machine(t, hopper())
	d := device(t, session(t, m), 0)
	const cgroup = "/sys/fs/cgroup/gpu.slice"
	ok(t, d.SetMemoryLimits_v1(cgroup, uint64(8*1024*mib), uint64(16*1024*mib)))
	limits, r := d.GetMemoryLimits_v1(cgroup)
	ok(t, r)
	if limits.HardLimit != uint64(16*1024*mib) {
		t.Errorf("%+v", limits)
	}
	is(t, d.SetMemoryLimits_v1(cgroup, 2, 1), nvml.ERROR_INVALID_ARGUMENT)
	is(t, d.SetMemoryLimits_v1(cgroup, 1, uint64(81*1024*mib)), nvml.ERROR_INVALID_ARGUMENT)
	ok(t, d.SetMemoryLimits_v1(cgroup, 0, ^uint64(0)))
	_, r = d.GetMemoryLimits_v1(cgroup)
	is(t, r, nvml.ERROR_NOT_FOUND)
	if got := m.GPU(0).Limits; len(got) != 0 {
		t.Errorf("limits left: %v", got)
	}
}

func TestUtilization(t *testing.T) {
	m := machine(t, hopper(), inMIG(hopper()), ampere())
	lib := session(t, m)
	m.SetUtilization(0, 70, 30)
	m.StartProcess(0, fakenvml.Compute, gpu.Process{PID: 5, Name: "train"})
	d := device(t, lib, 0)
	rates, r := d.GetUtilizationRates()
	ok(t, r)
	if rates.Gpu != 70 || rates.Memory != 30 {
		t.Errorf("%+v", rates)
	}
	_, r = d.GetProcessUtilization(0)
	is(t, r, nvml.ERROR_NOT_FOUND)
	m.SetBusy(5, 60)
	busy, r := d.GetProcessUtilization(0)
	ok(t, r)
	if len(busy) != 1 || busy[0].Pid != 5 || busy[0].SmUtil != 60 {
		t.Errorf("%+v", busy)
	}
	instance := mustCreate(t, device(t, lib, 1), id3g, 4)
	info, r := instance.GetInfo()
	ok(t, r)
	id := int(info.Id)
	m.SetActivity(1, id, fakenvml.Activity{SM: 20})
	first := gpmSample(t, lib, 1, id)
	m.SetActivity(1, id, fakenvml.Activity{SM: 40})
	get := nvml.GpmMetricsGetType{NumMetrics: 1, Sample1: first, Sample2: gpmSample(t, lib, 1, id)}
	get.Metrics[0].MetricId = uint32(nvml.GPM_METRIC_SM_UTIL)
	ok(t, lib.GpmMetricsGet(&get))
	if get.Metrics[0].Value != 30 {
		t.Errorf("SM %v", get.Metrics[0].Value)
	}
	support, r := lib.GpmQueryDeviceSupport(device(t, lib, 2))
	ok(t, r)
	if support.IsSupportedDevice != 0 {
		t.Error("an Ampere GPU has GPM")
	}
}

func gpmSample(t *testing.T, lib nvml.Interface, index, instance int) nvml.GpmSample {
	t.Helper()
	s, r := lib.GpmSampleAlloc()
	ok(t, r)
	t.Cleanup(func() { ok(t, s.Free()) })
	ok(t, lib.GpmMigSampleGet(device(t, lib, index), instance, s))
	return s
}

func TestLinks(t *testing.T) {
	a, b := hopper(), hopper()
	a.BusID, b.BusID = "00000000:1A:00.0", "00000000:2A:00.0"
	a.Links = []string{b.BusID, "switch"}
	d := device(t, session(t, machine(t, a, b)), 0)
	peer, r := d.GetNvLinkRemotePciInfo(0)
	ok(t, r)
	kind, r := d.GetNvLinkRemoteDeviceType(1)
	ok(t, r)
	if peer.Bus != 0x2a || kind != nvml.NVLINK_DEVICE_TYPE_SWITCH {
		t.Errorf("bus %x, type %d", peer.Bus, kind)
	}
	_, r = d.GetNvLinkState(2)
	is(t, r, nvml.ERROR_NOT_SUPPORTED)
}

func TestVGPU(t *testing.T) {
	g := hopper()
	g.Memory = 48 * 1024 * mib
	g.VGPU = &fakenvml.VGPU{Mixable: true, MIGSlices: true, Types: []fakenvml.VGPUType{
		{ID: 1148, Name: "NVIDIA L40S-2Q", Class: "Quadro", Framebuffer: 2048 * mib, Max: 24, InstanceProfile: -1},
		{ID: 1150, Name: "NVIDIA L40S-24Q", Class: "Quadro", Framebuffer: 24 * 1024 * mib, Max: 2, InstanceProfile: -1},
		{ID: 1200, Name: "NVIDIA MIG-3-40C", Class: "Compute", Framebuffer: 40 * 1024 * mib, Max: 2, InstanceProfile: id3g},
	}}
	m := machine(t, g, hopper())
	lib := session(t, m)
	d := device(t, lib, 0)
	_, r := device(t, lib, 1).GetSupportedVgpus()
	is(t, r, nvml.ERROR_NOT_SUPPORTED)
	supported, r := d.GetSupportedVgpus()
	ok(t, r)
	name, r := supported[1].GetName()
	ok(t, r)
	if len(supported) != 3 || name != "NVIDIA L40S-24Q" {
		t.Errorf("%d types, %q", len(supported), name)
	}
	creatable := func(want int) {
		t.Helper()
		types, r := d.GetCreatableVgpus()
		ok(t, r)
		if len(types) != want {
			t.Errorf("%d types can be created, want %d", len(types), want)
		}
	}
	creatable(2)
	vgpu := m.StartVGPU(0, 1148, -1, "web-01")
	creatable(1)
	mixed := nvml.VgpuHeterogeneousMode{Mode: uint32(nvml.FEATURE_ENABLED)}
	is(t, d.SetVgpuHeterogeneousMode(mixed), nvml.ERROR_IN_USE)
	m.StopVGPU(vgpu)
	ok(t, d.SetVgpuHeterogeneousMode(mixed))
	m.StartVGPU(0, 1148, -1, "web-01")
	creatable(2)
	active, r := d.GetActiveVgpus()
	ok(t, r)
	vm, _, r := active[0].GetVmID()
	ok(t, r)
	const sliced = nvml.DEVICE_VGPU_CAP_MIG_TIMESLICING_ENABLED
	is(t, d.SetVgpuCapabilities(nvml.DEVICE_VGPU_CAP_FRACTIONAL_MULTI_VGPU, nvml.FEATURE_ENABLED), nvml.ERROR_INVALID_ARGUMENT)
	on, r := d.GetVgpuCapabilities(sliced)
	ok(t, r)
	if on || m.GPU(0).MIGSliced {
		t.Error("vGPUs share GPU instances before anybody has said so")
	}
	ok(t, d.SetVgpuCapabilities(sliced, nvml.FEATURE_ENABLED))
	if on, r = d.GetVgpuCapabilities(sliced); r != nvml.SUCCESS || !on || !m.GPU(0).MIGSliced {
		t.Errorf("vGPUs share GPU instances: %t, return %d", on, r)
	}
	if !m.GPU(0).VGPUMixed || vm != "web-01" {
		t.Errorf("mixed %v, VM %q", m.GPU(0).VGPUMixed, vm)
	}
}
