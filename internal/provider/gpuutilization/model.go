package gpuutilization

import "github.com/hashicorp/terraform-plugin-framework/types"

type model struct {
	Hosts      types.Set        `tfsdk:"hosts"`
	GPUIDs     types.Set        `tfsdk:"gpu_ids"`
	Window     types.String     `tfsdk:"window"`
	Prometheus *prometheusModel `tfsdk:"prometheus"`

	Utilization map[string]hostModel `tfsdk:"utilization"`
	Advice      []hostAdviceModel    `tfsdk:"advice"`
	Totals      *totalsModel         `tfsdk:"totals"`
	Silent      []string             `tfsdk:"unreachable_hosts"`
}

type prometheusModel struct {
	URL      types.String `tfsdk:"url"`
	Lookback types.String `tfsdk:"lookback"`
	Timezone types.String `tfsdk:"timezone"`
	// Token and Headers are read from the configuration, and never written to the state.
	Token   types.String `tfsdk:"bearer_token"`
	Headers types.Map    `tfsdk:"headers"`
}

type hostModel struct {
	WindowSeconds float64             `tfsdk:"window_seconds"`
	MeasuredAt    string              `tfsdk:"measured_at"`
	GPUs          map[string]gpuModel `tfsdk:"gpus"`
}

// useModel is what a GPU and an instance have in common.
type useModel struct {
	Allocated        float64        `tfsdk:"allocated_fraction"`
	Busy             *float64       `tfsdk:"busy_percent"`
	MemoryBusy       *float64       `tfsdk:"memory_busy_percent"`
	SMActivity       *float64       `tfsdk:"sm_activity_percent"`
	MemoryUsedMiB    *int64         `tfsdk:"memory_used_mib"`
	MemoryTotalMiB   *int64         `tfsdk:"memory_total_mib"`
	Idle             *bool          `tfsdk:"idle"`
	Oversubscription *float64       `tfsdk:"oversubscription_ratio"`
	Processes        []processModel `tfsdk:"processes"`
	Shares           []shareModel   `tfsdk:"shares"`
}

type gpuModel struct {
	useModel
	Model   string        `tfsdk:"model"`
	Used    *float64      `tfsdk:"used_fraction"`
	MIG     *migModel     `tfsdk:"mig"`
	History *historyModel `tfsdk:"history"`
	Advice  []adviceModel `tfsdk:"advice"`
}

type migModel struct {
	Slices        int64           `tfsdk:"compute_slices"`
	Allocated     int64           `tfsdk:"allocated_compute_slices"`
	Used          int64           `tfsdk:"used_compute_slices"`
	MemorySlices  int64           `tfsdk:"memory_slices"`
	FreeMemory    int64           `tfsdk:"free_memory_slices"`
	Unallocatable int64           `tfsdk:"unallocatable_memory_slices"`
	Instances     []instanceModel `tfsdk:"instances"`
}

type instanceModel struct {
	useModel
	Profile string `tfsdk:"profile"`
	Start   int64  `tfsdk:"start"`
}

type processModel struct {
	PID       int64   `tfsdk:"pid"`
	Name      *string `tfsdk:"name"`
	Holder    *string `tfsdk:"holder"`
	Share     *string `tfsdk:"share"`
	MemoryMiB int64   `tfsdk:"memory_mib"`
}

type shareModel struct {
	Name     string  `tfsdk:"name"`
	Owner    *string `tfsdk:"owner"`
	Mode     string  `tfsdk:"mode"`
	Fraction float64 `tfsdk:"fraction"`
}

type historyModel struct {
	From          string   `tfsdk:"from"`
	To            string   `tfsdk:"to"`
	RecordedHours float64  `tfsdk:"recorded_hours"`
	Peak          *float64 `tfsdk:"peak_percent"`
	Mean          *float64 `tfsdk:"mean_percent"`
	Idle          *float64 `tfsdk:"idle_fraction"`
	Nights        *float64 `tfsdk:"idle_nights_fraction"`
	Weekends      *float64 `tfsdk:"idle_weekends_fraction"`
	WorkingDays   *float64 `tfsdk:"idle_working_days_fraction"`
}

type adviceModel struct {
	Kind string `tfsdk:"kind"`
	Text string `tfsdk:"text"`
}

type hostAdviceModel struct {
	Host  string `tfsdk:"host"`
	GPUID string `tfsdk:"gpu_id"`
	Kind  string `tfsdk:"kind"`
	Text  string `tfsdk:"text"`
}

type totalsModel struct {
	Hosts          int64   `tfsdk:"hosts"`
	GPUs           int64   `tfsdk:"gpus"`
	Idle           int64   `tfsdk:"idle_gpus"`
	Allocated      float64 `tfsdk:"allocated_gpus"`
	Used           float64 `tfsdk:"used_gpus"`
	MemoryUsedMiB  int64   `tfsdk:"memory_used_mib"`
	MemoryTotalMiB int64   `tfsdk:"memory_total_mib"`
	Unallocatable  int64   `tfsdk:"unallocatable_memory_slices"`
	Summary        string  `tfsdk:"summary"`
}
