package vgpu_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/vgpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/vgpu/vgputest"
)

// small leaves a card few functions: most of the time goes into making their files.
func small(c vgputest.Card) vgputest.Card {
	c.VFs = min(c.VFs, 3)
	return c
}

// layouts are what a card may be asked for, nothing included.
func layouts(c vgputest.Card) *rapid.Generator[vgpu.Layout] {
	return rapid.Custom(func(t *rapid.T) vgpu.Layout {
		l := vgpu.Layout{Types: map[string]int{}}
		for _, name := range rapid.SliceOfN(rapid.SampledFrom(c.Types), 0, 2).Draw(t, "types") {
			l.Types[name.ShortName()] = rapid.IntRange(1, 3).Draw(t, "count")
		}
		if rapid.Bool().Draw(t, "say the mode") {
			l.Heterogeneous = flag(rapid.Bool().Draw(t, "mode"))
		}
		return l
	})
}

// From any layout to any other: what Plan gives the platform takes, in its order; what
// it leads to is what was wanted; a second plan is empty; and a change that is cut off
// after any step, or in it, is put back by the inverses to what was there before.
func TestPlansHoldOnTheHost(t *testing.T) {
	cards := []vgputest.Card{small(l40s()), small(h200()), small(a40()), p40()}
	rapid.Check(t, func(rt *rapid.T) {
		card := rapid.SampledFrom(cards).Draw(rt, "card")
		k := vgputest.New(t, card)
		h := k.Host()
		from, to := layouts(card).Draw(rt, "from"), layouts(card).Draw(rt, "to")
		first, err := vgpu.Plan(read(t, h), from)
		if err != nil {
			rt.Skip(err)
		}
		if err := k.Apply(h, first); err != nil {
			rt.Fatal(err)
		}
		before := vgpu.Save(read(t, h))
		steps, err := vgpu.Plan(read(t, h), to)
		if err != nil {
			rt.Skip(err)
		}
		done := rapid.IntRange(0, len(steps)).Draw(rt, "cut after")
		if err := k.Apply(h, steps[:done]); err != nil {
			rt.Fatalf("%v: %v", texts(steps), err)
		}
		if done == len(steps) {
			g := read(t, h)
			if len(to.Types) > 0 && !cmp.Equal(g.Layout().Types, to.Types) {
				rt.Fatalf("has %v, wanted %v", g.Layout().Types, to.Types)
			}
			if again, err := vgpu.Plan(g, to); err != nil || len(again) > 0 {
				rt.Fatalf("a second plan: %v, %v", texts(again), err)
			}
		}
		// The step that was cut off may have run or not.
		for _, s := range slices.Backward(steps[:min(done+1, len(steps))]) {
			if err := k.Run(t.Context(), h, *s.Inverse); err != nil {
				rt.Fatalf("put back %q: %v", s, err)
			}
		}
		if d := cmp.Diff(before, vgpu.Save(read(t, h)), cmpopts.EquateEmpty()); d != "" {
			rt.Fatalf("put back to something else: %s", d)
		}
	})
}

// No sequence of plans takes a vGPU from a VM that holds it.
func TestPlansNeverTearAVM(t *testing.T) {
	cards := []vgputest.Card{small(l40s()), small(h200()), small(a40())}
	rapid.Check(t, func(rt *rapid.T) {
		card := rapid.SampledFrom(cards).Draw(rt, "card")
		k := vgputest.New(t, card)
		h := k.Host()
		held := ""
		for i := range 3 {
			l := layouts(card).Draw(rt, fmt.Sprintf("layout %d", i))
			if steps, err := vgpu.Plan(read(t, h), l); err == nil {
				if err := k.Apply(h, steps); err != nil {
					rt.Fatal(err)
				}
			}
			g := read(t, h)
			for _, f := range g.Functions {
				if len(f.VGPUs) == 0 || held != "" || !rapid.Bool().Draw(rt, "hold") {
					continue
				}
				if held = f.VGPUs[0].UUID; held == "" {
					held = f.Address
				}
				k.HoldVM(500, held, "vm")
			}
		}
		if strings.Contains(strings.Join(k.Events(), "\n"), "torn") {
			rt.Fatalf("events: %v", k.Events())
		}
	})
}

// After a reboot each vGPU is where it was.
func TestRestoreAfterAnyLayout(t *testing.T) {
	cards := []vgputest.Card{small(l40s()), small(h200()), small(a40()), p40()}
	rapid.Check(t, func(rt *rapid.T) {
		card := rapid.SampledFrom(cards).Draw(rt, "card")
		k := vgputest.New(t, card)
		h := k.Host()
		for _, step := range []string{"first", "second"} {
			steps, err := vgpu.Plan(read(t, h), layouts(card).Draw(rt, step))
			if err != nil {
				rt.Skip(err)
			}
			if err := k.Apply(h, steps); err != nil {
				rt.Fatal(err)
			}
		}
		saved := vgpu.Save(read(t, h))
		k.Reboot()
		if saved.MIG && rapid.Bool().Draw(rt, "MIG mode is lost too") { // as on Hopper
			if err := k.SetMIGMode(address, false); err != nil {
				rt.Fatal(err)
			}
		}
		steps, err := vgpu.Restore(read(t, h), saved)
		if err != nil {
			rt.Fatal(err)
		}
		if err := k.Apply(h, steps); err != nil {
			rt.Fatalf("%v: %v", texts(steps), err)
		}
		g := read(t, h)
		if d := cmp.Diff(saved, vgpu.Save(g), cmpopts.EquateEmpty()); d != "" {
			rt.Fatal(d)
		}
		if again, err := vgpu.Restore(g, saved); err != nil || len(again) > 0 {
			rt.Fatalf("a second restore: %v, %v", texts(again), err)
		}
	})
}
