package libvirt_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/libvirt"
	fakelibvirt "github.com/gpufleet/terraform-provider-gpu/internal/fake/libvirt"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const alias = "ua-gpu-0123456789ab"

func (h *host) options() libvirt.Options { return libvirt.Options{Patience: time.Minute}.In(h.root) }

// ours is the function or the mediated device of the fixtures as an assignment writes it.
func ours(mediated bool) gpu.HostDevice {
	if mediated {
		return gpu.HostDevice{UUID: mdevUUID, Alias: alias}
	}
	return gpu.HostDevice{Address: "0000:41:00.4", Alias: alias}
}

func running(d fakelibvirt.Domain) fakelibvirt.Domain {
	d.State = fakelibvirt.Running
	return d
}

// names are the devices of web-01 as a reading has them, each by its id.
func (h *host) names(t *testing.T) []string {
	t.Helper()
	found, err := h.read(t)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, d := range found {
		out = append(out, d.ID())
	}
	return out
}

// A device is in the stored definition once it was attached, and nothing else of that has changed; however the daemon answers.
func TestAttachAndDetach(t *testing.T) {
	for name, mediated := range map[string]bool{"a function": false, "a mediated device": true} {
		for how, lie := range map[string]fakelibvirt.Lie{
			"": fakelibvirt.Honest, ", interrupted": fakelibvirt.Interrupted, ", said to have failed": fakelibvirt.SaysFailed,
		} {
			t.Run(name+how, func(t *testing.T) {
				h := newHost(t).libvirtd(t, vm("web-01", 1, ""))
				before := h.monolithic.Domain("web-01").XML
				h.monolithic.Lie(lie)
				for range 2 { // twice is once
					if err := libvirt.Attach(t.Context(), h.options(), idOfFirst, ours(mediated)); err != nil {
						t.Fatal(err)
					}
				}
				if got := h.names(t); !slices.Equal(got, []string{alias}) {
					t.Errorf("the definition names %v", got)
				}
				if xml := h.monolithic.Domain("web-01").XML; !strings.Contains(xml, "managed='no'") {
					t.Errorf("the device is not unmanaged: %s", xml)
				}
				for range 2 {
					if err := libvirt.Detach(t.Context(), h.options(), idOfFirst, alias); err != nil {
						t.Fatal(err)
					}
				}
				if diff := gocmp.Diff(before, h.monolithic.Domain("web-01").XML); diff != "" {
					t.Errorf("the definition is another one (-before +after):\n%s", diff)
				}
				if got := h.monolithic.Changes(); !slices.Equal(got, []string{"attach", "detach"}) {
					t.Errorf("it was asked for %v", got)
				}
			})
		}
	}
}

// What a daemon says to be done and is not is an error.
func TestChangeIsReadBack(t *testing.T) {
	h := newHost(t).libvirtd(t, vm("web-01", 1, ""), vm("web-02", 2, mediated), running(vm("web-03", 3, "")), vm("web-04", 4, ""))
	h.monolithic.Lie(fakelibvirt.OnlySaysDone)
	id := func(n byte) string { return idOfFirst[:len(idOfFirst)-1] + string('0'+rune(n)) }
	for what, err := range map[string]error{
		"attach":   libvirt.Attach(t.Context(), h.options(), id(1), ours(false)),
		"detach":   libvirt.Detach(t.Context(), h.options(), id(2), mdevUUID),
		"turn off": libvirt.TurnOff(t.Context(), h.options(), id(3)),
		"start":    libvirt.Start(t.Context(), h.options(), id(4)),
	} {
		if !backend.Is(err, backend.Failed) || !strings.Contains(err.Error(), "libvirt said that it is done") {
			t.Errorf("%s: the error is %v", what, err)
		}
	}
}

// Nothing is changed of a VM that is not off, has no stored definition, or is not there.
func TestChangeIsRefused(t *testing.T) {
	saved, transient, other := vm("web-01", 1, ""), running(vm("web-01", 1, "")), vm("web-01", 1, "")
	saved.Saved, transient.Transient = true, true
	undefined := vm("web-01", 1, "")
	undefined.XML = ""
	other.XML = strings.Replace(other.XML, "</devices>", strings.Replace(function, "</source>", "</source><alias name='"+alias+"'/>", 1)+
		"</devices>", 1)
	for name, test := range map[string]struct {
		has  fakelibvirt.Domain
		code backend.Code
	}{
		"running":                {running(vm("web-01", 1, "")), backend.InvalidState},
		"saved":                  {saved, backend.InvalidState},
		"transient":              {transient, backend.InvalidState},
		"named already":          {vm("web-01", 1, mediated), backend.InUse},
		"the alias is another's": {other, backend.InUse},
		"no such VM":             {vm("web-02", 2, ""), backend.NotFound},
		"no definition":          {undefined, backend.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t).libvirtd(t, test.has)
			if err := libvirt.Attach(t.Context(), h.options(), idOfFirst, ours(true)); !backend.Is(err, test.code) {
				t.Errorf("the error is %v, want code %s", err, test.code)
			}
			if got := h.monolithic.Changes(); len(got) > 0 {
				t.Errorf("it was asked for %v", got)
			}
		})
	}
	if err := libvirt.Attach(t.Context(), newHost(t).options(), idOfFirst, ours(true)); !backend.Is(err, backend.Unavailable) {
		t.Errorf("without libvirt: %v", err)
	}
}

func TestPower(t *testing.T) {
	h := newHost(t).libvirtd(t, running(vm("web-01", 1, function)))
	for _, step := range []struct {
		does func(context.Context, libvirt.Options, string) error
		want gpu.VMState
	}{
		{libvirt.ShutDown, gpu.VMOff},
		{libvirt.ShutDown, gpu.VMOff},
		{libvirt.Start, gpu.VMRunning},
		{libvirt.Start, gpu.VMRunning},
		{libvirt.TurnOff, gpu.VMOff},
		{libvirt.TurnOff, gpu.VMOff},
	} {
		err := step.does(t.Context(), h.options(), idOfFirst)
		if state, stateErr := libvirt.State(t.Context(), h.options(), idOfFirst); err != nil || stateErr != nil || state != step.want {
			t.Errorf("it is %s (%v), error %v, want %s", state, stateErr, err, step.want)
		}
	}
	if got := h.monolithic.Changes(); !slices.Equal(got, []string{"shutdown", "create", "destroy"}) {
		t.Errorf("it was asked for %v", got)
	}
}

// A request to shut down cannot be taken back: a guest that has not heard it in time may go off later. Until then the VM counts as one
// that shuts down, for another process, too, and is not said to run; started it is once it is off.
func TestGuestThatGoesOffLate(t *testing.T) {
	late := running(vm("web-01", 1, function))
	late.Guest = fakelibvirt.Deaf
	h := newHost(t).libvirtd(t, late)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := libvirt.ShutDown(ctx, h.options(), idOfFirst); !backend.Is(err, backend.Timeout) {
		t.Fatalf("the error is %v, want a timeout", err)
	}
	if err := libvirt.Start(t.Context(), h.options(), idOfFirst); !backend.Is(err, backend.InvalidState) {
		t.Errorf("the VM is said to run: %v", err)
	}
	if state, err := libvirt.State(t.Context(), h.options(), idOfFirst); state != gpu.VMStopping || err != nil {
		t.Errorf("it is %s, error %v", state, err)
	}
	h.monolithic.Off("web-01")
	if err := libvirt.Start(t.Context(), h.options(), idOfFirst); err != nil {
		t.Error(err)
	}
	if state, err := libvirt.State(t.Context(), h.options(), idOfFirst); state != gpu.VMRunning || err != nil {
		t.Errorf("it is %s, error %v: the request ended with the VM", state, err)
	}
}

// A daemon that answers nobody, as at boot, is waited for as long as for a reading, and not as long as a VM may take to start.
func TestChangeOfADaemonThatHangs(t *testing.T) {
	h := newHost(t).libvirtd(t, vm("web-01", 1, function))
	h.monolithic.Hang()
	o := libvirt.Options{Patience: 50 * time.Millisecond}.In(h.root)
	for what, err := range map[string]error{
		"start": libvirt.Start(t.Context(), o, idOfFirst), "shut down": libvirt.ShutDown(t.Context(), o, idOfFirst),
		"attach": libvirt.Attach(t.Context(), o, idOfFirst, ours(true)),
	} {
		if !backend.Is(err, backend.Timeout) || !strings.Contains(err.Error(), "has not answered within 50ms") {
			t.Errorf("%s: the error is %v", what, err)
		}
	}
}

func TestLook(t *testing.T) {
	transient := running(vm("web-02", 2, ""))
	transient.Transient = true
	h := newHost(t).libvirtd(t, vm("web-01", 1, function), transient)
	got, err := libvirt.Look(t.Context(), h.options())
	if err != nil {
		t.Fatal(err)
	}
	want := libvirt.Machines{
		Manager: &gpu.VMManager{Name: gpu.Libvirt, Version: "11.3.0"},
		VMs: []gpu.VM{
			{ID: idOfFirst, Name: "web-01", State: gpu.VMOff},
			{ID: "ab000000-0000-0000-0000-000000000002", Name: "web-02", State: gpu.VMRunning, Transient: true},
		},
		Devices: []gpu.HostDevice{{VM: "web-01", VMID: idOfFirst, State: gpu.VMOff, Address: "0000:41:00.4"}},
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("the VMs are otherwise (-want +got):\n%s", diff)
	}
	if none, err := libvirt.Look(t.Context(), newHost(t).options()); err != nil || none.Manager != nil {
		t.Errorf("without libvirt there is %+v, error %v", none, err)
	}
}
