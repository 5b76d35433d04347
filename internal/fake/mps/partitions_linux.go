package fakemps

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// firstStatic is the driver branch from which on MPS has static partitions. A GPU of this package has
// so many chunks of so many multiprocessors, as an H100 has.
const (
	firstStatic = 590
	chunks      = 16
	chunkSMs    = 8
)

// partition is a static partition.
type partition struct {
	id     string
	chunks int
}

// partition is a command about static partitions. An id is the GPU's UUID and what the daemon makes up,
// and lspart shows of both the beginning. The words are those of public scripts (assumption
// linux-mps-partitions).
func (d *daemon) partition(name string, args []string) string {
	uuid := os.Getenv("CUDA_VISIBLE_DEVICES")
	if !d.static || name == "sm_partition" && (len(args) != 3 || args[1] != uuid) {
		return "Failed to fulfill the request, error CUDA_ERROR_INVALID_VALUE"
	}
	free := chunks
	for _, p := range d.partitions {
		free -= p.chunks
	}
	if name == "lspart" {
		var out strings.Builder
		short := uuid[:min(len(uuid), 12)]
		fmt.Fprintf(&out, "GPU           Partition  free   used   free  used  clients\n                         chunk  chunk  SM    SM\n")
		fmt.Fprintf(&out, "%s  -  %d  %d  %d  %d  -\n", short, free, chunks-free, free*chunkSMs, (chunks-free)*chunkSMs)
		for _, p := range d.partitions {
			fmt.Fprintf(&out, "%s  %s  -  %d  -  %d  %s\n", short, p.id[:10], p.chunks, p.chunks*chunkSMs,
				map[bool]string{true: "Yes", false: "No"}[d.inUse(p)])
		}
		return strings.TrimSpace(out.String())
	}
	if args[0] == "rm" {
		i := slices.IndexFunc(d.partitions, func(p partition) bool { return args[2] != "" && strings.HasPrefix(p.id, args[2]) })
		if i < 0 || d.inUse(d.partitions[i]) {
			return "Failed to remove the SM partition, error CUDA_ERROR_INVALID_VALUE"
		}
		d.partitions = slices.Delete(d.partitions, i, i+1)
		return ""
	}
	n, err := strconv.Atoi(args[2])
	if err != nil || n < 1 || n > free {
		return fmt.Sprintf("Failed to fulfill the requested SM partition of %s chunks, error CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION", args[2])
	}
	d.made++
	p := partition{id: fmt.Sprintf("%c%c4%07x%020d", 'A'+d.made%26, 'x', (os.Getpid()*1000+d.made)&0xfffffff, 0), chunks: n}
	d.partitions = append(d.partitions, p)
	return fmt.Sprintf("Partition %s/%s created", uuid, p.id)
}

// inUse tells whether a client computes in a partition.
func (d *daemon) inUse(p partition) bool {
	for _, s := range d.servers {
		for pid := range s.clients {
			if d.computes(pid, p) {
				return true
			}
		}
	}
	return false
}

// computes tells whether a process names a partition.
func (d *daemon) computes(pid int, p partition) bool {
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && strings.Contains(string(environ), "CUDA_MPS_SM_PARTITION="+os.Getenv("CUDA_VISIBLE_DEVICES")+"/"+p.id+"\x00")
}
