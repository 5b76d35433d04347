package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// checkSharesUnder finds shares from under which a partition config or a pool would take
// what they were placed on, and those of the run that then find no place.
func checkSharesUnder(r *run) {
	if r.Plan.Want.Share != nil {
		checkShareRoom(r)
		return
	}
	path := "hosts"
	if r.Plan.Want.Pool != nil || r.Plan.Prior.Pool != nil {
		path = "members"
	}
	was := whatif.WantedGPUs(r.Plan.Prior)
	is := whatif.WantedGPUs(r.Plan.Want)
	hosts := r.HostsOf(r.Plan)
	if r.rule.ID == sharePlacement {
		// Of hosts that do not answer nobody knows which shares they have room for.
		asked, all := hosts, len(r.AtHand(was)) == len(was) && len(r.AtHand(is)) == len(is)
		if s := r.Plan.Prior.Share; s != nil {
			asked, all = r.Shares().HostsFor(s), true
		}
		var o shareOutcome
		if all {
			together(r, &o, asked)
		}
		for _, v := range o.found {
			r.report(v.Finding, v.keys...)
		}
	}
	if r.Plan.Prior.Share != nil {
		return
	}
	for _, host := range hosts {
		if h := r.At(host); h.Platform != gpu.HyperV {
			checkSharesOn(r, host, h, slices.Concat(is[host], was[host]), path)
		}
	}
}

// undone is what becomes of the device of some shares.
type undone struct {
	device gpu.SharedDevice
	fault  gpu.Fault
	what   string
	shares []*gpu.Share
	owners []string // others than the run's
}

func checkSharesOn(r *run, host string, h *gpu.Host, gpus []string, path string) {
	held := r.Shares().Holdings(host, h)
	if len(held) == 0 {
		return
	}
	after := r.Shares().SharedHost(host, h)
	var found []*undone
	for _, x := range held {
		for _, at := range x.Share.Devices {
			if !gpu.HasID(gpus, at.GPU) {
				continue
			}
			fault, what := r.undoes(h, after, x.Share, at)
			if fault == 0 {
				continue
			}
			i := slices.IndexFunc(found, func(u *undone) bool { return u.device.Same(at) && u.what == what })
			if i < 0 {
				i, found = len(found), append(found, &undone{device: at, fault: fault, what: what})
			}
			found[i].shares = append(found[i].shares, x.Share)
			if c := x.Claim; c != nil && c.Owner != "" && c.Owner != r.Owner && !slices.Contains(found[i].owners, c.Owner) {
				found[i].owners = append(found[i].owners, c.Owner)
			}
		}
	}
	for _, u := range found {
		reportUndone(r, host, u, path)
	}
}

// undoes tells what the plans of the run do to a device that a share is on.
func (r *run) undoes(h *gpu.Host, after *placement.SharedHost, s *gpu.Share, at gpu.SharedDevice) (gpu.Fault, string) {
	if pool := r.Shares().PoolLeft(s, after.Key, at.GPU); pool != "" {
		return placement.LackPool, "leaves pool " + quote(pool)
	}
	if r.Plan.Want.Pool != nil || r.Plan.Prior.Pool != nil {
		return 0, ""
	}
	was := placement.ShareModeOf(h, at)
	d := after.Find(at)
	switch {
	case d == nil && at.Instance != nil:
		return placement.LackMissing, "is destroyed"
	case d == nil:
		return placement.LackMissing, "is no longer whole"
	case d.Unfit != nil && d.Unfit.Fault == placement.LackForVMs:
		return placement.LackForVMs, "goes to VMs: it " + d.Unfit.Brief
	case d.Unfit != nil:
		return 0, "" // that is so already, whatever is planned
	case d.Mode != was:
		return placement.LackMode, fmt.Sprintf("changes from mode %s to %s", was, d.Mode)
	}
	fault := d.Exceeded(d.Taken())
	if text := exceededText(d, fault); text != "" {
		return fault, text
	}
	return 0, ""
}

// exceededText says of what a device has too little for its shares. Two shares with one device for
// themselves did not come by this plan.
func exceededText(d *placement.Device, fault gpu.Fault) string {
	switch fault {
	case placement.LackReplicas:
		return fmt.Sprintf("has %s for %s", plural(d.Seats, "replica"), plural(len(d.Shares), "share"))
	case placement.LackClients:
		return fmt.Sprintf("serves %s for %s", plural(d.Seats, "MPS client"), plural(len(d.Shares), "share"))
	case placement.LackMemory:
		return fmt.Sprintf("has %s for requests of %s", d.Memory, d.Taken().Request)
	case placement.LackLimit:
		return fmt.Sprintf("allows memory limits of %s times its memory, and they add up to %s of %s",
			placement.Decimal(d.Oversubscription), d.Taken().Limit, d.Memory)
	case placement.LackThreads:
		return fmt.Sprintf("allows thread percentages %s times, and they add up to %s", placement.Decimal(d.Oversubscription),
			placement.Percent(d.Taken().Threads))
	default:
		return ""
	}
}

func reportUndone(r *run, host string, u *undone, path string) {
	rule := sharePlacement
	switch u.fault {
	case placement.LackForVMs:
		rule = vmXorShare
	case placement.LackLimit, placement.LackThreads:
		rule = oversubscription
	case placement.LackClients:
		rule = mpsClientLimit
	}
	if rule != r.rule.ID {
		return
	}
	keys := words.Each(u.shares, func(s *gpu.Share) string {
		return key("under", host, placement.DeviceText(u.device), strconv.Itoa(int(u.fault)), s.Name)
	})
	fix := "Destroy these shares first, or leave their GPUs as they are."
	if len(u.owners) > 0 {
		fix = fmt.Sprintf("Let owner %s destroy these shares first, or leave their GPUs as they are.", join(quoteAll(u.owners)))
	}
	r.report(Finding{
		Path: path, Title: "Shares are placed on GPUs that would change", Host: host, GPU: u.device.GPU,
		Found: fmt.Sprintf("%s on %s %s %s, which %s.", capital(placement.ShareNames(u.shares)), hostText(host),
			verb(len(u.shares), "uses", "use"), placement.DeviceText(u.device), u.what),
		Wanted: fmt.Sprintf("%s changes it. A share is never moved, and keeps what it was placed with.", capital(r.label())),
		Fix:    fix,
	}, keys...)
}

// checkVMXorShare finds GPUs that VMs have, or are to have, and that are shared.
func checkVMXorShare(r *run) {
	checkSharesUnder(r)
	if r.Plan.Want.Share != nil {
		return
	}
	gpus, path := whatif.WantedGPUs(r.Plan.Want), gpusPath(r.Plan.Want)
	c := r.Plan.Want.Config
	if c != nil && c.Kind == gpu.KindVGPU {
		reportPooled(r, c)
	}
	if c != nil && c.Kind != gpu.KindMPS && c.Kind != gpu.KindTimeSlicing {
		return // who else has the GPU is said by the rules of those kinds
	}
	var taken []member
	var lines []string
	for host, h := range r.HostsAtHand(gpus) {
		if h.Platform == gpu.HyperV {
			continue
		}
		then := r.Shares().LaidOut(host, h)
		for g := range whatif.Selected(h, gpus[host]) {
			over := c
			if c == nil {
				over = placement.LayoutOf(then, g).Config
			}
			if why := placement.ForVMs(g, over); why != "" {
				taken = append(taken, member{host: host, gpu: g})
				lines = append(lines, gpuOn(host, g)+" "+why)
			}
		}
	}
	r.reportGPUs(Finding{
		Path: path, Title: "The GPU is for VMs",
		Found:  capital(strings.Join(lines, "; ")) + ".",
		Wanted: fmt.Sprintf("%s shares it with containers. A GPU is for VMs or for containers, never for both.", capital(r.label())),
		Fix:    "Leave this GPU out, or take it back from the VMs first.",
	}, "for vms", taken)
}

// reportPooled reports GPUs of a config for VMs that a Linux pool of the run has, or at apply one
// of the host. A pool that is planned later says it itself.
func reportPooled(r *run, c *gpu.PartitionConfig) {
	var taken []member
	var lines []string
	for host, h := range r.HostsAtHand(c.GPUs) {
		for g := range whatif.Selected(h, c.GPUs[host]) {
			if pool := r.Shares().PoolWith(host, h, g.ID); h.Platform == gpu.Linux && pool != "" {
				taken = append(taken, member{host: host, gpu: g})
				lines = append(lines, gpuOn(host, g)+" is in pool "+quote(pool))
			}
		}
	}
	r.reportGPUs(Finding{
		Path: "hosts", Title: "The GPU is for containers",
		Found:  capital(strings.Join(lines, "; ")) + ".",
		Wanted: fmt.Sprintf("%s makes vGPUs of it. A GPU is for VMs or for containers, never for both.", capital(r.label())),
		Fix:    "Leave this GPU out of the config, or take it out of the pool first.",
	}, "for containers", taken)
}
