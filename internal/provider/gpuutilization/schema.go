package gpuutilization

import (
	"maps"

	"github.com/hashicorp/terraform-plugin-framework-validators/mapvalidator"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/provider/scope"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/tfschema"
)

func describe() schema.Schema {
	return schema.Schema{
		MarkdownDescription: "How busy the GPUs of Linux hosts are, how much of each is given out and to whom, and what could " +
			"be given out otherwise. Each read measures: the driver is read twice, a `window` apart, on all hosts at once, and of two readings " +
			"the higher one counts. What a few seconds say is little. A Prometheus server that keeps the metrics of NVIDIA's DCGM " +
			"exporter gives the long view. The [guide on right-sizing](../guides/right-sizing.md) says how to read the figures.",
		Attributes: map[string]schema.Attribute{
			"hosts": tfschema.OptionalSetOf(types.StringType, "Hosts to measure, as the provider names them. Default: all that run Linux. "+
				"`[]` is refused.", scope.SomeNames(tfschema.Nonempty{Fix: "Leave `hosts` out, or null, for all hosts that run Linux."})...),
			"gpu_ids": tfschema.OptionalSetOf(types.StringType, "GPUs to measure, by UUID. Default: all of the hosts. "+
				"`[]` is refused.", scope.SomeNames(tfschema.Nonempty{Fix: "Leave `gpu_ids` out, or null, for all GPUs."})...),
			"window": tfschema.OptionalText("The time between the two readings, from `\"100ms\"` to `\"60s\"`. Default `\"2s\"`. "+
				"The read takes as long.", between(minWindow, maxWindow)),
			"prometheus": prometheusAttribute(),
			"utilization": tfschema.ComputedMap("The hosts that were measured, by name.", tfschema.Attributes{
				"window_seconds": tfschema.ComputedDecimal("The time between the two readings as it was, in seconds."),
				"measured_at":    tfschema.ComputedText("When the second reading was taken, by the host's clock, in RFC 3339."),
				"gpus":           gpusAttribute(),
			}),
			"advice": tfschema.ComputedList("The advice on all GPUs.", tfschema.Attributes{
				"host": tfschema.ComputedText("The host."), "gpu_id": tfschema.ComputedText("The GPU."), "kind": tfschema.ComputedText(adviceKinds),
				"text": tfschema.ComputedText("What was found, in a sentence or two for people."),
			}),
			"totals": tfschema.ComputedObject("Sums over all GPUs that were measured.", tfschema.Attributes{
				"hosts":                       tfschema.ComputedNumber("Hosts that were measured."),
				"gpus":                        tfschema.ComputedNumber("GPUs."),
				"idle_gpus":                   tfschema.ComputedNumber("GPUs that nothing used at either reading."),
				"allocated_gpus":              tfschema.ComputedDecimal("How many GPUs' worth is given out."),
				"used_gpus":                   tfschema.ComputedDecimal("How many GPUs' worth was used, where that was measured."),
				"memory_used_mib":             tfschema.ComputedNumber("Memory that was used, in MiB."),
				"memory_total_mib":            tfschema.ComputedNumber("Memory in MiB."),
				"unallocatable_memory_slices": tfschema.ComputedNumber("Free memory slices of GPUs in MIG mode that no profile can take."),
				"summary":                     tfschema.ComputedText("The same in one sentence."),
			}),
			"unreachable_hosts": tfschema.ComputedListOf(types.StringType, "Hosts that did not answer; always empty unless the provider's "+
				"`on_unreachable` is `keep`."),
		},
	}
}

const adviceKinds = "`unused` (allocated, but not used), `held` (processes hold memory and do not compute), `oversized` (less would do), " +
	"`unaccounted` (used, but not allocated), `oversubscribed` (more is allocated than there is), `fragmented` (free, " +
	"but no MIG profile fits), `free` (neither allocated nor used), `long_view` (from the record of past days) or `short_window` " +
	"(the sample was short)."

func prometheusAttribute() schema.Attribute {
	return tfschema.OptionalObject("A server with the Prometheus API that keeps the metrics of NVIDIA's DCGM exporter, for the long view: "+
		"how much of the nights, weekends and working days each GPU was idle. "+
		"It is asked from where Terraform runs.", tfschema.Attributes{
		"url": schema.StringAttribute{
			MarkdownDescription: "Its address, such as `\"http://prometheus.example:9090\"`. Credentials do not belong into it.", Required: true,
			Validators: []validator.String{address()},
		},
		"lookback": tfschema.OptionalText("How far to look back, from `\"2h\"` to `\"8760h\"`, of which whole hours count. "+
			"Default `\"168h\"`, a week.", between(minLookback, maxLookback)),
		"timezone": tfschema.OptionalText("Where nights are nights, by the IANA name of a time zone such as `\"Europe/Berlin\"`. "+
			"Default `\"UTC\"`. Nights are the hours from 20 to 6 of working days.",
			zone()),
		"bearer_token": schema.StringAttribute{
			MarkdownDescription: "A token for the server. Also from `" + EnvToken + "`, which goes to no other server than that of `" + EnvServer +
				"` where this is set. It is not kept in the state.", Optional: true, Sensitive: true, Validators: []validator.String{headerValue()},
		},
		"headers": schema.MapAttribute{
			MarkdownDescription: "Headers that the server wants, such as `X-Scope-OrgID`. `{}` is none. They are not kept in the state.",
			ElementType:         types.StringType, Optional: true, Sensitive: true,
			Validators: []validator.Map{
				mapvalidator.KeysAre(headerName()), mapvalidator.NoNullValues(),
				mapvalidator.ValueStringsAre(headerValue()),
			},
		},
	})
}

func gpusAttribute() schema.Attribute {
	attributes := tfschema.Attributes{
		"model": tfschema.ComputedText("The model."),
		"used_fraction": tfschema.ComputedDecimal("The part of the GPU that was used: of its memory or of its multiprocessors, whichever is " +
			"more. In MIG mode the part of its compute slices whose instances were not idle. Null where it was not measured."),
		"mig": tfschema.ComputedObject("MIG; null unless the GPU is in MIG mode.", tfschema.Attributes{
			"compute_slices":           tfschema.ComputedNumber("Compute slices of the GPU."),
			"allocated_compute_slices": tfschema.ComputedNumber("Compute slices of instances that are given out."),
			"used_compute_slices":      tfschema.ComputedNumber("Compute slices of instances that were not idle, as far as that can be told."),
			"memory_slices":            tfschema.ComputedNumber("Memory slices of the GPU."),
			"free_memory_slices":       tfschema.ComputedNumber("Memory slices without an instance."),
			"unallocatable_memory_slices": tfschema.ComputedNumber("Free memory slices that no instance can be made of, as no " +
				"profile fits where they lie."),
			"instances": instancesAttribute(),
		}),
		"history": tfschema.ComputedObject("The long view; null without `prometheus`. Fractions are of the time that was recorded, "+
			"and null where nothing was.", tfschema.Attributes{
			"from":                       tfschema.ComputedText("Where it begins, in RFC 3339."),
			"to":                         tfschema.ComputedText("Where it ends, in RFC 3339."),
			"recorded_hours":             tfschema.ComputedDecimal("For how many hours there is a record."),
			"peak_percent":               tfschema.ComputedDecimal("How busy the GPU was at most."),
			"mean_percent":               tfschema.ComputedDecimal("How busy it was on average, of each hour the highest value."),
			"idle_fraction":              tfschema.ComputedDecimal("The part of the time that it was idle: below 1 % for a whole hour."),
			"idle_nights_fraction":       tfschema.ComputedDecimal("The same of the hours from 20 to 6 of working days."),
			"idle_weekends_fraction":     tfschema.ComputedDecimal("The same of Saturdays and Sundays."),
			"idle_working_days_fraction": tfschema.ComputedDecimal("The same of the rest."),
		}),
		"advice": tfschema.ComputedList("What the figures mean. It adds 50 % headroom and says nothing about what was not measured.",
			tfschema.Attributes{
				"kind": tfschema.ComputedText(adviceKinds),
				"text": tfschema.ComputedText("What was found, in a sentence or two for people."),
			}),
	}
	maps.Copy(attributes, useAttributes("the GPU"))
	return tfschema.ComputedMap("The GPUs, by UUID.", attributes)
}

func instancesAttribute() schema.Attribute {
	attributes := tfschema.Attributes{
		"profile": tfschema.ComputedText("The instance's profile."),
		"start":   tfschema.ComputedNumber("Its first memory slice."),
	}
	maps.Copy(attributes, useAttributes("the instance"))
	return tfschema.ComputedList("The MIG instances, by start.", attributes)
}

// useAttributes are what a GPU and a MIG instance have in common.
func useAttributes(what string) tfschema.Attributes {
	return tfschema.Attributes{
		"allocated_fraction": tfschema.ComputedDecimal("The part of " + what + " that shares count for; more than `1` oversubscribes it. " +
			"In MIG mode a GPU's is the part of its compute slices in instances that are given out."),
		"busy_percent": tfschema.ComputedDecimal("The percentage of time that any kernel ran, on however few multiprocessors. " +
			"Null where the driver does not tell, as in MIG mode."),
		"memory_busy_percent": tfschema.ComputedDecimal("The percentage of time that memory was read or written. " +
			"Null where the driver does not tell."),
		"sm_activity_percent": tfschema.ComputedDecimal("The percentage of multiprocessors that worked, within the window. Null before Hopper."),
		"memory_used_mib":     tfschema.ComputedNumber("Memory that was used, in MiB."),
		"memory_total_mib":    tfschema.ComputedNumber("Memory of " + what + ", in MiB; null where the driver does not tell it."),
		"idle":                tfschema.ComputedFlag("Whether nothing used it at either reading. Null when that cannot be told."),
		"oversubscription_ratio": tfschema.ComputedDecimal("What the shares on " + what + " may use together, divided by what it has: " +
			"of their memory limits or of their active thread percentages, whichever is more. Above `1` not all of them can use it at once. " +
			"Null when no share states either."),
		"processes": tfschema.ComputedList("The processes that used "+what+", as far as the driver tells.", tfschema.Attributes{
			"pid":  tfschema.ComputedNumber("The process id."),
			"name": tfschema.ComputedText("The process's name; null when not known."),
			"holder": tfschema.ComputedText("Who the process is, such as `unit train.service`, `container 3f2a` or `VM " +
				"web-01`; null when not known."),
			"share":      tfschema.ComputedText("The share that it was started in; null for none."),
			"memory_mib": tfschema.ComputedNumber("The memory that it used, in MiB."),
		}),
		"shares": tfschema.ComputedList("The shares on "+what+", by name.", tfschema.Attributes{
			"name":     tfschema.ComputedText("The share's name."),
			"owner":    tfschema.ComputedText("The `owner` of the Terraform state that has it; null when that has no name."),
			"mode":     tfschema.ComputedText("`whole_gpu`, `mig`, `mps` or `time_slicing`."),
			"fraction": tfschema.ComputedDecimal("The part of the GPU that it counts for here."),
		}),
	}
}
