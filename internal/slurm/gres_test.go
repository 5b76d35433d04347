package slurm_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/slurm"
)

func TestRender(t *testing.T) {
	got, err := slurm.Render([]slurm.Node{
		{Name: "gpu[01-02]", GPUs: []slurm.GPU{
			{Minor: 0, Type: "a100", Cores: "0-15"},
			{Minor: 1, Type: "a100", Cores: "16-31", MPS: 100},
			{Minor: 2, Type: "t4"},
			{Minor: 3, Type: "a100", MPS: 100},
		}},
		{Name: "mig", AutoDetect: "off", GPUs: []slurm.GPU{
			{Minor: 0, Cores: "0-7", MIG: []slurm.MIGDevice{
				{Type: "3g.40gb", Capabilities: []int{12, 13}},
				{Type: "1g.10gb", Capabilities: []int{66, 67}},
				{Type: "1g.10gb", Capabilities: []int{66, 68}},
			}},
			{Minor: 1, Type: "a100"},
		}},
		{Name: "auto", AutoDetect: "nvml", GPUs: []slurm.GPU{{Minor: 0}, {Minor: 1}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := slurm.Gres{
		Conf: `NodeName=gpu[01-02] Name=gpu Type=a100 File=/dev/nvidia0 Cores=0-15
NodeName=gpu[01-02] Name=gpu Type=a100 File=/dev/nvidia1 Cores=16-31
NodeName=gpu[01-02] Name=gpu Type=t4 File=/dev/nvidia2
NodeName=gpu[01-02] Name=gpu Type=a100 File=/dev/nvidia3
NodeName=gpu[01-02] Name=mps Count=100 File=/dev/nvidia1
NodeName=gpu[01-02] Name=mps Count=100 File=/dev/nvidia3
NodeName=mig AutoDetect=off Name=gpu Type=3g.40gb MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap12,/dev/nvidia-caps/nvidia-cap13 ` +
			`Cores=0-7
NodeName=mig AutoDetect=off Name=gpu Type=1g.10gb MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap66,/dev/nvidia-caps/nvidia-cap67 ` +
			`Cores=0-7
NodeName=mig AutoDetect=off Name=gpu Type=1g.10gb MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap66,/dev/nvidia-caps/nvidia-cap68 ` +
			`Cores=0-7
NodeName=mig AutoDetect=off Name=gpu Type=a100 File=/dev/nvidia1
NodeName=auto AutoDetect=nvml Name=gpu File=/dev/nvidia0
NodeName=auto AutoDetect=nvml Name=gpu File=/dev/nvidia1
`,
		Types: "gpu,mps",
		Nodes: map[string]string{
			"gpu[01-02]": "gpu:a100:3,gpu:t4:1,mps:200",
			"mig":        "gpu:3g.40gb:1,gpu:1g.10gb:2,gpu:a100:1",
			"auto":       "gpu:2",
		},
		Cgroup: "ConstrainDevices=yes\n",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRenderRefuses(t *testing.T) {
	mig := func(capabilities ...int) []slurm.MIGDevice {
		return []slurm.MIGDevice{{Type: "1g.10gb", Capabilities: capabilities}}
	}
	for says, nodes := range map[string][]slurm.Node{
		"there is no node":                         nil,
		"by MPS and another in shards":             {{Name: "n", GPUs: []slurm.GPU{{MPS: 100}}}, {Name: "m", GPUs: []slurm.GPU{{Shards: 4}}}},
		`node "n": some of its GPUs have a type`:   {{Name: "n", GPUs: []slurm.GPU{{Type: "a100"}, {Minor: 1}}}},
		`"4k" is not a type such as "a100": Slurm`: {{Name: "n", GPUs: []slurm.GPU{{Type: "4k"}}}},
		`"no_consume" is not a type`:               {{Name: "n", GPUs: []slurm.GPU{{Type: "no_consume"}}}},
		`"4GiB" is not a type`:                     {{Name: "n", GPUs: []slurm.GPU{{Type: "4GiB"}}}},
		`"1gb" is not the type of a MIG device`: {
			{Name: "n", GPUs: []slurm.GPU{{MIG: []slurm.MIGDevice{{Type: "1gb", Capabilities: []int{1, 2}}}}}},
		},
		`node "gpu[2-1]": it is not the name`:     {{Name: "gpu[2-1]", GPUs: []slurm.GPU{{}}}},
		`node "gpu[01": it is not the name`:       {{Name: "gpu[01", GPUs: []slurm.GPU{{}}}},
		`node "gpu01,": it is not the name`:       {{Name: "gpu01,", GPUs: []slurm.GPU{{}}}},
		`node "gpu[1-2]x": it is not the name`:    {{Name: "gpu[1-2]x", GPUs: []slurm.GPU{{}}}},
		`node "gpu[0-70000]": it is not the`:      {{Name: "gpu[0-70000]", GPUs: []slurm.GPU{{}}}},
		`node "ALL": it is not the name`:          {{Name: "ALL", GPUs: []slurm.GPU{{}}}},
		`node "Default": it is not the name`:      {{Name: "Default", GPUs: []slurm.GPU{{}}}},
		`node "auto": it has no GPU: list them`:   {{Name: "auto", AutoDetect: "nvml"}},
		`"15-0" is not a list of cores`:           {{Name: "n", GPUs: []slurm.GPU{{Cores: "15-0"}}}},
		`node "": it is not the name`:             {{GPUs: []slurm.GPU{{}}}},
		`node "a b": it is not the name`:          {{Name: "a b", GPUs: []slurm.GPU{{}}}},
		`node "a\nName=x": it is not`:             {{Name: "a\nName=x", GPUs: []slurm.GPU{{}}}},
		`AutoDetect is "rsmi"`:                    {{Name: "n", AutoDetect: "rsmi"}},
		`node "n": it has no GPU`:                 {{Name: "n"}},
		`node "o": it has no GPU`:                 {{Name: "o", AutoDetect: "off"}},
		`node "n" is there twice`:                 {{Name: "n", GPUs: []slurm.GPU{{}}}, {Name: "n", GPUs: []slurm.GPU{{}}}},
		`/dev/nvidia1 is there twice`:             {{Name: "n", GPUs: []slurm.GPU{{Minor: 1}, {Minor: 1}}}},
		`/dev/nvidia-1: its number`:               {{Name: "n", GPUs: []slurm.GPU{{Minor: -1}}}},
		`"a 100" is not a type`:                   {{Name: "n", GPUs: []slurm.GPU{{Type: "a 100"}}}},
		`"100" is not a type`:                     {{Name: "n", GPUs: []slurm.GPU{{Type: "100"}}}},
		`"0-" is not a list of cores`:             {{Name: "n", GPUs: []slurm.GPU{{Cores: "0-"}}}},
		`parts is below zero`:                     {{Name: "n", GPUs: []slurm.GPU{{MPS: -1}}}},
		`by MPS and in shards`:                    {{Name: "n", GPUs: []slurm.GPU{{MPS: 100, Shards: 2}}}},
		`divided by MIG, so that it cannot`:       {{Name: "n", GPUs: []slurm.GPU{{MIG: mig(1, 2), MPS: 100}}}},
		`divided by MIG, so that its MIG devices`: {{Name: "n", GPUs: []slurm.GPU{{MIG: mig(1, 2), Type: "a100"}}}},
		`"" is not the type of a MIG device`: {
			{Name: "n", GPUs: []slurm.GPU{{MIG: []slurm.MIGDevice{{Capabilities: []int{1, 2}}}}}},
		},
		`has 1 capability devices, but two`:               {{Name: "n", GPUs: []slurm.GPU{{MIG: mig(1)}}}},
		`capability device -1 is below zero`:              {{Name: "n", GPUs: []slurm.GPU{{MIG: mig(-1, 2)}}}},
		`/dev/nvidia-caps/nvidia-cap2 is another's`:       {{Name: "n", GPUs: []slurm.GPU{{MIG: mig(1, 2)}, {Minor: 1, MIG: mig(3, 2)}}}},
		`node "n": /dev/nvidia0: it is divided by MIG, s`: {{Name: "n", GPUs: []slurm.GPU{{MIG: mig(1, 2), Shards: 1}}}},
	} {
		if got, err := slurm.Render(nodes); err == nil || !strings.Contains(err.Error(), says) &&
			!strings.Contains(err.Error(), strings.ReplaceAll(says, "\n", `\n`)) || got.Conf != "" {
			t.Errorf("got %v, want %s", err, says)
		}
	}
}
