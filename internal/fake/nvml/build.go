//go:build linux

package fakenvml

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

//go:embed lib/*.c lib/*.h
var sources embed.FS

// The files of a build.
const (
	libraryFile  = "libnvidia-ml.so.1"
	smiFile      = "nvidia-smi"
	operatorFile = "operator"
	exportsFile  = "exports.map"
)

// Build compiles the library without some functions, as an old driver has it, and the
// programs beside it, and returns their directory. A build is kept in the system's
// directory for temporary files, under a name made from all that goes into it.
func Build(tb testing.TB, missing ...string) string {
	tb.Helper()
	key := strings.Join(missing, " ")
	if dir, ok := builds.Load(key); ok {
		return dir.(string) //nolint:forcetypeassert // nothing else is stored
	}
	header, err := nvmlHeader()
	if err != nil {
		tb.Fatal(err)
	}
	dir, err := build(header, missing)
	if err != nil {
		tb.Fatal(err)
	}
	builds.Store(key, dir)
	return dir
}

// builds are the directories of this process by what is missing: to look for one again takes
// as long as a scenario.
var builds sync.Map

// nvmlHeader is the directory of nvml.h, in the go-nvml that the module depends on.
var nvmlHeader = sync.OnceValues(func() (string, error) {
	const module = "github.com/NVIDIA/go-nvml"
	out, err := exec.CommandContext(context.Background(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("fakenvml: where is the module %s: %w", module, err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "pkg", "nvml"), nil
})

func build(include string, missing []string) (string, error) {
	header, err := os.ReadFile(filepath.Join(include, "nvml.h"))
	if err != nil {
		return "", fmt.Errorf("fakenvml: %w", err)
	}
	functions := functionsOf(header)
	for _, name := range missing {
		if !slices.Contains(functions, name) {
			return "", fmt.Errorf("fakenvml: nvml.h has no function %s that could be missing", name)
		}
	}
	files, err := inputs(functions, missing)
	if err != nil {
		return "", err
	}
	root, err := cacheRoot()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, name(header, files))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	return dir, buildInto(dir, include, files)
}

// inputs are the files to compile, and the linker's script.
func inputs(functions, missing []string) (map[string][]byte, error) {
	files := map[string][]byte{
		"stubs.c":   stubs(functions),
		exportsFile: exports(functions, missing),
	}
	entries, err := fs.ReadDir(sources, "lib")
	for _, e := range entries {
		if files[e.Name()], err = sources.ReadFile("lib/" + e.Name()); err != nil {
			break
		}
	}
	return files, err
}

// cacheRoot is a directory of this user alone.
func cacheRoot() (string, error) {
	root := filepath.Join(os.TempDir(), fmt.Sprintf("fakenvml-%d", os.Getuid()))
	if err := os.Mkdir(root, 0o700); err != nil && !os.IsExist(err) {
		return "", fmt.Errorf("fakenvml: %w", err)
	}
	info, err := os.Lstat(root)
	if err != nil {
		return "", fmt.Errorf("fakenvml: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(stat.Uid) != os.Getuid() || info.Mode().Perm() != 0o700 {
		return "", fmt.Errorf("fakenvml: %s is not a directory of this user alone: remove it", root)
	}
	return root, nil
}

func name(header []byte, files map[string][]byte) string {
	sum := sha256.New()
	sum.Write(header)
	names := make([]string, 0, len(files))
	for n := range files {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		fmt.Fprintf(sum, "%s %d\n", n, len(files[n]))
		sum.Write(files[n])
	}
	return hex.EncodeToString(sum.Sum(nil))[:20]
}

// buildInto builds beside the directory and then renames: other processes see all of a
// build or nothing, and the first of two that build at once wins.
func buildInto(dir, include string, files map[string][]byte) error {
	work, err := os.MkdirTemp(filepath.Dir(dir), "build-")
	if err != nil {
		return fmt.Errorf("fakenvml: %w", err)
	}
	defer os.RemoveAll(work)
	for n, content := range files {
		if err := os.WriteFile(filepath.Join(work, n), content, 0o600); err != nil {
			return fmt.Errorf("fakenvml: %w", err)
		}
	}
	if err := compile(work, include, files); err != nil {
		return err
	}
	if err := os.Rename(work, dir); err != nil {
		if _, other := os.Stat(dir); other != nil {
			return fmt.Errorf("fakenvml: %w", err)
		}
	}
	return nil
}

// compile makes objects of all sources at once, and links the library and two programs
// from them. Only the sources of their main functions are not shared.
func compile(work, include string, files map[string][]byte) error {
	all := []string{"-c", "-std=gnu11", "-O0", "-fPIC", "-Wall", "-Wno-deprecated-declarations", "-I" + include}
	var objects []string
	for n := range files {
		base, isSource := strings.CutSuffix(n, ".c")
		if !isSource {
			continue
		}
		all = append(all, n)
		if base != "smi" && base != "operator" {
			objects = append(objects, base+".o")
		}
	}
	slices.Sort(objects)
	library := []string{"-shared", "-o", libraryFile, "-Wl,-soname," + libraryFile, "-Wl,--version-script=" + exportsFile}
	for _, args := range [][]string{
		all,
		append(library, objects...),
		append([]string{"-o", smiFile, "smi.o"}, objects...),
		append([]string{"-o", operatorFile, "operator.o"}, objects...),
	} {
		if err := cc(work, args); err != nil {
			return err
		}
	}
	return nil
}

func cc(dir string, args []string) error {
	compiler := os.Getenv("CC")
	if compiler == "" {
		compiler = "gcc"
	}
	c := exec.CommandContext(context.Background(), compiler, append(args, "-lpthread")...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("fakenvml: %s: %w; a C compiler is needed, as for cgo\n%s", c, err, out)
	}
	return nil
}
