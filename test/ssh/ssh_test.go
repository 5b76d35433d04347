package ssh_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/test/cli"
	"github.com/gpufleet/terraform-provider-gpu/test/sshd"
)

const vdi = `
resource "gpu_partition_config" "vdi" {
  name  = "vdi"
  hosts = ["hv01", "hv02"]
  gpu_p = { partition_count = 4 }
}
resource "gpu_vm_assignment" "avd" {
  for_each  = toset(["avd-01", "avd-02", "avd-03"])
  vm        = each.key
  partition = { config = gpu_partition_config.vdi.id }
  power     = { allow_shutdown = true }
}
`

// one is a config on one host.
const one = `
resource "gpu_partition_config" "vdi" {
  hosts = ["hv01"]
  gpu_p = { partition_count = 4 }
}
`

// first is a fleet of the example's first host alone.
func first(t *testing.T) []gpu.Host {
	t.Helper()
	h := example(t)[0]
	h.Cluster = nil
	for i := range h.VMs {
		h.VMs[i].Clustered, h.VMs[i].PossibleOwners = false, nil
	}
	return []gpu.Host{h}
}

func (r *rig) both(arguments ...string) []string {
	return []string{r.reach("hv01", arguments...), r.reach("hv02", arguments...)}
}

// TestExample applies the README's example over SSH, from plan to destroy. Each run of
// the provider has one connection and one session for each host.
func TestExample(t *testing.T) {
	t.Parallel()
	r := newRig(t, example(t), nil)
	r.Write(r.both(), vdi)
	before, ran := r.snapshot(), r.running()

	sessions := func() int { return r.server["hv01"].Sessions() }
	r.OK("plan")
	if n := sessions(); n != 1 {
		t.Errorf("a plan opened %d sessions, want 1", n)
	}
	out := r.OK("apply", "-auto-approve")
	cli.WantSays(t, out, "Apply complete! Resources: 4 added")
	if n := sessions(); n > 3 { // an apply plans first, in a process of its own
		t.Errorf("a plan and an apply opened %d sessions, want 3 at the most", n)
	}
	if diff := cmp.Diff(ran, r.running()); diff != "" {
		t.Errorf("VMs that run (-before +after):\n%s", diff)
	}
	r.WantNoChanges()
	r.wantQuiet()
	r.OK("destroy", "-auto-approve")
	after := r.snapshot()
	for i, h := range after.Hosts {
		if len(h.Claims) > 0 {
			t.Errorf("host %s keeps the claims %+v", h.Name, h.Claims)
		}
		if diff := cmp.Diff(before.Hosts[i].VMs, h.VMs, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("VMs of %s (-before +after):\n%s", h.Name, diff)
		}
	}
	r.wantQuiet()
	for name, s := range r.server {
		if s.Sessions() != s.Connections() {
			t.Errorf("host %s: %d sessions on %d connections", name, s.Sessions(), s.Connections())
		}
	}
}

// TestFiftyResourcesInParallel stays within stock limits of sshd: ten sessions and ten
// connections at once.
func TestFiftyResourcesInParallel(t *testing.T) {
	t.Parallel()
	hosts := first(t)
	vm := hosts[0].VMs[0]
	hosts[0].VMs = nil
	for i := range 50 {
		v := vm
		v.ID, v.Name, v.State = fmt.Sprintf("00000000-0000-0000-0000-%012d", i), fmt.Sprintf("vm-%02d", i), gpu.VMOff
		hosts[0].VMs = append(hosts[0].VMs, v)
	}
	r := newRig(t, hosts, func(_ string, o *sshd.Options) {
		o.Lines = append(o.Lines, "MaxSessions 10", "MaxStartups 10:30:100")
	})
	r.Write([]string{r.reach("hv01")}, `
resource "gpu_vm_assignment" "vm" {
  count     = 50
  vm        = format("vm-%02d", count.index)
  partition = {}
}
`)
	out := r.OK("apply", "-auto-approve", "-parallelism=50")
	cli.WantSays(t, out, "Apply complete! Resources: 50 added")
	if n := r.server["hv01"].Sessions(); n > 2 {
		t.Errorf("an apply of 50 resources opened %d sessions, want one for each process of the provider (2)", n)
	}
	for _, v := range r.snapshot().Hosts[0].VMs {
		if len(v.PartitionAdapters) != 1 {
			t.Errorf("VM %s has %d adapters", v.Name, len(v.PartitionAdapters))
		}
	}
	r.WantNoChanges()
	r.wantQuiet()
}

func TestWaysToLogIn(t *testing.T) {
	t.Parallel()
	r := newRig(t, first(t), nil)
	s := r.server["hv01"]
	key, err := os.ReadFile(s.ClientKey())
	if err != nil {
		t.Fatal(err)
	}
	t.Run("key in the configuration", func(t *testing.T) {
		r.Write([]string{r.reach("hv01", "private_key_file = null", fmt.Sprintf("private_key = %q", key))}, one)
		out := r.OK("plan")
		cli.WantSays(t, out, "1 to add")
		if strings.Contains(out, "PRIVATE KEY") {
			t.Error("the plan shows the key")
		}
	})
	t.Run("key and user from the environment", func(t *testing.T) {
		r.Write([]string{r.reach("hv01", "private_key_file = null", "user = null")}, one)
		usual := r.Env
		defer func() { r.Env = usual }()
		r.Env = append(r.Env, "GPU_SSH_PRIVATE_KEY="+string(key), "GPU_SSH_USER="+s.User)
		cli.WantSays(t, r.OK("plan"), "1 to add")
	})
	t.Run("agent", func(t *testing.T) {
		if _, err := exec.LookPath("ssh-agent"); err != nil {
			t.Skip("there is no ssh-agent: apt-get install --no-install-recommends openssh-client")
		}
		socket := filepath.Join(t.TempDir(), "agent")
		keeper := exec.CommandContext(t.Context(), "ssh-agent", "-D", "-a", socket)
		if err := keeper.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = keeper.Process.Kill(); _ = keeper.Wait() }()
		cli.Eventually(t, "the agent listens", func() bool { _, err := os.Stat(socket); return err == nil })
		add := exec.CommandContext(t.Context(), "ssh-add", "-q", s.ClientKey())
		add.Env = append(os.Environ(), "SSH_AUTH_SOCK="+socket)
		if out, err := add.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		r.Write([]string{r.reach("hv01", "private_key_file = null")}, one)
		usual := r.Env
		defer func() { r.Env = usual }()
		r.Env = append(r.Env, "SSH_AUTH_SOCK="+socket)
		cli.WantSays(t, r.OK("plan"), "1 to add")
	})
	t.Run("wrong key", func(t *testing.T) {
		other := filepath.Join(t.TempDir(), "other")
		if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other).CombinedOutput(); err != nil {
			t.Skipf("there is no ssh-keygen that works (%v %s): apt-get install --no-install-recommends openssh-client", err, out)
		}
		r.Write([]string{r.reach("hv01", fmt.Sprintf("private_key_file = %q", other))}, one)
		cli.WantSays(t, r.Fails("Authentication failed", "plan"), "Host: hv01", "does not let user", "tried: key "+other)
	})
	t.Run("encrypted key", func(t *testing.T) {
		locked := filepath.Join(t.TempDir(), "locked")
		if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", locked).
			CombinedOutput(); err != nil {
			t.Skipf("there is no ssh-keygen that works (%v %s): apt-get install --no-install-recommends openssh-client", err, out)
		}
		r.Write([]string{r.reach("hv01", fmt.Sprintf("private_key_file = %q", locked))}, one)
		cli.WantSays(t, r.Fails("Host cannot be reached with these settings", "plan"), "is encrypted with a passphrase", "use_agent = true")
	})
}

// TestUnknownHostKey adds the very line that the error prints.
func TestUnknownHostKey(t *testing.T) {
	t.Parallel()
	r := newRig(t, first(t), nil)
	s := r.server["hv01"]
	known := filepath.Join(t.TempDir(), "known_hosts")
	cli.WriteFile(t, known, "")
	r.Write([]string{r.reach("hv01", fmt.Sprintf("known_hosts_file = %q", known))}, one)
	out := r.Fails("Host key is not trusted", "plan")
	cli.WantSays(t, out, "Host: hv01", "is not known")
	var line string
	for l := range strings.Lines(out) {
		if at := strings.Index(l, "[127.0.0.1]"); at >= 0 && strings.Contains(l, "AAAA") {
			line = strings.TrimSpace(l[at:])
		}
	}
	if want := strings.TrimSpace(s.KnownHostsLine()); line != want {
		t.Fatalf("the error prints the line %q, want %q", line, want)
	}
	cli.WriteFile(t, known, line+"\n")
	cli.WantSays(t, r.OK("plan"), "1 to add")

	other, err := sshd.Start(t.Context(), sshd.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	at, _, _ := strings.Cut(line, " ")
	_, otherKey, _ := strings.Cut(other.KnownHostsLine(), " ")
	cli.WriteFile(t, known, at+" "+otherKey+"\n")
	cli.WantSays(t, r.Fails("Host key is not trusted", "plan"), "has changed", known+" line 1")

	fields := strings.Fields(line)
	r.Write([]string{r.reach("hv01", "known_hosts_file = null", fmt.Sprintf("host_key = %q", fields[1]+" "+fields[2]))}, one)
	cli.WantSays(t, r.OK("plan"), "1 to add")
}

func TestJumpHost(t *testing.T) {
	t.Parallel()
	r := newRig(t, first(t), nil)
	bastion, err := sshd.Start(t.Context(), sshd.Options{Dir: t.TempDir(), Lines: []string{"AllowTcpForwarding yes"}})
	if err != nil {
		t.Fatal(err)
	}
	defer bastion.Close()
	known := filepath.Join(t.TempDir(), "known_hosts")
	cli.WriteFile(t, known, r.server["hv01"].KnownHostsLine()+"\n"+bastion.KnownHostsLine()+"\n")
	through := []string{fmt.Sprintf("known_hosts_file = %q", known), fmt.Sprintf("proxy_jump = %q", bastion.User+"@"+bastion.Address())}
	own := slices.Concat(through, []string{fmt.Sprintf("proxy_jump_private_key = file(%q)", bastion.ClientKey())})
	r.Env = append(r.Env, "HOME="+t.TempDir(), "SSH_AUTH_SOCK=")

	// It would let the host's key in, but that is not for it.
	hostKey, err := os.ReadFile(r.server["hv01"].ClientKey() + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	ownKey, err := os.ReadFile(filepath.Join(bastion.Dir, "authorized_keys"))
	if err != nil {
		t.Fatal(err)
	}
	cli.WriteFile(t, filepath.Join(bastion.Dir, "authorized_keys"), string(ownKey)+"\n"+string(hostKey)+"\n")
	r.Write([]string{r.reach("hv01", through...)}, one)
	cli.WantSays(t, r.Fails("Authentication failed", "plan"), "Jump host "+bastion.Address(), "proxy_jump_private_key")
	if bastion.Connections() != 0 {
		t.Error("the jump host was sent the key of the host behind it")
	}

	r.Write([]string{r.reach("hv01", own...)}, one)
	cli.WantSays(t, r.OK("plan"), "1 to add")
	if bastion.Connections() != 1 || bastion.Sessions() != 0 {
		t.Errorf("the jump host had %d connections and %d sessions", bastion.Connections(), bastion.Sessions())
	}
	cli.WriteFile(t, known, r.server["hv01"].KnownHostsLine()+"\n")
	cli.WantSays(t, r.Fails("Host key is not trusted", "plan"), bastion.Address())
}

// TestReader gives the key a forced command: it may plan, and the host refuses to let
// it apply.
func TestReader(t *testing.T) {
	t.Parallel()
	r := newRig(t, first(t), func(_ string, o *sshd.Options) {
		o.KeyOptions = fmt.Sprintf(`restrict,command="%s serve --stdio --role reader"`, agentPath())
	})
	r.Write([]string{r.reach("hv01", "agent_path = null")}, one)
	cli.WantSays(t, r.OK("plan"), "1 to add")
	before := r.snapshot()
	cli.WantSays(t, r.Fails("Could not create the partition config", "apply", "-auto-approve"), "hv01", "role reader")
	if diff := cmp.Diff(before, r.snapshot(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the fleet changed (-before +after):\n%s", diff)
	}
}

// TestSubsystem lets sshd_config say what runs.
func TestSubsystem(t *testing.T) {
	t.Parallel()
	r := newRig(t, first(t), func(_ string, o *sshd.Options) {
		o.Lines = append(o.Lines, "Subsystem gpu-agent "+agentPath()+" serve --stdio")
	})
	r.Write([]string{r.reach("hv01", `agent_path = "/nowhere/gpu-agent"`)}, one)
	cli.WantSays(t, r.OK("apply", "-auto-approve"), "1 added")
	r.WantNoChanges()
	r.wantQuiet()
}

func TestSudo(t *testing.T) {
	t.Parallel()
	if err := exec.CommandContext(t.Context(), "sudo", "-n", "true").Run(); err != nil {
		t.Skipf("there is no sudo without a password (%v): apt-get install --no-install-recommends sudo, and run the test as root", err)
	}
	r := newRig(t, first(t), func(_ string, o *sshd.Options) {
		// sudo empties the environment, so the agent's settings come from a file.
		o.Env = nil
	})
	script := filepath.Join(t.TempDir(), "gpu-agent")
	cli.WriteFile(t, script, fmt.Sprintf("#!/bin/sh\nexec %s --backend simulated --fleet %s --host hv01 \"$@\"\n",
		agentPath(), r.fleet.Path()))
	if err := os.Chmod(script, 0o700); err != nil {
		t.Fatal(err)
	}
	r.Write([]string{r.reach("hv01", "sudo = true", fmt.Sprintf("agent_path = %q", script))}, one)
	cli.WantSays(t, r.OK("apply", "-auto-approve"), "1 added")
	r.WantNoChanges()
	r.wantQuiet()
}

// cuttable is an assignment whose VM takes long to stop and to start.
const cuttable = `
resource "gpu_vm_assignment" "avd" {
  vm        = "avd-01"
  partition = {}
  power     = { allow_shutdown = true }
}
`

// TestCutInTheMiddle cuts the connection, or kills Terraform, while a VM is off for a
// change. The agent puts everything back without either.
func TestCutInTheMiddle(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(t *testing.T, r *rig, terraform *os.Process){
		"sshd of the connection killed": func(t *testing.T, r *rig, _ *os.Process) {
			if err := r.server["hv01"].Cut(); err != nil {
				t.Error(err)
			}
		},
		"Terraform and the provider killed": func(t *testing.T, _ *rig, terraform *os.Process) {
			if err := syscall.Kill(-terraform.Pid, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, first(t), nil)
			r.T = t
			r.delay("hv01", map[string]int{"shut_down_vm": 1500, "start_vm": 500})
			ran := r.running()
			if !ran["avd-01"] {
				t.Fatal("avd-01 does not run")
			}
			r.Write([]string{r.reach("hv01")}, cuttable)
			apply := r.Command("apply", "-auto-approve")
			apply.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			var out strings.Builder
			apply.Stdout, apply.Stderr = &out, &out
			if err := apply.Start(); err != nil {
				t.Fatal(err)
			}
			cli.Eventually(t, "the VM is being stopped", func() bool { return len(r.state("hv01").Journal) > 0 })
			cut(t, r, apply.Process)
			err := apply.Wait()
			if err == nil {
				t.Errorf("the apply succeeded:\n%s", out.String())
			}
			cli.Eventually(t, "everything that ran runs, no change is open and nobody holds the lease", func() bool {
				s := r.state("hv01")
				return cmp.Equal(ran, r.running()) && len(s.Journal) == 0 && s.Lease == nil
			})
			r.wantQuiet()
			if strings.HasPrefix(name, "sshd") {
				cli.WantSays(t, out.String(), "Host: hv01", "The connection to the host failed", "put the change back", "Rolled back: hv01")
			}
			r.delay("hv01", nil)
			lock := filepath.Join(r.Dir, ".terraform.tfstate.lock.info")
			_ = os.Remove(lock) // what `terraform force-unlock` does
			cli.WantSays(t, r.OK("apply", "-auto-approve"), "Apply complete")
			r.WantNoChanges()
			if !r.running()["avd-01"] {
				t.Error("avd-01 does not run")
			}
		})
	}
}

// TestBadHosts has one clear error for each way in which a host can be wrong, and none
// touches the state.
func TestBadHosts(t *testing.T) {
	t.Parallel()
	r := newRig(t, first(t), nil)
	r.Write([]string{r.reach("hv01")}, one)
	r.OK("apply", "-auto-approve")
	state := filepath.Join(r.Dir, "terraform.tfstate")
	before, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	script := func(text string) string {
		file := filepath.Join(t.TempDir(), "agent")
		cli.WriteFile(t, file, text)
		if err := os.Chmod(file, 0o700); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("agent_path = %q", file)
	}
	blocked := script("#!/bin/sh\n")
	if err := os.Chmod(strings.Trim(strings.TrimPrefix(blocked, "agent_path = "), `"`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, argument, title string
		texts                 []string
	}{
		{"refused port", "port = 1", "Host does not answer", []string{"Nothing answers at 127.0.0.1:1", "connection refused"}},
		{"unknown name", `address = "no-such-host.invalid"`, "Host does not answer", []string{"Nothing answers at no-such-host.invalid"}},
		{"no agent", `agent_path = "/nowhere/gpu-agent"`, "Host has no agent", []string{"exit status 127", "agent_path"}},
		{"not executable", blocked, "Agent is blocked on the host", []string{"exit status 126"}},
		{"wrong platform", script("MZ\x90\x00\x03\x00\x00\x00"), "Agent is for another platform", []string{"built for another platform"}},
		{
			"banner", script("#!/bin/sh\necho Welcome to hv01\nexec " + agentPath() + " \"$@\"\n"), "Host did not answer as an agent",
			[]string{"Welcome to hv01"},
		},
		{"ends early", script("#!/bin/sh\necho no licence >&2\nexit 3\n"), "Host does not answer", []string{"exit status 3", "no licence"}},
		{"truncated", script("#!/bin/sh\nprintf 'gpu-agent/1\\n'\nexit 0\n"), "Host does not answer", []string{"ended before"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r.Write([]string{r.reach("hv01", c.argument)}, one)
			cli.WantSays(t, r.Fails(c.title, "plan"), append(c.texts, "Host: hv01")...)
			after, err := os.ReadFile(state)
			if err != nil {
				t.Fatal(err)
			}
			if string(before) != string(after) {
				t.Error("the state changed")
			}
		})
	}
	r.Write([]string{r.reach("hv01")}, one)
	r.WantNoChanges()
}

// brought is a host without an agent of its own, to which applies bring one.
func brought(t *testing.T) (r *rig, way string, home string) {
	t.Helper()
	home = t.TempDir()
	r = newRig(t, first(t), func(_ string, o *sshd.Options) {
		o.SFTPDir = home
	})
	return r, r.reach("hv01", "agent_path = null", `upload = "auto"`), home
}

// uploads are the files below the directory that agents are uploaded to.
func uploads(t *testing.T, home string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(home, ".cache/gpu-agent/*/*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// setCount changes the host behind Terraform's back.
func (r *rig) setCount(count int) {
	r.T.Helper()
	err := r.fleet.Edit(r.T.Context(), func(s *gpu.Snapshot) error {
		for i := range s.Hosts[0].GPUs {
			if p := s.Hosts[0].GPUs[i].Partitionable; p != nil {
				p.Count = count
			}
		}
		return nil
	})
	if err != nil {
		r.T.Fatal(err)
	}
}

func (r *rig) counts() map[int]bool {
	out := map[int]bool{}
	for _, g := range r.snapshot().Hosts[0].GPUs {
		if p := g.Partitionable; p != nil {
			out[p.Count] = true
		}
	}
	return out
}

// TestUpload starts without an agent on the host: a plan leaves nothing there, an apply
// brings it, and what comes after it finds it.
func TestUpload(t *testing.T) {
	t.Parallel()
	r, way, home := brought(t)
	r.Write([]string{way}, one)
	out := r.OK("plan")
	cli.WantSays(t, out, "1 to add", "Host cannot be checked yet", "the apply uploads it")
	if left, _ := filepath.Glob(filepath.Join(home, "*")); len(left) > 0 {
		t.Fatalf("a plan left %v on the host", left)
	}
	cli.WantSays(t, r.OK("apply", "-auto-approve"), "1 added")
	uploaded, err := filepath.Glob(filepath.Join(home, ".cache/gpu-agent/1.2.3-test-*/gpu-agent"))
	if err != nil || len(uploaded) != 1 {
		t.Fatalf("uploaded: %v, %v", uploaded, err)
	}
	info, err := os.Stat(uploaded[0])
	if err != nil {
		t.Fatal(err)
	}
	out, code := r.Run("plan", "-detailed-exitcode")
	if code != 0 || strings.Contains(out, "Host cannot be checked") {
		t.Errorf("a second plan: exit code %d, want 0 and no warning\n%s", code, out)
	}
	r.Write([]string{way}, strings.Replace(one, "4", "2", 1))
	r.OK("apply", "-auto-approve")
	again, err := os.Stat(uploaded[0])
	if err != nil || !again.ModTime().Equal(info.ModTime()) {
		t.Errorf("the second apply uploaded again: %v", err)
	}
	r.Write([]string{r.reach("hv01", fmt.Sprintf("agent_path = %q", uploaded[0]))}, strings.Replace(one, "4", "2", 1))
	r.WantNoChanges()
}

// TestPlanLooksWithTheUploadedAgent changes the host by hand, which the next plan shows,
// with a data source as well, and puts right.
func TestPlanLooksWithTheUploadedAgent(t *testing.T) {
	t.Parallel()
	r, way, home := brought(t)
	r.Write([]string{way}, one)
	r.OK("apply", "-auto-approve")
	before := uploads(t, home)
	r.setCount(2)
	out, code := r.Run("plan", "-detailed-exitcode")
	if code != 2 {
		t.Fatalf("a plan after a change by hand: exit code %d, want 2\n%s", code, out)
	}
	cli.WantSays(t, out, "Partitions differ from the declaration", "1 to change")
	if got := r.counts(); !got[2] || len(got) != 1 {
		t.Errorf("a plan changed the host: %v", got)
	}
	if diff := cmp.Diff(before, uploads(t, home)); diff != "" {
		t.Errorf("a plan changed what is uploaded (-before +after):\n%s", diff)
	}
	r.Write([]string{way}, one+"data \"gpu_inventory\" \"all\" {}\noutput \"hosts\" { value = keys(data.gpu_inventory.all.inventory) }\n")
	out = r.OK("apply", "-auto-approve")
	cli.WantSays(t, out, "1 changed", "hv01")
	if got := r.counts(); !got[4] || len(got) != 1 {
		t.Errorf("after the apply the host has the counts %v", got)
	}
	r.WantNoChanges()
	r.wantQuiet()
}

// TestHeldHostWithoutItsAgentIsUnreachable removes the agent that an apply has brought.
func TestHeldHostWithoutItsAgentIsUnreachable(t *testing.T) {
	t.Parallel()
	r, way, home := brought(t)
	r.Write([]string{way}, one)
	r.OK("apply", "-auto-approve")
	r.setCount(2)
	whole := uploads(t, home)[0]
	agent, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(home, ".cache")); err != nil {
		t.Fatal(err)
	}
	cli.WantSays(t, r.Fails("Host has no agent", "plan"), "Host: hv01", "none was uploaded", "copy "+agentPath()+" there as "+whole)
	cli.WantSays(t, r.Fails("Host has no agent", "plan", "-destroy"), "Host: hv01")
	main := filepath.Join(r.Dir, "main.tf")
	config, err := os.ReadFile(main)
	if err != nil {
		t.Fatal(err)
	}
	cli.WriteFile(t, main, strings.Replace(string(config), "owner =", "on_unreachable = \"keep\"\n  owner =", 1))
	cli.WantSays(t, r.Fails("Host has no agent", "plan"), "Host: hv01", "does not lift this") // the host is there
	r.Write([]string{way}, one)

	// The message says what to do.
	if err := os.MkdirAll(filepath.Dir(whole), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(whole, agent, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, code := r.Run("plan", "-detailed-exitcode"); code != 2 {
		t.Errorf("with the agent back: exit code %d, want 2\n%s", code, out)
	}
	r.OK("destroy", "-auto-approve")
	r.wantQuiet()
}

// TestAnotherVersionOfTheProvider finds the agent that the version before it has brought,
// which plans use, and the next apply replaces.
func TestAnotherVersionOfTheProvider(t *testing.T) {
	t.Parallel()
	r, way, home := brought(t)
	r.Write([]string{way}, one)
	r.OK("apply", "-auto-approve")
	now := filepath.Dir(uploads(t, home)[0])
	_, sum, _ := strings.Cut(filepath.Base(now), "1.2.3-test")
	before := filepath.Join(filepath.Dir(now), "1.2.2"+sum)
	if err := os.Rename(now, before); err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(before, "gpu-agent.abcdefghij.part") // of an upload that was cut off
	cli.WriteFile(t, cut, "half")
	foreign := filepath.Join(filepath.Dir(now), "notes-0123456789ab")
	if err := os.Mkdir(foreign, 0o700); err != nil {
		t.Fatal(err)
	}
	cli.WriteFile(t, filepath.Join(foreign, "notes.txt"), "not ours")

	r.WantNoChanges()
	r.setCount(2)
	if out, code := r.Run("plan", "-detailed-exitcode"); code != 2 {
		t.Errorf("a plan after a change by hand: exit code %d, want 2\n%s", code, out)
	}
	if got := uploads(t, home); len(got) != 3 {
		t.Errorf("after plans there are %v", got)
	}
	cli.WantSays(t, r.OK("apply", "-auto-approve"), "1 changed")
	if diff := cmp.Diff([]string{filepath.Join(now, "gpu-agent"), filepath.Join(foreign, "notes.txt")}, uploads(t, home)); diff != "" {
		t.Errorf("after the apply there are (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(before); err == nil {
		t.Errorf("%s is still there", before)
	}
	r.WantNoChanges()

	// An agent that is not what its name says is not started.
	if err := os.Rename(now, before); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(before, "gpu-agent")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(before, "gpu-agent"), []byte("#!/bin/sh\ntouch "+home+"/ran\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	cli.WantSays(t, r.Fails("Host has no agent", "plan"), "Host: hv01", "SHA-256")
	if _, err := os.Stat(filepath.Join(home, "ran")); err == nil {
		t.Error("a program that nobody uploaded was started")
	}
}

// TestUploadWithSudoIsRefused is found before any host is asked.
func TestUploadWithSudoIsRefused(t *testing.T) {
	t.Parallel()
	r, _, _ := brought(t)
	r.Write([]string{r.reach("hv01", "agent_path = null", `upload = "auto"`, "sudo = true")}, one)
	cli.WantSays(t, r.Fails("Uploaded agent cannot be started with sudo", "validate"), "as root", "Install the agent's package")
	if n := r.server["hv01"].Connections(); n != 0 {
		t.Errorf("the host was asked %d times", n)
	}
}
