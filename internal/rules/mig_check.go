package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

// layoutFault is a layout that GPUs cannot have, for one reason.
type layoutFault struct {
	Finding
	members []member
}

// reportLayout asks each GPU of a config for its layout, in words: what the GPU can never have,
// and, of a plan that changes something, why the planner finds no room beside what is in use.
// GPUs of one reason are one fault. It reports those that the rule at hand is about, and
// whether a host could be asked.
func reportLayout(r *run,
	c *gpu.PartitionConfig, text string, never func(*gpu.Host, *gpu.GPU) error, refused func(string, *gpu.Host) gpu.Refusals,
) (asked bool) {
	byReason := map[string]*layoutFault{}
	for host, h := range r.HostsAtHand(c.GPUs) {
		asked = true
		var why gpu.Refusals
		if r.Transition() {
			why = refused(host, h)
		}
		for g := range whatif.Selected(h, c.GPUs[host]) {
			unfit := cmp.Or(gpu.RefusalOf(never(h, g)), why.Layout(g.ID))
			if unfit == nil {
				continue
			}
			f := FindingOf(unfit)
			if f.Rule != r.rule.ID {
				continue
			}
			reason := f.Title + "\x00" + f.Found
			if byReason[reason] == nil {
				byReason[reason] = &layoutFault{Finding: f}
			}
			byReason[reason].members = append(byReason[reason].members, member{host: host, gpu: g})
		}
	}
	for _, reason := range whatif.SortedKeys(byReason) {
		f := byReason[reason]
		f.Found = fmt.Sprintf("%s This is so for %s.", f.Found, r.gpuList(f.members))
		f.at(f.members)
		f.Wanted = r.wantedOnEach(text)
		r.report(f.Finding, keysOf(string(c.Kind)+" "+text, f.members)...)
	}
	return asked
}

func (r *run) wantedOnEach(text string) string {
	return fmt.Sprintf("%s wants on each GPU: %s.", r.label(), text)
}

func checkMIGProfileSupported(r *run) {
	c := r.Plan.Want.Config
	if c == nil || c.MIG == nil {
		return
	}
	without := r.those(c.GPUs, func(h *gpu.Host, g *gpu.GPU) bool { return g.MIG == nil && h.Platform == gpu.Linux })
	r.reportGPUs(Finding{
		Path:   "selector",
		Title:  "The GPU does not support MIG",
		Found:  fmt.Sprintf("The driver of %s offers no MIG.", r.gpuList(without)),
		Wanted: r.wantedOnEach(placement.MIGLayoutText(c.MIG)),
		Fix: "Leave the GPU out of `selector`. If the model has MIG, its driver may be older than the first with MIG for it, or a " +
			"hypervisor keeps MIG to itself.",
	}, "no mig", without)
	reportMIGFaults(r, c)
}

func checkMIGPlacement(r *run) {
	if c := r.Plan.Want.Config; c != nil && c.MIG != nil {
		reportMIGFaults(r, c)
	}
}

// reportMIGFaults reports those faults of the layout that the rule at hand is about.
func reportMIGFaults(r *run, c *gpu.PartitionConfig) {
	never := func(_ *gpu.Host, g *gpu.GPU) error {
		if g.MIG == nil {
			return nil // said already
		}
		_, err := placement.LayOut(placement.MIGProfiles(g), nil, c.MIG)
		return err
	}
	refused := func(host string, h *gpu.Host) gpu.Refusals {
		return r.Refusals(r.Shares().UnderShares(host, h), host, r.Plan)
	}
	if text := placement.MIGLayoutText(c.MIG); !reportLayout(r, c, text, never, refused) && !r.Plan.Unchanged {
		for _, f := range documentedFaults(c) {
			if f.Rule == r.rule.ID {
				f.Wanted = r.wantedOnEach(text)
				r.report(f, key("mig", f.Found))
			}
		}
	}
}

// documentedFaults compares the layout with what is documented for the models that the
// selector names, since no host of the config could be asked. Names of profiles differ a
// little between drivers, and some places are inferred: those are worth a warning.
func documentedFaults(c *gpu.PartitionConfig) []Finding {
	if c.Scope.Selector == nil {
		return nil
	}
	var out []Finding
	for _, name := range c.Scope.Selector.Models {
		m, ok := catalog.ByName(name)
		if !ok {
			continue
		}
		if m.MIG == nil {
			out = append(out, Finding{
				Rule: "mig-profile-supported", Level: Warning, Path: "selector", Title: "The GPU does not support MIG",
				Found: fmt.Sprintf("No MIG is documented for %s.", m.Name), Fix: "Choose another model.",
			})
			continue
		}
		_, err := placement.LayOut(m.MIG.Profiles, nil, c.MIG)
		refusal := gpu.RefusalOf(err)
		if refusal == nil {
			continue
		}
		f := FindingOf(refusal)
		f.Found = fmt.Sprintf("The hosts cannot be asked. By what is documented for %s: %s", m.Name, f.Found)
		if m.MIG.PlacementsInferred || refusal.Fault == placement.MIGUnknownProfile {
			f.Level = Warning
		}
		out = append(out, f)
	}
	return out
}

func checkMIGMode(r *run) {
	if !r.Transition() {
		return
	}
	limit := r.allowedDisruption()
	for host, f := range r.Forecasts() {
		var busy, resets []member
		var by []string
		for _, why := range f.Refused.Of(change.MIGMode) {
			g, _ := r.At(host).GPU(why.GPU)
			switch {
			case why.Restores != "":
			case why.Needs != "":
				resets = append(resets, member{host: host, gpu: g})
			default:
				busy = append(busy, member{host: host, gpu: g})
				by = append(by, fmt.Sprintf("%s: %s", gpuText(g), joinAll(why.By)))
			}
		}
		reportMIGBusy(r, host, busy, by)
		reportMIGReset(r, resets, limit)
		warnOfWatchers(r, host, f)
		reportNotRestored(r, host, f)
	}
}

// warnOfWatchers says that a GPU may not let itself be reset: what runs is known, and not what
// each service has open.
func warnOfWatchers(r *run, host string, f change.Forecast) {
	// Another plan of the run may still let go of what is in use.
	if len(f.Resets) == 0 || slices.ContainsFunc(f.Refused, func(why *gpu.Refusal) bool { return why.Code != gpu.InUse }) {
		return
	}
	var runs []string
	for _, unit := range r.At(host).Units {
		stopped := func(s change.Step) bool { return s.Op == change.OpStopUnit && change.SameUnit(s.Unit, unit) }
		if slices.Contains(gpu.Watchers, unit) && !slices.ContainsFunc(f.Steps, stopped) {
			runs = append(runs, quote(unit))
		}
	}
	if len(runs) == 0 {
		return
	}
	slices.Sort(runs)
	r.report(Finding{
		Level: Warning,
		Path:  "quiesce_units",
		Title: "A service may keep GPUs from being reset",
		Host:  host,
		Found: fmt.Sprintf("On %s %s %s, which %s GPUs.", hostText(host), joinAll(runs), verb(len(runs), "runs", "run"),
			verb(len(runs), "watches", "watch")),
		Wanted: fmt.Sprintf("%s resets GPUs there, which the driver refuses while a service keeps them open.", r.label()),
		Fix:    "Name such services in `quiesce_units`: they are stopped for the change and started again.",
	}, key("watchers", host))
}

// allowedDisruption is the limit of the config, or of what it was when it is destroyed.
func (r *run) allowedDisruption() gpu.Disruption {
	for _, c := range []*gpu.PartitionConfig{r.Plan.Want.Config, r.Plan.Prior.Config} {
		if c != nil {
			return c.MaxDisruption
		}
	}
	return gpu.DisruptNone
}

// migMode is what the config makes of MIG mode.
func (r *run) migMode() string {
	if c := r.Plan.Want.Config; c != nil && !c.HasMIG() {
		return "off"
	}
	return "on"
}

func reportMIGBusy(r *run, host string, busy []member, by []string) {
	r.reportGPUs(Finding{
		Path:  "mig",
		Title: "Processes use GPUs whose MIG mode changes",
		Found: fmt.Sprintf("On %s these processes use the GPUs: %s.", hostText(host), strings.Join(by, "; ")),
		Wanted: fmt.Sprintf("%s switches MIG mode %s, which requires that nothing uses the GPU. No process is ever killed for it.",
			r.label(), r.migMode()),
		Fix: "Stop these processes first. A systemd unit that only watches GPUs can be named in `quiesce_units`: it is stopped for the " +
			"change and started again.",
	}, "mig mode", busy)
}

func reportMIGReset(r *run, resets []member, limit gpu.Disruption) {
	r.reportGPUs(Finding{
		Path:  "max_disruption",
		Title: "The change of MIG mode resets GPUs",
		Found: fmt.Sprintf("%s %s MIG mode only with a reset.", capital(r.gpuList(resets)), verb(len(resets), "switches", "switch")),
		Wanted: fmt.Sprintf("%s switches MIG mode %s. Its `max_disruption` allows %s only.", r.label(),
			r.migMode(), quote(string(orNone(limit)))),
		Fix: "Write `max_disruption = \"gpu_reset\"`. Each of these GPUs is then reset alone, and only while nothing uses it.",
	}, "mig reset", resets)
}

// checkKindOnPlatform compares what is wanted with what the hosts are.
var platformNames = map[gpu.Platform]string{gpu.HyperV: "Hyper-V", gpu.Linux: "Linux"}

func checkKindOnPlatform(r *run) {
	var (
		needs = gpu.HyperV
		hosts []string
		what  string
		path  string
		fix   = "Leave the host out of this resource."
	)
	switch w := r.Plan.Want; {
	case w.Config != nil && change.PlatformOf(w.Config.Kind) == gpu.Linux:
		needs, hosts, what, path = gpu.Linux, r.AtHand(w.Config.GPUs), "A gpu_partition_config with `"+string(w.Config.Kind)+"`", "hosts"
		fix = "Give Hyper-V hosts a gpu_partition_config of their own, with `gpu_p`."
	case w.Config != nil:
		hosts, what, path = r.AtHand(w.Config.GPUs), "A gpu_partition_config with `"+string(w.Config.Kind)+"`", "hosts"
		fix = "Give Linux hosts a gpu_partition_config of their own, with `mig`, `vgpu`, `mps` or `time_slicing`."
	case w.Pool != nil:
		checkPoolPlatform(r, w.Pool)
		return
	case w.Share != nil:
		needs, hosts, what, path = gpu.Linux, []string{w.Share.Host}, "A gpu_share", "host"
		fix = "Give VMs of Hyper-V hosts partitions with a gpu_vm_assignment."
	case w.Assignment != nil:
		at, ok := r.Locate(w.Assignment)
		if !ok {
			return
		}
		if why, fix := change.Unfit(at.Host.Platform, w.Assignment); why != "" {
			r.reportVM(at, Finding{
				Path: "vm", Title: "Not supported on this platform",
				Found:  fmt.Sprintf("%s is on %s, a %s host.", vmText(at.VM), hostText(at.Key), platformNames[at.Host.Platform]),
				Wanted: fmt.Sprintf("%s asks for what there is not: %s.", r.label(), why),
				Fix:    fix,
			}, key("platform", at.Key, why))
		}
		return
	}
	var wrong, keys []string
	for _, host := range hosts {
		if h, ok := r.Host(host); ok && h.Platform != "" && h.Platform != needs {
			wrong = append(wrong, host)
			keys = append(keys, key("platform", host))
		}
	}
	if len(wrong) == 0 {
		return
	}
	has := platformNames[r.At(wrong[0]).Platform]
	r.report(Finding{
		Path:  path,
		Title: "Not supported on this platform",
		Host:  wrong[0],
		Found: capital(verb(len(wrong), "host ", "hosts ")) + join(quoteAll(wrong)) +
			verb(len(wrong), " is a "+has+" host.", " are "+has+" hosts."),
		Wanted: what + " is for " + platformNames[needs] + " hosts.",
		Fix:    fix,
	}, keys...)
}
