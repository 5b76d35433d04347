//go:build linux

package slurm_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/slurm"
)

// documented are the outputs of the function's example, as its page has it.
func documented(t *testing.T) *rig.CLI {
	t.Helper()
	text, err := os.ReadFile("../../examples/functions/slurm_gres/function.tf")
	if err != nil {
		t.Fatal(err)
	}
	c := rig.NewCLI(t, string(text))
	c.Apply()
	return c
}

func output[T any](t *testing.T, c *rig.CLI, name string) T {
	t.Helper()
	var out T
	if err := json.Unmarshal([]byte(c.Output(name)), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// environment is what Slurm tells a job of its GPUs.
func environment(cuda, positions string, more ...string) map[string]string {
	out := map[string]string{
		"CUDA_VISIBLE_DEVICES": cuda, "SLURM_STEP_GPUS": positions, "SLURM_GPUS_ON_NODE": fmt.Sprint(strings.Count(positions, ",") + 1),
	}
	for _, m := range more {
		name, value, _ := strings.Cut(m, "=")
		out[name] = value
	}
	return out
}

// TestJobsOfTheDocumentedCluster has whole GPUs, MPS and MIG, with devices of other jobs closed.
func TestJobsOfTheDocumentedCluster(t *testing.T) {
	needSlurm(t)
	if !confines() {
		t.Skip("this machine has no device controller of the first version of cgroups")
	}
	outputs := documented(t)
	c := start(t, files{
		gres: output[string](t, outputs, "gres_conf"), cgroup: output[string](t, outputs, "cgroup_conf"),
		main: output[[]string](t, outputs, "slurm_conf"),
	}, "/dev/nvidia3")
	// A GPU that is not in gres.conf is open to each job, and so are devices that other nodes have.
	const others = "/dev/nvidia3"
	caps := func(minors ...string) []string {
		for i := range minors {
			minors[i] = "/dev/nvidia-caps/nvidia-cap" + minors[i]
		}
		return minors
	}
	gpus := func(open ...string) []string {
		return slices.Concat(open, []string{others}, caps("21", "22", "30", "31"))
	}
	mig := func(minors ...string) []string {
		return slices.Concat([]string{"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2", others}, caps(minors...))
	}

	c.sees(map[string]string{}, gpus(), "-w", "gpu01").end()
	c.sees(environment("0", "2"), gpus("/dev/nvidia2"), "-w", "gpu01", "--gres=gpu:t4:1").end()
	c.sees(environment("0,1", "0,1"), gpus("/dev/nvidia0", "/dev/nvidia1"), "-w", "gpu01", "--gres=gpu:a100:2").end()

	// While a GPU is given out in parts, nobody gets it whole, and the other way round: with 22.05 until
	// one of several parts is given back, so that whole GPUs are asked for before that.
	part := c.sees(environment("0", "1", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50"), gpus("/dev/nvidia1"), "-w", "gpu02", "--gres=mps:50")
	c.waits("-w", "gpu02", "--gres=gpu:a100:2")
	c.sees(environment("0", "0"), gpus("/dev/nvidia0"), "-w", "gpu02", "--gres=gpu:a100:1").end()
	c.sees(environment("0", "1", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25"), gpus("/dev/nvidia1"), "-w", "gpu02", "--gres=mps:25").end()
	part.end()
	whole := c.run("-w", "gpu02", "--gres=gpu:a100:2")
	c.waits("-w", "gpu02", "--gres=mps:1")
	whole.end()
	c.waits("-w", "gpu02", "--gres=mps:101") // it waits for ever: no GPU has as many

	first := c.sees(environment("0", "0"), mig("21", "22"), "-w", "gpu03", "--gres=gpu:3g.40gb:1")
	c.sees(environment("0", "1"), mig("30", "31"), "-w", "gpu03", "--gres=gpu:3g.40gb:1").end()
	c.waits("-w", "gpu03", "--gres=gpu:3g.40gb:2")
	first.end()
}

// TestJobsOfTheMIGExample follows examples/slurm-mig from the layout to jobs: each gets an instance of the type that it asks for, which no
// other has, and can open its devices and no other's; and so after the layout has changed.
func TestJobsOfTheMIGExample(t *testing.T) {
	needSlurm(t)
	if !confines() {
		t.Skip("this machine has no device controller of the first version of cgroups")
	}
	const dir = "../../examples/slurm-mig/"
	text, err := os.ReadFile(dir + "main.tf")
	if err != nil {
		t.Fatal(err)
	}
	fleet, err := os.ReadFile(dir + "fleet.json")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "fleet.json")
	if err := os.WriteFile(file, fleet, 0o600); err != nil {
		t.Fatal(err)
	}
	main := strings.Replace(string(text), `"fleet.json"`, strconv.Quote(file), 1)
	outputs := rig.NewCLI(t, main)
	t.Run("first", func(t *testing.T) { // a name that a path may have
		outputs.Apply()
		eachHasItsInstance(t, outputs)
	})
	t.Run("changed", func(t *testing.T) {
		outputs.Write(strings.Replace(main, `{ "3g.40gb" = 1, "2g.20gb" = 1, "1g.10gb" = 2 }`, `{ "1g.10gb" = 3, "4g.40gb" = 1 }`, 1))
		outputs.Apply()
		eachHasItsInstance(t, outputs)
	})
}

// eachHasItsInstance gives out all instances of gpu01 at once.
func eachHasItsInstance(t *testing.T, outputs *rig.CLI) {
	t.Helper()
	conf := output[string](t, outputs, "gres_conf")
	c := start(t, files{
		gres: conf, cgroup: output[string](t, outputs, "cgroup_conf"), main: output[[]string](t, outputs, "slurm_conf"),
	})
	var instances []string
	for line := range strings.Lines(conf) {
		if strings.HasPrefix(line, "NodeName=gpu01 ") {
			instances = append(instances, line)
		}
	}
	if len(instances) != 8 {
		t.Fatalf("gpu01 has %d instances:\n%s", len(instances), conf)
	}
	taken := map[int]bool{}
	var running []job
	for _, line := range instances {
		kind := instanceType.FindStringSubmatch(line)[1]
		j := c.run("-w", "gpu01", "--gres=gpu:"+kind+":1")
		running = append(running, j)
		at := slices.IndexFunc(instances, func(of string) bool { return slices.Equal(device.FindAllString(of, -1), j.open) })
		if at < 0 || taken[at] || !strings.Contains(instances[at], " Type="+kind+" ") || j.environment["CUDA_VISIBLE_DEVICES"] != "0" {
			t.Errorf("a job for %s can open %v and has %v; taken are %v of\n%s", kind, j.open, j.environment, taken, conf)
		}
		taken[at] = true
	}
	first := slices.Clone(instances)
	position := func(kind string) int {
		return slices.IndexFunc(first, func(of string) bool { return strings.Contains(of, " Type="+kind+" ") })
	}
	slices.SortStableFunc(instances, func(a, b string) int { // slurmd counts one type after the other
		return position(instanceType.FindStringSubmatch(a)[1]) - position(instanceType.FindStringSubmatch(b)[1])
	})
	for _, j := range running {
		at := slices.IndexFunc(instances, func(of string) bool { return slices.Equal(device.FindAllString(of, -1), j.open) })
		if j.environment["SLURM_STEP_GPUS"] != strconv.Itoa(at) {
			t.Errorf("a job has %v, want the position %d of\n%s", j.environment, at, strings.Join(instances, ""))
		}
	}
	c.waits("-w", "gpu01", "--gres=gpu:1g.10gb:1")
	for _, j := range running {
		j.end()
	}
	c.sees(environment("0,1", "0,1"), nil, "-w", "gpu02", "--gres=gpu:h100:2").end()
}

var instanceType = regexp.MustCompile(` Type=(\S+) `)

// TestNumbersArePositionsWithoutConstrainDevices holds what the pages say of such a cluster.
func TestNumbersArePositionsWithoutConstrainDevices(t *testing.T) {
	needSlurm(t)
	outputs := documented(t)
	main := output[[]string](t, outputs, "slurm_conf")
	for i := range main {
		main[i] = strings.Replace(main[i], "TaskPlugin=task/cgroup", "TaskPlugin=task/none", 1)
	}
	c := start(t, files{gres: output[string](t, outputs, "gres_conf"), main: main})
	c.sees(environment("2", "2"), nil, "-w", "gpu01", "--gres=gpu:t4:1").end()
	c.sees(environment("1", "1", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50"), nil, "-w", "gpu01", "--gres=mps:50").end()
	first := c.run("-w", "gpu03", "--gres=gpu:3g.40gb:1")
	c.sees(environment("1", "1"), nil, "-w", "gpu03", "--gres=gpu:3g.40gb:1").end() // both are of GPU 0
	first.end()
}

// TestJobsOfTheDocumentedShards has the second cluster of the example.
func TestJobsOfTheDocumentedShards(t *testing.T) {
	needSlurm(t)
	shards := output[struct {
		Conf   string            `json:"conf"`
		Types  string            `json:"gres_types"`
		Gres   map[string]string `json:"gres"`
		Cgroup string            `json:"cgroup_conf"`
	}](t, documented(t), "notebooks")
	f := files{
		gres: shards.Conf, cgroup: shards.Cgroup, main: []string{"GresTypes=" + shards.Types, "NodeName=nb01 Gres=" + shards.Gres["nb01"]},
	}
	var own, other []string
	if confines() {
		f.main = append(f.main, "TaskPlugin=task/cgroup")
		own, other = []string{"/dev/nvidia0"}, []string{"/dev/nvidia1"}
	}
	c := start(t, f)
	one := c.sees(environment("0", "0", "SLURM_SHARDS_ON_NODE=3"), own, "--gres=shard:3")
	c.waits("--gres=gpu:t4:2")
	c.waits("--gres=shard:2")
	cuda := "1" // a position, unless the other GPU is closed
	if confines() {
		cuda = "0"
	}
	c.sees(environment(cuda, "1"), other, "--gres=gpu:t4:1").end()
	c.sees(environment("0", "0", "SLURM_SHARDS_ON_NODE=1"), own, "--gres=shard:1").end()
	one.end()
}

// TestTypesAreAskedFor has jobs that ask for GPUs by every sort of type that is taken, with a count and,
// where Slurm takes that, without. Of those that are refused because it reads them as how many GPUs are
// wanted, no job gets the GPU.
func TestTypesAreAskedFor(t *testing.T) {
	needSlurm(t)
	taken := []string{"1g.10gb+me", "1g.24gb-me", "7b", "4kk", "0x10", "1.5g", "rtx_pro_6000", "A100", "a100"}
	refused := []string{"1g", "2M", "4kib", "1gb", "3TB", "7"}
	node := slurm.Node{Name: "types"}
	for i, name := range taken {
		node.GPUs = append(node.GPUs, slurm.GPU{Minor: i, Type: name})
	}
	out, err := slurm.Render([]slurm.Node{node})
	if err != nil {
		t.Fatal(err)
	}
	counts := out.Nodes["types"]
	for i, name := range refused {
		if _, err := slurm.Render([]slurm.Node{{Name: "types", GPUs: []slurm.GPU{{Type: name}}}}); err == nil {
			t.Errorf("%s is taken", name)
		}
		out.Conf += fmt.Sprintf("NodeName=types Name=gpu Type=%s File=/dev/nvidia%d\n", name, len(taken)+i)
		counts += ",gpu:" + name + ":1"
	}
	main := []string{"GresTypes=gpu", "TaskPlugin=task/none", "NodeName=types Gres=" + counts}
	c := start(t, files{gres: out.Conf, cgroup: out.Cgroup, main: main})
	for i, name := range taken {
		position := strconv.Itoa(i)
		c.sees(environment(position, position), nil, "--gres=gpu:"+name+":1").end()
		if name[0] > '9' {
			c.sees(environment(position, position), nil, "--gres=gpu:"+name).end()
		}
	}
	for i, name := range refused {
		if j, err := c.try(time.Second, "--gres=gpu:"+name); err == nil {
			if j.environment["SLURM_STEP_GPUS"] == strconv.Itoa(len(taken)+i) {
				t.Errorf("a job gets its GPU by the type %s, which need not be refused", name)
			}
			j.end()
		}
	}
}

// TestSlurmReadsWhatIsWritten has node daemons read random nodes.
func TestSlurmReadsWhatIsWritten(t *testing.T) {
	needSlurm(t)
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same in each run
	for range 30 {
		nodes := randomNodes(random)
		out, err := slurm.Render(nodes)
		if err != nil {
			t.Fatalf("%+v: %v", nodes, err)
		}
		f := files{gres: out.Conf, cgroup: out.Cgroup, main: []string{"GresTypes=" + out.Types, "TaskPlugin=task/cgroup"}}
		for _, n := range nodes {
			f.main = append(f.main, "NodeName="+n.Name+" Gres="+out.Nodes[n.Name])
		}
		dir, names := write(t, f)
		c := &cluster{t: t, dir: dir}
		end := c.munged() // which 24.11 wants to read a file
		for _, name := range names {
			said, err := c.command(t.Context(), "slurmd", "-G", "-D", "-N", name, "-f", dir+"/slurm.conf").CombinedOutput()
			if problem := complaint.FindString(other.ReplaceAllString(string(said), "")); err != nil || problem != "" {
				t.Errorf("%s: %v: %s\n%s%v", name, err, problem, out.Conf, f.main)
			}
			if got, want := len(offered.FindAll(said, -1)), units(t, nodes, name); got != want {
				t.Errorf("%s has %d GPUs and MIG devices, and %d were wanted:\n%s\n%s", name, got, want, out.Conf, said)
			}
		}
		end()
	}
}

// What a daemon complains of, what of that has nothing to do with what is written, and what it says of
// a GPU or a MIG device: 22.05 has a line more for each other file of the latter where parts are given out.
var (
	offered   = regexp.MustCompile(`Gres Name=gpu .* File=/dev/nvidia[0-9]`)
	complaint = regexp.MustCompile(`(?i).*(error|fatal|warning):.*`)
	other     = regexp.MustCompile(`(?i).*(mpi|hwloc|Node configuration differs).*`)
)

// units are how many GPUs and MIG devices a node offers.
func units(t *testing.T, nodes []slurm.Node, name string) int {
	t.Helper()
	for _, n := range nodes {
		if slices.Contains(expand(t, n.Name), name) {
			out := 0
			for _, g := range n.GPUs {
				out += max(1, len(g.MIG))
			}
			return out
		}
	}
	t.Fatalf("nobody wrote of %s", name)
	return 0
}

// randomNodes are one to three nodes, or names for several, with one way of sharing parts.
func randomNodes(r *rand.Rand) []slurm.Node {
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	mps, capability := r.IntN(2) == 0, 0
	var nodes []slurm.Node
	for i := range 1 + r.IntN(3) {
		name := pick("gpu%d", "rack%d-node[01-03]", "n%d-[1,3-4]", "rack%d[0-1]node[0-2]", "a%d.example,b%d.example")
		n := slurm.Node{Name: strings.ReplaceAll(name, "%d", strconv.Itoa(i)), AutoDetect: pick("", "off")}
		typed, cores, mig := r.IntN(3) > 0, r.IntN(2) == 0, r.IntN(2) == 0
		for _, minor := range r.Perm(6)[:1+r.IntN(6)] {
			g := slurm.GPU{Minor: minor}
			if cores {
				g.Cores = pick("0-31", "32-63", "0,2,4-7")
			}
			switch parts := r.IntN(300); {
			case typed && mig && parts%3 == 0:
				for range r.IntN(4) {
					profile := pick("1g.10gb", "1g.10gb+me", "3g.40gb", "1g.24gb-me")
					g.MIG = append(g.MIG, slurm.MIGDevice{Type: profile, Capabilities: []int{capability % 5, capability + 10}})
					capability++
				}
			case parts%2 == 0:
			case mps:
				g.MPS = parts
			default:
				g.Shards = parts
			}
			if typed && len(g.MIG) == 0 {
				g.Type = pick("a100", "H100-SXM5", "rtx_pro_6000", "l40s.48q", "7b")
			}
			n.GPUs = append(n.GPUs, g)
		}
		nodes = append(nodes, n)
	}
	return nodes
}
