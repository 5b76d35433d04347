package migparted_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/migparted"
)

// verdict is what mig-parted makes of a file.
type verdict struct {
	Error string
	Value struct {
		Configs map[string][]struct {
			Filter   json.RawMessage `json:"device-filter"`
			Devices  json.RawMessage `json:"devices"`
			Enabled  bool            `json:"mig-enabled"`
			Profiles map[string]int  `json:"mig-devices"`
		} `json:"mig-configs"`
	}
}

// verdicts are those of mig-parted's own code.
func verdicts(t *testing.T, texts []string) []verdict {
	t.Helper()
	program := os.Getenv("GPU_TEST_PARSERS")
	if program == "" {
		t.Skip("there is no mig-parted: make test-parsers builds its parser")
	}
	in, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "mig-parted")
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	data, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var out []verdict
	if err := json.Unmarshal(data, &out); err != nil || len(out) != len(texts) {
		t.Fatalf("%d verdicts of %d: %v", len(out), len(texts), err)
	}
	return out
}

// config is what mig-parted has read, as the product has it.
func (v *verdict) config(t *testing.T) migparted.Config {
	t.Helper()
	out := migparted.Config{}
	for label, entries := range v.Value.Configs {
		for _, e := range entries {
			mine := migparted.Entry{All: string(e.Devices) == `"all"`, Enabled: e.Enabled, Profiles: map[string]int{}}
			if !mine.All {
				decode(t, e.Devices, &mine.Devices)
			}
			var filter []string
			if text := string(e.Filter); strings.HasPrefix(text, `"`) && text != `""` {
				filter = make([]string, 1)
				decode(t, e.Filter, &filter[0])
			} else if strings.HasPrefix(text, "[") {
				decode(t, e.Filter, &filter)
			}
			for _, f := range filter {
				id, err := migparted.ParseDeviceID(f)
				if err != nil {
					t.Errorf("mig-parted would match nothing by %q", f)
				}
				if !slices.Contains(mine.Filter, id) {
					mine.Filter = append(mine.Filter, id)
				}
			}
			for name, n := range e.Profiles {
				if n != 0 {
					mine.Profiles[name] = n
				}
			}
			out[label] = append(out[label], mine)
		}
	}
	return out
}

func decode(t *testing.T, raw json.RawMessage, to any) {
	t.Helper()
	if err := json.Unmarshal(raw, to); err != nil {
		t.Fatal(err)
	}
}

const generated = 200

var (
	oddLabel = rapid.SampledFrom([]string{
		"all-balanced", "on", "off", "no", "y", "null", "~", "1", "1.0", "010", "0x1", "<<", "=", "a: b", "#", "true",
	})
	aProfile = rapid.StringMatching(`([1-4]c\.)?[1-7]g\.[1-9][0-9]{0,2}gb(\+me|\+me\.all|\+gfx|-me|\+gfx,me)?`)
	anIndex  = rapid.IntRange(0, 15)
	anID     = rapid.Custom(func(t *rapid.T) gpu.PCIID {
		hex := rapid.StringMatching(`[0-7][0-9A-F]{3}`)
		id := gpu.PCIID{Vendor: "10DE", Device: hex.Draw(t, "device")}
		if rapid.Bool().Draw(t, "qualified") {
			id.Subsystem = hex.Draw(t, "subsystem") + "10DE"
		}
		return id
	})
	anEntry = rapid.Custom(func(t *rapid.T) migparted.Entry {
		e := migparted.Entry{Enabled: rapid.Bool().Draw(t, "enabled"), All: rapid.Bool().Draw(t, "all")}
		e.Filter = rapid.SliceOfNDistinct(anID, 0, 3, rapid.ID).Draw(t, "filter")
		if !e.All {
			e.Devices = rapid.SliceOfNDistinct(anIndex, 0, 4, rapid.ID).Draw(t, "devices")
		}
		if e.Enabled {
			e.Profiles = rapid.MapOfN(aProfile, rapid.IntRange(1, 7), 0, 3).Draw(t, "profiles")
		}
		return e
	})
	aConfig = rapid.Custom(func(t *rapid.T) migparted.Config {
		label := rapid.OneOf(oddLabel, rapid.StringN(1, 12, 40))
		return rapid.MapOfN(label, rapid.SliceOfN(anEntry, 1, 3), 1, 4).Draw(t, "config")
	})
)

// TestMIGPartedReadsIt renders files, of which mig-parted's own code must read what they say. So must Parse, from a ConfigMap too.
func TestMIGPartedReadsIt(t *testing.T) {
	t.Parallel()
	var configs []migparted.Config
	var texts []string
	for seed := range generated {
		c := aConfig.Example(seed)
		text, err := migparted.Render(c)
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		configs, texts = append(configs, c), append(texts, string(text))
	}
	for i, v := range verdicts(t, texts) {
		if v.Error != "" {
			t.Errorf("mig-parted says %s of\n%s", v.Error, texts[i])
			continue
		}
		for who, read := range map[string]migparted.Config{"mig-parted": v.config(t), "Parse": parsed(t, texts[i])} {
			if diff := cmp.Diff(configs[i], read, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s (-want +got):\n%s\n%s", who, diff, texts[i])
			}
		}
	}
}

// aFile is a file as people write them, often a wrong one.
var aFile = rapid.Custom(func(t *rapid.T) string {
	one := func(what string, of ...string) string { return rapid.SampledFrom(of).Draw(t, what) }
	usually := func(what, usual string, of ...string) string {
		if rapid.IntRange(0, 11).Draw(t, what+"?") > 0 {
			return usual
		}
		return one(what, of...)
	}
	var b strings.Builder
	b.WriteString(usually("version", "version: v1\n",
		"", "version: v2\n", "version: 1\n", "version: null\n", "version: \"v1\"\n", "Version: v1\n"))
	b.WriteString(usually("more", "", "x: y\n", "version: v1\n", "---\n", "# text\n", "mig-configs: {}\n"))
	b.WriteString(usually("configs", "mig-configs:\n", "mig-config:\n", "mig-configs:\n  empty: []\n", "mig-configs:\n  nothing:\n"))
	for range rapid.IntRange(1, 3).Draw(t, "labels") {
		fmt.Fprintf(&b, "  %s:\n", one("label", "a", "b", "all-1g.5gb", "on", "yes", "off", "1", "1.0", "01", "null", `"on"`, "'off'"))
		for range rapid.IntRange(1, 2).Draw(t, "entries") {
			b.WriteString("  - devices: " + usually("devices", "all",
				"[0, 1]", "[]", "[1, 1]", "[-1]", "[010]", "[0x1]", "[1.0]", "[1.5]", "\"all\"", "some", "7", "null", "[null]", "[\"1\"]", "{}") + "\n")
			b.WriteString("    mig-enabled: " + usually("enabled", "true",
				"false", "yes", "Yes", "ON", "n", "off", "1", "\"true\"", "null", "") + "\n")
			b.WriteString("    mig-devices: {" + usually("name", `"1g.10gb"`,
				"1g.10gb", "1g.24gb+gfx", "1g.24gb-me", "1g.5gb+me.all", "1g.10gb+me-gfx",
				"1g.10gb+me,me", "1g", "hello", "\"\"", "1c.3g.40gb", "0g.0gb", "1g.5gb+GFX", "1g.5gb+gfx2", "2g.10gb: 1, 2g.10gb") +
				": " + usually("count", "2", "0", "-1", "1.0", "1.5", "1e1", "many", "\"2\"", "null", "010") + "}\n")
			b.WriteString(usually("filter", "", "    device-filter: \"0x20B210DE\"\n", "    device-filter: 0x20B210DE\n", "    device-filter: []\n",
				"    device-filter: \"\"\n", "    device-filter: [\"\"]\n", "    device-filter: [\"0x20B210DE\", \"0x233010DE:0x16C010DE\"]\n",
				"    device-filter: [\"A100\"]\n", "    device-filter: null\n", "    device-filter: 20B210DE\n", "    mig-mode: on\n"))
		}
	}
	b.WriteString(usually("end", "", "---\nversion: v1\n", "...\n", "\t\n", "}\n"))
	return b.String()
})

// TestMIGPartedJudgesAsParse holds what Parse takes and refuses against mig-parted's own code.
func TestMIGPartedJudgesAsParse(t *testing.T) {
	t.Parallel()
	var texts []string
	for seed := range 10 * generated {
		texts = append(texts, aFile.Example(seed))
	}
	// What mig-parted takes and drops.
	dropped := []string{
		"more than one YAML document", "already defined", "already set", "below zero or there twice", "is not a PCI device id",
		"is not a MIG profile", "no mig-configs", "are one label",
	}
	both := 0
	for i, v := range verdicts(t, texts) {
		mine, err := migparted.Parse([]byte(texts[i]))
		switch {
		case err == nil && v.Error != "":
			t.Errorf("Parse takes what mig-parted refuses (%s):\n%s", v.Error, texts[i])
		case err == nil:
			both++
			if diff := cmp.Diff(v.config(t), mine, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("Parse reads otherwise (-mig-parted +Parse):\n%s\n%s", diff, texts[i])
			}
		case v.Error == "" && !slices.ContainsFunc(dropped, func(s string) bool { return strings.Contains(err.Error(), s) }):
			t.Errorf("Parse refuses what mig-parted takes: %v\n%s", err, texts[i])
		}
	}
	if both < generated {
		t.Errorf("both take %d of %d files, too few to show something", both, len(texts))
	}
}
