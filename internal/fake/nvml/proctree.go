//go:build linux

package fakenvml

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ProcTree is a /proc and a /sys/fs/cgroup of a host, for code that tells from them who
// a process is.
type ProcTree struct {
	tb   testing.TB
	root string
}

// Proc is a process of a tree.
type Proc struct {
	PID, Parent int
	// Comm is the command's name, of which the kernel keeps 15 bytes; by default that
	// of the first argument.
	Comm string
	Args []string
	// Env are variables of its environment, as "name=value".
	Env []string
	UID int
	// Cgroup is its path below the root of the hierarchy, as [UnitCgroup] and the like
	// make it. V1 writes it as on a host with cgroups of version 1.
	Cgroup string
	V1     bool
	// Start is when it started, in clock ticks since the boot: a process id with
	// another start is another process.
	Start uint64
}

// NewProcTree makes an empty tree, which is gone with the test.
func NewProcTree(tb testing.TB) *ProcTree {
	tb.Helper()
	t := &ProcTree{tb: tb, root: tb.TempDir()}
	for _, dir := range []string{t.Proc(), t.Cgroups()} {
		t.must(os.MkdirAll(dir, 0o755))
	}
	return t
}

// Root is the directory in which the tree lies as in a host's "/".
func (t *ProcTree) Root() string { return t.root }

// Proc is the tree's /proc.
func (t *ProcTree) Proc() string { return filepath.Join(t.root, "proc") }

// Cgroups is the tree's /sys/fs/cgroup.
func (t *ProcTree) Cgroups() string { return filepath.Join(t.root, "sys", "fs", "cgroup") }

// Add adds a process, or replaces the one with its id.
func (t *ProcTree) Add(p Proc) {
	t.tb.Helper()
	t.Remove(p.PID)
	if p.Comm == "" && len(p.Args) > 0 {
		p.Comm = filepath.Base(p.Args[0])
	}
	p.Comm = p.Comm[:min(len(p.Comm), 15)]
	dir := filepath.Join(t.Proc(), strconv.Itoa(p.PID))
	t.must(os.MkdirAll(dir, 0o755))
	for name, content := range map[string]string{
		"comm":    p.Comm + "\n",
		"cmdline": zeroEnded(p.Args),
		"environ": zeroEnded(p.Env),
		"cgroup":  p.cgroup(),
		"stat":    p.stat(),
		"status":  fmt.Sprintf("Name:\t%s\nPid:\t%d\nPPid:\t%d\nUid:\t%[4]d\t%[4]d\t%[4]d\t%[4]d\n", p.Comm, p.PID, p.Parent, p.UID),
	} {
		t.must(os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	if p.Cgroup == "" {
		return
	}
	group := filepath.Join(t.Cgroups(), p.Cgroup)
	t.must(os.MkdirAll(group, 0o755))
	file, err := os.OpenFile(filepath.Join(group, "cgroup.procs"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	t.must(err)
	_, err = fmt.Fprintln(file, p.PID)
	t.must(err)
	t.must(file.Close())
}

// Remove ends a process. Its cgroup stays, as one does that others are in.
func (t *ProcTree) Remove(pid int) {
	t.tb.Helper()
	t.must(os.RemoveAll(filepath.Join(t.Proc(), strconv.Itoa(pid))))
	t.must(filepath.WalkDir(t.Cgroups(), func(path string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Base(path) != "cgroup.procs" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		pids := slices.DeleteFunc(strings.SplitAfter(string(text), "\n"), func(line string) bool {
			return line == strconv.Itoa(pid)+"\n"
		})
		return os.WriteFile(path, []byte(strings.Join(pids, "")), 0o600)
	}))
}

func (t *ProcTree) must(err error) {
	t.tb.Helper()
	if err != nil {
		t.tb.Fatal(err)
	}
}

func zeroEnded(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return strings.Join(words, "\x00") + "\x00"
}

func (p Proc) cgroup() string {
	path := p.Cgroup
	if path == "" {
		path = "/"
	}
	if !p.V1 {
		return "0::" + path + "\n"
	}
	return "12:devices:" + path + "\n11:memory:" + path + "\n1:name=systemd:" + path + "\n0::/\n"
}

// stat has the fields of proc(5) up to the start, which is the 22nd.
func (p Proc) stat() string {
	fields := make([]string, 22)
	for i := range fields {
		fields[i] = "0"
	}
	fields[0], fields[1], fields[2], fields[3] = strconv.Itoa(p.PID), "("+p.Comm+")", "S", strconv.Itoa(p.Parent)
	fields[21] = strconv.FormatUint(p.Start, 10)
	return strings.Join(fields, " ") + "\n"
}

// UnitCgroup is where a systemd service runs.
func UnitCgroup(unit string) string { return "/system.slice/" + unit }

// SessionCgroup is where a user's login session runs.
func SessionCgroup(uid, session int) string {
	return fmt.Sprintf("/user.slice/user-%d.slice/session-%d.scope", uid, session)
}

// DockerCgroup is where a container of Docker runs, with systemd's cgroups.
func DockerCgroup(container string) string { return "/system.slice/docker-" + container + ".scope" }

// PodmanCgroup is where a container of Podman runs.
func PodmanCgroup(container string) string { return "/machine.slice/libpod-" + container + ".scope" }

// PodCgroup is where a container of a Kubernetes pod runs under containerd.
func PodCgroup(pod, container string) string {
	pod = strings.ReplaceAll(pod, "-", "_")
	return "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + pod + ".slice/cri-containerd-" + container + ".scope"
}

// VMCgroup is where libvirt runs a VM, the domain of an id.
func VMCgroup(domain int, name string) string {
	escaped := strings.ReplaceAll(name, "-", `\x2d`)
	return fmt.Sprintf(`/machine.slice/machine-qemu\x2d%d\x2d%s.scope/libvirt/emulator`, domain, escaped)
}

// QEMU is the process of a VM as libvirt starts it.
func QEMU(pid, domain int, name, uuid string) Proc {
	return Proc{
		PID: pid, Parent: 1, Comm: "qemu-system-x86_64", Cgroup: VMCgroup(domain, name),
		Args: []string{"/usr/bin/qemu-system-x86_64", "-name", "guest=" + name + ",debug-threads=on", "-uuid", uuid},
	}
}

// Capability is the number that the driver gives a capability device of a GPU instance: 0 is its own, 1 that of its first compute
// instance.
func Capability(minor, instance, n int) int { return 3 + (minor*15+instance)*9 + n }

// AddCapabilities writes what the driver says of the capability devices of some GPUs, all that there could be.
func (t *ProcTree) AddCapabilities(gpus int) {
	t.tb.Helper()
	var lines strings.Builder
	lines.WriteString("config 1\nmonitor 2\n")
	for g := range gpus {
		for i := range 15 {
			fmt.Fprintf(&lines, "gpu%d/gi%d/access %d\n", g, i, Capability(g, i, 0))
			for c := range 8 {
				fmt.Fprintf(&lines, "gpu%d/gi%d/ci%d/access %d\n", g, i, c, Capability(g, i, c+1))
			}
		}
	}
	t.put("proc/driver/nvidia-caps/mig-minors", lines.String())
}

// CPU is a hardware thread of a host.
type CPU struct {
	// Package and Node are the socket and the NUMA node.
	Package, Node int
	// Core and L3 are the threads that share the core, and those that share the cache, as the kernel lists them: "0,64", "0-7".
	Core, L3 string
}

// AddCPUs writes the topology of a host, of which the kernel numbers the threads in their order.
func (t *ProcTree) AddCPUs(cpus []CPU) {
	t.tb.Helper()
	for n, c := range cpus {
		dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d", n)
		t.put(dir+"/topology/physical_package_id", fmt.Sprintln(c.Package))
		t.put(dir+"/topology/thread_siblings_list", c.Core+"\n")
		t.put(fmt.Sprintf("%s/node%d/cpulist", dir, c.Node), "")
		if c.L3 != "" {
			t.put(dir+"/cache/index3/level", "3\n")
			t.put(dir+"/cache/index3/shared_cpu_list", c.L3+"\n")
		}
	}
}

// AddDevice writes where a PCI device is: the threads beside it as the kernel lists them, and its NUMA node, -1 for none.
func (t *ProcTree) AddDevice(address, threads string, node int) {
	t.tb.Helper()
	t.put("sys/bus/pci/devices/"+address+"/local_cpulist", threads+"\n")
	t.put("sys/bus/pci/devices/"+address+"/numa_node", fmt.Sprintln(node))
}

func (t *ProcTree) put(file, content string) {
	t.tb.Helper()
	path := filepath.Join(t.root, file)
	t.must(os.MkdirAll(filepath.Dir(path), 0o755))
	t.must(os.WriteFile(path, []byte(content), 0o600))
}
