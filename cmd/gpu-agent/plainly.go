package main

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
)

// plainly is where commands print, for people and in JSON. A character that could steer a terminal, which
// is in what others have named, is written as JSON writes it.
type plainly struct{ io.Writer }

// Write implements io.Writer. What it is given ends with a character.
func (p plainly) Write(text []byte) (int, error) {
	var b strings.Builder
	for _, r := range string(text) {
		if unicode.IsPrint(r) || r == '\n' || r == '\t' {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	if _, err := io.WriteString(p.Writer, b.String()); err != nil {
		return 0, err
	}
	return len(text), nil
}
