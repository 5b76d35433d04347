package placement

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// lacks says why a share that is not placed cannot have part in a device, nil when it can.
func (d *Device) lacks(s *gpu.Share) *ShareLack {
	switch {
	case d.pool.id != "" && s.Pool == "":
		return d.lack(LackPool, "is in pool "+strconv.Quote(d.pool.name), "a device outside of pools",
			"Draw from it with `pool` in place of `host`, or choose another GPU. A pool that this run takes away is gone only in the next apply.")
	case s.Config != "" && (d.Config == nil || !gpu.SameID(d.Config.ID, s.Config)):
		return d.lack(LackConfig, "is not covered by partition config "+strconv.Quote(s.Config), "a GPU of that config",
			"Name GPUs of the config, or leave `config` out.")
	case s.Profile != "" && d.Instance == nil:
		return d.lack(LackProfile, "is not a GPU instance", "an instance of profile "+s.Profile,
			"Leave `mig_profile` out, or cover the GPU with a gpu_partition_config with `mig`.")
	case s.Profile != "" && d.Instance.Profile != s.Profile:
		return d.lack(LackProfile, "is of another profile", "an instance of profile "+s.Profile,
			"Write a profile that the GPU has an instance of.")
	case d.Instance != nil && DevicesWanted(s) > 1:
		return d.lack(LackApart, "is a GPU instance, beside which a process reaches no other", words.Plural(DevicesWanted(s), "device"),
			"Take one GPU instance for each share.")
	}
	return d.limits(s)
}

// Takes tells whether a share that is not placed can have part in a device. It is lacks
// without the words.
func (d *Device) Takes(s *gpu.Share) bool {
	switch {
	case d.Unfit != nil, d.pool.id != "" && s.Pool == "", d.Instance != nil && DevicesWanted(s) > 1:
		return false
	case s.Config != "" && (d.Config == nil || !gpu.SameID(d.Config.ID, s.Config)):
		return false
	case s.Profile != "" && (d.Instance == nil || d.Instance.Profile != s.Profile):
		return false
	}
	return d.refuses(s) == ""
}

// limits compares a share with what a device has left beside its other shares.
func (d *Device) limits(s *gpu.Share) *ShareLack {
	if d.Unfit != nil {
		return d.Unfit
	}
	if code := d.refuses(s); code != "" {
		return d.explain(code, s)
	}
	return nil
}

// Tolerance is for sums of fractions, which floating point does not hold exactly.
const Tolerance = 1e-9

// refuses is what a device lacks for one more share, "" for nothing.
func (d *Device) refuses(s *gpu.Share) LackCode {
	if d.Mode != gpu.ShareMPS && (s.ActiveThreadPercentage > 0 || s.ClientPriority != nil) {
		return LackMode
	}
	if d.hasPartitions() && s.ActiveThreadPercentage == 0 {
		return LackMode
	}
	switch asks := max(d.Request(s), d.Limit(s)); {
	case d.Memory == 0 && asks > 0:
		return LackFigure
	case d.Memory > 0 && asks > d.Memory:
		return LackSize
	}
	return d.Exceeded(d.add(d.Taken(), s, 1))
}

// Exceeded is what a device has too little of for what is taken of it, "" for nothing.
func (d *Device) Exceeded(t Taken) LackCode {
	switch {
	case t.shares > d.Seats:
		return map[gpu.ShareMode]LackCode{
			gpu.ShareMPS: LackClients, gpu.ShareTimeSlicing: LackReplicas, gpu.ShareMIG: LackTaken, gpu.ShareWholeGPU: LackTaken,
		}[d.Mode]
	case d.Memory > 0 && t.Request > d.Memory: // where it is not known, those stay that were placed before
		return LackMemory
	case d.Memory > 0 && float64(t.Limit) > d.limitsAllowed()*(1+Tolerance):
		return LackLimit
	case t.Threads > d.threadsAllowed()*(1+Tolerance):
		return LackThreads
	}
	return ""
}

// limitsAllowed and threadsAllowed are what limits may add up to.
func (d *Device) limitsAllowed() float64 { return d.Oversubscription * float64(d.Memory) }

func (d *Device) threadsAllowed() float64 {
	if d.hasPartitions() {
		return 100 // no multiprocessor is in two
	}
	return 100 * d.Oversubscription
}

func (d *Device) hasPartitions() bool { return d.Mode == gpu.ShareMPS && d.Config.MPS.StaticPartitions }

// explain words what a device lacks for one more share.
func (d *Device) explain(code LackCode, s *gpu.Share) *ShareLack {
	t, others := d.Taken(), d.Beside()
	switch code {
	case LackMode:
		if d.hasPartitions() {
			return d.lack(code, "has static partitions of its multiprocessors, and the share does not say how large its own is",
				"`active_thread_percentage`",
				"Write `active_thread_percentage`, which is the size of the share's partition there, or take a GPU without `static_partitions`.")
		}
		attribute := "client_priority"
		if s.ActiveThreadPercentage > 0 {
			attribute = "active_thread_percentage"
		}
		return d.lack(code, "is of mode "+string(d.Mode)+", in which processes have no such setting", "`"+attribute+"`",
			"Leave `"+attribute+"` out, or take a GPU of a gpu_partition_config with `mps`.")
	case LackFigure:
		return d.lack(code, "does not tell how much memory it has", "a known amount, of which the share requests a part",
			"Leave `memory` out, or take a device whose memory is known.")
	case LackSize:
		return d.lack(code, "has "+d.Memory.String(), max(d.Request(s), d.Limit(s)).String(), "Ask for less memory, or take a larger device.")
	case LackClients:
		return d.lack(code, "takes "+words.Plural(d.Seats, "MPS client")+" and already has as many"+others,
			"one more share", "Choose another device, or destroy one of these shares.")
	case LackReplicas:
		return d.lack(code, "has "+words.Plural(d.Seats, "replica")+" and none left"+others, "one more",
			"Raise `replicas` in its partition config, choose another device, or destroy one of these shares.")
	case LackTaken:
		return d.lack(code, "is taken by"+strings.TrimPrefix(others, " beside"), "a "+d.noun()+" for itself",
			"Choose another "+d.noun()+
				", or cover the GPU with a gpu_partition_config with `mps` or `time_slicing`, so that several shares can use it.")
	case LackMemory:
		return d.lack(code, "has "+(d.Memory-min(t.Request, d.Memory)).String()+" of "+d.Memory.String()+" left"+others,
			"a request for "+d.Request(s).String(),
			"Request less memory, choose another device, or destroy one of these shares.")
	case LackLimit:
		left := gpu.Bytes(max(d.limitsAllowed()-float64(t.Limit), 0))
		return d.lack(code, "allows memory limits of "+left.String()+" more"+others+d.ratioText(), "a limit of "+d.Limit(s).String(),
			"Lower the limit, or raise `oversubscription` in its partition config: limits may then add up to more than the device has.")
	case LackThreads:
		fix := "Lower `active_thread_percentage`, or raise `oversubscription` in its partition config: percentages may then add up to more " +
			"than 100."
		if d.hasPartitions() {
			fix = "Lower `active_thread_percentage`, or take another device: static partitions never overlap."
		}
		return d.lack(code, "has "+Percent(max(d.threadsAllowed()-t.Threads, 0))+" of its threads left"+others+d.ratioText(),
			Percent(s.ActiveThreadPercentage),
			fix)
	case LackMissing, LackForVMs, LackLayout, LackPool, LackConfig, LackProfile, LackApart:
	}
	return d.lack(code, "does not take it", "a place", "Choose another device.")
}

// ratioText tells of an oversubscription that is used up.
func (d *Device) ratioText() string {
	if d.Oversubscription <= 1 {
		return ""
	}
	return " (oversubscription " + Decimal(d.Oversubscription) + ")"
}

func (d *Device) noun() string {
	if d.Instance != nil {
		return "GPU instance"
	}
	return "GPU"
}

// names are the shares of a device, for people.
func (d *Device) names() string { return ShareNames(d.Shares) }

// ShareNames lists shares, for people.
func ShareNames(shares []*gpu.Share) string {
	out := words.Each(shares, func(s *gpu.Share) string { return strconv.Quote(s.Name) })
	slices.Sort(out)
	return words.Verb(len(out), "share ", "shares ") + words.Join(out)
}

// Beside is " beside" with the shares of a device, and "" without.
func (d *Device) Beside() string {
	if len(d.Shares) == 0 {
		return ""
	}
	return " beside " + d.names()
}
