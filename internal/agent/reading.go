package agent

import (
	"context"
	"slices"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// reading is the host as it was read last under a lease. A run of many changes need not
// read all VMs and GPUs of a host for each of them, nor where it gives the lease back in
// between: as long as its next lease is the next of all, nobody else had one.
type reading struct {
	fence int64
	host  gpu.Host
	whole time.Duration // when all of it was read, by the boot clock
	// of are the VMs and GPUs that were read again, at that time, none after a step that may have
	// changed the host.
	of backend.Objects
	at time.Duration
}

// readingAge is how old what no change of a run is about may be.
const readingAge = time.Hour

// freshFor is how old a reading may be that counts as one of now. Reading takes about as long, and a
// change is applied right after it was prepared.
const freshFor = time.Second

// readHost reads the whole host.
func (s *Server) readHost(ctx context.Context) (gpu.Host, error) {
	at := s.bootClock()
	host, err := s.backend.Inventory(ctx)
	s.retain(reading{host: host, whole: at}, err == nil)
	return host, err
}

// retain keeps a reading that was made under a lease of this process.
func (s *Server) retain(r reading, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = nil
	if fence, leased := s.leased(); ok && leased {
		r.fence, s.last = fence, &r
	}
}

// touched notes that the host may have changed since it was read.
func (s *Server) touched() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil {
		s.last.of = backend.Objects{}
	}
}

// leased is the latest lease that this process has. The caller has the lock.
func (s *Server) leased() (fence int64, ok bool) {
	now := s.bootClock()
	for f, h := range s.holds {
		if h.until() > now && f > fence {
			fence, ok = f, true
		}
	}
	return fence, ok
}

// readAgain reads of the host what a change of some VMs or GPUs is about, as far as the platform
// can and all was read before under the same lease or the one right before. It tells whether that was all of the host.
func (s *Server) readAgain(ctx context.Context, of backend.Objects) (host gpu.Host, whole bool, err error) {
	at := s.bootClock()
	s.mu.Lock()
	last := s.last
	if fence, leased := s.leased(); last != nil && (!leased || fence-last.fence > 1 || at-last.whole > readingAge) {
		last = nil
	}
	fresh := last != nil && !of.Empty() && of.Within(last.of) && at-last.at < freshFor
	s.mu.Unlock()
	h, can := s.backend.(backend.Refresher)
	switch {
	case fresh:
		host, _, err = s.known(ctx, last.host)
		return host, false, err
	case can && last != nil:
		if host, done, err := h.Refresh(ctx, last.host, of); err == nil && done {
			s.retain(reading{host: host, whole: last.whole, of: of, at: at}, true)
			host, _, err = s.known(ctx, host)
			return host, false, err
		}
	}
	host, err = s.inventory(ctx)
	return host, true, err
}

// concerns are the VMs, or the GPUs, that a change is about. A pool and a config of partitions are
// about all VMs, and what daemons and containers share about the whole host.
func concerns(ch *Change) (of backend.Objects, some bool) {
	for _, w := range []gpu.Want{ch.Want, ch.Prior} {
		switch c, a := w.Config, w.Assignment; {
		case w.Pool != nil || w.Share != nil || a != nil && a.VMID == "":
			return of, false
		case a != nil && !slices.Contains(of.VMs, a.VMID):
			of.VMs = append(of.VMs, a.VMID)
		case c == nil:
		case c.Kind != gpu.KindMIG || c.MPS != nil || c.TimeSlicing != nil:
			return of, false
		default:
			of.GPUs = append(of.GPUs, c.GPUs[ch.Host]...)
		}
	}
	return of, ch.Want.Config == nil && ch.Prior.Config == nil || len(of.GPUs) > 0
}

// about are the VMs and GPUs that steps are about, unless these have VMs move to other hosts, or
// may reset a GPU or concern what its users share.
func about(steps []change.Step) (of backend.Objects, some bool) {
	for _, step := range steps {
		switch step.Op.By() {
		case change.ByAgent:
		case change.ByHyperV, change.ByVMs:
			if step.Op == change.OpDrainNode || step.Op == change.OpResumeNode {
				return of, false
			}
			if step.VM != "" && !slices.Contains(of.VMs, step.VM) {
				of.VMs = append(of.VMs, step.VM)
			}
		case change.ByMIG:
			if step.Op != change.OpCreateInstance && step.Op != change.OpDestroyInstance {
				return of, false
			}
			if !slices.Contains(of.GPUs, step.GPU) {
				of.GPUs = append(of.GPUs, step.GPU)
			}
		case change.ByVGPU, change.BySharing:
			return of, false
		}
	}
	return of, true
}
