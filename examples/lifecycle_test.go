package examples_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const (
	examplesDir = "."
	vdiFleet    = examplesDir + "/azure-local-vdi/fleet.json"
	sharesFleet = examplesDir + "/linux-shares/fleet.json"
)

// example is a copy of an example and of its fleet.
type example struct {
	*rig.CLI
	fleet *rig.Rig
}

// surroundings are what the examples of the registry's pages leave to whoever copies them.
const surroundings = `terraform {
  required_providers {
    gpu = { source = "gpufleet/gpu" }
  }
}

provider "gpu" {
  owner = "example"
}
`

// copyExample copies files of an example into a folder with a fleet file, and makes
// the fleet that of a provider without hosts.
func copyExample(t *testing.T, fleet string, files ...string) example {
	t.Helper()
	c := rig.NewProcesses(t, "")
	if err := os.Remove(filepath.Join(c.Dir, "main.tf")); err != nil {
		t.Fatal(err)
	}
	complete := len(files) == 0 // the test writes what there is
	for _, file := range append([]string{fleet}, files...) {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		complete = complete || strings.Contains(string(raw), "required_providers")
		rig.Write(t, filepath.Join(c.Dir, filepath.Base(file)), string(raw))
	}
	if !complete {
		rig.Write(t, filepath.Join(c.Dir, "terraform.tf"), surroundings)
	}
	f, err := others.Open(filepath.Join(c.Dir, "fleet.json"))
	if err != nil {
		t.Fatal(err)
	}
	c.Env = append(c.Env, "GPU_SIMULATED_FLEET="+f.Path())
	return example{CLI: c, fleet: &rig.Rig{T: t, Fleet: f}}
}

// powers are the states of all VMs, by name.
func (e example) powers() map[string]gpu.VMState {
	out := map[string]gpu.VMState{}
	for _, h := range e.fleet.Snapshot().Hosts {
		for _, v := range h.VMs {
			out[v.Name] = v.State
		}
	}
	return out
}

func (e example) claimed() []string {
	var out []string
	for _, h := range e.fleet.Snapshot().Hosts {
		for _, c := range e.fleet.Claims(h.Name) {
			out = append(out, h.Name+": "+c)
		}
	}
	return out
}

// lifecycle applies the example, plans it again and destroys it.
func (e example) lifecycle(wantClaims ...string) {
	e.T.Helper()
	before := e.powers()
	e.Apply()
	if diff := cmp.Diff(wantClaims, e.claimed()); diff != "" {
		e.T.Errorf("claims after the apply (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, e.powers()); diff != "" {
		e.T.Errorf("power states after the apply (-before +after):\n%s", diff)
	}
	e.WantNoChanges()
	e.Destroy()
	if left := e.claimed(); len(left) > 0 {
		e.T.Errorf("claims after the destroy: %v", left)
	}
	if diff := cmp.Diff(before, e.powers()); diff != "" {
		e.T.Errorf("power states after the destroy (-before +after):\n%s", diff)
	}
}

// vmsWithGPU lists the VMs that have a GPU or a partition.
func (e example) vmsWithGPU() []string {
	var out []string
	for _, h := range e.fleet.Snapshot().Hosts {
		for _, v := range h.VMs {
			if len(v.PartitionAdapters)+len(v.Devices) > 0 {
				out = append(out, v.Name)
			}
		}
	}
	slices.Sort(out)
	return out
}

func TestAzureLocalVDIExample(t *testing.T) {
	t.Parallel()
	dir := examplesDir + "/azure-local-vdi"
	e := copyExample(t, vdiFleet, dir+"/main.tf")
	before := e.fleet.Snapshot()
	rig.WantSaid(t, e.Ok("plan"), "Plan: 13 to add", "shut down and started again")
	e.fleet.WantUnchanged(before)

	e.Apply()
	if got := e.Output("partition_vram_mib"); got != "1896" {
		t.Errorf("partition_vram_mib is %s", got)
	}
	for _, h := range rig.Both {
		host := e.fleet.Host(h)
		if g := host.GPUs[0]; g.Partitionable == nil || g.Partitionable.Count != 8 {
			t.Errorf("%s: %s is not partitioned into eight", h, g.ID)
		}
		if p, ok := host.Pool("render"); !ok || len(p.GPUs) != 1 {
			t.Errorf("%s has no pool render of one GPU", h)
		}
	}
	if got := e.vmsWithGPU(); len(got) != 11 || slices.Contains(got, "avd-12") {
		t.Errorf("VMs with a GPU: %v", got)
	}
	v, _ := e.fleet.VM("avd-01")
	if *v.Settings.AutomaticStopAction != gpu.StopShutDown {
		t.Errorf("the stop action of avd-01 is %s", *v.Settings.AutomaticStopAction)
	}
	e.WantNoChanges()

	e.Destroy()
	e.fleet.WantUnchanged(before) // partitions, pools, settings, power states: all as before
}

// Desktops on two GPU models are made in one apply, stay through a failover that leaves them the other model, and get another
// count of both.
func TestTwoGPUModelsExample(t *testing.T) {
	t.Parallel()
	dir := examplesDir + "/two-gpu-models"
	e := copyExample(t, dir+"/fleet.json", dir+"/main.tf")
	before := e.fleet.Snapshot()
	out := e.Ok("plan")
	rig.WantSaid(t, out, "Plan: 8 to add")
	if strings.Contains(out, "Error") {
		t.Error(out)
	}
	e.Apply()
	counts := func(want int) {
		t.Helper()
		for _, h := range rig.Both {
			for _, g := range e.fleet.Host(h).GPUs {
				if g.Partitionable.Count != want {
					t.Errorf("%s on %s has %d partitions, want %d", g.Model, h, g.Partitionable.Count, want)
				}
			}
		}
	}
	counts(4)
	desktops := []string{"avd-01", "avd-02", "avd-03", "avd-04", "avd-05", "avd-06"}
	if got := e.vmsWithGPU(); !slices.Equal(got, desktops) {
		t.Errorf("VMs with a partition: %v", got)
	}
	if out := e.Ok("plan", "-detailed-exitcode"); strings.Contains(out, "The cluster has other GPUs outside this configuration") {
		t.Errorf("the other config's GPUs are told as a surprise:\n%s", out)
	}
	_, on := e.fleet.VM("avd-01")
	to := map[string]string{"hv01": "hv02", "hv02": "hv01"}[on]
	e.fleet.Must(e.fleet.Fleet.MoveVM(t.Context(), "avd-01", to))
	e.WantNoChanges()

	main, err := os.ReadFile(filepath.Join(e.Dir, "main.tf"))
	if err != nil {
		t.Fatal(err)
	}
	rig.Write(t, filepath.Join(e.Dir, "main.tf"), strings.Replace(string(main), "partition_count = 4", "partition_count = 8", 1))
	rig.WantSaid(t, e.Ok("plan"), "0 to add, 8 to change, 0 to destroy", "shut down and started again")
	e.Apply()
	counts(8)
	e.WantNoChanges()
	e.Destroy()
	if got := e.vmsWithGPU(); len(got) > 0 {
		t.Errorf("VMs with a partition after the destroy: %v", got)
	}
	for i, h := range rig.Both { // on_destroy = restore
		for j, g := range e.fleet.Host(h).GPUs {
			if was := before.Hosts[i].GPUs[j].Partitionable.Count; g.Partitionable.Count != was {
				t.Errorf("%s on %s has %d partitions, and had %d", g.Model, h, g.Partitionable.Count, was)
			}
		}
	}
}

func TestEdgeTwoT4Example(t *testing.T) {
	t.Parallel()
	dir := examplesDir + "/edge-two-t4"
	e := copyExample(t, dir+"/fleet.json", dir+"/main.tf")
	before := e.fleet.Snapshot()
	e.Apply()
	if diff := cmp.Diff([]string{"vision-01", "vision-02"}, e.vmsWithGPU()); diff != "" {
		t.Errorf("VMs with a GPU (-want +got):\n%s", diff)
	}
	if v, _ := e.fleet.VM("vision-01"); v.State != gpu.VMRunning || v.Devices[0].GPU == "" {
		t.Errorf("vision-01 is %s with %+v", v.State, v.Devices)
	}
	if v, _ := e.fleet.VM("vision-02"); v.State != gpu.VMOff {
		t.Errorf("vision-02 is %s", v.State)
	}
	e.WantNoChanges()
	e.Destroy()
	e.fleet.WantUnchanged(before)
}

func TestLinuxHGXExample(t *testing.T) {
	t.Parallel()
	dir := examplesDir + "/linux-hgx"
	e := copyExample(t, dir+"/fleet.json", dir+"/main.tf")
	before := e.fleet.Snapshot()
	out := e.Ok("plan")
	rig.WantSaid(t, out, "Plan: 2 to add")
	if strings.Contains(out, "Warning: hgx") {
		t.Errorf("the plan warns of GPUs on which nothing runs:\n%s", out)
	}
	e.fleet.WantUnchanged(before)
	e.Apply()
	g, _ := e.fleet.Host("hgx02").GPU("GPU-6f1d0211-5c1e-4d7a-9b21-3ac2910f2101")
	was, _ := before.Hosts[1].GPU(g.ID)
	if diff := cmp.Diff(was, g); diff != "" {
		t.Errorf("the GPU that was as wanted has changed (-before +after):\n%s", diff)
	}
	for _, h := range []string{"hgx01", "hgx02"} {
		if got, want := e.fleet.Host(h).Units, before.Hosts[0].Units; !slices.Equal(got, want) {
			t.Errorf("%s runs the units %v, want %v", h, got, want)
		}
	}
	e.WantNoChanges()
	e.Destroy()
	for _, g := range e.fleet.Host("hgx01").GPUs { // on_destroy = restore
		if g.MIG.Enabled {
			t.Errorf("GPU %s is still in MIG mode", g.ID)
		}
	}
}

func TestSlurmMIGExample(t *testing.T) {
	t.Parallel()
	dir := examplesDir + "/slurm-mig"
	e := copyExample(t, dir+"/fleet.json", dir+"/main.tf")
	e.Apply()
	conf := e.Ok("output", "-json", "gres_conf")
	for _, g := range e.fleet.Host("gpu01").GPUs {
		for _, i := range g.MIG.Instances {
			files := fmt.Sprintf("Type=%s MultipleFiles=%s,/dev/nvidia-caps/nvidia-cap%d,/dev/nvidia-caps/nvidia-cap%d Cores=%s\\n",
				i.Profile, g.DevicePath(), i.Minor, i.Compute[0].Minor, g.Cores)
			rig.WantSaid(t, conf, files)
		}
	}
	rig.WantSaid(t, e.Ok("output", "-json", "slurm_conf"), `"GresTypes=gpu"`,
		`"NodeName=gpu01 Gres=gpu:2g.20gb:2,gpu:1g.10gb:4,gpu:3g.40gb:2"`, `"NodeName=gpu02 Gres=gpu:h100:2"`)
	e.WantNoChanges()
	e.Destroy()
}

func TestLinuxSharesExample(t *testing.T) {
	t.Parallel()
	dir := examplesDir + "/linux-shares"
	e := copyExample(t, dir+"/fleet.json", dir+"/main.tf")
	before := e.fleet.Snapshot()
	rig.WantSaid(t, e.Ok("plan"), "Plan: 7 to add")
	e.fleet.WantUnchanged(before)
	e.Apply()
	services, handed := []string{"search-canary", "search-embed", "search-rank", "vision-detect", "vision-ocr"}, []string{}
	for _, h := range e.fleet.Snapshot().Hosts {
		for _, s := range h.Shares {
			handed = append(handed, s.Name)
			rig.WantSaid(t, e.Ok("output", "-json"), "ssh "+h.Name+" docker run --user 1000 --device gpufleet.com/share="+s.Name,
				"ssh "+h.Name+" podman run")
			for name, value := range s.Environment {
				if s.Name == "search-canary" {
					rig.WantSaid(t, e.Ok("output", "-raw", "unit"), `Environment="`+name+"="+value+`"`)
				}
			}
		}
		if d := h.MPS.Daemons; len(d) != 1 || d[0].PID == 0 {
			t.Errorf("%s has the daemons %+v", h.Name, d)
		}
	}
	if slices.Sort(handed); !slices.Equal(handed, services) {
		t.Errorf("the hosts hand over %q, want %q", handed, services)
	}
	e.WantNoChanges()
	e.Destroy()
	if left := e.claimed(); len(left) > 0 {
		t.Errorf("claims after the destroy: %v", left)
	}
	for i, h := range e.fleet.Snapshot().Hosts { // on_destroy is restore
		if diff := cmp.Diff(before.Hosts[i].GPUs, h.GPUs); diff != "" || len(h.MPS.Daemons) > 0 {
			t.Errorf("%s is not as it was (-before +after):\n%s\n%+v", h.Name, diff, h.MPS)
		}
	}
}

// What READMEs of the examples say about errors.
func TestExamplesSayNoWhereTheirReadmesDo(t *testing.T) {
	t.Parallel()
	t.Run("a T4 has no partitions", func(t *testing.T) {
		t.Parallel()
		dir := examplesDir + "/edge-two-t4"
		e := copyExample(t, dir+"/fleet.json", dir+"/main.tf")
		rig.Write(t, filepath.Join(e.Dir, "more.tf"),
			"resource \"gpu_partition_config\" \"t4\" {\n  hosts = [\"edge01\"]\n  gpu_p = { partition_count = 2 }\n}\n")
		out := e.Fails("plan")
		rig.WantSaid(t, out, "its driver offers no partitions", "Rule: nothing-selected")
	})
	t.Run("a desktop that may not be shut down", func(t *testing.T) {
		t.Parallel()
		e := copyExample(t, vdiFleet, examplesDir+"/azure-local-vdi/main.tf")
		e.edit("main.tf", "allow_shutdown = true", "allow_shutdown = false")
		out := e.Fails("plan")
		rig.WantSaid(t, out, "Rule: vm-must-be-off", "avd-01", "allow_shutdown")
	})
	t.Run("an instance in use is in the way", func(t *testing.T) {
		t.Parallel()
		e := copyExample(t, examplesDir+"/linux-hgx/fleet.json", examplesDir+"/linux-hgx/main.tf")
		e.edit("main.tf", `profiles = { "3g.40gb" = 2 }`, `profiles = { "7g.80gb" = 1 }`)
		rig.WantSaid(t, e.Fails("plan"), "MIG instances in use block the change", "process 48213 (python3, container 3f2ab90c41d7)",
			"Rule: mig-placement")
	})
	for text, x := range map[string]struct{ from, to, found, rule string }{
		"a team has no more than its quota": {"threads = 30 }", "threads = 90 }", "vision", "pool-quota"},
		"no GPU has more memory than it has": {
			"memory = 24576", "memory = 65536", "The share requests more memory than the device has", "fraction-not-in-mode",
		},
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			e := copyExample(t, examplesDir+"/linux-shares/fleet.json", examplesDir+"/linux-shares/main.tf")
			e.edit("main.tf", x.from, x.to)
			rig.WantSaid(t, e.Fails("plan"), x.found, "Rule: "+x.rule)
		})
	}
	t.Run("four partitions are too few for a node", func(t *testing.T) {
		t.Parallel()
		e := copyExample(t, vdiFleet, examplesDir+"/azure-local-vdi/main.tf")
		e.edit("main.tf", "partition_count = 8", "partition_count = 4")
		rig.WantSaid(t, e.Fails("plan"), "No free partition", "Rule: capacity")
	})
}

// edit replaces a text in a file of the example.
func (e example) edit(file, from, to string) {
	e.T.Helper()
	name := filepath.Join(e.Dir, file)
	raw, err := os.ReadFile(name)
	if err != nil {
		e.T.Fatal(err)
	}
	if !strings.Contains(string(raw), from) {
		e.T.Fatalf("%s does not say %q", file, from)
	}
	rig.Write(e.T, name, strings.ReplaceAll(string(raw), from, to))
}

func TestResourceExamples(t *testing.T) {
	t.Parallel()
	for name, claims := range map[string][]string{
		"gpu_partition_config": {"hv01: partition_config vdi", "hv02: partition_config vdi"},
		"gpu_pool":             {"hv01: pool render", "hv02: pool render"},
		"gpu_vm_assignment": {
			"hv01: partition_config vdi", "hv01: vm_assignment AVD-01", "hv01: vm_assignment AVD-02", "hv02: partition_config vdi",
			"hv02: vm_assignment AVD-07",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := copyExample(t, vdiFleet, filepath.Join(examplesDir, "resources", name, "resource.tf"))
			for i := range claims { // an assignment's claim goes by the VM's id
				for _, vm := range []string{"avd-01", "avd-02", "avd-07"} {
					v, _ := e.fleet.VM(vm)
					claims[i] = strings.Replace(claims[i], strings.ToUpper(vm), v.ID, 1)
				}
			}
			slices.Sort(claims)
			e.lifecycle(claims...)
		})
	}
	wantFolders(t, "resources", "gpu_partition_config", "gpu_pool", "gpu_share", "gpu_vm_assignment")
}

func TestShareResourceExample(t *testing.T) {
	t.Parallel()
	e := copyExample(t, sharesFleet, examplesDir+"/resources/gpu_share/resource.tf")
	e.lifecycle("infer01: partition_config inference", "infer01: share vision-ocr",
		"infer02: partition_config inference", "infer02: pool inference", "infer02: share search-rank")
}

func TestMIGResourceExample(t *testing.T) {
	t.Parallel()
	e := copyExample(t, examplesDir+"/linux-hgx/fleet.json", examplesDir+"/resources/gpu_partition_config/resource_mig.tf")
	e.lifecycle("hgx01: partition_config inference", "hgx02: partition_config training")
	if g, _ := e.fleet.Host("hgx02").GPU("GPU-6f1d0222-5c1e-4d7a-9b22-3ac2910f2202"); len(g.MIG.Instances) != 2 {
		t.Errorf("on_destroy is keep, but the GPU has %+v", g.MIG)
	}
}

func TestVGPUResourceExample(t *testing.T) {
	t.Parallel()
	e := copyExample(t, "testdata/linux-kvm/fleet.json", examplesDir+"/resources/gpu_partition_config/resource_vgpu.tf")
	before, _ := e.fleet.Host("kvm01").GPU("GPU-7d2e0102-6a4f-4c1b-8a01-4bd3a2c01002") // a VM holds its only vGPU
	e.lifecycle("kvm01: partition_config desktops", "kvm02: partition_config workstations")
	for _, g := range e.fleet.Host("kvm01").GPUs { // on_destroy = restore
		if g.ID != before.ID && (g.VGPU.FunctionsOn || len(g.VGPU.Instances) > 0) {
			t.Errorf("GPU %s still has %+v", g.ID, g.VGPU.State())
		}
	}
	if g, _ := e.fleet.Host("kvm01").GPU(before.ID); !cmp.Equal(g.VGPU, before.VGPU) {
		t.Errorf("the GPU has %+v, want %+v", g.VGPU, before.VGPU)
	}
	if g, _ := e.fleet.Host("kvm02").GPU("GPU-7d2e0201-6a4f-4c1b-8a02-4bd3a2c02001"); len(g.VGPU.Instances) != 3 {
		t.Errorf("on_destroy is keep, but the GPU has %+v", g.VGPU.State())
	}
}

// VMs of libvirt get a vGPU each, and one is kept for a VM that is still to come; in the end all is as it was.
func TestKVMExample(t *testing.T) {
	t.Parallel()
	dir := examplesDir + "/kvm-vdi"
	e := copyExample(t, dir+"/fleet.json", dir+"/main.tf")
	before := e.fleet.Snapshot()
	rig.WantSaid(t, e.Ok("plan"), "Plan: 5 to add", "shut down")
	e.Apply()
	h := e.fleet.Host("kvm01")
	if len(h.HostDevices) != 3 || len(h.Claims) != 5 {
		t.Errorf("definitions name %+v, and there are %d claims", h.HostDevices, len(h.Claims))
	}
	e.WantNoChanges()
	e.Destroy()
	e.fleet.WantUnchanged(before)
}

func TestDataSourceExamples(t *testing.T) {
	t.Parallel()
	for name, claims := range map[string][]string{
		"gpu_inventory": nil, "gpu_partition_options": nil, "gpu_change_forecast": nil, "gpu_pool": {"hv01: pool render"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := copyExample(t, vdiFleet, filepath.Join(examplesDir, "data-sources", name, "data-source.tf"))
			e.lifecycle(claims...)
		})
	}
	wantFolders(t, "data-sources", "gpu_inventory", "gpu_partition_options", "gpu_change_forecast", "gpu_pool", "gpu_utilization")
}

// wantFolders asserts that no example is left out.
func wantFolders(t *testing.T, kind string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(examplesDir, kind))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains(names, e.Name()) {
			t.Errorf("no test applies the example %s/%s", kind, e.Name())
		}
	}
}

func TestProviderExample(t *testing.T) {
	t.Parallel()
	e := copyExample(t, vdiFleet, examplesDir+"/provider/provider.tf")
	rig.Write(t, filepath.Join(e.Dir, "main.tf"), `
resource "gpu_partition_config" "vdi" {
  name     = "vdi"
  hosts    = ["hv01", "hv02"]
  selector = { models = ["A2"] }
  gpu_p    = { partition_count = 8 }
}
data "gpu_inventory" "twin" {
  provider = gpu.twin
}
output "hosts" {
  value = keys(data.gpu_inventory.twin.inventory)
}
`)
	e.lifecycle("hv01: partition_config vdi", "hv02: partition_config vdi")
}

// The import of each resource's example finds what the example itself has made, and
// changes nothing on the hosts: what it may add to the state is policy, which no host
// knows.
func TestImportExamples(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]string{
		"gpu_partition_config": "gpu_partition_config.vdi", "gpu_pool": "gpu_pool.render",
		"gpu_vm_assignment": `gpu_vm_assignment.desktop["avd-01"]`,
		"gpu_share":         "gpu_share.ocr",
	} {
		dir, fleet := filepath.Join(examplesDir, "resources", name), vdiFleet
		if name == "gpu_share" {
			fleet = sharesFleet
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			made := copyExample(t, fleet, filepath.Join(dir, "resource.tf"))
			made.Apply()
			apply := func(t *testing.T, e example) {
				t.Helper()
				before := e.fleet.Snapshot()
				e.Apply("-target=" + address) // a desktop's config is not imported here
				e.fleet.WantUnchanged(before)
				if out, code := e.Run("plan", "-detailed-exitcode", "-target="+address); code != 0 {
					t.Errorf("exit code %d, want 0 (no changes)\n%s", code, out)
				}
			}
			imported := func(t *testing.T, files ...string) example {
				t.Helper()
				for i := range files {
					files[i] = filepath.Join(dir, files[i])
				}
				e := copyExample(t, made.fleet.Fleet.Path(), append(files, filepath.Join(dir, "resource.tf"))...)
				switch name { // by name, as if another run made it
				case "gpu_vm_assignment":
					e.edit("resource.tf", "gpu_partition_config.vdi.id", `"vdi"`)
				case "gpu_share":
					e.edit("resource.tf", "gpu_partition_config.inference.id", `"inference"`)
				}
				return e
			}
			t.Run("block", func(t *testing.T) { apply(t, imported(t, "import-by-string-id.tf")) })
			t.Run("identity", func(t *testing.T) {
				e := imported(t, "import-by-identity.tf")
				if !e.hasIdentity() {
					t.Skip("import by identity is new in Terraform and OpenTofu 1.12")
				}
				apply(t, e)
			})
			t.Run("command", func(t *testing.T) {
				e := imported(t)
				raw, err := os.ReadFile(filepath.Join(dir, "import.sh"))
				e.fleet.Must(err)
				lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
				e.Ok(strings.Fields(strings.ReplaceAll(strings.TrimPrefix(lines[len(lines)-1], "terraform "), "'", ""))...)
				apply(t, e)
			})
		})
	}
}

// hasIdentity tells whether the CLI knows resource identities.
func (e example) hasIdentity() bool {
	out := e.Ok("version")
	for _, old := range []string{"v1.8.", "v1.9.", "v1.10.", "v1.11."} {
		if strings.Contains(out, old) {
			return false
		}
	}
	return true
}
