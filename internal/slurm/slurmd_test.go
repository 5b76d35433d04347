package slurm_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/slurm"
)

// TestSlurmReadsIt has Slurm's own daemon read what is written. Device nodes are files in
// a folder of the test, as Slurm wants them to exist.
func TestSlurmReadsIt(t *testing.T) {
	slurmd, err := exec.LookPath("slurmd")
	if err != nil {
		t.Skip("there is no slurmd: apt-get install --no-install-recommends slurmd")
	}
	dir := t.TempDir()
	nodes := []slurm.Node{
		{Name: "gpu[01-02]", GPUs: []slurm.GPU{
			{Minor: 0, Type: "a100", MPS: 100}, {Minor: 1, Type: "a100"}, {Minor: 2, Type: "t4", MPS: 100},
		}},
		{Name: "gpu03", AutoDetect: "off", GPUs: []slurm.GPU{
			{Minor: 0, MIG: []slurm.MIGDevice{{Type: "3g.40gb", Capabilities: []int{12, 13}}, {Type: "1g.10gb", Capabilities: []int{66, 67}}}},
		}},
	}
	gres, err := slurm.Render(nodes)
	if err != nil {
		t.Fatal(err)
	}
	conf := strings.ReplaceAll(gres.Conf, "/dev/", dir+"/dev/")
	for _, path := range regexp.MustCompile(regexp.QuoteMeta(dir)+`/dev/[a-z0-9/-]+`).FindAllString(conf, -1) {
		write(t, path, "")
	}
	write(t, filepath.Join(dir, "gres.conf"), conf)
	main := fmt.Sprintf(
		"ClusterName=test\nSlurmctldHost=localhost\nSelectType=select/cons_tres\nSlurmdSpoolDir=%s\n"+
			"ProctrackType=proctrack/pgid\nTaskPlugin=task/none\nGresTypes=%s\n", dir, gres.Types)
	for _, n := range nodes {
		main += fmt.Sprintf("NodeName=%s CPUs=64 Gres=%s\n", n.Name, gres.Nodes[n.Name])
	}
	write(t, filepath.Join(dir, "slurm.conf"), main)

	for node, wants := range map[string][]string{
		"gpu02": {"Name=gpu Type=a100 Count=1", "Name=gpu Type=t4 Count=1", "Name=mps Type=a100 Count=100", "Name=mps Type=t4 Count=100"},
		"gpu03": {"Name=gpu Type=3g.40gb Count=1", "Name=gpu Type=1g.10gb Count=1", "dev/nvidia-caps/nvidia-cap67"},
	} {
		out, err := exec.CommandContext(t.Context(), slurmd, "-G", "-D", "-N", node, "-f", filepath.Join(dir, "slurm.conf")).CombinedOutput()
		said := string(out)
		if err != nil || strings.Contains(said, "fatal") || strings.Contains(said, "Invalid GRES") || strings.Contains(said, "gres.conf:") {
			t.Errorf("%s: %v\n%s", node, err, said)
		}
		for _, want := range wants {
			if !strings.Contains(said, want) {
				t.Errorf("%s: Slurm does not say %q:\n%s", node, want, said)
			}
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
