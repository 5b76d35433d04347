package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// wantedHosts are the hosts at hand that the wanted object is on, and the attribute
// that chose them. For an assignment it is the VM's owner host.
func (r *run) wantedHosts() (hosts []string, path string) {
	switch w := r.Plan.Want; {
	case w.Config != nil || w.Pool != nil:
		gpus := whatif.WantedGPUs(w)
		for key := range r.HostsAtHand(gpus) {
			if len(gpus[key]) > 0 {
				hosts = append(hosts, key)
			}
		}
		if w.Pool != nil {
			return hosts, "members"
		}
		return hosts, "hosts"
	case w.Assignment != nil:
		if at, ok := r.Locate(w.Assignment); ok {
			hosts = append(hosts, at.Key)
		}
		return hosts, "vm"
	case w.Share != nil:
		if _, ok := r.Host(w.Share.Host); ok {
			hosts = append(hosts, w.Share.Host)
		}
		return hosts, "host"
	}
	return nil, ""
}

func checkPolicyGate(r *run) {
	at, ok := r.Locate(r.Plan.Want.Assignment)
	if !ok {
		return
	}
	set := func(v *bool) bool { return v != nil && *v }
	var values []string
	if set(at.Host.Policies.RequireSecureDeviceAssignment) {
		values = append(values, "RequireSecureDeviceAssignment")
	}
	if set(at.Host.Policies.RequireSupportedDeviceAssignment) {
		values = append(values, "RequireSupportedDeviceAssignment")
	}
	if len(values) == 0 {
		return
	}
	r.reportVM(at, Finding{
		Path:  "vm",
		Title: "A host policy forbids the assignment",
		Found: fmt.Sprintf("On %s the policy %s is set.", hostText(at.Key), join(values)),
		Wanted: fmt.Sprintf("%s gives %s a GPU; Hyper-V then refuses GPUs that the platform does not list as secure and supported.",
			r.label(), vmText(at.VM)),
		Fix: `Set the value to 0 under HKLM\SOFTWARE\Policies\Microsoft\Windows\HyperV on every node, or relax this rule if the GPU is ` +
			`known to comply.`,
	})
}

// Builds of Windows that decide what Hyper-V offers.
const (
	buildServer2022     = 20348
	buildAzureStack22H2 = 20349
	buildAzureStack23H2 = 25398 // the first whose successors all support GPU-P
)

// unsupported tells why a build does not offer GPU-P and GPU pools for clusters.
// Build 0 is not known.
func unsupported(os gpu.OS) string {
	switch b := os.Build; {
	case b == 0 || b == buildAzureStack22H2 || b >= buildAzureStack23H2:
		return ""
	case b < buildServer2022:
		return "does not have this feature"
	case b == buildServer2022:
		return "is Windows Server 2022, where this is not supported"
	}
	return "is not a release of Windows Server 2025 or Azure Local"
}

func checkOSBuild(r *run) {
	hosts, path := r.wantedHosts()
	feature := "GPU partitions"
	var clusteredOnly bool
	switch w := r.Plan.Want; {
	case w.Pool != nil:
		feature, clusteredOnly = "GPU pools in clusters", true
	case w.Assignment != nil && w.Assignment.Partition == nil:
		if at, ok := r.Locate(w.Assignment); !ok || w.Assignment.Pool == nil || !at.VM.Clustered {
			return
		}
		feature = "GPU pools for clustered VMs"
	}
	byBuild := map[string][]string{}
	first := ""
	var keys []string
	for _, host := range hosts {
		h := r.At(host)
		why := unsupported(h.OS)
		if why == "" || (clusteredOnly && h.Cluster == nil) {
			continue
		}
		if first == "" {
			first = host
		}
		line := fmt.Sprintf("build %d, which %s", h.OS.Build, why)
		byBuild[line] = append(byBuild[line], host)
		keys = append(keys, key("build", host))
	}
	if len(byBuild) == 0 {
		return
	}
	lines := words.Each(whatif.SortedKeys(byBuild), func(line string) string {
		return join(quoteAll(byBuild[line])) + " " + verb(len(byBuild[line]), "runs ", "run ") + line
	})
	r.report(Finding{
		Path:   path,
		Title:  "The host's operating system is too old",
		Host:   first,
		Found:  capital(verb(len(keys), "host ", "hosts ")) + join(lines) + ".",
		Wanted: fmt.Sprintf("%s needs %s: Windows Server 2025, Azure Local, or Azure Stack HCI from 22H2 on.", r.label(), feature),
		Fix:    "Upgrade the host, or take it out of this resource.",
	}, keys...)
}

// UnreadableFix is what to do about records that an agent cannot read.
const UnreadableFix = "Install the agent that wrote them, or a later one, or restore the file from a backup. " +
	"`gpu-agent records` on the host lists them; `gpu-agent records drop` discards one."

// UnreadableText names records that an agent cannot read.
func UnreadableText(records []gpu.UnreadableRecord) string {
	return strings.Join(words.Each(records, gpu.UnreadableRecord.String), "; ")
}

func checkReadableRecords(r *run) {
	if !r.Transition() {
		return
	}
	hosts, path := r.wantedHosts()
	for _, host := range hosts {
		h, ok := r.Host(host)
		if !ok || len(h.Unreadable) == 0 {
			continue
		}
		r.report(Finding{
			Path: path, Host: host, Title: "Agent records cannot be read",
			Found: capital(UnreadableText(h.Unreadable)) + ".",
			Wanted: fmt.Sprintf("%s changes something there, and the agent changes nothing until it can read all of its records: claims, and "+
				"changes that a killed run left unfinished.", r.label()),
			Fix: UnreadableFix,
		}, key("records", host))
	}
}

func checkAgentKnows(r *run) {
	if r.world.Agents == nil || !r.Transition() {
		return
	}
	before := *r
	before.Plan.Want = r.Plan.Prior
	hosts, path := r.wantedHosts()
	left, pathBefore := before.wantedHosts()
	asks := sync.OnceValue(func() []string { return r.world.Agents.Asks(r.Plan) })
	byAgent := map[string][]string{}
	hosts = append(hosts, left...)
	slices.Sort(hosts)
	for _, host := range slices.Compact(hosts) {
		lacks, version := r.world.Agents.Lacks(host)
		lacks = slices.DeleteFunc(slices.Clone(lacks), func(field string) bool { return !slices.Contains(asks(), field) })
		if len(lacks) > 0 {
			what := fmt.Sprintf("(version %s) does not know %s", version, strings.ReplaceAll(join(quoteAll(lacks)), `"want.`, `"`))
			byAgent[what] = append(byAgent[what], host)
		}
	}
	for _, what := range whatif.SortedKeys(byAgent) {
		on := byAgent[what]
		r.report(Finding{
			Path: cmp.Or(path, pathBefore), Host: on[0], Title: "The agent of a host is too old for this change",
			Found:  fmt.Sprintf("The gpu-agent of %s %s.", verb(len(on), "host ", "hosts ")+join(quoteAll(on)), what),
			Wanted: fmt.Sprintf("%s asks for it.", r.label()),
			Fix: "Upgrade gpu-agent there to the version of this provider, or leave that out of the configuration. Resources that do not use " +
				"it are not affected.",
		}, key(append([]string{"agent"}, on...)...))
	}
}

func checkForeignController(r *run) {
	hosts, path := r.wantedHosts()
	for _, role := range []gpu.ControllerRole{gpu.LayoutController, gpu.BrokerController} {
		if role == gpu.BrokerController && !r.Transition() {
			continue // it moves VMs every day, which is nothing to a plan that changes nothing
		}
		byName := map[string][]string{}
		var keys []string
		for _, host := range hosts {
			for _, c := range r.At(host).Controllers {
				if c.Role == role {
					byName[c.Name] = append(byName[c.Name], host)
					keys = append(keys, key(string(role), host, c.Name))
				}
			}
		}
		if len(byName) == 0 {
			continue
		}
		names := whatif.SortedKeys(byName)
		lines := join(namesOn(byName))
		f := Finding{
			Path:   path,
			Host:   byName[names[0]][0],
			Title:  "Other software changes the GPU layout",
			Found:  fmt.Sprintf("This software manages GPUs itself: %s.", lines),
			Wanted: fmt.Sprintf("%s changes them too, and each would undo the other's work.", r.label()),
			Fix:    "Let one of the two manage the GPUs: stop the other software there, or take the host out of this resource.",
		}
		if role == gpu.BrokerController {
			f.Level = Warning
			f.Title = "Other software starts and stops VMs"
			f.Found = fmt.Sprintf("This software starts, stops or places VMs: %s.", lines)
			f.Wanted = fmt.Sprintf("%s may find VMs started, stopped or moved since the plan.", r.label())
			f.Fix = "Put the hosts or VMs into that software's maintenance mode while applying."
		}
		r.report(f, keys...)
	}
	reportConsumers(r)
}

// reportConsumers warns of software that has to learn of other MIG instances than it
// found when it started, or that hands out what is shared here.
func reportConsumers(r *run) {
	if !r.Transition() {
		return
	}
	f := Finding{
		Level: Warning, Path: "hosts", Title: "Other software allocates these GPUs too",
		Wanted: fmt.Sprintf("%s shares GPUs with containers there, which that software is not aware of.", r.label()),
		Fix: "Leave these GPUs out of what the other software hands out, or let it share them: the functions `device_plugin_config` and " +
			"`slurm_gres` write its configuration.",
	}
	var changed []string
	switch w := r.Plan.Want; {
	case w.Share != nil && r.Plan.Prior.Empty():
		changed, f.Path = r.wantedHosts()
	case w.Config == nil:
		return
	case w.Config.Kind == gpu.KindMIG:
		changed = r.Touched()
		f.Title = "Other software must be restarted after the change"
		f.Wanted = fmt.Sprintf("%s changes the instances there, and such software often lists them only when it starts.", r.label())
		f.Fix = "Keep new work off these hosts while applying, and restart the software afterwards."
		if m := w.Config.MIG; m != nil && !m.Off && !hasInstances(m) {
			f.Fix += ` In MIG mode without instances slurmd with AutoDetect=nvml ends when it starts, and so does NVIDIA's device plugin ` +
				`with the strategy "single": restart them once there are instances.`
		}
	case w.Config.Kind == gpu.KindMPS || w.Config.Kind == gpu.KindTimeSlicing:
		changed = r.Touched()
	}
	byName := map[string][]string{}
	var keys []string
	for _, host := range changed {
		for _, c := range r.At(host).Controllers {
			if c.Role == gpu.ConsumerController {
				byName[c.Name] = append(byName[c.Name], host)
				f.Host = cmp.Or(f.Host, host)
				keys = append(keys, key("consumer", host, c.Name))
			}
		}
	}
	if len(byName) == 0 {
		return
	}
	f.Found = fmt.Sprintf("This software hands GPUs out: %s.", join(namesOn(byName)))
	if len(byName["slurmd"]) > 0 {
		f.Fix += " Slurm needs `ConstrainDevices=yes` in cgroup.conf, since CUDA_VISIBLE_DEVICES of its jobs counts only GPUs and MIG " +
			"devices in gres.conf; those of a host that gres.conf does not list stay open to its jobs even so, and must have higher numbers."
	}
	r.report(f, keys...)
}

func hasInstances(m *gpu.MIGLayout) bool {
	for _, n := range m.Profiles {
		if n > 0 {
			return true
		}
	}
	return len(m.Placements) > 0
}

// namesOn tells of names on which hosts each is.
func namesOn(hosts map[string][]string) []string {
	return words.Each(whatif.SortedKeys(hosts), func(name string) string { return name + " on " + join(quoteAll(hosts[name])) })
}

func checkLiveMigrationSupport(r *run) {
	c := r.Plan.Want.Config
	if c == nil {
		return
	}
	without := r.those(c.GPUs, func(h *gpu.Host, g *gpu.GPU) bool {
		return h.Cluster != nil && whatif.Partitions(g) &&
			(g.Partitionable.SupportsIncomingLiveMigration == nil || !*g.Partitionable.SupportsIncomingLiveMigration)
	})
	r.reportGPUs(Finding{
		Path:   "hosts",
		Title:  "VMs with partitions cannot be live-migrated",
		Found:  fmt.Sprintf("These GPUs do not report support for incoming live migration: %s.", r.gpuList(without)),
		Wanted: fmt.Sprintf("Clustered VMs with a partition of %s will be restarted when they move between nodes.", r.label()),
		Fix: "Live migration with a partition needs Windows Server 2025 or Azure Local 24H2, an IOMMU with DMA bit tracking (AMD EPYC 7002, " +
			"Intel Xeon of the 4th generation, or newer) " +
			"and NVIDIA vGPU driver 18 or newer.",
	}, "migration", without)
}
