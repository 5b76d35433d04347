package fakewmi_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// allClasses has some class of every source of instances.
var allClasses = map[string][]string{
	"root": {"__NAMESPACE"},
	hyperv.Virtualization: {
		"CIM_ManagedElement", "Msvm_SettingsDefineState", "Msvm_ElementCapabilities", "Msvm_SettingsDefineCapabilities",
		"Msvm_ElementAllocatedFromPool",
		"Msvm_ResourceAllocationFromPool", "Msvm_ConcreteComponent", "Msvm_SystemDevice", "Msvm_VirtualSystemSettingDataComponent",
	},
	hyperv.CIMv2:     {"CIM_ManagedSystemElement", "Win32_PNPAllocatedResource"},
	hyperv.MSCluster: {"CIM_ManagedSystemElement", "CIM_Component", "CIM_Dependency"},
	hyperv.Registry:  {"StdRegProv"},
}

// Every instance of every build can be read, has a path, and is found by it.
func TestEveryInstanceIsFoundByItsPath(t *testing.T) {
	for _, build := range []int{10240, 14393, 17763, 20348, 26100, 29617, 0} {
		r := newRig(t, inCluster, onBuild(build))
		r.run(r.fleet.SetVMState(t.Context(), alpha, gpu.VMRunning))
		for namespace, classes := range allClasses {
			n, err := r.machine.Open(namespace)
			if err != nil {
				t.Fatal(err)
			}
			for _, class := range classes {
				rows, err := n.Query(t.Context(), "SELECT * FROM "+class)
				if err != nil {
					t.Fatalf("build %d: %v", build, err)
				}
				for _, o := range rows {
					again, err := n.Get(t.Context(), o.Path)
					if err != nil || again.Path != o.Path || again.Class.Name != o.Class.Name {
						t.Errorf("build %d: %s is not found: %v", build, o.Path, err)
					}
					if strings.Contains(o.Text(), "<nil>") {
						t.Errorf("build %d: %s", build, o.Text())
					}
				}
			}
		}
	}
}

func TestQueries(t *testing.T) {
	r := newRig(t, inCluster)
	vm := func(condition string) string { return "SELECT * FROM Msvm_ComputerSystem WHERE " + condition }
	entity := func(condition string) string { return "select deviceid from win32_pnpentity where " + condition }
	for _, c := range []struct {
		namespace, wql string
		rows           int
	}{
		{hyperv.Virtualization, vm(`ElementName='ALPHA'`), 1},
		{`ROOT/Virtualization/V2`, vm(`ElementName="alpha"`), 1},
		{hyperv.Virtualization, vm(`ElementName<>'alpha' AND EnabledState=3`), 1},
		{hyperv.Virtualization, vm(`ElementName='alpha' OR ElementName='beta' AND EnabledState=2`), 1},
		{hyperv.Virtualization, vm(`(ElementName='alpha' OR ElementName='beta') AND EnabledState=2`), 0},
		{hyperv.Virtualization, vm(`NOT EnabledState=2`), 2},
		{hyperv.Virtualization, vm(`EnabledState>2 AND EnabledState<=3 AND EnabledState!=4`), 2},
		{hyperv.Virtualization, vm(`EnabledState='3'`), 2},
		{hyperv.Virtualization, vm(`ProcessID IS NULL AND Name IS NOT NULL`), 3},
		{hyperv.Virtualization, vm(`ProcessID=NULL`), 3},
		{hyperv.Virtualization, vm(`ProcessID=4000`), 0},
		{hyperv.Virtualization, "SELECT * FROM Msvm_ResourcePool WHERE Primordial=TRUE", 3},
		{hyperv.Virtualization, "SELECT * FROM Msvm_ResourcePool WHERE PoolID='vdi'", 2}, // one of them of memory
		{hyperv.Virtualization, "SELECT * FROM Msvm_ResourcePool WHERE PoolID='VDI' AND ResourceType=32769", 1},
		{hyperv.Virtualization, "SELECT * FROM Msvm_ResourcePool WHERE ResourceType=32769 OR ResourceType=32770", 3},
		{hyperv.Virtualization, `SELECT * FROM Msvm_GpuPartitionSettingData WHERE InstanceID LIKE 'Microsoft:Definition\\%'`, 4},
		{hyperv.Virtualization, `SELECT * FROM CIM_ResourceAllocationSettingData WHERE InstanceID LIKE '%\\Default'`, 3},
		{hyperv.Virtualization, `SELECT * FROM Msvm_PartitionableGpu WHERE Name='` + strings.ReplaceAll(nameA, `\`, `\\`) + `'`, 1},
		{hyperv.Virtualization, "SELECT * FROM Msvm_PartitionableGpu WHERE TotalEncode=9223372036854775808", 1},
		{hyperv.CIMv2, entity(`Name='NVIDIA \"A2\" \\ test\'s'`), 1},
		{hyperv.CIMv2, entity(`Name="NVIDIA \"A2\" \\ test's"`), 1},
		{hyperv.CIMv2, entity(`DeviceID LIKE 'PCI\\VEN[_]10DE%'`), 3}, // two GPUs and an audio function
		{hyperv.CIMv2, entity(`DeviceID LIKE 'PCIP\\%'`), 1},
		{hyperv.CIMv2, entity(`DeviceID LIKE '_CI\\VEN_1[A-F]03%'`), 1},
		{hyperv.CIMv2, entity(`DeviceID LIKE 'PCI\\VEN_1[^A-F]%' AND PNPClass='Display'`), 2},
		{hyperv.CIMv2, entity(`Manufacturer LIKE '(Standard%'`), 1}, // no regular expression
		{hyperv.CIMv2, "SELECT * FROM Win32_VideoController WHERE CurrentHorizontalResolution > 0", 2},
		{hyperv.MSCluster, "SELECT * FROM MSCluster_Resource WHERE Type='Virtual Machine'", 3},
		{hyperv.MSCluster, "SELECT * FROM MSCluster_Resource WHERE Type='Virtual Machine' AND PrivateProperties.VmID='" + alpha + "'", 1},
		{hyperv.MSCluster, "SELECT * FROM MSCluster_ResourceGroup WHERE GroupType=111", 3},
		{"root", "SELECT Name FROM __NAMESPACE WHERE Name='MSCluster'", 1},
	} {
		if rows := r.query(c.namespace, c.wql); len(rows) != c.rows {
			t.Errorf("%s has %d rows, want %d", c.wql, len(rows), c.rows)
		}
	}
}

func TestQueriesThatAreRefused(t *testing.T) {
	r := newRig(t)
	for wql, want := range map[string]hyperv.Code{
		"":                                                                         hyperv.InvalidQuery,
		"SELECT":                                                                   hyperv.InvalidQuery,
		"DELETE FROM Msvm_ComputerSystem":                                          hyperv.InvalidQuery,
		"SELECT * Msvm_ComputerSystem":                                             hyperv.InvalidQuery,
		"SELECT *, Name FROM Msvm_X":                                               hyperv.InvalidQuery,
		"SELECT * FROM Msvm_Synthetic3D":                                           hyperv.InvalidClass,
		"SELECT * FROM Win32_PnPEntity":                                            hyperv.InvalidClass, // of another namespace
		"SELECT Nme FROM Msvm_ComputerSystem":                                      hyperv.InvalidQuery,
		"SELECT * FROM Msvm_ComputerSystem WHERE":                                  hyperv.InvalidQuery,
		"SELECT * FROM Msvm_ComputerSystem WHERE Nme='a'":                          hyperv.InvalidQuery,
		"SELECT * FROM Msvm_ComputerSystem WHERE Name=alpha":                       hyperv.InvalidQuery,
		"SELECT * FROM Msvm_ComputerSystem WHERE Name='alpha":                      hyperv.InvalidQuery,
		"SELECT * FROM Msvm_ComputerSystem WHERE Name='O'Neill'":                   hyperv.InvalidQuery,
		`SELECT * FROM Msvm_ComputerSystem WHERE Name='PCI\VEN'`:                   hyperv.InvalidQuery,
		`SELECT * FROM Msvm_ComputerSystem WHERE Name='a\'`:                        hyperv.InvalidQuery,
		"SELECT * FROM Msvm_ComputerSystem WHERE (Name='a'":                        hyperv.InvalidQuery,
		"SELECT * FROM Msvm_ComputerSystem WHERE Name='a' XOR Name='b'":            hyperv.InvalidQuery,
		"SELECT * FROM Msvm_ComputerSystem WHERE EnabledState='off'":               hyperv.InvalidQuery,
		"SELECT * FROM Msvm_ComputerSystem WHERE EnabledState=70000":               hyperv.InvalidQuery,
		"SELECT * FROM Msvm_ComputerSystem WHERE EnabledState LIKE '3'":            hyperv.InvalidQuery,
		"SELECT * FROM Msvm_ComputerSystem WHERE Name=3":                           hyperv.InvalidQuery,
		"SELECT * FROM Msvm_ComputerSystem WHERE OperationalStatus=2":              hyperv.InvalidQuery,
		"SELECT * FROM Msvm_ComputerSystem WHERE Name.Length=2":                    hyperv.InvalidQuery,
		"SELECT * FROM Msvm_ResourcePool WHERE Primordial=1":                       hyperv.InvalidQuery,
		"SELECT * FROM Msvm_ComputerSystem; SELECT * FROM Msvm_ResourcePool":       hyperv.InvalidQuery,
		"ASSOCIATORS {Msvm_ComputerSystem.Name='a'}":                               hyperv.InvalidQuery,
		"ASSOCIATORS OF {Msvm_ComputerSystem}":                                     hyperv.InvalidQuery,
		`ASSOCIATORS OF {Msvm_ComputerSystem.CreationClassName="a",Name="b"}`:      hyperv.NotFound,
		`ASSOCIATORS OF {` + r.settings(alpha) + `} WHERE`:                         hyperv.InvalidQuery,
		`ASSOCIATORS OF {` + r.settings(alpha) + `} WHERE Class=Msvm_SystemDevice`: hyperv.InvalidQuery,
		`ASSOCIATORS OF {` + r.settings(alpha) + `} WHERE AssocClass=Msvm_Nothing`: hyperv.InvalidClass,
		`ASSOCIATORS OF {` + r.settings(alpha) + `} WHERE Role=A AND Role=B`:       hyperv.InvalidQuery,
		`ASSOCIATORS OF {` + r.settings(alpha):                                     hyperv.InvalidQuery,
	} {
		_, err := r.wmi.Query(t.Context(), hyperv.Virtualization, wql)
		wantFault(t, wql, err, want)
	}
	_, err := r.wmi.Query(t.Context(), `root\virtualization`, "SELECT * FROM Msvm_ComputerSystem")
	wantFault(t, "a namespace that is not there", err, hyperv.InvalidNamespace)
	_, err = r.wmi.Query(t.Context(), hyperv.MSCluster, "SELECT * FROM MSCluster_Cluster")
	wantFault(t, "the cluster of a host that is in none", err, hyperv.InvalidNamespace)
}

// A select list without the keys leaves the path empty, and what was not asked for
// cannot be read.
func TestSelectLists(t *testing.T) {
	r := newRig(t)
	const from = " FROM Msvm_ComputerSystem WHERE ElementName='alpha'"
	row := r.one(hyperv.Virtualization, "SELECT ElementName"+from, "ElementName", "Name")
	if row.Path != "" || row.Has("Name") || row.String("ElementName") != "alpha" {
		t.Errorf("without the keys: %+v", row)
	}
	row = r.one(hyperv.Virtualization, "SELECT Name, CreationClassName"+from, "ElementName", "Name")
	if row.Path == "" || row.Has("ElementName") || row.String("Name") != alpha {
		t.Errorf("with the keys: %+v", row)
	}
}

func TestAssociators(t *testing.T) {
	r := newRig(t, func(s *gpu.Snapshot) {
		s.Hosts[0].Pools[0].GPUs = []string{gpuC}
		s.Hosts[0].VMs[0].PartitionAdapters = []gpu.PartitionAdapter{{ID: alpha}}
	})
	r.run(r.fleet.SetVMState(t.Context(), alpha, gpu.VMRunning))
	path := func(wql string) string { return r.one(hyperv.Virtualization, wql).Path }
	vm := path("SELECT * FROM Msvm_ComputerSystem WHERE Name='" + alpha + "'")
	pool := path("SELECT * FROM Msvm_ResourcePool WHERE PoolID='vdi' AND ResourceType=32769")
	primordial := path("SELECT * FROM Msvm_ResourcePool WHERE Primordial=TRUE AND ResourceType=32769")
	partitions := path("SELECT * FROM Msvm_ResourcePool WHERE Primordial=TRUE AND ResourceType=32770")
	allocation := path(`SELECT * FROM Msvm_PciExpressSettingData WHERE NOT InstanceID LIKE 'Microsoft:Definition%'`)
	capabilities := path("SELECT * FROM Msvm_AllocationCapabilities WHERE ResourceType=32770")

	for _, c := range []struct {
		name, of, where string
		want            []string // classes
	}{
		{"a VM's settings", vm, "AssocClass=Msvm_SettingsDefineState", []string{"Msvm_VirtualSystemSettingData"}},
		{
			"a VM's devices", vm, "AssocClass = Msvm_SystemDevice", []string{
				"Msvm_GpuPartition", "Msvm_KvpExchangeComponent", "Msvm_ShutdownComponent",
			},
		},
		{
			"the settings of its devices", r.settings(alpha), "AssocClass=CIM_Component ResultClass=CIM_ResourceAllocationSettingData",
			[]string{"Msvm_GpuPartitionSettingData", "Msvm_MemorySettingData"},
		},
		{
			"a pool's settings", pool, "AssocClass=Msvm_SettingsDefineState", []string{"Msvm_PciExpressSettingData", "Msvm_ResourcePoolSettingData"},
		},
		{
			"a pool's allocations", pool, "AssocClass=Msvm_SettingsDefineState ResultClass=CIM_ResourceAllocationSettingData ResultRole=SettingData",
			[]string{"Msvm_PciExpressSettingData"},
		},
		{"the other way round", pool, "AssocClass=Msvm_SettingsDefineState Role=SettingData", nil},
		{"the pool of an allocation", allocation, "AssocClass=Msvm_SettingsDefineState Role=SettingData", []string{"Msvm_ResourcePool"}},
		{"its parent", allocation, "AssocClass=Msvm_ResourceAllocationFromPool ResultClass=CIM_ResourcePool", []string{"Msvm_ResourcePool"}},
		{
			"a pool's parent", pool, "AssocClass=Msvm_ElementAllocatedFromPool ResultClass=CIM_ResourcePool ResultRole=Antecedent",
			[]string{"Msvm_ResourcePool"},
		},
		{"a pool's children", primordial, "AssocClass=Msvm_ElementAllocatedFromPool ResultRole=Dependent", []string{"Msvm_ResourcePool"}},
		{"the host's devices", primordial, "AssocClass=Msvm_ConcreteComponent", []string{"Msvm_PciExpress"}},
		{"the partitions in use", partitions, "AssocClass=Msvm_ElementAllocatedFromPool", []string{"Msvm_GpuPartition"}},
		{"capabilities", partitions, "AssocClass=Msvm_ElementCapabilities", []string{"Msvm_AllocationCapabilities"}},
		{"templates", capabilities, "AssocClass=Msvm_SettingsDefineCapabilities", slices.Repeat([]string{"Msvm_GpuPartitionSettingData"}, 4)},
	} {
		n, err := r.machine.Open(hyperv.Virtualization)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := n.Query(t.Context(), "ASSOCIATORS OF {"+c.of+"} WHERE "+c.where)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		var got []string
		for _, o := range rows {
			got = append(got, o.Class.Name)
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if rows := r.query(hyperv.Virtualization, "REFERENCES OF {"+pool+"} WHERE ResultClass=Msvm_SettingsDefineState Role=ManagedElement",
		"SettingData"); len(rows) != 2 {
		t.Errorf("%d references of a pool", len(rows))
	}
	parent := r.one(hyperv.Virtualization, "ASSOCIATORS OF {"+allocation+"} WHERE AssocClass=Msvm_ResourceAllocationFromPool", "Primordial")
	if !parent.Bool("Primordial") || parent.Path != primordial {
		t.Errorf("a pool's allocation draws from %s", parent.Path)
	}
}

func TestPaths(t *testing.T) {
	r := newRig(t)
	face := r.one(hyperv.Virtualization, "SELECT * FROM Msvm_PartitionableGpu WHERE PartitionCount=4").Path
	escaped := strings.ReplaceAll(nameA, `\`, `\\`)
	want := `\\HV01\root\virtualization\v2:Msvm_PartitionableGpu.CreationClassName="Msvm_PartitionableGpu",Name="` + escaped + `"`
	if face != want {
		t.Errorf("the path is %s, want %s", face, want)
	}
	for _, path := range []string{
		strings.ToLower(face),
		`\\.\ROOT\Virtualization\V2:Msvm_PartitionableGpu.Name="` + escaped + `",CreationClassName="Msvm_PartitionableGpu"`,
		`root/virtualization/v2:CIM_ComputerSystem.Name="` + escaped + `",CreationClassName="Msvm_PartitionableGpu"`,
		`Msvm_PartitionableGpu.CreationClassName="Msvm_PartitionableGpu",Name="` + escaped + `"`,
	} {
		row, err := r.wmi.Get(t.Context(), hyperv.Virtualization, path, "PartitionCount")
		if err != nil || row.Path != face || row.Uint("PartitionCount") != 4 {
			t.Errorf("%s: %+v, %v", path, row, err)
		}
	}
	const invalidPath hyperv.Code = 0x8004103A
	for path, code := range map[string]hyperv.Code{
		strings.Replace(face, "HV01", "HV02", 1):               invalidPath,
		strings.Replace(face, `virtualization\v2`, "cimv2", 1): invalidPath,
		strings.Replace(face, `"`, "", 1):                      invalidPath,
		strings.Replace(face, `\\\\?\\`, `\\?\`, 1):            invalidPath, // a backslash that is not escaped
		`Msvm_PartitionableGpu.Nme="x"`:                        invalidPath,
		"":                                                     invalidPath,
		`Msvm_PartitionableGpu.Name="x"`:                       hyperv.NotFound,
		`Msvm_PartitionableGpu.Name="` + escaped + `"`:         hyperv.NotFound, // not all keys
		"Msvm_Nothing":                                         hyperv.NotFound,
		`Msvm_Nothing.Name="x"`:                                hyperv.InvalidClass,
	} {
		_, err := r.wmi.Get(t.Context(), hyperv.Virtualization, path)
		wantFault(t, fmt.Sprintf("path %q", path), err, code)
	}
	system := r.one(hyperv.CIMv2, "SELECT * FROM Win32_OperatingSystem").Path
	if system != `\\HV01\root\cimv2:Win32_OperatingSystem=@` {
		t.Errorf("the path of a singleton is %s", system)
	}
	if _, err := r.wmi.Get(t.Context(), hyperv.CIMv2, system); err != nil {
		t.Error(err)
	}
	memory := r.query(hyperv.CIMv2,
		"SELECT * FROM Win32_DeviceMemoryAddress WHERE StartingAddress < 4294967296 AND EndingAddress < 4261412864")
	if len(memory) != 2 || !strings.HasSuffix(memory[0].Path, `StartingAddress="536870912"`) {
		t.Errorf("memory addresses: %+v", memory)
	}
}
