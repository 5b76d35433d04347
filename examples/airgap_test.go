package examples_test

import (
	"archive/zip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

// The provider is installed from a release's archive in a mirror, by somebody whose home is
// empty and who reaches nobody, and has the agents beside it that came with it.
func TestWithoutInternet(t *testing.T) {
	t.Parallel()
	e := copyExample(t, examplesDir+"/first-look/fleet.json", examplesDir+"/first-look/main.tf")
	e.edit("main.tf", "${path.module}/fleet.json", "fleet.json")
	host := "registry.terraform.io"
	if strings.Contains(e.Ok("version"), "OpenTofu") {
		host = "registry.opentofu.org"
	}
	binary, err := rig.ProviderBinary()
	e.fleet.Must(err)
	away := t.TempDir()
	folder := filepath.Join(away, "mirror", host, "gpufleet", "gpu")
	e.fleet.Must(os.MkdirAll(folder, 0o700))
	archive, err := os.Create(filepath.Join(folder, fmt.Sprintf("terraform-provider-gpu_9.9.9_%s_%s.zip", runtime.GOOS, runtime.GOARCH)))
	e.fleet.Must(err)
	provider, err := os.Open(binary)
	e.fleet.Must(err)
	defer provider.Close()
	packed := zip.NewWriter(archive)
	for name, content := range map[string]io.Reader{
		"terraform-provider-gpu_v9.9.9": provider,
		"gpu-agent_linux_amd64":         strings.NewReader("an agent"),
		"gpu-agent_SHA256SUMS":          strings.NewReader("its checksum"),
	} {
		header := &zip.FileHeader{Name: name, Method: zip.Store}
		header.SetMode(0o755)
		w, err := packed.CreateHeader(header)
		e.fleet.Must(err)
		_, err = io.Copy(w, content)
		e.fleet.Must(err)
	}
	e.fleet.Must(packed.Close())
	e.fleet.Must(archive.Close())

	rc := filepath.Join(away, "cli.rc")
	rig.Write(t, rc, fmt.Sprintf("provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", filepath.Join(away, "mirror")))
	const nobody = "http://127.0.0.1:1"
	e.Env = append(e.Env, "HOME="+away, "TF_CLI_CONFIG_FILE="+rc, "HTTP_PROXY="+nobody, "HTTPS_PROXY="+nobody, "NO_PROXY=")
	e.Ok("init")
	beside, err := filepath.Glob(filepath.Join(e.Dir, ".terraform", "providers", host, "gpufleet", "gpu", "9.9.9", "*", "gpu-agent_*"))
	if err != nil || len(beside) != 2 {
		t.Errorf("beside the provider are %q (%v)", beside, err)
	}
	before := e.fleet.Snapshot()
	e.Apply()
	e.WantNoChanges()
	e.Destroy()
	e.fleet.WantUnchanged(before)
}
