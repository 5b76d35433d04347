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

// lack is why a share does not fit on a device. What is found begins with a verb, and what is wanted
// is a noun.
func (d *Device) lack(f gpu.Fault, found, wanted, fix string) *gpu.Refusal {
	return lackOf(d.SharedDevice, d.OnGPU.Model, f, found, wanted, fix)
}

func lackOf(at gpu.SharedDevice, model string, f gpu.Fault, found, wanted, fix string) *gpu.Refusal {
	return &gpu.Refusal{
		Code: gpu.Insufficient, Fault: f, Object: deviceObject(at, model), GPU: at.GPU, Brief: found, Wanted: wanted, Fix: fix,
	}
}

func deviceObject(at gpu.SharedDevice, model string) string {
	device := "GPU " + at.GPU + " (" + cmp.Or(model, "unknown model") + ")"
	if at.Instance != nil {
		device = "instance " + gpu.PlacementsText([]gpu.MIGPlacement{*at.Instance}) + " of " + device
	}
	return device
}

// DeviceText is "GPU-1f3c" or "GPU-1f3c/1g.10gb@4".
func DeviceText(d gpu.SharedDevice) string {
	if d.Instance == nil {
		return d.GPU
	}
	return d.GPU + "/" + gpu.PlacementsText([]gpu.MIGPlacement{*d.Instance})
}

// noRoom is why a share does not fit on a host: what devices lack that it could have been on, which
// of them would do but are too few or not reached by one process, and which pinned GPUs the host
// has not. It is of the fault that all devices have, and advises on the one that lacks least.
func (h *SharedHost) noRoom(s *gpu.Share, want int, lacks []*gpu.Refusal, fits []gpu.SharedDevice, missing []string) *gpu.Refusal {
	why := strings.Join(h.whyNoRoom(want, lacks, fits, missing), "; ")
	r := &gpu.Refusal{
		Code: gpu.Insufficient, Fault: ShareNoRoom, Host: h.Key,
		Reasons: []string{fmt.Sprintf("share %q does not fit on host %q: %s", s.Name, h.Key, why)},
		Brief:   fmt.Sprintf("on host %q: %s", h.Key, why), Wanted: fmt.Sprintf("share %q wants %s", s.Name, words.Plural(want, "device")),
	}
	if len(lacks) == 1 {
		r.GPU = lacks[0].GPU
	}
	switch {
	case len(missing) > 0:
		r.Fix = "write GPU ids as the `gpu_inventory` data source prints them for this host"
	case len(lacks) == 0 && len(fits) == 0:
		r.Fix = "choose another host, or cover its GPUs with a gpu_partition_config or a gpu_pool that the share names"
	case len(lacks) == 0 || len(fits) > 0:
		r.Fix = "ask for fewer devices, or cover the GPUs with one gpu_partition_config, in which one MPS daemon serves them all (`daemons` is " +
			"not \"per_gpu\")"
	default:
		byFault := func(a, b *gpu.Refusal) int { return cmp.Compare(a.Fault, b.Fault) }
		nearest := slices.MaxFunc(lacks, byFault)
		if r.Fix = nearest.Fix; slices.MinFunc(lacks, byFault).Fault == nearest.Fault {
			r.Fault, r.Attribute = nearest.Fault, nearest.Attribute
		}
	}
	return r
}

func (h *SharedHost) whyNoRoom(want int, lacks []*gpu.Refusal, fits []gpu.SharedDevice, missing []string) []string {
	var why []string
	if len(missing) > 0 {
		why = append(why, "there is no "+words.Join(words.Each(missing, func(id string) string { return "GPU " + id })))
	}
	each := h.lackTexts(lacks)
	why = append(why, each[:min(len(each), words.Listed)]...)
	if more := len(each) - words.Listed; more > 0 {
		why = append(why, fmt.Sprintf("%d more", more))
	}
	if len(fits) > 0 {
		why = append(why, fmt.Sprintf("it wants %s that one process reaches, and would fit on %s%s",
			words.Plural(want, "device"), words.Verb(len(fits), "", "each of "), words.Join(words.Each(fits, DeviceText))))
	}
	if len(why) == 0 {
		return []string{"there is no GPU for it"}
	}
	return why
}

// lackTexts says what each device lacks. Three or more of a model that lack the same are counted.
func (h *SharedHost) lackTexts(of []*gpu.Refusal) []string {
	type likeness struct {
		what, model, found, wanted string
	}
	like := func(l *gpu.Refusal) likeness {
		k := likeness{"GPUs", "", l.Brief, l.Wanted}
		if g, ok := h.Host.GPU(l.GPU); ok {
			k.model = g.Model
		}
		if l.Object != deviceObject(gpu.SharedDevice{GPU: l.GPU}, k.model) {
			k.what = "GPU instances"
		}
		k.model = cmp.Or(k.model, "unknown model")
		return k
	}
	alike := map[likeness]int{}
	for _, l := range of {
		alike[like(l)]++
	}
	var out []string
	for _, l := range of {
		k := like(l)
		switch n := alike[k]; {
		case n == 0: // counted
		case n < 3:
			out = append(out, fmt.Sprintf("%s %s (wanted: %s)", l.Object, l.Brief, l.Wanted))
		default:
			out = append(out, fmt.Sprintf("each of %d %s (%s) %s (wanted: %s)", n, k.what, k.model, l.Brief, l.Wanted))
			alike[k] = 0
		}
	}
	return out
}

// wrongShare is what is wrong with a share that more room would not mend.
func wrongShare(f gpu.Fault, host, format string, args ...any) *gpu.Refusal {
	return &gpu.Refusal{Code: gpu.Insufficient, Fault: f, Host: host, Reasons: []string{fmt.Sprintf(format, args...)}}
}

// apart are devices of a share that no process reaches together.
func apart(share string, a, b *Device) *gpu.Refusal {
	f := ShareApart
	if a.Mode == gpu.ShareMPS && b.Mode == gpu.ShareMPS {
		f = ShareApartDaemon
	}
	return wrongShare(f, "", "share %q is on %s (mode %s) and %s (mode %s), which no process reaches together",
		share, DeviceText(a.SharedDevice), a.Mode, DeviceText(b.SharedDevice), b.Mode)
}

// Decimal writes a fraction with at most two digits after the point.
func Decimal(f float64) string {
	return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(f, 'f', 2, 64), "0"), ".")
}

// Percent writes a percentage with at most two digits after the point.
func Percent(f float64) string { return Decimal(f) + " %" }
