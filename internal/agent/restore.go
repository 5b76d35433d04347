package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// lostLayout is what a host lacks of the MIG layout or the vGPUs that a config declares
// there. A reboot takes all GPU instances, and from Hopper on the mode as well; it takes
// virtual functions and all vGPUs.
type lostLayout struct {
	claim *gpu.Claim
	// One of the two is empty: a config is of one kind.
	mig   []migTarget
	vgpus []vgpuTarget
	// conflicts are GPUs that lack something and are not as it would need them to be.
	conflicts []string
}

func (l *lostLayout) subject() string {
	what := "the MIG layout of "
	if len(l.claim.VGPULayout) > 0 {
		what = "the vGPUs of "
	}
	return what + describeObject(l.claim.Kind, l.claim.ID)
}

// steps are those that put back what is missing.
func (l *lostLayout) steps(host *gpu.Host) []Step {
	p := &planner{host: *host}
	(&migChange{planner: p, watchers: quiesced(l.claim), targets: l.mig}).steps()
	(&vgpuChange{planner: p, watchers: quiesced(l.claim), targets: l.vgpus}).steps()
	return p.steps
}

// lackings tells by GPU what is missing, for people.
func (l *lostLayout) lackings() []lacking {
	var out []lacking
	for i := range l.mig {
		out = append(out, lacking{gpu: l.mig[i].gpu.ID, what: l.mig[i].lacks()})
	}
	for i := range l.vgpus {
		out = append(out, lacking{gpu: l.vgpus[i].gpu.ID, what: l.vgpus[i].lacks()})
	}
	return out
}

// lacking is what one GPU lacks, or the conflict that keeps that from being put back.
type lacking struct {
	gpu, what, conflict string
}

// left is what a GPU lacks of the layout now.
func (l *lostLayout) left(host *gpu.Host, id string) lacking {
	out := lacking{gpu: id}
	if _, ok := byID(l.claim.MIGLayout, id); ok {
		t, why := lostOn(host, id, placedNow(host, l.claim, id), nil)
		if out.conflict = why; t != nil {
			out.what = t.lacks()
		}
	}
	if layout, ok := byID(l.claim.VGPULayout, id); ok {
		t, why := lostVGPUs(host, id, layout, nil)
		if out.conflict = why; t != nil {
			out.what = t.lacks()
		}
	}
	return out
}

func restorable(lost []lostLayout) bool {
	return slices.ContainsFunc(lost, func(l lostLayout) bool { return len(l.mig)+len(l.vgpus) > 0 })
}

// conflicts is the answer when nothing can be put back.
func conflicts(lost []lostLayout) []Settled {
	var out []Settled
	for _, l := range lost {
		out = append(out, Settled{Subject: l.subject(), Stands: l.conflicts})
	}
	return out
}

// lost reads the host and finds what it lacks of the declared layouts. A host that none
// is declared for is not read.
func (s *Server) lost(ctx context.Context, st *backend.State) (gpu.Host, []lostLayout, error) {
	declares := func(c gpu.Claim) bool { return len(c.MIGLayout)+len(c.VGPULayout) > 0 }
	if _, ok := s.backend.(backend.MIG); !ok || !slices.ContainsFunc(st.Claims, declares) {
		return gpu.Host{}, nil, nil
	}
	host, err := s.inventory(ctx)
	if err != nil {
		return gpu.Host{}, nil, err
	}
	return host, lostLayouts(&host), nil
}

func lostLayouts(host *gpu.Host) []lostLayout {
	var out []lostLayout
	for i := range host.Claims {
		l := lostLayout{claim: &host.Claims[i]}
		for _, id := range slices.Sorted(maps.Keys(l.claim.MIGLayout)) {
			t, why := lostOn(host, id, placedNow(host, l.claim, id), quiesced(l.claim))
			switch {
			case why != "":
				l.conflicts = append(l.conflicts, fmt.Sprintf("GPU %s: %s", id, why))
			case t != nil:
				l.mig = append(l.mig, *t)
			}
		}
		for _, id := range slices.Sorted(maps.Keys(l.claim.VGPULayout)) {
			t, why := lostVGPUs(host, id, l.claim.VGPULayout[id], quiesced(l.claim))
			switch {
			case why != "":
				l.conflicts = append(l.conflicts, fmt.Sprintf("GPU %s: %s", id, why))
			case t != nil:
				l.vgpus = append(l.vgpus, *t)
			}
		}
		if len(l.mig)+len(l.vgpus)+len(l.conflicts) > 0 {
			out = append(out, l)
		}
	}
	return out
}

// placedNow is the layout that a claim keeps for a GPU. Where numbers of instances are
// declared, one that others have put in another place stands for one that is missing: it
// is as declared, and would be one too many beside the one made again.
func placedNow(host *gpu.Host, c *gpu.Claim, id string) []gpu.MIGPlacement {
	layout, _ := byID(c.MIGLayout, id)
	g, ok := host.GPU(id)
	if !ok || g.MIG == nil || c.Want.Config == nil || c.Want.Config.MIG == nil || len(c.Want.Config.MIG.Placements) > 0 {
		return layout
	}
	moved := slices.DeleteFunc(g.MIG.State().Placements, func(p gpu.MIGPlacement) bool { return slices.Contains(layout, p) })
	out := slices.Clone(layout)
	for i, p := range out {
		if _, there := findInstance(g.MIG, p); there {
			continue
		}
		at := slices.IndexFunc(moved, func(o gpu.MIGPlacement) bool { return o.Profile == p.Profile })
		if at >= 0 {
			out[i] = moved[at]
			moved = slices.Delete(moved, at, at+1)
		}
	}
	return out
}

func quiesced(c *gpu.Claim) []string {
	if c.Want.Config == nil {
		return nil
	}
	return c.Want.Config.QuiesceUnits
}

// lostOn is what a GPU lacks of its layout, nil for nothing, or why that cannot be put
// back without removing anything.
func lostOn(host *gpu.Host, id string, layout []gpu.MIGPlacement, watchers []string) (*migTarget, string) {
	g, ok := host.GPU(id)
	switch {
	case !ok:
		return nil, "the host does not have it any more"
	case g.Dismounted:
		return nil, "it is taken from the host, for passthrough"
	case g.MIG == nil:
		return nil, "it shows no Multi-Instance GPU"
	}
	t := &migTarget{gpu: g, enable: true}
	have := g.MIG.State().Placements
	for _, p := range layout {
		if slices.Contains(have, p) {
			t.plan.Keep = append(t.plan.Keep, p)
		} else {
			t.plan.Create = append(t.plan.Create, p)
		}
	}
	t.complete = incomplete(g.MIG, t.plan.Keep)
	if !t.changesMode() && len(t.plan.Create)+len(t.complete) == 0 {
		return nil, ""
	}
	if t.resets() {
		return nil, "its MIG mode is off, and to turn it on takes a reset of the GPU"
	}
	if users := usersBut(g, watchers); t.changesMode() && users != "" {
		return nil, "its MIG mode is off, and cannot be turned on while it is in use by " + users
	}
	if err := rules.CheckMIGPlacements(rules.MIGProfiles(g), slices.Concat(have, t.plan.Create)); err != nil {
		return nil, fmt.Sprintf("it has %s, beside which %s cannot be made: %s", list(have, placementText), t.lacks(), oneLine(err))
	}
	return t, ""
}

// lacks says what is missing, for people.
func (t *migTarget) lacks() string {
	var out []string
	if t.changesMode() {
		out = append(out, "MIG mode")
	}
	for _, p := range slices.Concat(t.complete, t.plan.Create) {
		out = append(out, placementText(p))
	}
	return strings.Join(out, ", ")
}

// restore puts back what the host lacks of the declared layouts, under the lease.
func (s *Server) restore(ctx context.Context, lease backend.Lease) ([]Settled, error) {
	release, err := s.take(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	state, err := s.store.Load(ctx)
	if err != nil {
		return nil, failure("read the claims", err)
	}
	host, lost, err := s.lost(ctx, &state)
	if err != nil {
		return nil, err
	}
	defer s.keepAlive(ctx, lease.Fence)()
	var out []Settled
	for _, l := range lost {
		end, err := s.restoreLayout(ctx, lease, &host, l)
		if err != nil {
			return out, err
		}
		out = append(out, end)
	}
	return out, nil
}

// restoreLayout puts back what the GPUs of one config lack. What is on its way when ctx
// ends is finished.
func (s *Server) restoreLayout(ctx context.Context, lease backend.Lease, host *gpu.Host, l lostLayout) (Settled, error) {
	end := Settled{Subject: l.subject(), Stands: l.conflicts}
	lackings := l.lackings()
	if len(lackings) == 0 {
		return end, nil
	}
	if ctx.Err() != nil {
		return end, &Error{Kind: Cancelled, Message: "there was no time left to put back " + l.subject()}
	}
	ctx = context.WithoutCancel(ctx)
	steps := l.steps(host)
	e := &entry{
		ID: rand.Text(), Subject: l.subject(), Host: host.Name, Run: lease.Run, Worker: s.worker,
		Status: running, Steps: steps, Before: observe(host, steps), Undo: keepRestored(host, steps),
	}
	w := s.work(lease.Fence, e, nil)
	failed, err := w.makeEach(ctx)
	switch {
	case staleFence(err) != nil:
		return end, err
	case err != nil || len(failed[noGPU]) > 0:
		// It is put back, which has the units run and nothing else.
		out, backErr := w.putBack(ctx)
		if err = cmp.Or(err, backErr); err != nil {
			return end, err
		}
		end.Stands = append(end.Stands, out.Stands...)
	default:
		if err := s.strike(ctx, lease.Fence, e); err != nil {
			return end, failure("write the journal", err)
		}
	}
	now, err := s.inventory(ctx)
	if err != nil {
		return end, err
	}
	for _, was := range lackings {
		left := l.left(&now, was.gpu)
		switch {
		case len(failed[was.gpu]) > 0:
			end.Stands = append(end.Stands, failed[was.gpu]...)
		case left.conflict != "":
			end.Stands = append(end.Stands, fmt.Sprintf("GPU %s: %s", was.gpu, left.conflict))
		case left.what != "":
			end.Stands = append(end.Stands, fmt.Sprintf("GPU %s does not show %s although every step succeeded", was.gpu, left.what))
		default:
			end.Restored = append(end.Restored, fmt.Sprintf("GPU %s: %s", was.gpu, was.what))
		}
	}
	return end, nil
}

// keepRestored is what puts the steps of a restoration back: nothing but the units, since
// what was declared and is there again may be in use by then.
func keepRestored(host *gpu.Host, steps []Step) [][]Step {
	undo := make([][]Step, len(steps))
	for i, s := range steps {
		if s.Op == OpStopUnit {
			undo[i] = inverse(host, s)
		}
	}
	return refreshLast(steps, undo)
}

// noGPU stands for the steps that are for no GPU in particular.
const noGPU = ""

// makeEach runs the steps like make, but one that fails keeps only those on the same GPU
// from being tried. It tells what failed by GPU.
func (w *work) makeEach(ctx context.Context) (failed map[string][]string, err error) {
	failed = map[string][]string{}
	for i, step := range w.entry.Steps {
		if step.GPU != noGPU && len(failed[step.GPU]) > 0 {
			continue
		}
		w.entry.Begun = i + 1
		if err := w.server.record(ctx, w.fence, w.entry); err != nil {
			w.entry.Begun = i
			return failed, failure("write the journal", err)
		}
		if err := w.runner.run(ctx, step); err != nil {
			if lost := staleFence(err); lost != nil {
				return failed, lost
			}
			failed[step.GPU] = append(failed[step.GPU], stepFailed(step, err).Error())
		}
	}
	return failed, nil
}
