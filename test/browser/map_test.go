package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// looks are how every page is looked at: as on a phone and on a desk, by day and by night.
var looks = []look{{400, "light"}, {400, "dark"}, {1280, "light"}, {1280, "dark"}}

// pictured are the fleets whose pages are kept as pictures.
var pictured = []string{"ways-to-share", "vdi-cluster", "mig-to-scale", "quotas"}

// TestPages opens pages at both widths and in both themes: nothing is complained of, nobody is asked, axe-core finds nothing
// serious, nothing is wider than the screen, and they look as they did.
func TestPages(t *testing.T) {
	browser := start(t)
	for _, name := range pictured {
		file := draw(t, fleetFile(name))
		for _, l := range looks {
			t.Run(fmt.Sprintf("%s-%d-%s", name, l.width, l.theme), func(t *testing.T) {
				b := open(t, browser, file, l)
				if wide := b.number(`document.scrollingElement.scrollWidth`); int64(wide) > l.width {
					t.Errorf("the page is %d wide, and the screen %d", wide, l.width)
				}
				b.judge()
				compare(b, fmt.Sprintf("%s-%d-%s", name, l.width, l.theme))
			})
		}
	}
}

// TestFiltersAndSlider uses every control of a page with a plan.
func TestFiltersAndSlider(t *testing.T) {
	b := open(t, start(t), draw(t, fleetFile("vdi-cluster")), look{1280, "light"})
	visible := `[...document.querySelectorAll(".host")].filter((h) => !h.hidden).map((h) => h.querySelector("h2").firstChild.data.trim()).join()`
	want := func(what, count, hosts string) {
		t.Helper()
		var shown string
		b.evaluate(visible, &shown)
		if got := b.text("#count"); got != count || shown != hosts {
			t.Errorf("%s: %q and the hosts %q; want %q and %q", what, got, shown, count, hosts)
		}
	}
	want("at first", "2 GPUs", "hv01,hv02")
	b.set("vm", "AVD-03")
	want("a VM", "1 of 2 GPUs match", "hv01")
	if n := b.number(`document.querySelectorAll(".now .part:not(.dim)").length`); n != 1 {
		t.Errorf("%d parts are not dimmed, and one VM is looked for", n)
	}
	b.set("vm", "nobody")
	want("nobody", "0 of 2 GPUs match", "")
	b.set("vm", "")
	b.set("owner", "=vdi-prod")
	want("an owner", "2 GPUs", "hv01,hv02")
	b.set("owner", "-")
	want("no owner", "0 of 2 GPUs match", "")
	b.set("owner", "")
	b.set("model", "NVIDIA A2")
	want("a model", "2 GPUs", "hv01,hv02")
	b.set("model", "")
	b.set("changed", "on")
	want("what changes", "2 GPUs", "hv01,hv02")

	// A part under the middle of the bar is of now, and with the slider at its end of after.
	under := `(() => { const r = document.querySelector(".bars").getBoundingClientRect();
		return document.elementFromPoint(r.left + r.width * .45, r.top + r.height / 2).closest(".bar").className; })()`
	for value, want := range map[string][2]string{"0": {"bar now", "now"}, "100": {"bar after", "after the plan"}} {
		b.set("slider", value)
		var bar string
		b.evaluate(under, &bar)
		if got := b.text("#shown"); bar != want[0] || got != want[1] {
			t.Errorf("with the slider at %s there is %q, and it says %q; want %q", value, bar, got, want)
		}
	}
	// Down leads from the last GPU of a host to the first of the next one, up back again.
	b.set("slider", "0")
	b.evaluate(`document.querySelector(".part[tabindex='0']").focus()`, nil)
	b.run(chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.ArrowDown))
	if got := b.text("#detail"); !strings.Contains(got, "avd-04") || !strings.Contains(got, "of hv02") {
		t.Errorf("below avd-03 of hv01 is %q", got)
	}
	b.run(chromedp.KeyEvent(kb.ArrowUp))
	if got := b.text("#detail"); !strings.Contains(got, "avd-03") {
		t.Errorf("and above it %q", got)
	}
	if got := b.text("#turns"); !strings.Contains(got, "avd-01") || !strings.Contains(got, "off, starts again") {
		t.Errorf("the turns are %q", got)
	}
}

// TestDetailsAndKeyboard finds out who has a part with the pointer, and with keys alone.
func TestDetailsAndKeyboard(t *testing.T) {
	b := open(t, start(t), draw(t, fleetFile("claims")), look{1280, "dark"})
	var at struct{ X, Y float64 }
	b.evaluate(`(() => { const r = document.querySelector(".part").getBoundingClientRect(); return { X: r.left + 5, Y: r.top + 5 }; })()`, &at)
	b.run(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, at.X, at.Y))
	wantDetail := func(parts ...string) {
		t.Helper()
		got := b.text("#detail")
		for _, part := range parts {
			if !strings.Contains(got, part) {
				t.Errorf("the details are %q; want %q", got, part)
			}
		}
	}
	wantDetail("vdi-01", "running", "vdi-prod", "0F1E2D3C-0000-4000-8000-000000000001", "PCIROOT(16)#PCI(0000)#PCI(0000)")
	b.run(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, 5, 5))

	// The tabulator leads from the filters to one part only.
	b.evaluate(`document.getElementById("model").focus()`, nil)
	b.run(chromedp.KeyEvent(kb.Tab))
	wantDetail("vdi-01")
	b.run(chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.ArrowRight))
	wantDetail("lab-01", "lab")
	b.run(chromedp.KeyEvent(kb.End))
	wantDetail("2 free partitions")
	b.run(chromedp.KeyEvent(kb.Home))
	wantDetail("vdi-01")
	if n := b.number(`document.querySelectorAll(".part[tabindex='0']").length`); n != 1 {
		t.Errorf("%d parts are in the order of the tabulator", n)
	}
	b.run(chromedp.KeyEvent(kb.Tab))
	if got := b.text("#detail"); got != "" {
		t.Errorf("with the focus elsewhere the details are still %q", got)
	}

	// What a screen reader is told: a heading for the host, a button for each part with all that is known of it.
	var tree []*accessibility.Node
	b.run(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		r, err := cdp.Call(ctx, target, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
		tree = r.Nodes
		return err
	}))
	names := map[string][]string{}
	for _, n := range tree {
		if n.Role != nil && n.Name != nil {
			role, name := "", ""
			_ = json.Unmarshal(n.Role.Value, &role)
			_ = json.Unmarshal(n.Name.Value, &name)
			names[role] = append(names[role], name)
		}
	}
	has := func(role, text string) bool {
		return slices.ContainsFunc(names[role], func(name string) bool { return strings.Contains(name, text) })
	}
	if !has("heading", "hv01") || !has("button", "by-hand (VM, running") || !has("button", "2 free partitions") {
		t.Errorf("a screen reader is told %q", names)
	}
}

// TestHostileNames draws a fleet whose names are attacks: none is executed, and all are shown as they are.
func TestHostileNames(t *testing.T) {
	raw, err := os.ReadFile(fleetFile("claims"))
	if err != nil {
		t.Skip("make test-map writes the fleets")
	}
	attacks := []string{
		`</script><script>window.hacked = 1; alert(1)</script>`, `"><img src=x onerror="window.hacked=1">`, `<svg/onload=window.hacked=1>`,
		`javascript:window.hacked=1//`, `{{constructor.constructor('window.hacked=1')()}}`, `<!--<script>`,
	}
	var fleet map[string]any
	if err := json.Unmarshal(raw, &fleet); err != nil {
		t.Fatal(err)
	}
	host := fleet["hosts"].([]any)[0].(map[string]any)
	host["name"], host["os"].(map[string]any)["name"] = attacks[0], attacks[1]
	for i, vm := range host["vms"].([]any) {
		vm.(map[string]any)["name"] = attacks[i%len(attacks)]
	}
	for i, c := range host["claims"].([]any) {
		c.(map[string]any)["owner"] = attacks[i%len(attacks)]
	}
	host["gpus"].([]any)[0].(map[string]any)["model"] = attacks[2]
	host["unknown"] = []any{map[string]any{"part": "pools", "why": attacks[4]}}
	if raw, err = json.Marshal(fleet); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "hostile.json")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	b := open(t, start(t), draw(t, file), look{1280, "light"})
	b.set("owner", "="+attacks[0])
	b.set("vm", "<")
	if n := b.number(`window.hacked || 0`); n != 0 {
		t.Error("a name was executed")
	}
	if n := b.number(`document.querySelectorAll("img, svg, iframe, a[href^='javascript']").length + document.scripts.length - 2`); n != 0 {
		t.Errorf("names have made %d elements", n)
	}
	b.set("vm", "")
	b.set("owner", "")
	body := b.text("body")
	for _, attack := range attacks[:3] {
		if !strings.Contains(body, attack) {
			t.Errorf("the page does not show the name %q as it is", attack)
		}
	}
	b.judge()
}

// TestPrint prints all hosts, also those that were never on the screen, before and after.
func TestPrint(t *testing.T) {
	b := open(t, start(t), draw(t, large(t, 60)), look{1280, "light"})
	b.evaluate(`dispatchEvent(new Event("beforeprint"))`, nil)
	if n := b.number(`document.querySelectorAll(".gpu").length`); n != 60*8 {
		t.Errorf("%d GPUs are printed of %d", n, 60*8)
	}
}

// large writes a fleet of that many hosts with eight GPUs each.
func large(t *testing.T, hosts int) string {
	t.Helper()
	raw, err := os.ReadFile(fleetFile("claims"))
	if err != nil {
		t.Skip("make test-map writes the fleets")
	}
	var fleet struct {
		Format string           `json:"format"`
		Hosts  []map[string]any `json:"hosts"`
	}
	if err := json.Unmarshal(raw, &fleet); err != nil {
		t.Fatal(err)
	}
	one := fleet.Hosts[0]
	card := one["gpus"].([]any)[0].(map[string]any)
	fleet.Hosts = nil
	for i := range hosts {
		host := map[string]any{}
		for k, v := range one {
			host[k] = v
		}
		host["name"] = fmt.Sprintf("hv%04d", i+1)
		var gpus []any
		for n := range 8 {
			g := map[string]any{}
			for k, v := range card {
				g[k] = v
			}
			g["id"] = fmt.Sprintf("PCIROOT(%X)#PCI(0000)#PCI(0000)", 0x16+n)
			gpus = append(gpus, g)
		}
		host["gpus"] = gpus
		fleet.Hosts = append(fleet.Hosts, host)
	}
	if raw, err = json.Marshal(fleet); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "large.json")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestALargeFleet opens a thousand hosts with eight GPUs each, measures it, and scrolls to the last one.
func TestALargeFleet(t *testing.T) {
	const most, tries = 2 * time.Second, 3
	browser := start(t)
	file := draw(t, large(t, 1000))
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	// The machine may be busy with other things: the best of some tries counts.
	best := time.Hour
	var b *tab
	for range tries {
		if b = open(t, browser, file, look{1280, "light"}); b.opened < best {
			best = b.opened
		}
		if best < most {
			break
		}
	}
	if got := b.text("#count"); got != "8000 GPUs" {
		t.Errorf("the page says %q", got)
	}
	drawn := b.number(`document.querySelectorAll(".gpu").length`)
	if drawn == 0 || drawn > 200 {
		t.Errorf("%d GPUs are drawn at first", drawn)
	}
	began := time.Now()
	b.evaluate(`new Promise((done) => { document.querySelector(".host:last-of-type").scrollIntoView();
		const look = () => document.querySelector(".host:last-of-type .part") ? done(true) : requestAnimationFrame(look); look(); })`, nil)
	scrolled := time.Since(began)
	began = time.Now()
	b.set("vm", "lab-02")
	filtered := time.Since(began) - 200*time.Millisecond
	if got := b.text("#count"); got != "8000 GPUs" {
		t.Errorf("every GPU has the VM, and the page says %q", got)
	}
	var metrics []*performance.Metric
	b.run(call(performance.Enable, performance.EnableParams{}), chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		r, err := cdp.Call(ctx, target, performance.GetMetrics, cdp.Empty{})
		metrics = r.Metrics
		return err
	}))
	of := map[string]float64{}
	for _, m := range metrics {
		of[m.Name] = m.Value
	}
	const mib = 1 << 20
	t.Logf("1,000 hosts with 8 GPUs: %.1f MiB of page, open after %d ms (at most %d), at the last host after %d ms, filtered after %d ms, "+
		"%.0f MiB of heap, %.0f elements, %d GPUs drawn", float64(info.Size())/mib, best.Milliseconds(), most.Milliseconds(),
		scrolled.Milliseconds(), filtered.Milliseconds(), of["JSHeapUsedSize"]/mib, of["Nodes"], b.number(`document.querySelectorAll(".gpu").length`))
	if best > most {
		t.Errorf("the page is open after %s; it must be after %s", best, most)
	}
	if of["JSHeapUsedSize"] > 150*mib {
		t.Errorf("the page has %.0f MiB of heap", of["JSHeapUsedSize"]/mib)
	}
}
