package provider_test

import (
	"context"
	"encoding/json"
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
	write(t, file, text)
	return file
}

func TestBadProviderConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	good := r.fleet.Path()
	before := r.snapshot()
	missing := filepath.Join(t.TempDir(), "nowhere.json")
	// Line 3 has the mistake.
	malformed := fleetOf(t, "{\n  \"format\": \"gpu-fleet/v1\",\n  \"hosts\": [{]\n}\n")
	format := fleetOf(t, `{ "format": "gpu-fleet/v9", "hosts": [] }`)
	empty := fleetOf(t, `{ "format": "gpu-fleet/v1", "hosts": [] }`)
	for name, x := range map[string]struct {
		block string
		env   string
		says  []string
	}{
		"missing fleet file":      {block: fmt.Sprintf("simulated_fleet = %q", missing), says: []string{"Simulated fleet cannot be read", "simulated_fleet = ", missing, "${path.module}"}},
		"malformed fleet file":    {block: fmt.Sprintf("simulated_fleet = %q", malformed), says: []string{"Simulated fleet cannot be read", malformed, "line 3, column"}},
		"wrong format":            {block: fmt.Sprintf("simulated_fleet = %q", format), says: []string{format, `"gpu-fleet/v9"`, `"gpu-fleet/v1" is wanted`}},
		"no hosts in the file":    {block: fmt.Sprintf("simulated_fleet = %q", empty), says: []string{empty, "no hosts"}},
		"folder as a file":        {block: fmt.Sprintf("simulated_fleet = %q", filepath.Dir(good)), says: []string{"Simulated fleet cannot be read", filepath.Dir(good)}},
		"missing snapshot":        {block: fmt.Sprintf("inventory_snapshot = %q", missing), says: []string{"Recorded inventory cannot be read", "inventory_snapshot = ", missing}},
		"malformed snapshot":      {block: fmt.Sprintf("inventory_snapshot = %q", malformed), says: []string{"Recorded inventory cannot be read", malformed}},
		"host not in the file":    {block: fmt.Sprintf("hosts = { hv09 = { simulated = { file = %q } } }", good), says: []string{"Unknown host", "hv09", "hv01 hv02", good}},
		"host's file missing":     {block: fmt.Sprintf("hosts = { hv01 = { simulated = { file = %q } } }", missing), says: []string{"Simulated fleet cannot be read", missing}},
		"hosts and a fleet":       {block: fmt.Sprintf("hosts = { hv01 = { simulated = { file = %q } } }\n simulated_fleet = %q", good, good), says: []string{"simulated_fleet", "hosts"}},
		"no hosts at all":         {block: `owner = "x"`, says: []string{"No hosts are configured", "simulated_fleet", "GPU_SIMULATED_FLEET"}},
		"empty hosts":             {block: "hosts = {}", says: []string{"hosts", "at least 1"}},
		"empty path":              {block: `simulated_fleet = ""`, says: []string{"simulated_fleet", "at least 1"}},
		"empty owner":             {block: `owner = ""`, says: []string{"owner", "between 1 and 128"}},
		"unknown rule":            {block: `rules = { no-such-rule = "off" }`, says: []string{"no-such-rule", "single-partition-per-vm"}},
		"unknown level":           {block: `rules = { capacity = "loud" }`, says: []string{"loud", `"warning"`}},
		"bad duration":            {block: `power = { shutdown_timeout = "5 minutes" }`, says: []string{"power.shutdown_timeout", "Invalid duration", "5 minutes"}},
		"negative duration":       {block: `power = { shutdown_timeout = "-5m" }`, says: []string{"power.shutdown_timeout", "positive duration"}},
		"negative number":         {block: "max_parallel_hosts = -1", says: []string{"max_parallel_hosts", "at least 1", "-1"}},
		"no stops at all":         {block: "max_concurrent_vm_stops = 0", says: []string{"max_concurrent_vm_stops", "at least 1"}},
		"unknown word":            {block: `on_unreachable = "ignore"`, says: []string{"on_unreachable", "ignore"}},
		"read-only is no boolean": {block: fmt.Sprintf("simulated_fleet = %q", good), env: "GPU_READ_ONLY=perhaps", says: []string{"GPU_READ_ONLY", "perhaps", "true or false"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hcl := "provider \"gpu\" {\n  " + x.block + "\n}\n" + config4
			var c *cli
			if x.env == "" {
				c = newCLI(t, hcl)
			} else {
				c = newProcesses(t, hcl)
				c.env = append(c.env, x.env)
			}
			out := c.fails("plan")
			wantSaid(t, out, x.says...)
			if strings.Contains(out, "panic") {
				t.Errorf("it panics:\n%s", out)
			}
		})
	}
	t.Cleanup(func() { r.wantUnchanged(before) })
}

// badArgument is an argument that one resource alone shows to be wrong.
type badArgument struct {
	kind, body string
	path       string // the attribute that is named
	says       string
}

var badArguments = map[string]badArgument{
	"empty_hosts":        {"gpu_partition_config", "hosts = []\n gpu_p = { partition_count = 4 }", "hosts", "at least 1"},
	"empty_host":         {"gpu_partition_config", "hosts = [\"\"]\n gpu_p = { partition_count = 4 }", "hosts", "at least 1"},
	"no_hosts":           {"gpu_partition_config", "gpu_p = { partition_count = 4 }", "hosts", "cluster"},
	"hosts_and_cluster":  {"gpu_partition_config", "hosts = [\"hv01\"]\n cluster = \"azl\"\n gpu_p = { partition_count = 4 }", "hosts", "cluster"},
	"empty_cluster":      {"gpu_partition_config", "cluster = \"\"\n gpu_p = { partition_count = 4 }", "cluster", "at least 1"},
	"no_kind":            {"gpu_partition_config", "hosts = [\"hv01\"]", "gpu_p", "gpu_p"},
	"empty_name":         {"gpu_partition_config", "name = \"\"\n hosts = [\"hv01\"]\n gpu_p = { partition_count = 4 }", "name", "between 1 and 128"},
	"count_zero":         {"gpu_partition_config", "hosts = [\"hv01\"]\n gpu_p = { partition_count = 0 }", "gpu_p.partition_count", "between 1 and 1024"},
	"count_negative":     {"gpu_partition_config", "hosts = [\"hv01\"]\n gpu_p = { partition_count = -4 }", "gpu_p.partition_count", "between 1 and 1024"},
	"count_huge":         {"gpu_partition_config", "hosts = [\"hv01\"]\n gpu_p = { partition_count = 18446744073709551616 }", "gpu_p", "64-bit"},
	"count_fraction":     {"gpu_partition_config", "hosts = [\"hv01\"]\n gpu_p = { partition_count = 1.5 }", "gpu_p", "integer"},
	"empty_models":       {"gpu_partition_config", "hosts = [\"hv01\"]\n selector = { models = [] }\n gpu_p = { partition_count = 4 }", "selector.models", "at least 1"},
	"empty_gpu_ids":      {"gpu_partition_config", "hosts = [\"hv01\"]\n selector = { gpu_ids = {} }\n gpu_p = { partition_count = 4 }", "selector.gpu_ids", "at least 1"},
	"bad_disruption":     {"gpu_partition_config", "hosts = [\"hv01\"]\n max_disruption = \"all\"\n gpu_p = { partition_count = 4 }", "max_disruption", "vm_restart"},
	"no_host_at_once":    {"gpu_partition_config", "hosts = [\"hv01\"]\n rollout = { max_unavailable = 0 }\n gpu_p = { partition_count = 4 }", "rollout.max_unavailable", "at least 1"},
	"bad_timeout":        {"gpu_partition_config", "hosts = [\"hv01\"]\n timeouts = { create = \"soon\" }\n gpu_p = { partition_count = 4 }", "timeouts.create", "soon"},
	"no_members":         {"gpu_pool", "name = \"p\"\n members = {}", "members", "at least 1"},
	"empty_member":       {"gpu_pool", "name = \"p\"\n members = { hv01 = [\"\"] }", "members", "at least 1"},
	"members_and_hosts":  {"gpu_pool", "name = \"p\"\n members = { hv01 = [\"x\"] }\n hosts = [\"hv01\"]", "members", "hosts"},
	"members_selected":   {"gpu_pool", "name = \"p\"\n members = { hv01 = [\"x\"] }\n selector = { models = [\"A2\"] }", "selector", "members"},
	"empty_pool_name":    {"gpu_pool", "name = \"\"\n hosts = [\"hv01\"]", "name", "between 1 and 256"},
	"reserved_name":      {"gpu_pool", "name = \"Primordial\"\n hosts = [\"hv01\"]", "name", "primordial"},
	"pool_empty_hosts":   {"gpu_pool", "name = \"p\"\n hosts = []", "hosts", "at least 1"},
	"bad_on_destroy":     {"gpu_pool", "name = \"p\"\n hosts = [\"hv01\"]\n on_destroy = \"burn\"", "on_destroy", "mount_back"},
	"empty_vm":           {"gpu_vm_assignment", "vm = \"\"\n partition = {}", "vm", "at least 1"},
	"nothing_for_the_vm": {"gpu_vm_assignment", "vm = \"avd-01\"", "partition", "device"},
	"two_kinds":          {"gpu_vm_assignment", "vm = \"avd-01\"\n partition = {}\n pool = { id = \"x\" }", "partition", "pool"},
	"no_gpus":            {"gpu_vm_assignment", "vm = \"avd-01\"\n device = { host = \"hv01\", gpu_ids = [] }", "device.gpu_ids", "at least 1"},
	"empty_config":       {"gpu_vm_assignment", "vm = \"avd-01\"\n partition = { config = \"\" }", "partition.config", "at least 1"},
	"pool_count_zero":    {"gpu_vm_assignment", "vm = \"avd-01\"\n pool = { id = \"x\", count = 0 }", "pool.count", "at least 1"},
	"units_negative":     {"gpu_vm_assignment", "vm = \"avd-01\"\n partition = { min_partition_encode = -1 }", "partition.min_partition_encode", "18446744073709551615"},
	"units_too_large":    {"gpu_vm_assignment", "vm = \"avd-01\"\n partition = { max_partition_decode = 18446744073709551616 }", "partition.max_partition_decode", "18446744073709551615"},
	"units_fraction":     {"gpu_vm_assignment", "vm = \"avd-01\"\n partition = { optimal_partition_compute = 0.5 }", "partition.optimal_partition_compute", "whole number"},
	"vram_negative":      {"gpu_vm_assignment", "vm = \"avd-01\"\n partition = { min_partition_vram_mib = -1 }", "partition.min_partition_vram_mib", "between 0 and"},
	"vram_overflows":     {"gpu_vm_assignment", "vm = \"avd-01\"\n partition = { max_partition_vram_mib = 17592186044416 }", "partition.max_partition_vram_mib", "between 0 and"},
	"low_mmio":           {"gpu_vm_assignment", "vm = \"avd-01\"\n partition = {}\n low_memory_mapped_io_space_mib = 64", "low_memory_mapped_io_space_mib", "between 128 and 3584"},
	"high_mmio":          {"gpu_vm_assignment", "vm = \"avd-01\"\n partition = {}\n high_memory_mapped_io_space_mib = -1", "high_memory_mapped_io_space_mib", "between 0 and"},
	"high_mmio_overflow": {"gpu_vm_assignment", "vm = \"avd-01\"\n partition = {}\n high_memory_mapped_io_space_mib = 17592186044416", "high_memory_mapped_io_space_mib", "between 0 and"},
	"bad_stop_action":    {"gpu_vm_assignment", "vm = \"avd-01\"\n partition = {}\n automatic_stop_action = \"hibernate\"", "automatic_stop_action", "shut_down"},
	"bad_when":           {"gpu_vm_assignment", "vm = \"avd-01\"\n partition = {}\n power = { when = \"later\" }", "power.when", "next_off"},
	"bad_shutdown":       {"gpu_vm_assignment", "vm = \"avd-01\"\n partition = {}\n power = { shutdown_timeout = \"5\" }", "power.shutdown_timeout", "positive duration"},
	"no_shutdown_time":   {"gpu_vm_assignment", "vm = \"avd-01\"\n partition = {}\n power = { shutdown_timeout = \"0s\" }", "power.shutdown_timeout", "positive duration"},
	"empty_device_host":  {"gpu_vm_assignment", "vm = \"avd-01\"\n device = { host = \"\", gpu_ids = [\"x\"] }", "device.host", "at least 1"},
	"empty_device_gpu":   {"gpu_vm_assignment", "vm = \"avd-01\"\n device = { host = \"hv01\", gpu_ids = [\"\"] }", "device.gpu_ids", "at least 1"},
}

// Arguments that are wrong by themselves are found by `terraform validate`, each at
// its own attribute.
func TestBadArgumentsAreRefusedAtTheirAttribute(t *testing.T) {
	t.Parallel()
	var hcl strings.Builder
	for _, name := range keys(badArguments) {
		x := badArguments[name]
		fmt.Fprintf(&hcl, "resource %q %q {\n %s\n}\n", x.kind, name, x.body)
	}
	c := newCLI(t, hcl.String())
	out := c.fails("validate", "-json")
	var answer struct {
		Diagnostics []struct {
			Severity, Summary, Detail string
			Snippet                   struct{ Context, Code string }
		}
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	for _, name := range keys(badArguments) {
		x := badArguments[name]
		found := []string{}
		ok := false
		for _, d := range answer.Diagnostics {
			if d.Severity != "error" || !strings.HasSuffix(d.Snippet.Context, fmt.Sprintf("%q", name)) {
				continue
			}
			text := sentence(d.Summary + " " + d.Detail)
			found = append(found, text+" ["+d.Snippet.Code+"]")
			first, _, _ := strings.Cut(x.path, ".")
			at := strings.Contains(d.Snippet.Code, first) || strings.Contains(text, first)
			ok = ok || at && strings.Contains(text, x.says)
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
	r := newRig(t, twoNodes())
	before := r.snapshot()
	c := newCLI(t, r.block()+`
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
  members = { hv09 = ["`+gpu1+`"] }
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
  device = { host = "hv09", gpu_ids = ["`+gpu1+`"] }
}
`)
	out := c.fails("plan")
	r.wantUnchanged(before)
	for _, x := range []struct{ address, line, says string }{
		{"gpu_partition_config.host", `hosts = ["hv01", "hv09"]`, `"hv09" is not a host of the provider, which knows [hv01 hv02]`},
		{"gpu_partition_config.cluster", `cluster = "nowhere"`, "Unknown cluster"},
		{"gpu_partition_config.count", "gpu_p = { partition_count = 3 }", "Rule: valid-partition-count Attribute: gpu_p.partition_count"},
		{"gpu_partition_config.gpu", "selector = {", "PCIROOT(99)"},
		{"gpu_pool.host", "members = { hv09", `"hv09" is not a host`},
		{"gpu_pool.gpu", "members = { hv02", "PCIROOT(98)"},
		{"gpu_vm_assignment.vm", `vm = "nobody"`, "VM does not exist"},
		{"gpu_vm_assignment.cluster", `cluster = "elsewhere"`, "is a node of a cluster called"},
		{"gpu_vm_assignment.config", `partition = { config = "nothing" }`, "Rule: known-config"},
		{"gpu_vm_assignment.device", `device = { host = "hv09"`, `device.host is "hv09", which is not a host`},
	} {
		ok := false
		for _, block := range strings.Split(out, "Error: ")[1:] {
			text := sentence(block)
			ok = ok || strings.Contains(text, "with "+x.address+",") && strings.Contains(text, x.line) && strings.Contains(text, x.says)
		}
		if !ok {
			t.Errorf("no error at %s in %s says %q:\n%s", x.line, x.address, x.says, out)
		}
	}
}

func TestEnvironmentConfiguresWhatTheBlockDoesNot(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	before := r.snapshot()

	c := newProcesses(t, `provider "gpu" { owner = "test" }`+"\n"+config4)
	c.env = append(c.env, "GPU_SIMULATED_FLEET="+r.fleet.Path())
	wantSaid(t, c.ok("plan"), "Plan: 1 to add")

	readOnly := *c
	readOnly.env = append(slices.Clone(c.env), "GPU_READ_ONLY=1")
	out := readOnly.fails("apply", "-auto-approve")
	wantSaid(t, out, "Could not create the partition config", "read-only", "GPU_READ_ONLY")
	r.wantUnchanged(before)

	// The block's own word counts more.
	c.write(`provider "gpu" {` + "\n" + `  owner = "test"` + "\n  read_only = false\n}\n" + config4)
	c.env = append(c.env, "GPU_READ_ONLY=1")
	c.apply()
	r.wantCounts(4, both...)

	// A snapshot in the environment takes the place of the hosts in the block.
	other := twoNodes()
	for i := range other.Hosts {
		other.Hosts[i].GPUs = other.Hosts[i].GPUs[:1]
	}
	recorded, err := simulated.Create(filepath.Join(t.TempDir(), "recorded.json"), other)
	r.must(err)
	twin := newProcesses(t, r.block()+"data \"gpu_inventory\" \"all\" {}\noutput \"gpus\" {\n  value = \"it has ${length(data.gpu_inventory.all.inventory.hv01.gpus)} GPU\"\n}\n"+config4)
	twin.env = append(twin.env, "GPU_INVENTORY_SNAPSHOT="+recorded.Path())
	wantSaid(t, twin.ok("plan"), "it has 1 GPU")
	out = twin.fails("apply", "-auto-approve")
	wantSaid(t, out, "nothing can be changed", recorded.Path())
}

// Where the fleet is may be the result of another resource: then nothing is known at
// the first plan, and everything is checked at apply.
func TestProviderThatIsUnknownAtPlanApplies(t *testing.T) {
	t.Parallel()
	for name, where := range map[string]string{
		"fleet": "simulated_fleet = terraform_data.fleet.output",
		"hosts": "hosts = {\n hv01 = { simulated = { file = terraform_data.fleet.output } }\n hv02 = { simulated = { file = terraform_data.fleet.output } }\n }",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, twoNodes())
			hcl := func(generation int) string {
				return fmt.Sprintf(`
resource "terraform_data" "fleet" {
  input            = %q
  triggers_replace = %d
}
provider "gpu" {
  %s
  owner = "test"
}
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
`, r.fleet.Path(), generation, where, gpu0, gpu0) + renderPool(secondGPUs)
			}
			c := newCLI(t, hcl(1))
			wantSaid(t, c.ok("plan"), "Plan: 4 to add")
			c.apply()
			r.wantPool("render", []string{gpu1}, both...)
			r.wantVM("avd-01", gpu.VMRunning, 1)
			wantSaid(t, c.ok("output"), `"hv01", "hv02"`)
			c.wantNoChanges()

			// Unknown again, now with a state: nothing is lost and nothing is done.
			before := r.snapshot()
			c.write(hcl(2))
			wantSaid(t, c.ok("plan"), "1 to add, 0 to change, 1 to destroy")
			c.apply()
			r.wantUnchanged(before)
			c.wantNoChanges()
		})
	}
}

func TestDataSourceThatIsReadTooEarlySaysSo(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	for name, data := range map[string]string{
		"gpu_inventory":         "",
		"gpu_partition_options": `host = "hv01"`,
		"gpu_change_forecast":   "hosts = [\"hv01\"]\n  gpu_p = { partition_count = 4 }",
		"gpu_pool":              "name = \"render\"\n  host = \"hv01\"",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCLI(t, fmt.Sprintf(`
resource "terraform_data" "fleet" {
  input = %q
}
provider "gpu" {
  simulated_fleet = terraform_data.fleet.output
}
data %q "x" {
  %s
}
`, r.fleet.Path(), name, data))
			wantSaid(t, c.fails("plan"), "Hosts are not known yet", "depends_on")
		})
	}
}

// A power policy or rules that are not known yet delay the checks that they decide.
func TestPolicyThatIsUnknownAtPlanIsNotGuessed(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.steps(testresource.TestStep{
		Config: `
resource "terraform_data" "allowed" {
  input = true
}
` + r.block(`power = { allow_shutdown = terraform_data.allowed.output }`) + `
resource "gpu_vm_assignment" "desktop" {
  vm        = "avd-01"
  partition = {}
}
`,
		ConfigPlanChecks: testresource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
			plancheck.ExpectResourceAction("gpu_vm_assignment.desktop", plancheck.ResourceActionCreate),
		}},
		Check: then(func() { r.wantVM("avd-01", gpu.VMRunning, 1) }),
	})
	r.wantVM("avd-01", gpu.VMRunning, 0)
}

// Two processes, two states and one fleet: both changes stand, one after the other on
// each host.
func TestTwoAppliesAtOnceLeaveAValidFleet(t *testing.T) {
	t.Parallel()
	r := newRig(t, standalone(node("hv01", desktop("a", 1)), node("hv02", desktop("b", 2))))
	for _, h := range both {
		r.must(r.fleet.EditSimulation(t.Context(), h, func(s *simulated.Simulation) { s.Latency = map[simulated.Op]int{simulated.OpAny: 5} }))
	}
	one := newProcesses(t, r.blockOf("one")+`
resource "gpu_partition_config" "vdi" {
  name     = "vdi"
  hosts    = ["hv01", "hv02"]
  selector = { gpu_ids = { hv01 = ["`+gpu0+`"], hv02 = ["`+gpu0+`"] } }
  gpu_p    = { partition_count = 4 }
}
resource "gpu_vm_assignment" "a" {
  vm        = "a"
  partition = { config = gpu_partition_config.vdi.id, gpu_id = "`+gpu0+`" }
  power     = { allow_shutdown = true }
}
`)
	two := newProcesses(t, r.blockOf("two")+renderPool(secondGPUs))
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for i, c := range []*cli{one, two} {
		cmd := c.command("apply", "-auto-approve", "-no-color")
		wg.Go(func() {
			if out, err := cmd.CombinedOutput(); err != nil {
				errs[i] = fmt.Errorf("%w: %s", err, out)
			}
		})
	}
	wg.Wait()
	r.must(errors.Join(errs...))

	if _, err := gpu.ParseSnapshot(r.file()); err != nil {
		t.Errorf("the fleet file is not valid any more: %v", err)
	}
	r.wantPool("render", []string{gpu1}, both...)
	for _, h := range both {
		if n := r.counts(h)[gpu0]; n != 4 {
			t.Errorf("%s has %d partitions, want 4", h, n)
		}
	}
	r.wantVM("a", gpu.VMRunning, 1)
	r.wantClaims([]string{"hv01"}, "partition_config vdi", "pool render", "vm_assignment "+vmID(1))
	one.wantNoChanges()
	two.wantNoChanges()
}
