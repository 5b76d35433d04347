package main

import (
	"fmt"
	"html"
	"strings"
)

// planToHost draws the way of a change from a plan to a host.
func planToHost() string {
	steps := []struct{ who, what string }{
		{"terraform plan", "One inventory of each host, in parallel. Nothing is changed."},
		{"rules", "Hosts, this resource and all others of the run: what cannot be is an error now."},
		{"steps", "The very steps of the apply say who would stop, and what would be reset."},
		{"terraform apply", "A lease of each host, a fresh inventory, the same rules again."},
		{"gpu-agent", "Step by step, each with its inverse in a journal on the host."},
		{"read back", "What the host has now is compared with what was wanted, and claimed."},
	}
	const width, left, line, box = 960, 16, 64, 190
	var b strings.Builder
	height := 60 + line*len(steps)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="t">`,
		width, height, width, height)
	b.WriteString("\n<title id=\"t\">From a plan to a host, in six steps</title>\n<style>text{font:14px system-ui,sans-serif;fill:#1b1f24}" +
		".w{font-weight:600}.bg{fill:#fff}.box{fill:#9ecbff;stroke:#57606a}.host{fill:#a8e0b0}.line{stroke:#57606a;stroke-width:2;fill:none}" +
		"@media (prefers-color-scheme:dark){text{fill:#f0f3f6}.bg{fill:#0d1117}.box{fill:#1f4f8a;stroke:#9ea7b3}.host{fill:#1d5c2c}" +
		".line{stroke:#9ea7b3}}</style>\n")
	fmt.Fprintf(&b, "<rect class=\"bg\" width=\"%d\" height=\"%d\"/>\n", width, height)
	fmt.Fprintf(&b, "<text class=\"w\" x=\"%d\" y=\"28\">From a plan to a host</text>\n", left)
	for i, s := range steps {
		y, class := 44+i*line, "box"
		if i >= 3 {
			class = "box host"
		}
		fmt.Fprintf(&b, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"40\" rx=\"5\"/>", class, left, y, box)
		fmt.Fprintf(&b, "<text class=\"w\" x=\"%d\" y=\"%d\">%d. %s</text>", left+12, y+25, i+1, html.EscapeString(s.who))
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\">%s</text>\n", left+box+20, y+25, html.EscapeString(s.what))
		if i+1 < len(steps) {
			x := left + box/2
			fmt.Fprintf(&b, "<path class=\"line\" d=\"M%d %dV%dM%d %dL%d %dL%d %d\"/>\n", x, y+40, y+line, x-5, y+line-7, x, y+line-1, x+5, y+line-7)
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}
