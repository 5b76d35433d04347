package connect_test

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
)

// TestSSHConfig checks that a host is reached with what ssh_config says of it alone.
func TestSSHConfig(t *testing.T) {
	s := newSSHServer(t, nil)
	for _, test := range []struct {
		name   string
		config string // {port} and {home} are written out
		files  map[string]string
		alias  string
	}{
		{
			"all settings",
			"Host hv01\n  HostName 127.0.0.1\n  Port {port}\n  User bob\n  IdentityFile ~/keys/fleet\n  UserKnownHostsFile ~/known/fleet " +
				"~/known/absent\n",
			map[string]string{"keys/fleet": s.clientPEM, "known/fleet": s.knownLine(s.hostKeys[0])},
			"hv01",
		},
		{
			"tokens",
			"Host 127.*\n  HostName %h\n  Port={port}\n  User bob\n  IdentityFile %d/keys/%r@%h\n  UserKnownHostsFile ~/known/%n-%p-100%%\n",
			map[string]string{"keys/bob@127.0.0.1": s.clientPEM, fmt.Sprintf("known/127.0.0.1-%d-100%%", s.port): s.knownLine(s.hostKeys[0])},
			"127.0.0.1",
		},
		{
			"the first that matches, OpenSSH's own files",
			"Host hv01 hv02\n  User bob\nHost *\n  User alice\n  HostName 127.0.0.1\n  Port {port}\n",
			map[string]string{".ssh/id_ed25519": s.clientPEM, ".ssh/known_hosts": s.knownLine(s.hostKeys[0])},
			"hv02",
		},
		{
			"Match is left out, keys that are of no use are passed over",
			"Match exec \"touch {home}/ran\"\n  User mallory\n  HostName 192.0.2.1\nHost hv01\n  User bob\n  HostName 127.0.0.1\n  Port {port}\n  " +
				"IdentityFile ~/absent\n  IdentityFile ~/key.pub\n  IdentityFile ~/key\n",
			map[string]string{"key": s.clientPEM, "key.pub": line(signer(t, s.client)), ".ssh/known_hosts": s.knownLine(s.hostKeys[0])},
			"hv01",
		},
		{
			"keywords between quotes are keywords",
			"\"Host\" other\n  User mallory\n\"Match\" exec \"touch {home}/ran\"\n  User mallory\n  HostName 192.0.2.1\n \"Host\" hv01\n  " +
				"\"user\" bob\n  \"HostName\"=127.0.0.1\n  Port \"{port}\"\n" +
				"  \"mAtCh\" all\n  Port 1\n",
			map[string]string{".ssh/id_ed25519": s.clientPEM, ".ssh/known_hosts": s.knownLine(s.hostKeys[0])},
			"hv01",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			home := newHome(t)
			write(t, strings.NewReplacer("{port}", fmt.Sprint(s.port), "{home}", home).Replace(test.config), home, ".ssh", "config")
			for name, text := range test.files {
				write(t, text+"\n", home, name)
			}
			reaches(t, connect.SSH{Address: test.alias})
			if users, _ := s.seen(); users[len(users)-1] != "bob" {
				t.Errorf("user %q, want bob", users[len(users)-1])
			}
			if _, err := os.Stat(filepath.Join(home, "ran")); err == nil {
				t.Error("a command of ssh_config ran")
			}
		})
	}
}

// TestAttributesWin checks that what the provider was told counts more than ssh_config.
func TestAttributesWin(t *testing.T) {
	home := newHome(t)
	s := newSSHServer(t, nil)
	write(t, `Host 127.0.0.1
  HostName 192.0.2.1
Host *
  Port 1
  User mallory
  IdentityFile ~/absent
  UserKnownHostsFile ~/absent
  ProxyJump nowhere.invalid
Host hv01
  HostName 127.0.0.1
Host direct
  HostName 127.0.0.1
`, home, ".ssh", "config")
	way := connect.SSH{
		Address: "hv01", Port: s.port, User: "svc", PrivateKeyFile: write(t, s.clientPEM, home, "key"), ProxyJump: "none",
		KnownHostsFile: write(t, s.knownLine(s.hostKeys[0])+"\n", home, "known"),
	}
	reaches(t, way)
	way.PrivateKeyFile, way.PrivateKey = "", s.clientPEM
	reaches(t, way)
	users, _ := s.seen()
	if diff := cmp.Diff([]string{"svc", "svc"}, users); diff != "" {
		t.Errorf("users (-want +got):\n%s", diff)
	}
}

// TestJumpHostInSSHConfig checks that a jump host has its own settings there.
func TestJumpHostInSSHConfig(t *testing.T) {
	home := newHome(t)
	target := newSSHServer(t, nil)
	jump := newSSHServer(t, func(s *sshServer) { s.config.PublicKeyCallback = target.config.PublicKeyCallback })
	write(t, fmt.Sprintf("Host hv01\n  ProxyJump bastion\nHost bastion\n  User alice\n  Port %d\nHost *\n  HostName 127.0.0.1\n  Port %d\n  "+
		"User bob\n  IdentityFile ~/key\n", jump.port, target.port), home, ".ssh", "config")
	write(t, target.clientPEM, home, "key")
	write(t, jump.knownLine(jump.hostKeys[0])+"\n"+target.knownLine(target.hostKeys[0])+"\n", home, ".ssh", "known_hosts")
	reaches(t, connect.SSH{Address: "hv01"})
	users, forwards := jump.seen()
	if diff := cmp.Diff([]string{"alice"}, users); diff != "" {
		t.Errorf("users of the jump host (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{target.address}, forwards); diff != "" {
		t.Errorf("forwards of the jump host (-want +got):\n%s", diff)
	}
}

// TestDefaultUser checks that without any setting the user of this process logs in.
func TestDefaultUser(t *testing.T) {
	newHome(t)
	s := newSSHServer(t, nil)
	way := s.way()
	way.User = ""
	reaches(t, way)
	me, err := user.Current()
	if err != nil {
		t.Skip("this process has no user: run the test as one that the system knows")
	}
	if users, _ := s.seen(); !strings.HasSuffix(me.Username, users[0]) {
		t.Errorf("user %q, want %q", users[0], me.Username)
	}
}

// TestBadSSHConfig checks that a configuration that cannot be understood is not guessed
// at.
func TestBadSSHConfig(t *testing.T) {
	s := newSSHServer(t, nil)
	for _, test := range []struct {
		name, config string
		says         []string
	}{
		{"a port that is none", "Port ssh\n", []string{`"ssh"`}},
		{"a port that is too big", "Port 65536\n", []string{"65536"}},
		{"two ports", "Port 22 23\n", []string{"22 23"}},
		{"a loop", "Include config\n", []string{"config"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			home := newHome(t)
			write(t, strings.ReplaceAll(test.config, "Include config", "Include "+filepath.ToSlash(filepath.Join(home, ".ssh", "config"))),
				home, ".ssh", "config")
			way := s.way()
			way.Port = 0
			refuses(t, way, options, connect.Settings, test.says...)
		})
	}
	t.Run("cannot be read", func(t *testing.T) {
		if runtime.GOOS == "windows" {
			t.Skip("on Windows a directory gives another error; run this on Linux or macOS")
		}
		home := newHome(t)
		if err := os.MkdirAll(filepath.Join(home, ".ssh", "config"), 0o700); err != nil {
			t.Fatal(err)
		}
		refuses(t, s.way(), options, connect.Settings, filepath.Join(home, ".ssh", "config"))
	})
	if connections, _ := s.counts(); connections != 0 {
		t.Errorf("%d connections were made", connections)
	}
}
