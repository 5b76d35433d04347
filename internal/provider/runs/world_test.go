package runs_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// worldConfig is a configuration whose world changes. The first of its hosts has two GPUs of the object at least.
type worldConfig struct {
	fleet  func() gpu.Snapshot
	config string
	// model is another model of GPU than the fleet has.
	model func(id string) gpu.GPU
}

// bystander is a host with an object of its own, which is changed while the world is as it is.
func bystander(of gpu.Snapshot) gpu.Snapshot {
	h := rig.GPUHost(1).Hosts[0]
	h.Name, h.GPUs[0].ID = "aside", rig.SharedCard(9)
	of.Hosts = append(of.Hosts, h)
	return of
}

const aside = `
resource "gpu_partition_config" "aside" {
  name         = "aside"
  hosts        = ["aside"]
  time_slicing = { replicas = %d }
}
`

func linuxOther(id string) gpu.GPU {
	return gpu.GPU{
		ID: id, Model: "Tesla T4", Vendor: "NVIDIA", PCI: gpu.PCIID{Vendor: "10DE", Device: "1EB8"}, VRAM: 16 * 1024 * gpu.MiB,
		Driver: gpu.Driver{Version: "580.82.07"}, Address: "0000:c1:00.0",
	}
}

func kvm(n int) func() gpu.Snapshot {
	return func() gpu.Snapshot {
		var all []gpu.GPU
		for i := range n {
			all = append(all, rig.L40s(i))
		}
		return rig.KVM(all...)
	}
}

func ids(host string, gpus ...string) string {
	return fmt.Sprintf("{ %s = [\"%s\"] }", host, strings.Join(gpus, `", "`))
}

func worldConfigs() map[string]worldConfig {
	hgx := func() gpu.Snapshot { return rig.HGX(rig.H100, 2) }
	inference := func() gpu.Snapshot { return rig.Inference(1) }
	vms := []gpu.VM{rig.Desktop("avd-01", 1), rig.Off(rig.Desktop("avd-03", 3))}
	nodes := func() gpu.Snapshot {
		return rig.Cluster("azl", rig.Node("hv01", slices.Clone(vms)...), rig.Node("hv02", rig.Desktop("avd-04", 4)))
	}
	newer := func() gpu.Snapshot {
		s := inference()
		for i := range s.Hosts[0].GPUs {
			s.Hosts[0].GPUs[i].Driver.Version = "590.44.01"
		}
		return s
	}
	single := func() gpu.Snapshot { return rig.Standalone(rig.Node("hv01", slices.Clone(vms)...)) }
	cards := ids("gpu01", rig.ShareCard(1, 0), rig.ShareCard(1, 1))
	pinned := func(name string, n int) string {
		return rig.ShareOf(name, rig.OfMPS, rig.OnGPU01, "gpu_ids = [\""+rig.ShareCard(1, n)+"\"]")
	}
	pinnedShares := pinned("a", 0) + pinned("b", 1)
	shares := func(more string) string {
		return rig.ShareOf("a", more, rig.OnGPU01) + rig.ShareOf("b", more, rig.OnGPU01)
	}
	reset, restart, restore := `max_disruption = "gpu_reset"`, `max_disruption = "vm_restart"`, `on_destroy = "restore"`
	assigned := rig.Assign("avd-01", "allow_shutdown = true")
	drawn := rig.AssignmentOf("a", "avd-01", "pool = { id = gpu_pool.render.id }", rig.WholeGPU(1), rig.MayStop)
	slots := ids("hv01", rig.GPU0, rig.GPU1)
	clustered := strings.ReplaceAll(rig.ConfigOf(4, rig.Both, restart), `hosts = ["hv01", "hv02"]`, `cluster = "azl"`)
	return map[string]worldConfig{
		"mig":          {hgx, rig.MIGOf("ml", rig.Halves, reset), linuxOther},
		"mig restored": {hgx, rig.MIGOf("ml", rig.Halves, reset, restore), linuxOther},
		"mig of a model": {
			hgx, rig.MIGOf("ml", rig.Halves, reset, `selector = { models = ["NVIDIA H100 80GB HBM3"] }`),
			linuxOther,
		},
		"gpu_p of a model, one of two hosts": {
			nodes, rig.ConfigOf(4, rig.Both, restart, `selector = { models = ["NVIDIA A2"] }`) + assigned, rig.A16,
		},
		"gpu_p of a model in a cluster": {
			nodes, strings.ReplaceAll(rig.ConfigOf(4, rig.Both, restart, `selector = { models = ["NVIDIA A2"] }`),
				`hosts = ["hv01", "hv02"]`, `cluster = "azl"`) + assigned, rig.A16,
		},
		"mps of a model": {
			inference, rig.SharedConfig("mps", rig.ByMPS+"\n  selector = { models = [\"NVIDIA L40S\"] }", "gpu01") + shares(rig.OfMPS), linuxOther,
		},
		"mig by ids": {hgx, rig.MIGOf("ml", rig.Written, rig.OnGPUs(0, 1)), linuxOther},
		"mig with mps": {
			func() gpu.Snapshot { return rig.WithMPS(hgx()) }, rig.MIGOf("ml", rig.Halves+", mps = { uid = 1000 }"), linuxOther,
		},
		"mps": {inference, rig.MPSOn01 + shares(rig.OfMPS), linuxOther},
		"mps, by ids": {
			inference, rig.SharedConfig("mps", rig.ByMPS+"\n  selector = { gpu_ids = "+cards+" }", "gpu01") + pinnedShares, linuxOther,
		},
		"mps, static partitions": {
			newer, rig.SharedConfig("mps", "mps = { uid = 1000, daemons = \"per_gpu\", static_partitions = true }", "gpu01") +
				rig.ShareOf("a", rig.OfMPS, rig.OnGPU01, "active_thread_percentage = 50"), linuxOther,
		},
		"time slices":   {inference, rig.SharedConfig("mps", rig.ByTurns, "gpu01") + pinnedShares, linuxOther},
		"vgpu":          {kvm(2), rig.VGPUOf("desks", rig.TwoDesks), linuxOther},
		"vgpu by ids":   {kvm(2), rig.VGPUOf("desks", rig.TwoDesks, rig.OnCards(0, 1), restore), linuxOther},
		"pool of Linux": {inference, rig.MPSOn01 + rig.MLPool([]string{"gpu01"}) + shares(rig.FromPool), linuxOther},
		"pool of Linux by ids": {
			inference, rig.MPSOn01 + "resource \"gpu_pool\" \"ml\" {\n  name = \"ml\"\n  members = " + cards + "\n}\n" + shares(rig.FromPool),
			linuxOther,
		},
		"gpu_p":              {single, rig.ConfigOf(4, []string{"hv01"}, restart) + assigned, rig.A16},
		"gpu_p restored":     {single, rig.ConfigOf(4, []string{"hv01"}, restore, "selector = { gpu_ids = "+slots+" }") + assigned, rig.A16},
		"gpu_p of a cluster": {nodes, clustered + assigned + rig.Assign("avd-04", "allow_shutdown = true"), rig.A16},
		"pool":               {nodes, rig.RenderPool("hosts = [\"hv01\", \"hv02\"]") + drawn, rig.A16},
		"pool by ids, one host": {
			single, rig.RenderPool("members = "+slots, rig.MountBack) + drawn, rig.A16,
		},
		"whole GPUs": {
			single, rig.AssignmentOf("a", "avd-01", "device = { host = \"hv01\", gpu_ids = [\""+rig.GPU1+"\"] }", rig.WholeGPU(1), rig.MayStop),
			rig.A16,
		},
	}
}

// event is something that the world does. It reports whether it can happen to that fleet.
type event func(*rig.Rig, worldConfig) bool

func first(r *rig.Rig) *gpu.Host { return &r.Snapshot().Hosts[0] }

// lose takes the n-th GPU of the first host.
func lose(n int) event {
	return func(r *rig.Rig, _ worldConfig) bool {
		h := first(r)
		r.Must(r.Fleet.RemoveGPU(r.T.Context(), h.Name, h.GPUs[n].ID))
		return true
	}
}

func boot(r *rig.Rig, _ worldConfig) bool {
	r.Must(r.Fleet.Reboot(r.T.Context(), first(r).Name))
	return true
}

func both(all ...event) event {
	return func(r *rig.Rig, c worldConfig) bool {
		for _, e := range all {
			if !e(r, c) {
				return false
			}
		}
		return true
	}
}

// editGPU changes the n-th GPU of the first host.
func editGPU(n int, edit func(*gpu.GPU) bool) event {
	return func(r *rig.Rig, _ worldConfig) (happens bool) {
		r.EditHost(first(r).Name, func(h *gpu.Host) { happens = edit(&h.GPUs[n]) })
		return happens
	}
}

// anotherID is one in the form of a host's platform.
func anotherID(h *gpu.Host) string {
	if h.Platform == gpu.Linux {
		return "GPU-77777777-0000-4000-8000-000000000001"
	}
	return rig.GPU2
}

// another is a GPU of the model that the fleet has, whose slot is free.
func another(c worldConfig, h *gpu.Host) gpu.GPU {
	g := c.fleet().Hosts[0].GPUs[0]
	g.ID, g.Address = anotherID(h), map[gpu.Platform]string{gpu.Linux: "0000:c1:00.0"}[h.Platform]
	g.InstancePath += "7"
	return g
}

func plugsIn(of func(worldConfig, *gpu.Host) gpu.GPU) event {
	return func(r *rig.Rig, c worldConfig) bool {
		h := first(r)
		r.Must(r.Fleet.AddGPU(r.T.Context(), h.Name, of(c, h)))
		return true
	}
}

func counts(h *gpu.Host, list ...int) bool {
	for i := range h.GPUs {
		if p := h.GPUs[i].Partitionable; p != nil {
			p.ValidCounts = list
		}
	}
	return h.Platform == gpu.HyperV
}

func events() map[string]event {
	other := plugsIn(func(c worldConfig, h *gpu.Host) gpu.GPU { return c.model(anotherID(h)) })
	same := plugsIn(another)
	used := plugsIn(func(c worldConfig, h *gpu.Host) gpu.GPU {
		g := another(c, h)
		if h.Platform == gpu.Linux {
			g.Processes = []gpu.Process{{PID: 4711, Name: "python"}}
			return g
		}
		g.Partitionable.Partitions = []gpu.Partition{{ID: 1, VMID: rig.VMID(77)}}
		return g
	})
	edit := func(change func(*gpu.Host) bool) event {
		return func(r *rig.Rig, _ worldConfig) (happens bool) {
			r.EditHost(first(r).Name, func(h *gpu.Host) { happens = change(h) })
			return happens
		}
	}
	replaced := func(n int, by func(c worldConfig, id string) gpu.GPU) event {
		return func(r *rig.Rig, c worldConfig) bool {
			h := first(r)
			was := h.GPUs[n]
			id := was.ID
			if h.Platform == gpu.Linux {
				id = anotherID(h)
			}
			r.Must(r.Fleet.RemoveGPU(r.T.Context(), h.Name, was.ID))
			g := by(c, id)
			g.ID, g.Address = id, was.Address
			r.Must(r.Fleet.AddGPU(r.T.Context(), h.Name, g))
			return true
		}
	}
	repaired := func(c worldConfig, id string) gpu.GPU {
		g := c.fleet().Hosts[0].GPUs[0]
		g.ID = id
		return g
	}
	otherModel := func(c worldConfig, id string) gpu.GPU { return c.model(id) }
	// all GPUs of the object's hosts are lost, and GPUs of another model are in their places, if anything is.
	all := func(replaced bool) event {
		return func(r *rig.Rig, c worldConfig) bool {
			for _, h := range r.Snapshot().Hosts {
				if h.Name == "aside" {
					continue
				}
				for n, was := range h.GPUs {
					g := c.model(was.ID)
					if g.Address = was.Address; h.Platform == gpu.Linux {
						g.ID = fmt.Sprintf("GPU-77777777-0000-4000-8000-00000000001%d", n)
					}
					r.Must(r.Fleet.RemoveGPU(r.T.Context(), h.Name, was.ID))
					if replaced {
						r.Must(r.Fleet.AddGPU(r.T.Context(), h.Name, g))
					}
				}
			}
			return true
		}
	}
	return map[string]event{
		"nothing":                            func(*rig.Rig, worldConfig) bool { return true },
		"a reboot":                           boot,
		"a GPU of another model comes":       other,
		"one comes, and a reboot":            both(other, boot),
		"a GPU of the same model comes":      same,
		"a GPU comes that is in use":         used,
		"one comes in use, and a reboot":     both(used, boot),
		"the first GPU is lost":              lose(0),
		"the first GPU is lost at a reboot":  both(lose(0), boot),
		"the second GPU is lost":             lose(1),
		"the second GPU is lost at a reboot": both(lose(1), boot),
		"all GPUs are lost":                  both(lose(1), lose(0)),
		"a GPU is replaced":                  replaced(0, repaired),
		"a GPU is replaced, and a reboot":    both(replaced(1, repaired), boot),
		"a GPU is replaced by another model": replaced(1, otherModel),
		"one of another model, and a reboot": both(replaced(0, otherModel), boot),
		"all are replaced by another model":  all(true),
		"all GPUs of all hosts are lost":     all(false),
		"a GPU has a problem":                editGPU(0, func(g *gpu.GPU) bool { g.Problem = "XID 79: it has fallen off the bus"; return true }),
		"a GPU cannot be read, and a reboot": both(boot, edit(func(h *gpu.Host) bool {
			h.Unknown = append(h.Unknown, gpu.Unknown{Part: gpu.PartGPUs, GPU: h.GPUs[0].ID, Why: "the driver does not answer"})
			return true
		})),
		"the driver offers other counts":      edit(func(h *gpu.Host) bool { return counts(h, 1, 2, 4, 8) }),
		"the driver offers the count no more": edit(func(h *gpu.Host) bool { return counts(h, 1, 2, 8, 16) }),
		"the driver offers one count":         edit(func(h *gpu.Host) bool { return counts(h, 1) }),
		"the count is changed, and the driver": edit(func(h *gpu.Host) bool {
			if h.GPUs[0].Partitionable != nil && len(h.GPUs[0].Partitionable.Partitions) == 0 {
				h.GPUs[0].Partitionable.Count = 2
			}
			return counts(h, 1, 2)
		}),
		"a reboot, and others use the first GPU": both(boot, func(r *rig.Rig, _ worldConfig) bool {
			h := first(r)
			if h.Platform != gpu.Linux {
				return false
			}
			_, err := r.Fleet.StartProcess(r.T.Context(), h.Name, h.GPUs[0].ID, nil, gpu.Process{Name: "python"})
			return err == nil
		}),
		"the driver is older after a reboot": both(func(r *rig.Rig, _ worldConfig) (happens bool) {
			r.EditHost(first(r).Name, func(h *gpu.Host) {
				for i := range h.GPUs {
					h.GPUs[i].Driver.Version = "580.82.07"
				}
				happens = h.Platform == gpu.Linux
			})
			return happens
		}, boot),
		"MIG is gone from the driver": editGPU(0, func(g *gpu.GPU) bool {
			had := g.MIG != nil
			g.MIG = nil
			return had
		}),
		"the cluster has another name": func(r *rig.Rig, _ worldConfig) bool {
			cluster := first(r).Cluster != nil
			for _, h := range r.Snapshot().Hosts {
				if h.Cluster != nil {
					r.EditHost(h.Name, func(h *gpu.Host) { h.Cluster.Name = "renamed" })
				}
			}
			return cluster
		},
		"a node leaves the cluster":         evict("hv02"),
		"the first node leaves the cluster": evict("hv01"),
		"a VM moves": func(r *rig.Rig, _ worldConfig) bool {
			if first(r).Cluster == nil {
				return false
			}
			r.Must(r.Fleet.MoveVM(r.T.Context(), "avd-01", "hv02"))
			return true
		},
		"a VM is deleted": edit(func(h *gpu.Host) bool {
			at := slices.IndexFunc(h.VMs, func(v gpu.VM) bool { return v.Name == "avd-01" })
			if at < 0 {
				return false
			}
			for i := range h.GPUs {
				if p := h.GPUs[i].Partitionable; p != nil {
					p.Partitions = slices.DeleteFunc(p.Partitions, func(p gpu.Partition) bool { return p.VMID == h.VMs[at].ID })
				}
			}
			h.VMs = slices.Delete(h.VMs, at, at+1)
			return true
		}),
		"a VM is deleted, and its partition stays": edit(func(h *gpu.Host) bool {
			at := slices.IndexFunc(h.VMs, func(v gpu.VM) bool { return v.Name == "avd-01" })
			if at < 0 {
				return false
			}
			h.VMs = slices.Delete(h.VMs, at, at+1)
			return true
		}),
		"a VM that is off has a partition": edit(func(h *gpu.Host) bool {
			for i := range h.VMs {
				if h.VMs[i].Name == "avd-03" && h.GPUs[0].Partitionable != nil {
					p := h.GPUs[0].Partitionable
					p.Partitions = append(p.Partitions, gpu.Partition{ID: 3, VMID: h.VMs[i].ID})
					return true
				}
			}
			return false
		}),
	}
}

func evict(node string) event {
	return func(r *rig.Rig, _ worldConfig) bool {
		if first(r).Cluster == nil {
			return false
		}
		for _, h := range r.Snapshot().Hosts {
			if h.Name == node {
				r.EditHost(h.Name, func(h *gpu.Host) {
					h.Cluster = nil
					for i := range h.VMs {
						h.VMs[i].Clustered, h.VMs[i].Settings.OfflineAction = false, nil
					}
				})
			} else if h.Cluster != nil {
				r.EditHost(h.Name, func(h *gpu.Host) {
					h.Cluster.Nodes = slices.DeleteFunc(h.Cluster.Nodes, func(n gpu.Node) bool { return n.Name == node })
				})
			}
		}
		return true
	}
}

// layoutsOn are what GPUs have, by host, GPU and model.
func layoutsOn(r *rig.Rig) map[string]string {
	out := map[string]string{}
	for _, h := range r.Snapshot().Hosts {
		for i := range h.GPUs {
			raw, err := json.Marshal(h.GPUs[i].Layout())
			r.Must(err)
			out[h.Name+" "+h.GPUs[i].ID+" "+h.GPUs[i].Model] = string(raw)
		}
	}
	return out
}

// What the world does is no error: a configuration that nobody has changed plans, puts right what can be put right,
// lets something else of the state change, and is destroyed.
func TestTheWorldIsNoError(t *testing.T) {
	t.Parallel()
	every, at := 1, 0 // in this process all takes a minute of one core
	switch {
	case os.Getenv("TF_ACC") != "":
		every = 29
	case testing.Short():
		every = 5
	}
	for _, name := range slices.Sorted(maps.Keys(worldConfigs())) {
		c := worldConfigs()[name]
		for _, what := range slices.Sorted(maps.Keys(events())) {
			happens := events()[what]
			if at++; at%every != 0 {
				continue
			}
			t.Run(name+"/"+what, rig.WithoutWaiting(func(t *testing.T) {
				r := rig.New(t, bystander(c.fleet()))
				config := func(replicas int) string { return r.Block() + c.config + fmt.Sprintf(aside, replicas) }
				cli := rig.NewCLI(t, config(2))
				cli.Apply()
				before := layoutsOn(r)
				if !happens(r, c) {
					t.Skip("it cannot happen to this fleet")
				}
				cli.Ok("plan")
				gone := strings.HasPrefix(what, "a VM is deleted")
				if !gone { // else its own assignment fails, which the plan says
					cli.Write(config(3))
					out := cli.Apply()
					for at, now := range layoutsOn(r) {
						was, had := before[at]
						told := strings.Contains(out, "as long as this is so") || strings.Contains(out, "no longer offers GPU "+strings.Fields(at)[1]) ||
							strings.Contains(out, "GPU "+strings.Fields(at)[1]+": the driver does not answer")
						if had && now != was && !told && strings.Contains(c.config, "gpu_partition_config") {
							t.Errorf("%s is %s, and was %s\n%s", at, now, was, out)
						}
					}
					if out, code := cli.Run("plan", "-detailed-exitcode"); code != 0 {
						t.Errorf("the second plan is not empty:\n%s", out)
					}
				}
				cli.Destroy()
				// A claim of a VM that is gone is dropped by the next run that changes something and has looked at all hosts.
				orphaned := gone && !strings.Contains(c.config, "hosts")
				for _, h := range r.Snapshot().Hosts {
					if len(h.Claims) > 0 && !orphaned {
						t.Errorf("%s has claims after the destroy: %v", h.Name, r.Claims(h.Name))
					}
				}
			}))
		}
	}
}

// What the world does is told with what becomes of it, and a fix.
func TestTheWorldIsTold(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		config, event string
		destroys      bool
		says          []string
		never         string
	}{
		{"gpu_p", "a GPU of another model comes", false, []string{
			"(NVIDIA A16) is not in the config yet; the GPU is new", "It stays out as long as this is so: Most GPUs of", "selector = { models",
			"No changes",
		}, "This apply puts it right"},
		{
			"gpu_p of a cluster", "a GPU comes that is in use", false,
			[]string{"is not in the config yet", "It stays out as long as this is so"},
			"This apply puts it right",
		},
		{
			"gpu_p", "a GPU of the same model comes", false,
			[]string{"is not in the config yet", "This apply puts it right", "1 to change"},
			"stays out",
		},
		{"mig", "a GPU of another model comes", false, []string{"No changes"}, "This apply puts it right"}, // the selector passes it by
		{
			"pool", "a GPU of another model comes", false,
			[]string{`is not in pool "render"`, "It stays out as long as this is so", "No changes"},
			"This apply puts it right",
		},
		{"mps, by ids", "the first GPU is lost at a reboot", false, []string{"This apply puts it right", "replace the share"}, "Error"},
		{"mps, static partitions", "the driver is older after a reboot", false, []string{
			"cannot put it right as long as this is so", "no static partitions", "Upgrade the driver", "No changes",
		}, "This apply puts it right"},
		{"mig", "a reboot, and others use the first GPU", false, []string{
			"This apply leaves it as it is as long as this is so", "python", "1 to change",
		}, "Error"},
		{"gpu_p restored", "the driver offers other counts", true, []string{
			"The previous layout cannot be restored", "its driver offers no 16 partitions any more, only 1, 2, 4 and 8", "keep the layout",
		}, "Error"},
		{"gpu_p restored", "a VM that is off has a partition", true, []string{
			`Hyper-V still lists a partition of "avd-03": it is off, and gives it back when it is started and shut down once`,
		}, "Error"},
		{"gpu_p of a cluster", "the cluster has another name", false, []string{
			"The cluster is not there any more", `called "azl". The resource stays on hv01 and hv02`, "Write the name that the cluster has now",
		}, "Error"},
	} {
		t.Run(test.config+"/"+test.event, rig.WithoutWaiting(func(t *testing.T) {
			c := worldConfigs()[test.config]
			r := rig.New(t, bystander(c.fleet()))
			cli := rig.NewCLI(t, r.Block()+c.config)
			cli.Apply()
			if !events()[test.event](r, c) {
				t.Fatal("it cannot happen to this fleet")
			}
			args := []string{"plan"}
			if test.destroys {
				args = append(args, "-destroy")
			}
			out := cli.Ok(args...)
			rig.WantSaid(t, out, test.says...)
			if strings.Contains(out, test.never) {
				t.Errorf("it says %q:\n%s", test.never, out)
			}
		}))
	}
}

// A node that joins a cluster gets its config by the next apply, and has lost nothing.
func TestANodeThatJoinsIsNew(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Cluster("azl", rig.Node("hv01"), rig.Node("hv02")))
	cli := rig.NewCLI(t, r.Block()+strings.ReplaceAll(rig.ConfigOf(4, rig.Both), `hosts = ["hv01", "hv02"]`, `cluster = "azl"`))
	cli.Apply()
	all := rig.Cluster("azl", rig.Node("hv01"), rig.Node("hv02"), rig.Node("hv03"))
	r.Must(r.Fleet.Edit(t.Context(), func(s *gpu.Snapshot) error {
		s.Hosts = append(s.Hosts, all.Hosts[2])
		for i := range s.Hosts {
			s.Hosts[i].Cluster = all.Hosts[i].Cluster
		}
		return nil
	}))
	out := cli.Ok("plan")
	rig.WantSaid(t, out, "Host hv03 is new, and does not have the config yet", "1 to change")
	if strings.Contains(out, "lost") {
		t.Errorf("something is lost:\n%s", out)
	}
	cli.Apply()
	r.WantCounts(4, "hv01", "hv02", "hv03")
	cli.WantNoChanges()
}

// A GPU that stays out joins once nothing is in the way, and an error is what the configuration itself asks for.
func TestAGPUThatStaysOutJoinsLater(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Standalone(rig.Node("hv01")))
	config := func(count int, more ...string) string {
		return r.Block() + rig.ConfigOf(count, []string{"hv01"}, more...)
	}
	cli := rig.NewCLI(t, config(4))
	cli.Apply()
	comes := rig.A2(rig.GPU2)
	comes.Partitionable.Partitions = []gpu.Partition{{ID: 1, VMID: rig.VMID(77)}}
	r.Must(r.Fleet.AddGPU(t.Context(), "hv01", comes))
	cli.WantNoChanges()
	cli.Write(config(8))
	rig.WantSaid(t, cli.Apply(), "It stays out as long as this is so")
	if got := r.Counts("hv01"); got[rig.GPU0] != 8 || got[rig.GPU1] != 8 || got[rig.GPU2] != 16 {
		t.Errorf("the counts are %v", got)
	}
	cli.Write(config(8, "selector = { gpu_ids = "+ids("hv01", rig.GPU0, rig.GPU1, rig.GPU2)+" }"))
	rig.WantSaid(t, cli.Fails("plan"), "Error: ", rig.GPU2)
	cli.Write(config(8))
	r.EditHost("hv01", func(h *gpu.Host) {
		g, _ := h.GPU(rig.GPU2)
		g.Partitionable.Partitions = nil
	})
	cli.Apply()
	r.WantCounts(8, "hv01")
	cli.WantNoChanges()
}
