package change_test

import (
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// TestDriftAndLossAreTheSame changes a GPU of a claim: the plan and `reconcile` name the same
// difference, with its cause, and a GPU that is as declared differs in neither.
func TestDriftAndLossAreTheSame(t *testing.T) {
	t.Parallel()
	const id = "GPU-1"
	at := func(profile string, start int) gpu.MIGPlacement {
		return gpu.MIGPlacement{Profile: profile, Start: start}
	}
	made := []gpu.MIGPlacement{at("1g.10gb", 0), at("3g.40gb", 4)}
	config := &gpu.PartitionConfig{ID: "c", Kind: gpu.KindMIG, MIG: &gpu.MIGLayout{Placements: made}, GPUs: map[string][]string{"h": {id}}}
	for name, test := range map[string]struct {
		enabled, busy bool
		have          []gpu.MIGPlacement
		cause         change.Cause
		found         string
	}{
		"as declared": {enabled: true, have: made},
		"mode off":    {busy: true, cause: change.CauseReboot, found: "has MIG mode off"},
		"all gone":    {enabled: true, cause: change.CauseReboot, found: "has MIG mode without instances"},
		"one gone":    {enabled: true, have: made[1:], cause: change.CauseOtherTool, found: "has 3g.40gb@4 (1g.10gb@0 is gone)"},
		"one foreign": {
			enabled: true, have: []gpu.MIGPlacement{made[0], at("2g.20gb", 2), made[1]}, cause: change.CauseOtherTool,
			found: "has 1g.10gb@0+2g.20gb@2+3g.40gb@4 (2g.20gb@2 is not of this config)",
		},
		"elsewhere": {
			enabled: true, have: []gpu.MIGPlacement{at("1g.10gb", 4), at("3g.40gb", 0)}, cause: change.CauseMoved,
			found: "has 3g.40gb@0+1g.10gb@4 (3g.40gb@0+1g.10gb@4 is not of this config)",
		},
	} {
		g := gpu.GPU{ID: id, MIG: &gpu.MIG{Enabled: test.enabled, Pending: test.enabled, Profiles: []gpu.MIGProfile{
			{Name: "1g.10gb", Size: 1, Max: 7, Slices: 1, Starts: []int{0, 1, 2, 3, 4, 5, 6}},
			{Name: "2g.20gb", Size: 2, Max: 3, Slices: 2, Starts: []int{0, 2, 4}},
			{Name: "3g.40gb", Size: 4, Max: 2, Slices: 3, Starts: []int{0, 4}},
		}}}
		sizes := map[string]int{"1g.10gb": 1, "2g.20gb": 2, "3g.40gb": 4}
		for i, p := range test.have {
			g.MIG.Instances = append(g.MIG.Instances, gpu.GPUInstance{
				ID: i, Profile: p.Profile, Start: p.Start, Size: sizes[p.Profile],
				Compute: []gpu.ComputeInstance{{UUID: "MIG-1", Slices: int(p.Profile[0] - '0')}},
			})
		}
		if test.busy {
			g.Processes = []gpu.Process{{PID: 7}}
		}
		claim := gpu.Claim{
			Kind: gpu.ClaimConfig, ID: "c", Token: "t", GPUs: []string{id}, Want: gpu.Want{Config: config},
			AppliedLayouts: gpu.Layouts{id: {MIG: &gpu.MIGState{Enabled: true, Placements: made}}},
		}
		host := gpu.Host{Name: "h", Platform: gpu.Linux, GPUs: []gpu.GPU{g}, Claims: []gpu.Claim{claim}}
		got := change.Differences(&host, config, &claim, []string{id})
		lost := change.FindLost(&host)
		if test.found == "" {
			if len(got)+len(lost) > 0 {
				t.Errorf("%s: %v, lost %+v", name, got, lost)
			}
			continue
		}
		if len(got) != 1 || got[0].Cause != test.cause || got[0].Found != test.found || got[0].Declared != "1g.10gb@0+3g.40gb@4" ||
			got[0].Object != "GPU "+id {
			t.Errorf("%s: %+v", name, got)
			continue
		}
		if test.busy || test.cause == change.CauseMoved { // which reconcile leaves alone, and says why
			if len(lost) != 1 || len(lost[0].Differences) != 1 || len(lost[0].Differences[0].Stays()) != 1 ||
				!strings.HasPrefix(lost[0].Differences[0].Stays()[0], got[0].String()+": ") {
				t.Errorf("%s: reconcile says %+v, the plan %s", name, lost, got[0])
			}
		}
	}
}

// What a change that failed has left behind is nobody else's doing.
func TestWhatAFailedChangeLeavesIsNobodyElses(t *testing.T) {
	t.Parallel()
	const id = "PCIROOT(1)"
	config := &gpu.PartitionConfig{ID: "c", Kind: gpu.KindGPUP, Count: 8, GPUs: map[string][]string{"h": {id}}}
	for incomplete, cause := range map[bool]change.Cause{false: change.CauseOtherTool, true: change.CauseFailedChange} {
		claim := gpu.Claim{
			Kind: gpu.ClaimConfig, ID: "c", Token: "t", GPUs: []string{id}, Want: gpu.Want{Config: config}, Incomplete: incomplete,
			AppliedLayouts: gpu.Layouts{id: {Partitions: 8}},
		}
		host := gpu.Host{
			Name: "h", Platform: gpu.HyperV, Claims: []gpu.Claim{claim},
			GPUs: []gpu.GPU{{ID: id, Partitionable: &gpu.Partitionable{Count: 16, ValidCounts: []int{8, 16}}}},
		}
		if got := change.Differences(&host, config, &claim, []string{id}); len(got) != 1 || got[0].Cause != cause {
			t.Errorf("incomplete %v: %+v", incomplete, got)
		}
	}
}

// MIG mode that is on where a config keeps it off is somebody's doing, and stays until an apply.
func TestMIGModeThatCameOn(t *testing.T) {
	t.Parallel()
	const id = "GPU-1"
	config := &gpu.PartitionConfig{ID: "c", Kind: gpu.KindMIG, MIG: &gpu.MIGLayout{Off: true}, GPUs: map[string][]string{"h": {id}}}
	for pending, found := range map[bool]string{
		false: "has MIG mode without instances; the next reset of the GPU switches MIG mode off", true: "has MIG mode without instances",
	} {
		claim := gpu.Claim{
			Kind: gpu.ClaimConfig, ID: "c", Token: "t", GPUs: []string{id}, Want: gpu.Want{Config: config},
			AppliedLayouts: gpu.Layouts{id: {MIG: &gpu.MIGState{}}},
		}
		host := gpu.Host{
			Name: "h", Platform: gpu.Linux, GPUs: []gpu.GPU{{ID: id, MIG: &gpu.MIG{Enabled: true, Pending: pending}}}, Claims: []gpu.Claim{claim},
		}
		got, lost := change.Differences(&host, config, &claim, []string{id}), change.FindLost(&host)
		if len(got) != 1 || got[0].Cause != change.CauseOtherTool || got[0].Found != found || got[0].Declared != "no MIG mode" {
			t.Errorf("pending %v: %+v", pending, got)
		}
		if len(lost) != 1 || len(lost[0].Differences) != 1 || len(lost[0].Differences[0].Stays()) != 1 || lost[0].Differences[0].Lacks() != "" {
			t.Errorf("pending %v: reconcile says %+v", pending, lost)
		}
	}
}

// TestSharesFollowADaemonWithPartitions: a daemon that has ended has taken its static partitions with
// it, so that whatever starts it again hands its shares over anew. A host cannot compare them by then.
func TestSharesFollowADaemonWithPartitions(t *testing.T) {
	t.Parallel()
	for _, static := range []bool{false, true} {
		config := &gpu.PartitionConfig{
			ID: "c", Kind: gpu.KindMPS,
			MPS:  &gpu.MPSLayout{MultiUser: true, PerGPU: true, StaticPartitions: static, ComputeMode: gpu.ComputeDefault},
			GPUs: map[string][]string{"h": {"GPU-1"}},
		}
		share := &gpu.Share{Name: "a", Host: "h", Count: 1, ActiveThreadPercentage: 25, Devices: []gpu.SharedDevice{{GPU: "GPU-1"}}}
		h := gpu.Host{
			Name: "h", Platform: gpu.Linux,
			GPUs: []gpu.GPU{
				{ID: "GPU-1", Vendor: "NVIDIA", ComputeMode: gpu.ComputeDefault, ComputeCapability: "9.0", Driver: gpu.Driver{Version: "590.1"}},
			}, MPS: &gpu.MPSHost{Program: "x"},
		}
		claims := []gpu.Claim{
			{Kind: gpu.ClaimConfig, ID: "c", Token: "c", GPUs: []string{"GPU-1"}, Want: gpu.Want{Config: config}},
			{Kind: gpu.ClaimShare, ID: "a", Token: "s", GPUs: []string{"GPU-1"}, Want: gpu.Want{Share: share}},
		}
		h.Claims, h.Shares = claims, []gpu.HandedShare{{Name: "a"}}
		for _, d := range placement.Daemons(&h, config, []string{"GPU-1"}) {
			h.MPS.Daemons = append(h.MPS.Daemons, gpu.MPSDaemon{MPSDaemonSpec: d, PID: 77})
		}
		if lost := change.FindLost(&h); len(lost) > 0 {
			t.Fatalf("static %v: while it runs, lost is %+v", static, lost)
		}
		h.MPS.Daemons[0].PID, h.MPS.Daemons[0].Problem = 0, "it has ended"
		drift, lost := change.ShareDifferences(&h, share, &claims[1]), change.FindLost(&h)
		if (len(drift) == 1) != static || len(lost) != map[bool]int{false: 1, true: 2}[static] {
			t.Errorf("static %v: drift is %+v, lost %+v", static, drift, lost)
		}
		if static && !(strings.Contains(drift[0].Found, "static partition") && lost[1].Restorable()) {
			t.Errorf("it says %+v and puts back %+v", drift[0], lost[1])
		}
		// Where the daemon cannot be started again its shares wait for it.
		h.MPS.Program = ""
		if lost := change.FindLost(&h); static && lost[len(lost)-1].Restorable() {
			t.Errorf("without the program it puts back %+v", lost)
		}
	}
}

// TestDaemonThatDoesNotWork though it runs is started anew where that ends nobody, and says what is
// wrong with it where it would.
func TestDaemonThatDoesNotWork(t *testing.T) {
	t.Parallel()
	config := &gpu.PartitionConfig{
		ID: "c", Kind: gpu.KindMPS, MPS: &gpu.MPSLayout{MultiUser: true, ComputeMode: gpu.ComputeDefault},
		GPUs: map[string][]string{"h": {"GPU-1"}},
	}
	for _, problem := range []string{
		"its server 78 has had a fault, and processes that come to it hang", "it runs and does not answer: no answer for 10s",
	} {
		for _, clients := range [][]gpu.Process{nil, {{PID: 4711, Name: "trainer"}}} {
			h := gpu.Host{
				Name: "h", Platform: gpu.Linux, GPUs: []gpu.GPU{{ID: "GPU-1", Vendor: "NVIDIA", ComputeMode: gpu.ComputeDefault}},
				MPS: &gpu.MPSHost{Program: "x"},
			}
			h.Claims = []gpu.Claim{{Kind: gpu.ClaimConfig, ID: "c", Token: "c", GPUs: []string{"GPU-1"}, Want: gpu.Want{Config: config}}}
			wanted := placement.Daemons(&h, config, []string{"GPU-1"})[0]
			h.MPS.Daemons = []gpu.MPSDaemon{{MPSDaemonSpec: wanted, PID: 77, Problem: problem, Clients: clients}}
			drift, lost := change.Differences(&h, config, &h.Claims[0], []string{"GPU-1"}), change.FindLost(&h)
			if len(drift) != 1 || drift[0].Found != "does not work: "+problem || len(lost) != 1 || lost[0].Restorable() != (clients == nil) {
				t.Fatalf("%d clients: drift is %+v, lost %+v", len(clients), drift, lost)
			}
			if clients == nil {
				if steps := lost[0].Steps(&h); len(steps) != 1 || steps[0].Op != change.OpEnsureDaemon || steps[0].Force {
					t.Errorf("put back by %+v", steps)
				}
				continue
			}
			said := strings.Join(lost[0].Differences[0].Stays(), "\n")
			if !strings.Contains(said, "it cannot be restarted under its clients") || !strings.Contains(said, "trainer") ||
				strings.Contains(said, "in place of") || strings.Count(said, problem) != 1 {
				t.Errorf("it says %q", said)
			}
		}
	}
}
