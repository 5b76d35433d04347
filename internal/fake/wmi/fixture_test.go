package fakewmi_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	fakewmi "github.com/gpufleet/terraform-provider-gpu/internal/fake/wmi"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const (
	gpuA = "PCIROOT(16)#PCI(0000)#PCI(0000)"
	gpuB = "PCIROOT(30)#PCI(0000)#PCI(0000)"
	gpuC = "PCIROOT(48)#PCI(0000)#PCI(0000)"

	alpha = "11111111-AAAA-4AAA-8AAA-000000000001"
	beta  = "22222222-BBBB-4BBB-8BBB-000000000002"
	omega = "33333333-CCCC-4CCC-8CCC-000000000003" // lives on hv02

	instanceA = `PCI\VEN_10DE&DEV_25B6&SUBSYS_157E10DE&REV_A1\4&18416dc3&0&0000`
	nameA     = `\\?\PCI#VEN_10DE&DEV_25B6&SUBSYS_157E10DE&REV_A1#4&18416dc3&0&0000#{064092b3-625e-43bf-9eb5-dc845897dd59}`
	instanceC = `PCIP\VEN_10DE&DEV_1EB8&SUBSYS_12A210DE&REV_A1\4&30a1b2c3&0&0000`
)

// rig is a machine, its fleet and the two ways in.
type rig struct {
	*testing.T
	fleet   *others.Fleet
	machine *fakewmi.Machine
	wmi     hyperv.WMI
}

// newRig is hv01 of a fleet. It has two GPUs that can be partitioned, one that is
// dismounted, two VMs that are off, and a pool.
func newRig(t *testing.T, change ...func(*gpu.Snapshot)) *rig {
	t.Helper()
	s := gpu.Snapshot{Hosts: []gpu.Host{hv01()}}
	for _, c := range change {
		c(&s)
	}
	fleet, err := others.InMemory(s)
	if err != nil {
		t.Fatal(err)
	}
	machine, err := fakewmi.New(fleet, "hv01")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(machine.Wait)
	return &rig{T: t, fleet: fleet, machine: machine, wmi: machine.WMI()}
}

func hv01() gpu.Host {
	yes := true
	return gpu.Host{
		Name: "hv01", Platform: gpu.HyperV,
		OS:       gpu.OS{Name: "Windows Server 2025 Datacenter", Version: "24H2", Build: 26100},
		Policies: gpu.Policies{RequireSecureDeviceAssignment: new(bool)},
		GPUs: []gpu.GPU{
			{
				ID: gpuA, InstancePath: instanceA, Model: `NVIDIA "A2" \ test's`, Vendor: "NVIDIA", Driver: gpu.Driver{Version: "573.39"},
				PCI: gpu.PCIID{Vendor: "10DE", Device: "25B6", Subsystem: "157E10DE"}, MMIO: gpu.MMIO{Low: 16 * gpu.MiB, High: 16384 * gpu.MiB},
				Partitionable: &gpu.Partitionable{
					Name: nameA, ValidCounts: []int{16, 8, 4, 2, 1}, Count: 4, SupportsIncomingLiveMigration: &yes,
					VRAM: capacity(16000), Encode: capacity(1 << 63), Decode: capacity(16), Compute: capacity(16),
				},
			},
			{
				ID: gpuB, InstancePath: strings.Replace(instanceA, "18416dc3", "2b7d3f10", 1), Model: "NVIDIA A2", Vendor: "NVIDIA",
				PCI: gpu.PCIID{Vendor: "10DE", Device: "25B6", Subsystem: "157E10DE"},
				Partitionable: &gpu.Partitionable{
					Name: strings.Replace(nameA, "18416dc3", "2b7d3f10", 1), ValidCounts: []int{1, 2}, Count: 1, VRAM: capacity(16000),
				},
			},
			{
				ID: gpuC, InstancePath: instanceC, Model: "NVIDIA T4", Vendor: "NVIDIA", Dismounted: true,
				PCI: gpu.PCIID{Vendor: "10DE", Device: "1EB8", Subsystem: "12A210DE"}, MMIO: gpu.MMIO{Low: 16 * gpu.MiB, High: 256 * gpu.MiB},
			},
		},
		VMs: []gpu.VM{
			{ID: alpha, Name: "alpha", State: gpu.VMOff, Generation: 2, Checkpoints: gpu.CheckpointsDisabled},
			{ID: beta, Name: "beta", State: gpu.VMOff, Generation: 1, DynamicMemory: true, Checkpoints: gpu.CheckpointsProduction},
		},
		Pools: []gpu.Pool{{Name: "vdi", GPUs: []string{}}},
	}
}

func capacity(total uint64) gpu.Capacity {
	return gpu.Capacity{Total: total, Available: total, Min: total / 4, Max: total / 4, Optimal: total / 4}
}

// inCluster adds a second node with a VM of its own.
func inCluster(s *gpu.Snapshot) {
	nodes := []gpu.Node{{Name: "hv01", State: gpu.NodeUp}, {Name: "hv02", State: gpu.NodeUp}}
	second := gpu.Host{
		Name: "hv02", Platform: gpu.HyperV, OS: s.Hosts[0].OS,
		VMs: []gpu.VM{{ID: omega, Name: "alpha", State: gpu.VMOff, Generation: 2, Clustered: true, PossibleOwners: []string{"hv02"}}},
	}
	s.Hosts = append(s.Hosts, second)
	for i := range s.Hosts {
		s.Hosts[i].Cluster = &gpu.Cluster{Name: "cl1", Nodes: nodes}
	}
	for i := range s.Hosts[0].VMs {
		s.Hosts[0].VMs[i].Clustered = true
	}
}

func onBuild(build int) func(*gpu.Snapshot) {
	return func(s *gpu.Snapshot) { s.Hosts[0].OS.Build = build }
}

// query runs a query that must succeed.
func (r *rig) query(namespace, wql string, properties ...string) []hyperv.Row {
	r.Helper()
	rows, err := r.wmi.Query(r.Context(), namespace, wql, properties...)
	if err != nil {
		r.Fatalf("%s: %v", wql, err)
	}
	return rows
}

// one is the only row of a query.
func (r *rig) one(namespace, wql string, properties ...string) hyperv.Row {
	r.Helper()
	rows := r.query(namespace, wql, properties...)
	if len(rows) != 1 {
		r.Fatalf("%s has %d rows", wql, len(rows))
	}
	return rows[0]
}

// invoke calls a method that must be answered.
func (r *rig) invoke(namespace, path, method string, in map[string]any) hyperv.Result {
	r.Helper()
	res, err := r.wmi.Invoke(r.Context(), namespace, path, method, in)
	if err != nil {
		r.Fatalf("%s: %v", method, err)
	}
	return res
}

// returns calls a method of root\virtualization\v2 and checks what it, or its job,
// answers.
func (r *rig) returns(want uint32, path, method string, in map[string]any) (text string) {
	r.Helper()
	res := r.invoke(hyperv.Virtualization, path, method, in)
	got := res.ReturnValue
	if got == 4096 {
		job := r.await(res)
		got, text = uint32(job.Uint("ErrorCode")), job.String("ErrorDescription")
	}
	if got != want {
		r.Errorf("%s answers %d, want %d: %s", method, got, want, text)
	}
	return text
}

// await waits for a job's end.
func (r *rig) await(res hyperv.Result) hyperv.Row {
	r.Helper()
	path, _ := res.Out["Job"].(string)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) { // a job is a goroutine of the machine
		job, err := r.wmi.Get(r.Context(), hyperv.Virtualization, path, "JobState", "ErrorCode", "ErrorDescription", "PercentComplete")
		if err != nil {
			r.Fatal(err)
		}
		if job.Uint("JobState") >= 7 {
			return job
		}
	}
	r.Fatal("the job does not end")
	return hyperv.Row{}
}

func (r *rig) service(class string) string {
	r.Helper()
	return r.one(hyperv.Virtualization, "SELECT * FROM "+class).Path
}

func (r *rig) template(class string) string {
	r.Helper()
	row := r.one(hyperv.Virtualization, "SELECT * FROM "+class+` WHERE InstanceID LIKE '%Default'`)
	text, err := r.wmi.Text(r.Context(), hyperv.Virtualization, row.Path)
	if err != nil {
		r.Fatal(err)
	}
	return text
}

// settings is the path of a VM's realized settings.
func (r *rig) settings(vm string) string {
	r.Helper()
	return r.one(hyperv.Virtualization, "SELECT * FROM Msvm_VirtualSystemSettingData WHERE VirtualSystemIdentifier='"+vm+
		"' AND VirtualSystemType='Microsoft:Hyper-V:System:Realized'").Path
}

func (r *rig) host() gpu.Host {
	r.Helper()
	h, err := r.fleet.Host("hv01")
	if err != nil {
		r.Fatal(err)
	}
	host, err := h.Inventory(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	return host
}

func (r *rig) vm(id string) gpu.VM {
	r.Helper()
	host := r.host()
	vm, ok := host.VM(id)
	if !ok {
		r.Fatalf("VM %s is not there", id)
	}
	return *vm
}

// run runs steps that must succeed.
func (r *rig) run(steps ...error) {
	r.Helper()
	for i, err := range steps {
		if err != nil {
			r.Fatalf("step %d: %v", i+1, err)
		}
	}
}

// wantFault checks that an error is a fault with a code.
func wantFault(t *testing.T, what string, err error, want hyperv.Code) {
	t.Helper()
	if f, ok := errors.AsType[*hyperv.Fault](err); !ok || f.Code != want {
		t.Errorf("%s: got %v, want %v", what, err, want)
	} else if f.Op == "" {
		t.Errorf("%s: the fault does not say what was asked: %v", what, err)
	}
}

// patch replaces the value of a property in WMI's XML, or takes it away.
func patch(t *testing.T, text, name, value string) string {
	t.Helper()
	from := strings.Index(text, `NAME="`+name+`"`)
	if from < 0 {
		t.Fatalf("there is no %s in %s", name, text)
	}
	open := from + strings.Index(text[from:], ">") + 1
	end := open + strings.Index(text[open:], "</PROPERTY")
	qualifiers := text[open:end]
	if i := strings.LastIndex(qualifiers, "</QUALIFIER>"); i >= 0 {
		open += i + len("</QUALIFIER>")
	}
	return text[:open] + value + text[end:]
}

func array(values ...string) string {
	out := "<VALUE.ARRAY>"
	for _, v := range values {
		out += "<VALUE>" + strings.NewReplacer("&", "&amp;", `"`, "&quot;").Replace(v) + "</VALUE>"
	}
	return out + "</VALUE.ARRAY>"
}
