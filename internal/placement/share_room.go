package placement

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// lacks says why a share that is not placed cannot have part in a device, nil when it can.
func (d *Device) lacks(s *gpu.Share) *gpu.Refusal {
	switch {
	case d.pool.id != "" && s.Pool == "":
		return d.lack(LackPool, "is in pool "+strconv.Quote(d.pool.name), "a device outside of pools",
			"draw from it with `pool` in place of `host`, or choose another GPU. A pool that this run takes away is gone only in the next apply")
	case s.Config != "" && (d.Config == nil || !gpu.SameID(d.Config.ID, s.Config)):
		return d.lack(LackConfig, "is not covered by partition config "+strconv.Quote(s.Config), "a GPU of that config",
			"name GPUs of the config, or leave `config` out")
	case s.Profile != "" && d.Instance == nil:
		return d.lack(LackProfile, "is not a GPU instance", "an instance of profile "+s.Profile,
			"leave `mig_profile` out, or cover the GPU with a gpu_partition_config with `mig`")
	case s.Profile != "" && d.Instance.Profile != s.Profile:
		return d.lack(LackProfile, "is of another profile", "an instance of profile "+s.Profile,
			"write a profile that the GPU has an instance of")
	case d.Instance != nil && DevicesWanted(s) > 1:
		return d.lack(LackApart, "is a GPU instance, beside which a process reaches no other", words.Plural(DevicesWanted(s), "device"),
			"take one GPU instance for each share")
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
	return d.refuses(s) == 0
}

// limits compares a share with what a device has left beside its other shares.
func (d *Device) limits(s *gpu.Share) *gpu.Refusal {
	if d.Unfit != nil {
		return d.Unfit
	}
	if fault := d.refuses(s); fault != 0 {
		return d.explain(fault, s)
	}
	return nil
}

// Tolerance is for sums of fractions, which floating point does not hold exactly.
const Tolerance = 1e-9

// refuses is what a device lacks for one more share, 0 for nothing.
func (d *Device) refuses(s *gpu.Share) gpu.Fault {
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

// Exceeded is what a device has too little of for what is taken of it, 0 for nothing.
func (d *Device) Exceeded(t Taken) gpu.Fault {
	switch {
	case t.shares > d.Seats:
		return map[gpu.ShareMode]gpu.Fault{
			gpu.ShareMPS: LackClients, gpu.ShareTimeSlicing: LackReplicas, gpu.ShareMIG: LackTaken, gpu.ShareWholeGPU: LackTaken,
		}[d.Mode]
	case d.Memory > 0 && t.Request > d.Memory: // where it is not known, those stay that were placed before
		return LackMemory
	case d.Memory > 0 && float64(t.Limit) > d.limitsAllowed()*(1+Tolerance):
		return LackLimit
	case t.Threads > d.threadsAllowed()*(1+Tolerance):
		return LackThreads
	}
	return 0
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
func (d *Device) explain(fault gpu.Fault, s *gpu.Share) *gpu.Refusal {
	t, others := d.Taken(), d.Beside()
	switch fault {
	case LackMode:
		attribute := "client_priority"
		if d.hasPartitions() || s.ActiveThreadPercentage > 0 {
			attribute = "active_thread_percentage"
		}
		found := "is of mode " + string(d.Mode) + ", in which processes have no such setting"
		fix := "leave `" + attribute + "` out, or take a GPU of a gpu_partition_config with `mps`"
		if d.hasPartitions() {
			found = "has static partitions of its multiprocessors, and the share does not say how large its own is"
			fix = "write `active_thread_percentage`, which is the size of the share's partition there, or take a GPU without `static_partitions`"
		}
		r := d.lack(fault, found, "`"+attribute+"`", fix)
		r.Attribute = attribute
		return r
	case LackFigure:
		return d.lack(fault, "does not tell how much memory it has", "a known amount, of which the share requests a part",
			"leave `memory` out, or take a device whose memory is known")
	case LackSize:
		return d.lack(fault, "has "+d.Memory.String(), max(d.Request(s), d.Limit(s)).String(), "ask for less memory, or take a larger device")
	case LackClients:
		return d.lack(fault, "takes "+words.Plural(d.Seats, "MPS client")+" and already has as many"+others,
			"one more share", "choose another device, or destroy one of these shares")
	case LackReplicas:
		return d.lack(fault, "has "+words.Plural(d.Seats, "replica")+" and none left"+others, "one more",
			"raise `replicas` in its partition config, choose another device, or destroy one of these shares")
	case LackTaken:
		return d.lack(fault, "is taken by"+strings.TrimPrefix(others, " beside"), "a "+d.noun()+" for itself",
			"choose another "+d.noun()+
				", or cover the GPU with a gpu_partition_config with `mps` or `time_slicing`, so that several shares can use it")
	case LackMemory:
		return d.lack(fault, "has "+(d.Memory-min(t.Request, d.Memory)).String()+" of "+d.Memory.String()+" left"+others,
			"a request for "+d.Request(s).String(),
			"request less memory, choose another device, or destroy one of these shares")
	case LackLimit:
		left := gpu.Bytes(max(d.limitsAllowed()-float64(t.Limit), 0))
		return d.lack(fault, "allows memory limits of "+left.String()+" more"+others+d.ratioText(), "a limit of "+d.Limit(s).String(),
			"lower the limit, or raise `oversubscription` in its partition config: limits may then add up to more than the device has")
	case LackThreads:
		fix := "lower `active_thread_percentage`, or raise `oversubscription` in its partition config: percentages may then add up to more " +
			"than 100"
		if d.hasPartitions() {
			fix = "lower `active_thread_percentage`, or take another device: static partitions never overlap"
		}
		return d.lack(fault, "has "+Percent(max(d.threadsAllowed()-t.Threads, 0))+" of its threads left"+others+d.ratioText(),
			Percent(s.ActiveThreadPercentage),
			fix)
	}
	return d.lack(fault, "does not take it", "a place", "choose another device")
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
