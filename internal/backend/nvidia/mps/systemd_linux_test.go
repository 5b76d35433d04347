package mps_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/mps"
	fakemps "github.com/gpufleet/terraform-provider-gpu/internal/fake/mps"
	"github.com/gpufleet/terraform-provider-gpu/internal/mpsconf"
)

// TestUnit has a daemon run as a unit that brings it back with its settings, without an
// agent.
func TestUnit(t *testing.T) {
	t.Parallel()
	everyDaemon(t, nil, func(t *testing.T, h *host) {
		withSystemd(t, h)
		spec := training()
		h.ensure(spec)
		h.settled(spec)
		first := h.daemon("training")
		if !first.Systemd || first.Problem != "" {
			t.Fatalf("started: %+v", first)
		}
		spec.ActiveThreadPercentage = 40
		h.planned(spec, mps.Configure)
		h.ensure(spec)

		h.kill("training")
		if out, err := exec.CommandContext(t.Context(), h.opt.Systemctl, "start", mps.Unit("training")).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		second := h.daemon("training")
		if second.PID == 0 || second.PID == first.PID || second.Settings == nil || second.Settings.ActiveThreadPercentage != 40 ||
			second.Settings.PinnedMemory[gpu2] != 4*gib {
			t.Errorf("systemd brought back %+v with %+v", second, second.Settings)
		}
		// Only the note of its process is old.
		h.planned(spec, mps.Configure)
		h.ensure(spec)
		h.settled(spec)

		other := mpsconf.Spec{Name: "other", Devices: []string{mig1}, User: new(0)}
		h.ensure(other)
		for _, name := range []string{"training", "other"} {
			if _, err := h.Remove(t.Context(), name, mps.KeepClients); err != nil {
				t.Fatal(err)
			}
			h.nothingLeft(name)
		}
		if left, err := os.ReadDir(h.opt.UnitDir); err != nil || len(left) > 0 {
			t.Errorf("left in the unit directory: %v, %v", left, err)
		}
	})
}

func TestUnitThatDoesNotStart(t *testing.T) {
	t.Parallel()
	h := withSystemd(t, newHost(t, "/bin/false", nil))
	_, err := h.Ensure(t.Context(), training(), mps.KeepClients)
	refused(t, err, backend.Failed, "MPS daemon training", "systemctl start gpu-mps@training.service",
		"Job for gpu-mps@training.service failed")
	h.nothingLeft("training")
}

// TestUnitIsValid has systemd read what is written for it.
func TestUnitIsValid(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze: apt-get install --no-install-recommends systemd")
	}
	everyDaemon(t, nil, func(t *testing.T, h *host) {
		withSystemd(t, h)
		h.ensure(training())
		cmd := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", filepath.Join(h.opt.UnitDir, mps.Unit("training")))
		cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+h.opt.UnitDir+":")
		// It reads an instance from a file with the template's name.
		if err := os.Symlink("gpu-mps@.service", filepath.Join(h.opt.UnitDir, mps.Unit("training"))); err != nil {
			t.Fatal(err)
		}
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("systemd-analyze verify: %v\n%s", err, out)
		}
	})
}

// TestUnitDirIsNotFollowed has a link in a unit's place replaced, and what it points to
// left alone.
func TestUnitDirIsNotFollowed(t *testing.T) {
	t.Parallel()
	everyDaemon(t, nil, func(t *testing.T, h *host) {
		withSystemd(t, h)
		victim := filepath.Join(h.dir, "victim")
		if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		template := filepath.Join(h.opt.UnitDir, "gpu-mps@.service")
		if err := os.Symlink(victim, template); err != nil {
			t.Fatal(err)
		}
		h.ensure(training())
		if data, err := os.ReadFile(victim); err != nil || string(data) != "precious" {
			t.Errorf("the file behind the link is %q, %v", data, err)
		}
		if info, err := os.Lstat(template); err != nil || !info.Mode().IsRegular() {
			t.Errorf("the template is %v, %v", info, err)
		}
		// A directory that is a link is refused.
		other := mpsconf.Spec{Name: "other", Devices: []string{gpu1}, User: new(0)}
		if err := os.Symlink(h.dir, filepath.Join(h.opt.UnitDir, mps.Unit("other")+".d")); err != nil {
			t.Fatal(err)
		}
		_, err := h.Ensure(t.Context(), other, mps.KeepClients)
		refused(t, err, backend.Failed, "is not a directory but L")
		if slices.Contains(h.names(), "other") {
			t.Error("the failed start has left its directory")
		}
	})
}

// TestSystemctlThatHangs is given up after its time, a daemon that runs ends all the same, and what
// was begun goes on when systemd answers again.
func TestSystemctlThatHangs(t *testing.T) {
	t.Parallel()
	h := withSystemd(t, newFake(t, fakemps.Behaviour{}, nil))
	answers := h.Host
	o := h.opt
	o.Systemctl, o.SystemctlTimeout = hanging(t), 50*time.Millisecond
	stuck := mps.New(o)
	_, err := stuck.Ensure(t.Context(), training(), mps.KeepClients)
	refused(t, err, backend.Timeout, "systemctl daemon-reload has not ended within 50ms", "MPS daemon training")

	h.Host = answers
	h.ensure(training())
	h.settled(training())
	pid := h.daemon("training").PID
	_, err = stuck.Remove(t.Context(), "training", mps.KeepClients)
	refused(t, err, backend.Timeout, "systemctl daemon-reload has not ended within 50ms", "MPS daemon training")
	if d := h.daemon("training"); d.PID != 0 {
		t.Errorf("process %d runs on: %+v", pid, d)
	}
	if _, err := h.Remove(t.Context(), "training", mps.KeepClients); err != nil {
		t.Fatal(err)
	}
	h.nothingLeft("training")
}
