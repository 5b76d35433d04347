package planreport

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// voice says the same in a terminal and in Markdown: names of others are words in the one, and code in the other.
type voice struct {
	// name is a name that somebody else chose, and text a sentence that has such names in it.
	name, text func(string) string
	arrow      string
}

func (v voice) names(of []string) string { return words.Join(words.Each(of, v.name)) }

// summary is the first sentence.
func (v voice) summary(e Explanation) string {
	s := e.Summary
	var parts []string
	say := func(n int, one, many string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf(words.Verb(n, one, many), n))
		}
	}
	say(s.Hosts, "%d host changes", "%d hosts change")
	say(s.GPUs, "%d GPU gets another layout", "%d GPUs get another layout")
	say(s.VMsOff, "%d VM is shut down", "%d VMs are shut down")
	say(s.VMsLeftOff, "%d of them stays off", "%d of them stay off")
	say(s.VMsMoved, "%d VM moves to another node meanwhile", "%d VMs move to other nodes meanwhile")
	say(s.Ends, "%d process ends", "%d processes end")
	say(s.Resets, "%d GPU is reset", "%d GPUs are reset")
	switch {
	case s.Resources == 0 && !e.Complete:
		return "As far as is known, no GPU, VM or host changes."
	case s.Resources == 0:
		return "No GPU, VM or host changes."
	case s.AfterApply > 0:
		parts = append(parts, fmt.Sprintf(words.Verb(s.AfterApply, "what %d resource does", "what %d resources do"), s.AfterApply)+
			" to hosts is known only after apply")
		return words.Capital(words.JoinAll(parts)) + "."
	case len(parts) == 0:
		return words.Plural(s.Resources, "resource") + " " + words.Verb(s.Resources, "changes", "change") + ", and no host is touched."
	case s.VMsOff+s.Ends+s.Resets+s.VMsMoved == 0:
		parts = append(parts, "nothing that runs is disturbed")
	}
	return words.JoinAll(parts) + "."
}

// title names a group of changes.
func (v voice) title(g Group) string {
	what := fmt.Sprintf("%s %s", g.Action, v.name(g.Labels[0]))
	if n := len(g.Labels); n > 1 {
		what = fmt.Sprintf("%s %d times %s", g.Action, n, v.name(g.Type))
	}
	return what
}

// short is a label without the type of its resource.
func short(of, label string) string {
	rest, is := strings.CutPrefix(label, of+" ")
	if !is {
		return label
	}
	rest = strings.TrimPrefix(rest, "for VM ")
	quoted, err := strconv.QuotedPrefix(rest) // what follows says of which pool
	if err != nil {
		return rest
	}
	name, _ := strconv.Unquote(quoted) // it is quoted
	return name
}

// turns is when a group of changes comes.
func turns(g Group) string {
	switch {
	case g.Refused != "":
		return "refused"
	case g.FirstTurn == g.LastTurn:
		return fmt.Sprintf("turn %d", g.FirstTurn)
	}
	return fmt.Sprintf("turns %d to %d", g.FirstTurn, g.LastTurn)
}

// group says what a group of changes does, a sentence a line.
func (v voice) group(g Group) []string {
	does := v.does(g)
	if len(g.Labels) > 1 && len(g.Stops) == 0 {
		which := words.Each(g.Labels, func(label string) string { return short(g.Type, label) })
		return append([]string{fmt.Sprintf("These are %s.", v.names(which))}, does...)
	}
	return does
}

func (v voice) does(g Group) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if g.Refused != "" {
		say("Refused: %s", v.text(g.Refused))
		return out
	}
	switch {
	case g.PolicyOnly:
		say("Only what may be done to the host later changes; it is not touched.")
		return out
	case g.AfterApply:
		say("What this does is known only after apply.")
		return out
	}
	for _, l := range g.Layouts {
		if l.From == l.To {
			say("%s: the layout stays, and who is served by it changes.", v.names(l.GPUs))
		} else {
			say("%s: %s %s %s.", v.names(l.GPUs), v.text(l.From), v.arrow, v.text(l.To))
		}
	}
	out = append(out, v.offTimes(g)...)
	if len(g.Drains) > 0 {
		say("The node is drained; %s to other nodes and back.", v.names(g.Moves)+" "+words.Verb(len(g.Moves), "moves", "move"))
	}
	if len(g.Ends) > 0 {
		say("Ends: %s.", words.Join(words.Each(g.Ends, func(e End) string {
			return fmt.Sprintf("process %d (%s)", e.PID, v.name(cmp.Or(e.Name, "unknown")))
		})))
	}
	if len(g.Resets) > 0 {
		say("Reset: %s.", v.names(g.Resets))
	}
	if len(g.Dismounts) > 0 {
		say("Taken from the host for VMs: %s.", v.names(g.Dismounts))
	}
	if len(out) == 0 && len(g.Steps) == 0 {
		say("The host stays as it is; only its records change.")
	} else if len(out) == 0 {
		steps := g.Steps
		if more := len(steps) - words.Listed; len(g.Labels) > 1 && more > 0 {
			steps = append(slices.Clone(steps[:words.Listed]), fmt.Sprintf("%d steps more", more))
		}
		say("%s.", words.Capital(v.text(strings.Join(steps, ", then "))))
	}
	return out
}

// offTimes say which VMs are off, in which order, and how long at most.
func (v voice) offTimes(g Group) []string {
	if len(g.Stops) == 0 {
		return nil
	}
	var again, stay []string
	for _, s := range g.Stops {
		if s.StartsAgain {
			again = append(again, s.VM)
		} else {
			stay = append(stay, s.VM)
		}
	}
	order := ""
	switch {
	case len(g.Stops) > 1 && len(g.Labels) > 1:
		order = ", one after the other"
	case len(g.Stops) > 1:
		order = ", all together"
	}
	var out []string
	if len(again) > 0 {
		out = append(out, fmt.Sprintf("Off and on again%s: %s.", order, v.names(again)))
	}
	if len(stay) > 0 {
		out = append(out, fmt.Sprintf("Shut down, and %s off: %s.", words.Verb(len(stay), "stays", "stay"), v.names(stay)))
	}
	each := 0
	for _, s := range g.Stops {
		each = max(each, s.ShutdownSeconds)
	}
	limit := fmt.Sprintf("How long: not measured on this host. Limits: %s for a guest to shut down", duration(each))
	if len(g.Stops) > 1 && len(g.Labels) > 1 {
		limit += fmt.Sprintf(", %s for all %d", duration(g.ShutdownSeconds), len(g.Stops))
	}
	if g.LimitSeconds > 0 {
		limit += fmt.Sprintf("; %s for the whole turn%s", duration(g.LimitSeconds), map[bool]string{true: " of each"}[len(g.Labels) > 1])
	}
	return append(out, limit+".")
}

// duration is whole minutes where there are some.
func duration(seconds int) string {
	switch d := time.Duration(seconds) * time.Second; {
	case seconds%3600 == 0 && seconds > 0:
		return words.Plural(int(d.Hours()), "hour")
	case seconds%60 == 0 && seconds > 0:
		return words.Plural(int(d.Minutes()), "minute")
	default:
		return d.String()
	}
}

// unchanged says what of a changed host stays as it is.
func (v voice) unchanged(h HostExplanation) []string {
	var out []string
	if h.Partitions > 0 {
		out = append(out, fmt.Sprintf("Afterwards: %d of %s free.", h.FreePartitions, words.Plural(h.Partitions, "partition")))
	}
	var parts []string
	if len(h.UnchangedGPUs) > 0 {
		parts = append(parts, v.names(h.UnchangedGPUs))
	}
	if len(h.VMsRunOn) > 0 {
		parts = append(parts, "VMs that run on: "+v.names(h.VMsRunOn))
	}
	if len(parts) > 0 {
		out = append(out, "Unchanged: "+strings.Join(parts, "; ")+".")
	}
	return out
}

// failure says what a failure leaves.
func (v voice) failure(e Explanation) []string {
	var touched, stops, ends, undo, stay bool
	all := slices.Clone(e.Elsewhere)
	for _, h := range e.Hosts {
		all = append(all, h.Changes...)
	}
	for _, g := range all {
		touched = touched || len(g.Steps) > 0
		stops = stops || len(g.Stops) > 0
		ends = ends || len(g.Ends)+len(g.Resets) > 0
		undo, stay = undo || g.OnFailure == "rollback", stay || g.OnFailure == "stop"
	}
	if !touched {
		return nil
	}
	out := []string{"A step that fails is undone with the steps before it on its host. Changes of earlier turns stay made; later ones that " +
		"depend on it are not begun. Plan again, and apply what is left."}
	if stops {
		out = append(out, "A VM that does not start with its change gets back what it had, and is started as it was.")
	}
	if ends {
		out = append(out, "Processes that have ended are not started again by that.")
	}
	if undo {
		out = append(out, "A config whose rollout fails on one host is put back on the hosts before it (on_failure = \"rollback\").")
	}
	if stay {
		out = append(out, "A config whose rollout fails on one host stays as it is on the hosts before it (on_failure = \"stop\").")
	}
	return out
}

// findings say what the rules have to say, a line for each rule: what one of them says in full, and of which others it says the like.
func (v voice) findings(all []Finding) []string {
	var out []string
	first := map[[2]string]Finding{}
	for _, f := range all {
		of := [2]string{f.Level, f.Rule}
		one, told := first[of]
		if told = told && f.Rule != ""; told && (f.Subject != one.Subject || f.Host == one.Host) {
			continue // the first one says that it has the like
		}
		if !told {
			first[of] = f
		}
		line := fmt.Sprintf("%s, %s: %s", f.Level, v.name(f.Subject), v.text(gpu.Said(oneLine(f.Found), 600)))
		if f.Rule == "" {
			out = append(out, line)
			continue
		}
		var also []string
		for _, o := range all {
			if told {
				break // of another host
			}
			if o.Level == f.Level && o.Rule == f.Rule && o.Subject != f.Subject && !slices.Contains(also, v.name(o.Subject)) {
				also = append(also, v.name(o.Subject))
			}
		}
		line += " (" + v.text(f.Rule) + ")"
		if len(also) > 0 {
			line += " The like of " + words.Join(also) + "."
		}
		out = append(out, line)
	}
	return out
}

// oneLine is a text of somebody else on one line.
func oneLine(text string) string { return strings.Join(strings.Fields(gpu.Printable(text)), " ") }
