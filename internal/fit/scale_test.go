package fit_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/fit"
)

// firstFitDecreasing is the number of GPUs that the textbook's heuristic for shares uses, by one measure of a share's size.
func firstFitDecreasing(demands []fit.Demand, memory int64, size func(*fit.Demand) float64) int {
	type bin struct {
		memory  int64
		threads float64
		seats   int
	}
	var units []*fit.Demand
	for i := range demands {
		for range demands[i].Count {
			units = append(units, &demands[i])
		}
	}
	slices.SortStableFunc(units, func(a, b *fit.Demand) int { return cmp.Compare(size(b), size(a)) })
	var bins []bin
next:
	for _, u := range units {
		for i := range bins {
			if b := &bins[i]; b.memory >= u.MemoryMiB && b.threads+1e-9 >= u.Threads && b.seats > 0 {
				b.memory, b.threads, b.seats = b.memory-u.MemoryMiB, b.threads-u.Threads, b.seats-1
				continue next
			}
		}
		bins = append(bins, bin{memory - u.MemoryMiB, 100 - u.Threads, 47})
	}
	return len(bins)
}

// 10,000 demands on 1,000 hosts are placed within two seconds and 300 MiB, on no more GPUs than first fit decreasing takes.
func TestTenThousandDemandsOnAThousandHosts(t *testing.T) {
	model, _ := catalog.ByName("H100 80GB HBM3")
	seeds := uint64(4)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 1))
		hosts, err := fit.Hosts(hostsOf("", 1000, 8, model.Name))
		if err != nil {
			t.Fatal(err)
		}
		var demands []fit.Demand
		for i := range 10_000 {
			demands = append(demands, fit.Demand{
				Name: fmt.Sprintf("d%05d", i), Count: 1, Kind: fit.Shares, MemoryMiB: 500 + r.Int64N(40_000), Threads: float64(r.IntN(60)),
			})
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		began := time.Now()
		got, err := fit.Solve(hosts, demands, fit.Options{})
		took := time.Since(began)
		runtime.ReadMemStats(&after)
		if err != nil || got.Fits == nil || !*got.Fits {
			t.Fatalf("fits is %v: %v %s", got.Fits, err, got.Reason)
		}
		all := float64(model.VRAM.MiB())
		for name, size := range map[string]func(*fit.Demand) float64{
			"memory":  func(d *fit.Demand) float64 { return float64(d.MemoryMiB) },
			"threads": func(d *fit.Demand) float64 { return d.Threads },
			"sum":     func(d *fit.Demand) float64 { return float64(d.MemoryMiB)/all + d.Threads/100 },
			"largest": func(d *fit.Demand) float64 { return max(float64(d.MemoryMiB)/all, d.Threads/100) },
		} {
			if n := firstFitDecreasing(demands, model.VRAM.MiB(), size); got.GPUs > n {
				t.Errorf("%d GPUs, and first fit decreasing by %s takes %d", got.GPUs, name, n)
			}
		}
		mib := (after.TotalAlloc - before.TotalAlloc) >> 20
		t.Logf("%d GPUs, at least %d, in %s, %d MiB allocated: %s", got.GPUs, got.AtLeast, took, mib, got.Reason)
		if mib > 300 {
			t.Errorf("%d MiB were allocated", mib)
		}
	}
}

// A mix of kinds on a large fleet is placed too, and what does not fit is proved not to.
func TestAMixOnAThousandHosts(t *testing.T) {
	specs := hostsOf("", 500, 8, "H100 80GB HBM3")
	for i, h := range hostsOf("vdi", 500, 4, "A16") {
		h.Name, h.Cluster = fmt.Sprintf("v%03d", i), fmt.Sprintf("vdi%02d", i/16)
		specs = append(specs, h)
	}
	hosts, err := fit.Hosts(specs)
	if err != nil {
		t.Fatal(err)
	}
	demands := []fit.Demand{
		{Name: "train", Count: 200, Kind: fit.Whole, GPUs: 8},
		{Name: "desks", Count: 6_000, Kind: fit.Partitions, VRAMMiB: 3_000},
		{Name: "cad", Count: 300, Kind: fit.Partitions, VRAMMiB: 7_000},
		{Name: "infer", Count: 3_000, Kind: fit.Instances, Profile: "1g.10gb"},
		{Name: "tune", Count: 700, Kind: fit.Instances, Profile: "3g.40gb"},
	}
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 2_000 {
		demands = append(demands, fit.Demand{
			Name: fmt.Sprintf("s%d", i), Count: 2, Kind: fit.Shares, MemoryMiB: 1_000 + r.Int64N(20_000), Threads: float64(r.IntN(30)),
		})
	}
	began := time.Now()
	got, err := fit.Solve(hosts, demands, fit.Options{})
	if err != nil || got.Fits == nil || !*got.Fits {
		t.Fatalf("fits is %v: %v %s", got.Fits, err, got.Reason)
	}
	t.Logf("%d GPUs, at least %d, in %s", got.GPUs, got.AtLeast, time.Since(began))
	if got.GPUs > got.AtLeast+got.AtLeast/50 {
		t.Errorf("%d GPUs are used, and at least %d are needed", got.GPUs, got.AtLeast)
	}
	demands[1].Count = 90_000
	began = time.Now()
	got, err = fit.Solve(hosts, demands, fit.Options{})
	t.Logf("%s in %s", got.Reason, time.Since(began))
	if err != nil || got.Fits == nil || *got.Fits {
		t.Errorf("fits is %v: %v", got.Fits, err)
	}
}

// Mixes of kinds on 64 GPUs are placed on as few as can be, and that is proved.
func TestMixesOnSixtyFourGPUsAreProved(t *testing.T) {
	t.Parallel()
	hosts, err := fit.Hosts(hostsOf("", 8, 8, "H100 80GB HBM3"))
	if err != nil {
		t.Fatal(err)
	}
	seeds := uint64(40)
	if testing.Short() {
		seeds = 8
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 9))
		var demands []fit.Demand
		for i := range 1 + r.IntN(5) {
			d := fit.Demand{Name: fmt.Sprint(i), Count: 1 + r.IntN(30)}
			switch r.IntN(3) {
			case 0:
				d.Kind, d.Profile = fit.Instances, []string{"1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb"}[r.IntN(5)]
			case 1:
				d.Kind, d.MemoryMiB, d.Threads = fit.Shares, 1000+r.Int64N(50_000), float64(r.IntN(60))
			default:
				d.Kind, d.GPUs, d.Count = fit.Whole, 1+r.IntN(4), 1+r.IntN(5)
			}
			demands = append(demands, d)
		}
		got, err := fit.Solve(hosts, demands, fit.Options{})
		if err != nil || got.Fits == nil || got.AtLeast != got.GPUs && *got.Fits {
			t.Errorf("seed %d: %v: %d GPUs, at least %d: %s", seed, err, got.GPUs, got.AtLeast, got.Reason)
		}
	}
}
