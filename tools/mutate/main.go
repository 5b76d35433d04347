// Command mutate breaks the places of list.go in the code, one at a time, and says which of
// them the tests of `make test` notice: those of the package first, then those of the
// packages that depend on it. The tree is not touched: go test gets the broken file as an
// overlay.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	only := flag.String("run", ".", "regular expression of the mutations to make, by name")
	near := flag.Bool("near", false, "run the tests of the mutated package only")
	without := flag.String("without", "", "regular expression of packages whose tests are not run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *only, *without, *near); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only, without string, near bool) error {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	skipped, err := regexp.Compile("^(" + without + ")$")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "gpu-mutate-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	packages, err := packagesUnderTest(ctx)
	if err != nil {
		return err
	}
	packages = slices.DeleteFunc(packages, func(p pkg) bool { return skipped.MatchString(p.path) })

	caught, tried := 0, 0
	var left []string
	for _, m := range list() {
		if !wanted.MatchString(m.name()) {
			continue
		}
		tried++
		begun := time.Now()
		by, err := m.try(ctx, dir, packages, near)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name(), err)
		}
		verdict := "caught by " + by
		if by == "" {
			verdict = "SURVIVED"
			left = append(left, m.name())
		} else {
			caught++
		}
		fmt.Printf("%-90s %s (%.0f s)\n", m.name(), verdict, time.Since(begun).Seconds())
	}
	fmt.Printf("\n%d of %d mutations caught\n", caught, tried)
	if len(left) > 0 {
		return fmt.Errorf("nothing noticed:\n  %s", strings.Join(left, "\n  "))
	}
	return nil
}

// try makes a mutation and returns the first package whose tests fail, "" if none does.
func (m mutation) try(ctx context.Context, dir string, packages []pkg, near bool) (by string, err error) {
	file, text, err := m.apply(".")
	if err != nil {
		return "", err
	}
	overlay, err := writeOverlay(dir, file, text)
	if err != nil {
		return "", err
	}
	if out, err := goTool(ctx, "build", "-overlay", overlay, "./"+m.in); err != nil {
		return "", fmt.Errorf("the mutation does not build: %w\n%s", err, out)
	}
	for _, p := range packages {
		if p.path != "./"+m.in && (near || !p.needs[m.in]) {
			continue
		}
		out, err := goTool(ctx, "test", "-short", "-vet=off", "-failfast", "-timeout=15m", "-overlay", overlay, p.path)
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			return "", err
		} else if err != nil {
			if bytes.Contains(out, []byte("[build failed]")) {
				return "", fmt.Errorf("%s does not build: %s", p.path, out)
			}
			return p.path + ": " + firstFailure(out), nil
		}
	}
	return "", nil
}

var failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

func firstFailure(out []byte) string {
	if f := failure.FindSubmatch(out); f != nil {
		return string(f[1])
	}
	return "it does not end well"
}

func writeOverlay(dir, file string, text []byte) (string, error) {
	broken, overlay := filepath.Join(dir, "broken.go"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(broken, text, 0o600); err != nil {
		return "", err
	}
	absolute, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	doc, err := json.Marshal(map[string]any{"Replace": map[string]string{absolute: broken}})
	if err != nil {
		return "", err
	}
	return overlay, os.WriteFile(overlay, doc, 0o600)
}

// pkg is a package with tests, and the folders of ours that it and they need.
type pkg struct {
	path  string
	needs map[string]bool
}

// packagesUnderTest are those of `make test`, the fastest to reach first: a package comes
// after those that it needs.
func packagesUnderTest(ctx context.Context) ([]pkg, error) {
	fast, err := exec.CommandContext(ctx, "make", "-s", "packages").Output()
	if err != nil {
		return nil, fmt.Errorf("make packages: %w", err)
	}
	args := append([]string{"list", "-test", "-f", "{{.ImportPath}}\t{{.ForTest}}\t{{.Module.Path}}\t{{join .Deps \" \"}}"}, strings.Fields(string(fast))...)
	out, err := goTool(ctx, args...)
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, out)
	}
	var packages []pkg
	for line := range strings.Lines(string(out)) {
		cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		path, isTest := strings.CutSuffix(cells[0], ".test")
		if !isTest || len(cells) != 4 {
			continue
		}
		p := pkg{path: "." + strings.TrimPrefix(path, cells[2]), needs: map[string]bool{}}
		for dep := range strings.FieldsSeq(cells[3]) {
			if ours, ok := strings.CutPrefix(dep, cells[2]+"/"); ok {
				p.needs[ours] = true
			}
		}
		packages = append(packages, p)
	}
	slices.SortFunc(packages, func(a, b pkg) int { return len(a.needs) - len(b.needs) })
	return packages, nil
}

func goTool(ctx context.Context, args ...string) ([]byte, error) {
	return exec.CommandContext(ctx, "go", args...).CombinedOutput()
}
