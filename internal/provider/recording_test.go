package provider_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// A plan on a recording says once how old that is, and is refused where the configuration
// wants a younger one, or one whose age is known.
func TestAgeOfARecording(t *testing.T) {
	t.Parallel()
	recorded := func(ages map[string]time.Duration) string {
		s := gpu.Snapshot{Format: gpu.SnapshotFormat}
		for _, h := range rig.TwoNodes().Hosts {
			age, timed := ages[h.Name]
			if !timed {
				s.Hosts = append(s.Hosts, h)
				continue
			}
			if err := s.Record(h, time.Now().Add(-age), "1.2.3"); err != nil {
				t.Fatal(err)
			}
		}
		doc, err := json.MarshalIndent(s, "", "  ") // as other programs format it
		if err != nil {
			t.Fatal(err)
		}
		return string(doc)
	}
	both := recorded(map[string]time.Duration{"hv01": time.Hour, "hv02": 3 * time.Hour})
	for name, c := range map[string]struct {
		file, most string
		refused    bool
		says       []string
		saysNot    string
	}{
		"any age": {
			file: both, says: []string{"The oldest recording, of hv02, was made on ", "3 hours ago"}, saysNot: "No time is recorded",
		},
		"young enough": {file: both, most: "4h", says: []string{"3 hours ago"}},
		"one too old": {
			file: both, most: "2h", refused: true,
			says: []string{"Hv02 was recorded on ", "3 hours ago", "Recordings of the last 2h", "gpu-agent record"}, saysNot: "hv01 was",
		},
		"edited": {file: strings.Replace(both, `"running"`, `"off"`, 1), says: []string{"(edited after it was recorded)", "3 hours ago"}},
		"edited, aged": {
			file: strings.Replace(both, `"running"`, `"off"`, 1), most: "4h", refused: true,
			says: []string{"No time is recorded of hv01 (edited after it was recorded)"},
		},
		"no time": {file: recorded(nil), says: []string{"No time is recorded of hv01 and hv02"}},
		"no time, aged": {
			file: recorded(map[string]time.Duration{"hv01": 0}), most: "4h", refused: true, says: []string{"No time is recorded of hv02"},
		},
		"in the future": {
			file: recorded(map[string]time.Duration{"hv01": 0, "hv02": -time.Hour}), most: "4h", refused: true,
			says: []string{"in the future by this machine's clock"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "recorded.json")
			rig.Write(t, file, c.file)
			most := ""
			if c.most != "" {
				most = fmt.Sprintf("max_snapshot_age = %q", c.most)
			}
			cli := rig.NewCLI(t, fmt.Sprintf("provider \"gpu\" {\n  owner = \"test\"\n  inventory_snapshot = %q\n  %s\n}\n", file, most)+rig.Config4)
			var out string
			if c.refused {
				if out = cli.Fails("plan"); !strings.Contains(out, "Error: Recorded inventory is too old") {
					t.Errorf("it is not refused for its age:\n%s", out)
				}
			} else if out = cli.Ok("plan"); strings.Count(out, "Warning: Planned on a recording") != 1 {
				t.Errorf("the plan does not say once that it is of a recording:\n%s", out)
			}
			flat := strings.Join(strings.Fields(strings.ReplaceAll(out, "│", " ")), " ")
			for _, text := range c.says {
				if !strings.Contains(flat, text) {
					t.Errorf("it does not say %q:\n%s", text, out)
				}
			}
			if c.saysNot != "" && strings.Contains(flat, c.saysNot) {
				t.Errorf("it says %q:\n%s", c.saysNot, out)
			}
		})
	}
	cli := rig.NewCLI(t, "provider \"gpu\" {\n  owner = \"test\"\n  inventory_snapshot = \"x\"\n  max_snapshot_age = \"a day\"\n}\n"+
		rig.Config4)
	if out := cli.Fails("plan"); !strings.Contains(out, "Invalid duration") {
		t.Errorf("an age that is none:\n%s", out)
	}
}
