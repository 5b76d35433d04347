package connect

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

// Upload brings the agent to hosts that have none, from the files that are shipped with
// the provider: gpu-agent_<os>_<architecture> and their checksums.
type Upload struct {
	Dir     string // where the files lie
	Version string // of the provider, in the name of the directory on the host
	// LookOnly uses an agent that was uploaded before, this version's or else the one that
	// was brought last and speaks the same protocol, and writes nothing.
	LookOnly bool
}

// uploadTime is how long an upload may take. The agent has some 17 MB, and a host may be
// behind a slow line.
const uploadTime = 10 * time.Minute

// ChecksumsFile lists the SHA-256 of each agent, as sha256sum prints it.
const ChecksumsFile = "gpu-agent_SHA256SUMS"

// AgentFile is the name of the agent for a platform, as it is shipped.
func AgentFile(goos, goarch string) string {
	name := "gpu-agent_" + goos + "_" + goarch
	if goos == "windows" {
		name += ".exe"
	}
	return name
}

// uploadTries is how often an agent is brought that another run, with another version of
// the provider, has removed before it was started.
const uploadTries = 5

// uploaded starts an agent that was uploaded, now or before.
func (s SSH) uploaded(ctx context.Context, host string, client *sshClient, o Options) (*Conn, error) {
	on, err := target(ctx, host, client, o.wait())
	if err != nil {
		return nil, err
	}
	sum, err := s.Upload.sum(host, on)
	if err != nil {
		return nil, err
	}
	job := &uploadJob{
		Upload: s.Upload, host: host, client: client, on: on, sum: sum, wait: o.wait(),
		begin: func(command string) (*Conn, error) {
			at := s
			at.AgentPath = command
			command, err := at.command(host)
			if err != nil {
				return nil, err
			}
			return at.start(ctx, host, client, command, true, o)
		},
	}
	if s.Upload.LookOnly {
		return job.overSFTP(ctx, job.startThere)
	}
	for try := 1; ; try++ {
		conn, err := job.overSFTP(ctx, job.install)
		if e, ok := errors.AsType[*Error](err); ok && e.Code == NoAgent && try < uploadTries {
			continue
		}
		return conn, err
	}
}

// uploadJob is the search for a place on one host from which the agent can be run.
type uploadJob struct {
	*Upload
	host   string
	client *sshClient
	on     platform
	sum    string // of the agent for the platform
	wait   time.Duration
	begin  func(command string) (*Conn, error)
}

// name is the directory of this version.
func (u *uploadJob) name() string { return fmt.Sprintf("%s-%s", u.Version, u.sum[:12]) }

// overSFTP has an agent started that is found, or put, among the host's files, over which the host is
// asked for no longer than uploadTime.
func (u *uploadJob) overSFTP(ctx context.Context, start func(context.Context, remoteFiles) (*Conn, error)) (*Conn, error) {
	inTime := u.client.within(ctx, uploadTime)
	raw, err := sftp.NewClient(u.client.Client, sftp.UseConcurrentWrites(true))
	var conn *Conn
	if err == nil {
		conn, err = start(ctx, remoteFiles{Client: raw, on: u.on})
		_ = raw.Close() // nothing is buffered
	} else {
		err = &Error{
			Host: u.host, Code: Blocked, Found: "the agent cannot be uploaded, since the host offers no SFTP",
			Err: foreign{err}, Fix: "install the agent's package, or enable sshd's sftp subsystem",
		}
	}
	if late := inTime(); late != nil {
		if conn != nil {
			_ = conn.Close() // it is closed underneath
		}
		return nil, &Error{
			Host: u.host, Code: Unreachable, Found: "the agent was not uploaded in time", Err: late,
			Fix: "look at the line to the host, or install the agent's package",
		}
	}
	return conn, err
}

// startThere starts an agent that was uploaded before.
func (u *uploadJob) startThere(ctx context.Context, files remoteFiles) (*Conn, error) {
	var here []upload
	for _, c := range files.candidates() {
		here = append(here, upload{trusted: c.trusted, file: files.in(c, u.name()), sum: u.sum})
	}
	conn, reasons, err := u.startOne(ctx, files, here)
	if conn == nil && err == nil {
		var more []string
		if conn, more, err = u.startOne(ctx, files, files.others(u.name())); conn != nil {
			conn.Older = true
		}
		reasons = append(reasons, more...)
	}
	if conn != nil || err != nil {
		return conn, err
	}
	put := ""
	if len(here) > 0 {
		put = here[0].file
	}
	found := "there is no gpu-agent, and none was uploaded"
	if len(reasons) > 0 {
		found = "there is no gpu-agent but such as were uploaded and cannot be used (" + strings.Join(reasons, "; ") + ")"
	}
	return nil, &Error{
		Host: u.host, Code: NoAgent, Found: found,
		Fix: fmt.Sprintf("apply a change of this host, which uploads it; or install the agent's package; or copy %s there as %s, in "+
			"directories of mode 0700",
			filepath.Join(u.Dir, AgentFile(u.on.goos, u.on.goarch)), files.on.runnable(put)),
	}
}

// startOne starts the first of several agents that can be started and speaks the same
// protocol. It says why the others were not; an error is the host's.
func (u *uploadJob) startOne(ctx context.Context, files remoteFiles, there []upload) (*Conn, []string, error) {
	var reasons []string
	for _, a := range there {
		if err := u.look(ctx, files, a.trusted, a.file, a.sum); err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				reasons = append(reasons, fmt.Sprintf("%s: %v", a.file, foreign{err}))
			}
			continue
		}
		conn, err := u.begin(files.on.runnable(a.file))
		if err == nil {
			return conn, nil, nil
		}
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Code == Unreachable {
			return nil, nil, err
		}
		reasons = append(reasons, fmt.Sprintf("%s: %s", a.file, e.Found))
	}
	return nil, reasons, nil
}

// install puts the agent into the first directory from which it can be run, unless it is
// there, and starts it. The directory is the user's own and named after the version and the
// file's checksum.
func (u *uploadJob) install(ctx context.Context, files remoteFiles) (*Conn, error) {
	var agent []byte
	var reasons []string
	for _, c := range files.candidates() {
		file := files.in(c, u.name())
		command, brought := files.on.runnable(file), false
		if u.look(ctx, files, c.trusted, file, u.sum) != nil {
			if agent == nil {
				var err error
				if agent, err = u.read(u.host, u.on, u.sum); err != nil {
					return nil, err
				}
			}
			if err := u.place(ctx, files, c.trusted, file, agent); err != nil {
				reasons = append(reasons, fmt.Sprintf("%s: %v", path.Dir(file), foreign{err}))
				continue
			}
			if failed := proves(ctx, u.host, u.client, command, u.wait); failed != nil {
				if failed.Code == WrongPlatform || failed.Code == Unreachable {
					return nil, failed
				}
				reasons = append(reasons, fmt.Sprintf("%s: %s", path.Dir(file), failed.Found))
				continue
			}
			brought = true
		}
		conn, err := u.begin(command)
		if err == nil && brought {
			files.tidy(file) // not before: another version's run may do the same to this one
		}
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Code != Blocked {
			return conn, err
		}
		reasons = append(reasons, fmt.Sprintf("%s: %s", path.Dir(file), e.Found))
	}
	return nil, &Error{
		Host: u.host, Code: Blocked, Found: "the agent was not put into any directory from which it can be run (" +
			strings.Join(reasons, "; ") + ")",
		Fix: "install the agent's package and let the host's application control allow it, or say in agent_path where it is",
	}
}

// place puts the agent there. Another run may do so, too, and then tidies up behind
// itself, or behind another version.
func (u *uploadJob) place(ctx context.Context, files remoteFiles, trusted, file string, agent []byte) error {
	for try := 1; ; try++ {
		err := files.place(trusted, file, agent, u.sum, func(file string) (string, error) { return u.sumOf(ctx, files, file) })
		if err == nil || u.look(ctx, files, trusted, file, u.sum) == nil {
			return nil
		}
		if !errors.Is(err, fs.ErrNotExist) || try == uploadTries {
			return err
		}
	}
}

// look tells whether a file is the agent whose checksum begins with sum, and stays it:
// nobody else can change it. The host works out the checksum; only where it has no
// program to do so is the file read back.
func (u *uploadJob) look(ctx context.Context, files remoteFiles, trusted, file, sum string) error {
	if err := files.ours(trusted, file); err != nil {
		return err
	}
	found, err := u.sumOf(ctx, files, file)
	if err == nil && !strings.HasPrefix(found, sum) {
		err = fmt.Errorf("it has the SHA-256 %s instead of %s", found, sum)
	}
	return err
}

// sumOf is the SHA-256 of a file on the host.
func (u *uploadJob) sumOf(ctx context.Context, files remoteFiles, file string) (string, error) {
	if sum, ok := u.hashThere(ctx, file); ok {
		return sum, nil
	}
	return files.hash(file)
}

var wholeSum = regexp.MustCompile(`\b[0-9a-fA-F]{64}\b`)

// hashThere is the SHA-256 of a file as the host works it out.
func (u *uploadJob) hashThere(ctx context.Context, file string) (sum string, ok bool) {
	name, err := quotedAgentPath(u.host, u.on.runnable(file))
	if err != nil {
		return "", false
	}
	command := "sha256sum " + name
	if u.on.goos == "windows" {
		command = "certutil -hashfile " + name + " SHA256"
	}
	out, _, err := u.client.run(ctx, u.host, command, u.wait)
	if err != nil {
		return "", false
	}
	sum = strings.ToLower(wholeSum.FindString(out))
	return sum, sum != ""
}

// platform is what an agent has to be built for, and whom its files belong to.
type platform struct {
	goos, goarch string
	uid          uint32 // of the user; Windows has none
}

// target finds out what the host is.
func target(ctx context.Context, host string, client *sshClient, wait time.Duration) (platform, error) {
	command := "uname -sm; id -u"
	if strings.Contains(string(client.ServerVersion()), "Windows") {
		command = "cmd /c echo Windows %PROCESSOR_ARCHITECTURE%"
	}
	out, said, err := client.run(ctx, host, command, wait)
	if late, ok := errors.AsType[*Error](err); ok {
		return platform{}, late
	}
	fields := strings.Fields(out) // a profile may complain, as long as it does not print
	var on platform
	if err == nil && len(fields) >= 2 {
		on.goos = map[string]string{"Linux": "linux", "Windows": "windows"}[fields[0]]
		on.goarch = map[string]string{
			"x86_64": "amd64", "amd64": "amd64", "AMD64": "amd64", "aarch64": "arm64", "arm64": "arm64", "ARM64": "arm64",
		}[fields[1]]
	}
	known := on.goarch != "" && (on.goos == "windows" && len(fields) == 2 || on.goos == "linux" && len(fields) == 3)
	if known && on.goos == "linux" {
		var uid uint64
		uid, err = strconv.ParseUint(fields[2], 10, 32)
		on.uid, known = uint32(uid), err == nil
	}
	if !known {
		if err != nil {
			err = foreign{err}
		}
		return platform{}, &Error{
			Host: host, Code: WrongPlatform,
			Found: fmt.Sprintf("there is no agent for the host's platform; %q said %s", command, quote(strings.TrimSpace(said), maxQuote)), Err: err,
			Fix: "install gpu-agent on the host and set agent_path; Linux and Windows on amd64 and arm64 are shipped",
		}
	}
	return on, nil
}

// runnable writes a path of SFTP as the host's shell knows it.
func (on platform) runnable(file string) string {
	if on.goos == "windows" {
		return strings.ReplaceAll(strings.TrimPrefix(file, "/"), "/", `\`)
	}
	return file
}

func (u *Upload) badFiles(host, found string, err error) error {
	return &Error{
		Host: host, Code: Settings, Found: found, Err: err,
		Fix: "install the provider again with all its files, or install gpu-agent on the host",
	}
}

// sum is the SHA-256 that the agent for a platform was shipped with.
func (u *Upload) sum(host string, on platform) (string, error) {
	name := AgentFile(on.goos, on.goarch)
	if _, err := os.Stat(filepath.Join(u.Dir, name)); err != nil {
		return "", u.badFiles(host, "the provider came without the agent for "+on.goos+"/"+on.goarch, err)
	}
	sums, err := os.ReadFile(filepath.Join(u.Dir, ChecksumsFile))
	if err != nil {
		return "", u.badFiles(host, "the checksums of the agents cannot be read", err)
	}
	for line := range strings.Lines(string(sums)) {
		fields := strings.Fields(line)
		if len(fields) == 2 && strings.TrimPrefix(fields[1], "*") == name && wholeSum.MatchString(fields[0]) {
			return strings.ToLower(fields[0]), nil
		}
	}
	return "", u.badFiles(host, fmt.Sprintf("%s does not list %s; nothing was uploaded", ChecksumsFile, name), nil)
}

// read reads the agent for a platform and proves that it is the one that was shipped.
func (u *Upload) read(host string, on platform, sum string) ([]byte, error) {
	name := AgentFile(on.goos, on.goarch)
	agent, err := os.ReadFile(filepath.Join(u.Dir, name))
	if err != nil {
		return nil, u.badFiles(host, "the provider came without the agent for "+on.goos+"/"+on.goarch, err)
	}
	digest := sha256.Sum256(agent)
	if is := hex.EncodeToString(digest[:]); is != sum {
		return nil, u.badFiles(host, fmt.Sprintf("%s has the SHA-256 %s, but %s says %s; nothing was uploaded", name, is, ChecksumsFile, sum),
			nil)
	}
	return agent, nil
}

// proves runs the uploaded agent. A noexec mount and application control show only
// here.
func proves(ctx context.Context, host string, client *sshClient, file string, wait time.Duration) *Error {
	command, err := SSH{AgentPath: file}.invoke(host, "version")
	if err != nil {
		return &Error{Host: host, Code: Blocked, Found: "its path has characters that are not used in commands"}
	}
	out, said, err := client.run(ctx, host, command, wait)
	if late, ok := errors.AsType[*Error](err); ok {
		return late
	}
	if err == nil && strings.HasPrefix(out, "gpu-agent ") {
		return nil
	}
	exit, known := 0, err == nil
	if status, ok := errors.AsType[*ssh.ExitError](err); ok {
		exit, known = status.ExitStatus(), true
	}
	return endedEarly(host, "", func() (string, int, bool) { return said, exit, known })
}

// run runs a command that is made of constants and checked paths. It gives the end of what it
// printed, and of all that was said, which a profile may begin. It is an *Error that it has not ended
// in time.
func (c *sshClient) run(ctx context.Context, host, command string, wait time.Duration) (out, said string, err error) {
	inTime := c.within(ctx, wait)
	prints, says := &tail{}, &tail{}
	err = c.runInto(io.MultiWriter(prints, says), says, command)
	if late := inTime(); late != nil {
		return "", "", &Error{
			Host: host, Code: Unreachable, Found: fmt.Sprintf("the command %q had not ended on the host after %s", command, wait),
			Err: late, Fix: "look on the host what its login waits for",
		}
	}
	return prints.String(), says.String(), err
}

func (c *sshClient) runInto(out, said io.Writer, command string) error {
	session, err := c.NewSession()
	if err != nil {
		return err
	}
	defer func() { _ = session.Close() }() // it has ended by itself
	session.Stdout, session.Stderr = out, said
	return session.Run(command)
}
