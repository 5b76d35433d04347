package fakewmi_test

import (
	"encoding/xml"
	"reflect"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	fakewmi "github.com/gpufleet/terraform-provider-gpu/internal/fake/wmi"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Values arrive as automation makes them, and no value is none, not zero.
func TestValuesAreThoseOfAutomation(t *testing.T) {
	r := newRig(t, inCluster, func(s *gpu.Snapshot) {
		s.Hosts[0].VMs[0].PartitionAdapters = []gpu.PartitionAdapter{{ID: beta}}
	})
	face := r.one(hyperv.Virtualization, "SELECT * FROM Msvm_PartitionableGpu WHERE PartitionCount=4",
		"PartitionCount", "TotalEncode", "ValidPartitionCounts", "SupportsIncomingLiveMigration", "Name", "Description")
	want := map[string]any{
		"PartitionCount": int32(4), "TotalEncode": "9223372036854775808", "SupportsIncomingLiveMigration": true, "Name": nameA,
		"ValidPartitionCounts": []any{int32(16), int32(8), int32(4), int32(2), int32(1)}, "Description": nil,
	}
	if !reflect.DeepEqual(face.Values, want) {
		t.Errorf("a partitionable GPU is %#v", face.Values)
	}
	adapter := r.one(hyperv.Virtualization, `SELECT * FROM Msvm_GpuPartitionSettingData WHERE NOT InstanceID LIKE '%Definition%'`,
		"MinPartitionVRAM", "HostResource", "PoolID", "Weight")
	want = map[string]any{"MinPartitionVRAM": nil, "HostResource": nil, "PoolID": "", "Weight": int32(0)}
	if !reflect.DeepEqual(adapter.Values, want) {
		t.Errorf("an adapter that nobody configured is %#v", adapter.Values)
	}
	resource := r.one(hyperv.MSCluster, "SELECT * FROM MSCluster_Resource WHERE Name='Virtual Machine alpha'", "PrivateProperties", "State")
	private := resource.Row("PrivateProperties")
	if private.Path != "" || private.Values["OfflineAction"] != int32(1) || resource.Values["State"] != int32(3) {
		t.Errorf("a clustered VM is %#v", resource)
	}
	if code := r.invoke(hyperv.MSCluster, r.one(hyperv.MSCluster, "SELECT * FROM MSCluster_Cluster").Path,
		"GetNodeClusterState", nil); code.Out["ClusterState"] != int32(19) {
		t.Errorf("the state of the cluster is %#v", code)
	}
}

// What a build does not have is left out of rows and refused in queries.
func TestOldBuilds(t *testing.T) {
	r := newRig(t, onBuild(20348))
	face := r.query(hyperv.Virtualization, "SELECT * FROM Msvm_PartitionableGpu", "Name", "SupportsIncomingLiveMigration")[0]
	if face.Has("SupportsIncomingLiveMigration") || !face.Has("Name") {
		t.Errorf("Windows Server 2022 has %#v", face.Values)
	}
	_, err := r.wmi.Query(t.Context(), hyperv.Virtualization, "SELECT Name,SupportsIncomingLiveMigration FROM Msvm_PartitionableGpu")
	wantFault(t, "a property of a newer build", err, hyperv.InvalidQuery)

	r = newRig(t, onBuild(10240))
	for _, class := range []string{
		"Msvm_PartitionableGpu", "Msvm_GpuPartition", "Msvm_GpuPartitionSettingData", "Msvm_AssignableDeviceService",
	} {
		_, err := r.wmi.Query(t.Context(), hyperv.Virtualization, "SELECT * FROM "+class)
		wantFault(t, class, err, hyperv.InvalidClass)
	}
	if rows := r.query(hyperv.Virtualization, "SELECT * FROM Msvm_ResourcePool WHERE ResourceType=32770"); len(rows) != 0 {
		t.Error("a build without partitions has a pool of them")
	}

	r = newRig(t)
	r.machine.Hide("msvm_partitionablegpu.PartitionCount")
	r.machine.Hide("Msvm_GpuPartition")
	if face := r.query(hyperv.Virtualization, "SELECT * FROM Msvm_PartitionableGpu", "PartitionCount")[0]; face.Has("PartitionCount") {
		t.Error("a hidden property is there")
	}
	_, err = r.wmi.Query(t.Context(), hyperv.Virtualization, "SELECT * FROM Msvm_GpuPartition")
	wantFault(t, "a hidden class", err, hyperv.InvalidClass)
}

func TestPropertiesTakeWhatAutomationConverts(t *testing.T) {
	o := class(t, newRig(t), "Msvm_GpuPartitionSettingData").New()
	for _, c := range []struct {
		name     string
		in, want any
	}{
		{"ResourceType", int32(32770), uint64(32770)},
		{"ResourceType", "7", uint64(7)},
		{"resourcetype", nil, nil},
		{"MinPartitionVRAM", "18446744073709551615", uint64(1<<64 - 1)},
		{"MinPartitionVRAM", int32(5), uint64(5)},
		{"Weight", int32(-1), uint64(1<<32 - 1)}, // the bits are an unsigned number's
		{"AutomaticAllocation", true, true},
		{"HostResource", []string{"a", "b"}, []any{"a", "b"}},
		{"HostResource", []any{"a"}, []any{"a"}},
	} {
		if err := o.Set(c.name, c.in); err != nil {
			t.Errorf("%s = %#v: %v", c.name, c.in, err)
		}
		if got, ok := o.Get(c.name); !ok || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s = %#v became %#v", c.name, c.in, got)
		}
	}
	const typeMismatch hyperv.Code = 0x80041005
	for name, values := range map[string][]any{
		"ResourceType":        {int32(70000), int32(-1), "many", true, []string{"1"}, 1.5},
		"MinPartitionVRAM":    {int32(-1), "-1", "18446744073709551616"},
		"InstanceID":          {int32(1), true, []string{"a"}},
		"AutomaticAllocation": {int32(1), "TRUE"},
		"HostResource":        {"a", []any{int32(1)}, []any{nil}},
	} {
		for _, v := range values {
			wantFault(t, name, o.Set(name, v), typeMismatch)
		}
	}
	wantFault(t, "a property that is not there", o.Set("Host", "a"), hyperv.UnknownName)
}

func class(t *testing.T, r *rig, name string) *fakewmi.Class {
	t.Helper()
	n, err := r.machine.Open(hyperv.Virtualization)
	if err != nil {
		t.Fatal(err)
	}
	o, err := n.Get(t.Context(), name)
	if err != nil || !o.IsClass() {
		t.Fatalf("class %s: %v", name, err)
	}
	return o.Class
}

// The text of an instance is XML that says of each property which type it is of, and
// has no VALUE for what has none.
func TestText(t *testing.T) {
	r := newRig(t, func(s *gpu.Snapshot) {
		quota := uint64(1 << 30)
		s.Hosts[0].VMs[0].PartitionAdapters = []gpu.PartitionAdapter{
			{ID: beta, PinnedGPU: gpuA, Quotas: gpu.Quotas{VRAM: gpu.Quota{Min: &quota}}},
		}
	})
	path := r.one(hyperv.Virtualization, `SELECT * FROM Msvm_GpuPartitionSettingData WHERE NOT InstanceID LIKE '%Definition%'`).Path
	text, err := r.wmi.Text(t.Context(), hyperv.Virtualization, path)
	if err != nil {
		t.Fatal(err)
	}
	var parsed struct {
		Class    string `xml:"CLASSNAME,attr"`
		Property []struct {
			Name  string   `xml:"NAME,attr"`
			Type  string   `xml:"TYPE,attr"`
			Value []string `xml:"VALUE"`
		} `xml:"PROPERTY"`
		Array []struct {
			Name  string   `xml:"NAME,attr"`
			Type  string   `xml:"TYPE,attr"`
			Value []string `xml:"VALUE.ARRAY>VALUE"`
		} `xml:"PROPERTY.ARRAY"`
	}
	if err := xml.Unmarshal([]byte(text), &parsed); err != nil {
		t.Fatal(err)
	}
	got := map[string]any{"class": parsed.Class}
	for _, p := range parsed.Property {
		got[p.Name] = append([]string{p.Type}, p.Value...)
	}
	for _, p := range parsed.Array {
		got[p.Name] = append([]string{p.Type}, p.Value...)
	}
	face := r.one(hyperv.Virtualization, "SELECT * FROM Msvm_PartitionableGpu WHERE PartitionCount=4").Path
	for name, want := range map[string]any{
		"class": "Msvm_GpuPartitionSettingData", "ResourceType": []string{"uint16", "32770"}, "PoolID": []string{"string", ""},
		"MinPartitionVRAM": []string{"uint64", "1073741824"}, "MaxPartitionVRAM": []string{"uint64"},
		"AutomaticAllocation": []string{"boolean", "TRUE"},
		"HostResource":        []string{"string", face}, "VirtualSystemIdentifiers": []string{"string"},
	} {
		if !reflect.DeepEqual(got[name], want) {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	if !strings.Contains(text, "VEN_10DE&amp;DEV_25B6") {
		t.Errorf("the text is not escaped: %s", text)
	}
}

func TestPuttingBackWhatCannotBeWritten(t *testing.T) {
	r := newRig(t, inCluster)
	const (
		readOnly     hyperv.Code = 0x80041023
		notCapable   hyperv.Code = 0x80041024
		typeMismatch hyperv.Code = 0x80041005
	)
	face := r.one(hyperv.Virtualization, "SELECT * FROM Msvm_PartitionableGpu WHERE PartitionCount=4").Path
	vm := r.one(hyperv.Virtualization, "SELECT * FROM Msvm_ComputerSystem WHERE Name='"+alpha+"'").Path
	resource := r.one(hyperv.MSCluster, "SELECT * FROM MSCluster_Resource WHERE Name='Virtual Machine beta'").Path
	before := r.host()
	for _, c := range []struct {
		name, namespace, path string
		set                   map[string]any
		want                  hyperv.Code
	}{
		{"a capacity", hyperv.Virtualization, face, map[string]any{"TotalVRAM": "1"}, readOnly},
		{"a key", hyperv.Virtualization, face, map[string]any{"Name": "x"}, readOnly},
		{"the valid counts", hyperv.Virtualization, face, map[string]any{"ValidPartitionCounts": []string{"3"}}, notCapable},
		{"no count", hyperv.Virtualization, face, map[string]any{"PartitionCount": nil}, notCapable},
		{
			"a count that the driver does not offer", hyperv.Virtualization, face,
			map[string]any{"PartitionCount": int32(3)},
			hyperv.InvalidParameter,
		},
		{"a count of another type", hyperv.Virtualization, face, map[string]any{"PartitionCount": true}, typeMismatch},
		{"a number that is none of automation's", hyperv.Virtualization, face, map[string]any{"PartitionCount": 8}, hyperv.InvalidParameter},
		{"a property that is not there", hyperv.Virtualization, face, map[string]any{"Count": int32(8)}, hyperv.UnknownName},
		{"a VM's name", hyperv.Virtualization, vm, map[string]any{"ElementName": "x"}, readOnly},
		{"a VM's state", hyperv.Virtualization, vm, map[string]any{"EnabledState": int32(2)}, readOnly},
		{"a VM's id", hyperv.MSCluster, resource, map[string]any{"PrivateProperties": map[string]any{"VmID": "x"}}, readOnly},
		{
			"an offline action that is none", hyperv.MSCluster, resource,
			map[string]any{"PrivateProperties": map[string]any{"OfflineAction": int32(4)}},
			hyperv.InvalidParameter,
		},
		{"an object within no object", hyperv.MSCluster, resource, map[string]any{"Name": map[string]any{"a": "b"}}, typeMismatch},
		{
			"what is gone", hyperv.Virtualization, strings.Replace(face, "18416dc3", "0", 1),
			map[string]any{"PartitionCount": int32(8)},
			hyperv.NotFound,
		},
	} {
		wantFault(t, c.name, r.wmi.Put(t.Context(), c.namespace, c.path, c.set), c.want)
	}
	if after := r.host(); !reflect.DeepEqual(before, after) {
		t.Error("what was refused changed the host")
	}
}
