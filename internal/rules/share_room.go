package rules

import (
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// lacks says why a share that is not placed cannot have part in a device, nil when it can.
func (d *shareDevice) lacks(s *gpu.Share) *ShareLack {
	switch {
	case d.pool.id != "" && s.Pool == "":
		return d.lack(LackPool, "is in pool "+quote(d.pool.name), "a device outside of pools", "Draw from it with `pool` in place of `host`, or choose another GPU.")
	case s.Config != "" && (d.config == nil || !gpu.SameID(d.config.ID, s.Config)):
		return d.lack(LackConfig, "is not covered by partition config "+quote(s.Config), "a GPU of that config", "Name GPUs of the config, or leave `config` out.")
	case s.Profile != "" && d.Instance == nil:
		return d.lack(LackProfile, "is not a GPU instance", "an instance of profile "+s.Profile, "Leave `mig_profile` out, or cover the GPU with a gpu_partition_config with `mig`.")
	case s.Profile != "" && d.Instance.Profile != s.Profile:
		return d.lack(LackProfile, "is of another profile", "an instance of profile "+s.Profile, "Write a profile that the GPU has an instance of.")
	case d.Instance != nil && devicesWanted(s) > 1:
		return d.lack(LackApart, "is a GPU instance, beside which a process reaches no other", plural(devicesWanted(s), "device"), "Take one GPU instance for each share.")
	}
	return d.limits(s)
}

// takes tells whether a share that is not placed can have part in a device. It is lacks
// without the words.
func (d *shareDevice) takes(s *gpu.Share) bool {
	switch {
	case d.unfit != nil, d.pool.id != "" && s.Pool == "", d.Instance != nil && devicesWanted(s) > 1:
		return false
	case s.Config != "" && (d.config == nil || !gpu.SameID(d.config.ID, s.Config)):
		return false
	case s.Profile != "" && (d.Instance == nil || d.Instance.Profile != s.Profile):
		return false
	}
	return d.refuses(s) == ""
}

// limits compares a share with what a device has left beside its other shares.
func (d *shareDevice) limits(s *gpu.Share) *ShareLack {
	if d.unfit != nil {
		return d.unfit
	}
	if kind := d.refuses(s); kind != "" {
		return d.explain(kind, s)
	}
	return nil
}

// tolerance is for sums of fractions, which floating point does not hold exactly.
const tolerance = 1e-9

// refuses is what a device lacks for one more share, "" for nothing.
func (d *shareDevice) refuses(s *gpu.Share) LackKind {
	if d.mode != gpu.ShareMPS && (s.ActiveThreadPercentage > 0 || s.ClientPriority != nil) {
		return LackMode
	}
	if max(s.MemoryRequest, s.MemoryLimit) > d.memory {
		return LackSize
	}
	t := d.taken()
	t.shares++
	t.request += s.MemoryRequest
	t.limit += s.MemoryLimit
	t.threads += s.ActiveThreadPercentage
	return d.exceeded(t)
}

// exceeded is what a device has too little of for what is taken of it, "" for nothing.
func (d *shareDevice) exceeded(t taken) LackKind {
	switch {
	case t.shares > d.seats:
		return map[gpu.ShareMode]LackKind{
			gpu.ShareMPS: LackClients, gpu.ShareTimeSlicing: LackReplicas, gpu.ShareMIG: LackTaken, gpu.ShareWholeGPU: LackTaken,
		}[d.mode]
	case t.request > d.memory:
		return LackMemory
	case float64(t.limit) > d.limitsAllowed()*(1+tolerance):
		return LackLimit
	case t.threads > d.threadsAllowed()*(1+tolerance):
		return LackThreads
	}
	return ""
}

// limitsAllowed and threadsAllowed are what limits may add up to.
func (d *shareDevice) limitsAllowed() float64 { return d.oversubscription * float64(d.memory) }

func (d *shareDevice) threadsAllowed() float64 { return 100 * d.oversubscription }

// explain words what a device lacks for one more share.
func (d *shareDevice) explain(kind LackKind, s *gpu.Share) *ShareLack {
	t, others := d.taken(), d.beside()
	switch kind {
	case LackMode:
		attribute := "client_priority"
		if s.ActiveThreadPercentage > 0 {
			attribute = "active_thread_percentage"
		}
		return d.lack(kind, "is of mode "+string(d.mode)+", in which processes have no such setting", "`"+attribute+"`",
			"Leave `"+attribute+"` out, or take a GPU of a gpu_partition_config with `mps`.")
	case LackSize:
		return d.lack(kind, "has "+d.memory.String(), max(s.MemoryRequest, s.MemoryLimit).String(), "Ask for less memory, or take a larger device.")
	case LackClients:
		return d.lack(kind, "takes "+plural(d.seats, "MPS client")+" and has as many"+others, "one more share", "Choose another device, or destroy one of these shares.")
	case LackReplicas:
		return d.lack(kind, "has "+plural(d.seats, "replica")+" and none left"+others, "one more", "Raise `replicas` in its partition config, choose another device, or destroy one of these shares.")
	case LackTaken:
		return d.lack(kind, "is taken by"+strings.TrimPrefix(others, " beside"), "a "+d.noun()+" for itself",
			"Choose another "+d.noun()+", or cover the GPU with a gpu_partition_config with `mps` or `time_slicing`, so that several shares have part in it.")
	case LackMemory:
		return d.lack(kind, "has "+(d.memory-min(t.request, d.memory)).String()+" of "+d.memory.String()+" left"+others, "a request for "+s.MemoryRequest.String(),
			"Request less memory, choose another device, or destroy one of these shares.")
	case LackLimit:
		left := gpu.Bytes(max(d.limitsAllowed()-float64(t.limit), 0))
		return d.lack(kind, "allows memory limits of "+left.String()+" more"+others+d.ratioText(), "a limit of "+s.MemoryLimit.String(),
			"Lower the limit, or raise `oversubscription` in its partition config: limits may then add up to more than the device has.")
	case LackThreads:
		return d.lack(kind, "has "+percent(max(d.threadsAllowed()-t.threads, 0))+" of its threads left"+others+d.ratioText(), percent(s.ActiveThreadPercentage),
			"Lower `active_thread_percentage`, or raise `oversubscription` in its partition config: percentages may then add up to more than 100.")
	case LackMissing, LackForVMs, LackLayout, LackPool, LackConfig, LackProfile, LackApart:
	}
	return d.lack(kind, "does not take it", "a place", "Choose another device.")
}

// ratioText tells of an oversubscription that is used up.
func (d *shareDevice) ratioText() string {
	if d.oversubscription <= 1 {
		return ""
	}
	return " (oversubscription " + decimal(d.oversubscription) + ")"
}

func (d *shareDevice) noun() string {
	if d.Instance != nil {
		return "GPU instance"
	}
	return "GPU"
}

// names are the shares of a device, for people.
func (d *shareDevice) names() string { return shareNames(d.shares) }

func shareNames(shares []*gpu.Share) string {
	out := make([]string, len(shares))
	for i, s := range shares {
		out[i] = quote(s.Name)
	}
	slices.Sort(out)
	return verb(len(out), "share ", "shares ") + join(out)
}

// beside is " beside" with the shares of a device, and "" without.
func (d *shareDevice) beside() string {
	if len(d.shares) == 0 {
		return ""
	}
	return " beside " + d.names()
}
