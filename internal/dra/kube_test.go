package dra_test

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/dra"
)

// takes has kube-apiserver's own code decode, default and validate objects as ones that are
// created. It returns those that it takes, and what it says of the others.
func takes(t *testing.T, documents string) (taken []string, says string) {
	t.Helper()
	program := os.Getenv("GPU_TEST_KUBE")
	if program == "" {
		t.Skip("there is no kube-apiserver: make test-kube builds its code")
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(documents), &stdout, &stderr
	if err := cmd.Run(); err == nil != (stderr.Len() == 0) {
		t.Fatalf("%v: %s", err, &stderr)
	}
	return strings.Split(strings.TrimSpace(stdout.String()), "\n"), stderr.String()
}

// TestKubeTakesIt renders every MIG profile of the catalog, with the longest names and selectors.
func TestKubeTakesIt(t *testing.T) {
	t.Parallel()
	name, namespace := strings.Repeat("g", 40), strings.Repeat("n", 63)
	var gpus []dra.GPU
	profiles := map[string]bool{}
	for _, m := range catalog.All() {
		if m.MIG == nil {
			continue
		}
		g := dra.GPU{Host: "a", UUID: uuid(len(gpus)), Layout: "mig:some"}
		for _, p := range m.MIG.Profiles {
			g.Profiles = append(g.Profiles, p.Name)
			profiles[p.Name] = true
		}
		gpus = append(gpus, g)
	}
	var out string
	for n := 240; ; n-- { // GPUs, as many as a selector has room for
		all := slices.Clone(gpus)
		for i := range n {
			all = append(all, dra.GPU{Host: "b", UUID: uuid(1000 + i), Layout: "mig:off"})
		}
		var err error
		if out, err = dra.Render(&dra.Request{Name: name, Namespace: namespace, GPUs: all}); err == nil {
			break
		}
		if n < 200 {
			t.Fatal(err)
		}
	}
	taken, says := takes(t, out)
	if says != "" {
		t.Error(says)
	}
	slices.Sort(taken)
	if all := len(slices.Compact(taken)); all != 2*(len(profiles)+1) {
		t.Errorf("it takes %d objects of %d profiles:\n%s", all, len(profiles), strings.Join(taken, "\n"))
	}
}

// TestKubeRefuses what is wrong: else TestKubeTakesIt would show nothing.
func TestKubeRefuses(t *testing.T) {
	t.Parallel()
	out, err := dra.Render(&dra.Request{Name: "ml", GPUs: []dra.GPU{{Host: "a", UUID: uuid(0), Layout: "mig:off"}}})
	if err != nil {
		t.Fatal(err)
	}
	for want, wrong := range map[string][2]string{
		"unknown field":              {"selectors:", "selector:"},
		"compilation failed":         {"device.driver ==", "device.driver +"},
		"a lowercase RFC 1123":       {"name: ml-gpu", "name: ML"},
		"deviceClassName: Required":  {"deviceClassName: ml-gpu", `deviceClassName: ""`},
		"Too long":                   {`type == "gpu"`, `type == "` + strings.Repeat("a", 10*1024) + `"`},
		"spec.devices.requests[0].n": {"- name: gpu", `- name: ""`},
	} {
		if _, says := takes(t, strings.ReplaceAll(out, wrong[0], wrong[1])); !strings.Contains(says, want) {
			t.Errorf("%q: it says %q", want, says)
		}
	}
}
