package hyperv_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// What else manages VMs or GPUs is known by its service, while that runs. What people declare counts
// before what is known.
func TestWhoElseManagesVMs(t *testing.T) {
	t.Parallel()
	broker, layout := gpu.BrokerController, gpu.LayoutController
	for name, test := range map[string]struct {
		services []string // that run
		stopped  string
		declared map[string]gpu.ControllerRole
		want     []gpu.Controller
	}{
		"nobody": {services: []string{"W3SVC"}},
		"both": {services: []string{"wssdagent", "SCVMMAgent"}, want: []gpu.Controller{
			{Name: "SCVMMAgent (Virtual Machine Manager)", Role: broker}, {Name: "wssdagent (Azure Local VMs)", Role: broker},
		}},
		"in other letters": {services: []string{"scvmmagent"}, want: []gpu.Controller{
			{Name: "SCVMMAgent (Virtual Machine Manager)", Role: broker},
		}},
		"stopped": {services: []string{"SCVMMAgent"}, stopped: "SCVMMAgent"},
		"Azure sets partition counts": {
			services: []string{"wssdagent"}, declared: map[string]gpu.ControllerRole{"WSSDAgent": layout},
			want: []gpu.Controller{{Name: "WSSDAgent", Role: layout}},
		},
		"a service of one's own": {
			services: []string{"O'Hara Desktops"}, declared: map[string]gpu.ControllerRole{"O'Hara Desktops": broker, "elsewhere": layout},
			want: []gpu.Controller{{Name: "O'Hara Desktops", Role: broker}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, onHost(func(h *gpu.Host) {
				for _, s := range test.services {
					h.Controllers = append(h.Controllers, gpu.Controller{Name: s})
				}
			}))
			r.wire.change(func(w *wire) {
				w.rows = func(_ string, rows []hyperv.Row) []hyperv.Row {
					for i := range rows {
						if test.stopped != "" && rows[i].String("Name") == test.stopped {
							rows[i].Values["State"] = "Stopped"
						}
					}
					return rows
				}
			})
			r.backend.WithControllers(test.declared)
			if diff := cmp.Diff(test.want, r.host().Controllers); diff != "" {
				t.Errorf("controllers (-want +got):\n%s", diff)
			}
		})
	}
}

// Services that cannot be asked for are said to be unknown, and hide nothing else.
func TestServicesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	whole := r.host()
	r.machine.Deny("Win32_Service")
	got := r.host()
	if !slices.ContainsFunc(got.Unknown, func(u gpu.Unknown) bool { return u.Part == gpu.PartHost }) {
		t.Errorf("what is unknown is %v", got.Unknown)
	}
	unknownNotAbsent(t, "Win32_Service", whole, got)
}

// What is looked for, people can read.
func TestThePageHasEachService(t *testing.T) {
	page, err := os.ReadFile("../../../templates/guides/who-owns-what.md.tmpl")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range hyperv.Services() {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("the page does not have %s", name)
		}
	}
}
