package libvirt_test

import (
	"strings"
	"testing"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/libvirt"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/test/libvirtd"
)

// TestRealDefinitions reads libvirt's own daemon. It takes any device into a definition, whether it is there or
// not and whoever else names it.
func TestRealDefinitions(t *testing.T) {
	d := libvirtd.Start(t)
	read := func(want ...gpu.HostDevice) {
		t.Helper()
		got, err := libvirt.Read(t.Context(), libvirt.Options{Patience: time.Minute}.In(d.Root()))
		if err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(want, got, cmpopts.IgnoreFields(gpu.HostDevice{}, "VMID"), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("the devices are otherwise (-want +got):\n%s", diff)
		}
		for _, h := range got {
			if len(h.VMID) != len(mdevUUID) || strings.Count(h.VMID, "-") != 4 {
				t.Errorf("%s has the id %q, which is no UUID", h.VM, h.VMID)
			}
		}
	}
	at := func(vm string, state gpu.VMState) gpu.HostDevice {
		return gpu.HostDevice{VM: vm, State: state, Address: "0000:41:00.4"}
	}
	mdev := func(vm string, state gpu.VMState) gpu.HostDevice {
		return gpu.HostDevice{VM: vm, State: state, UUID: mdevUUID}
	}
	read()
	d.Define("plain", "")
	read()
	d.Define("web-01", function+mediated)
	d.Define("web-02", function)
	off := []gpu.HostDevice{mdev("web-01", gpu.VMOff), at("web-01", gpu.VMOff), at("web-02", gpu.VMOff)}
	read(off...)

	d.Run("plain")
	d.Attach("plain", mediated)
	read(append([]gpu.HostDevice{mdev("plain", gpu.VMRunning)}, off...)...)
	d.Save("plain")
	saved := append([]gpu.HostDevice{mdev("plain", gpu.VMSaved)}, off...)
	read(saved...)
	d.Restart("TERM") // after which the reason of its state is "unknown"
	read(saved...)
	d.Restart("KILL")
	read(saved...)
	d.Run("plain") // it is restored with the devices of before
	read(append([]gpu.HostDevice{mdev("plain", gpu.VMRunning)}, off...)...)
	d.Do("plain", func(virt *golibvirt.Libvirt, vm golibvirt.Domain) error { return virt.DomainDestroy(vm) })
	read(append([]gpu.HostDevice{mdev("plain", gpu.VMOff)}, off...)...)
	d.Undefine("web-01")
	d.Undefine("plain")
	read(at("web-02", gpu.VMOff))
}

// TestRealManyDefinitions has a reading be over long before its time is: a hundred VMs take no second.
func TestRealManyDefinitions(t *testing.T) {
	d := libvirtd.Start(t)
	const many = 100
	for i := range many {
		d.Define("web-"+strings.Repeat("i", i+1), function)
	}
	start := time.Now()
	got, err := libvirt.Read(t.Context(), libvirt.Options{Patience: time.Minute}.In(d.Root()))
	if err != nil || len(got) != many {
		t.Errorf("read %d devices, error %v, want %d", len(got), err, many)
	}
	t.Logf("%d VMs in %s", many, time.Since(start))
}
