package provider_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	fwprovider "github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	testresource "github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/core"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider"
)

func TestSchemasAreValid(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	p := provider.New("test", nil)()
	var ps fwprovider.SchemaResponse
	p.Schema(ctx, fwprovider.SchemaRequest{}, &ps)
	if d := ps.Schema.ValidateImplementation(ctx); d.HasError() {
		t.Errorf("provider: %v", d)
	}
	for _, newResource := range p.Resources(ctx) {
		r := newResource()
		var s resource.SchemaResponse
		r.Schema(ctx, resource.SchemaRequest{}, &s)
		if d := s.Schema.ValidateImplementation(ctx); d.HasError() {
			t.Errorf("%T: %v", r, d)
		}
		var is resource.IdentitySchemaResponse
		with, ok := r.(resource.ResourceWithIdentity)
		if !ok {
			t.Errorf("%T has no identity", r)
			continue
		}
		with.IdentitySchema(ctx, resource.IdentitySchemaRequest{}, &is)
		if d := is.IdentitySchema.ValidateImplementation(ctx); d.HasError() {
			t.Errorf("identity of %T: %v", r, d)
		}
	}
	for _, newDataSource := range p.DataSources(ctx) {
		d := newDataSource()
		var s datasource.SchemaResponse
		d.Schema(ctx, datasource.SchemaRequest{}, &s)
		if diags := s.Schema.ValidateImplementation(ctx); diags.HasError() {
			t.Errorf("%T: %v", d, diags)
		}
	}
}

// Every attribute says on its registry page what it is, in sentences.
func TestEveryAttributeIsDescribed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server, err := provider.Server("test", nil)
	if err != nil {
		t.Fatal(err)
	}
	schemas, err := server().GetProviderSchema(ctx, &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		t.Fatal(err)
	}
	described := 0
	var check func(at string, attributes []*tfprotov6.SchemaAttribute)
	check = func(at string, attributes []*tfprotov6.SchemaAttribute) {
		for _, a := range attributes {
			described++
			name := at + "." + a.Name
			if text := strings.TrimSpace(a.Description); !strings.HasSuffix(text, ".") || strings.ToUpper(text[:1]) != text[:1] {
				t.Errorf("%s is described as %q", name, text)
			}
			if a.NestedType != nil {
				check(name, a.NestedType.Attributes)
			}
		}
	}
	blocks := map[string]*tfprotov6.Schema{"provider": schemas.Provider}
	for name, s := range schemas.ResourceSchemas {
		blocks[name] = s
	}
	for name, s := range schemas.DataSourceSchemas {
		blocks["data."+name] = s
	}
	for name, s := range blocks {
		if name != "provider" && s.Block.Description == "" {
			t.Errorf("%s is not described", name)
		}
		if len(s.Block.BlockTypes) > 0 {
			t.Errorf("%s has nested blocks", name)
		}
		check(name, s.Block.Attributes)
	}
	identities, err := server().GetResourceIdentitySchemas(ctx, &tfprotov6.GetResourceIdentitySchemasRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range identities.IdentitySchemas {
		for _, a := range s.IdentityAttributes {
			described++
			if a.Description == "" {
				t.Errorf("identity attribute %s.%s is not described", name, a.Name)
			}
		}
	}
	if described < 150 {
		t.Errorf("only %d attributes were looked at", described)
	}
}

// fleetOf writes a fleet file with any text in it.
func fleetOf(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "fleet.json")
	rig.Write(t, file, text)
	return file
}

func TestBadProviderConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	good := r.Fleet.Path()
	before := r.Snapshot()
	missing := filepath.Join(t.TempDir(), "nowhere.json")
	// Line 3 has the mistake.
	malformed := fleetOf(t, "{\n  \"format\": \"gpu-fleet/v1\",\n  \"hosts\": [{]\n}\n")
	format := fleetOf(t, `{ "format": "gpu-fleet/v9", "hosts": [] }`)
	empty := fleetOf(t, `{ "format": "gpu-fleet/v1", "hosts": [] }`)
	for name, x := range map[string]struct {
		block string
		says  []string
	}{
		"missing fleet file": {
			block: fmt.Sprintf("simulated_fleet = %q", missing), says: []string{
				"Simulated fleet cannot be read", ", simulated_fleet", missing, "${path.module}",
			},
		},
		"malformed fleet file": {
			block: fmt.Sprintf("simulated_fleet = %q", malformed), says: []string{"Simulated fleet cannot be read", malformed, "line 3, column"},
		},
		"wrong format": {
			block: fmt.Sprintf("simulated_fleet = %q", format), says: []string{format, `"gpu-fleet/v9"`, `"gpu-fleet/v1" is wanted`},
		},
		"no hosts in the file": {block: fmt.Sprintf("simulated_fleet = %q", empty), says: []string{empty, "no hosts"}},
		"folder as a file": {
			block: fmt.Sprintf("simulated_fleet = %q", filepath.Dir(good)), says: []string{"Simulated fleet cannot be read", filepath.Dir(good)},
		},
		"missing snapshot": {
			block: fmt.Sprintf("inventory_snapshot = %q", missing), says: []string{
				"Recorded inventory cannot be read", ", inventory_snapshot", missing,
			},
		},
		"malformed snapshot": {
			block: fmt.Sprintf("inventory_snapshot = %q", malformed), says: []string{"Recorded inventory cannot be read", malformed},
		},
		"host not in the file": {
			block: fmt.Sprintf("hosts = { hv09 = { simulated = { file = %q } } }", good),
			says:  []string{"Unknown host", "hv09", "hv01 and hv02", good},
		},
		"host's file missing": {
			block: fmt.Sprintf("hosts = { hv01 = { simulated = { file = %q } } }", missing),
			says:  []string{"Simulated fleet cannot be read", missing},
		},
		"hosts and a fleet": {
			block: fmt.Sprintf("hosts = { hv01 = { simulated = { file = %q } } }\n simulated_fleet = %q", good, good),
			says:  []string{"simulated_fleet", "hosts"},
		},
		"no hosts at all": {block: `owner = "x"`, says: []string{"No hosts are configured", "simulated_fleet", "GPU_SIMULATED_FLEET"}},
		"empty hosts":     {block: "hosts = {}", says: []string{"hosts", "at least 1"}},
		"empty path":      {block: `simulated_fleet = ""`, says: []string{"simulated_fleet", "at least 1"}},
		"empty owner":     {block: `owner = ""`, says: []string{"owner", "between 1 and 128"}},
		"unknown rule":    {block: `rules = { no-such-rule = "off" }`, says: []string{"no-such-rule", "single-partition-per-vm"}},
		"unknown level":   {block: `rules = { capacity = "loud" }`, says: []string{"loud", `"warning"`}},
		"bad duration": {
			block: `power = { shutdown_timeout = "5 minutes" }`, says: []string{"power.shutdown_timeout", "Invalid duration", "5 minutes"},
		},
		"negative duration": {block: `power = { shutdown_timeout = "-5m" }`, says: []string{"power.shutdown_timeout", "positive duration"}},
		"negative number":   {block: "max_parallel_hosts = -1", says: []string{"max_parallel_hosts", "at least 1", "-1"}},
		"no stops at all":   {block: "max_concurrent_vm_stops = 0", says: []string{"max_concurrent_vm_stops", "at least 1"}},
		"unknown word":      {block: `on_unreachable = "ignore"`, says: []string{"on_unreachable", "ignore"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hcl := "provider \"gpu\" {\n  " + x.block + "\n}\n" + rig.Config4
			out := rig.NewCLI(t, hcl).Fails("plan")
			rig.WantSaid(t, out, x.says...)
			if strings.Contains(out, "panic") {
				t.Errorf("it panics:\n%s", out)
			}
		})
	}
	t.Cleanup(func() { r.WantUnchanged(before) })
}

func TestReadOnlyOfTheEnvironmentIsABoolean(t *testing.T) {
	t.Setenv(provider.EnvReadOnly, "perhaps")
	r := rig.New(t, rig.TwoNodes())
	rig.WantSaid(t, rig.NewCLI(t, r.Block()+rig.Config4).Fails("plan"), "Invalid environment variable",
		"GPU_READ_ONLY", "perhaps", "true or false")
}

// badArgument is an argument that one resource alone shows to be wrong.
type badArgument struct {
	kind, body string
	path       string // the attribute that is named
	says       string
}

var badArguments = map[string]badArgument{
	"empty_hosts": {"gpu_partition_config", "hosts = []\n gpu_p = { partition_count = 4 }", "hosts", "at least 1"},
	"empty_host":  {"gpu_partition_config", "hosts = [\"\"]\n gpu_p = { partition_count = 4 }", "hosts", "at least 1"},
	"no_hosts":    {"gpu_partition_config", "gpu_p = { partition_count = 4 }", "hosts", "cluster"},
	"hosts_and_cluster": {
		"gpu_partition_config", "hosts = [\"hv01\"]\n cluster = \"azl\"\n gpu_p = { partition_count = 4 }", "hosts", "cluster",
	},
	"empty_cluster": {"gpu_partition_config", "cluster = \"\"\n gpu_p = { partition_count = 4 }", "cluster", "at least 1"},
	"no_kind":       {"gpu_partition_config", "hosts = [\"hv01\"]", "gpu_p", "gpu_p"},
	"empty_name": {
		"gpu_partition_config", "name = \"\"\n hosts = [\"hv01\"]\n gpu_p = { partition_count = 4 }", "name", "between 1 and 128",
	},
	"count_zero": {
		"gpu_partition_config", "hosts = [\"hv01\"]\n gpu_p = { partition_count = 0 }", "gpu_p.partition_count", "between 1 and 1024",
	},
	"count_negative": {
		"gpu_partition_config", "hosts = [\"hv01\"]\n gpu_p = { partition_count = -4 }", "gpu_p.partition_count", "between 1 and 1024",
	},
	"count_huge": {
		"gpu_partition_config", "hosts = [\"hv01\"]\n gpu_p = { partition_count = 18446744073709551616 }",
		"gpu_p.partition_count", "Attribute gpu_p.partition_count must be between -9223372036854775808",
	},
	"count_fraction": {
		"gpu_partition_config", "hosts = [\"hv01\"]\n gpu_p = { partition_count = 1.5 }", "gpu_p.partition_count",
		"Attribute gpu_p.partition_count must be a whole number, got: 1.5",
	},
	"empty_models": {
		"gpu_partition_config", "hosts = [\"hv01\"]\n selector = { models = [] }\n gpu_p = { partition_count = 4 }",
		"selector.models", "at least 1",
	},
	"empty_gpu_ids": {
		"gpu_partition_config", "hosts = [\"hv01\"]\n selector = { gpu_ids = {} }\n gpu_p = { partition_count = 4 }",
		"selector.gpu_ids", "at least 1",
	},
	"bad_disruption": {
		"gpu_partition_config", "hosts = [\"hv01\"]\n max_disruption = \"all\"\n gpu_p = { partition_count = 4 }", "max_disruption", "vm_restart",
	},
	"no_host_at_once": {
		"gpu_partition_config", "hosts = [\"hv01\"]\n rollout = { max_unavailable = 0 }\n gpu_p = { partition_count = 4 }",
		"rollout.max_unavailable", "at least 1",
	},
	"bad_timeout": {
		"gpu_partition_config", "hosts = [\"hv01\"]\n timeouts = { create = \"soon\" }\n gpu_p = { partition_count = 4 }",
		"timeouts.create", "soon",
	},
	"no_members":        {"gpu_pool", "name = \"p\"\n members = {}", "members", "at least 1"},
	"empty_member":      {"gpu_pool", "name = \"p\"\n members = { hv01 = [\"\"] }", "members", "at least 1"},
	"members_and_hosts": {"gpu_pool", "name = \"p\"\n members = { hv01 = [\"x\"] }\n hosts = [\"hv01\"]", "members", "hosts"},
	"members_selected": {
		"gpu_pool", "name = \"p\"\n members = { hv01 = [\"x\"] }\n selector = { models = [\"A2\"] }", "selector", "members",
	},
	"empty_pool_name":    {"gpu_pool", "name = \"\"\n hosts = [\"hv01\"]", "name", "between 1 and 256"},
	"reserved_name":      {"gpu_pool", "name = \"Primordial\"\n hosts = [\"hv01\"]", "name", "primordial"},
	"pool_empty_hosts":   {"gpu_pool", "name = \"p\"\n hosts = []", "hosts", "at least 1"},
	"bad_on_destroy":     {"gpu_pool", "name = \"p\"\n hosts = [\"hv01\"]\n on_destroy = \"burn\"", "on_destroy", "mount_back"},
	"empty_vm":           {"gpu_vm_assignment", "vm = \"\"\n partition = {}", "vm", "at least 1"},
	"nothing_for_the_vm": {"gpu_vm_assignment", "vm = \"avd-01\"", "partition", "device"},
	"two_kinds":          {"gpu_vm_assignment", "vm = \"avd-01\"\n partition = {}\n pool = { id = \"x\" }", "partition", "pool"},
	"no_gpus": {
		"gpu_vm_assignment", "vm = \"avd-01\"\n device = { host = \"hv01\", gpu_ids = [] }", "device.gpu_ids", "at least 1",
	},
	"empty_config":    {"gpu_vm_assignment", "vm = \"avd-01\"\n partition = { config = \"\" }", "partition.config", "at least 1"},
	"pool_count_zero": {"gpu_vm_assignment", "vm = \"avd-01\"\n pool = { id = \"x\", count = 0 }", "pool.count", "between 1 and 64"},
	"units_negative": {
		"gpu_vm_assignment", "vm = \"avd-01\"\n partition = { min_partition_encode = -1 }", "partition.min_partition_encode",
		"18446744073709551615",
	},
	"units_too_large": {
		"gpu_vm_assignment", "vm = \"avd-01\"\n partition = { max_partition_decode = 18446744073709551616 }",
		"partition.max_partition_decode", "18446744073709551615",
	},
	"units_fraction": {
		"gpu_vm_assignment", "vm = \"avd-01\"\n partition = { optimal_partition_compute = 0.5 }", "partition.optimal_partition_compute",
		"whole number",
	},
	"vram_negative": {
		"gpu_vm_assignment", "vm = \"avd-01\"\n partition = { min_partition_vram_mib = -1 }", "partition.min_partition_vram_mib", "between 0 and",
	},
	"vram_overflows": {
		"gpu_vm_assignment", "vm = \"avd-01\"\n partition = { max_partition_vram_mib = 17592186044416 }",
		"partition.max_partition_vram_mib", "between 0 and",
	},
	"low_mmio": {
		"gpu_vm_assignment", "vm = \"avd-01\"\n partition = {}\n low_memory_mapped_io_space_mib = 64",
		"low_memory_mapped_io_space_mib", "between 128 and 3584",
	},
	"high_mmio": {
		"gpu_vm_assignment", "vm = \"avd-01\"\n partition = {}\n high_memory_mapped_io_space_mib = -1",
		"high_memory_mapped_io_space_mib", "between 0 and",
	},
	"high_mmio_overflow": {
		"gpu_vm_assignment", "vm = \"avd-01\"\n partition = {}\n high_memory_mapped_io_space_mib = 17592186044416",
		"high_memory_mapped_io_space_mib", "between 0 and",
	},
	"bad_stop_action": {
		"gpu_vm_assignment", "vm = \"avd-01\"\n partition = {}\n automatic_stop_action = \"hibernate\"", "automatic_stop_action", "shut_down",
	},
	"bad_when": {"gpu_vm_assignment", "vm = \"avd-01\"\n partition = {}\n power = { when = \"later\" }", "power.when", "next_off"},
	"bad_shutdown": {
		"gpu_vm_assignment", "vm = \"avd-01\"\n partition = {}\n power = { shutdown_timeout = \"5\" }",
		"power.shutdown_timeout", "positive duration",
	},
	"no_shutdown_time": {
		"gpu_vm_assignment", "vm = \"avd-01\"\n partition = {}\n power = { shutdown_timeout = \"0s\" }",
		"power.shutdown_timeout", "positive duration",
	},
	"empty_device_host": {"gpu_vm_assignment", "vm = \"avd-01\"\n device = { host = \"\", gpu_ids = [\"x\"] }", "device.host", "at least 1"},
	"empty_device_gpu": {
		"gpu_vm_assignment", "vm = \"avd-01\"\n device = { host = \"hv01\", gpu_ids = [\"\"] }", "device.gpu_ids", "at least 1",
	},
}

// Arguments that are wrong by themselves are found by `terraform validate`, each at
// its own attribute.
func TestBadArgumentsAreRefusedAtTheirAttribute(t *testing.T) {
	t.Parallel()
	var hcl strings.Builder
	for _, name := range rig.Keys(badArguments) {
		x := badArguments[name]
		fmt.Fprintf(&hcl, "resource %q %q {\n %s\n}\n", x.kind, name, x.body)
	}
	c := rig.NewCLI(t, hcl.String())
	out, code := c.Outcome("validate")
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	for _, name := range rig.Keys(badArguments) {
		x := badArguments[name]
		found := []string{}
		ok := false
		for _, d := range out.Diagnostics {
			if d.Warning || d.Address != x.kind+"."+name {
				continue
			}
			text := rig.Sentence(d.Summary + " " + d.Detail)
			found = append(found, text+" ["+d.Attribute+"]")
			first, _, _ := strings.Cut(x.path, ".")
			ok = ok || (d.Attribute == first || strings.Contains(text, first)) && strings.Contains(text, x.says)
		}
		if !ok {
			t.Errorf("%s: no error at %s says %q, but:\n%s", name, x.path, x.says, strings.Join(found, "\n"))
		}
	}
}

// What only the hosts can tell to be wrong is an error of the plan at the attribute,
// for all resources at once.
func TestWhatNoHostHasIsRefusedAtItsAttribute(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	before := r.Snapshot()
	c := rig.NewCLI(t, r.Block()+`
resource "gpu_partition_config" "host" {
  hosts = ["hv01", "hv09"]
  gpu_p = { partition_count = 4 }
}
resource "gpu_partition_config" "cluster" {
  cluster = "nowhere"
  gpu_p   = { partition_count = 4 }
}
resource "gpu_partition_config" "count" {
  hosts = ["hv01", "hv02"]
  gpu_p = { partition_count = 3 }
}
resource "gpu_partition_config" "gpu" {
  hosts    = ["hv01"]
  selector = { gpu_ids = { hv01 = ["PCIROOT(99)"] } }
  gpu_p    = { partition_count = 4 }
}
resource "gpu_pool" "host" {
  name    = "one"
  members = { hv09 = ["`+rig.GPU1+`"] }
}
resource "gpu_pool" "gpu" {
  name    = "two"
  members = { hv02 = ["PCIROOT(98)"] }
}
resource "gpu_vm_assignment" "vm" {
  vm        = "nobody"
  partition = {}
}
resource "gpu_vm_assignment" "cluster" {
  vm        = "avd-04"
  cluster   = "elsewhere"
  partition = {}
}
resource "gpu_vm_assignment" "config" {
  vm        = "avd-03"
  partition = { config = "nothing" }
}
resource "gpu_vm_assignment" "device" {
  vm     = "avd-06"
  device = { host = "hv09", gpu_ids = ["`+rig.GPU1+`"] }
}
`)
	out, code := c.Outcome("plan")
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	r.WantUnchanged(before)
	for _, x := range []struct{ address, attribute, says string }{
		{"gpu_partition_config.host", "hosts", `"hv09" is not a host of the provider, which knows hv01 and hv02`},
		{"gpu_partition_config.cluster", "cluster", "Unknown cluster"},
		{"gpu_partition_config.count", "gpu_p", "Rule: valid-partition-count"},
		{"gpu_partition_config.gpu", "selector", "PCIROOT(99)"},
		{"gpu_pool.host", "members", `"hv09" is not a host`},
		{"gpu_pool.gpu", "members", "PCIROOT(98)"},
		{"gpu_vm_assignment.vm", "vm", "VM does not exist"},
		{"gpu_vm_assignment.cluster", "cluster", "is a node of a cluster called"},
		{"gpu_vm_assignment.config", "partition", "Rule: known-config"},
		{"gpu_vm_assignment.device", "device", `device.host is "hv09", which is not a host`},
	} {
		if !slices.ContainsFunc(out.Diagnostics, func(d core.Diagnostic) bool {
			return !d.Warning && d.Address == x.address && d.Attribute == x.attribute &&
				strings.Contains(rig.Sentence(d.Summary+" "+d.Detail), x.says)
		}) {
			t.Errorf("no error at %s of %s says %q:\n%s", x.attribute, x.address, x.says, out)
		}
	}
}

func TestEnvironmentConfiguresWhatTheBlockDoesNot(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	before := r.Snapshot()

	c := rig.NewProcesses(t, `provider "gpu" { owner = "test" }`+"\n"+rig.Config4)
	c.Env = append(c.Env, "GPU_SIMULATED_FLEET="+r.Fleet.Path())
	rig.WantSaid(t, c.Ok("plan"), "Plan: 1 to add")

	readOnly := *c
	readOnly.Env = append(slices.Clone(c.Env), "GPU_READ_ONLY=1")
	out := readOnly.Fails("apply", "-auto-approve")
	rig.WantSaid(t, out, "Could not create the partition config", "read-only", "GPU_READ_ONLY")
	r.WantUnchanged(before)

	// The block's own word counts more.
	c.Write(`provider "gpu" {` + "\n" + `  owner = "test"` + "\n  read_only = false\n}\n" + rig.Config4)
	c.Env = append(c.Env, "GPU_READ_ONLY=1")
	c.Apply()
	r.WantCounts(4, rig.Both...)

	// A snapshot in the environment takes the place of the hosts in the block.
	other := rig.TwoNodes()
	for i := range other.Hosts {
		other.Hosts[i].GPUs = other.Hosts[i].GPUs[:1]
	}
	recorded, err := others.Create(filepath.Join(t.TempDir(), "recorded.json"), other)
	r.Must(err)
	twin := rig.NewProcesses(t,
		r.Block()+"data \"gpu_inventory\" \"all\" {}\noutput \"gpus\" {\n  value = \"it has "+
			"${length(data.gpu_inventory.all.inventory.hv01.gpus)} GPU\"\n}\n"+rig.Config4)
	twin.Env = append(twin.Env, "GPU_INVENTORY_SNAPSHOT="+recorded.Path())
	if got := twin.Planned().OutputChanges["gpus"].After; got != "it has 1 GPU" {
		t.Errorf("the plan says %v", got)
	}
	out = twin.Fails("apply", "-auto-approve")
	rig.WantSaid(t, out, "nothing can be changed", recorded.Path())
}

// Where the fleet is may be the result of another resource: then nothing is known at
// the first plan, and everything is checked at apply.
func TestProviderThatIsUnknownAtPlanApplies(t *testing.T) {
	t.Parallel()
	for name, where := range map[string]string{
		"fleet": "simulated_fleet = terraform_data.fleet.output",
		"hosts": "hosts = {\n hv01 = { simulated = { file = terraform_data.fleet.output } }\n hv02 = { simulated = { file = " +
			"terraform_data.fleet.output } }\n }",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.TwoNodes())
			hcl := func(generation int) string {
				return r.LateBlock(generation, where) + fmt.Sprintf(`
resource "gpu_partition_config" "vdi" {
  name     = "vdi"
  hosts    = ["hv01", "hv02"]
  selector = { gpu_ids = { hv01 = [%q], hv02 = [%q] } }
  gpu_p    = { partition_count = 4 }
  depends_on = [gpu_pool.render]
}
resource "gpu_vm_assignment" "desktop" {
  vm        = "avd-01"
  partition = { config = gpu_partition_config.vdi.id }
  power     = { allow_shutdown = true }
}
data "gpu_inventory" "all" {
  depends_on = [terraform_data.fleet, gpu_vm_assignment.desktop]
}
output "hosts" {
  value = keys(data.gpu_inventory.all.inventory)
}
`, rig.GPU0, rig.GPU0) + rig.RenderPool(rig.SecondGPUs)
			}
			c := rig.NewCLI(t, hcl(1))
			rig.WantSaid(t, c.Ok("plan"), "Plan: 4 to add")
			c.Apply()
			r.WantPool("render", []string{rig.GPU1}, rig.Both...)
			r.WantVM("avd-01", gpu.VMRunning, 1)
			if got := c.Output("hosts"); got != `["hv01","hv02"]` {
				t.Errorf("the hosts are %s", got)
			}
			c.WantNoChanges()

			// Unknown again, now with a state: nothing is lost and nothing is done.
			before := r.Snapshot()
			c.Write(hcl(2))
			rig.WantSaid(t, c.Ok("plan"), "1 to add, 0 to change, 1 to destroy")
			c.Apply()
			r.WantUnchanged(before)
			c.WantNoChanges()
		})
	}
}

func TestDataSourceThatIsReadTooEarlySaysSo(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	for name, data := range map[string]string{
		"gpu_inventory":         "",
		"gpu_partition_options": `host = "hv01"`,
		"gpu_change_forecast":   "hosts = [\"hv01\"]\n  gpu_p = { partition_count = 4 }",
		"gpu_pool":              "name = \"render\"\n  host = \"hv01\"",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := rig.NewCLI(t, fmt.Sprintf(`
resource "terraform_data" "fleet" {
  input = %q
}
provider "gpu" {
  simulated_fleet = terraform_data.fleet.output
}
data %q "x" {
  %s
}
`, r.Fleet.Path(), name, data))
			rig.WantSaid(t, c.Fails("plan"), "Hosts are not known yet", "depends_on")
		})
	}
}

// All hosts together, or the owner, may be the result of another resource as well. While the
// owner is not known nobody's claims are taken for another state's.
func TestHostsAndOwnerThatAreUnknownAtPlanAreNotGuessed(t *testing.T) {
	t.Parallel()
	for name, block := range map[string]string{
		"hosts": "hosts = terraform_data.known.output.hosts\n  owner = \"test\"",
		"owner": "simulated_fleet = %[1]q\n  owner = terraform_data.known.output.owner",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.TwoNodes())
			hcl := func(generation, count int) string {
				file := r.Fleet.Path()
				if strings.Contains(block, "%") {
					block = fmt.Sprintf(block, file)
				}
				return fmt.Sprintf(`
resource "terraform_data" "known" {
  input = { generation = %[2]d, owner = "test", hosts = { hv01 = { simulated = { file = %[1]q } }, hv02 = { simulated = { file = %[1]q } `+
					`} } }
}
provider "gpu" {
  %[3]s
}
`, file, generation, block) + rig.ConfigOf(count, rig.Both)
			}
			c := rig.NewCLI(t, hcl(1, 4))
			rig.WantSaid(t, c.Ok("plan"), "Plan: 2 to add")
			c.Apply()
			r.WantCounts(4, rig.Both...)
			// Unknown again, now with claims, which a resource of another address takes over.
			c.Write(strings.Replace(hcl(2, 8), `"gpu_partition_config" "vdi"`, `"gpu_partition_config" "renamed"`, 1))
			rig.WantSaid(t, c.Ok("plan"), "1 to add, 1 to change, 1 to destroy")
			c.Write(hcl(2, 8))
			c.Apply()
			r.WantCounts(8, rig.Both...)
			c.WantNoChanges()
		})
	}
}

// A power policy or rules that are not known yet delay the checks that they decide.
func TestPolicyThatIsUnknownAtPlanIsNotGuessed(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.Steps(testresource.TestStep{
		Config: `
resource "terraform_data" "allowed" {
  input = true
}
` + r.Block(`power = { allow_shutdown = terraform_data.allowed.output }`) + `
resource "gpu_vm_assignment" "desktop" {
  vm        = "avd-01"
  partition = {}
}
`,
		ConfigPlanChecks: testresource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
			plancheck.ExpectResourceAction("gpu_vm_assignment.desktop", plancheck.ResourceActionCreate),
		}},
		Check: rig.Then(func() { r.WantVM("avd-01", gpu.VMRunning, 1) }),
	})
	r.WantVM("avd-01", gpu.VMRunning, 0)
}

// Two processes, two states and one fleet: both changes stand, one after the other on
// each host.
func TestTwoAppliesAtOnceLeaveAValidFleet(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Standalone(rig.Node("hv01", rig.Desktop("a", 1)), rig.Node("hv02", rig.Desktop("b", 2))))
	for _, h := range rig.Both {
		r.Must(r.Fleet.EditSimulation(t.Context(), h, func(s *simulated.Simulation) { s.Latency = map[simulated.Op]int{simulated.OpAny: 5} }))
	}
	one := rig.NewProcesses(t, r.BlockOf("one")+`
resource "gpu_partition_config" "vdi" {
  name     = "vdi"
  hosts    = ["hv01", "hv02"]
  selector = { gpu_ids = { hv01 = ["`+rig.GPU0+`"], hv02 = ["`+rig.GPU0+`"] } }
  gpu_p    = { partition_count = 4 }
}
resource "gpu_vm_assignment" "a" {
  vm        = "a"
  partition = { config = gpu_partition_config.vdi.id, gpu_id = "`+rig.GPU0+`" }
  power     = { allow_shutdown = true }
}
`)
	two := rig.NewProcesses(t, r.BlockOf("two")+rig.RenderPool(rig.SecondGPUs))
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for i, c := range []*rig.CLI{one, two} {
		cmd := c.Command("apply", "-auto-approve", "-no-color")
		wg.Go(func() {
			if out, err := cmd.CombinedOutput(); err != nil {
				errs[i] = fmt.Errorf("%w: %s", err, out)
			}
		})
	}
	wg.Wait()
	r.Must(errors.Join(errs...))

	if _, err := gpu.ParseSnapshot(r.File()); err != nil {
		t.Errorf("the fleet file is not valid any more: %v", err)
	}
	r.WantPool("render", []string{rig.GPU1}, rig.Both...)
	for _, h := range rig.Both {
		if n := r.Counts(h)[rig.GPU0]; n != 4 {
			t.Errorf("%s has %d partitions, want 4", h, n)
		}
	}
	r.WantVM("a", gpu.VMRunning, 1)
	r.WantClaims([]string{"hv01"}, "partition_config vdi", "pool render", "vm_assignment "+rig.VMID(1))
	one.WantNoChanges()
	two.WantNoChanges()
}
