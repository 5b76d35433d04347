package provider_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestVGPULifecycle(t *testing.T) {
	t.Parallel()
	r := newRig(t, kvm(l40s(0), l40s(1)))
	text, number := knownvalue.StringExact, knownvalue.Int64Exact
	r.steps(
		resource.TestStep{
			Config: r.block() + vgpuOf("desks", fourDesks),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectKnownValue(desks, jsonpath("id"), text("desks")), plancheck.ExpectKnownValue(desks, jsonpath("isolation"), text("memory")),
				plancheck.ExpectUnknownValue(desks, jsonpath("gpus")),
			}},
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(desks, jsonpath("gpus", "kvm01", vgpuCard(0), "layout"), text("vgpu:4xL40S-12Q")),
				statecheck.ExpectKnownValue(desks, jsonpath("gpus", "kvm01", vgpuCard(1), "instances"), knownvalue.Null()),
				statecheck.ExpectKnownValue(desks, jsonpath("gpus", "kvm01", vgpuCard(1), "vgpus"), knownvalue.ListSizeExact(4)),
				statecheck.ExpectKnownValue(desks, jsonpath("gpus", "kvm01", vgpuCard(1), "vgpus", 3), knownvalue.ObjectExact(map[string]knownvalue.Check{
					"type": text("L40S-12Q"), "function": number(3), "address": knownvalue.NotNull(), "uuid": knownvalue.Null(),
				})),
				statecheck.ExpectKnownValue(desks, jsonpath("partition_vram_mib"), knownvalue.Null()),
				statecheck.ExpectKnownValue(desks, jsonpath("drift"), knownvalue.ListSizeExact(0)),
			},
			Check: then(func() {
				r.wantVGPUs("on L40S-12Q@0 L40S-12Q@1 L40S-12Q@2 L40S-12Q@3", 0, 1)
				r.wantClaims([]string{"kvm01"}, "partition_config desks")
				r.wantSettled()
				r.holds(1, r.placed(1, "L40S-12Q", 3), "web-01")
			}),
		},
		resource.TestStep{ // what is held is what stays
			Config:           r.block() + vgpuOf("desks", twoDesks),
			ConfigPlanChecks: planned(desks, plancheck.ResourceActionUpdate),
			Check: then(func() {
				r.wantVGPUs("on L40S-12Q@0 L40S-12Q@1", 0)
				r.wantVGPUs("on L40S-12Q@0 L40S-12Q@3", 1)
				r.must(r.fleet.ReleaseVGPU(t.Context(), "kvm01", vgpuCard(1), r.placed(1, "L40S-12Q", 3)))
			}),
		},
		resource.TestStep{ // two sizes switch heterogeneous mode on
			Config: r.block() + vgpuOf("desks", mixedDesk),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(desks, jsonpath("gpus", "kvm01", vgpuCard(0), "layout"), text("vgpu:2xL40S-12Q+1xL40S-24Q")),
			},
			Check: then(func() {
				for n := range 2 {
					if s := r.vgpu(n).State(); !s.Heterogeneous || !cmp.Equal(gpu.VGPUCounts(s.Places), map[string]int{"L40S-24Q": 1, "L40S-12Q": 2}) {
						t.Errorf("%s has %q", vgpuCard(n), r.vgpus(n))
					}
				}
			}),
		},
		resource.TestStep{
			Config: r.block() + vgpuOf("desks", `type = "L40S-48Q", heterogeneous = false`),
			Check:  then(func() { r.wantVGPUs("on L40S-48Q@0", 0, 1) }),
		},
		resource.TestStep{ // no vGPUs
			Config: r.block() + vgpuOf("desks", `types = {}`),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(desks, jsonpath("gpus", "kvm01", vgpuCard(0), "layout"), text("vgpu:none")),
			},
			Check: then(func() { r.wantVGPUs("off", 0, 1) }),
		},
		resource.TestStep{Config: r.block() + vgpuOf("desks", `type = "NVIDIA L40S-24Q"`)},
	)
	r.wantVGPUs("on L40S-24Q@0 L40S-24Q@1", 0, 1) // on_destroy = keep
	r.wantClaims([]string{"kvm01"})
	r.wantSettled()
}

func TestVGPUsAreMediatedDevicesWhereTheDriverMakesThese(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		card         gpu.GPU
		layout, want string
		function     knownvalue.Check
	}{
		"on virtual functions": {l40s(0), twoDesks, "on L40S-12Q@0 L40S-12Q@1", knownvalue.Int64Exact(1)},
		"on the GPU itself":    {p40(0), `type = "P40-8Q", count = 2`, "off P40-8Q@-1 P40-8Q@-1", knownvalue.Null()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, kvm(test.card))
			r.mediated(0)
			r.steps(resource.TestStep{
				Config: r.block() + vgpuOf("desks", test.layout),
				ConfigStateChecks: []statecheck.StateCheck{
					statecheck.ExpectKnownValue(desks, jsonpath("gpus", "kvm01", vgpuCard(0), "vgpus", 1), knownvalue.ObjectPartial(map[string]knownvalue.Check{
						"function": test.function, "uuid": knownvalue.NotNull(),
					})),
				},
				Check: then(func() { r.wantVGPUs(test.want, 0) }),
			})
		})
	}
}

func TestVGPUInUseIsInTheWayAtPlan(t *testing.T) {
	t.Parallel()
	r := newRig(t, kvm(l40s(0), l40s(1)))
	c := newCLI(t, r.block()+vgpuOf("desks", fourDesks))
	c.apply()
	release := r.holds(1, r.placed(1, "L40S-12Q", 2), "web-01")
	c.wantNoChanges() // who holds a vGPU is no difference
	before := r.file()
	c.write(r.block() + vgpuOf("desks", `type = "L40S-24Q"`, `max_disruption = "gpu_reset"`))
	wantSaid(t, c.fails("plan"), "vGPUs in use are in the way", vgpuCard(1), "VM web-01", "Rule: vgpu-in-use")
	r.wantUntouched(before)
	// The levels of rules do not lift what the host itself refuses.
	c.write(r.block(`rules = { vgpu-in-use = "off" }`) + vgpuOf("desks", `type = "L40S-24Q"`))
	wantSaid(t, c.fails("apply", "-auto-approve"), "VM web-01")
	r.wantVGPUs("on L40S-12Q@0 L40S-12Q@1 L40S-12Q@2 L40S-12Q@3", 0, 1)
	r.wantSettled()
	release()
	c.write(r.block() + vgpuOf("desks", `type = "L40S-24Q"`))
	c.apply()
	r.wantVGPUs("on L40S-24Q@0 L40S-24Q@1", 0, 1)
	c.wantNoChanges()
}

func TestVGPUIsRestoredOnDestroy(t *testing.T) {
	t.Parallel()
	r := newRig(t, kvm(l40s(0), l40s(1)))
	r.must(r.fleet.SetVirtualFunctionsOutside(t.Context(), "kvm01", vgpuCard(1), true))
	r.must(r.fleet.CreateVGPUOutside(t.Context(), "kvm01", vgpuCard(1), gpu.VGPUPlace{Type: "L40S-24Q", Function: 5}))
	c := newCLI(t, r.block()+vgpuOf("desks", fourDesks, `on_destroy = "restore"`))
	wantSaid(t, c.ok("plan"), "kvm01, GPU "+vgpuCard(0)+" (NVIDIA L40S): virtual functions are switched on; creates 4 × L40S-12Q")
	c.apply()
	release := r.holds(0, r.placed(0, "L40S-12Q", 1), "web-01")
	wantSaid(t, c.fails("destroy", "-auto-approve"), "VM web-01", `on_destroy = "keep"`)
	r.wantVGPUs("on L40S-12Q@0 L40S-12Q@1 L40S-12Q@2 L40S-12Q@3", 0)
	c.write(r.block() + vgpuOf("desks", fourDesks, `on_destroy = "restore"`, onCards(1)))
	wantSaid(t, c.ok("plan"), "Warning: The former vGPUs cannot be put back", vgpuCard(0), "VM web-01")
	release()
	c.destroy()
	r.wantVGPUs("off", 0)
	r.wantVGPUs("on L40S-24Q@5", 1)
	r.wantClaims([]string{"kvm01"})
	r.wantSettled()
}

func TestFailedVGPUChangeIsPutBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, kvm(l40s(0), l40s(1)))
	c := newCLI(t, r.block()+vgpuOf("desks", twoDesks))
	c.apply()
	r.fail("kvm01", simulated.OpCreateVGPU, "L40S-24Q@1", 1, 1) // on the second GPU
	c.write(r.block() + vgpuOf("desks", `type = "L40S-24Q"`))
	wantSaid(t, c.fails("apply", "-auto-approve"), "injected by the test", "Rolled back: kvm01")
	r.wantVGPUs("on L40S-12Q@0 L40S-12Q@1", 0, 1)
	r.wantSettled()
	c.apply()
	r.wantVGPUs("on L40S-24Q@0 L40S-24Q@1", 0, 1)
	c.wantNoChanges()
}

func TestVirtualFunctionsNeedAnIdleGPU(t *testing.T) {
	t.Parallel()
	r := newRig(t, kvm(l40s(0)))
	pid, err := r.fleet.StartProcess(t.Context(), "kvm01", vgpuCard(0), nil, gpu.Process{Name: "python", Holder: "container 3f2a"})
	r.must(err)
	before := r.file()
	c := newCLI(t, r.block()+vgpuOf("desks", twoDesks))
	wantSaid(t, c.fails("plan"), "Processes use GPUs whose virtual functions are switched", "python, container 3f2a", "`quiesce_units`", "Rule: vgpu-in-use")
	r.wantUntouched(before)
	r.must(r.fleet.StopProcess(t.Context(), "kvm01", pid))
	c.apply()
	r.wantVGPUs("on L40S-12Q@0 L40S-12Q@1", 0)
}

// From MIG mode a GPU has to be brought back first, so that the two are of different GPUs.
func TestChangeFromMIGToVGPUReplacesTheConfig(t *testing.T) {
	t.Parallel()
	s := hgx(h100, 1)
	s.Hosts = append(s.Hosts, kvm(l40s(0)).Hosts...)
	r := newRig(t, s)
	inPlace := func(body string) string { return strings.ReplaceAll(body, `"desks"`, `"ml"`) }
	r.steps(
		resource.TestStep{Config: r.block() + migOf("ml", halves)},
		resource.TestStep{
			Config:           r.block() + inPlace(vgpuOf("desks", twoDesks)),
			ConfigPlanChecks: planned(ml, plancheck.ResourceActionReplace),
			Check: then(func() {
				r.wantVGPUs("on L40S-12Q@0 L40S-12Q@1", 0)
				r.wantClaims([]string{"kvm01"}, "partition_config ml")
				r.wantClaims([]string{"hgx01"})
			}),
		},
	)
}

func TestBadVGPUConfigIsAnErrorAtPlan(t *testing.T) {
	t.Parallel()
	onP40 := func(layout string) string { return vgpuOf("desks", layout, onCards(2)) }
	onL40S := func(layout string, more ...string) string {
		return vgpuOf("desks", layout, append(more, onCards(0, 1))...)
	}
	for name, test := range map[string]struct{ config, want string }{
		"no such type":            {onL40S(`type = "L40-12Q"`), "There is no vGPU type L40-12Q: the GPU offers L40S-2Q, L40S-12C, L40S-12Q, L40S-24Q and L40S-48Q"},
		"two sizes, not the mode": {onL40S(mixedDesk + ", heterogeneous = false"), "Rule: vgpu-same-framebuffer"},
		"two sizes, no mode":      {onP40(`types = { "P40-4Q" = 1, "P40-8Q" = 1 }`), "has no heterogeneous mode"},
		"too many":                {onL40S(`type = "L40S-12Q", count = 5`), "Rule: vgpu-capacity"},
		"MIG-backed":              {vgpuOf("desks", `type = "H100-1-10C"`, onCards(3)), "MIG-backed"},
		"MIG mode":                {vgpuOf("desks", `type = "H100-40C"`, onCards(3)), "The GPU is in MIG mode"},
		"both ways":               {onL40S(twoDesks + `, types = { "L40S-12Q" = 2 }`), "2 attributes specified when one (and only one)"},
		"neither way":             {onL40S("heterogeneous = true"), "No attribute specified when one (and only one)"},
		"count of types":          {onL40S(`types = { "L40S-12Q" = 2 }, count = 2`), `Attribute "vgpu.type" must be specified when "vgpu.count" is specified`},
		"count of none":           {onL40S(`type = "L40S-12Q", count = 0`), "Attribute vgpu.count value must be between 1 and 1024, got: 0"},
		"types of none":           {onL40S(`types = { "L40S-12Q" = 0 }`), `Attribute vgpu.types["L40S-12Q"] value must be between 1 and 1024, got: 0`},
		"empty type":              {onL40S(`type = ""`), "Attribute vgpu.type string length must be at least 1, got: 0"},
		"two kinds":               {onL40S(twoDesks, "mig = { "+halves+" }"), "Exactly one of these attributes must be configured: [gpu_p,mig,vgpu,mps,time_slicing]"},
		"Hyper-V":                 {strings.Replace(vgpuOf("desks", twoDesks), "kvm01", "hv01", 1), `Host "hv01" is a Hyper-V host`},
		"no vGPUs":                {strings.Replace(vgpuOf("desks", twoDesks), "kvm01", "hgx01", 1), "(its driver offers no vGPUs)"},
		"two configs of one GPU":  {onL40S(twoDesks) + vgpuOf("more", twoDesks, onCards(1)), "one-config-per-gpu"},
		"two kinds on one GPU":    {vgpuOf("desks", `type = "H100-40C"`, onCards(3)) + strings.ReplaceAll(migOf("ml", halves, onCards(3)), "hgx01", "kvm01"), "one-config-per-gpu"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := kvm(l40s(0), l40s(1), p40(2))
			both := migCard(9, h100)
			both.ID, both.MIG.Enabled, both.MIG.Pending = vgpuCard(3), true, true
			both.VGPU = &gpu.VGPU{Functions: 32, Types: []gpu.VGPUType{
				{Name: "H100-40C", FrameBuffer: 40 * 1024 * gpu.MiB, Max: 2}, {Name: "H100-1-10C", FrameBuffer: 10 * 1024 * gpu.MiB, Max: 7, MIGProfile: "1g.10gb"},
			}}
			s.Hosts[0].GPUs = append(s.Hosts[0].GPUs, both)
			s.Hosts = slices.Concat(s.Hosts, hgx(h100, 1).Hosts, []gpu.Host{node("hv01")})
			r := newRig(t, s)
			before := r.file()
			r.steps(resource.TestStep{Config: r.block() + test.config, PlanOnly: true, ExpectError: says(test.want)})
			r.wantUntouched(before)
		})
	}
}
