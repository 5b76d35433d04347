package fleetmap

import (
	"fmt"
	"io"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/planreport"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// said is a text of somebody else in Markdown.
var said = planreport.EscapedMarkdown

// Markdown writes a picture for a pull request: a row for each GPU, its bar in letters of one width, which draw to scale.
func Markdown(w io.Writer, p Picture) error {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n%s.\n", said(p.Title), said(p.summary()))
	for _, note := range p.Notes {
		fmt.Fprintf(&b, "\n> %s\n", said(note))
	}
	end := markdownEnd(p)
	var same []string
	left := 0
	for _, h := range p.rows() {
		if p.After != nil && !h.changed() {
			same = append(same, h.is().Name)
			continue
		}
		text := markdownHost(h, p.After != nil)
		if left > 0 || b.Len()+len(text)+len(end) > planreport.MostMarkdown-1_000 {
			left++
			continue
		}
		b.WriteString(text)
	}
	if left > 0 {
		fmt.Fprintf(&b, "\n%s more, which this text has no room for: `gpu-agent map -o html` shows all.\n", words.Plural(left, "host"))
	}
	if len(same) > 0 {
		names := words.JoinAll(same)
		if len(names) > 500 {
			names = words.Plural(len(same), "other host")
		}
		fmt.Fprintf(&b, "\nNothing changes on %s.\n", said(names))
	}
	b.WriteString(end)
	_, err := io.WriteString(w, b.String())
	return err
}

// markdownEnd is the pools and the turns, as far as there is room.
func markdownEnd(p Picture) string {
	var b strings.Builder
	m := p.Now
	if p.After != nil {
		m = *p.After
	}
	if len(m.Pools) > 0 {
		b.WriteString("\n| Pool | Label | Taken |\n| --- | --- | --- |\n")
	}
	room := func(line string, most int) bool { return b.Len()+len(line) <= most }
	for _, pool := range m.Pools {
		lines := fmt.Sprintf("| %s | | %d of %s |\n", said(pool.Name), pool.Taken, words.Plural(pool.GPUs, "GPU"))
		for _, q := range pool.Quotas {
			lines += fmt.Sprintf("| %s | %s | %s |\n", said(pool.Name), said(q.Label), said(q.Text))
		}
		if !room(lines, 10_000) {
			b.WriteString("\nThere are more pools.\n")
			break
		}
		b.WriteString(lines)
	}
	if len(p.Turns) == 0 {
		return b.String()
	}
	b.WriteString("\n| Turn | Who | Host | What |\n| ---: | --- | --- | --- |\n")
	left := 0
	for _, t := range p.Turns {
		for _, e := range t.Events {
			line := fmt.Sprintf("| %d | %s | %s | %s |\n", t.Turn, said(e.Who), said(e.Host), said(e.What))
			if left > 0 || !room(line, 30_000) {
				left++
				continue
			}
			b.WriteString(line)
		}
	}
	if left > 0 {
		fmt.Fprintf(&b, "\n%d more are disturbed: `gpu-agent map -o html` shows all.\n", left)
	}
	return b.String()
}

func markdownHost(h hostRows, both bool) string {
	var b strings.Builder
	is := h.is()
	fmt.Fprintf(&b, "\n<details%s><summary><b>%s</b> %s</summary>\n\n", map[bool]string{true: " open"}[both], plain(is.Name), plain(is.OS))
	for _, note := range is.Notes {
		fmt.Fprintf(&b, "> %s\n\n", said(note))
	}
	t := &texter{width: widest - 10}
	for _, r := range h.gpus {
		t.gpu(r, both)
	}
	for _, list := range []struct {
		title string
		of    *Host
	}{{"Waiting: ", h.now}, {"Waiting after: ", h.then}} {
		if list.of != nil && len(list.of.Waiting) > 0 && (both || list.title == "Waiting: ") {
			t.wrap("  ", list.title+strings.Join(words.Each(list.of.Waiting, holderText), "; "))
		}
	}
	text := t.out.String()
	fence := "```"
	for strings.Contains(text, fence) { // a name may have it
		fence += "`"
	}
	fmt.Fprintf(&b, "%s\n%s%s\n\n</details>\n", fence, text, fence)
	return b.String()
}
