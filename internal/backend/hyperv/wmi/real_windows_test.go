package wmi_test

import (
	"encoding/xml"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv/wmi"
	fakewmi "github.com/gpufleet/terraform-provider-gpu/internal/fake/wmi"
)

// onWindows is a connection to the WMI service of this machine. GPU_TEST_REAL_WMI says that it is
// Microsoft's: "windows", or "hyperv" where the service of Hyper-V runs, too.
func onWindows(t *testing.T) (w hyperv.WMI, hasHyperV bool) {
	t.Helper()
	is := os.Getenv("GPU_TEST_REAL_WMI")
	if is == "" {
		t.Skip("GPU_TEST_REAL_WMI is not set: this needs Windows itself")
	}
	w, err := wmi.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w, is == "hyperv"
}

// What the seam says of rows, missing properties and classes, device properties, the
// registry and XML is so on Windows itself.
func TestRealWindows(t *testing.T) {
	w, _ := onWindows(t)
	rows, err := w.Query(t.Context(), hyperv.CIMv2, "SELECT * FROM Win32_OperatingSystem", "BuildNumber",
		"Caption", "NoSuchProperty", "TotalVisibleMemorySize")
	if err != nil || len(rows) != 1 || rows[0].String("Caption") == "" || rows[0].Has("NoSuchProperty") ||
		rows[0].Uint("TotalVisibleMemorySize") == 0 {
		t.Errorf("the operating system is %+v, %v", rows, err)
	}
	if _, err := w.Query(t.Context(), hyperv.CIMv2, "SELECT * FROM NoSuchClass"); !errors.Is(err, hyperv.InvalidClass) {
		t.Errorf("an unknown class: %v", err)
	}
	if _, err := w.Query(t.Context(), `root\nosuch`, "SELECT * FROM X"); !errors.Is(err, hyperv.InvalidNamespace) {
		t.Errorf("an unknown namespace: %v", err)
	}
	if _, err := w.Query(t.Context(), hyperv.CIMv2, "SELEKT"); !errors.Is(err, hyperv.InvalidQuery) {
		t.Errorf("no query: %v", err)
	}
	res, err := w.Invoke(t.Context(), hyperv.Registry, "StdRegProv", "GetStringValue", map[string]any{
		"hDefKey": int32(-0x7ffffffe), "sSubKeyName": `SOFTWARE\Microsoft\Windows NT\CurrentVersion`, "sValueName": "CurrentBuildNumber",
	})
	if value, _ := res.Out["sValue"].(string); err != nil || res.ReturnValue != 0 || value == "" {
		t.Errorf("the registry answers %+v, %v", res, err)
	}
	entities, err := w.Query(t.Context(), hyperv.CIMv2,
		`SELECT * FROM Win32_PnPEntity WHERE DeviceID LIKE 'PCI\\%' OR DeviceID LIKE 'ROOT\\%'`, "DeviceID")
	if err != nil || len(entities) == 0 {
		t.Fatalf("%d devices, %v", len(entities), err)
	}
	res, err = w.Invoke(t.Context(), hyperv.CIMv2, entities[0].Path, "GetDeviceProperties", map[string]any{
		"devicePropertyKeys": []string{"DEVPKEY_Device_DeviceDesc", "DEVPKEY_PciDevice_RequiresReservedMemoryRegion"},
	})
	if list := (hyperv.Row{Values: res.Out}).Rows("deviceProperties"); err != nil || len(list) == 0 || list[0].String("KeyName") == "" {
		t.Errorf("the properties of %s are %+v, %v", entities[0].String("DeviceID"), res, err)
	}
	text, err := w.Text(t.Context(), hyperv.CIMv2, entities[0].Path)
	if err != nil || !strings.Contains(text, `<INSTANCE`) {
		t.Errorf("as text: %v\n%s", err, text)
	}
}

// classText is what the text of a class says of its properties.
type classText struct {
	Properties []struct {
		XMLName xml.Name
		Name    string `xml:"NAME,attr"`
		Type    string `xml:"TYPE,attr"`
	} `xml:",any"`
}

// The classes of this machine have the properties that the stand-in gives them on this
// build of Windows, with the same types. Their texts are kept where GPU_TEST_CLASSES says.
func TestRealClasses(t *testing.T) {
	w, hasHyperV := onWindows(t)
	rows, err := w.Query(t.Context(), hyperv.CIMv2, "SELECT * FROM Win32_OperatingSystem", "BuildNumber")
	if err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	build, err := strconv.Atoi(rows[0].String("BuildNumber"))
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{hyperv.CIMv2, hyperv.Registry, hyperv.Virtualization} {
		if namespace == hyperv.Virtualization && !hasHyperV {
			t.Log("no Hyper-V: its classes are not compared")
			continue
		}
		classes, err := fakewmi.Declared(namespace, build)
		if err != nil {
			t.Fatal(err)
		}
		for _, class := range classes {
			text, err := w.Text(t.Context(), namespace, class.Name)
			if err != nil {
				t.Errorf("%s: %v", class.Name, err)
				continue
			}
			if dir := os.Getenv("GPU_TEST_CLASSES"); dir != "" {
				file := filepath.Join(dir, strings.ReplaceAll(namespace, `\`, "."), class.Name+".xml")
				if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			compare(t, class, text)
		}
	}
}

func compare(t *testing.T, class *fakewmi.Class, text string) {
	t.Helper()
	var is classText
	if err := xml.Unmarshal([]byte(text), &is); err != nil {
		t.Errorf("%s: %v", class.Name, err)
		return
	}
	types, arrays := map[string]string{}, map[string]bool{}
	for _, p := range is.Properties {
		types[strings.ToLower(p.Name)] = p.Type
		arrays[strings.ToLower(p.Name)] = strings.Contains(p.XMLName.Local, "ARRAY")
	}
	for _, p := range class.Properties {
		kind, known := types[strings.ToLower(p.Name)]
		switch {
		case !known:
			t.Errorf("%s.%s is not there", class.Name, p.Name)
		case p.Type == fakewmi.Reference || p.Type == fakewmi.EmbeddedObject:
		case kind != string(p.Type) || arrays[strings.ToLower(p.Name)] != p.Array:
			t.Errorf("%s.%s is %s, and the stand-in has %s", class.Name, p.Name, kind, p.Type)
		}
	}
}
