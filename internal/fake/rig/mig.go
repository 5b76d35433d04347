package rig

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// MIGGPU is the id of a GPU of hgx01.
func MIGGPU(n int) string { return fmt.Sprintf("GPU-90000000-0000-4000-8000-%012d", n) }

// MIGCard is a GPU of a model with MIG, whose mode is off.
func MIGCard(n int, model string) gpu.GPU {
	m, ok := catalog.ByName(model)
	if !ok || m.MIG == nil {
		panic("the catalog has no MIG for " + model)
	}
	return gpu.GPU{
		ID: MIGGPU(n), Model: m.Name, Vendor: m.Vendor, PCI: gpu.PCIID{Vendor: "10DE", Device: m.Devices[0]}, VRAM: m.VRAM,
		Driver: gpu.Driver{Version: "580.82.07"}, Address: fmt.Sprintf("0000:%02x:00.0", 0x1a+n), ComputeMode: gpu.ComputeDefault,
		Minor: new(n), Cores: fmt.Sprintf("%d-%d", 16*n, 16*n+15), NUMANode: new(n / 4),
		MIG: &gpu.MIG{NeedsReset: m.MIG.ModeNeedsReset, Profiles: m.MIG.Profiles},
	}
}

// HGX is the Linux host hgx01 with GPUs of a model, numbered from 0 on.
func HGX(model string, n int) gpu.Snapshot {
	h := gpu.Host{
		Name: "hgx01", Platform: gpu.Linux, OS: gpu.OS{Name: "Ubuntu 24.04.3 LTS"}, VMs: []gpu.VM{}, Pools: []gpu.Pool{},
		Units: []string{"nvidia-dcgm.service", "nvidia-persistenced.service"},
	}
	for i := range n {
		h.GPUs = append(h.GPUs, MIGCard(i, model))
	}
	return Standalone(h)
}

// Models of hgx.
const (
	H100 = "H100 80GB HBM3"
	A100 = "A100-SXM4-80GB"
)

// MIGOf is a config of a name that is its label too, on hgx01, with more arguments.
func MIGOf(name, layout string, more ...string) string {
	return fmt.Sprintf("resource \"gpu_partition_config\" %q {\n  name  = %q\n  hosts = [\"hgx01\"]\n  mig   = { %s }\n  %s\n}\n",
		name, name, layout, strings.Join(more, "\n  "))
}

// ML is the address of the config "ml".
const ML = "gpu_partition_config.ml"

// Layouts of GPUs with 80 GB.
const (
	SevenSmall = `profiles = { "1g.10gb" = 7 }`
	Halves     = `profiles = { "3g.40gb" = 2 }`
	Balanced   = `profiles = { "3g.40gb" = 1, "2g.20gb" = 1, "1g.10gb" = 2 }`
	Written    = `placements = [{ profile = "3g.40gb", start = 4 }, { profile = "1g.10gb", start = 0 }]`
)

// OnGPUs selects GPUs of hgx01.
func OnGPUs(n ...int) string {
	ids := make([]string, len(n))
	for i, g := range n {
		ids[i] = fmt.Sprintf("%q", MIGGPU(g))
	}
	return "selector = { gpu_ids = { hgx01 = [" + strings.Join(ids, ", ") + "] } }"
}

// MIG is the MIG of a GPU of hgx01 as the host has it now.
func (r *Rig) MIG(n int) *gpu.MIG {
	r.T.Helper()
	g, ok := r.Host("hgx01").GPU(MIGGPU(n))
	if !ok {
		r.T.Fatalf("hgx01 has no GPU %s", MIGGPU(n))
	}
	return g.MIG
}

// Layout writes what a GPU of hgx01 has: "off", or instances like "3g.40gb@4".
func (r *Rig) Layout(n int) string {
	r.T.Helper()
	s := r.MIG(n).State()
	if !s.Enabled {
		return "off"
	}
	out := []string{}
	for _, p := range s.Placements {
		out = append(out, fmt.Sprintf("%s@%d", p.Profile, p.Start))
	}
	return strings.Join(out, " ")
}

// WantLayout asserts what GPUs of hgx01 have.
func (r *Rig) WantLayout(want string, n ...int) {
	r.T.Helper()
	for _, i := range n {
		if got := r.Layout(i); got != want {
			r.T.Errorf("%s has %q, want %q", MIGGPU(i), got, want)
		}
	}
}

// Devices are the UUIDs of the MIG devices of GPUs of hgx01, by place.
func (r *Rig) Devices(n ...int) map[string]string {
	r.T.Helper()
	out := map[string]string{}
	for _, i := range n {
		for _, in := range r.MIG(i).Instances {
			uuids := []string{}
			for _, c := range in.Compute {
				uuids = append(uuids, c.UUID)
			}
			out[fmt.Sprintf("%d %s@%d", i, in.Profile, in.Start)] = strings.Join(uuids, " ")
		}
	}
	return out
}

// At is a place for an instance.
func At(profile string, start int) gpu.MIGPlacement {
	return gpu.MIGPlacement{Profile: profile, Start: start}
}

// Runs starts a process on a GPU of hgx01, in an instance or beside them.
func (r *Rig) Runs(n int, where *gpu.MIGPlacement, name string) (pid int) {
	r.T.Helper()
	pid, err := r.Fleet.StartProcess(r.T.Context(), "hgx01", MIGGPU(n), where, gpu.Process{Name: name, Holder: "container 3f2a"})
	r.Must(err)
	return pid
}

// CreateOutside and destroyOutside are what others do to an instance.
func (r *Rig) CreateOutside(n int, p gpu.MIGPlacement) {
	r.T.Helper()
	r.Must(r.Fleet.CreateInstanceOutside(r.T.Context(), "hgx01", MIGGPU(n), p))
}

// DestroyOutside removes an instance as somebody else would.
func (r *Rig) DestroyOutside(n int, p gpu.MIGPlacement) {
	r.T.Helper()
	r.Must(r.Fleet.DestroyInstanceOutside(r.T.Context(), "hgx01", MIGGPU(n), p))
}

// Watches gives hgx01 a unit that keeps all GPUs open.
func (r *Rig) Watches(unit string) {
	r.T.Helper()
	r.Must(r.Fleet.SetUnit(r.T.Context(), "hgx01", unit, simulated.Unit{HoldsGPUs: true}, true))
}

// WantRuns asserts that units of hgx01 run.
func (r *Rig) WantRuns(units ...string) {
	r.T.Helper()
	for _, u := range units {
		if !slices.Contains(r.Host("hgx01").Units, u) {
			r.T.Errorf("unit %s does not run; those that do are %v", u, r.Host("hgx01").Units)
		}
	}
}

// H100Memory is the memory of a profile in MiB.
func H100Memory(t *testing.T, profile string) int64 {
	t.Helper()
	p, ok := MIGCard(0, H100).MIG.Profile(profile)
	if !ok {
		t.Fatalf("no profile %s", profile)
	}
	return p.Memory.MiB()
}
