package connect

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
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
	// LookOnly uses an agent that was uploaded before, and writes nothing.
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

// install puts the agent for the host's platform into a directory from which it can be
// run, unless it is there, and returns its path. The directory is the user's own and
// named after the version and the file's checksum. No command may take longer than wait.
func (u *Upload) install(ctx context.Context, host string, client *sshClient, wait time.Duration) (string, error) {
	on, err := target(ctx, host, client, wait)
	if err != nil {
		return "", err
	}
	agent, sum, err := u.read(host, on.goos, on.goarch)
	if err != nil {
		return "", err
	}
	inTime := client.within(ctx, uploadTime)
	found, err := u.firstThatRuns(ctx, host, client, on, agent, sum, wait)
	if late := inTime(); late != nil {
		return "", &Error{Host: host, Kind: Unreachable, Found: "the agent was not uploaded in time", Err: late, Fix: "look at the line to the host, or install the agent's package"}
	}
	return found, err
}

// firstThatRuns tries the candidates in order.
func (u *Upload) firstThatRuns(ctx context.Context, host string, client *sshClient, on platform, agent []byte, sum string, wait time.Duration) (string, error) {
	raw, err := sftp.NewClient(client.Client, sftp.UseConcurrentWrites(true))
	if err != nil {
		return "", &Error{Host: host, Kind: Blocked, Found: "the agent cannot be uploaded, since the host offers no SFTP", Err: foreign{err}, Fix: "install the agent's package, or enable sshd's sftp subsystem"}
	}
	defer func() { _ = raw.Close() }() // nothing is buffered
	files := remoteFiles{raw, on}
	var reasons []string
	for _, c := range files.candidates() {
		dir := path.Join(c.trusted, c.own, fmt.Sprintf("%s-%s", u.Version, sum[:12]))
		file := path.Join(dir, files.agentName())
		switch err := files.look(c.trusted, file, sum); {
		case err == nil: // it is there
		case u.LookOnly:
			continue
		default:
			err = files.place(c.trusted, file, agent, sum)
			if err != nil {
				reasons = append(reasons, fmt.Sprintf("%s: %v", dir, foreign{err}))
				continue
			}
		}
		command := on.runnable(file)
		failed := proves(ctx, host, client, command, wait)
		if failed == nil {
			return command, nil
		}
		if failed.Kind == WrongPlatform || failed.Kind == Unreachable {
			return "", failed
		}
		reasons = append(reasons, fmt.Sprintf("%s: %s", dir, failed.Found))
	}
	if u.LookOnly && len(reasons) == 0 {
		return "", &Error{Host: host, Kind: NoAgent, Found: "there is no gpu-agent, and none was uploaded", Fix: "apply once, which uploads it, or install the agent's package"}
	}
	return "", &Error{
		Host: host, Kind: Blocked, Found: "the agent was not put into any directory from which it can be run (" + strings.Join(reasons, "; ") + ")",
		Fix: "install the agent's package and let the host's application control allow it, or say in agent_path where it is",
	}
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
	said, err := client.run(ctx, command, wait)
	if e, ok := errors.AsType[*lateError](err); ok {
		return platform{}, e.of(host, command)
	}
	fields := strings.Fields(said)
	var on platform
	if err == nil && len(fields) >= 2 {
		on.goos = map[string]string{"Linux": "linux", "Windows": "windows"}[fields[0]]
		on.goarch = map[string]string{"x86_64": "amd64", "amd64": "amd64", "AMD64": "amd64", "aarch64": "arm64", "arm64": "arm64", "ARM64": "arm64"}[fields[1]]
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
			Host: host, Kind: WrongPlatform, Found: fmt.Sprintf("there is no agent for the host's platform; %q said %s", command, quote(strings.TrimSpace(said), maxQuote)), Err: err,
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

// read reads the agent for a platform and proves that it is the one that was shipped.
func (u *Upload) read(host, goos, goarch string) (agent []byte, sum string, err error) {
	bad := func(found string, err error) error {
		return &Error{Host: host, Kind: Settings, Found: found, Err: err, Fix: "install the provider again with all its files, or install gpu-agent on the host"}
	}
	name := AgentFile(goos, goarch)
	agent, err = os.ReadFile(filepath.Join(u.Dir, name))
	if err != nil {
		return nil, "", bad("the provider came without the agent for "+goos+"/"+goarch, err)
	}
	sums, err := os.ReadFile(filepath.Join(u.Dir, ChecksumsFile))
	if err != nil {
		return nil, "", bad("the checksums of the agents cannot be read", err)
	}
	digest := sha256.Sum256(agent)
	sum = hex.EncodeToString(digest[:])
	for lines := bufio.NewScanner(bytes.NewReader(sums)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) != 2 || strings.TrimPrefix(fields[1], "*") != name {
			continue
		}
		if !strings.EqualFold(fields[0], sum) {
			return nil, "", bad(fmt.Sprintf("%s has the SHA-256 %s, but %s says %s; nothing was uploaded", name, sum, ChecksumsFile, fields[0]), nil)
		}
		return agent, sum, nil
	}
	return nil, "", bad(fmt.Sprintf("%s does not list %s; nothing was uploaded", ChecksumsFile, name), nil)
}

// proves runs the uploaded agent. A noexec mount and application control show only
// here.
func proves(ctx context.Context, host string, client *sshClient, file string, wait time.Duration) *Error {
	command, err := SSH{AgentPath: file}.invoke(host, "version")
	if err != nil {
		return &Error{Host: host, Kind: Blocked, Found: "its path has characters that are not used in commands"}
	}
	said, err := client.run(ctx, command, wait)
	if e, ok := errors.AsType[*lateError](err); ok {
		return e.of(host, command)
	}
	if err == nil && strings.HasPrefix(said, "gpu-agent ") {
		return nil
	}
	exit, known := 0, err == nil
	if status, ok := errors.AsType[*ssh.ExitError](err); ok {
		exit, known = status.ExitStatus(), true
	}
	return endedEarly(host, "", func() (string, int, bool) { return said, exit, known })
}

// run runs a command that is made of constants and checked paths. It gives the end of
// what was said.
func (c *sshClient) run(ctx context.Context, command string, wait time.Duration) (string, error) {
	inTime := c.within(ctx, wait)
	said := &tail{}
	err := c.runInto(said, command)
	if late := inTime(); late != nil {
		return "", &lateError{wait, late}
	}
	return said.String(), err
}

func (c *sshClient) runInto(said io.Writer, command string) error {
	session, err := c.NewSession()
	if err != nil {
		return err
	}
	defer func() { _ = session.Close() }() // it has ended by itself
	session.Stdout, session.Stderr = said, said
	return session.Run(command)
}

// lateError is a command that did not end, or that nobody waits for any more.
type lateError struct {
	wait time.Duration
	err  error
}

func (e *lateError) Error() string { return e.err.Error() }

func (e *lateError) Unwrap() error { return e.err }

func (e *lateError) of(host, command string) *Error {
	return &Error{Host: host, Kind: Unreachable, Found: fmt.Sprintf("the command %q had not ended on the host after %s", command, e.wait), Err: e, Fix: "look on the host what its login waits for"}
}
