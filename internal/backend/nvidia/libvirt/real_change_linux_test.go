package libvirt_test

import (
	"context"
	"regexp"
	"slices"
	"testing"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/libvirt"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/test/libvirtd"
)

// TestRealChanges changes VMs of libvirt's own daemon and QEMU. Without VFIO no VM starts with a vGPU there: that its start is refused is
// seen, and all else on VMs without one.
func TestRealChanges(t *testing.T) {
	d := libvirtd.Start(t)
	o := libvirt.Options{Patience: time.Minute}.In(d.Root())
	d.Define("web-01", devicesOfOthers)
	d.Define("plain", "")
	look := func() libvirt.Machines {
		t.Helper()
		m, err := libvirt.Look(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	id := func(name string) string {
		t.Helper()
		vms := look().VMs
		return vms[slices.IndexFunc(vms, func(vm gpu.VM) bool { return vm.Name == name })].ID
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	refused := func(err error, codes ...backend.Code) {
		t.Helper()
		if !backend.Is(err, codes...) {
			t.Errorf("the error is %v, want one of the codes %v", err, codes)
		}
	}
	names := func(want ...string) {
		t.Helper()
		var got []string
		for _, x := range look().Devices {
			got = append(got, x.VM+" "+x.ID())
		}
		if !slices.Equal(got, want) {
			t.Errorf("definitions name %v, want %v", got, want)
		}
	}
	if m := look().Manager; m == nil || m.Name != gpu.Libvirt || m.Version < "1" {
		t.Errorf("the manager is %+v", m)
	}
	web, plain := id("web-01"), id("plain")
	xml := func(name string) (text string) {
		d.Do(name, func(virt *golibvirt.Libvirt, vm golibvirt.Domain) (err error) {
			text, err = virt.DomainGetXMLDesc(vm, golibvirt.DomainXMLInactive)
			return err
		})
		return ports.ReplaceAllString(text, "")
	}
	before := xml("web-01")

	// by our alias, twice, over a restart of the daemon, and beside another writer
	for range 2 {
		must(libvirt.Attach(t.Context(), o, web, ours(false)))
	}
	names("web-01 " + alias)
	refused(libvirt.Attach(t.Context(), o, web, gpu.HostDevice{Address: "0000:41:00.4", Alias: alias + "b"}), backend.InUse)
	refused(libvirt.Attach(t.Context(), o, web, ours(true)), backend.InUse)
	d.Attach("web-01", mediated)
	d.Restart("KILL")
	names("web-01 "+mdevUUID, "web-01 "+alias)
	refused(libvirt.Start(t.Context(), o, web), backend.Failed) // there is no VFIO here
	must(libvirt.Detach(t.Context(), o, web, mdevUUID))
	for range 2 {
		must(libvirt.Detach(t.Context(), o, web, alias))
	}
	names()
	if after := xml("web-01"); after != before {
		t.Errorf("the definition is another one:\n%s\nit was:\n%s", after, before)
	}

	// power: SeaBIOS hears no request, and libvirt says that all is done
	must(libvirt.Start(t.Context(), o, plain))
	refused(libvirt.Attach(t.Context(), o, plain, ours(true)), backend.InvalidState)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	refused(libvirt.ShutDown(ctx, o, plain), backend.Timeout)
	refused(libvirt.Start(t.Context(), o, plain), backend.InvalidState)
	d.Restart("TERM") // after which the request is known still
	if state, err := libvirt.State(t.Context(), o, plain); state != gpu.VMStopping || err != nil {
		t.Errorf("it is %s, error %v", state, err)
	}
	must(libvirt.TurnOff(t.Context(), o, plain))
	must(libvirt.ShutDown(t.Context(), o, plain))
	must(libvirt.Start(t.Context(), o, plain))
	if state, err := libvirt.State(t.Context(), o, plain); state != gpu.VMRunning || err != nil {
		t.Errorf("it is %s, error %v: the request ended with the VM", state, err)
	}

	// a managed save, and a transient VM
	d.Save("plain")
	refused(libvirt.Attach(t.Context(), o, plain, ours(true)), backend.InvalidState)
	refused(libvirt.TurnOff(t.Context(), o, plain), backend.InvalidState)
	must(libvirt.Start(t.Context(), o, plain))
	d.Do("plain", func(virt *golibvirt.Libvirt, vm golibvirt.Domain) error { return virt.DomainUndefineFlags(vm, 0) })
	if vms := look().VMs; !slices.ContainsFunc(vms, func(vm gpu.VM) bool { return vm.Name == "plain" && vm.Transient }) {
		t.Errorf("the VMs are %+v", vms)
	}
	refused(libvirt.Attach(t.Context(), o, plain, ours(true)), backend.InvalidState)
	d.Do("plain", func(virt *golibvirt.Libvirt, vm golibvirt.Domain) error { return virt.DomainDestroy(vm) })
	refused(libvirt.Attach(t.Context(), o, plain, ours(true)), backend.NotFound)
}

// ports are what libvirt adds for a device to be plugged in, and leaves.
var ports = regexp.MustCompile(`(?s)\s*<controller type='pci' index='\d+' model='pcie-root-port'>.*?</controller>`)

// devicesOfOthers are devices of others, which stay.
const devicesOfOthers = `<serial type='null'/><rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>`
