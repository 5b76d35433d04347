package partitionconfig_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestAccPartitionConfig_PartitionOfAVMThatDoesNotRun: Hyper-V lists a partition of a VM that is off, or that was deleted. The count
// cannot change, which the plan says with the VM, and what it advises works.
func TestAccPartitionConfig_PartitionOfAVMThatDoesNotRun(t *testing.T) {
	t.Parallel()
	others := "\n  selector = { gpu_ids = { hv01 = [\"" + rig.GPU1 + "\"] } }"
	config := func(r *rig.Rig, count int, more string) string {
		return r.Block() + rig.ConfigOf(count, []string{"hv01"}, `max_disruption = "vm_restart"`+more)
	}
	for name, test := range map[string]struct {
		deleted bool
		says    []string
		follow  func(r *rig.Rig, c *rig.CLI)
	}{
		"off": {false, []string{`VM "avd-03": it is off`, "Start the VM and shut it down once"}, func(r *rig.Rig, c *rig.CLI) {
			for _, to := range []gpu.VMState{gpu.VMRunning, gpu.VMOff} {
				r.Must(r.Fleet.SetVMState(r.T.Context(), "avd-03", to))
			}
			c.Apply()
			r.WantCounts(8, "hv01")
		}},
		"off, and left out": {false, []string{"leave the GPU out of selector"}, func(r *rig.Rig, c *rig.CLI) {
			c.Write(config(r, 8, others))
			c.Apply()
			if got := r.Counts("hv01"); got[rig.GPU0] != 4 || got[rig.GPU1] != 8 {
				r.T.Errorf("the counts are %v", got)
			}
		}},
		"deleted": {true, []string{rig.VMID(3), "the host does not list that VM", "Leave the GPU out of selector"}, func(r *rig.Rig, c *rig.CLI) {
			c.Write(config(r, 8, others))
			c.Apply()
			if got := r.Counts("hv01"); got[rig.GPU0] != 4 || got[rig.GPU1] != 8 {
				r.T.Errorf("the counts are %v", got)
			}
		}},
	} {
		t.Run(name, rig.WithoutWaiting(func(t *testing.T) {
			r := rig.New(t, rig.Standalone(rig.Node("hv01", rig.Off(rig.Desktop("avd-03", 3)))))
			c := rig.NewCLI(t, config(r, 4, ""))
			c.Apply()
			r.AddForeignAdapter("avd-03")
			r.EditHost("hv01", func(h *gpu.Host) {
				g, _ := h.GPU(rig.GPU0)
				g.Partitionable.Partitions = []gpu.Partition{{ID: 1, VMID: rig.VMID(3)}}
				if test.deleted {
					h.VMs = slices.DeleteFunc(h.VMs, func(v gpu.VM) bool { return v.Name == "avd-03" })
				}
			})
			c.WantNoChanges()
			before := r.File()
			c.Write(config(r, 8, ""))
			out := c.Fails("plan")
			rig.WantSaid(t, out, append(test.says, "Error: Partitions are listed for VMs that do not run", rig.GPU0)...)
			for _, never := range []string{"Running VMs", "allow_shutdown", "These may not be stopped"} {
				if strings.Contains(out, never) {
					t.Errorf("it says %q:\n%s", never, out)
				}
			}
			r.WantUntouched(before)
			test.follow(r, c)
			c.WantNoChanges()
		}))
	}
}
