package provider_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/action"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/list"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/acts"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/vmassignment"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// refused are what people read of refusals of the planner that no test of a resource leads to,
// since a rule speaks first there, or the host has to change at the wrong moment.
func refused(t *testing.T) []string {
	t.Helper()
	hyperv := func(edit func(*gpu.Host)) gpu.Host {
		h := rig.Node("hv01", rig.Desktop("avd-01", 1), rig.Off(rig.Desktop("avd-02", 2)))
		h.GPUs = append(h.GPUs, rig.Unpartitionable("PCIROOT(0)#PCI(1E00)#PCI(0000)#PCI(0000)"))
		if edit != nil {
			edit(&h)
		}
		return h
	}
	linux := func(edit func(*gpu.Host)) gpu.Host {
		h := rig.WithMPS(rig.HGX(rig.H100, 2)).Hosts[0]
		if edit != nil {
			edit(&h)
		}
		return h
	}
	of := func(h gpu.Host, id string) *gpu.GPU {
		g, ok := h.GPU(id)
		if !ok {
			t.Fatalf("%s has no %s", h.Name, id)
		}
		return g
	}
	config := func(h gpu.Host, kind gpu.Kind, gpus ...string) *gpu.PartitionConfig {
		c := &gpu.PartitionConfig{ID: "vdi", Name: "vdi", Kind: kind, GPUs: map[string][]string{h.Name: gpus}}
		switch kind {
		case gpu.KindGPUP:
			c.Count = 8
		case gpu.KindMIG:
			c.MIG = &gpu.MIGLayout{Profiles: map[string]int{"3g.40gb": 2}}
		case gpu.KindMPS:
			c.MPS = &gpu.MPSLayout{MultiUser: true}
		case gpu.KindTimeSlicing:
			c.TimeSlicing = &gpu.TimeSlicing{Replicas: 2}
		case gpu.KindVGPU:
		}
		return c
	}
	wants := func(c *gpu.PartitionConfig) change.Change {
		return change.Change{Subject: `gpu_partition_config "vdi"`, Token: "t", Want: gpu.Want{Config: c}}
	}
	pool := func(host string, gpus ...string) change.Change {
		return change.Change{
			Subject: `gpu_pool "render"`, Token: "t", Want: gpu.Want{
				Pool: &gpu.PoolConfig{ID: host + "/render", Name: "render", Members: map[string][]string{host: gpus}},
			},
		}
	}
	gives := func(vm string, a gpu.Assignment) change.Change {
		a.VM, a.VMName, a.Host = vm, vm, "hv01"
		return change.Change{Subject: `gpu_vm_assignment for VM "` + vm + `"`, Token: "t", Want: gpu.Want{Assignment: &a}}
	}
	ends := func(ch change.Change) change.Change {
		ch.Prior, ch.Want = ch.Want, gpu.Want{}
		return ch
	}
	somebody := gpu.Process{PID: 4711, Name: "python", Holder: "container 3f2a"}
	a, b := rig.MIGGPU(0), rig.MIGGPU(1)
	const gone = "GPU-00000000-0000-4000-8000-00000000dead"
	partition := gpu.Assignment{
		Kind: gpu.AssignPartition, Partition: &gpu.PartitionWant{}, Power: gpu.Power{AllowShutdown: true, NextOff: true},
	}
	daemon := func(h *gpu.Host, d gpu.MPSDaemon) {
		d.PID, d.Devices = 100, []gpu.SharedDevice{{GPU: a}}
		h.MPS.Daemons = []gpu.MPSDaemon{d}
	}

	shared := func(h *gpu.Host, pool string) change.Change {
		share := &gpu.Share{Name: "job", Host: "hgx01", Pool: pool, Count: 1, Devices: []gpu.SharedDevice{{GPU: a}}}
		h.Claims = append(h.Claims, gpu.Claim{Kind: gpu.ClaimShare, ID: "job", Token: "job", GPUs: []string{a}, Want: gpu.Want{Share: share}})
		return change.Change{Subject: `gpu_share "job"`, Token: "job", Want: gpu.Want{Share: share}}
	}
	mps := func(h *gpu.Host) {
		h.Claims = append(h.Claims, gpu.Claim{
			Kind: gpu.ClaimConfig, ID: "vdi", Token: "t", GPUs: []string{a}, Want: wants(config(*h, gpu.KindMPS, a)).Want,
		})
	}
	underShare := func(h *gpu.Host) {
		mps(h)
		daemon(h, gpu.MPSDaemon{MPSDaemonSpec: gpu.MPSDaemonSpec{Name: "vdi", MultiUser: true}})
		shared(h, "")
	}

	does := func(act change.Act, h *gpu.Host, c *gpu.PartitionConfig) change.Change {
		claim := gpu.Claim{Kind: gpu.ClaimConfig, ID: "vdi", Token: "t", GPUs: c.GPUs[h.Name], Want: wants(c).Want}
		h.Claims = append(h.Claims, claim)
		return change.ActOn(act, claim)
	}
	drains := func(h *gpu.Host, allowed bool) change.Change {
		c := config(*h, gpu.KindGPUP, rig.GPU0)
		c.Drain = allowed
		return does(change.ActDrain, h, c)
	}
	node := func(state gpu.NodeState, other gpu.NodeState) func(*gpu.Host) {
		return func(h *gpu.Host) {
			h.Cluster = &gpu.Cluster{Name: "clu", Nodes: []gpu.Node{{Name: "hv01", State: state}, {Name: "hv02", State: other}}}
			drains(h, other == gpu.NodeDown)
		}
	}

	var out []string
	for _, c := range []struct {
		host gpu.Host
		ch   change.Change
	}{
		{hyperv(nil), drains(&gpu.Host{Name: "hv01"}, true)},
		{hyperv(func(h *gpu.Host) { drains(h, true) }), drains(&gpu.Host{Name: "hv01"}, true)},
		{hyperv(node(gpu.NodeDown, gpu.NodeUp)), drains(&gpu.Host{Name: "hv01"}, true)},
		{hyperv(node(gpu.NodeUp, gpu.NodeUp)), drains(&gpu.Host{Name: "hv01"}, true)},
		{hyperv(node(gpu.NodeUp, gpu.NodeDown)), drains(&gpu.Host{Name: "hv01"}, true)},
		{
			linux(func(h *gpu.Host) { does(change.ActRestart, h, config(*h, gpu.KindTimeSlicing, a)) }),
			does(change.ActRestart, &gpu.Host{Name: "hgx01"}, config(linux(nil), gpu.KindTimeSlicing, a)),
		},
		{hyperv(nil), gives("avd-02", gpu.Assignment{Kind: gpu.AssignDevice, Device: &gpu.DeviceWant{Host: "hv02", GPUIDs: []string{rig.GPU0}}})},
		{hyperv(func(h *gpu.Host) {
			of(*h, rig.GPU0).Dismounted = true
			h.VMs[0].State, h.VMs[0].Devices = gpu.VMSaved, []gpu.DeviceAssignment{{ID: "a", Pool: "render", GPU: rig.GPU0}}
			h.Pools = []gpu.Pool{{Name: "render", GPUs: []string{rig.GPU0}}}
			h.Claims = []gpu.Claim{{Kind: gpu.ClaimPool, ID: "render", Token: "t", GPUs: []string{rig.GPU0}, Want: pool("hv01", rig.GPU0).Want}}
		}), func() change.Change { c := pool("hv01"); c.Want.Pool.MountBack = true; return c }()},
		{hyperv(nil), func() change.Change { c := gives("avd-02", partition); c.Act = change.ActStart; return c }()},
		{linux(func(h *gpu.Host) {
			h.Claims = []gpu.Claim{{Kind: gpu.ClaimPool, ID: "render", Token: "t", GPUs: []string{a}, Want: pool("hgx01", a).Want}}
			shared(h, "hgx01/render")
		}), pool("hgx01", b)},
		{linux(mps), shared(&gpu.Host{}, "")},
		{linux(func(h *gpu.Host) { h.ForeignSpecs = []string{"job"} }), shared(&gpu.Host{}, "")},
		{linux(underShare), ends(wants(config(linux(nil), gpu.KindMPS, a)))},
		{linux(underShare), wants(config(linux(nil), gpu.KindTimeSlicing, a))},
		{
			hyperv(nil),
			gives("avd-09", gpu.Assignment{
				Kind: gpu.AssignPartition, VMID: "00000000-0000-4000-8000-00000000DEAD", Partition: &gpu.PartitionWant{},
			}),
		},
		{hyperv(nil), gives("avd-02", gpu.Assignment{Kind: gpu.AssignPool, Pool: &gpu.PoolWant{ID: "hv01/render", Name: "render", Count: 9}})},
		{
			hyperv(nil),
			gives("avd-02", gpu.Assignment{
				Kind: gpu.AssignPartition, Partition: &gpu.PartitionWant{PinnedGPU: "PCIROOT(0)#PCI(1E00)#PCI(0000)#PCI(0000)"},
			}),
		},
		{hyperv(nil), pool("hv01", gone)},
		{hyperv(nil), wants(config(hyperv(nil), gpu.KindGPUP, gone))},
		{hyperv(nil), wants(config(hyperv(nil), gpu.KindGPUP, "PCIROOT(0)#PCI(1E00)#PCI(0000)#PCI(0000)"))},
		{hyperv(nil), wants(config(hyperv(nil), gpu.KindMPS, rig.GPU0))},
		{hyperv(func(h *gpu.Host) { h.GPUs[0].Dismounted = true }), wants(config(hyperv(nil), gpu.KindGPUP, rig.GPU0))},
		{hyperv(func(h *gpu.Host) {
			h.VMs[0].PartitionAdapters = []gpu.PartitionAdapter{{ID: "a"}}
			of(*h, rig.GPU0).Partitionable.Partitions = []gpu.Partition{{VMID: h.VMs[0].ID}}
		}), wants(config(hyperv(nil), gpu.KindGPUP, rig.GPU0))},
		{hyperv(func(h *gpu.Host) {
			want := gives("avd-01", partition).Want
			want.Assignment.VMID = h.VMs[0].ID
			h.VMs[0].PartitionAdapters = []gpu.PartitionAdapter{{ID: "a"}}
			h.Claims = []gpu.Claim{{Kind: gpu.ClaimAssignment, ID: h.VMs[0].ID, Token: "t", Want: want}}
		}), ends(gives("avd-01", partition))},
		{hyperv(func(h *gpu.Host) { h.VMs[0].PartitionAdapters = []gpu.PartitionAdapter{{ID: "a"}} }), ends(gives("avd-01", partition))},
		{linux(nil), pool("hgx01", gone)},
		{linux(func(h *gpu.Host) {
			h.Claims = []gpu.Claim{{Kind: gpu.ClaimPool, ID: "ml", GPUs: []string{a}, Want: pool("hgx01", a).Want}}
		}), pool("hgx01", a)},
		{linux(nil), func() change.Change { c := pool("hgx01", a); c.Want.Pool.Force = true; return c }()},
		{linux(nil), func() change.Change { c := pool("hgx01", a); c.Want.Pool.MountBack = true; return c }()},
		{linux(nil), wants(config(linux(nil), gpu.KindMIG, gone))},
		{linux(func(h *gpu.Host) { of(*h, a).MIG = nil }), wants(config(linux(nil), gpu.KindMIG, a))},
		{linux(func(h *gpu.Host) { of(*h, a).Dismounted = true }), wants(config(linux(nil), gpu.KindMIG, a))},
		{linux(func(h *gpu.Host) { of(*h, a).Processes = []gpu.Process{somebody} }), wants(config(linux(nil), gpu.KindMIG, a))},
		{linux(func(h *gpu.Host) { of(*h, a).MIG.NeedsReset = true }), wants(config(linux(nil), gpu.KindMIG, a))},
		{linux(func(h *gpu.Host) {
			g := of(*h, a)
			g.MIG.Enabled, g.MIG.Pending = true, true
			g.MIG.Instances = []gpu.GPUInstance{{ID: 1, Profile: "3g.40gb", Size: 4, Compute: []gpu.ComputeInstance{{Slices: 1}}}}
			inside := somebody
			inside.GPUInstance = new(1)
			g.Processes = []gpu.Process{inside}
		}), wants(config(linux(nil), gpu.KindMIG, a))},
		{linux(func(h *gpu.Host) { of(*h, a).MIG.Enabled = true }), wants(config(linux(nil), gpu.KindTimeSlicing, a))},
		{linux(func(h *gpu.Host) { h.MPS.Program = "" }), wants(config(linux(nil), gpu.KindMPS, a))},
		{linux(func(h *gpu.Host) { daemon(h, gpu.MPSDaemon{}) }), wants(config(linux(nil), gpu.KindMPS, a))},
		{linux(func(h *gpu.Host) {
			daemon(h, gpu.MPSDaemon{MPSDaemonSpec: gpu.MPSDaemonSpec{Name: "vdi", MultiUser: true}, Clients: []gpu.Process{somebody}})
			h.Claims = []gpu.Claim{
				{Kind: gpu.ClaimConfig, ID: "vdi", Token: "t", GPUs: []string{a}, Want: wants(config(linux(nil), gpu.KindMPS, a)).Want},
			}
		}), wants(config(linux(nil), gpu.KindMPS, a, b))},
	} {
		_, err := change.Plan(c.host, c.host.Name, c.ch)
		var all gpu.Refusals
		if !errors.As(err, &all) {
			t.Errorf("%s is not refused: %v", c.ch.Subject, err)
			continue
		}
		for _, r := range all {
			f := rules.Refused(c.host.Name, c.ch, r)
			out = append(out, string(f.Level)+": "+f.Title+"\n\n"+f.Detail()+"\n")
		}
	}
	return out
}

// told is what plans say of hosts that a killed run, or an agent of another version, has left.
func told(t *testing.T) []string {
	t.Helper()
	f := fleet.New(fleet.Options{Hosts: map[string]fleet.Endpoint{}})
	v := fleet.View{
		Hosts: map[string]*gpu.Host{"hv01": {
			Name: "hv01", Unfinished: []string{`gpu_partition_config "vdi"`}, Moving: []string{"avd-01", "avd-02"},
			Unreadable: []gpu.UnreadableRecord{
				{
					ID: "claims.json/3", File: "/var/lib/gpu-agent/claims.json", Record: "record 3 (claim)", Found: `kind: unknown value "mig2"`,
					Newer: true,
				},
			},
		}, "gpu01": {Name: "gpu01", Stale: []string{`the CDI specification of share "job": no space left on device`}}},
		Errors: map[string]error{"hv02": &fleet.NotYetKnownError{Host: "hv02", Reason: "it has no agent yet, which the apply installs"}},
	}
	var diags diag.Diagnostics
	report.Unreachable(&diags, f, `gpu_partition_config "vdi"`, v)
	acted(t, &diags)
	listing(t, &diags)
	var out []string
	for _, d := range diags {
		out = append(out, neutral(strings.ToLower(d.Severity().String())+": "+d.Summary()+"\n\n"+d.Detail()+"\n"))
	}
	return out
}

// acted adds what actions say, which only Terraform 1.14 runs.
func acted(t *testing.T, diags *diag.Diagnostics) {
	t.Helper()
	ctx, s := t.Context(), rig.TwoNodes()
	theirs := s.Hosts[0].VMs[1]
	s.Hosts[0].Claims = []gpu.Claim{
		{
			Kind: gpu.ClaimAssignment, ID: theirs.ID, Token: "t", Owner: "render-farm", Want: gpu.Want{Assignment: &gpu.Assignment{VM: theirs.Name}},
		},
	}
	sim, err := others.InMemory(s)
	if err != nil {
		t.Fatal(err)
	}
	hosts := map[string]fleet.Endpoint{}
	for _, name := range sim.Hosts() {
		hosts[name] = fleet.Endpoint{Dial: func(context.Context, bool) (fleet.Conn, error) {
			host, err := sim.Host(name)
			if err != nil {
				return nil, err
			}
			conn, err := connect.InProcess(agent.NewServer(host, host, agent.WithHostName(name)))
			return agent.NewClient(conn, name), err
		}}
	}
	act, ok := acts.NewPower().(action.ActionWithModifyPlan)
	if !ok {
		t.Fatal("the action plans nothing")
	}
	f := fleet.New(fleet.Options{Owner: "vdi", Hosts: hosts})
	t.Cleanup(func() { _ = f.Close() })
	if c, ok := act.(action.ActionWithConfigure); ok {
		c.Configure(ctx, action.ConfigureRequest{ProviderData: f}, &action.ConfigureResponse{})
	}
	var schema action.SchemaResponse
	act.Schema(ctx, action.SchemaRequest{}, &schema)
	for _, vm := range []string{s.Hosts[0].VMs[0].Name, theirs.Name, "avd-77"} {
		text := func(v string) tftypes.Value { return tftypes.NewValue(tftypes.String, v) }
		config := tfsdk.Config{
			Schema: schema.Schema, Raw: tftypes.NewValue(schema.Schema.Type().TerraformType(ctx),
				map[string]tftypes.Value{"vm": text(vm), "state": text("off")}),
		}
		var plan action.ModifyPlanResponse
		act.ModifyPlan(ctx, action.ModifyPlanRequest{Config: config}, &plan)
		diags.Append(plan.Diagnostics...)
		done := action.InvokeResponse{SendProgress: func(action.InvokeProgressEvent) {}}
		act.Invoke(ctx, action.InvokeRequest{Config: config}, &done)
		diags.Append(done.Diagnostics...)
	}
}

// listing adds what `terraform query` says of hosts that are not known.
func listing(t *testing.T, diags *diag.Diagnostics) {
	t.Helper()
	var schema list.ListResourceSchemaResponse
	var stream list.ListResultsStream
	lister := vmassignment.NewList()
	lister.ListResourceConfigSchema(t.Context(), list.ListResourceSchemaRequest{}, &schema)
	none := tfsdk.Config{Schema: schema.Schema, Raw: tftypes.NewValue(schema.Schema.Type().TerraformType(t.Context()), nil)}
	lister.List(t.Context(), list.ListRequest{Config: none}, &stream)
	for result := range stream.Results {
		diags.Append(result.Diagnostics...)
	}
}
