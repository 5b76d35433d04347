//go:build linux && cgo

package nvidia_test

import (
	"testing"

	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestWhoUsesAGPU tells processes apart by what the host's /proc shows of them.
func TestWhoUsesAGPU(t *testing.T) {
	const id = "3f2a1b9c8d7e6f5041322314a5b6c7d8e9f00112233445566778899aabbccdde"
	for _, tt := range []struct {
		name, cgroup, holder string
		args                 []string
		v1                   bool
	}{
		{name: "a unit", cgroup: "/system.slice/trainer.service", holder: "unit trainer.service"},
		{name: "a child of a unit", cgroup: "/system.slice/slurmd.service/job_12/step_0", holder: "unit slurmd.service"},
		{
			name: "a user's unit", cgroup: "/user.slice/user-1000.slice/user@1000.service/app.slice/notebook.service",
			holder: "unit notebook.service",
		},
		{name: "a login", cgroup: "/user.slice/user-1000.slice/session-3.scope"},
		{name: "docker", cgroup: "/system.slice/docker-" + id + ".scope", holder: "container 3f2a1b9c8d7e"},
		{name: "docker without systemd", cgroup: "/docker/" + id, holder: "container 3f2a1b9c8d7e"},
		{name: "podman", cgroup: "/machine.slice/libpod-" + id + ".scope", holder: "container 3f2a1b9c8d7e"},
		{
			name: "kubernetes",
			cgroup: "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b2c3d_0000_4000_8000_00000000abcd.slice/cri-containerd-" +
				id + ".scope",
			holder: "container 3f2a1b9c8d7e of pod 0a1b2c3d-0000-4000-8000-00000000abcd",
		},
		{
			name: "libvirt", cgroup: `/machine.slice/machine-qemu\x2d1\x2dweb\x2d01.scope/libvirt/emulator`,
			args: []string{"/usr/bin/qemu-system-x86_64", "-name", "guest=web-01,debug-threads=on"}, holder: "VM web-01",
		},
		{name: "the machine's scope alone", cgroup: `/machine.slice/machine-qemu\x2d1\x2dweb\x2d01.scope`, holder: "VM web-01"},
		{name: "plain QEMU", args: []string{"/usr/bin/qemu-kvm", "-name", "db,process=db"}, holder: "VM db"},
		{name: "cgroups of version 1", cgroup: "/system.slice/trainer.service", v1: true, holder: "unit trainer.service"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{{ID: uuid(1), Model: "NVIDIA L40S"}}})
			args := tt.args
			if args == nil {
				args = []string{"/usr/bin/python3", "train.py"}
			}
			f.machine.StartProcess(0, fakenvml.Compute, gpu.Process{PID: 4242, Memory: 2 * 1024 * gpu.MiB})
			f.tree.Add(fakenvml.Proc{PID: 4242, Args: args, Cgroup: tt.cgroup, V1: tt.v1})
			host, err := f.backend.Inventory(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			users := host.GPUs[0].Processes
			if len(users) != 1 || users[0].PID != 4242 || users[0].Holder != tt.holder || users[0].Memory != 2*1024*gpu.MiB || users[0].Name == "" {
				t.Errorf("the GPU's processes are %+v, and %q was wanted", users, tt.holder)
			}
		})
	}
}

// TestNamesThatAreNoText are shown without what would reach a terminal, or break a protocol.
func TestNamesThatAreNoText(t *testing.T) {
	f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{l40s(1)}})
	f.machine.StartProcess(0, fakenvml.Compute, gpu.Process{PID: 4242})
	f.tree.Add(fakenvml.Proc{PID: 4242, Comm: "\x1b[2J\xff", Args: []string{"/usr/bin/qemu-kvm", "-name", "db\nroot"}})
	users := inventory(t, f.backend).GPUs[0].Processes
	if len(users) != 1 || users[0].Name != "\uFFFD[2J\uFFFD" || users[0].Holder != "VM db\uFFFDroot" {
		t.Errorf("the GPU's processes are %+v", users)
	}
}
