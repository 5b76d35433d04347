package change

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// Difference is where a host is not as declared.
type Difference struct {
	// Object is what differs: "GPU GPU-5c3d…", "MPS daemon ml".
	Object string
	// Cause is how it came to be so; "" where that is not known.
	Cause Cause
	// Found and Declared finish "it …" and "declared is …". Declared may be "".
	Found, Declared string
	// Since is from when on; zero where that is not known.
	Since time.Time

	repair repair
	// quietly is true of what is put back but is no drift: what cannot be read, and a file that
	// is behind what it follows from.
	quietly bool
}

// repair is how a difference is put right without taking anything from anybody, and why not.
type repair struct {
	steps []Step
	// quiet is true of steps while which nothing may watch the GPU.
	quiet bool
	// lacks is what is missing, for people; undeclared is true of what is there and should not be.
	lacks      []string
	undeclared bool
	// stays are the reasons why what differs is left as it is.
	stays []string
}

func stays(why string) repair { return repair{stays: []string{why}} }

// Lacks is what the steps put back, in words; "" for nothing.
func (d *Difference) Lacks() string { return strings.Join(d.repair.lacks, ", ") }

// Undeclared reports whether what differs is there and should not be.
func (d *Difference) Undeclared() bool { return d.repair.undeclared }

// Stays says why something is left as it is, for each reason.
func (d *Difference) Stays() []string {
	return words.Each(d.repair.stays, func(why string) string { return d.String() + ": " + why })
}

// unread makes the difference one of what cannot be read.
func (d Difference) unread(u gpu.Unknown) Difference {
	d.Found, d.Declared, d.quietly, d.repair = "cannot be read", "", true, stays(u.Why)
	return d
}

// Cause is how something came to differ from what is declared.
type Cause string

// Causes.
const (
	CauseReboot       Cause = "reboot"        // it is as a reboot leaves it
	CauseOtherTool    Cause = "other_tool"    // something else than a config of ours has changed it
	CauseOtherState   Cause = "other_state"   // its claim is of another owner
	CauseGPUReplaced  Cause = "gpu_replaced"  // another GPU is in its place
	CauseGPUMissing   Cause = "gpu_missing"   // the host does not show it
	CauseMoved        Cause = "moved"         // it is in another place than it was given
	CauseGPUAdded     Cause = "gpu_added"     // it is new
	CauseFailedChange Cause = "failed_change" // an earlier change did not come to its end
)

var causes = map[Cause]string{
	CauseReboot: "lost by reboot, or removed by others", CauseOtherTool: "changed by others", CauseOtherState: "another state has it",
	CauseGPUReplaced: "the GPU was replaced", CauseGPUMissing: "the GPU is missing", CauseMoved: "it has moved",
	CauseGPUAdded:     "the GPU is new",
	CauseFailedChange: "an earlier change failed",
}

// Values lists the causes.
func (Cause) Values() []string {
	return []string{
		string(CauseReboot), string(CauseOtherTool), string(CauseOtherState), string(CauseGPUReplaced), string(CauseGPUMissing),
		string(CauseMoved), string(CauseGPUAdded), string(CauseFailedChange),
	}
}

func (d Difference) String() string {
	s := d.Object + " " + d.Found
	if d.Declared != "" {
		s += ", declared is " + d.Declared
	}
	if d.Cause != "" {
		s += "; " + causes[d.Cause]
	}
	if !d.Since.IsZero() {
		s += " (since " + d.Since.UTC().Format(time.RFC3339) + ")"
	}
	return s
}

// Differences are where a host is not as a config declares, on some of its GPUs and in the
// daemons that serve them. The claim, nil for none, tells what the config made of them. What
// cannot be read does not differ.
func Differences(host *gpu.Host, c *gpu.PartitionConfig, claim *gpu.Claim, ids []string) []Difference {
	return slices.DeleteFunc(differences(host, c, claim, ids), func(d Difference) bool { return d.quietly })
}

// differences are the same with what cannot be read.
func differences(host *gpu.Host, c *gpu.PartitionConfig, claim *gpu.Claim, ids []string) []Difference {
	var out []Difference
	for _, id := range ids {
		if d := differenceOf(host, c, claim, id); d != nil {
			out = append(out, *d)
		}
	}
	after := ProjectAll(*host, steps(out)) // with instances that are put back, each of which has a daemon
	out = append(out, daemons(host, &after, c, claim, ids)...)
	for i := range out {
		out[i].date(host, claim)
	}
	return out
}

func steps(of []Difference) []Step {
	var out []Step
	for i := range of {
		out = append(out, of[i].repair.steps...)
	}
	return out
}

// differenceOf is how a GPU differs from a config, nil for not at all.
func differenceOf(host *gpu.Host, c *gpu.PartitionConfig, claim *gpu.Claim, id string) *Difference {
	k, ours := kinds[c.Kind], claim != nil && claim.Covers(id)
	d := Difference{Object: "GPU " + id, Declared: LayoutDeclared(c)}
	g, ok := host.GPU(id)
	u, unknown := host.UnknownGPU(id)
	switch {
	case unknown:
		d = d.unread(u)
	case !ok && !ours, ok && k.has(c, g):
		return nil
	case !ok:
		d.Cause, d.Found, d.repair = CauseGPUMissing, "has no layout", stays("the host does not have it any more")
	case !k.offers(g):
		d.Found, d.repair = "offers nothing of the kind", stays("there is nothing that it could get back")
	default:
		var given gpu.Layout
		if claim != nil {
			given = claim.AppliedLayouts.Of(g.ID)
			if d.Cause = k.cause(given, g.Layout()); d.Cause == CauseOtherTool && claim.Incomplete {
				d.Cause = CauseFailedChange // the claim says what was to come
			}
		}
		d.Found = k.found(c, given, g)
		if g.Dismounted {
			d.repair = stays("it is dismounted from the host, for passthrough")
		} else if ours {
			d.repair = k.lost(host, claim, g)
		}
	}
	return &d
}

// date tells since when a difference is, as far as the boot of the host tells: what is as a
// reboot leaves it has been so since then, unless it was given to the object after it.
func (d *Difference) date(host *gpu.Host, claim *gpu.Claim) {
	switch {
	case d.Cause != CauseReboot || host.Boot == nil:
	case claim != nil && claim.Boot == host.Boot.ID:
		d.Cause = CauseOtherTool
	default:
		d.Since = host.Boot.At
	}
}

// ShareDifferences are where a host is not as a share declares, which is placed. claim is its
// record, nil for none.
func ShareDifferences(host *gpu.Host, s *gpu.Share, claim *gpu.Claim) []Difference {
	return slices.DeleteFunc(shareDifferences(host, host, s, claim), func(d Difference) bool { return d.quietly })
}

// shareDifferences are the same with what cannot be read. after is the host as it will be when
// its layouts are put right.
func shareDifferences(host, after *gpu.Host, s *gpu.Share, claim *gpu.Claim) []Difference {
	var out []Difference
	share := Difference{Object: DescribeObject(gpu.ClaimShare, s.Name)}
	differ := func(cause Cause, found string) {
		d := share
		d.Cause, d.Found = cause, found
		out = append(out, d)
	}
	switch {
	case claim == nil || claim.Token == "":
		differ("", "has no record there any more")
	case claim.Incomplete:
		differ(CauseFailedChange, "had a change that failed and could not be put back")
	case claim.Want.Share != nil && !claim.Want.Share.SameLimits(*s):
		differ("", "has other limits or another label")
	}
	if u, unknown := host.UnknownPart(gpu.PartShares); unknown {
		return append(out, share.unread(u))
	}
	switch handed, there := host.HandedShare(s.Name); {
	case !there && slices.Contains(host.ForeignSpecs, s.Name):
		differ(CauseOtherTool, "is not handed to containers: somebody else has a CDI specification in its place")
		out[len(out)-1].repair = stays("that file stays as it is: move it away")
		return out
	case !there:
		differ(CauseReboot,
			"is not handed to containers any more: its CDI specification is gone, as after a reboot without `gpu-agent reconcile`")
	case !leads(host, s, handed):
		differ("", "leads containers to a GPU instance that was made again")
		out[len(out)-1].quietly = true
	case partitionEnded(host, s):
		differ("", "has no static partition any more: it ended with its MPS daemon")
	case handed.Outdated != "":
		differ("", "is handed to containers in another form than it would be now: its CDI specification "+handed.Outdated)
	default:
		return out
	}
	d := &out[len(out)-1]
	d.date(host, claim)
	if len(s.Devices) > 0 {
		d.repair = lostShare(host, after, s)
	}
	return out
}

// aside says what is not of the config, or else what of it is gone.
func aside[T any](foreign, gone []T, text func([]T) string) string {
	switch {
	case len(foreign) > 0:
		return " (" + text(foreign) + " is not of this config)"
	case len(gone) > 0:
		return " (" + text(gone) + " is gone)"
	}
	return ""
}

// AssignmentDifferences are how a VM differs from what its assignment declares. claim is the
// record of it, nil for none.
func AssignmentDifferences(h *gpu.Host, vm *gpu.VM, a *gpu.Assignment, claim *gpu.Claim) []Difference {
	out := vmDifferences(h, vm, a, claim)
	differ := func(found string, since time.Time) {
		out = append(out, Difference{Object: "VM " + words.Name(vm.Name), Found: found, Cause: CauseFailedChange, Since: since})
	}
	if claim != nil && claim.Incomplete {
		differ("had a change that failed and could not be put back", time.Time{})
	}
	if owed, ok := h.Owes(vm.ID); ok {
		differ(fmt.Sprintf("is off: a change of %s stopped it and could not start it again", owed.Subject), owed.Since)
	}
	return out
}

func vmDifferences(h *gpu.Host, vm *gpu.VM, a *gpu.Assignment, claim *gpu.Claim) []Difference {
	var out []Difference
	differ := func(found, declared string, cause Cause) {
		out = append(out, Difference{Object: "VM " + words.Name(vm.Name), Found: found, Declared: declared, Cause: cause})
	}
	if claim != nil && claim.Pending {
		if vm.State == gpu.VMOff { // one that is saved or paused has not been powered off
			differ("is off now, so the assignment that waited for it can be made", "", "")
		}
		return out
	}
	switch {
	case a.Partition != nil && h.Platform == gpu.Linux:
		if why, cause := strayedVGPU(h, a, claim); why != "" {
			differ(why, "", cause)
		}
	case a.Partition != nil:
		if why := Strayed(h, vm, a.Partition); why != "" {
			differ(why, "", "")
		}
	case a.Pool != nil:
		n := 0
		for _, d := range vm.Devices {
			if gpu.SameID(d.Pool, a.Pool.Name) {
				n++
			}
		}
		if n != a.Pool.Count {
			differ(fmt.Sprintf("has %d GPUs of pool %s", n, words.Name(a.Pool.Name)), strconv.Itoa(a.Pool.Count), CauseOtherTool)
		}
	case a.Device != nil:
		for _, id := range a.Device.GPUIDs {
			if !slices.ContainsFunc(vm.Devices, func(d gpu.DeviceAssignment) bool { return gpu.SameID(d.GPU, id) }) {
				cause := CauseOtherTool
				if _, there := h.GPU(id); !there {
					cause = CauseGPUMissing
				}
				differ("does not have GPU "+id, "", cause)
			}
		}
	}
	told := a.Settings.Only(vm.Settings)
	told.OfflineAction = a.Settings.OfflineAction // of which nil is none
	if diff := vm.Settings.Differs(told); !diff.Empty() {
		differ("has other settings: "+describeSettings(vm.Settings, diff), "", CauseOtherTool)
	}
	return out
}

func describeSettings(have, want gpu.VMSettings) string {
	var parts []string
	if want.LowMemoryMappedIOSpace != nil {
		parts = append(parts, "low memory-mapped IO space")
	}
	if want.HighMemoryMappedIOSpace != nil {
		parts = append(parts, "high memory-mapped IO space")
	}
	if want.GuestControlledCache != nil {
		parts = append(parts, "guest-controlled cache types")
	}
	if want.AutomaticStopAction != nil {
		parts = append(parts, fmt.Sprintf("automatic stop action (has %s)", settingText(have.AutomaticStopAction)))
	}
	if want.OfflineAction != nil {
		parts = append(parts, fmt.Sprintf("offline action (has %s)", settingText(have.OfflineAction)))
	}
	return strings.Join(parts, ", ") + " not as declared"
}

func settingText[T ~string](v *T) string {
	if v == nil {
		return "none"
	}
	return string(*v)
}
