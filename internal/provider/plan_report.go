package provider

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

const notReported = "The plan report cannot be written"

// reportPlan writes the plan report, if there is one to write. What a run has planned is known once Terraform closes the provider, and
// asks no host then: a process has two seconds more.
func (p *gpuProvider) reportPlan() error {
	if p == nil || p.fleet == nil || p.report == "" {
		return nil
	}
	report, ok := p.fleet.Report()
	if !ok {
		return nil
	}
	file := p.report
	p.report = "" // it is written once
	document, err := report.Encode()
	if err == nil {
		err = replace(file, document)
	}
	if err != nil {
		return fmt.Errorf("the plan report was not written to %s: %w", file, err)
	}
	return nil
}

// replace puts a document in the place of a file that only its owner reads. Who reads it meanwhile has the old one or the new one.
func replace(file string, document []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*") // with mode 0600
	if err != nil {
		return err
	}
	_, err = tmp.Write(document)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}

// whereToReport is the file that the plan report goes to, "" for none. That it cannot be written is a warning: neither a plan nor an
// apply needs it.
func (p *gpuProvider) whereToReport(m model, diags *diag.Diagnostics) string {
	to, at := m.PlanReport.ValueString(), path.Root("plan_report")
	if m.PlanReport.IsNull() {
		to, at = os.Getenv(EnvPlanReport), path.Empty()
	}
	if to == "" {
		return ""
	}
	info, err := os.Stat(to)
	switch {
	case err == nil && info.IsDir():
		to = filepath.Join(to, configurationName(m)+".json")
	case err == nil && !info.Mode().IsRegular():
		diags.AddAttributeWarning(at, notReported, fmt.Sprintf("Found: %s is neither a file nor a directory.\nFix: Name one of these.", to))
		return ""
	}
	folder := filepath.Dir(to)
	if strings.HasSuffix(to, "/") || strings.HasSuffix(to, string(filepath.Separator)) {
		folder = to
	}
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		diags.AddAttributeWarning(at, notReported, fmt.Sprintf("Found: There is no directory %s.\nFix: Make it, or name another file.", folder))
		return ""
	}
	if whole, err := filepath.Abs(to); err == nil {
		to = whole
	}
	return to
}

// configurationName names a provider configuration in a directory of reports: by its owner, and by a digest of how its hosts are
// reached, without secrets. Terraform tells a provider no alias.
func configurationName(m model) string {
	name := strings.Trim(strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_.", r)) {
			return r
		}
		return '-'
	}, m.Owner.ValueString()), "-.")
	sum := sha256.New()
	fmt.Fprintf(sum, "%q %q %q\n", m.Owner.ValueString(), m.SimulatedFleet.ValueString(), m.InventorySnapshot.ValueString())
	hosts := m.Hosts.Elements()
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		fmt.Fprintf(sum, "%q", host)
		ways, _ := hosts[host].(types.Object)
		for _, way := range []string{"simulated", "ssh", "tls"} {
			of, _ := ways.Attributes()[way].(types.Object)
			for _, part := range []string{"file", "address", "port"} {
				if v, ok := of.Attributes()[part]; ok {
					fmt.Fprintf(sum, " %s", v)
				}
			}
		}
		fmt.Fprintln(sum)
	}
	return cmp.Or(name, "gpu") + "-" + hex.EncodeToString(sum.Sum(nil))[:8]
}
