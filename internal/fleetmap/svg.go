package fleetmap

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// The sizes of an SVG picture, in its own units.
const (
	svgWidth   = 960
	svgMargin  = 16
	svgBar     = 26
	svgLetter  = 6.8 // of the text in bars, on average
	svgLine    = 18
	svgPalette = 8
)

// svgStyle has the colours for a light and for a dark surrounding. A picture in a page goes by the reader's system.
const svgStyle = `text{font:12px system-ui,sans-serif;fill:#1b1f24}.h{font-weight:600;font-size:14px}.s{fill:#57606a}.e{font-size:11px}` +
	`.bg{fill:#fff}.part{stroke:#57606a;stroke-width:1}.none{fill:#d0d7de}.free{fill:#fff;stroke-dasharray:3 2}.lost{fill:url(#lost)}` +
	`.unknown{fill:#fff6d6}.closed{fill:#eaeef2}.tick{stroke:#8c959f;stroke-width:1}.ink{stroke:#1b1f24;fill:none}.dot{fill:#1b1f24}` +
	`.meter{fill:#eaeef2;stroke:#57606a}.used{fill:#0969da}` +
	`.c0{fill:#9ecbff}.c1{fill:#ffd08a}.c2{fill:#a8e0b0}.c3{fill:#e3b8f5}` +
	`.c4{fill:#f7b2b2}.c5{fill:#9fe3e3}.c6{fill:#f2e28a}.c7{fill:#d9c2ad}` +
	`@media (prefers-color-scheme:dark){text{fill:#f0f3f6}.s{fill:#b7bdc8}.bg{fill:#0d1117}.part{stroke:#9ea7b3}.none{fill:#3d444d}` +
	`.free{fill:#0d1117}.unknown{fill:#4a3b00}.closed{fill:#21262d}.ink{stroke:#f0f3f6}.dot{fill:#f0f3f6}.meter{fill:#21262d;stroke:#9ea7b3}` +
	`.used{fill:#4493f8}` +
	`.c0{fill:#1f4f8a}.c1{fill:#7a4a00}.c2{fill:#1d5c2c}.c3{fill:#5c2f7a}.c4{fill:#7d2a2a}.c5{fill:#0f5c5c}.c6{fill:#5e5200}.c7{fill:#5a4230}}`

// svgPatterns tell owners apart without colour.
var svgPatterns = [svgPalette]string{
	`<path class="ink" d="M0 8L8 0"/>`, `<circle class="dot" cx="4" cy="4" r="1.2"/>`, `<path class="ink" d="M0 4H8"/>`,
	`<path class="ink" d="M0 0L8 8"/>`, `<path class="ink" d="M4 0V8"/>`, `<path class="ink" d="M0 4H8M4 0V8"/>`,
	`<path class="ink" d="M0 0L8 8M0 8L8 0"/>`, `<path class="ink" d="M0 6L4 2L8 6"/>`,
}

// drawing is an SVG picture that grows downwards.
type drawing struct {
	strings.Builder
	owners []string
	y      int
}

// SVG writes a picture that stands alone.
func SVG(w io.Writer, p Picture) error {
	d := &drawing{owners: p.owners(), y: svgMargin}
	d.text("h", p.Title)
	d.text("s", p.summary())
	for _, note := range p.Notes {
		d.text("s", note)
	}
	var same []string
	for _, h := range p.rows() {
		if p.After != nil && !h.changed() {
			same = append(same, h.is().Name)
			continue
		}
		d.host(h, p.After != nil)
	}
	if len(same) > 0 {
		d.text("s", "Nothing changes on "+words.JoinAll(same)+".")
	}
	d.pools(p)
	d.turns(p.Turns)
	d.legend()
	var head strings.Builder
	fmt.Fprintf(&head, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="t">`,
		svgWidth, d.y+svgMargin, svgWidth, d.y+svgMargin)
	fmt.Fprintf(&head, "\n<title id=\"t\">%s: %s</title>\n<style>%s</style>\n<defs>", plain(p.Title), plain(p.summary()), svgStyle)
	for i, pattern := range svgPatterns {
		fmt.Fprintf(&head, `<pattern id="p%d" width="8" height="8" patternUnits="userSpaceOnUse"><g opacity=".28">%s</g></pattern>`, i, pattern)
	}
	head.WriteString(`<pattern id="lost" width="6" height="6" patternUnits="userSpaceOnUse">` +
		`<path class="ink" opacity=".5" d="M0 0L6 6M0 6L6 0"/></pattern>`)
	fmt.Fprintf(&head, "</defs>\n<rect class=\"bg\" width=\"%d\" height=\"%d\"/>\n", svgWidth, d.y+svgMargin)
	_, err := io.WriteString(w, head.String()+d.String()+"</svg>\n")
	return err
}

// plain is a text of somebody else's in markup.
func plain(s string) string { return html.EscapeString(gpu.Printable(s)) }

// clip is as much of a text as there is room for.
func clip(s string, room float64) string {
	runes := []rune(gpu.Printable(s))
	if most := int(room / svgLetter); len(runes) > most {
		if most < 2 {
			return ""
		}
		return string(runes[:most-1]) + "…"
	}
	return string(runes)
}

// write puts a line of text somewhere, as much of it as there is room for.
func (d *drawing) write(class string, x, y int, s string, room int) {
	if s = clip(s, float64(room)); s != "" {
		fmt.Fprintf(d, "<text class=\"%s\" x=\"%d\" y=\"%d\">%s</text>\n", class, x, y, html.EscapeString(s))
	}
}

// text writes lines, which are wrapped where they are too long.
func (d *drawing) text(class, s string) {
	line := ""
	const most = (svgWidth - 2*svgMargin) * 10 / 64
	flush := func() {
		d.y += svgLine
		d.write(class, svgMargin, d.y-4, line, svgWidth)
		line = ""
	}
	for word := range strings.FieldsSeq(s) {
		if line != "" && len([]rune(line+" "+word)) > most {
			flush()
		}
		line = strings.TrimSpace(line + " " + clip(word, most*svgLetter))
	}
	if line != "" {
		flush()
	}
}

func (d *drawing) host(h hostRows, both bool) {
	is := h.is()
	d.y += 10
	where := strings.TrimSpace(is.OS)
	if is.Cluster != "" {
		where += ", node of " + is.Cluster + ", " + is.State
	}
	d.y += svgLine
	fmt.Fprintf(d, "<text x=\"%d\" y=\"%d\"><tspan class=\"h\">%s</tspan><tspan class=\"s\" dx=\"8\">%s</tspan></text>\n",
		svgMargin, d.y-4, plain(clip(is.Name, 400)), plain(clip(where, 400)))
	for _, note := range is.Notes {
		d.text("s", note)
	}
	for _, r := range h.gpus {
		d.row(r, both)
	}
	waiting := is.Waiting
	if both && h.then != nil {
		waiting = h.then.Waiting
	}
	if len(waiting) > 0 {
		d.text("s", "Waiting: "+strings.Join(words.Each(waiting, func(w Holder) string { return w.Name }), ", ")+".")
	}
}

// row is one GPU, before beside after.
func (d *drawing) row(r row, both bool) {
	g := r.is()
	about := func(g *GPU) string {
		return fmt.Sprintf("%d · %s · %s%s%s", g.Number, g.Model, g.Layout, statusText(g), placeText(g))
	}
	const whole = svgWidth - 2*svgMargin
	if !both || !r.changed() {
		d.text("s", about(g))
		d.bar(g, svgMargin, whole)
		d.y += svgBar + 8
		return
	}
	const half = (whole - 24) / 2
	d.y += svgLine
	for i, at := range []*GPU{r.now, r.then} {
		x, title := svgMargin+i*(half+24), []string{"now", "after"}[i]
		if at == nil {
			d.write("s", x, d.y-4, title+": not there", half)
			continue
		}
		d.write("s", x, d.y-4, fmt.Sprintf("%s: %d · %s · %s", title, at.Number, at.Model, at.Layout), half)
		d.bar(at, x, half)
	}
	d.y += svgBar + 8
}

// bar draws the parts of a GPU to scale.
func (d *drawing) bar(g *GPU, x, width int) { d.parts(g, g.Bar, x, d.y+2, width, svgBar) }

func (d *drawing) parts(g *GPU, b Bar, x, y, width, height int) {
	for i := range b.Parts {
		p := &b.Parts[i]
		from, to := scaled(p.Start, b.Units, width), scaled(p.Start+p.Size, b.Units, width)
		if to <= from {
			continue
		}
		fmt.Fprintf(d, `<g><title>%s</title>`, plain(p.title(g)))
		class, pattern := d.class(p)
		fmt.Fprintf(d, `<rect class="part %s" x="%d" y="%d" width="%d" height="%d"/>`, class, x+from, y, to-from, height)
		if pattern >= 0 {
			fmt.Fprintf(d, `<rect x="%d" y="%d" width="%d" height="%d" fill="url(#p%d)"/>`, x+from, y, to-from, height, pattern)
		}
		if p.Kind == Free && len(g.Counts) > 0 && p.Size <= int64(to-from)/3 {
			for n := int64(1); n < p.Size; n++ {
				at := x + scaled(p.Start+n, b.Units, width)
				fmt.Fprintf(d, `<path class="tick" d="M%d %dV%d"/>`, at, y, y+height)
			}
		}
		if p.Inside != nil {
			d.parts(g, *p.Inside, x+from+2, y+height/2, to-from-4, height/2-2)
			d.write("e", x+from+4, y+11, p.Name, to-from-8)
		} else {
			d.write("e", x+from+4, y+height/2+4, p.clipped(float64(to-from-8)), svgWidth)
		}
		d.WriteString("</g>\n")
	}
}

// blankNames are what stands in parts that nobody holds.
var blankNames = map[Kind]string{Free: "free", Lost: "no use", Unknown: "unknown", Closed: "not assignable"}

// clipped is as much of the label of a part as there is room for. Names of VMs differ at their end.
func (p *Part) clipped(room float64) string {
	label := cmp.Or(p.label(), blankNames[p.Kind])
	runes := []rune(label)
	if most := int(room / svgLetter); p.Kind == Partition && most > 1 && len(runes) > most {
		return "…" + string(runes[len(runes)-most+1:])
	}
	return clip(label, room)
}

// class is how a part is filled, and by which pattern its owner is known, -1 for none.
func (d *drawing) class(p *Part) (string, int) {
	if len(p.everyone()) == 0 {
		if blank := blankNames[p.Kind]; blank != "" {
			return string(p.Kind), -1
		}
		return string(Free), -1
	}
	if at := slices.Index(d.owners, p.owner()); at >= 0 {
		return fmt.Sprintf("c%d", at%svgPalette), (at + at/svgPalette) % svgPalette
	}
	return "none", -1
}

// title says all of a part in a sentence.
func (p *Part) title(g *GPU) string {
	what := string(p.Kind)
	if p.Name != "" {
		what += " " + p.Name
	}
	if p.Kind == Free && p.Size > 1 && len(g.Counts) > 0 {
		what = fmt.Sprintf("%d free partitions", p.Size)
	}
	if p.Memory > 0 {
		what += ", " + p.Memory.String()
	}
	if len(p.Holders) > 0 {
		what += ": " + strings.Join(words.Each(p.Holders, holderText), ", ")
	}
	return what + "; " + g.Model + " " + g.ID
}

// pools draws pools, and quotas of labels, as bars.
func (d *drawing) pools(p Picture) {
	m := p.Now
	if p.After != nil {
		m = *p.After
	}
	if len(m.Pools) == 0 {
		return
	}
	d.y += 10
	d.text("h", map[bool]string{true: "Pools after the plan", false: "Pools"}[p.After != nil])
	for _, pool := range m.Pools {
		about := fmt.Sprintf("%d of %s taken", pool.Taken, words.Plural(pool.GPUs, "GPU"))
		if pool.Owner != "" {
			about += ", of " + pool.Owner
		}
		d.meter(pool.Name, float64(pool.Taken), float64(pool.GPUs), about)
		for _, q := range pool.Quotas {
			d.meter("· "+q.Label, q.Used, q.Most, q.Text)
		}
	}
}

func (d *drawing) meter(name string, used, most float64, about string) {
	const x, width = 200, 360
	n := 0
	if most > 0 {
		n = int(min(used/most, 1) * width)
	}
	d.y += svgLine + 2
	d.write("", svgMargin, d.y-4, name, x-svgMargin-8)
	fmt.Fprintf(d, "<rect class=\"meter\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"12\"/>", x, d.y-14, width)
	fmt.Fprintf(d, "<rect class=\"used\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"12\"/>\n", x, d.y-14, n)
	d.write("s", x+width+10, d.y-4, about, svgWidth-svgMargin-x-width-10)
}

// turns draws who is off in which turn, a column for each turn.
func (d *drawing) turns(turns []Turn) {
	if len(turns) == 0 {
		return
	}
	d.y += 10
	d.text("h", "Who is off when")
	const x = 200
	width := (svgWidth - svgMargin - x) / len(turns)
	d.y += svgLine
	for i, turn := range turns {
		d.write("s", x+i*width, d.y-4, fmt.Sprintf("turn %d", turn.Turn), width)
	}
	top := d.y
	for i, turn := range turns {
		for _, e := range turn.Events {
			class := "closed"
			if e.Off {
				class = "unknown"
			}
			where := e.Who + " on " + e.Host
			d.write("", svgMargin, d.y+13, where, x-svgMargin-8)
			fmt.Fprintf(d, "<g><title>%s</title><rect class=\"part %s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"16\"/></g>\n",
				plain(where+" "+e.What+". "+e.By), class, x+i*width, d.y+2, max(width-4, 1))
			what := e.What
			if e.Off && what != clip(what, float64(width-12)) {
				what = "off"
			}
			d.write("e", x+i*width+4, d.y+14, what, width-12)
			d.y += svgLine + 2
		}
	}
	for i := range turns {
		fmt.Fprintf(d, "<path class=\"tick\" d=\"M%d %dV%d\"/>\n", x+i*width-2, top, d.y)
	}
}

// legend names the owners, and what the other parts are.
func (d *drawing) legend() {
	d.y += 14
	x := svgMargin
	add := func(class string, pattern int, name string) {
		room := 34 + int(float64(len([]rune(name)))*svgLetter) + 12
		if x+room > svgWidth-svgMargin && x > svgMargin {
			x, d.y = svgMargin, d.y+svgLine
		}
		fmt.Fprintf(d, `<rect class="part %s" x="%d" y="%d" width="24" height="12"/>`, class, x, d.y)
		if pattern >= 0 {
			fmt.Fprintf(d, `<rect x="%d" y="%d" width="24" height="12" fill="url(#p%d)"/>`, x, d.y, pattern)
		}
		d.write("s", x+30, d.y+10, name, svgWidth)
		x += room
	}
	for i, owner := range d.owners {
		add(fmt.Sprintf("c%d", i%svgPalette), (i+i/svgPalette)%svgPalette, clip(owner, 300))
	}
	add("none", -1, "held, no owner")
	add("free", -1, "free")
	add("lost", -1, "nothing fits")
	d.y += svgLine
}
