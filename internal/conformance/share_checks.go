package conformance

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// What the host looks like afterwards.

func hasComputeMode(gpuID string, want gpu.ComputeMode) migCheck {
	return onTheCard(gpuID, func(t *testing.T, g *gpu.GPU) {
		t.Helper()
		if g.ComputeMode != want {
			t.Errorf("GPU %s: the compute mode is %q, want %q", gpuID, g.ComputeMode, want)
		}
	})
}

func hasTimeSlice(gpuID string, want gpu.TimeSlice) migCheck {
	return onTheCard(gpuID, func(t *testing.T, g *gpu.GPU) {
		t.Helper()
		if g.TimeSlice != want {
			t.Errorf("GPU %s: the time slice is %q, want %q", gpuID, g.TimeSlice, want)
		}
	})
}

func hasCapability(gpuID, want string) migCheck {
	return onTheCard(gpuID, func(t *testing.T, g *gpu.GPU) {
		t.Helper()
		if g.ComputeCapability != want {
			t.Errorf("GPU %s: the compute capability is %q, want %q", gpuID, g.ComputeCapability, want)
		}
	})
}

// hasDaemons are the daemons of ours, by name.
func hasDaemons(want ...string) migCheck {
	return func(t *testing.T, b *migBench) {
		t.Helper()
		slices.Sort(want)
		if got := slices.Sorted(maps.Keys(daemonsOf(&b.after))); !slices.Equal(got, want) {
			t.Errorf("there are the daemons %q, want %q", got, want)
		}
	}
}

func daemonsOf(h *gpu.Host) map[string]gpu.MPSDaemon {
	out := map[string]gpu.MPSDaemon{}
	if h.MPS != nil {
		for _, d := range h.MPS.Daemons {
			if d.Name != "" {
				out[d.Name] = d
			}
		}
	}
	return out
}

// foreignDaemons are those of somebody else, by process id.
func foreignDaemons(h *gpu.Host) []gpu.MPSDaemon {
	if h.MPS == nil {
		return nil
	}
	foreign := slices.DeleteFunc(slices.Clone(h.MPS.Daemons), func(d gpu.MPSDaemon) bool { return d.Name != "" })
	slices.SortFunc(foreign, func(a, b gpu.MPSDaemon) int { return cmp.Compare(a.PID, b.PID) })
	return foreign
}

// inPartitions are shares with a static partition each, in place of a percentage.
func inPartitions(shares ...string) migCheck {
	return func(t *testing.T, b *migBench) {
		t.Helper()
		seen := map[string]bool{}
		for _, name := range shares {
			s, ok := b.after.HandedShare(name)
			if !ok {
				t.Errorf("there is no share %s", name)
				continue
			}
			id := s.Environment["CUDA_MPS_SM_PARTITION"]
			if !strings.HasPrefix(id, "GPU-") || seen[id] || s.Environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] != "" {
				t.Errorf("share %s has no partition of its own: %v", name, s.Environment)
			}
			seen[id] = true
		}
	}
}

// inAnotherPartition is a share that had another one before.
func inAnotherPartition(share string) migCheck {
	return func(t *testing.T, b *migBench) {
		t.Helper()
		before, _ := b.before.HandedShare(share)
		now, _ := b.after.HandedShare(share)
		if before == nil || now == nil || before.Environment["CUDA_MPS_SM_PARTITION"] == now.Environment["CUDA_MPS_SM_PARTITION"] {
			t.Errorf("share %s was %+v and is %+v", share, before, now)
		}
	}
}

// serves is a daemon that runs as it was wanted, for clients and for nobody else.
func serves(want gpu.MPSDaemonSpec, clients ...string) migCheck {
	return func(t *testing.T, b *migBench) {
		t.Helper()
		got, ok := b.after.Daemon(want.Name)
		if !ok {
			t.Errorf("there is no daemon %s: %+v", want.Name, b.after.MPS)
			return
		}
		if !got.Equal(&want) {
			t.Errorf("daemon %s is otherwise (-want +got):\n%s", want.Name, gocmp.Diff(want, got.MPSDaemonSpec))
		}
		if got.PID == 0 || got.PipeDir == "" || got.Problem != "" {
			t.Errorf("daemon %s does not run: %+v", want.Name, got)
		}
		var pids, want []int
		for _, c := range got.Clients {
			pids = append(pids, c.PID)
		}
		for _, c := range clients {
			want = append(want, b.pids[c])
		}
		slices.Sort(pids)
		slices.Sort(want)
		if !slices.Equal(pids, want) {
			t.Errorf("daemon %s has the clients %+v, want %q", got.Name, got.Clients, clients)
		}
	}
}

// isDown is a daemon of ours that does not run, and says why.
func isDown(name string) migCheck { return outlived(name) }

// outlived is a daemon of ours that does not run, whose servers have clients.
func outlived(name string, clients ...string) migCheck {
	return func(t *testing.T, b *migBench) {
		t.Helper()
		d, ok := b.after.Daemon(name)
		if !ok || d.PID != 0 || d.Problem == "" || len(d.Clients) != len(clients) {
			t.Errorf("daemon %s is there: %t, as %+v; want one that does not run, with the clients %q", name, ok, d, clients)
			return
		}
		for _, client := range clients {
			if !slices.ContainsFunc(d.Clients, func(p gpu.Process) bool { return p.PID == b.pids[client] && p.Name == client }) {
				t.Errorf("daemon %s has the clients %+v, and %s is not one of them", name, d.Clients, client)
			}
		}
	}
}

// ranOn is a daemon that was not restarted, and restarted one that was.
func ranOn(name string) migCheck { return restart(name, false) }

func restarted(name string) migCheck { return restart(name, true) }

func restart(name string, want bool) migCheck {
	return func(t *testing.T, b *migBench) {
		t.Helper()
		before, after := daemonsOf(&b.before)[name], daemonsOf(&b.after)[name]
		if before.PID == 0 || after.PID == 0 || (before.PID != after.PID) != want {
			t.Errorf("daemon %s was process %d and is process %d; want a restart: %t", name, before.PID, after.PID, want)
		}
	}
}

// onlyDaemons compares everything but some daemons, and the processes on GPUs, with what it
// was: other daemons, and those of others, have the same processes and clients.
func onlyDaemons(names ...string) migCheck {
	return func(t *testing.T, b *migBench) {
		t.Helper()
		others := func(h gpu.Host) gpu.Host {
			h.GPUs = slices.Clone(h.GPUs)
			for i := range h.GPUs {
				h.GPUs[i].Processes = nil
			}
			mps := gpu.MPSHost{Program: h.MPS.Program}
			for _, d := range h.MPS.Daemons {
				if !slices.Contains(names, d.Name) {
					mps.Daemons = append(mps.Daemons, d)
				}
			}
			h.MPS = &mps
			return h
		}
		sameHost(t, "something else changed", others(b.before), others(b.after))
	}
}

// hasShares are the shares that containers can ask for, by name.
func hasShares(want ...string) migCheck {
	return func(t *testing.T, b *migBench) {
		t.Helper()
		var got []string
		for _, s := range b.after.Shares {
			got = append(got, s.Name)
		}
		slices.Sort(want)
		if !slices.Equal(slices.Sorted(slices.Values(got)), want) {
			t.Errorf("there are the shares %q, want %q", got, want)
		}
	}
}

// onlyShares compares everything but the shares with what it was.
func onlyShares(t *testing.T, b *migBench) {
	t.Helper()
	before, after := b.before, b.after
	before.Shares, after.Shares = nil, nil
	sameHost(t, "something else changed", before, after)
}

// keepsShare compares a share with what it was.
func keepsShare(name string) migCheck {
	return func(t *testing.T, b *migBench) {
		t.Helper()
		before, ok := b.before.HandedShare(name)
		if !ok {
			t.Errorf("there was no share %s before", name)
		}
		after, _ := b.after.HandedShare(name)
		if diff := gocmp.Diff(before, after); diff != "" {
			t.Errorf("share %s is otherwise (-before +after):\n%s", name, diff)
		}
	}
}

// variables are of the environment of a share; "" is one that is not set.
type variables map[string]string

// hasEnvironment is a share's environment for a process of the host, as far as it is named.
// "@pipe:NAME" stands for the directory of a daemon's pipes.
func hasEnvironment(share string, want variables) migCheck {
	return func(t *testing.T, b *migBench) {
		t.Helper()
		s, ok := b.after.HandedShare(share)
		if !ok {
			t.Errorf("there is no share %s", share)
			return
		}
		for name, value := range want {
			if daemon, is := strings.CutPrefix(value, "@pipe:"); is {
				value = daemonsOf(&b.after)[daemon].PipeDir
			}
			if got, ok := s.Environment[name]; got != value || ok != (value != "") {
				t.Errorf("share %s has %s=%q, want %q", share, name, got, value)
			}
		}
	}
}

// seesInstance is a share whose processes see the MIG device at a place.
func seesInstance(share, gpuID, profile string, start int) migCheck {
	return func(t *testing.T, b *migBench) {
		t.Helper()
		uuid, err := uuidOf(&b.after, gpuID, at(profile, start))
		if err != nil {
			t.Error(err)
			return
		}
		hasEnvironment(share, variables{"CUDA_VISIBLE_DEVICES": uuid})(t, b)
	}
}

// isIn is a process of a share, "" for none, wherever it runs.
func isIn(process, share string) migCheck {
	return func(t *testing.T, b *migBench) {
		t.Helper()
		found := false
		for _, g := range b.after.GPUs {
			if p, ok := b.process(g.ID, process); ok {
				found = true
				if p.Share != share {
					t.Errorf("GPU %s: process %s is in share %q, want %q", g.ID, process, p.Share, share)
				}
			}
		}
		if !found {
			t.Errorf("process %s is on no GPU", process)
		}
	}
}

// foreignSpecIsThere is the specification that somebody else wrote, as it was written.
func foreignSpecIsThere(share string) migCheck {
	return func(t *testing.T, b *migBench) {
		t.Helper()
		if !b.sharing.HasForeignSpec(t, share) {
			t.Errorf("the foreign specification in the place of share %s is not what was written", share)
		}
	}
}

// saneSharing is what holds for every host at every moment.
func saneSharing(t *testing.T, h gpu.Host) {
	t.Helper()
	saneDaemons(t, &h)
	names := map[string]bool{}
	for _, s := range h.Shares {
		if names[s.Name] {
			t.Errorf("share %s is there twice", s.Name)
		}
		names[s.Name] = true
		if s.CDIDevice != gpu.CDIDevice(s.Name) || s.Environment["CUDA_VISIBLE_DEVICES"] == "" {
			t.Errorf("share %s cannot be asked for: %+v", s.Name, s)
		}
	}
}

func saneDaemons(t *testing.T, h *gpu.Host) {
	t.Helper()
	if h.MPS == nil {
		return
	}
	names, pids := map[string]bool{}, map[int]bool{}
	for _, d := range h.MPS.Daemons {
		if d.Name != "" && names[d.Name] {
			t.Errorf("daemon %s is there twice", d.Name)
		}
		names[d.Name] = true
		if d.PID != 0 && pids[d.PID] {
			t.Errorf("process %d is two daemons", d.PID)
		}
		pids[d.PID] = true
		if d.Name == "" && (d.PID == 0 || len(d.Clients) > 0) {
			t.Errorf("a daemon of somebody else does not run or has clients: %+v", d)
		}
		if d.Name != "" && d.PID == 0 && d.Problem == "" {
			t.Errorf("daemon %s does not run, and does not say why: %+v", d.Name, d)
		}
		for _, c := range d.Clients {
			onGPU := func(g gpu.GPU) bool {
				return slices.ContainsFunc(g.Processes, func(p gpu.Process) bool { return p.PID == c.PID })
			}
			if c.PID <= 0 || !slices.ContainsFunc(h.GPUs, onGPU) {
				t.Errorf("daemon %s has a client that is on no GPU: %+v", d.Name, c)
			}
		}
	}
}
