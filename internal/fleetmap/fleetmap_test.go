package fleetmap_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jedib0t/go-pretty/v6/text"
	"pgregory.net/rapid"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleetmap"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/planreport"
)

// hostile are names as somebody may choose them.
var hostile = []string{
	"avd-01", "</script><script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "a\x1b[2Jb", "line\nfeed", "\u202ertl", "日本語の机",
	"```", "| a |", "-->", "${7*7}", "]]>", "&lt;b&gt;", strings.Repeat("long-", 60),
}

func aName(t *rapid.T, what string) string {
	return rapid.SampledFrom(hostile).Draw(t, what) + fmt.Sprint(rapid.IntRange(0, 99).Draw(t, what+" number"))
}

// fleet draws hosts of both platforms, whose GPUs are held in every way that there is.
func fleet(t *rapid.T) gpu.Snapshot {
	s := gpu.Snapshot{Format: gpu.SnapshotFormat}
	for i := range rapid.IntRange(1, 3).Draw(t, "hosts") {
		if rapid.Bool().Draw(t, "linux") {
			s.Hosts = append(s.Hosts, linuxHost(t, i))
		} else {
			s.Hosts = append(s.Hosts, hypervHost(t, i))
		}
	}
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	return s
}

func hypervHost(t *rapid.T, i int) gpu.Host {
	models := rapid.SliceOfN(rapid.SampledFrom([]string{"A2", "A16", "L4"}), 1, 4).Draw(t, "models")
	made, err := simulated.Spec{Platform: gpu.HyperV, Hosts: []string{fmt.Sprintf("hv%02d", i)}, Models: models}.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	h := made.Hosts[0]
	vm := func() *gpu.VM {
		n := len(h.VMs)
		h.VMs = append(h.VMs, gpu.VM{ID: fmt.Sprintf("VM-%d-%d", i, n), Name: aName(t, "VM"), State: gpu.VMRunning})
		if owner := rapid.SampledFrom([]string{"", "a", "b", hostile[1]}).Draw(t, "owner"); owner != "" {
			h.Claims = append(h.Claims, gpu.Claim{Kind: gpu.ClaimAssignment, ID: h.VMs[n].ID, Owner: owner})
		}
		return &h.VMs[n]
	}
	for j := range h.GPUs {
		g := &h.GPUs[j]
		switch rapid.SampledFrom([]string{"partitions", "whole", "pool", "broken", "console"}).Draw(t, "kind") {
		case "partitions":
			g.Partitionable.Count = rapid.SampledFrom(g.Partitionable.ValidCounts).Draw(t, "count")
			for n := range rapid.IntRange(0, g.Partitionable.Count).Draw(t, "held") {
				v := vm()
				v.PartitionAdapters = []gpu.PartitionAdapter{{ID: "a"}}
				g.Partitionable.Partitions = append(g.Partitionable.Partitions, gpu.Partition{ID: 2*n + 1, VMID: v.ID})
			}
		case "whole":
			g.Dismounted, g.Partitionable, g.Status = true, nil, gpu.Assigned
			vm().Devices = []gpu.DeviceAssignment{{ID: "d", GPU: g.ID}}
		case "pool":
			g.Dismounted, g.Partitionable, g.Status = true, nil, gpu.ReadyForDDA
			h.Pools = append(h.Pools, gpu.Pool{Name: aName(t, "pool"), GPUs: []string{g.ID}})
		case "broken":
			g.Problem = aName(t, "problem")
		case "console":
			g.HostDisplay, g.Partitionable, g.Status = true, nil, gpu.NotAssignable
		}
	}
	for range rapid.IntRange(0, 3).Draw(t, "waiting") {
		v := vm()
		v.State, v.PartitionAdapters = gpu.VMOff, []gpu.PartitionAdapter{{ID: "a"}, {ID: "b"}}[:rapid.IntRange(1, 2).Draw(t, "adapters")]
	}
	if rapid.Bool().Draw(t, "unknown") {
		h.Unknown = append(h.Unknown, gpu.Unknown{Part: gpu.PartPartitions, Why: aName(t, "why")})
	}
	return h
}

func linuxHost(t *rapid.T, i int) gpu.Host {
	n := rapid.IntRange(1, 4).Draw(t, "GPUs")
	made, err := simulated.Spec{
		Platform: gpu.Linux, Hosts: []string{fmt.Sprintf("hgx%02d", i)}, Models: slices.Repeat([]string{"H100 80GB HBM3"}, n),
	}.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	h := made.Hosts[0]
	share := func(mode string, at gpu.SharedDevice) {
		s := gpu.Share{
			Name: fmt.Sprintf("%s-%d", aName(t, "share"), len(h.Claims)), Devices: []gpu.SharedDevice{at},
			RequestFraction: rapid.SampledFrom([]float64{0, .1, .25, .5, .7}).Draw(t, "fraction"),
		}
		if mode == "mps" {
			s.ActiveThreadPercentage = rapid.SampledFrom([]float64{0, 10, 50}).Draw(t, "threads")
		}
		h.Claims = append(h.Claims, gpu.Claim{Kind: gpu.ClaimShare, ID: s.Name, Owner: aName(t, "owner"), Want: gpu.Want{Share: &s}})
	}
	pid := 0
	process := func(g *gpu.GPU, in *int) {
		pid++
		g.Processes = append(g.Processes, gpu.Process{PID: pid, Name: aName(t, "process"), GPUInstance: in})
	}
	for j := range h.GPUs {
		g := &h.GPUs[j]
		mode := rapid.SampledFrom([]string{"free", "whole", "mig", "mps", "turns", "vgpu"}).Draw(t, "mode")
		switch mode {
		case "whole":
			share(mode, gpu.SharedDevice{GPU: g.ID})
		case "mig":
			g.MIG.Enabled, g.MIG.Pending = true, true
			at := 0
			for at < 7 && rapid.IntRange(0, 5).Draw(t, "more") > 0 {
				p := gpu.GPUInstance{ID: at + 1, Profile: "1g.10gb", Start: at, Size: 1}
				if at%2 == 0 && at < 6 && rapid.Bool().Draw(t, "two") {
					p.Profile, p.Size = "2g.20gb", 2
				}
				g.MIG.Instances = append(g.MIG.Instances, p)
				placed := p.Placement()
				if rapid.Bool().Draw(t, "shared") {
					share(mode, gpu.SharedDevice{GPU: g.ID, Instance: &placed})
				}
				if rapid.Bool().Draw(t, "runs") {
					process(g, &g.MIG.Instances[len(g.MIG.Instances)-1].ID)
				}
				at += p.Size + rapid.IntRange(0, 1).Draw(t, "gap")
			}
		case "vgpu":
			g.VGPU = &gpu.VGPU{FunctionsOn: true, Types: []gpu.VGPUType{{Name: "X-12Q", FrameBuffer: gpu.FromMiB(12 * 1024), Max: 6}}}
			for n := range rapid.IntRange(1, 6).Draw(t, "vGPUs") {
				held := gpu.VGPUInstance{VGPUPlace: gpu.VGPUPlace{Type: "X-12Q", Function: n}}
				if rapid.Bool().Draw(t, "held") {
					held.Holder = "VM " + aName(t, "guest")
				}
				g.VGPU.Instances = append(g.VGPU.Instances, held)
			}
		case "mps", "turns":
			c := gpu.PartitionConfig{ID: "c" + g.ID, Kind: gpu.KindMPS, MPS: &gpu.MPSLayout{MultiUser: true}}
			if mode == "turns" {
				c = gpu.PartitionConfig{ID: "c" + g.ID, Kind: gpu.KindTimeSlicing, TimeSlicing: &gpu.TimeSlicing{Replicas: 3}}
			}
			h.Claims = append(h.Claims, gpu.Claim{Kind: gpu.ClaimConfig, ID: c.ID, Owner: "a", GPUs: []string{g.ID}, Want: gpu.Want{Config: &c}})
			for range rapid.IntRange(0, 4).Draw(t, "shares") {
				share(mode, gpu.SharedDevice{GPU: g.ID})
			}
		}
		if mode != "mig" && mode != "vgpu" && rapid.Bool().Draw(t, "process") {
			process(g, nil)
		}
	}
	return h
}

// counted is what a map draws, by kind.
type counted map[string]int

func (c counted) holders(list []fleetmap.Holder) {
	for _, who := range list {
		c[string(who.Kind)+" "+who.Name+" "+who.ID]++
	}
}

// bar checks that the parts fill a bar, one beside the other, and counts what is in them.
func (c counted) bar(t failing, where string, b fleetmap.Bar) {
	at := int64(0)
	for _, p := range b.Parts {
		if p.Start != at || p.Size <= 0 {
			t.Fatalf("%s: the part %+v begins at %d, or has no width", where, p, at)
		}
		at += p.Size
		c[string(p.Kind)] += int(p.Size)
		c.holders(p.Holders)
		if p.Inside != nil {
			c.bar(t, where+" "+p.Name, *p.Inside)
		}
	}
	if at != b.Units || at == 0 {
		t.Fatalf("%s: the parts have %d units together, and the bar %d", where, at, b.Units)
	}
}

// TestAMapAccountsForAll draws random fleets: each GPU, partition and holder is there exactly once, and every bar is full.
func TestAMapAccountsForAll(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := fleet(t)
		m := fleetmap.New(s)
		for _, h := range s.Hosts {
			at := slices.IndexFunc(m.Hosts, func(d fleetmap.Host) bool { return d.Name == h.Name })
			drawn := m.Hosts[at]
			if len(drawn.GPUs) != len(h.GPUs) {
				t.Fatalf("%s: %d GPUs are drawn of %d", h.Name, len(drawn.GPUs), len(h.GPUs))
			}
			has, want := counted{}, map[string]int{}
			for i, g := range h.GPUs {
				d := drawn.GPUs[i]
				if d.ID != g.ID || d.Number != i {
					t.Fatalf("%s: GPU %s is drawn as %s", h.Name, g.ID, d.ID)
				}
				of := counted{}
				of.bar(t, g.ID, d.Bar)
				has.bar(t, g.ID, d.Bar)
				has.holders(d.Beside)
				if p := g.Partitionable; p != nil && !g.Dismounted {
					if of["partition"] != len(p.Partitions) || d.Units != int64(p.Count) {
						t.Fatalf("%s: %d of %d partitions are drawn as %v of %d", g.ID, len(p.Partitions), p.Count, of, d.Units)
					}
					if len(h.Unknown) > 0 && of["free"] > 0 {
						t.Fatalf("%s: who holds partitions cannot be read, and %d are drawn as free", g.ID, of["free"])
					}
				}
				if g.MIGEnabled() {
					sizes := 0
					for _, in := range g.MIG.Instances {
						sizes += in.Size
					}
					if of["instance"] != sizes || d.Units != 8 {
						t.Fatalf("%s: instances of %d slices are drawn as %v of %d", g.ID, sizes, of, d.Units)
					}
				}
				if g.VGPU != nil && of["vgpu"] != len(g.VGPU.Instances)*12*1024 {
					t.Fatalf("%s: %d vGPUs of 12 GiB are drawn as %v of %d MiB", g.ID, len(g.VGPU.Instances), of, d.Units)
				}
				for _, held := range vgpusOf(g) {
					want["VM "+gpu.Said(strings.TrimPrefix(held, "VM "), gpu.MostSaid)+" "]++
				}
				for _, p := range g.Processes {
					want[fmt.Sprintf("process %s %d", gpu.Said(p.Name, gpu.MostSaid), p.PID)]++
				}
			}
			has.holders(drawn.Waiting)
			for _, v := range h.VMs {
				if n := len(v.PartitionAdapters) + len(v.Devices); n > 0 {
					want["VM "+gpu.Said(v.Name, gpu.MostSaid)+" "+v.ID] += n
				}
			}
			for c := range h.ClaimsOf(gpu.ClaimShare) {
				want["share "+gpu.Said(c.Want.Share.Name, gpu.MostSaid)+" "]++
			}
			maps.DeleteFunc(has, func(k string, _ int) bool { return !strings.Contains(k, " ") })
			if d := cmp.Diff(want, map[string]int(has)); d != "" {
				t.Fatalf("%s: who holds what (-is +drawn):\n%s", h.Name, d)
			}
		}
	})
}

// FuzzMap draws whatever is a fleet file: no number in it breaks a bar, or takes time or memory.
func FuzzMap(f *testing.F) {
	f.Add([]byte(`{"format":"gpu-fleet/v1","hosts":[{"name":"a","platform":"hyperv","gpus":[{"id":"1","partitionable":{"partition_count":` +
		`4611686018427387904,"valid_partition_counts":[-1,0,9223372036854775807],"partitions":[{"id":-1,"vm_id":"x"}]}}],` +
		`"vms":[{"id":"v","devices":[{"gpu":"1"},{"pool":"p"}]}]}]}`))
	f.Add([]byte(`{"format":"gpu-fleet/v1","hosts":[{"name":"a","platform":"linux","gpus":[{"id":"1","mig":{"enabled":true,"profiles":` +
		`[{"name":"x","size":4611686018427387904,"starts":[4611686018427387904,-1]}],"instances":[{"profile":"x","start":4611686018427387904,` +
		`"size":-9},{"profile":"y","start":-4,"size":4611686018427387904}]},"processes":[{"pid":1,"gpu_instance":0}]},` +
		`{"id":"2","vgpu":{"types":[{"name":"t","max":4611686018427387904}],"instances":[{"type":"t"},{"type":"u","holder":"VM a"}]}}],` +
		`"claims":[{"kind":"share","id":"s","want":{"share":{"name":"s","count":1,"active_thread_percentage":1e300,` +
		`"devices":[{"gpu":"3"}]}}}]}]}`))
	f.Add([]byte(`{"format":"gpu-fleet/v1","hosts":[{"name":"a","platform":"linux","gpus":[{"id":"1","vram":85899345920}],"claims":` +
		`[{"kind":"partition_config","id":"c","gpus":["1"],"want":{"partition_config":{"id":"c","kind":"mps","mps":{}}}},` +
		`{"kind":"share","id":"s","want":{"share":{"name":"s","count":1,"active_thread_percentage":1e300,"request_fraction":-7,` +
		`"devices":[{"gpu":"1"},{"gpu":"1"}]}}}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := gpu.ParseSnapshot(data)
		if err != nil {
			return
		}
		p := fleetmap.Of("fuzz", s)
		for _, h := range p.Now.Hosts {
			for _, g := range h.GPUs {
				counted{}.bar(t, g.ID, g.Bar)
			}
		}
		for name, text := range pictures(t, p) {
			if text == "" {
				t.Errorf("there is no %s", name)
			}
		}
	})
}

// failing is a test of either kind.
type failing interface {
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// vgpusOf are the VMs that hold vGPUs of a GPU.
func vgpusOf(g gpu.GPU) (out []string) {
	if g.VGPU == nil {
		return nil
	}
	for _, v := range g.VGPU.Instances {
		if v.Holder != "" {
			out = append(out, v.Holder)
		}
	}
	return out
}

// pictures are a fleet in every form.
func pictures(t failing, p fleetmap.Picture) map[string]string {
	out := map[string]string{}
	for name, write := range map[string]func(io.Writer, fleetmap.Picture) error{
		"svg": fleetmap.SVG, "html": fleetmap.HTML, "markdown": fleetmap.Markdown,
		"text": func(w io.Writer, p fleetmap.Picture) error {
			return fleetmap.Text(w, p, fleetmap.TextOptions{Width: 100})
		},
	} {
		var b bytes.Buffer
		if err := write(&b, p); err != nil {
			t.Fatal(err)
		}
		out[name] = b.String()
	}
	return out
}

// TestPicturesOfAnyFleet draws random fleets with names as an attacker chooses them, in every form.
func TestPicturesOfAnyFleet(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, then := fleet(t), fleet(t)
		p := fleetmap.Of("fleet.json", s)
		if rapid.Bool().Draw(t, "planned") {
			var err error
			r := planreport.Report{Format: planreport.Format, Before: s, After: then, Changes: []planreport.Change{
				{Turn: 1, Host: s.Hosts[0].Name, Stops: []planreport.Stop{{VM: aName(t, "stopped")}}, Drains: []string{aName(t, "drained")}},
			}}
			if p, err = p.With(r, s); err != nil {
				t.Fatal(err)
			}
		}
		of := pictures(t, p)
		wellFormed(t, of["svg"])
		var painted bytes.Buffer
		if err := fleetmap.Text(&painted, p, fleetmap.TextOptions{Width: 100, Colours: true}); err != nil {
			t.Fatal(err)
		}
		if unpainted := text.StripEscape(painted.String()); unpainted != of["text"] {
			t.Fatalf("colours change the text (-without +with):\n%s", cmp.Diff(of["text"], unpainted))
		}
		if n := strings.Count(of["html"], "<script"); n != 2 {
			t.Fatalf("the page has %d script elements", n)
		}
		if strings.Contains(of["html"], "<img") || strings.Contains(of["svg"], "<script") || strings.Contains(of["svg"], "<img") {
			t.Fatal("a name has become markup")
		}
		data, _, _ := strings.Cut(of["html"][strings.Index(of["html"], `id="data">`)+len(`id="data">`):], "</script>")
		if !json.Valid([]byte(data)) {
			t.Fatalf("the data of the page is cut off: %s", data)
		}
		width := rapid.IntRange(30, 140).Draw(t, "width")
		var b bytes.Buffer
		if err := fleetmap.Text(&b, p, fleetmap.TextOptions{Width: width}); err != nil {
			t.Fatal(err)
		}
		most := max(min(width, 100), 40)
		for line := range strings.Lines(b.String()) {
			line = strings.TrimSuffix(line, "\n")
			if text.StringWidthWithoutEscSequences(line) > most || gpu.Printable(line) != line || strings.TrimRight(line, " ") != line {
				t.Fatalf("this line is wider than %d columns, or not for a terminal: %q", most, line)
			}
		}
	})
}

func wellFormed(t *rapid.T, svg string) {
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("the picture is no XML: %v\n%s", err, svg)
		}
	}
}

// TestPicturesAreStable draws one fleet in the order in which different agents may tell it.
func TestPicturesAreStable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := fleet(t)
		want := pictures(t, fleetmap.Of("fleet.json", s))
		s.Hosts = rapid.Permutation(s.Hosts).Draw(t, "hosts")
		for i := range s.Hosts {
			h := &s.Hosts[i]
			h.Claims = rapid.Permutation(h.Claims).Draw(t, "claims")
			for j := range h.GPUs {
				if p := h.GPUs[j].Partitionable; p != nil {
					p.Partitions = rapid.Permutation(p.Partitions).Draw(t, "partitions")
				}
				if m := h.GPUs[j].MIG; m != nil {
					m.Instances = rapid.Permutation(m.Instances).Draw(t, "instances")
				}
			}
		}
		if d := cmp.Diff(want, pictures(t, fleetmap.Of("fleet.json", s))); d != "" {
			t.Fatalf("in another order it is another picture:\n%s", d)
		}
	})
}

// TestMarkdownFitsACommentHoweverLargeTheFleet draws more than a comment has room for, and says so.
func TestMarkdownFitsACommentHoweverLargeTheFleet(t *testing.T) {
	t.Parallel()
	s, err := simulated.Spec{Platform: gpu.HyperV, Hosts: manyHosts(300), Models: []string{"A2", "A2"}}.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := fleetmap.Markdown(&b, fleetmap.Of("fleet.json", s)); err != nil {
		t.Fatal(err)
	}
	if n := len([]rune(b.String())); n > 60_000 || !strings.Contains(b.String(), "more, which this text has no room for") ||
		strings.Count(b.String(), "<details") != strings.Count(b.String(), "</details>") {
		t.Errorf("it has %d characters, and ends with %q", n, b.String()[b.Len()-200:])
	}
}

func manyHosts(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("hv%04d", i))
	}
	return out
}

// A report of another fleet is none of the one that is drawn.
func TestReportOfAnotherFleet(t *testing.T) {
	t.Parallel()
	r := planreport.Report{Before: gpu.Snapshot{Hosts: []gpu.Host{{Name: "hv01", Platform: gpu.HyperV}}}}
	other := gpu.Snapshot{Hosts: []gpu.Host{{Name: "hv02", Platform: gpu.HyperV}}}
	if _, err := fleetmap.Of("x", other).With(r, other); err == nil || !strings.Contains(err.Error(), `another fleet: it has "hv01"`) {
		t.Errorf("a report of another fleet: %v", err)
	}
}
