package fleet_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// pooled makes a connection one to a Linux host with a GPU of 40 GiB, in MPS and in the
// pool "a/ml" of hosts, on which shares of so many MiB are.
func pooled(c *conn, hosts []string, shares map[string]int64) {
	config := gpu.PartitionConfig{
		ID: "mps", Kind: gpu.KindMPS, GPUs: map[string][]string{c.host.Name: {"g"}}, MPS: &gpu.MPSLayout{MultiUser: true},
	}
	pool := gpu.PoolConfig{ID: "a/ml", Name: "ml", Scope: gpu.Scope{Hosts: hosts}, Members: map[string][]string{c.host.Name: {"g"}}}
	c.host = gpu.Host{
		Name: c.host.Name, Platform: gpu.Linux, MPS: &gpu.MPSHost{Program: "/usr/bin/nvidia-cuda-mps-control"},
		GPUs: []gpu.GPU{
			{
				ID: "g", Model: "NVIDIA L40S", Vendor: "NVIDIA", VRAM: 40 * 1024 * gpu.MiB, ComputeMode: gpu.ComputeExclusiveProcess,
				ComputeCapability: "8.9",
			},
		},
		Claims: []gpu.Claim{
			{Kind: gpu.ClaimConfig, ID: "mps", Token: "config", Owner: "test", Want: gpu.Want{Config: &config}, GPUs: []string{"g"}},
			{Kind: gpu.ClaimPool, ID: "ml", Token: "pool", Owner: "test", Want: gpu.Want{Pool: &pool}, GPUs: []string{"g"}},
		},
	}
	for name, mib := range shares {
		s := drawn(name, mib)
		s.Host, s.Devices = c.host.Name, []gpu.SharedDevice{{GPU: "g"}}
		c.host.Claims = append(c.host.Claims, gpu.Claim{
			Kind: gpu.ClaimShare, ID: name, Token: "of " + name, Owner: "test", Want: gpu.Want{Share: &s}, GPUs: []string{"g"},
		})
	}
	c.left = &agent.Prepared{Steps: []change.Step{{Op: change.OpWriteShare}}}
}

func drawn(name string, mib int64) gpu.Share {
	return gpu.Share{Name: name, Pool: "a/ml", Count: 1, MemoryRequest: gpu.FromMiB(mib), MemoryLimit: gpu.FromMiB(mib)}
}

func TestShareOfAPoolGoesToAHost(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c"}
	noRoom := func(c *conn) {
		c.left = &agent.Prepared{
			Findings: []rules.Finding{{Rule: "share-placement", Level: rules.Error, Title: "The share does not fit", Host: c.host.Name}},
		}
	}
	cases := map[string]struct {
		// on are the shares of each host.
		on      map[string]map[string]int64
		arrange func(map[string]*conn)
		share   gpu.Share
		host    string   // that takes it
		begun   []string // hosts whose lease was taken, in this order
		says    string   // the error
	}{
		"the fullest with room": {
			on:    map[string]map[string]int64{"a": {"x": 4096}, "b": {"y": 20480}, "c": {"z": 36864}},
			share: drawn("s", 8192), host: "b", begun: []string{"b"},
		},
		"the next one when that refuses": {
			on:      map[string]map[string]int64{"a": {"x": 4096}, "b": {"y": 20480}},
			arrange: func(m map[string]*conn) { noRoom(m["b"]) },
			share:   drawn("s", 8192), host: "a", begun: []string{"b", "a"},
		},
		"none when all refuse": {
			arrange: func(m map[string]*conn) { noRoom(m["a"]); noRoom(m["b"]); noRoom(m["c"]) },
			share:   drawn("s", 8192), begun: []string{"a", "b", "c"}, says: "The share does not fit",
		},
		"none when a host fails": {
			arrange: func(m map[string]*conn) {
				m["a"].apply = func(agent.Change) (agent.Outcome, error) {
					return agent.Outcome{}, &agent.Error{
						Code: agent.StepFailed, Outcome: &agent.Outcome{RolledBack: true},
						Cause: &backend.Error{Code: backend.Insufficient, Detail: "no space left on device"},
					}
				}
			},
			share: drawn("s", 8192), begun: []string{"a"}, says: "no space left on device",
		},
		"none when a host is held by another run": {
			arrange: func(m map[string]*conn) {
				m["a"].lease = func() error { return &agent.Error{Code: agent.LeaseHeld, Message: "another run has it"} }
			},
			share: drawn("s", 8192), begun: []string{"a"}, says: "another run has it",
		},
		"none without room, and nobody is asked": {
			on:    map[string]map[string]int64{"a": {"x": 36864}, "b": {"y": 36864}, "c": {"z": 36864}},
			share: drawn("s", 8192), says: "left beside",
		},
		"none when the hosts are silent": {
			arrange: func(m map[string]*conn) {
				for _, c := range m {
					c.inventory = func() error { return &agent.Error{Code: agent.Unavailable, Message: "no answer"} }
				}
			},
			share: drawn("s", 8192), says: "no answer",
		},
		"an answering one when another is silent": {
			arrange: func(m map[string]*conn) {
				m["a"].inventory = func() error { return &agent.Error{Code: agent.Unavailable, Message: "no answer"} }
			},
			share: drawn("s", 8192), host: "b", begun: []string{"b"},
		},
		"where a share of its name is already": {
			on:    map[string]map[string]int64{"b": {"y": 20480}, "c": {"s": 4096}},
			share: drawn("s", 8192), host: "c", begun: []string{"c"},
		},
		"its own when it is placed": {
			share: func() gpu.Share { s := drawn("s", 8192); s.Host = "c"; return s }(), host: "c", begun: []string{"c"},
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, conns := hosts(t, fleet.Options{Owner: "test"}, names...)
			for n, c := range conns {
				pooled(c, names, test.on[n])
			}
			var begun []string
			if test.arrange != nil {
				test.arrange(conns)
			}
			for n, c := range conns {
				lease := c.lease
				c.lease = func() error {
					begun = append(begun, n)
					if lease != nil {
						return lease()
					}
					return nil
				}
			}
			host, _, err := f.ApplyShare(context.Background(), fleet.Request{
				Change: change.Change{Subject: "gpu_share s", Token: "new", Want: gpu.Want{Share: &test.share}},
			})
			if test.says == "" && (err != nil || host != test.host) || test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
				t.Errorf("it is on %q with the error %v, want %q with %q", host, err, test.host, test.says)
			}
			if begun = slices.Compact(begun); !slices.Equal(begun, test.begun) { // a lease that another run has is asked for twice
				t.Errorf("the hosts %v were begun, want %v", begun, test.begun)
			}
			var failure *fleet.Failure
			if err != nil && (!errors.As(err, &failure) || !failure.Clean()) {
				t.Errorf("the error is not one that left nothing: %+v", err)
			}
		})
	}
}

// The claim of a pool whose members were declared one by one knows its own host alone.
func TestHostsOfAPool(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		scope []string
		want  []string
		looks map[string]int
	}{
		"declared by hosts":   {[]string{"a", "b"}, []string{"a", "b"}, map[string]int{"a": 1, "b": 0, "c": 0}},
		"declared GPU by GPU": {nil, []string{"a", "b", "c"}, map[string]int{"a": 1, "b": 0, "c": 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, conns := hosts(t, fleet.Options{Owner: "test"}, "a", "b", "c")
			for _, c := range conns {
				pooled(c, test.scope, nil)
			}
			if got := f.PoolHosts(t.Context(), "a/ml"); !slices.Equal(got, test.want) {
				t.Errorf("the pool is on %v, want %v", got, test.want)
			}
			for n, want := range test.looks {
				if got := conns[n].times("inventory"); got != want {
					t.Errorf("%s was looked at %d times, want %d", n, got, want)
				}
			}
		})
	}
	f, conns := hosts(t, fleet.Options{Owner: "test"}, "a", "b", "c")
	planned := gpu.PoolConfig{ID: "a/ml", Name: "ml", Members: map[string][]string{"c": {"g"}, "b": {"g"}}}
	f.Record("one", fleet.View{}, change.Change{Token: "one", Want: gpu.Want{Pool: &planned}})
	if got := f.PoolHosts(t.Context(), "a/ml"); !slices.Equal(got, []string{"b", "c"}) || conns["a"].times("inventory") > 0 {
		t.Errorf("the pool is planned on %v, and a was looked at %d times", got, conns["a"].times("inventory"))
	}
}
