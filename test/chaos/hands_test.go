//go:build linux

package chaos_test

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// What other hands do to the fleet. Each returns what became of it.

// handOperation makes a random operation of other hands.
func (g *generator) handOperation() *operation {
	g.number++
	op := &operation{number: g.number}
	switch n := g.rng.IntN(26); {
	case n < 4:
		g.person(op)
	case n < 6:
		g.foreignAdapter(op)
	case n < 8:
		g.failover(op)
	case n < 11:
		g.reboot(op)
	case n < 13:
		g.reconcile(op)
	case n < 17:
		g.fault(op)
	case n < 18:
		g.outage(op)
	case n < 20:
		g.meddle(op)
	default:
		g.act(op)
	}
	return op
}

func (g *generator) anyVM() string { return one(g.rng, sorted(g.vms)...) }

// person turns a VM on or off, in the middle of whatever is done to it.
func (g *generator) person(op *operation) {
	vm, to := g.anyVM(), gpu.VMOff
	if g.rng.IntN(2) == 0 {
		to = gpu.VMRunning
	}
	g.unsure[vm] = "a person turned it " + string(to)
	op.what = fmt.Sprintf("a person turns VM %s %s", vm, to)
	op.hand = func(h *harness) string { return said(h.fleet.SetVMState(h.ctx, vm, to)) }
}

// foreignAdapter gives a VM that no state has a partition, as Windows Admin Center does.
func (g *generator) foreignAdapter(op *operation) {
	vm := g.anyVM()
	if g.vms[vm].by != nil {
		g.person(op)
		return
	}
	g.unsure[vm] = "Windows Admin Center turned it off and on"
	op.what = "Windows Admin Center gives VM " + vm + " a partition"
	op.hand = func(h *harness) string {
		id, err := h.fleet.AddForeignAdapter(h.ctx, vm)
		if id != "" {
			h.mu.Lock()
			h.foreign[vm] = append(h.foreign[vm], id)
			h.mu.Unlock()
		}
		return said(err)
	}
}

// failover moves a clustered VM to the other node.
func (g *generator) failover(op *operation) {
	vm, to := one(g.rng, g.at(nodeA)[0].vms...), one(g.rng, nodeA, nodeB)
	op.what = fmt.Sprintf("VM %s fails over to %s", vm, to)
	op.hand = func(h *harness) string {
		before, _ := h.vm(vm)
		err := h.fleet.MoveVM(h.ctx, vm, to)
		if after, _ := h.vm(vm); before.Runs() && !after.Runs() {
			h.isUnsure(vm, "it found no room at its failover")
		}
		return said(err)
	}
}

// reboot reboots a host and runs what runs at boot.
func (g *generator) reboot(op *operation) {
	host, at := one(g.rng, lone, nodeA, migHost, mpsHost, kvmHost), g.rng.IntN(20)
	g.model.reboot(host)
	op.what = "reboot of " + host + ", and reconcile"
	op.hand = func(h *harness) string {
		before := h.running(host)
		h.killAgents(host)
		err := h.fleet.Reboot(h.ctx, host)
		h.killAgents(host)
		after := h.running(host)
		for _, vm := range before {
			if !slices.Contains(after, vm) {
				h.isUnsure(vm, "it found no room after the reboot")
			}
		}
		h.counted(func(f *figures) { f.reboots++ })
		return said(err) + "; " + h.reconcileOnce(host, at)
	}
}

func (g *generator) reconcile(op *operation) {
	host, at := one(g.rng, lone, nodeA, nodeB, migHost, mpsHost, kvmHost), g.rng.IntN(12)
	op.what = "reconcile of " + host
	op.hand = func(h *harness) string { return h.reconcileOnce(host, at) }
}

// act does something once with what a state has, by the agent's own command.
func (g *generator) act(op *operation) {
	var objects []*object
	for _, s := range g.states {
		for _, o := range s.objects {
			if o.typ == typeVM || o.kind == "mps" || o.kind == "gpu_p" && o.site.hosts[0] == nodeA {
				objects = append(objects, o)
			}
		}
	}
	o, ok := pick(g.rng, objects)
	if !ok {
		g.person(op)
		return
	}
	at, host, args := g.rng.IntN(12), o.site.hosts[0], []string{"mps", "restart", o.name}
	switch {
	case o.typ == typeVM:
		args = []string{"vm", one(g.rng, "start", "stop", "apply-pending"), o.name}
		g.unsure[o.name] = strings.Join(args[:2], " ")
	case o.kind == "gpu_p":
		args = []string{"host", one(g.rng, "drain", "resume")}
	}
	op.what = fmt.Sprintf("gpu-agent %s on %s", strings.Join(args, " "), host)
	op.hand = func(h *harness) string {
		if o.typ == typeVM {
			_, host = h.vm(o.name)
		}
		h.counted(func(f *figures) { f.acts++ })
		return h.agentOnce(at, host, append(args, "--yes")...)
	}
}

// reconcileOnce runs gpu-agent reconcile and kills it at a write, unless that is too late.
func (h *harness) reconcileOnce(host string, killAt int) string {
	h.counted(func(f *figures) { f.reconciles++ })
	return h.agentOnce(killAt, host, "reconcile", "--timeout", "20s")
}

// agentOnce runs a command of gpu-agent and kills it at a write, unless that is too late.
func (h *harness) agentOnce(killAt int, host string, args ...string) string {
	cmd := h.agent(host, args...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return err.Error()
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	w := &writes{file: h.fleet.Path()}
	w.look()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return fmt.Sprintf("%s (%v)", oneLine(out.String()), err)
		case <-tick.C:
			if killAt > 0 && w.look() >= killAt {
				_ = cmd.Process.Signal(syscall.SIGKILL) // it may have ended
				h.counted(func(f *figures) { f.kills[args[0]]++ })
				return fmt.Sprintf("killed at write %d (%v)", killAt, <-done)
			}
		}
	}
}

// The operations in which failures are injected.
var faulty = map[string][]simulated.Op{
	lone: {
		simulated.OpStartVM, simulated.OpStartVM, simulated.OpStartVM, simulated.OpShutDownVM, simulated.OpSetPartitionCount,
		simulated.OpAddPartitionAdapter,
		simulated.OpRemovePartitionAdapter, simulated.OpApplyVMSettings, simulated.OpDismountDevice, simulated.OpMountDevice,
		simulated.OpSetPoolMembers,
	},
	nodeA: {
		simulated.OpStartVM, simulated.OpStartVM, simulated.OpShutDownVM, simulated.OpSetPartitionCount, simulated.OpAddPartitionAdapter,
	},
	migHost: {simulated.OpSetMIGMode, simulated.OpCreateInstance, simulated.OpDestroyInstance, simulated.OpRefreshDevices},
	mpsHost: {
		simulated.OpSetComputeMode, simulated.OpSetTimeSlice, simulated.OpEnsureDaemon, simulated.OpRemoveDaemon,
		simulated.OpWriteShare, simulated.OpRemoveShare,
	},
	kvmHost: {simulated.OpSetFunctions, simulated.OpCreateVGPU, simulated.OpRemoveVGPU},
}

// fault injects failures to come, until the phase ends.
func (g *generator) fault(op *operation) {
	host := one(g.rng, lone, lone, lone, nodeA, nodeB, migHost, mpsHost, kvmHost)
	ops := faulty[host]
	if host == nodeB {
		ops = faulty[nodeA]
	}
	f := simulated.Fault{
		Op: one(g.rng, ops...), After: g.rng.IntN(2), Times: one(g.rng, 1, 1, 2, 5, 0),
		Moment: one(g.rng, simulated.BeforeEffect, simulated.BeforeEffect, simulated.AfterEffect),
		Code:   backend.Failed, Detail: "injected by chaos",
	}
	g.loosen(host)
	op.what = fmt.Sprintf("%s fails on %s %d times, after %d (0 is for ever), %s", f.Op, host, f.Times, f.After, f.Moment)
	op.hand = func(h *harness) string { return said(h.fleet.InjectFault(h.ctx, host, f)) }
}

// outage cuts a host off for a while.
func (g *generator) outage(op *operation) {
	host, d := one(g.rng, lone, nodeA, nodeB, migHost, mpsHost, kvmHost), between(g.rng, 300*time.Millisecond, 4*time.Second)
	g.loosen(host)
	op.what = fmt.Sprintf("%s cannot be reached for %s", host, d.Round(time.Millisecond))
	op.hand = func(h *harness) string {
		err := h.fleet.SetUnreachable(h.ctx, host, true)
		time.Sleep(d)
		return said(err) + said(h.fleet.SetUnreachable(h.ctx, host, false))
	}
}

// meddle changes by hand what a config declares.
func (g *generator) meddle(op *operation) {
	var configs []*object
	for _, s := range g.states {
		configs = append(configs, s.of(typeConfig)...)
	}
	o, ok := pick(g.rng, configs)
	if !ok || o.kind == "time_slicing" {
		g.person(op)
		return
	}
	host, id := o.site.hosts[0], o.site.gpus[0]
	g.held[o.site].loose = true // what a destroy finds is not what was declared
	switch o.kind {
	case "gpu_p":
		op.what = fmt.Sprintf("somebody sets GPU %s of %s to 4 partitions", id, host)
		op.hand = func(h *harness) string { return said(h.fleet.SetCountOutside(h.ctx, host, id, 4)) }
	case "mig":
		op.what = fmt.Sprintf("somebody resets GPU %s of %s", id, host)
		op.hand = func(h *harness) string { return said(h.fleet.ResetGPU(h.ctx, host, id)) }
	case "vgpu":
		op.what = fmt.Sprintf("somebody turns the virtual functions of GPU %s of %s off", id, host)
		op.hand = func(h *harness) string { return said(h.fleet.SetVirtualFunctionsOutside(h.ctx, host, id, false)) }
	case "mps":
		op.what = "the kernel kills an MPS daemon of " + host
		op.hand = func(h *harness) string {
			host, ok := h.host(host)
			if !ok || host.MPS == nil {
				return "there is no host"
			}
			for _, d := range host.MPS.Daemons {
				if d.PID != 0 {
					return said(h.fleet.KillDaemon(h.ctx, host.Name, d.Name))
				}
			}
			return "no daemon runs"
		}
	}
}

func said(err error) string {
	if err != nil {
		return oneLine(err.Error())
	}
	return "done"
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// killAgents kills the agents of a host, as its end does.
func (h *harness) killAgents(host string) {
	for _, p := range processes(h.bin) {
		if p.binary == agentName && p.host() == host && syscall.Kill(p.pid, syscall.SIGKILL) == nil {
			h.counted(func(f *figures) { f.kills["agent by reboot"]++ })
		}
	}
}

// agent is a command of gpu-agent on a host.
func (h *harness) agent(host string, args ...string) *exec.Cmd {
	return exec.CommandContext(h.ctx, h.bin+"/"+agentName,
		append([]string{"--backend", "simulated", "--fleet", h.fleet.Path(), "--host", host}, args...)...)
}

// snapshot reads the fleet.
func (h *harness) snapshot() gpu.Snapshot {
	s, err := h.fleet.Snapshot(context.WithoutCancel(h.ctx))
	if err != nil {
		h.t.Fatal(err)
	}
	return s
}

func (h *harness) host(name string) (*gpu.Host, bool) {
	s := h.snapshot()
	i := slices.IndexFunc(s.Hosts, func(x gpu.Host) bool { return x.Name == name })
	if i < 0 {
		return nil, false
	}
	return &s.Hosts[i], true
}

// vm finds a VM and its host.
func (h *harness) vm(name string) (gpu.VM, string) {
	for _, host := range h.snapshot().Hosts {
		for _, v := range host.VMs {
			if v.Name == name {
				return v, host.Name
			}
		}
	}
	return gpu.VM{}, ""
}

// running are the VMs that run on a host.
func (h *harness) running(host string) []string {
	var out []string
	if x, ok := h.host(host); ok {
		for _, v := range x.VMs {
			if v.Runs() {
				out = append(out, v.Name)
			}
		}
	}
	return out
}

// busy are the hosts where a run holds the lease.
func (h *harness) busy() map[string]bool {
	out := map[string]bool{}
	for _, name := range h.fleet.Hosts() {
		if st, err := h.records(name); err == nil && (st.Lease != nil || len(st.Journal) > 0) {
			out[name] = true
		}
	}
	return out
}

// records are those of the agent of a host.
func (h *harness) records(host string) (backend.State, error) {
	x, err := h.fleet.Host(host)
	if err != nil {
		return backend.State{}, err
	}
	return x.Load(h.ctx)
}
