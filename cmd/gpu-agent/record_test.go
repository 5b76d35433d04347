package main_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestRecord records two hosts through a program in the place of ssh; test/ssh does it
// through OpenSSH.
func TestRecord(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a shell script stands in for ssh; run this on Linux or macOS")
	}
	second := host()
	second.Name = "HV02"
	r := newRig(t, host(), second)
	ssh := filepath.Join(t.TempDir(), "ssh")
	script := "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\ncase $2 in dead) echo 'no route to host' >&2; exit 255;; esac\nGPU_AGENT_HOST=$2 exec sh -c \"$3\"\n"
	if err := os.WriteFile(ssh, []byte(script), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	usual := []string{"record", "--ssh", ssh, "--agent-path", binary}
	list := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(list, []byte("# the rack\nlab01\thv01 # the first\n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := r.file()

	out := filepath.Join(t.TempDir(), "recorded.json")
	said, _ := r.run(0, append(usual, "--out", out, "--hosts", list, "lab02=hv02")...)
	wantSaid(t, said, "2 hosts")
	raw, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	s, err := gpu.ParseSnapshot(raw)
	if edited, err := s.Edited(raw); err != nil || len(edited) > 0 {
		t.Errorf("edited: %q, %v", edited, err)
	}
	if err != nil || len(s.Hosts) != 2 || s.Hosts[0].Name != "lab01" || s.Hosts[1].Name != "lab02" || len(s.Hosts[0].Claims) != 1 {
		t.Fatalf("recorded %+v, %v", s, err)
	}
	for _, h := range s.Hosts {
		if rec := s.Recorded[h.Name]; rec.Agent != "1.2.3" || time.Since(rec.At) > time.Minute || len(rec.Digest) != 64 {
			t.Errorf("%s: %+v", h.Name, rec)
		}
	}
	if r.file() != before {
		t.Error("recording a host wrote to it")
	}

	// A host that does not answer leaves no recording, not even the old one's place empty.
	_, said = r.run(1, append(usual, "--out", out, "lab01=hv01", "lab03=dead")...)
	wantSaid(t, said, "lab03", "no route to host")
	if now, err := os.ReadFile(out); err != nil || string(now) != string(raw) {
		t.Errorf("the recording of before is gone: %v", err)
	}
	for _, bad := range [][]string{{}, {"lab01"}, {"lab01="}, {"=hv01"}, {"lab01=-oProxyCommand=x"}, {"lab01=hv01", "LAB01=hv02"}, {"--hosts", "/nowhere"}, {"--agent-path", "a b;c", "lab01=hv01"}} {
		if _, said := r.run(64, append(usual, bad...)...); said == "" {
			t.Errorf("%q: no reason was given", bad)
		}
	}
}
