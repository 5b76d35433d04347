package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// Disturbs warns of what a planned change does to what runs on its hosts, and to a host that
// loses GPUs: one warning for each host. Terraform shows only the first of several warnings
// with one summary, so that the summary names the VMs, or the resource. What disturbs nobody
// is no warning, and what the plan has said an apply does not say again.
func Disturbs(diags *diag.Diagnostics, f *fleet.Fleet, at path.Path, p change.Change, does []change.Forecast) {
	if f.Applies() || diags.HasError() {
		return
	}
	for _, x := range does {
		d := disturbance{Forecast: x, subject: p.Subject, limit: f.StopsAtOnce()}
		d.stops = slices.DeleteFunc(slices.Clone(x.Stops), func(s change.Stop) bool {
			return len(x.Refused.Of(change.VMMustBeOff)) > 0 || x.KeptOn(s.VM) != nil // what is forbidden is not announced
		})
		if summary := d.summary(); summary != "" {
			warn(diags, at, summary, d.detail(rules.NotDrained(p, x), p.Want.Empty()))
		}
	}
}

// disturbance is what a change does to one host, put into words.
type disturbance struct {
	change.Forecast
	subject string
	stops   []change.Stop
	limit   int // of VMs that are off at once
}

func (d disturbance) summary() string {
	var parts []string
	for _, starts := range []bool{true, false} {
		var names []string
		for _, s := range d.stops {
			if s.Starts == starts {
				names = append(names, words.Name(s.Name))
			}
		}
		if len(names) > 0 {
			then := map[bool]string{true: "started again", false: "left off"}[starts]
			parts = append(parts, fmt.Sprintf("%s %s %s shut down and %s",
				words.Verb(len(names), "VM", "VMs"), words.JoinAll(names), words.Verb(len(names), "is", "are"), then))
		}
	}
	if len(parts) == 0 {
		if does := d.otherwise(); len(does) > 0 {
			parts = []string{d.subject + " " + words.JoinAll(does)}
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return d.Host + ": " + strings.Join(parts, ", ")
}

// otherwise is what the change does beside stopping VMs.
func (d disturbance) otherwise() []string {
	var out []string
	if len(d.Resets) > 0 {
		out = append(out, "resets "+gpus(d.Resets))
	}
	if len(d.Ends) > 0 {
		out = append(out, "terminates "+words.Plural(len(d.Ends), "MPS client"))
	}
	if d.Drains {
		out = append(out, "drains the node")
	}
	if len(d.Dismounts) > 0 {
		out = append(out, "dismounts "+gpus(d.Dismounts)+" from the host")
	}
	return out
}

func gpus(ids []string) string {
	if len(ids) == 1 {
		return "GPU " + ids[0]
	}
	return words.Plural(len(ids), "GPU")
}

// eachGPU says what becomes of the GPUs. Those that get the same are one line.
func (d disturbance) eachGPU() []string {
	ids := map[string][]string{}
	var gets []string
	for _, g := range d.GPUs {
		what := fmt.Sprintf("(%s): %s", g.Model, g)
		if ids[what] == nil {
			gets = append(gets, what)
		}
		ids[what] = append(ids[what], g.GPU)
	}
	lines := make([]string, len(gets))
	for i, what := range gets {
		lines[i] = gpus(ids[what]) + " " + what
	}
	return lines
}

// detail says why, a line for each reason.
func (d disturbance) detail(notDrained string, destroys bool) string {
	var lines []string
	about := ""
	if destroys { // Terraform does not say where a warning of a destroy belongs
		about = d.subject + ": "
	}
	say := func(line string) {
		if line = words.Capital(sentence(line)); line != "." && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	if len(d.stops) > 0 {
		if does := d.otherwise(); len(does) > 0 {
			say(d.subject + " also " + words.JoinAll(does))
		}
	}
	if len(d.stops) > max(d.limit, 1) {
		say(fmt.Sprintf("these %d VMs are off together, beyond max_concurrent_vm_stops (%d): the host has its turn alone", len(d.stops), d.limit))
	}
	for _, s := range d.stops {
		if len(d.GPUs) == 0 { // else it is their layout
			say(about + strings.Join(s.Why, ", "))
		}
	}
	if len(d.Ends) > 0 && len(d.GPUs) == 0 { // else they are told with the GPUs of their daemon
		say(about + "terminates " + words.JoinAll(d.Ends))
	}
	for _, line := range d.eachGPU() {
		say(about + line)
	}
	if len(d.Moves) > 0 {
		say("live migration moves " + words.Verb(len(d.Moves), "VM ", "VMs ") + words.JoinAll(words.Names(d.Moves)) +
			" to other nodes of the cluster first")
	}
	if notDrained != "" {
		say("the node is not drained: " + notDrained)
	}
	if len(d.Dismounts) > 1 {
		say("GPUs " + words.JoinAll(d.Dismounts))
	}
	return strings.Join(lines, "\n")
}
