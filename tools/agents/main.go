// Command agents builds gpu-agent for every platform, with the checksums, as it is
// shipped beside the provider.
package main

import (
	"crypto/sha256"
	"debug/elf"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
)

func main() {
	out := flag.String("out", "bin/agents", "directory to write to")
	version := flag.String("version", "dev", "version of the build")
	platforms := flag.String("platforms", "linux/amd64,linux/arm64,windows/amd64,windows/arm64", "what to build for")
	when := flag.String("sign", signNever, "when the agents for Windows are signed: never, if-possible or always")
	nvml := flag.String("nvml", ifPossible, "when the agents for Linux are built with NVML: if-possible or always")
	flag.Parse()
	if !slices.Contains([]string{ifPossible, always}, *nvml) {
		log.Fatalf("-nvml is %q; it must be %s or %s", *nvml, ifPossible, always)
	}
	if !slices.Contains([]string{signNever, ifPossible, always}, *when) {
		log.Fatalf("-sign is %q; it must be %s, %s or %s", *when, signNever, ifPossible, always)
	}
	if err := build(*out, *version, strings.Split(*platforms, ","), *when, *nvml == always); err != nil {
		log.Fatal(err)
	}
}

// compilers are the C compilers that the agent for Linux needs, which loads NVML. The
// one for this machine is gcc.
var compilers = map[string]string{"amd64": "x86_64-linux-gnu-gcc", "arm64": "aarch64-linux-gnu-gcc"}

// cgo is the part of the environment that says whether and how C is compiled. withC is false
// where it is not.
func cgo(goos, goarch string, must bool) (env []string, withC bool, err error) {
	if goos != "linux" {
		return []string{"CGO_ENABLED=0"}, false, nil
	}
	compiler := compilers[goarch]
	if goarch == runtime.GOARCH {
		compiler = "gcc"
	}
	if _, err := exec.LookPath(compiler); err != nil {
		if must {
			return nil, false, fmt.Errorf("linux/%s: %w; it is in the package gcc-%s", goarch, err, strings.TrimSuffix(compiler, "-gcc"))
		}
		log.Printf("linux/%s: %s is not installed, so this agent is built without NVML and works on simulated hosts only", goarch, compiler)
		return []string{"CGO_ENABLED=0"}, false, nil
	}
	versions, err := filepath.Abs(filepath.Join("tools", "agents", "glibc.h"))
	if err != nil {
		return nil, false, err
	}
	return []string{
		"CGO_ENABLED=1", "CC=" + compiler, "CGO_LDFLAGS=-Wl,-z,lazy", "CGO_CFLAGS=-O2 -Wno-deprecated-declarations -include " + versions,
	}, true, nil
}

// forOldLinux links an agent that starts with older C libraries than the one it is built with:
// see glibc.h, and start_linux.c of the agent. The names of hosts are resolved by Go, as what
// glibc has for it is too new.
const (
	tagsForOldLinux = ",netgo,glibc228"
	linkForOldLinux = " -linkmode=external -extldflags '-Wl,--wrap=__libc_start_main -Wl,--no-as-needed -l:libdl.so.2 -l:libpthread.so.0'"
)

// newestGlibc is the release of glibc that an agent for Linux may ask for: that of RHEL 8.
var newestGlibc = []int{2, 28}

// checkGlibc finds what a program asks for of a newer glibc: it would not start with an older one.
func checkGlibc(file string) error {
	program, err := elf.Open(file)
	if err != nil {
		return err
	}
	defer program.Close()
	symbols, err := program.ImportedSymbols()
	if err != nil {
		return err
	}
	var newer []string
	for _, s := range symbols {
		release, ok := strings.CutPrefix(s.Version, "GLIBC_")
		if !ok {
			continue
		}
		var numbers []int
		for part := range strings.SplitSeq(release, ".") {
			n, err := strconv.Atoi(part)
			if err != nil {
				return fmt.Errorf("%s has the version %s", s.Name, s.Version)
			}
			numbers = append(numbers, n)
		}
		if slices.Compare(numbers, newestGlibc) > 0 {
			newer = append(newer, s.Name+"@"+s.Version)
		}
	}
	if len(newer) > 0 {
		return fmt.Errorf("it asks for a glibc newer than %d.%d: %s; add them to tools/agents/glibc.h",
			newestGlibc[0], newestGlibc[1], strings.Join(newer, ", "))
	}
	return nil
}

func build(out, version string, platforms []string, when string, nvml bool) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	var sums strings.Builder
	// Without the tag, gRPC brings a web page of traces that nobody serves, and templates
	// for it: a fifth of the agent.
	for _, platform := range platforms {
		goos, goarch, ok := strings.Cut(platform, "/")
		if !ok {
			return fmt.Errorf("%q is not os/architecture", platform)
		}
		name := connect.AgentFile(goos, goarch)
		env, withC, err := cgo(goos, goarch, nvml)
		if err != nil {
			return err
		}
		// The id of the build has the folder that it was built in.
		tags, link := "grpcnotrace", "-s -w -buildid= -X main.version="+version
		if withC {
			tags, link = tags+tagsForOldLinux, link+linkForOldLinux
		}
		cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", tags, "-ldflags", link, //nolint:noctx // ends with the tool
			"-o", filepath.Join(out, name), "./cmd/gpu-agent")
		cmd.Env = append(os.Environ(), append(env, "GOOS="+goos, "GOARCH="+goarch)...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if withC {
			if err := checkGlibc(filepath.Join(out, name)); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		if goos == "windows" {
			if err := sign(filepath.Join(out, name), when); err != nil {
				return err
			}
		}
		data, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), name)
	}
	return os.WriteFile(filepath.Join(out, connect.ChecksumsFile), []byte(sums.String()), 0o644)
}
