package provider_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/core"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider"
)

// shared is a provider as `terraform test` (1.14 and later) has it: configured once, and asked for all
// walks of a file.
type shared struct {
	provider.Served
	configure func(context.Context, *tfprotov6.ConfigureProviderRequest) (*tfprotov6.ConfigureProviderResponse, error)
}

func (s *shared) ValidateProviderConfig(context.Context,
	*tfprotov6.ValidateProviderConfigRequest,
) (*tfprotov6.ValidateProviderConfigResponse, error) {
	return &tfprotov6.ValidateProviderConfigResponse{}, nil
}

func (s *shared) ConfigureProvider(ctx context.Context, r *tfprotov6.ConfigureProviderRequest) (*tfprotov6.ConfigureProviderResponse,
	error,
) {
	return s.configure(ctx, r)
}

// What one provider says and does in several runs is what a provider for each walk says and does.
func TestOneProcessServesTheRunsOfATestFile(t *testing.T) {
	t.Parallel()
	desktops := func(count int, names ...string) string {
		list := ""
		for _, name := range names {
			list += fmt.Sprintf("%[1]s = %[1]q\n", name)
		}
		return rig.ConfigOf(count, rig.Both, `on_destroy = "restore"`) + fmt.Sprintf(`
resource "gpu_vm_assignment" "all" {
  for_each = {
%s}
  vm        = each.value
  partition = { config = gpu_partition_config.vdi.id }
  power     = { allow_shutdown = true }
}
data "gpu_change_forecast" "all" {
  hosts = ["hv01", "hv02"]
  gpu_p = { partition_count = %d }
}
output "stops" { value = jsonencode(data.gpu_change_forecast.all) }
`, list, count)
	}
	layouts := func(counts string) string {
		return fmt.Sprintf(`
resource "gpu_partition_config" "all" {
  for_each = { %s }
  name     = each.key
  hosts    = [split("/", each.value)[0]]
  gpu_p    = { partition_count = tonumber(split("/", each.value)[1]) }
}
`, counts)
	}
	for name, runs := range map[string][]run{
		"plans of other configs": {
			{"plan", layouts(`a = "hv01/4"`)},
			{"plan", layouts(`b = "hv01/4"`)},
			{"plan", layouts(`a = "hv02/2"`)},
			{"plan", layouts(`c = "hv02/4"`)},
		},
		"plans of other desktops": {
			{"plan", desktops(2, "avd-01", "avd-02")},
			{"plan", desktops(4, "avd-02", "avd-03")},
			{"plan", desktops(4, "avd-02", "avd-03")},
			{"plan", desktops(8, "avd-01", "avd-02", "avd-03")},
			{"plan", desktops(2, "avd-03")},
		},
		"plans of constants": {
			{"plan", rig.ConfigOf(2, rig.Both)},
			{"plan", rig.ConfigOf(2, rig.Both)},
			{"plan", rig.ConfigOf(4, rig.Both)},
			{"plan", rig.ConfigOf(2, rig.Both) + rig.AssignmentOf("a", "avd-01")},
			{"plan", rig.AssignmentOf("a", "avd-01")},
		},
		"applies and plans": {
			{"apply -auto-approve", desktops(4, "avd-01", "avd-02")},
			{"plan", desktops(4, "avd-01", "avd-02")},
			{"apply -auto-approve", desktops(4, "avd-01", "avd-03")},
			{"plan", desktops(2, "avd-01")},
			{"plan", desktops(8, "avd-01", "avd-02")},
			{"plan -refresh=false", desktops(8, "avd-01")},
			{"plan", desktops(4, "avd-01", "avd-03")},
			{"apply -auto-approve -replace=gpu_partition_config.vdi", desktops(4, "avd-01")},
			{"destroy -auto-approve -refresh=false", desktops(4, "avd-01")},
			{"plan", desktops(4, "avd-01")},
		},
		"a destroy after a plan": {
			{"apply -auto-approve", desktops(4, "avd-01", "avd-02")},
			{"plan", desktops(4, "avd-02", "avd-03")},
			{"destroy -auto-approve -refresh=false", desktops(4, "avd-01", "avd-02")},
		},
		"an import first": {
			{"plan", "import {\n  to = gpu_vm_assignment.a\n  id = \"hv01/avd-01\"\n}\n" + rig.AssignmentOf("a", "avd-01", "partition = {}")},
			{"plan", desktops(4, "avd-01")},
		},
		"conflicts of one run": {
			{"plan", desktops(4, "avd-01")}, {"plan", desktops(4, "avd-01") + rig.AssignmentOf("a", "avd-01")}, {"plan", desktops(4, "avd-01")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one, each := rig.New(t, rig.TwoNodes()), rig.New(t, rig.TwoNodes())
			start := func(r *rig.Rig) core.Factory { return r.Factories()["gpu"] }
			server, err := start(one)()
			one.Must(err)
			served, ok := server.(provider.Served)
			if !ok {
				t.Fatal("no lists or no actions")
			}
			var once sync.Once
			s := &shared{Served: served}
			s.configure = func(ctx context.Context, r *tfprotov6.ConfigureProviderRequest) (resp *tfprotov6.ConfigureProviderResponse, err error) {
				resp = &tfprotov6.ConfigureProviderResponse{}
				once.Do(func() { resp, err = served.ConfigureProvider(ctx, r) })
				return resp, err
			}
			got := play(one, func() (tfprotov6.ProviderServer, error) { return s, nil }, runs)
			want := play(each, start(each), runs)
			for i := range runs {
				if got[i] != want[i] {
					t.Errorf("run %d, %s: one process ended with\n%s\nand a process for each with\n%s", i+1, runs[i].command, got[i], want[i])
				}
			}
			rig.SameHardware(t, each.Snapshot(), one.Snapshot())
		})
	}
}

type run struct{ command, config string }

// eitherGPU takes the GPU out of what is said: Hyper-V gives VMs that start at the same time either one.
var eitherGPU = strings.NewReplacer(rig.GPU0, "ID", rig.GPU1, "ID")

// play tells of each run what it printed, line by line in one order, how it ended, and how often it asked and changed hosts.
func play(r *rig.Rig, start core.Factory, runs []run) []string {
	r.T.Helper()
	terminal, err := core.NewTerminal(r.T.Context(), map[string]core.Factory{"gpu": start})
	r.Must(err)
	var told []string
	for _, run := range runs {
		terminal.Write(r.Block() + run.config)
		outcome, code := terminal.Run(r.T.Context(), strings.Fields(run.command)...)
		out := eitherGPU.Replace(outcome.String())
		lines := strings.Split(out, "\n")
		slices.Sort(lines)
		for host, calls := range r.Calls.Take() {
			lines = append(lines, fmt.Sprintf("%s: %d inventories, %d changes", host, calls["Inventory"], calls["Apply"]))
		}
		slices.Sort(lines[len(strings.Split(out, "\n")):])
		told = append(told, fmt.Sprintf("%s\nexit code %d", strings.Join(lines, "\n"), code))
	}
	return told
}

// A test file of runs that plan, apply, replace and act, with a module and a state of its own among them.
func TestRunsOfATestFile(t *testing.T) {
	t.Parallel()
	c := rig.NewProcesses(t, `
variable "desktops" { type = map(string) }
variable "config" { type = string }
variable "timeout" { default = "5m" }
resource "gpu_vm_assignment" "all" {
  for_each  = var.desktops
  vm        = each.value
  partition = { config = var.config }
  power     = { allow_shutdown = true, shutdown_timeout = var.timeout }
  lifecycle {
    action_trigger {
      events  = [after_create, before_update]
      actions = [action.gpu_vm_power.now]
    }
  }
}
`+actionOn("gpu_vm_power", "avd-04", `state = "running"`))
	needsQuery(t, c) // which is of the version of actions
	r := rig.New(t, rig.TwoNodes())
	layout := filepath.Join(c.Dir, "layout", "main.tf")
	r.Must(os.MkdirAll(filepath.Dir(layout), 0o700))
	r.Must(os.Mkdir(filepath.Join(c.Dir, "tests"), 0o700))
	rig.Write(t, layout, `
terraform {
  required_providers {
    gpu = { source = "gpufleet/gpu" }
  }
}
variable "partitions" { type = number }
`+strings.Replace(rig.ConfigOf(0, rig.Both, `on_destroy = "restore"`), "partition_count = 0", "partition_count = var.partitions", 1)+`
output "id" { value = gpu_partition_config.vdi.id }
`)
	file := r.Block()
	for i, x := range []struct{ more, of string }{
		{"command = plan", "2"},
		{"command = plan", "4"},
		{"", "4"}, // the layout
		{"command = plan", `a = "avd-04"`},
		{"command = plan", `b = "avd-04", c = "avd-01"`},
		{"", `a = "avd-04"`},
		{"command = plan", `b = "avd-04", c = "avd-03"`},
		{"", `a = "avd-04", b = "avd-01"`},
		{"", `a = "avd-04", b = "avd-02"`},
		{"", `a = "avd-04", b = "avd-02"`}, // it has another timeout
		{"plan_options {\n replace = [gpu_vm_assignment.all[\"b\"]]\n}", `a = "avd-04", b = "avd-02"`},
		{"command = plan\nplan_options {\n refresh = false\n}", `a = "avd-01"`},
		{"command = plan", `c = "avd-04"`},
	} {
		of := "module {\n source = \"./layout\"\n}\nvariables {\n partitions = " + x.of + "\n}"
		if i > 2 {
			of = fmt.Sprintf("variables {\n desktops = { %s }\n config = run.run2.id\n timeout = \"%dm\"\n}", x.of, 5+i/9)
		}
		file += fmt.Sprintf("run \"run%d\" {\n%s\n%s\n}\n", i, x.more, of)
	}
	rig.Write(t, filepath.Join(c.Dir, "tests", "all.tftest.hcl"), file)
	before := r.Snapshot()
	c.Ok("get")
	rig.WantSaid(t, c.Ok("test"), "Success! 13 passed, 0 failed.")
	rig.SameHardware(t, before, r.Snapshot())
}
