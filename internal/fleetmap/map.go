// Package fleetmap is what a picture of a fleet shows: hosts, their GPUs, what these are cut into, who holds each part, and
// what is free; and the pictures themselves, as text, SVG, Markdown and a page for a browser. It is pure: it judges nothing
// by itself, and asks those who know why a GPU cannot be assigned, what fits and what a share takes.
package fleetmap

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Map is a fleet as it is drawn.
type Map struct {
	Hosts []Host `json:"hosts"`
	Pools []Pool `json:"pools,omitempty"`
}

// Host is one host.
type Host struct {
	Name     string `json:"name"`
	Platform string `json:"platform"`
	OS       string `json:"os,omitempty"`
	Cluster  string `json:"cluster,omitempty"`
	// State is the node's in its cluster, "" on a standalone host.
	State string `json:"state,omitempty"`
	GPUs  []GPU  `json:"gpus"`
	// Waiting are the VMs that want a part of a GPU and hold none: they are off, or which one they hold cannot be read.
	Waiting []Holder `json:"waiting,omitempty"`
	// Others are the VMs without a GPU, by name.
	Others []string `json:"others,omitempty"`
	// Notes are what could not be read, and what is not settled, each in a sentence.
	Notes []string `json:"notes,omitempty"`
}

// GPU is one GPU, drawn as a bar of Units.
type GPU struct {
	ID string `json:"id"`
	// Number is its place on its host, from 0.
	Number int       `json:"number"`
	Model  string    `json:"model"`
	Memory gpu.Bytes `json:"memory,omitempty"`
	Status string    `json:"status"`
	// Reason says what the status means, or why the GPU cannot be assigned.
	Reason string `json:"reason,omitempty"`
	// Layout is what it is cut into, in words.
	Layout string `json:"layout"`
	Pool   string `json:"pool,omitempty"`
	Config string `json:"config,omitempty"`
	// Owner is that of the config, or of the pool that the GPU is in.
	Owner string `json:"owner,omitempty"`
	// Counts are the partition counts that it may have.
	Counts []Count `json:"counts,omitempty"`
	// Encode and Decode are what of the media engines is free, in words.
	Encode string `json:"encode,omitempty"`
	Decode string `json:"decode,omitempty"`
	Bar
	// Beside are the processes that are in none of the parts.
	Beside []Holder `json:"beside,omitempty"`
	Notes  []string `json:"notes,omitempty"`
}

// Bar is something that is divided: its parts lie side by side and fill it.
type Bar struct {
	Units int64  `json:"units"`
	Parts []Part `json:"parts"`
}

// Count is one of the partition counts of a GPU, and the memory that each partition has then: what the host reports of the
// count that it has now, and an estimate of the others.
type Count struct {
	Partitions int       `json:"partitions"`
	Memory     gpu.Bytes `json:"memory,omitempty"`
	Now        bool      `json:"now,omitempty"`
}

// Kind is what a part of a bar is.
type Kind string

// Kinds of parts.
const (
	Partition Kind = "partition"
	Instance  Kind = "instance"
	VGPU      Kind = "vgpu"
	Share     Kind = "share"
	Whole     Kind = "whole" // the GPU itself, which somebody has
	Free      Kind = "free"
	Lost      Kind = "lost"    // nothing fits there beside what is there
	Unknown   Kind = "unknown" // who holds it could not be read
	Closed    Kind = "closed"  // it cannot be assigned
)

// Part is one part of a bar. Free partitions that lie side by side are one, of several units.
type Part struct {
	Kind Kind `json:"kind"`
	// Name is by which it is known on its GPU: "1", "1g.10gb@0", the name of a share.
	Name    string    `json:"name,omitempty"`
	Start   int64     `json:"start"`
	Size    int64     `json:"size"`
	Memory  gpu.Bytes `json:"memory,omitempty"`
	Holders []Holder  `json:"holders,omitempty"`
	// Inside is how a GPU instance is divided in turn; nil where it is not.
	Inside *Bar `json:"inside,omitempty"`
}

// HolderKind is who holds something.
type HolderKind string

// Kinds of holders.
const (
	ByVM      HolderKind = "VM"
	ByShare   HolderKind = "share"
	ByProcess HolderKind = "process"
)

// Holder is who has a part of a GPU.
type Holder struct {
	Kind HolderKind `json:"kind"`
	Name string     `json:"name"`
	ID   string     `json:"id,omitempty"`
	// State is what a VM does, "" where that is not known.
	State string `json:"state,omitempty"`
	// Owner is that of its claim; "" when no state claims it, or the owner has no name.
	Owner string `json:"owner,omitempty"`
	// Note is what else there is to say of it.
	Note string `json:"note,omitempty"`
}

// Pool is a pool over all hosts that have it.
type Pool struct {
	Name  string `json:"name"`
	Owner string `json:"owner,omitempty"`
	// GPUs are those in it, Taken those of which somebody has something.
	GPUs   int     `json:"gpus"`
	Taken  int     `json:"taken"`
	Quotas []Quota `json:"quotas,omitempty"`
}

// Quota is what a label may have of a pool, and what it has.
type Quota struct {
	Label string `json:"label"`
	// What is counted: "GPUs", "memory" or "shares".
	What string  `json:"what"`
	Used float64 `json:"used"`
	Most float64 `json:"most"`
	// Text is both, in words: "1.5 of 2 GPUs".
	Text string `json:"text"`
}

// New is the map of some hosts, in the order of clusters and names.
func New(s gpu.Snapshot) Map {
	var m Map
	fitting := fits{}
	for i := range s.Hosts {
		b := builder{host: &s.Hosts[i], fits: fitting}
		m.Hosts = append(m.Hosts, b.build())
	}
	m.Pools = pools(s, m.Hosts)
	gpu.SayPlainly(&m) // whatever others have named is printable from here on
	slices.SortFunc(m.Hosts, func(a, b Host) int {
		return cmp.Or(strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Name, b.Name))
	})
	return m
}

// builder makes the map of one host.
type builder struct {
	host *gpu.Host
	fits fits
	// held counts by VM how many of its adapters, and which of its devices, are drawn.
	partitions map[string]int
	devices    map[string]bool
}

func (b *builder) build() Host {
	h := b.host
	b.partitions, b.devices = map[string]int{}, map[string]bool{}
	out := Host{
		Name: h.Name, Platform: string(h.Platform), OS: strings.TrimSpace(h.OS.Name + " " + h.OS.Version), GPUs: []GPU{},
		Cluster: h.ClusterName(), State: string(h.NodeState()), Notes: notes(h),
	}
	for i := range h.GPUs {
		g := b.gpu(&h.GPUs[i])
		g.Number = i
		out.GPUs = append(out.GPUs, g)
	}
	for i := range h.VMs {
		vm := &h.VMs[i]
		waiting := b.waiting(vm)
		out.Waiting = append(out.Waiting, waiting...)
		if len(waiting) == 0 && len(vm.PartitionAdapters) == 0 && len(vm.Devices) == 0 && b.partitions[gpu.FoldID(vm.ID)] == 0 {
			out.Others = append(out.Others, vm.Name)
		}
	}
	slices.Sort(out.Others)
	return out
}

// notes are what of a host could not be read, and what is not settled there.
func notes(h *gpu.Host) []string {
	var out []string
	for _, u := range h.Unknown {
		out = append(out, "Cannot be read: "+u.String()+".")
	}
	for _, r := range h.Unreadable {
		out = append(out, "The record "+r.ID+" of the agent cannot be read: claims may be missing.")
	}
	for _, subject := range h.Unfinished {
		out = append(out, "A change for "+subject+" was begun and has not ended.")
	}
	for _, p := range h.PendingStarts {
		out = append(out, "VM "+cmp.Or(p.Name, p.VM)+" was stopped by a change and is to be started.")
	}
	return out
}

// waiting are what a VM wants of GPUs and does not hold.
func (b *builder) waiting(vm *gpu.VM) []Holder {
	var out []Holder
	adapters := vm.PinnedFirst()
	for _, a := range adapters[min(b.partitions[gpu.FoldID(vm.ID)], len(adapters)):] {
		who := b.vm(vm.ID)
		who.Note = "takes a partition of any GPU when it starts"
		if a.PinnedGPU != "" {
			who.Note = "takes a partition of GPU " + a.PinnedGPU + " when it starts"
		}
		if _, unknown := b.host.UnknownPart(gpu.PartPartitions); unknown && vm.Runs() {
			who.Note = "which partition it holds cannot be read"
		}
		out = append(out, who)
	}
	for i := range vm.Devices {
		if d := &vm.Devices[i]; d.VGPU == nil && !b.devices[deviceKey(vm, i)] { // a vGPU is drawn where it is
			who := b.vm(vm.ID)
			who.Note = "takes a GPU of pool " + d.Pool + " when it starts"
			if d.GPU != "" {
				who.Note = "is to have GPU " + d.GPU + " whole, which the host has not, or has not given up"
			}
			out = append(out, who)
		}
	}
	return out
}

// vm is a VM as a holder, by its id.
func (b *builder) vm(id string) Holder {
	who := Holder{Kind: ByVM, Name: id, ID: id}
	if vm, ok := b.host.VM(id); ok {
		who.Name, who.State = vm.Name, string(vm.State)
	}
	if c, ok := b.host.Claim(gpu.ClaimAssignment, id); ok {
		who.Owner = c.Owner
	}
	return who
}

// covering is the claim of a kind that covers a GPU, nil for none.
func (b *builder) covering(kind gpu.ClaimKind, id string) *gpu.Claim {
	for c := range b.host.ClaimsOf(kind) {
		if c.Covers(id) {
			return c
		}
	}
	return nil
}
