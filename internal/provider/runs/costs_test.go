package runs_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/core"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/golden"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider"
)

const costsFile = "testdata/costs.json"

// onHost is what is counted of a host: each is a command, a file or a lock on a real one.
var onHost = []simulated.Op{simulated.OpInventory, simulated.OpRefresh, simulated.OpLoadState, simulated.OpUpdateState}

// TestCosts counts what a run asks of an agent and what the agent asks of its host, and compares
// it with testdata/costs.json: a count that has risen is an error. `make costs` prints both, and
// writes the file again with ACCEPT=1. 24 assignments are made on two hosts.
func TestCosts(t *testing.T) {
	const vms = 24
	hosts := []gpu.Host{rig.Node("hv01"), rig.Node("hv02")}
	var names []string
	for n := range vms {
		names = append(names, fmt.Sprintf("avd-%02d", n+1))
		h := &hosts[n%2]
		h.VMs = append(h.VMs, rig.Off(rig.Desktop(names[n], n+1)))
	}
	r := rig.New(t, rig.Standalone(hosts...))
	terminal, err := core.NewTerminal(t.Context(), map[string]core.Factory{"gpu": func() (tfprotov6.ProviderServer, error) {
		server, err := provider.Server("test", r.Calls.Hear, provider.WithPatience(rig.Patience))
		if err != nil {
			return nil, err
		}
		return server(), nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	c := &rig.CLI{T: t, Terminal: terminal}
	config := func(names []string) string {
		return r.Block() + rig.ConfigOf(16, rig.Both) + rig.AssignAll(names, "  depends_on = [gpu_partition_config.vdi]\n")
	}
	now := map[string]map[string]int{}
	count := func(step string, run func()) {
		const far = 1 << 30
		for _, h := range rig.Both {
			err := r.Fleet.EditSimulation(t.Context(), h, func(s *simulated.Simulation) {
				s.Faults = nil
				for _, op := range onHost {
					s.Faults = append(s.Faults, simulated.Fault{Op: op, After: far})
				}
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		r.Calls.Take()
		run()
		row := map[string]int{}
		for _, calls := range r.Calls.Take() {
			for method, n := range calls {
				row["agent: "+method] += n
			}
		}
		var file struct {
			Hosts []struct {
				Simulation struct{ Faults []simulated.Fault }
			}
		}
		if err := json.Unmarshal(r.File(), &file); err != nil {
			t.Fatal(err)
		}
		for _, h := range file.Hosts {
			for _, f := range h.Simulation.Faults {
				row["host: "+string(f.Op)] += far - f.After
			}
		}
		maps.DeleteFunc(row, func(_ string, n int) bool { return n == 0 })
		now[step] = row
	}
	c.Write(config(names))
	count("1 first plan", func() { c.Ok("plan", "-parallelism=1") })
	count("2 apply", func() { c.Apply("-parallelism=1") })
	count("3 plan, nothing to do", func() { c.Ok("plan", "-parallelism=1") })
	count("4 refresh only", func() { c.Ok("plan", "-refresh-only", "-parallelism=1") })
	c.Write(config(names[1:]))
	count("5 apply, one VM less", func() { c.Apply("-parallelism=1") })
	count("6 destroy", func() { c.Destroy("-parallelism=1") })

	if os.Getenv(golden.Update) != "" {
		data, err := json.MarshalIndent(now, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(costsFile, append(data, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(costsFile)
	if err != nil {
		t.Fatal(err)
	}
	var before map[string]map[string]int
	if err := json.Unmarshal(data, &before); err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	for _, step := range slices.Sorted(maps.Keys(now)) {
		all := maps.Clone(before[step])
		if all == nil {
			all = map[string]int{}
		}
		maps.Copy(all, now[step])
		for _, what := range slices.Sorted(maps.Keys(all)) {
			was, is := before[step][what], now[step][what]
			fmt.Fprintf(&table, "%-24s %-28s %6d %6d\n", step, what, was, is)
			if is > was {
				t.Errorf("%s: %s rose from %d to %d", step, what, was, is)
			}
		}
	}
	t.Logf("%d assignments on two hosts\n%-53s %6s %6s\n%s", vms, "", "before", "after", table.String())
}
