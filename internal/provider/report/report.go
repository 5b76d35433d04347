// Package report turns findings and errors into Terraform diagnostics: a short
// summary, and a detail that says where, what was found, what was wanted and how
// to fix it.
package report

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// Findings adds what the rules found, each at its attribute and level. label is the resource, "" where Terraform names it.
func Findings(diags *diag.Diagnostics, label string, findings []rules.Finding) {
	report(diags, label, findings, "")
}

func report(diags *diag.Diagnostics, label string, findings []rules.Finding, more string) {
	for _, f := range findings {
		detail := f.Detail() + more
		if about := cmp.Or(f.Of, label); about != "" && !f.Again {
			detail = about + "\n\n" + detail
		}
		switch at := attribute(f.Path); {
		case f.Level != rules.Error:
			warn(diags, at, f.Summary(), detail)
		case at.Equal(path.Empty()):
			diags.AddError(f.Summary(), detail)
		default:
			diags.AddAttributeError(at, f.Summary(), detail)
		}
	}
}

// warn adds a warning. With an empty path Terraform would not show where the resource is.
func warn(diags *diag.Diagnostics, at path.Path, summary, detail string) {
	if at.Equal(path.Empty()) {
		diags.AddWarning(summary, detail)
	} else {
		diags.AddAttributeWarning(at, summary, detail)
	}
}

// attribute is the attribute of the resource that a finding's path, names joined by
// dots, begins with. Terraform shows the line of an attribute, but for a path into a
// nested one only the resource's first line.
func attribute(s string) path.Path {
	first, _, _ := strings.Cut(s, ".")
	if first == "" {
		return path.Empty()
	}
	return path.Root(first)
}

// Failure adds the error of a change. doing says what was tried, for the summary:
// "create the partition config".
func Failure(diags *diag.Diagnostics, doing, label string, err error) {
	var ae *agent.Error
	if errors.As(err, &ae) && (ae.Code == agent.RuleViolation || ae.Code == agent.Unannounced) {
		findings, more := ae.Findings, ""
		failure, ok := errors.AsType[*fleet.Failure](err)
		switch {
		case ok && failure.Begun(): // it came in the way of a later host
			more = ending(failure)
		case ok && failure.Waited:
			more = inVain
		}
		if ok && ae.Code == agent.Unannounced {
			findings = []rules.Finding{rules.NotAnnounced(failure.Host, ae.Message)}
		}
		report(diags, label, findings, more)
		return
	}
	diags.AddError("Could not "+doing, label+"\n\n"+Explain(err))
}

// NeedsForce adds a warning where a GPU did not come off its host for want of force.
func NeedsForce(diags *diag.Diagnostics, at path.Path, label string, err error) {
	if cause, ok := fleet.Cause(err); ok && cause.Code == backend.NotSupported {
		diags.AddAttributeWarning(at, "A GPU may need to be dismounted by force", fmt.Sprintf(
			"%s\n\nFound: %v.\nFix: Without the platform's checks (ACS, device mitigations) the GPU may come off its host: "+
				"if you trust the VMs that "+
				"will have it, set dismount = { force = true }.", label, words.Capital(cause.Error())))
	}
}

// Explain says in full what went wrong: the host, the step, the reason, how it ended, and
// what to do next.
func Explain(err error) string {
	failure, ok := errors.AsType[*fleet.Failure](err)
	if !ok {
		return facts(err)
	}
	text := facts(failure.Err)
	if failure.Host != "" {
		text = "Host: " + failure.Host + "\n" + text
	}
	return text + ending(failure)
}

const inVain = "\n\nNo host was changed. Remove the cause and apply again. If another change of this run removes it, which was " +
	"not made while this one waited, as with -parallelism=1, only apply again."

// ending says how a change ended on each host, and what to do next.
func ending(failure *fleet.Failure) string {
	switch {
	case failure.Waited:
		return inVain
	case !failure.Begun():
		return "\n\nNo host was changed. Remove the cause and apply again."
	case failure.Clean():
		return "\n\nHow it ended on each host\n" + failure.Summary() + "Remove the cause and apply again."
	}
	return "\n\nHow it ended on each host\n" + failure.Summary() +
		"The state holds what the hosts have now. Remove the cause and apply again; after a failed create, " +
		"run `terraform untaint ADDRESS` first, or Terraform replaces what is there."
}

// facts are what an error holds, a line for each: the step that failed or was refused, what
// was found, and what to do about it.
func facts(err error) string {
	step, found, fix := "", err.Error(), ""
	if ce, connecting := errors.AsType[*connect.Error](err); connecting {
		if found, fix = ce.Found, ce.Fix; ce.Err != nil && ce.Code != connect.Version {
			found += fmt.Sprintf(" (%v)", ce.Err)
		}
	} else if ae, answered := errors.AsType[*agent.Error](err); answered {
		step, found, fix = answer(ae)
	}
	text := "Found: " + words.Capital(sentence(found))
	if step != "" {
		text = "Step: " + step + "\n" + text
	}
	switch {
	case fix == "":
		return text
	case strings.Contains(fix, "\n"):
		return text + "\nFix: " + words.Capital(fix) // it ends with something to copy
	}
	return text + "\nFix: " + words.Capital(sentence(fix))
}

// answer is what an agent said of a failure.
func answer(ae *agent.Error) (step, found, fix string) {
	switch {
	case ae.Code == agent.BadReply:
		return "", ae.Message, "look what answers there: an agent of another maker, a damaged one, or a host that others have taken over. " +
			"The guide on the agent says how much a host may answer"
	case ae.Code == agent.LeaseHeld && ae.Lease != nil:
		return "", ae.Message, "let that run end, and apply again; if it was killed, its lease ends by itself"
	case ae.Cause == nil || ae.Step == "" && ae.Message != "":
		return "", ae.Reason(), ""
	}
	step, found, fix = cmp.Or(ae.Step, ae.Cause.Op), ae.Cause.Reason(), ae.Cause.Fix
	if ae.Cause.Code == backend.Locked && fix == "" {
		fix = "sign the user of the VM out, or set `force_shutdown = true` in the `power` of its assignment, apply that, and apply again"
	}
	if object := ae.Cause.Object; !strings.Contains(step, object) && !strings.HasPrefix(object, "host ") {
		step += " (" + object + ")"
	}
	return step, found, fix
}

// sentence ends a text with a full stop.
func sentence(text string) string {
	if strings.HasSuffix(text, ".") || strings.HasSuffix(text, "?") {
		return text
	}
	return text + "."
}

const (
	notAnAgent = "Host did not answer as an agent"
	noAnswer   = "Host does not answer"
)

// silence is the summary for a host that was not reached.
func silence(err error) string {
	if ce, connecting := errors.AsType[*connect.Error](err); connecting {
		return unreached(ce.Code)
	}
	ae, answered := errors.AsType[*agent.Error](err)
	switch {
	case answered && ae.Code == agent.BadReply:
		return notAnAgent
	case fleet.NeedsHand(err):
		return "Host answers, but cannot be read"
	}
	return noAnswer
}

// unreached says by the code of a failed connection what is wrong with it.
func unreached(code connect.Code) string {
	switch code {
	case connect.HostKey:
		return "Host key is not trusted"
	case connect.Authentication:
		return "Authentication failed"
	case connect.NoAgent:
		return "Host has no agent"
	case connect.Blocked:
		return "Agent is blocked on the host"
	case connect.WrongPlatform:
		return "Agent is for another platform"
	case connect.Garbage:
		return notAnAgent
	case connect.Version:
		return "Agent and provider do not match"
	case connect.Certificate:
		return "Certificate was rejected"
	case connect.WrongCluster:
		return "Host is not in this cluster"
	case connect.Settings:
		return "Host cannot be reached with these settings"
	case connect.Unreachable, connect.Ended:
	}
	return noAnswer
}

// Skipped warns of hosts that an object left without their being told.
func Skipped(diags *diag.Diagnostics, label string, skipped map[string]error) {
	for _, name := range slices.Sorted(maps.Keys(skipped)) {
		diags.AddWarning("The host was left unchanged", fmt.Sprintf(
			"%s\n\nHost: %s\n%s\nThe host was removed from the state without contacting it. Its configuration and its claim stay in place.", label,
			name, facts(skipped[name])))
	}
}

// Unfinished warns of changes that a run began on the hosts of a view and that have
// not ended, of records that a host's agent cannot read, and of what else is not as it should be, once per host and run.
func Unfinished(diags *diag.Diagnostics, f *fleet.Fleet, v fleet.View) {
	names := slices.Sorted(maps.Keys(v.Hosts))
	for _, warnOf := range []func(*diag.Diagnostics, *fleet.Fleet, string, *gpu.Host){unreadable, unknown, stale, unfinished, pendingStarts} {
		for _, name := range names {
			warnOf(diags, f, name, v.Hosts[name])
		}
	}
}

func unreadable(diags *diag.Diagnostics, f *fleet.Fleet, name string, h *gpu.Host) {
	if len(h.Unreadable) > 0 && f.Once("unreadable on "+name) {
		diags.AddWarning("Agent records cannot be read", fmt.Sprintf(
			"Host: %s\nFound: %s\nWhat the state knows of this host is kept; claims and changes that were cut off may be missing from this plan.\n"+
				"Fix: %s",
			name, words.Capital(rules.UnreadableText(h.Unreadable)), rules.UnreadableFix))
	}
}

func unknown(diags *diag.Diagnostics, f *fleet.Fleet, name string, h *gpu.Host) {
	if len(h.Unknown) > 0 && f.Once("unknown on "+name) {
		diags.AddWarning("Parts of a host cannot be read", fmt.Sprintf(
			"Host: %s\nFound: %s\nWhat the state knows of these parts is kept. Only changes that they concern are refused.", name,
			unknownText(h.Unknown)))
	}
}

func stale(diags *diag.Diagnostics, f *fleet.Fleet, name string, h *gpu.Host) {
	if len(h.Stale) > 0 && f.Once("stale on "+name) {
		diags.AddWarning("Derived files of a host are out of date", fmt.Sprintf(
			"Host: %s\nFound: %s\nFix: The next change of this host tries again, and so does `gpu-agent reconcile` there. "+
				"Until then containers may be given devices that are gone.", name, words.Capital(strings.Join(h.Stale, "\n  "))))
	}
}

func unfinished(diags *diag.Diagnostics, f *fleet.Fleet, name string, h *gpu.Host) {
	begun, held := strings.Join(h.Unfinished, ", "), h.HeldBy
	if held == nil && begun == "" || f.Holds(h) || !f.Once("unfinished on "+name) {
		return
	}
	if held == nil {
		diags.AddWarning("Unfinished change on a host", fmt.Sprintf(
			"Host: %s\nFound: A change for %s was begun and is neither finished nor rolled back. Another run is in progress, or a run was killed.\n"+
				"Fix: If no other run is in progress, apply again: the first change on this host rolls back what was cut off and starts "+
				"the VMs that it stopped.%s",
			name, begun, movedOnceMore(h)))
		return
	}
	found := held.String()
	if begun != "" {
		found += ". It has begun a change for " + begun
	}
	diags.AddWarning("Another run holds a host", fmt.Sprintf(
		"Host: %s\nFound: %s.\nAn apply waits up to three minutes for it; Terraform shows no more than \"Still creating...\" meanwhile.\n"+
			"Fix: Let that run end, and plan again. If it was killed, apply: its lease ends by itself, and the first change on this host "+
			"rolls back what was cut off and starts the VMs that it stopped.%s",
		name, found, movedOnceMore(h)))
}

func pendingStarts(diags *diag.Diagnostics, f *fleet.Fleet, name string, h *gpu.Host) {
	for _, d := range h.PendingStarts {
		if f.Once("pending start on " + name + ": " + d.VM) {
			diags.AddWarning("A VM is still off after a change stopped it", fmt.Sprintf(
				"Host: %s\nFound: VM %s is off since %s: a change of %s stopped it and could not start it again.%s\n"+
					"Fix: The next apply that changes something on this host starts it, and so does `gpu-agent reconcile` there; or start it by hand.",
				name, words.Name(d.Name), d.Since.UTC().Format(time.RFC3339), d.Subject, lastTry(d.Why)))
		}
	}
}

// movedOnceMore names the VMs that a rollback moves.
func movedOnceMore(h *gpu.Host) string {
	if len(h.Moving) == 0 {
		return ""
	}
	var vms []string
	for _, vm := range h.Moving {
		vms = append(vms, "VM "+strconv.Quote(vm))
	}
	return fmt.Sprintf(" For that it drains the node once more: live migration moves %s away and back.", words.JoinAll(vms))
}

// mostUnknown is how many parts a warning lists.
const mostUnknown = 10

func unknownText(all []gpu.Unknown) string {
	var lines []string
	for _, u := range all[:min(len(all), mostUnknown)] {
		lines = append(lines, u.String())
	}
	if more := len(all) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more; `gpu-agent inventory` on the host lists them", more))
	}
	return strings.Join(lines, "\n  ")
}

func lastTry(why string) string {
	if why == "" {
		return ""
	}
	return " Last attempt: " + why + "."
}

// Unreachable adds what it means that hosts did not answer: an error, or with keep
// a warning that what is known is kept. It tells whether to go on. Of hosts that
// answered it tells what a killed run left. held are the hosts of which the state has
// something: that one of them has no agent yet does not excuse it.
func Unreachable(diags *diag.Diagnostics, f *fleet.Fleet, label string, v fleet.View, held ...string) bool {
	ok := true
	Unfinished(diags, f, v)
	for _, name := range v.Silent() {
		err := v.Errors[name]
		var unknown *fleet.UnknownHostError
		var notYet *fleet.NotYetKnownError
		if errors.As(err, &notYet) && notYet.Err != nil && slices.Contains(held, name) {
			err, notYet = notYet.Err, nil
		}
		switch {
		case notYet != nil:
			// Its checks wait until apply.
			if notYet.Reason != "" && f.Once("no agent on "+name) {
				diags.AddWarning("Host cannot be checked yet", fmt.Sprintf("Host: %s\nFound: %s. Until then nothing about it is checked.", name,
					words.Capital(notYet.Reason)))
			}
		case errors.As(err, &unknown):
			diags.AddWarning("Host is not in the provider's configuration", fmt.Sprintf(
				"%s\n\nHost: %s\nFound: %v.\nWhat the state knows of this host is kept. If the host is gone for good, remove it from this resource "+
					"as well: its claims are then dropped without contacting it.", label, name, err))
		case f.KeepUnreachable() && !fleet.NeedsHand(err):
			diags.AddWarning("Host does not answer", fmt.Sprintf(
				"%s\n\nHost: %s\n%s\nWhat the state knows of this host is kept (on_unreachable = \"keep\").", label, name, facts(err)))
		default:
			ok = false
			way := "A host that does not answer is not taken for an empty one: the state is kept as it is. " +
				"Bring the host back, or set on_unreachable = \"keep\" in the provider to go on without it."
			if fleet.NeedsHand(err) {
				way = "Until this is repaired the state is kept as it is. on_unreachable = \"keep\" does not lift this: it is for hosts " +
					"that cannot be reached."
			}
			diags.AddError(silence(err), fmt.Sprintf(
				"%s\n\nHost: %s\n%s\n\n%s", label, name, facts(err), way))
		}
	}
	return ok
}
