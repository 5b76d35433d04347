package main

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/planreport"
)

// scenes are all pictures of fleets.
func scenes() ([]scene, error) {
	var out []scene
	for _, draw := range []func() (scene, error){ways, claims, desktops, instances, quotas, rollout, drain} {
		s, err := draw()
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// stage is a fleet that is set up for a picture.
type stage struct{ gpu.Snapshot }

func newStage(s simulated.Spec) (stage, error) {
	snapshot, err := s.Snapshot()
	return stage{snapshot}, err
}

func (s stage) host(name string) *gpu.Host {
	at := slices.IndexFunc(s.Hosts, func(h gpu.Host) bool { return h.Name == name })
	return &s.Hosts[at]
}

// later is a copy, which changes without the fleet that it is of.
func (s stage) later() stage {
	raw, err := json.Marshal(s.Snapshot)
	var out stage
	if err == nil {
		err = json.Unmarshal(raw, &out.Snapshot)
	}
	if err != nil {
		panic(err) // it was marshalled
	}
	return out
}

// cut gives a GPU other partitions, which nobody holds.
func cut(g *gpu.GPU, count int) {
	p := g.Partitionable
	for _, c := range []*gpu.Capacity{&p.VRAM, &p.Encode, &p.Decode, &p.Compute} {
		part := c.Total / uint64(count) //nolint:gosec // a count
		c.Min, c.Max, c.Optimal, c.Available = part, part, part, c.Total
	}
	p.Count, p.Partitions = count, nil
}

// seat gives a VM a partition of a GPU of its host, or only an adapter where the GPU is nil; owner "" claims nothing.
func (s stage) seat(host, vm string, g *gpu.GPU, owner string) {
	h := s.host(host)
	at := slices.IndexFunc(h.VMs, func(v gpu.VM) bool { return v.Name == vm })
	v := &h.VMs[at]
	v.PartitionAdapters = []gpu.PartitionAdapter{{ID: "adapter-" + vm}}
	if g != nil {
		p := g.Partitionable
		p.Partitions = append(p.Partitions, gpu.Partition{ID: len(p.Partitions), VMID: v.ID, VRAM: p.PartitionVRAM()})
	}
	if owner != "" {
		h.Claims = append(h.Claims, gpu.Claim{
			Kind: gpu.ClaimAssignment, ID: v.ID, Token: "t-" + vm, Owner: owner,
			Want: gpu.Want{Assignment: &gpu.Assignment{Kind: gpu.AssignPartition, VM: vm, VMID: v.ID, VMName: vm, Partition: &gpu.PartitionWant{}}},
		})
	}
}

// config claims GPUs of a host for a layout.
func (s stage) config(host, owner string, c gpu.PartitionConfig, gpus ...int) {
	h := s.host(host)
	claim := gpu.Claim{Kind: gpu.ClaimConfig, ID: c.ID, Token: "t-" + c.ID, Owner: owner, Want: gpu.Want{Config: &c}}
	for _, n := range gpus {
		claim.GPUs = append(claim.GPUs, h.GPUs[n].ID)
	}
	h.Claims = append(h.Claims, claim)
}

// share places a share.
func (s stage) share(host, owner string, share gpu.Share, devices ...gpu.SharedDevice) {
	h := s.host(host)
	share.Host, share.Count, share.Devices = host, len(devices), devices
	h.Claims = append(h.Claims, gpu.Claim{
		Kind: gpu.ClaimShare, ID: share.Name, Token: "t-" + share.Name, Owner: owner, Want: gpu.Want{Share: &share},
	})
}

// divide puts GPU instances on a GPU: profiles and their first memory slices.
func divide(g *gpu.GPU, at ...gpu.MIGPlacement) {
	g.MIG.Enabled, g.MIG.Pending = true, true
	for i, p := range at {
		profile, ok := g.MIG.Profile(p.Profile)
		if !ok {
			panic("there is no profile " + p.Profile)
		}
		g.MIG.Instances = append(g.MIG.Instances, gpu.GPUInstance{
			ID: i + 1, Profile: p.Profile, Start: p.Start, Size: profile.Size, Memory: profile.Memory,
			Compute: []gpu.ComputeInstance{{UUID: fmt.Sprintf("MIG-%s-%d", g.ID, i), Slices: profile.Slices}},
		})
	}
}

func at(profile string, start int) gpu.MIGPlacement {
	return gpu.MIGPlacement{Profile: profile, Start: start}
}

func named(prefix string, n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("%s-%02d", prefix, i+1))
	}
	return out
}

const h100 = "H100 80GB HBM3"

// ways shows each way to share a GPU once.
func ways() (scene, error) {
	s, err := newStage(simulated.Spec{
		Platform: gpu.HyperV, Hosts: []string{"hyper-v"}, Models: []string{"A2", "A2"}, VMs: []string{"desk-01", "desk-02", "cad-01"},
	})
	if err != nil {
		return scene{}, err
	}
	l, err := newStage(simulated.Spec{Platform: gpu.Linux, Hosts: []string{"linux"}, Models: []string{h100, h100, h100, h100}})
	if err != nil {
		return scene{}, err
	}
	s.Hosts = append(s.Hosts, l.Hosts...)
	h := s.host("hyper-v")
	cut(&h.GPUs[0], 4)
	s.seat("hyper-v", "desk-01", &h.GPUs[0], "")
	s.seat("hyper-v", "desk-02", &h.GPUs[0], "")
	g := &h.GPUs[1]
	g.Status, g.Dismounted, g.Partitionable = gpu.Assigned, true, nil
	h.VMs[2].Devices = []gpu.DeviceAssignment{{ID: "d", GPU: g.ID}}
	n := s.host("linux")
	divide(&n.GPUs[0], at("3g.40gb", 0), at("2g.20gb", 4), at("1g.10gb", 6))
	s.config("linux", "", gpu.PartitionConfig{ID: "mps", Kind: gpu.KindMPS, MPS: &gpu.MPSLayout{MultiUser: true}}, 1)
	s.config("linux", "", gpu.PartitionConfig{ID: "turns", Kind: gpu.KindTimeSlicing, TimeSlicing: &gpu.TimeSlicing{Replicas: 4}}, 2)
	mig := at("3g.40gb", 0)
	s.share("linux", "", gpu.Share{Name: "training"}, gpu.SharedDevice{GPU: n.GPUs[0].ID, Instance: &mig})
	s.share("linux", "", gpu.Share{Name: "chat", RequestFraction: .5, ActiveThreadPercentage: 50}, gpu.SharedDevice{GPU: n.GPUs[1].ID})
	s.share("linux", "", gpu.Share{Name: "search", RequestFraction: .25, ActiveThreadPercentage: 20}, gpu.SharedDevice{GPU: n.GPUs[1].ID})
	s.share("linux", "", gpu.Share{Name: "notebook-a"}, gpu.SharedDevice{GPU: n.GPUs[2].ID})
	s.share("linux", "", gpu.Share{Name: "notebook-b"}, gpu.SharedDevice{GPU: n.GPUs[2].ID})
	s.share("linux", "", gpu.Share{Name: "large-model"}, gpu.SharedDevice{GPU: n.GPUs[3].ID})
	return scene{
		name: "ways-to-share", title: "Six ways to share a GPU: partitions, passthrough, MIG, MPS, time-slicing, whole",
		now: s.Snapshot,
	}, s.Validate()
}

// claims shows whose a partition is: two states, and VMs of nobody.
func claims() (scene, error) {
	s, err := newStage(simulated.Spec{
		Platform: gpu.HyperV, Hosts: []string{"hv01"}, Models: []string{"A2"}, VMs: append(named("vdi", 3), "lab-01", "lab-02", "by-hand"),
	})
	if err != nil {
		return scene{}, err
	}
	h := s.host("hv01")
	cut(&h.GPUs[0], 8)
	s.config("hv01", "vdi-prod", gpu.PartitionConfig{ID: "vdi", Kind: gpu.KindGPUP, Count: 8}, 0)
	for i, owner := range []string{"vdi-prod", "vdi-prod", "vdi-prod", "lab", "lab", ""} {
		s.seat("hv01", h.VMs[i].Name, &h.GPUs[0], owner)
	}
	return scene{name: "claims", title: "Claims: the host knows which state has what", now: s.Snapshot}, s.Validate()
}

// nodes is a cluster of two nodes with desktops that have partitions.
func nodes(vms, count int) (stage, error) {
	s, err := newStage(simulated.Spec{
		Platform: gpu.HyperV, Hosts: []string{"hv01", "hv02"}, Models: []string{"A2"}, VMs: named("avd", vms), Cluster: "azl-vdi",
	})
	if err != nil {
		return s, err
	}
	for i := range s.Hosts {
		h := &s.Hosts[i]
		cut(&h.GPUs[0], count)
		s.config(h.Name, "vdi-prod", gpu.PartitionConfig{ID: "vdi", Kind: gpu.KindGPUP, Count: count}, 0)
		for j := range h.VMs {
			s.seat(h.Name, h.VMs[j].Name, &h.GPUs[0], "vdi-prod")
		}
	}
	return s, s.Validate()
}

// reseated is a cluster of nodes with other partitions, which the same VMs hold.
func (s stage) reseated(count int) stage {
	out := s.later()
	for i := range out.Hosts {
		h := &out.Hosts[i]
		cut(&h.GPUs[0], count)
		h.Claims = nil
		out.config(h.Name, "vdi-prod", gpu.PartitionConfig{ID: "vdi", Kind: gpu.KindGPUP, Count: count}, 0)
		for j := range h.VMs {
			out.seat(h.Name, h.VMs[j].Name, &h.GPUs[0], "vdi-prod")
		}
	}
	return out
}

// planned is a report of a plan.
func planned(before, after stage, changes ...planreport.Change) *planreport.Report {
	return &planreport.Report{Format: planreport.Format, Complete: true, Before: before.Snapshot, After: after.Snapshot, Changes: changes}
}

// stopped is a change in whose turn VMs are off.
func stopped(turn int, host string, vms []gpu.VM) planreport.Change {
	c := planreport.Change{Label: `gpu_partition_config "vdi"`, Host: host, Action: "update", Turn: turn}
	for _, v := range vms {
		c.Stops = append(c.Stops, planreport.Stop{VM: v.Name, VMID: v.ID, Host: host, StartsAgain: true})
	}
	return c
}

// desktops shows a VDI cluster before and after a change of its partition count.
func desktops() (scene, error) {
	s, err := nodes(6, 16)
	if err != nil {
		return scene{}, err
	}
	after := s.reseated(4)
	r := planned(s, after, stopped(1, "hv01", s.Hosts[0].VMs), stopped(2, "hv02", s.Hosts[1].VMs))
	return scene{
		name: "vdi-cluster", title: "From 16 partitions to 4: six desktops get four times the memory",
		now: s.Snapshot, report: r,
	}, after.Validate()
}

// instances shows MIG layouts to scale.
func instances() (scene, error) {
	s, err := newStage(simulated.Spec{Platform: gpu.Linux, Hosts: []string{"hgx01"}, Models: []string{h100, h100, h100, h100}})
	if err != nil {
		return scene{}, err
	}
	h := s.host("hgx01")
	layouts := [][]gpu.MIGPlacement{
		{at("1g.10gb", 0), at("1g.10gb", 1), at("1g.10gb", 2), at("1g.10gb", 3), at("1g.10gb", 4), at("1g.10gb", 5), at("1g.10gb", 6)},
		{at("3g.40gb", 0), at("3g.40gb", 4)},
		{at("2g.20gb", 0), at("2g.20gb", 2), at("1g.20gb", 4)},
		{at("4g.40gb", 0), at("1g.10gb", 4)},
	}
	for i, layout := range layouts {
		divide(&h.GPUs[i], layout...)
	}
	for i, name := range []string{"inference-a", "inference-b", "inference-c"} {
		p := at("1g.10gb", i)
		s.share("hgx01", "inference", gpu.Share{Name: name}, gpu.SharedDevice{GPU: h.GPUs[0].ID, Instance: &p})
	}
	p := at("3g.40gb", 4)
	s.share("hgx01", "research", gpu.Share{Name: "fine-tuning"}, gpu.SharedDevice{GPU: h.GPUs[1].ID, Instance: &p})
	return scene{name: "mig-to-scale", title: "MIG on an H100, to scale: eight slices of memory", now: s.Snapshot}, s.Validate()
}

// quotas shows what labels have of a pool.
func quotas() (scene, error) {
	s, err := newStage(simulated.Spec{Platform: gpu.Linux, Hosts: []string{"hgx01"}, Models: []string{h100, h100, h100}})
	if err != nil {
		return scene{}, err
	}
	h := s.host("hgx01")
	s.config("hgx01", "ml-platform", gpu.PartitionConfig{ID: "mps", Kind: gpu.KindMPS, MPS: &gpu.MPSLayout{MultiUser: true}}, 0, 1, 2)
	pool := gpu.PoolConfig{ID: "ml", Name: "ml", Members: map[string][]string{"hgx01": {h.GPUs[0].ID, h.GPUs[1].ID, h.GPUs[2].ID}}}
	two, one, memory := 2.0, 1.0, gpu.FromMiB(60*1024)
	pool.Quotas = map[string]gpu.PoolQuota{"team-a": {GPUs: &two}, "team-b": {GPUs: &one}, "team-c": {Memory: &memory}}
	h.Claims = append(h.Claims, gpu.Claim{
		Kind: gpu.ClaimPool, ID: "ml", Token: "t-ml", Owner: "ml-platform", GPUs: pool.Members["hgx01"], Want: gpu.Want{Pool: &pool},
	})
	for i, x := range []struct {
		label    string
		gpu      int
		fraction float64
	}{{"team-a", 0, .5}, {"team-a", 0, .5}, {"team-a", 1, .25}, {"team-b", 1, .5}, {"team-c", 2, .5}} {
		share := gpu.Share{Name: fmt.Sprintf("%s-%d", x.label, i), Pool: "ml", Label: x.label, RequestFraction: x.fraction}
		s.share("hgx01", x.label, share, gpu.SharedDevice{GPU: h.GPUs[x.gpu].ID})
	}
	return scene{name: "quotas", title: "A pool of three GPUs, and what three teams may have of it", now: s.Snapshot}, s.Validate()
}

// rollout shows who is off in which turn.
func rollout() (scene, error) {
	s, err := nodes(8, 8)
	if err != nil {
		return scene{}, err
	}
	after := s.reseated(4)
	r := planned(s, after)
	for i := range 4 {
		r.Changes = append(r.Changes, stopped(i+1, "hv01", s.Hosts[0].VMs[i:i+1]))
	}
	for i := range 4 {
		r.Changes = append(r.Changes, stopped(i+5, "hv02", s.Hosts[1].VMs[i:i+1]))
	}
	return scene{
		name: "rollout", title: "A rollout: one host after the other, one VM at a time",
		now: s.Snapshot, report: r,
	}, after.Validate()
}

// drain shows a node whose VMs move away and come back while its GPU is divided anew.
func drain() (scene, error) {
	s, err := nodes(4, 16)
	if err != nil {
		return scene{}, err
	}
	after := s.reseated(8)
	var changes []planreport.Change
	for i, host := range []string{"hv01", "hv02"} {
		c := stopped(i+1, host, nil)
		c.Drains = []string{host}
		for _, v := range s.Hosts[i].VMs {
			c.Moves = append(c.Moves, v.Name)
		}
		changes = append(changes, c)
	}
	return scene{
		name: "drain", title: "With drain: VMs move to the other node, and nobody is off",
		now: s.Snapshot, report: planned(s, after, changes...),
	}, after.Validate()
}
