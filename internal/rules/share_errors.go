package rules

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// LackKind is what a device lacks for a share.
type LackKind string

// Kinds of lack.
const (
	LackMissing  LackKind = "missing"  // it is not there
	LackForVMs   LackKind = "for_vms"  // VMs have it, or are to have it
	LackLayout   LackKind = "layout"   // it cannot be used as it is
	LackPool     LackKind = "pool"     // it is a pool's
	LackConfig   LackKind = "config"   // it is not the config's
	LackProfile  LackKind = "profile"  // it is not of the MIG profile
	LackApart    LackKind = "apart"    // one process cannot reach it beside others
	LackMode     LackKind = "mode"     // its mode has no such limit
	LackSize     LackKind = "size"     // it is too small, even when nobody else is on it
	LackTaken    LackKind = "taken"    // another share has it for itself
	LackClients  LackKind = "clients"  // MPS serves no more clients
	LackReplicas LackKind = "replicas" // time-slicing has no more replicas
	LackMemory   LackKind = "memory"   // requests do not fit
	LackLimit    LackKind = "limits"   // memory limits would be oversubscribed too much
	LackThreads  LackKind = "threads"  // thread percentages would be
)

// ShareLack is why a share does not fit on a device. Found begins with a verb, and Wanted
// is a noun.
type ShareLack struct {
	Device gpu.SharedDevice
	Model  string
	Kind   LackKind
	Found  string
	Wanted string
	Fix    string
}

func (d *shareDevice) lack(kind LackKind, found, wanted, fix string) *ShareLack {
	return &ShareLack{Device: d.SharedDevice, Model: d.gpu.Model, Kind: kind, Found: found, Wanted: wanted, Fix: fix}
}

func (l ShareLack) Error() string {
	return fmt.Sprintf("%s %s (wanted: %s)", lackDevice(l), l.Found, l.Wanted)
}

// lackDevice is `GPU GPU-1f3c (NVIDIA H100)` or `instance 1g.10gb@4 of GPU ...`.
func lackDevice(l ShareLack) string {
	text := gpuText(&gpu.GPU{ID: l.Device.GPU, Model: l.Model})
	if at := l.Device.Instance; at != nil {
		return "instance " + placementsText([]gpu.MIGPlacement{*at}) + " of " + text
	}
	return text
}

// deviceText is "GPU-1f3c" or "GPU-1f3c/1g.10gb@4".
func deviceText(d gpu.SharedDevice) string {
	if d.Instance == nil {
		return d.GPU
	}
	return d.GPU + "/" + placementsText([]gpu.MIGPlacement{*d.Instance})
}

// ShareNoRoomError is a share that does not fit on a host, with the reason of each device
// that it could have been on.
type ShareNoRoomError struct {
	Share, Host string
	// Want is how many devices it has part in.
	Want int
	// Placed is true for a share that is placed and does not fit where it is.
	Placed bool
	Lacks  []ShareLack
	// Fits are devices that would do but are too few, or not reached by one process.
	Fits []gpu.SharedDevice
	// Missing are pinned GPUs that the host has not.
	Missing []string
}

func (e *ShareNoRoomError) Error() string {
	return fmt.Sprintf("share %s does not fit on %s: %s", quote(e.Share), hostText(e.Host), e.why())
}

func (e *ShareNoRoomError) why() string {
	var parts []string
	if len(e.Missing) > 0 {
		parts = append(parts, "there is no "+join(withNoun("GPU ", e.Missing)))
	}
	lacks := make([]string, len(e.Lacks))
	for i, l := range e.Lacks {
		lacks[i] = l.Error()
	}
	if len(lacks) > listed {
		lacks = append(lacks[:listed], fmt.Sprintf("%d more", len(lacks)-listed))
	}
	parts = append(parts, lacks...)
	if len(e.Fits) > 0 {
		fits := make([]string, len(e.Fits))
		for i, d := range e.Fits {
			fits[i] = deviceText(d)
		}
		parts = append(parts, fmt.Sprintf("it wants %s that one process reaches, and would fit on each of %s", plural(e.Want, "device"), join(fits)))
	}
	if len(parts) == 0 {
		return "there is no GPU for it"
	}
	return strings.Join(parts, "; ")
}

func withNoun(noun string, names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = noun + n
	}
	return out
}

// Kind is what all devices lack, and "" when they lack different things or nothing.
func (e *ShareNoRoomError) Kind() LackKind {
	if len(e.Lacks) == 0 || len(e.Fits) > 0 || len(e.Missing) > 0 {
		return ""
	}
	kind := e.Lacks[0].Kind
	if slices.ContainsFunc(e.Lacks, func(l ShareLack) bool { return l.Kind != kind }) {
		return ""
	}
	return kind
}

// fix is the advice on the device that lacks least: what comes last in a check.
func (e *ShareNoRoomError) fix() string {
	switch {
	case len(e.Missing) > 0:
		return "Write GPU ids as the `gpu_inventory` data source prints them for this host."
	case len(e.Lacks) == 0 && len(e.Fits) == 0:
		return "Choose another host, or cover its GPUs with a gpu_partition_config or a gpu_pool that the share names."
	case len(e.Lacks) == 0 || len(e.Fits) > 0:
		return "Ask for fewer devices, or cover the GPUs with one gpu_partition_config."
	}
	return slices.MaxFunc(e.Lacks, func(a, b ShareLack) int { return cmp.Compare(lackRank(a.Kind), lackRank(b.Kind)) }).Fix
}

func lackRank(k LackKind) int {
	return slices.Index([]LackKind{
		LackMissing, LackPool, LackConfig, LackForVMs, LackLayout, LackProfile, LackApart, LackMode, LackSize, LackTaken,
		LackClients, LackReplicas, LackMemory, LackLimit, LackThreads,
	}, k)
}

// ShareScopeError is a pool or a partition config that the host has not.
type ShareScopeError struct {
	Share, Host, What, ID string
}

func (e *ShareScopeError) Error() string {
	return fmt.Sprintf("share %s is drawn from %s %s, which is not on %s", quote(e.Share), e.What, quote(e.ID), hostText(e.Host))
}

// ShareApartError is devices of one share that no process reaches together.
type ShareApartError struct {
	Share                 string
	First, Second         gpu.SharedDevice
	FirstMode, SecondMode gpu.ShareMode
}

func (e *ShareApartError) Error() string {
	return fmt.Sprintf("share %s is on %s (mode %s) and %s (mode %s), which no process reaches together", quote(e.Share),
		deviceText(e.First), e.FirstMode, deviceText(e.Second), e.SecondMode)
}

// ShareQuotaError is a label that would have more of a pool than its quota.
type ShareQuotaError struct {
	Share, Host string // Host is "" over all hosts
	Pool, Label string
	// What is "GPUs", "memory" or "shares".
	What                string
	Quota, Taken, Wants string
	// By are the names of the shares that have part in the quota.
	By []string
}

func (e *ShareQuotaError) Error() string {
	return fmt.Sprintf("share %s of label %s would exceed the label's quota of pool %s: %s, of which %s", quote(e.Share), quote(e.Label), quote(e.Pool), e.found(), e.wanted())
}

func (e *ShareQuotaError) found() string {
	by := "nobody has any"
	if len(e.By) > 0 {
		by = verb(len(e.By), "share ", "shares ") + join(quoteAll(e.By)) + verb(len(e.By), " has ", " have ") + e.Taken
	}
	where := ""
	if e.Host != "" {
		where = " on " + hostText(e.Host)
	}
	return fmt.Sprintf("its quota of %s is %s%s, and %s", e.What, e.Quota, where, by)
}

func (e *ShareQuotaError) wanted() string { return "the share wants " + e.Wants }

// ShareNamesakeError is a host with another share of the same name.
type ShareNamesakeError struct {
	Share, Host, Owner string
}

func (e *ShareNamesakeError) Error() string {
	return fmt.Sprintf("%s has a share %s already, which %s manages", hostText(e.Host), quote(e.Share), e.Owner)
}

// ShareNameError is a name that CDI does not take for a device.
type ShareNameError struct{ Name, Problem string }

func (e *ShareNameError) Error() string {
	return fmt.Sprintf("share %s cannot be a CDI device: %s", quote(e.Name), e.Problem)
}

// ShareAmountError is an amount that no device could give.
type ShareAmountError struct {
	Share, Attribute, Found, Wanted string
}

func (e *ShareAmountError) Error() string {
	return fmt.Sprintf("share %s: %s is %s, and must be %s", quote(e.Share), e.Attribute, e.Found, e.Wanted)
}

// ShareUnplacedError is a share that is to be handed over and was not placed.
type ShareUnplacedError struct{ Share string }

func (e *ShareUnplacedError) Error() string {
	return fmt.Sprintf("share %s was not placed on a device yet", quote(e.Share))
}

// ShareFinding words an error of PlaceShare or ShareSpec as a finding of the rule that it
// violates. Who wants the share, where and at which level is the caller's to add.
func ShareFinding(err error) Finding {
	f := Finding{Rule: sharePlacement, Path: "name", Title: "The share does not fit", Found: sentence(err), Wanted: "A place for the share.", Fix: "Ask for less, or choose another GPU or host."}
	var (
		noRoom   *ShareNoRoomError
		scope    *ShareScopeError
		apart    *ShareApartError
		quota    *ShareQuotaError
		namesake *ShareNamesakeError
		name     *ShareNameError
		amount   *ShareAmountError
	)
	switch {
	case errors.As(err, &noRoom):
		f.Host, f.Found, f.Fix = noRoom.Host, "On "+hostText(noRoom.Host)+": "+noRoom.why()+".", noRoom.fix()
		f.Wanted = fmt.Sprintf("Share %s wants %s.", quote(noRoom.Share), plural(noRoom.Want, "device"))
		if noRoom.Placed {
			f.Title = "The share does not fit where it is"
		}
		if len(noRoom.Lacks) == 1 {
			f.GPU = noRoom.Lacks[0].Device.GPU
		}
		if noRoom.Kind() == LackMode {
			f.Path = strings.Trim(noRoom.Lacks[0].Wanted, "`")
		}
		f.Rule, f.Path, f.Title = ruleOfLack(noRoom.Kind(), f)
	case errors.As(err, &scope):
		f.Host, f.Path = scope.Host, map[bool]string{true: "pool", false: "config"}[scope.What == "pool"]
		f.Title = "The host is not in the " + scope.What + " of the share"
		f.Fix = "Refer to a " + scope.What + " that covers GPUs of this host."
	case errors.As(err, &apart):
		f.Path, f.Title, f.Fix = "gpu_ids", "No process reaches the devices of the share together", "Replace the share: `terraform apply -replace=ADDRESS`."
	case errors.As(err, &quota):
		f.Rule, f.Path, f.Title = poolQuota, "pool", "The quota of the pool is used up"
		f.Host, f.Found, f.Wanted = quota.Host, fmt.Sprintf("Of pool %s, label %s: %s.", quote(quota.Pool), quote(quota.Label), quota.found()), capital(quota.wanted())+"."
		f.Fix = "Raise the quota in the gpu_pool, ask for less, or destroy a share of the label."
	case errors.As(err, &namesake):
		f.Rule, f.Host, f.Title, f.Fix = "unique-name", namesake.Host, "The host has another share of that name", "Give the share another `name`."
	case errors.As(err, &name):
		f.Rule, f.Title = "share-name", "The name cannot be that of a CDI device"
		f.Wanted, f.Fix = "A name of letters, digits, `_`, `-`, `.` and `:` that begins and ends with a letter or a digit.", "Give the share such a `name`."
	case errors.As(err, &amount):
		f.Rule, f.Path, f.Title = fractionNotInMode, amount.Attribute, "No device can give that much"
		f.Wanted, f.Fix = capital(amount.Attribute)+" must be "+amount.Wanted+".", "Write such a value."
	}
	return f
}

// Rules that several places report.
const (
	sharePlacement    = "share-placement"
	oversubscription  = "share-oversubscription"
	fractionNotInMode = "fraction-not-in-mode"
	mpsClientLimit    = "mps-client-limit"
	vmXorShare        = "gpu-vm-xor-share"
	poolQuota         = "pool-quota"
)

// AboutRoom are the rules that tell that a host has no room for a share: another host of
// its pool may have it.
var AboutRoom = []string{sharePlacement, oversubscription, fractionNotInMode, mpsClientLimit, vmXorShare, poolQuota}

// ruleOfLack is the rule, the attribute and the title for what all devices lack.
func ruleOfLack(k LackKind, f Finding) (rule, path, title string) {
	switch k {
	case LackForVMs:
		return vmXorShare, f.Path, "The GPU is for VMs"
	case LackMode:
		return fractionNotInMode, f.Path, "The mode of the GPU has no such part"
	case LackSize:
		return fractionNotInMode, "memory", "The share wants more memory than the device has"
	case LackClients:
		return mpsClientLimit, f.Path, "MPS serves no more clients"
	case LackLimit:
		return oversubscription, "memory", "The memory limits of the shares are more than the config allows"
	case LackThreads:
		return oversubscription, "active_thread_percentage", "The thread percentages of the shares are more than the config allows"
	case LackMissing, LackLayout, LackPool, LackConfig, LackProfile, LackApart, LackTaken, LackReplicas, LackMemory:
	}
	return f.Rule, f.Path, f.Title
}

// decimal writes a fraction with at most two digits after the point.
func decimal(f float64) string {
	return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(f, 'f', 2, 64), "0"), ".")
}

func percent(f float64) string { return decimal(f) + " %" }
