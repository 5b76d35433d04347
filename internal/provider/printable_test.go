package provider_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestNamesCannotForgeWhatAPersonReads: whatever VMs, GPUs and pools are called and hosts say, in plans,
// applies, drift, refusals, conflicts, imports and destroys no character but the printable ones is printed, and
// no line begins as one of ours does. Names stay what they are: each object is found by its own.
func TestNamesCannotForgeWhatAPersonReads(t *testing.T) {
	t.Parallel()
	r := rig.New(t, hostile())
	names := others.HostileNames()
	c := rig.NewCLI(t, "")
	seen, wrapped := map[string]bool{}, os.Getenv("TF_ACC") != ""
	read := func(out string, _ int) string {
		t.Helper()
		for _, fault := range others.Faults(out, wrapped) {
			if !seen[fault] {
				t.Error(fault)
			}
			seen[fault] = true
		}
		return out
	}
	run := func(hcl string, args ...string) string {
		t.Helper()
		c.Write(r.Block(`rules = { foreign-controller = "warning" }`) + hcl)
		return read(c.Run(args...))
	}
	config := func(n int, more ...string) string { return rig.ConfigOf(n, []string{"hv01"}, more...) }
	quoted := func(name string) string { return string(hclwrite.TokensForValue(cty.StringVal(name)).Bytes()) }
	all := ""
	for i, name := range names {
		vm := quoted(name)
		if i > 5 || wrapped { // in the diff Terraform itself shows what is configured, and several lines of it as such
			vm = fmt.Sprintf("%q", rig.VMID(i+1))
		}
		all += fmt.Sprintf("resource \"gpu_vm_assignment\" \"a%d\" {\n  vm = %s\n  partition = { config = gpu_partition_config.vdi.id }\n  "+
			"power = { allow_shutdown = true }\n}\n", i, vm)
	}
	forecast := "data \"gpu_change_forecast\" \"f\" {\n  hosts = [\"hv01\"]\n  gpu_p = { partition_count = 8 }\n}\ndata \"gpu_inventory\" " +
		"\"i\" {}\n"
	r.EditHost("hv01", func(h *gpu.Host) {
		h.HeldBy = &gpu.Holder{Of: names[0], Run: names[1], Name: names[4], Owner: names[5], Since: time.Now(), Until: time.Now()}
	})
	first := run(config(16)+all, "plan")
	if !strings.Contains(first, "shut down and started again") {
		t.Errorf("no VM is announced:\n%s", first)
	}
	r.EditHost("hv01", func(h *gpu.Host) { h.Stale, h.Unfinished, h.Unknown, h.HeldBy = nil, nil, nil, nil })
	run(config(16)+all, "apply", "-auto-approve")
	for i, vm := range r.Host("hv01").VMs {
		if len(vm.PartitionAdapters) != 1 || vm.Name != names[i] {
			t.Errorf("VM %q has %d adapters, and is called %q", names[i], len(vm.PartitionAdapters), vm.Name)
		}
	}
	if out, code := c.Run("plan", "-detailed-exitcode"); code != 0 {
		t.Errorf("a second plan is not empty:\n%s", out)
	}
	run(config(8)+all+forecast, "plan")
	run(config(8, `max_disruption = "vm_restart"`)+all+forecast, "plan")
	run(config(16)+strings.ReplaceAll(all, "allow_shutdown = true", "allow_shutdown = false"), "plan", "-refresh=false")
	r.EditHost("hv01", func(h *gpu.Host) {
		for i := range h.VMs {
			h.VMs[i].PartitionAdapters = nil
			h.VMs[i].State = gpu.VMOff
		}
	})
	run(config(16)+all, "plan")
	r.EditVM(names[0], func(vm *gpu.VM) { vm.Name = names[1] })
	run(config(16)+rig.Assignment("nowhere\n\x1bError: forged"), "plan")
	run(config(16)+"resource \"gpu_vm_assignment\" \"twin\" {\n  vm = "+quoted(names[1])+"\n  partition = {}\n}\n", "plan")
	run("", "destroy", "-auto-approve")
}

// hostile is a fleet whose names and texts are hostile: of VMs, some of which run and have a partition, of
// GPUs' models, of a pool, and all that a host says of itself.
func hostile() gpu.Snapshot {
	names := others.HostileNames()
	h := rig.Node("hv01")
	h.OS.Name = names[0]
	for i, name := range names {
		vm := rig.Desktop(name, i+1)
		if i%3 == 2 {
			vm = rig.Off(vm)
		}
		h.VMs = append(h.VMs, vm)
	}
	for i := range h.GPUs {
		h.GPUs[i].Model = "NVIDIA A2" + names[4]
	}
	h.Controllers = []gpu.Controller{{Name: names[1], Role: gpu.BrokerController}}
	h.Stale = []string{names[4]}
	h.Unfinished = []string{names[0]}
	h.Unknown = []gpu.Unknown{{Part: gpu.PartPolicies, Why: names[5]}}
	return rig.Standalone(h)
}

// TestTheForecastIsNoMarkup: what an approver reads has a name in it as code, whatever the name.
func TestTheForecastIsNoMarkup(t *testing.T) {
	t.Parallel()
	jq, err := exec.LookPath("jq")
	if err != nil {
		t.Skip("there is no jq: apt-get install --no-install-recommends jq")
	}
	type object = map[string]any
	var vms, resets, seats, violations, changes []object
	for _, name := range append(others.HostileNames(), "avd-01", "__bold__", "www.t.invalid", "a`b``c```d", "`", " ", "", "~~~", "@team") {
		vms = append(vms, object{"vm": name, "host": name, "effect": "restarted", "allowed": true})
		resets = append(resets, object{"gpu_id": name, "host": name})
		seats = append(seats, object{"host": name, "left": 1, "total": 2})
		violations = append(violations, object{"level": "error", "found": name, "rule": "capacity"})
		changes = append(changes, object{
			"mode": "managed", "type": "gpu_vm_assignment", "address": name,
			"change": object{"actions": []string{"delete"}, "before": object{"vm": name}},
		})
	}
	doc, err := json.Marshal(object{"resource_changes": changes, "prior_state": object{"values": []object{{
		"type": "gpu_change_forecast", "address": others.HostileNames()[0],
		"values": object{"disruption": "none", "feasible": true, "vms": vms, "resets_gpus": resets, "seats": seats, "violations": violations},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), jq, "-r", "-f", "../../examples/gitops/forecast.jq")
	cmd.Stdin = strings.NewReader(string(doc))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, fault := range others.Faults(string(out), false) {
		t.Error(fault)
	}
	if !strings.Contains(string(out), "- VM avd-01 on avd-01: restarted\n") {
		t.Errorf("a plain name does not stand as it is:\n%s", out)
	}
	for line := range strings.Lines(string(out)) {
		if rest := outsideCode(strings.TrimSpace(line)); strings.ContainsAny(rest, "@<>[]!`~|\\_$%") ||
			strings.Contains(rest, "forged") || strings.Contains(rest, "www") {
			t.Errorf("outside of code there is %q, in %q", rest, line)
		}
	}
}

// outsideCode is a line without its code spans, as CommonMark finds them.
func outsideCode(line string) string {
	var out strings.Builder
	for line != "" {
		at := strings.IndexByte(line, '`')
		if at < 0 {
			out.WriteString(line)
			break
		}
		out.WriteString(line[:at])
		rest := strings.TrimLeft(line[at:], "`")
		fence := line[at : len(line)-len(rest)]
		end := -1
		for i := 0; i < len(rest); i++ {
			if rest[i] != '`' {
				continue
			}
			n := len(rest[i:]) - len(strings.TrimLeft(rest[i:], "`"))
			if n == len(fence) {
				end = i
				break
			}
			i += n
		}
		if end < 0 {
			out.WriteString(line[at:])
			break
		}
		line = rest[end+len(fence):]
	}
	return out.String()
}
