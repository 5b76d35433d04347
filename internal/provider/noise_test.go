package provider_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
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

// An approver reads what a new count does to twelve desktops: the change of each GPU, and who is off for it. What stays is no part
// of the plan, and nothing but the memory of a partition, which the driver tells, is left to the apply.
func TestNewCountUnderTwelveDesktopsIsReadByAPerson(t *testing.T) {
	t.Parallel()
	nodes := []gpu.Host{rig.Node("hv01"), rig.Node("hv02")}
	var assigned string
	for i := range 12 {
		name := fmt.Sprintf("avd-%02d", i+1)
		nodes[i%2].VMs = append(nodes[i%2].VMs, rig.Desktop(name, i+1))
		assigned += rig.AssignmentOf(name, name, "partition = { config = gpu_partition_config.vdi.id }", rig.MayStop)
	}
	r := rig.New(t, rig.Standalone(nodes...))
	config := func(count int) string {
		return r.Block() + rig.ConfigOf(count, rig.Both, `max_disruption = "vm_restart"`) + assigned
	}
	c := rig.NewProcesses(t, config(4))
	c.Apply()
	c.Write(config(8))
	out, code := c.Printed("plan")
	if code != 0 {
		t.Fatal(out)
	}
	_, out, _ = strings.Cut(out, "Terraform will perform the following actions:\n")
	if lines := strings.Count(out, "\n"); lines > 120 {
		t.Errorf("the plan has %d lines, want 120 at most", lines)
	}
	if unknown := strings.Count(out, "(known after apply)"); unknown > 12 {
		t.Errorf("the plan leaves %d values to the apply, want 12 at most", unknown)
	}
	for _, line := range strings.Split(out, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "- ") {
			t.Errorf("the plan shows as going: %s", line)
		}
	}
	rig.WantSaid(t, out, `layout = "gpu_p:4" -> "gpu_p:8"`, "0 to add, 1 to change, 0 to destroy",
		"hv01: VMs avd-01, avd-03, avd-05, avd-07, avd-09 and avd-11 are shut down and started again",
		"hv02: VMs avd-02, avd-04, avd-06, avd-08, avd-10 and avd-12 are shut down and started again")
	if t.Failed() {
		t.Log(out)
	}
	c.Apply()
	r.WantCounts(8, rig.Both...)
	c.WantNoChanges()
	for i := range 12 {
		r.WantVM(fmt.Sprintf("avd-%02d", i+1), gpu.VMRunning, 1)
	}
}
