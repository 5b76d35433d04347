package vgpu_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/vgpu"
	fakevgpu "github.com/gpufleet/terraform-provider-gpu/internal/fake/vgpu"
)

func TestVirtualFunctionsOnAndOff(t *testing.T) {
	k := fakevgpu.New(t, l40s())
	h := host{k.Host()}
	k.Lock(4) // another client of the GPU comes and goes
	for range 2 {
		if err := h.enableVFs(t); err != nil {
			t.Fatal(err)
		}
	}
	if g := read(t, h); g.SRIOV.Enabled != 16 || len(g.Functions) != 16 {
		t.Errorf("SR-IOV %+v, %d functions", g.SRIOV, len(g.Functions))
	}
	k.Lock(1)
	for range 2 {
		if err := h.disableVFs(t); err != nil {
			t.Fatal(err)
		}
	}
	if g := read(t, h); g.VFsOn() || g.Shape != vgpu.ShapeOff {
		t.Errorf("SR-IOV %+v, shape %s", g.SRIOV, g.Shape)
	}
	if n := strings.Count(strings.Join(k.Events(), "\n"), "sriov-manage"); n != 7 {
		t.Errorf("sriov-manage ran %d times, wanted 5 and 2: %v", n, k.Events())
	}
}

func TestVirtualFunctionsThatDoNotCome(t *testing.T) {
	tests := map[string]struct {
		card    fakevgpu.Card
		disturb func(*fakevgpu.Kernel)
		options []func(*vgpu.Options)
		code    backend.Code
		says    []string
	}{
		"a client that stays": {l40s(), func(k *fakevgpu.Kernel) {
			k.Lock(100)
			k.Hold(901, "/dev/nvidia0", "/usr/bin/nv-hostengine")
		}, nil, backend.InUse, []string{"Cannot obtain unbindLock", "5 times", "/dev/nvidia0", "nv-hostengine, PID 901"}},
		"an unseen client": {l40s(), func(k *fakevgpu.Kernel) { k.Lock(100) }, nil, backend.InUse, []string{"nvidia-persistenced"}},
		"an unknown GPU":   {l40s(), (*fakevgpu.Kernel).Idle, nil, backend.Failed, []string{"sriov_numvfs reads 0, wanted 16"}},
		"no script": {
			l40s(), nil,
			[]func(*vgpu.Options){func(o *vgpu.Options) { o.Script = "/none" }},
			backend.NotFound,
			[]string{"vGPU Manager, which is not installed"},
		},
		"no SR-IOV": {p40(), nil, nil, backend.NotSupported, []string{"sriov_totalvfs"}},
		"no vGPU files appear": {
			fakevgpu.Card{Address: address, Shape: vgpu.ShapeMdevVF, VFs: 4},
			nil, nil, backend.Unavailable,
			[]string{"found 4 of 4", "nvidia-vgpu-mgr"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			k := fakevgpu.New(t, tt.card)
			if tt.disturb != nil {
				tt.disturb(k)
			}
			h := host{k.Host(tt.options...)}
			refused(t, h.enableVFs(t), tt.code, tt.says...)
			if _, err := h.Read(t.Context(), address); err != nil {
				t.Errorf("NVML was left closed: %v", err)
			}
		})
	}
}

func TestDisableRefusesWhileThereAreVGPUs(t *testing.T) {
	k, h := ready(t, l40s())
	create(t, h, vgpu.Spec{Function: 2, Type: 1153})
	refused(t, h.disableVFs(t), backend.InUse, "0000:41:00.6", "L40S-12Q", "remove it first")
	k.HoldVM(5, "0000:41:00.7", "db") // without a vGPU of ours
	refused(t, h.disableVFs(t), backend.InUse, "0000:41:00.6")
	if err := h.remove(t, vgpu.Spec{Function: 2, Type: 1153}); err != nil {
		t.Fatal(err)
	}
	refused(t, h.disableVFs(t), backend.InUse, "0000:41:00.7", "VM db")
	if g := read(t, h); !g.VFsOn() {
		t.Error("the virtual functions went")
	}
}

func TestVirtualFunctionsThatDoNotGo(t *testing.T) {
	k, h := ready(t, l40s())
	k.Idle()
	refused(t, h.disableVFs(t), backend.Failed, "sriov_numvfs reads 16, wanted 0")
}

func TestCreateAndRemove(t *testing.T) {
	tests := map[string]struct {
		card fakevgpu.Card
		at   int
		id   int
		name string
	}{
		"vendor-specific VFIO": {l40s(), 4, 1153, "L40S-12Q"},
		"mdev on functions":    {a40(), 4, 560, "A40-4Q"},
		"legacy mdev":          {p40(), vgpu.Itself, 49, "P40-4Q"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			k := fakevgpu.New(t, tt.card)
			h := host{k.Host()}
			if tt.card.VFs > 0 {
				if err := h.enableVFs(t); err != nil {
					t.Fatal(err)
				}
			}
			s := vgpu.Spec{Function: tt.at, UUID: someUUID, Type: tt.id}
			create(t, h, s, s)
			g := read(t, h)
			if d := cmp.Diff(map[int]string{tt.at: tt.name}, types(g)); d != "" {
				t.Error(d)
			}
			f, _ := g.Function(tt.at)
			if id := f.VGPUs[0].UUID; tt.card.Shape != vgpu.ShapeVFIO && id != someUUID {
				t.Errorf("the UUID is %q", id)
			}
			for range 2 {
				if err := h.remove(t, s); err != nil {
					t.Fatal(err)
				}
			}
			if got := types(read(t, h)); len(got) > 0 {
				t.Errorf("still there: %v", got)
			}
			if n := len(k.Events()); n != 2+min(tt.card.VFs, 1) {
				t.Errorf("more changes than needed: %v", k.Events())
			}
		})
	}
}

func TestCreateRefusals(t *testing.T) {
	vf4 := "0000:41:00.4"
	tests := map[string]struct {
		card  fakevgpu.Card
		there []vgpu.Spec
		fail  map[string]error
		spec  vgpu.Spec
		code  backend.Code
		says  []string
		left  map[int]string
	}{
		"another type is there": {
			card: l40s(), there: []vgpu.Spec{{Type: 1153}}, spec: vgpu.Spec{Type: 1148},
			code: backend.InUse, says: []string{vf4, "L40S-12Q already", "L40S-2Q"}, left: map[int]string{0: "L40S-12Q"},
		},
		"a type of another card": {
			card: l40s(), spec: vgpu.Spec{Type: 557},
			code: backend.InvalidParameter, says: []string{"no vGPU type 557", "L40S-2B, L40S-2Q, L40S-12Q"},
		},
		"another frame buffer size": {
			card: l40s(), there: []vgpu.Spec{{Type: 1153}}, spec: vgpu.Spec{Function: 1, Type: 1155},
			code: backend.Insufficient, says: []string{"L40S-24Q", "0000:41:00.5", "leave takes L40S-12Q"}, left: map[int]string{0: "L40S-12Q"},
		},
		"a full GPU": {
			card: l40s(), there: []vgpu.Spec{{Type: 1159}}, spec: vgpu.Spec{Function: 1, Type: 1159},
			code: backend.Insufficient, says: []string{"takes no vGPU types"}, left: map[int]string{0: "L40S-48Q"},
		},
		"no such function": {
			card: l40s(), spec: vgpu.Spec{Function: 16, Type: 1153},
			code: backend.NotFound, says: []string{"virtual function 16", "16 functions"},
		},
		"the driver refuses": {
			card: l40s(), fail: map[string]error{"current_vgpu_type": syscall.EIO}, spec: vgpu.Spec{Type: 1153},
			code: backend.Failed, says: []string{"1153 (L40S-12Q)", "current_vgpu_type, which reads 0", "dmesg"},
		},
		"no permission": {
			card: l40s(), fail: map[string]error{"current_vgpu_type": syscall.EACCES}, spec: vgpu.Spec{Type: 1153},
			code: backend.AccessDenied, says: []string{"current_vgpu_type"},
		},
		"the UUID is elsewhere": {
			card: a40(), there: []vgpu.Spec{{UUID: someUUID, Type: 560}}, spec: vgpu.Spec{Function: 1, UUID: someUUID, Type: 560},
			code: backend.InUse, says: []string{someUUID, "A40-4Q", vf4}, left: map[int]string{0: "A40-4Q"},
		},
		"no UUID": {
			card: a40(), spec: vgpu.Spec{Type: 560}, code: backend.InvalidParameter, says: []string{"UUID"},
		},
		"mdev refused": {
			card: a40(), fail: map[string]error{"nvidia-560/create": syscall.EINVAL}, spec: vgpu.Spec{UUID: someUUID, Type: 560},
			code: backend.InvalidParameter, says: []string{"nvidia-560/create", "A40-4Q", someUUID},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			k, h := ready(t, tt.card)
			create(t, h, tt.there...)
			for path, err := range tt.fail {
				k.Fail(path, err)
			}
			refused(t, h.create(t, tt.spec), tt.code, tt.says...)
			if d := cmp.Diff(tt.left, types(read(t, h)), cmp.Transformer("empty", func(m map[int]string) []string {
				var all []string
				for i := range 16 {
					if m[i] != "" {
						all = append(all, m[i])
					}
				}
				return all
			})); d != "" {
				t.Error(d)
			}
		})
	}
	t.Run("functions off", func(t *testing.T) {
		refused(t, host{fakevgpu.New(t, l40s()).Host()}.create(t, vgpu.Spec{Type: 1153}), backend.NotFound, "are off")
	})
}

// MIG-backed types need a free instance of their profile; the driver says only EIO.
func TestCreateWithoutInstance(t *testing.T) {
	k, h := ready(t, h200())
	if err := h.disableVFs(t); err != nil {
		t.Fatal(err)
	}
	if err := k.SetMIGMode(address, true); err != nil {
		t.Fatal(err)
	}
	if err := h.enableVFs(t); err != nil {
		t.Fatal(err)
	}
	refused(t, h.create(t, vgpu.Spec{Type: 1414}), backend.Insufficient, "H200X-1-18C")
	if err := k.SetInstances(address, map[string]int{"1g.18gb": 1}); err != nil {
		t.Fatal(err)
	}
	k.Fail("current_vgpu_type", syscall.EIO) // the instance went in between
	refused(t, h.create(t, vgpu.Spec{Type: 1414}), backend.Failed, "GPU instance of its MIG profile", "dmesg")
	create(t, h, vgpu.Spec{Type: 1414})
}

func TestRemoveRefusals(t *testing.T) {
	for _, card := range []fakevgpu.Card{l40s(), a40()} {
		k, h := ready(t, card)
		s := vgpu.Spec{Function: 1, UUID: someUUID, Type: card.Types[1].ID}
		device := "0000:41:00.5"
		create(t, h, s)
		if card.Shape == vgpu.ShapeMdevVF {
			device = someUUID
		}
		k.HoldVM(4711, device, "web-01")
		refused(t, h.remove(t, s), backend.InUse, "0000:41:00.5", "VM web-01", "PID 4711", card.Types[1].ShortName())
		k.End(4711)

		stale := s
		stale.Type = card.Types[0].ID
		refused(t, h.remove(t, stale), backend.InUse, "found "+card.Types[1].ShortName(), card.Types[0].ShortName())

		k.Fail("current_vgpu_type", syscall.EBUSY)
		k.Fail(someUUID+"/remove", syscall.EBUSY)
		refused(t, h.remove(t, s), backend.InUse, "0000:41:00.5")
		if d := cmp.Diff(map[int]string{1: card.Types[1].ShortName()}, types(read(t, h))); d != "" {
			t.Error(d)
		}
		if strings.Contains(strings.Join(k.Events(), "\n"), "torn") {
			t.Errorf("a vGPU was taken from a VM: %v", k.Events())
		}
	}
}

func TestHeterogeneousMode(t *testing.T) {
	_, h := ready(t, l40s())
	for _, on := range []bool{true, true, false} {
		if err := h.setHeterogeneous(t, on); err != nil {
			t.Fatal(err)
		}
		if got := read(t, h).Heterogeneous.Enabled; got != on {
			t.Errorf("the mode is %t, wanted %t", got, on)
		}
	}
	create(t, h, vgpu.Spec{Type: 1153})
	refused(t, h.setHeterogeneous(t, true), backend.InUse, "0000:41:00.4", "L40S-12Q")
	_, h = ready(t, a40())
	refused(t, h.setHeterogeneous(t, true), backend.NotSupported)
}

// What the driver does not show it has not done, whatever it answered.
func TestEveryChangeIsReadBack(t *testing.T) {
	vfio, mdev := vgpu.Spec{Type: 1153}, vgpu.Spec{UUID: someUUID, Type: 560}
	makes := func(s vgpu.Spec) func(host) error {
		return func(h host) error { return h.create(t, s) }
	}
	removes := func(s vgpu.Spec) func(host) error {
		return func(h host) error { return h.remove(t, s) }
	}
	tests := map[string]struct {
		card   fakevgpu.Card
		there  []vgpu.Spec
		path   string
		change func(host) error
		code   backend.Code
		says   []string
	}{
		"set a type": {
			card: l40s(), path: "current_vgpu_type", change: makes(vfio),
			code: backend.Failed, says: []string{"wrote 1153 (L40S-12Q)", "0000:41:00.4/nvidia/current_vgpu_type, which reads 0"},
		},
		"clear a type": {
			card: l40s(), there: []vgpu.Spec{vfio}, path: "current_vgpu_type", change: removes(vfio),
			code: backend.Failed, says: []string{"wrote 0", "0000:41:00.4/nvidia/current_vgpu_type, which reads 1153"},
		},
		"create a mediated device": {
			card: a40(), path: "nvidia-560/create", change: makes(mdev),
			code: backend.Failed, says: []string{"wrote " + someUUID, "nvidia-560/create", "there is no"},
		},
		"remove a mediated device": {
			card: a40(), there: []vgpu.Spec{mdev}, path: "remove", change: removes(mdev),
			code: backend.Timeout, says: []string{someUUID + "/remove", "still there"},
		},
		"heterogeneous mode": {
			card: l40s(), path: "heterogeneous", change: func(h host) error { return h.setHeterogeneous(t, true) },
			code: backend.Failed, says: []string{"reads off, wanted on"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			k, h := ready(t, tt.card)
			create(t, h, tt.there...)
			k.Fail(tt.path, nil)
			refused(t, tt.change(h), tt.code, tt.says...)
			if err := tt.change(h); err != nil {
				t.Errorf("again: %v", err)
			}
		})
	}
}

func TestUUIDOfAnotherGPU(t *testing.T) {
	other := a40()
	other.Address = second
	h := host{fakevgpu.New(t, a40(), other).Host()}
	for _, at := range []string{address, second} {
		if err := h.at(t, at, func(g *vgpu.GPU) error { return h.EnableVFs(t.Context(), g) }); err != nil {
			t.Fatal(err)
		}
	}
	s := vgpu.Spec{UUID: someUUID, Type: 560}
	if err := h.at(t, second, func(g *vgpu.GPU) error { return h.Create(g, s) }); err != nil {
		t.Fatal(err)
	}
	refused(t, h.create(t, s), backend.InUse, someUUID, "another device")
}

// The production code on plain files, with a script that makes the functions appear.
func TestPlainFiles(t *testing.T) {
	root := t.TempDir()
	device := func(parts ...string) string {
		return filepath.Join(append([]string{root, "sys/bus/pci/devices"}, parts...)...)
	}
	write := func(path, text string, mode os.FileMode) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write(device(address, "sriov_totalvfs"), "1\n", 0o644)
	write(device(address, "sriov_numvfs"), "0\n", 0o644)
	if err := os.MkdirAll(filepath.Join(root, "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(root, "sriov-manage")
	write(script, `#!/bin/sh
set -e
cd "`+device()+`"
if [ ! -e tried ]; then touch tried; echo "Cannot obtain unbindLock for $2" >&2; exit 1; fi
case $1 in
-e) mkdir -p 0000:41:00.4/nvidia
    echo "1148  : NVIDIA L40S-2Q" >0000:41:00.4/nvidia/creatable_vgpu_types
    echo 0 >0000:41:00.4/nvidia/current_vgpu_type
    ln -s ../0000:41:00.4 "$2/virtfn0"; echo 1 >"$2/sriov_numvfs" ;;
-d) rm "$2/virtfn0"; echo 0 >"$2/sriov_numvfs" ;;
esac
`, 0o755)
	h := host{vgpu.New(vgpu.Options{
		Sys: filepath.Join(root, "sys"), Proc: filepath.Join(root, "proc"), Script: script, Pause: time.Millisecond, Patience: time.Second,
	})}
	if err := h.enableVFs(t); err != nil {
		t.Fatal(err)
	}
	vgpuOf := vgpu.Spec{Function: 0, Type: 1148}
	create(t, h, vgpuOf)
	text, err := os.ReadFile(device("0000:41:00.4/nvidia/current_vgpu_type"))
	if err != nil || string(text) != "1148\n" {
		t.Errorf("the file holds %q, %v", text, err)
	}
	if err := h.remove(t, vgpuOf); err != nil {
		t.Fatal(err)
	}
	if err := h.disableVFs(t); err != nil {
		t.Fatal(err)
	}
	if g := read(t, h); g.VFsOn() {
		t.Errorf("SR-IOV %+v", g.SRIOV)
	}
}
