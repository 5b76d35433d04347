package rules

import (
	"fmt"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// usage is what the shares of a label have of a pool.
type usage struct {
	gpus   float64
	memory gpu.Bytes
	shares int
	by     []string
}

// add counts a share with the devices that it is on.
func (u *usage) add(s *gpu.Share, devices []*shareDevice) {
	u.shares++
	u.by = append(u.by, s.Name)
	for _, d := range devices {
		u.gpus += d.fraction(s)
		u.memory += s.MemoryRequest
	}
}

// wantsNoMore tells whether a share takes no more of a quota than it did before.
func wantsNoMore(s *gpu.Share, on []*shareDevice, before *gpu.Share, was []*shareDevice) bool {
	var had, wants usage
	had.add(before, was)
	wants.add(s, on)
	return wants.memory <= had.memory && wants.gpus <= had.gpus+tolerance
}

// exceeds compares with a quota what a label has, the share in question included, and
// tells the first thing of which that is too much.
func (u usage) exceeds(q gpu.PoolQuota, before usage) (what, quota, taken, wants string, yes bool) {
	switch {
	case q.Shares != nil && u.shares > *q.Shares:
		return "shares", fmt.Sprint(*q.Shares), fmt.Sprint(before.shares), "one more", true
	case q.Memory != nil && u.memory > *q.Memory:
		return "memory", q.Memory.String(), before.memory.String(), (u.memory - before.memory).String(), true
	case q.GPUs != nil && u.gpus > *q.GPUs*(1+tolerance)+tolerance:
		return "GPUs", decimal(*q.GPUs), decimal(before.gpus), decimal(u.gpus - before.gpus), true
	}
	return "", "", "", "", false
}

// checkQuota compares what the label of a share has of its pool on this host with the
// label's quota, once the share is on the given devices. What other hosts hold is not
// known here.
func (h *sharedHost) checkQuota(s *gpu.Share, devices ...*shareDevice) error {
	pool := h.pools[gpu.FoldID(s.Pool)]
	if pool == nil || s.Pool == "" {
		return nil
	}
	quota, has := pool.quotas[s.Label]
	if !has {
		return nil
	}
	before := h.usage(s)
	after := usage{gpus: before.gpus, memory: before.memory, shares: before.shares, by: slices.Clone(before.by)}
	after.add(s, devices)
	return quotaError(s, pool.name, h.key, quota, before, after)
}

// usage is what the other shares of a share's label have of its pool on this host.
func (h *sharedHost) usage(s *gpu.Share) usage {
	var u usage
	for _, o := range h.placed {
		if gpu.SameID(o.Pool, s.Pool) && o.Label == s.Label {
			u.add(o, h.devicesOf(o))
		}
	}
	slices.Sort(u.by)
	return u
}

// devicesOf are the devices that a share is on, as far as they are there.
func (h *sharedHost) devicesOf(s *gpu.Share) []*shareDevice {
	var out []*shareDevice
	for _, at := range s.Devices {
		if d := h.find(at); d != nil {
			out = append(out, d)
		}
	}
	return out
}

func quotaError(s *gpu.Share, pool, host string, quota gpu.PoolQuota, before, after usage) error {
	what, most, taken, wants, yes := after.exceeds(quota, before)
	if !yes {
		return nil
	}
	return &ShareQuotaError{Share: s.Name, Host: host, Pool: pool, Label: s.Label, What: what, Quota: most, Taken: taken, Wants: wants, By: before.by}
}
