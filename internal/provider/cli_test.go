package provider_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/core"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider"
)

// cli runs commands: in this process, or a real Terraform or OpenTofu with the real
// provider binary, a new process for each command, in a folder of its own.
type cli struct {
	t        *testing.T
	terminal *core.Terminal // nil with processes
	dir      string
	env      []string
}

// buildDir is where the binaries that the tests run are built.
var buildDir string

var (
	providerBinary = sync.OnceValues(func() (string, error) { return build("terraform-provider-gpu", "../..") })
	agentBinary    = sync.OnceValues(func() (string, error) { return build("gpu-agent", "../../cmd/gpu-agent") })
)

func build(name, pkg string) (string, error) {
	file := filepath.Join(buildDir, name)
	cmd := exec.Command("go", "build", "-o", file, pkg) //nolint:noctx // bounded by go test's timeout
	// What TestMain sets is not for a linker.
	cmd.Env = append(os.Environ(), "GOGC=100")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", pkg, err, out)
	}
	return file, nil
}

// TestMain makes and removes the directory of the binaries. It turns garbage collection
// off in the suite's CLI processes, which end before it pays, and has less of it in its
// own. With foreignAgent set this process is no test but an agent, and with
// kubernetesProvider a provider.
func TestMain(m *testing.M) {
	if os.Getenv(foreignAgent) != "" {
		serveForeignAgent()
		return
	}
	if os.Getenv(kubernetesProvider) != "" {
		serveKubernetes()
		return
	}
	debug.SetGCPercent(400)
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

// cliPath finds the CLI that make test names, or else an installed one.
func cliPath(t *testing.T) string {
	t.Helper()
	if p := os.Getenv("TF_ACC_TERRAFORM_PATH"); p != "" {
		return p
	}
	for _, name := range []string{"terraform", "tofu"} {
		if p, err := exec.LookPath(name); err == nil {
			return p
		}
	}
	t.Skip("neither terraform nor tofu is installed: `make test` builds OpenTofu and names it in TF_ACC_TERRAFORM_PATH")
	return ""
}

// newCLI runs commands in this process, or with a CLI where TF_ACC is set.
func newCLI(t *testing.T, hcl string) *cli {
	t.Helper()
	if os.Getenv("TF_ACC") != "" {
		return newProcesses(t, hcl)
	}
	terminal, err := core.NewTerminal(t.Context(), map[string]core.Factory{"gpu": func() (tfprotov6.ProviderServer, error) {
		server, err := provider.Server("test", nil)
		if err != nil {
			return nil, err
		}
		return server(), nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	c := &cli{t: t, terminal: terminal}
	c.write(hcl)
	return c
}

// lifecycles are the tests with a real CLI that `make test` runs; the others run in
// `make testacc`.
var lifecycles = []string{
	"TestAzureLocalVDIExample", "TestLinuxSharesExample", "TestResourceExamples/gpu_partition_config", "TestResourceExamples/gpu_pool",
	"TestResourceExamples/gpu_vm_assignment", "TestShareResourceExample", "TestMIGResourceExample", "TestInterruptLeavesEveryHostAsItWas",
	"TestKilledRunIsToldOfByThePlanAndPutBackByTheNextApply", "TestGeneratedConfigurationRoundTrips/partition_of_a_VM",
	"TestEnvironmentConfiguresWhatTheBlockDoesNot", "TestTwoAppliesAtOnceLeaveAValidFleet",
}

// newProcesses runs commands with a real CLI.
func newProcesses(t *testing.T, hcl string) *cli {
	t.Helper()
	if os.Getenv("TF_ACC") == "" && !slices.Contains(lifecycles, t.Name()) {
		t.Skip("it needs a real CLI: make testacc")
	}
	if _, err := providerBinary(); err != nil {
		t.Fatal(err)
	}
	c := &cli{t: t, dir: t.TempDir()}
	rc := filepath.Join(c.dir, "cli.rc")
	write(t, rc, fmt.Sprintf("provider_installation {\n dev_overrides {\n  \"gpufleet/gpu\" = %q\n }\n direct {}\n}\n", buildDir))
	// Making certificates for a pipe between two processes takes longer than a plan.
	c.env = append(os.Environ(), "TF_CLI_CONFIG_FILE="+rc, "TF_DISABLE_PLUGIN_TLS=1", "TF_IN_AUTOMATION=1", "TF_INPUT=0", "CHECKPOINT_DISABLE=1")
	c.write(hcl)
	return c
}

// write replaces the configuration.
func (c *cli) write(hcl string) {
	c.t.Helper()
	if c.terminal != nil {
		c.terminal.Write(hcl)
		return
	}
	write(c.t, filepath.Join(c.dir, "main.tf"), "terraform {\n  required_providers {\n    gpu = { source = \"gpufleet/gpu\" }\n  }\n}\n"+hcl)
}

// command prepares one command of the CLI.
func (c *cli) command(args ...string) *exec.Cmd {
	c.t.Helper()
	if c.terminal != nil {
		c.t.Fatal("this test needs newProcesses")
	}
	cmd := exec.CommandContext(c.t.Context(), cliPath(c.t), args...)
	cmd.Dir, cmd.Env = c.dir, c.env
	return cmd
}

// run runs one command and returns what it printed and its exit code.
func (c *cli) run(args ...string) (string, int) {
	c.t.Helper()
	if c.terminal != nil {
		return c.terminal.Run(context.WithoutCancel(c.t.Context()), args...)
	}
	cmd := c.command(append(args, "-no-color")...)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		c.t.Fatalf("%v: %v", args, err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// ok runs one command that must succeed.
func (c *cli) ok(args ...string) string {
	c.t.Helper()
	out, code := c.run(args...)
	if code != 0 {
		c.t.Fatalf("%v: exit code %d\n%s", args, code, out)
	}
	return out
}

// apply applies the configuration, which must succeed.
func (c *cli) apply(args ...string) string {
	c.t.Helper()
	return c.ok(append([]string{"apply", "-auto-approve"}, args...)...)
}

// destroy destroys what the state has, which must succeed.
func (c *cli) destroy(args ...string) string {
	c.t.Helper()
	return c.ok(append([]string{"destroy", "-auto-approve"}, args...)...)
}

// fails runs one command that must end with an error.
func (c *cli) fails(args ...string) string {
	c.t.Helper()
	out, code := c.run(args...)
	if code != 1 {
		c.t.Errorf("%v: exit code %d, want 1\n%s", args, code, out)
	}
	return out
}

// wantNoChanges asserts that a plan is empty.
func (c *cli) wantNoChanges() {
	c.t.Helper()
	if out, code := c.run("plan", "-detailed-exitcode"); code != 0 {
		c.t.Errorf("a second plan has exit code %d, want 0 (no changes)\n%s", code, out)
	}
}

// sentence joins wrapped output, so that a text can be looked for whatever the
// width: Terraform breaks lines and draws a border.
func sentence(out string) string {
	return strings.Join(strings.Fields(strings.NewReplacer("│", " ", "╷", " ", "╵", " ").Replace(out)), " ")
}

// wantSaid asserts that an output has texts, whatever the line breaks.
func wantSaid(t *testing.T, out string, texts ...string) {
	t.Helper()
	joined := sentence(out)
	for _, s := range texts {
		if !strings.Contains(joined, s) {
			t.Errorf("the output does not say %q:\n%s", s, out)
		}
	}
}
