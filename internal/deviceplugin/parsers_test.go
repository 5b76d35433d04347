package deviceplugin_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpufleet/terraform-provider-gpu/internal/deviceplugin"
)

// read is what the device plugin has read, as far as it is written here.
type read struct {
	Flags struct {
		MIGStrategy      string `json:"migStrategy"`
		FailOnInitError  *bool  `json:"failOnInitError"`
		NVIDIADriverRoot *string
		Plugin           struct {
			PassDeviceSpecs    *bool    `json:"passDeviceSpecs"`
			DeviceListStrategy []string `json:"deviceListStrategy"`
			DeviceIDStrategy   string   `json:"deviceIDStrategy"`
		}
	}
	Sharing struct {
		TimeSlicing, MPS *readSharing
	}
}

type readSharing struct {
	RenameByDefault            bool
	FailRequestsGreaterThanOne bool
	Resources                  []readResource
}

type readResource struct {
	Name, Rename string
	Devices      string // "all"
	Replicas     int
}

const generated = 200

// verdict is what the plugin makes of a file.
type verdict struct {
	Error string
	Value read
}

// verdicts are those of the plugin's own code.
func verdicts(t *testing.T, texts []string) []verdict {
	t.Helper()
	program := os.Getenv("GPU_TEST_PARSERS")
	if program == "" {
		t.Skip("there is no device plugin: make test-parsers builds its parser")
	}
	in, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "device-plugin")
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

// TestDevicePluginReadsIt renders random configurations. What is written the plugin's own code must read as it was meant, and its
// flags must be those that it takes.
func TestDevicePluginReadsIt(t *testing.T) {
	t.Parallel()
	var configs []deviceplugin.Config
	var texts []string
	for seed := 0; len(texts) < generated; seed++ {
		c := aConfig.Example(seed)
		text, err := deviceplugin.Render(&c)
		if err != nil {
			continue
		}
		configs, texts = append(configs, c), append(texts, string(text))
	}
	for i, v := range verdicts(t, texts) {
		if v.Error != "" {
			t.Errorf("the device plugin says %s of\n%s", v.Error, texts[i])
			continue
		}
		compare(t, &configs[i], &v.Value, texts[i])
	}
}

// TestParseReadsWhatRenderWrites writes random configurations, reads them and writes them again.
func TestParseReadsWhatRenderWrites(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := aConfig.Draw(t, "config")
		text, err := deviceplugin.Render(&c)
		if err != nil {
			t.Skip("it is refused")
		}
		read, err := deviceplugin.Parse(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		again, err := deviceplugin.Render(read)
		if err != nil || string(again) != string(text) {
			t.Fatalf("%v\n%s\n%s", err, text, again)
		}
	})
}

// aFile is a file as people write them, often a wrong one.
var aFile = rapid.Custom(func(t *rapid.T) string {
	usually := func(what, usual string, of ...string) string {
		if rapid.IntRange(0, 9).Draw(t, what+"?") > 0 {
			return usual
		}
		return rapid.SampledFrom(of).Draw(t, what)
	}
	return usually("version", "version: v1\n", "", "version: v2\n", "version: 1\n", "Version: v1\n") +
		usually("flags", "flags:\n  migStrategy: mixed\n", "", "flags: {}\n", "flags:\n") +
		usually("strategy", "", "  migStrategy: none\n", "  migstrategy: single\n", "  gfd: {oneshot: true}\n") +
		usually("init", "  failOnInitError: false\n", "  failOnInitError: no\n", "  failOnInitError: 0\n", "  failOnInitError: \"no\"\n",
			"  nvidiaDriverRoot: /a\n", "  nvidiaDriverRoot: 1\n") +
		usually("plugin", "", "  plugin: {deviceListStrategy: envvar}\n", "  plugin: {deviceListStrategy: [cdi-cri, envvar]}\n",
			"  plugin: {deviceListStrategy: all}\n", "  plugin: {deviceIDStrategy: index}\n", "  plugin: {passDeviceSpecs: on}\n") +
		"sharing:\n  " + usually("way", "timeSlicing:\n", "mps:\n", "timeslicing:\n", "timeSlicing: {}\n  mps:\n") +
		usually("rename", "", "    renameByDefault: true\n", "    renameByDefault: y\n", "    failRequestsGreaterThanOne: off\n") +
		"    resources:\n    - name: " + usually("name", "nvidia.com/gpu", "gpu", "nvidia.com/mig-1g.10gb", "mig-1g.10gb+me", "amd.com/gpu",
		"NVIDIA.com/gpu", "1", "\"\"", "nvidia.com/gpu.shared") + "\n      replicas: " +
		usually("replicas", "4", "1", "0", "-1", "2.0", "2.5", "\"2\"", "010", "1e1", "100") + "\n" +
		usually("more", "", "      devices: all\n", "      rename: x\n", "    - {name: gpu, replicas: 2}\n", "x: y\n", "---\na: b\n", "\t\n")
})

// TestDevicePluginJudgesAsParse holds what Parse takes and refuses against the plugin's own code.
func TestDevicePluginJudgesAsParse(t *testing.T) {
	t.Parallel()
	var texts []string
	for seed := range 10 * generated {
		texts = append(texts, aFile.Example(seed))
	}
	both := 0
	for i, v := range verdicts(t, texts) {
		mine, err := deviceplugin.Parse([]byte(texts[i]))
		if err != nil {
			continue // it is stricter: TestDevicePluginConfigThereAndBack says how
		}
		if both++; v.Error != "" {
			t.Errorf("Parse takes what the device plugin refuses (%s):\n%s", v.Error, texts[i])
			continue
		}
		if s := v.Value.Sharing.TimeSlicing; s != nil { // Render sorts them
			slices.SortFunc(s.Resources, func(a, b readResource) int { return strings.Compare(a.Name, b.Name) })
		}
		compare(t, mine, &v.Value, texts[i])
	}
	if both < generated {
		t.Errorf("Parse takes %d of %d files, too few to show something", both, len(texts))
	}
}

func compare(t *testing.T, c *deviceplugin.Config, got *read, text string) {
	t.Helper()
	var want read
	want.Flags.MIGStrategy = cmp.Or(c.MIGStrategy, "none")
	want.Flags.Plugin.DeviceListStrategy, want.Flags.Plugin.DeviceIDStrategy = []string{"envvar"}, "uuid"
	if f := c.Flags; f != nil {
		want.Flags.FailOnInitError, want.Flags.NVIDIADriverRoot = f.FailOnInitError, f.NVIDIADriverRoot
		if p := f.Plugin; p != nil {
			want.Flags.Plugin.PassDeviceSpecs = p.PassDeviceSpecs
			if p.DeviceListStrategy != nil {
				want.Flags.Plugin.DeviceListStrategy = p.DeviceListStrategy
			}
			if p.DeviceIDStrategy != nil {
				want.Flags.Plugin.DeviceIDStrategy = *p.DeviceIDStrategy
			}
		}
	}
	want.Sharing.TimeSlicing = &readSharing{}
	if c.TimeSlicing != nil {
		want.Sharing.TimeSlicing = meant(c.TimeSlicing, false)
	}
	if c.MPS != nil {
		want.Sharing.MPS = meant(c.MPS, true)
		if v := got.Sharing.MPS; v != nil && c.MPS.FailRequestsGreaterThanOne != nil {
			// v0.19.0 refuses such requests whatever the file says.
			want.Sharing.MPS.FailRequestsGreaterThanOne = v.FailRequestsGreaterThanOne
		}
	}
	if diff := gocmp.Diff(&want, got); diff != "" {
		t.Errorf("the device plugin reads otherwise (-want +got):\n%s\n%s", diff, text)
	}
}

func meant(s *deviceplugin.Sharing, failsByDefault bool) *readSharing {
	out := &readSharing{FailRequestsGreaterThanOne: failsByDefault}
	if s.RenameByDefault != nil {
		out.RenameByDefault = *s.RenameByDefault
	}
	if s.FailRequestsGreaterThanOne != nil {
		out.FailRequestsGreaterThanOne = *s.FailRequestsGreaterThanOne
	}
	byName := map[string]int{}
	for name, n := range s.Replicas {
		byName["nvidia.com/"+strings.TrimPrefix(name, "nvidia.com/")] = n
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		rename := ""
		if out.RenameByDefault {
			rename = name + ".shared"
		}
		out.Resources = append(out.Resources, readResource{name, rename, "all", byName[name]})
	}
	return out
}

var (
	aFlag    = rapid.Ptr(rapid.Bool(), true)
	aSharing = rapid.Custom(func(t *rapid.T) *deviceplugin.Sharing {
		name := rapid.OneOf(
			rapid.SampledFrom([]string{"gpu", "nvidia.com/gpu", "mig-1g.10gb", "nvidia.com/mig-1c.2g.20gb.me.all", "mig-1g.24gb-me"}),
			rapid.StringMatching(`(nvidia\.com/)?[a-z0-9]([a-z0-9.-]{0,60}[a-z0-9])?`))
		return &deviceplugin.Sharing{
			Replicas:        rapid.MapOfN(name, rapid.IntRange(2, 100), 1, 3).Draw(t, "replicas"),
			RenameByDefault: aFlag.Draw(t, "rename"), FailRequestsGreaterThanOne: aFlag.Draw(t, "fail"),
		}
	})
	aConfig = rapid.Custom(func(t *rapid.T) deviceplugin.Config {
		c := deviceplugin.Config{MIGStrategy: rapid.SampledFrom([]string{"", "none", "single", "mixed"}).Draw(t, "strategy")}
		switch rapid.IntRange(0, 3).Draw(t, "sharing") {
		case 1, 2:
			c.TimeSlicing = aSharing.Draw(t, "slices")
		case 3:
			c.MPS = aSharing.Draw(t, "mps")
			c.MPS.Replicas = map[string]int{"gpu": rapid.IntRange(2, 50).Draw(t, "clients")}
		}
		if rapid.Bool().Draw(t, "flags") {
			c.Flags = &deviceplugin.Flags{
				FailOnInitError:  aFlag.Draw(t, "init"),
				NVIDIADriverRoot: rapid.Ptr(rapid.SampledFrom([]string{"/", "/run/nvidia/driver", "/on", "/a: b # c"}), true).Draw(t, "root"),
			}
		}
		if c.Flags != nil && rapid.Bool().Draw(t, "plugin") {
			c.Flags.Plugin = &deviceplugin.PluginFlags{
				PassDeviceSpecs:  aFlag.Draw(t, "specs"),
				DeviceIDStrategy: rapid.Ptr(rapid.SampledFrom([]string{"uuid", "index"}), true).Draw(t, "ids"),
			}
			strategy := rapid.SampledFrom([]string{"envvar", "volume-mounts", "cdi-annotations", "cdi-cri"})
			if rapid.Bool().Draw(t, "list") {
				c.Flags.Plugin.DeviceListStrategy = rapid.SliceOfNDistinct(strategy, 1, 3, rapid.ID).Draw(t, "lists")
			}
		}
		return c
	})
)
