package main_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
)

// agents runs the tool, for Windows alone.
func agents(t *testing.T, out, when string, env ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "run", "./tools/agents", "-out", out, "-platforms", "windows/amd64", "-sign", when)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), append([]string{"GPU_SIGN_PKCS12=", "GPU_SIGN_PKCS11_MODULE=", "GPU_SIGN_TIMESTAMP_URL=none"}, env...)...)
	said, err := cmd.CombinedOutput()
	return string(said), err
}

// identity makes a certificate for signing code, and its key, as a release would get
// them from an authority.
func identity(t *testing.T, password string) (pkcs12, certificate string) {
	t.Helper()
	dir := t.TempDir()
	certificate, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	pkcs12 = filepath.Join(dir, "identity.p12")
	for _, args := range [][]string{
		{
			"req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=gpufleet test",
			"-addext", "keyUsage=digitalSignature", "-addext", "extendedKeyUsage=codeSigning", "-keyout", key, "-out", certificate,
		},
		{"pkcs12", "-export", "-inkey", key, "-in", certificate, "-out", pkcs12, "-passout", "pass:" + password},
	} {
		if out, err := exec.CommandContext(t.Context(), "openssl", args...).CombinedOutput(); err != nil {
			t.Fatalf("openssl %v: %v: %s", args, err, out)
		}
	}
	return pkcs12, certificate
}

func verify(t *testing.T, file, certificate string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "osslsigncode", "verify", "-in", file, "-CAfile", certificate).CombinedOutput()
	return string(out), err
}

// TestSignedAgent signs as a release does, with a certificate of its own making.
func TestSignedAgent(t *testing.T) {
	for _, tool := range []string{"osslsigncode", "openssl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("there is no %s: apt-get install --no-install-recommends %s", tool, tool)
		}
	}
	const password = "it is a secret"
	pkcs12, certificate := identity(t, password)
	out := t.TempDir()
	file := filepath.Join(out, connect.AgentFile("windows", "amd64"))

	said, err := agents(t, out, "always", "GPU_SIGN_PKCS12="+pkcs12, "GPU_SIGN_PASSWORD="+password)
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	if said, err := verify(t, file, certificate); err != nil || !strings.Contains(said, "gpufleet test") {
		t.Errorf("the signature: %v: %s", err, said)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(out, connect.ChecksumsFile))
	if want := fmt.Sprintf("%x  %s\n", sha256.Sum256(data), filepath.Base(file)); err != nil || string(sums) != want {
		t.Errorf("the checksums are %q, %v, want those of the signed file, %q", sums, err, want)
	}

	changed := filepath.Join(t.TempDir(), "changed.exe")
	if err := os.WriteFile(changed, bytes.Replace(data, []byte("gpu-agent/1"), []byte("gpu-agent/2"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if said, err := verify(t, changed, certificate); err == nil {
		t.Errorf("a changed file has a good signature: %s", said)
	}

	said, err = agents(t, out, "always", "GPU_SIGN_PKCS12="+pkcs12, "GPU_SIGN_PASSWORD=another")
	if err == nil || !strings.Contains(said, "sign gpu-agent_windows_amd64.exe") || strings.Contains(said, "another") {
		t.Errorf("with a wrong password: %v: %s", err, said)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("an agent that could not be signed is left: %v", err)
	}
}

func TestNothingToSignWith(t *testing.T) {
	out := t.TempDir()
	file := filepath.Join(out, connect.AgentFile("windows", "amd64"))
	said, err := agents(t, out, "if-possible")
	if _, missing := os.Stat(file); err != nil || missing != nil || !strings.Contains(said, "is not signed") {
		t.Errorf("a snapshot without a key: %v, %v: %s", err, missing, said)
	}
	for _, env := range []string{"", "GPU_SIGN_PKCS11_MODULE=/nowhere.so"} {
		said, err = agents(t, out, "always", env)
		if err == nil || !strings.Contains(said, "GPU_SIGN_PKCS11_KEY") {
			t.Errorf("a release without a key, with %q: %v: %s", env, err, said)
		}
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Errorf("an agent that could not be signed is left: %v", err)
		}
	}
	if said, err := agents(t, out, "sometimes"); err == nil || !strings.Contains(said, "sometimes") {
		t.Errorf("an unknown time: %v: %s", err, said)
	}
}
