//go:build linux

package chaos_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/test/cli"
)

const (
	providerName = "terraform-provider-gpu"
	agentName    = "gpu-agent"
)

// patience is how long a command of the CLI may take, and how long processes may live on
// after it. A busy machine takes its time.
const patience = 4 * time.Minute

type folder = cli.Folder

// harness is a fleet, the states on it and what happens to them.
type harness struct {
	t     *testing.T
	ctx   context.Context
	dir   string // everything of this run
	bin   string
	fleet *others.Fleet
	model *model
	begun time.Time
	// before is the fleet at the beginning of the phase.
	before gpu.Snapshot

	mu         sync.Mutex
	figures    figures
	phase      int
	logs       string // directory of the phase
	log        *os.File
	violations []string
	unsure     map[string]string   // VMs whose power may have changed in this phase
	foreign    map[string][]string // adapters that others gave to VMs
	initial    map[string]*gpu.VM
	base       map[string]surface // of GPUs, as they are when no state has them
}

// figures count what was done.
type figures struct {
	operations, runs, succeeded    int
	kills, stops                   map[string]int
	beyondLease                    int
	reconciles, reboots, recovered int
	acts                           int
}

func (f figures) String() string {
	total := func(m map[string]int) (n int, parts string) {
		for _, k := range sorted(m) {
			n, parts = n+m[k], parts+fmt.Sprintf(" %s %d", k, m[k])
		}
		return n, parts
	}
	kills, killed := total(f.kills)
	stops, stopped := total(f.stops)
	return fmt.Sprintf("%d operations, %d runs of the CLI (%d succeeded), %d kills (%s), %d stops (%s; %d of them longer than a lease), %d "+
		"reconciles, %d acts, %d reboots, %d recovery applies",
		f.operations, f.runs, f.succeeded, kills, strings.TrimSpace(killed), stops, strings.TrimSpace(stopped),
		f.beyondLease, f.reconciles, f.acts, f.reboots, f.recovered)
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func (h *harness) counted(count func(*figures)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	count(&h.figures)
}

func (h *harness) isUnsure(vm, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unsure[vm] = why
}

// note writes a line into the operation log.
func (h *harness) note(format string, a ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, _ = fmt.Fprintf(h.log, "%s %s\n", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, a...))
}

// violated records a violation.
func (h *harness) violated(format string, a ...any) {
	text := fmt.Sprintf(format, a...)
	h.note("VIOLATION %s", text)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.violations = append(h.violations, text)
}

// newHarness builds the binaries and makes the fleet and the states.
func newHarness(t *testing.T, dir string) *harness {
	t.Helper()
	if cli.Path() == "" {
		t.Skip("there is no terraform and no tofu: make chaos builds OpenTofu and names it in TF_ACC_TERRAFORM_PATH")
	}
	bin, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	h := &harness{
		t: t, ctx: t.Context(), dir: dir, bin: bin, begun: time.Now(),
		figures: figures{kills: map[string]int{}, stops: map[string]int{}}, unsure: map[string]string{}, foreign: map[string][]string{},
		initial: map[string]*gpu.VM{}, base: map[string]surface{},
	}
	first := beginning()
	fleet, err := others.Create(filepath.Join(dir, "fleet.json"), first)
	h.must(err)
	h.fleet = fleet
	hosts := make([]string, 0, len(first.Hosts))
	for i := range first.Hosts {
		x := &first.Hosts[i]
		h.must(fleet.EditSimulation(h.ctx, x.Name, func(s *simulated.Simulation) { s.Latency = pace }))
		wrapper := filepath.Join(dir, "agent-of-"+x.Name)
		script := fmt.Sprintf("#!/bin/sh\nexec %q --backend simulated --fleet %q --host %s \"$@\"\n",
			filepath.Join(h.bin, agentName), fleet.Path(), x.Name)
		h.must(os.WriteFile(wrapper, []byte(script), 0o700))
		hosts = append(hosts, fmt.Sprintf("%s = { local = { agent_path = %q } }", x.Name, wrapper))
		for j := range x.VMs {
			h.initial[x.VMs[j].Name] = &x.VMs[j]
		}
	}
	for _, x := range h.snapshot().Hosts {
		for _, g := range x.GPUs {
			h.base[x.Name+" "+g.ID] = surfaceOf(g)
		}
	}
	rc := filepath.Join(dir, "cli.rc")
	h.must(os.WriteFile(rc, fmt.Appendf(nil, "provider_installation {\n dev_overrides {\n  \"gpufleet/gpu\" = %q\n }\n direct {}\n}\n", h.bin),
		0o600))
	var states []*state
	for _, s := range []struct{ name, owner string }{{"A1", "a"}, {"A2", "a"}, {"B", "b"}} {
		f := &folder{T: t, Dir: filepath.Join(dir, s.name), Owner: s.owner}
		h.must(os.Mkdir(f.Dir, 0o700))
		// Neither certificates for a pipe nor garbage collection pay in processes this short.
		f.Env = append(os.Environ(), "TF_CLI_CONFIG_FILE="+rc, "TF_IN_AUTOMATION=1", "TF_INPUT=0", "CHECKPOINT_DISABLE=1",
			"HOME="+f.Dir, "TF_DISABLE_PLUGIN_TLS=1", "GOGC=off", "GOMEMLIMIT=512MiB")
		states = append(states, &state{name: s.name, owner: s.owner, folder: &folder{T: t, Dir: f.Dir, Env: f.Env, Owner: s.owner}})
		states[len(states)-1].folder.Write(hosts, "")
		base, err := os.ReadFile(filepath.Join(f.Dir, "main.tf"))
		h.must(err)
		h.must(os.WriteFile(filepath.Join(f.Dir, "provider.tf"), base, 0o600))
	}
	h.model = newModel(states)
	return h
}

func (h *harness) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// leases are where the provider and the agent say how long their leases live. Here they
// are short: what waits for one that was left behind need not wait long, and a process that
// stands still for a while has lost its own.
var leases = map[string]*regexp.Regexp{
	"internal/fleet/fleet.go": regexp.MustCompile(`(leaseTTL\s*=) time\.Minute\b`),
	"cmd/gpu-agent/vm.go":     regexp.MustCompile(`(client, command,) time\.Minute\b`),
	"internal/agent/lease.go": regexp.MustCompile(`(defaultLeaseTTL =) 2 \* time\.Minute\b`),
}

// buildDir is where the binaries are built; TestMain makes and removes it.
var buildDir string

func TestMain(m *testing.M) {
	var err error
	if buildDir, err = os.MkdirTemp("", "gpu-chaos-bin-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(buildDir)
	os.Exit(code)
}

// binaries builds the provider and the agent, with leases that end soon, and returns the
// directory that has nothing else.
var binaries = sync.OnceValues(func() (string, error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for name, said := range leases {
		source := filepath.Join(root, name)
		text, err := os.ReadFile(source)
		if err != nil {
			return "", err
		}
		if len(said.FindAll(text, -1)) != 1 {
			return "", fmt.Errorf("%s does not say how long a lease lives in the way that this test changes it: %s", name, said)
		}
		short := filepath.Join(buildDir, strings.ReplaceAll(name, "/", "-"))
		if err := os.WriteFile(short, said.ReplaceAll(text, fmt.Appendf(nil, "$1 time.Duration(%d)", leaseTTL)), 0o600); err != nil {
			return "", err
		}
		replace[source] = short
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file, bin := filepath.Join(buildDir, "overlay.json"), filepath.Join(buildDir, "bin")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		return "", err
	}
	for name, pkg := range map[string]string{providerName: ".", agentName: "./cmd/gpu-agent"} {
		cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-overlay", file, "-o", filepath.Join(bin, name), pkg)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w: %s", pkg, err, out)
		}
	}
	return bin, nil
})

// beginPhase has the logs of a phase go into a directory of their own.
func (h *harness) beginPhase(n int) {
	if h.log != nil {
		h.must(h.log.Close())
	}
	h.phase, h.logs = n, filepath.Join(h.dir, fmt.Sprintf("phase-%03d", n))
	h.must(os.Mkdir(h.logs, 0o700))
	f, err := os.Create(filepath.Join(h.logs, "operations.log"))
	h.must(err)
	h.log = f
	h.keep("fleet-before.json")
	h.before = h.snapshot()
	h.unsure = map[string]string{}
	for _, s := range h.model.states {
		h.must(os.WriteFile(filepath.Join(h.logs, s.name+"-before.tf"), []byte(s.hcl()), 0o600))
		if doc, err := os.ReadFile(filepath.Join(s.folder.Dir, "terraform.tfstate")); err == nil {
			h.must(os.WriteFile(filepath.Join(h.logs, s.name+"-before.tfstate"), doc, 0o600))
		}
	}
}

// keep copies the fleet as it is into the logs.
func (h *harness) keep(name string) {
	doc, err := os.ReadFile(h.fleet.Path())
	h.must(err)
	h.must(os.WriteFile(filepath.Join(h.logs, name), doc, 0o600))
}

// result is what became of a command.
type result struct {
	out    string
	code   int // -1 for a signal
	struck map[string]bool
}

// run runs a command of the CLI in a state, and strikes it.
func (h *harness) run(s *state, label string, rng *rand.Rand, strikes []strike, args ...string) result {
	file := filepath.Join(s.folder.Dir, "terraform.tfstate")
	before, _ := os.ReadFile(file) // there is none at first
	cmd := exec.CommandContext(h.ctx, cli.Path(), append(slices.Clone(args), "-no-color")...)
	if args[0] == "state" || args[0] == "untaint" {
		cmd = exec.CommandContext(h.ctx, cli.Path(), args...)
	}
	cmd.Dir, cmd.Env = s.folder.Dir, s.folder.Env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 2 * time.Second // a provider that lives on has its output
	var out lockedBuffer
	cmd.Stdout, cmd.Stderr = &out, &out
	start := time.Now()
	if err := cmd.Start(); err != nil {
		h.violated("%s cannot be started: %v", cli.Path(), err)
		return result{code: -1}
	}
	strikers := h.strike(cmd.Process.Pid, rng, strikes)
	alarm := time.AfterFunc(patience, func() {
		h.violated("%s %s of %s does not end within %s", label, args[0], s.name, patience)
		for _, p := range processes(h.bin) {
			_ = syscall.Kill(p.pid, syscall.SIGABRT) // it prints where it is
		}
		time.Sleep(time.Second)
		_ = cmd.Process.Kill() // it may have ended
	})
	err := cmd.Wait()
	alarm.Stop()
	r := result{out: out.String(), code: cmd.ProcessState.ExitCode()}
	took := time.Since(start)
	done := strikers.wait()
	r.struck = strikers.struck
	if err != nil && !errors.As(err, new(*exec.ExitError)) && !errors.Is(err, exec.ErrWaitDelay) {
		h.violated("%s: %v", label, err)
	}
	h.counted(func(f *figures) {
		f.runs++
		if r.code == 0 {
			f.succeeded++
		}
	})
	h.note("%s %s %s: exit code %d in %s%s", label, s.name, strings.Join(args, " "), r.code, took.Round(time.Millisecond), struck(done))
	name := fmt.Sprintf("%s-%s-%s.log", label, s.name, args[0])
	if err := os.WriteFile(filepath.Join(h.logs, name), []byte(r.out), 0o600); err != nil {
		h.violated("%v", err)
	}
	// The CLI does not replace its state file as a whole: one that it was killed in the middle
	// of is restored, as a person would from a backup.
	if after, err := os.ReadFile(file); len(before) > 0 && (err != nil || !json.Valid(after)) {
		h.note("%s: the state file is torn, and restored", label)
		if err := os.WriteFile(file, before, 0o600); err != nil {
			h.violated("%v", err)
		}
	}
	h.inspect(label, s, r)
	return r
}

func struck(done []string) string {
	if len(done) == 0 {
		return ""
	}
	return "; " + strings.Join(done, "; ")
}

// What no command may ever say.
var never = []string{
	"panic:", "runtime error", "inconsistent result", "inconsistent final plan", "Provider returned invalid",
	"unexpected new value", "malformed",
}

// inspect looks for what no run may say, whatever happened to it.
func (h *harness) inspect(label string, s *state, r result) {
	for _, bad := range never {
		if strings.Contains(r.out, bad) {
			h.violated("%s of %s says %q:\n%s", label, s.name, bad, r.out)
		}
	}
}

// lockedBuffer is written by two goroutines when a run is cut off.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// configure writes the configuration of a state.
func (h *harness) configure(s *state, hcl string) {
	if err := os.WriteFile(filepath.Join(s.folder.Dir, "main.tf"), []byte(hcl), 0o600); err != nil {
		h.violated("%v", err)
	}
}

// do makes the operations of one phase: each state does its own one after the other, and
// so do other hands, all at the same time.
func (h *harness) do(seed uint64, list []*operation) {
	var wg sync.WaitGroup
	for who := range append([]*state{nil}, h.model.states...) {
		var by *state
		if who > 0 {
			by = h.model.states[who-1]
		}
		rng := rand.New(rand.NewPCG(seed, uint64(who)))
		wg.Go(func() {
			for _, op := range list {
				if op.by == by {
					h.operate(op, rng)
				}
			}
		})
	}
	wg.Wait()
	h.counted(func(f *figures) { f.operations += len(list) })
}

func (h *harness) operate(op *operation, rng *rand.Rand) {
	if op.hand != nil {
		time.Sleep(between(rng, 0, 2*time.Second))
		h.note("op %d: %s ...", op.number, op.what)
		h.note("op %d: %s: %s", op.number, op.what, op.hand(h))
		return
	}
	var planned []string
	for _, s := range op.strikes {
		planned = append(planned, s.String())
	}
	h.note("op %d %s: %s [%s]", op.number, op.by.name, op.what, strings.Join(planned, ", "))
	h.configure(op.by, op.hcl)
	for i, args := range op.commands {
		mine := slices.DeleteFunc(slices.Clone(op.strikes), func(s strike) bool { return s.command != i })
		r := h.run(op.by, fmt.Sprintf("op%d.%d", op.number, i), rng, mine, args...)
		if op.refused && r.code == 0 {
			h.violated("op %d: %s was not refused:\n%s", op.number, op.what, r.out)
		}
	}
}
