package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	tfjson "github.com/hashicorp/terraform-json"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/core"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider"
)

// CLI runs commands: in this process, or a real Terraform or OpenTofu with the real
// provider binary, a new process for each command, in a folder of its own.
type CLI struct {
	T        *testing.T
	Terminal *core.Terminal // nil with processes
	Dir      string
	Env      []string
}

// module is the path of ours, by which its binaries are built from any folder in it.
const module = "github.com/gpufleet/terraform-provider-gpu"

// buildDir is where the binaries that the tests run are built.
var buildDir string

// ProviderBinary and AgentBinary build the provider and the agent, once, and return
// where they are.
var (
	ProviderBinary = sync.OnceValues(func() (string, error) { return build("terraform-provider-gpu", module) })
	AgentBinary    = sync.OnceValues(func() (string, error) { return build("gpu-agent", module+"/cmd/gpu-agent") })
)

func build(name, pkg string) (string, error) {
	file := filepath.Join(buildDir, name)
	cmd := exec.Command("go", "build", "-o", file, pkg) //nolint:noctx // bounded by go test's timeout
	// What Main sets is not for a linker.
	cmd.Env = append(os.Environ(), "GOGC=100")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", pkg, err, out)
	}
	return file, nil
}

// Main runs the tests of a package, and makes and removes the directory of the binaries.
// It turns garbage collection off in the CLI processes, which end before it pays, and has
// less of it in the tests' own, within a limit: three packages run at once.
func Main(m *testing.M) {
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(500 << 20)
	if err := os.Setenv("GOGC", "off"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var err error
	if buildDir, err = os.MkdirTemp("", "terraform-provider-gpu"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(buildDir)
	os.Exit(code)
}

// CLIPath finds the CLI that make test names, or else an installed one.
func CLIPath(t *testing.T) string {
	t.Helper()
	if p := os.Getenv("TF_ACC_TERRAFORM_PATH"); p != "" {
		return p
	}
	for _, name := range []string{"terraform", "tofu"} {
		if p, err := exec.LookPath(name); err == nil {
			return p
		}
	}
	t.Skip("there is no terraform and no tofu: make test builds OpenTofu and names it in TF_ACC_TERRAFORM_PATH")
	return ""
}

// WithoutWaiting is a parallel test in which waiting takes no time, and ends when nobody has anything
// to do, however busy the machine is; where processes take part in it, it is a plain one.
func WithoutWaiting(test func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) {
		t.Parallel()
		if os.Getenv("TF_ACC") != "" {
			test(t)
			return
		}
		synctest.Test(t, test)
	}
}

// NewCLI runs commands in this process, or with a CLI where TF_ACC is set.
func NewCLI(t *testing.T, hcl string) *CLI {
	t.Helper()
	if WithCLI(t) {
		return NewProcesses(t, hcl)
	}
	terminal, err := core.NewTerminal(t.Context(), map[string]core.Factory{"gpu": func() (tfprotov6.ProviderServer, error) {
		server, err := provider.Server("test", nil, provider.WithPatience(Patience))
		if err != nil {
			return nil, err
		}
		return server(), nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	c := &CLI{T: t, Terminal: terminal}
	c.Write(hcl)
	return c
}

// Lifecycles are the tests with a real CLI that `make test` runs; the others run in
// `make testacc`.
var Lifecycles = []string{
	"TestAzureLocalVDIExample", "TestLinuxSharesExample", "TestResourceExamples/gpu_partition_config", "TestResourceExamples/gpu_pool",
	"TestResourceExamples/gpu_vm_assignment", "TestShareResourceExample", "TestMIGResourceExample", "TestInterruptLeavesEveryHostAsItWas",
	"TestKilledRunIsToldOfByThePlanAndPutBackByTheNextApply", "TestGeneratedConfigurationRoundTrips/partition_of_a_VM",
	"TestEnvironmentConfiguresWhatTheBlockDoesNot", "TestTwoAppliesAtOnceLeaveAValidFleet",
}

// NewProcesses runs commands with a real CLI.
func NewProcesses(t *testing.T, hcl string) *CLI {
	t.Helper()
	if os.Getenv("TF_ACC") == "" && !slices.Contains(Lifecycles, t.Name()) {
		t.Skip("it needs a real CLI: make testacc")
	}
	if _, err := ProviderBinary(); err != nil {
		t.Fatal(err)
	}
	c := &CLI{T: t, Dir: t.TempDir()}
	rc := filepath.Join(c.Dir, "cli.rc")
	Write(t, rc, fmt.Sprintf("provider_installation {\n dev_overrides {\n  \"gpufleet/gpu\" = %q\n }\n direct {}\n}\n", buildDir))
	// Making certificates for a pipe between two processes takes longer than a plan.
	c.Env = append(os.Environ(), "TF_CLI_CONFIG_FILE="+rc, "TF_DISABLE_PLUGIN_TLS=1", "TF_IN_AUTOMATION=1",
		"TF_INPUT=0", "CHECKPOINT_DISABLE=1")
	c.Write(hcl)
	return c
}

// Write replaces the configuration.
func (c *CLI) Write(hcl string) {
	c.T.Helper()
	if c.Terminal != nil {
		c.Terminal.Write(hcl)
		return
	}
	Write(c.T, filepath.Join(c.Dir, "main.tf"), "terraform {\n  required_providers {\n    gpu = { source = \"gpufleet/gpu\" }\n  }\n}\n"+hcl)
}

// Command prepares one command of the CLI.
func (c *CLI) Command(args ...string) *exec.Cmd {
	c.T.Helper()
	if c.Terminal != nil {
		c.T.Fatal("this test needs newProcesses")
	}
	cmd := exec.CommandContext(c.T.Context(), CLIPath(c.T), args...)
	cmd.Dir, cmd.Env = c.Dir, c.Env
	return cmd
}

// Outcome runs one command and returns what has come of it and its exit code.
func (c *CLI) Outcome(args ...string) (core.Outcome, int) {
	c.T.Helper()
	if c.Terminal != nil {
		return c.Terminal.Run(context.WithoutCancel(c.T.Context()), args...)
	}
	if !slices.Contains(forPrograms, args[0]) {
		out, code := c.Printed(args...)
		return core.Outcome{Answer: out}, code
	}
	out, code := c.Printed(slices.Insert(slices.Clone(args), 1, "-json")...)
	return outcome(out), code
}

// Run runs one command and returns its outcome in words, which are the same whoever runs it, and its exit code.
func (c *CLI) Run(args ...string) (string, int) {
	c.T.Helper()
	out, code := c.Outcome(args...)
	return out.String(), code
}

// Printed runs one command of a real CLI and returns what a person sees, and its exit code.
func (c *CLI) Printed(args ...string) (string, int) {
	c.T.Helper()
	cmd := c.Command(append(slices.Clone(args), "-no-color")...)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		c.T.Fatalf("%v: %v", args, err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// Planned is what a plan makes of everything, in values.
func (c *CLI) Planned() *tfjson.Plan {
	c.T.Helper()
	if c.Terminal != nil {
		p, err := c.Terminal.Plan(context.WithoutCancel(c.T.Context()), core.Options{})
		if err != nil {
			c.T.Fatal(err)
		}
		return p.JSON()
	}
	c.Ok("plan", "-out=planned")
	var p tfjson.Plan
	c.show(&p, "planned")
	return &p
}

// PlannedValue is what an attribute has in a plan, before it and after it, in JSON.
func (c *CLI) PlannedValue(address, attribute string) string {
	c.T.Helper()
	for _, x := range c.Planned().ResourceChanges {
		if x.Address == address {
			before, _ := x.Change.Before.(map[string]any)
			after, _ := x.Change.After.(map[string]any)
			raw, err := json.Marshal([]any{before[attribute], after[attribute]})
			if err != nil {
				c.T.Fatal(err)
			}
			return string(raw)
		}
	}
	c.T.Fatalf("the plan has no %s", address)
	return ""
}

// Attributes are those of an instance in the state.
func (c *CLI) Attributes(address string) map[string]any {
	c.T.Helper()
	var s tfjson.State
	if c.Terminal != nil {
		s = *c.Terminal.JSON()
	} else {
		c.show(&s)
	}
	if s.Values != nil {
		for _, r := range s.Values.RootModule.Resources {
			if r.Address == address {
				return r.AttributeValues
			}
		}
	}
	c.T.Fatalf("the state has no %s", address)
	return nil
}

// show reads the state, or a plan of a file.
func (c *CLI) show(into json.Unmarshaler, file ...string) {
	c.T.Helper()
	if err := into.UnmarshalJSON([]byte(c.Ok(append([]string{"show", "-json"}, file...)...))); err != nil {
		c.T.Fatal(err)
	}
}

// Output is an output of the state, in JSON.
func (c *CLI) Output(name string) string {
	c.T.Helper()
	return strings.TrimSpace(c.Ok("output", "-json", name))
}

// Ok runs one command that must succeed.
func (c *CLI) Ok(args ...string) string {
	c.T.Helper()
	out, code := c.Run(args...)
	if code != 0 {
		c.T.Fatalf("%v: exit code %d\n%s", args, code, out)
	}
	return out
}

// Generate plans and has the CLI write the configuration of what is imported, which must succeed.
// OpenTofu 1.10 itself panics where a type has nested attributes that only the provider sets.
func (c *CLI) Generate(file string) string {
	c.T.Helper()
	args := []string{"plan", "-generate-config-out=" + file}
	out, code := c.Run(args...)
	if code != 0 && strings.Contains(out, "configschema.(*Block).Filter(") && strings.Contains(c.Ok("version"), "OpenTofu v1.10.") {
		c.T.Skip("OpenTofu 1.10 itself panics when it generates this configuration; 1.12 does not")
	}
	if code != 0 {
		c.T.Fatalf("%v: exit code %d\n%s", args, code, out)
	}
	return out
}

// Apply applies the configuration, which must succeed.
func (c *CLI) Apply(args ...string) string {
	c.T.Helper()
	return c.Ok(append([]string{"apply", "-auto-approve"}, args...)...)
}

// Destroy destroys what the state has, which must succeed.
func (c *CLI) Destroy(args ...string) string {
	c.T.Helper()
	return c.Ok(append([]string{"destroy", "-auto-approve"}, args...)...)
}

// Fails runs one command that must end with an error.
func (c *CLI) Fails(args ...string) string {
	c.T.Helper()
	out, code := c.Run(args...)
	if code != 1 {
		c.T.Errorf("%v: exit code %d, want 1\n%s", args, code, out)
	}
	return out
}

// WantNoChanges asserts that a plan is empty.
func (c *CLI) WantNoChanges() {
	c.T.Helper()
	if out, code := c.Run("plan", "-detailed-exitcode"); code != 0 {
		c.T.Errorf("a second plan has exit code %d, want 0 (no changes)\n%s", code, out)
	}
}

// Sentence joins wrapped output, so that a text can be looked for whatever the
// width: Terraform breaks lines and draws a border.
func Sentence(out string) string {
	return strings.Join(strings.Fields(strings.NewReplacer("│", " ", "╷", " ", "╵", " ").Replace(out)), " ")
}

// WantSaid asserts that an output has texts, whatever the line breaks.
func WantSaid(t *testing.T, out string, texts ...string) {
	t.Helper()
	joined := Sentence(out)
	for _, s := range texts {
		if !strings.Contains(joined, s) {
			t.Errorf("the output does not say %q:\n%s", s, out)
		}
	}
}
