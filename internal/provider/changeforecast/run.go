package changeforecast

import (
	"cmp"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/tfschema"
)

// What becomes of a VM.
const (
	restarted = "restarted"
	leftOff   = "left_off"
	moved     = "moved"
)

type assignmentModel struct {
	VM            types.String `tfsdk:"vm"`
	AllowShutdown types.Bool   `tfsdk:"allow_shutdown"`
}

type effectModel struct {
	Host    string `tfsdk:"host"`
	VM      string `tfsdk:"vm"`
	VMID    string `tfsdk:"vm_id"`
	Effect  string `tfsdk:"effect"`
	Why     string `tfsdk:"why"`
	Allowed bool   `tfsdk:"allowed"`
	Reason  string `tfsdk:"reason"`
}

type resetModel struct {
	Host  string `tfsdk:"host"`
	GPUID string `tfsdk:"gpu_id"`
}

type seatsModel struct {
	Host  string `tfsdk:"host"`
	Total int64  `tfsdk:"total"`
	Taken int64  `tfsdk:"taken"`
	Left  int64  `tfsdk:"left"`
}

func assignmentsAttribute() schema.SetNestedAttribute {
	return schema.SetNestedAttribute{
		MarkdownDescription: "With `gpu_p`: the VMs to which the same run gives a partition, so that the forecast covers the whole run. " +
			"`[]` is none.",
		Optional: true,
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"vm": schema.StringAttribute{
				MarkdownDescription: "The VM's name or id, as in `gpu_vm_assignment`.", Required: true,
				Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			"allow_shutdown": tfschema.OptionalFlag("Whether its assignment allows a shutdown. Default: the provider's `power`."),
		}},
	}
}

func effectsAttribute() schema.Attribute {
	return tfschema.ComputedList("The running VMs that the layout or an assignment disturbs, by host and name.", tfschema.Attributes{
		"host": tfschema.ComputedText("The VM's owner host."), "vm": tfschema.ComputedText("The VM's name."),
		"vm_id": tfschema.ComputedText("The VM's id."),
		"effect": tfschema.ComputedText("`restarted` (shut down and started again), `left_off` (shut down), or `moved` (by live migration, " +
			"when its node is drained)."),
		"why":     tfschema.ComputedText("What needs the VM off; empty for a VM that is moved."),
		"allowed": tfschema.ComputedFlag("Whether the VM's own assignment allows its shutdown."),
		"reason":  tfschema.ComputedText("Why it does not."),
	})
}

func resetsAttribute() schema.Attribute {
	return tfschema.ComputedList("The GPUs that would be reset.", tfschema.Attributes{
		"host":   tfschema.ComputedText("The host."),
		"gpu_id": tfschema.ComputedText("The GPU's id."),
	})
}

func seatsAttribute() schema.Attribute {
	return tfschema.ComputedList("With `gpu_p`: the partitions of each host after the run, and how many VMs they are "+
		"for. Empty for other kinds.", tfschema.Attributes{
		"host":  tfschema.ComputedText("The host."),
		"total": tfschema.ComputedNumber("Partitions of the GPUs that the layout covers."),
		"taken": tfschema.ComputedNumber("VMs of the host that have a partition adapter or get one, running or not."),
		"left":  tfschema.ComputedNumber("Partitions left; below zero where not all of these VMs can run at the same time."),
	})
}

// forecast is what a run does: a layout, and assignments to it.
type forecast struct {
	class   gpu.Disruption
	allowed bool // no VM is stopped against its assignment
	vms     []effectModel
	resets  []resetModel
	seats   []seatsModel
}

// foresee puts together what the layout and each assignment do. The VMs are found on the
// layout's hosts; one that is not there yet is disturbed by nothing.
func (d *DataSource) foresee(v fleet.View, layout change.Change, assignments []assignmentModel) forecast {
	run := forecast{class: gpu.DisruptNone, allowed: true, vms: []effectModel{}, resets: []resetModel{}, seats: []seatsModel{}}
	for _, f := range d.Fleet.Forecasts(v, layout) {
		run.add(v, f)
	}
	want := layout.Want.Config
	gets := map[string]int{} // by host
	for _, a := range assignments {
		at, err := fleet.FindVM(v, a.VM.ValueString())
		if err != nil || len(at.VM.PartitionAdapters) > 0 || want.Count == 0 {
			continue
		}
		gets[at.Host]++
		power := d.Fleet.Power()
		if !a.AllowShutdown.IsNull() {
			power.AllowShutdown = a.AllowShutdown.ValueBool()
		}
		assigned := gpu.Assignment{
			Kind: gpu.AssignPartition, VM: a.VM.ValueString(), VMID: at.VM.ID, VMName: at.VM.Name, Host: at.Host,
			Power: power, Partition: &gpu.PartitionWant{},
		}
		does := change.Change{Subject: DataSourceType, Want: gpu.Want{Assignment: &assigned}}
		for i, f := range d.Fleet.Forecasts(v, does) {
			if len(f.Stops) == 0 && len(f.Refused.Of(change.VMMustBeOff)) > 0 {
				assigned.Power.AllowShutdown = true // what it would do
				would := d.Fleet.Forecasts(v, does)[i]
				would.Refused = append(f.Refused, would.Refused...)
				f = would
			}
			run.add(v, f)
		}
	}
	if want.Count > 0 {
		for host, gpus := range want.GPUs {
			s := seatsModel{Host: host, Total: int64(want.Count * len(gpus)), Taken: int64(gets[host])}
			for _, vm := range v.Hosts[host].VMs {
				if len(vm.PartitionAdapters) > 0 {
					s.Taken++
				}
			}
			s.Left = s.Total - s.Taken
			run.seats = append(run.seats, s)
		}
	}
	slices.SortFunc(run.seats, func(a, b seatsModel) int { return strings.Compare(a.Host, b.Host) })
	slices.SortFunc(run.vms, func(a, b effectModel) int {
		return cmp.Or(strings.Compare(a.Host, b.Host), strings.Compare(a.VM, b.VM), strings.Compare(a.VMID, b.VMID))
	})
	return run
}

// add counts what a change does to a host.
func (run *forecast) add(v fleet.View, f change.Forecast) {
	if f.Class.Exceeds(run.class) {
		run.class = f.Class
	}
	for _, id := range f.Resets {
		run.resets = append(run.resets, resetModel{Host: f.Host, GPUID: id})
	}
	for _, s := range f.Stops {
		if slices.ContainsFunc(run.vms, func(e effectModel) bool { return gpu.SameID(e.VMID, s.VM) }) {
			continue
		}
		e := effectModel{Host: f.Host, VM: s.Name, VMID: s.VM, Effect: leftOff, Why: strings.Join(s.Why, ", "), Allowed: true}
		if s.Starts {
			e.Effect = restarted
		}
		if len(f.GPUs) > 0 {
			e.Why = "the partition count of its GPU changes"
		}
		why := f.KeptOn(s.VM)
		if of := f.Refused.Of(change.VMMustBeOff); why == nil && len(of) > 0 {
			why = of[0]
		}
		if why != nil {
			e.Allowed, e.Reason, run.allowed = false, why.Found(), false
		}
		run.vms = append(run.vms, e)
	}
	for _, name := range f.Moves {
		e := effectModel{Host: f.Host, VM: name, Effect: moved, Allowed: true}
		if at, err := fleet.FindVM(v, name); err == nil {
			e.VMID = at.VM.ID
		}
		run.vms = append(run.vms, e)
	}
}
