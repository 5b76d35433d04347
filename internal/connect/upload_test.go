package connect_test

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
			h, way := newUploadHost(t, func(h *uploadHost) {
				h.uname, h.home, h.complains = test.uname, test.home, "profile: line 3: no such file\n"
			})
			reaches(t, way)
			name := path.Join(agentDir(path.Join(test.home, ".cache/gpu-agent"), test.goos, test.goarch), test.file)
			wantAgent(t, h, name, test.goos, test.goarch)
			if asked := h.requests(); !slices.Contains(asked, "exec "+test.command+" serve --stdio") {
				t.Errorf("asked %q, want %s to be started", asked, test.command)
			}
			if connections, _ := h.counts(); connections != 1 {
				t.Errorf("%d connections, want 1", connections)
			}
			written, read := len(h.written()), len(h.read())
			way.Upload.LookOnly = true // as a plan does
			reaches(t, way)
			way.Upload.LookOnly = false
			reaches(t, way)
			if again := h.written()[written:]; len(again) > 0 {
				t.Errorf("the second time it wrote %q", again)
			}
			if again := h.read()[read:]; len(again) > 0 && test.goos != "windows" { // certutil is not there
				t.Errorf("the second time it read %q back", again)
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
		code   connect.Code
		says   []string
	}{
		{
			"another checksum", "", func(t *testing.T, dir string) { write(t, "changed", dir, name) }, connect.Settings,
			[]string{name, sumOf("changed"), "nothing was uploaded"},
		},
		{"no entry", "", func(t *testing.T, dir string) {
			write(t, sumOf(shipped("linux", "amd64"))+"  another\n", dir, connect.ChecksumsFile)
		}, connect.Settings, []string{name, connect.ChecksumsFile}},
		{
			"no checksums", "", func(t *testing.T, dir string) { remove(t, dir, connect.ChecksumsFile) },
			connect.Settings,
			[]string{connect.ChecksumsFile},
		},
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
			refuses(t, way, options, test.code, test.says...)
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

// old makes an agent of another version, brought so long ago, and returns its file.
func (h *uploadHost) old(t *testing.T, version, text string, ago time.Duration) string {
	t.Helper()
	dir := path.Join(cache, version+"-"+sumOf(text)[:12])
	for _, d := range []string{"/home/svc/.cache", cache, dir} {
		h.mkdir(t, d, 0o700)
	}
	h.put(t, text, dir+"/gpu-agent", 0o700)
	then := time.Now().Add(-ago)
	if err := os.Chtimes(h.at(dir+"/gpu-agent"), then, then); err != nil {
		t.Fatal(err)
	}
	return dir + "/gpu-agent"
}

// TestPlanMakesDoWithAnotherVersion looks only, on hosts to which other versions of the
// provider have brought agents: the one brought last that speaks the protocol is used,
// and only if it is what its name says.
func TestPlanMakesDoWithAnotherVersion(t *testing.T) {
	needsModes(t)
	for _, test := range []struct {
		name  string
		hosts func(t *testing.T, h *uploadHost) (started string)
		says  []string // when none can be used
	}{
		{"one", func(t *testing.T, h *uploadHost) string { return h.old(t, "1.0.0", "agent one", time.Hour) }, nil},
		{"the last one", func(t *testing.T, h *uploadHost) string {
			h.old(t, "9.0.0", "agent nine", 2*time.Hour)
			return h.old(t, "1.0.0", "agent one", time.Hour)
		}, nil},
		{"the last one that speaks the protocol", func(t *testing.T, h *uploadHost) string {
			h.old(t, "9.0.0", otherProtocol, time.Minute)
			return h.old(t, "1.0.0", "agent one", time.Hour)
		}, nil},
		{"none that speaks the protocol", func(t *testing.T, h *uploadHost) string {
			h.old(t, "9.0.0", otherProtocol, time.Minute)
			return ""
		}, []string{"9.0.0-", "protocol", "gpu-agent_linux_amd64", agentDir(cache, "linux", "amd64") + "/gpu-agent"}},
		{"one that was changed", func(t *testing.T, h *uploadHost) string {
			h.put(t, "something else", h.old(t, "1.0.0", "agent one", time.Hour), 0o700)
			return ""
		}, []string{"1.0.0-", "SHA-256"}},
		{"one that others can write", func(t *testing.T, h *uploadHost) string {
			h.put(t, "agent one", h.old(t, "1.0.0", "agent one", time.Hour), 0o777)
			return ""
		}, []string{"others can write to"}},
	} {
		for _, noSums := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, noSums=%v", test.name, noSums), func(t *testing.T) {
				started := ""
				h, way := newUploadHost(t, func(h *uploadHost) { started, h.noSums = test.hosts(t, h), noSums })
				before := h.all(t)
				way.Upload.LookOnly = true
				if started == "" {
					refuses(t, way, options, connect.NoAgent, test.says...)
				} else {
					conn, err := connect.DialSSH(t.Context(), host, way, options)
					if err != nil {
						t.Fatal(err)
					}
					if !conn.Older {
						t.Error("it is not told that the agent is another version's")
					}
					_ = conn.Close() // that it was made counts
					if asked := h.requests(); asked[len(asked)-1] != "exec "+started+" serve --stdio" {
						t.Errorf("asked %q, want %s to be started", asked, started)
					}
				}
				if written := h.written(); len(written) > 0 {
					t.Errorf("it wrote %q", written)
				}
				if diff := cmp.Diff(before, h.all(t)); diff != "" {
					t.Errorf("files on the host (-before +after):\n%s", diff)
				}
			})
		}
	}
}

// TestUploadTidiesUp removes what earlier uploads have left, and nothing else.
func TestUploadTidiesUp(t *testing.T) {
	needsModes(t)
	agent := agentDir(cache, "linux", "amd64") + "/gpu-agent"
	h, way := newUploadHost(t, func(h *uploadHost) {
		h.old(t, "1.0.0", "agent one", time.Hour)
		old := h.old(t, "1.1.0-rc.1", "agent two", time.Minute)
		h.put(t, "half", old+".abcdefghij.part", 0o600)
		h.mkdir(t, path.Dir(agent), 0o700)
		h.put(t, "half", agent+".klmnopqrst.part", 0o600)
		h.put(t, "mine", path.Dir(h.old(t, "1.2.0", "agent three", time.Minute))+"/notes.txt", 0o600)
		h.put(t, "mine", cache+"/config", 0o600)
		h.mkdir(t, cache+"/backup", 0o700)
		h.put(t, "mine", cache+"/backup/gpu-agent", 0o700)
		h.mkdir(t, "/tmp/mallory", 0o755)
		h.put(t, "theirs", "/tmp/mallory/gpu-agent", 0o755)
		if err := os.Symlink(h.at("/tmp/mallory"), h.at(cache+"/1.0.0-0123456789ab")); err != nil {
			t.Fatal(err)
		}
	})
	reaches(t, way)
	want := []string{
		agent, path.Join(cache, "1.2.0-"+sumOf("agent three")[:12], "notes.txt"), cache + "/config", cache + "/backup/gpu-agent",
		cache + "/1.0.0-0123456789ab", "/tmp/mallory/gpu-agent",
	}
	got := h.all(t)
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files on the host (-want +got):\n%s", diff)
	}
	for _, dir := range []string{"1.0.0-" + sumOf("agent one")[:12], "1.1.0-rc.1-" + sumOf("agent two")[:12]} {
		if _, err := os.Stat(h.at(path.Join(cache, dir))); err == nil {
			t.Errorf("the directory %s is still there", dir)
		}
	}
}

// TestVersionsAtOnce has two versions of the provider bring their agents to one host again
// and again, each tidying up behind the other.
func TestVersionsAtOnce(t *testing.T) {
	needsModes(t)
	_, way := newUploadHost(t, nil)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			way := way
			upload := *way.Upload
			upload.Version = fmt.Sprintf("2.%d.0", i%2)
			way.Upload = &upload
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
}

// TestNoUploadWithSudo checks that what its user can replace is not started as root.
func TestNoUploadWithSudo(t *testing.T) {
	h, way := newUploadHost(t, nil)
	way.Sudo = true
	refuses(t, way, options, connect.Settings, "sudo", "upload", "as root")
	if connections, _ := h.counts(); connections > 0 {
		t.Error("the host was asked")
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
