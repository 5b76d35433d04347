package rules

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// ShareFinding words an error of PlaceShare or ShareSpec as a finding of the rule that it
// violates. Who wants the share, where and at which level is the caller's to add.
func ShareFinding(err error) Finding {
	f := Finding{Rule: sharePlacement, Path: "name", Title: "The share does not fit", Found: sentence(err), Fix: "Ask for less, or choose another GPU or host."}
	var (
		noRoom   *placement.ShareNoRoomError
		scope    *placement.ShareScopeError
		apart    *placement.ShareApartError
		quota    *placement.ShareQuotaError
		namesake *placement.ShareNamesakeError
		name     *placement.ShareNameError
		amount   *placement.ShareAmountError
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
	case errors.As(err, &scope):
		f.Host, f.Path = scope.Host, map[bool]string{true: "pool", false: "config"}[scope.What == "pool"]
		f.Title = "The host is not in the " + scope.What + " of the share"
		f.Fix = "Refer to a " + scope.What + " that covers GPUs of this host."
	case errors.As(err, &apart):
		f.Path, f.Title, f.Fix = "gpu_ids", "No process can use all devices of the share", "Replace the share: `terraform apply -replace=ADDRESS`."
		if apart.FirstMode == gpu.ShareMPS && apart.SecondMode == gpu.ShareMPS {
			f.Fix = "Leave `daemons` of the gpu_partition_config as it is, or give the share one GPU."
		}
	case errors.As(err, &quota):
		f.Rule, f.Path, f.Title = poolQuota, "pool", "The quota of the pool is used up"
		f.Host, f.Found, f.Wanted = quota.Host, fmt.Sprintf("In pool %s, label %s: %s.", quote(quota.Pool), quote(quota.Label), quota.Found()), capital(quota.Wanted())+"."
		f.Fix = "Raise the quota in the gpu_pool, ask for less, or destroy a share of the label."
	case errors.As(err, &namesake):
		f.Rule, f.Host, f.Title, f.Fix = "unique-name", namesake.Host, "The host has another share of that name", "Give the share another `name`."
	case errors.As(err, &name):
		f.Rule, f.Title = "share-name", "The name is not a valid CDI device name"
		f.Fix = "Give the share another `name`."
	case errors.As(err, &amount):
		f.Rule, f.Path, f.Title = fractionNotInMode, amount.Attribute, "The value is out of range"
		f.Fix = "Correct the value."
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
	case placement.LackSize:
		return fractionNotInMode, "memory", "The share requests more memory than the device has"
	case placement.LackClients:
		return mpsClientLimit, f.Path, "Too many MPS clients"
	case placement.LackLimit:
		return oversubscription, "memory", "The memory limits of the shares exceed what the config allows"
	case placement.LackThreads:
		return oversubscription, "active_thread_percentage", "The thread percentages of the shares exceed what the config allows"
	case placement.LackMissing, placement.LackLayout, placement.LackPool, placement.LackConfig, placement.LackProfile, placement.LackApart, placement.LackTaken, placement.LackReplicas, placement.LackMemory:
	}
	return f.Rule, f.Path, f.Title
}
