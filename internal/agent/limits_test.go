package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/agent/agentpb"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect" //nolint:depguard // the tests speak through a real connection
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// sendChange has a change worked out as it was written, past the client's own checks.
func sendChange(t *testing.T, r *rig, doc string) error {
	t.Helper()
	_, err := agentpb.NewAgentClient(connectAs(t, r, onlyReads)).Prepare(t.Context(), &agentpb.PrepareRequest{Change: []byte(doc)})
	for _, d := range status.Convert(err).Details() {
		if detail, ok := d.(*agentpb.ErrorDetail); ok {
			var e agent.Error
			if err := json.Unmarshal(detail.GetError(), &e); err != nil {
				t.Fatal(err)
			}
			return &e
		}
	}
	return err
}

func onlyReads(context.Context) (agent.Role, error) { return agent.Reader, nil }

func TestWhatIsTooLargeIsRefusedBeforeItUnfolds(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	before := r.look()
	list := func(element string, n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + "]"
	}
	document := func(field, value string) string {
		return fmt.Sprintf(
			`{"id":"c","host":%q,"token":"t","want":{"vm_assignment":{"kind":"partition","vm":"vm3","partition":{},"settings":{},"power":{}}},`+
				`%q:%s}`, host, field, value)
	}
	wants := func(want string) string {
		return fmt.Sprintf(`{"id":"c","host":%q,"token":"t","want":%s}`, host, want)
	}
	for name, c := range map[string]struct{ doc, says string }{
		"bytes":  {document("x", `"`+strings.Repeat("x", 1<<20)+`"`), "bytes of at most"},
		"claims": {document("claims", list("{}", 2001)), "more than 2000 elements"},
		"values": {document("x", list(list("[]", 1999), 35)), "more than 60000 values"},
		"an object": {
			document("levels", "{"+strings.TrimSuffix(strings.Repeat(`"a":"b",`, 2001), ",")+"}"), "more than 2000 elements",
		},
		"depth":                  {document("x", strings.Repeat("[", 1000)+strings.Repeat("]", 1000)), "more than 32 deep"},
		"depth of objects":       {document("x", strings.Repeat(`{"a":`, 1000)+"1"+strings.Repeat("}", 1000)), "more than 32 deep"},
		"unclosed":               {strings.Repeat(`[{"a":`, 1000), "more than 32 deep"},
		"quotes within a string": {document("x", `"\\\"`+strings.Repeat("[", 40)+`"`) + strings.Repeat("[", 40), "more than 32 deep"},
		"GPUs of a pool": {
			wants(`{"vm_assignment":{"kind":"pool","vm":"vm3","pool":{"id":"p","name":"p","count":2000000000}}}`), "2000000000 GPUs of a pool",
		},
		"partitions": {
			wants(`{"partition_config":{"id":"c","kind":"gpu_p","partition_count":2000000000,"gpus":{}}}`), "2000000000 partitions",
		},
		"MIG instances": {
			wants(`{"partition_config":{"id":"c","kind":"mig","mig":{"profiles":{"1g.5gb":2000000000}},"gpus":{}}}`), "2000000000 MIG instances",
		},
		"vGPUs": {
			wants(`{"partition_config":{"id":"c","kind":"vgpu","vgpu":{"type":"L40S-1Q","count":2000000000},"gpus":{}}}`), "2000000000 vGPUs",
		},
		"vGPUs of a type": {
			wants(`{"partition_config":{"id":"c","kind":"vgpu","vgpu":{"types":{"L40S-1Q":2000000000}},"gpus":{}}}`), "2000000000 vGPUs",
		},
		"replicas": {
			wants(`{"partition_config":{"id":"c","kind":"time_slicing","time_slicing":{"replicas":2000000000},"gpus":{}}}`), "2000000000 replicas",
		},
		"a share": {wants(`{"share":{"name":"s","host":"` + host + `","count":2000000000}}`), "2000000000 GPUs of a share"},
		"what a claim holds": {
			document("claims", `[{"kind":"vm_assignment","id":"x","holds":{"pool":{"count":2000000000}}}]`), "2000000000 GPUs of a pool",
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := sendChange(t, r, c.doc)
			if e, ok := errors.AsType[*agent.Error](err); !ok || e.Code != agent.BadRequest || !strings.Contains(e.Message, c.says) {
				t.Errorf("%v; want a bad request that says %q", err, c.says)
			}
		})
	}
	wantSame(t, before, r.look())
}

// replyStandIn is a host that answers with one document.
type replyStandIn struct {
	agentpb.UnimplementedAgentServer
	doc []byte
}

func (s replyStandIn) Register(r grpc.ServiceRegistrar) { agentpb.RegisterAgentServer(r, s) }

func (s replyStandIn) Inventory(context.Context, *agentpb.InventoryRequest) (*agentpb.InventoryReply, error) {
	return &agentpb.InventoryReply{Host: s.doc}, nil
}

func answered(tb testing.TB, doc []byte) (gpu.Host, error) {
	tb.Helper()
	conn, err := connect.InProcess(replyStandIn{doc: doc})
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	return agent.NewClient(conn, host).Inventory(tb.Context())
}

// TestTheLargestHostIsRead: 16 GPUs, each in a config of its own on 1,000 hosts, and 4,000 VMs, each
// with a claim with every setting. There are limits above it, and no room for much more below them.
func TestTheLargestHostIsRead(t *testing.T) {
	t.Parallel()
	quota := func() gpu.Quota { n := uint64(1) << 63; return gpu.Quota{Min: &n, Max: &n, Optimal: &n} }
	all := gpu.Quotas{VRAM: quota(), Encode: quota(), Decode: quota(), Compute: quota()}
	mib, yes, stop := gpu.FromMiB(33280), true, gpu.StopTurnOff
	settings := gpu.VMSettings{
		LowMemoryMappedIOSpace: &mib, HighMemoryMappedIOSpace: &mib, GuestControlledCache: &yes, AutomaticStopAction: &stop,
	}
	largest := func(vms int) []byte {
		h := crowded(vms)
		for i := range h.VMs {
			vm, claim := &h.VMs[i], &h.Claims[i]
			vm.Settings, vm.Guest, vm.Checkpoints = settings, "Windows 11 Enterprise multi-session", gpu.CheckpointsDisabled
			vm.PartitionAdapters[0] = gpu.PartitionAdapter{ID: vm.ID, PinnedGPU: h.GPUs[0].ID, Quotas: all}
			claim.SettingsBefore, claim.Want.Assignment.Settings = settings, settings
			claim.Want.Assignment.Partition.Quotas = all
		}
		for g := range h.GPUs {
			c := gpu.PartitionConfig{ID: fmt.Sprintf("config-%d", g), Kind: gpu.KindGPUP, Count: 4, GPUs: map[string][]string{}}
			for n := range 1000 {
				name := fmt.Sprintf("hypervisor-%04d.datacenter.corp.example", n)
				c.Scope.Hosts, c.GPUs[name] = append(c.Scope.Hosts, name), []string{h.GPUs[g].ID}
			}
			h.Claims = append(h.Claims, gpu.Claim{Kind: gpu.ClaimConfig, ID: c.ID, Want: gpu.Want{Config: &c}})
		}
		doc, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		return doc
	}
	doc := largest(4000)
	t.Logf("%d bytes, %d values", len(doc), bytes.Count(doc, []byte(","))+bytes.Count(doc, []byte("{"))+bytes.Count(doc, []byte("[")))
	h, err := answered(t, doc)
	if err != nil || len(h.VMs) != 4000 || len(h.Claims) != 4016 || len(h.Unreadable) > 0 {
		t.Errorf("%d VMs, %d claims, %d records that cannot be read, %v", len(h.VMs), len(h.Claims), len(h.Unreadable), err)
	}
	_, err = answered(t, largest(12_000))
	if e, ok := errors.AsType[*agent.Error](err); !ok || e.Code != agent.BadReply || e.Host != host ||
		!strings.Contains(e.Message, "larger than any host's") {
		t.Errorf("a host of three times as much: %v", err)
	}
}

// TestTheLargestChangeIsAccepted: a partition config of 16 GPUs on each of 16 hosts, for a host
// whose 300 VMs all have their claims on other nodes, with all that a claim can have.
func TestTheLargestChangeIsAccepted(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	quota := func() gpu.Quota { n := uint64(1) << 63; return gpu.Quota{Min: &n, Max: &n, Optimal: &n} }
	mib, yes, stop, offline := gpu.FromMiB(33280), true, gpu.StopTurnOff, gpu.OfflineForcedShutdown
	settings := gpu.VMSettings{
		LowMemoryMappedIOSpace: &mib, HighMemoryMappedIOSpace: &mib, GuestControlledCache: &yes, AutomaticStopAction: &stop,
		OfflineAction: &offline,
	}
	id := func(n int) string { return fmt.Sprintf("PCIROOT(%X)#PCI(0200)#PCI(0000)#PCI(1000)#PCI(0000)", n) }
	config := gpu.PartitionConfig{
		ID: "virtual-desktops", Kind: gpu.KindGPUP, Name: "virtual-desktops", Count: 8, GPUs: map[string][]string{host: {}},
		MaxDisruption: gpu.DisruptVMRestart, Restore: true,
	}
	for h := range 16 {
		name := fmt.Sprintf("hypervisor-%02d.datacenter.corp.example", h)
		config.Scope.Hosts = append(config.Scope.Hosts, name)
		for g := range 16 {
			config.GPUs[name] = append(config.GPUs[name], id(g))
		}
	}
	ch := agent.Change{ID: "c", Host: host}
	ch.Change = change.Change{
		Subject: `gpu_partition_config "virtual-desktops"`, Owner: "virtual-desktops-production", Token: "t",
		Want: gpu.Want{Config: &config}, Prior: gpu.Want{Config: &config},
	}
	for n := range 300 {
		vm := fmt.Sprintf("0F1E2D3C-0000-4000-8000-%012X", n)
		a := gpu.Assignment{
			Kind: gpu.AssignPartition,
			VM:   "virtual-desktop-" + vm, VMID: vm, VMName: "virtual-desktop-" + vm, Host: "hypervisor-07.datacenter.corp.example",
			Settings: settings,
			Partition: &gpu.PartitionWant{
				Config: config.ID, VRAM: &mib, PinnedGPU: id(1), Quotas: gpu.Quotas{VRAM: quota(), Encode: quota(), Decode: quota(), Compute: quota()},
			},
			Power: gpu.Power{AllowShutdown: true, ForceShutdown: true, AllowTurnOff: true, StayOff: true, ShutdownTimeout: 1},
		}
		ch.Claims = append(ch.Claims, gpu.Claim{
			Kind: gpu.ClaimAssignment, ID: vm, Token: "ABCDEFGHIJKLMNOPQRSTUVWXYZ", Owner: ch.Owner, Want: gpu.Want{Assignment: &a},
			SettingsBefore: settings, Revision: int64(n),
		})
	}
	doc, err := json.Marshal(ch)
	if err != nil {
		t.Fatal(err)
	}
	values := strings.Count(string(doc), ",") + strings.Count(string(doc), "{") + strings.Count(string(doc), "[")
	t.Logf("%d bytes, %d values", len(doc), values)
	if len(doc) > 1<<19 || values > 60_000/2 {
		t.Errorf("the largest change has %d bytes and %d values: the limits leave it too little room", len(doc), values)
	}
	_, err = agent.NewClient(connectAs(t, r, onlyReads), host).Prepare(t.Context(), ch)
	if e, ok := errors.AsType[*agent.Error](err); ok && e.Code == agent.BadRequest {
		t.Error(err)
	}
	for range 1500 { // and what no host accepts is not sent
		ch.Claims = append(ch.Claims, ch.Claims[0])
	}
	_, err = agent.NewClient(nil, host).Prepare(t.Context(), ch)
	if e, ok := errors.AsType[*agent.Error](err); !ok || e.Code != agent.BadRequest ||
		!strings.Contains(e.Message, "larger than an agent accepts") {
		t.Errorf("%v", err)
	}
}
