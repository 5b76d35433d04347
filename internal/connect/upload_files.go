package connect

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pkg/sftp"
)

// remoteFiles is the host's file system.
type remoteFiles struct {
	*sftp.Client
	on platform
}

// candidate is a directory to try. What is below the trusted one must belong to the
// user, with nobody else who can write to it.
type candidate struct{ trusted, own string }

// candidates are the directories to try, in order. /tmp is none of them: others may
// write there, and it is often mounted noexec.
func (r remoteFiles) candidates() []candidate {
	var out []candidate
	if home, err := r.Getwd(); err == nil && home != "/" {
		out = append(out, candidate{home, ".cache/gpu-agent"})
	}
	if r.on.goos != "windows" {
		out = append(out, candidate{"/var/lib", "gpu-agent/bin"}, candidate{"/opt", "gpu-agent"})
	}
	return out
}

func (r remoteFiles) agentName() string {
	if r.on.goos == "windows" {
		return "gpu-agent.exe"
	}
	return "gpu-agent"
}

// in is the agent's file in a directory named so.
func (r remoteFiles) in(c candidate, name string) string {
	return path.Join(c.trusted, c.own, name, r.agentName())
}

// ours refuses a file that others can change, or put another one in the place of.
func (r remoteFiles) ours(trusted, file string) error {
	for _, dir := range below(trusted, path.Dir(file)) {
		if err := r.own(dir, true); err != nil {
			return err
		}
	}
	return r.own(file, false)
}

// uploadDir is the name of a directory with an agent: version and beginning of its
// SHA-256.
var uploadDir = regexp.MustCompile(`^[0-9A-Za-z.+_-]+-([0-9a-f]{12})$`)

// upload is an agent that was uploaded.
type upload struct {
	trusted, file string
	sum           string // its SHA-256, or how that begins
	since         time.Time
}

// others are the agents of other versions on the host, the one that was brought last
// first.
func (r remoteFiles) others(name string) []upload {
	var out []upload
	for _, c := range r.candidates() {
		for _, dir := range r.uploadDirs(c) {
			file := r.in(c, dir)
			if info, err := r.Lstat(file); err == nil && dir != name {
				out = append(out, upload{c.trusted, file, uploadDir.FindStringSubmatch(dir)[1], info.ModTime()})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b upload) int { return b.since.Compare(a.since) })
	return out
}

// uploadDirs are the names of the directories in a candidate that uploads have made.
func (r remoteFiles) uploadDirs(c candidate) []string {
	base := path.Join(c.trusted, c.own)
	for _, dir := range below(c.trusted, base) {
		if r.own(dir, true) != nil {
			return nil
		}
	}
	entries, err := r.ReadDir(base)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if uploadDir.MatchString(e.Name()) && r.own(path.Join(base, e.Name()), true) == nil {
			out = append(out, e.Name())
		}
	}
	return out
}

// tidy removes what earlier uploads have left, whole or cut off, and keeps one file. What
// cannot be removed, such as a program that runs on Windows, stays for the next time.
func (r remoteFiles) tidy(keep string) {
	for _, c := range r.candidates() {
		for _, name := range r.uploadDirs(c) {
			dir := path.Join(c.trusted, c.own, name)
			entries, err := r.ReadDir(dir)
			if err != nil {
				continue
			}
			for _, e := range entries {
				file := path.Join(dir, e.Name())
				part := strings.HasPrefix(e.Name(), r.agentName()+".") && strings.HasSuffix(e.Name(), partSuffix)
				if file != keep && (part || e.Name() == r.agentName()) {
					_ = r.Remove(file)
				}
			}
			if dir != path.Dir(keep) {
				_ = r.RemoveDirectory(dir) // not while something else is in it
			}
		}
	}
}

// partSuffix ends the name of a file that is being uploaded.
const partSuffix = ".part"

// place writes the agent into a directory of its own. It appears under its name only
// when it is complete and has the checksum on the host.
func (r remoteFiles) place(trusted, file string, agent []byte, sum string, sumOf func(file string) (string, error)) error {
	for _, dir := range below(trusted, path.Dir(file)) {
		if err := r.makeOwn(dir); err != nil {
			return err
		}
	}
	temporary := file + "." + strings.ToLower(rand.Text()[:10]) + partSuffix
	out, err := r.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return fmt.Errorf("a file cannot be made: %w", err)
	}
	defer func() { _ = r.Remove(temporary) }() // there is none after success
	_, err = out.ReadFrom(bytes.NewReader(agent))
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("the file cannot be written: %w", err)
	}
	if r.on.goos != "windows" {
		if err := r.Chmod(temporary, 0o700); err != nil {
			return fmt.Errorf("the file cannot be made executable: %w", err)
		}
	}
	found, err := sumOf(temporary)
	switch {
	case err != nil:
		return fmt.Errorf("the file cannot be read back: %w", err)
	case found != sum:
		return fmt.Errorf("the file was read back with the SHA-256 %s instead of %s", found, sum)
	}
	if err := r.PosixRename(temporary, file); err != nil {
		return fmt.Errorf("the file cannot be renamed: %w", err)
	}
	return nil
}

// makeOwn makes a directory for the user alone. One that is there is not changed: who
// could write to it may have done so.
func (r remoteFiles) makeOwn(dir string) error {
	err := r.own(dir, true)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	made := r.Mkdir(dir)
	if made == nil && r.on.goos != "windows" {
		if err := r.Chmod(dir, 0o700); err != nil {
			return fmt.Errorf("%s cannot be made private: %w", dir, err)
		}
	}
	// Another upload may have made it meanwhile.
	if err := r.own(dir, true); err != nil {
		if made != nil {
			err = made
		}
		return fmt.Errorf("%s cannot be made: %w", dir, err)
	}
	return nil
}

// own refuses what is not the user's own, or what others can write to. On Windows the
// profile's access list does this.
func (r remoteFiles) own(name string, dir bool) error {
	info, err := r.Lstat(name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	stat, ok := info.Sys().(*sftp.FileStat)
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%s is a link", name)
	case dir && !info.IsDir():
		return fmt.Errorf("%s is no directory", name)
	case !dir && !info.Mode().IsRegular():
		return fmt.Errorf("%s is no file", name)
	case r.on.goos == "windows":
		return nil
	case !ok || stat.UID != r.on.uid:
		return fmt.Errorf("%s belongs to another user", name)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("others can write to %s", name)
	}
	return nil
}

// below are the directories from one under trusted to dir.
func below(trusted, dir string) []string {
	var out []string
	for ; len(dir) > len(trusted); dir = path.Dir(dir) {
		out = append([]string{dir}, out...)
	}
	return out
}

// hash is the SHA-256 of a file.
func (r remoteFiles) hash(file string) (string, error) {
	in, err := r.Open(file)
	if err != nil {
		return "", err
	}
	defer func() { _ = in.Close() }() // nothing was written
	h := sha256.New()
	if _, err := io.Copy(h, in); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
