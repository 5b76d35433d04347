package fakewmi

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Machine is the WMI service of one host. It may be used from many goroutines, and
// other machines, of this process and of others, may serve the same host.
type Machine struct {
	fleet *others.Fleet
	host  *simulated.Host

	faults faults
	jobs   jobs
	unrest unrest
}

// New is the WMI service of a host of a fleet.
func New(fleet *others.Fleet, host string) (*Machine, error) {
	if _, err := schemas(); err != nil {
		return nil, err
	}
	h, err := fleet.Host(host)
	if err != nil {
		return nil, err
	}
	m := &Machine{fleet: fleet, host: h}
	m.faults.init()
	return m, nil
}

// Wait returns when all jobs have ended.
func (m *Machine) Wait() { m.jobs.running.Wait() }

// Open opens a namespace. Its name compares without case and may be written with
// either slash. Only a node of a cluster has that of the cluster.
func (m *Machine) Open(namespace string) (*Namespace, error) {
	const op = "connect"
	name, all, err := findNamespace(namespace)
	if err != nil {
		return nil, faultOf(context.Background(), op, err)
	}
	n := &Namespace{machine: m, name: name, schema: all}
	if err := m.faults.strike(name, true); err != nil {
		return nil, faultOf(context.Background(), op+" to "+namespace, err)
	}
	if m.faults.isHidden(foldSlashes(name)) {
		return nil, faultOf(context.Background(), op+" to "+namespace, noNamespace(namespace))
	}
	if _, set := m.faults.clusterService(); set || name != hyperv.MSCluster {
		return n, nil
	}
	host, err := m.read(context.Background())
	if err == nil && host.Cluster == nil {
		err = noNamespace(namespace)
	}
	if err != nil {
		return nil, faultOf(context.Background(), op+" to "+namespace, err)
	}
	return n, nil
}

func findNamespace(namespace string) (string, *schema, error) {
	all, err := schemas()
	if err != nil {
		return "", nil, err
	}
	written := strings.TrimPrefix(strings.ReplaceAll(namespace, "/", `\`), `\\.\`)
	for name, s := range all {
		if strings.EqualFold(name, written) {
			return name, s, nil
		}
	}
	return "", nil, noNamespace(namespace)
}

func noNamespace(name string) error {
	return fault(hyperv.InvalidNamespace, "the host has no namespace %s", name)
}

// read is the host as it shows itself now.
func (m *Machine) read(ctx context.Context) (gpu.Host, error) {
	host, err := m.host.Inventory(ctx)
	if err != nil {
		return gpu.Host{}, err
	}
	m.unrest.overlay(&host)
	for i := range host.VMs {
		m.unrest.takes(host.VMs[i].ID, holdsMemory(&host.VMs[i]), false)
	}
	return host, nil
}

// unrest is what a host shows while it is on its way from one state to the next.
type unrest struct {
	mu sync.Mutex
	// faces are partitionable GPUs that were divided anew and do not show it yet.
	faces map[string]oldFace
	// states are VMs that start or are turned off.
	states map[string]gpu.VMState
	// lag is how long the cluster takes to learn what became of a VM without it, and
	// known what it knows, by folded VM id.
	lag   time.Duration
	known map[string]knownVM
}

// knownVM is what the cluster takes a VM for.
type knownVM struct {
	online bool
	// wrong is since when it is not so, zero while it is.
	wrong time.Time
}

// takes is whether the cluster takes a VM for online, which it is or is not. Told is true
// when the cluster itself does it.
func (u *unrest) takes(vmID string, online, told bool) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.known == nil {
		u.known = map[string]knownVM{}
	}
	id := gpu.FoldID(vmID)
	now, seen := u.known[id]
	switch {
	case !seen, told, now.online == online:
		now = knownVM{online: online}
	case now.wrong.IsZero():
		now.wrong = time.Now()
	}
	if !now.wrong.IsZero() && time.Since(now.wrong) >= u.lag {
		now = knownVM{online: online}
	}
	u.known[id] = now
	return now.online
}

type oldFace struct {
	face  gpu.Partitionable
	until time.Time
}

func (u *unrest) overlay(host *gpu.Host) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range host.GPUs {
		old, ok := u.faces[gpu.FoldID(host.GPUs[i].ID)]
		if ok && host.GPUs[i].Partitionable != nil && time.Now().Before(old.until) {
			face := old.face
			host.GPUs[i].Partitionable = &face
		}
	}
	for i := range host.VMs {
		if state, ok := u.states[gpu.FoldID(host.VMs[i].ID)]; ok {
			host.VMs[i].State = state
		}
	}
}

// keepFace shows a GPU as it was for a while.
func (u *unrest) keepFace(gpuID string, face gpu.Partitionable, d time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.faces == nil {
		u.faces = map[string]oldFace{}
	}
	u.faces[gpu.FoldID(gpuID)] = oldFace{face: face, until: time.Now().Add(d)}
}

// pass shows a VM in a passing state until the function that it returns is called. It
// is not ok when the VM is in another one already.
func (u *unrest) pass(vmID string, state gpu.VMState) (end func(), ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	id := gpu.FoldID(vmID)
	if _, passing := u.states[id]; passing {
		return nil, false
	}
	if u.states == nil {
		u.states = map[string]gpu.VMState{}
	}
	u.states[id] = state
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.states, id)
	}, true
}
