package mps_test

import (
	"reflect"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/mps"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const (
	one   = "GPU-00000000-0000-4000-8000-000000000001"
	two   = "GPU-00000000-0000-4000-8000-000000000002"
	slice = "MIG-00000000-0000-4000-8000-000000000003"
	mib   = gpu.MiB
)

func TestValidate(t *testing.T) {
	limit := func(id string, b gpu.Bytes) func(*mps.Spec) {
		return func(s *mps.Spec) { s.PinnedMemory = map[string]gpu.Bytes{id: b} }
	}
	for _, tt := range []struct {
		name   string
		change func(*mps.Spec)
		v2, v3 bool // whether it is valid
	}{
		{"as it is", func(*mps.Spec) {}, true, true},
		{"a MIG device", func(s *mps.Spec) { s.Devices = []string{slice} }, true, true},
		{"a MIG device and more", func(s *mps.Spec) { s.Devices = []string{slice, one} }, false, false},
		{"no device", func(s *mps.Spec) { s.Devices = nil }, false, false},
		{"a device by its number", func(s *mps.Spec) { s.Devices = []string{"0"} }, false, false},
		{"a device that is two", func(s *mps.Spec) { s.Devices = []string{one + "," + two} }, false, false},
		{"a device twice", func(s *mps.Spec) { s.Devices = []string{one, one} }, false, false},
		{"no name", func(s *mps.Spec) { s.Name = "" }, false, false},
		{"a path for a name", func(s *mps.Spec) { s.Name = "../x" }, false, false},
		{"a specifier for a name", func(s *mps.Spec) { s.Name = "x%i" }, false, false},
		{"nobody", func(s *mps.Spec) { s.User = nil }, false, false},
		{"one and several users", func(s *mps.Spec) { s.MultiUser = true }, false, false},
		{"several users", func(s *mps.Spec) { s.User, s.MultiUser = nil, true }, true, true},
		{"user -1", func(s *mps.Spec) { s.User = new(-1) }, false, false},
		{"12.5 %", func(s *mps.Spec) { s.ActiveThreadPercentage = 12.5 }, true, true},
		{"0.1 %", func(s *mps.Spec) { s.ActiveThreadPercentage = 0.1 }, true, true},
		{"33.3 %", func(s *mps.Spec) { s.ActiveThreadPercentage = 33.3 }, true, true},
		{"33.33 %", func(s *mps.Spec) { s.ActiveThreadPercentage = 33.33 }, false, false},
		{"-1 %", func(s *mps.Spec) { s.ActiveThreadPercentage = -1 }, false, false},
		{"101 %", func(s *mps.Spec) { s.ActiveThreadPercentage = 101 }, false, false},
		{"priority 1", func(s *mps.Spec) { s.ClientPriority = 1 }, true, true},
		{"priority 2", func(s *mps.Spec) { s.ClientPriority = 2 }, false, false},
		{"4 GiB", limit(one, 4096*mib), true, true},
		{"900 MiB", limit(one, 900*mib), true, true},
		{"1536 MiB", limit(one, 1536*mib), false, true},
		{"half a MiB", limit(one, mib/2), false, false},
		{"a limit for another device", limit(two, 1024*mib), false, false},
		{"limits that differ", func(s *mps.Spec) {
			s.Devices, s.PinnedMemory = []string{one, two}, map[string]gpu.Bytes{one: 1024 * mib, two: 2048 * mib}
		}, true, false},
		{"a limit for some devices", func(s *mps.Spec) {
			s.Devices, s.PinnedMemory = []string{one, two}, map[string]gpu.Bytes{one: 1024 * mib}
		}, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := mps.Spec{Name: "a", Devices: []string{one}, User: new(0)}
			tt.change(&s)
			for p, want := range map[mps.Protocol]bool{mps.V2: tt.v2, mps.V3: tt.v3} {
				if err := s.Validate(p); (err == nil) != want {
					t.Errorf("protocol %d: %v", p, err)
				}
			}
		})
	}
}

func TestRoundLimit(t *testing.T) {
	for b, want := range map[gpu.Bytes]gpu.Bytes{
		0: 0, mib / 2: 0, 900*mib + 1: 900 * mib, 1023 * mib: 1023 * mib, 1024 * mib: 1024 * mib, 1536 * mib: 1024 * mib, 144384 * mib: 141 * 1024 * mib,
	} {
		if got := gpu.RoundMPSLimit(b); got != want {
			t.Errorf("gpu.RoundMPSLimit(%d) is %d, and %d was wanted", b, got, want)
		}
	}
}

func TestProtocolOf(t *testing.T) {
	for driver, want := range map[string]mps.Protocol{
		"": mps.V2, "535.261.03": mps.V2, "614.99": mps.V2, "615.12.01": mps.V3, "700.1": mps.V3, "unknown": mps.V2,
	} {
		if got := mps.ProtocolOf(driver); got != want {
			t.Errorf("ProtocolOf(%q) is %d", driver, got)
		}
	}
}

func TestConfiguration(t *testing.T) {
	s := mps.Spec{Name: "team-a", Devices: []string{one, two}, User: new(1000), Settings: mps.Settings{
		ActiveThreadPercentage: 12.5, ClientPriority: 1, PinnedMemory: map[string]gpu.Bytes{one: 1536 * mib, two: 1536 * mib},
	}}
	data, err := s.Configuration()
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := toml.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"schema_version": "1.0", "servers": map[string]any{"team_a": map[string]any{
		"allowed_devices": one + "," + two, "pinned_memory_limit": "1536M", "active_thread_percentage": "12.5", "client_priority": "1", "uid": int64(1000),
	}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the file says\n%v\nand\n%v\nwas wanted", got, want)
	}

	// What is not limited is not there.
	s.User, s.MultiUser, s.Settings = nil, true, mps.Settings{}
	if data, err = s.Configuration(); err != nil {
		t.Fatal(err)
	}
	got = nil
	if err := toml.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	want = map[string]any{"schema_version": "1.0", "servers": map[string]any{"team_a": map[string]any{
		"allowed_devices": one + "," + two, "active_thread_percentage": "100", "client_priority": "0",
	}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the file says\n%v\nand\n%v\nwas wanted", got, want)
	}
}
