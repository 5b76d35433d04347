package comserver_test

import (
	"errors"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/go-ole/go-ole"
	"github.com/go-ole/go-ole/oleutil"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	fakewmi "github.com/gpufleet/terraform-provider-gpu/internal/fake/wmi"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/wmi/comserver"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// HRESULTs of COM and automation.
const (
	noInterface    = 0x80004002
	released       = 0x800401FF
	memberNotFound = 0x80020003
	unknownName    = 0x80020006
	exception      = 0x80020009
	badParamCount  = 0x8002000E
	typeMismatch   = 0x80020005
)

// serve registers a host and runs a client of it. The client's stack must not move
// while it is in COM, because the server runs on it.
func serve(t *testing.T, client func(locator *ole.IDispatch)) {
	t.Helper()
	fleet, err := others.Create(filepath.Join(t.TempDir(), "fleet.json"), gpu.Snapshot{Hosts: []gpu.Host{{
		Name: "hv01", Platform: gpu.HyperV, OS: gpu.OS{Name: "Windows Server 2025", Build: 26100},
		Cluster: &gpu.Cluster{Name: "cl1", Nodes: []gpu.Node{{Name: "hv01", State: gpu.NodeUp}}},
		VMs:     []gpu.VM{{ID: "00000000-0000-4000-8000-000000000001", Name: "vm-1", State: gpu.VMOff, Generation: 2, Clustered: true}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	machine, err := fakewmi.New(fleet, "hv01")
	if err != nil {
		t.Fatal(err)
	}
	unregister, err := comserver.Register(machine)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		unregister()
		if n := comserver.Held(); n != 0 {
			t.Errorf("%d objects are still held", n)
		}
	}()
	done := make(chan struct{})
	go func() {
		defer close(done)
		var frame [72 << 10]byte
		unknown, err := oleutil.CreateObject("WbemScripting.SWbemLocator")
		if err != nil {
			t.Error(err)
			return
		}
		defer unknown.Release()
		locator, err := unknown.QueryInterface(ole.IID_IDispatch)
		if err != nil {
			t.Error(err)
			return
		}
		defer locator.Release()
		client(locator)
		runtime.KeepAlive(&frame)
	}()
	<-done
}

// object calls a method that answers with an object.
func object(t *testing.T, from *ole.IDispatch, method string, args ...any) *ole.IDispatch {
	t.Helper()
	v, err := oleutil.CallMethod(from, method, args...)
	if err != nil || v.ToIDispatch() == nil {
		t.Errorf("%s: %v", method, err)
		runtime.Goexit()
	}
	return v.ToIDispatch()
}

// property reads a property that is an object.
func property(t *testing.T, from *ole.IDispatch, name string) *ole.IDispatch {
	t.Helper()
	v, err := oleutil.GetProperty(from, name)
	if err != nil || v.ToIDispatch() == nil {
		t.Errorf("%s: %v", name, err)
		runtime.Goexit()
	}
	return v.ToIDispatch()
}

func wantHRESULT(t *testing.T, err error, want uintptr) {
	t.Helper()
	e, ok := errors.AsType[*ole.OleError](err)
	if !ok || e.Code() != want {
		t.Errorf("got %v, want 0x%08X", err, want)
	}
}

// wantException wants an exception with a code of WMI.
func wantException(t *testing.T, err error, want hyperv.Code) {
	t.Helper()
	wantHRESULT(t, err, exception)
	e, ok := errors.AsType[*ole.OleError](err)
	if !ok {
		return
	}
	info, ok := errors.AsType[ole.EXCEPINFO](e.SubError())
	if !ok || hyperv.Code(info.SCODE()) != want {
		t.Errorf("got %v, want the exception %v", err, want)
	}
}

func TestInterfaces(t *testing.T) {
	serve(t, func(locator *ole.IDispatch) {
		_, err := locator.QueryInterface(ole.IID_IEnumVariant)
		wantHRESULT(t, err, noInterface)
		again, err := locator.QueryInterface(ole.NewGUID("{76A6415B-CB41-11D1-8B02-00600806D9B6}"))
		if err != nil {
			t.Error(err)
			return
		}
		again.Release()
	})
}

func TestCallsAsAutomationMakesThem(t *testing.T) {
	serve(t, func(locator *ole.IDispatch) {
		services := object(t, locator, "ConnectServer", ".", hyperv.Virtualization)
		defer services.Release()
		tests := map[string]struct {
			call func() (*ole.VARIANT, error)
			want uintptr
		}{
			"unknown name":          {func() (*ole.VARIANT, error) { return oleutil.CallMethod(services, "ExecQuery_", "x") }, unknownName},
			"too few arguments":     {func() (*ole.VARIANT, error) { return oleutil.CallMethod(services, "ExecQuery") }, badParamCount},
			"too many arguments":    {func() (*ole.VARIANT, error) { return oleutil.CallMethod(services, "Get", "a", 0, nil, nil) }, badParamCount},
			"argument of a type":    {func() (*ole.VARIANT, error) { return oleutil.CallMethod(services, "ExecQuery", int32(1)) }, typeMismatch},
			"method as property":    {func() (*ole.VARIANT, error) { return oleutil.GetProperty(services, "ExecQuery") }, memberNotFound},
			"property as method":    {func() (*ole.VARIANT, error) { return oleutil.CallMethod(services, "Security_") }, memberNotFound},
			"property without put":  {func() (*ole.VARIANT, error) { return oleutil.PutProperty(services, "Security_", nil) }, memberNotFound},
			"property of no object": {func() (*ole.VARIANT, error) { return oleutil.GetProperty(services, "Name") }, unknownName},
		}
		for name, test := range tests {
			_, err := test.call()
			if err == nil {
				t.Errorf("%s: no error", name)
				continue
			}
			wantHRESULT(t, err, test.want)
		}
	})
}

func TestConnecting(t *testing.T) {
	serve(t, func(locator *ole.IDispatch) {
		_, err := oleutil.CallMethod(locator, "ConnectServer", "elsewhere", hyperv.CIMv2)
		wantException(t, err, hyperv.ServerUnavail)
		_, err = oleutil.CallMethod(locator, "ConnectServer", "", hyperv.CIMv2, "user", "password")
		wantException(t, err, 0x80041064)
		_, err = oleutil.CallMethod(locator, "ConnectServer", "", `root\nowhere`)
		wantException(t, err, hyperv.InvalidNamespace)
	})
}

func TestClusterWantsEncryption(t *testing.T) {
	serve(t, func(locator *ole.IDispatch) {
		services := object(t, locator, "ConnectServer", "", hyperv.MSCluster)
		defer services.Release()
		_, err := oleutil.CallMethod(services, "Get", "MSCluster_Cluster")
		wantException(t, err, hyperv.AccessDenied)
		security := property(t, services, "Security_")
		defer security.Release()
		if _, err := oleutil.PutProperty(security, "AuthenticationLevel", uint32(6)); err != nil {
			t.Error(err)
		}
		object(t, services, "Get", "MSCluster_Cluster").Release()
	})
}

func TestSet(t *testing.T) {
	serve(t, func(locator *ole.IDispatch) {
		services := object(t, locator, "ConnectServer", "", hyperv.Virtualization)
		defer services.Release()
		set := object(t, services, "InstancesOf", "Msvm_VirtualSystemManagementService")
		defer set.Release()
		if n, err := oleutil.GetProperty(set, "Count"); err != nil || n.Value() != int32(1) {
			t.Errorf("got %v, %v", n.Value(), err)
		}
		// A class that does not exist comes out when the set is looked at, not before.
		broken := object(t, services, "ExecQuery", "SELECT * FROM Msvm_Nothing")
		defer broken.Release()
		_, err := oleutil.GetProperty(broken, "Count")
		wantException(t, err, hyperv.InvalidClass)
	})
}

func TestObject(t *testing.T) {
	serve(t, func(locator *ole.IDispatch) {
		services := object(t, locator, "ConnectServer", "", hyperv.CIMv2)
		defer services.Release()
		class := object(t, services, "Get", "Win32_OperatingSystem")
		defer class.Release()
		spawned := object(t, class, "SpawnInstance_")
		defer spawned.Release()
		_, err := oleutil.CallMethod(spawned, "SpawnInstance_")
		wantException(t, err, 0x80041016)
		if v, err := oleutil.GetProperty(spawned, "BuildNumber"); err != nil || v.VT != ole.VT_NULL {
			t.Errorf("got %v, %v", v, err)
		}
		_, err = oleutil.PutProperty(spawned, "BuildNumber", true)
		wantException(t, err, 0x80041005)

		properties := property(t, spawned, "Properties_")
		defer properties.Release()
		build := object(t, properties, "Item", "BuildNumber")
		defer build.Release()
		if _, err := oleutil.PutProperty(build, "Value", "26100"); err != nil {
			t.Error(err)
		}
		copied := object(t, spawned, "Clone_")
		defer copied.Release()
		v, err := oleutil.GetProperty(copied, "BuildNumber")
		if err != nil || v.ToString() != "26100" {
			t.Errorf("got %v, %v", v, err)
		}
		_ = v.Clear()
		_, err = oleutil.CallMethod(properties, "Item", "Nothing")
		wantException(t, err, hyperv.NotFound)
	})
}

func TestUseAfterRelease(t *testing.T) {
	before := comserver.Misused()
	serve(t, func(locator *ole.IDispatch) {
		services := object(t, locator, "ConnectServer", "", hyperv.CIMv2)
		services.Release()
		_, err := oleutil.GetProperty(services, "Security_")
		wantHRESULT(t, err, released)
	})
	if n := comserver.Misused() - before; n != 1 {
		t.Errorf("it was counted %d times", n)
	}
}

func TestOneMachineAtATime(t *testing.T) {
	serve(t, func(*ole.IDispatch) {
		if _, err := comserver.Register(nil); err == nil {
			t.Error("a second machine was registered")
		}
	})
}
