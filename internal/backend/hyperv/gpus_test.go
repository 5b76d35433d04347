package hyperv_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// partitionsHeld are the VMs that hold partitions of a GPU.
func partitionsHeld(g gpu.GPU) []string {
	var out []string
	if g.Partitionable == nil {
		return nil
	}
	for _, p := range g.Partitionable.Partitions {
		out = append(out, p.VMID)
	}
	return out
}

// Two GPUs of one model are told apart, whether a partition shows the path of its GPU
// or that of its virtual function.
func TestTwoGPUsOfOneModel(t *testing.T) {
	t.Parallel()
	for _, functions := range []bool{false, true} {
		r := newRig(t)
		if functions {
			r.machine.FunctionPaths()
		}
		_, err := r.backend.AddPartitionAdapter(t.Context(), alpha, pinnedTo(gpuB))
		r.run(err, r.backend.StartVM(t.Context(), alpha))
		r.seated(beta) // on A, which is the emptier one
		a, b := r.gpu(gpuA), r.gpu(gpuB)
		if !slices.Equal(partitionsHeld(a), []string{beta}) || !slices.Equal(partitionsHeld(b), []string{alpha}) {
			t.Errorf("functions %t: A holds %v, B holds %v", functions, partitionsHeld(a), partitionsHeld(b))
		}
		refuses(t, r.backend.SetPartitionCount(t.Context(), gpuB, 8), backend.InUse, "VM alpha")
		r.run(r.backend.TurnOffVM(t.Context(), alpha), r.backend.SetPartitionCount(t.Context(), gpuB, 8))
		if a, b := r.gpu(gpuA), r.gpu(gpuB); a.Partitionable.Count != 4 || b.Partitionable.Count != 8 {
			t.Errorf("the counts are %d and %d", a.Partitionable.Count, b.Partitionable.Count)
		}
	}
}

// showing makes partitions show a path.
func showing(r *rig, path string) {
	r.wire.change(func(w *wire) {
		w.rows = func(wql string, rows []hyperv.Row) []hyperv.Row {
			if wql == "SELECT * FROM Msvm_GpuPartition" {
				for _, row := range rows {
					row.Values["DeviceInstancePath"] = path
				}
			}
			return rows
		}
	})
}

// A partition whose path is none of a GPU's goes by the adapter's pin, by its vendor, or
// cannot be told: taken for free, it would be given out twice.
func TestPartitionsOfNoGPU(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, err := r.backend.AddPartitionAdapter(t.Context(), alpha, pinnedTo(gpuB))
	r.run(err, r.backend.StartVM(t.Context(), alpha))
	showing(r, `SWD\VIRTUAL\4711`)
	if b := r.gpu(gpuB); !slices.Equal(partitionsHeld(b), []string{alpha}) {
		t.Errorf("the pinned GPU holds %v", partitionsHeld(b))
	}

	r = newRig(t)
	r.seated(alpha)
	for _, path := range []string{`SWD\VIRTUAL\4711`, "", `PCI\VEN_10DE&DEV_25B6&SUBSYS_157E10DE&REV_A1\5&ffffffff&0&0008`} {
		showing(r, path)
		h := r.host()
		wantUnknown(t, h, gpu.PartPartitions, "VM alpha", "cannot be told", "gpu-agent selftest")
		for _, id := range []string{gpuA, gpuB} { // it may be either
			refuses(t, r.backend.SetPartitionCount(t.Context(), id, 8), backend.Unavailable, "VM alpha")
			refuses(t, r.backend.DismountDevice(t.Context(), id, false), backend.Unavailable, "VM alpha")
		}
		_, err := r.backend.AddPartitionAdapter(t.Context(), beta, pinnedTo(gpuA)) // which does not concern it
		r.run(err)
		for _, a := range r.vm(beta).PartitionAdapters {
			r.run(r.backend.RemovePartitionAdapter(t.Context(), beta, a.ID))
		}
	}
	r.run(r.backend.TurnOffVM(t.Context(), alpha))
	if h := r.host(); len(h.Unknown) > 0 {
		t.Errorf("a VM that is off leaves open %v", h.Unknown)
	}

	// One GPU of the vendor: it can be no other.
	r = newRig(t, onHost(func(h *gpu.Host) {
		h.GPUs[1].PCI = gpu.PCIID{Vendor: "1002", Device: "73A1", Subsystem: "0E3A1002"}
		h.GPUs[1].InstancePath = `PCI\VEN_1002&DEV_73A1&SUBSYS_0E3A1002&REV_00\4&2b7d3f10&0&0000`
		h.GPUs[1].Partitionable.Name = `\\?\PCI#VEN_1002&DEV_73A1&SUBSYS_0E3A1002&REV_00#4&2b7d3f10&0&0000#` + interfaceClass
		h.GPUs[1].Partitionable.Count, h.GPUs[1].Vendor = 1, "AMD"
	}))
	r.seated(alpha)
	showing(r, `PCI\VEN_10DE&DEV_25B7\9&1&0&1`)
	if a := r.gpu(gpuA); !slices.Equal(partitionsHeld(a), []string{alpha}) {
		t.Errorf("the only GPU of the vendor holds %v", partitionsHeld(a))
	}
}

// A partition of an adapter that is none of our GPUs is no concern of theirs.
func TestPartitionsOfOtherAdapters(t *testing.T) {
	t.Parallel()
	const other = `\\?\PCI#VEN_1414&DEV_008E&SUBSYS_00000000&REV_00#3&11583659&0&10#` + interfaceClass + `\GPUPARAV`
	r := newRig(t)
	r.seated(alpha)
	r.wire.change(func(w *wire) {
		w.rows = func(wql string, rows []hyperv.Row) []hyperv.Row {
			switch wql {
			case "SELECT * FROM Msvm_PartitionableGpu":
				return append(rows, hyperv.Row{Path: "x", Values: map[string]any{"Name": other, "PartitionCount": int32(32)}})
			case "SELECT * FROM Msvm_GpuPartition":
				for _, row := range rows {
					row.Values["DeviceInstancePath"] = other
				}
			}
			return rows
		}
	})
	host := r.host()
	if len(host.GPUs) != 4 || len(partitionsHeld(gpuOf(host, gpuA))) != 0 || len(partitionsHeld(gpuOf(host, gpuB))) != 0 {
		t.Errorf("the GPUs are %+v", host.GPUs)
	}
}

// A GPU may have a paravirtual face beside its real one, in any order; one that has no
// other is paravirtual, and its count is fixed.
func TestParavirtualGPUs(t *testing.T) {
	t.Parallel()
	for _, first := range []bool{false, true} {
		r := newRig(t)
		r.wire.change(func(w *wire) {
			w.rows = func(wql string, rows []hyperv.Row) []hyperv.Row {
				if wql != "SELECT * FROM Msvm_PartitionableGpu" {
					return rows
				}
				face := hyperv.Row{Path: "x", Values: map[string]any{
					"Name": rows[0].String("Name") + `\GPUPARAV`, "PartitionCount": int32(32), "ValidPartitionCounts": []any{int32(32)},
				}}
				if first {
					return append([]hyperv.Row{face}, rows...)
				}
				return append(rows, face)
			}
		})
		if a := r.gpu(gpuA); a.Partitionable.Paravirtual || a.Partitionable.Count != 4 || a.Status != gpu.Partitioned {
			t.Errorf("first %t: the GPU is %+v", first, a)
		}
	}
	r := newRig(t, onHost(func(h *gpu.Host) {
		p := h.GPUs[0].Partitionable
		p.Name, p.Paravirtual, p.Count, p.ValidCounts = p.Name+`\GPUPARAV`, true, 32, []int{32, 16}
	}))
	a := r.gpu(gpuA)
	if !a.Partitionable.Paravirtual || a.Status != gpu.Paravirtualization {
		t.Errorf("the GPU is %+v", a)
	}
	refuses(t, r.backend.SetPartitionCount(t.Context(), gpuA, 16), backend.NotSupported, "paravirtual", "fixed at 32")
	_, err := r.backend.AddPartitionAdapter(t.Context(), alpha, pinnedTo(gpuA))
	r.run(err, r.backend.StartVM(t.Context(), alpha))
	if a := r.gpu(gpuA); !slices.Equal(partitionsHeld(a), []string{alpha}) {
		t.Errorf("it holds %v", partitionsHeld(a))
	}
}

// The display adapters of a management controller and of a remote desktop, a GPU's
// audio function and a network adapter are no GPUs; a GPU without a driver is one.
func TestWhatIsNoGPU(t *testing.T) {
	t.Parallel()
	r := newRig(t, onHost(func(h *gpu.Host) { h.GPUs[0].Problem, h.GPUs[0].Partitionable = "CM_PROB_FAILED_INSTALL (28)", nil }))
	host := r.host()
	var ids []string
	for _, g := range host.GPUs {
		ids = append(ids, g.ID)
		if g.HostDisplay {
			t.Errorf("%s drives the console", g.ID)
		}
	}
	if !slices.Equal(ids, []string{gpuA, gpuB, gpuC, gpuD}) {
		t.Errorf("the GPUs are %v", ids)
	}
	if g := gpuOf(host, gpuA); g.Model != "NVIDIA A2" || !strings.Contains(g.Problem, "CM_PROB_FAILED_INSTALL") {
		t.Errorf("a GPU without a driver is %+v", g)
	}
}

// The memory of a port above a GPU may begin where the GPU's does, and a range is known
// by its start alone.
func TestMemoryOfPortsIsNotTheGPUs(t *testing.T) {
	t.Parallel()
	for _, first := range []bool{false, true} {
		r := newRig(t)
		want := r.gpu(gpuA).MMIO
		r.wire.change(func(w *wire) {
			w.rows = func(wql string, rows []hyperv.Row) []hyperv.Row {
				if wql != "SELECT * FROM Win32_DeviceMemoryAddress" {
					return rows
				}
				var windows []hyperv.Row
				for _, row := range rows {
					windows = append(windows, hyperv.Row{Path: row.Path, Values: map[string]any{
						"StartingAddress": row.String("StartingAddress"), "EndingAddress": "1099511627775",
					}})
				}
				if first {
					return append(windows, rows...)
				}
				return append(rows, windows...)
			}
		})
		if got := r.gpu(gpuA).MMIO; got != want || want.Low != 16*gpu.MiB || want.High != 16384*gpu.MiB {
			t.Errorf("first %t: the GPU needs %+v, want %+v", first, got, want)
		}
	}
}

// A driver that divides its GPU anew may be gone for a moment.
func TestTheDriverStartsAnew(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	looks := 0
	r.wire.change(func(w *wire) {
		w.get = func(path string) error {
			if looks++; looks < 3 && strings.Contains(path, "Msvm_PartitionableGpu") {
				return &hyperv.Fault{Code: hyperv.NotFound, Op: "get " + path}
			}
			return nil
		}
	})
	r.run(r.backend.SetPartitionCount(t.Context(), gpuA, 8))
	if a := r.gpu(gpuA); a.Partitionable.Count != 8 || looks < 3 {
		t.Errorf("the count is %d after %d looks", a.Partitionable.Count, looks)
	}
}

// A VM that starts between the look and the write is named: the refusal is a number that
// says nothing.
func TestAPartitionIsTakenBeforeTheCountIsSet(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, err := r.backend.AddPartitionAdapter(t.Context(), alpha, pinnedTo(gpuA))
	r.run(err)
	late := hyperv.New(&beforePut{r.wire, func() { r.run(r.fleet.SetVMState(t.Context(), alpha, gpu.VMRunning)) }})
	refuses(t, late.SetPartitionCount(t.Context(), gpuA, 8), backend.InUse, "VM alpha", "0x80041001")
	if a := r.gpu(gpuA); a.Partitionable.Count != 4 {
		t.Errorf("the count is %d", a.Partitionable.Count)
	}
}

// An error of a write that nobody's VM explains is given as it is.
func TestACountThatIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.machine.Deny("Msvm_PartitionableGpu.Put")
	refuses(t, r.backend.SetPartitionCount(t.Context(), gpuA, 8), backend.AccessDenied, "Msvm_PartitionableGpu")
	refuses(t, r.backend.SetPartitionCount(t.Context(), gpuA, 3), backend.InvalidParameter, "no 3 partitions, only 1, 2, 4, 8, 16")
	refuses(t, r.backend.SetPartitionCount(t.Context(), gpuC, 8), backend.NotSupported, "dismounted")
	refuses(t, r.backend.SetPartitionCount(t.Context(), "PCIROOT(99)", 8), backend.NotFound)
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	for _, p := range []gpu.Policies{
		{}, {RequireSecureDeviceAssignment: ptr(true)}, {RequireSecureDeviceAssignment: ptr(false), RequireSupportedDeviceAssignment: ptr(true)},
	} {
		r := newRig(t, onHost(func(h *gpu.Host) { h.Policies = p }))
		got := r.host().Policies
		for _, pair := range [][2]*bool{
			{got.RequireSecureDeviceAssignment, p.RequireSecureDeviceAssignment},
			{got.RequireSupportedDeviceAssignment, p.RequireSupportedDeviceAssignment},
		} {
			if (pair[0] == nil) != (pair[1] == nil) || (pair[0] != nil && *pair[0] != *pair[1]) {
				t.Errorf("the policies are %+v, want %+v", got, p)
			}
		}
	}
	// A value of another type binds nothing.
	for _, answer := range []uint32{1, 0x80041005} {
		r := newRig(t)
		r.machine.Answer("GetDWORDValue", answer)
		if p := r.host().Policies; p.RequireSecureDeviceAssignment != nil || p.RequireSupportedDeviceAssignment != nil {
			t.Errorf("the policies are %+v", p)
		}
	}
}

// beforePut does something just before a write.
type beforePut struct {
	hyperv.WMI
	do func()
}

func (b *beforePut) Put(ctx context.Context, namespace, path string, set map[string]any) error {
	b.do()
	return b.WMI.Put(ctx, namespace, path, set)
}
