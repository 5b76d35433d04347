package hyperv_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Access that is denied says to what, and which right would have granted it.
func TestAccessDeniedToTheInventory(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		denied string
		part   gpu.Part
		says   []string
	}{
		{hyperv.CIMv2, gpu.PartGPUs, []string{`root\cimv2`, "Enable Account"}},
		{hyperv.Registry, gpu.PartPolicies, []string{`root\default`, "StdRegProv", "Enable Account"}},
		{hyperv.MSCluster, gpu.PartCluster, []string{`root\MSCluster`, "Grant-ClusterAccess"}},
		{"MSCluster_Node", gpu.PartCluster, []string{"MSCluster_Node", `root\MSCluster`, "Grant-ClusterAccess"}},
		{"Msvm_ComputerSystem", gpu.PartVMs, []string{"Msvm_ComputerSystem", "Hyper-V Administrators"}},
		{"Msvm_PartitionableGpu", gpu.PartGPUs, []string{"Msvm_PartitionableGpu", `root\virtualization\v2`}},
		{"Msvm_GpuPartitionSettingData", gpu.PartVMs, []string{"Msvm_GpuPartitionSettingData"}},
		{"Win32_PnPEntity", gpu.PartGPUs, []string{"Win32_PnPEntity", `root\cimv2`}},
		{"Win32_PnPEntity.GetDeviceProperties", gpu.PartGPUs, []string{"GetDeviceProperties of Win32_PnPEntity", "Administrators"}},
		{"StdRegProv.GetDWORDValue", gpu.PartPolicies, []string{"GetDWORDValue of StdRegProv", `root\default`}},
	} {
		t.Run(c.denied, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, inCluster)
			r.machine.Deny(c.denied)
			h := r.host()
			wantUnknown(t, h, c.part, append(c.says, "access denied (0x80041003)")...)
			if h.Name != "hv01" && c.denied != hyperv.CIMv2 {
				t.Errorf("the host is called %q", h.Name)
			}
			r.machine.Allow(c.denied)
			if h := r.host(); len(h.Unknown) > 0 {
				t.Errorf("granted, it does not know %v", h.Unknown)
			}
		})
	}
	t.Run("all of Hyper-V", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, inCluster)
		r.machine.Deny(hyperv.Virtualization)
		_, err := r.backend.Inventory(t.Context())
		refuses(t, err, backend.AccessDenied, `root\virtualization\v2`, "Hyper-V Administrators", "access denied (0x80041003)")
	})
}

// wantUnknown checks that a host says that it could not read a part, and why.
func wantUnknown(t *testing.T, h gpu.Host, part gpu.Part, words ...string) {
	t.Helper()
	for _, u := range h.Unknown {
		all := u.Part == part
		for _, word := range words {
			all = all && strings.Contains(u.Why, word)
		}
		if all {
			return
		}
	}
	t.Errorf("nothing says of %s %q: %v", part, words, h.Unknown)
}

func TestAccessDeniedToAMethod(t *testing.T) {
	t.Parallel()
	for _, o := range operations() {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			r := o.rig(t)
			before := r.host()
			r.machine.Deny(o.class + "." + o.method)
			err := o.do(t.Context(), r.backend)
			right := "Hyper-V Administrators"
			if o.in {
				right = "Grant-ClusterAccess"
			}
			refuses(t, err, backend.AccessDenied, right, o.class)
			same(t, before, r.host())
			if o.void {
				return
			}
			// Hyper-V says the same with a return value, or when the job has begun.
			r.machine.Allow(o.class + "." + o.method)
			r.machine.Answer(o.method, 32769)
			refuses(t, o.do(t.Context(), r.backend), backend.AccessDenied, o.method, "access denied (32769)", "Hyper-V Administrators")
			same(t, before, r.host())
			r.machine.FailJob(o.method, 32769, "General access denied error")
			refuses(t, o.do(t.Context(), r.backend), backend.AccessDenied, o.method, "(32769)", "Hyper-V Administrators")
			same(t, before, r.host())
		})
	}
}

func TestAccessDeniedByWindows(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.machine.Answer("GetDWORDValue", 5)
	wantUnknown(t, r.host(), gpu.PartPolicies, `SOFTWARE\Policies\Microsoft\Windows\HyperV`, "HKEY_LOCAL_MACHINE")
	for _, refusal := range []func(){
		func() { r.machine.Answer("Disable", 5) },
		func() { r.machine.Deny("Win32_PnPEntity.Disable") },
	} {
		refusal()
		refuses(t, r.backend.DismountDevice(t.Context(), gpuA, false), backend.AccessDenied, "Disable", "Administrators")
	}
	if g := r.gpu(gpuA); g.Dismounted || g.Problem != "" {
		t.Errorf("the GPU is %+v", g)
	}
	dcom := &hyperv.Fault{Code: hyperv.DCOMDenied, Op: "connect"}
	r.wire.change(func(w *wire) { w.get = func(string) error { return dcom } })
	refuses(t, r.backend.SetPartitionCount(t.Context(), gpuA, 8), backend.AccessDenied, "0x80070005", "Local Activation")
	if dcom.Namespace != "" {
		t.Error("a fault of the seam was changed")
	}
}

// Hyper-V shows nothing to an account without rights. That is not a host without VMs,
// and a VM that is not shown is not gone.
func TestAnAccountWithoutRights(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.machine.Unprivileged()
	_, err := r.backend.Inventory(t.Context())
	refuses(t, err, backend.AccessDenied, "Msvm_ComputerSystem", "Hyper-V Administrators")
	refuses(t, r.backend.StartVM(t.Context(), alpha), backend.AccessDenied, "Hyper-V Administrators")
}

// same checks that a host is as it was.
func same(t *testing.T, before, after gpu.Host) {
	t.Helper()
	if diff := cmp.Diff(before, after, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("a refused call changed the host (-before +after):\n%s", diff)
	}
}
