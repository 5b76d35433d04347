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
// read all VMs of a host for each of them.
type reading struct {
	fence int64
	host  gpu.Host
	whole time.Duration // when all of it was read, by the boot clock
	// of are the VMs that were read again, at that time, nobody's after a step that may have
	// changed the host.
	of []string
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
		s.last.of = nil
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

// readAgain reads of the host what a change of some VMs is about, as far as the platform can
// and all was read before under the same lease. It tells whether that was all of the host.
func (s *Server) readAgain(ctx context.Context, vms []string) (host gpu.Host, whole bool, err error) {
	at := s.bootClock()
	s.mu.Lock()
	last := s.last
	if fence, leased := s.leased(); last != nil && (!leased || last.fence != fence || at-last.whole > readingAge) {
		last = nil
	}
	fresh := last != nil && len(vms) > 0 && within(vms, last.of) && at-last.at < freshFor
	s.mu.Unlock()
	h, can := s.backend.(backend.Refresher)
	switch {
	case fresh:
		host, _, err = s.known(ctx, last.host)
		return host, false, err
	case can && last != nil:
		if host, done, err := h.Refresh(ctx, last.host, vms); err == nil && done {
			s.retain(reading{host: host, whole: last.whole, of: vms, at: at}, true)
			host, _, err = s.known(ctx, host)
			return host, false, err
		}
	}
	host, err = s.inventory(ctx)
	return host, true, err
}

// concerns are the VMs that a change is about. A config and a pool are about all VMs.
func concerns(ch *Change) (vms []string, some bool) {
	for _, w := range []gpu.Want{ch.Want, ch.Prior} {
		if w.Config != nil || w.Pool != nil || w.Share != nil || w.Assignment != nil && w.Assignment.VMID == "" {
			return nil, false
		}
		if a := w.Assignment; a != nil && !slices.Contains(vms, a.VMID) {
			vms = append(vms, a.VMID)
		}
	}
	return vms, true
}

// about are the VMs that steps are about, unless these have VMs move to other hosts.
func about(steps []change.Step) (vms []string, some bool) {
	for _, step := range steps {
		if step.Op == change.OpDrainNode || step.Op == change.OpResumeNode {
			return nil, false
		}
		if step.VM != "" && !slices.Contains(vms, step.VM) {
			vms = append(vms, step.VM)
		}
	}
	return vms, true
}
