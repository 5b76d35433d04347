package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

// at calls a function before one write of the agent, counted from now.
func (b *breaker) atWrite(at int, do func()) {
	b.arm(0, failBefore)
	b.everyWrite = func(n int) {
		if n == at {
			do()
		}
	}
}

// failLast lets the last write of a change fail, so that everything is put back.
func (b *breaker) failLast(writes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at, b.mode = writes, failBefore
}

// TestAProcessThatStandsStill stops the agent before each write of each change, those of
// putting it back included, for longer than its lease lives. Another run takes the lease
// and puts the change back; then the agent goes on. Nothing may stay off, whether the
// other run is at work still or has gone, and whether or not anybody comes after it.
func TestAProcessThatStandsStill(t *testing.T) {
	everyScenario(t, func(t *testing.T, p prepared) {
		for _, undone := range []bool{false, true} {
			for _, stays := range []bool{false, true} {
				t.Run(fmt.Sprintf("undone %t, the other run stays %t", undone, stays), func(t *testing.T) {
					p.moments(t, func(t *testing.T, at int) (more bool) { return p.standsStill(t, at, undone, stays) })
				})
			}
		}
	})
}

// standsStill stops the agent at one write, and tells whether there was one.
func (p prepared) standsStill(t *testing.T, at int, undone, stays bool) bool {
	t.Helper()
	r := p.rig(t)
	var boot time.Duration
	r.boot = func() time.Duration { return boot }
	r.restart("run-1")
	var fence int64
	var other *agent.Client
	stopped := false
	r.breaker.atWrite(at, func() {
		stopped = true
		other = newClientOn(t, r)
		for held := true; held; { // a busy machine may renew the lease at this very moment
			boot += 2 * time.Minute
			r.clock.advance(2 * time.Minute)
			var err error
			fence, err = other.AcquireLease(context.Background(), lease("run-2"))
			var ae *agent.Error
			if held = errors.As(err, &ae) && ae.Code == agent.LeaseHeld; !held && err != nil {
				t.Errorf("the other run: %v", err)
			}
		}
		if !stays {
			check(t, other.ReleaseLease(context.Background(), fence))
		}
	})
	if undone {
		r.breaker.failLast(p.writes)
	}
	err := p.run(t, r)
	if !stopped {
		return false
	}
	if err != nil {
		wantCode(t, err, agent.StaleFence)
	}
	if stays {
		check(t, other.ReleaseLease(context.Background(), fence))
	}
	r.ending.server.AwaitRecovery(t.Context())
	r.wantPower(p.keepsOn())
	r.wantOwed()
	r.wantJournal(0)
	return true
}

// TestNothingPassesWithoutTheLease takes the lease away after each write of each change,
// also while it is put back: nothing more comes to the host.
func TestNothingPassesWithoutTheLease(t *testing.T) {
	everyScenario(t, func(t *testing.T, p prepared) {
		for _, undone := range []bool{false, true} {
			t.Run(fmt.Sprintf("undone %t", undone), func(t *testing.T) {
				p.moments(t, func(t *testing.T, at int) (more bool) { return p.stolen(t, at, undone) })
			})
		}
	})
}

// stolen takes the lease away after one write, and tells whether there was one.
func (p prepared) stolen(t *testing.T, at int, undone bool) (stolen bool) {
	t.Helper()
	r := p.rig(t)
	r.breaker.arm(0, failBefore)
	r.breaker.everyWrite = func(n int) {
		if n != at {
			return
		}
		r.breaker.mu.Lock()
		defer r.breaker.mu.Unlock()
		r.breaker.afterWrite = func() {
			stolen = true
			check(t, r.sim.Update(context.Background(), func(st *backend.State) error {
				st.Fence++
				st.Lease = &backend.Lease{Run: "thief", Fence: st.Fence, Since: r.clock.Now(), Expires: r.clock.Now().Add(time.Hour), TTL: time.Hour}
				return nil
			}))
		}
	}
	r.breaker.hook = func(write string) {
		if stolen && write != "update" && write != "update cluster" {
			t.Errorf("the lease was taken after write %d of %d, and then came: %s", at, p.writes, write)
		}
	}
	if undone {
		r.breaker.failLast(p.writes)
	}
	_ = p.run(t, r)
	r.breaker.mu.Lock()
	r.breaker.hook = nil
	r.breaker.mu.Unlock()
	check(t, r.sim.Update(context.Background(), func(st *backend.State) error { st.Lease = nil; return nil }))
	r.ending.server.AwaitRecovery(t.Context())
	return stolen
}

// TestRecordsLost lets something happen to the agent's records before each write of each
// change. The change is made or put back all the same, nothing stays off, and the records
// know what they knew.
func TestRecordsLost(t *testing.T) {
	disasters := map[string]func(*rig, backend.State){
		"deleted": func(r *rig, _ backend.State) {
			check(r.t, r.sim.Update(context.Background(), func(st *backend.State) error { *st = backend.State{}; return nil }))
		},
		"replaced by those before the change": func(r *rig, old backend.State) {
			check(r.t, r.sim.Update(context.Background(), func(st *backend.State) error { *st = old; return nil }))
		},
		"not writable": func(r *rig, _ backend.State) { r.breaker.breakStore(true, false) },
		"not readable": func(r *rig, _ backend.State) { r.breaker.breakStore(true, true) },
		"given to other runs, after they were replaced by those before the change": func(r *rig, old backend.State) {
			check(r.t, r.sim.Update(context.Background(), func(st *backend.State) error {
				*st = old
				st.Fence += 3 // their leases
				return nil
			}))
		},
		"given to another run, after they were deleted": func(r *rig, _ backend.State) {
			check(r.t, r.sim.Update(context.Background(), func(st *backend.State) error {
				lease := *st.Lease // as this machine writes them
				lease.Run, lease.Fence, lease.Worker = "run-2", 1, "other"
				*st = backend.State{Fence: 1, Lease: &lease}
				return nil
			}))
		},
	}
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			p := s.prepare(t)
			for name, strike := range disasters {
				broken, given := strings.HasPrefix(name, "not "), strings.HasPrefix(name, "given")
				for _, undone := range []bool{false, true} {
					if undone && (broken || given) {
						continue // it is put back anyway
					}
					t.Run(fmt.Sprintf("%s, undone %t", name, undone), func(t *testing.T) {
						p.moments(t, func(t *testing.T, at int) (struck bool) {
							r := p.rig(t)
							old, err := r.sim.Load(t.Context())
							check(t, err)
							old.Lease = nil
							r.breaker.atWrite(at+2, func() { struck = true; strike(r, old) }) // the first two make the change known
							if undone {
								r.breaker.failLast(p.writes)
							}
							_ = p.run(t, r)
							if !struck {
								return false
							}
							r.breaker.breakStore(false, false)
							if broken {
								r.wantPower(p.keepsOn()) // by itself
							}
							r.clock.advance(2 * time.Minute)
							r.ending.server.AwaitRecovery(t.Context())
							r.start()
							if _, err := r.AcquireLease(t.Context(), lease("run-3")); err != nil {
								t.Errorf("the next run: %v", err)
							}
							r.wantPower(p.keepsOn())
							r.wantJournal(0)
							r.wantOwed()
							before, after, now := p.before, p.after, r.look()
							if given { // without the claims, which are lost
								before.Claims, after.Claims, now.Claims = nil, nil, nil
							}
							// Those who got later leases may have changed what this change knows nothing of.
							if !strings.HasPrefix(name, "given to other runs") && !cmp.Equal(after, now) {
								wantSame(t, before, now)
							}
							return true
						})
					})
				}
			}
		})
	}
}
