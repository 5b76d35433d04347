package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// mixedFleet is a folder with a configuration of a Hyper-V host with 12 VMs, one that is switched off, and a Linux host.
func mixedFleet(t *testing.T) (r *rig, dir string) {
	t.Helper()
	first, dark, linux := host(), host(), sharingHost()
	for i := range 12 {
		vm := gpu.VM{ID: fmt.Sprintf("0F1E2D3C-0000-4000-8000-%012d", i), Name: fmt.Sprintf("desk-%02d", i+1), State: gpu.VMOff, Generation: 2}
		if i < 4 {
			vm.State, vm.PartitionAdapters = gpu.VMRunning, []gpu.PartitionAdapter{{ID: "a"}}
			p := first.GPUs[0].Partitionable
			p.Partitions = append(p.Partitions, gpu.Partition{ID: i, VMID: vm.ID})
		}
		first.VMs = append(first.VMs, vm)
	}
	first.Claims = append(first.Claims, gpu.Claim{
		Kind: gpu.ClaimAssignment, ID: first.VMs[1].ID, Owner: "vdi-prod", Token: "t2", Revision: 1,
		Want: gpu.Want{Assignment: &gpu.Assignment{
			VM: "desk-01", VMID: first.VMs[1].ID, VMName: "desk-01", Host: "hv01", Kind: gpu.AssignPartition, Partition: &gpu.PartitionWant{},
		}},
	})
	dark.Name, linux.Name = "hv02", "hgx01"
	r = newRig(t, first, dark, linux)
	if err := r.fleet.SetUnreachable(t.Context(), "hv02", true); err != nil {
		t.Fatal(err)
	}
	return r, configOf(t, fmt.Sprintf("simulated_fleet = %q", r.fleet.Path()))
}

// configOf is a folder with a provider's block.
func configOf(t *testing.T, block string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte("provider \"gpu\" {\n  "+block+"\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// wantColumns is that no line is wider, and that none ends in blanks.
func wantColumns(t *testing.T, out string, most int) {
	t.Helper()
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		if n := len([]rune(line)); n > most || strings.HasSuffix(line, " ") {
			t.Errorf("a line has %d columns, or blanks at its end: %q", n, line)
		}
	}
}

// Every command that reads shows all hosts of a configuration in one table, and names the host that does not answer.
func TestCommandsReadAllHostsOfAConfiguration(t *testing.T) {
	t.Parallel()
	r, dir := mixedFleet(t)
	before := r.file()
	for _, c := range []struct {
		args []string
		says []string
	}{
		{[]string{"inventory"}, []string{
			"NVIDIA A2", "4 partitions of", "desk-01", "desk-12", "no GPU", "whole, pool", "MIG 3g.40gb at 4",
			"MPS inference", "partition (PCIROOT(16)…)", "GPU-…000000000001", "42 python3",
		}},
		{[]string{"claims"}, []string{"render", "desk-01", "vdi-prod", "complete", "inference", "chat"}},
		{[]string{"status"}, []string{"ok", "1.2.3", "hyperv", "linux"}},
		{[]string{"utilization", "--window", "100ms"}, []string{"3g.40gb@4", "unaccounted", "hv01  not measured"}},
	} {
		args := append(slices.Clone(c.args), "--config", dir)
		out, said := r.run(1, args...)
		wantSaid(t, out, append(c.says, "hv01", "hgx01", "hv02", "does not")...)
		wantSaid(t, strings.Join(strings.Fields(out), " "), "does not answer: ")
		wantSaid(t, said, "1 of 3 hosts did not answer: hv02")
		wantColumns(t, out, 100)
		if strings.Contains(out, uuid1) {
			t.Errorf("%q: the narrow table has an id in full", args)
		}
		wide, _ := r.run(1, append(args, "-o", "wide")...)
		wantColumns(t, wide, 1000)

		// Without the host nothing is missing, and the rows alone are as many.
		args = append(args, "--filter", "host!=HV02")
		out, said = r.run(0, args...)
		if strings.Contains(out+said, "hv02") {
			t.Errorf("%q tells of a host that was not asked for:\n%s%s", args, out, said)
		}
		rows, _ := r.run(0, append(args, "--no-headers")...)
		if strings.Contains(rows, "HOST") || strings.Contains(rows, "\n\n") || rows == "" {
			t.Errorf("%q --no-headers prints:\n%s", args, rows)
		}

		doc, _ := r.run(1, append(c.args, "--config", dir, "-o", "json")...)
		var parsed struct {
			Hosts      []map[string]any
			Unanswered []map[string]any
		}
		if err := json.Unmarshal([]byte(doc), &parsed); err != nil || len(parsed.Hosts)+len(parsed.Unanswered) != 3 {
			t.Errorf("%q -o json: %v\n%s", c.args, err, doc)
		}
		again, _ := r.run(1, append(c.args, "--config", dir, "-o", "yaml", "--filter", "host=hv*")...)
		var hosts struct{ Hosts, Unanswered []map[string]any }
		if err := yaml.Unmarshal([]byte(again), &hosts); err != nil || len(hosts.Hosts)+len(hosts.Unanswered) != 2 {
			t.Errorf("%q -o yaml: %v\n%s", c.args, err, again)
		}
	}
	if r.file() != before {
		t.Error("reading wrote to a host")
	}
	wide, _ := r.run(1, "inventory", "--config", dir, "-o", "wide")
	wantSaid(t, wide, uuid1, uuid2, gpu1, vm1, "1 2 4", "580.82.07", "exclusive_process")
	// Without a host that does not answer the document is a fleet, and else it is none that anybody plans against.
	doc, _ := r.run(0, "inventory", "--config", dir, "-o", "json", "--filter", "host!=hv02")
	if s, err := gpu.ParseSnapshot([]byte(doc)); err != nil || len(s.Hosts) != 2 || len(s.Recorded) != 2 {
		t.Errorf("%d hosts, %v", len(s.Hosts), err)
	}
	doc, _ = r.run(1, "inventory", "--config", dir, "--json")
	if s, err := gpu.ParseSnapshot([]byte(doc)); err == nil {
		t.Errorf("a fleet that lacks a host is one to plan against: %d hosts", len(s.Hosts))
	}
}

// Rows are filtered and sorted by any column, also by those that only the wide table shows.
func TestRowsAreFilteredAndSorted(t *testing.T) {
	t.Parallel()
	r, dir := mixedFleet(t)
	rows := func(args ...string) (first []string) {
		t.Helper()
		out, _ := r.run(0, append([]string{"inventory", "--config", dir, "--filter", "host!=hv02", "--no-headers"}, args...)...)
		for line := range strings.Lines(out) {
			if f := strings.Fields(line); len(f) > 1 && (f[0] == "hv01" || f[0] == "hgx01") {
				first = append(first, f[1])
			}
		}
		return first
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--filter", "vm=avd-*"}, "avd-01"},
		{[]string{"--filter", "VM=desk-0?"}, ""},
		{[]string{"--filter", "state=running", "--sort=-vm"}, "desk-04 desk-03 desk-02 desk-01 avd-01"},
		{[]string{"--filter", "has!=no gpu", "--sort", "vm"}, "desk-01 desk-02 desk-03 desk-04"},
		{[]string{"--filter", "used-by=desk-03"}, "NVIDIA"},
		{[]string{"--filter", "status=ready_for_dda"}, "NVIDIA"},
		{[]string{"--filter", "generation=2", "--filter", "vm=*12"}, "desk-12"},
	} {
		if got := strings.Join(rows(c.args...), " "); got != c.want {
			t.Errorf("%q: the rows are %q, want %q", c.args, got, c.want)
		}
	}
	out, _ := r.run(0, "inventory", "--config", dir, "--filter", "host!=hv02", "--filter", "memory=*", "--sort=-memory,model", "--no-headers")
	if at, big := strings.Index(out, "16.0 GiB"), strings.LastIndex(out, "80.0 GiB"); at < big {
		t.Errorf("80 GiB come after 16 GiB when sorted downwards:\n%s", out)
	}
	for _, c := range []struct {
		says string
		args []string
	}{
		{`Did you mean "host"`, []string{"--filter", "hst=hv01"}},
		{"COLUMN=PATTERN", []string{"--filter", "host"}},
		{`Did you mean "model"`, []string{"--sort=-models"}},
		{`Did you mean "wide"`, []string{"-o", "wyde"}},
		{"exclude each other", []string{"-o", "yaml", "--json"}},
		{"are for tables", []string{"-o", "json", "--sort", "host"}},
		{"are for tables", []string{"-o", "json", "--filter", "vm=avd-01"}},
		{"did you mean --filter?", []string{"--fitler", "host=hv01"}},
		{"--cert needs --key", []string{"--cert", "x"}},
	} {
		_, said := r.run(64, append([]string{"inventory", "--config", dir}, c.args...)...)
		wantSaid(t, said, c.says)
	}
	_, said := r.run(64, "status", "--key", "x")
	wantSaid(t, said, "go with --config")
}

// This host alone is in the same tables, and -o json is what --json has always been.
func TestThisHostInTables(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, c := range []string{"inventory", "claims"} {
		doc, _ := r.run(0, c, "--json")
		again, _ := r.run(0, c, "-o", "json")
		cut := func(s string) string { return strings.Split(s, `"recorded"`)[0] }
		if cut(doc) != cut(again) {
			t.Errorf("%s: -o json differs from --json:\n%s", c, again)
		}
		out, _ := r.run(0, c, "-o", "table")
		wantSaid(t, out, "HOST", "hv01")
		wantColumns(t, out, 100)
	}
	out, _ := r.run(0, "status", "--no-headers")
	if f := strings.Fields(out); len(f) < 4 || f[0] != "hv01" || f[len(f)-1] != "ok" {
		t.Errorf("status: %q", out)
	}
	out, _ = r.run(0, "inventory") // VMs without a GPU are listed
	wantSaid(t, out, "avd-01", "running")
	out, _ = r.run(0, "--version")
	wantSaid(t, out, "gpu-agent version 1.2.3, protocol 1")
}

// What hosts are called, and what they say, makes no row of its own and steers no terminal.
func TestNamesCannotForgeRowsOfAFleet(t *testing.T) {
	t.Parallel()
	h := host()
	names := others.HostileNames()
	h.VMs, h.Stale, h.GPUs[0].Model = nil, []string{names[5]}, "A2"+names[4]
	for i, name := range names {
		h.VMs = append(h.VMs, gpu.VM{ID: fmt.Sprintf("0F1E2D3C-0000-4000-8000-%012d", i), Name: name, State: gpu.VMOff, Generation: 2})
		h.Claims = append(h.Claims, gpu.Claim{Kind: gpu.ClaimPool, ID: name + "x", Owner: name, Token: "t"})
	}
	r := newRig(t, h)
	dir := configOf(t, fmt.Sprintf("simulated_fleet = %q", r.fleet.Path()))
	for _, c := range []string{"inventory", "claims", "status"} {
		for _, format := range []string{"table", "wide"} {
			out, said := r.run(0, c, "--config", dir, "-o", format)
			for _, fault := range others.Faults(out+said, false) {
				t.Errorf("%s -o %s: %s", c, format, fault)
			}
		}
	}
	doc, _ := r.run(0, "claims", "--config", dir, "-o", "json")
	var parsed struct {
		Hosts []struct{ Claims []gpu.Claim }
	}
	if err := json.Unmarshal([]byte(doc), &parsed); err != nil || len(parsed.Hosts) != 1 || len(parsed.Hosts[0].Claims) != len(names)+1 {
		t.Errorf("%v: %s", err, doc)
	}
}

// The files that a configuration names are those of its folder, wherever the command runs; hosts that cannot be
// asked as the configuration says are rows like those that do not answer.
func TestHostsAsTheConfigurationNamesThem(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	dir := configOf(t, `hosts = {
    hv01 = { simulated = { file = "fleet.json" } }
    hv02 = { simulated = { file = "${path.module}/none.json" } }
    hv03 = { ssh = { address = "127.0.0.1", port = 1, user = "x", password = "geheim" } }
    hv04 = { tls = { address = "127.0.0.1:1", ca_file = "ca.pem", cert_file = "c.pem", key_file = "k.pem" } }
    hv05 = { local = { agent_path = "/nowhere/gpu-agent" } }
  }`)
	if err := os.WriteFile(filepath.Join(dir, "fleet.json"), []byte(r.file()), 0o600); err != nil {
		t.Fatal(err)
	}
	out, said := r.run(1, "status", "--config", dir, "-o", "wide")
	for _, name := range []string{"hv02", "hv03", "hv04", "hv05"} {
		found := false
		for line := range strings.Lines(out) {
			found = found || strings.Contains(line, name) && strings.Contains(line, "does not answer: ")
		}
		if !found {
			t.Errorf("%s has no row that says why it does not answer:\n%s", name, out)
		}
	}
	wantSaid(t, said, "4 of 5 hosts did not answer: hv02, hv03, hv04 and hv05")
	if strings.Contains(out+said, "geheim") {
		t.Error("the password is printed")
	}
	r.run(0, "status", "--config", dir, "--filter", "host=hv01")
}

// watch tells of a change while it is being made: at which step it is, what comes next, and since when the VM is off.
func TestWatch(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process of Windows gets no signal; run this on Linux or macOS")
	}
	t.Parallel()
	h := host()
	h.Claims[0].Want.Pool = &gpu.PoolConfig{ID: "hv01/render", Name: "render", Members: map[string][]string{"hv01": {gpu2}}}
	h.Claims = append(h.Claims, gpu.Claim{
		Kind: gpu.ClaimAssignment, ID: vm1, Token: "t2", Owner: "vdi-prod", Pending: true, Revision: 1,
		Want: gpu.Want{Assignment: &gpu.Assignment{
			Kind: gpu.AssignPartition, VM: "avd-01", VMID: vm1, VMName: "avd-01", Host: "hv01", Partition: &gpu.PartitionWant{},
			Power: gpu.Power{AllowShutdown: true, NextOff: true},
		}},
	})
	r := newRig(t, h)
	dir := configOf(t, fmt.Sprintf("simulated_fleet = %q", r.fleet.Path()))
	out, _ := r.run(0, "watch", "--once", "--config", dir)
	wantSaid(t, out, "nothing is under way on 1 of 1 host")
	err := r.fleet.EditSimulation(t.Context(), "hv01", func(s *simulated.Simulation) {
		s.Latency = map[simulated.Op]int{simulated.OpAny: 1, simulated.OpStartVM: 2500}
	})
	if err != nil {
		t.Fatal(err)
	}
	watch := r.command("watch", "--interval", "100ms", "--config", dir)
	var said bytes.Buffer
	watch.Stdout = &said
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	r.run(0, "vm", "apply-pending", "avd-01", "--yes")
	time.Sleep(300 * time.Millisecond)
	if err := watch.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := watch.Wait(); err != nil {
		t.Errorf("interrupted, it ends with %v", err)
	}
	for _, want := range []string{
		"hv01: changed by gpu-agent vm on", "start VM avd-01", "hv01: VM avd-01 is off since", ": over", "VM avd-01 is on again", "has ended",
	} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, said.String())
		}
	}
	if err := r.fleet.SetUnreachable(t.Context(), "hv01", true); err != nil {
		t.Fatal(err)
	}
	out, complaint := r.run(1, "watch", "--once", "--config", dir)
	wantSaid(t, out, "hv01: does not answer: ")
	wantSaid(t, complaint, "1 of 1 host did not answer: hv01")
	_, complaint = r.run(64, "watch", "--interval", "1ms")
	wantSaid(t, complaint, "at least 100ms")
}
