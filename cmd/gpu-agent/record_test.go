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
	script := "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\ncase $2 in dead) echo 'no route to host' >&2; exit 255;; " +
		"esac\nGPU_AGENT_HOST=$2 exec sh -c \"$3\"\n"
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
	for _, bad := range [][]string{
		{},
		{"lab01"},
		{"lab01="},
		{"=hv01"},
		{"lab01=-oProxyCommand=x"},
		{"lab01=hv01", "LAB01=hv02"},
		{"--hosts", "/nowhere"},
		{"--agent-path", "a b;c", "lab01=hv01"},
	} {
		if _, said := r.run(64, append(usual, bad...)...); said == "" {
			t.Errorf("%q: no reason was given", bad)
		}
	}
}

// TestRecordOfAConfiguration records the hosts of a provider's block, and says what only
// Terraform can work out.
func TestRecordOfAConfiguration(t *testing.T) {
	second := host()
	second.Name = "HV02"
	r := newRig(t, host(), second)
	r.env = append(r.env, `TF_VAR_more=["hv02"]`, "TF_VAR_fleet="+r.fleet.Path())
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("variables.tf", `
variable "fleet" { type = string }
variable "more" {
  type    = list(string)
  default = []
}
variable "ways" {
  type = map(object({ file = optional(string, "overridden below") }))
}
locals {
  all = concat(["hv01"], var.more)
}
`)
	write("terraform.tfvars", `
ways = { here = {} }
unused = 1
`)
	write("main.tf", `
terraform {
  required_providers {
    gpu = { source = "gpufleet/gpu" }
  }
}
provider "gpu" {
  owner = "vdi-prod"
  hosts = { for n in local.all : lower(n) => { simulated = { file = var.fleet } } }
}
provider "gpu" {
  alias = "spare"
  hosts = merge({ for n, w in var.ways : n => { simulated = w } }, { hv01 = { local = {} } })
}
data "other" "x" {}
`)
	before := r.file()
	said, _ := r.run(0, "record", "--config", dir)
	s, err := gpu.ParseSnapshot([]byte(said))
	if err != nil || len(s.Hosts) != 2 || s.Hosts[0].Name != "hv01" || s.Hosts[1].Name != "hv02" || len(s.Hosts[1].Claims) != 1 {
		t.Fatalf("recorded %+v, %v", s, err)
	}
	if edited, err := s.Edited([]byte(said)); err != nil || len(edited) > 0 {
		t.Errorf("edited: %q, %v", edited, err)
	}
	// A file of values wins over terraform.tfvars.
	write("values.json", `{"ways": {}}`)
	said, _ = r.run(0, "record", "--config", dir, "--alias", "spare", "--var-file", filepath.Join(dir, "values.json"))
	if s, err := gpu.ParseSnapshot([]byte(said)); err != nil || len(s.Hosts) != 1 || s.Hosts[0].Name != "hv01" {
		t.Fatalf("recorded %+v, %v", s, err)
	}
	if r.file() != before {
		t.Error("recording a host wrote to it")
	}

	for name, bad := range map[string]struct {
		hosts string
		args  []string
		want  []string
	}{
		"data": {
			hosts: `{ hv01 = { ssh = { address = data.other.x } } }`, want: []string{"main.tf:2", "data.other", "only Terraform knows"},
		},
		"no value":      {hosts: `{ hv01 = { simulated = { file = var.none } } }`, want: []string{"var.none has no value", "--var-file"}},
		"circle":        {hosts: `local.a`, want: []string{"local.a uses itself"}},
		"unknown":       {hosts: `{ hv01 = { sssh = {} } }`, want: []string{"main.tf:2", "sssh"}},
		"no way":        {hosts: `{ hv01 = {} }`, want: []string{"hv01", "none of local, simulated, ssh and tls"}},
		"no host":       {hosts: `{}`, want: []string{"names no host"}},
		"not a map":     {hosts: `["hv01"]`, want: []string{"main.tf:2", "not a map"}},
		"function":      {hosts: `nonsense("x")`, want: []string{"nonsense", "NAME=DESTINATION"}},
		"no such fleet": {hosts: `{ hv01 = { simulated = { file = "${path.module}/none.json" } } }`, want: []string{"hv01", "none.json"}},
		"no such host":  {hosts: `{ hv09 = { simulated = { file = var.fleet } } }`, want: []string{"hv09"}},
		"no such alias": {hosts: `{}`, args: []string{"--alias", "none"}, want: []string{`"none"`, `aliases found: [""]`}},
		"both":          {hosts: `{}`, args: []string{"hv01=hv01"}, want: []string{"leave out"}},
		"cert alone":    {hosts: `{}`, args: []string{"--cert", "x.pem"}, want: []string{"--key"}},
		"no certificate": {
			hosts: `{ hv01 = { tls = { address = "x:1", ca_file = "none", cert_file = "none", key_file = "none" } } }`,
			want:  []string{"hv01", "none"},
		},
	} {
		dir = filepath.Join(t.TempDir(), "bad")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		write("main.tf", "provider \"gpu\" {\n  hosts = "+bad.hosts+"\n}\nvariable \"none\" {}\nvariable \"fleet\" {}\nlocals {\n  a = "+
			"local.b\n  b = local.a\n}\n")
		_, said := r.run(64, append([]string{"record", "--config", dir}, bad.args...)...)
		t.Log(name, ":", said)
		wantSaid(t, said, bad.want...)
	}
	_, said = r.run(64, "record", "--config", t.TempDir())
	wantSaid(t, said, "no configuration of Terraform")
}
