package fakewmi_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// add is a call that adds an adapter.
func (r *rig) add() (path, method string, in map[string]any) {
	r.Helper()
	return r.service("Msvm_VirtualSystemManagementService"), "AddResourceSettings",
		map[string]any{"AffectedConfiguration": r.settings(alpha), "ResourceSettings": []string{r.template(partitionSettings)}}
}

// What a job does is not there before the job has ended, and a job that was begun ends
// whoever waits for it.
func TestJobsTakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.machine.JobTime(200 * time.Millisecond)
		path, method, in := r.add()
		ctx, cancel := context.WithCancel(t.Context())
		res, err := r.wmi.Invoke(ctx, hyperv.Virtualization, path, method, in)
		cancel()
		if err != nil || res.ReturnValue != 4096 || res.Out["ResultingResourceSettings"] != nil {
			t.Fatalf("the call answers %+v, %v", res, err)
		}
		job, _ := res.Out["Job"].(string)
		row, err := r.wmi.Get(t.Context(), hyperv.Virtualization, job, "JobState", "PercentComplete", "JobType", "ErrorCode")
		if err != nil || row.Uint("JobState") != 4 || row.Uint("PercentComplete") != 50 || row.Uint("JobType") != 30 {
			t.Errorf("the job is %+v, %v", row, err)
		}
		if len(r.vm(alpha).PartitionAdapters) != 0 {
			t.Error("the adapter is there before the job has ended")
		}
		row = r.await(res)
		if row.Uint("JobState") != 7 || row.Uint("PercentComplete") != 100 || len(r.vm(alpha).PartitionAdapters) != 1 {
			t.Errorf("the job ended as %+v", row)
		}
		if res := r.invoke(hyperv.Virtualization, job, "GetErrorEx", nil); res.ReturnValue != 0 || res.Out["Errors"] != nil {
			t.Errorf("a job without an error has %+v", res)
		}
		_, err = r.wmi.Get(t.Context(), hyperv.Virtualization, strings.Replace(job, `ID="`, `ID="0`, 1), "JobState")
		wantFault(t, "a job that is not there", err, hyperv.NotFound)
	})
}

func TestSynchronousMethods(t *testing.T) {
	r := newRig(t)
	r.machine.Synchronous("addresourcesettings")
	path, method, in := r.add()
	res := r.invoke(hyperv.Virtualization, path, method, in)
	if paths := (hyperv.Row{Values: res.Out}).Strings("ResultingResourceSettings"); res.ReturnValue != 0 ||
		res.Out["Job"] != nil || len(paths) != 1 {
		t.Errorf("the call answers %+v", res)
	} else if _, err := r.wmi.Get(t.Context(), hyperv.Virtualization, paths[0]); err != nil {
		t.Error(err)
	}
	r.run(r.fleet.SetVMState(t.Context(), alpha, gpu.VMRunning))
	if res := r.invoke(hyperv.Virtualization, path, method, in); res.ReturnValue != invalidState ||
		res.Out["ResultingResourceSettings"] != nil {
		t.Errorf("a refused call answers %+v", res)
	}
}

func TestJobsThatFail(t *testing.T) {
	r := newRig(t)
	path, method, in := r.add()
	r.machine.FailJob(method, 32768, `"GPU Partition" <failed>`)
	res := r.invoke(hyperv.Virtualization, path, method, in)
	row := r.await(res)
	if row.Uint("JobState") != 10 || row.Uint("ErrorCode") != 32768 || row.String("ErrorDescription") != `"GPU Partition" <failed>` {
		t.Errorf("the job ended as %+v", row)
	}
	job, _ := res.Out["Job"].(string)
	out := r.invoke(hyperv.Virtualization, job, "GetErrorEx", nil)
	if errs := (hyperv.Row{Values: out.Out}).Strings("Errors"); len(errs) != 1 || !strings.Contains(errs[0], "&lt;failed&gt;") {
		t.Errorf("the errors of the job are %+v", out)
	}
	if len(r.vm(alpha).PartitionAdapters) != 0 {
		t.Error("a job that failed has an effect")
	}
	r.machine.Answer(method, 32777)
	r.machine.Answer(method, 32769)
	r.returns(32777, path, method, in)
	r.returns(32769, path, method, in)
	r.returns(done, path, method, in) // both answers are used up
}

// A new partition count shows after a while, with all that depends on it.
func TestThePartitionCountTakesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.machine.JobTime(100 * time.Millisecond)
		face := r.one(hyperv.Virtualization, "SELECT * FROM Msvm_PartitionableGpu WHERE PartitionCount=4").Path
		read := func() (count, vram uint64) {
			row, err := r.wmi.Get(t.Context(), hyperv.Virtualization, face, "PartitionCount", "MinPartitionVRAM")
			r.run(err)
			return row.Uint("PartitionCount"), row.Uint("MinPartitionVRAM")
		}
		r.run(r.wmi.Put(t.Context(), hyperv.Virtualization, face, map[string]any{"PartitionCount": int32(8)}))
		if count, vram := read(); count != 4 || vram != 4000 {
			t.Errorf("at once the count is %d, with %d", count, vram)
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if count, vram := read(); count != 8 || vram != 2000 {
			t.Errorf("then the count is %d, with %d", count, vram)
		}
		r.run(r.wmi.Put(t.Context(), hyperv.Virtualization, face, map[string]any{"PartitionCount": int32(8)})) // as it is
	})
}

func TestAccessDenied(t *testing.T) {
	r := newRig(t, inCluster)
	r.machine.Deny("msvm_partitionablegpu")
	_, err := r.wmi.Query(t.Context(), hyperv.Virtualization, "SELECT * FROM Msvm_PartitionableGpu")
	wantFault(t, "a class", err, hyperv.AccessDenied)
	r.query(hyperv.Virtualization, "SELECT * FROM Msvm_ComputerSystem")
	r.machine.Deny("root/mscluster")
	_, err = r.machine.Open(hyperv.MSCluster)
	wantFault(t, "a namespace", err, hyperv.AccessDenied)
	_, err = r.wmi.Query(t.Context(), hyperv.MSCluster, "SELECT * FROM MSCluster_Cluster")
	wantFault(t, "a query there", err, hyperv.AccessDenied)
	r.machine.Allow(`root\MSCluster`)
	r.query(hyperv.MSCluster, "SELECT * FROM MSCluster_Cluster")
}

func TestTheServiceGoes(t *testing.T) {
	r := newRig(t)
	const wql = "SELECT * FROM Msvm_ComputerSystem"
	n, err := r.machine.Open(hyperv.Virtualization)
	r.run(err)
	r.machine.Gone(2)
	r.query(hyperv.Virtualization, wql)
	r.query(hyperv.Virtualization, wql)
	_, err = n.Query(t.Context(), wql)
	wantFault(t, "a query", err, hyperv.ServerUnavail)
	_, err = r.machine.Open(hyperv.CIMv2)
	wantFault(t, "a connection", err, hyperv.ServerUnavail)
	wantFault(t, "a write", r.wmi.Put(t.Context(), hyperv.Virtualization, "x", nil), hyperv.ServerUnavail)
	r.machine.Back()
	r.query(hyperv.Virtualization, wql)

	r.run(r.fleet.SetUnreachable(t.Context(), "hv01", true))
	_, err = n.Query(t.Context(), wql)
	wantFault(t, "a host that is switched off", err, hyperv.ServerUnavail)
	r.run(r.fleet.SetUnreachable(t.Context(), "hv01", false))
	r.run(r.fleet.InjectFault(t.Context(), "hv01", simulated.Fault{Op: simulated.OpInventory, Times: 1, Code: backend.AccessDenied}))
	_, err = n.Query(t.Context(), wql)
	wantFault(t, "a fault of the fleet", err, hyperv.AccessDenied)
}

// The end of a context is the caller's and no fault of the service.
func TestTheCallerGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := r.wmi.Query(ctx, hyperv.Virtualization, "SELECT * FROM Msvm_ComputerSystem")
		if _, isFault := errors.AsType[*hyperv.Fault](err); isFault || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		r.run(r.fleet.EditSimulation(t.Context(), "hv01", func(s *simulated.Simulation) {
			s.Latency = map[simulated.Op]int{simulated.OpInventory: 60000}
		}))
		ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err = r.wmi.Query(ctx, hyperv.Virtualization, "SELECT * FROM Msvm_ComputerSystem")
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}
