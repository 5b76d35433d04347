//go:build !windows

package statedir_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent/statedir"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

func init() { tasks["fill"] = fillUnderLimit }

// smallDisk is how many bytes there is space for.
const smallDisk = 64 << 10

// TestFullDisk claims until there is no space for more.
func TestFullDisk(t *testing.T) {
	t.Run("no space left", func(t *testing.T) {
		disk := newDir(t)
		if err := os.Mkdir(disk, 0o700); err != nil {
			t.Fatal(err)
		}
		mountSmallDisk(t, disk)
		d := open(t, filepath.Join(disk, "state"))
		ballast := filepath.Join(disk, "ballast")
		if err := os.WriteFile(ballast, make([]byte, smallDisk/4), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := untilFull(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if left := files(t, filepath.Join(disk, "state")); len(left) != 2 {
			t.Errorf("the directory holds %v, want the state and its lock", left)
		}
		fence := load(t, d).Fence
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		if err := d.Update(t.Context(), claimOnce); err != nil {
			t.Fatalf("there is space again: %v", err)
		}
		wantWhole(t, d, fence+1)
	})
	t.Run("a limit of the process", func(t *testing.T) {
		dir := newDir(t)
		if out, err := process(t, dir, "fill").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		d := open(t, dir)
		fence := load(t, d).Fence
		if err := d.Update(t.Context(), claimOnce); err != nil {
			t.Fatal(err)
		}
		wantWhole(t, d, fence+1)
	})
}

func fillUnderLimit(ctx context.Context, d *statedir.Dir) error {
	signal.Ignore(unix.SIGXFSZ) // so that the write fails instead of ending the process
	limit := unix.Rlimit{Cur: smallDisk, Max: smallDisk}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	return untilFull(ctx, d)
}

// untilFull wants an error that says so, and the state before to stand.
func untilFull(ctx context.Context, d *statedir.Dir) error {
	var err error
	var stored int64
	for n := 0; err == nil && n < smallDisk; n += 20 { // a claim takes a byte and more
		err = d.Update(ctx, func(s *backend.State) error {
			stored = s.Fence
			for range 20 {
				if err := claimOnce(s); err != nil {
					return err
				}
			}
			return nil
		})
	}
	var e *statedir.Error
	if !errors.As(err, &e) || e.Code != statedir.Full {
		return fmt.Errorf("want an error that says that the disk is full, got: %w", err)
	}
	state, err := d.Load(ctx)
	if err != nil {
		return err
	}
	if stored == 0 || state.Fence != stored || int64(len(state.Claims)) != stored {
		return fmt.Errorf("%d claims at fence %d stand, want %d", len(state.Claims), state.Fence, stored)
	}
	return nil
}

func TestFilesAreTheOwnersAlone(t *testing.T) {
	dir := newDir(t)
	old := unix.Umask(0)
	defer unix.Umask(old)
	if err := open(t, dir).Update(t.Context(), raiseFence); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{
		dir: os.ModeDir | 0o700, filepath.Join(dir, "state.json"): 0o600, filepath.Join(dir, "state.lock"): 0o600,
	} {
		if info, err := os.Lstat(path); err != nil || info.Mode() != want {
			t.Errorf("%s has mode %v, want %v; error %v", path, info.Mode(), want, err)
		}
	}
}

func TestDirectoryThatOthersCanWriteTo(t *testing.T) {
	for _, mode := range []os.FileMode{0o720, 0o702, 0o777} {
		dir := newDir(t)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		_, err := statedir.Open(dir)
		wantError(t, err, statedir.Unsafe, dir, fmt.Sprintf("%04o", mode), "chmod go-w "+dir)
	}
}

func TestDirectoryOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory to another user; run the tests as root to include this one")
	}
	dir := newDir(t)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, 1234, 1234); err != nil {
		t.Fatal(err)
	}
	_, err := statedir.Open(dir)
	wantError(t, err, statedir.Unsafe, dir, "1234", "chown 0 "+dir)
}

// TestDirectoriesAbove asks for a state directory below directories that others may, or may not, replace it in.
func TestDirectoriesAbove(t *testing.T) {
	another := 1234
	for name, test := range map[string]struct {
		modes []os.FileMode // of the directories above the state's, outermost first
		owner int           // of the outermost
		link  bool          // the state's directory is reached by a link to the outermost
		wants []string      // of the error; none where it is accepted
	}{
		"closed":                 {modes: []os.FileMode{0o755, 0o700}},
		"sticky":                 {modes: []os.FileMode{os.ModeSticky | 0o777, 0o755}},
		"just above":             {modes: []os.FileMode{0o755, 0o777}, wants: []string{"others can replace it", "mode 0777", "chmod go-w "}},
		"further above":          {modes: []os.FileMode{0o777, 0o755}, wants: []string{"others can replace it", "mode 0777", "chmod go-w "}},
		"of a group":             {modes: []os.FileMode{0o775, 0o755}, wants: []string{"mode 0775"}},
		"through a link":         {modes: []os.FileMode{0o777, 0o755}, link: true, wants: []string{"mode 0777"}},
		"through a link, closed": {modes: []os.FileMode{0o755}, link: true},
		"another user's": {
			modes: []os.FileMode{0o755, 0o755}, owner: another, wants: []string{"user id 1234 can replace it", "chown 0 "},
		},
		"another user's, but sticky": {
			modes: []os.FileMode{os.ModeSticky | 0o777, 0o755}, owner: another, wants: []string{"user id 1234 can replace it"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if test.owner != 0 && os.Geteuid() != 0 {
				t.Skip("only root can give a directory to another user; run the tests as root to include this one")
			}
			root, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			dir, outermost := root, ""
			for i, mode := range test.modes {
				dir = filepath.Join(dir, fmt.Sprint("above", i))
				if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, mode)); err != nil {
					t.Fatal(err)
				}
				if i == 0 {
					outermost = dir
				}
			}
			if test.owner != 0 {
				if err := os.Chown(outermost, test.owner, test.owner); err != nil {
					t.Fatal(err)
				}
			}
			if test.link {
				link := filepath.Join(root, "link")
				if err := os.Symlink("above0", link); err != nil {
					t.Fatal(err)
				}
				dir = filepath.Join(link, strings.TrimPrefix(dir, outermost))
			}
			dir = filepath.Join(dir, "gpu-agent")
			if _, err = statedir.Open(dir); len(test.wants) > 0 {
				wantError(t, err, statedir.Unsafe, append(test.wants, dir)...)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLinkOfAnotherUser: what is above a directory by a link is whatever the link's owner says.
func TestLinkOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a link to another user; run the tests as root to include this one")
	}
	open(t, newDir(t))
	link := filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.Symlink(t.TempDir(), link), os.Lchown(link, 1234, 1234)); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(link, "gpu-agent")
	_, err := statedir.Open(dir)
	wantError(t, err, statedir.Unsafe, dir, "user id 1234 can replace it: "+link)
}

func TestLinksAreRefused(t *testing.T) {
	target := newDir(t)
	if err := open(t, target).Update(t.Context(), raiseFence); err != nil {
		t.Fatal(err)
	}
	link := func(t *testing.T, to, from string) {
		t.Helper()
		if err := os.Symlink(to, from); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("directory", func(t *testing.T) {
		dir := newDir(t)
		link(t, target, dir)
		_, err := statedir.Open(dir)
		wantError(t, err, statedir.Unsafe, dir, "link")
	})
	t.Run("state", func(t *testing.T) {
		dir := newDir(t)
		d := open(t, dir)
		link(t, filepath.Join(target, "state.json"), filepath.Join(dir, "state.json"))
		_, err := d.Load(t.Context())
		wantError(t, err, statedir.Unsafe, dir, "link")
		wantError(t, d.Update(t.Context(), raiseFence), statedir.Unsafe, dir, "link")
	})
	t.Run("lock", func(t *testing.T) {
		dir := newDir(t)
		d := open(t, dir)
		other := filepath.Join(t.TempDir(), "precious")
		link(t, other, filepath.Join(dir, "state.lock"))
		wantError(t, d.Update(t.Context(), raiseFence), statedir.Unusable, dir)
		if _, err := os.Lstat(other); err == nil {
			t.Error("a file was made through the link")
		}
	})
	wantState(t, open(t, target), backend.State{Fence: 1})
}

// TestReaderDoesNotWait reads while another process is in the middle of an update, and
// in a directory that cannot be written to.
func TestReaderDoesNotWait(t *testing.T) {
	dir := newDir(t)
	d := open(t, dir)
	if err := d.Update(t.Context(), claimOnce); err != nil {
		t.Fatal(err)
	}
	err := open(t, dir).Update(t.Context(), func(s *backend.State) error {
		wantWhole(t, d, 1)
		return raiseFence(s)
	})
	if err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		return // root writes anywhere
	}
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	if state := load(t, d); state.Fence != 2 {
		t.Errorf("the fence is %d, want 2", state.Fence)
	}
	wantError(t, d.Update(t.Context(), raiseFence), statedir.Unusable, dir, "owner")
}
