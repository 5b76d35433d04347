package change

import (
	"maps"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Doer is what a host has to be to do a step.
type Doer string

// Doers.
const (
	ByAgent   Doer = "agent"   // a claim: its agent is enough
	ByHyperV  Doer = "hyperv"  // a Hyper-V host
	ByVMs     Doer = "vms"     // a host that runs VMs: Hyper-V, or Linux with libvirt
	ByMIG     Doer = "mig"     // a Linux host with NVIDIA GPUs
	ByVGPU    Doer = "vgpu"    // with NVIDIA's vGPU driver
	BySharing Doer = "sharing" // whose processes and containers share GPUs
)

// row is all that there is to say of an operation, but for what the agent does in its runners;
// a test goes through it for every row.
type row struct {
	by Doer
	// text says what a step does, for people.
	text func(Step) string
	// inverse is what puts a step back on a host that is as given when the step begins. The list
	// can be run again from its beginning, and it also fits a step that did not run or only in
	// part: adapters and devices get new ids each time, so it removes what was not there before
	// rather than what the step is known to have added.
	inverse func(*gpu.Host, Step) []Step
	// project makes of a host what a step should make of it. Lists are cloned before they change.
	project func(*draft, Step)
	// disrupts is what it disturbs.
	disrupts func(Step) gpu.Disruption
	// shows is what an inventory shows of it; nil for nothing.
	shows func(*gpu.Host, Step) Fact
	// needs are the fields that a step needs, by their names in a document.
	needs []string
	// depends are the parts of a host without which nobody knows what a step does: who is in its
	// way, and what there is already.
	depends []gpu.Part
	// hinders is what keeps a host from doing it; nil for nothing that a host shows.
	hinders func(*gpu.Host, Step) *gpu.Refusal
	// takenSince reports whether a host shows that the step is not to be done any more to put a change back, since others
	// have taken what it is about meanwhile; nil is what goes for all that needs its VM off: people have started it.
	takenSince func(*gpu.Host, Step) bool
	// notes enters what it makes of its GPU.
	notes func(*GPUEffect, *gpu.Host, *gpu.GPU, Step)
	// whyOff says what it does to its VM that needs the VM off, beside the VM's other operations;
	// "" for nothing, or where another one says it.
	whyOff func(s Step, does func(Op) bool) string
}

var rows = func() map[Op]row {
	all := map[Op]row{}
	for _, some := range []map[Op]row{hypervRows, migRows, vgpuRows, sharingRows, claimRows} {
		maps.Copy(all, some)
	}
	return all
}()

// claimRows are the operations on the records that the agent keeps.
var claimRows = map[Op]row{
	OpPutClaim: {
		by: ByAgent, needs: []string{"claim"}, disrupts: nobody, shows: ofClaim, inverse: claimBack,
		text:    func(s Step) string { return "record " + DescribeObject(s.Claim.Kind, s.Claim.ID) },
		project: func(h *draft, s Step) { h.Claims = PutClaim(h.Claims, *s.Claim) },
	},
	OpDropClaim: {
		by: ByAgent, needs: []string{"claim"}, disrupts: nobody, shows: ofClaim, inverse: claimBack,
		text:    func(s Step) string { return "forget " + DescribeObject(s.Claim.Kind, s.Claim.ID) },
		project: func(h *draft, s Step) { h.Claims = DropClaim(h.Claims, s.Claim.Kind, s.Claim.ID) },
	},
}

func claimBack(host *gpu.Host, s Step) []Step {
	back := s.back(OpDropClaim)
	back.Claim = s.Claim
	if c, ok := host.Claim(s.Claim.Kind, s.Claim.ID); ok {
		was := *c
		back.Op, back.Claim = OpPutClaim, &was
	}
	return []Step{back}
}

// String says what the step does, for people.
func (s Step) String() string {
	if text := rows[s.Op].text; text != nil {
		return text(s)
	}
	return string(s.Op)
}

// inverse returns the steps that put a step back on a host that is as given when it begins.
func inverse(host *gpu.Host, s Step) []Step {
	if back := rows[s.Op].inverse; back != nil {
		return back(host, s)
	}
	return nil
}

// Ops lists the operations, sorted.
func Ops() []Op { return slices.Sorted(maps.Keys(rows)) }

// TakenSince reports whether something is not to be put back any more, since a VM has it: a partition
// count of which VMs that have come since hold partitions, a pool that they draw
// from, or what a VM has that people have started since.
func (s Step) TakenSince(host *gpu.Host) bool {
	if taken := rows[s.Op].takenSince; taken != nil {
		return taken(host, s)
	}
	vm, here := host.VM(s.VM)
	return here && s.NeedsOff() && vm.Started()
}

// By is what a host has to be to do a step.
func (o Op) By() Doer { return rows[o].by }

// Disrupts is how much a step disturbs what runs; of an operation that there is none of, the
// worst.
func (s Step) Disrupts() gpu.Disruption {
	if of, ok := rows[s.Op]; ok {
		return of.disrupts(s)
	}
	return gpu.DisruptGPUReset
}

func its(d gpu.Disruption) func(Step) gpu.Disruption {
	return func(Step) gpu.Disruption { return d }
}

var nobody = its(gpu.DisruptNone)

// forced is what a step disturbs that may do so.
func forced(d gpu.Disruption) func(Step) gpu.Disruption {
	return func(s Step) gpu.Disruption {
		if s.Force {
			return d
		}
		return gpu.DisruptNone
	}
}

func ofGPU(what string, read func(*gpu.Host, string) string) func(*gpu.Host, Step) Fact {
	if what != "" {
		what += " of "
	}
	return func(h *gpu.Host, s Step) Fact { return Fact{what + "GPU " + s.GPU, read(h, s.GPU)} }
}

func ofVM(what string, read func(*gpu.VM, Step) string) func(*gpu.Host, Step) Fact {
	return func(h *gpu.Host, s Step) Fact {
		vm, ok := h.VM(s.VM)
		if !ok {
			return Fact{"VM " + s.VMName(), "missing"}
		}
		return Fact{what + " of VM " + vm.Name, read(vm, s)}
	}
}

func partitionOf(vm *gpu.VM, _ Step) string { return adaptersOf(vm) }
func gpusOf(vm *gpu.VM, _ Step) string      { return devicesOf(vm) }
func powerOf(vm *gpu.VM, _ Step) string     { return PowerOf(vm) }
func writtenOf(vm *gpu.VM, s Step) string   { return settingsOf(vm.Settings.Only(*s.Settings)) }

func ofPool(h *gpu.Host, s Step) Fact { return Fact{"pool " + s.Pool, membersOf(h, s.Pool)} }

func ofNode(h *gpu.Host, _ Step) Fact {
	return Fact{"the state of node " + h.Name, string(h.NodeState())}
}

func ofUnit(h *gpu.Host, s Step) Fact { return Fact{"unit " + s.Unit, unitOf(h, s.Unit)} }

func ofDaemon(h *gpu.Host, s Step) Fact {
	return Fact{"MPS daemon " + s.Daemon.Name, daemonOf(h, s.Daemon.Name)}
}

func ofShare(h *gpu.Host, s Step) Fact {
	return Fact{"share " + s.Share.Name, handedOf(h, s.Share.Name)}
}

func ofClaim(h *gpu.Host, s Step) Fact {
	return Fact{"the record of " + DescribeObject(s.Claim.Kind, s.Claim.ID), holderOf(h, s.Claim)}
}
