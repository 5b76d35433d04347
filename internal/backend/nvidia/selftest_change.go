//go:build linux && cgo

package nvidia

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/hashicorp/go-uuid"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// trialName is the daemon and the share that a trial makes and takes away.
const trialName = "gpu-agent-selftest"

// trial is a self-test that changes a GPU.
type trial struct {
	*Backend
	backend.Trial
	before gpu.Host
	gpu    *gpu.GPU // as it was
}

// SelfTestChange implements backend.ChangeTester: MIG mode with an instance of each profile,
// time slices, an MPS daemon and shares of the GPU and of an instance, and a vGPU.
func (b *Backend) SelfTestChange(ctx context.Context, vm, gpuID string) []backend.Answer {
	t := &trial{Backend: b}
	if !t.Step("choose the GPU", func() (string, error) {
		var err error
		if t.before, err = b.Inventory(ctx); err != nil {
			return "", err
		}
		return "it is idle", t.choose(vm, gpuID)
	}) {
		return t.Answers
	}
	t.modes(t.gpu)
	t.mig(ctx)
	if t.mode(ctx, false) {
		t.timeSlices(ctx)
		t.share(ctx, gpu.SharedDevice{GPU: t.gpu.ID})
		t.vgpu(ctx)
	}
	t.Back(ctx, 0)
	t.derivedFiles(ctx)
	t.Step("compare with before", t.compare)
	return t.Answers
}

// choose refuses a GPU that is not idle.
func (t *trial) choose(vm, gpuID string) error {
	g, ok := t.before.GPU(gpuID)
	switch {
	case vm != "":
		return refuse(backend.InvalidParameter, "VM %s was named, and a trial of a Linux host takes none", vm)
	case !ok:
		return refuse(backend.NotFound, "the host has no GPU %s", gpuID)
	case g.Problem != "":
		return refuse(backend.Unavailable, "the GPU has a problem: %s", g.Problem)
	case len(t.before.Unknown) > 0:
		return refuse(backend.Unavailable, "not all of the host can be read, so that nobody could tell whether all was put back: %s",
			t.before.Unknown[0])
	case len(g.Processes) > 0:
		return refuse(backend.InUse, "the GPU is in use by %s", who(g.Processes))
	case g.MIG != nil && len(g.MIG.Instances) > 0:
		return refuse(backend.InUse, "the GPU is divided into %d GPU instances", len(g.MIG.Instances))
	case g.MIG != nil && g.MIG.Enabled != g.MIG.Pending:
		return refuse(backend.InvalidState, "a change of the GPU's MIG mode waits for a reset")
	case g.VGPU != nil && len(g.VGPU.Instances) > 0:
		return refuse(backend.InUse, "the GPU has %d vGPUs", len(g.VGPU.Instances))
	case g.ComputeMode == gpu.ComputeProhibited:
		return refuse(backend.InUse, "the GPU is closed to processes: its compute mode is %s", g.ComputeMode)
	}
	if sharing := sharing(&t.before, gpuID); sharing != "" {
		return refuse(backend.InUse, "%s", sharing)
	}
	t.gpu = g
	return nil
}

// sharing is what hands the GPU out, or has the trial's name; "" for nothing. Daemons and shares of other GPUs come and
// go as a trial runs.
func sharing(host *gpu.Host, id string) string {
	for _, d := range host.MPS.Daemons {
		if d.Name == trialName || slices.ContainsFunc(d.Devices, func(s gpu.SharedDevice) bool { return gpu.SameID(s.GPU, id) }) {
			return fmt.Sprintf("%s serves the GPU or has the trial's name: process %d, pipes in %s", daemonObject(d.Name), d.PID, d.PipeDir)
		}
	}
	for _, s := range host.Shares {
		if s.Name == trialName || strings.Contains(strings.ToLower(s.Environment["CUDA_VISIBLE_DEVICES"]), strings.ToLower(id)) {
			return shareObject(s.Name) + " has part in the GPU or has the trial's name"
		}
	}
	return ""
}

// now is the GPU as it is.
func (t *trial) now(ctx context.Context) (gpu.Host, *gpu.GPU, error) {
	host, err := t.Inventory(ctx)
	if err != nil {
		return host, nil, err
	}
	g, ok := host.GPU(t.gpu.ID)
	if !ok {
		return host, nil, refuse(backend.NotFound, "the host has no GPU %s any more", t.gpu.ID)
	}
	return host, g, nil
}

// mode brings the GPU into or out of MIG mode.
func (t *trial) mode(ctx context.Context, on bool) bool {
	_, g, err := t.now(ctx)
	if err != nil {
		return t.Step("read the GPU", func() (string, error) { return "", err })
	}
	if g.MIG == nil || g.MIG.Enabled == on {
		return true
	}
	words := map[bool]string{true: "turn MIG mode on", false: "turn MIG mode off"}
	set := func(on bool) func(context.Context) error {
		return func(ctx context.Context) error { return t.SetMIGMode(ctx, t.gpu.ID, on, true) }
	}
	return t.Change(ctx, words[on], set(on), words[!on]+" again", set(!on))
}

// mig makes an instance of each profile that the GPU offers, one after the other, and shares
// those that are told apart by their size. A time slice is long meanwhile, where the mode
// changes with a reset.
func (t *trial) mig(ctx context.Context) {
	begun := t.Changed()
	defer t.Back(ctx, begun)
	long := t.gpu.MIG != nil && t.gpu.MIG.NeedsReset && t.gpu.TimeSlice == gpu.TimeSliceDefault && t.slice(ctx, gpu.TimeSliceLong)
	if t.gpu.MIG == nil || !t.mode(ctx, true) {
		return
	}
	host, g, err := t.now(ctx)
	if !t.Step("read its MIG profiles", func() (string, error) {
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%d profiles", len(g.MIG.Profiles)), nil
	}) {
		return
	}
	for _, a := range backend.MIGAsInCatalog(host) { // drivers before R550 tell more in MIG mode
		if a.Holds != nil {
			t.Answer(a.Assumption, a.Found, *a.Holds)
		}
	}
	for _, p := range g.MIG.Profiles {
		if len(p.Starts) > 0 && !t.instance(ctx, gpu.MIGPlacement{Profile: p.Name, Start: p.Starts[0]}) {
			return
		}
	}
	if long && t.mode(ctx, false) {
		t.askSlice(ctx)
	}
}

// instance makes one GPU instance, which is shared, and removes it.
func (t *trial) instance(ctx context.Context, p gpu.MIGPlacement) bool {
	begun := t.Changed()
	defer t.Back(ctx, begun)
	made := t.Change(ctx, fmt.Sprintf("create the GPU instance %s at %d", p.Profile, p.Start), func(ctx context.Context) error {
		return t.CreateInstance(ctx, t.gpu.ID, p)
	}, "destroy it", func(ctx context.Context) error { return t.DestroyInstance(ctx, t.gpu.ID, p) })
	if made && !strings.Contains(p.Profile, "+") { // shared once for each size
		t.derivedFiles(ctx)
		t.share(ctx, gpu.SharedDevice{GPU: t.gpu.ID, Instance: &p})
	}
	return made
}

// derivedFiles has device nodes and specifications follow. What fails is noted, and is
// no failure of the GPU.
func (t *trial) derivedFiles(ctx context.Context) {
	if len(t.stale()) > 0 {
		t.Step("refresh the device nodes and the CDI specification", func() (string, error) {
			return "done", t.RefreshDevices(context.WithoutCancel(ctx))
		})
	}
}

func (t *trial) slice(ctx context.Context, s gpu.TimeSlice) bool {
	return t.Step(fmt.Sprintf("set the time slice %s", s), func() (string, error) { return "done", t.SetTimeSlice(ctx, t.gpu.ID, s) })
}

// modes has the compute mode and the time slice put back, which are set and which a change of
// MIG mode loses. A GPU in MIG mode has none.
func (t *trial) modes(as *gpu.GPU) {
	if isInMIGMode(as) {
		return
	}
	t.Later("put its compute mode and time slice back", func(ctx context.Context) error {
		_, now, err := t.now(ctx)
		if err != nil {
			return err
		}
		if now.ComputeMode != as.ComputeMode {
			err = t.SetComputeMode(ctx, as.ID, as.ComputeMode)
		}
		if now.TimeSlice != as.TimeSlice {
			err = errors.Join(err, t.SetTimeSlice(ctx, as.ID, as.TimeSlice))
		}
		return err
	})
}

// askSlice looks whether a time slice has outlived resets of the GPU.
func (t *trial) askSlice(ctx context.Context) {
	const id = "linux-time-slice-reset"
	_, g, err := t.now(ctx)
	switch {
	case err != nil:
	case g.TimeSlice == gpu.TimeSliceDefault:
		t.Answer(id, "a long time slice was lost when the GPU was reset for its MIG mode", true)
	default: // a restart loses more than a reset does
		t.Answers = append(t.Answers, backend.Answer{
			Assumption: id, Found: fmt.Sprintf("after resets of the GPU the time slice is %s: restart the host to know more", g.TimeSlice),
		})
	}
}

// timeSlices sets each time slice. Where the driver does not tell it, nobody could put it back.
func (t *trial) timeSlices(ctx context.Context) {
	_, g, err := t.now(ctx)
	if err != nil || g.TimeSlice == "" && !isBeforeVolta(g) {
		return
	}
	t.modes(g)
	for _, s := range gpu.TimeSlices()[1:] {
		ok := t.slice(ctx, s)
		if isBeforeVolta(g) {
			t.Answer("linux-time-slice-volta", t.Last(), !ok)
			return
		}
		if !ok {
			return
		}
	}
}

// share hands a device to containers, with an MPS daemon where the host has the program and
// without.
func (t *trial) share(ctx context.Context, device gpu.SharedDevice) {
	begun := t.Changed()
	defer t.Back(ctx, begun)
	spec := gpu.ShareSpec{Name: trialName, Devices: []gpu.SharedDevice{device}}
	handed := func(what string) bool {
		return t.Change(ctx, what, func(ctx context.Context) error { return t.WriteShare(ctx, spec) },
			"take the share back", func(ctx context.Context) error { return t.RemoveShare(ctx, trialName, false) }) &&
			t.Step("read the share", func() (string, error) { return t.handed(ctx) })
	}
	if !handed("hand it to containers") || t.before.MPS.Program == "" {
		return
	}
	if device.Instance == nil {
		t.Step("set the compute mode exclusive_process", func() (string, error) {
			return "done", t.SetComputeMode(ctx, t.gpu.ID, gpu.ComputeExclusiveProcess)
		})
	}
	daemon := gpu.MPSDaemonSpec{
		Name: trialName, Devices: spec.Devices, User: new(os.Geteuid()), ActiveThreadPercentage: 50, PinnedMemoryLimit: 1024 * gpu.MiB,
	}
	if !t.Change(ctx, "start an MPS daemon", func(ctx context.Context) error { return t.EnsureDaemon(ctx, daemon, false) },
		"end the MPS daemon", func(ctx context.Context) error { return t.RemoveDaemon(ctx, trialName, false) }) {
		return
	}
	var pid int
	t.Step("read the MPS daemon", func() (found string, err error) {
		pid, err = t.serves(ctx, &daemon)
		return fmt.Sprintf("process %d", pid), err
	})
	daemon.ActiveThreadPercentage = 25
	t.Step("lower its threads as it runs", func() (string, error) {
		if err := t.EnsureDaemon(ctx, daemon, false); err != nil {
			return "", err
		}
		now, err := t.serves(ctx, &daemon)
		if err == nil && now != pid {
			err = refuse(backend.Failed, "it was process %d and is process %d: it was started again", pid, now)
		}
		return "done", err
	})
	spec.Daemon, spec.ActiveThreadPercentage, spec.PinnedMemoryLimit = trialName, 10, 512*gpu.MiB
	handed("hand it to containers with MPS")
}

// handed looks for the trial's share among those that containers can ask for.
func (t *trial) handed(ctx context.Context) (string, error) {
	host, _, err := t.now(ctx)
	if err != nil {
		return "", err
	}
	s, ok := host.HandedShare(trialName)
	if !ok {
		return "", refuse(backend.Failed, "it was written, and containers cannot ask for it")
	}
	return strings.TrimSuffix(s.CDIDevice+"; "+s.Note, "; "), nil
}

// serves is the process of the trial's daemon, which has to run as it is wanted.
func (t *trial) serves(ctx context.Context, want *gpu.MPSDaemonSpec) (int, error) {
	host, _, err := t.now(ctx)
	if err != nil {
		return 0, err
	}
	d, ok := host.Daemon(trialName)
	if !ok || d.PID == 0 || d.Problem != "" || !d.Equal(want) {
		return 0, refuse(backend.Failed, "%+v was wanted, and the host shows %+v", want, d)
	}
	return d.PID, nil
}

// vgpu turns the virtual functions on and makes a vGPU of the first time-sliced type.
func (t *trial) vgpu(ctx context.Context) {
	v := t.gpu.VGPU
	if v == nil {
		return
	}
	i := slices.IndexFunc(v.Types, func(t gpu.VGPUType) bool { return t.MIGProfile == "" })
	if i < 0 {
		return
	}
	begun := t.Changed()
	defer t.Back(ctx, begun)
	if v.Functions > 0 && !v.FunctionsOn {
		set := func(on bool) func(context.Context) error {
			return func(ctx context.Context) error { return t.SetVirtualFunctions(ctx, t.gpu.ID, on) }
		}
		if !t.Change(ctx, "turn the virtual functions on", set(true), "turn the virtual functions off", set(false)) {
			return
		}
	}
	if v.HeterogeneousSupported {
		set := func(on bool) func(context.Context) error {
			return func(ctx context.Context) error { return t.SetHeterogeneous(ctx, t.gpu.ID, on) }
		}
		t.Change(ctx, "switch the mode of mixed vGPU sizes", set(!v.Heterogeneous), "put that mode back", set(v.Heterogeneous))
	}
	place := gpu.VGPUPlace{Type: v.Types[i].Name, Function: gpu.Itself}
	if v.Functions > 0 {
		place.Function = 0
	}
	var err error
	if place.UUID, err = uuid.GenerateUUID(); err != nil {
		return
	}
	t.Change(ctx, "create the vGPU "+place.Type, func(ctx context.Context) error { return t.CreateVGPU(ctx, t.gpu.ID, place) },
		"remove it", func(ctx context.Context) error { return t.RemoveVGPU(ctx, t.gpu.ID, place) })
}

// compare finds what the trial has left otherwise.
func (t *trial) compare() (string, error) {
	after, err := t.Inventory(context.Background())
	if err != nil {
		return "", err
	}
	if sharing := sharing(&after, t.gpu.ID); sharing != "" {
		return "", refuse(backend.Failed, "%s", sharing)
	}
	g, _ := after.GPU(t.gpu.ID)
	was, is := gpuText(t.gpu), gpuText(g)
	if was != is {
		return "", refuse(backend.Failed, "the GPU was %s and is %s", was, is)
	}
	return "the GPU is as before, and nothing hands it out", nil
}

// gpuText is what a GPU is, but for the profiles that it offers: old drivers tell them only in MIG mode.
func gpuText(of *gpu.GPU) string {
	g := *of
	if g.MIG != nil {
		mig := *g.MIG
		mig.Profiles, g.MIG = nil, &mig
	}
	text, err := json.Marshal(g)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
