package browser

import (
	"bytes"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
)

// The pictures are compared in blocks, by their mean colours: machines draw the edges of letters differently, and what a person
// would notice (a colour, a pattern, a row that moves) changes whole blocks.
const (
	block     = 8
	differs   = 20    // of 255, in one channel
	tolerated = 0.015 // of all blocks
)

// font is the one that Debian's Chromium brings, so that lines break at the same places on every machine.
const font = `(() => { const s = new CSSStyleSheet(); s.replaceSync('* { font-family: "DejaVu Sans", sans-serif !important }');
	document.adoptedStyleSheets = [s]; return document.fonts.check('12px "DejaVu Sans"'); })()`

// compare takes a picture of a page and compares it with the one that is kept.
func compare(b *tab, name string) {
	b.t.Helper()
	var there bool
	b.evaluate(font, &there)
	if !there {
		b.t.Log("the font DejaVu Sans is not installed: the picture is not compared")
		return
	}
	now := picture(b)
	file := filepath.Join("testdata", name+".png")
	if *update {
		var out bytes.Buffer
		if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, now); err != nil {
			b.t.Fatal(err)
		}
		if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
			b.t.Fatal(err)
		}
		return
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		b.t.Fatalf("%v; make test-map UPDATE=1 keeps the pictures", err)
	}
	kept, err := png.Decode(bytes.NewReader(raw))
	if err != nil {
		b.t.Fatal(err)
	}
	if apart := difference(kept, now); apart > tolerated {
		seen := filepath.Join(os.TempDir(), name+".png")
		var out bytes.Buffer
		if err := png.Encode(&out, now); err == nil {
			_ = os.WriteFile(seen, out.Bytes(), 0o600)
		}
		b.t.Errorf("the page does not look as in %s: %.1f %% of it differ, and %.1f %% may; it is in %s. "+
			"If that is meant, make test-map UPDATE=1 keeps the pictures", file, apart*100, tolerated*100, seen)
	}
}

// picture is what is on the screen.
func picture(b *tab) image.Image {
	b.t.Helper()
	raw, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	out, err := png.Decode(bytes.NewReader(raw))
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

// difference is how much of two pictures differs: 1 for all of it.
func difference(a, b image.Image) float64 {
	if a.Bounds() != b.Bounds() {
		return 1
	}
	all, apart := 0, 0
	for y := a.Bounds().Min.Y; y < a.Bounds().Max.Y; y += block {
		for x := a.Bounds().Min.X; x < a.Bounds().Max.X; x += block {
			all++
			for channel, mean := range means(a, x, y) {
				if d := mean - means(b, x, y)[channel]; d > differs || d < -differs {
					apart++
					break
				}
			}
		}
	}
	return float64(apart) / float64(all)
}

func means(of image.Image, x, y int) (out [3]int) {
	n := 0
	for v := y; v < min(y+block, of.Bounds().Max.Y); v++ {
		for u := x; u < min(x+block, of.Bounds().Max.X); u++ {
			r, g, b, _ := of.At(u, v).RGBA()
			out[0], out[1], out[2], n = out[0]+int(r>>8), out[1]+int(g>>8), out[2]+int(b>>8), n+1
		}
	}
	for i := range out {
		out[i] /= n
	}
	return out
}

// TestPicturesCanDiffer shows that the comparison sees what a person would: another colour of one owner, and a row more.
func TestPicturesCanDiffer(t *testing.T) {
	b := open(t, start(t), draw(t, fleetFile("vdi-cluster")), look{1280, "light"})
	before := picture(b)
	if same := difference(before, picture(b)); same != 0 {
		t.Errorf("the same page differs in %.2f %%", same*100)
	}
	for what, change := range map[string]string{
		"an owner's colour": `document.documentElement.style.setProperty("--c0", "#f7b2b2")`,
		"a line more":       `document.querySelector("h1").append(document.createElement("br"), "more")`,
	} {
		b.evaluate(change, nil)
		if apart := difference(before, picture(b)); apart <= tolerated {
			t.Errorf("%s: only %.2f %% differ, and %.2f %% are tolerated", what, apart*100, tolerated*100)
		}
		b.run(chromedp.Reload(), chromedp.WaitReady(ready))
	}
}
