package planreport_test

import (
	"strings"
	"testing"
	"unicode"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/planreport"
)

// A document that is not a whole report of this version is refused, and the error says what it is.
func TestParseRefuses(t *testing.T) {
	t.Parallel()
	whole := encode(t, planreport.Report{Format: planreport.Format, Complete: true, Before: empty(), After: empty()})
	for name, x := range map[string]struct{ document, says string }{
		"nothing":                    {"", "it is empty"},
		"a text":                     {"Plan: 1 to add", "it is no JSON document"},
		"a list":                     {"[]", "it is no JSON document"},
		"Terraform's own plan":       {`{"format_version":"1.2","planned_values":{}}`, "it has no format"},
		"a fleet file":               {`{"format":"gpu-fleet/v1","hosts":[]}`, "it is a fleet file"},
		"a later version":            {`{"format":"gpu-plan-report/v2"}`, `of another version, "gpu-plan-report/v2"`},
		"a format of somebody else":  {`{"format":"x\u001b[2J"}`, `its format is "x\x1b[2J", and`},
		"one that is cut off":        {whole[:len(whole)/2], "it is cut off"},
		"one that lacks its end":     {strings.TrimSuffix(whole, "}\n"), "it is cut off"},
		"one with a damaged field":   {strings.Replace(whole, `"complete": true`, `"complete": "yes"`, 1), "it is a damaged plan report"},
		"one of hosts without names": {strings.Replace(whole, `"hosts": []`, `"hosts": [{}]`, 1), "before: host 0 has no name"},
		"one without hosts":          {`{"format":"gpu-plan-report/v1"}`, "it is a damaged plan report"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := planreport.Parse([]byte(x.document))
			if err == nil || !strings.Contains(err.Error(), x.says) {
				t.Errorf("the error is %v, want %q", err, x.says)
			}
		})
	}
}

// Whatever names a report has, its text is printable, and who reads it gets the names.
func TestNamesSurvive(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"avd-01", "größer 猫", "a\x1b[2Jb", "\u202eabc", "x\U000e0041", "\"\\\n\t", "<script>&", "\ufffd"} {
		r := planreport.Report{Format: planreport.Format, Before: empty(), After: empty(), Changes: []planreport.Change{{Label: name}}}
		text := encode(t, r)
		if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("%q: it is not printable at %d", name, i)
		}
		again, err := planreport.Parse([]byte(text))
		if err != nil || again.Changes[0].Label != name {
			t.Errorf("%q is read as %q (%v)", name, again.Changes[0].Label, err)
		}
	}
}

func empty() gpu.Snapshot { return gpu.Snapshot{Format: gpu.SnapshotFormat, Hosts: []gpu.Host{}} }

func encode(t *testing.T, r planreport.Report) string {
	t.Helper()
	text, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
