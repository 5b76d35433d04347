package connect

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/skeema/knownhosts"
)

// FuzzSSHConfig reads ~/.ssh/config, and resolves a host and its jumps by it.
func FuzzSSHConfig(f *testing.F) {
	f.Add([]byte("Host hv*\n  User svc\n  ProxyJump a@b:22,[::1]:2222\nMatch exec \"rm -rf /\"\n  Port 1\nHost *\n Port 70000\n"), "hv01")
	f.Add([]byte("Include ~/x\nHost"), "")
	f.Add([]byte("Port=abc\nIdentityFile %d/x"), "a b")
	f.Fuzz(func(t *testing.T, text []byte, alias string) {
		if strings.Contains(strings.ToLower(string(text)), "include") {
			return // it reads other files
		}
		c, err := parseSSHConfig(text)
		if err != nil {
			return
		}
		e, err := SSH{Address: alias}.resolve("hv01", c)
		if err != nil {
			return
		}
		if e.port < 1 || e.port > 65535 {
			t.Errorf("port %d", e.port)
		}
		for _, j := range e.jumps {
			if !j.isJump || j.host == "" || j.port < 1 || j.port > 65535 {
				t.Errorf("jump %+v", j)
			}
		}
	})
}

// FuzzJump reads jump hosts.
func FuzzJump(f *testing.F) {
	for _, s := range []string{"", "a", "a@b", "ssh://a@b:22", "a@[::1]:22", "b:0", "b:70000", "[", "@:", "::1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		name, host, port, err := splitJump(text)
		if err != nil || port == 0 || strings.ContainsAny(host, "[]@") || strings.ContainsAny(name, " \t") {
			return
		}
		again := net.JoinHostPort(host, strconv.Itoa(port))
		if name != "" {
			again = name + "@" + again
		}
		n, h, p, err := splitJump(again)
		if strings.HasPrefix(again, "ssh://") || strings.TrimSpace(again) != again {
			return
		}
		if err != nil || n != name || h != host || p != port {
			t.Errorf("%q is %q %q %d, and %q is %q %q %d, %v", text, name, host, port, again, n, h, p, err)
		}
	})
}

// FuzzKnownHosts reads known_hosts, and asks for the kinds of key of a host.
func FuzzKnownHosts(f *testing.F) {
	f.Add([]byte("hv01 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl\n"))
	f.Add([]byte("@cert-authority * ssh-rsa AAAA\n|1|x|y ssh-rsa\n"))
	f.Add([]byte{})
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(dir, strconv.Itoa(os.Getpid()))
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		db, err := knownhosts.NewDB(path)
		if err != nil {
			return
		}
		if got := algorithmsFor(db.HostKeys("hv01:22")); len(got) == 0 {
			t.Error("no algorithm is offered")
		}
	})
}
