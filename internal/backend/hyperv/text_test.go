package hyperv_test

import (
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
)

const a2 = `\\?\PCI#VEN_10DE&DEV_25B6&SUBSYS_157E10DE&REV_A1#4&18416dc3&0&0000#{064092b3-625e-43bf-9eb5-dc845897dd59}`

func TestLiteralsAreEscaped(t *testing.T) {
	for in, want := range map[string]string{
		`avd-01`:         `'avd-01'`,
		`O'Neill`:        `'O\'Neill'`,
		`PCI\VEN_10DE`:   `'PCI\\VEN_10DE'`,
		`' OR Name LIKE`: `'\' OR Name LIKE'`,
	} {
		if got := hyperv.Literal(in); got != want {
			t.Errorf("%q is %s, want %s", in, got, want)
		}
	}
}

func TestKeysAreReadFromPaths(t *testing.T) {
	path := `\\HV01\root\virtualization\v2:Msvm_PartitionableGpu.CreationClassName="Msvm_PartitionableGpu",Name="` +
		strings.NewReplacer(`\`, `\\`).Replace(a2) + `"`
	for key, want := range map[string]string{"Name": a2, "name": a2, "CreationClassName": "Msvm_PartitionableGpu", "Other": ""} {
		if got := hyperv.KeyOf(path, key); got != want {
			t.Errorf("key %s is %q, want %q", key, got, want)
		}
	}
	for _, path := range []string{"", "Msvm_X", `Msvm_X.Name`, `Msvm_X.Name="`, `Msvm_X.Name="\`} {
		if got := hyperv.KeyOf(path, "Name"); strings.Contains(got, `"`) {
			t.Errorf("%q gives %q", path, got)
		}
	}
	if got := hyperv.KeyOf(`X.Name="a \"quoted\" one",Other="2"`, "Other"); got != "2" {
		t.Errorf("a quote in a key hides the next one: %q", got)
	}
}

func TestInterfacePathsAreInstancePaths(t *testing.T) {
	const instance = `PCI\VEN_10DE&DEV_25B6&SUBSYS_157E10DE&REV_A1\4&18416dc3&0&0000`
	if got, paravirtual := hyperv.InstanceOf(a2); got != instance || paravirtual {
		t.Errorf("%s, paravirtual %t", got, paravirtual)
	}
	if got, paravirtual := hyperv.InstanceOf(a2 + `\GPUPARAV`); got != instance || !paravirtual {
		t.Errorf("%s, paravirtual %t", got, paravirtual)
	}
}

func TestClassesAreReadFromPaths(t *testing.T) {
	for path, want := range map[string]string{
		`\\HV01.corp.example\root\virtualization\v2:Msvm_ComputerSystem.CreationClassName="Msvm_ComputerSystem",` +
			`Name="a=b.c"`: "Msvm_ComputerSystem",
		`Win32_PnPEntity.DeviceID="PCI\\VEN:1"`:  "Win32_PnPEntity",
		`StdRegProv`:                             "StdRegProv",
		`\\.\root\cimv2:Win32_OperatingSystem=@`: "Win32_OperatingSystem",
		``:                                       "",
	} {
		if got := hyperv.ClassOf(path); got != want {
			t.Errorf("%s is of class %q, want %q", path, got, want)
		}
	}
}

// Names compare without case, as WMI's do: a class declares rebootNeeded.
func TestValuesAreFoundWithoutCase(t *testing.T) {
	row := hyperv.Row{Values: map[string]any{"rebootNeeded": true, "VmID": "x", "Count": int32(-1), "None": nil}}
	if !row.Bool("RebootNeeded") || row.String("vmid") != "x" || row.Uint("COUNT") != 4294967295 ||
		!row.Has("none") || row.Has("other") || row.UintPtr("None") != nil {
		t.Errorf("the row reads %t, %q, %d, %t, %t", row.Bool("RebootNeeded"), row.String("vmid"), row.Uint("COUNT"),
			row.Has("none"), row.Has("other"))
	}
}

func TestDriverVersions(t *testing.T) {
	for _, c := range []struct{ vendor, windows, want string }{
		{"NVIDIA", "32.0.15.7339", "573.39"},
		{"NVIDIA", "31.0.15.3818", "538.18"},
		{"NVIDIA", "573.39", "573.39"},
		{"AMD", "31.0.21001.45002", "31.0.21001.45002"},
		{"NVIDIA", "", ""},
	} {
		if got := hyperv.DriverVersion(c.vendor, c.windows); got != c.want {
			t.Errorf("%s %s is %q, want %q", c.vendor, c.windows, got, c.want)
		}
	}
}

// template is shortened from what GetText_ gives for a default setting.
const template = `<INSTANCE CLASSNAME="Msvm_GpuPartitionSettingData"><QUALIFIER NAME="dynamic" TYPE="boolean" ` +
	`TOSUBCLASS="false"><VALUE>TRUE</VALUE></QUALIFIER>` +
	`<PROPERTY NAME="InstanceID" CLASSORIGIN="CIM_SettingData" TYPE="string"><QUALIFIER NAME="key" ` +
	`TYPE="boolean"><VALUE>TRUE</VALUE></QUALIFIER><VALUE>Microsoft:Definition\1&amp;2\Default</VALUE></PROPERTY>` +
	`<PROPERTY.ARRAY NAME="HostResource" TYPE="string"></PROPERTY.ARRAY>` +
	`<PROPERTY NAME="MinPartitionVRAM" TYPE="uint64"></PROPERTY><PROPERTY NAME="MaxPartitionVRAM" ` +
	`TYPE="uint64"><VALUE>5</VALUE></PROPERTY></INSTANCE>`

func TestAPatchLeavesTheRestAlone(t *testing.T) {
	e, err := hyperv.ParseEmbedded(template)
	if err != nil {
		t.Fatal(err)
	}
	if got := e.String(); got != template {
		t.Errorf("without a patch it is\n%s\nwant\n%s", got, template)
	}
	e.Set("HostResource", []string{`\\HV01\root:X.Name="PCI\\VEN_1&DEV_2"`})
	e.Set("MinPartitionVRAM", uint64(1<<63))
	e.Set("MaxPartitionVRAM", nil)
	e.Set("NewOne", true)
	want := template
	for old, replacement := range map[string]string{
		`<PROPERTY.ARRAY NAME="HostResource" TYPE="string"></PROPERTY.ARRAY>`: `<PROPERTY.ARRAY NAME="HostResource" ` +
			`TYPE="string"><VALUE.ARRAY><VALUE>\\HV01\root:X.Name=&#34;PCI\\VEN_1&amp;DEV_2&#34;</VALUE></VALUE.ARRAY></PROPERTY.ARRAY>`,
		`<PROPERTY NAME="MinPartitionVRAM" TYPE="uint64"></PROPERTY>`: `<PROPERTY NAME="MinPartitionVRAM" ` +
			`TYPE="uint64"><VALUE>9223372036854775808</VALUE></PROPERTY>`,
		`<VALUE>5</VALUE>`: ``,
		`</INSTANCE>`:      `<PROPERTY NAME="NewOne" TYPE="boolean"><VALUE>TRUE</VALUE></PROPERTY></INSTANCE>`,
	} {
		want = strings.Replace(want, old, replacement, 1)
	}
	if got := e.String(); got != want {
		t.Errorf("patched it is\n%s\nwant\n%s", got, want)
	}
}

func TestTextThatIsNoInstanceIsRefused(t *testing.T) {
	for _, text := range []string{"", "instance of X {};", "<CLASS NAME=\"X\"/>", "<INSTANCE>"} {
		if _, err := hyperv.ParseEmbedded(text); err == nil {
			t.Errorf("%q is taken for an instance", text)
		}
	}
}
