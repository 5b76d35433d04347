// Package versions runs the provider with the agent of the commit before, and the other way
// round.
package versions

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestMain(m *testing.M) { rig.Main(m) }

// ref names another commit to compare with: a release, say. Without it, it is the parent of the
// commit that is checked out, or that commit itself when there are changes on it.
const ref = "GPU_TEST_REF"

func git(args ...string) (string, error) {
	out, err := exec.Command("git", args...).CombinedOutput() //nolint:noctx // bounded by go test's timeout
	return strings.TrimSpace(string(out)), err
}

// commitBefore is the commit that the tests compare with.
func commitBefore(t *testing.T) string {
	t.Helper()
	if named := os.Getenv(ref); named != "" {
		return named
	}
	changes, err := git("status", "--porcelain", "--untracked-files=no")
	if err != nil {
		t.Skipf("this is no checkout of git, so there is no commit before: %s", changes)
	}
	if changes != "" {
		return "HEAD"
	}
	if _, err := git("rev-parse", "--verify", "--quiet", "HEAD~1^{commit}"); err != nil {
		if out, err := git("fetch", "--quiet", "--deepen=1"); err != nil {
			t.Skipf("the checkout is shallow and its parent cannot be fetched (check out with depth 2): %s", out)
		}
		if out, err := git("rev-parse", "--verify", "--quiet", "HEAD~1^{commit}"); err != nil {
			t.Skipf("the commit has no parent %s", out)
		}
	}
	return "HEAD~1"
}

// build builds provider and agent of a commit, and returns the directory that they are in.
func build(t *testing.T, commit string) string {
	t.Helper()
	source, out := t.TempDir(), t.TempDir()
	top, err := git("rev-parse", "--show-toplevel")
	if err != nil {
		t.Fatal(top)
	}
	archive := exec.CommandContext(t.Context(), "git", "-C", top, "archive", "--format=tar", commit)
	unpack := exec.CommandContext(t.Context(), "tar", "-x", "-C", source)
	var said bytes.Buffer
	archive.Stderr, unpack.Stderr = &said, &said
	if unpack.Stdin, err = archive.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	for _, step := range []func() error{archive.Start, unpack.Run, archive.Wait} {
		if err := step(); err != nil {
			t.Fatalf("commit %s: %v: %s", commit, err, said.String())
		}
	}
	for name, pkg := range map[string]string{"terraform-provider-gpu": ".", "gpu-agent": "./cmd/gpu-agent"} {
		// -trimpath shares what has not changed since with the build of this commit.
		cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags",
			"-X main.version=0.0.1", "-o", filepath.Join(out, name), pkg)
		cmd.Dir, cmd.Env = source, append(os.Environ(), "GOGC=100")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s of commit %s: %v\n%s", pkg, commit, err, text)
		}
	}
	return out
}

// hello asks an agent what it knows. ok is false when it speaks no protocol of this build.
func hello(t *testing.T, agentPath string, env []string) (h agent.Hello, ok bool) {
	t.Helper()
	conn, err := connect.Process(t.Context(), "hv01", connect.Command{Path: agentPath, Args: []string{"serve", "--stdio"}, Env: env},
		connect.Options{Version: "test"})
	if ce, isOurs := err.(*connect.Error); isOurs && ce.Code == connect.Version { //nolint:errorlint // it is not wrapped
		return h, false
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	return conn.Hello, true
}

// TestWithTheCommitBefore makes, changes and takes away a partition config and a VM's partition.
// Each command either works, as it has to where both ends know the same, or is refused because
// one end does not know something, and then has changed nothing. With both ends of this commit
// all of it works, from wherever the other pair has left it.
func TestWithTheCommitBefore(t *testing.T) {
	commit := commitBefore(t)
	before := build(t, commit)
	now, err := rig.AgentBinary()
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ provider, agent string }{
		"the agent of the commit before":    {agent: filepath.Join(before, "gpu-agent")},
		"the provider of the commit before": {provider: before, agent: now},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.Standalone(rig.Node("hv01", rig.Desktop("avd-01", 1))))
			env := []string{"GPU_AGENT_BACKEND=simulated", "GPU_AGENT_FLEET=" + r.Fleet.Path(), "GPU_AGENT_HOST=hv01"}
			c := rig.NewProcesses(t, "")
			c.Env = append(c.Env, env...)
			ours, err := os.ReadFile(filepath.Join(c.Dir, "cli.rc"))
			r.Must(err)
			use := func(provider, agentPath, resources string) {
				rc := string(ours)
				if provider != "" {
					rc = fmt.Sprintf("provider_installation {\n dev_overrides {\n  \"gpufleet/gpu\" = %q\n }\n direct {}\n}\n", provider)
				}
				rig.Write(t, filepath.Join(c.Dir, "cli.rc"), rc)
				c.Write(fmt.Sprintf("provider \"gpu\" {\n  owner = \"test\"\n  hosts = { hv01 = { local = { agent_path = %q } } }\n}\n", agentPath) +
					resources)
			}
			olds, speaks := hello(t, filepath.Join(before, "gpu-agent"), append(os.Environ(), env...))
			news, _ := hello(t, now, append(os.Environ(), env...))
			alike := speaks && len(olds.Lacks()) == 0
			if tt.provider != "" { // what the provider of a commit asks for, its agent knows
				alike = speaks && !slices.ContainsFunc(olds.Capabilities, func(c string) bool { return !slices.Contains(news.Capabilities, c) })
			}
			t.Logf("commit %s; both know the same: %v; the agent of that commit lacks %q", commit, alike, olds.Lacks())

			vm := rig.AssignmentOf("desktop", "avd-01", "partition = { config = gpu_partition_config.vdi.id }", rig.MayStop)
			refused := 0
			for _, step := range []struct {
				resources string
				check     func()
			}{
				{rig.ConfigOf(4, []string{"hv01"}), func() { r.WantCounts(4, "hv01") }},
				{rig.ConfigOf(4, []string{"hv01"}) + vm, func() { r.WantHeld(gpu.VMRunning, "avd-01") }},
				{
					rig.ConfigOf(2, []string{"hv01"}, `max_disruption = "vm_restart"`) + vm,
					func() { r.WantCounts(2, "hv01"); r.WantHeld(gpu.VMRunning, "avd-01") },
				},
				{"", func() { r.WantClaims([]string{"hv01"}); r.WantFree(gpu.VMRunning, "avd-01") }},
			} {
				use(tt.provider, tt.agent, step.resources)
				file := r.File()
				out, code := c.Run("apply", "-auto-approve")
				if code != 0 {
					refused++
					if out := rig.Sentence(out); alike || !strings.Contains(out, "does not know") && !strings.Contains(out, "speaks protocol") {
						t.Fatalf("exit code %d:\n%s", code, out)
					}
					r.WantUntouched(file)
					use("", now, step.resources)
					c.Apply()
				}
				step.check()
				r.WantSettled()
				c.WantNoChanges()
			}
			t.Logf("%d of 4 applies were refused", refused)
		})
	}
}

// TestStatesOfTheCommitBefore has the provider of the commit before make an object of every type
// and kind. Its state is read by this one without a change, also where an address has moved, and
// this one destroys what it says.
func TestStatesOfTheCommitBefore(t *testing.T) {
	before := build(t, commitBefore(t))
	s := rig.TwoNodes()
	for _, more := range []gpu.Snapshot{rig.HGX(rig.H100, 1), rig.KVM(rig.L40s(0)), rig.GPUHost(2)} {
		s.Hosts = append(s.Hosts, more.Hosts...)
	}
	r := rig.New(t, s)
	first := fmt.Sprintf(`selector = { gpu_ids = { hv01 = [%q], hv02 = [%q] } }`, rig.GPU0, rig.GPU0)
	resources := rig.ConfigOf(4, rig.Both, first) + rig.RenderPool(rig.SecondGPUs) +
		rig.AssignmentOf("desktop", "avd-03", "partition = { config = gpu_partition_config.vdi.id }") +
		rig.AssignmentOf("render", "avd-06", "pool = { id = gpu_pool.render.id }", rig.WholeGPU(1)) +
		rig.MIGOf("ml", rig.Halves) + rig.VGPUOf("desks", rig.TwoDesks) + rig.MPSOf(rig.QuarterEach, rig.OnCard(0)) +
		strings.Replace(rig.TurnsOf(rig.FourTurns, rig.OnCard(1)), `"inference"`, `"turns"`, 2) +
		rig.ShareOf("team-a", rig.OnGPU01, "config = "+rig.SharedGPUs+".id")
	c := rig.NewProcesses(t, r.Block()+resources)
	file := filepath.Join(c.Dir, "cli.rc")
	ours, err := os.ReadFile(file)
	r.Must(err)
	rig.Write(t, file, fmt.Sprintf("provider_installation {\n dev_overrides {\n  \"gpufleet/gpu\" = %q\n }\n direct {}\n}\n", before))
	c.Apply()
	rig.Write(t, file, string(ours))
	made := r.Snapshot()
	c.WantNoChanges()
	c.Write(r.Block() + strings.ReplaceAll(strings.ReplaceAll(resources, `"gpu_pool" "render"`, `"gpu_pool" "farm"`),
		"gpu_pool.render.id", "gpu_pool.farm.id") +
		"moved {\n  from = gpu_pool.render\n  to = gpu_pool.farm\n}\n")
	c.Apply()
	r.WantUnchanged(made)
	c.Destroy()
	for _, h := range s.Hosts {
		r.WantClaims([]string{h.Name})
	}
}
