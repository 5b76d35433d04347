//go:build linux || darwin

package crash_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/agent/statedir"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// place is a directory with a fleet and the records of its host's agent.
type place string

func (p place) fleet() (*others.Fleet, error) {
	return others.Open(filepath.Join(string(p), fleetName))
}

func (p place) records(ctx context.Context) (backend.State, error) {
	store, err := statedir.Open(filepath.Join(string(p), stateName))
	if err != nil {
		return backend.State{}, err
	}
	return store.Load(ctx)
}

// newPlace makes an empty place below a directory.
func newPlace(root string) (place, error) {
	dir, err := os.MkdirTemp(root, "")
	return place(dir), err
}

// copy makes another place like this one, beside it.
func (p place) copy() (place, error) {
	dir, err := newPlace(filepath.Dir(string(p)))
	if err != nil {
		return "", err
	}
	for _, name := range []string{fleetName, filepath.Join(stateName, "state.json")} {
		data, err := os.ReadFile(filepath.Join(string(p), name))
		if errors.Is(err, os.ErrNotExist) {
			continue // nothing is recorded yet
		}
		if err != nil {
			return "", err
		}
		if err := os.MkdirAll(filepath.Join(string(dir), filepath.Dir(name)), 0o700); err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(string(dir), name), data, 0o600); err != nil {
			return "", err
		}
	}
	return dir, nil
}

func (p place) remove() { _ = os.RemoveAll(string(p)) }

// reboot reboots the host. When bare, no VM starts by itself afterwards.
func (p place) reboot(ctx context.Context, bare bool) error {
	fleet, err := p.fleet()
	if err != nil {
		return err
	}
	if err := fleet.Reboot(ctx, host); err != nil || !bare {
		return err
	}
	snapshot, err := fleet.Snapshot(ctx)
	if err != nil {
		return err
	}
	for _, vm := range snapshot.Hosts[0].VMs {
		if err := fleet.SetVMState(ctx, vm.ID, gpu.VMOff); err != nil {
			return err
		}
	}
	return nil
}

// world is all that a change could touch.
type world struct {
	hosts []gpu.Host
	doc   []byte // the same as JSON, which is compared faster
}

func (w world) same(as world) bool { return bytes.Equal(w.doc, as.doc) || w.diff(as) == "" }

func (w world) diff(to world) string { return cmp.Diff(w.hosts, to.hosts, cmpopts.EquateEmpty()) }

// look reads a place. What differs from one start of a VM to the next is left out for
// the VMs that a change may start, and for all when loose.
func (p place) look(ctx context.Context, concerned []string, loose bool) (world, error) {
	fleet, err := p.fleet()
	if err != nil {
		return world{}, err
	}
	s, err := fleet.Snapshot(ctx)
	if err != nil {
		return world{}, err
	}
	records, err := p.records(ctx)
	if err != nil {
		return world{}, err
	}
	h := &s.Hosts[0]
	h.Claims = records.Claims
	for i := range h.Claims {
		h.Claims[i].Boot = ""
	}
	slices.SortFunc(h.Claims, func(a, b gpu.Claim) int { return strings.Compare(string(a.Kind)+a.ID, string(b.Kind)+b.ID) })
	mayStart := func(vm string) bool { return loose || slices.Contains(concerned, vm) }
	for i := range s.Hosts { // of which the second one has them in a cluster
		forget(&s.Hosts[i], mayStart)
	}
	doc, err := json.Marshal(s.Hosts)
	return world{hosts: s.Hosts, doc: doc}, err
}

// forget leaves out of a host what differs from one start to the next for those that may start,
// and in which order it lists them.
func forget(h *gpu.Host, mayStart func(string) bool) {
	h.Boot = nil // a point may be a reboot
	for i := range h.GPUs {
		part := h.GPUs[i].Partitionable
		if part == nil {
			continue
		}
		for j := range part.Partitions {
			if mayStart(part.Partitions[j].VMID) {
				part.Partitions[j].ID, part.Partitions[j].VFLUID = 0, ""
			}
		}
		slices.SortFunc(part.Partitions, func(a, b gpu.Partition) int { return strings.Compare(a.VMID, b.VMID) })
	}
	forgetLinux(h, mayStart)
	for i := range h.VMs {
		vm := &h.VMs[i]
		if !mayStart(vm.ID) {
			continue
		}
		for j := range vm.PartitionAdapters {
			vm.PartitionAdapters[j].ID = ""
		}
		for j := range vm.Devices {
			vm.Devices[j].ID = ""
		}
	}
	slices.SortFunc(h.VMs, func(a, b gpu.VM) int { return strings.Compare(a.ID, b.ID) })
}

// startedAs looks at this place with those VMs running that run in another. After a
// reboot that starts no VM, putting a change back may start the VMs that the change
// had stopped, and need not.
func (p place) startedAs(ctx context.Context, other world, concerned []string) (world, error) {
	twin, err := p.copy()
	if err != nil {
		return world{}, err
	}
	defer twin.remove()
	fleet, err := twin.fleet()
	if err != nil {
		return world{}, err
	}
	for _, vm := range other.hosts[0].VMs {
		if vm.Runs() && slices.Contains(concerned, vm.ID) {
			if err := fleet.SetVMState(ctx, vm.ID, gpu.VMRunning); err != nil {
				return world{}, err
			}
		}
	}
	return twin.look(ctx, concerned, true)
}

// wantSettled says what an agent left that should be gone.
func (p place) wantSettled(ctx context.Context) error {
	records, err := p.records(ctx)
	switch {
	case err != nil:
		return err
	case len(records.Journal) > 0:
		return fmt.Errorf("the journal holds %d changes: %s", len(records.Journal), records.Journal[0])
	case len(records.PendingStarts) > 0:
		return fmt.Errorf("starts are owed: %v", records.PendingStarts)
	case records.Lease != nil:
		return fmt.Errorf("the lease of run %s is left over", records.Lease.Run)
	}
	return nil
}

// wantPower says which VMs but some do not run as in another world, on whichever host.
func (p place) wantPower(ctx context.Context, want world, but ...string) error {
	got, err := p.look(ctx, nil, true)
	if err != nil {
		return err
	}
	now := got.power()
	for vm, was := range want.power() {
		if now[vm] != was && !slices.Contains(but, vm) {
			return fmt.Errorf("VM %s was %s and is %q", vm, was, now[vm])
		}
	}
	return nil
}

// power is the state of every VM, by id.
func (w world) power() map[string]gpu.VMState {
	out := map[string]gpu.VMState{}
	for _, h := range w.hosts {
		for _, vm := range h.VMs {
			out[vm.ID] = vm.State
		}
	}
	return out
}

// as does something as another agent of this place, by the same clock.
func (p place) as(ctx context.Context, do func(context.Context, *agent.Server) error, options ...agent.Option) error {
	fleet, err := p.fleet()
	if err != nil {
		return err
	}
	sim, err := fleet.Host(host)
	if err != nil {
		return err
	}
	store, err := statedir.Open(filepath.Join(string(p), stateName))
	if err != nil {
		return err
	}
	return do(ctx, agent.NewServer(sim, store, append(options, agent.WithHostName(host), agent.WithStartPatience(startPatience))...))
}
