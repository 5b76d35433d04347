//go:build linux && cgo

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/mps"
	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
)

// What people declare beside the agent's state is what any command sees, and a declaration that cannot be
// followed stops it: who wrote one relies on it.
func TestDeclaredControllers(t *testing.T) {
	tree := fakenvml.NewProcTree(t)
	tree.Add(fakenvml.Proc{PID: 4242, Args: []string{"/opt/acme/acme-gpud"}})
	m := fakenvml.New(t, fakenvml.Options{GPUs: []fakenvml.GPU{{UUID: "GPU-11111111-1111-1111-1111-111111111111"}}})
	nowhere := t.TempDir()
	released := platformOptions
	t.Cleanup(func() { platformOptions = released })
	platformOptions = nvidia.Options{
		Library: m.Library(), SMI: m.SMI(), Root: tree.Root(), Systemctl: filepath.Join(nowhere, "systemctl"),
		CTK: filepath.Join(nowhere, "nvidia-ctk"), Modprobe: filepath.Join(nowhere, "nvidia-modprobe"),
		MPS: mps.Options{Program: filepath.Join(nowhere, "nvidia-cuda-mps-control")},
	}
	for name, test := range map[string]struct {
		file string // "" for none
		says string
		err  string
	}{
		"none":      {says: "GPU-11111111"},
		"one":       {file: `{"acme-gpud": "layout"}`, says: "acme-gpud"},
		"elsewhere": {file: `{"acme-gpud-2": "layout"}`, says: "GPU-11111111"},
		"no JSON":   {file: `acme-gpud=layout`, err: `write names and roles, such as {"acme-gpud": "layout"}`},
		"a list":    {file: `["acme-gpud"]`, err: `write names and roles`},
		"twice":     {file: `{"a": "layout", "a": "consumer"}`, err: `write names and roles`},
		"no role":   {file: `{"acme-gpud": "owner"}`, err: `declares "acme-gpud" as "owner"; write "layout" if it changes layouts by itself`},
		"a path":    {file: `{"/opt/acme/acme-gpud": "layout"}`, err: "write that of a process, a unit or a service, without a path"},
		"no name":   {file: `{"": "layout"}`, err: "which is no name"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, controllersName)
			if test.file != "" {
				if err := os.WriteFile(path, []byte(test.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cmd := newRoot()
			var out bytes.Buffer
			cmd.SetOut(&out)
			cmd.SetArgs([]string{"inventory", "--state-dir", dir})
			err := cmd.ExecuteContext(t.Context())
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) || !strings.Contains(err.Error(), path) {
					t.Errorf("the error is %v, want one of %s that says %s", err, path, test.err)
				}
				return
			}
			if err != nil || !strings.Contains(out.String(), test.says) {
				t.Errorf("it says, with %v:\n%s", err, out.String())
			}
			if shown := strings.Contains(out.String(), "changes layouts by itself"); shown != (test.says == "acme-gpud") {
				t.Errorf("other software is shown: %v\n%s", shown, out.String())
			}
		})
	}
}
