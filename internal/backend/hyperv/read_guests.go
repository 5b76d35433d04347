package hyperv

import (
	"context"
	"encoding/xml"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// guestName is the item in which the integration services of a guest tell its name.
const guestName = "OSName"

// guests reads the operating systems of the guests. A name that cannot be read is one that
// is not known, as of a guest without integration services: nothing hangs on it.
func (r *reader) guests(ctx context.Context) error {
	runs := func(id string) bool { vm, ok := r.host.VM(id); return ok && vm.State == gpu.VMRunning }
	if len(r.only) > 0 && !slices.ContainsFunc(r.only, runs) {
		return nil // only a running guest tells its name
	}
	rows, err := r.wmi.Query(ctx, Virtualization, "SELECT * FROM Msvm_KvpExchangeComponent"+
		r.ofVMs(func(id string) string { return "SystemName=" + literal(id) }), "SystemName", "GuestIntrinsicExchangeItems")
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	for _, row := range rows {
		vm, ok := r.host.VM(row.String("SystemName"))
		if !ok || vm.State != gpu.VMRunning {
			continue
		}
		for _, text := range row.Strings("GuestIntrinsicExchangeItems") {
			if name, data := exchangeItem(text); name == guestName {
				vm.Guest = strings.TrimPrefix(data, "Microsoft ")
			}
		}
	}
	return nil
}

// exchangeItem reads an embedded Msvm_KvpExchangeDataItem.
func exchangeItem(text string) (name, data string) {
	var item struct {
		Properties []struct {
			Name  string `xml:"NAME,attr"`
			Value string `xml:"VALUE"`
		} `xml:"PROPERTY"`
	}
	if err := xml.Unmarshal([]byte(text), &item); err != nil {
		return "", ""
	}
	for _, p := range item.Properties {
		switch p.Name {
		case "Name":
			name = p.Value
		case "Data":
			data = p.Value
		}
	}
	return name, data
}
