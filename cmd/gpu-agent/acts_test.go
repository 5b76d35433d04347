package main_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// claimed is a host with the claim of a config.
func claimed(h gpu.Host, c gpu.PartitionConfig, gpus ...string) gpu.Host {
	c.GPUs = map[string][]string{h.Name: gpus}
	h.Claims = []gpu.Claim{
		{Kind: gpu.ClaimConfig, ID: c.ID, Owner: "vdi-prod", Token: "t1", Revision: 1, GPUs: gpus, Want: gpu.Want{Config: &c}},
	}
	return h
}

// A node is drained and resumed as the rollout of its config allows, and its VM goes on elsewhere.
func TestHostActs(t *testing.T) {
	t.Parallel()
	node := func(name string) gpu.Host {
		h := host()
		h.Name, h.Claims, h.Pools, h.GPUs = name, nil, nil, h.GPUs[:1]
		h.GPUs[0].Partitionable.SupportsIncomingLiveMigration = new(true)
		h.Cluster = &gpu.Cluster{Name: "azl", Nodes: []gpu.Node{{Name: "hv01", State: gpu.NodeUp}, {Name: "hv02", State: gpu.NodeUp}}}
		h.VMs[0].Clustered = true
		return h
	}
	first, second := node("hv01"), node("hv02")
	second.VMs = nil
	config := gpu.PartitionConfig{ID: "vdi", Kind: gpu.KindGPUP, Count: 4}
	r := newRig(t, claimed(first, config, gpu1), second)
	_, said := r.run(1, "host", "drain", "--yes")
	wantSaid(t, said, "allows it to be drained", "rollout = { drain = true }")

	config.Drain = true
	r = newRig(t, claimed(first, config, gpu1), second)
	node1 := func() gpu.Host {
		s, err := r.fleet.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s.Hosts[0]
	}
	before := r.file()
	got, _ := r.run(0, "host", "drain")
	wantSaid(t, got, "drain the cluster node", "nothing was changed; --yes does it")
	if r.file() != before {
		t.Error("without --yes it changed the host")
	}
	_, said = r.run(1, "host", "--role", "reader", "drain", "--yes")
	wantSaid(t, said, "host changes the host, and the role is reader")
	got, _ = r.run(0, "host", "drain", "--yes")
	wantSaid(t, got, "done")
	if h := node1(); h.NodeState() != gpu.NodePaused || len(h.VMs) > 0 || len(h.Claims) != 1 || h.Claims[0].Token != "t1" {
		t.Errorf("the node is %s, with VMs %+v and claims %+v", h.NodeState(), h.VMs, h.Claims)
	}
	got, _ = r.run(0, "host", "drain", "--yes")
	wantSaid(t, got, "nothing to do")
	r.run(0, "host", "resume", "--yes")
	if h := node1(); h.NodeState() != gpu.NodeUp || len(h.VMs) != 1 || h.VMs[0].State != gpu.VMRunning {
		t.Errorf("the node is %s, with VMs %+v", h.NodeState(), h.VMs)
	}
	r.run(64, "host", "reboot")
	_, said = newRig(t).run(1, "host", "drain")
	wantSaid(t, said, "no record of such a partition config")
}

// The daemons of a config of MPS are restarted; their clients are named, and end where the config
// allows that.
func TestMPSActs(t *testing.T) {
	t.Parallel()
	const id = "GPU-50000000-0000-4000-8000-000000000000"
	uid := 1000
	config := gpu.PartitionConfig{ID: "inference", Kind: gpu.KindMPS, MPS: &gpu.MPSLayout{User: &uid}}
	h := gpu.Host{
		Name: "hv01", Platform: gpu.Linux, OS: gpu.OS{Name: "Ubuntu 24.04.3 LTS"}, MPS: &gpu.MPSHost{Program: "/usr/bin/nvidia-cuda-mps-control"},
		GPUs: []gpu.GPU{{
			ID: id, Model: "NVIDIA L40S", Vendor: "NVIDIA", PCI: gpu.PCIID{Vendor: "10DE", Device: "26B9"},
			VRAM: 48 << 30, Driver: gpu.Driver{Version: "580.95.05"},
			Address: "0000:41:00.0", ComputeMode: gpu.ComputeExclusiveProcess, TimeSlice: gpu.TimeSliceDefault, ComputeCapability: "8.9",
		}},
	}
	with := func(limit gpu.Disruption) *rig {
		config.MaxDisruption = limit
		return newRig(t, claimed(h, config, id))
	}
	daemons := func(r *rig) []gpu.MPSDaemon {
		s, err := r.fleet.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s.Hosts[0].MPS.Daemons
	}
	client := func(r *rig) {
		if _, err := r.fleet.StartClient(t.Context(), "hv01", "inference", gpu.Process{Name: "trainer"}); err != nil {
			t.Fatal(err)
		}
	}
	r := with(gpu.DisruptNone)
	r.run(0, "mps", "restart", "inference", "--yes") // one that does not run is started
	client(r)
	_, said := r.run(1, "mps", "restart", "inference", "--yes")
	wantSaid(t, said, "trainer", "max_disruption")
	if d := daemons(r); len(d) != 1 || len(d[0].Clients) != 1 {
		t.Errorf("daemons are %+v", d)
	}
	r = with(gpu.DisruptProcessRestart)
	r.run(0, "mps", "restart", "inference", "--yes")
	client(r)
	was := daemons(r)
	got, _ := r.run(0, "mps", "restart", "inference")
	wantSaid(t, got, "trainer", "would end", "nothing was changed")
	got, _ = r.run(0, "mps", "restart", "inference", "--yes")
	wantSaid(t, got, "done")
	if d := daemons(r); len(d) != 1 || d[0].PID == was[0].PID || d[0].PID == 0 || len(d[0].Clients) > 0 {
		t.Errorf("daemons are %+v, and were %+v", d, was)
	}
	_, said = r.run(1, "mps", "restart", "other")
	wantSaid(t, said, "no record of such a partition config")
	r.run(64, "mps", "start", "inference")
}
