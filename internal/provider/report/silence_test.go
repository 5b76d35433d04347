package report_test

import (
	"os"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
)

// Every error for a host that was not reached or read is in the guide's table, and nothing else.
func TestTheGuideHasTheErrorsOfHosts(t *testing.T) {
	page, err := os.ReadFile("../../../docs/guides/hosts.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| The error | Look at |\n| --- | --- |\n")
	said := map[string]bool{}
	for _, err := range []error{
		&connect.Error{Kind: connect.Unreachable}, &connect.Error{Kind: connect.HostKey}, &connect.Error{Kind: connect.Authentication},
		&connect.Error{Kind: connect.NoAgent}, &connect.Error{Kind: connect.Blocked}, &connect.Error{Kind: connect.WrongPlatform},
		&connect.Error{Kind: connect.Garbage}, &connect.Error{Kind: connect.Ended}, &connect.Error{Kind: connect.Version},
		&connect.Error{Kind: connect.Certificate}, &connect.Error{Kind: connect.Settings}, &agent.Error{Kind: agent.BadRequest},
	} {
		var diags diag.Diagnostics
		report.Unreachable(&diags, fleet.New(fleet.Options{}), "x", fleet.View{Errors: map[string]error{"h": err}})
		title := diags[0].Summary()
		said[title] = true
		if !strings.Contains(table, "| "+title+" | ") {
			t.Errorf("the guide has no %q", title)
		}
	}
	rows := 0
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		rows++
	}
	if rows != len(said) {
		t.Errorf("the guide has %d errors, and there are %d", rows, len(said))
	}
}
