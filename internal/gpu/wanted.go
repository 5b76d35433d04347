package gpu

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Want is what one Terraform resource wants of the hosts. Exactly one field is set.
type Want struct {
	Config     *PartitionConfig `json:"partition_config,omitempty"`
	Pool       *PoolConfig      `json:"pool,omitempty"`
	Assignment *Assignment      `json:"vm_assignment,omitempty"`
	Share      *Share           `json:"share,omitempty"`
}

// Empty tells whether nothing is wanted.
func (w Want) Empty() bool {
	return w.Config == nil && w.Pool == nil && w.Assignment == nil && w.Share == nil
}

// Object is the kind and the id of the claims for what is wanted, "" for nothing.
func (w Want) Object() (kind ClaimKind, id string) {
	switch {
	case w.Config != nil:
		return ClaimConfig, w.Config.ID
	case w.Pool != nil:
		return ClaimPool, w.Pool.Name
	case w.Assignment != nil:
		return ClaimAssignment, w.Assignment.VMID
	case w.Share != nil:
		return ClaimShare, w.Share.Name
	}
	return "", ""
}

// Uses are the ids of the configs and of the pool that a want refers to, "" for no pool.
func (w Want) Uses() (configs []string, pool string) {
	if a := w.Assignment; a != nil && a.Partition != nil {
		configs = a.Partition.ConfigIDs()
	} else if a != nil && a.Pool != nil {
		pool = a.Pool.ID
	}
	if s := w.Share; s != nil {
		pool = s.Pool
		if s.Config != "" {
			configs = []string{s.Config}
		}
	}
	return configs, pool
}

// RefersTo tells whether a want refers to the config or the pool that another one is.
func (w Want) RefersTo(to Want) bool {
	configs, pool := w.Uses()
	return to.Config != nil && HasID(configs, to.Config.ID) || pool != "" && to.Pool != nil && SameID(pool, to.Pool.ID)
}

// Validate checks what every reader of a want relies on: that there is at most one object,
// and that it has the name that its claim goes by. The error begins with the field.
func (w Want) Validate() error {
	type object struct{ field, name string }
	var has []object
	if c := w.Config; c != nil {
		has = append(has, object{"partition_config.id", c.ID})
	}
	if p := w.Pool; p != nil {
		has = append(has, object{"pool.name", p.Name})
	}
	if a := w.Assignment; a != nil {
		has = append(has, object{"vm_assignment.vm", a.VM})
	}
	if s := w.Share; s != nil {
		has = append(has, object{"share.name", s.Name})
	}
	for _, o := range has {
		if o.name == "" {
			return errors.New(o.field + " is empty")
		}
	}
	if err := w.ofItsKind(); err != nil {
		return err
	}
	if len(has) > 1 {
		return fmt.Errorf("there are %d objects, and a change is of one", len(has))
	}
	return nil
}

// ofItsKind checks that a config and an assignment have what their kind says, and nothing else.
func (w Want) ofItsKind() error {
	if w.Config != nil {
		if err := w.Config.validate(); err != nil {
			return err
		}
	}
	if w.Assignment != nil {
		return w.Assignment.validate()
	}
	return nil
}

// Disruption is how much a change may disturb what runs, in rising order.
type Disruption string

// Disruption classes.
const (
	DisruptNone           Disruption = "none"
	DisruptProcessRestart Disruption = "process_restart"
	DisruptVMRestart      Disruption = "vm_restart"
	DisruptGPUReset       Disruption = "gpu_reset"
)

// Disruptions lists the classes in rising order.
func Disruptions() []Disruption {
	return []Disruption{DisruptNone, DisruptProcessRestart, DisruptVMRestart, DisruptGPUReset}
}

// Exceeds tells whether d disturbs more than the limit allows. An empty class is none.
func (d Disruption) Exceeds(limit Disruption) bool { return d.rank() > limit.rank() }

func (d Disruption) rank() int {
	for i, c := range Disruptions() {
		if c == d {
			return i
		}
	}
	return 0
}

// Scope is how a resource names its hosts and GPUs, as declared.
type Scope struct {
	Hosts    []string  `json:"hosts,omitempty"`
	Cluster  string    `json:"cluster,omitempty"`
	Selector *Selector `json:"selector,omitempty"`
}

// Selector narrows the GPUs of the hosts in scope. What is empty does not narrow.
type Selector struct {
	Models []string            `json:"models,omitempty"`
	GPUIDs map[string][]string `json:"gpu_ids,omitempty"` // host → GPU ids
}

// PartitionConfig is one layout on a set of GPUs across hosts.
type PartitionConfig struct {
	ID    string `json:"id"`
	Name  string `json:"name,omitempty"`
	Scope Scope  `json:"scope"`
	Kind  Kind   `json:"kind"`
	// Count is the partition count of kind GPU-P; each of the others is the layout of its
	// kind. Exactly one is set, except that MIG may be combined with MPS or TimeSlicing, which
	// then apply inside each GPU instance.
	Count       int          `json:"partition_count,omitempty"`
	MIG         *MIGLayout   `json:"mig,omitempty"`
	VGPU        *VGPULayout  `json:"vgpu,omitempty"`
	MPS         *MPSLayout   `json:"mps,omitempty"`
	TimeSlicing *TimeSlicing `json:"time_slicing,omitempty"`
	// QuiesceUnits are systemd units that only watch GPUs. They are stopped for a change
	// of MIG mode and while instances are removed, and started again.
	QuiesceUnits []string `json:"quiesce_units,omitempty"`
	// GPUs are the selected GPUs of each host, keyed by the provider's name for
	// the host. A host with an empty list is in the config but has no GPU for it.
	GPUs          map[string][]string `json:"gpus"`
	MaxDisruption Disruption          `json:"max_disruption,omitempty"`
	// Drain moves the VMs in the way to other nodes of the cluster where they can be
	// migrated live, instead of stopping them.
	Drain bool `json:"drain,omitempty"`
	// Restore puts a GPU that leaves back to the layout it had when it joined.
	Restore bool `json:"restore,omitempty"`
}

// Kind is how a partition config shares its GPUs.
type Kind string

// Kinds.
const (
	KindGPUP Kind = "gpu_p"
	KindMIG  Kind = "mig"
	KindVGPU Kind = "vgpu"
	KindMPS  Kind = "mps"

	KindTimeSlicing Kind = "time_slicing"
)

// Kinds lists them.
func Kinds() []Kind { return []Kind{KindGPUP, KindMIG, KindVGPU, KindMPS, KindTimeSlicing} }

// HasMIG reports whether its GPUs are in MIG mode.
func (c *PartitionConfig) HasMIG() bool { return c.MIG != nil && !c.MIG.Off }

// kindFields are the fields that a config of a kind must have, and those that it may have beside it.
type kindFields struct {
	required string // "" for none
	optional []string
}

var fieldsOfKind = map[Kind]kindFields{
	KindGPUP:        {optional: []string{"partition_count"}},
	KindMIG:         {required: "mig", optional: []string{"mps", "time_slicing"}},
	KindVGPU:        {required: "vgpu"},
	KindMPS:         {required: "mps"},
	KindTimeSlicing: {required: "time_slicing"},
}

// validate checks that what is set is of the config's kind. MIG instances are shared in one way, and a GPU without any in none.
func (c *PartitionConfig) validate() error {
	wrong := fmt.Errorf("partition_config.kind is %q, and what is set is not of that kind", c.Kind)
	fields, known := fieldsOfKind[c.Kind]
	if !known {
		return wrong
	}
	for _, field := range []struct {
		name  string
		isSet bool
	}{
		{"partition_count", c.Count != 0},
		{"mig", c.MIG != nil},
		{"vgpu", c.VGPU != nil},
		{"mps", c.MPS != nil},
		{"time_slicing", c.TimeSlicing != nil},
	} {
		required := field.name == fields.required
		if field.isSet != required && !(field.isSet && slices.Contains(fields.optional, field.name)) {
			return wrong
		}
	}
	if c.Kind != KindMIG {
		return nil
	}
	sharedTwice := c.MPS != nil && c.TimeSlicing != nil
	hasInstances := len(c.MIG.Profiles)+len(c.MIG.Placements) > 0 || c.MPS != nil || c.TimeSlicing != nil
	if sharedTwice || c.MIG.Off && hasInstances {
		return wrong
	}
	return nil
}

// PoolConfig is one pool of whole GPUs across hosts.
type PoolConfig struct {
	ID      string              `json:"id"`
	Name    string              `json:"name"`
	Scope   Scope               `json:"scope"`   // empty when the members are declared one by one
	Members map[string][]string `json:"members"` // host → GPU ids
	// Force dismounts without the platform's checks (ACS, device mitigations).
	Force bool `json:"force,omitempty"`
	// MountBack returns a GPU that leaves the pool to its host.
	MountBack bool `json:"mount_back,omitempty"`
	// Quotas are by label of a share. On Linux hosts a pool is a set of GPUs that shares are
	// drawn from: nothing is dismounted.
	Quotas map[string]PoolQuota `json:"quotas,omitempty"`
}

// AssignmentKind is what an assignment gives a VM.
type AssignmentKind string

// Assignment kinds.
const (
	AssignPartition AssignmentKind = "partition"
	AssignPool      AssignmentKind = "pool"
	AssignDevice    AssignmentKind = "device"
)

// Assignment gives a VM one partition, a pool's GPUs, or devices. Of Partition, Pool and Device
// the one of its kind is set.
type Assignment struct {
	Kind AssignmentKind `json:"kind"`
	// VM is the name or id as the user wrote it. VMID, VMName and Host are what it
	// resolved to, when it did.
	VM     string `json:"vm"`
	VMID   string `json:"vm_id,omitempty"`
	VMName string `json:"vm_name,omitempty"`
	Host   string `json:"host,omitempty"` // owner host, as the provider names it
	// Among are the hosts on which the configuration has the VM looked for; nil means all. It is for the
	// run alone: no host records it.
	Among []string `json:"-"`

	Partition *PartitionWant `json:"partition,omitempty"`
	Pool      *PoolWant      `json:"pool,omitempty"`
	Device    *DeviceWant    `json:"device,omitempty"`

	// Settings are those that the user asked for; only they are written.
	Settings VMSettings `json:"settings"`
	Power    Power      `json:"power"`
}

// validate checks that what is set is of the assignment's kind.
func (a *Assignment) validate() error {
	for kind, set := range map[AssignmentKind]bool{
		AssignPartition: a.Partition != nil, AssignPool: a.Pool != nil, AssignDevice: a.Device != nil,
	} {
		if set != (kind == a.Kind) {
			return fmt.Errorf("vm_assignment.kind is %q, and what is set is not of that kind", a.Kind)
		}
	}
	if !slices.Contains(a.Kind.Values(), string(a.Kind)) {
		return fmt.Errorf("vm_assignment.kind is %q, which is none of an assignment", a.Kind)
	}
	return nil
}

// PartitionWant asks for one GPU partition.
type PartitionWant struct {
	// Config is the id of the partition config that it is of, "" for any.
	Config string `json:"config,omitempty"`
	// Configs are those of several configs, sorted: the partition is of any of them. Config is "" then.
	Configs []string `json:"configs,omitempty"`
	// VRAM, when set, is an assertion on the size of the partition, in whole MiB.
	VRAM      *Bytes `json:"vram,omitempty"`
	PinnedGPU string `json:"gpu_id,omitempty"`
	Quotas    Quotas `json:"quotas"`
	// Type is that of a vGPU on a Linux host, "" for the only one that there is.
	Type string `json:"type,omitempty"`
	// Attach is who writes a vGPU into the definition of the VM; "" is AttachVM.
	Attach Attach `json:"attach,omitempty"`
}

// Attach is who writes the vGPU of an assignment into the definition of its VM.
type Attach string

// Ways to attach.
const (
	AttachVM   Attach = "vm"   // the assignment does
	AttachNone Attach = "none" // the VM's own resource does: the assignment only reserves the vGPU
)

// Reserves reports whether an assignment only reserves a vGPU. Its VM may be still to come.
func (a *Assignment) Reserves() bool {
	return a != nil && a.Partition != nil && a.Partition.Attach == AttachNone
}

// ConfigIDs are the ids of the configs that the partition may be of, none for any.
func (w *PartitionWant) ConfigIDs() []string {
	if w.Config != "" {
		return []string{w.Config}
	}
	return w.Configs
}

// PoolWant asks for GPUs of a pool.
type PoolWant struct {
	ID    string `json:"id"`   // pool id as the provider names it
	Name  string `json:"name"` // pool name on the hosts
	Count int    `json:"count"`
}

// DeviceWant asks for named GPUs of one host (plain DDA).
type DeviceWant struct {
	Host   string   `json:"host"`
	GPUIDs []string `json:"gpu_ids"`
	// Force dismounts without the platform's checks (ACS, device mitigations).
	Force bool `json:"force,omitempty"`
}

// Power says what may be done to a running VM.
type Power struct {
	AllowShutdown bool `json:"allow_shutdown,omitempty"` // ask the guest to shut down
	ForceShutdown bool `json:"force_shutdown,omitempty"` // even when the guest says that it is locked
	AllowTurnOff  bool `json:"allow_turn_off,omitempty"` // power off when the guest does not answer
	// StayOff leaves a VM off that ran before (start_after = "never").
	StayOff         bool          `json:"stay_off,omitempty"`
	ShutdownTimeout time.Duration `json:"shutdown_timeout,omitempty"` // nanoseconds; 0 means DefaultShutdownTimeout
	// NextOff waits for the VM's next power-off instead of stopping it.
	NextOff bool `json:"next_off,omitempty"`
}

// DefaultShutdownTimeout is how long a guest may take to shut down.
const DefaultShutdownTimeout = 5 * time.Minute

// Timeout is the shutdown timeout in force.
func (p Power) Timeout() time.Duration {
	if p.ShutdownTimeout <= 0 {
		return DefaultShutdownTimeout
	}
	return p.ShutdownTimeout
}

// Stricter is what both policies allow.
func (p Power) Stricter(o Power) Power {
	return Power{
		AllowShutdown:   p.AllowShutdown && o.AllowShutdown,
		ForceShutdown:   p.ForceShutdown && o.ForceShutdown,
		AllowTurnOff:    p.AllowTurnOff && o.AllowTurnOff,
		StayOff:         p.StayOff && o.StayOff,
		NextOff:         p.NextOff || o.NextOff,
		ShutdownTimeout: max(p.Timeout(), o.Timeout()),
	}
}
