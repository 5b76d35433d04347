package gpu

import (
	"errors"
	"fmt"
)

// ClaimKind is the kind of object that a claim is for.
type ClaimKind string

// Claim kinds.
const (
	ClaimConfig     ClaimKind = "partition_config"
	ClaimPool       ClaimKind = "pool"
	ClaimAssignment ClaimKind = "vm_assignment"
	ClaimShare      ClaimKind = "share"
)

// Claim is the record, kept on a host or in its cluster, that a Terraform resource manages an object
// there. It answers whose a holder is, what may be stopped and what was there before.
type Claim struct {
	Kind ClaimKind `json:"kind"`
	// ID is the config's id, the pool's name, the VM's id or the share's name.
	ID string `json:"id"`
	// Token names the resource instance. A resource that takes an object over
	// writes its own token; one that finds another's token no longer owns the object.
	Token string `json:"token"`
	// Owner names the Terraform state (provider attribute owner); "" when it has no name.
	Owner string `json:"owner,omitempty"`
	// Cluster names the failover cluster that keeps the claim, for its VM runs on any node;
	// "" for one that its host keeps.
	Cluster string `json:"cluster,omitempty"`
	// Want is what the resource asked for when the claim was written.
	Want Want `json:"want"`
	// GPUs are the GPUs of this host that the claim covers.
	GPUs []string `json:"gpus,omitempty"`
	// OriginalLayouts is the layout of each GPU when it joined its first config of ours, Given what
	// the config made of it: what a reboot loses is put back as it was.
	OriginalLayouts Layouts `json:"before,omitempty"`
	AppliedLayouts  Layouts `json:"given,omitempty"`
	// Dismounted are the GPUs that the pool dismounted itself.
	Dismounted []string `json:"dismounted,omitempty"`
	// Device is the vGPU that an assignment has on a Linux host: the planner chooses it, since the VM manager chooses none.
	Device *DeviceAssignment `json:"device,omitempty"`
	// SettingsBefore holds, for each setting that was written, what it was.
	SettingsBefore VMSettings `json:"settings_before"`
	// Incomplete marks an object that a failed change left half done.
	Incomplete bool `json:"incomplete,omitempty"`
	// Pending marks an assignment that waits for the VM's next power-off.
	Pending bool `json:"pending,omitempty"`
	// HeldUntilOff is what the VM still has while the claim is pending; nil for nothing.
	HeldUntilOff *Assignment `json:"holds,omitempty"`
	// Boot is the id of the host's boot in which the object was last changed; "" where the
	// host does not tell it.
	Boot string `json:"boot,omitempty"`
	// Revision rises with each write, so that of two claims for a VM that moved
	// between nodes the newer one is known.
	Revision int64 `json:"revision"`
}

// Validate checks what every reader of a claim relies on.
func (c *Claim) Validate() error {
	switch c.Kind {
	case ClaimConfig, ClaimPool, ClaimAssignment, ClaimShare:
	default:
		return fmt.Errorf("kind is %q, which is none of a claim", c.Kind)
	}
	if c.ID == "" {
		return errors.New("id is empty")
	}
	if c.HeldUntilOff != nil {
		if err := c.HeldUntilOff.validate(); err != nil {
			return fmt.Errorf("holds: %w", err)
		}
	}
	return c.Want.ofItsKind()
}

// Is tells whether the claim is for an object.
func (c *Claim) Is(kind ClaimKind, id string) bool { return c.Kind == kind && SameID(c.ID, id) }

// Covers tells whether the claim covers a GPU.
func (c *Claim) Covers(gpuID string) bool {
	for _, g := range c.GPUs {
		if SameID(g, gpuID) {
			return true
		}
	}
	return false
}
