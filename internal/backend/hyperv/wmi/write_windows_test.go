//go:build wmifixture

package wmi_test

import (
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
)

func TestPut(t *testing.T) {
	r := newRig(t, 0)
	path := r.first(t, hyperv.Virtualization, gpus).Path
	if err := r.Put(t.Context(), hyperv.Virtualization, path, map[string]any{"PartitionCount": int32(8)}); err != nil {
		t.Fatal(err)
	}
	settles(t, "partition count", 8, func() int {
		row, err := r.Get(t.Context(), hyperv.Virtualization, path, "PartitionCount")
		if err != nil {
			t.Error(err)
		}
		return int(row.Uint("PartitionCount"))
	})
}

func TestPutEmbedded(t *testing.T) {
	r := newRig(t, 1)
	const query = "SELECT * FROM MSCluster_Resource WHERE Type='Virtual Machine'"
	before := r.one(t, hyperv.MSCluster, query, "PrivateProperties")
	err := r.Put(t.Context(), hyperv.MSCluster, before.Path, map[string]any{
		"PrivateProperties": map[string]any{"OfflineAction": int32(3)},
	})
	if err != nil {
		t.Fatal(err)
	}
	after := r.one(t, hyperv.MSCluster, query, "PrivateProperties").Row("PrivateProperties")
	if got := after.Uint("OfflineAction"); got != 3 {
		t.Errorf("the offline action is %d", got)
	}
	if got, want := after.String("VmID"), before.Row("PrivateProperties").String("VmID"); got != want {
		t.Errorf("the VM's id is %q, was %q", got, want)
	}
}

func TestFaultsOfWriting(t *testing.T) {
	r := newRig(t, 0)
	path := r.first(t, hyperv.Virtualization, gpus).Path
	tests := map[string]struct {
		set  map[string]any
		want hyperv.Code
	}{
		"property that the class has not":     {map[string]any{"NoSuchProperty": int32(8)}, hyperv.UnknownName},
		"value of another type":               {map[string]any{"PartitionCount": "many"}, 0x80041005},
		"value that does not fit":             {map[string]any{"PartitionCount": int32(70000)}, 0x80041005},
		"value that automation does not know": {map[string]any{"PartitionCount": 8.5}, hyperv.InvalidParameter},
		"no embedded object":                  {map[string]any{"PartitionCount": map[string]any{"A": int32(1)}}, 0x80041005},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			wantCode(t, r.Put(t.Context(), hyperv.Virtualization, path, test.set), test.want)
		})
	}
	if row := r.first(t, hyperv.Virtualization, gpus, "PartitionCount"); row.Uint("PartitionCount") != 4 {
		t.Errorf("the partition count is %v", row.Values)
	}
}

func TestInvoke(t *testing.T) {
	r := newRig(t, 1)
	result := r.addAdapter(t, vmID(1))
	if result.ReturnValue != 4096 {
		t.Fatalf("got the return value %d, want a job", result.ReturnValue)
	}
	job, _ := result.Out["Job"].(string)
	deadline := time.Now().Add(time.Minute)
	for state := uint64(0); state != 7; {
		row, err := r.Get(t.Context(), hyperv.Virtualization, job, "JobState")
		if err != nil {
			t.Fatal(err)
		}
		if state = row.Uint("JobState"); time.Now().After(deadline) {
			t.Fatalf("the job is in the state %d", state)
		}
	}
	if n := r.adapters(t, vmID(1)); n != 1 {
		t.Errorf("the VM has %d adapters", n)
	}
}

func TestInvokeStatic(t *testing.T) {
	r := newRig(t, 0)
	localMachine := uint32(0x80000002) // HKEY_LOCAL_MACHINE; automation knows only its bits.
	result, err := r.Invoke(t.Context(), hyperv.Registry, "StdRegProv", "GetStringValue", map[string]any{
		"hDefKey":     int32(localMachine),
		"sSubKeyName": `SOFTWARE\Microsoft\Windows NT\CurrentVersion`,
		"sValueName":  "DisplayVersion",
	})
	if err != nil {
		t.Fatal(err)
	}
	if v, _ := result.Out["sValue"].(string); result.ReturnValue != 0 || v == "" {
		t.Errorf("got %+v", result)
	}
}

func TestFaultsOfInvoking(t *testing.T) {
	r := newRig(t, 0)
	service := r.service(t)
	tests := map[string]struct {
		method string
		in     map[string]any
		want   hyperv.Code
	}{
		"method that the class has not":       {"AddNothing", nil, hyperv.InvalidMethod},
		"parameter that the method has not":   {"AddResourceSettings", map[string]any{"AffectedConfigurations": "x"}, hyperv.InvalidParameter},
		"parameter of another type":           {"AddResourceSettings", map[string]any{"ResourceSettings": "x"}, 0x80041005},
		"value that automation does not know": {"AddResourceSettings", map[string]any{"ResourceSettings": []int{1}}, hyperv.InvalidParameter},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			result, err := r.Invoke(t.Context(), hyperv.Virtualization, service, test.method, test.in)
			wantCode(t, err, test.want)
			if len(result.Out) > 0 || result.ReturnValue != 0 {
				t.Errorf("got %+v besides the fault", result)
			}
		})
	}
}
