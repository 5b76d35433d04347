package provider_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

// What is wrong in a provider block is said before a host is asked.
func TestInvalidProviderBlocks(t *testing.T) {
	t.Parallel()
	window := func(s string) string { return "maintenance_window = { " + s + " }" }
	host := func(s string) string { return "hosts = { h = { " + s + " } }" }
	const key = `private_key_file = "/nowhere/key"`
	open := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(open, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		block string
		says  []string
	}{
		"equal times": {window(`start = "22:00", end = "22:00"`), []string{"Invalid maintenance window", "Two different times"}},
		"no day": {
			window(`start = "22:00", end = "23:00", days = []`), []string{"Invalid maintenance window", "the window would never open"},
		},
		"start at the end": {window(`start = "24:00", end = "04:00"`), []string{"Invalid maintenance window", "midnight is"}},
		"no such day":      {window(`start = "22:00", end = "04:00", days = ["friyay"]`), []string{"Invalid day", "friyay"}},
		"no such time":     {window(`start = "25:00", end = "04:00"`), []string{"Invalid time of day", "two digits each"}},
		"no such time zone": {
			window(`start = "22:00", end = "04:00", timezone = "Europe/Berlinn"`), []string{"Unknown time zone", "Europe/Berlinn"},
		},
		"no way":     {host(``), []string{"A host needs exactly one connection type"}},
		"two ways":   {host(`local = {}, simulated = { file = "f.json" }`), []string{"A host needs exactly one connection type"}},
		"a host key": {host(`ssh = { address = "a", host_key = "rsa" }`), []string{"Invalid host key"}},
		"a path":     {host(`ssh = { address = "a", agent_path = "/opt/gpu agent; ls" }`), []string{"Invalid path"}},
		"sudo and upload": {
			host(`ssh = { address = "a", user = "u", sudo = true, upload = "auto" }`), []string{"Uploaded agent cannot be started with sudo"},
		},
		"no key file": {
			host(`ssh = { address = "a", user = "u", ` + key + ` }`), []string{
				"File cannot be read", "/nowhere/key", `Attribute: hosts["h"].ssh.private_key_file`,
			},
		},
		"no TLS files": {
			host(`tls = { address = "a:1", ca_file = "/nowhere/ca", cert_file = "/nowhere/c", key_file = "/nowhere/k" }`),
			[]string{`Attribute: hosts["h"].tls.ca_file`, `Attribute: hosts["h"].tls.cert_file`, `Attribute: hosts["h"].tls.key_file`},
		},
		"open key file": {
			host(`tls = { address = "a:1", ca_file = "/nowhere/ca", cert_file = "/nowhere/c", key_file = "` + filepath.ToSlash(open) + `" }`),
			[]string{"Private key file is readable by others", "Host: h"},
		},
	}
	if runtime.GOOS == "windows" { // where a file's mode says nothing
		delete(cases, "open key file")
	}
	for name, x := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rig.WantSaid(t, rig.NewCLI(t, "provider \"gpu\" {\n  "+x.block+"\n}\ndata \"gpu_inventory\" \"all\" {}\n").Fails("plan"), x.says...)
		})
	}
}
