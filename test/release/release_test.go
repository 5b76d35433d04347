// Package release_test makes a release without publishing it, twice, and installs what comes
// of it: `make release-dry-run`.
package release_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/test/cli"
)

const (
	root    = "../.."
	version = "9.9.9"
	before  = "9.9.8"
)

// tools are what makes a release, by the variables that `make release-dry-run` sets.
func tool(t *testing.T, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Skipf("there is no tool for %s: make release-dry-run builds it", variable)
	}
	return path
}

// run runs a program and returns what it printed.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// release makes one from a commit, in a clone of its own, signed with a key that nobody knows.
func release(t *testing.T, commit, version string, options ...string) (dist string) {
	t.Helper()
	goreleaser, syft := tool(t, "GPU_TEST_GORELEASER"), tool(t, "GPU_TEST_SYFT")
	work := t.TempDir()
	tree := filepath.Join(work, "tree")
	from, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	run(t, work, nil, "git", "clone", "-q", "--no-hardlinks", from, tree)
	run(t, tree, nil, "git", "remote", "set-url", "origin", "https://github.com/gpufleet/terraform-provider-gpu")
	run(t, tree, nil, "git", "checkout", "-q", "--detach", commit)
	run(t, tree, nil, "git", "tag", "v"+version)
	home := t.TempDir()
	t.Cleanup(func() {
		_ = exec.Command("gpgconf", "--homedir", home, "--kill", "all").Run() //nolint:noctx // it ends at once
	})
	run(t, work, nil, "gpg", "--homedir", home, "--batch", "--passphrase", "", "--quick-gen-key", "dry-run@example.com", "rsa2048", "sign")
	fingerprint := ""
	for line := range strings.Lines(run(t, work, nil, "gpg", "--homedir", home, "--with-colons", "--list-keys")) {
		if fields := strings.Split(line, ":"); fields[0] == "fpr" {
			fingerprint = fields[9]
		}
	}
	run(t, tree, []string{
		"GNUPGHOME=" + home, "GPG_FINGERPRINT=" + fingerprint, "PATH=" + filepath.Dir(syft) + ":" + os.Getenv("PATH"),
		"GOFLAGS=", "GOENV=off", "CGO_LDFLAGS=", "CGO_CFLAGS=", "GPU_SIGN_PKCS12=",
	}, goreleaser, append([]string{"release", "--snapshot", "--clean", "--parallelism", fmt.Sprint(runtime.NumCPU())}, options...)...)
	dist = filepath.Join(tree, "dist")
	sums := found(t, dist, "*_SHA256SUMS")
	run(t, dist, nil, "gpg", "--homedir", home, "--verify", sums+".sig", sums)
	// The registry's manifest is among the sums, and added when the release is published.
	run(t, dist, nil, "cp", filepath.Join(tree, "terraform-registry-manifest.json"), strings.TrimSuffix(sums, "SHA256SUMS")+"manifest.json")
	run(t, dist, nil, "sha256sum", "--check", "--quiet", filepath.Base(sums))
	rig.Write(t, filepath.Join(dist, publicKey), run(t, work, nil, "gpg", "--homedir", home, "--armor", "--export"))
	return dist
}

// publicKey is what a release is signed with, as a registry knows it.
const publicKey = "key.asc"

// found is the only file of a pattern.
func found(t *testing.T, dir, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(files) != 1 {
		t.Fatalf("%s: %q, %v", pattern, files, err)
	}
	return files[0]
}

// artifacts are the files of a release with their digests.
func artifacts(t *testing.T, dist string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dist)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range entries {
		if e.IsDir() || !strings.Contains(e.Name(), version) {
			continue
		}
		raw, err := os.ReadFile(filepath.Join(dist, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = fmt.Sprintf("%x", sha256.Sum256(raw))
	}
	return out
}

func TestRelease(t *testing.T) {
	for _, program := range []string{"dpkg", "rpm", "debootstrap"} { // before a release is made, which takes minutes
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("there is no %s: apt-get install --no-install-recommends %s", program, program)
		}
	}
	head := strings.TrimSpace(run(t, root, nil, "git", "rev-parse", "HEAD")) // people commit while it runs
	dist := release(t, head, version)
	files := artifacts(t, dist)
	t.Run("complete", func(t *testing.T) { complete(t, dist, files) })
	t.Run("provider", func(t *testing.T) { provider(t, dist) })
	t.Run("packages", func(t *testing.T) {
		older := release(t, head+"~1", before, "--skip=sbom")
		t.Run("deb", func(t *testing.T) { packages(t, dist, older, deb) })
		t.Run("rpm", func(t *testing.T) { packages(t, dist, older, rpm) })
	})
	t.Run("reproducible", func(t *testing.T) {
		again := artifacts(t, release(t, head, version))
		for _, name := range slices.Sorted(maps.Keys(files)) {
			// Signatures and bills of materials say when they were made, and have a checksum.
			if strings.HasSuffix(name, ".sig") || strings.HasSuffix(name, ".sbom.json") || strings.HasSuffix(name, "_SHA256SUMS") {
				continue
			}
			if again[name] != files[name] {
				t.Errorf("%s: a second build has the digest %q, the first %q", name, again[name], files[name])
			}
		}
	})
}

// complete: every platform has its archive, every archive its bill of materials, and the
// registry's manifest is among them. It prints the table of the release.
func complete(t *testing.T, dist string, files map[string]string) {
	var wanted []string
	for _, platform := range []string{
		"darwin_amd64", "darwin_arm64", "freebsd_amd64", "freebsd_arm64", "linux_amd64", "linux_arm64", "windows_amd64", "windows_arm64",
	} {
		wanted = append(wanted, "terraform-provider-gpu_*_"+platform+".zip")
	}
	for _, platform := range []string{"linux_amd64", "linux_arm64", "windows_amd64", "windows_arm64"} {
		wanted = append(wanted, "gpu-agent_*_"+platform+".tar.gz")
	}
	wanted = append(wanted, "gpu-agent_*_amd64.deb", "gpu-agent_*_arm64.deb", "gpu-agent-*.x86_64.rpm", "gpu-agent-*.aarch64.rpm")
	for _, pattern := range wanted {
		archive := found(t, dist, pattern)
		raw, err := os.ReadFile(archive + ".sbom.json")
		if err != nil {
			t.Error(err)
			continue
		}
		var bill struct {
			SPDXVersion string `json:"spdxVersion"`
			Packages    []any  `json:"packages"`
		}
		if err := json.Unmarshal(raw, &bill); err != nil || bill.SPDXVersion == "" || len(bill.Packages) < 10 {
			t.Errorf("%s: its bill of materials has %d packages: %v", filepath.Base(archive), len(bill.Packages), err)
		}
	}
	sums, err := os.ReadFile(found(t, dist, "*_SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	for name := range files {
		if !strings.HasSuffix(name, "SHA256SUMS") && !strings.HasSuffix(name, ".sig") && !bytes.Contains(sums, []byte("  "+name+"\n")) {
			t.Errorf("%s has no checksum", name)
		}
	}
	if !bytes.Contains(sums, []byte("_manifest.json")) {
		t.Error("the registry's manifest has no checksum")
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if info, err := os.Stat(filepath.Join(dist, name)); err == nil && !strings.HasSuffix(name, ".sbom.json") {
			t.Logf("%9.1f MB  %s", float64(info.Size())/1e6, name)
		}
	}
}

// registry serves a release as the registries of Terraform and OpenTofu serve theirs. It
// returns the host, and a file with its certificate.
func registry(t *testing.T, dist, version string) (host, certificate string) {
	t.Helper()
	key, err := os.ReadFile(filepath.Join(dist, publicKey))
	if err != nil {
		t.Fatal(err)
	}
	keyID := regexp.MustCompile(`[0-9A-F]{40}`).FindString(run(t, dist, nil, "gpg", "--show-keys", publicKey))
	platform := map[string]string{"os": runtime.GOOS, "arch": runtime.GOARCH}
	archive, sums := filepath.Base(archiveOf(t, dist)), filepath.Base(found(t, dist, "*_SHA256SUMS"))
	mux := http.NewServeMux()
	answer := func(path string, value any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(value) // the client's error says what is missing
		})
	}
	answer("/.well-known/terraform.json", map[string]string{"providers.v1": "/v1/providers/"})
	answer("/v1/providers/gpufleet/gpu/versions", map[string]any{"versions": []any{
		map[string]any{"version": version, "protocols": []string{"6.0"}, "platforms": []any{platform}},
	}})
	answer(fmt.Sprintf("/v1/providers/gpufleet/gpu/%s/download/%s/%s", version, runtime.GOOS, runtime.GOARCH), map[string]any{
		"protocols": []string{"6.0"}, "os": runtime.GOOS, "arch": runtime.GOARCH, "filename": archive, "shasum": artifacts(t, dist)[archive],
		"download_url": "/files/" + archive, "shasums_url": "/files/" + sums, "shasums_signature_url": "/files/" + sums + ".sig",
		"signing_keys": map[string]any{"gpg_public_keys": []any{map[string]string{"key_id": keyID[24:], "ascii_armor": string(key)}}},
	})
	mux.Handle("/files/", http.StripPrefix("/files/", http.FileServer(http.Dir(dist))))
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	certificate = filepath.Join(t.TempDir(), "ca.pem")
	rig.Write(t, certificate, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	_, port, _ := strings.Cut(server.Listener.Addr().String(), ":")
	return "127.0.0.1:" + port, certificate
}

func archiveOf(t *testing.T, dist string) string {
	t.Helper()
	return found(t, dist, fmt.Sprintf("terraform-provider-gpu_*_%s_%s.zip", runtime.GOOS, runtime.GOARCH))
}

// provider is taken from a registry into a mirror by each CLI, and installed from there in an
// empty home without anybody to ask.
func provider(t *testing.T, dist string) {
	clis := strings.Fields(os.Getenv("GPU_TEST_CLIS"))
	if len(clis) == 0 {
		t.Fatal("GPU_TEST_CLIS names no CLI")
	}
	exact := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(archiveOf(t, dist)), "terraform-provider-gpu_"),
		fmt.Sprintf("_%s_%s.zip", runtime.GOOS, runtime.GOARCH))
	host, certificate := registry(t, dist, exact)
	for _, program := range clis {
		t.Run(filepath.Base(program), func(t *testing.T) {
			home := t.TempDir()
			work, mirror, rc := filepath.Join(home, "work"), filepath.Join(home, "mirror"), filepath.Join(home, "cli.rc")
			if err := os.Mkdir(work, 0o700); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"main.tf", "fleet.json"} {
				raw, err := os.ReadFile(filepath.Join(root, "examples", "first-look", name))
				if err != nil {
					t.Fatal(err)
				}
				rig.Write(t, filepath.Join(work, name), strings.NewReplacer(`"gpufleet/gpu"`, strconv.Quote(host+"/gpufleet/gpu"),
					`">= 0.1.0"`, strconv.Quote(exact), "${path.module}/fleet.json", "fleet.json").Replace(string(raw)))
			}
			env := []string{"HOME=" + home, "TF_CLI_CONFIG_FILE=" + rc, "CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1"}
			rig.Write(t, rc, "")
			t.Log(run(t, work, append(env, "SSL_CERT_FILE="+certificate), program, "providers", "mirror",
				fmt.Sprintf("-platform=%s_%s", runtime.GOOS, runtime.GOARCH), mirror))

			rig.Write(t, rc, fmt.Sprintf("provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", mirror))
			const nobody = "http://127.0.0.1:1"
			env = append(env, "HTTP_PROXY="+nobody, "HTTPS_PROXY="+nobody, "NO_PROXY=")
			run(t, work, env, program, "init", "-no-color")
			agents, err := filepath.Glob(filepath.Join(work, ".terraform", "providers", "*", "gpufleet", "gpu", exact, "*", "gpu-agent_*"))
			if err != nil || len(agents) != 5 {
				t.Errorf("beside the provider are %q (%v)", agents, err)
			}
			cli.WantSays(t, run(t, work, env, program, "apply", "-no-color", "-auto-approve"), "Apply complete!")
			cli.WantSays(t, run(t, work, env, program, "plan", "-no-color"), "No changes")
			cli.WantSays(t, run(t, work, env, program, "destroy", "-no-color", "-auto-approve"), "Destroy complete!")
		})
	}
}

// system is how a kind of package is installed in a root and removed.
type system struct {
	pattern string
	install func(t *testing.T, root, file string)
	remove  func(t *testing.T, root string)
}

var deb = system{
	pattern: "gpu-agent_*_" + runtime.GOARCH + ".deb",
	install: func(t *testing.T, root, file string) {
		run(t, root, nil, "cp", file, filepath.Join(root, "tmp", "package.deb"))
		run(t, root, nil, "chroot", root, "dpkg", "-i", "/tmp/package.deb")
	},
	remove: func(t *testing.T, root string) { run(t, root, nil, "chroot", root, "dpkg", "-r", "gpu-agent") },
}

// The root is Debian's: the C library is there, and no package of that name.
var rpm = system{
	pattern: "gpu-agent-*." + map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH] + ".rpm",
	install: func(t *testing.T, root, file string) {
		run(t, root, nil, "rpm", "--root", root, "--nodeps", "-U", "--oldpackage", file)
	},
	remove: func(t *testing.T, root string) {
		run(t, root, nil, "rpm", "--root", root, "--nodeps", "-e", "gpu-agent")
	},
}

// packages installs one in a clean root, with the version of the commit before first and last,
// and runs the agent's self-test each time.
func packages(t *testing.T, dist, before string, s system) {
	if os.Geteuid() != 0 {
		t.Skip("only root may make a root file system: run it with sudo")
	}
	clean := filepath.Join(t.TempDir(), "root")
	run(t, "", nil, "debootstrap", "--variant=minbase", "bookworm", clean, os.Getenv("GPU_TEST_DEBIAN"))
	file := found(t, dist, s.pattern)
	older := found(t, before, s.pattern)
	fleet, err := os.ReadFile(filepath.Join(root, "examples", "first-look", "fleet.json"))
	if err != nil {
		t.Fatal(err)
	}
	rig.Write(t, filepath.Join(clean, "tmp", "fleet.json"), string(fleet))
	var described struct{ Hosts []struct{ Name string } }
	if err := json.Unmarshal(fleet, &described); err != nil || len(described.Hosts) == 0 {
		t.Fatalf("the example's fleet: %v", err)
	}
	works := func(step string) {
		t.Helper()
		said := run(t, clean, nil, "chroot", clean, "gpu-agent", "--backend", "simulated", "--fleet",
			"/tmp/fleet.json", "--host", described.Hosts[0].Name, "selftest")
		t.Logf("%s: %s", step, said)
		unit := filepath.Join(clean, "usr", "lib", "systemd", "system", "gpu-agent.service")
		if _, err := os.Stat(unit); err != nil {
			t.Error(err)
		}
	}
	s.install(t, clean, older)
	works("the version before")
	state := filepath.Join(clean, "var", "lib", "gpu-agent", "state.json")
	if err := os.MkdirAll(filepath.Dir(state), 0o700); err != nil {
		t.Fatal(err)
	}
	rig.Write(t, state, "what Terraform manages here")
	s.install(t, clean, file)
	works("upgraded")
	s.install(t, clean, older)
	works("and back")
	s.remove(t, clean)
	if _, err := os.Stat(filepath.Join(clean, "usr", "bin", "gpu-agent")); !os.IsNotExist(err) {
		t.Errorf("the agent is still there: %v", err)
	}
	if kept, err := os.ReadFile(state); err != nil || string(kept) != "what Terraform manages here" {
		t.Errorf("the records are gone with the package: %v", err)
	}
}
