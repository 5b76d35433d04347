package examples_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/hcl/v2/hclparse"
	"go.yaml.in/yaml/v3"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

const gitopsDir = examplesDir + "/gitops"

// pipeline is a folder in which pipelines run `gpus`, with a fleet for its hosts.
type pipeline struct {
	example
	script string
}

func newPipeline(t *testing.T) pipeline {
	t.Helper()
	if _, err := exec.LookPath("jq"); err != nil {
		t.Skip("there is no jq: apt-get install --no-install-recommends jq")
	}
	e := copyExample(t, vdiFleet, gitopsDir+"/stack/main.tf", gitopsDir+"/stack/recorded.json")
	script, err := filepath.Abs(gitopsDir + "/gpus")
	if err != nil {
		t.Fatal(err)
	}
	e.Env = append(e.Env, "TF="+rig.CLIPath(t), `TF_VAR_maintenance_window={start="00:00",end="24:00",timezone="UTC"}`)
	return pipeline{example: e, script: script}
}

// gpus runs the script and returns what it printed and its exit code.
func (p pipeline) gpus(doing string, env ...string) (string, int) {
	p.T.Helper()
	cmd := exec.CommandContext(p.T.Context(), "bash", p.script, doing)
	cmd.Dir, cmd.Env = p.Dir, slices.Concat(p.Env, env)
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		p.T.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func (p pipeline) ok(doing string, env ...string) string {
	p.T.Helper()
	out, code := p.gpus(doing, env...)
	if code != 0 {
		p.T.Fatalf("gpus %s: exit code %d\n%s", doing, code, out)
	}
	return out
}

// refused runs the script, which must fail, say so and change nothing.
func (p pipeline) refused(doing, said string, env ...string) {
	p.T.Helper()
	before := p.fleet.Snapshot()
	out, code := p.gpus(doing, env...)
	if code != 1 {
		p.T.Errorf("gpus %s: exit code %d, want 1\n%s", doing, code, out)
	}
	rig.WantSaid(p.T, strings.Join(strings.Fields(strings.ReplaceAll(out, "│", " ")), " "), said)
	p.fleet.WantUnchanged(before)
}

// What the pipelines of examples/gitops do, from a pull request to the drift of a night.
func TestGitOpsFromPullRequestToDrift(t *testing.T) {
	t.Parallel()
	p := newPipeline(t)
	before := p.fleet.Snapshot()
	forecast := func() string {
		raw, err := os.ReadFile(filepath.Join(p.Dir, "forecast.md"))
		p.fleet.Must(err)
		return string(raw)
	}
	const recording, readOnly = "GPU_INVENTORY_SNAPSHOT=recorded.json", "GPU_READ_ONLY=true"

	// The pull request: no host is there to be asked, and the plan is good for nothing else.
	p.ok("plan", recording, "GPU_SIMULATED_FLEET=nowhere.json")
	said := forecast()
	rig.WantSaid(t, said, "Planned on a recording of ", "- `gpu_partition_config.vdi`: create", "disruption `vm_restart`",
		"- VM avd-01 on hv01: restarted", "- VM avd-07 on hv02: restarted", "- hv01: 14 of 16")
	p.refused("apply", "The provider plans against the recorded inventory", recording)

	// The plan on the hosts, by a reader, who cannot apply it.
	p.ok("plan", readOnly)
	_, proposed, _ := strings.Cut(said, "\n\n")
	if diff := cmp.Diff(proposed, forecast()); diff != "" {
		t.Errorf("the same hosts, and another forecast (-recorded +asked):\n%s", diff)
	}
	p.refused("apply", "read_only", readOnly)
	p.fleet.WantUnchanged(before)

	// The operator.
	p.ok("apply")
	if got := p.vmsWithGPU(); !cmp.Equal(got, []string{"avd-01", "avd-02", "avd-07"}) {
		t.Errorf("VMs with a GPU: %q", got)
	}
	p.ok("plan", readOnly)
	if got := forecast(); got != "No change of GPUs.\n" {
		t.Errorf("an approver reads %q", got)
	}

	// Nights.
	p.ok("drift", readOnly)
	rig.Write(t, filepath.Join(p.Dir, "more.auto.tfvars"), `desktops = ["avd-01", "avd-02", "avd-07", "avd-10"]`)
	out, code := p.gpus("drift", readOnly)
	if code != 2 {
		t.Errorf("exit code %d, want 2 (something differs)\n%s", code, out)
	}
	rig.WantSaid(t, out, `gpu_vm_assignment.desktop["avd-10"]`)

	// Who loses a GPU is in no forecast, and still in what the approver reads.
	rig.Write(t, filepath.Join(p.Dir, "more.auto.tfvars"), `desktops = ["avd-01", "avd-02"]`)
	p.ok("plan", readOnly)
	rig.WantSaid(t, forecast(), "**VMs that lose their GPU, and stop for it if they run**", "- VM avd-07")
}

// withAgent is a search path that has gpu-agent.
func (p pipeline) withAgent() string {
	agent, err := rig.AgentBinary()
	p.fleet.Must(err)
	programs := p.T.TempDir()
	p.fleet.Must(os.Symlink(agent, filepath.Join(programs, "gpu-agent")))
	return "PATH=" + programs + string(os.PathListSeparator) + os.Getenv("PATH")
}

// Where gpu-agent is installed an approver reads what the plan does, in words; of a plan that cannot be explained that is said.
func TestGitOpsExplainsThePlan(t *testing.T) {
	t.Parallel()
	p := newPipeline(t)
	path := p.withAgent()
	forecast := func() string {
		raw, err := os.ReadFile(filepath.Join(p.Dir, "forecast.md"))
		p.fleet.Must(err)
		return string(raw)
	}
	p.ok("plan", path)
	rig.WantSaid(t, forecast(), "### GPUs of `vdi-prod`", "<details><summary><code>hv01</code>: ",
		"Off and on again, one after the other: `avd-01`")
	rig.Write(t, filepath.Join(p.Dir, "report.json"), `{"changes": ["forged"], "format": "gpu-plan-report/v1"}`)
	p.ok("forecast", path)
	rig.WantSaid(t, forecast(), "The plan report cannot be explained.")
	p.ok("plan", path)
	p.ok("apply", path)
	p.ok("plan", path)
	if got := forecast(); got != "No change of GPUs.\n" {
		t.Errorf("an approver reads %q", got)
	}
}

// A name that Terraform would drop is refused before the plan, with its line.
func TestGitOpsFindsMisspeltNames(t *testing.T) {
	t.Parallel()
	p := newPipeline(t)
	path := p.withAgent()
	if out := p.ok("check", path); !strings.Contains(out, "0 findings") {
		t.Errorf("of a clean configuration it says %s", out)
	}
	rig.Write(t, filepath.Join(p.Dir, "more.tf"),
		"resource \"gpu_partition_config\" \"more\" {\n  hosts = [\"hv01\"]\n  gpu_p = { partition_count = 4 }\n"+
			"  rollout = {\n    drain = true\n    on_failre = \"stop\"\n  }\n}\n")
	out, code := p.gpus("plan", path)
	if code != 2 {
		t.Errorf("exit code %d, want 2\n%s", code, out)
	}
	rig.WantSaid(t, out, "more.tf:6:5", `Did you mean "on_failure"?`)
	if _, err := os.Stat(filepath.Join(p.Dir, "gpus.tfplan")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a plan: %v", err)
	}
}

// The hook that pre-commit is told of is the agent's command, for the files that it reads.
func TestPreCommitHook(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../.pre-commit-hooks.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var hooks []struct{ ID, Name, Entry, Language, Files string }
	if err := yaml.Unmarshal(raw, &hooks); err != nil || len(hooks) != 1 {
		t.Fatalf("it has %d hooks: %v", len(hooks), err)
	}
	hook := hooks[0]
	if hook.ID != "gpu-agent-check" || hook.Language != "system" || hook.Name == "" {
		t.Errorf("it is %+v", hook)
	}
	files := regexp.MustCompile(hook.Files) // pre-commit searches in the path
	for name, want := range map[string]bool{
		"a/main.tf": true, "main.tofu": true, "b.tf.json": true, "terraform.tfvars": true, "x.auto.tfvars.json": true, "a.tftest.hcl": true,
		"a.tfquery.hcl": true, "main.tf.bak": false, "terraform.tfstate": false, "a.json": false, "a.hcl": false,
	} {
		if files.MatchString(name) != want {
			t.Errorf("%s is given to it: %t", name, !want)
		}
	}
	agent, err := rig.AgentBinary()
	if err != nil {
		t.Fatal(err)
	}
	command := strings.Fields(hook.Entry)
	for file, code := range map[string]int{
		"good.tf": 0,
		"bad.tf":  2,
	} {
		dir := t.TempDir()
		rig.Write(t, filepath.Join(dir, file), "resource \"gpu_pool\" \"p\" {\n  selector = { "+
			map[int]string{0: "models", 2: "model"}[code]+" = [\"a\"] }\n}\n")
		cmd := exec.CommandContext(t.Context(), agent, append(command[1:], file)...)
		cmd.Dir = dir
		if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != code || command[0] != "gpu-agent" {
			t.Errorf("%s %s: exit code %d, want %d\n%s", hook.Entry, file, cmd.ProcessState.ExitCode(), code, out)
		}
	}
}

func TestGitOpsKeepsToTheMaintenanceWindow(t *testing.T) {
	t.Parallel()
	p := newPipeline(t)
	opens := time.Now().UTC().Add(12 * time.Hour)
	p.Env = append(p.Env, fmt.Sprintf("TF_VAR_maintenance_window={start=%q,end=%q,timezone=\"UTC\"}",
		opens.Format("15:04"), opens.Add(time.Hour).Format("15:04")))
	p.ok("plan")
	before := p.powers()
	out, code := p.gpus("apply") // what disturbs nobody is done: the count of idle GPUs
	if code != 1 || !cmp.Equal(before, p.powers()) || len(p.vmsWithGPU()) > 0 {
		t.Errorf("exit code %d, and VMs with a GPU: %q", code, p.vmsWithGPU())
	}
	rig.WantSaid(t, out, "The maintenance window is closed")
}

// The policies judge what `gpus plan` leaves: make test-gitops.
func TestGitOpsPolicy(t *testing.T) {
	t.Parallel()
	conftest := os.Getenv("GPU_TEST_CONFTEST")
	if conftest == "" {
		t.Skip("there is no conftest: make test-gitops builds it")
	}
	p := newPipeline(t)
	p.Env = append(p.Env, "PATH="+filepath.Dir(conftest)+":"+os.Getenv("PATH"))
	p.ok("plan")
	p.ok("policy")
	rig.Write(t, filepath.Join(p.Dir, "settings.json"), `{ "gpu": { "max_stops": 2 } }`)
	p.refused("policy", "3 VMs would be stopped, and more than 2 need a change_ticket: avd-01, avd-02, avd-07")
}

// Every file of examples/gitops is read strictly, and by its own tool where that is here.
func TestGitOpsFiles(t *testing.T) {
	t.Parallel()
	doing := regexp.MustCompile(`\.\./gpus (\S+)`)
	did := map[string]int{}
	err := filepath.WalkDir(gitopsDir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		switch filepath.Ext(file) {
		case ".yml", ".yaml":
			decoder, documents := yaml.NewDecoder(bytes.NewReader(raw)), 0
			for {
				var content map[string]any // a key that is there twice is an error
				if err := decoder.Decode(&content); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatalf("%s: %v", file, err)
				}
				documents++
			}
			if documents == 0 {
				t.Errorf("%s is empty", file)
			}
			for _, m := range doing.FindAllStringSubmatch(string(raw), -1) {
				did[m[1]]++
			}
		case ".hcl", ".tf":
			if _, diags := hclparse.NewParser().ParseHCL(raw, file); diags.HasErrors() {
				t.Error(diags)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"apply", "drift", "plan", "policy"}, rig.Keys(did)); diff != "" {
		t.Errorf("what pipelines let gpus do (-want +got):\n%s", diff)
	}
	t.Run("actionlint", func(t *testing.T) {
		t.Parallel()
		tool := "../tools/bin/actionlint"
		if _, err := os.Stat(tool); err != nil {
			t.Skip("there is no actionlint: make tools builds it")
		}
		out, err := exec.CommandContext(t.Context(), tool, "-shellcheck=", "-pyflakes=", "-config-file",
			gitopsDir+"/github-actions/actionlint.yaml", gitopsDir+"/github-actions/gpus.yml").CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("%v\n%s", err, out)
		}
	})
}
