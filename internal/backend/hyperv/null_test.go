package hyperv_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

var fromClass = regexp.MustCompile(`(?i)FROM (\w+)`)

// TestEveryPropertyIsNullInTurn: a property that Windows does not fill in is not known. Nothing is said to
// be there or not, on or off, or to be of another number for it.
func TestEveryPropertyIsNullInTurn(t *testing.T) {
	t.Parallel()
	r := busy(t)
	seen := map[string]bool{}
	r.wire.change(func(w *wire) {
		w.rows = func(wql string, rows []hyperv.Row) []hyperv.Row {
			class := fromClass.FindStringSubmatch(wql)
			for _, row := range rows {
				for name := range row.Values {
					if class != nil {
						seen[class[1]+"."+name] = true
					}
				}
			}
			return rows
		}
	})
	whole := r.host()
	for _, property := range slices.Sorted(maps.Keys(seen)) {
		class, name, _ := strings.Cut(property, ".")
		if isKey(class, name) {
			continue // which WMI always fills in
		}
		r.wire.change(func(w *wire) {
			w.rows = func(wql string, rows []hyperv.Row) []hyperv.Row {
				if of := fromClass.FindStringSubmatch(wql); of == nil || of[1] != class {
					return rows
				}
				rows = slices.Clone(rows)
				for i := range rows {
					rows[i].Values = maps.Clone(rows[i].Values)
					rows[i].Values[name] = nil
				}
				return rows
			}
		})
		got, err := r.backend.Inventory(t.Context())
		if err != nil {
			continue // which hides nothing
		}
		nothingInvented(t, property, whole, got)
	}
}

func isKey(class, property string) bool {
	for _, namespace := range []string{hyperv.Virtualization, hyperv.CIMv2, hyperv.MSCluster} {
		if c, ok := classes()[namespace+":"+class]; ok {
			p, ok := c.Property(property)
			return ok && p.Key
		}
	}
	return false
}

// nothingInvented checks that what changes with a property that is NULL is not known.
func nothingInvented(t *testing.T, of string, whole, got gpu.Host) {
	t.Helper()
	for _, g := range whole.GPUs {
		now, listed := got.GPU(g.ID)
		if _, unknown := got.UnknownGPU(g.ID); unknown {
			continue
		}
		if !listed {
			t.Errorf("%s: GPU %s is said to be gone: %v", of, g.ID, got.Unknown)
			continue
		}
		if now.Problem != "" || now.Dismounted != g.Dismounted || (now.Partitionable == nil) != (g.Partitionable == nil) {
			t.Errorf("%s: GPU %s is another one: %s", of, g.ID, cmp.Diff(g, *now))
		}
		if p := now.Partitionable; p != nil && g.Partitionable != nil {
			if p.Count != g.Partitionable.Count || p.Paravirtual != g.Partitionable.Paravirtual {
				t.Errorf("%s: GPU %s has %d partitions", of, g.ID, p.Count)
			}
			if _, unknown := got.Concerning("", []string{g.ID}, gpu.PartPartitions,
				gpu.PartVMs); len(p.Partitions) != len(g.Partitionable.Partitions) && !unknown {
				t.Errorf("%s: partitions of GPU %s are said to be free: %v", of, g.ID, p.Partitions)
			}
		}
	}
	for _, vm := range whole.VMs {
		now, listed := got.VM(vm.ID)
		if _, unknown := got.Concerning(vm.ID, nil, gpu.PartVMs, gpu.PartDevices, gpu.PartCluster); unknown {
			continue
		}
		if !listed {
			t.Errorf("%s: VM %s is said to be gone: %v", of, vm.Name, got.Unknown)
			continue
		}
		if now.Generation == 0 {
			now.Generation = vm.Generation // not known
		}
		said := func(v *gpu.VM) string {
			return fmt.Sprint(v.State, v.Generation, len(v.PartitionAdapters), v.Devices, v.DynamicMemory, v.Clustered, v.Replica)
		}
		if said(&vm) != said(now) {
			t.Errorf("%s: VM %s is another one: %s, and was %s", of, vm.Name, said(now), said(&vm))
		}
	}
}
