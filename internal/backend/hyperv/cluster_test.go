package hyperv_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// A clustered VM is started by its group, at once and with no flags, so that the cluster
// decides whether its node may run it.
func TestAGroupIsBroughtOnline(t *testing.T) {
	t.Parallel()
	r := newRig(t, inCluster)
	r.run(r.backend.StartVM(t.Context(), alpha))
	calls := r.wire.called("BringOnline")
	if len(calls) != 1 || calls[0].in["Flags"] != int32(0) || len(r.wire.called("RequestStateChange")) != 0 {
		t.Fatalf("the calls are %+v", r.wire.calls)
	}
	if seconds, _ := calls[0].in["TimeOut"].(int32); seconds < 1 {
		t.Errorf("the group has %d seconds", seconds)
	}
	if vm := r.vm(alpha); vm.State != gpu.VMRunning {
		t.Errorf("the VM is %s", vm.State)
	}
	if vm := r.vm(beta); vm.State != gpu.VMOff {
		t.Errorf("a bystander is %s", vm.State)
	}
}

// A call that does nothing is made again while the resource is offline and the VM off.
func TestAGroupIsBroughtOnlineAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, inCluster)
		left := 5
		b := hyperv.New(&deaf{r.wire, "BringOnline", &left})
		r.run(b.StartVM(t.Context(), alpha))
		if vm := r.vm(alpha); left != 0 || vm.State != gpu.VMRunning {
			t.Errorf("the VM is %s, and %d calls were left", vm.State, left)
		}
	})
}

// deaf is a connection on which a method says yes and does nothing for some calls.
type deaf struct {
	hyperv.WMI
	method string
	left   *int
}

func (d *deaf) Invoke(ctx context.Context, namespace, path, method string, in map[string]any) (hyperv.Result, error) {
	if method == d.method && *d.left > 0 {
		*d.left--
		return hyperv.Result{}, nil
	}
	return d.WMI.Invoke(ctx, namespace, path, method, in)
}

// The resource of a VM need not have its name.
func TestAResourceOfAnotherName(t *testing.T) {
	t.Parallel()
	r := newRig(t, inCluster, onHost(func(h *gpu.Host) { h.VMs[1].Name = "ALPHA" })) // beta's resource is of group ALPHA (2)
	r.run(r.backend.StartVM(t.Context(), beta))
	if a, b := r.vm(alpha), r.vm(beta); a.State != gpu.VMOff || b.State != gpu.VMRunning {
		t.Errorf("the VMs are %s and %s", a.State, b.State)
	}
}

// A drain leaves it to the cluster where the VMs go.
func TestADrainNamesNoTarget(t *testing.T) {
	t.Parallel()
	r := newRig(t, inCluster)
	r.run(r.backend.DrainNode(t.Context()))
	calls := r.wire.called("Pause")
	if _, named := calls[0].in["TargetNode"]; len(calls) != 1 || named {
		t.Errorf("the calls are %+v", calls)
	}
}

// A node that is paused, drains or whose state is not known takes no VM.
func TestNodesThatTakeNoVM(t *testing.T) {
	t.Parallel()
	for _, state := range []gpu.NodeState{gpu.NodePaused, gpu.NodeDraining, gpu.NodeJoining, gpu.NodeDown} {
		r := newRig(t, inCluster)
		r.run(r.fleet.SetNodeState(t.Context(), "hv01", state))
		if host := r.host(); host.NodeState() != state {
			t.Errorf("the node is %s, want %s", host.NodeState(), state)
		}
		refuses(t, r.backend.StartVM(t.Context(), alpha), backend.Unavailable, "node hv01", string(state))
		if n := len(r.wire.called("BringOnline")); n != 0 {
			t.Errorf("%s: the group was brought online", state)
		}
	}
	for name, values := range map[gpu.NodeState]map[string]any{
		gpu.NodeDown:     {"State": int32(-1)},
		gpu.NodeDraining: {"NodeDrainStatus": int32(1)}, // and not shown as paused yet
	} {
		r := newRig(t, inCluster)
		r.wire.change(func(w *wire) {
			w.rows = func(_ string, rows []hyperv.Row) []hyperv.Row {
				for _, row := range rows {
					for property, value := range values {
						if row.String("Name") == "hv01" && row.Has("NodeDrainStatus") {
							row.Values[property] = value
						}
					}
				}
				return rows
			}
		})
		if host := r.host(); host.NodeState() != name {
			t.Errorf("the node is %s, want %s", host.NodeState(), name)
		}
		refuses(t, r.backend.StartVM(t.Context(), alpha), backend.Unavailable, string(name))
	}
}

// The cluster lists the VMs of all nodes. One of another node is not this host's, though
// it has the name of one that is.
func TestAVMOfAnotherNode(t *testing.T) {
	t.Parallel()
	const omega = "33333333-CCCC-4CCC-8CCC-000000000003"
	r := newRig(t, inCluster, func(s *gpu.Snapshot) {
		s.Hosts[1].VMs = []gpu.VM{{ID: omega, Name: "alpha", State: gpu.VMOff, Generation: 2, Clustered: true, PossibleOwners: []string{"hv02"}}}
		s.Hosts[0].VMs[1].PossibleOwners = []string{"hv01"}
	})
	host := r.host()
	if len(host.VMs) != 2 || !host.VMs[0].Clustered || len(host.VMs[0].PossibleOwners) != 0 || len(host.VMs[1].PossibleOwners) != 1 {
		t.Errorf("the VMs are %+v", host.VMs)
	}
	_, err := r.backend.AddPartitionAdapter(t.Context(), omega, gpu.PartitionAdapter{})
	for _, err := range []error{
		err, r.backend.StartVM(t.Context(), omega), r.backend.ShutDownVM(t.Context(), omega, true), r.backend.TurnOffVM(t.Context(), omega),
		r.backend.ApplyVMSettings(t.Context(), omega, someSettings),
	} {
		refuses(t, err, backend.NotFound)
	}
	r.run(r.backend.StartVM(t.Context(), alpha))
	there := rigOn(t, r.fleet, "hv02")
	if vm := there.vm(omega); vm.State != gpu.VMOff {
		t.Errorf("the other is %s", vm.State)
	}
	if vm := r.vm(alpha); vm.State != gpu.VMRunning {
		t.Errorf("it is %s", vm.State)
	}
}

// A VM that moved between the look and the write is not written to here; on the node
// that it moved to it is found by the same id.
func TestAVMThatMoves(t *testing.T) {
	t.Parallel()
	r := newRig(t, inCluster)
	move := func() { r.run(r.fleet.MoveVM(t.Context(), alpha, "hv02")) }
	late := hyperv.New(&before{r.wire, "AddResourceSettings", move})
	_, err := late.AddPartitionAdapter(t.Context(), alpha, gpu.PartitionAdapter{})
	refuses(t, err, backend.InvalidParameter, "AddResourceSettings", "(32773)")
	_, err = r.backend.AddPartitionAdapter(t.Context(), alpha, gpu.PartitionAdapter{})
	refuses(t, err, backend.NotFound)
	there := rigOn(t, r.fleet, "hv02")
	if vm := there.vm(alpha); len(vm.PartitionAdapters) != 0 || !vm.Clustered {
		t.Errorf("on the other node it is %+v", vm)
	}
	id, err := there.backend.AddPartitionAdapter(t.Context(), alpha, gpu.PartitionAdapter{})
	there.run(err, there.backend.RemovePartitionAdapter(t.Context(), alpha, id))

	// The offline action is the cluster's, and is written wherever the VM is.
	r.run(there.backend.ApplyVMSettings(t.Context(), alpha, gpu.VMSettings{OfflineAction: ptr(gpu.OfflineShutDown)}),
		r.fleet.MoveVM(t.Context(), alpha, "hv01"))
	if a := r.vm(alpha).Settings.OfflineAction; a == nil || *a != gpu.OfflineShutDown {
		t.Errorf("the offline action is %v", a)
	}
}
