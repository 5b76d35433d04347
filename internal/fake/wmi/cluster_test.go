package fakewmi_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	fakewmi "github.com/gpufleet/terraform-provider-gpu/internal/fake/wmi"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// The cluster lists the VMs of all nodes, Hyper-V those of the host. Ids are spelled in
// several ways.
func TestAClusterHasTheVMsOfAllNodes(t *testing.T) {
	r := newRig(t, inCluster)
	rows := r.query(hyperv.MSCluster, "SELECT * FROM MSCluster_Resource WHERE Type='Virtual Machine'",
		"Name", "OwnerNode", "OwnerGroup", "PrivateProperties")
	var got, spelled []string
	for _, row := range rows {
		id := row.Row("PrivateProperties").String("VmID")
		got = append(got, row.String("OwnerNode")+" "+row.String("OwnerGroup")+" "+strings.ToUpper(strings.Trim(id, "{}")))
		spelled = append(spelled, id)
	}
	want := []string{"hv01 alpha " + alpha, "hv01 beta " + beta, "hv02 alpha (2) " + omega}
	if !slices.Equal(got, want) || !slices.Equal(spelled, []string{strings.ToLower(alpha), "{" + beta + "}", omega}) {
		t.Errorf("the VMs are %q, spelled %q", got, spelled)
	}
	if rows := r.query(hyperv.Virtualization, "SELECT * FROM Msvm_ComputerSystem"); len(rows) != 3 {
		t.Errorf("Hyper-V lists %d", len(rows))
	}
	owners := r.query(hyperv.MSCluster, "SELECT * FROM MSCluster_ResourceToPossibleOwner", "GroupComponent", "PartComponent")
	var ofOmega []string
	for _, row := range owners {
		if strings.Contains(row.String("GroupComponent"), `"Virtual Machine alpha (2)"`) {
			ofOmega = append(ofOmega, row.String("PartComponent"))
		}
	}
	if len(ofOmega) != 1 || !strings.HasSuffix(ofOmega[0], `MSCluster_Node.Name="hv02"`) {
		t.Errorf("the possible owners are %q", ofOmega)
	}
	second, err := fakewmi.New(r.fleet, "hv02")
	r.run(err)
	again, err := second.WMI().Query(t.Context(), hyperv.MSCluster, "SELECT * FROM MSCluster_Resource WHERE Type='Virtual Machine'")
	if err != nil || len(again) != len(rows) {
		t.Errorf("the other node lists %d, %v", len(again), err)
	}
}

func TestTheOfflineActionIsWritten(t *testing.T) {
	r := newRig(t, inCluster)
	for _, name := range []string{"alpha", "alpha (2)"} {
		path := r.one(hyperv.MSCluster, "SELECT * FROM MSCluster_Resource WHERE Name='Virtual Machine "+name+"'").Path
		r.run(r.wmi.Put(t.Context(), hyperv.MSCluster, path, map[string]any{"PrivateProperties": map[string]any{"OfflineAction": int32(3)}}))
		row, err := r.wmi.Get(t.Context(), hyperv.MSCluster, path, "PrivateProperties")
		if err != nil || row.Row("PrivateProperties").Uint("OfflineAction") != 3 {
			t.Errorf("%s: %+v, %v", name, row, err)
		}
	}
	if a := r.vm(alpha).Settings.OfflineAction; a == nil || *a != gpu.OfflineForcedShutdown {
		t.Errorf("the offline action is %v", a)
	}
	if a := r.vm(beta).Settings.OfflineAction; a != nil {
		t.Errorf("that of a bystander is %v", a)
	}
}

func TestClusterGroups(t *testing.T) {
	r := newRig(t, inCluster)
	group := func(name string) string {
		return r.one(hyperv.MSCluster, "SELECT * FROM MSCluster_ResourceGroup WHERE Name='"+name+"'").Path
	}
	call := func(path, method string, in map[string]any) error {
		res, err := r.wmi.Invoke(t.Context(), hyperv.MSCluster, path, method, in)
		if err == nil && (res.ReturnValue != 0 || len(res.Out) > 0) {
			t.Errorf("%s returns nothing, not %+v", method, res)
		}
		return err
	}
	const (
		missing = hyperv.Code(0x8004102F)
		paused  = hyperv.Code(0x80070046)
		noNode  = hyperv.Code(0x800713B2)
		invalid = hyperv.Code(0x800710DD)
	)
	online := map[string]any{"TimeOut": int32(60), "Flags": int32(0)}
	wantFault(t, "no flags", call(group("alpha"), "BringOnline", map[string]any{"TimeOut": int32(60)}), missing)
	wantFault(t, "the cluster's own group", call(group("Cluster Group"), "BringOnline", online), invalid)
	r.run(call(group("alpha"), "BringOnline", online))
	if state := r.vm(alpha).State; state != gpu.VMRunning {
		t.Errorf("online it is %s", state)
	}
	move := func(node string) map[string]any { return map[string]any{"NodeName": node, "TimeOut": int32(60)} }
	wantFault(t, "a node that is not there", call(group("alpha"), "MoveToNewNode", move("hv03")), noNode)

	node := r.one(hyperv.MSCluster, "SELECT * FROM MSCluster_Node WHERE Name='hv02'").Path
	r.run(call(node, "Pause", map[string]any{"DrainType": int32(0), "TargetNode": ""}))
	wantFault(t, "a node that is paused", call(group("alpha"), "MoveToNewNode", move("hv02")), paused)
	wantFault(t, "a VM of a node that is paused", call(group("alpha (2)"), "BringOnline", online), paused)
	r.run(call(node, "Resume", map[string]any{"FailbackType": int32(0)}))
	r.run(call(group("alpha"), "MoveToNewNode", move("hv02")))
	host := r.host()
	if _, stays := host.VM(alpha); stays {
		t.Error("a VM that was moved is still there")
	}

	// A drain moves what runs away and then ends.
	r.run(call(node, "Pause", map[string]any{"DrainType": int32(1), "TargetNode": ""}))
	r.machine.Wait()
	row := r.one(hyperv.MSCluster, "SELECT * FROM MSCluster_Node WHERE Name='hv02'", "State", "NodeDrainStatus")
	if row.Uint("State") != 2 || row.Uint("NodeDrainStatus") != 2 || r.vm(alpha).State != gpu.VMRunning {
		t.Errorf("drained it is %+v, its VM %s", row, r.vm(alpha).State)
	}
	r.run(call(group("alpha"), "TakeOffline", map[string]any{"TimeOut": int32(60), "Flags": int32(0)}))
	if state := r.vm(alpha).State; state != gpu.VMSaved {
		t.Errorf("offline it is %s", state)
	}
}
