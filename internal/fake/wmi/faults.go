package fakewmi

import (
	"strings"
	"sync"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// defaultJobTime is long enough for a caller that does not wait to be found out.
const defaultJobTime = 5 * time.Millisecond

// faults are what was brought about on a machine that a fleet has no word for.
type faults struct {
	mu sync.Mutex
	// denied and hidden are folded names: of namespaces, of classes, of their methods
	// ("class.method") and properties ("class.property").
	denied, hidden map[string]bool
	// left is how many calls the service still answers, less than zero for all.
	left int

	jobTime     time.Duration
	synchronous map[string]bool
	failing     map[string][]refusal
	answers     map[string][]uint32
	busy        map[string]bool
	reserved    map[string]bool
	childPools  bool
	dropped     map[string]int

	// blind, stopped and functions are what Unprivileged, StopHyperV and
	// FunctionPaths brought about.
	blind, stopped, functions bool
	// service is what ClusterService brought about, less than zero for nothing.
	service int
	// volumes are the paths of the cluster's shared volumes.
	volumes []string
}

func (f *faults) init() {
	f.left, f.jobTime, f.service, f.volumes = -1, defaultJobTime, -1, []string{sharedVolumes + `\Volume1`}
	f.denied, f.hidden, f.synchronous, f.busy = map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	f.dropped, f.reserved = map[string]int{}, map[string]bool{}
	f.failing, f.answers = map[string][]refusal{}, map[string][]uint32{}
}

func (m *Machine) bring(about func(*faults)) {
	m.faults.mu.Lock()
	defer m.faults.mu.Unlock()
	about(&m.faults)
}

// Deny denies access to a namespace, to a class in any, to "class.method", or to
// "class.Put" for writing its instances.
func (m *Machine) Deny(name string) { m.bring(func(f *faults) { f.denied[foldSlashes(name)] = true }) }

// Allow grants access again.
func (m *Machine) Allow(name string) {
	m.bring(func(f *faults) { delete(f.denied, foldSlashes(name)) })
}

// Gone lets the service answer n more calls of namespaces (queries, reads, writes,
// methods; a method of an instance takes a read first) and then none until Back.
func (m *Machine) Gone(n int) { m.bring(func(f *faults) { f.left = max(n, 0) }) }

// Back lets the service answer again.
func (m *Machine) Back() { m.bring(func(f *faults) { f.left = -1 }) }

// Hide takes a namespace, a class, or "class.property", away, as on a build of Windows
// that does not have it or a host without the feature.
func (m *Machine) Hide(name string) { m.bring(func(f *faults) { f.hidden[foldSlashes(name)] = true }) }

// Unprivileged makes Hyper-V show nothing, as it does to an account that is in neither
// of the groups Administrators and Hyper-V Administrators. That is no error.
func (m *Machine) Unprivileged() { m.bring(func(f *faults) { f.blind = true }) }

// StopHyperV stops Hyper-V's service, and with it the provider of its namespace.
func (m *Machine) StopHyperV() { m.bring(func(f *faults) { f.stopped = true }) }

// States of the cluster service on a node, for ClusterService.
const (
	ClusterNotConfigured = 1
	ClusterNotRunning    = 3
	ClusterRunning       = 19
)

// ClusterService is the state of the cluster service on the host. Unless it runs, the
// host has the namespace of the cluster with nothing in it, in a cluster or not.
func (m *Machine) ClusterService(state int) { m.bring(func(f *faults) { f.service = state }) }

// ClusterLag is how long the cluster takes a VM for what it was after Hyper-V has started or
// stopped it: a cluster looks from time to time. Bringing online what it takes for online
// does nothing.
func (m *Machine) ClusterLag(d time.Duration) {
	m.unrest.mu.Lock()
	defer m.unrest.mu.Unlock()
	m.unrest.lag = d
}

// SharedVolumes are the paths of the cluster's shared volumes, as this node sees them.
// There is one unless a test says otherwise.
func (m *Machine) SharedVolumes(paths ...string) { m.bring(func(f *faults) { f.volumes = paths }) }

// FunctionPaths makes partitions show the path of their virtual function, not that of
// the GPU. Which of the two a host shows is documented nowhere.
func (m *Machine) FunctionPaths() { m.bring(func(f *faults) { f.functions = true }) }

// DropJob makes the next job of a method vanish at once. It does what it should, or
// fails if FailJob says so; only nobody can see it any more.
func (m *Machine) DropJob(method string) { m.bring(func(f *faults) { f.dropped[fold(method)]++ }) }

// JobTime is how long jobs take, and how long a driver takes to show a new partition
// count.
func (m *Machine) JobTime(d time.Duration) { m.bring(func(f *faults) { f.jobTime = d }) }

// Synchronous makes a method answer when it has done what it was told, instead of with
// a job. Real hosts do either.
func (m *Machine) Synchronous(method string) {
	m.bring(func(f *faults) { f.synchronous[fold(method)] = true })
}

// FailJob makes the next job of a method fail, or the next call of one that answers
// without a job. Several failures fail as many.
func (m *Machine) FailJob(method string, errorCode uint16, description string) {
	m.bring(func(f *faults) {
		f.failing[fold(method)] = append(f.failing[fold(method)], refusal{uint32(errorCode), description})
	})
}

// Answer makes the next call of a method return a value and do nothing. Several
// answers are for as many calls.
func (m *Machine) Answer(method string, returnValue uint32) {
	m.bring(func(f *faults) { f.answers[fold(method)] = append(f.answers[fold(method)], returnValue) })
}

// Busy makes Windows unable to disable a GPU's device without a reboot, because
// something on the host uses it.
func (m *Machine) Busy(gpuID string) { m.bring(func(f *faults) { f.busy[gpu.FoldID(gpuID)] = true }) }

// ReservedMemory gives a GPU a memory region that its firmware reserves, with which it cannot
// be assigned.
func (m *Machine) ReservedMemory(gpuID string) {
	m.bring(func(f *faults) { f.reserved[gpu.FoldID(gpuID)] = true })
}

func (f *faults) isReserved(gpuID string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reserved[gpu.FoldID(gpuID)]
}

// ChildPoolID makes CreatePool want allocation settings that name the pool which is
// made and reserve nothing. Which pools of which builds do is documented nowhere.
func (m *Machine) ChildPoolID() { m.bring(func(f *faults) { f.childPools = true }) }

// takeDrop uses up a vanishing job.
func (f *faults) takeDrop(method string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dropped[fold(method)] == 0 {
		return false
	}
	f.dropped[fold(method)]--
	return true
}

func (f *faults) showsNothing() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.blind
}

func (f *faults) hypervStopped() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stopped
}

func (f *faults) showsFunctions() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.functions
}

// clusterService is the state of the cluster service, and whether a test set it.
func (f *faults) clusterService() (state int, set bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.service, f.service >= 0
}

func (f *faults) clusterVolumes() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.volumes
}

// strike is the fault that a call meets in a namespace, or who opens one.
func (f *faults) strike(namespace string, opening bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left == 0 {
		return &hyperv.Fault{Code: hyperv.ServerUnavail, Text: "The RPC server is unavailable."}
	}
	if f.left > 0 && !opening {
		f.left--
	}
	if f.stopped && !opening && namespace == hyperv.Virtualization {
		return &hyperv.Fault{Code: hyperv.ProviderNoLoad, Text: "Provider load failure"}
	}
	return f.deniedLocked(namespace)
}

// deny is the fault that a call meets at a class or one of its methods.
func (f *faults) deny(class string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.deniedLocked(class)
}

func (f *faults) deniedLocked(name string) error {
	if f.denied[foldSlashes(name)] {
		return &hyperv.Fault{Code: hyperv.AccessDenied, Text: "Access denied"}
	}
	return nil
}

func (f *faults) hidesNothing() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.hidden) == 0
}

func (f *faults) isHidden(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hidden[name]
}

// takeAnswer uses up an answer.
func (f *faults) takeAnswer(method string) (uint32, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return take(f.answers, fold(method))
}

// takeFailure uses up a job's failure.
func (f *faults) takeFailure(method string) (refusal, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return take(f.failing, fold(method))
}

func take[T any](queues map[string][]T, key string) (T, bool) {
	var none T
	queue := queues[key]
	if len(queue) == 0 {
		return none, false
	}
	queues[key] = queue[1:]
	return queue[0], true
}

func (f *faults) isSynchronous(method string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.synchronous[fold(method)]
}

func (f *faults) isBusy(gpuID string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.busy[gpu.FoldID(gpuID)]
}

func (f *faults) wantsChildPoolID() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.childPools
}

func (f *faults) time() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.jobTime
}

func foldSlashes(name string) string { return fold(strings.ReplaceAll(name, "/", `\`)) }
