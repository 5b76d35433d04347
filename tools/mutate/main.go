// Command mutate breaks the places of list.go in the code, one at a time, and says which of
// them the tests of `make test` notice: those of the package first, then those of the
// packages that depend on it. The tree is not touched: the tests are built, once, with an
// overlay that has all mutations in it, and the environment says which one counts.
package main

import (
	"cmp"
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
	err := run(ctx, *only, *without, *near)
	stop()
	if err != nil {
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

	all := slices.DeleteFunc(list(), func(m mutation) bool { return !wanted.MatchString(m.name()) })
	overlay, err := writeOverlay(dir, all)
	if err != nil {
		return err
	}
	b := &builder{dir: dir, overlay: overlay, built: map[string][]test{}}
	caught, tried := 0, 0
	var left []string
	for _, m := range all {
		tried++
		begun := time.Now()
		by, err := b.try(ctx, m, packages, near)
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

// builder builds the tests of packages with all mutations in them.
type builder struct {
	dir, overlay string
	built        map[string][]test // by package
}

// test is one test of a package, and the mutations that it comes by.
type test struct {
	binary, name string
	reaches      map[string]bool
	took         time.Duration
}

// build builds the tests of a package and runs each once without a mutation, the shortest first
// from then on.
func (b *builder) build(ctx context.Context, path string) ([]test, error) {
	if tests, ok := b.built[path]; ok {
		return tests, nil
	}
	binary := filepath.Join(b.dir, fmt.Sprintf("%d.test", len(b.built)))
	if out, err := goTool(ctx, "test", "-c", "-vet=off", "-overlay", b.overlay, "-o", binary, path); err != nil {
		return nil, fmt.Errorf("%s does not build with the mutations: %w\n%s", path, err, out)
	}
	b.built[path] = nil
	if _, err := os.Stat(binary); err != nil {
		return nil, nil // it has no tests
	}
	list := exec.CommandContext(ctx, binary, "-test.list", "^(Test|Fuzz|Example)")
	list.Dir = path
	names, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("the tests of %s cannot be listed: %w", path, err)
	}
	var tests []test
	for name := range strings.FieldsSeq(string(names)) {
		t := test{binary: binary, name: name, reaches: map[string]bool{}}
		reached := filepath.Join(b.dir, "reached")
		begun := time.Now()
		// A test that fails without a mutation would catch all that it comes by.
		if out, err := t.run(ctx, path, reachedVariable+"="+reached); err != nil {
			return nil, fmt.Errorf("%s of %s fails without a mutation: %w\n%s", name, path, err, out)
		}
		t.took = time.Since(begun)
		data, err := os.ReadFile(reached)
		if err != nil {
			continue // it comes by none
		}
		for line := range strings.Lines(string(data)) {
			t.reaches[strings.TrimSuffix(line, "\n")] = true
		}
		tests = append(tests, t)
		if err := os.Remove(reached); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(tests, func(a, b test) int { return cmp.Compare(a.took, b.took) })
	b.built[path] = tests
	return tests, nil
}

func (t *test) run(ctx context.Context, dir, env string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, t.binary, "-test.short", "-test.timeout=15m", "-test.run", "^"+t.name+"$")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env)
	return cmd.CombinedOutput()
}

// try lets a mutation count and returns the first test that fails, "" if none does.
func (b *builder) try(ctx context.Context, m mutation, packages []pkg, near bool) (by string, err error) {
	for _, p := range packages {
		if p.path != "./"+m.in && (near || !p.needs[m.in]) {
			continue
		}
		tests, err := b.build(ctx, p.path)
		if err != nil {
			return "", err
		}
		for _, t := range tests {
			if !t.reaches[m.name()] {
				continue
			}
			out, err := t.run(ctx, p.path, variable+"="+m.name())
			if ctx.Err() != nil {
				return "", ctx.Err()
			}
			if _, failed := errors.AsType[*exec.ExitError](err); failed {
				return p.path + ": " + firstFailure(out), nil
			}
			if err != nil {
				return "", err
			}
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

func writeOverlay(dir string, all []mutation) (string, error) {
	places, err := locate(".", all)
	if err != nil {
		return "", err
	}
	files, err := broken(places)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for file, text := range files {
		absolute, err := filepath.Abs(file)
		if err != nil {
			return "", err
		}
		replace[absolute] = filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		if err := os.WriteFile(replace[absolute], text, 0o600); err != nil {
			return "", err
		}
	}
	doc, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
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
	args := append([]string{"list", "-test", "-f", "{{.ImportPath}}\t{{.ForTest}}\t{{.Module.Path}}\t{{join .Deps \" \"}}"},
		strings.Fields(string(fast))...)
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
