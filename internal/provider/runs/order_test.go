package runs_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/core"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Changes of one run that can only succeed in one order are done right in every order that
// Terraform may choose, or refused by every plan, with the way out; no VM is stopped for what
// cannot end well.
func TestChangesThatHaveOneOrder(t *testing.T) {
	t.Parallel()
	pinned := func(name, vm, id string) string {
		return rig.AssignmentOf(name, vm, `partition = { gpu_id = "`+id+`" }`)
	}
	device := func(name, vm, id string) string {
		return rig.AssignmentOf(name, vm, `device = { host = "edge", gpu_ids = ["`+id+`"] }`, rig.WholeGPU(1))
	}
	pool := "resource \"gpu_pool\" \"p\" {\n  name = \"render\"\n  members = { edge = [\"" + rig.GPU1 + "\"] }\n}\n"
	pools := func(ids ...string) string {
		return fmt.Sprintf("resource \"gpu_pool\" \"p\" {\n  name = \"render\"\n  members = { edge = %s }\n  on_destroy = \"mount_back\"\n}\n",
			list(ids))
	}
	drawn := func(name, vm string) string {
		return rig.AssignmentOf(name, vm, "pool = { id = gpu_pool.p.id }", rig.WholeGPU(1))
	}
	layout := func(name string, count int, id string) string {
		return fmt.Sprintf("resource \"gpu_partition_config\" %q {\n  name = %q\n  hosts = [\"edge\"]\n  gpu_p = { partition_count = %d }\n  "+
			"selector = { gpu_ids = { edge = [%q] } }\n  max_disruption = \"vm_restart\"\n}\n", name, name, count, id)
	}
	for name, test := range map[string]struct {
		counts        int // partitions of each GPU to begin with
		before, after string
		refused       []string // "" for a change that is done right
		ends          string   // the host when it was made
	}{
		"VMs pinned to full GPUs swap": {
			counts: 1, before: pinned("a", "vm-1", rig.GPU0) + pinned("b", "vm-2", rig.GPU1),
			after:   pinned("a", "vm-1", rig.GPU1) + pinned("b", "vm-2", rig.GPU0),
			refused: []string{"The host would refuse the change", "no partition is free on GPU"},
		},
		"a VM is pinned to the seat that another leaves": {
			counts: 1, before: pinned("a", "vm-1", rig.GPU0), after: pinned("a", "vm-1", rig.GPU1) + pinned("b", "vm-2", rig.GPU0),
			ends: "1 | 1 | vm-1 runs: partition of second | vm-2 runs: partition of first | vm-3 runs | claims: vm-1, vm-2",
		},
		"VMs swap whole GPUs": {
			counts: 4, before: device("a", "vm-1", rig.GPU0) + device("b", "vm-2", rig.GPU1),
			after:   device("a", "vm-1", rig.GPU1) + device("b", "vm-2", rig.GPU0),
			refused: []string{"has GPU"},
		},
		"a VM takes the GPU that another gives up": {
			counts: 4, before: device("a", "vm-1", rig.GPU0), after: device("a", "vm-1", rig.GPU1) + device("b", "vm-2", rig.GPU0),
			ends: "dismounted | dismounted | vm-1 runs: second | vm-2 runs: first | vm-3 runs | claims: vm-1, vm-2",
		},
		"a VM leaves a pool for a partition while the pool goes": {
			counts: 4, before: pool + rig.AssignmentOf("a", "vm-1", "pool = { id = gpu_pool.p.id }", rig.WholeGPU(1)),
			after:   rig.AssignmentOf("a", "vm-1", rig.AnyPartition),
			refused: []string{"in an apply of its own first, while the pool stays", "vm-1"},
		},
		"a VM takes the GPU that a pool gives up": {
			counts: 4, before: pools(rig.GPU0, rig.GPU1), after: pools(rig.GPU1) + device("a", "vm-1", rig.GPU0),
			ends: "dismounted | dismounted | vm-1 runs: first | vm-2 runs | vm-3 runs | pool render | claims: render, vm-1",
		},
		"a VM gives a GPU of a pool back that the pool gives up": {
			counts: 4, before: pools(rig.GPU0, rig.GPU1) + drawn("a", "vm-1"), after: pools(rig.GPU1),
			ends: "4 | dismounted | vm-1 runs | vm-2 runs | vm-3 runs | pool render | claims: render",
		},
		"a pool and a VM take one GPU": {
			counts: 4, after: pools(rig.GPU0) + device("a", "vm-1", rig.GPU0),
			refused: []string{"both take GPU"},
		},
		"two layouts on one GPU": {
			counts: 4, before: layout("x", 4, rig.GPU0), after: layout("x", 4, rig.GPU0) + layout("y", 2, rig.GPU0),
			refused: []string{"Two configurations for one GPU"},
		},
		"a GPU goes from one layout to another": {
			counts: 4, before: layout("x", 4, rig.GPU0), after: layout("x", 8, rig.GPU1) + layout("y", 2, rig.GPU0),
			ends: "2 | 8 | vm-1 runs | vm-2 runs | vm-3 runs | claims: x of second, y of first",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := ordered(t, test.counts, test.before, test.after)
			orders := 12
			if testing.Short() {
				orders = 6
			}
			ends := test.ends
			if len(test.refused) > 0 {
				ends = v.edge(v.start)
			}
			for i := range orders {
				parallel := []int{1, 10, 30}[i%3]
				out, refused, wrong := v.once(parallel, uint64(i)) //nolint:gosec // not negative
				if wrong != "" || refused != (len(test.refused) > 0) {
					t.Fatalf("%d at a time, order %d: %s\n%s", parallel, i, wrong, out)
				}
				if is := v.edge(v.file); is != ends {
					t.Fatalf("%d at a time, order %d: the host is\n  %s\nwant\n  %s\n%s", parallel, i, is, ends, out)
				}
				for _, text := range test.refused {
					if !strings.Contains(rig.Sentence(out), text) {
						t.Errorf("it does not say %q:\n%s", text, out)
					}
				}
			}
		})
	}
}

// ordered is a change of a host with three VMs that run, and two GPUs.
func ordered(t *testing.T, count int, before, after string) *verdicts {
	t.Helper()
	v := &verdicts{t: t, before: before, after: after}
	file := filepath.Join(t.TempDir(), "fleet.json")
	v.state = v.begin(file, rig.Standalone(rig.Node("edge", rig.Desktop("vm-1", 1), rig.Desktop("vm-2", 2), rig.Desktop("vm-3", 3))))
	fleet, err := others.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{rig.GPU0, rig.GPU1} {
		if err := fleet.SetCountOutside(t.Context(), "edge", id, count); err != nil {
			t.Fatal(err)
		}
	}
	v.state.Write(block(file) + before)
	terminal := &core.Terminal{Workspace: v.state}
	if out, code := terminal.Run(context.WithoutCancel(t.Context()), "apply", "-auto-approve"); code != 0 {
		t.Fatal(out)
	}
	if v.fleet, err = os.ReadFile(file); err != nil {
		t.Fatal(err)
	}
	v.start = file
	return v
}

// edge is host edge of a fleet, in words: its two GPUs, what its VMs have, whether they run,
// pools, and claims.
func (v *verdicts) edge(file string) string {
	v.t.Helper()
	ctx := context.WithoutCancel(v.t.Context())
	fleet, err := others.Open(file)
	if err != nil {
		v.t.Fatal(err)
	}
	backend, err := fleet.Host("edge")
	if err != nil {
		v.t.Fatal(err)
	}
	h, err := backend.Inventory(ctx)
	if err != nil {
		v.t.Fatal(err)
	}
	records, err := backend.Load(ctx)
	if err != nil {
		v.t.Fatal(err)
	}
	names := map[string]string{rig.GPU0: "first", rig.GPU1: "second"}
	var out []string
	for _, g := range h.GPUs {
		if g.Dismounted {
			out = append(out, "dismounted")
		} else {
			out = append(out, strconv.Itoa(g.Partitionable.Count))
		}
	}
	for _, vm := range h.VMs {
		text := vm.Name + " " + strings.Replace(string(vm.State), "running", "runs", 1)
		for _, g := range h.GPUs {
			if g.Partitionable != nil && slices.ContainsFunc(g.Partitionable.Partitions, func(p gpu.Partition) bool { return p.VMID == vm.ID }) {
				text += ": partition of " + names[g.ID]
			}
		}
		for _, d := range vm.Devices {
			text += ": " + names[d.GPU]
		}
		if len(vm.PartitionAdapters) > 0 && !strings.Contains(text, "partition of") {
			text += ": an adapter without a partition"
		}
		out = append(out, text)
	}
	for _, p := range h.Pools {
		out = append(out, "pool "+p.Name)
	}
	var claims []string
	for _, c := range records.Claims {
		text := c.ID
		if c.Kind == gpu.ClaimAssignment {
			vm, _ := h.VM(c.ID)
			text = vm.Name
		}
		for _, id := range c.GPUs {
			if c.Kind == gpu.ClaimConfig {
				text += " of " + names[id]
			}
		}
		claims = append(claims, text)
	}
	slices.Sort(claims)
	if len(records.Journal)+len(records.PendingStarts) > 0 || records.Lease != nil {
		out = append(out, "an unfinished change")
	}
	return strings.Join(append(out, "claims: "+strings.Join(claims, ", ")), " | ")
}
