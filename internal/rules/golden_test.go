package rules_test

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

var update = flag.Bool("update", false, "write testdata/findings.golden again")

// TestFindingsAsRead holds what people read of each rule to a file that a person has read: a
// finding of each rule under each of its titles, from the scenario that violates it.
func TestFindingsAsRead(t *testing.T) {
	t.Parallel()
	texts, titles := map[string]string{}, map[string]bool{}
	read := func(findings ...rules.Finding) {
		for _, f := range findings {
			if key := f.Rule + "\x00" + f.Title; texts[key] == "" {
				texts[key] = fmt.Sprintf("%s: %s\n\n%s\n", cmp.Or(f.Level, rules.Error), f.Title, f.Detail())
				titles[f.Title] = true
			}
		}
	}
	for _, s := range scenarios() {
		w, p := s.build()
		read(of(s.rule, rules.Check(w, p, nil))...)
	}
	read(shareFindings()...)
	w, ends, user := restoredUnder()
	rules.Check(w, ends, nil)
	w.Others.Put(user.Token, user)
	read(rules.Decided(w, user, nil, nil)...)
	w, ends, user = restoredUnder()
	ends.Want, ends.Replaces = ends.Prior, true
	rules.Check(w, ends, nil)
	w.Others.Put(ends.Token, ends)
	w.Others.Put(user.Token, user)
	read(rules.Decided(w, user, nil, nil)...)
	kept := config("vdi", 4, "hv01")
	kept.Config.Restore = true
	read(rules.Unrestorable(world(host("hv01")).Hosts, change.Change{Subject: label(kept), Prior: kept})...)
	mounts := change.Change{Subject: `gpu_pool "dda"`, Prior: pool("dda", "hv01")}
	read(rules.NotMounted(mounts, []change.Forecast{{Host: "hv01", Left: gpu.Refusals{
		{Op: change.MountBack, GPU: gpu1, Reasons: []string{"it cannot be read: the driver does not answer"}},
	}}})...)
	read(rules.StillUsed(stillUsed(), change.Change{Subject: `gpu_pool "dda"`, Prior: pool("dda", "hv01")}, nil)...)
	for title, at := range titlesWritten(t) {
		if !titles[title] && title != leftPool {
			t.Errorf("%s: no scenario leads to the title %q", at, title)
		}
	}
	var b strings.Builder
	for _, r := range append(rules.All(), rules.Rule{}) { // the last is for findings of no rule
		for _, key := range slices.Sorted(keysOf(texts)) {
			if strings.HasPrefix(key, r.ID+"\x00") {
				b.WriteString(texts[key] + "\n" + strings.Repeat("-", 40) + "\n")
			}
		}
	}
	golden := filepath.Join("testdata", "findings.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("findings read otherwise than in %s (-was +is). Read them as the person who gets them, then run\n"+
			"\tgo test ./internal/rules -run TestFindingsAsRead -update\n%s", golden, diff)
	}
}

// stillUsed has a VM that draws from a pool.
func stillUsed() rules.World {
	w := world(host("hv01", vm("a", gpu.VMRunning)))
	put(&w, "o", fromPool("a", "hv01", "hv01/dda", "dda"))
	return w
}

// A config or pool is not destroyed under what stays and names it, and may be if another
// resource takes it over.
func TestStillUsed(t *testing.T) {
	t.Parallel()
	vdi := partition("a", "hv01")
	vdi.Assignment.Partition.Config = "vdi"
	drawn := share("s", 0)
	drawn.Pool, drawn.Config = "hv01/dda", "turns"
	for name, c := range map[string]struct {
		user, goes, over gpu.Want
		rule             string
	}{
		"VM, pool":      {fromPool("a", "hv01", "hv01/dda", "dda"), pool("dda", "hv01"), pool("dda", "hv01"), "known-pool"},
		"VM, config":    {vdi, config("vdi", 4, "hv01"), config("vdi", 2, "hv01"), "known-config"},
		"share, pool":   {gpu.Want{Share: &drawn}, pool("dda", "hv01"), pool("dda", "hv01"), "known-pool"},
		"share, config": {gpu.Want{Share: &drawn}, config("turns", 4, "hv01"), config("turns", 2, "hv01"), "known-config"},
	} {
		w := world(host("hv01", vm("a", gpu.VMRunning)))
		p := change.Change{Token: "t", Prior: c.goes}
		if got := rules.StillUsed(w, p, nil); len(got) > 0 {
			t.Errorf("%s: nobody uses it, and it says %+v", name, got)
		}
		put(&w, "o", c.user)
		if got := rules.StillUsed(w, p, nil); len(got) != 1 || got[0].Rule != c.rule || got[0].Level != rules.Error {
			t.Errorf("%s: it says %+v", name, got)
		}
		if got := rules.StillUsed(w, p, rules.Levels{c.rule: rules.Warning}); len(got) != 1 || got[0].Level != rules.Warning {
			t.Errorf("%s: as a warning it says %+v", name, got)
		}
		if got := rules.StillUsed(w, p, rules.Levels{c.rule: rules.Off}); len(got) != 0 {
			t.Errorf("%s: the rule is off, and it says %+v", name, got)
		}
		put(&w, "n", c.over)
		if got := rules.StillUsed(w, p, nil); len(got) != 0 {
			t.Errorf("%s: another resource takes it over, and it says %+v", name, got)
		}
	}
}

func keysOf(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// leftPool is the title of a finding of a share and its pool in one run, which
// TestAccShare_APoolDoesNotLeaveItsSharesBehind of the shares' own package shows.
const leftPool = "The GPU leaves the pool under the share"

// shareFindings are those that hosts report when shares are placed under the lease.
func shareFindings() []rules.Finding {
	apart := gpu.Share{
		Name: "a", Host: "gpu01", Count: 2, Devices: []gpu.SharedDevice{{GPU: migGPU0}, {GPU: migGPU1, Instance: ptr(at("3g.40gb", 0))}},
	}
	_, noProcess := placement.PlaceShare(shareServer(freeGPU(migGPU0), h100(migGPU1, at("3g.40gb", 0))), "gpu01", &apart, "t")
	named := share("a", 0)
	_, lacks := placement.RankHosts(map[string]*gpu.Host{"gpu01": has(shareServer(), "platform", onto(named, migGPU0))}, &named, "t")

	return []rules.Finding{
		rules.FindingOf(gpu.RefusalOf(noProcess)), rules.FindingOf(lacks["gpu01"]), rules.NotAnnounced("hv01", "VM avd-02 would be shut down"),
	}
}

// titlesWritten are the titles that the code gives findings, each with where.
func titlesWritten(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	out, set := map[string]string{}, token.NewFileSet()
	note := func(e ast.Expr) {
		lit, ok := e.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return
		}
		text, err := strconv.Unquote(lit.Value)
		if err != nil {
			t.Fatal(err)
		}
		out[text] = set.Position(lit.Pos()).String()
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(set, file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Title" {
					note(n.Value)
				}
			case *ast.AssignStmt:
				for i, left := range n.Lhs {
					if of, ok := left.(*ast.SelectorExpr); ok && of.Sel.Name == "Title" && len(n.Rhs) == len(n.Lhs) {
						note(n.Rhs[i])
					}
				}
			}
			return true
		})
	}
	if len(out) < 50 {
		t.Fatalf("found %d titles only", len(out))
	}
	return out
}
