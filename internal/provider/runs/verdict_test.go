package runs_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/core"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider"
)

// TestOneVerdict plans and applies random changes of random fleets again and again, in
// shuffled order and with 1, 10 and 30 operations at a time. Terraform promises no more
// than the order of references, so that a plan must say the same each time, and what it
// allows must come about; where room is freed and taken in one run, one operation at a
// time may fail with nothing touched, and the next apply completes it.
//
// VERDICTS is how many configurations are tried, VERDICT_SEED the first seed,
// VERDICT_ORDERS how often each is planned and applied, and VERDICT_KIND the only kind of
// them: partitions, passthrough, mig or shares.
func TestOneVerdict(t *testing.T) {
	t.Parallel()
	n, first, orders := number(t, "VERDICTS", 8), number(t, "VERDICT_SEED", 1), number(t, "VERDICT_ORDERS", 6)
	var allowed, refused int
	reasons := map[string]int{}
	for seed := first; seed < first+n; seed++ {
		if why := newVerdicts(t, seed, os.Getenv("VERDICT_KIND")).run(orders); why == "" {
			allowed++
		} else {
			refused++
			reasons[why]++
		}
	}
	t.Logf("%d changes, each in %d orders: %d were allowed, %d refused: %v", allowed+refused, orders, allowed, refused, reasons)
	if n > 20 && (allowed < n/4 || refused < n/10) {
		t.Errorf("of %d changes %d were allowed and %d refused: too few of one kind to prove anything", n, allowed, refused)
	}
}

// A VM that is not pinned could take the only partition of the GPU that another one of the run
// is pinned to: whether the apply failed hung on the order, and no later one put it right.
func TestAPinnedVMDoesNotDependOnTheOrder(t *testing.T) {
	t.Parallel()
	if why := newVerdicts(t, 5063, "passthrough").run(6); why != "An unpinned VM may take a pinned VM's partition" {
		t.Errorf("it is refused for %q", why)
	}
}

func number(t *testing.T, env string, usual int) int {
	t.Helper()
	s := os.Getenv(env)
	if s == "" {
		return usual
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("%s: %v", env, err)
	}
	return n
}

// verdicts is one change of one fleet.
type verdicts struct {
	t             *testing.T
	seed          int
	before, after string // configurations without their provider block
	fleet         []byte // once before is applied
	start, file   string // that fleet, and the one of the last run
	state         *core.Workspace
}

// newVerdicts makes a fleet and applies what the change begins with. Where that cannot be
// applied, this itself is the change.
func newVerdicts(t *testing.T, seed int, kind string) *verdicts {
	t.Helper()
	r := rand.New(rand.NewPCG(uint64(seed), 7))
	v := &verdicts{t: t, seed: seed}
	var fleet gpu.Snapshot
	fleet, v.before, v.after = randomChange(r, kind)
	file := filepath.Join(t.TempDir(), "fleet.json")
	v.state = v.begin(file, fleet)
	if v.before != "" {
		v.state.Write(block(file) + v.before)
		terminal := &core.Terminal{Workspace: v.state}
		if _, code := terminal.Run(context.WithoutCancel(t.Context()), "apply", "-auto-approve"); code != 0 {
			v.before, v.after = "", v.before
			v.state = v.begin(file, fleet)
		}
	}
	var err error
	if v.fleet, err = os.ReadFile(file); err != nil {
		t.Fatal(err)
	}
	return v
}

// begin makes a fleet and a workspace that has nothing of it.
func (v *verdicts) begin(file string, fleet gpu.Snapshot) *core.Workspace {
	v.t.Helper()
	if _, err := others.Create(file, fleet); err != nil {
		v.t.Fatal(err)
	}
	w, err := core.New(v.t.Context(), map[string]core.Factory{"gpu": func() (tfprotov6.ProviderServer, error) {
		server, err := provider.Server("test", nil, provider.WithPatience(rig.Patience))
		if err != nil {
			return nil, err
		}
		return server(), nil
	}})
	if err != nil {
		v.t.Fatal(err)
	}
	return w
}

func block(file string) string {
	return fmt.Sprintf("provider \"gpu\" {\n  owner = \"test\"\n  simulated_fleet = %q\n  power = { allow_shutdown = true }\n}\n", file)
}

// run plans and applies the change in so many orders, and tells why it is refused; "" when
// it is not.
func (v *verdicts) run(orders int) string {
	v.t.Helper()
	r := rand.New(rand.NewPCG(uint64(v.seed), 8))
	said := map[bool]string{}
	for i := range orders {
		parallel := []int{1, 10, 30}[i%3]
		out, refused, wrong := v.once(parallel, r.Uint64())
		if _, ok := said[refused]; !ok {
			said[refused] = out
		}
		if wrong != "" {
			v.t.Errorf("seed %d, %d at a time: %s\n%s\n--- before\n%s\n--- after\n%s", v.seed, parallel, wrong, out, v.before, v.after)
			return ""
		}
		if len(said) > 1 {
			v.t.Errorf("seed %d: it depends on the order what a plan says\n--- before\n%s\n--- after\n%s\n--- refused\n%s\n--- allowed\n%s",
				v.seed, v.before, v.after, said[true], said[false])
			return ""
		}
	}
	_, why, _ := strings.Cut(said[true], "Error: ")
	why, _, _ = strings.Cut(why, "\n")
	return why
}

// once plans and applies in one order. wrong is what must not be.
func (v *verdicts) once(parallel int, seed uint64) (out string, refused bool, wrong string) {
	v.t.Helper()
	file := filepath.Join(v.t.TempDir(), "fleet.json")
	if err := os.WriteFile(file, v.fleet, 0o600); err != nil {
		v.t.Fatal(err)
	}
	v.file = file
	w := v.state.Copy()
	w.Parallelism, w.Shuffle = parallel, shuffle(seed)
	w.Write(block(file) + v.after)
	terminal := &core.Terminal{Workspace: w}
	ctx := context.WithoutCancel(v.t.Context())
	p, err := w.Plan(ctx, core.Options{})
	if err != nil {
		return err.Error(), true, ""
	}
	out = p.Outcome().String()
	said, err := p.Apply(ctx)
	if err != nil {
		out += "\n--- apply\n" + err.Error()
		_ = said
		if parallel > 1 || !clean(err) {
			return out, false, "the apply failed"
		}
		again, code := terminal.Run(ctx, "apply", "-auto-approve")
		if out += "\n--- again\n" + again.String(); code != 0 {
			return out, false, "the next apply did not complete it"
		}
	}
	if again, code := terminal.Run(ctx, "plan", "-detailed-exitcode"); code != 0 {
		return out + "\n--- second plan\n" + again.String(), false, "a second plan is not empty"
	}
	return out, false, ""
}

// clean tells whether an apply says of all that failed that nothing was touched.
func clean(err error) bool {
	return !strings.Contains(err.Error(), "rolled back") && !strings.Contains(err.Error(), "still stands") &&
		!strings.Contains(err.Error(), "half done")
}

// shuffle is safe for use by several operations.
func shuffle(seed uint64) func(int) int {
	r := rand.New(rand.NewPCG(seed, 9))
	lock := make(chan struct{}, 1)
	return func(n int) int {
		lock <- struct{}{}
		defer func() { <-lock }()
		return r.IntN(n)
	}
}

// randomChange is a fleet, what is applied to it first, and what then is wanted, of any kind or
// of one.
func randomChange(r *rand.Rand, kind string) (fleet gpu.Snapshot, before, after string) {
	n := map[string]int{"partitions": 0, "passthrough": 1, "mig": 2, "shares": 3}[kind]
	if kind == "" {
		n = r.IntN(5)
	}
	switch n {
	case 0:
		return randomHyperV(r)
	case 1:
		return randomPassthrough(r)
	case 2:
		m := randomSharing(r, true)
		before = m.text()
		m.change(r)
		return rig.WithMPS(rig.HGX(rig.H100, m.gpus)), before, m.text()
	}
	m := randomSharing(r, false)
	if r.IntN(3) > 0 {
		before = m.text()
		m.change(r)
	}
	return rig.Inference(m.hosts), before, m.text()
}

// sharing is a declaration of shares, and of what they have part in.
type sharing struct {
	hosts, gpus int // gpus on each host
	mig         bool
	configs     map[string]*sharedConfig
	pool        []string // its hosts; none for no pool
	quota       int      // shares of the pool; 0 for none
	shares      map[string]*shareArgs
}

type sharedConfig struct {
	kind  string
	hosts []string
	gpus  []int // none for all
}

type shareArgs struct {
	from    string // "pool", a host, or a host in the pool
	config  string
	count   int
	memory  int // GiB, the limit
	threads int
	profile string
}

func (m *sharing) host(n int) string {
	if m.mig {
		return "hgx01"
	}
	return fmt.Sprintf("gpu%02d", n+1)
}

func (m *sharing) id(host string, n int) string {
	if m.mig {
		return rig.MIGGPU(n)
	}
	return rig.ShareCard(int(host[4]-'0'), n)
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func randomSharing(r *rand.Rand, mig bool) *sharing {
	m := &sharing{hosts: 1 + r.IntN(2), gpus: 2, mig: mig, configs: map[string]*sharedConfig{}, shares: map[string]*shareArgs{}}
	if mig {
		m.hosts = 1
	}
	m.addConfig(r)
	if r.IntN(2) == 0 {
		m.pool = m.someHosts(r)
		if r.IntN(3) == 0 {
			m.quota = 2 + r.IntN(5)
		}
	}
	for range 1 + r.IntN(6) {
		m.addShare(r)
	}
	return m
}

func (m *sharing) someHosts(r *rand.Rand) []string {
	var out []string
	for n := range m.hosts {
		out = append(out, m.host(n))
	}
	return out[:1+r.IntN(len(out))]
}

func (m *sharing) kind(r *rand.Rand) string {
	if m.mig {
		layout := pick(r, rig.SevenSmall, rig.Halves, rig.Balanced, `profiles = { "3g.40gb" = 1, "1g.10gb" = 2 }`)
		return "mig = { " + layout + pick(r, "", "", "\n  mps = { uid = 1000 }", "\n  time_slicing = { replicas = 2 }") + " }"
	}
	return pick(r, rig.ByMPS, rig.ByMPS, `mps = { uid = 1000, oversubscription = 1.5 }`, `time_slicing = { replicas = 2 }`, rig.ByTurns)
}

func (m *sharing) addConfig(r *rand.Rand) {
	if r.IntN(8) == 0 {
		return
	}
	c := &sharedConfig{kind: m.kind(r), hosts: m.someHosts(r)}
	if r.IntN(3) == 0 {
		c.gpus = []int{r.IntN(m.gpus)}
	}
	m.configs["c"] = c
}

func (m *sharing) addShare(r *rand.Rand) {
	name := fmt.Sprintf("s%d", r.IntN(40))
	s := &shareArgs{from: m.host(r.IntN(m.hosts)), memory: pick(r, 0, 4, 8, 8, 12, 12, 16, 20, 22), count: 1}
	if odd := r.IntN(12) == 0; len(m.pool) > 0 && (slices.Contains(m.pool, s.from) || r.IntN(2) == 0) && !odd {
		s.from = "pool"
	}
	c := m.configs["c"]
	if c != nil && (s.from == "pool" || slices.Contains(c.hosts, s.from)) && r.IntN(12) > 0 {
		s.config = "c"
	}
	if s.config != "" && strings.HasPrefix(c.kind, "mps") && r.IntN(3) == 0 {
		s.threads = pick(r, 10, 25, 30, 50)
	}
	switch {
	case m.mig:
		s.memory = pick(r, 0, 4, 4, 8)
		if s.config != "" && r.IntN(2) == 0 {
			s.profile = pick(r, profile.FindAllString(c.kind, -1)...)
		}
	case r.IntN(10) == 0:
		s.count = 2
	}
	m.shares[name] = s
}

var profile = regexp.MustCompile(`[1-7]g\.[0-9]+gb`)

func (m *sharing) change(r *rand.Rand) {
	m.shares = maps.Clone(m.shares)
	for range 1 + r.IntN(4) {
		names := slices.Sorted(maps.Keys(m.shares))
		switch r.IntN(8) {
		case 0, 1:
			m.addShare(r)
		case 2, 3:
			if len(names) > 0 {
				delete(m.shares, pick(r, names...))
			}
		case 4, 5:
			if len(names) > 0 {
				name := pick(r, names...)
				s := *m.shares[name]
				s.memory = pick(r, 4, 8, 12, 16, 20, 22)
				if m.mig {
					s.memory = pick(r, 2, 4, 6, 8)
				}
				m.shares[name] = &s
			}
		case 6:
			if c := m.configs["c"]; c != nil {
				changed := *c
				if changed.kind = m.kind(r); r.IntN(2) == 0 {
					changed = *c
					changed.hosts, changed.gpus = m.someHosts(r), nil
				}
				m.configs = map[string]*sharedConfig{"c": &changed}
			}
		case 7:
			if len(m.pool) > 0 {
				m.pool, m.quota = m.someHosts(r), pick(r, 0, 2, 4, 6)
			}
		}
	}
}

func (m *sharing) text() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(m.configs)) {
		c := m.configs[name]
		fmt.Fprintf(&b, "resource \"gpu_partition_config\" %q {\n  name = %q\n  hosts = %s\n  %s\n", name, name, list(c.hosts), c.kind)
		if len(c.gpus) > 0 {
			fmt.Fprintf(&b, "  selector = { gpu_ids = {")
			for _, h := range c.hosts {
				var ids []string
				for _, n := range c.gpus {
					ids = append(ids, m.id(h, n))
				}
				fmt.Fprintf(&b, " %s = %s,", h, list(ids))
			}
			b.WriteString(" } }\n")
		}
		if m.mig {
			b.WriteString("  max_disruption = \"process_restart\"\n")
		}
		b.WriteString("}\n")
	}
	if len(m.pool) > 0 {
		quotas := ""
		if m.quota > 0 {
			quotas = fmt.Sprintf("quotas = { team-a = { shares = %d } }", m.quota)
		}
		fmt.Fprintf(&b, "resource \"gpu_pool\" \"ml\" {\n  name = \"ml\"\n  hosts = %s\n  %s\n}\n", list(m.pool), quotas)
	}
	for _, name := range slices.Sorted(maps.Keys(m.shares)) {
		s := m.shares[name]
		args := []string{fmt.Sprintf("host = %q", s.from)}
		if s.from == "pool" {
			args = []string{"pool = gpu_pool.ml.id", rig.TeamA}
		}
		if s.config != "" {
			args = append(args, "config = gpu_partition_config.c.id")
		}
		if s.memory > 0 {
			args = append(args, fmt.Sprintf("memory = { limit_mib = %d }", s.memory*1024))
		}
		if s.threads > 0 {
			args = append(args, fmt.Sprintf("active_thread_percentage = %d", s.threads))
		}
		if s.count > 1 {
			args = append(args, fmt.Sprintf("gpu_count = %d", s.count))
		}
		if s.profile != "" {
			args = append(args, fmt.Sprintf("mig_profile = %q", s.profile))
		}
		b.WriteString(rig.ShareOf(name, args...))
	}
	return b.String()
}

func list(of []string) string { return `["` + strings.Join(of, `", "`) + `"]` }

// randomHyperV changes partition counts, and which VMs have a partition.
func randomHyperV(r *rand.Rand) (fleet gpu.Snapshot, before, after string) {
	vms := []string{"avd-01", "avd-02", "avd-03", "avd-04", "avd-05", "avd-06"}
	counts := func() int { return pick(r, 1, 2, 4, 4, 16) }
	has := map[string]bool{}
	text := func(count int) string {
		b := rig.ConfigOf(count, rig.Both, `max_disruption = "vm_restart"`)
		for _, vm := range vms {
			if has[vm] {
				b += rig.Assign(vm, "allow_shutdown = true")
			}
		}
		return b
	}
	for _, vm := range vms {
		has[vm] = r.IntN(2) == 0
	}
	count := counts()
	before = text(count)
	for range 1 + r.IntN(3) {
		vm := pick(r, vms...)
		has[vm] = !has[vm]
	}
	if r.IntN(2) == 0 {
		count = counts()
	}
	return rig.TwoNodes(), before, text(count)
}

// randomPassthrough changes which GPUs of two hosts are divided and which are in a pool, and
// what the VMs there have: any partition, one of a certain GPU, a GPU of the pool, a certain
// GPU, or nothing.
func randomPassthrough(r *rand.Rand) (fleet gpu.Snapshot, before, after string) {
	type vm struct{ host, name string }
	vms := []vm{{"hv01", "avd-01"}, {"hv01", "avd-02"}, {"hv01", "avd-03"}, {"hv02", "avd-04"}, {"hv02", "avd-05"}, {"hv02", "avd-06"}}
	ids := []string{rig.GPU0, rig.GPU1}
	device := func(vm string) string { return ids[int(vm[len(vm)-1])%2] }
	of := map[string]string{} // what has a GPU, by host and id: "config", "pool" or nothing
	has := map[vm]string{}
	count := pick(r, 1, 2, 4)
	// Most VMs want what is on their host.
	fits := func(v vm) bool {
		on := func(what string) bool { return of[v.host+rig.GPU0] == what || of[v.host+rig.GPU1] == what }
		switch what := has[v]; what {
		case "any":
			return on("config")
		case "pool":
			return on("pool")
		case "device":
			return of[v.host+device(v.name)] == ""
		default:
			return what == "" || of[v.host+what] == "config"
		}
	}
	strict := r.IntN(6) > 0
	give := func(host, id string) { of[host+id] = pick(r, "config", "config", "pool", "pool", "") }
	want := func(v vm) { has[v] = pick(r, "", "any", "any", rig.GPU0, rig.GPU1, "pool", "pool", "device") }
	members := func(b *strings.Builder, what string) (hosts []string) {
		for _, host := range rig.Both {
			var mine []string
			for _, id := range ids {
				if of[host+id] == what {
					mine = append(mine, id)
				}
			}
			if len(mine) > 0 {
				hosts = append(hosts, host)
				fmt.Fprintf(b, " %s = %s,", host, list(mine))
			}
		}
		return hosts
	}
	text := func() string {
		var b, gpus strings.Builder
		hosts := members(&gpus, "config")
		if len(hosts) > 0 {
			b.WriteString(rig.ConfigOf(count, hosts, `max_disruption = "vm_restart"`, "selector = { gpu_ids = {"+gpus.String()+" } }"))
		}
		config := len(hosts) > 0
		gpus.Reset()
		pool := len(members(&gpus, "pool")) > 0
		if pool {
			b.WriteString(rig.RenderPool("members = {"+gpus.String()+" }", rig.MountBack))
		}
		for _, v := range vms {
			switch what := has[v]; {
			case strict && !fits(v):
			case what == "any" && config:
				b.WriteString(rig.AssignmentOf(v.name, v.name, "partition = { config = gpu_partition_config.vdi.id }"))
			case (what == rig.GPU0 || what == rig.GPU1) && config:
				b.WriteString(rig.AssignmentOf(v.name, v.name, fmt.Sprintf("partition = { config = gpu_partition_config.vdi.id, gpu_id = %q }", what)))
			case what == "pool" && pool:
				b.WriteString(rig.AssignmentOf(v.name, v.name, "pool = { id = gpu_pool.render.id }", rig.WholeGPU(1)))
			case what == "device":
				b.WriteString(rig.AssignmentOf(v.name, v.name, fmt.Sprintf("device = { host = %q, gpu_ids = [%q] }", v.host, device(v.name)),
					rig.WholeGPU(1)))
			}
		}
		return b.String()
	}
	for _, host := range rig.Both {
		give(host, rig.GPU0)
		give(host, rig.GPU1)
	}
	some := func(n int) {
		for range n {
			want(vms[r.IntN(len(vms))])
		}
	}
	some(4)
	before = text()
	some(1 + r.IntN(3))
	if r.IntN(2) == 0 {
		give(pick(r, rig.Both...), pick(r, ids...))
	}
	if r.IntN(3) == 0 {
		count = pick(r, 1, 2, 4)
	}
	return rig.Standalone(
		rig.Node("hv01", rig.Desktop("avd-01", 1), rig.Desktop("avd-02", 2), rig.Off(rig.Desktop("avd-03", 3))),
		rig.Node("hv02", rig.Desktop("avd-04", 4), rig.Desktop("avd-05", 5), rig.Off(rig.Desktop("avd-06", 6)))), before, text()
}
