package provider_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

// What nobody reads is not formatted: without TF_LOG the provider's process writes no line of
// the SDK or the framework, and with it all of them.
func TestLogsThatNobodyReads(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("it puts a shell script in the provider's place")
	}
	r := rig.New(t, rig.Standalone(rig.Node("hv01")))
	for name, x := range map[string]struct {
		env    []string
		logs   bool
		inCore bool
	}{
		"nothing":      {},
		"off":          {env: []string{"TF_LOG=off"}},
		"TF_LOG":       {env: []string{"TF_LOG=trace"}, logs: true, inCore: true},
		"provider":     {env: []string{"TF_LOG_PROVIDER=trace"}, logs: true, inCore: true},
		"core only":    {env: []string{"TF_LOG_CORE=trace"}},
		"SDK, unheard": {env: []string{"TF_LOG_SDK=trace"}, logs: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := rig.NewProcesses(t, r.Block()+rig.ConfigOf(4, []string{"hv01"}))
			binary, err := rig.ProviderBinary()
			r.Must(err)
			dir := t.TempDir()
			stderr, log := filepath.Join(dir, "stderr"), filepath.Join(dir, "core.log")
			script := fmt.Sprintf("#!/bin/sh\nexec %q \"$@\" 2>>%q\n", binary, stderr)
			if x.inCore {
				script = fmt.Sprintf("#!/bin/sh\nexec %q \"$@\"\n", binary)
			}
			r.Must(os.WriteFile(filepath.Join(dir, filepath.Base(binary)), []byte(script), 0o700))
			rig.Write(t, filepath.Join(dir, "cli.rc"),
				fmt.Sprintf("provider_installation {\n dev_overrides {\n  \"gpufleet/gpu\" = %q\n }\n direct {}\n}\n", dir))
			c.Env = append(append(c.Env, "TF_CLI_CONFIG_FILE="+filepath.Join(dir, "cli.rc"), "TF_LOG_PATH="+log, "TF_LOG=", "TF_LOG_PROVIDER="),
				x.env...)
			c.Ok("plan")
			file := stderr
			if x.inCore {
				file = log
			}
			raw, err := os.ReadFile(file)
			r.Must(err)
			if said := strings.Contains(string(raw), "sdk.proto") && strings.Contains(string(raw), "sdk.framework"); said != x.logs {
				t.Errorf("the SDK's lines are there: %v, want %v, in %d bytes", said, x.logs, len(raw))
			}
		})
	}
}
