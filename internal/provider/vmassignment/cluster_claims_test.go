package vmassignment_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const (
	lowMMIO = "low_memory_mapped_io_space_mib = 2048"
)

// moved lets avd-01 be given a partition on hv01, and hv01 die: the VM is on hv02 then.
func moved(t *testing.T) (r *rig.Rig, c *rig.CLI, hcl string) {
	t.Helper()
	fleet := rig.TwoNodes()
	fleet.Hosts[1].VMs = fleet.Hosts[1].VMs[2:] // room for one more
	r = rig.New(t, fleet)
	hcl = r.Block(`on_unreachable = "keep"`) + rig.Config4 + rig.Assign("avd-01", "allow_shutdown = true") +
		rig.AssignmentOf("b", "avd-02", "partition = { config = gpu_partition_config.vdi.id }", rig.MayStop, lowMMIO)
	c = rig.NewCLI(t, hcl)
	c.Apply()
	ctx := context.Background()
	r.Must(r.Fleet.SetUnreachable(ctx, "hv01", true))
	r.Must(r.Fleet.SetNodeState(ctx, "hv01", gpu.NodeDown))
	r.Must(r.Fleet.MoveVM(ctx, "avd-01", "hv02"))
	r.Must(r.Fleet.MoveVM(ctx, "avd-02", "hv02"))
	return r, c, hcl
}

func (f fates) of(r *rig.Rig, c *rig.CLI, hcl string) string {
	ctx := context.Background()
	evict := func() {
		r.Must(r.Fleet.Edit(ctx, func(s *gpu.Snapshot) error {
			s.Hosts[1].Cluster.Nodes = slices.DeleteFunc(slices.Clone(s.Hosts[1].Cluster.Nodes), func(n gpu.Node) bool { return n.Name == "hv01" })
			s.Hosts[0].Cluster = nil
			return nil
		}))
	}
	switch f {
	case dead:
	case evicted:
		evict()
	case removed:
		evict()
		_, rest, _ := strings.Cut(hcl, rig.Config4)
		hcl = r.BlockFor([]string{"hv02"}, `on_unreachable = "keep"`) + rig.ConfigOf(4, []string{"hv02"}) + rest
		c.Write(hcl)
		c.Apply()
	case repaired, failedBack:
		r.Must(r.Fleet.SetUnreachable(ctx, "hv01", false))
		r.Must(r.Fleet.SetNodeState(ctx, "hv01", gpu.NodeUp))
		if f == failedBack {
			r.Must(r.Fleet.MoveVM(ctx, "avd-01", "hv01"))
			r.Must(r.Fleet.MoveVM(ctx, "avd-02", "hv01"))
		}
	}
	return hcl
}

// fates are what becomes of a node whose VMs have failed over.
type fates string

const (
	dead       fates = "the node is dead"
	evicted    fates = "the node is evicted"
	removed    fates = "the node is removed from hosts"
	repaired   fates = "the node is repaired"
	failedBack fates = "the VMs fail back"
)

// The claim of a clustered VM does not go with the node that it was written on.
func TestAccVMAssignment_TheClaimOfAClusteredVMOutlivesItsNode(t *testing.T) {
	t.Parallel()
	for _, fate := range []fates{dead, evicted, removed, repaired, failedBack} {
		t.Run(string(fate), func(t *testing.T) {
			t.Parallel()
			r, c, hcl := moved(t)
			hcl = fate.of(r, c, hcl)
			out := c.Ok("plan")
			if strings.Contains(out, "record of this resource") {
				t.Errorf("a record is missed:\n%s", out)
			}
			// An update, whatever it is that asks for one, records nothing of its own as before.
			c.Write(strings.Replace(hcl, rig.MayStop, `power = { allow_shutdown = true, shutdown_timeout = "4m" }`, 1))
			c.Apply()
			_, at := r.VM("avd-02")
			claim, ok := r.Host(at).Claim(gpu.ClaimAssignment, rig.VMID(2))
			if !ok || claim.SettingsBefore.LowMemoryMappedIOSpace == nil || *claim.SettingsBefore.LowMemoryMappedIOSpace != 128*gpu.MiB {
				t.Fatalf("the claim is %+v", claim)
			}
			if vm, _ := r.VM("avd-02"); !vm.Runs() || *vm.Settings.LowMemoryMappedIOSpace != 2048*gpu.MiB {
				t.Errorf("avd-02: %+v", vm)
			}
			// The layout changes under them, as ever: who may be stopped is on record.
			if fate != dead && fate != evicted { // else the node does not answer, and the layout waits for it
				c.Write(repartitioned(hcl))
				c.Apply()
				c.WantNoChanges()
				for _, vm := range []string{"avd-01", "avd-02"} {
					if vm, at := r.VM(vm); !vm.Runs() || len(vm.PartitionAdapters) != 1 || r.Host(at).GPUs[0].Partitionable.Count != 8 {
						t.Errorf("on %s: %+v", at, vm)
					}
				}
			}
			c.Destroy("-target=gpu_vm_assignment.b")
			if vm, _ := r.VM("avd-02"); !vm.Runs() || len(vm.PartitionAdapters) > 0 || *vm.Settings.LowMemoryMappedIOSpace != 128*gpu.MiB {
				t.Errorf("after the destroy: %+v", vm)
			}
			claims := 0
			for _, h := range r.Snapshot().Hosts {
				for _, c := range h.Claims {
					if c.Kind == gpu.ClaimAssignment {
						claims++
					}
				}
			}
			if claims != 1 {
				t.Errorf("%d claims of assignments are left, want that of avd-01", claims)
			}
		})
	}
}

// repartitioned is a configuration with twice the partitions, for which VMs may be stopped.
func repartitioned(hcl string) string {
	return strings.Replace(hcl, "partition_count = 4 }", "partition_count = 8 }\n  max_disruption = \"vm_restart\"", 1)
}

// A VM that is in another cluster of the provider now gets its record there.
func TestAccVMAssignment_TheClaimFollowsAVMIntoAnotherCluster(t *testing.T) {
	t.Parallel()
	fleet := rig.Cluster("azl", rig.Node("hv01", rig.Desktop("avd-01", 1)))
	fleet.Hosts = append(fleet.Hosts, rig.Cluster("b", rig.Node("hv02")).Hosts...)
	r := rig.New(t, fleet)
	both := strings.ReplaceAll(rig.ConfigOf(4, []string{"hv02"}, `max_disruption = "vm_restart"`), `"vdi"`, `"second"`)
	config := func(count int) string {
		return rig.ConfigOf(count, []string{"hv01"}, `max_disruption = "vm_restart"`) +
			strings.Replace(both, "= 4", "= "+map[int]string{4: "4", 8: "8"}[count], 1) +
			rig.Assignment("avd-01", rig.AnyPartition, rig.MayStop, lowMMIO, "depends_on = [gpu_partition_config.vdi, gpu_partition_config.second]")
	}
	c := rig.NewCLI(t, r.Block()+config(4))
	c.Apply()
	r.Must(r.Fleet.MoveVM(context.Background(), "avd-01", "hv02"))
	rig.WantSaid(t, c.Ok("plan"), "has lost its record of this resource", "0 to add, 1 to change, 0 to destroy")
	c.Apply()
	c.WantNoChanges()
	if claims := r.Claims("hv01"); slices.ContainsFunc(claims, func(s string) bool { return strings.Contains(s, "assignment") }) {
		t.Errorf("hv01 has the claims %v", claims)
	}
	claim, ok := r.Host("hv02").Claim(gpu.ClaimAssignment, rig.VMID(1))
	if !ok || claim.Cluster != "b" || claim.SettingsBefore.LowMemoryMappedIOSpace == nil ||
		*claim.SettingsBefore.LowMemoryMappedIOSpace != 128*gpu.MiB {
		t.Fatalf("the claim is %+v", claim)
	}
	c.Write(r.Block() + config(8))
	c.Apply()
	if vm, _ := r.VM("avd-01"); !vm.Runs() || len(vm.PartitionAdapters) != 1 {
		t.Errorf("avd-01: %+v", vm)
	}
}
