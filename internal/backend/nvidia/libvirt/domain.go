package libvirt

import (
	"encoding/xml"
	"fmt"
	"strconv"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// domain is what of a VM's definition is of interest.
type domain struct {
	XMLName xml.Name `xml:"domain"`
	Hostdev []struct {
		Type    string `xml:"type,attr"`
		Managed string `xml:"managed,attr"`
		Alias   *struct {
			Name string `xml:"name,attr"`
		} `xml:"alias"`
		Source struct {
			Address *struct {
				UUID     string `xml:"uuid,attr"`
				Domain   string `xml:"domain,attr"`
				Bus      string `xml:"bus,attr"`
				Slot     string `xml:"slot,attr"`
				Function string `xml:"function,attr"`
			} `xml:"address"`
		} `xml:"source"`
	} `xml:"devices>hostdev"`
}

// definitionError is why a definition cannot be read.
type definitionError struct{ why string }

func (e *definitionError) Error() string { return e.why }

// parse are the mediated devices and the PCI functions that a definition names.
func parse(text string) ([]gpu.HostDevice, error) {
	var d domain
	if err := xml.Unmarshal([]byte(text), &d); err != nil {
		return nil, &definitionError{why: "it is no XML of a VM: " + gpu.Said(err.Error(), mostOfText)}
	}
	var out []gpu.HostDevice
	for _, dev := range d.Hostdev {
		at, is := dev.Source.Address, gpu.HostDevice{Managed: dev.Managed == "yes"}
		if dev.Alias != nil {
			is.Alias = gpu.Printable(dev.Alias.Name)
		}
		switch {
		case dev.Type != "pci" && dev.Type != "mdev":
		case at == nil, dev.Type == "mdev" && at.UUID == "":
			return nil, &definitionError{why: "a hostdev of type " + dev.Type + " has no address"}
		case dev.Type == "mdev":
			is.UUID, is.Managed = gpu.Printable(at.UUID), false // which means nothing to it
			out = append(out, is)
		default:
			var numbers [4]any
			for i, text := range []string{at.Domain, at.Bus, at.Slot, at.Function} {
				n, err := strconv.ParseUint(text, 0, 32)
				if err != nil && text != "" { // what is left out is 0
					return nil, &definitionError{why: fmt.Sprintf("a hostdev's PCI address has %q for a number", gpu.Said(text, mostOfText))}
				}
				numbers[i] = n
			}
			is.Address = fmt.Sprintf("%04x:%02x:%02x.%x", numbers[:]...)
			out = append(out, is)
		}
	}
	return out, nil
}
