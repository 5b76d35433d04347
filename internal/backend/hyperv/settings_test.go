package hyperv_test

import (
	"context"
	"slices"
	"strings"
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
	refuses(t, r.backend.ApplyVMSettings(t.Context(), alpha, withOfflineAction()), backend.AccessDenied, "MSCluster_Resource", "Grant-ClusterAccess")
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
	refuses(t, r.backend.ApplyVMSettings(t.Context(), alpha, withOfflineAction()), backend.AccessDenied, "could not be put back", "ModifySystemSettings")
}

func TestSettingsThatNeedTheVMOff(t *testing.T) {
	t.Parallel()
	for _, state := range []gpu.VMState{gpu.VMRunning, gpu.VMPaused, gpu.VMSaved, gpu.VMStarting, gpu.VMOther} {
		r := newRig(t, inCluster, onHost(func(h *gpu.Host) { h.VMs[0].State = state }))
		before := r.host()
		for _, s := range []gpu.VMSettings{
			{LowMemoryMappedIOSpace: ptr(3072 * gpu.MiB)}, {HighMemoryMappedIOSpace: ptr(3072 * gpu.MiB)}, {GuestControlledCache: ptr(true)}, withOfflineAction(),
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

// All else that a VM's settings hold goes back as it was.
func TestOtherSettingsGoBackUntouched(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.run(r.backend.ApplyVMSettings(t.Context(), alpha, someSettings))
	text, _ := r.wire.called("ModifySystemSettings")[0].in["SystemSettings"].(string)
	for _, kept := range []string{
		`NAME="InstanceID"`, "<VALUE>Microsoft:" + alpha + "</VALUE>", "<VALUE>Microsoft:Hyper-V:SubType:2</VALUE>", `NAME="SecureBootEnabled"`,
		`NAME="AutomaticStartupAction"`, "<VALUE>33280</VALUE>", "<VALUE>3072</VALUE>",
	} {
		if !strings.Contains(text, kept) {
			t.Errorf("the settings are written without %s", kept)
		}
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
