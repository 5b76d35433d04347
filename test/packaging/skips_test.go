package packaging_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A test that lacks a tool is skipped with one line, which the summary prints: "there is no", the
// tool, a colon, and how to install it.
func TestSkipsSayHowToInstallWhatIsMissing(t *testing.T) {
	t.Parallel()
	skip := regexp.MustCompile(`(?:Skipf?\(|lacking\(t, |missing := )"([^"]*)"`)
	form := regexp.MustCompile(`^there is no [^:]+: (apt-get install --no-install-recommends |make )`)
	named := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, found := range skip.FindAllStringSubmatch(string(text), -1) {
			says := found[1]
			switch {
			case says == "there is no ": // and the name follows
			case strings.HasPrefix(says, "there is no "):
				if named++; !form.MatchString(says) {
					t.Errorf("%s skips a test with %q", path, says)
				}
			case strings.Contains(says, "installed") && !strings.HasPrefix(says, "the installed "), strings.HasPrefix(says, "it needs "):
				if !strings.Contains(says, "it needs a real CLI: make testacc") {
					t.Errorf("%s skips a test for want of a tool with %q, and the others begin with %q", path, says, "there is no")
				}
			}
		}
		return nil
	})
	if err != nil || named < 15 {
		t.Errorf("%d skips name a tool: %v", named, err)
	}
}
