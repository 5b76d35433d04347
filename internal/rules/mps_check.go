package rules

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

// mpsPath is the attribute with a config's MPS layout.
func mpsPath(c *gpu.PartitionConfig) string {
	if c.MIG != nil {
		return "mig.mps"
	}
	return "mps"
}

// checkMPSSupported asks whether the hosts have MPS, and its GPUs what is wanted of it.
func checkMPSSupported(r *run) {
	c := r.Plan.Want.Config
	if c == nil || c.MPS == nil {
		return
	}
	reportMPSAmounts(r, c)
	var without, keys []string
	for host, h := range r.HostsAtHand(c.GPUs) {
		if h.Platform != gpu.HyperV && len(c.GPUs[host]) > 0 && (h.MPS == nil || h.MPS.Program == "") {
			without = append(without, host)
			keys = append(keys, key("no mps", host))
		}
	}
	if len(without) > 0 {
		r.report(Finding{
			Path: "hosts", Title: "MPS is not installed on the host", Host: without[0],
			Found:  fmt.Sprintf("nvidia-cuda-mps-control is not installed on %s.", join(quoteAll(without))),
			Wanted: fmt.Sprintf("%s starts an MPS control daemon there.", capital(r.label())),
			Fix: "Install it with NVIDIA's driver (package nvidia-cuda-mps, nvidia-compute-utils or xorg-x11-drv-nvidia-cuda), or leave the " +
				"host out.",
		}, keys...)
	}
	reportMPSGPUs(r, c)
}

// reportMPSAmounts finds limits that no daemon takes.
func reportMPSAmounts(r *run, c *gpu.PartitionConfig) {
	var found []string
	if p := c.MPS.ActiveThreadPercentage; !placement.IsPercentage(p) {
		found = append(found, "`active_thread_percentage` is "+placement.Decimal(p)+", and must be more than 0 and at most 100")
	} else if math.Round(p*10)/10 != p {
		found = append(found, fmt.Sprintf("`active_thread_percentage` is %v, of which daemons keep one digit after the point", p))
	}
	found = append(found, pinnedLimitFault(r, c)...)
	if c.MIG == nil {
		if mode := c.MPS.ComputeMode; mode != "" && mode != gpu.ComputeDefault && mode != gpu.ComputeExclusiveProcess {
			found = append(found, "`compute_mode` is "+quote(string(mode))+", and must be \"exclusive_process\" or \"default\"")
		}
	}
	if c.MPS.StaticPartitions && (!c.MPS.PerGPU || c.MPS.ActiveThreadPercentage > 0) {
		found = append(found, "`static_partitions` takes `daemons = \"per_gpu\"`, as a process has one partition of one GPU, and no "+
			"`active_thread_percentage`, which the driver then ignores: that of a share is the size of its partition")
	}
	if o := c.MPS.Oversubscription; !(o == 0 || o >= 1) {
		found = append(found, "`oversubscription` is "+placement.Decimal(o)+", and must be at least 1")
	}
	if len(found) == 0 {
		return
	}
	r.report(Finding{
		Path: mpsPath(c), Title: "Invalid MPS settings", Found: capital(join(found)) + ".",
		Fix: "Correct these values, or leave them out.",
	}, key("mps amounts"))
}

// pinnedLimitFault is what daemons on Linux do not take of a limit, if anything.
func pinnedLimitFault(r *run, c *gpu.PartitionConfig) []string {
	limit := c.MPS.PinnedMemoryLimit
	rounded := gpu.RoundMPSLimit(limit)
	if rounded == limit {
		return nil
	}
	for host, h := range r.HostsAtHand(c.GPUs) {
		if h.Platform == gpu.Linux {
			return []string{fmt.Sprintf("`pinned_memory_limit_mib` is %d, and daemons on %s take only whole GiB from 1024 on: %d or %d would do",
				limit.MiB(), hostText(host), rounded.MiB(), rounded.MiB()+1024)}
		}
	}
	return nil
}

// reportMPSGPUs finds GPUs that cannot give what is wanted.
func reportMPSGPUs(r *run, c *gpu.PartitionConfig) {
	prohibited := r.those(c.GPUs, func(_ *gpu.Host, g *gpu.GPU) bool { return c.MIG == nil && g.ComputeMode == gpu.ComputeProhibited })
	r.reportGPUs(Finding{
		Path: "selector", Title: "The compute mode of the GPU is prohibited",
		Found: fmt.Sprintf("%s %s in compute mode prohibited, which an administrator has set.", capital(r.gpuList(prohibited)),
			verb(len(prohibited), "is", "are")),
		Wanted: fmt.Sprintf("%s shares %s among processes.", capital(r.label()), verb(len(prohibited), "it", "them")),
		Fix:    "Run `nvidia-smi -c DEFAULT` for it on the host, or leave the GPU out of `selector`.",
	}, "prohibited", prohibited)
	silent := r.those(c.GPUs, func(_ *gpu.Host, g *gpu.GPU) bool {
		return c.MPS.StaticPartitions && (g.ComputeCapability == "" || g.Driver.Version == "")
	})
	r.reportGPUs(Finding{
		Path: "mps", Title: "It is not known whether the GPU has static partitions",
		Found: fmt.Sprintf("The host does not tell the compute capability of %s, or the version of its driver.", r.gpuList(silent)),
		Wanted: fmt.Sprintf(
			"%s gives each share a partition (`static_partitions`), which MPS has with drivers from R590 on, on GPUs from Ampere on.",
			capital(r.label())),
		Fix: "Leave the GPU out of `selector`, or leave `static_partitions` out.",
	}, "partitions unknown", silent)
	without := r.those(c.GPUs, func(_ *gpu.Host, g *gpu.GPU) bool {
		return c.MPS.StaticPartitions && !g.StaticPartitions() && g.ComputeCapability != "" && g.Driver.Version != ""
	})
	r.reportGPUs(Finding{
		Path: "mps", Title: "The GPU has no static partitions",
		Found: fmt.Sprintf("%s %s no static partitions of multiprocessors: MPS has them with drivers from R590 on, on GPUs from Ampere on.",
			capital(r.gpuList(without)), verb(len(without), "has", "have")),
		Wanted: fmt.Sprintf("%s gives each share a partition (`static_partitions`).", capital(r.label())),
		Fix:    "Upgrade the driver, leave the GPU out of `selector`, or leave `static_partitions` out.",
	}, "no partitions", without)
	var small []member
	for host, h := range r.HostsAtHand(c.GPUs) {
		for g := range whatif.Selected(h, c.GPUs[host]) {
			if c.MPS.PinnedMemoryLimit > 0 && g.VRAM > 0 && c.MPS.PinnedMemoryLimit > r.smallest(host, h, g, c) {
				small = append(small, member{host: host, gpu: g})
			}
		}
	}
	if len(small) > 0 {
		r.reportGPUs(Finding{
			Path: mpsPath(c), Title: "The memory limit exceeds the GPU's memory",
			Found: fmt.Sprintf("%s %s %s of memory%s.", capital(r.gpuList(small)), verb(len(small), "has", "have"),
				r.smallest(small[0].host, r.At(small[0].host), small[0].gpu, c), inInstances(c)),
			Wanted: fmt.Sprintf("%s holds each client to %s (`pinned_memory_limit_mib`).", capital(r.label()), c.MPS.PinnedMemoryLimit),
			Fix:    "Write a limit within the device's memory, or leave it out.",
		}, "pinned limit", small)
	}
}

func inInstances(c *gpu.PartitionConfig) string {
	if c.MIG != nil {
		return " in its smallest instance"
	}
	return ""
}

// smallest is the memory of the smallest device that a config makes of a GPU.
func (r *run) smallest(host string, h *gpu.Host, g *gpu.GPU, c *gpu.PartitionConfig) gpu.Bytes {
	out := g.VRAM
	if c.MIG != nil {
		then := r.Shares().LaidOut(host, h)
		if g, ok := then.GPU(g.ID); ok {
			for _, in := range placement.LayoutOf(then, g).Instances {
				if in.Memory > 0 {
					out = min(out, in.Memory)
				}
			}
		}
	}
	return out
}

// checkMPSNotOnMIG finds GPUs in MIG mode that a config would share as a whole.
func checkMPSNotOnMIG(r *run) {
	c := r.Plan.Want.Config
	if c == nil || c.Kind != gpu.KindMPS && c.Kind != gpu.KindTimeSlicing {
		return
	}
	in := r.those(c.GPUs, func(_ *gpu.Host, g *gpu.GPU) bool { return g.MIG != nil && (g.MIG.Enabled || g.MIG.Pending) })
	kind := string(c.Kind)
	r.reportGPUs(Finding{
		Path: "selector", Title: "The GPU is in MIG mode",
		Found: fmt.Sprintf("%s %s in MIG mode, or will be after the next reset.", capital(r.gpuList(in)), verb(len(in), "is", "are")),
		Wanted: fmt.Sprintf("%s shares whole GPUs with `%s`, and processes reach a GPU in MIG mode through its instances only.",
			capital(r.label()), kind),
		Fix: fmt.Sprintf("Write `mig = { profiles = { ... }, %s = { ... } }` to share the instances, switch MIG mode off with a config of "+
			"`mig = { enabled = false }`, or leave the GPU out of `selector`.", kind),
	}, "mig mode", in)
}

// checkKeptInitialized finds GPUs that lose what a config sets when nobody has them open
// (assumption linux-last-client).
func checkKeptInitialized(r *run) {
	c := r.Plan.Want.Config
	if c == nil {
		return
	}
	mode, slice := placement.WantedModes(c)
	var set, then string
	switch {
	case mode == gpu.ComputeExclusiveProcess:
		set, then = "compute mode "+string(mode), ": from then on processes may use the GPU past MPS"
	case slice != "" && slice != gpu.TimeSliceDefault:
		set = "time slice " + string(slice)
	default:
		return
	}
	lose := r.those(c.GPUs, func(_ *gpu.Host, g *gpu.GPU) bool { return g.Persistence != nil && !*g.Persistence })
	r.reportGPUs(Finding{
		Path: "selector", Title: "The driver will forget the GPU's settings",
		Found: fmt.Sprintf("%s %s not in persistence mode.", capital(r.gpuList(lose)), verb(len(lose), "is", "are")),
		Wanted: fmt.Sprintf(
			"%s sets %s, which the driver forgets when the last program that has the GPU open ends%s. The next plan shows it as drift.",
			capital(r.label()), set, then),
		Fix: "Run `nvidia-persistenced --persistence-mode` on the host as a service, which the driver's packages have a unit for, so that " +
			"the GPU stays initialized.",
	}, "not kept", lose)
}

// checkMPSOneUser asks that it is stated whose processes may be clients.
func checkMPSOneUser(r *run) {
	c := r.Plan.Want.Config
	if c == nil || c.MPS == nil {
		return
	}
	var found string
	switch l := c.MPS; {
	case l.User == nil && !l.MultiUser:
		found = "Neither `uid` nor `multi_user` says whose processes may use the GPUs"
	case l.User != nil && l.MultiUser:
		found = "Both `uid` and `multi_user` are set"
	case l.User != nil && *l.User < 0:
		found = fmt.Sprintf("`uid` is %d", *l.User)
	default:
		return
	}
	r.report(Finding{
		Path: mpsPath(c), Title: "MPS needs a user", Found: found + ".",
		Wanted: "An MPS daemon serves the processes of one user at a time, while those of other users wait; with `multi_user` it serves all " +
			"users.",
		Fix: "Write `uid` with the user's id, or `multi_user = true`.",
	}, key("user"))
}

// checkMPSInUse finds processes that keep a config of MPS from being made, and clients that
// would end though the config does not allow it.
func checkMPSInUse(r *run) {
	if !r.Transition() {
		return
	}
	limit := r.allowedDisruption()
	for host, f := range r.Forecasts() {
		h := r.At(host)
		var busy, ending []member
		var by, ends, daemons []string
		refused := f.Refused.Of(change.MPSInUse)
		for _, why := range refused {
			if g, ok := h.GPU(why.GPU); ok && why.Restores == "" {
				busy = append(busy, member{host: host, gpu: g})
				by = append(by, gpuText(g)+": "+joinAll(why.By))
			}
		}
		reportMPSBusy(r, host, busy, by)
		reportNotRestored(r, host, f)
		if !slices.ContainsFunc(refused, func(why *gpu.Refusal) bool { return why.Needs != "" }) {
			continue
		}
		for _, x := range f.GPUs {
			if x.Sharing == nil || len(x.Sharing.Ends()) == 0 {
				continue
			}
			g, _ := h.GPU(x.GPU)
			ending = append(ending, member{host: host, gpu: g})
			ends = append(ends, x.Sharing.Ends()...)
			for _, d := range x.Sharing.Daemons {
				daemons = append(daemons, quote(d.Name)+" ("+string(d.Action)+")")
			}
		}
		reportMPSClients(r, host, ending, ends, daemons, limit)
	}
}

func reportMPSBusy(r *run, host string, busy []member, by []string) {
	r.reportGPUs(Finding{
		Path: "selector", Title: "Processes outside of MPS use the GPUs",
		Found:  fmt.Sprintf("On %s these use the GPUs without this config's MPS: %s.", hostText(host), strings.Join(by, "; ")),
		Wanted: fmt.Sprintf("%s gives the GPUs to one MPS daemon alone. No process is ever killed for it.", capital(r.label())),
		Fix: "Stop these first, or leave the GPUs out of `selector`. With `compute_mode = \"default\"` other processes may stay on the " +
			"GPUs, past MPS.",
	}, "mps busy", busy)
}

func reportMPSClients(r *run, host string, ending []member, clients, daemons []string, limit gpu.Disruption) {
	slices.Sort(clients)
	clients = slices.Compact(clients)
	slices.Sort(daemons)
	f := Finding{
		Path: "max_disruption", Title: "MPS clients would be terminated",
		Found: fmt.Sprintf("On %s, daemons that change (%s) have %s: %s.", hostText(host), join(slices.Compact(daemons)),
			plural(len(clients), "client"), join(clients)),
		Wanted: fmt.Sprintf("%s restarts or stops these daemons, which terminates their clients. Its `max_disruption` allows %s only.",
			capital(r.label()),
			quote(string(orNone(limit)))),
		Fix: "Write `max_disruption = \"process_restart\"`, or stop the clients first.",
	}
	if r.Plan.Want.Config == nil {
		f.Fix = "Apply `max_disruption = \"process_restart\"` first, stop the clients, or set `on_destroy = \"keep\"`."
	}
	r.reportGPUs(f, "mps clients", ending)
}
