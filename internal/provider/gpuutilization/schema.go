package gpuutilization

import (
	"maps"

	"github.com/hashicorp/terraform-plugin-framework-validators/mapvalidator"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/provider/scope"
)

func describe() schema.Schema {
	return schema.Schema{
		MarkdownDescription: "How busy the GPUs of Linux hosts are, how much of each is given out and to whom, and what could be given out otherwise. " +
			"Each read measures: the driver is read twice, a `window` apart, on all hosts at once, and of two readings the higher one counts. " +
			"What a few seconds say is little. A Prometheus server that keeps the metrics of NVIDIA's DCGM exporter gives the long view. " +
			"The [guide on right-sizing](../guides/right-sizing.md) says how to read the figures.",
		Attributes: map[string]schema.Attribute{
			"hosts": schema.SetAttribute{
				MarkdownDescription: "Hosts to measure, as the provider names them. Default: all that run Linux.", ElementType: types.StringType, Optional: true,
				Validators: scope.HostValidators(),
			},
			"gpu_ids": schema.SetAttribute{
				MarkdownDescription: "GPUs to measure, by UUID. Default: all of the hosts.", ElementType: types.StringType, Optional: true,
				Validators: scope.HostValidators(),
			},
			"window": schema.StringAttribute{
				MarkdownDescription: "The time between the two readings, from `\"100ms\"` to `\"60s\"`. Default `\"2s\"`. The read takes as long.", Optional: true,
				Validators: []validator.String{between{min: minWindow, max: maxWindow}},
			},
			"prometheus": prometheusAttribute(),
			"utilization": schema.MapNestedAttribute{
				MarkdownDescription: "The hosts that were measured, by name.", Computed: true,
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"window_seconds": decimal("The time between the two readings as it was, in seconds."),
					"measured_at":    text("When the second reading was taken, by the host's clock, in RFC 3339."),
					"gpus":           gpusAttribute(),
				}},
			},
			"advice": schema.ListNestedAttribute{
				MarkdownDescription: "The advice on all GPUs.", Computed: true,
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"host": text("The host."), "gpu_id": text("The GPU."), "kind": text(adviceKinds), "text": text("What was found, in a sentence or two for people."),
				}},
			},
			"totals": schema.SingleNestedAttribute{
				MarkdownDescription: "Sums over all GPUs that were measured.", Computed: true,
				Attributes: map[string]schema.Attribute{
					"hosts":                       number("Hosts that were measured."),
					"gpus":                        number("GPUs."),
					"idle_gpus":                   number("GPUs that nothing used at either reading."),
					"allocated_gpus":              decimal("How many GPUs' worth is given out."),
					"used_gpus":                   decimal("How many GPUs' worth was used, where that was measured."),
					"memory_used_mib":             number("Memory that was used, in MiB."),
					"memory_total_mib":            number("Memory in MiB."),
					"unallocatable_memory_slices": number("Free memory slices of GPUs in MIG mode that no profile can take."),
					"summary":                     text("The same in one sentence."),
				},
			},
			"unreachable_hosts": schema.ListAttribute{
				MarkdownDescription: "Hosts that did not answer; always empty unless the provider's `on_unreachable` is `keep`.", ElementType: types.StringType, Computed: true,
			},
		},
	}
}

const adviceKinds = "`unused` (allocated, but not used), `held` (processes hold memory and do not compute), `oversized` (less would do), " +
	"`unaccounted` (used, but not allocated), `oversubscribed` (more is allocated than there is), `fragmented` (free, but no MIG profile fits), " +
	"`free` (neither allocated nor used), `long_view` (from the record of past days) or `short_window` (the sample was short)."

func prometheusAttribute() schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: "A server with the Prometheus API that keeps the metrics of NVIDIA's DCGM exporter, for the long view: how much of the nights, weekends and working days each GPU was idle. " +
			"It is asked from where Terraform runs.",
		Optional: true,
		Attributes: map[string]schema.Attribute{
			"url": schema.StringAttribute{
				MarkdownDescription: "Its address, such as `\"http://prometheus.example:9090\"`. Credentials do not belong into it.", Required: true, Validators: []validator.String{address{}},
			},
			"lookback": schema.StringAttribute{
				MarkdownDescription: "How far to look back, from `\"2h\"` to `\"8760h\"`, of which whole hours count. Default `\"168h\"`, a week.", Optional: true,
				Validators: []validator.String{between{min: minLookback, max: maxLookback}},
			},
			"timezone": schema.StringAttribute{
				MarkdownDescription: "Where nights are nights, by the IANA name of a time zone such as `\"Europe/Berlin\"`. Default `\"UTC\"`. Nights are the hours from 20 to 6 of working days.", Optional: true,
				Validators: []validator.String{zone{}},
			},
			"bearer_token": schema.StringAttribute{
				MarkdownDescription: "A token for the server. Also from `" + EnvToken + "`. It is not kept in the state.", Optional: true, Sensitive: true, Validators: []validator.String{headerValue{}},
			},
			"headers": schema.MapAttribute{
				MarkdownDescription: "Headers that the server wants, such as `X-Scope-OrgID`. They are not kept in the state.", ElementType: types.StringType, Optional: true, Sensitive: true,
				Validators: []validator.Map{mapvalidator.KeysAre(headerName()), mapvalidator.NoNullValues(), mapvalidator.ValueStringsAre(headerValue{})},
			},
		},
	}
}

func gpusAttribute() schema.MapNestedAttribute {
	attributes := map[string]schema.Attribute{
		"model":         text("The model."),
		"used_fraction": decimal("The part of the GPU that was used: of its memory or of its multiprocessors, whichever is more. In MIG mode the part of its compute slices whose instances were not idle. Null where it was not measured."),
		"mig": schema.SingleNestedAttribute{
			MarkdownDescription: "MIG; null unless the GPU is in MIG mode.", Computed: true,
			Attributes: map[string]schema.Attribute{
				"compute_slices":              number("Compute slices of the GPU."),
				"allocated_compute_slices":    number("Compute slices of instances that are given out."),
				"used_compute_slices":         number("Compute slices of instances that were not idle, as far as that can be told."),
				"memory_slices":               number("Memory slices of the GPU."),
				"free_memory_slices":          number("Memory slices without an instance."),
				"unallocatable_memory_slices": number("Free memory slices that no instance can be made of, as no profile fits where they lie."),
				"instances":                   instancesAttribute(),
			},
		},
		"history": schema.SingleNestedAttribute{
			MarkdownDescription: "The long view; null without `prometheus`. Fractions are of the time that was recorded, and null where nothing was.", Computed: true,
			Attributes: map[string]schema.Attribute{
				"from":                       text("Where it begins, in RFC 3339."),
				"to":                         text("Where it ends, in RFC 3339."),
				"recorded_hours":             decimal("For how many hours there is a record."),
				"peak_percent":               decimal("How busy the GPU was at most."),
				"mean_percent":               decimal("How busy it was on average, of each hour the highest value."),
				"idle_fraction":              decimal("The part of the time that it was idle: below 1 % for a whole hour."),
				"idle_nights_fraction":       decimal("The same of the hours from 20 to 6 of working days."),
				"idle_weekends_fraction":     decimal("The same of Saturdays and Sundays."),
				"idle_working_days_fraction": decimal("The same of the rest."),
			},
		},
		"advice": schema.ListNestedAttribute{
			MarkdownDescription: "What the figures mean. It adds 50 % headroom and says nothing about what was not measured.", Computed: true,
			NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{"kind": text(adviceKinds), "text": text("What was found, in a sentence or two for people.")}},
		},
	}
	maps.Copy(attributes, useAttributes("the GPU"))
	return schema.MapNestedAttribute{
		MarkdownDescription: "The GPUs, by UUID.", Computed: true, NestedObject: schema.NestedAttributeObject{Attributes: attributes},
	}
}

func instancesAttribute() schema.ListNestedAttribute {
	attributes := map[string]schema.Attribute{
		"profile": text("The instance's profile."),
		"start":   number("Its first memory slice."),
	}
	maps.Copy(attributes, useAttributes("the instance"))
	return schema.ListNestedAttribute{
		MarkdownDescription: "The MIG instances, by start.", Computed: true, NestedObject: schema.NestedAttributeObject{Attributes: attributes},
	}
}

// useAttributes are what a GPU and a MIG instance have in common.
func useAttributes(what string) map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"allocated_fraction":  decimal("The part of " + what + " that shares count for; more than `1` oversubscribes it. In MIG mode a GPU's is the part of its compute slices in instances that are given out."),
		"busy_percent":        decimal("The percentage of time that any kernel ran, on however few multiprocessors. Null where the driver does not tell, as in MIG mode."),
		"memory_busy_percent": decimal("The percentage of time that memory was read or written. Null where the driver does not tell."),
		"sm_activity_percent": decimal("The percentage of multiprocessors that worked, within the window. Null before Hopper."),
		"memory_used_mib":     number("Memory that was used, in MiB."),
		"memory_total_mib":    number("Memory of " + what + ", in MiB."),
		"idle":                schema.BoolAttribute{MarkdownDescription: "Whether nothing used it at either reading. Null when that cannot be told.", Computed: true},
		"oversubscription_ratio": decimal("What the shares on " + what + " may use together, divided by what it has: of their memory limits or of their active thread percentages, whichever is more. " +
			"Above `1` not all of them can use it at once. Null when no share states either."),
		"processes": schema.ListNestedAttribute{
			MarkdownDescription: "The processes that used " + what + ", as far as the driver tells.", Computed: true,
			NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
				"pid":        number("The process id."),
				"name":       text("The process's name; null when not known."),
				"holder":     text("Who the process is, such as `unit train.service`, `container 3f2a` or `VM web-01`; null when not known."),
				"share":      text("The share that it was started in; null for none."),
				"memory_mib": number("The memory that it used, in MiB."),
			}},
		},
		"shares": schema.ListNestedAttribute{
			MarkdownDescription: "The shares on " + what + ", by name.", Computed: true,
			NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
				"name":     text("The share's name."),
				"owner":    text("The `owner` of the Terraform state that has it; null when that has no name."),
				"mode":     text("`whole_gpu`, `mig`, `mps` or `time_slicing`."),
				"fraction": decimal("The part of the GPU that it counts for here."),
			}},
		},
	}
}

func text(description string) schema.StringAttribute {
	return schema.StringAttribute{MarkdownDescription: description, Computed: true}
}

func number(description string) schema.Int64Attribute {
	return schema.Int64Attribute{MarkdownDescription: description, Computed: true}
}

func decimal(description string) schema.Float64Attribute {
	return schema.Float64Attribute{MarkdownDescription: description, Computed: true}
}
