//go:build linux && cgo

package nvidia

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpufleet/terraform-provider-gpu/internal/cdi"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// surround fills in by which device node a GPU is reached, and what it is beside. Links and files that do not tell leave that
// unknown, and are no problem of the GPU: nothing that changes it depends on them.
func (s *session) surround(d *device) {
	if s.offers("nvmlDeviceGetMinorNumber") {
		if minor, ret := d.handle.GetMinorNumber(); d.has("nvmlDeviceGetMinorNumber", ret) {
			d.Minor = &minor
		}
	}
	if links, all := s.links(d); all {
		d.NVLinks = links
	}
	if d.Address == "" {
		return
	}
	dir := filepath.Join("/", s.root, "sys/bus/pci/devices", d.Address)
	if node, ok := number(filepath.Join(dir, "numa_node")); ok && node >= 0 { // -1 where there is none
		d.NUMANode = &node
	}
	d.Cores = s.coresOf(numbers(filepath.Join(dir, "local_cpulist")))
}

// links are the NVLinks of a GPU that are up, and whether all of them say where they lead.
func (s *session) links(d *device) (out []gpu.NVLink, all bool) {
	if !s.offers("nvmlDeviceGetNvLinkState", "nvmlDeviceGetNvLinkRemotePciInfo_v2") {
		return nil, false
	}
	counts := map[string]int{}
	all = true
	for n := range nvml.NVLINK_MAX_LINKS {
		if state, ret := d.handle.GetNvLinkState(n); ret != nvml.SUCCESS || state != nvml.FEATURE_ENABLED {
			continue
		}
		if peer, told := s.peer(d, n); told {
			counts[peer]++
		} else {
			all = false
		}
	}
	for _, id := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, gpu.NVLink{GPU: id, Count: counts[id]})
	}
	return out, all
}

// peer is the GPU at the other end of an NVLink, "" for a switch.
func (s *session) peer(d *device, link int) (id string, told bool) {
	if s.offers("nvmlDeviceGetNvLinkRemoteDeviceType") {
		switch kind, ret := d.handle.GetNvLinkRemoteDeviceType(link); {
		case ret == nvml.SUCCESS && kind == nvml.NVLINK_DEVICE_TYPE_SWITCH:
			return "", true
		case ret == nvml.SUCCESS && kind != nvml.NVLINK_DEVICE_TYPE_GPU:
			return "", false
		}
	}
	pci, ret := d.handle.GetNvLinkRemotePciInfo(link)
	if ret != nvml.SUCCESS {
		return "", false
	}
	other, ret := s.lib.DeviceGetHandleByPciBusId(text(pci.BusId[:]))
	if ret != nvml.SUCCESS {
		return "", false
	}
	id, ret = other.GetUUID()
	return id, ret == nvml.SUCCESS
}

// numberCapabilities fills in by which capability devices a GPU instance is reached. The driver has numbers for all that could
// be made when it is loaded, so that they are read once.
func (s *session) numberCapabilities(d *device, i *gpu.GPUInstance) {
	if d.Minor == nil {
		return
	}
	if s.opened == nil {
		s.opened, _ = cdi.ReadCapabilities(s.root) // without them the numbers are unknown
	}
	i.Minor = s.opened[cdi.InstanceCapability(*d.Minor, i.ID)]
	for n := range i.Compute {
		i.Compute[n].Minor = s.opened[cdi.ComputeCapability(*d.Minor, i.ID, i.Compute[n].ID)]
	}
}

// coresOf are the cores that have some of the kernel's hardware threads, "" for none.
func (s *session) coresOf(threads []int) string {
	if len(threads) == 0 {
		return ""
	}
	if s.cores == nil {
		s.cores = coresByThread(filepath.Join("/", s.root, "sys/devices/system/cpu"))
	}
	of := map[int]bool{}
	for _, t := range threads {
		if core, online := s.cores[t]; online {
			of[core] = true
		}
	}
	return ranges(slices.Sorted(maps.Keys(of)))
}

// coresByThread numbers the cores of a host as hwloc does, by which Slurm goes: package after package, in a package by NUMA node
// and by the cache that cores have in common, and always by the first hardware thread.
func coresByThread(dir string) map[int]int {
	type thread struct {
		number int
		place  []int // the first threads of the parts that it is in, the largest part first
	}
	found, _ := filepath.Glob(filepath.Join(dir, "cpu[0-9]*"))
	var threads []thread
	packages, nodes := map[int]int{}, map[[2]int]int{}
	of := map[int][2]int{}
	for _, cpu := range found {
		n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(cpu), "cpu"))
		pkg, ok := number(filepath.Join(cpu, "topology/physical_package_id"))
		core := numbers(filepath.Join(cpu, "topology/thread_siblings_list"))
		if err != nil || !ok || len(core) == 0 {
			continue // it is off
		}
		node := 0
		if in, _ := filepath.Glob(filepath.Join(cpu, "node[0-9]*")); len(in) == 1 {
			node, _ = strconv.Atoi(strings.TrimPrefix(filepath.Base(in[0]), "node"))
		}
		of[n] = [2]int{pkg, node}
		lowest(nodes, of[n], n)
		lowest(packages, pkg, n)
		threads = append(threads, thread{number: n, place: append(caches(cpu), core[0])})
	}
	for i, t := range threads {
		at := of[t.number]
		threads[i].place = append([]int{packages[at[0]], nodes[at]}, t.place...)
	}
	slices.SortFunc(threads, func(a, b thread) int {
		return cmp.Or(slices.Compare(a.place, b.place), cmp.Compare(a.number, b.number))
	})
	out, core := map[int]int{}, -1
	for i, t := range threads {
		if i == 0 || !slices.Equal(t.place, threads[i-1].place) {
			core++
		}
		out[t.number] = core
	}
	return out
}

// lowest keeps the lowest number of a key.
func lowest[K comparable](of map[K]int, key K, n int) {
	if was, there := of[key]; !there || n < was {
		of[key] = n
	}
}

// caches are the first threads that have the caches of the third and the second level in common with a thread, 0 where there is none.
func caches(cpu string) []int {
	out := []int{0, 0}
	found, _ := filepath.Glob(filepath.Join(cpu, "cache/index[0-9]*"))
	for _, cache := range found {
		level, _ := number(filepath.Join(cache, "level"))
		if shared := numbers(filepath.Join(cache, "shared_cpu_list")); len(shared) > 0 && (level == 2 || level == 3) {
			out[3-level] = shared[0]
		}
	}
	return out
}

// number reads a file that has one.
func number(file string) (int, bool) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	return n, err == nil
}

// mostCPUs is more than a kernel is built for.
const mostCPUs = 1 << 16

// numbers reads a file that has a list such as "0-3,8", nil where it is not one.
func numbers(file string) []int {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	var out []int
	for _, part := range strings.FieldsFunc(strings.TrimSpace(string(data)), func(r rune) bool { return r == ',' }) {
		from, to, _ := strings.Cut(part, "-")
		first, err1 := strconv.Atoi(from)
		last, err2 := strconv.Atoi(cmp.Or(to, from))
		if err1 != nil || err2 != nil || first < 0 || last < first || last >= mostCPUs {
			return nil
		}
		for n := first; n <= last; n++ {
			out = append(out, n)
		}
	}
	return out
}

// ranges writes ascending numbers as a list such as "0-3,8".
func ranges(list []int) string {
	var out []string
	for i := 0; i < len(list); {
		end := i
		for end+1 < len(list) && list[end+1] == list[end]+1 {
			end++
		}
		if end == i {
			out = append(out, strconv.Itoa(list[i]))
		} else {
			out = append(out, fmt.Sprintf("%d-%d", list[i], list[end]))
		}
		i = end + 1
	}
	return strings.Join(out, ",")
}
