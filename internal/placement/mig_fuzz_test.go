package placement_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// FuzzPlaceMIG makes tables, instances and wishes of any bytes: nothing panics, nothing
// takes for ever, and what is planned passes the check of placements.
func FuzzPlaceMIG(f *testing.F) {
	f.Add([]byte{3, 1, 7, 0, 2, 3, 0, 4, 2, 0, 1, 0, 1, 1})
	f.Add([]byte{255, 255, 0, 1, 128, 64, 200, 3, 3, 3, 9, 9})
	f.Fuzz(func(t *testing.T, data []byte) {
		next := func() int {
			if len(data) == 0 {
				return 0
			}
			b := int(int8(data[0]))
			data = data[1:]
			return b
		}
		names := []string{"1g.5gb", "1g.5gb+me", "2g.10gb-me", "3g.20gb+me.all", "4g.20gb+gfx", "", "1g.5gb"}
		name := func() string { return names[(next()&0xff)%len(names)] }
		var profiles []gpu.MIGProfile
		for range next() & 7 {
			p := gpu.MIGProfile{Name: name(), Max: next(), Size: next()}
			for range next() & 7 {
				p.Starts = append(p.Starts, next())
			}
			profiles = append(profiles, p)
		}
		var have []placement.MIGInstance
		var layout []gpu.MIGPlacement
		for range next() & 7 {
			h := placement.MIGInstance{MIGPlacement: gpu.MIGPlacement{Profile: name(), Start: next()}, Size: next()}
			if next()&1 == 1 {
				h.Held = "a process"
			}
			have = append(have, h)
			layout = append(layout, h.MIGPlacement)
		}
		want := map[string]int{}
		for range next() & 7 {
			want[name()] += next()
		}
		plan, err := placement.PlaceMIG(profiles, have, want)
		if err != nil {
			_ = err.Error()
		} else if len(plan.Keep)+len(plan.Remove) != len(have) {
			t.Errorf("of %d instances %d are kept and %d removed", len(have), len(plan.Keep), len(plan.Remove))
		}
		if plan, err := placement.FollowMIG(profiles, have, layout); err == nil && plan.Changes() {
			t.Errorf("what stands already is changed: %+v", plan)
		}
	})
}

func BenchmarkPlaceMIG(b *testing.B) {
	for _, bb := range []struct {
		name, model string
		have        []placement.MIGInstance
		want        map[string]int
	}{
		{"7 slices, empty", "H100 PCIe", nil, map[string]int{"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}},
		{"7 slices, 7x1g there", "H100 PCIe", []placement.MIGInstance{
			idle("1g.10gb", 0), idle("1g.10gb", 1), idle("1g.10gb", 2), idle("1g.10gb", 3), idle("1g.10gb", 4),
			idle("1g.10gb", 5), idle("1g.10gb", 6),
		}, map[string]int{"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}},
		{"4 of 12 slices", "RTX PRO 6000", nil, map[string]int{"1g.24gb": 1, "1g.24gb+me": 1, "1g.24gb+gfx": 1, "1g.24gb-me": 1}},
		{"4 slices", "A30", nil, map[string]int{"1g.6gb": 2, "2g.12gb": 1}},
		{"2 slices", "RTX PRO 4500 Blackwell", nil, map[string]int{"1g.16gb": 1, "1g.16gb+gfx": 1}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			profiles := migOf(b, bb.model)
			for b.Loop() {
				if _, err := placement.PlaceMIG(profiles, bb.have, bb.want); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("7 slices, slowest set", func(b *testing.B) {
		m, _ := catalog.ByName("H100 PCIe")
		want := map[string]int{"1g.10gb": 3, "1g.10gb+me": 1, "1g.20gb": 1}
		for b.Loop() {
			if _, err := placement.PlaceMIG(m.MIG.Profiles, nil, want); err != nil {
				b.Fatal(err)
			}
		}
	})
}
