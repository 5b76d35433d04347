package runs_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/core"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider"
)

// slowly is how long a Hyper-V host takes, in milliseconds.
var slowly = map[simulated.Op]int{
	simulated.OpInventory: 500, simulated.OpShutDownVM: 4000, simulated.OpStartVM: 6000, simulated.OpAny: 50,
	simulated.OpUpdateState: 10, simulated.OpLoadState: 1,
}

// figures are what one run of slow hosts took, by a clock that stands still while anybody computes.
type figures struct {
	took         time.Duration
	off, longest time.Duration // how long VMs were off that were so for a while: the mean and the most
}

func (f figures) String() string {
	if f.longest == 0 {
		return fmt.Sprintf("%.1f s", f.took.Seconds())
	}
	return fmt.Sprintf("%.1f s, a VM off for %.1f s, at most %.1f s", f.took.Seconds(), f.off.Seconds(), f.longest.Seconds())
}

// took are figures in seconds.
func took(of ...float64) (f figures) {
	for i, to := range []*time.Duration{&f.took, &f.off, &f.longest}[:len(of)] {
		*to = time.Duration(of[i] * float64(time.Second))
	}
	return f
}

// slow is a fleet of slow hosts, and a terminal on it.
type slow struct {
	*rig.Rig
	*rig.CLI
}

func newSlow(t *testing.T, hosts []gpu.Host, latency map[simulated.Op]int) *slow {
	t.Helper()
	r := rig.New(t, rig.Standalone(hosts...))
	terminal, err := core.NewTerminal(t.Context(), map[string]core.Factory{"gpu": func() (tfprotov6.ProviderServer, error) {
		server, err := provider.Server("test", r.Calls.Hear, provider.WithPatience(fleet.DefaultPatience))
		if err != nil {
			return nil, err
		}
		return server(), nil
	}})
	r.Must(err)
	for _, h := range hosts {
		r.Must(r.Fleet.EditSimulation(t.Context(), h.Name, func(s *simulated.Simulation) { s.Latency = latency }))
	}
	return &slow{r, &rig.CLI{T: t, Terminal: terminal}}
}

// measure runs a command and looks every tenth of a second which VMs are off.
func (s *slow) measure(args ...string) figures {
	t := s.Rig.T
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	off := map[string]time.Duration{}
	was := map[string]bool{}
	for _, h := range s.Snapshot().Hosts {
		for _, vm := range h.VMs {
			was[vm.ID] = vm.State == gpu.VMRunning
		}
	}
	var wait sync.WaitGroup
	const every = 100 * time.Millisecond
	wait.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			for _, h := range s.Snapshot().Hosts {
				for _, vm := range h.VMs {
					if was[vm.ID] && vm.State == gpu.VMOff {
						off[vm.ID] += every
					}
				}
			}
		}
	})
	began := time.Now()
	s.Ok(append(args, "-auto-approve")...)
	f := figures{took: time.Since(began)}
	cancel()
	wait.Wait()
	for _, d := range off {
		f.off += d / time.Duration(len(off))
		f.longest = max(f.longest, d)
	}
	return f
}

// desktops are hosts with so many VMs between them, one after the other.
func desktops(hosts, vms int, as func(gpu.VM) gpu.VM) (all []gpu.Host, names []string) {
	for n := range hosts {
		all = append(all, rig.Node(fmt.Sprintf("hv%02d", n+1)))
	}
	for n := range vms {
		names = append(names, fmt.Sprintf("avd-%02d", n+1))
		h := &all[n%hosts]
		h.VMs = append(h.VMs, as(rig.Desktop(names[n], n+1)))
	}
	return all, names
}

func runs(vm gpu.VM) gpu.VM { return vm }

func hostNames(hosts []gpu.Host) (names []string) {
	for _, h := range hosts {
		names = append(names, h.Name)
	}
	return names
}

// TestHosts measures what people wait for, which are hosts, and how long a VM is off for its users, beside what it was at
// first and may be at most; `make bench-hosts` prints it.
func TestHosts(t *testing.T) {
	const after = "  depends_on = [gpu_partition_config.vdi]\n"
	off := func(args ...string) func(*testing.T) figures {
		return func(t *testing.T) figures {
			hosts, names := desktops(2, 24, rig.Off)
			s := newSlow(t, hosts, slowly)
			s.Write(s.Block() + rig.ConfigOf(16, hostNames(hosts)) + rig.AssignAll(names, after))
			return s.measure(append([]string{"apply"}, args...)...)
		}
	}
	for name, test := range map[string]struct {
		first, most figures
		run         func(t *testing.T) figures
	}{
		"24 assignments of VMs that run, four stops": {took(143.4, 6.1, 6.1), took(135, 6.2, 6.2), func(t *testing.T) figures {
			hosts, names := desktops(2, 24, runs)
			s := newSlow(t, hosts, slowly)
			s.Write(s.Block("max_concurrent_vm_stops = 4") + rig.ConfigOf(16, hostNames(hosts)) + rig.AssignAll(names, after))
			return s.measure("apply")
		}},
		"24 assignments of VMs that are off":                {took(23.2), took(11), off()},
		"24 assignments of VMs that are off, one at a time": {took(42.5), took(19), off("-parallelism=1")},
		"another count under 12 VMs that run, four stops": {took(130.4, 65.7, 123.8), took(130.5, 66, 124), func(t *testing.T) figures {
			hosts, names := desktops(1, 12, runs)
			s := newSlow(t, hosts, nil)
			config := func(count int) string {
				return s.Block("max_concurrent_vm_stops = 4") + rig.ConfigOf(count, hostNames(hosts), `max_disruption = "vm_restart"`) +
					rig.AssignAll(names, after)
			}
			s.Write(config(8))
			s.Apply()
			s.Write(config(16))
			s.Rig.Must(s.Fleet.EditSimulation(t.Context(), "hv01", func(x *simulated.Simulation) { x.Latency = slowly }))
			return s.measure("apply")
		}},
		"a config on 8 hosts": {took(14.3), took(5.4), func(t *testing.T) figures {
			hosts, _ := desktops(8, 0, runs)
			s := newSlow(t, hosts, slowly)
			s.Write(s.Block() + rig.ConfigOf(4, hostNames(hosts)))
			return s.measure("apply")
		}},
		"destroy of 2 assignments and a config, what it waits":  {took(3.9), took(1.5), destroyWaits(2)},
		"destroy of 9 assignments and a config, what it waits":  {took(6), took(3), destroyWaits(9)},
		"destroy of 24 assignments and a config, what it waits": {took(6), took(3), destroyWaits(24)},
		"nothing to do, one at a time, what it waits": {took(0), took(0), func(t *testing.T) figures {
			hosts, names := desktops(2, 24, rig.Off)
			s := newSlow(t, hosts, nil)
			s.Write(s.Block() + rig.ConfigOf(16, hostNames(hosts)) + rig.AssignAll(names, after))
			s.Apply()
			return s.measure("apply", "-parallelism=1")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				is := test.run(t)
				t.Logf("%s: %s; it was %s", name, is, test.first)
				if is.took > test.most.took || is.off > test.most.off || is.longest > test.most.longest {
					t.Errorf("it takes %s, and may take %s at most", is, test.most)
				}
			})
		})
	}
}

// destroyWaits is a destroy of so many assignments and a config on hosts that take no time.
func destroyWaits(vms int) func(*testing.T) figures {
	return func(t *testing.T) figures {
		hosts, names := desktops(1, vms, rig.Off)
		s := newSlow(t, hosts, nil)
		s.Write(s.Block() + rig.ConfigOf(16, hostNames(hosts)) +
			strings.ReplaceAll(rig.AssignAll(names, ""), "{}", "{ config = gpu_partition_config.vdi.id }"))
		s.Apply()
		return s.measure("destroy")
	}
}
