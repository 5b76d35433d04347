package provider_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/core"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
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
	layout := func(name string, count int, id string) string {
		return fmt.Sprintf("resource \"gpu_partition_config\" %q {\n  name = %q\n  hosts = [\"edge\"]\n  gpu_p = { partition_count = %d }\n  selector = { gpu_ids = { edge = [%q] } }\n  max_disruption = \"vm_restart\"\n}\n", name, name, count, id)
	}
	for name, test := range map[string]struct {
		counts        int // partitions of each GPU to begin with
		before, after string
		refused       []string // "" for a change that is done right
	}{
		"VMs pinned to full GPUs swap": {
			counts: 1, before: pinned("a", "vm-1", rig.GPU0) + pinned("b", "vm-2", rig.GPU1), after: pinned("a", "vm-1", rig.GPU1) + pinned("b", "vm-2", rig.GPU0),
			refused: []string{"The host would refuse the change", "no partition is free on GPU"},
		},
		"a VM is pinned to the seat that another leaves": {
			counts: 1, before: pinned("a", "vm-1", rig.GPU0), after: pinned("a", "vm-1", rig.GPU1) + pinned("b", "vm-2", rig.GPU0),
		},
		"VMs swap whole GPUs": {
			counts: 4, before: device("a", "vm-1", rig.GPU0) + device("b", "vm-2", rig.GPU1), after: device("a", "vm-1", rig.GPU1) + device("b", "vm-2", rig.GPU0),
			refused: []string{"has GPU"},
		},
		"a VM takes the GPU that another gives up": {
			counts: 4, before: device("a", "vm-1", rig.GPU0), after: device("a", "vm-1", rig.GPU1) + device("b", "vm-2", rig.GPU0),
		},
		"a VM leaves a pool for a partition while the pool goes": {
			counts: 4, before: pool + rig.AssignmentOf("a", "vm-1", "pool = { id = gpu_pool.p.id }", rig.WholeGPU(1)), after: rig.AssignmentOf("a", "vm-1", rig.AnyPartition),
			refused: []string{"in an apply of its own first, while the pool stays", "vm-1"},
		},
		"two layouts on one GPU": {
			counts: 4, before: layout("x", 4, rig.GPU0), after: layout("x", 4, rig.GPU0) + layout("y", 2, rig.GPU0),
			refused: []string{"Two configurations for one GPU"},
		},
		"a GPU goes from one layout to another": {
			counts: 4, before: layout("x", 4, rig.GPU0), after: layout("x", 8, rig.GPU1) + layout("y", 2, rig.GPU0),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := ordered(t, test.counts, test.before, test.after)
			orders := 12
			if testing.Short() {
				orders = 6
			}
			for i := range orders {
				parallel := []int{1, 10, 30}[i%3]
				out, refused, wrong := v.once(parallel, uint64(i)) //nolint:gosec // not negative
				if wrong != "" || refused != (len(test.refused) > 0) {
					t.Fatalf("%d at a time, order %d: %s\n%s", parallel, i, wrong, out)
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
	fleet, err := simulated.Open(file)
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
	return v
}
