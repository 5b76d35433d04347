package hyperv_test

import (
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
)

// FuzzEmbedded reads instances as WMI gives them. One that is read is written and read
// again as it was, and takes a value.
func FuzzEmbedded(f *testing.F) {
	for _, s := range []string{
		"", "<INSTANCE/>", `<INSTANCE CLASSNAME="Msvm_X"><PROPERTY NAME="A" TYPE="string"><VALUE>1</VALUE></PROPERTY><PROPERTY.ARRAY ` +
			`NAME="B"><VALUE.ARRAY><VALUE>&lt;</VALUE></VALUE.ARRAY></PROPERTY.ARRAY></INSTANCE>`,
		"<INSTANCE><A><B>", "<!DOCTYPE x><INSTANCE/>",
	} {
		f.Add(s, "A", "v")
	}
	f.Fuzz(func(t *testing.T, text, name, value string) {
		e, err := hyperv.ParseEmbedded(text)
		if err != nil {
			return
		}
		once := e.String()
		again, err := hyperv.ParseEmbedded(once)
		if err != nil {
			t.Fatalf("%q, written %q: %v", text, once, err)
		}
		again.Set(name, value)
		if out := again.String(); out == "" {
			t.Errorf("%q with %q = %q cannot be written", text, name, value)
		} else if _, err := hyperv.ParseEmbedded(out); err != nil {
			t.Errorf("%q: %v", out, err)
		}
	})
}

// FuzzKeyOf writes keys into object paths and reads them back, and strings into queries:
// nothing in them ends the literal early.
func FuzzKeyOf(f *testing.F) {
	f.Add(`\\HOST\root\virtualization\v2:Msvm_X.CreationClassName="a",Name="b"`, `a"\'`)
	f.Add("", "")
	f.Add(`x.a="`, `\`)
	f.Fuzz(func(t *testing.T, path, value string) {
		_ = hyperv.KeyOf(path, "Name")
		_, _ = hyperv.InstanceOf(path)
		_ = hyperv.DriverVersion("NVIDIA", path)
		_ = hyperv.ClassOf(path)
		quoted := `X.A="1",Name="` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
		if got := hyperv.KeyOf(quoted, "name"); got != value {
			t.Errorf("key %q is read as %q", value, got)
		}
		literal := hyperv.Literal(value)
		inside := strings.NewReplacer(`\\`, "", `\'`, "").Replace(literal[1 : len(literal)-1])
		if strings.ContainsAny(inside, `'\`) || literal[0] != '\'' || literal[len(literal)-1] != '\'' {
			t.Errorf("%q is the literal %s", value, literal)
		}
	})
}
