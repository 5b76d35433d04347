package change

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// Disturbance is a VM that is stopped, a process that ends or a GPU that is reset.
type Disturbance struct {
	// Key names it in an Approved: a VM wherever it is, the others on their host.
	Key string
	// Text says what happens, for people: "VM avd-01 would be shut down".
	Text string
}

func disturbsVM(id, name string) Disturbance {
	return Disturbance{Key: "vm " + gpu.FoldID(id), Text: vmText(cmp.Or(name, id)) + " would be shut down"}
}

func endsProcess(host string, p gpu.Process) Disturbance {
	return Disturbance{
		Key:  strings.Join([]string{"process", host, strconv.Itoa(p.PID), p.Name}, " "),
		Text: placement.ProcessText(p) + " would end",
	}
}

// resets is the reset of a GPU that turns its MIG mode on or off.
func resets(host, id string, enable bool) Disturbance {
	return Disturbance{
		Key:  strings.Join([]string{"reset", host, gpu.FoldID(id), onOff(enable)}, " "),
		Text: "GPU " + id + " would be reset, to turn its MIG mode " + onOff(enable),
	}
}

// Disturbs lists what steps disturb on a host, which is as it is before them. The key is
// the caller's name for the host.
func Disturbs(host *gpu.Host, key string, steps []Step) []Disturbance {
	var out []Disturbance
	for _, s := range steps {
		switch {
		case s.Op == OpStopVM:
			out = append(out, disturbsVM(s.VM, s.Name))
		case s.Op == OpSetMIGMode && s.Force:
			out = append(out, resets(key, s.GPU, s.Enable))
		case s.Disrupts() == gpu.DisruptProcessRestart:
			for _, c := range s.ends(host) {
				out = append(out, endsProcess(key, c))
			}
		}
	}
	return out
}

// Disturbable lists what changes of a host could disturb: running VMs that have a GPU, and
// those that are owed a start; clients of MPS; and the reset of each GPU that takes one for
// its MIG mode.
func Disturbable(host *gpu.Host, key string) []Disturbance {
	var out []Disturbance
	for i := range host.VMs {
		if vm := &host.VMs[i]; len(vm.PartitionAdapters)+len(vm.Devices) > 0 {
			out = append(out, Stoppable(host, vm)...)
		}
	}
	if host.MPS != nil {
		for _, d := range host.MPS.Daemons {
			for _, c := range d.Clients {
				out = append(out, endsProcess(key, c))
			}
		}
	}
	for i := range host.GPUs {
		if g := &host.GPUs[i]; g.MIG != nil && g.MIG.NeedsReset {
			out = append(out, resets(key, g.ID, !g.MIG.Enabled))
		}
	}
	return out
}

// Stoppable is the shutdown of a VM that runs, or that is owed a start.
func Stoppable(host *gpu.Host, vm *gpu.VM) []Disturbance {
	if _, owed := host.Owes(vm.ID); vm.Runs() || owed {
		return []Disturbance{disturbsVM(vm.ID, vm.Name)}
	}
	return nil
}

// Approved is what a change may disturb: what its plan has announced, or what there was to
// disturb when it was planned.
type Approved struct {
	// Hosts are those of which this is known; nil for all.
	Hosts []string `json:"hosts,omitempty"`
	// Keys are those of the disturbances.
	Keys []string `json:"keys"`
	// Handed are the hosts on which another resource of the run takes the object over that a
	// destroy gives up: it touches nothing there, in whatever order the two come.
	Handed []string `json:"handed,omitempty"`
}

// Approve adds disturbances.
func (a *Approved) Approve(of ...Disturbance) {
	for _, d := range of {
		if at, found := slices.BinarySearch(a.Keys, d.Key); !found {
			a.Keys = slices.Insert(a.Keys, at, d.Key)
		}
	}
}

// HasVM tells whether a VM may be stopped.
func (a *Approved) HasVM(id string) bool {
	return slices.Contains(a.Keys, disturbsVM(id, "").Key)
}

// WithVMs are the same and VMs that may be stopped too.
func (a *Approved) WithVMs(ids ...string) *Approved {
	if a == nil {
		return nil
	}
	more := *a
	more.Keys = slices.Clone(a.Keys)
	for _, id := range ids {
		more.Approve(disturbsVM(id, ""))
	}
	return &more
}

// beyond lists, in words, what is disturbed on a host without being approved.
func (a *Approved) beyond(key string, of []Disturbance) []string {
	if a == nil || a.Hosts != nil && !slices.Contains(a.Hosts, key) {
		return nil
	}
	var out []string
	for _, d := range of {
		if !slices.Contains(a.Keys, d.Key) {
			out = append(out, d.Text)
		}
	}
	return out
}

// keepsTo refuses steps that disturb more than is approved.
func (p *planner) keepsTo(a *Approved) error {
	if more := a.beyond(p.key, Disturbs(&p.host, p.key, p.steps)); len(more) > 0 {
		return &gpu.Refusal{Code: gpu.Unannounced, Reasons: more}
	}
	return nil
}
