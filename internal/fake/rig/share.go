package rig

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// ShareCard is the id of a GPU of gpu01, gpu02 and so on.
func ShareCard(host, n int) string { return fmt.Sprintf("GPU-%d0000000-0000-4000-8000-%012d", host, n) }

// Inference are the Linux hosts gpu01, gpu02 and so on, with two L40S of 46068 MiB each.
func Inference(hosts int) gpu.Snapshot {
	var out []gpu.Host
	for i := 1; i <= hosts; i++ {
		h := gpu.Host{
			Name: fmt.Sprintf("gpu%02d", i), Platform: gpu.Linux, OS: gpu.OS{Name: "Ubuntu 24.04.3 LTS"}, VMs: []gpu.VM{}, Pools: []gpu.Pool{},
			MPS: &gpu.MPSHost{Program: "/usr/bin/nvidia-cuda-mps-control"}, ContainerToolkit: "1.18.0",
		}
		for n := range 2 {
			h.GPUs = append(h.GPUs, gpu.GPU{
				ID: ShareCard(i, n), Model: "NVIDIA L40S", Vendor: "NVIDIA", PCI: gpu.PCIID{Vendor: "10DE", Device: "26B9"}, VRAM: 46068 * gpu.MiB,
				Driver: gpu.Driver{Version: "580.95.05"}, Address: fmt.Sprintf("0000:%02x:00.0", 0x41+n), ComputeMode: gpu.ComputeDefault,
				TimeSlice: gpu.TimeSliceDefault, ComputeCapability: "8.9",
			})
		}
		out = append(out, h)
	}
	return Standalone(out...)
}

// SharedConfig is a config of a name that is its label too, of a kind on hosts.
func SharedConfig(name, kind string, hosts ...string) string {
	return fmt.Sprintf("resource \"gpu_partition_config\" %q {\n  name  = %q\n  hosts = [\"%s\"]\n  %s\n}\n",
		name, name, strings.Join(hosts, `", "`), kind)
}

// Kinds of sharedConfig.
const (
	ByMPS   = `mps = { uid = 1000 }`
	ByTurns = `time_slicing = { replicas = 4 }`
)

// ShareOf is a share of a name that is its label too, with more arguments.
func ShareOf(name string, more ...string) string {
	return fmt.Sprintf("resource \"gpu_share\" %q {\n  name = %q\n  %s\n}\n", name, name, strings.Join(more, "\n  "))
}

// Arguments of shareOf.
const (
	OnGPU01  = `host = "gpu01"`
	OfMPS    = `config = gpu_partition_config.mps.id`
	Half     = `memory = { limit_mib = 23034 }`
	Quarter  = `memory = { limit_mib = 11517 }`
	FromPool = `pool = gpu_pool.ml.id` + "\n  " + OfMPS
	TeamA    = `owner_label = "team-a"`
)

// MPSOn01 is MPS on both GPUs of gpu01.
var MPSOn01 = SharedConfig("mps", ByMPS, "gpu01")

// MLPool is the pool "ml" of all GPUs of hosts, with more arguments.
func MLPool(hosts []string, more ...string) string {
	return fmt.Sprintf("resource \"gpu_pool\" \"ml\" {\n  name  = \"ml\"\n  hosts = [\"%s\"]\n  %s\n}\n",
		strings.Join(hosts, `", "`), strings.Join(more, "\n  "))
}

// Share is a share's claim on a host.
func (r *Rig) Share(host, name string) gpu.Claim {
	r.T.Helper()
	for _, c := range r.Host(host).Claims {
		if c.Is(gpu.ClaimShare, name) {
			return c
		}
	}
	r.T.Errorf("%s has no claim for share %s", host, name)
	return gpu.Claim{Want: gpu.Want{Share: &gpu.Share{}}}
}

// WantShares asserts which shares hosts hand to containers, and that each has its claim.
func (r *Rig) WantShares(host string, names ...string) {
	r.T.Helper()
	handed, claimed := []string{}, []string{}
	h := r.Host(host)
	for _, s := range h.Shares {
		handed = append(handed, s.Name)
	}
	for _, c := range h.Claims {
		if c.Kind == gpu.ClaimShare {
			claimed = append(claimed, c.ID)
		}
	}
	for what, got := range map[string][]string{"hands over": handed, "has claims for": claimed} {
		if got = slices.Sorted(slices.Values(got)); !slices.Equal(got, slices.Sorted(slices.Values(names))) {
			r.T.Errorf("%s %s the shares %q, want %q", host, what, got, names)
		}
	}
}

// PlacedOn are the GPUs of a share on a host.
func (r *Rig) PlacedOn(host, name string) []string {
	r.T.Helper()
	out := []string{}
	for _, d := range r.Share(host, name).Want.Share.Devices {
		out = append(out, d.GPU)
	}
	return out
}

// Computes starts a process in a share.
func (r *Rig) Computes(host, gpuID string, at *gpu.MIGPlacement, share, name string) (pid int) {
	r.T.Helper()
	pid, err := r.Fleet.StartProcess(r.T.Context(), host, gpuID, at, gpu.Process{Name: name, Holder: "container 3f2a", Share: share})
	r.Must(err)
	return pid
}
