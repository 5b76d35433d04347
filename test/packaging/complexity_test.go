package packaging_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The list of functions that may be more complex than others only gets shorter: one that is gone, or has another name, has no line.
func TestFunctionsWithoutALimitAreThere(t *testing.T) {
	t.Parallel()
	var config struct {
		Linters struct {
			Exclusions struct {
				Rules []struct{ Path, Text string }
			}
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, ".golangci.yml")), &config); err != nil {
		t.Fatal(err)
	}
	// What gocognit calls a function: `name`, or `(receiver).name`.
	named := regexp.MustCompile("^`(?:\\((.+)\\)\\.)?(\\w+)`$")
	for _, rule := range config.Linters.Exclusions.Rules {
		function := named.FindStringSubmatch(strings.ReplaceAll(rule.Text, `\`, ""))
		if function == nil {
			continue
		}
		dir := strings.Trim(rule.Path, "^/")
		declared := `(?m)^func ` + function[2] + `\b`
		if function[1] != "" {
			declared = `(?m)^func \((\w+ )?` + regexp.QuoteMeta(function[1]) + `\) ` + function[2] + `\b`
		}
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		there := false
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			there = there || regexp.MustCompile(declared).Match(text)
		}
		if !there {
			t.Errorf(".golangci.yml excepts %s from gocognit, and %s has no such function: remove the line", rule.Text, dir)
		}
	}
}
