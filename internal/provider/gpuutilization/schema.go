package gpuutilization

import (
	"maps"

	"github.com/hashicorp/terraform-plugin-framework-validators/mapvalidator"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/provider/computed"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/optional"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/scope"
)

func describe() schema.Schema {
	return schema.Schema{
		MarkdownDescription: "How busy the GPUs of Linux hosts are, how much of each is given out and to whom, and what could be given out otherwise. " +
			"Each read measures: the driver is read twice, a `window` apart, on all hosts at once, and of two readings the higher one counts. " +
			"What a few seconds say is little. A Prometheus server that keeps the metrics of NVIDIA's DCGM exporter gives the long view. " +
			"The [guide on right-sizing](../guides/right-sizing.md) says how to read the figures.",
		Attributes: map[string]schema.Attribute{
			"hosts":      optional.SetOf(types.StringType, "Hosts to measure, as the provider names them. Default: all that run Linux.", scope.HostValidators()...),
			"gpu_ids":    optional.SetOf(types.StringType, "GPUs to measure, by UUID. Default: all of the hosts.", scope.HostValidators()...),
			"window":     optional.Text("The time between the two readings, from `\"100ms\"` to `\"60s\"`. Default `\"2s\"`. The read takes as long.", between(minWindow, maxWindow)),
			"prometheus": prometheusAttribute(),
			"utilization": computed.Map("The hosts that were measured, by name.", computed.Attributes{
				"window_seconds": computed.Decimal("The time between the two readings as it was, in seconds."),
				"measured_at":    computed.Text("When the second reading was taken, by the host's clock, in RFC 3339."),
				"gpus":           gpusAttribute(),
			}),
			"advice": computed.List("The advice on all GPUs.", computed.Attributes{
				"host": computed.Text("The host."), "gpu_id": computed.Text("The GPU."), "kind": computed.Text(adviceKinds), "text": computed.Text("What was found, in a sentence or two for people."),
			}),
			"totals": computed.Object("Sums over all GPUs that were measured.", computed.Attributes{
				"hosts":                       computed.Number("Hosts that were measured."),
				"gpus":                        computed.Number("GPUs."),
				"idle_gpus":                   computed.Number("GPUs that nothing used at either reading."),
				"allocated_gpus":              computed.Decimal("How many GPUs' worth is given out."),
				"used_gpus":                   computed.Decimal("How many GPUs' worth was used, where that was measured."),
				"memory_used_mib":             computed.Number("Memory that was used, in MiB."),
				"memory_total_mib":            computed.Number("Memory in MiB."),
				"unallocatable_memory_slices": computed.Number("Free memory slices of GPUs in MIG mode that no profile can take."),
				"summary":                     computed.Text("The same in one sentence."),
			}),
			"unreachable_hosts": computed.ListOf(types.StringType, "Hosts that did not answer; always empty unless the provider's `on_unreachable` is `keep`."),
		},
	}
}

const adviceKinds = "`unused` (allocated, but not used), `held` (processes hold memory and do not compute), `oversized` (less would do), " +
	"`unaccounted` (used, but not allocated), `oversubscribed` (more is allocated than there is), `fragmented` (free, but no MIG profile fits), " +
	"`free` (neither allocated nor used), `long_view` (from the record of past days) or `short_window` (the sample was short)."

func prometheusAttribute() schema.Attribute {
	return optional.Object("A server with the Prometheus API that keeps the metrics of NVIDIA's DCGM exporter, for the long view: how much of the nights, weekends and working days each GPU was idle. "+
		"It is asked from where Terraform runs.", optional.Attributes{
		"url": schema.StringAttribute{
			MarkdownDescription: "Its address, such as `\"http://prometheus.example:9090\"`. Credentials do not belong into it.", Required: true, Validators: []validator.String{address()},
		},
		"lookback": optional.Text("How far to look back, from `\"2h\"` to `\"8760h\"`, of which whole hours count. Default `\"168h\"`, a week.", between(minLookback, maxLookback)),
		"timezone": optional.Text("Where nights are nights, by the IANA name of a time zone such as `\"Europe/Berlin\"`. Default `\"UTC\"`. Nights are the hours from 20 to 6 of working days.",
			zone()),
		"bearer_token": schema.StringAttribute{
			MarkdownDescription: "A token for the server. Also from `" + EnvToken + "`, which goes to no other server than that of `" + EnvServer + "` where this is set. It is not kept in the state.", Optional: true, Sensitive: true, Validators: []validator.String{headerValue()},
		},
		"headers": schema.MapAttribute{
			MarkdownDescription: "Headers that the server wants, such as `X-Scope-OrgID`. They are not kept in the state.", ElementType: types.StringType, Optional: true, Sensitive: true,
			Validators: []validator.Map{mapvalidator.KeysAre(headerName()), mapvalidator.NoNullValues(), mapvalidator.ValueStringsAre(headerValue())},
		},
	})
}

func gpusAttribute() schema.Attribute {
	attributes := computed.Attributes{
		"model":         computed.Text("The model."),
		"used_fraction": computed.Decimal("The part of the GPU that was used: of its memory or of its multiprocessors, whichever is more. In MIG mode the part of its compute slices whose instances were not idle. Null where it was not measured."),
		"mig": computed.Object("MIG; null unless the GPU is in MIG mode.", computed.Attributes{
			"compute_slices":              computed.Number("Compute slices of the GPU."),
			"allocated_compute_slices":    computed.Number("Compute slices of instances that are given out."),
			"used_compute_slices":         computed.Number("Compute slices of instances that were not idle, as far as that can be told."),
			"memory_slices":               computed.Number("Memory slices of the GPU."),
			"free_memory_slices":          computed.Number("Memory slices without an instance."),
			"unallocatable_memory_slices": computed.Number("Free memory slices that no instance can be made of, as no profile fits where they lie."),
			"instances":                   instancesAttribute(),
		}),
		"history": computed.Object("The long view; null without `prometheus`. Fractions are of the time that was recorded, and null where nothing was.", computed.Attributes{
			"from":                       computed.Text("Where it begins, in RFC 3339."),
			"to":                         computed.Text("Where it ends, in RFC 3339."),
			"recorded_hours":             computed.Decimal("For how many hours there is a record."),
			"peak_percent":               computed.Decimal("How busy the GPU was at most."),
			"mean_percent":               computed.Decimal("How busy it was on average, of each hour the highest value."),
			"idle_fraction":              computed.Decimal("The part of the time that it was idle: below 1 % for a whole hour."),
			"idle_nights_fraction":       computed.Decimal("The same of the hours from 20 to 6 of working days."),
			"idle_weekends_fraction":     computed.Decimal("The same of Saturdays and Sundays."),
			"idle_working_days_fraction": computed.Decimal("The same of the rest."),
		}),
		"advice": computed.List("What the figures mean. It adds 50 % headroom and says nothing about what was not measured.", computed.Attributes{"kind": computed.Text(adviceKinds), "text": computed.Text("What was found, in a sentence or two for people.")}),
	}
	maps.Copy(attributes, useAttributes("the GPU"))
	return computed.Map("The GPUs, by UUID.", attributes)
}

func instancesAttribute() schema.Attribute {
	attributes := computed.Attributes{
		"profile": computed.Text("The instance's profile."),
		"start":   computed.Number("Its first memory slice."),
	}
	maps.Copy(attributes, useAttributes("the instance"))
	return computed.List("The MIG instances, by start.", attributes)
}

// useAttributes are what a GPU and a MIG instance have in common.
func useAttributes(what string) computed.Attributes {
	return computed.Attributes{
		"allocated_fraction":  computed.Decimal("The part of " + what + " that shares count for; more than `1` oversubscribes it. In MIG mode a GPU's is the part of its compute slices in instances that are given out."),
		"busy_percent":        computed.Decimal("The percentage of time that any kernel ran, on however few multiprocessors. Null where the driver does not tell, as in MIG mode."),
		"memory_busy_percent": computed.Decimal("The percentage of time that memory was read or written. Null where the driver does not tell."),
		"sm_activity_percent": computed.Decimal("The percentage of multiprocessors that worked, within the window. Null before Hopper."),
		"memory_used_mib":     computed.Number("Memory that was used, in MiB."),
		"memory_total_mib":    computed.Number("Memory of " + what + ", in MiB."),
		"idle":                computed.Flag("Whether nothing used it at either reading. Null when that cannot be told."),
		"oversubscription_ratio": computed.Decimal("What the shares on " + what + " may use together, divided by what it has: of their memory limits or of their active thread percentages, whichever is more. " +
			"Above `1` not all of them can use it at once. Null when no share states either."),
		"processes": computed.List("The processes that used "+what+", as far as the driver tells.", computed.Attributes{
			"pid":        computed.Number("The process id."),
			"name":       computed.Text("The process's name; null when not known."),
			"holder":     computed.Text("Who the process is, such as `unit train.service`, `container 3f2a` or `VM web-01`; null when not known."),
			"share":      computed.Text("The share that it was started in; null for none."),
			"memory_mib": computed.Number("The memory that it used, in MiB."),
		}),
		"shares": computed.List("The shares on "+what+", by name.", computed.Attributes{
			"name":     computed.Text("The share's name."),
			"owner":    computed.Text("The `owner` of the Terraform state that has it; null when that has no name."),
			"mode":     computed.Text("`whole_gpu`, `mig`, `mps` or `time_slicing`."),
			"fraction": computed.Decimal("The part of the GPU that it counts for here."),
		}),
	}
}
