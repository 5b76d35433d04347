//go:build linux && cgo

package fakenvml_test

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestMode(t *testing.T) {
	held := func(m *fakenvml.Machine) { m.StartProcess(0, fakenvml.Compute, gpu.Process{PID: 9}) }
	watched := func(m *fakenvml.Machine) { m.StartProcess(0, fakenvml.Watcher, gpu.Process{PID: 9, Name: "dcgm"}) }
	persistent := func(m *fakenvml.Machine) { m.SetPersistence(0, true) }
	unlucky := func(m *fakenvml.Machine) { m.SetRoot(false) }
	atOnce, none := ampere(), ampere()
	atOnce.ModeAtOnce = true
	none.Profiles = nil
	for name, c := range map[string]struct {
		gpu                fakenvml.GPU
		before             func(*fakenvml.Machine)
		result, activation nvml.Return
		on, pending        bool
	}{
		"Hopper":                     {gpu: hopper(), on: true, pending: true},
		"Hopper, working":            {gpu: hopper(), before: held, result: nvml.ERROR_IN_USE, activation: nvml.ERROR_IN_USE},
		"Hopper, watched":            {gpu: hopper(), before: watched, on: true, pending: true},
		"Ampere":                     {gpu: ampere(), activation: nvml.ERROR_RESET_REQUIRED, pending: true},
		"Ampere, working":            {gpu: ampere(), before: held, activation: nvml.ERROR_IN_USE, pending: true},
		"Ampere, watched":            {gpu: ampere(), before: watched, activation: nvml.ERROR_IN_USE, pending: true},
		"Ampere, persistent":         {gpu: ampere(), before: persistent, activation: nvml.ERROR_IN_USE, pending: true},
		"Ampere that resets itself":  {gpu: atOnce, on: true, pending: true},
		"the same, watched":          {gpu: atOnce, before: watched, activation: nvml.ERROR_IN_USE, pending: true},
		"not root":                   {gpu: hopper(), before: unlucky, result: nvml.ERROR_NO_PERMISSION},
		"a GPU without MIG profiles": {gpu: none, result: nvml.ERROR_NOT_SUPPORTED},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine(t, c.gpu)
			if c.before != nil {
				c.before(m)
			}
			d := device(t, session(t, m), 0)
			activation, r := d.SetMigMode(nvml.DEVICE_MIG_ENABLE)
			is(t, r, c.result)
			is(t, activation, c.activation)
			if got := m.GPU(0); got.MIG != c.on || got.Pending != c.pending {
				t.Errorf("MIG %v, pending %v", got.MIG, got.Pending)
			}
		})
	}
}

func TestModeWithInstances(t *testing.T) {
	m := machine(t, inMIG(hopper()))
	d := device(t, session(t, m), 0)
	mustCreate(t, d, id1g, 0)
	_, r := d.SetMigMode(nvml.DEVICE_MIG_DISABLE)
	is(t, r, nvml.ERROR_IN_USE)
	if !m.GPU(0).MIG {
		t.Error("the mode changed")
	}
}

func TestProfiles(t *testing.T) {
	m := fakenvml.New(t, fakenvml.Options{ProfilesNeedMIG: true, GPUs: []fakenvml.GPU{hopper(), inMIG(hopper())}})
	lib := session(t, m)
	_, r := device(t, lib, 0).GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_1_SLICE)
	is(t, r, nvml.ERROR_NOT_SUPPORTED)
	d := device(t, lib, 1)
	// NVML's numbers are not the hardware's.
	for number, id := range map[int]uint32{
		nvml.GPU_INSTANCE_PROFILE_1_SLICE: id1g, nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1: id1gME,
		nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV2: id1gDouble, nvml.GPU_INSTANCE_PROFILE_7_SLICE: id7g,
	} {
		info, r := d.GetGpuInstanceProfileInfo(number)
		ok(t, r)
		if info.Id != id {
			t.Errorf("profile %d has the id %d, want %d", number, info.Id, id)
		}
	}
	info, r := d.GetGpuInstanceProfileInfoV(nvml.GPU_INSTANCE_PROFILE_3_SLICE).V3()
	ok(t, r)
	if name := text(info.Name[:]); name != "MIG 3g.40gb" || info.InstanceCount != 2 {
		t.Errorf("%q, %d instances", name, info.InstanceCount)
	}
	_, r = d.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_6_SLICE)
	is(t, r, nvml.ERROR_NOT_SUPPORTED)
	_, r = d.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_COUNT)
	is(t, r, nvml.ERROR_INVALID_ARGUMENT)
}

func text[T int8 | uint8](chars []T) string {
	var b []byte
	for _, c := range chars {
		if c == 0 {
			break
		}
		b = append(b, byte(c))
	}
	return string(b)
}

func TestPlaces(t *testing.T) {
	type place struct{ profile, start int }
	for name, c := range map[string]struct {
		there  []place
		next   place
		result nvml.Return
		start  int
	}{
		"free":                    {next: place{id3g, 4}, start: 4},
		"the driver's choice":     {there: []place{{id1g, 0}}, next: place{id2g, -1}, start: 2},
		"overlap":                 {there: []place{{id3g, 4}}, next: place{id1g, 6}, result: nvml.ERROR_INSUFFICIENT_RESOURCES},
		"no such start":           {next: place{id3g, 2}, result: nvml.ERROR_INVALID_ARGUMENT},
		"as many as there may be": {there: []place{{id1gME, 0}}, next: place{id1gME, 1}, result: nvml.ERROR_INSUFFICIENT_RESOURCES},
		"the driver strands a 1g": {
			there: []place{{id3g, -1}, {id2g, -1}, {id1g, -1}}, next: place{id1g, -1}, result: nvml.ERROR_INSUFFICIENT_RESOURCES,
		},
		"which fits when chosen": {there: []place{{id3g, 4}, {id2g, 0}, {id1g, 2}}, next: place{id1g, 3}, start: 3},
		"3g and 4g are whole":    {there: []place{{id4g, 0}, {id3g, 4}}, next: place{id1g, -1}, result: nvml.ERROR_INSUFFICIENT_RESOURCES},
		"seven leave slice 7 free": {
			there: []place{{id1g, -1}, {id1g, -1}, {id1g, -1}, {id1g, -1}, {id1g, -1}, {id1g, -1}}, next: place{id1g, -1}, start: 6,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine(t, inMIG(hopper()))
			d := device(t, session(t, m), 0)
			for _, p := range c.there {
				mustCreate(t, d, p.profile, p.start)
			}
			i, r := create(d, c.next.profile, c.next.start)
			is(t, r, c.result)
			if r != nvml.SUCCESS {
				if got := len(m.GPU(0).Instances); got != len(c.there) {
					t.Errorf("%d instances, want %d", got, len(c.there))
				}
				return
			}
			info, r := i.GetInfo()
			ok(t, r)
			if int(info.Placement.Start) != c.start || int(info.ProfileId) != c.next.profile {
				t.Errorf("%+v, want start %d", info, c.start)
			}
		})
	}
}

// On Blackwell workstation cards one instance may have all media engines, beside
// instances that have none.
func TestMediaEngines(t *testing.T) {
	g := fakenvml.GPU{Arch: fakenvml.Blackwell, MIG: true, Profiles: []gpu.MIGProfile{
		{ID: 47, Name: "1g.24gb", Slices: 1, Memory: 24 * 1024 * mib, Max: 4, Size: 1, Starts: []int{0, 1, 2, 3}},
		{ID: 65, Name: "1g.24gb+me.all", Slices: 1, Memory: 24 * 1024 * mib, Max: 1, Size: 1, Starts: []int{0, 1, 2, 3}},
		{ID: 67, Name: "1g.24gb-me", Slices: 1, Memory: 24 * 1024 * mib, Max: 4, Size: 1, Starts: []int{0, 1, 2, 3}},
	}}
	d := device(t, session(t, machine(t, g)), 0)
	mustCreate(t, d, 65, 0)
	_, r := create(d, 47, 1)
	is(t, r, nvml.ERROR_INSUFFICIENT_RESOURCES)
	mustCreate(t, d, 67, 1)
}

func TestOutsideOfMIG(t *testing.T) {
	d := device(t, session(t, machine(t, hopper())), 0)
	_, r := create(d, id1g, 0)
	is(t, r, nvml.ERROR_NOT_SUPPORTED)
	_, r = d.GetGpuInstanceById(0)
	is(t, r, nvml.ERROR_NOT_SUPPORTED)
	count, r := d.GetMaxMigDeviceCount()
	ok(t, r)
	if count != 0 {
		t.Errorf("%d MIG devices could be", count)
	}
}

func TestCapacity(t *testing.T) {
	d := device(t, session(t, machine(t, inMIG(hopper()))), 0)
	mustCreate(t, d, id2g, 2)
	for number, want := range map[int]int{
		nvml.GPU_INSTANCE_PROFILE_1_SLICE: 5, nvml.GPU_INSTANCE_PROFILE_2_SLICE: 2, nvml.GPU_INSTANCE_PROFILE_3_SLICE: 1,
		nvml.GPU_INSTANCE_PROFILE_4_SLICE: 0, nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1: 1,
	} {
		info, r := d.GetGpuInstanceProfileInfo(number)
		ok(t, r)
		got, r := d.GetGpuInstanceRemainingCapacity(&info)
		ok(t, r)
		if got != want {
			t.Errorf("%d more of profile %d, want %d", got, info.Id, want)
		}
	}
}

func TestDestroy(t *testing.T) {
	m := machine(t, inMIG(hopper()))
	lib := session(t, m)
	d := device(t, lib, 0)
	i := mustCreate(t, d, id3g, 4)
	c := fill(t, i, nvml.COMPUTE_INSTANCE_PROFILE_3_SLICE)
	first := m.GPU(0).Instances[0]
	m.StartProcess(0, fakenvml.Compute, gpu.Process{PID: 4711, Name: "python3", GPUInstance: &first.ID, ComputeInstance: &first.Compute[0].ID})
	is(t, c.Destroy(), nvml.ERROR_IN_USE)
	is(t, i.Destroy(), nvml.ERROR_IN_USE)
	m.StopProcess(4711)
	is(t, i.Destroy(), nvml.ERROR_IN_USE) // its compute instance is there
	uuid := uuidOf(t, c)
	ok(t, c.Destroy())
	if half := m.GPU(0).Instances; len(half) != 1 || len(half[0].Compute) != 0 {
		t.Fatalf("not half of it is left: %+v", half)
	}
	is(t, c.Destroy(), nvml.ERROR_NOT_FOUND)
	again := fill(t, i, nvml.COMPUTE_INSTANCE_PROFILE_3_SLICE)
	if uuidOf(t, again) == uuid {
		t.Error("the same UUID again")
	}
	ok(t, again.Destroy())
	ok(t, i.Destroy())
	is(t, i.Destroy(), nvml.ERROR_NOT_FOUND)
	if other := mustCreate(t, d, id3g, 0); m.GPU(0).Instances[0].ID != first.ID {
		t.Errorf("id %d is not used again by %v", first.ID, other)
	}
	// A handle to the first of that id is not one to the second.
	is(t, i.Destroy(), nvml.ERROR_NOT_FOUND)
}

func TestComputeInstances(t *testing.T) {
	m := machine(t, inMIG(hopper()))
	lib := session(t, m)
	d := device(t, lib, 0)
	i := mustCreate(t, d, id3g, 4)
	_, r := i.GetComputeInstanceProfileInfo(nvml.COMPUTE_INSTANCE_PROFILE_4_SLICE, 0)
	is(t, r, nvml.ERROR_NOT_SUPPORTED)
	one := fill(t, i, nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE)
	two := fill(t, i, nvml.COMPUTE_INSTANCE_PROFILE_2_SLICE)
	info, r := i.GetComputeInstanceProfileInfo(nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE, 0)
	ok(t, r)
	_, r = i.CreateComputeInstance(&info)
	is(t, r, nvml.ERROR_INSUFFICIENT_RESOURCES)
	is(t, one.Destroy(), nvml.SUCCESS)
	// Index 0 is a hole now.
	_, r = d.GetMigDeviceHandleByIndex(0)
	is(t, r, nvml.ERROR_NOT_FOUND)
	mig, r := d.GetMigDeviceHandleByIndex(1)
	ok(t, r)
	uuid, r := mig.GetUUID()
	ok(t, r)
	name, r := mig.GetName()
	ok(t, r)
	if uuid != uuidOf(t, two) || name != "NVIDIA H100 80GB HBM3 MIG 2c.3g.40gb" {
		t.Errorf("%s, %q", uuid, name)
	}
	attributes, r := mig.GetAttributes()
	ok(t, r)
	if attributes.GpuInstanceSliceCount != 3 || attributes.ComputeInstanceSliceCount != 2 || attributes.MemorySizeMB != 40192 {
		t.Errorf("%+v", attributes)
	}
	parent, r := mig.GetDeviceHandleFromMigDeviceHandle()
	ok(t, r)
	if parent != d {
		t.Error("another parent")
	}
	byUUID, r := lib.DeviceGetHandleByUUID(uuid)
	ok(t, r)
	if is, r := byUUID.IsMigDeviceHandle(); r != nvml.SUCCESS || !is {
		t.Errorf("%v (%d)", is, r)
	}
}

func TestProcesses(t *testing.T) {
	m := machine(t, inMIG(hopper()))
	m.CreateInstance(0, "2g.20gb", 0)
	m.CreateInstance(0, "3g.40gb", 4)
	for n, i := range m.GPU(0).Instances {
		m.StartProcess(0, fakenvml.Compute, gpu.Process{
			PID: 100 + n, Name: "python3", Memory: 512 * mib, GPUInstance: &i.ID, ComputeInstance: &i.Compute[0].ID,
		})
	}
	m.StartProcess(0, fakenvml.Watcher, gpu.Process{PID: 200, Name: "dcgm"})
	lib := session(t, m)
	d := device(t, lib, 0)
	all, r := d.GetComputeRunningProcesses()
	ok(t, r)
	if len(all) != 2 || all[1].Pid != 101 || int(all[1].GpuInstanceId) != m.GPU(0).Instances[1].ID || all[1].UsedGpuMemory != uint64(512*mib) {
		t.Errorf("%+v", all)
	}
	mig, r := lib.DeviceGetHandleByUUID(m.GPU(0).Instances[1].Compute[0].UUID)
	ok(t, r)
	own, r := mig.GetComputeRunningProcesses()
	ok(t, r)
	if len(own) != 1 || own[0].Pid != 101 {
		t.Errorf("%+v", own)
	}
	m.SetRoot(false)
	_, r = d.GetComputeRunningProcesses()
	is(t, r, nvml.ERROR_NO_PERMISSION)
}
