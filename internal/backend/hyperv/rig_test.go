package hyperv_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	fakewmi "github.com/gpufleet/terraform-provider-gpu/internal/fake/wmi"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// The host of these tests: A and B can be partitioned, C and D are dismounted, and C is
// in pool vdi.
const (
	gpuA = "PCIROOT(16)#PCI(0000)#PCI(0000)"
	gpuB = "PCIROOT(30)#PCI(0000)#PCI(0000)"
	gpuC = "PCIROOT(48)#PCI(0000)#PCI(0000)"
	gpuD = "PCIROOT(64)#PCI(0000)#PCI(0000)"

	alpha = "11111111-AAAA-4AAA-8AAA-000000000001"
	beta  = "22222222-BBBB-4BBB-8BBB-000000000002"

	interfaceClass = "{064092b3-625e-43bf-9eb5-dc845897dd59}"
)

func capacity(total uint64) gpu.Capacity {
	return gpu.Capacity{Total: total, Available: total, Min: total / 4, Max: total / 4, Optimal: total / 4}
}

func partitioned(id, instance string) gpu.GPU {
	const pnp = `VEN_10DE&DEV_25B6&SUBSYS_157E10DE&REV_A1`
	return gpu.GPU{
		ID: id, InstancePath: `PCI\` + pnp + `\` + instance, Model: "NVIDIA A2", Vendor: "NVIDIA", Driver: gpu.Driver{Version: "573.39"},
		PCI: gpu.PCIID{Vendor: "10DE", Device: "25B6", Subsystem: "157E10DE"}, MMIO: gpu.MMIO{Low: 16 * gpu.MiB, High: 16384 * gpu.MiB},
		Partitionable: &gpu.Partitionable{
			Name: `\\?\PCI#` + pnp + "#" + instance + "#" + interfaceClass, ValidCounts: []int{16, 8, 4, 2, 1}, Count: 4,
			VRAM: capacity(16000), Encode: capacity(1 << 63), Decode: capacity(16), Compute: capacity(16),
		},
	}
}

func dismounted(id, instance string) gpu.GPU {
	return gpu.GPU{
		ID: id, InstancePath: `PCIP\VEN_10DE&DEV_1EB8&SUBSYS_12A210DE&REV_A1\` + instance, Model: "NVIDIA T4", Vendor: "NVIDIA",
		PCI: gpu.PCIID{Vendor: "10DE", Device: "1EB8", Subsystem: "12A210DE"}, MMIO: gpu.MMIO{Low: 16 * gpu.MiB, High: 256 * gpu.MiB},
		Dismounted: true,
	}
}

func hv01() gpu.Host {
	return gpu.Host{
		Name: "hv01", Platform: gpu.HyperV, OS: gpu.OS{Name: "Windows Server 2025 Datacenter", Version: "24H2", Build: 26100},
		GPUs: []gpu.GPU{
			partitioned(gpuA, "4&18416dc3&0&0000"), partitioned(gpuB, "4&2b7d3f10&0&0000"),
			dismounted(gpuC, "4&30a1b2c3&0&0000"), dismounted(gpuD, "4&41d4e5f6&0&0000"),
		},
		VMs: []gpu.VM{
			{ID: alpha, Name: "alpha", State: gpu.VMOff, Generation: 2, Checkpoints: gpu.CheckpointsDisabled},
			{ID: beta, Name: "beta", State: gpu.VMOff, Generation: 2, Checkpoints: gpu.CheckpointsDisabled},
		},
		Pools: []gpu.Pool{{Name: "vdi", GPUs: []string{gpuC}}},
	}
}

// inCluster makes hv01 a node of cluster cl1 with hv02, which has no GPUs.
func inCluster(s *gpu.Snapshot) {
	nodes := []gpu.Node{{Name: "hv01", State: gpu.NodeUp}, {Name: "hv02", State: gpu.NodeUp}}
	s.Hosts = append(s.Hosts, gpu.Host{Name: "hv02", Platform: gpu.HyperV, OS: s.Hosts[0].OS})
	for i := range s.Hosts {
		s.Hosts[i].Cluster = &gpu.Cluster{Name: "cl1", Nodes: nodes}
	}
	for i := range s.Hosts[0].VMs {
		s.Hosts[0].VMs[i].Clustered = true
	}
}

// rig is a host with the backend on it.
type rig struct {
	*testing.T
	fleet   *others.Fleet
	machine *fakewmi.Machine
	backend *hyperv.Backend
	wire    *wire
}

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
	return rigOn(t, fleet, "hv01")
}

func rigOn(t *testing.T, fleet *others.Fleet, host string) *rig {
	t.Helper()
	machine, err := fakewmi.New(fleet, host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(machine.Wait)
	w := &wire{WMI: machine.WMI(), t: t}
	b := hyperv.New(w)
	b.SettleIn(10 * time.Second)
	return &rig{T: t, fleet: fleet, machine: machine, backend: b, wire: w}
}

// onHost changes hv01 before it exists.
func onHost(change func(*gpu.Host)) func(*gpu.Snapshot) {
	return func(s *gpu.Snapshot) { change(&s.Hosts[0]) }
}

// host is what the backend reads.
func (r *rig) host() gpu.Host {
	r.Helper()
	host, err := r.backend.Inventory(r.Context())
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

func (r *rig) gpu(id string) gpu.GPU {
	r.Helper()
	host := r.host()
	g, ok := host.GPU(id)
	if !ok {
		r.Fatalf("GPU %s is not there", id)
	}
	return *g
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

// seated gives a VM a partition and starts it.
func (r *rig) seated(vmID string) {
	r.Helper()
	_, err := r.backend.AddPartitionAdapter(r.Context(), vmID, gpu.PartitionAdapter{})
	r.run(err, r.backend.StartVM(r.Context(), vmID))
}

// refuses checks that an error is a refusal with a code and words that help.
func refuses(t *testing.T, err error, code backend.Code, words ...string) {
	t.Helper()
	e, ok := errors.AsType[*backend.Error](err)
	if !ok {
		t.Errorf("want a refusal as %s, got %v", code, err)
		return
	}
	if e.Code != code || e.Op == "" || e.Object == "" || strings.Contains(err.Error(), "()") {
		t.Errorf("want a refusal as %s that says what was tried on what, got %s: %v", code, e.Code, err)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the refusal does not say %q: %v", word, err)
		}
	}
}

// wire is the connection to a machine. It counts what goes over it, and a test may look
// at it or change it.
type wire struct {
	hyperv.WMI
	t *testing.T

	mu      sync.Mutex
	queries int
	others  int
	// read is how many rows the queries answered, and asked how often each class was read as
	// a whole.
	read  int
	whole map[string]int
	// rows changes what a query answers.
	rows func(wql string, rows []hyperv.Row) []hyperv.Row
	// get comes before an instance is read.
	get func(path string) error
	// fault comes before a query or a method, with their number, and may end it.
	fault func(n int) error
	n     int
	// answer changes what a method answers.
	answer func(method string, res hyperv.Result) hyperv.Result
	// calls are the methods that were called, with their in parameters.
	calls []call
}

type call struct {
	path, method string
	in           map[string]any
}

// change sets what a test changes.
func (w *wire) change(set func(*wire)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	set(w)
}

func (w *wire) Query(ctx context.Context, namespace, wql string, properties ...string) ([]hyperv.Row, error) {
	if err := w.strike(); err != nil {
		return nil, err
	}
	rows, err := w.WMI.Query(ctx, namespace, wql, properties...)
	for _, row := range rows {
		w.published(namespace, row, properties)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queries++
	w.read += len(rows)
	if class, whole := strings.CutPrefix(wql, "SELECT * FROM "); whole && !strings.Contains(class, " ") {
		if w.whole == nil {
			w.whole = map[string]int{}
		}
		w.whole[class]++
	}
	if w.rows != nil && err == nil {
		rows = w.rows(wql, rows)
	}
	return rows, err
}

func (w *wire) Get(ctx context.Context, namespace, path string, properties ...string) (hyperv.Row, error) {
	w.mu.Lock()
	before := w.get
	w.others++
	w.mu.Unlock()
	if before != nil {
		if err := before(path); err != nil {
			return hyperv.Row{}, err
		}
	}
	row, err := w.WMI.Get(ctx, namespace, path, properties...)
	if err == nil {
		w.published(namespace, row, properties)
	}
	return row, err
}

// classes are all that is published of each namespace, of the latest build.
var classes = sync.OnceValue(func() map[string]*fakewmi.Class {
	out := map[string]*fakewmi.Class{}
	for _, namespace := range []string{hyperv.Virtualization, hyperv.CIMv2, hyperv.MSCluster} {
		of, err := fakewmi.Declared(namespace, math.MaxInt)
		if err != nil {
			panic(err)
		}
		for _, c := range of {
			out[namespace+":"+c.Name] = c
		}
	}
	return out
})

// published checks that what is read of an instance is a property of its class: one that is
// not is left out of a row, and nobody would see that the code misspells it.
func (w *wire) published(namespace string, row hyperv.Row, properties []string) {
	_, class, _ := strings.Cut(row.Path, ":")
	class, _, _ = strings.Cut(strings.TrimSuffix(class, "=@"), ".")
	for _, p := range properties {
		if c, ok := classes()[namespace+":"+class]; !row.Has(p) && ok {
			if _, ok := c.Property(p); !ok {
				w.t.Errorf("%s has no property %s", class, p)
			}
		}
	}
}

func (w *wire) Invoke(ctx context.Context, namespace, path, method string, in map[string]any) (hyperv.Result, error) {
	w.mu.Lock()
	w.others++
	w.calls = append(w.calls, call{path, method, in})
	w.mu.Unlock()
	if err := w.strike(); err != nil {
		return hyperv.Result{}, err
	}
	res, err := w.WMI.Invoke(ctx, namespace, path, method, in)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.answer != nil && err == nil {
		res = w.answer(method, res)
	}
	return res, err
}

func (w *wire) strike() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fault == nil {
		return nil
	}
	w.n++
	return w.fault(w.n)
}

// called are the calls of a method.
func (w *wire) called(method string) []call {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []call
	for _, c := range w.calls {
		if c.method == method {
			out = append(out, c)
		}
	}
	return out
}
