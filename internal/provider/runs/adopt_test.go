package runs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/adopt"
	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestAdoptionOfRandomFleets takes over random fleets that others made: every object is
// claimed once and the hardware stays as it is, a second plan is empty, a reboot loses
// nothing that reconcile does not put back, and a destroy leaves or restores what it promises.
// ADOPTIONS is how many fleets, ADOPTION_SEED the first seed.
func TestAdoptionOfRandomFleets(t *testing.T) {
	t.Parallel()
	usual := 24
	switch {
	case os.Getenv("TF_ACC") != "": // with a CLI
		usual = 3
	case testing.Short():
		usual = 8
	}
	n, first := number(t, "ADOPTIONS", usual), number(t, "ADOPTION_SEED", 1)
	for i := range n {
		seed := first + i
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			a := &adoption{t: t, rng: rand.New(rand.NewPCG(uint64(seed), 16))}
			a.make()
			a.run()
		})
	}
}

type adoption struct {
	t   *testing.T
	rng *rand.Rand
	r   *rig.Rig
}

func (a *adoption) chance(percent int) bool { return a.rng.IntN(100) < percent }

// make has others make a fleet.
func (a *adoption) make() {
	ctx := context.Background()
	var s gpu.Snapshot
	if a.chance(75) {
		one, two := rig.Node("hv01"), rig.Node("hv02")
		for i, h := range []*gpu.Host{&one, &two} {
			for n := range 4 {
				vm := rig.Desktop(fmt.Sprintf("vm %d-%d", i, n), 10*i+n+1)
				vm.Settings.AutomaticStopAction = new(gpu.StopTurnOff)
				if n > 1 || a.chance(50) {
					vm = rig.Off(vm)
				}
				h.VMs = append(h.VMs, vm)
			}
			if a.chance(20) {
				h.GPUs[1] = rig.Unpartitionable(rig.GPU1)
			}
		}
		switch a.rng.IntN(3) {
		case 0:
			s = rig.Standalone(one)
		case 1:
			s = rig.Standalone(one, two)
		default:
			s = rig.Cluster("azl", one, two)
		}
	}
	if a.chance(70) {
		s.Hosts = append(s.Hosts, rig.HGX(rig.H100, 1+a.rng.IntN(4)).Hosts...)
	}
	if a.chance(50) || len(s.Hosts) == 0 {
		s.Hosts = append(s.Hosts, rig.KVM(rig.L40s(0), rig.L40s(1), rig.L40s(2)).Hosts...)
	}
	if a.chance(40) {
		s.Hosts = append(s.Hosts, rig.GPUHost(3).Hosts...)
	}
	s.Format = gpu.SnapshotFormat
	a.r = rig.New(a.t, s)
	for i := range s.Hosts {
		h, err := a.r.Fleet.Host(s.Hosts[i].Name)
		a.r.Must(err)
		for j := range s.Hosts[i].GPUs {
			g := &s.Hosts[i].GPUs[j]
			switch {
			case g.MIG != nil:
				a.migs(j)
			case g.VGPU != nil && a.chance(70):
				a.r.Must(h.SetVirtualFunctions(ctx, g.ID, true))
				places := []gpu.VGPUPlace{{Type: "L40S-12Q"}, {Type: "L40S-12Q", Function: 1}, {Type: "L40S-24Q", Function: 2}}[:1+a.rng.IntN(3)]
				if len(places) == 3 || a.chance(30) {
					a.r.Must(h.SetHeterogeneous(ctx, g.ID, true))
				}
				for _, p := range places {
					a.r.Must(h.CreateVGPU(ctx, g.ID, p))
				}
			case g.Partitionable != nil && a.chance(60):
				a.r.Must(a.r.Fleet.SetCountOutside(ctx, s.Hosts[i].Name, g.ID, []int{2, 4, 8}[a.rng.IntN(3)]))
			}
		}
		if s.Hosts[i].Platform == gpu.HyperV {
			a.machines(&s.Hosts[i])
		}
		if s.Hosts[i].Name == "gpu01" {
			a.sharing()
		}
		if a.chance(10) { // a GPU does not answer
			a.r.EditHost(s.Hosts[i].Name, func(h *gpu.Host) {
				h.Unknown = []gpu.Unknown{{Part: gpu.PartGPUs, GPU: h.GPUs[a.rng.IntN(len(h.GPUs))].ID, Why: "it has fallen off the bus"}}
			})
		}
	}
	a.others()
}

// sharing has processes share the GPUs of gpu01: as a state of another owner declares it, whose
// records may be lost, and as people set it up by hand.
func (a *adoption) sharing() {
	ctx := context.Background()
	if a.chance(50) {
		kind := rig.MPSOf(rig.QuarterEach, rig.OnCard(0))
		if a.chance(50) {
			kind = rig.TurnsOf(rig.FourTurns, rig.OnCard(0))
		}
		rig.NewCLI(a.t, a.r.BlockOf("other")+kind+rig.ShareOf("team-a", rig.OnGPU01, "config = "+rig.SharedGPUs+".id")).Apply()
		if a.chance(30) {
			a.r.EditHost("gpu01", func(h *gpu.Host) { h.Claims = nil })
		}
	}
	for n := 1; n < 3; n++ {
		switch a.rng.IntN(4) {
		case 0:
			a.r.Must(a.r.Fleet.SetComputeModeOutside(ctx, "gpu01", rig.SharedCard(n), gpu.ComputeExclusiveProcess))
			_, err := a.r.Fleet.StartDaemonOutside(ctx, "gpu01", rig.SharedCard(n))
			a.r.Must(err)
		case 1:
			a.r.Must(a.r.Fleet.SetTimeSliceOutside(ctx, "gpu01", rig.SharedCard(n), gpu.TimeSliceLong))
		case 2:
			a.r.Must(a.r.Fleet.SetComputeModeOutside(ctx, "gpu01", rig.SharedCard(n), gpu.ComputeProhibited))
		}
	}
}

// named asserts that what is not adopted is said: what processes share without a record, shares
// without one, and GPUs that do not answer.
func (a *adoption) named(left []fleet.Left) {
	for name, h := range a.hosts() {
		want := map[string]bool{}
		for _, u := range h.Unknown {
			want[u.GPU] = true
		}
		for _, s := range h.Shares {
			want[s.Name] = true
		}
		for i := range h.GPUs {
			if g := &h.GPUs[i]; name == "gpu01" && (g.ComputeMode != gpu.ComputeDefault || g.TimeSlice != gpu.TimeSliceDefault) {
				want[g.ID] = true
			}
		}
		for _, c := range h.Claims { // each is named by itself
			for _, id := range c.GPUs {
				delete(want, id)
			}
		}
		for object := range want {
			if !slices.ContainsFunc(left, func(l fleet.Left) bool { return l.Host == name && strings.Contains(l.Object, object) }) {
				a.t.Errorf("host %s: %s is not adopted, and nothing says so: %+v", name, object, left)
			}
		}
	}
}

// migs gives a GPU of hgx01 a layout.
func (a *adoption) migs(n int) {
	layouts := [][]gpu.MIGPlacement{
		{},
		{rig.At("3g.40gb", 0)},
		{rig.At("3g.40gb", 4)},
		{rig.At("3g.40gb", 0), rig.At("3g.40gb", 4)},
		{rig.At("1g.10gb", 0), rig.At("1g.10gb", 3), rig.At("2g.20gb", 4)},
		{rig.At("7g.80gb", 0)},
	}
	if a.chance(25) {
		return
	}
	a.r.Must(a.r.Fleet.SetMIGModeOutside(context.Background(), "hgx01", rig.MIGGPU(n), true))
	for _, p := range layouts[a.rng.IntN(len(layouts))] {
		a.r.CreateOutside(n, p)
	}
}

// machines gives VMs of a host partitions, GPUs of a pool, or a GPU by itself.
func (a *adoption) machines(h *gpu.Host) {
	switch a.rng.IntN(3) {
	case 0:
		a.r.SetPool(h.Name, "render farm", rig.GPU1)
		if a.chance(50) {
			a.r.Draw(h.VMs[3].Name, "render farm")
		}
	case 1:
		host, err := a.r.Fleet.Host(h.Name)
		a.r.Must(err)
		a.r.Must(host.DismountDevice(context.Background(), rig.GPU1, true))
		_, err = host.AddDevice(context.Background(), h.VMs[3].ID, gpu.DeviceAssignment{GPU: rig.GPU1})
		a.r.Must(err)
	}
	for n := range 3 {
		if a.chance(50) {
			// One that finds no partition has none.
			_, _ = a.r.Fleet.AddForeignAdapter(context.Background(), h.VMs[n].Name)
			if a.chance(60) {
				a.scripted(h.Name, h.VMs[n].ID)
			}
		}
	}
}

// scripted gives the adapter of a VM the quotas that the public scripts for GPU-P write, in bytes.
func (a *adoption) scripted(host, vm string) {
	most := []uint64{100_000_000, 900_000_000}[a.rng.IntN(2)]
	a.r.EditHost(host, func(h *gpu.Host) {
		v, ok := h.VM(vm)
		if ok && len(v.PartitionAdapters) > 0 {
			v.PartitionAdapters[0].Quotas = gpu.Quotas{
				VRAM:   gpu.Quota{Min: new(uint64(80_000_000)), Max: &most, Optimal: &most},
				Encode: gpu.Quota{Min: new(uint64(10)), Max: new(uint64(11)), Optimal: new(uint64(10))},
			}
		}
	})
}

func (a *adoption) hosts() map[string]*gpu.Host {
	out, s := map[string]*gpu.Host{}, a.r.Snapshot()
	for i := range s.Hosts {
		out[s.Hosts[i].Name] = &s.Hosts[i]
	}
	return out
}

// others has another state claim some of it.
func (a *adoption) others() {
	found, _ := fleet.Adoptables(a.hosts(), "other")
	for i, x := range found {
		if !a.chance(12) || x.Claim != nil {
			continue
		}
		for _, name := range x.Hosts {
			a.r.EditHost(name, func(h *gpu.Host) {
				c := gpu.Claim{Kind: x.Kind(), Token: fmt.Sprint("t", i), Owner: "other", Want: x.Want, Revision: 1}
				switch w := x.Want; {
				case w.Config != nil:
					w.Config.ID = fmt.Sprint("theirs", i)
					c.ID, c.GPUs = w.Config.ID, w.Config.GPUs[name]
				case w.Pool != nil:
					c.ID, c.GPUs = w.Pool.Name, w.Pool.Members[name]
				default:
					c.ID = w.Assignment.VMID
				}
				h.Claims = append(h.Claims, c)
			})
		}
	}
}

func (a *adoption) run() {
	before := a.r.Snapshot()
	objects, left := adopt.Objects(a.hosts())
	a.named(left)
	hcl := string(adopt.HCL(objects, left))
	defer func() {
		if a.t.Failed() {
			a.t.Logf("generated:\n%s", hcl)
		}
	}()
	c := rig.NewCLI(a.t, a.r.Block()+hcl)
	queried := c.Terminal == nil && a.chance(50) && hasQuery(c)
	if queried {
		c.Write(a.r.Block())
		rig.Write(a.t, filepath.Join(c.Dir, "all.tfquery.hcl"), everything)
		c.Ok("query", "-generate-config-out=adopted.tf")
	}
	c.Apply()
	after := a.r.Snapshot()
	rig.SameHardware(a.t, before, after)
	a.once(after)
	c.WantNoChanges()

	for i := range before.Hosts {
		a.r.Must(a.r.Fleet.Reboot(context.Background(), before.Hosts[i].Name))
	}
	for i := range before.Hosts {
		h, err := a.r.Fleet.Host(before.Hosts[i].Name)
		a.r.Must(err)
		settled, err := agent.NewServer(h, h).Reconcile(context.Background(), time.Second)
		if err != nil {
			a.t.Fatalf("reconcile: %v, %+v", err, settled)
		}
	}
	want := layouts(after)
	if diff := cmp.Diff(want, layouts(a.r.Snapshot())); diff != "" {
		a.t.Fatalf("a reboot lost what reconcile should put back (-before +after):\n%s", diff)
	}
	c.WantNoChanges()

	if queried {
		return // the configuration is another one
	}
	if a.chance(50) {
		// One that restores gives its GPUs back what they had when it was imported.
		other := mig.ReplaceAllString(hcl, `  mig = { profiles = { "1g.10gb" = 1, "2g.20gb" = 1 } }`+"\n")
		c.Write(a.r.Block() + strings.ReplaceAll(other, "  hosts = [\"hgx01\"]\n", "  hosts = [\"hgx01\"]\n  on_destroy = \"restore\"\n"))
		c.Apply()
		c.WantNoChanges()
	}
	// A config that goes keeps what its GPUs have.
	objects = slices.DeleteFunc(objects, func(o adopt.Object) bool { return o.Type == "gpu_partition_config" })
	kept := string(adopt.HCL(objects, left))
	c.Write(a.r.Block() + kept)
	c.Apply()
	mine := a.r.Snapshot()
	for i := range mine.Hosts { // look at the same GPUs as before
		for j := range after.Hosts[i].Claims {
			if after.Hosts[i].Claims[j].Kind == gpu.ClaimConfig && after.Hosts[i].Claims[j].Owner == "test" {
				mine.Hosts[i].Claims = append(mine.Hosts[i].Claims, after.Hosts[i].Claims[j])
			}
		}
	}
	if diff := cmp.Diff(want, layouts(mine)); diff != "" {
		a.t.Fatalf("a destroy that keeps changed the hosts (-before +after):\n%s", diff)
	}
}

// hasQuery tells whether a CLI has `terraform query`.
func hasQuery(c *rig.CLI) bool {
	_, code := c.Run("query", "-help")
	return code == 0
}

// everything lists what can be adopted, for `terraform query`.
const everything = `
list "gpu_partition_config" "all" { provider = gpu }
list "gpu_pool" "all" { provider = gpu }
list "gpu_vm_assignment" "all" { provider = gpu }
list "gpu_share" "all" { provider = gpu }
`

// mig is the layout of a config as it is written.
var mig = regexp.MustCompile(`(?s)  mig = \{.*?\n  \}\n`)

// layouts are those of the GPUs that this state has claimed, and what VMs and pools have.
func layouts(s gpu.Snapshot) map[string]string {
	out := map[string]string{}
	for _, h := range s.Hosts {
		for _, c := range h.Claims {
			if slices.ContainsFunc(c.GPUs, func(id string) bool { return silent(&h, id) }) {
				continue // nobody can put back what does not answer
			}
			if w := c.Want.Config; w != nil && (w.MPS != nil || w.TimeSlicing != nil) { // another state's, which reconcile restores too
				for _, id := range c.GPUs {
					g, _ := h.GPU(id)
					out[h.Name+" "+id] = fmt.Sprint(g.ComputeMode, " ", g.TimeSlice)
				}
				for _, d := range h.MPS.Daemons {
					if d.Name != "" {
						out["daemon "+d.Name] = fmt.Sprint(d.Devices, d.PID != 0)
					}
				}
				for _, s := range h.Shares {
					out["share "+s.Name] = s.CDIDevice + s.Outdated
				}
				continue
			}
			if c.Kind != gpu.ClaimConfig || c.Owner != "test" {
				continue
			}
			for _, id := range c.GPUs {
				g, _ := h.GPU(id)
				l := g.Layout()
				if l.VGPU != nil {
					for i := range l.VGPU.Places {
						l.VGPU.Places[i].UUID = ""
					}
				}
				raw, _ := json.Marshal(l)
				out[h.Name+" "+id] = string(raw)
			}
		}
		for _, v := range h.VMs {
			out["VM "+v.Name] = fmt.Sprint(len(v.PartitionAdapters), " partitions, ", len(v.Devices), " devices")
		}
		for _, p := range h.Pools {
			out[h.Name+" pool "+p.Name] = fmt.Sprint(p.GPUs)
		}
	}
	return out
}

// silent tells whether a GPU does not answer.
func silent(h *gpu.Host, id string) bool {
	_, is := h.UnknownGPU(id)
	return is
}

// once asserts that each GPU with a layout, each pool and each VM with a GPU is claimed once.
func (a *adoption) once(s gpu.Snapshot) {
	for _, h := range s.Hosts {
		n := map[string]int{}
		for _, c := range h.Claims {
			if n[string(c.Kind)+" "+c.ID]++; c.Kind == gpu.ClaimConfig {
				for _, id := range c.GPUs {
					n[id]++
				}
			}
		}
		want := map[string]int{}
		for _, g := range h.GPUs {
			if g.Partitionable != nil && !g.Dismounted || g.MIG != nil && g.MIG.Enabled || g.VGPU != nil && len(g.VGPU.Instances) > 0 {
				want[g.ID] = 1
			}
			if silent(&h, g.ID) || g.MIG == nil && g.VGPU == nil && g.Partitionable == nil {
				continue // claimed by nobody, or by who has processes share it
			}
			if n[g.ID] != want[g.ID] {
				a.t.Errorf("host %s: GPU %s is in %d configs, want %d", h.Name, g.ID, n[g.ID], want[g.ID])
			}
		}
		for _, v := range h.VMs {
			has := map[bool]int{
				true: 1,
			}[len(v.PartitionAdapters)+len(v.Devices) > 0 &&
				!slices.ContainsFunc(v.Devices, func(d gpu.DeviceAssignment) bool { return silent(&h, d.GPU) })]
			if got := n["vm_assignment "+v.ID]; got != has {
				a.t.Errorf("host %s: VM %s has %d claims, want %d", h.Name, v.Name, got, has)
			}
		}
		for _, p := range h.Pools {
			want := 1
			for i := range s.Hosts { // one name in a cluster is one pool
				if o, ok := s.Hosts[i].Pool(p.Name); ok && (s.Hosts[i].Name == h.Name || h.Cluster != nil && s.Hosts[i].Cluster != nil) &&
					slices.ContainsFunc(o.GPUs, func(id string) bool { return silent(&s.Hosts[i], id) }) && n["pool "+p.Name] == 0 {
					want = 0
				}
			}
			if got := n["pool "+p.Name]; got != want {
				a.t.Errorf("host %s: pool %s has %d claims, want %d", h.Name, p.Name, got, want)
			}
		}
	}
}
