package planreport

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// ExplanationFormat names the version of an explanation as a JSON document.
const ExplanationFormat = "gpu-plan-explanation/v1"

// Explanation is a report in the order in which a person who approves it asks: for each host what changes, who is off for it
// and how long at most, what ends, and what stays.
type Explanation struct {
	Format     string    `json:"format"`
	Complete   bool      `json:"complete"`
	Incomplete []string  `json:"incomplete,omitempty"`
	Owner      string    `json:"owner,omitempty"`
	PlannedAt  time.Time `json:"planned_at,omitzero"`
	Summary    Summary   `json:"summary"`
	// Hosts are those on which something changes, by the turn in which that begins.
	Hosts []HostExplanation `json:"hosts"`
	// Elsewhere are changes of which the host is known only after apply.
	Elsewhere []Group `json:"elsewhere,omitempty"`
	// Unchanged are the other hosts that the plan looked at.
	Unchanged []string  `json:"unchanged_hosts"`
	Findings  []Finding `json:"findings"`
}

// Summary is how much a plan does.
type Summary struct {
	Resources int `json:"resources"`
	Hosts     int `json:"hosts"`
	GPUs      int `json:"gpus"`
	// VMsOff are off for some time, VMsLeftOff after the apply too.
	VMsOff     int `json:"vms_off"`
	VMsLeftOff int `json:"vms_left_off"`
	VMsMoved   int `json:"vms_moved"`
	Ends       int `json:"processes_ended"`
	Resets     int `json:"gpus_reset"`
	Turns      int `json:"turns"`
	// AfterApply are the changes of which only the apply can tell what they do.
	AfterApply int `json:"known_after_apply"`
}

// HostExplanation is what a plan does to one host.
type HostExplanation struct {
	Host    string  `json:"host"`
	Changes []Group `json:"changes"`
	// Partitions and FreePartitions are how many the host has afterwards.
	Partitions     int `json:"partitions"`
	FreePartitions int `json:"free_partitions"`
	// UnchangedGPUs keep their layout, and VMsRunOn are not stopped.
	UnchangedGPUs []string `json:"unchanged_gpus"`
	VMsRunOn      []string `json:"vms_run_on"`
}

// Group is one change of a host, or several of one sort that follow each other.
type Group struct {
	Type   string   `json:"type"`
	Action Action   `json:"action"`
	Labels []string `json:"labels"`
	// FirstTurn and LastTurn are when they come.
	FirstTurn int           `json:"first_turn"`
	LastTurn  int           `json:"last_turn"`
	Layouts   []LayoutGroup `json:"layouts"`
	Stops     []Stop        `json:"stops"`
	// ShutdownSeconds is how long all guests may take to shut down, one after the other; LimitSeconds bounds the work of one turn.
	ShutdownSeconds int      `json:"shutdown_s"`
	LimitSeconds    int      `json:"limit_s"`
	Ends            []End    `json:"ends"`
	Resets          []string `json:"resets"`
	Dismounts       []string `json:"dismounts"`
	Drains          []string `json:"drains"`
	Moves           []string `json:"moves"`
	Steps           []string `json:"steps"`
	OnFailure       string   `json:"on_failure,omitempty"`
	PolicyOnly      bool     `json:"policy_only,omitempty"`
	AfterApply      bool     `json:"known_after_apply,omitempty"`
	Refused         string   `json:"refused,omitempty"`
	touched         []string // ids of GPUs
}

// LayoutGroup is GPUs of a host that change alike.
type LayoutGroup struct {
	// GPUs are by model and number on their host, IDs the same by id.
	GPUs []string `json:"gpus"`
	IDs  []string `json:"ids"`
	From string   `json:"from"`
	To   string   `json:"to"`
}

// Explain puts a report into that order.
func Explain(r Report) Explanation {
	e := Explanation{
		Format: ExplanationFormat, Complete: r.Complete, Incomplete: r.Incomplete, Owner: r.Owner, PlannedAt: r.PlannedAt,
		Hosts: []HostExplanation{}, Unchanged: []string{}, Findings: append([]Finding{}, r.Findings...), Summary: summaryOf(r),
	}
	slices.SortStableFunc(e.Findings, func(a, b Finding) int { return severity(a) - severity(b) })
	before, after := byName(r.Before), byName(r.After)
	changes := map[string][]Change{}
	var order []string
	for _, c := range slices.SortedStableFunc(slices.Values(r.Changes), func(a, b Change) int { return cmp.Compare(a.Turn, b.Turn) }) {
		if _, known := changes[c.Host]; !known {
			order = append(order, c.Host)
		}
		changes[c.Host] = append(changes[c.Host], c)
	}
	for _, host := range order {
		groups := groupsOf(changes[host], before[host])
		if host == "" {
			e.Elsewhere = groups
			continue
		}
		e.Hosts = append(e.Hosts, hostExplanation(host, groups, before[host], after[host]))
	}
	for _, host := range slices.Sorted(maps.Keys(before)) {
		if _, changed := changes[host]; !changed {
			e.Unchanged = append(e.Unchanged, host)
		}
	}
	return e
}

func severity(f Finding) int {
	if f.Level == "error" {
		return 0
	}
	return 1
}

func byName(s gpu.Snapshot) map[string]*gpu.Host {
	out := make(map[string]*gpu.Host, len(s.Hosts))
	for i := range s.Hosts {
		out[s.Hosts[i].Name] = &s.Hosts[i]
	}
	return out
}

func summaryOf(r Report) Summary {
	resources, hosts, gpus, off, left, moved, resets := names{}, names{}, names{}, names{}, names{}, names{}, names{}
	s := Summary{}
	for _, c := range r.Changes {
		if resources.add(c.Label); c.AfterApply {
			s.AfterApply++
			resources.add(c.Label, strconv.Itoa(s.AfterApply)) // some have no name yet
			delete(resources, c.Label)
		}
		s.Turns = max(s.Turns, c.Turn)
		if len(c.Steps) > 0 {
			hosts.add(c.Host)
		}
		for _, g := range c.GPUs {
			gpus.add(c.Host, g.ID)
		}
		for _, stop := range c.Stops {
			off.add(cmp.Or(stop.VMID, stop.VM))
			if stop.StartsAgain {
				delete(left, cmp.Or(stop.VMID, stop.VM))
			} else {
				left.add(cmp.Or(stop.VMID, stop.VM))
			}
		}
		for _, vm := range c.Moves {
			moved.add(vm)
		}
		for _, id := range c.Resets {
			resets.add(c.Host, id)
		}
		s.Ends += len(c.Ends)
	}
	s.Resources, s.Hosts, s.GPUs, s.Resets = len(resources), len(hosts), len(gpus), len(resets)
	s.VMsOff, s.VMsLeftOff, s.VMsMoved = len(off), len(left), len(moved)
	return s
}

// names are some things, each once.
type names map[string]bool

func (n names) add(parts ...string) { n[strings.Join(parts, "\n")] = true }

func hostExplanation(name string, groups []Group, before, after *gpu.Host) HostExplanation {
	e := HostExplanation{Host: name, Changes: groups, UnchangedGPUs: []string{}, VMsRunOn: []string{}}
	if before == nil || after == nil {
		return e
	}
	changed, off := names{}, names{}
	for _, g := range groups {
		for _, id := range g.touched {
			changed.add(id)
		}
		for _, s := range g.Stops {
			off.add(cmp.Or(s.VMID, s.VM))
		}
	}
	for i := range before.GPUs {
		if g := &before.GPUs[i]; !changed[g.ID] && !g.HostDisplay {
			e.UnchangedGPUs = append(e.UnchangedGPUs, gpuName(before, g.ID))
		}
	}
	for i := range before.VMs {
		if vm := &before.VMs[i]; vm.Runs() && !off[vm.ID] {
			e.VMsRunOn = append(e.VMsRunOn, vm.Name)
		}
	}
	for i := range after.GPUs {
		if p := after.GPUs[i].Partitionable; p != nil && !after.GPUs[i].Dismounted {
			e.Partitions += p.Count
			e.FreePartitions += max(0, p.Free())
		}
	}
	return e
}

func gpuNames(h *gpu.Host, ids []string) []string {
	out := []string{}
	for _, id := range ids {
		out = append(out, gpuName(h, id))
	}
	return out
}

// gpuName is the model of a GPU, and its number among those of its host.
func gpuName(h *gpu.Host, id string) string {
	number := 0
	for i := range cmp.Or(h, &gpu.Host{}).GPUs {
		g := &h.GPUs[i]
		if g.HostDisplay {
			continue
		}
		number++
		if gpu.SameID(g.ID, id) {
			return fmt.Sprintf("%s #%d", gpu.Printable(cmp.Or(g.Model, "GPU")), number)
		}
	}
	return "GPU " + gpu.Printable(id)
}

// groupsOf puts changes together that follow each other on a host and are of one sort: the assignments of many VMs.
func groupsOf(changes []Change, before *gpu.Host) []Group {
	var out []Group
	for _, c := range changes {
		g := groupOf(c, before)
		if n := len(out); n > 0 && alike(out[n-1], g) {
			out[n-1] = out[n-1].with(g)
		} else {
			out = append(out, g)
		}
	}
	return out
}

func groupOf(c Change, before *gpu.Host) Group {
	g := Group{
		Type: c.Type, Action: c.Action, Labels: []string{c.Label}, FirstTurn: c.Turn, LastTurn: c.Turn, Layouts: []LayoutGroup{},
		Stops: append([]Stop{}, c.Stops...), LimitSeconds: c.LimitSeconds, Ends: append([]End{}, c.Ends...),
		Resets: gpuNames(before, c.Resets), Dismounts: gpuNames(before, c.Dismounts), Drains: append([]string{}, c.Drains...),
		Moves: append([]string{}, c.Moves...), Steps: append([]string{}, c.Steps...), OnFailure: c.OnFailure,
		PolicyOnly: c.PolicyOnly, AfterApply: c.AfterApply, Refused: c.Refused, touched: slices.Concat(c.Resets, c.Dismounts),
	}
	for _, s := range c.Stops {
		g.ShutdownSeconds += s.ShutdownSeconds
	}
	for _, x := range c.GPUs {
		g.touched = append(g.touched, x.ID)
		l := LayoutGroup{IDs: []string{x.ID}, GPUs: gpuNames(before, []string{x.ID})}
		l.From, l.To = layoutTexts(x, before)
		if i := slices.IndexFunc(g.Layouts, func(o LayoutGroup) bool { return o.From == l.From && o.To == l.To }); i >= 0 {
			g.Layouts[i].IDs, g.Layouts[i].GPUs = append(g.Layouts[i].IDs, x.ID), append(g.Layouts[i].GPUs, l.GPUs...)
		} else {
			g.Layouts = append(g.Layouts, l)
		}
	}
	return g
}

// alike reports whether two changes are told as one.
func alike(a, b Group) bool {
	plain := func(g Group) bool {
		return len(g.Layouts)+len(g.Ends)+len(g.Resets)+len(g.Dismounts)+len(g.Drains) == 0
	}
	return plain(a) && plain(b) && a.Type == b.Type && a.Action == b.Action && a.LimitSeconds == b.LimitSeconds &&
		a.PolicyOnly == b.PolicyOnly && a.AfterApply == b.AfterApply && (a.Refused != "") == (b.Refused != "") &&
		(len(a.Stops) > 0) == (len(b.Stops) > 0) && (len(a.Steps) > 0) == (len(b.Steps) > 0)
}

func (g Group) with(o Group) Group {
	g.Labels, g.Stops, g.Steps = append(g.Labels, o.Labels...), append(g.Stops, o.Stops...), append(g.Steps, o.Steps...)
	g.LastTurn = max(g.LastTurn, o.LastTurn)
	g.ShutdownSeconds += o.ShutdownSeconds
	return g
}

// layoutTexts say what a GPU is cut into before and after, as far as that differs.
func layoutTexts(x GPU, host *gpu.Host) (from, to string) {
	var g *gpu.GPU
	if host != nil {
		g, _ = host.GPU(x.ID)
	}
	parts := func(l gpu.Layout) []string {
		vgpus, mig := "none", "off"
		if l.VGPU != nil {
			vgpus = l.VGPU.String()[len("vgpu:"):]
		}
		if l.MIG != nil {
			mig = l.MIG.String()
		}
		return []string{
			partitionsText(l.Partitions, g), "MIG " + mig, "vGPUs " + vgpus,
			"compute mode " + string(cmp.Or(l.ComputeMode, gpu.ComputeDefault)), "time slice " + string(cmp.Or(l.TimeSlice, gpu.TimeSliceDefault)),
		}
	}
	a, b := parts(x.From), parts(x.To)
	for i := range a {
		if a[i] != b[i] {
			from, to = joined(from, a[i]), joined(to, b[i])
		}
	}
	return from, to
}

func joined(text, more string) string {
	if text == "" {
		return more
	}
	return text + ", " + more
}

func partitionsText(count int, g *gpu.GPU) string {
	text := fmt.Sprintf("%d partitions", count)
	if count == 1 {
		text = "1 partition"
	}
	if g != nil && g.Partitionable != nil {
		if each := g.Partitionable.EstimatedPartitionVRAM(count); each > 0 {
			text += fmt.Sprintf(" of %s", each)
		}
	}
	return text
}
