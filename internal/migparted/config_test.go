package migparted_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/migparted"
)

func sample(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func parsed(t testing.TB, text string) migparted.Config {
	t.Helper()
	c, err := migparted.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func id(device string) gpu.PCIID { return gpu.PCIID{Vendor: "10DE", Device: device} }

// wanted is what testdata/config.yaml says.
var wanted = migparted.Config{
	"all-disabled": {{All: true}},
	"all-enabled":  {{All: true, Enabled: true}},
	"all-1g.10gb": {
		{Filter: []gpu.PCIID{id("2330"), id("2331"), id("20B2"), id("20B5")}, All: true, Enabled: true, Profiles: map[string]int{"1g.10gb": 7}},
		{Filter: []gpu.PCIID{id("20B0"), id("20F1")}, All: true, Enabled: true, Profiles: map[string]int{"1g.10gb": 4}},
	},
	"all-1g.24gb.me.all": {{All: true, Enabled: true, Profiles: map[string]int{"1g.24gb+me.all": 1}}},
	"all-balanced": {
		{Filter: []gpu.PCIID{id("20B7")}, All: true, Enabled: true, Profiles: map[string]int{"1g.6gb": 2, "2g.12gb": 1}},
		{
			Filter: []gpu.PCIID{{Vendor: "10DE", Device: "2330", Subsystem: "16C010DE"}}, All: true, Enabled: true,
			Profiles: map[string]int{"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1},
		},
	},
	"custom-config": {
		{Devices: []int{0}},
		{Devices: []int{1, 2}, Enabled: true, Profiles: map[string]int{"3g.40gb": 2}},
		{Devices: []int{3}, Enabled: true, Profiles: map[string]int{"3g.40gb": 2}},
	},
}

func TestParse(t *testing.T) {
	got, err := migparted.Parse(sample(t))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"all-1g.10gb", "all-1g.24gb.me.all", "all-balanced", "all-disabled", "all-enabled", "custom-config"},
		got.Labels()); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if _, err := got.Entries("all-1g.5gb"); err == nil || !strings.Contains(err.Error(), "all-balanced, all-disabled") {
		t.Errorf("an unknown label: %v", err)
	}
}

func TestParseRefuses(t *testing.T) {
	entry := func(fields string) string {
		return "version: v1\nmig-configs:\n  x:\n  - " + strings.ReplaceAll(fields, "\n", "\n    ") + "\n"
	}
	tests := []struct{ name, text, says string }{
		{"nothing", "", "is empty"},
		{"no YAML", "{", "not a mig-parted configuration"},
		{"a list", "- a\n", "not a mig-parted configuration"},
		{"no version", "mig-configs: {x: [{devices: all, mig-enabled: false}]}", "no version"},
		{"another version", "version: v2\nmig-configs: {x: [{devices: all, mig-enabled: false}]}", `version "v2", but "v1"`},
		{"no labels", "version: v1\n", "no mig-configs"},
		{"a label without entries", "version: v1\nmig-configs: {x: []}", `label "x" has no entry`},
		{
			"two documents", "version: v1\nmig-configs: {x: [{devices: all, mig-enabled: false}]}\n---\nversion: v1\n",
			"more than one YAML document",
		},
		{
			"a label twice", "version: v1\nmig-configs:\n  x: [{devices: all, mig-enabled: false}]\n  x: [{devices: all, mig-enabled: false}]\n",
			"already defined",
		},
		{"an unknown field above", "version: v1\nmig-config: {}\n", "mig-config"},
		{"an unknown field", entry("devices: all\nmig-enabled: false\nmig-mode: on"), "mig-mode"},
		{"no devices", entry("mig-enabled: false"), `label "x", entry 1: devices is missing`},
		{"no mode", entry("devices: all"), "mig-enabled is missing"},
		{"no profiles", entry("devices: all\nmig-enabled: true"), "mig-devices is missing"},
		{"profiles without MIG", entry("devices: all\nmig-enabled: false\nmig-devices: {1g.5gb: 1}"), "mig-enabled is false"},
		{"devices of a name", entry("devices: some\nmig-enabled: false"), "devices is neither all nor a list"},
		{"devices of nothing", entry("devices:\nmig-enabled: false"), "devices is neither all nor a list"},
		{"an index below zero", entry("devices: [-1]\nmig-enabled: false"), "index -1"},
		{"an index twice", entry("devices: [1, 1]\nmig-enabled: false"), "index 1, which is below zero or there twice"},
		{"a filter that is a number", entry("device-filter: 0x20B210DE\ndevices: all\nmig-enabled: false"), "neither a quoted PCI device id"},
		{"a filter that is a map", entry("device-filter: {a: b}\ndevices: all\nmig-enabled: false"), "neither a quoted PCI device id"},
		{"a filter that is a model", entry("device-filter: [\"A100\"]\ndevices: all\nmig-enabled: false"), `"A100" is not a PCI device id`},
		{"a filter with a bad subsystem", entry("device-filter: \"0x20B210DE:x\"\ndevices: all\nmig-enabled: false"), "with a subsystem"},
		{"a filter of nothing", entry("device-filter: [\"\"]\ndevices: all\nmig-enabled: false"), `"" is not a PCI device id`}, // fits no GPU
		{"gains and lacks", entry("devices: all\nmig-enabled: true\nmig-devices: {1g.10gb+me-gfx: 1}"), "not a MIG profile"},
		{"an attribute twice", entry("devices: all\nmig-enabled: true\nmig-devices: {\"1g.10gb+me,me\": 1}"), "not a MIG profile"},
		{"a field in capitals", entry("Devices: all\nmig-enabled: false"), "field Devices not found"},
		{
			"a label by two names",
			"version: v1\nmig-configs:\n  on: [{devices: all, mig-enabled: false}]\n  yes: [{devices: all, mig-enabled: false}]\n",
			`key true already set`,
		},
		{
			"a label by two numbers",
			"version: v1\nmig-configs:\n  01: [{devices: all, mig-enabled: false}]\n  1.0: [{devices: all, mig-enabled: false}]\n",
			`labels 01, 1.0 are one`,
		},
		{"no profile", entry("devices: all\nmig-enabled: true\nmig-devices: {large: 1}"), `"large", which is not a MIG profile`},
		{"a count below zero", entry("devices: all\nmig-enabled: true\nmig-devices: {1g.5gb: -1}"), `-1 of "1g.5gb"`},
		{"counts that are all zero", entry("devices: all\nmig-enabled: true\nmig-devices: {1g.5gb: 0}"), "all 0"},
		{"a count that is text", entry("devices: all\nmig-enabled: true\nmig-devices: {1g.5gb: many}"), "many"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := migparted.Parse([]byte(tt.text))
			if err == nil {
				t.Fatalf("it was read as %+v", c)
			}
			if !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%q does not say %q", err, tt.says)
			}
		})
	}
}

func TestEmptyFiltersAreNone(t *testing.T) {
	for _, filter := range []string{`""`, "[]", "null"} {
		c := parsed(t, "version: v1\nmig-configs: {x: [{device-filter: "+filter+", devices: all, mig-enabled: false}]}")
		if diff := cmp.Diff(migparted.Config{"x": {{All: true}}}, c); diff != "" {
			t.Errorf("filter %s (-want +got):\n%s", filter, diff)
		}
	}
}

func TestRender(t *testing.T) {
	got, err := migparted.Render(migparted.Config{
		"off": {{All: true}},
		"all-balanced": {{
			Filter: []gpu.PCIID{id("20B2"), {Vendor: "10DE", Device: "2330", Subsystem: "16C010DE"}}, Devices: []int{0, 2}, Enabled: true,
			Profiles: map[string]int{"3g.40gb": 1, "1g.10gb+me": 1},
		}},
		"1": {{All: true, Enabled: true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = `version: v1
mig-configs:
  "1":
    - devices: all
      mig-enabled: true
      mig-devices: {}
  "all-balanced":
    - device-filter: ["0x20B210DE", "0x233010DE:0x16C010DE"]
      devices: [0, 2]
      mig-enabled: true
      mig-devices:
        "1g.10gb+me": 1
        "3g.40gb": 1
  "off":
    - devices: all
      mig-enabled: false
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("file (-want +got):\n%s", diff)
	}
}

func TestRenderedIsReadAsItWas(t *testing.T) {
	data, err := migparted.Render(wanted)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wanted, parsed(t, string(data))); diff != "" {
		t.Errorf("configuration (-want +got):\n%s\n%s", diff, data)
	}
}

func TestRenderRefuses(t *testing.T) {
	tests := []struct {
		name   string
		config migparted.Config
		says   string
	}{
		{"nothing", nil, "at least one label"},
		{"an empty label", migparted.Config{"": {{All: true}}}, "label is empty"},
		{"no entry", migparted.Config{"x": nil}, "no entry"},
		{"a count of zero", migparted.Config{"x": {{All: true, Enabled: true, Profiles: map[string]int{"1g.5gb": 0}}}}, `0 of "1g.5gb"`},
		{"no profile", migparted.Config{"x": {{All: true, Enabled: true, Profiles: map[string]int{"half": 1}}}}, `"half", which is not`},
		{"profiles without MIG", migparted.Config{"x": {{All: true, Profiles: map[string]int{"1g.5gb": 1}}}}, "mig-enabled is false"},
		{"all and a list", migparted.Config{"x": {{All: true, Devices: []int{1}}}}, "all and a list"},
		{"no id", migparted.Config{"x": {{All: true, Filter: []gpu.PCIID{{Vendor: "10DE", Device: "20B"}}}}}, "device-filter"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := migparted.Render(tt.config); err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %v, file:\n%s", err, got)
			}
		})
	}
}

func TestModelsOfAFilter(t *testing.T) {
	e := migparted.Entry{Filter: []gpu.PCIID{id("2331"), id("20F1"), id("20B1"), id("FFFF")}}
	if diff := cmp.Diff([]string{"NVIDIA A100-PCIE-40GB", "NVIDIA H100 PCIe"}, e.Models()); diff != "" {
		t.Errorf("models (-want +got):\n%s", diff)
	}
	if got := (&migparted.Entry{}).Models(); got != nil {
		t.Errorf("without a filter: %v", got)
	}
	got, err := migparted.FilterOf([]string{"A100-PCIE-40GB", "RTX PRO 5000 Blackwell"})
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, f := range got {
		texts = append(texts, migparted.FormatDeviceID(f))
	}
	want := []string{
		"0x20B110DE", "0x20F110DE", "0x2BB310DE:0x204D10DE", "0x2BB310DE:0x204D1028", "0x2BB310DE:0x204D103C", "0x2BB310DE:0x204D17AA",
	}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Errorf("filter (-want +got):\n%s", diff)
	}
	if _, err := migparted.FilterOf([]string{"Voodoo 2"}); err == nil {
		t.Error("an unknown model has a filter")
	}
	for _, m := range catalog.All() {
		filter, err := migparted.FilterOf([]string{m.Name})
		if len(m.Devices) == 0 { // no filter at all would be for every GPU
			if err == nil {
				t.Errorf("%s has the filter %v", m.Name, filter)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{m.Name}, (&migparted.Entry{Filter: filter}).Models()); diff != "" {
			t.Errorf("there and back (-want +got):\n%s", diff)
		}
	}
}

// A label that mig-parted itself does not find either is explained.
func TestALabelThatIsATruthValue(t *testing.T) {
	c := parsed(t, "version: v1\nmig-configs:\n  on: [{devices: all, mig-enabled: Yes, mig-devices: {}}]\n")
	if diff := cmp.Diff(migparted.Config{"true": {{All: true, Enabled: true}}}, c); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	const says = `there is no label "on"; there are true; mig-parted takes on for "true" where it is not quoted`
	if _, err := c.Entries("on"); err == nil || err.Error() != says {
		t.Errorf("%v", err)
	}
}

func TestComputeSlices(t *testing.T) {
	for profile, want := range map[string]int{"1c.3g.40gb": 1, "2c.7g.80gb+me": 2, "3g.40gb": 0, "1g.24gb-me": 0, "x": 0} {
		if got := migparted.ComputeSlices(profile); got != want {
			t.Errorf("%s: %d, want %d", profile, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sample(f))
	f.Add([]byte("version: v1\nmig-configs: {x: [{devices: &a [*a], mig-enabled: no}]}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := migparted.Parse(data)
		if err != nil {
			return
		}
		for label := range c {
			if label == "" {
				return // mig-parted reads such a label; it is not written again
			}
		}
		text, err := migparted.Render(c)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if again := parsed(t, string(text)); !cmp.Equal(c, again) {
			t.Errorf("read %+v, wrote\n%s", c, text)
		}
	})
}

// mig-parted reads by YAML 1.1, which takes some words for truth values and "<<" for a merge: every label comes
// back as it was.
func TestLabelsAreReadByYAML11AsTheyWere(t *testing.T) {
	off := migparted.Entry{All: true}
	file := migparted.Config{}
	for _, label := range []string{"off", "on", "no", "yes", "y", "n", "true", "null", "~", "1", "1e3", "0o7", "<<", "=", "a: b", "#", "-"} {
		file[label] = []migparted.Entry{off}
	}
	text, err := migparted.Render(file)
	if err != nil {
		t.Fatal(err)
	}
	var read struct {
		Version string         `json:"version"`
		Configs map[string]any `json:"mig-configs"`
	}
	if err := yaml.UnmarshalStrict(text, &read); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(file)), slices.Sorted(maps.Keys(read.Configs))); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}

// Most files are posted and kept as the ConfigMap that the GPU Operator reads.
func TestAConfigMapIsReadAsTheFileInIt(t *testing.T) {
	configMap := func(files map[string]string) string {
		text, err := yaml.Marshal(map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "mig", "namespace": "gpu-operator"}, "data": files,
		})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	file := string(sample(t))
	for _, files := range []map[string]string{{"config.yaml": file}, {"mig.yml": file}, {"config.yaml": file, "README": "a: b"}} {
		if diff := cmp.Diff(wanted, parsed(t, configMap(files))); diff != "" {
			t.Errorf("configuration (-want +got):\n%s", diff)
		}
	}
	for says, text := range map[string]string{
		`has no data, but "config.yaml" is wanted`: configMap(nil),
		`has a, b, but no "config.yaml"; give the`: configMap(map[string]string{"a": file, "b": file}),
		`field a not found`:                        configMap(map[string]string{"config.yaml": "a: b"}),
		`the data of the ConfigMap are not texts`:  "kind: ConfigMap\ndata: {config.yaml: {version: v1}}\n",
		`field data not found`:                     "kind: Secret\ndata: {config.yaml: x}\nversion: v1\n",
	} {
		if c, err := migparted.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, %v does not say %q", c, err, says)
		}
	}
}
