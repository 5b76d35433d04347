package libvirt_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/libvirt"
)

// FuzzDefinition has whatever a VM's definition is like read, or refused.
func FuzzDefinition(f *testing.F) {
	f.Add(vm("web-01", 1, function+mediated).XML)
	f.Add("<domain><devices><hostdev type='pci'><source><address bus='0xffffffff'/></source></hostdev></devices></domain>")
	f.Add("<domain xmlns:x='y'><x:devices/><devices/><devices><hostdev type='mdev'><source><address/></source></hostdev></devices></domain>")
	f.Fuzz(func(t *testing.T, text string) {
		devices, err := libvirt.Parse(text)
		if err != nil && devices != nil {
			t.Errorf("%q is refused (%v), and has the devices %+v", text, err, devices)
		}
		for _, d := range devices {
			if (d.Address == "") == (d.UUID == "") {
				t.Errorf("a device has neither an address nor a UUID, or both: %+v", d)
			}
		}
	})
}
