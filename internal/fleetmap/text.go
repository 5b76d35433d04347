package fleetmap

import (
	"cmp"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// TextOptions say how a picture is written to a terminal.
type TextOptions struct {
	// Width is how many columns there are; at most widest are used.
	Width int
	// Colours reports whether escape sequences may be written.
	Colours bool
}

const (
	widest   = 100
	thinnest = 40
	indent   = "     "
)

// texter writes lines of at most width columns.
type texter struct {
	out     strings.Builder
	width   int
	colours bool
	owners  []string
}

// Text writes a picture for a terminal.
func Text(w io.Writer, p Picture, o TextOptions) error {
	t := &texter{width: max(min(o.Width, widest), thinnest), colours: o.Colours, owners: p.owners()}
	t.wrap("", p.Title+": "+p.summary())
	for _, note := range p.Notes {
		t.wrap("", note)
	}
	same := []string{}
	for _, h := range p.rows() {
		if p.After != nil && !h.changed() {
			same = append(same, h.is().Name)
			continue
		}
		t.host(h, p.After != nil)
	}
	if len(same) > 0 {
		t.line("")
		t.wrap("  ", "Nothing changes on "+words.JoinAll(same)+".")
	}
	t.pools(p)
	t.turns(p.Turns)
	_, err := io.WriteString(w, t.out.String())
	return err
}

// summary is a picture in a sentence.
func (p Picture) summary() string {
	hosts, gpus, parts, held, free := len(p.Now.Hosts), 0, 0, 0, 0
	for i := range p.Now.Hosts {
		for j := range p.Now.Hosts[i].GPUs {
			g := &p.Now.Hosts[i].GPUs[j]
			gpus++
			for k := range g.Parts {
				switch q := &g.Parts[k]; {
				case q.Kind == Partition || q.Kind == Instance || q.Kind == VGPU || q.Kind == Share || q.Kind == Whole:
					parts++
					if len(q.Holders) > 0 || q.Inside != nil {
						held++
					} else {
						free++
					}
				case q.Kind == Free && len(g.Counts) > 0:
					parts, free = parts+int(q.Size), free+int(q.Size)
				case q.Kind == Free:
					parts, free = parts+1, free+1
				}
			}
		}
	}
	return fmt.Sprintf("%s, %s, %s: %d held, %d free",
		words.Plural(hosts, "host"), words.Plural(gpus, "GPU"), words.Plural(parts, "part"), held, free)
}

func (t *texter) line(s string) { t.out.WriteString(strings.TrimRight(s, " ") + "\n") }

// wrap writes a sentence in lines that begin with a prefix.
func (t *texter) wrap(prefix, sentence string) { t.wrapIn("0", prefix, sentence) }

// wrapIn is wrap in a colour.
func (t *texter) wrapIn(code, prefix, sentence string) {
	line := prefix
	end := func(s string) {
		t.line(t.paint(code, strings.TrimRight(s, " ")))
		prefix = strings.Repeat(" ", len(prefix))
	}
	for word := range strings.FieldsSeq(gpu.Printable(sentence)) {
		for wide(prefix+word) > t.width { // an id that is longer than a line
			first, rest := cut(word, t.width-len(prefix))
			if line != prefix {
				end(line)
			}
			end(prefix + first)
			line, word = prefix, rest
		}
		if line != prefix && wide(line+word) > t.width {
			end(line)
			line = prefix
		}
		line += word + " "
	}
	if line != prefix {
		end(line)
	}
}

func wide(s string) int { return text.StringWidthWithoutEscSequences(strings.TrimRight(s, " ")) }

// cut is what of a text fits into some columns, and the rest.
func cut(s string, width int) (fits, rest string) {
	n := 0
	for i, r := range s {
		if n += max(text.RuneWidth(r), 0); n > width {
			return s[:i], s[i:]
		}
	}
	return s, ""
}

// fill is a text in exactly so many columns.
func fill(s string, width int, with string) string {
	s, rest := cut(s, width)
	if rest != "" && width > 1 {
		s, _ = cut(s, width-1)
		s += "~"
	}
	return s + strings.Repeat(with, max(width-text.StringWidthWithoutEscSequences(s), 0))
}

func (t *texter) host(h hostRows, both bool) {
	is := h.is()
	where := is.OS
	if is.Cluster != "" {
		where += ", node of " + is.Cluster + cmp.Or(", "+is.State, "")
	}
	t.line("")
	t.wrapIn("1", "", is.Name+": "+where)
	for _, note := range is.Notes {
		t.wrap("  ! ", note)
	}
	for _, r := range h.gpus {
		t.gpu(r, both)
	}
	for _, at := range []struct {
		of    *Host
		title string
	}{{h.now, "Waiting"}, {h.then, "Waiting after"}} {
		if at.of == nil || len(at.of.Waiting) == 0 || at.title == "Waiting after" && !both {
			continue
		}
		t.wrap("  ", at.title+": "+strings.Join(words.Each(at.of.Waiting, holderText), "; ")+".")
	}
	if n := len(is.Others); n > 0 {
		t.wrap("  ", "Without a GPU: "+strings.Join(is.Others, ", ")+".")
	}
}

func (t *texter) gpu(r row, both bool) {
	g := r.is()
	t.wrap(fmt.Sprintf("  %-3d", g.Number), g.Model+", "+g.Layout+statusText(g)+placeText(g))
	t.wrapIn("2", indent, g.ID)
	for _, note := range g.Notes {
		t.wrap(indent+"! ", note)
	}
	if !both || !r.changed() {
		t.bar("", g)
		t.holders("", g)
	} else {
		for _, at := range []struct {
			name string
			of   *GPU
		}{{"now  ", r.now}, {"after", r.then}} {
			if at.of == nil {
				t.line(indent + at.name + " not there")
				continue
			}
			t.bar(at.name+" ", at.of)
			if at.of == r.then && r.now != nil && r.then.Layout != r.now.Layout {
				t.wrap(indent+"      ", r.then.Layout)
			}
			t.holders("      ", at.of)
		}
	}
	if len(g.Counts) > 0 && !both {
		t.wrap(indent, "Counts: "+strings.Join(words.Each(g.Counts, Count.String), ", ")+"."+mediaText(g))
	}
}

// mediaText is what of the media engines is free.
func mediaText(g *GPU) string {
	var out string
	if g.Encode != "" {
		out += " Encode " + g.Encode + "."
	}
	if g.Decode != "" {
		out += " Decode " + g.Decode + "."
	}
	return out
}

// String is "4 (3.7 GiB each, now)".
func (c Count) String() string {
	var about []string
	if c.Memory > 0 {
		about = append(about, c.Memory.String()+" each")
	}
	if c.Now {
		about = append(about, "now")
	}
	if len(about) == 0 {
		return fmt.Sprint(c.Partitions)
	}
	return fmt.Sprintf("%d (%s)", c.Partitions, strings.Join(about, ", "))
}

// statusText is a GPU's status with its reason.
func statusText(g *GPU) string {
	switch {
	case g.Status == "" && g.Reason == "":
		return ""
	case g.Reason == "":
		return "; " + g.Status
	}
	return "; " + cmp.Or(g.Status, "not usable") + ": " + g.Reason
}

// placeText is the pool and the config that a GPU is in, and whose they are.
func placeText(g *GPU) string {
	var out string
	if g.Pool != "" {
		out += "; pool " + g.Pool
	}
	if g.Config != "" {
		out += "; config " + g.Config
	}
	if g.Owner != "" {
		out += " of " + g.Owner
	}
	return out
}

// scaled is where a unit of a bar lies in one of another length, exactly.
func scaled(at, units int64, width int) int {
	hi, lo := bits.Mul64(uint64(max(at, 0)), uint64(width)) //nolint:gosec // neither is negative
	if units <= 0 || hi >= uint64(units) {
		return width
	}
	n, _ := bits.Div64(hi, lo, uint64(units))
	return int(n) //nolint:gosec // at most width
}

// bar draws one bar to scale.
func (t *texter) bar(name string, g *GPU) {
	width := t.width - len(indent) - len(name) - 1
	var b strings.Builder
	for i := range g.Parts {
		p := &g.Parts[i]
		from, to := scaled(p.Start, g.Units, width), scaled(p.Start+p.Size, g.Units, width)
		b.WriteString(t.part(p, to-from))
	}
	t.line(indent + name + b.String() + "|")
}

// ending is as much of a name as there is room for, from its end: names of VMs differ there.
func ending(name string, width int) string {
	if wide(name) <= width || width < 2 {
		return name
	}
	runes := []rune(name)
	for len(runes) > 0 && wide(string(runes)) > width-1 {
		runes = runes[1:]
	}
	return "~" + string(runes)
}

// blanks are what parts that nobody holds are drawn with.
var blanks = map[Kind]string{Free: ".", Lost: "x", Unknown: "?", Closed: "#"}

// part draws one part in so many columns, the first of which is its left edge.
func (t *texter) part(p *Part, width int) string {
	if width <= 0 {
		return ""
	}
	blank := blanks[p.Kind]
	if blank == "" || len(p.Holders) > 0 {
		label := gpu.Printable(p.label())
		if p.Kind == Partition {
			label = ending(label, width-1)
		}
		colour := "0"
		if at := slices.Index(t.owners, p.owner()); at >= 0 {
			colour = []string{"36", "33", "35", "32", "34", "31"}[at%6]
		}
		return "|" + t.paint(colour, fill(label, width-1, " "))
	}
	var b strings.Builder
	last := -1
	for c := range width {
		if unit := scaled(int64(c), int64(width), int(min(p.Size, int64(width)))); unit != last && p.Size <= int64(width)/2 || c == 0 {
			b.WriteString("|")
			last = unit
			continue
		}
		b.WriteString(blank)
	}
	return t.paint("2", b.String())
}

// label is what stands in a part.
func (p *Part) label() string {
	names := words.Each(p.everyone(), func(who Holder) string { return who.Name })
	out := strings.Join(slices.Compact(names), ", ")
	if p.Kind == Instance || p.Kind == VGPU {
		profile, _, _ := strings.Cut(p.Name, "@")
		out = strings.TrimSpace(profile + " " + out)
	}
	return out
}

// holders says who has what.
func (t *texter) holders(prefix string, g *GPU) {
	var held []string
	var walk func(Bar, string)
	walk = func(b Bar, in string) {
		for i := range b.Parts {
			p := &b.Parts[i]
			name := p.Name
			if p.Kind == Share || p.Kind == Whole || p.Kind == Free {
				name = ""
			}
			if p.Inside != nil {
				walk(*p.Inside, in+name+" ")
				if len(p.Holders) == 0 {
					continue
				}
			}
			what := strings.TrimSpace(in + name)
			if len(p.Holders) > 0 {
				held = append(held, strings.TrimSpace(what+" "+strings.Join(words.Each(p.Holders, holderText), ", ")))
			} else if p.Kind == Instance || p.Kind == VGPU {
				held = append(held, what+" free")
			}
		}
	}
	walk(g.Bar, "")
	for _, who := range g.Beside {
		held = append(held, holderText(who))
	}
	free := int64(0)
	for i := range g.Parts {
		if p := &g.Parts[i]; p.Kind == Free && len(p.Holders) == 0 && len(g.Counts) > 0 {
			free += p.Size
		}
	}
	if free > 0 {
		held = append(held, fmt.Sprintf("%d free", free))
	}
	if len(held) > 0 {
		t.wrap(indent+prefix, strings.Join(held, "; "))
	}
}

// holderText is "avd-01 (VM, running, vdi-prod)".
func holderText(who Holder) string {
	about := []string{string(who.Kind)}
	if who.Kind == ByProcess && who.ID != "" {
		about[0] += " " + who.ID
	}
	for _, more := range []string{who.State, who.Owner, who.Note} {
		if more != "" {
			about = append(about, more)
		}
	}
	return who.Name + " (" + strings.Join(about, ", ") + ")"
}

func (t *texter) paint(code, s string) string {
	if !t.colours || code == "0" || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// pools draws pools and quotas as bars.
func (t *texter) pools(p Picture) {
	m := p.Now
	if p.After != nil {
		m = *p.After
	}
	if len(m.Pools) == 0 {
		return
	}
	t.line("")
	t.line(map[bool]string{true: "Pools after the plan", false: "Pools"}[p.After != nil])
	const bar = 30
	for _, pool := range m.Pools {
		line := fmt.Sprintf("%d of %s taken", pool.Taken, words.Plural(pool.GPUs, "GPU"))
		if pool.Owner != "" {
			line += ", of " + pool.Owner
		}
		t.meter(pool.Name, float64(pool.Taken), float64(pool.GPUs), bar, line)
		for _, q := range pool.Quotas {
			t.meter("  "+q.Label, q.Used, q.Most, bar, q.Text)
		}
	}
}

func (t *texter) meter(name string, used, most float64, width int, about string) {
	n := width
	if most > 0 {
		n = min(int(used/most*float64(width)), width)
	}
	line := "  " + fill(gpu.Printable(name), 24, " ") + " [" + strings.Repeat("=", n) + strings.Repeat(".", width-n) + "] "
	if wide(line+about) <= t.width {
		t.line(line + gpu.Printable(about))
		return
	}
	t.wrap("  ", name)
	t.wrap("    ", about)
}

// turns says who is off when.
func (t *texter) turns(turns []Turn) {
	if len(turns) == 0 {
		return
	}
	t.line("")
	t.line("Who is off when")
	for _, turn := range turns {
		for i, e := range turn.Events {
			head := fmt.Sprintf("  turn %-3d", turn.Turn)
			if i > 0 {
				head = strings.Repeat(" ", len(head))
			}
			t.wrap(head+" ", e.Who+" on "+e.Host+" "+e.What+".")
		}
	}
}
