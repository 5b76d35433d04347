package rules

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// shareFindings are the findings of shares that more room would not help; what is empty is as in
// aShareFault.
var (
	aShareFault = Finding{
		Rule: sharePlacement, Path: "name", Title: "The share does not fit", Fix: "Ask for less, or choose another GPU or host.",
	}
	shareFindings = map[placement.ShareFault]Finding{
		placement.ShareNotInPool: {
			Path: "pool", Title: "The host is not in the pool of the share", Fix: "Refer to a pool that covers GPUs of this host.",
		},
		placement.ShareNotInConfig: {
			Path: "config", Title: "The host is not in the partition config of the share",
			Fix: "Refer to a partition config that covers GPUs of this host.",
		},
		placement.ShareApart: {Path: "gpu_ids", Title: notTogether, Fix: "Take the share out of the configuration for one apply, and put it back in the next."},
		placement.ShareApartDaemon: {
			Path: "gpu_ids", Title: notTogether, Fix: "Leave `daemons` of the gpu_partition_config as it is, or give the share one GPU.",
		},
		placement.ShareNamesake: {
			Rule: "unique-name", Title: "The host has another share of that name", Fix: "Give the share another `name`.",
		},
		placement.ShareName: {Rule: "share-name", Title: "The name is not a valid CDI device name", Fix: "Give the share another `name`."},
		placement.ShareMemory: {
			Rule: fractionNotInMode, Path: "memory", Title: "The memory of the device is not known",
			Fix: "Write amounts in MiB, or leave `memory` out.",
		},
		placement.ShareAmount: {Rule: fractionNotInMode, Title: "The value is out of range", Fix: "Correct the value."},
	}
)

const notTogether = "No process can use all devices of the share"

// ShareFinding words an error of PlaceShare or ShareSpec as a finding of the rule that it
// violates. Who wants the share, where and at which level is the caller's to add.
func ShareFinding(err error) Finding {
	f := aShareFault
	f.Found = sentence(err)
	var (
		noRoom *placement.ShareNoRoomError
		quota  *placement.ShareQuotaError
		wrong  *placement.ShareError
	)
	switch {
	case errors.As(err, &noRoom):
		f.Host, f.Found, f.Fix = noRoom.Host, "On "+hostText(noRoom.Host)+": "+noRoom.Why()+".", noRoom.Fix()
		f.Wanted = fmt.Sprintf("Share %s wants %s.", quote(noRoom.Share), plural(noRoom.Want, "device"))
		if noRoom.Placed {
			f.Title = "The share does not fit where it is"
		}
		if len(noRoom.Lacks) == 1 {
			f.GPU = noRoom.Lacks[0].Device.GPU
		}
		if noRoom.Code() == placement.LackMode {
			f.Path = strings.Trim(noRoom.Lacks[0].Wanted, "`")
		}
		f.Rule, f.Path, f.Title = ruleOfLack(noRoom.Code(), f)
	case errors.As(err, &quota):
		f.Rule, f.Path, f.Title = poolQuota, "pool", "The quota of the pool is used up"
		f.Host, f.Found, f.Wanted = quota.Host, fmt.Sprintf("In pool %s, label %s: %s.", quote(quota.Pool), quote(quota.Label), quota.Found()),
			capital(quota.Wanted())+"."
		f.Fix = "Raise the quota in the gpu_pool, ask for less, or destroy a share of the label."
	case errors.As(err, &wrong):
		own := shareFindings[wrong.Fault]
		f.Host, f.Path = wrong.Host, cmp.Or(wrong.Attribute, own.Path, f.Path)
		f.Rule, f.Title, f.Fix = cmp.Or(own.Rule, f.Rule), cmp.Or(own.Title, f.Title), cmp.Or(own.Fix, f.Fix)
	}
	return f
}

// Rules that several places report.
const (
	sharePlacement    = "share-placement"
	oversubscription  = "share-oversubscription"
	fractionNotInMode = "fraction-not-in-mode"
	mpsClientLimit    = "mps-client-limit"
	vmXorShare        = "gpu-vm-xor-share"
	poolQuota         = "pool-quota"
)

// ruleOfLack is the rule, the attribute and the title for what all devices lack.
func ruleOfLack(k placement.LackCode, f Finding) (rule, path, title string) {
	switch k {
	case placement.LackForVMs:
		return vmXorShare, f.Path, "The GPU is for VMs"
	case placement.LackMode:
		return fractionNotInMode, f.Path, "The GPU's mode does not support this setting"
	case placement.LackFigure:
		return fractionNotInMode, "memory", "The memory of the device is not known"
	case placement.LackSize:
		return fractionNotInMode, "memory", "The share requests more memory than the device has"
	case placement.LackClients:
		return mpsClientLimit, f.Path, "Too many MPS clients"
	case placement.LackLimit:
		return oversubscription, "memory", "The memory limits of the shares exceed what the config allows"
	case placement.LackThreads:
		return oversubscription, "active_thread_percentage", "The thread percentages of the shares exceed what the config allows"
	case placement.LackMissing, placement.LackLayout, placement.LackPool, placement.LackConfig, placement.LackProfile,
		placement.LackApart, placement.LackTaken, placement.LackReplicas, placement.LackMemory:
	}
	return f.Rule, f.Path, f.Title
}
