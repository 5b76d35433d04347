package connect_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
)

// uid is the user's on the host.
const uid = 1000

// uploadHost is a host without an agent. Its files are a directory of the test, in which
// the user's home is home; only in there may it write.
type uploadHost struct {
	*sshServer
	root  string
	uname string
	// complains is what the user's profile says to standard error.
	complains string
	home      string
	noSFTP    bool
	// stuck is in commands that do not end.
	stuck string
	end   <-chan struct{} // of the test
	// owner tells whom a file belongs to, when not to the user.
	owner map[string]uint32
	// noexec are directories from which nothing can be run.
	noexec []string
	// full is after how many bytes a file cannot grow any more, 0 for never.
	full int64
	// spoils changes what is written.
	spoils bool
	// noSums is a host without a program that works out checksums.
	noSums bool

	fileMu sync.Mutex
	// readOnly are directories that nobody can write to.
	readOnly []string
	writes   []string // what was opened to be written, renamed or made
	reads    []string // what was opened to be read
}

// newUploadHost starts a host. Files are shipped in the directory of the way that it
// gives.
func newUploadHost(t *testing.T, change func(*uploadHost)) (*uploadHost, connect.SSH) {
	t.Helper()
	newHome(t)
	h := &uploadHost{root: t.TempDir(), uname: "Linux x86_64\n1000\n", home: "/home/svc", owner: map[string]uint32{}, end: t.Context().Done()}
	for _, dir := range []string{h.home, "/var/lib", "/opt"} {
		h.mkdir(t, dir, 0o755)
	}
	if change != nil {
		change(h)
	}
	h.mkdir(t, h.home, 0o755)
	h.sshServer = newSSHServer(t, func(s *sshServer) {
		s.exec = h.run
		if !h.noSFTP {
			s.subsystem = map[string]func(ssh.Channel){"sftp": h.files}
		}
		if strings.HasPrefix(h.uname, "Windows") {
			s.config.ServerVersion = "SSH-2.0-OpenSSH_for_Windows_9.5"
		}
	})
	way := h.way()
	way.Upload = &connect.Upload{Dir: ship(t), Version: "1.2.3"}
	return h, way
}

// ship makes a directory with agents and their checksums.
func ship(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	var sums bytes.Buffer
	for _, platform := range [][2]string{{"linux", "amd64"}, {"linux", "arm64"}, {"windows", "amd64"}} {
		name := connect.AgentFile(platform[0], platform[1])
		text := shipped(platform[0], platform[1])
		write(t, text, dir, name)
		fmt.Fprintf(&sums, "%s  %s\n", sumOf(text), name)
	}
	write(t, sums.String(), dir, connect.ChecksumsFile)
	return dir
}

// shipped is an agent of more than one packet of SFTP.
func shipped(goos, goarch string) string {
	return "agent for " + goos + "/" + goarch + strings.Repeat(".", 100<<10)
}

func sumOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// agentDir is where a platform's agent is uploaded to in a directory.
func agentDir(base, goos, goarch string) string {
	return path.Join(base, "1.2.3-"+sumOf(shipped(goos, goarch))[:12])
}

// at is where a file of the host lies.
func (h *uploadHost) at(name string) string { return filepath.Join(h.root, filepath.FromSlash(name)) }

func (h *uploadHost) mkdir(t *testing.T, dir string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(h.at(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(h.at(dir), mode); err != nil { // whatever the umask is
		t.Fatal(err)
	}
}

func (h *uploadHost) put(t *testing.T, text, name string, mode os.FileMode) {
	t.Helper()
	write(t, text, h.at(name))
	if err := os.Chmod(h.at(name), mode); err != nil {
		t.Fatal(err)
	}
}

// all are the files on the host.
func (h *uploadHost) all(t *testing.T) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(h.root, func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, strings.TrimPrefix(filepath.ToSlash(p), filepath.ToSlash(h.root)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// protect makes directories read-only.
func (h *uploadHost) protect(dirs ...string) {
	h.fileMu.Lock()
	defer h.fileMu.Unlock()
	h.readOnly = append(h.readOnly, dirs...)
}

func (h *uploadHost) written() []string {
	h.fileMu.Lock()
	defer h.fileMu.Unlock()
	return slices.Clone(h.writes)
}

func (h *uploadHost) read() []string {
	h.fileMu.Lock()
	defer h.fileMu.Unlock()
	return slices.Clone(h.reads)
}

// run is the host's shell.
func (h *uploadHost) run(command string, c ssh.Channel) int {
	name, arguments, _ := strings.Cut(strings.ReplaceAll(strings.Trim(command, `"`), `" `, " "), " ")
	complain := func(text string, exit int) int {
		_, _ = io.WriteString(c.Stderr(), "bash: line 1: "+name+": "+text+"\n") // the client may be gone
		return exit
	}
	_, _ = io.WriteString(c.Stderr(), h.complains) // the client may be gone
	switch {
	case h.stuck != "" && strings.Contains(command, h.stuck):
		<-h.end
		return 1
	case name == "uname" || name == "cmd":
		_, _ = io.WriteString(c, h.uname) // the client may be gone
		return 0
	case name == "sha256sum" && !h.noSums:
		file := strings.Trim(arguments, `"`)
		text, err := os.ReadFile(h.at(file))
		if err != nil {
			return complain("No such file or directory", 1)
		}
		_, _ = io.WriteString(c, sumOf(string(text))+"  "+file+"\n") // the client may be gone
		return 0
	case name == "gpu-agent" || name == "sha256sum":
		return complain("command not found", 127)
	}
	if strings.HasPrefix(name, "C:") {
		name = "/" + strings.ReplaceAll(name, `\`, "/")
	}
	info, err := os.Lstat(h.at(name))
	switch {
	case err != nil:
		return complain("No such file or directory", 127)
	case !strings.HasSuffix(name, ".exe") && info.Mode()&0o100 == 0,
		slices.ContainsFunc(h.noexec, func(dir string) bool { return strings.HasPrefix(name, dir) }):
		return complain("Permission denied", 126)
	case arguments == "version":
		_, _ = io.WriteString(c, "gpu-agent 1.2.3\n") // the client may be gone
		return 0
	}
	if text, err := os.ReadFile(h.at(name)); err == nil && strings.HasPrefix(string(text), otherProtocol) {
		return serveProtocol(c, 99)
	}
	return serveAgent(c)
}

// otherProtocol begins an agent that speaks one which nobody else does.
const otherProtocol = "agent of another protocol"

// files serves SFTP.
func (h *uploadHost) files(c ssh.Channel) {
	server := sftp.NewRequestServer(c, sftp.Handlers{FileGet: h, FilePut: h, FileCmd: h, FileList: h}, sftp.WithStartDirectory(h.home))
	_ = server.Serve() // it ends with the channel
}

func (h *uploadHost) Fileread(r *sftp.Request) (io.ReaderAt, error) {
	h.fileMu.Lock()
	h.reads = append(h.reads, r.Filepath)
	h.fileMu.Unlock()
	return os.Open(h.at(r.Filepath))
}

func (h *uploadHost) Filewrite(r *sftp.Request) (io.WriterAt, error) {
	if err := h.mayWrite(r.Filepath); err != nil {
		return nil, err
	}
	flags := os.O_WRONLY
	if r.Pflags().Creat {
		flags |= os.O_CREATE
	}
	if r.Pflags().Excl {
		flags |= os.O_EXCL
	}
	f, err := os.OpenFile(h.at(r.Filepath), flags, 0o600)
	if err != nil {
		return nil, err
	}
	return &hostFile{f, h}, nil
}

func (h *uploadHost) mayWrite(name string) error {
	h.fileMu.Lock()
	defer h.fileMu.Unlock()
	h.writes = append(h.writes, name)
	for _, dir := range h.readOnly {
		if strings.HasPrefix(name, dir) {
			return os.ErrPermission
		}
	}
	return nil
}

// hostFile is a file that the disk may have no room for.
type hostFile struct {
	*os.File
	h *uploadHost
}

func (f *hostFile) WriteAt(b []byte, at int64) (int, error) {
	if f.h.full > 0 && at+int64(len(b)) > f.h.full {
		return 0, errors.New("no space left on device")
	}
	if f.h.spoils && at == 0 {
		b = append([]byte("X"), b[1:]...)
	}
	return f.File.WriteAt(b, at)
}

func (h *uploadHost) Filecmd(r *sftp.Request) error {
	if r.Method != "Remove" && r.Method != "Rmdir" {
		if err := h.mayWrite(r.Filepath); err != nil {
			return err
		}
	}
	switch r.Method {
	case "Setstat":
		return os.Chmod(h.at(r.Filepath), r.Attributes().FileMode().Perm())
	case "Mkdir":
		return os.Mkdir(h.at(r.Filepath), 0o755)
	case "Remove", "Rmdir":
		return os.Remove(h.at(r.Filepath))
	}
	return sftp.ErrSSHFxOpUnsupported
}

// PosixRename implements sftp.PosixRenameFileCmder.
func (h *uploadHost) PosixRename(r *sftp.Request) error {
	if err := h.mayWrite(r.Target); err != nil {
		return err
	}
	h.fileMu.Lock()
	defer h.fileMu.Unlock()
	delete(h.owner, r.Target)
	return os.Rename(h.at(r.Filepath), h.at(r.Target))
}

func (h *uploadHost) Filelist(r *sftp.Request) (sftp.ListerAt, error) {
	if r.Method != "List" {
		return h.stat(r.Filepath, os.Stat)
	}
	entries, err := os.ReadDir(h.at(r.Filepath))
	if err != nil {
		return nil, err
	}
	out := listing{}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			out = append(out, owned{info, uid})
		}
	}
	return out, nil
}

// listing is a list of the files of a directory.
type listing []os.FileInfo

func (l listing) ListAt(to []os.FileInfo, at int64) (int, error) {
	if at >= int64(len(l)) {
		return 0, io.EOF
	}
	n := copy(to, l[at:])
	if n < len(to) {
		return n, io.EOF
	}
	return n, nil
}

// Lstat implements sftp.LstatFileLister.
func (h *uploadHost) Lstat(r *sftp.Request) (sftp.ListerAt, error) {
	return h.stat(r.Filepath, os.Lstat)
}

func (h *uploadHost) stat(name string, how func(string) (os.FileInfo, error)) (sftp.ListerAt, error) {
	info, err := how(h.at(name))
	if err != nil {
		return nil, err
	}
	h.fileMu.Lock()
	defer h.fileMu.Unlock()
	owner, ok := h.owner[name]
	if !ok {
		owner = uid
	}
	return oneFile{owned{info, owner}}, nil
}

// oneFile is a list of one file.
type oneFile struct{ os.FileInfo }

func (o oneFile) ListAt(to []os.FileInfo, at int64) (int, error) {
	if at > 0 || len(to) == 0 {
		return 0, io.EOF
	}
	to[0] = o.FileInfo
	return 1, io.EOF
}

// owned is a file with an owner of the test's choice.
type owned struct {
	os.FileInfo
	uid uint32
}

func (o owned) Uid() uint32 { return o.uid }

func (o owned) Gid() uint32 { return o.uid }
