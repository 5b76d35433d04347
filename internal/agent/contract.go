package agent

import (
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// Change asks a host to make real what one resource wants of it, or to undo it.
// It is a document of the snapshot format.
type Change struct {
	ID string `json:"id"` // unique; the same change sent twice is done once
	// Host is the provider's name for this host, the key in the wants.
	Host string `json:"host"`
	change.Change
	// Claims are claims for VMs of this host that other hosts hold (a clustered VM's
	// claim stays where it was written until the next write).
	Claims []gpu.Claim `json:"claims,omitempty"`
	// Levels are the rule levels in force for this run.
	Levels rules.Levels `json:"levels,omitempty"`
	// Keep has the change stay once it is made, without a Settle: no other host takes part.
	Keep bool `json:"keep,omitempty"`
}

// Prepared is what a host would do for a change, found without touching anything.
type Prepared struct {
	Steps      []change.Step   `json:"steps"`
	Disruption gpu.Disruption  `json:"disruption"`
	StopsVMs   []string        `json:"stops_vms,omitempty"` // names of running VMs that would be stopped
	Drains     bool            `json:"drains,omitempty"`    // the running VMs move to other nodes meanwhile
	Findings   []rules.Finding `json:"findings,omitempty"`
	// Basis is a digest of what the steps rest on. Apply refuses when it changed.
	Basis string `json:"basis"`
}

// Outcome is how a change ended on one host.
type Outcome struct {
	// Host is the host after the change, with its claims.
	Host gpu.Host `json:"host"`
	// Done are the steps that ran and stand.
	Done []change.Step `json:"done,omitempty"`
	// RolledBack is true when the change failed and everything was put back.
	RolledBack bool `json:"rolled_back,omitempty"`
	// Stands says, step by step, what a failed rollback left.
	Stands []string `json:"stands,omitempty"`
}

// LeaseRequest asks for the right to change a host.
type LeaseRequest struct {
	Run    string        `json:"run"`
	Owner  string        `json:"owner,omitempty"`
	Holder string        `json:"holder,omitempty"`
	TTL    time.Duration `json:"ttl"`  // how long it outlives its holder
	Wait   time.Duration `json:"wait"` // how long to wait for another holder
	// Cluster asks for the lease of the host's cluster as well, when it is in one.
	Cluster bool `json:"cluster,omitempty"`
}
