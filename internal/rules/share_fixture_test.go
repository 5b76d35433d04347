package rules_test

import (
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const gib = 1024 * gpu.MiB

// freeGPU is an NVIDIA H100 with 80 GiB that is not in MIG mode and that nobody uses.
func freeGPU(id string) gpu.GPU {
	g := migOff(h100(id))
	g.ComputeCapability, g.ComputeMode, g.TimeSlice = "9.0", gpu.ComputeDefault, gpu.TimeSliceDefault
	return g
}

// shareServer is the Linux host gpu01 with MPS, two idle GPUs unless others are given, and
// a driver and toolkit that hold no container to its memory.
func shareServer(gpus ...gpu.GPU) *gpu.Host {
	if len(gpus) == 0 {
		gpus = []gpu.GPU{freeGPU(migGPU0), freeGPU(migGPU1)}
	}
	h := gpuServer("gpu01", gpus...)
	h.MPS = &gpu.MPSHost{Program: "/usr/bin/nvidia-cuda-mps-control"}
	h.ContainerToolkit = "1.17.8"
	return h
}

// partitionable is a host whose MPS has static partitions.
func partitionable() *gpu.Host {
	h := shareServer()
	for i := range h.GPUs {
		h.GPUs[i].Driver.Version, h.GPUs[i].ComputeCapability = "590.44.01", "9.0"
	}
	return h
}

// mps is an MPS layout for several users.
func mps() *gpu.MPSLayout { return &gpu.MPSLayout{MultiUser: true} }

// mpsConfig covers both GPUs of hosts with MPS.
func mpsConfig(id string, hosts ...string) gpu.Want {
	w := migConfig(id, gpu.MIGLayout{}, hosts...)
	w.Config.Kind, w.Config.MIG, w.Config.MPS = gpu.KindMPS, nil, mps()
	return w
}

// slicesConfig covers both GPUs of hosts with time-slicing.
func slicesConfig(id string, replicas int, hosts ...string) gpu.Want {
	w := mpsConfig(id, hosts...)
	w.Config.Kind, w.Config.MPS, w.Config.TimeSlicing = gpu.KindTimeSlicing, nil, &gpu.TimeSlicing{Replicas: replicas}
	return w
}

// laidOut claims a config on a host, as one of this state.
func laidOut(h *gpu.Host, w gpu.Want) *gpu.Host {
	h.Claims = append(h.Claims, gpu.Claim{
		Kind: gpu.ClaimConfig, ID: w.Config.ID, Token: "claim-" + w.Config.ID, Owner: "vdi", GPUs: w.Config.GPUs[h.Name], Want: w,
	})
	return h
}

// pooled claims a pool on a host, as one of this state.
func pooled(h *gpu.Host, w gpu.Want) *gpu.Host {
	h.Claims = append(h.Claims, gpu.Claim{
		Kind: gpu.ClaimPool, ID: w.Pool.Name, Token: "claim-" + w.Pool.Name, Owner: "vdi", GPUs: w.Pool.Members[h.Name], Want: w,
	})
	return h
}

// has claims shares of an owner on a host; each is on GPUs, or on an instance.
func has(h *gpu.Host, owner string, shares ...gpu.Share) *gpu.Host {
	for _, s := range shares {
		s.Host = h.Name
		h.Claims = append(h.Claims, gpu.Claim{
			Kind: gpu.ClaimShare, ID: s.Name, Token: "claim-" + s.Name, Owner: owner, Want: gpu.Want{Share: &s},
		})
	}
	return h
}

// share wants memory, as request and limit, of one device of gpu01.
func share(name string, memory gpu.Bytes) gpu.Share {
	return gpu.Share{Name: name, Host: "gpu01", Count: 1, MemoryRequest: memory, MemoryLimit: memory}
}

// part wants a percentage of the threads of one device of gpu01.
func part(name string, percentage float64) gpu.Share {
	s := share(name, 0)
	s.ActiveThreadPercentage = percentage
	return s
}

// onto places a share on GPUs.
func onto(s gpu.Share, ids ...string) gpu.Share {
	for _, id := range ids {
		s.Devices = append(s.Devices, gpu.SharedDevice{GPU: id})
	}
	return s
}

// into places a share in an instance of the first GPU.
func into(s gpu.Share, at gpu.MIGPlacement) gpu.Share {
	s.Devices = []gpu.SharedDevice{{GPU: migGPU0, Instance: &at}}
	return s
}

// fromShares draws a share from a pool instead of from a host.
func fromShares(s gpu.Share, pool string) gpu.Share {
	s.Host, s.Pool = "", pool
	return s
}

func wantShare(s gpu.Share) gpu.Want { return gpu.Want{Share: &s} }

// shareP is the plan of a new share.
func shareP(s gpu.Share) change.Change { return create("t", wantShare(s)) }

// sharePool is a Linux pool of both GPUs of hosts.
func sharePool(name string, hosts ...string) gpu.Want {
	w := pool(name, hosts...)
	for _, h := range hosts {
		w.Pool.Members[h] = []string{migGPU0, migGPU1}
	}
	return w
}
