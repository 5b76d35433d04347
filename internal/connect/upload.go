package connect

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

// Upload brings the agent to hosts that have none, from the files that are shipped with
// the provider: gpu-agent_<os>_<architecture> and their checksums.
type Upload struct {
	Dir     string // where the files lie
	Version string // of the provider, in the name of the directory on the host
}

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
// named after the version and the file's checksum.
func (u *Upload) install(ctx context.Context, host string, client *ssh.Client) (string, error) {
	stop := context.AfterFunc(ctx, func() { _ = client.Close() })
	defer stop()
	goos, goarch, err := platformOf(host, client)
	if err != nil {
		return "", err
	}
	agent, sum, err := u.read(host, goos, goarch)
	if err != nil {
		return "", err
	}
	files, err := sftp.NewClient(client)
	if err != nil {
		return "", &Error{Host: host, Kind: Blocked, Found: "the agent cannot be uploaded, since the host offers no SFTP", Err: err, Fix: "install the agent's package, or enable sshd's sftp subsystem"}
	}
	defer func() { _ = files.Close() }() // nothing is buffered
	var reasons []string
	for _, base := range u.candidates(files, goos) {
		dir := path.Join(base, fmt.Sprintf("%s-%s", u.Version, sum[:12]))
		file, err := place(files, dir, goos, agent, sum)
		if err == nil {
			var e *Error
			command := runnable(file, goos)
			if e = proves(host, client, command); e == nil {
				return command, nil
			}
			if e.Kind == WrongPlatform {
				return "", e
			}
			err = errors.New(e.Found)
		}
		reasons = append(reasons, fmt.Sprintf("%s: %v", base, err))
	}
	return "", &Error{
		Host: host, Kind: Blocked, Found: "the agent was not put into any directory from which it can be run (" + strings.Join(reasons, "; ") + ")",
		Fix: "install the agent's package and let the host's application control allow it, or say in agent_path where it is",
	}
}

// candidates are directories to try, in order. /tmp is none of them: others may write
// there, and it is often mounted noexec.
func (u *Upload) candidates(files *sftp.Client, goos string) []string {
	var out []string
	if home, err := files.Getwd(); err == nil && home != "/" {
		out = append(out, path.Join(home, ".cache", "gpu-agent"))
	}
	if goos != "windows" {
		out = append(out, "/var/lib/gpu-agent/bin", "/opt/gpu-agent")
	}
	return out
}

// platformOf finds out for which platform the agent has to be.
func platformOf(host string, client *ssh.Client) (goos, goarch string, err error) {
	windows := strings.Contains(string(client.ServerVersion()), "Windows")
	command := "uname -sm"
	if windows {
		command = "cmd /c echo Windows %PROCESSOR_ARCHITECTURE%"
	}
	said, err := run(client, command)
	fields := strings.Fields(said)
	if err == nil && len(fields) == 2 {
		goos = map[string]string{"Linux": "linux", "Windows": "windows"}[fields[0]]
		goarch = map[string]string{"x86_64": "amd64", "amd64": "amd64", "AMD64": "amd64", "aarch64": "arm64", "arm64": "arm64", "ARM64": "arm64"}[fields[1]]
	}
	if goos == "" || goarch == "" {
		return "", "", &Error{
			Host: host, Kind: WrongPlatform, Found: fmt.Sprintf("there is no agent for the host's platform; %q said %s", command, quote(strings.TrimSpace(said), maxQuote)), Err: err,
			Fix: "install gpu-agent on the host and set agent_path; Linux and Windows on amd64 and arm64 are shipped",
		}
	}
	return goos, goarch, nil
}

// run runs a command that is made of constants and checked paths.
func run(client *ssh.Client, command string) (string, error) {
	session, err := client.NewSession()
	if err != nil {
		return "", err
	}
	defer func() { _ = session.Close() }() // it has ended by itself
	out, err := session.CombinedOutput(command)
	return string(out), err
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

// place writes the agent into a directory of its own. It appears under its name only
// when it is complete and has been read back.
func place(files *sftp.Client, dir, goos string, agent []byte, sum string) (string, error) {
	if err := files.MkdirAll(dir); err != nil {
		return "", fmt.Errorf("the directory cannot be made: %w", err)
	}
	if goos != "windows" {
		if err := files.Chmod(dir, 0o700); err != nil {
			return "", fmt.Errorf("the directory cannot be made private: %w", err)
		}
		if err := private(files, dir); err != nil {
			return "", err
		}
	}
	file := path.Join(dir, "gpu-agent")
	if goos == "windows" {
		file += ".exe"
	}
	if hashOf(files, file) == sum {
		return file, nil
	}
	temporary := file + "." + strings.ToLower(rand.Text()[:10]) + ".part"
	defer func() { _ = files.Remove(temporary) }() // there is none after success
	out, err := files.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return "", fmt.Errorf("a file cannot be made: %w", err)
	}
	_, err = out.ReadFrom(bytes.NewReader(agent))
	if err = errors.Join(err, out.Close()); err != nil {
		return "", fmt.Errorf("the file cannot be written: %w", err)
	}
	if goos != "windows" {
		if err := files.Chmod(temporary, 0o700); err != nil {
			return "", fmt.Errorf("the file cannot be made executable: %w", err)
		}
	}
	if found := hashOf(files, temporary); found != sum {
		return "", fmt.Errorf("the file was read back with the SHA-256 %q instead of %s", found, sum)
	}
	if err := files.PosixRename(temporary, file); err != nil {
		return "", fmt.Errorf("the file cannot be renamed: %w", err)
	}
	return file, nil
}

// private refuses a directory that others can put files into.
func private(files *sftp.Client, dir string) error {
	info, err := files.Lstat(dir)
	switch {
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink != 0 || !info.IsDir():
		return errors.New("it is a link")
	case info.Mode().Perm()&0o022 != 0:
		return errors.New("others can write to it")
	}
	return nil
}

// hashOf is the SHA-256 of a file on the host, "" when it cannot be read.
func hashOf(files *sftp.Client, file string) string {
	in, err := files.Open(file)
	if err != nil {
		return ""
	}
	defer func() { _ = in.Close() }() // nothing was written
	h := sha256.New()
	if _, err := io.Copy(h, in); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}

// runnable writes a path of SFTP as the host's shell knows it.
func runnable(file, goos string) string {
	if goos == "windows" {
		return strings.ReplaceAll(strings.TrimPrefix(file, "/"), "/", `\`)
	}
	return file
}

// proves runs the uploaded agent. A noexec mount and application control show only
// here.
func proves(host string, client *ssh.Client, file string) *Error {
	command, err := SSH{AgentPath: file}.invoke(host, "version")
	if err != nil {
		return &Error{Host: host, Kind: Blocked, Found: "its path has characters that are not used in commands"}
	}
	said, err := run(client, command)
	if err == nil && strings.HasPrefix(said, "gpu-agent ") {
		return nil
	}
	exit, known := 0, false
	var status *ssh.ExitError
	if errors.As(err, &status) {
		exit, known = status.ExitStatus(), true
	}
	return endedEarly(host, "", func() (string, int, bool) { return said, exit, known })
}
