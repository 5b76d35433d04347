package main_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// checked runs `gpu-agent check` in a folder with these files.
func checked(t *testing.T, files map[string]string, args ...string) (out string, code int) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), binary, append([]string{"check"}, args...)...)
	cmd.Dir = dir
	raw, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(raw), cmd.ProcessState.ExitCode()
}

const misspelt = "resource \"gpu_partition_config\" \"one\" {\n  hosts    = [\"hgx01\"]\n" +
	"  selector = { gpu_id = { hgx01 = [\"GPU-1\"] } }\n" +
	"  mig      = { profiles = { \"1g.10gb\" = 7 } }\n}\n"

func TestCheckNamesFileLineAndName(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"main.tf":   misspelt,
		"good/a.tf": strings.ReplaceAll(misspelt, "gpu_id ", "gpu_ids "),
		"bad/a.tf":  "resource \"gpu_pool\" \"p\" {\n  selector = {\n",
		"other.txt": "",
	}
	for name, x := range map[string]struct {
		args []string
		code int
		says string
	}{
		"a misspelt name": {
			nil, 2, `main.tf:3:16: gpu_partition_config.one: selector has no "gpu_id", so that Terraform drops it without a word. ` +
				`Did you mean "gpu_ids"? (dropped-name)` + "\n1 finding in 1 file\n",
		},
		"a file stands for its folder": {[]string{"main.tf", "./main.tf"}, 2, "1 finding in 1 file\n"},
		"nothing":                      {[]string{"good"}, 0, "0 findings in 1 file\n"},
		"several folders":              {[]string{"good", "."}, 2, "1 finding in 2 files\n"},
		"bad syntax, and more":         {[]string{"bad", "."}, 1, "(syntax)\n"},
		"no folder":                    {[]string{"nowhere"}, 1, "nowhere"},
		"an unknown format":            {[]string{"-o", "yaml"}, 64, `-o is "yaml". There are "json", "sarif" and "text".`},
		"an unknown flag":              {[]string{"--outptu", "json"}, 64, `did you mean --output?`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, code := checked(t, files, x.args...)
			if code != x.code || !strings.Contains(out, x.says) {
				t.Errorf("exit code %d, want %d, and it says\n%s\nwithout %s", code, x.code, out, x.says)
			}
		})
	}
}

func TestCheckForPrograms(t *testing.T) {
	t.Parallel()
	files := map[string]string{"infra/main.tf": misspelt}
	out, code := checked(t, files, "-o", "json", "infra")
	var document struct {
		Format   string
		Findings []struct {
			Rule, File, Name string
			Line, Column     int
			Meant            []string
		}
	}
	if err := json.Unmarshal([]byte(out), &document); err != nil || code != 2 || len(document.Findings) != 1 {
		t.Fatalf("exit code %d, %v:\n%s", code, err, out)
	}
	if f := document.Findings[0]; document.Format != "gpu-agent-check/v1" || f.Rule != "dropped-name" || f.Name != "gpu_id" ||
		filepath.ToSlash(f.File) != "infra/main.tf" || f.Line != 3 || f.Column != 16 || len(f.Meant) != 1 || f.Meant[0] != "gpu_ids" {
		t.Errorf("it says %+v", f)
	}

	out, code = checked(t, files, "-o", "sarif", "infra")
	var sarif struct {
		Version string
		Runs    []struct {
			Tool struct {
				Driver struct{ Rules []struct{ ID string } }
			}
			Results []struct {
				RuleID    string
				Message   struct{ Text string }
				Locations []struct {
					PhysicalLocation struct {
						ArtifactLocation struct{ URI string }
						Region           struct{ StartLine, StartColumn, EndLine, EndColumn int }
					}
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &sarif); err != nil || code != 2 || len(sarif.Runs) != 1 || len(sarif.Runs[0].Results) != 1 {
		t.Fatalf("exit code %d, %v:\n%s", code, err, out)
	}
	result := sarif.Runs[0].Results[0]
	at := result.Locations[0].PhysicalLocation
	if sarif.Version != "2.1.0" || result.RuleID != "dropped-name" || at.ArtifactLocation.URI != "infra/main.tf" || at.Region.StartLine != 3 ||
		at.Region.EndColumn <= at.Region.StartColumn || !strings.Contains(result.Message.Text, `"gpu_ids"`) {
		t.Errorf("it says %+v", result)
	}
	out, code = checked(t, map[string]string{"main.tf": strings.ReplaceAll(misspelt, "gpu_id ", "gpu_ids ")}, "-o", "sarif")
	if !strings.Contains(out, `"results": []`) || code != 0 {
		t.Errorf("of a clean configuration, with exit code %d:\n%s", code, out)
	}
}

// Names are others' texts: none steers a terminal or makes a line of its own.
func TestCheckPrintsNamesPlainly(t *testing.T) {
	t.Parallel()
	out, _ := checked(t, map[string]string{"main.tf": strings.ReplaceAll(misspelt, "gpu_id ", `"\u001b[2J\na.tf:1:1: fine" `)})
	if strings.Contains(out, "\x1b") || strings.Count(out, "\n") != 2 {
		t.Errorf("it prints %q", out)
	}
}
