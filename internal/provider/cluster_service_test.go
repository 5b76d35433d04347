package provider_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestAClusterServiceThatIsDownOnOneNode has a node answer that cannot read its cluster. Nothing of
// what the cluster has on record is taken for lost, nothing is changed there, and its VM that has
// failed over is changed as ever.
func TestAClusterServiceThatIsDownOnOneNode(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	vms := func(setting string) string {
		out := r.Block() + rig.Config4
		for _, vm := range []string{"avd-01", "avd-04"} {
			out += rig.AssignmentOf(vm, vm, "partition = { config = gpu_partition_config.vdi.id }", rig.MayStop, setting)
		}
		return out
	}
	const other = "guest_controlled_cache_types = true"
	c := rig.NewCLI(t, vms(""))
	c.Apply()
	c.WantNoChanges()
	down := func(yes bool) {
		r.EditHost("hv02", func(h *gpu.Host) {
			if h.Unknown = nil; yes {
				h.Unknown = []gpu.Unknown{{Part: gpu.PartCluster, Why: "the cluster service does not answer"}}
			}
		})
	}
	down(true)
	const why = "the cluster service does not answer"
	rig.WantSaid(t, c.Ok("plan"), "No changes.", why)
	was, _ := r.VM("avd-04")
	for _, hcl := range []string{
		vms(other), r.Block() + rig.Config4 + rig.AssignmentOf("avd-01", "avd-01", "partition = { config = gpu_partition_config.vdi.id }",
			rig.MayStop),
	} {
		c.Write(hcl)
		out := c.Fails("apply", "-auto-approve")
		rig.WantSaid(t, out, "avd-04", why)
		if strings.Contains(out, "has lost the record") {
			t.Errorf("a record that cannot be read is not lost:\n%s", out)
		}
		if now, _ := r.VM("avd-04"); !reflect.DeepEqual(now, was) {
			t.Errorf("the VM was changed: %+v, and is %+v", was, now)
		}
	}
	r.Must(r.Fleet.MoveVM(t.Context(), "avd-04", "hv01")) // as the cluster does with a node that is lost to it
	c.Write(vms(other))
	c.Apply()
	r.WantVM("avd-04", gpu.VMRunning, 1)
	down(false)
	c.WantNoChanges()
	c.Destroy()
	r.WantFree(gpu.VMRunning, "avd-01", "avd-04")
	r.WantClaims(rig.Both)
}

// TestTheSharedVolumeIsAway takes the volume with the records of the cluster from all its nodes. What
// cannot be read is not lost: no plan writes it again, no destroy forgets it, and nobody is touched.
func TestTheSharedVolumeIsAway(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	config := func(count int, setting string) string {
		return r.Block() + rig.ConfigOf(count, rig.Both, `max_disruption = "vm_restart"`) +
			rig.AssignmentOf("a", "avd-01", "partition = { config = gpu_partition_config.vdi.id }", rig.MayStop, setting)
	}
	c := rig.NewCLI(t, config(4, "low_memory_mapped_io_space_mib = 2048"))
	c.Apply()
	away := func(yes bool) {
		for _, host := range rig.Both {
			r.EditHost(host, func(h *gpu.Host) {
				if h.Unknown = nil; yes {
					h.Unknown = []gpu.Unknown{{Part: gpu.PartCluster, Why: "the shared volume is away"}}
				}
			})
		}
	}
	away(true)
	before := r.Snapshot()
	const why = "the shared volume is away"
	rig.WantSaid(t, c.Ok("plan"), "No changes.", why)
	for _, hcl := range []string{
		config(4, "low_memory_mapped_io_space_mib = 1024"), config(8, "low_memory_mapped_io_space_mib = 2048"),
		r.Block() + rig.ConfigOf(4, rig.Both, `max_disruption = "vm_restart"`),
	} {
		c.Write(hcl)
		rig.WantSaid(t, c.Fails("apply", "-auto-approve"), why)
		r.WantUnchanged(before)
	}
	rig.WantSaid(t, c.Fails("destroy", "-auto-approve"), why)
	r.WantUnchanged(before)
	away(false)
	c.Write(config(4, "low_memory_mapped_io_space_mib = 2048"))
	c.WantNoChanges()
	c.Destroy()
	r.WantFree(gpu.VMRunning, "avd-01")
	if vm, _ := r.VM("avd-01"); *vm.Settings.LowMemoryMappedIOSpace != 128*gpu.MiB {
		t.Errorf("after the destroy the VM has %s of low memory-mapped IO space", *vm.Settings.LowMemoryMappedIOSpace)
	}
	r.WantClaims(rig.Both)
}
