package main_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/mgr"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestService installs the agent as a service, starts it on a host that a killed agent
// left half changed, stops it in the middle of a change, and removes it. What it logs is
// not read back: Wine keeps no event log.
func TestService(t *testing.T) {
	if os.Getenv(built) == "" {
		t.Skip("it installs a service on this machine; `make test-windows` runs it in a Windows of its own")
	}
	installProgram(t)
	r := newRig(t)
	r.run(0, "service", "remove") // what a test that was killed left
	r.env = append(r.env, inOneProcess)
	cmd, hangUp := r.serving(t)
	eventually(t, "the VM is off", func() bool { return r.vmState() == gpu.VMOff })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	hangUp()
	eventually(t, "the lease of the agent that was killed has expired", func() bool {
		s, err := r.host().Load(t.Context())
		return err == nil && s.Lease != nil && s.Lease.Expires.Before(time.Now())
	})

	cert, key := certificate(t)
	address := freeAddress(t)
	install := []string{
		"service", "install", "--", "--backend", "simulated", "--fleet", r.fleet.Path(), "--host", "hv01",
		"serve", "--listen", address, "--cert", cert, "--key", key, "--client-ca", cert,
	}
	r.run(0, install...)
	t.Cleanup(func() {
		if out, err := exec.Command(binary, "service", "remove").CombinedOutput(); err != nil { //nolint:noctx // the test's context has ended
			t.Errorf("%v: %s", err, out)
		}
	})
	wantSource(t, true)
	_, said := r.run(1, install...)
	wantSaid(t, said, "the service gpu-agent could not be installed")

	s := openService(t)
	wantInstalled(t)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it runs", func() bool { return state(t, s) == svc.Running })
	conn := dialService(t, address, cert, key)
	if s := r.vmState(); s != gpu.VMRunning || !r.settled() {
		t.Errorf("at its start the VM is %s, settled %t; want what was cut off put back", s, r.settled())
	}

	client := agent.NewClient(conn, "hv01")
	fence, err := client.AcquireLease(t.Context(), lease("run-2"))
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = client.Apply(context.Background(), fence, assignment(), "", nil) }() // its end is seen on the host
	eventually(t, "the VM is off", func() bool { return r.vmState() == gpu.VMOff })
	if _, err := s.Control(svc.Stop); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has stopped", func() bool { return state(t, s) == svc.Stopped })
	if s := r.vmState(); s != gpu.VMRunning || !r.settled() {
		t.Errorf("when it has stopped the VM is %s, settled %t; want the change undone first", s, r.settled())
	}

	r.run(0, "service", "remove")
	r.run(0, "service", "remove") // once more is nothing to do
	wantSource(t, false)
	_ = s.Close() // the last handle keeps it
	eventually(t, "the service is gone", func() bool {
		_, err := manager(t).OpenService("gpu-agent")
		return errors.Is(err, windows.ERROR_SERVICE_DOES_NOT_EXIST)
	})
}

func TestServiceBadUse(t *testing.T) {
	r := newRig(t)
	for _, args := range [][]string{
		{"service", "install"}, {"service", "remove", "now"}, {"service", "bogus"}, {"service", "run", "--", "serve", "--listen", ":0"},
	} {
		if _, said := r.run(64, args...); said == "" {
			t.Errorf("%v: no reason was given", args)
		}
	}
}

func manager(t *testing.T) *mgr.Mgr {
	t.Helper()
	m, err := mgr.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Disconnect() }) // only read from
	return m
}

func openService(t *testing.T) *mgr.Service {
	t.Helper()
	s, err := manager(t).OpenService("gpu-agent")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // only a handle
	return s
}

func state(t *testing.T, s *mgr.Service) svc.State {
	t.Helper()
	status, err := s.Query()
	if err != nil {
		t.Fatal(err)
	}
	return status.State
}

// wantSource asserts whether the event log knows the agent.
func wantSource(t *testing.T, want bool) {
	t.Helper()
	k, err := registry.OpenKey(registry.LOCAL_MACHINE, `SYSTEM\CurrentControlSet\Services\EventLog\Application\gpu-agent`,
		registry.QUERY_VALUE)
	if err == nil {
		_ = k.Close() // only read from
	}
	if has := err == nil; has != want {
		t.Errorf("the source in the event log is there: %t, want %t (%v)", has, want, err)
	}
}

// wantInstalled asserts how Windows will start the service. The manager of Wine cannot
// be asked for it.
// installProgram puts the agent where only administrators may write, as the guide says. The folder that it was
// built in may be below one that others can write to, and then it is not to be installed from there.
func installProgram(t *testing.T) {
	t.Helper()
	program, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(os.Getenv("ProgramFiles"), "gpu-agent")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	was := binary
	binary = filepath.Join(dir, "gpu-agent.exe")
	t.Cleanup(func() {
		binary = was
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(binary, program, 0o755); err != nil {
		t.Fatal(err)
	}
}

func wantInstalled(t *testing.T) {
	t.Helper()
	k, err := registry.OpenKey(registry.LOCAL_MACHINE, `SYSTEM\CurrentControlSet\Services\gpu-agent`, registry.QUERY_VALUE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = k.Close() }() // only read from
	start, _, err := k.GetIntegerValue("Start")
	if err != nil || start != mgr.StartAutomatic {
		t.Errorf("its start type is %d, %v, want %d", start, err, mgr.StartAutomatic)
	}
	after, _, err := k.GetStringsValue("DependOnService")
	if err != nil || !slices.Equal(after, []string{"vmms"}) {
		t.Errorf("it starts after %q, %v, want Hyper-V's management service", after, err)
	}
}

func dialService(t *testing.T, address, cert, key string) *connect.Conn {
	t.Helper()
	var pems [2][]byte
	for i, file := range []string{cert, key} {
		var err error
		if pems[i], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	var conn *connect.Conn
	eventually(t, "it listens", func() (ok bool) {
		var err error
		conn, err = connect.DialTLS(t.Context(), "hv01", connect.TLS{Address: address, CA: pems[0], Cert: pems[0], Key: pems[1]},
			connect.Options{Version: "test"})
		return err == nil
	})
	t.Cleanup(func() { _ = conn.Close() }) // the service has ended by then
	return conn
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // the service takes it
	return l.Addr().String()
}

// certificate is one for the host, an operator and their authority at once.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test", Organization: []string{"gpu-operator"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, data []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", secret)
}
