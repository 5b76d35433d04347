package dra_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/gpufleet/terraform-provider-gpu/internal/dra"
)

func uuid(n int) string { return fmt.Sprintf("GPU-90000000-0000-4000-8000-%012d", n) }

// decode reads documents as an API server does: strictly, by Kubernetes' own types.
func decode(t *testing.T, text string) (classes []*resourceapi.DeviceClass, templates []*resourceapi.ResourceClaimTemplate) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := resourceapi.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	for _, document := range strings.Split(text, "---\n") {
		switch o, _, err := decoder.Decode([]byte(document), nil, nil); o := o.(type) {
		case *resourceapi.DeviceClass:
			classes = append(classes, o)
		case *resourceapi.ResourceClaimTemplate:
			templates = append(templates, o)
		default:
			t.Fatalf("%v in\n%s", err, document)
		}
	}
	return classes, templates
}

func TestRender(t *testing.T) {
	t.Parallel()
	out, err := dra.Render(&dra.Request{Name: "inference", Namespace: "ml", GPUs: []dra.GPU{
		{Host: "b", UUID: uuid(2), Layout: "mig:1g.10gb+me@0", Profiles: []string{"1g.10gb+me"}},
		{Host: "a", UUID: strings.ToUpper(uuid(1)), Layout: "mig:1g.10gb@0+1g.10gb@1", Profiles: []string{"1g.10gb", "1g.10gb"}},
		{Host: "a", UUID: uuid(0), Layout: "mig:1g.10gb@0+3g.40gb@4", Profiles: []string{"1g.10gb", "3g.40gb"}},
		{Host: "a", UUID: uuid(3), Layout: "mig:off"},
		{Host: "a", UUID: uuid(4), Layout: "mig:none"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	const head = `device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == `
	mig := func(profile string, gpus ...int) string {
		var ids []string
		for _, n := range gpus {
			ids = append(ids, `"`+uuid(n)+`"`)
		}
		return head + `"mig" && device.attributes["gpu.nvidia.com"].profile == "` + profile +
			`" && device.attributes["gpu.nvidia.com"].parentUUID in [` + strings.Join(ids, ", ") + "]"
	}
	want := []struct{ name, expression string }{
		{"inference-1g.10gb", mig("1g.10gb", 0, 1)},
		{"inference-1g.10gb-me", mig("1g.10gb+me", 2)},
		{"inference-3g.40gb", mig("3g.40gb", 0)},
		{"inference-gpu", head + `"gpu" && device.attributes["gpu.nvidia.com"].uuid in ["` + uuid(3) + `"]`},
	}
	classes, templates := decode(t, out)
	if len(classes) != len(want) || len(templates) != len(want) {
		t.Fatalf("%d classes and %d templates in\n%s", len(classes), len(templates), out)
	}
	for i, w := range want {
		if c := classes[i]; c.Name != w.name || len(c.Spec.Selectors) != 1 || c.Spec.Selectors[0].CEL.Expression != w.expression {
			t.Errorf("class %d is %s with %+v, want %s with %s", i, c.Name, c.Spec.Selectors[0].CEL, w.name, w.expression)
		}
		requests := templates[i].Spec.Spec.Devices.Requests
		if tpl := templates[i]; tpl.Name != w.name || tpl.Namespace != "ml" || len(requests) != 1 || requests[0].Exactly == nil ||
			requests[0].Exactly.DeviceClassName != w.name {
			t.Errorf("template %d is %s/%s with %+v, want one request for %s", i, tpl.Namespace, tpl.Name, requests, w.name)
		}
	}
}

// Profiles with and without media engines are told apart by their names.
func TestNamesAreApart(t *testing.T) {
	t.Parallel()
	profiles := []string{"1g.24gb", "1g.24gb+me", "1g.24gb-me", "1g.24gb+gfx", "1g.24gb+me.all"}
	out, err := dra.Render(&dra.Request{Name: "ml", GPUs: []dra.GPU{{Host: "a", UUID: uuid(0), Layout: "mig:some", Profiles: profiles}}})
	if err != nil {
		t.Fatal(err)
	}
	classes, _ := decode(t, out)
	var names []string
	for _, c := range classes {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	if want := []string{"ml-1g.24gb", "ml-1g.24gb-gfx", "ml-1g.24gb-me", "ml-1g.24gb-me.all", "ml-1g.24gb-no-me"}; !slices.Equal(names, want) {
		t.Errorf("the names are %q, want %q", names, want)
	}
}

func TestRenderRefuses(t *testing.T) {
	t.Parallel()
	one := []dra.GPU{{Host: "a", UUID: uuid(0), Layout: "mig:off"}}
	var many []dra.GPU
	for n := range 300 {
		many = append(many, dra.GPU{Host: "a", UUID: uuid(n), Layout: "mig:off"})
	}
	for says, r := range map[string]dra.Request{
		`name: "" is not a name`:                              {GPUs: one},
		`name: "ML" is not a name`:                            {Name: "ML", GPUs: one},
		"at most 40 characters":                               {Name: strings.Repeat("a", 41), GPUs: one},
		`namespace: "` + strings.Repeat("a", 64) + `" is not`: {Name: "ml", Namespace: strings.Repeat("a", 64), GPUs: one},
		`namespace: "a.b" is not the name of a namespace`:     {Name: "ml", Namespace: "a.b", GPUs: one},
		"there is no device":                                  {Name: "ml", GPUs: []dra.GPU{{Host: "a", UUID: uuid(0), Layout: "mig:none"}}},
		`has the layout "mps:default", by which its host`:     {Name: "ml", GPUs: []dra.GPU{{Host: "a", UUID: uuid(0), Layout: "mps:default"}}},
		`"PCIROOT(20)" on host "a" is not the UUID`:           {Name: "ml", GPUs: []dra.GPU{{Host: "a", UUID: "PCIROOT(20)", Layout: "mig:off"}}},
		"Kubernetes takes at most 10240":                      {Name: "ml", GPUs: many},
	} {
		if out, err := dra.Render(&r); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v\n%s", says, err, out)
		}
	}
}
