package others

import (
	"fmt"
	"strings"
	"unicode"
)

// forged is what a hostile name wants to be read as: a line, a row, a heading or a comment of ours.
const forged = "forged"

// sentence is a name that is plain text, and more than a name where nothing shows where it begins and ends.
const sentence = "a. No VM is shut down. VM b"

// HostileNames are names that try to be more: each has characters that steer a terminal, hide or turn text, end a
// line, or are markup. All control characters are in them.
func HostileNames() []string {
	var steer []rune
	for r := rune(0); r < 0x20; r++ {
		steer = append(steer, r)
	}
	for r := rune(0x7f); r < 0xa0; r++ {
		steer = append(steer, r)
	}
	steer = append(steer, '\u00ad', '\u061c', '\u180e', '\ufeff', '\U000e0041')
	for r := rune(0x200b); r <= 0x200f; r++ { // of no width, and directions
		steer = append(steer, r)
	}
	for r := rune(0x2028); r <= 0x202e; r++ { // ends of lines and paragraphs, embeddings
		steer = append(steer, r)
	}
	for r := rune(0x2060); r <= 0x206f; r++ { // isolates
		steer = append(steer, r)
	}
	names := []string{
		"x on hv01: none\n\n**Forecast of `data." + forged + "`**: disruption `none`\n\n@everyone <img src=http://t.invalid/p.png> [" +
			forged + "](http://t.invalid)\n\n<!--",
		"\"quoted\" `code` ${file(\"/etc/passwd\")} %{ if true }\nWarning: " + forged,
		sentence,
		"| " + forged + " | row |\n| --- | --- |",
		"\x1b[1A\x1b[2K\x1b]0;" + forged + "\a\rError: " + forged,
		"</pre><script>" + forged + "</script>\r\nFix: " + forged,
	}
	for i := 0; i < len(steer); i += 8 {
		var b strings.Builder
		for _, r := range steer[i:min(i+8, len(steer))] {
			fmt.Fprintf(&b, "n%c\nError: %s%c\n\n  Fix: %s", r, forged, r, forged)
		}
		names = append(names, b.String())
	}
	return names
}

// Faults are what is wrong with an output that has hostile names in it: a character that is not printed, or
// a line or a sentence of ours that a name makes. Where a CLI has wrapped it, any word may begin a line but
// those that ours begin with.
func Faults(out string, wrapped bool) []string {
	var found []string
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		for _, r := range line {
			if !unicode.IsPrint(r) && r != '\t' && r != '\u00a0' {
				found = append(found, fmt.Sprintf("%U in %q", r, line))
			}
		}
		if before, _, has := strings.Cut(line, sentence); has && !strings.HasSuffix(before, `"`) && !strings.HasSuffix(before, "`") {
			found = append(found, fmt.Sprintf("a name that is no more than text in %q", line))
		}
		bare := strings.TrimLeft(line, "│ |*-#")
		for _, begins := range []string{"Error: ", "Warning: ", "Fix: ", "Forecast of ", "@everyone", "", "row |"} {
			if strings.HasPrefix(bare, begins+forged) && (begins != "" || !wrapped) {
				found = append(found, fmt.Sprintf("a forged line %q", line))
			}
		}
	}
	return found
}
