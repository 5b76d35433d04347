package fleet

import (
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// told is what a run has said of causes, guarded by the ledger.
type told struct {
	// first is the resource that a cause was told of in full.
	first map[string]string
	// silent are the errors of resources that say nothing, since another resource fails the plan for what they contend for.
	// An apply has no other resource that would hold it.
	silent map[string][]rules.Finding
}

// ToldOnce has the first resource that meets a cause tell it in full. A further one says no more than that it has it, too,
// and of what several contend for nothing. label is the resource.
func (f *Fleet) ToldOnce(label string, findings []rules.Finding) []rules.Finding {
	l := f.Ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.told.silent, label)
	l.reported.keep(label, findings)
	var out []rules.Finding
	for _, x := range findings {
		cause := x.Cause(label)
		switch first, known := l.told.first[cause]; {
		case !known || first == label:
			l.told.first[cause] = label
			out = append(out, x)
		case x.Contended == "":
			x.Again = true
			out = append(out, x)
		case x.Level == rules.Error:
			l.told.silent[label] = append(l.told.silent[label], x)
		}
	}
	return out
}

// silent fails an apply for what its plan has left to another resource to tell. Terraform plans each resource again right
// before it applies it, and applies what has no error, whatever became of the others.
func (l *Ledger) silent(label string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	errs := slices.Clone(l.told.silent[label])
	if len(errs) == 0 {
		return nil
	}
	host := errs[0].Host
	return &Failure{Label: label, Host: host, Err: &agent.Error{Code: agent.RuleViolation, Host: host, Findings: errs}}
}
