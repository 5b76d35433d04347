package provider_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider"
)

const noHosts = "Error: No hosts are configured"

// Functions work without hosts, also where the CLI configures a provider for them as OpenTofu 1.10 does.
func TestFunctionsNeedNoHosts(t *testing.T) {
	t.Parallel()
	for name, block := range map[string]string{
		"no block": "", "empty block": "provider \"gpu\" {}\n", "an owner": "provider \"gpu\" {\n  owner = \"test\"\n}\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := rig.NewCLI(t, block+`output "nodes" { value = provider::gpu::mig_parted_config({ all = { "1g.10gb" = 7 } }) }`)
			c.Apply()
			rig.WantSaid(t, c.Ok("output", "-raw", "nodes"), `"1g.10gb": 7`)
		})
	}
}

// What needs hosts where there are none is one error, however many resources there are. Nothing is
// forgotten for it, and nothing is touched.
func TestResourcesAndDataSourcesNeedHosts(t *testing.T) {
	r := rig.New(t, rig.TwoNodes())
	t.Setenv(provider.EnvSimulatedFleet, r.Fleet.Path())
	block := "provider \"gpu\" {\n  owner = \"test\"\n}\n"
	assignments := ""
	for i := range 4 {
		assignments += rig.AssignmentOf(fmt.Sprintf("a%d", i+1), fmt.Sprintf("avd-0%d", i+1),
			"partition = { config = gpu_partition_config.vdi.id }", rig.MayStop)
	}
	resources := rig.Config4 + assignments
	c := rig.NewCLI(t, block+resources)
	c.Apply()
	state := c.Ok("state", "list")
	c.Write(block + rig.ConfigOf(2, rig.Both, "max_disruption = \"vm_restart\"") + assignments)
	c.Ok("plan", "-out=saved")
	before := r.Snapshot()

	t.Setenv(provider.EnvSimulatedFleet, "")
	if c.Terminal == nil {
		c.Env = append(c.Env, provider.EnvSimulatedFleet+"=")
	}
	once := func(out string) {
		t.Helper()
		if n := strings.Count(out, "Error: "); n != 1 || strings.Count(out, noHosts) != 1 {
			t.Errorf("%d errors, want one, that no hosts are configured:\n%s", n, out)
		}
		rig.WantSaid(t, out, noHosts, "Fix: Set hosts, or simulated_fleet (or GPU_SIMULATED_FLEET)")
	}
	for _, command := range [][]string{
		{"plan"},
		{"plan", "-refresh=false"},
		{"plan", "-destroy"},
		{"plan", "-destroy", "-refresh=false"},
		{"plan", "-refresh-only"},
		{"apply", "-auto-approve"},
	} {
		once(c.Fails(command...))
	}
	// A saved plan fails by the resource that it changes.
	out := c.Fails("apply", "saved")
	rig.WantSaid(t, out, noHosts)
	if strings.Count(out, "Error: ") != strings.Count(out, noHosts) {
		t.Errorf("an apply without hosts says more:\n%s", out)
	}
	if after := c.Ok("state", "list"); after != state {
		t.Errorf("the state had\n%s\nand has\n%s", state, after)
	}
	r.WantUnchanged(before)

	fresh := rig.NewCLI(t, block+resources)
	once(fresh.Fails("plan"))
	fresh.Write(block + "data \"gpu_inventory\" \"all\" {}\n")
	once(fresh.Fails("plan"))
	fresh.Write(block + "data \"gpu_partition_options\" \"a\" {\n  host = \"hv01\"\n}\n")
	once(fresh.Fails("plan"))
	fresh.Write(block + rig.Config4)
	once(fresh.Fails("import", "gpu_partition_config.vdi", "hv01,hv02"))
	// Other mistakes of the block are said beside nothing else.
	fresh.Write("provider \"gpu\" {\n  maintenance_window = { start = \"22:00\", end = \"22:00\" }\n}\n" + resources)
	if out := fresh.Fails("plan"); !strings.Contains(out, "Invalid maintenance window") || strings.Contains(out, noHosts) {
		t.Errorf("a plan with a wrong maintenance window:\n%s", out)
	}

	t.Setenv(provider.EnvSimulatedFleet, r.Fleet.Path())
	if c.Terminal == nil {
		c.Env = append(c.Env, provider.EnvSimulatedFleet+"="+r.Fleet.Path())
	}
	c.Write(block + resources)
	c.WantNoChanges()
	c.Destroy()
	r.WantFree(gpu.VMRunning, "avd-01")
}
