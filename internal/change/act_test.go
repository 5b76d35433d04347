package change_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// done are steps in short, or the words of a refusal.
func done(f change.Forecast) string {
	if len(f.Refused) > 0 {
		return "refused: " + f.Refused[0].Found()
	}
	var out []string
	for _, s := range f.Steps {
		out = append(out, strings.TrimSpace(fmt.Sprint(s.Op, " ", s.Name)))
	}
	return strings.Join(out, ", ")
}

// What is done once with a VM or a node does only what the record there allows.
func TestActs(t *testing.T) {
	t.Parallel()
	vm := func(n int, allows bool) gpu.Claim {
		return gpu.Claim{Kind: gpu.ClaimAssignment, ID: vmID(n), Owner: "vdi", Token: "1", Want: gpu.Want{Assignment: &gpu.Assignment{
			Kind: gpu.AssignDevice, VM: fmt.Sprintf("vm-%d", n), VMID: vmID(n), VMName: fmt.Sprintf("vm-%d", n), Host: name,
			Device: &gpu.DeviceWant{Host: name, GPUIDs: []string{whole1}}, Power: gpu.Power{AllowShutdown: allows, StayOff: true},
		}}}
	}
	config := func(drains bool) gpu.Claim {
		return gpu.Claim{
			Kind: gpu.ClaimConfig, ID: "vdi", Owner: "vdi", Token: "2", GPUs: []string{split1},
			Want: gpu.Want{Config: &gpu.PartitionConfig{
				ID: "vdi", Kind: gpu.KindGPUP, Count: 4, Drain: drains, Scope: gpu.Scope{Hosts: []string{name}},
				GPUs: map[string][]string{name: {split1}},
			}},
		}
	}
	paused := func(h *gpu.Host) { h.Cluster.Nodes[0].State = gpu.NodePaused }
	for _, c := range []struct {
		name  string
		act   change.Act
		claim gpu.Claim
		edit  func(*gpu.Host)
		want  string
	}{
		{name: "a VM that runs is shut down", act: change.ActStop, claim: vm(0, true), want: "stop_vm vm-0"},
		{
			name: "not without permission", act: change.ActStop, claim: vm(0, false),
			want: "refused: it runs, and its assignment does not allow a shutdown",
		},
		{name: "one that is off stays so", act: change.ActStop, claim: vm(2, false), want: ""},
		{name: "one that is off starts", act: change.ActStart, claim: vm(2, false), want: "start_vm vm-2"},
		{name: "one that runs goes on", act: change.ActStart, claim: vm(0, false), want: ""},
		{
			name: "one that is saved is left alone", act: change.ActStart, claim: vm(2, true),
			edit: func(h *gpu.Host) { h.VMs[2].State = gpu.VMSaved }, want: "refused: it is saved",
		},
		{
			name: "one without a record", act: change.ActStop, claim: vm(0, true), edit: func(h *gpu.Host) { h.Claims = nil },
			want: "refused: the host has no record of an assignment of it",
		},
		{name: "a node is drained", act: change.ActDrain, claim: config(true), want: "drain_node"},
		{
			name: "not without permission of a config", act: change.ActDrain, claim: config(false),
			want: "refused: no gpu_partition_config of this owner there allows it to be drained",
		},
		{
			name: "one that is drained stays so", act: change.ActDrain, claim: config(true), edit: func(h *gpu.Host) { paused(h); h.VMs = nil },
			want: "",
		},
		{
			name: "one with a VM that cannot move", act: change.ActDrain, claim: config(true),
			edit: func(h *gpu.Host) { h.Cluster.Nodes = h.Cluster.Nodes[:1] }, want: "refused: its VMs cannot move to other nodes: ",
		},
		{
			name: "one that is down", act: change.ActDrain, claim: config(true), edit: func(h *gpu.Host) { h.Cluster.Nodes[0].State = gpu.NodeDown },
			want: "refused: its node is down",
		},
		{
			name: "a host of no cluster", act: change.ActDrain, claim: config(true), edit: func(h *gpu.Host) { h.Cluster = nil },
			want: "refused: it is in no cluster",
		},
		{name: "a node comes back", act: change.ActResume, claim: config(false), edit: paused, want: "resume_node"},
		{name: "one that is up stays so", act: change.ActResume, claim: config(false), want: ""},
		{
			name: "no daemon to start again", act: change.ActRestart, claim: config(false),
			want: `refused: partition config "vdi" has no MPS daemon there`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			host := hyperV()
			for i := range host.VMs {
				host.VMs[i].Clustered = true
			}
			host.Claims = []gpu.Claim{c.claim}
			if c.edit != nil {
				c.edit(&host)
			}
			does := change.Simulate(host, name, change.ActOn(c.act, c.claim))
			after, err := change.After(host, name, change.ActOn(c.act, c.claim))
			if diff := cmp.Diff(change.ProjectAll(host, does.Steps), after); diff != "" || (err != nil) != (len(does.Refused) > 0) {
				t.Errorf("error %v; the host after it (-steps +after):\n%s", err, diff)
			}
			if does.Changes() != (len(does.Steps) > 0) {
				t.Errorf("changes: %t", does.Changes())
			}
			got := done(does)
			if got != c.want && (c.want == "" || !strings.HasPrefix(got, c.want)) {
				t.Errorf("%s: %q, want %q", c.act, got, c.want)
			}
		})
	}
}

// A kind is offered by GPUs of its platform that have what it needs, and is there where they are so.
func TestWhatGPUsOffer(t *testing.T) {
	t.Parallel()
	h := hyperV()
	split, whole, h100 := h.GPUs[0], h.GPUs[2], card(0, "H100 80GB HBM3")
	for kind, want := range map[gpu.Kind]struct {
		on      gpu.Platform
		offered []bool // by split, whole and h100
	}{
		gpu.KindGPUP: {gpu.HyperV, []bool{true, false, false}}, gpu.KindMIG: {gpu.Linux, []bool{false, false, true}},
		gpu.KindVGPU: {gpu.Linux, []bool{false, false, false}},
	} {
		offered := []bool{change.Offers(kind, &split), change.Offers(kind, &whole), change.Offers(kind, &h100)}
		if !cmp.Equal(offered, want.offered) || change.PlatformOf(kind) != want.on || change.Use(kind) == "" {
			t.Errorf("%s is of %s and offered %v, want %v; its use is %q", kind, change.PlatformOf(kind), offered, want, change.Use(kind))
		}
	}
	if why := change.Passes(gpu.KindGPUP, &split); why != "" {
		t.Errorf("a GPU with partitions is passed by: %q", why)
	}
	if noun := change.Noun(&gpu.PartitionConfig{Kind: gpu.KindGPUP, Count: 4}); noun == "" {
		t.Error("a config of partitions has no noun")
	}
	if acts := change.ActDrain.Values(); len(acts) != 6 || !slices.Contains(acts, string(change.ActRestart)) {
		t.Errorf("the acts are %q", acts)
	}
	for count, want := range map[int]bool{4: true, 2: false} {
		if is := change.HasLayout(&gpu.PartitionConfig{Kind: gpu.KindGPUP, Count: count}, &split); is != want {
			t.Errorf("a GPU with 4 partitions is as %d declare: %t", count, is)
		}
	}
}

func TestWhichConfigAllowsANodeToBeDrained(t *testing.T) {
	t.Parallel()
	claim := func(id, owner string, kind gpu.Kind, drains bool) gpu.Claim {
		return gpu.Claim{
			Kind: gpu.ClaimConfig, ID: id, Owner: owner, Want: gpu.Want{Config: &gpu.PartitionConfig{ID: id, Kind: kind, Drain: drains}},
		}
	}
	host := gpu.Host{
		Claims: []gpu.Claim{
			claim("a", "vdi", gpu.KindGPUP, false), claim("b", "other", gpu.KindGPUP, true), claim("c", "vdi", gpu.KindMPS, true),
			claim("d", "vdi", gpu.KindGPUP, true),
		},
	}
	for of, want := range map[[2]string]string{
		{"vdi", ""}: "d", {"vdi", "A"}: "a", {"other", ""}: "b", {"*", ""}: "b", {"vdi", "b"}: "", {"nobody", ""}: "",
	} {
		if c, ok := change.ActDrain.ClaimFor(&host, of[0], of[1]); c.ID != want || ok != (want != "") {
			t.Errorf("for owner %q and id %q: %q, %t, want %q", of[0], of[1], c.ID, ok, want)
		}
	}
}

// A change that would disturb more than was announced is refused, by the name of what is more.
func TestOnlyWhatIsApprovedIsDisturbed(t *testing.T) {
	t.Parallel()
	host := hyperV()
	equipped(&host)
	host.VMs[1].Devices = []gpu.DeviceAssignment{{GPU: whole1}}
	var stops []string
	all := change.Approved{Keys: []string{}}
	for _, d := range change.Disturbable(&host, name) {
		stops = append(stops, d.Text)
		all.Approve(d, d)
	}
	if diff := cmp.Diff([]string{`VM "vm-0" would be shut down`, `VM "vm-1" would be shut down`}, stops); diff != "" {
		t.Fatalf("what could be disturbed (-want +got):\n%s", diff)
	}
	if len(all.Keys) != 2 || !all.HasVM(strings.ToLower(vmID(0))) || all.HasVM(vmID(3)) {
		t.Errorf("approved: %q", all.Keys)
	}
	want := gpu.Want{Assignment: &gpu.Assignment{
		Kind: gpu.AssignDevice, VM: "vm-0", VMID: vmID(0), VMName: "vm-0", Host: name,
		Device: &gpu.DeviceWant{Host: name, GPUIDs: []string{whole3}}, Power: gpu.Power{AllowShutdown: true},
	}}
	for _, c := range []struct {
		name     string
		approved *change.Approved
		refused  bool
	}{
		{"nothing is known of what was announced", nil, false},
		{"nothing was announced", &change.Approved{Keys: []string{}}, true},
		{"of another host", &change.Approved{Hosts: []string{"host2"}, Keys: []string{}}, false},
		{"another VM was", (&change.Approved{Keys: []string{}}).WithVMs(vmID(1)), true},
		{"this one was", (&change.Approved{Keys: []string{}}).WithVMs(vmID(0)), false},
		{"all were", &all, false},
	} {
		host := hyperV()
		_, err := change.Plan(host, name, change.Change{Subject: "vm-0", Owner: "vdi", Token: "t", Want: want, Approved: c.approved})
		r, refused := errors.AsType[*gpu.Refusal](err)
		if refused != c.refused || refused && (r.Code != gpu.Unannounced || r.Found() != `VM "vm-0" would be shut down`) {
			t.Errorf("%s: %v, want a refusal: %t", c.name, err, c.refused)
		}
	}
}
