package provider_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// migGPU is the id of a GPU of hgx01.
func migGPU(n int) string { return fmt.Sprintf("GPU-90000000-0000-4000-8000-%012d", n) }

// migCard is a GPU of a model with MIG, whose mode is off.
func migCard(n int, model string) gpu.GPU {
	m, ok := catalog.ByName(model)
	if !ok || m.MIG == nil {
		panic("the catalog has no MIG for " + model)
	}
	return gpu.GPU{
		ID: migGPU(n), Model: m.Name, Vendor: m.Vendor, PCI: gpu.PCIID{Vendor: "10DE", Device: m.Devices[0]}, VRAM: m.VRAM,
		Driver: gpu.Driver{Version: "580.82.07"}, Address: fmt.Sprintf("0000:%02x:00.0", 0x1a+n), ComputeMode: gpu.ComputeDefault,
		MIG: &gpu.MIG{NeedsReset: m.MIG.ModeNeedsReset, Profiles: m.MIG.Profiles},
	}
}

// hgx is the Linux host hgx01 with GPUs of a model, numbered from 0 on.
func hgx(model string, n int) gpu.Snapshot {
	h := gpu.Host{
		Name: "hgx01", Platform: gpu.Linux, OS: gpu.OS{Name: "Ubuntu 24.04.3 LTS"}, VMs: []gpu.VM{}, Pools: []gpu.Pool{},
		Units: []string{"nvidia-dcgm.service", "nvidia-persistenced.service"},
	}
	for i := range n {
		h.GPUs = append(h.GPUs, migCard(i, model))
	}
	return standalone(h)
}

// Models of hgx.
const (
	h100 = "H100 80GB HBM3"
	a100 = "A100-SXM4-80GB"
)

// migOf is a config of a name that is its label too, on hgx01, with more arguments.
func migOf(name, layout string, more ...string) string {
	return fmt.Sprintf("resource \"gpu_partition_config\" %q {\n  name  = %q\n  hosts = [\"hgx01\"]\n  mig   = { %s }\n  %s\n}\n",
		name, name, layout, strings.Join(more, "\n  "))
}

// ml is the address of the config "ml".
const ml = "gpu_partition_config.ml"

// Layouts of GPUs with 80 GB.
const (
	sevenSmall = `profiles = { "1g.10gb" = 7 }`
	halves     = `profiles = { "3g.40gb" = 2 }`
	balanced   = `profiles = { "3g.40gb" = 1, "2g.20gb" = 1, "1g.10gb" = 2 }`
	written    = `placements = [{ profile = "3g.40gb", start = 4 }, { profile = "1g.10gb", start = 0 }]`
)

// onGPUs selects GPUs of hgx01.
func onGPUs(n ...int) string {
	ids := make([]string, len(n))
	for i, g := range n {
		ids[i] = fmt.Sprintf("%q", migGPU(g))
	}
	return "selector = { gpu_ids = { hgx01 = [" + strings.Join(ids, ", ") + "] } }"
}

// mig is the MIG of a GPU of hgx01 as the host has it now.
func (r *rig) mig(n int) *gpu.MIG {
	r.t.Helper()
	g, ok := r.host("hgx01").GPU(migGPU(n))
	if !ok {
		r.t.Fatalf("hgx01 has no GPU %s", migGPU(n))
	}
	return g.MIG
}

// layout writes what a GPU of hgx01 has: "off", or instances like "3g.40gb@4".
func (r *rig) layout(n int) string {
	r.t.Helper()
	s := r.mig(n).State()
	if !s.Enabled {
		return "off"
	}
	out := []string{}
	for _, p := range s.Placements {
		out = append(out, fmt.Sprintf("%s@%d", p.Profile, p.Start))
	}
	return strings.Join(out, " ")
}

// wantLayout asserts what GPUs of hgx01 have.
func (r *rig) wantLayout(want string, n ...int) {
	r.t.Helper()
	for _, i := range n {
		if got := r.layout(i); got != want {
			r.t.Errorf("%s has %q, want %q", migGPU(i), got, want)
		}
	}
}

// devices are the UUIDs of the MIG devices of GPUs of hgx01, by place.
func (r *rig) devices(n ...int) map[string]string {
	r.t.Helper()
	out := map[string]string{}
	for _, i := range n {
		for _, in := range r.mig(i).Instances {
			uuids := []string{}
			for _, c := range in.Compute {
				uuids = append(uuids, c.UUID)
			}
			out[fmt.Sprintf("%d %s@%d", i, in.Profile, in.Start)] = strings.Join(uuids, " ")
		}
	}
	return out
}

func at(profile string, start int) gpu.MIGPlacement {
	return gpu.MIGPlacement{Profile: profile, Start: start}
}

// runs starts a process on a GPU of hgx01, in an instance or beside them.
func (r *rig) runs(n int, where *gpu.MIGPlacement, name string) (pid int) {
	r.t.Helper()
	pid, err := r.fleet.StartProcess(r.t.Context(), "hgx01", migGPU(n), where, gpu.Process{Name: name, Holder: "container 3f2a"})
	r.must(err)
	return pid
}

// createOutside and destroyOutside are what others do to an instance.
func (r *rig) createOutside(n int, p gpu.MIGPlacement) {
	r.t.Helper()
	r.must(r.fleet.CreateInstanceOutside(r.t.Context(), "hgx01", migGPU(n), p))
}

func (r *rig) destroyOutside(n int, p gpu.MIGPlacement) {
	r.t.Helper()
	r.must(r.fleet.DestroyInstanceOutside(r.t.Context(), "hgx01", migGPU(n), p))
}

// watches gives hgx01 a unit that keeps all GPUs open.
func (r *rig) watches(unit string) {
	r.t.Helper()
	r.must(r.fleet.SetUnit(r.t.Context(), "hgx01", unit, simulated.Unit{HoldsGPUs: true}, true))
}

// wantRuns asserts that units of hgx01 run.
func (r *rig) wantRuns(units ...string) {
	r.t.Helper()
	for _, u := range units {
		if !slices.Contains(r.host("hgx01").Units, u) {
			r.t.Errorf("unit %s does not run; those that do are %v", u, r.host("hgx01").Units)
		}
	}
}
