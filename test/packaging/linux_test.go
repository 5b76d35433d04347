package packaging_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	sshdExample    = "packaging/linux/sshd_config.example"
	sudoersExample = "packaging/linux/sudoers.example"
)

func TestSystemdTakesTheUnits(t *testing.T) {
	t.Parallel()
	verify := need(t, "systemd-analyze", "systemd")
	for _, unit := range []string{"gpu-agent.service", "gpu-agent-reconcile.service", "gpu-agent-starts.service"} {
		text := read(t, "packaging/linux/"+unit)
		if strings.Contains(text, "Type=oneshot") && !strings.Contains(text, "\nTimeoutStartSec=") {
			t.Errorf("%s may hold up the boot for ever", unit)
		}
		for _, bound := range []string{"MemoryMax=", "TasksMax=", "NoNewPrivileges=true", "CapabilityBoundingSet=~", "RestrictNamespaces=true"} {
			if !strings.Contains(text, "\n"+bound) {
				t.Errorf("%s has no %s", unit, bound)
			}
		}
		for _, needed := range []string{
			"PrivateDevices=", "ProtectKernelTunables=", "ProtectKernelModules=", "PrivateTmp=", "ProtectClock=",
			"SystemCallFilter=", "ProtectProc=",
		} {
			if strings.Contains(text, "\n"+needed) {
				t.Errorf("%s has %s, which keeps the agent from devices, drivers, MPS or its tools", unit, needed)
			}
		}
		// The agent is not where it will be installed; the rest is as it is shipped.
		path := write(t, unit, strings.ReplaceAll(text, "/usr/bin/gpu-agent", binary))
		out, err := exec.CommandContext(t.Context(), verify, "verify", "--man=no", path).CombinedOutput()
		// It also complains of other units of this machine.
		about := slices.ContainsFunc(strings.Split(string(out), "\n"), func(line string) bool { return strings.Contains(line, unit) })
		if err != nil || about {
			t.Errorf("%s: %v\n%s", unit, err, out)
		}
	}
}

// TestReconcileComesBeforeWhatHandsGPUsOut has the layouts of a host put back before anybody takes GPUs from them.
func TestReconcileComesBeforeWhatHandsGPUsOut(t *testing.T) {
	t.Parallel()
	var before []string
	for line := range strings.Lines(read(t, "packaging/linux/gpu-agent-reconcile.service")) {
		if units, is := strings.CutPrefix(line, "Before="); is {
			before = append(before, strings.Fields(units)...)
		}
	}
	for _, unit := range []string{
		"virtqemud", "libvirtd", "libvirt-guests", "pve-guests", "kubelet", "k3s", "rke2-server", "containerd", "docker", "podman", "slurmd",
	} {
		if !slices.Contains(before, unit+".service") {
			t.Errorf("%s.service may start before layouts are put back: it is not among %q", unit, before)
		}
	}
}

// TestSSHDGivesEachUserItsRole asks sshd what it would do for a user.
func TestSSHDGivesEachUserItsRole(t *testing.T) {
	t.Parallel()
	sshd := need(t, "/usr/sbin/sshd", "openssh-server")
	keygen := need(t, "ssh-keygen", "openssh-client")
	key := filepath.Join(t.TempDir(), "key")
	if out, err := exec.CommandContext(t.Context(), keygen, "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if os.Geteuid() == 0 {
		// The server wants its directory for unprivileged children, also to check a file.
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// What follows the example is everybody's.
	config := write(t, "sshd_config", "HostKey "+key+"\n"+read(t, sshdExample)+"\nMaxSessions 7\n")
	for user, wanted := range map[string][]string{
		"svc-terraform": {"forcecommand /usr/bin/sudo -n /usr/bin/gpu-agent serve --stdio", "disableforwarding yes", "permittty no"},
		"svc-plan": {
			"forcecommand /usr/bin/sudo -n /usr/bin/gpu-agent serve --stdio --role reader", "disableforwarding yes", "permittty no",
		},
		"somebody": {"forcecommand none", "maxsessions 7"},
	} {
		out, err := exec.CommandContext(t.Context(), sshd, "-T", "-f", config, "-C", "user="+user+",host=h,addr=192.0.2.1").CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", user, err, out)
		}
		lines := strings.Split(string(out), "\n")
		for _, line := range wanted {
			if !slices.Contains(lines, line) {
				t.Errorf("for %s sshd does not say %q, but\n%s", user, line, out)
			}
		}
	}
}

func TestSudoTakesItsExample(t *testing.T) {
	t.Parallel()
	visudo := need(t, "visudo", "sudo")
	if out, err := exec.CommandContext(t.Context(), visudo, "-c", "-f", write(t, "sudoers", read(t, sudoersExample))).
		CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestSudoAllowsWhatSSHDRuns: with another argument sudo would ask for a password.
func TestSudoAllowsWhatSSHDRuns(t *testing.T) {
	t.Parallel()
	allowed := commandLines(sudoersExample, read(t, sudoersExample))
	for _, line := range commandLines(sshdExample, read(t, sshdExample)) {
		if !slices.Contains(allowed, line) {
			t.Errorf("sudo does not allow gpu-agent %s, but only %q", line, allowed)
		}
	}
}

// TestOwedStartsComeAfterLibvirt has layouts come before libvirt, which starts VMs once, and the VMs that are owed a start after it. Who
// enables the one has the other.
func TestOwedStartsComeAfterLibvirt(t *testing.T) {
	t.Parallel()
	layouts, starts := read(t, "packaging/linux/gpu-agent-reconcile.service"), read(t, "packaging/linux/gpu-agent-starts.service")
	for unit, wanted := range map[string][]string{
		layouts: {"\nBefore=virtqemud.service libvirtd.service", "\nAlso=gpu-agent-starts.service"},
		starts:  {"\nAfter=gpu-agent-reconcile.service virtqemud.service", "libvirtd.service", "ExecStart=/usr/bin/gpu-agent reconcile"},
	} {
		for _, text := range wanted {
			if !strings.Contains(unit, text) {
				t.Errorf("there is no %q in the unit:\n%s", text, unit)
			}
		}
	}
	if strings.Contains(starts, "\nBefore=") {
		t.Error("the starts hold up other units")
	}
}

// TestPackagesStartNothing runs the packages' scripts with a systemctl that only writes
// down what it was asked.
func TestPackagesStartNothing(t *testing.T) {
	t.Parallel()
	sh := need(t, "sh", "dash")
	const stop = "disable --now gpu-agent.service gpu-agent-reconcile.service"
	for _, c := range []struct {
		script, arg string
		wanted      string // "": nothing but a reload and questions
	}{
		{"postinstall.sh", "configure", ""}, // deb
		{"postinstall.sh", "1", ""},         // rpm
		{"preremove.sh", "upgrade", ""},
		{"preremove.sh", "1", ""},
		{"preremove.sh", "remove", stop},
		{"preremove.sh", "0", stop},
		{"postremove.sh", "purge", ""},
		{"postremove.sh", "0", ""},
	} {
		t.Run(c.script+" "+c.arg, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			asked := filepath.Join(dir, "asked")
			if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte("#!/bin/sh\necho \"$*\" >>"+asked+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), sh, filepath.Join(root, "packaging/linux/scripts", c.script), c.arg)
			cmd.Env = append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			said, err := os.ReadFile(asked)
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			var did []string
			for line := range strings.Lines(string(said)) {
				if line = strings.TrimSpace(line); line != "daemon-reload" && !strings.HasPrefix(line, "is-active ") {
					did = append(did, line)
				}
			}
			if got := strings.Join(did, "; "); got != c.wanted {
				t.Errorf("systemctl was asked to %q, not %q", got, c.wanted)
			}
		})
	}
}
