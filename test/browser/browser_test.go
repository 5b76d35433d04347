// Package browser opens the page of gpu-agent map in Chromium. It is a module of its own, so that what drives the browser is
// not among what the product is made of; it knows the page alone, and the program that writes it.
package browser

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

var update = flag.Bool("update", false, "keep the pictures as they are now")

// browsers are the names that Chromium goes by.
var browsers = []string{"chromium", "chromium-browser", "google-chrome", "chrome"}

// start starts a browser, or skips the test where there is none.
func start(t *testing.T) context.Context {
	t.Helper()
	var program string
	for _, name := range browsers {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		t.Skip("there is no Chromium: apt-get install --no-install-recommends chromium")
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(program), chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.Flag("force-device-scale-factor", "1"), chromedp.Flag("font-render-hinting", "none"),
		chromedp.Flag("disable-lcd-text", true), chromedp.Flag("force-color-profile", "srgb"), chromedp.WSURLReadTimeout(time.Minute))
	allocator, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	browser, stop := chromedp.NewContext(allocator)
	t.Cleanup(stop)
	if err := chromedp.Do(browser); err != nil {
		t.Fatal(err)
	}
	return browser
}

// agent is the program that draws.
func agent(t *testing.T, args ...string) []byte {
	t.Helper()
	program := os.Getenv("GPU_TEST_BROWSER_AGENT")
	if program == "" {
		t.Skip("make test-map builds the agent and says where it is")
	}
	out, err := exec.CommandContext(t.Context(), program, args...).Output()
	if err != nil {
		t.Fatalf("gpu-agent %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// fleetFile is a fleet, or a plan report, of those that the documentation draws.
func fleetFile(name string) string {
	return filepath.Join(os.Getenv("GPU_TEST_BROWSER_FLEETS"), name+".json")
}

// draw writes the page of a fleet to a file.
func draw(t *testing.T, source string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(file, agent(t, "map", source, "-o", "html"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// tab is one page that is open, and all that it complained of and asked for.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	said     []string
	requests []string
	opened   time.Duration
}

// look is how a page is looked at.
type look struct {
	width int64
	theme string
}

// open opens a page and waits until it says that it is ready.
func open(t *testing.T, browser context.Context, file string, l look) *tab {
	t.Helper()
	ctx, stop := chromedp.NewContext(browser)
	t.Cleanup(stop)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx}
	address := (&url.URL{Scheme: "file", Path: file}).String()
	listening := chromedp.Listen(ctx, func(event any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventConsoleAPICalled:
			b.said = append(b.said, fmt.Sprintf("console: %s %v", e.Type, e.Args))
		case *runtime.EventExceptionThrown:
			b.said = append(b.said, fmt.Sprintf("exception: %+v", e.ExceptionDetails))
		case *log.EventEntryAdded:
			b.said = append(b.said, fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
		case *page.EventJavascriptDialogOpening:
			b.said = append(b.said, "dialog: "+e.Message)
			go func() {
				_ = chromedp.Do(ctx, call(page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: true}))
			}()
		case *network.EventRequestWillBeSent:
			if e.Request.URL != address && !strings.HasPrefix(e.Request.URL, "data:") {
				b.requests = append(b.requests, e.Request.URL)
			}
		}
	})
	if listening != nil {
		t.Fatal(listening)
	}
	b.run(call(log.Enable, cdp.Empty{}), call(network.Enable, network.EnableParams{}), chromedp.EmulateViewport(l.width, 900),
		call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: l.theme}},
		}))
	began := time.Now()
	b.run(chromedp.Navigate(address), chromedp.WaitReady(ready))
	b.evaluate(`new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))`, nil)
	b.opened = time.Since(began)
	t.Cleanup(b.quiet)
	return b
}

// ready is the page once its script has ended.
const ready = `html[data-ready="yes"]`

// call is a command of the browser as an action.
func call[P, R any](command cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, command, params)
		return err
	})
}

func (b *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// evaluate works an expression out in the page, and waits for what it promises.
func (b *tab) evaluate(expression string, into any) {
	b.t.Helper()
	raw, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](`(async () => JSON.stringify((await (`+expression+`)) ?? null))()`,
		func(p *runtime.EvaluateParams) { p.AwaitPromise = new(true) }))
	if err != nil {
		b.t.Fatal(err)
	}
	if into == nil {
		return
	}
	if err := json.Unmarshal([]byte(raw), into); err != nil {
		b.t.Fatalf("%s is %s: %v", expression, raw, err)
	}
}

// text is the text of the first element that a selector finds.
func (b *tab) text(selector string) string {
	b.t.Helper()
	var out string
	b.evaluate(fmt.Sprintf(`document.querySelector(%q).textContent`, selector), &out)
	return out
}

// number is what an expression counts.
func (b *tab) number(expression string) int {
	b.t.Helper()
	var out int
	b.evaluate(expression, &out)
	return out
}

// set gives a control a value, as a person does.
func (b *tab) set(id, value string) {
	b.t.Helper()
	b.evaluate(fmt.Sprintf(`(() => {
		const e = document.getElementById(%q);
		if (e.type === "checkbox") e.checked = %q === "on"; else e.value = %q;
		for (const name of ["input", "change"]) e.dispatchEvent(new Event(name, { bubbles: true }));
		return new Promise((done) => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(() => done(true))), 200));
	})()`, id, value, value), nil)
}

// quiet asserts that the page has complained of nothing and asked nobody.
func (b *tab) quiet() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.said) > 0 {
		b.t.Errorf("the page complains:\n%s", strings.Join(b.said, "\n"))
	}
	if len(b.requests) > 0 {
		b.t.Errorf("the page asks for %q", b.requests)
	}
}

// violation is something that axe-core finds.
type violation struct {
	ID, Impact, Help string
	Nodes            []struct {
		HTML           string
		FailureSummary string
	}
}

// judge asks axe-core, and asserts that it finds nothing serious.
func (b *tab) judge() {
	b.t.Helper()
	axe, err := os.ReadFile(filepath.Join("node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		b.t.Fatalf("axe-core is not there: npm ci --prefix test/browser (%v)", err)
	}
	if _, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](string(axe)+"; true")); err != nil {
		b.t.Fatal(err)
	}
	var raw string
	b.evaluate(`axe.run().then((r) => JSON.stringify({ passes: r.passes.length, violations: r.violations }))`, &raw)
	var found struct {
		Passes     int
		Violations []violation
	}
	if err := json.Unmarshal([]byte(raw), &found); err != nil {
		b.t.Fatal(err)
	}
	if found.Passes < 10 {
		b.t.Errorf("axe-core has judged only %d rules", found.Passes)
	}
	for _, v := range found.Violations {
		if v.Impact == "serious" || v.Impact == "critical" {
			b.t.Errorf("axe-core: %s (%s): %s: %+v", v.ID, v.Impact, v.Help, v.Nodes)
		} else {
			b.t.Logf("axe-core: %s (%s): %s", v.ID, v.Impact, v.Help)
		}
	}
}
