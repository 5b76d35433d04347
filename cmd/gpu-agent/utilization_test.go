package main_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const (
	uuid1 = "GPU-90000000-0000-4000-8000-000000000001"
	uuid2 = "GPU-90000000-0000-4000-8000-000000000002"
)

// The inventory for people has the driver, the model and the memory of each GPU.
func TestInventoryTellsDriverAndMemory(t *testing.T) {
	t.Parallel()
	out, _ := newRig(t, sharingHost()).run(0, "inventory")
	wantSaid(t, out, "Driver 580.82.07", "NVIDIA H100 80GB HBM3", "80.0 GiB")
}

// sharingHost is a Linux host that serves one GPU by MPS, with a share on it, and has
// another in MIG mode.
func sharingHost() gpu.Host {
	user, instance := 1000, 1
	whole := []gpu.SharedDevice{{GPU: uuid1}}
	card := func(id string) gpu.GPU {
		return gpu.GPU{
			ID: id, Model: "NVIDIA H100 80GB HBM3", Vendor: "NVIDIA", VRAM: 80 << 30, Address: "0000:1a:00.0",
			ComputeMode: gpu.ComputeDefault, ComputeCapability: "9.0", Driver: gpu.Driver{Version: "580.82.07"},
		}
	}
	h := gpu.Host{Name: "hv01", Platform: gpu.Linux, OS: gpu.OS{Name: "Ubuntu 24.04.3 LTS"}, GPUs: []gpu.GPU{card(uuid1), card(uuid2)}}
	h.GPUs[0].ComputeMode, h.GPUs[0].TimeSlice = gpu.ComputeExclusiveProcess, gpu.TimeSliceLong
	h.GPUs[0].Processes = []gpu.Process{{PID: 42, Name: "python3", Holder: "container 3f2a", Memory: 10 << 30, Share: "chat"}}
	h.GPUs[1].MIG = &gpu.MIG{
		Enabled: true, Pending: true,
		Profiles: []gpu.MIGProfile{
			{Name: "3g.40gb", Slices: 3, Memory: 40 << 30, Max: 2, Size: 4, Starts: []int{0, 4}},
			{Name: "7g.80gb", Slices: 7, Memory: 80 << 30, Max: 1, Size: 8, Starts: []int{0}},
		},
		Instances: []gpu.GPUInstance{{
			ID: instance, Profile: "3g.40gb", Start: 4, Size: 4, Memory: 40 << 30, Compute: []gpu.ComputeInstance{{UUID: "MIG-1", Slices: 3}},
		}},
	}
	h.GPUs[1].Processes = []gpu.Process{{PID: 43, Name: "train", GPUInstance: &instance, Memory: 5 << 30}}
	spec := gpu.MPSDaemonSpec{Name: "inference", Devices: whole, User: &user, ActiveThreadPercentage: 50, PinnedMemoryLimit: 20 << 30}
	h.MPS = &gpu.MPSHost{Program: "/usr/bin/nvidia-cuda-mps-control", Daemons: []gpu.MPSDaemon{
		{MPSDaemonSpec: spec, PID: 77, Clients: h.GPUs[0].Processes},
		{Problem: "it does not answer"},
	}}
	h.Shares = []gpu.HandedShare{
		{Name: "chat", CDIDevice: gpu.CDIDevice("chat"), Note: "It comes without the driver's libraries."},
		{Name: "left", CDIDevice: gpu.CDIDevice("left")},
	}
	h.Claims = []gpu.Claim{
		{
			Kind: gpu.ClaimConfig, ID: "inference", Token: "t1", GPUs: []string{uuid1}, Revision: 1,
			Want: gpu.Want{
				Config: &gpu.PartitionConfig{
					ID: "inference", Kind: gpu.KindMPS, MPS: &gpu.MPSLayout{User: &user, ActiveThreadPercentage: 50},
					GPUs: map[string][]string{"hv01": {uuid1}},
				},
			},
		},
		{
			Kind: gpu.ClaimShare, ID: "chat", Token: "t2", Revision: 1,
			Want: gpu.Want{Share: &gpu.Share{Name: "chat", Host: "hv01", Count: 1, MemoryRequest: 20 << 30, MemoryLimit: 20 << 30, Devices: whole}},
		},
	}
	return h
}

func wantNarrow(t *testing.T, out string) {
	t.Helper()
	for line := range strings.Lines(out) {
		if n := len([]rune(strings.TrimRight(line, " \n"))); n > 160 {
			t.Errorf("a line has %d columns: %s", n, line)
		}
	}
}

// TestInventoryShowsVGPUs has MIG-backed ones on one GPU, who holds them, and a GPU whose driver
// forgets its modes.
func TestInventoryShowsVGPUs(t *testing.T) {
	h := sharingHost()
	h.GPUs[0].Persistence, h.GPUs[1].Persistence = new(true), new(false)
	h.GPUs[1].VGPU = &gpu.VGPU{
		Functions: 16, FunctionsOn: true, Types: []gpu.VGPUType{{Name: "H100-3-40C", FrameBuffer: 40 << 30, Max: 2, MIGProfile: "3g.40gb"}},
		Instances: []gpu.VGPUInstance{
			{VGPUPlace: gpu.VGPUPlace{Type: "H100-3-40C"}, GPUInstance: &h.GPUs[1].MIG.Instances[0].ID, Holder: "VM web-01"},
		},
	}
	r := newRig(t, h)
	out, _ := r.run(0, "inventory")
	wantSaid(t, out, "1 x H100-3-40C", "functions on", "VM web-01", "3g.40gb at 4", "43 train")
	wantNarrow(t, out)
	if n := strings.Count(out, "no persistence"); n != 1 {
		t.Errorf("%d GPUs have no persistence, want 1:\n%s", n, out)
	}
}

func TestInventoryShowsSharing(t *testing.T) {
	r := newRig(t, sharingHost())
	out, _ := r.run(0, "inventory")
	wantSaid(t, out,
		"exclusive_process", "slices long", "42 python3 container 3f2a,", "share chat", "3g.40gb",
		"MPS daemons", "inference", "1000", "50 % of threads", "20.0 GiB", "PID 77", "not ours", "it does not answer",
		"Shares", "gpufleet.com/share=chat", "mps", "memory", "per_process", "chat: It comes without the driver's libraries.",
		"left", "no claim")
	wantNarrow(t, out)
	out, _ = newRig(t).run(0, "inventory")
	for _, title := range []string{"MPS daemons", "Shares"} {
		if strings.Contains(out, title) {
			t.Errorf("a host without any shows %s:\n%s", title, out)
		}
	}
}

func TestUtilization(t *testing.T) {
	r := newRig(t, sharingHost())
	place := gpu.MIGPlacement{Profile: "3g.40gb", Start: 4}
	for _, l := range []simulated.Load{{GPU: uuid1, Busy: 90, SMActivity: 60}, {GPU: uuid2, Instance: &place, SMActivity: 80}} {
		if err := r.fleet.SetLoad(t.Context(), "hv01", l); err != nil {
			t.Fatal(err)
		}
	}
	before := r.file()
	out, _ := r.run(0, "utilization", "--window", "100ms")
	wantSaid(t, out, "Host hv01, watched for 1", uuid1, "25 %", "90 %", "60 %", "10.0 GiB of 80.0 GiB", "42 python3 container 3f2a",
		"3g.40gb@4", "80 %", "43 train", "Advice", "- GPU "+uuid2+": its instance 3g.40gb at 4 is not allocated",
		"All of this rests on a short time.")
	wantNarrow(t, out)

	doc, _ := r.run(0, "--role", "reader", "utilization", "--window", "100ms", "--json")
	var m struct {
		Host string
		GPUs []struct {
			ID        string
			Allocated float64  `json:"allocated_fraction"`
			Busy      *float64 `json:"busy_percent"`
			MIG       *struct {
				Instances []struct {
					Profile string
					Start   int
					SMs     *float64 `json:"sm_activity_percent"`
				}
			}
			Advice []struct{ Kind string }
		}
	}
	if err := json.Unmarshal([]byte(doc), &m); err != nil {
		t.Fatal(err)
	}
	if m.Host != "hv01" || len(m.GPUs) != 2 || m.GPUs[0].Allocated != 0.25 || m.GPUs[0].Busy == nil ||
		*m.GPUs[0].Busy != 90 || m.GPUs[0].MIG != nil {
		t.Fatalf("%+v", m)
	}
	mig := m.GPUs[1].MIG
	if m.GPUs[1].Busy != nil || mig == nil || len(mig.Instances) != 1 || mig.Instances[0].Start != 4 ||
		*mig.Instances[0].SMs != 80 || m.GPUs[1].Advice[1].Kind != "unaccounted" {
		t.Errorf("%s", doc)
	}
	if r.file() != before {
		t.Error("measuring the host wrote to it")
	}
}

func TestUtilizationRefuses(t *testing.T) {
	r := newRig(t)
	for window, code := range map[string]int{"99ms": 64, "61s": 64, "soon": 64, "100ms": 1} {
		_, said := r.run(code, "utilization", "--window", window)
		if want := map[int]string{64: "window", 1: "does not run Linux"}[code]; !strings.Contains(said, want) {
			t.Errorf("%s: %s", window, said)
		}
	}
}
