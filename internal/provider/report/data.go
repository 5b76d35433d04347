package report

import (
	"errors"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// NoHosts adds the error of what needs hosts where the provider has none. What can do without an answer
// until the plan has failed says it once for all: it has one cause.
func NoHosts(diags *diag.Diagnostics, f *fleet.Fleet, once bool) {
	if f.NoHosts() && (f.Once("no hosts") || !once) {
		diags.AddError("No hosts are configured", "The provider needs to know its hosts.\n"+
			"Fix: Set hosts, or simulated_fleet (or GPU_SIMULATED_FLEET) to try things on a simulated fleet.")
	}
}

// NotYet adds the error of a data source that is read before it is known which hosts
// there are or how to reach them. Terraform reads it once, so an answer without those
// hosts would stay. It tells whether to go on.
func NotYet(diags *diag.Diagnostics, f *fleet.Fleet, label string, v fleet.View) bool {
	found := ""
	if f.Unknown() {
		found = "the provider's hosts are known only after apply."
	}
	for _, name := range v.Silent() {
		if notYet, ok := errors.AsType[*fleet.NotYetKnownError](v.Errors[name]); ok {
			found = notYet.Error() + "."
		}
	}
	if found == "" {
		return true
	}
	diags.AddError("Hosts are not known yet", fmt.Sprintf(
		"%s\n\nFound: %s\nFix: Name in depends_on of the data source what the provider's configuration refers to; the data source is then read "+
			"during the apply, when the hosts are known.", label, words.Capital(found)))
	return false
}
