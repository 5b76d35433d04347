package agent

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
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
		`{"id":"a","subject":"s","host":"hv01","run":"r","worker":"w","status":"running","steps":[{"op":"stop_vm","vm":"v"},{"op":"add_partition_adapter","vm":"v","adapter":{}},{"op":"set_vm_settings","vm":"v","settings":{}},{"op":"put_claim","claim":{"kind":"pool","id":"x"}}],"undo":[[{"op":"start_vm","vm":"v"}],[{"op":"remove_partition_adapters","vm":"v"}],[],[{"op":"drop_claim","claim":{"kind":"pool","id":"x"}}]],"begun":4}`,
		`{"id":"a","status":"applied","steps":[{"op":"ensure_mps_daemon","mps_daemon":{"name":"d"}},{"op":"write_share","share":{"name":"s"}},{"op":"create_gpu_instance","gpu":"p","instance":{}},{"op":"create_vgpu","gpu":"p","vgpu":{}}],"undo":[null,null,null,null],"begun":9}`,
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
		`{"id":"a","subject":"s","host":"hv01","token":"t","want":{"vm_assignment":{"kind":"partition","vm":"v","vm_id":"v","host":"hv01","partition":{}}},"prior":{}}`,
		`{"id":"a","host":"hv01","token":"t","want":{"partition_config":{"id":"c","kind":"gpu_p","partition_count":2,"gpus":{"hv01":["p"]}}},"prior":{}}`,
		`{"id":"a","host":"hv01","token":"t","want":{"pool":{"id":"hv01/x","name":"x","members":{"hv01":["d"]}}},"prior":{}}`,
		`{"id":"a","host":"n01","token":"t","want":{"partition_config":{"id":"c","kind":"mig","gpus":{"n01":["p"]},"mig":{"profiles":{"1g.5gb":2}}}},"prior":{}}`,
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
