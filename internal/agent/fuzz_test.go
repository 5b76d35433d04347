package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/document"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// fuzzHosts are one of each platform, with a VM and GPUs.
func fuzzHosts() gpu.Snapshot {
	return gpu.Snapshot{Format: gpu.SnapshotFormat, Hosts: []gpu.Host{
		{
			Name: "hv01", Platform: gpu.HyperV,
			GPUs: []gpu.GPU{
				{ID: "p", VRAM: 16 << 30, Status: gpu.Partitioned, Partitionable: &gpu.Partitionable{ValidCounts: []int{1, 2, 4}, Count: 4}},
				{ID: "d", VRAM: 16 << 30, Status: gpu.ReadyForDDA, Dismounted: true},
			},
			VMs:   []gpu.VM{{ID: "v", Name: "avd-01", State: gpu.VMOff, Generation: 2}},
			Pools: []gpu.Pool{{Name: "dda", GPUs: []string{"d"}}},
		},
		{
			Name: "n01", Platform: gpu.Linux, MPS: &gpu.MPSHost{},
			GPUs: []gpu.GPU{{ID: "p", Model: "NVIDIA A100-SXM4-40GB", VRAM: 40 << 30, MIG: &gpu.MIG{}}},
		},
	}}
}

// FuzzEntry reads changes in the journal. All that is done with one that was read works on
// hosts that know nothing of it, and it is written again as it was.
func FuzzEntry(f *testing.F) {
	for _, doc := range []string{
		`{"id":"a","subject":"s","host":"hv01","run":"r","worker":"w","status":"running","steps":[{"op":"stop_vm","vm":"v"},` +
			`{"op":"add_partition_adapter","vm":"v","adapter":{}},{"op":"set_vm_settings","vm":"v","settings":{}},{"op":"put_claim",` +
			`"claim":{"kind":"pool","id":"x"}}],"undo":[[{"op":"start_vm","vm":"v"}],[{"op":"remove_partition_adapters","vm":"v"}],[],` +
			`[{"op":"drop_claim","claim":{"kind":"pool","id":"x"}}]],"begun":4}`,
		`{"id":"a","status":"applied","steps":[{"op":"ensure_mps_daemon","mps_daemon":{"name":"d"}},{"op":"write_share","share":{"name":"s"}},` +
			`{"op":"create_gpu_instance","gpu":"p","instance":{}},{"op":"create_vgpu","gpu":"p","vgpu":{}}],"undo":[null,null,null,null],"begun":9}`,
		`{"id":"a","status":"running","steps":[{"op":"set_quotas"}],"undo":[[]],"begun":0}`,
		`{}`, ``,
	} {
		f.Add([]byte(doc))
	}
	hosts := fuzzHosts().Hosts
	f.Fuzz(func(t *testing.T, doc []byte) {
		e, err := readEntry(doc)
		if err != nil {
			return
		}
		for _, h := range hosts {
			_ = e.putBackOn(h, time.Time{})
		}
		for _, s := range e.Steps {
			_ = s.String()
		}
		written, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		again, err := readEntry(written)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v\n%s", err, written)
		}
		if twice, err := json.Marshal(again); err != nil || !bytes.Equal(written, twice) {
			t.Errorf("there and back:\n%s\n%s", written, twice)
		}
	})
}

// FuzzChange prepares changes as a client may send them: an answer or an error, and the
// host is as it was.
func FuzzChange(f *testing.F) {
	for _, doc := range []string{
		`{"id":"a","subject":"s","host":"hv01","token":"t","want":{"vm_assignment":{"kind":"partition","vm":"v","vm_id":"v","host":"hv01",` +
			`"partition":{}}},"prior":{}}`,
		`{"id":"a","host":"hv01","token":"t","want":{"partition_config":{"id":"c","kind":"gpu_p","partition_count":2,"gpus":{"hv01":["p"]}}},` +
			`"prior":{}}`,
		`{"id":"a","host":"hv01","token":"t","want":{"pool":{"id":"hv01/x","name":"x","members":{"hv01":["d"]}}},"prior":{}}`,
		`{"id":"a","host":"n01","token":"t","want":{"partition_config":{"id":"c","kind":"mig","gpus":{"n01":["p"]},` +
			`"mig":{"profiles":{"1g.5gb":2}}}},"prior":{}}`,
		`{"id":"a","host":"n01","token":"t","want":{"share":{"name":"s","host":"n01","gpus":["p"]}},"prior":{}}`,
		`{"id":"a","host":"hv01","token":"t","want":{},"prior":{"vm_assignment":{"vm":"v"}},"claims":[{}]}`,
		`{"id":"a"}`, `[[[[`,
	} {
		f.Add([]byte(doc))
	}
	var servers []*Server
	fleet, err := others.InMemory(fuzzHosts())
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range fleet.Hosts() {
		host, err := fleet.Host(name)
		if err != nil {
			f.Fatal(err)
		}
		servers = append(servers, NewServer(host, host))
	}
	before, err := fleet.Snapshot(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	was, err := json.Marshal(before)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		ch, err := servers[0].readChange(doc)
		if err != nil {
			return
		}
		for _, s := range servers {
			p, err := s.prepare(t.Context(), ch)
			if err != nil {
				continue
			}
			for i, step := range p.Steps {
				if err := step.Validate(); err != nil {
					t.Errorf("step %d of what was prepared could not be read back: %v", i, err)
				}
			}
		}
		after, err := fleet.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if is, err := json.Marshal(after); err != nil || !bytes.Equal(was, is) {
			t.Errorf("the hosts were\n%s\nand are\n%s", was, is)
		}
	})
}

// TestTheGuideHasTheLimits: who meets a limit finds it there.
func TestTheGuideHasTheLimits(t *testing.T) {
	guide, err := os.ReadFile("../../templates/guides/agent.md.tmpl")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{
		fmt.Sprintf("| bytes | %d MiB |", largestReply.bytes>>20),
		fmt.Sprintf("| values | %d,000 |", largestReply.values/1000),
		fmt.Sprintf("| elements of one list or object | %d,000 |", largestReply.elements/1000),
		fmt.Sprintf("| depth of lists and objects | %d |", maxDepth),
		fmt.Sprintf("by a number | 1,%03d |", maxCount-1000),
		fmt.Sprintf("says of itself | %d KiB |", introduction>>10),
		fmt.Sprintf("such as an error | 2,%03d characters |", gpu.MostSaid-2000),
		fmt.Sprintf("Answers above %d MiB", usualReply>>20),
		fmt.Sprintf("of %s hosts at a time", map[int]string{3: "three"}[cap(largeAnswers)]),
	} {
		if !strings.Contains(string(guide), row) {
			t.Errorf("the guide on the agent has no %q", row)
		}
	}
}

// FuzzReply reads answers of a host as the client does. What it takes for a host can be worked with: plans
// on it end, and what it says is fit to be shown.
func FuzzReply(f *testing.F) {
	for _, h := range fuzzHosts().Hosts {
		f.Add(document.Encode(h))
	}
	for _, doc := range []string{
		`{"claims":[{"x":0},{"kind":"vm_assignment","id":"v","want":{}},{"kind":"partition_config","id":"c","gpus":["p"],` +
			`"want":{"partition_config":{"id":"c","kind":"gpu_p","partition_count":4}}}],"gpus":[{"id":"p",` +
			`"partitionable":{"partition_count":-1}}]}`,
		`{"gpus":[{"id":"p","model":"\u001b[2J\n","mig":{"enabled":true,"profiles":[{"name":"1g","max":9,"size":-1}],` +
			`"instances":[{"start":-1}]}}]}`,
		`{"gpus":[{"id":"p","vgpu":{"functions":4,"types":[{"name":"A"}],"instances":[{}]}}],"held_by":{},"owed_starts":[{}],"unknown":[{}],` +
			`"mps":{"daemons":[{}]}}`,
		`{"gpus":[{},{}]}`, `[[[[`, `{}`,
	} {
		f.Add([]byte(doc))
	}
	wants := []gpu.Want{
		{
			Config: &gpu.PartitionConfig{
				ID: "c", Kind: gpu.KindGPUP, Count: 2, GPUs: map[string][]string{"hv01": {"p"}}, MaxDisruption: gpu.DisruptGPUReset,
			},
		},
		{
			Config: &gpu.PartitionConfig{
				ID: "c", Kind: gpu.KindMIG, MIG: &gpu.MIGLayout{Profiles: map[string]int{"1g": 1}}, GPUs: map[string][]string{"hv01": {"p"}},
				MaxDisruption: gpu.DisruptGPUReset,
			},
		},
		{
			Config: &gpu.PartitionConfig{
				ID: "c", Kind: gpu.KindVGPU, VGPU: &gpu.VGPULayout{Type: "A"}, GPUs: map[string][]string{"hv01": {"p"}},
				MaxDisruption: gpu.DisruptGPUReset,
			},
		},
		{Assignment: &gpu.Assignment{Kind: gpu.AssignPartition, VM: "v", VMID: "v", Host: "hv01", Partition: &gpu.PartitionWant{Config: "c"}}},
		{Pool: &gpu.PoolConfig{ID: "hv01/x", Name: "x", Members: map[string][]string{"hv01": {"p"}}}},
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		c := NewClient(nil, "hv01")
		_ = c.readStrictly("prepared change", doc, new(Prepared))
		var j Journal
		if c.read("journal", doc, &j) == nil {
			gpu.SayPlainly(&j)
		}
		_ = c.read("measurement", doc, new(Measurement))
		var h gpu.Host
		if err := c.readHost("inventory", doc, &h, &h, "claims["); err != nil {
			if text := err.Error(); len(text) > 4*gpu.MostSaid || gpu.Printable(text) != text {
				t.Errorf("the error is not fit to be shown: %q", text)
			}
			return
		}
		for _, platform := range []gpu.Platform{gpu.HyperV, gpu.Linux} {
			h.Name, h.Platform, h.Cluster = "hv01", platform, nil
			for _, want := range wants {
				w := rules.World{Hosts: map[string]*gpu.Host{"hv01": &h}}
				_, _ = rules.CheckAndForesee(w, change.Change{Subject: "s", Owner: "o", Token: "t", Want: want}, nil)
			}
		}
		for _, text := range append(append([]string{}, h.Stale...), h.Unfinished...) {
			if gpu.Printable(text) != text {
				t.Errorf("%q is not fit to be shown", text)
			}
		}
	})
}
