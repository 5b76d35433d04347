// Command agents builds gpu-agent for every platform, with the checksums, as it is
// shipped beside the provider.
package main

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
)

func main() {
	out := flag.String("out", "bin/agents", "directory to write to")
	version := flag.String("version", "dev", "version of the build")
	platforms := flag.String("platforms", "linux/amd64,linux/arm64,windows/amd64,windows/arm64", "what to build for")
	flag.Parse()
	if err := build(*out, *version, strings.Split(*platforms, ",")); err != nil {
		log.Fatal(err)
	}
}

func build(out, version string, platforms []string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	var sums strings.Builder
	for _, platform := range platforms {
		goos, goarch, ok := strings.Cut(platform, "/")
		if !ok {
			return fmt.Errorf("%q is not os/architecture", platform)
		}
		name := connect.AgentFile(goos, goarch)
		cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version="+version, //nolint:noctx // ends with the tool
			"-o", filepath.Join(out, name), "./cmd/gpu-agent")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		data, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), name)
	}
	return os.WriteFile(filepath.Join(out, connect.ChecksumsFile), []byte(sums.String()), 0o644)
}
