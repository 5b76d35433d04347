package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

// scenario is one way to violate a rule. It is built anew for each use, since a test
// changes the world that it gets.
type scenario struct {
	rule string
	name string
	// build makes a world and a plan that violate the rule.
	build func() (rules.World, change.Change)
	// satisfy changes them so that the rule is content.
	satisfy func(*rules.World, *change.Change)
	level   rules.Level
	path    string
	says    []string // parts of the diagnostic's body
	// change is true for rules about the step from before to after: there is no state
	// in which their violation stood.
	change bool
	// drift is true when the host is not as the resource had it, so that the same want
	// as before still makes it worse.
	drift bool
	// firm is true for what refuses every change, however long it has been so.
	firm bool
	// hostless is true when the violation can be told without any inventory.
	hostless bool
}

func TestRules(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range scenarios() {
		seen[s.rule] = true
		t.Run(s.rule+"/"+s.name, func(t *testing.T) {
			s.violated(t)
			s.satisfied(t)
			s.relaxed(t)
			s.stood(t)
			s.undecidable(t)
		})
	}
	for _, r := range rules.All() {
		if !seen[r.ID] {
			t.Errorf("no scenario for rule %s", r.ID)
		}
	}
}

func (s scenario) violated(t *testing.T) {
	t.Helper()
	w, p := s.build()
	found := of(s.rule, rules.Check(w, p, nil))
	if len(found) != 1 {
		t.Fatalf("violated: got %d findings, want 1: %+v", len(found), found)
	}
	f := found[0]
	if f.Level != s.level || f.Path != s.path || f.Stood {
		t.Errorf("violated: got level %q, path %q, stood %t; want %q, %q, false", f.Level, f.Path, f.Stood, s.level, s.path)
	}
	if f.Title == "" || strings.Contains(f.Title, ":") || strings.HasSuffix(f.Title, ".") {
		t.Errorf("the title %q is not a short sentence without colon and period", f.Title)
	}
	detail := f.Detail()
	for _, want := range append([]string{"Found: ", "\nFix: ", "\nRule: " + s.rule}, s.says...) {
		if !strings.Contains(detail, want) {
			t.Errorf("the body lacks %q:\n%s", want, detail)
		}
	}
	for _, text := range []string{f.Found, f.Wanted, f.Fix} {
		if text != "" && !strings.HasSuffix(text, ".") {
			t.Errorf("not a sentence: %q", text)
		}
	}
	if strings.Contains(detail, "Gpu_") {
		t.Errorf("the name of a resource type has a capital:\n%s", detail)
	}
}

func (s scenario) satisfied(t *testing.T) {
	t.Helper()
	w, p := s.build()
	s.satisfy(&w, &p)
	if found := of(s.rule, rules.Check(w, p, nil)); len(found) != 0 {
		t.Errorf("satisfied: got %+v", found)
	}
}

func (s scenario) relaxed(t *testing.T) {
	t.Helper()
	w, p := s.build()
	if fixed(s.rule) {
		for _, level := range []rules.Level{rules.Off, rules.Warning} {
			if found := of(s.rule, rules.Check(w, p, rules.Levels{s.rule: level})); len(found) != 1 || found[0].Level != rules.Error {
				t.Errorf("%s: got %+v", level, found)
			}
		}
		return
	}
	if found := of(s.rule, rules.Check(w, p, rules.Levels{s.rule: rules.Off})); len(found) != 0 {
		t.Errorf("off: got %+v", found)
	}
	levels := rules.Levels{rules.Feasible: rules.Off} // which says it in its place
	levels[s.rule] = rules.Warning
	found := of(s.rule, rules.Check(w, p, levels))
	if len(found) != 1 || found[0].Level != rules.Warning {
		t.Errorf("warning: got %+v", found)
	}
}

func (s scenario) stood(t *testing.T) {
	t.Helper()
	w, p := s.build()
	if s.change {
		p.Unchanged = true
		if found := of(s.rule, rules.Check(w, p, nil)); len(found) != 0 {
			t.Errorf("unchanged: got %+v", found)
		}
		return
	}
	p.Prior = p.Want
	p.Unchanged = s.drift || s.firm
	if w.Others != nil {
		for _, other := range w.Others.Plans() { // each wants what it had
			other.Prior = other.Want
			w.Others.Put(other.Token, other)
		}
	}
	found := of(s.rule, rules.Check(w, p, nil))
	// Some objects are this resource's own once it had them; then nothing is wrong.
	if p.Unchanged && s.level == rules.Warning && len(found) > 0 {
		t.Errorf("a warning is repeated though nothing changes: %+v", found)
	}
	for _, f := range found {
		if f.Level != rules.Warning || !f.Stood {
			t.Errorf("stood before: got level %q, stood %t: %s", f.Level, f.Stood, f.Found)
		}
		if !strings.Contains(f.Detail(), "This was so before") {
			t.Errorf("the body does not say that it stood before:\n%s", f.Detail())
		}
	}
	if s.firm {
		p.Unchanged = false
		if found := of(s.rule, rules.Check(w, p, nil)); len(found) != 1 || found[0].Level != rules.Error || found[0].Stood {
			t.Errorf("a change: got %+v, want an error", found)
		}
	}
}

func (s scenario) undecidable(t *testing.T) {
	t.Helper()
	w, p := s.build()
	w.Hosts = nil
	w.Complete = false
	found := of(s.rule, rules.Check(w, p, nil))
	if want := map[bool]int{true: 1, false: 0}[s.hostless]; len(found) != want {
		t.Errorf("no host at hand: got %d findings, want %d: %+v", len(found), want, found)
	}
}

func TestSortedErrorsFirstAndDeterministic(t *testing.T) {
	h := host("hv01", vm("a", gpu.VMRunning))
	h.OS.Build = 20348
	h.VMs[0].Generation = 1
	h.VMs[0].DynamicMemory = true
	h.VMs[0].Checkpoints = gpu.CheckpointsStandard
	w := world(h)
	p := create("t", partition("a", "hv01"))
	first := rules.Check(w, p, nil)
	var got []string
	for _, f := range first {
		got = append(got, fmt.Sprintf("%s %s", f.Level, f.Rule))
	}
	want := []string{"error os-build", "error generation-2", "warning vm-settings", "warning vm-settings"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	for range 20 {
		if diff := cmp.Diff(first, rules.Check(w, p, nil)); diff != "" {
			t.Fatalf("two checks differ:\n%s", diff)
		}
	}
}

func TestOverrides(t *testing.T) {
	h := host("hv01")
	h.GPUs[1].Driver.Version = "550.10"
	w := world(h)
	w.Hosts["hv01"].Cluster = &gpu.Cluster{Name: "clu", Nodes: []gpu.Node{{Name: "hv01", State: gpu.NodeUp}}}
	h.GPUs[0].Partitionable.SupportsIncomingLiveMigration = nil
	p := create("t", config("vdi", 4, "hv01"))

	found := of("homogeneous-gpus", rules.Check(w, p, rules.Levels{"homogeneous-gpus": rules.Error}))
	if len(found) != 1 || found[0].Level != rules.Warning {
		t.Errorf("a warning of a strict rule must stay a warning, got %+v", found)
	}
	found = of("live-migration-support", rules.Check(w, p, rules.Levels{"live-migration-support": rules.Error}))
	if len(found) != 1 || found[0].Level != rules.Error {
		t.Errorf("an override must raise a rule that warns by default, got %+v", found)
	}
	p.Prior = p.Want
	found = of("live-migration-support", rules.Check(w, p, rules.Levels{"live-migration-support": rules.Error}))
	if len(found) != 1 || found[0].Level != rules.Warning || !found[0].Stood {
		t.Errorf("what stood before is at most a warning even when raised, got %+v", found)
	}
}

func TestScopes(t *testing.T) {
	h := host("hv01")
	h.GPUs[1] = a2(gpu1)
	h.GPUs[1].PCI, h.GPUs[1].Model = gpu.PCIID{Vendor: "10DE", Device: "2236"}, "NVIDIA A10"
	h.OS.Build = 20348
	p := create("t", config("vdi", 4, "hv01"))
	found := rules.Check(world(h), p, nil, rules.HostScope)
	if len(of("homogeneous-gpus", found)) != 0 || len(of("os-build", found)) != 1 {
		t.Errorf("host scope: got %+v", found)
	}
	found = rules.Check(world(h), p, nil, rules.FleetScope)
	if len(of("homogeneous-gpus", found)) != 1 || len(of("os-build", found)) != 0 {
		t.Errorf("fleet scope: got %+v", found)
	}
}

// A change that makes an old violation worse is an error again.
func TestWorseThanBefore(t *testing.T) {
	h := host("hv01", vm("a", gpu.VMRunning), vm("b", gpu.VMRunning), vm("c", gpu.VMRunning), vm("d", gpu.VMRunning))
	for _, v := range []string{"a", "b", "c", "d"} {
		holds(h, v, 0)
	}
	h.GPUs = h.GPUs[:1]
	h.GPUs[0].Partitionable.Count = 2 // three of four should not even fit now
	p := change.Change{Token: "t", Want: config("vdi", 1, "hv01"), Prior: config("vdi", 2, "hv01")}
	found := of("capacity", rules.Check(world(h), p, nil))
	if len(found) != 1 || found[0].Level != rules.Error || found[0].Stood {
		t.Errorf("worse: got %+v", found)
	}
	p.Want = config("vdi", 2, "hv01")
	found = of("capacity", rules.Check(world(h), p, nil))
	if len(found) != 1 || found[0].Level != rules.Warning || !found[0].Stood {
		t.Errorf("as bad as before: got %+v", found)
	}
}

// A resource that changes nothing is an obstacle to one that does, whichever of the
// two is planned first.
func TestConflictWithAChangeIsNew(t *testing.T) {
	stands := change.Change{Token: "t-config", Want: config("vdi", 4, "hv01"), Prior: config("vdi", 4, "hv01"), Unchanged: true}
	comes := create("t-pool", pool("dda", "hv01"))
	for name, p := range map[string]change.Change{"the unchanged config": stands, "the new pool": comes} {
		w := world(host("hv01"))
		w.Others = whatif.NewBook(stands, comes)
		found := of("dda-xor-partition", rules.Check(w, p, nil))
		if len(found) != 1 || found[0].Level != rules.Error || found[0].Stood {
			t.Errorf("%s: got %+v", name, found)
		}
	}
	stood := change.Change{Token: "t-pool", Want: comes.Want, Prior: comes.Want, Unchanged: true}
	w := world(host("hv01"))
	w.Others = whatif.NewBook(stands, stood)
	for _, f := range of("dda-xor-partition", rules.Check(w, stands, nil)) {
		if f.Level != rules.Warning || !f.Stood {
			t.Errorf("both stood before: got %+v", f)
		}
	}
}

// Both sides of a conflict in one run are told in the same words.
func TestConflictIsSymmetric(t *testing.T) {
	a, b := create("t-a", partition("avd-02", "hv01")), create("t-b", partition("avd-02", "hv01"))
	b.Subject = `gpu_vm_assignment "other" for VM "avd-02"`
	w := world(host("hv01", vm("avd-02", gpu.VMOff)))
	w.Others = whatif.NewBook(a, b)
	fromA := of("single-partition-per-vm", rules.Check(w, a, nil))
	fromB := of("single-partition-per-vm", rules.Check(w, b, nil))
	if len(fromA) != 1 || len(fromB) != 1 {
		t.Fatalf("got %d and %d findings, want one each", len(fromA), len(fromB))
	}
	if fromA[0].Detail() != fromB[0].Detail() {
		t.Errorf("the sides differ:\n%s\n---\n%s", fromA[0].Detail(), fromB[0].Detail())
	}
	if !strings.Contains(fromA[0].Fix, "terraform destroy -refresh=false") {
		t.Errorf("the way out is missing: %s", fromA[0].Fix)
	}
	if fromA[0].Other != b.Subject || fromB[0].Other != a.Subject {
		t.Errorf("other sides: %q and %q", fromA[0].Other, fromB[0].Other)
	}
}

// A destroy is refused for nothing but what its host refuses.
func TestDestroyIsNotBlocked(t *testing.T) {
	h := host("hv01", vm("a", gpu.VMRunning))
	h.OS.Build = 14393
	h.VMs[0].Generation = 1
	h.Controllers = []gpu.Controller{{Name: "SomeManager", Role: gpu.LayoutController}}
	holds(h, "a", 0)
	for name, prior := range map[string]gpu.Want{
		"config": config("vdi", 4, "hv01"), "assignment": partition("a", "hv01"), "pool": pool("p", "hv01"),
	} {
		if found := rules.Check(world(h), change.Change{Token: "t", Prior: prior}, rules.Levels{rules.Feasible: rules.Off}); len(found) != 0 {
			t.Errorf("%s: a destroy must not be blocked, got %+v", name, found)
		}
	}
}

// An agent has one of the hosts that a config names: what rules list is what is at hand.
func TestRulesDoNotListHostsThatAreNotAtHand(t *testing.T) {
	asked := func(others int) int64 { // bytes of memory
		p := create("t", config("vdi", 4, "hv01"))
		for i := range others {
			p.Want.Config.GPUs[fmt.Sprintf("other-%04d", i)] = []string{gpu0}
		}
		w := world(host("hv01"))
		return testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				rules.Check(w, p, nil, rules.HostScope)
			}
		}).AllocedBytesPerOp()
	}
	alone, among := asked(0), asked(1000)
	t.Logf("%d bytes, and %d with 1,000 other hosts", alone, among)
	if among > alone+alone/10 {
		t.Errorf("the rules ask for %d bytes where a config names 1,000 other hosts, and for %d where it names none", among, alone)
	}
}
