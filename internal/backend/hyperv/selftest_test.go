package hyperv_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpufleet/terraform-provider-gpu/internal/assumptions"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// seldom are the assumptions that the host of TestSelfTest has nothing for.
var seldom = map[string]bool{"hyperv-gpu-p-counts": true}

// Each question is answered or says why it could not be asked, whatever became of the
// others. Nothing is changed.
func TestSelfTest(t *testing.T) {
	t.Parallel()
	r := newRig(t, inCluster, onHost(withDevice), onHost(running))
	r.seated(beta)
	before := r.host()
	found, asked := map[string]string{}, []string{}
	for _, a := range r.backend.SelfTest(t.Context()) {
		asked = append(asked, a.Assumption)
		if a.Err != nil {
			t.Errorf("%s: %v", a.Assumption, a.Err)
		}
		if a.Holds != nil && !*a.Holds {
			t.Errorf("%s does not hold: %s", a.Assumption, a.Found)
		}
		if a.Holds == nil && !seldom[a.Assumption] {
			t.Errorf("%s: nothing to see it by: %s", a.Assumption, a.Found)
		}
		found[a.Assumption] = a.Found
	}
	same(t, before, r.host())
	var wanted []string
	for _, a := range assumptions.Of(gpu.HyperV) {
		if a.Asked {
			wanted = append(wanted, a.ID)
		}
	}
	if d := cmp.Diff(wanted, asked, cmpopts.SortSlices(strings.Compare)); d != "" {
		t.Errorf("assumptions of the list and those that are asked (-list +asked):\n%s", d)
	}
	all := strings.Join([]string{found["hyperv-location-path"], found["hyperv-partition-path"], found["hyperv-offline-action"]}, "\n")
	for _, word := range []string{gpuA, "status partitioned", interfaceClass, "OfflineAction 1"} {
		if !strings.Contains(all, word) {
			t.Errorf("the answers do not say %q:\n%s", word, all)
		}
	}

	r.machine.Deny(hyperv.MSCluster)
	denied := 0
	for _, a := range r.backend.SelfTest(t.Context()) {
		if a.Err != nil {
			refuses(t, a.Err, backend.AccessDenied, "Grant-ClusterAccess")
			denied++
		}
	}
	if denied == 0 || denied == len(found) {
		t.Errorf("%d of %d questions could not be asked", denied, len(found))
	}
}

// A host on which the agent would be wrong says no.
func TestSelfTestSaysNo(t *testing.T) {
	t.Parallel()
	for id, other := range map[string]map[string]any{
		"hyperv-partition-path": {
			"DeviceInstancePath": `\\?\PCI#VEN_10DE&DEV_25B6&SUBSYS_00000000&REV_A1#9&0&0&0009#{064092b3-625e-43bf-9eb5-dc845897dd59}`,
		},
		"hyperv-partition-rows": {"SystemName": alpha},
	} {
		r := newRig(t)
		r.seated(beta)
		r.wire.change(func(w *wire) {
			w.rows = func(wql string, rows []hyperv.Row) []hyperv.Row {
				if strings.HasPrefix(wql, "SELECT * FROM Msvm_GpuPartition") && !strings.Contains(wql, "SettingData") {
					for i := range rows {
						maps.Copy(rows[i].Values, other)
					}
				}
				return rows
			}
		})
		said := false
		for _, a := range r.backend.SelfTest(t.Context()) {
			if a.Assumption == id {
				said = a.Holds != nil && !*a.Holds
				if !said {
					t.Errorf("%s: holds %v, %q, %v", id, a.Holds, a.Found, a.Err)
				}
			}
		}
		if !said {
			t.Errorf("%s is not refuted", id)
		}
	}
}

// A trial answers what only a change shows, and leaves the host as it was: a VM that ran runs,
// one that was off is off. With any of its calls failing, too.
func TestSelfTestChange(t *testing.T) {
	t.Parallel()
	for name, given := range map[string]func(*gpu.Host){"running": running, "off": func(*gpu.Host) {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fresh := func() *rig {
				return newRig(t, inCluster, onHost(func(h *gpu.Host) {
					h.VMs[0].Settings.OfflineAction = ptr(gpu.OfflineSave)
				}), onHost(given))
			}
			r := fresh()
			before := r.host()
			settled := map[string]bool{}
			for _, a := range r.backend.SelfTestChange(t.Context(), "alpha", gpuA) {
				if a.Err != nil {
					t.Errorf("%s%s: %v", a.Step, a.Assumption, a.Err)
				}
				settled[a.Assumption] = settled[a.Assumption] || a.Holds != nil
			}
			same(t, before, r.host())
			for _, a := range assumptions.Of(gpu.HyperV) {
				if a.Tried && !settled[a.ID] && (name == "running" || a.ID != "hyperv-cluster-state") {
					t.Errorf("%s is not settled", a.ID)
				}
			}
			for _, method := range []string{
				"AddResourceSettings", "ModifyResourceSettings", "RemoveResourceSettings", "ModifySystemSettings",
				"CreatePool", "ModifyPoolResources", "DismountAssignableDevice",
			} {
				r := fresh()
				before := r.host()
				r.machine.FailJob(method, 32768, "no")
				r.backend.SelfTestChange(t.Context(), alpha, gpuA)
				same(t, before, r.host())
			}
		})
	}
	r := newRig(t, onHost(withAdapter))
	before := r.host()
	for _, c := range [][2]string{{"alpha", gpuA}, {"beta", gpuC}, {"nobody", gpuA}, {"beta", "PCIROOT(1)"}} {
		answers := r.backend.SelfTestChange(t.Context(), c[0], c[1])
		if len(answers) != 1 || answers[0].Err == nil {
			t.Errorf("%v: %+v", c, answers)
		}
	}
	same(t, before, r.host())
}
