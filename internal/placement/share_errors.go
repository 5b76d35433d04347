package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// LackCode is what a device lacks for a share.
type LackCode string

// Codes of a lack.
const (
	LackMissing  LackCode = "missing"  // it is not there
	LackForVMs   LackCode = "for_vms"  // VMs have it, or are to have it
	LackLayout   LackCode = "layout"   // it cannot be used as it is
	LackPool     LackCode = "pool"     // it is a pool's
	LackConfig   LackCode = "config"   // it is not the config's
	LackProfile  LackCode = "profile"  // it is not of the MIG profile
	LackApart    LackCode = "apart"    // one process cannot reach it beside others
	LackMode     LackCode = "mode"     // its mode has no such limit
	LackFigure   LackCode = "figure"   // its memory is not known, and the share has a part of that
	LackSize     LackCode = "size"     // it is too small, even when nobody else is on it
	LackTaken    LackCode = "taken"    // another share has it for itself
	LackClients  LackCode = "clients"  // Too many MPS clients
	LackReplicas LackCode = "replicas" // time-slicing has no more replicas
	LackMemory   LackCode = "memory"   // requests do not fit
	LackLimit    LackCode = "limits"   // Memory limits would be oversubscribed too much
	LackThreads  LackCode = "threads"  // thread percentages would be
)

// ShareLack is why a share does not fit on a device. Found begins with a verb, and Wanted
// is a noun.
type ShareLack struct {
	Device gpu.SharedDevice
	Model  string
	Code   LackCode
	Found  string
	Wanted string
	Fix    string
}

func (d *Device) lack(code LackCode, found, wanted, fix string) *ShareLack {
	return &ShareLack{Device: d.SharedDevice, Model: d.OnGPU.Model, Code: code, Found: found, Wanted: wanted, Fix: fix}
}

func (l ShareLack) Error() string {
	return fmt.Sprintf("%s %s (wanted: %s)", lackDevice(l), l.Found, l.Wanted)
}

// lackDevice is `GPU GPU-1f3c (NVIDIA H100)` or `instance 1g.10gb@4 of GPU ...`.
func lackDevice(l ShareLack) string {
	text := "GPU " + l.Device.GPU + " (" + cmp.Or(l.Model, "unknown model") + ")"
	if at := l.Device.Instance; at != nil {
		return "instance " + gpu.PlacementsText([]gpu.MIGPlacement{*at}) + " of " + text
	}
	return text
}

// DeviceText is "GPU-1f3c" or "GPU-1f3c/1g.10gb@4".
func DeviceText(d gpu.SharedDevice) string {
	if d.Instance == nil {
		return d.GPU
	}
	return d.GPU + "/" + gpu.PlacementsText([]gpu.MIGPlacement{*d.Instance})
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
	return fmt.Sprintf("share %s does not fit on %s: %s", strconv.Quote(e.Share), "host "+strconv.Quote(e.Host), e.Why())
}

// Why lists what each device lacks.
func (e *ShareNoRoomError) Why() string {
	var parts []string
	if len(e.Missing) > 0 {
		parts = append(parts, "there is no "+words.Join(words.Each(e.Missing, func(id string) string { return "GPU " + id })))
	}
	lacks := lackTexts(e.Lacks)
	if len(lacks) > words.Listed {
		lacks = append(lacks[:words.Listed], fmt.Sprintf("%d more", len(lacks)-words.Listed))
	}
	parts = append(parts, lacks...)
	if len(e.Fits) > 0 {
		fits := words.Each(e.Fits, DeviceText)
		parts = append(parts, fmt.Sprintf("it wants %s that one process reaches, and would fit on %s%s",
			words.Plural(e.Want, "device"), words.Verb(len(fits), "", "each of "), words.Join(fits)))
	}
	if len(parts) == 0 {
		return "there is no GPU for it"
	}
	return strings.Join(parts, "; ")
}

// lackTexts says what each device lacks. Many that lack the same are counted.
func lackTexts(of []ShareLack) []string {
	type likeness struct {
		found, wanted string
		instance      bool
	}
	alike := map[likeness]int{}
	like := func(l ShareLack) likeness { return likeness{l.Found, l.Wanted, l.Device.Instance != nil} }
	for _, l := range of {
		alike[like(l)]++
	}
	var out []string
	for _, l := range of {
		k := like(l)
		switch n := alike[k]; {
		case n == 0: // counted
		case n < 3:
			out = append(out, l.Error())
		default:
			what := "GPUs"
			if k.instance {
				what = "GPU instances"
			}
			out = append(out, fmt.Sprintf("each of %d %s (%s) %s (wanted: %s)", n, what, cmp.Or(l.Model, "unknown model"), l.Found, l.Wanted))
			alike[k] = 0
		}
	}
	return out
}

// Code is what all devices lack, and "" when they lack different things or nothing.
func (e *ShareNoRoomError) Code() LackCode {
	if len(e.Lacks) == 0 || len(e.Fits) > 0 || len(e.Missing) > 0 {
		return ""
	}
	code := e.Lacks[0].Code
	if slices.ContainsFunc(e.Lacks, func(l ShareLack) bool { return l.Code != code }) {
		return ""
	}
	return code
}

// Fix is the advice on the device that lacks least: what comes last in a check.
func (e *ShareNoRoomError) Fix() string {
	switch {
	case len(e.Missing) > 0:
		return "Write GPU ids as the `gpu_inventory` data source prints them for this host."
	case len(e.Lacks) == 0 && len(e.Fits) == 0:
		return "Choose another host, or cover its GPUs with a gpu_partition_config or a gpu_pool that the share names."
	case len(e.Lacks) == 0 || len(e.Fits) > 0:
		return "Ask for fewer devices, or cover the GPUs with one gpu_partition_config, in which one MPS daemon serves them all (`daemons` is " +
			"not \"per_gpu\")."
	}
	return slices.MaxFunc(e.Lacks, func(a, b ShareLack) int { return cmp.Compare(lackRank(a.Code), lackRank(b.Code)) }).Fix
}

func lackRank(c LackCode) int {
	return slices.Index([]LackCode{
		LackMissing, LackPool, LackConfig, LackForVMs, LackLayout, LackProfile, LackApart, LackMode, LackFigure, LackSize, LackTaken,
		LackClients, LackReplicas, LackMemory, LackLimit, LackThreads,
	}, c)
}

// ShareFault is what is wrong with a share that more room would not mend.
type ShareFault int

// The faults of a share.
const (
	ShareUnplaced    ShareFault = iota + 1 // it is to be handed over, and was not placed
	ShareNotInPool                         // its host has nothing of its pool
	ShareNotInConfig                       // its host has not its partition config
	ShareApart                             // no process reaches its devices together
	ShareApartDaemon                       // two MPS daemons serve its devices
	ShareNamesake                          // the host has another share of its name
	ShareName                              // CDI takes no device of its name
	ShareAmount                            // an amount that no device could give
	ShareMemory                            // a part of a memory that is not known
)

// ShareError is such a share. Attribute is where an amount is.
type ShareError struct {
	Fault           ShareFault
	Host, Attribute string
	text            string
}

func (e *ShareError) Error() string { return e.text }

func wrongShare(f ShareFault, host, format string, args ...any) *ShareError {
	return &ShareError{Fault: f, Host: host, text: fmt.Sprintf(format, args...)}
}

// apart are devices of a share that no process reaches together.
func apart(share string, a, b *Device) *ShareError {
	f := ShareApart
	if a.Mode == gpu.ShareMPS && b.Mode == gpu.ShareMPS {
		f = ShareApartDaemon
	}
	return wrongShare(f, "", "share %q is on %s (mode %s) and %s (mode %s), which no process reaches together",
		share, DeviceText(a.SharedDevice), a.Mode, DeviceText(b.SharedDevice), b.Mode)
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
	return fmt.Sprintf("share %s of label %s would exceed the label's quota of pool %s: %s, of which %s",
		strconv.Quote(e.Share), strconv.Quote(e.Label), strconv.Quote(e.Pool), e.Found(), e.Wanted())
}

// Found says what the quota is and who takes it.
func (e *ShareQuotaError) Found() string {
	by := "nobody has any"
	if len(e.By) > 0 {
		by = words.Verb(len(e.By), "share ", "shares ") + words.Join(words.QuoteAll(e.By)) + words.Verb(len(e.By), " has ", " have ") + e.Taken
	}
	where := ""
	if e.Host != "" {
		where = " on " + "host " + strconv.Quote(e.Host)
	}
	return fmt.Sprintf("its quota of %s is %s%s, and %s", e.What, e.Quota, where, by)
}

// Wanted says what the share asks for.
func (e *ShareQuotaError) Wanted() string { return "the share wants " + e.Wants }

// Decimal writes a fraction with at most two digits after the point.
func Decimal(f float64) string {
	return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(f, 'f', 2, 64), "0"), ".")
}

// Percent writes a percentage with at most two digits after the point.
func Percent(f float64) string { return Decimal(f) + " %" }
