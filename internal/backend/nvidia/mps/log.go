package mps

import (
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/document"
)

// Control daemons write lines like
//
//	[2026-01-02 10:04:05.123 Control  9042] Cmd:set_default_active_thread_percentage 0
var logLine = regexp.MustCompile(`^\[\S+ \S+ +(\w+) +(\d+)\] ?(.*)$`)

const (
	controlLog = "control.log"
	// maxTail is how much of a log is read to find a reason.
	maxTail = 64 << 10

	saidStarting = "Starting control daemon"
	saidCommand  = "Cmd:"
	saidOpen     = "NEW UI"
	saidClosed   = "UI closed"
)

// logSize is where a log ends now, 0 when there is none.
func logSize(path string) int64 {
	info, err := os.Lstat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// logSince are the texts of what was written to a log after an offset, as far as its end
// is read. A log that cannot be read has none: it is only ever asked for reasons.
func logSince(path string, offset int64) []string {
	f, err := document.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	size := int64(0)
	if info, err := f.Stat(); err == nil {
		size = info.Size()
	}
	if offset > size {
		offset = 0 // it was begun anew
	}
	offset = max(offset, size-maxTail)
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(f, maxTail))
	if err != nil {
		return nil
	}
	var texts []string
	for line := range strings.Lines(string(data)) {
		if found := logLine.FindStringSubmatch(strings.TrimSpace(line)); found != nil {
			texts = append(texts, strings.TrimSpace(found[3]))
		}
	}
	return texts
}

// reasonFor is what a log says about a command beyond its answer. The last time that the
// command was given counts.
func reasonFor(texts []string, command, answer string) string {
	var reason []string
	inside := false
	for _, text := range texts {
		switch {
		case text == saidCommand+command:
			inside, reason = true, nil
		case text == saidClosed:
			inside = false
		case inside && text != answer && !isChatter(text):
			reason = append(reason, text)
		}
	}
	return strings.Join(reason, "; ")
}

var chatter = regexp.MustCompile(`^(Accepting connection|NEW UI|NEW CLIENT|UI closed|Cmd:|To connect CUDA|CUDA MPS Control ` +
	`binary|Starting new server|Removed Shm file|Exit with status 0|NEW SERVER \d+: Ready|User did not send valid ` +
	`credentials|[0-9.]+[GM]?$|$)`)

// isChatter tells whether a line of a log says nothing about what went wrong.
func isChatter(text string) bool { return chatter.MatchString(text) }

// lastWords are the last reasons in a log since the daemon started.
func lastWords(texts []string) string {
	for i, text := range slices.Backward(texts) {
		if strings.HasPrefix(text, saidStarting) {
			texts = texts[i+1:]
			break
		}
	}
	// What is said to a command is an answer to whoever gave it.
	var words []string
	inCommand := false
	for _, text := range texts {
		switch {
		case text == saidOpen, text == saidClosed:
			inCommand = text == saidOpen
		case !isChatter(text) && (!inCommand || strings.HasPrefix(text, "Server ")):
			words = append(words, text)
		}
	}
	const last = 3
	return strings.Join(words[max(0, len(words)-last):], "; ")
}
