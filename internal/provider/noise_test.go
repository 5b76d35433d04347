package provider_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

// planned is what the plan's JSON says of each resource.
type planned struct {
	Changes []struct {
		Address string `json:"address"`
		Change  struct {
			Actions []string       `json:"actions"`
			After   map[string]any `json:"after"`
			Unknown map[string]any `json:"after_unknown"`
		} `json:"change"`
	} `json:"resource_changes"`
}

func planJSON(t *testing.T, c *rig.CLI) planned {
	t.Helper()
	c.Ok("plan", "-out=noise")
	var p planned
	if err := json.Unmarshal([]byte(c.Ok("show", "-json", "noise")), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// What an apply cannot leave otherwise is known in the plan.
func TestWhatCannotDifferIsPlanned(t *testing.T) {
	t.Parallel()
	fleet, names := rig.Desktops(2)
	r := rig.New(t, fleet)
	pool := "resource \"gpu_pool\" \"p\" {\n  name = \"render\"\n  members = { hv01 = [\"" + rig.GPU1 + "\"] }\n}\n"
	config := strings.Replace(rig.ConfigOf(4, []string{"hv01"}), "name  =",
		"selector = { gpu_ids = { hv01 = [\""+rig.GPU0+"\"] } }\n  name  =", 1)
	c := rig.NewProcesses(t, r.Block()+config+pool+rig.Assign(names[0], "allow_shutdown = true")+
		rig.AssignmentOf("whole", names[1], "pool = { id = gpu_pool.p.id }", rig.WholeGPU(1), rig.MayStop))
	for _, x := range planJSON(t, c).Changes {
		after, unknown := x.Change.After, x.Change.Unknown
		if d, ok := after["drift"].([]any); !ok || len(d) != 0 {
			t.Errorf("%s: drift is planned as %v", x.Address, after["drift"])
		}
		if !strings.HasPrefix(x.Address, "gpu_vm_assignment") {
			continue
		}
		if after["pending"] != false {
			t.Errorf("%s: pending is planned as %v", x.Address, after["pending"])
		}
		whole := x.Address == "gpu_vm_assignment.whole"
		for _, a := range []string{"partition_id", "partition_vram_mib"} {
			if unknown[a] == true == whole {
				t.Errorf("%s: %s is unknown: %v", x.Address, a, unknown[a])
			}
		}
	}
	c.Apply()
	c.WantNoChanges()
	// With next_off nobody knows at plan whether the VM runs then.
	c.Write(r.Block() + config + pool + rig.Assign(names[0], "when = \"next_off\"", "min_partition_vram_mib = 1") +
		rig.AssignmentOf("whole", names[1], "pool = { id = gpu_pool.p.id }", rig.WholeGPU(1), rig.MayStop))
	for _, x := range planJSON(t, c).Changes {
		if x.Address == "gpu_vm_assignment."+names[0] && x.Change.Unknown["pending"] != true {
			t.Errorf("pending is planned as %v", x.Change.After["pending"])
		}
	}
	c.Apply()
	c.WantNoChanges()
}

// A change of a config that leaves a VM what it has is no change of the VM's assignment.
func TestAConfigsChangeDoesNotPlanItsAssignments(t *testing.T) {
	t.Parallel()
	fleet, names := rig.Desktops(20) // on two hosts
	r := rig.New(t, fleet)
	config := func(hosts []string, more ...string) string {
		return r.Block() + rig.ConfigOf(16, hosts, more...) + strings.Replace(rig.AssignAll(names[:12], ""),
			"partition = {}", "partition = { config = gpu_partition_config.vdi.id }", 1)
	}
	c := rig.NewProcesses(t, config([]string{"hv01"}))
	c.Apply()
	for _, after := range []string{
		config([]string{"hv01", "hv02"}), config([]string{"hv01", "hv02"}, `max_disruption = "vm_restart"`),
		config([]string{"hv01", "hv02"}, `on_destroy = "restore"`), config([]string{"hv01"}),
	} {
		c.Write(after)
		for _, x := range planJSON(t, c).Changes {
			if strings.HasPrefix(x.Address, "gpu_vm_assignment") && fmt.Sprint(x.Change.Actions) != "[no-op]" {
				t.Errorf("%s: %v", x.Address, x.Change.Actions)
			}
		}
		c.Apply()
		c.WantNoChanges()
	}
}

// Fifty assignments are read by a person: beside Terraform's four lines and what is written in the
// configuration, one prints the five values that only an apply knows, and two that say that nothing
// is open.
func TestNewAssignmentsPrintFewLines(t *testing.T) {
	t.Parallel()
	fleet, names := rig.Desktops(50)
	for name, x := range map[string]struct {
		defaults, power string
		own             int // lines of the configuration, as Terraform prints them, and of what the provider adds
	}{
		"power of the resource": {"", "power     = { allow_shutdown = true }\n", 1 + 1 + 3},
		"power of the provider": {"power = { allow_shutdown = true }", "", 1 + 1 + 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, fleet)
			c := rig.NewProcesses(t, r.Block(x.defaults)+strings.Replace(rig.AssignAll(names, ""), "power     = { allow_shutdown = true }\n",
				x.power, 1))
			out, _ := c.Printed("plan", "-refresh=false")
			_, out, _ = strings.Cut(out, " will perform the following actions:\n\n")
			out, _, _ = strings.Cut(out, "Plan: ")
			if got, want := strings.Count(out, "\n"), (4+x.own+5+2)*len(names); got != want {
				t.Errorf("%d lines for %d assignments, want %d:\n%.2000s", got, len(names), want, out)
			}
		})
	}
}
