package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

var fenced = regexp.MustCompile("(?s)```(shell|terraform)\n(.*?)```")

// Who does what the guide says, block by block, takes over a fleet that others made: every
// object is claimed, no GPU and no VM is touched, and the last plan is empty.
func TestAdoptionGuideAsItIsWritten(t *testing.T) {
	t.Parallel()
	c := rig.NewProcesses(t, "")
	text, err := os.ReadFile("../templates/guides/adopt.md.tmpl")
	if err != nil {
		t.Fatal(err)
	}
	s := rig.Cluster("azl",
		rig.Node("hv01", rig.Desktop("avd-01", 1), rig.Off(rig.Desktop("avd-02", 2))),
		rig.Node("hv02", rig.Desktop("avd-03", 3), rig.Off(rig.Desktop("avd-04", 4))))
	s.Hosts = slices.Concat(s.Hosts, rig.HGX(rig.H100, 3).Hosts, rig.KVM(rig.L40s(0), rig.L40s(1)).Hosts, rig.GPUHost(2).Hosts)
	r := rig.New(t, s)
	r.AddForeignAdapter("avd-01") // Windows Admin Center
	for _, h := range []string{"hv01", "hv02"} {
		r.SetPool(h, "render", rig.GPU1)
	}
	r.Draw("avd-04", "render")
	for n := range 2 { // mig-parted, and by hand
		r.Must(r.Fleet.SetMIGModeOutside(t.Context(), "hgx01", rig.MIGGPU(n), true))
		r.CreateOutside(n, rig.At("3g.40gb", 4*n))
		// nvidia-smi compute-policy
		r.Must(r.Fleet.SetTimeSliceOutside(t.Context(), "gpu01", rig.SharedCard(n), gpu.TimeSliceLong))
	}
	host, err := r.Fleet.Host("kvm01")
	r.Must(err)
	r.Must(host.SetVirtualFunctions(t.Context(), rig.VGPUCard(0), true))
	r.Must(host.CreateVGPU(t.Context(), rig.VGPUCard(0), gpu.VGPUPlace{Type: "L40S-12Q"}))
	before := r.Snapshot()

	agent, err := rig.AgentBinary()
	r.Must(err)
	programs := t.TempDir()
	r.Must(os.Symlink(rig.CLIPath(t), filepath.Join(programs, "terraform")))
	r.Must(os.Symlink(agent, filepath.Join(programs, "gpu-agent")))
	provider := func(more string) {
		rig.Write(t, filepath.Join(c.Dir, "provider.tf"), strings.Replace(r.BlockOf("vdi"), "owner = ", more+"\n  owner = ", 1))
	}
	for _, block := range fenced.FindAllStringSubmatch(string(text), -1) {
		kind, body := block[1], block[2]
		if kind == "terraform" {
			name, _, _ := strings.Cut(strings.TrimPrefix(body, "# "), "\n")
			if rig.Write(t, filepath.Join(c.Dir, name), body); name == "provider.tf" {
				provider("read_only = true") // with the same arguments but for the hosts
			}
			continue
		}
		if strings.Contains(body, "apply plan") {
			provider("")
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-euc", body)
		cmd.Dir, cmd.Env = c.Dir, append(slices.Clone(c.Env), "PATH="+programs+":"+os.Getenv("PATH"), "TF_CLI_ARGS=-no-color", "GOGC=100")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", body, err, out)
		}
		rig.SameHardware(t, before, r.Snapshot())
		if body == "terraform plan\n" {
			rig.WantSaid(t, string(out), "Plan: 7 to import, 0 to add, 7 to change, 0 to destroy")
			if strings.Contains(rig.Sentence(string(out)), "shut down and started") {
				t.Errorf("the plan stops a VM:\n%s", out)
			}
		}
	}
	adopted, err := os.ReadFile(filepath.Join(c.Dir, "adopted.tf"))
	r.Must(err)
	rig.WantSaid(t, string(adopted), "Left on gpu01, GPU "+rig.SharedCard(0)+": processes share it (time slice long)")
	for host, want := range map[string]int{"hv01": 3, "hv02": 3, "hgx01": 1, "kvm01": 1, "gpu01": 1} {
		if got := r.Claims(host); len(got) != want {
			t.Errorf("%s has the claims %q, want %d", host, got, want)
		}
	}
}
