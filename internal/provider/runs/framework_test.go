package runs_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/core"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/empty"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider"
)

// Of the allocations of the empty resource, little more than what was measured: 0.16 and 0.12.
const (
	mostOfNew       = 0.18
	mostOfUnchanged = 0.14
)

// TestCostsBesideTheFramework counts what validating and planning a new assignment, and doing so, upgrading and reading one
// with nothing to do, allocates, beside an empty resource with the same attributes on the framework as it comes.
func TestCostsBesideTheFramework(t *testing.T) {
	const vms = 16
	host := rig.Node("hv01")
	var names []string
	for n := range vms {
		names = append(names, fmt.Sprintf("avd-%02d", n+1))
		host.VMs = append(host.VMs, rig.Off(rig.Desktop(names[n], n+1)))
	}
	r := rig.New(t, rig.Standalone(host))
	var bare strings.Builder
	for n := range vms {
		fmt.Fprintf(&bare, "resource \"empty_assignment\" \"x%d\" {\n  vm        = \"%d\"\n  partition = {}\n}\n", n, n)
	}
	made, ours := planned(t, "gpu", r.Block()+rig.ConfigOf(16, []string{"hv01"})+
		rig.AssignAll(names, "  depends_on = [gpu_partition_config.vdi]\n"), func() (tfprotov6.ProviderServer, error) {
		server, err := provider.Server("test", nil, provider.WithPatience(rig.Patience))
		if err != nil {
			return nil, err
		}
		return server(), nil
	})
	empties, framework := planned(t, "empty", bare.String(), providerserver.NewProtocol6WithError(empty.Provider{}))
	for _, x := range []struct {
		what         string
		ours, theirs uint64
		most         float64
	}{{"that are new", made, empties, mostOfNew}, {"with nothing to do", ours, framework, mostOfUnchanged}} {
		t.Logf("allocations of %d assignments %s: %d, and of as many empty resources: %d (%.2f times)",
			vms, x.what, x.ours, x.theirs, float64(x.ours)/float64(x.theirs))
		if float64(x.ours) > x.most*float64(x.theirs) {
			t.Errorf("assignments %s make over %.2f times the allocations of an empty resource", x.what, x.most)
		}
	}
}

// planned returns what the provider allocates of a plan for assignments, and empty ones, before a
// configuration is applied and after it.
func planned(t *testing.T, name, config string, serve core.Factory) (first, again uint64) {
	t.Helper()
	var allocations atomic.Uint64
	terminal, err := core.NewTerminal(t.Context(), map[string]core.Factory{name: func() (tfprotov6.ProviderServer, error) {
		s, err := serve()
		return &counted{ProviderServer: s, allocations: &allocations}, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	c := &rig.CLI{T: t, Terminal: terminal}
	c.Write(config)
	c.Ok("plan", "-parallelism=1")
	first = allocations.Load()
	c.Apply("-parallelism=1")
	allocations.Store(0)
	c.Ok("plan", "-parallelism=1", "-detailed-exitcode")
	return first, allocations.Load()
}

// counted counts what assignments allocate while one at a time is validated, upgraded, read and planned.
type counted struct {
	tfprotov6.ProviderServer
	allocations *atomic.Uint64
}

func (s *counted) of(kind string) func() {
	if !strings.HasSuffix(kind, "_assignment") {
		return func() {}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	return func() {
		runtime.ReadMemStats(&after)
		s.allocations.Add(after.Mallocs - before.Mallocs)
	}
}

func (s *counted) ReadResource(ctx context.Context, r *tfprotov6.ReadResourceRequest) (*tfprotov6.ReadResourceResponse, error) {
	defer s.of(r.TypeName)()
	return s.ProviderServer.ReadResource(ctx, r)
}

func (s *counted) UpgradeResourceState(ctx context.Context,
	r *tfprotov6.UpgradeResourceStateRequest,
) (*tfprotov6.UpgradeResourceStateResponse, error) {
	defer s.of(r.TypeName)()
	return s.ProviderServer.UpgradeResourceState(ctx, r)
}

func (s *counted) ValidateResourceConfig(ctx context.Context,
	r *tfprotov6.ValidateResourceConfigRequest,
) (*tfprotov6.ValidateResourceConfigResponse, error) {
	defer s.of(r.TypeName)()
	return s.ProviderServer.ValidateResourceConfig(ctx, r)
}

func (s *counted) PlanResourceChange(ctx context.Context, r *tfprotov6.PlanResourceChangeRequest) (*tfprotov6.PlanResourceChangeResponse,
	error,
) {
	defer s.of(r.TypeName)()
	return s.ProviderServer.PlanResourceChange(ctx, r)
}
