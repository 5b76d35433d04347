package provider_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"
	"golang.org/x/sync/errgroup"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider"
)

func TestHostThatLeavesIsGivenUpAsDeclared(t *testing.T) {
	t.Parallel()
	for onDestroy, want := range map[string]int{"keep": 4, "restore": 16} {
		t.Run(onDestroy, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.TwoNodes())
			r.Steps(
				resource.TestStep{Config: r.Block() + rig.Config4},
				resource.TestStep{
					Config:           r.Block() + rig.ConfigOf(4, []string{"hv01"}, fmt.Sprintf("on_destroy = %q", onDestroy)),
					ConfigPlanChecks: rig.Planned(rig.VDI, plancheck.ResourceActionUpdate),
					ConfigStateChecks: []statecheck.StateCheck{
						statecheck.ExpectKnownValue(rig.VDI, tfjsonpath.New("gpus"), knownvalue.MapSizeExact(1)),
					},
					Check: rig.Then(func() {
						r.WantCounts(4, "hv01")
						r.WantCounts(want, "hv02")
						r.WantClaims([]string{"hv01"}, "partition_config vdi")
						r.WantClaims([]string{"hv02"})
						r.WantSettled()
					}),
				},
			)
		})
	}
}

func TestHostThatJoinsGetsTheLayoutAndOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.Steps(
		resource.TestStep{Config: r.Block() + rig.ConfigOf(4, []string{"hv01"}), Check: rig.Then(func() { r.WantCounts(16, "hv02") })},
		resource.TestStep{
			PreConfig:        func() { r.Fail("hv01", simulated.OpSetPartitionCount, "", 0, 0) },
			Config:           r.Block() + rig.Config4,
			ConfigPlanChecks: rig.Planned(rig.VDI, plancheck.ResourceActionUpdate),
			Check: rig.Then(func() {
				r.WantCounts(4, rig.Both...)
				r.WantClaims(rig.Both, "partition_config vdi")
				if before := r.Host("hv02").Claims[0].OriginalLayouts; before.Of(rig.GPU0).Partitions != 16 {
					t.Errorf("what hv02 had before is recorded as %v", before)
				}
			}),
		},
	)
}

func TestHostThatIsDecommissionedIsRemovedFromConfigAndProviderAtOnce(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Standalone(rig.Node("hv01"), rig.Node("hv02")))
	c := rig.NewCLI(t, r.BlockFor(rig.Both)+rig.Config4)
	c.Apply()
	r.Silent(true, "hv02") // dead
	c.Write(r.BlockFor([]string{"hv01"}) + rig.ConfigOf(4, []string{"hv01"}, `on_destroy = "restore"`))
	out := c.Apply()
	rig.WantSaid(t, out, "0 added, 1 changed, 0 destroyed", "Warning: The host was left unchanged", "Host: hv02")
	c.WantNoChanges()
	if out := c.Ok("plan"); strings.Contains(out, "hv02") {
		t.Errorf("a host that is gone is still spoken of:\n%s", out)
	}
	c.Destroy()
	r.WantCounts(16, "hv01")
}

func TestHostThatIsRemovedFromTheProviderAloneIsKeptInTheState(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Standalone(rig.Node("hv01"), rig.Node("hv02")))
	c := rig.NewCLI(t, r.BlockFor(rig.Both)+rig.Config4)
	c.Apply()
	c.Write(r.BlockFor([]string{"hv01"}) + rig.Config4)
	rig.WantSaid(t, c.Ok("plan", "-detailed-exitcode"), "Warning: Host is not in the provider's configuration", "Host: hv02", "No changes.")
	c.Write(r.BlockFor([]string{"hv01"}) + rig.ConfigOf(8, rig.Both))
	rig.WantSaid(t, c.Fails("plan"), `"hv02" is not a host of the provider, which knows hv01`)
	c.Write(r.BlockFor(rig.Both) + rig.Config4)
	c.WantNoChanges()
}

func TestHostThatDoesNotAnswerIsAnErrorAndKeepsTheState(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.Steps(
		resource.TestStep{Config: r.Block() + rig.Config4},
		resource.TestStep{
			PreConfig:   func() { r.Silent(true, "hv02") },
			Config:      r.Block() + rig.Config4,
			PlanOnly:    true,
			ExpectError: rig.Says("Host: hv02"),
		},
		resource.TestStep{
			PreConfig: func() { r.Silent(false, "hv02") },
			Config:    r.Block() + rig.Config4,
			PlanOnly:  true,
		},
	)
	r.WantClaims(rig.Both) // the destroy at the end knew both hosts
}

func TestHostThatDoesNotAnswerIsKeptOnDemandButNotForALayoutChange(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	keep := r.Block(`on_unreachable = "keep"`)
	byCluster := func(count int) string {
		return strings.Replace(rig.ConfigOf(count, rig.Both), `hosts = ["hv01", "hv02"]`, `cluster = "azl"`, 1)
	}
	c := rig.NewCLI(t, keep+byCluster(4))
	c.Apply()
	r.WantCounts(4, rig.Both...)
	r.Silent(true, "hv02")
	rig.WantSaid(t, c.Ok("plan", "-detailed-exitcode"), "Warning: Host does not answer", "Host: hv02", "No changes.")

	before := r.File()
	c.Write(keep + byCluster(8))
	rig.WantSaid(t, c.Fails("plan"), "Layout cannot change while a host does not answer", "Host: hv02")
	r.WantUntouched(before)

	r.Silent(false, "hv02")
	c.Apply()
	r.WantCounts(8, rig.Both...)
	c.WantNoChanges()
}

// keep is for hosts that cannot be reached: one that answers without its platform is there.
func TestHostThatAnswersIsNotGivenUp(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	c := rig.NewCLI(t, r.Block(`on_unreachable = "keep"`)+rig.ConfigOf(4, rig.Both))
	c.Apply()
	r.Must(r.Fleet.InjectFault(t.Context(), "hv02", simulated.Fault{
		Op: simulated.OpInventory, Code: backend.NotSupported, Detail: "The host has no driver",
	}))
	for _, args := range [][]string{{"plan"}, {"destroy", "-auto-approve"}} {
		rig.WantSaid(t, c.Fails(args...), "Host answers, but cannot be read", "Host: hv02", "The host has no driver", "does not lift this")
	}
	rig.WantSaid(t, c.Fails("destroy", "-auto-approve", "-refresh=false"), "Host: hv02", "The host has no driver")
	r.ClearFaults("hv02")
	r.WantCounts(4, rig.Both...)
	r.WantClaims(rig.Both, "partition_config vdi")
	c.WantNoChanges()
}

// Shrinking below the VMs that have an adapter is said, also while they are off.
func TestShrinkingBelowVMsThatAreOff(t *testing.T) {
	t.Parallel()
	h := rig.Node("hv01", rig.Off(rig.Desktop("avd-01", 1)), rig.Off(rig.Desktop("avd-02", 2)), rig.Off(rig.Desktop("avd-03", 3)))
	h.GPUs = h.GPUs[:1]
	r := rig.New(t, rig.Standalone(h))
	config := func(count int) string {
		text := r.Block() + rig.ConfigOf(count, []string{"hv01"})
		for _, vm := range []string{"avd-01", "avd-02", "avd-03"} {
			text += rig.Assign(vm, "allow_shutdown = true")
		}
		return text
	}
	c := rig.NewCLI(t, config(4))
	c.Apply()
	c.Write(config(2))
	rig.WantSaid(t, c.Ok("plan"), "More VMs than partitions", `3 partitions are configured for 3 VMs: "avd-01", "avd-02" and "avd-03"`,
		"leaves 2 partitions")
	c.Apply()
	r.WantCounts(2, "hv01")
	r.WantHeld(gpu.VMOff, "avd-01", "avd-02", "avd-03")
	c.WantNoChanges()
}

func TestNodeThatLeavesTheClusterIsGivenUp(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.FourNodes())
	config := strings.Replace(rig.ConfigOf(4, rig.Both, `on_destroy = "restore"`), `hosts = ["hv01", "hv02"]`, `cluster = "azl"`, 1)
	r.Steps(
		resource.TestStep{Config: r.Block() + config, Check: rig.Then(func() { r.WantCounts(4, rig.Four...) })},
		resource.TestStep{
			PreConfig: func() { // hv04 is evicted
				r.Must(r.Fleet.Edit(context.Background(), func(s *gpu.Snapshot) error {
					for i := range s.Hosts {
						s.Hosts[i].Cluster.Nodes = s.Hosts[i].Cluster.Nodes[:3]
					}
					s.Hosts[3].Cluster = nil
					return nil
				}))
			},
			Config:           r.Block() + config,
			ConfigPlanChecks: rig.Planned(rig.VDI, plancheck.ResourceActionUpdate),
			Check: rig.Then(func() {
				r.WantCounts(4, "hv01", "hv02", "hv03")
				r.WantCounts(16, "hv04")
				r.WantClaims([]string{"hv04"})
			}),
		},
	)
}

func TestReadOnlyProviderPlansAndRefusesToApply(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	before := r.File()
	r.Steps(
		resource.TestStep{Config: r.Block("read_only = true") + rig.Config4, PlanOnly: true, ExpectNonEmptyPlan: true},
		resource.TestStep{Config: r.Block("read_only = true") + rig.Config4, ExpectError: rig.Says("The provider is read-only")},
	)
	c := rig.NewCLI(t, r.Block("read_only = true")+rig.Config4+rig.Assign("avd-01", "allow_shutdown = true"))
	if out := c.Ok("plan"); strings.Count(out, "Warning: The apply will be refused") != 1 {
		t.Errorf("the plan does not say once that its apply will be refused:\n%s", out)
	}
	r.WantUntouched(before)
}

func TestRecordedInventoryProvesAPlanWithoutTheHosts(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "recorded.json")
	record := func(s gpu.Snapshot) {
		doc, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		rig.Write(t, file, string(doc))
	}
	r := rig.New(t, rig.TwoNodes())
	block := fmt.Sprintf("provider \"gpu\" {\n  owner = \"test\"\n  inventory_snapshot = %q\n}\n", file)
	record(rig.TwoNodes())
	r.Steps(
		resource.TestStep{Config: block + rig.HeldConfig(4), PlanOnly: true, ExpectNonEmptyPlan: true},
		resource.TestStep{Config: block + rig.HeldConfig(4), ExpectError: rig.Says("The provider plans against the recorded inventory")},
		resource.TestStep{
			PreConfig: func() { record(rig.MixedNodes()) }, Config: block + rig.Config4, PlanOnly: true,
			ExpectError: rig.Says("GPUs of different models"),
		},
	)
}

// TestThousandAssignmentsNeedOneInventoryOfEachHost plans four hosts with 250 VMs
// each as Terraform does: the config first, then ten assignments at a time.
func TestThousandAssignmentsNeedOneInventoryOfEachHost(t *testing.T) {
	t.Parallel()
	each := 250
	if testing.Short() {
		each = 25
	}
	var nodes []gpu.Host
	for h := range rig.Four {
		n := rig.Node(rig.Four[h])
		for v := range each {
			n.VMs = append(n.VMs, rig.Off(rig.Desktop(fmt.Sprintf("avd-%d-%03d", h, v), h*each+v+1)))
		}
		nodes = append(nodes, n)
	}
	r := rig.New(t, rig.Cluster("azl", nodes...))
	before := r.File()
	p := protocolOf(r)
	text := func(s string) tftypes.Value { return tftypes.NewValue(tftypes.String, s) }
	began := time.Now()
	p.planCreate("gpu_partition_config", map[string]any{
		"name": text("vdi"),
		"hosts": tftypes.NewValue(tftypes.Set{ElementType: tftypes.String},
			[]tftypes.Value{text("hv01"), text("hv02"), text("hv03"), text("hv04")}),
		"gpu_p": map[string]any{"partition_count": tftypes.NewValue(tftypes.Number, 16)},
	})
	var g errgroup.Group
	g.SetLimit(10)
	for _, n := range nodes {
		for _, vm := range n.VMs {
			g.Go(func() error {
				p.planCreate("gpu_vm_assignment", map[string]any{"vm": text(vm.Name), "partition": map[string]any{"config": text("vdi")}})
				return nil
			})
		}
	}
	_ = g.Wait() // planCreate reports to the test
	t.Logf("planning %d assignments took %s", len(nodes)*each, time.Since(began).Round(time.Millisecond))
	if calls := fmt.Sprint(r.Calls.Take()); calls != "map[hv01:map[Inventory:1] hv02:map[Inventory:1] hv03:map[Inventory:1] "+
		"hv04:map[Inventory:1]]" {
		t.Errorf("the plan made the calls %s, want one inventory of each host", calls)
	}
	r.WantUntouched(before)
}

// protocol speaks to a provider without a CLI.
type protocol struct {
	t       *testing.T
	server  tfprotov6.ProviderServer
	schemas map[string]*tfprotov6.Schema
}

// protocol starts a provider for the rig's fleet, owner "test".
func protocolOf(r *rig.Rig) *protocol {
	r.T.Helper()
	start, err := provider.Server("test", r.Calls.Hear)
	r.Must(err)
	p := &protocol{t: r.T, server: start()}
	s, err := p.server.GetProviderSchema(r.T.Context(), &tfprotov6.GetProviderSchemaRequest{})
	r.Must(err)
	p.schemas = s.ResourceSchemas
	config := p.object(s.Provider, map[string]any{
		"simulated_fleet": tftypes.NewValue(tftypes.String, r.Fleet.Path()), "owner": tftypes.NewValue(tftypes.String, "test"),
	}, nil)
	reply, err := p.server.ConfigureProvider(r.T.Context(), &tfprotov6.ConfigureProviderRequest{Config: config})
	r.Must(err)
	p.wantNoErrors(reply.Diagnostics)
	return p
}

// planCreate plans a new resource, which must succeed.
func (p *protocol) planCreate(resourceType string, set map[string]any) {
	s := p.schemas[resourceType]
	none, err := tfprotov6.NewDynamicValue(s.ValueType(), tftypes.NewValue(s.ValueType(), nil))
	if err != nil {
		p.t.Error(err)
		return
	}
	reply, err := p.server.PlanResourceChange(p.t.Context(), &tfprotov6.PlanResourceChangeRequest{
		TypeName: resourceType, PriorState: &none, Config: p.object(s, set, nil), ProposedNewState: p.object(s, set, tftypes.UnknownValue),
	})
	if err != nil {
		p.t.Error(err)
		return
	}
	p.wantNoErrors(reply.Diagnostics)
}

func (p *protocol) wantNoErrors(diags []*tfprotov6.Diagnostic) {
	for _, d := range diags {
		if d.Severity == tfprotov6.DiagnosticSeverityError {
			p.t.Errorf("%s: %s", d.Summary, d.Detail)
		}
	}
}

// object is a value of a schema with some attributes set, the computed ones as given
// and the others null.
func (p *protocol) object(s *tfprotov6.Schema, set map[string]any, computed any) *tfprotov6.DynamicValue {
	ty, _ := s.ValueType().(tftypes.Object)
	values := fill(ty, set)
	for _, a := range s.Block.Attributes {
		if _, isSet := set[a.Name]; a.Computed && !isSet {
			values[a.Name] = tftypes.NewValue(ty.AttributeTypes[a.Name], computed)
		}
	}
	v, err := tfprotov6.NewDynamicValue(ty, tftypes.NewValue(ty, values))
	if err != nil {
		p.t.Error(err)
	}
	return &v
}

func fill(ty tftypes.Object, set map[string]any) map[string]tftypes.Value {
	values := map[string]tftypes.Value{}
	for name, at := range ty.AttributeTypes {
		switch v := set[name].(type) {
		case tftypes.Value:
			values[name] = v
		case map[string]any:
			inner, _ := at.(tftypes.Object)
			values[name] = tftypes.NewValue(inner, fill(inner, v))
		default:
			values[name] = tftypes.NewValue(at, nil)
		}
	}
	return values
}
