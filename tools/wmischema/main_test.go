package main

import (
	"path/filepath"
	"testing"
)

// The classes of the stand-in are those that Microsoft generated from Windows Server 2019
// and 23H2.
func TestPublished(t *testing.T) {
	t.Chdir("../..")
	lines, err := read(file)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := module()
	if err != nil {
		t.Skip(err)
	}
	for build, at := range generated {
		root := filepath.Join(dir, at, "root")
		for _, err := range compare(lines, root, build) {
			t.Error(err)
		}
		for name, wrong := range map[string]line{
			"a type":      {virtualization, "Msvm_GpuPartition", "PartitionId", "string", "", ""},
			"an array":    {virtualization, "Msvm_GpuPartition", "PartitionId", "uint16[]", "", ""},
			"a property":  {`root\MSCluster`, "MSCluster_Node", "Drained", "uint32", "", ""},
			"a method":    {virtualization, "Msvm_AssignableDeviceService", "Dismount()", "uint32", "", ""},
			"a parameter": {virtualization, "Msvm_AssignableDeviceService", "MountAssignableDevice(Path)", "string", "in", ""},
			"a base":      {virtualization, "Msvm_GpuPartition", "", "CIM_Job", "", ""},
			"a build":     {virtualization, "Msvm_GpuPartition", "PartitionId", "uint16", "", "26100"},
		} {
			if len(compare([]line{wrong}, root, build)) == 0 {
				t.Errorf("build %d: %s that is wrong is not found", build, name)
			}
		}
	}
}
