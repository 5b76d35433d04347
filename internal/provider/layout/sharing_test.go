package layout_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/layout"
)

func user(id int) *int { return &id }

func TestMPSRoundTrips(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]*gpu.MPSLayout{
		"none":       nil,
		"root":       {User: user(0)},
		"multi user": {MultiUser: true, ComputeMode: gpu.ComputeDefault},
		"partitions": {User: user(1000), PerGPU: true, StaticPartitions: true},
		"all": {
			User: user(1000), ActiveThreadPercentage: 12.5, PinnedMemoryLimit: 4096 * gpu.MiB, ComputeMode: gpu.ComputeExclusiveProcess,
			Oversubscription: 1.5,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var diags diag.Diagnostics
			got := layout.DecodeMPS(layout.EncodeMPS(t.Context(), want, &diags), &diags)
			check(t, diags, want, got)
		})
	}
}

func TestTimeSlicingRoundTrips(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]*gpu.TimeSlicing{
		"none":     nil,
		"replicas": {Replicas: 2},
		"all":      {Replicas: 4, Interval: gpu.TimeSliceLong, Oversubscription: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var diags diag.Diagnostics
			got := layout.DecodeTimeSlicing(layout.EncodeTimeSlicing(t.Context(), want, &diags), &diags)
			check(t, diags, want, got)
		})
	}
}

func check(t *testing.T, diags diag.Diagnostics, want, got any) {
	t.Helper()
	if diags.HasError() {
		t.Fatal(diags)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the layout came back changed (-want +got):\n%s", diff)
	}
}

// The daemon keeps one digit after the point and takes 0 for no limit.
func TestPercentage(t *testing.T) {
	t.Parallel()
	for value, ok := range map[types.Float64]bool{
		types.Float64Null(): true, types.Float64Unknown(): true, types.Float64Value(0.1): true, types.Float64Value(33.3): true,
		types.Float64Value(100): true,
		types.Float64Value(0):   false, types.Float64Value(-1): false, types.Float64Value(100.1): false,
		types.Float64Value(101): false, types.Float64Value(33.33): false,
	} {
		t.Run(value.String(), func(t *testing.T) {
			t.Parallel()
			var diags diag.Diagnostics
			for _, v := range layout.PercentageValidators() {
				resp := validator.Float64Response{}
				v.ValidateFloat64(t.Context(), validator.Float64Request{Path: path.Root("active_thread_percentage"), ConfigValue: value}, &resp)
				diags.Append(resp.Diagnostics...)
			}
			if diags.HasError() == ok {
				t.Errorf("diagnostics are %v, want any: %v", diags, !ok)
			}
		})
	}
}
