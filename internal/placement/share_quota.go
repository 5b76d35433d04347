package placement

import (
	"fmt"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// Usage is what the shares of a label have of a pool.
type Usage struct {
	GPUs   float64
	Memory gpu.Bytes
	Shares int
	By     []string
}

// Add counts a share with the devices that it is on.
func (u *Usage) Add(s *gpu.Share, devices []*Device) {
	u.Shares++
	u.By = append(u.By, s.Name)
	for _, d := range devices {
		u.GPUs += d.fraction(s)
		u.Memory += d.Request(s)
	}
}

// WantsNoMore tells whether a share takes no more of its label's quota than it did before: one
// that was lowered below that refuses new shares alone.
func WantsNoMore(s *gpu.Share, on []*Device, before *gpu.Share, was []*Device) bool {
	if before.Label != s.Label || !gpu.SameID(before.Pool, s.Pool) {
		return false
	}
	var had, wants Usage
	had.Add(before, was)
	wants.Add(s, on)
	return wants.Memory <= had.Memory && wants.GPUs <= had.GPUs+Tolerance
}

// Exceeds compares with a quota what a label has, the share in question included, and
// tells the first thing of which that is too much.
func (u Usage) Exceeds(q gpu.PoolQuota, before Usage) (what, quota, taken, wants string, yes bool) {
	switch {
	case q.Shares != nil && u.Shares > *q.Shares:
		return "shares", fmt.Sprint(*q.Shares), fmt.Sprint(before.Shares), "one more", true
	case q.Memory != nil && u.Memory > *q.Memory:
		return "memory", q.Memory.String(), before.Memory.String(), (u.Memory - before.Memory).String(), true
	case q.GPUs != nil && u.GPUs > *q.GPUs*(1+Tolerance)+Tolerance:
		return "GPUs", Decimal(*q.GPUs), Decimal(before.GPUs), Decimal(u.GPUs - before.GPUs), true
	}
	return "", "", "", "", false
}

// checkQuota compares what the label of a share has of its pool on this host with the
// label's quota, once the share is on the given devices. What other hosts hold is not
// known here.
func (h *SharedHost) checkQuota(s *gpu.Share, devices ...*Device) error {
	pool := h.Pools[gpu.FoldID(s.Pool)]
	if pool == nil || s.Pool == "" {
		return nil
	}
	quota, has := pool.Quotas[s.Label]
	if !has {
		return nil
	}
	before := h.usage(s)
	after := Usage{GPUs: before.GPUs, Memory: before.Memory, Shares: before.Shares, By: slices.Clone(before.By)}
	after.Add(s, devices)
	if r := QuotaRefusal(s, pool.Name, h.Key, quota, before, after); r != nil {
		return r
	}
	return nil
}

// Usage is what the other shares of a share's label have of its pool on this host.
func (h *SharedHost) usage(s *gpu.Share) Usage {
	var u Usage
	for _, o := range h.placed {
		if gpu.SameID(o.Pool, s.Pool) && o.Label == s.Label {
			u.Add(o, h.devicesOf(o))
		}
	}
	slices.Sort(u.By)
	return u
}

// devicesOf are the devices that a share is on, as far as they are there.
func (h *SharedHost) devicesOf(s *gpu.Share) []*Device {
	var out []*Device
	for _, at := range s.Devices {
		if d := h.Find(at); d != nil {
			out = append(out, d)
		}
	}
	return out
}

// QuotaRefusal refuses a share that a quota has no room for, and is nil when it has. host is "" for
// what is counted over all hosts.
func QuotaRefusal(s *gpu.Share, pool, host string, quota gpu.PoolQuota, before, after Usage) *gpu.Refusal {
	what, most, taken, wants, yes := after.Exceeds(quota, before)
	if !yes {
		return nil
	}
	by, where := "nobody has any", ""
	if n := len(before.By); n > 0 {
		by = words.Verb(n, "share ", "shares ") + words.Join(words.QuoteAll(before.By)) + words.Verb(n, " has ", " have ") + taken
	}
	if host != "" {
		where = fmt.Sprintf(" on host %q", host)
	}
	found, wanted := fmt.Sprintf("its quota of %s is %s%s, and %s", what, most, where, by), "the share wants "+wants
	r := wrongShare(ShareQuota, host, "share %q of label %q would exceed the label's quota of pool %q: %s, of which %s",
		s.Name, s.Label, pool, found, wanted)
	r.Brief, r.Wanted = fmt.Sprintf("in pool %q, label %q: %s", pool, s.Label, found), wanted
	return r
}

// Beyond counts by how much a quota is exceeded, so that more of it counts as worse: in
// shares, in whole GiB, and in hundredths of a GPU.
func (u Usage) Beyond(q gpu.PoolQuota) int {
	n := 1
	if q.Shares != nil {
		n = max(n, u.Shares-*q.Shares)
	}
	if q.Memory != nil && u.Memory > *q.Memory {
		n = max(n, int(min((u.Memory-*q.Memory)/(1024*gpu.MiB), 1000)))
	}
	if q.GPUs != nil {
		n = max(n, int(min((u.GPUs-*q.GPUs)*100, 1000)))
	}
	return n
}
