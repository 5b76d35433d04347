package packaging_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSecurityNamesTests: what SECURITY.md says that nobody can do, a test says, and it is there.
func TestSecurityNamesTests(t *testing.T) {
	t.Parallel()
	there := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			there[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(read(t, "SECURITY.md")) {
		cells := strings.Split(strings.Trim(line, "|\n "), " | ")
		if len(cells) != 3 || cells[0] == "Who" || cells[0] == "---" {
			continue
		}
		rows++
		named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(cells[2], -1)
		if len(named) == 0 {
			t.Errorf("no test says what %s cannot do", cells[0])
		}
		for _, m := range named {
			if !there[m[1]] {
				t.Errorf("%s: there is no test %s", cells[0], m[1])
			}
		}
	}
	if rows < 5 {
		t.Errorf("SECURITY.md says it of %d", rows)
	}
}
