package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

func checkGPUExists(r *run) {
	switch w := r.Plan.Want; {
	case w.Config != nil:
		reportMissing(r, w.Config.GPUs, "selector.gpu_ids")
	case w.Pool != nil:
		reportMissing(r, w.Pool.Members, "members")
	case w.Share != nil && w.Share.Host != "" && len(w.Share.Devices) == 0:
		reportMissing(r, map[string][]string{w.Share.Host: w.Share.GPUIDs}, "gpu_ids")
	case w.Assignment != nil:
		if d := w.Assignment.Device; d != nil {
			reportMissing(r, map[string][]string{d.Host: d.GPUIDs}, "device.gpu_ids")
		}
		if p := w.Assignment.Partition; p != nil && p.PinnedGPU != "" {
			at, ok := r.Locate(w.Assignment)
			if !ok {
				return
			}
			// A GPU that is on another host is the business of vm-and-gpu-same-host.
			if _, here := at.Host.GPU(p.PinnedGPU); !here && len(r.HostsWith(p.PinnedGPU)) == 0 {
				reportMissing(r, map[string][]string{at.Key: {p.PinnedGPU}}, "partition.gpu_id")
			}
		}
	}
}

func reportMissing(r *run, gpus map[string][]string, path string) {
	for host, h := range r.HostsAtHand(gpus) {
		var missing, keys, meant, twice []string
		for _, id := range gpus[host] {
			_, unknown := h.UnknownGPU(id)
			if _, ok := h.GPU(id); !ok && !unknown {
				missing = append(missing, id)
				keys = append(keys, key("missing", host, id))
				if g := h.Meant(id); g != nil && gpu.HasID(gpus[host], g.ID) {
					twice = append(twice, fmt.Sprintf("%s, which is the %s of %s: that GPU is named already", id, formOf(g, id), g.ID))
				} else if g != nil {
					meant = append(meant, fmt.Sprintf("%s for %s, which is the %s of that GPU", g.ID, id, formOf(g, id)))
				}
			}
		}
		if len(missing) == 0 {
			continue
		}
		fix := "Write a GPU id as the `gpu_inventory` data source prints it for this host. On Hyper-V the id of a GPU changes with its slot, " +
			"on Linux when it is replaced."
		switch {
		case len(twice) > 0:
			fix = "Leave out " + join(twice) + "."
		case len(meant) > 0:
			fix = "Write " + join(meant) + "."
		default:
			fix = words.Meant(missing[0], words.Each(h.GPUs, func(g gpu.GPU) string { return g.ID }), fix)
		}
		r.report(Finding{
			Path:   path,
			Title:  "GPU not found on the host",
			Host:   host,
			GPU:    missing[0],
			Found:  fmt.Sprintf("%s has %s.", capital(hostText(host)), join(gpusSeen(h))),
			Wanted: fmt.Sprintf("%s names %s.", r.label(), join(missing)),
			Fix:    fix,
		}, keys...)
	}
}

// formOf is what of a GPU somebody has written in place of its id.
func formOf(g *gpu.GPU, text string) string {
	if _, err := strconv.Atoi(text); err == nil {
		return "index"
	}
	switch {
	case strings.HasPrefix(text, `\\?\`):
		return "name"
	case g.Address != "":
		return "PCI address"
	}
	return "instance path"
}

// gpusSeen lists a host's GPUs for a message.
func gpusSeen(h *gpu.Host) []string {
	if len(h.GPUs) == 0 {
		return []string{"no GPU"}
	}
	out := make([]string, len(h.GPUs))
	for i := range h.GPUs {
		out[i] = gpuText(&h.GPUs[i])
	}
	return out
}

func checkNothingSelected(r *run) {
	c := r.Plan.Want.Config
	if c == nil {
		return
	}
	var empty, lines, keys []string
	own := false // another config of this state has a GPU there
	for host, h := range r.HostsAtHand(c.GPUs) {
		if len(c.GPUs[host]) > 0 || !onPlatform(h, c.Kind) {
			continue
		}
		empty = append(empty, host)
		keys = append(keys, key("nothing", host))
		if len(h.GPUs) == 0 {
			lines = append(lines, quote(host)+" has no GPU")
			continue
		}
		var why []string
		for i := range h.GPUs {
			why = append(why, gpuText(&h.GPUs[i])+" "+r.whyLeftOut(host, h, &h.GPUs[i], c.Kind))
			claim := r.ConfigClaimOver(h, h.GPUs[i].ID)
			own = own || claim != nil && r.Owner != "" && r.Ours(claim)
		}
		lines = append(lines, quote(host)+" has "+join(why))
	}
	if len(empty) == 0 {
		return
	}
	path := "hosts"
	if len(empty) < len(c.GPUs) {
		path = "selector"
	}
	fix := "Change `selector` so that it finds a GPU there, or take the host out of `hosts`."
	if s := c.Scope.Selector; s != nil && len(s.Models) == 1 {
		fix = words.Meant(s.Models[0], r.modelsOn(c.GPUs), fix)
	}
	if own {
		fix += " If it replaces that config with `create_before_destroy`, which it also inherits from what depends on it, do without: a " +
			"GPU is in one config only, so the old one has to go first."
	}
	r.report(Finding{
		Path:   path,
		Title:  "No GPU is selected",
		Host:   empty[0],
		Found:  fmt.Sprintf("The selection finds no GPU on %s: %s.", join(quoteAll(empty)), join(lines)),
		Wanted: fmt.Sprintf("%s wants GPUs with %s on every host that it names.", r.label(), change.Noun(c)),
		Fix:    fix,
	}, keys...)
}

// modelsOn are the models of the GPUs that hosts have.
func (r *run) modelsOn(hosts map[string][]string) []string {
	var models []string
	for _, h := range r.HostsAtHand(hosts) {
		models = append(models, words.Each(h.GPUs, func(g gpu.GPU) string { return g.Model })...)
	}
	slices.Sort(models)
	return slices.Compact(models)
}

// onPlatform tells whether a host is of the platform that a kind of config is for; what
// it is when it is not is said by kind-on-platform.
func onPlatform(h *gpu.Host, kind gpu.Kind) bool {
	return h.Platform == "" || h.Platform == change.PlatformOf(kind)
}

// whyLeftOut says why the default selection passes a GPU by.
func (r *run) whyLeftOut(host string, h *gpu.Host, g *gpu.GPU, kind gpu.Kind) string {
	if pool := whatif.InPool(h, g.ID); pool != nil {
		return "(in pool " + quote(pool.Name) + ")"
	}
	if claim := r.ConfigClaimOver(h, g.ID); claim != nil {
		return "(claimed by partition config " + quote(claim.ID) + " of " + whose(claim) + ")"
	}
	if g.Dismounted {
		return "(dismounted from the host)"
	} else if why := change.Passes(kind, g); why != "" {
		return "(" + why + ")"
	}
	switch {
	case r.Conflict(host, func(w gpu.Want) bool { return w.Config != nil && gpu.HasID(w.Config.GPUs[host], g.ID) }) != nil:
		return "(covered by another gpu_partition_config of this run)"
	case h.Platform != gpu.Linux && r.Conflict(host, func(w gpu.Want) bool { return whatif.TakesWhole(w, host, g.ID) }) != nil:
		return "(taken whole by another resource of this run)"
	}
	return "(not matched by `selector`)"
}

func checkExistingPool(r *run) {
	p := r.Plan.Want.Pool
	if p == nil {
		return
	}
	for host, h := range r.HostsAtHand(p.Members) {
		pool, ok := h.Pool(p.Name)
		if !ok || r.isOwnPool(host, h, p.Name) {
			continue
		}
		fix := fmt.Sprintf("Adopt it with `terraform import ADDRESS %s/%s`, where ADDRESS is this resource's address, or choose another `name`.",
			host, pool.Name)
		if !r.Plan.Prior.Empty() {
			fix = "Delete that pool on the host once no VM draws from it, or leave the host out of this pool."
		}
		r.report(Finding{
			Path:  "name",
			Title: "The pool already exists",
			Host:  host,
			Found: fmt.Sprintf("%s has a pool %s with %s, and no Terraform resource manages it.", capital(hostText(host)),
				quote(pool.Name), plural(len(pool.GPUs), "GPU")),
			Wanted: fmt.Sprintf("%s creates a pool of that name there.", r.label()),
			Fix:    fix,
		}, key("pool", host, p.Name))
	}
}

// isOwnPool tells whether the pool on the host is this resource's already, or has a
// claim: this state's pool is taken over, another's is reported by not-our-claim.
func (r *run) isOwnPool(host string, h *gpu.Host, name string) bool {
	if prior := r.Plan.Prior.Pool; prior != nil && gpu.SameID(prior.Name, name) {
		if _, had := prior.Members[host]; had {
			return true
		}
	}
	_, claimed := h.Claim(gpu.ClaimPool, name)
	return claimed
}

func checkKnownConfig(r *run) {
	if s := r.Plan.Want.Share; s != nil {
		checkKnownShareConfig(r, s)
		return
	}
	a := r.Plan.Want.Assignment
	if a == nil || a.Partition == nil || !r.world.Complete {
		return
	}
	for _, id := range a.Partition.ConfigIDs() {
		checkKnownPartitionConfig(r, a, id)
	}
}

func checkKnownPartitionConfig(r *run, a *gpu.Assignment, id string) {
	kind, known := r.ConfigKind(id)
	at, located := r.Locate(a)
	if known && (kind != gpu.KindVGPU || located && at.Host.Platform != gpu.Linux) && (kind != gpu.KindGPUP || located &&
		at.Host.Platform == gpu.Linux) {
		r.report(Finding{
			Path:   configPath(a.Partition),
			Title:  "The partition config has no partitions for VMs",
			VM:     whatif.VMWritten(a),
			Found:  fmt.Sprintf("Partition config %s is of kind `%s`: %s.", quote(id), kind, change.Use(kind)),
			Wanted: fmt.Sprintf("%s takes a partition of it.", r.label()),
			Fix:    "Refer to a gpu_partition_config with `gpu_p` for a VM of a Hyper-V host, and with `vgpu` for one of a Linux host.",
		}, key("config kind", id))
	}
	if known || r.ConfigClaimed(id) {
		return
	}
	r.report(r.missing(whatif.ConfigNamed(id), "partition config", id, Finding{
		Path:   configPath(a.Partition),
		VM:     whatif.VMWritten(a),
		Wanted: fmt.Sprintf("%s takes a partition of it.", r.label()),
		Fix: "Refer to the resource, as in `partition = { config = gpu_partition_config.NAME.id }`, so that Terraform makes it first, or " +
			"leave `config` out to take any partition.",
	}), key("config", id))
}

// missing says of a config or pool that a plan names why it is not there.
func (r *run) missing(object, kind, id string, f Finding) Finding {
	f.Title = "Unknown " + kind
	f.Found = fmt.Sprintf("No host has a %s %s, and nothing in this run has made one so far.", kind, quote(id))
	for e := range r.Others(object) {
		if e.Plan.Want.Empty() {
			f.Title, f.Found = "The "+kind+" is destroyed", whatif.Label(e.Plan)+" is destroyed in this run."
			f.Fix = "Destroy both, or keep both."
			return f
		}
	}
	of := gpu.ClaimConfig
	if object == whatif.PoolNamed(id) {
		of = gpu.ClaimPool
	}
	f.Fix = words.Meant(id, r.Fleet.ClaimIDs(of), f.Fix)
	return f
}

func checkKnownPool(r *run) {
	if s := r.Plan.Want.Share; s != nil {
		checkKnownSharePool(r, s)
		return
	}
	a := r.Plan.Want.Assignment
	if a == nil || a.Pool == nil || !r.world.Complete {
		return
	}
	if poolKnown(r, a) {
		return
	}
	r.report(r.missing(whatif.PoolNamed(a.Pool.ID), "pool", cmp.Or(a.Pool.ID, a.Pool.Name), Finding{
		Path:   "pool.id",
		VM:     whatif.VMWritten(a),
		Wanted: fmt.Sprintf("%s takes GPUs from it.", r.label()),
		Fix:    "Refer to the resource, as in `pool = { id = gpu_pool.NAME.id }`, so that Terraform makes it first.",
	}), key("pool", a.Pool.ID))
}

// poolKnown tells whether the run plans the pool that a VM draws from, or a host has it and keeps it.
func poolKnown(r *run, a *gpu.Assignment) bool {
	var ends *gpu.PoolConfig
	for e := range r.Others(whatif.PoolNamed(a.Pool.ID)) {
		if p := e.Plan.Want.Pool; p != nil && gpu.SameID(p.ID, a.Pool.ID) {
			return true
		}
		if e.Plan.Want.Empty() && e.Plan.Prior.Pool != nil {
			ends = e.Plan.Prior.Pool
		}
	}
	if r.PoolClaimed(a.Pool.ID) {
		return true
	}
	at, ok := r.Locate(a)
	if !ok {
		return false
	}
	name := cmp.Or(a.Pool.Name, a.Pool.ID)
	_, has := at.Host.Pool(name)
	// A pool that the VM draws from does not leave its host: that is an error of its plan.
	return has && (ends == nil || leavesMounted(nil, ends) && whatif.Drawn(at.VM, name) > 0)
}

// StillUsed finds resources of the run that name the config or pool which a plan destroys for
// good, and stay by what was planned of them before it.
func StillUsed(w World, p change.Change, levels Levels) []Finding {
	r, done := begin(w, p)
	defer done()
	var id, object, rule string
	switch c, pool := p.Prior.Config, p.Prior.Pool; {
	case c != nil:
		id, object, rule = c.ID, whatif.ConfigNamed(c.ID), "known-config"
	case pool != nil:
		id, object, rule = pool.ID, whatif.PoolNamed(pool.ID), "known-pool"
	}
	if rule == "" || levels[rule] == Off {
		return nil
	}
	for e := range r.Others(object) {
		if !e.Plan.Want.Empty() {
			return nil // another resource takes it over
		}
	}
	var out []Finding
	for e := range r.Others(whatif.UsersOf(id)) {
		if !e.Plan.Want.RefersTo(p.Prior) {
			continue
		}
		level := Error
		if levels[rule] == Warning {
			level = Warning
		}
		out = append(out, Finding{
			Rule: rule, Level: level, Title: "A resource that stays uses it", Other: whatif.Label(e.Plan),
			Found: whatif.Label(e.Plan) + " names it, and is not destroyed in this run.",
			Fix:   "Destroy both, or keep both.",
		})
	}
	return out
}

func checkNotOurClaim(r *run) {
	if r.Mode.Past && !r.Plan.Unchanged {
		return // however long another state has had it, a change of it is refused
	}
	switch w := r.Plan.Want; {
	case w.Config != nil:
		reportForeignClaims(r, w.Config.GPUs, gpu.ClaimConfig, w.Config.ID, "name")
	case w.Pool != nil:
		reportForeignClaims(r, w.Pool.Members, gpu.ClaimPool, w.Pool.Name, "name")
	case w.Share != nil && w.Share.Host != "":
		reportForeignClaims(r, map[string][]string{w.Share.Host: nil}, gpu.ClaimShare, w.Share.Name, "name")
	case w.Assignment != nil:
		at, ok := r.Locate(w.Assignment)
		if !ok {
			return
		}
		if c, has := r.ClaimOnVM(at.Key, at.VM.ID); has && !r.Ours(c) {
			reportForeignClaim(r, c, at.Key, vmText(at.VM), "vm", at.VM.Name)
		}
	}
}

func reportForeignClaims(r *run, gpus map[string][]string, kind gpu.ClaimKind, id, path string) {
	for host, h := range r.HostsAtHand(gpus) {
		for i := range h.Claims {
			if c := &h.Claims[i]; c.Is(kind, id) && !r.Ours(c) {
				reportForeignClaim(r, c, host, claimNoun(kind)+" "+quote(id), path, "")
			}
		}
	}
}

func reportForeignClaim(r *run, c *gpu.Claim, host, object, path, vm string) {
	r.report(Finding{
		Path:   path,
		Title:  "Another Terraform state manages this object",
		Host:   host,
		VM:     vm,
		Found:  fmt.Sprintf("On %s, %s is managed by %s.", hostText(host), object, whose(c)),
		Wanted: fmt.Sprintf("%s would manage it from %s.", r.label(), r.thisState()),
		Fix:    r.handOver(object),
	}, key("claim", host, object, c.Owner))
}

func (r *run) thisState() string {
	if r.Owner == "" {
		return "a state that has no owner name"
	}
	return "the state " + quote(r.Owner)
}
