package share_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// mixed are hosts with one GPU each, of three models.
func mixed() gpu.Snapshot {
	models := []struct {
		name, device string
		memory       gpu.Bytes
	}{
		{"NVIDIA A100-SXM4-40GB", "20B0", 40960}, {"NVIDIA A100-SXM4-80GB", "20B2", 81920}, {"NVIDIA H100 80GB HBM3", "2330", 81559},
	}
	fleet := rig.Inference(len(models))
	for i, m := range models {
		h := &fleet.Hosts[i]
		h.GPUs = h.GPUs[:1]
		h.GPUs[0].Model, h.GPUs[0].PCI.Device, h.GPUs[0].VRAM, h.GPUs[0].ComputeCapability = m.name, m.device, m.memory*gpu.MiB, "8.0"
	}
	return fleet
}

const halves = `memory = { fraction = 0.5 }`

// Half a GPU is half of whatever model it is placed on, and two of them fill it.
func TestAccShare_HalfOfAnyGPU(t *testing.T) {
	t.Parallel()
	r := rig.New(t, mixed())
	hosts := []string{"gpu01", "gpu02", "gpu03"}
	text := r.Block() + rig.SharedConfig("mps", rig.ByMPS, hosts...) + rig.MLPool(hosts, "quotas = { \"team-a\" = { gpus = 1.5 } }")
	for i := range hosts {
		for _, half := range []string{"a", "b"} {
			text += rig.ShareOf(fmt.Sprintf("%s%d", half, i), rig.FromPool, halves, rig.TeamA)
		}
	}
	c := rig.NewCLI(t, strings.Replace(text, "gpus = 1.5", "gpus = 3", 1))
	c.Apply()
	want := map[string]string{"gpu01": "0=20480M", "gpu02": "0=40960M", "gpu03": "0=40779M"}
	for host, limit := range want {
		shares := r.Host(host).Shares
		if len(shares) != 2 {
			t.Errorf("%s has %d shares, want 2", host, len(shares))
		}
		for _, s := range shares {
			if got := s.Environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"]; got != limit {
				t.Errorf("share %s on %s is limited to %q, want %q", s.Name, host, got, limit)
			}
		}
	}
	c.WantNoChanges()
	c.Write(strings.Replace(text, "gpus = 1.5", "gpus = 4", 1) + rig.ShareOf("c", rig.FromPool, `memory = { fraction = 0.25 }`, rig.TeamA))
	rig.WantSaid(t, c.Fails("plan"), "does not fit")
	c.Write(text)
	rig.WantSaid(t, c.Ok("plan"), "1.5")
}

// A limit above what is requested is oversubscription, in parts as in MiB.
func TestAccShare_FractionWithALimit(t *testing.T) {
	t.Parallel()
	r := rig.New(t, mixed())
	config := func(more string) string {
		return r.Block() + rig.SharedConfig("mps", "mps = { uid = 1000, oversubscription = 1.6 }", "gpu01") +
			rig.ShareOf("a", rig.OnGPU01, rig.OfMPS, more) + rig.ShareOf("b", rig.OnGPU01, rig.OfMPS, more)
	}
	c := rig.NewCLI(t, config(`memory = { fraction = 0.5, limit_fraction = 0.8 }`))
	rig.WantSaid(t, c.Apply(), "memory limits add up to 64.0 GiB of 40.0 GiB")
	if s, _ := r.Host("gpu01").HandedShare("a"); s.Environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] != "0=32768M" {
		t.Errorf("the share has %v", s.Environment)
	}
	c.WantNoChanges()
	before := r.PlacedOn("gpu01", "a")
	c.Write(config(`memory = { request_mib = 20480, limit_mib = 32768 }`)) // the same in MiB
	c.Apply()
	if now := r.PlacedOn("gpu01", "a"); now[0] != before[0] {
		t.Errorf("the share was moved from %v to %v", before, now)
	}
	c.WantNoChanges()
	for attributes, says := range map[string]string{
		"fraction = 0.5, limit_mib = 100":      "limit_mib",
		"fraction = 0.5, limit_fraction = 0.4": "a request within the limit",
		"fraction = 0":                         "0.001",
		"limit_fraction = 1.5":                 "between",
	} {
		c.Write(config("memory = { " + attributes + " }"))
		rig.WantSaid(t, c.Fails("plan"), says)
	}
}
