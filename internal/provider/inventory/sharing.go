package inventory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/tfschema"
)

type daemonModel struct {
	Name          *string  `tfsdk:"name"`
	GPUIDs        []string `tfsdk:"gpu_ids"`
	MIGInstance   *string  `tfsdk:"mig_instance"`
	PID           *int64   `tfsdk:"pid"`
	PipeDirectory *string  `tfsdk:"pipe_directory"`
	User          *int64   `tfsdk:"uid"`
	MultiUser     bool     `tfsdk:"multi_user"`
	Threads       *float64 `tfsdk:"active_thread_percentage"`
	MemoryMiB     *int64   `tfsdk:"pinned_memory_limit_mib"`
	Clients       []int64  `tfsdk:"client_pids"`
	Problem       *string  `tfsdk:"problem"`
}

type shareModel struct {
	CDIDevice   string            `tfsdk:"cdi_device"`
	Environment map[string]string `tfsdk:"environment"`
	Note        *string           `tfsdk:"note"`
}

func daemonsAttribute() schema.Attribute {
	return tfschema.ComputedList("The control daemons of the Multi-Process Service (MPS) on the host, those of "+
		"`gpu_partition_config` and those of others.", tfschema.Attributes{
		"name": tfschema.ComputedText("The daemon's name; null for one that this provider has not made."),
		"gpu_ids": tfschema.ComputedListOf(types.StringType, "The GPUs that it serves, in the order in which clients count "+
			"them. One that the host no longer has goes by its UUID."),
		"mig_instance":   tfschema.ComputedText("The GPU instance that it serves, such as `3g.40gb@4`; null for whole GPUs."),
		"pid":            tfschema.ComputedNumber("Its process id; null while it does not run."),
		"pipe_directory": tfschema.ComputedText("What clients set `CUDA_MPS_PIPE_DIRECTORY` to."),
		"uid": tfschema.ComputedNumber("The id of the user whose processes may be clients; " +
			"null with `multi_user`, or when not known."),
		"multi_user": tfschema.ComputedFlag("Whether processes of all users may be clients."),
		"active_thread_percentage": tfschema.ComputedDecimal("The most of a device's multiprocessors for each client process, " +
			"in percent; null for no limit."),
		"pinned_memory_limit_mib": tfschema.ComputedNumber("The most memory for each client process on each device, in MiB; null for no limit."),
		"client_pids": tfschema.ComputedListOf(types.Int64Type, "The process ids of its clients; always empty for a daemon that "+
			"this provider has not made."),
		"problem": tfschema.ComputedText("Why the daemon does not run or answer; null when it does."),
	})
}

func sharesAttribute() schema.Attribute {
	return tfschema.ComputedMap("What `gpu_share` has handed to containers of the host, by name.", tfschema.Attributes{
		"cdi_device":  tfschema.ComputedText("The CDI device by which containers ask for it."),
		"environment": tfschema.ComputedMapOf(types.StringType, "What a process of the host needs in its environment to be in the share."),
		"note":        tfschema.ComputedText("What containers lack; null for nothing."),
	})
}

// describeSharing fills in what processes and containers share.
func (m *hostModel) describeSharing(h *gpu.Host) {
	m.ContainerToolkit = object.NilIfEmpty(h.ContainerToolkit)
	m.Daemons, m.Shares = []daemonModel{}, map[string]shareModel{}
	if h.MPS != nil {
		m.MPSProgram = object.NilIfEmpty(h.MPS.Program)
		byName := func(a, b gpu.MPSDaemon) int { return cmp.Compare(a.Name, b.Name) }
		for _, daemon := range slices.SortedStableFunc(slices.Values(h.MPS.Daemons), byName) {
			m.Daemons = append(m.Daemons, describeDaemon(&daemon))
		}
	}
	for _, s := range h.Shares {
		x := shareModel{CDIDevice: s.CDIDevice, Environment: map[string]string{}, Note: object.NilIfEmpty(s.Note)}
		maps.Copy(x.Environment, s.Environment)
		m.Shares[s.Name] = x
	}
}

func describeDaemon(d *gpu.MPSDaemon) daemonModel {
	out := daemonModel{
		Name: object.NilIfEmpty(d.Name), GPUIDs: []string{}, PipeDirectory: object.NilIfEmpty(d.PipeDir), MultiUser: d.MultiUser,
		Clients: []int64{}, Problem: object.NilIfEmpty(d.Problem),
	}
	for _, at := range d.Devices {
		out.GPUIDs = append(out.GPUIDs, at.GPU)
		if at.Instance != nil {
			out.MIGInstance = new(fmt.Sprintf("%s@%d", at.Instance.Profile, at.Instance.Start))
		}
	}
	if d.PID != 0 {
		out.PID = new(int64(d.PID))
	}
	if d.User != nil {
		out.User = new(int64(*d.User))
	}
	if d.ActiveThreadPercentage > 0 {
		out.Threads = new(d.ActiveThreadPercentage)
	}
	if d.PinnedMemoryLimit > 0 {
		out.MemoryMiB = new(d.PinnedMemoryLimit.MiB())
	}
	for _, p := range d.Clients {
		out.Clients = append(out.Clients, int64(p.PID))
	}
	slices.Sort(out.Clients)
	return out
}
