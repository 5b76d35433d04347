package fit

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// Loss is what becomes of a result when one host is lost.
type Loss struct {
	Host string `json:"host"`
	// Holds reports whether the layouts of the other hosts, as they are, hold everything.
	Holds bool `json:"layouts_hold"`
	// Fits, Changes and Missing are those of the best layouts without the host; Fits is nil where that is not known.
	Fits    *bool          `json:"fits"`
	Changes int            `json:"changes"`
	Missing map[string]int `json:"missing"`
}

// Losses tries the loss of each host that has layouts.
func Losses(hosts []gpu.Host, demands []Demand, of *Result) ([]Loss, error) {
	out := []Loss{}
	for i := range hosts {
		if len(of.Layouts[hosts[i].Name]) == 0 {
			continue
		}
		others := slices.Delete(slices.Clone(hosts), i, i+1)
		loss := Loss{Host: hosts[i].Name, Missing: map[string]int{}}
		if len(others) == 0 {
			for _, d := range demands {
				loss.Missing[d.Name] = d.Count
			}
			loss.Fits = new(bool)
			out = append(out, loss)
			continue
		}
		keep := Layouts{}
		for _, o := range others {
			if l, ok := of.Layouts[o.Name]; ok {
				keep[o.Name] = l
			}
		}
		got, err := Solve(others, demands, Options{Keep: keep})
		if err != nil { // no host that is left holds a unit of some demand
			loss.Fits = new(bool)
			for _, d := range demands {
				if _, err := Solve(others, []Demand{d}, Options{Keep: keep}); err != nil {
					loss.Missing[d.Name] = d.Count
				}
			}
			out = append(out, loss)
			continue
		}
		loss.Fits, loss.Changes, loss.Missing = got.Fits, got.Changes, got.Missing
		loss.Holds = got.Fits != nil && *got.Fits && got.Changes == 0
		out = append(out, loss)
	}
	return out, nil
}

// CountRow is what one partition count of all GPUs would come to.
type CountRow struct {
	Count int `json:"partition_count"`
	// MiB is the memory of one partition, of several models of the one that has least.
	MiB int64 `json:"partition_vram_mib"`
	// Partitions is how many the hosts have together.
	Partitions int `json:"partitions"`
	// GPUs is how many the demands for partitions take, and Fits whether they have a place; nil where that is not known.
	GPUs    int            `json:"gpus"`
	Fits    *bool          `json:"fits"`
	Missing map[string]int `json:"missing"`
}

// Counts tries each partition count for all demands for partitions.
func Counts(hosts []gpu.Host, demands []Demand, options Options) ([]CountRow, error) {
	demands = slices.DeleteFunc(slices.Clone(demands), func(d Demand) bool { return d.Kind != Partitions })
	if len(demands) == 0 {
		return nil, fmt.Errorf("there is no demand of kind %q, of which partition counts are a matter", Partitions)
	}
	var counts []int
	for i := range hosts {
		for j := range hosts[i].GPUs {
			if part := hosts[i].GPUs[j].Partitionable; part != nil {
				counts = append(counts, part.ValidCounts...)
			}
		}
	}
	slices.Sort(counts)
	out := []CountRow{}
	for _, n := range slices.Compact(counts) {
		row := CountRow{Count: n, Missing: map[string]int{}}
		with := only(hosts, n, &row)
		got, err := Solve(with, demands, options)
		switch {
		case err != nil: // a partition of this count is too small for one of them
			row.Fits = new(bool)
			for _, d := range demands {
				if d.VRAMMiB > row.MiB {
					row.Missing[d.Name] = d.Count
				}
			}
		default:
			row.Fits, row.GPUs, row.Missing = got.Fits, got.GPUs, got.Missing
		}
		out = append(out, row)
	}
	return out, nil
}

// only are hosts whose GPUs take no other partition count.
func only(hosts []gpu.Host, n int, row *CountRow) []gpu.Host {
	out := slices.Clone(hosts)
	for i := range out {
		out[i].GPUs = slices.Clone(out[i].GPUs)
		for j := range out[i].GPUs {
			g := &out[i].GPUs[j]
			if g.Partitionable == nil {
				continue
			}
			part := *g.Partitionable
			g.Partitionable = &part
			if !slices.Contains(part.ValidCounts, n) {
				part.ValidCounts = nil
				continue
			}
			part.ValidCounts = []int{n}
			size := part.EstimatedPartitionVRAM(n)
			if n == part.Count {
				size = part.PartitionVRAM()
			}
			if mib := size.MiB(); row.Partitions == 0 || mib < row.MiB {
				row.MiB = mib
			}
			row.Partitions += n
		}
	}
	return out
}

// Without leaves hosts out.
func Without(hosts []gpu.Host, names []string) ([]gpu.Host, error) {
	all := words.Each(hosts, func(h gpu.Host) string { return h.Name })
	for _, name := range names {
		if !gpu.HasID(all, name) {
			return nil, fmt.Errorf("there is no host %q to leave out. %s", name, words.Instead(name, all, ""))
		}
	}
	return slices.DeleteFunc(slices.Clone(hosts), func(h gpu.Host) bool { return gpu.HasID(names, h.Name) }), nil
}

// ReadDemands reads demands as JSON or YAML: a list, or an object with the list as demands.
func ReadDemands(data []byte) ([]Demand, error) {
	raw, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("neither JSON nor YAML: %w", err)
	}
	var file struct {
		Demands []Demand `json:"demands"`
	}
	var into any = &file
	if strings.HasPrefix(strings.TrimSpace(string(raw)), "[") {
		into = &file.Demands
	}
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return nil, fmt.Errorf("not a list of demands, nor an object with demands: %w", err)
	}
	return file.Demands, nil
}
