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
		&connect.Error{Code: connect.Unreachable}, &connect.Error{Code: connect.HostKey}, &connect.Error{Code: connect.Authentication},
		&connect.Error{Code: connect.NoAgent}, &connect.Error{Code: connect.Blocked}, &connect.Error{Code: connect.WrongPlatform},
		&connect.Error{Code: connect.Garbage}, &connect.Error{Code: connect.Ended}, &connect.Error{Code: connect.Version},
		&connect.Error{Code: connect.Certificate}, &connect.Error{Code: connect.Settings}, &connect.Error{Code: connect.WrongCluster},
		&agent.Error{Code: agent.BadRequest}, &agent.Error{Code: agent.BadReply},
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
