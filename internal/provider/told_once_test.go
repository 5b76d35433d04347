package provider_test

import (
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

const sameCause = "Also here: "

// What a person has to scroll through for one mistake that many resources have, and for one that many GPUs have.
func TestOneMistakeIsNoWallOfText(t *testing.T) {
	t.Parallel()
	if !rig.WithCLI(t) {
		t.Skip("counts the lines that a CLI prints")
	}
	fleet, names := rig.Desktops(12)
	fleet.Hosts[0].Name = "hv01"
	desktops := rig.New(t, fleet)
	for name, test := range map[string]struct {
		before, config string
		most           int
		says           []string
	}{
		"twelve desktops run, and may not be stopped": {
			before: desktops.Block() + rig.ConfigOf(8, []string{"hv01"}),
			config: desktops.Block() + rig.ConfigOf(8, []string{"hv01"}) + strings.Replace(rig.AssignAll(names, ""),
				"partition = {}\n  power     = { allow_shutdown = true }", "partition = { config = gpu_partition_config.vdi.id }", 1),
			most: 93, says: []string{"Error: The VM must be off", "power = { allow_shutdown = true }", sameCause},
		},
		"eight GPUs have no such MIG layout": {
			config: rig.New(t, rig.HGX(rig.H100, 8)).Block() + rig.MIGOf("inf", `profiles = { "1g.10gb" = 8 }`),
			most:   17, says: []string{"all 8 GPUs of host \"hgx01\"", "at most 7"},
		},
		"eight GPUs have no such MIG profile": {
			config: rig.New(t, rig.HGX(rig.H100, 8)).Block() + rig.MIGOf("inf", `profiles = { "1g.5gb" = 7 }`),
			most:   17, says: []string{"all 8 GPUs of host \"hgx01\"", "1g.10gb"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := rig.NewProcesses(t, test.before)
			if test.before != "" {
				c.Apply()
			}
			c.Write(test.config)
			out, code := c.Printed("plan")
			_, out, _ = strings.Cut(out, "Planning failed.") // before it is a notice on a provider that is not installed
			if lines := strings.Count(out, "\n"); code != 1 || lines > test.most {
				t.Errorf("it ends with %d, and has %d lines, where %d are wanted:\n%s", code, lines, test.most, out)
			}
			for _, text := range test.says {
				if !strings.Contains(rig.Sentence(out), text) {
					t.Errorf("it does not say %q:\n%s", text, out)
				}
			}
		})
	}
}
