package change

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// kindMPS is NVIDIA's Multi-Process Service. A reboot takes the compute mode and the daemons.
var kindMPS = kind{
	op:       shareGPU,
	platform: gpu.Linux,
	layout:   "the MPS layout",
	noun:     func(*gpu.PartitionConfig) string { return "MPS" },
	use:      "processes and containers of the host share its GPUs",
	passes:   passesSharing,
	beside:   true,
	offers:   offersSharing,
	plan:     planSharing,
	has:      hasModes,
	found: func(_ *gpu.PartitionConfig, _ gpu.Layout, g *gpu.GPU) string {
		return modesFound(g, string(g.ComputeMode), "")
	},
	declared: func(c *gpu.PartitionConfig) string {
		mode, _ := placement.WantedModes(c)
		return "MPS in compute mode " + string(mode)
	},
	cause:        func(_, now gpu.Layout) Cause { return causeOfModes(now, "") },
	unrestorable: func(*gpu.Host, gpu.Layout, *gpu.GPU) string { return "" },
	lost:         lostModes,
}

// daemonDeclared says whom a daemon serves, and how.
func daemonDeclared(d *gpu.MPSDaemonSpec) string {
	parts := []string{DevicesText(d.Devices)}
	switch {
	case d.User != nil:
		parts = append(parts, "user "+strconv.Itoa(*d.User))
	case d.MultiUser:
		parts = append(parts, "all users")
	}
	if d.ActiveThreadPercentage > 0 {
		parts = append(parts, strconv.FormatFloat(d.ActiveThreadPercentage, 'f', -1, 64)+" % of the threads")
	}
	if d.StaticPartitions {
		parts = append(parts, "static partitions")
	}
	if d.PinnedMemoryLimit > 0 {
		parts = append(parts, d.PinnedMemoryLimit.String()+" of memory")
	}
	return strings.Join(parts, ", ")
}

// daemons are where those differ that serve GPUs of a config, on a host as it will be when its
// GPUs are put back.
func daemons(host, after *gpu.Host, c *gpu.PartitionConfig, claim *gpu.Claim, ids []string) []Difference {
	var out []Difference
	for _, want := range placement.Daemons(after, c, ids) {
		d := Difference{Object: "MPS daemon " + want.Name, Declared: daemonDeclared(&want)}
		u, unknown := host.UnknownPart(gpu.PartDaemons)
		have, there := host.Daemon(want.Name)
		switch {
		case unknown:
			out = append(out, d.unread(u))
			continue
		case !there:
			d.Found = "does not exist"
			if claim != nil {
				d.Found, d.Cause = "is gone", CauseReboot
			}
		case have.PID == 0:
			d.Found = "does not run: " + cmp.Or(have.Problem, "it ended, or was lost by reboot")
		case have.Problem != "":
			d.Found = "does not work: " + have.Problem
		case !have.Equal(&want):
			d.Found = "has " + daemonDeclared(&have.MPSDaemonSpec)
			if claim != nil {
				d.Cause = CauseOtherTool
			}
		default:
			continue
		}
		if claim != nil {
			d.repair = lostDaemon(host, have, &want)
		}
		out = append(out, d)
	}
	return out
}

// lostDaemon starts a daemon that is missing, does not work, or serves other devices. What else others
// have set is theirs, and no client ends for it.
func lostDaemon(host *gpu.Host, d *gpu.MPSDaemon, want *gpu.MPSDaemonSpec) repair {
	there := d != nil
	switch {
	case there && d.PID != 0 && d.Problem == "" && gpu.SameDevices(d.Devices, want.Devices):
		return repair{}
	case host.MPS == nil || host.MPS.Program == "":
		return stays("it does not run, and nvidia-cuda-mps-control is not installed")
	case there && len(d.Clients) > 0 && d.PID == 0:
		return stays("it does not run, and to start it ends the clients that its servers have still: " + ClientsOf(host, d.Name))
	case there && len(d.Clients) > 0 && d.Problem != "":
		return stays("it cannot be restarted under its clients: " + ClientsOf(host, d.Name))
	case there && len(d.Clients) > 0:
		return stays("it serves " + DevicesText(d.Devices) + " in place of " + DevicesText(want.Devices) +
			", and cannot be restarted under its clients: " + ClientsOf(host, d.Name))
	}
	if g := withoutPartitions(host, want); g != nil {
		return stays("it does not run, and GPU " + g.ID + " cannot have it: " + noPartitions(g))
	}
	return repair{steps: []Step{{Op: OpEnsureDaemon, Daemon: want}}, lacks: []string{DevicesText(want.Devices)}}
}
