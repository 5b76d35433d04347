package mpsconf_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/mpsconf"
)

const (
	one   = "GPU-00000000-0000-4000-8000-000000000001"
	two   = "GPU-00000000-0000-4000-8000-000000000002"
	slice = "MIG-00000000-0000-4000-8000-000000000003"
	mib   = gpu.MiB
)

func TestValidate(t *testing.T) {
	limit := func(id string, b gpu.Bytes) func(*mpsconf.Spec) {
		return func(s *mpsconf.Spec) { s.PinnedMemory = map[string]gpu.Bytes{id: b} }
	}
	for _, tt := range []struct {
		name   string
		change func(*mpsconf.Spec)
		valid  bool
	}{
		{"as it is", func(*mpsconf.Spec) {}, true},
		{"a MIG device", func(s *mpsconf.Spec) { s.Devices = []string{slice} }, true},
		{"a MIG device and more", func(s *mpsconf.Spec) { s.Devices = []string{slice, one} }, false},
		{"no device", func(s *mpsconf.Spec) { s.Devices = nil }, false},
		{"a device by its number", func(s *mpsconf.Spec) { s.Devices = []string{"0"} }, false},
		{"a device that is two", func(s *mpsconf.Spec) { s.Devices = []string{one + "," + two} }, false},
		{"a device twice", func(s *mpsconf.Spec) { s.Devices = []string{one, one} }, false},
		{"no name", func(s *mpsconf.Spec) { s.Name = "" }, false},
		{"a path for a name", func(s *mpsconf.Spec) { s.Name = "../x" }, false},
		{"a specifier for a name", func(s *mpsconf.Spec) { s.Name = "x%i" }, false},
		{"nobody", func(s *mpsconf.Spec) { s.User = nil }, false},
		{"one and several users", func(s *mpsconf.Spec) { s.MultiUser = true }, false},
		{"several users", func(s *mpsconf.Spec) { s.User, s.MultiUser = nil, true }, true},
		{"user -1", func(s *mpsconf.Spec) { s.User = new(-1) }, false},
		{"12.5 %", func(s *mpsconf.Spec) { s.ActiveThreadPercentage = 12.5 }, true},
		{"0.1 %", func(s *mpsconf.Spec) { s.ActiveThreadPercentage = 0.1 }, true},
		{"33.3 %", func(s *mpsconf.Spec) { s.ActiveThreadPercentage = 33.3 }, true},
		{"33.33 %", func(s *mpsconf.Spec) { s.ActiveThreadPercentage = 33.33 }, false},
		{"-1 %", func(s *mpsconf.Spec) { s.ActiveThreadPercentage = -1 }, false},
		{"101 %", func(s *mpsconf.Spec) { s.ActiveThreadPercentage = 101 }, false},
		{"priority 1", func(s *mpsconf.Spec) { s.ClientPriority = 1 }, true},
		{"priority 2", func(s *mpsconf.Spec) { s.ClientPriority = 2 }, false},
		{"4 GiB", limit(one, 4096*mib), true},
		{"900 MiB", limit(one, 900*mib), true},
		{"1536 MiB", limit(one, 1536*mib), false},
		{"half a MiB", limit(one, mib/2), false},
		{"a limit for another device", limit(two, 1024*mib), false},
		{"limits that differ", func(s *mpsconf.Spec) {
			s.Devices, s.PinnedMemory = []string{one, two}, map[string]gpu.Bytes{one: 1024 * mib, two: 2048 * mib}
		}, true},
		{"a limit for some devices", func(s *mpsconf.Spec) {
			s.Devices, s.PinnedMemory = []string{one, two}, map[string]gpu.Bytes{one: 1024 * mib}
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := mpsconf.Spec{Name: "a", Devices: []string{one}, User: new(0)}
			tt.change(&s)
			if err := s.Validate(); (err == nil) != tt.valid {
				t.Error(err)
			}
		})
	}
}

func TestRoundLimit(t *testing.T) {
	for b, want := range map[gpu.Bytes]gpu.Bytes{
		0: 0, mib / 2: 0, 900*mib + 1: 900 * mib, 1023 * mib: 1023 * mib, 1024 * mib: 1024 * mib, 1536 * mib: 1024 * mib,
		144384 * mib: 141 * 1024 * mib,
	} {
		if got := gpu.RoundMPSLimit(b); got != want {
			t.Errorf("gpu.RoundMPSLimit(%d) is %d, and %d was wanted", b, got, want)
		}
	}
}
