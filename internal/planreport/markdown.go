package planreport

import (
	"cmp"
	"fmt"
	"html"
	"strings"
	"unicode/utf8"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// markdown is the voice of a pull request.
var markdown = voice{name: codeSpan, text: EscapedMarkdown, arrow: "→"}

// MostMarkdown is how many characters a text in Markdown has at most: a comment of GitHub has room for 65,536.
const MostMarkdown = 60_000

// codeSpan is a text of somebody else as code: one line in which nothing is markup, a link or a mention. Its fence is longer than
// any in it.
func codeSpan(text string) string {
	text = strings.Join(strings.Fields(gpu.Printable(gpu.Said(text, 200))), " ")
	longest, run := 0, 0
	for _, r := range text {
		if r == '`' {
			run++
			longest = max(longest, run)
		} else {
			run = 0
		}
	}
	fence := strings.Repeat("`", longest+1)
	if longest > 0 || text == "" {
		return fence + " " + text + " " + fence
	}
	return fence + text + fence
}

// EscapedMarkdown is a sentence that has names of others in it: nothing in it is markup, a link or a mention.
func EscapedMarkdown(text string) string {
	text = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(oneLine(text))
	var b strings.Builder
	for _, r := range text {
		switch {
		case strings.ContainsRune("\\`*_[]|~#!", r):
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '@':
			b.WriteString("@\u2060") // no mention
		case r == ':':
			b.WriteString("&#58;") // no address, no emoji
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Markdown is an explanation for a pull request: what matters is in sight, and each host folds out. However large the fleet, it
// has at most MostMarkdown characters, and says what it leaves out.
func (e Explanation) Markdown() string {
	d := &pages{left: MostMarkdown - 500} // for what says what is left out
	title := "### GPUs"
	if e.Owner != "" {
		title += " of " + codeSpan(e.Owner)
	}
	d.add(title + "\n\n**" + words.Capital(markdown.summary(e)) + "**\n")
	if !e.Complete {
		d.add("\n**This is not all that an apply does:**\n\n" + bullets(words.Each(first(e.Incomplete, 20), markdown.text)))
	}
	d.add(folded(words.Plural(len(e.Findings), "finding"), bullets(first(markdown.findings(e.Findings), 40)), len(e.Findings) > 0))
	left := 0
	for _, h := range e.Hosts {
		if left > 0 || !d.add(hostMarkdown(h)) {
			left++
		}
	}
	if left > 0 {
		d.must(fmt.Sprintf("\n%s more %s left out for their length: see the report itself.\n", words.Plural(left, "host"),
			words.Verb(left, "is", "are")))
	}
	if len(e.Elsewhere) > 0 {
		d.add(folded("On hosts that are known only after apply", groupsMarkdown(e.Elsewhere), true))
	}
	if len(e.Unchanged) > 0 {
		d.add("\nUnchanged hosts: " + markdown.names(e.Unchanged) + ".\n")
	}
	d.add(folded("If something fails", bullets(markdown.failure(e)), e.Summary.Resources > 0 && markdown.failure(e) != nil))
	return d.String()
}

// pages is a document of limited length.
type pages struct {
	strings.Builder
	left int
}

// add adds a part if it fits.
func (d *pages) add(part string) bool {
	n := utf8.RuneCountInString(part)
	if n > d.left {
		return false
	}
	d.left -= n
	d.WriteString(part)
	return true
}

func (d *pages) must(part string) { d.WriteString(part) }

func first[T any](of []T, n int) []T { return of[:min(len(of), n)] }

func bullets(lines []string) string {
	var b strings.Builder
	for _, line := range lines {
		b.WriteString("- " + line + "\n")
	}
	return b.String()
}

func folded(title, body string, is bool) string {
	if !is {
		return ""
	}
	return "\n<details><summary>" + html.EscapeString(title) + "</summary>\n\n" + body + "\n</details>\n"
}

// groupsShown is how many changes of one host are told.
const groupsShown = 40

func groupsMarkdown(all []Group) string {
	var b strings.Builder
	for _, g := range first(all, groupsShown) {
		fmt.Fprintf(&b, "- %s: %s\n", turns(g), markdown.title(g))
		for _, line := range markdown.group(g) {
			b.WriteString("  - " + line + "\n")
		}
	}
	if n := len(all) - groupsShown; n > 0 {
		fmt.Fprintf(&b, "- and %s more\n", words.Plural(n, "change"))
	}
	return b.String()
}

func hostMarkdown(h HostExplanation) string {
	off, gpus := names{}, 0
	for _, g := range h.Changes {
		for _, s := range g.Stops {
			off.add(cmp.Or(s.VMID, s.VM))
		}
		for _, l := range g.Layouts {
			gpus += len(l.IDs)
		}
	}
	var parts []string
	if gpus > 0 {
		parts = append(parts, words.Plural(gpus, "GPU")+" "+words.Verb(gpus, "changes", "change"))
	}
	if n := len(off); n > 0 {
		parts = append(parts, words.Plural(n, "VM")+" "+words.Verb(n, "is", "are")+" off")
	}
	if len(parts) == 0 {
		parts = append(parts, "nothing that runs is disturbed")
	}
	body := groupsMarkdown(h.Changes) + "\n"
	for _, line := range markdown.unchanged(h) {
		body += line + "\n\n"
	}
	return fmt.Sprintf("\n<details><summary><code>%s</code>: %s</summary>\n\n%s</details>\n",
		html.EscapeString(gpu.Printable(h.Host)), words.Join(parts), body)
}
