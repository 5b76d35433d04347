package hyperv_test

import (
	"context"
	"slices"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// withOfflineAction are all settings that a clustered VM has.
func withOfflineAction() gpu.VMSettings {
	s := someSettings
	s.OfflineAction = ptr(gpu.OfflineForcedShutdown)
	return s
}

// An inventory has every setting, which is what they were before a change.
func TestSettingsAreKnownBefore(t *testing.T) {
	t.Parallel()
	r := newRig(t, inCluster)
	want := gpu.VMSettings{
		LowMemoryMappedIOSpace: ptr(128 * gpu.MiB), HighMemoryMappedIOSpace: ptr(512 * gpu.MiB), GuestControlledCache: ptr(false),
		AutomaticStopAction: ptr(gpu.StopSave), OfflineAction: ptr(gpu.OfflineSave),
	}
	before := r.vm(alpha).Settings
	if !before.Differs(want).Empty() || !want.Differs(before).Empty() {
		t.Errorf("a VM that nobody configured has %+v", before)
	}
	r.run(r.backend.ApplyVMSettings(t.Context(), alpha, withOfflineAction()))
	if after := r.vm(alpha).Settings; !after.Differs(withOfflineAction()).Empty() {
		t.Errorf("it has %+v", after)
	}
	if bystander := r.vm(beta).Settings; !bystander.Differs(want).Empty() {
		t.Errorf("a bystander has %+v", bystander)
	}
	r.run(r.backend.ApplyVMSettings(t.Context(), alpha, before))
	if after := r.vm(alpha).Settings; !after.Differs(before).Empty() {
		t.Errorf("put back it has %+v", after)
	}
}

// Only what differs is written.
func TestSettingsThatAreAsAsked(t *testing.T) {
	t.Parallel()
	r := newRig(t, inCluster)
	r.run(r.backend.ApplyVMSettings(t.Context(), alpha, withOfflineAction()))
	n := len(r.wire.called("ModifySystemSettings"))
	r.machine.Deny("MSCluster_Resource.Put")
	r.run(r.fleet.SetVMState(t.Context(), alpha, gpu.VMRunning)) // nothing needs the VM off
	r.run(r.backend.ApplyVMSettings(t.Context(), alpha, withOfflineAction()))
	if now := len(r.wire.called("ModifySystemSettings")); now != n || n != 1 {
		t.Errorf("settings were written %d times, then %d", n, now-n)
	}
}

// What the cluster refuses takes back what Hyper-V had taken.
func TestTheOfflineActionIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, inCluster)
	r.run(r.backend.ApplyVMSettings(t.Context(), alpha, gpu.VMSettings{LowMemoryMappedIOSpace: ptr(1024 * gpu.MiB)}))
	before := r.host()
	r.machine.Deny("MSCluster_Resource.Put")
	refuses(t, r.backend.ApplyVMSettings(t.Context(), alpha, withOfflineAction()), backend.AccessDenied,
		"MSCluster_Resource", "Grant-ClusterAccess")
	same(t, before, r.host())
	if n := len(r.wire.called("ModifySystemSettings")); n != 3 {
		t.Errorf("settings were written %d times, want three: before, the change, and back", n)
	}
}

// A cluster that takes the call and does not do it is found out.
func TestTheOfflineActionIsNotTaken(t *testing.T) {
	t.Parallel()
	r := newRig(t, inCluster)
	before := r.host()
	stubborn := hyperv.New(&deafCluster{r.wire})
	refuses(t, stubborn.ApplyVMSettings(t.Context(), alpha, withOfflineAction()), backend.Failed, "the offline action 3 and still has 1")
	same(t, before, r.host())
}

func TestSettingsThatCannotBePutBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, inCluster)
	r.machine.Deny("MSCluster_Resource.Put")
	writes := 0
	r.wire.change(func(w *wire) {
		w.answer = func(method string, res hyperv.Result) hyperv.Result {
			if method == "ModifySystemSettings" {
				if writes++; writes == 1 {
					r.machine.FailJob(method, 32768, "not twice")
				}
			}
			return res
		}
	})
	r.machine.Synchronous("ModifySystemSettings")
	refuses(t, r.backend.ApplyVMSettings(t.Context(), alpha, withOfflineAction()), backend.AccessDenied,
		"could not be put back", "ModifySystemSettings")
}

func TestSettingsThatNeedTheVMOff(t *testing.T) {
	t.Parallel()
	for _, state := range []gpu.VMState{gpu.VMRunning, gpu.VMPaused, gpu.VMSaved, gpu.VMStarting, gpu.VMOther} {
		r := newRig(t, inCluster, onHost(func(h *gpu.Host) { h.VMs[0].State = state }))
		before := r.host()
		for _, s := range []gpu.VMSettings{
			{LowMemoryMappedIOSpace: ptr(3072 * gpu.MiB)},
			{HighMemoryMappedIOSpace: ptr(3072 * gpu.MiB)},
			{GuestControlledCache: ptr(true)},
			withOfflineAction(),
		} {
			refuses(t, r.backend.ApplyVMSettings(t.Context(), alpha, s), backend.InvalidState, string(state), "must be off")
		}
		same(t, before, r.host())
		if n := len(r.wire.called("ModifySystemSettings")); n != 0 {
			t.Errorf("%s: settings were written %d times", state, n)
		}
	}
	r := newRig(t, inCluster, onHost(running))
	anytime := gpu.VMSettings{AutomaticStopAction: ptr(gpu.StopShutDown), OfflineAction: ptr(gpu.OfflineShutDown)}
	r.run(r.backend.ApplyVMSettings(t.Context(), alpha, anytime))
	if s := r.vm(alpha).Settings; !s.Differs(anytime).Empty() {
		t.Errorf("the settings are %+v", s)
	}
}

// A write holds what changes and nothing else, whose value somebody may have changed since,
// and whose text would not come through XML as it was: line ends in a VM's notes.
func TestOtherSettingsAreNotWritten(t *testing.T) {
	t.Parallel()
	r := newRig(t, onHost(withAdapter))
	r.run(r.backend.ApplyVMSettings(t.Context(), alpha, gpu.VMSettings{AutomaticStopAction: ptr(gpu.StopShutDown)}),
		r.backend.SetPartitionQuotas(t.Context(), alpha, adapterID, gpu.Quotas{VRAM: gpu.Quota{Min: ptr(uint64(4000))}}))
	text, _ := r.wire.called("ModifySystemSettings")[0].in["SystemSettings"].(string)
	texts, _ := r.wire.called("ModifyResourceSettings")[0].in["ResourceSettings"].([]string)
	for got, want := range map[string]string{
		text: `<INSTANCE CLASSNAME="Msvm_VirtualSystemSettingData"><PROPERTY NAME="InstanceID" TYPE="string"><VALUE>Microsoft:` + alpha +
			`</VALUE></PROPERTY><PROPERTY NAME="AutomaticShutdownAction" TYPE="uint16"><VALUE>4</VALUE></PROPERTY></INSTANCE>`,
		texts[0]: `<INSTANCE CLASSNAME="Msvm_GpuPartitionSettingData"><PROPERTY NAME="InstanceID" TYPE="string"><VALUE>Microsoft:` +
			alpha + `\` + adapterID +
			`</VALUE></PROPERTY><PROPERTY NAME="MinPartitionVRAM" TYPE="uint64"><VALUE>4000</VALUE></PROPERTY></INSTANCE>`,
	} {
		if got != want {
			t.Errorf("what is written is\n%s, want\n%s", got, want)
		}
	}
}

// A figure that goes goes with its adapter, since a write without a value changes nothing;
// the pin and the other figures stay. What cannot be done leaves the VM with its adapter.
func TestQuotasThatGo(t *testing.T) {
	t.Parallel()
	vram, both := gpu.Quotas{VRAM: someQuotas.VRAM}, gpu.Quotas{VRAM: someQuotas.VRAM, Encode: gpu.Quota{Max: ptr(uint64(4))}}
	for _, left := range []gpu.Quotas{vram, {}} {
		r := newRig(t)
		a := pinnedTo(gpuB)
		a.Quotas = both
		id, err := r.backend.AddPartitionAdapter(t.Context(), alpha, a)
		r.run(err)
		before := r.host()
		r.machine.FailJob("RemoveResourceSettings", 32768, "no")
		refuses(t, r.backend.SetPartitionQuotas(t.Context(), alpha, id, left), backend.Failed, "(32768)")
		same(t, before, r.host())
		r.run(r.backend.SetPartitionQuotas(t.Context(), alpha, id, left))
		adapters := r.vm(alpha).PartitionAdapters
		if len(adapters) != 1 || adapters[0].PinnedGPU != gpuB || !adapters[0].Quotas.Equal(left) {
			t.Errorf("the adapters are %+v", adapters)
		}
	}
}

// A host that takes a write and does not do it is found out.
func TestWritesThatDoNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, onHost(withAdapter))
	left := 2
	for _, method := range []string{"ModifySystemSettings", "ModifyResourceSettings"} {
		b := hyperv.New(&deaf{r.wire, method, &left})
		err := b.ApplyVMSettings(t.Context(), alpha, someSettings)
		if method == "ModifyResourceSettings" {
			err = b.SetPartitionQuotas(t.Context(), alpha, adapterID, someQuotas)
		}
		refuses(t, err, backend.Failed, "the host took the")
	}
}

// deafCluster takes writes and does nothing.
type deafCluster struct{ hyperv.WMI }

func (d *deafCluster) Put(context.Context, string, string, map[string]any) error { return nil }

func TestAllStopAndOfflineActions(t *testing.T) {
	t.Parallel()
	r := newRig(t, inCluster)
	for _, stop := range []gpu.StopAction{gpu.StopTurnOff, gpu.StopShutDown, gpu.StopSave} {
		r.run(r.backend.ApplyVMSettings(t.Context(), alpha, gpu.VMSettings{AutomaticStopAction: &stop}))
		if s := r.vm(alpha).Settings; *s.AutomaticStopAction != stop {
			t.Errorf("the stop action is %s, want %s", *s.AutomaticStopAction, stop)
		}
	}
	actions := []gpu.OfflineAction{gpu.OfflineTurnOff, gpu.OfflineShutDown, gpu.OfflineForcedShutdown, gpu.OfflineSave}
	var got []gpu.OfflineAction
	for _, action := range actions {
		r.run(r.backend.ApplyVMSettings(t.Context(), beta, gpu.VMSettings{OfflineAction: &action}))
		got = append(got, *r.vm(beta).Settings.OfflineAction)
	}
	if !slices.Equal(got, actions) {
		t.Errorf("the offline actions are %v", got)
	}
}

// A resource that is online answers that a value was stored with an error. What the cluster
// has decides.
func TestAnOfflineActionThatIsStored(t *testing.T) {
	t.Parallel()
	for _, stored := range []bool{true, false} {
		r := newRig(t, inCluster, onHost(running))
		b := hyperv.New(&storing{r.wire, stored})
		err := b.ApplyVMSettings(t.Context(), alpha, gpu.VMSettings{OfflineAction: ptr(gpu.OfflineForcedShutdown)})
		now := r.vm(alpha).Settings.OfflineAction
		if stored {
			r.run(err)
		} else {
			refuses(t, err, backend.Failed, "0x800713A0")
		}
		if has := now != nil && *now == gpu.OfflineForcedShutdown; has != stored {
			t.Errorf("the offline action is %v", now)
		}
	}
}

// storing is a connection on which a write answers ERROR_RESOURCE_PROPERTIES_STORED.
type storing struct {
	hyperv.WMI
	stored bool
}

func (s *storing) Put(ctx context.Context, namespace, path string, set map[string]any) error {
	if s.stored {
		if err := s.WMI.Put(ctx, namespace, path, set); err != nil {
			return err
		}
	}
	return &hyperv.Fault{Code: 0x800713A0, Op: "put " + path}
}
