package connect_test

import (
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
)

const cache = "/home/svc/.cache/gpu-agent"

// needsModes skips a test on file systems without the modes and links of Unix.
func needsModes(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the host of this test needs file modes and links: run it on Linux or macOS")
	}
}

// TestUpload checks that the agent for the host's platform is brought, and used again
// the next time.
func TestUpload(t *testing.T) {
	needsModes(t)
	for _, test := range []struct {
		name         string
		uname        string
		goos, goarch string
		home, file   string
		command      string
	}{
		{"amd64", "Linux x86_64\n1000\n", "linux", "amd64", "/home/svc", "gpu-agent", agentDir(cache, "linux", "amd64") + "/gpu-agent"},
		{"arm64", "Linux aarch64\n1000\n", "linux", "arm64", "/home/svc", "gpu-agent", agentDir(cache, "linux", "arm64") + "/gpu-agent"},
		{
			"Windows", "Windows AMD64\r\n", "windows", "amd64", "/C:/Users/svc", "gpu-agent.exe",
			`"C:` + strings.ReplaceAll(agentDir("/Users/svc/.cache/gpu-agent", "windows", "amd64"), "/", `\`) + `\gpu-agent.exe"`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, way := newUploadHost(t, func(h *uploadHost) { h.uname, h.home = test.uname, test.home })
			reaches(t, way)
			name := path.Join(agentDir(path.Join(test.home, ".cache/gpu-agent"), test.goos, test.goarch), test.file)
			wantAgent(t, h, name, test.goos, test.goarch)
			if asked := h.requests(); !slices.Contains(asked, "exec "+test.command+" serve --stdio") {
				t.Errorf("asked %q, want %s to be started", asked, test.command)
			}
			if connections, _ := h.counts(); connections != 1 {
				t.Errorf("%d connections, want 1", connections)
			}
			written := len(h.written())
			way.Upload.LookOnly = true // as a plan does
			reaches(t, way)
			way.Upload.LookOnly = false
			reaches(t, way)
			if again := h.written()[written:]; len(again) > 0 {
				t.Errorf("the second time it wrote %q", again)
			}
		})
	}
}

// wantAgent checks that an agent lies on the host, for nobody else, and nothing beside
// it.
func wantAgent(t *testing.T, h *uploadHost, name, goos, goarch string) {
	t.Helper()
	got, err := os.ReadFile(h.at(name))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != shipped(goos, goarch) {
		t.Errorf("%.40q lies there", got)
	}
	beside, err := os.ReadDir(filepath.Dir(h.at(name)))
	if err != nil || len(beside) != 1 {
		t.Errorf("%d files in the directory of the agent, %v", len(beside), err)
	}
	if goos == "windows" {
		return
	}
	for _, p := range []string{name, path.Dir(name)} {
		info, err := os.Stat(h.at(p))
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode != 0o700 {
			t.Errorf("%s has the mode %o, want 700", p, mode)
		}
	}
}

// TestNothingIsUploaded checks that without leave nothing is written, and that no other
// session than the agent's is opened where no upload was asked for.
func TestNothingIsUploaded(t *testing.T) {
	needsModes(t)
	h, way := newUploadHost(t, nil)
	way.Upload.LookOnly = true
	refuses(t, way, options, connect.NoAgent, "none was uploaded")
	way.Upload = nil
	_, before := h.counts()
	refuses(t, way, options, connect.NoAgent)
	if _, after := h.counts(); after != before+1 {
		t.Errorf("%d sessions, want 1", after-before)
	}
	if written := h.written(); len(written) > 0 {
		t.Errorf("it wrote %q", written)
	}
}

// TestFilesThatWereShipped checks that a file which is not the one that was shipped
// stays here.
func TestFilesThatWereShipped(t *testing.T) {
	needsModes(t)
	const name = "gpu-agent_linux_amd64"
	for _, test := range []struct {
		name   string
		uname  string
		change func(t *testing.T, dir string)
		kind   connect.Kind
		says   []string
	}{
		{"another checksum", "", func(t *testing.T, dir string) { write(t, "changed", dir, name) }, connect.Settings, []string{name, sumOf("changed"), "nothing was uploaded"}},
		{"no entry", "", func(t *testing.T, dir string) {
			write(t, sumOf(shipped("linux", "amd64"))+"  another\n", dir, connect.ChecksumsFile)
		}, connect.Settings, []string{name, connect.ChecksumsFile}},
		{"no checksums", "", func(t *testing.T, dir string) { remove(t, dir, connect.ChecksumsFile) }, connect.Settings, []string{connect.ChecksumsFile}},
		{"no file", "", func(t *testing.T, dir string) { remove(t, dir, name) }, connect.Settings, []string{"linux/amd64"}},
		{"another platform", "Darwin arm64\n501\n", nil, connect.WrongPlatform, []string{"Darwin arm64"}},
		{"another architecture", "Linux riscv64\n1000\n", nil, connect.WrongPlatform, []string{"riscv64"}},
		{"a shell that prints", "Welcome\nLinux x86_64\n1000\n", nil, connect.WrongPlatform, []string{"Welcome"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, way := newUploadHost(t, func(h *uploadHost) {
				if test.uname != "" {
					h.uname = test.uname
				}
			})
			if test.change != nil {
				test.change(t, way.Upload.Dir)
			}
			refuses(t, way, options, test.kind, test.says...)
			if files := h.all(t); len(files) > 0 {
				t.Errorf("on the host: %q", files)
			}
		})
	}
}

func remove(t *testing.T, file ...string) {
	t.Helper()
	if err := os.Remove(filepath.Join(file...)); err != nil {
		t.Fatal(err)
	}
}

// TestUploadElsewhere checks that a directory which cannot be used is passed over, for
// whatever reason, and left as it was.
func TestUploadElsewhere(t *testing.T) {
	needsModes(t)
	own := agentDir(cache, "linux", "amd64")
	for _, test := range []struct {
		name   string
		change func(t *testing.T, h *uploadHost)
		why    string
	}{
		{"noexec", func(_ *testing.T, h *uploadHost) { h.noexec = []string{"/home"} }, "Permission denied"},
		{"permission denied", func(_ *testing.T, h *uploadHost) { h.protect("/home") }, "permission denied"},
		{"a link", func(t *testing.T, h *uploadHost) {
			h.mkdir(t, "/tmp/mallory", 0o755)
			h.mkdir(t, path.Dir(own), 0o700)
			if err := os.Symlink(h.at("/tmp/mallory"), h.at(own)); err != nil {
				t.Fatal(err)
			}
		}, own + " is a link"},
		{"a link above", func(t *testing.T, h *uploadHost) {
			h.mkdir(t, "/tmp/mallory", 0o755)
			if err := os.Symlink(h.at("/tmp/mallory"), h.at("/home/svc/.cache")); err != nil {
				t.Fatal(err)
			}
		}, "/home/svc/.cache is a link"},
		{"others can write", func(t *testing.T, h *uploadHost) { h.mkdir(t, own, 0o777) }, "others can write to " + own},
		{"others can write above", func(t *testing.T, h *uploadHost) { h.mkdir(t, cache, 0o775) }, "others can write to " + cache},
		{"another user's", func(t *testing.T, h *uploadHost) {
			h.mkdir(t, own, 0o700)
			h.owner[own] = 1001
		}, own + " belongs to another user"},
		{"another user's above", func(t *testing.T, h *uploadHost) {
			h.mkdir(t, cache, 0o755)
			h.owner[cache] = 1001
		}, cache + " belongs to another user"},
		{"a file where the directory should be", func(t *testing.T, h *uploadHost) { h.put(t, "", cache, 0o600) }, cache + " is no directory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, way := newUploadHost(t, func(h *uploadHost) { test.change(t, h) })
			before := map[string]os.FileMode{}
			for _, name := range []string{cache, own, "/tmp/mallory"} {
				if info, err := os.Stat(h.at(name)); err == nil {
					before[name] = info.Mode()
				}
			}
			reaches(t, way)
			wantAgent(t, h, agentDir("/var/lib/gpu-agent/bin", "linux", "amd64")+"/gpu-agent", "linux", "amd64")
			for name, mode := range before {
				if info, err := os.Stat(h.at(name)); err != nil || info.Mode() != mode {
					t.Errorf("%s was changed: %v, %v", name, info, err)
				}
			}
			h.protect("/var", "/opt")
			remove(t, h.at(agentDir("/var/lib/gpu-agent/bin", "linux", "amd64")), "gpu-agent")
			refuses(t, way, options, connect.Blocked, test.why, "/var/lib/gpu-agent", "/opt/gpu-agent", "agent_path")
		})
	}
}

// TestUploadThatFails checks that a file which did not arrive whole never gets the
// agent's name.
func TestUploadThatFails(t *testing.T) {
	needsModes(t)
	for _, test := range []struct {
		name   string
		change func(*uploadHost)
		says   string
	}{
		{"full disk", func(h *uploadHost) { h.full = 70 << 10 }, "no space left on device"},
		{"changed on the way", func(h *uploadHost) { h.spoils = true }, "read back"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, way := newUploadHost(t, test.change)
			refuses(t, way, options, connect.Blocked, test.says)
			if files := h.all(t); len(files) > 0 {
				t.Errorf("on the host: %q", files)
			}
		})
	}
	t.Run("no SFTP", func(t *testing.T) {
		_, way := newUploadHost(t, func(h *uploadHost) { h.noSFTP = true })
		refuses(t, way, options, connect.Blocked, "SFTP")
	})
	for _, command := range []string{"uname", "version"} {
		t.Run(command+" does not end", func(t *testing.T) {
			_, way := newUploadHost(t, func(h *uploadHost) { h.stuck = command })
			begun := time.Now()
			refuses(t, way, options.WithPatience(2*time.Second), connect.Unreachable, command, "2s")
			if took := time.Since(begun); took > patience/2 {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// TestFileThatIsThere checks what lies where the agent should be. Only what nobody else
// can change is used as it is.
func TestFileThatIsThere(t *testing.T) {
	needsModes(t)
	name := agentDir(cache, "linux", "amd64") + "/gpu-agent"
	right := shipped("linux", "amd64")
	for _, test := range []struct {
		name   string
		change func(t *testing.T, h *uploadHost)
		kept   bool
	}{
		{"the agent", func(t *testing.T, h *uploadHost) { h.put(t, right, name, 0o700) }, true},
		{"something else", func(t *testing.T, h *uploadHost) { h.put(t, "something else", name, 0o700) }, false},
		{"others can write", func(t *testing.T, h *uploadHost) { h.put(t, right, name, 0o777) }, false},
		{"another user's", func(t *testing.T, h *uploadHost) {
			h.put(t, right, name, 0o755)
			h.owner[name] = 1001
		}, false},
		{"a link", func(t *testing.T, h *uploadHost) {
			h.put(t, right, "/tmp/mallory", 0o755)
			if err := os.Symlink(h.at("/tmp/mallory"), h.at(name)); err != nil {
				t.Fatal(err)
			}
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, way := newUploadHost(t, func(h *uploadHost) {
				h.mkdir(t, cache, 0o700)
				h.mkdir(t, path.Dir(name), 0o700)
				test.change(t, h)
			})
			reaches(t, way)
			if written := h.written(); test.kept == slices.Contains(written, name) {
				t.Errorf("it wrote %q", written)
			}
			if slices.Contains(h.written(), name) {
				wantAgent(t, h, name, "linux", "amd64")
			}
			if mallory, err := os.ReadFile(h.at("/tmp/mallory")); err == nil && string(mallory) != right {
				t.Error("it wrote through a link")
			}
			way.Upload.LookOnly = true
			reaches(t, way)
		})
	}
}

// TestUploadsAtOnce checks that two runs which find no agent do not disturb each other.
func TestUploadsAtOnce(t *testing.T) {
	needsModes(t)
	h, way := newUploadHost(t, nil)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			conn, err := connect.DialSSH(t.Context(), host, way, options)
			if err != nil {
				t.Error(err)
				return
			}
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	wantAgent(t, h, agentDir(cache, "linux", "amd64")+"/gpu-agent", "linux", "amd64")
}
