//go:build wmifixture

package wmi_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
)

const gpus = "SELECT * FROM Msvm_PartitionableGpu"

func TestValues(t *testing.T) {
	r := newRig(t, 1)
	tests := map[string]struct {
		namespace, wql, property string
		want                     any
	}{
		"string":          {hyperv.Virtualization, "SELECT * FROM Msvm_ComputerSystem WHERE Name='" + vmID(1) + "'", "ElementName", "vm-1"},
		"uint16":          {hyperv.Virtualization, gpus, "PartitionCount", int32(4)},
		"uint64":          {hyperv.Virtualization, gpus, "TotalVRAM", "17179869184"},
		"array of uint16": {hyperv.Virtualization, gpus, "ValidPartitionCounts", []any{int32(1), int32(2), int32(4), int32(8), int32(16)}},
		"boolean":         {hyperv.Virtualization, "SELECT * FROM Msvm_ResourcePool WHERE ResourceType=32770", "Primordial", true},
		"no value": {
			hyperv.Virtualization, "SELECT * FROM Msvm_GpuPartitionSettingData WHERE InstanceID LIKE '%Default'", "MinPartitionVRAM", nil,
		},
		"digits in a string":  {hyperv.CIMv2, "SELECT * FROM Win32_OperatingSystem", "BuildNumber", "26100"},
		"cluster's namespace": {hyperv.MSCluster, "SELECT * FROM MSCluster_Cluster", "Name", "cl1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := r.first(t, test.namespace, test.wql, test.property)
			if diff := cmp.Diff(map[string]any{test.property: test.want}, got.Values); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAbsentPropertyIsLeftOut(t *testing.T) {
	r := newRig(t, 0)
	row := r.first(t, hyperv.Virtualization, gpus, "PartitionCount", "NoSuchProperty")
	if !row.Has("PartitionCount") || row.Has("NoSuchProperty") {
		t.Errorf("got %v", row.Values)
	}
	row = r.first(t, hyperv.Virtualization, "SELECT Name FROM Msvm_PartitionableGpu", "Name", "PartitionCount")
	if !row.Has("Name") || row.Has("PartitionCount") {
		t.Errorf("got %v", row.Values)
	}
}

func TestPath(t *testing.T) {
	r := newRig(t, 0)
	row := r.first(t, hyperv.Virtualization, gpus, "Name")
	if !strings.HasPrefix(row.Path, `\\HV01\root\virtualization\v2:Msvm_PartitionableGpu.`) {
		t.Errorf("got the path %q", row.Path)
	}
	again, err := r.Get(t.Context(), hyperv.Virtualization, row.Path, "Name")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(row, again); diff != "" {
		t.Error(diff)
	}
	if row := r.first(t, hyperv.Virtualization, "SELECT PartitionCount FROM Msvm_PartitionableGpu"); row.Path != "" {
		t.Errorf("without its keys an instance has the path %q", row.Path)
	}
}

func TestEmbeddedObjects(t *testing.T) {
	r := newRig(t, 1)
	device := r.first(t, hyperv.CIMv2, "SELECT * FROM Win32_PnPEntity WHERE PNPClass='Display' AND Name='NVIDIA A2'")
	result, err := r.Invoke(t.Context(), hyperv.CIMv2, device.Path, "GetDeviceProperties",
		map[string]any{"devicePropertyKeys": []string{"DEVPKEY_Device_LocationPaths", "DEVPKEY_Device_DriverVersion"}})
	if err != nil {
		t.Fatal(err)
	}
	rows := hyperv.Row{Values: result.Out}.Rows("deviceProperties")
	if len(rows) != 2 {
		t.Fatalf("got %d properties, want 2", len(rows))
	}
	if key := rows[0].String("KeyName"); key != "DEVPKEY_Device_LocationPaths" {
		t.Errorf("got the key %q", key)
	}
	if paths := rows[0].Strings("Data"); len(paths) == 0 || !strings.HasPrefix(paths[0], "PCIROOT(") {
		t.Errorf("got the location paths %q", paths)
	}

	resource := r.first(t, hyperv.MSCluster, "SELECT * FROM MSCluster_Resource WHERE Type='Virtual Machine'", "PrivateProperties")
	if private := resource.Row("PrivateProperties"); !private.Has("VmID") || !private.Has("OfflineAction") {
		t.Errorf("got the private properties %v", private.Values)
	}
}

func TestText(t *testing.T) {
	r := newRig(t, 0)
	text, err := r.Text(t.Context(), hyperv.Virtualization, r.first(t, hyperv.Virtualization, gpus).Path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, `<INSTANCE CLASSNAME="Msvm_PartitionableGpu"`) || !strings.Contains(text, "&amp;DEV_25B6") {
		t.Errorf("got %s", text)
	}
}

func TestFaultsOfReading(t *testing.T) {
	r := newRig(t, 1)
	tests := map[string]struct {
		namespace, wql string
		want           hyperv.Code
	}{
		"namespace": {`root\nowhere`, gpus, hyperv.InvalidNamespace},
		"class":     {hyperv.Virtualization, "SELECT * FROM Msvm_Nothing", hyperv.InvalidClass},
		"syntax":    {hyperv.Virtualization, "SELECT FROM", hyperv.InvalidQuery},
		"property":  {hyperv.Virtualization, "SELECT Nothing FROM Msvm_PartitionableGpu", hyperv.InvalidQuery},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			rows, err := r.Query(t.Context(), test.namespace, test.wql)
			wantCode(t, err, test.want)
			if len(rows) > 0 {
				t.Errorf("got %d rows besides the fault", len(rows))
			}
		})
	}
	t.Run("path", func(t *testing.T) {
		path := r.first(t, hyperv.Virtualization, "SELECT * FROM Msvm_ComputerSystem WHERE Name='"+vmID(1)+"'").Path
		_, err := r.Get(t.Context(), hyperv.Virtualization, strings.ReplaceAll(path, vmID(1), vmID(9)))
		wantCode(t, err, hyperv.NotFound)
	})
	t.Run("rights", func(t *testing.T) {
		r.machine.Deny("Msvm_PartitionableGpu")
		_, err := r.Query(t.Context(), hyperv.Virtualization, gpus)
		wantCode(t, err, hyperv.AccessDenied)
	})
}
