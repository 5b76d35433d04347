package gpu

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Platform is the family of a host's hypervisor or operating system.
type Platform string

// Platforms.
const (
	HyperV Platform = "hyperv"
	Linux  Platform = "linux"
)

// Host is everything that one inventory of a host tells. It is a value: two
// equal hosts hold the same things.
type Host struct {
	// Name is what the machine calls itself; inside a cluster it is the node's name.
	Name     string   `json:"name"`
	Platform Platform `json:"platform"`
	OS       OS       `json:"os"`
	// Boot is when the host last started; nil where it is not told.
	Boot *Boot `json:"boot,omitempty"`
	// Cluster is nil on a standalone host.
	Cluster *Cluster `json:"cluster,omitempty"`
	// Policies are the host settings that can forbid an assignment.
	Policies Policies `json:"policies"`
	GPUs     []GPU    `json:"gpus"`
	// VMs that live on this host now. A clustered VM is listed by its owner node only.
	VMs   []VM   `json:"vms"`
	Pools []Pool `json:"pools"`
	// HostDevices are those that libvirt's definitions of VMs name on a Linux host with vGPUs.
	HostDevices []HostDevice `json:"host_devices,omitempty"`
	// VMManager is what runs the VMs of a Linux host; nil where there is nothing of the sort.
	VMManager *VMManager `json:"vm_manager,omitempty"`
	// Units are the systemd services of the host that run, by name.
	Units []string `json:"units,omitempty"`
	// MPS is nil on a host without NVIDIA's driver.
	MPS *MPSHost `json:"mps,omitempty"`
	// Shares are those of ours that containers can ask for, by name.
	Shares []HandedShare `json:"shares,omitempty"`
	// ForeignSpecs are the shares in whose place is a CDI specification that somebody else wrote.
	ForeignSpecs []string `json:"foreign_cdi_specs,omitempty"`
	// ContainerToolkit is the version of NVIDIA's container toolkit; "" without it.
	ContainerToolkit string `json:"container_toolkit,omitempty"`
	// Controllers are other software on the host that has to do with its GPUs.
	Controllers []Controller `json:"controllers,omitempty"`
	// Stale are files and services that follow from the layout and are behind it, each with
	// why. Nothing waits for them; the next change or reconcile tries again.
	Stale []string `json:"stale,omitempty"`
	// Unknown is what of the host could not be read, and why.
	Unknown []Unknown `json:"unknown,omitempty"`
	// Claims are the provider's own records, kept by the agent on the host.
	Claims []Claim `json:"claims,omitempty"`
	// Unfinished are the changes that a run began here and has neither finished nor
	// put back, each by the resource that it was for. A run may be at it, or was killed.
	Unfinished []string `json:"unfinished,omitempty"`
	// Returning are the VMs, by id, that the drain of such a change has moved to other nodes, and
	// that come back when it is put back.
	Returning []string `json:"returning,omitempty"`
	// Moving are the VMs, by name, that live migration moves away and back once more when such a
	// change is put back: it had drained the node, and its VMs are there again.
	Moving []string `json:"moving,omitempty"`
	// HeldBy is the run that holds the lease of the host, or of its cluster; nil for none. It is not recorded.
	HeldBy *Holder `json:"held_by,omitempty"`
	// Unreadable are the records of the agent that it cannot read. Claims may be missing.
	Unreadable []UnreadableRecord `json:"unreadable_records,omitempty"`
	// PendingStarts are the VMs that a change stopped and that could not be started again yet. The
	// next lease of the host starts them.
	PendingStarts []PendingStart `json:"owed_starts,omitempty"`
}

// Holder is a run that alone may change a host, or a cluster.
type Holder struct {
	// Of is what it holds: "the host", or a cluster by its name.
	Of string `json:"of"`
	// Run is its id.
	Run string `json:"run"`
	// Name is who runs it, where, and the number of the process.
	Name string `json:"name"`
	// Owner is the owner of its provider.
	Owner string `json:"owner,omitempty"`
	// Since is when it took the lease.
	Since time.Time `json:"since"`
	// Until is when the lease ends unless it is renewed.
	Until time.Time `json:"until"`
}

func (h Holder) String() string {
	who := h.Name
	if who == "" {
		who = "somebody"
	}
	if h.Owner != "" {
		who += fmt.Sprintf(" (owner %q)", h.Owner)
	}
	return fmt.Sprintf("another run changes %s: %s, run %s, since %s; its lease ends at %s unless it is renewed",
		h.Of, who, h.Run, h.Since.UTC().Format(time.RFC3339), h.Until.UTC().Format(time.RFC3339))
}

// Boot is one start of a host.
type Boot struct {
	// ID is another one after each start: Linux's boot_id, or the time where there is none.
	ID string    `json:"id"`
	At time.Time `json:"at"`
}

// BootID is the id of the host's boot, "" where it is not told.
func (h *Host) BootID() string {
	if h.Boot == nil {
		return ""
	}
	return h.Boot.ID
}

// PendingStart is a VM that a change stopped and that has to be started still.
type PendingStart struct {
	VM    string    `json:"vm"` // id
	Name  string    `json:"vm_name,omitempty"`
	Since time.Time `json:"since"`
	// Subject is the resource whose change stopped it, Run the run that made it.
	Subject string `json:"subject"`
	Run     string `json:"run"`
	// Why is how the last attempt to start it failed; "" before one.
	Why string `json:"why,omitempty"`
}

// Owes tells whether a change stopped a VM that is not started again.
func (h *Host) Owes(vm string) (*PendingStart, bool) {
	for i := range h.PendingStarts {
		if SameID(h.PendingStarts[i].VM, vm) {
			return &h.PendingStarts[i], true
		}
	}
	return nil, false
}

// OS names an operating system, for rules that depend on its build.
type OS struct {
	Name    string `json:"name"`              // "Azure Local", "Windows Server 2025 Datacenter", ...
	Version string `json:"version,omitempty"` // marketing version, "24H2"
	Build   int    `json:"build,omitempty"`   // 26100; 0 when not known
}

// Cluster is a failover cluster as one of its nodes sees it.
type Cluster struct {
	Name  string `json:"name"`
	Nodes []Node `json:"nodes"`
	// Records tells that the agents of the nodes keep the claims of clustered VMs in common.
	Records bool `json:"records,omitempty"`
}

// Keeps tells whether the cluster of a host keeps the claim of a VM, and not the host.
func (h *Host) Keeps(vm *VM) bool { return vm.Clustered && h.Cluster != nil && h.Cluster.Records }

// Node is one member of a cluster.
type Node struct {
	Name  string    `json:"name"`
	State NodeState `json:"state"`
}

// NodeState is a cluster node's state. MSCluster_Node knows up, down, paused and
// joining; draining is a paused node whose drain is not finished.
type NodeState string

// Node states.
const (
	NodeUp       NodeState = "up"
	NodeDown     NodeState = "down"
	NodePaused   NodeState = "paused"
	NodeDraining NodeState = "draining"
	NodeJoining  NodeState = "joining"
)

// Policies are the registry values under HKLM\SOFTWARE\Policies\Microsoft\Windows\HyperV
// that make Hyper-V refuse a device. Nil means that the value is not set.
type Policies struct {
	RequireSecureDeviceAssignment    *bool `json:"require_secure_device_assignment,omitempty"`
	RequireSupportedDeviceAssignment *bool `json:"require_supported_device_assignment,omitempty"`
}

// Controller is other software on the host that manages or uses its GPUs.
type Controller struct {
	Name string         `json:"name"` // "nvidia-mig-manager", "SCVMM agent", ...
	Role ControllerRole `json:"role"`
}

// ControllerRole says what a controller does with GPUs.
type ControllerRole string

// Controller roles: a layout controller changes partitions itself, a consumer
// only uses them, a broker starts and stops VMs.
const (
	LayoutController   ControllerRole = "layout"
	ConsumerController ControllerRole = "consumer"
	BrokerController   ControllerRole = "broker"
)

// ControllerRoles lists the roles.
func ControllerRoles() []ControllerRole {
	return []ControllerRole{LayoutController, ConsumerController, BrokerController}
}

// Watchers are the services that keep GPUs open only to watch them.
var Watchers = []string{"nvidia-dcgm.service", "nvidia-persistenced.service", "dcgm-exporter.service", "nvsm.service"}

// GPU finds a GPU by its id, without case. Ids are unique only within their host.
func (h *Host) GPU(id string) (*GPU, bool) {
	for i := range h.GPUs {
		if SameID(h.GPUs[i].ID, id) {
			return &h.GPUs[i], true
		}
	}
	return nil, false
}

// Meant finds the GPU that people mean by something that is no id: the name or the instance path of a
// partitionable GPU, a PCI address as lspci or nvidia-smi prints it, or an index; nil for none.
func (h *Host) Meant(text string) *GPU {
	if n, err := strconv.Atoi(text); err == nil {
		if n >= 0 && n < len(h.GPUs) {
			return &h.GPUs[n]
		}
		return nil
	}
	for i := range h.GPUs {
		g := &h.GPUs[i]
		named := g.Partitionable != nil && devicePath(g.Partitionable.Name) == devicePath(text)
		if named || g.InstancePath != "" && devicePath(g.InstancePath) == devicePath(text) ||
			g.Address != "" && busAddress(g.Address) == busAddress(text) {
			return g
		}
	}
	return nil
}

// devicePath is the part of a device's path or name that is the same mounted and dismounted, and as an
// interface, whose name has # for \ and ends in its class: \\?\PCI#VEN_10DE&...#4&184#{...}\GPUPARAV.
func devicePath(text string) string {
	text = strings.TrimPrefix(FoldID(text), `\\?\`)
	text, _, _ = strings.Cut(text, "#{")
	text = strings.ReplaceAll(text, "#", `\`)
	return strings.TrimPrefix(strings.TrimPrefix(text, `pcip\`), `pci\`)
}

// busAddress is a PCI address without the zeros of its domain: "0000:1a:00.0", "00000000:1A:00.0" and
// "1a:00.0" are one.
func busAddress(text string) string {
	parts := strings.Split(FoldID(text), ":")
	if len(parts) == 3 {
		if parts[0] = strings.TrimLeft(parts[0], "0"); parts[0] == "" {
			parts = parts[1:]
		}
	}
	return strings.Join(parts, ":")
}

// VM finds a virtual machine by its id.
func (h *Host) VM(id string) (*VM, bool) {
	for i := range h.VMs {
		if SameID(h.VMs[i].ID, id) {
			return &h.VMs[i], true
		}
	}
	return nil, false
}

// Pool finds a resource pool by name. Hyper-V compares pool names without case.
func (h *Host) Pool(name string) (*Pool, bool) {
	for i := range h.Pools {
		if SameID(h.Pools[i].Name, name) {
			return &h.Pools[i], true
		}
	}
	return nil, false
}

// Claim finds the claim for an object.
func (h *Host) Claim(kind ClaimKind, id string) (*Claim, bool) {
	for i := range h.Claims {
		if h.Claims[i].Is(kind, id) {
			return &h.Claims[i], true
		}
	}
	return nil, false
}

// ClaimsOf are the claims for objects of a kind.
func (h *Host) ClaimsOf(kind ClaimKind) iter.Seq[*Claim] {
	return func(yield func(*Claim) bool) {
		for i := range h.Claims {
			if h.Claims[i].Kind == kind && !yield(&h.Claims[i]) {
				return
			}
		}
	}
}

// UUID is by which programs know a device now, false when it is not there or not
// filled by a compute instance.
func (h *Host) UUID(d SharedDevice) (string, bool) {
	g, ok := h.GPU(d.GPU)
	if !ok || d.Instance == nil {
		return d.GPU, ok
	}
	if g.MIG == nil {
		return "", false
	}
	for i := range g.MIG.Instances {
		if in := &g.MIG.Instances[i]; in.Placement() == *d.Instance && in.Filled() {
			return in.Compute[0].UUID, true
		}
	}
	return "", false
}

// ClusterName is the name of the host's cluster, or "".
func (h *Host) ClusterName() string {
	if h.Cluster == nil {
		return ""
	}
	return h.Cluster.Name
}

// Lists reports whether the cluster of a host, as the host shows it, has a node of that name.
func (h *Host) Lists(node string) bool {
	if h.Cluster == nil {
		return false
	}
	for i := range h.Cluster.Nodes {
		if SameID(h.Cluster.Nodes[i].Name, node) {
			return true
		}
	}
	return false
}

// SharesCluster reports whether two hosts are nodes of one cluster. Both have to say so: what one
// host says of another is no proof.
func (h *Host) SharesCluster(o *Host) bool {
	return h.Cluster != nil && o.Cluster != nil && SameID(h.Cluster.Name, o.Cluster.Name) && h.Lists(o.Name) &&
		o.Lists(h.Name) && !SameID(h.Name, o.Name)
}

// NodeState is this host's state in its cluster, or "" on a standalone host.
func (h *Host) NodeState() NodeState {
	if h.Cluster == nil {
		return ""
	}
	for _, n := range h.Cluster.Nodes {
		if SameID(n.Name, h.Name) {
			return n.State
		}
	}
	return ""
}

// SameID compares ids and names as Windows does: without case.
func SameID(a, b string) bool {
	// Most ids that differ do so at their end, and are told apart there at once.
	if n, m := len(a), len(b); n > 0 && m > 0 {
		x, y := a[n-1], b[m-1]
		if x < utf8.RuneSelf && y < utf8.RuneSelf && x|0x20 != y|0x20 {
			return false
		}
	}
	return strings.EqualFold(a, b)
}

// HasID reports whether a list has an id, without case.
func HasID(ids []string, id string) bool {
	return slices.ContainsFunc(ids, func(other string) bool { return SameID(other, id) })
}

// FoldID is the form of an id to use as a map key.
func FoldID(id string) string { return strings.ToLower(id) }

// EndProcesses takes processes from all GPUs and MPS daemons of the host, in place.
func (h *Host) EndProcesses(which func(Process) bool) {
	for i := range h.GPUs {
		h.GPUs[i].Processes = slices.DeleteFunc(h.GPUs[i].Processes, which)
	}
	if h.MPS == nil {
		return
	}
	for i := range h.MPS.Daemons {
		h.MPS.Daemons[i].Clients = slices.DeleteFunc(h.MPS.Daemons[i].Clients, which)
	}
}
