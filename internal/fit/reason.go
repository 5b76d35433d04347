package fit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// reason says what is missing and what binds, or what is not known; "" where everything fits on as few GPUs as can be.
func (p *problem) reason(fits *bool, s *solution, missing []int) string {
	switch {
	case fits == nil:
		return fmt.Sprintf("Not decided: no layout was found that holds everything, and it is not proved that there is none. At least %s are "+
			"needed, and the hosts have %d. Of what was tried most is in placements.", words.Plural(p.atLeast(p.counts()), "GPU"), len(p.gpus))
	case *fits && s.used > s.atLeast:
		return fmt.Sprintf("%s are used, and at least %d are needed: whether fewer would do is not known.", words.Plural(s.used, "GPU"),
			s.atLeast)
	case *fits:
		return ""
	}
	var parts, binds []string
	for t, n := range missing {
		if n == 0 {
			continue
		}
		parts = append(parts, fmt.Sprintf("%d more %s", n, p.types[t].text(n)))
		if why := p.binding(t, s); !slices.Contains(binds, why) {
			binds = append(binds, why)
		}
	}
	out := "Missing: " + words.Join(parts)
	if more := p.wouldDo(missing); len(more) > 0 {
		out += ", or " + strings.Join(more, ", or ")
	}
	out += ". What binds: " + words.Join(binds) + "."
	if p.spare > 0 {
		out += fmt.Sprintf(" With %s lost, the layouts of the others must hold everything.", words.Plural(p.spare, "host"))
	}
	return out
}

// text names so many units of a type.
func (t *unitType) text(n int) string {
	s := words.Verb(n, "", "s")
	switch t.kind {
	case Partitions:
		if t.vram == 0 {
			return "partition" + s
		}
		return fmt.Sprintf("partition%s of %d MiB", s, t.vram.MiB())
	case Instances:
		return t.profile
	case Shares:
		out := fmt.Sprintf("share%s of %d MiB", s, t.memory.MiB())
		if t.threads > 0 {
			out += " and " + placement.Percent(float64(t.threads)/millionths) + " of the threads"
		}
		return out
	case Whole:
	}
	if t.gpus == 1 {
		return "whole GPU" + s
	}
	return fmt.Sprintf("set%s of %d whole GPUs on one host", s, t.gpus)
}

// binding is what a unit of a type finds too little of.
func (p *problem) binding(t int, s *solution) string {
	u := &p.types[t]
	switch u.kind {
	case Partitions:
		out := "the number of partitions that GPUs have at most"
		if u.vram > 0 {
			out = fmt.Sprintf("the number of partitions of %d MiB or more that GPUs have at most", u.vram.MiB())
		}
		if slices.ContainsFunc(p.hosts, func(h host) bool { return h.group >= 0 }) {
			out += ", where all of a cluster have one count"
		}
		return out
	case Instances:
		return p.bindingInstance(t, s)
	case Shares:
		return p.bindingShare(u, s)
	case Whole:
	}
	if u.gpus > 1 {
		return fmt.Sprintf("hosts with %d GPUs free", u.gpus)
	}
	return "GPUs that nothing else is on"
}

// bindingInstance is what the GPUs that have a profile have too little of for one instance more.
func (p *problem) bindingInstance(t int, s *solution) string {
	u := &p.types[t]
	free, size := 0, 0
	for i, r := range s.roles {
		d := &p.gpus[i]
		if !slices.Contains(d.class.offers, t) || r.kind != "" && r.kind != Instances {
			continue
		}
		used, all := 0, 0
		for _, x := range d.class.profiles {
			all = max(all, x.Size)
			for _, l := range s.units[i] {
				if p.types[l.t].profile == x.Name {
					used += l.n * x.Size
				}
			}
			if x.Name == u.profile {
				size = x.Size
			}
		}
		free += max(all-used, 0)
	}
	if size > 0 && free >= size {
		return fmt.Sprintf("where %s may begin on a GPU beside the others: %s are free, but not together", u.profile,
			words.Plural(free, "memory slice"))
	}
	return "memory slices of GPUs with " + u.profile
}

// bindingShare is what most of the GPUs in use have too little of for one share more.
func (p *problem) bindingShare(u *unitType, s *solution) string {
	lacks := map[string]int{}
	for _, b := range p.binsFor(Shares, s.roles, nil) {
		for _, l := range s.units[b.at] {
			b.take(&p.types[l.t], l.n)
		}
		switch {
		case b.seats < 1:
			lacks["clients that MPS takes on a GPU"]++
		case b.room < int64(u.memory):
			lacks["memory of GPUs for shares"]++
		case b.threads < u.threads:
			lacks["threads of GPUs for shares"]++
		}
	}
	names := []string{"memory of GPUs for shares", "threads of GPUs for shares", "clients that MPS takes on a GPU"}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(lacks[b], lacks[a]) })
	return names[0]
}

// wouldDo are GPUs, of models that the hosts have, with which everything would fit. Each was tried.
func (p *problem) wouldDo(missing []int) []string {
	if len(p.demands) > 500 || len(p.gpus) > 500 {
		return nil // it takes too long to try
	}
	perHost := 1
	for t, n := range missing {
		if n > 0 {
			perHost = max(perHost, p.types[t].gpus)
		}
	}
	seen := map[*class]bool{}
	type offer struct {
		n     int
		model string
	}
	var found []offer
	for i := range p.gpus {
		d := &p.gpus[i]
		if seen[d.class] || len(seen) == 4 {
			continue
		}
		seen[d.class] = true
		if n := p.tryMore(d, perHost); n > 0 {
			found = append(found, offer{n, d.gpu.Model})
		}
	}
	slices.SortStableFunc(found, func(a, b offer) int { return cmp.Compare(a.n, b.n) })
	return words.Each(found[:min(len(found), 2)], func(o offer) string {
		if o.n == 1 {
			return "one more " + o.model
		}
		return fmt.Sprintf("%d more %s", o.n, o.model)
	})
}

// tryMore is the least number of GPUs like one, on new hosts, with which everything fits; 0 where a few do not do.
func (p *problem) tryMore(like *device, perHost int) int {
	const tries = 6
	from := max(p.atLeast(p.counts())-len(p.gpus), 1)
	if from >= never-len(p.gpus) || p.spare > 0 { // with more hosts each that fails has a smaller part
		from = 1
	}
	h := p.source[like.host]
	for n := from; n < from+tries; n++ {
		more := slices.Clone(p.source)
		for at := 0; at < n; at += perHost {
			added := h
			added.Name, added.GPUs, added.VMs, added.Claims = fmt.Sprintf("%s and %d more", h.Name, at+1), nil, nil, nil
			for range perHost {
				g := *like.gpu
				g.ID = fmt.Sprintf("%s and %d more", g.ID, len(added.GPUs))
				added.GPUs = append(added.GPUs, g)
			}
			more = append(more, added)
		}
		q, err := newProblem(more, p.demands, p.options)
		if err != nil {
			return 0
		}
		if q.greedy(q.counts()) != nil {
			return (n + perHost - 1) / perHost * perHost
		}
	}
	return 0
}
