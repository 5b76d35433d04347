package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/agent/agentpb"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect" //nolint:depguard // the tests speak through a real connection
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestVersions introduces clients of other versions, and a client to agents of others.
func TestVersions(t *testing.T) {
	t.Parallel()
	const p = int32(agent.Protocol)
	r := newRig(t, nil)
	for name, tt := range map[string]struct {
		newest, oldest int32
		speaks         int32  // 0 for none
		says           string // what then is to be done
	}{
		"same":                       {newest: p, oldest: agent.OldestProtocol, speaks: p},
		"before there was a range":   {newest: p, speaks: p},
		"newer, speaks this one too": {newest: p + 3, oldest: p, speaks: p},
		"newer":                      {newest: p + 3, oldest: p + 1, says: "upgrade the agent to version v9.9"},
		"newer, without a range":     {newest: 99, says: "upgrade the agent to version v9.9"},
		"older":                      {newest: agent.OldestProtocol - 1, says: "upgrade the client to version unknown"},
	} {
		t.Run("client, "+name, func(t *testing.T) {
			h, err := agentpb.NewAgentClient(connectAs(t, r, onlyReads)).
				Hello(t.Context(), &agentpb.HelloRequest{Protocol: tt.newest, OldestProtocol: tt.oldest, ClientVersion: "v9.9"})
			if tt.speaks != 0 {
				if err != nil || h.GetProtocol() != tt.speaks {
					t.Errorf("speaks %d, %v; want %d", h.GetProtocol(), err, tt.speaks)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), fmt.Sprint(tt.newest)) {
				t.Errorf("%v, want %q", err, tt.says)
			}
		})
	}
	for _, protocol := range []int32{agent.OldestProtocol - 1, p + 1} {
		t.Run(fmt.Sprintf("agent of protocol %d", protocol), func(t *testing.T) {
			c := agent.NewClient(overriding(connectAs(t, r, onlyReads), func(reply any) {
				reply.(*agentpb.HelloReply).Protocol = protocol //nolint:forcetypeassert // of a test
			}), host)
			_, err := c.Hello(t.Context())
			wantCode(t, err, agent.VersionMismatch)
		})
	}
}

// overriding is a connection whose answers are edited on the way, as another version of the
// agent would have sent them.
func overriding(conn grpc.ClientConnInterface, edit func(reply any)) grpc.ClientConnInterface {
	return edited{ClientConnInterface: conn, edit: edit}
}

type edited struct {
	grpc.ClientConnInterface
	edit func(any)
}

func (e edited) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	err := e.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
	if err == nil {
		e.edit(reply)
	}
	return err
}

// everything is a change that uses nearly all that there is.
func everything() agent.Change {
	mib, yes, stop, offline := gpu.FromMiB(33280), true, gpu.StopTurnOff, gpu.OfflineForcedShutdown
	quota := func() gpu.Quota { n := uint64(7); return gpu.Quota{Min: &n, Max: &n, Optimal: &n} }
	a := gpu.Assignment{
		Kind: gpu.AssignPartition,
		VM:   off1, VMID: off1, Host: host, Power: gpu.Power{AllowShutdown: true, NextOff: true, ShutdownTimeout: 1},
		Settings:  gpu.VMSettings{LowMemoryMappedIOSpace: &mib, GuestControlledCache: &yes, AutomaticStopAction: &stop, OfflineAction: &offline},
		Partition: &gpu.PartitionWant{Config: "c", VRAM: &mib, PinnedGPU: gpuP1, Quotas: gpu.Quotas{VRAM: quota(), Encode: quota()}},
	}
	config := gpu.PartitionConfig{
		ID: "c", Kind: gpu.KindMIG, Name: "c", Scope: gpu.Scope{
			Hosts: []string{host}, Selector: &gpu.Selector{Models: []string{"m"}, GPUIDs: map[string][]string{host: {gpuP1}}},
		},
		MIG: &gpu.MIGLayout{Profiles: map[string]int{"1g.5gb": 1}}, QuiesceUnits: []string{"dcgm.service"},
		GPUs:          map[string][]string{host: {gpuP1}},
		MaxDisruption: gpu.DisruptVMRestart, Drain: true, Restore: true,
	}
	ch := agent.Change{ID: "c", Host: host}
	ch.Subject, ch.Owner, ch.Token = "test", owner, "t"
	ch.Want, ch.Prior = gpu.Want{Assignment: &a}, gpu.Want{Share: &gpu.Share{Name: "s", Host: host, Count: 7}}
	ch.Claims = []gpu.Claim{{
		Kind: gpu.ClaimConfig, ID: "c", Token: "x", Want: gpu.Want{Config: &config},
		OriginalLayouts: gpu.Layouts{gpuP1: {MIG: &gpu.MIGState{}, ComputeMode: gpu.ComputeDefault}},
		AppliedLayouts:  gpu.Layouts{gpuP1: {Partitions: 4}}, HeldUntilOff: &a,
	}}
	return ch
}

// TestWhatAnAgentDoesNotKnowIsRefused takes a change that a client can send and, at every place
// of it, adds a field, writes one twice, or writes its name in another case.
func TestWhatAnAgentDoesNotKnowIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	before := r.look()
	doc, err := json.Marshal(everything())
	check(t, err)
	if err := sendChange(t, r, string(doc)); err != nil && strings.Contains(err.Error(), "does not know") {
		t.Fatalf("what a client of this version sends is refused: %v", err)
	}
	refused := func(doc []byte, code agent.Code, says ...string) {
		t.Helper()
		err := sendChange(t, r, string(doc))
		e, ok := errors.AsType[*agent.Error](err)
		if !ok || e.Code != code {
			t.Errorf("%v, want an error with code %s for\n%s", err, code, doc)
			return
		}
		for _, s := range says {
			if !strings.Contains(e.Message, s) {
				t.Errorf("%q does not say %q", e.Message, s)
			}
		}
	}
	objects := 0
	for i, b := range doc {
		if b != '{' {
			continue
		}
		objects++
		insert := func(text string) []byte {
			if doc[i+1] == '}' {
				text = strings.TrimSuffix(text, ",")
			}
			return slices.Concat(doc[:i+1], []byte(text), doc[i+1:])
		}
		inMap := []string{"gpu_ids", "gpus", "profiles", "before", "given"}
		owner := regexpField(doc[:i])
		if slices.Contains(inMap, owner) {
			continue
		}
		refused(insert(`"never_stop_a_vm":true,`), agent.VersionMismatch, "this agent (version unknown)", `never_stop_a_vm"`, "upgrade it")
		name, _, isField := strings.Cut(string(doc[i+2:]), `"`)
		if !isField || doc[i+1] == '}' {
			continue
		}
		refused(insert(fmt.Sprintf("%q:null,", name)), agent.BadRequest, name, "twice")
		refused(insert(fmt.Sprintf("%q:null,", strings.ToUpper(name))), agent.VersionMismatch, strings.ToUpper(name))
	}
	if objects < 20 {
		t.Errorf("only %d objects", objects)
	}
	refused(append(bytes.Clone(doc), " {}"...), agent.BadRequest, "after top-level value")
	refused(bytes.Replace(doc, []byte(`"max_disruption":"vm_restart"`), []byte(`"max_disruption":"vm_pause"`), 1), agent.VersionMismatch,
		`"claims[0].want.partition_config.max_disruption=vm_pause"`)
	wantSame(t, before, r.look())
}

// regexpField is the name of the field whose value begins where a document was cut.
func regexpField(doc []byte) string {
	parts := strings.Split(string(doc), `"`)
	if !strings.HasSuffix(string(doc), `":`) || len(parts) < 2 {
		return ""
	}
	return parts[len(parts)-2]
}

// TestFieldsOfCallsThatAnAgentDoesNotKnowAreRefused sends each call of the service with a field
// that only a later version has. Hello is answered: how else would the client hear of it?
func TestFieldsOfCallsThatAnAgentDoesNotKnowAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	before := r.look()
	newer := protowire.AppendVarint(protowire.AppendTag(nil, 77, protowire.VarintType), 1)
	for _, method := range rpcs(t) {
		t.Run(string(method.Name()), func(t *testing.T) {
			err := callWith(t, connectAs(t, r, func(context.Context) (agent.Role, error) { return agent.Operator, nil }),
				method, func(m proto.Message) { m.ProtoReflect().SetUnknown(newer) })
			if method.Name() == "Hello" {
				if err == nil || !strings.Contains(err.Error(), "speaks protocol 0") { // an empty request
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), "does not know field 77 of the "+string(method.Input().Name())) {
				t.Errorf("%v", err)
			}
		})
	}
	wantSame(t, before, r.look())
}

// TestCapabilities holds what Hello says against what the agent then does: a change is refused
// for a field exactly when the field is none of them.
func TestCapabilities(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	h, err := agent.NewClient(connectAs(t, r, onlyReads), host).Hello(t.Context())
	check(t, err)
	if lacks := h.Lacks(); len(lacks) > 0 {
		t.Errorf("the agent of this version lacks %q", lacks)
	}
	asks := agent.Asks(everything())
	for _, want := range []string{
		"want.vm_assignment.power.next_off", "want.partition_config.drain", "want.partition_config.mig",
		"want.partition_config.max_disruption=vm_restart", "want.share", "claims",
	} {
		if !slices.Contains(asks, want) {
			t.Errorf("%s is not in %q", want, asks)
		}
	}
	if n := len(strings.Join(h.Capabilities, "")); n > 8<<10 {
		t.Errorf("the capabilities have %d bytes", n)
	}
	older := h
	older.Capabilities = slices.DeleteFunc(slices.Clone(h.Capabilities), func(c string) bool {
		return strings.HasPrefix(c, "want.partition_config.mig") || c == "want.partition_config.max_disruption=vm_restart"
	})
	if got, want := older.Lacks(), []string{"want.partition_config.mig", "want.partition_config.max_disruption=vm_restart"}; !slices.Equal(got,
		want) {
		t.Errorf("it lacks %q, want %q", got, want)
	}
	if none := (agent.Hello{}).Lacks(); len(none) > 0 {
		t.Errorf("an agent that nobody asked lacks %q", none)
	}
}

// TestAnswersOfANewerAgent adds what this client does not know to answers. What only informs is
// read without it, a claim is not read in part, and by what a change would do the client does
// not decide.
func TestAnswersOfANewerAgent(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.done(assign("a", "vm3", nil, partitionOf(off1, nil)))
	edit := func(t *testing.T, doc *[]byte, change func(map[string]any)) {
		t.Helper()
		m := map[string]any{}
		check(t, json.Unmarshal(*doc, &m))
		change(m)
		var err error
		*doc, err = json.Marshal(m)
		check(t, err)
	}
	newer := func(t *testing.T, change func(map[string]any)) *agent.Client {
		return agent.NewClient(overriding(connectAs(t, r, onlyReads), func(reply any) {
			switch m := reply.(type) {
			case *agentpb.InventoryReply:
				edit(t, &m.Host, change)
			case *agentpb.PrepareReply:
				edit(t, &m.Prepared, change)
			}
		}), host, agent.WithHello(agent.Hello{Protocol: agent.Protocol, AgentVersion: "9.9"}))
	}
	claims := func(m map[string]any) []any { return m["claims"].([]any) } //nolint:forcetypeassert // of a test
	want, err := r.Inventory(t.Context())
	check(t, err)

	got, err := newer(t, func(m map[string]any) { m["mood"] = "good" }).Inventory(t.Context())
	check(t, err)
	wantSame(t, want, got)

	got, err = newer(t, func(m map[string]any) {
		maps.Copy(claims(m)[0].(map[string]any), map[string]any{"protected_until": "2027"}) //nolint:forcetypeassert // of a test
	}).Inventory(t.Context())
	check(t, err)
	if len(got.Claims) != len(want.Claims)-1 || len(got.Unreadable) != 1 || !got.Unreadable[0].Newer ||
		!strings.Contains(got.Unreadable[0].String(), "protected_until") {
		t.Errorf("claims %v, unreadable %v", got.Claims, got.Unreadable)
	}

	for field, value := range map[string]any{"stops_containers": []string{"x"}, "disruption": "host_reboot"} {
		_, err := newer(t, func(m map[string]any) { m[field] = value }).Prepare(t.Context(), assign("b", "vm4", nil, partitionOf(off2, nil)))
		if e, ok := errors.AsType[*agent.Error](err); !ok || e.Code != agent.VersionMismatch || !strings.Contains(e.Message, field) ||
			!strings.Contains(e.Message, "9.9") || !strings.Contains(e.Message, "upgrade the client") {
			t.Errorf("%v", err)
		}
	}
}

// TestConnectionGone calls a host whose connection is closed.
// TestConnectionGone calls a host whose connection is closed.
func TestConnectionGone(t *testing.T) {
	r := newRig(t, nil)
	check(t, r.Close())
	check(t, r.Close()) // twice is fine
	_, err := r.Inventory(t.Context())
	var e *agent.Error
	if !errors.As(err, &e) || e.Host != host {
		t.Fatalf("error = %v", err)
	}
	_, err = r.Client.Apply(t.Context(), r.fence, assign("a", "t", nil, partitionOf(off1, nil)), "", nil)
	if !errors.As(err, &e) || e.Outcome != nil {
		t.Errorf("error = %v", err)
	}
}

// TestNoServer calls a server that does not speak the contract.
func TestNoServer(t *testing.T) {
	conn, err := connect.InProcess()
	check(t, err)
	c := agent.NewClient(conn, host)
	t.Cleanup(func() { _ = c.Close() })
	_, err = c.Hello(t.Context())
	wantCode(t, err, agent.VersionMismatch)
}
